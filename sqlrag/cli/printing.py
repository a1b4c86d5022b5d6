"""How the command line writes: results to standard output, everything else to standard error.

Results that are redirected are UTF-8, whatever the locale says: a file would keep "?" for each character it has not.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TextIO

from sqlrag.errors import SqlragError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

# Control characters except tab and newline, direction overrides, lone surrogates: no text may control the terminal.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


_LEGS = re.compile(r"    vector .*, lexical ")

# What a command makes of the library's messages.
in_words_of_the_door: Callable[[str], str] = str


class OutputError(SqlragError):
    """Standard output cannot be written to. Of messages nobody could be told, so they are dropped."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"Standard output cannot be written to: {error.strerror or error}.")


class Format(StrEnum):
    """The forms of a result: for people, for programs, for spreadsheets."""

    table = "table"
    json = "json"
    csv = "csv"


def write(text: str) -> None:
    """Write lines for people to standard output."""
    _write(sys.stdout, _CONTROL.sub(" ", text))


def write_part(text: str) -> None:
    """Write a part of a text for people to standard output, without a line end."""
    _write(sys.stdout, _CONTROL.sub(" ", text), end="")


def write_message(text: str) -> None:
    """Write a message to standard error, in the words of the command that runs."""
    _write(sys.stderr, _CONTROL.sub(" ", in_words_of_the_door(text)))


def terminal_width() -> int:
    """Return the columns of the terminal or of COLUMNS; 100 where the output goes elsewhere."""
    told = sys.stdout.isatty() or "COLUMNS" in os.environ
    return max(40, shutil.get_terminal_size((100, 24)).columns) if told else 100


def shows_colour() -> bool:
    """Return whether standard output is a terminal that shows colours, and nobody has asked for none."""
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain and (os.name != "nt" or "WT_SESSION" in os.environ)


def write_marked(text: str, marks: Callable[[Sequence[str]], list[list[tuple[int, int]]]]) -> None:
    """Write results for people; the words that ``marks`` finds in their titles and passages are in bold red."""
    lines = _CONTROL.sub(" ", text).split("\n")
    marked = [line if line.startswith("    ") and not _LEGS.match(line) else "" for line in lines]
    for number, spans in enumerate(marks(marked)):
        for begin, end in reversed(spans):
            line = lines[number]
            lines[number] = f"{line[:begin]}\x1b[1;31m{line[begin:end]}\x1b[0m{line[end:]}"
    _write(sys.stdout, "\n".join(lines))


def write_json(value: object, *, indent: int | None = 2) -> None:
    """Write one JSON value to standard output, in ASCII where that is not UTF-8; one line if ``indent`` is None."""
    escaped = not _encoding(sys.stdout).lower().replace("-", "").startswith("utf8")
    _write(sys.stdout, json.dumps(value, ensure_ascii=escaped, indent=indent, default=str))


def write_csv(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Write a heading and one line per row to standard output; lists and dicts are cells of JSON."""
    buffer = io.StringIO()
    table = csv.writer(buffer, lineterminator="\n")
    table.writerow(columns)
    table.writerows([_cell(row.get(column)) for column in columns] for row in rows)
    _write(sys.stdout, buffer.getvalue().removesuffix("\n"))


def write_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], form: Format, table: str) -> None:
    """Write rows in the requested form; ``table`` is their text for people."""
    if form is Format.json:
        write_json(rows)
    elif form is Format.csv:
        write_csv(rows, columns)
    else:
        write(table)


def write_done(facts: Mapping[str, Any], text: str, form: Format) -> None:
    """Print the notices of a report, and write its facts; for people the first line of its text."""
    for notice in facts["notices"]:
        write_message(f"note: {notice}")
    write_facts(facts, form, text.splitlines()[0])


def write_facts(facts: Mapping[str, Any], form: Format, text: str) -> None:
    """Write facts in the requested form; ``text`` is for people, "" writes nothing for them."""
    if form is Format.json:
        write_json(facts)
    elif form is Format.csv:
        write_csv(flatten(facts), ["key", "value"])
    elif text:
        write(text)


def flatten(nested: Mapping[str, Any], prefix: str = "") -> list[dict[str, Any]]:
    """Return a nested dict as rows of ``key`` and ``value``, keys joined by dots."""
    rows: list[dict[str, Any]] = []
    for key, value in nested.items():
        if isinstance(value, dict):
            rows += flatten(value, f"{prefix}{key}.")
        else:
            rows.append({"key": prefix + key, "value": value})
    return rows


def size(number_of_bytes: int) -> str:
    """Return a size for people, such as ``5.3 MB``."""
    value = float(number_of_bytes)
    for unit in ("bytes", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} GB"


def open_missing_streams() -> None:
    """Discard what would go to a stream that the program was started without."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - as long as it runs


def silence_broken_pipe() -> None:
    """Discard unwritten output, so that Python's own flush at exit cannot fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(null, stream.fileno())


def _write(stream: TextIO, text: str, end: str = "\n") -> None:
    if stream is sys.stdout and not stream.isatty() and isinstance(stream, io.TextIOWrapper):
        # A file or a pipe gets every character, whatever the locale; a terminal those that it can show.
        stream.reconfigure(encoding="utf-8")
    encoding = _encoding(stream)
    try:
        stream.write(text.encode(encoding, "replace").decode(encoding) + end)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        if stream is sys.stdout:
            raise OutputError(error) from error


def _encoding(stream: TextIO) -> str:
    return getattr(stream, "encoding", None) or "utf-8"


def _cell(value: object) -> object:
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (list, tuple, dict)) else value
