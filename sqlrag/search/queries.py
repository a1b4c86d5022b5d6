"""The read side of every open store: searches, explanations, rows, and its metadata."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from sqlrag import arguments
from sqlrag.embedders.base import as_embedder, check_stored
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.lexical import weighed_words
from sqlrag.engines.duckdb.metadata import nested_metadata
from sqlrag.errors import InputError, NotFoundError
from sqlrag.normalize import clean_name, is_blank, without_surrogates
from sqlrag.ranking.filters import Filters, check_dates, strings
from sqlrag.ranking.plan import (
    DEFAULT_HEADING_WEIGHT,
    Mode,
    SearchOptions,
    StoreExplainOptions,
    StoreHybridOptions,
    StoreLexicalOptions,
    StoreVectorOptions,
    takes,
)
from sqlrag.ranking.results import TEXT_COLUMNS, snippets_of
from sqlrag.types import Candidates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import duckdb
    import numpy as np
    from numpy.typing import ArrayLike, NDArray
    from typing_extensions import Unpack

    from sqlrag.engines.base import Engine
    from sqlrag.ranking.explanation import Explanation
    from sqlrag.ranking.results import Results
    from sqlrag.search.searcher import Searcher
    from sqlrag.types import AnyEmbedder, Candidate, Chunk, Embedder, RetrievePlan


@public
class Queries:
    """What :class:`sqlrag.Store` can be asked; it changes nothing."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            methods = [one for one in dir(type(self)) if not one.startswith("_")]
            meant = None if name.startswith("_") else arguments.nearest(name, methods)
            if meant is None and (function := arguments.guessed(name, sys.modules["sqlrag"].__all__)):
                meant = f"sqlrag.{function}"
            hint = f". Did you mean {meant!r}?" if meant else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    path: Path | str
    paths: list[Path]
    """The files that it is in; none on a server."""
    _engine: Engine
    _searcher: Searcher

    def __reduce_ex__(self, _: object) -> NoReturn:
        """Refuse to be pickled or copied: an open file is of one process."""
        raise InputError(
            f"An open {type(self).__name__} cannot be pickled or copied. Hand on its path, and open it again where "
            f"it is needed: {', '.join(map(str, self.paths)) or self.path}"
        )

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return this thread's DuckDB cursor, for SQL of your own: tables, views and macros answer to it."""
        return self._engine.cursor()

    @property
    def dimensions(self) -> int:
        """The length of the store's vectors."""
        return self._searcher.identity.dimensions

    def select(self, name: str, **values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of one of sqlrag's own statements, ``sql/{name}.sql``, with these parameters.

        In Postgres it is ``sql/postgres/{name}.sql``; not every statement has such a twin. Of several files the rows
        are those of each, one file after the other. Strings are compared as names are stored, in NFC.
        """
        clean = {key: clean_name(value) if isinstance(value, str) else value for key, value in values.items()}
        return self._engine.select(name, clean)

    @takes(StoreHybridOptions)
    def hybrid_query(self, query_text: str, **options: Unpack[StoreHybridOptions]) -> Results:
        """Search by meaning and by words at once; see :func:`hybrid_query`.

        ``codes_pool`` is how many candidates the sign codes hand to the exact cosines, 1 or more; None: as many as the
        size of the file asks for.
        """
        return self._searcher.search(
            query_text, self._chosen("hybrid_query", StoreHybridOptions, options, mode="hybrid")
        )

    @takes(StoreVectorOptions)
    def vector_query(self, query_text: str = "", **options: Unpack[StoreVectorOptions]) -> Results:
        """Search by meaning alone; see :func:`vector_query`, and for ``codes_pool`` :meth:`hybrid_query`."""
        return self._searcher.search(
            query_text, self._chosen("vector_query", StoreVectorOptions, options, mode="vector")
        )

    @takes(StoreLexicalOptions)
    def lexical_query(self, query_text: str, **options: Unpack[StoreLexicalOptions]) -> Results:
        """Search by words alone; see :func:`lexical_query`."""
        return self._searcher.search(
            query_text, self._chosen("lexical_query", StoreLexicalOptions, options, mode="lexical")
        )

    @takes(StoreExplainOptions)
    def explain(self, query_text: str, node_id: str, **options: Unpack[StoreExplainOptions]) -> Explanation:
        """Say why a chunk has its rank for a question; see :func:`sqlrag.explain`.

        ``codes_pool`` is as in :meth:`hybrid_query`.
        """
        arguments.texts(query_text=query_text)
        node_id = clean_name(arguments.not_blank("node_id", node_id))
        mode = arguments.choice("mode", options.get("mode", "hybrid"), get_args(Mode))
        if options.get("syntax") is None:
            options["syntax"] = mode == "lexical"
        plan = self._chosen("explain", StoreExplainOptions, options, mode=mode)
        if plan.conjunctive and plan.mode != "lexical":
            raise InputError('conjunctive=True needs mode="lexical": no other search has this option.')
        return self._searcher.explain(query_text, node_id, plan)

    def retrieve(self, query: str, plan: RetrievePlan, *, query_vector: ArrayLike | None = None) -> Candidates:
        """Return the candidates for a question, best first; see :func:`sqlrag.retrieve`."""
        asked = SearchOptions.of_plan(plan, query_vector=query_vector, stored_heading_weight=self._heading_weight())
        found = self._searcher.search(query, asked)
        return Candidates(found.found, notices=found.notices, timings=found.timings)

    def highlight(self, query_text: str, texts: Sequence[str], *, syntax: bool = True) -> list[list[tuple[int, int]]]:
        """Find the words of texts that match those of a question; see :func:`sqlrag.highlight`."""
        query_text = without_surrogates(arguments.not_blank("query_text", query_text))
        given = [
            arguments.text("each of texts", text) for text in arguments.items("texts", texts, "['Open the valve.']")
        ]
        syntax = arguments.flag("syntax", syntax)
        return self._engine.spans(query_text, given, syntax=syntax)

    def snippets(
        self, query_text: str, node_ids: Sequence[str], *, syntax: bool = False
    ) -> list[tuple[str, list[tuple[int, int]]]]:
        """Return the part of each chunk that holds most of what was asked, as results show it, and its matching words.

        Parameters
        ----------
        query_text
            The question.
        node_ids
            Keys of chunks, in any order.
        syntax
            Read quotes and stars in the question as :func:`lexical_query` does.

        Returns
        -------
        list
            For each chunk a text of 280 columns at most, as a reader of the page sees it, without the headings that
            the heading path has; and the spans in it, as of :meth:`highlight`.

        Raises
        ------
        InputError
            The question is blank, or ``node_ids`` no list of strings.
        NotFoundError
            The store has no such chunk.
        """
        query_text = without_surrogates(arguments.not_blank("query_text", query_text))
        wanted = strings("node_ids", node_ids) or []
        plan = SearchOptions(syntax=arguments.flag("syntax", syntax))

        def read(engine: Engine) -> list[tuple[str, list[tuple[int, int]]]]:
            rows = engine.chunk_rows(wanted)
            if missing := [node_id for node_id in wanted if node_id not in rows]:
                raise NotFoundError(f"{engine.path} holds no chunk {missing[0]!r}. Take its node_id from a result.")
            terms = engine.query_terms(query_text, plan)
            weighed = partial(weighed_words, query_text, terms.asked, terms.weights, engine.metadata["stemmer"])
            texts = snippets_of([rows[node_id] for node_id in wanted], TEXT_COLUMNS, weighed)
            return list(zip(texts, engine.spans(query_text, texts, syntax=plan.syntax), strict=True))

        return self._engine.read(read)

    def sources(self, doc_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return those of ``doc_ids`` that are stored, with ``text``, ``file_path``, ``file_name`` and ``metadata``."""
        return self._engine.source_documents(doc_ids)

    def row_sources(self, *, most_values: int = 20) -> list[dict[str, Any]]:
        """Return the tables and queries whose rows are documents, with their columns, to choose filters from.

        Parameters
        ----------
        most_values
            How many values are counted in a column, from 0; those in most rows, of 200 characters at most.
            Of more different ones, those of one row alone are left out.

        Returns
        -------
        list of dict
            ``collection, rows, key, columns``, in the order of the collections; of several files those of each in
            turn. A column has its ``name``, DuckDB's ``type``, and in how many rows it is ``filled``; numbers, dates
            and times also ``least`` and ``greatest`` of the finite values; texts, truth values and lists of them how
            many are ``distinct``, and ``values``: a list of ``value, rows``, the most frequent first.
        """
        return self._engine.row_sources(arguments.whole("most_values", most_values, 0))

    def checksums(self, doc_ids: Sequence[str]) -> dict[str, str]:
        """Return the SHA-256 of documents.

        Parameters
        ----------
        doc_ids
            Their ids; those that are not stored, or have none, are left out.
        """
        return self._engine.checksums([clean_name(doc_id) for doc_id in doc_ids])

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
        filters = Filters(metadata=metadata).parameters()
        check_dates(Filters(metadata=metadata), self._engine.date_fields)
        return self._engine.read_chunks({**filters, "node_ids": ids})

    def _chosen(self, function: str, taken: type, options: Mapping[str, Any], **others: Any) -> SearchOptions:
        return SearchOptions.of(function, taken, options, stored_heading_weight=self._heading_weight(), **others)

    def _heading_weight(self) -> float:
        return float(self._engine.metadata.get("header_weight", DEFAULT_HEADING_WEIGHT))

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

    def check_embedder(self, embedder: AnyEmbedder) -> None:
        """Compare a model with that of the store, by the vector of one text.

        Parameters
        ----------
        embedder
            The model.

        Raises
        ------
        ModelMismatchError
            It is another one. Of a store whose vectors name no model, only the number of dimensions is known.
        ProviderError
            It does not answer.
        """
        check_stored(as_embedder(embedder), self._searcher.identity)

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
        if is_blank(arguments.text("query_text", query_text)):
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
        """Return the metadata of the store; see :func:`get_embedding_metadata`."""
        return nested_metadata(self._engine.settings(), self._engine.path)
