"""The stemmers of scripts, which run in SQL alone, against Snowball; the terms of SQL against those of Python."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import duckdb
import pytest
import Stemmer
from hypothesis import given, settings
from hypothesis import strategies as st

from sqlrag.engines.duckdb import lexical
from sqlrag.engines.duckdb.schema import create_objects
from tests.support.helpers import DATA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# The pieces of which the rules of Snowball's "russian" and "hindi" speak, and letters beside them.
RUSSIAN = """
в вши вшись ив ившись ыв ывши ее ие ые ими ыми ей ий ый ой ем им ым ом его ого ему ому их ых ую юю ая яя ою ею нн вш ющ
щ ивш ывш ующ ся сь ла на ете йте ли й л н ло но ет ют ны ть ешь нно ила ена уйте ите или ен ено ят ует уют ит ыт ены
ить ишь ю ев ов ье е иями ями ами еи ии и ией ям ием ам о у ах иях ях ы ь ию ью ия ья я ост ость ейш ейше а б т ст x 1
"""
HINDI = """
अ आ इ ई उ ऊ ए ओ ा ि ी ु ू े ो ं ँ ् ़ क ख ग च ज ट ड त द न प ब म य र ल व श स ह एं ओं ां इयां िया ाओं ता ती ते ना नी ने कर ंगा
ंगी ेगा ाया ाकर ताओं नाएं ाइयों x १
"""


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        create_objects(connection, 8)
        yield connection


def in_sql(connection: duckdb.DuckDBPyConnection, call: str, words: Iterable[str]) -> dict[str, str]:
    """What a call of a macro gives for each ``word``."""
    sql = f"SELECT word, {call} FROM (SELECT unnest($words::VARCHAR[]) AS word)"
    return dict(connection.execute(sql, {"words": sorted(words)}).fetchall())


def of(pieces: str, most: int = 6) -> st.SearchStrategy[set[str]]:
    word = st.lists(st.sampled_from(pieces.split()), min_size=1, max_size=most).map("".join)
    return st.sets(word, min_size=1, max_size=200)


@pytest.mark.slow
@pytest.mark.parametrize(("language", "pieces"), [("russian", RUSSIAN), ("hindi", HINDI)])
def test_words_made_of_endings_as_snowball_has_them(
    connection: duckdb.DuckDBPyConnection, language: str, pieces: str
) -> None:
    snowball = Stemmer.Stemmer(language)

    @given(of(pieces))
    @settings(max_examples=100, deadline=None, database=None)
    def compare(words: set[str]) -> None:
        found = in_sql(connection, f"fts_main_documents.{language}_stem(word)", words)
        assert found == {word: snowball.stemWord(word) for word in words}

    compare()


@pytest.mark.slow
def test_every_word_of_a_russian_corpus(connection: duckdb.DuckDBPyConnection) -> None:
    if not (DATA / "xquad_ru").is_dir():
        pytest.skip("../shared/data/xquad_ru is not here")
    lines = (DATA / "xquad_ru" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    words = {word for line in lines for word in re.findall(r"\w+", json.loads(line)["text"].lower())}
    assert len(words) >= 8_000
    russian = Stemmer.Stemmer("russian")
    words = {word for word in words if "ё" not in word}  # which the index never has
    assert in_sql(connection, "fts_main_documents.russian_stem(word)", words) == {
        word: russian.stemWord(word) for word in words
    }


# Forms that have to meet; of Arabic, the examples of Larkey and others, 2007, and what light10 says it takes off.
FORMS = {
    "arabic": """كتاب الكتاب والكتاب بالكتاب كالكتاب فالكتاب للكتاب وكتاب
        مدرسة المدرسة مدرسه
        مهندس مهندسون مهندسين مهندسان المهندسات
        علي على""",
    "greek": """ανθρωποσ ανθρωπου ανθρωπων ανθρωποι
        πολη πολησ
        γραφει γραφω γραφουν γραφονται""",
    "hindi": """लड़का लड़की लड़के लड़कों
        किताब किताबें किताबों""",
    "russian": """книга книги книгу книгами книг
        руководитель руководителя руководителей
        красивый красивая красивого""",
}


@pytest.mark.parametrize(
    ("language", "forms"),
    [(language, line.strip()) for language, lines in FORMS.items() for line in lines.splitlines()],
)
def test_forms_of_a_word_have_one_stem(connection: duckdb.DuckDBPyConnection, language: str, forms: str) -> None:
    found = in_sql(connection, "fts_main_documents.script_stem(word, 'porter')", forms.split())
    assert len(set(found.values())) == 1
    assert found == in_sql(connection, f"fts_main_documents.{language}_stem(word)", forms.split())


@pytest.mark.parametrize(
    ("word", "stemmer", "stem"),
    [
        ("книгами", "serbian", None),
        ("книгами", "english", "книг"),
        ("کتابها", "persian", None),
        ("किताबों", "nepali", None),
        ("किताबों", "none", None),
        ("book", "porter", None),
        ("東京", "porter", None),
        ("เขา", "porter", None),
        ("2020года", "porter", "2020год"),
        ("книгаx", "porter", None),
        ("", "porter", None),
        (None, "porter", None),
    ],
)
def test_the_last_letter_chooses(
    connection: duckdb.DuckDBPyConnection, word: str | None, stemmer: str, stem: str | None
) -> None:
    found = connection.execute("SELECT fts_main_documents.script_stem($1, $2)", [word, stemmer]).fetchone()
    assert found == (stem,)


MIXED = (
    RUSSIAN
    + HINDI
    + " ".join(FORMS["arabic"] + FORMS["greek"])
    + " on one be ing ed s _ 9 東 京 한 ภา é ού χ ي ه ها و ال"
)


@pytest.mark.slow
@pytest.mark.parametrize("stemmer", ["porter", "none", "serbian", "russian", "greek", "persian"])
def test_terms_in_sql_are_those_in_python(connection: duckdb.DuckDBPyConnection, stemmer: str) -> None:
    """Of the stemmers of Latin letters only porter runs in SQL; the others get words that it leaves alone."""

    @given(of(MIXED, 4))
    @settings(max_examples=60, deadline=None, database=None)
    def compare(words: set[str]) -> None:
        stemmed = dict(zip(sorted(words), lexical.stem_words(sorted(words), stemmer), strict=True))
        if stemmer not in {"porter", "none"}:
            known = in_sql(connection, f"fts_main_documents.script_stem(word, '{stemmer}')", words)
            words = {word for word in words if known[word] is not None}
        found = in_sql(connection, f"fts_main_documents.term_of(word, '{stemmer}')", words)
        assert found == {word: stemmed[word] for word in words}

    compare()


def test_stop_words_are_terms_of_their_own(connection: duckdb.DuckDBPyConnection) -> None:
    found = connection.execute("SELECT fts_main_documents.own_terms()").fetchall()[0][0]
    listed = connection.execute("SELECT word FROM fts_main_documents.stopwords").fetchall()
    assert set(found) == {"his", *(word for (word,) in listed)} == lexical._own_terms()


@pytest.mark.parametrize("stemmer", lexical.stemmers())
def test_fault_K2_no_word_shares_the_term_of_a_stop_word(stemmer: str) -> None:
    own = lexical._own_terms()
    others = {word + ending for word in (*own, "hi", "wil", "hav") for ending in ("", "e", "s", "es", "ing", "ed", "n")}
    assert lexical.stem_words(sorted(own), stemmer) == sorted(own)
    assert not {*lexical.stem_words(sorted(others - own), stemmer)} & own


@pytest.mark.parametrize("alias", ["w", "p", "word", "stem", "stemmer"])
def test_names_of_the_caller_do_not_reach_into_the_macros(connection: duckdb.DuckDBPyConnection, alias: str) -> None:
    query = f"""
        SELECT fts_main_documents.term_of({alias}.word, {alias}.stemmer),
               fts_main_documents.script_stem({alias}.word, {alias}.stemmer)
        FROM (SELECT 'книгами' AS word, 'porter' AS stemmer, 'other' AS stem, 'other' AS w, 'other' AS r) AS {alias}"""
    assert connection.execute(query).fetchone() == ("книг", "книг")
