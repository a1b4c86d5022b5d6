"""``sqlrag.toml``: defaults of the command line's options, and the collections of a file with their folders."""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
import re
import tomllib
from contextlib import suppress
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import typer
from typer.core import TyperCommand

from sqlrag.arguments import guessed
from sqlrag.cli.printing import write_message
from sqlrag.errors import InputError, NotFoundError, SqlragError
from sqlrag.ranking.plan import OPTIONS
from sqlrag.search.open import is_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FILE_NAME = "sqlrag.toml"

VARIABLE = "SQLRAG_CONFIG"

_MOST_BYTES = 2**20

_FOLDERS = ("build", "prepare-embeddings", "update", "watch")

_SEARCHES = ("search", "hybrid-query", "vector-query", "lexical-query", "explain")

# The tables: the commands that read one, None for all, and its keys, None for every option of them. A key is an option
# of the command line by its long name, with "_" for "-".
_TABLES: dict[str, tuple[tuple[str, ...] | None, tuple[str, ...] | None]] = {
    "store": (None, ("file", "wait", "memory_limit")),
    "embedding": ((*_FOLDERS, "index-rows", "reembed"), ("model", "provider", "base_url", "api_key_env")),
    "chunking": (_FOLDERS, ("chunk_size", "chunk_overlap", "chunk_unit", "markdown", "headers")),
    "index": (_FOLDERS, ("header_weight", "stemmer", "llama_index")),
    "documents": (_FOLDERS, ("pattern", "ignore", "max_bytes", "skip_duplicates")),
    "search": (_SEARCHES, tuple(OPTIONS)),
    "ask": (("ask", "prompt"), None),
    "serve": (("serve",), None),
    "mcp": (("mcp",), None),
}

_COLLECTION = ("folder", "pattern", "ignore")

# Of one call, not of a project.
_OF_A_CALL = {"db", "format", "quiet", "sql", "timings", "explain", "request_id", "help", "model"}

# The environment variables that decide before the file, where the option itself does not name them.
_VARIABLES = {"wait": "SQLRAG_WAIT_SECONDS", "openai": "OPENAI_BASE_URL", "ollama": "OLLAMA_HOST"}


class _Option(NamedTuple):
    """An option of a command: its parameter, the type of a value, whether it takes several, and what ``init`` shows."""

    parameter: str
    kind: Any = str
    many: bool = False
    least: float | None = None
    most: float | None = None
    default: Any = None
    help: str = ""

    def example(self, key: str) -> str:
        """Return the default, else an example that says that it is one, as TOML."""
        if self.default in (None, inspect.Parameter.empty):
            return f"{json.dumps(_EXAMPLES[key])}  # an example"
        return json.dumps(self.default.value if isinstance(self.default, Enum) else self.default)


# What ``init`` shows of the keys that have no default of their own.
_EXAMPLES: dict[str, Any] = {
    "api_key_env": "MY_API_KEY",
    "memory_limit": "2GB",
    "wait": 10,
    "model": "BAAI/bge-small-en-v1.5",
    "base_url": "http://localhost:11434/v1",
    "chunk_overlap": 64,
    "markdown": True,
    "headers": True,
    "pattern": ["*.md"],
    "ignore": ["drafts/"],
    "per_document": 2,
    "vector_top_k": 100,
    "lexical_top_k": 100,
    "collection": ["guides"],
    "tags_any": ["howto", "faq"],
    "tags_all": ["howto"],
    "metadata": ["year=2024"],
    "heading_weight": 3,
    "field": ["text"],
    "min_similarity": 0.3,
    "chat_model": "qwen3:4b",
    "chat_base_url": "http://localhost:11434/v1",
    "rerank": "cosine",
    "diversity": 0.3,
    "template": "./prompt.jinja",
    "system": "Answer in one paragraph.",
    "temperature": 0.2,
    "stop": ["END"],
    "allow_host": ["search.example.org"],
    "cors": ["http://localhost:3000"],
    "access_log": "./access.log",
    "input_dir": "docs",
    "threads": 4,
    "memory": 256,
}

