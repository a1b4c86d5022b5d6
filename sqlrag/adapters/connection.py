"""A DuckDB connection whose SQL embeds, searches, compares and reranks: connect and register."""

from __future__ import annotations

import inspect
import itertools
import os
import re
import signal
import socket
import sys
import threading
import time
from collections import OrderedDict
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import duckdb
import numpy as np

# DuckDB evaluates the annotations of functions, and must not be the first to import the other: see statements.register.
import pyarrow as pa
import pyarrow.dataset

from sqlrag import arguments
from sqlrag.blocks.rerank import scores_of
from sqlrag.embedders.base import as_embedder, embed_texts
from sqlrag.engines.duckdb.attach import check_name, session_sql
from sqlrag.engines.duckdb.database import Database, existing_file
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.files import connect as open_file
from sqlrag.engines.duckdb.files import held_here, is_open_here, prepare_to_write
from sqlrag.engines.duckdb.metadata import model_identity, required_metadata
from sqlrag.engines.duckdb.row_tables import check_definition, sources, table_of
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.engines.duckdb.statements import identifier, qualified, quoted
from sqlrag.errors import InputError, StoreLockedError
from sqlrag.locks import new_lock
from sqlrag.normalize import is_blank
from sqlrag.progress import columns_of_bar
from sqlrag.search.searcher import QuestionEmbedder
from sqlrag.settings import seconds_to_wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from sqlrag.blocks.rerank import Reranker
    from sqlrag.engines.duckdb.row_tables import RowSource
    from sqlrag.types import AnyEmbedder, ModelIdentity, TextKind, Vectors

T = TypeVar("T")

FUNCTIONS = ("embed", "similarity", "rerank")

_NAMES = (*FUNCTIONS, "search")

# What is kept of the vectors that were made, for all connections of the process together.
CACHE_BYTES = 256_000_000

_BAR_SECONDS = 2.0

# Two calls that are closer than this are of one statement.
_STATEMENT_SECONDS = 1.0

_RERANKED_AT_ONCE = 64

# What is usual of :func:`sqlrag.normalize.is_blank`, for RE2.
_BLANK = r"[\s\pZ\p{Cc}\x{ad}\x{200b}-\x{200f}\x{2060}-\x{2064}\x{feff}]*"

_NO_QUESTION = "There is no question to search for: it is NULL, or blank."


