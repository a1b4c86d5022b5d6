"""What fits into a number of tokens, what is left out, and that both are said."""

from __future__ import annotations

import random

import pytest

from sqlrag import Candidate, InputError
from sqlrag.answers.context import cut_item
from sqlrag.answers.prompt import build_prompt
from sqlrag.answers.window import estimate_tokens, fit_context, token_counter
from sqlrag.embedders import HashingEmbedder


def words(text):
    return len(text.split())


# What a block takes beside its text: "[1] [Source: a.md score=0.9000]" is 4 words, two fences are 2.
BESIDE = 6


def row(name, score, size=10):
    """Return a result of a document a, b …, whose block takes ``size`` + BESIDE words."""
    return {"node_id": f"{name[0]}.md#{name[1:]}", "doc_id": f"{name[0]}.md", "text": "word " * size, "score": score}


def fit(rows, room, **more):
    window = fit_context(rows, room, count_tokens=words, **more)
    assert window.tokens <= room
    assert len(window.contexts) + len(window.left_out) == len(rows)
    return window


def names(rows):
    return [r["node_id"].replace(".md#", "") if isinstance(r, dict) else r.node_id.replace(".md#", "") for r in rows]


class TestChoosing:
    def test_all_that_fits_is_taken_and_the_tokens_are_those_of_the_blocks(self):
        window = fit([row("a0", 0.9), row("b0", 0.5), row("c0", 0.1)], 3 * (10 + BESIDE))
        assert names(window.contexts) == ["a0", "b0", "c0"]
        assert window.tokens == window.max_tokens == 48
        assert (window.left_out, window.notices) == ([], [])

    def test_the_lowest_is_dropped_first(self):
        window = fit([row("a0", 0.9), row("b0", 0.5), row("c0", 0.1)], 47)
        assert names(window.contexts) == ["a0", "b0"]
        (left,) = window.left_out
        assert (left.node_id, left.doc_id, left.score, left.tokens) == ("c.md#0", "c.md", 0.1, 16)
        assert left.reason == "no room left after better ones"
        assert window.notices == ["1 chunk did not fit into 47 tokens: c.md#0."]

    def test_fault_K9_no_chunk_takes_the_place_of_a_better_one(self):
        rows = [row("a0", 0.9, 10), row("b0", 0.5, 30), row("c0", 0.1, 4)]
        assert names(fit(rows, 26).contexts) == ["a0"]  # 16, and b0 has no room beside a0
        assert names(fit(rows, 52).contexts) == ["a0", "b0"]  # 16 + 36; then c0 has none

    def test_fault_K9_the_first_that_does_not_fit_is_cut_where_that_is_worth_it(self):
        rows = [row("a0", 0.9, 10), row("b0", 0.5, 200), row("c0", 0.1, 4)]
        window = fit(rows, 16 + 70)
        assert names(window.contexts) == ["a0", "b0"]
        assert 64 <= words(window.contexts[1]["text"]) + BESIDE <= 70
        assert window.notices[0] == "b.md#0 is cut to 319 of its 1,000 characters."
        assert names(fit(rows, 16 + 60).contexts) == ["a0"]

    def test_another_document_goes_first_where_scores_are_close(self):
        rows = [row("a0", 0.90), row("a1", 0.89), row("b0", 0.85), row("c0", 0.50)]
        assert names(fit(rows, 32).contexts) == ["a0", "b0"]  # .85 is within 10 % of .89
        assert names(fit(rows, 32, margin=0.01).contexts) == ["a0", "a1"]
        assert names(fit(rows, 48).contexts) == ["a0", "a1", "b0"]  # back in the order of the results
        assert names(fit(rows, 64).contexts) == ["a0", "a1", "b0", "c0"]

    def test_documents_take_turns(self):
        rows = [row(name, 0.5) for name in ("a0", "a1", "a2", "b0", "b1", "c0")]
        assert names(fit(rows, 48).contexts) == ["a0", "b0", "c0"]
        assert names(fit(rows, 64).contexts) == ["a0", "a1", "b0", "c0"]

    def test_scores_below_zero_missing_and_not_finite(self):
        assert names(fit([row("a0", -1.0), row("a1", -1.05), row("b0", -1.08)], 32).contexts) == ["a0", "b0"]
        assert names(fit([row("a0", -1.0), row("a1", -1.05), row("b0", -2.0)], 32).contexts) == ["a0", "a1"]
        assert names(fit([row("a0", None), row("a1", None), row("b0", None)], 30).contexts) == ["a0", "a1"]
        assert names(fit([row("a0", 1.0), row("a1", float("nan")), row("b0", 1.0)], 30).contexts) == ["a0"]

    def test_it_depends_on_nothing_but_its_arguments(self):
        rng = random.Random(5)
        for _ in range(50):
            rows = [row(f"{rng.choice('abc')}{n}", round(rng.random(), 2), rng.randint(1, 30)) for n in range(12)]
            rows.sort(key=lambda r: -r["score"])
            room = rng.randint(20, 200)
            first, again = fit(rows, room, margin=0.2), fit([dict(r) for r in rows], room, margin=0.2)
            assert first == again
            # One of the best that were left out would not fit into the room that is left.
            best = max((left.score for left in first.left_out), default=0)
            close = [left.tokens for left in first.left_out if left.score >= best - 0.2 * best]
            assert not close or max(close) > room - first.tokens

    def test_the_order_given_is_the_order(self):
        # As re-ranking by diversity gives it: not that of the scores.
        assert names(fit([row("a0", 0.2), row("b0", 0.9)], 100).contexts) == ["a0", "b0"]

    def test_candidates_come_back_as_candidates(self):
        given = [Candidate("a.md", 0, "word " * 10, 0.9), Candidate("b.md", 0, "word " * 10, 0.1)]
        window = fit(given, 20)
        assert window.contexts == given[:1]
        assert window.left_out[0].node_id == "b.md#0"

    def test_nothing_given(self):
        assert fit([], 10).contexts == []


