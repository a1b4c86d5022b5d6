"""Postgres stores and asks for words in one form: the function folded in SQL and in Python."""

from __future__ import annotations

import unicodedata
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
import pytest

from sqlrag import PostgresStore
from sqlrag.engines.postgres.words import folded
from sqlrag.types import Chunk, Document
from tests.engines.duckdb.test_composed import KNOWN, TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def store(postgres) -> Iterator[PostgresStore]:
    with PostgresStore.create(postgres.new_url(), 8) as made:
        documents = [Document(name, text) for name, text in TEXTS.items()]
        chunks = [Chunk(name, 0, text) for name, text in TEXTS.items()]
        made.upsert(documents, chunks, np.ones((len(TEXTS), 8)))
        yield made


def test_sql_and_python_agree(postgres, store: PostgresStore) -> None:
    """For what both know: the server's tables of Unicode may be newer or older."""
    schema = str(store.path).rpartition("=")[2]
    given = [c for c in KNOWN if unicodedata.ucd_3_2_0.category(c) != "Cn"]
    rows = postgres.execute(f"SELECT c, {schema}.folded(c) FROM unnest(%s::text[]) AS t(c)", [given])
    assert [(c, found) for c, found in rows if folded(c) != found] == []
    assert len(rows) > 90_000


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("データセット", {"hw", "plain"}),
        ("ﾃﾞｰﾀｾｯﾄ", {"hw", "plain"}),
        ("ETL", {"fw", "plain"}),
        ("ＥＴＬ", {"fw", "plain"}),
        ("x²", {"units", "plain"}),
        ("STRASSE", {"street", "plain"}),
        ("Straße", {"street", "plain"}),
        ('"die STRASSE"', {"street"}),
        ("strass*", {"street", "plain"}),
        ("softhyphen", {"hidden"}),
        ("efficient", {"ligature"}),
        ("smorrebrod", {"names"}),
    ],
)
def test_fault_T2_T7_other_forms_of_a_word_are_found(store: PostgresStore, question: str, wanted: set[str]) -> None:
    assert {row["doc_id"] for row in store.lexical_query(question, top_k=20)} == wanted


SCRIPTS = {
    "ru": "Руководители отвечают за книги и письма.",
    "el": "Οι άνθρωποι γράφουν βιβλία.",
    "ar": "وصل المهندسون إلى المدرسة.",
    "en": "The manager answers for the books.",
}


@pytest.mark.parametrize(
    ("stemmer", "question", "wanted"),
    [
        ("porter", "руководителей", {"ru"}),
        ("porter", "книгами managers", {"ru", "en"}),
        ("porter", "и", {"ru"}),
        ("porter", '"письмо книги"', set()),
        ("porter", '"книги и письма"', {"ru"}),
        ("porter", "книгам*", {"ru"}),
        ("porter", "ανθρώπων", {"el"}),
        ("porter", "المهندسين", {"ar"}),
        ("russian", "руководителей", {"ru"}),
        ("none", "руководителей", set()),
        ("none", "руководители", {"ru"}),
    ],
)
def test_fault_K4_words_are_stemmed_by_their_script(by_stemmer, stemmer: str, question: str, wanted: set[str]) -> None:
    assert {row["doc_id"] for row in by_stemmer[stemmer].lexical_query(question, top_k=20)} == wanted


@pytest.fixture(scope="module")
def by_stemmer(postgres) -> Iterator[dict[str, PostgresStore]]:
    with ExitStack() as stores:
        made = {}
        for stemmer in ("porter", "russian", "none"):
            store = stores.enter_context(PostgresStore.create(postgres.new_url(), 8, stemmer=stemmer))
            chunks = [Chunk(name, 0, text) for name, text in SCRIPTS.items()]
            store.upsert([Document(*page) for page in SCRIPTS.items()], chunks, np.ones((len(SCRIPTS), 8)))
            made[stemmer] = store
        yield made


def _as_before(postgres, schema: str, *, indexed: bool) -> None:
    """Take back the migrations of words of the store in a schema."""
    old = "setweight(to_tsvector('simple', joined_words(heading_path)), 'A') || to_tsvector('simple', content)"
    postgres.execute(
        f"""
        SET search_path = {schema}, public;
        ALTER TABLE chunks DROP COLUMN lexemes;
        DROP FUNCTION stemmed(text);
        DROP FUNCTION folded(text);
        DROP FUNCTION heading_text(text[], integer, jsonb, text[]);
        ALTER TABLE chunks DROP COLUMN shown;
        ALTER TABLE chunks ADD COLUMN lexemes tsvector NOT NULL GENERATED ALWAYS AS ({old}) STORED;
        DELETE FROM migrations WHERE version >= 2;
        {"CREATE INDEX chunks_lexemes ON chunks USING gin (lexemes);" if indexed else ""}
        """
    )


def test_a_store_of_before_is_migrated(postgres) -> None:
    """With its index; without one it gets none."""
    url = postgres.new_url()
    schema = url.rpartition("=")[2]
    for indexed in (True, False):
        with PostgresStore.create(url, 8, overwrite=True) as store:
            store.upsert([Document("a", "Die Straße")], [Chunk("a", 0, "Die Straße")], np.ones((1, 8)))
        _as_before(postgres, schema, indexed=indexed)
        assert PostgresStore.migrate(url) == ["0002_visible_words", "0003_words_by_script"]
        with PostgresStore(url) as store:
            assert [row["doc_id"] for row in store.lexical_query("STRASSE")] == ["a"]
        found = postgres.execute(
            "SELECT 1 FROM pg_indexes WHERE schemaname = %s AND indexname = 'chunks_lexemes'", [schema]
        )
        assert bool(found) == indexed


def test_migrating_computes_the_visible_text(postgres) -> None:
    """The columns are those that the store had when it was written, and words of markup are found no more."""
    url = postgres.new_url()
    schema = url.rpartition("=")[2]
    text = "See [the pump](hydrants) **now**."
    documents = [Document("a.md", text, mime="text/markdown"), Document("b.txt", text)]
    chunks = [Chunk("a.md", 0, text, i_start=0, i_end=len(text)), Chunk("b.txt", 0, text)]
    statement = f"SELECT doc_id, shown, lexemes::text FROM {schema}.chunks ORDER BY doc_id"
    with PostgresStore.create(url, 8) as store:
        store.upsert(documents, chunks, np.ones((2, 8)))
    written = postgres.execute(statement)
    assert [(name, shown and shown.replace("\u00ad", "")) for name, shown, _ in written] == [
        ("a.md", "See the pump now."),
        ("b.txt", None),
    ]
    _as_before(postgres, schema, indexed=True)
    assert PostgresStore.migrate(url) == ["0002_visible_words", "0003_words_by_script"]
    assert postgres.execute(statement) == written
    with PostgresStore(url) as store:
        assert {row["doc_id"] for row in store.lexical_query("hydrants")} == {"b.txt"}
        assert {row["doc_id"] for row in store.lexical_query("pump")} == {"a.md", "b.txt"}
