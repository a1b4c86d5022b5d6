-- The names of DuckDB's own functions and types, by themselves.
SELECT function_name AS name FROM system.main.duckdb_functions() WHERE internal
UNION SELECT type_name FROM system.main.duckdb_types() WHERE internal;
