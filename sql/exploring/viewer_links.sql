-- The links between points of the map, as SQLRooms' viewer counts them: from the chunk that holds the link to every chunk of the
-- document that it points to; where points are documents, from one to the other.
CREATE OR REPLACE TEMP TABLE viewer_links AS
SELECT DISTINCT coalesce(a.node_id, a.doc_id) AS source_id, coalesce(b.node_id, b.doc_id) AS target_id
FROM links AS l JOIN corpus_map AS a ON a.doc_id = l.source JOIN corpus_map AS b ON b.doc_id = l.target
     LEFT JOIN documents AS d ON d.node_id = a.node_id
WHERE l.source <> l.target AND (a.node_id IS NULL OR (l.i_start >= d.i_start AND l.i_start < d.i_end));
