-- The chunks of documents without their texts, with their vectors, in reading order.
SELECT doc_id, i_start, i_end, page, heading_path, shown, embedding FROM documents
WHERE doc_id IN (SELECT unnest($doc_ids)) ORDER BY doc_id, chunk_index;
