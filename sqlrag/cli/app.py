"""The application: registers and runs commands, and turns failures into messages and exit codes."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import re
import shlex
import signal
import sys
import warnings
from contextlib import contextmanager
from functools import partial
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
import typer.core

from sqlrag import __version__
from sqlrag.arguments import guessed, nearest, with_commands
from sqlrag.cancellation import Stopped, Work
from sqlrag.cli import config, printing
from sqlrag.cli.options import option, with_wait
from sqlrag.cli.printing import silence_broken_pipe, write, write_message
from sqlrag.errors import InputError, SqlragError
from sqlrag.progress import shown
from sqlrag.settings import TRUST, WAIT_SECONDS, seconds_to_wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

    import duckdb

# The commands of the help: those with what they do, and the others.
_FIRST = ("demo", "build", "search", "ask", "update", "serve", "info")

_MORE = {
    "searching": "vector-query, lexical-query, explain, evaluate, prompt",
    "contents": "watch, get-source-documents, delete, embed, reembed, map",
    "sharing": "mcp, shell, attach-sql, convert, merge, publish, push, pull",
    "the file": "check, repair, backup, compact, upgrade",
    "this machine": "init, doctor, models, completion, conformance",
}

# The options that come first in the help of a command that has many, by the names of their parameters.
_USUAL = (
    *("output", "db", "mode", "chat_model", "chat_base_url", "stream", "key", "text", "title", "model", "provider"),
    *("top_k", "collection", "tags_any", "metadata", "context", "prune", "pattern", "chunk_size", "overwrite"),
    *("explain", "plan", "recommend", "form", "host", "port", "can_write", "quiet"),
)


class _Group(typer.core.TyperGroup):
    """The commands: the usual ones with what they do, the others in groups, those of old names not at all."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        options = "--version, --config, --no-config, --debug, --trust, -h"
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands[name].get_short_help_str(formatter.width)) for name in _FIRST])
        with formatter.section("More, each with -h"):
            formatter.write_dl([*_MORE.items(), ("options", options)])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if name not in self.commands and not name.startswith("-") and not ctx.resilient_parsing:
            meant = nearest(name, [*self.commands, "--help", "--version"])
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {meant!r}?" if meant else ""))
        return super().resolve_command(ctx, args)


