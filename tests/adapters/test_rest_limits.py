"""REST: work is bounded and ends in time, the file is waited for once and given back, paths are told to nobody."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import duckdb
import httpx
import pytest
from pydantic import ValidationError
from starlette.testclient import TestClient

import sqlrag
from sqlrag.adapters.rest import create_app
from sqlrag.adapters.rest.config import ServerOptions
from sqlrag.adapters.rest.schemas import request_model
from sqlrag.adapters.rest.state import Service, SharedStore
from sqlrag.adapters.server import Refused, Workers
from sqlrag.cancellation import Stopped, Work, checkpoint
from tests.support.stores import make_small_store

SMALL = sqlrag.ChunkPolicy(chunk_size=4, chunk_overlap=0, chunk_unit="chars")
HOLDS = "import sys, duckdb; con = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read()"


class There:
    """The request of a client that waits."""

    async def receive(self):
        await asyncio.sleep(60)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("limits") / "kb.duckdb"
    make_small_store(path)
    return path


@pytest.fixture
def held(file):
    """Another process that has the file until its input ends."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.stdin.close()


def client_of(file, **options):
    app = create_app(file, ServerOptions(**options))
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)


def told(file, method, path, *headers):
    """Return what an application sends to a server for a request."""
    sent = []

    async def send(message):
        sent.append(message)

    async def run():
        scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": headers}
        app = create_app(file)
        async with app.router.lifespan_context(app):
            await app(scope, There().receive, send)

    asyncio.run(run())
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


@pytest.mark.parametrize(
    ("url", "status"), [("http://LocalHost:8000/documents", 200), ("http://localhost@a.example/documents", 421)]
)
def test_a_whole_url_is_a_request_to_its_host(file, url, status):
    assert told(file, "GET", url, (b"host", b"localhost" if status == 421 else b"a.example"))[0] == status


def test_a_head_that_is_too_large_has_no_body_in_its_answer(file):
    assert told(file, "HEAD", "/health", (b"host", b"localhost"), (b"content-length", b"5000000")) == (413, b"")


class TestStopping:
    @pytest.mark.parametrize(
        "work",
        [
            lambda: sqlrag.chunk("# a\n\nb c\n" * 50_000, SMALL),
            lambda: sqlrag.chunk("ab c\n" * 400_000, SMALL),
            lambda: sqlrag.chunk("ab c. " * 400_000, replace(SMALL, strategy="size")),
            lambda: sqlrag.package([sqlrag.Candidate("a", i, "x") for i in range(100)] * 3000),
            lambda: sqlrag.fit_context([{"text": "a b"}] * 100_000, 2**31 - 1),
            lambda: sqlrag.drop_near_duplicates(
                [sqlrag.Candidate("a", i, f"{i} b c d") for i in range(5000)], threshold=0.9
            ),
        ],
        ids=["headings", "one paragraph", "pieces", "package", "fit_context", "drop_near_duplicates"],
    )
    def test_python_ends_soon_after_its_time(self, work):
        ended = []

        def watched():
            try:
                work()
            except Stopped:
                ended.append("stopped")
                raise

        async def run():
            workers = Workers(1, 1, 0.05)
            with pytest.raises(Refused):
                await workers.run(watched)
            began = time.monotonic()
            await asyncio.to_thread(workers.close)
            assert time.monotonic() - began < 3

        asyncio.run(run())
        assert ended == ["stopped"]

    def test_an_interrupt_between_two_statements_is_not_lost(self, file):
        async def run():
            service = Service(file, ServerOptions(threads=1, seconds=0.1))

            def slow(store):
                con = store.cursor()
                time.sleep(0.3)  # meanwhile it is told to end
                con.execute("SELECT sum(a.i * b.i % 7) FROM range(100000) a(i), range(100000) b(i)").fetchall()

            async with service.running():
                with pytest.raises(Refused):
                    await service.on_store(There(), slow)
                assert await service.on_store(There(), lambda _: "free", 20) == "free"

        asyncio.run(run())

    def test_a_closed_connection_keeps_no_other_from_its_end(self):
        work, interrupted = Work(), []
        closed = duckdb.connect()
        closed.close()
        work.uses(closed)
        work.uses(SimpleNamespace(interrupt=lambda: interrupted.append(True)))
        work.stop()
        assert interrupted

    def test_without_work_nothing_ends(self):
        checkpoint()
        work = Work()
        with work.under_way():
            work.stop()
            with pytest.raises(Stopped):
                checkpoint()
        checkpoint()


