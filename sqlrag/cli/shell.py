"""``sqlrag shell`` and ``sqlrag attach-sql``: a file in DuckDB's own command line, alone or with other databases."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sqlrag.cli import printing
from sqlrag.cli.app import command, forget_interrupt
from sqlrag.cli.build import one_file
from sqlrag.cli.options import DbInstead, File, option
from sqlrag.cli.printing import write, write_message
from sqlrag.errors import InputError, MissingExtraError, SqlragError

if TYPE_CHECKING:
    import duckdb

    from sqlrag.search.store import Store

_OLDEST = (1, 3, 2)


@command(
    "shell",
    "Open the file in the DuckDB command line.",
    "sqlrag shell kb.duckdb",
    "sqlrag shell kb.duckdb --command 'FROM corpus_stats'",
)
def shell(
    file: File = None,
    db: DbInstead = None,
    sql: Annotated[
        str | None, option("--command", "-c", metavar="SQL", help="Run this and exit, instead of a session.")
    ] = None,
    writing: Annotated[
        bool, option("--write", help="Open for writing; no other process may have the file open.")
    ] = False,
    cli: Annotated[
        str | None, option("--cli", metavar="PATH", help="The DuckDB command line. [duckdb, or the extra shell's]")
    ] = None,
    embed: Annotated[
        bool, option("--embed", help="A prompt of sqlrag's own, whose SQL has embed, search and similarity.")
    ] = False,
    rerank: Annotated[
        str | None, option("--rerank", metavar="MODEL", help="The cross-encoder of rerank(), with --embed.")
    ] = None,
) -> int:
    """Open the file in the DuckDB command line, for reading, and print five statements to start with.

    SQL that is piped in runs without them. The DuckDB command line, 1.3.2 or newer, is the one named by --cli,
    else "duckdb" on the PATH, else that of the extra "shell". With --embed, and where there is none of them, a prompt
    of sqlrag's own opens the file, whose SQL can embed: FROM search('late delivery', k := 5); it has .help.
    """
    from sqlrag.search.store import Store

    if embed and cli is not None:
        raise InputError("--embed and --cli exclude each other: the DuckDB command line cannot embed.")
    try:
        program = "" if embed else _find_program(cli)
    except MissingExtraError:
        program = ""
    if not program:
        return _prompt(one_file(file, db), sql, writing, rerank)
    version = _version_of(program)
    with Store(one_file(file, db)) as store:
        path, first = store.path, _first_look(store)
    printing.in_words_of_the_door = str  # what follows is SQL
    if sql is None and sys.stdin.isatty():
        how = "writing" if writing else "reading; --write opens it for writing"
        write_message(f"{path}, opened by DuckDB {version} for {how}. To begin with:\n{first}\n")
    # An absolute path cannot be mistaken for an option.
    arguments = [program, *([] if writing else ["-readonly"]), str(path), *([] if sql is None else ["-c", sql])]
    return _become(arguments)


@command(
    "attach-sql",
    "Print SQL that attaches the file with its macros.",
    "sqlrag attach-sql kb.duckdb --as handbook",
)
def attach_sql(
    file: File = None,
    db: DbInstead = None,
    name: Annotated[str, option("--as", metavar="NAME", help="The name to attach it by.", show_default=True)] = "kb",
) -> None:
    """Print SQL that attaches the file next to other databases and makes its macros usable without USE.

    The macros are temporary and prefixed with the name: kb_hybrid_query, kb_lexical_query and so on. Several files
    can be attached under different names.
    """
    import sqlrag

    write(sqlrag.attach_sql(one_file(file, db), name))


def _find_program(named: str | None) -> str:
    """Return the DuckDB command line: the one that is named, else the one on the PATH, else that of the extra."""
    if named is not None:
        found = shutil.which(os.path.expanduser(named))  # noqa: PTH111 - a Path would lose "./"
        if found is None:
            raise InputError(f"--cli: {named} is not an executable. Name the DuckDB command line.")
        return found
    spec = find_spec("duckdb_cli")
    packaged = (
        Path(spec.origin).with_name("duckdb.exe" if os.name == "nt" else "duckdb") if spec and spec.origin else None
    )
    found = shutil.which("duckdb")
    # The extra's script on the PATH runs the program as a child, and Ctrl-C would end both: run the program itself.
    if packaged and (found is None or Path(found).parent == Path(sysconfig.get_path("scripts"))):
        return str(packaged)
    if found is None:
        raise MissingExtraError("The DuckDB command line, which is not on the PATH and not named by --cli,", "shell")
    return found


def _version_of(program: str) -> str:
    """Return the version of a DuckDB command line, or raise InputError where it is too old for our files."""
    try:
        output = subprocess.run(  # noqa: S603 - the caller chose the program
            [program, "-version"], capture_output=True, text=True, timeout=30, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{program} cannot be run: {error}. Name the DuckDB command line with --cli.") from error
    found = re.match(r"v(\d+)\.(\d+)\.(\d+)", output)
    if found is None:
        raise InputError(
            f"{program} is not the DuckDB command line: -version prints {output[:80]!r}. Name it with --cli."
        )
    if tuple(map(int, found.groups())) < _OLDEST:
        raise InputError(
            f"{program} is DuckDB {found[0][1:]}, and the macros of the file need 1.3.2 or newer. Update it, name "
            "another with --cli, or install one: pip install 'sqlrag-duckdb[shell]'"
        )
    return found[0][1:]


def _first_look(store: Store) -> str:
    """Return five statements that fit an open file, each below a comment."""
    from sqlrag.engines.duckdb.schema import read_sql
    from sqlrag.engines.duckdb.statements import literal

    node_id, words, question = store.cursor().execute(read_sql("first_look")).fetchall()[0]
    chunk, words = literal(node_id or "guides/x.md#3"), literal(question or words or "some words")
    stored = f"query_embeddings WHERE query_text = {words}" if question else f"documents WHERE node_id = {chunk}"
    return f"""
