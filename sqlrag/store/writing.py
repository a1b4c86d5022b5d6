"""Writes whole documents: their source rows, their chunks and vectors, and the lexical index, in one transaction."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sqlrag.errors import InputError
from sqlrag.store import lexical, linking
from sqlrag.store.metadata import OWN_IDS, read_metadata, refresh_counts, write_metadata
from sqlrag.store.schema import for_dimensions, read_sql
from sqlrag.store.vectors import sign_words, unit_vectors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import duckdb
    from numpy.typing import ArrayLike

    from sqlrag.store.database import Database
    from sqlrag.types import Chunk, Document, Vectors

_LLAMA_INDEX_FIELDS = frozenset({"_node_content", "_node_type"})


def upsert(
    database: Database,
    documents: Sequence[Document],
    chunks: Sequence[Chunk],
    embeddings: ArrayLike,
    *,
    dimensions: int,
) -> None:
    """Insert documents with their chunks, in place of what the file held of them, by the settings of the file.

    Either all of it is written or nothing, and it can be searched at once.
    """
    vectors = unit_vectors(embeddings, dimensions, [chunk.node_id for chunk in chunks]) if len(chunks) else None
    with database.transaction() as con:
        write(con, documents, chunks, vectors)


def write(
    con: duckdb.DuckDBPyConnection,
    documents: Sequence[Document],
    chunks: Sequence[Chunk],
    vectors: Vectors | None,
    gone: Sequence[str] = (),
) -> None:
    """Do the work of :func:`upsert` inside the caller's transaction; ``gone`` are documents that go with it."""
    check_rows(documents, chunks, 0 if vectors is None else len(vectors))
    check_collections(con, {document.doc_id: document.collection for document in documents})
    # Read here, since another thread may have changed them.
    settings = read_metadata(con)
    compatible = settings.get("llama_index_compatible", "True") == "True"
    replace_rows(
        con, documents, chunks, vectors, stemmer=settings["stemmer"], llama_index_compatible=compatible, gone=gone
    )
    if OWN_IDS not in settings and any(c.node_id != f"{c.doc_id}#{c.chunk_index}" for c in chunks):
        write_metadata(con, {OWN_IDS: True})


def replace_rows(
    con: duckdb.DuckDBPyConnection,
    documents: Sequence[Document],
    chunks: Sequence[Chunk],
    vectors: Vectors | None,
    *,
    stemmer: str,
    llama_index_compatible: bool,
    policy: str | None = None,
    gone: Sequence[str] = (),
) -> None:
    """Write documents in place of what the file holds of them, inside the caller's transaction.

    ``gone`` are documents that go with the same stroke, such as the old names of files. See :func:`insert_rows`.
    """
    delete(con, [*(document.doc_id for document in documents), *gone])
    first = insert_rows(con, documents, chunks, vectors, llama_index_compatible=llama_index_compatible, policy=policy)
    lexical.add_chunks(con, first, stemmer)
    refresh_counts(con)


def delete(con: duckdb.DuckDBPyConnection, doc_ids: Sequence[str]) -> list[str]:
    """Delete documents with their chunks and index entries, inside the caller's transaction.

    Returns those that were there, in order. The counts of ``embedding_metadata`` are left to the caller.
    """
    # A chunk whose document somebody deleted by SQL goes as well.
    found = con.execute(read_sql("index/known_documents"), {"doc_ids": list(doc_ids)}).fetchall()
    there = [doc_id for (doc_id,) in found]
    if there:
        lexical.remove_documents(con, there)
        con.execute("DELETE FROM document_links WHERE doc_id IN (SELECT unnest($1))", [there])
        con.execute("DELETE FROM source_documents WHERE doc_id IN (SELECT unnest($1))", [there])
        con.execute("DELETE FROM corpus_map WHERE doc_id IN (SELECT unnest($1))", [there])
    return there


def insert_rows(
    con: duckdb.DuckDBPyConnection,
    documents: Sequence[Document],
    chunks: Sequence[Chunk],
    vectors: Vectors | None,
    *,
    llama_index_compatible: bool,
    policy: str | None = None,
) -> int:
    """Insert the rows without indexing their words; return the ``rid`` of the first new chunk.

    ``vectors`` are of unit length, one a chunk. ``policy`` says how the documents were cut and embedded, as JSON;
    None for chunks that a program made.
    """
    by_id = {document.doc_id: document for document in documents}
    first = _insert_sources(con, sources_table(documents, policy))
    if chunks and vectors is not None:
        insert_chunks(con, chunk_columns(by_id, chunks, llama_index_compatible), vectors, first)
    return first


