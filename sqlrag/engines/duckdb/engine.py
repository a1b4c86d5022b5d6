"""Searches in one DuckDB file, and explains what each leg and term adds to a chunk's score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from sqlrag.arguments import MOST
from sqlrag.engines.base import Engine, NoLexicalIndexError
from sqlrag.engines.duckdb import legs, row_tables, rows
from sqlrag.engines.duckdb.chunks import read_chunks
from sqlrag.engines.duckdb.failures import reported
from sqlrag.engines.duckdb.legs import as_text, lexical_leg
from sqlrag.engines.duckdb.lexical import query_terms, spans, stem_word
from sqlrag.engines.duckdb.metadata import read_metadata, required_metadata
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.engines.duckdb.statements import as_sql
from sqlrag.errors import NotFoundError
from sqlrag.ranking.explanation import AdaptivePart, Explanation, LexicalPart, TermPart, VectorPart
from sqlrag.ranking.filters import filter_hints
from sqlrag.ranking.fusion import Parts, gap_of, part_formula
from sqlrag.ranking.terms import idf, weighed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from sqlrag.engines.base import SearchState
    from sqlrag.engines.duckdb.database import Database
    from sqlrag.ranking.filters import Filters
    from sqlrag.ranking.fusion import ExactScores, FusedHit, Leg
    from sqlrag.ranking.plan import BM25, SearchOptions
    from sqlrag.ranking.terms import Terms
    from sqlrag.types import Candidate, Chunk, Vectors

_NO_FILTERS: dict[str, Any] = dict.fromkeys(("collection", "tags_any", "tags_all", "passing"))

_FILTERED = "It does not pass the filters."


def explained(run: SearchState, con: duckdb.DuckDBPyConnection, node_id: str) -> Explanation:
    """Return why a chunk has its rank in a search whose legs have run.

    Raises
    ------
    NotFoundError
        The file has no such chunk.
    """
    filters = {**_NO_FILTERS, **run.filters}
    found = con.execute(read_sql("explaining/place"), {**filters, "node_id": node_id}).fetchall()
    if not found:
        raise NotFoundError(f"{run.engine.path} has no chunk {node_id!r}.")
    rid, passes = found[0]
    parts: dict[int, Parts] = {}
    hits, score_type = run.fused(parts)
    rank, hit = next(((rank, hit) for rank, hit in enumerate(hits, 1) if hit.rid == rid), (None, None))
    contributions = parts.get(rid, Parts(0.0, 0.0))
    vector = lexical = None
    if run.query_vector is not None:
        vector = _vector_part(run, con, rid, passes, hits, hit, contributions.vector)
    if run.plan.mode != "vector" and run.has_lexical_index:
        lexical = _lexical_part(run, con, rid, passes, hits, hit, contributions.lexical)
    score = hit.score if hit else None
    adaptive = None
    if score_type == "adaptive" and run.trust:
        gap = gap_of(hit.lexical_score or 0.0 for hit in hits if hit.lexical_rank is not None)
        adaptive = AdaptivePart(*run.trust, gap, contributions.lift)
    notices = tuple(run.notices)
    return Explanation(run.query_text, node_id, score, score_type, rank, vector, lexical, notices, adaptive)


def _vector_part(
    run: SearchState,
    con: duckdb.DuckDBPyConnection,
    rid: int,
    passes: bool,
    hits: Sequence[FusedHit],
    hit: FusedHit | None,
    contribution: float,
) -> VectorPart:
    assert run.query_vector is not None  # noqa: S101 - the caller has checked it
    rank = hit.vector_rank if hit else None
    if hit and rank is not None:
        formula = _formula(run, hits, hit, "vector")
        return VectorPart(hit.vector_score, rank, rank, contribution, formula, "")
    asked = {"query_vector": as_text(run.query_vector), "rid": rid, **_NO_FILTERS, **(run.filters if passes else {})}
    found = con.execute(read_sql("explaining/vector"), asked).fetchall()
    row: Any = found[0] if found else (None, None)
    cosine, place = row
    limit = run.plan.vector_candidates
    least = run.plan.min_similarity
    if not passes:
        place, reason = None, _FILTERED
    elif cosine is None:
        reason = "Its vector is damaged; run check(db_path)."
    elif least is not None and cosine < least:
        reason = f"Its cosine is below min_similarity={least}."
    elif place > limit:
        reason = f"It is number {place} by cosine, and the leg returns {limit} candidates."
    else:
        reason = f"It is number {place} by cosine, but the sign codes left it out; exact=True compares every vector."
    formula = _formula(run, hits, hit, "vector") if contribution and hit else "0"
    return VectorPart(cosine, None, place, contribution, formula, reason)


def _lexical_part(
    run: SearchState,
    con: duckdb.DuckDBPyConnection,
    rid: int,
    passes: bool,
    hits: Sequence[FusedHit],
    hit: FusedHit | None,
    contribution: float,
) -> LexicalPart:
    rank = hit.lexical_rank if hit else None
    lengths = con.execute(read_sql("explaining/lengths"), {"rid": rid}).fetchall()[0]
    length, heading_length, average, heading_average, chunks = lengths
    terms = _term_parts(run, con, rid, chunks)
    place, reason = rank, ""
    if rank is None:
        place, reason = _missed(run, con, rid, terms) if passes else (None, _FILTERED)
    bm25 = run.plan.bm25
    return LexicalPart(
        bm25=round(sum(term.contribution for term in terms), 9),
        rank=rank,
        place=place,
        contribution=contribution,
        formula=_formula(run, hits, hit, "lexical") if hit and (rank is not None or contribution) else "0",
        reason=reason,
        terms=tuple(terms),
        ignored=tuple(run.terms.asked.ignored) if run.terms.asked else (),
        length=bm25.text_weight * length + bm25.heading_weight * heading_length,
        # As in bm25_contributions, never below 1.
        average_length=max(1.0, bm25.text_weight * average + bm25.heading_weight * heading_average),
        **bm25.parameters(),
    )


def _term_parts(run: SearchState, con: duckdb.DuckDBPyConnection, rid: int, chunks: int) -> list[TermPart]:
    """Return the terms that some chunk has, largest contribution first, then the words of the question without one."""
    terms = run.terms
    asked = {"rid": rid, "termids": terms.termids, "dfs": terms.dfs, "boosts": terms.boosts or None}
    rows = con.execute(read_sql("explaining/terms"), {**asked, **run.plan.bm25.parameters()}).fetchall()
    frequency = dict(zip(terms.termids, terms.dfs, strict=True))
    boost = dict(zip(terms.termids, terms.boosts or [1.0] * len(terms.termids), strict=True))
    clause = dict(zip(terms.termids, terms.clauses, strict=False))
    words = _words(terms, run.engine.metadata["stemmer"])
    parts = []
    for termid, term, tf, heading_tf, contribution in rows:
        df = frequency[termid]
        if term in words:
            asked_as = words.pop(term)
        else:
            number = clause.get(termid, 0) - len(terms.texts)
            asked_as = (f"{terms.prefixes[number]}*",) if terms.prefixes and number >= 0 else ()
        parts.append(TermPart(term, asked_as, df, idf(df, chunks), tf, heading_tf, boost[termid], contribution))
    parts.sort(key=lambda part: (-part.contribution, part.term))
    return parts + [TermPart(term, asked_as, 0, idf(0, chunks), 0, 0, 1.0, 0.0) for term, asked_as in words.items()]


def _words(terms: Terms, stemmer: str) -> dict[str, tuple[str, ...]]:
    """Return the words of the question by their term."""
    if terms.asked is None:
        return {}
    words = {term: list(found) for term, found in terms.asked.stems.items()}
    for word in (word for phrase in terms.asked.phrases for word in phrase):
        found = words.setdefault(stem_word(word, stemmer), [])
        found += [] if word in found else [word]
    return {term: tuple(found) for term, found in sorted(words.items())}


def _missed(
    run: SearchState, con: duckdb.DuckDBPyConnection, rid: int, parts: Sequence[TermPart]
) -> tuple[int | None, str]:
    """Return the place among all matches of a chunk that the lexical leg did not return, and why."""
    plan, terms = run.plan, run.terms
    held = [part for part in parts if part.contribution]
    if not terms.termids:
        return None, "The question has no word that a chunk holds."
    if not held:
        return None, "It holds none of the words of the question."
    every = lexical_leg(con, terms, MOST, plan.bm25, run.filters, conjunctive=plan.conjunctive).hits
    place = next((place for place, hit in enumerate(every, 1) if hit.rid == rid), None)
    if place is not None:
        limit = plan.lexical_candidates
        return place, f"It is number {place} by BM25, and the leg returns {limit} candidates."
    holds = {word for part in held for word in part.words}
    wanted = [word for part in parts for word in part.words] if plan.conjunctive else []
    wanted += [word for phrase in (terms.asked.phrases if terms.asked else ()) for word in phrase]
    wanted += [f"{prefix}*" for prefix in terms.prefixes] if plan.conjunctive else []
    missing = sorted({word for word in wanted if word not in holds})
    if missing:
        return None, f"It lacks required words: {', '.join(missing)}."
    quoted = ", ".join(f'"{phrase.strip()}"' for phrase in terms.phrases)
    return None, f"It does not contain the phrases in quotes: {quoted}."


def _formula(run: SearchState, hits: Sequence[FusedHit], hit: FusedHit, leg: str) -> str:
    """Return the formula of a leg's contribution from rank or score, with its numbers."""
    plan, is_vector = run.plan, leg == "vector"
    if plan.mode != "hybrid" or run.query_vector is None or not run.has_lexical_index:
        return "its cosine" if is_vector else "its BM25"
    trust = run.trust.value if run.trust else 1.0
    return part_formula(leg, hit, hits, plan.fusion, trust=trust, **plan.fusion_parameters())


