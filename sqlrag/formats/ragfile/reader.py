"""Reads the facts of a RAGFile of sqlrag from the memory map, and checks them against the file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sqlrag.errors import FormatError
from sqlrag.formats.ragfile.layout import KEYWORD, VECTOR, ByteOrder, Section, mark
from sqlrag.formats.ragfile.writer import Layout
from sqlrag.strict_json import strict_json

if TYPE_CHECKING:
    import mmap
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

_DIGEST = 32

_MOST_FACTS = 1 << 24

_MOST_DIMENSIONS = 1 << 20

MISFITS = (KeyError, TypeError, AttributeError, ValueError, OverflowError, IndexError, pa.ArrowException)


@dataclass(frozen=True)
class Facts:
    """The contents of the section "sqlrag": counts, settings, digests, and the tables for finding a record.

    ``offsets`` ``[records + 1]`` are those of the keyword records, ``order`` ``[records]`` their numbers by keyword.
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
    """Return the facts of our own section, after a check against the file and the other sections.

    Raises
    ------
    FormatError
        It was changed, or does not match.
    """
    start, end = span
    where = f"{path}: the section 'sqlrag' (offset {start})"
    length = int.from_bytes(data[start : start + 8], order)
    tables_at = start + 8 + length + _DIGEST
    if length > _MOST_FACTS or tables_at > end + 1 or KEYWORD not in sections or VECTOR not in sections:
        raise FormatError(f"{where} is truncated, or there is no keyword or vector section. Export the file again.")
    if end + 1 != len(data):
        raise FormatError(f"{path}: there are bytes after the last section (offset {end + 1}). Copy the file again.")
    own = data[start : start + 8 + length]
    keyword, vector = sections[KEYWORD], sections[VECTOR]
    headers = data[keyword.start : keyword.first] + data[vector.start : vector.first]
    if hashlib.sha256(data[: keyword.start] + headers + own).digest() != data[tables_at - _DIGEST : tables_at]:
        raise FormatError(
            f"{where}, the index or a section's header has been changed: their SHA-256 differs. "
            "RAGFile(path, salvage=True) reads what remains."
        )
    facts = strict_json(own[8:], where)
    try:
        return _checked_facts(facts, data, (tables_at, end), vector, order)
    except MISFITS as error:
        raise FormatError(f"{where} does not match the file: {error!r}. Export the file again.") from error


def _checked_facts(
    facts: Any,
    data: mmap.mmap,
    span: tuple[int, int],
    vector: Section,
    byte_order: ByteOrder,
) -> Facts:
    """Return the facts, or raise KeyError, TypeError or ValueError if they are not valid."""
    tables_at, end = span
    sign = mark(byte_order)
    if facts["layout"] != 1:
        raise ValueError(f"its layout is {facts['layout']!r}, this sqlrag reads 1")
    names = ("dimensions", "documents", "chunks", "records", "blocks")
    counts = {name: facts[name] for name in names}
    if not all(type(count) is int and count >= 0 for count in counts.values()):
        raise ValueError(f"counts must be whole numbers, not {counts}")
    settings = facts["settings"]
    if not all(isinstance(value, str) for pair in settings.items() for value in pair):
        raise ValueError("settings must be strings")
    dimensions, chunks, records = counts["dimensions"], counts["chunks"], counts["records"]
    if not 0 < dimensions < _MOST_DIMENSIONS or settings.get("embedding_dimensions") != str(dimensions):
        raise ValueError(f"the settings do not have the vectors' {dimensions} dimensions")
    layout = Layout(vector.precision, byte_order, vector.padding, dimensions)
    expected = (chunks - 1) * layout.stride + layout.record if chunks else 0
    if vector.last - vector.first + 1 != expected:
        raise ValueError(
            f"{chunks} vectors of {dimensions} numbers need {expected} bytes, which is not the length of the section"
        )
    blocks_at = tables_at + 8 * (records + 1) + 4 * records
    if not chunks <= records or blocks_at > end + 1:
        raise ValueError(f"the number of records ({records}) is too high or too low")
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
    """Read the whole file, and raise FormatError if a section has changed."""
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
                    f"{path}: the part {name!r} (offset {start} to {end - 1}) has been changed: its SHA-256 "
                    "differs. Copy the file again; RAGFile(path, salvage=True) reads what remains."
                )
