"""The citation markers of an answer: which sources it names, and whether there are such sources."""

from __future__ import annotations

import re
from typing import NamedTuple

_TICKS = re.compile("`+")
_BLANK = r"\s{0,3}"
_MARKER = re.compile(
    rf"[\[【]{_BLANK}\^?(?:sources?{_BLANK}:?{_BLANK})?"
    rf"(\d{{1,4}}(?:{_BLANK}(?:[,;&]|and|-|–){_BLANK}\d{{1,4}}){{0,20}}){_BLANK}[\]】]",
    re.IGNORECASE,
)
_RANGE = re.compile(r"(\d+)\s*[-–]\s*(\d+)")
_LONGEST_RANGE = 50


class Citations(NamedTuple):
    """The numbers that an answer cites, each once, in the order of their first markers."""

    known: list[int]
    unknown: list[int]


def citations_of(text: str, sources: int) -> Citations:
    """Return which of the sources, numbered from 1, a text cites, and which numbers it cites that are none of them.

    Markers are ``[1]``, ``[1, 3]``, ``[2-4]``, ``[Source 1]`` and ``【1】``; in code there are none.

    Examples
    --------
    >>> citations_of("Open it [1]. Then [2, 7] `list[3]`, again [1].", sources=3)
    Citations(known=[1, 2], unknown=[7])
    """
    numbers = dict.fromkeys(
        number for marker in _MARKER.finditer(_without_code(text)) for number in _numbers(marker.group(1))
    )
    return Citations(
        [number for number in numbers if 1 <= number <= sources],
        [number for number in numbers if not 1 <= number <= sources],
    )


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
    numbers: list[int] = []
    for part in re.split(r"\s*(?:[,;&]|and)\s*", inside, flags=re.IGNORECASE):
        span = _RANGE.fullmatch(part.strip())
        first, last = (int(span[1]), int(span[2])) if span else (int(re.findall(r"\d+", part)[0]), 0)
        numbers += (
            range(first, last + 1) if first < last <= first + _LONGEST_RANGE else [first, *([last] if last else [])]
        )
    return numbers
