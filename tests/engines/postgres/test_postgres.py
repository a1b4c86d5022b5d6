"""The store in Postgres, on a real server: made and opened, written, searched, checked."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import sqlrag
from sqlrag import Chunk, Document, InputError, Store, StoreError
from sqlrag.answers.chat_models import Piece
from sqlrag.embedders import HashingEmbedder
from sqlrag.engines.postgres import connection, engine
from sqlrag.engines.postgres.connection import Address
from sqlrag.errors import (
    ModelMismatchError,
    NotAStoreError,
    NotFoundError,
    SchemaVersionError,
    StoreExistsError,
)
from sqlrag.normalize import clean_metadata, clean_name
from sqlrag.ranking.vectors import query_weights
from sqlrag.search.postgres_store import PostgresStore
from tests.support.handbook import HANDBOOK

MODEL = HashingEmbedder("hashing-64")
TEXTS = {
    "pump.md": "The heat pump warms the water.\n\nA valve opens before the motor starts.\n\nClose the valve last.",
    "oven.md": "Bread bakes in the oven.\n\nThe oven heats itself.",
    "sun.md": "Solar panels warm the water too.",
}


def documents_and_chunks(texts=TEXTS):
    documents, chunks = [], []
    for doc_id, text in texts.items():
        documents.append(Document(doc_id, text, checksum=f"sum of {doc_id}", tags=("all", doc_id[:1])))
        start = 0
        for place, part in enumerate(text.split("\n\n")):
            heading = ("Guide", doc_id.partition(".")[0].title())
            chunks.append(
                Chunk(doc_id, place, part, ("all", doc_id[:1]), {"place": place}, i_start=start,
                      i_end=start + len(part), heading_path=heading, page=1)
            )  # fmt: skip
            start += len(part) + 2
    return documents, chunks


def filled(store, texts=TEXTS):
    documents, chunks = documents_and_chunks(texts)
    store.upsert(documents, chunks, MODEL.embed([chunk.content for chunk in chunks], kind="document"))
    return store


@pytest.fixture
def store(postgres_url):
    with PostgresStore.create(postgres_url, 64, embedder=MODEL) as made:
        yield filled(made)


@pytest.fixture
def twin(tmp_path):
    """The same documents in a DuckDB file."""
    with Store.create(tmp_path / "kb.duckdb", 64, embedder=MODEL) as made:
        yield filled(made)


def ids(results):
    return [row["node_id"] for row in results]


def of(doc_id, store):
    """Return the stored chunks of a document."""
    return [chunk for chunk in store.chunks() if chunk.doc_id == doc_id]


class TestMakingAndOpening:
    @pytest.mark.parametrize(
        ("url", "message"),
        [
            ("postgresql://nobody:s3cret@127.0.0.1:1/kb", "cannot be reached.*running"),
            ("postgresql://nobody:s3cret@127.0.0.1:99999/kb", "cannot be read"),
            ("postgresql://nobody:s3cret@127.0.0.1/kb?nonsense=1", "cannot be read"),
            ("postgresql://nobody:s3cret@127.0.0.1/kb?schema=pg_catalog", "schema='pg_catalog'"),
            ("postgresql://nobody:s3cret@127.0.0.1/kb?schema=a%22b", "letters, digits"),
            ("mysql://nobody:s3cret@127.0.0.1/kb", "not the address of a Postgres server"),
        ],
    )
    def test_addresses_that_lead_nowhere(self, postgres, url, message):
        for make in (PostgresStore, lambda url: PostgresStore.create(url, 8), PostgresStore.migrate):
            with pytest.raises((StoreError, InputError), match=message) as raised:
                make(url)
            if url.startswith("postgres"):
                assert "s3cret" not in str(raised.value)

    def test_passwords_are_shown_nowhere(self, postgres, postgres_url, caplog):
        for statement in (
            "DROP ROLE IF EXISTS visitor",
            "CREATE ROLE visitor LOGIN SUPERUSER PASSWORD 's3cret'",
        ):
            postgres.execute(statement)
        rules = postgres.folder / "pg_hba.conf"
        before = rules.read_text()
        rules.write_text("local all visitor scram-sha-256\n" + before)
        postgres.execute("SELECT pg_reload_conf()")
        try:
            right = postgres_url.replace("postgres:@", "visitor:s3cret@")
            wrong = right.replace("s3cret", "wr0ng")
            with pytest.raises(StoreError, match=r"visitor.*password") as raised:
                PostgresStore.create(wrong, 8)
            assert "wr0ng" not in str(raised.value) + repr(raised.value) + str(raised.value.path)
            with PostgresStore.create(right, 8) as made:
                assert "s3cret" not in repr(made) + made.path + made._repr_html_()
                assert "visitor@" in made.path
            with pytest.raises(StoreError, match=r"visitor.*password") as raised:
                PostgresStore(wrong)
            assert "wr0ng" not in str(raised.value)
        finally:
            rules.write_text(before)
            postgres.execute("SELECT pg_reload_conf()")
        parameter = Address.of("postgresql://h/kb?user=u&password=s3cret&schema=x")
        assert "s3cret" not in parameter.shown
        assert "s3cret" in parameter.conninfo
        assert "s3cret" not in repr(parameter)
        assert "s3cret" not in caplog.text

    def test_no_store(self, postgres, postgres_url):
        with pytest.raises(NotAStoreError, match="holds no sqlrag store"):
            PostgresStore(postgres_url)
        with pytest.raises(NotAStoreError, match="holds no sqlrag store"):
            PostgresStore.migrate(postgres_url)
        schema = Address.of(postgres_url).schema
        postgres.execute(f"CREATE SCHEMA {schema}")
        with pytest.raises(NotAStoreError, match="holds no sqlrag store"):
            PostgresStore(postgres_url)
        with PostgresStore.create(postgres_url, 8) as made:
            assert made.chunks() == []

    def test_overwriting(self, postgres, postgres_url, store):
        with pytest.raises(StoreExistsError, match="overwrite=True"):
            PostgresStore.create(postgres_url, 8)
        assert len(store.chunks()) == 6
        with PostgresStore.create(postgres_url, 8, overwrite=True) as made:
            assert made.dimensions == 8
            assert made.chunks() == []

    def test_a_failure_while_it_is_made_leaves_nothing(self, postgres, postgres_url, store, monkeypatch):
        monkeypatch.setattr(connection, "fitted", lambda *_: "CREATE TABLE half (x int); SELECT 1 / 0")
        with pytest.raises(StoreError, match=r"division by zero.*Nothing was created"):
            PostgresStore.create(postgres_url, 8, overwrite=True)
        assert len(store.chunks()) == 6
        other = postgres.new_url()
        with pytest.raises(StoreError, match="division by zero"):
            PostgresStore.create(other, 8)
        schema = Address.of(other).schema
        assert postgres.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [schema]) == []

    @pytest.mark.parametrize(("later", "message"), [(True, "later sqlrag"), (False, "earlier sqlrag.*migrate")])
    def test_other_versions_of_the_schema(self, postgres, postgres_url, later, message):
        PostgresStore.create(postgres_url, 8).close()
        schema = Address.of(postgres_url).schema
        last = f"(SELECT max(version) FROM {schema}.migrations)"
        change = (
            f"UPDATE {schema}.migrations SET version = version + 1" if later else f"DELETE FROM {schema}.migrations"
        )
        postgres.execute(f"{change} WHERE version = {last}")
        with pytest.raises(SchemaVersionError, match=message):
            PostgresStore(postgres_url)

    def test_migrating_a_store_that_is_up_to_date_changes_nothing(self, postgres_url, store):
        assert PostgresStore.migrate(postgres_url) == []
        assert len(store.chunks()) == 6

    @pytest.mark.parametrize("dimensions", [1, 2, 2000, 2001, 16_000])
    def test_dimensions(self, postgres_url, dimensions):
        vectors = np.zeros((3, dimensions))
        vectors[:, 0] = [1, 1, -1]
        vectors[1, -1] += 1
        with PostgresStore.create(postgres_url, dimensions) as made:
            documents = [Document(name, "text") for name in "abc"]
            made.upsert(documents, [Chunk(name, 0, "text") for name in "abc"], vectors)
            found = made.vector_query(query_vector=vectors[0], top_k=3)
            cosine = 1.0 if dimensions == 1 else 0.7071068
            assert [row["doc_id"] for row in found] == ["a", "b", "c"]
            assert [row["score"] for row in found] == pytest.approx([1.0, cosine, -1.0], abs=1e-7)
            assert made.check() == []
            with pytest.raises((InputError, ModelMismatchError), match="dimensions"):
                made.upsert(documents, [Chunk("a", 0, "text")], np.ones((1, dimensions + 1)))

    @pytest.mark.parametrize("dimensions", [0, 16_001, 2.5, True])
    def test_dimensions_that_there_are_not(self, postgres_url, dimensions):
        with pytest.raises(InputError, match="dimensions"):
            PostgresStore.create(postgres_url, dimensions)

    @pytest.mark.parametrize("stemmer", ["klingon", "english'; DROP TABLE x; --", ""])
    def test_stemmers_that_there_are_not(self, postgres_url, stemmer):
        with pytest.raises(InputError, match="There is no stemmer"):
            PostgresStore.create(postgres_url, 8, stemmer=stemmer)

    @pytest.mark.parametrize(
        ("stemmer", "text", "question"),
        [
            ("porter", "Cats are running", "run cat"),
            ("russian", "Большие дома", "БОЛЬШОЙ дом"),
            ("german", "Die Häuser", "haus"),
            ("none", "Cats", "cats"),
        ],
    )
    def test_stemmers(self, postgres_url, stemmer, text, question):
        with PostgresStore.create(postgres_url, 2, stemmer=stemmer) as made:
            made.upsert([Document("a", text)], [Chunk("a", 0, text)], [[1, 0]])
            assert ids(made.lexical_query(question)) == ["a#0"]
            assert (ids(made.lexical_query("cat")) == ["a#0"]) == (stemmer == "porter")

    def test_a_database_without_letters_beyond_ascii_is_refused(self, postgres):
        postgres.execute("CREATE DATABASE plain TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'")
        try:
            with pytest.raises(StoreError, match=r"locale is C.*CREATE DATABASE"):
                PostgresStore.create(postgres.url.replace("/tests?", "/plain?"), 8)
        finally:
            postgres.execute("DROP DATABASE plain WITH (FORCE)")

    def test_a_database_without_pgvector(self, postgres):
        postgres.execute("DROP ROLE IF EXISTS guest")
        postgres.execute("CREATE ROLE guest LOGIN")
        postgres.execute(
            "CREATE DATABASE bare TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER builtin BUILTIN_LOCALE 'C.UTF-8' "
            "LC_COLLATE 'C' LC_CTYPE 'C' OWNER postgres"
        )
        url = postgres.url.replace("/tests?", "/bare?")
        try:
            with pytest.raises(StoreError, match=r"no pgvector.*CREATE EXTENSION vector"):
                PostgresStore(url)
            with pytest.raises(StoreError, match=r"no pgvector.*permission denied.*CREATE EXTENSION vector"):
                PostgresStore.create(url.replace("postgres:@", "guest@"), 8)
        finally:
            postgres.execute("DROP DATABASE bare WITH (FORCE)")
            postgres.execute("DROP ROLE guest")

    def test_reading_only(self, postgres_url, store):
        with PostgresStore(postgres_url, embedder=MODEL) as reader:
            assert ids(reader.lexical_query("oven")) == ids(store.lexical_query("oven"))
            for change in (
                lambda: filled(reader),
                lambda: reader.delete_documents(doc_ids="sun.md"),
                lambda: reader.delete_chunks(node_ids=["sun.md#0"]),
                lambda: reader.add_chunks([Chunk("x", 0, "x")]),
            ):
                with pytest.raises(StoreError, match="reading only"):
                    change()
        assert len(store.chunks()) == 6

    def test_closed(self, store):
        store.close()
        assert "closed" in repr(store)
        with pytest.raises(StoreError, match="closed"):
            store.lexical_query("oven")
        store.close()


class TestWriting:
    def test_again_is_the_same_and_tails_go(self, postgres, postgres_url, store):
        before = store.chunks()
        filled(store)
        assert store.chunks() == before
        filled(store, {"pump.md": "Short now."})
        assert [c.node_id for c in of("pump.md", store)] == ["pump.md#0"]
        assert len(store.chunks()) == 4
        assert ids(store.lexical_query("valve")) == []
        assert store.sources(["pump.md"])["pump.md"]["text"] == "Short now."
        assert store.check() == []

    def test_the_same_rows_as_a_duckdb_file(self, store, twin):
        assert store.chunks() == twin.chunks()
        assert store.sources(list(TEXTS)) == twin.sources(list(TEXTS))
        assert store.checksums(list(TEXTS)) == twin.checksums(list(TEXTS))
        names = [chunk.node_id for chunk in twin.chunks()]
        assert np.array_equal(store.vectors(names), twin.vectors(names))
        there, here = store.get_embedding_metadata(), twin.get_embedding_metadata()
        for part in ("chunks", "source_documents"):
            assert there.get(part) == here.get(part)

    @pytest.mark.parametrize("where", ["text", "tag", "doc_id", "heading"])
    def test_nul_is_refused_and_nothing_half_written(self, store, where):
        before = store.chunks()
        bad = {name: "a\0b" if name == where else "a b" for name in ("text", "tag", "doc_id", "heading")}
        documents = [Document("good.md", "fine"), Document(bad["doc_id"], bad["text"], tags=(bad["tag"],))]
        chunks = [
            Chunk("good.md", 0, "fine"),
            Chunk(bad["doc_id"], 0, bad["text"], (bad["tag"],), heading_path=(bad["heading"],)),
        ]
        with pytest.raises(InputError, match="NUL"):
            store.upsert(documents, chunks, np.eye(2, 64))
        assert store.chunks() == before

    def test_nul_in_metadata_is_taken_out_as_everywhere(self, store):
        store.upsert([Document("n.md", "x")], [Chunk("n.md", 0, "x", metadata={"k": ["x\0"]})], np.eye(1, 64))
        assert of("n.md", store)[0].metadata == {"k": ["x"]}

    def test_text_that_copy_or_json_could_trip_over(self, store):
        hard = "tab\there \\N \\. \\x41 'q' \"d\" {a} %s 100% \U0001f980 \u2028 é e\u0301"
        metadata = {"k": hard, "b": "\\u0000", "n": 1e22, "i": 2**53 + 1, "z": [None, {}]}
        store.upsert(
            [Document("hard.md", hard, tags=(hard,), metadata=metadata)],
            [Chunk("hard.md", 0, hard, (hard, "{}"), metadata, heading_path=(hard, ""))],
            np.eye(1, 64),
        )
        (chunk,) = of("hard.md", store)
        names = (clean_name(hard), "{}")  # names are composed, texts are as they came
        assert (chunk.content, chunk.tags, chunk.heading_path) == (hard, names, (hard, ""))
        assert chunk.metadata == clean_metadata(metadata)
        assert ids(store.vector_query(query_vector=np.eye(1, 64)[0], tags_any=[hard])) == ["hard.md#0"]
        assert store.chunks(metadata={"b": "\\u0000"}) == [chunk]
        assert store.sources(["hard.md"])["hard.md"]["text"] == hard
        assert store.check() == []

    def test_ids_of_their_own_and_nodes_of_llama_index(self, store):
        node = json.dumps({"id_": "n 1", "relationships": {}, "b": 1.50, "a": "é"})
        chunk = Chunk("own.md", 0, "goose", given_id="n 1", node=node, metadata={"year": 1.0})
        store.add_chunks([chunk])
        (kept,) = of("own.md", store)
        assert (kept.node_id, kept.content, kept.metadata) == ("n 1", "goose", {"year": 1.0})
        assert json.loads(kept.node)["relationships"] == {}
        assert ids(store.lexical_query("goose")) == ["n 1"]
        assert "_node_content" not in store.lexical_query("goose")[0]["metadata"]
        assert store.chunks(metadata={"_node_type": {"$exists": True}}) == []
        assert store.check() == []

    def test_what_llama_index_opens_a_node_by_is_that_of_a_duckdb_file(self, postgres, postgres_url, store, twin):
        schema = Address.of(postgres_url).schema
        there = postgres.execute(f"SELECT node_id, metadata_::text FROM {schema}.chunks ORDER BY node_id")
        assert there == twin.cursor().execute("SELECT node_id, metadata_ FROM documents ORDER BY node_id").fetchall()
        assert "_node_content" in there[0][1]

    def test_deleting(self, store, twin):
        for asked in (
            {"doc_ids": ["sun.md", "none.md"]},
            {"tags_all": ["all", "o"]},
            {"checksum": "sum of pump.md"},
        ):
            both = [one.delete_documents(**asked, dry_run=dry) for dry in (True, False) for one in (store, twin)]
            assert len({(*r.deleted, *r.unknown, r.chunks, *r.notices) for r in both}) == 1
            assert [r.dry_run for r in both] == [True, True, False, False]
            assert store.chunks() == twin.chunks()
        assert store.chunks() == []
        assert store.check() == []

    def test_deleting_by_metadata_and_single_chunks(self, store, twin):
        for one in (store, twin):
            assert one.delete_chunks(node_ids=["pump.md#1", "none#0"]) == ["pump.md#1"]
            assert one.delete_chunks(metadata={"place": {"$gte": 1}}) == ["oven.md#1", "pump.md#2"]
        assert store.chunks() == twin.chunks()
        assert [c.node_id for c in store.chunks()] == ["oven.md#0", "pump.md#0", "sun.md#0"]
        with pytest.raises(InputError, match="Nothing says what to delete"):
            store.delete_chunks()
        with pytest.raises(InputError):
            store.delete_documents()
        with pytest.raises(InputError, match="A store in Postgres knows no folders"):
            store.delete_documents(folder="docs")

    def test_adding(self, store, twin):
        new = [Chunk("sun.md", 0, "At night they rest.", given_id="night"), Chunk("new.md", 0, "A goose.")]
        reports = [one.add_chunks(new) for one in (store, twin)]
        assert reports[0] == reports[1]
        assert store.chunks() == twin.chunks()
        assert ids(store.lexical_query("goose")) == ["new.md#0"]
        assert store.check() == []

    def test_a_document_cannot_change_its_collection(self, store):
        with pytest.raises(InputError, match="collection"):
            store.upsert(
                [Document("sun.md", "x", "other")], [Chunk("sun.md", 0, "x", collection="other")], np.eye(1, 64)
            )
        assert len(store.chunks()) == 6

    @pytest.mark.parametrize("way", ["index", "add_chunks", "upsert"])
    def test_fault_S15_an_id_of_another_document_is_refused(self, store, way):
        before, thief = store.chunks(), [Chunk("x", 0, "one", given_id="sun.md#0")]
        arguments = ([Document("x", "one")], thief, np.ones((1, 64))) if way == "upsert" else (thief,)
        with pytest.raises(InputError, match=r"'sun\.md#0' is that of a chunk of the document 'sun\.md'"):
            getattr(store, way)(*arguments)
        assert store.chunks() == before
        assert store.check() == []

    def test_fault_S15_check_names_documents_that_have_text_but_no_chunk(self, store):
        store.upsert([Document("blank", " \n\u2003"), Document("none", "")], [], [])
        assert store.check() == []
        store.upsert([Document("lost", "one"), Document("matter", "---\na: b\n---\n", body_start=13)], [], [])
        assert [(problem.check, problem.examples) for problem in store.check()] == [("missing_chunks", ("lost",))]


class TestSearching:
    def test_vectors_as_in_a_duckdb_file(self, store, twin):
        for question in ("warm water", "valve", "bread in the oven"):
            for more in ({}, {"tags_any": ["o", "s"]}, {"min_similarity": 0.2}, {"metadata": {"place": 0}}):
                there, here = (one.vector_query(question, top_k=4, **more) for one in (store, twin))
                # Each has the time when it was stored.
                assert [{**row, "created_at": ""} for row in there] == [{**row, "created_at": ""} for row in here]
                assert there.notices == here.notices

    @pytest.mark.parametrize("noise", [0, 1e-6])
    def test_equal_vectors_at_the_end_of_the_list(self, postgres_url, tmp_path, noise):
        """Also those whose cosines are equal but for what pgvector's single precision makes of them."""
        names = ["b", "B", "a", "ä", "A", "c", "_", "a-1", "a1", "\U0001f980"]
        documents = [Document(name, "kiwi kiwi") for name in names]
        chunks = [Chunk(name, place, "kiwi") for place in (1, 0) for name in names]
        query = np.array([0.3, 0.5, 0.7, 0.9])
        vectors = query + noise * np.random.default_rng(4).normal(size=(len(chunks), 4))
        with PostgresStore.create(postgres_url, 4) as there, Store.create(tmp_path / "kb.duckdb", 4) as here:
            for one in (there, here):
                one.upsert(documents, chunks, vectors)
            for k in range(1, len(chunks) + 1):
                found = [ids(one.vector_query(query_vector=query, top_k=k, exact=True)) for one in (there, here)]
                assert found[0] == found[1]
                assert len(found[0]) == k
            assert ids(there.lexical_query("kiwi", top_k=3)) == sorted(chunk.node_id for chunk in chunks)[:3]

    def test_lexical_options(self, store):
        assert set(ids(store.lexical_query("valve motor"))) == {"pump.md#1", "pump.md#2"}
        assert ids(store.lexical_query("valve motor", conjunctive=True)) == ["pump.md#1"]
        assert ids(store.lexical_query('"heat pump"')) == ["pump.md#0"]
        assert ids(store.lexical_query('"pump heat"')) == []
        assert set(ids(store.lexical_query("warm*"))) == {"pump.md#0", "sun.md#0"}
        assert set(ids(store.lexical_query("VALVES"))) == {"pump.md#1", "pump.md#2"}
        assert ids(store.lexical_query("zebra")) == []
        assert ids(store.lexical_query("of")) == []
        assert ids(store.lexical_query("valve\0motor", conjunctive=True)) == ["pump.md#1"]
        for strange in ("'", "\\", "a & b | !c", ":*", "'x':*A", '"', "%s %(k)s", "<->", "\U0001f980", '"" *'):
            store.lexical_query(strange)

    def test_headings_count_by_their_weight(self, store):
        """pump.md#1 has one of the words in its heading, sun.md#0 the other in its text."""
        for weight, first in ((10, "pump.md#1"), (0.1, "sun.md#0")):
            found = ids(store.lexical_query("pump warm", heading_weight=weight, top_k=9))
            assert found[0] == "pump.md#0"
            assert min(("pump.md#1", "sun.md#0"), key=found.index) == first

    def test_fault_T21_front_matter_is_found_by_its_words(self, postgres_url, tmp_path):
        texts = ["Pumps begin", "Valves follow"]
        front = {
            "title": "Guide",
            "author": "Anna Kowalska",
            "keywords": ["bars", 12],
            "aliases": {"not": "hereby"},
            "x": "y",
        }
        chunks = [Chunk("a.md", i, text, ("safety",), front, heading_path=("Guide",)) for i, text in enumerate(texts)]
        vectors = MODEL.embed(texts, kind="document")
        with (
            PostgresStore.create(postgres_url, 64, embedder=MODEL) as made,
            Store.create(tmp_path / "x.duckdb", 64) as file,
        ):
            for one in (made, file):
                one.upsert([Document("a.md", "\n\n".join(texts))], chunks, vectors)
                for query in ("Kowalska", '"Anna Kowalska"', "bars", "12", "safety"):
                    assert (
                        ids(one.lexical_query(query))
                        == ids(one.lexical_query(query, fields="heading_path"))
                        == ["a.md#0"]
                    )
                    assert ids(one.lexical_query(query, fields="text")) == []
                assert [ids(one.lexical_query(query)) for query in ("hereby", "y")] == [[], []]
                assert len(one.lexical_query("guide")) == 2

    def test_words_where_they_count_nothing_find_nothing(self, store, twin):
        for question in ("pump", "valve", "guide pump water", "oven"):
            for more in ({"heading_weight": 0}, {"fields": "text"}, {"fields": "heading_path"}, {}):
                found = [set(ids(one.lexical_query(question, top_k=9, **more))) for one in (store, twin)]
                assert found[0] == found[1], (question, more)

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"fusion": "rrf", "rrf_k": 10, "rrf_weights": (2.0, 1.0)},
            {"fusion": "convex", "alpha": 0.3},
            {"fusion": "weighted", "vector_weight": 0.7},
            {"feedback": 2},
            {"feedback": 2, "fusion": "convex"},
            {"syntax": True},
            {"min_similarity": 0.1},
            {"tags_any": ["p"]},
            {"exact": True},
        ],
        ids=str,
    )
    def test_hybrid(self, store, twin, options):
        question = "which valve opens before the motor"
        there, here = (one.hybrid_query(question, top_k=4, **options) for one in (store, twin))
        assert ids(there)[0] == "pump.md#1"
        assert [{**row, "created_at": ""} for row in there] == [{**row, "created_at": ""} for row in here]
        assert there.notices == here.notices

    def test_source_documents(self, store, twin):
        for row in store.hybrid_query("valve", include_source_docs=True):
            assert row["source_doc"]["text"] == TEXTS[row["doc_id"]]
        wanted = ["sun.md#0", "pump.md#2", "pump.md#0"]
        assert store.get_source_documents(wanted) == twin.get_source_documents(wanted)
        with pytest.raises(NotFoundError, match=r"pump\.md#0"):
            store.get_source_documents(["pump.md#9"])
        with pytest.raises(NotFoundError):
            store.vectors(["nowhere#0"])

    def test_places_compressing_reranking(self, store, twin):
        places = [("pump.md", 1), ("sun.md", 0), ("none.md", 3)]
        assert store.chunks_at(places) == twin.chunks_at(places)
        plan = sqlrag.RetrievePlan(k=3)
        found = store.retrieve("which valve opens", plan)
        assert found[0].node_id in ("pump.md#1", "pump.md#2")
        there, here = (sqlrag.compress("valve", found, store=one) for one in (store, twin))
        assert [{**row} for row in there] == [{**row} for row in here]
        ranked = sqlrag.rerank("valve", found, lambda _, texts: [float(len(text)) for text in texts])
        assert [len(c.content) for c in ranked] == sorted((len(c.content) for c in found), reverse=True)

    def test_answer(self, store):
        found = sqlrag.answer("Which valve opens?", store, chat_model=FirstSource())
        assert found.text == "It opens [1]."
        assert found.sources[0]["doc_id"] == "pump.md"

    def test_nul_in_filters_and_ids(self, store):
        for ask in (
            lambda: store.lexical_query("valve", collection="a\0"),
            lambda: store.lexical_query("valve", tags_any=["a\0"]),
            lambda: store.lexical_query("valve", metadata={"$doc_id": "a\0"}),
            lambda: store.sources(["a\0"]),
            lambda: store.delete_documents(doc_ids="a\0"),
        ):
            with pytest.raises(InputError, match="NUL"):
                ask()
        assert store.chunks(metadata={"place": "0\0"}) == []

    def test_what_only_a_file_has(self, store):
        with pytest.raises(InputError, match=r"needs a DuckDB file.*sqlrag pull"):
            store.cursor()

    def test_the_model_of_another_store_is_refused(self, store):
        with pytest.raises(ModelMismatchError):
            store.vector_query("valve", model_name="another-model")
        with pytest.raises((ModelMismatchError, InputError), match="dimensions"):
            store.vector_query(query_vector=[1.0, 2.0])


