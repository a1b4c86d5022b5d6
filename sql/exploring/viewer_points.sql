-- The points of the map in the columns of SQLRooms' viewer, in reading order; points with links have their numbers.
SELECT coalesce(m.node_id, m.doc_id) AS node_id,
       coalesce(json_extract_string(s.metadata_, '$.title'), s.file_name, m.doc_id) AS title, s.file_name AS "fileName",
       s.file_path, coalesce(visible(d.text, d.shown), s.text) AS text, m.x, m.y, m.label AS topic,
       CAST(coalesce(o.n, 0) AS INTEGER) AS outdegree, CAST(coalesce(i.n, 0) AS INTEGER) AS indegree
FROM corpus_map AS m LEFT JOIN documents AS d ON d.node_id = m.node_id LEFT JOIN source_documents AS s ON s.doc_id = m.doc_id
     LEFT JOIN (SELECT source_id, count(*) AS n FROM viewer_links GROUP BY source_id) AS o
         ON o.source_id = coalesce(m.node_id, m.doc_id)
     LEFT JOIN (SELECT target_id, count(*) AS n FROM viewer_links GROUP BY target_id) AS i
         ON i.target_id = coalesce(m.node_id, m.doc_id)
ORDER BY m.doc_id, d.chunk_index, m.node_id;
