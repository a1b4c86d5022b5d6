"""Adaptive fusion in a store: vectors that know nothing, the sample, SQL and Python, several files, the explanation."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

import sqlrag
from sqlrag import Chunk, Document, Store, Stores
from sqlrag.ranking.explanation import AdaptivePart
from sqlrag.ranking.fusion import LEAST_SAMPLE, SAMPLE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNKS, DIMENSIONS = 600, 64
WORDS = [f"word{chr(97 + i // 12)}{chr(97 + i % 12)}" for i in range(144)]


def texts() -> list[str]:
    chance = random.Random(1)
    return [" ".join(chance.choices(WORDS, [1 / (3 + i) for i in range(144)], k=30)) for _ in range(CHUNKS)]


def vectors(*, knowing: bool) -> np.ndarray:
    """Vectors that follow from the counts of words, or have nothing to do with them."""
    chance = np.random.default_rng(2)
    noise = chance.normal(size=(CHUNKS, DIMENSIONS))
    if not knowing:
        return noise
    counts = np.array([[text.split().count(word) for word in WORDS] for text in texts()], dtype=float)
    # Common words count little, as in BM25, and every chunk holds the commonest.
    weights = np.log1p(CHUNKS / (counts > 0).sum(0))
    return counts @ (weights[:, None] * BASIS) + 0.2 * noise


BASIS = np.random.default_rng(3).normal(size=(len(WORDS), DIMENSIONS))


def question_vector(text: str, *, knowing: bool) -> np.ndarray:
    if knowing:
        return sum((BASIS[WORDS.index(word)] for word in text.split() if word in WORDS), np.full(DIMENSIONS, 1e-3))
    return np.random.default_rng(sum(map(ord, text))).normal(size=DIMENSIONS)


def fill(store: Store, rows: list[int], *, knowing: bool) -> None:
    written, made = texts(), vectors(knowing=knowing)
    names = sorted({row // 3 for row in rows})
    store.upsert(
        [Document(f"d{name:03}.md", f"d{name}") for name in names],
        [Chunk(f"d{row // 3:03}.md", row % 3, written[row], tags=("odd",) if row % 2 else ("even",)) for row in rows],
        made[rows],
    )


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store whose vectors say nothing of its texts."""
    with Store.create(tmp_path_factory.mktemp("noise") / "kb.duckdb", DIMENSIONS) as store:
        fill(store, list(range(CHUNKS)), knowing=False)
        yield store


@pytest.fixture(scope="module")
def knowing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.create(tmp_path_factory.mktemp("knowing") / "kb.duckdb", DIMENSIONS) as store:
        fill(store, list(range(CHUNKS)), knowing=True)
        yield store


def asked(number: int = 15) -> list[str]:
    chance = random.Random(4)
    return [" ".join(chance.sample(WORDS[5:], chance.randint(3, 6))) for _ in range(number)]


def misspelt(number: int = 12) -> list[str]:
    """Return questions of which some chunk holds a common word or two, and none the others."""
    chance = random.Random(5)
    return [" ".join([*chance.sample(WORDS[:12], chance.randint(1, 2)), "zzzqqq", "xyzzy"]) for _ in range(number)]


def found(store: Store | Stores, text: str, *, knowing: bool, **options) -> list[tuple[str, float]]:
    options = {"top_k": 10, "query_vector": question_vector(text, knowing=knowing), **options}
    return [(row["node_id"], row["score"]) for row in store.hybrid_query(text, **options)]


def first(rows, number: int = 1) -> set[str]:
    return {node_id for node_id, _ in rows[:number]}


@pytest.mark.slow
def test_fault_K1_the_default_is_not_below_the_words_where_the_vectors_are_noise(noise):
    """Reciprocal ranks hide that a leg is noise: half of their first ten are its own."""
    kept = {"adaptive": 0, "rrf": 0}
    untrusted = 0
    for text in asked():
        words = {row["node_id"] for row in noise.lexical_query(text, top_k=10)}
        for fusion in kept:
            kept[fusion] += len(words & first(found(noise, text, knowing=False, fusion=fusion), 10))
        results = noise.hybrid_query(text, query_vector=question_vector(text, knowing=False))
        assert results[0]["score_type"] == "adaptive"
        untrusted += any("meaning and words do not agree" in notice for notice in results.notices)
    assert kept["adaptive"] > 0.8 * 10 * len(asked())
    assert kept["rrf"] < 0.65 * 10 * len(asked())
    assert untrusted > len(asked()) / 3


