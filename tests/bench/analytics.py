"""How long each view that explores a file takes: python -m tests.bench.analytics [--chunks 100000] [--repeats 3]

Every document has 20 chunks below four titles, links to ten others and to one that is not there, and the text that its
chunks are cut from. A view is read to its end, and once before anything is timed; seconds are the median of the
repeats, and CPU seconds those of all threads. The views of the query log are asked over as many queries as chunks.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from itertools import accumulate
from pathlib import Path

import duckdb

from sqlrag import Chunk, Document, Store, corpus_map
from sqlrag.engines.duckdb.schema import read_sql
from tests.bench.common import environment, markdown_table, peak_mb
from tests.bench.corpora import BATCH, DIMENSIONS, PER_DOCUMENT, WHAT, batches

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kb.duckdb"
        fill(path, options.chunks)
        with Store(path) as store:
            lines = measured(store.cursor(), VIEWS, options.repeats)
        with duckdb.connect(str(Path(folder) / "log.duckdb")) as log:
            log.execute(read_sql("query_log"))
            log.execute(QUERIES, [options.chunks])
            lines += measured(log, QUERY_VIEWS, options.repeats)
    print(environment(), f"{options.chunks:,} chunks. {WHAT}", sep="\n")
    print(markdown_table(["view", "rows", "seconds", "CPU seconds", "peak MB"], lines))


if __name__ == "__main__":
    main()
