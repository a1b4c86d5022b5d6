"""A DuckDB file and a store in Postgres side by side: loading, indexing, latency and recall of the same chunks.

python -m tests.bench.postgres --postgres URL [--size 100000] [--repeats 3] [--db FILE]

The file is made by ``Store.upsert`` in batches and then pushed; what a push takes is told by its parts: documents and
chunks by COPY, then the indexes, then reading all of it again to compare. Questions, warm-up and recall are those of
``latency``; hybrid searches of both stores are asked in turns, so that both meet the same machine.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from sqlrag import PostgresStore, Store, push
from sqlrag.formats.push.to_postgres import PostgresTarget
from tests.bench.common import environment, markdown_table
from tests.bench.corpora import SEED, WHAT, fill, found_share, nearest, questions


def timed(seconds: dict[str, float], name: str, function: Any) -> Any:
    """Return a function that adds the time of its calls to an entry."""

    def run(*arguments: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - began

    return run


def pushed(path: Path, url: str) -> dict[str, float]:
    """Push a file into an empty schema; return the seconds of each part."""
    PostgresStore.drop(url)
    seconds: dict[str, float] = {}
    kept = {name: getattr(PostgresTarget, name) for name in ("write", "finish", "_verify")}
    for name, function in kept.items():
        setattr(PostgresTarget, name, timed(seconds, name, function))
    try:
        push(path, url, progress="off")
    finally:
        for name, function in kept.items():
            setattr(PostgresTarget, name, function)
    compared = seconds["_verify"]
    return {"load": seconds["write"], "indexes": seconds["finish"] - compared, "read again": compared}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--postgres", metavar="URL", required=True, help="a server; its schema sqlrag_bench is replaced"
    )
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--db", type=Path, default=None, help="a file that latency made, in place of a new one")
    arguments = parser.parse_args()
    url = f"{arguments.postgres}{'&' if '?' in arguments.postgres else '?'}schema=sqlrag_bench"
    texts, queries = questions()
    asked = list(zip(texts, queries, strict=True))
    with tempfile.TemporaryDirectory() as temporary:
        path = arguments.db or Path(temporary) / "kb.duckdb"
        began = time.perf_counter()
        if arguments.db is None:
            fill(path, arguments.size)
        filled = time.perf_counter() - began
        parts = pushed(path, url)
        with Store(path) as file, PostgresStore(url) as server:
            size = int(file.get_embedding_metadata()["chunks"]["total_chunks"])
            ((version, pgvector, heap, indexes, words),) = server._server.read(
                lambda con: con.execute(
                    "SELECT version(), (SELECT extversion FROM pg_extension WHERE extname = 'vector'), "
                    "pg_table_size('chunks') + pg_total_relation_size('documents'), pg_indexes_size('chunks'), "
                    "pg_total_relation_size('postings') + pg_total_relation_size('lengths')"
                ).fetchall()
            )
            stores: dict[str, Any] = {"file": file, "Postgres": server}
            best = nearest(queries, size, 10)
            times: dict[tuple[str, str], list[float]] = {}
            shares: dict[str, list[float]] = {name: [] for name in stores}
            modes: dict[str, Any] = {
                "hybrid": lambda store, text, vector: store.hybrid_query(text, top_k=10, query_vector=vector),
                "vector": lambda store, text, vector: store.vector_query(top_k=10, query_vector=vector),
                "lexical": lambda store, text, vector: store.lexical_query(text, top_k=10),
            }
            different = sum(
                [[row[name] for name in ("node_id", "score")] for row in stores["file"].lexical_query(text, top_k=10)]
                != [[row[name] for name in ("node_id", "score")] for row in server.lexical_query(text, top_k=10)]
                for text in texts
            )
            for turn in range(arguments.repeats + 1):  # the first turn warms both
                for place, (text, vector) in enumerate(asked):
                    for mode, ask in modes.items():
                        for name, store in stores.items():
                            began = time.perf_counter()
                            results = ask(store, text, vector)
                            if turn:
                                times.setdefault((name, mode), []).append((time.perf_counter() - began) * 1000)
                            elif mode == "vector":
                                cosines = [row["score"] for row in results]
                                shares[name].append(found_share(cosines, best[place], 10))
    PostgresStore.drop(url)
    print(
        f"{environment()}, seed {SEED}, {version.split(' on ')[0]}, pgvector {pgvector}\n\n{WHAT}\n\n{size:,} chunks\n"
    )
    p50 = {key: statistics.median(found) for key, found in times.items()}
    p95 = {key: statistics.quantiles(found, n=20)[18] for key, found in times.items()}
    rows = [
        ["load and index", f"{filled:.1f} s" if arguments.db is None else "-", f"{sum(parts.values()):.1f} s"],
        *([f"· {name}", "", f"{seconds:.1f} s"] for name, seconds in parts.items()),
        *(
            [f"{mode}: p50 / p95 ms", *(f"{p50[name, mode]:.1f} / {p95[name, mode]:.1f}" for name in stores)]
            for mode in modes
        ),
        ["vector recall@10", *(f"{statistics.mean(shares[name]):.4f}" for name in stores)],
        ["bytes a chunk", "", f"{heap / size:,.0f} + {indexes / size:,.0f} of indexes + {words / size:,.0f} of words"],
        ["lexical results that differ", "", f"{different} of {len(asked)}"],
        ["hybrid p50, Postgres / file", "", f"{p50['Postgres', 'hybrid'] / p50['file', 'hybrid']:.2f} x"],
    ]
    print(markdown_table(["", "DuckDB file", "Postgres"], rows))


if __name__ == "__main__":
    main()
