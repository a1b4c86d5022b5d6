"""Reads a source of rows into a database of its own, where its columns are checked and its rows compared."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import string
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from sqlrag import arguments
from sqlrag.arguments import counted, shown
from sqlrag.engines.duckdb import row_tables
from sqlrag.engines.duckdb.files import confine
from sqlrag.engines.duckdb.row_tables import KEY_TYPES, RESERVED, bare_type, may_be_infinite
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.engines.duckdb.statements import arrow_reader, attach, identifier, quoted, register
from sqlrag.errors import InputError, NotFoundError
from sqlrag.ingest import row_faults
from sqlrag.network import scheme_of
from sqlrag.normalize import clean_metadata, without_surrogates

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from sqlrag.engines.duckdb.row_tables import RowSource

_QUERY = re.compile(r"\s*(?:--[^\n]*\n\s*)*(?:\(|(?:SELECT|FROM|WITH|VALUES)\s)", re.IGNORECASE)

_READ_IN_SQL = re.compile(r"\b(?:(?:FROM|JOIN)\s+|read_\w+\s*\(\s*\[?\s*)'([^']+)'", re.IGNORECASE)

READERS = {
    "read_parquet": (".parquet", ".pq"),
    "read_csv": (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.zst"),
    "read_json": (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz"),
}

_UNSUPPORTED = re.compile(r"\b(BLOB|UNION|GEOMETRY|VARIANT|AGGREGATE_STATE)\b")

# What Arrow has no exact type for, where a connection is not set to name DuckDB's own.
_NOT_IN_ARROW = re.compile(r"U?HUGEINT|BIGNUM|VARINT|BIT|UUID|TIME_NS|TIME WITH TIME ZONE|JSON|ENUM\(.*\)")

# The types of numbers and times, whose greatest value can be that of the last change.
_GROWS = re.compile(r"U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)|DECIMAL.*|FLOAT|DOUBLE|DATE|TIMESTAMP[^\[]*")

_ISO_TIME = r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?)?"

_MEMORY = "1GB"

_NAMED = 5  # examples in a message

ROWS_AT_ONCE = 4096

_SURELY_FITS = 64  # characters of JSON, which has at most 32 levels then


@dataclass(frozen=True)
class Definition:
    """What makes documents of rows.

    ``kind`` is "files", "query" or "object"; ``text`` a column, columns or a template.
    """

    kind: str
    source: tuple[str, ...]
    database: str
    key: str
    text: str | tuple[str, ...]
    title: str | None = None
    metadata: tuple[str, ...] | None = None
    tags: str | None = None
    markdown: bool = False
    leave_out: tuple[str, ...] = ()

    @classmethod
    def of(cls, source: RowSource) -> Definition:
        """Return the definition of a stored source; raise StoreError where it is damaged."""
        row_tables.check_definition(source)
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in source.definition.items()
        }
        return cls(**values)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns that the text may be made of: those listed, one of this name, and those of a template."""
        if isinstance(self.text, tuple):
            return self.text
        try:
            return self.text, *(field[1] for field in _fields(self.text) if field[1])
        except ValueError:  # a column whose name is no template
            return (self.text,)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files, or the database, that the rows are read from, as far as the definition names them."""
        if self.kind == "query":
            return (self.database,) if self.database else tuple(_READ_IN_SQL.findall(self.source[0]))
        return self.source if self.kind == "files" else ()

    def as_json(self) -> dict[str, Any]:
        """Return it as it is stored."""
        return asdict(self)

    @property
    def digest(self) -> str:
        """The SHA-256 of it as it is stored, in hex."""
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()

    def __str__(self) -> str:
        """Name the source."""
        return {"object": "the given rows", "query": "the query"}.get(self.kind) or ", ".join(self.source)


def is_query(text: str) -> bool:
    """Return whether a text begins as a SELECT does, and so is no path."""
    return _QUERY.match(text) is not None


def kind_of(source: Any, database: Any) -> tuple[str, tuple[str, ...], str]:
    """Return the kind of a source, what is remembered of it, and the path of its database."""
    connection = isinstance(database, duckdb.DuckDBPyConnection)
    path = "" if database is None or connection else os.path.abspath(arguments.path("database", database))  # noqa: PTH100
    if isinstance(source, str) and (path or connection or is_query(source)):
        return ("object" if connection else "query"), (source,), path
    if database is not None:
        raise InputError("database is for a query: pass SQL as the source, such as SELECT * FROM tickets.")
    paths = list(source) if isinstance(source, (list, tuple)) else [source]
    if paths and all(isinstance(path, (str, os.PathLike)) for path in paths):
        named = [os.fspath(arguments.path("source", path)) for path in paths]
        if address := next((path for path in named if scheme_of(path)), ""):
            raise InputError(f"{address} is an address. Download it, or pass a query with a connection that reads it.")
        return "files", tuple(os.path.abspath(os.path.expanduser(path)) for path in named), ""  # noqa: PTH100, PTH111
    if isinstance(source, (list, tuple, dict)):
        raise _no_source(source)
    return "object", (), ""


def _no_source(given: Any) -> InputError:
    rows = given if isinstance(given, (list, tuple)) else [given]
    hint = " Make a frame of dicts: pandas.DataFrame(rows)." if isinstance(next(iter(rows), None), dict) else ""
    return InputError(
        "source must be a path, SQL, a DuckDB relation, an Arrow table or reader, or a frame of pandas or polars, not "
        f"{arguments.shown(given)}.{hint}"
    )


class Staging:
    """A source of rows, read into a database of its own in a folder.

    Parameters
    ----------
    folder
        A temporary folder.
    definition
        What makes documents of the rows.
    given, connection
        The source itself where it is an object of Python, and the connection that a query is for.
    since
        A column, its least value and its type then: other rows are not read, unless the type is another one now.
    remembered
        The collection whose stored definition this is; "" where the caller has given it.
    """

    def __init__(
        self,
        folder: Path,
        definition: Definition,
        given: Any = None,
        connection: duckdb.DuckDBPyConnection | None = None,
        since: tuple[str, str, str] | None = None,
        remembered: str = "",
    ) -> None:
        self.definition = definition
        self.notes: list[str] = []
        self._remembered = remembered
        # Of several files of CSV: those of each format, and what all are read by.
        self._formats: dict[tuple[str, str], list[str]] = {}
        self._order: dict[str, str] = {}
        self._index: list[object] | None = None  # the names of the index of a frame of pandas
        self.unread = Counter[str]()
        self._path = folder / "sqlrag_staging.duckdb"
        self.con = duckdb.connect(str(self._path), config={"memory_limit": _MEMORY})
        try:
            self.con.execute("SET arrow_lossless_conversion = true")
            for setting in ("autoinstall_known_extensions", "autoload_known_extensions"):
                self.con.execute(f"SET {setting} = false")
            with suppress(duckdb.CatalogException):  # DuckDB without time zones
                self.con.execute("SET TimeZone = 'UTC'")
            self._read(given, connection, since)
            described = self.con.execute("DESCRIBE source").fetchall()
            # A column without any value has no type.
            self.types: dict[str, str] = {name: "VARCHAR" if kind == '"NULL"' else kind for name, kind, *_ in described}
            self._choose()
        except BaseException:
            self.con.close()
            raise

    @property
    def bytes(self) -> int:
        """How large the database is."""
        return self._path.stat().st_size

    def close(self) -> None:
        """Close the database."""
        self.con.close()

    def _read(
        self, given: Any, connection: duckdb.DuckDBPyConnection | None, since: tuple[str, str, str] | None
    ) -> None:
        wanted = self.definition
        of_arrow, casts = False, dict[str, str]()
        try:
            if wanted.kind == "files":
                rows = f"FROM {self._files(wanted.source)}"
            elif wanted.kind == "query" and connection is None:
                rows = self._query(wanted.source[0])
            else:
                made = connection.sql(_checked_query(connection, wanted.source[0])) if connection else given
                reader, casts = self._arrow(made)
                register(self.con, "given_rows", reader)
                rows, of_arrow = "FROM given_rows", True
            if casts:
                rows = (
                    f"SELECT * REPLACE ({', '.join(f'CAST({n} AS {kind}) AS {n}' for n, kind in casts.items())}) {rows}"
                )
            if since:
                column, least, kind = since
                described = self.con.execute(f"DESCRIBE FROM ({rows}\n) AS r").fetchall()
                now = next((one[1] for one in described if one[0].casefold() == column.casefold()), kind)
                if now == kind:
                    name = identifier(column)
                    later = f"{name} >= {quoted(least)}"
                    if kind == "VARCHAR":
                        later = f"{_time_of(name)} >= TRY_CAST({quoted(least)} AS TIMESTAMP)"
                    if of_arrow or kind == "VARCHAR":
                        # Within a function: DuckDB 1.3 lets Arrow compare, to which NaN is not the greatest.
                        later = f"coalesce({later}, true)"
                    rows = f"FROM ({rows}\n) AS r WHERE {later} OR {name} IS NULL"
                else:
                    self.notes.append(f"The column {column} is {now} now, not {kind}: all rows were read (since).")
            self._create(rows)
        except (duckdb.Error, pa.ArrowException, UnicodeError) as error:
            raise row_faults.unreadable(
                error, str(wanted), kind=wanted.kind, source=wanted.source, database=wanted.database, key=wanted.key
            ) from error
        finally:
            self.con.execute("USE sqlrag_staging.main")
            self.con.execute("DROP VIEW IF EXISTS given_rows")

    def _create(self, rows: str) -> None:
        """Make the table of the rows; columns of CSV that DuckDB takes for what they are not are texts in it."""
        paths, texts = self.definition.source, list[str]()
        while True:
            try:
                self.con.execute(f"CREATE TABLE sqlrag_staging.main.source AS {rows}")
            except duckdb.ConversionException as error:
                column = row_faults.misread_column(error) if self.definition.kind == "files" else ""
                if not column or column in texts:
                    raise
                read = row_faults.csv_of(paths, self._order, texts)
                texts.append(column)
                rows = rows.replace(read, row_faults.csv_of(paths, self._order, texts))
            else:
                return

    def _files(self, paths: tuple[str, ...]) -> str:
        """Return the call that reads files, which are of one kind."""
        readers = {_reader_of(path) for path in paths}
        for path in paths:
            if other := row_faults.hint_of(path):
                raise InputError(other) if row_faults.files_of([path]) else row_faults.no_file(path)
        if len(readers) != 1 or "" in readers:
            ends = ", ".join(end for ends in READERS.values() for end in ends)
            raise InputError(
                f"{', '.join(paths)}: rows are read from files of one kind, by their suffix: {ends}. For others pass a "  # noqa: S608 - a message
                "query, such as SELECT * FROM read_csv('rows.txt')."
            )
        name = readers.pop()
        if name == "read_csv":
            files = row_faults.files_of(paths)
            if files[1:]:
                with suppress(duckdb.Error):  # the reader says what is wrong
                    self._formats = row_faults.date_formats(self.con, files)
            self._order = row_faults.common_order(self.con, self._formats)
            return row_faults.csv_of(paths, self._order)
        # A file is read to its end before its types are chosen: no later row can be of another.
        whole = ", sample_size = -1" * (name == "read_json")
        return f"{name}([{', '.join(map(quoted, paths))}], union_by_name = true{whole})"

    def _query(self, query: str) -> str:
        """Return a query that is safe to run; a database that it is for is attached."""
        if self.definition.database:
            path = Path(self.definition.database)
            if not path.exists():
                raise NotFoundError(f"There is no database {path}. Name a DuckDB file, or pass a connection.")
            name = path.stem if path.stem.lower() not in _CATALOGS else f"{path.stem}_database"
            attach(self.con, path, name, read_only=True)
            confine(self.con)
            self.con.execute(f"USE {identifier(name)}.main")
        return _checked_query(self.con, query)

    def _arrow(self, given: Any) -> tuple[Any, dict[str, str]]:
        """Return an object as what DuckDB reads, with the columns that have to be cast back to their own types."""
        if isinstance(given, duckdb.DuckDBPyRelation):
            casts = {
                identifier(name): str(kind)
                for name, kind in zip(given.columns, map(str, given.types), strict=True)
                if _NOT_IN_ARROW.fullmatch(kind)
            }
            nested = [
                f"{name} {kind}"
                for name, kind in zip(given.columns, map(str, given.types), strict=True)
                if "HUGEINT" in kind and identifier(name) not in casts
            ]
            if nested:
                raise InputError(
                    f"The columns {', '.join(nested)} of the relation cannot be passed on exactly. Cast them, for "
                    "instance to DECIMAL(38,0)."
                )
            if casts:
                texts = ", ".join(f"CAST({name} AS VARCHAR) AS {name}" for name in casts)
                given = given.project(f"* REPLACE ({texts})")
            return arrow_reader(given, ROWS_AT_ONCE), casts
        kind = type(given).__module__.partition(".")[0]
        if kind == "pandas" and hasattr(given, "columns"):
            return self._of_pandas(given), {}
        if kind == "polars" and hasattr(given, "lazy"):
            given = (given.collect() if hasattr(given, "collect") else given).to_arrow()
        if isinstance(given, pa.Table):
            given.validate(full=True)
            return given, {}
        if isinstance(given, pa.RecordBatchReader) or hasattr(given, "__arrow_c_stream__"):
            reader = given if isinstance(given, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(given)
            return pa.RecordBatchReader.from_batches(reader.schema, _validated(reader)), {}
        raise _no_source(given)

    def _of_pandas(self, frame: Any) -> pa.Table:
        """Return a frame of pandas as a table; a lone surrogate in a text becomes U+FFFD, and is reported."""
        self._index = list(frame.index.names)
        columns, names = [], [str(name) for name in frame.columns]
        if twice := [name for name in names if names.count(name) > 1]:
            raise InputError(f"The frame has two columns named {twice[0]!r}. Rename one, or leave it out.")
        for place, name in enumerate(names):
            column = frame.iloc[:, place]
            try:
                columns.append(self._of_series(name, column))
            except pa.ArrowException as error:
                raise InputError(
                    f"The column {name} has values that are not of one type: {error}. Make them so, for instance by "
                    f"frame[{name!r}].astype(str), or leave the column out of the frame."
                ) from error
        return pa.Table.from_arrays(
            [c if isinstance(c, pa.ChunkedArray) else pa.chunked_array([c]) for c in columns], names
        )

    def _of_series(self, name: str, column: Any) -> Any:
        if str(getattr(column.dtype, "categories", column).dtype).startswith("period["):  # numbers, as Arrow has them
            column = column.astype(object).map(str, na_action="ignore")
        try:
            return pa.Array.from_pandas(column)
        except UnicodeEncodeError:
            values = [without_surrogates(v) if isinstance(v, str) else v for v in column.tolist()]
            bad = [
                i
                for i, (old, new) in enumerate(zip(column.tolist(), values, strict=True))
                if old is not new and old != new
            ]
            self.notes.append(
                f"The column {name} has {counted(len(bad), 'text')} with invalid Unicode (a lone surrogate), the "
                f"first in row {bad[0]}: U+FFFD is in its place."
            )
            return pa.array(values, from_pandas=True)

    # Columns.

    def _choose(self) -> None:
        """Find the columns that are used, and check them and the keys."""
        wanted = self.definition
        if any(name.casefold() == "rowid" for name in self.types):
            raise InputError("A column cannot be named rowid, as DuckDB numbers rows by it. Rename it by a query.")
        self.key = self.named("key", wanted.key)
        texts = wanted.text if isinstance(wanted.text, tuple) else self._template(wanted.text)
        of_text = self.of_text = [self.named("text", name) for name in texts]
        there = {name.casefold() for name in self.types}
        # What the source has lost since is left out by itself.
        self.lost = [name for name in wanted.leave_out if self._remembered and name.casefold() not in there]
        left_out = {self.named("leave_out", name) for name in wanted.leave_out if name not in self.lost}
        self.title = None if wanted.title is None else self.named("title", wanted.title)
        self.tags = None if wanted.tags is None else self.named("tags", wanted.tags)
        if wanted.metadata is None:
            chosen = [
                name for name in self.types if name not in left_out and (name not in of_text or name == self.title)
            ]
        else:
            chosen = [self.named("metadata", name) for name in wanted.metadata]
        self.columns = {name: self.types[name] for name in dict.fromkeys([self.key, *chosen])}
        self.columns = {name: "VARCHAR" if kind.startswith("ENUM(") else kind for name, kind in self.columns.items()}
        used = dict.fromkeys([*self.columns, *of_text, *filter(None, (self.title, self.tags))])
        self._check_names(used)
        if self.title is None and self.columns.get("title") == "VARCHAR":
            self.title = "title"  # as the title of a document is
        self.text = self.text_sql(wanted.text)
        self._check_tags()
        self._check_keys()
        self._note_numbers()

    def named(self, option: str, name: str) -> str:
        """Return a column by its name, in whatever case; raise InputError where there is none."""
        arguments.text(option, name)
        if name in self.types:
            return name
        found = [column for column in self.types if column.casefold() == name.casefold()]
        if len(found) == 1 and f"{name}_1" in self.types:  # DuckDB's name for the second of two
            raise InputError(
                f"The columns {found[0]!r} and {name!r} of {self.definition} differ in case alone; as DuckDB reads "
                f"them, they are {found[0]!r} and {name + '_1'!r}. Name one of these as {option}."
            )
        if len(found) == 1:
            return found[0]
        folded = {column.casefold(): column for column in self.types}
        near = difflib.get_close_matches(name.casefold(), folded, 1)
        files = self.definition.source if self.definition.kind == "files" else ()
        hint = row_faults.missing_column_hint(files, name, list(self.types))
        hint = hint or (f" Did you mean {folded[near[0]]!r}?" if near else "")
        if name in (self._index or ()):
            hint = " It is the index of the frame: pass frame.reset_index()."
        elif self._remembered and option != "since":
            hint += (
                f" If it was renamed, call index_rows again with its new name and collection={self._remembered!r}: "
                "rows with the same key and text stay."
            )
        raise InputError(
            f"There is no column {name!r} ({option}) in {self.definition}.{hint} Its columns: {', '.join(self.types)}."
        )

    def text_sql(self, wanted: str | tuple[str, ...]) -> str:
        """Return the SQL of the text of a row, made of a column, columns or a template."""
        texts = wanted if isinstance(wanted, tuple) else self._template(wanted)
        return _text_of(wanted, {name: self.named("text", name) for name in texts})

    def _template(self, text: str) -> list[str]:
        """Return the columns that a text is made of: one that has this name, or those of a template."""
        if text in self.types or "{" not in text:
            return [text]
        try:
            fields = _fields(text)
        except ValueError as error:
            raise InputError(
                f"text {text!r} is no template: {error}. Write {{column}} for a column, {{{{ for a brace."
            ) from error
        if any(form or conversion for _, _, form, conversion in fields):
            raise InputError(f"text {text!r} has a format or a conversion in braces. Write {{column}} alone.")
        names = [name for _, name, _, _ in fields if name]
        if not names or len(names) < len(fields):
            raise InputError(f"text {text!r} names no column. Write {{column}} for a column.")
        return names

    def _check_names(self, used: Mapping[str, Any]) -> None:
        bad = [f"{name} ({self.types[name]})" for name in used if _UNSUPPORTED.search(bare_type(self.types[name]))]
        if bad:
            raise InputError(
                f"Columns of {self.definition} are of types that cannot be stored: {', '.join(bad)}. Leave them out "
                f"(leave_out), name the columns to store (metadata), or cast them in a query."
            )
        taken = [name for name in self.columns if name.lower() in RESERVED or name.startswith(("_node_", "$"))]
        if self.title not in (None, "title") and "title" in self.columns:
            taken.append("title")
        if taken:
            renamed = ", ".join(f"{identifier(name)} AS {identifier(f'row_{name}')}" for name in taken)
            remedy = f" by a query: SELECT * EXCLUDE ({', '.join(map(identifier, taken))}), {renamed} FROM …"  # noqa: S608 - a message
            if self._index is not None:
                remedy = f": frame.rename(columns={ {name: f'row_{name}' for name in taken} })"
            raise InputError(
                f"Every row has something else by the name of these columns: {', '.join(taken)}. Leave them out "
                f"(leave_out), or give them other names{remedy}"
            )

    def _check_tags(self) -> None:
        """Raise InputError where a column of tags has other values than texts and lists of texts."""
        if self.tags is None:
            return
        if self.types[self.tags] == "VARCHAR":
            self._note_lists(identifier(self.tags))
        if re.fullmatch(r"(VARCHAR|ENUM\(.*\))(\[\d*\])?", self.types[self.tags]):
            return
        # Lists without any element have no type of their own.
        if self._one(f"SELECT count(*) FROM source WHERE CAST({identifier(self.tags)} AS VARCHAR) <> '[]'"):  # noqa: S608 - quoted
            raise InputError(
                f"The column {self.tags} (tags) is of type {self.types[self.tags]}. Tags are VARCHAR or a list of "
                "VARCHAR: cast it in a query, or leave it to the metadata."
            )

    def _note_lists(self, column: str) -> None:
        """Note that texts which look like lists are one tag each."""
        found = self.con.execute(read_sql("rows/lists_in_texts").replace("$column", column)).fetchall()
        for separator, example in found[:1]:
            split = f"list_transform(string_split({column}, {quoted(separator)}), lambda one: trim(one))"
            by_query = f"read the table by a query: SELECT * REPLACE ({split} AS {column}) FROM …"  # noqa: S608 - a message
            by_lists = f"give lists of texts, split at {separator!r}."
            no_query = self.definition.kind == "object" and not self.definition.source
            self.notes.append(
                f"A text of the column {self.tags} (tags) is one tag, such as {shown(example)}. For several, "
                f"{by_lists if no_query else by_query}"
            )

    def _check_keys(self) -> None:
        """Raise InputError where a key is missing or not unique, or of a type that is no key."""
        kind, key = self.types[self.key], identifier(self.key)
        if not KEY_TYPES.fullmatch(kind):
            raise InputError(
                f"The key {self.key} is of type {kind}. A key must be a whole number, a decimal, a text, a UUID, a "
                f"date or a timestamp; {self._cast(kind)}."
            )
        self.key_type = self.columns[self.key]
        is_blank = f"{key} IS NULL OR trim(CAST({key} AS VARCHAR)) = ''"
        missing = self._one(f"SELECT count(*) FROM source WHERE {is_blank}")  # noqa: S608 - quoted
        if missing:
            have = f"{counted(missing, 'row')} of {self.definition} {'has' if missing == 1 else 'have'}"
            blank = self._one(f"SELECT count({key}) FROM source WHERE {is_blank}")  # noqa: S608 - quoted
            kept = f"trim({key}) <> ''" if blank else f"{key} IS NOT NULL"
            remedy = f" by a query: … WHERE {kept}"
            if self._index is not None:
                kept = f"frame[frame[{self.key!r}].fillna('').str.strip() != '']"
                remedy = f": {kept if blank else f'frame.dropna(subset=[{self.key!r}])'}"
            only = ", or only blanks" * bool(blank)
            raise InputError(f"{have} no {self.key}{only}, which is the key. Leave them out{remedy}")
        twice = self.con.execute(
            f"SELECT CAST({key} AS VARCHAR), count(*) FROM source GROUP BY {key} HAVING count(*) > 1 ORDER BY 1"  # noqa: S608 - quoted
        ).fetchmany(_NAMED + 1)
        if twice:
            named = ", ".join(f"{value!r} ({count} times)" for value, count in twice[:_NAMED]) + (
                "; …" if twice[_NAMED:] else ""
            )
            first = f"QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY …) = 1"
            one = f" by a query: … {first} keeps the first of the order."
            if self._index is not None:
                one = f": frame.drop_duplicates({self.key!r})"
            raise InputError(
                f"The key {self.key} is not unique in {self.definition}: {named}. Name another key, or keep one row of "
                f"each{one}"
            )

    def _cast(self, kind: str) -> str:
        """Return what makes a key of a column of a type that is none."""
        key = identifier(self.key)
        with_fraction = f"SELECT count(*) FROM source WHERE isfinite({key}) AND {key} <> trunc({key})"  # noqa: S608 - quoted
        if self._index is None or kind not in ("DOUBLE", "FLOAT") or self._one(with_fraction):
            return "cast it in a query"
        of_frame = f"frame.dropna(subset=[{self.key!r}]).astype({{{self.key!r}: 'Int64'}})"
        return f"pandas makes whole numbers floats where some are missing. Leave those rows out: {of_frame}"

    def _note_numbers(self) -> None:
        for name in (name for name, kind in self.columns.items() if may_be_infinite(kind)):
            column = identifier(name)
            count = self._one(f"SELECT count(*) FROM source WHERE NOT isfinite({column})")  # noqa: S608 - quoted
            if count:
                values = f"{counted(count, 'value')} that {'is' if count == 1 else 'are'}"
                self.notes.append(
                    f"The column {name} has {values} NaN or infinite: the table has them, the metadata null, so that "
                    "filters do not find them."
                )

    # Rows.

    def stage(self, collection: str) -> int:
        """Compute the ids and checksums of all rows; return how many there are."""
        key = f"CAST({_column(self.key)} AS VARCHAR)"
        values = ", ".join(
            f"CAST({_column(name)} AS VARCHAR)" for name in dict.fromkeys([*self.columns, *filter(None, [self.tags])])
        )
        title = "CAST(NULL AS VARCHAR)" if self.title is None else f"CAST({_column(self.title)} AS VARCHAR)"
        doc_id = read_sql("rows/doc_id").replace("$key", key)
        self.con.execute(
            f"CREATE TABLE staged AS SELECT s.rowid AS ordinal, {quoted(collection)} || '/' || (\n{doc_id}) AS doc_id, "  # noqa: S608 - quoted
            f"sha256(coalesce(length({title}), -1) || ':' || coalesce({title}, '') || "
            f"coalesce({self.text}, '')) AS checksum, "
            f"md5(CAST(to_json([{values}]) AS VARCHAR)) AS row_hash FROM source AS s"
        )
        return self._one("SELECT count(*) FROM staged")

    def compare(self, states: Iterable[pa.RecordBatchReader]) -> dict[str, int]:
        """Compare the rows with those of a file and its other documents; return how many there are of each kind."""
        for name in ("stored", "foreign_documents"):
            self.con.execute(f"CREATE TABLE {name} (doc_id VARCHAR, checksum VARCHAR, row_hash VARCHAR)")
        for name, reader in zip(("stored", "foreign_documents"), states, strict=False):
            register(self.con, "given_states", reader)
            self.con.execute(f"INSERT INTO {name} BY NAME FROM given_states")
            self.con.unregister("given_states")
        self.con.execute(read_sql("rows/compare"))
        found = dict(self.con.execute("SELECT kind, count(*) FROM work GROUP BY kind ORDER BY kind").fetchall())
        return {
            **found,
            "gone": self._one("SELECT count(*) FROM gone"),
            "stored": self._one("SELECT count(*) FROM stored"),
        }

    def groups(self, size: int) -> Iterator[tuple[list[dict[str, Any]], pa.Table]]:
        """Yield the rows to be written in the order of the source: as they become documents, and their values."""
        plain = {name: _json_form(_column(name), kind) for name, kind in self.columns.items()}
        metadata = ", ".join(f"{form} AS m{place}" for place, (form, _) in enumerate(plain.values()))
        title = "NULL" if self.title is None else f"CAST({_column(self.title)} AS VARCHAR)"
        tags = "NULL" if self.tags is None else _column(self.tags)
        values = ", ".join(_column(name) for name in self.columns)
        total = self._one("SELECT count(*) FROM work")
        for start in range(0, total, size):
            low, high = self.con.execute(
                "SELECT min(ordinal), max(ordinal) FROM work WHERE place BETWEEN $1 AND $2", [start, start + size - 1]
            ).fetchall()[0]
            rows = (
                f"FROM (FROM work WHERE place BETWEEN {start} AND {start + size - 1}) AS w "
                f"JOIN source AS s ON s.rowid = w.ordinal WHERE s.rowid BETWEEN {low} AND {high} ORDER BY w.ordinal"
            )
            states = (
                "w.kind AS row_kind, w.doc_id, w.checksum AS row_checksum, "
                f"CASE WHEN w.twin_place < {start} THEN w.twin END AS twin, "
                f"{self.text} AS row_text, {title} AS row_title, {tags} AS row_tags"
            )
            found = self.con.sql(f"SELECT {states}, {metadata} {rows}")
            table = found.to_arrow_table()
            own = self.con.sql(f"SELECT w.doc_id, w.row_hash, {values} {rows}").to_arrow_table()
            columns = {name: table[f"m{place}"].to_pylist() for place, name in enumerate(plain)}
            for name, (_, read) in plain.items():
                if read is not None:
                    columns[name] = [
                        None if value is None else self._read_value(name, value, read) for value in columns[name]
                    ]
            each = zip(*columns.values(), strict=True)
            states = table.select(list(_STATES)).to_pylist()
            yield (
                [
                    {**state, "metadata": dict(zip(columns, row, strict=True))}
                    for state, row in zip(states, each, strict=True)
                ],
                own,
            )

    def _read_value(self, name: str, value: str, read: Any) -> Any:
        try:
            found = read(value)
            if len(value) > _SURELY_FITS:
                clean_metadata({name: found})
        except (RecursionError, ValueError, InputError):
            self.unread[name] += 1
            return None
        return found

    def note_unread(self) -> list[str]:
        """Return notes on the values of the groups that metadata cannot have."""
        return [
            f"The column {name} has {counted(count, 'value')} of more than 32 levels or 10,000 "
            f"values, or with too long a number: the table "
            f"has {'it' if count == 1 else 'them'}, the metadata null."
            for name, count in self.unread.items()
        ]

    def after(self, doc_id: str) -> list[str]:
        """Return the ids of the rows to be written after one, in their order."""
        later = "place > (SELECT place FROM work WHERE doc_id = $1)"
        found = self.con.execute(f"SELECT doc_id FROM work WHERE {later} ORDER BY place", [doc_id])  # noqa: S608 - fixed
        return [row[0] for row in found.fetchall()]

    def gone(self, size: int) -> Iterator[list[str]]:
        """Yield the ids of stored rows that the source has no more."""
        reader = self.con.execute("SELECT doc_id FROM gone ORDER BY doc_id")
        while ids := [row[0] for row in reader.fetchmany(size)]:
            yield ids

    def greatest(self, column: str) -> str | None:
        """Return the greatest value of a column as text: of numbers a finite one, of times one of the past."""
        name = identifier(column)
        chosen = f"isfinite({name})" if may_be_infinite(self.types[column]) else "true"
        if time := self._time(column):
            chosen += f" AND NOT {_is_after(time, 0)}"
            if self.types[column] == "VARCHAR":  # the order of texts is not that of time
                name = time
        found = self.con.execute(f"SELECT CAST(max({name}) FILTER ({chosen}) AS VARCHAR) FROM source").fetchall()  # noqa: S608
        return None if found[0][0] is None else str(found[0][0])

    def _time(self, column: str) -> str:
        """Return the time that a column says, "" for a column of numbers."""
        name, kind = identifier(column), self.types[column]
        if kind == "VARCHAR":
            return _time_of(name)
        return name if kind.startswith(("DATE", "TIMESTAMP")) else ""

    def growing(self, name: str) -> tuple[str, list[str]]:
        """Return the column of ``since`` by its name, and notes on it; raise InputError for a type that has no order.

        A text is compared as the time that it says. Rows of another text, and those without a value, are read by each.
        """
        column = self.named("since", name)
        kind = self.types[column]
        if kind != "VARCHAR" and _GROWS.fullmatch(kind) is None:
            raise InputError(
                f"The column {column!r} (since) is {kind}. Name one that grows with every change: of numbers, "
                "dates or timestamps."
            )
        value, key = identifier(column), identifier(self.key)
        notes: list[str] = []
        ((blank,),) = self.con.execute(f"SELECT count(*) FROM source WHERE {value} IS NULL").fetchall()  # noqa: S608 - quoted
        if blank:
            notes.append(f"The column {column} (since) is empty in {counted(blank, 'row')}: every run reads those.")
        if time := self._time(column):
            ((late, last),) = self.con.execute(
                f"SELECT count(*), CAST(max({time}) AS VARCHAR) FROM source WHERE {_is_after(time, 1)}"  # noqa: S608 - quoted
            ).fetchall()
            if late:
                notes.append(
                    f"The column {column} (since) is later than now in {counted(late, 'row')}, the last {last}: every "
                    "run reads those."
                )
        if kind != "VARCHAR":
            return column, notes
        others = self.con.execute(
            f"SELECT count(*) OVER (), {value} FROM source WHERE {value} IS NOT NULL AND {_time_of(value)} IS NULL "  # noqa: S608 - quoted
            f"ORDER BY {key} LIMIT 1"
        ).fetchall()
        return column, notes + [
            f"The column {column} (since) is text. Values that are not as 2024-12-31 or 2024-12-31 23:59:59, such as "
            f"{shown(first)} ({counted(count, 'row')}), are read by every run."
            for count, first in others
        ]

    def some_texts(self) -> list[str]:
        """Return the checksums of some texts, the same ones of the same rows in any order."""
        return [found for (found,) in self.con.execute(read_sql("rows/some_texts")).fetchall()]

    def notes_on_types(self, new: Collection[str]) -> list[str]:
        """Return notes on new columns of CSV or a data frame of which another type may be meant: texts and dates."""
        source = self.definition.source
        is_object = self.definition.kind == "object"
        is_csv = self.definition.kind == "files" and _reader_of(source[0]) == "read_csv"
        if not is_object and not is_csv and not any("csv" in one.lower() for one in source):
            return []
        columns = {name: kind for name, kind in self.columns.items() if name in new}
        others = {self.key, self.title, self.tags}
        texts = [name for name, kind in columns.items() if kind == "VARCHAR" and name not in others]
        points = any(kind.startswith(("DOUBLE", "FLOAT", "DECIMAL")) for kind in self.columns.values())
        path = None if is_object else source[0] if is_csv and not source[1:] else ""
        notes = row_faults.notes_on_texts(self.con, texts, path, points)
        notes += row_faults.notes_on_short_years(self.con, columns, self.key)
        return notes + self.notes_on_dates(self.columns if len(self._formats) > 1 else columns)

    def notes_on_dates(self, columns: Mapping[str, str]) -> list[str]:
        """Return notes on those of the columns, of files of CSV, whose dates could be meant otherwise."""
        source = self.definition.source
        dates = {name: kind for name, kind in columns.items() if kind in ("DATE", "TIMESTAMP")}
        if not dates or self.definition.kind != "files" or _reader_of(source[0]) != "read_csv":
            return []
        formats = self._formats or row_faults.date_formats(self.con, row_faults.files_of(source))
        return row_faults.notes_on_dates(self.con, dates, formats, self._order)

    def first_that_is_no(self, kind: str, column: str) -> str | None:
        """Return the first value of a text column, by key, that cannot be cast to a type; None where there is none.

        One that is no number with a decimal comma either comes before those that are.
        """
        name, key = identifier(column), identifier(self.key)
        number = f"replace(replace({name}, '.', ''), ',', '.')"
        found = self.con.execute(
            f"SELECT {name} FROM source WHERE {name} IS NOT NULL AND TRY_CAST({name} AS {kind}) IS NULL "  # noqa: S608 - quoted
            f"ORDER BY TRY_CAST({number} AS {kind}) IS NOT NULL, {key} LIMIT 1"
        ).fetchall()
        return str(found[0][0]) if found else None

    def _one(self, statement: str) -> int:
        return int(self.con.execute(statement).fetchall()[0][0])


def _column(name: str) -> str:
    """Return a column of the source in a statement where that is "s"."""
    return f"s.{identifier(name)}"


def _time_of(column: str) -> str:
    """Return the time that a text column says in ISO 8601, NULL where it is of another form or zone than UTC."""
    return f"CASE WHEN regexp_full_match({column}, {quoted(_ISO_TIME)}) THEN TRY_CAST({column} AS TIMESTAMP) END"


def _is_after(time: str, days: int) -> str:
    """Return whether a time is later than these days after now in UTC; a day more is so wherever its clock stands."""
    return f"(CAST({time} AS TIMESTAMP) > CAST(now() AS TIMESTAMP) + INTERVAL {days} DAY)"


_STATES = ("row_kind", "doc_id", "row_checksum", "twin", "row_text", "row_title", "row_tags")

_CATALOGS = frozenset({"sqlrag_staging", "main", "memory", "system", "temp"})


def _reader_of(path: str) -> str:
    return next((name for name, ends in READERS.items() if path.lower().endswith(ends)), "")


def _checked_query(con: duckdb.DuckDBPyConnection, query: str) -> str:
    """Return one SELECT without its semicolon, or raise InputError."""
    try:
        statements = con.extract_statements(query)
    except duckdb.ParserException as error:
        raise InputError(f"The query is no SQL that DuckDB understands: {error}") from error
    kinds = [statement.type.name.partition("_")[0] for statement in statements]
    if kinds != ["SELECT"]:
        given = " and ".join(kinds) or "a blank text"
        raise InputError(
            f"The source must be one SELECT, which changes nothing, not {given}. Run other statements yourself, before."
        )
    return str(statements[0].query).strip().removesuffix(";")


def _validated(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        batch.validate(full=True)
        yield batch


def _fields(template: str) -> list[tuple[str, str | None, str | None, str | None]]:
    """Return the fields of a template as Python parses it; raise ValueError where it is none."""
    return [field for field in string.Formatter().parse(template) if field[1] is not None]


def _text_of(wanted: str | tuple[str, ...], columns: Mapping[str, str]) -> str:
    """Return the SQL of the text of a row; NULL and "" where none of its columns has any."""
    texts = {name: f"CAST({_column(column)} AS VARCHAR)" for name, column in columns.items()}
    if isinstance(wanted, tuple):
        lines = [
            f"CASE WHEN trim({text}) <> '' THEN {quoted(f'{columns[name]}: ')} || {text} END"
            for name, text in texts.items()
        ]
        return f"concat_ws(chr(10), {', '.join(lines)})"
    if wanted in texts:
        return texts[wanted]
    parts: list[str] = []
    for literal, name, _, _ in string.Formatter().parse(wanted):
        parts += [quoted(literal)] if literal else []
        parts += [f"coalesce({texts[name]}, '')"] if name else []
    filled = " || ".join(f"coalesce(trim({text}), '')" for text in texts.values())
    return f"CASE WHEN ({filled}) <> '' THEN {' || '.join(parts)} END"


def _json_form(column: str, kind: str) -> tuple[str, Any]:
    """Return the SQL of a column's value for metadata, and what makes a JSON value of it in Python."""
    if "[" in kind or kind.startswith(("STRUCT", "MAP")) or kind == "JSON":
        return f"CAST(to_json({column}) AS VARCHAR)", json.loads
    if kind.startswith("DECIMAL"):
        return (f"CAST({column} AS VARCHAR)", int) if kind.endswith(",0)") else (f"CAST({column} AS DOUBLE)", None)
    if kind in ("HUGEINT", "UHUGEINT", "BIGNUM", "VARINT"):
        return f"CAST({column} AS VARCHAR)", int
    if kind == "DATE" or kind.startswith("TIMESTAMP"):
        return f"CASE WHEN isfinite({column}) THEN replace(CAST({column} AS VARCHAR), ' ', 'T') END", None
    if kind in ("UUID", "BIT", "INTERVAL") or kind.startswith("TIME"):
        return f"CAST({column} AS VARCHAR)", None
    return column, None


def definition_of(source: Any, database: Any, **options: Any) -> Definition:
    """Return the definition of a source by the options of :func:`sqlrag.index_rows`, checked as far as it can be."""
    kind, named, path = kind_of(source, database)
    arguments.texts(title=options["title"], tags=options["tags"])
    if isinstance(options["key"], (list, tuple)):
        columns = ", ".join(map(str, options["key"]))
        query = f"SELECT *, concat_ws('/', {columns}) AS key FROM …"  # noqa: S608 - a message
        given = arguments.shown(options["key"])
        raise InputError(f"key names one column, not {given}. Make one of several by a query: {query}")
    arguments.not_blank("key", options["key"])
    text = options["text"]
    text = (
        arguments.not_blank("text", text)
        if isinstance(text, str)
        else tuple(arguments.items("text", text, "['subject']"))
    )
    if not text:
        raise InputError("text names no column.")
    listed = {
        name: None if options[name] is None else tuple(arguments.items(name, options[name], "['price']"))
        for name in ("metadata", "leave_out")
    }
    made = Definition(kind, named, path, options["key"], text, options["title"], listed["metadata"], options["tags"])
    return replace(made, markdown=arguments.flag("markdown", options["markdown"]), leave_out=listed["leave_out"] or ())
