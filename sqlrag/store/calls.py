"""The only place that puts text together into SQL: names from fixed lists, and marks for bound values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlrag.errors import InputError
from sqlrag.store.schema import MACROS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

OPTIONS = frozenset(
    {"k", "pool", "k1", "b", "text_weight", "heading_weight", "boosts", "at_least"}
    | {"collection", "tags_any", "tags_all", "metadata"}
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
