-- In DuckDB: the lengths that count_words has collected.
SELECT * FROM measured_chunks ORDER BY rid;