class TestBounds:
    @pytest.mark.parametrize(
        ("path", "sent", "status", "told"),
        [
            ("/fuse", {"candidate_sets": [[{"doc_id": "a", "chunk_index": 0, "content": ""}] * 6] * 2}, 422, "10"),
            ("/reciprocal_rank_fusion", {"rankings": [["a"] * 11]}, 422, "at most 10 items"),
            ("/highlight", {"query_text": "x" * 51, "texts": []}, 422, "at most 50 characters"),
            (
                "/chunk",
                {"document": "a b c d e f", "policy": {"chunk_size": 1, "chunk_overlap": 0, "chunk_unit": "chars"}},
                413,
                "more than 5 chunks; use a larger chunk_size",
            ),
            (
                "/package",
                {"candidates": [{"doc_id": "a", "chunk_index": 0, "content": "x" * 300}] * 9},
                413,
                "larger than 3,000 bytes",
            ),
        ],
    )
    def test_more_work_than_allowed_is_refused_with_the_remedy(self, file, path, sent, status, told):
        limits = {"max_items": 10, "max_question_chars": 50, "max_chunks": 5, "max_answer_bytes": 3000}
        with client_of(file, **limits) as client:
            answer = client.post(path, json=sent)
            assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
            assert told in answer.json()["detail"]

    @pytest.mark.parametrize("path", ["documents", "facets", "documents/a.md"])
    def test_every_answer_is_bounded(self, file, path):
        with client_of(file, max_answer_bytes=20) as client:
            answer = client.get(f"/{path}")
        assert (answer.status_code, "larger than 20 bytes" in answer.json()["detail"]) == (413, True)

    @pytest.mark.slow
    def test_the_schema_tells_the_limits(self, file):
        schemas = create_app(file).openapi()["components"]["schemas"]
        assert schemas["HybridQueryRequest"]["properties"]["query_text"]["maxLength"] == 10_000
        sets = schemas["FuseRequest"]["properties"]["candidate_sets"]
        assert sets["maxItems"] == sets["items"]["maxItems"] == 10_000

    @pytest.mark.parametrize("path", ["package", "fuse", "drop_near_duplicates"])
    def test_deep_values_are_refused(self, file, path):
        one = '{"doc_id": "a", "chunk_index": 0, "content": "x", "metadata": {"a": ' + "[" * 600 + "]" * 600 + "}}"
        body = f'{{"candidate_sets": [[{one}]]}}' if path == "fuse" else f'{{"candidates": [{one}]}}'
        with client_of(file) as client:
            answer = client.post(f"/{path}", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 422
        assert "more than 100 levels deep" in answer.json()["detail"]

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("package", '{"candidates": [{"doc_id": "a", "chunk_index": 0, "content": "", "metadata": {"a": [NaN]}}]}'),
            ("fuse", '{"candidate_sets": [[]], "params": {"a": -Infinity}}'),
            ("fit_context", '{"items": [{"text": "a", "score": 1e999}], "max_tokens": 9}'),
        ],
    )
    def test_a_number_that_json_has_not_is_refused(self, file, path, body):
        with client_of(file) as client:
            answer = client.post(f"/{path}", content=body, headers={"content-type": "application/json"})
        assert (answer.status_code, "Replace it by null" in answer.json()["detail"]) == (422, True)

    def test_of_a_great_many_wrong_entries_the_first_alone_is_told(self):
        """Each error takes about a kilobyte and 14 microseconds, in which no other request is answered."""
        candidate = {"doc_id": "a", "chunk_index": 0, "content": ""}
        wrong = {f"{candidate}": 0 for candidate in range(60)}
        model = request_model(sqlrag.package, without=(), instead={}, options=ServerOptions())
        for candidates in ([wrong] * 9, [{**candidate, "tags": [0] * 99}]):
            with pytest.raises(ValidationError) as refused:
                model.model_validate({"candidates": candidates})
            assert refused.value.error_count() < 70

    def test_an_object_of_a_great_many_names_is_refused_before_it_is_checked(self, file):
        with client_of(file, max_items=10) as client:
            answer = client.post("/package", json={"candidates": [], **{f"{name}": 0 for name in range(10)}})
            assert (answer.status_code, "more than 10 names" in answer.json()["detail"]) == (422, True)
            answer = client.post("/package", json={"candidates": [], "x" * 10_000: 0})
            assert (answer.status_code, len(answer.json()["detail"]) < 300) == (422, True)

    def test_changes_that_wait_for_each_other_are_counted(self, file):
        async def run():
            service = Service(file, ServerOptions(threads=1, waiting=1))
            async with service.running(), service._changing:
                waiting = [asyncio.ensure_future(service.changing(There(), lambda _: "done")) for _ in range(2)]
                await asyncio.sleep(0.05)
                with pytest.raises(Refused) as refused:
                    await service.changing(There(), lambda _: None)
                for one in waiting:
                    one.cancel()
                await asyncio.wait(waiting)
                assert service.workers.pending == 0
            return refused.value.status

        assert asyncio.run(run()) == 503


