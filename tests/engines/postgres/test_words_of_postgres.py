"""The index of words in Postgres is that of a DuckDB file: same hits, scores and explanations, whoever writes."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from sqlrag import Chunk, Document, PostgresStore, Store, StoreError
from sqlrag.engines.postgres import lexical
from sqlrag.engines.postgres.connection import Address
from tests.engines.duckdb.test_composed import TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlrag.types import Results

MORE = {
    "ru": "Руководители отвечают за книги и письма.",
    "el": "Οι άνθρωποι γράφουν βιβλία.",
    "ar": "وصل المهندسون إلى المدرسة.",
    "hi": "किताबें मेज़ पर हैं।",
    "th": "ภาษาไทยไม่มีช่องว่างระหว่างคำ",
    "ja": "データセットを東京で作る。",
    "en": "The manager answers for the books, says the theory. One is installed, one installs itself.",
    "code": "update_embeddings and hybridQuery are written in C++ and .NET; snake_case too.",
    "stops": "to be or not to be",
    "blank": "?!",
}

QUESTIONS = [
    *("データセット", "ﾃﾞｰﾀｾｯﾄ", "ＥＴＬ", "x²", "STRASSE", '"die STRASSE"', "strass*", "efficient"),
    *("smorrebrod", "softhyphen", "руководителей", "книгами managers", "и", '"письмо книги"', '"книги и письма"'),
    *("книгам*", "ανθρώπων", "المهندسين", "किताब", "ช่องว่าง", "東京 データ", "installing the books"),
    *("embeddings query", "c++ .net", "to be", "the", '"to be"'),
    *("managr", "zzzqqq books", "man* answer*", "* \" ?", "answers -for NOT books", "installs* installed"),
]  # fmt: skip


def rows(found: Results) -> list[tuple[str, float]]:
    return [(row["node_id"], row["score"]) for row in found]


def same(found: Results, wanted: Results) -> None:
    assert [node_id for node_id, _ in rows(found)] == [node_id for node_id, _ in rows(wanted)]
    assert np.allclose([score for _, score in rows(found)], [score for _, score in rows(wanted)], rtol=0, atol=1e-9)
    assert found.notices == wanted.notices


def vectors(count: int) -> Any:
    return np.random.default_rng(count).normal(size=(count, 8))


@pytest.fixture(scope="module", params=["porter", "russian", "none"])
def both(request, postgres, tmp_path_factory) -> Iterator[tuple[Store, PostgresStore]]:
    """A file and a store in Postgres with the same chunks."""
    path = tmp_path_factory.mktemp("words") / "kb.duckdb"
    with (
        Store.create(path, 8, stemmer=request.param) as file,
        PostgresStore.create(postgres.new_url(), 8, stemmer=request.param) as server,
    ):
        texts = {**TEXTS, **MORE}
        documents = [Document(name, text, metadata={"title": f"On {name}"}) for name, text in texts.items()]
        chunks = [
            Chunk(name, 0, text, ("odd",) * (place % 2), {"title": f"On {name}"}, heading_path=("Guide", name))
            for place, (name, text) in enumerate(texts.items())
        ]
        for store in (file, server):
            store.upsert(documents, chunks, vectors(len(chunks)))
        yield file, server


@pytest.mark.parametrize(
    "options",
    [{}, {"conjunctive": True}, {"k1": 0.4, "b": 0.1}, {"heading_weight": 0.5}, {"fields": "text"},
     {"fields": "heading_path"}, {"tags_any": ["odd"]}],
)  # fmt: skip
def test_lexical_queries_as_in_a_file(both, options: dict[str, Any]) -> None:
    file, server = both
    for question in QUESTIONS[::3] if options else QUESTIONS:
        same(server.lexical_query(question, top_k=30, **options), file.lexical_query(question, top_k=30, **options))


@pytest.mark.parametrize(
    "options", [{}, {"fusion": "convex"}, {"fusion": "adaptive"}, {"expansion": 4}, {"feedback": 2}]
)
def test_hybrid_queries_as_in_a_file(both, options: dict[str, Any]) -> None:
    file, server = both
    asked = {"top_k": 30, "exact": True, "query_vector": np.ones(8), **options}
    for question in QUESTIONS[::3]:
        same(server.hybrid_query(question, **asked), file.hybrid_query(question, **asked))


def test_fault_K8_short_chunks_of_the_words_are_first(postgres_url) -> None:
    texts = [
        "Open the red valve.",
        *(f"A red pipe, then a valve of iron and {n} further parts of it." for n in range(8)),
    ]
    with PostgresStore.create(postgres_url, 8) as store:
        store.upsert([Document("a", "")], [Chunk("a", n, text) for n, text in enumerate(texts)], vectors(9))
        found = store.lexical_query("red valve")
        assert found[0]["text"] == texts[0]
        assert found[0]["score_type"] == "bm25"
        assert store.hybrid_query("red valve", query_vector=np.ones(8))[0]["lexical_score"] is not None


def test_explanations_and_marks_as_in_a_file(both) -> None:
    file, server = both
    for question in ("installing books", '"the books"', "man* theory"):
        for mode in ("lexical", "hybrid"):
            asked = {"mode": mode, "tags_any": ["odd"]} | ({"query_vector": np.ones(8)} if mode == "hybrid" else {})
            for node_id in ("en#0", "ru#0", "blank#0"):
                assert server.explain(question, node_id, **asked) == file.explain(question, node_id, **asked)
        assert server.highlight(question, [MORE["en"]]) == file.highlight(question, [MORE["en"]])


def test_stop_words_are_those_of_the_table(postgres, postgres_url) -> None:
    with PostgresStore.create(postgres_url, 8) as store:
        store.upsert([Document("a", "")], [Chunk("a", 0, "The pump of it."), Chunk("a", 1, "A valve.")], vectors(2))
        schema = Address.of(postgres_url).schema
        assert [row["node_id"] for row in store.lexical_query("the valve")] == ["a#1"]
        postgres.execute(f"DELETE FROM {schema}.stopwords WHERE word = 'the'")
        assert [row["node_id"] for row in store.lexical_query("the valve")] == ["a#1", "a#0"]


def test_words_that_are_long_or_frequent(postgres_url, tmp_path: Path) -> None:
    """Longer than a key of an index may be, and more often than two bytes count."""
    texts = ["x" * 1_000_000, "often " * 70_000, "x" * 1_000_001, "often rare"]
    with Store.create(tmp_path / "kb.duckdb", 8) as file, PostgresStore.create(postgres_url, 8) as server:
        for store in (file, server):
            store.upsert([Document("a", "")], [Chunk("a", n, text) for n, text in enumerate(texts)], vectors(4))
        for question in (texts[0], "often", "often rare", "xxx*", "x" * 200 + "*"):
            same(server.lexical_query(question), file.lexical_query(question))
        assert server.check() == []


WORDS = [f"word{n}" for n in range(40)] + ["installs", "installed", "installing", "Größe", "東京都", "snakeCase_too"]


def document_of(name: str, chance: random.Random) -> tuple[Document, list[Chunk]]:
    texts = [" ".join(chance.choices(WORDS, k=chance.randint(1, 12))) for _ in range(chance.randint(1, 5))]
    return Document(name, ""), [
        Chunk(name, n, text, heading_path=(chance.choice(WORDS),)) for n, text in enumerate(texts)
    ]


def equal_to_a_new_file(server: PostgresStore, path: Path) -> None:
    """Compare with a file that has the same chunks, written at once."""
    assert server.check() == []
    chunks = server.chunks()
    with Store.create(path, 8) as file:
        file.upsert(
            [Document(doc_id, "") for doc_id in sorted({c.doc_id for c in chunks})], chunks, vectors(len(chunks))
        )
        for question in (
            "word1 word7",
            "installing",
            "word1* word22",
            '"word3 word4"',
            "wrod33",
            "word12 word13 installs",
        ):
            same(server.lexical_query(question, top_k=50), file.lexical_query(question, top_k=50))
        assert server.explain("word1 word2", chunks[0].node_id, mode="lexical") == file.explain(
            "word1 word2", chunks[0].node_id, mode="lexical"
        )


@pytest.mark.parametrize(("writes", "full"), [(64, 1000), (3, 4)])
def test_any_writes_leave_the_index_of_what_is_there(
    postgres_url, tmp_path, monkeypatch, writes: int, full: int
) -> None:
    """Also where rows are joined after every few writes."""
    monkeypatch.setattr(lexical, "_JOINED_WRITES", writes)
    monkeypatch.setattr(lexical, "_JOINED_ROWS", 2)
    monkeypatch.setattr(lexical, "_FULL", full)
    monkeypatch.setattr(lexical, "_FEW", full)  # words are counted in Python and in DuckDB
    chance = random.Random(writes)
    with PostgresStore.create(postgres_url, 8) as server:
        for turn in range(20):
            names = chance.sample([f"d{n:02}" for n in range(15)], 3)
            if turn % 4 == 3:
                server.delete_documents(doc_ids=names)
            else:
                made = [document_of(name, chance) for name in names]
                chunks = [chunk for _, own in made for chunk in own]
                server.upsert([document for document, _ in made], chunks, vectors(len(chunks)))
        equal_to_a_new_file(server, tmp_path / "kb.duckdb")
        server.delete_documents(doc_ids=[f"d{n:02}" for n in range(15)])
        assert not server.lexical_query("word1")
        assert server.check() == []


def test_eight_writers_at_once(postgres_url, tmp_path: Path) -> None:
    def write(number: int) -> None:
        chance = random.Random(number)
        with PostgresStore(postgres_url, read_only=False) as store:
            for turn in range(4):
                document, chunks = document_of(f"d{number if turn % 3 else chance.randint(0, 7)}", chance)
                store.upsert([document], chunks, vectors(len(chunks)))
                if turn % 2:
                    store.delete_documents(doc_ids=[f"d{chance.randint(0, 7)}"])

    PostgresStore.create(postgres_url, 8).close()
    with ThreadPoolExecutor(8) as writers:
        list(writers.map(write, range(8)))
    with PostgresStore(postgres_url) as server:
        equal_to_a_new_file(server, tmp_path / "kb.duckdb")


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM postings WHERE word = 'pump'",
        "DELETE FROM lengths",
        "INSERT INTO postings SELECT * FROM postings WHERE word = 'pump'",
        "UPDATE postings SET term = 'pamp' WHERE word = 'pump'",
        "UPDATE chunks SET content = 'a pump at last' WHERE node_id = 'a#0'",
        "DELETE FROM chunks WHERE node_id = 'a#1'",
        "UPDATE lengths SET len = len + 1",
        "UPDATE lengths SET n = n + 1",
    ],
)
def test_check_names_what_the_index_has_not_and_a_new_one_mends_it(postgres, postgres_url, damage: str) -> None:
    schema = Address.of(postgres_url).schema
    with PostgresStore.create(postgres_url, 8) as store:
        store.upsert([Document("a", "")], [Chunk("a", 0, "A pump."), Chunk("a", 1, "A valve.")], vectors(2))
        assert store.check() == []
        postgres.execute(f"SET search_path TO {schema}, public; {damage}")
        (problem,) = store.check()
        assert problem.check == "wrong_postings"
        assert "reindex" in problem.rule
        assert PostgresStore.migrate(postgres_url, reindex=True) == []
        assert store.check() == []


@pytest.mark.parametrize("damage", ["DROP TABLE postings", "DROP TABLE stopwords", "DROP INDEX postings_term"])
def test_what_was_dropped_is_named_with_its_remedy(postgres, postgres_url, damage: str) -> None:
    with PostgresStore.create(postgres_url, 8) as store:
        store.upsert([Document("a", "")], [Chunk("a", 0, "A pump."), Chunk("a", 1, "The valve.")], vectors(2))
        postgres.execute(f"SET search_path TO {Address.of(postgres_url).schema}; {damage}")
        if "TABLE" in damage:
            with pytest.raises(StoreError, match="reindex=True"):
                store.lexical_query("the pump")
        else:
            assert [problem.examples for problem in store.check()] == [("postings_term",)]
        PostgresStore.migrate(postgres_url, reindex=True)
        assert [row["node_id"] for row in store.lexical_query("the pump")] == ["a#0"]
        assert store.check() == []


def _as_before(postgres, schema: str, version: int) -> None:
    """Give a store the tables that it had before it had an index of its own."""
    vector = "setweight(to_tsvector('english', joined_words(heading_path)), 'A') || to_tsvector('english', content)"
    postgres.execute(
        f"""
        SET search_path = {schema}, public;
        DROP TABLE postings, lengths, stopwords;
        CREATE FUNCTION joined_words(words text[]) RETURNS text LANGUAGE sql IMMUTABLE
            RETURN array_to_string(words, ' ');
        CREATE FUNCTION folded(words text) RETURNS text LANGUAGE sql IMMUTABLE RETURN words;
        ALTER TABLE chunks ADD COLUMN lexemes tsvector NOT NULL GENERATED ALWAYS AS ({vector}) STORED;
        CREATE INDEX chunks_lexemes ON chunks USING gin (lexemes);
        INSERT INTO embedding_metadata VALUES ('text_search_configuration', 'english', now());
        DELETE FROM migrations WHERE version > {version};
        {"ALTER TABLE chunks DROP COLUMN shown;" if version < 2 else ""}
        ALTER TABLE chunks DROP COLUMN code;
        CREATE UNIQUE INDEX chunks_rid ON chunks (rid);
        """
    )


@pytest.mark.parametrize("version", [1, 3])
def test_a_store_of_before_is_migrated(postgres, postgres_url, version: int) -> None:
    """The texts are indexed, the visible ones are computed again, the vectors stay; what was for words is gone."""
    schema = Address.of(postgres_url).schema
    text = "See [the pump](hydrants) **now**."
    documents = [Document("a.md", text, mime="text/markdown"), Document("b.txt", text)]
    chunks = [Chunk("a.md", 0, text, i_start=0, i_end=len(text)), Chunk("b.txt", 0, text)]
    statement = f"SELECT rid, node_id, shown, embedding FROM {schema}.chunks ORDER BY rid"
    with PostgresStore.create(postgres_url, 8) as store:
        store.upsert(documents, chunks, vectors(2))
    written = postgres.execute(statement)
    _as_before(postgres, schema, version)
    names = ["0002_visible_words", "0003_words_by_script", "0004_bm25", "0005_sign_codes"]
    assert PostgresStore.migrate(postgres_url) == names[version - 1 :]
    assert postgres.execute(statement) == written
    left = "SELECT proname FROM pg_proc WHERE pronamespace = %s::regnamespace AND proname IN ('folded', 'joined_words')"
    assert postgres.execute(left, [schema]) == []
    with PostgresStore(postgres_url) as store:
        assert store.check() == []
        assert {row["doc_id"] for row in store.lexical_query("hydrants")} == {"b.txt"}
        assert {row["doc_id"] for row in store.lexical_query("pump")} == {"a.md", "b.txt"}


def test_a_store_of_before_is_removed_whole(postgres, postgres_url) -> None:
    schema = Address.of(postgres_url).schema
    PostgresStore.create(postgres_url, 8).close()
    _as_before(postgres, schema, 3)
    assert PostgresStore.drop(postgres_url)
    assert postgres.execute("SELECT count(*) FROM pg_namespace WHERE nspname = %s", [schema]) == [(0,)]
