"""Fusing two ranked lists of candidates into one: by ranks, by scaled scores, or by exact scores.

Everything here is a pure function of small lists. Scores are rounded to 9 decimals before anything is ordered by
them, so that the last bits of a float (which depend on how many threads summed it) never decide an order.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import mul
from typing import Annotated, NamedTuple, TypeVar, get_args

from sqlrag import arguments
from sqlrag.errors import InputError
from sqlrag.types import DEFAULT_ALPHA, Fusion

DECIMALS = 9

# Adaptive fusion; hybrid_query.sql has the same numbers. The shares of the legs where both are trusted:
VECTOR_SHARE, LEXICAL_SHARE = 0.75, 0.5

# the correlation of cosine and BM25 from which the cosines are trusted entirely,
FULL_CORRELATION = 0.3

# the fewest chunks that a correlation is taken over, and how many are looked at where more hold a word,
LEAST_SAMPLE, SAMPLE = 30, 300

# and what is left to a leg that says nothing, so that it still orders what the other leg cannot tell apart.
LEAST_TRUST, LEAST_GAP = 0.01, 0.05

# Below this trust the vectors count for noise; from these on, of trust and gap, a leg's first is among the first five.
NOISE, TRUSTED, DISTINCT = 0.1, 0.5, 0.25

FIRST_PLACES = 5

# Words that hold less than this share of a question's weight cannot speak against the vectors: trust is TRUSTED at
# least. A word with a letter too few is in no chunk, and what is left of its question may single out nothing.
LEAST_KNOWN = 0.5

Id = TypeVar("Id", bound=Hashable)

ExactScores = Mapping[int, tuple["float | None", "float | None"]]


class LegHit(NamedTuple):
    """One candidate of one leg: the row's id, its document and place in it, and the leg's raw score."""

    rid: int
    doc_id: str
    chunk_index: int
    score: float


@dataclass
class Leg:
    """What one leg found, the ``node_id`` of each ``rid``, how it was searched, and how many the sign codes gave."""

    hits: list[LegHit] = field(default_factory=list)
    node_ids: dict[int, str] = field(default_factory=dict)
    method: str = ""
    pool: int | None = None


class Trust(NamedTuple):
    """How far the cosines of one question are to be believed.

    ``value`` is the trust, .01 to 1; ``rho`` the correlation that it follows from, -1..1, None where there is none;
    ``chunks`` over how many chunks it was taken; ``known`` how much of the weight of the question's words they can
    hold, 0..1.
    """

    value: float = 1.0
    rho: float | None = None
    chunks: int = 0
    known: float = 1.0

    @classmethod
    def of(cls, sample: Iterable[tuple[float | None, float]], known: float = 1.0) -> Trust:
        """Return the trust for the (cosine, BM25) of chunks that hold a word of the question, in any order.

        It is ``min(1, rho / .3)`` and at least .01, rho being Pearson's correlation of both, rounded to 9 decimals. It
        is 1 with fewer than 30 chunks, or where all have the same BM25: nothing speaks against the vectors then. It is
        .01 where all have the same cosine. With a ``known`` below .5, see :class:`Terms`, it is .5 at least. Chunks
        without a cosine do not count. The sums are of whole billionths and exact, so that no order of adding changes
        them.
        """
        pairs = [(cosine, bm25) for cosine, bm25 in sample if cosine is not None]
        cosines, scores = [round(cosine * 1e9) for cosine, _ in pairs], [round(bm25 * 1e9) for _, bm25 in pairs]
        n, x, y = len(pairs), sum(cosines), sum(scores)
        spread = n * sum(map(mul, scores, scores)) - y * y
        if n < LEAST_SAMPLE or not spread:
            return cls(chunks=n, known=known)
        width = n * sum(map(mul, cosines, cosines)) - x * x
        shared = n * sum(map(mul, cosines, scores)) - x * y
        rho = round(shared / (math.sqrt(width) * math.sqrt(spread)), DECIMALS) if width else 0.0
        least = TRUSTED if known < LEAST_KNOWN else LEAST_TRUST
        return cls(min(1.0, max(least, rho / FULL_CORRELATION)), rho, n, known)


class Parts(NamedTuple):
    """What the vector leg and the lexical leg add to a score, and ``lift``, which adaptive fusion adds to some."""

    vector: float
    lexical: float
    lift: float = 0.0


class FusedHit(NamedTuple):
    """One candidate after fusion.

    ``score`` is that of the fusion. ``vector_score`` is a cosine, ``lexical_score`` a BM25 score; the ranks count
    from 1 within their leg. All four are None where the leg did not return the candidate, except that adaptive and
    convex fusion give the scores of every candidate.
    """

    rid: int
    doc_id: str
    chunk_index: int
    score: float
    vector_score: float | None
    vector_rank: int | None
    lexical_score: float | None
    lexical_rank: int | None


class _Ranked(NamedTuple):
    rank: int
    score: float
    doc_id: str
    chunk_index: int


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[str]],
    k: Annotated[float, arguments.Range(ge=0)] = 60,
    *,
    weights: Sequence[float] | None = None,
) -> list[tuple[str, float]]:
    """Fuse ranked lists of ids by Reciprocal Rank Fusion: ``score(id) = Σ weight / (k + rank)``.

    A fused score says how highly the lists agree to place an id; it is not a measure of relevance: the best of a
    hopeless search scores as high as the best of a good one.

    Parameters
    ----------
    rankings
        Lists of ids, best first. Ranks are positions, counted from 1. A list that lacks an id adds 0 to its score;
        an id that stands in one list twice counts once, at its better position.
    k
        0 or more; the larger, the less the first places stand out.
    weights
        One factor per list, 0 or more, at least one above 0. Without them every list counts 1.

    Returns
    -------
    list of (id, score)
        Highest score first, ties by id ascending. Scores are rounded to 9 decimals.

    Raises
    ------
    InputError
        If ``k`` or a weight is negative or not finite, all weights are 0, their number is not that of the rankings,
        a ranking is a string instead of a list of ids, or ids cannot be compared with each other.

    References
    ----------
    Cormack, Clarke, Buettcher: Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods,
    SIGIR 2009.

    Examples
    --------
    >>> reciprocal_rank_fusion([["a", "b"], ["b", "c"]])
    [('b', 0.032522475), ('a', 0.016393443), ('c', 0.016129032)]
    """
    # A string is a sequence of strings too: its letters would pass for ids.
    example = "[['a', 'b'], ['b', 'c']]"
    lists = [
        arguments.items("Each of rankings", ranking, "['a', 'b']")
        for ranking in arguments.items("rankings", rankings, example)
    ]
    k = arguments.number("k", k, 0, math.inf)
    factors = None if weights is None or not lists else arguments.weights("weights", weights, len(lists))
    ranks: list[dict[str, int]] = []
    try:
        for ranking in lists:
            best: dict[str, int] = {}
            for rank, item in enumerate(ranking, start=1):
                best.setdefault(item, rank)
            ranks.append(best)
        scores = _reciprocal_ranks(ranks, k, factors)
        return sorted(((item, round(score, DECIMALS)) for item, score in scores.items()), key=lambda x: (-x[1], x[0]))
    except TypeError as error:
        raise InputError(f"The ids in rankings must be strings, as in {example}: {error}.") from error


def fuse_legs(
    vector: Iterable[LegHit],
    lexical: Iterable[LegHit],
    *,
    fusion: Fusion = "rrf",
    rrf_k: float = 60,
    weights: tuple[float, float] = (1.0, 1.0),
    vector_weight: float = 0.5,
    alpha: float = DEFAULT_ALPHA,
    trust: float = 1.0,
    exact: ExactScores | None = None,
    parts: dict[int, Parts] | None = None,
) -> list[FusedHit]:
    """Fuse the hits of the vector leg and of the lexical leg.

    Within a leg the rank follows from the score, ties by ``doc_id, chunk_index``: the order of the input does not
    matter. A leg that is empty or missing is an empty list; the formula stays the same and its part is 0.

    A candidate that is first in both legs comes first under every fusion (for ``adaptive`` and ``convex``: if the legs'
    order is that of the exact scores). Only a candidate within 1e-9 of its fused score, which counts as a tie, may
    precede it.

    Parameters
    ----------
    vector, lexical
        Hits with their cosine (-1..1) and BM25 score (0 or more). Plain tuples ``(rid, doc_id, chunk_index, score)``
        will do.
    fusion
        ``rrf``: ``Σ weight / (rrf_k + rank)``. ``weighted``: ``vector_weight·v + (1 − vector_weight)·l``, each leg's
        scores scaled to 0..1 over its own hits (1 where all are equal). ``convex``:
        ``alpha·(cos + 1) / (max cos + 1) + (1 − alpha)·bm25 / max bm25`` over the exact scores of the union.
        ``adaptive``: ``.75·trust·(cos + 1) / (max cos + 1) + .5·gap·bm25 / max bm25`` over the same, where ``gap`` is
        (best BM25 − tenth BM25) / best BM25 of the lexical leg, the tenth 0 where it has fewer than ten hits, and at
        least .05. So no score is 0 but that of a cosine of −1 without a word, and a leg that says nothing orders what
        the other one leaves equal. Without any lexical hit the second part is 0. The first of the vector leg with a
        trust of .5 or more, and of the lexical leg with a gap of .25 or more, is lifted into the first five where it
        would miss them: to 1e-9 above the fifth of the others, or the fourth if both legs' firsts are two.
    rrf_k, weights
        Of ``rrf``; the weights are (vector, lexical), 0 or more, not both 0.
    vector_weight
        Of ``weighted``, 0..1.
    alpha
        Of ``convex``, 0..1.
    trust
        Of ``adaptive``, 0..1, taken for .01 where it is less: :meth:`Trust.of` finds it.
    exact
        Required by ``adaptive`` and ``convex``: ``rid → (cosine, bm25)`` for every candidate of the union; BM25 is 0
        where no word matches; None stands for a score that cannot be had (no query vector, no lexical index) and adds
        0.
    parts
        Filled with what the vector leg, the lexical leg and the lift add to the score of each candidate, by ``rid``.

    Returns
    -------
    list of FusedHit
        Highest score first, ties by ``doc_id``, then ``chunk_index``. Scores are rounded to 9 decimals.

    Raises
    ------
    InputError
        If an option is unknown or out of its range, a score is not finite, or ``exact`` lacks a candidate.

    References
    ----------
    ``weighted`` is that of the published sqlrooms-rag. ``convex`` is the convex combination with theoretical minima
    of Bruch, Gai, Ingber: An Analysis of Fusion Functions for Hybrid Retrieval, ACM TOIS 42(1), 2023, section 4;
    ``adaptive`` is the same with two weights that are found for each question.

    Examples
    --------
    >>> hits = fuse_legs([(1, "a.md", 0, 0.9), (2, "b.md", 0, 0.5)], [(2, "b.md", 0, 7.5)])
    >>> [(hit.doc_id, hit.score, hit.vector_rank, hit.lexical_rank) for hit in hits]
    [('b.md', 0.032522475, 2, 1), ('a.md', 0.016393443, 1, None)]
    """
    arguments.choice("fusion", fusion, get_args(Fusion))
    rrf_k = arguments.number("rrf_k", rrf_k, 0, math.inf)
    vector_weight = arguments.number("vector_weight", vector_weight, 0, 1)
    alpha = arguments.number("alpha", alpha, 0, 1)
    trust = arguments.number("trust", trust, 0, 1)
    factors = arguments.weights("weights", weights, 2)
    vector_leg, lexical_leg = _rank(vector), _rank(lexical)
    union = lexical_leg | vector_leg
    known: ExactScores = {}
    if fusion == "rrf":
        ranks = [{rid: hit.rank for rid, hit in leg.items()} for leg in (vector_leg, lexical_leg)]
        shares = [_reciprocal_ranks([ranked], rrf_k, [factor]) for ranked, factor in zip(ranks, factors, strict=True)]
    elif fusion == "weighted":
        shares = [_times(vector_weight, _min_max(vector_leg)), _times(1 - vector_weight, _min_max(lexical_leg))]
    else:
        known = _exact_of(union, fusion, exact)
        of_legs = alpha, 1 - alpha
        if fusion == "adaptive":
            gap = gap_of(hit.score for hit in lexical_leg.values())
            of_legs = VECTOR_SHARE * max(LEAST_TRUST, trust), LEXICAL_SHARE * gap
        shares = _convex(known, *of_legs)
    of_vectors, of_words = shares
    added = {rid: Parts(of_vectors.get(rid, 0.0), of_words.get(rid, 0.0)) for rid in union}
    sums = {rid: round(vector + lexical, DECIMALS) for rid, (vector, lexical, _) in added.items()}
    if fusion == "adaptive":
        leading = [vector_leg if trust >= TRUSTED else {}, lexical_leg if gap >= DISTINCT else {}]
        lifted = _lifted(added, sums, {next(iter(leg)) for leg in leading if leg})
        added |= lifted
        sums |= {rid: round(sum(of_legs), DECIMALS) for rid, of_legs in lifted.items()}
    if parts is not None:
        parts.update(added)

    fused = []
    for rid, (_, _, doc_id, chunk_index) in union.items():
        vector_rank, vector_score = vector_leg[rid][:2] if rid in vector_leg else (None, None)
        lexical_rank, lexical_score = lexical_leg[rid][:2] if rid in lexical_leg else (None, None)
        if rid in known:
            vector_score, lexical_score = known[rid]
        scores = sums[rid], vector_score, vector_rank, lexical_score, lexical_rank
        fused.append(FusedHit(rid, doc_id, chunk_index, *scores))
    return sorted(fused, key=lambda hit: (-hit.score, hit.doc_id, hit.chunk_index, hit.rid))


def gap_of(scores: Iterable[float]) -> float:
    """Return how far the best BM25 is above the tenth, (best - tenth) / best, .05..1; 1 for fewer than ten."""
    best = sorted(scores, reverse=True)[:10]
    if len(best) < 10 or best[0] <= 0:
        return 1.0
    return max(LEAST_GAP, (best[0] - best[9]) / best[0])


def part_formula(
    leg: str,
    hit: FusedHit,
    hits: Iterable[FusedHit],
    fusion: Fusion,
    *,
    rrf_k: float = 60,
    weights: Sequence[float] = (1.0, 1.0),
    vector_weight: float = 0.5,
    alpha: float = DEFAULT_ALPHA,
    trust: float = 1.0,
) -> str:
    """Return how the part of ``leg``, "vector" or "lexical", in the score of a hit comes about, with its numbers."""
    is_vector = leg == "vector"
    score: float = getattr(hit, f"{leg}_score") or 0.0
    if fusion == "rrf":
        return f"{weights[0 if is_vector else 1]:g} / ({rrf_k:g} + {getattr(hit, f'{leg}_rank')})"
    hits = list(hits)
    known = [hit for hit in hits if fusion != "weighted" or getattr(hit, f"{leg}_rank") is not None]
    scores = [getattr(hit, f"{leg}_score") or 0.0 for hit in known]
    low, high = min(scores), max(scores)
    if fusion == "weighted":
        share = vector_weight if is_vector else 1 - vector_weight
        scaled = f"({score:.9g} - {low:.9g}) / ({high:.9g} - {low:.9g})" if high > low else "1"
        return f"{share:g} * {scaled}"
    shares = [f"{alpha:g}", f"{1 - alpha:g}"]
    if fusion == "adaptive":
        gap = gap_of(hit.lexical_score or 0.0 for hit in hits if hit.lexical_rank is not None)
        shares = [f"{VECTOR_SHARE:g} * {max(LEAST_TRUST, trust):.9g}", f"{LEXICAL_SHARE:g} * {gap:.9g}"]
    if is_vector:
        return f"{shares[0]} * ({score:.9g} + 1) / ({high:.9g} + 1)"
    return f"{shares[1]} * {score:.9g} / {high:.9g}" if high else "0"


def _rank(leg: Iterable[LegHit]) -> dict[int, _Ranked]:
    """Order a leg totally and number it from 1; a row that came twice keeps its better rank."""
    ordered = sorted((-_rounded(score), doc_id, chunk_index, rid) for rid, doc_id, chunk_index, score in leg)
    ranked: dict[int, _Ranked] = {}
    for rank, (negated, doc_id, chunk_index, rid) in enumerate(ordered, start=1):
        ranked.setdefault(rid, _Ranked(rank, -negated, doc_id, chunk_index))
    return ranked


def _reciprocal_ranks(
    rankings: Sequence[Mapping[Id, int]], k: float, weights: Sequence[float] | None
) -> dict[Id, float]:
    scores: dict[Id, float] = {}
    for ranks, weight in zip(rankings, weights or [1.0] * len(rankings), strict=True):
        for item, rank in ranks.items():
            scores[item] = scores.get(item, 0.0) + weight / (k + rank)
    return scores


def _times(factor: float, scores: Mapping[int, float]) -> dict[int, float]:
    return {rid: factor * score for rid, score in scores.items()}


def _min_max(leg: Mapping[int, _Ranked]) -> dict[int, float]:
    """Scale a leg's scores to 0..1 over its own hits; 1 where all are equal (a single hit too)."""
    scores = [hit.score for hit in leg.values()]
    # Halved where a difference could be infinite.
    unit = 0.5 if max(map(abs, scores), default=0.0) > sys.float_info.max / 2 else 1.0
    low, high = unit * min(scores, default=0.0), unit * max(scores, default=0.0)
    return {rid: (unit * hit.score - low) / (high - low) if high > low else 1.0 for rid, hit in leg.items()}