@pytest.mark.slow
def test_vectors_that_know_something_are_believed_without_a_notice(knowing):
    for text in asked():
        told = knowing.hybrid_query(text, query_vector=question_vector(text, knowing=True))
        assert told.notices == []
        explained = knowing.explain(text, told[0]["node_id"], query_vector=question_vector(text, knowing=True))
        assert explained.adaptive.trust > 0.5
        assert LEAST_SAMPLE <= explained.adaptive.chunks <= SAMPLE


@pytest.mark.slow
def test_fault_K3_feedback_and_expansion_are_left_out_where_the_vectors_are_noise(noise):
    seen = 0
    for text in asked(12):
        options = {"query_vector": question_vector(text, knowing=False)}
        plain = noise.hybrid_query(text, **options)
        for more in ({"feedback": 2}, {"expansion": 5}, {"feedback": 2, "fusion": "rrf"}):
            results = noise.hybrid_query(text, **options, **more)
            told = [notice for notice in results.notices if "left out, which would follow noise" in notice]
            if not any("do not agree" in notice for notice in plain.notices):
                assert told == []
                continue
            seen += 1
            assert len(told) == 1
            without = noise.hybrid_query(text, **options, fusion=more.get("fusion", "adaptive"))
            assert list(results) == list(without)
    assert seen


def test_feedback_still_moves_what_is_trusted(knowing):
    text = asked()[0]
    assert found(knowing, text, knowing=True, feedback=2) != found(knowing, text, knowing=True)


def test_fault_K10_a_question_without_a_known_word_is_told(knowing):
    results = knowing.hybrid_query("zzzqqq xyzzy plugh", query_vector=np.ones(DIMENSIONS))
    assert results.notices == ["No chunk holds any of the words; the order is by the vectors."]
    nearest = knowing.vector_query(query_vector=np.ones(DIMENSIONS))
    assert [row["node_id"] for row in results] == [row["node_id"] for row in nearest]
    assert all(0 < row["score"] <= 0.75 for row in results)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["noise", "knowing"])
def test_sql_and_python_give_the_same(request, name):
    store = request.getfixturevalue(name)
    chance = random.Random(6)
    for text in [*asked(), *misspelt(), "zzzqqq", " ".join(WORDS)]:
        vector = question_vector(text, knowing=name == "knowing")
        k = chance.choice([1, 5, 10, 150])
        tags = chance.choice([None, ["odd"]])
        python = store.hybrid_query(text, top_k=k, query_vector=vector, tags_any=tags)
        sql = (
            store.cursor()
            .execute(
                # As large a pool as Python takes for vectors that are this short.
                "SELECT node_id, score "
                "FROM hybrid_query($text, $vector, k := $k, tags_any := $tags, codes_pool := 1000)",
                {"text": text, "vector": str(vector.tolist()), "k": k, "tags": tags},
            )
            .fetchall()
        )
        assert [row["node_id"] for row in python] == [node_id for node_id, _ in sql]
        assert [row["score"] for row in python] == pytest.approx([score for _, score in sql], abs=1e-9)


@pytest.mark.slow
def test_the_parts_of_the_explanation_add_up(noise, knowing):
    lifted = 0
    for store, known in ((noise, False), (knowing, True)):
        for text in asked(12):
            vector = question_vector(text, knowing=known)
            for row in store.hybrid_query(text, query_vector=vector):
                told = store.explain(text, row["node_id"], query_vector=vector)
                part = told.adaptive
                total = told.vector.contribution + told.lexical.contribution + part.lift
                assert told.score == row["score"] == pytest.approx(total, abs=1e-9)
                for leg in (told.vector, told.lexical):
                    assert eval(leg.formula) == pytest.approx(leg.contribution, abs=2e-8)
                assert f"0.75 * {part.trust:.9g} *" in told.vector.formula
                if told.lexical.contribution:
                    assert f"0.5 * {part.gap:.9g} *" in told.lexical.formula
                assert f"over {part.chunks} chunks" in str(told)
                lifted += bool(part.lift)
                assert ("first of a leg" in str(told)) is bool(part.lift)
    assert lifted


@pytest.mark.slow
@pytest.mark.parametrize("known", [False, True])
def test_places_do_not_depend_on_top_k(noise, knowing, known):
    store = knowing if known else noise
    for text in asked(10):
        five = found(store, text, knowing=known, top_k=5)
        assert all(found(store, text, knowing=known, top_k=k)[:5] == five for k in (20, 100))


@pytest.mark.slow
def test_the_first_of_each_leg_is_among_the_first_five(knowing):
    for text in asked():
        results = knowing.hybrid_query(text, top_k=5, query_vector=question_vector(text, knowing=True))
        vector = question_vector(text, knowing=True)
        told = knowing.explain(text, results[0]["node_id"], query_vector=vector).adaptive
        assert 1 in {row["vector_rank"] for row in results} or told.trust < 0.5
        assert 1 in {row["lexical_rank"] for row in results} or told.gap < 0.25


