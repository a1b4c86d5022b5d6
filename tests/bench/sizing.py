"""A table for planning: size, memory, build time and latency at 1M to 1B chunks, from what is measured here and before.

python -m tests.bench.sizing [--chunks 20000] [--embed 256] [--figures tests/bench/measured.json]
                             [--postgres URL | --postgres-figures FILE] [--save-postgres FILE]

Measured in this run: bytes a chunk of two real files, of ``--chunks`` and of half of them, with the text of their
documents; what of it a search reads; chunks stored and embedded a second; with ``--postgres`` (a server with pgvector;
a schema is made there and dropped at the end) the larger file, pushed into it. Read from ``--figures``: the curve of a
search up to a million chunks, with date, machine and versions. The rest is arithmetic, and the lines under the table
say which.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlrag import PostgresStore, Store, compact, load_embedder
from sqlrag.embedders import embed_texts
from tests.bench.common import MINILM, environment, markdown_table
from tests.bench.corpora import DIMENSIONS, PER_DOCUMENT, SEED, corpus, questions, rows_of
from tests.bench.size import groups_of

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = (1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
# What each search reads all of, or may: everything but texts, vectors and what results are made of.
HOT = ("sign codes", "postings", "lengths", "words", "terms")
# A process that has a file open, before it has searched.
PROCESS_BYTES = 120e6
# One node of a cluster, and what of its memory the vectors may take.
NODE_GB, NODE_SHARE = 64, 0.75
# Links of a graph over vectors, of 4 bytes each: 2 m at its lowest level, with the usual m = 16.
LINKS = 32


# Measuring.


def measure_file(size: int, folder: Path) -> dict[str, float]:
    """Store so many chunks, compact the file, and return its figures."""
    texts, vectors = corpus(size)
    documents, chunks = rows_of(0, texts)
    whole = ["\n\n".join(texts[first : first + PER_DOCUMENT]) for first in range(0, size, PER_DOCUMENT)]
    documents = [replace(document, text=text) for document, text in zip(documents, whole, strict=True)]
    path = folder / f"{size}.duckdb"
    began = time.perf_counter()
    with Store.create(path, DIMENSIONS) as store:
        store.upsert(documents, chunks, vectors)
    seconds = time.perf_counter() - began
    compact(path)
    groups = groups_of(path)
    return {
        "bytes": path.stat().st_size,
        "hot": sum(groups.get(name, 0) for name in HOT),
        "text": sum(len(text.encode()) for text in texts),
        "seconds": seconds,
        "p50": median_ms(path),
    }


def median_ms(path: Path) -> float:
    """Return the median of a warm hybrid search, the vector of the question given."""
    times = []
    with Store(path) as store:
        for text, vector in zip(*questions(), strict=True):
            began = time.perf_counter()
            store.hybrid_query(text, top_k=10, query_vector=vector)
            times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times[3:])


def measure_embedding(count: int) -> float:
    """Return how many chunks a second MiniLM embeds on all cores, by processor time: others may keep them busy."""
    embedder = load_embedder(MINILM)
    texts = corpus(24_000)[0]
    some = texts[:: len(texts) // count][:count]
    embed_texts(embedder, some[:16], kind="document")
    began = time.process_time()
    embed_texts(embedder, some, kind="document")
    return len(some) / (time.process_time() - began) * (os.cpu_count() or 1)


def measure_postgres(url: str, path: Path) -> dict[str, Any]:
    """Push a file into a schema of its own on a server and ask there; return the server's figures."""
    from tests.bench.postgres import pushed

    place = f"{url}{'&' if '?' in url else '?'}schema=sqlrag_sizing"
    parts = pushed(path, place)
    try:
        with PostgresStore(place) as store:
            ((version, pgvector, chunks, whole, words),) = store._server.read(
                lambda con: con.execute(
                    "SELECT current_setting('server_version'), "
                    "(SELECT extversion FROM pg_extension WHERE extname = 'vector'), (SELECT count(*) FROM chunks), "
                    "pg_total_relation_size('chunks') + pg_total_relation_size('documents') + "
                    "pg_total_relation_size('postings') + pg_total_relation_size('lengths'), "
                    "pg_total_relation_size('postings') + pg_total_relation_size('lengths')"
                ).fetchall()
            )
            times: dict[str, list[float]] = {"vector": [], "words": []}
            for text, vector in zip(*questions(), strict=True):
                for name, ask in (
                    ("vector", lambda vector=vector: store.vector_query(top_k=10, query_vector=vector)),
                    ("words", lambda text=text: store.lexical_query(text, top_k=10)),
                ):
                    began = time.perf_counter()
                    ask()
                    times[name].append((time.perf_counter() - began) * 1000)
    finally:
        PostgresStore.drop(place)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": environment(),
        "versions": f"PostgreSQL {version}, pgvector {pgvector}, as they come",
        "chunks": chunks,
        "bytes": whole,
        "word_bytes": words,
        "load_seconds": sum(parts.values()),
        "vector_ms": statistics.median(times["vector"][3:]),
        "words_ms": statistics.median(times["words"][3:]),
    }


