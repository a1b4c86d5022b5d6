"""How long the views that explore a file and the analytics of text take.

python -m tests.bench.analytics [--chunks 100000] [--repeats 3] [--only views|text]

Every document has 20 chunks below four titles, links to ten others and to one that is not there, and the text that its
chunks are cut from. A view is read to its end, and once before anything is timed; seconds are the median of the
repeats, and CPU seconds those of all threads. The views of the query log are asked over as many queries as chunks.

The functions get as many rows with given vectors, read from an Arrow table, and with the texts where they use words;
each is run once. "numpy" is what a plain program in numpy takes for the same, where that is done: the full sort of
10,000 x 10,000 cosines in float64, and the products of all rows with the labels. Its scores have to be equal within
1e-6. By codes, the share of the pairs is given that the exact comparison finds: of 2,000 rows of the left table for
the join.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from functools import partial
from itertools import accumulate
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from sqlrag import (
    Chunk,
    Document,
    EmbeddedRows,
    Store,
    classify,
    cluster,
    corpus_map,
    distinctive_terms,
    embed_rows,
    near_duplicates,
    semantic_join,
    trend,
)
from sqlrag.engines.duckdb.schema import read_sql
from tests.bench.common import environment, markdown_table, peak_mb
from tests.bench.corpora import BATCH, DIMENSIONS, PER_DOCUMENT, SEED, WHAT, batches, corpus

VIEWS = [
    *("corpus_stats", "chunk_lengths", "chunk_length_summary", "document_coverage", "document_freshness", "headings"),
    *("vocabulary", "links", "link_degrees", "near_duplicates", "ingest_summary", "map_status", "topics"),
]
QUERY_VIEWS = [
    *("query_latencies", "queries_without_results", "failed_queries", "query_days", "frequent_queries", "query_stages")
]
QUERIES = """
    INSERT INTO queries
    SELECT CAST(i AS VARCHAR), TIMESTAMP '2026-01-01' + i * INTERVAL 1 MINUTE, 'kb.duckdb',
           ['hybrid', 'vector', 'lexical'][1 + i % 3], 'question ' || i * i % 9973, 5, i % 11 // 2, 'rrf', 0.03, 50, 50,
           0.01 + i % 100 / 1000, '{"vector": 0.004, "lexical": 0.003, "fetch": 0.002}', [],
           CASE WHEN i % 500 = 0 THEN 'The file is locked.' END
    FROM range(?) AS numbers(i)
