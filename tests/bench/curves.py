"""The curves that the defaults of a search were chosen from: measured, printed as tables and drawn as one picture.

python -m tests.bench.curves --points points.json [--measure pool,fusion,bm25,feedback,postings] [--folder FOLDER]
                             [--db FILE] [--picture data/handbook/guides/search-defaults.svg]

--points keeps what was measured; without --measure the picture is drawn from it. --folder keeps the stores of the four
collections (see ``quality``), of which two have to be embedded first. --db is a large store made by ``recall`` or
``latency`` with --folder; "postings" takes the processor time of the lexical leg in it, fully scored and with
MaxScore. The picture needs matplotlib, which no extra installs: pip install matplotlib.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ir_measures
import numpy as np
from ir_measures import nDCG

from sqlrag import Store
from sqlrag.engines.duckdb import legs
from sqlrag.engines.duckdb import legs as legs_
from sqlrag.engines.duckdb.legs import default_pool, lexical_leg
from sqlrag.engines.duckdb.lexical import query_terms
from sqlrag.ranking.fusion import LegHit, fuse_legs
from sqlrag.ranking.plan import BM25
from sqlrag.types import DEFAULT_ALPHA, DEFAULT_FEEDBACK_WEIGHT
from tests.bench.common import DATA, environment, markdown_table, read_jsonl, read_qrels
from tests.bench.corpora import SEED, batches, questions
from tests.bench.quality import COLLECTIONS, _page, run_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

SIZES = (10_000, 24_000, 100_000, 1_000_000)
POOLS = (50, 100, 150, 200, 300, 400, 500, 750, 1000, 1500, 2000, 3000)
ALPHAS = (0.0, 0.2, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 1.0)
RRF_K = (5, 10, 20, 40, 60, 80, 100, 200)
FEEDBACK_WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
NAMES = ("nfcorpus", "scifact", "anthropic_docs", "duckdb_docs_qa")
DEPTH = 100


# The vector leg: in which place the codes put the ten that are truly nearest.


def weights(query: Floats, borders: tuple[int, ...]) -> Floats:
    """Return the weight of each dimension, one more for each border (of 100 dimensions by size) that it reaches."""
    sizes = np.abs(query)
    return sum(
        ((sizes >= np.sort(sizes)[len(sizes) * border // 100]).astype(np.float32) for border in borders),
        np.zeros(len(sizes), dtype=np.float32),
    )


def ranks(size: int, queries: Floats, borders: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the places, counted from 0, of the ten nearest by the codes' order, ``[len(queries), 10]``."""
    scores, places = np.empty((len(queries), 0)), np.empty((len(queries), 0), dtype=np.int64)
    first = 0
    for _, vectors in batches(size):
        scores = np.concatenate([scores, queries @ vectors.T], axis=1)
        places = np.concatenate([places, np.tile(np.arange(first, first + len(vectors)), (len(queries), 1))], axis=1)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :10]
        scores, places = np.take_along_axis(scores, best, 1), np.take_along_axis(places, best, 1)
        first += len(vectors)
    # Signs that agree add their weight, others take it away: the greater the sum, the fewer differ.
    coded = np.where(queries >= 0, 1, -1) * np.stack([weights(query, borders) for query in queries])
    near = np.empty(places.shape)
    for pass_ in ("the sums of the ten", "who is before them"):
        before, first = np.zeros(places.shape, dtype=np.int64), 0
        for _, vectors in batches(size):
            sums = coded.astype(np.float32) @ np.where(vectors >= 0, np.float32(1), np.float32(-1)).T
            for i, ten in enumerate(places):
                here = (ten >= first) & (ten < first + len(vectors))
                if pass_ == "the sums of the ten":
                    near[i, here] = sums[i, ten[here] - first]
                else:
                    numbers = np.arange(first, first + len(vectors))
                    for j in range(10):
                        ahead = (sums[i] > near[i, j]) | ((sums[i] == near[i, j]) & (numbers < ten[j]))
                        before[i, j] += np.count_nonzero(ahead)
            first += len(vectors)
    return before


