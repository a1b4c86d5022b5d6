"""How long a map takes, whole and by stage, and its memory: python -m tests.bench.mapping [--chunks 100000] [--umap]

The whole is ``corpus_map`` of a file: vectors are read from it, and the labels and the map are written. The stages are
measured apart, on vectors of the same kind in memory. "peak" is the greatest memory of the process so far, which began
with the filling of the file.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from sqlrag import corpus_map
from sqlrag.explore.map import default_clusters, k_means, principal_components, umap_places
from tests.bench.common import DATA, environment, markdown_table, peak_mb
from tests.bench.corpora import fill

BLOCK = 16_384


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--umap", action="store_true")
    options = parser.parse_args()
    real = np.load(DATA / "docs_chunks_24k" / "minilm_f16.npy", mmap_mode="r")

    def blocks():
        chance = np.random.default_rng(0)
        for start in range(0, options.chunks, BLOCK):
            rows = np.arange(start, min(start + BLOCK, options.chunks)) % len(real)
            yield real[rows].astype(np.float32) + chance.normal(0, 0.01, (len(rows), real.shape[1])).astype(np.float32)

    lines = []

    def timed(name, work):
        began, cpu = time.perf_counter(), time.process_time()
        result = work()
        wall, used = time.perf_counter() - began, time.process_time() - cpu
        lines.append([name, f"{wall:.1f}", f"{used:.1f}", f"{peak_mb():,.0f}"])
        return result

    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder) / "kb.duckdb", options.chunks)
        timed("the file filled", lambda: None)
        timed("corpus_map", lambda: corpus_map(Path(folder) / "kb.duckdb"))
    scores = timed("principal components", lambda: principal_components(blocks, real.shape[1]))
    timed("k-means", lambda: k_means(scores, default_clusters(len(scores))))
    if options.umap:
        timed("UMAP, with compiling", lambda: umap_places(scores))
    print(environment(), f"{options.chunks:,} chunks", sep="\n")
    print(markdown_table(["stage", "seconds", "CPU seconds", "peak MB"], lines))


if __name__ == "__main__":
    main()
