-- The points of the map in reading order.
SELECT m.node_id, m.doc_id, m.x, m.y, m.cluster, m.label
FROM corpus_map AS m LEFT JOIN documents AS d ON d.node_id = m.node_id
ORDER BY m.doc_id, d.chunk_index, m.node_id;
