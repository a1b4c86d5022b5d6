-- The chunks with an id of one of these hashes.
SELECT node_id FROM documents WHERE hash(node_id) IN (SELECT unnest(CAST($hashes AS UBIGINT[]))) ORDER BY node_id;
