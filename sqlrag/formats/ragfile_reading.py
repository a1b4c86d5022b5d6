"""Reads a RAGFile straight from the memory map: records by keyword, vectors in one block, and a store's contents."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sqlrag.errors import FormatError
from sqlrag.formats.contents import CHUNK_SCHEMA, SETTINGS, SOURCE_SCHEMA, Batch
from sqlrag.formats.ragfile_layout import KEYWORD, VECTOR, ByteOrder, Section, mark
from sqlrag.formats.ragfile_writing import CHUNK_COLUMNS, DIGITS, SOURCE_COLUMNS, Layout, number_digits
from sqlrag.formats.strict_json import strict_json

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from sqlrag.formats.ragfile import RAGFile

_DIGEST = 32
_MOST_FACTS = 1 << 24
_MOST_DIMENSIONS = 1 << 20
_MISFITS = (KeyError, TypeError, AttributeError, ValueError, OverflowError, IndexError, pa.ArrowException)
# What zlib at most makes of a byte.
_INFLATION = 1032


@dataclass(frozen=True)
class Facts:
    """What the section "sqlrag" says: counts, settings, digests, and the tables that find a record.

    ``offsets`` ``[records + 1]`` are where the keyword records begin, ``order`` ``[records]`` their numbers by keyword.
    """

    settings: Mapping[str, str]
    updated_at: str
    layout: Layout
    documents: int
    chunks: int
    records: int
    blocks: int
    digests: Mapping[str, str]
    offsets: NDArray[np.uint64]
    order: NDArray[np.uint32]
    tables_at: int
    blocks_at: int
    end: int


def read_facts(
    data: mmap.mmap, span: tuple[int, int], sections: Mapping[str, Section], order: ByteOrder, path: Path
) -> Facts:
    """Return what our own section says, after making sure that it fits to the file and to the other sections.

    Raises
    ------
    FormatError
        It was changed, or does not fit.
    """
    start, end = span
    where = f"{path}: the section 'sqlrag' (offset {start})"
    length = int.from_bytes(data[start : start + 8], order)
    tables_at = start + 8 + length + _DIGEST
    if length > _MOST_FACTS or tables_at > end + 1 or KEYWORD not in sections or VECTOR not in sections:
        raise FormatError(f"{where} is cut short, or there is no keyword or vector section. Export the file again.")
    if end + 1 != len(data):
        raise FormatError(f"{path}: there is something after the last section (offset {end + 1}). Get the file again.")
    own = data[start : start + 8 + length]
    keyword, vector = sections[KEYWORD], sections[VECTOR]
    headers = data[keyword.start : keyword.first] + data[vector.start : vector.first]
    if hashlib.sha256(data[: keyword.start] + headers + own).digest() != data[tables_at - _DIGEST : tables_at]:
        raise FormatError(
            f"{where}, the index or a section's header has been changed: their SHA-256 is another one. "
            "RAGFile(path, salvage=True) reads what is there."
        )
    facts = strict_json(own[8:], where)
    try:
        return _checked_facts(facts, data, (tables_at, end), vector, order)
    except _MISFITS as error:
        raise FormatError(f"{where} does not fit to the file: {error!r}. Export the file again.") from error


def _checked_facts(
    facts: Any,
    data: mmap.mmap,
    span: tuple[int, int],
    vector: Section,
    byte_order: ByteOrder,
) -> Facts:
    """Return the facts, or raise KeyError, TypeError or ValueError where they cannot be."""
    tables_at, end = span
    sign = mark(byte_order)
    if facts["layout"] != 1:
        raise ValueError(f"its layout is {facts['layout']!r}, this sqlrag knows 1")
    names = ("dimensions", "documents", "chunks", "records", "blocks")
    counts = {name: facts[name] for name in names}
    if not all(type(count) is int and count >= 0 for count in counts.values()):
        raise ValueError(f"counts must be whole numbers, not {counts}")
    settings = facts["settings"]
    if not all(isinstance(value, str) for pair in settings.items() for value in pair):
        raise ValueError("settings must be texts")
    dimensions, chunks, records = counts["dimensions"], counts["chunks"], counts["records"]
    if not 0 < dimensions < _MOST_DIMENSIONS or settings.get("embedding_dimensions") != str(dimensions):
        raise ValueError(f"the vectors have {dimensions} dimensions, the settings do not")
    layout = Layout(vector.precision, byte_order, vector.padding, dimensions)
    expected = (chunks - 1) * layout.stride + layout.record if chunks else 0
    if vector.last - vector.first + 1 != expected:
        raise ValueError(f"{chunks} vectors of {dimensions} numbers fill {expected} bytes, not the section's")
    blocks_at = tables_at + 8 * (records + 1) + 4 * records
    if not chunks <= records or blocks_at > end + 1:
        raise ValueError(f"{records} records are too many or too few")
    offsets = np.frombuffer(data, f"{sign}u8", records + 1, tables_at)
    order = np.frombuffer(data, f"{sign}u4", records, tables_at + offsets.nbytes)
    return Facts(
        {str(name): value for name, value in settings.items()},
        str(facts["updated_at"]),
        layout,
        counts["documents"],
        chunks,
        records,
        counts["blocks"],
        {name: str(facts["sha256"][name]) for name in (KEYWORD, VECTOR, "tables", "blocks")},
        offsets,
        order,
        tables_at,
        blocks_at,
        end,
    )


def check_digests(data: mmap.mmap, facts: Facts, sections: Mapping[str, Section], path: Path) -> None:
    """Read the whole file, and raise FormatError where a section is not what its writer wrote."""
    keyword, vector = sections[KEYWORD], sections[VECTOR]
    spare = facts.layout.stride - facts.layout.record if facts.chunks else 0
    spans = {
        KEYWORD: (keyword.first, keyword.last + 1, int(facts.offsets[-1]) - keyword.last - 1),
        VECTOR: (vector.first, vector.last + 1, spare),
        "tables": (facts.tables_at, facts.blocks_at, 0),
        "blocks": (facts.blocks_at, facts.end + 1, 0),
    }
    with memoryview(data) as view:
        for name, (start, end, padding) in spans.items():
            with view[start:end] as part:
                digest = hashlib.sha256(part)
            digest.update(bytes(padding) if 0 <= padding <= max(keyword.padding, vector.padding) else b"?")
            if digest.hexdigest() != facts.digests[name]:
                raise FormatError(
                    f"{path}: the part {name!r} (offset {start} to {end - 1}) has been changed: its SHA-256 is another "
                    "one. Get the file again; RAGFile(path, salvage=True) reads what is there."
                )


# The contents of a store.


def stored_batches(file: RAGFile, facts: Facts) -> Iterator[Batch]:
    """Yield what the file holds of a store, checked against its digests first."""
    data, path = file.data, file.path
    check_digests(data, facts, file.sections, path)
    place, chunks = facts.blocks_at, 0
    for _ in range(facts.blocks):
        where = f"{path}: the block at offset {place}"
        packed, raw = (int(n) for n in np.frombuffer(data[place : place + 16].ljust(16, b"\0"), facts.offsets.dtype))
        if packed > facts.end + 1 - place - 16 or raw > packed * _INFLATION:
            raise FormatError(f"{where} is said to be longer than the file. Export the file again.")
        block = strict_json(_inflated(data[place + 16 : place + 16 + packed], raw, where), where)
        try:
            batch = _batch(file, block, chunks)
        except _MISFITS as error:
            raise FormatError(f"{where} does not fit to the records: {error!r}. Export the file again.") from error
        yield batch
        chunks += len(batch.chunks)
        place += 16 + packed
    if (chunks, place) != (facts.chunks, facts.end + 1):
        raise FormatError(f"{path}: its blocks hold {chunks} chunks in place of {facts.chunks}. Export the file again.")


def _inflated(packed: bytes, raw: int, where: str) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(packed, raw + 1)
    except zlib.error as error:
        raise FormatError(f"{where} is damaged: {error}. Export the file again.") from error
    if len(found) != raw or not unpacker.eof:
        raise FormatError(f"{where} is not of the {raw} bytes that it names. Export the file again.")
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
    """Raise ValueError unless each vector stands before the number of its chunk."""
    facts = file.facts
    assert facts is not None  # noqa: S101 - a file without them has no batches
    layout = facts.layout
    shape, strides = (count, DIGITS), (layout.stride, 1)
    at = file.sections[VECTOR].first + first * layout.stride + layout.record - DIGITS
    found = np.ndarray(shape, np.uint8, file.data, at, strides) if count else np.empty(shape, np.uint8)
    if not np.array_equal(found, number_digits(first, count)):
        raise ValueError("the content of a vector is not the number of its chunk")


def filled(left: Sequence[str], spans: Sequence[tuple[int, int, str]]) -> str:
    """Return the text whose parts are the gaps and, from start to end, the texts of spans: ``gaps`` undone.

    Raises
    ------
    ValueError
        A gap is missing or of another length, or one is left.

    Examples
    --------
    >>> filled(["# ", " ducks"], [(2, 7, "Ponds"), (5, 11, "ds and")])
    '# Ponds and ducks'
    """
    parts, reached, gap = [], 0, iter(left)
    for start, end, text in sorted(spans):
        if len(text) != end - start:
            raise ValueError(f"a chunk of {len(text)} characters is said to go from {start} to {end}")
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


def known_settings(facts: Facts) -> dict[str, str]:
    """Return those settings that a store has."""
    return {name: value for name, value in facts.settings.items() if name in SETTINGS}
