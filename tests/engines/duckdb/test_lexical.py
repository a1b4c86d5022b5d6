"""The lexical index against two other BM25s, and the writing of it against an index built afresh."""

from __future__ import annotations

import json
import math
import random
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING, Any

import bm25s
import duckdb
import numpy as np
import pyarrow as pa
import pytest
import Stemmer

from sqlrag import check, delete_documents
from sqlrag.engines.duckdb import documents, lexical
from sqlrag.errors import InputError
from sqlrag.search.store import Store
from sqlrag.types import Chunk, Document
from tests.support.helpers import DATA, build, ids
from tests.support.refresh_composed import IGNORABLE, POINTS, form_of, is_word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NFCORPUS = DATA / "nfcorpus"
COUNT = 800


def make_store(path: Path, change: Callable[[str], str] = str) -> Store:
    """800 abstracts, their titles as headings; the vectors are of no use here."""
    if not NFCORPUS.is_dir():
        pytest.skip("NFCorpus is not here")
    lines = (NFCORPUS / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[:COUNT]
    rows = [json.loads(change(line)) for line in lines]
    chunks = [Chunk(row["_id"], 0, row["text"], heading_path=(row["title"],)) for row in rows]
    with Store.create(path, 8) as made:
        made.upsert([Document(row["_id"], row["text"]) for row in rows], chunks, np.ones((COUNT, 8)))
    return Store(path)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with make_store(tmp_path_factory.mktemp("lexical") / "nfcorpus.duckdb") as made:
        yield made


@pytest.fixture(scope="module")
def questions() -> list[str]:
    if not NFCORPUS.is_dir():
        pytest.skip("the collection is not beside the project")
    lines = (NFCORPUS / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in random.Random(1).sample(lines, 25)]


def terms_by_document(store: Store, macro: str) -> dict[str, tuple[list[str], list[str]]]:
    """The terms of each abstract and of its title: the words that SQL gives, stemmed here."""
    rows = store.cursor().execute(
        f"SELECT doc_id, fts_main_documents.{macro}(text), fts_main_documents.{macro}(heading_path[1]) FROM documents"
    )
    stem = Stemmer.Stemmer("porter").stemWords
    return {doc_id: (stem(text), stem(title)) for doc_id, text, title in rows.fetchall()}


def terms_of(store: Store, question: str) -> list[str]:
    return [row[0] for row in store.cursor().execute("FROM query_terms($1)", [question]).fetchall()]


PAGE = """---
title: Given title
description: All about valves
keywords: [pressure, bars]
author: Anna Kowalska
aliases: Ventil
tags: safety
other: hidden
---
# Own

kiwi

## Second

mango
"""


def front_store(tmp_path: Path) -> Path:
    return build(
        tmp_path, a_md=PAGE, b_md="# B\n\nkiwi safety", c_md="---\nauthor: {name: Jan Nowak}\n---\n# C\n\nplum"
    )


@pytest.mark.parametrize("query", ["Kowalska", "valve", "pressure", "bars", "ventil", '"Anna Kowalska"', "Kowal*"])
def test_fault_T21_front_matter_is_found_by_its_words(tmp_path: Path, query: str) -> None:
    with Store(front_store(tmp_path)) as store:
        assert ids(store.lexical_query(query)) == ids(store.lexical_query(query, fields="heading_path")) == ["a.md#0"]
        assert ids(store.lexical_query(query, fields="text")) == []


@pytest.mark.parametrize("query", ["given", "+title"])
def test_fault_T21_the_title_heads_the_path_of_every_chunk(tmp_path: Path, query: str) -> None:
    with Store(front_store(tmp_path)) as store:
        assert sorted(ids(store.lexical_query(query))) == ["a.md#0", "a.md#1"]
        assert sorted(ids(store.lexical_query(query, fields="heading_path"))) == ["a.md#0", "a.md#1"]
        assert ids(store.lexical_query(query, fields="text")) == []


@pytest.mark.slow
def test_fault_T21_words_of_front_matter_weigh_as_headings_and_are_no_text(tmp_path: Path) -> None:
    path = front_store(tmp_path)
    with Store(path) as store:
        assert sorted(ids(store.lexical_query("safety"))) == ["a.md#0", "b.md#0"]
        assert ids(store.lexical_query("safety", fields="text")) == ["b.md#0"]
        for query in ("hidden", "Nowak", '"Kowalska Anna"'):
            assert ids(store.lexical_query(query)) == []
        assert store.lexical_query("Kowalska")[0]["text"] == "# Own\n\nkiwi"
        # A title that heads the path counts once.
        counts = "SELECT max(heading_tf) FROM fts_main_documents.postings JOIN fts_main_documents.dict USING (termid)"
        assert store.cursor().execute(f"{counts} WHERE term = 'own'").fetchall() == [(1,)]
    assert check(path) == []
    delete_documents(path, doc_ids=["a.md"])
    assert check(path) == []
    with Store(path) as store:
        assert ids(store.lexical_query("Kowalska")) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k1", "b", "heading_weight"), [(1.2, 0.75, 2.0), (0.9, 0.4, 0.0), (2.0, 1.0, 0.5), (0.0, 0.0, 1.0)]
)
def test_scores_are_those_of_the_formula(
    store: Store, questions: list[str], k1: float, b: float, heading_weight: float
) -> None:
    """BM25F with Lucene's idf, written again in plain Python: same chunks, scores and order.

    Every word counts where it stands; the length of a text is the number of its plain words.
    """
    found_by, plain = terms_by_document(store, "tokenize"), terms_by_document(store, "plain_words")
    assert found_by != plain
    counts = {doc: (Counter(text), Counter(title)) for doc, (text, title) in found_by.items()}
    lengths = {doc: len(text) + heading_weight * len(title) for doc, (text, title) in plain.items()}
    mean = sum(lengths.values()) / len(lengths)
    for question in questions:
        scores: dict[str, float] = {}
        for term in terms_of(store, question):
            holders = [doc for doc, (text, title) in counts.items() if text[term] or title[term]]
            idf = math.log(1 + (len(counts) - len(holders) + 0.5) / (len(holders) + 0.5))
            for doc in holders:
                tf = counts[doc][0][term] + heading_weight * counts[doc][1][term]
                if tf > 0:
                    part = (k1 + 1) * idf * tf / (tf + k1 * (1 - b + b * lengths[doc] / mean))
                    scores[doc] = scores.get(doc, 0) + part
        found = store.lexical_query(question, top_k=COUNT, k1=k1, b=b, heading_weight=heading_weight, syntax=False)
        assert {row["doc_id"]: row["score"] for row in found} == pytest.approx(scores, abs=1e-8, rel=0)
        ranked = [(-row["score"], row["doc_id"]) for row in found]
        assert ranked == sorted(ranked)


