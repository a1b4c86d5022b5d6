"""What an interrupted run keeps beside its output, and what the next run makes of it."""

from __future__ import annotations

import errno
import io
import json
import os

import duckdb
import pytest
from typer.testing import CliRunner

import sqlrag
from sqlrag.cli.app import app
from sqlrag.embedders import PROBE_TEXT, HashingEmbedder
from sqlrag.embedders.batching import RefusedBatchError
from sqlrag.errors import NotFoundError, ProviderError, StoreError
from tests.support.helpers import write

PAGES = 12
SIZE = 4  # texts a call
RECORD = 32 + 4 + 64 * 4 + 4  # bytes: the digest, how much was embedded, the vector, the checksum


class Stopping(HashingEmbedder):
    """Raises an error in place of its n-th answer; ``sent`` are the texts that were embedded."""

    batch_size = SIZE

    def __init__(self, after=10**9, error=KeyboardInterrupt, dimensions=64):
        super().__init__(f"hashing-{dimensions}")
        self.after, self.error, self.sent = after, error, []

    def embed(self, texts, *, kind):
        if list(texts) == [PROBE_TEXT]:
            return super().embed(texts, kind=kind)
        if len(self.sent) >= self.after * SIZE:
            raise self.error
        if any(len(text) > 400 for text in texts):
            raise RefusedBatchError("the input is too long", too_large=True)
        self.sent += texts
        return super().embed(texts, kind=kind)


@pytest.fixture
def folder(tmp_path):
    """Twelve pages, one of which is longer than the model takes."""
    pages = {f"p{n:02}_md": f"# Page {n}\n\nword{n} salt\n" for n in range(PAGES)}
    write(tmp_path / "docs", **pages)
    (tmp_path / "docs" / "p00.md").write_text("# Page 0\n\n" + "long " * 120)
    return tmp_path


def build(folder, model, **options):
    return sqlrag.prepare_embeddings(
        folder / "docs", folder / "kb.duckdb", embedder=model, progress="off", verbose=False, **options
    ).report


def interrupted(folder, after=2, error=KeyboardInterrupt, do=build, **options):
    """Run until so many texts are embedded; return the notes of the error, and what was embedded."""
    model = Stopping(after, error)
    with pytest.raises(error) as raised:
        do(folder, model, **options)
    return getattr(raised.value, "__notes__", []), model.sent


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def rows(path):
    with duckdb.connect(str(path), read_only=True) as con:
        return con.execute("SELECT node_id, text, embedding, metadata_ FROM documents ORDER BY node_id").fetchall()


def head_of(path):
    return path.read_bytes().partition(b"\n")[0] + b"\n"


class TestBuild:
    @pytest.mark.slow
    def test_it_goes_on_where_it_stopped(self, folder, tmp_path_factory):
        notes, first = interrupted(folder)
        kept = folder / "kb.duckdb.embedded"
        assert notes == [
            f"{len(first)} of {PAGES} chunks are embedded and kept in {kept}; the same command goes on from there."
        ]
        assert names(folder) == ["docs", "kb.duckdb.embedded"]
        for reading in (sqlrag.get_embedding_metadata, sqlrag.Store):
            with pytest.raises(NotFoundError, match=r"interrupted: one like it goes on from the .* kb.duckdb.embedded"):
                reading(folder / "kb.duckdb")

        model = Stopping()
        report = build(folder, model)
        assert names(folder) == ["docs", "kb.duckdb"]
        assert not set(model.sent) & set(first)
        assert len(model.sent) + len(first) == PAGES
        assert (report.embedded, report.reused) == (len(model.sent), len(first))
        assert any(
            note
            == f"The vectors of {len(first)} of {len(first)} texts, kept in kb.duckdb.embedded by an interrupted run, "
            "were used."
            for note in report.warnings
        )
        # The file is the one that is made at once; what was cut off is known, too.
        once = tmp_path_factory.mktemp("once")
        (folder / "docs").rename(once / "docs")
        build(once, Stopping())
        assert rows(folder / "kb.duckdb") == rows(once / "kb.duckdb")
        assert json.loads(rows(once / "kb.duckdb")[0][3])["truncated"] is True

    def test_a_text_that_was_cut_off_is_known_to_be(self, folder, monkeypatch):
        monkeypatch.setattr("sqlrag.ingest.run.BATCH_CHUNKS", SIZE)
        _, sent = interrupted(folder, after=1)
        assert any(text.startswith("Page 0") for text in sent)
        model = Stopping()
        report = build(folder, model)
        assert not any(text.startswith("Page 0") for text in model.sent)
        assert any("p00.md#0: the model takes no more than the first" in note for note in report.warnings)

    def test_it_is_interrupted_again_and_again(self, folder):
        everything = []
        for _ in range(2):
            notes, sent = interrupted(folder, after=1)
            everything += sent
            assert notes[0].startswith(f"{len(everything)} of {PAGES} chunks")
        model = Stopping()
        build(folder, model)
        everything += model.sent
        assert len(everything) == len(set(everything)) == PAGES

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
    def test_nothing_is_left_where_nothing_was_embedded(self, folder, error):
        told = ["The first batch of the model was not finished, so nothing was kept."]
        assert interrupted(folder, after=0, error=error) == (told, [])
        assert names(folder) == ["docs"]

    @pytest.mark.slow
    def test_what_was_to_be_overwritten_stays(self, folder):
        build(folder, Stopping())
        before = (folder / "kb.duckdb").read_bytes()
        for page in (folder / "docs").iterdir():
            page.write_text(page.read_text() + " more")
        _, sent = interrupted(folder, overwrite=True)
        assert names(folder) == ["docs", "kb.duckdb", "kb.duckdb.embedded"]
        assert (folder / "kb.duckdb").read_bytes() == before
        model = Stopping()
        build(folder, model, overwrite=True)
        assert (names(folder), len(model.sent)) == (["docs", "kb.duckdb"], PAGES - len(sent))

    def test_a_provider_that_dies_before_the_first_document(self, folder):
        class Dies(Stopping):
            def embed(self, texts, *, kind):
                if len(self.sent) == 2 * SIZE:  # it does not answer any more, not even to the probe
                    raise ProviderError("gone")
                return super().embed(texts, kind=kind)

        (folder / "docs" / "p01.md").write_text("\n\n".join(f"# Part {n}\n\nword{n}" for n in range(40)))
        for page in (*range(2, PAGES), 0):
            (folder / "docs" / f"p{page:02}.md").unlink()
        with pytest.raises(ProviderError, match="no file was made") as raised:
            build(folder, Dies())
        assert "8 of 40 chunks are embedded and kept" in raised.value.__notes__[0]
        assert names(folder) == ["docs", "kb.duckdb.embedded"]


