"""Blocks that are damaged or torn: every one in use is found, a torn checkpoint is undone, a backup is verified."""

import os
import random
import shutil
import subprocess
import sys
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import duckdb
import pytest

import sqlrag
from sqlrag import FormatError, InputError, SqlragError, StoreError, StoreExistsError, StoreLockedError
from sqlrag.engines.duckdb import blocks
from sqlrag.engines.duckdb.database import Handle
from sqlrag.engines.duckdb.files import connect
from tests.support.helpers import build

HEADERS = 12288


def texts(path):
    with sqlrag.Store(path) as store:
        return store.cursor().execute("SELECT doc_id, text FROM documents ORDER BY rid").fetchall()


@pytest.fixture(scope="module")
def updated(tmp_path_factory):
    """A store that was changed in place several times, so that it has free blocks; the offsets of its blocks."""
    path = build(tmp_path_factory.mktemp("blocks"), **{f"p{n}_md": f"# P{n}\n\ncommon word{n}" for n in range(5)})
    for n in range(3):
        sqlrag.add_documents({f"p{n}.md": f"# P{n}\n\ncommon again{n}".encode()}, path)
    sqlrag.delete_documents(path, doc_ids=["p4.md"])
    number = os.open(path, os.O_RDONLY)
    try:
        return path, blocks.read_layout(number)
    finally:
        os.close(number)


def flipped(path, target, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    target.write_bytes(data)
    return target


class TestDamage:
    @pytest.mark.parametrize("step", [6, pytest.param(2, marks=pytest.mark.slow)])
    def test_fault_S3_one_byte_in_every_block_is_found_or_harmless(self, updated, tmp_path, step):
        path, layout = updated
        expected, moments = texts(path), random.Random(3)
        assert layout.free
        ends = path.stat().st_size - layout.offset(0)
        for block in range(1, ends // layout.header.block_size, step):
            at = layout.offset(block)
            bad = flipped(path, tmp_path / "bad.duckdb", at + moments.randrange(layout.header.block_size))
            try:
                found = {problem.check for problem in sqlrag.check(bad)}
            except SqlragError:
                assert block not in layout.free
                continue
            assert found == (set() if block in layout.free else {"damaged_blocks"})
            if block in layout.free:
                assert texts(bad) == expected
            else:
                with pytest.raises(FormatError, match="damaged_blocks, 1 row, such as the block at byte "):
                    sqlrag.verify_file(bad)

    @pytest.mark.parametrize("at", [0, 9, 20, 4096, 4100, 8192, 8200, 12000])
    def test_fault_S3_the_headers(self, updated, tmp_path, at):
        path, _ = updated
        with pytest.raises(SqlragError):
            sqlrag.check(flipped(path, tmp_path / "bad.duckdb", at))

    def test_fault_S3_a_file_that_is_cut_short(self, updated, tmp_path):
        path, layout = updated
        bad = tmp_path / "bad.duckdb"
        data = path.read_bytes()
        last = max(set(range(layout.header.block_count)) - layout.free)
        bad.write_bytes(data[: layout.offset(last) + 100])
        try:
            found = {problem.check for problem in sqlrag.check(bad)}
        except SqlragError:
            return
        assert "damaged_blocks" in found

    @pytest.mark.rest
    @pytest.mark.skipif(duckdb.__version__.startswith("1.3."), reason="DuckDB 1.3 may end the process")
    def test_fault_S13_a_block_of_another_edition_is_found_or_harmless(self, updated, tmp_path):
        path, _ = updated
        newer, mixed, copy = tmp_path / "newer.duckdb", tmp_path / "mixed.duckdb", tmp_path / "copy.duckdb"
        shutil.copy(path, newer)
        for n in range(3):
            sqlrag.add_documents({f"p{n}.md": f"# P{n}\n\ncommon newer{n}".encode()}, newer)
        older_bytes, newer_bytes, found = path.read_bytes(), newer.read_bytes(), 0
        expected = texts(newer)
        size = 262144
        for at in range(HEADERS, min(len(older_bytes), len(newer_bytes)), size):
            older = older_bytes[at : at + size]
            if older == newer_bytes[at : at + size]:
                continue
            mixed.write_bytes(newer_bytes[:at] + older + newer_bytes[at + size :])
            try:
                problems = sqlrag.check(mixed)
            except SqlragError:
                found += 1
                continue
            if problems:
                found += 1
                continue
            assert texts(mixed) == expected
            assert len(sqlrag.lexical_query("newer1", mixed)) == 1
            shutil.copy(mixed, copy)
            sqlrag.add_documents({"p1.md": b"# P1\n\nonce more", "p9.md": b"# P9\n\nnine"}, copy)
            assert sqlrag.check(copy) == []
        assert found

    def test_quick_does_not_read_the_blocks(self, updated, tmp_path):
        path, layout = updated
        bad = tmp_path / "bad.duckdb"
        quiet = 0
        for block in sorted(set(range(layout.header.block_count)) - layout.free):
            flipped(path, bad, layout.offset(block) + 100)
            with suppress(SqlragError):
                quiet += not sqlrag.check(bad, quick=True)
            if quiet:
                return
        raise AssertionError("every block was read")

    @pytest.mark.slow
    def test_a_store_that_is_open_here_keeps_its_lock(self, updated, tmp_path):
        path = shutil.copy(updated[0], tmp_path / "kb.duckdb")
        with sqlrag.Store(path, read_only=False) as store:
            assert store.check() == sqlrag.check(path) == []
            code = f"import duckdb\nduckdb.connect({str(path)!r})"
            other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
            assert "lock" in other.stderr


@pytest.fixture
def checkpointed(updated, tmp_path):
    """A file whose log holds a change; its bytes before and after the checkpoint of it; and the journal of that."""
    path = tmp_path / "kb.duckdb"
    shutil.copy(updated[0], path)
    con = duckdb.connect(str(path))
    con.execute("PRAGMA disable_checkpoint_on_shutdown")
    con.execute("UPDATE embedding_metadata SET value = 'torn' WHERE key = 'sqlrag_version'")
    con.execute("CREATE TABLE mine AS SELECT range AS i FROM range(10)")
    con.close()
    before, log = path.read_bytes(), path.with_name("kb.duckdb.wal").read_bytes()
    assert blocks.write_journal(path, blocks.identity(path)) is not None
    journal = blocks.journal_of(path).read_bytes()
    blocks.journal_of(path).unlink()
    duckdb.connect(str(path)).close()  # a checkpoint
    after = path.read_bytes()
    path.with_name("kb.duckdb.wal").write_bytes(log)
    return path, before, after, journal


@pytest.fixture
def torn(updated, checkpointed):
    """A file whose process died in a checkpoint, each block that it wrote in place torn; and its journal."""
    path, before, after, journal = checkpointed
    _, layout = updated
    half = layout.header.block_size // 2
    data, count = bytearray(before), 0
    for block in layout.metadata:
        at = layout.offset(block)
        count += before[at : at + 2 * half] != after[at : at + 2 * half]
        # The first half is the new one: the checksum is that of a block that never arrived as a whole.
        data[at : at + 64] = after[at : at + 64]
    assert count
    path.write_bytes(data)
    return path, journal


@pytest.fixture
def may_not_write(monkeypatch):
    """Let nothing be opened for writing, nor be deleted."""
    real = Path.open

    def refuse(path, mode="r", *arguments, **named):
        if mode != "r" and mode != "rb":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, mode, *arguments, **named)

    def keep(path, missing_ok=False):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "unlink", keep)