T = TypeVar("T")


class FileEngine:
    """An :class:`~sqlrag.engines.base.Engine` over an open database, which it closes."""

    lexical_score = "bm25"
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

    def without_effect(self, plan: SearchOptions) -> list[str]:  # noqa: ARG002
        return []

    def parallel(self, plan: SearchOptions) -> bool:  # noqa: ARG002
        return True

    def passing_filters(self, filters: Filters) -> dict[str, Any]:
        return legs.passing_filters(self.cursor(), filters)

    def any_passes(self, filters: dict[str, Any]) -> bool:
        return legs.any_passes(self.cursor(), filters)

    def filter_hints(self, filters: Filters) -> list[str]:
        return filter_hints(filters, legs.field_types(self.cursor(), filters))

    def vector_leg(self, vector: NDArray[np.float32], k: int, filters: dict[str, Any], plan: SearchOptions) -> Leg:
        chunks, pool = self.chunks(), None
        if not plan.exact:
            pool = plan.codes_pool or legs.default_pool(chunks, len(vector), k)
        return legs.vector_leg(self.cursor(), vector, k, filters, pool=pool, chunks=chunks)

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

    def lexical_leg(self, terms: Terms, k: int, plan: SearchOptions, filters: dict[str, Any]) -> Leg:
        try:
            return legs.lexical_leg(self.cursor(), terms, k, plan.bm25, filters, conjunctive=plan.conjunctive)
        except duckdb.CatalogException as error:
            raise NoLexicalIndexError(str(error)) from error

    def pair_scores(
        self,
        vector: NDArray[np.float32],
        terms: Terms,
        rids: Sequence[int],
        bm25: BM25,
        sample: list[tuple[float | None, float]] | None = None,
    ) -> ExactScores:
        nth = None if sample is None else legs.sampled_nth(terms, self.chunks())
        return legs.pair_scores(self.cursor(), vector, terms, rids, bm25, nth=nth, sample=sample)

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
        return explained(run, self.cursor(), node_id)

    def files_of(self, node_ids: Sequence[str]) -> dict[str, Path]:  # noqa: ARG002
        return {}

    def checksums(self, doc_ids: Sequence[str]) -> dict[str, str]:
        return dict(self.select("serving/checksums", {"doc_ids": list(doc_ids)}))

    def select(self, name: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return self.cursor().execute(read_sql(name), dict(values)).fetchall()

    def row_sources(self, most: int) -> list[dict[str, Any]]:
        return row_tables.described(self.cursor(), most)

    def settings(self) -> dict[str, str]:
        return read_metadata(self.cursor())
