"""The vector and hybrid queries against numpy, and Python's answers against those of the macros."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest

from sqlrag.errors import InputError, ModelMismatchError
from sqlrag.ranking.vectors import sign_words, unit_vector, unit_vectors
from sqlrag.search.store import Store
from sqlrag.types import Chunk, Document
from tests.support.helpers import DATA

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNKS = DATA / "docs_chunks_24k"
COUNT = 3000
TAGS = ("red", "green", "blue")


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    if not CHUNKS.is_dir():
        pytest.skip("the documentation chunks are not here")
    return unit_vectors(np.load(CHUNKS / "minilm_f16.npy")[:COUNT].astype(np.float32), 384)


@pytest.fixture(scope="module")
def store(vectors: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """3,000 real chunks, ten to a document; collection, tags and metadata follow from their numbers."""
    import pyarrow.parquet as pq

    texts = pq.read_table(CHUNKS / "chunks.parquet")["text"].to_pylist()[:COUNT]
    names = [("even" if d % 2 == 0 else "odd", f"{d:03d}.md") for d in range(COUNT // 10)]
    documents = [Document(doc_id, doc_id, collection) for collection, doc_id in names]
    chunks = []
    for i, text in enumerate(texts):
        collection, doc_id = names[i // 10]
        tags = tuple(tag for n, tag in enumerate(TAGS, 2) if i % n == 0)
        heading = (" ".join(text.split()[:2]),) if i % 3 == 0 else ()
        chunks.append(Chunk(doc_id, i % 10, text, tags, {"rest": i % 7}, collection, heading_path=heading))
    path = tmp_path_factory.mktemp("vectors") / "chunks.duckdb"
    with Store.create(path, 384) as made:
        made.upsert(documents, chunks, vectors)
    with Store(path) as opened:
        yield opened


def question(vectors: np.ndarray, chance: random.Random) -> np.ndarray:
    """A vector between two chunks, of any length."""
    a, b = chance.sample(range(len(vectors)), 2)
    return np.float32(chance.choice([1e-3, 1, 77])) * (vectors[a] + np.float32(chance.random()) * vectors[b])


def words(store: Store, chance: random.Random) -> str:
    """A question of words from a chunk, with forms and words that no chunk holds among them."""
    text = store.cursor().execute("SELECT text FROM documents WHERE rid = $1", [chance.randrange(COUNT)]).fetchall()
    tokens = text[0][0].split()
    picked = [chance.choice(tokens) for _ in range(chance.randint(1, 7))]
    return " ".join([*picked, *chance.sample(["the", "how", "windowingly", "zzyzx", "joinedly", "C++"], 2)])


def filters(chance: random.Random) -> dict[str, Any]:
    """Options that hold for every search: filters, most often none."""
    choices: list[dict[str, Any]] = [{}, {}, {}, {"collection": ["odd"]}, {"tags_any": ["red", "none"]}]
    choices += [{"tags_all": ["red", "green"]}, {"metadata": '{"rest": 3}', "tags_any": ["blue", "red"]}]
    return chance.choice(choices)


def ask_macro(store: Store, call: str, arguments: dict[str, Any], options: dict[str, Any]) -> list[tuple[str, float]]:
    named = "".join(f", {name} := ${name}" for name in options)
    con = store.cursor()
    return con.execute(f"SELECT node_id, score FROM {call}{named})", {**arguments, **options}).fetchall()


def as_python(options: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in options.items() if name != "metadata"}
    return {**given, "metadata": {"rest": 3}} if "metadata" in options else given


def assert_same(python: Any, macro: list[tuple[str, float]]) -> None:
    assert [row["node_id"] for row in python] == [node_id for node_id, _ in macro]
    assert [row["score"] for row in python] == pytest.approx([score for _, score in macro], abs=1e-9, rel=0)


@pytest.mark.slow
def test_exact_query_orders_as_numpy(store: Store, vectors: np.ndarray) -> None:
    """The scores are those of numpy in float64, and no chunk is passed over that is nearer."""
    chance = random.Random(1)
    for _ in range(20):
        vector = question(vectors, chance)
        cosines = vectors.astype(np.float64) @ vector.astype(np.float64) / np.linalg.norm(vector.astype(np.float64))
        found = ask_macro(store, "exact_vector_query($v", {"v": str(vector.tolist())}, {"k": 50})
        numbers = [int(node_id[:3]) * 10 + int(node_id[-1]) for node_id, _ in found]
        assert [score for _, score in found] == pytest.approx(cosines[numbers], abs=1e-9, rel=0)
        assert cosines[numbers] == pytest.approx(np.sort(cosines)[::-1][:50], abs=1e-9, rel=0)


@pytest.mark.rest
def test_exact_query_breaks_ties_by_document_and_place(tmp_path: Path) -> None:
    """Vectors of ±1/16 have sums that are exact in any order, and many ties: the order is numpy's to the last."""
    chance = np.random.default_rng(2)
    signs = np.where(chance.random((300, 256)) < 0.5, -1, 1).astype(np.float32) / 16
    signs[100:200] = signs[:100]
    order = chance.permutation(300)
    ids = [(f"{i // 7:02d}.md", int(i % 7)) for i in order]
    documents = [Document(doc_id, "-") for doc_id in sorted({doc_id for doc_id, _ in ids})]
    with Store.create(tmp_path / "ties.duckdb", 256) as store:
        store.upsert(documents, [Chunk(doc_id, place, "word") for doc_id, place in ids], signs)
        for vector in signs[:20]:
            cosines = signs @ vector
            wanted = sorted(
                (-float(cosine), doc_id, place) for cosine, (doc_id, place) in zip(cosines, ids, strict=True)
            )
            rows = [(f"{doc_id}#{place}", -negated) for negated, doc_id, place in wanted[:100]]
            assert ask_macro(store, "exact_vector_query($v", {"v": str(vector.tolist())}, {"k": 100}) == rows
            assert ask_macro(store, "vector_query($v", {"v": str(vector.tolist())}, {"k": 100}) == rows


