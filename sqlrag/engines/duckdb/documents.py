"""Writes and deletes whole documents with their chunks, vectors, links and postings, in one transaction."""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sqlrag.arguments import counted, first_lines, meant_or_there, shortened
from sqlrag.engines.duckdb import lexical, metadata, row_tables
from sqlrag.engines.duckdb.metadata import OWN_IDS, now, read_metadata, refresh_counts, write_metadata
from sqlrag.engines.duckdb.rows import UNKNOWN, read_states, real_folder, root_of
from sqlrag.engines.duckdb.schema import for_dimensions, read_sql, run_script
from sqlrag.engines.duckdb.statements import register
from sqlrag.errors import InputError
from sqlrag.links import is_markdown, links_of, markdown_links
from sqlrag.normalize import is_blank
from sqlrag.ranking.vectors import sign_words, unit_vectors
from sqlrag.types import PAD, ROW, Printable
from sqlrag.visible import page_by_type, shown_slice

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import duckdb
    from numpy.typing import ArrayLike

    from sqlrag.engines.duckdb.database import Database
    from sqlrag.links import Link
    from sqlrag.types import Chunk, Document, Vectors

log = logging.getLogger("sqlrag.store")

_BATCH_DOCUMENTS = 256

_BACK = 4096  # characters

_SCHEMA = pa.schema(
    [
        pa.field("doc_id", pa.string()),
        pa.field("link_index", pa.int32()),
        pa.field("i_start", pa.int32()),
        pa.field("i_end", pa.int32()),
        pa.field("label", pa.string()),
        pa.field("url", pa.string()),
        pa.field("target", pa.string()),
        pa.field("fragment", pa.string()),
        pa.field("note", pa.string()),
    ]
)


def links_by_document(sources: pa.Table) -> Iterator[tuple[str, Sequence[Link]]]:
    """Yield the doc_id and the links of documents that are given as rows of ``source_documents``."""
    names = ("text", "body_start", "doc_id", "collection", "mime")
    for text, body_start, doc_id, collection, mime in zip(*(sources[n].to_pylist() for n in names), strict=True):
        if is_markdown(mime):
            yield doc_id, markdown_links(text, body_start, doc_id, collection)


def add_links(con: duckdb.DuckDBPyConnection, links: Iterable[tuple[str, Sequence[Link]]]) -> None:
    """Insert the links of new documents, given by doc_id, inside the caller's transaction."""
    rows = [(doc_id, index, *link) for doc_id, found in links for index, link in enumerate(found)]
    if rows:
        columns = zip(_SCHEMA, zip(*rows, strict=True), strict=True)
        register(con, "new_links", pa.table({field.name: pa.array(values, field.type) for field, values in columns}))
        con.execute(read_sql("index/insert_links"))
        con.unregister("new_links")


def refresh_shown(con: duckdb.DuckDBPyConnection) -> bool:
    """Compute anew how a reader sees every chunk and where each document ends, inside the caller's transaction.

    Returns whether any chunk shows less than its text. The words have to be indexed again afterwards.
    """
    con.execute("UPDATE documents SET shown = NULL WHERE shown IS NOT NULL")
    con.execute("UPDATE source_documents SET shown_end = NULL WHERE shown_end IS NOT NULL")
    ids = _markdown_documents(con)
    for start in range(0, len(ids), _BATCH_DOCUMENTS):
        batch = {"doc_ids": ids[start : start + _BATCH_DOCUMENTS]}
        sources = con.sql(read_sql("index/link_sources"), params=batch).to_arrow_table()
        chunks = con.sql(read_sql("index/chunks_to_show"), params=batch).to_arrow_table()
        seen = _shown_ends(sources, _ends(chunks))
        shown = pa.table({"rid": chunks["rid"], "shown": pa.array(shown_column(sources, chunks), pa.string())})
        register(con, "new_shown", shown)
        register(con, "new_ends", pa.table({"doc_id": sources["doc_id"], "shown_end": seen}))
        run_script(con, "index/set_shown")
        con.unregister("new_shown")
        con.unregister("new_ends")
    return bool(con.execute("SELECT count(*) FROM documents WHERE shown IS NOT NULL").fetchall()[0][0])


def _markdown_documents(con: duckdb.DuckDBPyConnection) -> list[str]:
    types = con.execute(read_sql("index/document_types")).fetchall()
    return [doc_id for doc_id, mime in types if is_markdown(mime)]