@public
def connect(
    db_path: str | os.PathLike[str],
    *,
    read_only: bool = True,
    embedder: AnyEmbedder | None = None,
    reranker: str | Reranker | None = None,
    wait_seconds: float | None = None,
    trust: bool | None = None,
    verbose: bool = True,
) -> duckdb.DuckDBPyConnection:
    """Open a file as a DuckDB connection whose SQL can embed, search, compare and rerank.

    It is a connection to the file itself: tables, views and macros need no prefix. There are four functions more:

    - ``embed(text)`` is the vector of a question, ``embed(text, 'document')`` that of a text which is to be found:
      ``FLOAT[dimensions]`` of unit length, by the model of the file.
    - ``search(question, k := 10, …)`` is ``hybrid_query(question, embed(question), k := 10, …)``.
    - ``similarity(text, question)`` is the cosine of the two, -1..1, for a column of any table.
    - ``rerank(question, text)`` is the score that a cross-encoder gives, higher is better.

    NULL, and a text without a visible character, has no vector: the result is NULL. The distinct texts of 2,048 rows
    are embedded together. Vectors are kept, up to 256 MB for all connections of the process. Where the rows in the file
    are of one source, ``search``, ``hybrid_query`` and ``lexical_query`` have a last column ``row_key``, in its own
    type. Ctrl-C ends a statement after the batch that the model is at. A cursor of the connection has the functions,
    but neither ``search`` nor ``row_key``.

    Unlike a :class:`sqlrag.Store` the connection is not kept from other files: ``ATTACH``, ``read_csv`` and data frames
    work as in any DuckDB.

    Parameters
    ----------
    db_path
        The DuckDB file.
    read_only
        False to write to the file. DuckDB writes then, without the journal of :class:`sqlrag.Store`: a process that is
        killed in the middle may leave a damaged file, and no row that is put into ``documents`` is in the word index.
    embedder
        What embeds. Without it the model that the file names is loaded at the first use.
    reranker
        A name or folder for :func:`sqlrag.load_reranker`, or a function ``(question, texts) -> scores``.
    wait_seconds, trust
        As in :class:`sqlrag.Store`.
    verbose
        Show on a terminal and in notebooks how many texts have been embedded, where it takes more than two seconds.

    Returns
    -------
    duckdb.DuckDBPyConnection
        Close it to give the file back.

    Raises
    ------
    InputError
        The file has a macro of its own by the name of one of the functions.
    StoreLockedError
        A :class:`sqlrag.Store` of the file is open in this process, which keeps DuckDB from other files: open it after
        the connection. Or another process is writing to the file.
    NotFoundError, NotAStoreError, SchemaVersionError
        See :mod:`sqlrag.errors`.

    Examples
    --------
    >>> con = connect("kb.duckdb")  # doctest: +SKIP
    >>> con.sql("SELECT node_id, score FROM search('late delivery', k := 3)")  # doctest: +SKIP
    """
    arguments.path("db_path", db_path)
    read_only = arguments.flag("read_only", read_only)
    options = _Options(embedder, reranker, verbose)
    real = existing_file(db_path)
    con = open_file(real, read_only, seconds_to_wait(wait_seconds), confined=False)
    try:
        _check_connected(con, real)
        if not read_only:
            prepare_to_write(con)
        with Database.open(real, trust=trust) as database:
            identity, source = _contents(database)
        catalog = con.execute("SELECT current_database()").fetchall()[0][0]
        _check_names(con, _NAMES)
        with _making:
            functions = _functions(con, real, identity, options)
            for name in FUNCTIONS:
                functions.add(con, name, name)
        called = _Called("hybrid_query", qualified([catalog, "main", "hybrid_query"]), "embed")
        _add_search(con, "search", called, source, catalog)
        for name in ("hybrid_query", "lexical_query") if source else ():
            _add_search(con, name, _Called(name, qualified([catalog, "main", name])), source, catalog)
    except BaseException:
        con.close()
        raise
    return con


