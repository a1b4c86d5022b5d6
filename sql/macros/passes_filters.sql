-- Whether a chunk is of the collections (a list), has any of tags_any and all of tags_all, and metadata that meet a filter, see
-- metadata_matches. NULL leaves a condition out, and costs nothing: it is folded before the scan.
CREATE OR REPLACE MACRO passes_filters(chunk_collection, chunk_tags, chunk_metadata, collection, tags_any, tags_all, metadata,
        doc_id := NULL, node_id := NULL) AS
    (collection IS NULL OR list_contains(collection, chunk_collection))
    AND (tags_any IS NULL OR list_has_any(chunk_tags, tags_any))
    AND (tags_all IS NULL OR list_has_all(chunk_tags, tags_all))
    AND (metadata IS NULL OR metadata_matches(chunk_metadata, metadata, doc_id := doc_id, node_id := node_id));
