"""Recommendations: chosen by one half of the questions, checked by the other, and noise is called noise."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from itertools import product

import pytest
from typer.testing import CliRunner

import sqlrag
from sqlrag.cli import app
from sqlrag.embedders.hashing import HashingEmbedder
from tests.support.helpers import build

# Words that English stemmers cut: a question has another form than its document.
STEMS = ["".join(letters) for letters in product("bdfgk", "aiu", "bnp")][:40]
QUESTIONS = [{"query": f"how it {stem}{stem[-1]}ed", "relevant": [f"{stem}.md"]} for stem in STEMS]
WORDS = {"words": {"mode": "lexical"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("recommending")


def made(folder, name, **options):
    filler = "\n\n".join(f"On the {n}th day nothing was to be seen but rain, fog and {n} gulls." for n in range(8))
    pages = {f"{stem}_md": f"# Page\n\nShe {stem}{stem[-1]}ing.\n\n{filler}\n\n{stem} again.\n" for stem in STEMS}
    return build(folder, name, folder=name + ".docs", options={"stemmer": "none", "chunk_size": 60} | options, **pages)


@pytest.fixture(scope="module")
def path(folder):
    return made(folder, "kb.duckdb")


def bytes_of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.slow
def test_a_stemmer_and_a_chunk_size_are_measured_as_a_file_built_with_them(path, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = bytes_of(path)
    found = sqlrag.recommend(
        QUESTIONS, path, WORDS, stemmers=["english", "none", "english"], chunk_sizes=[30, 60], measure="RR@10"
    )
    assert bytes_of(path) == before
    assert list(tmp_path.iterdir()) == []
    assert list(found.tuning.ranked) == ["words", "words, stemmer=english", "words, chunk_size=30"]
    for name, options in {"stemmer=english": {"stemmer": "english"}, "chunk_size=30": {"chunk_size": 30}}.items():
        fresh = sqlrag.evaluate(QUESTIONS, made(folder, f"{name}.duckdb", **options), WORDS)
        of_copy = {
            one.text: half.ranked[f"words, {name}"][one.query_id]
            for half in (found.tuning, found.held_out)
            for one in half.questions
        }
        assert of_copy == {one.text: fresh.ranked["words"][one.query_id] for one in fresh.questions}
    with sqlrag.Store(folder / "chunk_size=30.duckdb") as fresh:
        chunks = fresh.get_embedding_metadata()["chunks"]["total_chunks"]
    (notice,) = found.notices
    assert notice.startswith(f"chunk_size=30: 40 documents rechunked into {chunks:,} chunks, ")
    assert 0 < int(re.search(r"([0-9]+) texts embedded", notice)[1]) <= chunks


@pytest.mark.slow
def test_what_is_better_on_the_questions_kept_aside_is_recommended(path):
    found = sqlrag.recommend(QUESTIONS, path, WORDS, stemmers=["english"], measure="RR@10")
    search, stemmer = found.advice
    assert (search.taken, search.best) == (False, "words")
    assert search.sentence == "Keep words: over the 20 questions to tune with, nothing tried has a higher RR@10."
    assert (stemmer.present, stemmer.best, stemmer.taken) == ("stemmer=none", "stemmer=english", True)
    assert stemmer.held_out[:3] == (20, 0, 0)
    assert stemmer.sentence.startswith(
        "Take stemmer=english. stemmer=english is best over the 20 questions to tune with (stemmer="
    )
    assert stemmer.sentence.endswith("20 won, 0 lost, 0 tied. Chance alone would hardly give that (p = 0.0001).")
    assert found.settings == {"stemmer": "english"}
    assert found.sentence == "Use stemmer=english."


def by_place(places):
    """Return a plan that finds the right document where the question's place is among these, else nothing."""
    right = {QUESTIONS[place]["query"]: QUESTIONS[place]["relevant"][0] for place in places}
    return lambda store, text: [{"doc_id": right[text], "node_id": "x"}] if text in right else []


