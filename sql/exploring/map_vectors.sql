-- The vectors of the chunks of a range of keys.
SELECT rid, embedding FROM documents WHERE rid >= $first AND rid < $stop ORDER BY rid;
