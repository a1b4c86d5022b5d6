"""``sqlrag prepare-embeddings``, ``update`` and ``delete``."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sqlrag.arguments import counted, failure_lines, meant_or_there, shown
from sqlrag.cli import config
from sqlrag.cli.app import command, noted
from sqlrag.cli.options import (
    Collection,
    DbInstead,
    EngineName,
    Force,
    FormatName,
    Ignore,
    IgnoreAgain,
    Metadata,
    TagsAll,
    TagsAny,
    Unit,
    Wait,
    files_here,
    from_environment,
    metadata_fields,
    only_file_here,
    option,
    place,
    where,
)
from sqlrag.cli.printing import Format, write, write_csv, write_facts, write_json, write_message
from sqlrag.errors import InputError, NotFoundError, SqlragError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlrag.ingest.rows import RowsReport
    from sqlrag.ingest.run import Report, UpdateReport
    from sqlrag.ingest.update import Folder


@command(
    "prepare-embeddings",
    "Read a folder into one searchable file.",
    "sqlrag prepare-embeddings docs -o kb.duckdb --model sentence-transformers/all-MiniLM-L6-v2",
    "sqlrag prepare-embeddings docs -o kb.duckdb --pattern '*.md' --chunk-size 200 --overwrite",
    "sqlrag prepare-embeddings docs -o kb.duckdb --engine ray --workers 2",
    hidden=True,
)
def prepare_embeddings(
    output: Annotated[Path, option("--output", "-o", metavar="FILE", help="The file to write, such as kb.duckdb.")],
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FOLDER]", help="Where the documents are. [the collections of sqlrag.toml]", show_default=False
        ),
    ] = None,
    model: Annotated[
        str | None,
        option("--model", help="Model: a name on the Hugging Face hub, or a folder. [BAAI/bge-small-en-v1.5]"),
    ] = None,
    provider: Annotated[str, option("--provider", help="Embedding provider.", show_default=True)] = "auto",
    base_url: Annotated[
        str | None,
        option(
            "--base-url",
            metavar="URL",
            help="Server of an openai or ollama model; the key is read from the environment.",
        ),
    ] = None,
    chunk_size: Annotated[
        int, option("--chunk-size", help="The longest chunk, in units. [512; less where the model reads less]")
    ] = 512,
    chunk_overlap: Annotated[
        int | None,
        option("--chunk-overlap", help="Units that a split section repeats. [1/8 of the size; chars 1/5]"),
    ] = None,
    chunk_unit: Annotated[Unit, option("--chunk-unit", help="The unit of sizes. [tokens]")] = Unit.tokens,
    markdown: Annotated[bool, option("--markdown/--no-markdown", help="Cut Markdown at headings first. [yes]")] = True,
    headers: Annotated[
        bool, option("--headers/--no-headers", help="Embed the headings above a chunk with it. [yes]")
    ] = True,
    header_weight: Annotated[
        float,
        option("--header-weight", help="Weight of a word in the headings, relative to the text.", show_default=True),
    ] = 3,
    collection: Annotated[
        str | None,
        option("--collection", metavar="NAME", help="Collection of these documents, for filters. [default]"),
    ] = None,
    stemmer: Annotated[
        str, option("--stemmer", help="porter, english, german, russian … or none. [porter]")
    ] = "porter",
    pattern: Annotated[
        list[str] | None,
        option("--pattern", metavar="GLOB", help="Only files whose name or path matches, such as '*.md'. Repeatable."),
    ] = None,
    ignore: Ignore = None,
    max_bytes: Annotated[int, option("--max-bytes", help="Larger files are skipped.", show_default=True)] = 64 * 2**20,
    llama_index: Annotated[
        bool, option("--llama-index/--no-llama-index", help="Store what llama-index needs to open the file. [yes]")
    ] = True,
    skip_duplicates: Annotated[
        bool, option("--skip-duplicates", help="Leave out files with the same bytes and type as another one.")
    ] = False,
    memory_limit: Annotated[
        str | None,
        option("--memory-limit", metavar="SIZE", help="Memory for DuckDB, such as 2GB. [150MB, more for many files]"),
    ] = None,
    engine: Annotated[
        EngineName,
        option("--engine", help="Read, chunk and embed in this process or in Ray workers.", show_default=True),
    ] = EngineName.local,
    workers: Annotated[
        int | None, option("--workers", metavar="N", help="Ray workers at once. [one for each processor]")
    ] = None,
    parts_dir: Annotated[
        Path | None,
        option(
            "--parts-dir",
            metavar="FOLDER",
            help="Shared folder for the parts that Ray workers write. [next to the output]",
        ),
    ] = None,
    overwrite: Annotated[bool, option("--overwrite", help="Replace the output if sqlrag made it.")] = False,
    quiet: Annotated[bool, option("--quiet", "-q", help="No progress bar and no report, only failures.")] = False,
    form: FormatName = Format.table,
) -> None:
    """Read a folder of documents into one searchable DuckDB file: Markdown, text, PDF, HTML, Office and others.

    The file appears when it is complete. Documents that cannot be read are reported and do not stop the run.
    """
    from sqlrag.ingest.build import prepare_file

    first, *others = config.sources(folder, collection, pattern, ignore)
    prepared = prepare_file(
        first.folder,
        output,
        chunk_size=chunk_size,
        embed_model_name=model,
        embedding_provider=provider,
        verbose=not quiet,
        use_markdown_chunking=markdown,
        include_headers_in_chunks=headers,
        header_weight=header_weight,
        overwrite=overwrite,
        chunk_overlap=chunk_overlap,
        chunk_unit=chunk_unit.value,
        collection=first.collection,
        stemmer=stemmer,
        patterns=first.pattern,
        ignore=first.ignore,
        max_bytes=max_bytes,
        llama_index_compatible=llama_index,
        skip_duplicates=skip_duplicates,
        memory_limit=memory_limit,
        base_url=base_url,
        engine=engine.value,
        workers=workers,
        parts_dir=parts_dir,
    )
    report = prepared.report
    counts, *details = str(report).splitlines()
    report_details(report, details[1:], quiet)
    summary = {
        "path": str(prepared.path),
        **{name: getattr(report, name) for name in ("files", "documents", "chunks", "embedded", "failed", "empty")},
        "run_id": report.run_id,
        **details_of(report),
    }
    text = "" if quiet else f"{prepared.path}: {counts}\n{details[0]}"
    if not others:
        write_facts(summary, form, text)
        return
    more = {"max_bytes": max_bytes, "skip_duplicates": skip_duplicates}
    _write_several(first, summary, text, [(one, *_updated(one, output, quiet, more)) for one in others], form)


def _write_several(
    first: config.Source, summary: dict[str, Any], text: str, others: list[tuple[config.Source, Any, str]], form: Format
) -> None:
    """Write what became of each of several collections."""
    done = [(first, summary, text), *others]
    facts = {"collections": [{"collection": one.collection, **summary} for one, summary, _ in done]}
    write_facts(facts, form, "\n".join(f"{one.collection}: {text}" for one, _, text in done if text))


def report_details(report: Report, lines: Iterable[str], quiet: bool) -> None:
    """Print the lines of a report that were not printed as warnings; if ``quiet``, only the failures."""
    for line in failure_lines(report.failures) if quiet else lines:
        told = line.strip().removeprefix("note: ")
        if told not in noted:
            write_message(line.strip())
        if told != line.strip():
            noted.add(told)


def write_reports(
    reports: Sequence[RowsReport], form: Format, *, quiet: bool, others: Sequence[dict[str, Any]] = ()
) -> None:
    """Write the reports of sources of rows, as JSON and CSV behind others."""
    facts: list[dict[str, Any]] = list(others)
    for report in reports:
        lines = str(report).splitlines()
        report_details(report, lines[2:], quiet)
        facts.append(
            {"collection": report.collection, **report.counts(), "failed": report.failed, "empty": report.empty}
        )
        facts[-1] |= {"run_id": report.run_id, **details_of(report)}
        if form is Format.table and not quiet:
            write("\n".join(lines[:2]))
    if form is Format.json:
        write_json(facts)
    elif form is Format.csv:
        write_csv(facts, list(dict.fromkeys(name for one in facts for name in one)))


def write_updated_rows(
    path: Path, form: Format, quiet: bool, others: Sequence[dict[str, Any]] = (), **options: Any
) -> None:
    """Update the sources of rows of a file and write their reports, also where one of several cannot be read."""
    from sqlrag.ingest.rows import update_rows

    try:
        reports = update_rows(path, verbose=not quiet, **options)
    except SqlragError as error:
        if isinstance(error.report, list):
            write_reports(error.report, form, quiet=quiet, others=others)
        raise
    write_reports(reports, form, quiet=quiet, others=others)


def details_of(report: Report) -> dict[str, Any]:
    """Return the details of a run for programs, in addition to its counts."""
    return {
        "duplicates": [duplicate._asdict() for duplicate in report.duplicates],
        "failures": [failure._asdict() for failure in report.failures],
        "skipped": [file._asdict() for file in report.skipped],
        "warnings": report.warnings,
        "seconds": {stage: round(seconds, 3) for stage, seconds in report.seconds.items()},
    }


@command(
    "update",
    "Bring a file up to date with its folders and tables.",
    "sqlrag update kb.duckdb",
    "sqlrag update kb.duckdb docs --prune --format json",
)
def update(
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE] [FOLDER]",
            help="The file; and a folder, where only that one is to be read, or a new one.",
            show_default=False,
        ),
    ] = None,
    db: DbInstead = None,
    prune: Annotated[bool, option("--prune", help="Remove documents and rows that are no longer there.")] = False,
    skip_duplicates: Annotated[
        bool, option("--skip-duplicates", help="Leave out files with the same bytes and type as another one.")
    ] = False,
    collection: Annotated[
        str | None, option("--collection", metavar="NAME", help="Of this collection only; that of a new folder.")
    ] = None,
    pattern: Annotated[
        list[str] | None,
        option(
            "--pattern",
            metavar="GLOB",
            help="Only files whose name or path matches, such as '*.md'. Repeatable. [as the last time]",
        ),
    ] = None,
    ignore: IgnoreAgain = None,
    max_bytes: Annotated[int, option("--max-bytes", help="Larger files are skipped.", show_default=True)] = 64 * 2**20,
    model: Annotated[str | None, option("--model", help="A check only: refuse a file of another model.")] = None,
    chunk_size: Annotated[
        int | None, option("--chunk-size", help="Rechunk everything, into chunks of so many units. [the file's own]")
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
        str | None, option("--stemmer", help="Reindex all words with this stemmer. [the file's own]")
    ] = None,
    force: Force = False,
    dry_run: Annotated[bool, option("--dry-run", help="Say what folders would change, and change nothing.")] = False,
    quiet: Annotated[bool, option("--quiet", "-q", help="No progress bar and no report, only failures.")] = False,
    form: FormatName = Format.table,
    wait: Wait = None,
) -> int:
    """Bring a file up to date with the folders and tables that it was built from; only changes are embedded.

    Without --prune nothing is removed. A folder that is named is read alone, and the documents of others stay as they
    are; one that has been moved is recognised by its files.
    """
    from sqlrag.ingest.rows import not_read_again
    from sqlrag.ingest.update import apply_settings, folders_of

    given, named = _file_and_folder(places or [])
    path = one_file(given, db)
    quiet = quiet and not dry_run  # what would change is all that was asked for
    known, tables, unknown = folders_of(path, wait_seconds=wait)
    gone = folders_not_there(path, known, named, collection)
    if named is not None and gone:
        raise NotFoundError(gone[0])
    wanted = folders_to_read(path, known, bool(tables), named, collection, pattern, ignore)
    if config.in_force and not config.applied and not quiet:
        configured = {os.path.realpath(one.folder) for one in config.in_force.collections}
        if configured & {os.path.realpath(one.folder) for one in wanted}:
            write_message(f"note: settings of {config.in_force.path}")
    of_folders = {
        "pattern": pattern, "ignore": ignore, "model": model, "chunk_size": chunk_size, "chunk_overlap": chunk_overlap,
        "chunk_unit": chunk_unit, "markdown": markdown, "headers": headers, "stemmer": stemmer,
    }  # fmt: skip
    # What the configuration says of documents is no wish of whoever updates a table.
    wished = {name for name, one in of_folders.items() if one not in (None, config.applied.get(name))}
    if not wanted and wished & {"pattern", "ignore"}:
        raise typer.BadParameter(f"{path} is a file of no folder: name the folder of its documents, too.")
    if not wanted and not gone and not tables and not wished:
        if unknown.keys() - {"default"}:
            raise InputError("\n".join([f"{path} does not know its folders.", *folders_to_name(path, unknown)]))
        raise InputError(f"{path} does not know its folder. Name it: sqlrag update {path} FOLDER")
    settings: dict[str, Any] = {
        "embed_model_name": model,
        "chunk_size": chunk_size,
        "chunk_overlap": chunk_overlap,
        "chunk_unit": chunk_unit.value if chunk_unit else None,
        "use_markdown_chunking": markdown,
        "include_headers_in_chunks": headers,
        "stemmer": stemmer,
        "wait_seconds": wait,
    }
    options = {
        "prune": prune,
        "skip_duplicates": skip_duplicates,
        "max_bytes": max_bytes,
        "dry_run": dry_run,
        **settings,
    }
    if dry_run and not wanted:
        raise typer.BadParameter(f"--dry-run looks at folders of documents, and {path} has none to read.")
    summaries, lines = [], []
    if not wanted and wished:  # no folder is read, the stored texts are
        facts, text = _summary(apply_settings(path, **settings, bar_off=quiet), quiet)
        summaries.append(facts)
        lines.append(text)
    named_here = [*wanted, *(config.in_force.collections if config.in_force else ())]  # also of folders that are gone
    read, places_read = {one.collection for one in named_here}, {os.path.realpath(one.folder) for one in named_here}
    for left in known if config.in_force and not named and not collection and not quiet else ():
        if left.collection not in read and os.path.realpath(left.path) not in places_read:
            write_message(
                f"note: {config.in_force and config.in_force.path} has no collection {left.collection}, so its "
                f"documents, of {left.path}, stay as they are. To remove them: "
                f"sqlrag delete --collection '{left.collection}' --db {path}"
            )
    for one in wanted:
        of_this = f"{one.folder} (collection {one.collection})"
        if named is None and not quiet:
            write_message(of_this)
        if not quiet:
            note_patterns(one, pattern)
        try:
            facts, text = _updated(one, path, quiet, options)
        except NotFoundError as error:  # the folder is empty
            if named is not None:
                raise
            gone.append(str(error))
            continue
        summaries.append({"collection": one.collection, **facts} if named is None else facts)
        lines.append(f"{of_this}:\n{text}" if len(wanted) > 1 else text)
    if named is not None:
        own = wanted[0].collection
        before = [one.path for one in known if one.collection == own]
        is_new = os.path.realpath(named) not in map(os.path.realpath, before)
        if before and is_new and collection is None and not (dry_run or quiet):
            now = {one.path for one in folders_of(path, wait_seconds=wait)[0] if one.collection == own}
            for other in [one for one in before if one in now][:1]:  # one that was moved here is not there any more
                write_message(
                    f"note: the collection {own} has documents of {other}, too; --collection NAME keeps folders apart"
                )
        write_facts(summaries[0], form, lines[0])
        return 0
    if lines and form is Format.table and not quiet:
        write("\n".join(lines))
    for line in gone:
        write_message(f"error: {line}")
    unread = {name: count for name, count in unknown.items() if name not in read}
    for line in folders_to_name(path, unread) if collection is None and not quiet else ():
        write_message(f"note: {line}")
    if collection is None and tables and all(one.was_given for one in tables.values()):
        if not quiet:
            write_message(f"note: {not_read_again(path, list(tables))}")
    elif tables and dry_run:
        write_message(f"note: --dry-run does not look at the tables: {', '.join(tables)}")
    elif tables and (collection is None or collection in tables):
        of_rows: dict[str, Any] = {"collection": collection, "prune": prune, "force": force, "wait_seconds": wait}
        write_updated_rows(path, form, quiet, summaries, **of_rows)
        return 1 if gone else 0
    if form is not Format.table:
        write_reports([], form, quiet=quiet, others=summaries)
    return 1 if gone else 0


def folders_to_name(path: Path, unknown: Mapping[str, int]) -> list[str]:
    """Return what is to be said of each collection of which no folder is known, as after an import."""
    return [
        f"The folder of the collection {name} ({counted(count, 'document')}) is not known. To update it, name it once: "
        f"sqlrag update {shlex.quote(str(path))} FOLDER --collection {shlex.quote(name)}"
        for name, count in unknown.items()
    ]


def folders_not_there(
    path: Path, known: Sequence[Folder], named: Path | None = None, collection: str | None = None
) -> list[str]:
    """Return what is to be said of each folder of a file that is not there, or of the one that was named."""
    from sqlrag.engines.duckdb.rows import real_folder
    from sqlrag.ingest.folder import find_stored

    update = f"sqlrag update {shlex.quote(str(path))}"
    gone = {(one.path, one.collection) for one in known if find_stored(one.path) is None}
    gone = {one for one in gone if collection in (None, one[1])}
    if named is not None:
        gone = {one for one in gone if one[0] == real_folder(named)}
    elif config.in_force and config.in_force.collections and _is_configured(path, known, has_rows=False):
        return [  # the configuration says where they are
            f"{config.in_force.path}: the folder {one.folder} of [collections.{one.collection}] is not there. Correct "
            "the line. If it is gone for good, this removes its documents: "
            f"sqlrag delete --collection {shlex.quote(one.collection)} --db {shlex.quote(str(path))}"
            for one in config.in_force.collections
            if collection in (None, one.collection) and not one.folder.is_dir()
        ]
    said = []
    for folder, name in sorted(gone):
        near = path.with_name(Path(folder).name)
        of = "" if name == "default" else f" --collection {shlex.quote(name)}"
        said.append(
            f"The folder {folder} of {path} is not there. If it has been moved, name it: {update} "
            f"{shlex.quote(str(near)) if near.is_dir() else 'FOLDER'}{of}. If it is gone for good, this removes its "
            f"documents: sqlrag delete --folder {shlex.quote(folder)} --collection {shlex.quote(name)} --db "
            f"{shlex.quote(str(path))}"
        )
    return said


def folders_to_read(
    path: Path,
    known: Sequence[Folder],
    has_rows: bool,
    named: Path | None,
    collection: str | None,
    pattern: list[str] | None,
    ignore: list[str] | None,
) -> list[config.Source]:
    """Return what to read: the folder that was named, else those configured, else those that the file knows."""
    from sqlrag.ingest.folder import find_stored

    configured = config.in_force.collections if config.in_force else []
    if named is None and not _is_configured(path, known, has_rows):
        configured = []  # another file of the same project, such as one of tables
    same = [one for one in configured if named is None or os.path.realpath(one.folder) == os.path.realpath(named)]
    if same and (named is None or collection in (None, *(one.collection for one in same))):
        return config.sources(named, collection, pattern, ignore, of_those_there=True)
    wanted = [one for one in known if collection in (None, one.collection)]
    if named is not None:
        wanted = [one for one in wanted if os.path.realpath(one.path) == os.path.realpath(named)]
        if not wanted:  # it may have been moved
            gone = [one for one in known if not Path(one.path).is_dir()]
            wanted = [one for one in gone if one.collection == (collection or "default")]
        if len(wanted) > 1:
            wanted = [one for one in wanted if one.collection == (collection or "default")]
        if len(wanted) != 1:
            return [config.Source(collection or "default", named, pattern, ignore)]
        last = wanted[0]
        return [config.Source(last.collection, named, pattern or last.patterns, ignore or last.ignore)]
    there = [(one, find_stored(one.path)) for one in wanted]
    return [
        config.Source(one.collection, place, pattern or one.patterns, ignore or one.ignore)
        for one, place in there
        if place is not None
    ]


def note_patterns(one: config.Source, given: list[str] | None) -> None:
    """Say that a folder is read by the patterns of the last time, where it is."""
    configured = config.in_force.collections if config.in_force else ()
    if one.pattern and "*" not in one.pattern and not given and one not in configured:
        names = " or ".join(map(shown, one.pattern))
        write_message(f"note: of {one.folder} only {names} is read, as the last time; --pattern '*' reads all")


def _is_configured(path: Path, known: Sequence[Folder], has_rows: bool) -> bool:
    """Return whether the collections that are configured are those of a file."""
    if config.in_force is None:
        return False
    file = config.in_force.values.get("store", {}).get("file")
    if file is not None and os.path.realpath(file) == os.path.realpath(path):
        return True
    if not known:
        return file is None and not has_rows
    folders = {os.path.realpath(one.folder) for one in config.in_force.collections}
    names = {one.collection for one in config.in_force.collections}
    return any(
        os.path.realpath(one.path) in folders or (one.collection in names and not Path(one.path).is_dir())
        for one in known
    )


def _updated(one: config.Source, path: Path, quiet: bool, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Update a file from a folder; return the facts, and the lines for people."""
    from sqlrag.ingest.update import update_embeddings

    report = update_embeddings(
        one.folder,
        path,
        collection=one.collection,
        patterns=one.pattern,
        ignore=one.ignore,
        verbose=not quiet,
        **options,
    )
    return _summary(report, quiet)