class TestJournal:
    def test_fault_S1_without_the_journal_the_file_is_lost(self, torn):
        path, _ = torn
        with pytest.raises(duckdb.Error, match="checksum"):
            duckdb.connect(str(path))

    @pytest.mark.slow
    @pytest.mark.parametrize("how", ["reading", "writing", "compact", "backup", "build"])
    def test_fault_S1_a_torn_checkpoint_is_undone(self, torn, updated, tmp_path, how):
        path, journal = torn
        blocks.journal_of(path).write_bytes(journal)
        if how == "reading":
            assert texts(path) == texts(updated[0])
        elif how == "writing":
            sqlrag.add_documents({"new.md": b"# New\n\nword"}, path)
        elif how == "compact":
            sqlrag.compact(path)
        elif how == "backup":
            path = sqlrag.backup(path, tmp_path / "copy.duckdb").path
        elif how == "build":
            build(tmp_path, folder="other", options={"overwrite": True}, a_md="# A\n\nword")
        assert not blocks.journal_of(path).exists()
        if how == "build":
            assert texts(path) == [("a.md", "# A\n\nword")]
            return
        assert [row for row in texts(path) if row[0] != "new.md"] == texts(updated[0])
        with sqlrag.Store(path) as store:
            assert store.cursor().execute("SELECT count(*) FROM mine").fetchall() == [(10,)]
        assert {problem.check for problem in sqlrag.check(path)} <= {"log_left_over"}

    @pytest.mark.parametrize("state", ["before", "after"])
    def test_fault_S1_a_whole_file_opens_for_one_who_may_not_write(self, checkpointed, updated, request, state):
        path, before, after, journal = checkpointed
        path.write_bytes(before if state == "before" else after)
        if state == "after":
            os.truncate(path.with_name("kb.duckdb.wal"), 0)
        blocks.journal_of(path).write_bytes(journal)
        request.getfixturevalue("may_not_write")
        assert texts(path) == texts(updated[0])
        with sqlrag.Store(path) as store:
            assert store.cursor().execute("SELECT count(*) FROM mine").fetchall() == [(10,)]
        assert blocks.journal_of(path).read_bytes() == journal

    @pytest.mark.parametrize("header", ["old", "torn"])
    def test_fault_S1_a_mix_of_whole_blocks_is_not_opened_without_its_journal(
        self, checkpointed, updated, request, header
    ):
        path, before, after, journal = checkpointed
        layout = updated[1]
        changed = [
            at
            for at in map(layout.offset, layout.metadata)
            if before[at : at + layout.header.block_size] != after[at : at + layout.header.block_size]
        ]
        data = bytearray(before)
        if header == "old":
            for at in changed:
                data[at : at + layout.header.block_size] = after[at : at + layout.header.block_size]
        else:
            older = min((4096, 8192), key=lambda at: int.from_bytes(before[at + 8 : at + 16], "little"))
            data[older + 8 : older + 16] = after[older + 8 : older + 16]
        path.write_bytes(data)
        blocks.journal_of(path).write_bytes(journal)
        request.getfixturevalue("may_not_write")
        with pytest.raises(StoreError, match=r"cannot be put back: Permission denied\. Open it once where both files"):
            texts(path)
        request.getfixturevalue("monkeypatch").undo()
        assert texts(path) == texts(updated[0])
        assert not blocks.journal_of(path).exists()

    def test_fault_S1_a_torn_file_is_not_opened_without_its_journal(self, torn, request):
        path, journal = torn
        blocks.journal_of(path).write_bytes(journal)
        request.getfixturevalue("may_not_write")
        with pytest.raises(StoreError, match="cannot be put back: Permission denied"):
            texts(path)

    @pytest.mark.slow
    def test_fault_S1_one_who_may_not_write_is_told_that_a_writer_is_at_work(self, updated, tmp_path, request):
        path = shutil.copy(updated[0], tmp_path / "kb.duckdb")
        code = (
            "import sys, sqlrag\nstore = sqlrag.Store(sys.argv[1], read_only=False)\n"
            "print('open', flush=True)\nsys.stdin.read()"
        )
        other = subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            other.stdout.readline()
            # As in the middle of its checkpoint.
            journal = blocks.write_journal(path, blocks.identity(path)).read_bytes()
            entries = journal[64:80] + bytes([journal[80] ^ 1]) + journal[81:]
            blocks.journal_of(path).write_bytes(journal[:32] + sha256(entries).digest() + entries)
            request.getfixturevalue("may_not_write")
            with pytest.raises(StoreLockedError, match="in use by process"):
                sqlrag.Store(path, wait_seconds=0)
        finally:
            other.communicate()

    @pytest.mark.parametrize("way", ["create", "open", "add", "index", "delete", "update", "repair"])
    def test_fault_S1_every_change_in_place_has_a_journal(self, updated, tmp_path, monkeypatch, way):
        path, names = tmp_path / "kb.duckdb", []
        if way != "create":
            shutil.copy(updated[0], path)
        if way == "repair":
            with duckdb.connect(str(path)) as con:
                con.execute("DELETE FROM fts_main_documents.postings")

        def write(of, file):
            names.append(of.name)
            return blocks.write_journal(of, file)

        monkeypatch.setattr("sqlrag.engines.duckdb.database.write_journal", write)
        ways = {
            "create": lambda: sqlrag.Store.create(path, 64),
            "open": lambda: sqlrag.Store(path, read_only=False),
            "add": lambda: sqlrag.add_documents({"n.md": b"n"}, path),
            "index": lambda: sqlrag.index([sqlrag.Chunk("n.md", 0, "n")], path),
            "delete": lambda: sqlrag.delete_documents(path, doc_ids=["p1.md"]),
            "update": lambda: sqlrag.update_embeddings(updated[0].parent / "docs", path, verbose=False),
            "repair": lambda: sqlrag.repair(path),
        }
        made = ways[way]()
        if way in ("create", "open"):
            with made:
                made.cursor().execute("CREATE TABLE mine (i INTEGER)")
        assert "kb.duckdb" in names
        assert sorted(one.name for one in tmp_path.iterdir()) == ["kb.duckdb"]

    def test_a_journal_that_was_not_finished_is_removed(self, torn, updated, tmp_path):
        _, journal = torn
        path = shutil.copy(updated[0], tmp_path / "other.duckdb")
        before = path.read_bytes()
        unflushed = bytes(4096) + journal[4096:]  # its first page did not reach the disk before the power failed
        for content in (b"", journal[:20], journal[:-1], journal[:-1] + bytes([journal[-1] ^ 1]), unflushed):
            blocks.journal_of(path).write_bytes(content)
            assert texts(path)
            assert not blocks.journal_of(path).exists()
            assert path.read_bytes() == before

    def test_a_journal_of_another_edition_changes_nothing(self, torn, tmp_path):
        path, journal = torn
        blocks.journal_of(path).write_bytes(journal)
        sqlrag.add_documents({"new.md": b"# New\n\nword"}, path)  # and its checkpoint
        number = os.open(path, os.O_RDONLY)
        layout = blocks.read_layout(number)
        os.close(number)
        bad = flipped(path, tmp_path / "bad.duckdb", layout.offset(layout.metadata[0]) + 1)
        before = bad.read_bytes()
        blocks.journal_of(bad).write_bytes(journal)
        with pytest.raises(SqlragError):
            texts(bad)
        assert bad.read_bytes() == before

    def test_a_torn_header_is_put_back(self, torn, updated):
        path, journal = torn
        blocks.journal_of(path).write_bytes(journal)
        data = bytearray(path.read_bytes())
        number = os.open(path, os.O_RDONLY)
        older = min((4096, 8192), key=lambda at: int.from_bytes(os.pread(number, 8, at + 8), "little"))
        os.close(number)
        data[older + 8] += 2
        path.write_bytes(data)
        assert texts(path) == texts(updated[0])

    def test_the_journal_is_there_while_a_checkpoint_goes_on_and_has_the_rights_of_the_file(self, updated, tmp_path):
        path = shutil.copy(updated[0], tmp_path / "kb.duckdb")
        path.chmod(0o600)
        handle = Handle(path, connect(path, False, 0), read_only=False)
        handle.connection.execute("CREATE TABLE mine (i INTEGER)")
        seen = []

        class Looking:
            def execute(self, statement):
                seen.append(blocks.journal_of(path).stat().st_mode & 0o777)
                return handle.connection.execute(statement)

        handle.checkpoint(Looking())
        assert seen == [0o600]
        assert not blocks.journal_of(path).exists()
        assert handle.log_bytes() == 0
        handle.close()

    def test_a_journal_that_cannot_be_written_is_not_left(self, updated, tmp_path, monkeypatch):
        path = shutil.copy(updated[0], tmp_path / "kb.duckdb")

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            blocks.write_journal(path, blocks.identity(path))
        assert not blocks.journal_of(path).exists()

    def test_without_a_full_journal_there_is_no_checkpoint(self, updated, tmp_path, monkeypatch):
        path = shutil.copy(updated[0], tmp_path / "kb.duckdb")

        def full(*_):
            raise OSError(28, "No space left on device")

        with sqlrag.Store(path, read_only=False) as store:
            monkeypatch.setattr("sqlrag.engines.duckdb.database.write_journal", full)
            store.cursor().execute("CREATE TABLE mine (i INTEGER)")
            with pytest.raises(StoreError, match="The change itself is kept, in the log"):
                store._database.checkpoint()
        assert path.with_name("kb.duckdb.wal").exists()
        monkeypatch.undo()
        with sqlrag.Store(path, read_only=False) as store:
            assert store.cursor().execute("FROM mine").fetchall() == []
        assert not path.with_name("kb.duckdb.wal").exists()
        assert sqlrag.check(path) == []

    @pytest.mark.slow
    @pytest.mark.parametrize("content", [b"my own notes", None])
    def test_a_file_of_somebody_by_that_name_is_left_alone(self, updated, tmp_path, content):
        path = shutil.copy(updated[0], tmp_path / "kb.duckdb")
        notes = blocks.journal_of(path)
        notes.mkdir() if content is None else notes.write_bytes(content)
        assert texts(path)
        with pytest.raises(StoreError, match=r"kb\.duckdb\.journal could not be written: it is in the way"):
            checkpoint(path)
        assert notes.is_dir() if content is None else notes.read_bytes() == content
        notes.rmdir() if content is None else notes.unlink()
        with sqlrag.Store(path, read_only=False):
            pass
        assert sqlrag.check(path) == []

    @pytest.mark.slow
    @pytest.mark.parametrize("log", [b"garbagegarbage", bytes(4096)])
    def test_fault_S11_a_log_without_a_whole_change_stops_nothing(self, updated, tmp_path, log):
        path = shutil.copy(updated[0], tmp_path / "kb.duckdb")
        left = path.with_name("kb.duckdb.wal")
        left.write_bytes(log)
        assert "log_left_over" in {problem.check for problem in sqlrag.check(path)}
        done = sqlrag.repair(path)
        assert "The log of a killed process held no whole change, and was removed." in done.done
        assert not left.exists()
        left.write_bytes(log)
        sqlrag.compact(path)
        assert not left.exists()
        assert texts(path) == texts(updated[0])

    def test_a_connection_that_joined_checkpoints_by_itself_afterwards(self, updated, tmp_path):
        path = shutil.copy(updated[0], tmp_path / "kb.duckdb")
        store = sqlrag.Store(path, read_only=False)
        joined = duckdb.connect(str(path))
        joined.execute("BEGIN")
        joined.execute("SELECT count(*) FROM documents").fetchall()
        store.cursor().execute("CREATE TABLE mine (i INTEGER)")
        store.close()
        joined.execute("COMMIT")
        assert "TB" not in joined.execute("SELECT current_setting('checkpoint_threshold')").fetchone()[0]
        joined.close()
        assert not path.with_name("kb.duckdb.wal").exists()


