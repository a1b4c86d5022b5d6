"""A provider that hangs is given up before a server's own limit of the request, whatever asks it.

The model stands behind a real server on loopback that never answers, or sends a byte now and then; where it can, the
answer is by words, and says so.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import duckdb
import pytest
from mcp.client.client import Client
from starlette.testclient import TestClient

import sqlrag
from sqlrag.adapters.mcp import create_server, host
from sqlrag.adapters.rest import create_app
from sqlrag.adapters.rest.config import ServerOptions
from sqlrag.cancellation import Work, patience
from sqlrag.embedders import CallableEmbedder, HashingEmbedder, load_embedder
from sqlrag.embedders.remote import ServiceEmbedder
from tests.support import chat_server
from tests.support.embedding_server import EmbeddingServer, hangs, serving
from tests.support.helpers import write
from tests.support.loopback import served

QUESTION = {"query_text": "where do ducks swim"}
LIMITS = (0.6, 1.2)  # seconds of a request, of --timeout
# Seconds of a longer one, tried in turn: a busy machine may need more for the rest than the provider leaves of one.
SHORT_ENOUGH = (2, 10, 30)
NOTICE = "The question could not be embedded, so the answer is from the lexical leg alone"


@pytest.fixture(scope="module", params=["openai", "ollama"])
def made(request, tmp_path_factory):
    """A folder with documents and a file whose model is behind a server, and that server."""
    pytest.importorskip(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    server = EmbeddingServer()
    write(folder / "docs", a_md="# Ducks\n\nDucks swim in the pond.", b_md="# Geese\n\nGeese fly south.")
    with serving(server) as address:
        given = {"embedding_provider": request.param, "embed_model_name": "test-model", "progress": "off"}
        url = f"{address}/v1" if request.param == "openai" else address
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OPENAI_API_KEY", "none")
            sqlrag.prepare_embeddings(folder / "docs", folder / "kb.duckdb", base_url=url, **given)
            yield folder, server


@pytest.fixture
def hanging(made):
    folder, server = made
    server.faults = [hangs(30)]
    yield folder
    server.faults = []


def client_of(file, **options):
    return TestClient(create_app(file, ServerOptions(**options)), base_url="http://127.0.0.1")


def answer_of(file, sent, **faults):
    for seconds in SHORT_ENOUGH:
        with chat_server.serving(chat_server.ChatServer(**faults)) as url:
            options = {"chat_model": "m", "chat_base_url": url, "answer_seconds": seconds}
            with client_of(file, **options) as client:
                answer = client.post("/answer", json=sent)
        if answer.status_code != 504:
            break
    return answer


class TestRest:
    @pytest.mark.slow
    @pytest.mark.parametrize("seconds", LIMITS)
    @pytest.mark.parametrize("loaded", [False, True])
    def test_fault_S17_words_answer_before_the_request_ends(self, made, seconds, loaded):
        folder, server = made
        with client_of(folder / "kb.duckdb", seconds=seconds) as client:
            if loaded:
                # Also where the request ends first, on a busy machine.
                assert client.post("/vector_query", json=QUESTION).status_code in (200, 502, 504)
                while client.post("/hybrid_query", json=QUESTION).json()["notices"]:
                    time.sleep(0.05)
            server.faults = [hangs(30)]
            try:
                for number, path in enumerate(("hybrid_query", "retrieve", "explain")):
                    text = f"where do ducks swim {number}"
                    sent = {"query": text} if path == "retrieve" else {"query_text": text}
                    more = {"retrieve": {"plan": {}}, "explain": {"node_id": "a.md#0"}}.get(path, {})
                    # A busy machine may need longer for the words alone than what is left: one try of five is in time.
                    for _ in range(5):
                        began = time.monotonic()
                        answer = client.post(f"/{path}", json={**sent, **more})
                        assert time.monotonic() - began < seconds + 2
                        if answer.status_code != 504:
                            break
                    assert answer.status_code == 200, (path, answer.text)
                    found = answer.json()
                    assert NOTICE in str(found["notices"]), path
                    if path == "hybrid_query":
                        assert [row["score_type"] for row in found["results"]] == ["bm25"]
                # Nothing else can answer: it says which model it is, and not that the request took too long.
                for sent in ({"path": "/vector_query"}, {"path": "/hybrid_query", "strict": True}):
                    path = sent.pop("path")
                    answer = client.post(path, json={"query_text": "geese in the south", **sent})
                    assert (answer.status_code, "test-model" in answer.json()["detail"]) == (502, True), answer.text
            finally:
                server.faults = []

    @pytest.mark.slow
    def test_fault_S17_changes_end_with_the_providers_error(self, hanging):
        write(hanging / "docs", c_md="# Swans\n\nSwans sing.")
        chunks = [{"doc_id": "n.md", "chunk_index": 0, "content": "note"}]
        for seconds in SHORT_ENOUGH:
            given = {"write": True, "answer_seconds": seconds, "input_dir": hanging / "docs"}
            with client_of(hanging / "kb.duckdb", **given) as client:
                answers = [
                    client.post("/index", json={"chunks": chunks}),
                    client.post("/update_embeddings", json={}),
                    client.post("/documents", files=[("files", ("d.md", b"# Teals\n\nTeals dive."))]),
                ]
                assert client.get("/check").json() == {"problems": []}
            if all(answer.status_code != 504 for answer in answers):
                break
        for answer in answers:
            assert answer.status_code in (200, 502), answer.text
            assert "test-model" in answer.text

    def test_fault_S17_an_answer_comes_from_words(self, hanging):
        answer = answer_of(hanging / "kb.duckdb", {"question": QUESTION["query_text"]})
        assert answer.status_code == 200, answer.text
        assert answer.json()["sources"][0]["doc_id"] == "a.md"
        assert NOTICE in str(answer.json()["notices"])

    @pytest.mark.rest
    def test_fault_S17_a_model_that_rewords_is_given_up_as_well(self, made):
        sent = {"question": QUESTION["query_text"], "expand": "llm"}
        answer = answer_of(made[0] / "kb.duckdb", sent, request_1="hang")
        assert answer.status_code == 200, answer.text
        assert answer.json()["sources"]
        assert "did not respond" in str(answer.json()["notices"])


class TestOthers:
    def test_fault_S17_a_tool_of_mcp(self, hanging, monkeypatch):
        async def run():
            async with Client(create_server(hanging / "kb.duckdb")) as client:
                found = await client.call_tool("hybrid_query", QUESTION)
                sources = await client.call_tool("answer_sources", {"question": "ducks in the pond"})
                return found.structured_content, sources.structured_content

        for seconds in SHORT_ENOUGH:
            monkeypatch.setattr(host, "SECONDS", seconds)
            found, sources = asyncio.run(run())
            if found and sources:
                break
        assert [row["score_type"] for row in found["results"]] == ["bm25"]
        assert NOTICE in str(found["notices"])
        assert sources["sources"]
        assert NOTICE in str(sources["notices"])

    def test_fault_S17_a_model_without_a_time_out_of_its_own(self, tmp_path):
        """An embedder of the program, which hangs wherever it does."""
        hashing, ended = HashingEmbedder("hashing-64"), threading.Event()

        def model(texts):
            if "duck" in texts[-1]:
                ended.wait(20)
            return hashing.embed(texts, kind="document")

        write(tmp_path / "docs", a_md="# Geese\n\nGeese swim.")
        given = {"embedder": CallableEmbedder(model), "progress": "off"}
        path = sqlrag.prepare_embeddings(tmp_path / "docs", tmp_path / "kb.duckdb", **given).path
        with sqlrag.Store(path, embedder=given["embedder"]) as store, client_of(store, seconds=1) as client:
            answer = client.post("/hybrid_query", json={"query_text": "swim with a duck"})
            other = client.post("/vector_query", json={"query_text": "swim with a duck"})
            ended.set()
        assert answer.status_code == 200, answer.text
        assert NOTICE in str(answer.json()["notices"])
        assert (other.status_code, "gave no answer within" in other.json()["detail"]) == (502, True)

    def test_fault_S17_a_server_that_sends_a_byte_now_and_then(self, made):
        """The time-out of its client, which is for each attempt to read, is never reached."""
        with trickling() as url, sqlrag.Store(made[0] / "kb.duckdb") as store:
            client = store.embedder()._client
            (client if store.embedder().provider == "openai" else client._client).base_url = url
            with client_of(store, seconds=1) as client:
                answer = client.post("/hybrid_query", json={"query_text": "do ducks dream"})
                other = client.post("/vector_query", json={"query_text": "do geese dream"})
        assert answer.status_code == 200, answer.text
        assert NOTICE in str(answer.json()["notices"])
        assert (other.status_code, "gave no answer within" in other.json()["detail"]) == (502, True)

    def test_fault_S17_a_server_that_does_so_while_the_model_is_loaded(self, made, monkeypatch, tmp_path):
        """The limit is that of the provider, and other models are loaded meanwhile."""
        path = tmp_path / "kb.duckdb"
        path.write_bytes((made[0] / "kb.duckdb").read_bytes())
        monkeypatch.setattr(ServiceEmbedder, "timeout", 1.0)
        with trickling() as url:
            with duckdb.connect(path) as con:
                told = "UPDATE embedding_metadata SET value = $1 WHERE key = 'embedding_options'"
                con.execute(told, [json.dumps({"base_url": url})])
            with sqlrag.Store(path) as store:
                began = time.monotonic()
                found = [store.hybrid_query("where do ducks swim") for _ in range(2)]
                assert load_embedder("hashing-24", provider="hashing").dimensions == 24
                assert time.monotonic() - began < 10
        assert [len(one) for one in found] == [1, 1]
        assert all(NOTICE in str(one.notices) and "gave no answer within" in str(one.notices) for one in found)

    def test_what_is_left_is_shared(self):
        assert patience() is None
        assert patience(7) == 7
        work = Work(10)
        with work.under_way():
            assert 7 < patience() <= 7.5
            assert 7 < patience(30) <= 7.5
            assert patience(2) == 2
        with Work(0).under_way():
            assert patience(2) == 0


@contextmanager
def trickling():
    """A server that begins an answer and never ends it."""
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "9999")
            self.end_headers()
            while not ended.wait(0.1):
                self.wfile.write(b" ")

        def log_message(self, *_):
            pass

    with served(Handler, ended) as address:
        yield f"{address}/v1/"
