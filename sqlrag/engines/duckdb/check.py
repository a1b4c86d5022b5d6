"""Checks a file by the statements of ``sql/checks`` and as a whole; repairs what can be rebuilt from its chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import duckdb

from sqlrag.arguments import counted, flag
from sqlrag.engines.duckdb import documents, lexical, row_tables
from sqlrag.engines.duckdb.blocks import UnknownLayoutError
from sqlrag.engines.duckdb.database import Database, existing_file, is_open, settle
from sqlrag.engines.duckdb.definitions import changes, definitions, known
from sqlrag.engines.duckdb.failures import is_damage, public, was_closed
from sqlrag.engines.duckdb.files import log_of, storage_version
from sqlrag.engines.duckdb.metadata import (
    default_metadata,
    read_metadata,
    refresh_counts,
    unusable_metadata,
    write_metadata,
)
from sqlrag.engines.duckdb.schema import create_code, for_dimensions, object_names, read_sql, sql_folder, wanted_objects
from sqlrag.engines.duckdb.statements import identifier, qualified, select_by_key
from sqlrag.errors import NotAStoreError, StoreError
from sqlrag.settings import seconds_to_wait

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

    from sqlrag.engines.duckdb.definitions import Change


class Problem(NamedTuple):
    """One check that failed: its name, its rule, how many ``rows`` violate it and the first few of them."""

    check: str
    rule: str
    rows: int
    examples: tuple[str, ...]


def check_names() -> list[str]:
    """Return the names of all checks, in order."""
    return sorted(file.stem for file in (sql_folder() / "checks").glob("*.sql"))


def run_checks(
    database: Database, dimensions: int, *, quick: bool = False, changed: Sequence[Change] | None = None
) -> list[Problem]:
    """Run every check and return those that found something; ``quick`` does not read the whole file.

    ``changed`` is what :func:`changes` finds, which cannot be asked in a transaction.

    Raises
    ------
    StoreError
        The file is so damaged that a check cannot run, and the reading of its blocks does not say so.
    """
    con, problems = database.cursor(), [] if quick else _block_problems(database) or _table_problems(database)
    damaged, every = bool(problems), definitions(con) if changed is None else None
    changed = changes(con, every) if changed is None else changed
    if changed:
        rule = "Every table, view and macro of a store is as this release makes it, and none hides one of DuckDB's."
        problems.append(Problem("changed_objects", rule, len(changed), tuple(map(str, changed[:5]))))
    missing = sorted(wanted_objects() - (object_names(con) if every is None else every.keys()))
    if missing:
        rule = "Every table, view and macro of a store is there."
        problems.append(Problem("missing_objects", rule, len(missing), tuple(missing[:5])))
    unusable = unusable_metadata(read_metadata(con), dimensions)
    if unusable:
        rule = "Every key of embedding_metadata has a value that can be used."
        problems.append(Problem("wrong_metadata", rule, len(unusable), tuple(list(unusable.values())[:5])))
    for name in check_names():
        sql = read_sql(f"checks/{name}")
        try:
            rows = con.execute(for_dimensions(sql, dimensions)).fetchall()
        except duckdb.Error as error:
            absent = missing and isinstance(error, duckdb.CatalogException)
            if damaged or absent or (changed and not is_damage(error)):
                continue  # it needs what is damaged, or one of the objects
            if database.closed:
                raise was_closed(database.path) from error
            raise StoreError(
                database.path, f"{database.path} is damaged, the check {name} cannot run: {error}. Prepare it again."
            ) from error
        if rows:
            rule = sql.splitlines()[0].removeprefix("-- ")
            problems.append(Problem(name, rule, len(rows), tuple(str(row[0]) for row in rows[:5])))
    if not damaged and (lost := row_tables.problems(con)):
        rule = "Every row of a source has its document and its values: update_rows writes what is missing."
        problems.append(Problem(_ROWS_CHECK, rule, len(lost), tuple(lost[:5])))
    return problems


_ROWS_CHECK = "wrong_rows"


def _block_problems(database: Database) -> list[Problem]:
    """Compare every block of the file that is in use with its checksum: tables, indexes and what no check names."""
    try:
        found = database.damaged_blocks()
    except UnknownLayoutError as error:
        rule = "The list of free blocks can be read, so that every other block can be compared with its checksum."
        return [Problem("unknown_layout", rule, 1, (str(error),))]
    if not found:
        return []
    rule = "Every block in use has the checksum that was stored with it."
    return [Problem("damaged_blocks", rule, len(found), tuple(f"the block at byte {at:,}" for at in found[:5]))]


def _table_problems(database: Database) -> list[Problem]:
    """Read every column of every table, those of others included: blocks may be whole and not fit together."""
    con, unreadable = database.cursor(), []
    statement = (
        "SELECT schema_name, table_name FROM system.main.duckdb_tables() WHERE NOT internal "
        "AND database_name = current_database() ORDER BY schema_name, table_name"
    )
    for schema, table in con.execute(statement).fetchall():
        try:
            con.execute(f"SELECT sum(hash(t)) FROM {qualified((schema, table))} AS t").fetchall()  # noqa: S608 - quoted
        except duckdb.Error as error:
            unreadable.append(f"{schema}.{table}: {str(error).splitlines()[0]}")
    if unreadable:
        rule = "Every column of every table can be read."
        return [Problem("unreadable_tables", rule, len(unreadable), tuple(unreadable[:5]))]
    lost, examples = 0, []
    for schema, table, column in con.execute(read_sql("index/unique_keys")).fetchall():
        name, key = qualified((schema, table)), identifier(column)
        reader = con.cursor().execute(f"SELECT {key} FROM {name} WHERE {key} IS NOT NULL")  # noqa: S608 - quoted
        while keys := [row[0] for row in reader.fetchmany(_KEYS_AT_ONCE)]:
            statement = f"SELECT {key} FROM {name} WHERE {key} IN (...)"  # noqa: S608 - quoted
            found = {row[0] for row in select_by_key(con, statement, keys)}
            lost += len(set(keys) - found)
            examples += [f"{schema}.{table}: {key}" for key in keys if key not in found][:5]
    rule = "Every key is found by the index of its table."
    return [Problem("wrong_indexes", rule, lost, tuple(examples[:5]))] if lost else []


# As many as DuckDB looks up in an index, instead of reading the table.
_KEYS_AT_ONCE = 1000


# STORAGE_VERSION as the number in the header of a file.
_STORAGE = 65


@public
def check(db_path: str | os.PathLike[str], *, quick: bool = False, wait_seconds: float | None = None) -> list[Problem]:
    """Look for faults in a file.

    Every block of the file that is in use is compared with its checksum, those of indexes included, and every check of
    ``sql/checks`` is run; besides, no table, view or macro may be missing or another than that of this release, no log
    of a killed process may be left beside the file, and its storage format has to be one that DuckDB 1.3.2 opens.
    Views, macros and tables of others under names of their own are welcome.

    Parameters
    ----------
    db_path
        The file.
    quick
        Leave out the comparison of the blocks, which reads the whole file.
    wait_seconds
        How long to wait for a process that writes to it. None: as :class:`sqlrag.Settings` says.

    Returns
    -------
    list of Problem
        Empty where the file is sound. :func:`sqlrag.repair` repairs what can be rebuilt.

    Raises
    ------
    InputError
        ``quick`` is no truth value.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError
        It cannot be opened as a store; see :mod:`sqlrag.errors`.
    StoreError
        It is so damaged that a check cannot run.
    """
    quick = flag("quick", quick)
    path = existing_file(db_path)
    problems = [] if is_open(path) else _file_problems(path)
    wait = seconds_to_wait(wait_seconds)
    with Database.open(path, wait_seconds=wait, trust=True) as database:
        return [*problems, *run_checks(database, dimensions_of(database), quick=quick)]


def dimensions_of(database: Database) -> int:
    """Return the length of the vectors, by the type of their column."""
    rows = database.cursor().execute(
        "SELECT system.main.regexp_extract(data_type, '^FLOAT.(\\d+).$', 1) FROM system.main.duckdb_columns() "
        "WHERE table_name = 'documents' AND column_name = 'embedding' AND schema_name = 'main' "
        "AND database_name = system.main.current_database()"
    )
    found: list[tuple[str]] = rows.fetchall()
    if not found or not found[0][0]:
        raise NotAStoreError(database.path, f"{database.path}: the table documents has no column of vectors.")
    return int(found[0][0])


def _file_problems(path: Path) -> list[Problem]:
    problems = []
    log = log_of(path)
    if log.exists():
        rule = "All is in the file itself, nothing in a log beside it."
        problems.append(Problem("log_left_over", rule, 1, (log.name,)))
    version = storage_version(path)
    if version > _STORAGE:
        rule = f"The storage format is {_STORAGE}, which DuckDB 1.3.2 opens, or an older one."
        problems.append(Problem("storage_version", rule, 1, (f"format {version}, DuckDB {duckdb.__version__} here",)))
    return problems


_INDEX = "fts_main_documents."

_INDEX_TABLES = {_INDEX + name for name in ("docs", "words", "dict", "postings", "stopwords", "stats")}

_INDEX_CHECKS = {"unindexed_chunks", "wrong_frequencies", "wrong_lengths", "wrong_postings"}

# Where the index or the end of a document does not fit to what is shown, either may be wrong.
_SHOWN_CHECKS = {"wrong_lengths", "wrong_postings", "missing_chunks"}


class Repaired(NamedTuple):
    """What :func:`repair` did, in sentences, and the problems that are left."""

    path: Path
    done: tuple[str, ...]
    left: tuple[Problem, ...]

    def __str__(self) -> str:
        """Return the result as lines."""
        lines = [f"{self.path}: {len(self.done) or 'nothing'} repaired", *self.done]
        return "\n".join([*lines, *(f"not repaired: {p.check}, {counted(p.rows, 'row')}: {p.rule}" for p in self.left)])


@public
def repair(db_path: str | os.PathLike[str], *, wait_seconds: float | None = None) -> Repaired:
    """Rebuild what a file's chunks and vectors determine, where a check finds it wrong.

    That is: tables, views and macros that are missing or not those of this release, the lexical index, the sign codes,
    what a reader sees of the chunks, the links, points of the map whose chunks are gone, the counts and missing or
    unusable keys of ``embedding_metadata`` (with the defaults of a file of precomputed vectors). Texts, vectors and
    sources are never changed. It is one transaction: all of it is done or nothing.

    Parameters
    ----------
    db_path
        The file.
    wait_seconds
        How long to wait for other processes that have it open. None: as :class:`sqlrag.Settings` says.

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
    if not is_open(path) and (settled := settle(path, wait)):
        done.append(settled)
    with Database.open(path, read_only=False, wait_seconds=wait, trust=True) as database:
        dimensions, changed = dimensions_of(database), changes(database.cursor())
        with database.transaction() as con:
            done += _remove_changed(con, path, changed)
            names = object_names(con)
            had_links = "main.document_links" in names
            if changed or wanted_objects() - names:
                done += _restore_objects(con, dimensions)
            found = {problem.check for problem in run_checks(database, dimensions, quick=True, changed=())}
            known = read_metadata(con)
            unusable = unusable_metadata(known, dimensions)
            defaults = default_metadata(dimensions)
            missing = {key: value for key, value in defaults.items() if key not in known or key in unusable}
            if missing:
                write_metadata(con, missing)
                done.append(
                    f"Missing or unusable keys of embedding_metadata were set to their defaults: {', '.join(missing)}."
                )
            if found & _SHOWN_CHECKS and _restore_shown(con):
                done.append("What a reader sees of the chunks was computed again from the texts.")
            if found & _INDEX_CHECKS or "stemmer" in missing or con.execute(read_sql("index/is_unindexed")).fetchall():
                lexical.rebuild(con, read_metadata(con)["stemmer"])
                done.append("The lexical index was rebuilt from the chunks.")
            if "wrong_codes" in found:
                con.execute(for_dimensions(read_sql("index/recode_chunks"), dimensions))
                done.append("The sign codes were recomputed from the vectors.")
            if "wrong_links" in found or not had_links:
                documents.rebuild_links(con)
                done.append("The links were extracted again from the texts.")
            if _ROWS_CHECK in found:
                row_tables.repair(con)
                done.append("Values of rows without a document were removed.")
            if "map_without_chunks" in found:
                con.execute(read_sql("index/unmap_lost"))
                done.append("Points whose chunks are gone were removed from the map.")
            if "stale_counts" in found or unusable.keys() - missing:
                refresh_counts(con)
                done.append("The counts in embedding_metadata were recomputed.")
        database.checkpoint()
        left = run_checks(database, dimensions)
    return Repaired(path, tuple(done), tuple(left))


