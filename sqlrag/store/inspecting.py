"""Looks a file over: the checks of ``sql/checks``, and what concerns the file as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb

from sqlrag.errors import NotAStoreError
from sqlrag.settings import seconds_to_wait
from sqlrag.store import checking
from sqlrag.store.checking import Problem
from sqlrag.store.database import Database
from sqlrag.store.files import storage_version
from sqlrag.store.handles import existing_file, is_open

if TYPE_CHECKING:
    import os
    from pathlib import Path

# What STORAGE_VERSION is called in the header of a file.
_STORAGE = 65


def check(db_path: str | os.PathLike[str], *, wait_seconds: float | None = None) -> list[Problem]:
    """Look for faults in a file.

    Every check of ``sql/checks`` is run; besides, no table, view or macro may be missing, no log of a killed process
    may be left beside the file, and its storage format has to be one that DuckDB 1.3.2 opens.

    Parameters
    ----------
    db_path
        The file.
    wait_seconds
        How long to wait for a process that writes to it. None: as :class:`sqlrag.Settings` says.

    Returns
    -------
    list of Problem
        Empty where the file is sound. :func:`sqlrag.repair` mends what can be rebuilt.

    Raises
    ------
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError
        It cannot be opened as a store; see :mod:`sqlrag.errors`.
    StoreError
        It is so damaged that a check cannot run.
    """
    path = existing_file(db_path)
    problems = [] if is_open(path) else _file_problems(path)
    wait = seconds_to_wait(wait_seconds)
    with Database.open(path, wait_seconds=wait) as database:
        return [*problems, *checking.check(database, dimensions_of(database))]


def dimensions_of(database: Database) -> int:
    """Return the length of the vectors, by the type of their column."""
    rows = database.cursor().execute(
        "SELECT regexp_extract(data_type, '^FLOAT.(\\d+).$', 1) FROM duckdb_columns() WHERE table_name = 'documents' "
        "AND column_name = 'embedding' AND database_name = current_database() AND schema_name = 'main'"
    )
    found: list[tuple[str]] = rows.fetchall()
    if not found or not found[0][0]:
        raise NotAStoreError(database.path, f"{database.path}: the table documents has no column of vectors.")
    return int(found[0][0])


def _file_problems(path: Path) -> list[Problem]:
    problems = []
    log = path.with_name(path.name + ".wal")
    if log.exists():
        rule = "All is in the file itself, nothing in a log beside it."
        problems.append(Problem("log_left_over", rule, 1, (log.name,)))
    version = storage_version(path)
    if version > _STORAGE:
        rule = f"The storage format is {_STORAGE}, which DuckDB 1.3.2 opens, or an older one."
        problems.append(Problem("storage_version", rule, 1, (f"format {version}, DuckDB {duckdb.__version__} here",)))
    return problems
