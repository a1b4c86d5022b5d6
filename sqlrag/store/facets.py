"""The names that a file can be searched by: its collections, tags and metadata fields, counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlrag.store.schema import read_sql

if TYPE_CHECKING:
    import duckdb

KINDS = ("collections", "tags", "metadata_fields")


def counted_names(con: duckdb.DuckDBPyConnection, kind: str, most: int) -> list[dict[str, Any]]:
    """Return at most ``most`` names of a kind with the ``documents`` and ``chunks`` of each, the most used first."""
    rows = con.execute(read_sql(f"facets/{kind}"), {"most": most}).fetchall()
    return [{"name": name, "documents": documents, "chunks": chunks} for name, documents, chunks in rows]