@public
def register(
    con: duckdb.DuckDBPyConnection,
    db_path: str | os.PathLike[str],
    name: str = "kb",
    *,
    embedder: AnyEmbedder | None = None,
    reranker: str | Reranker | None = None,
    wait_seconds: float | None = None,
    trust: bool | None = None,
    verbose: bool = True,
) -> None:
    """Attach a file to a connection of the caller, for reading, with its macros and the functions of :func:`connect`.

    All of them begin with the name: ``kb_search``, ``kb_embed``, ``kb_similarity``, ``kb_rerank``, and the macros of
    :func:`sqlrag.attach_sql`, such as ``kb_hybrid_query``. ``kb_search`` has ``row_key`` where that of :func:`connect`
    has it. The functions are there as ``embed``, ``similarity`` and ``rerank`` as well, unless the connection has
    functions by these names already: so they are those of the file that was registered first. Cursors of the
    connection, and other connections to its database, share the functions, but not the macros. Doing it again does
    nothing, except that another ``embedder`` or ``reranker`` takes the place of the earlier one.

    Parameters
    ----------
    con
        An open connection of DuckDB, in no transaction.
    db_path
        The DuckDB file.
    name
        The name to attach it by, and what the names begin with.
    embedder, reranker, wait_seconds, trust, verbose
        As in :func:`connect`.

    Raises
    ------
    InputError
        ``con`` is no open connection of DuckDB or is in a transaction, the name is one of DuckDB's own or taken, or the
        connection has the file by another name.
    StoreLockedError
        The file is open for writing, in this process or another.
    NotFoundError, NotAStoreError, SchemaVersionError
        See :mod:`sqlrag.errors`.

    Examples
    --------
    >>> con = duckdb.connect("shop.duckdb")  # doctest: +SKIP
    >>> register(con, "kb.duckdb")  # doctest: +SKIP
    >>> con.sql("SELECT avg(stars) FROM reviews WHERE similarity(body, 'the battery dies') > .5")  # doctest: +SKIP
    """
    arguments.path("db_path", db_path)
    check_name(name, _NAMES)
    options = _Options(embedder, reranker, verbose)
    if not isinstance(con, duckdb.DuckDBPyConnection):
        raise InputError(f"con must be a connection of DuckDB, as duckdb.connect() makes, not {arguments.shown(con)}.")
    try:
        # Outside of a transaction each statement is one of its own.
        first, second = (con.execute("SELECT txid_current()").fetchall() for _ in range(2))
    except duckdb.ConnectionException as error:
        raise InputError("con has been closed. Open a connection with duckdb.connect().") from error
    if first == second:
        raise InputError("con is in a transaction, which would not see the functions. Commit it first.")
    with Database.open(db_path, wait_seconds=wait_seconds, trust=trust) as database:
        if database.is_written_here:
            raise held_here(database.path, "open for writing", "Close that Store")
        identity, source = _contents(database)
        macros = session_sql(database, name)
        prefixed = [f"{name}_{function}" for function in _NAMES]
        _check_names(con, prefixed)
        _attach(con, database.path, name, macros)
        with _making:
            functions = _functions(con, database.path, identity, options)
            for function, name_here in zip(FUNCTIONS, prefixed, strict=False):
                functions.add(con, function, name_here)
                if not _named(con, [function]):
                    functions.add(con, function, function)
    called = _Called("hybrid_query", identifier(f"{name}_hybrid_query"), f"{name}_embed")
    _add_search(con, f"{name}_search", called, source, name)


class _Options(NamedTuple):
    """What the caller of either function says."""

    embedder: AnyEmbedder | None
    reranker: str | Reranker | None
    verbose: bool


