-- A hash of each chunk's id.
SELECT hash(node_id) AS hash FROM documents;
