"""What travels between a store and a file of another format: settings, documents, chunks and vectors, in batches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from sqlrag.errors import FormatError
from sqlrag.formats.strict_json import strict_json
from sqlrag.stopping import checkpoint
from sqlrag.store.metadata import OWN_IDS
from sqlrag.store.vectors import unit_vectors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sqlrag.types import Vectors

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
)
# With one of these a file holds chunks whose node_id is not their document and place.
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
    """What a file holds, or a choice of it.

    ``settings`` are keys of ``embedding_metadata`` out of SETTINGS; a file of another program may know a few of them
    only, ``embedding_dimensions`` always. ``documents`` and ``chunks`` are how many ``batches`` will yield, once.
    ``updated_at`` is when a document was last stored (UTC, ISO 8601), "" where nobody knows.
    """

    settings: Mapping[str, str]
    documents: int
    chunks: int
    batches: Iterable[Batch]
    updated_at: str = ""
    notices: list[str] = field(default_factory=list)

    @property
    def dimensions(self) -> int:
        """The length of the vectors."""
        return int(self.settings["embedding_dimensions"])


def whole(contents: Contents) -> Batch:
    """Return all batches as one, for formats that are read and written in one piece."""
    batches = list(contents.batches)
    return Batch(
        pa.concat_tables([batch.sources for batch in batches] or [SOURCE_SCHEMA.empty_table()]),
        pa.concat_tables([batch.chunks for batch in batches] or [CHUNK_SCHEMA.empty_table()]),
        np.concatenate([batch.vectors for batch in batches] or [np.empty((0, contents.dimensions), np.float32)]),
    )


def grouped(chosen: Sequence[tuple[str, int]], batch_chunks: int) -> Iterator[list[str]]:
    """Yield the ids of documents (doc_id, number of chunks), about ``batch_chunks`` chunks at a time."""
    first = 0
    while first < len(chosen):
        last, size = first, 0
        while last < len(chosen) and (last == first or size + chosen[last][1] <= batch_chunks):
            size += chosen[last][1]
            last += 1
        yield [doc_id for doc_id, _ in chosen[first:last]]
        first = last


def has_own_ids(settings: Mapping[str, str]) -> bool:
    """Return whether a file with these settings may hold chunks whose ids do not follow from their documents."""
    return not _IDS_OF_THEIR_OWN.isdisjoint(settings)


def checked_batches(batches: Iterable[Batch], dimensions: int) -> Iterator[Batch]:
    """Yield batches that came out of a file, after making sure that they can be stored.

    Raises
    ------
    FormatError
        A value is missing, metadata is no JSON object, a document or chunk is there twice, a chunk is blank, has no
        document or is not the slice of it that it names, or a vector is not finite or zero.
    """
    documents: set[str] = set()
    nodes: set[str] = set()
    for batch in batches:
        _check_columns(batch.sources, "doc_id", "document")
        _check_columns(batch.chunks, "node_id", "chunk")
        ids = batch.sources["doc_id"].to_pylist()
        _check_new(ids, documents, "document")
        texts = dict(zip(ids, batch.sources["text"].to_pylist(), strict=True))
        collections = dict(zip(ids, batch.sources["collection"].to_pylist(), strict=True))
        _check_new(batch.chunks["node_id"].to_pylist(), nodes, "chunk")
        columns = ("node_id", "doc_id", "collection", "text", "i_start", "i_end")
        for row in zip(*(batch.chunks[name].to_pylist() for name in columns), strict=True):
            _check_chunk(row, texts, collections)
        _check_vectors(batch, dimensions)
        checkpoint()
        yield batch


def at_unit_length(vectors: Vectors) -> tuple[Vectors, int]:
    """Return ``[n, dimensions] float32`` at unit length, and how many were not: those that were keep every bit.

    None of them may be zero or not finite.
    """
    # What rounding to float32 leaves is less; the check of a store tolerates a hundred times more.
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
            raise FormatError(f"The metadata of the {what} {name!r} is no JSON object.")


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
    if not text.strip():
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
