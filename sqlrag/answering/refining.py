"""Between the search and the prompt: repeats are left out; the rest is ordered anew and shortened where asked for."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlrag import options
from sqlrag.answering.contexts import contexts_of
from sqlrag.embedders.base import without_surrogates
from sqlrag.errors import InputError, NotFoundError
from sqlrag.retrieval.compressing import CompressPolicy, compress
from sqlrag.retrieval.duplicates import drop_near_duplicates
from sqlrag.retrieval.embedding import EMBEDDING_FAILURES
from sqlrag.retrieval.reranking import rerank
from sqlrag.types import Candidate, Candidates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from sqlrag.answering.contexts import Item
    from sqlrag.retrieval.cross_encoders import Reranker

COSINE = "cosine"
"""The name that orders by the cosine of the stored vectors, in place of a cross-encoder's."""


@dataclass(frozen=True)
class Refinement:
    """What happens to what was found, checked: the options of the same names of :func:`sqlrag.answer`."""

    rerank: str | Reranker | None = None
    diversity: float | None = None
    compress: bool | CompressPolicy = False

    def __post_init__(self) -> None:
        if not (self.rerank is None or callable(self.rerank) or (isinstance(self.rerank, str) and self.rerank.strip())):
            raise InputError(
                f'rerank must be "{COSINE}", the name or folder of a cross-encoder, or a callable, '
                f"not {options.shown(self.rerank)}."
            )
        if self.diversity is not None:
            options.number("diversity", self.diversity, 0, 1)
        if not isinstance(self.compress, CompressPolicy):
            options.flag("compress", self.compress)

    @property
    def reorders(self) -> bool:
        """Whether anything changes the order."""
        return self.rerank is not None or bool(self.diversity)


def distinct(items: Sequence[Item]) -> tuple[list[Item], list[tuple[str, str]]]:
    """Return the items without those whose text a better one has; and pairs of node_ids, the better one's first.

    Texts that differ in blank space and case only are the same.
    """
    contexts = contexts_of(items)
    places = [Candidate("", place, context.text) for place, context in enumerate(contexts)]
    kept = drop_near_duplicates(places)
    name = {place.node_id: contexts[place.chunk_index].node_id for place in places}
    repeats = [(name[best], name[other]) for best, others in kept.dropped.items() for other in others]
    return [items[place.chunk_index] for place in kept], repeats


def reordered(question: str, items: Sequence[Item], store: Any, wanted: Refinement, keep: int | None) -> Candidates:
    """Return the best ``keep`` of the items in their new order; where that cannot be had, in the old one with a notice.

    Raises
    ------
    InputError
        An item is no candidate or result, or vectors are needed and there is no store with them.
    """
    candidates = _candidates(items)
    by_cosine = wanted.rerank == COSINE
    vectors = target = None
    if candidates and (by_cosine or wanted.diversity):
        vectors = _vectors(store, [candidate.node_id for candidate in candidates])
        if vectors is None:
            return _as_they_were(candidates, keep, "the file has no sound vectors of some of these chunks.")
    if candidates and by_cosine:
        try:
            # The search has just embedded it, so it is remembered; if that failed, it is not waited for twice.
            target = store.query_vector(question, patient=False)
        except EMBEDDING_FAILURES as error:
            return _as_they_were(candidates, keep, str(error))
    return rerank(
        question,
        candidates,
        None if by_cosine else wanted.rerank,
        top_n=keep,
        diversity=wanted.diversity,
        vectors=vectors,
        query_vector=target,
    )


def shortened(question: str, items: Sequence[Item], store: Any, wanted: bool | CompressPolicy) -> list[dict[str, Any]]:
    """Return the passages that :func:`sqlrag.compress` makes of the items, by the stemmer of the store unless told."""
    policy = wanted if isinstance(wanted, CompressPolicy) else CompressPolicy()
    if policy is not wanted and hasattr(store, "get_embedding_metadata"):
        policy = replace(policy, stemmer=store.get_embedding_metadata()["store"]["stemmer"])
    # A store of another engine need not have neighbours to give.
    reader = store if hasattr(store, "chunks_at") else None
    return compress(question, _candidates(items), policy, store=reader)


def _candidates(items: Sequence[Item]) -> list[Candidate]:
    """Return the items as candidates whose text every tokenizer takes."""
    candidates = [item if isinstance(item, Candidate) else _candidate(item) for item in items]
    return [replace(candidate, content=without_surrogates(candidate.content)) for candidate in candidates]


def _candidate(row: Mapping[str, Any]) -> Candidate:
    needed: dict[str, type] = {"doc_id": str, "chunk_index": int, "score": Real}
    if row.get("spans") or not all(isinstance(row.get(name), kind) for name, kind in needed.items()):
        raise InputError(
            "What is re-ranked or compressed must be candidates, or results as a query gives them, with doc_id, "
            f"chunk_index and score, and not compressed before; one is {options.shown(row)}."
        )
    known = {field.name: row[field.name] for field in fields(Candidate) if row.get(field.name) is not None}
    known.update({name: tuple(known[name]) for name in ("tags", "heading_path") if name in known}, content=row["text"])
    return Candidate(**known)


def _vectors(store: Any, node_ids: Sequence[str]) -> NDArray[np.float32] | None:
    """Return the stored vectors of chunks, ``[n, dimensions]``; None where one is missing or damaged."""
    if not hasattr(store, "vectors"):
        raise InputError(
            f'rerank="{COSINE}" and diversity need the vectors of a file: pass db_path, or leave them out.'
        )
    try:
        vectors: NDArray[np.float32] = store.vectors(node_ids)
    except NotFoundError:
        return None
    return vectors if np.isfinite(vectors).all() and vectors.any(axis=1).all() else None


def _as_they_were(candidates: list[Candidate], keep: int | None, why: str) -> Candidates:
    return Candidates(candidates[:keep], notices=[f"Not re-ranked, the order is as it was: {why}"])
