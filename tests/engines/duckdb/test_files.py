"""The rights of files: what is replaced keeps them, and what is written meanwhile is no wider."""

from __future__ import annotations

import gzip
import os
import stat
import threading
from contextlib import ExitStack

import pytest

import sqlrag
from sqlrag import Settings, Store
from sqlrag.embedders import HashingEmbedder
from sqlrag.engines.duckdb import rewrite
from sqlrag.engines.duckdb.blocks import give_rights
from sqlrag.engines.duckdb.files import as_narrow_as, rights_of
from sqlrag.search import query_log
from tests.support.helpers import FIXTURES, HASHING, build

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")


@pytest.fixture(autouse=True)
def usual_mask():
    before = os.umask(0o022)
    yield
    assert os.umask(before) == 0o022  # it is as it was


@pytest.fixture
def kb(tmp_path):
    return build(tmp_path, a_md="# A\n\ncommon word", b_md="# B\n\nother word")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def seen(monkeypatch, tmp_path):
    """Collect the rights of every file and folder that is there when a file is about to be replaced."""
    modes = {}

    def spy(module, name):
        real = getattr(module, name)

        def look(*arguments, **named):
            modes.update({path.name: mode(path) for path in tmp_path.rglob("*") if "building" in str(path)})
            return real(*arguments, **named)

        monkeypatch.setattr(module, name, look)

    spy(rewrite, "put_in_place")
    spy(rewrite, "_check_is_still")
    spy(rewrite, "detach")
    monkeypatch.setattr("sqlrag.formats.targets.put_in_place", rewrite.put_in_place)
    return modes


def prepare(path):
    sqlrag.prepare_embeddings(path.parent / "docs", path, overwrite=True, **HASHING)


def older(path):
    path.write_bytes(gzip.decompress((FIXTURES / "schema_1.duckdb.gz").read_bytes()))
    sqlrag.upgrade(path)


REWRITES = {
    "compact": sqlrag.compact,
    "reembed": lambda path: sqlrag.reembed(path, embedder=HashingEmbedder("hashing-32")),
    "prepare": prepare,
    "upgrade": older,
    "create": lambda path: Store.create(path, 4, overwrite=True).close(),
    "repair": sqlrag.repair,
    "update": lambda path: sqlrag.update_embeddings(path.parent / "docs", path, verbose=False),
    "add": lambda path: sqlrag.add_documents({"c.md": b"c"}, path),
    "merge": lambda path: sqlrag.merge([other(path)], path, overwrite=True),
    "convert": lambda path: sqlrag.convert(other(path), path, overwrite=True),
}


def other(path):
    return build(path.parent, "other.duckdb", folder="others", c_md="c")


@pytest.mark.parametrize("rights", [0o600, 0o640, 0o644, 0o664])
@pytest.mark.parametrize("way", REWRITES)
def test_fault_S7_a_rewritten_file_keeps_its_rights(kb, seen, way, rights):
    kb.chmod(rights)
    REWRITES[way](kb)
    assert mode(kb) == rights
    meanwhile = [found for name, found in seen.items() if name.startswith(".kb.duckdb")]
    assert not any(found & 0o066 & ~rights for found in meanwhile), seen
    assert meanwhile or way in {"create", "repair", "update", "add"}
    assert sorted(path.name for path in kb.parent.iterdir() if path.name.startswith(".")) == []


def test_fault_S7_the_log_beside_a_private_file_is_private(kb):
    kb.chmod(0o600)
    with Store(kb, read_only=False) as store:
        with store._database.transaction() as con:
            con.execute("CREATE TABLE mine AS SELECT 'secret' AS word")
        assert mode(kb.with_name("kb.duckdb.wal")) == 0o600
        store._database.checkpoint()
    assert mode(kb) == 0o600


EXPORTS = {
    "ragmd": ("kb.ragmd", lambda kb, path: sqlrag.export_ragmd(kb, path, overwrite=True)),
    "ragfile": ("kb.rag", lambda kb, path: sqlrag.convert(kb, path, overwrite=True)),
    "faiss": ("vectors-x.faiss", lambda kb, path: sqlrag.export_faiss_json(kb, path, overwrite=True)),
    "json": ("metadata-x.json", lambda kb, path: sqlrag.export_faiss_json(kb, path, overwrite=True)),
    "parquet": ("kb.parquet", lambda kb, path: sqlrag.export_parquet(kb, path, overwrite=True)),
}


@pytest.mark.parametrize("rights", [0o600, 0o640])
@pytest.mark.parametrize("form", EXPORTS)
def test_fault_S7_an_export_keeps_the_rights_of_what_it_replaces(kb, seen, form, rights):
    name, export = EXPORTS[form]
    path = kb.with_name(name)
    export(kb, path)
    if path.is_dir():
        assert mode(path) == 0o755
        rights |= 0o100 | (rights & 0o040) >> 2
        next(path.rglob("*.parquet")).chmod(0o600)
        inner = {one: mode(one) for one in path.rglob("*")}
    else:
        assert mode(path) == 0o644
    path.chmod(rights)
    seen.clear()
    export(kb, path)
    assert mode(path) == rights
    if path.is_dir():
        assert {one: mode(one) for one in path.rglob("*")} == inner
    own = {name for name in seen if form not in {"faiss", "json"} or f".{path.name}." in name}
    assert not any(seen[one] & ~rights & 0o077 for one in own), seen


