"""Several DuckDB files searched as one: opened together, with the statistics of all."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import duckdb
import numpy as np

from sqlrag import arguments
from sqlrag.arguments import counted
from sqlrag.embedders.base import SAME_MODEL_COSINE, same_model
from sqlrag.engines.contents import has_own_ids
from sqlrag.engines.duckdb import legs
from sqlrag.engines.duckdb.database import Database
from sqlrag.engines.duckdb.engine import FileEngine
from sqlrag.engines.duckdb.failures import reported
from sqlrag.engines.duckdb.lexical import query_terms
from sqlrag.engines.duckdb.metadata import model_identity
from sqlrag.engines.duckdb.rows import ids_of, rows_of
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.engines.duckdb.statements import select_by_key
from sqlrag.errors import InputError, ModelMismatchError, NotFoundError, StoreError
from sqlrag.ranking.fusion import Leg
from sqlrag.ranking.terms import Terms, weighed
from sqlrag.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from sqlrag.engines.base import Engine, SearchState
    from sqlrag.engines.duckdb.database import State
    from sqlrag.engines.duckdb.lexical import FileDictionary
    from sqlrag.ranking.explanation import Explanation
    from sqlrag.ranking.filters import Filters
    from sqlrag.ranking.fusion import ExactScores
    from sqlrag.ranking.plan import BM25, SearchOptions
    from sqlrag.types import Candidate, Chunk, Vectors

    AskEach = Callable[[Callable[[int, FileDictionary], Any]], list[Any]]

_EXAMPLE = "['january.duckdb', 'february.duckdb']"


def open_parts(
    db_paths: Iterable[str | os.PathLike[str]], wait_seconds: float | None = None, trust: bool | None = None
) -> list[FileEngine]:
    """Open files for reading, in the order in which they are named; all of them or none.

    Raises
    ------
    InputError
        None is named or one is named twice, a document is in two of them, or they differ in stemmer, heading weight or
        stop words.
    ModelMismatchError
        Their vectors are of different models.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        One of them cannot be used; see :mod:`sqlrag.errors`.
    """
    paths = [arguments.path("each of db_paths", path) for path in arguments.items("db_paths", db_paths, _EXAMPLE)]
    if not paths:
        raise InputError(f"db_paths is empty. Name one or more files, such as {_EXAMPLE}.")
    parts: list[FileEngine] = []
    with ExitStack() as opened:
        for path in paths:
            database = opened.enter_context(Database.open(path, wait_seconds=wait_seconds, trust=trust))
            if any(database.path == part.path for part in parts):
                raise InputError(f"{database.path} is named twice. Name each file once.")
            parts.append(FileEngine(database))
        for part in parts[1:]:
            _check_alike(parts[0], part)
        _check_stop_words(parts)
        _check_distinct(parts)
        opened.pop_all()
    return parts


def stop_words(part: FileEngine) -> frozenset[str]:
    """Return the words that a file leaves out of questions, or raise StoreError where it has no lexical index."""
    try:
        with reported(part.path):
            rows = part.cursor().execute("SELECT word FROM fts_main_documents.stopwords").fetchall()
    except StoreError as error:
        if not isinstance(error.__cause__, duckdb.CatalogException):
            raise
        raise StoreError(part.path, f"{part.path} has no lexical index: repair(db_path) makes it. ({error})") from error
    return frozenset(word for (word,) in rows)


def _check_alike(first: FileEngine, other: FileEngine) -> None:
    """Raise where the scores of two files are not comparable."""
    one, two = model_identity(first.metadata), model_identity(other.metadata)
    both = f"{first.path} and {other.path}"
    if one.dimensions != two.dimensions or not _same_name(one.model_name, two.model_name):
        raise ModelMismatchError(
            f"{both} hold vectors of different models: {one.model_name!r} ({one.dimensions} dimensions) and "
            f"{two.model_name!r} ({two.dimensions}). Give one of them the other's model: reembed(db_path, model)."
        )
    if (one.query_prefix, one.passage_prefix) != (two.query_prefix, two.passage_prefix):
        raise ModelMismatchError(
            f"{both} use {one.model_name!r} with different prefixes: {one.query_prefix!r}, {one.passage_prefix!r} and "
            f"{two.query_prefix!r}, {two.passage_prefix!r}. Prepare one of them again."
        )
    if one.fingerprint is not None and two.fingerprint is not None:
        cosine = float(np.dot(one.fingerprint, two.fingerprint))
        if not cosine >= SAME_MODEL_COSINE:
            raise ModelMismatchError(
                f"{both} both name {one.model_name!r}, but their vectors differ: cosine {cosine:.3f} for the same "
                "text. Prepare one of them again."
            )
    for name, here, there in (
        ("stemmer", first.metadata["stemmer"], other.metadata["stemmer"]),
        ("heading weight", float(first.metadata["header_weight"]), float(other.metadata["header_weight"])),
    ):
        if here != there:
            raise InputError(
                f"{both} have a different {name}: {here} and {there}. Prepare one of them again with that of the other."
            )


def _check_stop_words(parts: Sequence[FileEngine]) -> None:
    first = stop_words(parts[0])
    for part in parts[1:]:
        found = stop_words(part)
        if found != first:
            word = min(first ^ found)
            raise InputError(
                f"{parts[0].path} and {part.path} have different stop words: {word!r} is one in "
                f"{(parts[0] if word in first else part).path} only. Make their tables of them equal "
                "(fts_main_documents.stopwords)."
            )


def _same_name(one: str, two: str) -> bool:
    return one == two or bool(one.strip() and two.strip() and same_model(one, two))


def _check_distinct(parts: Sequence[FileEngine]) -> None:
    """Raise InputError where a document, or a chunk's id, is in two files."""
    _check_no_shared(parts, "document")
    # Else a node_id is a doc_id and a number, which no two documents share.
    if any(has_own_ids(part.metadata) for part in parts):
        _check_no_shared(parts, "chunk")


