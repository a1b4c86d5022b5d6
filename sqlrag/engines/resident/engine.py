"""Searches the arrays of a file, and asks its SQL for what they do not hold."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlrag.engines.duckdb import legs, row_tables
from sqlrag.engines.duckdb.engine import NO_FILTERS, FileEngine
from sqlrag.engines.duckdb.lexical import FileDictionary, query_terms
from sqlrag.engines.duckdb.rows import as_time, vector_matrix
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.engines.resident.index import MOST_FILTERS, Rounded
from sqlrag.locks import new_lock
from sqlrag.ranking.fusion import Leg, LegHit
from sqlrag.ranking.terms import weighed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sqlrag.engines.duckdb.legs import Share
    from sqlrag.engines.resident.index import Flags, Index, Ranked, Rows
    from sqlrag.ranking.filters import Filters
    from sqlrag.ranking.fusion import ExactScores
    from sqlrag.ranking.plan import BM25, SearchOptions
    from sqlrag.ranking.terms import Terms

_IN_MEMORY = "in memory: "

_ROUNDED = ", read from the file where the rounded ones leave it open"

# Words without a chunk whose nearest words are remembered: finding them takes longer than the rest of a search.
_MOST_NEAR = 1024

# Up to so many chunks a leg takes less than what a second thread costs.
_QUICK = 300_000

# Below that, threads take turns: numpy lets go of the interpreter for every few microseconds of work, and to get it
# back from other threads takes longer than the work.
_turns = new_lock()


class ResidentEngine(FileEngine):
    """An :class:`~sqlrag.engines.base.Engine` over the arrays of a file in one state, for one search.

    Quotes, stars and ``exact=True`` are left to the SQL of the file, as is what the arrays have no room for. SQL also
    says which chunks pass a filter, once in each state of the file for the filters of late.
    """

    note = "memory"

    def __init__(self, engine: FileEngine, index: Index) -> None:
        super().__init__(engine.database, engine.metadata)
        self._index = index
        self._rows: dict[str, int] = {}
        self._passing: Flags | None = None
        self._turn = _turns if index.chunks <= _QUICK else nullcontext()

    def chunks(self) -> int:
        return self._index.chunks

    def parallel(self, plan: SearchOptions) -> bool:
        return plan.exact or self.chunks() > _QUICK

    def passing_filters(self, filters: Filters) -> dict[str, Any]:
        asked = filters.parameters()
        if not asked:
            return {}
        key = json.dumps(asked, sort_keys=True)
        passing = self._index.passing.get(key)
        if passing is None:
            named = {**NO_FILTERS, **super().passing_filters(filters)}
            found = self.cursor().execute(read_sql("resident/passing"), named).fetchnumpy()["rid"]
            passing = self._index.flags(found)
            if self.database.state() == self._index.state:  # or these may be the chunks of another one
                self._index.keep_passing(key, passing)
        self._passing = passing
        return {"passing": self._index.bits(passing)}

    def not_compared(self, field: str, collection: Sequence[str] | None, kind: str) -> list[tuple[int, str]]:
        key = json.dumps([field, collection, kind])
        found = self._index.not_compared.get(key)
        if found is None:
            found = super().not_compared(field, collection, kind)
            if self.database.state() == self._index.state and len(self._index.not_compared) < MOST_FILTERS:
                self._index.not_compared[key] = found
        return found

    def vector_leg(self, vector: NDArray[np.float32], k: int, filters: dict[str, Any], plan: SearchOptions) -> Leg:
        if plan.exact:
            return super().vector_leg(vector, k, filters, plan)
        asked = plan.codes_pool or legs.default_pool(self.chunks(), len(vector), k)
        pool = max(asked, k)
        passing = self._passing if filters else None
        method = legs.method_of(self.chunks(), pool, filters)
        with self._turn:
            ranked = self._index.nearest(vector, k, pool, passing, vectors_of=self._vectors_of)
        leg = self._leg(ranked, f"{method}{_ROUNDED}" if isinstance(self._index.vectors, Rounded) else method)
        leg.pool = asked
        return leg

    def dictionary(self) -> FileDictionary:
        return _Dictionary(self.cursor(), self._index)

    def query_terms(self, query_text: str, plan: SearchOptions) -> Terms:
        con = self.cursor()
        terms = query_terms(
            con,
            query_text,
            self.metadata["stemmer"],
            syntax=plan.syntax,
            conjunctive=plan.conjunctive,
            chunks=self.chunks(),
            dictionary=self.dictionary(),
            stops=self._index.stops,
        )
        return terms if terms.texts else weighed(terms, self.chunks(), plan.bm25.k1 + 1)

    def lexical_leg(
        self, terms: Terms, k: int, plan: SearchOptions, filters: dict[str, Any], of: Share | None = None
    ) -> Leg:
        if terms.clauses:
            return super().lexical_leg(terms, k, plan, filters, of)
        if legs.nothing_to_look_for(terms, conjunctive=plan.conjunctive):
            return Leg(method=legs.NOTHING)
        at_least = terms.wanted if plan.conjunctive else 1
        passing = self._passing if filters else None
        totals = of.totals if of else None
        with self._turn:
            ranked = self._index.best(terms, plan.bm25, k, at_least, passing, totals)
        return self._leg(ranked, "words by their postings")

    def pair_scores(
        self,
        vector: NDArray[np.float32],
        terms: Terms,
        rids: Sequence[int],
        bm25: BM25,
        sample: list[tuple[float | None, float]] | None = None,
        of: Share | None = None,
    ) -> ExactScores:
        index = self._index
        wanted = index.rows_of(rids)
        nth = of.nth if of else legs.sampled_nth(terms, self.chunks())
        sampled = index.sampled(terms, nth) if sample is not None else wanted[:0]
        rows = np.union1d(wanted, sampled)
        with self._turn:
            cosines: list[float | None] = index.cosines(vector, self._vectors_of(rows)).tolist()
            scores, held = index.bm25(terms, bm25, rows, of.totals if of else None)
        known = (None if cosine != cosine else cosine for cosine in cosines)  # NaN is that of a damaged vector
        pairs = list(zip(known, scores.tolist(), strict=True))
        if sample is not None:
            sample.extend(pairs[place] for place in (rows.searchsorted(sampled)).tolist() if held[place])
        return {rid: pairs[place] for rid, place in zip(rids, rows.searchsorted(wanted).tolist(), strict=True)}

    def chunk_rows(self, node_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        rows = [self._rows.get(node_id, -1) for node_id in node_ids]
        if self._index.contents is None or -1 in rows:
            return super().chunk_rows(node_ids)
        found = self._index.shown(rows)
        for chunk in found:
            chunk["metadata"] = json.loads(chunk["metadata"])
            chunk["created_at"] = as_time(chunk["created_at"])
        row_tables.add_keys(self.cursor(), found)
        return {chunk["node_id"]: chunk for chunk in found}

    def _vectors_of(self, rows: Rows) -> NDArray[np.float32]:
        """Return the vectors of rows, from the file where there is only room for rounded ones."""
        index = self._index
        if not isinstance(index.vectors, Rounded):
            return index.vectors[rows]
        found: dict[int, NDArray[np.float32] | None] = {row: index.exact.get(row) for row in rows.tolist()}
        unread = [row for row, vector in found.items() if vector is None]
        if unread:
            asked = {"rids": index.rids[unread].tolist()}
            table = self.cursor().sql(read_sql("resident/vectors_of"), params=asked).to_arrow_table()
            vectors = vector_matrix(table["embedding"], index.dimensions)
            read = dict(zip(index.rows_of(table["rid"].to_numpy()).tolist(), vectors, strict=True))
            if self.database.state() == index.state:  # or they may be those of another one
                index.keep_exact(read)
            found |= read
        return np.array(list(found.values()), dtype=np.float32).reshape(-1, index.dimensions)

    def _leg(self, ranked: Ranked, method: str) -> Leg:
        rids, node_ids, doc_ids, numbers = self._index.named(ranked.rows)
        self._rows.update(zip(node_ids, ranked.rows.tolist(), strict=True))
        return Leg(
            hits=[LegHit(*hit) for hit in zip(rids, doc_ids, numbers, ranked.scores.tolist(), strict=True)],
            node_ids=dict(zip(rids, node_ids, strict=True)),
            method=f"{_IN_MEMORY}{method}",
        )


@dataclass(frozen=True)
class _Dictionary(FileDictionary):
    """The dictionary of the file, with the terms of a question from memory, and its unknown words from then on."""

    index: Index

    def look_up(self, terms: Sequence[str]) -> list[tuple[str, int, int]]:
        return self.index.look_up(terms)

    def nearest(self, word: str, most: int) -> list[tuple[int, int, str]]:
        known = self.index.near
        if (word, most) not in known:
            if len(known) >= _MOST_NEAR:
                known.clear()
            known[word, most] = super().nearest(word, most)
        return known[word, most]
