"""The options that several commands of the command line share: one name and one meaning each."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import typer

from sqlrag.cli.printing import Format, write_message
from sqlrag.ranking.plan import ALIASES, FIELDS, OPTIONS
from sqlrag.search.open import is_address

F = TypeVar("F", bound=Callable[..., Any])


class Unit(StrEnum):
    """What a chunk's size counts."""

    tokens = "tokens"
    chars = "chars"


class EngineName(StrEnum):
    """What reads, chunks and embeds: this process, or Ray workers."""

    local = "local"
    ray = "ray"


def option(*names: str, help: str, show_default: bool = False, **more: Any) -> Any:  # noqa: A002 - typer's own word
    """Return an option whose default is shown only on request."""
    return typer.Option(*names, help=help, show_default=show_default, **more)


_OPERATORS = {"<=": "$lte", ">=": "$gte", "!=": "$ne", "<": "$lt", ">": "$gt"}

# A comparison as SQL has it, in place of a field and its value.
_COMPARISON = re.compile(r"\s*([^=<>!]+?)\s*([<>!]=|[<>](?!.*=))\s*(.*?)\s*")

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")


def _metadata(pairs: list[str]) -> list[str]:
    for pair in pairs or []:
        if comparison := _COMPARISON.fullmatch(pair):
            name, operator, value = comparison.groups()
            given = value if _NUMBER.fullmatch(value) else json.dumps(value, ensure_ascii=False)
            compared = f'{name}={{"{_OPERATORS[operator]}": {given}}}'
            raise typer.BadParameter(f"{pair!r} names no field. To compare, write '{compared}'.")
        if not pair.partition("=")[0] or "=" not in pair:
            operator = "'year={\"$lt\": 2024}'"
            raise typer.BadParameter(
                f"{pair!r} is not KEY=VALUE, such as audience=engineers, or {operator} to compare."
            )
        if pair.partition("=")[2].lstrip().startswith("{"):
            try:
                json.loads(pair.partition("=")[2])
            except ValueError as error:
                raise typer.BadParameter(
                    f"{pair!r} begins as an operator does, such as 'year={{\"$gt\": 2020}}', and is not JSON: {error}."
                ) from error
    return pairs


def _names(title: str, names: Sequence[str]) -> Any:
    """Return an enum of names, typer's form of a choice."""
    return Enum(title, dict(zip(names, names, strict=True)), type=str)


# Search options whose form here differs from --its-name of its own type: the flags, the type ("kind"), the end of the
# help ("more"), and further arguments of typer.Option.
_LISTED: dict[str, Any] = {"kind": list[str] | None, "more": " Repeatable."}

_SHELL: dict[str, dict[str, Any]] = {
    "top_k": {"flags": ("--top-k", "-k")},
    "collection": {**_LISTED, "metavar": "NAME"},
    "tags_any": {**_LISTED, "flags": ("--tag", "--tags-any"), "metavar": "TAG"},
    "tags_all": {**_LISTED, "metavar": "TAG"},
    "metadata": {**_LISTED, "metavar": "KEY=VALUE", "callback": _metadata},
    "fields": {
        "flags": ("--field",),
        "kind": list[_names("fields", FIELDS)] | None,  # type: ignore[misc]
        "more": " Repeatable. [both]",
    },
    "conjunctive": {"flags": ("--all-words",)},
    # A person wants to see several documents, a program what every other surface gives.
    "per_document": {
        "kind": int | None,
        "default": None,
        "more": " Not with --sql. [2 in the table for people, 0 in json and csv]",
    },
    "context": {"more": " Not with --sql."},
    "include_source_docs": {"flags": ("--source-docs",)},
    "model_name": {"flags": ("--model",)},
}

WITHOUT_FLAG = {
    "rrf_weights": "it is a pair of numbers",
    "query_vector": "it is a vector",
    "codes_pool": "only the store's methods have it",
}


