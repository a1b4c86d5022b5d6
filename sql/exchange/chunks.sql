-- The chunks of documents as an export holds them, with their vectors; without what llama-index opens a row by, which an
-- import makes again.
SELECT node_id, text, CAST(public_metadata(metadata_) AS VARCHAR) AS metadata_, doc_id, collection, chunk_index, i_start, i_end,
       page, heading_path, tags, embedding
FROM documents
WHERE doc_id IN (SELECT unnest($doc_ids))
ORDER BY doc_id, chunk_index, node_id;
