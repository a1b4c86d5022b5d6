"""Writes a new file beside its place and renames it when it is complete: output, replacement, compaction."""

from __future__ import annotations

import glob
import os
import re
import secrets
import shutil
from contextlib import contextmanager, suppress
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, NamedTuple

import duckdb

from sqlrag.arguments import counted, flag
from sqlrag.cancellation import checkpoint, last_step
from sqlrag.engines.duckdb import originals, row_tables
from sqlrag.engines.duckdb.blocks import (
    UnknownLayoutError,
    damaged_blocks,
    descriptor,
    flush_folder,
    give_rights,
    identity,
    journal_of,
)
from sqlrag.engines.duckdb.database import DEFAULT_WAIT, Database, check_replaceable, existing_file, reserved, settle
from sqlrag.engines.duckdb.definitions import are_generated
from sqlrag.engines.duckdb.failures import public, reported
from sqlrag.engines.duckdb.files import (
    as_narrow_as,
    check_memory_limit,
    check_not_inherited,
    check_output,
    confine,
    is_open_here,
    log_of,
    open_by_connection,
    patiently,
    prepare_to_write,
    rights_of,
)
from sqlrag.engines.duckdb.schema import object_names, read_sql, wanted_objects
from sqlrag.engines.duckdb.statements import attach, copy_rows, copy_table, count_rows, detach, identifier, qualified
from sqlrag.errors import (
    InputError,
    NotAStoreError,
    SchemaVersionError,
    StoreError,
    StoreExistsError,
    StoreLockedError,
)
from sqlrag.settings import seconds_to_wait

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

# The temporary files of this process; opening one would release DuckDB's lock on it.
_under_way: set[Path] = set()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_under_way.clear)


