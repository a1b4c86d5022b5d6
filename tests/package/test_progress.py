"""The progress of long work: what it counts, what it estimates, and where it is shown."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from itertools import pairwise

import pytest

import sqlrag
from sqlrag import progress
from sqlrag.adapters import connection
from sqlrag.embedders.hashing import HashingEmbedder
from sqlrag.progress import Bar, shown


@pytest.fixture
def lines(monkeypatch):
    """Every state of a bar as a line: a moment passes between two of them."""
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    monkeypatch.setattr(progress, "_terminal_bar", lambda *_: None)


class TestBar:
    """What a bar says."""

    def test_the_time_left_follows_the_cost_and_not_the_number(self, monkeypatch):
        clock = iter(float(i) for i in range(1000))
        monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
        with Bar("embedding", "chunk", off=True) as bar:
            bar.expect(10, 1000)
            bar.under_way(5, 100)  # the short half of a batch
            assert bar.done == 5
            began, moment = bar._began, 5.0
            monkeypatch.setattr(progress.time, "monotonic", lambda: began + moment)
            assert bar.seconds_left == pytest.approx(45.0)
            bar.made(10, 1000)
            assert (bar.done, bar.seconds_left) == (10, 0)

    def test_the_total_is_estimated_until_all_documents_are_read(self):
        with Bar("embedding", "chunk", documents=4, off=True) as bar:
            bar.read()
            bar.expect(100)
            assert (bar.total, "about 400 chunks" in bar.line()) == (400, True)
            bar.read(3)
            bar.expect(20)
            assert (bar.total, "0 of 120 chunks" in bar.line()) == (120, True)

    def test_what_is_under_way_is_not_counted_twice(self):
        with Bar("embedding", "chunk", 10, off=True) as bar:
            bar.under_way(4)
            bar.under_way(4)
            assert bar.done == 8
            bar.made(5)  # some of them failed
            assert bar.done == 5

    def test_what_follows_has_no_time_left(self):
        with Bar("embedding", "chunk", 2, off=True) as bar:
            bar.made(2)
            bar.goes_on("indexing the words")
            assert bar.line() == "indexing the words: 2 of 2 chunks"

    @pytest.mark.parametrize(
        ("seconds", "words"), [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (5400, "1 h 30 min")]
    )
    def test_durations(self, seconds, words):
        assert progress._duration(seconds) == words

    def test_lines_without_a_terminal(self, lines, capsys):
        with Bar("pushing", "chunk", 4, off=False) as bar:
            bar.made(1)
        assert re.fullmatch(r"pushing: 1 of 4 chunks, [\d,.]+ chunks/s, \d+ s left\n", capsys.readouterr().err)

    def test_a_function_is_silent_and_a_command_is_not(self, lines, capsys):
        with Bar("checking", "block", 2) as bar:
            bar.made(1)
        assert capsys.readouterr().err == ""
        with shown(True), Bar("checking", "block", 2) as bar:
            bar.made(1)
        assert "checking: 1 of 2 blocks" in capsys.readouterr().err


class NoTerminal(io.StringIO):
    """Says that it is a terminal, and has no descriptor of one, as the consoles of some editors."""

    def isatty(self):
        return True


class Full(io.StringIO):
    """Standard error of which nobody reads any more."""

    def write(self, text):
        raise BrokenPipeError


class TestStandardError:
    @pytest.mark.parametrize("make", [lambda: None, object, NoTerminal, Full], ids=["none", "bare", "tty", "full"])
    def test_work_goes_on_whatever_standard_error_is(self, monkeypatch, tmp_path, make):
        monkeypatch.setattr(progress, "_EVERY", 0.0)
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "a.md").write_text("Some words.")
        monkeypatch.setattr(sys, "stderr", make())
        made = sqlrag.prepare_embeddings(tmp_path / "docs", tmp_path / "kb.duckdb", embedder=HashingEmbedder())
        assert made.report.chunks == 1
        with sqlrag.connect(made.path) as con:
            monkeypatch.setattr(connection, "_BAR_SECONDS", 0.0)
            assert con.sql("SELECT similarity('words', 'some words') > 0").fetchall() == [(True,)]

    def test_a_closed_one(self, monkeypatch):
        closed = io.StringIO()
        closed.close()
        monkeypatch.setattr(sys, "stderr", closed)
        monkeypatch.setattr(progress, "_EVERY", 0.0)
        with Bar("checking", "block", 2, off=False) as bar:
            bar.made(1)
        assert bar.done == 1


class TestWork:
    """What long work says of itself."""

    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "docs").mkdir()
        for page in range(30):
            words = " ".join(f"word{page}x{i}" for i in range(60 + 5 * page))
            (tmp_path / "docs" / f"p{page}.md").write_text(f"# Page {page}\n\n{words}\n")
        return tmp_path / "docs"

    def counts(self, text, title, unit):
        """The pairs of done and total, in order."""
        found = re.findall(rf"{title}: ([\d,]+) of (?:about )?([\d,]+) {unit}s", text)
        return [(int(done.replace(",", "")), int(total.replace(",", ""))) for done, total in found]

    def test_fault_U1_a_build_counts_what_is_embedded_not_what_is_read(self, folder, tmp_path, lines, capsys):
        class Slow(HashingEmbedder):
            batch_size = 16
            seen = ()

            def embed(self, texts, *, kind):
                self.seen = (*self.seen, self.bar_now())
                return super().embed(texts, kind=kind)

            def bar_now(self):
                return capsys.readouterr().err

        model = Slow("hashing-64")
        made = sqlrag.prepare_embeddings(folder, tmp_path / "kb.duckdb", 16, embedder=model, verbose=True)
        said = "".join(model.seen) + capsys.readouterr().err
        counts = self.counts(said, "embedding", "chunk")
        done = [one for one, _ in counts]
        assert done == sorted(done)
        assert len(set(done)) > 10
        assert counts[-1] == (made.report.chunks, made.report.chunks)
        # All documents of a batch are read before anything is embedded, and nothing is said to be done then.
        assert max(one for one, _ in self.counts("".join(model.seen[:2]), "embedding", "chunk")) == 0
        # A step is a batch of the model.
        assert max(after - before for before, after in pairwise(done)) <= 16

    @pytest.mark.slow
    def test_an_update_and_another_model(self, folder, tmp_path, lines, capsys):
        path = sqlrag.prepare_embeddings(
            folder, tmp_path / "kb.duckdb", 16, embedder=HashingEmbedder("hashing-64")
        ).path
        (folder / "p3.md").write_text("# Page 3\n\n" + " ".join(f"new{i}" for i in range(90)))
        capsys.readouterr()
        report = sqlrag.update_embeddings(folder, path, embedder=HashingEmbedder("hashing-64"), verbose=True)
        counts = self.counts(capsys.readouterr().err, "embedding", "chunk")
        assert counts[-1] == (report.chunks, report.chunks)
        again = sqlrag.reembed(path, embedder=HashingEmbedder("hashing-32"), verbose=True)
        counts = self.counts(capsys.readouterr().err, "embedding", "chunk")
        assert counts[-1] == (again.chunks, again.chunks)

    def test_a_provider_that_fails_on_several_texts_moves_the_bar_once(self, folder, tmp_path, lines, capsys):
        class Single(HashingEmbedder):
            def embed(self, texts, *, kind):
                if len(texts) > 3:
                    raise RuntimeError("too many")
                return super().embed(texts, kind=kind)

        made = sqlrag.prepare_embeddings(
            folder, tmp_path / "kb.duckdb", 400, embedder=Single("hashing-64"), verbose=True
        )
        counts = self.counts(capsys.readouterr().err, "embedding", "chunk")
        assert counts[-1] == (made.report.chunks, made.report.chunks)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("words", "title", "unit"),
        [
            (["check", "{db}"], "checking", "block"),
            (["map", "{db}"], "placing the points", "step"),
            (["convert", "{db}", "{db}.ragmd"], "copying", "chunk"),
        ],
    )
    def test_commands_that_work_long(self, folder, tmp_path, words, title, unit):
        path = sqlrag.prepare_embeddings(
            folder, tmp_path / "kb.duckdb", 16, embedder=HashingEmbedder("hashing-64")
        ).path
        code = (
            "import sys; from sqlrag import progress; progress._EVERY = 0.0\n"
            "from sqlrag.cli import main; sys.argv[0] = 'sqlrag'; main()"
        )
        command = [sys.executable, "-c", code, *(word.format(db=path) for word in words)]
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
        assert self.counts(ended.stderr, title, unit)

    @pytest.mark.slow
    @pytest.mark.parametrize("columns", [0, 40, 80])
    def test_fault_U1_a_terminal_of_any_width_has_a_bar(self, folder, tmp_path, columns):
        code = (
            "import sys, sqlrag\n"
            "sqlrag.prepare_embeddings(sys.argv[1], sys.argv[2], 16, 'hashing-64', embedding_provider='hashing', "
            "verbose=True)"
        )
        controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(folder), str(tmp_path / "kb.duckdb")],
            stderr=terminal,
            stdout=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name != "COLUMNS"},
        )
        os.close(terminal)
        shown = b""
        while True:
            try:
                part = os.read(controller, 65536)
            except OSError:  # Linux says so where the other end is closed
                break
            if not part:
                break
            shown += part
        assert process.wait() == 0
        states = [state for state in re.split(r"[\r\n]+", shown.decode()) if "embedding" in state]
        assert states
        assert any("chunks" in state for state in states) or columns == 40
        assert max(map(len, states)) <= (columns or 80), states