def _check_connected(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Raise StoreLockedError where DuckDB joined a database that this process has open, which is not usable here."""
    if not con.execute("SELECT current_setting('enable_external_access')").fetchall()[0][0]:
        raise StoreLockedError(
            path,
            f"{path} is open in this process by a Store, or another connection that is kept from other files, and "
            "this one would be, too. Close it, connect, and open it again if you need both.",
            os.getpid(),
        )
    if os.name != "nt" and not is_open_here(path):
        raise StoreLockedError(
            path,
            f"{path} has been replaced since this process connected to it. Close the connections that still show the "
            "old file, then connect again.",
            os.getpid(),
        )


def _contents(database: Database) -> tuple[ModelIdentity, RowSource | None]:
    """Return the model of a file, and the source of its rows where it has one alone."""
    identity = model_identity(required_metadata(database))
    found = list(sources(database.cursor()).values())
    if len(found) != 1:
        return identity, None
    check_definition(found[0])
    return identity, found[0]


def _attach(con: duckdb.DuckDBPyConnection, path: Path, name: str, macros: str) -> None:
    try:
        con.execute(macros)
    except duckdb.BinderException as error:
        if "already attached" not in str(error):
            raise
        raise InputError(
            f"{path} is attached to the connection by another name: {error}. Register it by that one: name=…"
        ) from error
    except duckdb.InvalidInputException as error:
        if "Another file" not in str(error):
            raise
        raise InputError(f"{path} cannot be attached as {name!r}. {error}") from error


def _named(con: duckdb.DuckDBPyConnection, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the functions and macros that have one of the names, each with its database."""
    rows: list[tuple[str, str]] = con.execute(
        "SELECT DISTINCT lower(function_name), database_name FROM duckdb_functions() "
        "WHERE list_contains($1, lower(function_name)) ORDER BY ALL",
        [[name.lower() for name in names]],
    ).fetchall()
    return rows


def _check_names(con: duckdb.DuckDBPyConnection, names: Sequence[str]) -> None:
    """Raise InputError where a database has a macro by one of the names, which would be called instead."""
    for name, database in _named(con, names):
        if database not in ("system", "temp"):
            raise InputError(
                f"The database {database} has a macro {name} of its own, which would hide the function. Rename it, or "
                "register the file on a connection of yours by another name: register(duckdb.connect(), db_path, 'kb')."
            )


class _Called(NamedTuple):
    """What a search macro calls: the macro, the name by which it is there, and the function that makes the vector."""

    macro: str
    name: str
    embed: str | None = None


_SIGNATURE = re.compile(r"MACRO \w+\((.*?)\)\s+AS TABLE", re.DOTALL)


def _add_search(
    con: duckdb.DuckDBPyConnection, name: str, called: _Called, source: RowSource | None, catalog: str
) -> None:
    """Make a search macro of the session, with the options of the one that it calls."""
    found = _SIGNATURE.search(read_sql(f"macros/{called.macro}"))
    assert found  # noqa: S101 - as the files are
    parameters = [one.strip() for one in found[1].split(",")]
    passed = [one.partition(" :=")[0] for one in parameters]
    given = [f"{one} := {one}" if one != parameter else one for one, parameter in zip(passed, parameters, strict=True)]
    if called.embed:
        parameters.remove("query_vector")
        # Asked of the text: DuckDB 1.3 has no CASE for vectors.
        question = (
            f"CASE WHEN regexp_full_match(coalesce(query_text, ''), {quoted(_BLANK)}) "
            f"THEN error({quoted(_NO_QUESTION)}) ELSE query_text END"
        )
        given[given.index("query_vector")] = f"{identifier(called.embed)}({question})"
    row_key = rows = ""
    if source:
        row_key = f", r.{identifier(source.definition['key'])} AS row_key"
        table = qualified([catalog, "main", table_of(source.collection)])
        rows = f"LEFT JOIN {table} AS r ON r.doc_id = h.doc_id"
    parts = {
        '"name"': identifier(name),
        '"called"': called.name,
        "/* parameters */": ", ".join(parameters),
        "/* arguments */": ", ".join(given),
        "/* row_key */": row_key,
        "/* rows */": rows,
    }
    con.execute(re.sub("|".join(map(re.escape, parts)), lambda match: parts[match[0]], read_sql("connect")))


# The functions of every database that ever got some. DuckDB keeps a bare pointer to them as long as the database is
# open, in whatever connection, and does not say when that ends.
_made: list[_Functions] = []

_MARK = "sqlrag_functions_"

_making = new_lock()


def _functions(con: duckdb.DuckDBPyConnection, path: Path, identity: ModelIdentity, options: _Options) -> _Functions:
    """Return the functions of a file in the database of a connection, made now or by an earlier call."""
    interrupts.watch()
    marks = con.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE starts_with(function_name, $1)", [_MARK]
    ).fetchall()
    for functions in (_made[int(mark.removeprefix(_MARK))] for (mark,) in marks):
        if functions.path == path:
            functions.use(identity, options)
            return functions
    functions = _Functions(path, identity, options)
    _made.append(functions)
    functions.add(con, "rerank", f"{_MARK}{len(_made) - 1}")
    return functions


