"""RAGFile v0.1.0, a binary file for retrieval: export and import."""

from __future__ import annotations

import zlib
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sqlrag.engines.contents import SETTINGS, Batch, Contents
from sqlrag.engines.duckdb.documents import CHUNK_SCHEMA, SOURCE_SCHEMA
from sqlrag.engines.duckdb.failures import public
from sqlrag.errors import FormatError
from sqlrag.formats.exchange import Imported, stored_contents, write_store
from sqlrag.formats.ragfile.layout import MAGIC, VECTOR, ByteOrder, check_choices
from sqlrag.formats.ragfile.mapped import RAGFile, Record
from sqlrag.formats.ragfile.reader import MISFITS, check_digests
from sqlrag.formats.ragfile.writer import CHUNK_COLUMNS, DIGITS, SOURCE_COLUMNS, Layout, number_digits, write_sections
from sqlrag.formats.targets import Exported, existing, exported, new_output
from sqlrag.strict_json import strict_json

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from sqlrag.formats.ragfile.reader import Facts
    from sqlrag.types import AnyEmbedder

__all__ = ["RAGFile", "Record", "export_ragfile", "import_ragfile", "is_ragfile", "read_ragfile", "write_ragfile"]

# zlib's greatest compression ratio.
_INFLATION = 1032


def is_ragfile(path: str | os.PathLike[str]) -> bool:
    """Return whether a file starts like a RAGFile."""
    with existing(path).open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def write_ragfile(
    contents: Contents,
    path: str | os.PathLike[str],
    *,
    precision: int = 32,
    byte_order: ByteOrder = "little",
    padding: int = 8,
    overwrite: bool = False,
) -> Exported:
    """Write contents as a RAGFile; see :func:`export_ragfile`."""
    check_choices(precision, byte_order, padding)
    layout = Layout(precision, byte_order, padding, contents.dimensions)
    with new_output(path, overwrite=overwrite, is_ours=is_ragfile, kind="RAGFile") as file:
        write_sections(contents, file, layout)
    return exported(contents, existing(path))


@contextmanager
def read_ragfile(path: str | os.PathLike[str]) -> Iterator[Contents]:
    """Open a RAGFile that sqlrag wrote and yield its contents; the digests are checked first.

    Raises
    ------
    NotFoundError
        The file does not exist.
    FormatError
        It is not a RAGFile, damaged, or of another writer.
    """
    with RAGFile(path) as file:
        facts = file.facts
        if facts is None:
            raise FormatError(
                f"{file.path} was not written by sqlrag: it has no section 'sqlrag', so it has no documents to import. "
                "RAGFile(path, dimensions=...).iter_records() reads its records."
            )
        settings = {name: value for name, value in facts.settings.items() if name in SETTINGS}
        batches = _stored_batches(file, facts)
        yield Contents(settings, facts.documents, facts.chunks, batches, facts.updated_at)


def _stored_batches(file: RAGFile, facts: Facts) -> Iterator[Batch]:
    """Yield the contents of the file, after checking its digests."""
    data, path = file.data, file.path
    check_digests(data, facts, file.sections, path)
    place, chunks = facts.blocks_at, 0
    for _ in range(facts.blocks):
        where = f"{path}: the block at offset {place}"
        packed, raw = (int(n) for n in np.frombuffer(data[place : place + 16].ljust(16, b"\0"), facts.offsets.dtype))
        if packed > facts.end + 1 - place - 16 or raw > packed * _INFLATION:
            raise FormatError(f"{where} has a length beyond the end of the file. Export the file again.")
        block = strict_json(_inflated(data[place + 16 : place + 16 + packed], raw, where), where)
        try:
            batch = _batch(file, block, chunks)
        except MISFITS as error:
            raise FormatError(f"{where} does not match the records: {error!r}. Export the file again.") from error
        yield batch
        chunks += len(batch.chunks)
        place += 16 + packed
    if (chunks, place) != (facts.chunks, facts.end + 1):
        raise FormatError(f"{path}: its blocks have {chunks} chunks instead of {facts.chunks}. Export the file again.")


def _inflated(packed: bytes, raw: int, where: str) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(packed, raw + 1)
    except zlib.error as error:
        raise FormatError(f"{where} is damaged: {error}. Export the file again.") from error
    if len(found) != raw or not unpacker.eof:
        raise FormatError(f"{where} does not have the {raw} bytes that it names. Export the file again.")
    return found


def _batch(file: RAGFile, block: Any, first: int) -> Batch:
    sources = {name: block["sources"][name] for name in (*SOURCE_COLUMNS, "gaps")}
    chunks = {name: block["chunks"][name] for name in (*CHUNK_COLUMNS, "document") if name != "doc_id"}
    places = chunks.pop("document")
    count = len(places)
    if not all(type(place) is int and place >= 0 for place in places):
        raise ValueError("a chunk names no document")
    pairs = [file.record(number) for number in range(first, first + count)]
    chunks["node_id"] = [pair.keyword for pair in pairs]
    chunks["text"] = texts = [pair.content for pair in pairs]
    spans: list[list[tuple[int, int, str]]] = [[] for _ in sources["doc_id"]]
    for place, start, end, text in zip(places, chunks["i_start"], chunks["i_end"], texts, strict=True):
        if start is not None:
            spans[place].append((start, end, text))
    sources["text"] = [filled(left, found) for left, found in zip(sources.pop("gaps"), spans, strict=True)]
    sources["modified_at"] = [time and datetime.fromisoformat(time) for time in sources["modified_at"]]
    chunks["doc_id"] = [sources["doc_id"][place] for place in places]
    chunks["collection"] = [sources["collection"][place] for place in places]
    vectors = file.vectors[first : first + count]
    _check_numbers(file, first, count)
    return Batch(
        pa.Table.from_pydict(sources, SOURCE_SCHEMA),
        pa.Table.from_pydict(chunks, CHUNK_SCHEMA),
        np.ascontiguousarray(vectors, np.float32),
    )


