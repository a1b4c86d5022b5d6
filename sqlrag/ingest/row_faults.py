"""Says why a source of rows cannot be read, or not as it was meant, and what helps."""

from __future__ import annotations

import csv
import glob
import gzip
import re
import zlib
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

import duckdb

from sqlrag.arguments import counted, shortened
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.engines.duckdb.statements import identifier, quoted
from sqlrag.errors import InputError, NotFoundError, StoreLockedError
from sqlrag.ingest.readers.encoding import BYTE_ORDER_MARKS, legacy_encoding, wide_encoding

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

# What pandas reads them with.
_SPREADSHEETS = {".xlsx": "openpyxl", ".xlsm": "openpyxl", ".xls": "xlrd", ".xlsb": "pyxlsb", ".ods": "odfpy"}

_SPREADSHEET_IN_SQL = re.compile(rf"'([^']*(?:{'|'.join(map(re.escape, _SPREADSHEETS))}))'", re.IGNORECASE)

_EXTENSION = re.compile(r"(?:exists in the|requires the extension|required extension|not found\. Extension) '?(\w+)")

_NO_TABLE = re.compile("Table with name .*? does not exist")

_DELIMITERS = ",;\t|"

_JUDGED = 1_000_000  # bytes of a file that tell its encoding

# Of the encodings that DuckDB reads without an extension, by those of Python.
_OF_DUCKDB = {"utf-16-le": "utf-16", "iso8859-1": "latin-1", "cp1252": "latin-1"}

_LOOKED_AT = 2048  # rows at the beginning, of which text columns are judged before all are

# From what share of the values that are there a column nearly is of another type: at the beginning, and in all rows.
_LIKELY, _NEARLY = 0.8, 0.9

_OF_CP1252_ALONE = re.compile(rb"[\x80-\x9f]")


def hint_of(path: str) -> str:
    """Return how the rows of a spreadsheet or of a database are read; "" for any other path."""
    begin = b""
    if Path(path).is_file():  # a pipe is read once
        with suppress(OSError), Path(path).open("rb") as file:
            begin = file.read(16)
    if begin.startswith(b"SQLite format 3"):
        return f"{path} is an SQLite database. {_by_pandas(path)}"
    if begin[8:12] == b"DUCK":
        return f"{path} is a DuckDB database. Pass a query, SELECT * FROM NAME, and database={path!r}."  # noqa: S608 - a message
    return _spreadsheet_hint(path)


def _by_pandas(path: str) -> str:
    read = f"frame = pandas.read_sql('SELECT * FROM NAME', sqlite3.connect({path!r}))"  # noqa: S608 - a message
    return f"Save a table of it as CSV, or read it in Python: {read}, and index_rows(frame, …, collection='NAME')."


def _spreadsheet_hint(path: str) -> str:
    package = next((package for end, package in _SPREADSHEETS.items() if path.lower().endswith(end)), "")
    if not package:
        return ""
    return (
        f"{path} is a spreadsheet, which DuckDB does not read by itself. Save the sheet as CSV, or read it in Python "
        f"by pandas (with {package}): index_rows(pandas.read_excel({path!r}), …, collection={_stem(path)!r})."
    )


def no_file(name: str) -> NotFoundError:
    """Return the error for a file of rows, or a pattern of files, that is not there."""
    return NotFoundError(f"There is no file {name}. Name an existing one, or a pattern such as 'rows/*.parquet'.")