def _check_no_shared(parts: Sequence[FileEngine], what: Literal["document", "chunk"]) -> None:
    """Compare hashes first, since a million names take a second; names only where two hashes are the same."""
    hashes = [np.unique(_hashes(part, read_sql(f"many/{what}_hashes"))) for part in parts]
    found, times = np.unique(np.concatenate(hashes), return_counts=True)
    suspects = {"hashes": found[times > 1].tolist()}
    if not suspects["hashes"]:
        return
    seen: dict[str, Path] = {}
    shared: list[tuple[str, Path, Path]] = []
    for part in parts:
        with reported(part.path):
            names = part.cursor().execute(read_sql(f"many/hashed_{what}s"), suspects).fetchall()
        for (name,) in names:
            if name in seen:
                shared.append((name, seen[name], part.path))
            seen.setdefault(name, part.path)
    if shared:
        name, one, two = min(shared, key=lambda found: found[0])
        others = f" (and {counted(len(shared) - 1, 'other')} as well)" if shared[1:] else ""
        raise InputError(
            f"The {what} {name!r} is both in {one} and in {two}{others}. Prepare the files into collections of their "
            "own (collection=…), or delete the document from one of them: sqlrag delete DOC_ID --db FILE"
        )


def _hashes(part: FileEngine, sql: str) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    with reported(part.path):
        columns = part.cursor().execute(sql).fetchnumpy()
    return np.asarray(next(iter(columns.values())), dtype=np.uint64)


