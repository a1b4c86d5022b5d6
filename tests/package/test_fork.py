"""Stores beside a fork, and stores that nobody refers to any more: whose a handle is, and when it ends."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import duckdb
import pytest

import sqlrag
from sqlrag import InputError, Store, StoreError, StoreLockedError, Stores, lexical_query
from sqlrag.answers.chat_models import Piece
from sqlrag.engines.duckdb.database import _handles
from tests.support.helpers import build, ids, python

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")


class Echo:
    """A chat model that says the same of everything."""

    model_name = "echo"

    def chat(self, messages, **_options):
        yield Piece("alpha ", "")
        yield Piece("[1].", "stop")


def in_child(work):
    """Run work in a forked process; return what it returned or raised, pickled through a pipe."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            found = work()
        except BaseException as error:
            found = type(error).__name__, str(error)
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(found, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return pickle.loads(text)


def refused(found):
    """Return whether it says that this process, the parent, has the file."""
    kind, message = found
    return kind == "StoreLockedError" and f" process {os.getpid()}" in message


CHANGES = {
    "add": lambda path: sqlrag.add_documents({"child.md": b"childword"}, path, wait_seconds=0),
    "delete": lambda path: sqlrag.delete_documents(path, doc_ids="a.md"),
    "update": lambda path: sqlrag.update_embeddings(path.parent / "docs", path, wait_seconds=0, progress="off"),
    "index": lambda path: sqlrag.index([sqlrag.Chunk("child.md", 0, "childword")], path),
    "compact": lambda path: sqlrag.compact(path, wait_seconds=0),
    "repair": lambda path: sqlrag.repair(path, wait_seconds=0),
    "reembed": lambda path: sqlrag.reembed(path, "hashing-32", provider="hashing", progress="off"),
    "create": lambda path: Store.create(path, 64, overwrite=True),
    "store": lambda path: Store(path, read_only=False, wait_seconds=0),
}


@needs_fork
class TestFork:
    @pytest.mark.slow
    @pytest.mark.parametrize("change", CHANGES)
    @pytest.mark.parametrize("read_only", [False, True])
    def test_fault_S5_no_change_in_a_child_reaches_a_file_that_its_parent_has_open(
        self, tmp_path, monkeypatch, change, read_only
    ):
        monkeypatch.setenv("SQLRAG_WAIT_SECONDS", "0")
        path = build(tmp_path, a_md="alpha")
        with Store(path, read_only=read_only):
            assert refused(in_child(lambda: str(CHANGES[change](path))))
            if not read_only:
                sqlrag.add_documents({"parent.md": b"parentword"}, path)
        assert sqlrag.check(path) == []
        assert ids(lexical_query("alpha", path)) == ["a.md#0"]
        assert lexical_query("childword", path) == []
        assert len(lexical_query("parentword", path)) == (0 if read_only else 1)

    @pytest.mark.slow
    def test_fault_S5_a_child_of_a_writer_reads_nothing_of_a_shared_log(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        with Store(path, read_only=False) as store:
            assert refused(in_child(lambda: list(lexical_query("alpha", path))))
            kind, message = in_child(lambda: list(store.lexical_query("alpha")))
            assert kind == "StoreError"
            assert "opened for writing in another process" in message
            assert "Open it again here" in message
            assert in_child(store.close) is None
            assert ids(store.lexical_query("alpha")) == ["a.md#0"]

    @pytest.mark.slow
    def test_fault_S5_what_the_program_opened_itself_is_not_joined_in_a_child(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        with duckdb.connect(str(path)) as con:
            con.execute("CREATE TABLE mine (a INTEGER)")
            assert refused(in_child(lambda: str(CHANGES["add"](path))))
        assert sqlrag.check(path) == []

    @pytest.mark.slow
    def test_fault_S5_a_child_of_a_reader_has_a_connection_of_its_own(self, tmp_path):
        path, other = build(tmp_path, a_md="alpha"), build(tmp_path, "other.duckdb", folder="more", b_md="alpha")

        def searched():
            before = sum(handle.users for handles in _handles.values() for handle in handles)
            with Stores([path, other]) as many:
                return before, ids(lexical_query("alpha", path)), len(many.lexical_query("alpha")), len(_handles)

        with Store(path) as store, Stores([path, other]) as stores:
            assert in_child(searched) == (0, ["a.md#0"], 2, 2)
            assert in_child(lambda: ids(store.hybrid_query("alpha"))) == ["a.md#0"]
            assert len(in_child(lambda: ids(stores.hybrid_query("alpha")))) == 2
            assert in_child(lambda: [str(one) for one in sqlrag.check(path)]) == []
        assert sorted(file.name for file in tmp_path.iterdir() if file.name.startswith(".")) == []

    def test_fault_S5_what_a_child_reads_is_confined_to_the_file_as_well(self, tmp_path):
        path = build(tmp_path, a_md="alpha")

        def reach_out():
            with Store(path) as store:
                store.cursor().execute("SELECT content FROM read_text($1)", [str(tmp_path / "docs" / "a.md")])

        with Store(path):
            kind, _ = in_child(reach_out)
        assert kind == "PermissionException"

    @pytest.mark.slow
    def test_fault_S5_a_file_that_was_replaced_is_not_taken_for_the_parents(self, tmp_path):
        path = build(tmp_path, a_md="oldword")
        newer = build(tmp_path, "new.duckdb", folder="newer", a_md="newword")
        with Store(path) as store:
            newer.replace(path)
            assert in_child(lambda: ids(lexical_query("newword", path))) == ["a.md#0"]
            kind, message = in_child(lambda: list(store.lexical_query("oldword")))
            assert (kind, "has changed since" in message) == ("StoreError", True)

    @pytest.mark.slow
    def test_a_child_writes_to_what_its_parent_closed_before_the_fork(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        with Store(path, read_only=False):
            pass
        assert in_child(lambda: CHANGES["add"](path).added) == ["child.md"]
        assert sqlrag.check(path) == []
        assert len(lexical_query("childword", path)) == 1

    @pytest.mark.slow
    def test_a_child_of_a_child_is_kept_apart_as_well(self, tmp_path):
        path = build(tmp_path, a_md="alpha")

        def nested():
            with Store(path) as store:
                return in_child(lambda: ids(store.lexical_query("alpha"))), in_child(lambda: str(CHANGES["add"](path)))

        with Store(path):
            found, (kind, _) = in_child(nested)
        assert (found, kind) == (["a.md#0"], "StoreLockedError")

    @pytest.mark.slow
    @pytest.mark.parametrize("ends", ["sys.exit()", "raise ValueError", "os._exit(0)"])
    def test_fault_S5_the_end_of_a_child_leaves_the_parents_log_alone(self, tmp_path, ends):
        """A child that ends as any Python does would write the log of its parent into the file, or crash."""
        code = f"""
import os, sys
from pathlib import Path
import sqlrag
path = Path(sys.argv[1])
log = path.with_name(path.name + ".wal")
with sqlrag.Store(path, read_only=False) as store:
    store.cursor().execute("CREATE TABLE mine AS SELECT 1 AS one")
    before = log.stat().st_size
    assert before
    if not (child := os.fork()):
        {ends}
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) >= 0, log.stat().st_size == before)
print(sqlrag.check(path))
"""
        assert python(code, build(tmp_path, a_md="alpha")) == "True True\n[]\n"

    def test_fault_S5_locks_that_other_threads_held_do_not_stop_a_child(self, tmp_path):
        from sqlrag.embedders import base

        path = build(tmp_path, a_md="alpha")
        released, held, taken = threading.Event(), threading.Event(), []

        def hold():
            taken.extend(lock for lock in base._loading.values() if lock.acquire(blocking=False))
            held.set()
            released.wait()
            for lock in taken:
                lock.release()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        base._loaded.clear()  # so that the child has to load, behind the lock
        try:
            assert taken
            assert in_child(lambda: ids(sqlrag.vector_query("alpha", path))) == ["a.md#0"]
        finally:
            released.set()
            thread.join()

    def test_fault_S5_an_unfinished_build_of_the_parent_is_left_to_it(self, tmp_path):
        from sqlrag.engines.duckdb.rewrite import temporary_beside

        with ExitStack() as stack:
            temporary = stack.enter_context(temporary_beside(tmp_path / "kb.duckdb"))
            temporary.write_bytes(b"")
            assert in_child(stack.close) is None
            assert temporary.exists()
        assert not temporary.exists()

    @pytest.mark.slow
    def test_fault_S5_a_server_that_was_loaded_before_the_fork(self, tmp_path):
        """As gunicorn --preload does; the application opens its file in each worker."""
        from starlette.testclient import TestClient

        from sqlrag.adapters.rest import create_app
        from sqlrag.adapters.rest.config import ServerOptions

        path = build(tmp_path, a_md="alpha")
        with Store(path) as kept:
            reading, shared = create_app(path), create_app(kept)
            writing = create_app(path, ServerOptions(write=True))

            def status(app):
                with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
                    return client.post("/lexical_query", json={"query_text": "alpha"}).status_code

            assert in_child(lambda: status(reading)) == in_child(lambda: status(shared)) == 200
            assert in_child(lambda: status(writing)) != 200
        assert in_child(lambda: status(writing)) == 200
        assert sqlrag.check(path) == []

    @pytest.mark.slow
    def test_fault_S5_workers_of_multiprocessing_search_and_cannot_write(self, tmp_path):
        code = """
import multiprocessing, sys
import sqlrag
path = sys.argv[1]
def search(word):
    return len(sqlrag.lexical_query(word, path))
def add(word):
    try:
        return sqlrag.add_documents({"w.md": b"w"}, path, wait_seconds=0).added
    except sqlrag.StoreLockedError:
        return "locked"
with sqlrag.Store(path):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(search, ["alpha", "alpha", "beta"]), pool.map(add, ["x", "y"]))
print(sqlrag.check(path))
"""
        assert python(code, build(tmp_path, a_md="alpha")) == "[1, 1, 0] ['locked', 'locked']\n[]\n"


class TestLife:
    def test_fault_S20_a_store_that_nobody_refers_to_is_closed(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        store = Store(path)
        ids(store.hybrid_query("alpha"))
        store = Store(path)
        store.close()
        del store
        sqlrag.update_embeddings(tmp_path / "docs", path, progress="off")

    @pytest.mark.parametrize(
        "open_it",
        [
            lambda path: Store(path).lexical_query("alpha"),
            lambda path: Store(path).hybrid_query("alpha"),
            lambda path: Stores([path]).hybrid_query("alpha"),
            lambda path: Store(path, read_only=False).upsert([], [], []),
            lambda path: Store(path)._repr_html_(),
            lambda path: Store(path).chunks(),
            lambda path: Store(path).explain("alpha", "a.md#0"),
            lambda path: sqlrag.answer("alpha", Store(path), chat_model=Echo()),
        ],
    )
    def test_fault_S20_also_beside_its_results(self, tmp_path, open_it):
        path = build(tmp_path, a_md="alpha")
        kept = open_it(path)
        assert path not in _handles, kept
        Store(path, read_only=False).close()

    @pytest.mark.slow
    def test_fault_S20_one_whose_search_raised_is_closed_when_the_error_is_gone(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        with pytest.raises(InputError) as raised:
            Store(path).lexical_query(" ")
        assert path in _handles  # the error's traceback has the frames, and these the store
        del raised
        gc.collect()
        assert path not in _handles

    @pytest.mark.slow
    @pytest.mark.parametrize("opened", ["reading", "writing", "several"])
    def test_fault_S20_closed_while_other_threads_are_at_work(self, tmp_path, opened):
        path, other = build(tmp_path, a_md="alpha " * 200), build(tmp_path, "other.duckdb", folder="more", b_md="beta")
        works = [
            lambda store: store.hybrid_query("alpha"),
            lambda store: store.vector_query("alpha", exact=True),
            lambda store: store.get_source_documents(["a.md#0"]),
        ]
        if opened != "several":
            works.append(lambda store: store.explain("alpha", "a.md#0"))
        if opened == "writing":
            works.append(lambda store: store.index([sqlrag.Chunk("n.md", 0, "word")]))
            works.append(lambda store: store.check())

        def until_closed(store, work):
            try:
                while True:
                    work(store)
            except StoreError as error:
                return str(error)

        for pause in (0, 0.01, 0.05, 0.1):
            store = Stores([path, other]) if opened == "several" else Store(path, read_only=opened == "reading")
            with ThreadPoolExecutor(len(works)) as threads:
                done = [threads.submit(until_closed, store, work) for work in works]
                time.sleep(pause)
                store.close()
                told = [one.result(60) for one in done]
            assert all(".duckdb has been closed. " in text and "Open it again" in text for text in told), told
            store.close()
            assert path not in _handles
            Store(path, read_only=False, wait_seconds=0).close()
        assert sqlrag.check(path) == []

    def test_fault_S20_a_cursor_that_cannot_be_closed_keeps_no_file(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        store = Store(path)

        class Broken:
            def close(self):
                raise duckdb.Error("it cannot")

        store._database._cursors.append(Broken())
        with pytest.raises(StoreError, match="it cannot"):
            store.close()
        assert path not in _handles
        with pytest.raises(StoreError, match="has been closed"):
            store.hybrid_query("alpha")

    def test_fault_S20_a_cursor_in_flight_keeps_its_answer(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        cursor = Store(path).cursor().execute("SELECT doc_id FROM source_documents")
        assert cursor.fetchall() == [("a.md",)]
        with pytest.raises(StoreLockedError, match=r"through duckdb.connect"):
            Store(path, read_only=False)
        del cursor
        Store(path, read_only=False).close()

    @pytest.mark.slow
    def test_fault_S20_a_streamed_answer_that_was_dropped(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        events = sqlrag.answer("alpha", path, chat_model=Echo(), stream=True)
        next(events)
        del events
        gc.collect()
        Store(path, read_only=False).close()

    @pytest.mark.slow
    def test_fault_S20_a_collection_while_files_are_opened_does_not_wait_for_itself(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        stop = threading.Event()

        def collect():
            while not stop.is_set():
                gc.collect()

        threshold = gc.get_threshold()
        gc.freeze()  # what other tests have loaded would make each collection slow
        gc.set_threshold(1)
        collector = threading.Thread(target=collect)
        collector.start()
        try:
            for _ in range(20):
                store = Store(path)
                store.itself = store  # only a collection ends it
                del store
                Store(path).close()
        finally:
            stop.set()
            collector.join()
            gc.set_threshold(*threshold)
            gc.unfreeze()
        gc.collect()
        assert path not in _handles

    @pytest.mark.slow
    def test_fault_S20_the_end_of_python_is_silent(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        code = (
            "import subprocess, sys\n"
            "code = 'import sqlrag, sys; a = sqlrag.Store(sys.argv[1]); b = sqlrag.Stores([sys.argv[1]]); '\\\n"
            '    \'a.itself = a; print(len(a.hybrid_query("alpha")), len(b.hybrid_query("alpha")))\'\n'
            "done = subprocess.run([sys.executable, '-X', 'dev', '-c', code, sys.argv[1]], capture_output=True)\n"
            "print(done.returncode, done.stdout.split(), b'Exception' in done.stderr)\n"
        )
        assert python(code, path) == "0 [b'1', b'1'] False\n"

    @pytest.mark.parametrize("hand_on", [pickle.dumps, copy.copy, copy.deepcopy])
    @pytest.mark.parametrize("kind", [Store, lambda path: Stores([path])])
    def test_fault_S30_an_open_store_cannot_be_handed_on(self, tmp_path, hand_on, kind):
        with (
            kind(build(tmp_path, a_md="alpha")) as store,
            pytest.raises(InputError, match=r"cannot be pickled or copied.*Hand on its path"),
        ):
            hand_on(store)

    def test_results_can(self, tmp_path):
        found = lexical_query("alpha", build(tmp_path, a_md="alpha"))
        assert pickle.loads(pickle.dumps(found)) == found
        assert copy.deepcopy(found) == found

    @pytest.mark.slow
    @pytest.mark.parametrize("hand_on", [lambda one: pickle.loads(pickle.dumps(one)), copy.copy, copy.deepcopy])
    def test_fault_S30_a_store_that_is_to_be_opened_is_handed_on(self, tmp_path, hand_on):
        kb = build(tmp_path, a_md="alpha")
        for where in (str(kb), kb, [kb]):
            first = sqlrag.open_store(where)
            with first as store, hand_on(first) as other:
                assert other is not store
                assert other.lexical_query("alpha") == store.lexical_query("alpha")
        with sqlrag.Store(kb) as store, pytest.raises(InputError, match="cannot be pickled"):
            pickle.dumps(sqlrag.open_store(store))
