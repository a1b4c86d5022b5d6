"""The query log: a DuckDB file apart from the store, to which every query appends a row if the settings name one."""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
import time
import uuid
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from sqlrag.engines.duckdb.database import Handle
from sqlrag.engines.duckdb.files import as_narrow_as, check_not_inherited, confine, patiently, real_path
from sqlrag.engines.duckdb.metadata import now
from sqlrag.engines.duckdb.rewrite import put_in_place, temporary_beside
from sqlrag.engines.duckdb.schema import STORAGE_VERSION, read_sql
from sqlrag.engines.duckdb.statements import register
from sqlrag.errors import InputError, StoreExistsError
from sqlrag.locks import new_lock
from sqlrag.telemetry import request_id_of

if TYPE_CHECKING:
    from sqlrag.ranking.plan import SearchOptions
    from sqlrag.ranking.results import Results

log = logging.getLogger("sqlrag.query")

_BUFFERED_ROWS = 100

_BUFFERED_SECONDS = 10.0

_SECONDS_AT_EXIT = 5.0

# While another process holds the log, rows wait in memory; beyond this many the oldest are given up.
_MOST_ROWS = 10_000

_COLUMNS = {
    "query_id": "string",
    "asked_at": pa.timestamp("us"),
    "store": "string",
    "mode": "string",
    "query_text": "string",
    "top_k": "int32",
    "results": "int32",
    "score_type": "string",
    "best_score": "float64",
    "vector_candidates": "int32",
    "lexical_candidates": "int32",
    "total_seconds": "float64",
    "seconds": "string",
    "notices": pa.list_(pa.string()),
    "error": "string",
    "request_id": "string",
    "scores": pa.list_(pa.float64()),
}

_logs: dict[Path, QueryLog] = {}

_lock = new_lock()


def query_log(path: str | os.PathLike[str], store: Path | str) -> QueryLog:
    """Return the log of a file, one for the whole process; raises InputError where that file is the store itself."""
    real = real_path(path)
    is_store = isinstance(store, Path) and real.exists() and real.samefile(store)
    if real.exists() and (is_store or not (real.is_file() or real.is_dir())):
        what = f"the store {store} itself" if is_store else "neither a file nor a name that is free"
        raise InputError(f"query_log {real} is {what}. Name another file; it is made if there is none.")
    with _lock:
        return _logs.setdefault(real, QueryLog(real))


class QueryLog:
    """Rows on their way to a log file. Nothing that goes wrong here ever fails a query: it is a warning, once.

    DuckDB lets one process write at a time, so the file is open only while rows are written: every 100 queries, every
    10 seconds, when a Store is closed and at the end of the process.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: list[list[Any]] = []
        self._process = os.getpid()
        self._last_written = time.monotonic()
        self._warned = False
        self._access = new_lock()
        self._writing = new_lock()
        atexit.register(self.flush, _SECONDS_AT_EXIT)

    def add(
        self,
        store: Path | str,
        query_text: object,
        plan: SearchOptions,
        outcome: Results | Exception,
        seconds: float,
    ) -> None:
        """Record a query that has just ended: its results or its error, and its duration in seconds."""
        try:
            row = _row(store, query_text, plan, outcome, seconds)
            with self._access:
                if self._process != os.getpid():  # a fork's rows are the parent's to write
                    self._process, self._rows = os.getpid(), []
                self._rows.append(row)
                due = len(self._rows) >= _BUFFERED_ROWS or time.monotonic() - self._last_written > _BUFFERED_SECONDS
            if due and not self._writing.locked():
                # Not in the way of the query; the process waits for it at its end.
                threading.Thread(target=self.flush, args=[1.0], name="sqlrag-query-log").start()
        except Exception as error:
            self._warn(error)

    def flush(self, wait_seconds: float = 0.2) -> None:
        """Write the rows that wait; another process that holds the log is waited for so long."""
        with self._writing:
            try:
                self._last_written = time.monotonic()
                with self._access:
                    rows = self._rows[:] if self._process == os.getpid() else []
                if rows:
                    _write(self.path, rows, wait_seconds)
                    with self._access:
                        del self._rows[: len(rows)]
            except Exception as error:
                self._warn(error)
                with self._access:
                    del self._rows[:-_MOST_ROWS]

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            log.warning("The query log %s cannot be written; queries are answered all the same: %s", self.path, error)


def _row(
    store: Path | str,
    query_text: object,
    plan: SearchOptions,
    outcome: Results | Exception,
    seconds: float,
) -> list[Any]:
    began = now() - timedelta(seconds=seconds)
    text = str(query_text).encode("utf-8", "replace").decode()
    row: list[Any] = [uuid.uuid4().hex, began, str(store), plan.mode, text, plan.top_k]
    if isinstance(outcome, Exception):
        error = f"{type(outcome).__name__}: {outcome}".encode("utf-8", "replace").decode()
        return [*row, None, None, None, None, None, seconds, "{}", [], error, request_id_of(None), []]
    best = outcome[0] if outcome else {}
    legs = [outcome.candidates.get(leg) for leg in ("vector", "lexical")]
    stages = json.dumps({stage: round(value, 6) for stage, value in outcome.timings.items()})
    found: list[Any] = [len(outcome), best.get("score_type"), best.get("score")]
    scores = [one["score"] for one in outcome]
    return [*row, *found, *legs, seconds, stages, outcome.notices, None, request_id_of(None), scores]


def _write(path: Path, rows: list[list[Any]], wait_seconds: float) -> None:
    """Append rows to the file, which is made if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    check_not_inherited(path)
    with ExitStack() as narrowed:
        # It holds questions, which are as private as what they were put to.
        for store in sorted({row[2] for row in rows}):
            narrowed.enter_context(as_narrow_as(Path(store)))
        narrowed.enter_context(as_narrow_as(path))
        if not path.exists():
            with suppress(StoreExistsError), temporary_beside(path) as temporary:  # another process makes it, too
                _append(temporary, rows, wait_seconds)
                put_in_place(temporary, path, overwrite=False)
                return
        _append(path, rows, wait_seconds)


def _append(path: Path, rows: list[list[Any]], wait_seconds: float) -> None:
    config: dict[str, Any] = {"storage_compatibility_version": STORAGE_VERSION}
    con = patiently(path, wait_seconds, lambda: duckdb.connect(str(path), config=config))
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, _COLUMNS.values(), strict=True)]
    table = pa.table(arrays, list(_COLUMNS))
    handle = Handle(path, con, read_only=False)
    try:
        confine(con)
        con.execute("BEGIN")
        con.execute(read_sql("query_log"))
        register(con, "new_queries", table)
        con.execute("INSERT INTO queries BY NAME FROM new_queries")
        con.execute("COMMIT")
    finally:
        handle.close()
