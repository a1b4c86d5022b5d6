"""Questions a second of one system of the peers' harness, with one client and with several; peers.py starts it.

Runs in the copy of the harness, beside its ``worker.py``, with the Python of the system. Clients are threads of one
process that ask one hybrid question after another. They share what ``open()`` opens, or, where a peer's connection
serves one thread at a time, open one each. Answers must be those that one client gets before the clock starts.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import threading
import time
import traceback
from pathlib import Path
from typing import Any

CLIENTS = (1, 8)

CONNECTION_EACH = ("duckdb_naive", "raghilda", "sqlite_vec_fts5")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--system", required=True)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--queries", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    arguments = parser.parse_args()
    found: dict[str, Any]
    try:
        found = measure(arguments)
    except Exception:
        found = {"error": traceback.format_exc()[-1500:]}
    Path(arguments.out).write_text(json.dumps(found), encoding="utf-8")
    os._exit(0)  # some peers leave threads that keep the process alive


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return by number of clients the questions a second, the CPU ms for each, and how many answers differed."""
    common = importlib.import_module("common")  # the harness' own
    module = importlib.import_module(f"adapters.{arguments.system}")
    texts, vectors = common.Corpus(arguments.corpus).queries()
    asked = list(zip(texts, vectors, strict=True))[: arguments.queries]

    def opened() -> Any:
        adapter = module.Adapter(arguments.store)
        adapter.open()
        return adapter

    first = opened()
    expected: list[Any] = []
    until = time.perf_counter() + arguments.seconds
    while len(expected) < len(asked) and time.perf_counter() < until:
        expected.append(first.search(*asked[len(expected)]))
    asked = asked[: len(expected)]
    found = {}
    for clients in CLIENTS:
        each = arguments.system in CONNECTION_EACH and clients > 1
        adapters = [opened() for _ in range(clients)] if each else [first] * clients
        found[str(clients)] = load(common, adapters, asked, expected, arguments.seconds)
    return found


def load(common: Any, adapters: list[Any], asked: list[Any], expected: list[Any], seconds: float) -> dict[str, float]:
    """Let each client ask its own way through the questions for some seconds."""
    counts = [0] * len(adapters)
    differing = [0] * len(adapters)
    failures: list[Exception] = []
    ready = threading.Barrier(len(adapters) + 1)
    stop = threading.Event()

    def client(number: int) -> None:
        ready.wait()
        try:
            for position in itertools.count(number * len(asked) // len(adapters)):
                if stop.is_set():
                    return
                position %= len(asked)
                differing[number] += adapters[number].search(*asked[position]) != expected[position]
                counts[number] += 1
        except Exception as error:
            failures.append(error)
            stop.set()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(len(adapters))]
    for thread in threads:
        thread.start()
    ready.wait()
    wall, own, machine = time.perf_counter(), time.process_time(), common.busy_cpu_seconds()
    stop.wait(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    wall, own = time.perf_counter() - wall, time.process_time() - own
    others = (common.busy_cpu_seconds() - machine - own) / (wall * (os.cpu_count() or 1))
    if failures:
        raise failures[0]
    answers = sum(counts)
    return {
        "qps": answers / wall,
        "cpu_ms": own / answers * 1e3,
        "others_cpu_share": max(0.0, others),
        "answers": answers,
        "differing": sum(differing),
    }


if __name__ == "__main__":
    main()
