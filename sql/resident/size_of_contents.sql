-- How many bytes take what results show of the chunks.
SELECT coalesce(sum(strlen(text) + strlen(metadata_) + coalesce(strlen(shown), 0) + strlen(checksum) + strlen(collection)
    + coalesce(list_sum(list_transform(heading_path || tags, lambda part: strlen(part) + 8)), 0) + 80), 0)
FROM documents;
