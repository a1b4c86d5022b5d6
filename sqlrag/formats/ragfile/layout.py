"""The bytes of a RAGFile v0.1.0: header, index of strategies, section headers, and the encoding of texts in records."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Literal, NamedTuple

from sqlrag.errors import FormatError, InputError

if TYPE_CHECKING:
    import mmap
    from pathlib import Path

MAGIC = b"RAGFILE"

VERSION = (0, 1, 0)

HEADER = struct.Struct("7s3BB")  # magic, version, byte order: 1 big, 0 little

PADDINGS = (4, 8, 16)

PRECISIONS = (16, 32)

KEYWORD, VECTOR, OURS = "keyword", "vector", "sqlrag"

# Names of vector sections: the specification's example uses vector, its text embedding.
_VECTOR_NAMES = (VECTOR, "embedding")

ByteOrder = Literal["little", "big"]

# The specification ends a record at a NUL, and a keyword at the first dash.
_NUL = b"\xc0\x80"

_ENTRY = re.compile(rb"([^\x00]{1,255}?)-\((\d{1,20}),(\d{1,20})\)(?=\x00)")

_MOST_INDEX = 8192


class Section(NamedTuple):
    """A section: its first and last byte, those of its records (``last`` is ``first - 1`` without records).

    ``precision`` is 0 for keywords. ``padding`` is 0 if it is unknown.
    """

    name: str
    start: int
    end: int
    first: int
    last: int
    padding: int
    precision: int = 0


def mark(byte_order: ByteOrder) -> str:
    """Return the sign of a byte order in struct and numpy."""
    return ">" if byte_order == "big" else "<"


def check_choices(precision: int, byte_order: str, padding: int) -> None:
    """Raise InputError unless the version of the format allows these choices."""
    for name, value, valid in (
        ("precision", precision, PRECISIONS),
        ("byte_order", byte_order, ("little", "big")),
        ("padding", padding, PADDINGS),
    ):
        if value not in valid:
            raise InputError(f"{name} must be one of {', '.join(map(repr, valid))}, not {value!r}.")


# Records.


def packed_text(text: str) -> bytes:
    """Return a text as the content of a record: UTF-8, with C0 80 for NUL, which is not valid UTF-8 otherwise."""
    return text.encode("utf-8").replace(b"\0", _NUL)


def unpacked_text(content: bytes) -> str:
    """Return the text of a record, or raise UnicodeDecodeError."""
    return content.replace(_NUL, b"\0").decode("utf-8")


def packed_keyword(keyword: str) -> bytes:
    """Return a keyword with dash, NUL and percent sign as %2D, %00 and %25."""
    return keyword.replace("%", "%25").replace("-", "%2D").replace("\0", "%00").encode("utf-8")


def unpacked_keyword(packed: bytes) -> str:
    """Return the keyword of a record, or raise UnicodeDecodeError."""
    return packed.decode("utf-8").replace("%00", "\0").replace("%2D", "-").replace("%25", "%")


def padded(record: bytes, padding: int) -> bytes:
    """Return a record with 1 to ``padding`` NULs after it, up to a multiple of it."""
    return record + bytes(padding - len(record) % padding)


# Header and index.


def read_header(data: mmap.mmap, path: Path) -> ByteOrder:
    """Return the byte order that the header names.

    Raises
    ------
    FormatError
        It is not a RAGFile, or one of another version.
    """
    if len(data) < HEADER.size or data[: len(MAGIC)] != MAGIC:
        raise FormatError(f"{path} is not a RAGFile: it does not begin with RAGFILE (offset 0).")
    _, *version, order = HEADER.unpack(data[: HEADER.size])
    if tuple(version) != VERSION:
        raise FormatError(
            f"{path} is a RAGFile of version {'.'.join(map(str, version))} (offset 7); this sqlrag reads 0.1.0."
        )
    if order > 1:
        raise FormatError(f"{path}: the byte order is {order} (offset 10); it must be 0 (little) or 1 (big).")
    return "big" if order else "little"


def read_index(data: mmap.mmap, path: Path) -> tuple[dict[str, tuple[int, int]], int]:
    """Return the first and last byte of each strategy's section, and the offset of the first byte after the index.

    Raises
    ------
    FormatError
        The index cannot be read.
    """
    head = data[: HEADER.size + _MOST_INDEX]
    entries: dict[str, tuple[int, int]] = {}
    place = HEADER.size
    while (found := _ENTRY.match(head, place)) is not None:
        name = found[1].decode("utf-8", "backslashreplace")
        if name in entries:
            raise FormatError(f"{path}: the strategy {name!r} is in the index twice (offset {place}).")
        entries[name] = int(found[2]), int(found[3])
        place = found.end() + 1
    first = min((start for start, _ in entries.values()), default=len(data))
    if head[place : place + 1] not in (b"\0", b"") and place < first:
        raise FormatError(
            f"{path}: the index of strategies cannot be read from offset {place} on; an entry is "
            "name-(first byte,last byte) and a NUL. The file was edited or cut."
        )
    return entries, place


def check_bounds(entries: dict[str, tuple[int, int]], index_end: int, size: int, path: Path) -> None:
    """Raise FormatError if sections overlap the index or each other, or reach beyond the end of the file."""
    ordered = sorted(entries.items(), key=lambda entry: entry[1])
    for place, (name, (start, end)) in enumerate(ordered):
        if start < index_end:
            raise FormatError(
                f"{path}: the index of strategies (offset {HEADER.size} to {index_end - 1}) overlaps the section "
                f"{name!r}, which begins at {start}. Its writer reserved no space for the index, so the header of the "
                "section and the beginning of its first record are lost. RAGFile(path, salvage=True) reads the rest."
            )
        limit = ordered[place + 1][1][0] if place + 1 < len(ordered) else size
        if end < start or end > limit:
            what = "beyond the file's end" if limit == size else f"into the next one, which begins at {limit}"
            raise FormatError(
                f"{path}: the section {name!r} has the offsets {start} to {end}, {what} ({size} bytes). The file "
                "is truncated or was edited. RAGFile(path, salvage=True) reads what remains."
            )


def read_sections(
    data: mmap.mmap, entries: dict[str, tuple[int, int]], order: ByteOrder, path: Path
) -> dict[str, Section]:
    """Return the keyword and the vector section, if they exist.

    Raises
    ------
    FormatError
        The header of a section is not valid.
    """
    sections = {}
    for name, (start, end) in entries.items():
        if name == KEYWORD or name in _VECTOR_NAMES:
            kind = KEYWORD if name == KEYWORD else VECTOR
            if kind in sections:
                raise FormatError(f"{path}: the index names two sections of vectors. Remove one.")
            limit = min([other for other, _ in entries.values() if other > start], default=len(data))
            # Some writers give the byte after the last one.
            sections[kind] = _read_section(data, kind, start, end - (end == limit), order, path)
    return sections


def _read_section(data: mmap.mmap, kind: str, start: int, end: int, order: ByteOrder, path: Path) -> Section:
    form = section_header(kind, order)
    # The specification's index points at the header of a section, its reference writer's at the first record.
    for place in (start, start - form.size):
        if place < HEADER.size or place + form.size > len(data):
            continue
        *precision, first, last, padding = form.unpack(data[place : place + form.size])
        last -= last == end + 1
        fits = place + form.size <= first <= last + 1 and last <= end and padding in PADDINGS
        if fits and (not precision or precision[0] in PRECISIONS) and (place == start or first == start):
            return Section(kind, place, end, first, last, padding, *precision)
    raise FormatError(
        f"{path}: the header of the section {kind!r} (offset {start}) is not valid: first and last byte of its "
        f"records must be in the section ({start} to {end}), the padding must be 4, 8 or 16, the precision 16 or 32. "
        "RAGFile(path, salvage=True) reads what remains."
    )


def section_header(kind: str, order: ByteOrder) -> struct.Struct:
    """Return the form of a section's header: precision for vectors, first byte, last byte, padding."""
    return struct.Struct(mark(order) + ("QQB" if kind == KEYWORD else "BQQB"))
