"""The words of a question: the tokeniser's twin, phrases, prefixes, and pruning that changes nothing."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqlrag import Chunk, Document, InputError, Store
from sqlrag.engines.duckdb import legs
from sqlrag.engines.duckdb.lexical import query_terms
from sqlrag.ranking import terms
from sqlrag.ranking.plan import BM25
from sqlrag.ranking.terms import parse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlrag.ranking.fusion import Leg

WORDS = [f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(120)]


@pytest.fixture(scope="module")
def zipf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """3,000 chunks of words as frequent as in language (Zipf's law), so that some terms are in most chunks."""
    chance = np.random.default_rng(5)
    weights = 1 / np.arange(1, len(WORDS) + 1)
    texts = [
        " ".join(chance.choice(WORDS, size=chance.integers(3, 60), p=weights / weights.sum())) for _ in range(3000)
    ]
    headings = [tuple(chance.choice(WORDS, size=2)) if i % 3 == 0 else () for i in range(len(texts))]
    path = tmp_path_factory.mktemp("terms") / "zipf.duckdb"
    with Store.create(path, 8) as store:
        documents = [Document(f"{i:04d}.txt", text) for i, text in enumerate(texts)]
        chunks = [Chunk(d.doc_id, 0, d.text, heading_path=h) for d, h in zip(documents, headings, strict=True)]
        store.upsert(documents, chunks, np.ones((len(texts), 8)))
    with Store(path) as store:
        yield store


@pytest.mark.slow
@given(st.text(st.characters(max_codepoint=127), max_size=60) | st.from_regex(r"[a-cA-C_.+#*0-9 ]{0,30}(\.net|c\+\+)?"))
@settings(max_examples=400, deadline=None)
def test_ascii_words_are_those_of_the_macro(text: str) -> None:
    if not text.isascii():
        return
    found = MACROS.execute(
        "SELECT fts_main_documents.plain_words($t), fts_main_documents.compound_parts($t)", {"t": text}
    ).fetchall()[0]
    assert (terms.ascii_words(text), terms.ascii_parts(text)) == found


def _macros() -> object:
    import duckdb

    from sqlrag.engines.duckdb.schema import create_objects

    con = duckdb.connect()
    create_objects(con, 8)
    return con


MACROS = _macros()


def test_a_long_run_of_letters_takes_no_time() -> None:
    """A regular expression that tried every start of it would take hours."""
    assert terms.ascii_parts("a" * 200_000) == []
    assert terms.ascii_words("a" * 200_000) == ["a" * 200_000]


@pytest.mark.slow
@pytest.mark.parametrize("cutoffs", [(1, 5), (1, 300), (1, 3000)])
def test_pruning_changes_nothing(zipf: Store, monkeypatch: pytest.MonkeyPatch, cutoffs: tuple[int, int]) -> None:
    """The same rows, scores and order as scoring every posting, whatever the questions and the parameters of BM25."""
    monkeypatch.setattr(legs, "PRUNE_FROM", cutoffs[0])
    monkeypatch.setattr(legs, "_PROBE", cutoffs[1])
    chance = random.Random(cutoffs[1])
    con = zipf.cursor()
    looked_up = 0
    for _ in range(700):
        question = " ".join(chance.choices(WORDS, k=chance.randint(1, 9)))
        found = query_terms(con, question, "porter")
        bm25 = BM25(
            *chance.choice([(1.2, 0.75, 1.0, 3.0), (0.0, 0.0, 1.0, 0.0), (2.5, 1.0, 1.0, 0.5), (0.9, 0.4, 0.0, 1.0)])
        )
        k = chance.choice([1, 10, 50, 400, 5000])
        pruned = legs.lexical_leg(con, found, k, bm25, {})
        assert rows(pruned) == rows(scored(zipf, found, k, bm25))
        assert pruned.method.startswith("MaxScore")
        looked_up += " 0 common" not in pruned.method
    assert looked_up > 50


@pytest.mark.slow
def test_pruning_is_the_same_with_any_number_of_threads(zipf: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legs, "PRUNE_FROM", 1)
    question = "waa wab wac wba wca wda"
    answers = set()
    for threads in (1, 2):
        with Store(zipf.path, threads=threads) as store:
            answers |= {tuple(row["node_id"] for row in store.lexical_query(question, top_k=20)) for _ in range(50)}
    assert len(answers) == 1


def scored(store: Store, found: terms.Terms, k: int, bm25: BM25) -> Leg:
    return legs._leg(
        store.cursor(),
        "lexical_search",
        {"termids": found.termids, "dfs": found.dfs},
        {"k": k, **bm25.parameters()},
        "",
    )


def rows(leg: Leg) -> list[tuple[str, float]]:
    return [(hit.doc_id, hit.score) for hit in leg.hits]


TEXTS = {
    "a.md": "A vector database keeps vectors. The Database, of vectors!",
    "b.md": "The database vector is a pointer; a naïve\nvector   database: c++ too.",
    "c.md": "Vectorised execution; vectoring. To be or not to be.",
    "d.md": "東京大学に行く、and snake_case_names in read_csv_auto().",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    documents = [Document(name, text) for name, text in TEXTS.items()]
    chunks = [Chunk(d.doc_id, 0, d.text) for d in documents]
    chunks[2] = Chunk("c.md", 0, TEXTS["c.md"], heading_path=("Query engines", "Vector database engines"))
    path = tmp_path_factory.mktemp("terms") / "kb.duckdb"
    with Store.create(path, 8) as store:
        store.upsert(documents, chunks, np.eye(4, 8))
    return path


@pytest.fixture
def small(made: Path, tmp_path: Path) -> Iterator[Store]:
    shutil.copy(made, tmp_path / "kb.duckdb")
    with Store(tmp_path / "kb.duckdb", read_only=False) as store:
        yield store


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ('"vector database"', "a b c"),
        ('"Vector, DATABASE"', "a b c"),
        ('"database vector"', "b"),
        ('"database vectors"', ""),  # as it is written
        ('"database of vectors"', "a"),
        ('"naive vector"', "b"),
        ('"database engines"', "c"),
        ('"engines vector"', "c"),  # the heading path is one run of words
        ('"to be or not to be"', "c"),
        ('"be"', "c"),
        ('"東京大学"', "d"),
        ('"大学東京"', ""),
        ('"c++ too"', "b"),
        ('"vector database" "pointer"', "b"),
        ('"vector database" pointer', "a b c"),
        ('"vector databas"', ""),
        ('""', ""),
        ("vectori*", "a b c"),  # vectorised, vectoring: the stems are vectoris and vector
        ("snake_c*", "d"),
        ("READ_C*", "d"),
        ("naïv*", "b"),
        ("zz*", ""),
        ("v*", ""),  # one letter is no prefix
        ("**pointer**", "b"),
        ("*pointer*", "b"),
        ("count(*) pointer", "b"),
        ('pointer "unbalanced', "b"),
        ('5" x 7" pointer', "b"),
    ],
)
def test_case_E19_phrases_and_prefixes(small: Store, query: str, found: str) -> None:
    names = {row["doc_id"][0] for row in small.lexical_query(query, top_k=10)}
    assert " ".join(sorted(names)) == found


