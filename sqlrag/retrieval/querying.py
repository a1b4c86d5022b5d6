"""The query functions: each opens the file (or takes an open Store), asks, and closes it."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlrag.network import is_url
from sqlrag.options import flag, path, whole
from sqlrag.retrieval.postgres_store import PostgresStore
from sqlrag.retrieval.searching import same_model
from sqlrag.retrieval.store import Store
from sqlrag.retrieval.stores import Stores
from sqlrag.types import DEFAULT_ALPHA, DEFAULT_FEEDBACK_WEIGHT
from sqlrag.wording import counted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike

    from sqlrag.retrieval.results import Results
    from sqlrag.types import AnyEmbedder, AnyStore, AnyStores, Fusion

log = logging.getLogger("sqlrag.query")


def hybrid_query(
    query_text: str,
    db_path: AnyStores,
    model_name: str | None = None,
    top_k: int = 5,
    vector_weight: float = 0.5,
    use_rrf: bool = True,
    vector_top_k: int | None = None,
    fts_top_k: int | None = None,
    include_source_docs: bool = False,
    verbose: bool = False,
    *,
    fusion: Fusion | None = None,
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
    syntax: bool = False,
) -> Results:
    """Search by meaning and by words at once, and fuse both rankings.

    Parameters
    ----------
    query_text
        The question.
    db_path
        The file, or an open :class:`Store`; a list of files, or open :class:`Stores`, are searched as one file.
    model_name
        Only to make sure: the model is taken from the file, and another one is refused.
    top_k
        How many results, 1 or more.
    vector_weight
        Of ``weighted`` fusion: the share of the vector leg, 0..1.
    use_rrf
        False means ``fusion="weighted"``, as in the published package. Ignored where ``fusion`` is given.
    vector_top_k, fts_top_k
        Candidates of each leg: 50 unless given, never fewer than ``top_k``.
    include_source_docs
        Put the whole source document into each result's ``source_doc``.
    verbose
        Log the stages and their times at level INFO.
    fusion
        ``"rrf"`` (default): reciprocal rank fusion. ``"weighted"``: each leg's candidates scaled to 0..1.
        ``"convex"``: ``alpha * (cos + 1) / (max cos + 1) + (1 - alpha) * bm25 / max bm25`` over all candidates.
    alpha
        Of ``convex`` fusion: the share of the vector score, 0..1.
    rrf_k, rrf_weights
        Of ``rrf``: its constant, and the weights of the vector and the lexical leg.
    k1, b, heading_weight
        Of BM25: saturation (0 or more), length normalisation (0..1) and the weight of the heading path beside the
        text (0 or more; the file's own unless given).
    fields
        Where the words are looked for: "text", "heading_path" or both (the default).
    collection, tags_any, tags_all, metadata
        Filters, applied in both legs before they rank: one or more collections; at least one of the tags; all of the
        tags; top-level metadata fields that equal these values or meet operators, ``{"year": {"$gte": 2020}}``:
        ``$eq $ne $gt $gte $lt $lte``, ``$in $nin`` (one of a list or not), ``$contains $any $all`` (of a list
        field: it holds the value, one of a list, all of it), ``$text_match $text_match_insensitive`` (a part of the
        text), ``$exists $empty``. ``$and``, ``$or`` (lists of such filters) and ``$not`` combine them; ``$doc_id`` and
        ``$node_id`` stand for the chunk's own.
    query_vector
        ``[dimensions]``: the question's vector, where you have it already. Brought to unit length.
    exact
        Compare the question with every vector instead of with the best candidates by sign code.
    min_similarity
        Drop candidates of the vector leg whose cosine is lower, -1..1.
    strict
        Raise where one leg cannot answer, instead of answering from the other with a notice.
    feedback, feedback_weight
        Search twice: the vectors of so many of the best chunks, say 2, are taken for relevant and pull the question's
        vector towards their mean, by this share (0..1). Then ``vector_score`` is the cosine to the moved vector.
    syntax
        Read quotes and stars in the question as :func:`lexical_query` does. A question in natural language often has
        quotes that mean something else, so here it is off unless asked for.
    expansion
        Search twice: so many terms, say 10, that tell the 10 best chunks from others are added to the question's words.

    Returns
    -------
    Results
        A list of dicts, best first; ties in the order of ``doc_id, chunk_index``. ``score_type`` is the fusion, or
        ``"bm25"`` where the question could not be embedded and ``"vector"`` where the file has no lexical index (then
        ``.notices`` says why). An RRF score says how well
        the legs agree, not how relevant a chunk is: look at ``vector_score`` and ``lexical_score`` for that.

    Raises
    ------
    InputError
        The question is blank, or an option is out of its range.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError
        The file cannot be used; see :mod:`sqlrag.errors`.
    ModelMismatchError
        Another model, or a vector of another length, than the file's.

    Examples
    --------
    >>> results = hybrid_query("How do I filter by tag?", "kb.duckdb", top_k=3)  # doctest: +SKIP
    >>> results[0]["node_id"], results[0]["score"]  # doctest: +SKIP
    ('guides/filters.md#2', 0.032787)
    """
    use_rrf, verbose = flag("use_rrf", use_rrf), flag("verbose", verbose)
    fts_top_k = None if fts_top_k is None else whole("fts_top_k", fts_top_k, 1)
    with opened_to_read(db_path) as store:
        results = store.hybrid_query(
            query_text,
            top_k=top_k,
            fusion=("rrf" if use_rrf else "weighted") if fusion is None else fusion,
            vector_weight=vector_weight,
            alpha=alpha,
            rrf_k=rrf_k,
            rrf_weights=rrf_weights,
            vector_top_k=vector_top_k,
            lexical_top_k=fts_top_k,
            k1=k1,
            b=b,
            heading_weight=heading_weight,
            fields=fields,
            collection=collection,
            tags_any=tags_any,
            tags_all=tags_all,
            metadata=metadata,
            query_vector=query_vector,
            model_name=model_name,
            exact=exact,
            min_similarity=min_similarity,
            include_source_docs=include_source_docs,
            strict=strict,
            feedback=feedback,
            feedback_weight=feedback_weight,
            expansion=expansion,
            syntax=syntax,
        )
    if not use_rrf and fusion not in (None, "weighted"):
        results.notices.append(f"use_rrf=False has no effect with fusion={fusion!r}.")
    if verbose:
        stages = ", ".join(f"{stage} {seconds * 1000:.1f} ms" for stage, seconds in results.timings.items())
        log.info("%s for %r: %s", counted(len(results), "result"), query_text, stages)
    return results


def vector_query(
    query_text: str,
    db_path: AnyStores,
    model_name: str | None = None,
    top_k: int = 5,
    *,
    collection: str | Sequence[str] | None = None,
    tags_any: Sequence[str] | None = None,
    tags_all: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    query_vector: ArrayLike | None = None,
    exact: bool = False,
    min_similarity: float | None = None,
    include_source_docs: bool = False,
) -> Results:
    """Search by meaning alone: the chunks whose vectors are nearest to the question's by cosine.

    Parameters
    ----------
    query_text
        The question; may be blank where ``query_vector`` is given.
    db_path, model_name, top_k
        As in :func:`hybrid_query`.
    collection, tags_any, tags_all, metadata
        Filters, as in :func:`hybrid_query`.
    query_vector, exact, min_similarity, include_source_docs
        As in :func:`hybrid_query`.

    Returns
    -------
    Results
        A list of dicts, nearest first; ties in the order of ``doc_id, chunk_index``. ``score`` is the cosine, -1..1;
        ``score_type`` is ``"vector"``.

    Raises
    ------
    InputError, NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError, ModelMismatchError
        As for :func:`hybrid_query`.
    ModelUnavailableError, MissingExtraError, ProviderError
        The question cannot be embedded.
    """
    with opened_to_read(db_path) as store:
        return store.vector_query(
            query_text,
            top_k=top_k,
            collection=collection,
            tags_any=tags_any,
            tags_all=tags_all,
            metadata=metadata,
            query_vector=query_vector,
            model_name=model_name,
            exact=exact,
            min_similarity=min_similarity,
            include_source_docs=include_source_docs,
        )


def lexical_query(
    query_text: str,
    db_path: AnyStores,
    top_k: int = 5,
    *,
    k1: float = 1.2,
    b: float = 0.75,
    heading_weight: float | None = None,
    fields: str | Sequence[str] | None = None,
    conjunctive: bool = False,
    syntax: bool = True,
    collection: str | Sequence[str] | None = None,
    tags_any: Sequence[str] | None = None,
    tags_all: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    include_source_docs: bool = False,
) -> Results:
    """Search by words alone, ranked by BM25.

    Parameters
    ----------
    query_text
        The words.
    db_path, top_k, include_source_docs
        As in :func:`hybrid_query`.
    k1, b, heading_weight, fields
        Of BM25, as in :func:`hybrid_query`.
    conjunctive
        Only chunks that hold every word.
    syntax
        Words in double quotes have to follow each other, as they are written but for case and accents; ``vect*`` stands
        for every word that begins so, weighed as one word that stands in all of their chunks. Anything else is plain
        words, as everything is with False.
    collection, tags_any, tags_all, metadata
        Filters, as in :func:`hybrid_query`.

    Returns
    -------
    Results
        A list of dicts, best first; ties in the order of ``doc_id, chunk_index``. ``score`` is BM25, above 0, to be
        compared within one query only; ``score_type`` is ``"bm25"``.

    Raises
    ------
    InputError, NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError
        As for :func:`hybrid_query`.

    References
    ----------
    Robertson, Zaragoza: The Probabilistic Relevance Framework: BM25 and Beyond, 2009, section 3.
    """
    with opened_to_read(db_path) as store:
        return store.lexical_query(
            query_text,
            top_k=top_k,
            k1=k1,
            b=b,
            heading_weight=heading_weight,
            fields=fields,
            conjunctive=conjunctive,
            syntax=syntax,
            collection=collection,
            tags_any=tags_any,
            tags_all=tags_all,
            metadata=metadata,
            include_source_docs=include_source_docs,
        )


def get_source_documents(chunk_ids: Sequence[str], db_path: AnyStores) -> list[dict[str, Any]]:
    """Return the whole documents that chunks come from, each once, in the order in which the chunks name them.

    Parameters
    ----------
    chunk_ids
        The ``node_id`` of each chunk.
    db_path
        The file or files, as in :func:`hybrid_query`.

    Returns
    -------
    list of dict
        ``doc_id, file_path, file_name, text, metadata``; ``text[i_start:i_end]`` is a chunk's text.

    Raises
    ------
    InputError
        ``chunk_ids`` is no list of strings.
    NotFoundError
        The file holds no chunk of one of these ids, or is not there.
    NotAStoreError, SchemaVersionError, StoreLockedError
        The file cannot be used; see :mod:`sqlrag.errors`.
    """
    with opened_to_read(db_path) as store:
        return store.get_source_documents(chunk_ids)


def get_embedding_metadata(db_path: AnyStores) -> dict[str, Any]:
    """Return what a file says of itself: its model, how it was cut, what it holds.

    Parameters
    ----------
    db_path
        The file, or an open :class:`Store`; of several files the counts are those of all.

    Returns
    -------
    dict
        ``version``, ``created_at`` and the groups ``embedding``, ``chunking``, ``source_documents``, ``chunks``,
        ``capabilities`` and ``store``.

    Raises
    ------
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError
        The file cannot be used; see :mod:`sqlrag.errors`.
    """
    with opened_to_read(db_path) as store:
        return store.get_embedding_metadata()


def validate_embedding_model(
    db_path: str | os.PathLike[str] | Store, model_name: str, expected_dimensions: int | None = None
) -> bool:
    """Return whether a file was built with this model, and with this number of dimensions where it is given.

    Only names and numbers are compared; every query compares the vectors as well.

    Parameters
    ----------
    db_path
        The file, or an open :class:`Store`.
    model_name
        Any of its names, such as "all-MiniLM-L6-v2" or "sentence-transformers/all-MiniLM-L6-v2".
    expected_dimensions
        How many values a vector has, 1 or more. None: any number.

    Returns
    -------
    bool
        False where either is another.

    Raises
    ------
    InputError
        ``model_name`` is blank, or ``expected_dimensions`` no whole number of 1 or more.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError
        The file cannot be used; see :mod:`sqlrag.errors`.
    """
    if expected_dimensions is not None:
        whole("expected_dimensions", expected_dimensions, 1)
    embedding = get_embedding_metadata(db_path)["embedding"]
    return same_model(model_name, embedding["model"]) and expected_dimensions in (None, embedding["dimensions"])


@contextmanager
def opened(db_path: str | os.PathLike[str] | Store, *, read_only: bool = True) -> Iterator[Store]:
    """Yield the store of a file: the one that was passed, left open, or the file's, closed at the end."""
    with opened_any(db_path, read_only=read_only) as store:
        if not isinstance(store, Store):
            store.cursor()  # says that this needs a file
        yield store  # type: ignore[misc]


@contextmanager
def opened_any(db_path: AnyStore, *, read_only: bool = True) -> Iterator[Store | PostgresStore]:
    """Yield a store: the one that was passed, left open, or that of a file or URL, closed at the end."""
    if isinstance(db_path, (Store, PostgresStore)):
        yield db_path
        return
    path("db_path", db_path)
    with open_store(db_path, read_only=read_only) as store:
        yield store


def open_store(
    db_path: str | os.PathLike[str],
    *,
    read_only: bool = True,
    embedder: AnyEmbedder | None = None,
    wait_seconds: float | None = None,
) -> Store | PostgresStore:
    """Return the open store of a file, or of a ``postgresql://`` URL."""
    if is_url(db_path):
        return PostgresStore(str(db_path), read_only=read_only, embedder=embedder, wait_seconds=wait_seconds)
    return Store(db_path, read_only=read_only, embedder=embedder, wait_seconds=wait_seconds)


@contextmanager
def opened_to_read(db_path: AnyStores) -> Iterator[Store | PostgresStore | Stores]:
    """Yield what to search: as :func:`opened_any`, or several files as one."""
    if isinstance(db_path, Stores):
        yield db_path
    elif isinstance(db_path, (list, tuple)):
        with Stores(db_path) as stores:
            yield stores
    else:
        with opened_any(db_path) as store:
            yield store
