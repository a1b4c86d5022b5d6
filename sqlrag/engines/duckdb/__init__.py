"""The DuckDB file: its tables, its lexical index, its vectors, and searches in it."""
