"""The application: registers and runs commands, and turns failures into messages and exit codes."""

from __future__ import annotations

import functools
import logging
import os
import signal
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from sqlrag import __version__
from sqlrag.cancellation import Stopped, Work
from sqlrag.cli import config
from sqlrag.cli.options import option
from sqlrag.cli.printing import silence_broken_pipe, write, write_message
from sqlrag.errors import SqlragError
from sqlrag.progress import shown
from sqlrag.settings import TRUST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

    import duckdb

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

_interrupted = 0  # the number of the signal


class _Command(Work):
    """The work of a command, so that a signal ends it at its next step even where nothing let its exception through."""

    def uses(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Leave the connection alone: DuckDB looks for signals by itself."""


_work = _Command()

noted: set[str] = set()  # the notes that have already been printed


def command(name: str, short_help: str, *examples: str) -> Callable[[Callable[..., int | None]], Callable[..., None]]:
    """Register a function as a command; it returns an exit code or None, and its failures become messages."""

    def register(function: Callable[..., int | None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(**arguments: Any) -> None:
            code = _run(function, arguments)
            if code:
                raise typer.Exit(code)

        epilog = "\b\nExample:\n" + "\n".join(f"  {example}" for example in examples)
        config.commands[name] = function
        app.command(name, cls=config.Configured, short_help=short_help, epilog=epilog)(run)
        return run

    return register


def _run(function: Callable[..., int | None], arguments: dict[str, Any]) -> int:
    """Run a command and return its exit code."""
    noted.clear()
    with warnings.catch_warnings():
        warnings.showwarning = _note
        try:
            with _work.under_way(), shown(not arguments.get("quiet")):
                return function(**arguments) or 0
        except (typer.Exit, typer.BadParameter):
            raise
        except BrokenPipeError:
            silence_broken_pipe()  # the reader, such as `head`, has stopped reading
            return 0
        except (Exception, KeyboardInterrupt, Stopped) as error:
            return _explain(error, arguments)


def _explain(error: BaseException, arguments: Mapping[str, Any]) -> int:
    """Report an error and return the exit code; re-raise it where the traceback is wanted."""
    if _interrupted or isinstance(error, (KeyboardInterrupt, Stopped)):
        write_message("Interrupted." if _interrupted in (0, signal.SIGINT) else "Terminated.")
        return 128 + (_interrupted or signal.SIGINT)
    if _debug:
        raise error
    if isinstance(error, OSError) or type(error).__module__ in ("_duckdb", "duckdb.duckdb"):
        # Of the statements of the commands themselves: public functions raise errors of sqlrag.
        from sqlrag.engines.duckdb.failures import failure

        named = next((arguments[name] for name in ("db", "file") if arguments.get(name)), "The store")
        error = failure(named[0] if isinstance(named, list) else named, error)
    if isinstance(error, SqlragError):
        write_message(f"error: {error}")
    else:
        write_message(
            f"error: {type(error).__name__}: {error}\nThis error was not expected; --debug shows the traceback."
        )
    return 1


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
    # The query log has a handler of its own.
    ours = record.name.startswith("sqlrag.") and record.name != "sqlrag.query"
    return record.levelno >= (logging.WARNING if ours else logging.ERROR)


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
