"""The only place that puts text together into SQL: names from fixed lists, and marks for bound values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlrag.errors import InputError
from sqlrag.store.schema import MACROS, STORAGE_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import duckdb

OPTIONS = frozenset(
    {"k", "pool", "k1", "b", "text_weight", "heading_weight", "boosts", "at_least", "totals"}
    | {"collection", "tags_any", "tags_all", "passing"}
)


def call_macro(
    con: duckdb.DuckDBPyConnection, columns: str, macro: str, arguments: dict[str, Any], options: dict[str, Any]
) -> list[tuple[Any, ...]]:
    """Return ``SELECT columns FROM macro(arguments, options)`` in the macro's order, every value bound by name."""
    if macro not in MACROS or not OPTIONS.issuperset(options):
        raise InputError(f"There is no search macro {macro} with the options {', '.join(options)}.")
    positional = [f"${name}" for name in arguments]
    named = [f"{name} := ${name}" for name in options]
    statement = f"SELECT {columns} FROM {macro}({', '.join([*positional, *named])})"  # noqa: S608 - fixed names only
    return con.execute(statement, {**arguments, **options}).fetchall()


def select_by_key(con: duckdb.DuckDBPyConnection, statement: str, keys: Sequence[str]) -> list[tuple[Any, ...]]:
    """Run ``statement``, in which ``IN (...)`` stands for the keys, with one bound mark for each.

    The index of a primary key serves a list of values, but not a join with a list that is bound as one value.
    """
    if not keys:
        return []
    return con.execute(statement.replace("(...)", f"({', '.join('?' * len(keys))})"), list(keys)).fetchall()


def attach(con: duckdb.DuckDBPyConnection, path: Path, name: str, *, read_only: bool = False) -> None:
    """Attach a database file by a name; one that is made by it gets our storage version."""
    options = "READ_ONLY" if read_only else f"STORAGE_VERSION '{STORAGE_VERSION}'"
    con.execute(f"ATTACH '{str(path).replace(chr(39), chr(39) * 2)}' AS {identifier(name)} ({options})")


def detach(con: duckdb.DuckDBPyConnection, name: str) -> None:
    """Move everything into an attached file and let go of it."""
    con.execute(f"CHECKPOINT {identifier(name)}")
    con.execute("USE memory")
    con.execute(f"DETACH {identifier(name)}")


def copy_rows(
    con: duckdb.DuckDBPyConnection,
    source: Sequence[str],
    target: Sequence[str],
    *,
    columns: Sequence[str] = (),
    order: Iterable[str] = (),
) -> None:
    """Insert every row of one table into another, in a stated order or as they lie.

    A table is named by catalog, schema and name. With ``columns`` these are matched by their names.
    """
    by_name = " BY NAME" if columns else ""
    chosen = ", ".join(map(identifier, columns)) or "*"
    statement = f"INSERT INTO {qualified(target)}{by_name} SELECT {chosen} FROM {qualified(source)}"  # noqa: S608
    ordered = ", ".join(map(identifier, order))
    con.execute(f"{statement} ORDER BY {ordered}" if ordered else statement)


def count_rows(con: duckdb.DuckDBPyConnection, table: Sequence[str]) -> int:
    """Return how many rows a table has."""
    return int(con.execute(f"SELECT count(*) FROM {qualified(table)}").fetchall()[0][0])  # noqa: S608


def copy_table(con: duckdb.DuckDBPyConnection, source: Sequence[str], target: Sequence[str]) -> None:
    """Make a table with the columns and rows of another one, without its constraints."""
    con.execute(f"CREATE SCHEMA IF NOT EXISTS {qualified(target[:2])}")
    con.execute(f"CREATE TABLE {qualified(target)} AS FROM {qualified(source)}")


def qualified(names: Sequence[str]) -> str:
    """Return a name of several parts, quoted."""
    return ".".join(map(identifier, names))


def identifier(name: str) -> str:
    """Return one name, quoted."""
    return '"' + name.replace('"', '""') + '"'


def quoted(text: str) -> str:
    """Return a text as a SQL literal, for statements that are shown or cannot be given values."""
    return "'" + text.replace("'", "''") + "'"
