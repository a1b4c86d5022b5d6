-- Whether the file has sources of rows; the table is made with the first.
SELECT 1 FROM duckdb_tables() WHERE database_name = current_database() AND schema_name = 'main' AND table_name = 'row_sources';