def test_noise_is_called_noise(path):
    halves = sqlrag.recommend(QUESTIONS, path, {"now": by_place([])})
    tuned, kept = (
        [place for place, one in enumerate(QUESTIONS) if one["query"] in {two.text for two in half.questions}]
        for half in (halves.tuning, halves.held_out)
    )
    assert len(tuned) == len(kept) == 20
    plans = {"now": by_place(tuned[:10] + kept[:5]), "other": by_place(tuned[5:] + kept[4:12])}
    found = sqlrag.recommend(QUESTIONS, path, plans)
    assert found.settings == {}
    # 15 against 10 of those to tune with; of those kept aside 7 are won and 4 lost.
    assert "Keep now, do not take other. other is best over" in found.advice[0].sentence
    assert "7 won, 4 lost, 9 tied. That is noise: chance alone gives it easily (p = 0.5488)." in str(found)
    assert found.sentence == "Leave everything as it is: nothing is better, beyond chance, on the questions kept aside."
    few = sqlrag.recommend(QUESTIONS, path, {"now": by_place([]), "other": by_place(tuned + kept[:5])})
    assert "5 won, 0 lost, 15 tied. Too few questions differ to tell; it takes 6 (p = 0.0625)." in str(few)
    assert few.settings == {}
    worse = sqlrag.recommend(QUESTIONS, path, {"now": by_place(kept), "other": by_place(tuned)})
    assert worse.settings == {}  # a difference that is real, to the worse
    better = sqlrag.recommend(QUESTIONS, path, {"now": by_place([]), "other": by_place(tuned + kept[:6])})
    assert better.settings == {"plan": "other"}


@pytest.mark.slow
def test_the_halves_depend_on_the_texts_alone(path):
    found = sqlrag.recommend(QUESTIONS, path, WORDS)
    again = sqlrag.recommend(QUESTIONS[::-1], path, WORDS)
    assert {one.text for one in found.tuning.questions} == {one.text for one in again.tuning.questions}
    one_more = [*QUESTIONS, {"query": "a gull", "relevant": [f"{STEMS[0]}.md"]}]
    halves = [{one.text for one in sqlrag.recommend(given, path, WORDS).tuning.questions} for given in
              (QUESTIONS, one_more)]  # fmt: skip
    assert len(halves[0] ^ halves[1]) <= 2
    assert found.to_dict() == {**again.to_dict()}


def test_a_question_that_is_given_twice_is_in_one_half(path):
    given = [*QUESTIONS, *({**one, "relevant": [f"{STEMS[0]}.md"]} for one in QUESTIONS[:7])]
    found = sqlrag.recommend(given, path, WORDS)
    tuning, held_out = ([one.text for one in half.questions] for half in (found.tuning, found.held_out))
    assert not set(tuning) & set(held_out)
    assert sorted(tuning + held_out) == sorted(one["query"] for one in given)
    assert len(set(tuning)) == len(set(held_out)) == 20
    with pytest.raises(sqlrag.InputError, match="There is one question"):
        sqlrag.recommend([QUESTIONS[0]] * 3, path, WORDS)


def test_options_of_a_search_are_recommended(path):
    plans = {"now": by_place([]), "words": {"mode": "lexical", "k1": 2.0}}
    found = sqlrag.recommend([{**one, "query": one["query"].split()[-1][:3]} for one in QUESTIONS], path, plans)
    assert found.settings == {"mode": "lexical", "k1": 2.0}
    assert found.sentence == "Use mode=lexical, k1=2.0."


@pytest.mark.slow
def test_all_searches_are_tried_with_the_model_of_an_open_store(path):
    with sqlrag.Store(path, embedder=HashingEmbedder("hashing-64")) as store:
        found = sqlrag.recommend(QUESTIONS[:8], store, stemmers=["english"])
        assert store.lexical_query("gulls")
    assert [row["plan"] for row in found.rows()][:3] == ["adaptive", "lexical", "vector"]
    assert {"convex", "convex alpha=0.5", "convex alpha=0.9", "adaptive, stemmer=english"} <= set(found.tuning.means)


