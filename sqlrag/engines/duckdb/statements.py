"""SQL put together from fixed names and bound values, and the SQL of a query as text for the DuckDB shell."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlrag.engines.duckdb.schema import MACROS, STORAGE_VERSION
from sqlrag.errors import InputError
from sqlrag.ranking.plan import OF_FUSION, OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import duckdb
    import pyarrow as pa

    from sqlrag.ranking.plan import SearchOptions
    from sqlrag.ranking.terms import Terms

MACRO_OPTIONS = frozenset(
    {"k", "pool", "k1", "b", "text_weight", "heading_weight", "boosts", "at_least", "totals", "nth"}
    | {"collection", "tags_any", "tags_all", "passing"}
)


def call_macro(
    con: duckdb.DuckDBPyConnection, columns: str, macro: str, arguments: dict[str, Any], options: dict[str, Any]
) -> list[tuple[Any, ...]]:
    """Return ``SELECT columns FROM macro(arguments, options)`` in the macro's order, every value bound by name."""
    if macro not in MACROS or not MACRO_OPTIONS.issuperset(options):
        raise InputError(f"There is no search macro {macro} with the options {', '.join(options)}.")
    positional = [f"${name}" for name in arguments]
    named = [f"{name} := ${name}" for name in options]
    statement = f"SELECT {columns} FROM {macro}({', '.join([*positional, *named])})"  # noqa: S608 - fixed names only
    return con.execute(statement, {**arguments, **options}).fetchall()


def select_by_key(con: duckdb.DuckDBPyConnection, statement: str, keys: Sequence[str]) -> list[tuple[Any, ...]]:
    """Run ``statement``, in which ``IN (...)`` is the place of the keys, with one bound placeholder for each.

    The index of a primary key serves a list of values, but not a join with a list that is bound as one value.
    """
    if not keys:
        return []
    return con.execute(statement.replace("(...)", f"({', '.join('?' * len(keys))})"), list(keys)).fetchall()


def attach(con: duckdb.DuckDBPyConnection, path: Path, name: str, *, read_only: bool = False) -> None:
    """Attach a database file by a name; a new file gets our storage version."""
    options = "READ_ONLY" if read_only else f"STORAGE_VERSION '{STORAGE_VERSION}'"
    con.execute(f"ATTACH '{str(path).replace(chr(39), chr(39) * 2)}' AS {identifier(name)} ({options})")


def detach(con: duckdb.DuckDBPyConnection, name: str) -> None:
    """Checkpoint an attached file and detach it."""
    con.execute(f"CHECKPOINT {identifier(name)}")
    con.execute("USE memory.main")
    con.execute(f"DETACH {identifier(name)}")


def copy_rows(
    con: duckdb.DuckDBPyConnection,
    source: Sequence[str],
    target: Sequence[str],
    *,
    columns: Sequence[str],
    order: Iterable[str] = (),
    where: str = "",
) -> None:
    """Insert rows of one table, which a clause may call ``source``, into another, in a stated order or as stored.

    A table is named by catalog, schema and name; the columns are matched by their names.
    """
    chosen = ", ".join(map(identifier, columns))
    rows = f"SELECT {chosen} FROM {qualified(source)} AS source {where}"  # noqa: S608 - quoted names
    statement = f"INSERT INTO {qualified(target)} BY NAME {rows}"
    ordered = ", ".join(map(identifier, order))
    con.execute(f"{statement} ORDER BY {ordered}" if ordered else statement)


def count_rows(con: duckdb.DuckDBPyConnection, table: Sequence[str]) -> int:
    """Return how many rows a table has."""
    return int(con.execute(f"SELECT count(*) FROM {qualified(table)}").fetchall()[0][0])  # noqa: S608


def copy_table(con: duckdb.DuckDBPyConnection, source: Sequence[str], target: Sequence[str]) -> None:
    """Make a table with the columns and rows of another one, without its constraints."""
    con.execute(f"CREATE SCHEMA IF NOT EXISTS {qualified(target[:2])}")
    con.execute(f"CREATE TABLE {qualified(target)} AS FROM {qualified(source)}")


def qualified(names: Sequence[str]) -> str:
    """Return a name of several parts, quoted."""
    return ".".join(map(identifier, names))


def identifier(name: str) -> str:
    """Return one name, quoted."""
    return '"' + name.replace('"', '""') + '"'


def quoted(text: str) -> str:
    """Return a text as a SQL literal, for statements that are shown or cannot bind values."""
    return "'" + text.replace("'", "''") + "'"


_DEFAULT_POOL = 750  # of the macros

_NOT_IN_THE_MACRO = ("rrf_weights",)

_EVERY_CHUNK = 2**31 - 1  # a pool that no store exceeds: its rid is an INTEGER

# The terms of clause_search, as query_terms in Python finds them: a term of several clauses counts for the first; all
# terms of a clause weigh alike, by the chunks that hold one of them.
_CLAUSES = """WITH asked_terms AS (
    $asked
), found_terms AS (
    SELECT d.termid, min(a.clause) AS clause
    FROM asked_terms AS a JOIN fts_main_documents.dict AS d ON d.term = a.term
    GROUP BY d.termid
), counted_terms AS (
    SELECT f.clause, count(DISTINCT p.rid) AS df
    FROM found_terms AS f JOIN fts_main_documents.postings AS p ON p.termid = f.termid
    GROUP BY f.clause
), known_terms AS (
    SELECT f.termid, f.clause, c.df FROM found_terms AS f JOIN counted_terms AS c ON c.clause = f.clause
)
"""