def measure_pool(_: Any) -> dict[str, Any]:
    queries = questions()[1]
    found: dict[str, Any] = {}
    for size in SIZES:
        for kind, borders in (("weighted", (20, 60, 85)), ("Hamming", (0,))):
            places = ranks(size, queries, borders)
            found[f"{kind}, {size:,}"] = [float((places < pool).mean()) for pool in POOLS]
            print(kind, size, found[f"{kind}, {size:,}"], flush=True)
    return found


# Fusion and BM25: nDCG@10 over the judged collections.


def collections(folder: Path) -> Iterator[tuple[str, Path, list[Any], Callable[[dict[str, Any]], float]]]:
    """Yield each collection's name, store, questions with their vectors, and what computes nDCG@10 of a run."""
    for name in NAMES:
        path = folder / f"{name}.duckdb"
        if not path.exists():
            make, _, _ = COLLECTIONS[name]
            make(name, folder)[0].close()
        qrels = [ir_measures.Qrel(q, _page(d), r) for q, d, r in read_qrels(DATA / name / "qrels" / "test.tsv")]
        judged = {qrel.query_id for qrel in qrels}
        texts = [(row["_id"], row["text"]) for row in read_jsonl(DATA / name / "queries.jsonl") if row["_id"] in judged]
        given: dict[str, Any] = {}
        if (DATA / name / "minilm.npz").exists():
            vectors = np.load(DATA / name / "minilm.npz")
            given = dict(zip(vectors["query_ids"].tolist(), vectors["queries"], strict=True))
        asked = [(query_id, text, given.get(query_id)) for query_id, text in texts]
        yield (
            name,
            path,
            asked,
            lambda run, qrels=qrels: float(
                ir_measures.calc_aggregate([nDCG @ 10], qrels, {q: run_of(hits) for q, hits in run.items()})[nDCG @ 10]
            ),
        )


def legs_of(store: Store, text: str, vector: Any) -> tuple[list[LegHit], list[LegHit], dict[int, Any]]:
    """Return the best hundred of each leg, and the exact scores of them all."""
    rows = store.hybrid_query(
        text, top_k=2 * DEPTH, vector_top_k=DEPTH, lexical_top_k=DEPTH, query_vector=vector, fusion="convex"
    )
    numbered = list(enumerate(rows))
    by_vector = [
        LegHit(i, r["doc_id"], r["chunk_index"], r["vector_score"]) for i, r in numbered if r["vector_rank"] is not None
    ]
    by_words = [
        LegHit(i, r["doc_id"], r["chunk_index"], r["lexical_score"])
        for i, r in numbered
        if r["lexical_rank"] is not None
    ]
    return by_vector, by_words, {i: (r["vector_score"], r["lexical_score"]) for i, r in numbered}


