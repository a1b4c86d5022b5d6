"""Texts that share the room of one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def shares(lengths: Sequence[int], room: int) -> list[int]:
    """Return how much of each text fits, so that all take at most ``room`` characters.

    Each gets an equal part; what short ones leave goes to the longer ones.

    Examples
    --------
    >>> shares([10, 500, 300], 400), shares([10, 20], 400)
    ([10, 195, 195], [10, 20])
    """
    given = [0] * len(lengths)
    shortest_first = sorted(range(len(lengths)), key=lengths.__getitem__)
    for left, place in enumerate(shortest_first):
        given[place] = min(lengths[place], room // (len(lengths) - left))
        room -= given[place]
    return given
