"""``sqlrag update`` and ``sqlrag delete``."""

from __future__ import annotations

import os
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from sqlrag.console.app import command, noted
from sqlrag.console.options import (
    Collection,
    Db,
    DbInstead,
    File,
    FormatName,
    Metadata,
    TagsAll,
    TagsAny,
    Unit,
    Wait,
    metadata_fields,
    option,
)
from sqlrag.console.printing import Format, flatten, tell, write, write_csv, write_json


@command(
    "update",
    "Bring a file up to date with its folder.",
    "sqlrag update docs kb.duckdb",
    "sqlrag update docs kb.duckdb --prune --format json",
)
def update(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the documents are.", show_default=False)],
    file: File = None,
    db: DbInstead = None,
    prune: Annotated[bool, option("--prune", help="Remove documents that are not in the folder any more.")] = False,
    skip_duplicates: Annotated[
        bool, option("--skip-duplicates", help="Leave out files with the same bytes and type as another one.")
    ] = False,
    collection: Annotated[
        str, option("--collection", metavar="NAME", help="The collection that the folder is.", show_default=True)
    ] = "default",
    pattern: Annotated[
        list[str] | None,
        option("--pattern", metavar="GLOB", help="Only files whose name or path matches, such as '*.md'. Repeatable."),
    ] = None,
    max_bytes: Annotated[int, option("--max-bytes", help="Larger files are skipped.", show_default=True)] = 64 * 2**20,
    model: Annotated[str | None, option("--model", help="Only to make sure: refuse a file of another model.")] = None,
    chunk_size: Annotated[
        int | None, option("--chunk-size", help="Cut everything anew, into chunks of so many units. [the file's own]")
    ] = None,
    chunk_overlap: Annotated[
        int | None, option("--chunk-overlap", help="Units that a split section repeats. [the file's own]")
    ] = None,
    chunk_unit: Annotated[Unit | None, option("--chunk-unit", help="The unit of sizes. [the file's own]")] = None,
    markdown: Annotated[
        bool | None, option("--markdown/--no-markdown", help="Cut Markdown at headings first. [the file's own]")
    ] = None,
    headers: Annotated[
        bool | None, option("--headers/--no-headers", help="Embed the headings above a chunk. [the file's own]")
    ] = None,
    stemmer: Annotated[
        str | None, option("--stemmer", help="Index all words anew with this stemmer. [the file's own]")
    ] = None,
    quiet: Annotated[bool, option("--quiet", "-q", help="No progress bar and no report, only failures.")] = False,
    form: FormatName = Format.table,
    wait: Wait = None,
) -> None:
    """Bring a file up to date with the folder that it was made from; only what has changed is embedded.

    Without --prune nothing is removed. Documents of other folders stay as they are.
    """
    from sqlrag.ingest.updating import update_embeddings

    report = update_embeddings(
        folder,
        one_file(file, db),
        prune=prune,
        skip_duplicates=skip_duplicates,
        collection=collection,
        patterns=pattern or None,
        max_bytes=max_bytes,
        embed_model_name=model,
        chunk_size=chunk_size,
        chunk_overlap=chunk_overlap,
        chunk_unit=chunk_unit.value if chunk_unit else None,
        use_markdown_chunking=markdown,
        include_headers_in_chunks=headers,
        stemmer=stemmer,
        wait_seconds=wait,
        verbose=not quiet,
    )
    counts, chunks, *details = str(report).splitlines()
    for line in details if not quiet else [f"{f.status}: {f.doc_id}: {f.reason}" for f in report.failures]:
        if line.strip().removeprefix("note: ") not in noted:
            tell(line.strip())
    summary = {
        name: getattr(report, name)
        for name in (
            *("run_id", "files", "documents", "chunks", "embedded", "embedding_calls", "reused", "failed", "empty"),
            *("added", "changed", "unchanged", "removed", "missing", "rechunked", "reindexed"),
        )
    }
    summary["renamed"] = [rename._asdict() for rename in report.renamed]
    summary["duplicates"] = [duplicate._asdict() for duplicate in report.duplicates]
    summary["failures"] = [failure._asdict() for failure in report.failures]
    summary["skipped"] = [skipped._asdict() for skipped in report.skipped]
    summary["warnings"] = report.warnings
    summary["seconds"] = {stage: round(seconds, 3) for stage, seconds in report.seconds.items()}
    if form is Format.json:
        write_json(summary)
    elif form is Format.csv:
        write_csv(flatten(summary), ["key", "value"])
    elif not quiet:
        write(f"{counts}\n{chunks}")


@command(
    "delete",
    "Delete documents from a file.",
    "sqlrag delete guides/old.md notes.txt --db kb.duckdb",
    "sqlrag delete --db kb.duckdb --collection drafts --metadata year=2019",
)
def delete(
    db: Db,
    doc_id: Annotated[list[str] | None, typer.Argument(metavar="[DOC_ID]...", help="Documents.")] = None,
    checksum: Annotated[str | None, option("--checksum", help="SHA-256 of the document's file.")] = None,
    collection: Collection = None,
    tags_any: TagsAny = None,
    tags_all: TagsAll = None,
    metadata: Metadata = None,
    form: FormatName = Format.table,
) -> None:
    """Delete the documents that meet all of the conditions, with their chunks, vectors and words.

    An unknown document is said to be unknown and is no failure.
    """
    from sqlrag.retrieval.changing import delete_documents

    report = delete_documents(
        db,
        doc_ids=doc_id or None,
        checksum=checksum,
        collection=collection or None,
        tags_any=tags_any or None,
        tags_all=tags_all or None,
        metadata=metadata_fields(metadata),
    )
    counts, *details = str(report).splitlines()
    if form is Format.json:
        write_json(vars(report))
    elif form is Format.csv:
        write_csv(flatten(vars(report)), ["key", "value"])
    else:
        for line in details:
            tell(line.strip())
        write(counts)


def one_file(file: Path | None, db: Path | None) -> Path:
    """Return the file that was named, as an argument or else by --db or SQLRAG_DB."""
    by_option = str(db) != os.environ.get("SQLRAG_DB")
    if file and db and by_option and os.path.realpath(file) != os.path.realpath(db):
        raise typer.BadParameter(f"Two files are named, {file} and --db {db}. Name one.")
    named = file or db
    if named is None:
        raise typer.BadParameter("Name a file, such as kb.duckdb.")
    return named
