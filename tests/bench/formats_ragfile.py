"""RAGFile and Parquet: export and import, keyword look-up, exact vector search against numpy, opening 1 GB.

python -m tests.bench.formats_ragfile [--size 100000] [--db FILE]

The store is filled with real chunks and vectors (see ``corpora``); ``--db`` takes one that is there. Searches are warm,
medians of 200 words and of 50 vectors. numpy's exact search is one product of the same float32 numbers in a plain
array, argpartition and a sort of the best 10. The file of 1 GB holds the same texts, and vectors seven times as long.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlrag.formats.exchange import stored_contents
from sqlrag.formats.parquet import export_parquet, import_parquet, read_parquet
from sqlrag.formats.ragfile import RAGFile, export_ragfile, import_ragfile, read_ragfile, write_ragfile
from tests.bench.common import environment, markdown_table, peak_mb
from tests.bench.corpora import WHAT, fill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlrag.engines.contents import Batch, Contents

TIMES_AS_LONG = 7


def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def median_ms(works: Sequence[Callable[[], Any]]) -> float:
    for work in works[:3]:
        work()
    return statistics.median(timed(work) for work in works) * 1e3


def rates(db: Path, folder: Path) -> list[list[str]]:
    """Return a line for each way of a store into a format and back: seconds, MB, MB a second."""
    rows = []

    def line(what: str, seconds: float, size: int) -> None:
        rows.append([what, f"{seconds:.1f} s", f"{size / 1e6:,.0f} MB", f"{size / 1e6 / seconds:,.0f} MB/s"])

    files: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any], Callable[[Path, Path], Any]]] = {
        "RAGFile": (lambda out: export_ragfile(db, out), read_ragfile, import_ragfile),
        "RAGFile, 16 bits": (lambda out: export_ragfile(db, out, precision=16), read_ragfile, import_ragfile),
        "Parquet": (lambda out: export_parquet(db, out), read_parquet, import_parquet),
    }
    for name, (write, read, import_) in files.items():
        out = folder / name
        reports: list[Any] = []
        seconds = timed(lambda: reports.append(write(out)))  # noqa: B023 - called at once
        size = reports[0].size_bytes
        line(f"{name}: export", seconds, size)
        line(f"{name}: read and check all", timed(lambda: exhaust(read(out))), size)  # noqa: B023
        if name != "RAGFile, 16 bits":
            line(f"{name}: import into a new store", timed(lambda: import_(out, folder / f"{name}.db")), size)  # noqa: B023
    return rows


def exhaust(opened: Any) -> None:
    with opened as contents:
        for _ in contents.batches:
            pass


def searches(path: Path) -> list[list[str]]:
    """Return lines for keywords and vectors, and for numpy over the same numbers."""
    draw = random.Random(7)
    with RAGFile(path) as file:
        assert file.facts is not None
        words = [file.record(draw.randrange(file.facts.chunks, file.facts.records)).keyword for _ in range(200)]
        common = sorted(words, key=lambda word: -len(file.search_keyword(word, None)))[0]
        rows = [
            ["keyword, 10 chunks", f"{median_ms([lambda w=w: file.search_keyword(w) for w in words]):.3f} ms"],
            ["node_id", f"{median_ms([lambda w=w: file.search_keyword(f'd{w:06d}.md#0') for w in range(200)]):.3f} ms"],
            [f"the commonest of them ({common!r})", f"{median_ms([lambda: file.search_keyword(common)] * 20):.3f} ms"],
        ]
        plain = np.array(file.vectors, np.float32)
        queries = plain[draw.sample(range(len(plain)), 50)]
        ours, others = [], []
        for query in [*queries[:3], *queries]:  # in turns, so that what else runs here slows both
            ours.append(timed(lambda: file.search_vector(query)))  # noqa: B023
            others.append(timed(lambda: nearest(plain, query)))  # noqa: B023
        for query in queries:
            assert {record.number for record in file.search_vector(query, 1)} <= set(nearest(plain, query).tolist())
        found, baseline = statistics.median(ours[3:]) * 1e3, statistics.median(others[3:]) * 1e3
    rows += [
        ["vector, exact, 10 chunks", f"{found:.1f} ms"],
        ["numpy on the same floats", f"{baseline:.1f} ms"],
        ["the first by the second", f"{found / baseline:.2f}"],
    ]
    return rows


def nearest(vectors: Any, query: Any) -> Any:
    scores = vectors @ query
    best = np.argpartition(scores, -10)[-10:]
    return best[np.argsort(-scores[best])]


def longer(batches: Iterator[Batch]) -> Iterator[Batch]:
    for batch in batches:
        vectors = np.tile(batch.vectors, TIMES_AS_LONG) / np.float32(np.sqrt(TIMES_AS_LONG))
        yield batch._replace(vectors=vectors)


def write_long(db: Path, path: Path) -> None:
    with stored_contents(db) as contents:
        long: Contents = contents
        long.settings = {**contents.settings, "embedding_dimensions": str(contents.dimensions * TIMES_AS_LONG)}
        long.batches = longer(iter(contents.batches))
        write_ragfile(long, path)


def opening(path: Path) -> list[list[str]]:
    def open_it() -> None:
        with RAGFile(path):
            pass

    size = f"{path.stat().st_size / 1e9:.2f} GB"
    rows = []
    if hasattr(os, "posix_fadvise"):
        cold = []
        for _ in range(10):
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            cold.append(timed(open_it))
        rows = [[f"open {size}, none of it in memory", f"{statistics.median(cold) * 1e3:.2f} ms"]]
    again = statistics.median(timed(open_it) for _ in range(50))
    return [*rows, [f"open {size}, again", f"{again * 1e3:.2f} ms"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--db", type=Path)
    parser.add_argument("--alone", nargs=2, metavar=("DB", "OUTPUT"), help="export, and print the memory that it took")
    chosen = parser.parse_args()
    if chosen.alone:
        export_ragfile(*chosen.alone)
        print(f"{peak_mb():,.0f} MB", end="\n\n")
        return
    print(environment(), WHAT, sep="\n\n", end="\n\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        db = chosen.db
        if db is None:
            db = folder / "kb.duckdb"
            fill(db, chosen.size)
        alone = [sys.executable, "-m", "tests.bench.formats_ragfile", "--alone", str(db), str(folder / "alone.ragfile")]
        print("Peak memory of a process that exports a RAGFile:", flush=True)
        subprocess.run(alone, check=True)
        print(markdown_table(["", "time", "size", "rate"], rates(db, folder)), end="\n\n", flush=True)
        print(markdown_table(["RAGFile", "time"], searches(folder / "RAGFile")), end="\n\n", flush=True)
        write_long(db, folder / "long.ragfile")
        print(markdown_table(["RAGFile", "time"], opening(folder / "long.ragfile")))


if __name__ == "__main__":
    main()
