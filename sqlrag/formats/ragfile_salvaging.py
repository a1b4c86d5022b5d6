"""What can be read of RAGFiles of other writers and of damaged ones."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlrag.errors import FormatError, InputError
from sqlrag.formats.ragfile_layout import HEADER, KEYWORD, VECTOR, ByteOrder, Section, read_index, read_sections

if TYPE_CHECKING:
    import mmap
    from pathlib import Path

    from numpy.typing import NDArray

_RECORD = re.compile(rb"[^\x00]+")

Span = tuple[int, int]


def salvaged(
    data: mmap.mmap, order: ByteOrder, path: Path
) -> tuple[dict[str, Span], dict[str, Section], list[Span], list[str]]:
    """Return the index, the sections and keyword records that can still be read, and what cannot, in words."""
    entries: dict[str, Span] = {}
    index_end = HEADER.size
    with suppress(FormatError):
        entries, index_end = read_index(data, path)
    sections: dict[str, Section] = {}
    notices = []
    for name, (start, end) in entries.items():
        with suppress(FormatError):
            sections |= read_sections(data, {name: (start, min(end, len(data) - 1))}, order, path)
        if name == KEYWORD and KEYWORD not in sections and start < len(data):
            # The header is gone; records are told apart by NULs alone.
            last = min(end, len(data)) - 1
            sections[KEYWORD] = Section(KEYWORD, start, last, max(start, index_end), last, 0)
    if KEYWORD not in sections:
        notices.append("Nothing can be read by keyword: there is no such section.")
    if VECTOR not in sections:
        notices.append("No vectors can be read: there is no such section, or its header is damaged.")
    spans, lost = _spans(data, sections.get(KEYWORD), index_end)
    if lost:
        notices.append(f"{lost} pieces of records cannot be read.")
    notices.append(f"{len(spans)} keyword records are read. One without a NUL after it is read as one with the next.")
    return entries, sections, spans, notices


def _spans(data: mmap.mmap, section: Section | None, index_end: int) -> tuple[list[Span], int]:
    """Return where readable keyword records lie, and how many pieces are none."""
    if section is None:
        return [], 0
    pieces = [found.span() for found in _RECORD.finditer(data, section.first, section.last + 1)]
    kept = []
    for start, end in pieces:
        with suppress(UnicodeDecodeError):
            cut = section.padding == 0 and start == index_end  # what the index left of the first record
            if b"-" in data[start:end].replace(b"\xc0\x80", b"\0") and not cut:
                data[start:end].replace(b"\xc0\x80", b"\0").decode("utf-8")
                kept.append((start, end))
    return kept, len(pieces) - len(kept)


def walked(
    data: mmap.mmap, section: Section, dimensions: int, sign: str, path: Path
) -> tuple[NDArray[Any], list[Span]]:
    """Return the vectors of a section ``[records, dimensions]`` and where their contents lie.

    A record begins at a multiple of the padding after the first one, and its content ends before the first NUL.

    Raises
    ------
    FormatError
        There is no dash where these rules and the dimensions want one.
    """
    number = np.dtype(f"{sign}f{section.precision // 8}")
    width = dimensions * number.itemsize
    if dimensions < 1:
        raise InputError(f"dimensions must be 1 or more, not {dimensions}.")
    vectors, spans, place = [], [], section.first
    while place <= section.last:
        dash = place + width
        if dash > section.last or data[dash : dash + 1] != b"-":
            raise FormatError(
                f"{path}: there is no dash at offset {dash}, after a vector of {dimensions} numbers of "
                f"{section.precision} bits that begins at {place}. The dimensions are others, or the file is damaged."
            )
        found = data.find(b"\0", dash, section.last + 1)
        end = section.last + 1 if found < 0 else found
        vectors.append(np.frombuffer(data[place:dash], number))
        spans.append((dash + 1, end))
        place += ((end - place) // section.padding + 1) * section.padding
    return np.stack(vectors) if vectors else np.empty((0, dimensions), number), spans