@contextmanager
def new_file(output: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a path beside the output; give the file its name at the end, or remove it after an error.

    Raises
    ------
    StoreExistsError
        Another process made the output in the meantime, and ``overwrite`` is False.
    StoreLockedError
        Another process writes to the file that is to be replaced.
    """
    with temporary_beside(output) as temporary:
        yield temporary
        with _without_writers(output), _one_at_a_time(output.parent), last_step():
            for beside in (log_of(output), journal_of(output)):
                beside.unlink(missing_ok=True)
            put_in_place(temporary, output, overwrite)
            originals.remove_all(output)


@contextmanager
def replacement(
    path: Path, wait_seconds: float, memory_limit: str | None
) -> Iterator[tuple[duckdb.DuckDBPyConnection, Path]]:
    """Build a new file from an old one, which it replaces at the end; after an error the old one is as it was.

    Yield a connection that has the old file attached as ``old`` and the new, empty one as ``new``, the default, and
    the path of the new one, to be detached when it is complete. No process can write to the old file meanwhile; other
    processes can read it. ``memory_limit`` is checked by the caller.

    Raises
    ------
    StoreLockedError
        Another process writes to the file, or this one has it open.
    StoreError
        The new file cannot be written.
    """
    with reserved(path), temporary_beside(path) as temporary:
        check_not_open(path)
        settle(path, wait_seconds)
        before = identity(path)
        # Sorts that do not fit into memory go to a folder that is removed with the temporary file.
        memory = {} if memory_limit is None else {"memory_limit": memory_limit}
        con = duckdb.connect(config={"temp_directory": f"{temporary}.tmp", **memory})
        with con:
            checkpoint(con)
            prepare_to_write(con)
            confine(con, path, temporary, steps_of(temporary))
            patiently(path, wait_seconds, lambda: attach(con, path, "old", read_only=True))
            attach(con, temporary, "new")
            con.execute("USE new.main")
            yield con, temporary
            with _one_at_a_time(path.parent):
                _check_is_still(path, before)
                give_rights(temporary, rights_of(path))
                with last_step():
                    temporary.replace(path)
        flush_folder(path.parent)


def check_not_open(path: Path) -> None:
    """Raise StoreLockedError for a file that this process has open by other means than a Database."""
    check_not_inherited(path)
    if path.exists() and is_open_here(path):
        raise open_by_connection(path)


def steps_of(temporary: Path) -> Path:
    """Return the path of the copy that an upgrade applies its steps to."""
    return temporary.with_name(f"{temporary.name}.steps")


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Let only one process at a time rename files into place in a folder, where the system has such locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a network file system may have none
            fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def _check_is_still(path: Path, before: tuple[int, int]) -> None:
    """Raise StoreLockedError where another process has replaced the file that was rewritten here."""
    if not path.exists() or identity(path) != before or log_of(path).exists():
        raise StoreLockedError(
            path, f"{path} has been replaced by another process while it was rewritten here. It is left as it is now."
        )


@contextmanager
def temporary_beside(output: Path) -> Iterator[Path]:
    """Yield a path beside the output, after removing what killed processes left; remove what is left of it.

    Folders of the output that do not exist are made, and stay if something is in them.
    Meanwhile nothing is created that more people can read than the output, where it exists. Errors of DuckDB and the
    system become StoreErrors of the output.
    """
    consequence = "The file is as it was" if output.exists() else "None was made"
    new_folders = [folder for folder in (output.parent, *output.parent.parents) if not folder.exists()]
    with reported(output, consequence):
        output.parent.mkdir(parents=True, exist_ok=True)
        remove_left_overs(output)
    hidden = output.name if output in _under_way else f".{output.name}"  # one more of the same output
    temporary = output.with_name(f"{hidden}.{os.getpid()}-{secrets.token_hex(4)}.building")
    _under_way.add(temporary)
    try:
        with reported(output, consequence, temporary), as_narrow_as(output):
            yield temporary
    finally:
        if temporary in _under_way:  # else this process was forked meanwhile, and the files are its parent's
            _under_way.discard(temporary)
            try:
                left = [*output.parent.glob(f"{glob.escape(temporary.name)}*")]
            except OSError:  # the folder cannot be listed: what is usually there
                left = [temporary.with_name(f"{temporary.name}{suffix}") for suffix in ("", ".wal", ".new", ".old")]
            for file in left:
                _remove(file)
            with suppress(OSError):  # the first that is not empty
                for folder in new_folders:
                    folder.rmdir()


def remove_left_overs(output: Path) -> None:
    """Remove the temporary files of an output whose processes were killed."""
    for left_over in output.parent.glob(f".{glob.escape(output.name)}.*.building*"):
        if not is_under_way(left_over):
            _remove(left_over)


@contextmanager
def _without_writers(output: Path) -> Iterator[None]:
    """Keep the old file open for reading while it is replaced, so that no writer has it open and loses its changes."""
    check_replaceable(output)
    if not output.exists() or output.stat().st_size == 0:
        yield
        return
    with suppress(StoreError):  # it is being read, log and all, or damaged
        settle(output, DEFAULT_WAIT)
    try:
        old = Database.open(output, trust=True)
    except (SchemaVersionError, NotAStoreError):  # an older one, or one that is damaged
        yield
        return
    with old:
        yield


def put_in_place(temporary: Path, output: Path, overwrite: bool) -> None:
    """Give a finished file its name, or raise StoreExistsError where it is taken and may not be replaced.

    A database of which a part is in a log still is not finished: StoreError.
    """
    if log_of(temporary).exists():
        raise StoreError(
            output, f"{output} could not be written as a whole. Make room on the disk, if that is full, and try again."
        )
    with last_step():
        _rename(temporary, output, overwrite)


def _rename(temporary: Path, output: Path, overwrite: bool) -> None:
    if not overwrite:
        try:
            os.link(temporary, output)  # unlike a rename, it fails where the name is taken
        except FileExistsError as error:
            raise StoreExistsError(
                output, f"The output {output} was made by another process in the meantime. It is left as it is."
            ) from error
        except OSError:  # a file system without links
            temporary.replace(output)
        else:
            temporary.unlink()
        return
    give_rights(temporary, rights_of(output))
    temporary.replace(output)


def is_under_way(left_over: Path) -> bool:
    """Return whether a process holds the lock of a temporary database."""
    building = left_over.with_name(left_over.name.rpartition(".building")[0] + ".building")
    if building in _under_way:
        return True
    try:
        import fcntl

        with building.open("rb+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, FileNotFoundError):
        return False  # without fcntl the system refuses to delete a file that is open
    except OSError:
        return True
    return False


def _remove(path: Path) -> None:
    """Delete a file, or the folder that DuckDB spills into; what cannot be deleted now is a left-over of the next."""
    for _ in range(2):
        try:
            path.unlink(missing_ok=True)
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
        else:
            return


_CODE = re.compile(r"w\d+")

# Rebuilt from the chunks wherever rows are not copied as they are.
LEXICAL = frozenset(("fts_main_documents", name) for name in ("docs", "words", "dict", "postings"))


def tables_of(con: duckdb.DuckDBPyConnection, database: str) -> list[tuple[str, str]]:
    """Return schema and name of every table of an attached database, in the order in which they were made."""
    statement = "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = $1 AND NOT internal"
    return con.execute(f"{statement} ORDER BY table_oid", [database]).fetchall()


def columns_of(con: duckdb.DuckDBPyConnection, table: tuple[str, str, str]) -> list[str]:
    """Return the columns of a table, which is named by catalog, schema and name, in their order."""
    rows = con.execute(
        "SELECT column_name FROM duckdb_columns() WHERE database_name = $1 AND schema_name = $2 AND table_name = $3 "
        "ORDER BY column_index",
        list(table),
    ).fetchall()
    return [row[0] for row in rows]


def _stored_columns(con: duckdb.DuckDBPyConnection, table: tuple[str, str, str]) -> list[str]:
    """Return the columns of a table that its rows hold, in their order: all but those that are computed when read."""
    columns = columns_of(con, table)
    made = con.execute(
        "SELECT sql FROM duckdb_tables() WHERE database_name = $1 AND schema_name = $2 AND table_name = $3", list(table)
    ).fetchall()[0][0]
    if "GENERATED" not in made:
        return columns
    return [column for column, is_generated in zip(columns, are_generated(made), strict=False) if not is_generated]


def copy_tables(con: duckdb.DuckDBPyConnection, database: str, skip: Collection[tuple[str, str]]) -> None:
    """Copy all tables but those to be skipped from an attached database into ``new``.

    The rows of tables that ``new`` has are replaced, in the columns that both have; other tables are created. It is the
    default database.
    """
    known = set(tables_of(con, "new"))
    for schema, table in tables_of(con, database):
        source, target = (database, schema, table), ("new", schema, table)
        if (schema, table) in skip:
            continue
        if (schema, table) not in known:
            copy_table(con, source, target)
            continue
        con.execute(f"DELETE FROM {qualified(target)}")  # noqa: S608 - the stop words that every file begins with
        wanted = columns_of(con, target)
        copy_rows(con, source, target, columns=[c for c in columns_of(con, source) if c in wanted])
    row_tables.restore_views(con)


def not_copied(con: duckdb.DuckDBPyConnection) -> list[str]:
    """List what others added to ``old`` and has no place in ``new``.

    That is views, macros, sequences, indexes and types, the rules of tables, and columns of our tables.

    The default database is ``new`` afterwards.
    """
    con.execute("USE old.main")
    tables = tables_of(con, "old")
    names = object_names(con) - {f"{schema}.{table}" for schema, table in tables}
    names -= wanted_objects() | row_tables.names(con)
    con.execute("USE new.main")
    left_out = [f"the view or macro {name}" for name in sorted(names)]
    ours = set(tables_of(con, "new"))
    for schema, table in tables:
        if schema == "main" and (schema, table) in ours:
            lost = set(columns_of(con, ("old", schema, table))) - set(columns_of(con, ("new", schema, table)))
            # Sign words are recomputed, whatever their number.
            left_out += [f"the column {table}.{column}" for column in sorted(lost) if not _CODE.fullmatch(column)]
    rules = con.execute(read_sql("index/rules_of_others"), {"database": "old"}).fetchall()
    return left_out + [text for text, schema, table in rules if (schema, table) not in ours]


# The order of rows where it matters to a search; any other table is ordered by its primary key, or left as it is.
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
        """Return the result as a line."""
        return f"{self.path}: {self.bytes_before:,} bytes before, {self.bytes_after:,} after"


@public
def compact(
    db_path: str | os.PathLike[str], *, wait_seconds: float | None = None, memory_limit: str | None = None
) -> Compacted:
    """Copy a store into a new file that replaces it.

    Deleted and replaced rows keep their space in a DuckDB file; a copy has none of it. Every row, table, view and macro
    is kept, your own as well, and results are the same before and after. The rows are written in a stated
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
        ``memory_limit`` is not a size.
    NotFoundError, NotAStoreError, SchemaVersionError
        It is not a store of this version.
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
        for schema, table in _referred_first(con, tables_of(con, "old")):
            source, target = ("old", schema, table), ("new", schema, table)
            order = ORDER.get((schema, table)) or _primary_key(con, schema, table)
            _copy_as_it_is(con, source, target, _stored_columns(con, source), order)
            if count_rows(con, source) != count_rows(con, target):
                raise StoreError(path, f"{path}: the copy of {qualified(source)} is not whole. The file is as it was.")
        con.execute("COMMIT")
        detach(con, "new")
        after = temporary.stat().st_size
    return Compacted(path, before, after)


def _referred_first(con: duckdb.DuckDBPyConnection, tables: Sequence[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    """Return the tables of ``old`` in an order in which each comes after those that its foreign keys refer to."""
    references = con.execute(
        "SELECT schema_name, table_name, referenced_table FROM duckdb_constraints() "
        "WHERE database_name = 'old' AND referenced_table <> table_name ORDER BY ALL"
    ).fetchall()
    sorter = TopologicalSorter[tuple[str, str]]({table: [] for table in tables})
    for schema, table, referred in references:
        sorter.add((schema, table), (schema, referred))
    return sorter.static_order()


def _copy_as_it_is(
    con: duckdb.DuckDBPyConnection,
    source: tuple[str, str, str],
    target: tuple[str, str, str],
    columns: Sequence[str],
    order: Sequence[str],
) -> None:
    """Copy the rows of a table; those that refer to other rows of it after these, in a statement of their own.

    DuckDB looks for what a row refers to among the rows of earlier statements.
    """
    references = con.execute(
        "SELECT constraint_column_names, referenced_column_names FROM duckdb_constraints() "
        "WHERE database_name = $1 AND schema_name = $2 AND table_name = $3 AND referenced_table = table_name",
        list(source),
    ).fetchall()
    if not references:
        copy_rows(con, source, target, columns=columns, order=order)
        return
    can_be_copied = ["NOT EXISTS (FROM temp.main.copied AS c WHERE c.number = source.rowid)"]
    for names, keys in references:
        unset = " OR ".join(f"source.{identifier(name)} IS NULL" for name in names)
        same = " AND ".join(f"t.{identifier(k)} = source.{identifier(n)}" for n, k in zip(names, keys, strict=True))
        can_be_copied.append(f"({unset} OR EXISTS (FROM {qualified(target)} AS t WHERE {same}))")
    con.execute("CREATE OR REPLACE TEMP TABLE copied (number BIGINT)")
    next_rows = f"FROM {qualified(source)} AS source WHERE {' AND '.join(can_be_copied)}"
    while True:
        con.execute(f"CREATE OR REPLACE TEMP TABLE ready AS SELECT source.rowid AS number {next_rows}")
        if not count_rows(con, ("temp", "main", "ready")):
            return
        chosen = "SEMI JOIN temp.main.ready AS r ON r.number = source.rowid"
        copy_rows(con, source, target, columns=columns, order=order, where=chosen)
        con.execute("INSERT INTO temp.main.copied FROM temp.main.ready")


def _primary_key(con: duckdb.DuckDBPyConnection, schema: str, table: str) -> list[str]:
    rows = con.execute(
        "SELECT constraint_column_names FROM duckdb_constraints() WHERE database_name = 'old' AND schema_name = $1 "
        "AND table_name = $2 AND constraint_type = 'PRIMARY KEY'",
        [schema, table],
    ).fetchall()
    return list(rows[0][0]) if rows else []


class BackedUp(NamedTuple):
    """What :func:`backup` did: the copy, and its size in bytes."""

    path: Path
    bytes: int

    def __str__(self) -> str:
        """Return the result as a line."""
        return f"{self.path}: {self.bytes:,} bytes, every block as its checksum says"


@public
def backup(
    db_path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    wait_seconds: float | None = None,
) -> BackedUp:
    """Copy a store, with all that was committed to it, into another file of one moment.

    Other processes can read the file meanwhile, and this one may have it open for writing; a change waits until the
    copy is made. The copy needs no log beside it. It is made under a temporary name, every block of it is compared with
    its checksum, and only then it gets its name.

    Parameters
    ----------
    db_path
        The file.
    target
        The file to write.
    overwrite
        Replace a store that is there.
    wait_seconds
        How long to wait for another process that writes to the file. None: as :class:`sqlrag.Settings` says.

    Returns
    -------
    BackedUp
        Path and size.

    Raises
    ------
    InputError
        The target is the file itself, or ``overwrite`` is no truth value.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError
        The file cannot be opened as a store; see :mod:`sqlrag.errors`.
    StoreExistsError
        The target exists and ``overwrite`` is False.
    StoreError
        The file is damaged, or the copy cannot be written.
    """
    wait = seconds_to_wait(wait_seconds)
    overwrite = flag("overwrite", overwrite)
    path, output = existing_file(db_path), check_output(target, overwrite=True)
    if output.exists() and identity(output) == identity(path):
        raise InputError(f"{output} is the file itself. Name another one for its copy.")
    check_output(target, overwrite=overwrite, is_store=False)
    with Database.open(path, wait_seconds=wait) as database, new_file(output, overwrite=overwrite) as temporary:
        database.copy_to(temporary)
        settle(temporary, wait)
        with descriptor(temporary, identity(temporary)) as number:
            try:
                damaged = damaged_blocks(number)
            except UnknownLayoutError:
                damaged = []  # a newer DuckDB's: it was copied byte for byte
            os.fsync(number)
            size = os.fstat(number).st_size
        if damaged:
            raise StoreError(
                path,
                f"{path} is damaged: {counted(len(damaged), 'block')} in use, the first at byte {damaged[0]:,}, not as "
                "the checksum says. No copy was made; an earlier one may be whole. sqlrag check tells more.",
            )
    flush_folder(output.parent)
    return BackedUp(output, size)