class TestFile:
    def kept(self, folder, data):
        interrupted(folder)
        path = folder / "kb.duckdb.embedded"
        path.write_bytes(data(path.read_bytes(), len(head_of(path))))
        return path

    def test_it_is_written_as_it_says(self, folder):
        _, sent = interrupted(folder)
        path = folder / "kb.duckdb.embedded"
        assert len(path.read_bytes()) == len(head_of(path)) + len(sent) * RECORD

    @pytest.mark.parametrize("cut", [RECORD - 1, RECORD + 1])
    def test_a_torn_end_is_embedded_again(self, folder, cut):
        _, sent = interrupted(folder)
        path = folder / "kb.duckdb.embedded"
        path.write_bytes(path.read_bytes()[:-cut])
        whole = len(sent) - 1 - (cut > RECORD)
        notes, _ = interrupted(folder, after=1)
        assert notes[0].startswith(f"{whole + SIZE} of {PAGES} chunks")
        model = Stopping()
        build(folder, model)
        assert (names(folder), len(model.sent)) == (["docs", "kb.duckdb"], PAGES - whole - SIZE)

    def test_a_damaged_vector_is_embedded_again(self, folder):
        path = self.kept(folder, lambda data, head: data[: head + 40] + b"\xff" + data[head + 41 :])
        before = (len(path.read_bytes()) - len(head_of(path))) // RECORD
        model = Stopping()
        report = build(folder, model)
        assert len(model.sent) == PAGES - before + 1
        assert "kb.duckdb.embedded is damaged: what it had lost was embedded again." in report.warnings
        assert names(folder) == ["docs", "kb.duckdb"]

    @pytest.mark.parametrize("lost", ["a part", "all"])
    def test_a_head_that_was_not_written_is_written_again(self, folder, lost):
        self.kept(folder, lambda data, head: data[: {"a part": head - 3, "all": 0}[lost]])
        notes, sent = interrupted(folder, after=1)
        assert notes[0].startswith(f"{len(sent)} of {PAGES} chunks")
        build(folder, Stopping())
        assert names(folder) == ["docs", "kb.duckdb"]

    def test_a_head_that_is_damaged(self, folder):
        self.kept(folder, lambda data, head: data[: head - 5] + b"???" + data[head - 2 :])
        model = Stopping()
        report = build(folder, model)
        assert len(model.sent) == PAGES
        assert any("or was damaged: it begins anew" in note for note in report.warnings)
        assert names(folder) == ["docs", "kb.duckdb"]

    @pytest.mark.parametrize("head", [b"[" * 200_000, b'{"fingerprint": [1' + b"0" * 400 + b"]}"])
    def test_a_head_that_cannot_be_read(self, folder, head):
        (folder / "kb.duckdb.embedded").write_bytes(b"sqlrag embedded texts 1 " + head + b"\n")
        report = build(folder, Stopping())
        assert any("or was damaged: it begins anew" in note for note in report.warnings)
        assert names(folder) == ["docs", "kb.duckdb"]

    @pytest.mark.skipif(os.name == "nt", reason="needs POSIX")
    @pytest.mark.parametrize("made", ["link", "pipe"])
    def test_what_is_no_file_is_neither_followed_nor_waited_for(self, folder, tmp_path, made):
        path = folder / "kb.duckdb.embedded"
        if made == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(tmp_path / "elsewhere")
        report = build(folder, Stopping())
        assert any("cannot be used, so an interruption would lose work" in note for note in report.warnings)
        assert (folder / "kb.duckdb").exists()
        assert not (tmp_path / "elsewhere").exists()

    def test_zeros_are_what_a_loss_of_power_leaves(self, folder):
        (folder / "kb.duckdb.embedded").write_bytes(bytes(1000))
        build(folder, Stopping())
        assert names(folder) == ["docs", "kb.duckdb"]

    @pytest.mark.parametrize("data", [b"my notes", bytes(1000) + b"my notes"])
    def test_a_file_of_the_users_is_left_as_it_is(self, folder, data):
        path = folder / "kb.duckdb.embedded"
        path.write_bytes(data)
        assert interrupted(folder)[0] == []
        report = build(folder, Stopping())
        assert any("is not what an interrupted run keeps. It is left as it is" in note for note in report.warnings)
        assert path.read_bytes() == data

    def test_vectors_of_another_model_are_replaced(self, folder):
        interrupted(folder)
        model = Stopping(dimensions=96)
        report = build(folder, model)
        assert len(model.sent) == PAGES
        assert any(note.startswith("kb.duckdb.embedded had vectors of another model") for note in report.warnings)
        assert names(folder) == ["docs", "kb.duckdb"]

    def test_a_full_disk_does_not_end_the_run(self, folder, monkeypatch):
        class Full(io.FileIO):
            def write(self, data):
                if data.startswith(b"sqlrag"):
                    return super().write(data)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr("sqlrag.ingest.kept._locked", lambda path: Full(path, "w+"))
        report = build(folder, Stopping())
        said = [note for note in report.warnings if "No space left" in note]
        assert len(said) == 1
        assert said[0].startswith("kb.duckdb.embedded could not be written, so an interruption would lose work: ")
        assert names(folder) == ["docs", "kb.duckdb"]

    @pytest.mark.slow
    def test_two_runs_of_one_output(self, folder):
        """The second one finds the file in use: it neither reads it nor removes it."""
        other = []

        class Twice(Stopping):
            def embed(self, texts, *, kind):
                if len(self.sent) == 2 * SIZE and not other:
                    other.append(build(folder, Stopping()))
                return super().embed(texts, kind=kind)

        with pytest.raises(StoreError):
            build(folder, Twice())
        assert other[0].embedded == PAGES
        assert names(folder) == ["docs", "kb.duckdb", "kb.duckdb.embedded"]
        build(folder, Stopping(), overwrite=True)
        assert names(folder) == ["docs", "kb.duckdb"]


