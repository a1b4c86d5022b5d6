"""``sqlrag conformance``."""

from __future__ import annotations

from typing import Annotated

from sqlrag.console.app import command
from sqlrag.console.options import FormatName, option
from sqlrag.console.printing import Format, write, write_csv, write_json


@command("conformance", "Check that this installation gives the pinned results.", "sqlrag conformance")
def conformance(
    postgres: Annotated[
        str | None, option("--postgres", metavar="URL", help="Ask a store in Postgres, in schemas of its own there.")
    ] = None,
    form: FormatName = Format.table,
) -> int:
    """Build a small corpus, ask it questions, and compare chunks, ids and rankings with those of the specification.

    The exit code is 1 where there is a difference.
    """
    from sqlrag.conformance import run

    found = run(postgres)
    if form is Format.json:
        write_json(vars(found))
    elif form is Format.csv:
        write_csv([{"difference": line} for line in found.differences], ["difference"])
    else:
        write(str(found))
    return 1 if found.differences else 0
