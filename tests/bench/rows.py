"""How fast rows of a table become documents, and how fast a table is brought up to date.

python -m tests.bench.rows [--rows 100000] [--share 0.01]

The table is made by a seed: a key, a subject, a body of 40 words of 5,000, a price, a time. The model is hashing-384,
whose time is left out of "rows a second": that of the stage "embed" is taken off. "update" is update_rows after so
many of the bodies have changed; "nothing" when none has, "columns" when a price of each of them has. "processor" is the
time of all threads, which other work of the machine changes less than the time on the clock. "peak" is the process's
greatest resident memory, DuckDB's included.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import duckdb

import sqlrag
from sqlrag.embedders.hashing import HashingEmbedder
from tests.bench.common import environment, markdown_table, peak_mb

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
    options = parser.parse_args()
    every = max(8, round(1 / options.share))
    model = HashingEmbedder()
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        source, kb = Path(folder) / "rows.parquet", Path(folder) / "kb.duckdb"
        write(source, TABLE.format(rows=options.rows))
        for name in ("build", *CHANGES):
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
        size = kb.stat().st_size
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
    print(markdown_table(titles, lines))
    print(f"\n{options.rows:,} rows, {size / 1e6:.0f} MB")


def write(path: Path, query: str) -> None:
    with duckdb.connect() as con:
        con.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")


if __name__ == "__main__":
    main()