class _Functions:
    """The functions of one file in one database: its model, which one thread at a time may ask, and its vectors."""

    def __init__(self, path: Path, identity: ModelIdentity, options: _Options) -> None:
        self.path = path
        self.identity = identity
        self._names: set[str] = set()
        self._model = new_lock()
        self._embedded, self._ended, self._began = 0, 0.0, 0.0
        self._take(identity, options.embedder)
        self._reranker = options.reranker
        self.verbose = options.verbose
        # By name, each for the number of its arguments; the one reference to what DuckDB calls.
        self._calls: dict[str, list[Callable[..., pa.Array]]] = {
            "embed": [lambda texts: self._embed(texts), self._embed],
            "similarity": [self._similarity],
            "rerank": [self._rerank],
        }

    def use(self, identity: ModelIdentity, options: _Options) -> None:
        """Take over what a later caller says."""
        if identity.dimensions != self.identity.dimensions:
            raise InputError(
                f"{self.path} had another model when it was registered, with vectors of {self.identity.dimensions} "
                f"dimensions, not of {identity.dimensions}. Open a new connection."
            )
        if options.embedder is not None or identity != self.identity:
            self._take(identity, options.embedder)
        if options.reranker is not None:
            self._reranker = options.reranker
        self.verbose = options.verbose

    def _take(self, identity: ModelIdentity, embedder: AnyEmbedder | None) -> None:
        wrapped = None if embedder is None else as_embedder(embedder)
        with self._model:
            self.identity = identity
            self._questions = QuestionEmbedder(self.path, identity, wrapped)
            self._key = next(_keys)

    def add(self, con: duckdb.DuckDBPyConnection, function: str, name: str) -> None:
        """Give the database of a connection a function by a name; again it does nothing."""
        if name.lower() in self._names:
            return
        if _named(con, [name]):
            raise InputError(f"The connection has a function {name} already, which is not that of {self.path}.")
        result = f"FLOAT[{self.identity.dimensions}]" if function == "embed" else "DOUBLE"
        for call in self._calls[function]:
            parameters: Any = ["VARCHAR"] * len(inspect.signature(call).parameters)
            options: Any = {"type": "arrow", "null_handling": "special", "side_effects": False}
            # Of a cursor each: a connection takes one function of a name.
            con.cursor().create_function(name, call, parameters, result, **options)
        self._names.add(name.lower())

    def _embed(self, texts: pa.Array, kinds: pa.Array | None = None) -> pa.Array:
        """Return a vector for each text, NULL where it or its kind is NULL, or the text is blank."""
        with self._reporting():
            given = texts.to_pylist()
            wanted = ["query"] * len(given) if kinds is None else kinds.to_pylist()
            other = next((kind for kind in wanted if kind not in (None, "document", "query")), None)
            if other is not None:
                raise InputError(f"embed(text, kind): kind must be 'document' or 'query', not {other!r}.")
            rows: list[Vectors] = []
            places = np.full(len(given), -1)
            kinds_of_texts: tuple[TextKind, ...] = ("document", "query")
            for kind in kinds_of_texts:
                own = [text if one == kind else None for text, one in zip(given, wanted, strict=True)]
                vectors, of_kind = self._vectors(own, kind)
                places = np.where(of_kind >= 0, of_kind + sum(map(len, rows)), places)
                rows.append(vectors)
            values = np.concatenate(rows).reshape(-1)
            array = pa.FixedSizeListArray.from_arrays(pa.array(values, pa.float32()), self.identity.dimensions)
            return array.take(pa.array(places, mask=places < 0))

    def _similarity(self, texts: pa.Array, questions: pa.Array) -> pa.Array:
        """Return the cosine of each text and question, rounded as in the macros; NULL where one has no vector."""
        with self._reporting():
            # A text whose question is missing, or the other way round, need not be embedded.
            pairs = [
                (None, None)
                if text is None or question is None or is_blank(text) or is_blank(question)
                else (text, question)
                for text, question in zip(texts.to_pylist(), questions.to_pylist(), strict=True)
            ]
            asked, of_question = self._vectors([question for _, question in pairs], "query")
            found, of_text = self._vectors([text for text, _ in pairs], "document")
            there = of_text >= 0
            cosines = np.zeros(len(pairs))
            if there.any():
                left, right = found[of_text[there]].astype(np.float64), asked[of_question[there]].astype(np.float64)
                lengths = np.sqrt(np.einsum("ij,ij->i", right, right))
                cosines[there] = np.clip(np.round(np.einsum("ij,ij->i", left, right) / lengths, 9), -1, 1)
            return pa.array(cosines, mask=~there)

    def _rerank(self, questions: pa.Array, texts: pa.Array) -> pa.Array:
        """Return the score of each text for its question; NULL where one is NULL or blank."""
        with self._reporting():
            since = interrupts.seen()
            scores: dict[tuple[str, str], float] = {}
            pairs = list(zip(questions.to_pylist(), texts.to_pylist(), strict=True))
            by_question: dict[str, dict[str, None]] = {}
            for question, text in pairs:
                if not (question is None or text is None or is_blank(question) or is_blank(text)):
                    by_question.setdefault(question, {})[text] = None
            reranker = self._reranker
            if reranker is None:
                if not by_question:
                    return pa.nulls(len(pairs), pa.float64())
                raise InputError(
                    "rerank(question, text) needs a cross-encoder: pass reranker='Xenova/ms-marco-MiniLM-L-6-v2' or "
                    "another to connect or register (sqlrag shell --embed --rerank MODEL)."
                )
            with self._model:
                for question, distinct in by_question.items():
                    for begin in range(0, len(distinct), _RERANKED_AT_ONCE):
                        interrupts.check(since)
                        some = list(distinct)[begin : begin + _RERANKED_AT_ONCE]
                        found = scores_of(reranker, question, some).tolist()
                        scores.update(zip(((question, text) for text in some), found, strict=True))
            return pa.array([scores.get(pair) for pair in pairs], pa.float64())

    def _vectors(self, texts: Sequence[str | None], kind: TextKind) -> tuple[Vectors, NDArray[np.int64]]:
        """Return the vectors of the distinct texts, and for each text the place of its own; -1 where it has none."""
        distinct: dict[str, int] = {}
        places = [-1 if text is None or is_blank(text) else distinct.setdefault(text, len(distinct)) for text in texts]
        return self._of_distinct(list(distinct), kind), np.array(places, dtype=np.int64)

    def _of_distinct(self, texts: list[str], kind: TextKind) -> Vectors:
        since = interrupts.seen()
        found: dict[str, NDArray[np.float32]] = {}
        with self._model:
            interrupts.check(since)
            missing = []
            for text in texts:
                row = _kept.get((self._key, kind, text))
                if row is None:
                    missing.append(text)
                else:
                    found[text] = row
            if missing:
                embedder = self._questions.embedder()
                with self._bar(len(missing)) as advance:

                    def keep(positions: list[int], vectors: Vectors) -> None:
                        for position, vector in zip(positions, vectors, strict=True):
                            found[missing[position]] = vector
                            _kept.put((self._key, kind, missing[position]), vector)
                        advance(len(positions))
                        interrupts.check(since)

                    embed_texts(embedder, missing, kind=kind, made=keep)
        if not texts:
            return np.empty((0, self.identity.dimensions), dtype=np.float32)
        return np.stack([found[text] for text in texts])

    @contextmanager
    def _bar(self, texts: int) -> Iterator[Callable[[int], object]]:
        """Yield what counts texts that were embedded, on a bar of the statement once that takes long.

        One text is a question, of a search that may follow a long statement at once.
        """
        from tqdm.auto import tqdm

        now = time.monotonic()
        if now - self._ended > _STATEMENT_SECONDS:
            self._began, self._embedded = now, 0
        delay = max(0.0, self._began + _BAR_SECONDS - now)
        with tqdm(
            desc="embedding", unit=" texts", initial=self._embedded, delay=delay, leave=False,
            disable=texts == 1 or not self.verbose or columns_of_bar() is None,
        ) as bar:  # fmt: skip

            def advance(done: int) -> None:
                self._embedded += done
                bar.update(done)

            try:
                yield advance
            finally:
                self._ended = time.monotonic()

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Keep what a function raises for :func:`clear_error`; DuckDB keeps its text alone."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                interrupts.count += 1  # for what other threads are at
            _failures[:] = [error]
            raise