def insert_tables(
    con: duckdb.DuckDBPyConnection, sources: pa.Table, chunks: pa.Table, vectors: Vectors, llama_index_compatible: bool
) -> int:
    """Insert rows by :mod:`sqlrag.formats.contents` as :func:`insert_rows` does; return the ``rid`` of the first."""
    first = _insert_sources(con, sources)
    if not len(chunks):
        return first
    checksums = dict(zip(sources["doc_id"].to_pylist(), sources["checksum"].to_pylist(), strict=True))
    rows = zip(*(chunks[name].to_pylist() for name in ("metadata_", "node_id", "doc_id")), strict=True)
    columns = {
        **{name: chunks[name] for name in chunks.column_names},
        "metadata_": [
            _chunk_metadata(json.loads(text), node_id, doc_id, llama_index_compatible) for text, node_id, doc_id in rows
        ],
        "checksum": [checksums[doc_id] for doc_id in chunks["doc_id"].to_pylist()],
    }
    insert_chunks(con, columns, vectors, first)
    return first


def _insert_sources(con: duckdb.DuckDBPyConnection, sources: pa.Table) -> int:
    """Insert rows of documents with their links; return the ``rid`` that the next chunk gets."""
    con.register("new_sources", sources)
    con.execute(read_sql("index/insert_sources"))
    con.unregister("new_sources")
    linking.add_links(con, sources)
    return int(con.execute("SELECT coalesce(max(rid) + 1, 0) FROM documents").fetchall()[0][0])


def insert_chunks(con: duckdb.DuckDBPyConnection, columns: Mapping[str, Any], vectors: Vectors, first: int) -> None:
    """Insert rows of chunks, given as columns of Arrow or lists, numbered from ``first`` on, with their vectors.

    ``vectors`` are of unit length, one a row.
    """
    made = {
        **columns,
        "embedding": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1]),
        "rid": pa.array(np.arange(first, first + len(vectors), dtype=np.int32)),
    }
    for i, (upper, lower) in enumerate(sign_words(vectors)):
        made.update({f"w{i}_upper": upper, f"w{i}_lower": lower})
    con.register("new_chunks", pa.table(made))
    con.execute(for_dimensions(read_sql("index/insert_chunks"), vectors.shape[1]))
    con.unregister("new_chunks")


def check_rows(documents: Sequence[Document], chunks: Sequence[Chunk], n_vectors: int) -> None:
    """Raise InputError where rows that a program made cannot be stored together."""
    if n_vectors != len(chunks):
        raise InputError(
            f"There are {len(chunks)} chunks and {n_vectors} vectors; there must be one vector for each chunk."
        )
    by_id = {document.doc_id: document for document in documents}
    if len(by_id) != len(documents):
        raise InputError(f"The document {_most_frequent(d.doc_id for d in documents)!r} is given more than once.")
    if len({chunk.node_id for chunk in chunks}) != len(chunks):
        raise InputError(f"The chunk {_most_frequent(c.node_id for c in chunks)!r} is given more than once.")
    for chunk in chunks:
        document = by_id.get(chunk.doc_id)
        if document is None:
            raise InputError(f"The chunk {chunk.node_id!r} belongs to a document that is not among those given.")
        if chunk.collection != document.collection:
            raise InputError(
                f"The chunk {chunk.node_id!r} is of collection {chunk.collection!r}, "
                f"its document of {document.collection!r}."
            )
        if not chunk.content.strip():
            raise InputError(f"The chunk {chunk.node_id!r} is blank.")
        if (chunk.i_start or chunk.i_end) and document.text[chunk.i_start : chunk.i_end] != chunk.content:
            raise InputError(
                f"The chunk {chunk.node_id!r} is not the slice [{chunk.i_start}:{chunk.i_end}] of its document's text. "
                "Give i_start and i_end that cut it out exactly, or leave both 0."
            )


def _most_frequent(names: Iterable[str]) -> str:
    return Counter(names).most_common(1)[0][0]


