-- Vectors and texts of at most $sample chunks, evenly spread over the file.
SELECT d.embedding, left(visible(d.text, d.shown), 300) AS text
FROM documents AS d
WHERE d.rid IN (
    SELECT numbered.rid
    FROM (SELECT n.rid, row_number() OVER (ORDER BY n.rid) - 1 AS number, count(*) OVER () AS total FROM documents AS n) AS numbered
    WHERE numbered.number % CAST(ceil(numbered.total / $sample) AS BIGINT) = 0
)
ORDER BY d.rid;
