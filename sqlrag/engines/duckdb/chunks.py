"""Reads, adds and deletes single chunks, whatever ids they have, with the source documents they belong to."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sqlrag.engines.duckdb import metadata
from sqlrag.engines.duckdb.documents import refuse_taken, write
from sqlrag.engines.duckdb.rows import read_documents
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.engines.duckdb.statements import select_by_key
from sqlrag.errors import InputError
from sqlrag.types import Chunk, Document

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import duckdb

    from sqlrag.types import Vectors

BETWEEN_CHUNKS = "\n\n"


@dataclass(frozen=True)
class IndexReport:
    """What :func:`sqlrag.index` did: the ``doc_id`` of every document written, in order, and how much of it.

    ``embedded`` is how many texts went to the model (equal ones once); 0 where the vectors were given.
    """

    documents: list[str]
    chunks: int
    embedded: int


def with_sources(
    read: Callable[[Sequence[str]], Sequence[Document]], chunks: Sequence[Chunk], joined: Collection[str] = ()
) -> tuple[list[Document], list[Chunk]]:
    """Return the documents of chunks, by id, and the chunks in their order with the offsets that they have there.

    A document that the store has is kept where its text holds every chunk: at the chunk's offsets, or, where they are
    not known (both 0), in order anywhere. Else its text, and that of a new document, is the chunks joined by blank
    lines; so is that of the documents in ``joined``, whatever the store has. ``read`` returns the stored documents
    among some ids.

    Raises
    ------
    InputError
        The chunks of a document are not numbered from 0 on without a gap, or are of several collections.
    """
    groups: dict[str, list[Chunk]] = defaultdict(list)
    for chunk in chunks:
        groups[chunk.doc_id].append(chunk)
    known = {document.doc_id: document for document in read(list(groups))}
    documents, placed = [], []
    for doc_id in sorted(groups):
        own = sorted(groups[doc_id], key=lambda chunk: chunk.chunk_index)
        _check(doc_id, own)
        document = known.get(doc_id)
        found = None if document is None or doc_id in joined else _placed(document.text, own)
        if document is None or found is None:
            document, found = _joined(document or Document(doc_id, "", own[0].collection), own)
        documents.append(document)
        placed += found
    return documents, placed


def _check(doc_id: str, own: Sequence[Chunk]) -> None:
    numbers = [chunk.chunk_index for chunk in own]
    if numbers != list(range(len(own))):
        raise InputError(
            f"The chunks of {doc_id!r} are numbered {numbers[:8]}{' …' if numbers[8:] else ''}; give all chunks of a "
            "document, numbered from 0 on, each once."
        )
    collections = sorted({chunk.collection for chunk in own})
    if len(collections) > 1:
        raise InputError(f"The chunks of {doc_id!r} are of several collections: {', '.join(collections)}.")


def _placed(text: str, own: Sequence[Chunk]) -> list[Chunk] | None:
    """Return the chunks with their offsets in a text, or None where it does not contain them."""
    if text == BETWEEN_CHUNKS.join(chunk.content for chunk in own) and not any(c.i_start or c.i_end for c in own):
        return _in_sequence(own)  # joined by an earlier call: the same offsets again
    placed, start = [], 0
    for chunk in own:
        found = chunk
        if not (chunk.i_start or chunk.i_end):
            start = text.find(chunk.content, start)
            found = replace(chunk, i_start=start, i_end=start + len(chunk.content))
        start = found.i_start
        if start < 0 or text[start : found.i_end] != chunk.content:
            return None
        placed.append(found)
    return placed


def _in_sequence(own: Sequence[Chunk]) -> list[Chunk]:
    """Return the chunks with the offsets that they have when they are joined."""
    placed, start = [], 0
    for chunk in own:
        placed.append(replace(chunk, i_start=start, i_end=start + len(chunk.content)))
        start += len(chunk.content) + len(BETWEEN_CHUNKS)
    return placed


def _joined(document: Document, own: Sequence[Chunk]) -> tuple[Document, list[Chunk]]:
    """Return the document with the chunks as its text, and the chunks with their offsets in it."""
    placed = _in_sequence(own)
    text = BETWEEN_CHUNKS.join(chunk.content for chunk in own)
    data = text.encode()
    checksum = hashlib.sha256(data).hexdigest()
    made = replace(
        document, text=text, checksum=checksum, size_bytes=len(data), modified_at=None, body_start=0, page_starts=()
    )
    return made, placed


_CONDITIONS = ("node_ids", "doc_ids", "collection", "tags_any", "tags_all", "metadata")


def read_chunks(con: duckdb.DuckDBPyConnection, conditions: Mapping[str, Any]) -> list[Chunk]:
    """Return the chunks that meet every condition, by ``doc_id``, then ``chunk_index``.

    ``conditions`` are ``node_ids``, ``doc_ids`` and the parameters of the search macros; one that is missing or None
    excludes nothing.
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
    except (ValueError, TypeError):  # there is none, or another program wrote it
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
        """Write documents, replacing their stored rows; delete those in ``gone``."""
        ...

    def forget_collections(self) -> None:
        """Delete collections without documents."""
        ...


