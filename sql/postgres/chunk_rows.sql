-- Chunks by their ids, as results show them.
SELECT node_id, content, metadata_::text, doc_id, chunk_index, collection, heading_path, page, i_start, i_end, tags, shown, checksum
FROM chunks
WHERE node_id = ANY(%(node_ids)s::text[])
ORDER BY doc_id, chunk_index;