_keys = itertools.count()

_failures: list[BaseException] = []


def clear_error(error: BaseException) -> BaseException:
    """Return what a function raised, or Ctrl-C, where the error of DuckDB says no more than that; else the error."""
    if isinstance(error, duckdb.InterruptException) or "interrupted" in str(error)[:20].lower():
        return KeyboardInterrupt()
    for cause in _failures:
        if isinstance(error, duckdb.Error) and f"{type(cause).__name__}: {cause}" in str(error):
            return cause
    return error


def interruptible(con: duckdb.DuckDBPyConnection, work: Callable[[], T]) -> T:
    """Return what the work with a connection returns; Ctrl-C interrupts it, which DuckDB 2.0 does late.

    Errors are those of :func:`clear_error`.
    """
    result: list[T] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            result.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=copy_context().run, args=(run,), name="sqlrag-sql", daemon=True)
    thread.start()
    stopped = False
    while not done.is_set():
        try:
            done.wait(0.05)
        except KeyboardInterrupt:
            stopped = True
            interrupts.count += 1
        if stopped:
            con.interrupt()
    thread.join()
    if stopped:
        raise KeyboardInterrupt
    if errors:
        raise clear_error(errors[0]) from errors[0]
    return result[0]


class _Kept:
    """Vectors by model, kind and text: those used last, as many as fit."""

    def __init__(self) -> None:
        self._rows: OrderedDict[tuple[int, str, str], NDArray[np.float32]] = OrderedDict()
        self._lock = new_lock()
        self.bytes = 0

    def get(self, key: tuple[int, str, str]) -> NDArray[np.float32] | None:
        with self._lock:
            row = self._rows.get(key)
            if row is not None:
                self._rows.move_to_end(key)
            return row

    def put(self, key: tuple[int, str, str], row: NDArray[np.float32]) -> None:
        with self._lock:
            if key not in self._rows:
                # A copy: a row of a batch would keep all of the batch.
                self._rows[key] = row.copy()
                self.bytes += _size(key, row)
            while self.bytes > CACHE_BYTES:
                self.bytes -= _size(*self._rows.popitem(last=False))


