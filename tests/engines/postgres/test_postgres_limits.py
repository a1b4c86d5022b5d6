"""What a store in Postgres must not do, and where Postgres has bounds of its own."""

from __future__ import annotations

import time

import numpy as np
import psycopg
import pytest

from sqlrag import Chunk, Document, InputError, StoreError
from sqlrag.engines.postgres.conditions import where
from sqlrag.engines.postgres.connection import Address, Server
from sqlrag.errors import NotAStoreError
from sqlrag.ranking.filters import alternatives_of
from sqlrag.search.postgres_store import PostgresStore

TEXTS = {"a": "Open the valves now, says the theory.", "b": "A valve in running water.", "c": "Happiness"}


@pytest.fixture
def store(postgres_url):
    with PostgresStore.create(postgres_url, 4) as made:
        documents = [Document(name, text) for name, text in TEXTS.items()]
        chunks = [Chunk(name, 0, text, heading_path=("Steam",) * (name == "a")) for name, text in TEXTS.items()]
        made.upsert(documents, chunks, np.eye(4)[:3])
        yield made


def ids(results):
    return sorted(row["doc_id"] for row in results)


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ("valves*", "ab"),
        ("valv*", "ab"),
        ("run*", "b"),
        ("running*", "b"),
        ("the*", "a"),
        ("happ*", "c"),
        ("happy*", ""),
        ("q*", ""),
    ],
)
def test_beginnings_of_words_as_they_are_written(store, asked, wanted):
    assert ids(store.lexical_query(asked)) == list(wanted)


def test_one_field_is_searched_alone(store):
    assert ids(store.lexical_query("steam valve", fields="heading_path")) == ["a"]
    assert ids(store.lexical_query("steam", fields="text")) == []
    assert ids(store.lexical_query("valve", fields="heading_path")) == []


def test_a_long_question(store):
    words = [f"w{number}" for number in range(7_000)]
    assert ids(store.lexical_query(" ".join([*words, "valve"]), syntax=False)) == ["a", "b"]


def test_an_id_that_postgres_cannot_index_is_refused_at_once(store, postgres_url):
    name = "".join(map(chr, np.random.default_rng(7).integers(0x4E00, 0x9FFF, 5_000)))
    began = time.monotonic()
    with (
        PostgresStore(postgres_url, read_only=False, wait_seconds=120) as patient,
        pytest.raises(InputError, match="Shorten"),
    ):
        patient.upsert([Document(name, "text")], [Chunk(name, 0, "text")], np.eye(4)[:1])
    assert time.monotonic() - began < 60  # it is no lost connection, which this store would try for 120 seconds
    assert ids(store.vector_query(query_vector=np.ones(4), top_k=9)) == ["a", "b", "c"]
    assert store.check() == []


@pytest.mark.parametrize(
    "remove", [PostgresStore.drop, lambda url: PostgresStore.create(url, 5, overwrite=True).close()]
)
def test_tables_of_others_stay(postgres, postgres_url, store, remove):
    schema = Address.of(postgres_url).schema
    postgres.execute(f"CREATE TABLE {schema}.precious AS SELECT 1 AS x")
    store.close()
    remove(postgres_url)
    assert postgres.execute(f"SELECT x FROM {schema}.precious") == [(1,)]


def test_a_view_on_a_store_keeps_it(postgres, postgres_url, store):
    schema = Address.of(postgres_url).schema
    postgres.execute(f"CREATE VIEW {schema}.seen AS SELECT node_id FROM {schema}.chunks")
    with pytest.raises(StoreError, match="depend"):
        PostgresStore.drop(postgres_url)
    assert ids(store.lexical_query("valve")) == ["a", "b"]


def test_the_schema_goes_where_nothing_else_is_in_it(postgres, postgres_url, store):
    store.close()
    assert PostgresStore.drop(postgres_url)
    there = "SELECT count(*) FROM pg_namespace WHERE nspname = %s"
    assert postgres.execute(there, [Address.of(postgres_url).schema]) == [(0,)]
    assert not PostgresStore.drop(postgres_url)


def test_a_table_of_migrations_is_no_store(postgres, postgres_url):
    """Many programs have one."""
    schema = Address.of(postgres_url).schema
    postgres.execute(f"CREATE SCHEMA {schema}")
    postgres.execute(f"CREATE TABLE {schema}.migrations AS SELECT 7 AS version")
    with pytest.raises(NotAStoreError):
        PostgresStore(postgres_url)
    assert not PostgresStore.drop(postgres_url)
    with pytest.raises(StoreError, match="already exists"):
        PostgresStore.create(postgres_url, 4, overwrite=True)
    assert postgres.execute(f"SELECT version FROM {schema}.migrations") == [(7,)]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [("", "read-write"), ("?target_session_attrs=any", "any"), ("?target_session_attrs=primary", "primary")],
)
def test_writers_take_the_server_that_takes_changes(query, wanted):
    url = f"postgresql://me:hush@one:5432,two:5433/db{query}"
    assert "one:5432,two:5433/db" in Address.of(url).shown
    kept = [psycopg.conninfo.conninfo_to_dict(Server(url, read_only=flag)._conninfo) for flag in (False, True)]
    assert [found.get("target_session_attrs", "") for found in kept] == [wanted, wanted if query else ""]
    assert {(found["host"], found["port"]) for found in kept} == {("one,two", "5432,5433")}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:hush%zzhush@localhost/db",
        "postgresql://user:hush@one:1,two:x/db",
        "postgresql://user:hush hush@localhost/db",
        "postgresql://user:hush/hush@localhost:1/db",
        "postgresql://user:hush@[::1/db",
        "postgresql://user:hush@localhost:1/db?password=hush&options=hush hush",
    ],
)
def test_no_message_shows_a_password(url):
    with pytest.raises((InputError, StoreError)) as raised:
        PostgresStore(url.replace("&options=hush hush", ""), wait_seconds=0)
    error = raised.value
    while error is not None:
        assert "hush" not in str(error)
        error = error.__cause__


def test_options_of_an_address_reach_the_server(store, postgres_url):
    url = f"{postgres_url}&options=-c%20statement_timeout%3D5s%20-c%20lock_timeout%3D4s"
    with psycopg.connect(Address.of(url).conninfo) as con:
        assert con.execute("SHOW statement_timeout").fetchall() == [("5s",)]
    with PostgresStore(url) as opened:
        assert ids(opened.lexical_query("valve")) == ["a", "b"]


@pytest.mark.parametrize(
    "metadata",
    [{"v": 7}, {"v": {"$in": [7, "x"]}}, {"v": {"$contains": True}}, {"v": {"$any": [1, 2]}}, {"v": {"$all": [1, 2]}},
     {"$or": [{"v": 7}, {"w": 8}]}],
)  # fmt: skip
def test_plain_values_are_looked_up_in_the_index(postgres, postgres_url, store, metadata):
    conditions = where(alternatives=alternatives_of(metadata))
    with psycopg.connect(Address.of(postgres_url).conninfo) as con:
        con.execute(f"SET search_path TO {Address.of(postgres_url).schema}, public")
        con.execute("SET enable_seqscan TO off")
        plan = con.execute(f"EXPLAIN SELECT rid FROM chunks WHERE {conditions}", conditions.values).fetchall()
    assert any("chunks_metadata" in line for (line,) in plan)