# Keys that are no option of a command.
NO_OPTIONS = {
    "file": _Option("file", Path, help="The search file that commands read and write."),
    "api_key_env": _Option("api_key_env", default="MY_API_KEY", help="The environment variable that holds the key."),
}

_SECRET = re.compile(r"(^|_)(api_?key|key|token|secret|password|passwd)$", re.IGNORECASE)


class Source(NamedTuple):
    """A folder to read, with the name of its collection and what is read of it."""

    collection: str
    folder: Path
    pattern: list[str] | None = None
    ignore: list[str] | None = None


class Config(NamedTuple):
    """A configuration that was read and checked: values by table and key, and the collections."""

    path: Path
    text: str
    named: bool
    values: dict[str, dict[str, Any]]
    collections: list[Source]

    def refuse(self, table: str, key: str, why: str) -> NoReturn:
        """Raise InputError for a key, with the line that it is in where that is found."""
        head = re.escape(table).replace(r"\.", r"[ \"']*\.[ \"']*")
        line_of_key = rf"^[ \t]*\[*[ \"']*{re.escape(key)}\b"
        found = re.search(rf"^[ \t]*\[[ \"']*{head}[ \"']*\](?s:.*?){line_of_key}", self.text, re.MULTILINE)
        found = found or re.search(line_of_key, self.text, re.MULTILINE)
        line = f", line {self.text.count(chr(10), 0, found.end()) + 1}" if found else ""
        raise InputError(f"{self.path}{line}: {f'[{table}] ' if table else ''}{key} {why}")


# The file that was named on the command line or by the variable, False for --no-config, None to look for one; and what
# is in force for the command that runs.
given: Path | bool | None = None

in_force: Config | None = None

# The defaults that it gave to the parameters of the command.
applied: dict[str, Any] = {}

# The functions of the commands, by name.
commands: dict[str, Any] = {}


def find(places: Sequence[Path] = ()) -> Path | None:
    """Return the configuration for the files and folders of a command, None where there is none.

    It is the one that was named; else that beside a place, or in it; else that of the working folder or the nearest of
    its parents, up to the root of the repository or the home folder. Outside of both only the working folder counts:
    others may write above it.
    """
    if given is not None:
        return given if isinstance(given, Path) else None
    here, home = Path.cwd(), Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() may raise
    above = [here, *here.parents]
    last = next((n for n, folder in enumerate(above) if folder == home or (folder / ".git").exists()), 0)
    folders = [place if place.is_dir() else place.parent for place in places]
    for folder in (*folders, *above[: last + 1]):
        with suppress(PermissionError):  # what is in such a folder cannot be known
            if (folder / FILE_NAME).is_file():
                return folder / FILE_NAME
    return None


def load(path: Path) -> Config:
    """Read a configuration and check every key and value of it.

    Raises
    ------
    NotFoundError
        There is no such file.
    InputError
        It cannot be read or is no TOML; a key is unknown, a value wrong, or something in it a secret.
    """
    if not path.exists():
        raise NotFoundError(f"There is no configuration {path}. `sqlrag init` writes one.")
    if not path.is_file():
        raise InputError(f"The configuration {path} is not a file.")
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        text = data.decode("utf-8-sig")
        tables = tomllib.loads(text) if len(data) <= _MOST_BYTES else {}
    except OSError as error:
        why = error.strerror or error
        raise InputError(f"The configuration {path} cannot be read: {why}. --no-config does without it.") from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {line}: this is not UTF-8, and a TOML file is. Save it as UTF-8.") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        twice = " Each table stands once: write the keys below the one that is there." if "twice" in str(error) else ""
        raise InputError(f"{path} is not TOML: {error}.{twice}") from error
    if len(data) > _MOST_BYTES:
        raise InputError(f"{path} has more than {_MOST_BYTES:,} bytes, which no configuration has.")
    config = Config(path.absolute(), text.replace("\r\n", "\n"), given == path, {}, [])
    known = known_keys()
    for table, values in tables.items():
        if table == "collections":
            config.collections.extend(_collections(config, values))
            continue
        if table not in known:
            _refuse_unknown(config, "", table, known, values)
        if not isinstance(values, dict):
            config.refuse("", table, f"is a table, written [{table}], not {values!r:.60}.")
        for key, value in values.items():
            if key not in known[table]:
                _refuse_unknown(config, table, key, known, value)
            config.values.setdefault(table, {})[key] = _checked(config, table, key, value, known[table][key])
    return config


