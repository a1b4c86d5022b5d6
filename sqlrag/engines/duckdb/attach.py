"""The search macros of a file for a session that has attached it and works in another database."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import duckdb

from sqlrag.engines.duckdb.database import Database
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.metadata import required_metadata
from sqlrag.engines.duckdb.schema import MACROS, for_dimensions, read_sql, wanted_objects
from sqlrag.engines.duckdb.statements import identifier, qualified, quoted
from sqlrag.errors import InputError

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

_INDEX = "fts_main_documents"

# In the text of passing_chunks, where a filter takes its place.
_PLACEHOLDER = "$wanted"

_RESERVED = frozenset({"main", "memory", "system", "temp", "information_schema", "pg_catalog", _INDEX})


@public
def attach_sql(db_path: str | os.PathLike[str], name: str = "kb") -> str:
    """Return SQL that attaches a file by a name and makes its macros usable from any other database.

    The macros in the file call each other by short names, which are only found after ``USE``. These are macros of the
    session with every name filled in: ``hybrid_query`` becomes ``kb_hybrid_query``. Nothing is written to a file, and
    several files can be attached at once. Views and tables need no such help: ``FROM kb.sources``.

    Parameters
    ----------
    db_path
        The file.
    name
        The name to attach it by, and what the names of its macros begin with.

    Returns
    -------
    str
        Statements for DuckDB 1.3.2 or newer, for ``.read`` in the shell or ``duckdb.connect().execute``.

    Raises
    ------
    InputError
        The name is one of DuckDB's own, or one under which two files could give a macro the same name.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError
        The file cannot be opened as a store; see :mod:`sqlrag.errors`.

    Examples
    --------
    >>> attach_sql("kb.duckdb", "temp")
    Traceback (most recent call last):
    sqlrag.errors.InputError: A file cannot be attached as 'temp', which is a name of DuckDB's own. Take another.
    """
    check_name(name)
    with Database.open(db_path) as database:
        return session_sql(database, name)


def session_sql(database: Database, name: str) -> str:
    """Return what :func:`attach_sql` does for an open file, by a name that was checked."""
    dimensions = int(required_metadata(database)["embedding_dimensions"])
    path = str(database.path)
    call = identifier(f"{name}_lexical_query")
    comment = f"-- Macros of this session for an attached file, such as FROM {call}('window functions', k := 5)."
    names = {"'kb.duckdb'": quoted(path), "'kb'": quoted(name), '"kb"': identifier(name)}
    names['"kb_path"'] = identifier(f"{name}_path")
    # All at once, since a path may contain a placeholder.
    attach = re.sub("|".join(map(re.escape, names)), lambda found: names[found[0]], read_sql("attach"))
    macros = [_in_session(for_dimensions(read_sql(f"macros/{macro}"), dimensions), name) for macro in MACROS]
    return "\n".join([comment, attach, *macros])


def check_name(name: str, functions: Sequence[str] = ()) -> None:
    """Raise InputError for a name that cannot stand before those of the macros, and of further functions."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise InputError(f"The name to attach a file by must be a word such as 'kb', not {name!r}.")
    if name.lower() in _RESERVED or _PLACEHOLDER in name:
        raise InputError(f"A file cannot be attached as {name!r}, which is a name of DuckDB's own. Take another.")
    # As "kb_exact_vector_query" is both, for a file named kb and for one named kb_exact.
    for macro, shorter in itertools.product(MACROS, (*MACROS, *functions)):
        prefix = macro.removesuffix(f"_{shorter}")
        if prefix != macro and name.lower().endswith(f"_{prefix}"):
            raise InputError(
                f"A file cannot be attached as {name!r}: its {shorter} would be named as the {macro} of a file "
                f"attached as {name[: -len(prefix) - 1]!r}. Take another."
            )


_STATEMENT = "'SELECT "


def _in_session(sql: str, catalog: str) -> str:
    """Return a macro's definition as one of the session, with the catalog in every name of a table or macro.

    Also in the texts that it has for DuckDB's ``query``.
    """
    text = sql.replace("CREATE OR REPLACE MACRO", "CREATE OR REPLACE TEMP MACRO").encode()
    # DuckDB's own tokens, counted in bytes: so no word of a text or a comment is mistaken for a name.
    starts = [start for start, _ in duckdb.tokenize(text.decode())]
    tokens = [text[start:end].decode() for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
    result, schema, before = [text[: starts[0]].decode()], "main", ""
    for token, after in zip(tokens, [*tokens[1:], ""], strict=True):
        if token.startswith(_STATEMENT):
            inner, rest = token.rstrip()[1:-1], token[len(token.rstrip()) :]
            token = quoted(_in_session(inner.replace("''", "'"), catalog)) + rest
        word = re.split(r"\W", token, maxsplit=1)[0]
        rest = token[len(word) :]
        if word == _INDEX:
            schema = word
        elif schema == "main" or token[:1] != ".":
            if word in MACROS and after.startswith("("):
                token = identifier(f"{catalog}_{word}") + rest
            elif f"{schema}.{word}" in wanted_objects() and before in {"FROM", "JOIN"}:
                token = qualified([catalog, schema, word]) + rest
            result.append(token)
            schema, before = "main", word
    return "".join(result)