class TestTheFile:
    @pytest.mark.slow
    def test_all_wait_for_another_process_once_and_the_loop_goes_on(self, file, held):
        async def run():
            service = Service(file, ServerOptions(threads=1))

            async def ask():
                with pytest.raises(sqlrag.StoreLockedError):
                    await service.on_store(There(), lambda _: None)

            began = time.monotonic()
            asking = asyncio.gather(*(ask() for _ in range(4)))
            await asyncio.sleep(0.3)
            looked = time.monotonic()
            with pytest.raises(sqlrag.StoreLockedError):
                await service.probe(There(), lambda _: None)
            assert time.monotonic() - looked < 1
            await asking
            assert time.monotonic() - began < 4  # one after the other they take eight seconds
            held.stdin.close()
            held.wait(10)
            assert await service.on_store(There(), lambda _: "free") == "free"
            service.shared_store.close()

        asyncio.run(run())

    @pytest.mark.rest
    def test_fault_S4_the_server_is_well_while_it_opens_its_file(self, file):
        """A look-up without waiting that meets an opening, or an end, in the same process; there is no other one."""
        service = Service(file, ServerOptions(idle_seconds=0.0))

        async def run():
            async with service.running():
                for number in range(20):
                    search = asyncio.ensure_future(service.on_store(There(), lambda store: store.lexical_query("duck")))
                    await asyncio.sleep(number % 10 / 1000)
                    probes = [service.probe(There(), lambda store: store.select("serving/alive")) for _ in range(3)]
                    assert len(await asyncio.gather(*probes)) == 3
                    assert await search

        asyncio.run(run())

    def test_a_file_that_is_taken_at_startup_is_answered_from_when_it_is_free(self, file, held):
        with client_of(file) as client:  # a server that ended would raise
            assert client.post("/lexical_query", json={"query_text": "duck"}).status_code == 503
            held.stdin.close()
            held.wait(10)
            assert client.post("/lexical_query", json={"query_text": "duck"}).status_code == 200

    @pytest.mark.slow
    def test_fault_S28_a_client_is_told_neither_a_process_nor_a_variable(self, file, tmp_path):
        path = tmp_path / "kb.duckdb"
        make_small_store(path)
        with client_of(path, idle_seconds=0.0) as client:
            client.get("/documents")
            time.sleep(0.1)
            command = [sys.executable, "-c", HOLDS, str(path)]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout.readline() == "held\n"
                answers = [client.post("/lexical_query", json={"query_text": "duck"}), client.get("/documents/a.md")]
                process.stdin.close()
        for answer in answers:
            assert answer.status_code == 503
            assert answer.json()["detail"] == "kb.duckdb is in use by another program. Try again in a moment."

    def test_who_waits_for_one_file_keeps_nobody_from_another(self, file, held, tmp_path):
        make_small_store(tmp_path / "other.duckdb")

        def wait():
            with pytest.raises(sqlrag.StoreLockedError):
                sqlrag.Store(file, wait_seconds=2)

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.2)
        sqlrag.Store(tmp_path / "other.duckdb").close()
        assert waiting.is_alive()
        waiting.join()

    def test_it_is_given_back_when_its_time_is_over(self, file):
        """Half a second after the last use, which leaves three quarters of the two that another process waits."""

        async def run():
            service = Service(file, ServerOptions())
            async with service.running():
                await service.on_store(There(), lambda _: None)
                began = time.monotonic()
                while service.shared_store._current is not None:
                    await asyncio.sleep(0.01)
                seconds = time.monotonic() - began
                (await asyncio.to_thread(sqlrag.Store, file, read_only=False)).close()
            return seconds

        assert asyncio.run(run()) < 1

    def test_no_wait_for_a_store_that_is_open(self, file):
        shared_store = SharedStore(file)
        with shared_store.use() as store, shared_store.use(wait=False) as same:
            assert store is same
        shared_store.close()

    def test_a_file_that_is_gone_is_no_document_that_is_missing(self, tmp_path):
        path = tmp_path / "kb.duckdb"
        make_small_store(path)
        with client_of(path, idle_seconds=0) as client:
            path.rename(tmp_path / "other.duckdb")
            answer = client.get("/documents")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