def search_option(name: str) -> Any:
    """Return the command-line option for a search option, with the help text of the table of options."""
    arguments = dict(_SHELL.get(name, {}))
    for name_of_python in ("kind", "default"):
        arguments.pop(name_of_python, None)
    flags = arguments.pop("flags", (f"--{name.replace('_', '-')}",))
    own = ALIASES.get(name)
    if own:  # another name, which no help shows
        return option(*flags, help="", hidden=True)
    text = OPTIONS[name].brief + arguments.pop("more", "")
    return option(*flags, help=text, show_default=bool(OPTIONS[name].default), **arguments)


def flags_of(taken: Any) -> tuple[str, ...]:
    """Return the search options that the command line has, in the order of the table."""
    aliases = {name: alias for alias, name in ALIASES.items()}
    names = [one for name in OPTIONS for one in (name, aliases.get(name, ""))]
    return tuple(name for name in names if name in taken.__optional_keys__ and name not in WITHOUT_FLAG)


def with_parameters_of(*commands: Callable[..., Any], **defaults: Any) -> Callable[[F], F]:
    """Add the options of other commands to one that has ``**options``, with these defaults; the first ones win."""

    def add(function: F) -> F:
        own = _annotated(function)
        own.pop("options")
        for name, one in (pair for command in commands for pair in _annotated(command).items()):
            if not any(isinstance(mark, typer.models.ArgumentInfo) for mark in one.annotation.__metadata__):
                own.setdefault(name, one.replace(default=defaults.get(name, one.default)))
        return _with_parameters(function, own.values())

    return add


