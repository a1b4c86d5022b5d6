-- Which documents are about a subject, and what is the best passage of each?
SELECT s.doc_id, s.file_name, l.score, l.node_id AS best_chunk
FROM lexical_query('filter by tag', k := 100) AS l JOIN source_documents AS s ON s.doc_id = l.doc_id
QUALIFY row_number() OVER (PARTITION BY s.doc_id ORDER BY l.score DESC, l.chunk_index) = 1
ORDER BY l.score DESC, s.doc_id
LIMIT 5;
