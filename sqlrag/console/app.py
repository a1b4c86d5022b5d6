"""The application: how a command is registered and run, and what becomes of its failures."""

from __future__ import annotations

import functools
import logging
import signal
import sys
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from sqlrag import __version__
from sqlrag.console.options import option
from sqlrag.console.printing import silence_broken_pipe, tell, write
from sqlrag.errors import SqlragError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

app = typer.Typer(
    name="sqlrag",
    help="Hybrid search (vectors + BM25) over your documents in one DuckDB file.",
    epilog="\b\nBegin with:\n  sqlrag demo\n"
    "  sqlrag prepare-embeddings docs -o kb.duckdb --model sentence-transformers/all-MiniLM-L6-v2\n"
    "  sqlrag hybrid-query 'my question' --db kb.duckdb",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

_debug = False
_interrupted = False
noted: set[str] = set()  # the notes that have been printed


def command(name: str, short_help: str, *examples: str) -> Callable[[Callable[..., int | None]], Callable[..., None]]:
    """Register a command whose failures become a message and an exit code; it returns its exit code or None."""

    def register(function: Callable[..., int | None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(**arguments: Any) -> None:
            code = _run(function, arguments)
            if code:
                raise typer.Exit(code)

        epilog = "\b\nExample:\n" + "\n".join(f"  {example}" for example in examples)
        app.command(name, short_help=short_help, epilog=epilog)(run)
        return run

    return register


def _run(function: Callable[..., int | None], arguments: dict[str, Any]) -> int:
    """Run a command and return its exit code."""
    noted.clear()
    with warnings.catch_warnings():
        warnings.showwarning = _note
        try:
            return function(**arguments) or 0
        except (typer.Exit, typer.BadParameter):
            raise
        except BrokenPipeError:
            silence_broken_pipe()  # the reader has what it wanted, as `head` does
            return 0
        except (Exception, KeyboardInterrupt) as error:
            return _explain(error)


def _explain(error: BaseException) -> int:
    """Say what went wrong and return the exit code, or raise it again where the traceback is wanted."""
    if _interrupted or isinstance(error, KeyboardInterrupt):
        tell("Interrupted.")
        return 130
    if _debug:
        raise error
    if isinstance(error, SqlragError):
        tell(f"error: {error}")
    else:
        tell(f"error: {type(error).__name__}: {error}\nThis was not expected; --debug shows where it happened.")
    return 1


@contextmanager
def logging_to_stderr() -> Iterator[None]:
    """Print what a server has to tell while it runs: the warnings of sqlrag, and the errors of all."""
    handler = logging.NullHandler() if _debug else logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(_is_told)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


def _is_told(record: logging.LogRecord) -> bool:
    # The query log has a handler of its own.
    ours = record.name.startswith("sqlrag.") and record.name != "sqlrag.query"
    return record.levelno >= (logging.WARNING if ours else logging.ERROR)


def watch_for_interrupt() -> None:
    """Remember Ctrl-C: a statement of DuckDB that it ends raises a RuntimeError instead of KeyboardInterrupt."""

    def remember(signum: int, frame: FrameType | None) -> None:
        global _interrupted
        _interrupted = True
        signal.default_int_handler(signum, frame)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, remember)


def _note(
    message: Warning | str,
    category: type[Warning],
    filename: str,  # noqa: ARG001 - where it was raised is of no use to the reader
    lineno: int,  # noqa: ARG001
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    """Print a warning as a note, once."""
    if issubclass(category, (DeprecationWarning, ImportWarning, ResourceWarning)) or str(message) in noted:
        return
    noted.add(str(message))
    tell(f"note: {message}")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        write(f"sqlrag {__version__} (DuckDB {version('duckdb')}, Python {sys.version.split()[0]})")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,  # noqa: ARG001
    debug: Annotated[bool, option("--debug", help="Show tracebacks and the log; may stand anywhere.")] = False,
) -> None:
    global _debug
    _debug = debug
    # The library's log repeats what reports and errors say; a handler keeps Python from printing it on its own.
    root = logging.getLogger()
    root.addHandler(logging.StreamHandler() if debug else logging.NullHandler())
    if not debug and logging.lastResort:
        # Nothing else tells that a query could not be logged.
        logging.getLogger("sqlrag.query").addHandler(logging.lastResort)
    if debug:
        logging.getLogger("sqlrag").setLevel(logging.DEBUG)