@functools.cache
def _options_of(name: str) -> dict[str, _Option]:
    """Return the options of a command by key: the last of their long names."""
    found, given = {}, inspect.signature(commands[name]).parameters
    for parameter, hint in get_type_hints(commands[name], include_extras=True).items():
        told = [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, typer.models.OptionInfo)]
        # In an annotation the first of its names is where a default would be.
        flags = [str(one) for info in told for one in (info.default, *(info.param_decls or ()))]
        flags = [one for one in flags if one.startswith("--")]
        if not flags:
            continue
        kind = hint.__origin__
        kinds = [one for one in get_args(kind) if one is not type(None)]
        kind = kinds[0] if isinstance(kind, UnionType) else kind
        many = get_origin(kind) is list
        key = flags[-1].partition("/")[0][2:].replace("-", "_")
        found[key] = _Option(
            parameter,
            get_args(kind)[0] if many else kind,
            many,
            told[0].min,
            told[0].max,
            given[parameter].default,
            told[0].help or "",
        )
    return found


@functools.cache
def known_keys() -> dict[str, dict[str, dict[str, _Option]]]:
    """Return the options by table, key and command."""
    found: dict[str, dict[str, dict[str, _Option]]] = {}
    for table, (names, keys) in _TABLES.items():
        found[table] = {key: {} for key in NO_OPTIONS if keys and key in keys}
        for name in commands if names is None else (name for name in names if name in commands):
            for key, one in _options_of(name).items():
                is_own = key not in _OF_A_CALL or table == "embedding"
                if is_own and (keys is None or key in keys or one.parameter in keys):
                    found[table].setdefault(key, {})[name] = one
    return found


def _refuse_unknown(config: Config, table: str, key: str, known: Mapping[str, Any], value: object) -> NoReturn:
    if _SECRET.search(key) and isinstance(value, str):
        config.refuse(
            table, key, "looks like a secret, and a configuration is no place for one: put it into an environment "
            'variable and name that one, as in api_key_env = "MY_API_KEY".',
        )  # fmt: skip
    valid = sorted(known[table]) if table else sorted([*known, "collections"])
    near = [one for one in [guessed(key, valid)] if one] or get_close_matches(key, valid, 1, 0.6)
    homes = [f"[{name}]" for name in known if key in known[name]]
    hint = f"It belongs into {' or '.join(homes)}. " if homes else f"Did you mean {near[0]}? " if near else ""
    what = "key" if table else "table"
    config.refuse(table, key, f"is an unknown {what}. {hint}Valid are: {', '.join(valid)}.")


def _checked(config: Config, table: str, key: str, value: Any, options: Mapping[str, _Option]) -> Any:
    """Return a value as the options take it; paths are of the configuration's folder."""
    option = next(iter(options.values()), NO_OPTIONS.get(key, _Option(key)))
    choices = [one.value for one in option.kind] if issubclass(option.kind, Enum) else None
    wanted: Any = {int: int, bool: bool, float: (int, float)}.get(option.kind, str)
    called = {int: "a whole number", bool: "true or false", float: "a number"}.get(option.kind, "a text in quotes")
    if option.least is not None:
        called += f" of {option.least} to {option.most}" if option.most is not None else f", {option.least} or more"
    called = f"one of {', '.join(choices)}" if choices else called + ", or a list of them" * option.many
    items = value if option.many and isinstance(value, list) else [value]
    for one in items:
        right = isinstance(one, wanted) and isinstance(one, bool) == (wanted is bool)
        right = right and (choices is None or one in choices) and (not isinstance(one, float) or math.isfinite(one))
        if not right or (option.least is not None and one < option.least) or one > (option.most or one):
            config.refuse(table, key, f"must be {called}, not {value!r:.60}.")
        if key.endswith("_env") and not re.fullmatch(r"[A-Za-z_]\w*", one):
            config.refuse(table, key, "must be the name of an environment variable, such as MY_API_KEY; not a key.")
        if isinstance(one, str) and "://" in one:
            _check_address(config, table, key, one)
    if key == "file" and not all(one.strip() for one in items):
        config.refuse(table, key, "is blank: leave it out, or name a path.")
    if wanted is str:
        items = [
            _below(config, one)
            if (option.kind is Path and not is_address(one)) or one.startswith(("./", "../", "~/"))
            else one
            for one in items
        ]
    return items if option.many else items[0]