class FirstSource:
    """A chat model that cites the first source."""

    model_name = "first"

    def chat(self, messages, **_options):
        yield Piece("It opens [1].", "stop")


def graph_of_the_handbook():
    """Return the statement that makes a graph of the vectors, as the page on Postgres has it."""
    return re.search(r"CREATE INDEX chunks_embedding .*;", (HANDBOOK / "guides" / "postgres.md").read_text("utf-8"))[0]


@pytest.fixture(scope="module", params=["sign codes", "HNSW"])
def many(postgres, request):
    """12,000 chunks of random vectors around 50 centres; each of 1,000 documents has 12, and a number in metadata."""
    chance = np.random.default_rng(11)
    centres = chance.normal(size=(50, 32))
    of = chance.integers(50, size=12_000)
    vectors = (centres[of] + chance.normal(size=(12_000, 32)) * 0.7).astype(np.float32)
    documents = [Document(f"d{i:04}", "x") for i in range(1000)]
    chunks = [
        Chunk(f"d{i // 12:04}", i % 12, "x", ("even",) if i % 2 == 0 else (), {"centre": int(of[i]), "n": i})
        for i in range(12_000)
    ]
    with PostgresStore.create(postgres.new_url(), 32) as made:
        made.upsert(documents, chunks, vectors)
        if request.param == "HNSW":
            made._server.write(lambda con: con.execute(graph_of_the_handbook()))
        made._server.vacuum()
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        yield made, unit, of, request.param


