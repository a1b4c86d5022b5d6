"""Searches in Postgres: pgvector's cosine distance and our BM25, with the scores and the order of a DuckDB file."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from sqlrag.arguments import MOST
from sqlrag.engines.base import Engine
from sqlrag.engines.duckdb import legs
from sqlrag.engines.duckdb.documents import LLAMA_INDEX_FIELDS
from sqlrag.engines.duckdb.lexical import query_terms, spans, word_macros
from sqlrag.engines.duckdb.rows import (
    CHUNK_COLUMNS,
    as_time,
    candidates_of,
    check_found,
    checked_places,
    ids_of,
    rows_of,
)
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.engines.explained import Lengths, explained
from sqlrag.engines.postgres.conditions import Where, where
from sqlrag.engines.postgres.connection import read_settings
from sqlrag.engines.postgres.lexical import (
    PostgresDictionary,
    PostgresTerms,
    Scored,
    as_documents,
    chunks_of,
    scored,
)
from sqlrag.engines.postgres.rows import PostgresRows, as_array
from sqlrag.errors import InputError
from sqlrag.ranking.filters import alternatives_of, check_dates
from sqlrag.ranking.fusion import DECIMALS, Leg, LegHit
from sqlrag.ranking.terms import weighed
from sqlrag.ranking.vectors import query_weights
from sqlrag.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    import duckdb
    from numpy.typing import NDArray

    from sqlrag.engines.base import SearchState
    from sqlrag.engines.postgres.connection import Connection, Server
    from sqlrag.ranking.explanation import Explanation
    from sqlrag.ranking.filters import Filters
    from sqlrag.ranking.fusion import ExactScores
    from sqlrag.ranking.plan import BM25, SearchOptions
    from sqlrag.ranking.terms import Terms
    from sqlrag.types import Candidate, Chunk, Vectors

T = TypeVar("T")

EXACT_UP_TO = 5_000

"""Up to this many chunks that pass the filters are compared one by one, as fast as the index, and missing none."""

# Of a graph.
_POOL = 800

# So many pools are taken by the bits that differ, of a large store more.
_POOLS, _POOLS_OF_LARGE = 4, 16

# From so many chunks on a sample says how far codes may differ, by so many standard deviations more than it takes.
_LARGE, _SAMPLE, _DEVIATIONS = 200_000, 2_000, 4

# So many of the best are tried first where filters or phrases may refuse some.
_TRIED = 1_000

_ABORTED = "25P02"  # what a statement gets after another one of its transaction has failed

_MOST_EF = 1_000  # pgvector's limit of hnsw.ef_search


def parsed(metadata: str) -> Any:
    """Return the alternatives of a metadata filter that is given as JSON."""
    return alternatives_of(json.loads(metadata))


class PostgresEngine(Engine):
    """An engine over a server, or, inside of :meth:`read`, over one transaction on it."""

    note = ""

    def __init__(self, server: Server, metadata: dict[str, str], con: Connection | None = None) -> None:
        self._server = server
        self._metadata = metadata
        self._con = con
        self._cause: Exception | None = None

    @property
    def path(self) -> str:
        return self._server.path

    @property
    def metadata(self) -> dict[str, str]:
        return self._metadata

    @property
    def closed(self) -> bool:
        return self._server.closed

    def close(self) -> None:
        self._server.close()

    def cursor(self) -> duckdb.DuckDBPyConnection:
        self._refuse("DuckDB's SQL")

    def _refuse(self, what: str) -> NoReturn:
        raise InputError(
            f"{what} needs a DuckDB file, and {self.path} is in Postgres. Copy it to a file: sqlrag pull URL kb.duckdb."
        )

    def read(self, work: Callable[[Engine], T]) -> T:
        return self._server.read(lambda con: work(PostgresEngine(self._server, self._metadata, con)))

    def _ask(self, ask: Callable[[Connection], T]) -> T:
        if self._con is None:
            return self._server.read(ask)
        try:
            return ask(self._con)
        except Exception as error:
            if self._cause is not None and getattr(error, "sqlstate", "") == _ABORTED:
                raise self._cause from error  # of the other leg, in the same transaction
            self._cause = error
            raise

    def _rows(self, name: str, values: Mapping[str, Any], conditions: Where | None = None) -> list[tuple[Any, ...]]:
        statement = read_sql(f"postgres/{name}")
        if conditions is not None:
            statement = conditions.into(statement)
            values = {**conditions.values, **values}

        def ask(con: Connection) -> list[tuple[Any, ...]]:
            with con.cursor(binary=True) as cursor:
                return cursor.execute(statement, values).fetchall()

        return self._ask(ask)

    # Filters.

    def parallel(self, plan: SearchOptions) -> bool:  # noqa: ARG002
        return True

    def passing_filters(self, filters: Filters) -> dict[str, Any]:
        named = filters.parameters()
        metadata = named.pop("metadata", None)
        if metadata is not None:
            check_dates(filters, self.date_fields)
            named["alternatives"] = parsed(metadata)
        return {"where": where(**named)} if named else {}

    def any_passes(self, filters: dict[str, Any]) -> bool:
        return self._passing(filters, 1) > 0

    def _passing(self, filters: dict[str, Any], most: int) -> int:
        return int(self._rows("passing", {"most": most}, filters.get("where", Where()))[0][0])

    def date_fields(self, names: Collection[str], collection: Sequence[str] | None) -> dict[str, str]:
        found = {name: self._rows("date_field", {"field": name, "collection": collection}) for name in names}
        return {name: rows[0][0] for name, rows in found.items() if rows}

    def first_values(self, names: Collection[str], collection: Sequence[str] | None) -> dict[str, Any]:
        found = {name: self._rows("first_value", {"field": name, "collection": collection}) for name in names}
        return {name: rows[0][0] for name, rows in found.items() if rows}

    def not_compared(self, field: str, collection: Sequence[str] | None, kind: str) -> list[tuple[int, str]]:
        named = {"field": field, "collection": collection, "kind": kind}
        return [(count, value) for count, value in self.select("serving/not_compared", named)]

    # The legs.

    def vector_leg(self, vector: NDArray[np.float32], k: int, filters: dict[str, Any], plan: SearchOptions) -> Leg:
        conditions = filters.get("where", Where())
        few = self._passing(filters, EXACT_UP_TO + 1) <= EXACT_UP_TO
        if plan.exact or few:
            return self._exact(vector, k, conditions, "exact: every vector compared")
        ((chunks, last, graph),) = self._rows("vector_index", {})
        pool = plan.codes_pool or (max(_POOL, 4 * k) if graph else legs.default_pool(chunks, len(vector), k))
        self._rows("search_widely", {"ef": min(pool, _MOST_EF)})
        values = {"query_vector": vector, "pool": max(pool, k), "k": k}
        if not graph:
            found = self._by_codes(values, conditions, chunks, last)
            return _leg(found, vector, k, legs.method_of(chunks, pool, filters))
        found = self._rows("vector_search", values, conditions)
        if len(found) < min(k, EXACT_UP_TO):
            # More pass, but the index search ended before it found them.
            return self._exact(vector, k, conditions, "exact: the HNSW index found too few that pass the filters")
        return _leg(found, vector, k, f"HNSW index, then the exact cosines of the best {pool:,}")

    def _by_codes(self, values: dict[str, Any], conditions: Where, chunks: int, last: int) -> list[tuple[Any, ...]]:
        """Return the rows of code_search.sql, of a large store by those alone that a sample says are near enough."""
        vector = values["query_vector"]
        first = values["pool"] * (_POOLS_OF_LARGE if chunks >= _LARGE else _POOLS)
        low, high = ("".join(map(str, bits.astype(int))) for bits in query_weights(vector))
        share = first / max(chunks, 1)
        part = min(1.0, share + _DEVIATIONS * math.sqrt(share / _SAMPLE))
        values |= {
            "first": first,
            "low": low,
            "high": high,
            "last": last,
            "sample": _SAMPLE,
            "part": part,
            "most": None,
        }
        if chunks >= _LARGE and part < 0.5 and not conditions.parts:
            found = self._rows("code_search", values, conditions)
            if found and found[0][-1] == first:
                return [row[:-1] for row in found]
        return [row[:-1] for row in self._rows("code_search", {**values, "most": len(vector)}, conditions)]

    def _exact(self, vector: NDArray[np.float32], k: int, conditions: Where, method: str) -> Leg:
        found = self._rows("exact_vector_search", {"query_vector": vector, "k": k}, conditions)
        return _leg(found, vector, k, method)

    def _words(self, dictionary: PostgresDictionary) -> duckdb.DuckDBPyConnection:
        """Return a cursor of a database that has the macros and the stop words of the store, and no chunks."""
        return word_macros(dictionary.stop_words).cursor()

    def _dictionary(self) -> PostgresDictionary:
        return PostgresDictionary(self._rows)

    def query_terms(self, query_text: str, plan: SearchOptions) -> Terms:
        dictionary = self._dictionary()
        chunks = dictionary.totals.chunks
        terms = query_terms(
            self._words(dictionary),
            query_text,
            self.metadata["stemmer"],
            syntax=plan.syntax,
            conjunctive=plan.conjunctive,
            chunks=chunks,
            dictionary=dictionary,
        )
        return PostgresTerms.of(terms if terms.texts else weighed(terms, chunks, plan.bm25.k1 + 1), dictionary)

    def expanded_terms(self, terms: Terms, node_ids: Sequence[str], count: int, weight: float) -> Terms:
        dictionary = _own(terms).dictionary
        assert dictionary is not None  # noqa: S101 - query_terms sets it
        texts = {node_id: visible(row["shown"] or row["text"]) for node_id, row in self.chunk_rows(node_ids).items()}
        expanded = legs.with_distinctive(
            self._words(dictionary),
            terms,
            texts,
            count,
            weight,
            self.metadata["stemmer"],
            dictionary=dictionary,
            num_docs=dictionary.totals.chunks,
        )
        return PostgresTerms.of(expanded, dictionary)

    def lexical_leg(self, terms: Terms, k: int, plan: SearchOptions, filters: dict[str, Any]) -> Leg:
        if legs.nothing_to_look_for(terms, conjunctive=plan.conjunctive):
            return Leg(method=legs.NOTHING)
        plain = not terms.clauses
        at_least = terms.wanted if plan.conjunctive and plain else 1
        found = scored(_own(terms), plan.bm25, at_least=at_least, required=terms.required)
        rows = self._best(found, k, filters.get("where"), terms.phrases, plan.bm25)
        return Leg(
            [LegHit(*row[:4]) for row in rows],
            {row[0]: row[4] for row in rows},
            "every posting scored" if plain else "words, phrases and prefixes as asked",
        )

    def _best(
        self, found: Scored, k: int, conditions: Where | None, phrases: Sequence[str], bm25: BM25
    ) -> list[tuple[Any, ...]]:
        """Return the ``k`` best that pass the filters and hold the phrases, as ``hits.sql`` does."""
        if conditions is not None:
            tried = found.best(max(_TRIED, 10 * k))
            rows = [] if phrases else self._hits(tried, k, conditions)
            if not phrases and (len(rows) == k or len(tried.rids) == len(found.rids)):
                return rows
            found = found.among([rid for (rid,) in self._rows("lexical/passing_rids", {}, conditions)])
        if phrases:
            found = self._holding(found, k, phrases, bm25)
        return self._hits(found.best(k), k)

    def _hits(self, found: Scored, k: int, conditions: Where | None = None) -> list[tuple[Any, ...]]:
        values = {"rids": found.rids.tolist(), "scores": found.scores.tolist(), "k": k}
        return self._rows("lexical/hits", values, conditions)

    def _holding(self, found: Scored, k: int, phrases: Sequence[str], bm25: BM25) -> Scored:
        """Return the best that hold the phrases, ``k`` or more of them, if there are as many."""
        values = {"text_weight": bm25.text_weight, "heading_weight": bm25.heading_weight, "phrases": list(phrases)}
        con = word_macros().cursor()
        tried, held, count = Scored(found.rids[:0], found.scores[:0]), found.rids[:0], _TRIED
        while len(held) < k and len(tried.rids) < len(found.rids):
            more = found.best(count)
            new = more.rids[~np.isin(more.rids, tried.rids)].tolist()
            rows = self._rows("lexical/texts", {"rids": new})
            as_documents(con, chunks_of(rows))
            places = con.execute(read_sql("postgres/lexical/holding_phrases"), values).fetchall()
            held = np.append(held, [rows[place][0] for (place,) in places]).astype(np.int64)
            tried, count = more, 4 * count
        con.close()
        return tried.among(held)

    def pair_scores(
        self,
        vector: NDArray[np.float32],
        terms: Terms,
        rids: Sequence[int],
        bm25: BM25,
        sample: list[tuple[float | None, float]] | None = None,
    ) -> ExactScores:
        own = _own(terms)
        found = scored(own, bm25)
        drawn: set[int] = set()
        if sample is not None and own.dictionary is not None:
            records = own.dictionary.lengths()
            nth = np.uint64(legs.sampled_nth(terms, own.dictionary.totals.chunks))
            drawn = set(found.among(records["rid"][records["hash"] % nth == 0]).rids.tolist())
        rows = self._rows("lexical/vectors", {"rids": sorted(drawn.union(rids))})
        wanted = found.among([rid for rid, _ in rows])
        score = dict(zip(wanted.rids.tolist(), wanted.scores.tolist(), strict=True))
        cosines = _cosines([embedding for _, embedding in rows], vector)
        pairs = {rid: (cosine, score.get(rid, 0.0)) for (rid, _), cosine in zip(rows, cosines, strict=True)}
        if sample is not None:
            sample.extend(pair for rid, pair in pairs.items() if rid in drawn)
        return pairs

    # Rows.

    def chunk_rows(self, node_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        rows = self._rows("chunk_rows", {"node_ids": list(node_ids)})
        chunks = [dict(zip(CHUNK_COLUMNS, _reordered(row), strict=True)) for row in rows]
        return {chunk["node_id"]: chunk for chunk in chunks}

    def source_documents(self, doc_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        documents = self._stored(ids_of("doc_ids", doc_ids, "['guides/setup.md']"))
        return {
            document.doc_id: {
                "doc_id": document.doc_id,
                "file_path": document.file_path,
                "file_name": document.file_name,
                "text": document.text,
                "metadata": dict(document.metadata),
            }
            for document in documents
        }

    def _stored(self, doc_ids: Sequence[str]) -> list[Any]:
        return self._ask(lambda con: PostgresRows(con, parsed).read_documents(sorted(set(doc_ids))))

    def sources_of_chunks(self, chunk_ids: Sequence[str]) -> list[dict[str, Any]]:
        wanted = ids_of("chunk_ids", chunk_ids, "['guides/setup.md#3']")

        def ask(engine: Engine) -> list[dict[str, Any]]:
            doc_of = {node_id: row["doc_id"] for node_id, row in engine.chunk_rows(wanted).items()}
            check_found(self.path, wanted, doc_of, self._similar)
            sources = engine.source_documents(list(doc_of.values()))
            return rows_of(self.path, sources, list(dict.fromkeys(doc_of[chunk_id] for chunk_id in wanted)))

        return self.read(ask) if self._con is None else ask(self)

    def chunks_at(self, places: Sequence[tuple[str, int]]) -> list[Candidate]:
        return candidates_of(self._rows("chunks_at", checked_places(places)))

    def read_chunks(self, conditions: Mapping[str, Any]) -> list[Chunk]:
        return self._ask(lambda con: PostgresRows(con, parsed).read_chunks(conditions))

    def vectors_of(self, node_ids: Sequence[str]) -> Vectors:
        wanted = ids_of("node_ids", node_ids, "['guides/setup.md#3']")
        found = self._ask(lambda con: PostgresRows(con, parsed).read_vectors(wanted))
        check_found(self.path, wanted, found, self._similar)
        dimensions = int(self.metadata["embedding_dimensions"])
        return np.array([found[node_id] for node_id in wanted], dtype=np.float32).reshape(-1, dimensions)

    def _similar(self, node_id: str) -> list[str]:
        beginning = node_id.rpartition("#")[0] or node_id
        return [found for (found,) in self._rows("similar_ids", {"beginning": beginning})]

    def spans(self, query_text: str, texts: Sequence[str], *, syntax: bool) -> list[list[tuple[int, int]]]:
        return spans(self._words(self._dictionary()), query_text, texts, self.metadata["stemmer"], syntax=syntax)

    def statement(self, query_text: str, plan: SearchOptions, terms: Terms, pool: int | None) -> str:  # noqa: ARG002
        return f"-- sql/postgres/ has the statements of a search in {self.path}; they bind their values."

    def explained(self, run: SearchState, node_id: str) -> Explanation:
        return explained(run, _PostgresFacts(run, self._rows), node_id)

    def files_of(self, node_ids: Sequence[str]) -> dict[str, Path]:  # noqa: ARG002
        return {}

    def checksums(self, doc_ids: Sequence[str]) -> dict[str, str]:
        return dict(self._rows("serving/checksums", {"doc_ids": list(doc_ids)}))

    def select(self, name: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return self._rows(name, values)

    def row_sources(self, most: int) -> list[dict[str, Any]]:  # noqa: ARG002 - rows are documents there
        return []

    def has_rows(self) -> bool:
        return False

    def settings(self) -> dict[str, str]:
        counts = dict(self._rows("counts", {}))
        return {**self._ask(read_settings), **counts}


def _cosines(vectors: Sequence[Any], vector: NDArray[np.float32]) -> list[float]:
    """Return the cosines of unit vectors to another, as the DuckDB store rounds them."""
    if not vectors:
        return []
    query = np.asarray(vector, dtype=np.float64)
    matrix = np.array([as_array(one) for one in vectors], dtype=np.float64)
    products = np.einsum("ij,j->i", matrix, query) / np.linalg.norm(query)
    return [float(value) for value in np.clip(np.round(products, DECIMALS), -1, 1)]


def _leg(rows: Sequence[tuple[Any, ...]], vector: NDArray[np.float32], k: int, method: str) -> Leg:
    cosines = _cosines([row[4] for row in rows], vector)
    hits = [LegHit(row[0], row[1], row[2], score) for row, score in zip(rows, cosines, strict=True)]
    best = sorted(hits, key=lambda hit: (-hit.score, hit.doc_id, hit.chunk_index))[:k]
    return Leg(best, {row[0]: row[3] for row in rows}, method)


def _own(terms: Terms) -> PostgresTerms:
    return terms if isinstance(terms, PostgresTerms) else PostgresTerms(**vars(terms))  # none were looked up


class _PostgresFacts:
    """The :class:`~sqlrag.engines.explained.Facts` of a store for one search."""

    def __init__(self, run: SearchState, rows: Callable[..., list[tuple[Any, ...]]]) -> None:
        self._run = run
        self._rows = rows
        self._dictionary = _own(run.terms).dictionary or PostgresDictionary(rows)

    def place(self, node_id: str) -> tuple[int, bool] | None:
        found: list[Any] = self._rows("lexical/place", {"node_id": node_id}, self._run.filters.get("where", Where()))
        return found[0] if found else None

    def cosine(self, rid: int, *, passes: bool) -> tuple[float | None, int | None]:
        vector = self._run.query_vector
        assert vector is not None  # noqa: S101 - the caller has checked it
        conditions = self._run.filters.get("where", Where()) if passes else Where()
        values = {"query_vector": vector, "rid": rid}
        near = _leg(self._rows("lexical/as_near", values, conditions), vector, MOST, "").hits
        place = next(place for place, hit in enumerate(near) if hit.rid == rid)
        return near[place].score, self._rows("lexical/nearer", values, conditions)[0][0] + place + 1

    def lengths(self, rid: int) -> Lengths:
        records = self._dictionary.lengths()
        own = records[records["rid"] == rid]
        totals = self._dictionary.totals
        return Lengths(
            int(own["len"].sum()), int(own["heading_len"].sum()), totals.average, totals.heading_average, totals.chunks
        )

    def terms(self, rid: int) -> list[tuple[int, str, int, int, float]]:
        return sorted(_own(self._run.terms).of_chunk(rid, self._run.plan.bm25), key=lambda row: row[1])


def _reordered(row: Sequence[Any]) -> list[Any]:
    node_id, text, metadata_, *others, created_at = row
    metadata = {key: value for key, value in json.loads(metadata_).items() if key not in LLAMA_INDEX_FIELDS}
    return [node_id, text, metadata, *others, as_time(created_at)]