def _check_address(config: Config, table: str, key: str, address: str) -> None:
    from sqlrag.embedders.remote import is_this_machine

    if urlsplit(address).password:
        config.refuse(table, key, "holds a password. Leave it out, and pass the address in an environment variable.")
    if not config.named and not is_this_machine(address):
        config.refuse(
            table, key, "names another machine, to which texts and keys would be sent. A configuration that is merely "
            f"found may be anybody's: name it by --config {config.path} or {VARIABLE}={config.path}.",
        )  # fmt: skip


def _below(config: Config, path: str) -> str:
    return str(config.path.parent / os.path.expanduser(path))  # noqa: PTH111


def _collections(config: Config, tables: Any) -> Iterator[Source]:
    seen: dict[str, str] = {}
    if not isinstance(tables, dict):
        config.refuse("", "collections", "is a table of tables, written [collections.NAME].")
    for name, values in tables.items():
        table = f"collections.{name}"
        if not isinstance(values, dict) or not isinstance(values.get("folder"), str):
            config.refuse("collections", name, 'needs its folder: folder = "docs".')
        if not values["folder"].strip():
            config.refuse(table, "folder", 'is blank: folder = "docs", or "." for that of the configuration.')
        if not name.strip() or set(name) & set(":#/") or not name.isprintable():
            config.refuse("collections", name, "is no name of a collection: printable, without ':', '#' and '/'.")
        for key, value in values.items():
            if key not in _COLLECTION:
                _refuse_unknown(config, table, key, {table: _COLLECTION}, value)
            items = value if isinstance(value, list) else [value]
            if not all(isinstance(one, str) for one in items):
                config.refuse(table, key, f"must be a text in quotes, or a list of them, not {value!r:.60}.")
        folder = Path(_below(config, values["folder"]))
        place = os.path.realpath(folder)
        if place in seen:
            config.refuse(table, "folder", f"is that of [collections.{seen[place]}]; a folder has one collection.")
        seen[place] = name
        lists = {
            key: [values[key]] if isinstance(values[key], str) else values[key]
            for key in ("pattern", "ignore")
            if key in values
        }
        yield Source(name, folder, **lists)


def sources(
    folder: Path | None,
    collection: str | None,
    pattern: list[str] | None,
    ignore: list[str] | None,
    *,
    of_those_there: bool = False,
) -> list[Source]:
    """Return what a command reads: the folder that was named, else those of the collections that are configured.

    With ``of_those_there`` a folder that is not there is left out, in place of an error.

    A folder of a configured collection is that collection also where it is named. Patterns of a collection replace
    those for all of them, and its list to ignore is added; what an option of the command ignores replaces both.
    """
    known = in_force.collections if in_force else []
    if folder is not None:
        place = os.path.realpath(folder)
        same = [one for one in known if os.path.realpath(one.folder) == place]
        wanted = [one._replace(folder=folder) for one in same if collection in (None, one.collection)]
        wanted = wanted or [Source(collection or "default", folder)]
    else:
        wanted = [one for one in known if collection in (None, one.collection)]
    if in_force and known and not wanted:
        raise typer.BadParameter(f"{in_force.path} has no collection {collection!r}.")
    if not wanted:
        raise typer.BadParameter(f"Name a folder, such as docs, or collections in {FILE_NAME}: sqlrag init")
    if of_those_there and folder is None:
        wanted = [one for one in wanted if one.folder.is_dir()]
    for one in wanted if folder is None else ():
        if in_force and not one.folder.is_dir():
            in_force.refuse(f"collections.{one.collection}", "folder", f"does not exist: {one.folder} is no folder.")
    documents = in_force.values.get("documents", {}) if in_force else {}
    of_all = documents.get("pattern")
    is_option = ignore and ignore != documents.get("ignore")
    return [
        one._replace(
            pattern=(pattern if pattern and pattern != of_all else one.pattern or pattern) or None,
            ignore=ignore if is_option else [*(ignore or ()), *(one.ignore or ())] or None,
        )
        for one in wanted
    ]


