"""The blocks of a search for programs that compose their own: retrieve, fuse and package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Protocol, get_args

import numpy as np

from sqlrag.arguments import choice, items, mapping, shown, text
from sqlrag.cancellation import checkpoint
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.rows import as_row
from sqlrag.errors import InputError
from sqlrag.ranking.fusion import DECIMALS, LegHit, fuse_legs, reciprocal_rank_fusion
from sqlrag.ranking.plan import OF_FUSION
from sqlrag.ranking.results import Results
from sqlrag.ranking.vectors import as_numbers, unit_vectors
from sqlrag.search.open import opened_for
from sqlrag.types import Candidate, Candidates, Fusion, RetrievePlan

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from sqlrag.search.open import AnyStores

# The fields of a candidate that the blocks use: the type, and whether it may be None.
_FIELDS: dict[str, tuple[type | tuple[type, ...], bool]] = {
    **dict.fromkeys(("doc_id", "node_id", "content"), (str, False)),
    **dict.fromkeys(("tags", "heading_path"), ((tuple, list), False)),
    "metadata": (Mapping, False),
    "chunk_index": (Integral, False),
    "score": (Real, False),
    **dict.fromkeys(("i_start", "i_end", "page"), (Integral, True)),
    **dict.fromkeys(("vector_score", "lexical_score"), (Real, True)),
    "shown": (str, True),
}


def checked(candidates: Iterable[Candidate]) -> Candidates:
    """Return a new list of the validated candidates, with their notices, timings and dropped duplicates.

    Raises
    ------
    InputError
        It is not a list, or an item is not a :class:`sqlrag.types.Candidate` with fields of the right types.
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
    """Return scores rounded to 9 decimals; the largest numbers stay as they are, since rounding them overflows."""
    with np.errstate(over="ignore"):
        short = np.round(scores, DECIMALS)
    return np.where(np.isfinite(short), short, scores) + 0.0  # adding zero makes -0.0 a plain 0


def order_key(score: float, candidate: Candidate) -> tuple[float, str, int, str]:
    """Return the sort key of candidates: the score from high to low, then doc_id, chunk_index and node_id."""
    return (-score, candidate.doc_id, candidate.chunk_index, candidate.node_id)


def unit_rows(vectors: ArrayLike, candidates: list[Candidate]) -> NDArray[np.float64]:
    """Return the candidates' vectors at unit length, ``[n, d] float64``, so that equal ones have a cosine of 1.

    Raises
    ------
    InputError
        They are not a matrix with one row per candidate, or a row is zero or not finite.
    """
    array = as_numbers("vectors", vectors, np.float64)
    if array.ndim != 2 or len(array) != len(candidates) or array.shape[1] == 0:
        raise InputError(
            f"vectors must have one row per candidate, [{len(candidates)}, d], not the shape {list(array.shape)}."
        )
    names = [candidate.node_id for candidate in candidates]
    return _as_double(unit_vectors(array, array.shape[1], names))


def unit_row(name: str, vector: ArrayLike, dimensions: int) -> NDArray[np.float64]:
    """Return one vector, ``[d]`` or ``[1, d]``, at unit length, ``[d] float64``; InputError if it does not fit."""
    array = as_numbers(name, vector, np.float64)
    if array.shape not in ((dimensions,), (1, dimensions)):
        raise InputError(f"{name} must have the shape [{dimensions}] like the vectors, not {list(array.shape)}.")
    row: NDArray[np.float64] = _as_double(unit_vectors(array.reshape(1, -1), dimensions, [name]))[0]
    return row


def _as_double(unit: NDArray[np.float32]) -> NDArray[np.float64]:
    rows = unit.astype(np.float64)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


