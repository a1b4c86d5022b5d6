"""What a store and a file of another format exchange: settings, documents, chunks and vectors, in batches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlrag.arguments import counted
from sqlrag.cancellation import checkpoint
from sqlrag.engines.duckdb.documents import CHUNK_SCHEMA, SOURCE_SCHEMA
from sqlrag.engines.duckdb.metadata import OWN_IDS, WITH_MARKUP
from sqlrag.errors import FormatError
from sqlrag.normalize import is_blank
from sqlrag.progress import Bar
from sqlrag.ranking.vectors import unit_vectors
from sqlrag.strict_json import strict_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from sqlrag.types import Vectors

T = TypeVar("T")

# The keys of embedding_metadata that say how a store is used. The others count its rows or name what wrote it.
SETTINGS = (
    "created_at",
    "embedding_provider",
    "embedding_model",
    "embedding_dimensions",
    "embedding_revision",
    "embedding_options",
    "max_tokens",
    "query_prefix",
    "passage_prefix",
    "fingerprint",
    "chunking_strategy",
    "chunk_size",
    "chunk_overlap",
    "chunk_unit",
    "include_headers",
    "header_weight",
    "stemmer",
    "llama_index_compatible",
    "upgraded_from",
    OWN_IDS,
    WITH_MARKUP,
)

# With one of these a file has chunks whose node_id is not their document and position.
_NAMES = {"doc_id", "node_id", "collection", "tags"}

_IDS_OF_THEIR_OWN = {"upgraded_from", OWN_IDS}


class Batch(NamedTuple):
    """Whole documents with all of their chunks: ``sources`` by SOURCE_SCHEMA in the order of ``doc_id``, ``chunks`` by
    CHUNK_SCHEMA in the order of ``doc_id, chunk_index``, ``vectors`` ``[len(chunks), dimensions] float32``.
    """  # noqa: D205

    sources: pa.Table
    chunks: pa.Table
    vectors: Vectors


@dataclass
class Contents:
    """The contents of a file, or a selection of them.

    ``settings`` are keys of ``embedding_metadata`` out of SETTINGS; a file of another program may have a few of them
    only, but always ``embedding_dimensions``. ``documents`` and ``chunks`` are how many ``batches`` will yield, once.
    ``updated_at`` is when a document was last stored (UTC, ISO 8601), "" where unknown; ``doc_ids`` are those of all
    documents, where they are known beforehand; ``stop_words`` those of a store that has them, else None.
    """

    settings: Mapping[str, str]
    documents: int
    chunks: int
    batches: Iterable[Batch]
    updated_at: str = ""
    notices: list[str] = field(default_factory=list)
    doc_ids: frozenset[str] = frozenset()
    stop_words: Sequence[str] | None = None

    @property
    def dimensions(self) -> int:
        """The length of the vectors."""
        return int(self.settings["embedding_dimensions"])


def whole_at_unit_length(contents: Contents) -> tuple[Batch, list[str]]:
    """Return all batches as one, for formats that are written in one piece, with vectors of length 1; and notices.

    Raises
    ------
    FormatError
        There is nothing to write, or a vector that cannot be used.
    """
    if not contents.documents:
        raise FormatError("There is no document to export: the store is empty, or none passes the filters.")
    none = Batch(
        SOURCE_SCHEMA.empty_table(), CHUNK_SCHEMA.empty_table(), np.empty((0, contents.dimensions), np.float32)
    )
    batches = list(_counted(contents)) or [none]
    chunks = pa.concat_tables([batch.chunks for batch in batches])
    vectors = np.concatenate([batch.vectors for batch in batches])
    bad = np.flatnonzero(~np.isfinite(vectors.sum(axis=1)) | ~vectors.any(axis=1))
    if len(bad):
        node_id = chunks["node_id"][int(bad[0])].as_py()
        raise FormatError(f"The vector of the chunk {node_id!r} is zero or not finite. Re-embed its document.")
    vectors, scaled = at_unit_length(vectors)
    return Batch(pa.concat_tables([batch.sources for batch in batches]), chunks, vectors), scaled_notices(scaled)


def scaled_notices(scaled: int) -> list[str]:
    """Return the notice that so many vectors were not of length 1, none for 0."""
    return [f"{counted(scaled, 'vector')} of another length than 1 scaled to length 1."] if scaled else []


def grouped(chosen: Sequence[tuple[str, int]], batch_chunks: int) -> Iterator[list[str]]:
    """Yield the ids of documents (doc_id, number of chunks), about ``batch_chunks`` chunks at a time."""
    for group in groups(chosen, [chunks for _, chunks in chosen], batch_chunks):
        yield [doc_id for doc_id, _ in group]


def groups(items: Sequence[T], sizes: Sequence[int], most: int) -> Iterator[Sequence[T]]:
    """Yield groups of consecutive items, about ``most`` of their sizes at a time."""
    first = size = 0
    for place, more in enumerate(sizes):
        if place > first and size + more > most:
            yield items[first:place]
            first, size = place, 0
        size += more
    if items:
        yield items[first:]


def chosen_contents(
    settings: Mapping[str, str],
    chosen: Sequence[tuple[str, int]],
    read: Callable[[list[str]], Batch],
    newest: datetime | None,
    batch_chunks: int,
    stop_words: Sequence[str] | None,
) -> Contents:
    """Return a store's contents of documents (doc_id, number of chunks); ``newest`` is when one was last stored."""
    return Contents(
        {name: settings[name] for name in SETTINGS if name in settings},
        len(chosen),
        sum(chunks for _, chunks in chosen),
        (read(doc_ids) for doc_ids in grouped(chosen, batch_chunks)),
        updated_at="" if newest is None else f"{newest.isoformat(timespec='seconds')}Z",
        doc_ids=frozenset(doc_id for doc_id, _ in chosen),
        stop_words=stop_words,
    )


