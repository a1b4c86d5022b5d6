"""Copies a store into a fresh file, which gives back the space of what was replaced and clusters the postings."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlrag.errors import StoreError
from sqlrag.settings import seconds_to_wait
from sqlrag.store.calls import copy_rows, count_rows, detach, qualified
from sqlrag.store.copying import tables_of
from sqlrag.store.database import Database
from sqlrag.store.files import check_memory_limit
from sqlrag.store.handles import existing_file
from sqlrag.store.output import replacement

if TYPE_CHECKING:
    import os
    from pathlib import Path

    import duckdb

# The order of rows where it matters to a search; any other table is ordered by its primary key, or left as it lies.
ORDER = {
    ("main", "documents"): ("rid",),
    ("main", "document_links"): ("doc_id", "link_index"),
    ("fts_main_documents", "docs"): ("rid",),
    ("fts_main_documents", "words"): ("word",),
    ("fts_main_documents", "dict"): ("termid",),
    ("fts_main_documents", "postings"): ("termid", "rid"),
}


class Compacted(NamedTuple):
    """What :func:`compact` did: the file, and its size before and after, in bytes."""

    path: Path
    bytes_before: int
    bytes_after: int

    def __str__(self) -> str:
        """Say it in a line."""
        return f"{self.path}: {self.bytes_before:,} bytes before, {self.bytes_after:,} after"


def compact(
    db_path: str | os.PathLike[str], *, wait_seconds: float | None = None, memory_limit: str | None = None
) -> Compacted:
    """Copy a store into a fresh file that takes its place.

    Deleted and replaced rows keep their space in a DuckDB file; a copy has none of it. Every row, table, view and macro
    is kept, those of your own as well, and results are the same before and after. The rows are written in a stated
    order, postings by term, so that a query reads little. Other processes can read meanwhile; those that have the file
    open keep the old one until they open it again. The folder needs room for the copy.

    Parameters
    ----------
    db_path
        The file.
    wait_seconds
        How long to wait for a process that writes to it. None: as :class:`sqlrag.Settings` says.
    memory_limit
        How much memory DuckDB may use, such as "2GB"; by default four fifths of the machine's.

    Returns
    -------
    Compacted
        Path and sizes.

    Raises
    ------
    InputError
        ``memory_limit`` is no size.
    NotFoundError, NotAStoreError, SchemaVersionError
        It is no store of this version.
    StoreLockedError
        Another process writes to it, or this one has it open.
    StoreError
        The copy could not be written; the file is as it was.
    """
    wait = seconds_to_wait(wait_seconds)
    memory_limit = check_memory_limit(memory_limit)
    path = existing_file(db_path)
    Database.open(path, wait_seconds=wait).close()
    with replacement(path, wait, memory_limit) as (con, temporary):
        before = path.stat().st_size
        # Tables, views and macros with their comments, in an order in which each finds what it names.
        con.execute("COPY FROM DATABASE old TO new (SCHEMA)")
        con.execute("BEGIN")
        for schema, table in tables_of(con, "old"):
            source, target = ("old", schema, table), ("new", schema, table)
            copy_rows(con, source, target, order=ORDER.get((schema, table)) or _primary_key(con, schema, table))
            if count_rows(con, source) != count_rows(con, target):
                raise StoreError(path, f"{path}: the copy of {qualified(source)} is not whole. The file is as it was.")
        con.execute("COMMIT")
        detach(con, "new")
        after = temporary.stat().st_size
    return Compacted(path, before, after)


def _primary_key(con: duckdb.DuckDBPyConnection, schema: str, table: str) -> list[str]:
    rows = con.execute(
        "SELECT constraint_column_names FROM duckdb_constraints() WHERE database_name = 'old' AND schema_name = $1 "
        "AND table_name = $2 AND constraint_type = 'PRIMARY KEY'",
        [schema, table],
    ).fetchall()
    return list(rows[0][0]) if rows else []