-- The documents, and totals in one row.
FROM sources;
FROM corpus_stats;
-- Passages by word.
SELECT node_id, score, text FROM lexical_query({words}, k := 5);
-- Passages near a given one.
SELECT node_id, score, text FROM more_like({chunk}, k := 5);
-- By word and by meaning. With no shell open, this stores the vector, FLOAT[{store.dimensions}], of a question:
--   sqlrag embed 'the question' --db {shlex.quote(str(store.path))}
SELECT node_id, score, text FROM hybrid_query({words}, (SELECT embedding FROM {stored}), k := 5);"""  # noqa: S608 - shown


_HELP = """Statements end with ";", such as: FROM search('a question', k := 5);
embed('a question') is its vector, similarity(text, 'a question') the cosine with any text, -1 to 1.
.tables lists tables and views, .help shows this, .exit ends (as Ctrl-D does). Ctrl-C ends a statement."""

# Between two ";" are texts, names, comments and anything else. An open quote or comment is a piece of its own.
_PIECE = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|(\$\w*\$).*?\1|--[^\n]*|/\*.*?\*/|/\*|[^'"$;/-]+|.""", re.DOTALL)


def split_statements(text: str) -> tuple[list[str], str]:
    """Return the statements of a text that end with ";", and what follows them.

    Examples
    --------
    >>> split_statements("SELECT ';'; SELECT 1 -- ;")
    (["SELECT ';'"], ' SELECT 1 -- ;')
    """
    done, begin = [], 0
    for piece in _PIECE.finditer(text):
        if piece[0] in ("'", '"', "/*") or (piece[0] == "$" and re.match(r"\$\w*\$", text[piece.start() :])):
            break
        if piece[0] == ";":
            done.append(text[begin : piece.start()].strip())
            begin = piece.end()
    return [one for one in done if one], text[begin:]


