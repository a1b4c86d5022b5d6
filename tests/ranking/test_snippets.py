"""The part of a text that is shown for a question: most of the words' weight, the first of equals, as it is read."""

from __future__ import annotations

import itertools
import random

import pytest

import sqlrag
from sqlrag import Store, Stores, merge
from sqlrag.ranking.results import Results, format_results
from sqlrag.ranking.snippets import WeighedWord, columns_of, snippet
from tests.support.helpers import build

FILLER = "Nothing of it is here in this long sentence of many small words. "


def placed(text, **weights):
    """Return the places of words in a text that only has them in full."""
    found = []
    for word, weight in weights.items():
        start = text.find(word)
        while start >= 0:
            found.append(WeighedWord(start, start + len(word), word, weight))
            start = text.find(word, start + 1)
    return sorted(found)


def held(text, shown, weights):
    part = shown.strip("…")
    return sum(weight for word, weight in weights.items() if word in part)


class TestWindow:
    def test_a_text_that_fits_is_whole(self):
        assert snippet("zebra and lion", placed("zebra and lion", lion=1.0), 60) == "zebra and lion"

    def test_without_words_it_is_the_beginning(self):
        assert snippet(FILLER * 9, [], 60) == "Nothing of it is here in this long sentence of many small…"

    def test_it_is_where_most_of_the_weight_is(self):
        text = FILLER + "zebra. " + FILLER * 3 + "A lion sees a zebra. " + FILLER * 3
        shown = snippet(text, placed(text, zebra=2.0, lion=1.0), 80)
        assert shown.startswith("…A lion sees a zebra.")
        assert shown.endswith("…")

    def test_a_rare_word_counts_more_than_two_common_ones(self):
        text = "cow and pig. " + FILLER * 4 + "okapi. " + FILLER * 4
        assert "okapi" in snippet(text, placed(text, cow=1.0, pig=1.0, okapi=2.5), 60)
        assert "cow and pig" in snippet(text, placed(text, cow=1.0, pig=1.0, okapi=1.5), 60)

    def test_a_word_counts_once(self):
        text = "cow cow cow cow. " + FILLER * 4 + "pig and okapi. " + FILLER * 4
        assert "pig and okapi" in snippet(text, placed(text, cow=1.0, pig=1.0, okapi=1.0), 60)

    def test_the_first_of_equals(self):
        text = FILLER * 3 + "One zebra. " + FILLER * 3 + "Two zebra. " + FILLER * 3
        assert "One zebra" in snippet(text, placed(text, zebra=1.0), 80)

    def test_the_beginning_where_it_holds_as_much(self):
        text = "Here a zebra. " + FILLER * 5 + "zebra zebra"
        assert snippet(text, placed(text, zebra=1.0), 100).startswith("Here a zebra. Nothing")

    @pytest.mark.parametrize("mark", ["# ", "## ", "> # "])
    def test_it_never_begins_with_the_mark_of_a_heading(self, mark):
        text = FILLER * 3 + f"\n{mark}Zebra\nIt has stripes. " + FILLER * 3
        shown = snippet(text, placed(text, Zebra=1.0), 80)
        assert shown.startswith("…Zebra")
        assert snippet(f"{mark}Zebra", [], 80) == "Zebra"

    def test_wide_characters_take_two_columns(self):
        text = "長い文章です" * 40 + "鯨" + "別の文章です" * 40
        shown = snippet(text, placed(text, 鯨=1.0), 100)
        assert "鯨" in shown
        assert columns_of(shown) <= 100

    @pytest.mark.parametrize("seed", range(40))
    def test_no_other_window_holds_more(self, seed):
        """By trial of every window of a random text; the one that is shown keeps its words whole."""
        rng = random.Random(seed)
        weights = {"zebra": 3.0, "lion": 2.0, "cow": 1.25, "pig": 0.5}
        text = " ".join(rng.choice([*weights, *["and", "the", "of", "small"] * 5]) for _ in range(rng.randint(5, 150)))
        columns = rng.choice([30, 60, 100])
        words = placed(text, **weights)
        shown = snippet(text, words, columns)
        assert columns_of(shown) <= columns
        assert shown.strip("…") in text
        size = columns - 2
        windows = [{w.term for w in words if start <= w.start and w.end <= start + size} for start in range(len(text))]
        most = max((sum(weights[term] for term in sorted(window)) for window in windows), default=0)
        assert held(text, shown, weights) >= most
        assert snippet(text, words, columns) == shown

    @pytest.mark.slow
    def test_a_long_text_takes_linear_time(self):
        text = "cow pig " * 60_000
        words = [WeighedWord(start, start + 3, text[start : start + 3], 1.0) for start in range(0, len(text) - 4, 4)]
        assert snippet(text, words, 280).startswith("cow pig")


PAGE = f"""---
title: Zoo
---
# Zoo

## Using the `zebra` house

{FILLER * 6}

See [the rules](rules.md): an okapi sleeps with a <b class="x">quagga</b> by day.

{FILLER * 6}

## Other {{#other}}

{FILLER}
"""


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zoo")
    one = build(folder, "one.duckdb", folder="one", zoo_md=PAGE)
    two = build(folder, "two.duckdb", folder="two", cow_md="# Cow\n\nA cow and an okapi.", pig_txt="A pig.")
    return one, two, merge([one, two], folder / "both.duckdb").path


