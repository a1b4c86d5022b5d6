"""What tests of the documentation share: the blocks of a page, what they print, and the handbook as a search file."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import duckdb

from sqlrag import Store, prepare_embeddings
from tests.support import vector_cache
from tests.support.helpers import MINILM, ROOT
from tests.support.vector_cache import remembered

if TYPE_CHECKING:
    from pathlib import Path

HANDBOOK = ROOT / "data" / "handbook"

_DECIMAL = re.compile(r"\d+\.\d+")
_FENCE = re.compile(r"^```(\w*) *([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block: its language, the words after it, its text and the line of the page where the text begins."""

    language: str
    marks: tuple[str, ...]
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[1], tuple(found[2].split()), found[3], text.count("\n", 0, found.start(3)) + 1)
        for found in _FENCE.finditer(text)
    ]


def pages() -> list[Path]:
    """Return the Markdown pages of the handbook."""
    return sorted(HANDBOOK.rglob("*.md"))


def paragraphs(*names: str) -> list[str]:
    """Return the longer paragraphs of pages, in order."""
    parts = [part.strip() for name in names for part in (HANDBOOK / name).read_text("utf-8").split("\n\n")]
    return [part for part in parts if len(part) > 40]


@cache
def search_file(folder: Path) -> Path:
    """Return the handbook as a search file in the worker's folder, made once, with settings that its pages name."""
    with remembered(folder):
        built = prepare_embeddings(
            HANDBOOK, folder / "handbook.duckdb", chunk_size=200, embed_model_name=MINILM, verbose=False
        )
    assert built.report.failures == []
    pictures = sorted(path.relative_to(HANDBOOK).as_posix() for path in HANDBOOK.rglob("*.svg"))
    assert sorted(file.path for file in built.report.skipped) == pictures
    return built.path


def pages_with_examples():
    return [page for page in pages() if {block.language for block in blocks(page)} & {"python", "sql", "bash"}]


def printed_by(page):
    """Run the blocks of a page from top to bottom in the working folder; yield each output in it, and what is printed.

    A block marked ``no-run``, or of another language, is for reading. ``text output`` is what the block above it
    prints. An SQL statement has to return rows unless its block is marked ``no-rows``.
    """
    names = {"__name__": "__main__"}
    printed = ""
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        if block.language == "text" and "output" in block.marks:
            yield block, printed
        elif "no-run" in block.marks:
            continue
        elif block.language == "python":
            printed = run_python(block.text, where, names)
        elif block.language == "sql":
            printed = run_sql(block.text, where, may_be_empty="no-rows" in block.marks)
        elif block.language == "bash":
            printed = run_shell(block.text, where)
    for value in names.values():
        if isinstance(value, Store):
            value.close()


def run_python(text, where, names):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(text, where, "exec"), names)
    return out.getvalue()


def run_sql(text, where, *, may_be_empty):
    """Run each statement as the DuckDB shell would after opening kb.duckdb; return the tables that it would draw."""
    tables = []
    with duckdb.connect("kb.duckdb", read_only=True) as connection:
        for statement in duckdb.extract_statements(text):
            result = connection.sql(statement.query)
            assert len(result) or may_be_empty, f"{where} returns no rows:\n{statement.query}"
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                result.show(max_width=120)
            tables.append(out.getvalue())
    return "".join(tables)


def run_shell(text, where):
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", 'sqlrag() { "$PYTHON" "$COMMAND" "$@"; }\n' + text],
        env={
            **os.environ,
            "PYTHON": sys.executable,
            "COMMAND": vector_cache.__file__,
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "100",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, f"{where}:\n{done.stderr}"
    return done.stdout


def words(printed):
    """Return the words of an output, without the frames of tables and without the digits of decimal numbers."""
    return re.findall(r"[\w./#:>-]+", _DECIMAL.sub("0.0", printed))


def numbers(printed):
    """Return the decimal numbers of an output.

    Processors differ in the last digits of a cosine, and every edit of the handbook moves all BM25 scores a little.
    """
    return [float(number) for number in _DECIMAL.findall(printed)]
