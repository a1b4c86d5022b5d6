"""Searches in Postgres: pgvector's cosine distance and ts_rank_cd, with the scores and the order of a DuckDB file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from sqlrag.engines.base import Engine
from sqlrag.engines.duckdb.documents import LLAMA_INDEX_FIELDS
from sqlrag.engines.duckdb.lexical import asked, spans, word_macros
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
from sqlrag.engines.postgres.conditions import Where, where
from sqlrag.engines.postgres.connection import INDEXED_DIMENSIONS, read_settings
from sqlrag.engines.postgres.rows import PostgresRows, as_array
from sqlrag.engines.postgres.words import folded
from sqlrag.errors import InputError
from sqlrag.ranking.filters import alternatives_of, compared_fields, filter_hints
from sqlrag.ranking.fusion import DECIMALS, SAMPLE, Leg, LegHit
from sqlrag.ranking.plan import BM25
from sqlrag.ranking.terms import Terms, idf, parse, weighed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import duckdb
    from numpy.typing import NDArray

    from sqlrag.engines.base import SearchState
    from sqlrag.engines.postgres.connection import Connection, Server
    from sqlrag.ranking.explanation import Explanation
    from sqlrag.ranking.filters import Filters
    from sqlrag.ranking.fusion import ExactScores
    from sqlrag.ranking.plan import SearchOptions
    from sqlrag.types import Candidate, Chunk, Vectors

T = TypeVar("T")

EXACT_UP_TO = 5_000

"""Up to this many chunks that pass the filters are compared one by one, as fast as the index, and missing none."""

_POOL = 400

# ts_rank_cd reads the whole entry of a chunk, some 20 µs: where common words match more chunks, only those are
# ranked that hold a rarer one.
_RANKED = 5_000

_MOST_EF = 1_000  # pgvector's limit of hnsw.ef_search

# Of text beside headings. Occurrences count as r / (r + 1), so that this is 1 / k1 of BM25.
_TEXT_WEIGHT = 0.5

# The chunks that hold a word are counted up to this number; beyond it words are equally common.
_COUNTED = 20_000

_EVERY_MATCH = "every match ranked by ts_rank_cd"


def parsed(metadata: str) -> Any:
    """Return the alternatives of a metadata filter that is given as JSON."""
    return alternatives_of(json.loads(metadata))


class PostgresEngine(Engine):
    """An engine over a server, or, inside of :meth:`read`, over one transaction on it."""

    lexical_score = "ts_rank_cd"
    note = ""

    def __init__(self, server: Server, metadata: dict[str, str], con: Connection | None = None) -> None:
        self._server = server
        self._metadata = metadata
        self._con = con

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
        return self._server.read(ask) if self._con is None else ask(self._con)

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

    def without_effect(self, plan: SearchOptions) -> list[str]:
        default, given = BM25(), plan.bm25
        names = [name for name in ("k1", "b") if getattr(given, name) != getattr(default, name)]
        return [f"{name}={getattr(given, name)} has no effect in Postgres, which has no BM25." for name in names]

    def parallel(self, plan: SearchOptions) -> bool:  # noqa: ARG002
        return True

    def passing_filters(self, filters: Filters) -> dict[str, Any]:
        named = filters.parameters()
        metadata = named.pop("metadata", None)
        if metadata is not None:
            named["alternatives"] = parsed(metadata)
        return {"where": where(**named)} if named else {}

    def any_passes(self, filters: dict[str, Any]) -> bool:
        return self._passing(filters, 1) > 0

    def _passing(self, filters: dict[str, Any], most: int) -> int:
        return int(self._rows("passing", {"most": most}, filters.get("where", Where()))[0][0])

    def filter_hints(self, filters: Filters) -> list[str]:
        found = {name: self._rows("field_hint", {"field": name}) for name in compared_fields(filters.metadata or {})}
        return filter_hints(filters, {name: rows[0][0].upper() for name, rows in found.items() if rows})

    # The legs.

    def vector_leg(self, vector: NDArray[np.float32], k: int, filters: dict[str, Any], plan: SearchOptions) -> Leg:
        conditions = filters.get("where", Where())
        few = self._passing(filters, EXACT_UP_TO + 1) <= EXACT_UP_TO
        if plan.exact or few or len(vector) > INDEXED_DIMENSIONS:
            return self._exact(vector, k, conditions, "exact: every vector compared")
        pool = plan.codes_pool or max(_POOL, 4 * k)
        self._ask(lambda con: _search_widely(con, pool))
        found = self._rows("vector_search", {"query_vector": vector, "pool": pool}, conditions)
        if len(found) < min(k, EXACT_UP_TO):
            # More pass, but the index search ended before it found them.
            return self._exact(vector, k, conditions, "exact: the HNSW index found too few that pass the filters")
        return _leg(found, vector, k, f"HNSW index, then the exact cosines of the best {len(found):,}")

    def _exact(self, vector: NDArray[np.float32], k: int, conditions: Where, method: str) -> Leg:
        found = self._rows("exact_vector_search", {"query_vector": vector, "k": k}, conditions)
        return _leg(found, vector, k, method)

    def query_terms(self, query_text: str, plan: SearchOptions) -> Terms:
        if plan.expansion:
            self._refuse("expansion")
        query_text = query_text.replace("\0", " ")  # no text in Postgres has it
        question = parse(query_text) if plan.syntax else None
        words, phrases, prefixes = question or (query_text, [], [])
        words, phrases, prefixes = folded(words), list(map(folded, phrases)), list(map(folded, prefixes))
        values = {"configuration": self._configuration, "words": words, "phrases": phrases}
        beginnings = [f"{_quoted(prefix.lower())}:*" for prefix in prefixes]
        lexemes, found, stems = self._rows("query_lexemes", {**values, "prefixes": beginnings})[0]
        # The words of a text are stored as stems: valves* has to match those of its words, too.
        singles = [_quoted(lexeme) for lexeme in lexemes]
        singles += [f"({one} | {stem})" if stem else one for one, stem in zip(beginnings, stems, strict=True)]
        required = [f"({phrase})" for phrase in found if phrase]
        ranked = [*singles, *required]
        matched = _joined(" & ", ranked if plan.conjunctive else required) or _joined(" | ", ranked)
        counts, idfs, chunks = self._frequencies(ranked)
        kept = [f" {phrase} " for phrase, query in zip(phrases, found, strict=True) if query]
        taken = asked(word_macros().cursor(), query_text, self.metadata["stemmer"], syntax=plan.syntax)
        terms = Terms(
            dfs=counts,
            wanted=len(ranked),
            phrases=kept,
            boosts=idfs,
            texts=[matched, *ranked],
            asked=taken,
            weights=dict(zip(lexemes, idfs, strict=False)),
        )
        return terms if phrases or prefixes else weighed(terms, chunks, 1.0)  # no ts_rank_cd of a word is above 1

    def _frequencies(self, words: Sequence[str]) -> tuple[list[int], list[float], int]:
        """Return how many chunks hold each word, at most _COUNTED, its idf as in BM25, and how many chunks there are.

        Without words the last is 0.
        """
        rows = self._rows("word_counts", {"queries": list(words), "most": _COUNTED}) if words else []
        counts = [count for _, count, _ in rows]
        return counts, [idf(count, every) for _, count, every in rows], rows[0][2] if rows else 0

    @property
    def _configuration(self) -> str:
        return self.metadata["text_search_configuration"]

    def expanded_terms(self, terms: Terms, node_ids: Sequence[str], count: int, weight: float) -> Terms:  # noqa: ARG002
        self._refuse("expansion")

    def lexical_leg(self, terms: Terms, k: int, plan: SearchOptions, filters: dict[str, Any]) -> Leg:
        if not terms.wanted:
            return Leg(method="nothing to look for")
        matched, *words = terms.texts
        values = {"matched": matched, "k": k, "labels": _labels(plan.bm25), **_ranking(terms, plan.bm25)}
        conditions, method = filters.get("where", Where()), _EVERY_MATCH
        # Where any of the words is enough, the common ones need not find chunks of their own.
        rare, common = _rarest(words, terms.dfs, k) if matched == _joined(" | ", words) else ([], 0)
        rows = []
        if common:
            rows = self._rows("lexical_search", {**values, "matched": _joined(" | ", rare)}, conditions)
            method = (
                f"ts_rank_cd of what holds one of the {len(rare)} rarest words; {common} common ones only add to it"
            )
        if len(rows) < k:
            rows = self._rows("lexical_search", values, conditions)
            method = _EVERY_MATCH
        hits = [LegHit(rid, doc_id, index, score) for rid, doc_id, index, _, score in rows]
        return Leg(hits, {row[0]: row[3] for row in rows}, method)

    def pair_scores(
        self,
        vector: NDArray[np.float32],
        terms: Terms,
        rids: Sequence[int],
        bm25: BM25,
        sample: list[tuple[float | None, float]] | None = None,
    ) -> ExactScores:
        # Of the chunks that hold one of the rarest words, as in the lexical leg: others take too long to read.
        words = [] if sample is None else _rarest(terms.texts[1:], terms.dfs, 0)[0]
        nth = max(1, -(-sum(sorted(terms.dfs)[: len(words)]) // SAMPLE))
        values = {"rids": list(rids), "sampled": _joined(" | ", words) or None, "nth": nth}
        rows = self._rows("pair_scores", {**values, **_ranking(terms, bm25)})
        cosines = _cosines([row[1] for row in rows], vector)
        scored = [(*row, cosine) for row, cosine in zip(rows, cosines, strict=True)]
        if sample is not None:
            sample.extend((cosine, score) for _, _, score, sampled, cosine in scored if sampled and score)
        return {rid: (cosine, score) for rid, _, score, _, cosine in scored}

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
        return spans(word_macros().cursor(), query_text, texts, self.metadata["stemmer"], syntax=syntax)

    def statement(self, query_text: str, plan: SearchOptions, terms: Terms, pool: int | None) -> str:  # noqa: ARG002
        return f"-- sql/postgres/ has the statements of a search in {self.path}; they bind their values."

    def explained(self, run: SearchState, node_id: str) -> Explanation:  # noqa: ARG002
        self._refuse("explain")

    def files_of(self, node_ids: Sequence[str]) -> dict[str, Path]:  # noqa: ARG002
        return {}

    def checksums(self, doc_ids: Sequence[str]) -> dict[str, str]:
        return dict(self._rows("serving/checksums", {"doc_ids": list(doc_ids)}))

    def select(self, name: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return self._rows(name, values)

    def row_sources(self, most: int) -> list[dict[str, Any]]:  # noqa: ARG002 - rows are documents there
        return []

    def settings(self) -> dict[str, str]:
        counts = dict(self._rows("counts", {}))
        return {**self._ask(read_settings), **counts}


def _search_widely(con: Connection, pool: int) -> None:
    """Let index searches in this transaction continue until enough rows pass the filters."""
    con.execute(f"SET LOCAL hnsw.ef_search = {min(int(pool), _MOST_EF)}")
    con.execute("SET LOCAL hnsw.iterative_scan = relaxed_order")


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


def _labels(bm25: BM25) -> list[str] | None:
    """Return the labels of the one field that is searched, None for both."""
    if bm25.text_weight and bm25.heading_weight:
        return None
    return ["d"] if bm25.text_weight else ["a"]


def _joined(operator: str, queries: Sequence[str]) -> str:
    """Return one tsquery of many, nested by halves: a flat one of thousands exceeds Postgres' stack."""
    if len(queries) < 3:
        return operator.join(queries)
    half = len(queries) // 2
    return f"({_joined(operator, queries[:half])}){operator}({_joined(operator, queries[half:])})"