def printed(results):
    """Return the texts of results as they are printed, each on one line."""
    blocks = format_results(results, "").split("\n\n")[2::2]
    return [" ".join(block.split()) for block in blocks]


class TestResults:
    def test_the_passage_is_shown_and_not_the_beginning(self, zoo):
        found = sqlrag.hybrid_query("does the okapi sleep beside the quagga", zoo[0], top_k=1)
        (shown,) = printed(found)
        assert "an okapi sleeps with a quagga by day." in shown
        assert shown.startswith("…See the rules: an okapi")
        assert "okapi" in repr(found)
        assert "<mark>okapi</mark> <mark>sleeps</mark>" in found._repr_html_()
        assert printed(found[:1]) == [shown]

    def test_it_is_the_same_of_the_store_of_several_files_and_of_what_is_merged(self, zoo):
        question = "does the okapi sleep beside the quagga"
        with Store(zoo[2]) as both, Stores(zoo[:2]) as several:
            for search in ("hybrid_query", "vector_query", "lexical_query"):
                of_file, of_several = getattr(both, search)(question), getattr(several, search)(question)
                assert printed(of_file) == printed(of_several)
            node_ids = [row["node_id"] for row in of_file]
            snippets = both.snippets(question, node_ids)
            assert snippets == several.snippets(question, node_ids)
            texts = [text for text, _ in snippets]
            assert [" ".join(text.split()) for text in texts] == printed(of_file)
            assert [spans for _, spans in snippets] == both.highlight(question, texts)

    def test_expansion_and_syntax_do_not_change_what_is_shown(self, zoo):
        plain = sqlrag.lexical_query("okapi", zoo[0])
        assert printed(sqlrag.lexical_query('"an okapi"', zoo[0])) == printed(plain)
        assert printed(sqlrag.lexical_query("okap*", zoo[0])) == printed(plain)
        assert printed(sqlrag.hybrid_query("okapi", zoo[0], top_k=1, expansion=5)) == printed(plain[:1])

    def test_what_is_no_result_of_a_search_begins_with_its_beginning(self, zoo):
        found = sqlrag.lexical_query("okapi", zoo[0])
        assert printed(list(found))[0].startswith("Nothing of it")
        assert printed(Results(found))[0].startswith("Nothing of it")

    def test_an_unknown_chunk_has_no_snippet(self, zoo):
        with Store(zoo[0]) as store:
            with pytest.raises(sqlrag.NotFoundError, match=r"no chunk 'none\.md#0'"):
                store.snippets("okapi", ["none.md#0"])
            with pytest.raises(sqlrag.InputError, match="node_ids"):
                store.snippets("okapi", "zoo.md#0")
            with pytest.raises(sqlrag.InputError, match="query_text"):
                store.snippets(" ", ["zoo.md#0"])
            assert store.snippets("okapi", []) == []


class TestTitles:
    def test_document_and_heading(self, zoo):
        found = sqlrag.lexical_query("okapi quagga", zoo[0])
        assert "\n    Zoo › Using the zebra house\n" in format_results(found, "x")
        assert "Zoo › Using the zebra house" in repr(found)
        assert '<td style="text-align:left">Zoo › Using the zebra house</td>' in found._repr_html_()

    def test_a_title_that_is_no_heading_comes_first(self):
        one = {"node_id": "a#0", "text": "x", "score": 1.0, "metadata": {"title": "Manual"}, "heading_path": ["Pump"]}
        assert "\n    Manual › Pump\n" in format_results([one], "x")
        assert "\n    Manual\n" in format_results([one | {"heading_path": []}], "x")
        assert "\n    Pump\n" in format_results([one | {"metadata": {"title": 7}}], "x")
        assert "\n    Pump\n" in format_results([one | {"metadata": {"title": "Pump"}}], "x")

    @pytest.mark.parametrize("written", ["`zebra`", "**zebra**", "zebra"])
    def test_a_heading_with_inline_code_is_shown_once(self, tmp_path, written):
        path = build(tmp_path, a_md=f"# Zoo\n\n## Using the {written} house\n\nIt is open by day.")
        found = sqlrag.lexical_query("open", path)
        assert format_results(found, "x").count("Using the zebra house") == 1
        assert repr(found).count("Using the zebra house") == 1
        raw = [row | {"shown": None} for row in found]  # as of a program that has only the text
        assert printed(raw) == ["It is open by day."]
        with Store(path) as store:
            assert [text for text, _ in store.snippets("open", [row["node_id"] for row in found])] == printed(found)

    def test_a_heading_that_is_too_long_for_the_path_is_shown_once(self, tmp_path):
        long = " ".join(itertools.repeat("very", 100)) + " long"
        path = build(tmp_path, a_md=f"# {long}\n\nIt is open by day.")
        assert printed(sqlrag.lexical_query("open", path)) == ["It is open by day."]
