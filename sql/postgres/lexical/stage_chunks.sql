-- In DuckDB: the chunks whose words are counted next.
CREATE OR REPLACE TEMP TABLE staged_chunks AS SELECT unnest(range($first, $end)) AS rid;
