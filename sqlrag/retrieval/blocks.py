"""The blocks of a search, for programs that compose their own: retrieve, fuse and package."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, get_args

from sqlrag.errors import InputError
from sqlrag.options import choice, items, mapping, shown, text
from sqlrag.retrieval.fusion import LegHit, fuse_legs, reciprocal_rank_fusion
from sqlrag.retrieval.ordering import checked, order_key
from sqlrag.retrieval.results import Results
from sqlrag.retrieval.rows import as_row
from sqlrag.stopping import checkpoint
from sqlrag.types import Candidate, Candidates, Fusion, RetrievePlan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike


class RetrievalStore(Protocol):
    """What the blocks ask of a store. :class:`sqlrag.Store` is one; another engine can be another."""

    def retrieve(self, query: str, plan: RetrievePlan, *, query_vector: ArrayLike | None = None) -> list[Candidate]:
        """Return candidates for a question, best first; see :func:`retrieve`."""
        ...

    def sources(self, doc_ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """Return the stored documents by ``doc_id``, with ``text``, ``file_path``, ``file_name`` and ``metadata``."""
        ...


def retrieve(
    query: str, plan: RetrievePlan | None, store: RetrievalStore, *, query_vector: ArrayLike | None = None
) -> list[Candidate]:
    """Find the chunks that fit a question: candidates of each leg, filtered, fused where there are two.

    Parameters
    ----------
    query
        The question; may be blank in vector mode if its vector is given.
    plan
        What to do. None: ``RetrievePlan()``.
    store
        An open :class:`sqlrag.Store`.
    query_vector
        ``[dimensions] float32``, the vector of the question if it is known; it need not have unit length.

    Returns
    -------
    list of Candidate
        At most ``plan.k``, best first, ties by ``doc_id`` and ``chunk_index``. The same store, question and plan give
        the same list. From a :class:`sqlrag.Store` it is a :class:`sqlrag.Candidates`, with notices and timings.

    Raises
    ------
    InputError
        The question is blank or an option is out of its range.
    ModelUnavailableError, MissingExtraError, ProviderError, ModelMismatchError
        As for :func:`sqlrag.hybrid_query`.
    """
    if isinstance(store, type) or not callable(getattr(store, "retrieve", None)):
        raise InputError(f"store must be an open store, such as sqlrag.Store('kb.duckdb'), not {shown(store)}.")
    return store.retrieve(query, RetrievePlan() if plan is None else plan, query_vector=query_vector)


def fuse(
    candidate_sets: Sequence[Sequence[Candidate]], method: Fusion = "rrf", params: Mapping[str, Any] | None = None
) -> Candidates:
    """Fuse ranked lists of candidates into one. A pure function.

    Parameters
    ----------
    candidate_sets
        Lists, each best first. "rrf" takes any number of them and looks at places only. "weighted" and "convex" take
        two, of the vector leg and of the lexical leg, and look at their scores.
    method
        "rrf": ``Σ weight / (rrf_k + rank)``, rank from 1. "weighted": each list's scores scaled to 0..1, then weighed.
        "convex": ``alpha·(cos + 1) / (max cos + 1) + (1 - alpha)·bm25 / max bm25`` over the ``vector_score`` and
        ``lexical_score`` of the candidates; a score that is None adds 0.
    params
        "rrf": ``rrf_k`` (60) and ``weights``, one per list. "weighted": ``vector_weight`` (0.5). "convex": ``alpha``.

    Returns
    -------
    Candidates
        Each chunk once, highest score first, ties by ``doc_id`` and ``chunk_index``. Scores are rounded to 9 decimals.
        What the lists know of a chunk's ranks and scores in the legs is put together, and so are their notices (each
        once), timings (added up by stage) and dropped candidates (but for those that another list holds).

    Raises
    ------
    InputError
        The method or a parameter is unknown or out of its range, or the number of lists does not fit.

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
    wanted = {"rrf": {"rrf_k", "weights"}, "weighted": {"vector_weight"}, "convex": {"alpha"}}
    choice("method", method, get_args(Fusion))
    if set(options) - wanted[method]:
        unknown = ", ".join(sorted(set(options) - wanted[method]))
        raise InputError(f"params has {unknown}; {method!r} takes {', '.join(sorted(wanted[method]))}")
    sets = [checked(candidates) for candidates in items("candidate_sets", candidate_sets, "[by_meaning, by_word]")]
    known: dict[str, Candidate] = {}
    for candidate in (candidate for candidates in sets for candidate in candidates):
        known[candidate.node_id] = _together(known.get(candidate.node_id), candidate)
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
    return _with_all_told(sorted(fused, key=lambda hit: order_key(hit.score, hit)), sets)


def package(
    candidates: Iterable[Candidate],
    *,
    query_text: str = "",
    sources: Mapping[str, Mapping[str, Any]] | None = None,
    notices: Iterable[str] = (),
) -> Results:
    """Return candidates as results: the plain dicts that every query gives, in the order of the candidates.

    Parameters
    ----------
    candidates
        Best first.
    query_text
        What was asked.
    sources
        By ``doc_id``, what ``source_doc`` shall hold, such as ``store.sources(ids)``. None: nothing.
    notices
        What the reader should know of the answer, beside the notices of the candidates.

    Returns
    -------
    Results
        With the keys of ``sqlrag.retrieval.results.RESULT_KEYS``, and the notices and timings of the candidates.

    Raises
    ------
    InputError
        The candidates are no list of :class:`sqlrag.Candidate`, or an argument is of the wrong type.
    """
    given = checked(candidates)
    documents = {} if sources is None else mapping("sources", sources)
    told = [text("One of notices", notice) for notice in items("notices", notices, "['shortened']")]
    rows = []
    for found in given:
        checkpoint()
        source = documents.get(found.doc_id)
        rows.append(as_row(found, None if source is None else mapping("A source", source)))
    text("query_text", query_text)
    return Results(rows, query_text=query_text, notices=[*given.notices, *told], timings=given.timings)


def _together(one: Candidate | None, other: Candidate) -> Candidate:
    """Return a candidate with what two lists know of its place in the legs."""
    if one is None:
        return other
    fields = ("vector_score", "vector_rank", "lexical_score", "lexical_rank")
    return replace(one, **{name: getattr(other, name) for name in fields if getattr(one, name) is None})


def _with_all_told(fused: Sequence[Candidate], sets: Sequence[Candidates]) -> Candidates:
    """Return the fused candidates with what is known of the sets."""
    told = Candidates(fused, notices=dict.fromkeys(notice for candidates in sets for notice in candidates.notices))
    held = {candidate.node_id for candidate in fused}
    for candidates in sets:
        for stage, seconds in candidates.timings.items():
            told.timings[stage] = told.timings.get(stage, 0.0) + seconds
        for kept, others in candidates.dropped.items():
            names = told.dropped.setdefault(kept, [])
            names += [other for other in others if other not in held and other not in names]
    told.dropped = {kept: names for kept, names in told.dropped.items() if names}
    return told


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
