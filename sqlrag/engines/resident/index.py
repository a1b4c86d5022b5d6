"""The arrays of a file in memory, and the two legs over them: the arithmetic of the search macros, in numpy.

Rows are numbered from 0 in the order of their ``rid``. Every score is rounded where the macros round it, and sums of
BM25 are of whole billionths, so that no order of adding changes them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from sqlrag.ranking.terms import idf
from sqlrag.ranking.vectors import query_code

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from sqlrag.ranking.plan import BM25
    from sqlrag.ranking.terms import Terms

    Rows = NDArray[np.intp]
    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]

_BILLION = 1e9

# Rows whose codes are compared at a time: what that needs stays in the cache of a processor.
_BLOCK = 32_768

# Up to this many postings the rarest terms are scored; beyond, common terms are looked up only where they matter.
_PROBE = 30_000

_HALF = 0xFFFF_FFFF_FFFF_FFFF


class Ranked(NamedTuple):
    """Rows, best first, and the score of each."""

    rows: Rows
    scores: Floats


@dataclass(frozen=True)
class Postings:
    """The postings of a file, by term and row: those of ``termids[i]`` are at ``starts[i]`` to ``starts[i + 1]``."""

    termids: NDArray[np.int32]
    starts: NDArray[np.int64]
    rows: NDArray[np.int32]
    tf: NDArray[Any]
    heading_tf: NDArray[Any]

    def of(self, termid: int) -> slice:
        """Return where the postings of a term are."""
        place = int(self.termids.searchsorted(termid))
        if place == len(self.termids) or self.termids[place] != termid:
            return slice(0, 0)
        return slice(int(self.starts[place]), int(self.starts[place + 1]))


@dataclass(frozen=True)
class Rounded:
    """Vectors of a byte a dimension: ``values * scales`` differ from those of the file by ``errors`` in length."""

    values: NDArray[np.int8]
    scales: NDArray[np.float32]
    errors: NDArray[np.float32]

    @classmethod
    def empty(cls, chunks: int, dimensions: int) -> Rounded:
        """Return room for so many vectors."""
        scales, errors = np.empty((2, chunks), dtype=np.float32)
        return cls(np.empty((chunks, dimensions), dtype=np.int8), scales, errors)

    def put(self, place: Any, vectors: NDArray[np.float32]) -> None:
        """Round vectors; those that are damaged may be anywhere."""
        with np.errstate(all="ignore"):
            scales = np.abs(vectors).max(axis=1, initial=0.0, keepdims=True) / np.float32(127)
            scales[~(np.isfinite(scales) & (scales > 0))] = 1
            values = np.clip(np.nan_to_num(np.rint(vectors / scales)), -127, 127)
            rest = np.linalg.norm((vectors - values * scales).astype(np.float64), axis=1)
        self.values[place], self.scales[place] = values, scales[:, 0]
        self.errors[place] = np.where(np.isfinite(rest), rest * (1 + 1e-6), np.inf)


@dataclass(frozen=True)
class Index:
    """What a search reads of a file, as it was in one state of it. It never changes; safe to use in several threads.

    ``order`` is the place of each row by ``doc_id, chunk_index``, ``hashes`` are DuckDB's of these two, by which pairs
    are sampled. ``names`` has ``node_id, doc_id, chunk_index`` of each row, ``contents`` what else results show of it,
    None where there was no room. ``vectors`` are those of the file, or rounded ones where these have no room, some of
    which are then in ``exact``. ``longest`` is the length of the longest of the vectors; ``codes`` are their signs, 64
    dimensions to a word, ``[words, chunks]``. ``terms`` is in the order of the alphabet. ``near`` remembers the nearest
    words of those that no chunk holds, ``passing`` which rows pass the filters of late.
    """

    state: Hashable
    stops: frozenset[str]
    num_docs: int
    average_length: float
    average_heading_length: float
    rids: NDArray[np.int32]
    order: NDArray[np.int32]
    hashes: NDArray[np.uint64]
    lengths: NDArray[np.int32]
    heading_lengths: NDArray[np.int32]
    names: pa.RecordBatch
    contents: pa.RecordBatch | None
    vectors: NDArray[np.float32] | Rounded
    longest: float
    codes: NDArray[np.uint64]
    terms: pa.Array
    termids: NDArray[np.int32]
    dfs: NDArray[np.int32]
    postings: Postings
    near: dict[tuple[str, int], list[tuple[int, int, str]]] = field(default_factory=dict)
    passing: dict[str, Flags] = field(default_factory=dict)
    not_compared: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    exact: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    _sampled: dict[int, Rows] = field(default_factory=dict)

    @property
    def chunks(self) -> int:
        """How many chunks there are."""
        return len(self.rids)

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        values = self.vectors.values if isinstance(self.vectors, Rounded) else self.vectors
        return int(values.shape[1])

    @cached_property
    def bytes(self) -> int:
        """How much memory the arrays take."""
        held = [*vars(self).values(), *vars(self.postings).values()]
        if isinstance(self.vectors, Rounded):
            held += vars(self.vectors).values()
        return sum(one.nbytes for one in held if hasattr(one, "nbytes"))

    def rows_of(self, rids: Sequence[int] | NDArray[np.int32]) -> Rows:
        """Return the rows of chunks, by their ``rid``."""
        rows: Rows = self.rids.searchsorted(np.asarray(rids, dtype=np.int32))
        return rows

    def flags(self, rids: NDArray[np.int32]) -> Flags:
        """Return for each row whether it is one of these chunks."""
        flags = np.zeros(self.chunks, dtype=bool)
        flags[self.rids.searchsorted(rids)] = True
        return flags

    def bits(self, flags: Flags) -> str:
        """Return flags of rows as ``passing_chunks.sql`` has them: a bit for each ``rid`` from 0."""
        bits = np.full(int(self.rids.max(initial=0)) + 1, ord("0"), dtype=np.uint8)
        bits[self.rids[flags]] = ord("1")
        return bits.tobytes().decode()

    def keep_passing(self, key: str, flags: Flags) -> None:
        """Keep what passes a filter, and forget that of the one kept first where there are many."""
        while len(self.passing) >= MOST_FILTERS:
            self.passing.pop(next(iter([*self.passing]), ""), None)
        self.passing[key] = flags

    def keep_exact(self, vectors: Mapping[int, NDArray[np.float32]]) -> None:
        """Keep vectors of rows that were read from the file, and forget the others where there are many."""
        if len(self.exact) + len(vectors) > _MOST_EXACT:
            self.exact.clear()
        self.exact.update(vectors)

    def named(self, rows: Rows) -> tuple[list[int], list[str], list[str], list[int]]:
        """Return ``rid, node_id, doc_id, chunk_index`` of rows, a list for each."""
        node_ids, doc_ids, numbers = (column.to_pylist() for column in self.names.take(pa.array(rows)).columns)
        return self.rids[rows].tolist(), node_ids, doc_ids, numbers

    def shown(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Return what results show of rows; there must be ``contents``."""
        parts = [part.take(pa.array(rows, pa.int64())) for part in (self.names, self.contents) if part is not None]
        columns = {name: part[name].to_pylist() for part in parts for name in part.schema.names}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def look_up(self, terms: Sequence[str]) -> list[tuple[str, int, int]]:
        """Return ``(term, termid, df)`` of the terms that some chunk holds, in the order of the alphabet."""
        found = []
        for term in sorted(set(terms)):
            place = bisect_left(range(len(self.terms)), term, key=lambda i: self.terms[i].as_py())
            if place < len(self.terms) and self.terms[place].as_py() == term:
                found.append((term, int(self.termids[place]), int(self.dfs[place])))
        return found

    # The vector leg.

    def nearest(
        self,
        vector: NDArray[np.float32],
        k: int,
        pool: int,
        passing: Flags | None = None,
        *,
        vectors_of: Callable[[Rows], NDArray[np.float32]],
    ) -> Ranked:
        """Return the ``k`` rows of the highest cosine among the ``pool`` whose signs differ least from the vector's.

        ``passing``, ``[chunks]``, says which rows are searched; all unless given. ``vectors_of`` returns the vectors of
        rows as they are in the file.
        """
        searched = np.arange(self.chunks) if passing is None else np.flatnonzero(passing)
        rows = self._best_by_code(vector, pool, searched) if len(searched) > pool else searched
        rows = rows[self._likely(vector, rows, k)]
        scores = self.cosines(vector, vectors_of(rows))
        whole = ~np.isnan(scores)
        return self._ranked(rows[whole], scores[whole], k)

    def _likely(self, vector: NDArray[np.float32], rows: Rows, k: int) -> NDArray[np.intp] | slice:
        """Return which of the rows may be among the ``k`` nearest: all but those that are well below them."""
        if len(rows) <= k:
            return slice(None)
        length = math.sqrt(float(vector @ vector))
        # More than the sums of float32 are off by.
        slack: float | Floats = 2e-7 * len(vector) * self.longest * length
        if isinstance(self.vectors, Rounded):
            products = (self.vectors.values[rows].astype(np.float32) @ vector) * self.vectors.scales[rows]
            slack += self.vectors.errors[rows].astype(np.float64) * length
        else:
            products = np.einsum("ij,j->i", self.vectors[rows], vector)
        if not np.isfinite(products).all():
            return slice(None)
        least = products - slack
        return np.flatnonzero(products + slack >= np.partition(least, len(rows) - k)[len(rows) - k])

    def _best_by_code(self, vector: NDArray[np.float32], pool: int, searched: Rows) -> Rows:
        every = len(searched) == self.chunks
        distances = self._distances(vector, self.codes if every else self.codes[:, searched])
        # How many are no farther than each distance: they are small numbers, which are counted faster than sorted.
        within = np.bincount(distances).cumsum()
        border = int(within.searchsorted(pool))
        near = np.flatnonzero(distances <= border)
        tied = np.flatnonzero(distances[near] == border)
        best: Rows = searched[np.delete(near, tied[len(tied) - (len(near) - pool) :])]
        return best

    def _distances(self, vector: NDArray[np.float32], codes: NDArray[np.uint64]) -> NDArray[Any]:
        """Return how much the signs of each row differ from the vector's, weighed as in ``vector_search.sql``."""
        signs, low, high = (_halves(words) for words in query_code(vector))
        rows = codes.shape[1]
        distances: NDArray[Any] = np.zeros(rows, dtype=np.uint16 if len(vector) * 3 < 2**16 else np.uint32)
        differing, weighed = np.empty((2, _BLOCK), dtype=np.uint64)
        counts = np.empty(_BLOCK, dtype=np.uint8)
        for start in range(0, rows, _BLOCK):
            part = distances[start : start + _BLOCK]
            x, y, count = differing[: len(part)], weighed[: len(part)], counts[: len(part)]
            for word, of_word in enumerate(codes):
                np.bitwise_xor(of_word[start : start + _BLOCK], signs[word], out=x)
                np.bitwise_and(x, low[word], out=y)
                part += _bit_count(y, out=count)
                np.bitwise_and(x, high[word], out=y)
                part += np.add(_bit_count(y, out=count), count, out=count)
        return distances

    def cosines(self, vector: NDArray[np.float32], vectors: NDArray[np.float32]) -> Floats:
        """Return the exact cosines of vectors of the file, NaN where one is damaged."""
        searched = vector.astype(np.float64)
        products = np.einsum("ij,j->i", vectors.astype(np.float64), searched)
        length = math.sqrt(_in_order(searched, searched))
        with np.errstate(invalid="ignore", over="ignore"):
            scaled = products / length * _BILLION
            # The last bit of a sum depends on its order: where it may decide, the sum is made as DuckDB makes it.
            for place in np.flatnonzero(np.abs(np.abs(scaled) % 1 - 0.5) < 1e-5):
                scaled[place] = _in_order(vectors[place].astype(np.float64), searched) / length * _BILLION
            return np.where(np.isfinite(scaled), np.clip(_rounded(scaled) / _BILLION, -1, 1), np.nan)

    # The lexical leg.

    def best(
        self,
        terms: Terms,
        bm25: BM25,
        k: int,
        at_least: int = 1,
        passing: Flags | None = None,
        totals: Sequence[float] | None = None,
    ) -> Ranked:
        """Return the ``k`` rows of the highest BM25 that hold ``at_least`` so many of the terms.

        ``passing`` is as in :meth:`nearest`, ``totals`` as in ``bm25_contributions.sql``. Where one term is enough the
        most common ones are scored only where they can bring a row among the best, as MaxScore does (Turtle & Flood,
        1995).
        """
        words = sorted(self._words(terms, bm25, totals), key=lambda word: (word.length, word.termid))
        if at_least > 1:
            rows, sums, matched = self._scored(words, passing)
            allowed = matched >= at_least
            return self._highest(rows[allowed], sums[allowed], k)
        probed = max(1, sum(total <= _PROBE for total in accumulate(word.length for word in words)))
        rare = probed
        while True:
            rows, sums, _ = self._scored(words[:rare], passing)
            floor = _floor(sums, k)
            bound, common = 0.0, len(words)
            while common > rare and floor is not None and bound + words[common - 1].most < floor:
                common -= 1
                bound += words[common].most
            if common == rare:
                break
            rare = common
        for word in words[rare:]:
            likely = sums + bound >= (floor or 0.0)
            rows, sums = rows[likely], sums[likely]
            sums = sums + self._added(word, rows)[0]
            bound -= word.most
            floor = _floor(sums, k)
        return self._highest(rows, sums, k)

    def bm25(self, terms: Terms, bm25: BM25, rows: Rows, totals: Sequence[float] | None = None) -> tuple[Floats, Flags]:
        """Return the BM25 of rows, and whether each holds one of the terms."""
        sums, held = np.zeros(len(rows)), np.zeros(len(rows), dtype=bool)
        for word in self._words(terms, bm25, totals):
            added, holds = self._added(word, rows)
            sums += added
            held |= holds
        return sums / _BILLION, held

    def sampled(self, terms: Terms, nth: int) -> Rows:
        """Return the rows that are sampled: every ``nth`` by its hash. Not all of them hold one of the terms."""
        spans = [self.postings.of(termid) for termid in terms.termids]
        if sum(span.stop - span.start for span in spans) < self.chunks // 4:
            held = np.concatenate([_NO_ROWS, *(self.postings.rows[span] for span in spans)])
            return np.unique(held[self.hashes[held] % np.uint64(nth) == 0])
        rows = self._sampled.get(nth, _NO_ROWS)
        if not len(rows):
            rows = np.flatnonzero(self.hashes % np.uint64(nth) == 0)
            if len(self._sampled) < _MOST_SAMPLES:
                self._sampled[nth] = rows
        return rows

    def _words(self, terms: Terms, bm25: BM25, totals: Sequence[float] | None) -> Iterator[_Word]:
        k1, b, text_weight, heading_weight = bm25
        num_docs, length, heading_length = totals or (self.num_docs, self.average_length, self.average_heading_length)
        average = text_weight * length + heading_weight * heading_length
        base, slope = k1 * (1 - b), k1 * b / max(average, 1)
        boosts = terms.boosts or [1.0] * len(terms.termids)
        for termid, df, boost in zip(terms.termids, terms.dfs, boosts, strict=True):
            weight = _BILLION * boost * (k1 + 1) * idf(df, int(num_docs))
            yield _Word(termid, self.postings.of(termid), weight, base, slope, text_weight, heading_weight)

    def _scored(self, words: Sequence[_Word], passing: Flags | None) -> tuple[Rows, Floats, Rows]:
        """Return the rows that pass and hold one of the words, the sum of what these add, and how many each holds."""
        parts = [self._contributions(word, word.span) for word in words]
        if not parts:
            return _NO_ROWS, np.zeros(0), _NO_ROWS
        rows = np.concatenate([of_word for of_word, _ in parts])
        added = np.concatenate([added for _, added in parts])
        sums = np.bincount(rows, added, self.chunks).astype(np.float64, copy=False)
        matched = np.bincount(rows, minlength=self.chunks)
        if passing is not None:
            matched *= passing
        held: Rows = np.flatnonzero(matched)
        return held, sums[held], matched[held]

    def _contributions(self, word: _Word, span: slice | NDArray[np.intp]) -> tuple[NDArray[np.int32], Floats]:
        """Return the rows of some postings of a word, and what it adds to each, in whole billionths."""
        rows = self.postings.rows[span]
        tf = word.text_weight * self.postings.tf[span] + word.heading_weight * self.postings.heading_tf[span]
        counts = tf > 0
        if not counts.all():
            rows, tf = rows[counts], tf[counts]
        lengths = word.text_weight * self.lengths[rows] + word.heading_weight * self.heading_lengths[rows]
        return rows, _rounded(word.weight * tf / (tf + word.base + word.slope * lengths))

    def _added(self, word: _Word, rows: Rows) -> tuple[Floats, Flags]:
        """Return what a word adds to rows, and which of them hold it."""
        added, holds = np.zeros(len(rows)), np.zeros(len(rows), dtype=bool)
        if not word.length or not len(rows):
            return added, holds
        held = self.postings.rows[word.span]
        places = held.searchsorted(rows.astype(np.int32))
        places[places == len(held)] = 0
        found = np.flatnonzero(held[places] == rows)
        taken, contributions = self._contributions(word, places[found] + word.span.start)
        if len(taken) < len(found):
            found = found[np.isin(rows[found], taken)]
        added[found], holds[found] = contributions, True
        return added, holds

    def _highest(self, rows: Rows, sums: Floats, k: int) -> Ranked:
        if len(rows) > k:
            chosen = sums >= np.partition(sums, len(sums) - k)[len(sums) - k]
            rows, sums = rows[chosen], sums[chosen]
        return self._ranked(rows, sums / _BILLION, k)

    def _ranked(self, rows: Rows, scores: Floats, k: int) -> Ranked:
        best = np.lexsort((self.order[rows], -scores))[:k]
        return Ranked(rows[best], scores[best])


