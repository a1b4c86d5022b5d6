"""A second search with what the best chunks of the first one add."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

from sqlrag import Chunk, Document, InputError, Store
from sqlrag.engines.duckdb.legs import default_pool, expanded_terms, moved_vector
from sqlrag.engines.duckdb.lexical import query_terms

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEXTS = [
    "the heat pump of the house",
    "the heat pump and its compressor",
    "a compressor needs refrigerant",
    "refrigerant is a fluid",
    "the garden of the house",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    vectors = np.eye(8)[:5] + np.eye(8)[1:6] * 0.8  # each near to its neighbours
    path = tmp_path_factory.mktemp("made") / "kb.duckdb"
    with Store.create(path, 8) as store:
        documents = [Document(f"{i}.txt", text) for i, text in enumerate(TEXTS)]
        store.upsert(documents, [Chunk(d.doc_id, 0, d.text) for d in documents], vectors)
    return path


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Iterator[Store]:
    with Store(shutil.copy(made, tmp_path), read_only=False) as store:
        yield store


def test_the_vector_moves_as_the_formula_says(store: Store) -> None:
    query = np.eye(8, dtype=np.float32)[0]
    rows = store.cursor().execute("SELECT embedding FROM documents WHERE rid IN (1, 2) ORDER BY rid").fetchall()
    mean = np.mean([row[0] for row in rows], axis=0)
    wanted = 0.6 * query + 0.4 * mean
    moved = moved_vector(query, store.vectors(["1.txt#0", "2.txt#0"]), 0.4)
    assert moved == pytest.approx(wanted / np.linalg.norm(wanted), abs=1e-6)
    assert moved_vector(query, store.vectors(["1.txt#0"]), 0.0) == pytest.approx(query)


def test_feedback_searches_with_the_moved_vector(store: Store) -> None:
    """The second search is the one that its two best chunks lead to: same scores as with that vector given."""
    query = np.eye(8, dtype=np.float32)[0]
    first = store.hybrid_query("heat pump", query_vector=query, fusion="convex")
    moved = moved_vector(query, store.vectors([row["node_id"] for row in first[:2]]), 0.4)
    again = store.hybrid_query("heat pump", query_vector=moved, fusion="convex")
    found = store.hybrid_query("heat pump", query_vector=query, fusion="convex", feedback=2)
    assert [(r["node_id"], r["score"]) for r in found] == [(r["node_id"], r["score"]) for r in again]
    assert [r["score"] for r in found] != [r["score"] for r in first]
    assert "feedback" in found.timings
    assert "feedback" not in first.timings


def test_a_damaged_vector_is_no_feedback(store: Store) -> None:
    store.cursor().execute("UPDATE documents SET embedding = array_value(" + "'nan'::FLOAT, " * 7 + "0) WHERE rid = 1")
    query = np.eye(8, dtype=np.float32)[0]
    assert moved_vector(query, store.vectors(["1.txt#0"]), 0.4) == pytest.approx(query)


def by_words(store: Store, **options: int) -> set[str]:
    """Return what the words of "heat" find, or those that are added to it."""
    results = store.hybrid_query("heat", top_k=50, query_vector=np.eye(8)[7], **options)
    return {row["node_id"] for row in results if row["lexical_score"]}


def test_expansion_adds_the_terms_that_tell_the_best_chunks(store: Store) -> None:
    con = store.cursor()
    own = query_terms(con, "heat pump", "porter")
    more = expanded_terms(con, own, ["0.txt#0", "1.txt#0"], 2, 0.5, "porter")
    terms = dict(con.execute("SELECT termid, term FROM fts_main_documents.dict").fetchall())
    boosts = {terms[termid]: boost for termid, boost in zip(more.termids, more.boosts, strict=True)}
    # Two terms of four, alike in both chunks: each word of the question keeps half, the added ones share as much.
    assert sum(boosts.values()) == pytest.approx(2)
    assert set(boosts) == {"heat", "pump", *boosts}
    assert "the" not in boosts  # a stop word
    held = {"0.txt#0", "1.txt#0"}
    assert by_words(store) == by_words(store, expansion=5) == held  # fewer than ten: they single out what is meant
    names = [f"{i}.txt" for i in range(5, 15)]
    documents = [Document(name, "the heat pump and its compressor") for name in names]
    store.upsert(documents, [Chunk(d.doc_id, 0, d.text) for d in documents], np.tile(np.eye(8)[6], (10, 1)))
    held |= {f"{name}#0" for name in names}
    assert by_words(store) == held
    assert by_words(store, expansion=5) > held


def test_nothing_to_go_by(store: Store) -> None:
    options = {"query_vector": np.eye(8)[0], "feedback": 3, "expansion": 5}
    assert len(store.hybrid_query("zebra", **options)) == 5  # the vector leg alone
    assert store.hybrid_query("zebra", collection="other", **options) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("feedback", value) for value in (-1, True, 1.5, 51)],
        *[("expansion", value) for value in (-1, 10**6)],
        *[("feedback_weight", value) for value in (2, float("nan"), "x")],
    ],
)
def test_wrong_options(store: Store, name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        store.hybrid_query("heat", query_vector=np.eye(8)[0], **{name: value})  # type: ignore[arg-type]


def test_the_pool_grows_with_the_store(store: Store) -> None:
    assert [default_pool(n, 384) for n in (0, 10_000, 100_000, 1_000_000)] == [750, 750, 750, 2986]
    assert default_pool(100_000, 1024) == 750
    assert default_pool(100_000, 128) == 2250  # fewer bits tell less
    assert default_pool(10_000, 384, 200) == 1200
    results = store.hybrid_query("heat", query_vector=np.eye(8)[0])
    assert results.methods == {
        "vector": f"exact: the pool of {default_pool(5, 8):,} holds every chunk",
        "lexical": "every posting scored",
    }
    assert f"codes_pool := {default_pool(5, 8)}" in results.sql
    assert "every vector" in store.vector_query(query_vector=np.eye(8)[0], exact=True).methods["vector"]
