-- Every table, view and macro of this database, with its schema.
SELECT schema_name || '.' || table_name AS name FROM system.main.duckdb_tables() WHERE NOT internal AND database_name = system.main.current_database()
UNION SELECT schema_name || '.' || view_name FROM system.main.duckdb_views() WHERE NOT internal AND database_name = system.main.current_database()
UNION SELECT schema_name || '.' || function_name FROM system.main.duckdb_functions() WHERE NOT internal AND database_name = system.main.current_database()
ORDER BY name;