class Configured(TyperCommand):
    """A command whose options default to those of the configuration; the environment's decide before it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Find and read the configuration before the options are parsed."""
        global in_force, applied
        in_force, applied = None, {}
        if not (ctx.resilient_parsing or {"-h", "--help"} & {*args} or ctx.info_name in ("init", "doctor")):
            try:
                self._apply(ctx, args)
            except SqlragError as error:
                write_message(f"error: {error}")
                raise typer.Exit(2 if isinstance(error, InputError) else 1) from None
        return super().parse_args(ctx, args)

    def _apply(self, ctx: Any, args: list[str]) -> None:
        global in_force, applied
        named: dict[str, Any] = {}
        with suppress(Exception):  # what cannot be parsed is reported by the parser itself
            named = self.make_parser(ctx).parse_args(args=[*args])[0]
        places = _places(named)
        path = find([*places.values()])
        if path is None:
            return
        in_force = load(path)
        ctx.default_map = applied = defaults(in_force, ctx.info_name, places)
        use_key(in_force, ctx.info_name)
        if ctx.default_map and not named.get("quiet"):
            write_message(f"note: settings of {in_force.path}")


def _places(named: Mapping[str, Any]) -> dict[str, Path]:
    """Return the files and folders that a command line names, files first."""
    found: dict[str, Path] = {}
    for name in ("output", "db", "file", "places", "folder", "sources"):
        values = named.get(name) if isinstance(named.get(name), (list, tuple)) else [named.get(name)]
        for value in (one for one in values or () if isinstance(one, str) and one and not is_address(one)):
            place = Path(value).expanduser()
            is_file = name not in ("folder", "places", "sources") or place.is_file() or place.suffix == ".duckdb"
            if name == "sources" and is_file:
                continue  # a table is read
            found.setdefault("file" if is_file else "folder", place)
    return dict(sorted(found.items()))


def defaults(config: Config, name: str, places: Mapping[str, Path]) -> dict[str, Any]:
    """Return the defaults of a command's parameters, by their names."""
    found: dict[str, Any] = {}
    for table, keys in known_keys().items():
        for key, value in config.values.get(table, {}).items():
            if key == "base_url" and table == "embedding":
                variable = _VARIABLES.get(config.values[table].get("provider", ""), "")
            else:
                variable = _VARIABLES.get(key, "")
            if name in keys[key] and not os.environ.get(variable, "").strip():
                found[keys[key][name].parameter] = value
    own = {one.parameter: one for one in _options_of(name).values()}
    file = config.values.get("store", {}).get("file")
    target = "db" if "db" in own else "output" if name in (_TABLES["embedding"][0] or ()) else ""
    if file and target and "file" not in places and (target == "output" or not os.environ.get("SQLRAG_DB")):
        found[target] = [file] if own[target].many else file
    return found


def use_key(config: Config, command: str) -> None:
    """Have the key that ``api_key_env`` names sent to the server of ``[embedding]``, and to no other."""
    values = config.values.get("embedding", {})
    variable = values.get("api_key_env")
    if variable is None:
        return
    key = os.environ.get(variable, "").strip()
    if not key:
        if command in (_TABLES["embedding"][0] or ()):
            config.refuse("embedding", "api_key_env", f"names {variable}, which is not set. Set it to the key.")
        write_message(f"note: {variable}, which {config.path} names for the key, is not set or is empty.")
        return
    from sqlrag.embedders.base import configured_keys

    url = values.get("base_url")
    configured_keys[values.get("provider", "openai"), url.rstrip("/") if url else None] = key
