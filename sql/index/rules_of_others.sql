-- What belongs to tables and is more than their rows: rules, keys and defaults, and what stands beside them.
SELECT 'the rules, keys and defaults of the table ' || t.schema_name || '.' || t.table_name AS what, t.schema_name, t.table_name
FROM duckdb_tables() AS t
WHERE t.database_name = $database AND NOT t.internal AND (
    EXISTS (FROM duckdb_constraints() AS c WHERE c.database_name = $database AND c.table_oid = t.table_oid)
    OR EXISTS (FROM duckdb_columns() AS c WHERE c.database_name = $database AND c.table_oid = t.table_oid AND c.column_default IS NOT NULL)
)
UNION ALL SELECT 'the sequence ' || schema_name || '.' || sequence_name, schema_name, NULL
FROM duckdb_sequences() WHERE database_name = $database
UNION ALL SELECT 'the index ' || schema_name || '.' || index_name, schema_name, NULL
FROM duckdb_indexes() WHERE database_name = $database
UNION ALL SELECT 'the type ' || schema_name || '.' || type_name, schema_name, NULL
FROM duckdb_types() WHERE database_name = $database AND NOT internal
ORDER BY what;
