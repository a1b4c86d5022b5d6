"""The extension of IPython: a cell of SQL on a file, and a cell that is a question."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Set
from contextlib import suppress
from functools import partial, wraps
from inspect import getdoc
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from sqlrag.adapters.connection import connect, interruptible
from sqlrag.arguments import nearest
from sqlrag.engines.duckdb.database import existing_file
from sqlrag.engines.duckdb.statements import identifier, quoted
from sqlrag.errors import InputError, SqlragError
from sqlrag.query import hybrid_query
from sqlrag.ranking.filters import OPERATORS, Filters
from sqlrag.ranking.results import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd

T = TypeVar("T")

_ONE_QUESTION = "There is no question: write it after %search, or in the cell below %%search."

_OPTION = re.compile(r"(\w+)\s*:=")

# What IPython may expand of a question, {q.title} and $q.title, with what doubles them to be left.
_PLACE = re.compile(r"\{+[A-Za-z_][^{}]*\}+|\$+[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")

# A filter that is a dict, which SQL takes as JSON.
_METADATA = re.compile(r"\bmetadata\s*:=\s*\$(\w+)\s*(?=[,)]|$)", re.IGNORECASE)

# Comments of SQL, and what is in quotes, where $q is no parameter.
_QUIET = re.compile(r"""(--[^\n]*|/\*.*?\*/)|'(?:[^']|'')*'|"[^"]*"|\$(\w*)\$.*?\$\2\$""", re.DOTALL)

# An option without its name, which the macro may take for k.
_UNNAMED = re.compile(r"(\d+|\$\w+)\s*(,|$)")

# How JupySQL names a result.
_INTO = re.compile(r"\s*(\w+)\s*=?\s*<<")

# What users of f-strings, and of parameters in quotes, take for the value of a variable in SQL.
_PASTED = re.compile(r"\{([A-Za-z_]\w*)\}|'\$([A-Za-z_]\w*)'")


def load(shell: Any) -> None:
    """Give an IPython shell ``%sqlrag``, ``%search``, ``%%search`` and, unless another extension has it, ``%%sql``."""
    from IPython.core.magic import needs_local_scope, no_var_expand

    magics = _Magics(shell)
    if shell.display_formatter is not None:
        shell.display_formatter.formatters["text/plain"].for_type(duckdb.DuckDBPyConnection, magics.show)
    shell.register_magic_function(_plainly(magics.choose), "line", "sqlrag")
    shell.register_magic_function(no_var_expand(needs_local_scope(_plainly(magics.search))), "line_cell", "search")
    if shell.find_cell_magic("sql") is None:
        shell.register_magic_function(no_var_expand(needs_local_scope(_plainly(magics.sql))), "line_cell", "sql")
    else:
        print(  # noqa: T201 - of the notebook, whose cell says what it does
            "%%sql is another extension's here, such as JupySQL's, and stays so. Give it the connection:\n"
            "    con = %sqlrag kb.duckdb\n    %sql con"
        )


def _plainly(magic: Callable[..., T]) -> Callable[..., T | None]:
    """Return a magic with ``--help``, whose errors of sqlrag and of DuckDB are shown without the frames of packages."""

    @wraps(magic)
    def run(line: str, *args: Any, **options: Any) -> T | None:
        if line.strip() in ("--help", "-h"):
            print(re.sub(r":\w+:`([^`]*)`|``", r"\1", getdoc(magic) or ""))  # noqa: T201 - of the notebook
            return None
        try:
            return magic(line, *args, **options)
        except (SqlragError, duckdb.Error) as error:
            lines = [f"{type(error).__name__}: {error}"]
            if "Malformed JSON" in str(error):
                lines.append(
                    "A filter by metadata is JSON, to_json({'year': 2024}), or a dict of the notebook: $wanted."
                )
            # Of IPython: the type, %debug and what stops a run of all cells stay.
            error._render_traceback_ = lambda: lines  # type: ignore[union-attr]
            raise

    return run


