"""How long one question takes on the command line, from a cold shell to its answer, and where the time goes.

python -m tests.bench.cold_start [--chunks 10000] [--runs 7] [--db FILE]

The file holds documentation chunks with their MiniLM vectors; each run is a process of its own with another question,
``python -m sqlrag hybrid-query … --timings``. "wall" is the process from start to end, the interpreter's own start
included; the other columns are what the command says. Each figure is the median of the runs.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sqlrag import Store, load_embedder
from tests.bench.common import MINILM, environment, markdown_table
from tests.bench.corpora import DIMENSIONS, corpus, questions, rows_of

STAGES = ("import", "open", "load", "embed", "search")


def make(path: Path, chunks: int) -> None:
    texts, vectors = corpus(chunks)
    with Store.create(path, DIMENSIONS, embedder=load_embedder(MINILM)) as store:
        store.upsert(*rows_of(0, texts), vectors)


def ask(path: Path, question: str) -> dict[str, float]:
    """Return the milliseconds of one process by stage."""
    command = [sys.executable, "-m", "sqlrag", "hybrid-query", question, "--db", str(path), "--timings"]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    wall = (time.perf_counter() - began) * 1000
    found = {stage: float(took) for stage, took in re.findall(r"(\w+) ([\d.]+) ms", done.stderr)}
    return {"wall": wall, **{stage: found[stage] for stage in STAGES}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--db", help="a file that is there, instead of one that is made")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(arguments.db or Path(folder) / "kb.duckdb")
        if arguments.db is None:
            make(path, arguments.chunks)
        with Store(path) as store:
            chunks = store.cursor().execute("SELECT count(*) FROM documents").fetchall()[0][0]
        took = [ask(path, question) for question in questions()[0][: arguments.runs]]
    print(f"{environment()}, {MINILM} int8")
    medians = [f"{statistics.median(run[stage] for run in took):.0f}" for stage in took[0]]
    slowest = f"{max(run['wall'] for run in took):.0f}"
    header = ["chunks", "wall, ms", *STAGES, "slowest wall"]
    print(markdown_table(header, [[f"{chunks:,}", *medians, slowest]]))


if __name__ == "__main__":
    main()
