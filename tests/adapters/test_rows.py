"""Rows of tables on every door: their keys, their columns with their types, and what can be chosen from."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import uuid

import duckdb
import hypothesis
import pytest
from hypothesis import strategies as st
from starlette.testclient import TestClient
from typer.testing import CliRunner

import sqlrag
from sqlrag.adapters.rest import create_app
from sqlrag.adapters.rest.config import ServerOptions
from sqlrag.cli import app
from sqlrag.embedders.hashing import HashingEmbedder
from tests.adapters.test_mcp import ask, given, in_process, text_of
from tests.ingest.test_rows import TestTypes as Types
from tests.ingest.test_rows import has_type
from tests.support.helpers import build

KEYS = {
    "7": (7, 7),
    "DATE '2024-02-29'": (dt.date(2024, 2, 29), "2024-02-29"),
    "CAST(1.50 AS DECIMAL(4, 2))": (decimal.Decimal("1.50"), "1.50"),
    "UUID '00000000-0000-0000-0000-00000000002a'": (uuid.UUID(int=42), str(uuid.UUID(int=42))),
    "'A-1'": ("A-1", "A-1"),
}


@pytest.mark.slow
@pytest.mark.parametrize("key", KEYS)
def test_the_key_on_every_door(key, tmp_path):
    kb = tmp_path / "kb.duckdb"
    source = f"SELECT {key} AS id, 'pump' AS body"
    model = HashingEmbedder("hashing-64")
    sqlrag.index_rows(source, kb, key="id", text="body", collection="t", embedder=model, progress="off")
    in_python, in_json = KEYS[key]
    assert sqlrag.hybrid_query("pump", kb)[0]["row_key"] == in_python
    done = CliRunner().invoke(app, ["hybrid-query", "pump", "--db", str(kb), "--format", "json"])
    assert json.loads(done.stdout)[0]["row_key"] == in_json
    with TestClient(create_app(kb, ServerOptions()), base_url="http://127.0.0.1") as client:
        (row,) = client.post("/hybrid_query", json={"query_text": "pump"}).json()["results"]
        assert row["row_key"] == in_json
        (one,) = client.post("/retrieve", json={"query": "pump", "plan": {"k": 1}}).json()["candidates"]
        assert one["row_key"] == in_json
    (found,) = ask(in_process(kb), ("hybrid_query", {"query_text": "pump"}))
    assert given(found)["results"][0]["row_key"] == in_json


class Doors:
    """A file with rows, and how each surface reads and searches it."""

    def __init__(self, kb):
        self.kb = kb

    def rest(self, client, name, **body):
        answer = client.post(f"/{name}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def rows(self, node_id):
        """Return the columns of a row as every door that writes JSON gives them."""
        words = ["get-source-documents", node_id, "--db", str(self.kb), "--format", "json"]
        done = CliRunner().invoke(app, words, catch_exceptions=False)
        found = {"command line": strict(done.stdout)[0]["row"]}
        with TestClient(create_app(self.kb, ServerOptions()), base_url="http://127.0.0.1") as client:
            read = client.post("/get_source_documents", json={"chunk_ids": [node_id]})
            found["REST"] = strict(read.text)["documents"][0]["row"]
            found["document"] = strict(client.get(f"/documents/{node_id.partition('#')[0]}").text)["row"]
            body = {"query_text": "pump", "include_source_docs": True}
            results = strict(client.post("/lexical_query", json=body).text)["results"]
            found["result"] = next(row for row in results if row["node_id"] == node_id)["source_doc"]["row"]
        (read,) = ask(in_process(self.kb), ("get_source_documents", {"chunk_ids": [node_id]}))
        found["MCP"] = given(read)["documents"][0]["row"]
        return found


def strict(text):
    """Read JSON as others do, who know no NaN and no infinity."""

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def comparable(values):
    """Return values as text: NaN is equal to itself there, whatever the order of keys and the fold of times is."""
    times = [value.isoformat() if isinstance(value, (dt.datetime, dt.time)) else value for value in values]
    return repr([sorted(value.items()) if isinstance(value, dict) else value for value in times])


def from_json(value, kind):
    """Return what JSON has of a value as Python's value of the type."""
    if value is None:
        return None
    if kind == "INTEGER[]":
        return value
    if kind.startswith("STRUCT"):
        return {"a": int(value["a"]), "b": value["b"]}
    if kind.startswith("MAP"):
        return {name: float(one) for name, one in value.items()}
    if kind == "TIMESTAMP WITH TIME ZONE":
        return dt.datetime.fromisoformat(value)
    with duckdb.connect() as con:
        return con.execute(f"SELECT CAST($1 AS {kind})", [value]).fetchall()[0][0]


