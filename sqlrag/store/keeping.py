"""Reads, adds and deletes single chunks, whatever ids they have; a document always keeps its chunks in one row."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

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

    from sqlrag.store.database import Database
    from sqlrag.types import Vectors

_CONDITIONS = ("node_ids", "doc_ids", "collection", "tags_any", "tags_all", "metadata")


def read_chunks(con: duckdb.DuckDBPyConnection, conditions: Mapping[str, Any]) -> list[Chunk]:
    """Return the chunks that meet every condition, by ``doc_id``, then ``chunk_index``.

    ``conditions`` are ``node_ids``, ``doc_ids`` and the parameters of the search macros; one that is missing or None
    leaves nothing out.
    """
    bound = {name: conditions.get(name) for name in _CONDITIONS}
    return [_chunk(row) for row in con.execute(read_sql("index/chosen_chunks"), bound).fetchall()]


def _chunk(row: tuple[Any, ...]) -> Chunk:
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


def add_chunks(database: Database, chunks: Sequence[Chunk], vectors: Vectors) -> list[str]:
    """Add chunks, each in the place of the one with its id or else behind the others of its document.

    ``vectors`` are of unit length, one a chunk. Returns the ids of the documents that were written.
    """
    new = {chunk.node_id: chunk for chunk in chunks}
    if len(new) != len(chunks):
        twice = Counter(chunk.node_id for chunk in chunks).most_common(1)[0][0]
        raise InputError(f"The chunk {twice!r} is given more than once.")
    made = dict(zip((chunk.node_id for chunk in chunks), vectors, strict=True))
    with database.transaction() as con:
        moved = {chunk.doc_id for chunk in read_chunks(con, {"node_ids": list(new)})}
        stored = read_chunks(con, {"doc_ids": sorted(moved | {chunk.doc_id for chunk in chunks})})
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
        return _rewrite(con, stored, wanted, made)


def delete_chunks(database: Database, conditions: Mapping[str, Any]) -> list[str]:
    """Delete the chunks that meet every condition; a document that loses its last chunk goes with it.

    Returns the ids of the chunks that went, in order.
    """
    with database.transaction() as con:
        chosen = read_chunks(con, conditions)
        going = {chunk.node_id for chunk in chosen}
        stored = read_chunks(con, {"doc_ids": sorted({chunk.doc_id for chunk in chosen})})
        wanted: dict[str, list[Chunk]] = defaultdict(list)
        for chunk in stored:
            if chunk.node_id not in going:
                wanted[chunk.doc_id].append(chunk)
        _rewrite(con, stored, wanted, {})
    return [chunk.node_id for chunk in chosen]


def _rewrite(
    con: duckdb.DuckDBPyConnection, stored: Sequence[Chunk], wanted: Mapping[str, list[Chunk]], made: dict[str, Any]
) -> list[str]:
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
        for document in read_documents(con, sorted(before))
        if document.text == BETWEEN_CHUNKS.join(before[document.doc_id])
    ]
    numbered = [
        replace(chunk, chunk_index=i, given_id=chunk.node_id) for own in wanted.values() for i, chunk in enumerate(own)
    ]
    documents, placed = with_sources(con, numbered, joined)
    kept = [chunk.node_id for chunk in placed if chunk.node_id not in made]
    rows = select_by_key(con, "SELECT node_id, embedding FROM documents WHERE node_id IN (...)", kept)
    vectors = {**made, **dict(rows)}
    matrix = np.array([vectors[chunk.node_id] for chunk in placed], dtype=np.float32) if placed else None
    writing.write(con, documents, placed, matrix, gone)
    if gone:
        runs.forget_collections(con)
    return [document.doc_id for document in documents]
