"""``sqlrag build``, ``index-rows`` and ``update-rows``."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from sqlrag.cli import config
from sqlrag.cli.app import command
from sqlrag.cli.build import one_file, prepare_embeddings, write_reports, write_updated_rows
from sqlrag.cli.options import DbInstead, File, Force, FormatName, Unit, Wait, chosen, option, with_parameters_of
from sqlrag.cli.printing import Format
from sqlrag.errors import InputError

Quiet = Annotated[bool, option("--quiet", "-q", help="No progress bar and no report, only failures.")]


@command(
    "index-rows",
    "Make documents of the rows of a table.",
    "sqlrag index-rows tickets.parquet -o kb.duckdb --key id --text body --title subject",
    "sqlrag index-rows 'reviews/*.csv' -o kb.duckdb --key id --text '{product}: {review}' --collection reviews",
    "sqlrag index-rows --query 'SELECT * FROM tickets' --database shop.duckdb --collection tickets -o kb.duckdb "
    "--key id --text body",
    hidden=True,
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
        typer.Argument(
            metavar="[FILE]...", help="Parquet, CSV or JSON lines; a glob in quotes; or a SELECT.", show_default=False
        ),
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
    chunk_size: Annotated[
        int | None, option("--chunk-size", help="The longest chunk, in units. [512; less where the model reads less]")
    ] = None,
    chunk_overlap: Annotated[
        int | None,
        option("--chunk-overlap", help="Units that two chunks of a text share. [1/8 of the size; chars 1/5]"),
    ] = None,
    chunk_unit: Annotated[Unit | None, option("--chunk-unit", help="The unit of sizes. [tokens]")] = None,
    stemmer: Annotated[
        str | None, option("--stemmer", help="porter, english, german, russian … or none. [porter]")
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
    source again. Other chunks or another stemmer than those of an existing file change the whole file.
    """
    from sqlrag.ingest.row_source import is_query
    from sqlrag.ingest.rows import index_rows

    if query is None and files and not files[1:] and is_query(files[0]) and not Path(files[0]).exists():
        query = files.pop()
    if bool(files) == bool(query):
        raise typer.BadParameter("Name files, such as tickets.parquet, or pass --query.")
    if query and database is None and not is_query(query):
        raise typer.BadParameter("--query must be one SELECT.")
    settings = {"chunk_size": chunk_size, "chunk_overlap": chunk_overlap, "chunk_unit": chunk_unit, "stemmer": stemmer}
    if output.exists():  # what the configuration says is no wish to change a file
        settings = {name: None if one == config.applied.get(name) else one for name, one in settings.items()}
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
        **chosen(settings),
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
    hidden=True,
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
    options: dict[str, Any] = {
        "collection": collection,
        "prune": prune,
        "since": since,
        "force": force,
        "wait_seconds": wait,
    }
    write_updated_rows(one_file(file, db), form, quiet, **options)


_TABLES = (".parquet", ".csv", ".tsv", ".json", ".jsonl", ".ndjson")


@command(
    "build",
    "Make a searchable file of a folder or a table.",
    "sqlrag build docs -o kb.duckdb",
    "sqlrag build docs --pattern '*.md' --model sentence-transformers/all-MiniLM-L6-v2 --overwrite",
    "sqlrag build tickets.parquet --key id --text body --title subject -o kb.duckdb",
    "sqlrag build --query 'SELECT * FROM tickets' --database shop.duckdb --collection tickets --key id --text body",
)
@with_parameters_of(
    prepare_embeddings, index_rows, output=Path("kb.duckdb"), key=None, text=None, collection=None, markdown=None,
    chunk_size=None, chunk_unit=None, stemmer=None,
)  # fmt: skip
def build(
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="FOLDER|TABLE", help="A folder of documents, or files of a table.", show_default=False),
    ] = None,
    **options: Any,
) -> None:
    """Make a searchable file, kb.duckdb unless --output names another: of a folder of documents (Markdown, text, PDF,
    HTML, Office and others), or of the rows of a table (Parquet, CSV, JSON lines), with --key and --text.

    The file appears when it is complete. Documents that cannot be read are reported and do not stop the run. The rows
    of a table are added to a file that exists.
    """  # noqa: D205
    given = {name: value for name, value in options.items() if value != _DEFAULTS[name]}
    made = [source for source in sources or () if source.endswith(".duckdb")]
    if len(made) == 1 and "output" not in given:  # as update takes it
        given["output"] = Path(made[0])
        sources = [source for source in sources or () if source not in made]
    configured = bool(config.in_force and config.in_force.collections)
    folders = [source for source in sources or () if Path(source).expanduser().is_dir()]
    of_rows = {"query", "key", "text"} & given.keys() or all(source.endswith(_TABLES) for source in sources or [""])
    if not sources and "query" not in given and not configured:
        raise InputError("Name a folder of documents, such as docs, or a table, such as tickets.parquet.")
    if folders and (sources or ())[1:]:
        raise InputError(
            f"Name one folder. The documents of others are added to its file: sqlrag update FILE {folders[-1]}"
        )
    if folders or not of_rows:
        place: dict[str, Any] = {"folder": Path(sources[0]) if sources else None}
        function, what = prepare_embeddings, "a folder of documents"
    else:
        function, what, place = index_rows, "the rows of a table", {"files": sources}
        if not {"key", "text"} <= given.keys():
            raise InputError(
                "The rows of a table need --key COLUMN, which tells them apart, and --text COLUMN, to search in. To "
                "read it as one document, name its folder."
            )
    taken = inspect.signature(function).parameters
    # What sqlrag.toml says of the other kind is meant for that.
    given = {name: value for name, value in given.items() if name in taken or name not in config.applied}
    unused = min(given.keys() - taken.keys(), default=None)
    if unused:
        anew = function is index_rows and unused == "overwrite"
        remedy = (
            f" Without it, {given.get('output', options['output'])} is brought up to date; to begin anew, delete it."
        )
        raise InputError(f"{unused}={given[unused]!r} cannot be given for {what}.{remedy * anew}")
    defaults = {name: one.default for name, one in taken.items() if one.default is not one.empty}
    inspect.unwrap(function)(**{**defaults, "output": options["output"], **given, **place})


_DEFAULTS = {name: one.default for name, one in inspect.signature(build).parameters.items()}