class FileRows:
    """The rows of a DuckDB file."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con

    def read_chunks(self, conditions: Mapping[str, Any]) -> list[Chunk]:
        return read_chunks(self._con, conditions)

    def read_documents(self, doc_ids: Sequence[str]) -> list[Document]:
        return read_documents(self._con, doc_ids)

    def read_vectors(self, node_ids: Sequence[str]) -> dict[str, Any]:
        statement = "SELECT node_id, embedding FROM documents WHERE node_id IN (...)"
        return dict(select_by_key(self._con, statement, node_ids))

    def write(
        self, documents: Sequence[Document], chunks: Sequence[Chunk], vectors: Vectors | None, gone: Sequence[str]
    ) -> None:
        write(self._con, documents, chunks, vectors, gone)

    def forget_collections(self) -> None:
        metadata.forget_collections(self._con)


def add_chunks(rows: Rows, chunks: Sequence[Chunk], vectors: Vectors) -> list[str]:
    """Add chunks; each replaces the one with its id, or else follows the others of its document.

    ``vectors`` are of unit length, one a chunk. Returns the ids of the documents that were written.
    """
    new = {chunk.node_id: chunk for chunk in chunks}
    if len(new) != len(chunks):
        twice = Counter(chunk.node_id for chunk in chunks).most_common(1)[0][0]
        raise InputError(f"The chunk {twice!r} is given more than once.")
    made = dict(zip((chunk.node_id for chunk in chunks), vectors, strict=True))
    documents = {chunk.node_id: chunk.doc_id for chunk in chunks}
    known = rows.read_chunks({"node_ids": list(new)})
    refuse_taken([(one.node_id, one.doc_id) for one in known if one.doc_id != documents[one.node_id]], documents)
    stored = rows.read_chunks({"doc_ids": sorted({chunk.doc_id for chunk in chunks})})
    wanted: dict[str, list[Chunk]] = defaultdict(list)
    left = dict(new)
    for chunk in stored:
        wanted[chunk.doc_id].append(left.pop(chunk.node_id, chunk))
    for chunk in left.values():
        wanted[chunk.doc_id].append(chunk)
    return _rewrite(rows, stored, wanted, made)


def delete_chunks(rows: Rows, conditions: Mapping[str, Any]) -> list[str]:
    """Delete the chunks that meet every condition; a document that loses its last chunk is deleted, too.

    Returns the ids of the deleted chunks, in order.
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
    """Write documents with their new lists of chunks, in this order; each chunk keeps its id.

    ``stored`` are all chunks that the file has of the documents concerned, ``made`` the vectors of new ones.
    """
    before: dict[str, list[str]] = defaultdict(list)
    for chunk in stored:
        before[chunk.doc_id].append(chunk.content)
    gone = sorted(set(before) - set(wanted))
    # A text that was joined from chunks changes with them; the text of a file stays whole.
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
