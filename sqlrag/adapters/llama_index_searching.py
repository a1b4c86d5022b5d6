"""A query of llama-index as a search in an open store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llama_index.core.vector_stores.types import VectorStoreQueryMode as Mode

from sqlrag import InputError, rerank
from sqlrag.adapters.llama_index_filters import restrictions

if TYPE_CHECKING:
    from llama_index.core.vector_stores.types import VectorStoreQuery

    from sqlrag import Store

_MODES = (Mode.DEFAULT, Mode.TEXT_SEARCH, Mode.SPARSE, Mode.HYBRID, Mode.MMR)


def search(store: Store, query: VectorStoreQuery, options: dict[str, Any]) -> tuple[list[tuple[str, float]], list[str]]:
    """Return (node_id, score), best first, and the notices of a query; ``options`` are more of the search's arguments.

    Raises
    ------
    InputError
        There is no such mode here, or what the mode needs is missing.
    """
    mode, text, top_k = Mode(query.mode), query.query_str or "", query.similarity_top_k
    if mode not in _MODES:
        raise InputError(f"There is no mode {mode.value!r} here. Modes: {', '.join(one.value for one in _MODES)}.")
    options = {**options, "metadata": restrictions(query, options.get("metadata"))}
    if mode is Mode.MMR:
        return _diverse(store, query, options)
    if mode is Mode.DEFAULT:
        results = store.vector_query(text, top_k=top_k, query_vector=query.query_embedding, **options)
    elif mode is Mode.HYBRID:
        results = store.hybrid_query(text, **_hybrid(query), **options)
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
    pool = options.pop("mmr_prefetch_k", max(50, 4 * query.similarity_top_k))
    vector = query.query_embedding or store.query_vector(query.query_str or "")
    results = store.vector_query(query.query_str or "", top_k=pool, query_vector=vector, **options)
    picked = rerank(
        query.query_str or "a vector",  # vectors alone are compared
        results.found,
        top_n=query.similarity_top_k,
        diversity=1 - (0.5 if threshold is None else threshold),
        vectors=store.vectors([row["node_id"] for row in results]) if results else None,
        query_vector=vector if results else None,
    )
    return [(one.node_id, one.score) for one in picked], results.notices
