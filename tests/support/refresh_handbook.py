"""Writes what the examples of the README and of the handbook print now into their pages.

``python tests/support/refresh_handbook.py`` changes the pages whose outputs are others, and runs all of them again, for
each change of a page changes what others count. Read the difference before you keep it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import pytest

from tests.support.handbook import HANDBOOK, numbers, pages_with_examples, printed_by, search_file, words
from tests.support.helpers import ROOT
from tests.support.vector_cache import remembered

# A page may print what another says, so that one run is not enough.
MOST_RUNS = 4


def refreshed(page, kb, folder):
    """Run a page in a working folder of its own; return it with its outputs of now."""
    shutil.copytree(HANDBOOK, folder / "docs")
    shutil.copytree(HANDBOOK, folder / "data" / "handbook")
    shutil.copy(kb, folder / "kb.duckdb")
    os.chdir(folder)
    lines = page.read_text(encoding="utf-8").split("\n")
    found = [(block, printed) for block, printed in printed_by(page) if not agrees(block.text, printed)]
    for block, printed in reversed(found):
        old = block.text.count("\n")
        lines[block.line - 1 : block.line - 1 + old] = printed.rstrip("\n").split("\n")
    return "\n".join(lines)


def agrees(text, printed):
    return words(text) == words(printed) and numbers(text) == pytest.approx(numbers(printed), rel=0.02)


def main():
    with tempfile.TemporaryDirectory() as temporary, remembered(Path(temporary)):
        for run in range(MOST_RUNS):
            base = Path(temporary) / f"run{run}"  # kept to the end: the model that is loaded remembers vectors there
            base.mkdir()
            kb = search_file(base)
            changed = []
            for number, page in enumerate([ROOT / "README.md", *pages_with_examples()]):
                text = refreshed(page, kb, base / str(number))
                if text != page.read_text(encoding="utf-8"):
                    page.write_text(text, encoding="utf-8")
                    changed.append(page.relative_to(ROOT).as_posix())
            os.chdir(ROOT)
            print("\n".join(changed) or "All outputs are those of now.", flush=True)
            if not changed:
                return
    sys.exit(f"Outputs still change after {MOST_RUNS} runs.")


if __name__ == "__main__":
    main()
