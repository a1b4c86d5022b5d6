"""Upgrades a file of an older schema, in numbered steps on a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import duckdb

from sqlrag.arguments import counted
from sqlrag.engines.duckdb import lexical
from sqlrag.engines.duckdb.database import NODE_COLUMNS, check_no_code, existing_file, other_version
from sqlrag.engines.duckdb.documents import rebuild_links, refresh_shown
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.files import check_memory_limit, connect
from sqlrag.engines.duckdb.metadata import (
    VECTORS_WITH_MARKUP,
    WITH_MARKUP,
    read_metadata,
    refresh_counts,
    write_metadata,
)
from sqlrag.engines.duckdb.rewrite import (
    LEXICAL,
    copy_tables,
    not_copied,
    remove_left_overs,
    replacement,
    steps_of,
    tables_of,
)
from sqlrag.engines.duckdb.schema import SCHEMA_VERSION, create_objects, read_sql, run_script, sql_folder
from sqlrag.engines.duckdb.statements import attach, copy_table, detach
from sqlrag.errors import NotAStoreError, StoreError
from sqlrag.settings import seconds_to_wait
from sqlrag.version import __version__

if TYPE_CHECKING:
    import os
    from pathlib import Path


# The schema version from which vectors are made of the visible text.
_VISIBLE_TEXT = 5


class Upgraded(NamedTuple):
    """What :func:`upgrade` did: the versions, the steps, what was left out and what there is now."""

    path: Path
    from_version: int
    to_version: int
    steps: tuple[str, ...] = ()
    documents: int = 0
    chunks: int = 0
    left_out: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the result as lines."""
        if not self.steps:
            return f"{self.path} has schema version {self.to_version} already."
        versions = f"schema version {self.from_version} to {self.to_version} ({', '.join(self.steps)})"
        lines = [f"{self.path}: {versions}, {counted(self.documents, 'document')}, {counted(self.chunks, 'chunk')}"]
        return "\n".join([*lines, *self.notices, *(f"left out: {item}" for item in self.left_out)])


@public
def upgrade(
    db_path: str | os.PathLike[str], *, wait_seconds: float | None = None, memory_limit: str | None = None
) -> Upgraded:
    """Turn a file of an older schema, or one made by another program, into a store of this version.

    Other programs are ``sqlrooms-rag`` 0.1.2 and ``llama-index-vector-stores-duckdb`` with its table ``documents``. The
    numbered scripts of ``sql/migrations`` are applied in their order to a copy, which then replaces the
    file. Ids and vectors are kept; the lexical index is rebuilt from the text as a reader of the pages sees it. Vectors
    that were made of texts with markup stay until :func:`sqlrag.reembed` renews them; the result says so. The vectors
    of a file of another program are scaled to length 1, and headings that were pasted into a chunk's text are moved
    out of it.

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
    Upgraded
        ``left_out`` names what could not be kept and why, such as a chunk whose vector is not finite; ``notices`` say
        what is left to do.

    Raises
    ------
    InputError
        ``memory_limit`` is not a size.
    NotFoundError, NotAStoreError
        There is no such file, or it has other tables.
    SchemaVersionError
        A newer sqlrag wrote it.
    StoreLockedError, StoreError
        It is in use, or the copy cannot be written; it is as it was.
    """
    wait = seconds_to_wait(wait_seconds)
    memory_limit = check_memory_limit(memory_limit)
    path = existing_file(db_path)
    with connect(path, True, wait) as con:
        version = _version(con, path)
    if version == int(SCHEMA_VERSION):
        remove_left_overs(path)  # of a process that was killed after the last step
        return Upgraded(path, version, version)
    return _upgrade(path, version, wait, memory_limit)


def migrations() -> list[tuple[int, str]]:
    """Return the number and name of every migration, in order; number n leads from schema n - 1 to n."""
    names = sorted(file.stem for file in (sql_folder() / "migrations").glob("*.sql"))
    return [(int(name.partition("_")[0]), name) for name in names]