def _ranking(terms: Terms, bm25: BM25) -> dict[str, Any]:
    """Return the arguments of ts_rank_cd: headings count by their weight beside the text, and no weight is above 1."""
    scale = max(1.0, _TEXT_WEIGHT * bm25.text_weight, _TEXT_WEIGHT * bm25.heading_weight)
    text, heading = (_TEXT_WEIGHT * weight / scale for weight in (bm25.text_weight, bm25.heading_weight))
    return {"words": terms.texts[1:], "idfs": terms.boosts, "weights": [text, text, text, heading]}


def _rarest(words: Sequence[str], counts: Sequence[int], k: int) -> tuple[list[str], int]:
    """Return the rarest words, which enough chunks hold to be ranked, and how many words are left out."""
    enough = max(_RANKED, 20 * k)
    rare: list[str] = []
    held = 0
    for count, word in sorted(zip(counts, words, strict=True)):
        if rare and held + count > enough:
            break
        rare.append(word)
        held += count
    return rare, len(words) - len(rare) if held >= k else 0


def _quoted(lexeme: str) -> str:
    """Return a lexeme as it is quoted in a tsquery."""
    return "'" + lexeme.replace("\\", "\\\\").replace("'", "''") + "'"


def _reordered(row: Sequence[Any]) -> list[Any]:
    node_id, text, metadata_, *others, created_at = row
    metadata = {key: value for key, value in json.loads(metadata_).items() if key not in LLAMA_INDEX_FIELDS}
    return [node_id, text, metadata, *others, as_time(created_at)]
