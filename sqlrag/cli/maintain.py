"""``sqlrag info``, ``check``, ``backup``, ``compact``, ``repair``, ``upgrade``, ``reembed``, ``models`` and ``map``."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sqlrag.arguments import counted, failure_lines
from sqlrag.cli.app import command, noted
from sqlrag.cli.build import one_file
from sqlrag.cli.options import DbInstead, File, FormatName, Wait, option
from sqlrag.cli.printing import (
    Format,
    flatten,
    size,
    write,
    write_csv,
    write_facts,
    write_json,
    write_message,
    write_rows,
)
from sqlrag.search.open import is_address, open_one

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlrag.embedders.base import Models
    from sqlrag.engines.duckdb.check import Problem
    from sqlrag.search.postgres_store import PostgresStore
    from sqlrag.search.store import Store
    from sqlrag.search.stores import Stores


def describe(store: Store | Stores | PostgresStore) -> dict[str, Any]:
    """Return the facts about an open store: its metadata; of one file also its size and the contents of its tables."""
    from sqlrag.engines.duckdb.model_fit import model_fit
    from sqlrag.engines.resident import load as in_memory
    from sqlrag.ranking.results import exact
    from sqlrag.settings import Settings

    metadata = {"path": str(store.path), **store.get_embedding_metadata()}
    if len(store.paths) != 1:
        return metadata

    def rows(sql: str) -> list[dict[str, Any]]:
        cursor = store.cursor().execute(sql)
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    return {
        "path": metadata.pop("path"),
        "size_bytes": store.paths[0].stat().st_size,
        **metadata,
        "corpus": rows("FROM corpus_stats")[0],
        "collections": rows(
            "SELECT collection, count(*) AS documents, CAST(sum(chunks) AS BIGINT) AS chunks FROM sources "
            "GROUP BY collection ORDER BY collection"
        ),
        "row_sources": exact(store.row_sources()),
        "memory": {
            "bytes": in_memory.size(store.cursor(), store.dimensions),
            "least_bytes": in_memory.size(store.cursor(), store.dimensions, rounded=True),
            "bytes_of_texts": in_memory.size_of_contents(store.cursor()),
            "resident_mb": Settings.from_environment().resident_mb,
        },
        "indexes": rows("SELECT index_name, chunks, indexed, in_step FROM index_status ORDER BY index_name"),
        "map": next(iter(rows("SELECT * EXCLUDE created_at FROM map_status")), None),
        "queries_embedded": rows("SELECT count(*) AS n FROM query_embeddings")[0]["n"],
        "failures": rows("SELECT doc_id, status, reason FROM ingest_failures ORDER BY doc_id"),
        "notices": [*_markup_notices(store), *model_fit(store.cursor())],
    }


def description(facts: Mapping[str, Any]) -> str:
    """Format the facts as lines for a terminal."""
    if "corpus" not in facts:
        return "\n".join(f"{row['key']:<40} {row['value']}" for row in flatten(facts))
    embedding, chunking, corpus, store = (facts[key] for key in ("embedding", "chunking", "corpus", "store"))
    window = f", window {embedding['max_tokens']:,} tokens" if embedding["max_tokens"] else ""
    collections = [
        f"{c['collection']} ({counted(c['documents'], 'document')}, {counted(c['chunks'], 'chunk')})"
        for c in facts["collections"]
    ]
    sizes, memory = facts["chunks"], facts["memory"]
    headings = "embedded" if chunking["include_headers"] else "not embedded"
    indexes = [f"{i['index_name']} {'in step' if i['in_step'] else 'OUT OF STEP'}" for i in facts["indexes"]]
    table = {
        "file": f"{facts['path']} ({size(facts['size_bytes'])})",
        "made": f"{facts['created_at']} by sqlrag {store['sqlrag_version']}, DuckDB {store['duckdb_version']}, "
        f"schema {store['schema_version']}",
        "model": f"{embedding['model']} ({embedding['provider']}, {embedding['dimensions']} dimensions{window})",
        "documents": f"{corpus['documents']:,} ({counted(corpus['characters'], 'character')})",
        "chunks": f"{corpus['chunks']:,} ({sizes['min_chunk_size']:,} to {sizes['max_chunk_size']:,} characters, "
        f"median {sizes['median_chunk_size']:,})",
        "chunking": f"{chunking['strategy']}, at most {chunking['chunk_size']} {chunking['chunk_unit']}, "
        f"overlap {chunking['chunk_overlap']}, headings {headings}, "
        f"heading weight {chunking['header_weight']}",
        "words": f"{counted(corpus['terms'], 'term')}, stemmer {store['stemmer']}",
        "collections": ", ".join(collections) or "none",
        **({"tables": ", ".join(tables)} if (tables := list(map(_of_rows, facts["row_sources"]))) else {}),
        "memory": f"{size(memory['bytes'])} to be searched there, {size(memory['bytes_of_texts'])} more with texts, "
        f"{size(memory['least_bytes'])} at least; resident_mb is {memory['resident_mb']:,}",
        "indexes": ", ".join(indexes),
        "map": _map(facts["map"]),
        "questions": f"{facts['queries_embedded']:,} embedded for the shell",
        "failures": f"{len(facts['failures']):,}",
    }
    lines = [f"{name:<12} {value}" for name, value in table.items()]
    failures = failure_lines((f["doc_id"], f["status"], f["reason"]) for f in facts["failures"])
    return "\n".join([*lines, *failures, *facts["notices"]])


def _markup_notices(store: Store | Stores | PostgresStore) -> list[str]:
    from sqlrag.engines.duckdb.metadata import VECTORS_WITH_MARKUP, WITH_MARKUP

    found = store.cursor().execute("SELECT 1 FROM embedding_metadata WHERE key = $key", {"key": WITH_MARKUP}).fetchall()
    return [VECTORS_WITH_MARKUP] if found else []


def _of_rows(source: Mapping[str, Any]) -> str:
    columns = ", ".join(f"{column['name']} {column['type']}" for column in source["columns"])
    return f"{source['collection']} ({counted(source['rows'], 'row')} by {source['key']}; {columns})"


def _map(status: Mapping[str, Any] | None) -> str:
    if status is None:
        return "none"
    later = f", {counted(status['missing'], status['level'])} written since" if status["missing"] else ""
    return f"{counted(status['points'], status['level'])} by {status['method']}{later}"


Memory = Annotated[
    str | None, option("--memory-limit", metavar="SIZE", help="Memory for DuckDB, such as 2GB. [4/5 of the machine's]")
]


@command("check", "Check a file for faults.", "sqlrag check kb.duckdb && mv kb.duckdb /srv/search/")
def check(
    file: File = None,
    db: DbInstead = None,
    quick: Annotated[bool, option("--quick", help="Do not compare every block with its checksum.")] = False,
    form: FormatName = Format.table,
    wait: Wait = None,
) -> int:
    """Check a file for faults, and read all of it; the exit code is 1 if there is one."""
    path = one_file(file, db)
    if is_address(path):
        with open_one(path, wait_seconds=wait) as store:
            path, problems = store.path, store.check()  # type: ignore[assignment]
    else:
        from sqlrag.engines.duckdb.check import check

        problems = check(path, quick=quick, wait_seconds=wait)
        if not problems:
            with open_one(path, wait_seconds=wait) as store:
                for notice in _markup_notices(store):
                    write_message(notice)
    if problems and not is_address(path):
        write_message(f"remedy: {remedy_of(path, [problem.check for problem in problems])}")
    rows = [problem._asdict() for problem in problems]
    lines = [f"{path}: {counted(len(problems), 'problem') if problems else 'no problems'} found", *_lines(problems)]
    write_rows(rows, ["check", "rule", "rows", "examples"], form, "\n".join(lines))
    return 1 if problems else 0


def remedy_of(path: Path, checks: Collection[str]) -> str:
    """Return what helps where these checks of a file find something; no repair gives back bytes that are lost."""
    file = shlex.quote(str(path))
    if "damaged_blocks" not in checks:
        return f"sqlrag repair {file}"
    return f"copy a backup over it; without one: sqlrag compact {file}, or sqlrag build FOLDER -o {file} --overwrite"


@command("repair", "Rebuild what a check finds wrong.", "sqlrag repair kb.duckdb")
def repair(file: File = None, db: DbInstead = None, form: FormatName = Format.table, wait: Wait = None) -> int:
    """Rebuild the word index, sign codes, counts, tables, views and macros where a check finds them wrong.

    Chunks, vectors and documents are not changed. The exit code is 1 if a problem remains.
    """
    from sqlrag.engines.duckdb.check import repair

    repaired = repair(one_file(file, db), wait_seconds=wait)
    left = [problem._asdict() for problem in repaired.left]
    facts = {"path": str(repaired.path), "done": list(repaired.done), "left": left}
    lines = [f"{repaired.path}: {len(repaired.done) or 'nothing'} repaired", *repaired.done]
    if left:
        lines += ["Not repaired:", *_lines(repaired.left)]
    write_facts(facts, form, "\n".join(lines))
    return 1 if left else 0


@command("backup", "Copy a file that may be in use.", "sqlrag backup kb.duckdb backup/kb.duckdb")
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The store.", show_default=False)],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="The file to write.", show_default=False)],
    overwrite: Annotated[bool, option("--overwrite", help="Replace TARGET if it exists.")] = False,
    form: FormatName = Format.table,
    wait: Wait = None,
) -> None:
    """Copy a store as of one moment, beside readers, and compare every block of the copy with its checksum."""
    from sqlrag.engines.duckdb.rewrite import backup

    done = backup(file, target, overwrite=overwrite, wait_seconds=wait)
    write_facts({**done._asdict(), "path": str(done.path)}, form, str(done))


@command("compact", "Free the space of old rows.", "sqlrag compact kb.duckdb")
def compact(
    file: File = None,
    db: DbInstead = None,
    form: FormatName = Format.table,
    wait: Wait = None,
    memory_limit: Memory = None,
) -> None:
    """Rewrite a file without the space of old rows; results stay the same."""
    from sqlrag.engines.duckdb.rewrite import compact

    done = compact(one_file(file, db), wait_seconds=wait, memory_limit=memory_limit)
    facts = {**done._asdict(), "path": str(done.path)}
    write_facts(facts, form, f"{done.path}: {size(done.bytes_before)} before, {size(done.bytes_after)} after")


@command("upgrade", "Bring an older file to this version.", "sqlrag upgrade old.duckdb")
def upgrade(
    file: File = None,
    db: DbInstead = None,
    form: FormatName = Format.table,
    wait: Wait = None,
    memory_limit: Memory = None,
) -> None:
    """Convert a file of an older sqlrag, or of sqlrooms-rag 0.1.2, to this version.

    Ids and vectors are kept. What cannot be kept is reported on standard error.
    """
    from sqlrag.engines.duckdb.upgrade import upgrade

    done = upgrade(one_file(file, db), wait_seconds=wait, memory_limit=memory_limit)
    for item in done.left_out:
        write_message(f"left out: {item}")
    facts = {**done._asdict(), "path": str(done.path), "steps": list(done.steps), "left_out": list(done.left_out)}
    write_facts({**facts, "notices": list(done.notices)}, form, "\n".join([str(done).splitlines()[0], *done.notices]))


@command(
    "reembed",
    "Re-embed a file with another model.",
    "sqlrag reembed kb.duckdb --model sentence-transformers/all-MiniLM-L6-v2",
)
def reembed(
    file: File = None,
    db: DbInstead = None,
    model: Annotated[
        str | None,
        option("--model", help="Model: a name on the Hugging Face hub, or a folder. [BAAI/bge-small-en-v1.5]"),
    ] = None,
    provider: Annotated[str, option("--provider", help="Embedding provider.", show_default=True)] = "auto",
    quiet: Annotated[bool, option("--quiet", "-q", help="No progress bar and no report.")] = False,
    form: FormatName = Format.table,
    wait: Wait = None,
    memory_limit: Memory = None,
) -> None:
    """Rechunk the documents of a file from their stored texts and embed them with another model.

    The folder that the file was built from is not needed. The new file replaces the old one at the end.
    """
    from sqlrag.ingest.reembed import reembed

    report = reembed(
        one_file(file, db),
        model,
        provider=provider,
        wait_seconds=wait,
        memory_limit=memory_limit,
        verbose=not quiet,
    )
    first, second, *notes = str(report).splitlines()
    for line in notes:
        if line.removeprefix("note: ") not in noted:
            write_message(line)
    facts = {**vars(report), "path": str(report.path)}
    if not quiet or form is not Format.table:
        write_facts(facts, form, f"{first}\n{second}")


def _lines(problems: Sequence[Problem]) -> list[str]:
    lines = []
    for problem in problems:
        lines.append(f"{problem.check}: {counted(problem.rows, 'row')}; {problem.rule}")
        lines += [f"    {example}" for example in problem.examples]
    return lines


@command("models", "List the embedding models that can be used here.", "sqlrag models", "sqlrag models --format json")
def models(form: FormatName = Format.table) -> None:
    """List the embedding providers that can be used here, why others cannot, and the models that need no network."""
    from sqlrag.embedders.base import models

    found = models()
    if form is Format.json:
        write_json({name: [row._asdict() for row in rows] for name, rows in found._asdict().items()})
    elif form is Format.csv:
        ready = [{"name": model.provider, "usable": True, "ready_model": model.model_name} for model in found.ready]
        write_csv([*(provider._asdict() for provider in found.providers), *ready], _COLUMNS)
    else:
        write(_text(found))


_COLUMNS = ["name", "usable", "reason", "ready_model"]


def _text(found: Models) -> str:
    width = max(len(provider.name) for provider in found.providers) + 2
    lines = ["Providers (--provider; auto is onnx):"]
    lines += [
        f"  {provider.name:<{width}}{'usable' if provider.usable else 'not usable: ' + provider.reason}"
        for provider in found.providers
    ]
    lines += ["", "Models that are available here without network (--model):"]
    lines += [f"  {model.provider:<{width}}{model.model_name}" for model in found.ready] or ["  none"]
    return "\n".join(lines)


class Method(StrEnum):
    """How the coordinates are computed."""

    pca = "pca"
    umap = "umap"


class Level(StrEnum):
    """What a point is."""

    chunk = "chunk"
    document = "document"


class Theme(StrEnum):
    """Background of a picture."""

    light = "light"
    dark = "dark"


def _clusters(value: str) -> str:
    if value not in ("auto", "hdbscan", "none") and not value.isdecimal():
        raise typer.BadParameter(f"{value!r} is not a number, auto, hdbscan or none.")
    return value


@command(
    "map",
    "Draw a map of a file.",
    "sqlrag map kb.duckdb",
    "sqlrag map kb.duckdb --method umap --html map.html --png map.png",
)
def draw_map(
    file: File = None,
    db: DbInstead = None,
    method: Annotated[
        Method,
        option("--method", help="How coordinates are computed; umap needs the extra explore.", show_default=True),
    ] = Method.pca,
    level: Annotated[Level, option("--level", help="What a point is.", show_default=True)] = Level.chunk,
    clusters: Annotated[
        str,
        option("--clusters", help="A number, auto, hdbscan or none.", callback=_clusters, show_default=True),
    ] = "auto",
    html: Annotated[Path | None, option("--html", metavar="FILE", help="Write an interactive page as well.")] = None,
    png: Annotated[Path | None, option("--png", metavar="FILE", help="Write a picture as well.")] = None,
    parquet: Annotated[
        Path | None, option("--parquet", metavar="DIR", help="Write Parquet for SQLRooms' viewer as well.")
    ] = None,
    theme: Annotated[Theme, option("--theme", help="Background of the picture.", show_default=True)] = Theme.light,
    form: FormatName = Format.table,
) -> None:
    """Draw a map on which similar texts are close to each other, store it in the file, and print its clusters.

    It is stored in the table corpus_map and replaces an earlier map. Outputs that exist are replaced.
    """
    from sqlrag.explore.map import corpus_map

    path = one_file(file, db)
    wanted: Any = int(clusters) if clusters.isdecimal() else None if clusters == "none" else clusters
    if png:
        from sqlrag.explore.plot import plot_map  # before the long work: matplotlib may be missing
    drawn = corpus_map(path, method=method.value, level=level.value, clusters=wanted)
    written: list[Path] = []
    if html:
        from sqlrag.explore.viewer import export_map_html

        written.append(export_map_html(path, html, overwrite=True))
    if png:
        plot_map(drawn, theme=theme.value).savefig(png)
        written.append(png)
    if parquet:
        from sqlrag.explore.viewer import export_map_parquet

        written.append(export_map_parquet(path, parquet, overwrite=True).path)
    for output in written:
        write_message(f"{output} written")
    write_rows(drawn.topics(), ["cluster", "points", "label"], form, repr(drawn))
