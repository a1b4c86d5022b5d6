"""Latency of warm queries in one file and in the same chunks in several files.

python -m tests.bench.many_files [--chunks 24000] [--files 12] [--questions 60] [--repeats 3] [--folder FOLDER]

Chunks and questions are those of ``latency``. The documents are dealt out to the files in turn; the one file is what
``merge`` makes of them. Each question is asked of both in turn, so that what else the machine does slows both; p50 is
over all questions, the median of the repeats. "open" is one opening of the files, with the search for documents that
are in two of them. Recall@10 is that of the vector leg against exact cosines.
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
    """Return a line for each mode: p50 of each store, and the last one's by the first one's."""
    lines = []
    for mode, query in MODES.items():
        medians: list[list[float]] = [[] for _ in stores]
        for _ in range(repeats):
            times: list[list[float]] = [[] for _ in stores]
            for text, vector in asked:
                for store, found in zip(stores, times, strict=True):
                    began = time.perf_counter()
                    query(store, text, vector)
                    found.append((time.perf_counter() - began) * 1000)
            for median, found in zip(medians, times, strict=True):
                median.append(statistics.median(found))
        p50 = [statistics.median(median) for median in medians]
        lines.append([mode, *(f"{value:.1f}" for value in p50), f"{p50[-1] / p50[0]:.2f} x"])
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
        with Store(whole) as one, Stores(paths) as many:
            asked = list(zip(texts, queries, strict=True))
            rows = measure([one, many], asked, arguments.repeats)
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
    rows.append(["open", *(f"{value:.1f}" for value in opened), f"{opened[1] / opened[0]:.2f} x"])
    rows.append(["recall@10 of the vector leg", *(f"{share:.4f}" for share in shares), ""])
    print(markdown_table(["p50, ms", "one file", f"{arguments.files} files", "ratio"], rows))


if __name__ == "__main__":
    main()
