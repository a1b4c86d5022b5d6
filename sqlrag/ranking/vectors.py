"""Vectors on their way into a file: checked, brought to unit length, and their signs packed into 128-bit words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sqlrag.errors import InputError, ModelMismatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from sqlrag.types import Vectors

_NO_NUMBERS = "cmMSTU"  # kinds of numpy that it would turn into floats: complex numbers, times, texts


def unit_vectors(vectors: ArrayLike, dimensions: int, names: Sequence[str] = ()) -> Vectors:
    """Return the rows at unit length.

    Parameters
    ----------
    vectors
        ``[n, dimensions]``, any float type.
    dimensions
        The number of dimensions of the file.
    names
        What the rows are called in messages.

    Returns
    -------
        ``[n, dimensions] float32``, unit norm.

    Raises
    ------
    ModelMismatchError
        The rows have another length.
    InputError
        They are no matrix, or a row is zero or not finite.
    """
    array = as_numbers("Vectors", vectors)
    if array.ndim != 2:
        raise InputError(f"Vectors must be a matrix [n, {dimensions}], not an array of shape {array.shape}.")
    if array.shape[1] != dimensions:
        raise ModelMismatchError(
            f"The file holds vectors of {dimensions} dimensions; you passed {array.shape[1]}. Use the model that the "
            "file was built with, or prepare a new file with the other one."
        )
    norms = np.sqrt(np.einsum("ij,ij->i", array, array, dtype=np.float64))
    bad = np.flatnonzero(~np.isfinite(norms) | (norms < 1e-12))
    if len(bad):
        row = int(bad[0])
        name = f" ({names[row]})" if names else ""
        what = (
            "zero"
            if norms[row] == 0
            else "not finite"
            if not np.isfinite(norms[row])
            else "too short to have a direction"
        )
        raise InputError(
            f"Vector {row}{name} is {what}; {len(bad)} of {len(array)} are unusable. Embed these texts again."
        )
    unit: Vectors = (array / norms[:, None]).astype(np.float32)
    return unit


def unit_vector(vector: ArrayLike, dimensions: int) -> NDArray[np.float32]:
    """Return one vector, ``[dimensions]`` or ``[1, dimensions]``, as ``[dimensions] float32`` of unit norm."""
    row: NDArray[np.float32] = unit_vectors(_one_row(vector, dimensions), dimensions)[0]
    return row


def checked_vector(vector: ArrayLike, dimensions: int) -> NDArray[np.float32]:
    """Return one vector as ``[dimensions] float32``, with the length it has, or raise as :func:`unit_vectors` does.

    The macros divide by the length, in DOUBLE: a vector that was scaled to float32 before would give other scores.
    """
    array = _one_row(vector, dimensions)
    unit_vectors(array, dimensions)
    row: NDArray[np.float32] = array[0]
    return row


def _one_row(vector: ArrayLike, dimensions: int) -> NDArray[np.float32]:
    array = as_numbers("Vectors", vector)
    if array.ndim == 2 and len(array) != 1:
        raise InputError(
            f"One vector is wanted, not {len(array)}: an array of shape [{dimensions}] or [1, {dimensions}]."
        )
    return array.reshape(1, -1) if array.ndim == 1 else array


def as_numbers(name: str, values: ArrayLike, dtype: type[np.floating[Any]] = np.float32) -> NDArray[Any]:
    """Return real numbers as an array; what is too large for its type becomes infinite, to be refused as not finite."""
    try:
        with np.errstate(over="ignore"):
            array = np.asarray(values)
            if array.dtype.kind in _NO_NUMBERS:
                raise TypeError(f"{array.dtype} is no type of real numbers")
            return array.astype(dtype, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        reason = f": {error}" if isinstance(values, np.ndarray) else ""  # of lists it says nothing to who sent them
        raise InputError(f"{name} must be numbers in rows of equal length{reason}.") from error


def sign_words(vectors: Vectors) -> list[tuple[NDArray[np.int64], NDArray[np.uint64]]]:
    """Return the signs of ``[n, dimensions]``, 128 dimensions to a word: for each word its upper and its lower half.

    A dimension of zero or more is a 1; the first dimension is the highest bit of the first word; missing ones are 0.
    The upper half is signed: a word is the HUGEINT ``upper * 2**64 + lower``.
    """
    return _packed(vectors >= 0)


class QueryCode(NamedTuple):
    """What the first stage of a search compares the signs of every chunk with, in words of 128 bits.

    ``signs`` are the query's; ``low`` and ``high`` hold the two bits of each dimension's weight.
    """

    signs: list[int]
    low: list[int]
    high: list[int]


def query_code(vector: NDArray[np.float32]) -> QueryCode:
    """Return the code of a query, ``[dimensions] float32``.

    A dimension weighs 0 to 3 by how far the query is from zero in it: the borders are at 20, 60 and 85 of 100
    dimensions. ``vector_query.sql`` does the same in SQL.
    """
    flags = (vector >= 0, *query_weights(vector))
    return QueryCode(*([(int(high[0]) << 64) + int(low[0]) for high, low in _packed(f.reshape(1, -1))] for f in flags))


def query_weights(vector: NDArray[np.float32]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the lower and the higher bit of what each dimension of a query weighs, see :func:`query_code`."""
    sizes = np.abs(vector)
    one, two, three = (np.sort(sizes)[len(sizes) * percent // 100] for percent in (20, 60, 85))
    return (sizes >= one) & ((sizes < two) | (sizes >= three)), sizes >= two


def _packed(flags: NDArray[np.bool_]) -> list[tuple[NDArray[np.int64], NDArray[np.uint64]]]:
    bits = np.packbits(flags, axis=1)
    padded = np.zeros((len(bits), -(-bits.shape[1] // 16) * 16), dtype=np.uint8)
    padded[:, : bits.shape[1]] = bits
    halves = padded.view(">u8").astype(np.uint64)
    return [
        (np.ascontiguousarray(halves[:, i]).view(np.int64), np.ascontiguousarray(halves[:, i + 1]))
        for i in range(0, halves.shape[1], 2)
    ]