def rebuild_links(con: duckdb.DuckDBPyConnection) -> None:
    """Extract the links of all documents again, inside the caller's transaction."""
    con.execute("DELETE FROM document_links")
    ids = _markdown_documents(con)
    for start in range(0, len(ids), _BATCH_DOCUMENTS):
        batch = ids[start : start + _BATCH_DOCUMENTS]
        sources = con.sql(read_sql("index/link_sources"), params={"doc_ids": batch}).to_arrow_table()
        add_links(con, links_by_document(sources))


_TEXTS = pa.list_(pa.string())

SOURCE_SCHEMA = pa.schema(
    [
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("file_path", pa.string(), nullable=False),
        pa.field("file_name", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("metadata_", pa.string(), nullable=False),
        pa.field("collection", pa.string(), nullable=False),
        pa.field("checksum", pa.string(), nullable=False),
        pa.field("mime", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("modified_at", pa.timestamp("us")),
        pa.field("tags", _TEXTS, nullable=False),
        pa.field("body_start", pa.int32(), nullable=False),
        pa.field("page_starts", pa.list_(pa.int32()), nullable=False),
        pa.field("chunk_policy", pa.string()),
    ]
)

"""A document: the columns of ``source_documents`` but the time it was stored. ``metadata_`` is a JSON object."""

CHUNK_SCHEMA = pa.schema(
    [
        pa.field("node_id", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("metadata_", pa.string(), nullable=False),
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("collection", pa.string(), nullable=False),
        pa.field("chunk_index", pa.int32(), nullable=False),
        pa.field("i_start", pa.int32()),
        pa.field("i_end", pa.int32()),
        pa.field("page", pa.int32()),
        pa.field("heading_path", _TEXTS, nullable=False),
        pa.field("tags", _TEXTS, nullable=False),
    ]
)

"""A chunk: the columns of ``documents`` without the vector and what follows from the others."""

LLAMA_INDEX_FIELDS = frozenset({"_node_content", "_node_type"})

"""The fields of a chunk's metadata by which llama-index opens a row."""


def upsert(
    database: Database,
    documents: Sequence[Document],
    chunks: Sequence[Chunk],
    embeddings: ArrayLike,
    *,
    dimensions: int,
) -> None:
    """Insert documents with their chunks by the settings of the file, replacing their stored rows.

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
    """Do the work of :func:`upsert` inside the caller's transaction; ``gone`` are documents to delete."""
    check_rows(documents, chunks, 0 if vectors is None else len(vectors))
    check_collections(con, {document.doc_id: document.collection for document in documents})
    wanted = {chunk.node_id: chunk.doc_id for chunk in chunks}
    refuse_rows(con, [document.doc_id for document in documents if not document.mime.startswith(ROW)])
    refuse_taken(taken(con, list(wanted), [*(document.doc_id for document in documents), *gone]), wanted)
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
    """Write documents, replacing their stored rows, inside the caller's transaction.

    ``gone`` are documents to delete in the same step, such as the old names of files. See :func:`insert_rows`.
    """
    rows = {document.doc_id for document in documents if document.mime.startswith(ROW)}
    delete(con, [*(document.doc_id for document in documents), *gone], rows)
    first = insert_rows(con, documents, chunks, vectors, llama_index_compatible=llama_index_compatible, policy=policy)
    lexical.add_chunks(con, first, stemmer)
    refresh_counts(con)


def delete(con: duckdb.DuckDBPyConnection, doc_ids: Sequence[str], rows: Collection[str] = ()) -> list[str]:
    """Delete documents with their chunks and index entries, inside the caller's transaction.

    Returns those that were there, in order. The counts of ``embedding_metadata`` are left to the caller. ``rows`` are
    those that are written again at once, so that the columns of their rows stay.
    """
    # Chunks whose document was deleted by SQL are deleted as well.
    found = con.execute(read_sql("index/known_documents"), {"doc_ids": list(doc_ids)}).fetchall()
    there = [doc_id for (doc_id,) in found]
    if there:
        lexical.remove_documents(con, there)
        con.execute("DELETE FROM document_links WHERE doc_id IN (SELECT unnest($1))", [there])
        con.execute("DELETE FROM source_documents WHERE doc_id IN (SELECT unnest($1))", [there])
        con.execute("DELETE FROM corpus_map WHERE doc_id IN (SELECT unnest($1))", [there])
        row_tables.forget(con, [doc_id for doc_id in there if doc_id not in rows])
    return there


def insert_rows(
    con: duckdb.DuckDBPyConnection,
    documents: Sequence[Document],
    chunks: Sequence[Chunk],
    vectors: Vectors | None,
    *,
    llama_index_compatible: bool,
    policy: str | None = None,
    shown_end: int | None = None,
    begins: bool = True,
    complete: bool = True,
) -> int:
    """Insert the rows without indexing their words; return the ``rid`` of the first new chunk.

    ``vectors`` are of unit length, one a chunk. ``policy`` says how the documents were chunked and embedded, as JSON;
    None for chunks that a program made. A long document may come in parts, ``begins`` with the first and is
    ``complete`` with the last, and is then the only one; ``shown_end`` is the result of :func:`end_of_shown` for it.
    """
    by_id = {document.doc_id: document for document in documents}
    if begins:
        links = ((document.doc_id, links_of(document)) for document in documents)
        seen = [shown_end] * len(documents)
        if complete:
            ends: dict[str, int] = {}
            for chunk in chunks:
                ends[chunk.doc_id] = max(chunk.i_end, ends.get(chunk.doc_id, 0))
            seen = [end_of_shown(d.text, d.body_start, d.mime, ends.get(d.doc_id, 0)) for d in documents]
        _insert_sources(con, sources_table(documents, policy), pa.array(seen, pa.int32()), links)
    first = _next_rid(con)
    if chunks and vectors is not None:
        insert_chunks(con, chunk_columns(by_id, chunks, llama_index_compatible), vectors, first)
    return first


def delete_unindexed(con: duckdb.DuckDBPyConnection, doc_id: str) -> int:
    """Delete a document whose words are not indexed, inside the caller's transaction; return how many chunks it had."""
    for table in ("document_links", "source_documents"):
        con.execute(f"DELETE FROM {table} WHERE doc_id = $1", [doc_id])  # noqa: S608 - fixed names only
    return int(con.execute("DELETE FROM documents WHERE doc_id = $1", [doc_id]).fetchall()[0][0])


def insert_tables(
    con: duckdb.DuckDBPyConnection, sources: pa.Table, chunks: pa.Table, vectors: Vectors, llama_index_compatible: bool
) -> int:
    """Insert rows by :mod:`sqlrag.engines.contents` as :func:`insert_rows` does; return the ``rid`` of the first."""
    _insert_sources(con, sources, _shown_ends(sources, _ends(chunks)), links_by_document(sources))
    first = _next_rid(con)
    if not len(chunks):
        return first
    checksums = dict(zip(sources["doc_id"].to_pylist(), sources["checksum"].to_pylist(), strict=True))
    named = zip(*(chunks[name].to_pylist() for name in ("metadata_", "node_id", "doc_id")), strict=True)
    columns = {
        **{name: chunks[name] for name in chunks.column_names},
        "shown": shown_column(sources, chunks),
        "metadata_": [
            _chunk_metadata(json.loads(text), node_id, doc_id, llama_index_compatible)
            for text, node_id, doc_id in named
        ],
        "checksum": [checksums[doc_id] for doc_id in chunks["doc_id"].to_pylist()],
    }
    insert_chunks(con, columns, vectors, first)
    return first


def shown_column(sources: pa.Table, chunks: pa.Table) -> list[str | None]:
    """Return how a reader sees each of the chunks, given like their documents as rows of the tables."""
    names = ("doc_id", "text", "body_start", "mime")
    columns = (sources[name].to_pylist() for name in names)
    pages = {doc_id: (text, start, mime) for doc_id, text, start, mime in zip(*columns, strict=True)}
    rows = zip(*(chunks[name].to_pylist() for name in ("doc_id", "text", "i_start", "i_end")), strict=True)
    return [shown_part(pages[doc_id], text, start, end) for doc_id, text, start, end in rows]


def shown_part(document: tuple[str, int, str], text: str, start: int | None, end: int | None) -> str | None:
    """Return a chunk of a document (text, body_start, mime) as a reader sees it, None where that is the chunk."""
    source, body_start, mime = document
    if not is_markdown(mime):
        return None
    if start is None or end is None:
        shown = page_by_type(text, 0, mime).shown
    else:
        shown = shown_slice(page_by_type(source, body_start, mime), start, end)
    return None if shown == text else shown


def end_of_shown(source: str, body_start: int, mime: str, end: int) -> int | None:
    """Return where the text ends that a reader sees, None where nothing but blank space follows ``end``."""
    if not is_markdown(mime) or not source[max(end, body_start) :].strip():
        return None
    page = page_by_type(source, body_start, mime)
    for start in range(len(source), body_start, -_BACK):
        seen = page.shown[max(body_start, start - _BACK) : start].replace(PAD, " ").rstrip()
        if seen:
            return max(body_start, start - _BACK) + len(seen)
    return body_start


def _ends(chunks: pa.Table) -> dict[str, int]:
    """Return where the last chunk of each document ends."""
    ends: dict[str, int] = {}
    for doc_id, end in zip(chunks["doc_id"].to_pylist(), chunks["i_end"].to_pylist(), strict=True):
        ends[doc_id] = max(end or 0, ends.get(doc_id, 0))
    return ends


def _shown_ends(sources: pa.Table, ends: Mapping[str, int]) -> pa.Array:
    rows = zip(*(sources[name].to_pylist() for name in ("doc_id", "text", "body_start", "mime")), strict=True)
    found = [end_of_shown(text, start, mime, ends.get(doc_id, 0)) for doc_id, text, start, mime in rows]
    return pa.array(found, pa.int32())


def _insert_sources(
    con: duckdb.DuckDBPyConnection, sources: pa.Table, seen: pa.Array, links: Iterable[tuple[str, Sequence[Link]]]
) -> None:
    """Insert rows of documents with their links; ``seen`` is where each ends, as :func:`end_of_shown` gives it."""
    rows = sources.append_column("shown_end", seen)
    register(con, "new_sources", rows.sort_by("doc_id") if len(rows) > 1 else rows)
    con.execute(read_sql("index/insert_sources"))
    con.unregister("new_sources")
    add_links(con, links)


def _next_rid(con: duckdb.DuckDBPyConnection) -> int:
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
    register(con, "new_chunks", pa.table(made))
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
                f"its document of {document.collection!r}. A doc_id names one document of a file, in all collections: "
                f"give one of them another, such as {f'{chunk.collection}:{chunk.doc_id}'!r}, or use two files."
            )
        if is_blank(chunk.content):
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

    A doc_id identifies one document in the whole file, so it must not silently move between collections.
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


def refuse_rows(con: duckdb.DuckDBPyConnection, doc_ids: Sequence[str]) -> None:
    """Raise InputError where documents to be replaced are rows of a table, whose columns would lose their values."""
    rows = row_tables.stored(con, doc_ids)
    if rows:
        collection = rows[0].partition("/")[0]
        raise InputError(
            f"The file has {rows[0]!r} as a row of the table {collection!r}, whose columns a document in its place "
            f"would lose ({counted(len(rows), 'such document')}). Use another file, or another doc_id; or remove it "
            f"first: delete_documents(doc_ids={rows[0]!r}), or collection={collection!r} for all."
        )


def taken(
    con: duckdb.DuckDBPyConnection, node_ids: Sequence[str], leaving: Iterable[str] = ()
) -> list[tuple[str, str]]:
    """Return the chunks (node_id, doc_id) that have these ids, in order, but those of the documents ``leaving``."""
    found = con.execute(read_sql("index/taken_ids"), {"node_ids": list(node_ids)}).fetchall()
    without = set(leaving)
    return [(node_id, doc_id) for node_id, doc_id in found if doc_id not in without]


def refuse_taken(found: Iterable[tuple[Any, ...]], wanted: Mapping[str, str]) -> None:
    """Raise for the first of stored chunks (node_id, doc_id) whose id is wanted for one of another document."""
    for node_id, owner in found:
        raise InputError(
            f"{same_id(node_id, owner)}, so no chunk of {wanted[node_id]!r} can have it. Use "
            "another given_id, or delete that chunk first (Store.delete_chunks)."
        )


def same_id(node_id: str, owner: str) -> str:
    """Return the beginning of a message about the id of a chunk that a document has already."""
    return f"The chunk id {node_id!r} is that of a chunk of the document {owner!r}"


_json = json.JSONEncoder(ensure_ascii=False, sort_keys=True, default=str).encode


def sources_table(documents: Sequence[Document], policy: str | None) -> pa.Table:
    """Return documents as rows of ``source_documents``."""
    columns: dict[str, Any] = {
        "doc_id": [d.doc_id for d in documents],
        "file_path": [d.file_path or d.doc_id for d in documents],
        "file_name": [d.file_name or d.doc_id.rpartition("/")[2] for d in documents],
        "metadata_": [_json(d.metadata) for d in documents],
        "tags": [list(d.tags) for d in documents],
        "page_starts": [list(d.page_starts) for d in documents],
        "chunk_policy": [policy] * len(documents),
    }
    for name in ("text", "collection", "checksum", "mime", "size_bytes", "modified_at", "body_start"):
        columns[name] = [getattr(d, name) for d in documents]
    if len(documents) == 1:
        columns["text"] = _one_text(documents[0].text)
    return pa.Table.from_pydict({name: columns[name] for name in SOURCE_SCHEMA.names}, SOURCE_SCHEMA)


def _one_text(text: str) -> pa.Array:
    """Return a text as a column; Arrow would leave its bytes in the string besides, for as long as that lives."""
    data = text.encode()
    return pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data))


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
        "shown": pa.array(
            [_shown_chunk(documents[c.doc_id], c, known=k) for c, k in zip(chunks, known, strict=True)], pa.string()
        ),
    }


