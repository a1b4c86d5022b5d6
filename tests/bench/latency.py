"""Latency of warm queries and recall of the two-stage vector leg, at several sizes.

python -m tests.bench.latency [--sizes 10000,100000,1000000] [--db FILE,FILE] [--repeats 3] [--threads N] [--memory]
                              [--figures FILE]

Questions: those of duckdb_docs_qa and anthropic_docs, embedded with MiniLM before the clock starts. A store is read
once from end to end before anything is timed. p50 and p95 are over all questions, the median of the repeats; CPU is the
processor time of all threads for each question. "full scan" is the hybrid query with every vector compared; "plain" is
what one would write in DuckDB without this package: one statement with ``array_cosine_similarity`` and ``match_bm25``
over every row, both ranked and fused by RRF. These two are asked every fifth question only, once. Recall@10 is against
exact cosines by numpy, ties counted as right. Every question is one of SQL; with --memory a second row is of the arrays
in memory, once they are read. --db measures stores that this program or ``recall`` made with --folder.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlrag import Settings, Store
from sqlrag.engines.duckdb.legs import as_text
from sqlrag.engines.resident.follow import residence_of
from tests.bench.common import environment, markdown_table, write_figures
from tests.bench.corpora import SEED, WHAT, fill, found_share, nearest, questions

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Query = Callable[[str, NDArray[Any]], Any]

PLAIN = """
    WITH by_vector AS (
        SELECT rid, row_number() OVER (ORDER BY score DESC, doc_id, chunk_index) AS rank
        FROM (
            SELECT rid, doc_id, chunk_index, array_cosine_similarity(embedding, CAST($vector AS FLOAT[384])) AS score
            FROM documents
            ORDER BY score DESC, doc_id, chunk_index
            LIMIT 50
        )
    ),
    by_words AS (
        SELECT rid, row_number() OVER (ORDER BY score DESC, doc_id, chunk_index) AS rank
        FROM (
            SELECT rid, doc_id, chunk_index, score
            FROM (
                SELECT rid, node_id, doc_id, chunk_index, fts_main_documents.match_bm25(node_id, $text) AS score
                FROM documents
            )
            WHERE score IS NOT NULL
            ORDER BY score DESC, doc_id, chunk_index
            LIMIT 50
        )
    )
    SELECT d.node_id, d.text, d.metadata_, f.score
    FROM (
        SELECT rid, coalesce(1 / (60 + v.rank), 0) + coalesce(1 / (60 + w.rank), 0) AS score
        FROM by_vector AS v FULL JOIN by_words AS w USING (rid)
    ) AS f JOIN documents AS d USING (rid)
    ORDER BY f.score DESC, d.doc_id, d.chunk_index
    LIMIT 10
"""
SLOW = {"full scan", "plain"}

# What the arrays of a million chunks need.
MOST_MB = 4096


def modes_of(store: Store) -> dict[str, Query]:
    """Return what is measured: a call with a question and its vector."""
    con = store.cursor()
    return {
        "hybrid": lambda text, vector: store.hybrid_query(text, top_k=10, query_vector=vector),
        "rrf": lambda text, vector: store.hybrid_query(text, top_k=10, query_vector=vector, fusion="rrf"),
        "convex": lambda text, vector: store.hybrid_query(text, top_k=10, query_vector=vector, fusion="convex"),
        "convex, feedback": lambda text, vector: store.hybrid_query(
            text, top_k=10, query_vector=vector, fusion="convex", alpha=0.8, feedback=2
        ),
        "vector": lambda text, vector: store.vector_query(text, top_k=10, query_vector=vector),
        "lexical": lambda text, vector: store.lexical_query(text, top_k=10),
        "full scan": lambda text, vector: store.hybrid_query(text, top_k=10, query_vector=vector, exact=True),
        "plain": lambda text, vector: con.execute(PLAIN, {"text": text, "vector": as_text(vector)}).fetchall(),
    }


def times(query: Query, asked: list[tuple[str, NDArray[Any]]]) -> tuple[list[float], float]:
    """Return the milliseconds of each query, after three that do not count, and the processor's for each."""
    for text, vector in asked[:3]:
        query(text, vector)
    found = []
    cpu = time.process_time()
    for text, vector in asked:
        began = time.perf_counter()
        query(text, vector)
        found.append((time.perf_counter() - began) * 1000)
    return found, (time.process_time() - cpu) * 1000 / len(asked)


