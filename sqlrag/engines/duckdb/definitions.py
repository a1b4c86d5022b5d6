"""Compares the tables, views and macros of a file with those that this package makes."""

from __future__ import annotations

import hashlib
import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb

from sqlrag.engines.duckdb.schema import MACROS, VIEWS, code_words, read_sql, sql_folder
from sqlrag.engines.duckdb.statements import qualified

if TYPE_CHECKING:
    from collections.abc import Iterable

_TABLE = "table"


class Definition(NamedTuple):
    """What a name stands for: its kind, its arguments without and with defaults, and its SQL as DuckDB prints it."""

    kind: str
    arguments: tuple[str, ...]
    signature: tuple[str, ...]
    text: str


class Known(NamedTuple):
    """What this package makes by a name: its kind, and the digests of it, or of each column of a table."""

    kind: str
    digests: frozenset[str]
    outlines: frozenset[str]


class Change(NamedTuple):
    """An object that is not as this package makes it: its name, what is wrong with it, and the kinds that it has."""

    name: str
    reason: str
    kinds: tuple[str, ...]

    def __str__(self) -> str:
        """Return the change as a phrase."""
        return f"{self.name} {self.reason}"


def changes(con: duckdb.DuckDBPyConnection, every: dict[str, list[Definition]] | None = None) -> list[Change]:
    """Return the objects of the connection's database that are not this package's although they have the name of one.

    Other views, macros and tables, and further columns of ours, are no changes. What hides one of DuckDB's own
    functions or types is one: the statements of this package would use it. The connection may be in no transaction,
    see :func:`definitions`, which gives ``every`` where it is not given.
    """
    every = definitions(con) if every is None else every
    result = []
    dimensions = _dimensions(every)
    for name, found in every.items():
        schema, _, bare = name.partition(".")
        kinds = tuple(sorted({one.kind for one in found}))
        if name in known():
            reason = _difference(kinds, tuple(found), known()[name], dimensions, outline=_is_untested())
        elif schema in _SCHEMAS and {"macro", "table_macro", "type"} & set(kinds):
            reason = "hides what DuckDB itself has by this name" if bare in _of_duckdb(con) else ""
        else:
            reason = ""
        if reason:
            result.append(Change(name, reason, kinds))
    return sorted(result)


# Where DuckDB looks up what the objects of this package name.
_SCHEMAS = frozenset({"main", "fts_main_documents"})


# A program opens many files with the same definitions.
@lru_cache(maxsize=1024)
def _difference(
    kinds: tuple[str, ...], found: tuple[Definition, ...], wanted: Known, dimensions: int, *, outline: bool
) -> str:
    """Return in what the definitions of a name differ, blank where they do not."""
    if kinds != (wanted.kind,):
        return f"is a {' and a '.join(kinds).replace('_', ' ')}, not a {wanted.kind.replace('_', ' ')}"
    accepted = wanted.outlines if outline else wanted.digests
    if wanted.kind != _TABLE:
        return "" if digest(found, dimensions, outline=outline) in accepted else "has another definition"
    columns = {_digest([part], outline=outline): part.tokens for part in _columns(found[0], dimensions)}
    # Columns of others may stand beside ours, but no rule for our rows.
    rules = [tokens for one, tokens in columns.items() if one not in accepted and _RULES.intersection(tokens)]
    return "has other columns or rules" if rules or not accepted <= set(columns) else ""


def definitions(con: duckdb.DuckDBPyConnection) -> dict[str, list[Definition]]:
    """Return what each name of the connection's database stands for; a macro may have several definitions.

    Calls that DuckDB refuses are among what is asked, and would end a transaction.
    """
    catalog = con.execute("SELECT system.main.current_database()").fetchall()[0][0]
    result: dict[str, list[Definition]] = {}
    for database, kind, schema, name, arguments, text in con.execute(read_sql("definitions")).fetchall():
        if database == catalog:
            definition = Definition(kind, tuple(arguments or ()), (), text or "")
            result.setdefault(f"{schema}.{name}".lower(), []).append(definition)
    for name, found in result.items():
        if len(found) == 1 and found[0].kind in {"macro", "table_macro"} and name.partition(".")[2] in _ours():
            result[name] = [found[0]._replace(signature=_signature(con, catalog, name, found[0]))]
    return result