def unreadable(
    error: Exception, name: str, *, kind: str, source: Sequence[str], database: str, key: str
) -> InputError | NotFoundError | StoreLockedError:
    """Return the error for a source of rows that cannot be read; ``name`` is how messages name it."""
    said = " ".join(str(error).strip().partition("\n\n")[0].split())
    if isinstance(error, duckdb.IOException) and "lock" in said.lower():
        return StoreLockedError(
            database or name, f"{database or name} is in use by another process: {said}. Close it there, or wait."
        )
    if "No files found" in said:
        path = said.rpartition("pattern ")[2].strip('"')
        if kind == "query" or (kind == "object" and source):
            if Path(path).is_absolute():
                return NotFoundError(f"There is no file {path!r}, which the query reads. Name an existing one.")
            return NotFoundError(
                f"There is no file {path!r} in {Path.cwd()}, from which the query reads relative paths. Run it in the "
                "folder that it was written for, or index the rows again with a query that has absolute paths."
            )
        return no_file(name)
    if isinstance(error, duckdb.ConnectionException) or re.search(r"connection\b[^.]*\bclosed", said.lower()):
        return InputError(f"{name} cannot be read, because its connection is closed: {said}. Open it again.")
    query = source[0] if kind == "query" or (kind == "object" and source) else ""
    if hint := _extension_hint(said, query, database):
        return InputError(f"{name} cannot be read: {said.rstrip('.')}. {hint}")
    if kind == "query" and not database and (missing := _NO_TABLE.search(said)):
        return InputError(
            f"{name} cannot be read: {missing[0]}. For a table of a DuckDB file, name that, such as "
            "database='shop.duckdb'; for a file of rows, write its path in quotes: FROM 'tickets.csv'."
        )
    if "error when sniffing" in said.lower() and "invalid unicode" not in said.lower():
        uneven = next(filter(None, (*map(_line_that_ends_otherwise, source), uneven_lines(source, key))), "")
        why = uneven or "Often a quote is not closed, or the encoding is not UTF-8."
        return InputError(
            f"{name} cannot be read as CSV: DuckDB finds no delimiter and quotes that fit all lines. {why} Mend it, "
            "or give options of read_csv in a query as the source, and its collection by name, which also updates "
            "rows that are there: FROM read_csv('rows.csv', strict_mode = false)."
        )
    if "unicode" in said.lower() or "utf" in said.lower():
        hint = _encoding_hint(source if kind == "files" else (), kind)
        return InputError(f"{name} has text that is not valid Unicode, so nothing was read: {said.rstrip('.')}. {hint}")
    if column := misread_column(error):
        texts = f"read_csv('rows.csv', types = {{{quoted(column)}: VARCHAR}})"
        return InputError(f"{name} cannot be read: {said.rstrip('.')}. Have that column read as text: {texts}.")
    if kind == "query" and "Referenced column" in said:
        return InputError(
            f"{name} cannot be read: {said.rstrip('.')}. If the column was renamed, call index_rows again with a query "
            "that has its new name, and the collection of these rows: those with the same key and text stay."
        )
    return InputError(f"{name} cannot be read: {said}")


def misread_column(error: Exception) -> str:
    """Return the column of CSV whose values are not of the type that DuckDB takes them for, "" for another error.

    It takes the form of the last dates of a column for that of all.
    """
    found = re.search(r'Error when converting column "(.*)"\. Could not convert', str(error))
    return found[1] if found else ""


def note_on_relative_paths(query: str) -> list[str]:
    """Return a note on the first relative path of a file that a query reads."""
    for path in re.findall(r"'([^']+)'", query):
        if not Path(path).is_absolute() and any(
            Path(found).is_file()
            for found in glob.glob(path)  # noqa: PTH207 - as DuckDB has it
        ):
            told = f"The query reads {path!r} from the current folder, and so does each update of these rows: run it in"
            return [f"{told} {Path.cwd()}, or write the absolute path."]
    return []


def _extension_hint(said: str, query: str, database: str) -> str:
    """Return what helps where a query needs an extension of DuckDB, or reads a spreadsheet; "" for other errors."""
    missing = _EXTENSION.search(said.replace('"', ""))
    unknown = missing or "does not exist" in said or "No extension found" in said
    sheet = _SPREADSHEET_IN_SQL.search(query) if unknown else None
    if sheet:
        return _spreadsheet_hint(sheet[1])
    if missing and missing[1] == "sqlite_scanner" and database:
        return _by_pandas(database)
    if missing:
        return (
            f"Load that extension in a connection of yours, in Python: con.execute('INSTALL {missing[1]}; LOAD "
            f"{missing[1]}'), and index_rows(query, …, database=con); or save the rows as CSV or Parquet before."
        )
    return ""