def test_quotes_mean_nothing_unless_asked(small: Store) -> None:
    everywhere = small.lexical_query('"database vectors"', syntax=False)
    assert [row["doc_id"] for row in everywhere] == [row["doc_id"] for row in small.lexical_query("database vectors")]
    hybrid = {"query_vector": np.ones(8), "top_k": 10}
    assert small.hybrid_query('"database vectors"', **hybrid)[0]["lexical_score"] is not None
    strict = small.hybrid_query('"database vectors"', syntax=True, **hybrid)
    assert [row["lexical_score"] for row in strict] == [None] * 4
    assert strict.notices == ['No chunk holds "database vectors". Leave the quotes out to look for the words alone.']


def test_conjunctive_with_phrases_and_prefixes(small: Store) -> None:
    def ask(query: str) -> str:
        return " ".join(sorted(row["doc_id"][0] for row in small.lexical_query(query, conjunctive=True)))

    assert ask('"vector database" keeps') == "a"
    assert ask("point* data*") == "b"
    assert ask("pointer point*") == "b"
    assert ask('"vector database" zebra') == ""
    assert ask("vector zz*") == ""


def test_a_prefix_weighs_as_one_word(small: Store) -> None:
    """Every form has the idf of a word that stands in all chunks of the prefix; see _add_prefix."""
    con = small.cursor()
    found = query_terms(con, "data* vect*", "porter", syntax=True)
    stems = dict(con.execute("SELECT termid, term FROM fts_main_documents.dict").fetchall())
    by_stem = {stems[termid]: df for termid, df in zip(found.termids, found.dfs, strict=True)}
    assert by_stem == {"databas": 3, "vector": 3, "vectoris": 3}