class TestIndex:
    def test_the_index_finds_nearly_all(self, many):
        store, unit, _, index = many
        chance = np.random.default_rng(12)
        hits = 0
        for place in chance.choice(len(unit), 40, replace=False):
            query = unit[place] + chance.normal(size=32) * 0.05
            exact = store.vector_query(query_vector=query, top_k=10, exact=True)
            assert ids(exact)[0] == f"d{place // 12:04}#{place % 12}"
            found = store.vector_query(query_vector=query, top_k=10)
            assert found.methods["vector"].startswith(index)
            hits += len(set(ids(found)) & set(ids(exact)))
            known = {row["node_id"]: row["score"] for row in exact}
            assert all(row["score"] == known.get(row["node_id"], row["score"]) for row in found)
        assert hits >= 390

    def test_exact_is_exact(self, many):
        store, unit, _, _ = many
        query = np.random.default_rng(13).normal(size=32)
        found = store.vector_query(query_vector=query, top_k=100, exact=True)
        cosines = np.round(unit.astype(np.float64) @ query / np.linalg.norm(query), 6)
        order = np.argsort(-cosines, kind="stable")[:100]
        assert [round(row["score"], 6) for row in found] == pytest.approx(cosines[order], abs=2e-6)

    def test_filters_do_not_starve_a_search(self, many):
        """More pass than are compared one by one, and none of them lies near the question."""
        store, unit, of, index = many
        query = unit[of == 7].mean(axis=0)
        for wanted, passing in (({"centre": {"$ne": 7}}, of != 7), ({"centre": {"$lt": 30}}, of < 30)):
            assert passing.sum() > engine.EXACT_UP_TO
            exact = store.vector_query(query_vector=query, top_k=50, metadata=wanted, exact=True)
            found = store.vector_query(query_vector=query, top_k=50, metadata=wanted)
            assert found.methods["vector"].startswith(index)
            assert len(found) == 50
            assert len(set(ids(found)) & set(ids(exact))) >= 45

    def test_few_that_pass_are_compared_one_by_one(self, many):
        store, unit, of, _ = many
        wanted = {"centre": 9, "n": {"$gte": 6000}}
        found = store.vector_query(query_vector=unit[0], top_k=20, metadata=wanted)
        assert found.methods["vector"].startswith("exact")
        passing = np.flatnonzero((of == 9) & (np.arange(12_000) >= 6000))
        cosines = unit[passing] @ unit[0]
        expected = [f"d{i // 12:04}#{i % 12}" for i in passing[np.argsort(-cosines)][:20]]
        assert set(ids(found)) == set(expected)

    def test_more_than_the_index_gives_at_once(self, many):
        store, unit, _, _ = many
        found = store.vector_query(query_vector=unit[0], top_k=3000)
        assert len(found) == 3000
        assert len(set(ids(found))) == 3000
        tagged = store.vector_query(query_vector=unit[0], top_k=1500, tags_any=["even"])
        assert len(tagged) == 1500

    def test_a_small_pool_of_codes_is_that_of_a_file(self, many, tmp_path):
        """Four pools are all chunks here, so that the weighted codes alone choose."""
        store, unit, _, index = many
        if index != "sign codes":
            pytest.skip("a graph has no codes")
        query = np.random.default_rng(14).normal(size=32).astype(np.float32)
        found = store.vector_query(query_vector=query, top_k=10, codes_pool=3000)
        low, high = query_weights(query)
        differs = (unit > 0) != (query > 0)
        pool = np.argsort((differs & low).sum(axis=1) + 2 * (differs & high).sum(axis=1), kind="stable")[:3000]
        best = pool[np.argsort(-(unit[pool].astype(np.float64) @ query), kind="stable")][:10]
        assert ids(found) == [f"d{i // 12:04}#{i % 12}" for i in best]

    def test_a_sample_changes_nothing(self, many, monkeypatch):
        """Of a large store only codes that a sample says are near enough are sorted; all where it says too few."""
        store, _, _, index = many
        if index != "sign codes":
            pytest.skip("a graph has no codes")
        asked = []
        rows = engine.PostgresEngine._rows

        def noted(self, name, values, conditions=None):
            asked.extend([values["most"]] if name == "code_search" else [])
            return rows(self, name, values, conditions)

        monkeypatch.setattr(engine.PostgresEngine, "_rows", noted)
        queries = np.random.default_rng(15).normal(size=(20, 32)).astype(np.float32)

        def found():
            return [store.vector_query(query_vector=query, top_k=10, codes_pool=60) for query in queries]

        monkeypatch.setattr(engine, "_LARGE", 12_000)
        monkeypatch.setattr(engine, "_DEVIATIONS", 1e9)  # the sample may say nothing
        expected = found()
        assert asked == [32] * 20
        for deviations, whole in ((4, 0), (-9, 20)):
            asked.clear()
            monkeypatch.setattr(engine, "_DEVIATIONS", deviations)
            assert found() == expected
            assert (asked.count(None), asked.count(32)) == (20, whole)