@pytest.mark.slow
def test_ranks_are_those_of_bm25s(tmp_path: Path, questions: list[str]) -> None:
    """bm25s, method "lucene", leaves out the factor k1 + 1 and counts in float32.

    A heading of weight 1 is as text. Without capitals and _ there are no compound names, whose parts bm25s would
    count into the length.
    """
    with make_store(
        tmp_path / "lower.duckdb",
        lambda line: line.lower().replace('"_id"', '"+id"').replace("_", " ").replace('"+id"', '"_id"'),
    ) as store:
        compare_with_bm25s(store, questions)


def compare_with_bm25s(store: Store, questions: list[str]) -> None:
    tokens = terms_by_document(store, "tokenize")
    assert tokens == terms_by_document(store, "plain_words")
    names = sorted(tokens)
    peer = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    peer.index([tokens[name][0] + tokens[name][1] for name in names], show_progress=False)
    compared = 0
    for question in questions:
        terms = [term for term in terms_of(store, question) if term in peer.vocab_dict]
        if not terms:
            continue
        scores = {name: 2.2 * float(score) for name, score in zip(names, peer.get_scores(terms), strict=True) if score}
        found = store.lexical_query(question, top_k=COUNT, heading_weight=1, syntax=False)
        assert {row["doc_id"] for row in found} == scores.keys()
        assert [row["score"] for row in found] == pytest.approx([scores[row["doc_id"]] for row in found], rel=1e-5)
        assert [scores[row["doc_id"]] for row in found] == pytest.approx(
            sorted(scores.values(), reverse=True), rel=1e-5
        )
        compared += len(found)
    assert compared > 2000


@pytest.mark.slow
@pytest.mark.skipif(duckdb.__version__ < "2", reason="DuckDB 1 refuses it with an error")
def test_queries_from_a_column(store: Store) -> None:
    """Each row gets the answer to its own question, whatever the column is called."""
    con = store.cursor()
    alone = [con.execute("SELECT node_id, score FROM lexical_query($1)", [q]).fetchall() for q in ("statins", "diet")]
    for name in ("word", "term", "q"):
        rows = con.execute(
            f"SELECT q.{name}, l.node_id, l.score FROM (VALUES ('statins'), ('diet')) AS q({name}), "
            f"lexical_query(q.{name}) AS l ORDER BY l.score DESC, l.doc_id"
        ).fetchall()
        found = [[row[1:] for row in rows if row[0] == question] for question in ("statins", "diet")]
        assert found == alone
        scores = con.execute(
            f"SELECT fts_main_documents.match_bm25(node_id, q.{name}) FROM documents, (VALUES ('statins'), ('diet')) "
            f"AS q({name}) WHERE node_id = $1 AND q.{name} = 'diet'",
            [alone[1][0][0]],
        ).fetchall()
        assert scores == [alone[1][0][1:]]


