-- Database, kind, schema, name, arguments and text of every table, view, macro and type that is not DuckDB's own. No function is
-- called and names are whole: a file can have macros by the names of DuckDB's functions.
SELECT database_name, function_type AS kind, schema_name, function_name AS name, parameters AS arguments, macro_definition AS text
FROM system.main.duckdb_functions() WHERE NOT internal
UNION ALL SELECT database_name, 'view', schema_name, view_name, NULL, sql FROM system.main.duckdb_views() WHERE NOT internal
UNION ALL SELECT database_name, 'table', schema_name, table_name, NULL, sql FROM system.main.duckdb_tables() WHERE NOT internal
UNION ALL SELECT database_name, 'type', schema_name, type_name, NULL, NULL FROM system.main.duckdb_types() WHERE NOT internal;
