"""The blocks of a search: fusing candidates, packaging them, and what is known of them on the way."""

from __future__ import annotations

import logging
import re
from dataclasses import replace

import numpy as np
import pytest

from sqlrag import (
    Chunk,
    RetrievePlan,
    Store,
    compress,
    drop_near_duplicates,
    fuse,
    index,
    lexical_query,
    package,
    rerank,
    retrieve,
)
from sqlrag.errors import InputError, NotFoundError
from sqlrag.ranking.results import RESULT_KEYS, Results
from sqlrag.telemetry import request
from sqlrag.types import Candidate, Candidates
from tests.support.helpers import HASHING, build, ids


def hit(name, score=0.0, index=0, **fields):
    return Candidate(name, index, f"text of {name}", score=score, **fields)


def names(candidates):
    return [candidate.node_id for candidate in candidates]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("blocks")
    with Store(build(folder, a_md="zebra lion", b_md="zebra", c_md="tiger", d_md="zebra lion tiger bear")) as opened:
        yield opened


# ---- fuse and package


@pytest.mark.parametrize(
    ("plan", "method", "params"),
    [
        ({}, "rrf", {}),
        ({"rrf_k": 5, "rrf_weights": (1, 3)}, "rrf", {"rrf_k": 5, "weights": [1, 3]}),
        ({"fusion": "weighted", "vector_weight": 0.2}, "weighted", {"vector_weight": 0.2}),
    ],
)
def test_fusing_both_legs_is_what_a_hybrid_search_does(store, plan, method, params):
    legs = [retrieve("zebra bear", RetrievePlan(mode=mode, k=50), store) for mode in ("vector", "lexical")]
    wanted = retrieve("zebra bear", RetrievePlan(k=50, **plan), store)
    assert fuse(legs, method, params) == wanted
    assert {candidate.lexical_rank for candidate in wanted} == {1, 2, 3, None}  # the tiger has no word of it
    assert package(wanted[:2], query_text="zebra bear") == package(wanted, query_text="zebra bear")[:2]


def test_convex_fusion_by_hand():
    one = [hit("a", 0.8, vector_score=0.8), hit("b", 0.2, vector_score=0.2)]
    other = [hit("b", 6.0, lexical_score=6.0), hit("c", 3.0, lexical_score=3.0)]
    # a: .5 · 1.8 / 1.8; b: .5 · 1.2 / 1.8 + .5 · 6 / 6; c: .5 · 3 / 6
    fused = fuse([one, other], "convex", {"alpha": 0.5})
    assert [(candidate.node_id, candidate.score) for candidate in fused] == [
        ("b#0", 0.833333333), ("a#0", 0.5), ("c#0", 0.25)
    ]  # fmt: skip
    assert (fused[0].vector_score, fused[0].lexical_score, fused[0].score_type) == (0.2, 6.0, "convex")


@pytest.mark.parametrize("method", ["rrf", "weighted", "convex"])
def test_case_G1_an_empty_leg_changes_no_shape(method):
    legs = [hit("a", 0.5, vector_score=0.5)], [hit("b", 2.0, lexical_score=2.0)]
    rows = [package(fuse(sets, method)) for sets in (legs, (legs[0], []), ([], legs[1]))]
    assert [ids(found) for found in rows] == [["a#0", "b#0"], ["a#0"], ["b#0"]]
    assert {tuple(row) for found in rows for row in found} == {RESULT_KEYS}
    assert {row["score_type"] for found in rows for row in found} == {method}
    assert fuse([[], []], method) == package(fuse([[], []], method)) == []
    assert fuse([]) == []