@pytest.mark.rest
def test_every_letter_digit_and_mark_is_part_of_a_word(store: Store) -> None:
    points = [chr(i) for i in range(0x110000) if not 0xD800 <= i <= 0xDFFF]
    kept = pa.table({"c": [c for c in points if unicodedata.category(c)[0] in "LMN" and not is_dropped(c)]})
    con = store.cursor()
    con.register("kept", kept)
    assert con.execute("SELECT c FROM kept WHERE len(fts_main_documents.tokenize(c)) = 0").fetchall() == []
    # Between two letters it is neither lost nor does it part them, unless it stands in a run of its own, or is
    # spelled out with separators, as ① and ½ are.
    parted = con.execute(
        "SELECT c FROM (SELECT c, fts_main_documents.composed('a' || c || 'b') AS word FROM kept "
        "WHERE len(fts_main_documents.run_pairs(fts_main_documents.composed(c))) = 0) "
        "WHERE NOT regexp_matches(word, '[ ().,/⁄·〔〕:]') "
        "AND NOT list_contains(fts_main_documents.tokenize(word), fts_main_documents.fold(word))"
    ).fetchall()
    assert parted == []
    con.unregister("kept")


def is_dropped(character: str) -> bool:
    """Whether a text of it has no word: joiners, variation selectors, vowel points, accents that stand alone."""
    spans = (*IGNORABLE, *POINTS, (0xE0000, 0xE0FFF))
    return all(c == " " or any(low <= ord(c) <= high for low, high in spans) for c in plain_form(character))


def plain_form(character: str) -> str:
    return form_of(character) or character


# Blocks whose punctuation, symbols and blanks all separate: ASCII and Latin-1, General Punctuation, currencies,
# arrows to dingbats, CJK punctuation, full-width forms, emoji.
SEPARATING = [(0, 0xFF), (0x2010, 0x206F), (0x20A0, 0x20C0), (0x2190, 0x27BF), (0x3000, 0x3004), (0x3008, 0x3020)]
SEPARATING += [(0xFF01, 0xFF65), (0x1F300, 0x1FAFF)]


@pytest.mark.slow
def test_punctuation_separates(store: Store) -> None:
    points = [chr(i) for low, high in SEPARATING for i in range(low, high + 1)]
    # What is spelled out with letters or digits, as ⒜, ℃ and ㎏ are, is no punctuation.
    marks = pa.table({"c": [c for c in points if unicodedata.category(c)[0] in "PSZ" and not is_word(plain_form(c))]})
    assert marks.num_rows > 1500
    con = store.cursor()
    con.register("marks", marks)
    wrong = "SELECT c FROM marks WHERE fts_main_documents.tokenize('1' || c || '2') <> ['1', '2']"
    assert con.execute(wrong).fetchall() == []
    con.unregister("marks")


@pytest.mark.parametrize("text", ["Überprüfung naïve café", "Ώρα", "ёлка", "район", "한국어", "がぎ"])
def test_decomposed_input_gives_the_same_words(store: Store, text: str) -> None:
    tokenize = "SELECT fts_main_documents.tokenize($1)"
    con = store.cursor()
    decomposed = con.execute(tokenize, [unicodedata.normalize("NFD", text)]).fetchall()
    assert decomposed == con.execute(tokenize, [text]).fetchall()


def test_score_can_be_named_in_where(store: Store) -> None:
    """As DuckDB's fts extension is used."""
    sql = "SELECT node_id, fts_main_documents.match_bm25(node_id, 'statins') AS score FROM documents WHERE score > 0"
    assert store.cursor().execute(sql).fetchall()


def test_empty_metadata_is_no_condition(store: Store) -> None:
    con = store.cursor()
    assert con.execute("""SELECT metadata_matches('{"a": 1}', '{}')""").fetchall() == [(True,)]


def test_stemmers(tmp_path: Path) -> None:
    assert lexical.stem_words(["running", "cats"], "porter") == ["run", "cat"]
    assert lexical.stem_words(["running"], "none") == ["running"]
    with pytest.raises(InputError, match="porter"):
        lexical.check_stemmer("klingon")
    with Store.create(tmp_path / "ru.duckdb", 8, stemmer="russian") as store:
        store.upsert([Document("a", "x")], [Chunk("a", 0, "новая книга")], np.ones((1, 8)))
        assert [row["node_id"] for row in store.lexical_query("книгами")] == ["a#0"]


