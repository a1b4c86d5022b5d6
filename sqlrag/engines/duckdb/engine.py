"""Searches in one DuckDB file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from sqlrag.engines.base import Engine, NoLexicalIndexError
from sqlrag.engines.duckdb import legs, row_tables, rows
from sqlrag.engines.duckdb.chunks import read_chunks
from sqlrag.engines.duckdb.failures import reported
from sqlrag.engines.duckdb.legs import as_text
from sqlrag.engines.duckdb.lexical import FileDictionary, query_terms, spans
from sqlrag.engines.duckdb.metadata import read_metadata, required_metadata
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.engines.duckdb.statements import as_sql
from sqlrag.engines.explained import Lengths, explained
from sqlrag.ranking.terms import weighed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from sqlrag.engines.base import SearchState
    from sqlrag.engines.duckdb.database import Database
    from sqlrag.engines.duckdb.legs import Share
    from sqlrag.ranking.explanation import Explanation
    from sqlrag.ranking.filters import Filters
    from sqlrag.ranking.fusion import ExactScores, Leg
    from sqlrag.ranking.plan import BM25, SearchOptions
    from sqlrag.ranking.terms import Terms
    from sqlrag.types import Candidate, Chunk, Vectors

NO_FILTERS: dict[str, Any] = dict.fromkeys(("collection", "tags_any", "tags_all", "passing"))


class FileFacts:
    """The :class:`~sqlrag.engines.explained.Facts` of a file for one search."""

    def __init__(self, run: SearchState, con: duckdb.DuckDBPyConnection) -> None:
        self._run = run
        self._con = con

    def _rows(self, name: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._con.execute(read_sql(f"explaining/{name}"), values).fetchall()

    def place(self, node_id: str) -> tuple[int, bool] | None:
        found: list[Any] = self._rows("place", node_id=node_id, **{**NO_FILTERS, **self._run.filters})
        return found[0] if found else None

    def cosine(self, rid: int, *, passes: bool) -> tuple[float | None, int | None]:
        assert self._run.query_vector is not None  # noqa: S101 - the caller has checked it
        filters = {**NO_FILTERS, **(self._run.filters if passes else {})}
        found: list[Any] = self._rows("vector", query_vector=as_text(self._run.query_vector), rid=rid, **filters)
        return found[0] if found else (None, None)

    def lengths(self, rid: int) -> Lengths:
        return Lengths(*self._rows("lengths", rid=rid)[0])

    def terms(self, rid: int) -> list[tuple[int, str, int, int, float]]:
        terms = self._run.terms
        asked = {"termids": terms.termids, "dfs": terms.dfs, "boosts": terms.boosts or None}
        found: list[Any] = self._rows("terms", rid=rid, **asked, **self._run.plan.bm25.parameters())
        return found


T = TypeVar("T")


class FileEngine:
    """An :class:`~sqlrag.engines.base.Engine` over an open database, which it closes."""

    note = ""

    def __init__(self, database: Database, metadata: dict[str, str] | None = None) -> None:
        self.database = database
        self.path = database.path
        self.metadata = required_metadata(database) if metadata is None else metadata
        self._counted = (-1, 0)

    @property
    def closed(self) -> bool:
        return self.database.closed

    def close(self) -> None:
        self.database.close()

    def cursor(self) -> duckdb.DuckDBPyConnection:
        return self.database.cursor()

    def read(self, work: Callable[[Engine], T]) -> T:
        with reported(self.path):
            return self.database.read(lambda: work(self))

    def chunks(self) -> int:
        """Return how many chunks the file holds, counted once after each change."""
        commits, chunks = self._counted
        now = self.database.commits
        if commits != now:
            chunks = self.cursor().execute("SELECT count(*) FROM documents").fetchall()[0][0]
            self._counted = (now, chunks)
        return chunks

    def parallel(self, plan: SearchOptions) -> bool:  # noqa: ARG002
        return True

    def passing_filters(self, filters: Filters) -> dict[str, Any]:
        return legs.passing_filters(self.cursor(), filters)

    def any_passes(self, filters: dict[str, Any]) -> bool:
        return legs.any_passes(self.cursor(), filters)

    def date_fields(self, names: Collection[str], collection: Sequence[str] | None) -> dict[str, str]:
        return legs.date_fields(self.cursor(), names, collection)

    def first_values(self, names: Collection[str], collection: Sequence[str] | None) -> dict[str, Any]:
        return legs.first_values(self.cursor(), names, collection)

    def not_compared(self, field: str, collection: Sequence[str] | None, kind: str) -> list[tuple[int, str]]:
        named = {"field": field, "collection": collection, "kind": kind}
        return [(count, value) for count, value in self.select("serving/not_compared", named)]

    def vector_leg(self, vector: NDArray[np.float32], k: int, filters: dict[str, Any], plan: SearchOptions) -> Leg:
        chunks, pool = self.chunks(), None
        if not plan.exact:
            pool = plan.codes_pool or legs.default_pool(chunks, len(vector), k)
        return legs.vector_leg(self.cursor(), vector, k, filters, pool=pool, chunks=chunks)

    def dictionary(self) -> FileDictionary:
        """Return the terms of the file."""
        return FileDictionary(self.cursor())

    def query_terms(self, query_text: str, plan: SearchOptions) -> Terms:
        try:
            terms = query_terms(
                self.cursor(),
                query_text,
                self.metadata["stemmer"],
                syntax=plan.syntax,
                conjunctive=plan.conjunctive,
                chunks=self.chunks(),
            )
            return terms if terms.texts else weighed(terms, self.chunks(), plan.bm25.k1 + 1)
        except duckdb.CatalogException as error:
            raise NoLexicalIndexError(str(error)) from error

    def expanded_terms(self, terms: Terms, node_ids: Sequence[str], count: int, weight: float) -> Terms:
        return legs.expanded_terms(self.cursor(), terms, node_ids, count, weight, self.metadata["stemmer"])

    def lexical_leg(
        self, terms: Terms, k: int, plan: SearchOptions, filters: dict[str, Any], of: Share | None = None
    ) -> Leg:
        try:
            return legs.lexical_leg(self.cursor(), terms, k, plan.bm25, filters, conjunctive=plan.conjunctive, of=of)
        except duckdb.CatalogException as error:
            raise NoLexicalIndexError(str(error)) from error

    def pair_scores(
        self,
        vector: NDArray[np.float32],
        terms: Terms,
        rids: Sequence[int],
        bm25: BM25,
        sample: list[tuple[float | None, float]] | None = None,
        of: Share | None = None,
    ) -> ExactScores:
        nth = None if sample is None else of.nth if of else legs.sampled_nth(terms, self.chunks())
        totals = of.totals if of else None
        return legs.pair_scores(self.cursor(), vector, terms, rids, bm25, totals=totals, nth=nth, sample=sample)

    def chunk_rows(self, node_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        return rows.chunk_rows(self.cursor(), node_ids)

    def source_documents(self, doc_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        return rows.source_documents(self.cursor(), doc_ids)

    def sources_of_chunks(self, chunk_ids: Sequence[str]) -> list[dict[str, Any]]:
        return rows.sources_of_chunks(self.cursor(), self.path, chunk_ids)

    def chunks_at(self, places: Sequence[tuple[str, int]]) -> list[Candidate]:
        return rows.chunks_at(self.cursor(), places)

    def read_chunks(self, conditions: Mapping[str, Any]) -> list[Chunk]:
        return read_chunks(self.cursor(), conditions)

    def vectors_of(self, node_ids: Sequence[str]) -> Vectors:
        return rows.vectors_of(self.cursor(), self.path, node_ids, int(self.metadata["embedding_dimensions"]))

    def spans(self, query_text: str, texts: Sequence[str], *, syntax: bool) -> list[list[tuple[int, int]]]:
        return spans(self.cursor(), query_text, texts, self.metadata["stemmer"], syntax=syntax)

    def statement(self, query_text: str, plan: SearchOptions, terms: Terms, pool: int | None) -> str:
        return as_sql(query_text, plan, terms, pool)

    def explained(self, run: SearchState, node_id: str) -> Explanation:
        return explained(run, FileFacts(run, self.cursor()), node_id)

    def files_of(self, node_ids: Sequence[str]) -> dict[str, Path]:  # noqa: ARG002
        return {}

    def checksums(self, doc_ids: Sequence[str]) -> dict[str, str]:
        return dict(self.select("serving/checksums", {"doc_ids": list(doc_ids)}))

    def select(self, name: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return self.cursor().execute(read_sql(name), dict(values)).fetchall()

    def row_sources(self, most: int) -> list[dict[str, Any]]:
        return row_tables.described(self.cursor(), most)

    def has_rows(self) -> bool:
        return bool(row_tables.sources(self.cursor()))

    def settings(self) -> dict[str, str]:
        return read_metadata(self.cursor())