def _encoding_hint(paths: Sequence[str], kind: str) -> str:
    """Return what reads texts that are not UTF-8: of the first file that is not, or of another source."""
    if kind == "query":
        return (
            "Name its encoding in the query, 'latin-1' or 'utf-16': SELECT * FROM read_csv('rows.csv', encoding = "
            "'latin-1')."
        )
    if kind != "files":
        return "Mend these texts before."
    path, encoding = next(((path, found) for path in files_of(paths) if (found := _encoding_of(path))), ("", ""))
    if not _is_csv(path) or not encoding:
        return "Save it as UTF-8."
    if not encoding.startswith("duckdb "):
        with _opened(path) as file:
            first = file.readline().decode(encoding, "replace")
        delimiter = max(_DELIMITERS, key=first.count)
        given = f"{path!r}, encoding={encoding!r}" + f", sep={delimiter!r}" * (delimiter != ",")
        return (
            f"It is {encoding.upper()}, which DuckDB does not read: save it as UTF-8, or read it in Python by pandas: "
            f"index_rows(pandas.read_csv({given}), …, collection={_stem(path)!r})."
        )
    name = encoding.removeprefix("duckdb ")
    return (
        f"Save it as UTF-8, or name its encoding, {name}, by a query, and the collection: SELECT * FROM "  # noqa: S608 - a message
        f"{_call(paths[0] if not paths[1:] else path, [f'encoding = {quoted(name)}'])}."
    )


def _encoding_of(path: str) -> str:
    """Return what is not UTF-8 in Python's terms, or as "duckdb …" in DuckDB's where that reads it; "" for UTF-8."""
    with suppress(OSError, EOFError, zlib.error), _opened(path) as file:
        data = file.read(_JUDGED)
        data = data[: len(data) - len(data) % 4] if len(data) == _JUDGED else data
        mark = next((name for mark, name in BYTE_ORDER_MARKS if data.startswith(mark)), "")
        if mark == "utf-16":
            return "duckdb utf-16" if data.startswith(b"\xff\xfe") else "utf-16"
        if mark == "utf-32":
            return mark
        found = wide_encoding(data) if b"\x00" in data else ""
        if not found and _is_utf_8(data + file.read()):
            return ""
        found = found or legacy_encoding(data) or "cp1252"
        with suppress(UnicodeDecodeError, LookupError):  # one that differs from Latin-1 in other characters alone
            found = "iso8859-1" if data.decode(found) == data.decode("latin-1") else found
        known = _OF_DUCKDB.get(found, "") if found == "utf-16-le" or not _OF_CP1252_ALONE.search(data) else ""
        return f"duckdb {known}" if known else found
    return ""


def _is_utf_8(data: bytes) -> bool:
    with suppress(UnicodeDecodeError):
        data.decode("utf-8")
        return True
    return False


def missing_column_hint(paths: Sequence[str], name: str, columns: Sequence[str]) -> str:
    """Return why there is no column of a name though the first line of a CSV file has it; "" where that is not so."""
    if empty := next((path for path in files_of(paths) if _is_csv(path) and not Path(path).stat().st_size), ""):
        return f" {empty} is empty."
    if uneven := uneven_lines(paths, name):
        return f" {uneven}"
    for column in columns:
        for delimiter in _DELIMITERS:
            if name.casefold() in (
                one.strip().casefold() for one in column.split(delimiter)[: column.count(delimiter)]
            ):
                return (
                    f" The column {column!r} is a line that was not cut at {delimiter!r}: name that, for instance by "
                    f"read_csv('rows.csv', delim = {delimiter!r})."
                )
    return ""


