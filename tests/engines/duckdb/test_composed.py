"""The forms of characters that count as the same word: the macros composed and fold against Python's Unicode tables."""

from __future__ import annotations

import random
import unicodedata
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from sqlrag.engines.duckdb import lexical
from sqlrag.search.store import Store
from sqlrag.types import Chunk, Document
from tests.support.refresh_composed import IGNORABLE, POINTS, TARGET, form_of, unchanged

if TYPE_CHECKING:
    from pathlib import Path

SURROGATES = range(0xD800, 0xE000)

# Characters that this Python knows.
KNOWN = [
    chr(point)
    for point in range(0x80, 0x110000)
    if not 0xD800 <= point <= 0xDFFF and unicodedata.category(chr(point)) not in ("Cn", "Co")
]


def folded(character: str) -> str:
    """Unicode's full case folding of compatibility forms."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", character).casefold())


def is_other_by_design(character: str) -> bool:
    """Accents that stand alone, the signs of trademarks, and the iota below a Greek vowel, which is an accent here."""
    bare = unicodedata.normalize("NFKD", character)
    return bare[0] == " " or character in "℠™🅪🅫🅬" or "\u0345" in bare


def test_fault_T2_T7_each_character_counts_as_its_nfkc_case_folding() -> None:
    rows = [(c, folded(c)) for c in KNOWN if folded(c) != c and not is_other_by_design(c)]
    assert len(rows) > 6000
    con = lexical.word_macros().cursor()
    con.register("given", pa.table({"c": [c for c, _ in rows], "other": [other for _, other in rows]}))
    wrong = con.execute(
        "SELECT c, other, fts_main_documents.tokenize(c), fts_main_documents.tokenize(other) FROM given "
        "WHERE fts_main_documents.tokenize(c) <> fts_main_documents.tokenize(other)"
    ).fetchall()
    assert wrong == []


def test_the_table_has_every_compatibility_form() -> None:
    """It is of one Unicode version: an older Python knows fewer characters, a newer one may know more."""
    wanted = {c: form for c in KNOWN if (form := form_of(c)) is not None}
    con = lexical.word_macros().cursor()
    con.register("given", pa.table({"c": list(wanted)}))
    rows = con.execute("SELECT c, fts_main_documents.composed(c) FROM given").fetchall()
    wrong = {c: found for c, found in rows if found != unicodedata.normalize("NFC", _without_marks(wanted[c]))}
    made_with = TARGET.read_text("utf-8").split("NFKC of Unicode ")[1].split(")")[0]
    if tuple(map(int, unicodedata.unidata_version.split("."))) <= tuple(map(int, made_with.split("."))):
        assert wrong == {}
    assert len(wrong) < 300


def _without_marks(text: str) -> str:
    dropped = [range(low, high + 1) for low, high in (*IGNORABLE, *POINTS)]
    composed = unicodedata.normalize("NFC", text)
    return "".join(c for c in composed if not any(ord(c) in span for span in dropped)).translate({0x3C2: "σ"})


@pytest.mark.slow
def test_what_is_returned_as_it_is_is_what_the_whole_macro_returns() -> None:
    """A ligature behind a text makes the macro look at all of it."""
    chance = random.Random(7)
    marks = [c for c in KNOWN if unicodedata.combining(c)]
    same = [
        chr(point) for low, high in unchanged() for point in range(low, high + 1) if point and point not in SURROGATES
    ]
    kinds = (same, same, same, marks, KNOWN)
    texts = [
        *KNOWN,
        *("".join(chance.choice(chance.choice(kinds)) for _ in range(chance.randint(2, 8))) for _ in range(20_000)),
    ]
    con = lexical.word_macros().cursor()
    con.register("given", pa.table({"c": [text.replace("\ufb01", "") for text in texts]}))
    wrong = con.execute(
        "SELECT c FROM given "
        "WHERE fts_main_documents.composed(c) || ' fi' <> fts_main_documents.composed(c || ' \ufb01')"
    ).fetchall()
    assert wrong == []


TEXTS = {
    "hw": "ﾃﾞｰﾀｾｯﾄ を ｴｸｽﾎﾟｰﾄ",
    "fw": "ＢｉｇＱｕｅｒｙ ＥＴＬ ２０２４年 Ｃ＋＋",
    "units": "x² und H₂O, ①Prüfen ②Messen, Kapitel Ⅷ, 5㎏, 2½ Tassen, Word™",
    "street": "Die Straße ist lang",
    "names": "Łódź, smørrebrød, Ærø, đồng, œuvre, Þór, ısparta, Diyarbakır",
    "plain": "データセット BigQuery ETL 2024 x2 h2o viii 5kg STRASSE Lodz",
    "hidden": "soft\u00adhyphen zero\u200bwidth word\ufe0f \u845b\U000e0100\u98fe",
    "ligature": "eﬃcient oﬀer",
}

QUESTIONS = [
    ("データセット", {"hw", "plain"}),
    ("ﾃﾞｰﾀｾｯﾄ", {"hw", "plain"}),
    ("エクスポート", {"hw"}),
    ("BigQuery", {"fw", "plain"}),
    ("ＥＴＬ", {"fw", "plain"}),
    ("2024", {"fw", "plain"}),
    ("C++", {"fw"}),
    ("x2", {"units", "plain"}),
    ("H₂O", {"units", "plain"}),
    ("prüfen", {"units"}),
    ("viii", {"units", "plain"}),
    ("5kg", {"units", "plain"}),
    ("word", {"units", "hidden"}),
    ("STRASSE", {"street", "plain"}),
    ("Straße", {"street", "plain"}),
    ("STRAẞE", {"street", "plain"}),
    ("lodz", {"names", "plain"}),
    ("Łódź", {"names", "plain"}),
    ("smorrebrod", {"names"}),
    ("AERO", {"names"}),
    ("dong", {"names"}),
    ("OEUVRE", {"names"}),
    ("thor", {"names"}),
    ("ISPARTA", {"names"}),
    ("diyarbakir", {"names"}),
    ("softhyphen", {"hidden"}),
    ("zerowidth", {"hidden"}),
    ("葛飾", {"hidden"}),
    ("efficient", {"ligature"}),
    ('"big query"', set()),
    ('"bigquery etl ２０２４"', {"fw", "plain"}),
    ('"die strasse ist"', {"street"}),
    ("strass*", {"street", "plain"}),
]


def make(path: Path, stemmer: str) -> None:
    with Store.create(path, 8, stemmer=stemmer) as store:
        documents = [Document(name, text) for name, text in TEXTS.items()]
        chunks = [Chunk(name, 0, text) for name, text in TEXTS.items()]
        store.upsert(documents, chunks, np.ones((len(TEXTS), 8)))
        assert store.check() == []


@pytest.mark.rest
@pytest.mark.parametrize("stemmer", ["porter", "german"])
def test_fault_T2_T7_other_forms_of_a_word_are_found(tmp_path: Path, stemmer: str) -> None:
    make(tmp_path / "kb.duckdb", stemmer)
    with Store(tmp_path / "kb.duckdb") as store:
        found = {text: {row["doc_id"] for row in store.lexical_query(text, top_k=20)} for text, _ in QUESTIONS}
        in_sql = {
            text: {row[0] for row in store.cursor().execute("SELECT doc_id FROM lexical_query($1)", [text]).fetchall()}
            for text, _ in QUESTIONS
            if "*" not in text and '"' not in text
        }
    assert found == dict(QUESTIONS)
    assert in_sql == {text: found[text] for text in in_sql}


@pytest.mark.parametrize("stemmer", ["danish", "english", "german", "porter", "turkish", "none"])
def test_fault_T7_one_form_has_one_stem(stemmer: str) -> None:
    """Words are folded before they are stemmed."""
    pairs = [("Straße", "STRASSE"), ("Füße", "FÜSSE"), ("ﬁnden", "finden"), ("kırmızı", "KIRMIZI"), ("Ⅷ", "viii")]
    for one, other in pairs:
        assert lexical.terms_of([one], stemmer) == lexical.terms_of([other], stemmer)


@pytest.mark.parametrize(
    ("question", "text", "marked"),
    [
        ("データ", "x ﾃﾞｰﾀ y", ["ﾃﾞｰﾀ"]),
        ("etl", "mit ＥＴＬ und", ["ＥＴＬ"]),
        ("strasse", "die Straße, STRASSE", ["Straße", "STRASSE"]),
        ("straße", "die Straße, STRASSE", ["Straße", "STRASSE"]),
        ("5kg", "wiegt 5㎏.", ["5㎏"]),
        ("x2", "in x² an", ["x²"]),
        ("1", "①Prüfen", ["①"]),
        ("prufen", "①Prüfen", ["Prüfen"]),
        ("query", "ＢｉｇＱｕｅｒｙ", ["Ｑｕｅｒｙ"]),
        ("aero", "nach Ærø.", ["Ærø"]),
        ("efficient", "an eﬃcient one", ["eﬃcient"]),
        ("softhyphen", "a soft\u00adhyphen", ["soft\u00adhyphen"]),
        ("cafe", "ein cafe\u200d\u0301 da", ["cafe\u200d\u0301"]),
        ('"die strasse"', "Die Straße", ["Die", "Straße"]),
        ("strass*", "Straßenbahn", ["Straßenbahn"]),
        ("가", "ㄱㅏ 나", ["ㄱㅏ"]),
    ],
)
def test_fault_T2_T7_marks_are_on_the_text_as_it_is_written(question: str, text: str, marked: list[str]) -> None:
    con = lexical.word_macros().cursor()
    found = lexical.spans(con, question, [text], "porter", syntax=True)[0]
    assert [text[start:end] for start, end in found] == marked


def test_parts_of_a_folded_name_are_no_compound() -> None:
    assert lexical.words_of(["Ærø Þór Œuvre"]) == [["aero", "thor", "oeuvre"]]
