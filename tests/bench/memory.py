"""How much memory a process takes that opens a store and asks a hundred questions.

python -m tests.bench.memory --db FILE,FILE [--limits default,250MB]

Each line is a process of its own, with the vectors of the questions given; a process that also embeds takes the model's
memory besides. Resident memory (VmRSS) after the imports, once the store is open and after the questions, and the
greatest (VmHWM). DuckDB keeps the blocks that it has read for as long as memory_limit allows.
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

import numpy as np

from sqlrag import Store
from tests.bench.common import environment, markdown_table, peak_mb, resident_mb


def run(path: Path, limit: str | None, asked: Path) -> dict[str, float]:
    """Ask the questions in this process."""
    given = np.load(asked)
    began = resident_mb()
    times = []
    with Store(path, memory_limit=limit) as store:
        opened = resident_mb()
        for text, vector in zip(given["texts"].tolist(), given["vectors"], strict=True):
            start = time.perf_counter()
            store.hybrid_query(text, top_k=10, query_vector=vector)
            times.append((time.perf_counter() - start) * 1000)
        chunks = store.cursor().execute("SELECT count(*) FROM documents").fetchall()[0][0]
        done = resident_mb()
    return {
        "chunks": chunks,
        "imports": began,
        "open": opened,
        "done": done,
        "peak": peak_mb(),
        "p50": statistics.median(times),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", required=True, help="stores made by `recall --folder` or `latency --folder`")
    parser.add_argument("--limits", default="default,250MB")
    parser.add_argument("--one-run", nargs=2, metavar=("LIMIT", "QUESTIONS"), help="ask in this process, print JSON")
    arguments = parser.parse_args()
    if arguments.one_run:
        limit, asked = arguments.one_run
        print(json.dumps(run(Path(arguments.db), None if limit == "default" else limit, Path(asked))))
        return
    from tests.bench.corpora import SEED, questions

    print(f"{environment()}, seed {SEED}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        asked = str(Path(folder) / "asked.npz")
        texts, vectors = questions()
        np.savez(asked, texts=np.array(texts[:100]), vectors=vectors[:100])
        for path in arguments.db.split(","):
            for limit in arguments.limits.split(","):
                command = [sys.executable, "-m", "tests.bench.memory", "--db", path, "--one-run", limit, asked]
                done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
                got = json.loads(done.stdout)
                figures = [f"{got[name]:,.0f}" for name in ("imports", "open", "done", "peak")]
                rows.append([f"{got['chunks']:,}", limit, *figures, f"{got['p50']:.1f}"])
    header = ["chunks", "memory_limit", "MB after imports", "store open", "after 100 questions", "peak", "p50 ms"]
    print(markdown_table(header, rows))


if __name__ == "__main__":
    main()