def measure(
    path: Path, asked: list[tuple[str, NDArray[Any]]], best: NDArray[Any], arguments: Any, *, memory: bool
) -> tuple[list[str], dict[str, float]]:
    """Return the line of one store, of SQL or of the arrays in memory, and the medians of its times in milliseconds."""
    p50, p95, cpu = {}, {}, {}
    settings = Settings(resident_mb=MOST_MB)
    with Store(path, threads=arguments.threads, settings=settings, resident=memory) as store:
        chunks = store.cursor().execute("SELECT count(*) FROM documents").fetchall()[0][0]
        store.vector_query(query_vector=asked[0][1], exact=True)  # from the disk into memory
        store.cursor().execute("SELECT sum(tf + rid) FROM fts_main_documents.postings").fetchall()
        if memory:
            store.hybrid_query(asked[0][0], query_vector=asked[0][1])  # begins to read them
            residence_of(path, MOST_MB).wait()
        # All modes, again and again: what changes on the machine meanwhile touches each.
        modes = modes_of(store)
        runs: dict[str, list[tuple[list[float], float]]] = {mode: [] for mode in modes}
        for repeat in range(arguments.repeats):
            for mode, query in modes.items():
                if mode not in SLOW:
                    runs[mode].append(times(query, asked))
                elif not repeat:
                    runs[mode].append(times(query, asked[::5]))
        for mode, made in runs.items():
            p50[mode] = statistics.median(statistics.median(run) for run, _ in made)
            p95[mode] = statistics.median(statistics.quantiles(run, n=20)[18] for run, _ in made)
            cpu[mode] = statistics.median(per_question for _, per_question in made)
        shares = [
            found_share([row["score"] for row in store.vector_query(top_k=10, query_vector=vector)], cosines, 10)
            for (_, vector), cosines in zip(asked, best, strict=True)
        ]
    line = [
        f"{chunks:,}, {'memory' if memory else 'SQL'}",
        *(f"{p50[mode]:.1f} / {p95[mode]:.1f} / {cpu[mode]:.1f}" for mode in p50),
        f"{p50['full scan'] / p50['hybrid']:.1f} x",
        f"{p50['plain'] / p50['hybrid']:.1f} x ({cpu['plain'] / cpu['hybrid']:.1f} x)",
        f"{statistics.mean(shares):.4f}",
        f"{path.stat().st_size / 1e6:,.0f}",
    ]
    return line, {mode: round(milliseconds, 1) for mode, milliseconds in p50.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument("--db", default="", help="bench stores that exist, in place of --sizes")
    parser.add_argument("--folder", type=Path, default=None, help="keep the stores here, as s_SIZE.duckdb")
    parser.add_argument(
        "--repeats", type=int, default=3, help="runs over all questions; the median of the medians counts"
    )
    parser.add_argument("--questions", type=int, default=None, help="only so many, spread evenly")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--memory", action="store_true", help="also with the arrays in memory")
    parser.add_argument("--figures", type=Path, help="write the medians into this file, such as measured.json here")
    arguments = parser.parse_args()
    print(f"{environment()}, seed {SEED}\n\n{WHAT}\n")
    texts, queries = questions()
    if arguments.questions:
        step = max(1, len(texts) // arguments.questions)
        texts, queries = texts[::step], queries[::step]
    asked = list(zip(texts, queries, strict=True))
    rows, medians = [], {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        paths = [Path(path) for path in arguments.db.split(",") if path]
        for size in [] if paths else map(int, arguments.sizes.split(",")):
            paths.append(folder / f"s_{size}.duckdb")
            if not paths[-1].exists():
                fill(paths[-1], size)
        for path in paths:
            with Store(path) as store:
                size = store.cursor().execute("SELECT count(*) FROM documents").fetchall()[0][0]
            best = nearest(queries, size, 10)
            for memory in (False, True)[: 1 + arguments.memory]:
                line, found = measure(path, asked, best, arguments, memory=memory)
                rows.append(line)
                medians[f"{size}{' in memory' * memory}"] = found
            print(f"{path.name} done", file=sys.stderr, flush=True)
    names = ["hybrid", "rrf", "convex", "convex, feedback", "vector", "lexical", "full scan", "plain"]
    header = ["chunks", *(f"{name}: p50 / p95 / CPU ms" for name in names)]
    ends = ["full scan / hybrid", "plain / hybrid (CPU)", "recall@10", "file MB"]
    print(markdown_table([*header, *ends], rows))
    if arguments.figures:
        write_figures(arguments.figures, lambda figures: figures["latency"].update(medians))


if __name__ == "__main__":
    main()