class _Word(NamedTuple):
    """A term of a question: where its postings are, and the factors of ``bm25_contributions.sql``."""

    termid: int
    span: slice
    weight: float
    base: float
    slope: float
    text_weight: float
    heading_weight: float

    @property
    def length(self) -> int:
        """How many postings it has."""
        return int(self.span.stop - self.span.start)

    @property
    def most(self) -> float:
        """What it can add at most, in billionths: rounding adds less than 1."""
        return self.weight + 1


_NO_ROWS = np.zeros(0, dtype=np.intp)

# Vectors that are kept where the file's have no room: 1,536 bytes each, of 384 dimensions.
_MOST_EXACT = 8192

# Filters whose rows are kept, a byte a row.
MOST_FILTERS = 16

# Lists of sampled rows that are kept: most questions have common words, and the same one.
_MOST_SAMPLES = 64


def _floor(sums: Floats, k: int) -> float | None:
    """Return the score that ``k`` rows reach, None where there are fewer."""
    return float(np.partition(sums, len(sums) - k)[len(sums) - k]) if len(sums) >= k else None


def _rounded(values: Floats) -> Floats:
    """Round to whole numbers as DuckDB does, halves away from zero."""
    return np.copysign(np.floor(np.abs(values) + 0.5), values)


def _in_order(left: Floats, right: Floats) -> float:
    """Return the sum of products, added one after the other."""
    return float(np.cumsum(left * right)[-1])


def _halves(words: Sequence[int]) -> NDArray[np.uint64]:
    """Return words of 128 bits as words of 64, the upper half of each first."""
    return np.array([half for word in words for half in ((word >> 64) & _HALF, word & _HALF)], dtype=np.uint64)


_BITS = np.array([number.bit_count() for number in range(2**8)], dtype=np.uint8)


def counted_by_table(values: NDArray[np.uint64], out: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return how many bits of each number are 1, also with numpy 1.26."""
    counted: NDArray[np.uint8] = np.sum(_BITS[values.view(np.uint8)].reshape(-1, 8), axis=1, dtype=np.uint8, out=out)
    return counted


_bit_count: Callable[..., NDArray[np.uint8]] = getattr(np, "bitwise_count", counted_by_table)
