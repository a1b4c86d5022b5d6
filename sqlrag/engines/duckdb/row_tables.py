"""The tables of rows in a file: their sources, their columns in their own types, and the views that show them.

A file gets them with its first source of rows. The values of a collection's rows are in ``row_values_NAME``, the view
``rows_of_NAME`` shows them with their texts.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlrag.engines.duckdb.failures import reported
from sqlrag.engines.duckdb.metadata import now
from sqlrag.engines.duckdb.schema import object_names, read_sql, run_script
from sqlrag.engines.duckdb.statements import identifier, quoted, register
from sqlrag.errors import InputError, StoreError
from sqlrag.types import FILE_FIELDS, ROW

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import duckdb
    import pyarrow as pa

# Names that the view, or the metadata of every chunk, has already.
RESERVED = ("doc_id", "row_key", "row_text", "row_hash", *FILE_FIELDS, "truncated")

KEY_TYPES = re.compile(
    r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|VARCHAR|UUID|DATE|TIMESTAMP(_S|_MS)?|BOOLEAN|DECIMAL\(\d+,\d+\)|ENUM\(.*\)"
)


_NEEDED = frozenset({"kind", "source", "database", "key", "text"})
_DEFINED = _NEEDED | {"title", "metadata", "tags", "markdown", "leave_out"}


class RowSource(NamedTuple):
    """A source of rows as the file remembers it; ``watermarks`` are by column: the value and the type."""

    collection: str
    definition: dict[str, Any]
    definition_hash: str
    key_type: str
    watermarks: dict[str, list[str]]

    @property
    def was_given(self) -> bool:
        """Whether a program gave the rows, so that nothing but a program can read them again."""
        return isinstance(self.definition, dict) and self.definition.get("kind") == "object"


def sources(con: duckdb.DuckDBPyConnection) -> dict[str, RowSource]:
    """Return the sources of rows of the default database by their collections, in order."""
    if not con.execute(read_sql("rows/is_there")).fetchall():
        return {}
    rows = con.execute(read_sql("rows/sources")).fetchall()
    for collection, _, _, key_type, _ in rows:
        if not KEY_TYPES.fullmatch(key_type):  # it becomes a part of statements
            raise StoreError(
                "row_sources",
                f"row_sources names {key_type!r} as the type of the keys of {collection}, which is none. "
                "Somebody changed the file: get another copy of it.",
            )
    return {row[0]: RowSource(row[0], json.loads(row[1]), row[2], row[3], json.loads(row[4])) for row in rows}


def _is_defined(source: RowSource) -> bool:
    return isinstance(source.definition, dict) and _NEEDED <= source.definition.keys() <= _DEFINED


def check_definition(source: RowSource) -> None:
    """Raise StoreError where the definition of a source lacks a field, or has an unknown one."""
    if not _is_defined(source):
        raise StoreError(
            "row_sources",
            f"The definition of {source.collection} in row_sources has other fields than one has: {source.definition}. "
            "Somebody changed the file: run sqlrag repair, which forgets the source, then index_rows.",
        )


def table_of(collection: str) -> str:
    """Return the name of the table of a collection's rows."""
    return f"row_values_{collection}"


def view_of(collection: str) -> str:
    """Return the name of the view of a collection's rows."""
    return f"rows_of_{collection}"


def names(con: duckdb.DuckDBPyConnection) -> set[str]:
    """Return the names, with their schema, of the tables and views of all sources of rows."""
    own = {name for collection in sources(con) for name in (table_of(collection), view_of(collection))}
    return {f"main.{name}" for name in ("row_sources", *own)}


def columns_of(con: duckdb.DuckDBPyConnection, collection: str) -> dict[str, str]:
    """Return the columns of a collection's rows with their types, in order."""
    described = con.execute(f"DESCRIBE {identifier(table_of(collection))}").fetchall()
    return {name: kind for name, kind, *_ in described if name not in ("doc_id", "row_hash")}


