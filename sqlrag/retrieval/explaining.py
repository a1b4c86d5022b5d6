"""Explain why a chunk has its rank for a question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from sqlrag.retrieval.querying import opened
from sqlrag.types import DEFAULT_ALPHA, DEFAULT_FEEDBACK_WEIGHT

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

    from sqlrag.retrieval.explanation import Explanation
    from sqlrag.retrieval.store import Store
    from sqlrag.types import Fusion


def explain(
    query_text: str,
    node_id: str,
    db_path: str | os.PathLike[str] | Store,
    *,
    mode: Literal["hybrid", "vector", "lexical"] = "hybrid",
    model_name: str | None = None,
    top_k: int = 5,
    vector_weight: float = 0.5,
    vector_top_k: int | None = None,
    fts_top_k: int | None = None,
    fusion: Fusion = "rrf",
    alpha: float = DEFAULT_ALPHA,
    rrf_k: float = 60,
    rrf_weights: tuple[float, float] = (1.0, 1.0),
    k1: float = 1.2,
    b: float = 0.75,
    heading_weight: float | None = None,
    fields: str | Sequence[str] | None = None,
    collection: str | Sequence[str] | None = None,
    tags_any: Sequence[str] | None = None,
    tags_all: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    query_vector: ArrayLike | None = None,
    exact: bool = False,
    min_similarity: float | None = None,
    strict: bool = False,
    feedback: int = 0,
    feedback_weight: float = DEFAULT_FEEDBACK_WEIGHT,
    expansion: int = 0,
    syntax: bool | None = None,
    conjunctive: bool = False,
) -> Explanation:
    """Say why a chunk has its rank for a question: the search is run, and its scores are taken apart.

    Parameters
    ----------
    query_text
        The question.
    node_id
        The chunk, found or not.
    db_path
        The file, or an open :class:`Store`.
    mode
        Which search: that of :func:`hybrid_query`, :func:`vector_query` or :func:`lexical_query`.
    model_name, top_k, vector_weight, vector_top_k, fts_top_k, fusion, alpha, rrf_k, rrf_weights
        As they were given to the search; see :func:`hybrid_query`.
    k1, b, heading_weight, fields, collection, tags_any, tags_all, metadata, query_vector, exact, min_similarity
        The same.
    strict, feedback, feedback_weight, expansion
        The same, of :func:`hybrid_query` alone.
    syntax
        Whether quotes and stars mean phrases and prefixes. None: as the search does by itself, which is True for
        "lexical" and False for "hybrid".
    conjunctive
        As in :func:`lexical_query`, with "lexical" only.

    Returns
    -------
    Explanation
        Its score and rank, the cosine, the BM25 score term by term, and what each leg adds. The contributions of the
        terms add up to the BM25 score, those of the legs to the score, each within 1e-9. A chunk that a leg does not
        have among its candidates has a ``reason`` there. ``print`` shows it as text, a notebook as a table.

    Raises
    ------
    NotFoundError
        The file has no such chunk, or is not there.
    InputError, ModelMismatchError, ModelUnavailableError, MissingExtraError, ProviderError
        As for :func:`hybrid_query`.
    NotAStoreError, SchemaVersionError, StoreLockedError
        The file cannot be used; see :mod:`sqlrag.errors`.

    References
    ----------
    Robertson, Zaragoza: The Probabilistic Relevance Framework: BM25 and Beyond, 2009, section 3.

    Examples
    --------
    >>> print(explain("fill a pool", "pools.md#0", "kb.duckdb"))  # doctest: +SKIP
    """
    with opened(db_path) as store:
        return store.explain(
            query_text,
            node_id,
            mode=mode,
            model_name=model_name,
            top_k=top_k,
            vector_weight=vector_weight,
            vector_top_k=vector_top_k,
            lexical_top_k=fts_top_k,
            fusion=fusion,
            alpha=alpha,
            rrf_k=rrf_k,
            rrf_weights=rrf_weights,
            k1=k1,
            b=b,
            heading_weight=heading_weight,
            fields=fields,
            collection=collection,
            tags_any=tags_any,
            tags_all=tags_all,
            metadata=metadata,
            query_vector=query_vector,
            exact=exact,
            min_similarity=min_similarity,
            strict=strict,
            feedback=feedback,
            feedback_weight=feedback_weight,
            expansion=expansion,
            syntax=syntax,
            conjunctive=conjunctive,
        )
