-- The tables and views of every database of a connection, each with its comment.
SELECT database_name AS database, schema_name AS schema, table_name AS name, comment FROM duckdb_tables() WHERE NOT internal
UNION ALL SELECT database_name, schema_name, view_name, comment FROM duckdb_views() WHERE NOT internal
ORDER BY ALL;
