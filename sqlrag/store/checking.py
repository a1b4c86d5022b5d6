"""Runs the checks of ``sql/checks``: each is a SELECT that returns no rows where all is well."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import duckdb

from sqlrag.errors import StoreError
from sqlrag.store.schema import for_dimensions, object_names, read_sql, sql_folder, wanted_objects

if TYPE_CHECKING:
    from sqlrag.store.database import Database


class Problem(NamedTuple):
    """One check that failed: its name, what it demands, how many ``rows`` break it and the first few of them."""

    check: str
    rule: str
    rows: int
    examples: tuple[str, ...]


def check_names() -> list[str]:
    """Return the names of all checks, in order."""
    return sorted(file.stem for file in (sql_folder() / "checks").glob("*.sql"))


def check(database: Database, dimensions: int) -> list[Problem]:
    """Run every check and return those that found something.

    Raises
    ------
    StoreError
        The file is so damaged that a check cannot run.
    """
    con, problems = database.cursor(), []
    missing = sorted(wanted_objects() - object_names(con))
    if missing:
        rule = "Every table, view and macro of a store is there."
        problems.append(Problem("missing_objects", rule, len(missing), tuple(missing[:5])))
    for name in check_names():
        sql = read_sql(f"checks/{name}")
        try:
            rows = con.execute(for_dimensions(sql, dimensions)).fetchall()
        except duckdb.Error as error:
            if missing and isinstance(error, duckdb.CatalogException):
                continue  # it names one of them
            raise StoreError(
                database.path, f"{database.path} is damaged, the check {name} cannot run: {error}. Prepare it again."
            ) from error
        if rows:
            rule = sql.splitlines()[0].removeprefix("-- ")
            problems.append(Problem(name, rule, len(rows), tuple(str(row[0]) for row in rows[:5])))
    return problems
