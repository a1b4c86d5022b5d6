"""``sqlrag convert``, ``merge``, ``publish``, ``push`` and ``pull``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sqlrag.cli.app import command
from sqlrag.cli.options import Collection, FormatName, Metadata, TagsAll, TagsAny, metadata_fields, option, place
from sqlrag.cli.printing import Format, write_done, write_facts, write_message
from sqlrag.errors import InputError

if TYPE_CHECKING:
    from sqlrag.formats.convert import FileFacts

Place = Annotated[Path | None, typer.Argument(metavar="FILE", show_default=False)]


@command(
    "convert",
    "Convert a file to another format.",
    "sqlrag convert kb.duckdb kb.ragmd",
    "sqlrag convert kb.ragmd kb.duckdb --overwrite",
    "sqlrag convert --from-faiss vectors-m.faiss --from-json metadata-m.json --to-ragmd kb.ragmd",
    "sqlrag convert --check kb.ragmd",
)
def convert(
    source: Annotated[Path | None, typer.Argument(metavar="SOURCE", help="The file.", show_default=False)] = None,
    target: Annotated[
        Path | None,
        typer.Argument(
            metavar="TARGET",
            help="The new file; its suffix names the format: .duckdb, .ragmd, .ragfile, .faiss, .parquet (a folder).",
            show_default=False,
        ),
    ] = None,
    from_faiss: Annotated[Path | None, option("--from-faiss", metavar="FILE", help="SOURCE, a FAISS index.")] = None,
    from_json: Annotated[
        Path | None, option("--from-json", metavar="FILE", help="Its JSON. [metadata-NAME.json next to it]")
    ] = None,
    from_ragmd: Annotated[Path | None, option("--from-ragmd", metavar="FILE", help="SOURCE, a .ragmd file.")] = None,
    to_faiss: Annotated[Path | None, option("--to-faiss", metavar="FILE", help="TARGET, a FAISS index.")] = None,
    to_json: Annotated[
        Path | None, option("--to-json", metavar="FILE", help="Its JSON. [metadata-NAME.json next to it]")
    ] = None,
    to_ragmd: Annotated[Path | None, option("--to-ragmd", metavar="FILE", help="TARGET, a .ragmd file.")] = None,
    check: Annotated[bool, option("--check", help="Only verify SOURCE; no TARGET.")] = False,
    overwrite: Annotated[bool, option("--overwrite", help="Replace TARGET if it exists.")] = False,
    absolute_paths: Annotated[
        bool, option("--absolute-paths", help="Whole paths of the files, not those below the folder that was read.")
    ] = False,
    model: Annotated[
        str | None, option("--model", help="The embedding model, for a TARGET store if SOURCE does not name it.")
    ] = None,
    provider: Annotated[str, option("--provider", help="Provider of that model.", show_default=True)] = "auto",
    collection: Collection = None,
    tags_any: TagsAny = None,
    tags_all: TagsAll = None,
    metadata: Metadata = None,
    form: FormatName = Format.table,
) -> None:
    """Convert a file from one format to another: stores, .ragmd, RAGFile, FAISS with JSON, Parquet.

    Ids, texts, metadata, offsets and vectors stay the same. The documents are added to a TARGET store that exists.
    """
    from sqlrag.formats.convert import verify_file

    start = _one("SOURCE", source, from_faiss, from_ragmd)
    if check:
        if _given(target, to_faiss, to_ragmd, to_json):
            raise InputError("--check reads SOURCE only; leave TARGET out.")
        facts = verify_file(start, from_json)
        write_file_facts(facts, form, f"{facts}\nno problems found")
        return
    end = _one("TARGET", target, to_faiss, to_ragmd)
    from sqlrag.formats.convert import convert

    embedder = None
    if model is not None:
        from sqlrag.embedders import load_embedder

        embedder = load_embedder(model, provider=provider)
    done = convert(
        start,
        end,
        source_json=from_json,
        target_json=to_json,
        collection=collection,
        tags_any=tags_any,
        tags_all=tags_all,
        metadata=metadata_fields(metadata),
        absolute_paths=absolute_paths,
        embedder=embedder,
        overwrite=overwrite,
    )
    write_done({**vars(done), "path": str(done.path)}, str(done), form)


@command(
    "merge",
    "Merge several files into one.",
    "sqlrag merge january.duckdb february.duckdb --out year.duckdb",
)
def merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="The files.", show_default=False)],
    output: Annotated[Path, option("--out", "-o", metavar="FILE", help="The file to write.")],
    overwrite: Annotated[bool, option("--overwrite", help="Replace it if it exists.")] = False,
    form: FormatName = Format.table,
) -> None:
    """Write the documents of several files of one model into a new one; nothing is re-embedded."""
    from sqlrag.formats.merge import merge

    done = merge(files, output, overwrite=overwrite)
    write_done({**vars(done), "path": str(done.path)}, str(done), form)


@command(
    "publish",
    "Write a site that searches in the browser.",
    "sqlrag publish kb.duckdb site/",
    "sqlrag publish kb.duckdb site/ --title Handbook --collection manual --overwrite",
)
def publish(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file.", show_default=False, parser=place)],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to write.", show_default=False)],
    parts: Annotated[
        Literal["all", "words", "vectors"], option("--with", help="What can be searched.", show_default=True)
    ] = "all",
    title: Annotated[str | None, option("--title", help="The title of the page. [the name of the file]")] = None,
    base_url: Annotated[
        str | None, option("--base-url", metavar="URL", help="The address it will have, for search engines.")
    ] = None,
    collection: Collection = None,
    leave_out: Annotated[
        list[str] | None, option("--leave-out", metavar="COLUMN", help="Do not publish this column. Repeatable.")
    ] = None,
    assets: Annotated[
        Path | None,
        option("--assets", metavar="DIR", help="Where npm has installed the libraries. [here, or a folder above]"),
    ] = None,
    cdn: Annotated[
        bool, option("--cdn", help="Let readers load the libraries from jsDelivr, instead of copying them.")
    ] = False,
    overwrite: Annotated[bool, option("--overwrite", help="Replace a site that was published before.")] = False,
    form: FormatName = Format.table,
) -> None:
    """Write a folder of static files with the search page: DuckDB and the model run in the browser, without a server.

    Whoever can open the page can read every document in it. Without --cdn nothing is loaded from other machines.
    """
    from sqlrag.adapters.publish import publish

    done = publish(
        file,
        folder,
        parts=parts,
        title=title,
        base_url=base_url,
        collection=collection,
        leave_out=leave_out or (),
        assets=assets,
        cdn=cdn,
        overwrite=overwrite,
        on_size=write_message,
    )
    write_done({**vars(done), "path": str(done.path)}, str(done), form)


def write_file_facts(facts: FileFacts, form: Format, text: str = "") -> None:
    """Print the facts of a file that is not a store."""
    write_facts({**facts._asdict(), "path": str(facts.path)}, form, text or str(facts))


def _given(*values: Path | None) -> list[Path]:
    return [value for value in values if value is not None]


def _one(name: str, *values: Path | None) -> Path:
    given = _given(*values)
    if len(given) != 1:
        raise InputError(f"Name one {name}, such as: sqlrag convert kb.duckdb kb.ragmd")
    return given[0]


Url = Annotated[str, typer.Argument(metavar="URL", help="postgresql://user@host/database", show_default=False)]


@command(
    "push",
    "Write a file into Postgres.",
    "sqlrag push kb.duckdb postgresql://localhost/kb",
    "sqlrag push kb.duckdb 'postgresql://localhost/kb?schema=team' --collection default --prune",
)
def push(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file.", show_default=False, parser=place)],
    url: Url,
    collection: Collection = None,
    tags_any: TagsAny = None,
    tags_all: TagsAll = None,
    metadata: Metadata = None,
    prune: Annotated[bool, option("--prune", help="Remove documents there that are not in the file.")] = False,
    form: FormatName = Format.table,
) -> int:
    """Write a file, or some of its documents, into a store in Postgres, which is created if it does not exist.

    What is there already is skipped, so that an interrupted push can be resumed; what was written is read back and
    compared. A document that Postgres cannot store is named, and the exit code is 1. Needs the extra "postgres".
    """
    from sqlrag.formats.push import push

    done = push(
        file,
        url,
        collection=collection,
        tags_any=tags_any,
        tags_all=tags_all,
        metadata=metadata_fields(metadata),
        prune=prune,
    )
    for line in done.failure_lines():
        write_message(line)
    failures = [failure._asdict() for failure in done.failures]
    write_done({**vars(done), "failed": done.failed, "failures": failures}, str(done), form)
    return 1 if failures else 0


@command(
    "pull",
    "Write a store in Postgres into a file.",
    "sqlrag pull postgresql://localhost/kb kb.duckdb",
    "sqlrag pull postgresql://localhost/kb api.duckdb --collection api --overwrite",
)
def pull(
    url: Url,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.", show_default=False)],
    collection: Collection = None,
    tags_any: TagsAny = None,
    tags_all: TagsAll = None,
    metadata: Metadata = None,
    overwrite: Annotated[bool, option("--overwrite", help="Replace the file if it exists.")] = False,
    form: FormatName = Format.table,
) -> None:
    """Write a store in Postgres, or some of its documents, into a file; an existing store is added to.

    What was written is read back and compared. Needs the extra "postgres".
    """
    from sqlrag.formats.push.to_postgres import pull

    done = pull(
        url,
        file,
        collection=collection,
        tags_any=tags_any,
        tags_all=tags_all,
        metadata=metadata_fields(metadata),
        overwrite=overwrite,
    )
    write_done({**vars(done), "path": str(done.path)}, str(done), form)
