-- Every point of the map is of a chunk that is there, or of a document that has chunks.
SELECT coalesce(m.node_id, m.doc_id) AS point
FROM corpus_map AS m
WHERE CASE WHEN m.node_id IS NULL THEN m.doc_id NOT IN (SELECT doc_id FROM documents)
           ELSE m.node_id NOT IN (SELECT node_id FROM documents) END
ORDER BY point;