def uneven_lines(paths: Sequence[str], name: str) -> str:
    """Return a sentence on the first line of a CSV file with more or fewer fields than its first, which has a name.

    "" where there is none, or where no first line has a field of this name.
    """
    for path in filter(_is_csv, files_of(paths)):
        with suppress(OSError, EOFError, zlib.error, csv.Error), _opened(path) as file:
            lines = (
                line.decode("utf-8-sig" if number == 0 else "utf-8", "replace") for number, line in enumerate(file)
            )
            first = next(lines, "")
            for delimiter in _DELIMITERS:
                fields = next(csv.reader([first], delimiter=delimiter), [])
                if fields[1:] and name.casefold() in _folded(fields):
                    return _first_uneven(path, lines, delimiter, len(fields))
    return ""


def _first_uneven(path: str, lines: Iterator[str], delimiter: str, expected: int) -> str:
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    number = 2
    try:
        for fields in reader:
            if fields and len(fields) != expected:
                break
            number = reader.line_num + 2
        else:
            return ""
    except csv.Error as error:
        if "limit" in str(error):  # a field longer than Python's csv takes, which is no fault
            return ""
        return f"In line {number:,} of {path} a quote is not closed, or not doubled within a field: mend that line."
    option = f"read_csv({quoted(path)}, delim = {delimiter!r}, header = true, "
    remedy = (
        f"Put a field that has a {delimiter!r} of its own in quotes, or leave such lines out by a query: SELECT * FROM "  # noqa: S608 - a message
        f"{option}ignore_errors = true)."
        if len(fields) > expected
        else f"Fill it up, or take what is missing for NULL by a query: SELECT * FROM {option}null_padding = true)."  # noqa: S608 - a message
    )
    has = f"{len(fields)} field{'s' * (len(fields) != 1)}"
    return f"Line {number:,} of {path} has {has} between {delimiter!r}, the first {expected}. {remedy}"


def notes_on_texts(con: duckdb.DuckDBPyConnection, columns: Sequence[str], path: str | None, points: bool) -> list[str]:
    """Return notes on the text columns of "source" that nearly are numbers or dates, with the options that help.

    The columns are looked at as a whole where the first rows look so; those with the same remedy share a note. ``path``
    is the CSV file, "" where it is in a query, None for a data frame; ``points`` says whether other columns have
    numbers with a decimal point.
    """
    looked, notes = columns, dict[str, _Note]()
    for rows, least in ((f"rowid < {_LOOKED_AT}", _LIKELY), ("true", _NEARLY)):
        if not looked:
            return []
        statement = read_sql("rows/looks_like").replace("$rows", rows)
        reader = con.execute(statement.replace("$columns", ", ".join(map(identifier, looked))))
        names = [one[0] for one in reader.description or ()]
        found = [dict(zip(names, row, strict=True)) for row in reader.fetchall()]
        some = least == _LIKELY  # of which all may be what only a later row is not
        notes = {one["name"]: note for one in found if (note := _note_on_text(one, path, least, points, some=some))}
        looked = [name for name in looked if name in notes]
    alike: dict[str, list[str]] = {}
    for name in looked:
        alike.setdefault(notes[name].remedy, []).append(name)
    readings = {name: one for name in looked if (one := notes[name].reading) is not None}
    query = _query_of_all(con, path, readings) if path and len({notes[name].remedy for name in readings}) > 1 else ""
    last = (
        f"To have numbers and dates of {', '.join(readings)}, read them by one query, in which other values are NULL: "
        f"{query}, or mend the file."
    )
    return [
        _with_others(notes[first].told, others, "" if query and first in readings else remedy)
        for remedy, (first, *others) in alike.items()
    ] + [last] * bool(query)


def _with_others(told: str, others: Sequence[str], remedy: str) -> str:
    """Return a note on one column that also names others."""
    also = f" So {'is' if len(others) == 1 else 'are'} {shortened(', '.join(others))}." * bool(others)
    return f"{told}.{also} Filters compare them as text. {remedy}".rstrip()


class _Reading(NamedTuple):
    """How a text column of a CSV file is read as numbers or dates: by options, values that are NULL, an expression."""

    options: tuple[str, ...] = ()
    null: str | None = None
    expression: str = ""


