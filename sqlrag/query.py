"""The functions that ask a store: queries, sources, explanations, highlights. Each opens the store and asks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Any

from sqlrag.arguments import Range, counted, flag, refuse_calls, whole
from sqlrag.embedders.base import same_model
from sqlrag.engines.duckdb.failures import public
from sqlrag.ranking.fusion import reciprocal_rank_fusion as reciprocal_rank_fusion  # as in the published package
from sqlrag.ranking.plan import (
    OPTIONS,
    ExplainOptions,
    LexicalOptions,
    StoreHybridOptions,
    VectorOptions,
    refuse_unknown,
    takes,
)
from sqlrag.ranking.results import print_results as print_results
from sqlrag.search.open import open_store
from sqlrag.types import DEFAULT_ALPHA, DEFAULT_CONTEXT_CHARS, DEFAULT_FEEDBACK_WEIGHT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike
    from typing_extensions import Unpack

    from sqlrag.ranking.explanation import Explanation
    from sqlrag.ranking.results import Results
    from sqlrag.search.open import AnyStores
    from sqlrag.types import Around, Fusion

log = logging.getLogger("sqlrag.query")

refuse_calls(__name__)


@public
@takes(StoreHybridOptions)
def hybrid_query(
    query_text: str,
    db_path: AnyStores,
    model_name: str | None = None,
    top_k: int = 5,
    vector_weight: float = 0.5,
    use_rrf: bool | None = None,
    vector_top_k: int | None = None,
    fts_top_k: int | None = None,
    include_source_docs: bool = False,
    verbose: bool = False,
    *,
    fusion: Fusion | None = None,
    alpha: float = DEFAULT_ALPHA,
    rrf_k: float = 60,
    rrf_weights: tuple[float, float] = (1.0, 1.0),
    lexical_top_k: int | None = None,
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
    per_document: int = 0,
    context: Around = "chunk",
    context_chars: int = DEFAULT_CONTEXT_CHARS,
) -> Results:
    """Search by meaning and by words at once, and fuse both rankings.

    Parameters
    ----------
    query_text
        The question.
    db_path
        The file, or its ``https://`` or ``s3://`` address; a list of files, which are searched as one; the
        ``postgresql://`` URL of a store in Postgres; or an open :class:`Store`, :class:`Stores` or
        :class:`PostgresStore`.
    model_name
        Only to make sure: the model is taken from the file, and another one is refused.
    top_k
        How many results, 1 or more.
    vector_weight
        Of ``weighted`` fusion: the share of the vector leg, 0..1.
    use_rrf
        True means ``fusion="rrf"`` and False ``fusion="weighted"``, as in the published package. None, as without it:
        ``"adaptive"``. Ignored where ``fusion`` is given.
    vector_top_k, lexical_top_k
        Candidates of each leg: 50 unless given, 100 with ``adaptive`` fusion, never fewer than ``top_k``; 0 leaves the
        leg out, and the answer is that of the other one.
    fts_top_k
        The same as ``lexical_top_k``, as in the published package.
    include_source_docs
        Put the whole source document into each result's ``source_doc``.
    verbose
        Log top_k, scores and the stages with their times at level INFO; the question is not in it.
    fusion
        ``"adaptive"`` (default): ``.75 * trust * (cos + 1) / (max cos + 1) + .5 * gap * bm25 / max bm25``, both found
        for each question. ``trust`` is ``min(1, rho / .3)`` and at least .01, rho being the correlation of cosine and
        BM25 over a sample of the chunks that hold one of its words, whatever the filters; 1 for fewer than 30 of them,
        and where all have the same BM25. ``gap`` is ``(best - tenth) / best`` of the BM25 scores, at least .05, and 1
        for fewer than ten. With a trust of .5 or more the first of the vector leg is among the first five, with a gap
        of .25 or more that of the lexical leg; up to ``top_k=100`` the places do not depend on ``top_k``.
        ``"rrf"``: reciprocal rank fusion. ``"weighted"``: each leg's candidates scaled to 0..1.
        ``"convex"``: ``alpha * (cos + 1) / (max cos + 1) + (1 - alpha) * bm25 / max bm25`` over all candidates.
    alpha
        Of ``convex`` fusion: the share of the vector score, 0..1.
    rrf_k, rrf_weights
        Of ``rrf``: its constant, and the weights of the vector and the lexical leg.
    k1, b, heading_weight
        Of BM25: saturation (0 to 1000), length normalisation (0..1) and the weight of the heading path beside the
        text (0 to 1000; the file's own unless given).
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
    per_document
        At most so many chunks of a document, the best of them; 0: as many as there are. ``.further`` of the results
        names the others. Each leg then gives 200 candidates unless told otherwise.
    context, context_chars
        What to read around each result, in its ``context``: ``"chunk"``, nothing more; ``"neighbours"``, what stands
        before and after it; ``"section"``, that, but only of the section that it is in, with the sections below. At
        most so many characters (1 to 100,000), but always the whole chunk; it begins and ends with a chunk or a
        sentence. ``text``, ``i_start`` and ``i_end`` stay those of the chunk.

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
    given: Any = {name: value for name, value in locals().items() if name in StoreHybridOptions.__optional_keys__}
    use_rrf, verbose = None if use_rrf is None else flag("use_rrf", use_rrf), flag("verbose", verbose)
    meant = {None: OPTIONS["fusion"].default, True: "rrf", False: "weighted"}[use_rrf]
    given["fusion"] = meant if fusion is None else fusion
    with open_store(db_path) as store:
        results = store.hybrid_query(query_text, **given)
    if use_rrf is not None and fusion not in (None, meant):
        results.notices.append(f"use_rrf={use_rrf} has no effect with fusion={fusion!r}.")
    if verbose:
        stages = ", ".join(f"{stage} {seconds * 1000:.1f} ms" for stage, seconds in results.timings.items())
        best, last = (results[0]["score"], results[-1]["score"]) if results else (None, None)
        # Never the question: what people ask is written to the query log alone, where one is set.
        found = counted(len(results), "result")
        log.info("[%s] %s, top_k %d, scores %s to %s: %s", results.request_id, found, top_k, best, last, stages)
    return results


@public
@takes(VectorOptions)
def vector_query(
    query_text: str, db_path: AnyStores, model_name: str | None = None, top_k: int = 5, **options: Unpack[VectorOptions]
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
    query_vector, exact, min_similarity, per_document, context, context_chars, include_source_docs
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
    refuse_unknown("vector_query", VectorOptions, options)
    with open_store(db_path) as store:
        return store.vector_query(query_text, model_name=model_name, top_k=top_k, **options)


@public
@takes(LexicalOptions)
def lexical_query(query_text: str, db_path: AnyStores, top_k: int = 5, **options: Unpack[LexicalOptions]) -> Results:
    """Search by words alone, ranked by BM25.

    Parameters
    ----------
    query_text
        The words.
    db_path, top_k, per_document, context, context_chars, include_source_docs
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
    refuse_unknown("lexical_query", LexicalOptions, options)
    with open_store(db_path) as store:
        return store.lexical_query(query_text, top_k=top_k, **options)


@public
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
        ``doc_id, file_path, file_name, text, metadata``; ``text[i_start:i_end]`` is a chunk's text. The document of a
        row of a table has ``row`` as well: its columns in their own types, key first. INTERVAL, TIMESTAMP_NS and what
        is infinite of dates and times, which Python lacks, are text.

    Raises
    ------
    InputError
        ``chunk_ids`` is no list of strings.
    NotFoundError
        The file holds no chunk of one of these ids, or is not there.
    NotAStoreError, SchemaVersionError, StoreLockedError
        The file cannot be used; see :mod:`sqlrag.errors`.
    """
    with open_store(db_path) as store:
        return store.get_source_documents(chunk_ids)


@public
def get_embedding_metadata(db_path: AnyStores) -> dict[str, Any]:
    """Return the metadata of a store: its model, how documents were chunked, what it contains.

    Parameters
    ----------
    db_path
        The file or files, as in :func:`hybrid_query`; of several files the counts are those of all.

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
    with open_store(db_path) as store:
        return store.get_embedding_metadata()


@public
def validate_embedding_model(
    db_path: AnyStores, model_name: str, expected_dimensions: Annotated[int | None, Range(ge=1)] = None
) -> bool:
    """Return whether a file was built with this model, and with this number of dimensions where it is given.

    Only names and numbers are compared; every query compares the vectors as well.

    Parameters
    ----------
    db_path
        The file or files, as in :func:`hybrid_query`.
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


@public
@takes(ExplainOptions)
def explain(query_text: str, node_id: str, db_path: AnyStores, **options: Unpack[ExplainOptions]) -> Explanation:
    """Say why a chunk has its rank for a question: the search is run, and its scores are taken apart.

    Parameters
    ----------
    query_text
        The question.
    node_id
        The chunk, found or not.
    db_path
        The file, or an open :class:`Store`. Several files, and a store in Postgres, raise InputError.
    mode
        Which search: that of :func:`hybrid_query`, :func:`vector_query` or :func:`lexical_query`.
    model_name, top_k, vector_weight, vector_top_k, lexical_top_k, fts_top_k, fusion, alpha, rrf_k, rrf_weights
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
        terms add up to the BM25 score, those of the legs (with adaptive fusion and its lift) to the score, each within
        1e-9. A chunk that a leg does not
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
    refuse_unknown("explain", ExplainOptions, options)
    with open_store(db_path) as store:
        return store.explain(query_text, node_id, **options)


@public
def highlight(
    query_text: str, texts: Sequence[str], db_path: AnyStores, *, syntax: bool = True
) -> list[list[tuple[int, int]]]:
    """Find the words of texts that match those of a question, as the lexical index of the file sees both.

    So ``Cafés`` matches ``cafe``, ``pools`` matches ``pool`` with the file's stemmer, and ``pool`` a part of
    ``ConnectionPool``. Stop words count where the question has no other words, and within a phrase that stands in the
    text as it is asked for. Of scripts without blanks, such as Han, pairs of characters match.

    Parameters
    ----------
    query_text
        The question.
    texts
        Any texts: those of results, titles, whole documents.
    db_path
        The file or files, as in :func:`hybrid_query`.
    syntax
        Read quotes and stars in the question as :func:`lexical_query` does. False: as punctuation, which is what
        :func:`hybrid_query` does by default.

    Returns
    -------
    list
        For each of ``texts`` a list of ``(start, end)``, characters of it: ``text[start:end]`` is the word. Sorted,
        without overlap; words that touch are one span. Empty where nothing matches.

    Raises
    ------
    InputError
        The question is blank, or ``texts`` is no list of strings.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError
        The file cannot be used.

    Examples
    --------
    >>> highlight("How do I fill a pool?", ["Filling the ConnectionPool."], "kb.duckdb")  # doctest: +SKIP
    [[(0, 7), (22, 26)]]
    """
    with open_store(db_path) as store:
        return store.highlight(query_text, texts, syntax=syntax)