class ManyDictionary:
    """The :class:`~sqlrag.ranking.terms.Dictionary` of several files, for one question.

    It numbers terms in the order of their first look-up. ``ask`` calls a function with the place and the dictionary of
    each file and returns the results in the order of the files.
    """

    def __init__(self, ask: AskEach, files: int) -> None:
        self._ask = ask
        self._numbers: dict[str, int] = {}
        # For each file the termid and the document frequency that it has for a number.
        self.own: list[dict[int, tuple[int, int]]] = [{} for _ in range(files)]

    def look_up(self, terms: Sequence[str]) -> list[tuple[str, int, int]]:
        """Return ``(term, number, df)`` of the terms that some chunk holds, df over all files, in order."""
        dfs: dict[str, int] = {}
        for place, found in enumerate(self._ask(lambda _, own: own.look_up(terms))):
            for term, termid, df in found:
                self.own[place][self._numbers.setdefault(term, len(self._numbers))] = termid, df
                dfs[term] = dfs.get(term, 0) + df
        return [(term, self._numbers[term], df) for term, df in sorted(dfs.items())]

    def beginning_with(self, prefix: str) -> list[tuple[str, int]]:
        """Return ``(term, number)`` of every term that words with this beginning count as in some file, in order."""
        found = self._ask(lambda _, own: own.beginning_with(prefix))
        # A file may have such a term from words that begin differently.
        terms = sorted({term for rows in found for term, _ in rows})
        return [(term, number) for term, number, _ in self.look_up(terms)]

    def chunks_with(self, termids: Sequence[int]) -> int:
        """Return how many chunks of all files hold one of the terms."""

        def count(place: int, dictionary: FileDictionary) -> int:
            own = self.own[place]
            return dictionary.chunks_with([own[number][0] for number in termids if number in own])

        return sum(self._ask(count))

    def nearest(self, word: str, most: int) -> list[tuple[int, int, str]]:
        """Return the nearest words of all files."""
        dfs: dict[tuple[int, str], int] = {}
        for rows in self._ask(lambda _, own: own.nearest(word, most)):
            for edits, df, other in rows:
                dfs[edits, other] = dfs.get((edits, other), 0) + df
        every = [(edits, df, other) for (edits, other), df in dfs.items()]
        return sorted(every, key=lambda row: (row[0], -row[1], row[2]))[:3]


@dataclass(frozen=True)
class ManyTerms(Terms):
    """Terms by their numbers in a dictionary of several files."""

    dictionary: ManyDictionary | None = field(default=None, compare=False)

    @classmethod
    def of(cls, terms: Terms, dictionary: ManyDictionary) -> ManyTerms:
        """Return terms that were looked up in the dictionary."""
        return cls(**{**vars(terms), "dictionary": dictionary})

    def of_file(self, place: int) -> tuple[Terms, int]:
        """Return the terms that a file has, and how many postings of them.

        They are by the file's own termids, with the document frequencies of all files.
        """
        own = self.dictionary.own[place] if self.dictionary else {}
        kept = [(at, *own[number]) for at, number in enumerate(self.termids) if number in own]
        terms = Terms(
            termids=[termid for _, termid, _ in kept],
            dfs=[self.dfs[at] for at, *_ in kept],
            wanted=self.wanted,
            clauses=[self.clauses[at] for at, *_ in kept] if self.clauses else [],
            required=self.required,
            phrases=self.phrases,
            boosts=[self.boosts[at] for at, *_ in kept] if self.boosts else [],
            texts=self.texts,
            prefixes=self.prefixes,
        )
        return terms, sum(df for *_, df in kept)


T = TypeVar("T")

_NOTHING = "nothing to look for"

_STATEMENT = "-- Several files were searched, which no single statement does. sqlrag merge combines them into one."

_SIZES = ("min", "max", "median", "mean")

# Places of chunks that are cached; beyond this many they are looked up again.
_MOST_OWNERS = 100_000


class _State(NamedTuple):
    """Cached facts about the files in these states: totals for BM25, and the place of the file of each chunk."""

    states: tuple[State | None, ...]
    totals: list[float]
    owners: dict[str, int]