def _check_numbers(file: RAGFile, first: int, count: int) -> None:
    """Raise ValueError unless each vector is followed by the number of its chunk."""
    facts = file.facts
    assert facts is not None  # noqa: S101 - only files with facts have batches
    layout = facts.layout
    shape, strides = (count, DIGITS), (layout.stride, 1)
    at = file.sections[VECTOR].first + first * layout.stride + layout.record - DIGITS
    found = np.ndarray(shape, np.uint8, file.data, at, strides) if count else np.empty(shape, np.uint8)
    if not np.array_equal(found, number_digits(first, count)):
        raise ValueError("the content of a vector is not the number of its chunk")


def filled(left: Sequence[str], spans: Sequence[tuple[int, int, str]]) -> str:
    """Return the text from its gaps and the texts of spans, from start to end: the inverse of ``gaps``.

    Raises
    ------
    ValueError
        A gap is missing, has another length, or is left over.

    Examples
    --------
    >>> filled(["# ", " ducks"], [(2, 7, "Ponds"), (5, 11, "ds and")])
    '# Ponds and ducks'
    """
    parts, reached, gap = [], 0, iter(left)
    for start, end, text in sorted(spans):
        if len(text) != end - start:
            raise ValueError(f"a chunk of {len(text)} characters has the offsets {start} to {end}")
        if start > reached:
            parts.append(next(gap, ""))
            reached += len(parts[-1])
            if reached != start:
                raise ValueError(f"the text before character {start} is missing")
        if end > reached:
            parts.append(text[reached - start :])
            reached = end
    if len(rest := [*gap]) > 1:
        raise ValueError(f"{len(rest)} gaps after the last chunk")
    return "".join([*parts, *rest])


@public
def export_ragfile(
    db_path: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    collection: str | Sequence[str] | None = None,
    tags_any: Sequence[str] | None = None,
    tags_all: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    precision: int = 32,
    byte_order: ByteOrder = "little",
    padding: int = 8,
    overwrite: bool = False,
) -> Exported:
    """Write a store, or its documents that pass the filters, as a RAGFile v0.1.0.

    It is written in batches; DuckDB caches what it reads of the store, and sorts words in 1 GB at most. Temporary files
    of about the size of the output are in the same folder. The same store gives the same bytes.

    Parameters
    ----------
    db_path
        The store.
    path
        The file to write. It is complete or absent.
    collection, tags_any, tags_all, metadata
        As for a query: whole documents, of which the document or one chunk passes.
    precision
        Bits of a number of a vector: 32 keeps every bit, 16 halves the vectors and rounds them to about 3 digits.
    byte_order
        "little", the fastest to search on common machines, or "big".
    padding
        4, 8 or 16: records are aligned to it, after 1 to so many NULs.
    overwrite
        Replace an existing RAGFile.

    Returns
    -------
    Exported
        Path, counts, size in bytes, notices.

    Raises
    ------
    InputError
        A filter or choice is not valid, or a vector does not fit into 16 bits.
    StoreExistsError, StoreError, FormatError
        The output exists, cannot be written or is another kind of file; the store cannot be read or is damaged.
    """
    check_choices(precision, byte_order, padding)
    with stored_contents(db_path, collection, tags_any, tags_all, metadata) as contents:
        return write_ragfile(
            contents, path, precision=precision, byte_order=byte_order, padding=padding, overwrite=overwrite
        )


@public
def import_ragfile(
    path: str | os.PathLike[str],
    db_path: str | os.PathLike[str],
    *,
    embedder: AnyEmbedder | None = None,
    overwrite: bool = False,
) -> Imported:
    """Import a RAGFile of sqlrag into a store, new or existing.

    Parameters
    ----------
    path
        The RAGFile. Vectors of 32 bits are stored bit for bit; those of 16 bits are scaled to length 1.
    db_path
        The store; documents of the same ids are replaced.
    embedder
        The embedder of the vectors, to be verified; the file itself names the model.
    overwrite
        Replace the store if it exists.

    Returns
    -------
    Imported
        Path, counts, notices.

    Raises
    ------
    InputError
        The store has a document of the same id as a row of a table; it is unchanged.
    FormatError
        The file is damaged, was edited or is of another writer; the store is unchanged.
    ModelMismatchError
        The store has vectors of another model.
    NotFoundError, StoreError
        The file does not exist; the store cannot be written.
    """
    with read_ragfile(path) as contents:
        return write_store(contents, db_path, embedder=embedder, overwrite=overwrite)
