-- The chunks that are about to be indexed: those from rid $first on, up to $end where it is not NULL.
CREATE OR REPLACE TEMP TABLE staged_chunks AS
SELECT rid FROM documents WHERE rid >= $first AND (CAST($end AS INTEGER) IS NULL OR rid < $end);