class TestPaths:
    @pytest.mark.slow
    def test_they_are_told_to_nobody(self, tmp_path):
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "a.md").write_text("# Ducks\n\nDucks swim.")
        made = sqlrag.prepare_embeddings(
            tmp_path / "docs", tmp_path / "kb.duckdb", embedding_provider="hashing", verbose=False
        )
        with client_of(made.path) as client:
            row = client.post("/lexical_query", json={"query_text": "ducks", "include_source_docs": True}).json()
            assert row["results"][0]["source_doc"]["file_name"] == "a.md"
            answers = [
                client.post("/export_ragmd", json={}),
                client.post("/export_ragfile", json={}),
                client.post("/get_source_documents", json={"chunk_ids": ["none#0"]}),
                client.post("/get_source_documents", json={"chunk_ids": ["a.md#0"]}),
                client.post("/lexical_query", json={"query_text": "ducks", "include_source_docs": True}),
            ]
        for answer in answers:
            assert str(tmp_path).encode() not in answer.content
        assert "kb.duckdb holds no chunk" in answers[2].json()["detail"]

    def test_notices_tell_them_to_nobody(self, file):
        with client_of(file) as client:
            (notice,) = client.post("/hybrid_query", json={"query_text": "duck"}).json()["notices"]
        assert "kb.duckdb" in notice
        assert str(file.parent) not in notice


@contextmanager
def serving(*command):
    """Run a server at a free port; yield its process and its port."""
    command = [sys.executable, "-m", "sqlrag", *map(str, command), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            yield server, int(server.stdout.readline().rsplit(":", 1)[1].strip().strip("/"))
        finally:
            server.kill()


@pytest.mark.rest
def test_a_server_ends_soon_while_python_works(file):
    """It is told to end while two documents are cut into a great many chunks; those who wait for them are told so."""
    sent = {"document": "ab c\n" * 500_000, "policy": {"chunk_size": 1, "chunk_overlap": 0, "chunk_unit": "chars"}}
    told = []
    with serving("serve", file) as (server, port):

        def ask():
            told.append(httpx.post(f"http://127.0.0.1:{port}/chunk", json=sent, timeout=60))

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for one in threads:
            one.start()
        while b"sqlrag_requests_pending 2" not in httpx.get(f"http://127.0.0.1:{port}/metrics").content:
            time.sleep(0.05)
        began = time.monotonic()
        server.terminate()
        assert server.wait(30) == 0
        assert time.monotonic() - began < 15  # to cut both documents takes more than half a minute
        for one in threads:
            one.join()
        assert {(answer.status_code, answer.json()["detail"][:20]) for answer in told} == {
            (503, "The server is shutti")
        }
        assert "Traceback" not in server.stderr.read()


@pytest.mark.rest
def test_another_command_gets_the_file_of_a_server_between_requests(tmp_path):
    """With the wait that commands have by default: at once after requests, and when the server has rested."""
    docs, path = tmp_path / "docs", tmp_path / "kb.duckdb"
    docs.mkdir()
    (docs / "a.md").write_text("# Ducks\n\nDucks swim.")
    sqlrag.prepare_embeddings(docs, path, embedding_provider="hashing", verbose=False)
    update = [sys.executable, "-m", "sqlrag", "update", str(docs), str(path)]
    with serving("serve", path) as (_, port), httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        for rest, name in ((0, "b.md"), (1, "c.md")):
            assert client.post("/lexical_query", json={"query_text": "ducks"}).status_code == 200
            (docs / name).write_text("# Geese\n\nGeese swim.")
            time.sleep(rest)
            done = subprocess.run(update, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            assert name in [row["doc_id"] for row in client.get("/documents").json()["documents"]]
