"""Explanations: they add up to what the search returned, for whatever question and options."""

from __future__ import annotations

import json
import math

import pytest

import sqlrag
from tests.support.helpers import ROOT

QUESTIONS = [json.loads(line)["text"] for line in (ROOT / "data" / "questions.jsonl").read_text("utf-8").splitlines()][
    :50
]
TOLERANCE = 1e-9
# Options that change scores.
OPTIONS = [
    {},
    {"k1": 0.0, "b": 1.0},
    {"k1": 2.0, "b": 0.0, "heading_weight": 0.0},
    {"fields": "heading_path"},
    {"tags_any": ["search", "start", "help"], "min_similarity": 0.05},
    {"feedback": 2, "expansion": 5},
    {"vector_top_k": 3, "fts_top_k": 5, "top_k": 3},
    {"rrf_weights": (0.0, 2.0), "rrf_k": 1, "alpha": 0.2, "vector_weight": 1.0},
    {"syntax": True},
    {"metadata": {"mime": {"$in": ["text/markdown"]}}, "exact": True},
]


@pytest.fixture(scope="module")
def kb(tmp_path_factory):
    path = tmp_path_factory.mktemp("explaining") / "kb.duckdb"
    sqlrag.prepare_embeddings(
        ROOT / "data" / "handbook", path, 200, "hashing-256", embedding_provider="hashing", verbose=False
    )
    with sqlrag.Store(path) as store:
        yield store


def with_syntax(question: str) -> str:
    """Put two words of a question into quotes, and a star behind another one."""
    words = question.split()
    return f'"{words[0]} {words[1]}" {words[-1][:4]}* ' + " ".join(words)


def assert_adds_up(told: sqlrag.Explanation, result: dict) -> None:
    """Everything that the search returned follows from the parts."""
    parts = [part for part in (told.vector, told.lexical) if part is not None]
    assert told.score == result["score"]
    assert told.score_type == result["score_type"]
    assert sum(part.contribution for part in parts) == pytest.approx(result["score"], abs=TOLERANCE)
    if told.lexical is not None:
        assert sum(term.contribution for term in told.lexical.terms) == pytest.approx(told.lexical.bm25, abs=TOLERANCE)
        assert told.lexical.rank == result["lexical_rank"]
        if result["lexical_score"] is not None:
            assert told.lexical.bm25 == pytest.approx(result["lexical_score"], abs=TOLERANCE)
    if told.vector is not None:
        assert told.vector.rank == result["vector_rank"]
        if result["vector_score"] is not None:
            assert told.vector.cosine == pytest.approx(result["vector_score"], abs=TOLERANCE)


