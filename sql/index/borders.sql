-- The first rid of each group of at most $many chunks and about $bytes of text, from rid $first on.
SELECT min(rid) AS rid
FROM (
    SELECT rid, row_number() OVER (ORDER BY rid) - 1 AS place, sum(strlen(text)) OVER (ORDER BY rid) AS bytes
    FROM documents
    WHERE rid >= $first
)
GROUP BY place // $many, bytes // $bytes
ORDER BY rid;
