"""A query of llama-index as a search in an open store."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from llama_index.core.vector_stores.types import VectorStoreQueryMode as Mode

from sqlrag import InputError, Store, rerank
from sqlrag.adapters.arguments import check_names
from sqlrag.adapters.llama_index_filters import restrictions
from sqlrag.options import number

if TYPE_CHECKING:
    from collections.abc import Callable

    from llama_index.core.vector_stores.types import VectorStoreQuery

_MODES: dict[Mode, Callable[..., Any]] = {
    Mode.DEFAULT: Store.vector_query,
    Mode.TEXT_SEARCH: Store.lexical_query,
    Mode.SPARSE: Store.lexical_query,
    Mode.HYBRID: Store.hybrid_query,
    Mode.MMR: Store.vector_query,
}
# What the query itself says.
_OF_THE_QUERY = {"self", "query_text", "query_vector", "top_k"}


def search(store: Store, query: VectorStoreQuery, options: dict[str, Any]) -> tuple[list[tuple[str, float]], list[str]]:
    """Return (node_id, score), best first, and the notices of a query; ``options`` are more of the search's arguments.

    Raises
    ------
    InputError
        There is no such mode here, what the mode needs is missing, or an option is none of the search.
    """
    mode, text, top_k = Mode(query.mode), query.query_str or "", query.similarity_top_k
    if mode not in _MODES:
        raise InputError(f"There is no mode {mode.value!r} here. Modes: {', '.join(one.value for one in _MODES)}.")
    known = inspect.signature(_MODES[mode]).parameters.keys() - _OF_THE_QUERY
    known |= {"mmr_threshold", "mmr_prefetch_k"} if mode is Mode.MMR else set()
    other_names = dict.fromkeys(("top_k", "k"), "similarity_top_k of the VectorStoreQuery")
    check_names(f"A query of the mode {mode.value!r}", options, known, other_names)
    options = {**options, "metadata": restrictions(query, options.get("metadata"))}
    if mode is Mode.MMR:
        return _diverse(store, query, options)
    if mode is Mode.DEFAULT:
        results = store.vector_query(text, top_k=top_k, query_vector=query.query_embedding, **options)
    elif mode is Mode.HYBRID:
        results = store.hybrid_query(text, **{**_hybrid(query), **options})
    else:
        results = store.lexical_query(text, top_k=query.sparse_top_k or top_k, **options)
    return [(row["node_id"], row["score"]) for row in results], results.notices


def _hybrid(query: VectorStoreQuery) -> dict[str, Any]:
    """Return the arguments of a hybrid search: alpha chooses convex fusion, reciprocal ranks are fused without it."""
    return {
        "top_k": query.hybrid_top_k or query.similarity_top_k,
        "vector_top_k": query.similarity_top_k if query.hybrid_top_k else None,
        "lexical_top_k": query.sparse_top_k,
        "query_vector": query.query_embedding,
        **({} if query.alpha is None else {"fusion": "convex", "alpha": query.alpha}),
    }


def _diverse(
    store: Store, query: VectorStoreQuery, options: dict[str, Any]
) -> tuple[list[tuple[str, float]], list[str]]:
    """Return the nodes that Maximal Marginal Relevance takes out of the nearest ones."""
    threshold = options.pop("mmr_threshold", query.mmr_threshold)
    threshold = 0.5 if threshold is None else number("mmr_threshold", threshold, 0, 1)
    pool = options.pop("mmr_prefetch_k", max(50, 4 * query.similarity_top_k))
    vector: Any = query.query_embedding  # a list, or an array of numpy, whose truth says nothing
    if vector is None or len(vector) == 0:
        vector = store.query_vector(query.query_str or "")
    results = store.vector_query(query.query_str or "", top_k=pool, query_vector=vector, **options)
    if not results:
        return [], results.notices
    picked = rerank(
        query.query_str or "a vector",  # vectors alone are compared
        results.found,
        top_n=query.similarity_top_k,
        diversity=1 - threshold,
        vectors=store.vectors([row["node_id"] for row in results]),
        query_vector=vector,
    )
    return [(one.node_id, one.score) for one in picked], results.notices