def _shown_chunk(document: Document, chunk: Chunk, *, known: bool) -> str | None:
    if chunk.shown is not None:
        return None if chunk.shown == chunk.content else chunk.shown
    place = (chunk.i_start, chunk.i_end) if known else (None, None)
    return shown_part((document.text, document.body_start, document.mime), chunk.content, *place)


def _chunk_metadata(
    given: Mapping[str, Any], node_id: str, doc_id: str, llama_index_compatible: bool, node: str = ""
) -> str:
    """Return the flat JSON object of a chunk, with llama-index's two fields where wanted.

    ``node`` is llama-index's own JSON of the chunk.
    """
    # Front matter may have these names too; llama-index would take its values for a node.
    metadata = {key: value for key, value in given.items() if key not in LLAMA_INDEX_FIELDS}
    if not llama_index_compatible and not node:
        return _json(metadata)
    own = json.loads(node) if node else {}
    content = {"metadata": metadata, "relationships": {"1": {"node_id": doc_id}}, **own, "id_": node_id}
    return _json({**metadata, "_node_content": _json(content), "_node_type": own.get("class_name", "TextNode")})


@dataclass(frozen=True)
class DeleteReport(Printable):
    """What :func:`sqlrag.delete_documents` did: the ids of the deleted documents, and of those not in the file.

    ``chunks`` is how many chunks were deleted with them, ``run_id`` names the run in ``ingest_log``, ``notices`` say
    why no document met the conditions, and which tables and folders no update reads any more. With ``dry_run`` nothing
    was done, ``run_id`` is "", and the others say what would be.
    """

    deleted: list[str]
    unknown: list[str]
    chunks: int
    run_id: str
    notices: list[str] = field(default_factory=list)
    dry_run: bool = False

    def __str__(self) -> str:
        """Return the report as lines for a terminal."""
        done = "would be deleted" if self.dry_run else "deleted"
        deleted = f"{counted(len(self.deleted), 'document')} with {counted(self.chunks, 'chunk')} {done}"
        lines = [f"{deleted}, {len(self.unknown):,} unknown"]
        lines += first_lines(self.deleted, f"  {done}: ")
        return "\n".join([*lines, *first_lines(self.unknown, "  unknown: "), *(f"  {one}" for one in self.notices)])


