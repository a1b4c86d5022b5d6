"""REST: the routes and the public functions, the key, the limits, uploads, answers, and the command ``serve``."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import weakref
from urllib.parse import quote, urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from typer.testing import CliRunner

import sqlrag
from sqlrag import Store
from sqlrag.adapters.rest import create_app, table
from sqlrag.adapters.rest.config import ServerOptions
from sqlrag.adapters.rest.problems import problem
from sqlrag.adapters.rest.state import Service, SharedStore
from sqlrag.adapters.server import Refused, Workers
from sqlrag.cli import app
from sqlrag.embedders import remote, weights
from tests.support import embedding_server
from tests.support.chat_server import ChatServer, Status, serving
from tests.support.embedding_server import EmbeddingServer
from tests.support.handbook import search_file
from tests.support.helpers import ROOT, build, pdf, write
from tests.support.stores import make_small_store

KEY = "a-key-that-nobody-guesses"
PROBLEM = "application/problem+json"
STRANGE = (".evil.example", ":80@evil.example", ":80.evil.example", "]", "/", " x", ":x", "@", ":80:80", ":123456")
SERVED = ("export_ragfile", "export_ragmd", "metrics", "answer", "add_documents")  # by modules of their own


@pytest.fixture
def file(tmp_path):
    make_small_store(tmp_path / "kb.duckdb")
    return tmp_path / "kb.duckdb"


def client_of(file, **options):
    return TestClient(
        create_app(file, ServerOptions(**options)), base_url="http://127.0.0.1", raise_server_exceptions=False
    )


@pytest.fixture
def client(file):
    with client_of(file) as client:
        yield client


class TestRoutes:
    def test_every_public_function_has_a_route_or_a_reason(self):
        functions = {name for name in sqlrag.__all__ if inspect.isroutine(getattr(sqlrag, name))}
        routes = {call.name for call in table.CALLS} | set(SERVED)
        assert functions == (routes & functions) | set(table.WITHOUT_ROUTE)
        assert not routes & set(table.WITHOUT_ROUTE)

    def test_the_handbook_gives_the_reasons(self):
        page = (ROOT / "data" / "handbook" / "guides" / "rest.md").read_text("utf-8")
        for name, reason in table.WITHOUT_ROUTE.items():
            if not name.startswith("a") or name[1:] not in sqlrag.__all__:
                assert f"`{name}`" in page
                assert reason in page

    @pytest.mark.slow
    def test_no_client_gives_what_is_the_servers(self, client):
        schemas = client.get("/openapi.json").json()["components"]["schemas"]
        requests = {name: schema["properties"] for name, schema in schemas.items() if name.endswith("Request")}
        assert len(requests) > 15
        for name, properties in requests.items():
            assert not set(properties) & set(table.KEPT), name
        assert requests["HybridQueryRequest"]["top_k"]["maximum"] == 1000
        assert (
            requests["HybridQueryRequest"]["alpha"]["description"]
            == "Of ``convex`` fusion: the share of the vector score, 0..1."
        )
        assert set(requests["RerankRequest"]["model"]) >= {"type"}
        assert requests["RerankRequest"]["model"]["type"] == "null"

    def test_results_are_those_of_python_to_the_bit(self, client, file):
        sent = {"query_text": "duck bread", "top_k": 4, "k1": 1.1}
        with Store(file) as store:
            expected = sqlrag.lexical_query(db_path=store, **sent)
        answer = client.post("/lexical_query", json=sent).json()
        assert expected
        assert answer["results"] == json.loads(json.dumps(list(expected)))
        assert answer["notices"] == expected.notices

    @pytest.mark.slow
    def test_answers_have_the_fields_of_their_models(self, client):
        schemas = client.get("/openapi.json").json()["components"]["schemas"]
        row = client.post("/lexical_query", json={"query_text": "duck", "include_source_docs": True}).json()["results"][
            0
        ]
        assert set(row) == set(schemas["Result"]["required"])
        assert set(row) | {"row_key"} == set(schemas["Result"]["properties"])  # of rows of tables alone
        found = client.post("/retrieve", json={"query": "duck", "plan": {"mode": "lexical"}}).json()
        assert set(found["candidates"][0]) == set(schemas["Candidate"]["properties"])
        listed = client.get("/documents").json()["documents"][0]
        assert set(listed) == set(schemas["ListedDocument"]["properties"])

    def test_a_folder_of_the_server_cannot_be_loaded_as_a_model(self, client, tmp_path):
        sent = {"query_text": "duck", "model_name": str(tmp_path)}
        answer = client.post("/hybrid_query", json=sent)
        assert answer.status_code == 409
        assert "was built with the model" in answer.json()["detail"]
        reply = client.post("/rerank", json={"query": "x", "candidates": [], "model": str(tmp_path)})
        assert reply.status_code == 422

    def test_hostile_bodies_are_no_server_error(self, client):
        for body, status in (
            (b'{"query_text": "\\ud800 duck"}', 200),
            (b'{"query_text": "duck", "metadata": {"a": "\\ud800"}}', 200),
            (b'{"query_text": "duck", "top_k": ' + b"9" * 5000 + b"}", 422),
            (b'{"query_text": "duck", "top_k": 1e400}', 422),
            (b'{"query_text": "duck", "k1": NaN}', 422),
            (b'{"query_text": "duck", "metadata": {"a": NaN}}', 422),
            (b'{"query_text": "duck", "metadata": {"a": ' + b"9" * 400 + b"}}", 200),
            (b'{"query_text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 422),
            (b'{"query_text": "duck", "metadata": {"a": ' + b"[" * 300 + b"]" * 300 + b"}}", 200),
            (b'{"query_text": "\xff"}', 422),
            (b'{"query_text": "duck", "query_text": "swan"}', 422),
            (b"", 422),
            (b'{"query_text": "duck", "top_q": 3}', 422),
            (b'{"query_text": "duck", "top_k": true}', 422),
            (b'{"query_text": "  "}', 422),
            (b'{"query_text": "\\u0000"}', 200),
        ):
            answer = client.post("/lexical_query", content=body, headers={"content-type": "application/json"})
            allowed = {status} if status != 200 else {200, 422}
            assert answer.status_code in allowed, (body[:80], answer.text[:300])
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == "application/problem+json"
                assert answer.json()["status"] == answer.status_code

    def test_a_form_of_another_site_is_no_request(self, client):
        answer = client.post(
            "/lexical_query", content=b'{"query_text": "duck"}', headers={"content-type": "text/plain"}
        )
        assert answer.status_code == 422

    def test_documents_have_an_etag_that_follows_their_content(self, file):
        with client_of(file, write=True) as client:
            listed = client.get("/documents", params={"limit": 1}).json()
            assert listed["next"] == listed["documents"][0]["doc_id"] == "a.md"
            first = client.get("/documents/a.md")
            assert first.json()["text"] == "duck pond\n\nduck duck bread"
            tag = first.headers["etag"]
            assert client.get("/documents/a.md", headers={"if-none-match": tag}).status_code == 304
            client.post(
                "/index",
                json={"chunks": [{"doc_id": "a.md", "chunk_index": 0, "content": "swan"}], "vectors": [[1] + [0] * 7]},
            )
            again = client.get("/documents/a.md", headers={"if-none-match": tag})
            assert (again.status_code, again.json()["text"]) == (200, "swan")
            assert client.get("/documents/none.md").status_code == 404

    @pytest.mark.slow
    def test_fault_S24_a_document_has_its_page_whatever_its_name(self, tmp_path):
        names = ["new\nline.md", "\nfirst.md", "last.md\n", "a\r\nb/c\td.md", "a?b#c.md", "x//y.md", "\x85\u2028.md"]
        with Store.create(tmp_path / "kb.duckdb", dimensions=2) as store:
            documents = [sqlrag.Document(name, f"duck {name}") for name in names]
            store.upsert(documents, [sqlrag.Chunk(name, 0, "duck") for name in names], [[1.0, 0.0]] * len(names))
        with client_of(tmp_path / "kb.duckdb") as client:
            listed = [row["doc_id"] for row in client.get("/documents").json()["documents"]]
            assert sorted(listed) == sorted(names)
            for name in listed:
                page = client.get(f"/documents/{quote(name, safe='')}")
                assert (page.status_code, page.json()["doc_id"], page.json()["text"]) == (200, name, f"duck {name}")
                # A line feed more is another name, and no other route.
                assert client.get(f"/documents/{quote(name, safe='')}%0A").status_code == 404
            assert client.get("/documents%0A").status_code == 404

    def test_head_is_get_without_the_body(self, client):
        for path in ("/", "/health", "/documents", "/documents/a.md", "/metrics", "/page/main.js", "/x"):
            whole, head = client.get(path), client.head(path)
            assert (head.status_code, head.content) == (whole.status_code, b""), path
            assert head.headers["content-type"] == whole.headers["content-type"]
        assert client.head("/lexical_query").status_code == 405
        assert 'method="HEAD",route="/documents",status="200"} 1' in client.get("/metrics").text

    def test_no_parameter_is_ignored(self, client):
        for path in ("/documents", "/documents/a.md", "/check", "/facets", "/health", "/metrics"):
            answer = client.get(path, params={"limti": 1})
            assert answer.status_code == 422, path
            assert "There is no parameter 'limti'" in answer.json()["detail"]
        assert client.get("/", params={"q": "duck"}).status_code == 200

    def test_a_range_that_is_none_is_a_problem(self, client):
        for asked, status in (("bytes=a", 400), ("bytes=9999999-", 416)):
            answer = client.get("/", headers={"range": asked})
            assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM)
        assert answer.headers["content-range"].startswith("bytes */")

    def test_notices_are_short_whatever_is_asked(self, client):
        phrase = '"' + "swan " * 1900 + '"'
        for more in ({}, {"tags_all": ["birds"]}):
            sent = {"query_text": phrase, "syntax": True, **more}
            (notice,) = client.post("/lexical_query", json=sent).json()["notices"]
            assert "holds" in notice
            assert len(notice) < 600

    def test_exports_are_downloads(self, client):
        answer = client.post("/export_ragmd", json={})
        assert answer.headers["content-type"].startswith("text/markdown")
        assert answer.content.startswith(b"---\n")
        other = client.post("/export_ragmd", json={}, headers={"accept": "application/vnd.rag-markdown"})
        assert other.headers["content-type"].startswith("application/vnd.rag-markdown")

    def test_metrics_count_requests_by_route(self, client):
        client.post("/lexical_query", json={"query_text": "duck"})
        client.get("/documents/x%22y")
        text = client.get("/metrics").text
        assert 'sqlrag_http_requests_total{method="POST",route="/lexical_query",status="200"} 1.0\n' in text
        assert 'route="/documents/{doc_id:path}",status="404"} 1.0\n' in text
        assert 'sqlrag_http_request_seconds_bucket{le="+Inf",route="/lexical_query"} 1.0\n' in text
        assert "\nsqlrag_searches_total " in text
        # What the process has counted, what this application has, and no series beside them.
        counted = {f"sqlrag_{name}" for name in sqlrag.metrics()}
        served = {"http_requests", "http_request_seconds", "requests_pending", "answers_pending"}
        families = {family.name for family in text_string_to_metric_families(text)}
        assert families == counted | {f"sqlrag_{name}" for name in served}

    def test_changes_need_write(self, client):
        for call in table.CALLS:
            if call.changes:
                assert client.post(f"/{call.name}", json=call.example).status_code == 409
        assert client.post("/documents", files=[("files", ("x.md", b"# X"))]).status_code == 409


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.skipif(not weights.bundle_is_installed(), reason="needs the [offline] extra")
def test_the_examples_of_the_schema_work_on_the_handbook(tmp_path_factory, tmp_path):
    file = tmp_path / "kb.duckdb"
    shutil.copy(search_file(tmp_path_factory.getbasetemp()), file)
    with client_of(file, write=True, input_dir=tmp_path) as client:
        schema = client.get("/openapi.json").json()
        asked = 0
        for path, methods in schema["paths"].items():
            content = methods.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json")
            if content is None or path == "/answer":  # it needs a chat model
                continue
            name = content["schema"]["$ref"].rpartition("/")[2]
            (example,) = schema["components"]["schemas"][name]["examples"]
            answer = client.post(path, json=example)
            # The folder of this server is empty.
            assert answer.status_code == (404 if path == "/update_embeddings" else 200), (path, answer.text)
            asked += 1
        assert asked >= 20


class TestGuard:
    @pytest.mark.parametrize(
        "header", [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic x"}, {"x-api-key": "é"}]
    )
    def test_without_the_key_nothing_but_the_page_and_its_health(self, file, header):
        with client_of(file, api_key=KEY) as client:
            headers = {name: value.encode("latin-1") for name, value in header.items()}
            for path in ("/documents", "/metrics", "/openapi.json", "/get_embedding_metadata", "/none"):
                assert client.get(path, headers=headers).status_code == 401, path
            assert client.get("/", headers=headers).status_code == 200
            assert client.get("/health", headers=headers).json() == {"status": "ok"}

    @pytest.mark.parametrize("header", [{"authorization": f"Bearer {KEY}"}, {"x-api-key": KEY}])
    def test_with_the_key_all(self, file, header):
        with client_of(file, api_key=KEY) as client:
            assert client.get("/documents", headers=header).status_code == 200

    def test_a_key_has_to_be_long(self):
        with pytest.raises(sqlrag.InputError, match="16 or more"):
            ServerOptions(api_key="short")
        assert KEY not in repr(ServerOptions(api_key=KEY))

    def test_other_names_of_this_host_are_refused(self, client):
        known = ("127.0.0.1:80", "[::1]:8000", "LocalHost:8000", "localhost:")
        strange = [f"{name}{rest}" for name in ("localhost", "127.0.0.1", "[::1]") for rest in STRANGE]
        for host, status in [
            ("evil.example", 421),
            ("", 421),
            *((h, 200) for h in known),
            *((h, 421) for h in strange),
        ]:
            assert client.get("/documents", headers={"host": host}).status_code == status, host

    def test_no_other_site_may_read(self, client):
        answer = client.get("/documents", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in answer.headers
        assert "default-src 'none'" in answer.headers["content-security-policy"]

    def test_the_page_has_no_way_out_of_its_folder(self, client):
        for path in ("/page/../calling.py", "/page/..%2fcalling.py", "/page/%2e%2e/calling.py"):
            assert client.get(path).status_code in (404, 401), path


class TestLimits:
    def test_a_body_is_counted_while_it_comes(self, file):
        def parts():
            for _ in range(50):
                yield b" " * 1000

        with client_of(file, max_body_bytes=10_000) as client:
            headers = {"content-type": "application/json"}
            answer = client.post("/lexical_query", content=parts(), headers=headers)
            assert (answer.status_code, answer.headers["content-type"]) == (413, PROBLEM)
            assert answer.json()["detail"] == "The body is larger than 10,000 bytes; send several requests."
            answer = client.post("/lexical_query", content=b" " * 20_000, headers=headers)
            assert (answer.status_code, answer.headers["content-type"]) == (413, PROBLEM)
            assert answer.json()["detail"] == "The body is larger than 10,000 bytes; send several requests."
            assert "content-security-policy" in answer.headers
            assert 'route="/lexical_query",status="413"} 2' in client.get("/metrics").text

    def test_what_takes_too_long_is_ended_and_frees_its_thread(self, file):
        async def run():
            workers = Workers(1, 5, 0.2)
            with Store(file) as store:

                def slow():
                    sql = "SELECT sum(a.i * b.i % 7) FROM range(100000) a(i), range(100000) b(i)"
                    return store.cursor().execute(sql).fetchall()

                began = time.monotonic()
                with pytest.raises(Refused) as refused:
                    await workers.run(slow)
                assert refused.value.status == 504
                # The statement alone takes minutes.
                assert await workers.run(lambda: "free", 20) == "free"
                assert time.monotonic() - began < 20
                await asyncio.to_thread(workers.close)

        asyncio.run(run())

    def test_a_client_that_goes_away_frees_its_thread(self, file):
        async def run():
            service = Service(file, ServerOptions(threads=1, seconds=60))

            class Gone:
                async def receive(self):
                    await asyncio.sleep(0.2)
                    return {"type": "http.disconnect"}

            class There:
                async def receive(self):
                    await asyncio.sleep(60)

            def slow(store):
                sql = "SELECT sum(a.i * b.i % 7) FROM range(100000) a(i), range(100000) b(i)"
                return store.cursor().execute(sql).fetchall()

            async with service.running():
                with pytest.raises(Refused) as refused:
                    await service.on_store(Gone(), slow)
                assert refused.value.status == 499
                assert problem(499, "gone").status_code == 499
                assert await service.on_store(There(), lambda _: "free", 20) == "free"

        asyncio.run(run())

    def test_what_finds_no_room_is_refused_with_a_time_to_come_back(self, file):
        async def run():
            workers, go = Workers(1, 1, 20), threading.Event()
            waiting = [asyncio.ensure_future(workers.run(lambda: go.wait(20))) for _ in range(2)]
            await asyncio.sleep(0.05)
            with pytest.raises(Refused) as refused:
                await workers.run(lambda: None)
            go.set()
            assert await asyncio.gather(*waiting) == [True, True]
            await asyncio.to_thread(workers.close)
            return refused.value.status

        assert asyncio.run(run()) == 503


class TestLending:
    def test_the_file_is_given_back_when_nobody_asks(self, file):
        shared_store = SharedStore(file, idle_seconds=0.05)
        with shared_store.use() as store:
            shared_store.close_if_idle()
            assert store.lexical_query("duck")
        with pytest.raises(sqlrag.StoreLockedError):
            Store(file, read_only=False)
        time.sleep(0.06)
        shared_store.close_if_idle()
        Store(file, read_only=False).close()
        with shared_store.use() as store:
            assert store.lexical_query("duck")
        shared_store.close()

    @pytest.mark.slow
    def test_a_replaced_file_is_noticed_and_the_old_one_serves_who_has_it(self, file, tmp_path):
        make_small_store(tmp_path / "other.duckdb")
        sqlrag.delete_documents(tmp_path / "other.duckdb", doc_ids="a.md")
        shared_store = SharedStore(file)
        with shared_store.use() as old:
            (tmp_path / "other.duckdb").replace(file)
            with shared_store.use() as new:
                assert "a.md" in old.sources(["a.md"])
                assert "a.md" not in new.sources(["a.md"])
        with shared_store.use() as now:
            assert now is new
        shared_store.close()


class TestAnswers:
    @pytest.fixture
    def chat(self):
        pytest.importorskip("openai")
        server = ChatServer()
        with serving(server) as server.url:
            yield server

    @pytest.mark.slow
    def test_whole_and_streamed(self, file, chat):
        with client_of(file, chat_model="m", chat_base_url=chat.url) as client:
            sent = {"question": "What do ducks eat?", "plan": {"mode": "lexical"}}
            whole = client.post("/answer", json=sent).json()
            assert whole["text"] == "The red valve comes first [1]."
            assert whole["sources"]
            text = client.post("/answer", json={**sent, "stream": True})
            assert text.headers["content-type"].startswith("text/event-stream")
            events = [
                dict(line.split(": ", 1) for line in part.splitlines()) for part in text.text.strip().split("\n\n")
            ]
            assert [event["event"] for event in events][0 :: len(events) - 1] == ["sources", "done"]
            assert "".join(json.loads(e["data"])["text"] for e in events if e["event"] == "text") == whole["text"]

    def test_a_client_names_no_model_and_no_server(self, file, chat):
        with client_of(file, chat_model="m", chat_base_url=chat.url) as client:
            for name in ("base_url", "chat_model", "api_key", "template"):
                answer = client.post("/answer", json={"question": "x", name: "http://127.0.0.1:1/"})
                assert answer.status_code == 422, name
        assert not chat.requests
        with client_of(file) as client:
            assert client.post("/answer", json={"question": "x"}).status_code == 501

    def test_a_model_that_fails_is_no_answer(self, file, chat):
        chat.faults["all"] = Status(401)
        with client_of(file, chat_model="m", chat_base_url=chat.url) as client:
            sent = {"question": "What do ducks eat?", "plan": {"mode": "lexical"}}
            answer = client.post("/answer", json=sent)
            assert (answer.status_code, answer.headers["content-type"]) == (502, PROBLEM)
            assert "HTTP 401" in answer.json()["detail"]
            assert "event: error" in client.post("/answer", json={**sent, "stream": True}).text

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("fault", "status", "text", "told"),
        [
            (Status(503), 502, "", "HTTP 503"),
            (Status(401), 502, "", "HTTP 401"),
            ("broken stream", 502, "The red valve", "closed the connection"),
            ("ends early", 502, "The red valve", "in the middle"),
            ("error in stream", 502, "The red valve", "out of memory"),
            ("no text", 502, "", "returned no text"),
            ("stalls", 502, "The red valve", "did not respond for"),
            ("hang", 502, "", "did not respond for"),
        ],
    )
    def test_fault_S19_sources_and_text_so_far_come_where_the_model_fails(self, file, chat, fault, status, text, told):
        chat.faults["all"] = fault
        seconds = 1.0 if fault in ("stalls", "hang") else 30
        with client_of(file, chat_model="m", chat_base_url=chat.url, answer_seconds=seconds) as client:
            sent = {"question": "What do ducks eat?", "plan": {"mode": "lexical"}, "max_tokens": 9}
            answer = client.post("/answer", json=sent)
            body = answer.json()
            if fault == "ends early":
                strict = client.post("/answer", json={**sent, "strict": True})
                schema = client.get("/openapi.json").json()["paths"]["/answer"]["post"]["responses"]
        assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM), body
        assert [source["doc_id"] for source in body["sources"]] == ["a.md", "a.md"]
        assert body["text"] == text
        assert told in body["detail"] == body["error"]
        if fault == "ends early":
            for code in ("502", "504"):
                assert set(body) == set(schema[code]["content"][PROBLEM]["schema"]["properties"])
            # It was asked for an error alone.
            assert (strict.status_code, "sources" in strict.json()) == (502, False)

    @pytest.mark.slow
    def test_fault_S19_an_answer_that_takes_too_long_keeps_what_came(self, file, chat):
        """Word after word, so that the model is never silent."""
        chat.reply = " ".join(["word"] * 100_000)
        with client_of(file, chat_model="m", chat_base_url=chat.url, answer_seconds=0.7) as client:
            sent = {"question": "What do ducks eat?", "plan": {"mode": "lexical"}}
            answer = client.post("/answer", json=sent)
        assert (answer.status_code, answer.headers["content-type"]) == (504, PROBLEM)
        assert answer.json()["text"].startswith("word word ")
        assert len(answer.json()["sources"]) == 2
        assert answer.json()["detail"] == "The answer took longer than 0.7 seconds."

    @pytest.mark.rest
    def test_a_client_that_goes_away_ends_the_call_of_the_model(self, file):
        pytest.importorskip("openai")
        ended = threading.Event()
        with socket.create_server(("127.0.0.1", 0)) as model:

            def begin_an_answer():
                connection, _ = model.accept()
                with connection:
                    connection.recv(65_536)
                    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
                    chunk["choices"] = [{"index": 0, "delta": {"role": "assistant", "content": "Ducks eat"}}]
                    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
                    connection.sendall(f"{head}data: {json.dumps(chunk)}\n\n".encode())
                    connection.settimeout(30)
                    while connection.recv(65_536):
                        pass
                    ended.set()

            threading.Thread(target=begin_an_answer, daemon=True).start()
            url = f"http://127.0.0.1:{model.getsockname()[1]}/v1"
            with started(file, "--chat-model", "m", "--chat-base-url", url) as server:
                port = int(server.stdout.readline().rsplit(":", 1)[1].strip().strip("/"))
                body = b'{"question": "duck", "stream": true, "plan": {"mode": "lexical"}}'
                head = "POST /answer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                with socket.create_connection(("127.0.0.1", port)) as connection:
                    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                    received = b""
                    while b"event: text" not in received:
                        part = connection.recv(4096)
                        assert part, received
                        received += part
                assert ended.wait(20)
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                    assert b"\nsqlrag_answers_pending 0.0\n" in answer.read()
                server.terminate()
                assert server.wait(30) == 0


def started(file, *arguments, code=None, **environment):
    return subprocess.Popen(
        [sys.executable, *(["-c", code] if code else ["-m", "sqlrag"]), "serve", str(file), "--port", "0", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "none", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_body_of_another_type_is_told_by_its_header(client):
    answer = client.post("/lexical_query", content=b'{"query_text": "duck"}', headers={"Content-Type": "text/plain"})
    assert answer.status_code == 422
    assert "Content-Type: application/json, not text/plain" in answer.json()["detail"]
    # Where the body could be read, what is wrong in it is told.
    headers = {"Content-Type": "application/vnd.x+json"}
    answer = client.post("/lexical_query", content=b'{"query_text": "duck", "nonsense": 1}', headers=headers)
    assert "nonsense" in answer.json()["detail"]
    answer = client.post("/documents", data={"tags": "x"})
    assert "files" in answer.json()["detail"]


def test_health_of_a_file_that_is_gone_or_damaged(file, tmp_path):
    path = tmp_path / "kb.duckdb"
    path.write_bytes(file.read_bytes())
    with client_of(path, idle_seconds=0.0) as client:
        assert client.get("/health").status_code == 200
        path.unlink()
        for content in (None, b"junk" * 5000):
            if content:
                path.write_bytes(content)
            answer = client.get("/health")
            assert answer.status_code == 503
            assert str(tmp_path) not in answer.text


@pytest.mark.slow
def test_a_file_that_is_cut_while_it_is_open(file):
    with client_of(file, idle_seconds=60.0) as client:
        assert client.get("/health").status_code == 200
        os.truncate(file, 20_000)
        found = client.get("/check")
        assert (found.status_code, found.json()["problems"] != []) == (200, True)
        assert str(file.parent) not in found.text
        for path in ("/documents", "/documents/a.md", "/facets"):
            answer = client.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (503, PROBLEM), path
            assert "damaged" in answer.json()["detail"]
        assert client.post("/export_ragmd", json={}).status_code == 503


def test_where_files_lie_on_the_server_is_told_to_nobody(client):
    doc_id = client.get("/documents").json()["documents"][0]["doc_id"]
    whole = client.get(f"/documents/{doc_id}").json()
    (source,) = client.post("/get_source_documents", json={"chunk_ids": [f"{doc_id}#0"]}).json()["documents"]
    assert whole["text"] == source["text"]
    assert "file_path" not in whole
    assert "file_path" not in source


class TestUpload:
    @pytest.mark.slow
    def test_documents_are_put_in_and_the_same_bytes_cost_nothing(self, tmp_path):
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "old.md").write_text("# Old\n\nIt stays.")
        file = sqlrag.prepare_embeddings(
            tmp_path / "docs", tmp_path / "kb.duckdb", embedding_provider="hashing", verbose=False
        ).path
        files = [
            ("files", ("new.md", b"# New\n\nGeese fly south.")),
            ("files", ("bad.pdf", b"no pdf")),
            ("files", ("../up.md", b"# Up")),
            ("files", ("/etc/x.md", b"# Up")),
        ]
        with client_of(file, write=True) as client:
            report = client.post("/documents", files=files).json()
            assert report["added"] == ["new.md"]
            assert [one["doc_id"] for one in report["failures"]] == ["../up.md", "/etc/x.md", "bad.pdf"]
            again = client.post("/documents", files=files[:1]).json()
            assert (again["unchanged"], again["embedded"]) == (["new.md"], 0)
            changed = client.post(
                "/documents", files=[("files", ("x.md", b"# New\n\nSwans."))], data={"doc_ids": "new.md"}
            ).json()
            assert changed["changed"] == ["new.md"]
            assert [d["doc_id"] for d in client.get("/documents").json()["documents"]] == ["new.md", "old.md"]
            refused = client.post("/documents", files=files[:1], data={"tags": "oil", "doc_ids": "new.md"})
            assert refused.status_code == 422
            assert refused.json()["detail"] == (
                "There is no field tags; the fields are files, doc_ids, collection, skip_duplicates."
            )
            assert client.get("/check").json() == {"problems": []}
            assert (
                client.post("/lexical_query", json={"query_text": "swans"}).json()["results"][0]["doc_id"] == "new.md"
            )

    @pytest.mark.rest
    def test_fault_S18_what_is_stored_when_the_provider_dies(self, tmp_path, monkeypatch):
        monkeypatch.setattr(remote, "FIRST_WAIT", 0.01)
        monkeypatch.setattr(remote, "LONGEST_WAIT", 0.02)
        server = EmbeddingServer()
        docs = write(tmp_path / "docs", old_md="# Old", d03_md="# Three")
        with embedding_server.serving(server) as url:
            model = sqlrag.load_embedder("m", provider="openai", base_url=f"{url}/v1", api_key="")
            file = sqlrag.prepare_embeddings(docs, tmp_path / "kb.duckdb", embedder=model, progress="off").path
            # Five chunks each: 128 of the 200 texts are in the first request, the shortest.
            pages = {n: "\n\n".join(f"# S{i}\n\n{'w' * n} n{n} s{i}" for i in range(5)) for n in range(40)}
            sent = [("files", (f"d{n:02}.md", page.encode())) for n, page in pages.items()]
            sent.append(("files", ("bad.pdf", b"%PDF-1.4 x")))
            with client_of(file, write=True, input_dir=docs) as client:
                assert client.get("/failures").json() == {"failures": [], "next": None}
                server.requests, server.faults = [], [embedding_server.down_after(3)]
                answer = client.post("/documents", files=sent)
                assert (answer.status_code, answer.headers["content-type"]) == (502, PROBLEM)
                body = answer.json()
                stored = body["report"]["added"] + body["report"]["changed"]
                assert "Add the others again" in body["detail"]
                listed = {one["doc_id"]: one for one in client.get("/documents").json()["documents"]}
                assert set(stored) == {doc_id for doc_id, one in listed.items() if one["chunks"]} - {"old.md"}
                failed = {one["doc_id"]: one for one in client.get("/failures").json()["failures"]}
                assert {one["doc_id"] for one in body["report"]["failures"]} == set(failed)
                assert set(failed) == {name for _, (name, _) in sent} - set(stored)
                assert 0 < len(stored) < 40
                assert failed["d39.md"]["status"] == "failed"
                assert "stopped answering" in failed["d39.md"]["reason"]
                (docs / "new.md").write_text("# New")
                again = client.post("/update_embeddings", json={})
                assert again.status_code == 502
                assert "new.md" in [one["doc_id"] for one in again.json()["report"]["failures"]]

                server.faults = []
                report = client.post("/documents", files=sent).json()
                assert set(report["unchanged"]) == set(stored)
                assert [one["doc_id"] for one in client.get("/failures").json()["failures"]] == ["bad.pdf", "new.md"]

    @pytest.mark.slow
    def test_fault_S27_what_failed_is_listed_page_by_page(self, tmp_path):
        file = build(tmp_path, a_md="# A", bad_pdf=b"%PDF-1.4 x")
        with client_of(file, write=True) as client:
            sent = [("files", (name, b"%PDF-1.4 x")) for name in ("c.pdf", "b.pdf")]
            client.post("/documents", files=[*sent, ("files", ("d.md", b" "))])
            first = client.get("/failures", params={"limit": 2}).json()
            assert ([one["doc_id"] for one in first["failures"]], first["next"]) == (["b.pdf", "bad.pdf"], "bad.pdf")
            second = client.get("/failures", params={"limit": 2, "after": first["next"]}).json()
            assert [(one["doc_id"], one["status"]) for one in second["failures"]] == [
                ("c.pdf", "failed"),
                ("d.md", "empty"),
            ]
            assert second["next"] is None
            assert all(one["reason"] and one["failed_at"].endswith("Z") for one in second["failures"])
            schema = client.get("/openapi.json").json()["components"]["schemas"]["FailedDocument"]
            assert set(schema["required"]) == set(second["failures"][0])
            client.post("/delete_documents", json={"doc_ids": ["b.pdf", "c.pdf"]})
            client.post("/documents", files=[("files", ("bad.pdf", pdf("A page.")))])
            assert [one["doc_id"] for one in client.get("/failures").json()["failures"]] == ["d.md"]

    def test_fault_S27_a_server_that_only_reads_lists_them_too(self, file):
        with client_of(file) as client:
            (one,) = client.get("/failures").json()["failures"]
            assert (one["doc_id"], one["reason"]) == ("bad.pdf", "it is damaged")
        with client_of([file]) as client:
            assert len(client.get("/failures").json()["failures"]) == 1

    @pytest.mark.slow
    def test_fault_S18_T20_duplicates_are_left_out_on_request(self, tmp_path):
        file = build(tmp_path, a_md="# A")
        sent = [("files", ("x.md", b"# X")), ("files", ("y.md", b"# X"))]
        with client_of(file, write=True) as client:
            report = client.post("/documents", files=sent, data={"skip_duplicates": "true"}).json()
            assert (report["added"], report["duplicates"]) == (["x.md"], [{"doc_id": "y.md", "same_as": "x.md"}])
            assert client.post("/documents", files=sent, data={"skip_duplicates": "perhaps"}).status_code == 422

    @pytest.mark.slow
    def test_fault_S18_openapi_says_what_the_answer_of_a_failure_has(self, client):
        found = client.get("/openapi.json").json()
        for path in ("/documents", "/update_embeddings"):
            answer = found["paths"][path]["post"]["responses"]["502"]
            _, more = answer["content"][PROBLEM]["schema"]["allOf"]
            reference = more["properties"]["report"]["$ref"]
            assert found["components"]["schemas"][reference.rpartition("/")[2]]["properties"]["failures"]
            assert "report" in answer["description"]

    def test_fault_S15_an_id_of_another_document_is_refused(self, tmp_path):
        file = build(tmp_path, a_md="# A")
        sent = {"chunks": [{"doc_id": "x", "chunk_index": 0, "content": "one", "given_id": "a.md#0"}]}
        with client_of(file, write=True) as client:
            answer = client.post("/index", json={**sent, "vectors": [[1.0] * 64]})
            assert answer.status_code == 422
            assert "'a.md#0' is that of a chunk of the document 'a.md'" in answer.json()["detail"]

    def test_a_large_upload_is_refused(self, file):
        with client_of(file, write=True, max_upload_bytes=1000) as client:
            answer = client.post("/documents", files=[("files", ("x.md", b"x" * 2000))])
            assert answer.status_code == 413
            # Fault S28: the limit is named.
            assert answer.json()["detail"] == "The body is larger than 1,000 bytes; send several requests."


class TestSeveral:
    """Several files of one server, each below its name."""

    @pytest.fixture
    def files(self, tmp_path):
        one, two = tmp_path / "one", tmp_path / "two"
        return {
            "ducks": build(one, a_md="# Ducks\n\nA duck swims."),
            "plums.2": build(two, a_md="# Plums\n\nA plum falls."),
        }

    @pytest.mark.slow
    def test_each_is_served_as_if_it_were_alone(self, files):
        with TestClient(create_app(files, ServerOptions(write=True)), base_url="http://127.0.0.1") as client:
            for name, path in files.items():
                found = client.post(f"/db/{name}/hybrid_query", json={"query_text": "plum duck"}).json()["results"]
                assert found == json.loads(json.dumps(sqlrag_rows("plum duck", path)))
                assert client.get(f"/db/{name}/facets").json()["databases"] == list(files)
                assert client.get(f"/db/{name}/").text == client.get(f"/db/{name}").text  # by a redirect
                for path in ("", "page/main.js", "docs", "swagger/swagger-ui.css", "openapi.json", "metrics", "health"):
                    assert client.get(f"/db/{name}/{path}").status_code == 200, path
            assert client.post("/db/ducks/delete_documents", json={"doc_ids": ["a.md"]}).status_code == 200
            left = {name: len(client.get(f"/db/{name}/documents").json()["documents"]) for name in files}
            assert left == {"ducks": 0, "plums.2": 1}
            assert client.get("/").url.path == "/db/ducks/"
            assert client.head("/health").status_code == 200
            assert client.get("/db/plums.2/documents/none").json()["title"] == "Not Found"

    @pytest.mark.slow
    def test_what_is_no_name_is_not_found(self, files):
        with TestClient(create_app(files), base_url="http://127.0.0.1") as client:
            for path in ("/db/none/health", "/db/", "/db", "/documents", "/db/ducks%2Fhealth/x", "/db/%2E%2E/health"):
                answer = client.get(path)
                assert (answer.status_code, answer.headers["content-type"]) == (404, PROBLEM), path

    @pytest.mark.slow
    def test_a_route_at_the_root_is_below_a_name(self, files):
        with TestClient(create_app(files), base_url="http://127.0.0.1") as client:
            for path in ("/hybrid_query", "/docs", "/db/none/hybrid_query"):
                told = f"There is no route {path}. The routes are below /db/NAME/, where NAME is ducks or plums.2."
                assert client.post(path).json()["detail"] == told
            told = (
                "There is no route /db/ducks/search. Did you mean POST /db/ducks/hybrid_query? GET /db/ducks/docs lists"
            )
            assert client.post("/db/ducks/search").json()["detail"] == f"{told} all."

    @pytest.mark.slow
    def test_the_checks_hold_for_each(self, files):
        app = create_app(files, ServerOptions(api_key=KEY, cors=("https://app.example.org",)))
        with TestClient(app, base_url="http://127.0.0.1") as client:
            for path in ("/db/ducks/documents", "/db/plums.2/facets", "/db/none/facets"):
                assert client.get(path).status_code == 401
                assert client.get(path, headers={"Host": "evil.example"}).status_code == 421
                assert client.get(path, headers={"Origin": "https://evil.example"}).status_code == 403
            page = {"Origin": "https://app.example.org", "X-API-Key": KEY, "X-Request-ID": "of-the-app"}
            answer = client.get("/db/ducks/documents", headers=page)
            assert answer.headers["access-control-allow-origin"] == "https://app.example.org"
            assert answer.headers.get_list("x-request-id") == ["of-the-app"]
            assert len(client.get("/health").headers.get_list("x-request-id")) == 1

    @pytest.mark.slow
    def test_one_that_is_gone_is_seen_by_the_health_of_all(self, files):
        with TestClient(create_app(files, ServerOptions(idle_seconds=0)), base_url="http://127.0.0.1") as client:
            assert client.get("/health").json() == {"status": "ok"}
            files["plums.2"].unlink()
            assert client.get("/health").status_code == 503
            assert client.get("/db/ducks/health").status_code == 200
            assert client.post("/db/ducks/lexical_query", json={"query_text": "duck"}).json()["results"]

    @pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "é", "x" * 65])
    def test_a_name_is_a_part_of_a_path(self, file, name):
        with pytest.raises(sqlrag.InputError, match="must be 1 to 64 letters"):
            create_app({name: file})

    @pytest.mark.slow
    def test_an_application_that_nobody_refers_to_lets_go_of_its_files(self, files):
        app = create_app(files)
        kept = weakref.ref(app)
        with TestClient(app, base_url="http://127.0.0.1") as client:
            assert client.get("/health").status_code == 200
        del app, client
        gc.collect()
        assert kept() is None

    @pytest.mark.rest
    def test_the_command(self, files, tmp_path):
        (first, one), (second, two) = files.items()
        with started(f"--db={first}={one}", "--db", f"{second}={two}", "--access-log", "json") as server:
            url = server.stdout.readline().strip()
            with urllib.request.urlopen(f"{url}db/{second}/documents") as answer:
                assert json.load(answer)["documents"][0]["doc_id"] == "a.md"
            server.terminate()
            told = server.communicate(timeout=30)[1].splitlines()
        assert told[0] == f"Serving {one}, {two}; Ctrl-C ends it."
        assert json.loads(told[1])["path"] == f"/db/{second}/documents"
        for wrong in ((f"--db={first}={one}", f"--db={first}={two}"), (f"--db={first}={one}", f"--db={two}")):
            assert "each file needs a name of its own" in refused(*wrong)


def sqlrag_rows(question, path):
    results = sqlrag.hybrid_query(question, path)
    return [{key: value for key, value in row.items() if key != "source_doc"} | {"source_doc": None} for row in results]


def refused(*arguments):
    """Return what ``sqlrag serve`` says, in this process, before it would serve."""
    done = CliRunner().invoke(app, ["serve", *map(str, arguments)], env={"SQLRAG_API_KEY": ""})
    assert (done.exit_code, done.stdout) == (2, "")
    return done.stderr


class TestServe:
    @pytest.mark.slow
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_fault_U9_it_says_that_it_serves_once_it_does_and_ends_in_order(self, file, number):
        with started(file, "--access-log", "json") as server:
            try:
                url = server.stdout.readline().strip()
                assert url.startswith("http://127.0.0.1:")
                with urllib.request.urlopen(url + "health") as answer:
                    assert json.load(answer) == {"status": "ok"}
            finally:
                server.send_signal(number)
            first, second, *_ = server.communicate(timeout=30)[1].splitlines()
        assert server.returncode == 0
        assert first == f"Serving {file}; Ctrl-C ends it."
        assert json.loads(second)["path"] == "/health"

    @pytest.mark.rest
    def test_a_second_interrupt_says_nothing_more(self, file):
        with started(file) as server:
            url = server.stdout.readline().strip()
            with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port)) as waiting:
                waiting.sendall(b"POST /hybrid_query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\n{")
                urllib.request.urlopen(url + "health").close()
                server.send_signal(signal.SIGINT)
                time.sleep(0.5)
                server.send_signal(signal.SIGINT)
                server.wait(30)
            assert server.communicate(timeout=30)[1] == f"Serving {file}; Ctrl-C ends it.\n"

    @pytest.mark.rest
    def test_its_log_tells_of_faults(self, file):
        code = (
            "import sys; from sqlrag.adapters.rest import pages\n"
            "def broken(*_): raise RuntimeError('a fault of the program')\n"
            "pages._facets = broken\n"
            "from sqlrag.cli import main\n"
            "main()"
        )
        with started(file, "--write", code=code) as server:
            url = server.stdout.readline().strip()
            with pytest.raises(urllib.error.HTTPError, match="500"):
                urllib.request.urlopen(url + "facets")
            os.truncate(file, 20_000)
            with pytest.raises(urllib.error.HTTPError, match="503"):
                urllib.request.urlopen(url + "documents")
            server.terminate()
            told = server.communicate(timeout=30)[1]
        assert told.count("Traceback") == 1
        assert told.count("\nRuntimeError: a fault of the program\n") == 1
        assert re.search(r"WARNING \[[0-9a-f]{32}\] StoreError: .*cannot be read, it may be damaged or cut short", told)
        assert re.search(r"ERROR \[[0-9a-f]{32}\] RuntimeError was not expected", told)

    def test_other_machines_need_a_key(self, file):
        assert "it needs a key: set SQLRAG_API_KEY" in refused(file, "--host", "0.0.0.0")

    def test_a_port_that_is_taken(self, file):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            told = refused(file, "--port", taken.getsockname()[1])
        assert "Pass another --port" in told
        assert "Serving" not in told  # fault U9

    @pytest.mark.rest
    def test_an_access_log_has_a_line_for_each_request_and_nothing_that_was_asked(self, file, tmp_path):
        log = tmp_path / "access.jsonl"
        for where in ("json", "-", str(log)):
            with started(file, "--access-log", where, SQLRAG_API_KEY=KEY) as server:
                url = server.stdout.readline().strip()
                for method, path, body, headers in (
                    ("POST", "lexical_query", {"query_text": "secretword duck", "top_k": 7}, {"X-Request-ID": "id-1"}),
                    ("POST", "retrieve", {"query": "secretword", "plan": {"mode": "lexical", "k": 9}}, {}),
                    ("GET", "?q=secretword", None, {}),
                    ("HEAD", "health", None, {}),
                    ("POST", "lexical_query", {"query_text": "secretword", "top_k": 0}, {}),
                    ("GET", "documents/secret%0Aword", None, {}),
                    ("GET", "documents", None, {"Authorization": "Bearer wrong"}),
                ):
                    sent = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", **headers}
                    data = None if body is None else json.dumps(body).encode()
                    request = urllib.request.Request(url + path, data, sent, method=method)
                    try:
                        with urllib.request.urlopen(request) as answer:
                            last = len(answer.read())
                    except urllib.error.HTTPError as error:
                        last = len(error.read())
                server.terminate()
                told = server.communicate(timeout=30)[1]
        lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
        assert [(line["method"], line["path"], line["status"], line["top_k"]) for line in lines] == [
            ("POST", "/lexical_query", 200, 7),
            ("POST", "/retrieve", 200, 9),
            ("GET", "/", 200, None),
            ("HEAD", "/health", 200, None),
            ("POST", "/lexical_query", 422, None),
            ("GET", "/documents/secret\nword", 404, None),
            ("GET", "/documents", 401, None),
        ]
        assert lines[0]["request_id"] == "id-1"
        assert all(re.fullmatch("[0-9a-f]{32}", line["request_id"]) for line in lines[1:])
        assert (lines[3]["bytes"], lines[-1]["bytes"]) == (0, last)
        assert all(
            line["ms"] > 0 and re.fullmatch(r"20\d\d-\d\d-\d\dT[\d:]{8}\.\d{3}Z", line["time"]) for line in lines
        )
        assert "secretword" not in log.read_text("utf-8")
        assert "{" not in told  # of the second server: its file has it all

    def test_an_access_log_that_cannot_be_written(self, file, tmp_path):
        told = refused(file, "--access-log", tmp_path / "none" / "access.jsonl")
        assert "cannot be written: No such file or directory" in told
        assert "Traceback" not in told


@pytest.mark.slow
@pytest.mark.parametrize("by", ["path", "store"])
def test_fault_S20_an_application_that_nobody_refers_to_lets_go_of_its_file(tmp_path, by):
    path = build(tmp_path, a_md="plum")

    def served():
        app = create_app(str(path) if by == "path" else sqlrag.Store(path))
        client = TestClient(app, base_url="http://localhost")  # no lifespan, which would close the file
        assert client.post("/lexical_query", json={"query_text": "plum"}).status_code == 200
        return weakref.ref(app), weakref.ref(app.state.service)

    kept = served()
    gc.collect()
    assert [one() for one in kept] == [None, None]
    assert sqlrag.add_documents({"b.md": b"new"}, path, wait_seconds=0).added == ["b.md"]


QUESTION = {"query_text": "What do ducks eat?"}
CANDIDATE = {"doc_id": "a.md", "chunk_index": 0, "content": "x"}
MISTAKES = [
    ("hybrid_query", {}, "query_text is missing."),
    ("hybrid_query", {"query_text": 5}, "query_text must be a string, not 5."),
    ("hybrid_query", {"query": "ducks"}, "query_text is missing; there is no field query (did you mean query_text?)."),
    ("hybrid_query", {**QUESTION, "topk": 3}, "there is no field topk (did you mean top_k?)."),
    ("hybrid_query", {**QUESTION, "db_path": "/x"}, "there is no field db_path (the fields are query_text, model"),
    ("hybrid_query", {**QUESTION, "top_k": "3"}, "top_k must be a whole number, not '3'."),
    ("hybrid_query", {**QUESTION, "top_k": 0}, "top_k must be from 1 to 1000, not 0."),
    ("hybrid_query", {**QUESTION, "collection": 5}, "collection must be a string or a list, not 5."),
    ("hybrid_query", {**QUESTION, "collection": ["a", None]}, "collection[1] must be a string, not null"),
    ("hybrid_query", {**QUESTION, "exact": 1}, "exact must be true or false, not 1."),
    ("hybrid_query", {**QUESTION, "metadata": "year"}, "metadata must be an object, not 'year'."),
    ("hybrid_query", {**QUESTION, "fusion": True}, "fusion must be 'adaptive', 'rrf', 'weighted' or 'convex', not"),
    ("hybrid_query", [1], "the request must be an object, not a list."),
    ("retrieve", {"query": "x", "plan": {"k": 0}}, "plan.k must be from 1 to 1000, not 0."),
    ("retrieve", {"query": "x", "plan": {"modes": "x"}}, "there is no field plan.modes (did you mean mode?)."),
    ("fuse", {"candidate_sets": [[CANDIDATE, {"doc_id": "a"}]]}, "candidate_sets[0][1].chunk_index is missing; "),
    ("rerank", {"query": "x", "candidates": [CANDIDATE], "vectors": [[1, 2], [1]]},
     "vectors must be numbers in rows of equal length."),
    ("fit_context", {"results": [], "max_tokens": 0}, "max_tokens must be 1 or more, not 0."),
    ("build_prompt", {"question": "x", "contexts": [{"a": 1}]}, "A context must be an object with a text, not"),
    ("chunk", {"document": {"text": "x"}}, "document.doc_id is missing; document must be a string or a list, not"),
    ("vector_query", {**QUESTION, "query_vector": [1, 2]}, "sqlrag reembed FILE --model NAME gives the file another"),
    ("export_ragmd", {"tags_any": "x"}, "tags_any must be a list, not 'x'."),
]  # fmt: skip


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    path = tmp_path_factory.mktemp("asked") / "kb.duckdb"
    make_small_store(path)
    with client_of(path, write=True) as client:
        yield client


@pytest.mark.parametrize(("route", "body", "said"), MISTAKES, ids=lambda value: str(value)[:50])
def test_mistakes_are_told_in_fields(asked, route, body, said):
    answer = asked.post(f"/{route}", json=body)
    assert answer.status_code in (409, 422)
    detail = answer.json()["detail"]
    assert said in detail
    assert not re.search(r"Input should|not permitted|body\.|dict\b|\w\(\w+[,)]|[Ee]mbedder|None|True", detail)


def test_mistakes_in_parameters_and_forms_are_told_in_fields(asked):
    def told(answer):
        assert answer.status_code == 422
        return answer.json()["detail"]

    assert told(asked.get("/documents?limit=x")) == "limit must be a whole number, not 'x'."
    assert told(asked.get("/passage")) == "node_id is missing."
    assert told(asked.post("/documents", files=[("doc", ("x.md", b"x"))])) == "files is missing."
    of_json = told(asked.post("/documents", json={"files": [{"name": "a.md", "content": "x"}]}))
    assert "multipart/form-data, not as application/json: curl -F files=@page.md" in of_json
    sent = {"data": {"skip_duplicates": "maybe"}, "files": [("files", ("x.md", b"x"))]}
    assert told(asked.post("/documents", **sent)) == "skip_duplicates must be true or false, not 'maybe'."


def test_a_file_whose_vectors_were_given_says_which_route_takes_more(asked):
    answer = asked.post("/documents", files=[("files", ("x.md", b"# x"))])
    assert answer.status_code == 501
    assert answer.json()["detail"].endswith("names no model to embed with. Index chunks with their vectors.")


@pytest.mark.parametrize(
    ("method", "path", "status", "detail"),
    [
        ("POST", "/search", 404, "There is no route /search. Did you mean POST /hybrid_query? GET /docs lists all."),
        ("POST", "/ask/", 404, "There is no route /ask/. Did you mean POST /answer? GET /docs lists all."),
        ("GET", "/document", 404, "There is no route /document. Did you mean GET or POST /documents? GET /docs lists"),
        ("GET", "/xyz", 404, "There is no route /xyz. GET /docs lists all."),
        ("GET", "/hybrid_query", 405, "/hybrid_query takes POST, not GET."),
        ("PUT", "/documents", 405, "/documents takes GET or POST, not PUT."),
        ("DELETE", "/documents", 405, "/documents takes GET or POST, not DELETE. POST /delete_documents deletes."),
    ],
)
def test_a_route_that_is_not_there_names_the_one_that_is(file, method, path, status, detail):
    with client_of(file, write=True) as client:
        answer = client.request(method, path)
        assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM)
        assert answer.json()["detail"].startswith(detail)
        if status == 405:
            assert client.request(answer.headers["allow"].split(", ")[0], path).status_code != 405


def test_fields_of_other_programs_name_ours(file):
    with client_of(file, write=True) as client:
        for given, meant in {"topK": "top_k", "limit": "top_k", "q": "query_text", "filter": "metadata"}.items():
            told = client.post("/hybrid_query", json={"query_text": "x", given: 3}).json()["detail"]
            assert f"there is no field {given} (did you mean {meant}?)" in told
        told = client.post("/hybrid_query", json={"query_text": "x", "mode": "lexical"}).json()["detail"]
        assert "there is no field mode (the mode is in the name: hybrid_query, vector_query, lexical_query)" in told
        told = client.post("/documents", files={"file": ("a.md", b"x")}).json()["detail"]
        assert told == "files is missing; there is no field file (did you mean files?)."
        told = client.post("/documents", files={"files": ("a.md", b"x")}, data={"collections": "x"}).json()["detail"]
        assert told == "There is no field collections; did you mean collection?"
        told = client.get("/documents?limits=3").json()["detail"]
        assert told.startswith("There is no parameter 'limits'; did you mean limit?")


@pytest.mark.slow
def test_summaries_are_plain_text(file):
    with client_of(file) as client:
        routes = client.get("/openapi.json").json()["paths"].values()
        assert [one["summary"] for route in routes for one in route.values() if "`" in one["summary"]] == []
