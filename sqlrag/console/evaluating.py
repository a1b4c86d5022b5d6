"""``sqlrag evaluate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from sqlrag.console.app import command
from sqlrag.console.options import Db, FormatName, option
from sqlrag.console.printing import Format, tell, write_rows

Questions = Annotated[
    Path,
    typer.Argument(
        metavar="QUESTIONS", help="JSONL of query and relevant, or a folder in BEIR layout.", show_default=False
    ),
]
Trec = Annotated[Path | None, option("--trec", metavar="FOLDER", help="Write qrels and runs for trec_eval here.")]


def _plans(given: list[str]) -> dict[str, Any] | None:
    """Return NAME and NAME={…} as the plans of the function."""
    from sqlrag.evaluating.comparing import PRESETS

    plans: dict[str, Any] = {}
    for one in given:
        name, equals, options = one.partition("=")
        if not equals and name not in PRESETS:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(PRESETS)}; else say NAME={{options as JSON}}.")
        try:
            plans[name] = json.loads(options) if equals else PRESETS[name]
        except ValueError as error:
            raise typer.BadParameter(f"The options of the plan {name!r} are no JSON: {error}") from error
    return plans or None


@command(
    "evaluate",
    "Measure how well searches rank.",
    "sqlrag evaluate questions.jsonl --db kb.duckdb",
    'sqlrag evaluate scifact --db scifact.duckdb --plan rrf --plan \'tuned={"fusion": "convex", "alpha": 0.6}\' '
    "--measure nDCG@10",
)
def evaluate(
    questions: Questions,
    db: Db,
    plan: Annotated[
        list[str] | None,
        option(
            "--plan",
            metavar="NAME",
            help="lexical, vector, rrf, weighted or convex; or NAME={options as JSON}. Repeatable. [these five]",
        ),
    ] = None,
    measure: Annotated[
        list[str] | None,
        option("--measure", metavar="NAME", help="Of ir-measures. Repeatable. [nDCG@10, R@100, RR@10]"),
    ] = None,
    depth: Annotated[int, option("--depth", help="How many chunks each search returns.", show_default=True)] = 100,
    per_query: Annotated[bool, option("--per-query", help="One row for each plan and question.")] = False,
    trec: Trec = None,
    form: FormatName = Format.table,
) -> None:
    """Measure how well searches rank what people judged relevant, as a table of plans and measures."""
    from sqlrag.evaluating.evaluating import DEFAULT_MEASURES
    from sqlrag.evaluating.evaluating import evaluate as run

    found = run(questions, db, _plans(plan or []), measures=measure or DEFAULT_MEASURES, depth=depth)
    for notice in found.notices:
        tell(f"note: {notice}")
    if trec is not None:
        for path in found.write_trec(trec):
            tell(f"wrote {path}")
    rows = found.per_query() if per_query else found.rows()
    write_rows(rows, list(rows[0]), form, found.table(per_query=per_query))
