"""Fusing two ranked lists of candidates into one: by ranks, by scaled scores, or by exact scores.

Everything here is a pure function of small lists. Scores are rounded to 9 decimals before anything is ordered by
them, so that the last bits of a float (which depend on how many threads summed it) never decide an order.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple, TypeVar, get_args

from sqlrag import arguments
from sqlrag.errors import InputError
from sqlrag.types import DEFAULT_ALPHA, Fusion

DECIMALS = 9

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


class FusedHit(NamedTuple):
    """One candidate after fusion.

    ``score`` is that of the fusion. ``vector_score`` is a cosine, ``lexical_score`` a BM25 score; the ranks count
    from 1 within their leg. All four are None where the leg did not return the candidate, except that convex fusion
    gives the scores of every candidate.
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
    exact: ExactScores | None = None,
    parts: dict[int, tuple[float, float]] | None = None,
) -> list[FusedHit]:
    """Fuse the hits of the vector leg and of the lexical leg.

    Within a leg the rank follows from the score, ties by ``doc_id, chunk_index``: the order of the input does not
    matter. A leg that is empty or missing is an empty list; the formula stays the same and its part is 0.

    A candidate that is first in both legs comes first under every fusion (for ``convex``: if the legs' order is that
    of the exact scores). Only a candidate within 1e-9 of its fused score, which counts as a tie, may precede it.

    Parameters
    ----------
    vector, lexical
        Hits with their cosine (-1..1) and BM25 score (0 or more). Plain tuples ``(rid, doc_id, chunk_index, score)``
        will do.
    fusion
        ``rrf``: ``Σ weight / (rrf_k + rank)``. ``weighted``: ``vector_weight·v + (1 − vector_weight)·l``, each leg's
        scores scaled to 0..1 over its own hits (1 where all are equal). ``convex``:
        ``alpha·(cos + 1) / (max cos + 1) + (1 − alpha)·bm25 / max bm25`` over the exact scores of the union.
    rrf_k, weights
        Of ``rrf``; the weights are (vector, lexical), 0 or more, not both 0.
    vector_weight
        Of ``weighted``, 0..1.
    alpha
        Of ``convex``, 0..1.
    exact
        Required by ``convex``: ``rid → (cosine, bm25)`` for every candidate of the union; BM25 is 0 where no word
        matches; None stands for a score that cannot be had (no query vector, no lexical index) and adds 0.
    parts
        Filled with what the vector leg and the lexical leg add to the score of each candidate: ``rid → (v, l)``.

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
    of Bruch, Gai, Ingber: An Analysis of Fusion Functions for Hybrid Retrieval, ACM TOIS 42(1), 2023, section 4.

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
        known = _exact_of(union, exact)
        shares = _convex(known, alpha)
    added = {rid: (shares[0].get(rid, 0.0), shares[1].get(rid, 0.0)) for rid in union}
    if parts is not None:
        parts.update(added)

    fused = []
    for rid, hit in union.items():
        in_vector, in_lexical = vector_leg.get(rid), lexical_leg.get(rid)
        vector_score, lexical_score = known.get(rid) or (
            in_vector.score if in_vector else None,
            in_lexical.score if in_lexical else None,
        )
        fused.append(
            FusedHit(
                rid=rid,
                doc_id=hit.doc_id,
                chunk_index=hit.chunk_index,
                score=round(sum(added[rid]), DECIMALS),
                vector_score=vector_score,
                vector_rank=in_vector.rank if in_vector else None,
                lexical_score=lexical_score,
                lexical_rank=in_lexical.rank if in_lexical else None,
            )
        )
    return sorted(fused, key=lambda hit: (-hit.score, hit.doc_id, hit.chunk_index, hit.rid))


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
) -> str:
    """Return how the part of ``leg``, "vector" or "lexical", in the score of a hit comes about, with its numbers."""
    is_vector = leg == "vector"
    score: float = getattr(hit, f"{leg}_score") or 0.0
    if fusion == "rrf":
        return f"{weights[0 if is_vector else 1]:g} / ({rrf_k:g} + {getattr(hit, f'{leg}_rank')})"
    known = [hit for hit in hits if fusion == "convex" or getattr(hit, f"{leg}_rank") is not None]
    scores = [getattr(hit, f"{leg}_score") or 0.0 for hit in known]
    low, high = min(scores), max(scores)
    if fusion == "weighted":
        share = vector_weight if is_vector else 1 - vector_weight
        scaled = f"({score:.9g} - {low:.9g}) / ({high:.9g} - {low:.9g})" if high > low else "1"
        return f"{share:g} * {scaled}"
    if is_vector:
        return f"{alpha:g} * ({score:.9g} + 1) / ({high:.9g} + 1)"
    return f"{1 - alpha:g} * {score:.9g} / {high:.9g}" if high else "0"


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


def _convex(exact: ExactScores, alpha: float) -> list[dict[int, float]]:
    vector = _share_of_maximum({rid: -1.0 if cosine is None else cosine for rid, (cosine, _) in exact.items()}, 1.0)
    lexical = _share_of_maximum({rid: bm25 or 0.0 for rid, (_, bm25) in exact.items()}, 0.0)
    return [_times(alpha, vector), _times(1 - alpha, lexical)]


def _share_of_maximum(scores: Mapping[int, float], shift: float) -> dict[int, float]:
    """Shift the scores to a minimum of 0 and divide them by their maximum; all 0 where the maximum is 0."""
    # A cosine may come out a hair below -1, hence the floor.
    shifted = {rid: max(0.0, score + shift) for rid, score in scores.items()}
    top = max(shifted.values(), default=0.0) or 1.0
    return {rid: score / top for rid, score in shifted.items()}


def _exact_of(union: Collection[int], exact: ExactScores | None) -> ExactScores:
    """Pick the exact scores of the union and of nothing else, because the maxima are taken over them."""
    given = exact or {}
    missing = [rid for rid in union if rid not in given]
    if missing:
        raise InputError(f"convex fusion needs the exact scores of every candidate; rids without them: {missing[:5]}")
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