def has_own_ids(settings: Mapping[str, str]) -> bool:
    """Return whether a file with these settings may hold chunks whose ids do not follow from their documents."""
    return not _IDS_OF_THEIR_OWN.isdisjoint(settings)


def _counted(contents: Contents) -> Iterator[Batch]:
    with Bar("copying", "chunk", contents.chunks) as bar:
        for batch in contents.batches:
            yield batch
            bar.made(len(batch.chunks))


def checked_batches(contents: Contents) -> Iterator[Batch]:
    """Yield the batches of contents that came out of a file, after making sure that they can be stored.

    Raises
    ------
    FormatError
        A value is missing, metadata is not a JSON object, a document or chunk occurs twice, a chunk is blank, has no
        document or is not the slice of it that it names, a vector is not finite or zero, or there are more or fewer of
        them than the contents say.
    """
    documents: set[str] = set()
    nodes: set[str] = set()
    for batch in _counted(contents):
        _check_columns(batch.sources, "doc_id", "document")
        _check_columns(batch.chunks, "node_id", "chunk")
        batch = batch._replace(sources=_with_names(batch.sources), chunks=_with_names(batch.chunks))
        ids = batch.sources["doc_id"].to_pylist()
        _check_new(ids, documents, "document")
        texts = dict(zip(ids, batch.sources["text"].to_pylist(), strict=True))
        collections = dict(zip(ids, batch.sources["collection"].to_pylist(), strict=True))
        _check_new(batch.chunks["node_id"].to_pylist(), nodes, "chunk")
        columns = ("node_id", "doc_id", "collection", "text", "i_start", "i_end")
        for row in zip(*(batch.chunks[name].to_pylist() for name in columns), strict=True):
            _check_chunk(row, texts, collections)
        _check_vectors(batch, contents.dimensions)
        checkpoint()
        yield batch
    if (len(documents), len(nodes)) != (contents.documents, contents.chunks):
        raise FormatError(
            f"The file names {contents.documents} documents and {contents.chunks} chunks, but holds {len(documents)} "
            f"and {len(nodes)}. It is cut short or was edited."
        )


