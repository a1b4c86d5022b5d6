"""Latency of warm queries in one file and in the same chunks in several files.

python -m tests.bench.many_files [--chunks 24000] [--files 12] [--questions 60] [--repeats 3] [--folder FOLDER]

Chunks and questions are those of ``latency``. The documents are dealt out to the files in turn; the one file is what
``merge`` makes of them. Each question is asked of both in turn, so that what else the machine does slows both; p50 is
over all questions, the median of the repeats, by SQL and in memory. "open" is one opening of the files, with the search
for documents that are in two of them. Recall@10 is that of the vector leg against exact cosines.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlrag import Store, Stores, merge
from tests.bench.common import environment, markdown_table
from tests.bench.corpora import BATCH, DIMENSIONS, SEED, WHAT, batches, found_share, nearest, questions, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlrag.search.queries import Queries

MODES: dict[str, Callable[[Queries, str, Any], Any]] = {
    "hybrid": lambda store, text, vector: store.hybrid_query(text, top_k=10, query_vector=vector),
    "convex": lambda store, text, vector: store.hybrid_query(text, top_k=10, query_vector=vector, fusion="convex"),
    "vector": lambda store, text, vector: store.vector_query(text, top_k=10, query_vector=vector),
    "lexical": lambda store, text, _: store.lexical_query(text, top_k=10),
}


def fill(paths: list[Path], chunks: int) -> None:
    """Deal the documents out to the files in turn."""
    with ExitStack() as opened:
        stores = [opened.enter_context(Store.create(path, DIMENSIONS)) for path in paths]
        first = 0
        for texts, vectors in batches(chunks, BATCH):
            documents, rows = rows_of(first, texts)
            place = {document.doc_id: number % len(paths) for number, document in enumerate(documents)}
            for number, store in enumerate(stores):
                mine = [i for i, row in enumerate(rows) if place[row.doc_id] == number]
                own = [document for document in documents if place[document.doc_id] == number]
                store.upsert(own, [rows[i] for i in mine], vectors[mine])
            first += len(texts)


def opening(paths: list[Path]) -> float:
    """Return the milliseconds that it takes to open the files and close them."""
    began = time.perf_counter()
    Stores(paths).close()
    return (time.perf_counter() - began) * 1000


def measure(stores: list[Queries], asked: list[tuple[str, Any]], repeats: int) -> list[list[str]]:
    """Return a line for each mode: p50 of each store and CPU milliseconds, and every second one's by the one before."""
    lines = []
    for mode, query in MODES.items():
        times: list[list[float]] = [[] for _ in stores]
        cpu = [0.0] * len(stores)
        for _ in range(repeats):
            for text, vector in asked:
                for place, store in enumerate(stores):
                    began, used = time.perf_counter(), time.process_time()
                    query(store, text, vector)
                    times[place].append((time.perf_counter() - began) * 1000)
                    cpu[place] += (time.process_time() - used) * 1000 / len(asked) / repeats
        p50 = [statistics.median(found) for found in times]
        line = [mode]
        for place in range(0, len(stores), 2):
            line += [f"{p50[at]:.1f} ({cpu[at]:.1f})" for at in (place, place + 1)]
            line.append(f"{p50[place + 1] / p50[place]:.2f} x ({cpu[place + 1] / cpu[place]:.2f} x)")
        lines.append(line)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=24_000)
    parser.add_argument("--files", type=int, default=12)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None, help="keep the files here and take those that are there")
    arguments = parser.parse_args()
    print(f"{environment()}, seed {SEED}\n\n{WHAT}\n")
    texts, queries = questions()
    step = max(1, len(texts) // arguments.questions)
    texts, queries = texts[::step], queries[::step]
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        paths = [folder / f"m_{arguments.chunks}_{n}_of_{arguments.files}.duckdb" for n in range(arguments.files)]
        whole = folder / f"m_{arguments.chunks}.duckdb"
        if not paths[-1].exists():
            fill(paths, arguments.chunks)
        if not whole.exists():
            began = time.perf_counter()
            print(f"{merge(paths, whole)}, in {time.perf_counter() - began:.1f} s\n")
        opened = [statistics.median(opening(files) for _ in range(3)) for files in ([whole], paths)]
        with (
            Store(whole, resident=False) as one,
            Stores(paths, resident=False) as many,
            Store(whole, resident=True) as one_held,
            Stores(paths, resident=True) as many_held,
        ):
            asked = list(zip(texts, queries, strict=True))
            for held in (one_held, many_held):
                while held.lexical_query("a").methods["engine"] != "memory":
                    time.sleep(0.1)
            rows = measure([one, many, one_held, many_held], asked, arguments.repeats)
            best = nearest(queries, arguments.chunks, 10)
            shares = [
                np.mean(
                    [
                        found_share(
                            [row["score"] for row in store.vector_query(top_k=10, query_vector=vector)], cosines, 10
                        )
                        for vector, cosines in zip(queries, best, strict=True)
                    ]
                )
                for store in (one, many)
            ]
    rows.append(["open", *(f"{value:.1f}" for value in opened), f"{opened[1] / opened[0]:.2f} x", *[""] * 3])
    rows.append(["recall@10 of the vector leg", *(f"{share:.4f}" for share in shares), *[""] * 4])
    files = f"{arguments.files} files"
    held = ("one, in memory", f"{files}, in memory", "ratio")
    print(markdown_table(["p50 (CPU), ms", "one file", files, "ratio", *held], rows))


if __name__ == "__main__":
    main()
