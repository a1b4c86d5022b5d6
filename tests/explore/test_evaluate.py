"""Evaluation: the figures are those of ir-measures, whatever the questions and plans come from."""

from __future__ import annotations

import json
import sys
from itertools import product

import ir_measures
import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

import sqlrag
from sqlrag.cli import app
from sqlrag.explore.questions import Question
from tests.support.stores import make_small_store

# Of tests/support/stores.py: a.md "duck pond" and "duck duck bread", b.md "goose pond water pond", c.pdf "bread oven".
QUESTIONS = [
    {"id": "pond", "query": "pond", "relevant": {"a.md": 1, "b.md": 2}},
    {"id": "bread", "query": "bread", "relevant": ["notes:c.pdf"]},
    {"id": "none", "query": "zeppelin", "relevant": ["b.md"]},
]
LEXICAL = {"bm25": {"mode": "lexical"}, "text only": {"mode": "lexical", "fields": "text"}}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("evaluating") / "small.duckdb"
    make_small_store(path)
    with sqlrag.Store(path) as store:
        yield store


def test_the_means_are_those_of_ir_measures_over_the_ranking_of_the_search(small):
    found = sqlrag.evaluate(QUESTIONS, small, LEXICAL, measures=["nDCG@10", "RR@10", "R@1"])
    measures = [ir_measures.parse_measure(name) for name in found.measures]
    qrels = {
        one["id"]: one["relevant"] if isinstance(one["relevant"], dict) else {one["relevant"][0]: 1}
        for one in QUESTIONS
    }
    for plan, options in LEXICAL.items():
        run = {}
        for one in QUESTIONS:
            rows = small.lexical_query(one["query"], top_k=100, fields=options.get("fields"))
            run[one["id"]] = {doc_id: -rank for rank, doc_id in enumerate(dict.fromkeys(r["doc_id"] for r in rows))}
        expected = ir_measures.calc_aggregate(measures, qrels, run)
        assert found.means[plan] == {str(name): pytest.approx(value) for name, value in expected.items()}
    assert found.scores["bm25"]["none"] == {"nDCG@10": 0.0, "RR@10": 0.0, "R@1": 0.0}


def test_a_document_stands_where_its_best_chunk_does_and_a_chunk_for_itself(small):
    by_document = sqlrag.evaluate([{"query": "duck", "relevant": ["a.md"]}], small, LEXICAL)
    assert by_document.unit == "doc_id"
    assert by_document.ranked["bm25"]["1"] == ["a.md"]
    by_chunk = sqlrag.evaluate([{"query": "duck", "relevant": ["a.md#1"]}], small, LEXICAL)
    assert by_chunk.unit == "node_id"
    assert set(by_chunk.ranked["bm25"]["1"]) == {"a.md#0", "a.md#1"}


def test_every_kind_of_plan_and_a_given_vector(small):
    questions = [{"query": "pond", "relevant": ["b.md"], "query_vector": [1.0, *[0.0] * 7]}]
    plans = {
        "options": {"mode": "vector"},
        "plan": sqlrag.RetrievePlan(mode="vector"),
        "function": lambda store, text: store.lexical_query(text),
        "fused": {"fusion": "convex", "fts_top_k": 2},
    }
    found = sqlrag.evaluate(questions, small, plans)
    assert found.ranked["options"] == found.ranked["plan"]
    assert found.ranked["options"]["1"][0] == "a.md"
    assert found.ranked["function"]["1"][0] == "b.md"
    assert list(sqlrag.evaluate(questions, small).means) == [
        "lexical",
        "vector",
        "rrf",
        "weighted",
        "convex",
        "adaptive",
    ]


