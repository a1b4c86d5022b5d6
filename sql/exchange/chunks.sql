-- The chunks of documents as an export has them, with their vectors; without llama-index's fields, which an import
-- restores.
SELECT node_id, text, CAST(public_metadata(metadata_) AS VARCHAR) AS metadata_, doc_id, collection, chunk_index, i_start, i_end,
       page, heading_path, tags, embedding
FROM documents
WHERE doc_id IN (SELECT unnest($doc_ids))
ORDER BY doc_id, chunk_index, node_id;
