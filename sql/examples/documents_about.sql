-- Which documents are about a subject, and what is the best passage of each?
SELECT doc_id, any_value(file_name) AS file_name, max(score) AS score, arg_max(node_id, score) AS best_chunk
FROM (SELECT * FROM lexical_query('filter by tag', k := 100)) JOIN sources USING (doc_id)
GROUP BY doc_id
ORDER BY score DESC, doc_id
LIMIT 5;