def _summary(report: UpdateReport, quiet: bool) -> tuple[dict[str, Any], str]:
    """Return the facts of an update, and the lines for people."""
    counts, chunks, *details = str(report).splitlines()
    report_details(report, details, quiet)
    summary = {
        name: getattr(report, name)
        for name in (
            *("run_id", "files", "documents", "chunks", "embedded", "embedding_calls", "reused", "failed", "empty"),
            *("added", "changed", "unchanged", "removed", "missing", "rechunked", "reindexed", "dry_run"),
        )
    }
    summary |= {"renamed": [rename._asdict() for rename in report.renamed], **details_of(report)}
    return summary, "" if quiet else f"{counts}\n{chunks}"


def _file_and_folder(places: Sequence[Path]) -> tuple[Path | None, Path | None]:
    """Tell the file from the folder, in any order."""
    files = [place for place in places if place.is_file() or (place.suffix == ".duckdb" and not place.is_dir())]
    folders = [place for place in places if place not in files]
    if len(files) > 1 or len(folders) > 1:
        raise typer.BadParameter("Name one file, and one folder if you like, such as: sqlrag update kb.duckdb docs")
    return next(iter(files), None), next(iter(folders), None)


@command(
    "delete",
    "Delete documents from a file.",
    "sqlrag delete guides/old.md notes.txt --db kb.duckdb",
    "sqlrag delete --db kb.duckdb --collection drafts --metadata year=2019",
    "sqlrag delete --db kb.duckdb --folder notes --collection default --dry-run",
)
def delete(
    db: DbInstead = None,
    doc_id: Annotated[list[str] | None, typer.Argument(metavar="DOC_ID...", help="Documents.")] = None,
    checksum: Annotated[str | None, option("--checksum", help="SHA-256 of the document's file.")] = None,
    collection: Collection = None,
    tags_any: TagsAny = None,
    tags_all: TagsAll = None,
    metadata: Metadata = None,
    folder: Annotated[
        Path | None, option("--folder", metavar="DIR", help="Documents of this folder, which no update reads then.")
    ] = None,
    dry_run: Annotated[bool, option("--dry-run", help="Say what would be deleted, and delete nothing.")] = False,
    form: FormatName = Format.table,
) -> int:
    """Delete the documents that meet all of the conditions, with their chunks, vectors and words.

    Where one is named that is not in the file, the others are deleted, and the exit code is 1.
    """
    from sqlrag.search.change import delete_documents
    from sqlrag.search.open import open_store

    # The file among the arguments, as other commands take it.
    files = [one for one in doc_id or () if one.endswith(".duckdb") and Path(one).is_file()]
    if doc_id and files:
        db = one_file(place(files[0]), db)
        doc_id.remove(files[0])
    if db is None:
        here = (sorted(Path().glob("*.duckdb")) or [Path("kb.duckdb")])[0]
        line = shlex.join(["sqlrag", "delete", str(here), *(doc_id or ["DOC_ID"])])
        raise typer.BadParameter(f"Name the file to delete from, such as: {line}.{files_here()}")
    file = db
    if not (doc_id or checksum or collection or tags_any or tags_all or metadata or folder):
        raise InputError(
            "Nothing says what to delete. Name documents, or what they have in common: --checksum, --collection, "
            "--tags-any, --tags-all, --metadata or --folder."
        )
    report = delete_documents(
        file,
        doc_ids=doc_id or None,
        checksum=checksum,
        collection=collection or None,
        tags_any=tags_any or None,
        tags_all=tags_all or None,
        metadata=metadata_fields(metadata),
        folder=folder,
        dry_run=dry_run,
    )
    counts, *details = str(report).splitlines()
    for line in details if form is Format.table else ():
        write_message(line.strip())
    write_facts(vars(report), form, counts)
    if not report.unknown:
        return 0
    with open_store(file) as store:
        known = [row[0] for row in store.cursor().execute("SELECT doc_id FROM sources ORDER BY doc_id").fetchall()]
    for unknown in report.unknown:
        write_message(f"There is no document {shown(unknown)}{'; ' if known else '.'}{meant_or_there(unknown, known)}")
    return 1


def named_files(files: list[Path] | None, db: list[Path] | None) -> Any:
    """Return the file or files that were named, as arguments or else by --db or SQLRAG_DB."""
    if files and db and [*map(os.path.realpath, files)] != [*map(os.path.realpath, db)]:
        raise typer.BadParameter(f"Two files are named, {files[0]} and --db {db[0]}. Name all in one way.")
    return where(files or db or from_environment() or only_file_here())


def one_file(file: Path | None, db: Path | None) -> Path:
    """Return the file that was named, as an argument or else by --db or SQLRAG_DB, or the only one here."""
    by_option = str(db) != os.environ.get("SQLRAG_DB")
    if file and db and by_option and os.path.realpath(file) != os.path.realpath(db):
        raise typer.BadParameter(f"Two files are named, {file} and --db {db}. Name one.")
    return file or db or only_file_here()[0]
