-- The columns that are keys by themselves, which have an index.
SELECT schema_name, table_name, constraint_column_names[1] AS column_name
FROM system.main.duckdb_constraints()
WHERE constraint_type IN ('PRIMARY KEY', 'UNIQUE') AND len(constraint_column_names) = 1
    AND database_name = current_database()
ORDER BY schema_name, table_name, column_name;
