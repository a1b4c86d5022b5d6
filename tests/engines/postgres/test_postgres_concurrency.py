"""Many at once on a store in Postgres, and a server that is killed: every read sees whole documents, none is lost."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from sqlrag import Chunk, Document, StoreError
from sqlrag.search.postgres_store import PostgresStore
from tests.support.postgres_server import TestServer

PARTS = 12
NAMES = [f"d{place}" for place in range(4)]

# Upserts every document again and again, each time with another mark, until its time is over, but five times at least.
WRITER = """
import json, sys, time
import numpy as np
from sqlrag import Chunk, Document
from sqlrag.search.postgres_store import PostgresStore

url, mark = sys.argv[1:3]
seconds, names, parts = map(json.loads, sys.argv[3:])
with PostgresStore(url, read_only=False) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    end, times = time.monotonic() + seconds, 0
    while time.monotonic() < end or times < 5:
        word = f"{mark}{times}"
        documents = [Document(name, word) for name in (names if times % 2 else reversed(names))]
        chunks = [Chunk(one.doc_id, part, word, (), {"mark": word}) for one in documents for part in range(parts)]
        store.upsert(documents, chunks, np.random.default_rng(times).normal(size=(len(chunks), 8)))
        times += 1
    print(times)
"""


def write(store, mark, names=NAMES, parts=PARTS):
    documents = [Document(name, mark) for name in names]
    chunks = [Chunk(name, part, mark, (), {"mark": mark}) for name in names for part in range(parts)]
    vectors = np.random.default_rng(1).normal(size=(len(chunks), 8))
    store.upsert(documents, chunks, vectors)


def whole(store):
    """Read every chunk, and return the marks of the documents; fail where one is not whole."""
    marks = {}
    for chunk in store.chunks():
        marks.setdefault(chunk.doc_id, []).append((chunk.chunk_index, chunk.content, chunk.metadata["mark"]))
    for name, found in marks.items():
        assert [place for place, _, _ in found] == list(range(PARTS)), (name, found)
        assert len({mark for _, *both in found for mark in both}) == 1, (name, found)
    return {name: found[0][1] for name, found in marks.items()}


def writer(url, mark, seconds):
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, url, mark, str(seconds), json.dumps(NAMES), str(PARTS)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n", process.stderr.read()
    return process


def done(process):
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "retry" not in err.lower(), err
    return int(out.splitlines()[-1])


def go(*processes):
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()


@pytest.fixture
def url(postgres_url):
    with PostgresStore.create(postgres_url, 8) as store:
        write(store, "first")
    return postgres_url


class TestMany:
    def test_twenty_readers_beside_a_writer_see_whole_documents(self, url):
        seen = set()
        until = threading.Event()

        def read(store):
            asked = 0
            chance = np.random.default_rng(threading.get_ident() % 1000)
            while not until.is_set():
                marks = whole(store)
                assert len(marks) == len(NAMES)
                assert len(set(marks.values())) == 1
                seen.add(marks["d0"])
                found = store.hybrid_query("first w1", query_vector=chance.normal(size=8), top_k=60)
                assert len(found) == PARTS * len(NAMES)
                assert len({row["text"] for row in found}) == 1
                asked += 1
            return asked

        def read_alone(_):
            with PostgresStore(url) as store:
                return read(store)

        process = writer(url, "w", 5)
        with PostgresStore(url) as shared, ThreadPoolExecutor(20) as threads:
            tasks = [threads.submit(read, shared) for _ in range(14)]
            tasks += [threads.submit(read_alone, None) for _ in range(6)]
            go(process)
            times = done(process)
            until.set()
            asked = [task.result() for task in tasks]
        assert min(asked) >= 1
        assert times > 3
        assert len(seen) > 1
        with PostgresStore(url) as store:
            assert set(whole(store).values()) == {f"w{times - 1}"}
            assert store.check() == []

    def test_two_that_write_the_same_documents(self, url):
        """Neither fails or has to try again; each document is that of one of them."""
        both = [writer(url, mark, 3) for mark in "ab"]
        go(*both)
        times = [done(process) for process in both]
        assert min(times) > 1
        last = {f"a{times[0] - 1}", f"b{times[1] - 1}"}
        with PostgresStore(url) as store:
            marks = whole(store)
            assert marks.keys() == set(NAMES)
            assert len(set(marks.values())) == 1
            assert set(marks.values()) <= last
            assert store.check() == []

    def test_threads_that_add_chunks_to_one_document_lose_none(self, url):
        with PostgresStore(url, read_only=False) as store, ThreadPoolExecutor(8) as threads:
            added = [Chunk("new", 0, f"text {i}", given_id=f"n{i}") for i in range(24)]
            for _ in threads.map(lambda chunk: store.add_chunks([chunk], vectors=np.ones((1, 8))), added):
                pass
            assert {c.node_id for c in store.chunks() if c.doc_id == "new"} == {c.node_id for c in added}
            assert store.check() == []

    def test_collections_that_come_and_go(self, url):
        """One writer empties a collection, which another fills: its name is there where its documents are."""

        def work(place):
            with PostgresStore(url, read_only=False) as store:
                for _ in range(15):
                    document = Document(f"c{place}", "kiwi", "shared")
                    store.upsert([document], [Chunk(document.doc_id, 0, "kiwi", collection="shared")], np.ones((1, 8)))
                    store.delete_documents(doc_ids=document.doc_id)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))
        with PostgresStore(url) as store:
            assert whole(store).keys() == set(NAMES)

    def test_two_that_make_the_same_store(self, postgres_url):
        def make(_):
            try:
                PostgresStore.create(postgres_url, 8).close()
            except StoreError as error:
                return type(error).__name__
            return "made"

        with ThreadPoolExecutor(4) as threads:
            found = sorted(threads.map(make, range(4)))
        assert found == ["StoreExistsError"] * 3 + ["made"]


@pytest.fixture(scope="module")
def mortal():
    """A server of its own, to be killed."""
    server = TestServer()
    try:
        yield server
    finally:
        server.delete()


@pytest.fixture
def mortal_url(mortal):
    url = mortal.new_url()
    with PostgresStore.create(url, 8) as store:
        write(store, "first")
    yield url
    mortal.drop(url)


@pytest.mark.slow
class TestKilled:
    def test_reads_fail_clearly_or_are_done_again(self, mortal, mortal_url):
        """A store outlives its server: it waits for it, says so where that takes too long, and works again."""
        until, down = threading.Event(), threading.Event()
        errors = []

        def read(store):
            good = 0
            while not until.is_set():
                good += reads(store)
            return good

        def reads(store):
            try:
                assert set(whole(store).values()) == {"first"}
            except StoreError as error:
                errors.append(error)
                assert down.is_set()
                return False
            return True

        with PostgresStore(mortal_url, wait_seconds=15) as patient, PostgresStore(mortal_url, wait_seconds=1) as hasty:
            with ThreadPoolExecutor(12) as threads:
                tasks = [threads.submit(read, store) for store in [patient] * 6 + [hasty] * 6]
                time.sleep(1)
                down.set()
                mortal.kill()
                time.sleep(3)
                with pytest.raises(StoreError, match=r"down|lost|reached") as raised:
                    hasty.lexical_query("first")
                assert "\n" not in str(raised.value)
                mortal.restart()
                time.sleep(4)
                down.clear()
                until.set()
                good = [task.result() for task in tasks]
            assert min(good) > 0
            assert errors
            for store in (patient, hasty):
                assert set(whole(store).values()) == {"first"}
                assert len(store.lexical_query("first")) == 5

    def test_connections_that_a_restart_made_useless(self, mortal, mortal_url):
        """However many the pool keeps, one read is enough to be rid of them."""
        with PostgresStore(mortal_url, wait_seconds=2, read_only=False) as store:
            together = threading.Barrier(16)

            def read(_):
                return store._server.read(lambda con: (together.wait(30), con.execute("SELECT 1").fetchall()))

            with ThreadPoolExecutor(16) as threads:
                assert len(list(threads.map(read, range(16)))) == 16
            mortal.kill()
            mortal.restart()
            assert set(whole(store).values()) == {"first"}
            write(store, "second")
            assert set(whole(store).values()) == {"second"}

    def test_nothing_is_half_written(self, mortal, mortal_url, monkeypatch):
        """The server dies in the middle of an upsert, and before a commit: what was there stays."""
        from sqlrag.engines.postgres.rows import PostgresRows

        copy = PostgresRows._copy
        monkeypatch.setattr(
            PostgresRows,
            "_copy",
            lambda self, name, *rest: (copy(self, name, *rest), mortal.kill() if name == "copy_chunks" else None),
        )
        with PostgresStore(mortal_url, read_only=False, wait_seconds=1) as store:
            with pytest.raises(StoreError, match="as a whole or not at all"):
                write(store, "second")
            monkeypatch.undo()
            mortal.restart()
            assert set(whole(store).values()) == {"first"}
            assert store.check() == []
            write(store, "third")
            assert set(whole(store).values()) == {"third"}
            assert len(store.lexical_query("third", top_k=100)) == PARTS * len(NAMES)

    def test_a_writer_goes_on_after_a_restart(self, mortal, mortal_url, caplog):
        """Its connection is lost in the middle; it waits, does its work again, and the caller hears nothing of it."""
        caplog.set_level(logging.WARNING, "sqlrag.store")
        with PostgresStore(mortal_url, read_only=False, wait_seconds=20) as store, ThreadPoolExecutor(1) as threads:
            many = [f"many{place}" for place in range(150)]
            task = threads.submit(write, store, "second", [*NAMES, *many])
            time.sleep(0.4)
            mortal.kill()
            mortal.restart()
            task.result()
            marks = whole(store)
            assert set(marks.values()) == {"second"}
            assert len(marks) == len(NAMES) + len(many)
            assert store.check() == []

    def test_a_lost_connection_alone(self, mortal, mortal_url):
        with PostgresStore(mortal_url) as store:
            whole(store)
            mortal.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sqlrag'")
            assert set(whole(store).values()) == {"first"}


def connections(url):
    import psycopg

    with psycopg.connect(url.partition("&schema")[0]) as con:
        counted = con.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sqlrag' AND datname = current_database()"
        )
        return counted.fetchone()[0]


def wait_for(check):
    until = time.monotonic() + 20
    while not check() and time.monotonic() < until:
        time.sleep(0.05)
    assert check()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("ends", ["os._exit(0)", "sys.exit(0)", "store.close(); os._exit(0)"])
def test_fault_S5_a_forked_process_has_connections_of_its_own(postgres_url, ends):
    code = f"""
import os, sys
from sqlrag.search.postgres_store import PostgresStore
from sqlrag import Chunk, Document
with PostgresStore.create(sys.argv[1], 2) as store:
    store.upsert([Document("a", "alpha")], [Chunk("a", 0, "alpha")], [[1, 0]])
    if not (child := os.fork()):
        store.upsert([Document("b", "alpha")], [Chunk("b", 0, "alpha")], [[1, 0]])
        assert len(store.vector_query(query_vector=[1, 0])) == 2
        {ends}
    assert os.waitpid(child, 0)[1] == 0
    print([one.doc_id for one in store.chunks()])
"""
    done = subprocess.run(
        [sys.executable, "-c", code, postgres_url], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "['a', 'b']\n", "")


def test_fault_S20_a_store_that_nobody_refers_to_ends_its_connections(postgres_url):
    before = connections(postgres_url)
    store = PostgresStore.create(postgres_url, 2)
    store.upsert([Document("a", "alpha")], [Chunk("a", 0, "alpha")], [[1, 0]])
    assert connections(postgres_url) > before
    del store
    wait_for(lambda: connections(postgres_url) == before)
