"""Servers keep what they search in memory there while their file is closed, and give no old answer after a change."""

from __future__ import annotations

import json
import time

import anyio
import pytest
from mcp.client import Client
from starlette.testclient import TestClient

from sqlrag import InputError, Store
from sqlrag.adapters import mcp
from sqlrag.adapters.rest import create_app
from sqlrag.adapters.rest.config import ServerOptions
from tests.support.helpers import build
from tests.support.residence import WAIT

TEXTS = {"pumps_md": "# Pumps\n\nOpen the valve.\n", "boats_md": "# Boats\n\nA ferry floats.\n"}


def until_in_memory(ask):
    until = time.monotonic() + WAIT
    while (found := ask())["methods"].get("engine") != "memory" and time.monotonic() < until:
        time.sleep(0.02)
    return found


@pytest.fixture
def file(tmp_path):
    return build(tmp_path, **TEXTS)


@pytest.mark.slow
def test_rest_searches_in_memory_across_openings_and_follows_what_others_write(file, tmp_path):
    app = create_app(file, ServerOptions(idle_seconds=0.01))
    with TestClient(app, base_url="http://127.0.0.1") as client:

        def ask(question="valve"):
            answer = client.post("/hybrid_query", json={"query_text": question})
            assert answer.status_code == 200, answer.text
            return answer.json()

        found = until_in_memory(ask)
        assert found["methods"]["engine"] == "memory"
        (residence,) = app.state.service.shared_store._in_memory
        index = residence._index
        until = time.monotonic() + WAIT
        while app.state.service.shared_store._current is not None and time.monotonic() < until:
            time.sleep(0.02)
        # The file is closed, so that it can be written.
        build(tmp_path, options={"overwrite": True}, **TEXTS, masts_md="# Masts\n\nA mast stands.\n")
        assert ask("mast")["results"][0]["doc_id"] == "masts.md"
        assert until_in_memory(lambda: ask("mast"))["results"][0]["doc_id"] == "masts.md"
        assert residence._index is not index


@pytest.mark.slow
def test_rest_searches_several_files_in_memory(tmp_path):
    files = []
    for name, text in TEXTS.items():
        (tmp_path / name).mkdir()
        files.append(build(tmp_path / name, **{name: text}))
    app = create_app(files, ServerOptions(idle_seconds=0.01))
    with TestClient(app, base_url="http://127.0.0.1") as client:

        def ask(question="valve"):
            return client.post("/hybrid_query", json={"query_text": question}).json()

        assert until_in_memory(ask)["results"][0]["doc_id"] == "pumps.md"
        found = until_in_memory(lambda: ask("ferry"))
        assert (found["methods"]["engine"], found["results"][0]["doc_id"]) == ("memory", "boats.md")
        assert len(app.state.service.shared_store._in_memory) == 2


@pytest.mark.slow
@pytest.mark.parametrize("resident_mb", [0, None])
def test_a_server_whose_memory_is_none_never_searches_in_it(file, resident_mb, monkeypatch):
    monkeypatch.setenv("SQLRAG_RESIDENT_MB", "0")
    with TestClient(create_app(file, ServerOptions(resident_mb=resident_mb)), base_url="http://127.0.0.1") as client:
        for _ in range(25):
            assert "engine" not in client.post("/lexical_query", json={"query_text": "valve"}).json()["methods"]
    with pytest.raises(InputError, match="resident_mb must be a whole number"):
        ServerOptions(resident_mb=-1)


def test_mcp_searches_in_memory_though_each_call_opens_the_file(file):
    server = mcp.create_server(file)
    (residence,) = server.in_memory

    async def run():
        async with Client(server) as client:
            answers = []
            for _ in range(2):
                done = await client.call_tool("hybrid_query", {"query_text": "valve", "top_k": 1})
                answers.append(json.loads(done.content[0].text)["results"])
                await anyio.to_thread.run_sync(residence.wait, WAIT)
            return answers

    by_sql, by_memory = anyio.run(run)
    assert by_sql == by_memory
    with Store(file) as store:  # of the same process, and so in memory at once
        assert store.hybrid_query("valve").methods["engine"] == "memory"
    with Store(file, read_only=False):  # nothing holds the file
        pass
