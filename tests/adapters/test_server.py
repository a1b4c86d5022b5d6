"""What both servers share: who may ask, by every route of REST and of MCP over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import re

import duckdb
import pytest
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

import sqlrag
from sqlrag.adapters import mcp, rest
from sqlrag.adapters.rest import pages, table
from sqlrag.adapters.rest.config import ServerOptions
from sqlrag.network import is_own_origin
from tests.support import chat_server, embedding_server
from tests.support.helpers import build, write
from tests.support.stores import make_small_store

KEY = "a-key-that-nobody-guesses"
HOST = "127.0.0.1:8000"
OWN = f"http://{HOST}"
# What a form can send, what fetch can send, and a body of no type.
CONTENTS = {
    "application/json": b"{}",
    "text/plain": b'{"query_text": "duck"}',
    "application/x-www-form-urlencoded": b"query_text=duck",
    "multipart/form-data; boundary=b": (
        b'--b\r\nContent-Disposition: form-data; name="files"; filename="x.md"\r\n\r\nx\r\n--b--\r\n'
    ),
    "": b"",
}
FOREIGN = [
    {"origin": origin}
    for origin in (
        "https://evil.example", "http://evil.example:8000", "null", "NULL", "", "http://127.0.0.1", "http://127.0.0.1:3000",
        f"https://{HOST}", f"ws://{HOST}", f"file://{HOST}", "file://", f"HTTPS://{HOST}", "http://127.0.0.1.:8000",
        "http://localhost.:8000", "http://[::1]:8001", "http://[::1]", "http://[::ffff:127.0.0.1]:8000",
        "http://2130706433:8000",
        f"http://{HOST}.evil.example", f"http://{HOST}@evil.example", f"http://evil.example#{HOST}", f"{OWN}/",
        f"{OWN} ",
        HOST, f"{OWN}, https://evil.example", f"https://evil.example {OWN}", "http://app.localhost:8000",
    )
] + [
    {"sec-fetch-site": site} for site in ("cross-site", "same-site", "Cross-Site", " cross-site", "", "unknown")
] + [
    {"origin": OWN, "sec-fetch-site": "cross-site"},
    {"origin": "https://evil.example", "sec-fetch-site": "same-origin"},
]  # fmt: skip
WELCOME = [
    {},
    {"origin": OWN},
    {"origin": OWN.upper()},
    {"origin": "http://localhost:8000"},
    {"origin": "http://[::1]:8000"},
    {"origin": OWN, "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"},
    {"sec-fetch-site": "same-origin"},
    {"sec-fetch-site": "none"},
    {"sec-fetch-site": "Same-Origin"},
]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("server") / "kb.duckdb"
    make_small_store(path)
    return path


@pytest.fixture(scope="module")
def apps(file):
    """The application of REST and that of MCP, without a key."""
    return {"rest": rest.create_app(file, ServerOptions(write=True)), "mcp": mcp.create_app(file)}


def client_of(file, **options):
    return TestClient(rest.create_app(file, ServerOptions(**options)), base_url=OWN, raise_server_exceptions=False)


def routes_of(app):
    """Return path and method of each route that REST has."""
    paths = [(r.path, method) for r in app.routes for method in getattr(r, "methods", None) or ()]
    assert {f"/{call.name}" for call in table.CALLS} <= {path for path, _ in paths}
    assert ("/documents", "POST") in paths
    assert all(isinstance(r, APIRoute) or r.path in ("/openapi.json", "/page", "/swagger") for r in app.routes)
    return [(path.replace("{doc_id:path}", "a.md"), method) for path, method in sorted(paths)]


async def told(app, method, path, headers, content=b"", host=HOST):
    """Return status, headers and body of what an application answers, without its lifespan."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": content}

    async def send(message):
        sent.append(message)

    given = [(b"host", host.encode())] + [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": given,
    }
    await app({**scope, "scheme": "http", "root_path": ""}, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"]), b"".join(message.get("body", b"") for message in sent)


def all_told(app, requests):
    async def run():
        return [await told(app, *request) for request in requests]

    return asyncio.run(run())


class TestForeignPages:
    """Pages of other sites, which make a browser send requests: `Host` is right, and there may be no key."""

    @pytest.mark.slow
    def test_fault_S2_no_route_answers_a_page_of_another_site(self, apps):
        routes = [("rest", *route) for route in routes_of(apps["rest"])]
        routes += [
            ("rest", "/none", "GET"),
            ("rest", "/documents", "OPTIONS"),
            ("rest", "/documents", "PUT"),
            ("rest", "/", "POST"),
        ]
        routes += [("mcp", "/mcp", method) for method in ("POST", "GET", "DELETE", "OPTIONS")]
        asked = 0
        for kind, path, method in routes:
            if method in ("GET", "HEAD") and path in ("/", "/health", "/docs"):
                continue
            contents = CONTENTS if method == "POST" else {"": b""}
            requests = [
                (method, path, {**headers, **({"content-type": sort} if sort else {})}, content)
                for sort, content in contents.items()
                for headers in FOREIGN
            ]
            for request, (status, headers, body) in zip(requests, all_told(apps[kind], requests), strict=True):
                assert status == 403, request
                assert headers[b"content-type"] == b"application/problem+json"
                assert "--allow-host NAME" in json.loads(body)["detail"]
                asked += 1
        assert asked > 3000

    @pytest.mark.rest
    @pytest.mark.parametrize("key", [None, KEY])
    def test_fault_S2_the_page_itself_and_programs_are_answered(self, file, key):
        sent = {"authorization": f"Bearer {key}"} if key else {}
        with TestClient(rest.create_app(file, ServerOptions(api_key=key)), base_url=OWN) as client:
            for headers in WELCOME:
                for foreign in ({}, FOREIGN[0], {"sec-fetch-site": "cross-site"}):  # a link on another site leads here
                    for path in ("/", "/health", "/page/main.js", "/docs", "/swagger/swagger-ui.css"):
                        assert client.get(path, headers={**headers, **foreign}).status_code == 200
                        assert client.head(path, headers={**headers, **foreign}).status_code == 200
                answer = client.post("/lexical_query", json={"query_text": "duck"}, headers={**headers, **sent})
                assert answer.status_code == 200, headers
                assert client.get("/documents", headers={**headers, **sent}).status_code == 200, headers
                if key:  # it is needed as ever
                    assert client.get("/documents", headers=headers).status_code == 401
            refused = client.get("/documents", headers={**sent, **FOREIGN[0]})
            assert refused.status_code == 403

    def test_fault_S2_programs_and_own_pages_reach_mcp(self, file):
        app = mcp.create_app(file)
        body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        accepted = {"accept": "application/json, text/event-stream"}
        with TestClient(app, base_url=OWN) as client:
            for headers in WELCOME:
                assert client.post("/mcp", json=body, headers={**accepted, **headers}).status_code == 200, headers

    def test_fault_S2_nothing_is_written(self, tmp_path):
        """What a form on another site sends."""
        make_small_store(tmp_path / "kb.duckdb")
        with TestClient(rest.create_app(tmp_path / "kb.duckdb", ServerOptions(write=True)), base_url=OWN) as client:
            before = client.get("/documents").json()
            for headers in FOREIGN:
                form = {"files": [("files", ("a.md", b"# Planted"))], "headers": headers}
                assert client.post("/documents", **form).status_code == 403
            assert client.get("/documents").json() == before

    @pytest.mark.parametrize(
        ("origin", "host", "own"),
        [
            ("https://kb.example.org", "kb.example.org", True),  # TLS ends at a proxy that keeps the name
            ("https://kb.example.org:8443", "kb.example.org:8443", True),
            ("http://kb.example.org:8443", "kb.example.org:8443", True),
            ("https://KB.example.org:443", "kb.Example.org", True),
            ("https://kb.example.org:8443", "kb.example.org", False),
            ("http://kb.example.org:3000", "kb.example.org:8000", False),
            ("https://sub.kb.example.org", "kb.example.org", False),
            ("https://example.org", "kb.example.org", False),
            ("https://kb.example.org.", "kb.example.org", False),
            ("http://[fd00::1]:8000", "[fd00::1]:8000", True),
            ("http://[FD00::1]:8000", "[fd00::1]:8000", True),
            ("http://[fd00::2]:8000", "[fd00::1]:8000", False),
            ("http://localhost:8000", "kb.example.org:8000", False),
            ("http://192.168.1.5:8000", "192.168.1.5:8000", True),
            ("http://192.168.1.5:8000", "192.168.1.6:8000", False),
            ("null", "null", False),
        ],
    )
    def test_fault_S2_any_name_may_be_that_of_the_server(self, file, origin, host, own):
        """With a key any `Host` is accepted, so that the origin is compared with what the browser called it."""
        app = rest.create_app(file, ServerOptions(hosts=("*",), api_key=KEY))
        status = asyncio.run(told(app, "GET", "/documents", {"origin": origin}, host=host))[0]
        assert status == (401 if own else 403)

    def test_fault_S2_a_name_that_is_allowed_may_be_that_of_a_proxy(self):
        names = {"kb.example.org"}
        for origin in ("https://kb.example.org", "http://KB.example.org:81", "https://kb.example.org:8443"):
            assert is_own_origin(origin, HOST, "http", names)
            assert not is_own_origin(origin, HOST, "http")
        for origin in (
            "https://kb.example.org.evil.example",
            "null",
            "https://kb.example.org@x",
            "ftp://kb.example.org",
        ):
            assert not is_own_origin(origin, HOST, "http", names)


APP = "https://app.example.org"
OTHERS = (
    *("http://app.example.org", f"{APP}:8443", f"{APP}.evil.example", f"{APP}/", "https://sub.app.example.org"),
    *("https://app.example.org@evil.example", "https://APP.example.org", "https://evil.example", "null", ""),
)


def preflight(client, origin, headers="authorization,content-type,x-api-key,x-request-id"):
    asked = {"origin": origin, "access-control-request-method": "POST", "access-control-request-headers": headers}
    return client.options("/hybrid_query", headers={**asked, "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"})


class TestOtherOrigins:
    """A web app of another origin, which the server was told of (``--cors``)."""

    @pytest.mark.slow
    @pytest.mark.parametrize("key", [None, KEY])
    def test_fault_U2_pages_of_a_named_origin_read_and_write(self, tmp_path, key):
        path = build(tmp_path, a_md="# Ducks\n\nA duck swims.")
        with client_of(path, write=True, cors=("https://App.example.org:443/",), api_key=key) as client:
            before = preflight(client, APP)
            assert before.status_code == 200
            assert before.headers["access-control-allow-origin"] == APP
            assert {"authorization", "content-type"} <= set(
                before.headers["access-control-allow-headers"].lower().split(", ")
            )
            page = {"origin": APP, "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
            sent = {**page, **({"authorization": f"Bearer {key}"} if key else {})}
            found = client.post("/lexical_query", json={"query_text": "duck"}, headers=sent)
            assert found.json()["results"]
            uploaded = client.post("/documents", files=[("files", ("new.md", b"# New"))], headers=sent)
            assert uploaded.json()["added"] == ["new.md"]
            read = client.get("/documents/new.md", headers=sent)
            again = client.get("/documents/new.md", headers={**sent, "if-none-match": read.headers["etag"]})
            # What fails can be read as well, so that the app can say why.
            wrong = client.post("/lexical_query", json={"query_text": 1}, headers=sent)
            refused = client.post("/lexical_query", json={"query_text": "duck"}, headers=page)
            answers = (found, uploaded, read, again, wrong, refused)
            assert [one.status_code for one in answers] == [200, 200, 200, 304, 422, 401 if key else 200]
            for answer in answers:
                assert answer.headers["access-control-allow-origin"] == APP
                assert "origin" in answer.headers["vary"].lower()
                assert "access-control-allow-credentials" not in answer.headers
                assert "x-request-id" in answer.headers["access-control-expose-headers"].lower()

    @pytest.mark.parametrize("key", [None, KEY])
    def test_fault_U2_no_other_origin_gets_anything(self, file, key):
        sent = {"x-api-key": key} if key else {}
        with client_of(file, cors=(APP,), api_key=key) as client:
            for origin in OTHERS:
                for answer in (
                    preflight(client, origin),
                    client.get("/documents", headers={**sent, "origin": origin}),
                    client.post("/lexical_query", json={"query_text": "duck"}, headers={**sent, "origin": origin}),
                ):
                    assert answer.status_code == 403, origin
                    assert "access-control-allow-origin" not in answer.headers
                    assert "--cors" in answer.json()["detail"]
            both = [*sent.items(), ("origin", APP), ("origin", "https://evil.example")]
            assert client.get("/documents", headers=both).status_code == 403
            # An image or a script of a page has no Origin.
            assert client.get("/documents", headers={**sent, "sec-fetch-site": "cross-site"}).status_code == 403
            # A name that resolves to this machine is none of the server's.
            rebound = {**sent, "origin": APP, "host": "app.example.org"}
            assert client.get("/documents", headers=rebound).status_code == 421
            for headers in WELCOME:
                assert client.get("/documents", headers={**sent, **headers}).status_code == 200

    @pytest.mark.slow
    def test_fault_U2_any_origin_has_to_be_spelled_out_and_changes_nothing_without_a_key(self, file):
        with client_of(file, cors=("*",)) as client:
            assert preflight(client, "https://evil.example").headers["access-control-allow-origin"] == "*"
            answer = client.get("/documents", headers={"origin": "https://evil.example"})
            assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "*")
            assert client.get("/documents", headers={"sec-fetch-site": "cross-site"}).status_code == 403
        assert ServerOptions(write=True, cors=("*",), api_key=KEY).cors == ("*",)
        with pytest.raises(sqlrag.InputError, match="pages of any site could change the file"):
            ServerOptions(write=True, cors=("https://app.example.org", "*"))

    @pytest.mark.parametrize(
        "origin",
        ["app.example.org", f"{APP}/path", "ftp://app.example.org", "", "null", "https://*.example.org", "http:"],
    )
    def test_fault_U2_what_is_no_origin_is_refused(self, origin):
        with pytest.raises(sqlrag.InputError, match="is no origin"):
            ServerOptions(cors=(origin,))


class TestRequestIds:
    """Every request has an id: the client's, or a new one; it is in the response and in logs, and models get it."""

    @pytest.mark.slow
    def test_fault_S26_every_response_has_it(self, file, monkeypatch):
        def broken(*_):
            raise RuntimeError("a fault of the program")

        monkeypatch.setattr(pages, "_facets", broken)
        with client_of(file, api_key=KEY, max_body_bytes=1000) as client:
            key = {"x-api-key": KEY}
            page = client.get("/documents/a.md", headers=key)
            asked = [
                ("GET", "/", {}, 200),
                ("GET", "/page/main.js", {}, 200),
                ("HEAD", "/health", {}, 200),
                ("GET", "/documents", {}, 401),
                ("GET", "/documents", key, 200),
                ("GET", "/documents/a.md", {**key, "if-none-match": page.headers["etag"]}, 304),
                ("GET", "/none", key, 404),
                ("PUT", "/documents", key, 405),
                ("POST", "/documents", key, 422),
                ("POST", "/lexical_query", {**key, "content-length": "5000"}, 413),
                ("POST", "/export_ragmd", {**key, "content-type": "application/json"}, 200),
                ("GET", "/documents", {"host": "evil.example"}, 421),
                ("GET", "/documents", {"origin": "https://evil.example"}, 403),
                ("GET", "/facets", key, 500),
            ]
            for method, path, headers, status in asked:
                for given in ("my-id-7", None):
                    sent = {**headers, **({"x-request-id": given} if given else {})}
                    content = b"{}" if path.startswith("/export") else None
                    answer = client.request(method, path, headers=sent, content=content)
                    assert answer.status_code == status, path
                    (found,) = answer.headers.get_list("x-request-id")
                    assert found == given or (given is None and re.fullmatch("[0-9a-f]{32}", found))

    @pytest.mark.parametrize("kind", ["rest", "mcp"])
    def test_fault_S26_what_cannot_be_one_is_replaced(self, apps, kind):
        for given in ("", " ", "a b", "x" * 129, "\u00e9", "a\tb", "a\x00b", "a\x7f"):
            headers = asyncio.run(told(apps[kind], "GET", "/none", {"x-request-id": given}))[1]
            assert re.fullmatch(b"[0-9a-f]{32}", headers[b"x-request-id"]), given
        for given in ("x" * 128, "!~", "0", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"):
            headers = asyncio.run(told(apps[kind], "GET", "/none", {"x-request-id": given}))[1]
            assert headers[b"x-request-id"].decode() == given

    @pytest.mark.slow
    @pytest.mark.parametrize("provider", ["openai", "ollama"])
    def test_fault_S26_logs_and_models_get_it(self, tmp_path, provider, monkeypatch, caplog):
        pytest.importorskip(provider)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("SQLRAG_QUERY_LOG", str(tmp_path / "log.duckdb"))
        caplog.set_level(logging.DEBUG)
        vectors, chat = embedding_server.EmbeddingServer(), chat_server.ChatServer()
        write(tmp_path / "docs", a_md="# Ducks\n\nDucks swim.")
        with embedding_server.serving(vectors) as url, chat_server.serving(chat) as chat_url:
            given = {"embedding_provider": provider, "embed_model_name": "test-model", "progress": "off"}
            base = f"{url}/v1" if provider == "openai" else url
            path = sqlrag.prepare_embeddings(tmp_path / "docs", tmp_path / "kb.duckdb", base_url=base, **given).path
            options = {"chat_model": "m", "chat_base_url": chat_url, "write": True}
            with client_of(path, **options) as client:
                named = {"x-request-id": "id-of-search"}
                found = client.post("/hybrid_query", json={"query_text": "secretword swims"}, headers=named)
                asked = {**named, "x-request-id": "id-of-answer"}
                answer = client.post("/answer", json={"question": "secretword dives", "expand": "llm"}, headers=asked)
                own = client.post(
                    "/answer", json={"question": "secretword sings", "request_id": "of-the-body"}, headers=asked
                )
                file = {"files": [("files", ("b.md", b"# Geese"))], "headers": {"x-request-id": "id-of-upload"}}
                assert client.post("/documents", **file).json()["added"] == ["b.md"]
        assert found.json()["request_id"] == found.headers["x-request-id"] == "id-of-search"
        assert answer.json()["request_id"] == answer.headers["x-request-id"] == "id-of-answer"
        assert own.json()["request_id"] == own.headers["x-request-id"] == "of-the-body"
        told = {
            text: head.get("x-request-id")
            for body, head in zip(vectors.requests, vectors.headers, strict=True)
            for text in body["input"]
        }
        for word, name in (
            ("swims", "id-of-search"),
            ("dives", "id-of-answer"),
            ("sings", "of-the-body"),
            ("Geese", "id-of-upload"),
        ):
            assert {given for text, given in told.items() if word in text} == {name}, told
        assert {head.get("x-request-id") for head in chat.headers} == {"id-of-answer", "of-the-body"}
        with duckdb.connect(str(tmp_path / "log.duckdb"), read_only=True) as log:
            logged = log.execute(
                "SELECT request_id, top_k, len(scores), query_text FROM queries ORDER BY asked_at"
            ).fetchall()
        assert logged[0] == ("id-of-search", 5, 1, "secretword swims")
        assert {row[0] for row in logged} == {"id-of-search", "id-of-answer", "of-the-body"}
        assert "[id-of-search] hybrid search, top_k 5" in caplog.text
        # What people ask is in the query log alone.
        ours = [record.getMessage() for record in caplog.records if record.name.startswith("sqlrag")]
        assert ours
        assert "secretword" not in "".join(ours)

    def test_fault_S26_a_call_of_mcp_over_http_has_it(self, file, tmp_path, monkeypatch):
        monkeypatch.setenv("SQLRAG_QUERY_LOG", str(tmp_path / "log.duckdb"))
        call = {"name": "hybrid_query", "arguments": {"query_text": "duck"}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        headers = {"accept": "application/json, text/event-stream", "x-request-id": "id-of-call"}
        with TestClient(mcp.create_app(file), base_url=OWN) as client:
            answer = client.post("/mcp", json=body, headers=headers)
        assert (answer.status_code, answer.headers["x-request-id"]) == (200, "id-of-call")
        assert answer.json()["result"]["structuredContent"]["results"]
        with duckdb.connect(str(tmp_path / "log.duckdb"), read_only=True) as log:
            assert log.execute("SELECT request_id FROM queries").fetchall() == [("id-of-call",)]
