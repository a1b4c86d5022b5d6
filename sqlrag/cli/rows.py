"""``sqlrag index-rows`` and ``update-rows``."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from sqlrag.cli.app import command
from sqlrag.cli.build import one_file, write_reports
from sqlrag.cli.options import DbInstead, File, FormatName, Wait, option
from sqlrag.cli.printing import Format

Force = Annotated[bool, option("--force", help="Also where more than half of the stored rows are gone.")]

Quiet = Annotated[bool, option("--quiet", "-q", help="No progress bar and no report, only failures.")]


@command(
    "index-rows",
    "Make documents of the rows of a table.",
    "sqlrag index-rows tickets.parquet -o kb.duckdb --key id --text body --title subject",
    "sqlrag index-rows 'reviews/*.csv' -o kb.duckdb --key id --text '{product}: {review}' --collection reviews",
    "sqlrag index-rows --query 'SELECT * FROM tickets' --database shop.duckdb --collection tickets -o kb.duckdb "
    "--key id --text body",
)
def index_rows(
    output: Annotated[Path, option("--output", "-o", metavar="FILE", help="The file to make, or to add the rows to.")],
    key: Annotated[str, option("--key", metavar="COLUMN", help="The column that identifies a row.")],
    text: Annotated[
        list[str],
        option(
            "--text",
            metavar="COLUMN",
            help="The column to search in, or a template. Repeatable: lines 'column: value'.",
        ),
    ],
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE]...", help="Parquet, CSV or JSON lines; a glob in quotes.", show_default=False),
    ] = None,
    query: Annotated[str | None, option("--query", metavar="SQL", help="One SELECT, in place of files.")] = None,
    database: Annotated[
        Path | None,
        option("--database", metavar="FILE", help="The DuckDB file that the query is for; it is only read."),
    ] = None,
    title: Annotated[
        str | None, option("--title", metavar="COLUMN", help="The column that heads the text. [title, if there is one]")
    ] = None,
    metadata: Annotated[
        list[str] | None,
        option("--metadata", metavar="COLUMN", help="Keep only this column. Repeatable. [all but those of the text]"),
    ] = None,
    tags: Annotated[str | None, option("--tags", metavar="COLUMN", help="The column of the tags.")] = None,
    markdown: Annotated[bool, option("--markdown", help="The text is Markdown.")] = False,
    leave_out: Annotated[
        list[str] | None, option("--leave-out", metavar="COLUMN", help="Do not store this column. Repeatable.")
    ] = None,
    collection: Annotated[
        str | None, option("--collection", metavar="NAME", help="The name of the source. [that of the file]")
    ] = None,
    model: Annotated[str | None, option("--model", help="Model of a new file. [BAAI/bge-small-en-v1.5]")] = None,
    provider: Annotated[
        str, option("--provider", help="Embedding provider of a new file.", show_default=True)
    ] = "auto",
    force: Force = False,
    quiet: Quiet = False,
    form: FormatName = Format.table,
    wait: Wait = None,
) -> None:
    """Make a document of every row of a table or query, in a new file or beside the documents of an existing one.

    Filters use the other columns as metadata; the view rows_of_NAME has them in their own types. update-rows reads the
    source again.
    """
    from sqlrag.ingest.row_source import is_query
    from sqlrag.ingest.rows import index_rows

    if bool(files) == bool(query):
        raise typer.BadParameter("Name files, such as tickets.parquet, or pass --query.")
    if query and database is None and not is_query(query):
        raise typer.BadParameter("--query must be one SELECT.")
    report = index_rows(
        query or files,
        output,
        key=key,
        text=text[0] if len(text) == 1 else text,
        title=title,
        metadata=metadata or None,
        tags=tags,
        markdown=markdown,
        collection=collection,
        database=database,
        leave_out=leave_out or (),
        force=force,
        embed_model_name=model,
        embedding_provider=provider,
        wait_seconds=wait,
        verbose=not quiet,
    )
    write_reports([report], form, quiet=quiet)


@command(
    "update-rows",
    "Read the sources of rows of a file again.",
    "sqlrag update-rows kb.duckdb",
    "sqlrag update-rows kb.duckdb --collection tickets --since updated_at",
    "sqlrag update-rows kb.duckdb --prune --format json",
)
def update_rows(
    file: File = None,
    db: DbInstead = None,
    collection: Annotated[
        str | None, option("--collection", metavar="NAME", help="One source. [all that can be read again]")
    ] = None,
    prune: Annotated[bool, option("--prune", help="Remove rows that are no longer in the source.")] = False,
    since: Annotated[
        str | None,
        option("--since", metavar="COLUMN", help="Read only rows that are not older than those of the last run."),
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
    form: FormatName = Format.table,
    wait: Wait = None,
) -> None:
    """Bring a file up to date with the tables and queries that its rows are from; only changed texts are embedded.

    Without --prune nothing is removed.
    """
    from sqlrag.ingest.rows import update_rows

    reports = update_rows(
        one_file(file, db),
        collection=collection,
        prune=prune,
        since=since,
        force=force,
        wait_seconds=wait,
        verbose=not quiet,
    )
    write_reports(reports, form, quiet=quiet)
