-- Which chunks of different documents say nearly the same? Compares every pair: for files of some thousand chunks.
SELECT a.node_id, b.node_id AS other, round(CAST(array_inner_product(a.embedding, b.embedding) AS DOUBLE), 3) AS cosine
FROM documents AS a JOIN documents AS b ON a.doc_id < b.doc_id
ORDER BY cosine DESC, a.node_id, b.node_id
LIMIT 10;
