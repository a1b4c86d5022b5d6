"""``sqlrag convert`` and ``merge``, and what ``sqlrag info`` tells of a file that is no store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sqlrag.console.app import command
from sqlrag.console.options import Collection, FormatName, Metadata, TagsAll, TagsAny, metadata_fields, option
from sqlrag.console.printing import Format, flatten, write, write_csv, write_done, write_json
from sqlrag.errors import InputError

if TYPE_CHECKING:
    from sqlrag.formats.converting import FileFacts

Place = Annotated[Path | None, typer.Argument(metavar="FILE", show_default=False)]


@command(
    "convert",
    "Turn a file into another format.",
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
            help="The new file; its suffix says the format: .duckdb, .ragmd, .ragfile, .faiss, .parquet (a folder).",
            show_default=False,
        ),
    ] = None,
    from_faiss: Annotated[Path | None, option("--from-faiss", metavar="FILE", help="SOURCE, a FAISS index.")] = None,
    from_json: Annotated[
        Path | None, option("--from-json", metavar="FILE", help="Its JSON. [metadata-NAME.json beside it]")
    ] = None,
    from_ragmd: Annotated[Path | None, option("--from-ragmd", metavar="FILE", help="SOURCE, a .ragmd file.")] = None,
    to_faiss: Annotated[Path | None, option("--to-faiss", metavar="FILE", help="TARGET, a FAISS index.")] = None,
    to_json: Annotated[
        Path | None, option("--to-json", metavar="FILE", help="Its JSON. [metadata-NAME.json beside it]")
    ] = None,
    to_ragmd: Annotated[Path | None, option("--to-ragmd", metavar="FILE", help="TARGET, a .ragmd file.")] = None,
    check: Annotated[bool, option("--check", help="Only read SOURCE through; no TARGET.")] = False,
    overwrite: Annotated[bool, option("--overwrite", help="Replace TARGET if it exists.")] = False,
    model: Annotated[
        str | None, option("--model", help="What made the vectors, for a TARGET store whose SOURCE does not say it.")
    ] = None,
    provider: Annotated[str, option("--provider", help="Provider of that model.", show_default=True)] = "auto",
    collection: Collection = None,
    tags_any: TagsAny = None,
    tags_all: TagsAll = None,
    metadata: Metadata = None,
    form: FormatName = Format.table,
) -> None:
    """Turn a file of one format into one of another: stores, .ragmd, RAGFile, FAISS with JSON, Parquet.

    Ids, texts, metadata, offsets and vectors stay what they are. A TARGET store that exists takes the documents in.
    """
    from sqlrag.formats.converting import verify_file

    start = _one("SOURCE", source, from_faiss, from_ragmd)
    if check:
        if _given(target, to_faiss, to_ragmd, to_json):
            raise InputError("--check reads SOURCE only; leave TARGET out.")
        facts = verify_file(start, from_json)
        write_facts(facts, form, f"{facts}\nno problems found")
        return
    end = _one("TARGET", target, to_faiss, to_ragmd)
    from sqlrag.formats.converting import convert

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
        embedder=embedder,
        overwrite=overwrite,
    )
    write_done({**vars(done), "path": str(done.path)}, str(done), form)


@command(
    "merge",
    "Make one file of several.",
    "sqlrag merge january.duckdb february.duckdb --out year.duckdb",
)
def merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="The files.", show_default=False)],
    output: Annotated[Path, option("--out", "-o", metavar="FILE", help="The file to make.")],
    overwrite: Annotated[bool, option("--overwrite", help="Replace it if it exists.")] = False,
    form: FormatName = Format.table,
) -> None:
    """Write the documents of several files of one model into a new one; nothing is embedded again."""
    from sqlrag.many.merging import merge

    done = merge(files, output, overwrite=overwrite)
    write_done({**vars(done), "path": str(done.path)}, str(done), form)


def write_facts(facts: FileFacts, form: Format, text: str | None = None) -> None:
    """Print what a file that is no store says of itself."""
    table = {**facts._asdict(), "path": str(facts.path)}
    if form is Format.json:
        write_json(table)
    elif form is Format.csv:
        write_csv(flatten(table), ["key", "value"])
    else:
        write(text or str(facts))


def _given(*values: Path | None) -> list[Path]:
    return [value for value in values if value is not None]


def _one(name: str, *values: Path | None) -> Path:
    given = _given(*values)
    if len(given) != 1:
        raise InputError(f"Name one {name}, such as: sqlrag convert kb.duckdb kb.ragmd")
    return given[0]