def _version(con: duckdb.DuckDBPyConnection, path: Path) -> int:
    """Return the schema version of a connection's database, 0 for sqlrooms-rag's and llama-index's."""
    check_no_code(con, path)
    columns = con.execute(
        "SELECT list(column_name) FROM duckdb_columns() WHERE table_name = 'documents' AND schema_name = 'main' "
        "AND database_name = current_database()"
    ).fetchall()[0][0]
    if not NODE_COLUMNS.issubset(columns or ()):
        raise NotAStoreError(path, f"{path} is not a store of sqlrag or sqlrooms-rag: it has no such table documents.")
    try:
        found = con.execute("SELECT value FROM main.embedding_metadata WHERE key = 'schema_version'").fetchall()
    except duckdb.CatalogException:
        found = []  # llama-index-vector-stores-duckdb has the table documents alone
    except duckdb.BinderException as error:
        raise NotAStoreError(path, f"{path} is not a store of sqlrag or sqlrooms-rag: {error}") from error
    version = found[0][0] if found else "0"
    if not version.isdecimal() or int(version) > int(SCHEMA_VERSION):
        raise other_version(path, version)
    return int(version)


def _upgrade(path: Path, version: int, wait: float, memory_limit: str | None) -> Upgraded:
    with replacement(path, wait, memory_limit) as (con, temporary):
        # The steps are applied to this copy. The file is built from it at the end, without what they leave behind.
        attach(con, steps_of(temporary), "work")
        for schema, table in tables_of(con, "old"):
            copy_table(con, ("old", schema, table), ("work", schema, table))
        con.execute("USE work.main")
        # llama-index's store has the table documents alone.
        con.execute("CREATE TABLE IF NOT EXISTS embedding_metadata (key VARCHAR, value VARCHAR, created_at TIMESTAMP)")
        dimensions = con.execute(read_sql("index/vector_length")).fetchall()[0][0]
        if not dimensions:
            raise StoreError(path, f"{path} holds no vectors and names no model. Prepare it again.")
        steps = [(number, name) for number, name in migrations() if number > version]
        for number, name in steps:
            _migrate(con, number, name, dimensions)

        con.execute("USE new.main")
        create_objects(con, dimensions)
        left_out = not_copied(con)
        con.execute("BEGIN")
        copy_tables(con, "work", {("main", "documents"), *LEXICAL})
        run_script(con, "index/copy_chunks", dimensions=dimensions)
        if version == 0:
            failures = con.execute("SELECT doc_id, reason FROM ingest_failures ORDER BY doc_id").fetchall()
            left_out += [f"{doc_id}: {reason}" for doc_id, reason in failures]
        if refresh_shown(con) and version < _VISIBLE_TEXT:
            write_metadata(con, {WITH_MARKUP: True})
        lexical.add_chunks(con, 0, read_metadata(con)["stemmer"])
        rebuild_links(con)
        write_metadata(con, {"sqlrag_version": __version__, "duckdb_version": duckdb.__version__})
        refresh_counts(con)
        documents, chunks = con.execute(read_sql("index/count_rows")).fetchall()[0]
        notices = (VECTORS_WITH_MARKUP,) if WITH_MARKUP in read_metadata(con) else ()
        con.execute("COMMIT")
        detach(con, "work")
        detach(con, "new")
    names = tuple(name for _, name in steps)
    return Upgraded(path, version, steps[-1][0], names, documents, chunks, tuple(left_out), notices)


def _migrate(con: duckdb.DuckDBPyConnection, number: int, name: str, dimensions: int) -> None:
    """Apply one step and record its number; all of it or nothing."""
    con.execute("BEGIN")
    run_script(con, f"migrations/{name}", dimensions=dimensions)
    con.execute("UPDATE embedding_metadata SET value = $1 WHERE key = 'schema_version'", [str(number)])
    con.execute("COMMIT")
