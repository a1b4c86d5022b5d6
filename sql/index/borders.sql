-- The first rid of each group of $many chunks, from rid $first on.
SELECT rid
FROM (SELECT rid, row_number() OVER (ORDER BY rid) - 1 AS place FROM documents WHERE rid >= $first)
WHERE place % $many = 0
ORDER BY rid;
