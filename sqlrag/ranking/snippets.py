"""The part of a text to show for a question: where most of what it asks for stands together."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlrag.visible import in_order, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Control characters, text direction overrides and lone surrogates: a document must not steer the terminal.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

# Where a line or a sentence begins.
_BEGINNING = re.compile(r"(?<=\n)|(?<=[.!?]\s)|(?<=[。！？])")

_MARKS = re.compile(r"(?:[#>]+(?:\s+|$))+")

_BARE = re.compile(r"[\s`*_#~\\]+")

_ROW_OF_TABLE = re.compile(r"\|(.+)\|")
_CELL_END = re.compile(r"(?<!\\)\|")
_CELL_OF_RULE = re.compile(r":?-+:?")
CELLS = " · "  # between the cells of a row


class WeighedWord(NamedTuple):
    """A place in a text, ``text[start:end]``, of a word that was asked for: what it counts as, and how much."""

    start: int
    end: int
    term: str
    weight: float


def clean(text: object) -> str:
    """Make one line of a text: no control characters, single spaces."""
    return " ".join(_UNPRINTABLE.sub(" ", str(text)).split())


def body_of(row: Mapping[str, Any]) -> str:
    """Return the text of a result as a reader sees it, without blank lines and the headings that are shown above it.

    Of tables the cells are left, without the signs between them.
    """
    titles = [_bare(title) for title in row.get("heading_path") or ()]
    text = str(row.get("text") or "")
    seen = visible(in_order(str(row.get("shown") or text), len(text)))
    lines = [clean(line) for line in seen.splitlines()]
    lines = [cells for cells in map(_cells, lines) if cells]
    start = 0
    while start < len(lines) and _is_title(_bare(lines[start]), titles):
        start += 1
    return "\n".join(lines[start:] or lines)


def _cells(line: str) -> str:
    """Return the cells of a row of a table, "" of the rule below its header, and any other line as it is."""
    row = _ROW_OF_TABLE.fullmatch(line)
    if row is None:
        return line
    cells = [cell.strip().replace("\\|", "|") for cell in _CELL_END.split(row[1])]
    return "" if all(map(_CELL_OF_RULE.fullmatch, cells)) else CELLS.join(filter(None, cells))


def _bare(text: object) -> str:
    return _BARE.sub(" ", clean(text)).strip()


def _is_title(line: str, titles: Iterable[str]) -> bool:
    return any(line == title or (title.endswith("…") and line.startswith(title[:-1])) for title in titles)


def snippet(text: str, words: Sequence[WeighedWord], columns: int) -> str:
    """Return so many columns of a text, those that hold most of the weight of the words, each counted once.

    Of several such parts it is the first. It begins with a line, a sentence or a word, never with the mark of a
    heading; an ellipsis stands where the text goes on. ``words`` are in the order of the text.
    """
    size = max(1, (columns - 2) * len(text) // max(1, columns_of(text)))
    start = 0 if columns_of(text) <= columns else _start(text, words, size)
    marks = _MARKS.match(text, start)
    start = marks.end() if marks and marks.end() < len(text) else start
    return cut(("…" if text[:start].strip("#> \n") else "") + text[start:], columns)


def _start(text: str, words: Sequence[WeighedWord], size: int) -> int:
    """Return where the part of so many characters begins."""
    held: Counter[str] = Counter()
    weights = {word.term: word.weight for word in words}
    best, first, last, right = 0.0, 0, 0, 0
    beginning = {word.term for word in words if word.end <= size}
    for left, word in enumerate(words):
        while right < len(words) and words[right].end <= max(word.start + size, word.end):
            held[words[right].term] += 1
            right += 1
        total = sum(weights[term] for term in sorted(held) if held[term])
        if total > best:
            best, first, last = total, left, right
        held[word.term] -= 1
    if best <= sum(weights[term] for term in sorted(beginning)):
        return 0
    begin, end = words[first].start, max(word.end for word in words[first:last])
    earliest = max(0, min(begin, end - size))
    borders = [found.start() for found in _BEGINNING.finditer(text, earliest, begin + 1)]
    if borders:
        return borders[-1]
    blank = re.compile(r"\s").search(text, max(earliest, begin - size // 6), begin)
    return blank.end() if blank else begin


def columns_of(text: str) -> int:
    """Count the columns of a terminal: 2 for a wide character (Han, Kana, Hangul), 0 for a combining one."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def fitting(text: str, columns: int) -> int:
    """Return how many characters of the text fit into so many columns."""
    for index, char in enumerate(text):
        columns -= columns_of(char)
        if columns < 0:
            return index
    return len(text)


def cut(text: str, columns: int) -> str:
    """Cut a text to so many columns, at a blank if there is one near the end, and say so by an ellipsis."""
    if fitting(text, columns) == len(text):
        return text
    end = fitting(text, columns - 1)
    near = re.compile(r"\s\S*$").search(text[: end + 1], end * 3 // 4)
    return text[: near.start() if near and near.start() else end].rstrip(" .,;:\n") + "…"
