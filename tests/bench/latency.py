"""Latency of warm queries and recall of the two-stage vector leg, at several sizes.

python -m tests.bench.latency [--sizes 10000,100000] [--repeats 3] [--threads N]

Chunks: 24,000 documentation chunks with their MiniLM vectors; larger sizes add copies whose vectors are perturbed
(Gaussian noise of 0.02 a dimension) and whose texts are the same. Questions: those of duckdb_docs_qa and
anthropic_docs, embedded with MiniLM before the clock starts. "full scan" is the same hybrid query with every vector
compared. Recall@10 is against exact cosines by numpy, ties counted as right.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from sqlrag import Chunk, Document, Store, load_embedder
from sqlrag.embedders import embed_texts
from tests.bench.common import DATA, MINILM, environment, markdown_table, read_jsonl

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from sqlrag import Results

SEED = 7
PER_DOCUMENT = 20


def corpus(size: int) -> tuple[list[str], NDArray[np.float32]]:
    """Return ``size`` texts and their vectors, ``[size, 384]``, unit norm."""
    texts = pq.read_table(DATA / "docs_chunks_24k" / "chunks.parquet")["text"].to_pylist()
    vectors = np.load(DATA / "docs_chunks_24k" / "minilm_f16.npy").astype(np.float32)
    noise = np.random.default_rng(SEED)
    parts = [vectors]
    while sum(map(len, parts)) < size:
        parts.append(vectors + noise.normal(0, 0.02, vectors.shape).astype(np.float32))
    matrix = np.concatenate(parts)[:size]
    return (texts * len(parts))[:size], matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def questions() -> tuple[list[str], NDArray[np.float32]]:
    """Return the questions and their vectors."""
    texts = [
        row["text"]
        for name in ("duckdb_docs_qa", "anthropic_docs")
        for row in read_jsonl(DATA / name / "queries.jsonl")
    ]
    return texts, embed_texts(load_embedder(MINILM), texts, kind="query")


def build(path: Path, texts: list[str], vectors: NDArray[np.float32]) -> float:
    """Write the store and return the seconds it took, chunks and vectors being given."""
    names = [f"d{i:06d}.md" for i in range(-(-len(texts) // PER_DOCUMENT))]
    documents = [Document(name, "") for name in names]
    chunks = [Chunk(names[i // PER_DOCUMENT], i % PER_DOCUMENT, text) for i, text in enumerate(texts)]
    began = time.perf_counter()
    with Store.create(path, vectors.shape[1], overwrite=True) as store:
        store.upsert(documents, chunks, vectors)
    return time.perf_counter() - began


def times(
    query: Callable[[str, NDArray[np.float32]], Results], asked: list[tuple[str, NDArray[np.float32]]]
) -> list[float]:
    """Return the milliseconds of each query, after three that do not count."""
    for text, vector in asked[:3]:
        query(text, vector)
    found = []
    for text, vector in asked:
        began = time.perf_counter()
        query(text, vector)
        found.append((time.perf_counter() - began) * 1000)
    return found


def recall(store: Store, vectors: NDArray[np.float32], queries: NDArray[np.float32]) -> float:
    """Return the share of the ten nearest that the vector leg returns."""
    hits = []
    for query in queries:
        cosines = vectors @ query
        tenth = np.partition(cosines, -10)[-10]
        found = [result["score"] for result in store.vector_query("", top_k=10, query_vector=query)]
        hits.append(sum(score >= tenth - 1e-6 for score in found) / 10)
    return statistics.mean(hits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument(
        "--repeats", type=int, default=3, help="runs over all questions; the median of the medians counts"
    )
    parser.add_argument("--threads", type=int, default=None)
    arguments = parser.parse_args()
    print(f"{environment()}, seed {SEED}")
    texts, queries = questions()
    asked = list(zip(texts, queries, strict=True))
    rows = []
    for size in map(int, arguments.sizes.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kb.duckdb"
            chunk_texts, vectors = corpus(size)
            seconds = build(path, chunk_texts, vectors)
            with Store(path, threads=arguments.threads) as store:
                modes: dict[str, Callable[[str, NDArray[np.float32]], Results]] = {
                    "hybrid": lambda text, vector, s=store: s.hybrid_query(text, top_k=10, query_vector=vector),
                    "vector": lambda text, vector, s=store: s.vector_query(text, top_k=10, query_vector=vector),
                    "lexical": lambda text, vector, s=store: s.lexical_query(text, top_k=10),
                    "full scan": lambda text, vector, s=store: s.hybrid_query(
                        text, top_k=10, query_vector=vector, exact=True
                    ),
                }
                p50, p95 = {}, {}
                for mode, query in modes.items():
                    runs = [times(query, asked) for _ in range(arguments.repeats)]
                    p50[mode] = statistics.median(statistics.median(run) for run in runs)
                    p95[mode] = statistics.median(statistics.quantiles(run, n=20)[18] for run in runs)
                rows.append(
                    [
                        f"{size:,}",
                        *(f"{p50[mode]:.1f} / {p95[mode]:.1f}" for mode in modes),
                        f"{p50['full scan'] / p50['hybrid']:.1f} x",
                        f"{recall(store, vectors, queries):.4f}",
                        f"{size / seconds:,.0f}",
                        f"{path.stat().st_size / 1e6:.0f}",
                    ]
                )
    header = ["chunks", "hybrid p50 / p95 ms", "vector", "lexical", "full scan", "full scan / hybrid", "recall@10"]
    print(markdown_table([*header, "stored chunks/s", "file MB"], rows))


if __name__ == "__main__":
    main()
