"""What ordering candidates anew takes: a list that was checked, a total order, vectors of unit length."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import TYPE_CHECKING

import numpy as np

from sqlrag.errors import InputError
from sqlrag.options import items, shown
from sqlrag.retrieval.fusion import DECIMALS
from sqlrag.stopping import checkpoint
from sqlrag.store.vectors import as_numbers, unit_vectors
from sqlrag.types import Candidate, Candidates

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray

# The fields of a candidate that the blocks look at: the type, and whether it may be None.
_FIELDS: dict[str, tuple[type | tuple[type, ...], bool]] = {
    **dict.fromkeys(("doc_id", "node_id", "content"), (str, False)),
    **dict.fromkeys(("tags", "heading_path"), ((tuple, list), False)),
    "metadata": (Mapping, False),
    "chunk_index": (Integral, False),
    "score": (Real, False),
    **dict.fromkeys(("i_start", "i_end", "page"), (Integral, True)),
    **dict.fromkeys(("vector_score", "lexical_score"), (Real, True)),
}


def checked(candidates: Iterable[Candidate]) -> Candidates:
    """Return the candidates in a list of their own, with what is known of them (notices, timings, dropped ones).

    Raises
    ------
    InputError
        It is no list, or something in it is no :class:`sqlrag.types.Candidate` with fields of the right types.
    """
    given = items("candidates", candidates, "what retrieve returns")
    for candidate in given:
        checkpoint()
        if not isinstance(candidate, Candidate):
            raise InputError(f"candidates must be a list of Candidate, but one is a {type(candidate).__name__}.")
        for name, (kind, optional) in _FIELDS.items():
            value = getattr(candidate, name)
            if not isinstance(value, kind) and not (optional and value is None):
                raise InputError(f"Candidate {shown(candidate.node_id)}: {name} cannot be {shown(value)}.")
    return candidates.holding(given) if isinstance(candidates, Candidates) else Candidates(given)


def rounded(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores rounded to 9 decimals; numpy multiplies to round, which is too much for the largest numbers."""
    with np.errstate(over="ignore"):
        short = np.round(scores, DECIMALS)
    return np.where(np.isfinite(short), short, scores) + 0.0  # adding zero makes -0.0 a plain 0


def order_key(score: float, candidate: Candidate) -> tuple[float, str, int, str]:
    """Return what candidates are sorted by: the score from high to low, then doc_id, chunk_index and node_id."""
    return (-score, candidate.doc_id, candidate.chunk_index, candidate.node_id)


def unit_rows(vectors: ArrayLike, candidates: list[Candidate]) -> NDArray[np.float64]:
    """Return the candidates' vectors at unit length, ``[n, d] float64``, so that equal ones have a cosine of 1.

    Raises
    ------
    InputError
        They are no matrix with one row per candidate, or a row is zero or not finite.
    """
    array = as_numbers("vectors", vectors, np.float64)
    if array.ndim != 2 or len(array) != len(candidates) or array.shape[1] == 0:
        raise InputError(
            f"vectors must have one row per candidate, [{len(candidates)}, d], not the shape {list(array.shape)}."
        )
    names = [candidate.node_id for candidate in candidates]
    return _doubled(unit_vectors(array, array.shape[1], names))


def unit_row(name: str, vector: ArrayLike, dimensions: int) -> NDArray[np.float64]:
    """Return one vector, ``[d]`` or ``[1, d]``, at unit length, ``[d] float64``; InputError if it does not fit."""
    array = as_numbers(name, vector, np.float64)
    if array.shape not in ((dimensions,), (1, dimensions)):
        raise InputError(f"{name} must have the shape [{dimensions}] as the vectors have, not {list(array.shape)}.")
    row: NDArray[np.float64] = _doubled(unit_vectors(array.reshape(1, -1), dimensions, [name]))[0]
    return row


def _doubled(unit: NDArray[np.float32]) -> NDArray[np.float64]:
    rows = unit.astype(np.float64)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
