"""Quality of each mode on public collections: nDCG@10 and recall@10 by ir-measures.

python -m tests.bench.quality [--only nfcorpus,scifact] [--every]

NFCorpus and SciFact: one chunk a document, vectors as given in ``minilm.npz``. duckdb_docs_qa, anthropic_docs and the
handbook: the package's own chunks and MiniLM vectors, best chunk per page. XQuAD: one chunk a paragraph and MiniLM
vectors, which do not know Russian or Chinese, with the default stemmer; where named with the language's own, the
lexical leg alone. A second table has the modes beside each other, with their means over the collections that have all
of them.

With ``--every`` the first four have further modes. Those after an arrow order the 100 candidates of the mode before it
anew, by the vectors of the store, or leave out near-identical ones; how many these are for a question is in the last
column.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import ir_measures
import numpy as np
from ir_measures import R, nDCG

from sqlrag import Chunk, Document, Store, load_embedder, prepare_embeddings
from sqlrag.blocks.rerank import drop_near_duplicates, rerank
from sqlrag.embedders import embed_texts
from sqlrag.types import Candidate, Candidates
from tests.bench.common import DATA, MINILM, environment, markdown_table, read_jsonl, read_qrels

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlrag import Results

    Mode = Callable[[Store, str, np.ndarray | None], Results]

DEPTH = 100

HANDBOOK = Path(__file__).resolve().parents[2] / "data" / "handbook"
QUESTIONS = HANDBOOK.parent / "questions.jsonl"


def hybrid(**options: Any) -> Mode:
    """Return the hybrid search with these options."""
    return lambda store, text, vector: store.hybrid_query(
        text, top_k=DEPTH, vector_top_k=DEPTH, lexical_top_k=DEPTH, query_vector=vector, **options
    )


def reordered(
    store: Store, text: str, vector: np.ndarray | None, found: list[Candidate], *, cosine: bool = False, **options: Any
) -> Candidates:
    """Order candidates anew, by the cosine of the stored vectors or by the scores that they have."""
    if cosine:
        options["query_vector"] = question_vector(text) if vector is None else vector
    return rerank(text, found, vectors=vectors_of(store, found), **options)


def distinct(
    store: Store, _text: str, _vector: np.ndarray | None, found: list[Candidate], *, threshold: float, cosine: bool
) -> Candidates:
    """Leave out the near-identical ones of the candidates, by their vectors or by their words."""
    return drop_near_duplicates(found, threshold=threshold, vectors=vectors_of(store, found) if cosine else None)


def candidates_of(results: Results) -> list[Candidate]:
    """Return the results as candidates."""
    names = ("doc_id", "chunk_index", "score", "score_type", "node_id")
    return [Candidate(content=row["text"], **{name: row[name] for name in names}) for row in results]


@cache
def _stored_vectors(store: Store) -> dict[str, np.ndarray]:
    table = store.cursor().execute("SELECT node_id, embedding FROM documents").fetchnumpy()
    return dict(zip(table["node_id"].tolist(), map(np.array, table["embedding"]), strict=True))


def vectors_of(store: Store, candidates: list[Candidate]) -> np.ndarray:
    """Return the stored vectors of the candidates, ``[n, 384] float32``."""
    vectors = _stored_vectors(store)
    return np.array([vectors[candidate.node_id] for candidate in candidates], dtype=np.float32).reshape(-1, 384)


@cache
def question_vector(text: str) -> np.ndarray:
    """Return the vector of a question, ``[384] float32``."""
    return embed_texts(load_embedder(MINILM), [text], kind="query")[0]


MODES: dict[str, Mode] = {
    "BM25": lambda store, text, _: store.lexical_query(text, top_k=DEPTH, syntax=False),
    "vectors": lambda store, text, vector: store.vector_query(text, top_k=DEPTH, query_vector=vector),
    "RRF": hybrid(fusion="rrf"),
    "weighted": hybrid(fusion="weighted"),
    "convex": hybrid(fusion="convex"),
    "convex, feedback": hybrid(fusion="convex", alpha=0.8, feedback=2),
    "convex, expansion": hybrid(fusion="convex", expansion=10),
    "adaptive": hybrid(),
    "adaptive, feedback": hybrid(feedback=2),
    "adaptive, expansion": hybrid(expansion=10),
}
FEW = ["BM25", "vectors", "RRF", "convex", "adaptive", "adaptive, feedback"]
# What is done to the candidates of another mode: its name and the function.
AFTERWARDS = {
    "BM25 → cosine": ("BM25", partial(reordered, cosine=True)),
    "RRF → cosine": ("RRF", partial(reordered, cosine=True)),
    "RRF → MMR .1": ("RRF", partial(reordered, diversity=0.1)),
    "RRF → MMR .3": ("RRF", partial(reordered, diversity=0.3)),
    "RRF → cosine, MMR .1": ("RRF", partial(reordered, cosine=True, diversity=0.1)),
    "RRF → distinct, cosine .95": ("RRF", partial(distinct, threshold=0.95, cosine=True)),
    "RRF → distinct, words .8": ("RRF", partial(distinct, threshold=0.8, cosine=False)),
    "RRF → distinct, words .5": ("RRF", partial(distinct, threshold=0.5, cosine=False)),
}


def given_vectors(name: str, folder: Path) -> tuple[Store, list[tuple[str, str, np.ndarray | None]]]:
    """Return a store with one chunk a document, and the questions with their vectors."""
    vectors = np.load(DATA / name / "minilm.npz")
    texts = {
        row["_id"]: f"{row.get('title', '')} {row['text']}".strip() for row in read_jsonl(DATA / name / "corpus.jsonl")
    }
    ids = [doc_id for doc_id in vectors["corpus_ids"].tolist() if texts[doc_id]]
    keep = np.array([bool(texts[doc_id]) for doc_id in vectors["corpus_ids"].tolist()])
    store = Store.create(folder / f"{name}.duckdb", 384)
    store.upsert(
        [Document(doc_id, texts[doc_id]) for doc_id in ids],
        [Chunk(doc_id, 0, texts[doc_id], i_end=len(texts[doc_id])) for doc_id in ids],
        vectors["corpus"][keep],
    )
    questions = {row["_id"]: row["text"] for row in read_jsonl(DATA / name / "queries.jsonl")}
    by_id = dict(zip(vectors["query_ids"].tolist(), vectors["queries"], strict=True))
    return store, [(query_id, questions[query_id], vector) for query_id, vector in by_id.items()]


def own_chunks(name: str, folder: Path) -> tuple[Store, list[tuple[str, str, np.ndarray | None]]]:
    """Return a store that the package made from the pages as Markdown files, and the questions.

    An id may be an address, so it is quoted to serve as a file's name.
    """
    pages = folder / name
    pages.mkdir()
    for row in read_jsonl(DATA / name / "corpus.jsonl"):
        path = pages / f"{quote(row['_id'], safe='')}.md"
        title = row.get("title", "")
        path.write_text(f"# {title}\n\n{row['text']}\n" if title else row["text"], encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = prepare_embeddings(pages, folder / f"{name}.duckdb", embed_model_name=MINILM)
    return Store(prepared.path), [(row["_id"], row["text"], None) for row in read_jsonl(DATA / name / "queries.jsonl")]


def paragraphs(
    name: str, folder: Path, stemmer: str = "porter"
) -> tuple[Store, list[tuple[str, str, np.ndarray | None]]]:
    """Return a store of paragraphs with MiniLM vectors, and the questions with theirs."""
    model = load_embedder(MINILM)
    rows = read_jsonl(DATA / name / "corpus.jsonl")
    store = Store.create(folder / f"{name}.duckdb", 384, stemmer=stemmer)
    store.upsert(
        [Document(row["_id"], row["text"]) for row in rows],
        [Chunk(row["_id"], 0, row["text"], i_end=len(row["text"])) for row in rows],
        embed_texts(model, [row["text"] for row in rows], kind="document"),
    )
    asked = read_jsonl(DATA / name / "queries.jsonl")
    vectors = embed_texts(model, [row["text"] for row in asked], kind="query")
    return store, [(row["_id"], row["text"], vector) for row, vector in zip(asked, vectors, strict=True)]


def handbook(_name: str, folder: Path) -> tuple[Store, list[tuple[str, str, np.ndarray | None]]]:
    """Return a store of the handbook, and its questions."""
    prepared = prepare_embeddings(HANDBOOK, folder / "handbook.duckdb", embed_model_name=MINILM)
    return Store(prepared.path), [(row["id"], row["text"], None) for row in read_jsonl(QUESTIONS)]


def judged(name: str, file: str) -> list[tuple[str, str, int]]:
    """Return the judgements of a collection: question, page, relevance."""
    if name != "handbook":
        return [(query, _page(page), relevance) for query, page, relevance in read_qrels(DATA / name / file)]
    return [(row["id"], _page(page), 1) for row in read_jsonl(QUESTIONS) for page in row["relevant"]]


# Collection: how its store is made, its judgements, and the modes that make sense on it.
COLLECTIONS = {
    "nfcorpus": (given_vectors, ["qrels/test.tsv"], [*MODES, *AFTERWARDS]),
    "scifact": (given_vectors, ["qrels/test.tsv"], [*MODES, *AFTERWARDS]),
    "duckdb_docs_qa": (own_chunks, ["qrels/test.tsv", "qrels/test_en.tsv", "qrels/test_ru.tsv"], [*MODES, *AFTERWARDS]),
    "anthropic_docs": (own_chunks, ["qrels/test.tsv"], [*MODES, *AFTERWARDS]),
    "handbook": (handbook, ["questions.jsonl"], FEW),
    "xquad_en": (paragraphs, ["qrels/test.tsv"], FEW),
    "xquad_de": (paragraphs, ["qrels/test.tsv"], FEW),
    "xquad_ru": (paragraphs, ["qrels/test.tsv"], FEW),
    "xquad_ru:russian": (partial(paragraphs, stemmer="russian"), ["qrels/test.tsv"], ["BM25"]),
    "xquad_de:german": (partial(paragraphs, stemmer="german"), ["qrels/test.tsv"], ["BM25"]),
    "xquad_zh": (paragraphs, ["qrels/test.tsv"], FEW),
}


def run_of(results: Results | Candidates) -> dict[str, float]:
    """Return a page's score: that of its best chunk."""
    run: dict[str, float] = {}
    for result in results:
        doc_id, score = (
            (result.doc_id, result.score) if isinstance(result, Candidate) else (result["doc_id"], result["score"])
        )
        run.setdefault(_page(unquote(doc_id)), score)
    return run


