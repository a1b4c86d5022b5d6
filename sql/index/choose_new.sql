-- The chunks that are about to be indexed: those from rid $first on.
CREATE OR REPLACE TEMP TABLE staged_chunks AS SELECT rid FROM documents WHERE rid >= $first;
