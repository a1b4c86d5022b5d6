-- The chunks of documents as they are stored, with their vectors and without what an insert derives from these.
SELECT node_id, text, embedding, CAST(metadata_ AS VARCHAR) AS metadata_, doc_id, collection, chunk_index, i_start, i_end, page,
       heading_path, tags, checksum, shown
FROM documents
WHERE doc_id IN (SELECT unnest($doc_ids))
ORDER BY doc_id, chunk_index, node_id;