def _page(doc_id: str) -> str:
    return doc_id.removesuffix(".md").removesuffix(".md")


def measure(name: str, folder: Path, *, every: bool = False) -> list[list[str]]:
    """Return one row for each mode and set of judgements; the modes are few unless ``every`` one is wanted."""
    make, judgements, modes = COLLECTIONS[label := name]
    if not every:
        modes = [mode for mode in modes if mode in FEW]
    name = name.partition(":")[0]
    store, questions = make(name, folder)
    rows = []
    with store:
        found: dict[str, dict[str, Results | Candidates]] = {}
        for mode in modes:
            first, after = AFTERWARDS.get(mode, (mode, None))
            found[mode] = {
                query_id: after(store, text, vector, candidates_of(found[first][query_id]))
                if after
                else MODES[mode](store, text, vector)
                for query_id, text, vector in questions
            }
    runs = {mode: {query_id: run_of(results) for query_id, results in found[mode].items()} for mode in modes}
    for file in judgements:
        qrels = [ir_measures.Qrel(*row) for row in judged(name, file)]
        asked = {qrel.query_id for qrel in qrels}
        for mode in modes:
            run = {query: documents for query, documents in runs[mode].items() if query in asked}
            got = ir_measures.calc_aggregate([nDCG @ 10, R @ 10], qrels, run)
            row = label + (f" ({Path(file).stem.removeprefix('test_')})" if "_" in Path(file).stem else "")
            gone = [
                sum(map(len, getattr(found[mode][query], "dropped", {}).values()))
                for query in asked & found[mode].keys()
            ]
            rows.append(
                [row, mode, f"{got[nDCG @ 10]:.4f}", f"{got[R @ 10]:.4f}", str(len(asked)), f"{np.mean(gone):.1f}"]
            )
    return rows


