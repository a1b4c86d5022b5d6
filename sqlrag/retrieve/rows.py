"""The rows behind hits: chunks and source documents by their keys."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlrag.store.calls import select_by_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

_CHUNK_COLUMNS = (
    "node_id", "text", "metadata", "doc_id", "chunk_index", "collection", "heading_path", "page", "i_start", "i_end"
)  # fmt: skip
_SOURCE_COLUMNS = ("doc_id", "file_path", "file_name", "text", "metadata")


def chunk_rows(con: duckdb.DuckDBPyConnection, node_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return chunks by their node_id."""
    rows = select_by_key(
        con,
        "SELECT node_id, text, public_metadata(metadata_), doc_id, chunk_index, collection, heading_path, page, "
        "i_start, i_end FROM documents WHERE node_id IN (...)",
        node_ids,
    )
    chunks = [dict(zip(_CHUNK_COLUMNS, row, strict=True)) for row in rows]
    for chunk in chunks:
        chunk["metadata"] = json.loads(chunk["metadata"])
    return {chunk["node_id"]: chunk for chunk in chunks}


def source_documents(con: duckdb.DuckDBPyConnection, doc_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return source documents by their doc_id."""
    rows = select_by_key(
        con,
        "SELECT doc_id, file_path, file_name, text, metadata_ FROM source_documents WHERE doc_id IN (...)",
        sorted(set(doc_ids)),
    )
    sources = [dict(zip(_SOURCE_COLUMNS, row, strict=True)) for row in rows]
    for source in sources:
        source["metadata"] = json.loads(source["metadata"])
    return {source["doc_id"]: source for source in sources}
