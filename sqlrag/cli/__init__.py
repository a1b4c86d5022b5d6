"""The command ``sqlrag``: the functions of the package, with their names, for the shell.

Results go to standard output, messages to standard error. Exit codes: 0, 1 for a failure, 2 for bad usage, 130 for
Ctrl-C. Heavy modules are imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

from sqlrag.cli import clock  # first, since it records when the imports begin

# isort: split
import sys
from pathlib import Path
from typing import Annotated

import typer

# The order of these imports is that of the commands in the help.
from sqlrag.cli import build, rows  # noqa: F401 - they register their commands

# isort: split
from sqlrag.cli import search  # noqa: F401

# isort: split
from sqlrag.cli import ask, serve, shell  # noqa: F401

# isort: split
from sqlrag.cli import maintain, workspace  # noqa: F401

# isort: split
from sqlrag.cli import transfer

# isort: split
import sqlrag.cli.demo  # noqa: F401
from sqlrag.arguments import counted
from sqlrag.cli.app import app, command, watch_for_interrupt
from sqlrag.cli.build import named_files
from sqlrag.cli.options import NO_FILES, Db, Dbs, DbsInstead, Files, FormatName, Text, option, where
from sqlrag.cli.printing import (
    Format,
    OutputError,
    open_missing_streams,
    silence_broken_pipe,
    write,
    write_facts,
    write_json,
    write_message,
    write_rows,
)


@command(
    "get-source-documents",
    "Print the documents that chunks come from.",
    "sqlrag get-source-documents guides/filters.md#2 --db kb.duckdb --format json",
)
def get_source_documents(
    node_id: Annotated[list[str], typer.Argument(metavar="NODE_ID...", help="Chunks.", show_default=False)],
    db: Dbs = NO_FILES,
    form: FormatName = Format.table,
) -> None:
    """Print the whole documents that chunks come from, each once."""
    from sqlrag.query import get_source_documents
    from sqlrag.ranking.results import in_json

    documents = [in_json(document) for document in get_source_documents(node_id, where(db))]
    columns = ["doc_id", "file_path", "file_name", "text", "metadata", *["row"] * any("row" in d for d in documents)]
    texts = []
    for d in documents:
        row = [f"{name}: {'' if value is None else value}\n" for name, value in d.get("row", {}).items()]
        title = f"==> {d['doc_id']} ({counted(len(d['text']), 'character')}) <==\n"
        texts.append("".join([title, *row, *["\n"] * bool(row), d["text"]]))
    write_rows(documents, columns, form, "\n\n".join(texts))


@command(
    "embed", "Store a question's vector for the DuckDB shell.", "sqlrag embed 'How do I filter by tag?' --db kb.duckdb"
)
def embed(query_text: Text, db: Db, form: FormatName = Format.table) -> None:
    """Store the vector of a question in the file, for searches in the DuckDB shell, and print the SQL that uses it."""
    from sqlrag.search.store import Store

    with Store(db, read_only=False) as store:
        store.embed_query(query_text)
        sql = store.hybrid_query(query_text).sql
        row = {"query_text": query_text, "dimensions": store.dimensions, "path": str(store.path), "sql": sql}
    write_message(
        f"The vector of the question ({row['dimensions']} dimensions) is in query_embeddings of {row['path']}."
    )
    if form is Format.json:
        write_json(row)
    else:
        write_rows([row], list(row), form, sql)


@command("info", "Describe a file.", "sqlrag info kb.duckdb", "sqlrag info kb.duckdb --format json")
def info(file: Files = None, db: DbsInstead = None, form: FormatName = Format.table) -> None:
    """Describe a file: model, documents, chunks, collections, failures, settings.

    For a file of another format, such as .ragmd, fewer facts are known.
    """
    from sqlrag.cli.maintain import describe, description
    from sqlrag.formats.convert import file_facts, is_exchange_file
    from sqlrag.search.open import open_store

    path = named_files(file, db)
    if isinstance(path, Path) and is_exchange_file(path):
        transfer.write_file_facts(file_facts(path), form)
        return
    with open_store(path) as store:
        facts = describe(store)
    write_facts(facts, form, description(facts))


@command("demo", "Search this package's handbook.", "sqlrag demo", "sqlrag demo --output /tmp")
def demo(
    output: Annotated[
        Path, option("--output", "-o", metavar="PATH", help="File, or folder for sqlrag-demo.duckdb. [here]")
    ] = Path(),
) -> None:
    """Build a file from this package's handbook and answer three questions from it. Needs the extra "offline"."""
    from sqlrag.cli.demo import run_demo

    run_demo(output, write, write_message)


def main() -> None:
    """Run the command line."""
    clock.imports_done()
    open_missing_streams()
    # These are also accepted after the command, where people add them after a failure.
    arguments = sys.argv[1:]
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    places = [n for n, a in enumerate(own) if a in ("--debug", "--trust", "--no-config") or a.startswith("--config=")]
    places += [n for at, a in enumerate(own) if a == "--config" for n in (at, at + 1) if n < len(own)]
    anywhere = [own[n] for n in places]
    arguments = [*anywhere, *(a for n, a in enumerate(own) if n not in places), *arguments[len(own) :]]
    watch_for_interrupt()
    try:
        app(args=arguments, prog_name="sqlrag")
    except BrokenPipeError:
        silence_broken_pipe()
    except (OSError, OutputError) as error:  # of the help or the version: commands report their own
        error = OutputError(error) if isinstance(error, OSError) else error
        write_message(f"error: {error}")
        sys.exit(1)
