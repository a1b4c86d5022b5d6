"""What is marked in a text is what the lexical index finds in it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sqlrag
from sqlrag import InputError, NotFoundError, Store
from sqlrag.engines.duckdb import lexical
from tests.support.helpers import build


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with Store(build(tmp_path_factory.mktemp("kb"), a_md="zebra and lion")) as opened:
        yield opened


def marked(store, question, text, **options):
    (spans,) = store.highlight(question, [text], **options)
    return [text[start:end] for start, end in spans]


# The words are those that a reader would underline.
CASES = {
    "stems": ("fill a pool", "Filling pools; a carpool", ["Filling", "pools"]),
    "parts of compound names": ("pool", "ConnectionPool, max_pool_size, pooling", ["Pool", "pool", "pooling"]),
    "a compound name as a whole": ("max_pool_size", "set max_pool_size now", ["max_pool_size"]),
    "names with signs": ("c++ or .net", "C++ for ASP.NET", ["C++", ".NET"]),
    "accents": ("cafe", "Cafés, cafe\u0301s and CAFÉ", ["Cafés", "cafe\u0301s", "CAFÉ"]),
    "an accent behind an emoji": ("cafe", "😀 cafe\u0301", ["cafe\u0301"]),
    "ligatures": ("efficient", "e\ufb03cient", ["e\ufb03cient"]),
    "soft hyphens": ("efficient", "an ef\u00adficient way", ["ef\u00adficient"]),
    "the final sigma": ("λόγος", "ΛΟΓΟΣ λογος", ["ΛΟΓΟΣ", "λογος"]),
    "yo": ("ёлка", "Елка", ["Елка"]),
    "vowel points": ("שלום", "שָׁלוֹם עולם", ["שָׁלוֹם"]),
    "Arabic": ("كتاب", "هذا كِتَاب", ["كِتَاب"]),
    "Han in pairs": ("検索", "全文検索の検", ["検索"]),
    "pairs that overlap": ("全文検索", "全文検索", ["全文検索"]),
    "one Han character": ("検", "検索と点検", ["検", "検"]),
    "Hangul in pieces": ("한국어", "\u1112\u1161\u11ab국어 말", ["\u1112\u1161\u11ab국어"]),
    "Thai": ("ภาษา", "พูดภาษาไทย", ["ภาษา"]),
    "digits and signs": ("E1234", "error E-1234, E1234!", ["E1234"]),
    "stop words beside others": ("the lion", "the lion", ["lion"]),
    "stop words alone": ("the", "The lion", ["The"]),
    "a phrase with stop words": ('"to be"', "to be, be, to", ["to", "be"]),
    "a word of a phrase elsewhere": ('"the lion"', "lion, the lion", ["lion", "the", "lion"]),
    "a prefix": ("conf*", "configure conf reconf", ["configure", "conf"]),
    "nothing": ("zebra", "lion", []),
    "signs alone": ("???", "what???", []),
    "an empty text": ("zebra", "", []),
}


@pytest.mark.parametrize(("question", "text", "words"), CASES.values(), ids=CASES)
def test_words_are_marked(store, question, text, words):
    assert marked(store, question, text) == words


def test_quotes_and_stars_are_signs_without_syntax(store):
    assert marked(store, '"the lion" conf*', "the lion configures conf", syntax=False) == ["lion", "conf"]


def test_spans_are_characters_of_each_text(store):
    texts = ["😀😀 zebra", "no", "zebra\ud800zebra"]
    assert store.highlight("zebras", texts) == [[(3, 8)], [], [(0, 5), (6, 11)]]


def test_the_stemmer_of_the_file_counts(tmp_path):
    with Store.create(tmp_path / "kb.duckdb", 8, stemmer="none") as plain:
        assert marked(plain, "pool", "pools pool") == ["pool"]
    with Store.create(tmp_path / "de.duckdb", 8, stemmer="german") as german:
        assert marked(german, "Häuser", "das Haus, die Häuser") == ["Haus", "Häuser"]


def test_the_stop_words_of_the_file_count(tmp_path):
    with Store.create(tmp_path / "kb.duckdb", 8) as store:
        store.cursor().execute("INSERT INTO fts_main_documents.stopwords VALUES ('Valve')")
        assert marked(store, "red valve", "the red valve") == ["red"]


def test_the_function_opens_the_file(store):
    assert sqlrag.highlight("zebras", ["a zebra"], store.path) == [[(2, 7)]]
    with pytest.raises(NotFoundError):
        sqlrag.highlight("zebra", [], store.path.with_name("none.duckdb"))


@pytest.mark.parametrize(
    ("question", "texts", "says"),
    [(" ", ["a"], "query_text"), (None, ["a"], "query_text"), ("a", "a", "texts"), ("a", [None], "texts")],
)
def test_wrong_arguments(store, question, texts, says):
    with pytest.raises(InputError, match=says):
        store.highlight(question, texts)


ALPHABET = st.sampled_from(
    [*'aBZz09_.#+-* \n"éßİıẞÅ\u0301\u00ad\u200bﬃςΣёЁшक्षิ가\u1100\u1161\u11a8全検索カｶー😀🄰ไทษ\u0e32ခខ\u0651ab\u212a']
)


TEXTS = st.lists(st.text(ALPHABET, max_size=40), min_size=1, max_size=30)
INDEXED = """
SELECT fts_main_documents.tokenize(text) || fts_main_documents.run_characters(fts_main_documents.composed(text))
FROM (SELECT unnest($1) AS text, generate_subscripts($1, 1) AS place) ORDER BY place
"""


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_every_word_of_the_index_has_a_place(store, texts):
    """The oracle is the macro by which texts come into the index."""
    expected = [words for (words,) in store.cursor().execute(INDEXED, [texts]).fetchall()]
    for text, composed, words in zip(texts, lexical._composed(store.cursor(), texts), expected, strict=True):
        found = list(lexical._words_of(text, composed))
        folded = lexical._spelled(store.cursor(), "fold", [word.text for word in found])
        assert Counter(folded[word.text] for word in found) == Counter(words)
        assert all(0 <= start < end <= len(text) for _, (start, end), _ in found)