@pytest.mark.parametrize(
    ("questions", "options", "message"),
    [
        (None, {}, "Headings judge nothing"),
        (QUESTIONS[:1], {}, "There is one question; it takes two"),
        ([{"query": "a", "relevant": [f"{STEMS[0]}.md#0"]}, {"query": "b", "relevant": [f"{STEMS[1]}.md#0"]}],
         {"chunk_sizes": [100]}, "Judge documents"),
        (QUESTIONS, {"stemmers": ["klingon"]}, "no stemmer 'klingon'. Valid names: none, "),
        (QUESTIONS, {"stemmers": "english"}, "stemmers"),
        (QUESTIONS, {"chunk_sizes": [0]}, "Each of chunk_sizes must be a whole number from 1 to"),
        (QUESTIONS, {"measure": "gain"}, "no measure 'gain'"),
        (QUESTIONS, {"against": "rrf"}, "against must be one of 'words'"),
    ],
    ids=["headings", "one", "chunks", "stemmer", "no list", "size", "measure", "against"],
)  # fmt: skip
def test_what_is_wrong_is_said(path, questions, options, message):
    with pytest.raises(sqlrag.InputError, match=message):
        sqlrag.recommend(questions, path, WORDS, **options)


@pytest.mark.slow
def test_copies_are_made_of_one_file(path, tmp_path):
    other = build(tmp_path, options={"stemmer": "none", "chunk_size": 60}, gulls_md="# Gulls\n\nA gull.\n")
    assert sqlrag.recommend(QUESTIONS, [path, other], WORDS).settings == {}
    with pytest.raises(sqlrag.InputError, match="copies of one DuckDB file"):
        sqlrag.recommend(QUESTIONS, [path, other], WORDS, stemmers=["english"])


@pytest.mark.slow
def test_chunks_that_a_program_made_stay_and_that_is_said(tmp_path):
    model = HashingEmbedder("hashing-64")
    with sqlrag.Store.create(tmp_path / "made.duckdb", 64, embedder=model) as store:
        store.upsert(
            [sqlrag.Document(f"{stem}.md", f"a {stem}") for stem in STEMS],
            [sqlrag.Chunk(f"{stem}.md", 0, f"a {stem}") for stem in STEMS],
            model.embed([f"a {stem}" for stem in STEMS], kind="document"),
        )
        found = sqlrag.recommend(QUESTIONS[:6], store, WORDS, chunk_sizes=[20])
    assert found.notices[0].startswith("chunk_size=20 changes nothing: a program made the chunks")
    assert found.advice[1].sentence.startswith("Keep chunk_size=")


@pytest.mark.slow
def test_the_command(path, tmp_path):
    table = tmp_path / "questions.csv"
    table.write_text("question,document\n" + "".join(f"{q['query']},{q['relevant'][0]}\n" for q in QUESTIONS))
    arguments = ["evaluate", str(table), "--db", str(path), "--plan", "lexical", "--recommend", "--measure", "RR@10"]
    shown = CliRunner().invoke(app, [*arguments, "--stemmers", "english, german"])
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.splitlines()[0].split() == ["plan", "RR@10", "tuning", "RR@10", "held", "out"]
    assert "stemmer: Take stemmer=english." in shown.stdout
    given = json.loads(CliRunner().invoke(app, [*arguments, "--chunk-sizes", "30", "--format", "json"]).stdout)
    assert [one["knob"] for one in given["advice"]] == ["search", "chunk_size"]
    assert given["settings"] == {}
    assert (given["tuning_questions"], given["held_out_questions"]) == (20, 20)
    headings = CliRunner().invoke(app, ["evaluate", "--headings", "--db", str(path), "--plan", "lexical"])
    assert "no heading of two words" in headings.output  # every page is called the same
    for wrong in (["--headings"], ["--per-query"], ["--measure", "AP"], ["--chunk-sizes", "small"]):
        assert CliRunner().invoke(app, [*arguments, *wrong]).exit_code == 2
    assert CliRunner().invoke(app, ["evaluate", "--db", str(path)]).exit_code == 2