def _annotated(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a command, whose annotations are no text any more."""
    hints = get_type_hints(function, include_extras=True)
    return {name: one.replace(annotation=hints[name]) for name, one in inspect.signature(function).parameters.items()}


def _with_parameters(function: F, parameters: Iterable[inspect.Parameter]) -> F:
    made = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    function.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]
    function.__annotations__ = {one.name: one.annotation for one in made}
    return function


def with_options(*names: str, after: str) -> Callable[[F], F]:
    """Add these options of the table to a command that has ``**options``, after its parameter ``after``.

    A parameter of the command that is among the names is moved to its place there.
    """

    def add(function: F) -> F:
        own = _annotated(function)
        last = list(own).index(after)
        lead, rest = list(own)[: last + 1], list(own)[last + 1 :]
        made = {name: _parameter(name) for name in names if name not in own}
        order = [*(n for n in lead if n not in names), *names, *(n for n in rest if n not in (*names, "options"))]
        return _with_parameters(function, [(own | made)[name] for name in order])

    return add


def _parameter(name: str) -> inspect.Parameter:
    known = OPTIONS[ALIASES.get(name, name)]
    shell = _SHELL.get(name, {})
    kind, default = shell.get("kind", known.kind), shell.get("default", known.default)
    if get_origin(kind) is Literal:  # typer supports Literal from version 0.19
        kind = _names(name, get_args(kind))
        default = kind(default)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, search_option(name)]
    )


def with_wait(function: F) -> F:
    """Add --wait to a command that opens a file and does not take it; what runs the command puts it into effect."""
    own = _annotated(function)
    if "wait" in own or not own.keys() & {"db", "file", "files", "source"}:
        return function
    wait = inspect.Parameter("wait", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Wait)
    return _with_parameters(function, [*own.values(), wait])


def chosen(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as the functions take them: names for choices, None for empty lists, metadata as a mapping."""

    def plain(name: str, value: Any) -> Any:
        if name == "metadata":
            return metadata_fields(value)
        if isinstance(value, list):
            return [plain("", one) for one in value] or None
        return value.value if isinstance(value, Enum) else value

    return {name: plain(name, value) for name, value in options.items()}


def metadata_fields(pairs: list[str] | None) -> dict[str, Any] | None:
    """Return KEY=VALUE pairs as a filter that meets all of them; a value that is JSON is parsed, any other is text."""
    fields: list[tuple[str, Any]] = []
    for pair in pairs or []:
        key, _, value = pair.partition("=")
        try:
            fields.append((key, json.loads(value)))
        except ValueError:
            fields.append((key, value))
    if len(dict(fields)) < len(fields):  # such as both ends of a range
        return {"$and": [{key: value} for key, value in fields]}
    return dict(fields) or None


def _valid_words(words: list[str]) -> list[str]:
    """Replace bytes that are not UTF-8; Python passes them as lone surrogates."""
    return [word.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for word in words]


def place(text: str) -> Any:
    """Return the path of a file, or the URL of a store in Postgres as it is.

    Typer supports no unions, so parameters that take either are annotated as a path.
    """
    return text if is_address(text) else Path(text)


def _of_environment(ctx: typer.Context, files: list[Any] | None) -> list[Any]:
    """Return the files that were named, or else those of SQLRAG_DB, which are separated as in PATH.

    Typer would split at blanks, and break a URL.
    """
    if ctx.resilient_parsing:  # a shell asks how the line goes on
        return files or []
    return files or from_environment() or only_file_here()


def from_environment() -> list[Any]:
    """Return the files of SQLRAG_DB."""
    named = os.environ.get("SQLRAG_DB", "")
    return [named] if is_address(named) else [Path(part) for part in named.split(os.pathsep) if part]


def only_file_here() -> list[Any]:
    """Return the one file of the working folder that may be a store, and say so; refuse to choose among several."""
    here = sorted(Path().glob("*.duckdb"))
    if len(here) != 1:
        known = files_here() or " There is none here; sqlrag build FOLDER makes one."
        raise typer.BadParameter(f"Name a file, such as --db kb.duckdb, or set SQLRAG_DB.{known}")
    write_message(f"note: the file is {here[0]}, the only one here")
    return list(here)


def files_here() -> str:
    """Return a sentence with the files of the working folder that may be stores, "" where there is none."""
    here = sorted(Path().glob("*.duckdb"))
    verb = "are" if here[1:] else "is"
    return f" Here {verb} {', '.join(map(str, here[:5]))}{' …' * bool(here[5:])}." if here else ""


def where(files: list[Path]) -> Any:
    """Return the one file, or several to be searched as one."""
    return files if files[1:] else files[0]


if TYPE_CHECKING:
    Text = str  # see the decorator ``command``
else:
    Text = Annotated[
        list[str],
        typer.Argument(metavar="QUESTION", help="The question or words.", callback=_valid_words, show_default=False),
    ]

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

NO_FILES: list[Path] = []  # then those of SQLRAG_DB

File = Annotated[Path | None, typer.Argument(metavar="FILE", help="The file.", show_default=False, parser=place)]

Files = Annotated[list[Path] | None, typer.Argument(metavar="FILE", help="The file.", show_default=False, parser=place)]

_IGNORE = "Leave these out, as in .sqlragignore, such as 'drafts/'. Repeatable."

Ignore = Annotated[
    list[str] | None,
    option("--ignore", metavar="PATTERN", help=_IGNORE),
]

IgnoreAgain = Annotated[
    list[str] | None,
    option("--ignore", metavar="PATTERN", help=f"{_IGNORE} '' is nothing. [as the last time]"),
]

Force = Annotated[bool, option("--force", help="Also where more than half of the stored rows of a table are gone.")]

Wait = Annotated[float | None, option("--wait", help="Seconds to wait for other processes. [2]")]

DbInstead = Annotated[
    Path | None, option("--db", metavar="FILE", envvar="SQLRAG_DB", parser=place, help="The same as FILE.")
]

DbsInstead = Annotated[
    list[Path] | None,
    option("--db", metavar="FILE", parser=place, help="The same as FILE. [env var: SQLRAG_DB]"),
]

FormatName = Annotated[Format, option("--format", "-f", help="Form of the results.", show_default=True)]

Collection = Annotated[list[str] | None, search_option("collection")]

TagsAny = Annotated[list[str] | None, search_option("tags_any")]

TagsAll = Annotated[list[str] | None, search_option("tags_all")]

Metadata = Annotated[list[str] | None, search_option("metadata")]

Sql = Annotated[bool, option("--sql", help="Print the SQL that returns the same rows in the DuckDB shell; no search.")]

Timings = Annotated[
    bool, option("--timings", help="Print the time of import, open, load, embed and search on standard error.")
]
