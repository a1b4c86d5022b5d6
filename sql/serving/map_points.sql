-- The points of the map in reading order, a document by its first chunk; of more than $most, those with the first hashes of their ids.
WITH firsts AS (SELECT doc_id, min_by(node_id, chunk_index) AS node_id FROM documents GROUP BY doc_id),
     chosen AS (
         SELECT coalesce(m.node_id, f.node_id) AS node_id, m.x, m.y, m.cluster
         FROM corpus_map AS m LEFT JOIN firsts AS f ON m.node_id IS NULL AND f.doc_id = m.doc_id
         ORDER BY md5(coalesce(m.node_id, m.doc_id)), m.node_id, m.doc_id
         LIMIT $most
     )
SELECT c.node_id, c.x, c.y, c.cluster, d.heading_path[-1] AS heading, s.doc_id, s.file_name,
       CASE WHEN json_type(s.metadata_, '$.title') = 'VARCHAR' THEN s.metadata_->>'$.title' END AS title
FROM chosen AS c JOIN documents AS d ON d.node_id = c.node_id JOIN source_documents AS s ON s.doc_id = d.doc_id
ORDER BY d.doc_id, d.chunk_index, c.node_id;