class TestOtherRuns:
    @pytest.mark.slow
    def test_an_update_uses_it(self, folder):
        build(folder, Stopping())
        for page in (folder / "docs").iterdir():
            page.write_text(page.read_text() + " more")
        _, sent = interrupted(folder, overwrite=True)
        model = Stopping()
        report = sqlrag.update_embeddings(folder / "docs", folder / "kb.duckdb", embedder=model, progress="off")
        assert (len(model.sent), report.reused) == (PAGES - len(sent), len(sent))
        assert names(folder) == ["docs", "kb.duckdb"]

    @pytest.mark.slow
    def test_an_update_says_how_far_it_was(self, folder, monkeypatch):
        build(folder, Stopping())
        for page in (folder / "docs").iterdir():
            page.write_text(page.read_text() + " more")
        monkeypatch.setattr("sqlrag.ingest.run.BATCH_CHUNKS", SIZE)
        db = folder / "kb.duckdb"

        def update(folder, model):
            return sqlrag.update_embeddings(folder / "docs", db, embedder=model, progress="off")

        notes, _ = interrupted(folder, after=2, do=update)
        assert notes == [f"8 of {PAGES} chunks are in {db}; the next update goes on from there."]
        assert names(folder) == ["docs", "kb.duckdb"]
        assert len(update(folder, Stopping()).changed) == PAGES - 8

    @pytest.mark.slow
    def test_an_update_keeps_what_it_embeds_many_at_a_time(self, folder, monkeypatch):
        build(folder, Stopping())
        for page in (folder / "docs").iterdir():
            page.write_text(page.read_text() + " more")
        monkeypatch.setattr("sqlrag.ingest.kept.FEW", PAGES - 1)
        db = folder / "kb.duckdb"

        def update(folder, model):
            return sqlrag.update_embeddings(folder / "docs", db, embedder=model, progress="off")

        notes, sent = interrupted(folder, after=2, do=update)
        far = f"{len(sent)} of {PAGES} chunks are embedded and kept in {db}.embedded"
        assert notes == [f"{far}; the same command goes on from there."]
        assert names(folder) == ["docs", "kb.duckdb", "kb.duckdb.embedded"]
        # What is kept of another model, by a reembed that was interrupted, is left to the run that goes on with it.
        kept = (folder / "kb.duckdb.embedded").read_bytes()
        (folder / "kb.duckdb.embedded").write_bytes(kept.replace(b'"dimensions": ', b'"dimensions": 1', 1))
        foreign = (folder / "kb.duckdb.embedded").read_bytes()
        interrupted(folder, after=1, do=update)
        assert (folder / "kb.duckdb.embedded").read_bytes() == foreign
        (folder / "kb.duckdb.embedded").write_bytes(kept)
        model = Stopping()
        report = update(folder, model)
        assert (len(model.sent), report.reused) == (PAGES - len(sent), len(sent))
        assert names(folder) == ["docs", "kb.duckdb"]
        assert not sqlrag.check(db)

    def test_what_an_update_does_not_need_is_kept_for_the_one_that_was_interrupted(self, folder, monkeypatch):
        build(folder, Stopping())
        write(folder / "more", **{f"m{n:02}_md": f"# More {n}\n\nfish{n} salt\n" for n in range(PAGES)})
        monkeypatch.setattr("sqlrag.ingest.kept.FEW", PAGES - 1)
        db = folder / "kb.duckdb"

        def more(folder, model):
            return sqlrag.update_embeddings(folder / "more", db, collection="more", embedder=model, progress="off")

        def docs(**options):
            return sqlrag.update_embeddings(
                folder / "docs", db, embedder=Stopping(), progress="off", **options
            ).warnings

        _, sent = interrupted(folder, after=2, do=more)
        left = (folder / "kb.duckdb.embedded").read_bytes()
        told = f"kb.duckdb.embedded has the vectors of {len(sent)} texts that an interrupted run embedded"
        assert any(told in note for note in docs(dry_run=True))
        assert told in CliRunner().invoke(app, ["doctor", str(db), "--format", "json"]).stdout
        for page in (folder / "docs").iterdir():  # so that it has vectors of its own to keep
            page.write_text(page.read_text() + " more")
        assert any(told in note and "delete that file" in note for note in docs())
        assert (folder / "kb.duckdb.embedded").read_bytes() == left
        model = Stopping()
        report = more(folder, model)
        assert (len(model.sent), report.reused) == (PAGES - len(sent), len(sent))
        assert names(folder) == ["docs", "kb.duckdb", "more"]
        assert docs() == docs(dry_run=True) == []

    @pytest.mark.slow
    def test_reembed_goes_on(self, folder):
        build(folder, Stopping())
        before = (folder / "kb.duckdb").read_bytes()

        def reembed(folder, model):
            return sqlrag.reembed(folder / "kb.duckdb", embedder=model, progress="off")

        model = Stopping(2, dimensions=96)
        with pytest.raises(KeyboardInterrupt) as raised:
            reembed(folder, model)
        assert f"{len(model.sent)} of {PAGES} chunks are embedded and kept" in raised.value.__notes__[0]
        assert (folder / "kb.duckdb").read_bytes() == before
        # An update with the old model does not touch it.
        sqlrag.update_embeddings(folder / "docs", folder / "kb.duckdb", embedder=Stopping(), progress="off")
        assert names(folder) == ["docs", "kb.duckdb", "kb.duckdb.embedded"]
        rest = Stopping(dimensions=96)
        report = reembed(folder, rest)
        assert (len(rest.sent), report.embedded) == (PAGES - len(model.sent),) * 2
        assert any("kept in kb.duckdb.embedded by an interrupted run, were used" in note for note in report.warnings)
        assert names(folder) == ["docs", "kb.duckdb"]

    def test_rows_go_on(self, folder):
        import pyarrow as pa

        table = pa.table({"id": range(PAGES), "body": [f"word{n} salt" for n in range(PAGES)]})

        def index(folder, model):
            return sqlrag.index_rows(
                table, folder / "kb.duckdb", key="id", text="body", collection="t", embedder=model, progress="off"
            )

        notes, sent = interrupted(folder, do=index)
        far = f"{len(sent)} texts of {PAGES} rows are embedded and kept in {folder / 'kb.duckdb.embedded'}"
        assert notes == [f"{far}; the same command goes on from there."]
        model = Stopping()
        report = index(folder, model)
        assert (len(model.sent), report.added) == (PAGES - len(sent), PAGES)
        assert names(folder) == ["docs", "kb.duckdb"]
