"""The DuckDB file: its tables, its lexical index and its vectors."""
