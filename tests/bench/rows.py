"""How fast rows of a table become documents, and how fast a table is brought up to date.

python -m tests.bench.rows [--rows 100000] [--share 0.01] [--only similarity]

The table is made by a seed: a key, a subject, a body of 40 words of 5,000, a price, a time. The model is hashing-384,
whose time is left out of "rows a second": that of the stage "embed" is taken off. "update" is update_rows after so
many of the bodies have changed; "nothing" when none has, "columns" when a price of each of them has. "processor" is the
time of all threads, which other work of the machine changes less than the time on the clock. "peak" is the process's
greatest resident memory, DuckDB's included. "similarity" is a statement of sqlrag.connect over all of the texts, which
are distinct: first when nothing is kept, then with what fits into the 256 MB that are; "its dot products" are those of
DuckDB over a table of the vectors.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

import sqlrag
from sqlrag.embedders.hashing import HashingEmbedder
from tests.bench.common import environment, markdown_table, peak_mb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlrag.types import TextKind, Vectors

TABLE = """
    SELECT i AS id, 'Subject ' || (i % 1000) AS subject,
        array_to_string([printf('w%04d', hash(i * 40 + j) % 5000) FOR j IN range(40)], ' ') AS body,
        CAST(i * 1.5 AS DECIMAL(12, 2)) AS price, TIMESTAMP '2024-01-01' + INTERVAL (i) MINUTE AS updated_at
    FROM range({rows}) AS t(i)
"""

CHANGES = {
    "nothing": "FROM '{old}'",
    "update": "SELECT * REPLACE (body || CASE WHEN id % {every} = 7 THEN ' changed' ELSE '' END AS body) FROM '{old}'",
    "columns": "SELECT * REPLACE (if(id % {every} = 7, -price, price) AS price) FROM '{old}'",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--only", choices=["similarity"])
    options = parser.parse_args()
    every = max(8, round(1 / options.share))
    model = HashingEmbedder()
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        source, kb = Path(folder) / "rows.parquet", Path(folder) / "kb.duckdb"
        write(source, TABLE.format(rows=options.rows))
        for name in () if options.only else ("build", *CHANGES):
            if name in CHANGES:
                write(source.with_suffix(".new"), CHANGES[name].format(old=source, every=every))
                source.with_suffix(".new").replace(source)
            clock, processor = time.perf_counter(), time.process_time()
            if name == "build":
                given = {"key": "id", "text": "body", "title": "subject", "collection": "rows"}
                report = sqlrag.index_rows(source, kb, embedder=model, progress="off", **given)
            else:
                (report,) = sqlrag.update_rows(kb, embedder=model, progress="off")
            clock, processor = time.perf_counter() - clock, time.process_time() - processor
            besides = clock - report.seconds.get("embed", 0)
            rate = f"{report.files / besides:,.0f}"
            written = f"{report.documents:,}"
            stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in report.seconds.items())
            lines.append([name, written, f"{clock:.1f}", f"{processor:.1f}", rate, f"{peak_mb():.0f}", stages])
        size = kb.stat().st_size if kb.exists() else 0
        compared = similarity(source, kb.with_name("few.duckdb"), model)
    print(f"{environment()}; load average {os.getloadavg()[0]:.1f}\n")
    titles = [
        "",
        "rows written",
        "seconds",
        "processor",
        "rows a second without embedding",
        "peak MB",
        "seconds by stage",
    ]
    if lines:
        print(markdown_table(titles, lines))
        print(f"\n{options.rows:,} rows, {size / 1e6:.0f} MB\n")
    print(markdown_table(["similarity", "seconds", "rows a second", "texts embedded", "peak MB"], compared))


def similarity(source: Path, kb: Path, model: HashingEmbedder) -> list[list[str]]:
    """Return a line for each way to compare all texts of a table with a question."""

    class Counting(HashingEmbedder):
        texts = 0

        def embed(self, texts: Sequence[str], *, kind: TextKind) -> Vectors:
            self.texts += len(texts)
            return model.embed(texts, kind=kind)

    counting, lines = Counting(), []
    few = f"SELECT id, body FROM '{source}' LIMIT 10"
    sqlrag.index_rows(few, kb, embedder=model, key="id", text="body", collection="few", progress="off")
    with sqlrag.connect(kb, embedder=counting, verbose=False) as con:
        con.execute(f"CREATE TEMP TABLE t AS FROM '{source}'")
        con.execute("SELECT embed('w0001 w0002')").fetchall()
        statements = {
            "first": "SELECT avg(similarity(body, 'w0001 w0002')) FROM t",
            "again": "SELECT avg(similarity(body, 'w0001 w0002')) FROM t",
            "vectors into a table": "CREATE TEMP TABLE v AS SELECT embed(body, 'document') AS v FROM t",
            "its dot products": "SELECT avg(array_inner_product(v, embed('w0001 w0002'))) FROM v",
        }
        for name, statement in statements.items():
            before, clock = counting.texts, time.perf_counter()
            con.execute(statement).fetchall()
            clock = time.perf_counter() - clock
            rows = con.execute("SELECT count(*) FROM t").fetchall()[0][0]
            embedded = f"{counting.texts - before:,}"
            lines.append([name, f"{clock:.1f}", f"{rows / clock:,.0f}", embedded, f"{peak_mb():.0f}"])
    return lines


def write(path: Path, query: str) -> None:
    with duckdb.connect() as con:
        con.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")


if __name__ == "__main__":
    main()
