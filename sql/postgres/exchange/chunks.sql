-- The chunks of documents as an export has them, with their vectors.
SELECT node_id, content AS text, metadata_::text AS metadata_, doc_id, collection, chunk_index, i_start, i_end, page, heading_path,
       tags, embedding
FROM chunks
WHERE doc_id = ANY(%(doc_ids)s::text[])
ORDER BY doc_id, chunk_index, node_id;