class _Note(NamedTuple):
    """What is said of a column, and what helps: in words, and the reading where that is a query of the file."""

    told: str
    remedy: str
    reading: _Reading | None = None


def _query_of_all(con: duckdb.DuckDBPyConnection, path: str, readings: Mapping[str, _Reading]) -> str:
    """Return one query for several columns of a CSV file; "" where it would not read them, or others otherwise."""
    options = ["sample_size = -1", *dict.fromkeys(option for one in readings.values() for option in one.options)]
    if nulls := dict.fromkeys(one.null for one in readings.values() if one.null is not None):
        options.append(f"nullstr = [{', '.join(map(quoted, ['', *nulls]))}]")
    if texts := [name for name, one in readings.items() if one.expression]:
        options.append(f"types = {{{', '.join(f'{quoted(name)}: VARCHAR' for name in texts)}}}")
    replaced = ", ".join(f"{readings[name].expression} AS {identifier(name)}" for name in texts)
    replaced = f" REPLACE ({replaced})" * bool(texts)
    query = f"SELECT *{replaced} FROM {_call(path, options)}"  # noqa: S608 - quoted
    try:
        now, then = (
            dict(row[:2] for row in con.execute(f"DESCRIBE {one}").fetchall()) for one in (query, "FROM source")
        )
    except duckdb.Error:
        return ""
    return query if all((now.get(name) == kind) != (name in readings) for name, kind in then.items()) else ""


