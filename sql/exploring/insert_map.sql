-- Puts a new map, new_map with the labels of its clusters in new_labels, in the place of the one that is there.
DELETE FROM corpus_map;

INSERT INTO corpus_map
SELECT m.node_id, m.doc_id, m.x, m.y, m.cluster, coalesce(l.label, '')
FROM new_map AS m LEFT JOIN new_labels AS l ON l.cluster = m.cluster
WHERE CASE WHEN m.node_id IS NULL THEN m.doc_id IN (SELECT doc_id FROM documents)
           ELSE m.node_id IN (SELECT node_id FROM documents) END
ORDER BY m.place;