@pytest.mark.slow
def test_the_parts_add_up_to_the_score_of_the_search(kb):
    """50 questions, so that each of the 10 sets of options meets each of the 3 fusions."""
    for number, question in enumerate(QUESTIONS):
        options = OPTIONS[number // 3 % len(OPTIONS)] | {"fusion": ("rrf", "weighted", "convex")[number % 3]}
        asked = with_syntax(question) if options.get("syntax") else question
        found = sqlrag.hybrid_query(asked, kb, **options)
        if found:
            rank = number % len(found) + 1
            told = sqlrag.explain(asked, found[rank - 1]["node_id"], kb, **options)
            assert_adds_up(told, found[rank - 1])
            assert told.rank == rank


@pytest.mark.parametrize("mode", ["vector", "lexical"])
@pytest.mark.rest
def test_a_leg_alone_adds_up_as_well(kb, mode):
    search = {"vector": sqlrag.vector_query, "lexical": sqlrag.lexical_query}[mode]
    for question in QUESTIONS[:5]:
        found = search(question, kb, top_k=3)
        told = sqlrag.explain(question, found[-1]["node_id"], kb, mode=mode, top_k=3)
        assert_adds_up(told, found[-1])
        assert (told.vector is None, told.lexical is None) == (mode == "lexical", mode == "vector")


def test_a_contribution_follows_from_the_numbers_beside_it(kb):
    """The formula of bm25_contributions, by hand."""
    found = sqlrag.lexical_query("filter metadata tags", kb, k1=0.9, b=0.4, top_k=3)
    told = sqlrag.explain("filter metadata tags", found[0]["node_id"], kb, mode="lexical", k1=0.9, b=0.4).lexical
    chunks = kb.cursor().execute("SELECT count(*) FROM documents").fetchall()[0][0]
    assert [term.words for term in told.terms if term.term == "filter"] == [("filter",)]
    for term in told.terms:
        df = term.document_frequency
        f = told.text_weight * term.tf + told.heading_weight * term.heading_tf
        norm = told.k1 * (1 - told.b + told.b * told.length / told.average_length)
        assert term.idf == pytest.approx(math.log(1 + (chunks - df + 0.5) / (df + 0.5)))
        assert term.contribution == pytest.approx(term.boost * term.idf * (told.k1 + 1) * f / (f + norm), abs=1e-9)


def test_stop_words_unknown_words_and_prefixes_are_told(kb):
    node_id = sqlrag.lexical_query("filter", kb)[0]["node_id"]
    told = sqlrag.explain("how do I filter a zeppelin coll*", node_id, kb, mode="lexical").lexical
    assert told.ignored == ("how", "do", "i", "a")
    assert {word for term in told.terms for word in term.words} == {"filter", "zeppelin", "coll*"}
    assert told.terms[-1].words == ("zeppelin",)
    assert (told.terms[-1].document_frequency, told.terms[-1].contribution) == (0, 0.0)


def test_terms_that_expansion_added_have_no_words_and_a_boost(kb):
    node_id = sqlrag.hybrid_query("filter by tag", kb, expansion=5)[0]["node_id"]
    terms = sqlrag.explain("filter by tag", node_id, kb, expansion=5).lexical.terms
    assert [term for term in terms if not term.words]
    assert all(term.boost != 1 for term in terms)


class TestAChunkThatWasNotFound:
    """Each reason why, with its true place where it has one."""

    question = "filter by tag"

    def last(self, kb, mode):
        search = {"vector": sqlrag.vector_query, "lexical": sqlrag.lexical_query}[mode]
        return search(self.question, kb, top_k=60)[-1]["node_id"]

    def test_beyond_the_candidates(self, kb):
        fewer = {"fusion": "rrf"}  # 50 candidates of each leg
        told = sqlrag.explain(self.question, self.last(kb, "vector"), kb, **fewer)
        assert (told.vector.rank, told.vector.place) == (None, 60)
        assert "number 60 by cosine" in told.vector.reason
        told = sqlrag.explain(self.question, self.last(kb, "lexical"), kb, **fewer)
        assert (told.lexical.rank, told.lexical.place) == (None, 60)
        assert "number 60 by BM25" in told.lexical.reason

    def test_not_at_all(self, kb):
        both = {
            mode: {row["node_id"] for row in search(self.question, kb, top_k=50)}
            for mode, search in (("v", sqlrag.vector_query), ("l", sqlrag.lexical_query))
        }
        node_ids = [row[0] for row in kb.cursor().execute("SELECT node_id FROM documents ORDER BY node_id").fetchall()]
        told = sqlrag.explain(self.question, next(i for i in node_ids if i not in both["v"] | both["l"]), kb)
        assert (told.score, told.rank) == (None, None)
        assert str(told).splitlines()[0].endswith("not found, neither leg has it among its candidates")

    def test_filtered_out(self, kb):
        told = sqlrag.explain(self.question, "faq.md#0", kb, tags_any=["no such tag"])
        assert told.vector.reason == told.lexical.reason == "It does not pass the filters."
        assert (told.vector.place, told.lexical.place) == (None, None)
        assert told.vector.cosine is not None

    def test_below_the_least_cosine(self, kb):
        told = sqlrag.explain(self.question, "faq.md#0", kb, min_similarity=0.99)
        assert told.vector.reason == "Its cosine is below min_similarity=0.99."

    def test_without_a_common_word(self, kb):
        holding = {row["node_id"] for row in sqlrag.lexical_query("filter", kb, top_k=1000)}
        node_ids = [row[0] for row in kb.cursor().execute("SELECT node_id FROM documents ORDER BY node_id").fetchall()]
        other = next(node_id for node_id in node_ids if node_id not in holding)
        assert "none of the words" in sqlrag.explain("filter", other, kb).lexical.reason
        assert "no word that a chunk" in sqlrag.explain("zeppelin", "faq.md#0", kb).lexical.reason

    def test_without_a_required_word_or_a_phrase(self, kb):
        node_id = sqlrag.lexical_query("filter", kb)[0]["node_id"]
        told = sqlrag.explain("filter zeppelin", node_id, kb, mode="lexical", conjunctive=True)
        assert told.lexical.reason == "It lacks required words: zeppelin."
        told = sqlrag.explain('filter "zeppelin hangar"', node_id, kb, mode="lexical")
        assert told.lexical.reason == "It lacks required words: hangar, zeppelin."
        found = sqlrag.lexical_query("filter metadata", kb, conjunctive=True)[0]["node_id"]
        told = sqlrag.explain('"metadata filter metadata"', found, kb, mode="lexical")
        assert told.lexical.reason == 'It does not contain the phrases in quotes: "metadata filter metadata".'

    def test_unknown(self, kb):
        with pytest.raises(sqlrag.NotFoundError, match=r"no chunk 'faq\.md#999'"):
            sqlrag.explain(self.question, "faq.md#999", kb)


def test_it_is_text_data_and_html(kb):
    node_id = sqlrag.hybrid_query("filter <by> tag", kb, fusion="rrf")[0]["node_id"]
    told = sqlrag.explain("filter <by> tag", node_id, kb, fusion="rrf")
    text = str(told)
    assert f"{node_id}: rank 1, score {told.score:.9f} (rrf)" in text
    assert "1 / (60 + 1)" in text
    assert json.loads(json.dumps(told.to_dict()))["lexical"]["terms"][0]["term"] == told.lexical.terms[0].term
    html = told._repr_html_()
    assert "<by>" not in html
    assert ">idf</th>" in html


def test_conjunctive_is_of_the_lexical_search_alone(kb):
    with pytest.raises(sqlrag.InputError, match="conjunctive"):
        sqlrag.explain("filter", "faq.md#0", kb, conjunctive=True)
