"""What tests of the documentation share: the blocks of a page, what they print, and the handbook as a search file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from sqlrag import prepare_embeddings
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
