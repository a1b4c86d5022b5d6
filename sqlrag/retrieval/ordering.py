"""What ordering candidates anew takes: a list that was checked, a total order, vectors of unit length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sqlrag.errors import InputError
from sqlrag.options import items
from sqlrag.store.vectors import unit_vectors
from sqlrag.types import Candidate, Candidates

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray


def checked(candidates: Iterable[Candidate]) -> Candidates:
    """Return the candidates in a list of their own, with what is known of them (notices, timings, dropped ones).

    Raises
    ------
    InputError
        It is no list, or something in it is no :class:`sqlrag.types.Candidate`.
    """
    given = items("candidates", candidates, "what retrieve returns")
    listed = candidates.holding(given) if isinstance(candidates, Candidates) else Candidates(given)
    wrong = next((item for item in listed if not isinstance(item, Candidate)), None)
    if wrong is not None:
        raise InputError(f"candidates must be a list of Candidate, but one is a {type(wrong).__name__}.")
    return listed


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
    array = _as_array("vectors", vectors)
    if array.ndim != 2 or len(array) != len(candidates) or array.shape[1] == 0:
        raise InputError(
            f"vectors must have one row per candidate, [{len(candidates)}, d], not the shape {list(array.shape)}."
        )
    names = [candidate.node_id for candidate in candidates]
    return _doubled(unit_vectors(array, array.shape[1], names))


def unit_row(name: str, vector: ArrayLike, dimensions: int) -> NDArray[np.float64]:
    """Return one vector, ``[d]`` or ``[1, d]``, at unit length, ``[d] float64``; InputError if it does not fit."""
    array = _as_array(name, vector)
    if array.shape not in ((dimensions,), (1, dimensions)):
        raise InputError(f"{name} must have the shape [{dimensions}] as the vectors have, not {list(array.shape)}.")
    row: NDArray[np.float64] = _doubled(unit_vectors(array.reshape(1, -1), dimensions, [name]))[0]
    return row


def _as_array(name: str, values: ArrayLike) -> NDArray[np.float64]:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers in rows of equal length: {error}.") from error


def _doubled(unit: NDArray[np.float32]) -> NDArray[np.float64]:
    rows = unit.astype(np.float64)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
