"""Copies the tables of one attached database into another."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlrag.store.calls import copy_rows, copy_table, qualified
from sqlrag.store.schema import object_names, wanted_objects

if TYPE_CHECKING:
    from collections.abc import Collection

    import duckdb

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


def copy_tables(con: duckdb.DuckDBPyConnection, database: str, skip: Collection[tuple[str, str]]) -> None:
    """Copy all tables but those to be skipped from an attached database into ``new``.

    Rows of tables that ``new`` has take the place of what it holds, in the columns that both have; other tables are
    made anew.
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


def not_copied(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Name what others added to ``old`` and has no place in ``new``: views, macros, and columns of our tables.

    The default database is ``new`` afterwards.
    """
    con.execute("USE old")
    tables = tables_of(con, "old")
    names = object_names(con) - {f"{schema}.{table}" for schema, table in tables} - wanted_objects()
    con.execute("USE new")
    left_out = [f"the view or macro {name}" for name in sorted(names)]
    ours = set(tables_of(con, "new"))
    for schema, table in tables:
        if schema == "main" and (schema, table) in ours:
            lost = set(columns_of(con, ("old", schema, table))) - set(columns_of(con, ("new", schema, table)))
            # Sign words are made anew, whatever their number.
            left_out += [f"the column {table}.{column}" for column in sorted(lost) if not _CODE.fullmatch(column)]
    return left_out