def side_by_side(rows: list[list[str]]) -> list[list[str]]:
    """Return nDCG@10 with a row for each collection that has all of the few modes, and last their means."""
    gains: dict[str, dict[str, float]] = {}
    for collection, mode, gain, *_ in rows:
        gains.setdefault(collection, {})[mode] = float(gain)
    legs = FEW.index("BM25"), FEW.index("vectors")
    table = {
        name: (gain := [found[mode] for mode in FEW]) + [max(gain[leg] for leg in legs)]
        for name, found in gains.items()
        if found.keys() >= set(FEW)
    }
    # Parts of a collection, such as its questions of one language, do not count twice.
    means = np.mean([found for name, found in table.items() if name in COLLECTIONS], axis=0).tolist()
    return [[name, *(f"{gain:.4f}" for gain in found)] for name, found in [*table.items(), ("mean", means)]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(COLLECTIONS))
    parser.add_argument("--every", action="store_true", help="measure the further modes as well")
    given = parser.parse_args()
    names = given.only.split(",")
    print(f"{environment()}, no seed (nothing is drawn at random)\n")
    rows = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            measured = measure(name, Path(folder), every=given.every)
        print(*map(" | ".join, measured), sep="\n", file=sys.stderr)  # as it goes on, since all of it takes an hour
        rows += measured
    print(markdown_table(["collection", "mode", "nDCG@10", "recall@10", "questions", "dropped"], rows))
    print(f"\nnDCG@10\n\n{markdown_table(['collection', *FEW, 'better leg'], side_by_side(rows))}")


if __name__ == "__main__":
    main()