def measure_fusion(arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, path, asked, ndcg in collections(arguments.folder):
        with Store(path) as store:
            legs = {query_id: legs_of(store, text, vector) for query_id, text, vector in asked}

        def fused(legs: Any = legs, **options: Any) -> dict[str, Any]:
            return {
                query_id: [hit._asdict() for hit in fuse_legs(by_vector, by_words, exact=exact, **options)]
                for query_id, (by_vector, by_words, exact) in legs.items()
            }

        found[name] = {
            "alpha": [ndcg(fused(fusion="convex", alpha=alpha)) for alpha in ALPHAS],
            "rrf_k": [ndcg(fused(fusion="rrf", rrf_k=k)) for k in RRF_K],
        }
        print(name, found[name], flush=True)
    return found


def measure_bm25(arguments: Any) -> dict[str, Any]:
    """k1 and b together, the weight of headings where there are any, and the stop list left out."""
    found: dict[str, Any] = {}
    for name, path, asked, ndcg in collections(arguments.folder):
        settings: dict[str, dict[str, Any]] = {
            f"k1 {k1}, b {b}": {"k1": k1, "b": b} for k1 in (0.9, 1.2, 1.5, 2.0) for b in (0.4, 0.75, 0.9)
        }
        if name.endswith(("docs", "qa")):
            settings |= {f"heading weight {weight}": {"heading_weight": weight} for weight in (0, 1, 2, 3, 5, 8)}
        with Store(path, read_only=False) as store:

            def asked_with(options: dict[str, Any], store: Store = store, asked: list[Any] = asked) -> dict[str, Any]:
                return {q: store.lexical_query(text, top_k=DEPTH, syntax=False, **options) for q, text, _ in asked}

            found[name] = {setting: ndcg(asked_with(options)) for setting, options in settings.items()}
            con = store.cursor()
            words = con.execute("SELECT word FROM fts_main_documents.stopwords").fetchall()
            con.execute("DELETE FROM fts_main_documents.stopwords")
            try:
                found[name]["no stop list"] = ndcg(asked_with({}))
            finally:
                con.executemany("INSERT INTO fts_main_documents.stopwords VALUES ($1)", words)
        print(name, found[name], flush=True)
    return found


def measure_feedback(arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, path, asked, ndcg in collections(arguments.folder):
        with Store(path) as store:
            found[name] = [
                ndcg(
                    {
                        q: store.hybrid_query(
                            text, top_k=DEPTH, vector_top_k=DEPTH, lexical_top_k=DEPTH, query_vector=vector,
                            fusion="convex", alpha=0.8, feedback=2 if weight else 0, feedback_weight=weight,
                        )
                        for q, text, vector in asked
                    }
                )
                for weight in FEEDBACK_WEIGHTS
            ]  # fmt: skip
        print(name, found[name], flush=True)
    return found


def measure_postings(arguments: Any) -> list[list[float]]:
    """Return the postings of each question, and the processor's milliseconds in full and with MaxScore."""
    found = []
    kept = legs.PRUNE_FROM
    with Store(arguments.db) as store:
        con = store.cursor()
        con.execute("SELECT sum(tf + rid) FROM fts_main_documents.postings").fetchall()
        for text in questions()[0]:
            terms = query_terms(con, text, "porter")
            times = []
            for threshold in (10**12, 0):
                legs_.PRUNE_FROM = threshold
                runs = []
                for _ in range(5):
                    began = time.process_time()
                    lexical_leg(con, terms, 50, BM25(), {})
                    runs.append((time.process_time() - began) * 1000)
                times.append(statistics.median(runs))
            found.append([float(sum(terms.dfs)), *times])
    legs_.PRUNE_FROM = kept
    return sorted(found)


# What comes out.


def tables(points: dict[str, Any]) -> Iterator[str]:
    """Yield what was measured as Markdown."""
    if "pool" in points:
        rows = [[name, *(f"{share:.4f}" for share in shares)] for name, shares in points["pool"].items()]
        yield markdown_table(["recall@10 with a pool of", *map(str, POOLS)], rows)
    if "fusion" in points:
        for key, values in (("alpha", ALPHAS), ("rrf_k", RRF_K)):
            rows = [[name, *(f"{x:.4f}" for x in points["fusion"][name][key])] for name in points["fusion"]]
            yield markdown_table([f"nDCG@10 with {key}", *map(str, values)], rows)
    if "bm25" in points:
        names = list(points["bm25"])
        settings = dict.fromkeys(setting for name in names for setting in points["bm25"][name])
        rows = [
            [setting, *(f"{points['bm25'][name].get(setting, float('nan')):.4f}" for name in names)]
            for setting in settings
        ]
        yield markdown_table(["nDCG@10 of the words", *names], rows)
    if "feedback" in points:
        rows = [[name, *(f"{x:.4f}" for x in values)] for name, values in points["feedback"].items()]
        yield markdown_table(["nDCG@10 with feedback weight", *map(str, FEEDBACK_WEIGHTS)], rows)
    if "postings" in points:
        yield markdown_table(
            ["postings", "questions", "in full, CPU ms", "MaxScore, CPU ms"], binned(points["postings"])
        )


def binned(found: list[list[float]]) -> list[list[str]]:
    """Return medians over questions with about as many postings."""
    edges = [0, 50_000, 100_000, 200_000, 400_000, 800_000, float("inf")]
    rows = []
    for low, high in itertools.pairwise(edges):
        inside = [point for point in found if low <= point[0] < high]
        if inside:
            medians = [f"{statistics.median(column):.1f}" for column in list(zip(*inside, strict=True))[1:]]
            rows.append([f"{low:,.0f} to {high:,.0f}", str(len(inside)), *medians])
    return rows


def draw(points: dict[str, Any], picture: Path) -> None:
    """Draw the picture of four."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update(
        {"font.size": 8, "svg.hashsalt": "sqlrag", "svg.fonttype": "none", "axes.grid": True, "grid.alpha": 0.3}
    )
    from matplotlib import pyplot as plt

    figure, ((pools, alphas), (postings, feedback)) = plt.subplots(2, 2, figsize=(10, 7.5))
    for color, size in zip(("C0", "C1", "C2", "C3"), SIZES, strict=True):
        for kind, style in (("weighted", "-"), ("Hamming", ":")):
            shares = points["pool"].get(f"{kind}, {size:,}")
            if shares:
                pools.plot(POOLS, shares, style, color=color, label=f"{kind}, {size:,} chunks")
        pools.axvline(default_pool(size, 384), color=color, linewidth=0.6, linestyle="--")
    pools.set(xscale="log", ylim=(0.9, 1.002), xlabel="pool (dashed: the default of that size)", ylabel="recall@10")
    pools.set_title("Candidates of the sign codes")
    for name in NAMES:
        alphas.plot(ALPHAS, points["fusion"][name]["alpha"], marker=".", label=name)
        values = points["feedback"][name]
        feedback.plot(FEEDBACK_WEIGHTS, [value - values[0] for value in values], marker=".", label=name)
    alphas.axvline(DEFAULT_ALPHA, color="grey", linewidth=0.8, linestyle="--")
    alphas.set(xlabel="alpha (share of the vectors)", ylabel="nDCG@10", title="Convex fusion")
    feedback.axvline(DEFAULT_FEEDBACK_WEIGHT, color="grey", linewidth=0.8, linestyle="--")
    feedback.set(xlabel="feedback_weight", ylabel="change of nDCG@10", title="feedback=2, alpha=0.8")
    numbers, full, pruned = zip(*points["postings"], strict=True)
    postings.plot(numbers, full, ".", label="every posting scored")
    postings.plot(numbers, pruned, "x", label="MaxScore", markersize=4)
    postings.axvline(legs.PRUNE_FROM, color="grey", linewidth=0.8, linestyle="--")
    postings.set(xscale="log", xlabel="postings of the question's terms", ylabel="CPU ms", ylim=(0, None))
    postings.set_title("Lexical leg, 1,000,000 chunks")
    for axes in (pools, alphas, postings, feedback):
        axes.legend(fontsize=6, loc="lower right" if axes is pools else "best")
    figure.tight_layout()
    figure.savefig(picture, metadata={"Date": None})


MEASURES: dict[str, Callable[[Any], Any]] = {
    "pool": measure_pool,
    "fusion": measure_fusion,
    "bm25": measure_bm25,
    "feedback": measure_feedback,
    "postings": measure_postings,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=Path, required=True)
    parser.add_argument("--measure", default="", help=f"some of {', '.join(MEASURES)}")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--db", type=Path, default=None)
    parser.add_argument("--picture", type=Path, default=None)
    arguments = parser.parse_args()
    points = json.loads(arguments.points.read_text("utf-8")) if arguments.points.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        arguments.folder = arguments.folder or Path(temporary)
        for name in filter(None, arguments.measure.split(",")):
            points[name] = MEASURES[name](arguments)
            arguments.points.write_text(json.dumps(points), "utf-8")
    print(f"{environment()}, seed {SEED}")
    print("\n\n".join(tables(points)))
    if arguments.picture:
        draw(points, arguments.picture)


if __name__ == "__main__":
    main()
