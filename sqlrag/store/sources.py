"""Reads back what a file holds of its documents: their state, their texts, their chunks and vectors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from sqlrag.store.schema import read_sql
from sqlrag.types import Document

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import duckdb

    from sqlrag.types import Vectors


class SourceState(NamedTuple):
    """What tells whether a document has changed.

    ``chunk_policy`` is None where a program made its chunks; ``is_whole`` is False where chunks of it are missing.
    """

    collection: str
    checksum: str
    mime: str
    file_path: str
    modified_at: datetime | None
    chunk_policy: str | None
    is_whole: bool


class Slice(NamedTuple):
    """A stored chunk without its text."""

    i_start: int
    i_end: int
    page: int | None
    heading_path: tuple[str, ...]


def read_states(con: duckdb.DuckDBPyConnection) -> dict[str, SourceState]:
    """Return the state of every document, in the order of their ids."""
    rows = con.execute(
        "SELECT doc_id, collection, checksum, mime, file_path, modified_at, chunk_policy "
        "FROM source_documents ORDER BY doc_id"
    ).fetchall()
    incomplete = set(con.execute(read_sql("checks/missing_chunks")).fetchall())
    return {row[0]: SourceState._make((*row[1:], (row[0],) not in incomplete)) for row in rows}


def read_documents(con: duckdb.DuckDBPyConnection, doc_ids: Sequence[str]) -> list[Document]:
    """Return documents as they were stored, in the order of their ids; unknown ids are left out."""
    rows = con.execute(
        "SELECT doc_id, text, collection, file_path, file_name, checksum, mime, size_bytes, modified_at, tags, "
        "metadata_, body_start, page_starts FROM source_documents WHERE doc_id IN (SELECT unnest($1)) ORDER BY doc_id",
        [list(doc_ids)],
    ).fetchall()
    names = [column[0] for column in con.description or ()]
    return [document_of(dict(zip(names, row, strict=True))) for row in rows]


def document_of(row: dict[str, Any]) -> Document:
    """Return a row of ``source_documents`` as a document."""
    row["metadata"] = json.loads(row.pop("metadata_"))
    return Document(**{**row, "tags": tuple(row["tags"]), "page_starts": tuple(row["page_starts"])})


def read_slices(
    con: duckdb.DuckDBPyConnection, doc_id: str, checksum: str, dimensions: int
) -> tuple[list[Slice], Vectors]:
    """Return the chunks of a document and their vectors, ``[n, dimensions]``; none where it has another checksum."""
    table = con.sql(
        "SELECT i_start, i_end, page, heading_path, embedding FROM documents "
        "WHERE doc_id = $1 AND checksum = $2 ORDER BY chunk_index",
        params=[doc_id, checksum],
    ).to_arrow_table()
    columns = [table[name].to_pylist() for name in ("i_start", "i_end", "page", "heading_path")]
    slices = [Slice(start, end, page, tuple(path)) for start, end, page, path in zip(*columns, strict=True)]
    return slices, vector_matrix(table["embedding"], dimensions)


def known_vectors(con: duckdb.DuckDBPyConnection, texts: Sequence[str], dimensions: int) -> dict[str, Vectors]:
    """Return the vectors that the file holds of texts, as they were given to the model: ``[dimensions]`` each.

    Chunks whose vectors a program gave are passed over: nobody knows of which text they are.
    """
    con.register("wanted_texts", pa.table({"place": pa.array(range(len(texts)), pa.int32()), "text": list(texts)}))
    table = con.sql(read_sql("index/known_vectors")).to_arrow_table()
    con.unregister("wanted_texts")
    vectors = vector_matrix(table["embedding"], dimensions)
    return {texts[place]: vectors[i] for i, place in enumerate(table["place"].to_pylist())}


def refresh_sources(con: duckdb.DuckDBPyConnection, seen: Sequence[tuple[str, str, datetime | None]]) -> None:
    """Set path and time of change of documents (doc_id, file_path, modified_at), inside the caller's transaction."""
    columns = list(zip(*seen, strict=True))
    table = pa.table(
        {"doc_id": columns[0], "file_path": columns[1], "modified_at": pa.array(columns[2], pa.timestamp("us"))}
    )
    con.register("seen_sources", table)
    con.execute(read_sql("index/refresh_sources"))
    con.unregister("seen_sources")


def vector_matrix(column: pa.ChunkedArray, dimensions: int) -> Vectors:
    """Return a column of vectors as ``[n, dimensions] float32``."""
    values = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    matrix: Vectors = np.ascontiguousarray(values, dtype=np.float32).reshape(-1, dimensions)
    return matrix
