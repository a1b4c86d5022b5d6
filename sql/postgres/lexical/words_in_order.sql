-- In DuckDB: what count_words has collected.
SELECT * FROM counted_words ORDER BY word, rid;
