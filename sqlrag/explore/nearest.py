"""Finds pairs of near vectors: blocks of products in float32 choose them, scores in float64 order them."""

from __future__ import annotations

import hashlib
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sqlrag.cancellation import checkpoint
from sqlrag.errors import InputError
from sqlrag.explore.map import k_means

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from numpy.typing import NDArray

    from sqlrag.types import Vectors

    Ids: TypeAlias = NDArray[np.int64]
    # Places of left and of right vectors, and their products.
    Tiles: TypeAlias = Iterator[tuple[Ids, Ids, NDArray[np.float32]]]

_LEFT, _RIGHT = 1024, 8192  # vectors of a block of products, which is 32 MB

_PENDING = 1 << 21  # pairs that are kept before those that cannot be among the nearest are dropped

_GROUP = 16  # products of which the greatest is taken first

_NUMBERS = 1 << 20  # of vectors read at a time for exact scores: 16 MB in float64, on both sides

MOST_PAIRS = 20_000_000

_SAMPLE = 16_384  # vectors that axes and cells are computed from

_HEAD = 48  # principal components of a first bound

_SELECTIVE = 2e-4  # share of pairs from which on the bound saves nothing

_WORTH = 100_000_000  # pairs, fewer of which are compared at once

_SLACK_OF_SHORT = 5e-6

_BLOCK = 8192  # vectors converted to float64 at a time: 25 MB at 384 dimensions

_ROUNDS = 10  # of k-means for the cells


class Pairs(NamedTuple):
    """Pairs of places in the left and the right vectors, with their cosines: float64, rounded to 9 decimals."""

    left: Ids
    right: Ids
    scores: NDArray[np.float64]


class Distinct(NamedTuple):
    """Vectors without repetitions.

    ``vectors`` are the different ones in the order of their first copies, ``of_row`` is the place of each row's vector
    among them, ``rows`` are all rows ordered by that place, and ``starts`` is where those of each place begin.
    """

    vectors: Vectors
    of_row: Ids
    rows: Ids
    starts: Ids

    @classmethod
    def of(cls, vectors: Vectors) -> Distinct:
        """Return the different ones of ``[n, dimensions]``."""
        seen: dict[bytes, int] = {}
        digests = (hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in vectors)
        of_row = np.fromiter((seen.setdefault(digest, len(seen)) for digest in digests), np.int64, len(vectors))
        rows = np.argsort(of_row, kind="stable")
        starts = np.searchsorted(of_row[rows], np.arange(len(seen) + 1))
        return cls(vectors if len(seen) == len(vectors) else vectors[rows[starts[:-1]]], of_row, rows, starts)


def nearest(left: Vectors, right: Vectors, k: int, threshold: float, probes: int | None) -> Pairs:
    """Return the ``k`` nearest right vectors of each left one whose cosine is at least ``threshold``.

    ``probes`` is how many cells of the right vectors are searched for a left one, see :func:`_cells`; None: all vectors
    are compared. Pairs are ordered by the left place, the highest score and the right place.
    """
    copies = Distinct.of(right)
    found = _search(left, copies.vectors, min(k, len(copies.vectors)), threshold, probes)
    # A vector of several rows gives a pair for each of them, k at most.
    counts = np.minimum(np.diff(copies.starts)[found.right], k)
    first = np.repeat(copies.starts[found.right], counts)
    offset = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
    whole = Pairs(np.repeat(found.left, counts), copies.rows[first + offset], np.repeat(found.scores, counts))
    return _best(whole, k)


def near(vectors: Vectors, threshold: float, probes: int | None) -> Pairs:
    """Return all pairs of different places, the lower one left, whose cosine is at least ``threshold``."""
    return _search(vectors, None, None, threshold, probes)


def _best(pairs: Pairs, k: int | None) -> Pairs:
    """Order pairs by left, score and right, and keep the first ``k`` of each left one."""
    order = np.lexsort((pairs.right, -pairs.scores, pairs.left))
    left, right, scores = pairs.left[order], pairs.right[order], pairs.scores[order]
    if k is not None and len(left):
        begins = np.flatnonzero(np.r_[True, left[1:] != left[:-1]])
        kept = np.arange(len(left)) - np.repeat(begins, np.diff(np.r_[begins, len(left)])) < k
        left, right, scores = left[kept], right[kept], scores[kept]
    return Pairs(left, right, scores)