def test_case_G8_a_leg_without_any_spread_is_no_division_by_zero():
    least = [[hit("a", -1.0, vector_score=-1.0)], [hit("b", 0.0, lexical_score=0.0)]]
    assert [(hit.node_id, hit.score) for hit in fuse(least, "convex")] == [("a#0", 0.0), ("b#0", 0.0)]
    assert [(hit.node_id, hit.score) for hit in fuse(least, "weighted")] == [("a#0", 0.5), ("b#0", 0.5)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[hit("a")]], "borda"), "method must be one of 'adaptive', 'rrf', 'weighted', 'convex', not 'borda'"),
        (([[hit("a")]] * 2, "adaptive"), "adaptive fusion cannot find its trust in lists of candidates"),
        (([[hit("a")]] * 2, "adaptive", {"trust": 2}), "trust must be a number from 0 to 1, not 2"),
        (([[hit("a")]], "rrf", {"alpha": 0.5}), "params has alpha; 'rrf' takes rrf_k, weights"),
        (([[hit("a")]], "rrf", {"rrf_k": -1}), "must be a number"),
        (([[hit("a")]] * 2, "rrf", {"weights": [1]}), "weights must be 2 finite"),
        (([[hit("a")]] * 3, "weighted"), "two lists, not 3"),
        (([hit("a")],), "candidates"),
        (([["a#0"]],), "one is a str"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        fuse(*arguments)


def test_what_is_no_store_and_no_candidate_is_refused():
    with pytest.raises(InputError, match="store must be an open store"):
        retrieve("zebra", None, 7)
    with pytest.raises(InputError, match="one is a dict"):
        package([{"node_id": "a#0"}])


def test_a_result_has_every_key_and_the_source_that_is_given():
    (row,) = package([hit("a", 0.5, score_type="rrf")], sources={"a": {"text": "whole"}})
    assert tuple(row) == RESULT_KEYS
    assert (row["node_id"], row["score"], row["source_doc"]) == ("a#0", 0.5, {"text": "whole"})


# ---- what is known of candidates


def test_what_is_known_of_candidates_goes_through_every_block():
    before = Candidates([hit("a"), hit("b")], notices=["one leg was missing"], timings={"vector": 0.5})
    before.append(replace(hit("c"), content="Text  of A"))
    kept = drop_near_duplicates(before)
    steps = [kept, kept[:1], rerank("text", kept, lambda query, texts: [1, 2]), fuse([kept]), fuse([kept], "rrf")[::-1]]
    for step in steps:
        assert type(step) is Candidates
        assert (step.notices, step.timings) == (["one leg was missing"], {"vector": 0.5})
        assert step.dropped == {"a#0": ["c#0"]}
    for step in (package(kept), package(kept[:1]), compress("text", kept), compress("text", kept[:0])):
        assert type(step) is Results
        assert (step.notices, step.timings) == (["one leg was missing"], {"vector": 0.5})
    assert package(kept, notices=["shortened"]).notices == ["one leg was missing", "shortened"]


def test_each_step_has_its_own_lists():
    before = Candidates([hit("a")], notices=["first"], timings={"vector": 0.5}, dropped={"a#0": ["b#0"]})
    after = fuse([before])
    after.notices.append("second")
    after.timings["vector"] = 9.0
    after.dropped["a#0"].append("c#0")
    assert (before.notices, before.timings, before.dropped) == (["first"], {"vector": 0.5}, {"a#0": ["b#0"]})


def test_a_model_that_fails_adds_a_notice_to_what_comes_back_only():
    before = Candidates([hit("a"), hit("b")], notices=["first"])
    after = rerank("text", before, lambda query, texts: [], top_n=1)
    assert names(after) == ["a#0"]
    assert len(after.notices) == 2
    assert before.notices == ["first"]


def test_fusing_puts_together_what_is_known_of_each_list():
    one = Candidates([hit("a")], notices=["x", "y"], timings={"vector": 0.25}, dropped={"a#0": ["b#0", "c#0"]})
    other = Candidates(
        [hit("b")], notices=["y", "z"], timings={"vector": 0.5, "lexical": 1.0}, dropped={"b#0": ["d#0"]}
    )
    third = Candidates([hit("a")], dropped={"a#0": ["c#0", "b#0"]})
    fused = fuse([one, other, third])
    assert (fused.notices, fused.timings) == (["x", "y", "z"], {"vector": 0.75, "lexical": 1.0})
    assert fused.dropped == {"a#0": ["c#0"], "b#0": ["d#0"]}  # b is there by itself


def test_a_search_without_its_model_says_so_to_the_end(tmp_path):
    """The notice of a leg that was missing reaches the reader through all blocks."""

    class Down:
        provider, model_name, dimensions, max_tokens, special_tokens = "hashing", "hashing-64", 64, 512, 0
        query_prefix = passage_prefix = ""

        def embed(self, texts, *, kind):
            raise ConnectionError("down")

        def token_offsets(self, text):
            return []

    path = build(tmp_path, a_md="zebra", b_md="zebra", options=HASHING)
    with Store(path, embedder=Down()) as store:
        found = retrieve("zebra", None, store)
        results = package(rerank("zebra", drop_near_duplicates(fuse([found])), lambda query, texts: [1.0]))
    assert ids(results) == ["a.md#0"]
    assert results.notices == found.notices
    assert any("down" in notice for notice in results.notices)


class TestVectorsOfAStore:
    def test_they_are_those_of_the_chunks_in_the_order_of_the_names(self, tmp_path):
        with Store(build(tmp_path, a_md="alpha", b_md="beta", c_md="gamma")) as store:
            names = ["c.md#0", "a.md#0", "c.md#0"]
            vectors = store.vectors(names)
            assert (vectors.shape, vectors.dtype) == ((3, 64), np.float32)
            for name, vector in zip(names, vectors, strict=True):
                assert store.vector_query(query_vector=vector, top_k=1)[0]["node_id"] == name
            assert store.vectors([]).shape == (0, 64)
            with pytest.raises(NotFoundError, match="no chunk"):
                store.vectors(["a.md#0", "a.md#7"])

    def test_the_name_of_the_cosine_is_no_model(self):
        with pytest.raises(InputError, match=r"pass store="):
            rerank("q", [Candidate("a", 0, "x")], "cosine")


def test_a_row_shares_nothing_with_its_candidate():
    found = Candidate("a", 0, "x", metadata={"authors": ["one"]})
    package([found])[0]["metadata"]["authors"].append("two")
    assert found.metadata == {"authors": ["one"]}


def test_a_search_is_logged_with_the_id_of_its_request(tmp_path, caplog):
    path = build(tmp_path, a_md="alpha", b_md="alpha beta")
    with caplog.at_level(logging.DEBUG, logger="sqlrag"), request("my-request"):
        lexical_query("alpha", path, top_k=3)
    (record,) = [record for record in caplog.records if record.name == "sqlrag.query"]
    assert re.fullmatch(
        r"\[my-request\] lexical search, top_k 3: 2 results, bm25 [\d.]+ to [\d.]+, in [\d.]+ ms", record.getMessage()
    )


def test_a_store_of_another_engine_can_be_filled():
    class Elsewhere:
        def retrieve(self, query, plan, *, query_vector=None):
            return []

        def index(self, chunks, *, vectors=None):
            return len(chunks), vectors

    assert index([Chunk("a", 0, "x")], Elsewhere(), vectors=[[1.0]]) == (1, [[1.0]])
    for wrong in (["kb.duckdb"], object()):
        with pytest.raises(InputError, match="db_path"):
            index([Chunk("a", 0, "x")], wrong)