def _restore_shown(con: duckdb.DuckDBPyConnection) -> bool:
    """Compute what is shown from the texts; return whether it was something else."""
    before = con.execute(read_sql("index/sum_of_shown")).fetchall()
    documents.refresh_shown(con)
    return con.execute(read_sql("index/sum_of_shown")).fetchall() != before


# What repair does not make from anything else.
_SOURCES = frozenset({"main.documents", "main.source_documents", "main.embedding_metadata", "main.collections"})

_KINDS = {"macro": "MACRO", "table_macro": "MACRO TABLE", "view": "VIEW", "type": "TYPE"}


def _remove_changed(con: duckdb.DuckDBPyConnection, path: Path, changed: Sequence[Change]) -> list[str]:
    """Remove what stands in the place of ours, or hides what is DuckDB's; a table is renamed.

    Raises
    ------
    StoreError
        It is in the place of a table that cannot be made again.
    """
    done = []
    for change in changed:
        schema, _, name = change.name.partition(".")
        ours = known().get(change.name)
        if change.name in _SOURCES and change.kinds != ("table",):
            raise StoreError(
                path, f"{path}: {change}, and the rows of the table are lost. Get another copy, or make it anew."
            )
        for kind in change.kinds:
            if kind == (ours.kind if ours else "view") or (kind == "table" and not ours):
                continue  # to be replaced, a table with other columns, or no code
            if kind == "table" and ours:
                con.execute(f"ALTER TABLE {qualified([schema, name])} RENAME TO {identifier(f'{name}_before_repair')}")
                done.append(f"The table {change.name}, in the place of a {ours.kind}, is {name}_before_repair now.")
            else:
                con.execute(f"DROP {_KINDS[kind]} {qualified([schema, name])}")
                done.append(f"The {kind.replace('_', ' ')} {change.name} was removed: {change}.")
        if ours and ours.kind in change.kinds and ours.kind != "table":
            done.append(f"The {ours.kind.replace('_', ' ')} {change.name} was restored.")
    return done


def _restore_objects(con: duckdb.DuckDBPyConnection, dimensions: int) -> list[str]:
    """Create missing objects; where a table of the lexical index is missing, recreate all of them."""
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
    missing = sorted(wanted_objects() - names)
    return [f"Missing objects were created: {', '.join(missing)}."] if missing else []