def _search(left: Vectors, right: Vectors | None, k: int | None, threshold: float, probes: int | None) -> Pairs:
    """Return pairs; ``right`` None: those within ``left``. ``k`` None: all from the threshold on."""
    others = left if right is None else right
    if not len(left) or not len(others):
        return Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    heads = None if probes is not None else _heads(left, others, threshold)
    if heads is not None:
        chosen = _Chosen(len(left), None, threshold, heads[0].shape[1])
        tiles = _tiles(*heads, within=right is None)
    else:
        chosen = _Chosen(len(left), k, threshold, left.shape[1])
        tiles = _tiles(left, others, within=right is None) if probes is None else _tiles_of_cells(left, others, probes)
    for own, other, products in tiles:
        checkpoint()
        one, two, values = chosen.of(own, other, products)
        if right is None:  # a row is no pair with itself; in cells a pair is found from both sides
            kept = one < two if probes is None else one != two
            one, two, values = one[kept], two[kept], values[kept]
        chosen.keep(one, two, values)
    one, two = chosen.pairs()
    if right is None and probes is not None:
        one, two = np.unique(np.stack([np.minimum(one, two), np.maximum(one, two)]), axis=1)
    scores = _scores(left, others, one, two)
    kept = scores >= threshold
    return _best(Pairs(one[kept], two[kept], scores[kept]), k)


class _Chosen:
    """Pairs that may be among those that are wanted, chosen by products of vectors of so many numbers in float32.

    The error of a product is at most the number of its terms times 2**-24 (Higham: Accuracy and Stability of Numerical
    Algorithms, 2002, section 3.1), whatever the order of the sum; so no pair is missed that is wanted by exact scores.
    """

    def __init__(self, lefts: int, k: int | None, threshold: float, terms: int) -> None:
        self.k = k
        self.slack = 1.1 * terms * 2**-24 + 2e-7
        self.low = np.full(lefts, threshold - self.slack, np.float32)
        self.top = np.full((lefts, k or 0), -np.inf, np.float32)
        self.found: list[tuple[Ids, Ids, NDArray[np.float32]]] = []
        self.pending, self.limit = 0, _PENDING

    def of(self, own: Ids, other: Ids, products: NDArray[np.float32]) -> tuple[Ids, Ids, NDArray[np.float32]]:
        """Return the pairs of a block that may be wanted: left, right and product."""
        if self.k is not None:
            self.top[own] = _greatest(np.concatenate([self.top[own], _greatest(products, self.k)], axis=1), self.k)
            self.low[own] = np.maximum(self.low[own], self.top[own].min(axis=1) - np.float32(2 * self.slack))
        rows, places = np.divmod(np.flatnonzero(products >= self.low[own][:, None]), products.shape[1])
        return own[rows], other[places], products[rows, places]

    def keep(self, one: Ids, two: Ids, products: NDArray[np.float32]) -> None:
        """Keep pairs until all blocks are read."""
        self.found.append((one, two, products))
        self.pending += len(one)
        if self.pending > self.limit:
            self._drop()

    def _drop(self) -> None:
        """Drop what cannot be wanted any more."""
        one, two, products = (np.concatenate(column) for column in zip(*self.found, strict=True))
        kept = products >= self.low[one]
        self.found = [(one[kept], two[kept], products[kept])]
        self.pending = len(self.found[0][0])
        if self.pending > MOST_PAIRS:
            raise InputError(
                f"More than {MOST_PAIRS:,} pairs would be found. Raise the threshold, lower k, or take a part of the "
                "rows."
            )
        self.limit = max(_PENDING, 2 * self.pending)

    def pairs(self) -> tuple[Ids, Ids]:
        """Return the pairs."""
        self._drop()
        return self.found[0][0], self.found[0][1]


