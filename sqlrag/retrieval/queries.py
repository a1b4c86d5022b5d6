"""The questions that an open file answers: searches, and what it says of itself."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from sqlrag import options
from sqlrag.embedders.base import without_surrogates
from sqlrag.errors import InputError
from sqlrag.retrieval.candidates import BM25
from sqlrag.retrieval.filters import Filters, strings
from sqlrag.retrieval.planning import Plan
from sqlrag.retrieval.query_log import logged
from sqlrag.store.metadata import nested_metadata
from sqlrag.types import DEFAULT_ALPHA, DEFAULT_FEEDBACK_WEIGHT, Candidates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import duckdb
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from sqlrag.retrieval.engine import Engine
    from sqlrag.retrieval.explanation import Explanation
    from sqlrag.retrieval.query_log import QueryLog
    from sqlrag.retrieval.results import Results
    from sqlrag.retrieval.searching import Searcher
    from sqlrag.types import Candidate, Chunk, Embedder, Fusion, RetrievePlan

DEFAULT_HEADING_WEIGHT = 3.0


class Queries:
    """What :class:`sqlrag.Store` can be asked; it changes nothing."""

    path: Path | str
    _engine: Engine
    _searcher: Searcher
    _log: QueryLog | None

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return this thread's DuckDB cursor, for SQL of your own: tables, views and macros answer to it."""
        return self._engine.cursor()

    @property
    def dimensions(self) -> int:
        """The length of the store's vectors."""
        return self._searcher.identity.dimensions

    def select(self, name: str, **values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of one of sqlrag's own statements, ``sql/{name}.sql``, with these parameters.

        In Postgres it is ``sql/postgres/{name}.sql``; not every statement has such a twin.
        """
        return self._engine.select(name, values)

    def hybrid_query(
        self,
        query_text: str,
        *,
        top_k: int = 5,
        fusion: Fusion = "rrf",
        vector_weight: float = 0.5,
        alpha: float = DEFAULT_ALPHA,
        rrf_k: float = 60,
        rrf_weights: tuple[float, float] = (1.0, 1.0),
        vector_top_k: int | None = None,
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
        model_name: str | None = None,
        exact: bool = False,
        codes_pool: int | None = None,
        min_similarity: float | None = None,
        include_source_docs: bool = False,
        strict: bool = False,
        feedback: int = 0,
        feedback_weight: float = DEFAULT_FEEDBACK_WEIGHT,
        expansion: int = 0,
        syntax: bool = False,
    ) -> Results:
        """Search by meaning and by words at once; see :func:`hybrid_query`.

        ``lexical_top_k`` is its ``fts_top_k``. ``codes_pool`` is how many candidates the sign codes hand to the exact
        cosines, 1 or more; None: as many as the size of the file asks for.
        """
        plan = Plan(
            mode="hybrid",
            top_k=top_k,
            fusion=fusion,
            vector_weight=vector_weight,
            alpha=alpha,
            rrf_k=rrf_k,
            rrf_weights=rrf_weights,
            vector_top_k=vector_top_k,
            lexical_top_k=lexical_top_k,
            codes_pool=codes_pool,
            exact=exact,
            min_similarity=min_similarity,
            bm25=self._bm25(k1, b, heading_weight, fields),
            filters=Filters(collection, tags_any, tags_all, metadata),
            include_source_docs=include_source_docs,
            strict=strict,
            feedback=feedback,
            feedback_weight=feedback_weight,
            expansion=expansion,
            syntax=syntax,
            heading_weight=heading_weight,
        )
        return self._ask(query_text, plan, query_vector=query_vector, model_name=model_name)

    def vector_query(
        self,
        query_text: str = "",
        *,
        top_k: int = 5,
        collection: str | Sequence[str] | None = None,
        tags_any: Sequence[str] | None = None,
        tags_all: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        query_vector: ArrayLike | None = None,
        model_name: str | None = None,
        exact: bool = False,
        codes_pool: int | None = None,
        min_similarity: float | None = None,
        include_source_docs: bool = False,
    ) -> Results:
        """Search by meaning alone; see :func:`vector_query`, and for ``codes_pool`` :meth:`hybrid_query`."""
        plan = Plan(
            mode="vector",
            top_k=top_k,
            vector_top_k=top_k,
            codes_pool=codes_pool,
            exact=exact,
            min_similarity=min_similarity,
            filters=Filters(collection, tags_any, tags_all, metadata),
            include_source_docs=include_source_docs,
        )
        return self._ask(query_text, plan, query_vector=query_vector, model_name=model_name)

    def lexical_query(
        self,
        query_text: str,
        *,
        top_k: int = 5,
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
        """Search by words alone; see :func:`lexical_query`."""
        plan = Plan(
            mode="lexical",
            top_k=top_k,
            lexical_top_k=top_k,
            conjunctive=conjunctive,
            syntax=syntax,
            bm25=self._bm25(k1, b, heading_weight, fields),
            filters=Filters(collection, tags_any, tags_all, metadata),
            include_source_docs=include_source_docs,
            heading_weight=heading_weight,
        )
        return self._ask(query_text, plan)

    def explain(
        self,
        query_text: str,
        node_id: str,
        *,
        mode: Literal["hybrid", "vector", "lexical"] = "hybrid",
        top_k: int = 5,
        fusion: Fusion = "rrf",
        vector_weight: float = 0.5,
        alpha: float = DEFAULT_ALPHA,
        rrf_k: float = 60,
        rrf_weights: tuple[float, float] = (1.0, 1.0),
        vector_top_k: int | None = None,
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
        model_name: str | None = None,
        exact: bool = False,
        codes_pool: int | None = None,
        min_similarity: float | None = None,
        strict: bool = False,
        feedback: int = 0,
        feedback_weight: float = DEFAULT_FEEDBACK_WEIGHT,
        expansion: int = 0,
        syntax: bool | None = None,
        conjunctive: bool = False,
    ) -> Explanation:
        """Say why a chunk has its rank for a question; see :func:`sqlrag.explain`.

        ``lexical_top_k`` is its ``fts_top_k``, ``codes_pool`` as in :meth:`hybrid_query`.
        """
        options.texts(query_text=query_text, model_name=model_name)
        node_id = without_surrogates(options.not_blank("node_id", node_id))
        chosen = options.choice("mode", mode, ("hybrid", "vector", "lexical"))
        if chosen != "lexical" and options.flag("conjunctive", conjunctive):
            raise InputError('conjunctive=True needs mode="lexical": no other search has this option.')
        plan = Plan(
            mode=chosen,
            top_k=top_k,
            fusion=fusion,
            vector_weight=vector_weight,
            alpha=alpha,
            rrf_k=rrf_k,
            rrf_weights=rrf_weights,
            vector_top_k=vector_top_k if mode == "hybrid" else top_k,
            lexical_top_k=lexical_top_k if mode == "hybrid" else top_k,
            codes_pool=codes_pool,
            exact=exact,
            min_similarity=min_similarity,
            conjunctive=conjunctive,
            syntax=mode == "lexical" if syntax is None else syntax,
            bm25=self._bm25(k1, b, heading_weight, fields),
            filters=Filters(collection, tags_any, tags_all, metadata),
            strict=strict,
            feedback=feedback if mode == "hybrid" else 0,
            feedback_weight=feedback_weight,
            expansion=expansion if mode == "hybrid" else 0,
            heading_weight=heading_weight,
        )
        return self._searcher.run(
            query_text,
            plan,
            lambda run: run.engine.explained(run, node_id),
            query_vector=None if mode == "lexical" else query_vector,
            model_name=None if mode == "lexical" else model_name,
        )

    def retrieve(self, query: str, plan: RetrievePlan, *, query_vector: ArrayLike | None = None) -> Candidates:
        """Return the candidates for a question, best first; see :func:`sqlrag.retrieve`."""
        found = self._ask(query, Plan.of(plan, self._bm25(1.2, 0.75, None, None)), query_vector=query_vector)
        return Candidates(found.found, notices=found.notices, timings=found.timings)

    def highlight(self, query_text: str, texts: Sequence[str], *, syntax: bool = True) -> list[list[tuple[int, int]]]:
        """Find the words of texts that match those of a question; see :func:`sqlrag.highlight`."""
        query_text = without_surrogates(options.not_blank("query_text", query_text))
        given = [options.text("each of texts", text) for text in options.items("texts", texts, "['Open the valve.']")]
        syntax = options.flag("syntax", syntax)
        return self._engine.spans(query_text, given, syntax=syntax)

    def sources(self, doc_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return those of ``doc_ids`` that are stored, with ``text``, ``file_path``, ``file_name`` and ``metadata``."""
        return self._engine.source_documents(doc_ids)

    def checksums(self, doc_ids: Sequence[str]) -> dict[str, str]:
        """Return the SHA-256 of documents.

        Parameters
        ----------
        doc_ids
            Their ids; those that are not stored, or have none, are left out.
        """
        return self._engine.checksums(list(doc_ids))

    def chunks_at(self, places: Sequence[tuple[str, int]]) -> list[Candidate]:
        """Return the chunks that there are at ``places``, (``doc_id``, ``chunk_index``) each, ordered by these."""
        return self._engine.chunks_at(places)

    def chunks(
        self, *, node_ids: Sequence[str] | None = None, metadata: Mapping[str, Any] | None = None
    ) -> list[Chunk]:
        """Return stored chunks, ordered by ``doc_id``, then ``chunk_index``.

        Parameters
        ----------
        node_ids
            Their ids; those that the file does not have are left out. None: of all chunks.
        metadata
            As in a search. With ``node_ids`` both have to hold.

        Returns
        -------
        list of Chunk
            ``given_id`` is the chunk's ``node_id``, ``node`` what the file keeps for llama-index.

        Raises
        ------
        InputError
            A condition is of the wrong type.
        """
        ids = strings("node_ids", node_ids)
        return self._engine.read_chunks({**Filters(metadata=metadata).parameters(), "node_ids": ids})

    def _ask(
        self, query_text: str, plan: Plan, *, query_vector: ArrayLike | None = None, model_name: str | None = None
    ) -> Results:
        options.texts(query_text=query_text, model_name=model_name)
        search = partial(self._searcher.search, query_text, plan, query_vector=query_vector, model_name=model_name)
        return logged(self._log, self.path, query_text, plan, search)

    def _bm25(self, k1: float, b: float, heading_weight: float | None, fields: str | Sequence[str] | None) -> BM25:
        stored = float(self._engine.metadata.get("header_weight", DEFAULT_HEADING_WEIGHT))
        return BM25.of(k1, b, stored if heading_weight is None else heading_weight, fields)

    def embedder(self) -> Embedder:
        """Return the model of the file, loaded once and compared with the file.

        Raises
        ------
        ModelMismatchError
            Its vectors are not those that the file was built with.
        ModelUnavailableError, MissingExtraError, ProviderError
            It cannot be loaded here, or does not answer.
        """
        return self._searcher.embedder()

    def query_vector(self, query_text: str, *, patient: bool = True) -> NDArray[np.float32]:
        """Return the vector of a question as a search uses it; that of a question just asked is remembered.

        Parameters
        ----------
        query_text
            The question.
        patient
            False: wait for the model no longer than a search does that has words to answer by.

        Returns
        -------
            ``[dimensions] float32``.

        Raises
        ------
        InputError
            It is blank.
        ModelUnavailableError, MissingExtraError, ProviderError, ModelMismatchError
            It cannot be embedded.
        """
        if not options.text("query_text", query_text).strip():
            raise InputError("The query is blank. Pass a question or some words.")
        return self._searcher.questions.embed(without_surrogates(query_text), patient=patient)

    def vectors(self, node_ids: Sequence[str]) -> NDArray[np.float32]:
        """Return the stored vectors of chunks, as re-ranking by cosine or diversity needs them.

        Parameters
        ----------
        node_ids
            Keys of chunks, in any order.

        Returns
        -------
            ``[len(node_ids), dimensions] float32`` of unit norm, row i for the chunk i.

        Raises
        ------
        InputError
            They are no list of strings.
        NotFoundError
            The file has no such chunk.
        """
        return self._engine.vectors_of(node_ids)

    def get_source_documents(self, chunk_ids: Sequence[str]) -> list[dict[str, Any]]:
        """Return the whole documents that chunks come from; see :func:`get_source_documents`."""
        return self._engine.sources_of_chunks(chunk_ids)

    def get_embedding_metadata(self) -> dict[str, Any]:
        """Return what the file says of itself; see :func:`get_embedding_metadata`."""
        return nested_metadata(self._engine.settings())
