"""Runs SQL tests written as text, in the form of DuckDB's own sqllogictest. Needs nothing but duckdb.

A file is a series of blocks with blank lines between them; lines that begin with # are remarks::

    statement ok                statement error             query IRT
    DELETE FROM documents       SELECT fields_of('x')       SELECT 1, 0.5, 'a'
                                ----                        ----
                                part of the message         1<tab>0.5<tab>a

The letters stand for the columns: I and T are compared as text, R within half a unit of the last digit written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb

if TYPE_CHECKING:
    from pathlib import Path


class Block(NamedTuple):
    line: int
    head: list[str]
    sql: str
    expected: list[str]


def read_blocks(path: Path) -> list[Block]:
    blocks, lines = [], [*path.read_text(encoding="utf-8").split("\n"), ""]
    start: int | None = None
    for number, line in enumerate(lines):
        if start is None and line.strip() and not line.startswith("#"):
            start = number
        elif start is not None and not line.strip():
            head, *rest = [text for text in lines[start:number] if not text.startswith("#")]
            cut = rest.index("----") if "----" in rest else len(rest)
            blocks.append(Block(start + 1, head.split(), "\n".join(rest[:cut]), rest[cut + 1 :]))
            start = None
    return blocks


def run_blocks(con: duckdb.DuckDBPyConnection, path: Path) -> list[str]:
    """Run every block of a file; return one message for each that does not hold."""
    found = ((block, run_block(con, block)) for block in read_blocks(path))
    return [f"{path.name}:{block.line}: {message}\n{block.sql}" for block, message in found if message]


def run_block(con: duckdb.DuckDBPyConnection, block: Block) -> str | None:
    try:
        rows = con.execute(block.sql).fetchall()
    except duckdb.Error as error:
        if block.head != ["statement", "error"]:
            return str(error)
        return None if "\n".join(block.expected) in str(error) else f"another error: {error}"
    if block.head == ["statement", "error"]:
        return "there was no error"
    if block.head == ["statement", "ok"]:
        return None
    if len(block.head) != 2 or block.head[0] != "query":
        return f"unknown block {' '.join(block.head)}"
    kinds, wanted = block.head[1], [line.split("\t") for line in block.expected]
    if len(rows) == len(wanted) and all(map(same_row, [kinds] * len(rows), rows, wanted)):
        return None
    return "found\n" + "\n".join("\t".join(map(shown, row)) for row in rows) + "\nwanted\n" + "\n".join(block.expected)


def same_row(kinds: str, row: tuple[Any, ...], wanted: list[str]) -> bool:
    return len(kinds) == len(row) == len(wanted) and all(map(same_value, kinds, row, wanted))


def same_value(kind: str, value: Any, wanted: str) -> bool:
    if kind != "R" or value is None:
        return shown(value) == wanted
    return abs(float(value) - float(wanted)) <= 0.5001 * 10 ** -len(wanted.partition(".")[2])


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    return "NULL" if value is None else "(empty)" if value == "" else str(value)
