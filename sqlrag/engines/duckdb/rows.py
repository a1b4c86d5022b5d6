"""Reads the contents of a file: documents, chunks, passages, vectors and names to filter by."""

from __future__ import annotations

import json
import os
from collections import Counter
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from sqlrag import arguments
from sqlrag.arguments import counted, items, shown
from sqlrag.cancellation import checkpoint
from sqlrag.engines.duckdb.row_tables import add_keys, add_values
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.engines.duckdb.statements import register, select_by_key
from sqlrag.errors import InputError, NotFoundError, StoreError
from sqlrag.links import is_markdown
from sqlrag.normalize import clean_name
from sqlrag.ranking.results import RESULT_KEYS
from sqlrag.types import DEFAULT_COLLECTION, ROW, Candidate, Document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    import duckdb
    from numpy.typing import NDArray

    from sqlrag.types import Vectors

    Select = Callable[..., list[tuple[Any, ...]]]


class SourceState(NamedTuple):
    """What determines whether a document has changed.

    ``file_path`` is the whole path; ``chunk_policy`` is None where a program made its chunks; ``is_whole`` is False
    where chunks of it are missing.
    """

    collection: str
    checksum: str
    mime: str
    file_path: str
    modified_at: datetime | None
    chunk_policy: str | None
    is_whole: bool


# The folder of documents that came from another format, in which it is not stored.
UNKNOWN = "?"


def relative(doc_id: str, collection: str) -> str:
    """Return the path below its folder that a document of a collection has."""
    return doc_id.removeprefix("" if collection == DEFAULT_COLLECTION else f"{collection}:")


def real_folder(path: str | os.PathLike[str]) -> str:
    """Return the folder that a path leads to, by whatever links, as folders are compared."""
    return clean_name(os.path.realpath(os.path.expanduser(path)))  # noqa: PTH111 - Path.expanduser may raise


def root_of(doc_id: str, state: SourceState) -> str | None:
    """Return the folder that a document was read from, "?" where that is not known, None where a program gave it."""
    name = "/" + relative(doc_id, state.collection)
    return (state.file_path.removesuffix(name) or "/") if state.file_path.endswith(name) else None


class Slice(NamedTuple):
    """A stored chunk without its text."""

    i_start: int
    i_end: int
    page: int | None
    heading_path: tuple[str, ...]


def read_states(con: duckdb.DuckDBPyConnection) -> dict[str, SourceState]:
    """Return the state of every document, in the order of their ids."""
    rows = con.execute(read_sql("index/source_states")).fetchall()
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


def known_vectors(con: duckdb.DuckDBPyConnection, texts: Mapping[str, str], dimensions: int) -> dict[str, Vectors]:
    """Return the file's vectors of texts, ``[dimensions]`` each, by the form that the model embeds.

    ``texts`` maps that to :meth:`sqlrag.types.Chunk.headed_text`. Chunks whose vectors a program gave are skipped:
    their texts are not known.
    """
    places = pa.array(range(len(texts)), pa.int32())
    register(con, "wanted_texts", pa.table({"place": places, "text": list(texts.values())}))
    table = con.sql(read_sql("index/known_vectors")).to_arrow_table()
    con.unregister("wanted_texts")
    vectors = vector_matrix(table["embedding"], dimensions)
    embedded = list(texts)
    return {embedded[place]: vectors[i] for i, place in enumerate(table["place"].to_pylist())}


def refresh_sources(con: duckdb.DuckDBPyConnection, seen: Sequence[tuple[str, str, datetime | None]]) -> None:
    """Set path and time of change of documents (doc_id, file_path, modified_at), inside the caller's transaction."""
    columns = list(zip(*seen, strict=True))
    table = pa.table(
        {"doc_id": columns[0], "file_path": columns[1], "modified_at": pa.array(columns[2], pa.timestamp("us"))}
    )
    register(con, "seen_sources", table)
    con.execute(read_sql("index/refresh_sources"))
    con.unregister("seen_sources")


