"""Order candidates anew: by cosine, by a cross-encoder or any function, and by how little they repeat each other."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sqlrag import options
from sqlrag.errors import InputError, ModelUnavailableError, ProviderError
from sqlrag.retrieval.cross_encoders import load_reranker
from sqlrag.retrieval.ordering import checked, order_key, rounded, unit_row, unit_rows
from sqlrag.store.vectors import as_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from sqlrag.retrieval.cross_encoders import Reranker
    from sqlrag.types import Candidate, Candidates

    Numbers = NDArray[np.float64]

logger = logging.getLogger(__name__)


def rerank(
    query: str,
    candidates: Sequence[Candidate],
    model: str | Reranker | None = None,
    *,
    top_n: int | None = None,
    depth: int | None = None,
    diversity: float | None = None,
    vectors: ArrayLike | None = None,
    query_vector: ArrayLike | None = None,
    strict: bool = False,
) -> Candidates:
    """Order candidates anew; pure given its arguments.

    - With ``model`` by its score for the question and each content.
    - With ``vectors`` and ``query_vector`` by their cosine.
    - With ``vectors`` and ``diversity`` alone by the scores they have, and by how little they repeat each other.

    No candidates give ``[]`` before any model is loaded.

    Parameters
    ----------
    query
        The question; not blank.
    candidates
        Best first, as :func:`sqlrag.retrieve` gives them.
    model
        A name or folder for :func:`sqlrag.load_reranker`, or any callable ``(query, texts) -> scores`` that gives one
        finite number per text, ``[n]`` or ``[n, 1]``, higher is better.
    top_n
        How many to return, 1 or more; None, and more than there are, is all of them.
    depth
        How many of the first are ordered anew, 1 or more; None is all. The others follow in the order they had, with
        the scores they had, which are of another kind.
    diversity
        0..1, needs ``vectors``: Maximal Marginal Relevance with λ = 1 - ``diversity``. One by one the candidate is
        taken that has the highest ``λ · relevance - (1 - λ) · closest``, where ``closest`` is its greatest cosine with
        one that was taken before (0 at least). The relevance is the cosine, or else the score scaled to 0..1 over the
        candidates that are ordered anew (1 where all are equal). None and 0 leave it out.
    vectors
        ``[n, d] float32``, row i for candidate i, of any length but zero.
    query_vector
        ``[d] float32``, of the same model; instead of ``model``.
    strict
        Whether a model that fails is an error. Otherwise the candidates come back in the order they had, and a notice
        and a warning in the log say why.

    Returns
    -------
    Candidates
        With the ``.notices``, ``.timings`` and ``.dropped`` they came with. Highest score first, ties by ``doc_id``,
        then ``chunk_index`` (with ``diversity`` by relevance before these). ``score`` is rounded to 9 decimals,
        ``score_type`` is "rerank", or "mmr" with ``diversity``; every other field is as it was, the scores and ranks of
        the legs among them.

    Raises
    ------
    InputError
        The question is blank, an option is out of its range, nothing says what to order by, or the vectors do not fit
        the candidates, are zero or not finite.
    MissingExtraError
        The model needs an optional package.
    ModelUnavailableError, ProviderError
        With ``strict``: the model cannot be loaded; it failed, or gave scores that are not finite or not one per text.

    References
    ----------
    Carbonell, Goldstein: The Use of MMR, Diversity-Based Reranking for Reordering Documents and Producing Summaries,
    SIGIR 1998, section 2.

    Examples
    --------
    >>> from sqlrag.types import Candidate
    >>> found = [Candidate("a.md", 0, "a green apple"), Candidate("b.md", 0, "a pear and a pear tree")]
    >>> [(c.doc_id, c.score) for c in rerank("pear", found, lambda query, texts: [t.count(query) for t in texts])]
    [('b.md', 2.0), ('a.md', 0.0)]
    """
    options.not_blank("query", query)
    top_n, depth = (
        None if count is None else options.whole(name, count, 1) for name, count in (("top_n", top_n), ("depth", depth))
    )
    diversity = None if diversity is None else options.number("diversity", diversity, 0, 1)
    strict = options.flag("strict", strict)
    _check_order(model, diversity, vectors, query_vector)
    before = checked(candidates)
    if not before:
        return before
    unit = None if vectors is None else unit_rows(vectors, before)
    target = None if unit is None or query_vector is None else unit_row("query_vector", query_vector, unit.shape[1])
    count = len(before) if depth is None else min(depth, len(before))
    head, tail = before[:count], before[count:]
    try:
        relevance = _relevance(query, head, model, unit, target)
    except (ModelUnavailableError, ProviderError) as error:
        if strict:
            raise
        notice = f"Not re-ranked, the order is as it was: {error}"
        logger.warning(notice)
        before.notices.append(notice)
        return before[:top_n]
    if diversity and unit is not None:
        scaled = relevance if target is not None else _scaled(relevance)
        picked = _most_marginal(head, scaled, unit, diversity, len(head) if top_n is None else min(top_n, len(head)))
        ordered = [replace(head[i], score=score, score_type="mmr") for i, score in picked]
    else:
        rescored = [replace(c, score=float(s), score_type="rerank") for c, s in zip(head, relevance, strict=True)]
        ordered = sorted(rescored, key=lambda candidate: order_key(candidate.score, candidate))
    return before.holding([*ordered, *tail][:top_n])


def _relevance(
    query: str,
    head: Sequence[Candidate],
    model: str | Reranker | None,
    unit: Numbers | None,
    target: Numbers | None,
) -> Numbers:
    """Return the candidates' scores, rounded to 9 decimals, ``[n] float64``."""
    if model is not None:
        scores = _scores_of(model, query, [candidate.content for candidate in head])
    elif unit is not None and target is not None:
        scores = np.clip(unit[: len(head)] @ target, -1, 1)
    else:
        scores = as_numbers("The scores of the candidates", [candidate.score for candidate in head], np.float64)
        if not np.isfinite(scores).all():
            raise InputError("A candidate's score is not finite, so it cannot be weighed against diversity.")
    return rounded(scores)