def test_beir_and_jsonl_give_what_a_list_gives(small, tmp_path):
    lines = [json.dumps(one) for one in QUESTIONS]
    (tmp_path / "questions.jsonl").write_text("\n".join(lines), "utf-8")
    (tmp_path / "qrels").mkdir()
    (tmp_path / "queries.jsonl").write_text(
        "\n".join(json.dumps({"_id": one["id"], "text": one["query"]}) for one in QUESTIONS), "utf-8"
    )
    table = tmp_path / "qrels" / "test.tsv"
    rows = ["pond\ta.md\t1", "pond\tb.md\t2", "bread\tnotes:c.pdf\t1", "none\tb.md\t1"]
    table.write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]), "utf-8")
    wanted = sqlrag.evaluate(QUESTIONS, small, LEXICAL)
    for given in (tmp_path / "questions.jsonl", tmp_path, table):
        assert sqlrag.evaluate(given, small, LEXICAL).scores == wanted.scores


def test_comparisons_best_and_worst(small):
    found = sqlrag.evaluate(QUESTIONS, small, {**LEXICAL, "nothing": lambda store, text: []})
    # Two questions won of two that differ: of the four ways to choose the signs two are as far from 0.
    assert found.compare("bm25", "nothing") == (2, 0, 1, pytest.approx(found.means["bm25"]["nDCG@10"]), 0.5)
    assert found.compare("bm25", "bm25").p_value == 1.0
    assert [one["query_id"] for one in found.worst("bm25", 1)] == ["none"]
    assert found.best("bm25", 1, "RR@10")[0]["query_id"] == "pond"
    with pytest.raises(sqlrag.InputError, match="measure"):
        found.worst("bm25", measure="AP")
    assert found.sentence("nothing") == (
        f"nDCG@10 over 3 questions: nothing 0.0000, bm25 {found.means['bm25']['nDCG@10']:.4f}; "
        f"{-found.means['bm25']['nDCG@10']:+.4f}, 0 won, 2 lost, 1 tied. Too few questions differ to tell; it takes 6 "
        "(p = 0.5000)."
    )


def compared(gaps):
    """Return the comparison of two plans whose values differ by these gaps, question by question."""
    questions = [Question(str(n), f"question {n}", {"a.md": 1}) for n in range(len(gaps))]
    values = {"new": [max(gap, 0) for gap in gaps], "old": [max(-gap, 0) for gap in gaps]}
    scores = {plan: {str(n): {"AP": value} for n, value in enumerate(of)} for plan, of in values.items()}
    evaluation = sqlrag.Evaluation(
        measures=["AP"], unit="doc_id", questions=questions, scores=scores, ranked={}, against="old"
    )
    return evaluation.compare("new", "old")


@pytest.mark.parametrize(
    "gaps",
    [[0.1], [0.5, -0.5], [0.3, 0.1, 0.2, -0.1, 0], [0.25] * 5, [0.25] * 6, [0.1, -0.3, 0.2, 0.7, 0.05, 0.4, -0.1, 0.6]],
)
def test_the_p_value_is_that_of_every_choice_of_signs(gaps):
    sums = [sum(s * gap for s, gap in zip(signs, gaps, strict=True)) for signs in product((1, -1), repeat=len(gaps))]
    as_far = sum(abs(one) >= abs(sum(gaps)) - 1e-12 for one in sums)
    assert compared(gaps).p_value == as_far / len(sums)


def test_the_p_value_of_many_questions_is_drawn_near_the_exact_one_and_always_the_same():
    gaps = [((7 * n) % 11 - 4) / 20 for n in range(18)]
    signs = 1 - 2 * (np.arange(2**18)[:, None] >> np.arange(18) & 1)
    exact = np.mean(np.abs(signs @ np.array(gaps)) >= abs(sum(gaps)) - 1e-12)
    drawn = compared(gaps).p_value
    assert 0.05 < exact < 0.5
    assert drawn == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 10_000) ** 0.5)
    assert drawn == compared(gaps[::-1]).p_value == compared([-gap for gap in gaps]).p_value
    assert compared([0.1] * 200).p_value == 1 / 10_001
    assert compared([0.0] * 20).p_value == 1.0