def _convex(exact: ExactScores, vector_share: float, lexical_share: float) -> list[dict[int, float]]:
    vector = _share_of_maximum({rid: -1.0 if cosine is None else cosine for rid, (cosine, _) in exact.items()}, 1.0)
    lexical = _share_of_maximum({rid: bm25 or 0.0 for rid, (_, bm25) in exact.items()}, 0.0)
    return [_times(vector_share, vector), _times(lexical_share, lexical)]


def _lifted(added: Mapping[int, Parts], sums: Mapping[int, float], firsts: Collection[int]) -> dict[int, Parts]:
    """Return the firsts of the legs, lifted above as many others as let them be among the first five."""
    others = sorted((score for rid, score in sums.items() if rid not in firsts), reverse=True)
    if len(others) <= FIRST_PLACES - len(firsts):
        return {}
    floor = others[FIRST_PLACES - len(firsts)] + 10**-DECIMALS
    return {rid: added[rid]._replace(lift=max(0.0, floor - sum(added[rid]))) for rid in firsts}


def _share_of_maximum(scores: Mapping[int, float], shift: float) -> dict[int, float]:
    """Shift the scores to a minimum of 0 and divide them by their maximum; all 0 where the maximum is 0."""
    # A cosine may come out a hair below -1, hence the floor.
    shifted = {rid: max(0.0, score + shift) for rid, score in scores.items()}
    top = max(shifted.values(), default=0.0) or 1.0
    return {rid: score / top for rid, score in shifted.items()}


def _exact_of(union: Collection[int], fusion: str, exact: ExactScores | None) -> ExactScores:
    """Pick the exact scores of the union and of nothing else, because the maxima are taken over them."""
    given = exact or {}
    missing = [rid for rid in union if rid not in given]
    if missing:
        raise InputError(f"{fusion} fusion needs the exact scores of every candidate; rids without them: {missing[:5]}")
    picked = {}
    for rid in union:
        cosine, bm25 = given[rid]
        picked[rid] = (None if cosine is None else _rounded(cosine), None if bm25 is None else _rounded(bm25))
    return picked


def _rounded(score: float) -> float:
    try:
        finite = math.isfinite(score)
    except (TypeError, OverflowError):  # no number, or an integer that no float can hold
        finite = False
    if not finite:
        raise InputError(f"a score to be fused is {arguments.shown(score)}; it must be a finite number")
    return round(float(score), DECIMALS)
