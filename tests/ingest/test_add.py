"""add_documents: documents that a program has as bytes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sqlrag
from sqlrag import add_documents
from sqlrag.embedders import remote
from tests.support.embedding_server import Answer, EmbeddingServer, answers, down_after, serving
from tests.support.helpers import pdf, write


@pytest.fixture
def kb(tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "pond.md").write_text("# Pond\n\nDucks swim.")
    (docs / "oven.md").write_text("# Oven\n\nBread rises.")
    return sqlrag.prepare_embeddings(docs, tmp_path / "kb.duckdb", embedding_provider="hashing", verbose=False).path


def documents(kb):
    with sqlrag.Store(kb) as store:
        return dict(store.cursor().execute("SELECT doc_id, text FROM source_documents ORDER BY doc_id").fetchall())


@pytest.mark.slow
def test_new_changed_and_unchanged(kb):
    before = documents(kb)
    given = {"new/a.txt": b"Geese fly.", "pond.md": b"# Pond\n\nSwans swim."}
    report = add_documents(given, kb)
    assert (report.added, report.changed, report.missing, report.removed) == (["new/a.txt"], ["pond.md"], [], [])
    assert documents(kb) == {**before, "new/a.txt": "Geese fly.", "pond.md": "# Pond\n\nSwans swim."}
    again = add_documents(given, kb)
    assert (again.unchanged, again.embedded, again.documents) == (["new/a.txt", "pond.md"], 0, 0)
    assert sqlrag.check(kb) == []


@pytest.mark.slow
def test_where_the_documents_of_a_folder_lie_is_kept(kb, tmp_path):
    add_documents({"oven.md": b"# Oven\n\nBread rises.", "up.md": b"# Up"}, kb)
    report = sqlrag.update_embeddings(tmp_path / "docs", kb, prune=True, verbose=False)
    assert sorted(report.unchanged) == ["oven.md", "pond.md"]
    assert (report.removed, report.failures) == ([], [])
    assert "up.md" in documents(kb)


@pytest.mark.slow
def test_a_folder_does_not_take_back_what_was_put_in(kb, tmp_path):
    add_documents({"pond.md": b"# Pond\n\nSwans swim."}, kb)
    report = sqlrag.update_embeddings(tmp_path / "docs", kb, verbose=False)
    assert [failure.doc_id for failure in report.failures] == ["pond.md"]
    assert documents(kb)["pond.md"].endswith("Swans swim.")


def test_the_same_text_under_another_name_is_not_embedded(kb):
    report = add_documents({"copy.md": b"# Pond\n\nDucks swim."}, kb, collection="up")
    assert (report.added, report.embedded, report.reused) == (["up:copy.md"], 0, 1)


@pytest.mark.parametrize(
    "name",
    [
        *("../x.md", "/etc/x.md", "a/../../x.md", "a//x.md", "", ".", "..", ".hidden.md", "a/.b/x.md", "C:\\x.md"),
        *("c:x.md", "a\\..\\x.md", "x\x00.md", "x\n.md", "x.exe", "x", "a/ /x.md", "x" * 300 + ".md", "up:x.md"),
    ],
)
def test_a_bad_name_stops_no_other_and_leaves_nothing(kb, name, tmp_path):
    before = set(tmp_path.rglob("*"))
    report = add_documents({name: b"# X\n\ntext", "good.md": b"# Good"}, kb)
    assert report.added == ["good.md"]
    assert [failure.status for failure in report.failures] == ["failed"]
    assert set(tmp_path.rglob("*")) == before


def test_wrong_arguments(kb):
    for wrong in ([b"x"], {"a.md": "text"}, {1: b"x"}, None):
        with pytest.raises(sqlrag.InputError):
            add_documents(wrong, kb)
    with pytest.raises(sqlrag.InputError, match="max_bytes"):
        add_documents({}, kb, max_bytes=0)
    assert add_documents({}, kb).documents == 0


def failures(kb):
    with sqlrag.Store(kb) as store:
        return dict(store.cursor().execute("SELECT doc_id, reason FROM ingest_failures ORDER BY doc_id").fetchall())


@pytest.mark.slow
def test_a_folder_does_not_forget_what_failed_to_be_put_in(kb, tmp_path):
    docs = tmp_path / "docs"
    add_documents({"bad.pdf": b"%PDF-1.4 x"}, kb)
    (docs / "worse.pdf").write_bytes(b"%PDF-1.4 x")
    sqlrag.update_embeddings(docs, kb, verbose=False)
    assert list(failures(kb)) == ["bad.pdf", "worse.pdf"]
    (docs / "worse.pdf").unlink()
    sqlrag.update_embeddings(docs, kb, verbose=False, prune=True)
    assert list(failures(kb)) == ["bad.pdf"]
    assert add_documents({"bad.pdf": b"%PDF-1.4 y", "other.pdf": b"%PDF-1.4 x"}, kb).failed == 2
    sqlrag.update_embeddings(docs, kb, verbose=False)
    assert list(failures(kb)) == ["bad.pdf", "other.pdf"]
    add_documents({"other.pdf": pdf("Herons stand.")}, kb)
    assert list(failures(kb)) == ["bad.pdf"]
    (docs / "bad.pdf").write_bytes(pdf("Herons wait."))  # the folder has it now
    sqlrag.update_embeddings(docs, kb, verbose=False)
    assert failures(kb) == {}


@pytest.mark.slow
def test_a_folder_does_not_forget_which_rows_failed(kb, tmp_path):
    source = pa.table({"id": [1, 2], "body": ["a", None]})
    pq.write_table(source, tmp_path / "rows.parquet")
    for collection, given in {"t": source, "u": tmp_path / "rows.parquet"}.items():
        sqlrag.index_rows(given, kb, collection=collection, key="id", text="body", progress="off")
    sqlrag.update_embeddings(tmp_path / "docs", kb, verbose=False)
    assert list(failures(kb)) == ["t/2", "u/2"]


class TestDuplicates:
    @pytest.mark.slow
    def test_fault_S18_T20_they_are_told_and_left_out_on_request(self, kb):
        given = {"twin.md": b"# Pond\n\nDucks swim.", "a.md": b"# New", "b.md": b"# New", "b.txt": b"# New"}
        wanted = [("b.md", "a.md"), ("twin.md", "pond.md")]
        report = add_documents(given, kb, skip_duplicates=True)
        assert (report.added, report.duplicates) == (["a.md", "b.txt"], wanted)
        assert set(documents(kb)) == {"pond.md", "oven.md", "a.md", "b.txt"}
        again = add_documents(given, kb)
        assert (again.added, again.duplicates) == (["b.md", "twin.md"], wanted)
        assert sqlrag.check(kb) == []

    @pytest.mark.slow
    def test_a_stored_document_stays_and_a_changed_one_is_replaced(self, kb):
        report = add_documents({"pond.md": b"# Same", "new.md": b"# Same"}, kb, skip_duplicates=True)
        assert (report.changed, report.added, report.duplicates) == (["pond.md"], [], [("new.md", "pond.md")])
        # The bytes that pond.md had until this call are no other document's any more.
        report = add_documents({"copy.md": b"# Oven\n\nBread rises.", "oven.md": b"# Other"}, kb, skip_duplicates=True)
        assert (report.added, report.changed, report.duplicates) == (["copy.md"], ["oven.md"], [])

    def test_another_collection_is_another_library(self, kb):
        report = add_documents({"pond.md": b"# Pond\n\nDucks swim."}, kb, collection="up", skip_duplicates=True)
        assert (report.added, report.duplicates) == (["up:pond.md"], [])

    def test_only_true_and_false(self, kb):
        with pytest.raises(sqlrag.InputError, match="skip_duplicates"):
            add_documents({}, kb, skip_duplicates="yes")


class TestProviderFails:
    """What becomes of uploads whose provider stops answering."""

    @pytest.fixture
    def server(self, monkeypatch):
        monkeypatch.setattr(remote, "FIRST_WAIT", 0.01)
        monkeypatch.setattr(remote, "LONGEST_WAIT", 0.02)
        return EmbeddingServer()

    @pytest.fixture
    def model(self, server):
        with serving(server) as url:
            yield sqlrag.load_embedder("m", provider="openai", base_url=f"{url}/v1", api_key="none", batch_size=2)

    @pytest.fixture
    def served(self, tmp_path, model):
        docs = write(tmp_path / "docs", old_md="# Old\n\nIt stays.")
        return sqlrag.prepare_embeddings(docs, tmp_path / "kb.duckdb", embedder=model, progress="off").path

    UPLOADS = {f"d{n:02}.md": f"{'w' * n} number{n}".encode() for n in range(40)} | {"zz.pdf": b"%PDF-1.4 x"}

    @pytest.mark.slow
    def test_fault_S18_in_the_middle(self, server, model, served):
        server.requests, server.faults = [], [down_after(11)]
        with pytest.raises(sqlrag.ProviderError, match="Add the others again") as caught:
            add_documents(self.UPLOADS, served, embedder=model)
        report = caught.value.report
        stored = set(documents(served)) - {"old.md"}
        assert stored == set(report.added)
        assert 0 < len(stored) < 40
        assert f"{len(stored)} of 41 documents of this call, new or changed, are stored" in str(caught.value)
        assert "update" not in str(caught.value)
        assert {failure.doc_id for failure in report.failures} == set(self.UPLOADS) - stored
        assert failures(served) == {failure.doc_id: failure.reason for failure in report.failures}
        assert "stopped answering" in failures(served)["d39.md"]
        assert "stopped answering" not in failures(served)["zz.pdf"]

        server.faults = []
        again = add_documents(self.UPLOADS, served, embedder=model)
        assert set(again.unchanged) == stored
        assert set(again.added) == set(self.UPLOADS) - stored - {"zz.pdf"}
        assert set(failures(served)) == {"zz.pdf"}
        assert sqlrag.check(served) == []

    def test_fault_S18_from_the_start(self, server, model, served):
        server.faults = [answers(*[503] * 99)]
        server.requests = []
        given = {"zz.md": b"# Z\n\nnew giraffe", "bad9.pdf": b"%PDF-1.4 x", "old.md": b"# Old\n\nIt stays."}
        with pytest.raises(sqlrag.ProviderError, match=r"0 of 2 documents .* are stored") as caught:
            add_documents(given, served, embedder=model)
        assert set(failures(served)) == {"bad9.pdf", "zz.md"}
        assert "stopped answering" in failures(served)["zz.md"]
        report = caught.value.report
        assert (report.added, report.unchanged, report.failed) == ([], ["old.md"], 2)

    def test_fault_S18_the_file_names_the_model(self, server, model, served):
        server.faults = [answers(*[503] * 99)]
        server.requests = []
        with pytest.raises(sqlrag.ProviderError) as caught:
            add_documents({"zz.md": b"# Z\n\nnew giraffe"}, served)
        assert caught.value.report.failed == 1
        assert set(failures(served)) == {"zz.md"}

    @pytest.mark.slow
    def test_fault_S18_the_server_loses_the_model(self, server, model, served):
        def gone(_, number):
            if number > 11:
                raise Answer(404, {"error": {"message": "model not found"}})

        server.requests, server.faults = [], [gone]
        with pytest.raises(sqlrag.ProviderError, match="404") as caught:
            add_documents(self.UPLOADS, served, embedder=model)
        assert 0 < len(caught.value.report.added) < 40
        assert set(failures(served)) == set(self.UPLOADS) - set(documents(served))

    def test_fault_S18_a_changed_document_keeps_its_old_text(self, server, model, served):
        server.faults = [down_after(0)]
        with pytest.raises(sqlrag.ProviderError):
            add_documents({"old.md": b"# Old\n\nIt goes."}, served, embedder=model)
        assert documents(served) == {"old.md": "# Old\n\nIt stays."}
        assert set(failures(served)) == {"old.md"}

    @pytest.mark.slow
    def test_fault_S18_an_update_marks_what_it_did_not_do(self, server, model, served, tmp_path):
        docs = write(tmp_path / "docs", **{f"d{n:02}_md": f"{'w' * n} number{n}" for n in range(40)})
        (docs / "old.md").rename(docs / "renamed.md")
        server.requests, server.faults = [], [down_after(11)]
        with pytest.raises(sqlrag.ProviderError, match="the next update does the rest") as caught:
            sqlrag.update_embeddings(docs, served, embedder=model, progress="off", prune=True)
        report = caught.value.report
        stored = set(documents(served))
        assert stored == {*report.added, "renamed.md"}
        assert report.renamed == [("old.md", "renamed.md")]
        assert set(failures(served)) == {f"d{n:02}.md" for n in range(40)} - stored != set()
        server.faults = []
        report = sqlrag.update_embeddings(docs, served, embedder=model, progress="off", prune=True)
        assert (len(report.unchanged), failures(served)) == (len(stored), {})
