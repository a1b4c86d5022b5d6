"""What a search asks of the place that holds the chunks: a DuckDB file, several of them, or another database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import duckdb
    import numpy as np
    from numpy.typing import NDArray

    from sqlrag.retrieval.candidates import BM25, Leg
    from sqlrag.retrieval.explanation import Explanation
    from sqlrag.retrieval.filters import Filters
    from sqlrag.retrieval.fusion import ExactScores
    from sqlrag.retrieval.planning import Plan
    from sqlrag.retrieval.running import Run
    from sqlrag.retrieval.terms import Terms
    from sqlrag.types import Candidate, Chunk, Vectors

T = TypeVar("T")


class NoLexicalIndexError(Exception):
    """The store has no lexical index; a search turns it into a notice or an error of its own."""


class Engine(Protocol):
    """Answers the parts of a search. Safe to use from several threads at once.

    ``lexical_score`` is the ``score_type`` of its lexical leg. ``filters`` are what :meth:`passing_filters` returned.
    A chunk's ``rid`` is a number that is its own in one :meth:`read`.
    """

    lexical_score: str

    @property
    def path(self) -> Path | str:
        """What messages call the store."""
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
        """Give back what it holds."""
        ...

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return this thread's DuckDB cursor, or raise InputError where there is no one file to ask."""
        ...

    def read(self, work: Callable[[Engine], T]) -> T:
        """Return what the work returns that asks the given engine, and sees one state; errors are sqlrag's own."""
        ...

    def without_effect(self, plan: Plan) -> list[str]:
        """Return a remark for each option that this engine does not look at and that is not at its default."""
        ...

    def passing_filters(self, filters: Filters) -> dict[str, Any]:
        """Return filters as the legs take them, worked out once for both; empty for none."""
        ...

    def any_passes(self, filters: dict[str, Any]) -> bool:
        """Return whether any chunk passes the filters."""
        ...

    def filter_hints(self, filters: Filters) -> list[str]:
        """Return what may be wrong with a metadata filter that no chunk passes, in sentences."""
        ...

    def vector_leg(self, vector: NDArray[np.float32], k: int, filters: dict[str, Any], plan: Plan) -> Leg:
        """Return the ``k`` chunks nearest to ``vector``, ``[dimensions] float32`` of unit norm, by cosine."""
        ...

    def query_terms(self, query_text: str, plan: Plan) -> Terms:
        """Return what the lexical leg looks for, or raise NoLexicalIndexError."""
        ...

    def expanded_terms(self, terms: Terms, node_ids: Sequence[str], count: int) -> Terms:
        """Return the terms with the ``count`` most telling ones of some chunks added."""
        ...

    def lexical_leg(self, terms: Terms, k: int, plan: Plan, filters: dict[str, Any]) -> Leg:
        """Return the ``k`` chunks that fit the terms best, or raise NoLexicalIndexError."""
        ...

    def pair_scores(self, vector: NDArray[np.float32], terms: Terms, rids: Sequence[int], bm25: BM25) -> ExactScores:
        """Return the exact cosine and lexical score of given chunks, by their ``rid``."""
        ...

    def chunk_rows(self, node_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return chunks by their ``node_id``, as fields of a :class:`sqlrag.Candidate` (``text`` for its content)."""
        ...

    def source_documents(self, doc_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return those of the documents that are stored, by ``doc_id``; see :meth:`sqlrag.Store.sources`."""
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
        """Return where texts hold words of a question; see :func:`sqlrag.highlight`."""
        ...

    def statement(self, query_text: str, plan: Plan, terms: Terms, pool: int | None) -> str:
        """Return SQL for people to read, that gives the same rows."""
        ...

    def explained(self, run: Run, node_id: str) -> Explanation:
        """Return why a chunk has its rank in a search whose legs have run."""
        ...

    def checksums(self, doc_ids: Sequence[str]) -> dict[str, str]:
        """Return the SHA-256 of those of the documents that have one."""
        ...

    def select(self, name: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Return the rows of one of the statements of ``sql/``, by the name that it has for a DuckDB file."""
        ...

    def settings(self) -> dict[str, str]:
        """Return ``embedding_metadata`` as it is now."""
        ...