class RetrievalStore(Protocol):
    """The protocol of a store for the blocks, such as :class:`sqlrag.Store` or a store of your own."""

    def retrieve(self, query: str, plan: RetrievePlan, *, query_vector: ArrayLike | None = None) -> list[Candidate]:
        """Return candidates for a question, best first; see :func:`retrieve`."""
        ...

    def sources(self, doc_ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """Return the stored documents by ``doc_id``, with ``text``, ``file_path``, ``file_name`` and ``metadata``."""
        ...


@public
def retrieve(
    query: str, plan: RetrievePlan | None, store: RetrievalStore | AnyStores, *, query_vector: ArrayLike | None = None
) -> list[Candidate]:
    """Find the chunks for a question: candidates of each leg, filtered, and fused if there are two legs.

    Parameters
    ----------
    query
        The question; may be blank in vector mode if its vector is given.
    plan
        How to search. None: ``RetrievePlan()``.
    store
        An open store, or the file or files, as in :func:`sqlrag.hybrid_query`.
    query_vector
        ``[dimensions] float32``, the vector of the question if it is known; it need not have unit length.

    Returns
    -------
    list of Candidate
        At most ``plan.k``, best first, ties by ``doc_id`` and ``chunk_index``. The same store, question and plan
        return the same list. From a :class:`sqlrag.Store` it is a :class:`sqlrag.Candidates`, with notices and timings.

    Raises
    ------
    InputError
        The question is blank or an option is out of its range.
    ModelUnavailableError, MissingExtraError, ProviderError, ModelMismatchError
        As for :func:`sqlrag.hybrid_query`.
    """
    with opened_for(store, ("retrieve",)) as opened:
        found: list[Candidate] = opened.retrieve(
            query, RetrievePlan() if plan is None else plan, query_vector=query_vector
        )
        return found


def fuse(
    candidate_sets: Sequence[Sequence[Candidate]], method: Fusion = "rrf", params: Mapping[str, Any] | None = None
) -> Candidates:
    """Fuse ranked lists of candidates into one. A pure function.

    Parameters
    ----------
    candidate_sets
        Lists, each best first. "rrf" takes any number of them and uses ranks only. "weighted", "convex" and "adaptive"
        take two, of the vector leg and of the lexical leg, and use their scores.
    method
        "rrf": ``Σ weight / (rrf_k + rank)``, rank from 1. "weighted": each list's scores scaled to 0..1, then weighted.
        "convex": ``alpha·(cos + 1) / (max cos + 1) + (1 - alpha)·bm25 / max bm25`` over the ``vector_score`` and
        ``lexical_score`` of the candidates; a score that is None adds 0. "adaptive": the same scores by the weights of
        :func:`hybrid_query`, whose ``trust`` lists of candidates do not tell, so that it has to be given.
    params
        "rrf": ``rrf_k`` (60) and ``weights``, one per list. "weighted": ``vector_weight`` (0.5). "convex": ``alpha``.
        "adaptive": ``trust``, 0..1, as :func:`explain` says it of a question.

    Returns
    -------
    Candidates
        Each chunk once, highest score first, ties by ``doc_id`` and ``chunk_index``. Scores are rounded to 9 decimals.
        Ranks and scores of a chunk in the legs are merged, and so are the lists' notices (each once), timings (added up
        by stage) and dropped candidates (except those that are in another list).

    Raises
    ------
    InputError
        The method or a parameter is unknown or out of its range, or the number of lists does not match.

    References
    ----------
    Cormack, Clarke, Buettcher, SIGIR 2009 (RRF); Bruch, Gai, Ingber, ACM TOIS 42(1), 2023 (convex).

    Examples
    --------
    >>> a, b, c = (Candidate(name, 0, "") for name in "abc")
    >>> [(hit.doc_id, hit.score) for hit in fuse([[a, b], [b, c]])]
    [('b', 0.032522475), ('a', 0.016393443), ('c', 0.016129032)]
    """
    options = {} if params is None else mapping("params", params)
    choice("method", method, get_args(Fusion))
    wanted = {"trust"} if method == "adaptive" else {of.parameter for of in OF_FUSION.values() if of.fusion == method}
    if set(options) - wanted:
        unknown = ", ".join(sorted(set(options) - wanted))
        raise InputError(f"params has {unknown}; {method!r} takes {', '.join(sorted(wanted))}")
    if method == "adaptive" and "trust" not in options:
        raise InputError(
            "adaptive fusion cannot find its trust in lists of candidates: it compares the scores of other chunks. "
            "Pass params={'trust': 1.0} where the vectors are good, or what explain says; or search by hybrid_query."
        )
    sets = [checked(candidates) for candidates in items("candidate_sets", candidate_sets, "[by_meaning, by_word]")]
    known: dict[str, Candidate] = {}
    for candidate in (candidate for candidates in sets for candidate in candidates):
        known[candidate.node_id] = _merged(known.get(candidate.node_id), candidate)
    if method == "rrf":
        scores = dict(
            reciprocal_rank_fusion(
                [[candidate.node_id for candidate in candidates] for candidates in sets],
                options.get("rrf_k", 60),
                weights=options.get("weights"),
            )
        )
    else:
        scores = _by_score(sets, known, method, options)
    fused = [replace(known[node_id], score=score, score_type=method) for node_id, score in scores.items()]
    return _with_details(sorted(fused, key=lambda hit: order_key(hit.score, hit)), sets)


def package(
    candidates: Iterable[Candidate],
    *,
    query_text: str = "",
    sources: Mapping[str, Mapping[str, Any]] | None = None,
    notices: Iterable[str] = (),
) -> Results:
    """Return candidates as results: the dicts that every query returns, in the order of the candidates.

    Parameters
    ----------
    candidates
        Best first.
    query_text
        The question.
    sources
        The ``source_doc`` of results by ``doc_id``, such as ``store.sources(ids)``. None: no source documents.
    notices
        Notices in addition to those of the candidates.

    Returns
    -------
    Results
        With the keys of ``sqlrag.ranking.results.RESULT_KEYS``, and the notices and timings of the candidates.

    Raises
    ------
    InputError
        The candidates are not a list of :class:`sqlrag.Candidate`, or an argument has a wrong type.
    """
    given = checked(candidates)
    documents = {} if sources is None else mapping("sources", sources)
    more = [text("One of notices", notice) for notice in items("notices", notices, "['shortened']")]
    rows = []
    for found in given:
        checkpoint()
        source = documents.get(found.doc_id)
        rows.append(as_row(found, None if source is None else mapping("A source", source)))
    text("query_text", query_text)
    return Results(rows, query_text=query_text, notices=[*given.notices, *more], timings=given.timings)


def _merged(one: Candidate | None, other: Candidate) -> Candidate:
    """Return a candidate with the ranks and scores that two lists have for it."""
    if one is None:
        return other
    fields = ("vector_score", "vector_rank", "lexical_score", "lexical_rank")
    return replace(one, **{name: getattr(other, name) for name in fields if getattr(one, name) is None})


def _with_details(fused: Sequence[Candidate], sets: Sequence[Candidates]) -> Candidates:
    """Return the fused candidates with the notices, timings and dropped duplicates of the sets."""
    merged = Candidates(fused, notices=dict.fromkeys(notice for candidates in sets for notice in candidates.notices))
    present = {candidate.node_id for candidate in fused}
    for candidates in sets:
        for stage, seconds in candidates.timings.items():
            merged.timings[stage] = merged.timings.get(stage, 0.0) + seconds
        for kept, others in candidates.dropped.items():
            names = merged.dropped.setdefault(kept, [])
            names += [other for other in others if other not in present and other not in names]
    merged.dropped = {kept: names for kept, names in merged.dropped.items() if names}
    return merged


def _by_score(
    sets: Sequence[Sequence[Candidate]], known: Mapping[str, Candidate], method: Fusion, options: Mapping[str, Any]
) -> dict[str, float]:
    if len(sets) != 2:
        raise InputError(f"{method!r} fuses the vector leg and the lexical leg: two lists, not {len(sets)}.")
    numbers = {node_id: number for number, node_id in enumerate(known)}
    legs = [
        [LegHit(numbers[hit.node_id], hit.doc_id, hit.chunk_index, hit.score) for hit in candidates]
        for candidates in sets
    ]
    exact = {numbers[node_id]: (hit.vector_score, hit.lexical_score) for node_id, hit in known.items()}
    fused = fuse_legs(legs[0], legs[1], fusion=method, exact=exact, **options)
    names = list(known)
    return {names[hit.rid]: hit.score for hit in fused}