def _note_on_text(
    found: Mapping[str, Any], path: str | None, least: float, points: bool, *, some: bool
) -> _Note | None:
    """Return what is said of a column, and what helps; ``some`` says that only some rows were looked at."""
    present = found["present"]
    options, what, kind = [], "", ""
    null = None
    if found["surely_decimal"] and found["decimal_commas"] >= least * present:
        what, kind, options = "numbers with a decimal comma", "decimal_commas", ["decimal_separator = ','"]
        options += ["thousands = '.'"] * bool(found["points"])
    elif found["commas"] and not found["surely_decimal"] and found["thousands"] >= least * present:
        what, kind, options = "numbers with a comma", "thousands", ["thousands = ','"]
    for one in ("numbers", "dates"):
        # All of a text column may be what a later row is not, or dates in a form that others do not have.
        most = present + (some or (one == "dates" and found["iso"] < found["dates"]))
        # With leading zeros they are codes, which numbers would change.
        if not what and least * present <= found[one] < most and not (one == "numbers" and found["zeros"]):
            what = kind = one
    if not what:
        return None
    first = f", the first {found['first_comma']!r}" * bool(options)
    told = f"The column {found['name']} is text: {found[kind]:,} of its {counted(present, 'value')} are {what}{first}"
    others = found["dates"] - found["iso"] if kind == "dates" and found["iso"] else 0
    if others:
        told += f", {others:,} in another form than 2024-12-31, the first {shortened(repr(found['no_iso']))}"
    left = present - found[kind]
    several = found[f"kinds_{kind}"]
    if left:
        other = found[f"no_{kind[:-1]}"]
        shown = shortened(repr(other))
        told += f"; {shown} is not" if left == 1 else f"; {left:,} are not, the first {shown}"
        null = other
    to_have = f"To have {what.partition(' ')[0]},"
    if path is None:
        by_kind = {
            "dates": f"to_datetime with its format{', one after the other' * bool(others)}",
            "thousands": "to_numeric, without the commas",
        }
        how = by_kind.get(kind, "to_numeric, after the comma is a point")
        return _Note(told, f"{to_have} convert the column before it is indexed: in pandas by {how}.")
    if others:  # the others, of one form, beside those that DuckDB itself reads
        forms = [form for form, count in found["formats"].items() if count == others]
        if not forms or found["longest_date"] > len("2024-12-31"):
            return _Note(told, f"{to_have} mend the file.")
        date, query = _of_two_forms(found["name"], forms, path)
        remedy = f"{to_have} read it by a query, in which what is no date is NULL: {query}."
        return _Note(told, remedy, None if forms[1:] else _Reading(expression=date))
    if options and (several > 1 or (points and kind == "decimal_commas")):  # none is right for all of them
        return _Note(told, f"{to_have} mend the file.")
    if kind == "dates" and not left:  # the reader has one format for all columns
        clock = " %H:%M" * bool(found["clocks"]) + ":%S" * bool(found["seconds"])
        forms = [f"{form}{clock}" for form, count in found["formats"].items() if count == present]
        if not forms or found["clocks"] not in (0, present) or found["seconds"] not in (0, present):
            return _Note(told, f"{to_have} mend the file.")
        name = identifier(found["name"])
        kind = "TIMESTAMP" if clock else "DATE"
        date = f"CAST(strptime({name}, {quoted(forms[0])}) AS {kind})"
        read = f"SELECT * REPLACE ({date} AS {name}) FROM {_call(path) if path else '…'}{_or(forms)}"  # noqa: S608 - a message
        return _Note(told, f"{to_have} read it by a query: {read}.", None if forms[1:] else _Reading(expression=date))
    # One value is NULL to the reader, unless it has a delimiter.
    if null is not None and (several > 1 or any(one in null for one in _DELIMITERS)):
        kind_of_value = "BIGINT" if found["integers"] == found["numbers"] else "DOUBLE"
        if kind == "dates":
            kind_of_value = "TIMESTAMP" if (found["longest_date"] or 0) > len("2024-12-31") else "DATE"
            kind_of_value += "TZ" * bool(found["zones"])
        name = identifier(found["name"])
        forms = list[str]()
        # Of the column itself, DuckDB 2.0 lets the reader cast, and fail.
        value = f"TRY_CAST(trim({name}) AS {kind_of_value})"
        if kind == "dates" and not found["iso"]:
            forms = [form for form, count in found["formats"].items() if count == found["dates"]]
            value = f"CAST(try_strptime(trim({name}), {quoted(*forms[:1])}) AS DATE)" if forms else ""
        # Of times, all or none have an offset.
        if options or not value or found["clocks"] * len(forms) or found["zones"] not in (0, found["dates"]):
            return _Note(told, f"{to_have} mend the file.")
        file = csv_of([path], {}, [found["name"]]) if path else "…"
        query = f"SELECT * REPLACE ({value} AS {name}) FROM {file}{_or(forms)}"  # noqa: S608 - a message
        reading = None if forms[1:] else _Reading(expression=value)
        return _Note(
            told, f"{to_have} read it by a query, in which other values are NULL: {query}, or mend the file.", reading
        )
    given = [*options, *([] if null is None else [f"nullstr = ['', {quoted(null)}]"])]
    how = f"with read_csv(…, {', '.join(given)})"
    if path:
        how = f"by a query: SELECT * FROM {_call(path, given)}"  # noqa: S608 - a message
    return _Note(told, f"{to_have} read it {how}, or mend the file.", _Reading(tuple(options), null))


def _call(path: str, options: Sequence[str] = ()) -> str:
    """Return the call that reads a CSV file, or those of a pattern by the names of their columns."""
    of_several = ["union_by_name = true"] * glob.has_magic(path)
    return f"read_csv({', '.join([quoted(path), *of_several, *options])})"


def _or(forms: Sequence[str]) -> str:
    """Return what is said where dates could be of a second format as well."""
    return f" ({_in_words(forms[1])}: {quoted(forms[1])})" if forms[1:] else ""


def _of_two_forms(column: str, forms: Sequence[str], path: str) -> tuple[str, str]:
    """Return the date of a text column, as 2024-12-31 or of the first format, and the query that reads it."""
    name = identifier(column)
    date = f"coalesce(TRY_CAST({name} AS DATE), CAST(try_strptime({name}, {quoted(forms[0])}) AS DATE))"
    file = csv_of([path], {}, [column]) if path else "…"
    return date, f"SELECT * REPLACE ({date} AS {name}) FROM {file}{_or(forms)}"  # noqa: S608 - a message