class ManyEngine:
    """An :class:`~sqlrag.engines.base.Engine` over several files, which it closes.

    A chunk's ``rid`` is that of its file times the number of files, plus the file's place. Filters are those of each
    file, in the order of the files.
    """

    note = ""

    # Whether several files are asked at a time.
    in_threads = True

    def __init__(self, parts: Sequence[FileEngine]) -> None:
        self.parts = list(parts)
        first, *others = [part.path for part in self.parts]
        self.path = f"{first} and {counted(len(others), 'other file')}" if others else str(first)
        self.metadata = self.parts[0].metadata
        self._state = [_State((), [], {})]  # of copies of this engine as well
        self._use_workers()

    def _use_workers(self) -> None:
        self._workers = ThreadPoolExecutor(max(2, os.cpu_count() or 2), thread_name_prefix="sqlrag-files")
        self._process = os.getpid()

    def _each(self, work: Callable[[int, FileEngine], T]) -> list[T]:
        """Return what the work returns for each file, several at a time; its errors name the file."""

        def one(place: int) -> T:
            with reported(self.parts[place].path):
                return work(place, self.parts[place])

        if len(self.parts) == 1 or self.closed:
            return [one(0)]  # a closed file raises its error
        if not self.in_threads:
            return [one(place) for place in range(len(self.parts))]
        if self._process != os.getpid():
            self._use_workers()  # a forked process has no threads
        try:
            futures = [self._workers.submit(copy_context().run, one, place) for place in range(len(self.parts))]
        except RuntimeError:
            if self.closed:
                self.parts[0].cursor()  # StoreError
            raise
        for future in futures:
            future.exception()  # wait, so that no statement outlives the query
        return [future.result() for future in futures]

    def _ask(self, work: Callable[[int, duckdb.DuckDBPyConnection], T]) -> list[T]:
        return self._each(lambda place, part: work(place, part.cursor()))

    def _look_up(self, work: Callable[[int, FileDictionary], T]) -> list[T]:
        return self._each(lambda place, part: work(place, part.dictionary()))

    def _known(self) -> _State:
        """Return the cached facts about the files, recomputed after a change to one of them."""
        states = tuple(part.database.state() for part in self.parts)
        state = self._state[0]
        if state.states != states or None in states:
            found = self._ask(lambda _, con: con.execute(read_sql("many/totals")).fetchall()[0])
            chunks, length, heading_length = (int(sum(column)) for column in zip(*found, strict=True))
            totals = [float(chunks), length / (chunks or 1), heading_length / (chunks or 1)]
            state = self._state[0] = _State(states, totals, {})
        return state

    @property
    def closed(self) -> bool:
        return self.parts[0].closed

    def close(self) -> None:
        with ExitStack() as last:
            last.callback(self._workers.shutdown)
            for part in self.parts:
                last.callback(part.close)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        raise InputError(f"There is no cursor for {counted(len(self.parts), 'file')}. Open one: Store(path).cursor()")

    def read(self, work: Callable[[Engine], T]) -> T:
        answer: Callable[[], T] = partial(work, self)
        for part in self.parts:
            answer = partial(part.database.read, answer)
        return answer()

    # Filters.

    def parallel(self, plan: SearchOptions) -> bool:
        return any(part.parallel(plan) for part in self.parts)

    def passing_filters(self, filters: Filters) -> dict[str, Any]:
        each = self._each(lambda _, part: part.passing_filters(filters))
        return {"each": each} if any(each) else {}

    def any_passes(self, filters: dict[str, Any]) -> bool:
        return any(self._each(lambda place, part: part.any_passes(_of_file(filters, place))))

    def date_fields(self, names: Collection[str], collection: Sequence[str] | None) -> dict[str, str]:
        each = self._ask(lambda _, con: legs.date_fields(con, names, collection))
        return {name: date for found in reversed(each) for name, date in found.items()}

    def first_values(self, names: Collection[str], collection: Sequence[str] | None) -> dict[str, Any]:
        first: dict[str, Any] = {}
        for found in self._ask(lambda _, con: legs.first_values(con, names, collection)):
            first = {**found, **first}
        return first

    def not_compared(self, field: str, collection: Sequence[str] | None, kind: str) -> list[tuple[int, str]]:
        return [
            one for found in self._each(lambda _, part: part.not_compared(field, collection, kind)) for one in found
        ]

    # Legs.

    def vector_leg(self, vector: NDArray[np.float32], k: int, filters: dict[str, Any], plan: SearchOptions) -> Leg:
        legs = self._each(lambda place, part: part.vector_leg(vector, k, _of_file(filters, place), plan))
        return self._joined(legs, k)

    def query_terms(self, query_text: str, plan: SearchOptions) -> Terms:
        dictionary = ManyDictionary(self._look_up, len(self.parts))
        terms = query_terms(
            self.parts[0].cursor(),
            query_text,
            self.metadata["stemmer"],
            syntax=plan.syntax,
            conjunctive=plan.conjunctive,
            chunks=int(self._known().totals[0]),
            dictionary=dictionary,
        )
        if not terms.texts:
            terms = weighed(terms, int(self._known().totals[0]), plan.bm25.k1 + 1)
        return ManyTerms.of(terms, dictionary)

    def expanded_terms(self, terms: Terms, node_ids: Sequence[str], count: int, weight: float) -> Terms:
        dictionary = _many(terms).dictionary
        assert dictionary is not None  # noqa: S101 - query_terms sets it
        texts = {node_id: visible(row["shown"] or row["text"]) for node_id, row in self.chunk_rows(node_ids).items()}
        expanded = legs.with_distinctive(
            self.parts[0].cursor(),
            terms,
            texts,
            count,
            weight,
            self.metadata["stemmer"],
            dictionary=dictionary,
            num_docs=int(self._known().totals[0]),
        )
        return ManyTerms.of(expanded, dictionary)

    def lexical_leg(self, terms: Terms, k: int, plan: SearchOptions, filters: dict[str, Any]) -> Leg:
        many, totals = _many(terms), self._known().totals

        def leg(place: int, part: FileEngine) -> Leg:
            own, postings = many.of_file(place)
            return part.lexical_leg(own, k, plan, _of_file(filters, place), legs.Share(totals, postings))

        return self._joined(self._each(leg), k)

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
        methods = [method for method in dict.fromkeys(leg.method for leg in legs) if method != _NOTHING] or [_NOTHING]
        return Leg(
            [hit for hit, _ in best],
            {hit.rid: node_id for hit, node_id in best},
            f"{counted(files, 'file')}, {'; '.join(methods)}",
        )

    def pair_scores(
        self,
        vector: NDArray[np.float32],
        terms: Terms,
        rids: Sequence[int],
        bm25: BM25,
        sample: list[tuple[float | None, float]] | None = None,
    ) -> ExactScores:
        many, totals, files = _many(terms), self._known().totals, len(self.parts)
        share = legs.Share(totals, nth=legs.sampled_nth(terms, int(totals[0])))

        def scores(place: int, part: FileEngine) -> ExactScores:
            own = [rid // files for rid in rids if rid % files == place]
            if not own and sample is None:
                return {}
            return part.pair_scores(vector, many.of_file(place)[0], own, bm25, sample, share)

        found = self._each(scores)
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
        return rows_of(self.path, sources, doc_ids)

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

    def select(self, name: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return [row for rows in self._each(lambda _, part: part.select(name, values)) for row in rows]

    def row_sources(self, most: int) -> list[dict[str, Any]]:
        return [source for found in self._each(lambda _, part: part.row_sources(most)) for source in found]

    def has_rows(self) -> bool:
        return any(self._each(lambda _, part: part.has_rows()))

    # Descriptions and settings.

    def spans(self, query_text: str, texts: Sequence[str], *, syntax: bool) -> list[list[tuple[int, int]]]:
        return self.parts[0].spans(query_text, texts, syntax=syntax)

    def statement(self, query_text: str, plan: SearchOptions, terms: Terms, pool: int | None) -> str:  # noqa: ARG002 - none of them
        return _STATEMENT

    def explained(self, run: SearchState, node_id: str) -> Explanation:  # noqa: ARG002
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