@pytest.mark.slow
@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=8, deadline=None)
def test_every_type_on_every_door(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("types")
    kinds = data.draw(st.lists(st.sampled_from(Types.KINDS), min_size=1, max_size=6), "columns")
    row = [data.draw(st.none() | values, kind) for kind, values in kinds]
    with duckdb.connect(str(folder / "source.duckdb")) as con:
        con.execute("SET TimeZone = 'UTC'")
        columns = ", ".join(f"c{i} {kind}" for i, (kind, _) in enumerate(kinds))
        con.execute(f"CREATE TABLE t (id INTEGER, body VARCHAR, {columns})")
        marks = ", ".join(f"CAST(? AS {kind})" for kind, _ in kinds)
        con.execute(f"INSERT INTO t VALUES (1, 'pump', {marks})", row)
    options = {"key": "id", "text": "body", "embedder": HashingEmbedder("hashing-64"), "progress": "off"}
    kb = folder / "kb.duckdb"
    sqlrag.index_rows("FROM t", kb, database=folder / "source.duckdb", collection="t", **options)
    (document,) = sqlrag.get_source_documents(["t/1#0"], kb)
    assert list(document["row"]) == ["id", *(f"c{i}" for i in range(len(row)))]
    own = list(document["row"].values())[1:]
    assert comparable(own) == comparable(row)
    assert [type(value) for value in own] == [type(value) for value in row]
    found = Doors(kb).rows("t/1#0")
    for values in found.values():
        assert values == found["REST"]
    back = [from_json(found["REST"][f"c{i}"], kind) for i, (kind, _) in enumerate(kinds)]
    assert comparable(back) == comparable(row)


@pytest.mark.slow
def test_what_python_and_json_lack_is_text(tmp_path):
    kb = tmp_path / "kb.duckdb"
    source = """SELECT 1 AS id, 'pump' AS body, 'nan'::DOUBLE AS x, ['-inf'::FLOAT, 1] AS xs, 'infinity'::DATE AS day,
        [DATE '-infinity'] AS days, TIMESTAMP '294247-01-10 04:00:54' AS far, INTERVAL '1 month 2 days' AS each,
        TIMESTAMP_NS '2024-01-01 10:00:00.123456789' AS fine, 9007199254740993 AS big, 0.0000000001 AS small,
        TIMESTAMPTZ '2024-01-01 10:00:00+02' AS at, MAP {1: true} AS flags, '{"a": 1.50}'::JSON AS j"""
    model = HashingEmbedder("hashing-64")
    sqlrag.index_rows(source, kb, key="id", text="body", collection="t", embedder=model, progress="off")
    row = sqlrag.get_source_documents(["t/1#0"], kb)[0]["row"]
    assert row["at"] == dt.datetime(2024, 1, 1, 8, tzinfo=dt.UTC)
    for values in Doors(kb).rows("t/1#0").values():
        assert values == {
            "id": 1, "x": "NaN", "xs": ["-Infinity", 1.0], "day": "infinity", "days": "[-infinity]",
            "far": row["far"], "each": "1 month 2 days", "fine": "2024-01-01 10:00:00.123456789",
            "big": "9007199254740993", "small": "0.0000000001", "at": "2024-01-01T08:00:00+00:00",
            "flags": {"1": True}, "j": '{"a": 1.50}',
        }  # fmt: skip
    assert row["far"] == "294247-01-10 04:00:54"
    (found,) = sqlrag.lexical_query("pump", kb)
    assert found["metadata"]["x"] is None
    (line,) = sqlrag.lexical_query("pump", kb, include_source_docs=True).arrow().to_pylist()
    assert strict(line["source_doc"])["row"]["x"] == "NaN"


@pytest.mark.slow
@pytest.mark.parametrize("key", [2**53 - 1, 2**53, -(2**60)])
def test_a_great_key_is_exact(key, tmp_path):
    kb = tmp_path / "kb.duckdb"
    model = HashingEmbedder("hashing-64")
    sqlrag.index_rows(
        f"SELECT {key} AS id, 'pump' AS body", kb, key="id", text="body", collection="t", embedder=model, progress="off"
    )
    wanted = key if abs(key) < 2**53 else str(key)
    with TestClient(create_app(kb, ServerOptions()), base_url="http://127.0.0.1") as client:
        doors = Doors(kb)
        assert doors.rest(client, "lexical_query", query_text="pump")["results"][0]["row_key"] == wanted
        assert doors.rest(client, "retrieve", query="pump", plan={"k": 1})["candidates"][0]["row_key"] == wanted
    assert sqlrag.lexical_query("pump", kb)[0]["row_key"] == key


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Return a file with 40 rows beside a page."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "docs").mkdir()
    (folder / "docs" / "pump.md").write_text("# Pumps\n\nA pump.")
    kb = folder / "kb.duckdb"
    sqlrag.prepare_embeddings(folder / "docs", kb, 200, "hashing-64", embedding_provider="hashing", verbose=False)
    source = """SELECT i AS id, 'pump ' || i || ' is late' AS body, 'Order ' || i AS subject,
        CAST(i * 1.25 AS DECIMAL(10, 2)) AS price, DATE '2024-01-01' + i::INTEGER AS day, i % 2 = 0 AS open,
        TIMESTAMP '2024-01-01 08:00:00' + INTERVAL (i) HOUR AS updated_at, ['a', 'b', 'c'][: i % 4] AS marks,
        if(i % 4 = 0, NULL, ['shop', 'phone'][i % 2 + 1]) AS channel, if(i = 3, 'nan', i::VARCHAR)::DOUBLE AS x
        FROM range(40) AS t(i)"""
    sqlrag.index_rows(source, kb, key="id", text="body", title="subject", collection="tickets", progress="off")
    return kb


FACETS = {
    "id": {"type": "BIGINT", "filled": 40, "least": 0, "greatest": 39},
    "price": {"type": "DECIMAL(10,2)", "filled": 40, "least": "0.00", "greatest": "48.75"},
    "day": {"type": "DATE", "filled": 40, "least": "2024-01-01", "greatest": "2024-02-09"},
    "updated_at": {
        "type": "TIMESTAMP",
        "filled": 40,
        "least": "2024-01-01T08:00:00",
        "greatest": "2024-01-02T23:00:00",
    },
    "x": {"type": "DOUBLE", "filled": 40, "least": 0.0, "greatest": 39.0},
    "open": {
        "type": "BOOLEAN",
        "filled": 40,
        "distinct": 2,
        "values": [{"value": False, "rows": 20}, {"value": True, "rows": 20}],
    },
    "channel": {
        "type": "VARCHAR",
        "filled": 30,
        "distinct": 2,
        "values": [{"value": "phone", "rows": 20}, {"value": "shop", "rows": 10}],
    },
    "marks": {
        "type": "VARCHAR[]",
        "filled": 40,
        "distinct": 3,
        "values": [{"value": "a", "rows": 30}, {"value": "b", "rows": 20}, {"value": "c", "rows": 10}],
    },
    "subject": {"type": "VARCHAR", "filled": 40, "distinct": 40, "values": []},
}


@pytest.mark.slow
def test_fields_to_filter_by_have_kinds_and_values(tmp_path):
    """By the kind of most values; of several files together, and asked for alone."""
    first = build(
        tmp_path / "a",
        a_md="---\nyear: 2020\nauthors: [Ana, Bo]\ndraft: true\n'x/y~z': v\n---\nA pump.",
        b_md="---\nyear: 2024\nauthors: [Ana]\nlong: " + "w" * 101 + "\n---\nA lamp.",
        c_md="---\nyear: unknown\nnested: {a: 1}\n---\nA wire.",
    )
    second = build(tmp_path / "b", d_md="---\nyear: 2019\nauthors: [Bo]\n---\nA nut.")
    wanted = {
        "authors": ("array", 2, None, None, [("Ana", 2), ("Bo", 1)]),
        "draft": ("boolean", 1, None, None, [(True, 1)]),
        "long": ("string", 1, None, None, []),
        "x/y~z": ("string", 1, None, None, [("v", 1)]),
        "year": ("number", 2, 2020, 2024, [(2020, 1), (2024, 1)]),
    }

    def told(path):
        with TestClient(create_app(path, ServerOptions()), base_url="http://127.0.0.1") as client:
            assert "metadata_fields" not in client.get("/facets").json()
            fields = client.get("/facets?metadata_fields=true").json()["metadata_fields"]
        assert [field["chunks"] for field in fields] == sorted((field["chunks"] for field in fields), reverse=True)
        return {
            one["name"]: (
                *(one[key] for key in ("kind", "chunks", "least", "greatest")),
                [(value["value"], value["chunks"]) for value in one["values"]],
            )
            for one in fields
        }

    assert told(first) == wanted
    both = told([first, second])
    assert both["authors"] == ("array", 3, None, None, [("Ana", 2), ("Bo", 2)])
    assert both["year"] == ("number", 3, 2019, 2024, [(2019, 1), (2020, 1), (2024, 1)])


@pytest.mark.rest
def test_sources_of_rows_are_described_on_every_door(shop):
    with TestClient(create_app(shop, ServerOptions()), base_url="http://127.0.0.1") as client:
        found = {"REST": strict(client.get("/facets").text)["row_sources"]}
        listed = client.get("/documents", params={"collection": "tickets", "limit": 1000}).json()["documents"]
        assert [one["mime"] for one in listed] == ["application/vnd.sqlrag.row"] * 40
    done = CliRunner().invoke(app, ["info", str(shop), "--format", "json"], catch_exceptions=False)
    found["command line"] = strict(done.stdout)["row_sources"]
    info, listed = ask(in_process(shop), ("corpus_info", {}), ("sources", {}))
    found["MCP"] = given(info)["row_sources"]
    assert "\ncolumns of tickets, 40 rows: id BIGINT from " in text_of(listed)
    assert '; channel VARCHAR: "phone" (20), ' in text_of(listed)
    (read,) = ask(in_process(shop), ("read", {"id": "tickets/1"}))
    assert '\ncolumns: {"id": 1, ' in text_of(read)
    for (source,) in found.values():
        assert (source["collection"], source["rows"], source["key"]) == ("tickets", 40, "id")
        assert {column.pop("name"): column for column in source["columns"]} == FACETS
    shown = CliRunner().invoke(app, ["info", str(shop)], catch_exceptions=False).stdout
    assert "tickets (40 rows by id; id BIGINT, subject VARCHAR, price DECIMAL(10,2)" in shown
    with sqlrag.Store(shop) as store, sqlrag.Stores([shop]) as stores:
        assert stores.row_sources() == store.row_sources()
        columns = {column["name"]: column for column in store.row_sources(most_values=1)[0]["columns"]}
        assert columns["channel"]["values"] == [{"value": "phone", "rows": 20}]
        assert columns["day"]["least"] == dt.date(2024, 1, 1)


@pytest.mark.slow
def test_frameworks_get_the_columns_with_their_types(shop):
    from sqlrag.adapters.langchain import SqlragRetriever
    from sqlrag.adapters.llama_index import SqlragIndex
    from sqlrag.adapters.llama_index import SqlragRetriever as Nodes

    filters = {"metadata": {"price": {"$lte": 2.5}, "open": True}}
    wanted = {"id": 2, "price": 2.5, "open": True, "day": "2024-01-03", "marks": ["a", "b"], "channel": "shop"}
    wanted |= {"updated_at": "2024-01-01T10:00:00", "x": 2.0}
    documents = SqlragRetriever(db_path=shop, mode="lexical", search_kwargs=filters).invoke("pump")
    nodes = [one.node for one in Nodes(shop, **filters).retrieve("pump")]
    index = SqlragIndex.from_path(shop).as_retriever(similarity_top_k=2, vector_store_kwargs=filters)
    for found in (documents, nodes, [one.node for one in index.retrieve("pump")]):
        metadata = {one.metadata["row_key"]: one.metadata for one in found}
        assert sorted(metadata) == [0, 2]
        assert {name: metadata[2][name] for name in wanted} == wanted
    assert "row_key" not in nodes[0].get_content(metadata_mode="llm")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["query", "relation"])
