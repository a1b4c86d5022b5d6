"""Questions a second that one open store answers, by SQL and from memory, to one client and to several at once.

python -m tests.bench.throughput [--size 10000] [--db FILE] [--clients 1,8] [--seconds 5]

Clients are threads of the process that ask one hybrid question after another, with its vector given. Before the clock
starts the file is read into memory once. Every answer of one engine is compared with that of the other: ids, order and
scores. Processor time is of all threads, for each question.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlrag import Settings, Store
from tests.bench.common import environment, markdown_table
from tests.bench.corpora import fill, questions

if TYPE_CHECKING:
    from numpy.typing import NDArray

RESIDENT_MB = 8000
TOP_K = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--db", type=Path)
    parser.add_argument("--clients", default="1,8")
    parser.add_argument("--seconds", type=float, default=5)
    arguments = parser.parse_args()
    texts, vectors = questions()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.db or Path(folder) / "kb.duckdb"
        if not path.exists():
            fill(path, arguments.size)
        with (
            Store(path, resident=False) as by_sql,
            Store(path, resident=True, settings=Settings(resident_mb=RESIDENT_MB)) as by_memory,
        ):
            began = time.perf_counter()
            while by_memory.lexical_query("a").methods["engine"] != "memory":
                time.sleep(0.01)
            print(f"{environment()}; {path.name}, read into memory in {time.perf_counter() - began:.2f} s\n")
            for text, vector in zip(texts, vectors, strict=True):
                answers = [ask(store, text, vector) for store in (by_sql, by_memory)]
                assert answers[0] == answers[1], text
            rows = []
            for clients in map(int, arguments.clients.split(",")):
                for name, store in (("SQL", by_sql), ("memory", by_memory)):
                    rate, cpu = load(store, clients, arguments.seconds, texts, vectors)
                    rows.append([str(clients), name, f"{rate:,.0f}", f"{cpu:.1f}"])
    print(markdown_table(["clients", "engine", "questions a second", "CPU ms a question"], rows))


def ask(store: Store, text: str, vector: NDArray[Any]) -> list[tuple[str, float]]:
    """Return ids and scores."""
    found = store.hybrid_query(text, query_vector=vector, top_k=TOP_K)
    return [(row["node_id"], row["score"]) for row in found]


def load(store: Store, clients: int, seconds: float, texts: list[str], vectors: NDArray[Any]) -> tuple[float, float]:
    """Return the questions a second of all clients together, and the CPU milliseconds of each."""
    counts = [0] * clients
    until = time.perf_counter() + seconds

    def client(number: int) -> None:
        for place in itertools.count(number * 17):
            if time.perf_counter() >= until:
                return
            ask(store, texts[place % len(texts)], vectors[place % len(texts)])
            counts[number] += 1

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    began, cpu = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - began), (time.process_time() - cpu) * 1000 / sum(counts)


if __name__ == "__main__":
    main()