def create(con: duckdb.DuckDBPyConnection, collection: str, columns: Mapping[str, str], key: str) -> None:
    """Make the table and the view of a collection, inside the caller's transaction.

    Of a table that is there, the values stay that are of a type that can become the new one; no hash of its rows stays,
    so that all of them are written again.
    """
    table = identifier(table_of(collection))
    run_script(con, "rows/registry")
    old = columns_of(con, collection) if collection in sources(con) else {}
    if old != dict(columns):
        values = []
        for name, kind in columns.items():
            value = f"TRY_CAST({identifier(name)} AS {kind})" if name in old else f"CAST(NULL AS {kind})"
            values.append(f"{value} AS {identifier(name)}")
        begin = f"FROM {table}" if old else "FROM (SELECT '' AS doc_id LIMIT 0)"
        con.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT doc_id, '' AS row_hash, {', '.join(values)} {begin}")
        comment = f"The rows of the collection {collection} in their own types"
        con.execute(f"COMMENT ON TABLE {table} IS {quoted(comment)}")
    _create_view(con, collection, key)


def _create_view(con: duckdb.DuckDBPyConnection, collection: str, key: str) -> None:
    comment = f"The rows of the collection {collection} in their own types, with doc_id, their key and their text"
    con.execute(
        f"CREATE OR REPLACE VIEW {identifier(view_of(collection))} AS "  # noqa: S608 - quoted
        f"SELECT v.doc_id, v.{identifier(key)} AS row_key, v.* EXCLUDE (doc_id, row_hash), s.text AS row_text "
        f"FROM {identifier(table_of(collection))} AS v JOIN source_documents AS s ON s.doc_id = v.doc_id"
    )
    con.execute(f"COMMENT ON VIEW {identifier(view_of(collection))} IS {quoted(comment)}")


def restore_views(con: duckdb.DuckDBPyConnection) -> None:
    """Make the views of all sources of rows, inside the caller's transaction."""
    for source in sources(con).values():
        check_definition(source)
        _create_view(con, source.collection, source.definition["key"])


def remember(
    con: duckdb.DuckDBPyConnection,
    collection: str,
    definition: Mapping[str, Any],
    definition_hash: str,
    key_type: str,
    watermarks: Mapping[str, Sequence[str]],
) -> None:
    """Record a source in place of an earlier one of its collection, inside the caller's transaction."""
    run_script(
        con, "rows/record", collection=collection, definition=json.dumps(definition, ensure_ascii=False),
        definition_hash=definition_hash, key_type=key_type, watermarks=json.dumps(watermarks), updated_at=now(),
    )  # fmt: skip


def insert(con: duckdb.DuckDBPyConnection, collection: str, columns: Mapping[str, str], values: pa.Table) -> None:
    """Insert the values of rows in place of those they had, inside the caller's transaction."""
    forget(con, values["doc_id"].to_pylist())
    register(con, "new_row_values", values)
    typed = ", ".join(f"CAST({identifier(name)} AS {kind}) AS {identifier(name)}" for name, kind in columns.items())
    con.execute(
        f"INSERT INTO {identifier(table_of(collection))} BY NAME SELECT doc_id, row_hash, {typed} FROM new_row_values"  # noqa: S608 - quoted
    )
    con.unregister("new_row_values")


def forget(con: duckdb.DuckDBPyConnection, doc_ids: Sequence[str]) -> None:
    """Delete the values of rows whose documents are deleted, inside the caller's transaction."""
    for collection in sources(con) if doc_ids else ():
        own = [doc_id for doc_id in doc_ids if doc_id.startswith(f"{collection}/")]
        if own:
            con.execute(f"DELETE FROM {identifier(table_of(collection))} WHERE doc_id IN (SELECT unnest($1))", [own])  # noqa: S608 - quoted