class TestChecking:
    @pytest.mark.parametrize(
        ("check", "damage"),
        [
            ("blank_chunks", "UPDATE chunks SET content = ' ' WHERE node_id = 'sun.md#0'"),
            ("not_unit_vectors", "UPDATE chunks SET embedding = (embedding + embedding) WHERE node_id = 'sun.md#0'"),
            ("wrong_places", "UPDATE chunks SET chunk_index = 7 WHERE node_id = 'pump.md#1'"),
            ("wrong_places", "DELETE FROM chunks WHERE node_id = 'pump.md#0'"),
            ("missing_chunks", "DELETE FROM chunks WHERE node_id = 'sun.md#0'"),
            ("wrong_slices", "UPDATE documents SET text = 'Other text' WHERE doc_id = 'sun.md'"),
            ("wrong_slices", "UPDATE chunks SET i_start = 1 WHERE node_id = 'sun.md#0'"),
            (
                "wrong_collections",
                """INSERT INTO collections SELECT 'other', embed_model, embed_dims, created_at FROM collections;
                UPDATE chunks SET collection = 'other' WHERE node_id = 'sun.md#0'""",
            ),
            *(
                ("missing_indexes", f"ALTER TABLE {name.partition('_')[0]} DROP CONSTRAINT {name} CASCADE")
                for name in (
                    "chunks_pkey",
                    "documents_pkey",
                    "collections_pkey",
                    "chunks_collection_doc_id_chunk_index_key",
                )
            ),
            *(
                ("missing_indexes", f"DROP INDEX {name}")
                for name in ("chunks_doc_id", "chunks_metadata", "chunks_rid", "chunks_tags", "postings_term")
            ),
            ("missing_indexes", "ALTER TABLE chunks DROP COLUMN code"),
            ("invalid_indexes", "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'chunks_tags'::regclass"),
        ],
    )
    def test_what_was_broken_by_hand_is_found(self, postgres, postgres_url, store, check, damage):
        assert store.check() == []
        schema = Address.of(postgres_url).schema
        postgres.execute(f"SET search_path TO {schema}, public; {damage}")
        problems = store.check()
        assert check in [problem.check for problem in problems]
        assert all(problem.rows == len(problem.examples) == 1 for problem in problems)
        if check == "missing_indexes":
            PostgresStore.migrate(postgres_url, reindex=True)
            assert store.check() == []
            filled(store)
            assert ids(store.vector_query(query_vector=np.ones(64), top_k=3, codes_pool=2))
            assert store.check() == []

    def test_a_schema_of_capital_letters(self, postgres):
        url = postgres.new_url().replace("schema=test", "schema=Test")
        with PostgresStore.create(url, 64, embedder=MODEL) as store:
            filled(store)
            assert store.check() == []


