-- The chunks that meet every condition that is not NULL, in reading order.
SELECT node_id, text, metadata_, doc_id, chunk_index, collection, i_start, i_end, page, heading_path, tags
FROM documents
WHERE (CAST($node_ids AS VARCHAR[]) IS NULL OR node_id IN (SELECT unnest(CAST($node_ids AS VARCHAR[]))))
  AND (CAST($doc_ids AS VARCHAR[]) IS NULL OR doc_id IN (SELECT unnest(CAST($doc_ids AS VARCHAR[]))))
  AND passes_filters(collection, tags, metadata_, CAST($collection AS VARCHAR[]), CAST($tags_any AS VARCHAR[]), CAST($tags_all AS VARCHAR[]), CAST($metadata AS JSON),
                     doc_id := doc_id, node_id := node_id)
ORDER BY doc_id, chunk_index;
