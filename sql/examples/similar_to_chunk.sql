-- What else is near in meaning to the first chunk of the file? Put a node_id of your own into more_like('…').
SELECT node_id, score, heading_path
FROM more_like((SELECT min(node_id) FROM documents), k := 5)
ORDER BY score DESC, doc_id, chunk_index
LIMIT 5;
