"""Hybrid search (vectors + BM25) over your documents in one DuckDB file."""

__version__ = "0.1.0"
