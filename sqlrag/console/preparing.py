"""``sqlrag prepare-embeddings``."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from sqlrag.console.app import command, noted
from sqlrag.console.options import EngineName, FormatName, Unit, option
from sqlrag.console.printing import Format, flatten, tell, write, write_csv, write_json


@command(
    "prepare-embeddings",
    "Read a folder into one searchable file.",
    "sqlrag prepare-embeddings docs -o kb.duckdb --model sentence-transformers/all-MiniLM-L6-v2",
    "sqlrag prepare-embeddings docs -o kb.duckdb --pattern '*.md' --chunk-size 200 --overwrite",
    "sqlrag prepare-embeddings docs -o kb.duckdb --engine ray --workers 2",
)
def prepare_embeddings(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the documents are.", show_default=False)],
    output: Annotated[Path, option("--output", "-o", metavar="FILE", help="The file to make, such as kb.duckdb.")],
    model: Annotated[
        str | None,
        option("--model", help="Model: a name on the Hugging Face hub, or a folder. [BAAI/bge-small-en-v1.5]"),
    ] = None,
    provider: Annotated[str, option("--provider", help="Embedding provider.", show_default=True)] = "auto",
    base_url: Annotated[
        str | None,
        option("--base-url", metavar="URL", help="Server of an openai or ollama model; the key is in the environment."),
    ] = None,
    chunk_size: Annotated[int, option("--chunk-size", help="The longest chunk, in units.", show_default=True)] = 512,
    chunk_overlap: Annotated[
        int | None,
        option("--chunk-overlap", help="Units that a split section repeats. [1/8 of the size; chars 1/5]"),
    ] = None,
    chunk_unit: Annotated[Unit, option("--chunk-unit", help="The unit of sizes.", show_default=True)] = Unit.tokens,
    markdown: Annotated[bool, option("--markdown/--no-markdown", help="Cut Markdown at headings first. [yes]")] = True,
    headers: Annotated[
        bool, option("--headers/--no-headers", help="Embed the headings above a chunk with it. [yes]")
    ] = True,
    header_weight: Annotated[
        float, option("--header-weight", help="Weight of a word in the headings beside the text.", show_default=True)
    ] = 3,
    collection: Annotated[
        str, option("--collection", metavar="NAME", help="Name to search these documents by.", show_default=True)
    ] = "default",
    stemmer: Annotated[
        str, option("--stemmer", help="porter, english, german, russian … or none.", show_default=True)
    ] = "porter",
    pattern: Annotated[
        list[str] | None,
        option("--pattern", metavar="GLOB", help="Only files whose name or path matches, such as '*.md'. Repeatable."),
    ] = None,
    max_bytes: Annotated[int, option("--max-bytes", help="Larger files are skipped.", show_default=True)] = 64 * 2**20,
    llama_index: Annotated[
        bool, option("--llama-index/--no-llama-index", help="Keep what llama-index needs to open the file. [yes]")
    ] = True,
    skip_duplicates: Annotated[
        bool, option("--skip-duplicates", help="Leave out files with the same bytes and type as another one.")
    ] = False,
    memory_limit: Annotated[
        str | None,
        option("--memory-limit", metavar="SIZE", help="Memory for DuckDB, such as 2GB. [4/5 of the machine's]"),
    ] = None,
    engine: Annotated[
        EngineName, option("--engine", help="Read, chunk and embed here, or by the workers of Ray.", show_default=True)
    ] = EngineName.local,
    workers: Annotated[
        int | None, option("--workers", metavar="N", help="Workers of Ray at once. [one for each processor]")
    ] = None,
    parts_dir: Annotated[
        Path | None,
        option("--parts-dir", metavar="FOLDER", help="Shared folder for what Ray's workers make. [beside the output]"),
    ] = None,
    overwrite: Annotated[bool, option("--overwrite", help="Replace the output if sqlrag made it.")] = False,
    quiet: Annotated[bool, option("--quiet", "-q", help="No progress bar and no report, only failures.")] = False,
    form: FormatName = Format.table,
) -> None:
    """Read a folder of .md, .txt and .pdf files into one searchable DuckDB file.

    The file appears when it is finished. Documents that cannot be read are reported and do not stop the run.
    """
    from sqlrag.ingest.pipeline import prepare_file

    prepared = prepare_file(
        folder,
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
        collection=collection,
        stemmer=stemmer,
        patterns=pattern or None,
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
    for line in details[1:] if not quiet else [f"{f.status}: {f.doc_id}: {f.reason}" for f in report.failures]:
        if line.strip().removeprefix("note: ") not in noted:
            tell(line.strip())
    summary = {
        "path": str(prepared.path),
        **{name: getattr(report, name) for name in ("files", "documents", "chunks", "embedded", "failed", "empty")},
        "run_id": report.run_id,
        "duplicates": [duplicate._asdict() for duplicate in report.duplicates],
        "failures": [failure._asdict() for failure in report.failures],
        "skipped": [file._asdict() for file in report.skipped],
        "warnings": report.warnings,
        "seconds": {stage: round(seconds, 3) for stage, seconds in report.seconds.items()},
    }
    if form is Format.json:
        write_json(summary)
    elif form is Format.csv:
        write_csv(flatten(summary), ["key", "value"])
    elif not quiet:
        write(f"{prepared.path}: {counts}\n{details[0]}")