def drop(con: duckdb.DuckDBPyConnection, collections: Sequence[str]) -> None:
    """Forget sources of rows whose documents are deleted, with their tables, inside the caller's transaction."""
    for collection in collections:
        con.execute("DELETE FROM row_sources WHERE collection = $1", [collection])
        con.execute(f"DROP VIEW IF EXISTS {identifier(view_of(collection))}")
        con.execute(f"DROP TABLE IF EXISTS {identifier(table_of(collection))}")


def stored(con: duckdb.DuckDBPyConnection, doc_ids: Sequence[str]) -> list[str]:
    """Return those of the documents that have the values of a row, in order."""
    found: list[str] = []
    for collection in sources(con) if doc_ids else ():
        table = identifier(table_of(collection))
        rows = con.execute(f"SELECT doc_id FROM {table} WHERE doc_id IN (SELECT unnest($1))", [list(doc_ids)])  # noqa: S608 - quoted
        found += [doc_id for (doc_id,) in rows.fetchall()]
    return sorted(found)


def of_earlier_columns(con: duckdb.DuckDBPyConnection, collection: str) -> list[str]:
    """Return the rows of a collection that were not written again since its columns changed, in order."""
    table = identifier(table_of(collection))
    found = con.execute(f"SELECT doc_id FROM {table} WHERE row_hash = '' ORDER BY doc_id")  # noqa: S608 - quoted
    return [doc_id for (doc_id,) in found.fetchall()]


def add_keys(con: duckdb.DuckDBPyConnection, chunks: Iterable[dict[str, Any]]) -> None:
    """Give each chunk of a row its ``row_key``: the key in its own type, as text where it is none of that type now."""
    rows = [chunk for chunk in chunks if str(chunk["metadata"].get("mime")).startswith(ROW)]
    if not rows:
        return
    for collection, source in sources(con).items():
        prefix = f"{collection}/"
        own = [chunk for chunk in rows if chunk["doc_id"].startswith(prefix)]
        texts = [chunk["doc_id"].removeprefix(prefix) for chunk in own]
        key = "CASE WHEN contains(k, '%') THEN url_decode(k) ELSE k END"
        typed = f"TRY_CAST(key AS {source.key_type})"  # a type that was checked
        found = con.execute(
            f"SELECT {typed}, CAST({typed} AS VARCHAR) = key, key "  # noqa: S608
            f"FROM (SELECT {key} AS key, n FROM (SELECT unnest($1) AS k, unnest($2) AS n)) ORDER BY n",
            [texts, list(range(len(texts)))],
        ).fetchall()
        # A row that the source has no more may have a key that is none of its type now.
        for chunk, (value, is_same, text) in zip(own, found, strict=True):
            chunk["row_key"] = value if is_same else text


_WITH_ZONE = "TIMESTAMP WITH TIME ZONE"

# What Python has no exact value for, in lists and structures also times with zones, and what may be infinite.
_AS_TEXT = re.compile(rf"\bINTERVAL\b|\bTIME(STAMP)?_NS\b|(?<=.){_WITH_ZONE}|{_WITH_ZONE}(?=.)")

_MAY_BE_INFINITE = re.compile(r"\b(DATE|TIMESTAMP)")


def add_values(con: duckdb.DuckDBPyConnection, documents: Iterable[dict[str, Any]]) -> None:
    """Give each document of a row its ``row``: the columns with their values, those that Python lacks as text."""
    wanted = {document["doc_id"]: document for document in documents}
    for collection in sources(con) if wanted else ():
        own = [doc_id for doc_id in wanted if doc_id.startswith(f"{collection}/")]
        if not own:
            continue
        columns = columns_of(con, collection)
        values = ", ".join(_in_python(identifier(name), kind) for name, kind in columns.items())
        found = con.execute(
            f"SELECT doc_id, {values} FROM {identifier(table_of(collection))} WHERE doc_id IN (SELECT unnest($1))",  # noqa: S608 - quoted
            [own],
        ).fetchall()
        for doc_id, *pairs in found:
            wanted[doc_id]["row"] = dict(zip(columns, _values(pairs, columns.values()), strict=True))