@pytest.fixture
def in_public(postgres):
    """Return a store in the schema public, where the names of a store without a table of its own are looked up last."""
    url = f"{postgres.url}&schema=public"
    with PostgresStore.create(url, 64, embedder=MODEL) as store:
        filled(store, {"geese.md": "A goose on a pond."})
        yield store
    PostgresStore.drop(url)


class TestDropped:
    """Tables that somebody dropped: named with a remedy, and never those of another schema in their place."""

    @pytest.mark.parametrize("table", ["postings", "lengths", "stopwords"])
    def test_of_words(self, postgres, postgres_url, store, in_public, table):
        found = store.lexical_query("oven")
        postgres.execute(f"DROP TABLE {Address.of(postgres_url).schema}.{table}")
        for use in (
            lambda: store.lexical_query("goose"),
            lambda: store.hybrid_query("goose"),
            lambda: filled(store),
            store.check,
            lambda: PostgresStore(postgres_url).check(),
        ):
            with pytest.raises(StoreError, match=rf"lacks the table {table} .*migrate\(url, reindex=True\) makes"):
                use()
        PostgresStore.migrate(postgres_url, reindex=True)
        assert store.lexical_query("oven") == found
        assert store.check() == in_public.check() == []

    @pytest.mark.parametrize("table", ["documents", "collections", "chunks", "embedding_metadata", "migrations"])
    def test_of_texts(self, postgres, postgres_url, store, in_public, table):
        postgres.execute(f"DROP TABLE {Address.of(postgres_url).schema}.{table} CASCADE")
        store.close()
        for use in (
            lambda: PostgresStore(postgres_url, embedder=MODEL).lexical_query("oven"),
            lambda: PostgresStore.create(postgres_url, 64),
        ):
            if table in ("documents", "collections") and use.__code__.co_consts[-1] == 64:
                continue  # there still is a store
            with pytest.raises(StoreError, match=rf"lacks the table {table} .*drop\(url\), and push the file again"):
                use()
        assert PostgresStore.drop(postgres_url)
        with PostgresStore.create(postgres_url, 64, embedder=MODEL) as again:
            filled(again)
            assert again.check() == in_public.check() == []

    def test_the_cause_of_an_aborted_transaction_is_told(self, store, monkeypatch):
        broken = engine.read_sql

        def read_sql(name):
            return "SELECT 1 / 0" if name == "postgres/vector_index" else broken(name)

        monkeypatch.setattr(engine, "EXACT_UP_TO", 0)
        monkeypatch.setattr(engine, "read_sql", read_sql)
        for _ in range(10):
            with pytest.raises(StoreError, match="division by zero"):
                store.hybrid_query("oven", query_vector=np.ones(64))


