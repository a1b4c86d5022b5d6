"""The chunks that the measurements store: real documentation chunks with their vectors, and perturbed copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from sqlrag import Chunk, Document, Store, load_embedder
from sqlrag.embedders import embed_texts
from tests.bench.common import DATA, MINILM, read_jsonl

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

SEED = 7
PER_DOCUMENT = 20
BATCH = 20_000
DIMENSIONS = 384
WHAT = (
    "Chunks: 24,000 documentation chunks with their MiniLM vectors; larger sizes add copies whose vectors are "
    "perturbed (Gaussian noise of 0.02 a dimension) and whose texts are the same."
)


def batches(size: int, rows: int = BATCH) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
    """Yield ``size`` texts and vectors, ``[rows, 384]``, unit norm, a batch at a time; the same whatever ``rows``."""
    texts = pq.read_table(DATA / "docs_chunks_24k" / "chunks.parquet")["text"].to_pylist()
    vectors = np.load(DATA / "docs_chunks_24k" / "minilm_f16.npy").astype(np.float32)
    noise = np.random.default_rng(SEED)
    copy = vectors
    kept_texts: list[str] = []
    kept = np.empty((0, DIMENSIONS), dtype=np.float32)
    left = size
    while left > 0:
        kept_texts, kept = kept_texts + texts, np.concatenate([kept, copy])
        while left > 0 and len(kept) >= min(rows, left):
            n = min(rows, left)
            yield kept_texts[:n], kept[:n] / np.linalg.norm(kept[:n], axis=1, keepdims=True)
            kept_texts, kept, left = kept_texts[n:], kept[n:], left - n
        copy = vectors + noise.normal(0, 0.02, vectors.shape).astype(np.float32)


def corpus(size: int) -> tuple[list[str], NDArray[np.float32]]:
    """Return ``size`` texts and their vectors, ``[size, 384]``, unit norm."""
    return next(batches(size, size))


def questions() -> tuple[list[str], NDArray[np.float32]]:
    """Return the questions of duckdb_docs_qa and anthropic_docs, and their vectors."""
    texts = [
        row["text"]
        for name in ("duckdb_docs_qa", "anthropic_docs")
        for row in read_jsonl(DATA / name / "queries.jsonl")
    ]
    return texts, embed_texts(load_embedder(MINILM), texts, kind="query")


def rows_of(first: int, texts: list[str], tags: Sequence[tuple[str, ...]] = ()) -> tuple[list[Document], list[Chunk]]:
    """Return the documents, of 20 chunks each, and the chunks of a batch that begins at chunk ``first``."""
    names = [f"d{i:06d}.md" for i in range(first // PER_DOCUMENT, -(-(first + len(texts)) // PER_DOCUMENT))]
    return [Document(name, "") for name in names], [
        Chunk(names[i // PER_DOCUMENT], i % PER_DOCUMENT, text, tags=tags[i] if tags else ())
        for i, text in enumerate(texts)
    ]


def fill(path: Path, size: int, *, rows: int = BATCH, memory_limit: str | None = None) -> None:
    """Make a store of ``size`` chunks by as many calls of ``Store.upsert`` as there are batches."""
    with Store.create(path, DIMENSIONS, overwrite=True, memory_limit=memory_limit) as store:
        first = 0
        for texts, vectors in batches(size, rows):
            store.upsert(*rows_of(first, texts), vectors)
            first += len(texts)


def nearest(queries: NDArray[np.float32], size: int, k: int) -> NDArray[np.float32]:
    """Return the ``k`` greatest cosines of each query over the corpus, ``[len(queries), k]``, descending."""
    best = np.empty((len(queries), 0), dtype=np.float32)
    for _, vectors in batches(size):
        both = np.concatenate([best, queries @ vectors.T], axis=1)
        best = np.sort(np.partition(both, -k, axis=1)[:, -k:], axis=1)[:, ::-1] if both.shape[1] > k else both
    return best


def found_share(scores: list[float], best: NDArray[np.float32], k: int) -> float:
    """Return how many of the ``k`` nearest are among results with these exact cosines; ties count as right."""
    return min(sum(score >= best[k - 1] - 1e-6 for score in scores), k) / k
