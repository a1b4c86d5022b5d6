"""Searches in one DuckDB file."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from sqlrag.errors import StoreError
from sqlrag.retrieval import candidates, feedback, rows
from sqlrag.retrieval import terms as words
from sqlrag.retrieval.contributions import explained
from sqlrag.retrieval.engine import Engine, NoLexicalIndexError
from sqlrag.retrieval.marking import spans
from sqlrag.retrieval.passages import chunks_at
from sqlrag.retrieval.statements import as_sql
from sqlrag.store.files import is_damage, out_of_memory
from sqlrag.store.keeping import read_chunks
from sqlrag.store.metadata import read_metadata, required_metadata
from sqlrag.store.schema import read_sql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from sqlrag.retrieval.candidates import BM25, Leg
    from sqlrag.retrieval.explanation import Explanation
    from sqlrag.retrieval.filters import Filters
    from sqlrag.retrieval.fusion import ExactScores
    from sqlrag.retrieval.planning import Plan
    from sqlrag.retrieval.running import Run
    from sqlrag.retrieval.terms import Terms
    from sqlrag.store.database import Database
    from sqlrag.types import Candidate, Chunk, Vectors

T = TypeVar("T")


class FileEngine:
    """An :class:`~sqlrag.retrieval.engine.Engine` over an open database, which it closes."""

    lexical_score = "bm25"

    def __init__(self, database: Database) -> None:
        self.database = database
        self.path = database.path
        self.metadata = required_metadata(database)
        self._counted = (-1, 0)

    @property
    def closed(self) -> bool:
        return self.database.closed

    def close(self) -> None:
        self.database.close()

    def cursor(self) -> duckdb.DuckDBPyConnection:
        return self.database.cursor()

    def read(self, work: Callable[[Engine], T]) -> T:
        with self.named_errors():
            return self.database.read(lambda: work(self))

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Turn what DuckDB says of a damaged file, or of too little memory, into an error that names the file."""
        try:
            yield
        except duckdb.OutOfMemoryException as error:
            raise out_of_memory(self.path, error) from error
        except duckdb.Error as error:
            if not is_damage(error):
                raise
            raise StoreError(
                self.path, f"{self.path} cannot be read, it may be damaged or cut short: {error}"
            ) from error

    def chunks(self) -> int:
        """Return how many chunks the file holds, counted once after each change."""
        commits, chunks = self._counted
        now = self.database.commits
        if commits != now:
            chunks = self.cursor().execute("SELECT count(*) FROM documents").fetchall()[0][0]
            self._counted = (now, chunks)
        return chunks

    def without_effect(self, plan: Plan) -> list[str]:  # noqa: ARG002
        return []

    def passing_filters(self, filters: Filters) -> dict[str, Any]:
        return candidates.passing_filters(self.cursor(), filters)

    def any_passes(self, filters: dict[str, Any]) -> bool:
        return candidates.any_passes(self.cursor(), filters)

    def filter_hints(self, filters: Filters) -> list[str]:
        return candidates.filter_hints(filters, candidates.field_types(self.cursor(), filters))

    def vector_leg(self, vector: NDArray[np.float32], k: int, filters: dict[str, Any], plan: Plan) -> Leg:
        chunks, pool = self.chunks(), None
        if not plan.exact:
            pool = plan.codes_pool or candidates.default_pool(chunks, len(vector), k)
        return candidates.vector_leg(self.cursor(), vector, k, filters, pool=pool, chunks=chunks)

    def query_terms(self, query_text: str, plan: Plan) -> Terms:
        try:
            return words.query_terms(
                self.cursor(),
                query_text,
                self.metadata["stemmer"],
                syntax=plan.syntax,
                conjunctive=plan.conjunctive,
            )
        except duckdb.CatalogException as error:
            raise NoLexicalIndexError(str(error)) from error

    def expanded_terms(self, terms: Terms, node_ids: Sequence[str], count: int) -> Terms:
        return feedback.expanded_terms(self.cursor(), terms, node_ids, count, self.metadata["stemmer"])

    def lexical_leg(self, terms: Terms, k: int, plan: Plan, filters: dict[str, Any]) -> Leg:
        try:
            return candidates.lexical_leg(self.cursor(), terms, k, plan.bm25, filters, conjunctive=plan.conjunctive)
        except duckdb.CatalogException as error:
            raise NoLexicalIndexError(str(error)) from error

    def pair_scores(self, vector: NDArray[np.float32], terms: Terms, rids: Sequence[int], bm25: BM25) -> ExactScores:
        return candidates.pair_scores(self.cursor(), vector, terms, rids, bm25)

    def chunk_rows(self, node_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        return rows.chunk_rows(self.cursor(), node_ids)

    def source_documents(self, doc_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        return rows.source_documents(self.cursor(), doc_ids)

    def sources_of_chunks(self, chunk_ids: Sequence[str]) -> list[dict[str, Any]]:
        return rows.sources_of_chunks(self.cursor(), self.path, chunk_ids)

    def chunks_at(self, places: Sequence[tuple[str, int]]) -> list[Candidate]:
        return chunks_at(self.cursor(), places)

    def read_chunks(self, conditions: Mapping[str, Any]) -> list[Chunk]:
        return read_chunks(self.cursor(), conditions)

    def vectors_of(self, node_ids: Sequence[str]) -> Vectors:
        return rows.vectors_of(self.cursor(), self.path, node_ids, int(self.metadata["embedding_dimensions"]))

    def spans(self, query_text: str, texts: Sequence[str], *, syntax: bool) -> list[list[tuple[int, int]]]:
        return spans(self.cursor(), query_text, texts, self.metadata["stemmer"], syntax=syntax)

    def statement(self, query_text: str, plan: Plan, terms: Terms, pool: int | None) -> str:
        return as_sql(query_text, plan, terms, pool)

    def explained(self, run: Run, node_id: str) -> Explanation:
        return explained(run, self.cursor(), node_id)

    def checksums(self, doc_ids: Sequence[str]) -> dict[str, str]:
        return dict(self.select("serving/checksums", {"doc_ids": list(doc_ids)}))

    def select(self, name: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return self.cursor().execute(read_sql(name), dict(values)).fetchall()

    def settings(self) -> dict[str, str]:
        return read_metadata(self.cursor())
