-- The chunks that have one of the ids $node_ids, each with its document.
SELECT node_id, doc_id FROM documents WHERE node_id IN (SELECT unnest($node_ids)) ORDER BY node_id;
