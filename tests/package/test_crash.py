"""Killed at any moment, with a full disk or in a folder that cannot be written: the file is whole, old or new."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys

import duckdb
import numpy as np
import pytest

import sqlrag
from sqlrag import Store, check, hybrid_query, lexical_query
from sqlrag.engines.duckdb.upgrade import upgrade as upgrade_store
from sqlrag.errors import SchemaVersionError, StoreError
from sqlrag.ingest import run
from tests.support import crash_jobs
from tests.support.crash_jobs import CHUNKS, DIMENSIONS, DOCUMENTS, DONE, UPSERTED, store_of, write_pages
from tests.support.helpers import FIXTURES, HASHING, ROOT, ids, python

SQLROOMS = FIXTURES / "sqlrooms.duckdb.gz"
KILLS = {"build": 10, "rebuild": 6, "update": 10, "upsert": 10, "compact": 6, "repair": 4, "upgrade": 4, "reembed": 4}

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")


@pytest.fixture(autouse=True)
def _batches_as_before(monkeypatch):
    """Jobs that run in this process set another size of batches."""
    monkeypatch.setattr(run, "BATCH_CHUNKS", run.BATCH_CHUNKS)


class Zygote:
    """The process that forks the processes that are killed."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, ROOT / "tests" / "support" / "crash_jobs.py"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip

    def run(self, job, folder, seconds=None):
        self.process.stdin.write(json.dumps({"job": job, "folder": str(folder), "seconds": seconds}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert answer["status"] in (0, -signal.SIGKILL) if seconds is not None else answer["status"] == 0
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def zygote():
    zygote = Zygote()
    yield zygote
    zygote.close()


# Each case: what is there before the job, what may be there after a kill, and what is there after it has run once more.


class Case:
    """A job in a folder of its own; ``check_after_kill`` finds the old or the new state, never anything else."""

    job = ""

    def prepare(self, folder):
        write_pages(folder / "docs", 1)
        crash_jobs.build(folder)

    def check_after_kill(self, folder):
        assert texts(folder) == pages(1)

    def check_when_done(self, folder):
        self.check_after_kill(folder)


class Build(Case):
    job = "build"

    def prepare(self, folder):
        write_pages(folder / "docs", 1)

    def check_after_kill(self, folder):
        if store_of(folder).exists():
            assert texts(folder) == pages(1)

    def check_when_done(self, folder):
        assert texts(folder) == pages(1)


class Rebuild(Case):
    job = "build"

    def prepare(self, folder):
        super().prepare(folder)
        write_pages(folder / "docs", 2)

    def check_after_kill(self, folder):
        assert texts(folder) in (pages(1), pages(2))

    def check_when_done(self, folder):
        assert texts(folder) == pages(2)


class Update(Case):
    """Half of the pages are changed, two are new, two are gone."""

    job = "update"
    NEW = range(DOCUMENTS, DOCUMENTS + 2)

    def prepare(self, folder):
        super().prepare(folder)
        write_pages(folder / "docs", 2, range(DOCUMENTS // 2))
        write_pages(folder / "docs", 2, self.NEW)
        for n in (10, 11):
            (folder / "docs" / f"page{n}.md").unlink()

    def check_after_kill(self, folder):
        found, old, new = texts(folder), pages(1), pages(2, range(DOCUMENTS + 2))
        assert found.keys() <= new.keys()
        for doc_id, chunks in found.items():
            assert chunks in (old.get(doc_id), new[doc_id])
        assert {f"page{n:02}.md" for n in range(10)} <= found.keys()

    def check_when_done(self, folder):
        changed = {**pages(2, range(DOCUMENTS // 2)), **pages(2, self.NEW)}
        assert texts(folder) == {**pages(1, range(DOCUMENTS // 2, 10)), **changed}


class Upsert(Case):
    job = "upsert"

    def prepare(self, folder):
        with Store.create(store_of(folder), DIMENSIONS) as store:
            for n in range(0, UPSERTED, 2):
                crash_jobs.put(store, n, edition=1)

    def check_after_kill(self, folder):
        done = [int(n) for n in (folder / DONE).read_text().split()] if (folder / DONE).exists() else []
        found = texts(folder)
        for n in range(UPSERTED):
            chunks = found.get(f"page{n}")
            old, new = (self.expected(n, edition) for edition in (1, 2))
            if n in done:
                assert chunks == new
            elif n == len(done):  # it was being written
                assert chunks in (old if n % 2 == 0 else None, new)
            else:
                assert chunks == (old if n % 2 == 0 else None)

    def check_when_done(self, folder):
        assert texts(folder) == {f"page{n}": self.expected(n, 2) for n in range(UPSERTED)}

    def expected(self, n, edition):
        return [f"page{n} edition{edition} part{part} common words" for part in range(CHUNKS + edition)]


class Compact(Case):
    job = "compact"


class Repair(Case):
    job = "repair"

    def prepare(self, folder):
        super().prepare(folder)
        with duckdb.connect(str(store_of(folder))) as con:
            con.execute("DELETE FROM fts_main_documents.postings; UPDATE documents SET w0 = 0")

    def check_after_kill(self, folder):
        with Store(store_of(folder)) as store:
            found = {problem.check for problem in store.check()}
            vectors = store.vector_query("page1 edition1", top_k=40, exact=True)
        assert found in (set(), {"wrong_codes", "wrong_frequencies", "wrong_postings"})
        assert len(vectors) == 36

    def check_when_done(self, folder):
        assert texts(folder) == pages(1)


class Upgrade(Case):
    job = "upgrade"

    def prepare(self, folder):
        store_of(folder).write_bytes(gzip.decompress(SQLROOMS.read_bytes()))

    def check_after_kill(self, folder):
        try:
            self.check_when_done(folder)
        except SchemaVersionError:  # the old file, as it was
            assert store_of(folder).read_bytes() == gzip.decompress(SQLROOMS.read_bytes())

    def check_when_done(self, folder):
        assert len(hybrid_query("valve", store_of(folder), query_vector=[1] * 16, top_k=9)) == 6
        with Store(store_of(folder)) as store:
            assert store.check() == []


class Reembed(Case):
    job = "reembed"

    def check_after_kill(self, folder):
        super().check_after_kill(folder)
        assert sqlrag.get_embedding_metadata(store_of(folder))["embedding"]["dimensions"] in (64, 96)

    def check_when_done(self, folder):
        super().check_after_kill(folder)
        assert sqlrag.get_embedding_metadata(store_of(folder))["embedding"]["dimensions"] == 96


CASES = {case.__name__.lower(): case for case in Case.__subclasses__()}


def pages(edition, numbers=range(DOCUMENTS)):
    """Return the chunks of the pages as ``write_pages`` writes them."""
    return {
        f"page{n:02}.md": [
            f"# Part {part}\n\npage{n} edition{edition} part{part} common words" for part in range(CHUNKS)
        ]
        for n in numbers
    }


def texts(folder):
    """Return the chunks of every document of a file that opens and is sound, in both legs."""
    with Store(store_of(folder)) as store:
        assert store.check() == []
        rows = store.cursor().execute("SELECT doc_id, text FROM documents ORDER BY doc_id, chunk_index").fetchall()
        documents = store.cursor().execute("SELECT doc_id FROM source_documents").fetchall()
        assert {doc_id for (doc_id,) in documents} == {doc_id for doc_id, _ in rows}
        for search in (
            lambda: store.lexical_query("common", top_k=500),
            lambda: store.vector_query(query_vector=np.ones(store.dimensions), top_k=500),
        ):
            assert len(search()) == len(rows)
    found = {}
    for doc_id, text in rows:
        found.setdefault(doc_id, []).append(text)
    return found


@pytest.mark.slow
@needs_fork
@pytest.mark.parametrize("name", CASES)
def test_case_J5_killed_at_any_moment(name, tmp_path, zygote):
    case, moments = CASES[name](), random.Random(name)
    folder, start = tmp_path / "work", tmp_path / "start"
    folder.mkdir()
    case.prepare(folder)
    shutil.copytree(folder, start)
    seconds = zygote.run(case.job, folder)["seconds"]
    case.check_when_done(folder)
    killed, tries = 0, 0
    while killed < KILLS[name] and tries < 3 * KILLS[name]:
        tries += 1
        shutil.rmtree(folder)
        shutil.copytree(start, folder)
        answer = zygote.run(case.job, folder, moments.uniform(0.01, seconds))
        killed += answer["status"] == -signal.SIGKILL
        if answer["status"] != -signal.SIGKILL:
            seconds = max(0.02, seconds / 2)  # the first run was slower than this one
        case.check_after_kill(folder)
        (folder / DONE).unlink(missing_ok=True)
        zygote.run(case.job, folder)
        case.check_when_done(folder)
        assert check(store_of(folder)) == []
        assert [file.name for file in folder.iterdir() if "building" in file.name or ".wal" in file.name] == []
    assert killed == KILLS[name]


def test_there_are_enough_kills():
    assert KILLS.keys() == CASES.keys()
    assert sum(KILLS.values()) >= 50


# A full disk and a folder that cannot be written.


def mount(folder, options):
    """Mount a file system in memory, or return False where that is not allowed here."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, check=False
    )
    return done.returncode == 0


@pytest.fixture
def disk(tmp_path):
    """Return a function that makes a small disk; it is taken away at the end."""
    made = []

    def make(size):
        folder = tmp_path / f"disk{len(made)}"
        folder.mkdir()
        if not mount(folder, f"size={size}"):
            pytest.skip("needs root on Linux to mount a small file system")
        made.append(folder)
        return folder

    yield make
    for folder in made:
        subprocess.run(["umount", str(folder)], check=True)


def large_texts():
    rng = random.Random(5)
    return [" ".join(f"{rng.getrandbits(60):x}" for _ in range(3000)) for _ in range(60)]


class TestFullDisk:
    @pytest.mark.slow
    def test_a_build_that_does_not_fit_leaves_its_vectors_only(self, tmp_path, disk):
        folder = disk("2m")
        write_pages(tmp_path / "docs", 1)
        for n, text in enumerate(large_texts()):
            (tmp_path / "docs" / f"large{n}.txt").write_text(text)
        with pytest.raises(
            StoreError, match=r"(?s)kb\.duckdb could not be written.*None was made\. The disk is full"
        ) as told:
            sqlrag.prepare_embeddings(tmp_path / "docs", folder / "kb.duckdb", **HASHING)
        kept = folder / "kb.duckdb.embedded"
        assert list(folder.iterdir()) == [kept]
        assert any(str(kept) in note for note in told.value.__notes__)
        subprocess.run(["mount", "-o", "remount,size=200m", str(folder)], check=True)  # somebody makes room
        assert sqlrag.prepare_embeddings(tmp_path / "docs", folder / "kb.duckdb", **HASHING).report.reused
        assert list(folder.iterdir()) == [folder / "kb.duckdb"]

    @pytest.mark.slow
    @pytest.mark.parametrize("job", ["compact", "reembed", "upgrade"])
    def test_a_copy_that_does_not_fit_leaves_the_old_file(self, tmp_path, disk, job):
        write_pages(tmp_path / "docs", 1)
        crash_jobs.build(tmp_path)
        if job == "upgrade":
            store_of(tmp_path).write_bytes(gzip.decompress(SQLROOMS.read_bytes()))
        content = store_of(tmp_path).read_bytes()
        folder = disk(f"{len(content) // 1024 + 400}k")
        store_of(folder).write_bytes(content)
        with pytest.raises(StoreError, match=r"(?s)could not be written.*is as it was.*The disk is full"):
            crash_jobs.JOBS[job](folder)
        assert store_of(folder).read_bytes() == content
        # An older DuckDB fills the disk before the first batch.
        vectors = ["kb.duckdb.embedded"] if job == "reembed" and not duckdb.__version__.startswith("1.3.") else []
        assert sorted(file.name for file in folder.iterdir()) == ["kb.duckdb", *vectors]

    @pytest.mark.slow
    def test_an_upsert_that_does_not_fit_changes_nothing(self, tmp_path, disk):
        folder = disk("4m")
        with Store.create(store_of(folder), DIMENSIONS) as store:
            crash_jobs.put(store, 1, edition=1)
            before = texts(folder)
            with pytest.raises(StoreError, match=r"(?s)could not be written.*The disk is full"):
                store.upsert(
                    [sqlrag.Document(f"large{n}", text) for n, text in enumerate(large_texts())],
                    [sqlrag.Chunk(f"large{n}", 0, text) for n, text in enumerate(large_texts())],
                    np.ones((60, DIMENSIONS)),
                )
        assert texts(folder) == before
        subprocess.run(["mount", "-o", "remount,size=20m", str(folder)], check=True)  # somebody makes room
        with Store(store_of(folder), read_only=False) as store:
            crash_jobs.put(store, 2, edition=1)
        assert texts(folder).keys() == {"page1", "page2"}

    @pytest.mark.slow
    def test_a_limit_of_the_size_of_files(self, tmp_path):
        """As a full disk, for those who may not mount one: the system refuses to let a file grow."""
        write_pages(tmp_path / "docs", 1)
        crash_jobs.build(tmp_path)
        content = store_of(tmp_path).read_bytes()
        code = (
            "import resource, signal, sys\nfrom pathlib import Path\nfrom tests.support import crash_jobs\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))\n"
            "try: crash_jobs.JOBS[sys.argv[1]](Path(sys.argv[2]))\n"
            "except crash_jobs.sqlrag.StoreError as error: print(error)\n"
        )
        pytest.importorskip("resource")
        for job in ("build", "compact", "reembed"):
            printed = python(code, job, tmp_path, PYTHONDONTWRITEBYTECODE="1")  # it would keep what was cut off
            assert str(tmp_path) in printed, job
            assert store_of(tmp_path).read_bytes() == content
            vectors = [] if job == "compact" else ["kb.duckdb.embedded"]
            assert sorted(file.name for file in tmp_path.iterdir()) == ["docs", "kb.duckdb", *vectors]
            for file in vectors:
                (tmp_path / file).unlink()


class TestReadOnlyFolder:
    @pytest.fixture
    def folder(self, tmp_path):
        """Return a folder with a store and pages, which nobody can write to, root neither."""
        folder = tmp_path / "shelf"
        folder.mkdir()
        if mount(folder, "size=20m"):
            write_pages(folder / "docs", 1)
            crash_jobs.build(folder)
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
            yield folder
            subprocess.run(["umount", str(folder)], check=True)
        elif os.geteuid() == 0:
            pytest.skip("root may write everywhere, and cannot mount here")
        else:
            write_pages(folder / "docs", 1)
            crash_jobs.build(folder)
            store_of(folder).chmod(0o444)
            folder.chmod(0o555)
            yield folder
            folder.chmod(0o755)

    @pytest.mark.slow
    def test_it_is_searched(self, folder):
        assert texts(folder) == pages(1)
        assert ids(lexical_query("page3", store_of(folder), top_k=1)) == ["page03.md#0"]
        assert check(store_of(folder)) == []

    @pytest.mark.parametrize("job", ["build", "compact", "repair", "reembed", "update", "upsert"])
    def test_what_would_write_says_so_and_changes_nothing(self, folder, job):
        content = store_of(folder).read_bytes()
        with pytest.raises((StoreError, OSError)) as caught:
            crash_jobs.JOBS[job](folder)
        assert isinstance(caught.value, StoreError), caught.value
        assert str(folder) in str(caught.value)
        assert store_of(folder).read_bytes() == content

    def test_an_upgrade_as_well(self, folder):
        assert upgrade_store(store_of(folder)).steps == ()
