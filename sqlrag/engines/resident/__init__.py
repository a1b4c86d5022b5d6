"""Answers searches of one DuckDB file from arrays in memory, with the ids, order and scores of its SQL."""
