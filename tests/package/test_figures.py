"""What README and handbook say of speed is what the benches have written into ``tests/bench/measured.json``."""

from __future__ import annotations

import json
import re

import pytest

from tests.bench import scaling
from tests.bench.common import FIGURES, write_figures
from tests.support.helpers import ROOT

MEASURED = json.loads(FIGURES.read_text("utf-8"))
PAGE = (ROOT / "data" / "handbook" / "guides" / "performance.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
MODES = ("rrf", "convex", "convex, feedback", "vector", "lexical", "full scan", "plain")
SIZES = ("10000", "100000", "1000000")
SYSTEMS = {
    "`sqlrag`": "sqlrag",
    "`sqlrag` in memory": "sqlrag_memory",
    "DuckDB 1.5.5 with its `fts` extension": "duckdb_naive",
    "LanceDB 0.40, no vector index": "lancedb_flat",
    "LanceDB 0.40, its vector index": "lancedb_ivf_refine",
    "sqlite-vec": "sqlite_vec_fts5",
    "tantivy": "tantivy_faiss",
    "bm25s": "bm25s_numpy",
}


def table(text, header):
    """Return the rows of the table whose header row begins so, as lists of cells."""
    lines = text[text.index(f"\n| {header}") + 1 :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def written(number):
    """Return a number as the texts write it: with a decimal below ten where it has one."""
    return f"{number:,.1f}".removesuffix(".0") if number < 10 else f"{number:,.0f}"


def in_readme(system):
    found = [MEASURED["peers"][size].get(system, {}).get("hybrid_ms") for size in SIZES]
    return " / ".join("–" if number is None else written(number) for number in found)


def test_the_times_of_searches():
    rows = table(PAGE, "chunks | `rrf` | `convex` |")
    assert rows == [
        [f"{int(size):,}", *(f"{MEASURED['latency'][size][mode]:,.0f} ms" for mode in MODES)] for size in SIZES
    ]


def test_the_times_of_peers():
    rows = table(PAGE, "| 10,000 | 100,000 | 1,000,000 |")
    assert len(rows) == len(SYSTEMS)
    for name, *cells in rows:
        (system,) = [SYSTEMS[one] for one in SYSTEMS if name == one or (one != "`sqlrag`" and name.startswith(one))]
        for size, cell in zip(SIZES, cells, strict=True):
            found = MEASURED["peers"][size].get(system)
            if found is None:
                assert not re.match(r"\d", cell), (name, size)
                continue
            times = "" if system == "sqlrag" else f" ({written(found['times'])})"
            assert cell == written(found["hybrid_ms"]) + times, (name, size)


def test_memory_and_times_without_a_limit():
    rows = table(PAGE, 'chunks | without a limit | `"250MB"` |')
    points = {f"{point['chunks']:,}": point for point in MEASURED["points"]}
    for size, without, *_ in rows:
        memory = points[size]["resident_mb"]
        shown = f"{memory} MB" if memory < 1000 else f"{memory / 1000:.1f} GB"
        assert without.startswith(f"{shown}, "), size


@pytest.mark.parametrize(("column", "system"), [(1, "sqlrag"), (3, "lancedb_flat"), (5, "sqlite_vec_fts5")])
def test_the_times_in_the_readme(column, system):
    [row] = [row for row in table(README, "| sqlrag | Chroma") if row[0].startswith("hybrid search, ms at")]
    assert row[column] == in_readme(system)


def test_what_is_in_memory_in_the_readme():
    text = " ".join(README.split())
    assert f"in memory it takes {in_readme('sqlrag_memory')}, tantivy with FAISS {in_readme('tantivy_faiss')}" in text


def test_the_rate_of_storing():
    assert f"about {MEASURED['store_chunks_a_second']:,} chunks of 384 dimensions a second" in PAGE


def test_growth_is_fitted_and_points_of_the_same_size_are_replaced(tmp_path):
    points = [{"chunks": n, "build_s": 3 * n**0.5} for n in (10, 1000, 100000)]
    assert scaling.exponent(points, "build_s") == pytest.approx(0.5)
    path = tmp_path / "figures.json"
    path.write_text(json.dumps({"points": [{"chunks": 1000, "build_s": 1, "resident_mb": 2}]}))
    write_figures(path, lambda figures: scaling.merge(figures["points"], [points[1], points[0]]))
    figures = json.loads(path.read_text())
    assert figures["points"] == [points[0], {**points[1], "resident_mb": 2}]
    assert figures.keys() == {"points", "date", "versions"}