def delete_documents(
    database: Database,
    doc_ids: Sequence[str] | None,
    checksum: str | None,
    filters: Mapping[str, Any],
    *,
    dry_run: bool = False,
) -> DeleteReport:
    """Delete the documents that meet every condition that is not None, in one transaction, or only say which they are.

    ``filters`` are the parameters of the search macros: collection, tags_any, tags_all, metadata; and the ``folder``.
    """
    started, began = now(), time.perf_counter()
    names = ("collection", "tags_any", "tags_all", "metadata")
    conditions = {"doc_ids": doc_ids, "checksum": checksum, **{name: filters.get(name) for name in names}}
    collection, folder = filters.get("collection"), filters.get("folder")
    given = {name for name, value in conditions.items() if value is not None}
    is_whole = given <= {"collection"} and not (folder is None and collection is None)
    notices = []
    with _reading(database) if dry_run else database.transaction() as con:
        chosen = [row[0] for row in con.execute(read_sql("index/chosen_documents"), conditions).fetchall()]
        wanted = list(dict.fromkeys(doc_ids or []))
        known = set(con.execute(read_sql("index/known_documents"), {"doc_ids": wanted}).fetchall())
        if checksum is None and not any(filters.values()):
            # Chunks whose document somebody deleted by SQL.
            chosen += [doc_id for doc_id in wanted if (doc_id,) in known and doc_id not in chosen]
        unknown = [doc_id for doc_id in wanted if (doc_id,) not in known]
        folders = metadata.known_folders(con) if is_whole or folder is not None else []
        if folder is not None:
            roots = _roots(con)
            there = sorted({*roots.values(), *(path for _, path in folders)} - {UNKNOWN})
            ours = {path for path in there if real_folder(path) == folder}
            chosen = [doc_id for doc_id in chosen if roots.get(doc_id) in ours]
            folders = [one for one in folders if one[1] in ours]
            if not ours:
                notices.append(f"No document was read from the folder {folder!r}; {meant_or_there(folder, there)}")
        found = con.execute("SELECT count(*) FROM documents WHERE doc_id IN (SELECT unnest($1))", [chosen]).fetchall()
        chunks = int(found[0][0])
        folders = [one for one in folders if is_whole and (collection is None or one[0] in collection)]
        sources = row_tables.sources(con) if is_whole and folder is None else ()
        tables = [name for name in sources if name in (collection or ())]
        verb = "would be" if dry_run else "is"
        notices += [f"The table {name} {verb} forgotten, too: no update reads it." for name in tables]
        notices += [
            f"The folder {path} of {name} {verb} forgotten, too: update_embeddings reads it when it is named."
            for name, path in folders
        ]
        if not folders and (again := _still_read(con, chosen)):
            notices.append(
                f"The files of {counted(len(again), 'document')}, such as {shortened(again[0])}, are still there: the "
                "next update adds them again. Remove or ignore them, too."
            )
        if dry_run:
            return DeleteReport(chosen, unknown, chunks, "", notices, dry_run)
        row_tables.drop(con, tables)  # first: DuckDB 1.3 drops no changed table
        for name in tables:
            metadata.clear_failures_of_rows(con, name)
        delete(con, chosen)
        metadata.clear_failures(con, [*chosen, *unknown])
        failed = {name: metadata.failed_documents(con, name) for name, _ in folders}
        metadata.forget_folders(con, folders)
        left = {name for name, _ in metadata.known_folders(con)}
        metadata.clear_failures(con, [doc_id for name in failed if name not in left for doc_id in failed[name]])
        refresh_counts(con)
        run = metadata.RunRow(
            metadata.new_run_id(started),
            "delete",
            started,
            collection=collection[0] if collection and len(collection) == 1 else "",
            removed=len(chosen),
            seconds={"store": time.perf_counter() - began},
        )
        metadata.log_run(con, run)
    report = DeleteReport(chosen, unknown, chunks, run.run_id, notices)
    log.info("[%s] %s: %s", run.run_id, database.path, str(report).splitlines()[0])
    return report


def _still_read(con: duckdb.DuckDBPyConnection, doc_ids: Sequence[str]) -> list[str]:
    """Return those of the documents whose files are still in folders that updates read, in order."""
    folders = tuple(f"{path.rstrip(os.sep)}{os.sep}" for _, path in metadata.known_folders(con))
    rows = con.execute(read_sql("index/file_paths"), [list(doc_ids)]).fetchall() if folders else []
    return [doc_id for doc_id, path in rows if path.startswith(folders) and Path(path).exists()]


@contextmanager
def _reading(database: Database) -> Iterator[duckdb.DuckDBPyConnection]:
    with database.working():
        yield database.cursor()


def _roots(con: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Return the folders that documents were read from, by their ids."""
    roots = {doc_id: root_of(doc_id, one) for doc_id, one in read_states(con).items() if one.chunk_policy is not None}
    return {doc_id: root for doc_id, root in roots.items() if root is not None}
