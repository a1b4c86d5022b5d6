"""``sqlrag demo``, ``completion`` and ``conformance``: they need nothing but the installed package."""

from __future__ import annotations

import shlex
import textwrap
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sqlrag.cli.app import command
from sqlrag.cli.options import FormatName, option
from sqlrag.cli.printing import Format, write, write_csv, write_json
from sqlrag.errors import MissingExtraError, NotAStoreError, NotFoundError, StoreExistsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlrag.ranking.results import Results

FILE_NAME = "sqlrag-demo.duckdb"

QUESTIONS = (
    "Do I need a server or a vector database?",
    "Can I use it on a machine without internet access?",
    "How are ties between equal scores broken?",
)

CHUNK_SIZE = 200  # tokens

_TEXT_COLUMNS = 92

_TEXT_LINES = 3


def handbook_folder() -> Path:
    """Return the folder of the handbook: in the installed package, else next to the package in a checkout.

    Raises
    ------
    NotFoundError
        It is in neither folder.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "handbook", package.parent / "data" / "handbook"):
        if (folder / "index.md").is_file():
            return folder
    raise NotFoundError(f"The handbook is missing next to {package}. Reinstall sqlrag-duckdb.")


def run_demo(output: Path, write: Callable[[str], None], report: Callable[[str], None]) -> Path:
    """Build the demo's file, ask its questions and print what to try next.

    Parameters
    ----------
    output
        The file to write, or a folder for ``sqlrag-demo.duckdb``. Only the file of an earlier demo is replaced.
    write, report
        Print the lines of the result, and progress messages.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    MissingExtraError
        The model of the extra ``offline`` is not installed.
    StoreExistsError
        The output exists and is not from an earlier demo.
    """
    from sqlrag.embedders.weights import MINILM, bundle_is_installed
    from sqlrag.ingest.build import prepare_file
    from sqlrag.search.store import Store

    if not bundle_is_installed():
        raise MissingExtraError("The model of the demo", "offline")
    handbook = handbook_folder()
    path = output / FILE_NAME if output.is_dir() else output
    overwrite = path.exists()
    if overwrite and not _is_earlier_demo(path):
        raise StoreExistsError(
            path,
            f"{path} exists and was not written by the demo, so it is not replaced. Name another file with --output.",
        )

    report(f"Preparing the handbook of sqlrag ({handbook}) …")
    prepared = prepare_file(handbook, path, embed_model_name=MINILM, chunk_size=CHUNK_SIZE, overwrite=overwrite)
    write(f"{path}: {str(prepared.report).splitlines()[0]}")
    with Store(path, read_only=False) as store:
        for question in QUESTIONS:
            store.embed_query(question)
    with Store(path) as store:
        for number, question in enumerate(QUESTIONS, 1):
            results = store.hybrid_query(question, top_k=2)
            write(_answer(number, question, results))
        sql = results.sql
    write(_next_steps(path, results[0]["node_id"], sql))
    return path


def _is_earlier_demo(path: Path) -> bool:
    """Return whether a file contains the handbook and nothing else."""
    from sqlrag.search.store import Store

    try:
        with Store(path) as store:
            folders = [row[0] for row in store.cursor().execute("SELECT input_dir FROM collections").fetchall()]
    except NotAStoreError:
        return False
    return [Path(folder).parts[-2:] for folder in folders] in ([("sqlrag", "handbook")], [("data", "handbook")])


def _answer(number: int, question: str, results: Results) -> str:
    """Format the best results of one question."""
    lines = ["", f"{number}. {question}"]
    for result in results:
        ranks = ", ".join(f"{leg} {_rank(result, leg)}" for leg in ("vector", "lexical"))
        lines += ["", f"   {result['node_id']}  ({' › '.join(result['heading_path'])}; {ranks})"]
        # The heading path is printed above, so heading lines are left out.
        body = " ".join(line for line in result["text"].splitlines() if not line.lstrip().startswith("#")).strip()
        lines += [
            f"     {line}"
            for line in textwrap.wrap(
                body, _TEXT_COLUMNS, max_lines=_TEXT_LINES, placeholder=" …", break_on_hyphens=False
            )
        ]
    return "\n".join(lines)


def _rank(result: Mapping[str, Any], leg: str) -> str:
    rank = result[f"{leg}_rank"]
    return "-" if rank is None else f"#{rank}"


def _next_steps(path: Path, node_id: str, sql: str) -> str:
    quoted = shlex.quote(str(path))
    return f"""
What to try next

In Python:
    from sqlrag import hybrid_query, print_results
    print_results(hybrid_query("How do filters work?", {str(path)!r}), "How do filters work?")

In the shell:
    sqlrag search "How do filters work?" --db {quoted}
    sqlrag lexical-query "StoreLockedError" --db {quoted} --format json
    sqlrag info {quoted}
    sqlrag build YOUR_FOLDER -o kb.duckdb --model sentence-transformers/all-MiniLM-L6-v2

In SQL, after `duckdb {quoted}` (no extension and no model needed):
    FROM sources;
    FROM corpus_stats;
    FROM lexical_query('filter by tag', k := 3);
    FROM more_like('{node_id}') LIMIT 3;
    {sql}"""


class Shell(StrEnum):
    """The shells that commands and options can be completed in."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


@command(
    "completion",
    "Print the script that completes commands in a shell.",
    "sqlrag completion bash",
)
def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.", show_default=False)]) -> None:
    """Print the script by which a shell completes commands, options and their values with the Tab key.

    Add it to ~/.bashrc or ~/.zshrc, or write it to ~/.config/fish/completions/sqlrag.fish.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = get_completion_script(prog_name="sqlrag", complete_var="_SQLRAG_COMPLETE", shell=shell.value)
    start = "autoload -Uz compinit && compinit\n" if shell is Shell.zsh else ""
    write(start + script)


@command("conformance", "Check that this installation gives the pinned results.", "sqlrag conformance")
def conformance(
    postgres: Annotated[
        str | None, option("--postgres", metavar="URL", help="Test a store in Postgres, in schemas of its own there.")
    ] = None,
    form: FormatName = Format.table,
) -> int:
    """Build a small corpus, run its questions, and compare chunks, ids and rankings with the specification.

    The exit code is 1 if there is a difference.
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