def test_what_a_difference_is_worth():
    assert compared([0.2] * 5).verdict == "too few questions"  # p = 2 / 32, and it cannot be less
    assert compared([0.2] * 6).verdict == "real"
    assert compared([-0.2] * 6).verdict == "real"
    assert compared([0.2, -0.2] * 10).verdict == "noise"


def test_a_row_compares_its_plan_with_the_one_in_use(small):
    found = sqlrag.evaluate(QUESTIONS, small, {"nothing": lambda store, text: [], **LEXICAL}, against="bm25")
    first, bm25, _ = found.rows()
    assert [first[name] for name in ("wins", "losses", "ties", "p_value", "verdict")] == [
        0, 2, 1, 0.5, "too few questions",
    ]  # fmt: skip
    assert first["difference"] == -found.means["bm25"]["nDCG@10"]
    assert bm25["difference"] is bm25["p_value"] is None
    outcomes = {row["query_id"]: row["outcome"] for row in found.per_query() if row["plan"] == "nothing"}
    assert outcomes == {"pond": "lost", "bread": "lost", "none": "tied"}
    assert repr(found).splitlines()[1].split()[-4:] == ["0.5000", "too", "few", "questions"]
    assert sqlrag.evaluate(QUESTIONS, small, LEXICAL).against == "bm25"  # the first, where none is "adaptive"
    with pytest.raises(sqlrag.InputError, match="against"):
        sqlrag.evaluate(QUESTIONS, small, LEXICAL, against="rrf")


def test_half_a_search_is_not_measured_as_the_whole(small):
    # The store names no model, so that the question has no vector.
    with pytest.raises(sqlrag.SqlragError):
        sqlrag.evaluate(QUESTIONS, small, ["rrf"])
    assert sqlrag.evaluate(QUESTIONS, small, {"as it comes": {"fusion": "rrf", "strict": False}}).means


def test_it_is_text_a_frame_html_and_trec_files(small, tmp_path):
    found = sqlrag.evaluate([{**QUESTIONS[0], "id": "a <b>"}], small, {"x <i>": {"mode": "lexical"}})
    assert repr(found).splitlines()[0].split() == ["plan", "questions", "nDCG@10", "R@100", "RR@10"]
    assert "<i>" not in found._repr_html_()
    assert list(found.df()["nDCG@10"]) == [found.means["x <i>"]["nDCG@10"]]
    assert list(found.df(per_query=True)["query_id"]) == ["a <b>"]
    qrels, run = found.write_trec(tmp_path / "trec")
    got = ir_measures.calc_aggregate(
        [ir_measures.nDCG @ 10], ir_measures.read_trec_qrels(str(qrels)), ir_measures.read_trec_run(str(run))
    )
    assert got[ir_measures.nDCG @ 10] == pytest.approx(found.means["x <i>"]["nDCG@10"])