PAGES = {
    "on.txt": "The lamp is on the table, on and on.",
    "one.txt": "There is one lamp here.",
    "his.txt": "His is his and does what he does.",
    "hi.txt": "hi, said the doe",
    "ru.txt": "Руководители отвечают за книги.",
    "ar.txt": "وصل المهندسون إلى المدرسة.",
    "hi_script.txt": "लड़कियों ने किताबें पढ़ीं।",
    "el.txt": "Οι άνθρωποι γράφουν βιβλία.",
    "th.txt": "ประเทศไทยมีเมืองหลวงชื่อกรุงเทพมหานคร",
    "lo.txt": "ນະຄອນຫຼວງວຽງຈັນ",
    "km.txt": "រាជធានីភ្នំពេញ",
    "my.txt": "ရန်ကုန်မြို့",
    "zh.txt": "东京都的人口很多",
}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path = tmp_path_factory.mktemp("scripts") / "kb.duckdb"
    with Store.create(path, 8) as made:
        chunks = [Chunk(name, 0, text) for name, text in PAGES.items()]
        made.upsert([Document(*page) for page in PAGES.items()], chunks, np.ones((len(PAGES), 8)))
    with Store(path) as opened:
        yield opened


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("one", ["one.txt"]),
        ("on", ["on.txt"]),
        ("hi", ["hi.txt"]),
        ("doe", ["hi.txt"]),
        ('"one"', ["one.txt"]),
        ('"his"', ["his.txt"]),
        ("one lamp", ["one.txt", "on.txt"]),
        ("ones", ["one.txt"]),
    ],
)
def test_fault_K2_a_stop_word_is_matched_by_word(scripts: Store, question: str, wanted: list[str]) -> None:
    assert [row["doc_id"] for row in scripts.lexical_query(question)] == wanted
    spans = scripts.highlight(question, list(PAGES.values()))
    assert [name for name, found in zip(PAGES, spans, strict=True) if found] == sorted(wanted, key=list(PAGES).index)
    if '"' not in question:
        sql = "SELECT doc_id FROM lexical_query($1)"
        assert [row for (row,) in scripts.cursor().execute(sql, [question]).fetchall()] == wanted


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("руководителей", "ru.txt"),
        ("КНИГАМИ", "ru.txt"),
        ("مهندس", "ar.txt"),
        ("والمدرسه", "ar.txt"),
        ("लड़की", "hi_script.txt"),
        ("किताब", "hi_script.txt"),
        ("ανθρώπων", "el.txt"),
        ("γράφει", "el.txt"),
        ("เมืองหลวง", "th.txt"),
        ("ชื่", "th.txt"),
        ("มี", "th.txt"),
        ('"มี"', "th.txt"),
        ('"กรุงเทพ"', "th.txt"),
        ("กรุ*", "th.txt"),
        ("ວຽງຈັນ", "lo.txt"),
        ("ភ្នំពេញ", "km.txt"),
        ("ရန်ကုန်", "my.txt"),
        ("东京", "zh.txt"),
        ('"口"', "zh.txt"),
    ],
)
def test_fault_K4_other_forms_and_parts_of_words_are_found_in_their_script(
    scripts: Store, question: str, wanted: str
) -> None:
    assert [row["doc_id"] for row in scripts.lexical_query(question)] == [wanted]
    assert [bool(found) for found in scripts.highlight(question, [PAGES[wanted], PAGES["on.txt"]])] == [True, False]
    if question[-1] not in '"*':
        sql = "SELECT doc_id FROM lexical_query($1)"
        assert scripts.cursor().execute(sql, [question]).fetchall() == [(wanted,)]


def test_three_characters_of_thai_are_more_than_their_pairs(tmp_path: Path) -> None:
    """Pairs alone would find the pairs of the question, scattered, before its word."""
    with Store.create(tmp_path / "th.duckdb", 8) as made:
        texts = {"word": "เราจะไปดูภาษาโบราณที่วัดนั้น", "scattered": "ภาพ าษ ษาด"}
        chunks = [Chunk(name, 0, text) for name, text in texts.items()]
        made.upsert([Document(*page) for page in texts.items()], chunks, np.ones((2, 8)))
    with Store(tmp_path / "th.duckdb") as opened:
        assert [row["doc_id"] for row in opened.lexical_query("ภาษา")] == ["word"]