def vector_matrix(column: pa.ChunkedArray | pa.Array, dimensions: int) -> Vectors:
    """Return a column of vectors as ``[n, dimensions] float32``."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    values = whole.flatten().to_numpy(zero_copy_only=False)
    matrix: Vectors = np.ascontiguousarray(values, dtype=np.float32).reshape(-1, dimensions)
    return matrix


KINDS = ("collections", "tags", "metadata_fields")

_EVERY = 2**31


def counted_names(select: Select, kind: str, most: int, *, files: int) -> list[dict[str, Any]]:
    """Return at most ``most`` names of a kind with the ``documents`` and ``chunks`` of each, the most used first.

    ``select`` is :meth:`sqlrag.Store.select` of a store of so many files.
    """
    documents, chunks = Counter[str](), Counter[str]()
    # The names that are used most in one of several files need not be so in all of them.
    for name, in_documents, in_chunks in select(f"facets/{kind}", most=_EVERY if files > 1 else most):
        documents[name] += in_documents
        chunks[name] += in_chunks
    names = sorted(chunks, key=lambda name: (-chunks[name], name))[:most]
    return [{"name": name, "documents": documents[name], "chunks": chunks[name]} for name in names]


def metadata_fields_of(select: Select, most_names: int, most_values: int) -> list[dict[str, Any]]:
    """Return the metadata fields with the kind of most of their values; of several files the values common in one.

    ``select`` is as for :func:`counted_names`. A field has ``name``, ``kind``, ``chunks``, ``least`` and ``greatest``
    (of numbers), and ``values`` with the ``chunks`` of each, the commonest first.
    """
    fields: dict[tuple[str, str], dict[str, Any]] = {}
    rows = select("facets/metadata_values", most=most_values)
    for name, kind, chunks, least, greatest, place, value, with_value in rows:
        new = {"name": name, "kind": kind, "chunks": 0, "least": least, "greatest": greatest, "values": Counter()}
        field = fields.setdefault((name, kind), new)
        field["chunks"] += chunks if place == 1 else 0
        if kind == "number":
            field |= {"least": min(field["least"], least), "greatest": max(field["greatest"], greatest)}
        if value is not None:
            field["values"][value] += with_value
    ordered = sorted(fields.values(), key=lambda field: (-field["chunks"], field["name"], field["kind"]))
    known = {field["name"]: field for field in reversed(ordered)}  # the first of each name
    found = [field for field in ordered if known[field["name"]] is field][:most_names]
    for field in found:
        values = sorted(field["values"].items(), key=lambda one: (-one[1], one[0]))[:most_values]
        field["values"] = [{"value": json.loads(value), "chunks": chunks} for value, chunks in values]
    return found


_PLACES = "[('a.md', 0), ('a.md', 1)]"


class ChunkReader(Protocol):
    """The part of a store that reads the chunks around a candidate."""

    def chunks_at(self, places: Sequence[tuple[str, int]]) -> Sequence[Candidate]:
        """Return the chunks at these (doc_id, chunk_index), in any order; places without a chunk give nothing."""
        ...

    def sources(self, doc_ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """Return the stored documents by ``doc_id``, with ``text``; a document that is not stored is left out."""
        ...


class Passage(NamedTuple):
    """A passage of a document.

    ``start`` is its offset in the source, None where that is unknown. ``members`` are the positions of the candidates
    in it, best first. ``chunks`` are all chunks of it, in reading order, by where they begin in ``text``.
    """

    text: str
    start: int | None
    members: list[int]
    chunks: list[tuple[int, Candidate]]

    @property
    def shown(self) -> str:
        """The text as a reader of the page sees it, with as many characters."""
        parts, done = [], 0
        for begin, chunk in self.chunks:
            end = begin + len(chunk.content)
            if end > done:
                shown = chunk.content if chunk.shown is None else chunk.shown[: len(chunk.content)]
                parts += [self.text[done:begin], shown[max(0, done - begin) :]]
                done = end
        return "".join([*parts, self.text[done:]])

    @property
    def markdown(self) -> bool:
        """Whether it is Markdown."""
        return any(is_markdown(chunk.metadata.get("mime")) for _, chunk in self.chunks)

    def offset(self, position: int) -> int | None:
        """Return the offset in the source of a position in the text."""
        return None if self.start is None else self.start + position

    def chunk_at(self, position: int) -> Candidate:
        """Return the last chunk that begins at a position in the text or before it."""
        return next(chunk for begin, chunk in reversed(self.chunks) if begin <= position)


def candidates_of(rows: Iterable[tuple[Any, ...]]) -> list[Candidate]:
    """Return rows of ``index/chunks_at`` as candidates."""
    return [
        Candidate(
            doc_id, index, text, node_id=node_id, collection=collection, heading_path=tuple(path), page=page,
            i_start=start, i_end=end, shown=shown,
        )
        for node_id, text, doc_id, index, collection, path, page, start, end, shown in rows
    ]  # fmt: skip


def checked_places(places: Sequence[tuple[str, int]]) -> dict[str, list[Any]]:
    """Return pairs of doc_id and chunk_index as two lists to bind, or raise InputError."""
    given = [
        arguments.items("One of places", place, "('a.md', 0)") for place in arguments.items("places", places, _PLACES)
    ]
    if not all(len(place) == 2 for place in given):
        raise InputError(f"places must be pairs of doc_id and chunk_index, such as {_PLACES}.")
    return {
        "doc_ids": [clean_name(arguments.text("A doc_id", doc_id)) for doc_id, _ in given],
        "indexes": [arguments.whole("A chunk_index", index, 0) for _, index in given],
    }


def passages_of(candidates: Sequence[Candidate], neighbours: int, store: ChunkReader | None) -> list[Passage]:
    """Return the passages of the candidates, in the order of their best ones.

    Candidates that overlap are joined. With ``neighbours``, so are chunks between which is only blank space. A
    candidate without offsets is a passage of its own.
    """
    around: list[Candidate] = []
    sources: Mapping[str, Mapping[str, Any]] = {}
    located = [candidate for candidate in candidates if _is_located(candidate)]
    if neighbours and store is not None and located:
        places = {
            (candidate.doc_id, candidate.chunk_index + step)
            for candidate in located
            for step in range(-min(neighbours, candidate.chunk_index), neighbours + 1)
        }
        known = {(candidate.doc_id, candidate.chunk_index) for candidate in candidates}
        around = [chunk for chunk in store.chunks_at(sorted(places - known)) if _is_located(chunk)]
        sources = store.sources(sorted({candidate.doc_id for candidate in located}))

    passages = [
        Passage(candidate.content, None, [i], [(0, candidate)])
        for i, candidate in enumerate(candidates)
        if not _is_located(candidate)
    ]
    by_document: dict[str, list[tuple[int | None, Candidate]]] = {}
    for i, candidate in enumerate(candidates):
        if _is_located(candidate):
            by_document.setdefault(candidate.doc_id, []).append((i, candidate))
    for chunk in around:
        by_document.setdefault(chunk.doc_id, []).append((None, chunk))
    for doc_id, pieces in by_document.items():
        passages += _joined(pieces, sources[doc_id]["text"] if doc_id in sources else None)
    return sorted((passage for passage in passages if passage.members), key=lambda passage: passage.members[0])


def _joined(pieces: list[tuple[int | None, Candidate]], source: str | None) -> list[Passage]:
    """Join the chunks of one document in reading order; ``source`` is its text, if it is known."""
    passages: list[Passage] = []
    for member, chunk in sorted(pieces, key=lambda piece: (_start(piece[1]), piece[1].chunk_index)):
        checkpoint()
        start, content = _start(chunk), chunk.content
        if source is not None and source[start : start + len(content)] != content:
            raise _changed(chunk)
        last = passages[-1] if passages else None
        gap = None if last is None else _gap(last, start, source)
        if last is None or gap is None:
            passages.append(Passage(content, start, [], [(0, chunk)]))
        else:
            begin = start - (last.start or 0)
            text = last.text + gap
            if not content.startswith(text[begin:]) and text[begin : begin + len(content)] != content:
                raise _changed(chunk)
            text += content[len(text) - begin :]
            passages[-1] = Passage(text, last.start, last.members, [*last.chunks, (begin, chunk)])
        if member is not None:
            passages[-1].members.append(member)
    return [passage._replace(members=sorted(passage.members)) for passage in passages]


def _gap(last: Passage, start: int, source: str | None) -> str | None:
    """Return the blank space between a passage and what begins at ``start``, "" if they touch; None for a real gap."""
    end = (last.start or 0) + len(last.text)
    if start <= end:
        return ""
    blank = None if source is None else source[end:start]
    return blank if blank is not None and not blank.strip() else None


def _is_located(chunk: Candidate) -> bool:
    """Return whether it has offsets; a chunk that was given without any may have zeros instead."""
    return chunk.i_start is not None and chunk.i_end == chunk.i_start + len(chunk.content)


def _start(chunk: Candidate) -> int:
    return chunk.i_start or 0


def _changed(chunk: Candidate) -> InputError:
    return InputError(f"The chunk {chunk.node_id} does not fit the text of its document; it was changed. Search again.")


CHUNK_COLUMNS = (
    *("node_id", "text", "metadata", "doc_id", "chunk_index", "collection", "heading_path", "page"),
    *("i_start", "i_end", "tags", "shown", "checksum", "created_at"),
)

_SOURCE_COLUMNS = ("doc_id", "file_path", "file_name", "text", "metadata")


def chunk_rows(con: duckdb.DuckDBPyConnection, node_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return chunks by their node_id."""
    rows = select_by_key(
        con,
        "SELECT node_id, text, public_metadata(metadata_), doc_id, chunk_index, collection, heading_path, page, "
        "i_start, i_end, tags, shown, checksum FROM documents WHERE node_id IN (...)",
        node_ids,
    )
    doc_ids = sorted({row[3] for row in rows})
    created = dict(select_by_key(con, "SELECT doc_id, created_at FROM source_documents WHERE doc_id IN (...)", doc_ids))
    chunks = [dict(zip(CHUNK_COLUMNS, (*row, as_time(created.get(row[3]))), strict=True)) for row in rows]
    for chunk in chunks:
        chunk["metadata"] = json.loads(chunk["metadata"])
    add_keys(con, chunks)
    return {chunk["node_id"]: chunk for chunk in chunks}


