-- Puts a new map, new_map with the labels of its clusters in new_labels, in place of the existing one; without the points
-- of documents of which a chunk was changed or removed since the vectors were read: read_chunks.
DELETE FROM corpus_map;

INSERT INTO corpus_map
SELECT m.node_id, m.doc_id, m.x, m.y, m.cluster, coalesce(l.label, '')
FROM new_map AS m LEFT JOIN new_labels AS l ON l.cluster = m.cluster
WHERE m.doc_id NOT IN (
    SELECT r.doc_id FROM read_chunks AS r LEFT JOIN documents AS d ON d.node_id = r.node_id
    WHERE d.node_id IS NULL OR hash(d.text, d.w0) <> r.fingerprint
)
ORDER BY m.place;
