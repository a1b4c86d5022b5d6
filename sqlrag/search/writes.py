"""How an open store is changed by a program: documents, chunks and vectors of its own, checked first."""

from __future__ import annotations

import json
from abc import abstractmethod
from dataclasses import fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from sqlrag import arguments
from sqlrag.arguments import counted, items, shown, whole
from sqlrag.engines.duckdb import chunks
from sqlrag.engines.duckdb.chunks import IndexReport, add_chunks, with_sources
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.rows import real_folder
from sqlrag.errors import InputError
from sqlrag.normalize import clean_metadata, clean_name, is_blank, without_surrogates
from sqlrag.ranking.filters import Filters, check_dates, refuse_lack, strings
from sqlrag.ranking.vectors import unit_vectors
from sqlrag.search.queries import Queries
from sqlrag.search.searcher import why_nothing_passes
from sqlrag.types import Chunk, Document

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from sqlrag.engines.duckdb.chunks import Rows
    from sqlrag.engines.duckdb.documents import DeleteReport
    from sqlrag.search.searcher import Searcher
    from sqlrag.types import Vectors

Row = TypeVar("Row", Document, Chunk)

_INT32 = 2**31 - 1

_INT64 = 2**63 - 1

_NAMES = {"doc_id", "collection", "given_id"}

_OPTIONAL = {"page", "modified_at", "shown"}


def cleaned_document(document: Document) -> Document:
    """Return a document as it can be stored.

    Raises
    ------
    InputError
        ``doc_id`` is blank, or a field is of the wrong type.
    """
    return _cleaned(document, Document, {"size_bytes": (0, _INT64), "body_start": (0, _INT64)})


def cleaned_chunk(chunk: Chunk) -> Chunk:
    """Return a chunk as it can be stored.

    Raises
    ------
    InputError
        ``doc_id`` is blank, a field is of the wrong type, a number out of its range, or ``node`` no JSON object.
    """
    offsets = {"chunk_index": (0, _INT32), "i_start": (0, _INT32), "i_end": (0, _INT32), "page": (1, _INT32)}
    cleaned = _cleaned(chunk, Chunk, offsets)
    if cleaned.node:
        try:
            node = json.loads(cleaned.node)
        except ValueError:
            node = None
        if not isinstance(node, dict):
            raise InputError(f"Chunk {shown(chunk.node_id)}: node must be a JSON object, not {shown(cleaned.node)}.")
    return cleaned


def _cleaned(row: Row, kind: type[Row], ranges: dict[str, tuple[int, int]]) -> Row:
    """Return the row with its fields checked; the length of its text never changes, so that offsets stay true."""
    if not isinstance(row, kind):
        raise InputError(f"A sqlrag.{kind.__name__} is wanted, not a {type(row).__name__}.")
    changes: dict[str, Any] = {}
    for field in fields(row):
        name, value = field.name, getattr(row, field.name)
        where = f"{kind.__name__} {shown(row.doc_id)}: {name}"
        if value is None and name in _OPTIONAL:
            continue
        if name == "metadata":
            changes[name] = clean_metadata(value)
        elif name in ranges:
            low, high = ranges[name]
            changes[name] = whole(where, value, low, high)
        elif name == "page_starts":
            changes[name] = tuple(whole(where, start, 0) for start in items(where, value, "(0, 1800)"))
        elif name in ("tags", "heading_path", "warnings"):
            if not isinstance(value, (tuple, list)) or not all(isinstance(item, str) for item in value):
                raise InputError(f"{where} must be a tuple of strings, not {shown(value)}.")
            changes[name] = tuple((clean_name if name == "tags" else without_surrogates)(item) for item in value)
        elif name == "links":
            changes[name] = None  # they are found in the text again
        elif name == "modified_at":
            if not isinstance(value, datetime):
                raise InputError(f"{where} must be a datetime, not {shown(value)}.")
        elif isinstance(value, str):
            changes[name] = (clean_name if name in _NAMES else without_surrogates)(value)
        elif field.type in ("str", "str | None"):
            raise InputError(f"{where} must be a string, not {shown(value)}.")
    for name in ("doc_id", "collection"):
        if is_blank(changes[name]):
            raise InputError(f"{kind.__name__} {shown(row.doc_id)}: {name} must not be blank.")
    return replace(row, **changes)


