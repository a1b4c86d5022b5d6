"""How time, memory and the size of a file grow with the number of chunks.

python -m tests.bench.scaling [--sizes 1000,3000,10000,30000,100000] [--figures FILE]

Each size is a process of its own, which stores the chunks with given vectors, opens the file again and asks a hundred
hybrid questions, their vectors given. "build" is the time of storing and indexing, by the clock; "p50" that of a
question; "memory" is what is resident after the last one. The last row is the exponent of the power of n that fits best
(least squares of the logarithms): 1 is growth in proportion. With ``--figures``, such as tests/bench/measured.json, the
points of these sizes are written into that file, from which ``data/make_drawings.py`` draws.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from sqlrag import Store
from tests.bench.common import environment, markdown_table, resident_mb, write_figures
from tests.bench.corpora import SEED, WHAT, fill, questions

QUESTIONS = 100
COLUMNS = {"build_s": "build s", "file_mb": "file MB", "hybrid_ms": "p50 ms", "resident_mb": "memory MB"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,3000,10000,30000,100000")
    parser.add_argument("--figures", type=Path, help="write the points into this file")
    parser.add_argument("--one-run", nargs=2, metavar=("STEP", "FILE"), help="in this process, as JSON")
    parser.add_argument("--questions", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one_run:
        step, path = options.one_run
        print(json.dumps(ask(Path(path), options.questions) if step == "ask" else build(Path(path), int(step))))
        return
    points = []
    with tempfile.TemporaryDirectory() as folder:
        texts, vectors = questions()
        step = max(1, len(texts) // QUESTIONS)
        asked = Path(folder) / "questions.json"
        asked.write_text(json.dumps([texts[::step][:QUESTIONS], vectors[::step][:QUESTIONS].tolist()]), "utf-8")
        for size in map(int, options.sizes.split(",")):
            path = Path(folder) / f"{size}.duckdb"
            points.append({"chunks": size, **one_run(str(size), path, asked), **one_run("ask", path, asked)})
            path.unlink()
            print(points[-1], file=sys.stderr, flush=True)
    print(f"{environment()}, seed {SEED}\n\n{WHAT}\n")
    rows = [[f"{point['chunks']:,}", *(f"{point[name]:,.3g}" for name in COLUMNS)] for point in points]
    if len(points) > 1:
        rows.append(["exponent", *(f"{exponent(points, name):.2f}" for name in COLUMNS)])
    print(markdown_table(["chunks", *COLUMNS.values()], rows))
    if options.figures:
        write_figures(options.figures, lambda figures: merge(figures["points"], points))


def one_run(step: str, path: Path, asked: Path) -> dict[str, float]:
    """Return the figures of one step, which is a process of its own."""
    command = [sys.executable, "-m", "tests.bench.scaling", "--one-run", step, str(path), "--questions", str(asked)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    return dict(json.loads(done.stdout))


def build(path: Path, size: int) -> dict[str, float]:
    """Store so many chunks."""
    began = time.perf_counter()
    fill(path, size)
    return {"build_s": round(time.perf_counter() - began, 2), "file_mb": round(path.stat().st_size / 1e6, 1)}


def ask(path: Path, asked: Path) -> dict[str, float]:
    """Ask the questions of a file, three of them before the clock starts."""
    texts, vectors = json.loads(asked.read_text("utf-8"))
    seconds = []
    pairs = list(zip(texts, vectors, strict=True))
    with Store(path, resident=False) as store:
        for text, vector in [*pairs[:3], *pairs]:
            began = time.perf_counter()
            store.hybrid_query(text, query_vector=np.array(vector, np.float32), top_k=10)
            seconds.append(time.perf_counter() - began)
        return {
            "hybrid_ms": round(statistics.median(seconds[3:]) * 1000, 1),
            "resident_mb": round(resident_mb()),
        }


def exponent(points: list[dict[str, Any]], name: str) -> float:
    """Return the power of the number of chunks by which a figure grows."""
    sizes, values = (np.log([point[key] for point in points]) for key in ("chunks", name))
    return float(np.polyfit(sizes, values, 1)[0])


def merge(known: list[dict[str, Any]], points: list[dict[str, Any]]) -> None:
    """Put points in place of those of the same size, in the order of the sizes."""
    by_size = {point["chunks"]: point for point in known}
    for point in points:
        by_size[point["chunks"]] = {**by_size.get(point["chunks"], {}), **point}
    known[:] = [by_size[size] for size in sorted(by_size)]


if __name__ == "__main__":
    main()
