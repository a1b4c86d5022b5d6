"""The coroutines whose tasks are cancelled: nothing goes on, no file is left or replaced."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import duckdb
import numpy as np
import pytest

import sqlrag
from sqlrag import Store, check
from sqlrag.cancellation import Stopped, Work, checkpoint, last_step, pause
from sqlrag.embedders import HashingEmbedder
from tests.support.embedding_server import EmbeddingServer, down_after, serving
from tests.support.helpers import build, left_behind, write


class Slow(HashingEmbedder):
    """The hashing embedder, a moment later; ``calls`` counts its batches."""

    batch_size = 4

    def __init__(self, dimensions=64, seconds=0.03):
        super().__init__(f"hashing-{dimensions}")
        self.seconds = seconds
        self.calls = 0

    def embed(self, texts, *, kind):
        self.calls += 1
        time.sleep(self.seconds)
        return super().embed(texts, kind=kind)


@pytest.fixture
def docs(tmp_path):
    return write(tmp_path / "docs", **{f"d{n:03}_md": f"# Page {n}\n\n{'w' * n} number{n}" for n in range(120)})


def cancelled(call, after):
    """Await a call in a task, cancel it after so many seconds, and return how long the cancellation took."""

    async def run():
        task = asyncio.ensure_future(call())
        await asyncio.sleep(after)
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - began

    return asyncio.run(run())


class TestBuild:
    @pytest.mark.parametrize("after", [0, 0.02, 0.05, 0.1, 0.2, 0.3])
    def test_fault_S30_no_file_and_nothing_but_what_was_embedded(self, tmp_path, docs, after):
        model = Slow()
        cancelled(
            lambda: sqlrag.aprepare_embeddings(docs, tmp_path / "x.duckdb", embedder=model, progress="off"), after
        )
        # Of the calls the first is the probe; a batch may have been made whose vectors nobody waited for.
        left = sorted(file.name for file in tmp_path.iterdir())
        assert left in (["docs"], ["docs", "x.duckdb.embedded"])
        assert model.calls > 1 or left == ["docs"]
        calls = model.calls
        time.sleep(0.1)
        assert (sorted(file.name for file in tmp_path.iterdir()), model.calls) == (left, calls)

    def test_fault_S30_a_file_that_was_to_be_replaced_stays(self, tmp_path, docs):
        path = build(tmp_path, folder="others", a_md="plum")
        before = path.read_bytes()
        cancelled(lambda: sqlrag.aprepare_embeddings(docs, path, embedder=Slow(), progress="off", overwrite=True), 0.2)
        assert (path.read_bytes(), left_behind(tmp_path)) == (before, [])

    def test_fault_S30_a_time_limit(self, tmp_path, docs):
        model = Slow()

        async def run():
            built = sqlrag.aprepare_embeddings(docs, tmp_path / "x.duckdb", embedder=model, progress="off")
            await asyncio.wait_for(built, 0.1)

        with pytest.raises((asyncio.TimeoutError, TimeoutError)):
            asyncio.run(run())
        left = sorted(file.name for file in tmp_path.iterdir())
        # A busy machine notices the limit after the first batch.
        assert left == ["docs"] or (model.calls > 1 and left == ["docs", "x.duckdb.embedded"])

    def test_fault_S30_a_build_whose_turn_has_not_come(self, tmp_path, docs):
        async def run():
            loop, free = asyncio.get_running_loop(), threading.Event()
            loop.set_default_executor(ThreadPoolExecutor(1))
            other = loop.run_in_executor(None, free.wait)
            task = asyncio.ensure_future(sqlrag.aprepare_embeddings(docs, tmp_path / "x.duckdb", embedder=Slow()))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task  # at once, although the other thread is not free
            free.set()
            await other

        asyncio.run(run())
        assert [file.name for file in tmp_path.iterdir()] == ["docs"]

    def test_fault_S30_a_provider_that_is_waited_for(self, tmp_path, docs):
        server = EmbeddingServer()
        with serving(server) as url:
            model = sqlrag.load_embedder("m", provider="openai", base_url=f"{url}/v1", api_key="none")
            server.requests, server.faults = [], [down_after(1)]
            seconds = cancelled(
                lambda: sqlrag.aprepare_embeddings(docs, tmp_path / "x.duckdb", embedder=model, progress="off"), 1
            )
        assert seconds < 5  # the attempts would take half a minute
        assert [file.name for file in tmp_path.iterdir()] == ["docs"]

    @pytest.mark.slow
    def test_what_is_not_cancelled_is_as_ever(self, tmp_path, docs):
        index = asyncio.run(sqlrag.aprepare_embeddings(docs, tmp_path / "x.duckdb", embedder=Slow(), progress="off"))
        assert (index.report.documents, check(index.path)) == (120, [])
        with pytest.raises(sqlrag.StoreExistsError):
            asyncio.run(sqlrag.aprepare_embeddings(docs, index.path, embedder=Slow(), progress="off"))


class TestChanges:
    @pytest.mark.slow
    def test_fault_S30_an_update_ends_between_two_documents(self, tmp_path, docs):
        path = build(tmp_path, folder="first", d000_md="plum")
        for after in (0, 0.1, 0.25):
            model = Slow()
            cancelled(lambda: sqlrag.aupdate_embeddings(docs, path, embedder=model, progress="off"), after)  # noqa: B023
            with Store(path, read_only=False) as store:  # nobody has it open any more
                written = len(store.cursor().execute("FROM source_documents").fetchall())
                assert store.check() == []
            time.sleep(0.1)
            with Store(path) as store:
                assert len(store.cursor().execute("FROM source_documents").fetchall()) == written
        report = sqlrag.update_embeddings(docs, path, embedder=Slow(), progress="off", collection="other")
        assert len(report.added) == 120

    @pytest.mark.parametrize("after", [0, 0.05, 0.2])
    def test_fault_S30_reembedding_leaves_the_file_as_it_was(self, tmp_path, docs, after):
        path = sqlrag.prepare_embeddings(docs, tmp_path / "kb.duckdb", embedder=Slow(seconds=0), progress="off").path
        before = path.read_bytes()
        cancelled(lambda: sqlrag.areembed(path, embedder=Slow(32, seconds=0.02), progress="off"), after)
        assert (path.read_bytes(), left_behind(tmp_path)) == (before, [])


def test_fault_S30_a_search_whose_server_hangs_is_not_waited_for(tmp_path, docs):
    async def run():
        ended, begun = threading.Event(), threading.Event()

        def embed(texts):
            if "question" in texts[0]:
                begun.set()
                ended.wait(20)
            return HashingEmbedder("hashing-64").embed(texts, kind="query")

        path = build(tmp_path, a_md="plum")
        with Store(path, embedder=embed) as store:
            task = asyncio.ensure_future(sqlrag.avector_query("question", db_path=store))
            await asyncio.to_thread(begun.wait)
            began = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - began < 5
            ended.set()

    asyncio.run(run())


@pytest.mark.slow
def test_fault_S30_nodes_are_added_as_a_whole_or_not_at_all(tmp_path):
    from llama_index.core.schema import TextNode

    from sqlrag.adapters.llama_index import SqlragVectorStore

    path = build(tmp_path, a_md="plum")
    nodes = [TextNode(id_=f"n{i}", text=f"text {i}", embedding=[float(i + 1)] * 64) for i in range(400)]
    for place, after in enumerate((0, 0.05, 0.1)):
        store = SqlragVectorStore(path if place else tmp_path / "new.duckdb")
        cancelled(lambda: store.async_add(nodes), after)  # noqa: B023
        time.sleep(0.1)
        assert left_behind(tmp_path) == []
        assert [path.name for path in tmp_path.glob("*.duckdb")] == ["kb.duckdb"]
        with Store(path) as opened:
            # A cancellation that comes after the commit finds all of them there.
            assert len(opened.chunks()) in ((1, 401) if after else (1,))
            assert opened.check() == []


@pytest.mark.slow
def test_fault_S30_a_store_can_be_written_after_a_cancellation(tmp_path):
    """A cancellation interrupts every statement that runs, the end of the transaction included."""
    chunks = [sqlrag.Chunk(f"d{i}", 0, f"text {i}") for i in range(30)]
    vectors = np.random.default_rng(7).normal(size=(30, 64))
    with Store(build(tmp_path, a_md="plum"), read_only=False) as store, ThreadPoolExecutor(1) as thread:
        for number in range(12):
            work, begun = Work(), threading.Event()

            def write(work=work, begun=begun):
                with work.under_way():
                    begun.set()
                    store.index(chunks, vectors=vectors)

            writing = thread.submit(write)
            begun.wait()
            time.sleep(number / 600)
            while not writing.done():
                work.stop()
            assert writing.exception() is None or isinstance(
                writing.exception(), (Stopped, duckdb.Error, sqlrag.SqlragError)
            )
            thread.submit(store.index, chunks[:1], vectors=vectors[:1]).result()
        assert store.check() == []


class TestLastStep:
    def test_it_is_not_begun_after_the_work_was_cancelled(self):
        work = Work()
        with work.under_way():
            work.stop()
            with pytest.raises(Stopped), last_step():
                pytest.fail("It was begun.")

    def test_a_cancellation_waits_for_it(self):
        work, order = Work(), []

        def stop():
            work.stop()
            order.append("stopped")

        thread = threading.Thread(target=stop)
        with work.under_way(), last_step():
            thread.start()
            time.sleep(0.1)
            order.append("done")
        thread.join()
        assert order == ["done", "stopped"]

    def test_without_work_there_is_nothing_to_cancel(self):
        with last_step():
            checkpoint()
        began = time.monotonic()
        pause(0.15)
        assert time.monotonic() - began >= 0.15

    def test_a_pause_ends(self):
        work = Work()
        threading.Timer(0.05, work.stop).start()
        began = time.monotonic()
        with pytest.raises(Stopped), work.under_way():
            pause(30)
        assert time.monotonic() - began < 10