def _scores_of(model: str | Reranker, query: str, texts: list[str]) -> Numbers:
    """Ask the model; whatever goes wrong in it is a ProviderError, save what the caller has to mend."""
    name = repr(model) if isinstance(model, str) else getattr(model, "__qualname__", type(model).__name__)
    scorer = load_reranker(model) if isinstance(model, str) else model
    try:
        given = scorer(query, texts)
        scores = as_numbers("The scores", given, np.float64)
    except ProviderError:
        raise
    except Exception as error:
        raise ProviderError(f"The re-ranking model {name} failed: {type(error).__name__}: {error}") from error
    if scores.shape not in ((len(texts),), (len(texts), 1)):
        raise ProviderError(
            f"The re-ranking model {name} gave scores of the shape {list(scores.shape)} for {len(texts)} texts; "
            f"one number per text is wanted, [{len(texts)}] or [{len(texts)}, 1]."
        )
    scores = scores.reshape(-1)
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        raise ProviderError(f"The re-ranking model {name} gave {scores[bad[0]]} for text {bad[0]} of {len(texts)}.")
    return scores


def _scaled(scores: Numbers) -> Numbers:
    """Scale scores to 0..1 over themselves, 1 where all are equal."""
    if max(scores.max(), -scores.min()) > sys.float_info.max / 2:
        scores = scores / 2  # so that no difference is infinite
    low, high = scores.min(), scores.max()
    return (scores - low) / (high - low) if high > low else np.ones_like(scores)


def _most_marginal(
    head: Sequence[Candidate], relevance: Numbers, unit: Numbers, diversity: float, wanted: int
) -> list[tuple[int, float]]:
    """Return (position, score) of the candidates that MMR takes, in that order; the scores never rise."""
    # The first maximum wins, so the order of ties is the order of the rows.
    rows = sorted(range(len(head)), key=lambda i: order_key(float(relevance[i]), head[i]))
    relevance, unit = relevance[rows], unit[rows]
    closest = np.zeros(len(rows))
    taken = np.zeros(len(rows), dtype=bool)
    picked = []
    for _ in range(wanted):
        marginal = rounded((1 - diversity) * relevance - diversity * closest)
        best = int(np.argmax(np.where(taken, -np.inf, marginal)))
        picked.append((rows[best], float(marginal[best])))
        taken[best] = True
        closest = np.maximum(closest, np.clip(unit @ unit[best], 0, 1))
    return picked


def _check_order(model: object, diversity: float | None, vectors: object, query_vector: object) -> None:
    """Raise InputError unless exactly one thing says what to order by."""
    if isinstance(model, str) and model == "cosine":
        raise InputError(
            '"cosine" is no model: pass vectors and query_vector without one. A Store gives both, by '
            "vectors(node_ids) and query_vector(query)."
        )
    if model is not None and not isinstance(model, str) and not callable(model):
        raise InputError(f"model must be a name, a folder or a callable, not {type(model).__name__}.")
    if model is not None and query_vector is not None:
        raise InputError("Give either model or query_vector to order by, not both.")
    if vectors is None and (diversity or query_vector is not None):
        raise InputError("diversity and query_vector need the candidates' vectors: pass vectors=[n, d].")
    if model is None and query_vector is None and not diversity:
        raise InputError("Nothing says what to order by: pass model, or vectors and query_vector, or diversity.")