def _with_names(table: pa.Table) -> pa.Table:
    """Return documents or chunks with their names as they are stored, whatever program wrote them."""
    for name in _NAMES & set(table.column_names):
        place, column = table.schema.get_field_index(name), table[name].combine_chunks()
        if name == "tags":
            clean: Any = pa.ListArray.from_arrays(column.offsets, pc.utf8_normalize(column.values, "NFC"))
        else:
            clean = pc.utf8_normalize(column, "NFC")
        table = table.set_column(place, table.schema.field(place), clean)
    return table


def at_unit_length(vectors: Vectors) -> tuple[Vectors, int]:
    """Return ``[n, dimensions] float32`` at unit length, and how many were not: those that were keep every bit.

    None of them may be zero or not finite.
    """
    # Rounding to float32 deviates less; the check of a store tolerates a hundred times more.
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    others = np.flatnonzero(np.abs(squares - 1) > 1e-5)
    if len(others):
        vectors = vectors.copy()
        vectors[others] = unit_vectors(vectors[others], vectors.shape[1])
    return vectors, len(others)


def _check_columns(table: pa.Table, key: str, what: str) -> None:
    for field_ in table.schema:
        column = table[field_.name]
        missing = column.null_count and not field_.nullable
        if missing or (pa.types.is_list(field_.type) and column.combine_chunks().flatten().null_count):
            raise FormatError(f"A {what} has no value in {field_.name}, which every one needs.")
    for name, text in zip(table[key].to_pylist(), table["metadata_"].to_pylist(), strict=True):
        if text != "{}" and not isinstance(strict_json(text, f"The metadata of the {what} {name!r}"), dict):
            raise FormatError(f"The metadata of the {what} {name!r} is not a JSON object.")


def _check_new(ids: list[str], seen: set[str], what: str) -> None:
    before = len(seen)
    seen.update(ids)
    if len(seen) - before != len(ids):
        twice = next((name for name, count in Counter(ids).items() if count > 1), None) or "of two parts"
        raise FormatError(f"The {what} {twice!r} is in the file more than once. Each needs an id of its own.")


def _check_chunk(row: tuple[Any, ...], texts: Mapping[str, str], collections: Mapping[str, str]) -> None:
    node_id, doc_id, collection, text, i_start, i_end = row
    source = texts.get(doc_id)
    if source is None:
        raise FormatError(f"The chunk {node_id!r} is of the document {doc_id!r}, which is not in the file.")
    if collection != collections[doc_id]:
        raise FormatError(f"The chunk {node_id!r} is of collection {collection!r}, its document is not.")
    if is_blank(text):
        raise FormatError(f"The chunk {node_id!r} is blank.")
    if i_start is None and i_end is None:
        return
    if i_start is None or i_end is None or not 0 <= i_start < i_end <= len(source) or source[i_start:i_end] != text:
        raise FormatError(
            f"The chunk {node_id!r} is not the slice [{i_start}:{i_end}] of the text of {doc_id!r} "
            f"({len(source)} characters). One of them has been changed without the other."
        )


def _check_vectors(batch: Batch, dimensions: int) -> None:
    if batch.vectors.shape != (len(batch.chunks), dimensions):
        raise FormatError(
            f"There are {len(batch.chunks)} chunks of {dimensions} dimensions, but vectors of the shape "
            f"{list(batch.vectors.shape)}."
        )
    squares = np.einsum("ij,ij->i", batch.vectors, batch.vectors, dtype=np.float64)
    bad = np.flatnonzero(~(squares > 1e-24) | ~np.isfinite(squares))
    if len(bad):
        node_id = batch.chunks["node_id"][int(bad[0])].as_py()
        what = "zero" if squares[bad[0]] <= 1e-24 else "not finite"
        raise FormatError(f"The vector of the chunk {node_id!r} is {what}; {len(bad)} vectors cannot be used.")