# What a store holds, with the numbers that depend on the order of writing (rid, termid) put into words.
CONTENTS = {
    "documents": "SELECT * EXCLUDE rid FROM documents ORDER BY node_id",
    "source_documents": "SELECT * EXCLUDE created_at FROM source_documents ORDER BY doc_id",
    "dict": "SELECT term, df FROM fts_main_documents.dict ORDER BY term",
    "postings": "SELECT term, node_id, p.* EXCLUDE (termid, rid) FROM fts_main_documents.postings AS p "
    "JOIN fts_main_documents.dict USING (termid) JOIN documents USING (rid) ORDER BY term, node_id",
    "docs": "SELECT node_id, len, heading_len FROM fts_main_documents.docs JOIN documents USING (rid) ORDER BY node_id",
    "stats": "FROM fts_main_documents.stats",
    "counts": "SELECT key, value FROM embedding_metadata WHERE key <> 'created_at' ORDER BY key",
    "rows": "SELECT (SELECT count(*) FROM fts_main_documents.postings), (SELECT count(*) FROM fts_main_documents.docs)",
}


def contents(store: Store) -> dict[str, Any]:
    return {name: store.cursor().execute(sql).fetchall() for name, sql in CONTENTS.items()}


def random_document(chance: random.Random, doc_id: str) -> tuple[Document, list[Chunk], list[list[float]]]:
    words = ["duck", "ducks", "goose", "pond", "Pond", "water_bird", "breads", "東京都", "café", "e1042", "the"]
    tags, metadata = (chance.choice("ab"),), {"n": chance.random()}
    chunks = [
        Chunk(
            doc_id,
            i,
            " ".join(chance.choices(words, k=chance.randint(1, 6))),
            heading_path=tuple(chance.sample(words, 1)),
        )
        for i in range(chance.randint(0, 4))
    ]
    document = Document(doc_id, doc_id if chunks else "", tags=tags, metadata=metadata)
    return document, chunks, [[chance.uniform(-1, 1) for _ in range(8)] for _ in chunks]


Documents = dict[str, tuple[Document, list[Chunk], list[list[float]]]]


def write(store: Store, documents: Documents) -> None:
    chunks = [chunk for _, chunks, _ in documents.values() for chunk in chunks]
    vectors = [vector for _, _, vectors in documents.values() for vector in vectors]
    store.upsert([document for document, _, _ in documents.values()], chunks, np.array(vectors).reshape(-1, 8))


def remove(store: Store, doc_ids: list[str]) -> None:
    with store._database.transaction() as con:
        documents.delete(con, doc_ids)
        documents.refresh_counts(con)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_edited_store_equals_one_built_afresh(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    wanted: Documents = {}
    with Store.create(tmp_path / "edited.duckdb", 8) as edited:
        for _ in range(12):
            if wanted and chance.random() < 0.3:
                gone = chance.sample(sorted(wanted), chance.randint(1, len(wanted)))
                remove(edited, gone)
                wanted = {doc_id: row for doc_id, row in wanted.items() if doc_id not in gone}
            else:
                names = chance.sample("abcdefgh", chance.randint(1, 3))
                written = {f"{name}.md": random_document(chance, f"{name}.md") for name in names}
                write(edited, written)
                wanted |= written
            assert edited.check() == []
        with Store.create(tmp_path / "afresh.duckdb", 8) as afresh:
            write(afresh, dict(sorted(wanted.items())))
            assert contents(edited) == contents(afresh)
            question = "ducks on a pond e1042 東京"
            rows = [(row["node_id"], row["score"]) for row in edited.lexical_query(question, top_k=50)]
            assert rows == [(row["node_id"], row["score"]) for row in afresh.lexical_query(question, top_k=50)]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["add_chunks", "refresh_counts", "remove_documents"])
def test_error_while_writing_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    chance = random.Random(4)
    with Store.create(tmp_path / "kb.duckdb", 8) as store:
        write(store, {name: random_document(chance, name) for name in ("a.md", "b.md", "c.md", "d.md")})
        before, words = (
            contents(store),
            store.cursor().execute("FROM fts_main_documents.words ORDER BY word").fetchall(),
        )

        def fails(*_: object) -> None:
            raise RuntimeError("the power is gone")

        with monkeypatch.context() as patch:
            module = documents if where == "refresh_counts" else lexical
            patch.setattr(module, where, fails)
            with pytest.raises(RuntimeError, match="power"):
                write(store, {name: random_document(chance, name) for name in ("b.md", "new.md")})
        assert contents(store) == before
        assert store.cursor().execute("FROM fts_main_documents.words ORDER BY word").fetchall() == words
        write(store, {"new.md": random_document(chance, "new.md")})
        assert store.check() == []
