"""The citation markers of an answer: which sources it names, and whether there are such sources."""

from __future__ import annotations

import re
from typing import NamedTuple

# Code may hold brackets with numbers that cite nothing.
_CODE = re.compile(r"(`+)(?:(?!\1).)+?\1(?!`)", re.DOTALL)
_MARKER = re.compile(
    r"[\[【]\s*\^?(?:sources?\s*:?\s*)?(\d{1,4}(?:\s*(?:[,;&]|and|-|–)\s*\d{1,4})*)\s*[\]】]", re.IGNORECASE
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
        number for marker in _MARKER.finditer(_CODE.sub(" ", text)) for number in _numbers(marker.group(1))
    )
    return Citations(
        [number for number in numbers if 1 <= number <= sources],
        [number for number in numbers if not 1 <= number <= sources],
    )


def _numbers(inside: str) -> list[int]:
    numbers: list[int] = []
    for part in re.split(r"\s*(?:[,;&]|and)\s*", inside, flags=re.IGNORECASE):
        span = _RANGE.fullmatch(part.strip())
        first, last = (int(span[1]), int(span[2])) if span else (int(re.findall(r"\d+", part)[0]), 0)
        numbers += (
            range(first, last + 1) if first < last <= first + _LONGEST_RANGE else [first, *([last] if last else [])]
        )
    return numbers
