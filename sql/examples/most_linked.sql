-- Which documents do most others link to?
SELECT doc_id, indegree, outdegree, external, broken
FROM link_degrees
ORDER BY indegree DESC, outdegree DESC, doc_id
LIMIT 10;