"""


def documents_of(first: int, texts: list[str], size: int) -> tuple[list[Document], list[Chunk]]:
    """Return the documents of a batch and their chunks, which lie in the text one after the other."""
    documents, chunks = [], []
    many = -(-size // PER_DOCUMENT)
    for start in range(0, len(texts), PER_DOCUMENT):
        own, number = texts[start : start + PER_DOCUMENT], (first + start) // PER_DOCUMENT
        name = f"d{number:06d}.md"
        links = " ".join(f"[to](d{(number + step * step) % many:06d}.md)" for step in range(1, 11))
        text = "\n\n".join([*own, f"{links} [gone](gone-{number}.md)"])
        documents.append(Document(name, text, mime="text/markdown"))
        for i, end in enumerate(accumulate(len(text) + 2 for text in own)):
            headings = (name, f"Section {i // 5}")
            place = end - 2 - len(own[i])
            chunks.append(Chunk(name, i, own[i], heading_path=headings, i_start=place, i_end=end - 2))
    return documents, chunks


def fill(path: Path, size: int) -> None:
    with Store.create(path, DIMENSIONS) as store:
        first = 0
        for texts, vectors in batches(size, BATCH):
            store.upsert(*documents_of(first, texts, size), vectors)
            first += len(texts)
    corpus_map(path)


def measured(connection: duckdb.DuckDBPyConnection, views: list[str], repeats: int) -> list[list[str]]:
    """Return a row for each view: its rows, seconds and CPU seconds, and the greatest memory of the process so far."""
    lines = []
    for view in views:
        rows = connection.sql(f"FROM {view}").to_arrow_table().num_rows
        walls, cpus = [], []
        for _ in range(repeats):
            began, cpu = time.perf_counter(), time.process_time()
            connection.sql(f"FROM {view}").to_arrow_table()
            walls.append(time.perf_counter() - began)
            cpus.append(time.process_time() - cpu)
        wall, used = statistics.median(walls), statistics.median(cpus)
        lines.append([view, f"{rows:,}", f"{wall:.2f}", f"{used:.2f}", f"{peak_mb():,.0f}"])
        print("|", " | ".join(lines[-1]), "|", flush=True)
    return lines


class Functions:
    """Measures the functions, one after the other."""

    def __init__(self) -> None:
        self.lines: list[list[str]] = []

    def run(self, name: str, rows: int, function, numpy_seconds: float | None = None, found: str = ""):
        """Call a function and note its time; return what it returned."""
        began, cpu = time.perf_counter(), time.process_time()
        result = function()
        seconds, used = time.perf_counter() - began, time.process_time() - cpu
        against = "" if numpy_seconds is None else f"{numpy_seconds:.1f}"
        self.lines.append([name, f"{rows:,}", f"{seconds:.1f}", f"{used:.1f}", against, found, f"{peak_mb():,.0f}"])
        return result

    def note(self, found: str) -> None:
        """Add to the last line what was found."""
        self.lines[-1][5] = found
        print("|", " | ".join(self.lines[-1]), "|", flush=True)


def part_of(rows: EmbeddedRows, start: int, stop: int, step: int = 1) -> EmbeddedRows:
    """Return some of the rows."""
    places = np.arange(start, stop, step)
    return EmbeddedRows(rows.name, rows.keys.take(pa.array(places)), rows.vectors[places])


def table_of(size: int) -> pa.Table:
    """Return texts, days of four years and vectors."""
    texts, vectors = corpus(size)
    days = np.datetime64("2020-01-01") + np.random.default_rng(SEED).integers(0, 1500, size)
    column = pa.FixedSizeListArray.from_arrays(vectors.ravel(), DIMENSIONS)
    return pa.table({"text": texts, "day": pa.array(days), "v": column})


def functions(size: int) -> list[list[str]]:
    """Return a line for each function over so many rows with given vectors."""
    calls = Functions()
    options = {"text": "text", "vector": "v", "columns": ["day"]}
    rows = calls.run("embed_rows", size, partial(embed_rows, table_of(size), **options))
    calls.note(f"{rows.vectors.nbytes / 2**20:,.0f} MB of vectors")
    few = min(10_000, size // 2)
    one, two = part_of(rows, 0, few), part_of(rows, size - few, size)
    began = time.perf_counter()
    products = one.vectors.astype(np.float64) @ two.vectors.astype(np.float64).T
    best = np.sort(products, axis=1)[:, ::-1][:, :10]
    spent = time.perf_counter() - began
    del products
    found = calls.run("semantic_join k=10", few, lambda: semantic_join(one, two, k=10), spent)
    scores = found.arrow()["score"].to_numpy().reshape(few, 10)
    calls.note(f"greatest difference {np.abs(scores - best).max():.1e}")
    half, other = part_of(rows, 0, size // 2), part_of(rows, size // 2, size)
    by_codes = calls.run("semantic_join by codes", size // 2, lambda: semantic_join(half, other, exact=False))
    exact = semantic_join(part_of(half, 0, 2000), other).arrow()
    same = (by_codes.arrow()["score"].to_numpy()[:2000] >= exact["score"].to_numpy() - 1e-9).mean()
    calls.note(f"{same:.3f} of the nearest")
    pairs = calls.run("near_duplicates", size, lambda: near_duplicates(rows, threshold=0.97))
    calls.note(f"{len(pairs):,} pairs")
    by_codes = calls.run("near_duplicates by codes", size, lambda: near_duplicates(rows, threshold=0.97, exact=False))
    calls.note(f"{len(by_codes) / max(1, len(pairs)):.3f} of the pairs")
    clusters = calls.run("cluster by month", size, lambda: cluster(rows, by="day"))
    calls.note("; ".join(row["label"] for row in clusters.sizes[:3]))
    means = {f"label {number}": rows.vectors[number * 97 % size] for number in range(10)}
    began = time.perf_counter()
    products = rows.vectors.astype(np.float64) @ np.stack(list(means.values())).astype(np.float64).T
    best, spent = products.max(axis=1), time.perf_counter() - began
    classes = calls.run("classify, 10 labels", size, lambda: classify(rows, means), spent)
    calls.note(f"greatest difference {np.abs(classes.arrow()['score'].to_numpy() - best).max():.1e}")
    return calls.lines


def of_a_file(path: Path, size: int) -> list[list[str]]:
    """Return a line for each function over a file."""
    calls = Functions()
    with Store(path) as store:
        group = {"metadata": {"$doc_id": {"$in": [f"d{number:06d}.md" for number in range(100)]}}}
        found = calls.run("distinctive_terms", size, lambda: distinctive_terms(store, group))
        calls.note(", ".join(row["term"] for row in found[:3]))
        vector = store.vectors(["d000000.md#0"])[0]
        counts = calls.run("trend", size, lambda: trend(vector, store, threshold=0.5))
        calls.note(f"{sum(row['count'] for row in counts):,} documents")
    return calls.lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=("views", "text"))
    options = parser.parse_args()
    print(environment(), f"{options.chunks:,} chunks. {WHAT}", sep="\n")
    names = ["function", "rows", "seconds", "CPU seconds", "numpy", "found", "peak MB"]
    if options.only != "views":
        lines = functions(options.chunks)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kb.duckdb"
        fill(path, options.chunks)
        if options.only != "views":
            print(markdown_table(names, lines + of_a_file(path, options.chunks)))
        if options.only == "text":
            return
        with Store(path) as store:
            lines = measured(store.cursor(), VIEWS, options.repeats)
        with duckdb.connect(str(Path(folder) / "log.duckdb")) as log:
            log.execute(read_sql("query_log"))
            log.execute(QUERIES, [options.chunks])
            lines += measured(log, QUERY_VIEWS, options.repeats)
    print(markdown_table(["view", "rows", "seconds", "CPU seconds", "peak MB"], lines))


if __name__ == "__main__":
    main()