def test_filters_do_not_change_the_trust(noise):
    """The words are weighed over all chunks, whatever the filters; so are the vectors."""
    text = asked()[1]
    vector = question_vector(text, knowing=False)
    trusts = set()
    for tags in (None, ["odd"], ["even"]):
        best = noise.hybrid_query(text, query_vector=vector, tags_any=tags)[0]["node_id"]
        told = noise.explain(text, best, query_vector=vector, tags_any=tags).adaptive
        trusts.add((told.trust, told.rho, told.chunks))
    assert len(trusts) == 1


@pytest.mark.slow
def test_words_that_are_left_of_a_question_do_not_speak_against_the_vectors(noise):
    """ "How do filtrs work?": no chunk holds the word that matters, and BM25 of the other one orders by chance."""
    least = 0
    for text in misspelt():
        vector = question_vector(text, knowing=False)
        results = noise.hybrid_query(text, query_vector=vector)
        assert not any("do not agree" in notice for notice in results.notices)
        told = noise.explain(text, results[0]["node_id"], query_vector=vector)
        assert told.adaptive.known < 0.5 <= told.adaptive.trust
        least += (told.adaptive.trust, told.adaptive.rho is None) == (0.5, False)
        assert 1 in {row["vector_rank"] for row in results[:5]}
    assert least > 5
    assert f"0.5 to 1, rho {told.adaptive.rho:.9f}" in str(told)
    assert f"words of {told.adaptive.known:.0%} of the question's weight" in str(told)


@pytest.mark.slow
def test_several_files_have_the_sample_and_the_scores_of_the_merged_one(tmp_path: Path, noise):
    paths = []
    for part in range(3):
        paths.append(tmp_path / f"{part}.duckdb")
        with Store.create(paths[-1], DIMENSIONS) as store:
            # Not in the order of the whole file, so that a chunk has another number in it.
            fill(store, [row for row in range(CHUNKS) if row // 3 % 3 == 2 - part], knowing=False)
    with Stores(paths) as many:
        for text in [*asked(12), *misspelt()]:
            assert found(many, text, knowing=False) == found(noise, text, knowing=False)


@pytest.mark.slow
def test_the_number_of_threads_changes_nothing(noise):
    rows = {}
    for threads in (1, 2):
        with Store(noise.path, threads=threads) as store:
            rows[threads] = [found(store, text, knowing=False) for text in asked(8)]
    assert rows[1] == rows[2]


def test_a_file_of_few_chunks_trusts_its_vectors(tmp_path):
    with Store.create(tmp_path / "kb.duckdb", 4) as store:
        store.upsert([Document("a.md", "a")], [Chunk("a.md", 0, "one zebra")], [[1, 0, 0, 0]])
        told = store.explain("zebra", "a.md#0", query_vector=[1, 1, 0, 0])
    assert told.score == 1.25
    assert told.adaptive == AdaptivePart(trust=1.0, rho=None, chunks=1, known=1.0, gap=1.0, lift=0.0)
    assert "trust 1 = 1, since only 1 chunk holds a word" in str(told)


@pytest.mark.slow
def test_fewer_than_a_hundred_chunks_are_too_few_to_speak_of_noise(tmp_path):
    """The order follows the trust there as well; only the alarm is left out."""
    with Store.create(tmp_path / "kb.duckdb", DIMENSIONS) as store:
        fill(store, list(range(90)), knowing=False)
        noisy = 0
        for text in asked():
            vector = question_vector(text, knowing=False)
            results = store.hybrid_query(text, query_vector=vector)
            assert not any("do not agree" in notice for notice in results.notices)
            noisy += store.explain(text, results[0]["node_id"], query_vector=vector).adaptive.trust < 0.1
    assert noisy > 2


def test_other_fusions_have_no_weights_to_explain(noise):
    text = asked()[0]
    best = noise.lexical_query(text)[0]["node_id"]
    for fusion in ("rrf", "convex"):
        told = noise.explain(text, best, fusion=fusion, query_vector=question_vector(text, knowing=False))
        assert told.adaptive is None


def test_a_missing_phrase_counts_for_nothing(noise):
    results = noise.hybrid_query('"wordac wordgh wordbf"', syntax=True, query_vector=np.ones(DIMENSIONS))
    assert [row["lexical_score"] for row in results] == [None] * 5
    assert sqlrag.hybrid_query("wordac", noise, use_rrf=True, query_vector=np.ones(DIMENSIONS))[0]["score"] < 0.04