def test_rarer_types(tmp_path, how):
    columns = {
        "TIME_NS": ("10:00:00.123456789", "10:00:00.123456789"),
        "BIGNUM": ("123456789012345678901234567890", "123456789012345678901234567890"),
        "TIMETZ": ("10:00:00+02", "10:00:00+02:00"),
        "BIT": ("0101", "0101"),
    }
    given = {kind: value for kind, (value, _) in columns.items() if has_type(kind)}
    wanted = {kind: columns[kind][1] for kind in given}
    kb = tmp_path / "kb.duckdb"
    options = {"key": "id", "text": "body", "embedder": HashingEmbedder("hashing-64"), "progress": "off"}
    values = ", ".join(f"'{value}'::{kind} AS \"{kind}\"" for kind, value in given.items())
    source = f"SELECT 1 AS id, 'pump' AS body, {values}"
    with duckdb.connect() as con:
        sqlrag.index_rows(source if how == "query" else con.sql(source), kb, collection="t", **options)
    for door, row in Doors(kb).rows("t/1#0").items():
        assert {kind: row[kind] for kind in wanted} == wanted, door
    for kind, value in wanted.items():
        (found,) = sqlrag.lexical_query("pump", kb, metadata={kind: value.removesuffix(":00")})
        assert found["row_key"] == 1, kind