class TestSettings:
    """What the server, the role or the address set changes nothing."""

    @pytest.mark.parametrize(
        "option",
        [
            "options=-c%20standard_conforming_strings=off",
            "options=-c%20default_transaction_isolation=repeatable%5C%20read",
            "client_encoding=LATIN1",
            "client_encoding=SQL_ASCII",
        ],
    )
    def test_of_the_address(self, postgres_url, store, option):
        store.upsert(
            [Document("é.md", "ü")], [Chunk("é.md", 0, "ü", metadata={"d": "2025-01-02T00:00Z"})], np.eye(1, 64)
        )
        with PostgresStore(f"{postgres_url}&{option}", read_only=False, embedder=MODEL) as other:
            wanted = {"d": {"$gte": "2025-01-01"}}
            assert ids(other.lexical_query("ü", metadata=wanted)) == ["é.md#0"]
            assert other.sources(["é.md"]) == store.sources(["é.md"])
            filled(other)
            assert other.check() == []
        with pytest.raises(StoreError, match="holds a store already"):
            PostgresStore.create(f"{postgres_url}&{option}", 64)

    def test_a_server_that_takes_no_changes(self, postgres, postgres_url, store):
        url = f"{postgres.new_url()}&options=-c%20default_transaction_read_only=on"
        with pytest.raises(StoreError, match=r"read-only transaction.*Write to its primary"):
            PostgresStore.create(url, 64)

    def test_a_role_without_rights(self, postgres, postgres_url, store):
        postgres.execute("CREATE ROLE nobody LOGIN")
        try:
            with pytest.raises(StoreError, match=r"permission denied.*GRANT USAGE ON SCHEMA"):
                PostgresStore(postgres_url.replace("postgres:@", "nobody@")).lexical_query("oven")
        finally:
            postgres.execute("DROP ROLE nobody")
