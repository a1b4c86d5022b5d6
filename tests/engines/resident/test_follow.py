"""A store in memory never gives an old answer, and SQL answers wherever it cannot."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import numpy as np
import pytest

from sqlrag import Chunk, Document, InputError, Settings, Store, Stores, compact
from sqlrag.engines.resident import follow
from sqlrag.engines.resident.index import Index
from tests.bench import soak
from tests.bench.common import resident_mb
from tests.support.helpers import ROOT
from tests.support.residence import WAIT, in_memory, settle

DIMENSIONS = 16
AS_IT_IS = follow.QUESTIONS
WORDS = ["pump", "valve", "ferry", "harbour", "lantern", "winch", "anchor", "rope", "sail", "keel"]


def chunk(number):
    return Chunk(
        f"d{number // 4}.md", number % 4, f"The {WORDS[number % 10]} number{number} of {WORDS[number // 10 % 10]}"
    )


def vector(number):
    return np.random.default_rng(number).normal(size=DIMENSIONS).astype(np.float32)


def put(store, numbers):
    chunks = [chunk(number) for number in numbers]
    documents = [Document(name, "") for name in dict.fromkeys(one.doc_id for one in chunks)]
    store.upsert(documents, chunks, np.array([vector(number) for number in numbers]))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "kb.duckdb"
    with Store.create(path, DIMENSIONS) as store:
        put(store, range(80))
    return path


@pytest.fixture
def path(made, tmp_path):
    return Path(shutil.copy(made, tmp_path))


def ask(store, number=5, **options):
    return store.hybrid_query(f"{WORDS[number % 10]} number{number}", query_vector=vector(number), **options)


def engine_of(found):
    return found.methods.get("engine", "")


@pytest.mark.slow
def test_what_this_process_writes_is_found_at_once(path):
    with in_memory(path, read_only=False) as store:
        assert engine_of(ask(store)) == "memory"
        for number in range(80, 120, 4):
            put(store, range(number, number + 4))
            found = ask(store, number)
            assert found[0]["node_id"] == chunk(number).node_id
            assert engine_of(found).startswith("SQL, since ")
            settle(store)
            found = ask(store, number)
            assert (found[0]["node_id"], engine_of(found)) == (chunk(number).node_id, "memory")
            store.delete_documents(doc_ids=[f"d{number // 4}.md"])
            assert chunk(number).node_id not in {row["node_id"] for row in ask(store, number, top_k=200)}
            settle(store)
            found = ask(store, number, top_k=200)
            assert chunk(number).node_id not in {row["node_id"] for row in found}


@pytest.mark.slow
def test_what_passes_a_filter_is_asked_again_after_a_change(path):
    only = {"metadata": {"$doc_id": {"$in": ["d1.md", "d30.md"]}}, "top_k": 200}
    with in_memory(path, read_only=False) as store:
        for numbers, expected in ((range(0), {"d1.md"}), (range(120, 124), {"d1.md", "d30.md"})):
            if numbers:
                put(store, numbers)
            for _ in range(2):  # before the change is in memory, and after
                assert {row["doc_id"] for row in ask(store, **only)} == expected
                settle(store)
        found = ask(store, **only)
        assert (engine_of(found), found.methods["vector"][:9]) == ("memory", "in memory")
        store.delete_documents(doc_ids=["d1.md"])
        settle(store)
        assert {row["doc_id"] for row in ask(store, **only)} == {"d30.md"}


def test_what_a_program_changes_by_its_own_sql_is_seen_at_once(path):
    with in_memory(path, read_only=False) as store, duckdb.connect(str(path)) as own:
        assert [row["node_id"] for row in store.lexical_query("number7")] == ["d1.md#3"]
        own.execute("UPDATE documents SET text = 'other words' WHERE node_id = 'd1.md#3'")
        assert [row["text"] for row in store.lexical_query("number7")] == ["other words"]
        settle(store)
        assert engine_of(ask(store)) == "memory"
        own.execute("INSERT INTO fts_main_documents.stopwords VALUES ('number7')")
        assert "number7" not in store.lexical_query("pump number7", top_k=100).methods
        assert ask(store, 7).notices == []
        settle(store)
        own.execute("BEGIN")
        own.execute("DELETE FROM fts_main_documents.stopwords WHERE word = 'number7'")
        assert engine_of(ask(store)) == "memory"
        own.execute("COMMIT")
        assert engine_of(ask(store)).startswith("SQL, since ")


@pytest.mark.slow
def test_several_threads_that_ask_while_one_writes_never_miss_what_was_written(path):
    with in_memory(path, read_only=False) as store:
        written, done, wrong, engines = [79], threading.Event(), [], set()

        def asks():
            while not done.is_set():
                number = written[-1]
                found = ask(store, number, top_k=3)
                engines.add(engine_of(found))
                if found[0]["node_id"] != chunk(number).node_id:
                    wrong.append((number, found[0]["node_id"], engine_of(found)))

        threads = [threading.Thread(target=asks) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(80, 140, 4):
            put(store, range(number, number + 4))
            written.append(number)
            time.sleep(0.05)
        settle(store)
        ask(store)
        done.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert "memory" in engines


@pytest.mark.slow
def test_a_file_that_is_replaced_is_answered_by_sql_and_then_by_its_own_arrays(path, tmp_path):
    with in_memory(path) as old:
        with Store.create(tmp_path / "new.duckdb", DIMENSIONS) as store:
            put(store, range(40, 60))
        (tmp_path / "new.duckdb").replace(path)
        found = ask(old)
        assert found[0]["node_id"] == chunk(5).node_id  # as the store shows the file that it has opened
        assert "has been replaced" in engine_of(found)
        with in_memory(path) as new:
            found = ask(new, 45)
            assert (found[0]["node_id"], engine_of(found)) == (chunk(45).node_id, "memory")
            assert chunk(5).node_id not in {row["node_id"] for row in ask(new, 5, top_k=100)}


@pytest.mark.slow
def test_a_compacted_file_is_read_again(path):
    with in_memory(path) as store:
        before = ask(store)
    compact(path)
    with in_memory(path) as store:
        assert ask(store) == before
        assert engine_of(ask(store)) == "memory"


@pytest.mark.slow
def test_what_another_process_writes_between_two_openings_is_found(path):
    residence = follow.residence_of(path, 2000)
    residence.stays = True  # as a server has it
    with in_memory(path) as store:
        assert engine_of(ask(store)) == "memory"
    with Store(path, settings=Settings(resident_mb=2000)) as store:
        assert engine_of(ask(store)) == "memory"  # at once, since the file is the same
    code = (
        "import sys; from tests.engines.resident.test_follow import *\n"
        "with Store(sys.argv[1], read_only=False) as store: put(store, range(80, 84))"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, cwd=ROOT)
    with Store(path, settings=Settings(resident_mb=2000)) as store:
        found = ask(store, 80)
        assert found[0]["node_id"] == chunk(80).node_id
        settle(store)
        found = ask(store, 80)
        assert (found[0]["node_id"], engine_of(found)) == (chunk(80).node_id, "memory")


@pytest.mark.slow
def test_a_store_is_read_into_memory_after_twenty_questions_unless_that_is_not_wanted(path, monkeypatch):
    monkeypatch.setattr(follow, "QUESTIONS", AS_IT_IS)  # that of all other tests is never reached
    assert AS_IT_IS == 20
    with Store(path) as store, Store(path, resident=False) as never:
        for _ in range(20):
            assert engine_of(ask(store)) == engine_of(ask(never)) == ""
        ask(store)
        settle(store)
        assert engine_of(ask(store)) == "memory"
        assert engine_of(ask(never)) == ""


@pytest.mark.slow
def test_a_budget_that_is_too_small_and_one_without_room_for_texts(path):
    with in_memory(path, resident_mb=1) as store:
        assert engine_of(ask(store)) == "memory"
    residence = follow.residence_of(path, 1)
    residence.stays = True  # so that its budget is its own
    residence.most_bytes = 20_000  # enough for vectors and postings, not for the texts
    with in_memory(path) as store, Store(path, resident=False) as by_sql:
        assert engine_of(ask(store)) == "memory"
        assert residence._index.contents is None
        assert ask(store, top_k=30) == ask(by_sql, top_k=30)
    residence._index = None
    residence.most_bytes = 2_000
    with in_memory(path) as store:
        found = ask(store)
        assert found[0]["node_id"] == chunk(5).node_id
        assert "more than resident_mb" in engine_of(found)
    del residence
    with Store(path, resident=True, settings=Settings(resident_mb=0)) as store:
        assert engine_of(ask(store)) == ""


@pytest.fixture
def paths(path, tmp_path):
    other = tmp_path / "other.duckdb"
    with Store.create(other, DIMENSIONS) as store:
        put(store, range(80, 120))
    return [path, other]


@pytest.mark.slow
def test_several_files_are_searched_in_memory_where_all_of_them_are_there(paths, tmp_path, monkeypatch):
    monkeypatch.setattr(follow, "QUESTIONS", AS_IT_IS)
    with Stores(paths, resident=False) as by_sql, Stores(paths) as later, Stores(paths, resident=True) as at_once:
        for number in range(AS_IT_IS):
            assert engine_of(ask(later, number)) == ""
        ask(later)
        for store in (later, at_once):
            settle(store)
            for number in (5, 90):
                found, wanted = ask(store, number, top_k=30), ask(by_sql, number, top_k=30)
                assert (found, found.notices, found.files) == (wanted, wanted.notices, wanted.files)
                assert engine_of(found) == "memory"
        assert engine_of(ask(by_sql)) == ""
        at_once._files.parts[1].residence._index = None
        at_once._files.parts[1].residence.most_bytes = 1000
        settle(at_once)
        found = ask(at_once, 90, top_k=30)
        assert found == ask(by_sql, 90, top_k=30)
        assert "more than resident_mb" in engine_of(found)


@pytest.mark.slow
def test_a_change_of_one_of_several_files_is_followed(paths, tmp_path):
    with Stores(paths, resident=True) as store:
        settle(store)
        assert ask(store, 100)[0]["node_id"] == chunk(100).node_id
    with Store(paths[1], read_only=False) as other:
        other.delete_documents(doc_ids=[chunk(100).doc_id])
    with Stores(paths, resident=True) as store:
        for _ in range(2):  # by SQL, and in memory
            assert chunk(100).node_id not in {row["node_id"] for row in ask(store, 100, top_k=200)}
            settle(store)
        assert engine_of(ask(store)) == "memory"
        with Store.create(tmp_path / "new.duckdb", DIMENSIONS) as other:
            put(other, range(200, 204))
        (tmp_path / "new.duckdb").replace(paths[1])
        found = ask(store, 90)
        assert found[0]["node_id"] == chunk(90).node_id  # as the store shows the file that it has opened
        assert "has been replaced" in engine_of(found)


def test_files_share_the_budget_by_their_sizes(paths):
    shares = follow._shares([*paths, paths[0]], 100)
    assert sum(shares) in range(100, 103)
    assert shares[0] == shares[2] >= shares[1]
    assert follow._shares([paths[0]], 7) == [7]
    assert follow._shares(paths, 0) == [0, 0]


def test_without_memory_sql_answers(path, monkeypatch):
    with in_memory(path) as store:
        wanted = ask(store)
        assert engine_of(wanted) == "memory"

        def fails(*_, **__):
            raise MemoryError

        monkeypatch.setattr(Index, "nearest", fails)
        found = ask(store)
        assert found == wanted
        assert "not enough memory" in engine_of(found)
    monkeypatch.setattr(follow, "load", fails)
    with in_memory(path) as store:
        found = ask(store)
        assert found == wanted
        assert "not enough memory" in engine_of(found)


def test_where_no_thread_can_be_started_sql_answers_and_the_file_is_free(path, monkeypatch):
    def fails(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fails)
    with Store(path, resident=True) as store:
        found = store.vector_query(query_vector=vector(5))
        assert found[0]["node_id"] == chunk(5).node_id
        assert "can't start new thread" in engine_of(found)
    Store(path, read_only=False).close()


def test_reading_ends_where_this_process_wants_to_write(path, monkeypatch):
    begun = threading.Event()
    monkeypatch.setattr(follow, "changes", lambda _: begun.set() or time.sleep(0.2))
    residence = follow.residence_of(path, 256)
    residence.stays = True
    Store(path).close()
    assert begun.wait(WAIT)
    with Store(path, read_only=False) as store:
        put(store, range(80, 84))
        assert ask(store, 80)[0]["node_id"] == chunk(80).node_id


def test_a_file_with_a_macro_of_its_own_is_searched_by_that(path):
    with duckdb.connect(str(path)) as con:
        con.execute("CREATE OR REPLACE MACRO visible(a, b) AS 'x'")
    with in_memory(path, trust=True) as store:
        assert "its views or macros are not those" in engine_of(ask(store))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_answers_from_memory_as_well(path):
    with in_memory(path) as store:
        wanted = [row["node_id"] for row in ask(store)]
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            status = 1
            try:
                by_sql, by_memory = ask(store), ask(store)
                assert [row["node_id"] for row in by_sql] == [row["node_id"] for row in by_memory] == wanted
                os.write(writer, engine_of(by_memory).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(writer)
        assert os.waitpid(child, 0)[1] == 0
        assert os.read(reader, 100) == b"memory"


def test_a_store_that_is_closed_while_it_is_being_read_is_free(path):
    store = Store(path, resident=True)
    store.close()
    with Store(path, read_only=False) as other:  # which nothing of this process has open
        put(other, range(80, 84))
    assert threading.active_count() < 100
    names = {thread.name for thread in threading.enumerate()}
    assert "sqlrag-resident" not in names


def test_settings_and_arguments_are_checked(path, monkeypatch):
    with pytest.raises(InputError, match="resident_mb must be a whole number"):
        Settings(resident_mb=-1)
    with pytest.raises(InputError, match="resident must be True or False"):
        Store(path, resident="yes")
    with pytest.raises(InputError, match="resident must be True or False"):
        Stores([path], resident="yes")
    monkeypatch.setenv("SQLRAG_RESIDENT_MB", "many")
    with pytest.raises(InputError, match="SQLRAG_RESIDENT_MB must be a whole number"):
        Settings.from_environment()
    monkeypatch.setenv("SQLRAG_RESIDENT_MB", "64")
    assert Settings.from_environment().resident_mb == 64
    assert WAIT > 0


@pytest.mark.rest
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("rounded", [False, True], ids=["whole", "rounded"])
def test_many_changes_and_questions_leave_memory_as_it_is(tmp_path, rounded):
    sizes = [resident_mb() for _ in soak.run(tmp_path / "kb.duckdb", 36, 60, rounded=rounded)]
    assert max(sizes[24:]) < 1.1 * max(sizes[12:24])
