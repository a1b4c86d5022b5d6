"""The options that several commands of the command line share: one name and one meaning each."""

from __future__ import annotations

import json
import os
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from sqlrag.console.printing import Format
from sqlrag.network import is_url


class FusionName(str, Enum):
    """How both rankings become one."""

    rrf = "rrf"
    weighted = "weighted"
    convex = "convex"


class ModeName(str, Enum):
    """Which search: both legs or one."""

    hybrid = "hybrid"
    vector = "vector"
    lexical = "lexical"


class FieldName(str, Enum):
    """Where the words of a question are looked for."""

    text = "text"
    heading_path = "heading_path"


class Unit(str, Enum):
    """What a chunk's size counts."""

    tokens = "tokens"
    chars = "chars"


class EngineName(str, Enum):
    """What reads, chunks and embeds: this process, or the workers of Ray."""

    local = "local"
    ray = "ray"


def option(*names: str, help: str, show_default: bool = False, **more: Any) -> Any:  # noqa: A002 - typer's own word
    """Return an option whose default is shown only where asked for."""
    return typer.Option(*names, help=help, show_default=show_default, **more)


def _metadata(pairs: list[str]) -> list[str]:
    for pair in pairs or []:
        if not pair.partition("=")[0] or "=" not in pair:
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE, such as audience=engineers or year=2024.")
    return pairs


def metadata_fields(pairs: list[str] | None) -> dict[str, Any] | None:
    """Return KEY=VALUE pairs as a mapping; a value that is JSON is what it says, any other is text."""
    fields = {}
    for pair in pairs or []:
        key, _, value = pair.partition("=")
        try:
            fields[key] = json.loads(value)
        except ValueError:
            fields[key] = value
    return fields or None


def _valid_text(text: str) -> str:
    """Replace bytes that are no UTF-8, which Python hands on as lone surrogates."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def place(text: str) -> Any:
    """Return the path of a file, or the URL of a store in Postgres as it is.

    Typer knows no unions, so what takes either is annotated as a path.
    """
    return text if is_url(text) else Path(text)


def _of_environment(files: list[Any] | None) -> list[Any]:
    """Return the files that were named, or else those of SQLRAG_DB, which are separated as in PATH.

    Typer would separate them at blanks, and cut a URL.
    """
    if files:
        return files
    named = os.environ.get("SQLRAG_DB", "")
    found = [named] if is_url(named) else [Path(part) for part in named.split(os.pathsep) if part]
    if not found:
        raise typer.BadParameter("Name a file, such as --db kb.duckdb, or set SQLRAG_DB.")
    return found


Text = Annotated[str, typer.Argument(help="The question or words.", callback=_valid_text, show_default=False)]
Db = Annotated[
    Path,
    option("--db", metavar="FILE", envvar="SQLRAG_DB", parser=place, help="The file to search, or a URL of Postgres."),
]
Dbs = Annotated[
    list[Path],
    option(
        "--db",
        metavar="FILE",
        parser=place,
        callback=_of_environment,
        help="The file to search, or a URL of Postgres. Several files are searched as one. [env var: SQLRAG_DB]",
    ),
]
NO_FILES: list[Path] = []  # then those of the environment
File = Annotated[Path | None, typer.Argument(metavar="FILE", help="The file.", show_default=False, parser=place)]
Wait = Annotated[float | None, option("--wait", help="Seconds to wait for other processes. [2]")]
DbInstead = Annotated[
    Path | None, option("--db", metavar="FILE", envvar="SQLRAG_DB", parser=place, help="The same as FILE.")
]
FormatName = Annotated[Format, option("--format", "-f", help="Form of the results.", show_default=True)]
TopK = Annotated[int, option("--top-k", "-k", help="How many results.", show_default=True)]
Collection = Annotated[
    list[str] | None, option("--collection", metavar="NAME", help="Search this collection only. Repeatable.")
]
TagsAny = Annotated[
    list[str] | None,
    option("--tag", "--tags-any", metavar="TAG", help="With at least one of these tags. Repeatable."),
]
TagsAll = Annotated[list[str] | None, option("--tags-all", metavar="TAG", help="With all of these tags. Repeatable.")]
Metadata = Annotated[
    list[str] | None,
    option(
        "--metadata",
        metavar="KEY=VALUE",
        callback=_metadata,
        help="A metadata field equals this value (JSON such as 2024 or true; else text), or meets operators, such as "
        "'year={\"$gte\": 2020}'. Repeatable.",
    ),
]
K1 = Annotated[float, option("--k1", help="BM25: saturation of repeated words.", show_default=True)]
B = Annotated[float, option("--b", help="BM25: length normalisation, 0 to 1.", show_default=True)]
HeadingWeight = Annotated[
    float | None, option("--heading-weight", help="BM25: weight of the headings beside the text. [the file's own]")
]
Fields = Annotated[
    list[FieldName] | None, option("--field", help="Look for the words in this field only. Repeatable. [both]")
]
Exact = Annotated[bool, option("--exact", help="Compare with every vector, without the preselection by sign codes.")]
MinSimilarity = Annotated[
    float | None, option("--min-similarity", help="Drop candidates of the vector leg below this cosine.")
]
SourceDocs = Annotated[bool, option("--source-docs", help="Put the whole source document into each result.")]
Model = Annotated[str | None, option("--model", help="Only to make sure: refuse a file of another model.")]
Sql = Annotated[bool, option("--sql", help="Print the SQL that gives the same rows in the DuckDB shell; no search.")]
Timings = Annotated[
    bool, option("--timings", help="Tell the time of import, open, load, embed and search, on standard error.")
]