@pytest.mark.slow
def test_prefixes_of_any_script(tmp_path: Path) -> None:
    """Three Han characters are two words of the index, so they are looked up as words; accents count in any form."""
    texts = [
        "東京大学 に行く",
        "東京都",
        "étude turbo",
        "turbo charger",
        "alto only",
        "alpine only",
        "alto alpine both",
    ]
    with Store.create(tmp_path / "kb.duckdb", 8) as store:
        documents = [Document(f"{i}.txt", text) for i, text in enumerate(texts)]
        store.upsert(documents, [Chunk(d.doc_id, 0, d.text) for d in documents], np.ones((len(texts), 8)))

        def ask(query: str, **options: bool) -> set[str]:
            return {row["doc_id"][0] for row in store.lexical_query(query, top_k=10, **options)}

        assert ask("東京大*") == ask("東京大") == {"0", "1"}
        assert ask("東京*") == {"0", "1"}
        assert ask("\u00e9tu*") == ask("e\u0301tu*") == ask("etu*") == {"2"}
        assert ask("tur\u00adb*") == {"2", "3"}
        assert ask("al* alp*", conjunctive=True) == ask("alp* al*", conjunctive=True) == {"5", "6"}
        assert ask(" ".join(f"w{i}*" for i in range(3000)) + " turbo") == {"2", "3"}


def test_a_phrase_is_looked_for_in_the_field_asked(tmp_path: Path) -> None:
    with Store.create(tmp_path / "kb.duckdb", 8) as store:
        chunks = [Chunk("a", 0, "x beta gamma y", heading_path=("gamma", "q", "beta"))]
        store.upsert([Document("a", "")], chunks, np.ones((1, 8)))
        assert store.lexical_query('"beta gamma"', fields="heading_path") == []
        assert len(store.lexical_query('"beta gamma"', fields="text")) == 1


def test_parse() -> None:
    assert parse('how "a b" to* "c"d *x* e') == ('how   to* "c"d *x* e'.replace("to*", " "), ["a b"], ["to"])
    assert parse('("a b") ["c"], "d".').phrases == ["a b", "c", "d"]
    assert parse('"a" b"') == ('  b"', ["a"], [])


def test_the_statement_of_a_phrase_gives_the_same_rows(small: Store) -> None:
    results = small.lexical_query('"vector database" point*', top_k=2)
    rows = small.cursor().execute(results.sql).fetchall()
    assert [row[:2] for row in rows] == [(row["node_id"], row["score"]) for row in results]


def test_fields(small: Store) -> None:
    def ask(fields: object) -> list[str]:
        return [row["doc_id"] for row in small.lexical_query("engines vector", fields=fields)]  # type: ignore[arg-type]

    assert ask("heading_path") == ["c.md"]
    assert set(ask("text")) == {"a.md", "b.md", "c.md"}  # vectoring counts as vector
    assert ask(["text", "heading_path"]) == ask(None)
    for wrong in ("title", ["text", "title"], []):
        with pytest.raises(InputError, match="text, heading_path"):
            ask(wrong)