# Reckoning.


def line(small: dict[str, float], large: dict[str, float], key: str, chunks: int) -> tuple[float, float]:
    """Return the bytes of an empty file and those of each chunk, by two files."""
    slope = (large[key] - small[key]) / (chunks - chunks // 2)
    return large[key] - slope * chunks, slope


def file_columns(size: int, here: dict[str, Any], figures: Any) -> list[str]:
    """Return size, memory, latency, and the times of embedding and storing for one file."""
    fixed, slope = here["bytes"]
    return [
        gigabytes(fixed + slope * size),
        gigabytes(PROCESS_BYTES + here["hot"][1] * size),
        latency(size, figures["points"]),
        duration(size / here["embedded"]),
        duration(size / figures["store_chunks_a_second"]),
    ]


def latency(size: int, points: list[Any]) -> str:
    """Return milliseconds: as measured, or between the square root and the line of the last two points."""
    known = {point["chunks"]: point["hybrid_ms"] for point in points}
    if size in known:
        return f"{known[size]:.0f} ms, measured"
    before, last = sorted(known)[-2:]
    line = known[last] + (known[last] - known[before]) / (last - before) * (size - last)
    return f"{milliseconds(known[last] * math.sqrt(size / last))} to {milliseconds(line)}"


def postgres_columns(size: int, given: dict[str, Any] | None) -> list[str]:
    """Return size, time of loading and latency of a server."""
    if given is None:
        return ["not measured"] * 3
    times = size / given["chunks"]
    return [
        gigabytes(given["bytes"] * times),
        duration(given["load_seconds"] * times),
        f"{milliseconds(given['vector_ms'] * times)} + {milliseconds(given['words_ms'] * times)}",
    ]


def cluster_columns(size: int) -> list[str]:
    """Return the memory of vectors and graph, and how many machines hold it."""
    needed = size * (DIMENSIONS * 4 + LINKS * 4)
    return [gigabytes(needed), f"{math.ceil(needed / (NODE_GB * 1e9 * NODE_SHARE)):,}"]


def gigabytes(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count < 1e11 else f"{count / 1e9:,.0f} GB"


def milliseconds(value: float) -> str:
    return (
        f"{value:,.0f} ms" if value < 1000 else f"{value / 1000:,.1f} s" if value < 60_000 else duration(value / 1000)
    )


def duration(seconds: float) -> str:
    for limit, unit, length in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds / 86_400:,.0f} days"


# What comes out.


def assumptions(chunks: int, here: dict[str, Any], figures: Any, given: Any) -> Iterator[str]:
    """Yield what the table rests on, a line each."""
    large, (fixed, slope) = here["large"], here["bytes"]
    yield (
        f"Measured in this run ({time.strftime('%Y-%m-%d')}; {environment()}, load average {here['load']:.1f} at its "
        f"begin, seed {SEED}): files of {chunks // 2:,} and {chunks:,} chunks of {DIMENSIONS} dimensions and "
        f"{large['text'] / chunks:,.0f} bytes of text, compacted."
    )
    yield (
        f"Size grows linearly: {fixed / 1e6:.1f} MB and {slope:,.0f} bytes a chunk, {DIMENSIONS * 4:,} of them the "
        "vector. The text is there twice, in its chunk and in its document."
    )
    yield (
        f"Memory grows linearly: {PROCESS_BYTES / 1e6:.0f} MB for the process and {here['hot'][1]:,.0f} bytes a "
        "chunk, sign codes and word index, which every search may read. Texts and vectors are read for candidates; "
        "DuckDB keeps more of them where it may. A build takes what its memory_limit says and a tenth more: "
        f"{figures['build_peak_mb']:,} MB at a million with {figures['build_memory_limit']}."
    )
    yield (
        f"Embedding is linear: {here['embedded']:,.0f} chunks a second ({MINILM}, int8, all cores, by processor "
        "time). Storing is linear: "
        f"{figures['store_chunks_a_second']:,} chunks a second, measured up to a million ({figures['date']}); "
        f"{chunks / large['seconds']:,.0f} in this run."
    )
    curve = ", ".join(f"{point['hybrid_ms']} ms at {point['chunks']:,}" for point in figures["points"])
    yield (
        f"Latency is the median of warm hybrid searches, the question's vector given: {curve} ({figures['date']}; "
        f"{figures['machine']}; {figures['versions']}); {large['p50']:.0f} ms at {chunks:,} in this run. Beyond, the "
        "first figure grows as the square root, as between the last two points, the second as the line through them, "
        "as a scan of all codes does. Neither is measured, and both need the memory of the column before."
    )
    if given is None:
        yield "Postgres was not measured: pass --postgres URL or --postgres-figures FILE."
    else:
        each = {name: given[f"{name}bytes"] / given["chunks"] for name in ("", "word_")}
        yield (
            f"Postgres: {given['chunks']:,} chunks ({given['date']}; {given['versions']}; {given['machine']}): "
            f"{each['']:,.0f} bytes a chunk, {each['word_']:,.0f} of them the index of words; loaded and compared in "
            f"{given['load_seconds']:.0f} s. Size, time and latency grow linearly: every code is compared, and every "
            "posting of the question's words is read. Embedding comes on top."
        )
    yield (
        f"Cluster: 4 bytes a dimension and {LINKS} links of 4 bytes a chunk in memory, on machines of {NODE_GB} GB of "
        f"which {NODE_SHARE:.0%} are for that; one copy of each; texts on disk. Arithmetic: nothing of it is measured."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=20_000)
    parser.add_argument("--embed", type=int, default=256, help="chunks to embed")
    parser.add_argument("--figures", type=Path, default=Path(__file__).with_name("measured.json"))
    parser.add_argument("--postgres", default=None, help="URL of a server to measure")
    parser.add_argument("--postgres-figures", type=Path, default=None, help="what --save-postgres kept")
    parser.add_argument("--save-postgres", type=Path, default=None)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    figures = json.loads(arguments.figures.read_text("utf-8"))
    given = None
    with tempfile.TemporaryDirectory() as folder:
        small, large = (measure_file(size, Path(folder)) for size in (arguments.chunks // 2, arguments.chunks))
        if arguments.postgres:
            given = measure_postgres(arguments.postgres, Path(folder) / f"{arguments.chunks}.duckdb")
        elif arguments.postgres_figures:
            given = json.loads(arguments.postgres_figures.read_text("utf-8"))
    if given and arguments.save_postgres:
        arguments.save_postgres.write_text(json.dumps(given, indent=1) + "\n", "utf-8")
    here = {
        "load": load,
        "large": large,
        "bytes": line(small, large, "bytes", arguments.chunks),
        "hot": line(small, large, "hot", arguments.chunks),
        "embedded": measure_embedding(arguments.embed),
    }
    rows = [
        [
            f"{size:,}",
            *file_columns(size, here, figures),
            *postgres_columns(size, given),
            *cluster_columns(size),
        ]
        for size in SIZES
    ]
    names = ["chunks", "one file", "memory", "hybrid search", "embedding", "storing"]
    names += ["Postgres", "loading", "vectors + words", "cluster: memory", "machines"]
    print(markdown_table(names, rows))
    print()
    for text in assumptions(arguments.chunks, here, figures, given):
        print(f"- {text}")


if __name__ == "__main__":
    main()
