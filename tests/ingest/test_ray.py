"""Builds on Ray: needs the extra ``ray``. The file is that of the local engine, whatever becomes of the workers.

Ray starts once for most of these tests, with two workers; the embedders below are sent to them.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import numpy as np
import pytest

from sqlrag import Store, progress, update_embeddings
from sqlrag.embedders import HashingEmbedder
from sqlrag.errors import InputError, MissingExtraError, ModelUnavailableError, NotFoundError, ProviderError
from sqlrag.ingest.build import prepare_file
from tests.support.helpers import HASHING, MINILM, ROOT, left_behind, pdf, real_model, write

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray, of the extra ray")

# Ray Data warns of its own ways in every use.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")

# What differs between two builds by the same engine, too.
_TIMES = {"created_at", "failed_at", "started_at", "finished_at", "seconds", "run_id"}
_COUNTS = ("files", "documents", "chunks", "failed", "empty", "reused", "failures", "duplicates", "skipped", "warnings")


@pytest.fixture(scope="module")
def two_workers():
    """Have Ray run in this process, as a program may that uses it for other things, too."""
    from sqlrag.ingest.ray import _ray, check_ray

    check_ray()
    from ray import cloudpickle

    # The embedders below go to workers that cannot import this module.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with _ray(2):
        yield


def contents(path, *, without=()):
    """Return every row of every table, by table, as the rows lie."""
    found = {}
    with duckdb.connect(str(path), read_only=True) as con:
        tables = con.execute("SELECT schema_name, table_name FROM duckdb_tables() ORDER BY ALL").fetchall()
        for schema, table in tables:
            names = [name for name, *_ in con.execute(f"DESCRIBE {schema}.{table}").fetchall()]
            kept = ", ".join(f'"{name}"' for name in names if name not in _TIMES and name not in without)
            found[table] = con.execute(f"SELECT {kept} FROM {schema}.{table} ORDER BY rowid").fetchall()
    # Its rows lie in any order, and one says when.
    found["embedding_metadata"] = sorted(row for row in found["embedding_metadata"] if row[0] != "created_at")
    return found


def both(root, tmp_path, **options):
    """Build a folder by both engines; return the reports, local first, after comparing what can be equal."""
    built = [
        prepare_file(root, tmp_path / f"{engine}.duckdb", engine=engine, **{**HASHING, **options})
        for engine in ("local", "ray")
    ]
    local, by_ray = (one.report for one in built)
    assert [getattr(by_ray, name) for name in _COUNTS] == [getattr(local, name) for name in _COUNTS]
    assert left_behind(tmp_path) == []
    with Store(built[1].path) as store:
        assert store.check() == []
    return local, by_ray


def files(tmp_path):
    """Return a folder of many kinds of files: sound, broken, empty, equal ones, with odd names."""
    root = write(
        tmp_path / "docs",
        a_md="---\ntags: [duck, 1.10]\nwhen: 2024-05-06\n10: x\n9: y\n_node_type: z\n---\n# A\n\nalpha\n\n## B\n\nbeta",
        again__a_md="# Same\n\nthe same words",
        again__b_md="# Same\n\nthe same words",
        again__c_txt="# Same\n\nthe same words",
        bad_md="---\n: [\n---\n\nfront matter that is no YAML",
        broken_pdf=b"%PDF-1.4 nothing",
        empty_md="",
        blank_txt=" \n\n",
        legacy_txt="café à la crème, naïveté".encode("cp1252"),
        long_txt="word " * 3000,
        pages_pdf=pdf("gamma", "", "delta"),
        same_md="",
        zip_txt=b"PK\x03\x04 zip",
        image_png=b"\x89PNG",
    )
    write(root, **{f"more__d{number:02}_md": f"# {number}\n\n" + f"text {number} " * 300 for number in range(20)})
    (root / "a b (1)'s é.md").write_text("# Blank\n\nin its name", encoding="utf-8")
    (root / "cafe\u0301.md").write_text("decomposed", encoding="utf-8")
    Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9.md")).write_text("no UTF-8", encoding="utf-8")
    (root / "link.md").symlink_to(root / "long.txt")
    return root


@needs_ray
@pytest.mark.usefixtures("two_workers")
class TestSameFile:
    @pytest.mark.parametrize("options", [{}, {"skip_duplicates": True, "collection": "notes", "chunk_size": 50}])
    def test_every_row_is_that_of_the_local_engine(self, tmp_path, options):
        local, by_ray = both(files(tmp_path), tmp_path, **options)
        one, other = (
            contents(tmp_path / f"{engine}.duckdb", without={"embedded", "embedding_calls"})
            for engine in ("local", "ray")
        )
        assert other == one
        assert {failure.status for failure in local.failures} == {"failed", "empty"}
        assert len(local.duplicates) == 1
        assert len(local.warnings) >= 2
        assert len(one["documents"]) > 60
        # Equal texts count twice where two workers have one each.
        assert by_ray.embedded >= local.embedded
        assert set(by_ray.seconds) == set(local.seconds)

    @pytest.mark.parametrize("model", [pytest.param(MINILM, marks=real_model)])
    def test_the_handbook_by_a_real_model(self, tmp_path, model):
        both(
            ROOT / "data" / "handbook",
            tmp_path,
            embedding_provider="auto",
            embed_model_name=model,
            chunk_size=200,
            patterns=["guides/filters.md", "*.pdf"],
        )
        paths = [tmp_path / f"{engine}.duckdb" for engine in ("local", "ray")]
        one, other = (contents(path, without={"embedding", "embedded", "embedding_calls"}) for path in paths)
        # Binary codes of vectors whose last bits differ may differ, too; the others may not.
        for table in set(one) - {"binary_codes", "centroids"}:
            assert other[table] == one[table], table
        vectors = []
        for path in paths:
            with duckdb.connect(str(path), read_only=True) as con:
                rows = con.execute("SELECT embedding FROM documents ORDER BY rid").fetchall()
                vectors.append(np.array([row[0] for row in rows]))
        assert np.abs(vectors[0] - vectors[1]).max() < 1e-6


class Hashing(HashingEmbedder):
    """The hashing embedder with a folder, where its workers tell what they have done."""

    def __init__(self, folder):
        super().__init__("hashing-64")
        self.folder = folder


class DiesOnce(Hashing):
    """Ends its process at the word poison, as an out-of-memory killer does, but only once."""

    def embed(self, texts, *, kind):
        if any("poison" in text for text in texts) and not (self.folder / "died").exists():
            (self.folder / "died").write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return super().embed(texts, kind=kind)


class Dies(Hashing):
    """Ends its process at the word poison each time."""

    def embed(self, texts, *, kind):
        if any("poison" in text for text in texts):
            with (self.folder / "deaths").open("a") as file:
                file.write("x")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().embed(texts, kind=kind)


class DiesAtFirst(Hashing):
    """Ends every process that it comes to but the first."""

    def __reduce__(self):
        return _end, (), {}


def _end():
    os.kill(os.getpid(), signal.SIGKILL)


class Refuses(Hashing):
    """Cannot take the word poison."""

    def embed(self, texts, *, kind):
        if any("poison" in text for text in texts):
            raise ValueError("the model refuses it")
        return super().embed(texts, kind=kind)


class GoesDown(Hashing):
    """A server that goes down at the word poison and stays down for everybody."""

    def embed(self, texts, *, kind):
        if (self.folder / "down").exists() or any("poison" in text for text in texts):
            (self.folder / "down").touch()
            raise ConnectionError("the server is gone")
        return super().embed(texts, kind=kind)


class Unpicklable(HashingEmbedder):
    def __reduce__(self):
        raise TypeError("it holds a lock")


def numbered(tmp_path, poisoned=None, count=20):
    """Return a folder of numbered documents, one of which has the word poison."""
    words = {number: " poison" if number == poisoned else "" for number in range(count)}
    return write(tmp_path / "docs", **{f"d{n:02}_md": f"# Number {n}\n\ntext {n}{word}" for n, word in words.items()})


def first_page(data):
    return [f"extracted {len(data)} bytes"]


@needs_ray
@pytest.mark.usefixtures("two_workers")
class TestWorkers:
    def test_a_killed_worker_is_replaced_and_its_documents_are_not_lost(self, tmp_path):
        root = numbered(tmp_path, poisoned=7)
        by_ray = prepare_file(root, tmp_path / "ray.duckdb", engine="ray", embedder=DiesOnce(tmp_path), progress="off")
        assert int((tmp_path / "died").read_text()) != os.getpid()
        assert (by_ray.report.documents, by_ray.report.failures) == (20, [])
        local = prepare_file(root, tmp_path / "local.duckdb", embedder=DiesOnce(tmp_path), progress="off")
        assert contents(by_ray.path, without={"embedding_calls"}) == contents(local.path, without={"embedding_calls"})

    def test_a_document_that_kills_every_worker_is_left_out(self, tmp_path):
        root = numbered(tmp_path, poisoned=7)
        report = prepare_file(
            root, tmp_path / "kb.duckdb", engine="ray", workers=2, embedder=Dies(tmp_path), progress="off"
        ).report
        assert report.documents == 19
        ((doc_id, status, reason),) = report.failures
        assert (doc_id, status) == ("d07.md", "failed")
        assert "3 workers crashed" in reason
        assert 3 <= len((tmp_path / "deaths").read_text()) <= 4

    def test_workers_that_die_before_they_begin_end_the_build(self, tmp_path):
        with pytest.raises(ModelUnavailableError, match="crashed while they loaded the model"):
            prepare_file(
                numbered(tmp_path), tmp_path / "kb.duckdb", engine="ray", embedder=DiesAtFirst(tmp_path), progress="off"
            )
        assert sorted(path.name for path in tmp_path.iterdir()) == ["docs"]

    def test_a_refused_text_fails_its_own_document(self, tmp_path):
        local, _ = both(numbered(tmp_path, poisoned=7), tmp_path, embedder=Refuses(tmp_path))
        assert [failure.doc_id for failure in local.failures] == ["d07.md"]

    def test_an_outage_keeps_what_was_finished_and_an_update_does_the_rest(self, tmp_path):
        path = tmp_path / "kb.duckdb"
        root = numbered(tmp_path, poisoned=7)
        with pytest.raises(ProviderError, match=r"the server is gone.* of 20 documents are in .*update_embeddings"):
            prepare_file(root, path, engine="ray", embedder=GoesDown(tmp_path), progress="off")
        found = contents(path)
        written = [row[0] for row in found["source_documents"]]
        assert written
        assert written == [f"d{number:02}.md" for number in range(len(written))]
        assert len(written) <= 7
        assert len(found["ingest_failures"]) == 20 - len(written)
        (root / "d07.md").write_text("# Number 7\n\nwell again")
        (tmp_path / "down").unlink()
        update = update_embeddings(root, path, embedder=GoesDown(tmp_path), progress="off")
        assert (len(update.unchanged), len(update.added), update.failures) == (len(written), 20 - len(written), [])

    def test_an_outage_leaves_the_old_file(self, tmp_path):
        path = tmp_path / "kb.duckdb"
        root = numbered(tmp_path, poisoned=7)
        prepare_file(root, path, embedder=Hashing(tmp_path), progress="off")
        before = path.read_bytes()
        with pytest.raises(ProviderError, match="is as it was"):
            prepare_file(root, path, engine="ray", overwrite=True, embedder=GoesDown(tmp_path), progress="off")
        assert path.read_bytes() == before

    def test_another_reader_of_pdfs_goes_to_the_workers(self, tmp_path):
        root = write(tmp_path / "docs", a_pdf=pdf("alpha"), b_md="beta")
        local, _ = both(root, tmp_path, pdf_extractor=first_page)
        found = contents(tmp_path / "ray.duckdb")["documents"]
        assert any("extracted" in str(row) for row in found)
        assert local.documents == 2

    def test_the_progress_is_of_what_is_finished_and_ray_is_silent(self, tmp_path, capfd, monkeypatch):
        monkeypatch.setattr(progress, "_EVERY", 0.0)
        root = numbered(tmp_path)
        parts = tmp_path / "parts"
        parts.mkdir()
        prepare_file(
            root, tmp_path / "kb.duckdb", engine="ray", workers=1, parts_dir=parts, **{**HASHING, "progress": "on"}
        )
        out, err = capfd.readouterr()
        assert out == ""
        lines = err.splitlines()
        assert re.search(r"embedding: (\d+) of \1 chunks", err)
        assert any("/20 documents read" in line for line in lines)
        assert all(line.startswith(("embedding: ", "indexing the words: ")) for line in lines)
        assert list(parts.iterdir()) == []


SLOWLY = """
import sys, time
from sqlrag.embedders import HashingEmbedder
from sqlrag.ingest.build import prepare_file