def test_fault_S7_a_query_log_is_no_wider_than_the_store(kb):
    kb.chmod(0o600)
    log = kb.with_name("log.duckdb")
    with Store(kb, settings=Settings(query_log=log)) as store:
        store.lexical_query("word")
    query_log.query_log(log, kb).flush()
    assert mode(log) == 0o600
    log.chmod(0o640)  # as the user says
    with Store(kb, settings=Settings(query_log=log)) as store:
        store.lexical_query("word")
    query_log.query_log(log, kb).flush()
    assert mode(log) == 0o640


def test_fault_S7_new_files_have_the_rights_that_the_process_gives(kb):
    assert mode(kb) == 0o644
    os.umask(0o007)
    assert mode(build(kb.parent, "new.duckdb", a_md="a")) == 0o660
    os.umask(0o022)


@pytest.mark.parametrize("rights", [0o600, 0o640, 0o644, 0o664])
def test_fault_S7_whoever_may_write_the_file_may_write_its_log(kb, rights):
    kb.chmod(rights)
    with Store(kb, read_only=False) as store:
        with store._database.transaction() as con:
            con.execute("CREATE TABLE mine AS SELECT 1 AS one")
        assert mode(kb.with_name("kb.duckdb.wal")) == rights


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
def test_fault_S7_owner_and_group_stay_where_this_is_permitted(kb):
    os.chown(kb, 1234, 2345)
    sqlrag.compact(kb)
    assert (kb.stat().st_uid, kb.stat().st_gid) == (1234, 2345)


def of_another_group(path):
    """The rights of a file, of a group that the process is not in."""
    found = list(path.stat())
    found[5] += 1
    return os.stat_result(found)


def test_fault_S7_where_the_group_cannot_be_kept_it_gets_no_rights_of_another(kb, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    cases = ((0o640, 0o600), (0o664, 0o644), (0o600, 0o600), (0o604, 0o600), (0o646, 0o644), (0o666, 0o666))
    for before, after in cases:
        kb.chmod(before)
        give_rights(kb, of_another_group(kb))
        assert mode(kb) == after
        kb.chmod(before)
        give_rights(kb, rights_of(kb))
        assert mode(kb) == before


@pytest.mark.parametrize("rights", [0o640, 0o660, 0o664, 0o604, 0o644])
def test_fault_S7_what_is_beside_a_file_of_another_group_is_no_wider_for_anybody(kb, monkeypatch, rights):
    kb.chmod(rights)
    monkeypatch.setattr("sqlrag.engines.duckdb.files.rights_of", lambda path: of_another_group(path))
    with as_narrow_as(kb):
        for name in ("one", "two"):
            kb.with_name(name).touch(0o666)
            assert mode(kb.with_name(name)) & 0o066 == (0o044 if rights & 0o044 == 0o044 else 0)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
def test_fault_S7_nothing_beside_a_file_of_another_group_is_for_that_of_the_process(kb, monkeypatch):
    found = {}

    def look():
        for path in kb.parent.glob("*kb.duckdb*"):
            found.setdefault(path.name.rpartition(".")[2], set()).add((mode(path), path.stat().st_gid))

    class Looking:
        def __init__(self, con):
            self.con = con

        def execute(self, statement):
            look()
            return self.con.execute(statement)

    kb.chmod(0o640)
    os.chown(kb, 0, 2345)
    log = kb.with_name("log.duckdb")
    with Store(kb, read_only=False, settings=Settings(query_log=log)) as store:
        with store._database.transaction() as con:
            con.execute("CREATE TABLE mine AS SELECT 'secret' AS word")
        store.lexical_query("word")
        store._database._handle.checkpoint(Looking(store._database.cursor()))
        copy = sqlrag.backup(kb, kb.with_name("copy.duckdb")).path
    query_log.query_log(log, kb).flush()
    assert set(found) == {"duckdb", "wal", "journal"}
    assert found["wal"] == found["journal"] == found["duckdb"] == {(0o640, 2345)}
    assert (mode(copy), copy.stat().st_gid) == (0o640, 2345)
    assert (mode(log), log.stat().st_gid) == (0o600, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fault_S5_a_child_does_not_keep_the_mask_that_another_thread_narrowed(tmp_path):
    private, inside, done = tmp_path / "private", threading.Event(), threading.Event()
    private.touch(0o600)

    def hold():
        with as_narrow_as(private):
            inside.set()
            done.wait(30)

    def of_child(inner):
        pid = os.fork()
        if pid:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        mask = os.umask(0)
        os.umask(mask)
        inner.close()
        after = os.umask(0)
        os._exit(0 if (mask, after) == expected else 1)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait(30)
    try:
        with ExitStack() as inner:
            expected = 0o022, 0o022
            assert of_child(inner) == 0
            inner.enter_context(as_narrow_as(private))  # in this thread, which goes on in the child
            expected = 0o077, 0o022
            assert of_child(inner) == 0
    finally:
        done.set()
        holder.join()


def test_the_mask_of_the_process_is_narrowed_by_each_and_comes_back(tmp_path):
    private, shared = tmp_path / "private", tmp_path / "shared"
    private.touch(0o600)
    shared.touch(0o640)
    inside, done = threading.Event(), threading.Event()

    def hold():
        with as_narrow_as(private):
            inside.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    with as_narrow_as(shared):
        (tmp_path / "one").touch()
        holder.start()
        inside.wait(30)
        (tmp_path / "two").touch()
    (tmp_path / "three").mkdir()
    done.set()
    holder.join()
    (tmp_path / "four").touch()
    with as_narrow_as(tmp_path / "none"):
        (tmp_path / "five").touch()
    assert [mode(tmp_path / name) for name in ("one", "two", "three", "four", "five")] == [
        0o640, 0o600, 0o700, 0o644, 0o644,
    ]  # fmt: skip