def index_chunks(
    searcher: Searcher,
    chunks: Sequence[Chunk],
    vectors: ArrayLike | None,
    read: Callable[[Sequence[str]], Sequence[Document]],
    changed: Callable[[Callable[[Rows], None], Sequence[str]], None],
) -> IndexReport:
    """Write all chunks of some documents in place of the documents; see :func:`sqlrag.index`.

    ``read`` returns the documents of some ids that the store has, ``changed`` does work on the rows of
    some documents in a transaction.
    """
    given = [cleaned_chunk(chunk) for chunk in items("chunks", chunks, "[sqlrag.Chunk(…)]")]
    if not given:
        return IndexReport([], 0, 0)
    dimensions = searcher.identity.dimensions
    documents, placed = with_sources(read, given)
    embedded = 0
    if vectors is None:
        rows, embedded = _embedded(searcher, placed)
    else:
        unit = unit_vectors(vectors, dimensions, [chunk.node_id for chunk in given])
        _check_count(given, unit)
        rows = {chunk.node_id: row for chunk, row in zip(given, unit, strict=True)}
    matrix = unit_vectors([rows[chunk.node_id] for chunk in placed], dimensions)
    doc_ids = [document.doc_id for document in documents]
    changed(lambda stored: stored.write(documents, placed, matrix, ()), doc_ids)
    return IndexReport(doc_ids, len(placed), embedded)


def add_given_chunks(
    searcher: Searcher,
    chunks: Sequence[Chunk],
    vectors: ArrayLike | None,
    changed: Callable[[Callable[[Rows], list[str]], Sequence[str]], list[str]],
) -> IndexReport:
    """Add chunks beside those that their documents have; see :meth:`sqlrag.Store.add_chunks`."""
    given = [cleaned_chunk(chunk) for chunk in items("chunks", chunks, "[sqlrag.Chunk(…)]")]
    if not given:
        return IndexReport([], 0, 0)
    embedded, rows = 0, vectors
    if rows is None:
        made, embedded = _embedded(searcher, given)
        rows = [made[chunk.node_id] for chunk in given]
    unit = unit_vectors(rows, searcher.identity.dimensions, [chunk.node_id for chunk in given])
    _check_count(given, unit)
    documents = changed(lambda stored: add_chunks(stored, given, unit), [chunk.doc_id for chunk in given])
    return IndexReport(documents, len(given), embedded)


def _check_count(chunks: Sequence[Chunk], vectors: Vectors) -> None:
    if len(vectors) != len(chunks):
        counts = f"{counted(len(chunks), 'chunk')} and {counted(len(vectors), 'vector')}"
        raise InputError(f"{counts} were passed; there must be one vector for each chunk.")


def _embedded(searcher: Searcher, chunks: Sequence[Chunk]) -> tuple[dict[str, NDArray[np.float32]], int]:
    """Return the vector of each chunk by its node_id, and how many texts were embedded."""
    from sqlrag.embedders import embed_texts

    headers = searcher.engine.metadata.get("include_headers") == "True"
    texts = {chunk.node_id: chunk.embedding_text(headers) for chunk in chunks}
    for node_id, text in texts.items():
        if is_blank(text):
            raise InputError(f"The chunk {node_id!r} is blank.")
    unique = list(dict.fromkeys(texts.values()))
    made = dict(zip(unique, embed_texts(searcher.embedder(), unique, kind="document"), strict=True))
    return {node_id: made[text] for node_id, text in texts.items()}, len(unique)


T = TypeVar("T")


def _place(folder: str | os.PathLike[str]) -> str:
    try:
        return real_folder(arguments.path("folder", folder))
    except ValueError as error:  # NUL, or a lone surrogate
        raise InputError(f"folder must be a path, not {shown(folder)}.") from error


