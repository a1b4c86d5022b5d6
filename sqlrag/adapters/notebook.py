"""The extension of IPython: a cell of SQL on a file, and a cell that is a question."""

from __future__ import annotations

import functools
import json
import re
import shlex
from typing import TYPE_CHECKING, Any

import duckdb

from sqlrag.adapters.connection import connect, interruptible
from sqlrag.arguments import nearest
from sqlrag.engines.duckdb.database import existing_file
from sqlrag.errors import InputError, SqlragError
from sqlrag.query import hybrid_query
from sqlrag.ranking.results import frames

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

_ONE_QUESTION = "There is no question: write it after %search, or in the cell below %%search."

_OPTION = re.compile(r"\s*\w+\s*:=")

_OPTION_NAME = re.compile(r"(\w+)\s*:=")

_METADATA_IN_SQL = re.compile(r"\bmetadata\s*:=\s*[{]")

# A variable as Python's format has it, as a text of SQL.
_QUOTED_NAME = re.compile(r"'[{](\w+)[}]'")

_FOR_A_FILE = "%search asks a file, and this connection has another database: %sqlrag kb.duckdb"


def load(shell: Any) -> None:
    """Give an IPython shell ``%sqlrag``, ``%search``, ``%%search`` and, unless another extension has it, ``%%sql``."""
    magics = _Magics(shell)
    if shell.display_formatter is not None:
        shell.display_formatter.formatters["text/plain"].for_type(duckdb.DuckDBPyConnection, magics.show)
    shell.register_magic_function(_without_frames(magics.choose), "line", "sqlrag")
    shell.register_magic_function(_without_frames(magics.search), "line_cell", "search")
    if shell.find_cell_magic("sql") is None:
        shell.register_magic_function(_without_frames(magics.sql), "line_cell", "sql")
    else:
        print(  # noqa: T201 - of the notebook, whose cell says what it does
            "%%sql is another extension's here, such as JupySQL's, and stays so. Give it the connection:\n"
            "    con = %sqlrag kb.duckdb\n    %sql con"
        )


def _without_frames(magic: Callable[..., Any]) -> Callable[..., Any]:
    """Let the shell show what an error of ours or of DuckDB says, without the lines of code that it went through."""

    @functools.wraps(magic)
    def call(*arguments: Any) -> Any:
        try:
            return magic(*arguments)
        except (SqlragError, duckdb.Error) as error:
            said = f"{type(error).__name__}: {error}"
            error._render_traceback_ = lambda: [said]  # type: ignore[union-attr]
            raise

    return call