def checkpoint(path):
    with sqlrag.Store(path, read_only=False) as store:
        store.cursor().execute("CREATE TABLE mine (i INTEGER)")
        store._database.checkpoint()


class TestBackup:
    def test_the_copy_is_the_same(self, updated, tmp_path):
        done = sqlrag.backup(updated[0], tmp_path / "copy.duckdb")
        assert done.path.read_bytes() == updated[0].read_bytes()
        assert done.bytes == done.path.stat().st_size
        assert str(done.bytes)[0] in str(done)

    def test_beside_a_writer_of_this_process_with_all_that_was_committed(self, updated, tmp_path):
        path = shutil.copy(updated[0], tmp_path / "kb.duckdb")
        with sqlrag.Store(path, read_only=False) as store:
            store.cursor().execute("CREATE TABLE mine AS SELECT 7 AS i")
            done = sqlrag.backup(path, tmp_path / "copy.duckdb")
            store.cursor().execute("INSERT INTO mine VALUES (8)")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["copy.duckdb", "kb.duckdb"]
        with sqlrag.Store(done.path) as copy:
            assert copy.cursor().execute("FROM mine").fetchall() == [(7,)]

    @pytest.mark.rest
    def test_beside_a_reader_and_not_beside_a_writer_of_another_process(self, updated, tmp_path):
        path = shutil.copy(updated[0], tmp_path / "kb.duckdb")
        code = (
            "import sys, sqlrag\nstore = sqlrag.Store(sys.argv[1], read_only=sys.argv[2] == 'r')\n"
            "print('open', flush=True)\nsys.stdin.read()"
        )
        for mode in "rw":
            other = subprocess.Popen(
                [sys.executable, "-c", code, path, mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            try:
                other.stdout.readline()
                if mode == "r":
                    assert sqlrag.check(sqlrag.backup(path, tmp_path / "copy.duckdb").path) == []
                else:
                    with pytest.raises(StoreLockedError):
                        sqlrag.backup(path, tmp_path / "copy2.duckdb", wait_seconds=0)
            finally:
                other.communicate()
        assert not (tmp_path / "copy2.duckdb").exists()

    @pytest.mark.rest
    def test_what_is_refused_leaves_nothing(self, updated, tmp_path):
        path, layout = updated
        target = tmp_path / "copy.duckdb"
        sqlrag.backup(path, target)
        with pytest.raises(StoreExistsError):
            sqlrag.backup(path, target)
        with pytest.raises(InputError, match="overwrite must be True or False"):
            sqlrag.backup(path, target, overwrite="no")
        with pytest.raises(InputError, match="quick must be True or False"):
            sqlrag.check(path, quick="yes")
        with pytest.raises(InputError, match="is the file itself"):
            sqlrag.backup(path, path)
        before, refused = target.read_bytes(), 0
        for block in sorted(set(range(layout.header.block_count)) - layout.free):
            bad = flipped(path, tmp_path / "bad.duckdb", layout.offset(block) + 50)
            with pytest.raises(SqlragError) as error:
                sqlrag.backup(bad, target, overwrite=True)
            refused += "No copy was made" in str(error.value)
        assert refused
        assert target.read_bytes() == before
        assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.duckdb", "copy.duckdb"]
