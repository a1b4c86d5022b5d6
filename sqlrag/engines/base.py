"""The interface between a search and a store of chunks: a DuckDB file, several files, or another database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    import duckdb
    import numpy as np
    from numpy.typing import NDArray

    from sqlrag.ranking.explanation import Explanation
    from sqlrag.ranking.filters import Filters
    from sqlrag.ranking.fusion import ExactScores, FusedHit, Leg, Parts, Trust
    from sqlrag.ranking.plan import BM25, SearchOptions
    from sqlrag.ranking.terms import Terms
    from sqlrag.types import Candidate, Chunk, Vectors

T = TypeVar("T")


class NoLexicalIndexError(Exception):
    """The store has no lexical index; a search turns it into a notice or an error of its own."""


class SearchState(Protocol):
    """The part of a search, after its legs have run, that :meth:`Engine.explained` reads."""

    engine: Engine
    query_text: str
    plan: SearchOptions
    filters: dict[str, Any]
    query_vector: NDArray[np.float32] | None
    terms: Terms
    has_lexical_index: bool
    notices: list[str]

    trust: Trust | None

    def fused(self, parts: dict[int, Parts] | None = None) -> tuple[list[FusedHit], str]:
        """Return every candidate, best first, and the type of its score; ``parts`` as in ``fuse_legs``."""
        ...


class Engine(Protocol):
    """Answers the parts of a search. Safe to use from several threads at once.

    ``note`` says in words what answers, where that is not always the same. ``filters`` are what
    :meth:`passing_filters` returned. A chunk's ``rid`` is a number that is unique within one :meth:`read`.
    """

    note: str

    @property
    def path(self) -> Path | str:
        """The name of the store in messages."""
        ...

    @property
    def metadata(self) -> dict[str, str]:
        """Its settings when it was opened, the keys of ``embedding_metadata``."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        ...

    def close(self) -> None:
        """Close the store."""
        ...

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return this thread's DuckDB cursor, or raise InputError where there is not exactly one file."""
        ...

    def read(self, work: Callable[[Engine], T]) -> T:
        """Call the work with an engine that sees one state, and return its result; errors are sqlrag's own."""
        ...

    def parallel(self, plan: SearchOptions) -> bool:
        """Return whether a leg takes long enough to be worth a thread of its own."""
        ...

    def passing_filters(self, filters: Filters) -> dict[str, Any]:
        """Return filters in the form of the legs, evaluated once for both; empty for none."""
        ...

    def any_passes(self, filters: dict[str, Any]) -> bool:
        """Return whether any chunk passes the filters."""
        ...

    def date_fields(self, names: Collection[str], collection: Sequence[str] | None) -> dict[str, str]:
        """Return the fields, of these, whose texts in some collections are all ISO 8601 dates, each with the least."""
        ...

    def first_values(self, names: Collection[str], collection: Sequence[str] | None) -> dict[str, Any]:
        """Return by name the value of each metadata field in the first chunk, of some collections, that has one."""
        ...

    def not_compared(self, field: str, collection: Sequence[str] | None, kind: str) -> list[tuple[int, str]]:
        """Return how many documents, of some collections, have values with which no operand is compared, and the first.

        The ``kind`` of operand is number, date (ISO 8601) or text. Nothing, or a pair for each file.
        """
        ...

    def vector_leg(self, vector: NDArray[np.float32], k: int, filters: dict[str, Any], plan: SearchOptions) -> Leg:
        """Return the ``k`` chunks nearest to ``vector``, ``[dimensions] float32`` of unit norm, by cosine."""
        ...

    def query_terms(self, query_text: str, plan: SearchOptions) -> Terms:
        """Return the terms of the lexical leg, or raise NoLexicalIndexError."""
        ...

    def expanded_terms(self, terms: Terms, node_ids: Sequence[str], count: int, weight: float) -> Terms:
        """Return the terms with the ``count`` most distinctive ones of some chunks added, whose share is ``weight``."""
        ...

    def lexical_leg(self, terms: Terms, k: int, plan: SearchOptions, filters: dict[str, Any]) -> Leg:
        """Return the ``k`` chunks that fit the terms best, or raise NoLexicalIndexError."""
        ...

    def pair_scores(
        self,
        vector: NDArray[np.float32],
        terms: Terms,
        rids: Sequence[int],
        bm25: BM25,
        sample: list[tuple[float | None, float]] | None = None,
    ) -> ExactScores:
        """Return the exact cosine and lexical score of given chunks, by their ``rid``.

        ``sample`` is filled with both scores of some 300 of the chunks that hold one of the terms, or of all, whatever
        the filters. A store gives the same ones for the same chunks, and so do several files and what is merged of
        them.
        """
        ...

    def chunk_rows(self, node_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return chunks by their ``node_id``, as fields of a :class:`sqlrag.Candidate` (``text`` for its content)."""
        ...

    def source_documents(self, doc_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the documents that are stored, by ``doc_id``; see :meth:`sqlrag.Store.sources`."""
        ...

    def sources_of_chunks(self, chunk_ids: Sequence[str]) -> list[dict[str, Any]]:
        """Return the whole documents that chunks come from; see :func:`sqlrag.get_source_documents`."""
        ...

    def chunks_at(self, places: Sequence[tuple[str, int]]) -> list[Candidate]:
        """Return the chunks at ``places``; see :meth:`sqlrag.Store.chunks_at`."""
        ...

    def read_chunks(self, conditions: Mapping[str, Any]) -> list[Chunk]:
        """Return the chunks that meet filters and are among ``node_ids``, ordered by ``doc_id, chunk_index``."""
        ...

    def vectors_of(self, node_ids: Sequence[str]) -> Vectors:
        """Return the vectors of chunks, ``[len(node_ids), dimensions] float32``, or raise NotFoundError."""
        ...

    def spans(self, query_text: str, texts: Sequence[str], *, syntax: bool) -> list[list[tuple[int, int]]]:
        """Return the spans of a question's words in texts; see :func:`sqlrag.highlight`."""
        ...

    def statement(self, query_text: str, plan: SearchOptions, terms: Terms, pool: int | None) -> str:
        """Return SQL that gives the same rows, for people to read."""
        ...

    def explained(self, run: SearchState, node_id: str) -> Explanation:
        """Return why a chunk has its rank in a search whose legs have run."""
        ...

    def files_of(self, node_ids: Sequence[str]) -> dict[str, Path]:
        """Return which file each chunk is in, where there are several; else nothing."""
        ...

    def checksums(self, doc_ids: Sequence[str]) -> dict[str, str]:
        """Return the SHA-256 of the documents that have one."""
        ...

    def select(self, name: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Return the rows of one of the statements of ``sql/``, by the name that it has for a DuckDB file.

        For several files, the rows of each file in turn.
        """
        ...

    def row_sources(self, most: int) -> list[dict[str, Any]]:
        """Return the sources of rows; see :meth:`sqlrag.Store.row_sources`."""
        ...

    def has_rows(self) -> bool:
        """Return whether chunks may be those of rows of a table, with its keys."""
        ...

    def settings(self) -> dict[str, str]:
        """Return ``embedding_metadata`` as it is now."""
        ...