class _Command(config.Configured):
    """A command whose help has the ten most usual options first, and each option by one name."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        shown: dict[str, dict[str, tuple[str, str]]] = {"argument": {}, "option": {}}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record:  # of two long names the first is an old one
                names = re.sub(r"--[\w-]+, (?=--)", "", record[0])
                shown[param.param_type_name][str(param.name)] = (names, record[1])
        options = shown["option"]
        first = [name for name in _USUAL if name in options][:10] if len(options) > 13 else []
        sections = {"Arguments": [*shown["argument"].values()], "Options": [options.pop(name) for name in first]}
        sections["More options" if first else "Options"] = [*options.values()]
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        single = any(one.name == "collection" and not one.multiple for one in self.params)
        if single and sum(one.partition("=")[0] == "--collection" for one in args) > 1:
            ctx.fail("--collection may be given once here: it names one collection.")
        try:
            return list(super().parse_args(ctx, args))
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")  # pydantic's, by which typer reads values
            raise
        except Exception as error:
            if getattr(error, "option_name", None) == "--db" and any(one.name == "output" for one in self.params):
                error.message = f"{error.message.removesuffix('.')}. The file to write is named by -o."  # type: ignore[attr-defined]
            elif getattr(error, "possibilities", False) is not False:
                self._name_the_option(ctx, error)
            raise

    def _name_the_option(self, ctx: Any, error: Any) -> None:
        """Have an error for an unknown option name the one that was probably meant, and no other."""
        params = self.get_params(ctx)
        flags = {str(one.name): [flag for flag in one.opts if flag.startswith("--")] for one in params}
        flags |= {flag[2:].replace("-", "_"): [flag] for one in params for flag in (*one.opts, *one.secondary_opts)}
        name = error.option_name.lstrip("-").replace("-", "_")
        meant = nearest(name, [name for name, own in flags.items() if own])
        error.possibilities = None
        if meant:
            value = f" {name}" if meant == "form" and name in [*printing.Format] else ""
            error.message = f"{error.message.removesuffix('.')}. Did you mean {flags[meant][-1]}{value}?"
        elif guessed(name, [name for name, own in flags.items() if not own]):
            error.message = f"{error.message.removesuffix('.')}. The question stands without an option."

    def invoke(self, ctx: Any) -> Any:
        flags: dict[str, tuple[str, str]] = {}
        for param in self.params:
            names = [one for one in param.opts if one.startswith("--")] or [str(param.metavar or param.name).upper()]
            for name in (str(param.name), *_OF_PYTHON.get(str(param.name), ())):
                flags[name] = (names[-1], (param.secondary_opts or names)[-1])
        printing.in_words_of_the_door = partial(_in_options, flags)
        return super().invoke(ctx)


# The parameters of commands that functions call otherwise.
_OF_PYTHON = {
    "model": ("embed_model_name", "model_name"),
    "provider": ("embedding_provider",),
    "markdown": ("use_markdown_chunking",),
    "headers": ("include_headers_in_chunks",),
    "wait": ("wait_seconds",),
    "pattern": ("patterns",),
    "doc_id": ("doc_ids",),
    "output": ("output_db",),
    "chat_base_url": ("base_url",),
}

_OF_FUNCTIONS = (
    (r"\b(prepare_embeddings|index_rows)\b(?!\()", "sqlrag build"),
    (r"\bupdate_(embeddings|rows)\b(?!\()", "sqlrag update"),
    (r"\bdelete_documents\b(?!\()", "sqlrag delete"),
    (r"\b(hybrid|vector|lexical)_query\b(?!\()", r"\1-query"),
)


def _in_options(flags: Mapping[str, tuple[str, str]], text: str) -> str:
    """Return a message of the library in the words of a command: its options in place of Python's arguments.

    What is quoted, calls of functions and parts of paths are left as they are.
    """

    def option_of(found: re.Match[str]) -> str:
        name, value = found["name"], found["value"]
        # A word is an argument's name where it has an underscore or a value, or is said to be checked.
        if name not in flags or not ("_" in name or value or found["checked"] is not None):
            return found[0]
        on, off = flags[name]
        if value in ("True", "False"):
            return on if value == "True" else off
        return f"{on} {shlex.quote(value.strip(chr(39)))}" if value else on

    text = with_commands(text)
    for pattern, words in _OF_FUNCTIONS:
        text = re.sub(pattern, words, text)
    if "wait_seconds" not in flags:
        text = text.replace("wait_seconds=60, or ", "")
    return _NAMED.sub(option_of, text)


# A quoted part, a call in Python, or a name that may be of an argument, with its value.
_NAMED = re.compile(
    r"(?<!\w)(?:'[^'\n]*'|\"[^\"\n]*\")(?!\w)"
    r"|\b[a-z]\w*\((?:[^()\n]|\([^()\n]*\))+\)"
    r"|(?<![\w./'\"=-])(?P<name>[a-z]\w*)(?:=(?P<value>'[^'\n]*'|[\w.+-]*\w))?(?![./:-]?[\w'\"/(])"
    r"(?P<checked>(?= must be ))?"
)

app = typer.Typer(
    name="sqlrag",
    cls=_Group,
    help="Hybrid search (vectors + BM25) over your documents in one DuckDB file.",
    epilog="\b\nBegin with:\n  sqlrag build docs -o kb.duckdb\n  sqlrag search my question --db kb.duckdb",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

_debug = False

_interrupted = 0  # the number of the signal


class _CommandWork(Work):
    """The work of a command, so that a signal ends it at its next step even where nothing let its exception through."""

    def uses(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Leave the connection alone: DuckDB looks for signals by itself."""


_work = _CommandWork()

noted: set[str] = set()  # the notes that have already been printed


def command(
    name: str, short_help: str, *examples: str, hidden: bool = False
) -> Callable[[Callable[..., int | None]], Callable[..., None]]:
    """Register a function as a command; it returns an exit code or None, and its failures become messages.

    A question may be given as several words.
    """

    def register(function: Callable[..., int | None]) -> Callable[..., None]:
        takes_wait = "wait" in inspect.signature(function).parameters
        function = with_wait(function)

        @functools.wraps(function)
        def run(**arguments: Any) -> None:
            for given in arguments.keys() & {"query_text", "question"}:
                arguments[given] = " ".join(arguments[given])
            wait = None if takes_wait else arguments.pop("wait", None)
            code = _run(function, arguments, wait)
            if code:
                raise typer.Exit(code)

        epilog = "\b\nExample:\n" + "\n".join(f"  {example}" for example in examples)
        config.commands[name] = function
        app.command(name, cls=_Command, short_help=short_help, epilog=epilog, hidden=hidden)(run)
        return run

    return register


def _run(function: Callable[..., int | None], arguments: dict[str, Any], wait: float | None = None) -> int:
    """Run a command and return its exit code; every file that it opens is waited for as long as ``wait`` says."""
    noted.clear()
    with warnings.catch_warnings():
        warnings.showwarning = _note
        try:
            with _work.under_way(), shown(not arguments.get("quiet")), _waiting(wait):
                return function(**arguments) or 0
        except (typer.Exit, typer.BadParameter):
            raise
        except BrokenPipeError:
            silence_broken_pipe()  # the reader, such as `head`, has stopped reading
            return 0
        except (Exception, KeyboardInterrupt, Stopped) as error:
            return _explain(error, arguments)


