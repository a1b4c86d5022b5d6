-- The chunks that meet conditions, which the caller writes in place of the placeholder, in reading order.
SELECT node_id, content, metadata_::text, doc_id, chunk_index, collection, i_start, i_end, page, heading_path, tags
FROM chunks
WHERE /* conditions */ true
ORDER BY doc_id, chunk_index;
