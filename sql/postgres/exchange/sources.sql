-- Documents as an export has them: the path of a file is that below the folder that it was read from.
SELECT doc_id,
       CASE WHEN chunk_policy IS NOT NULL AND right(file_path, length(name) + 1) = '/' || name THEN name ELSE file_path END AS file_path,
       file_name, text, metadata_::text AS metadata_, collection, checksum, mime, size_bytes, modified_at, tags,
       body_start, page_starts, chunk_policy::text AS chunk_policy
FROM (
    SELECT *, CASE WHEN collection = 'default' THEN doc_id ELSE substr(doc_id, length(collection) + 2) END AS name FROM documents
) AS d
WHERE doc_id = ANY(%(doc_ids)s::text[])
ORDER BY doc_id;