@contextmanager
def _waiting(seconds: float | None) -> Iterator[None]:
    """Have every file that the block opens waited for so many seconds, None for as long as the environment says."""
    before = os.environ.get(WAIT_SECONDS)
    if seconds is not None:
        os.environ[WAIT_SECONDS] = str(seconds_to_wait(seconds))
    try:
        yield
    finally:
        if seconds is not None:
            os.environ.pop(WAIT_SECONDS)
            os.environ.update({WAIT_SECONDS: before} if before is not None else {})


def _explain(error: BaseException, arguments: Mapping[str, Any]) -> int:
    """Report an error and return the exit code, 2 for a bad value; re-raise it where the traceback is wanted."""
    if _interrupted or isinstance(error, (KeyboardInterrupt, Stopped)):
        write_message("\n".join(["Interrupted.", *getattr(error, "__notes__", ())]))
        return 128 + (_interrupted or signal.SIGINT)
    if _debug:
        raise error
    if isinstance(error, OSError) or type(error).__module__ in ("_duckdb", "duckdb.duckdb"):
        # Of the statements of the commands themselves: public functions raise errors of sqlrag.
        from sqlrag.engines.duckdb.failures import failure

        named = next((arguments[name] for name in ("db", "file") if arguments.get(name)), "The store")
        error = failure(named[0] if isinstance(named, list) else named, error)
    if isinstance(error, SqlragError):
        write_message("\n".join([f"error: {error}", *getattr(error, "__notes__", ())]))
    else:
        write_message(
            f"error: {type(error).__name__}: {error}\nThis error was not expected; --debug shows the traceback."
        )
    return 2 if isinstance(error, InputError) else 1


@contextmanager
def logging_to_stderr() -> Iterator[None]:
    """Log to standard error while a server runs, without progress: warnings of sqlrag, errors of all libraries."""
    handler = logging.NullHandler() if _debug else logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(_is_reported)
    logging.getLogger().addHandler(handler)
    try:
        with shown(False):
            yield
    finally:
        logging.getLogger().removeHandler(handler)


def _is_reported(record: logging.LogRecord) -> bool:
    of_request = bool(record.exc_info and record.exc_info[0] and record.exc_info[0].__name__ == "CancelledError")
    if record.name.startswith("uvicorn") and (of_request or str(record.msg).endswith("CancelledError\n")):
        return False  # what a second Ctrl-C cuts off
    # The query log has a handler of its own.
    ours = record.name.startswith("sqlrag.") and record.name != "sqlrag.query"
    return record.levelno >= (logging.WARNING if ours else logging.ERROR)


def forget_interrupt() -> None:
    """Go on after a Ctrl-C that ended one statement of a session, and not the command."""
    global _interrupted
    _interrupted = 0
    _work.stopped = False


def watch_for_interrupt() -> None:
    """Record Ctrl-C: a DuckDB statement that it interrupts raises RuntimeError, not KeyboardInterrupt.

    An exception that is raised while Python collects garbage, or calls back from C, is printed and dropped: the work
    is marked as well.

    SIGTERM, which ends services, and SIGHUP, for a terminal that was closed, are taken in the same way, so that
    temporary files are removed.
    """

    def remember(signum: int, frame: FrameType | None) -> None:
        global _interrupted
        _interrupted = signum
        _work.stopped = True
        signal.default_int_handler(signum, frame)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, remember)
    for number in (signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, remember)


def _note(
    message: Warning | str,
    category: type[Warning],
    filename: str,  # noqa: ARG001 - the signature is that of warnings.showwarning
    lineno: int,  # noqa: ARG001
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    """Print a warning as a note, once."""
    if issubclass(category, (DeprecationWarning, ImportWarning, ResourceWarning)) or str(message) in noted:
        return
    noted.add(str(message))
    write_message(f"note: {message}")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        write(f"sqlrag {__version__} (DuckDB {version('duckdb')}, Python {sys.version.split()[0]})")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,  # noqa: ARG001
    debug: Annotated[bool, option("--debug", help="Show tracebacks and the log; accepted anywhere.")] = False,
    trust: Annotated[
        bool,
        option("--trust", help="Open files with views or macros that are not this release's; accepted anywhere."),
    ] = False,
    configuration: Annotated[
        Path | None,
        option(
            "--config",
            metavar="PATH",
            envvar=config.VARIABLE,
            help="The configuration; accepted anywhere. [the nearest sqlrag.toml]",
        ),
    ] = None,
    no_config: Annotated[bool, option("--no-config", help="Read no configuration; accepted anywhere.")] = False,
) -> None:
    global _debug
    _debug = debug
    config.given = False if no_config else configuration
    if trust:
        os.environ[TRUST] = "1"
    # The library logs what reports and errors say, too. A handler keeps Python from printing that a second time.
    root = logging.getLogger()
    root.addHandler(logging.StreamHandler() if debug else logging.NullHandler())
    if not debug and logging.lastResort:
        # A failure of the query log is reported nowhere else.
        logging.getLogger("sqlrag.query").addHandler(logging.lastResort)
    if debug:
        logging.getLogger("sqlrag").setLevel(logging.DEBUG)