# The options of read_csv for the formats of columns, and the types of these.
_DATE_OPTIONS = {"dateformat": "DATE", "timestampformat": "TIMESTAMP"}


def date_formats(con: duckdb.DuckDBPyConnection, files: Sequence[str]) -> dict[tuple[str, str], list[str]]:
    """Return files of CSV by the formats in which DuckDB reads their dates and their times, "" for none."""
    groups: dict[tuple[str, str], list[str]] = {}
    statement = "SELECT coalesce(DateFormat, ''), coalesce(TimestampFormat, '') FROM sniff_csv($1, sample_size = -1)"
    for file in files:
        ((date, time),) = con.execute(statement, [file]).fetchall()
        groups.setdefault((date, time), []).append(file)
    return groups


def common_order(con: duckdb.DuckDBPyConnection, groups: Mapping[tuple[str, str], Sequence[str]]) -> dict[str, str]:
    """Return the formats, by options, in which files of :func:`date_formats` have to be read to share one order.

    DuckDB looks at each file by itself: one in which no day is beyond 12 would be read in another order of day, month
    and year than the others, whose days tell it.
    """
    options = {}
    for place, option in enumerate(_DATE_OPTIONS):
        formats = sorted({one[place] for one in groups} - {""})
        if not formats[1:] or not {*formats[1:]} <= {*_other_orders(formats[0])}:
            continue
        fitting = [
            form
            for form in formats
            if all(_reads(con, files, option, form) for one, files in groups.items() if one[place] not in ("", form))
        ]
        if len(fitting) == 1:
            options[option] = fitting[0]
    return options


def _reads(con: duckdb.DuckDBPyConnection, files: Sequence[str], option: str, form: str) -> bool:
    """Return whether the columns of files are of the same types by a format as by their own."""
    own = csv_of(files, {})
    try:
        return con.execute(f"DESCRIBE FROM {own}").fetchall() == (
            con.execute(f"DESCRIBE FROM {csv_of(files, {option: form})}").fetchall()
        )
    except duckdb.Error:
        return False


def csv_of(paths: Sequence[str], options: Mapping[str, str], texts: Sequence[str] = ()) -> str:
    """Return the call that reads files of CSV, some columns as texts; each to its end before its types are chosen."""
    given = "".join(f", {name} = {quoted(value)}" for name, value in options.items())
    given += f", types = {{{', '.join(f'{quoted(name)}: VARCHAR' for name in texts)}}}" * bool(texts)
    return f"read_csv([{', '.join(map(quoted, paths))}], union_by_name = true, sample_size = -1{given})"


def notes_on_short_years(con: duckdb.DuckDBPyConnection, columns: Mapping[str, str], key: str) -> list[str]:
    """Return notes on the date columns of "source" with years before 100: DuckDB reads 01.01.24 as 0024-01-01."""
    notes = []
    for name, kind in columns.items():
        if kind in ("DATE", "TIMESTAMP"):
            column = identifier(name)
            statement = (
                f"SELECT count(*) OVER (), CAST({column} AS VARCHAR) FROM source "  # noqa: S608 - quoted
                f"WHERE {column} > '0001-01-01' AND {column} < '0100-01-01' ORDER BY {identifier(key)} LIMIT 1"
            )
            for count, first in con.execute(statement).fetchall():
                notes.append(
                    f"The column {name} has {counted(count, 'date')} of a year before 100, the first {first}: the file "
                    "gives the year by two digits there. Write it by four, or filters by date leave these rows out."
                )
    return notes


