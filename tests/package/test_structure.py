"""The structure of the package: no import cycle, and no import of what stands on a higher floor."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.structure import cycles, floors, graph, upward


@pytest.mark.slow
def test_no_modules_import_each_other():
    assert cycles(graph()) == []


@pytest.mark.slow
def test_no_import_goes_up():
    assert upward(graph(), floors()) == []


@pytest.mark.slow
def test_every_module_has_a_floor_and_every_floor_a_module():
    edges, order = graph(), floors()
    upward(edges, order)  # raises LookupError for a module without a floor
    inner = [name.partition(".")[2] or name for name in edges]
    assert [
        entry
        for entries in order
        for entry in entries
        if not any(name == entry or name.startswith(f"{entry}.") for name in inner)
    ] == []


def test_cycles_and_upward_imports_are_found(tmp_path):
    for name, text in {
        "__init__": "",
        "low": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.high import late\n",
        "high": "def late():\n    from . import low\n    return low\n",
        "other": "import house.low\n",
    }.items():
        (tmp_path / "house").mkdir(exist_ok=True)
        (tmp_path / "house" / f"{name}.py").write_text(text)
    edges = graph(tmp_path / "house")
    assert edges == {
        "house": set(),
        "house.low": {"house.high"},
        "house.high": {"house.low"},
        "house.other": {"house.low"},
    }
    assert cycles(edges) == [["house.high", "house.low"]]
    assert upward(edges, [["low"], ["high", "other"], ["house"]]) == ["house.low -> house.high"]


def test_nothing_else_stands_at_the_top():
    root = Path(__file__).parents[2]
    done = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("needs git, and a checkout")
    top = {name.partition("/")[0] for name in done.stdout.splitlines()}
    assert {name for name in top if not name.startswith(".")} == {
        *("README.md", "data", "notebooks", "pyproject.toml", "sql", "sqlrag", "tests")
    }
