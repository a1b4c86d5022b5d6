"""Mends what can be rebuilt from the chunks and vectors of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlrag.settings import seconds_to_wait
from sqlrag.store import checking, lexical, linking
from sqlrag.store.database import Database
from sqlrag.store.handles import existing_file, is_open
from sqlrag.store.inspecting import dimensions_of
from sqlrag.store.metadata import default_metadata, read_metadata, refresh_counts, write_metadata
from sqlrag.store.schema import create_code, for_dimensions, object_names, read_sql, wanted_objects
from sqlrag.wording import counted

if TYPE_CHECKING:
    import os
    from pathlib import Path

    import duckdb

    from sqlrag.store.checking import Problem

_INDEX = "fts_main_documents."
_INDEX_TABLES = {_INDEX + name for name in ("docs", "words", "dict", "postings", "stopwords", "stats")}
_INDEX_CHECKS = {"unindexed_chunks", "wrong_frequencies", "wrong_lengths", "wrong_postings"}


class Repaired(NamedTuple):
    """What :func:`repair` did, in sentences, and the problems that are left."""

    path: Path
    done: tuple[str, ...]
    left: tuple[Problem, ...]

    def __str__(self) -> str:
        """Say it in lines."""
        lines = [f"{self.path}: {len(self.done) or 'nothing'} repaired", *self.done]
        return "\n".join([*lines, *(f"not repaired: {p.check}, {counted(p.rows, 'row')}: {p.rule}" for p in self.left)])


def repair(db_path: str | os.PathLike[str], *, wait_seconds: float | None = None) -> Repaired:
    """Rebuild what a file's chunks and vectors determine, where a check finds it wrong.

    That is: tables, views and macros that are missing, the lexical index, the sign codes, the links, points of the map
    whose chunks are gone, the counts and missing keys of ``embedding_metadata`` (with the defaults of a file of
    ready-made vectors). Chunks, vectors and sources are never changed. It is one transaction: all of it is done or
    nothing.

    Parameters
    ----------
    db_path
        The file.
    wait_seconds
        How long to wait for other processes that hold it. None: as :class:`sqlrag.Settings` says.

    Returns
    -------
    Repaired
        What was done, and the problems that could not be repaired.

    Raises
    ------
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        The file cannot be opened for writing, or not be written.
    """
    wait = seconds_to_wait(wait_seconds)
    path = existing_file(db_path)
    done = []
    if path.with_name(path.name + ".wal").exists() and not is_open(path):
        done.append("The log of a process that was killed was taken into the file.")
    with Database.open(path, read_only=False, wait_seconds=wait) as database:
        dimensions = dimensions_of(database)
        found = {problem.check for problem in checking.check(database, dimensions)}
        with database.transaction() as con:
            had_links = "main.document_links" in object_names(con)
            if "missing_objects" in found:
                done += _restore_objects(con, dimensions)
            known = read_metadata(con)
            missing = {key: value for key, value in default_metadata(dimensions).items() if key not in known}
            if missing:
                write_metadata(con, missing)
                done.append(f"Missing keys of embedding_metadata were set to their defaults: {', '.join(missing)}.")
            if found & _INDEX_CHECKS or "stemmer" in missing or con.execute(read_sql("index/is_unindexed")).fetchall():
                lexical.rebuild(con, read_metadata(con)["stemmer"])
                done.append("The lexical index was built anew from the chunks.")
            if "wrong_codes" in found:
                con.execute(for_dimensions(read_sql("index/recode_chunks"), dimensions))
                done.append("The sign codes were made anew from the vectors.")
            if "wrong_links" in found or not had_links:
                linking.rebuild_links(con)
                done.append("The links were taken anew from the texts.")
            if "map_without_chunks" in found:
                con.execute(read_sql("index/unmap_lost"))
                done.append("Points whose chunks are gone were taken off the map.")
            if "stale_counts" in found:
                refresh_counts(con)
                done.append("The counts in embedding_metadata were taken anew.")
        database.checkpoint()
        left = checking.check(database, dimensions)
    return Repaired(path, tuple(done), tuple(left))


def _restore_objects(con: duckdb.DuckDBPyConnection, dimensions: int) -> list[str]:
    """Create what is missing; where a table of the lexical index is, all of them anew."""
    names = object_names(con)
    con.execute(for_dimensions(read_sql("schema"), dimensions).replace("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS "))
    if not names >= _INDEX_TABLES:
        stopwords = (
            con.execute("SELECT word FROM fts_main_documents.stopwords ORDER BY word").fetchall()
            if _INDEX + "stopwords" in names
            else None
        )
        con.execute("DROP SCHEMA IF EXISTS fts_main_documents CASCADE")
        con.execute(read_sql("lexical_index"))
        if stopwords is not None:
            con.execute("DELETE FROM fts_main_documents.stopwords")
            con.executemany("INSERT INTO fts_main_documents.stopwords VALUES ($1)", [list(row) for row in stopwords])
    create_code(con, dimensions)
    return [f"What was missing was created: {', '.join(sorted(wanted_objects() - names))}."]