class TestCutting:
    TEXT = "One is here. Two is there.\n\nThree comes after that. Four is the last of them all."

    def test_the_best_is_cut_where_it_is_longer_than_all_the_room(self):
        given = {"node_id": "a.md#0", "doc_id": "a.md", "text": self.TEXT, "score": 1.0, "i_start": 100, "i_end": 184}
        window = fit([given, row("b0", 0.5, 30)], BESIDE + 12)
        (cut,) = window.contexts
        # 12 words would reach into the fourth sentence; the second half of them has the end of the third.
        assert cut["text"] == "One is here. Two is there.\n\nThree comes after that."
        assert (cut["i_start"], cut["i_end"]) == (100, 100 + len(cut["text"]))
        assert given["text"] == self.TEXT  # what was given is as it was
        assert window.notices[0] == "a.md#0 is cut to 51 of its 81 characters."
        assert [left.reason for left in window.left_out] == ["too long by itself"]

    def test_a_candidate_and_a_passage_of_several_spans(self):
        candidate = Candidate("a.md", 0, self.TEXT, 1.0, i_start=7, i_end=89)
        (cut,) = fit([candidate], BESIDE + 12).contexts
        assert (cut.content, cut.i_end) == (self.TEXT[:51], 7 + 51)
        spans = [
            {"start": 10, "end": 22, "text": "One is here."},
            {"start": 40, "end": 53, "text": "Two is there."},
            {"start": 80, "end": 105, "text": "Three is the last of all."},
        ]
        passage = {"doc_id": "a.md", "score": 1.0, "text": "\n…\n".join(s["text"] for s in spans), "spans": spans}
        (cut,) = fit([passage], BESIDE + 7).contexts
        assert cut["text"] == "One is here.\n…\nTwo is there."
        assert [(s["start"], s["end"]) for s in cut["spans"]] == [(10, 22), (40, 53)]

    @pytest.mark.parametrize("offsets", [True, False])
    def test_every_cut_of_a_passage_is_text_of_its_source(self, offsets):
        source = "".join(f"Sentence {n} has words. " for n in range(12))
        places = [(0, 22), (46, 93), (140, 200)]
        spans = [
            {"start": a if offsets else None, "end": b if offsets else None, "text": source[a:b]} for a, b in places
        ]
        text = "\n…\n".join(span["text"] for span in spans)
        passage = {"doc_id": "a", "score": 1.0, "text": text, "spans": spans, "i_start": 0, "i_end": 200, "left_out": 9}
        for chars in range(1, len(text)):
            cut = cut_item(passage, chars)
            assert cut["text"] == "\n…\n".join(span["text"] for span in cut["spans"]) == text[: len(cut["text"])]
            assert cut["text"].endswith(cut["spans"][-1]["text"])
            assert cut["spans"][-1]["text"]
            assert chars - 3 <= len(cut["text"]) <= chars
            assert cut["left_out"] - 9 == sum(len(s["text"]) for s in spans) - sum(len(s["text"]) for s in cut["spans"])
            assert cut["i_end"] == cut["spans"][-1]["end"]
            for span in cut["spans"] if offsets else ():
                assert source[span["start"] : span["end"]] == span["text"]
        window = fit_context([passage], 85, count_tokens=len)
        quote = build_prompt("q", window.contexts).sources[0]["quote"]
        assert all(part in source and part.strip() for part in quote.split("\n…\n"))
        assert cut_item(Candidate("a", 0, "One. Two.", i_start=3, i_end=12), 4).i_end == 7

    def test_where_not_even_a_few_words_fit_it_is_left_out(self):
        window = fit([row("a0", 0.9, 50), row("b0", 0.5, 1)], BESIDE + 0)
        assert window.contexts == []
        assert [left.reason for left in window.left_out] == ["too long by itself"] * 2

    @pytest.mark.parametrize("text", ["x" * 5000, "鸭" * 5000, "line\n" * 2000, "a. " * 3000, "``` " * 2000])
    def test_any_text_fits_after_the_cut(self, text):
        window = fit_context([{"doc_id": "a", "text": text, "score": 1.0}], 300)
        (cut,) = window.contexts
        assert 150 < window.tokens <= 300
        assert text.startswith(cut["text"])