def _in_python(column: str, kind: str) -> str:
    """Return the SQL of a value for Python, and of its text where that is what Python gets: two columns."""
    bare, text = bare_type(kind), f"CAST({column} AS VARCHAR)"
    if _AS_TEXT.search(bare):
        return f"NULL, {text}"
    # DuckDB 1.3 gives no times with zones to Python without pytz.
    value = f"make_timestamp(epoch_us({column}))" if kind == _WITH_ZONE else column
    return f"{value}, " + (
        f"CASE WHEN contains({text}, 'infinity') THEN {text} END" if _MAY_BE_INFINITE.search(bare) else "NULL"
    )


def _values(pairs: Sequence[Any], kinds: Iterable[str]) -> list[Any]:
    """Return the values of what :func:`_in_python` selects for columns of these types."""
    values = []
    for value, text, kind in zip(pairs[::2], pairs[1::2], kinds, strict=True):
        is_time = text is None and kind == _WITH_ZONE and isinstance(value, dt.datetime)
        values.append(value.replace(tzinfo=dt.UTC) if is_time else value if text is None else text)
    return values


def bare_type(kind: str) -> str:
    """Return a type without the names of its fields, which may be those of types."""
    return re.sub(r'"(?:[^"]|"")*"', "", kind)


_COUNTED = re.compile(r"(VARCHAR|BOOLEAN)(\[\])?")

_ORDERED = re.compile(
    r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DOUBLE|FLOAT|DECIMAL\(.*\)|DATE|TIME|TIMESTAMP(_S|_MS|_NS| WITH TIME ZONE)?"
)

_LONGEST_VALUE = 200  # characters of a text that is offered to choose from


def described(con: duckdb.DuckDBPyConnection, most: int) -> list[dict[str, Any]]:
    """Return the sources of rows with their columns, as of :meth:`sqlrag.Store.row_sources`."""
    found = []
    for collection, source in sources(con).items():
        check_definition(source)
        table = identifier(table_of(collection))
        columns = [_described(con, table, name, kind, most) for name, kind in columns_of(con, collection).items()]
        rows = con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]  # noqa: S608 - quoted
        found.append({"collection": collection, "rows": rows, "key": source.definition["key"], "columns": columns})
    return found


def _described(con: duckdb.DuckDBPyConnection, table: str, name: str, kind: str, most: int) -> dict[str, Any]:
    """Return a column: of texts and truth values how often each is there, of numbers and times least and greatest."""
    column = identifier(name)
    bounds = ""
    if _ORDERED.fullmatch(kind):
        finite = f" FILTER (isfinite({column}))" if may_be_infinite(kind) else ""
        bounds = "".join(f", {_in_python(f'{bound}({column}){finite}', kind)}" for bound in ("min", "max"))
    filled, *pairs = con.execute(f"SELECT count({column}){bounds} FROM {table}").fetchall()[0]  # noqa: S608 - quoted
    known = {"name": name, "type": kind, "filled": filled}
    if bounds:
        return known | dict(zip(("least", "greatest"), _values(pairs, [kind] * 2), strict=True))
    if not _COUNTED.fullmatch(kind):
        return known
    value = f"unnest(list_distinct({column}))" if kind.endswith("[]") else column
    values = f"(SELECT {value} AS value FROM {table})"  # noqa: S608 - quoted
    distinct = con.execute(f"SELECT count(DISTINCT value) FROM {values}").fetchall()[0][0]  # noqa: S608 - quoted
    rows = con.execute(
        f"SELECT value, count(*) AS rows FROM {values} WHERE length(CAST(value AS VARCHAR)) <= {_LONGEST_VALUE} "  # noqa: S608 - quoted
        f"GROUP BY value HAVING count(*) > 1 OR {distinct} <= {most} ORDER BY rows DESC, value LIMIT {most}"
    ).fetchall()
    return known | {"distinct": distinct, "values": [{"value": value, "rows": count} for value, count in rows]}


