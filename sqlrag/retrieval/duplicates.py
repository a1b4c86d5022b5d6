"""Leave out candidates that say the same as a better one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sqlrag.errors import InputError
from sqlrag.options import number
from sqlrag.retrieval.ordering import checked, rounded, unit_rows
from sqlrag.retrieval.words import words_of
from sqlrag.stopping import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

    from sqlrag.types import Candidate, Candidates

_SHINGLE = 3  # words


def drop_near_duplicates(
    candidates: Sequence[Candidate], *, threshold: float | None = None, vectors: ArrayLike | None = None
) -> Candidates:
    """Leave out every candidate that is nearly the same as a better one; pure, and twice is the same as once.

    Two are the same if their contents differ in blank space and case only, and, with a ``threshold``, if their
    similarity reaches it: the cosine of their vectors where these are given, else the share of runs of three words
    that they have in common (Jaccard). Each candidate is compared with those that were kept, all of them against each
    other in the worst case: some hundred candidates are fine, many thousand are not.

    Parameters
    ----------
    candidates
        Best first.
    threshold
        Above 0, up to 1. None leaves out exact repeats only.
    vectors
        ``[n, d] float32``, row i for candidate i, of any length but zero; needs a ``threshold``. Cosines of real models
        are high by themselves: texts of one subject may have .9 without repeating each other.

    Returns
    -------
    Candidates
        Those that were kept, unchanged, in the order they had, with the ``.notices`` and ``.timings`` they came with.
        ``.dropped`` names the others: the ``node_id`` of the best one that each is the same as, to a list of theirs in
        the order they had.

    Raises
    ------
    InputError
        The threshold is out of its range, or the vectors do not fit, are zero or not finite.

    References
    ----------
    Broder: On the resemblance and containment of documents, SEQUENCES 1997, for the share of common shingles.

    Examples
    --------
    >>> from sqlrag.types import Candidate
    >>> found = [Candidate("a.md", 0, "Hello  world"), Candidate("b.md", 0, "hello world"), Candidate("c.md", 0, "Hi")]
    >>> kept = drop_near_duplicates(found)
    >>> [candidate.node_id for candidate in kept], kept.dropped
    (['a.md#0', 'c.md#0'], {'a.md#0': ['b.md#0']})
    """
    before = checked(candidates)
    threshold = None if threshold is None else number("threshold", threshold, 0, 1)
    if threshold == 0:
        raise InputError("threshold must be above 0; None leaves out exact repeats only.")
    if vectors is not None and threshold is None:
        raise InputError("vectors are compared by a threshold: pass threshold=0.95, for instance.")
    if threshold is None or not before:
        similar: Callable[[int, int], bool] | None = None
    else:
        similar = _by_words(before, threshold) if vectors is None else _by_cosine(before, vectors, threshold)

    kept: list[int] = []
    dropped: dict[str, list[str]] = {}
    keeper_of: dict[str, int] = {}
    for i, candidate in enumerate(before):
        checkpoint()
        key = " ".join(candidate.content.split()).casefold()
        keeper = keeper_of.get(key)
        if keeper is None and similar is not None:
            keeper = next((other for other in kept if similar(other, i)), None)
        if keeper is None:
            kept.append(i)
        else:
            dropped.setdefault(before[keeper].node_id, []).append(candidate.node_id)
        keeper_of.setdefault(key, i if keeper is None else keeper)
    distinct = before.holding(before[i] for i in kept)
    distinct.dropped = _joined(before.dropped, dropped)
    return distinct


def _joined(earlier: dict[str, list[str]], new: dict[str, list[str]]) -> dict[str, list[str]]:
    """Add to what was dropped before; what such a one stood for goes to the one that stands for it now."""
    joined = {kept: list(others) for kept, others in earlier.items()}
    for kept, others in new.items():
        for other in others:
            joined.setdefault(kept, []).extend([other, *joined.pop(other, [])])
    return joined


def _by_cosine(candidates: Candidates, vectors: ArrayLike, threshold: float) -> Callable[[int, int], bool]:
    unit = unit_rows(vectors, candidates)
    # By rows: all the cosines together take eight times as much memory as what is asked of them.
    near = np.concatenate([rounded(unit[i : i + 256] @ unit.T) >= threshold for i in range(0, len(unit), 256)])
    return lambda i, j: bool(near[i, j])


def _by_words(candidates: Candidates, threshold: float) -> Callable[[int, int], bool]:
    shingles = [_shingles(words) for words in words_of([candidate.content for candidate in candidates])]

    def similar(i: int, j: int) -> bool:
        fewer, more = sorted((shingles[i], shingles[j]), key=len)
        if not fewer or len(fewer) < threshold * len(more):  # more than all of the fewer they cannot share
            return False
        common = len(fewer & more)
        return common >= threshold * (len(fewer) + len(more) - common)

    return similar


def _shingles(words: Sequence[str]) -> set[tuple[str, ...]]:
    """Return the runs of three words; a shorter text is one run."""
    if not words:
        return set()
    return {tuple(words[i : i + _SHINGLE]) for i in range(max(1, len(words) - _SHINGLE + 1))}