def _signature(con: duckdb.DuckDBPyConnection, catalog: str, name: str, macro: Definition) -> tuple[str, ...]:
    """Return the arguments of a macro with their defaults, which DuckDB tells only where it refuses a call."""
    schema, _, bare = name.partition(".")
    call = f"{qualified([catalog, schema, bare])}({', '.join(['NULL'] * (len(macro.arguments) + 1))})"
    try:
        con.execute(f"SELECT {call}" if macro.kind == "macro" else f"FROM {call}")
    except (duckdb.BinderException, duckdb.CatalogException) as error:
        told = str(error).partition(f"\t{bare}(")[2] or str(error).partition(f" function {bare}(")[2]
        arguments = [" ".join(_flat(one)) for one in _split(_tree(f"({told}", 0)[0])] if told else []
        # Those with defaults are in any order.
        return tuple(sorted(arguments, key=lambda one: one if ":=" in one else ""))
    return ()


def _dimensions(every: dict[str, list[Definition]]) -> int:
    """Return the length of the vectors of a database, 0 where it has none."""
    for one in every.get("main.documents", ()):
        if found := re.search(r"\bembedding FLOAT\[(\d+)\]", one.text):
            return int(found[1])
    return 0


def _of_duckdb(con: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """Return the names of DuckDB's own functions and types."""
    return frozenset(name.lower() for (name,) in con.execute(read_sql("names_of_duckdb")).fetchall())


@cache
def known() -> dict[str, Known]:
    """Return what this package makes, and what earlier releases with this schema made, by name."""
    result: dict[str, Known] = {}
    for line in (sql_folder() / "digests.txt").read_text("utf-8").splitlines():
        name, kind, *digests = line.split()
        before = result.get(name, Known(kind, frozenset(), frozenset()))
        result[name] = Known(kind, before.digests | {*digests[::2]}, before.outlines | {*digests[1::2]})
    return result


def digest_lines(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return the lines of ``sql/digests.txt`` for a new store: name, kind, and digest and outline of each part."""
    lines, every = [], definitions(con)
    dimensions = _dimensions(every)
    for name, found in sorted(every.items()):
        kind = found[0].kind
        if kind == _TABLE:
            parts = _columns(found[0], dimensions)
            pairs = {(_digest([part], outline=False), _digest([part], outline=True)) for part in parts}
        else:
            pairs = {(digest(found, dimensions, outline=False), digest(found, dimensions, outline=True))}
        lines.append(" ".join([name, kind, *(one for pair in sorted(pairs) for one in pair)]))
    return lines


def digest(found: Iterable[Definition], dimensions: int, *, outline: bool) -> str:
    """Return the digest of definitions, the same for each DuckDB and length of vectors.

    An outline has only the names of arguments, what is written out and the names of our own objects, however DuckDB
    prints the rest.
    """
    parts = []
    for one in found:
        arguments = tuple(sorted(one.arguments)) if outline else one.signature
        parts.append(_Part(one.kind, arguments, _tokens(one.text, dimensions)))
    return _digest(parts, outline=outline)


class _Part(NamedTuple):
    kind: str
    arguments: tuple[str, ...]
    tokens: tuple[str, ...]


def _digest(parts: Iterable[_Part], *, outline: bool) -> str:
    contents = []
    for kind, arguments, tokens in parts:
        kept = tuple(token for token in tokens if token[0] == "'" or token in _ours()) if outline else tokens
        contents.append(repr((kind, arguments, kept)))
    return hashlib.sha256("\n".join(sorted(contents)).encode()).hexdigest()[:16]


@cache
def _ours() -> frozenset[str]:
    tables = re.findall(r"^CREATE TABLE (?:\w+\.)?(\w+)", read_sql("schema") + read_sql("lexical_index"), re.MULTILINE)
    return frozenset((*MACROS, *VIEWS, *tables))


# The newest DuckDB whose way to print a definition has been compared with that of the older ones.
_TESTED = (2, 0)


def _is_untested() -> bool:
    return tuple(map(int, duckdb.__version__.split(".")[:2])) > _TESTED


_RULES = frozenset({"CHECK", "GENERATED", "FOREIGN"})


def _columns(table: Definition, dimensions: int) -> list[_Part]:
    """Return the columns and rules of a table."""
    columns = next((one for one in _tree(table.text, dimensions) if isinstance(one, list)), [])
    return [_Part("column", (), tuple(_flat(one))) for one in _split(columns)]


def are_generated(table: str) -> list[bool]:
    """Return, by the SQL of a table as DuckDB prints it, for each of its columns whether it is computed when read."""
    return ["GENERATED" in part.tokens for part in _columns(Definition(_TABLE, (), (), table), 0)]


def _tokens(text: str, dimensions: int) -> tuple[str, ...]:
    """Return the words, texts, numbers and signs of a printed definition in the one way that :func:`_tree` has."""
    return tuple(_flat(_tree(text, dimensions)))


# What DuckDB 1.3 to 2.0 print differently for the same, from memory and from a file of another of them: the quotes of
# names and types, brackets, 1e9, lambda v: v or v -> v, lambda v, w: v or row(v, w) -> v, CAST('t' AS BOOLEAN),
# CAST(1 AS DOUBLE), MATERIALIZED, main, BIT(1), CROSS JOIN, the texts of an ENUM. All else counts, and its order: what
# is printed otherwise is other code.
_TOKEN = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|[^\W\d][\w$#]*|\d[\w.]*|\[\d+\]|->>|->|<=|>=|<>|!=|\|\||:=|::|\S""", re.DOTALL
)

# DuckDB prints its own words in capitals or without quotes, names in quotes where they are one of its words.
_NAME = re.compile(r'"(?!(?:true|false|lambda)")([a-z_][a-z0-9_]*)"')

_POWER = re.compile(r"\d[\d.]*e\d+")

_TYPE = re.compile(r'"([A-Z]+)"')

_CONSTANTS = {"'t'": "true", "'f'": "false"}

# A CROSS JOIN as long as it is not known whether its brackets are those of FROM.
_CROSS = "CROSS,"

_JOINS = frozenset({"INNER", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI", "CROSS", "NATURAL", "JOIN"})

_Tree = list[Any]


@lru_cache(maxsize=1024)
def _tree(text: str, dimensions: int) -> _Tree:
    """Return a printed definition as a list of tokens and, for what is in brackets, of lists, printed in one way.

    Brackets that change nothing are left out, and what stands there for each sign word of a vector stands there once.
    """
    levels: list[_Tree] = [[]]
    for piece in _TOKEN.findall(text):
        if piece == "(":
            levels.append([])
        elif piece == ")" and len(levels) > 1:
            inner = _plain(levels.pop(), dimensions)
            while len(inner) == 1 and isinstance(inner[0], list):
                inner = inner[0]
            levels[-1].append(inner)
        else:
            levels[-1].append(repr(float(piece)) if _POWER.fullmatch(piece) else _NAME.sub(r"\1", piece))
    while len(levels) > 1:
        inner = levels.pop()
        levels[-1].append(inner)
    return _plain(levels[0], dimensions)


def _flat(tree: _Tree) -> list[str]:
    result: list[str] = []
    for one in tree:
        if isinstance(one, list):
            result += ["(", *_flat(one), ")"]
        else:
            result.append("," if one == _CROSS else one)
    return result


def _split(tree: _Tree) -> list[_Tree]:
    """Return the parts of a list between its commas."""
    parts: list[_Tree] = [[]]
    for one in tree:
        if one == ",":
            parts.append([])
        else:
            parts[-1].append(one)
    return parts


def _plain(items: _Tree, dimensions: int) -> _Tree:
    """Return what is between two brackets in the one way that :func:`_tree` has."""
    if items[:1] == ["lambda"] and ":" in items:
        items = [*items[1 : items.index(":")], "->", *items[items.index(":") + 1 :]]
    result: _Tree = []
    for place, one in enumerate(items):
        before = result[-1] if result else ""
        if isinstance(one, list):
            after = items[place + 1] if place + 1 < len(items) else ""
            _add_group(result, one, before, after)
        elif one == "." and before == "main" and result[-2:-1] != ["."]:
            result.pop()
        elif one == "MATERIALIZED" and before in ("AS", "NOT"):
            del result[-1 if before == "NOT" else len(result) :]
        elif one == "JOIN" and before == "CROSS":
            result[-1] = _CROSS
        elif one == f"[{dimensions}]" and before in ("FLOAT", "DOUBLE"):
            result.append("[#]")
        else:
            result.append(_TYPE.sub(r"\1", one) if before == "AS" else one)
    return _without_repeats(_chain(result), code_words(dimensions))


def _add_group(result: _Tree, group: _Tree, before: object, after: object) -> None:
    """Append what is in brackets, without them where other DuckDBs print none."""
    words = {one for one in group if isinstance(one, str)}
    is_join = bool(words & {"JOIN", _CROSS}) and group[0] not in ("SELECT", "WITH", "FROM", "VALUES")
    is_sum = "+" in words and not words & {",", "-", "*", "/", "AND", "OR", "SELECT", "CASE"}
    if before == "CAST" and group[1:] == ["AS", "BOOLEAN"] and group[0] in ("'t'", "'f'"):
        result[-1] = _CONSTANTS[group[0]]
    elif before == "CAST" and group[1:] == ["AS", "DOUBLE"] and str(group[0])[0].isdigit():
        result[-1] = group[0]
    elif before == "BIT" and group == ["1"]:
        pass
    elif before in ("row", '"row"') and after == "->":  # the arguments of a lambda with two
        result[-1:] = group
    elif before == "ENUM":
        result.append([one if one == "," or one[0] == "'" else f"'{one}'" for one in _flat(group)])
    elif (is_join and before == "FROM") or (
        not result and ((is_join and after in _JOINS) or (is_sum and after == "+"))
    ):
        result += group
    else:
        result.append(group)


def _chain(items: _Tree) -> _Tree:
    """Return a UNION ALL of queries without the brackets that say which two of them are joined first."""
    if not _is_chain(items):
        return items
    result: _Tree = []
    for query in items[::3]:
        result += [*(["UNION", "ALL"] if result else []), *(query if _is_chain(query) else [query])]
    return result


def _is_chain(items: _Tree) -> bool:
    joints = items[1::3] == ["UNION"] * (len(items) // 3) and items[2::3] == ["ALL"] * (len(items) // 3)
    return len(items) > 1 and len(items) % 3 == 1 and joints and all(isinstance(query, list) for query in items[::3])


def _without_repeats(items: _Tree, words: int) -> _Tree:
    """Return a list with one block for the first sign word, w#, where there is one for each of the sign words.

    Each block has to be what :func:`sqlrag.engines.duckdb.schema.for_dimensions` makes of the first, else it stays.
    """
    if words == 1:
        return _renamed(items)
    place = 0
    while words > 1 and place < len(items):
        if _names(items[place], "w0"):
            length = next((n for n in range(1, len(items) - place) if _names(items[place + n], "w1")), 0)
            for start in range(max(place - length + 1, 0), place + 1) if length else ():
                block, end = items[start : start + length], start + words * length
                if items[start:end] == [one for word in range(words) for one in _shifted(block, word)]:
                    items = [*items[:start], *_renamed(block), *items[end:]]
                    break
        place += 1
    return items


def _names(item: object, word: str) -> bool:
    return any(_names(one, word) for one in item) if isinstance(item, list) else item == word


def _renamed(items: _Tree) -> _Tree:
    return [_renamed(one) if isinstance(one, list) else "w#" if one == "w0" else one for one in items]


def _shifted(items: _Tree, word: int) -> _Tree:
    """Return the block of the first sign word as that of another: w2 for w0, and [3] for [1]."""
    result: _Tree = []
    for one in items:
        if isinstance(one, list):
            result.append([str(word + 1)] if one == ["1"] and result[-1:] == ["list_value"] else _shifted(one, word))
        else:
            result.append({"w0": f"w{word}", "[1]": f"[{word + 1}]"}.get(one, one))
    return result
