"""What the tests of the documentation share: the blocks of a page, and the handbook as a search file."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from remembering import remembered

from sqlrag import prepare_embeddings

ROOT = Path(__file__).parents[1]
HANDBOOK = ROOT / "data" / "handbook"
MINILM = "sentence-transformers/all-MiniLM-L6-v2"

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
    assert [file.path for file in built.report.skipped] == ["guides/search-defaults.svg"]
    return built.path