def _greatest(products: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    """Return ``k`` products of each row, or all: the greatest of groups, so that the least is one of the greatest k."""
    width = products.shape[1]
    if width >= 4 * _GROUP * k:  # a pass of maxima takes a tenth of the time of a partition
        size = width // _GROUP
        maxima = products[:, :size].copy()
        for start in range(size, _GROUP * size, size):
            np.maximum(maxima, products[:, start : start + size], out=maxima)
        products, width = maxima, size
    return products if width <= k else np.partition(products, width - k, axis=1)[:, width - k :]


def _scores(left: Vectors, right: Vectors, one: Ids, two: Ids) -> NDArray[np.float64]:
    """Return the cosines of pairs: sums in float64 in a fixed order, so that threads do not matter."""
    scores = np.empty(len(one))
    step = max(1, _NUMBERS // left.shape[1])
    for start in range(0, len(one), step):
        part = slice(start, start + step)
        own, other = left[one[part]].astype(np.float64), right[two[part]].astype(np.float64)
        scores[part] = np.einsum("ij,ij->i", own, other) / lengths(own) / lengths(other)
    return as_cosines(scores)


def lengths(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the length of each vector: those of float32 are not quite 1."""
    squares: NDArray[np.float64] = np.einsum("ij,ij->i", vectors, vectors)
    return np.sqrt(squares)


def as_cosines(products: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return cosines in 9 decimals, from -1 to 1."""
    return np.clip(products.round(9), -1, 1) + 0.0


def _tiles(left: Vectors, right: Vectors, *, within: bool) -> Tiles:
    """Yield all pairs in blocks: places of the left, of the right, and their products; ``within`` half of them."""
    out = np.empty(_LEFT * _RIGHT, np.float32)
    for start in range(0, len(left), _LEFT):
        own = np.arange(start, min(start + _LEFT, len(left)))
        for begin in range(start if within else 0, len(right), _RIGHT):
            other = np.arange(begin, min(begin + _RIGHT, len(right)))
            products = out[: len(own) * len(other)].reshape(len(own), len(other))
            np.matmul(left[own[0] : own[-1] + 1], right[other[0] : other[-1] + 1].T, out=products)
            yield own, other, products


def _axes(vectors: Vectors) -> NDArray[np.float64]:
    """Return the directions in which vectors are longest, ``[dimensions, 48]`` orthonormal, by a sample of them."""
    sample = vectors[:: -(-len(vectors) // _SAMPLE)].astype(np.float64)
    return np.linalg.eigh(sample.T @ sample)[1][:, ::-1][:, :_HEAD]


def _heads(left: Vectors, right: Vectors, threshold: float) -> tuple[Vectors, Vectors] | None:
    """Return short vectors whose products are no less than the cosines; None where comparing these saves no time.

    By the inequality of Cauchy and Schwarz, the product of the parts outside a subspace is at most that of their
    lengths: a vector becomes its 48 coordinates in the subspace, and the length of the rest.
    """
    if threshold <= 0 or len(left) * len(right) < _WORTH or left.shape[1] < 4 * _HEAD:
        return None
    axes = _axes(right)
    one = _short(left, axes)
    two = one if left is right else _short(right, axes)
    steps = [max(1, len(part) // 1024) for part in (one, two)]
    # Not the same rows of both: those are no pairs where left and right are one.
    products = one[:: steps[0]][:1024] @ two[steps[1] // 2 :: steps[1]][:1024].T
    return (one, two) if float((products >= threshold - _SLACK_OF_SHORT).mean()) < _SELECTIVE else None


def _short(vectors: Vectors, axes: NDArray[np.float64]) -> Vectors:
    short = np.empty((len(vectors), axes.shape[1] + 1), np.float32)
    for start in range(0, len(vectors), _BLOCK):
        block = vectors[start : start + _BLOCK].astype(np.float64)
        head = block @ axes
        rest = np.einsum("ij,ij->i", block, block) - np.einsum("ij,ij->i", head, head)
        short[start : start + _BLOCK, :-1] = head
        short[start : start + _BLOCK, -1] = np.sqrt(rest.clip(0)) + 1e-7
    return short


def _tiles_of_cells(left: Vectors, right: Vectors, probes: int) -> Tiles:
    """Yield the pairs of left vectors with the right ones whose code is one of the ``probes`` nearest cells.

    The code of a vector is the number of its cell: that of the nearest of as many centroids as the root of the number
    of right vectors, by k-means (the inverted file of Jegou, Douze, Schmid 2011, "Product quantization for nearest
    neighbor search").
    """
    sample = right[:: -(-len(right) // _SAMPLE)].astype(np.float64)
    cells = k_means((sample @ _axes(right)).round(6), max(1, round(sqrt(len(right)))), _ROUNDS)
    centroids = np.stack([sample[cells == cell].sum(axis=0) for cell in range(int(cells.max()) + 1)])
    centroids /= np.maximum(np.sqrt(np.einsum("ij,ij->i", centroids, centroids)), 1e-12)[:, None]
    code = _nearest_cells(right, centroids, 1)[:, 0]
    probed = _nearest_cells(left, centroids, min(probes, len(centroids)))
    order = np.argsort(code, kind="stable")
    starts = np.searchsorted(code[order], np.arange(len(centroids) + 1))
    asking = np.argsort(probed.reshape(-1), kind="stable")
    begins = np.searchsorted(probed.reshape(-1)[asking], np.arange(len(centroids) + 1))
    for cell in range(len(centroids)):
        other = order[starts[cell] : starts[cell + 1]]
        owns = asking[begins[cell] : begins[cell + 1]] // probed.shape[1]
        for start in range(0, len(other), _RIGHT):
            part = other[start : start + _RIGHT]
            gathered = right[part].T
            for begin in range(0, len(owns), _LEFT):
                own = owns[begin : begin + _LEFT]
                yield own, part, left[own] @ gathered


def _nearest_cells(vectors: Vectors, centroids: NDArray[np.float64], count: int) -> Ids:
    found = np.empty((len(vectors), count), np.int64)
    for start in range(0, len(vectors), _BLOCK):
        # Rounded, since the last bits of products depend on the number of threads.
        products = (vectors[start : start + _BLOCK].astype(np.float64) @ centroids.T).round(9)
        last = products.shape[1] - count
        found[start : start + _BLOCK] = np.argpartition(products, last, axis=1)[:, last:] if last else np.arange(count)
    return found
