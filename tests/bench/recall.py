"""How many of the true nearest the vector leg finds, with sign codes and with filters; whether filtered legs are full.

python -m tests.bench.recall [--sizes 24000,100000] [--folder FOLDER]

Recall at k: the share of the k greatest cosines that are among the k results, at the default pool and at others; ties
count as right. NFCorpus and SciFact: all documents and all questions with their vectors as given. --folder keeps the
stores of documentation chunks, so that another run, or ``latency --db``, can use them again. With filters, rows are
those that the legs returned of those that they should: k, or as many as match; a filtered lexical leg has to equal the
unfiltered one without what the filter leaves out.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sqlrag import Store
from sqlrag.engines.duckdb.legs import default_pool
from tests.bench.common import environment, markdown_table
from tests.bench.corpora import BATCH, DIMENSIONS, SEED, WHAT, batches, fill, found_share, nearest, questions, rows_of
from tests.bench.quality import given_vectors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

POOLS = (100, 200, 300, 500, 750, 1000, 2000)
# Tag and the share of the chunks that have it.
SHARES = {"few": 0.001, "some": 0.01, "tenth": 0.1, "most": 0.9}
K = 10


def recalls(
    store: Store, queries: NDArray[np.float32], best: NDArray[np.float32], k: int, pool: int | None = None
) -> float:
    """Return the mean recall at ``k`` over the questions."""
    found = []
    for query, cosines in zip(queries, best, strict=True):
        scores = [row["score"] for row in store.vector_query(top_k=k, query_vector=query, codes_pool=pool)]
        found.append(found_share(scores, cosines, k))
    return statistics.mean(found)


def row(name: str, store: Store, queries: NDArray[np.float32], best: NDArray[np.float32]) -> list[str]:
    """Return the line of one collection."""
    chunks = store.cursor().execute("SELECT count(*) FROM documents").fetchall()[0][0]
    pools = [f"{recalls(store, queries, best, K, pool):.4f}" for pool in POOLS]
    default = [f"{recalls(store, queries, best, k):.4f}" for k in (10, 50)]
    return [name, f"{chunks:,}", str(len(queries)), f"{default_pool(chunks, DIMENSIONS):,}", *default, *pools]


def public(name: str, folder: Path) -> list[str]:
    """Return the line of NFCorpus or SciFact."""
    store, asked = given_vectors(name, folder)
    with store:
        queries = np.array([vector for _, _, vector in asked])
        vectors = np.array([v for (v,) in store.cursor().execute("SELECT embedding FROM documents").fetchall()])
        best = -np.sort(-(queries @ vectors.T.astype(np.float32)), axis=1)[:, :50]
        return row(name, store, queries, best)


def tags_of(size: int) -> NDArray[np.bool_]:
    """Return which chunks have which of the tags, ``[size, len(SHARES)]``."""
    drawn = np.random.default_rng(SEED).random(size)
    return np.stack([drawn < share for share in SHARES.values()], axis=1)


def tagged(path: Path, size: int) -> NDArray[np.bool_]:
    """Make a store whose chunks have tags; return which have which."""
    has = tags_of(size)
    first = 0
    with Store.create(path, DIMENSIONS, overwrite=True) as store:
        for texts, vectors in batches(size, BATCH):
            tags = [tuple(np.array(list(SHARES))[has[first + i]].tolist()) for i in range(len(texts))]
            store.upsert(*rows_of(first, texts, tags), vectors)
            first += len(texts)
    return has


def filtered(size: int, texts: Sequence[str], queries: NDArray[np.float32], folder: Path) -> list[list[str]]:
    """Return one line for each filter."""
    path = folder / "tagged.duckdb"
    has = tagged(path, size)
    vectors = np.concatenate([block for _, block in batches(size)])
    lines = []
    with Store(path) as store:
        # Chunk indexes of the corpus by rid: they were stored in this order.
        everywhere = [[row["node_id"] for row in store.lexical_query(text, top_k=size, syntax=False)] for text in texts]
        rid = dict(store.cursor().execute("SELECT node_id, rid FROM documents").fetchall())
        for column, (tag, share) in enumerate(SHARES.items()):
            inside = np.flatnonzero(has[:, column])
            best = -np.sort(-(queries @ vectors[inside].T), axis=1)[:, :K]
            rows, shares = 0, []
            for query, cosines in zip(queries, best, strict=True):
                found = store.vector_query(top_k=K, query_vector=query, tags_any=[tag])
                rows += len(found)
                shares.append(found_share([row["score"] for row in found], cosines, min(K, len(inside))))
            lexical_rows = wanted = equal = 0
            for text, unfiltered in zip(texts, everywhere, strict=True):
                found_ids = [row["node_id"] for row in store.lexical_query(text, top_k=K, tags_any=[tag], syntax=False)]
                right = [node_id for node_id in unfiltered if has[rid[node_id], column]][:K]
                lexical_rows, wanted, equal = (
                    lexical_rows + len(found_ids),
                    wanted + len(right),
                    equal + (found_ids == right),
                )
            lines.append(
                [
                    f"{100 * share:g} %",
                    f"{len(inside):,}",
                    f"{rows:,} of {len(queries) * min(K, len(inside)):,}",
                    f"{statistics.mean(shares):.4f}",
                    f"{lexical_rows:,} of {wanted:,}",
                    f"{equal} of {len(texts)}",
                ]
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="24000,100000")
    parser.add_argument("--folder", type=Path, default=None, help="keep the stores here, as s_SIZE.duckdb")
    parser.add_argument("--filtered", type=int, default=100_000, help="chunks of the store with filters; 0: leave out")
    arguments = parser.parse_args()
    print(f"{environment()}, seed {SEED}\n\n{WHAT}\n")
    texts, queries = questions()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        rows = [public(name, folder) for name in ("nfcorpus", "scifact")]
        for size in map(int, filter(None, arguments.sizes.split(","))):
            path = (arguments.folder or folder) / f"s_{size}.duckdb"
            if not path.exists():
                fill(path, size)
            with Store(path) as store:
                rows.append(row("documentation", store, queries, nearest(queries, size, 50)))
        header = ["collection", "chunks", "questions", "pool", "recall@10", "recall@50"]
        print(markdown_table([*header, *(f"@10, pool {pool:,}" for pool in POOLS)], rows), flush=True)
        if arguments.filtered:
            print(f"\nFilters on {arguments.filtered:,} chunks:\n")
            header = [
                "filter keeps",
                "chunks",
                "vector rows",
                "recall@10",
                "lexical rows",
                "lexical as unfiltered",
            ]
            print(markdown_table(header, filtered(arguments.filtered, texts, queries, folder)))


if __name__ == "__main__":
    main()
