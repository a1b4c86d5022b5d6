"""The arrays give what the macros give for vectors and words that are chosen to be awkward."""

from __future__ import annotations

import numpy as np
import pytest

from sqlrag import Chunk, Document, Store
from sqlrag.engines.duckdb import legs
from sqlrag.engines.resident import index
from tests.support.residence import in_memory, same

DIMENSIONS = 130  # two words of 128, the second nearly empty
CHUNKS = 1500


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Make a store with many equal vectors and texts, gaps between the numbers of chunks, and a damaged vector."""
    path = tmp_path_factory.mktemp("index") / "kb.duckdb"
    chosen = np.random.default_rng(3)
    vectors = chosen.normal(size=(CHUNKS, DIMENSIONS)).astype(np.float32)
    vectors[1::3] = vectors[::3][: len(vectors[1::3])]
    words = np.array([f"word{number}" for number in range(40)])
    common = "pump " * 3
    with Store.create(path, DIMENSIONS) as store:
        for start in range(0, CHUNKS, 500):
            numbers = range(start, start + 500)
            store.upsert(
                [Document(f"d{number:04}.md", "") for number in numbers],
                [
                    Chunk(
                        f"d{number:04}.md", 0, common + " ".join(chosen.choice(words, 1 + number % 7)),
                        heading_path=("Pumps", str(words[number % 5])), tags=("odd",) if number % 2 else (),
                    )
                    for number in numbers
                ],
                vectors[start : start + 500],
            )  # fmt: skip
        store.delete_documents(doc_ids=[f"d{number:04}.md" for number in range(100, 400, 7)])
        store.upsert([Document("d0107.md", "")], [Chunk("d0107.md", 0, "pump word1 again")], vectors[:1])
        with store._database.transaction() as con:
            nan = "list_transform(embedding, lambda x, i: CASE WHEN i = 2 THEN 'nan'::FLOAT ELSE x END)"
            con.execute(f"UPDATE documents SET embedding = {nan}::FLOAT[{DIMENSIONS}] WHERE doc_id = 'd0003.md'")
    return path


@pytest.fixture(scope="module", params=[False, True], ids=["whole", "rounded"])
def stores(request, path):
    with Store(path, resident=False) as by_sql, in_memory(path, rounded=request.param) as by_memory:
        assert isinstance(by_memory._engine.residence._index.vectors, index.Rounded) is request.param
        yield by_sql, by_memory


QUESTIONS = ["pump", "pump word1", "word1 word2 word3 word4", "pumps word3", "pump word1 word2 nothing", "nothing"]
OPTIONS = [
    {},
    {"top_k": 200, "fusion": "convex"},
    {"fields": "heading_path"},
    {"fields": "text", "b": 1, "k1": 0},
    {"codes_pool": 40},
    {"vector_top_k": 900, "lexical_top_k": 900, "top_k": 300},
    {"codes_pool": 40, "tags_any": ["odd"]},
    {"metadata": {"$doc_id": {"$in": ["d0003.md", "d0107.md", "d0109.md"]}}, "top_k": 30},
    {"tags_all": ["none"]},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("question", QUESTIONS[2:5])
def test_ties_damage_and_gaps(stores, question, options):
    vector = np.random.default_rng(len(question)).normal(size=DIMENSIONS).astype(np.float32)
    assert same(*stores, "hybrid", question, {"query_vector": vector, **options}) == ""


@pytest.mark.parametrize("row", [0, 3, 1200])
@pytest.mark.parametrize("pool", [1, 7, 750, 1400])
def test_the_pool_ends_among_equal_codes(stores, row, pool):
    vector = np.array(stores[0].cursor().execute(
        "SELECT embedding FROM documents WHERE doc_id = $1", [f"d{row:04}.md"]
    ).fetchall()[0][0], dtype=np.float32)  # fmt: skip
    vector = np.nan_to_num(vector, nan=0.5)
    assert same(*stores, "vector", "", {"query_vector": vector, "codes_pool": pool, "top_k": 30}) == ""


@pytest.mark.slow
@pytest.mark.parametrize("most", [0, 50, 10**9])
def test_however_many_postings_are_scored_first(stores, monkeypatch, most):
    monkeypatch.setattr(index, "_PROBE", most)
    for question in QUESTIONS:
        for top_k, filters in ((1, {}), (10, {"tags_any": ["odd"]}), (300, {})):
            assert same(*stores, "lexical", question, {"top_k": top_k, "syntax": False, **filters}) == ""


def test_what_passes_a_filter_is_asked_of_the_file_once(stores, monkeypatch):
    monkeypatch.setattr(index, "MOST_FILTERS", 3)
    by_memory = stores[1]
    known = by_memory._engine.residence._index.passing
    known.clear()
    asked, own = [], legs.passing_filters
    monkeypatch.setattr(legs, "passing_filters", lambda con, filters: asked.append(filters) or own(con, filters))
    for number in (1, 5, 1, 5, 9, 13, 1):
        found = by_memory.lexical_query("pump", metadata={"$doc_id": f"d{number:04}.md"})
        assert [row["doc_id"] for row in found] == [f"d{number:04}.md"]
        assert found.methods["lexical"].startswith("in memory")
    assert [one.metadata["$doc_id"] for one in asked] == [f"d{number:04}.md" for number in (1, 5, 9, 13, 1)]
    assert len(known) == 3


def test_rounded_vectors_say_how_far_off_they_are():
    chosen = np.random.default_rng(5)
    vectors = chosen.normal(size=(400, 33)).astype(np.float32) * chosen.choice([1e-30, 1, 1e9], (400, 1))
    vectors[:50, 1:] = 0
    vectors[50] = 0
    vectors[51, 3] = np.nan
    rounded = index.Rounded.empty(400, 33)
    rounded.put(slice(0, 400), vectors.astype(np.float32))
    assert np.isinf(rounded.errors).tolist() == [row == 51 for row in range(400)]
    asked = chosen.normal(size=(33, 20))
    found = (rounded.values.astype(np.float64) * rounded.scales[:, None]) @ asked
    off = np.abs(found - vectors.astype(np.float64) @ asked) / np.linalg.norm(asked, axis=0)
    whole = np.arange(400) != 51
    of_sums = 1e-6 * np.linalg.norm(vectors.astype(np.float64), axis=1)  # float32
    assert (off[whole].max(axis=1) <= (rounded.errors + of_sums)[whole]).all()
    assert np.median(off[60:].max(axis=1) / rounded.errors[60:]) > 0.2  # they are no larger than need be


def test_vectors_that_were_read_from_the_file_are_kept_up_to_a_number(path, monkeypatch):
    monkeypatch.setattr(index, "_MOST_EXACT", 60)
    vectors = np.random.default_rng(2).normal(size=(6, DIMENSIONS)).astype(np.float32)
    with Store(path, resident=False) as by_sql, in_memory(path, rounded=True) as by_memory:
        kept = by_memory._engine.residence._index.exact
        kept.clear()
        for vector in (*vectors, vectors[0]):
            assert same(by_sql, by_memory, "vector", "", {"query_vector": vector, "top_k": 30}) == ""
            assert 0 < len(kept) <= 60


def test_bits_are_counted_without_numpy_2():
    values = np.random.default_rng(1).integers(0, 2**63, 1000, dtype=np.uint64)
    counts = np.empty(1000, dtype=np.uint8)
    assert index.counted_by_table(values, counts).tolist() == [int(value).bit_count() for value in values]
    assert index._bit_count(values, out=np.empty(1000, dtype=np.uint8)).tolist() == counts.tolist()


@pytest.mark.slow
def test_scores_are_rounded_as_by_duckdb(stores):
    values = np.array([0.5, 1.5, 2.5, -0.5, -2.5, 0.49999, 1e9 + 0.5])
    rounded = stores[0].cursor().execute("SELECT list_transform($1, lambda x: round(x))", [values.tolist()])
    assert index._rounded(values).tolist() == rounded.fetchall()[0][0]