def as_time(value: datetime | None) -> str:
    """Return a stored time, which is UTC, as ISO 8601; "" for none."""
    return "" if value is None else f"{value.isoformat(timespec='seconds')}Z"


def as_row(found: Candidate, source: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a candidate as the dict that a query returns: the keys are ``RESULT_KEYS``, and ``row_key`` for a row."""
    row: dict[str, Any] = {
        "node_id": found.node_id,
        "text": found.content,
        "metadata": deepcopy(dict(found.metadata)),  # a change of the row must not change the candidate
        "score": found.score,
        "score_type": found.score_type,
        "source_doc": None if source is None else dict(source),
    }
    row.update({name: getattr(found, name) for name in RESULT_KEYS if name not in row})
    row["heading_path"], row["tags"] = list(found.heading_path), list(found.tags)
    if found.row_key is not None:
        row["row_key"] = found.row_key
    return row


def chunks_at(con: duckdb.DuckDBPyConnection, places: Sequence[tuple[str, int]]) -> list[Candidate]:
    """Return the chunks of a store at these (doc_id, chunk_index), ordered by them."""
    return candidates_of(con.execute(read_sql("index/chunks_at"), checked_places(places)).fetchall())


def source_documents(con: duckdb.DuckDBPyConnection, doc_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return source documents by their doc_id; that of a row of a table with its columns as ``row``."""
    rows = select_by_key(
        con,
        "SELECT doc_id, file_path, file_name, text, metadata_, mime FROM source_documents WHERE doc_id IN (...)",
        sorted(set(ids_of("doc_ids", doc_ids, "['guides/setup.md']"))),
    )
    sources = {row[0]: dict(zip(_SOURCE_COLUMNS, row[:-1], strict=True)) for row in rows}
    for source in sources.values():
        source["metadata"] = json.loads(source["metadata"])
    add_values(con, [sources[doc_id] for doc_id, *_, mime in rows if str(mime).startswith(ROW)])
    return sources


def sources_of_chunks(con: duckdb.DuckDBPyConnection, path: Path, chunk_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the whole documents that chunks come from, each once, in the order in which the chunks name them."""
    wanted = ids_of("chunk_ids", chunk_ids, "['guides/setup.md#3']")
    rows = select_by_key(con, "SELECT node_id, doc_id FROM documents WHERE node_id IN (...)", wanted)
    doc_of = dict(rows)
    check_found(path, wanted, doc_of, partial(_near, con))
    sources = source_documents(con, list(doc_of.values()))
    return rows_of(path, sources, list(dict.fromkeys(doc_of[chunk_id] for chunk_id in wanted)))


def vectors_of(
    con: duckdb.DuckDBPyConnection, path: Path, node_ids: Sequence[str], dimensions: int
) -> NDArray[np.float32]:
    """Return the vectors of chunks, ``[len(node_ids), dimensions] float32``, in the order in which they are named."""
    wanted = ids_of("node_ids", node_ids, "['guides/setup.md#3']")
    found = dict(select_by_key(con, "SELECT node_id, embedding FROM documents WHERE node_id IN (...)", wanted))
    check_found(path, wanted, found, partial(_near, con))
    return np.array([found[node_id] for node_id in wanted], dtype=np.float32).reshape(-1, dimensions)


def check_found(
    path: Path | str, wanted: list[str], found: Mapping[str, Any], similar: Callable[[str], Sequence[str]]
) -> None:
    """Raise NotFoundError where a chunk is not among those found; ``similar`` returns similar ids."""
    missing = [node_id for node_id in wanted if node_id not in found]
    if missing:
        others = f" (nor {counted(len(missing) - 1, 'other')} of those asked for)" if missing[1:] else ""
        near = ", ".join(similar(missing[0]))
        hint = f"Similar ones: {near}." if near else "A node_id looks like guides/setup.md#3; take it from a result."
        raise NotFoundError(f"{path} holds no chunk {missing[0]!r}{others}. {hint}")


def rows_of(path: Path | str, found: Mapping[str, dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of chunks or documents that other rows name; raise StoreError where one is not there."""
    missing = next((name for name in names if name not in found), None)
    if missing is not None:
        raise StoreError(
            path,
            f"{path} is damaged: its tables name {missing!r}, which it does not hold. Run sqlrag check; copy the file "
            "again, or rebuild it (prepare_embeddings; index_rows for rows of tables).",
        )
    return [found[name] for name in names]


def ids_of(name: str, values: object, example: str) -> list[str]:
    """Return a list of ids as they are stored."""
    ids = items(name, values, example)
    if not all(isinstance(value, str) for value in ids):
        raise InputError(f"{name} must be a list of strings, such as {example}, not {shown(values)}.")
    return [clean_name(value) for value in ids]


def _near(con: duckdb.DuckDBPyConnection, node_id: str) -> list[str]:
    """Return up to three ids that are similar to one that does not exist."""
    rows = con.execute(
        "SELECT node_id FROM documents WHERE jaro_winkler_similarity(lower(node_id), lower($1)) > 0.8 "
        "ORDER BY jaro_winkler_similarity(lower(node_id), lower($1)) DESC, doc_id, chunk_index LIMIT 3",
        [node_id],
    ).fetchall()
    return [row[0] for row in rows]