def may_be_infinite(kind: str) -> bool:
    """Return whether a type has NaN or infinity."""
    return re.fullmatch(r"DOUBLE|FLOAT|DATE|TIMESTAMP[^\[]*", kind) is not None


def problems(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return what is wrong with the sources of rows: rows without a document or values, and what is missing."""
    found: list[str] = []
    known = sources(con)
    names = object_names(con) if known else set()
    for collection, source in known.items():
        if not _is_defined(source):
            found.append(f"row_sources: {collection}")
        lost = {f"main.{name}" for name in (table_of(collection), view_of(collection))} - names
        if lost:
            found += sorted(lost)
            continue
        table = identifier(table_of(collection))
        found += [
            row[0]
            for row in con.execute(
                f"(SELECT doc_id FROM {table} WHERE doc_id NOT IN (SELECT doc_id FROM source_documents)) UNION ALL "  # noqa: S608 - quoted
                "(SELECT doc_id FROM source_documents WHERE starts_with(doc_id, $1) AND starts_with(mime, $2) "
                f"AND doc_id NOT IN (SELECT doc_id FROM {table})) ORDER BY doc_id",
                [f"{collection}/", ROW],
            ).fetchall()
        ]
    return found


def repair(con: duckdb.DuckDBPyConnection) -> None:
    """Restore the views and remove values without a document, inside the caller's transaction.

    A source without its table, or with a damaged definition, is forgotten; its documents stay.
    """
    known = sources(con)
    names = object_names(con) if known else set()
    for collection, source in known.items():
        if f"main.{table_of(collection)}" not in names or not _is_defined(source):
            con.execute("DELETE FROM row_sources WHERE collection = $1", [collection])
            continue
        table = identifier(table_of(collection))
        con.execute(f"DELETE FROM {table} WHERE doc_id NOT IN (SELECT doc_id FROM source_documents)")  # noqa: S608 - quoted
    restore_views(con)


def check_name(collection: str, known: Iterable[str]) -> None:
    """Raise InputError where another source has the name in another case: their tables would be one."""
    twin = next((name for name in known if name != collection and name.casefold() == collection.casefold()), None)
    if twin is not None:
        raise InputError(
            f"The file has a source of rows {twin!r}, and DuckDB's names are the same in any case. Name {collection!r} "
            "differently (collection)."
        )


def merge(con: duckdb.DuckDBPyConnection, path: object, reader: duckdb.DuckDBPyConnection) -> None:
    """Copy the sources of rows of another file, inside the caller's transaction; no document may be in both.

    Raises
    ------
    InputError
        Both files have a source of one name with other columns or another key, or of names that differ in case alone.
    """
    known = sources(con)
    with reported(path):
        theirs = sources(reader)
        for source in theirs.values():
            check_definition(source)
    for collection, source in theirs.items():
        with reported(path):
            columns = columns_of(reader, collection)
        check_name(collection, known)
        ours = known.get(collection)
        if ours is not None and (columns_of(con, collection), ours.definition["key"]) != (
            columns,
            source.definition["key"],
        ):
            raise InputError(
                f"{path} has rows of {collection!r} with other columns or another key than the files before it. Update "
                "both from sources with the same columns, or leave one out."
            )
        create(con, collection, columns, source.definition["key"])
        if ours is None:
            remember(con, *source[:4], {})
        with reported(path):
            before = reader.execute("SELECT current_setting('arrow_lossless_conversion')").fetchall()[0][0]
            reader.execute("SET arrow_lossless_conversion = true")
            rows = reader.sql(f"FROM {identifier(table_of(collection))}").to_arrow_table()
            reader.execute(f"SET arrow_lossless_conversion = {before}")
        insert(con, collection, columns, rows)
