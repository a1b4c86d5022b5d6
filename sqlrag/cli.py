"""The command ``sqlrag``: the functions of the package, with their names, for the shell.

Results go to standard output, messages to standard error. Exit codes: 0, 1 for a failure, 2 for bad usage, 130 for
Ctrl-C. Heavy modules are imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

from sqlrag.console import clock  # first, because it looks at the time

# isort: split
import sys
from pathlib import Path
from typing import Annotated

import typer

# The order of these imports is that of the commands in the help.
from sqlrag.console import preparing  # noqa: F401 - they register their commands

# isort: split
from sqlrag.console import changing, queries  # noqa: F401

# isort: split
from sqlrag.console import evaluating  # noqa: F401

# isort: split
from sqlrag.console import asking, serving, serving_tools, shelling  # noqa: F401

# isort: split
from sqlrag.console import maintaining, modelling  # noqa: F401

# isort: split
from sqlrag.console import exploring  # noqa: F401

# isort: split
from sqlrag.console import converting, moving  # noqa: F401

# isort: split
from sqlrag.console import conforming  # noqa: F401
from sqlrag.console.app import app, command, watch_for_interrupt
from sqlrag.console.changing import one_file
from sqlrag.console.options import Db, DbInstead, File, FormatName, Text, option
from sqlrag.console.printing import Format, flatten, silence_broken_pipe, tell, write, write_json, write_rows
from sqlrag.network import is_url
from sqlrag.wording import counted


@command(
    "get-source-documents",
    "Print the documents that chunks come from.",
    "sqlrag get-source-documents guides/filters.md#2 --db kb.duckdb --format json",
)
def get_source_documents(
    node_id: Annotated[list[str], typer.Argument(metavar="NODE_ID...", help="Chunks.", show_default=False)],
    db: Db,
    form: FormatName = Format.table,
) -> None:
    """Print the whole documents that chunks come from, each once."""
    from sqlrag.retrieval.querying import get_source_documents

    documents = get_source_documents(node_id, db)
    columns = ["doc_id", "file_path", "file_name", "text", "metadata"]
    texts = [f"==> {d['doc_id']} ({counted(len(d['text']), 'character')}) <==\n{d['text']}" for d in documents]
    write_rows(documents, columns, form, "\n\n".join(texts))


@command(
    "embed", "Store a question's vector for the DuckDB shell.", "sqlrag embed 'How do I filter by tag?' --db kb.duckdb"
)
def embed(query_text: Text, db: Db, form: FormatName = Format.table) -> None:
    """Store the vector of a question in the file, for searches in the DuckDB shell, and print the SQL that uses it."""
    from sqlrag.retrieval.store import Store

    with Store(db, read_only=False) as store:
        store.embed_query(query_text)
        sql = store.hybrid_query(query_text).sql
        row = {"query_text": query_text, "dimensions": store.dimensions, "path": str(store.path), "sql": sql}
    tell(f"The vector of the question ({row['dimensions']} dimensions) is in query_embeddings of {row['path']}.")
    if form is Format.json:
        write_json(row)
    else:
        write_rows([row], list(row), form, sql)


@command("info", "Tell what is in a file.", "sqlrag info kb.duckdb", "sqlrag info kb.duckdb --format json")
def info(file: File = None, db: DbInstead = None, form: FormatName = Format.table) -> None:
    """Tell what is in a file: model, documents, chunks, collections, failures, settings.

    Of a file of another format, such as .ragmd, fewer things.
    """
    from sqlrag.console.describing import describe, description
    from sqlrag.formats.converting import file_facts, is_exchange_file
    from sqlrag.retrieval.store import Store

    path = one_file(file, db)
    if is_url(path):
        from sqlrag.retrieval.postgres_store import PostgresStore

        with PostgresStore(str(path)) as server:
            facts = {"path": server.path, **server.get_embedding_metadata()}
        lines = [f"{row['key']:<40} {row['value']}" for row in flatten(facts)]
        if form is Format.json:
            write_json(facts)
        else:
            write_rows(flatten(facts), ["key", "value"], form, "\n".join(lines))
        return
    if is_exchange_file(path):
        converting.write_facts(file_facts(path), form)
        return
    with Store(path) as store:
        facts = describe(store)
    if form is Format.json:
        write_json(facts)
    else:
        write_rows(flatten(facts), ["key", "value"], form, description(facts))


@command("demo", "Search this package's handbook.", "sqlrag demo", "sqlrag demo --output /tmp")
def demo(
    output: Annotated[
        Path, option("--output", "-o", metavar="PATH", help="File, or folder to put sqlrag-demo.duckdb into. [here]")
    ] = Path(),
) -> None:
    """Prepare this package's handbook into a file and answer three questions from it. Needs the extra "offline"."""
    from sqlrag.demo import run_demo

    run_demo(output, write, tell)


def main() -> None:
    """Run the command line."""
    clock.imports_done()
    # --debug may stand behind the command as well, where people add it after a failure.
    arguments = sys.argv[1:]
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--debug" in own:
        arguments = ["--debug", *(a for a in own if a != "--debug"), *arguments[len(own) :]]
    watch_for_interrupt()
    try:
        app(args=arguments, prog_name="sqlrag")
    except BrokenPipeError:
        silence_broken_pipe()
