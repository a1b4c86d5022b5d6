-- The chunks at the places $doc_ids, $indexes (two lists).
SELECT node_id, text, doc_id, chunk_index, collection, heading_path, page, i_start, i_end, shown
FROM documents JOIN (SELECT unnest($doc_ids) AS doc_id, unnest($indexes) AS chunk_index) AS place
USING (doc_id, chunk_index)
ORDER BY doc_id, chunk_index;