def _prompt(path: Path, sql: str | None, writing: bool, rerank: str | None) -> int:
    """Run SQL on a connection that can embed: the one that is given, what is piped in, or what is typed."""
    import sqlrag

    con = sqlrag.connect(path, read_only=not writing, reranker=rerank)
    printing.in_words_of_the_door = str  # what follows is SQL
    with con:
        if sql is not None:
            return _run_all(con, sql)
        if not sys.stdin.isatty():
            return _run_all(con, sys.stdin.read())
        write_message(f"{path}, opened for {'writing' if writing else 'reading'} by DuckDB. {_HELP}\n")
        _talk(con)
    return 0


def _run_all(con: duckdb.DuckDBPyConnection, text: str) -> int:
    """Run statements and commands one after the other; return 1 where one of them failed."""
    code = 0
    for part in re.split(r"^(\.\w+)[ \t]*$", text, flags=re.MULTILINE):
        statements, rest = split_statements(part)
        for statement in [*statements, rest]:
            if statement.strip() in (".exit", ".quit"):
                return code
            code = max(code, _run(con, statement.strip()))
    return code


def _talk(con: duckdb.DuckDBPyConnection) -> None:
    """Run what is typed until the end of the input, with a history in ``~/.sqlrag_history``."""
    history = Path("~/.sqlrag_history").expanduser()
    with suppress(ImportError, OSError):
        import readline

        readline.set_history_length(1000)
        if history.exists():
            readline.read_history_file(history)
        atexit.register(_keep_history, history)
    text = ""
    while True:
        try:
            line = input("...> " if text.strip() else "sql> ")
        except KeyboardInterrupt:
            forget_interrupt()
            write_message("")
            text = ""
            continue
        except EOFError:
            write_message("")
            return
        if not text.strip() and line.strip().startswith("."):
            if line.strip() in (".exit", ".quit"):
                return
            _run(con, line.strip())
            continue
        statements, text = split_statements(f"{text}{line}\n")
        for statement in statements:
            _run(con, statement)


def _keep_history(history: Path) -> None:
    import readline

    with suppress(OSError):
        history.touch(mode=0o600)
        readline.write_history_file(history)


def _run(con: duckdb.DuckDBPyConnection, statement: str) -> int:
    """Run one statement or command and show its rows; return 1 where it failed, after saying why."""
    import duckdb

    from sqlrag.adapters.connection import interruptible
    from sqlrag.engines.duckdb.schema import read_sql

    options: dict[str, Any] = {"max_width": shutil.get_terminal_size().columns} if sys.stdout.isatty() else {}
    if statement == ".help":
        write(_HELP)
        return 0
    if statement.startswith("."):
        if statement != ".tables":
            write_message(f"error: There is no command {statement}. {_HELP}")
            return 1
        statement, options["max_rows"] = read_sql("serving/tables"), 10_000

    def show() -> None:
        relation = con.sql(statement) if statement else None
        if relation is not None and statement.lower().startswith("explain"):
            write("\n".join(row[-1] for row in relation.fetchall()))
        elif relation is not None:
            relation.show(**options)

    try:
        interruptible(con, show)
    except KeyboardInterrupt:
        forget_interrupt()
        write_message("The statement was ended.")
        return 1
    except BrokenPipeError:
        raise
    except (duckdb.Error, SqlragError, OSError, RuntimeError) as error:
        write_message(f"error: {error}")
        return 1
    return 0


def _become(arguments: list[str]) -> int:
    """Replace this process by another program, which gets the terminal and Ctrl-C; on Windows, return its exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":
        return subprocess.call(arguments)  # noqa: S603 - the caller chose the program
    # Python ignores SIGPIPE and the program would inherit that: `| head` could not end it.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    return os.execv(arguments[0], arguments)  # noqa: S606 - the caller chose the program