@pytest.mark.slow
def test_two_stages_find_what_a_scan_finds(store: Store, vectors: np.ndarray) -> None:
    chance = random.Random(3)
    hits = total = 0
    for _ in range(100):
        arguments = {"v": str(question(vectors, chance).tolist())}
        exact = dict(ask_macro(store, "exact_vector_query($v", arguments, {"k": 10}))
        found = dict(ask_macro(store, "vector_query($v", arguments, {"k": 10}))
        hits += len(exact.keys() & found.keys())
        total += 10
        assert all(found[node_id] == exact[node_id] for node_id in exact.keys() & found.keys())
    assert hits / total >= 0.99


@pytest.mark.rest
def test_pool_takes_the_codes_that_differ_least(store: Store, vectors: np.ndarray) -> None:
    """With pool = k the answer is that of the first stage alone, here counted by numpy.

    A dimension where the signs differ weighs 0 to 3 by the size of the query in it: the borders are the sizes at 20,
    60 and 85 of 100 in ascending order.
    """
    chance = random.Random(4)
    for _ in range(20):
        vector = question(vectors, chance)
        sizes = np.abs(vector)
        ascending = np.sort(sizes)
        weights = sum((sizes >= ascending[len(sizes) * percent // 100]).astype(int) for percent in (20, 60, 85))
        distance = ((vectors >= 0) != (vector >= 0)) @ weights
        nearest = np.lexsort((np.arange(COUNT), distance))[:25]
        found = ask_macro(store, "vector_query($v", {"v": str(vector.tolist())}, {"k": 25, "pool": 1})
        assert {int(node_id[:3]) * 10 + int(node_id[-1]) for node_id, _ in found} == set(nearest.tolist())


@pytest.mark.slow
def test_filters_that_leave_less_than_a_pool_give_the_exact_answer(store: Store, vectors: np.ndarray) -> None:
    chance = random.Random(5)
    for _ in range(20):
        arguments = {"v": str(question(vectors, chance).tolist())}
        options = {"k": 15, "tags_all": ["red", "green"], "metadata": '{"rest": 3}'}
        found = ask_macro(store, "vector_query($v", arguments, options)
        assert found == ask_macro(store, "exact_vector_query($v", arguments, options)
        # Numbers below 3,000 that 6 divides and that leave 3 when divided by 7.
        assert len(found) == 15
        assert all((int(n[:3]) * 10 + int(n[-1])) % 42 == 24 for n, _ in found)


@pytest.mark.slow
@pytest.mark.parametrize("exact", [False, True])
def test_python_and_macro_agree_on_vectors(store: Store, vectors: np.ndarray, exact: bool) -> None:
    chance = random.Random(6)
    for _ in range(60):
        vector, options = question(vectors, chance), {"k": chance.randint(1, 30), **filters(chance)}
        given = {key: value for key, value in as_python(options).items() if key != "k"}
        python = store.vector_query(query_vector=vector, top_k=options["k"], exact=exact, **given)
        name = "exact_vector_query($v" if exact else "vector_query($v"
        assert_same(python, ask_macro(store, name, {"v": str(vector.tolist())}, options))


@pytest.mark.slow
def test_python_and_macro_agree_on_words(store: Store) -> None:
    chance = random.Random(7)
    found = 0
    for _ in range(100):
        text, options = words(store, chance), {"k": chance.randint(1, 30), **filters(chance)}
        options.update(chance.choice([{}, {"k1": 0.9, "b": 0.4}, {"heading_weight": 0.0}, {"conjunctive": True}]))
        given = {key: value for key, value in as_python(options).items() if key != "k"}
        python = store.lexical_query(text, top_k=options["k"], **given)
        assert_same(python, ask_macro(store, "lexical_query($t", {"t": text}, options))
        found += len(python)
    assert found > 500


@pytest.mark.slow
@pytest.mark.parametrize("fusion", ["adaptive", "rrf", "weighted", "convex"])
def test_python_and_macro_agree_on_fusion(store: Store, vectors: np.ndarray, fusion: Any) -> None:
    chance = random.Random(8)
    more = {
        "adaptive": [{"k1": 0.9, "b": 0.4, "heading_weight": 0.5}],
        "rrf": [{"rrf_k": 10}],
        "weighted": [{"vector_weight": 0.2}, {"vector_weight": 1.0}],
        "convex": [{"alpha": 0.2}, {"k1": 0.9, "b": 0.4, "heading_weight": 0.5}],
    }
    for _ in range(100):
        text, vector = words(store, chance), question(vectors, chance)
        options = {"k": chance.choice([1, 5, 20, 70]), **filters(chance), **chance.choice([{}, *more[fusion]])}
        given = {key: value for key, value in as_python(options).items() if key != "k"}
        # The macro's own number of candidates; Python's grows with the store.
        given["codes_pool"] = 750
        python = store.hybrid_query(text, query_vector=vector, fusion=fusion, top_k=options["k"], **given)
        arguments = {"t": text, "v": str(vector.tolist()), "f": fusion}
        assert_same(python, ask_macro(store, "hybrid_query($t, $v, fusion := $f", arguments, options))


@pytest.mark.slow
def test_number_of_threads_does_not_matter(store: Store, vectors: np.ndarray) -> None:
    chance = random.Random(9)
    questions = [(words(store, chance), question(vectors, chance)) for _ in range(5)]
    answers = []
    for threads in (1, 2):
        store.cursor().execute("SET threads = $1", [threads])
        for _ in range(10):
            rows = [
                store.hybrid_query(text, query_vector=v, fusion=f, top_k=20) for text, v in questions for f in FUSIONS
            ]
            answers.append([[(row["node_id"], row["score"]) for row in found] for found in rows])
    assert all(answer == answers[0] for answer in answers)


FUSIONS: tuple[Any, ...] = ("adaptive", "rrf", "weighted", "convex")


@pytest.mark.slow
def test_case_G6_equal_documents_stay_in_order(tmp_path: Path) -> None:
    documents = [Document(f"{name}.txt", "the same line") for name in "daceb"]
    chunks = [Chunk(document.doc_id, 0, document.text) for document in documents]
    with Store.create(tmp_path / "same.duckdb", 8) as made:
        made.upsert(documents, chunks, np.ones((5, 8), dtype=np.float32))
    vector = [1, 0, 0, 0, 0, 0, 0, 0]
    for threads in (1, 2, 4):
        with Store(tmp_path / "same.duckdb", threads=threads) as store:
            for _ in range(20):
                found = [store.lexical_query("same line", top_k=3), store.vector_query(query_vector=vector, top_k=3)]
                for f in FUSIONS:
                    found.append(store.hybrid_query("same line", query_vector=vector, fusion=f, top_k=3))  # noqa: PERF401
                for rows in found:
                    assert [row["doc_id"] for row in rows] == ["a.txt", "b.txt", "c.txt"]


def test_sign_words() -> None:
    """140 dimensions: 128 bits, the first in the highest place (the sign), then 12 bits and zeros."""
    vector = np.full((1, 140), -1.0, dtype=np.float32)
    vector[0, [0, 63, 64, 127, 128]] = [1, 0, 2, 1, 0.5]
    words = [(int(upper[0]), int(lower[0])) for upper, lower in sign_words(vector)]
    assert words == [(-(2**63) + 1, 2**63 + 1), (-(2**63), 0)]


def test_unit_vectors() -> None:
    assert unit_vectors([[3, 4], [0, -2]], 2).tolist() == [[np.float32(0.6), np.float32(0.8)], [0, -1]]
    assert unit_vector([[0, 5]], 2).tolist() == [0, 1]
    for wrong in ([[0, 0]], [[np.nan, 1]], [[np.inf, 1]], [[1e-20, 0]], [1, 2], 3):
        with pytest.raises(InputError):
            unit_vectors(wrong, 2)
    with pytest.raises(ModelMismatchError, match="2 dimensions"):
        unit_vectors([[1, 2, 3]], 2)


@pytest.mark.parametrize(
    "call",
    [
        "more_like('missing.md#0')",
        "vector_query((SELECT embedding FROM query_embeddings WHERE query_text = 'not embedded'))",
        "exact_vector_query((SELECT embedding FROM query_embeddings WHERE query_text = 'not embedded'))",
        "hybrid_query('zzyzx', (SELECT embedding FROM query_embeddings WHERE query_text = 'not embedded'))",
    ],
)
def test_no_vector_is_an_error(store: Store, call: str) -> None:
    with pytest.raises(duckdb.InvalidInputException, match="there is no query vector"):
        store.cursor().execute(f"SELECT node_id, score FROM {call}").fetchall()


@pytest.mark.slow
def test_no_cosine_is_beyond_one(tmp_path: Path) -> None:
    """Rounding in FLOAT puts the product of a vector with itself beyond 1; no surface gives such a cosine."""
    rng = np.random.default_rng(0)
    rows = unit_vectors(rng.standard_normal((60, 384)) + np.arange(60)[:, None], 384)
    names = [f"{number:02}" for number in range(60)]
    with Store.create(tmp_path / "kb.duckdb", 384) as store:
        store.upsert([Document(name, "x") for name in names], [Chunk(name, 0, "x") for name in names], rows)
        con = store.cursor()
        beyond = con.execute("SELECT count(*) FROM documents WHERE array_inner_product(embedding, embedding) > 1")
        assert beyond.fetchall()[0][0] > 5
        for row in rows[::4]:
            for vector in (row, -row):
                given = [str(vector.tolist())]
                scores = {}
                for macro in ("vector_query", "exact_vector_query"):
                    scores[macro] = con.execute(f"SELECT score FROM {macro}($1, k := 60)", given).fetchall()
                pairs = con.execute(
                    "SELECT vector_score FROM pair_scores([0], [1], $1, range(60)) ORDER BY 1 DESC", given
                ).fetchall()
                python = [(hit["score"],) for hit in store.vector_query(query_vector=vector, top_k=60)]
                everything = np.array([*scores.values(), pairs, python])
                assert np.abs(everything).max() <= 1
                assert np.abs(everything).max() > 1 - 1e-6
        hybrid = store.hybrid_query("x", query_vector=rows[0], fusion="convex", top_k=60)
        assert max(hit["vector_score"] for hit in hybrid) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_a_hundred_repeats_give_the_same_results(store: Store, vectors: np.ndarray, threads: int) -> None:
    """Each search, over and over and with any number of threads: the same rows with the same scores to the last bit."""
    searches = {
        "vector": lambda s: s.vector_query(query_vector=vectors[7] + vectors[90], top_k=20),
        "exact": lambda s: s.vector_query(query_vector=vectors[7] + vectors[90], top_k=20, exact=True),
        "lexical": lambda s: s.lexical_query("how to create a table from a file", top_k=20),
        "phrase": lambda s: s.lexical_query('"the table" creat*', top_k=20),
        **{
            fusion: lambda s, fusion=fusion: s.hybrid_query(
                "how to create a table from a file", query_vector=vectors[7] + vectors[90], top_k=20, fusion=fusion
            )
            for fusion in ("rrf", "weighted", "convex")
        },
    }
    con = store.cursor()
    before = con.execute("SELECT current_setting('threads')").fetchall()[0][0]
    try:
        con.execute(f"SET threads = {threads}")
        for name, search in searches.items():
            first = search(store)
            assert len(first) == 20 or name == "phrase", name
            assert len(first) > 0, name
            for _ in range(99):
                assert search(store) == first, name
            # What the other numbers of threads have to give as well.
            assert _FIRST.setdefault(name, list(first)) == first, name
    finally:
        con.execute(f"SET threads = {before}")


_FIRST: dict[str, list[dict[str, Any]]] = {}
