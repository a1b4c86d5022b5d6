"""Searches in several DuckDB files as if they were one."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from sqlrag.errors import InputError, NotFoundError
from sqlrag.retrieval import candidates, feedback
from sqlrag.retrieval import terms as words
from sqlrag.retrieval.candidates import Leg
from sqlrag.retrieval.many_terms import ManyDictionary, ManyTerms
from sqlrag.retrieval.rows import ids_of
from sqlrag.store.calls import select_by_key
from sqlrag.store.schema import read_sql
from sqlrag.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import duckdb
    from numpy.typing import NDArray

    from sqlrag.retrieval.candidates import BM25
    from sqlrag.retrieval.engine import Engine
    from sqlrag.retrieval.explanation import Explanation
    from sqlrag.retrieval.file_engine import FileEngine
    from sqlrag.retrieval.filters import Filters
    from sqlrag.retrieval.fusion import ExactScores
    from sqlrag.retrieval.planning import Plan
    from sqlrag.retrieval.running import Run
    from sqlrag.retrieval.terms import Terms
    from sqlrag.types import Candidate, Chunk, Vectors

T = TypeVar("T")

_NOTHING = "nothing to look for"
_STATEMENT = "-- Several files were searched, and no one statement asks them all. sqlrag merge makes one file of them."
_SIZES = ("min", "max", "median", "mean")
# Places of chunks that are remembered; beyond this many they are asked for again.
_MOST_OWNERS = 100_000


class _State(NamedTuple):
    """What is known of the files as they are: commits, totals for BM25, and the place of the file of each chunk."""

    commits: tuple[int, ...]
    totals: list[float]
    owners: dict[str, int]


class ManyEngine:
    """An :class:`~sqlrag.retrieval.engine.Engine` over several files, which it closes.

    A chunk's ``rid`` is that of its file times the number of files, plus the file's place. Filters are those of each
    file, in the order of the files.
    """

    lexical_score = "bm25"

    def __init__(self, parts: Sequence[FileEngine]) -> None:
        self.parts = list(parts)
        first, *others = [part.path for part in self.parts]
        self.path = f"{first} and {counted(len(others), 'other file')}" if others else str(first)
        self.metadata = self.parts[0].metadata
        self._state = _State((), [], {})
        self._use_workers()

    def _use_workers(self) -> None:
        self._workers = ThreadPoolExecutor(max(2, os.cpu_count() or 2), thread_name_prefix="sqlrag-files")
        self._process = os.getpid()

    def _each(self, work: Callable[[int, FileEngine], T]) -> list[T]:
        """Return what the work returns for each file, several at a time; its errors name the file."""

        def one(place: int) -> T:
            with self.parts[place].named_errors():
                return work(place, self.parts[place])

        if len(self.parts) == 1 or self.closed:
            return [one(0)]  # what is closed says so
        if self._process != os.getpid():
            self._use_workers()  # a fork leaves the threads behind
        futures = [self._workers.submit(copy_context().run, one, place) for place in range(len(self.parts))]
        for future in futures:
            future.exception()  # wait, so that no file is asked longer than the question lasts
        return [future.result() for future in futures]

    def _ask(self, work: Callable[[int, duckdb.DuckDBPyConnection], T]) -> list[T]:
        return self._each(lambda place, part: work(place, part.cursor()))

    def _known(self) -> _State:
        """Return what is known of the files, anew after a change to one of them."""
        commits = tuple(part.database.commits for part in self.parts)
        state = self._state
        if state.commits != commits:
            found = self._ask(lambda _, con: con.execute(read_sql("many/totals")).fetchall()[0])
            chunks, length, heading_length = (int(sum(column)) for column in zip(*found, strict=True))
            totals = [float(chunks), length / (chunks or 1), heading_length / (chunks or 1)]
            state = self._state = _State(commits, totals, {})
        return state

    @property
    def closed(self) -> bool:
        return self.parts[0].closed

    def close(self) -> None:
        self._workers.shutdown()
        for part in self.parts:
            part.close()

    def cursor(self) -> duckdb.DuckDBPyConnection:
        raise InputError(f"There is no cursor for {counted(len(self.parts), 'file')}. Open one: Store(path).cursor()")

    def read(self, work: Callable[[Engine], T]) -> T:
        answer: Callable[[], T] = partial(work, self)
        for part in self.parts:
            answer = partial(part.database.read, answer)
        return answer()

    # Filters.

    def without_effect(self, plan: Plan) -> list[str]:  # noqa: ARG002
        return []

    def passing_filters(self, filters: Filters) -> dict[str, Any]:
        each = self._ask(lambda _, con: candidates.passing_filters(con, filters))
        return {"each": each} if any(each) else {}

    def any_passes(self, filters: dict[str, Any]) -> bool:
        return any(self._each(lambda place, part: part.any_passes(_of_file(filters, place))))

    def filter_hints(self, filters: Filters) -> list[str]:
        types: dict[str, str] = {}
        for found in self._ask(lambda _, con: candidates.field_types(con, filters)):
            types = {**found, **types}
        return candidates.filter_hints(filters, types)

    # Legs.

    def vector_leg(self, vector: NDArray[np.float32], k: int, filters: dict[str, Any], plan: Plan) -> Leg:
        legs = self._each(lambda place, part: part.vector_leg(vector, k, _of_file(filters, place), plan))
        return self._joined(legs, k)

    def query_terms(self, query_text: str, plan: Plan) -> Terms:
        dictionary = ManyDictionary(self._ask, len(self.parts))
        terms = words.query_terms(
            self.parts[0].cursor(),
            query_text,
            self.metadata["stemmer"],
            syntax=plan.syntax,
            conjunctive=plan.conjunctive,
            dictionary=dictionary,
        )
        return ManyTerms.of(terms, dictionary)

    def expanded_terms(self, terms: Terms, node_ids: Sequence[str], count: int) -> Terms:
        dictionary = _many(terms).dictionary
        assert dictionary is not None  # noqa: S101 - query_terms has given it
        texts = {node_id: row["text"] for node_id, row in self.chunk_rows(node_ids).items()}
        expanded = feedback.with_telling(
            self.parts[0].cursor(),
            terms,
            texts,
            count,
            self.metadata["stemmer"],
            dictionary=dictionary,
            num_docs=int(self._known().totals[0]),
        )
        return ManyTerms.of(expanded, dictionary)

    def lexical_leg(self, terms: Terms, k: int, plan: Plan, filters: dict[str, Any]) -> Leg:
        many, totals = _many(terms), self._known().totals

        def leg(place: int, con: duckdb.DuckDBPyConnection) -> Leg:
            own, postings = many.of_file(place)
            return candidates.lexical_leg(
                con,
                own,
                k,
                plan.bm25,
                _of_file(filters, place),
                conjunctive=plan.conjunctive,
                totals=totals,
                postings=postings,
            )

        return self._joined(self._ask(leg), k)

    def _joined(self, legs: Sequence[Leg], k: int) -> Leg:
        """Return the best of the files' legs, each of which is ordered by score and cut at ``k``."""
        files, owners = len(self.parts), self._known().owners
        if len(owners) > _MOST_OWNERS:
            owners.clear()
        hits = [
            (hit._replace(rid=hit.rid * files + place), leg.node_ids[hit.rid])
            for place, leg in enumerate(legs)
            for hit in leg.hits
        ]
        best = sorted(hits, key=lambda hit: (-hit[0].score, hit[0].doc_id, hit[0].chunk_index))[:k]
        owners.update((node_id, hit.rid % files) for hit, node_id in best)
        said = [method for method in dict.fromkeys(leg.method for leg in legs) if method != _NOTHING] or [_NOTHING]
        return Leg(
            [hit for hit, _ in best],
            {hit.rid: node_id for hit, node_id in best},
            f"{counted(files, 'file')}, {'; '.join(said)}",
        )

    def pair_scores(self, vector: NDArray[np.float32], terms: Terms, rids: Sequence[int], bm25: BM25) -> ExactScores:
        many, totals, files = _many(terms), self._known().totals, len(self.parts)

        def scores(place: int, con: duckdb.DuckDBPyConnection) -> ExactScores:
            own = [rid // files for rid in rids if rid % files == place]
            if not own:
                return {}
            return candidates.pair_scores(con, vector, many.of_file(place)[0], own, bm25, totals=totals)

        found = self._ask(scores)
        return {rid * files + place: pair for place, pairs in enumerate(found) for rid, pair in pairs.items()}

    # Rows.

    def files_of(self, node_ids: Sequence[str]) -> dict[str, Path]:
        """Return the file of each of the chunks that one of them holds."""
        return {node_id: self.parts[place].path for node_id, place in self._owners(node_ids).items()}

    def _owners(self, node_ids: Sequence[str]) -> dict[str, int]:
        """Return the place of the file that holds each chunk; chunks of none are left out."""
        owners = self._known().owners
        found = {node_id: owners[node_id] for node_id in node_ids if node_id in owners}
        unknown = [node_id for node_id in node_ids if node_id not in found]
        if unknown:
            statement = "SELECT node_id FROM documents WHERE node_id IN (...)"
            for place, rows in enumerate(self._ask(lambda _, con: select_by_key(con, statement, unknown))):
                found.update((node_id, place) for (node_id,) in rows)
        return found

    def _owned(self, node_ids: Sequence[str], work: Callable[[FileEngine, list[str]], T]) -> list[tuple[list[str], T]]:
        """Return for each file that holds some of the chunks their ids and what the work returns for these."""
        owners = self._owners(node_ids)
        own = [[node_id for node_id in node_ids if owners.get(node_id) == place] for place in range(len(self.parts))]
        done = self._each(lambda place, part: work(part, own[place]) if own[place] else None)
        return [(ids, result) for ids, result in zip(own, done, strict=True) if result is not None]

    def chunk_rows(self, node_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for _, rows in self._owned(node_ids, lambda part, ids: part.chunk_rows(ids)):
            found.update(rows)
        return found

    def vectors_of(self, node_ids: Sequence[str]) -> Vectors:
        wanted = ids_of("node_ids", node_ids, "['guides/setup.md#3']")
        found: dict[str, NDArray[np.float32]] = {}
        for ids, vectors in self._owned(wanted, lambda part, ids: part.vectors_of(ids)):
            found.update(zip(ids, vectors, strict=True))
        self._check_found(wanted, found)
        dimensions = int(self.metadata["embedding_dimensions"])
        return np.array([found[node_id] for node_id in wanted], dtype=np.float32).reshape(-1, dimensions)

    def source_documents(self, doc_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for sources in self._each(lambda _, part: part.source_documents(doc_ids)):
            found.update(sources)
        return found

    def sources_of_chunks(self, chunk_ids: Sequence[str]) -> list[dict[str, Any]]:
        wanted = ids_of("chunk_ids", chunk_ids, "['guides/setup.md#3']")
        rows = self.chunk_rows(wanted)
        self._check_found(wanted, rows)
        doc_ids = list(dict.fromkeys(rows[chunk_id]["doc_id"] for chunk_id in wanted))
        sources = self.source_documents(doc_ids)
        return [sources[doc_id] for doc_id in doc_ids]

    def _check_found(self, wanted: Sequence[str], found: Mapping[str, Any]) -> None:
        missing = next((node_id for node_id in wanted if node_id not in found), None)
        if missing is not None:
            names = ", ".join(str(part.path) for part in self.parts)
            raise NotFoundError(f"None of {names} holds a chunk {missing!r}. Take its node_id from a result.")

    def chunks_at(self, places: Sequence[tuple[str, int]]) -> list[Candidate]:
        places = list(places)
        found = [chunk for chunks in self._each(lambda _, part: part.chunks_at(places)) for chunk in chunks]
        return sorted(found, key=lambda chunk: (chunk.doc_id, chunk.chunk_index))

    def read_chunks(self, conditions: Mapping[str, Any]) -> list[Chunk]:
        found = [chunk for chunks in self._each(lambda _, part: part.read_chunks(conditions)) for chunk in chunks]
        return sorted(found, key=lambda chunk: (chunk.doc_id, chunk.chunk_index))

    def checksums(self, doc_ids: Sequence[str]) -> dict[str, str]:
        found = self._each(lambda _, part: part.checksums(doc_ids))
        return {doc_id: checksum for one in found for doc_id, checksum in one.items()}

    def select(self, name: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:  # noqa: ARG002
        self.cursor()  # says that it needs one file
        return []

    # What they say of themselves.

    def spans(self, query_text: str, texts: Sequence[str], *, syntax: bool) -> list[list[tuple[int, int]]]:
        return self.parts[0].spans(query_text, texts, syntax=syntax)

    def statement(self, query_text: str, plan: Plan, terms: Terms, pool: int | None) -> str:  # noqa: ARG002 - none of them
        return _STATEMENT

    def explained(self, run: Run, node_id: str) -> Explanation:  # noqa: ARG002
        raise InputError(
            f"A chunk can be explained in one file, not in {counted(len(self.parts), 'file')} together. Merge them: "
            "sqlrag merge"
        )

    def settings(self) -> dict[str, str]:
        """Return the settings of the first file, with the counts of all."""
        found = self._each(lambda _, part: part.settings())
        summed = {
            name: str(sum(int(settings.get(name, 0)) for settings in found))
            for name in ("total_source_documents", "unique_files", "source_total_characters")
        }
        sizes = np.concatenate(self._ask(lambda _, con: con.execute(read_sql("many/chunk_sizes")).fetchnumpy()["size"]))
        measured = {
            "total_chunks": len(sizes),
            "chunks_total_characters": sizes.sum(),
            **{f"{name}_chunk_size": getattr(np, name)(sizes) if len(sizes) else 0 for name in _SIZES},
        }
        return found[0] | summed | {name: str(int(np.floor(value + 0.5))) for name, value in measured.items()}


def _of_file(filters: dict[str, Any], place: int) -> dict[str, Any]:
    return filters["each"][place] if filters else {}


def _many(terms: Terms) -> ManyTerms:
    return terms if isinstance(terms, ManyTerms) else ManyTerms(**vars(terms))  # none were looked up
