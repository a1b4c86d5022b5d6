"""How fast chunks with given vectors are stored and indexed, where the time goes, and how much memory that takes.

python -m tests.bench.ingest [--sizes 10000,100000] [--memory-limit 4GB] [--ways one,batches,build]

one: a single ``Store.upsert``. batches: an upsert for every 20,000 chunks. build: as prepare_embeddings does it, rows
by 2,048 and the words indexed once at the end. Only the calls of the package are timed, not the making of the corpus;
each run is a process of its own. "peak" is the process's greatest resident memory (VmHWM): DuckDB's, and what Python
holds of the corpus, which is all of it for "one". "replace" is the upsert of one document of 20 chunks in place of the
old one, until it can be searched: the median of nine, and the greatest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from sqlrag import Store
from sqlrag.engines.duckdb import documents, lexical
from sqlrag.engines.duckdb.documents import insert_rows, refresh_counts, unit_vectors
from sqlrag.ingest.run import BATCH_CHUNKS
from sqlrag.search.store import Database
from tests.bench.common import environment, markdown_table, peak_mb
from tests.bench.corpora import BATCH, DIMENSIONS, PER_DOCUMENT, SEED, WHAT, batches, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAYS = ("one", "batches", "build")
# Where a stage's time is taken: the module or class, the function's name there, the column. Nested ones count once.
STAGES: list[tuple[Any, str, str]] = [
    (documents, "unit_vectors", "check"),
    (documents, "_check_rows", "check"),
    (documents, "insert_rows", "rows"),
    (lexical, "run_script", "words"),
    (lexical, "stem_words", "words"),
    (documents, "refresh_counts", "counts"),
    (Database, "checkpoint", "checkpoint"),
]
COLUMNS = ("check", "rows", "words", "counts", "checkpoint")


@contextmanager
def timed_stages() -> Iterator[dict[str, float]]:
    """Add up the seconds of each stage while the block runs."""
    seconds = dict.fromkeys(COLUMNS, 0.0)

    def timed(function: Callable[..., Any], stage: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                seconds[stage] += time.perf_counter() - began

        return call

    with ExitStack() as stack:
        for owner, name, stage in STAGES:
            stack.enter_context(mock.patch.object(owner, name, timed(getattr(owner, name), stage)))
        yield seconds


def store_all(way: str, path: Path, size: int, memory_limit: str | None) -> tuple[float, float]:
    """Store the corpus and return the seconds it took by the clock and of processor time."""
    wall = cpu = 0.0
    rows = {"one": size, "batches": BATCH, "build": BATCH_CHUNKS // PER_DOCUMENT * PER_DOCUMENT}[way]
    with Store.create(path, DIMENSIONS, overwrite=True, memory_limit=memory_limit) as store:
        if way == "build":
            store.cursor().execute("SET checkpoint_threshold = '400MB'")
        first = 0
        for texts, vectors in batches(size, rows):
            documents, chunks = rows_of(first, texts)
            first += len(texts)
            began, began_cpu = time.perf_counter(), time.process_time()
            if way == "build":
                unit = unit_vectors(vectors, DIMENSIONS)
                with store._database.transaction() as con:
                    insert_rows(con, documents, chunks, unit, llama_index_compatible=True)
            else:
                store.upsert(documents, chunks, vectors)
            wall, cpu = wall + time.perf_counter() - began, cpu + time.process_time() - began_cpu
        if way == "build":
            began, began_cpu = time.perf_counter(), time.process_time()
            with store._database.transaction() as con:
                lexical.add_chunks(con, 0, lexical.DEFAULT_STEMMER)
                refresh_counts(con)
            store._database.checkpoint()
            wall, cpu = wall + time.perf_counter() - began, cpu + time.process_time() - began_cpu
    return wall, cpu


def replace(path: Path, size: int, memory_limit: str | None) -> list[float]:
    """Return the milliseconds of replacing nine documents from all over the store."""
    found = []
    texts, vectors = next(batches(PER_DOCUMENT, PER_DOCUMENT))
    with Store(path, read_only=False, memory_limit=memory_limit) as store:
        for i in range(9):
            documents, chunks = rows_of(size // PER_DOCUMENT * i // 9 * PER_DOCUMENT, texts)
            began = time.perf_counter()
            store.upsert(documents, chunks, vectors)
            found.append((time.perf_counter() - began) * 1000)
    return found


def run(way: str, size: int, memory_limit: str | None) -> dict[str, Any]:
    """Measure one way in this process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kb.duckdb"
        with timed_stages() as seconds:
            wall, cpu = store_all(way, path, size, memory_limit)
        peak, size_mb = peak_mb(), path.stat().st_size / 1e6
        return {
            "wall": wall,
            "cpu": cpu,
            "stages": seconds,
            "peak": peak,
            "file": size_mb,
            "replace": replace(path, size, memory_limit),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--memory-limit", default=None, help="DuckDB's memory_limit, such as 4GB")
    parser.add_argument("--one-run", nargs=2, metavar=("WAY", "SIZE"), help="measure in this process, print JSON")
    arguments = parser.parse_args()
    if arguments.one_run:
        way, size = arguments.one_run
        print(json.dumps(run(way, int(size), arguments.memory_limit)))
        return
    print(f"{environment()}, seed {SEED}, memory_limit {arguments.memory_limit or 'as DuckDB sets it'}\n\n{WHAT}\n")
    rows = []
    for size in map(int, arguments.sizes.split(",")):
        for way in arguments.ways.split(","):
            command = [sys.executable, "-m", "tests.bench.ingest", "--one-run", way, str(size)]
            command += ["--memory-limit", arguments.memory_limit] if arguments.memory_limit else []
            done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
            got = json.loads(done.stdout)
            total = sum(got["stages"].values())
            rows.append(
                [
                    f"{size:,}",
                    way,
                    f"{size / got['wall']:,.0f}",
                    f"{size / got['cpu']:,.0f}",
                    " / ".join(f"{100 * got['stages'][stage] / total:.0f}" for stage in COLUMNS),
                    f"{got['peak']:,.0f}",
                    f"{got['file']:,.0f}",
                    f"{statistics.median(got['replace']):.0f} / {max(got['replace']):.0f}",
                ]
            )
    header = ["chunks", "way", "chunks/s", "chunks / CPU s", f"% {' / '.join(COLUMNS)}", "peak MB", "file MB"]
    print(markdown_table([*header, "replace ms, median / greatest"], rows))


if __name__ == "__main__":
    main()
