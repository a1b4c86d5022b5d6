"""Many readers and one writer, in threads, on an event loop and in several processes."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import sqlrag
from sqlrag import Chunk, Document, InputError, Settings, Store, StoreLockedError, hybrid_query, lexical_query
from sqlrag.settings import WAIT_SECONDS
from tests.support.helpers import HASHING, ROOT, build, ids, python, write

READ = """
import json, sys, sqlrag
with sqlrag.Store(sys.argv[1], wait_seconds=20) as store:
    answers = [store.hybrid_query(f"word{n} text") for n in range(20)]
print(json.dumps([[(row["node_id"], row["score"]) for row in answer] for answer in answers]))
"""
WRITE = """
import sys, time, numpy as np, sqlrag
with sqlrag.Store(sys.argv[1], read_only=False, wait_seconds=float(sys.argv[3])) as store:
    print("held", flush=True)
    chunks = [sqlrag.Chunk("z", i, "zebra") for i in range(3)]
    store.upsert([sqlrag.Document("z", "zebra")], chunks, np.eye(64)[:3])
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def path(tmp_path):
    return build(tmp_path, **{f"page{n}_md": f"# Page {n}\n\nword{n} shared text of number {n}" for n in range(20)})


def start(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={"PYTHONPATH": str(ROOT), "PATH": ""}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


class TestProcesses:
    @pytest.mark.slow
    def test_many_readers_give_what_one_gives(self, path):
        alone = python(READ, path)
        readers = [start(READ, path) for _ in range(6)]
        assert [reader.communicate()[0] for reader in readers] == [alone] * 6

    @pytest.mark.slow
    def test_case_J1_readers_wait_for_a_writer(self, path):
        with start(WRITE, path, 1.0, 5) as writer:
            assert writer.stdout.readline() == "held\n"
            readers = [start(READ, path) for _ in range(3)]
            answers = [reader.communicate() for reader in readers]
        assert [error for _, error in answers] == [""] * 3
        assert ids(lexical_query("zebra", path)) == ["z#0", "z#1", "z#2"]

    @pytest.mark.slow
    def test_a_writer_waits_for_readers_and_names_one_that_stays(self, path):
        with Store(path):
            began = time.monotonic()
            _, error = start(WRITE, path, 0, 0.3).communicate()
            assert time.monotonic() - began >= 0.3
        assert f"StoreLockedError: {path} is in use by process" in error
        with Store(path):
            writer = start(WRITE, path, 0, 20)
            time.sleep(0.5)
        assert writer.communicate()[1] == ""
        assert len(lexical_query("zebra", path)) == 3

    @pytest.mark.slow
    @pytest.mark.alone
    @pytest.mark.parametrize("by", ["argument", "settings", "environment"])
    def test_how_long_is_a_matter_of_settings(self, path, by, monkeypatch):
        with start(WRITE, path, 30, 5) as writer:
            writer.stdout.readline()
            if by == "environment":
                monkeypatch.setenv(WAIT_SECONDS, "0.4")
            options = {"argument": {"wait_seconds": 0.4}, "settings": {"settings": Settings(wait_seconds=0.4)}}
            began = time.monotonic()
            with pytest.raises(StoreLockedError) as caught:
                Store(path, **options.get(by, {}))
            assert 0.4 <= time.monotonic() - began < 1.9
            assert caught.value.pid == writer.pid
            writer.kill()

    @pytest.mark.slow
    def test_a_reader_sees_a_replaced_file_when_it_opens_it_again(self, path, tmp_path):
        """Another process rebuilds the file while this one has it open."""
        root = write(tmp_path / "other", new_md="walrus")
        code = (
            "import sys, sqlrag\nsqlrag.prepare_embeddings(sys.argv[1], sys.argv[2], overwrite=True, "
            "embedding_provider='hashing', embed_model_name='hashing-64', progress='off')"
        )
        with Store(path) as old:
            python(code, root, path)
            assert ids(lexical_query("walrus", path)) == ["new.md#0"]
            assert old.lexical_query("walrus") == []
            assert ids(old.lexical_query("word7")) == ["page7.md#0"]
            python("import sys, sqlrag\nsqlrag.compact(sys.argv[1])", path)
            assert ids(lexical_query("walrus", path)) == ["new.md#0"]


class TestThreads:
    @pytest.mark.slow
    def test_case_J3_eight_threads_of_fifty_queries_give_what_one_gives(self, path):
        questions = [f"word{n % 20} number {n}" for n in range(50)]

        def ask(store):
            return [list(store.hybrid_query(question, top_k=7)) for question in questions]

        with Store(path) as store:
            serial = ask(store)
            barrier = threading.Barrier(8)

            def at_once(_):
                barrier.wait()
                return ask(store)

            with ThreadPoolExecutor(8) as pool:
                assert all(answers == serial for answers in pool.map(at_once, range(8)))

    @pytest.mark.slow
    @pytest.mark.parametrize("work", ["upsert", "rebuild", "update"])
    def test_case_J4_a_query_during_a_change_sees_the_old_or_the_new(self, path, tmp_path, work):
        """Each state has 3 or 5 chunks with the word, in both legs; never 4, and never no index."""
        for n in range(3):
            (tmp_path / "docs" / f"zebra{n}.md").write_text(f"zebra number{n}")
        sqlrag.update_embeddings(tmp_path / "docs", path, progress="off")
        stop, counts = threading.Event(), set()

        def read(store):
            while not stop.is_set():
                found = store.hybrid_query("zebra", top_k=50)
                counts.add(sum(row["lexical_rank"] is not None for row in found))
                counts.add(len(store.lexical_query("zebra", top_k=50)))

        with Store(path, read_only=False) as writer, Store(path) as reader, ThreadPoolExecutor(2) as pool:
            readers = [pool.submit(read, reader) for _ in range(2)]
            try:
                for n in range(4):
                    if work == "upsert":
                        texts = ["zebra"] * (n % 2 * 2)
                        chunks = [Chunk("z", i, text) for i, text in enumerate(texts)]
                        writer.upsert([Document("z", "zebra")], chunks, np.eye(64)[: len(texts)])
                    elif work == "rebuild":
                        writer.cursor().execute("UPDATE fts_main_documents.dict SET df = df + 1")
                        assert len(sqlrag.repair(path).done) == 1
                    else:
                        for page in (3, 4):
                            file = tmp_path / "docs" / f"zebra{page}.md"
                            file.write_text("zebra") if n % 2 == 0 else file.unlink()
                        sqlrag.update_embeddings(tmp_path / "docs", path, prune=True, progress="off")
            finally:
                stop.set()
            for one in readers:
                one.result()
        assert counts <= {3, 5}
        assert 3 in counts


class TestEventLoop:
    @pytest.mark.slow
    def test_case_K1_the_coroutines_give_what_the_functions_give(self, path):
        async def main():
            answers = await asyncio.gather(
                sqlrag.ahybrid_query("word3", path, top_k=2),
                sqlrag.avector_query("word4", path),
                sqlrag.alexical_query("word5", db_path=path),
                sqlrag.aget_source_documents(["page1.md#0"], path),
                sqlrag.aget_embedding_metadata(path),
            )
            return answers, hybrid_query("word3", path, top_k=2)  # the function works inside the loop as well

        answers, direct = asyncio.run(main())
        assert answers == [
            hybrid_query("word3", path, top_k=2),
            sqlrag.vector_query("word4", path),
            lexical_query("word5", path),
            sqlrag.get_source_documents(["page1.md#0"], path),
            sqlrag.get_embedding_metadata(path),
        ]
        assert direct == answers[0]

    @pytest.mark.slow
    def test_the_loop_goes_on_meanwhile(self, tmp_path):
        root = write(tmp_path / "docs", **{f"p{n}_md": f"word{n} " * 200 for n in range(30)})

        async def main():
            ticks = 0
            task = asyncio.create_task(sqlrag.aprepare_embeddings(root, tmp_path / "kb.duckdb", **HASHING))
            while not task.done():
                await asyncio.sleep(0.005)
                ticks += 1
            path = (await task).path
            (root / "p0.md").write_text("changed")
            changed = (await sqlrag.aupdate_embeddings(root, path, progress="off")).changed
            report = await sqlrag.areembed(path, "hashing-96", provider="hashing", progress="off")
            return ticks, changed, report.dimensions

        ticks, changed, dimensions = asyncio.run(main())
        assert ticks > 5
        assert (changed, dimensions) == (["p0.md"], 96)

    def test_errors_come_through(self, path):
        with pytest.raises(InputError, match="blank"):
            asyncio.run(sqlrag.ahybrid_query(" ", path))

    @pytest.mark.slow
    def test_many_at_once(self, path):
        async def main():
            with Store(path) as store:
                return await asyncio.gather(*(sqlrag.ahybrid_query(f"word{n % 20}", store) for n in range(60)))

        assert [ids(found)[0] for found in asyncio.run(main())] == [f"page{n % 20}.md#0" for n in range(60)]

    @pytest.mark.parametrize("name", [name for name in sqlrag.__all__ if f"a{name}" in sqlrag.__all__])
    def test_names_signatures_and_documentation(self, name):
        function, coroutine = getattr(sqlrag, name), getattr(sqlrag, f"a{name}")
        assert inspect.iscoroutinefunction(coroutine)
        assert inspect.signature(coroutine) == inspect.signature(function)
        assert coroutine.__name__ == f"a{name}"
        assert f":func:`sqlrag.{name}`" in coroutine.__doc__
