"""The key of a row is the same on every door: a JSON number where it is one, else text."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import uuid

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

import sqlrag
from sqlrag.adapters.rest import create_app
from sqlrag.adapters.rest.config import ServerOptions
from sqlrag.cli import app
from sqlrag.embedders.hashing import HashingEmbedder
from tests.adapters.test_mcp import ask, given, in_process

KEYS = {
    "7": (7, 7),
    "DATE '2024-02-29'": (dt.date(2024, 2, 29), "2024-02-29"),
    "CAST(1.50 AS DECIMAL(4, 2))": (decimal.Decimal("1.50"), "1.50"),
    "UUID '00000000-0000-0000-0000-00000000002a'": (uuid.UUID(int=42), str(uuid.UUID(int=42))),
    "'A-1'": ("A-1", "A-1"),
}


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
