-- How many documents are about the first chunk of all, month by month?
-- Those whose best chunk has a cosine of 0.5 or more with it; months without documents are there too. For a question of your own put
-- (SELECT embedding FROM query_embeddings WHERE query_text = '…') in the place of the first chunk's vector, once sqlrag embed has stored it.
WITH scores AS (
    SELECT d.doc_id, max(array_inner_product(d.embedding, q.embedding)) AS score
    FROM documents AS d CROSS JOIN (SELECT embedding FROM documents ORDER BY doc_id, chunk_index LIMIT 1) AS q
    GROUP BY d.doc_id
), dated AS (
    SELECT date_trunc('month', s.created_at) AS month, c.score >= 0.5 AS hit
    FROM scores AS c JOIN source_documents AS s ON s.doc_id = c.doc_id
), months AS (
    SELECT unnest(generate_series(CAST(min(month) AS TIMESTAMP), CAST(max(month) AS TIMESTAMP), INTERVAL 1 MONTH)) AS month FROM dated
)
SELECT CAST(m.month AS DATE) AS month, count(d.hit) FILTER (d.hit) AS count, count(d.hit) AS total,
       round(count(d.hit) FILTER (d.hit) / nullif(count(d.hit), 0), 6) AS share
FROM months AS m LEFT JOIN dated AS d ON d.month = m.month
GROUP BY m.month
ORDER BY m.month
LIMIT 120;
