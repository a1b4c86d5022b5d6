"""``sqlrag check``, ``compact``, ``repair``, ``upgrade`` and ``reembed``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from sqlrag.console.app import command, noted
from sqlrag.console.changing import one_file
from sqlrag.console.options import DbInstead, File, FormatName, Wait, option
from sqlrag.console.printing import Format, flatten, size, tell, write, write_csv, write_json, write_rows
from sqlrag.network import is_url
from sqlrag.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlrag.store.checking import Problem

Memory = Annotated[
    str | None, option("--memory-limit", metavar="SIZE", help="Memory for DuckDB, such as 2GB. [4/5 of the machine's]")
]


@command("check", "Look for faults in a file.", "sqlrag check kb.duckdb && mv kb.duckdb /srv/search/")
def check(file: File = None, db: DbInstead = None, form: FormatName = Format.table, wait: Wait = None) -> int:
    """Look for faults in a file; the exit code is 1 where there is one."""
    path = one_file(file, db)
    if is_url(path):
        from sqlrag.retrieval.postgres_store import PostgresStore

        with PostgresStore(str(path), wait_seconds=wait) as store:
            path, problems = store.path, store.check()  # type: ignore[assignment]
    else:
        from sqlrag.store.inspecting import check

        problems = check(path, wait_seconds=wait)
    rows = [problem._asdict() for problem in problems]
    lines = [f"{path}: {counted(len(problems), 'problem') if problems else 'no problems'} found", *_lines(problems)]
    write_rows(rows, ["check", "rule", "rows", "examples"], form, "\n".join(lines))
    return 1 if problems else 0


@command("repair", "Rebuild what a check found wrong.", "sqlrag repair kb.duckdb")
def repair(file: File = None, db: DbInstead = None, form: FormatName = Format.table, wait: Wait = None) -> int:
    """Rebuild the word index, sign codes, counts, tables, views and macros where a check finds them wrong.

    Chunks, vectors and documents are not touched. The exit code is 1 where a problem is left.
    """
    from sqlrag.store.repairing import repair

    repaired = repair(one_file(file, db), wait_seconds=wait)
    left = [problem._asdict() for problem in repaired.left]
    facts = {"path": str(repaired.path), "done": list(repaired.done), "left": left}
    lines = [f"{repaired.path}: {len(repaired.done) or 'nothing'} repaired", *repaired.done]
    if left:
        lines += ["Not repaired:", *_lines(repaired.left)]
    _write(facts, form, "\n".join(lines))
    return 1 if left else 0


@command("compact", "Give the space of old rows back.", "sqlrag compact kb.duckdb")
def compact(
    file: File = None,
    db: DbInstead = None,
    form: FormatName = Format.table,
    wait: Wait = None,
    memory_limit: Memory = None,
) -> None:
    """Copy a file into a fresh one that takes its place; results are the same before and after."""
    from sqlrag.store.compacting import compact

    done = compact(one_file(file, db), wait_seconds=wait, memory_limit=memory_limit)
    facts = {**done._asdict(), "path": str(done.path)}
    _write(facts, form, f"{done.path}: {size(done.bytes_before)} before, {size(done.bytes_after)} after")


@command("upgrade", "Bring an older file to this version.", "sqlrag upgrade old.duckdb")
def upgrade(
    file: File = None,
    db: DbInstead = None,
    form: FormatName = Format.table,
    wait: Wait = None,
    memory_limit: Memory = None,
) -> None:
    """Turn a file of an older sqlrag, or one made by sqlrooms-rag 0.1.2, into one of this version.

    Ids and vectors are kept. What cannot be kept is reported, on standard error.
    """
    from sqlrag.store.upgrading import upgrade

    done = upgrade(one_file(file, db), wait_seconds=wait, memory_limit=memory_limit)
    for item in done.left_out:
        tell(f"left out: {item}")
    facts = {**done._asdict(), "path": str(done.path), "steps": list(done.steps), "left_out": list(done.left_out)}
    _write(facts, form, str(done).splitlines()[0])


@command(
    "reembed",
    "Give a file another embedding model.",
    "sqlrag reembed kb.duckdb --model sentence-transformers/all-MiniLM-L6-v2",
)
def reembed(
    file: File = None,
    db: DbInstead = None,
    model: Annotated[
        str | None,
        option("--model", help="Model: a name on the Hugging Face hub, or a folder. [BAAI/bge-small-en-v1.5]"),
    ] = None,
    provider: Annotated[str, option("--provider", help="Embedding provider.", show_default=True)] = "auto",
    quiet: Annotated[bool, option("--quiet", "-q", help="No progress bar and no report.")] = False,
    form: FormatName = Format.table,
    wait: Wait = None,
    memory_limit: Memory = None,
) -> None:
    """Cut the documents of a file anew from their stored texts and embed them with another model.

    The folder that the file was made from is not needed. The new file takes the place of the old one at the end.
    """
    from sqlrag.ingest.reembedding import reembed

    report = reembed(
        one_file(file, db),
        model,
        provider=provider,
        wait_seconds=wait,
        memory_limit=memory_limit,
        verbose=not quiet,
    )
    first, second, *notes = str(report).splitlines()
    for line in notes:
        if line.removeprefix("note: ") not in noted:
            tell(line)
    facts = {**vars(report), "path": str(report.path)}
    if not quiet or form is not Format.table:
        _write(facts, form, f"{first}\n{second}")


def _write(facts: dict[str, Any], form: Format, text: str) -> None:
    if form is Format.json:
        write_json(facts)
    elif form is Format.csv:
        write_csv(flatten(facts), ["key", "value"])
    else:
        write(text)


def _lines(problems: Sequence[Problem]) -> list[str]:
    lines = []
    for problem in problems:
        lines.append(f"{problem.check}: {counted(problem.rows, 'row')}; {problem.rule}")
        lines += [f"    {example}" for example in problem.examples]
    return lines
