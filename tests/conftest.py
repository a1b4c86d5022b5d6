"""Collects the SQL tests of ``tests/sql``: each runs on a small store of its own, with a view for every check."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest
from sqllogic import run_blocks
from stores import check_views, make_small_store

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.File | None:
    return SqlFile.from_parent(parent, path=file_path) if file_path.suffix == ".test" else None


class SqlFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        yield SqlTest.from_parent(self, name=self.path.stem)


class SqlTest(pytest.Item):
    def runtest(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            make_small_store(Path(folder) / "small.duckdb")
            with duckdb.connect(str(Path(folder) / "small.duckdb")) as con:
                for statement in check_views(8):
                    con.execute(statement)
                problems = run_blocks(con, self.path)
        if problems:
            pytest.fail("\n\n".join(problems), pytrace=False)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.nodeid