class _Magics:
    """The magics of one shell, with the connection that they share."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._con: duckdb.DuckDBPyConnection | None = None
        self._name = "kb.duckdb"

    def choose(self, line: str) -> duckdb.DuckDBPyConnection | None:
        """Open a file for the cells below, ``%sqlrag kb.duckdb``, and return the connection; alone, return it again.

        A variable that is a connection, as :func:`sqlrag.connect` makes with an embedder of yours, will do as well.
        ``%sqlrag --close`` closes the connection, so that functions can write to the file; open it again afterwards.
        """
        words = shlex.split(line)
        if not words:
            return self._connection()
        if words == ["--close"]:
            self._connection().close()
            self._con = None
            return None
        if len(words) > 1:
            raise InputError("Name one file: %sqlrag kb.duckdb")
        variable = self._shell.user_ns.get(words[0])
        if hasattr(variable, "execute") and hasattr(variable, "interrupt"):
            self._con = variable
        else:
            existing_file(words[0])  # a wrong name leaves the connection, with its tables, as it is
            if self._con is not None:
                self._con.close()
                self._con = None
            self._con = connect(words[0])
        self._name = words[0]
        return self._con

    def show(self, con: duckdb.DuckDBPyConnection, printer: Any, cycle: bool) -> None:  # noqa: ARG002 - IPython's
        """Show the connection of the cells below as what it is for, and any other as ever."""
        if con is not self._con:
            printer.text(repr(con))
        elif _options(con):
            printer.text("Connected: %search and %%sql ask this file.")
        else:
            printer.text(f"Connected: %%sql asks this connection. {_FOR_A_FILE}")

    def sql(self, line: str, cell: str | None = None) -> pd.DataFrame | None:
        """Run SQL, of the line or of the cell, and return a DataFrame.

        Data frames of the notebook are tables in it, and ``$name`` is the value of a variable.
        """
        con = self._connection()
        frames("pandas", "%%sql")
        variables, sql = self._shell.user_ns, f"{line}\n{cell or ''}"
        values: dict[str, Any] = {}
        for name in sorted({name for one in con.extract_statements(sql) for name in one.named_parameters}):
            if name not in variables:
                raise InputError(f"${name} is the variable {name!r} of the notebook, and there is none: {name} = …")
            values[name] = variables[name]
        for name in _QUOTED_NAME.findall(sql):
            if name in variables:
                print(f"Note: '{{{name}}}' is a text; ${name} is the value of the variable.")  # noqa: T201 - as below
        # DuckDB looks for data frames among the variables of who calls it.
        scope = {**variables, "_con": con, "_sql": sql, "_values": values or None}

        def run() -> pd.DataFrame | None:
            relation = eval("_con.sql(_sql, params=_values)", scope)  # noqa: S307 - a fixed text
            return None if relation is None else relation.df()

        return interruptible(con, run)

    def search(self, line: str, cell: str | None = None) -> pd.DataFrame:
        """Search for a question and return a DataFrame: ``%search late delivery``, or the question in the cell.

        The first line of a cell may have options of the macro: ``%%search k := 5, collection := ['tickets']``. What
        :func:`sqlrag.hybrid_query` would note is printed. ``{name}`` and ``$name`` are variables, as in every line that
        begins with ``%``.
        """
        con = self._connection()
        frames("pandas", "%search")
        known = _options(con)
        if not known:
            raise InputError(_FOR_A_FILE)
        question, options = (line, "") if cell is None else (self._with_variables(cell), line.strip())
        if not question.strip():
            raise InputError(_ONE_QUESTION)
        if cell is None and _OPTION.match(line):
            raise InputError(
                "Options of %search stand in the first line of a cell, the question below: %%search k := 5, and in the "
                "next line late delivery."
            )
        if _METADATA_IN_SQL.search(options):
            raise InputError('metadata is a text of JSON: metadata := \'{"year": {"$gte": 2024}}\'')
        statement = f"FROM search($1{', ' * bool(options)}{options})"
        try:
            frame = interruptible(con, lambda: con.execute(statement, [question.strip()]).df())
        except (duckdb.BinderException, duckdb.ConversionException, duckdb.ParserException) as error:
            if not options:
                raise
            for name in _OPTION_NAME.findall(options):
                if name not in known:
                    meant = nearest(name, known)
                    hint = f"did you mean {meant!r}? " if meant else ""
                    raise InputError(
                        f"%%search has no option {name!r}; {hint}There are: {', '.join(known)}."
                    ) from error
            said = str(error).splitlines()[0].rstrip(".")
            raise InputError(
                f"%%search cannot take {options}: {said}. Write options of the macro with := and commas between, "
                "such as k := 5, collection := ['tickets']; the question is in the lines below. There are: "
                f"{', '.join(known)}."
            ) from error
        for notice in _notices(con, question.strip(), options):
            print(f"Note: {notice}")  # noqa: T201 - of the notebook, whose cell shows it above the frame
        return frame

    def _with_variables(self, text: str) -> str:
        """Return the text of a cell as the shell has that of a line: with the values of variables."""
        from IPython.utils.text import DollarFormatter

        try:
            return str(DollarFormatter().vformat(text, [], self._shell.user_ns))
        except Exception:
            return text

    def _connection(self) -> duckdb.DuckDBPyConnection:
        if self._con is not None:
            try:
                self._con.cursor().close()
            except duckdb.ConnectionException:
                self._con = None  # the notebook has closed it
        if self._con is None:
            raise InputError(f"No file is open. Name one: %sqlrag {shlex.quote(self._name)}")
        return self._con


def _notices(con: duckdb.DuckDBPyConnection, question: str, options: str) -> list[str]:
    """Return what a search in Python notes of the question, for which a macro has no place."""
    given = con.execute(f"SELECT struct_pack({options})").fetchall()[0][0] if options else {}
    filters = {name: given[name] for name in ("collection", "tags_any", "tags_all", "metadata") if given.get(name)}
    if "metadata" in filters:
        filters["metadata"] = json.loads(filters["metadata"])
    here = "FROM duckdb_databases() WHERE database_name = current_database()"
    ((path, vector),) = con.execute(f"SELECT path, embed($1) {here}", [question]).fetchall()
    try:
        return hybrid_query(question, path, top_k=given.get("k", 10), query_vector=vector, **filters).notices
    except SqlragError as error:  # such as for a filter that SQL takes, and that nothing can meet
        return [str(error)]


def _options(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return the names of the options of the macro ``search``; none where the database of the connection has none."""
    names = "SELECT DISTINCT unnest(parameters) AS name FROM duckdb_functions() WHERE function_name = 'search'"
    found = con.execute(f"{names} ORDER BY name").fetchall()
    return [name for (name,) in found if name != "query_text"]
