"""A hybrid search goes on by words where the question cannot be embedded, and says so; nothing else is hidden.

The model stands behind a real HTTP server on loopback. Its client is as simple as one of others may be: no retries, and
a time-out for each attempt to read, which a server that keeps sending never reaches.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from contextlib import closing
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import duckdb
import numpy as np
import pytest
from typer.testing import CliRunner

from sqlrag import (
    InputError,
    MissingExtraError,
    ModelMismatchError,
    ModelUnavailableError,
    ProviderError,
    Store,
    ahybrid_query,
    avector_query,
    hybrid_query,
    vector_query,
)
from sqlrag.cli import app
from sqlrag.embedders import HashingEmbedder, base
from sqlrag.search import searcher
from tests.support.helpers import build, ids

HASHING = HashingEmbedder("hashing-64")


class Remote(HashingEmbedder):
    """Asks the server for vectors. Its attribute ``timeout`` is how long a question may take in all."""

    provider = "remote"
    address = ""
    timeout = 30.0  # none waits for it but those of TestTimeOut, which is half a second there
    made = 0

    def __init__(self, model_name="hashing-64"):
        super().__init__(model_name)
        type(self).made += 1

    def embed(self, texts, *, kind):
        body = json.dumps(list(texts)).encode()
        address = urlsplit(self.address)
        with closing(HTTPConnection(address.hostname, address.port, timeout=60)) as connection:
            connection.request("POST", address.path, body)
            answer = connection.getresponse()
            content = answer.read()
        if answer.status != 200:
            raise OSError(f"HTTP {answer.status} {answer.reason}")
        return np.array(json.loads(content), dtype=np.float32)


class Patient(Remote):
    """As a provider that says nothing about time-outs."""

    provider = "patient"
    timeout = None


class NeedsExtra(Remote):
    def __init__(self, model_name="hashing-64"):
        raise MissingExtraError("The provider 'remote'", "remote")


class Breaks(Remote):
    def __init__(self, model_name="hashing-64"):
        raise OSError("no route to the licence server")


class Server:
    """``how`` it answers: "well", "turned" (as another model), "error", "late" (a second), "never" until released."""

    def __init__(self):
        self.how = "well"
        self.asked = 0
        self.released = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                server.asked += 1
                texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if server.how == "never":
                    server.released.wait(30)
                if server.how == "late":
                    time.sleep(1)
                if server.how == "error":
                    self.send_error(500, "out of memory")
                    return
                vectors = HASHING.embed(texts, kind="query")
                body = json.dumps((np.roll(vectors, 1, 1) if server.how == "turned" else vectors).tolist()).encode()
                try:
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    pass  # the client has gone

            def log_message(self, *arguments):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}/embed"
        threading.Thread(target=self.http.serve_forever, args=[0.01], daemon=True).start()

    def close(self):
        self.released.set()
        if self.http is not None:
            self.http.shutdown()
            self.http.server_close()
            self.http = None


@pytest.fixture
def server(monkeypatch):
    server = Server()
    for kind in (Remote, Patient):
        monkeypatch.setattr(kind, "address", server.address)
        monkeypatch.setattr(kind, "made", 0)
        monkeypatch.setitem(base._BUILT_IN, kind.provider, f"{__name__}:{kind.__name__}")
    monkeypatch.setattr(base, "_loaded", {})
    yield server
    server.close()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return build(
        tmp_path_factory.mktemp("kb"), zoo_md="# Zoo\n\nzebra and lion", farm_md="# Farm\n\ncow, horse and one zebra"
    )


@pytest.fixture
def kb(prepared, tmp_path):
    """A file that the remote model made."""
    return of_provider(prepared, tmp_path, "remote")


def of_provider(prepared, tmp_path, name):
    path = shutil.copy(prepared, tmp_path / f"{name}.duckdb")
    with duckdb.connect(path) as con:
        con.execute("UPDATE embedding_metadata SET value = $1 WHERE key = 'embedding_provider'", [name])
    return path


def provider_is(monkeypatch, kind):
    monkeypatch.setitem(base._BUILT_IN, "remote", f"{__name__}:{kind.__name__}")


def assert_by_words(answer, *words):
    assert ids(answer) == ["zoo.md#0", "farm.md#0"]  # both have one zebra, the shorter one first
    assert {row["score_type"] for row in answer} == {"bm25"}
    [notice] = answer.notices
    assert "could not be embedded" in notice
    assert "lexical leg alone" in notice
    for word in words:
        assert word in notice


def assert_by_both(answer):
    assert {row["score_type"] for row in answer} == {"adaptive"}
    assert answer.notices == []
    assert all(row["vector_rank"] for row in answer)


class TestUnreachable:
    def test_a_server_that_is_down_is_told_and_asked_again_by_the_next_question(self, server, kb):
        with Store(kb) as store:
            assert_by_both(store.hybrid_query("lion"))
            server.how = "error"
            assert_by_words(store.hybrid_query("zebra"), "remote model 'hashing-64'", "HTTP 500", "asks it again")
            server.how = "well"
            assert_by_both(store.hybrid_query("zebra"))

    def test_a_refused_connection_costs_no_time(self, server, kb):
        server.close()
        began = time.perf_counter()
        assert_by_words(hybrid_query("zebra", kb), "refused")
        assert time.perf_counter() - began < 15  # of the time-out of 30 s

    @pytest.mark.parametrize("how", ["error", "well"])
    def test_vectors_alone_and_strict_raise(self, server, kb, how):
        server.how = how
        for ask in (
            lambda: vector_query("zebra", kb),
            lambda: hybrid_query("zebra", kb, strict=True),
            lambda: asyncio.run(avector_query("zebra", kb)),
            lambda: asyncio.run(ahybrid_query("zebra", kb, strict=True)),
        ):
            if how == "well":
                assert ask()
            else:
                with pytest.raises(ProviderError, match="HTTP 500"):
                    ask()

    def test_the_coroutine_falls_back_as_well(self, server, kb):
        server.how = "error"
        assert_by_words(asyncio.run(ahybrid_query("zebra", kb)), "HTTP 500")

    def test_a_missing_extra_is_told_with_the_line_that_installs_it(self, server, kb, monkeypatch):
        provider_is(monkeypatch, NeedsExtra)
        assert_by_words(hybrid_query("zebra", kb), "pip install 'sqlrag-duckdb[remote]'")
        for ask in (lambda: vector_query("zebra", kb), lambda: hybrid_query("zebra", kb, strict=True)):
            with pytest.raises(MissingExtraError):
                ask()

    def test_whatever_a_provider_raises_while_it_is_loaded(self, server, kb, monkeypatch):
        provider_is(monkeypatch, Breaks)
        assert_by_words(hybrid_query("zebra", kb), "cannot be loaded", "licence server")
        with pytest.raises(ModelUnavailableError, match="licence server") as caught:
            vector_query("zebra", kb)
        assert isinstance(caught.value.__cause__, OSError)

    @pytest.mark.parametrize("fusion", ["rrf", "weighted", "convex"])
    def test_the_statement_gives_the_same_rows_without_a_vector(self, server, kb, fusion):
        server.how = "error"
        answer = hybrid_query("zebra", kb, fusion=fusion, feedback=2, top_k=2)
        assert_by_words(answer)
        with duckdb.connect(kb, read_only=True) as con:
            rows = con.sql(answer.sql).select("node_id, score").fetchall()
        assert rows == [(row["node_id"], row["score"]) for row in answer]
        assert hybrid_query("zebra", kb, expansion=3).sql.startswith("-- Without expansion, which")


@pytest.mark.alone
class TestTimeOut:
    @pytest.fixture(autouse=True)
    def half_a_second(self, monkeypatch):
        monkeypatch.setattr(Remote, "timeout", 0.5)

    def test_a_server_that_hangs_is_waited_for_no_longer_than_the_time_out(self, server, kb):
        server.how = "never"
        began = time.perf_counter()
        assert_by_words(hybrid_query("zebra", kb), "no answer within 0.", "server is well")
        assert 0.4 < time.perf_counter() - began < 10  # 0.5 s, where the server lets its clients wait for 30

    @pytest.mark.parametrize("strict", [True, False])
    def test_patient_questions_wait_as_long_as_the_provider_does(self, server, kb, strict):
        server.how = "late"
        answer = hybrid_query("zebra", kb, strict=True) if strict else vector_query("zebra", kb)
        assert len(answer) == 2
        assert answer.notices == []
        assert answer.timings["embed"] > 0.8

    def test_a_provider_without_a_time_out_is_waited_for(self, server, prepared, tmp_path):
        server.how = "late"
        assert_by_both(hybrid_query("zebra", of_provider(prepared, tmp_path, "patient")))

    @pytest.mark.slow
    def test_after_a_long_wait_the_next_ones_are_short_until_it_answers(self, server, kb, monkeypatch):
        monkeypatch.setattr(searcher, "RETRY_SECONDS", 0.3)
        monkeypatch.setattr(Remote, "timeout", 1.6)
        server.how = "never"

        def waited(store):
            began = time.perf_counter()
            assert_by_words(store.hybrid_query("zebra"), "gave no answer within")
            return time.perf_counter() - began

        with Store(kb) as store:
            assert waited(store) > 1.5
            for _ in range(3):
                assert waited(store) < 1.2
            server.how = "well"
            assert_by_both(store.hybrid_query("zebra lion"))
            # It takes part again, and so it is waited for in full again.
            server.how = "never"
            assert waited(store) > 1.5

    def test_an_answer_that_comes_too_late_is_kept_for_the_next_time(self, server, kb):
        with Store(kb) as store:
            assert_by_both(store.hybrid_query("lion zebra"))
            server.how = "never"
            assert_by_words(store.hybrid_query("zebra"))
            asked = server.asked
            server.how = "well"
            server.released.set()
            deadline = time.monotonic() + 10
            while store.hybrid_query("zebra").notices and time.monotonic() < deadline:
                time.sleep(0.01)
            assert_by_both(store.hybrid_query("zebra"))
            assert server.asked - asked <= 1  # none, unless the loop was faster than the answer


class TestNothingElseIsHidden:
    @pytest.mark.parametrize("strict", [True, False])
    def test_another_model_is_a_mismatch(self, server, kb, strict):
        server.how = "turned"
        with pytest.raises(ModelMismatchError, match="whose vectors differ"):
            hybrid_query("zebra", kb, strict=strict)

    @pytest.mark.parametrize("options", [{"top_k": 0}, {"query_vector": [0.0] * 64}, {"model_name": " "}])
    def test_wrong_arguments(self, server, kb, options):
        server.how = "error"
        with pytest.raises(InputError):
            hybrid_query("zebra", kb, **options)
        with pytest.raises(InputError):
            hybrid_query(" ", kb)

    def test_a_vector_of_another_length(self, server, kb):
        with pytest.raises(ModelMismatchError):
            hybrid_query("zebra", kb, query_vector=[1.0] * 8)


@pytest.mark.slow
def test_a_model_is_loaded_once_in_a_process(server, kb, tmp_path):
    other = shutil.copy(kb, tmp_path / "other.duckdb")
    for path in (kb, other, kb):
        assert_by_both(hybrid_query("zebra", path))
        assert vector_query("lion", path)
    assert Remote.made == 1


class TestCommandLine:
    def run(self, *arguments):
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    def test_a_fallen_back_search_succeeds_with_a_note_on_stderr(self, server, kb):
        server.how = "error"
        done = self.run("hybrid-query", "zebra", "--db", kb, "--format", "json", "--timings")
        assert done.exit_code == 0
        assert [row["score_type"] for row in json.loads(done.stdout)] == ["bm25", "bm25"]
        assert "note: The question could not be embedded" in done.stderr
        assert "HTTP 500" in done.stderr
        assert ", load " in done.stderr

    @pytest.mark.parametrize("arguments", [["hybrid-query", "zebra", "--strict"], ["vector-query", "zebra"]])
    def test_strict_and_vectors_alone_fail(self, server, kb, arguments):
        server.how = "error"
        done = self.run(*arguments, "--db", kb)
        assert done.exit_code == 1
        assert done.stdout == ""
        assert "error: " in done.stderr
        assert "HTTP 500" in done.stderr
