-- The number of every chunk.
SELECT rid FROM chunks ORDER BY rid;