class _Magics:
    """The magics of one shell, with the connection that they share."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._con: duckdb.DuckDBPyConnection | None = None
        self._name = "kb.duckdb"
        self._asked = ""

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
        # Not in show: it would take the place of a result that the notebook has not fetched.
        self._asked = _otherwise_asked(self._con) or "%search and %%sql ask this file."
        return self._con

    def show(self, con: duckdb.DuckDBPyConnection, printer: Any, cycle: bool) -> None:  # noqa: ARG002 - IPython's
        """Show the connection of the cells below as what it is for, and any other as ever."""
        printer.text(f"Connected: {self._asked}" if con is self._con else repr(con))

    def sql(self, line: str, cell: str | None = None, local_ns: Mapping[str, Any] | None = None) -> pd.DataFrame | None:
        """Run SQL, of the line or of the cell, and return a DataFrame; data frames of the notebook are tables in it.

        ``$name`` is the value of a variable of the notebook, which is bound and not pasted. ``frame = %sql SELECT 1``
        names the result of a line, and ``frame = _`` in the next cell that of a cell.
        """
        con = self._connection()
        frames("pandas", "%%sql")
        text = f"{line}\n{cell or ''}"
        if into := _INTO.match(text):
            raise InputError(
                f"{into[0].strip()} is JupySQL's way to name a result. Here a line is {into[1]} = %sql SELECT …, and "
                f"{into[1]} = _ in the next cell takes what a cell %%sql has returned."
            )
        # DuckDB looks for data frames among the variables of who calls it, and finds no other name than the notebook's.
        scope = {**self._shell.user_ns, **(local_ns or {})}
        call = "_"
        while call in scope or call in text:
            call += "_"
        for found in _PASTED.finditer(_QUIET.sub(lambda quiet: " " if quiet[1] else quiet[0], text)):
            name = found[1] or found[2]
            if name in scope:
                print(f"Note: {found[0]} is text in SQL. ${name}, without quotes, binds the variable.")  # noqa: T201
        statements = con.extract_statements(text)
        values = [_parameters(one, scope) for one in statements]

        def run() -> pd.DataFrame | None:
            relation = None
            for place, (statement, bound) in enumerate(zip(statements, values, strict=True), 1):
                last = place == len(statements)
                run_it = partial(con.sql, statement, params=bound) if last else partial(con.execute, statement, bound)
                relation = eval(f"{call}()", {**scope, call: run_it})  # noqa: S307 - underscores
                if not last:
                    relation.fetchall()
            return None if relation is None else relation.df()

        return interruptible(con, run)

    def search(self, line: str, cell: str | None = None, local_ns: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Search for a question and return a DataFrame: ``%search late delivery``, or the question in the cell.

        The first line of a cell may have options of the macro: ``%%search k := 5, collection := ['tickets']``. ``{q}``
        and ``$q`` are the variable in the question. In options ``$tags`` is bound as in ``%%sql``, and
        ``metadata := $wanted`` takes a dict, too. What :func:`sqlrag.hybrid_query` would note is printed.
        """
        con = self._connection()
        frames("pandas", "%search")
        variables = {**self._shell.user_ns, **(local_ns or {})}
        question = _expanded(line if cell is None else cell, variables).strip()
        # A line that is $options alone is no value of one.
        options = "" if cell is None else _expanded(line, variables, sql=":=" in line).strip()
        if not question:
            raise InputError(_ONE_QUESTION)
        named = set(_OPTION.findall(line.lower())) if cell is None else set()
        if named and not named.isdisjoint([*_options(con), "top_k"]):
            raise InputError(
                "Options of %search stand in the first line of a cell, the question below: %%search k := 5, and in the "
                "next line late delivery."
            )
        statement = f"FROM search($_question{', ' * bool(options)}{options})"
        values: dict[str, Any] = {}
        given: dict[str, Any] = {}
        try:
            values.update(_values(con, options, variables))
            if options:
                ((given,),) = con.execute(f"SELECT struct_pack({options})", values).fetchall()
            frame = interruptible(con, lambda: con.execute(statement, {**values, "_question": question}).df())
        except (
            duckdb.BinderException, duckdb.CatalogException, duckdb.ConversionException, duckdb.ParserException,
        ) as error:  # fmt: skip
            if asked := _otherwise_asked(con):
                raise InputError(f"%search cannot ask this connection. {asked}") from error
            if not options or isinstance(error, duckdb.CatalogException):
                raise
            _check_options(con, options, values, given)
            said = str(error).splitlines()[0].rstrip(".")
            raise InputError(
                f"%%search cannot take {options}: {said}. Write options of the macro with := and commas between, "
                "such as k := 5, collection := ['tickets']; the question is in the lines below. There are: "
                f"{', '.join(_options(con))}."
            ) from error
        for notice in _notices(con, question, given):
            print(f"Note: {notice}")  # noqa: T201 - of the notebook, whose cell shows it above the frame
        return frame

    def _connection(self) -> duckdb.DuckDBPyConnection:
        if self._con is not None:
            try:
                self._con.cursor().close()
            except duckdb.ConnectionException:
                self._con = None  # the notebook has closed it
        if self._con is None:
            raise InputError(f"No file is open. Name one: %sqlrag {shlex.quote(self._name)}")
        return self._con


def _expanded(text: str, variables: Mapping[str, Any], *, sql: bool = False) -> str:
    """Return a text with the values of variables, each as IPython expands it; what is no variable stays as it is.

    What is doubled, ``{{q}}`` and ``$$q``, is no variable and loses one. IPython itself leaves all of a line for a name
    that is none, and for an apostrophe. In ``sql``, ``$name`` is a parameter, which stays; in single quotes it is text,
    whose apostrophes are doubled, unless it is an operator.
    """
    from IPython.utils.text import DollarFormatter

    def value(found: re.Match[str]) -> str:
        parameter = sql and found[0].startswith("$")
        if parameter and (found[0] in OPERATORS or text.count("'", 0, found.start()) % 2 == 0):
            return found[0]
        # {len(q)} is a call of Python's, {id} no variable.
        names = {**variables} if "(" in found[0] else {**variables, "__builtins__": {}}
        with suppress(Exception):
            expanded = str(DollarFormatter().vformat(found[0], [], names))
            return expanded.replace("'", "''") if parameter else expanded
        return found[0]

    return _PLACE.sub(value, text)