@pytest.mark.slow
def test_a_query_of_5000_words(zipf: Store) -> None:
    query = " ".join(WORDS * 42) + ' "' + '" AND NOT (w* OR ~x^2'
    results = zipf.lexical_query(query, top_k=7)
    assert [(r["node_id"], r["score"]) for r in results] == [
        (r["node_id"], r["score"]) for r in zipf.lexical_query(" ".join(WORDS) + " w x 2", top_k=7)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "query", ['"vector database" pointer', "vectori* engin*", '"of vectors" keep* naïv*', "vec* vector*"]
)
@pytest.mark.parametrize("conjunctive", [False, True])
def test_the_sql_of_phrases_stays_true_when_term_numbers_change(small: Store, query: str, conjunctive: bool) -> None:
    """A statement that was kept names words, not numbers, which an update or a repair gives anew."""

    def rows(sql: str) -> list[tuple[str, float]]:
        return small.cursor().execute(f"SELECT node_id, score FROM ({sql.rstrip(';')})").fetchall()

    def asked() -> list[tuple[str, float]]:
        answer = small.lexical_query(query, top_k=10, conjunctive=conjunctive)
        return [(row["node_id"], row["score"]) for row in answer]

    kept = small.lexical_query(query, top_k=10, conjunctive=conjunctive).sql
    assert rows(kept) == asked()
    numbers = small.cursor().execute("SELECT term, termid FROM fts_main_documents.dict").fetchall()
    text = "A vectorial pointer of vectors keeps an engine; the vector database vectorizes naïvely."
    small.delete_documents(doc_ids=["a.md"])
    small.upsert([Document("e.md", text)], [Chunk("e.md", 0, text)], np.ones((1, 8)))
    con = small.cursor()
    # As a rebuilt index would: the same terms under other numbers.
    con.execute("UPDATE fts_main_documents.postings SET termid = termid + 1000")
    con.execute("UPDATE fts_main_documents.dict SET termid = termid + 1000")
    assert not set(numbers) & set(con.execute("SELECT term, termid FROM fts_main_documents.dict").fetchall())
    assert rows(kept) == asked()
    assert "e.md" in {node_id.partition("#")[0] for node_id, _ in rows(kept)} or conjunctive


@pytest.mark.slow
def test_sigma_at_the_end_of_a_word_is_a_sigma(tmp_path: Path) -> None:
    texts = {"a.md": "ΟΔΟΣ", "b.md": "οδός", "c.md": "Οδοσ", "d.md": "οδοί"}
    with Store.create(tmp_path / "kb.duckdb", 8, stemmer="none") as store:
        store.upsert(
            [Document(n, t) for n, t in texts.items()], [Chunk(n, 0, t) for n, t in texts.items()], np.eye(4, 8)
        )
        for query in ("ΟΔΟΣ", "οδός", "οδοσ", '"ΟΔΌΣ"'):
            assert {row["doc_id"] for row in store.lexical_query(query)} == {"a.md", "b.md", "c.md"}
            plain = query.strip('"')
            rows = store.cursor().execute("SELECT doc_id FROM lexical_query($1)", [plain]).fetchall()
            assert {row[0] for row in rows} == {"a.md", "b.md", "c.md"}


@pytest.mark.parametrize("word", ["POINTER", "Pointer", "ΟΔΌΣ", "οδός", "Größe", "GROSSE\u0308"])
def test_a_stop_word_in_any_writing(small: Store, word: str) -> None:
    """What a user adds to the list is folded as a question is, in Python and in SQL."""
    text = "pointer οδός Größe Grösse zebra"
    small.upsert([Document("e.md", text)], [Chunk("e.md", 0, text)], np.ones((1, 8)))
    con = small.cursor()
    con.execute("INSERT INTO fts_main_documents.stopwords VALUES ($1)", [word])
    question = f"{word} zebra"
    words = {row[0] for row in con.execute("FROM query_words($1)", [question]).fetchall()}
    assert words == {"zebra"}
    assert small.lexical_query(question).sql  # answers
    alone, both = small.lexical_query("zebra"), small.lexical_query(question)
    assert [(row["node_id"], row["score"]) for row in both] == [(row["node_id"], row["score"]) for row in alone]
    assert both[0]["doc_id"] == "e.md"
