"""The stemmer in SQL gives the stems of Snowball's "porter", which writes the index."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import duckdb
import pytest
import Stemmer
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.helpers import DATA, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SNOWBALL = Stemmer.Stemmer("porter")

# The examples of M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980, in the order of its rules.
# The paper gives the outcome of one rule; these are the stems after all steps.
PAPER = """
caresses caress  ponies poni  ties ti  caress caress  cats cat
feed feed  agreed agre  plastered plaster  bled bled  motoring motor  sing sing
conflated conflat  troubled troubl  sized size  hopping hop  tanned tan  falling fall  hissing hiss  fizzed fizz
failing fail  filing file  happy happi  sky sky
relational relat  conditional condit  rational ration  valenci valenc  hesitanci hesit  digitizer digit
conformabli conform  radicalli radic  differentli differ  vileli vile  analogousli analog  vietnamization vietnam
predication predic  operator oper  feudalism feudal  decisiveness decis  hopefulness hope  callousness callous
formaliti formal  sensitiviti sensit  sensibiliti sensibl
triplicate triplic  formative form  formalize formal  electriciti electr  electrical electr  hopeful hope
goodness good
revival reviv  allowance allow  inference infer  airliner airlin  gyroscopic gyroscop  adjustable adjust
defensible defens  irritant irrit  replacement replac  adjustment adjust  dependent depend  adoption adopt
homologou homolog  communism commun  activate activ  angulariti angular  homologous homolog  effective effect
bowdlerize bowdler
probate probat  rate rate  cease ceas  controll control  roll roll
generalizations gener  oscillators oscil
"""

# One word or more for each case of a rule that no example of the paper reaches.
FURTHER_CASES = """
weaknesses sniffed dubbed added lagged summed blurred fitted isolated oxidized timetabled delivered stayed boxes
educational cannibalism generality toxicity combativeness communicates disagreement ical opinion boy
"""

# The pieces of which the rules speak, with vowels, each kind of y and consonant, and characters outside of ASCII.
PIECES = """
sses ies ss s eed ed ing y at bl iz bb dd ff gg mm nn pp rr tt
ational tional enci anci izer abli alli entli eli ousli ization ation ator alism iveness fulness ousness aliti iviti
biliti icate ative alize iciti ical ful ness
al ance ence er ic able ible ant ement ment ent ion ou ism ate iti ous ive ize e l ll
a i o u yy b c h j k q v w x z 1 _ + # é ß я 東 京 🦆
"""


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA fts_main_documents")
        connection.execute((ROOT / "sql" / "macros" / "porter_stem.sql").read_text(encoding="utf-8"))
        yield connection


def sql_stems(connection: duckdb.DuckDBPyConnection, words: Iterable[str]) -> dict[str, str]:
    """The stem of each word by the macro."""
    rows = connection.execute(
        "SELECT word, fts_main_documents.porter_stem(word) FROM (SELECT unnest($words::VARCHAR[]) AS word)",
        {"words": sorted(words)},
    ).fetchall()
    return dict(rows)


def snowball_stems(words: Iterable[str]) -> dict[str, str]:
    """The stem of each word by PyStemmer."""
    return {word: SNOWBALL.stemWord(word) for word in words}


def differences(found: dict[str, str], expected: dict[str, str]) -> dict[str, tuple[str | None, str]]:
    """The words whose stem is not the expected one: a short message where whole corpora are compared."""
    return {word: (found.get(word), stem) for word, stem in expected.items() if found.get(word) != stem}


def test_examples_of_the_paper(connection: duckdb.DuckDBPyConnection) -> None:
    expected = dict(zip(PAPER.split()[::2], PAPER.split()[1::2], strict=True))
    assert differences(snowball_stems(expected), expected) == {}
    assert differences(sql_stems(connection, expected), expected) == {}


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(FURTHER_CASES.split(), id="further cases"),
        pytest.param(["", "a", "s", "y", "b", "1", "_", "é", "東", "🦆"], id="no or one letter"),
        pytest.param(
            ["is", "as", "us", "ss", "ed", "by", "ye", "yy", "1s", "_s", "és", "東s", "東京"], id="two letters"
        ),
        pytest.param(["yes", "say", "saying", "yyy", "ayy", "byy", "enjoyed", "syzygy", "yayed", "toyyer"], id="y"),
        pytest.param(["c++", "c#", ".net", "read_csv", "st_areas", "float16s", "2nd", "utf8"], id="names in code"),
        pytest.param(["cafés", "naïveness", "größen", "базы", "日本s", "κόσμος", "éed", "bébing"], id="beyond ASCII"),
        pytest.param(["a\nrelational", "relational\n", "it's", "dogs'"], id="characters that are no letters"),
    ],
)
def test_words_beside_the_examples(connection: duckdb.DuckDBPyConnection, words: list[str]) -> None:
    assert sql_stems(connection, words) == snowball_stems(words)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "pattern", "least"),
    [
        ("nfcorpus", "corpus.jsonl", 15_000),
        ("scifact", "corpus.jsonl", 25_000),
        ("docs/duckdb-current", "**/*.md", 10_000),
        ("xquad_de", "corpus.jsonl", 5_000),
        ("xquad_ru", "corpus.jsonl", 8_000),
    ],
)
def test_every_word_of_a_corpus(connection: duckdb.DuckDBPyConnection, folder: str, pattern: str, least: int) -> None:
    files = sorted((DATA / folder).glob(pattern))
    if not files:
        pytest.skip(f"../shared/data/{folder} is not here")
    words = {word for file in files for word in re.findall(r"\w+", file.read_text(encoding="utf-8").lower())}
    assert len(words) >= least
    assert differences(sql_stems(connection, words), snowball_stems(words)) == {}


@pytest.mark.slow
@given(st.sets(st.lists(st.sampled_from(PIECES.split()), max_size=5).map("".join), min_size=1, max_size=200))
@settings(max_examples=200, deadline=None, database=None)
def test_words_made_of_suffixes(connection: duckdb.DuckDBPyConnection, words: set[str]) -> None:
    assert differences(sql_stems(connection, words), snowball_stems(words)) == {}


def test_null_has_no_stem(connection: duckdb.DuckDBPyConnection) -> None:
    assert connection.execute("SELECT fts_main_documents.porter_stem(NULL)").fetchone() == (None,)


@pytest.mark.parametrize("alias", ["w", "p", "word"])
def test_names_of_the_caller_do_not_reach_into_the_macro(connection: duckdb.DuckDBPyConnection, alias: str) -> None:
    query = f"""
        SELECT fts_main_documents.porter_stem({alias}.word)
        FROM (SELECT 'relational' AS word, 'other' AS stem, 'other' AS suffix, 'other' AS w, 'other' AS p) AS {alias}"""
    assert connection.execute(query).fetchone() == ("relat",)
