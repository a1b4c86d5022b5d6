"""``sqlrag watch``: real files that change, and a real process that keeps a file up to date with them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import duckdb
import pytest
from typer.testing import CliRunner

from sqlrag import Store, load_embedder, prepare_embeddings
from sqlrag.cli import app
from tests.cli.test_cli import sqlrag_process
from tests.support.embedding_server import Answer, EmbeddingServer, serving
from tests.support.helpers import ROOT, build, write

pytest.importorskip("watchfiles", reason="needs the [watch] extra")

PATH = os.pathsep.join([str(ROOT), *filter(None, sys.path)])


class Watching:
    """A process that watches, and what it has printed."""

    def __init__(self, process, log):
        self.process, self.log = process, log

    @property
    def text(self):
        return self.log.read_text()

    def wait_for(self, pattern, seconds=40):
        until = time.monotonic() + seconds
        while not re.search(pattern, self.text):
            assert time.monotonic() < until, f"no {pattern!r} in:\n{self.text}"
            assert self.process.poll() is None, self.text
            time.sleep(0.1)

    def end(self, number=signal.SIGINT):
        self.process.send_signal(number)
        return self.process.wait(20)


@contextmanager
def watching(*arguments, cwd, **environment):
    log = cwd / "watch.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "sqlrag", "watch", *map(str, arguments)],
            cwd=cwd, env={**os.environ, "PYTHONPATH": PATH, **environment},
            stdout=out, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            yield Watching(process, log)
        finally:
            process.kill()
            process.wait()


def documents(path):
    with Store(path, wait_seconds=20) as store:
        return [row[0] for row in store.cursor().sql("SELECT doc_id FROM sources ORDER BY doc_id").fetchall()]


@pytest.mark.slow
def test_changes_of_a_folder_reach_the_file(tmp_path):
    """Files and folders that are new, changed, renamed, deleted, broken or ignored; and a folder that comes back."""
    kb = build(tmp_path, a_md="mango", b_md="lychee")
    docs = tmp_path / "docs"
    (docs / "b.md").write_text("lychee and plum")  # before it began
    with watching("docs", "--db", kb, cwd=tmp_path) as watch:
        watch.wait_for(r"\d\d:\d\d:\d\d \S*docs: 1 changed \(b\.md\); \d+\.\d s")
        for number in range(30):  # a burst is one update
            (docs / f"n{number:02}.md").write_text(f"page {number}")
            time.sleep(0.02)
        watch.wait_for(r"docs: 30 added \(n00\.md, n01\.md, n02\.md, …\); ")
        for page in docs.glob("n*.md"):
            page.unlink()
        watch.wait_for(r"docs: 30 removed ")
        (docs / "a.md").rename(docs / "c.md")
        watch.wait_for(r"docs: 1 renamed \(a\.md to c\.md\)")
        write(docs, deep__er__d_md="deep words")
        watch.wait_for(r"1 added \(deep/er/d\.md\)")
        (docs / "deep").rename(docs / "low")
        watch.wait_for(r"1 renamed \(deep/er/d\.md to low/er/d\.md\)")
        (docs / "bad.pdf").write_text("no pdf")
        watch.wait_for(r"failed: bad\.pdf: .*\n.*docs: 1 failed; ")
        (docs / ".sqlragignore").write_text("low/\n")
        watch.wait_for(r"1 removed \(low/er/d\.md\)")
        assert documents(kb) == ["b.md", "c.md"]
        docs.rename(tmp_path / "away")
        watch.wait_for(r"docs is not there; waiting for it\. Its documents stay\.")
        assert documents(kb) == ["b.md", "c.md"]
        shutil.copytree(tmp_path / "away", docs)
        (docs / "e.md").write_text("back")
        watch.wait_for(r"1 added \(e\.md\)")
        (docs / "f.md").write_text("watched as before")
        watch.wait_for(r"1 added \(f\.md\)")
        assert watch.text.count("failed: bad.pdf") == 1
        assert watch.end() == 0
    assert documents(kb) == ["b.md", "c.md", "e.md", "f.md"]
    assert not kb.with_name(f"{kb.name}.wal").exists()


@pytest.mark.rest
def test_what_was_ignored_or_not_matched_stays_out(tmp_path):
    docs = write(tmp_path / "docs", a_md="mango", drafts__b_md="draft", c_txt="pump")
    options = {"patterns": ["*.md"], "ignore": ["drafts/"], "embedder": load_embedder("hashing-64", provider="hashing")}
    kb = prepare_embeddings(docs, tmp_path / "kb.duckdb", verbose=False, **options).path
    (docs / "d.md").write_text("new")
    with watching("docs", "--db", kb, cwd=tmp_path) as watch:
        watch.wait_for(r"1 added \(d\.md\)")
    assert documents(kb) == ["a.md", "d.md"]


@pytest.mark.rest
def test_a_folder_without_documents_empties_no_file(tmp_path):
    kb = build(tmp_path, a_md="mango")
    with watching("docs", "--db", kb, cwd=tmp_path) as watch:
        watch.wait_for("Watching")
        time.sleep(2)
        (tmp_path / "docs" / "a.md").unlink()
        watch.wait_for(r"There is no .* file to read in .*docs.*The next change is awaited")
        assert documents(kb) == ["a.md"]
        write(tmp_path / "docs", b_md="plum")
        watch.wait_for(r"1 added \(b\.md\), 1 removed \(a\.md\)")
        assert watch.end(signal.SIGTERM) == 0


@pytest.mark.rest
def test_what_is_kept_without_prune(tmp_path):
    kb = build(tmp_path, a_md="mango", b_md="lychee")
    (tmp_path / "docs" / "a.md").unlink()
    (tmp_path / "docs" / "c.md").write_text("plum")
    with watching("docs", "--no-prune", cwd=tmp_path, SQLRAG_DB=str(kb)) as watch:
        watch.wait_for(r"1 added \(c\.md\); ")
        assert watch.end() == 0
    assert documents(kb) == ["a.md", "b.md", "c.md"]


@pytest.mark.rest
def test_a_file_that_is_in_use_is_waited_for(tmp_path):
    kb = build(tmp_path, a_md="mango")
    write(tmp_path / "docs", b_md="plum")
    holder = duckdb.connect(str(kb))
    with watching("docs", "--db", kb, "--wait", "0", cwd=tmp_path) as watch:
        watch.wait_for(rf"(?s){os.getpid()}.*Trying again")
        time.sleep(4)
        assert watch.text.count("Trying again") == 1
        holder.close()
        watch.wait_for(r"1 added \(b\.md\)")
        assert watch.end() == 0


@pytest.mark.rest
def test_a_server_that_is_down_is_asked_again(tmp_path):
    server = EmbeddingServer()
    with serving(server) as address:
        options = {"embedding_provider": "openai", "embed_model_name": "m", "base_url": f"{address}/v1", "api_key": "k"}
        kb = build(tmp_path, a_md="mango", options=options)

        def down(texts, number):
            raise Answer(401, {"error": "not now"})

        server.faults.append(down)
        write(tmp_path / "docs", b_md="plum")
        with watching("docs", "--db", kb, cwd=tmp_path) as watch:
            watch.wait_for(r"(?s)not now.*Trying again")
            server.faults.clear()
            watch.wait_for(r"1 added \(b\.md\)")
            assert watch.end() == 0
    assert documents(kb) == ["a.md", "b.md"]


@pytest.mark.rest
def test_the_collections_of_the_configuration(tmp_path):
    write(tmp_path, fruit__a_md="mango", tools__b_md="pump")
    (tmp_path / "sqlrag.toml").write_text(
        '[store]\nfile = "kb.duckdb"\n[embedding]\nprovider = "hashing"\nmodel = "hashing-64"\n'
        '[collections.fruit]\nfolder = "fruit"\n[collections.tools]\nfolder = "tools"\n'
    )
    assert sqlrag_process("prepare-embeddings", cwd=tmp_path).returncode == 0
    with watching(cwd=tmp_path) as watch:
        watch.wait_for("Watching")
        write(tmp_path, fruit__c_md="plum", tools__d_md="valve")
        watch.wait_for(r"fruit: 1 added \(fruit:c\.md\)")
        watch.wait_for(r"tools: 1 added \(tools:d\.md\)")
        assert watch.end() == 0


@pytest.mark.rest
def test_what_cannot_begin(tmp_path):
    done = sqlrag_process("watch", "docs", "--db", "none.duckdb", cwd=tmp_path, PYTHONPATH=PATH)
    assert done.returncode == 1
    assert "none.duckdb does not exist. Build it first" in done.stderr
    (tmp_path / "kb.duckdb").write_text("no database, but a text")
    done = sqlrag_process("watch", "dcos", "--db", "kb.duckdb", cwd=tmp_path, PYTHONPATH=PATH)
    assert done.returncode == 1
    assert "dcos is not a folder" in done.stderr
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("mango")
    done = sqlrag_process("watch", "docs", "--db", "kb.duckdb", cwd=tmp_path, PYTHONPATH=PATH)
    assert done.returncode == 1
    assert "not a DuckDB" in done.stderr


@pytest.mark.rest
def test_a_folder_under_a_second_collection_is_told(tmp_path):
    kb = build(tmp_path, a_md="mango")
    with watching("docs", "--db", kb, "--collection", "fruit", cwd=tmp_path) as watch:
        watch.wait_for(r"note: The folder \S*docs is in \S+ as the collections 'default' and 'fruit'.* sqlrag delete")
        write(tmp_path / "docs", b_md="plum")
        watch.wait_for(r"1 added \(fruit:b\.md\)")
        assert watch.text.count("is there twice") == 1
        assert watch.end() == 0


def test_the_only_file_here_is_taken(tmp_path, monkeypatch):
    build(tmp_path, a_md="mango")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SQLRAG_DB", raising=False)
    done = CliRunner().invoke(app, ["watch", "nowhere"])
    assert done.exit_code == 1
    assert "note: the file is kb.duckdb, the only one here" in done.stderr
    assert "nowhere is not a folder" in done.stderr
