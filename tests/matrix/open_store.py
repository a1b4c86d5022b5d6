"""Asks a store what ``make_store.py`` asked it, under any DuckDB, and compares. Needs nothing but duckdb.

Usage: ``python open_store.py FOLDER``. The store is queried as an opened file and as an attached one; then the SQL
tests of ``tests/sql`` run on copies of the small store. Exits with 1 where an answer differs.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import duckdb

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS.parent))

from sqlrag.engines.duckdb.definitions import changes  # noqa: E402
from tests.support.sqllogic import read_blocks, run_blocks  # noqa: E402


def same(found: Any, wanted: Any) -> bool:
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(found, float) and isinstance(wanted, (int, float)):
        return math.isclose(found, wanted, rel_tol=0, abs_tol=1e-9)
    return bool(found == wanted)


def differences(con: duckdb.DuckDBPyConnection, answers: list[tuple[str, Any]], how: str) -> list[str]:
    found = []
    for sql, wanted in answers:
        try:
            rows = json.loads(json.dumps(con.execute(sql).fetchall(), default=str))
        except duckdb.Error as error:
            found.append(f"{how}: {error}\n{sql}")
            continue
        if not same(rows, wanted):
            pair = next(((a, b) for a, b in zip(rows, wanted) if not same(a, b)), None)  # noqa: B905 - lengths differ
            found.append(f"{how}: {len(rows)} rows, wanted {len(wanted)}; first other row and wanted: {pair}\n{sql}")
    return found


def sql_tests(folder: Path, check_views: list[str]) -> list[str]:
    found = []
    for file in sorted((TESTS / "sql").glob("*.test")):
        with tempfile.TemporaryDirectory() as copies:
            copy = shutil.copy(folder / "small.duckdb", copies)
            with duckdb.connect(str(copy)) as con:
                for statement in check_views:
                    con.execute(statement)
                found += run_blocks(con, file)
    return found


def main(folder: Path) -> int:
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    path = str(folder / "store.duckdb")
    with duckdb.connect(path, read_only=True) as con:
        problems = differences(con, expected["answers"], "opened")
        # Each prints the definitions of the others in its own way.
        problems += [f"compared with sql/digests.txt: {change}" for change in changes(con)]
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{path}' AS kb (READ_ONLY)")
        con.execute("USE kb")
        problems += differences(con, expected["answers"], "attached")
    problems += sql_tests(folder, expected["check_views"])
    for problem in problems:
        print(problem, end="\n\n", file=sys.stderr)
    blocks = sum(len(read_blocks(file)) for file in (TESTS / "sql").glob("*.test"))
    print(
        f"DuckDB {duckdb.__version__}: {len(expected['answers'])} statements on an opened and an attached store, "
        f"{blocks} SQL tests: {len(problems)} differences"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
