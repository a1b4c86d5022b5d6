"""One byte flipped in each 4 KB of a store: is it found by a check, or without consequence?

``python -m tests.bench.damage [--megabytes 30] [--step 4096] [--seed 1]`` prints a line of JSON: how many flips were
``found`` (a check names it or the file is refused), how many were ``harmless`` (no check names it, every table reads as
before, searches answer as before, and a change succeeds), and the offsets of those that were ``missed``: 0 is right.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

import sqlrag
from sqlrag import SqlragError
from sqlrag.engines.duckdb.blocks import UnknownLayoutError, damaged_blocks, read_layout

DIMENSIONS = 256


def make(path: Path, megabytes: int) -> None:
    """Write a store of about that size, and change it in place so that some of its blocks are free."""
    words, rng = [f"word{n:04}" for n in range(5000)], np.random.default_rng(1)
    count = megabytes * 350

    def index(store: sqlrag.Store, first: int, last: int) -> None:
        texts = [" ".join(words[i] for i in rng.integers(0, len(words), 60)) for _ in range(first, last)]
        chunks = [sqlrag.Chunk(f"doc{n}.md", 0, text) for n, text in zip(range(first, last), texts, strict=True)]
        store.index(chunks, vectors=rng.normal(size=(len(chunks), DIMENSIONS)))

    with sqlrag.Store.create(path, dimensions=DIMENSIONS) as store:
        for first in range(0, count, 2000):
            index(store, first, min(count, first + 2000))
    for first in range(0, count // 10, 200):
        with sqlrag.Store(path, read_only=False) as store:
            index(store, first, first + 200)
    sqlrag.delete_documents(path, doc_ids=[f"doc{n}.md" for n in range(count // 2, count // 2 + count // 10)])


def answers(path: Path) -> str:
    """Return a digest of every row of every table, and of answers."""
    digest = hashlib.sha256()
    with sqlrag.Store(path) as store:
        con = store.cursor()
        tables = con.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT internal AND database_name = "
            "current_database() ORDER BY ALL"
        ).fetchall()
        for schema, table in tables:
            name = f'"{schema}"."{table}"'
            total = con.execute(f"SELECT count(*), sum(hash(t)) FROM {name} AS t").fetchall()
            digest.update(repr((name, total)).encode())
        for word in ("word0001", "word0100 word0200", "word4999"):
            digest.update(repr([(r["node_id"], r["score"]) for r in store.lexical_query(word)]).encode())
        rows = store.vector_query(query_vector=np.ones(DIMENSIONS), top_k=20)
        digest.update(repr([(r["node_id"], r["score"]) for r in rows]).encode())
        ids = [r["node_id"] for r in rows]
    digest.update(repr(sqlrag.get_source_documents(ids, path)).encode())
    return digest.hexdigest()


def changes(path: Path) -> bool:
    """Return whether a change of a copy succeeds, and a check of it afterwards."""
    copy = path.with_name("changed.duckdb")
    shutil.copy(path, copy)
    try:
        with sqlrag.Store(copy, read_only=False) as store:
            store.index([sqlrag.Chunk("new.md", 0, "word0001 new")], vectors=np.ones((1, DIMENSIONS)))
        return not sqlrag.check(copy)
    except SqlragError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=30)
    parser.add_argument("--step", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    began, rng = time.perf_counter(), random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kb.duckdb")
        make(path, args.megabytes)
        expected, size = answers(path), path.stat().st_size
        number = os.open(path, os.O_RDWR)
        layout = read_layout(number)
        found, harmless, missed = 0, 0, []

        def harm(places: list[int]) -> str:
            """Return what bits flipped at these places, together, do: "found", "harmless" or "missed"."""
            before = [os.pread(number, 1, at) for at in places]
            for at, byte in zip(places, before, strict=True):
                os.pwrite(number, bytes([byte[0] ^ 1 << rng.randrange(8)]), at)
            problems = False
            # The whole check does this first; the rest of it is run where this finds nothing, or cannot tell.
            with suppress(UnknownLayoutError):
                problems = bool(damaged_blocks(number))
            try:
                problems = problems or bool(sqlrag.check(path))
            except SqlragError:
                problems = True
            outcome = "found" if problems else "harmless" if answers(path) == expected and changes(path) else "missed"
            for at, byte in zip(places, before, strict=True):
                os.pwrite(number, byte, at)
            return outcome

        blocks: dict[int, list[int]] = {}
        for start in range(0, size, args.step):
            at = start + rng.randrange(min(args.step, size - start))
            blocks.setdefault((at - layout.offset(0)) // layout.header.block_size, []).append(at)
        for block, places in blocks.items():
            # What nothing reads at many places at once it does not read at one of them.
            together = block in layout.free and harm(places) == "harmless"
            for at in places:
                outcome = "harmless" if together else harm([at])
                found += outcome == "found"
                harmless += outcome == "harmless"
                missed += [at] if outcome == "missed" else []
            print(f"block {block} of {len(blocks)}: {len(missed)} missed", file=sys.stderr, flush=True)
        os.close(number)
        print(
            json.dumps(
                {
                    "bytes": size,
                    "flips": found + harmless + len(missed),
                    "found": found,
                    "harmless": harmless,
                    "missed": missed,
                    "free_blocks": len(layout.free),
                    "seconds": round(time.perf_counter() - began, 1),
                }
            )
        )


if __name__ == "__main__":
    main()