def check_collections(con: duckdb.DuckDBPyConnection, wanted: Mapping[str, str]) -> None:
    """Raise where a document (doc_id: collection) is stored in another collection.

    A doc_id stands for one document in the whole file, so it cannot move between collections unseen.
    """
    found = con.execute(
        "SELECT doc_id, collection FROM source_documents WHERE doc_id IN (SELECT unnest($1)) ORDER BY doc_id",
        [list(wanted)],
    ).fetchall()
    refuse_moved(found, wanted)


def refuse_moved(found: Iterable[tuple[Any, ...]], wanted: Mapping[str, str]) -> None:
    """Raise for the first of stored documents (doc_id, collection) that is wanted in another collection."""
    for doc_id, collection in found:
        if wanted[doc_id] != collection:
            raise InputError(
                f"The document {doc_id!r} is in collection {collection!r} already, so it cannot be added to "
                f"{wanted[doc_id]!r}. Use another doc_id, such as {wanted[doc_id]}:{doc_id}."
            )


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def sources_table(documents: Sequence[Document], policy: str | None) -> pa.Table:
    """Return documents as rows of ``source_documents``."""
    return pa.table(
        {
            "doc_id": [d.doc_id for d in documents],
            "file_path": [d.file_path or d.doc_id for d in documents],
            "file_name": [d.file_name or d.doc_id.rpartition("/")[2] for d in documents],
            "text": [d.text for d in documents],
            "metadata_": [_json(d.metadata) for d in documents],
            "collection": [d.collection for d in documents],
            "checksum": [d.checksum for d in documents],
            "mime": [d.mime for d in documents],
            "size_bytes": pa.array([d.size_bytes for d in documents], pa.int64()),
            "modified_at": pa.array([d.modified_at for d in documents], pa.timestamp("us")),
            "tags": pa.array([list(d.tags) for d in documents], pa.list_(pa.string())),
            "body_start": pa.array([d.body_start for d in documents], pa.int32()),
            "page_starts": pa.array([list(d.page_starts) for d in documents], pa.list_(pa.int32())),
            "chunk_policy": pa.array([policy] * len(documents), pa.string()),
        }
    )


def chunk_columns(
    documents: Mapping[str, Document], chunks: Sequence[Chunk], llama_index_compatible: bool
) -> dict[str, Any]:
    """Return chunks as columns of ``documents``, without what follows from their vectors."""
    known = [chunk.i_end > 0 for chunk in chunks]
    return {
        "node_id": [c.node_id for c in chunks],
        "text": [c.content for c in chunks],
        "metadata_": [_chunk_metadata(c.metadata, c.node_id, c.doc_id, llama_index_compatible, c.node) for c in chunks],
        "doc_id": [c.doc_id for c in chunks],
        "collection": [c.collection for c in chunks],
        "chunk_index": pa.array([c.chunk_index for c in chunks], pa.int32()),
        "i_start": pa.array([c.i_start if k else None for c, k in zip(chunks, known, strict=True)], pa.int32()),
        "i_end": pa.array([c.i_end if k else None for c, k in zip(chunks, known, strict=True)], pa.int32()),
        "page": pa.array([c.page for c in chunks], pa.int32()),
        "heading_path": pa.array([list(c.heading_path) for c in chunks], pa.list_(pa.string())),
        "tags": pa.array([list(c.tags) for c in chunks], pa.list_(pa.string())),
        "checksum": [documents[c.doc_id].checksum for c in chunks],
    }


def _chunk_metadata(
    given: Mapping[str, Any], node_id: str, doc_id: str, llama_index_compatible: bool, node: str = ""
) -> str:
    """Return the flat JSON object of a chunk, with the two fields that llama-index opens a row by where wanted.

    ``node`` is what llama-index said of the chunk itself.
    """
    # Front matter may hold these names too; llama-index would take its values for a node.
    metadata = {key: value for key, value in given.items() if key not in _LLAMA_INDEX_FIELDS}
    if not llama_index_compatible and not node:
        return _json(metadata)
    own = json.loads(node) if node else {}
    content = {"metadata": metadata, "relationships": {"1": {"node_id": doc_id}}, **own, "id_": node_id}
    return _json({**metadata, "_node_content": _json(content), "_node_type": own.get("class_name", "TextNode")})