class Slow(HashingEmbedder):
    def embed(self, texts, *, kind):
        time.sleep(0.5)
        return super().embed(texts, kind=kind)


prepare_file(sys.argv[1], sys.argv[2], engine="ray", workers=2, embedder=Slow("hashing-64"), progress="off")
"""


@pytest.mark.slow
@needs_ray
def test_a_killed_build_leaves_no_file_and_the_next_one_cleans_up(tmp_path):
    root, path = numbered(tmp_path), tmp_path / "kb.duckdb"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    building = subprocess.Popen([sys.executable, "-c", SLOWLY, root, path], env=environment)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".kb*.parts/*.journal")) and time.monotonic() < deadline:
        time.sleep(0.05)
    building.kill()
    building.wait()
    assert not path.exists()
    assert len(left_behind(tmp_path)) >= 2

    # By the command line, which starts a Ray of its own and says nothing but what sqlrag has to say.
    command = ["prepare-embeddings", root, "-o", path, "--engine", "ray", "--workers", "2", "--quiet"]
    model = ["--provider", "hashing", "--model", "hashing-64"]
    done = subprocess.run(
        [sys.executable, "-m", "sqlrag", *command, *model], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["docs", "kb.duckdb"]
    assert len(contents(path)["source_documents"]) == 20


@needs_ray
@pytest.mark.usefixtures("two_workers")
def test_ray_reports_to_nobody_and_listens_on_this_machine_alone():
    import ray
    from ray._common.usage.usage_lib import usage_stats_enabled

    assert not usage_stats_enabled()
    assert [node["NodeManagerAddress"] for node in ray.nodes()] == ["127.0.0.1"]


@needs_ray
def test_a_cluster_that_is_not_there(tmp_path):
    environment = {"RAY_ADDRESS": "127.0.0.1:1"}
    code = "import sys\nfrom sqlrag.ingest.build import prepare_file\n"
    code += "prepare_file(*sys.argv[1:], engine='ray', embedding_provider='hashing', embed_model_name='hashing-64')"
    done = subprocess.run(
        [sys.executable, "-c", code, numbered(tmp_path, count=1), tmp_path / "kb.duckdb"],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "ProviderError: Ray at RAY_ADDRESS=127.0.0.1:1 cannot be reached" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs"]


@needs_ray
class TestArguments:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"embedder": Unpicklable("hashing-64")}, "embedder cannot be sent .*it holds a lock.*embed_model_name"),
            ({"pdf_extractor": threading.Lock().acquire, **HASHING}, "pdf_extractor cannot be sent"),
            ({"workers": 0, **HASHING}, "workers must be"),
        ],
    )
    @pytest.mark.usefixtures("two_workers")
    def test_what_cannot_be_sent(self, tmp_path, options, message):
        with pytest.raises(InputError, match=message):
            prepare_file(numbered(tmp_path, count=1), tmp_path / "kb.duckdb", engine="ray", **options)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["docs"]

    def test_a_folder_that_is_not_there(self, tmp_path):
        with pytest.raises(NotFoundError, match="parts_dir"):
            prepare_file(numbered(tmp_path, count=1), tmp_path / "kb.duckdb", engine="ray", parts_dir=tmp_path / "no")


@pytest.mark.parametrize(
    ("options", "message"),
    [({"engine": "spark"}, "engine must be"), ({"workers": 2}, "takes no workers and no parts_dir")],
)
def test_options_that_do_not_fit(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        prepare_file(numbered(tmp_path, count=1), tmp_path / "kb.duckdb", **HASHING, **options)


def test_without_ray(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "ray.data", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'sqlrag-duckdb\[ray\]'"):
        prepare_file(numbered(tmp_path, count=1), tmp_path / "kb.duckdb", engine="ray", **HASHING)