def _bound(name: str, variables: Mapping[str, Any]) -> Any:
    """Return the value of a variable for a parameter, in types that DuckDB binds."""
    if name not in variables:
        example = name if name.isidentifier() else "q"
        raise InputError(
            f"The parameter ${name} is no variable of this notebook. Make one in a cell before, such as "
            f"{example} = 'late delivery', and write ${example}."
        )
    return _plain(variables[name])


def _plain(value: Any) -> Any:
    """Return a number, array or column of numpy, pandas or polars, and what holds values, as DuckDB binds it."""
    dtype = str(getattr(value, "dtype", ""))
    if dtype.endswith("[ns]"):  # of which numpy would make whole numbers
        value = value.astype(dtype.replace("[ns]", "[us]"))
    if dtype and (listed := getattr(value, "tolist", None) or getattr(value, "to_list", None)):
        gone = value.isna() if hasattr(value, "isna") else None
        value = listed() if gone is None else [None if no else one for one, no in zip(listed(), gone, strict=True)]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, (list, tuple, range, Set)) else value


def _parameters(statement: duckdb.Statement, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the parameters of a statement, none of which DuckDB takes for another.

    A dict that is a filter by metadata, and nothing else, is bound as its JSON.
    """
    values = {name: _bound(name, variables) for name in statement.named_parameters}
    folded = {name.lower(): name for name in values}
    sql = _QUIET.sub(" ", statement.query)
    used, filters = Counter(re.findall(r"\$(\w+)", sql)), Counter(_METADATA.findall(sql))
    for name in filters:
        if isinstance(values.get(name), dict) and filters[name] == used[name]:
            values[name] = Filters(metadata=values[name]).parameters().get("metadata")
    for other in used:
        name = folded.get(other.lower())
        if name and other not in values and other in variables:
            raise InputError(f"DuckDB takes ${name} and ${other} for one parameter. Rename one of the two variables.")
    return values


def _values(con: duckdb.DuckDBPyConnection, options: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the parameters in options."""
    statements = con.extract_statements(f"SELECT struct_pack({options})")
    return {name: value for one in statements for name, value in _parameters(one, variables).items()}


def _otherwise_asked(con: duckdb.DuckDBPyConnection) -> str | None:
    """Return how to ask a connection that has no macro ``search``; None where it has."""
    found = con.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() "
        "WHERE parameters[1] = 'query_text' AND function_name SIMILAR TO '(.*_)?search' ORDER BY function_name"
    ).fetchall()
    macros = [name for (name,) in found]
    if "search" in macros:
        return None
    if not macros:
        return "%%sql runs on it. It has no search: %sqlrag kb.duckdb opens a file with it."
    files = ", ".join(name.removesuffix("_search") for name in macros)
    first = macros[0] if macros[0].isidentifier() else identifier(macros[0])
    return (
        f"%%sql asks what is registered here, {files}: FROM {first}('late delivery'). %search is for a "
        "file alone, as %sqlrag kb.duckdb opens it."
    )


def _check_options(
    con: duckdb.DuckDBPyConnection, options: str, values: Mapping[str, Any], given: Mapping[str, Any]
) -> None:
    """Raise InputError for an option without a name or that ``search`` has not, and for metadata that is no text."""
    names = _options(con)
    if _UNNAMED.match(options):
        raise InputError(f"Options of %%search have names: k := {options}. There are: {', '.join(names)}.")
    for name in given:
        if name.lower() not in names:
            meant = nearest(name.lower(), names)
            hint = f"; did you mean {meant!r}?" if meant else "."
            raise InputError(f"%%search has no option {name!r}{hint} There are: {', '.join(names)}.")
    if re.search(r"\bmetadata\s*:=\s*(map\s*)?\{", options, re.IGNORECASE):
        wanted = '{"year": {"$gte": 2024}}'
        with suppress(duckdb.Error):
            ((wanted,),) = con.execute(f"SELECT to_json(struct_pack({options}).metadata)", values).fetchall()
        raise InputError(
            f"metadata of %%search is JSON in a text, in single quotes: metadata := {quoted(wanted)}, or a dict of the "
            "notebook: metadata := $wanted"
        )


def _notices(con: duckdb.DuckDBPyConnection, question: str, given: Mapping[str, Any]) -> list[str]:
    """Return what a search in Python notes of the question, for which a macro has no place."""
    given = {name.lower(): value for name, value in given.items() if value is not None}
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
    names = "SELECT DISTINCT unnest(parameters) AS name FROM duckdb_functions() WHERE function_name = 'search'"
    found = con.execute(f"{names} ORDER BY name").fetchall()
    return [name for (name,) in found if name != "query_text"]