@public
class Writes(Queries):
    """What changes a store, beside what :class:`Queries` asks it."""

    @abstractmethod
    def _changed(self, work: Callable[[Rows], T], doc_ids: Sequence[str] | None = None) -> T:
        """Return what the work on the rows returns, done in one transaction.

        ``doc_ids`` are the documents that it changes, None where it may be any.
        """

    @abstractmethod
    def _stored_documents(self, doc_ids: Sequence[str]) -> list[Document]:
        """Return those of the documents that are stored, in the order of their ids."""

    @abstractmethod
    def _delete_documents(
        self, doc_ids: list[str] | None, checksum: str | None, filters: dict[str, Any], *, dry_run: bool
    ) -> DeleteReport:
        """Delete the documents that meet every condition that is not None, or only say which they are."""

    def upsert(self, documents: Sequence[Document], chunks: Sequence[Chunk], embeddings: ArrayLike) -> None:
        """Insert documents with their chunks and vectors, in place of what the store held of these documents.

        Everything is written in one transaction and can be searched at once, by both legs.

        Parameters
        ----------
        documents
            Each with a ``doc_id`` of its own. What the store held of it before is replaced, also where it was longer.
            Lone surrogates become U+FFFD, metadata JSON values (dates as ISO 8601, NaN as null).
        chunks
            In any order; each belongs to one of the documents. Offsets are optional (leave both 0); where they are
            given, ``document.text[i_start:i_end]`` must be the chunk's content.
        embeddings
            ``[len(chunks), dimensions] float32``, row i for chunk i. Brought to unit length.

        Raises
        ------
        InputError
            Ids repeat or are blank, a document has the id of a row of a table, a chunk has the id of one of another
            document, has no document, is blank or is not the slice that its offsets cut, counts differ, a field is of
            the wrong type, or a vector is zero or not finite.
        ModelMismatchError
            The vectors have another number of dimensions.
        StoreError
            The store is open for reading only.
        """
        sources = [cleaned_document(one) for one in arguments.items("documents", documents, "[sqlrag.Document(…)]")]
        rows = [cleaned_chunk(chunk) for chunk in arguments.items("chunks", chunks, "[sqlrag.Chunk(…)]")]
        vectors = unit_vectors(embeddings, self.dimensions, [chunk.node_id for chunk in rows]) if rows else None
        self._changed(lambda stored: stored.write(sources, rows, vectors, ()), [source.doc_id for source in sources])

    def index(self, chunks: Sequence[Chunk], *, vectors: ArrayLike | None = None) -> IndexReport:
        """Insert chunks that a program made, all of each document; see :func:`sqlrag.index`."""
        return index_chunks(self._searcher, chunks, vectors, self._stored_documents, self._changed)

    def add_chunks(self, chunks: Sequence[Chunk], *, vectors: ArrayLike | None = None) -> IndexReport:
        """Add chunks to what the store has: each in the place of the chunk with its ``node_id``, or as a new one.

        A new chunk comes behind the others of its document. Ids stay as they are, ``chunk_index`` is renumbered. The
        text of a document is kept where it holds every chunk; else it becomes the chunks joined by blank lines, as in
        :func:`sqlrag.index`. Everything is written in one transaction.

        Parameters
        ----------
        chunks
            Chunks of any documents, in the order that new ones get; each ``node_id`` once.
        vectors
            ``[len(chunks), dimensions] float32``, row i for chunk i, brought to unit length. None: the texts are
            embedded with the file's model.

        Raises
        ------
        InputError
            A ``node_id`` is given twice or is that of another document's chunk, a chunk is blank or of another
            collection than its document, or counts differ.
        ModelMismatchError, ModelUnavailableError, MissingExtraError, ProviderError
            The vectors have another number of dimensions, or the file's model cannot make them here.
        StoreError
            The store is open for reading only.
        """
        return add_given_chunks(self._searcher, chunks, vectors, self._changed)

    def delete_chunks(
        self,
        *,
        node_ids: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Delete single chunks, and each document that loses its last one; return their ids, in order.

        The text of a document that came from a file stays whole; one that was joined of its chunks loses theirs.

        Parameters
        ----------
        node_ids
            Those to delete; ids that the file does not have change nothing.
        metadata
            As in a search. With ``node_ids`` both have to hold.

        Raises
        ------
        InputError
            Nothing says what to delete, a condition is of the wrong type, or ``metadata`` alone holds for every
            chunk without its fields, as ``$ne`` does.
        StoreError
            The store is open for reading only.
        """
        ids = strings("node_ids", node_ids)
        if ids is None and not metadata:
            raise InputError("Nothing says what to delete. Pass node_ids or metadata, or see delete_documents.")
        if ids is None:
            refuse_lack(metadata, "chunk", "node_ids")
        filters = Filters(metadata=metadata).parameters()
        check_dates(Filters(metadata=metadata), self._engine.date_fields)
        return self._changed(lambda rows: chunks.delete_chunks(rows, {**filters, "node_ids": ids}))

    def delete_documents(
        self,
        *,
        doc_ids: str | Sequence[str] | None = None,
        checksum: str | None = None,
        collection: str | Sequence[str] | None = None,
        tags_any: Sequence[str] | None = None,
        tags_all: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        folder: str | os.PathLike[str] | None = None,
        dry_run: bool = False,
    ) -> DeleteReport:
        """Delete the documents that meet all conditions; see :func:`sqlrag.delete_documents`."""
        dry_run = arguments.flag("dry_run", dry_run)
        checksum = None if checksum is None else without_surrogates(arguments.text("checksum", checksum))
        ids = strings("doc_ids", [doc_ids] if isinstance(doc_ids, str) else doc_ids)
        chosen = Filters(collection, tags_any, tags_all, metadata)
        place = None if folder is None else _place(folder)
        filters = chosen.to_delete_by(ids, checksum, place)
        check_dates(chosen, self._engine.date_fields)
        report = self._delete_documents(ids, checksum, filters, dry_run=dry_run)
        if (
            filters
            and not (report.deleted or report.notices)
            and not self._engine.any_passes(self._engine.passing_filters(chosen))
        ):
            report.notices.append(why_nothing_passes(self._engine, chosen))
        return report