def notes_on_dates(
    con: duckdb.DuckDBPyConnection,
    columns: Mapping[str, str],
    groups: Mapping[tuple[str, str], Sequence[str]],
    settled: Container[str],
) -> list[str]:
    """Return notes on date columns of "source" that could be read in another order of day, month and year.

    ``groups`` are its files of CSV, from :func:`date_formats`, ``settled`` the options of :func:`common_order`.
    """
    notes: dict[str, str] = {}
    for formats, files in groups.items():
        source, types = "(SELECT rowid AS row_place, * FROM source)", columns
        if len(groups) > 1:
            source = f"(SELECT row_number() OVER () AS row_place, * FROM {csv_of(files, {})})"  # noqa: S608 - quoted
            types = {name: kind for name, kind, *_ in con.execute(f"DESCRIBE FROM {csv_of(files, {})}").fetchall()}
        for form, (option, kind) in zip(formats, _DATE_OPTIONS.items(), strict=True):
            wanted = [name for name in columns if columns[name] == types.get(name) == kind]
            for other in _other_orders(form) if wanted and option not in settled else ():
                sql = read_sql("rows/date_orders").replace("$columns", ", ".join(map(identifier, wanted)))
                found = con.execute(sql.replace("$source", source), {"format": form, "other": other}).fetchall()
                for name, cell, date in found:
                    told = f"The column {name} is read as {_in_words(form)}: {cell!r} is {date}. All of its values "
                    told += f"in {files[0]} " * (len(groups) > 1)
                    read = f"read_csv({quoted(files[0]) if not files[1:] else '…'}, {option} = {quoted(other)})"
                    query = f"SELECT * FROM {read}"  # noqa: S608 - a message
                    query += " UNION ALL BY NAME SELECT * FROM read_csv(…)" * (len(groups) > 1)
                    told += f"could be {_in_words(other)}; if they are, read it by a query: {query}."
                    notes.setdefault(name, told)
    return [notes[name] for name in columns if name in notes]


_DATE_PARTS = {"%d": "day", "%m": "month", "%Y": "year", "%y": "year"}


def _other_orders(form: str) -> list[str]:
    """Return the formats with day, month and year in other usual orders.

    >>> _other_orders("%d/%m/%Y"), _other_orders("%y.%m.%d"), _other_orders("%Y-%m-%d")
    (['%m/%d/%Y'], ['%d.%m.%y', '%m.%d.%y'], [])
    """
    parts = re.findall("%[dmYy]", form)
    usual = [("%d", "%m", "%Y"), ("%m", "%d", "%Y"), ("%d", "%m", "%y"), ("%m", "%d", "%y"), ("%y", "%m", "%d")]
    if tuple(parts) not in usual:
        return []
    others = [order for order in usual if sorted(order) == sorted(parts) and order != tuple(parts)]
    first, second, third, last = re.split("%[dmYy]", form)
    return [f"{first}{one}{second}{two}{third}{three}{last}" for one, two, three in others]


def _in_words(form: str) -> str:
    return ", ".join(_DATE_PARTS[part] for part in re.findall("%[dmYy]", form))


def _line_that_ends_otherwise(path: str) -> str:
    """Return a sentence about the first line of a file that ends otherwise than its first one, or ""."""
    ends = {b"\r\n": "CR LF", b"\n": "LF"}
    with suppress(OSError), Path(path).open("rb") as file:
        first = b""
        for number, line in enumerate(file, 1):
            end = b"\r\n" if line.endswith(b"\r\n") else line[-1:]
            first = first or end
            if end != first and end in ends and first in ends:
                return f"Line {number:,} of {path} ends with {ends[end]}, the first with {ends[first]}."
    return ""


def _folded(fields: Sequence[str]) -> list[str]:
    return [field.strip().casefold() for field in fields]


def files_of(paths: Sequence[str]) -> list[str]:
    """Return the files of paths and patterns, those of each in order."""
    found: list[str] = []
    for path in paths:
        found += [path] if Path(path).exists() else sorted(glob.glob(path, recursive=True))  # noqa: PTH207 - as DuckDB takes it
    return found


def _is_csv(path: str) -> bool:
    return re.search(r"\.[ct]sv(\.gz)?$", path.lower()) is not None


def _opened(path: str) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path)) if path.lower().endswith(".gz") else Path(path).open("rb")


def _stem(path: str) -> str:
    return Path(path).name.partition(".")[0]