_FORMS = "SELECT w.term, $clause FROM fts_main_documents.words AS w WHERE starts_with(w.word, $prefix)"

_LIST = "(SELECT list(t.$name ORDER BY t.termid) FROM known_terms AS t)"


def as_sql(query_text: str, plan: SearchOptions, terms: Terms, pool: int | None) -> str:
    """Return the statement that gives the same rows in the shell; ``pool`` is the number of candidates by sign code.

    Some of ``hybrid_query`` has no counterpart in its macro and is left out: ``rrf_weights``, ``min_similarity``, a
    number of candidates that differs between the legs, quotes and stars, feedback and expansion. The vector of a
    question comes from the table ``query_embeddings``, where ``sqlrag embed`` puts it; without it the statement is an
    error.
    """
    words = literal(query_text)
    vector = f"(SELECT embedding FROM query_embeddings WHERE query_text = {words})"  # noqa: S608 - shown, not run
    bm25 = {
        name: value
        for name, value in plan.bm25.parameters().items()
        if name == "heading_weight" or value != plan.bm25._field_defaults[name]
    }
    filters = plan.filters.parameters()
    if plan.mode == "lexical":
        options = {"k": plan.top_k, **bm25, **filters}
        if terms.clauses:
            return _clause_search(terms, options)
        if plan.conjunctive:
            options["conjunctive"] = True
        return _note(["expansion"] if plan.expansion else []) + _call("lexical_query", [words], options)
    if plan.mode == "vector":
        options = {"k": plan.top_k, **filters}
        if pool not in (None, _DEFAULT_POOL):
            options["pool"] = pool
        where = "" if plan.min_similarity is None else f" WHERE score >= {literal(plan.min_similarity)}"
        return _call("exact_vector_query" if plan.exact else "vector_query", [vector], options, where)
    options = {"k": plan.top_k}
    if plan.vector_top_k is not None and plan.vector_top_k == plan.lexical_top_k:
        options["pool"] = plan.vector_top_k
    given = {name: getattr(plan, name) for name in ("fusion", *OF_FUSION) if name not in _NOT_IN_THE_MACRO}
    options.update({name: value for name, value in given.items() if value != OPTIONS[name].default})
    if plan.exact:
        options["codes_pool"] = _EVERY_CHUNK
    elif pool not in (None, _DEFAULT_POOL):
        options["codes_pool"] = pool
    lost = [name for name in ("feedback", "expansion") if getattr(plan, name)]
    lost += ["phrases and prefixes"] if terms.clauses else []
    return _note(lost) + _call("hybrid_query", [words, vector], {**options, **bm25, **filters})


def _clause_search(terms: Terms, options: dict[str, Any]) -> str:
    """Return a search for words and prefixes by their text: the number of a term may change when documents do."""
    clauses = list(range(len(terms.texts)))
    asked = [f"SELECT unnest({literal(terms.texts)}) AS term, unnest({literal(clauses)}) AS clause"]
    for clause, prefix in enumerate(terms.prefixes, len(clauses)):
        asked.append(_FORMS.replace("$clause", str(clause)).replace("$prefix", literal(prefix)))
    lists = [_LIST.replace("$name", name) for name in ("termid", "df", "clause")]
    metadata = options.pop("metadata", None)
    if metadata is not None:
        options["passing"] = Raw(f"passing_chunks({literal(metadata)})")
    search = _call("clause_search", [*lists, literal(terms.required), literal(terms.phrases)], options)
    return _CLAUSES.replace("$asked", "\n    UNION ALL ".join(asked)) + search


def _note(lost: list[str]) -> str:
    """Return a comment that says what the statement leaves out, if it does."""
    return f"-- Without {', '.join(lost)}, which the macro does not have.\n" if lost else ""


class Raw(str):
    """SQL text that is not a value."""


def literal(value: Any) -> str:
    """Return a value as a SQL literal."""
    if isinstance(value, Raw):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    if isinstance(value, dict):
        return literal(json.dumps(value, ensure_ascii=False))
    return quoted(str(value))


def _call(macro: str, arguments: list[str], options: dict[str, Any], where: str = "") -> str:
    named = [f"{name} := {literal(value)}" for name, value in options.items()]
    return f"FROM {macro}({', '.join([*arguments, *named])}){where};"


def register(con: duckdb.DuckDBPyConnection, name: str, table: pa.Table | pa.RecordBatchReader) -> None:
    """Let the statements of a connection read an Arrow table as a view.

    DuckDB then imports pyarrow.dataset, in a thread of its own. Where a signal has ended an import of the main thread
    just then, Python's lock of imports is never released, and that thread would wait for ever: so it is imported here.
    """
    import pyarrow.dataset  # noqa: F401

    con.register(name, table)


def arrow_reader(relation: duckdb.DuckDBPyRelation, rows: int) -> pa.RecordBatchReader:
    """Return the rows of a relation as a reader of so many at a time; its connection has to be left alone meanwhile."""
    fetch = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
    reader: pa.RecordBatchReader = fetch(rows)
    return reader