class TestCounting:
    def test_counters(self):
        class Encoding:
            def encode(self, text):
                return list(text)

        assert token_counter(words)("a b c") == 3
        assert token_counter(Encoding())("abc") == 3
        assert token_counter(HashingEmbedder("hashing-8"))("Two words") == 2
        assert token_counter()("Two words") == estimate_tokens("Two words") == 3
        assert token_counter(lambda text: 7)("") == 7

    def test_a_model_that_is_here_counts_no_more_than_the_estimate(self):
        tiktoken = pytest.importorskip("tiktoken")
        ranks = {bytes([byte]): byte for byte in range(256)}
        bytewise = tiktoken.Encoding("bytes", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={})
        # Every byte a token is the most that any byte-pair vocabulary makes of digits and marks.
        assert len(bytewise.encode("768!?")) == estimate_tokens("768!?")

    @pytest.mark.parametrize("wrong", [7, "cl100k", object()])
    def test_no_counter(self, wrong):
        with pytest.raises(InputError, match="count_tokens must be"):
            token_counter(wrong)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"margin": 1.1}, "margin"),
        ({"margin": float("nan")}, "margin"),
        ({"results": "text"}, "results must be a list"),
        ({"results": [{"no": "text"}]}, "dict with a text"),
        ({"results": [7]}, "dict with a text"),
        pytest.param({"count_tokens": lambda text: 1.5}, "count_tokens must return", id="tokens in halves"),
    ],
    ids=str,
)
def test_wrong_arguments(arguments, says):
    with pytest.raises(InputError, match=says):
        fit_context(**{"results": [row("a0", 1.0)], "max_tokens": 100, **arguments})