def _size(key: tuple[int, str, str], row: NDArray[np.float32]) -> int:
    # With the tuple, the array's header and the entry.
    return row.nbytes + sys.getsizeof(key[2]) + 400


_kept = _Kept()


class _Interrupts:
    """Counts Ctrl-C as it arrives.

    DuckDB 2.0 notices it when the statement has ended, since Python tells the main thread alone, and that waits for
    DuckDB's threads. A function in one of these looks here between two batches.
    """

    def __init__(self) -> None:
        self.count = 0
        self._reader: socket.socket | None = None
        self._writer: socket.socket | None = None

    def watch(self) -> None:
        """Begin, if the program can and does not do it already (asyncio may)."""
        if threading.current_thread() is not threading.main_thread():
            return
        if self._writer is None:
            self._reader, self._writer = socket.socketpair()
            self._reader.setblocking(False)
            self._writer.setblocking(False)
        before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        if before not in (-1, self._writer.fileno()):
            signal.set_wakeup_fd(before)

    def seen(self) -> int:
        """Return how many there were until now."""
        with suppress(OSError):
            while self._reader is not None and (signals := self._reader.recv(4096)):
                self.count += signals.count(signal.SIGINT)
        return self.count

    def check(self, since: int) -> None:
        """Raise KeyboardInterrupt if there was one since then."""
        if self.seen() > since:
            raise KeyboardInterrupt("stopped by Ctrl-C")

    def forget(self) -> None:
        """Leave what the parent looks at to it, in a process that was forked."""
        reader, writer, self._reader, self._writer = self._reader, self._writer, None, None
        if reader and writer:
            before = signal.set_wakeup_fd(-1)
            if before != writer.fileno():
                signal.set_wakeup_fd(before)
            reader.close()
            writer.close()


interrupts = _Interrupts()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=interrupts.forget)