@pytest.mark.parametrize(
    ("questions", "plans", "options", "message"),
    [
        ([], None, {}, "No question has a relevant"),
        ([{"query": "x", "relevant": {"b.md": 0}}], None, {}, "No question has a relevant"),
        ([{"query": "x", "relevant": ["z.md"]}], None, {}, "no document and no chunk .*'z.md'"),
        ([{"query": "x", "relevant": ["b.md", "a.md#0"]}], None, {}, "use only one of these"),
        ([{"id": 1, "query": "x", "relevant": ["b.md"]}] * 2, None, {}, "two questions"),
        ([{"query": " ", "relevant": ["b.md"]}], None, {}, "not blank"),
        ([{"query": "x"}], None, {}, "relevant"),
        ([{"query": "x", "relevant": {"b.md": 0.5}}], None, {}, "whole number"),
        (QUESTIONS, ["bm25"], {}, "'lexical', 'vector'"),
        (QUESTIONS, {"a": {"fuson": "rrf"}}, {}, "fuson"),
        (QUESTIONS, {"a": 3}, {}, "plan 'a'"),
        (QUESTIONS, {}, {}, "empty"),
        (QUESTIONS, LEXICAL, {"measures": ["gain"]}, "no measure 'gain'"),
        (QUESTIONS, LEXICAL, {"measures": ["ndcg"]}, r"no measure 'ndcg'; did you mean 'nDCG@10'\?"),
        (QUESTIONS, LEXICAL, {"measures": ["recal@5"]}, r"did you mean 'R@5'\?"),
        (QUESTIONS, LEXICAL, {"measures": ["gain"]}, r"'gain'; use a name of ir-measures"),
        (pd.DataFrame([{"query": "x", "relevant": ["b.md"]}]), LEXICAL, {}, r'frame.to_dict\("records"\), with.*query'),
        (pl.DataFrame([{"query": "x", "relevant": ["b.md"]}]), LEXICAL, {}, r"frame.to_dicts\(\), with"),
        (QUESTIONS, LEXICAL, {"measures": ["nDCG@0"]}, "no measure 'nDCG@0'"),  # trec_eval would end the process
        (QUESTIONS, LEXICAL, {"measures": ["alpha_nDCG@10"]}, "'alpha_nDCG@10' cannot be computed here: .*pyndeval"),
        (QUESTIONS, LEXICAL, {"measures": ["nDCG@10", "BPM"]}, "'BPM' cannot be computed here"),
        (QUESTIONS, LEXICAL, {"measures": []}, "empty"),
        (QUESTIONS, {"mine": lambda *_: None}, {}, "plan 'mine' must return .*, not None"),
        (QUESTIONS, {"mine": lambda *_: [{"text": "x"}]}, {}, "plan 'mine' must return"),
        (QUESTIONS, LEXICAL, {"depth": 0}, "depth"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_said(small, questions, plans, options, message):
    with pytest.raises(sqlrag.InputError, match=message):
        sqlrag.evaluate(questions, small, plans, **options)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.jsonl", b'{"query": "caf\xe9", "relevant": ["b.md"]}', "q.jsonl cannot be read as UTF-8"),
        ("q.jsonl", b"[" * 100_000, "q.jsonl, line 1 is not JSON"),
        ("qrels.tsv", b"query-id\tcorpus-id\tscore\n1\tb.md\t--1\n", "qrels.tsv, line 2"),
        ("qrels.tsv", "1\tb.md\t²\n".encode(), "qrels.tsv, line 1"),
    ],
    ids=["bytes", "deep", "minus", "square"],
)
def test_a_file_that_is_wrong_is_said(small, tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    (tmp_path / "queries.jsonl").write_text('\ufeff{"_id": "1", "text": "x"}\n', encoding="utf-8")
    with pytest.raises(sqlrag.InputError, match=message):
        sqlrag.evaluate(tmp_path / name, small, LEXICAL)


def test_ids_that_the_file_lacks_are_told_and_missed(small):
    found = sqlrag.evaluate([{"query": "pond", "relevant": ["b.md", "z.md"]}], small, LEXICAL)
    assert "'z.md'" in found.notices[0]
    assert found.means["bm25"]["R@100"] == 0.5


def test_without_ir_measures(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    with pytest.raises(sqlrag.MissingExtraError, match=r"sqlrag-duckdb\[explore\]"):
        sqlrag.evaluate(QUESTIONS, small)


def test_the_command(small, tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(json.dumps(one) for one in QUESTIONS), "utf-8")
    arguments = [
        "evaluate",
        str(path),
        "--db",
        str(small.path),
        "--plan",
        "lexical",
        "--plan",
        'k0={"mode": "lexical", "k1": 0}',
    ]
    shown = CliRunner().invoke(app, [*arguments, "--measure", "nDCG@10", "--trec", str(tmp_path / "trec")])
    assert shown.exit_code == 0, shown.output
    assert "plan     questions  nDCG@10" in shown.stdout
    assert (tmp_path / "trec" / "k0.run").exists()
    rows = json.loads(CliRunner().invoke(app, [*arguments, "--format", "json", "--per-query"]).stdout)
    assert len(rows) == 6
    assert CliRunner().invoke(app, [*arguments, "--plan", "bm52"]).exit_code == 2
