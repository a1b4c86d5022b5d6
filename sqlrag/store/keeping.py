"""Reads, adds and deletes single chunks, whatever ids they have; a document always keeps its chunks in one row."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sqlrag.errors import InputError
from sqlrag.store import runs, writing
from sqlrag.store.calls import select_by_key
from sqlrag.store.indexing import BETWEEN_CHUNKS, with_sources
from sqlrag.store.schema import read_sql
from sqlrag.store.sources import read_documents
from sqlrag.types import Chunk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import duckdb

    from sqlrag.types import Document, Vectors

_CONDITIONS = ("node_ids", "doc_ids", "collection", "tags_any", "tags_all", "metadata")


def read_chunks(con: duckdb.DuckDBPyConnection, conditions: Mapping[str, Any]) -> list[Chunk]:
    """Return the chunks that meet every condition, by ``doc_id``, then ``chunk_index``.

    ``conditions`` are ``node_ids``, ``doc_ids`` and the parameters of the search macros; one that is missing or None
    leaves nothing out.
    """
    bound = {name: conditions.get(name) for name in _CONDITIONS}
    return [chunk_of(row) for row in con.execute(read_sql("index/chosen_chunks"), bound).fetchall()]


def chunk_of(row: tuple[Any, ...]) -> Chunk:
    """Return a row of ``index/chosen_chunks`` as a chunk."""
    node_id, text, metadata_, doc_id, index, collection, start, end, page, path, tags = row
    metadata = json.loads(metadata_)
    content, kind = metadata.pop("_node_content", None), metadata.pop("_node_type", "TextNode")
    try:
        node = json.dumps({"class_name": kind, **json.loads(content)}, ensure_ascii=False)
    except (ValueError, TypeError):  # there is none, or something else wrote it
        node = ""
    return Chunk(
        doc_id, index, text, tuple(tags), metadata, collection, start or 0, end or 0, page, tuple(path), node_id, node
    )  # fmt: skip


class Rows(Protocol):
    """The rows of a store inside a transaction."""

    def read_chunks(self, conditions: Mapping[str, Any]) -> list[Chunk]:
        """Return the chunks that meet every condition; see :func:`read_chunks`."""
        ...

    def read_documents(self, doc_ids: Sequence[str]) -> list[Document]:
        """Return those of the documents that are there, in the order of their ids."""
        ...

    def read_vectors(self, node_ids: Sequence[str]) -> dict[str, Any]:
        """Return the vectors of chunks by their ids."""
        ...

    def write(
        self, documents: Sequence[Document], chunks: Sequence[Chunk], vectors: Vectors | None, gone: Sequence[str]
    ) -> None:
        """Write documents in place of what there is of them and of those in ``gone``."""
        ...

    def forget_collections(self) -> None:
        """Forget collections without documents."""
        ...


class FileRows:
    """The rows of a DuckDB file."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con

    def read_chunks(self, conditions: Mapping[str, Any]) -> list[Chunk]:  # noqa: D102 - see Rows
        return read_chunks(self._con, conditions)

    def read_documents(self, doc_ids: Sequence[str]) -> list[Document]:  # noqa: D102
        return read_documents(self._con, doc_ids)

    def read_vectors(self, node_ids: Sequence[str]) -> dict[str, Any]:  # noqa: D102
        statement = "SELECT node_id, embedding FROM documents WHERE node_id IN (...)"
        return dict(select_by_key(self._con, statement, node_ids))

    def write(  # noqa: D102
        self, documents: Sequence[Document], chunks: Sequence[Chunk], vectors: Vectors | None, gone: Sequence[str]
    ) -> None:
        writing.write(self._con, documents, chunks, vectors, gone)

    def forget_collections(self) -> None:  # noqa: D102
        runs.forget_collections(self._con)


def add_chunks(rows: Rows, chunks: Sequence[Chunk], vectors: Vectors) -> list[str]:
    """Add chunks, each in the place of the one with its id or else behind the others of its document.

    ``vectors`` are of unit length, one a chunk. Returns the ids of the documents that were written.
    """
    new = {chunk.node_id: chunk for chunk in chunks}
    if len(new) != len(chunks):
        twice = Counter(chunk.node_id for chunk in chunks).most_common(1)[0][0]
        raise InputError(f"The chunk {twice!r} is given more than once.")
    made = dict(zip((chunk.node_id for chunk in chunks), vectors, strict=True))
    moved = {chunk.doc_id for chunk in rows.read_chunks({"node_ids": list(new)})}
    stored = rows.read_chunks({"doc_ids": sorted(moved | {chunk.doc_id for chunk in chunks})})
    wanted: dict[str, list[Chunk]] = defaultdict(list)
    left = dict(new)
    for chunk in stored:
        found = new.get(chunk.node_id)
        if found is None:
            wanted[chunk.doc_id].append(chunk)
        elif found.doc_id == chunk.doc_id:
            wanted[chunk.doc_id].append(left.pop(chunk.node_id))
    for chunk in left.values():
        wanted[chunk.doc_id].append(chunk)
    return _rewrite(rows, stored, wanted, made)


def delete_chunks(rows: Rows, conditions: Mapping[str, Any]) -> list[str]:
    """Delete the chunks that meet every condition; a document that loses its last chunk goes with it.

    Returns the ids of the chunks that went, in order.
    """
    chosen = rows.read_chunks(conditions)
    going = {chunk.node_id for chunk in chosen}
    stored = rows.read_chunks({"doc_ids": sorted({chunk.doc_id for chunk in chosen})})
    wanted: dict[str, list[Chunk]] = defaultdict(list)
    for chunk in stored:
        if chunk.node_id not in going:
            wanted[chunk.doc_id].append(chunk)
    _rewrite(rows, stored, wanted, {})
    return [chunk.node_id for chunk in chosen]


def _rewrite(rows: Rows, stored: Sequence[Chunk], wanted: Mapping[str, list[Chunk]], made: dict[str, Any]) -> list[str]:
    """Write documents with the chunks that they are to have, in this order, each with the id that it has.

    ``stored`` are all chunks that the file has of the documents concerned, ``made`` the vectors of new ones.
    """
    before: dict[str, list[str]] = defaultdict(list)
    for chunk in stored:
        before[chunk.doc_id].append(chunk.content)
    gone = sorted(set(before) - set(wanted))
    # The text of a document that its chunks were joined to follows them; that of a file stays whole.
    joined = [
        document.doc_id
        for document in rows.read_documents(sorted(before))
        if document.text == BETWEEN_CHUNKS.join(before[document.doc_id])
    ]
    numbered = [
        replace(chunk, chunk_index=i, given_id=chunk.node_id) for own in wanted.values() for i, chunk in enumerate(own)
    ]
    documents, placed = with_sources(rows.read_documents, numbered, joined)
    kept = [chunk.node_id for chunk in placed if chunk.node_id not in made]
    vectors = {**made, **rows.read_vectors(kept)}
    matrix = np.array([vectors[chunk.node_id] for chunk in placed], dtype=np.float32) if placed else None
    rows.write(documents, placed, matrix, gone)
    if gone:
        rows.forget_collections()
    return [document.doc_id for document in documents]
