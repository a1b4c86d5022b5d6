"""The citation markers of an answer: which sources it names, and whether there are such sources."""

from __future__ import annotations

import re
from typing import NamedTuple

_TICKS = re.compile("`+")
_FENCE = re.compile(r"[ \t>]*(`{3,}(?=[^`]*$)|~{3,})")
_BLANK_LINE = re.compile(r"\n[ \t]*\n")
_BRACKETS = re.compile(r"[\[【]([^\[\]【】]+)[\]】]")
_NUMBER = r"(?:(?:sources?|documents?|docs?|references?|refs?) ?:? ?)?#?\d{1,9}"
_BETWEEN = r" ?(?:[,;&] ?(?:and |or )?|and |or |to |[-–—] ?)"
# With one blank at most between two parts, so that no stretch of a text can be read in many ways.
_MARKER = re.compile(rf"\^?({_NUMBER}(?:{_BETWEEN}{_NUMBER})* ?)(?:†.*)?", re.IGNORECASE)
_TOKEN = re.compile(r"\d+|to |[-–—]", re.IGNORECASE)
_LONGEST_RANGE = 50


class Citations(NamedTuple):
    """The numbers that an answer cites, each once, in the order of their first markers."""

    known: list[int]
    unknown: list[int]


def citations_of(text: str, sources: int) -> Citations:
    """Return which of the sources, numbered from 1, a text cites, and which numbers it cites that are none of them.

    A marker is a pair of ``[]`` or ``【】`` with nothing in it but numbers of up to nine digits, such as ``[1]``,
    ``[^1]``, ``[#1]``, ``[Source 1]`` (also document, doc, reference, ref) or ``【1†source】``; several are parted by
    ``,``, ``;``, ``&``, "and" or "or". A dash or "to" between two is a range, with all numbers in it where it goes up
    by 50 at most, else with both ends. In code, between backticks or fences, there are none.

    Examples
    --------
    >>> citations_of("Open it [1]. Then [2, 7] `list[3]`, again [1].", sources=3)
    Citations(known=[1, 2], unknown=[7])
    >>> citations_of("[Source 1, source 3] [4 to 6]", sources=9).known
    [1, 3, 4, 5, 6]
    """
    numbers = dict.fromkeys(
        number
        for paragraph in _BLANK_LINE.split(_without_fences(text))
        for inside in _BRACKETS.findall(_without_code(paragraph))
        for number in _numbers(" ".join(inside.split()))
    )
    return Citations(
        [number for number in numbers if 1 <= number <= sources],
        [number for number in numbers if not 1 <= number <= sources],
    )


def _without_fences(text: str) -> str:
    """Return a text without blocks of code between fences; one that is not closed goes to the end."""
    kept, fence = [], ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
                fence = ""
        elif mark:
            fence = mark[1]
            kept += ["", ""]
        else:
            kept.append(line)
    return "\n".join(kept)


def _without_code(text: str) -> str:
    """Return a text without what stands between two runs of backticks of one length: brackets there cite nothing."""
    runs = list(_TICKS.finditer(text))
    closing: dict[int, list[int]] = {}
    for place in reversed(range(len(runs))):
        closing.setdefault(len(runs[place][0]), []).append(place)
    kept, position, place = [], 0, 0
    while place < len(runs):
        later = closing[len(runs[place][0])]
        while later and later[-1] <= place:
            later.pop()
        if later:
            kept.append(text[position : runs[place].start()])
            place = later[-1]
            position = runs[place].end()
        place += 1
    return " ".join([*kept, text[position:]])


def _numbers(inside: str) -> list[int]:
    """Return the numbers of a marker, none where it is something else."""
    marker = _MARKER.fullmatch(inside)
    numbers: list[int] = []
    is_range = False
    for token in _TOKEN.findall(marker[1]) if marker else ():
        if not token.isdigit():
            is_range = True
            continue
        number = int(token)
        first = numbers[-1] + 1 if is_range else number
        numbers += range(first, number) if first < number <= first + _LONGEST_RANGE else ()
        numbers.append(number)
        is_range = False
    return numbers
