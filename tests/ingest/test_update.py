"""Updating a file from its folder: what is done, what it costs, and that the file equals one built from scratch."""

from __future__ import annotations

import os
import random
import re
import shutil
import threading

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sqlrag
from sqlrag import (
    Chunk,
    Document,
    Store,
    check,
    delete_documents,
    lexical_query,
    prepare_embeddings,
    repair,
    update_embeddings,
)
from sqlrag.arguments import with_commands
from sqlrag.embedders import PROBE_TEXT, HashingEmbedder
from sqlrag.errors import InputError, ModelMismatchError, ModelUnavailableError, NotFoundError
from sqlrag.ingest import run
from sqlrag.ingest.update import folders_of
from tests.support.helpers import HASHING, Recorder, build, ids, pdf, python, write

QUIET = {"progress": "off"}

# Everything in a file but the numbers of rows and terms, and when it was made.
TABLES = {
    "documents": "SELECT * EXCLUDE rid FROM documents ORDER BY node_id",
    "sources": "SELECT * EXCLUDE created_at FROM source_documents ORDER BY doc_id",
    "postings": "SELECT d.node_id, t.term, p.tf, p.heading_tf, p.len, p.heading_len FROM fts_main_documents.postings p "
    "JOIN documents d USING (rid) JOIN fts_main_documents.dict t USING (termid) ORDER BY ALL",
    "postings_without_chunk_or_term": "SELECT count(*) FROM fts_main_documents.postings p "
    "LEFT JOIN documents d USING (rid) LEFT JOIN fts_main_documents.dict t USING (termid) "
    "WHERE d.rid IS NULL OR t.term IS NULL",
    "dict": "SELECT term, df FROM fts_main_documents.dict ORDER BY term",
    "words": "SELECT word, term, df FROM fts_main_documents.words ORDER BY word",
    "lengths": "SELECT node_id, i.* EXCLUDE rid FROM fts_main_documents.docs i JOIN documents USING (rid) ORDER BY ALL",
    "stats": "FROM fts_main_documents.stats",
    "metadata": "SELECT key, value FROM embedding_metadata WHERE key <> 'created_at' ORDER BY key",
    "failures": "SELECT doc_id, status, reason FROM ingest_failures ORDER BY doc_id",
    "collections": "SELECT collection, input_dir FROM collections ORDER BY collection",
}


def contents(path):
    with duckdb.connect(str(path), read_only=True) as con:
        return {name: con.execute(sql).fetchall() for name, sql in TABLES.items()}


def rows(path, sql):
    with duckdb.connect(str(path), read_only=True) as con:
        return con.execute(sql).fetchall()


def assert_as_from_scratch(path, root, tmp_path, **options):
    """The file equals one that is built from the folder as it is now."""
    fresh = prepare_embeddings(root, tmp_path / "fresh.duckdb", overwrite=True, **{**HASHING, **options}).path
    found, wanted = contents(path), contents(fresh)
    for name in TABLES:
        assert found[name] == wanted[name], name


def update(root, path, **options):
    return update_embeddings(root, path, **{**QUIET, **options})


def pages(n, words="lorem ipsum dolor sit amet"):
    return "".join(f"# Part {i}\n\n{words} number{i}\n\n" for i in range(n))


class TestWhatIsDone:
    @pytest.mark.slow
    def test_each_file_is_in_one_list(self, tmp_path):
        path = build(
            tmp_path, same_md="same", edit_md="old words", gone_md="gone", old_md="# T\n\nmoves", fails_md="fine"
        )
        root = tmp_path / "docs"
        (root / "edit.md").write_text("new words")
        (root / "gone.md").unlink()
        (root / "old.md").rename(root / "moved.md")
        (root / "fails.md").write_bytes(b"\x00\x01\x02" * 100)
        write(root, new_md="brand new", empty_md="")
        report = update(root, path, prune=True)
        assert (report.added, report.changed, report.unchanged) == (["new.md"], ["edit.md"], ["same.md"])
        assert (report.renamed, report.removed, report.missing) == ([("old.md", "moved.md")], ["gone.md"], [])
        assert [(f.doc_id, f.status) for f in report.failures] == [("empty.md", "empty"), ("fails.md", "failed")]
        assert (report.files, report.documents, report.chunks, report.embedded, report.reused) == (6, 3, 3, 2, 1)
        assert repr(report) == (
            "UpdateReport(1 added, 1 changed, 1 renamed, 1 unchanged, 1 removed, 0 missing, 1 failed)"
        )
        for line in ("  added: new.md", "  changed: edit.md", "  renamed: old.md to moved.md", "  removed: gone.md",
                     "  empty: empty.md: ", "3 chunks written, 2 texts embedded, 1 vector reused"):  # fmt: skip
            assert line in str(report)
        # What failed is as it was, and the failure is in the file until it is mended.
        assert ids(lexical_query("fine", path)) == ["fails.md#0"]
        assert rows(path, "SELECT doc_id, status FROM ingest_failures ORDER BY doc_id") == [
            ("empty.md", "empty"), ("fails.md", "failed"),
        ]  # fmt: skip
        write(root, fails_md="mended", empty_md="no more")
        assert update(root, path).changed == ["fails.md"]
        assert rows(path, "FROM ingest_failures") == []
        assert_as_from_scratch(path, root, tmp_path)

    @pytest.mark.slow
    def test_a_failing_file_that_is_as_it_was_again_is_no_failure(self, tmp_path):
        path = build(tmp_path, a_md="alpha", b_md="beta")
        root = tmp_path / "docs"
        (root / "a.md").write_bytes(b"\x00\x01\x02" * 100)
        assert update(root, path).failed == 1
        (root / "a.md").write_text("alpha")
        assert update(root, path).unchanged == ["a.md", "b.md"]
        assert rows(path, "FROM ingest_failures") == []

    @pytest.mark.slow
    def test_a_file_without_text_any_more_goes_with_prune_only(self, tmp_path):
        path = build(tmp_path, a_md="alpha", b_md="beta")
        root = tmp_path / "docs"
        write(root, a_md=" ")
        assert update(root, path).removed == []
        assert ids(lexical_query("alpha", path)) == ["a.md#0"]
        assert update(root, path, prune=True).removed == ["a.md"]
        assert_as_from_scratch(path, root, tmp_path)

    @pytest.mark.slow
    def test_time_stamps_are_not_trusted(self, tmp_path):
        path = build(tmp_path, a_md="alpha", b_md="beta")
        root = tmp_path / "docs"
        before = (root / "a.md").stat()
        (root / "a.md").write_text("omega")  # as long as before
        os.utime(root / "a.md", ns=(before.st_atime_ns, before.st_mtime_ns))
        os.utime(root / "b.md", ns=(0, 10**18))
        report = update(root, path)
        assert (report.changed, report.unchanged) == (["a.md"], ["b.md"])
        assert_as_from_scratch(path, root, tmp_path)  # the new time of b.md included

    @pytest.mark.slow
    @pytest.mark.parametrize("lost", ["chunk_index = 0", "chunk_index = 1", "chunk_index = 2", "true"])
    def test_chunks_that_somebody_deleted_come_back(self, tmp_path, lost):
        text = "# One\n\nalpha\n\n# Two\n\nbeta\n\n# Three\n\ngamma"
        path = build(tmp_path, a_md=text, b_md="beta", options={"chunk_size": 64})
        with duckdb.connect(str(path)) as con:
            con.execute(f"DELETE FROM documents WHERE doc_id = 'a.md' AND {lost}")
        assert "missing_chunks" in [problem.check for problem in check(path)]
        assert [problem.check for problem in repair(path).left] == ["missing_chunks"]
        assert update(tmp_path / "docs", path).changed == ["a.md"]
        assert_as_from_scratch(path, tmp_path / "docs", tmp_path, chunk_size=64)
        assert check(path) == []

    @pytest.mark.slow
    def test_chunks_whose_document_somebody_deleted_are_no_obstacle(self, tmp_path):
        path = build(tmp_path, a_md="alpha", b_md="beta", c_md="gamma")
        with duckdb.connect(str(path)) as con:
            con.execute("DELETE FROM source_documents WHERE doc_id <> 'c.md'")
        assert [problem.check for problem in check(path)] == ["chunks_without_source", "stale_counts"]
        assert delete_documents(path, doc_ids="b.md").deleted == ["b.md"]
        assert update(tmp_path / "docs", path).added == ["a.md", "b.md"]
        assert_as_from_scratch(path, tmp_path / "docs", tmp_path)

    @pytest.mark.slow
    def test_an_empty_folder_empties_no_file(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        before = contents(path)
        (tmp_path / "docs" / "a.md").unlink()
        told = r"no \.md.*1 document of it stays in the file\. It may be on a disk that is not mounted; if it is empty "
        told += r"for good: delete_documents\('.*kb\.duckdb', folder='.*/docs', collection='default'\)\.$"
        with pytest.raises(NotFoundError, match=told):
            update(tmp_path / "docs", path, prune=True)
        assert contents(path) == before
        (tmp_path / "other").mkdir()
        with pytest.raises(NotFoundError, match=r"It is empty\.$"):
            update(tmp_path / "other", path)
        write(tmp_path / "other", b_md="beta")
        update(tmp_path / "other", path)
        with pytest.raises(NotFoundError, match=told):
            update(tmp_path / "docs", path, prune=True)
        assert delete_documents(path, folder=tmp_path / "docs", collection="default").deleted == ["a.md"]
        with pytest.raises(NotFoundError, match=r"It is empty\.$"):
            update(tmp_path / "docs", path, prune=True)

    @pytest.mark.slow
    @pytest.mark.parametrize("batch", [1, 3, 2048])
    def test_batches(self, tmp_path, monkeypatch, batch):
        path = build(tmp_path, a_md="# alpha", b_md=pages(3), c_md="# gamma", d_md="# delta", e_md="epsilon")
        root = tmp_path / "docs"
        monkeypatch.setattr(run, "BATCH_CHUNKS", batch)
        # a and c change places, b loses its tail, d goes under another name, f is new.
        write(root, a_md="# gamma", c_md="# alpha", b_md=pages(2), f_md=pages(4))
        (root / "d.md").rename(root / "z.md")
        report = update(root, path, prune=True)
        assert report.changed == ["a.md", "b.md", "c.md"]
        # Part 3 of f.md is new. One file a batch: alpha went when a.md was written, Part 2 when b.md was.
        assert report.embedded == {1: 3, 3: 1, 2048: 1}[batch]
        assert_as_from_scratch(path, root, tmp_path)


class TestCost:
    @pytest.mark.slow
    def test_unchanged_files_load_no_model_and_nothing_heavy(self, tmp_path):
        path = build(tmp_path, a_md="alpha", b_txt="beta", c_pdf=pdf("gamma"))
        code = (
            # DuckDB 1.3 imports pandas by itself when a value is first bound.
            "import sys, duckdb; duckdb.execute('SELECT $1', [1]).fetchall(); before = set(sys.modules); "
            "from sqlrag import update_embeddings; "
            "r = update_embeddings(sys.argv[1], sys.argv[2]); print(len(r.unchanged), r.embedded, r.embedding_calls); "
            "print(sorted({'pypdf', 'onnxruntime', 'fastembed', 'tokenizers', 'markdown_it', 'yaml', 'tqdm', "
            "'sqlrag.embedders.hashing', 'llama_index', 'pandas'} & (sys.modules.keys() - before)))"
        )
        assert python(code, tmp_path / "docs", path).splitlines() == ["3 0 0", "[]"]

    @pytest.mark.slow
    def test_a_broken_file_loads_no_model_either(self, tmp_path):
        path = build(tmp_path, a_md="alpha", b_md="", c_pdf=b"%PDF-1.4 broken")
        code = (
            "import sys; from sqlrag import update_embeddings; r = update_embeddings(sys.argv[1], sys.argv[2]); "
            "print(len(r.failures), 'sqlrag.embedders.hashing' in sys.modules)"
        )
        assert python(code, tmp_path / "docs", path).split() == ["2", "False"]

    @pytest.mark.slow
    def test_only_changed_chunks_are_embedded(self, tmp_path):
        path = build(tmp_path, a_md=pages(20), b_md="beta")
        root, model = tmp_path / "docs", Recorder()
        write(root, a_md=pages(20).replace("number7", "changed seven") + "# Part 20\n\nat the end")
        report = update(root, path, embedder=model)
        assert sorted(model.texts) == sorted(
            [PROBE_TEXT, "Part 20\n\nPart 20\n\nat the end",
             "Part 7\n\nPart 7\n\nlorem ipsum dolor sit amet changed seven"]
        )  # fmt: skip
        assert (report.embedded, report.embedding_calls, report.reused, report.chunks) == (2, 1, 19, 21)
        assert_as_from_scratch(path, root, tmp_path)

    @pytest.mark.slow
    def test_renaming_and_copying_cost_nothing(self, tmp_path):
        path = build(tmp_path, a_md=pages(3), b_pdf=pdf("one", "", "three"), c_md="# gamma")
        root, model = tmp_path / "docs", Recorder()
        (root / "a.md").rename(root / "x.md")
        (root / "deep").mkdir()
        (root / "b.pdf").rename(root / "deep" / "b.pdf")
        shutil.copy(root / "c.md", root / "d.md")
        report = update(root, path, prune=True, embedder=model)
        assert model.texts == []
        assert report.renamed == [("a.md", "x.md"), ("b.pdf", "deep/b.pdf")]
        assert (report.added, report.duplicates) == (["d.md"], [("d.md", "c.md")])
        assert_as_from_scratch(path, root, tmp_path)

    @pytest.mark.slow
    def test_fault_T5_a_new_name_that_heads_the_path_is_embedded(self, tmp_path):
        path = build(tmp_path, zebra_txt="look left", b_md="# Own\n\ntext", long_txt="gamma")
        root, model = tmp_path / "docs", Recorder()
        (root / "zebra.txt").rename(root / "horse.txt")
        (root / "b.md").rename(root / "c.md")
        report = update(root, path, prune=True, embedder=model)
        assert model.texts[1:] == ["horse\n\nlook left"]
        assert report.renamed == [("b.md", "c.md"), ("zebra.txt", "horse.txt")]
        assert (lexical_query("zebra", path), ids(lexical_query("horse", path))) == ([], ["horse.txt#0"])
        assert_as_from_scratch(path, root, tmp_path)

    def test_what_cannot_be_read_under_its_new_name_stays_under_the_old(self, tmp_path):
        path = build(tmp_path, a_pdf=pdf("alpha"), b_md="beta")
        (tmp_path / "docs" / "a.pdf").rename(tmp_path / "docs" / "z.pdf")

        def fails(data):
            raise ValueError("no")

        report = update(tmp_path / "docs", path, prune=True, pdf_extractor=fails)
        assert (report.renamed, report.missing, report.failed) == ([], ["a.pdf"], 1)
        assert ids(lexical_query("alpha", path)) == ["a.pdf#0"]

    @pytest.mark.slow
    def test_another_suffix_is_another_kind_of_text(self, tmp_path):
        path = build(tmp_path, a_md=pages(2), b_md="beta")
        (tmp_path / "docs" / "a.md").rename(tmp_path / "docs" / "a.txt")
        report = update(tmp_path / "docs", path, prune=True)
        assert (report.added, report.removed, report.renamed) == (["a.txt"], ["a.md"], [])
        assert_as_from_scratch(path, tmp_path / "docs", tmp_path)

    @pytest.mark.slow
    def test_vectors_that_a_program_gave_are_not_taken_for_the_models(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        with Store(path, read_only=False) as store:
            store.upsert([Document("own", "beta")], [Chunk("own", 0, "beta")], [[1.0] + [0.0] * 63])
        write(tmp_path / "docs", b_md="beta")
        assert update(tmp_path / "docs", path).embedded == 1


class TestPrune:
    @pytest.mark.slow
    def test_another_folder_of_the_collection_is_left_alone(self, tmp_path):
        path = build(tmp_path, a_md="alpha", b_md="beta")
        other = write(tmp_path / "other", c_md="gamma")
        report = update(other, path, prune=True)
        assert (report.added, report.removed, report.missing) == (["c.md"], [], [])
        (tmp_path / "docs" / "a.md").unlink()
        assert update(tmp_path / "docs", path, prune=True).removed == ["a.md"]
        assert [r[0] for r in rows(path, "SELECT doc_id FROM source_documents ORDER BY 1")] == ["b.md", "c.md"]

    @pytest.mark.slow
    def test_the_same_folder_by_another_path(self, tmp_path, monkeypatch):
        path = build(tmp_path, a_md="alpha", b_md="beta")
        (tmp_path / "link").symlink_to(tmp_path / "docs")
        assert update(tmp_path / "link", path).unchanged == ["a.md", "b.md"]
        (tmp_path / "docs" / "a.md").unlink()
        monkeypatch.chdir(tmp_path / "docs")
        assert update(".", path).missing == ["a.md"]
        assert update(tmp_path / "link", path, prune=True).removed == ["a.md"]
        assert update(tmp_path / "docs", path, prune=True).unchanged == ["b.md"]
        assert_as_from_scratch(path, tmp_path / "docs", tmp_path)

    @pytest.mark.slow
    def test_other_collections_and_documents_of_programs_are_left_alone(self, tmp_path):
        path = build(tmp_path, a_md="alpha", b_md="beta")
        root = tmp_path / "docs"
        with Store(path, read_only=False) as store:
            store.upsert([Document("own.md", "own")], [Chunk("own.md", 0, "own")], [[1.0] * 64])
        assert update(root, path, collection="twice").added == ["twice:a.md", "twice:b.md"]
        (root / "a.md").unlink()
        assert update(root, path, prune=True).removed == ["a.md"]
        assert update(root, path, collection="twice", prune=True).removed == ["twice:a.md"]
        assert [r[0] for r in rows(path, "SELECT doc_id FROM source_documents ORDER BY 1")] == [
            "b.md", "own.md", "twice:b.md",
        ]  # fmt: skip

    @pytest.mark.slow
    def test_files_that_are_not_read_are_not_gone(self, tmp_path):
        path = build(tmp_path, a_md="alpha", b_txt="beta", c_txt="gamma", options={"max_bytes": 100})
        root = tmp_path / "docs"
        write(root, b_txt="x" * 200)
        (root / "c.txt").unlink()
        report = update(root, path, prune=True, patterns=["*.md"])
        assert (report.removed, report.missing) == ([], [])
        report = update(root, path, prune=True, max_bytes=100)
        assert (report.removed, [f.doc_id for f in report.failures]) == (["c.txt"], ["b.txt"])
        assert ids(lexical_query("beta", path)) == ["b.txt#0"]

    @pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root reads every folder")
    def test_an_unreadable_folder_is_not_gone(self, tmp_path):
        path = build(tmp_path, a_md="alpha", sub__b_md="beta")
        (tmp_path / "docs" / "sub").chmod(0)
        try:
            assert update(tmp_path / "docs", path, prune=True).removed == []
        finally:
            (tmp_path / "docs" / "sub").chmod(0o700)

    @pytest.mark.slow
    def test_a_document_of_the_same_name_in_two_folders_is_refused(self, tmp_path):
        path = build(tmp_path, a_md="alpha", b_md="beta")
        other = write(tmp_path / "other", a_md="another alpha", b_md="beta", c_md="gamma")
        for _ in range(2):
            report = update(other, path, prune=True)
            assert [(f.doc_id, f.status) for f in report.failures] == [("a.md", "failed")]
            assert "docs/a.md; delete that one" in report.failures[0].reason
            assert (report.changed, report.removed, report.missing) == ([], [], [])
        assert ids(lexical_query("alpha", path)) == ["a.md#0"]
        # What is the same in both stays with the first, and goes with it.
        (tmp_path / "docs" / "b.md").unlink()
        assert update(tmp_path / "docs", path, prune=True).removed == ["b.md"]
        assert update(other, path, collection="other").added == ["other:a.md", "other:b.md", "other:c.md"]

    @pytest.mark.slow
    @pytest.mark.parametrize(("first", "then", "said"), [("", "sub", "lies in"), ("sub", "", "holds")])
    def test_a_folder_inside_another_one_is_refused(self, tmp_path, first, then, said):
        root = write(tmp_path / "docs", a_md="alpha", sub__b_md="beta", sub__c_md="gamma")
        path = prepare_embeddings(root / first, tmp_path / "kb.duckdb", **HASHING).path
        (tmp_path / "link").symlink_to(root)
        for folder in (root / then, tmp_path / "link" / then):
            with pytest.raises(InputError, match=f"{root / then} {said} {root / first}, .* 2 files would") as refused:
                update(folder, path)
            assert f"update_embeddings('{root / first}', '{path}') brings" in str(refused.value)
            assert f"sqlrag update '{path}' brings" in with_commands(str(refused.value))
            assert ("To add the rest: ignore='sub/'." in str(refused.value)) is (then == "")
        assert update(tmp_path / "link" / first, path).added == []
        assert update(root / then, path, collection="own").added
        assert update(root / then, path, collection="own").added == []

    @pytest.mark.slow
    def test_folders_of_one_another_that_share_no_file_are_one_collection(self, tmp_path):
        root = write(tmp_path / "docs", a_md="alpha", sub__b_md="beta", sub__c_txt="gamma")
        path = prepare_embeddings(root, tmp_path / "kb.duckdb", ignore=["sub/*.md"], **HASHING).path
        with pytest.raises(InputError, match="1 file would"):
            update(root / "sub", path)
        assert update(root / "sub", path, patterns=["*.md"]).added == ["b.md"]
        shutil.move(root / "sub" / "b.md", root / "b.md")
        shutil.rmtree(root / "sub")
        path = prepare_embeddings(root, tmp_path / "moved.duckdb", **HASHING).path
        (tmp_path / "around").mkdir()
        shutil.move(root, tmp_path / "around" / "docs")
        assert update(tmp_path / "around", path).added == ["docs/a.md", "docs/b.md"]

    @pytest.mark.slow
    def test_a_name_that_is_stored_in_another_form_is_found_in_two_folders(self, tmp_path):
        decomposed = "u\u0308ber.md"
        for folder, text in (("docs", "alpha"), ("other", "beta")):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / decomposed).write_text(text)
        path = prepare_embeddings(tmp_path / "docs", tmp_path / "kb.duckdb", **HASHING).path
        assert [f.doc_id for f in update(tmp_path / "other", path).failures] == ["\u00fcber.md"]
        (tmp_path / "docs" / decomposed).write_text("changed")
        assert update(tmp_path / "docs", path).changed == ["\u00fcber.md"]

    @pytest.mark.slow
    def test_a_folder_that_was_moved_is_known_by_its_names(self, tmp_path):
        path = build(tmp_path, a_md="alpha", b_md="beta", c_md="gamma", d_md="delta")
        root = (tmp_path / "docs").rename(tmp_path / "moved")
        (root / "a.md").unlink()
        write(root, b_md="another beta")  # two of four are as they were
        for _ in range(2):
            assert update(root, path).missing == ["a.md"]
        assert update(root, path, prune=True).removed == ["a.md"]
        assert_as_from_scratch(path, root, tmp_path)

    @pytest.mark.slow
    def test_a_folder_that_is_out_of_reach_is_not_taken_for_moved(self, tmp_path):
        path = build(tmp_path, a_md="alpha", b_md="beta", readme_md="ours")
        (tmp_path / "docs").rename(tmp_path / "elsewhere")
        other = write(tmp_path / "other", readme_md="theirs", x_md="x", y_md="y")
        report = update(other, path, prune=True)
        assert (report.missing, report.removed) == ([], [])
        assert [f.doc_id for f in report.failures] == ["readme.md"]
        assert ids(lexical_query("ours", path)) == ["readme.md#0"]

    @pytest.mark.slow
    def test_names_alone_do_not_make_a_folder_a_moved_one(self, tmp_path):
        path = build(tmp_path, readme_md="ours", secret_md="secret")
        (tmp_path / "docs").rename(tmp_path / "elsewhere")
        report = update(write(tmp_path / "other", readme_md="theirs"), path, prune=True)
        assert (report.removed, [f.doc_id for f in report.failures]) == ([], ["readme.md"])
        (note,) = report.warnings
        assert f"1 file here has the name of a document of {(tmp_path / 'docs').resolve()}, which is not" in note
        assert sqlrag.delete_documents(path, folder=tmp_path / "docs").deleted == ["readme.md", "secret.md"]
        assert update(tmp_path / "other", path).added == ["readme.md"]

    @pytest.mark.slow
    def test_a_folder_whose_name_is_stored_in_another_form_is_there(self, tmp_path):
        root = write(tmp_path / "cafe\u0301", a_md="alpha", b_md="beta")
        path = prepare_embeddings(root, tmp_path / "kb.duckdb", **HASHING).path
        report = update(write(tmp_path / "other", a_md="alpha", c_md="gamma"), path, prune=True)
        assert (report.removed, report.missing, report.added) == ([], [], ["c.md"])
        assert update(root, path, prune=True).unchanged == ["a.md", "b.md"]

    def test_a_folder_that_became_a_link_to_the_outside_is_not_gone(self, tmp_path):
        path = build(tmp_path, a_md="alpha", sub__b_md="beta")
        (tmp_path / "docs" / "sub").rename(tmp_path / "outside")
        (tmp_path / "docs" / "sub").symlink_to(tmp_path / "outside")
        assert update(tmp_path / "docs", path, prune=True).removed == []

    @pytest.mark.slow
    def test_documents_of_programs_are_neither_replaced_nor_removed(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        with Store(path, read_only=False) as store:
            for name in ("web/p1.md", "web/p2.md", "note.md"):
                url = f"https://example.com/{name}" if name != "note.md" else ""
                store.upsert([Document(name, name, file_path=url)], [Chunk(name, 0, name)], [[1.0] * 64])
        write(tmp_path / "docs", web__p1_md="other", note_md="other")
        for skip in (False, True):
            report = update(tmp_path / "docs", path, prune=True, skip_duplicates=skip)
            assert report.removed == []
        assert sorted(f.doc_id for f in update(tmp_path / "docs", path).failures) == ["note.md", "web/p1.md"]
        assert rows(path, "SELECT text FROM documents ORDER BY 1") == [
            ("alpha",), ("note.md",), ("web/p1.md",), ("web/p2.md",),
        ]  # fmt: skip

    def test_an_unreadable_folder_protects_what_is_below(self, tmp_path, monkeypatch):
        path = build(tmp_path, a_md="alpha", sub__b_md="beta", subway__c_md="gamma")
        root = tmp_path / "docs"
        scandir = os.scandir

        def refuses(folder):
            if str(folder).endswith("sub"):
                raise PermissionError(13, "Permission denied")
            return scandir(folder)

        shutil.rmtree(root / "subway")
        monkeypatch.setattr(os, "scandir", refuses)
        assert update(root, path, prune=True).removed == ["subway/c.md"]

    def test_a_failure_of_a_file_that_is_gone_is_forgotten(self, tmp_path):
        path = build(tmp_path, a_md="alpha", b_md="")
        (tmp_path / "docs" / "b.md").unlink()
        update(tmp_path / "docs", path)
        assert rows(path, "FROM ingest_failures") == []


class TestDuplicates:
    @pytest.mark.slow
    def test_they_are_reported_or_left_out(self, tmp_path):
        root = write(tmp_path / "docs", a_md="same", b_md="same", c_txt="same", d_md="other")
        both = prepare_embeddings(root, tmp_path / "both.duckdb", **HASHING)
        assert both.report.duplicates == [("b.md", "a.md")]
        assert both.report.documents == 4
        assert "duplicate: b.md is the same as a.md" in str(both.report)
        one = prepare_embeddings(root, tmp_path / "one.duckdb", skip_duplicates=True, **HASHING)
        assert one.report.duplicates == both.report.duplicates
        kept = ["a.md", "c.txt", "d.md"]
        assert [r[0] for r in rows(one.path, "SELECT doc_id FROM source_documents ORDER BY 1")] == kept
        assert update(root, one.path, skip_duplicates=True).unchanged == kept

    @pytest.mark.slow
    def test_an_update_keeps_the_one_that_is_stored(self, tmp_path):
        path = build(tmp_path, b_md="same", c_md="other")
        root = write(tmp_path / "docs", a_md="same")
        report = update(root, path, skip_duplicates=True)
        assert (report.added, report.unchanged, report.duplicates) == ([], ["b.md", "c.md"], [("a.md", "b.md")])
        report = update(root, path)
        assert (report.added, report.duplicates) == (["a.md"], [("b.md", "a.md")])
        report = update(root, path, skip_duplicates=True)
        assert (report.removed, report.duplicates) == ([], [("b.md", "a.md")])
        assert update(root, path, skip_duplicates=True, prune=True).removed == ["b.md"]
        assert_as_from_scratch(path, root, tmp_path, skip_duplicates=True)

    @pytest.mark.slow
    def test_only_documents_of_this_folder_go_for_being_duplicates(self, tmp_path):
        path = build(tmp_path, x_md="foo", k_md="kept")
        with Store(path, read_only=False) as store:
            chunk = Chunk("n.md", 0, "note", collection="notes")
            store.upsert([Document("n.md", "note", "notes")], [chunk], [[1.0] * 64])
        other = write(tmp_path / "other", a_md="bar", x_md="bar", n_md="bar")
        report = update(other, path, prune=True, skip_duplicates=True)
        assert (report.removed, report.added) == ([], ["a.md"])
        assert ids(lexical_query("foo", path)) == ["x.md#0"]
        assert ids(lexical_query("note", path)) == ["n.md#0"]

    @pytest.mark.rest
    def test_documents_of_other_folders_of_the_collection_count(self, tmp_path):
        path = build(tmp_path, b_md="same", z_md="zebra")
        other = write(tmp_path / "other", a_md="same", c_md="same", d_md="new", e_md="zebra")
        twins = [("a.md", "b.md"), ("c.md", "b.md"), ("e.md", "z.md")]
        report = update(other, path, skip_duplicates=True)
        assert (report.added, report.duplicates) == (["d.md"], twins)
        assert "duplicate: a.md is the same as b.md" in str(report)
        report = update(other, path, collection="own", skip_duplicates=True)
        assert (report.added, report.duplicates) == (["own:a.md", "own:d.md", "own:e.md"], [("own:c.md", "own:a.md")])
        report = update(other, path)
        assert (report.added, report.duplicates) == (["a.md", "c.md", "e.md"], twins)
        # Of stored ones the first stays, whichever folder is read first.
        assert update(tmp_path / "docs", path, skip_duplicates=True, prune=True).removed == ["b.md", "z.md"]
        assert update(other, path, skip_duplicates=True, prune=True).removed == ["c.md"]

    def test_a_renamed_file_is_no_duplicate_of_its_old_name(self, tmp_path):
        path = build(tmp_path, b_md="same", z_md="zebra")
        (tmp_path / "docs" / "b.md").rename(tmp_path / "docs" / "c.md")
        report = update(tmp_path / "docs", path, skip_duplicates=True)
        assert (report.added, report.missing, report.duplicates) == (["c.md"], ["b.md"], [])

    def test_the_same_bytes_under_another_suffix_are_no_duplicate(self, tmp_path):
        root = write(tmp_path / "docs", a_pdf="# no PDF", b_md="# no PDF")
        path = build(tmp_path, "other.duckdb", folder="base", z_md="zebra")
        report = update(root, path, skip_duplicates=True)
        assert (report.added, [f.doc_id for f in report.failures]) == (["b.md"], ["a.pdf"])

    @pytest.mark.slow
    def test_a_good_text_does_not_go_for_a_file_that_cannot_be_read(self, tmp_path):
        path = build(tmp_path, a_md="alpha", b_md="beta", c_md="gamma")
        root = tmp_path / "docs"
        for name in ("a.md", "b.md"):
            (root / name).write_bytes(b"%PDF-1.4 no text")
        report = update(root, path, skip_duplicates=True, prune=True)
        assert (report.removed, [f.doc_id for f in report.failures]) == ([], ["a.md"])
        assert ids(lexical_query("beta", path)) == ["b.md#0"]
        assert ids(lexical_query("alpha", path)) == ["a.md#0"]


class TestSettings:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "options",
        [
            {"chunk_size": 20},
            {"chunk_size": 60, "chunk_unit": "chars"},
            {"chunk_size": 40, "chunk_unit": "chars", "chunk_overlap": 0},
            {"use_markdown_chunking": False},
            {"include_headers_in_chunks": False},
        ],
    )
    def test_another_chunk_policy_cuts_everything_anew(self, tmp_path, options):
        front = "---\ntitle: Front\ntags: [x]\nyear: 2024\n---\n" + pages(3)
        path = build(tmp_path, a_md=front, b_pdf=pdf("one " * 50, "", "three"), c_md="gamma", d_md="delta")
        root = tmp_path / "docs"
        write(root, c_md="changed")
        (root / "a.md").unlink()  # it is rechunked from its stored text
        report = update(root, path, **options)
        assert report.rechunked == ["a.md", "b.pdf", "d.md"]
        assert (report.unchanged, report.changed, report.missing) == ([], ["c.md"], ["a.md"])
        assert "the chunk policy has changed: 3 documents rechunked" in str(report)
        write(root, a_md=front)
        again = update(root, path)
        assert (len(again.unchanged), again.rechunked) == (4, [])
        assert_as_from_scratch(path, root, tmp_path, **options)

    @pytest.mark.slow
    def test_vectors_without_headings_are_not_taken_for_those_with(self, tmp_path):
        path = build(tmp_path, a_md=pages(3), b_md="plain\n\n# Own", options={"include_headers_in_chunks": False})
        report = update(tmp_path / "docs", path, include_headers_in_chunks=True)
        assert (report.embedded, report.reused) == (4, 1)
        assert_as_from_scratch(path, tmp_path / "docs", tmp_path)

    @pytest.mark.slow
    def test_another_policy_after_a_crash_is_finished_by_the_next_run(self, tmp_path, monkeypatch):
        path = build(tmp_path, a_md=pages(3), b_md=pages(3, "other words"), c_md=pages(3, "third"))
        root = tmp_path / "docs"
        monkeypatch.setattr(run, "BATCH_CHUNKS", 1)
        with pytest.raises(KeyboardInterrupt):
            update(root, path, chunk_size=8, chunk_unit="chars", embedder=Interrupting(2))
        assert (
            0 < rows(path, "SELECT count(*) FROM source_documents WHERE chunk_policy ->> 'chunk_size' = '8'")[0][0] < 3
        )
        report = update(root, path)
        assert 0 < len(report.rechunked) < 3
        assert_as_from_scratch(path, root, tmp_path, chunk_size=8, chunk_unit="chars")

    @pytest.mark.slow
    def test_the_overlap_of_the_file_is_kept_with_its_size(self, tmp_path):
        path = build(tmp_path, a_md="alpha", options={"chunk_size": 100, "chunk_overlap": 3})
        assert update(tmp_path / "docs", path, chunk_size=100).unchanged == ["a.md"]
        update(tmp_path / "docs", path, chunk_size=80)
        assert dict(contents(path)["metadata"])["chunk_overlap"] == "10"

    @pytest.mark.slow
    def test_another_stemmer_indexes_everything_anew(self, tmp_path):
        path = build(tmp_path, a_md="Häuser ducks", b_md="Haus duck")
        root = tmp_path / "docs"
        write(root, b_md="Haus ducks")
        report = update(root, path, stemmer="german")
        assert report.reindexed
        assert "the stemmer has changed" in str(report)
        assert report.unchanged == ["a.md"]
        assert ids(lexical_query("Häusern", path)) == ["a.md#0", "b.md#0"] or ids(lexical_query("haus", path))
        assert not update(root, path, stemmer="german").reindexed
        assert_as_from_scratch(path, root, tmp_path, stemmer="german")

    @pytest.mark.slow
    def test_chunks_of_programs_stay_until_their_file_changes(self, tmp_path):
        root = write(tmp_path / "docs", a_md="alpha beta", b_md="gamma")
        path = prepare_embeddings(root, tmp_path / "kb.duckdb", **HASHING).path
        with Store(path, read_only=False) as store:
            ((checksum, file),) = (
                store.cursor()
                .execute("SELECT checksum, file_path FROM source_documents WHERE doc_id = 'a.md'")
                .fetchall()
            )
            document = Document("a.md", "alpha beta", file_path=file, checksum=checksum, mime="text/markdown")
            store.upsert([document], [Chunk("a.md", 0, "alpha"), Chunk("a.md", 1, "beta")], [[1.0] * 64] * 2)
        report = update(root, path, chunk_size=9, prune=True)
        assert (report.unchanged, report.rechunked) == (["a.md"], ["b.md"])
        assert len(lexical_query("alpha beta", path)) == 2
        write(root, a_md="alpha beta!")
        assert update(root, path).changed == ["a.md"]
        assert_as_from_scratch(path, root, tmp_path, chunk_size=9)

    @pytest.mark.slow
    def test_another_model_is_refused_before_anything_is_changed(self, tmp_path):
        path = build(tmp_path, a_md="alpha", b_md="beta", c_md="gamma")
        root = tmp_path / "docs"
        (root / "a.md").rename(root / "x.md")
        (root / "c.md").unlink()
        write(root, b_md="changed")
        before = contents(path)

        class Other(HashingEmbedder):
            def embed(self, texts, *, kind):
                return -super().embed(texts, kind=kind)

        for wrong in ({"embedder": HashingEmbedder("hashing-8")}, {"embedder": Other("hashing-64")},
                      {"embed_model_name": "hashing-32"}):  # fmt: skip
            with pytest.raises(ModelMismatchError, match="reembed"):
                update(root, path, prune=True, stemmer="german", **wrong)
            assert contents(path) == before
        assert update(root, path, embed_model_name="hashing-64").changed == ["b.md"]

    def test_a_file_of_ready_made_vectors_needs_an_embedder(self, tmp_path):
        with Store.create(tmp_path / "kb.duckdb", 64):
            pass
        root = write(tmp_path / "docs", a_md="alpha")
        with pytest.raises(ModelUnavailableError, match="Pass an embedder"):
            update(root, tmp_path / "kb.duckdb")
        assert update(root, tmp_path / "kb.duckdb", embedder=HashingEmbedder("hashing-64")).added == ["a.md"]

    @pytest.mark.parametrize(
        "options",
        [
            *(
                {"chunk_size": 0},
                {"chunk_overlap": 600},
                {"stemmer": "klingon"},
                {"collection": "a:b"},
                {"max_bytes": 0},
            ),
            *({"prune": "no"}, {"skip_duplicates": 1}, {"wait_seconds": "x"}, {"wait_seconds": -1}),
        ],
    )
    def test_wrong_options(self, tmp_path, options):
        path = build(tmp_path, a_md="alpha")
        before = contents(path)
        with pytest.raises(InputError):
            update(tmp_path / "docs", path, **options)
        assert contents(path) == before


class Interrupting(HashingEmbedder):
    """Fails as Ctrl-C does, at the nth batch of chunks."""

    def __init__(self, batch):
        super().__init__("hashing-64")
        self.left = batch

    def embed(self, texts, *, kind):
        self.left -= texts != [PROBE_TEXT]
        if self.left < 0:
            raise KeyboardInterrupt
        return super().embed(texts, kind=kind)


# After any changes the file equals one built from scratch.

WORDS = ["duck", "ducks", "pond", "running", "run", "naïve", "東京大学", "snake_case", "CamelCase", "E1042", "c++"]
NAMES = ["a.md", "b.md", "c.txt", "sub/a.md", "sub/d.md", "it's.md", "z.txt"]
TEXTS = st.builds(
    lambda title, parts, front: (
        ("---\ntags: [x]\n---\n" if front else "")
        + (f"# {title}\n\n" if title else "")
        + "\n\n".join(f"## {head}\n\n{' '.join(words)}" if head else " ".join(words) for head, words in parts)
    ),
    st.sampled_from(["", *WORDS]),
    st.lists(st.tuples(st.sampled_from(["", *WORDS]), st.lists(st.sampled_from(WORDS), max_size=8)), max_size=4),
    st.booleans(),
)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(NAMES), TEXTS),
        st.tuples(st.just("delete"), st.sampled_from(NAMES)),
        st.tuples(st.just("rename"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
        st.tuples(st.just("copy"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
        st.tuples(st.just("touch"), st.sampled_from(NAMES)),
    ),
    min_size=200,
    max_size=200,
)


def change(root, kind, name, *rest):
    file = root / name
    if kind == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(rest[0], encoding="utf-8")
    elif not file.exists():
        return
    elif kind == "delete":
        file.unlink()
    elif kind == "touch":
        os.utime(file, (0, 10**9))
    elif rest[0] != name:
        (root / rest[0]).parent.mkdir(exist_ok=True)
        (file.replace if kind == "rename" else lambda to: shutil.copy(file, to))(root / rest[0])


@pytest.mark.slow
def test_a_copy_whose_original_was_replaced_before(tmp_path, monkeypatch):
    """a takes the bytes of b, and a new file those that a had: nothing is left to copy them from."""
    monkeypatch.setattr(run, "BATCH_CHUNKS", 1)
    path = build(tmp_path, a_md="alpha", b_md="beta")
    root = tmp_path / "docs"
    (root / "a.md").write_text("beta")
    (root / "c.md").write_text("alpha")
    report = update(root, path)
    assert (report.added, report.changed, report.failures) == (["c.md"], ["a.md"], [])
    assert_as_from_scratch(path, root, tmp_path)


@pytest.mark.slow
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(changes=CHANGES, seed=st.integers(0, 2**16), skip=st.booleans())
def test_200_changes_give_what_a_build_gives(tmp_path_factory, changes, seed, skip):
    folder = tmp_path_factory.mktemp("changes")
    chance = random.Random(seed)
    path = build(folder, keep_md="kept", a_md="duck")
    root = folder / "docs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "BATCH_CHUNKS", chance.choice([1, 4, 2048]))
        left = list(changes)
        while left:
            for one in (left.pop() for _ in range(min(len(left), chance.randint(1, 25)))):
                change(root, *one)
            update(root, path, prune=True, skip_duplicates=False)
        if skip:
            update(root, path, prune=True, skip_duplicates=True)
            # Of equal files of one kind the one that was stored stays; a build from scratch has the same texts.
            texts = "SELECT checksum, mime FROM source_documents ORDER BY ALL"
            fresh = prepare_embeddings(root, folder / "fresh.duckdb", skip_duplicates=True, **HASHING).path
            assert rows(path, texts) == rows(fresh, texts)
    with Store(path) as store:
        assert store.check() == []
    if not skip:
        assert_as_from_scratch(path, root, folder)


@pytest.mark.slow
def test_readers_see_the_old_or_the_new_text(tmp_path):
    path = build(tmp_path, a_md=pages(8, "old words"), b_md="beta")
    root, seen, stop = tmp_path / "docs", [], threading.Event()
    errors = []

    def ask():
        try:
            with Store(path, read_only=False, embedder=HashingEmbedder("hashing-64")) as store:
                while not stop.is_set():
                    found = store.hybrid_query("old new words", top_k=50)
                    seen.append({(row["text"].split()[3], row["doc_id"]) for row in found if row["doc_id"] == "a.md"})
                    assert len([row for row in found if row["doc_id"] == "a.md"]) == 8
        except BaseException as error:
            errors.append(error)

    with Store(path, read_only=False):  # the writer's handle is there first
        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for i in range(6):
            write(root, a_md=pages(8, "new words" if i % 2 == 0 else "old words"))
            assert update(root, path).changed == ["a.md"]
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []
    assert all(len(words) == 1 for words in seen)
    assert len({next(iter(words)) for words in seen}) == 2


class TestPathsBelowTheFolder:
    """Neither a store nor an export says where the documents were on a disk; updates find them all the same."""

    FILES = {"a_md": "# A\n\nalpha", "sub__b_md": "# B\n\nbeta"}

    @staticmethod
    def paths(kb):
        with duckdb.connect(str(kb), read_only=True) as con:
            return dict(con.execute("SELECT doc_id, file_path FROM source_documents ORDER BY doc_id").fetchall())

    def test_fault_S29_paths_are_relative(self, tmp_path):
        kb = build(tmp_path, **self.FILES, options={"collection": "c"})
        assert self.paths(kb) == {"c:a.md": "a.md", "c:sub/b.md": "sub/b.md"}
        with duckdb.connect(str(kb), read_only=True) as con:
            folder = con.execute("SELECT input_dir FROM collections").fetchone()[0]
        assert folder == (tmp_path / "docs").resolve().as_posix()
        assert update_embeddings(tmp_path / "docs", kb, collection="c", verbose=False).unchanged == [
            "c:a.md",
            "c:sub/b.md",
        ]

    @pytest.mark.slow
    def test_fault_S29_the_exports_of_two_people_are_the_same(self, tmp_path):
        made = []
        for person in ("mary", "tom"):
            kb = build(tmp_path / person, **self.FILES)
            for name in ("a.md", "sub/b.md"):
                os.utime(tmp_path / person / "docs" / name, (1_700_000_000, 1_700_000_000))
            update_embeddings(tmp_path / person / "docs", kb, verbose=False)
            out = sqlrag.export_ragmd(kb, tmp_path / person / "kb.ragmd").path.read_text("utf-8")
            assert person not in out
            made.append(
                [line for line in out.splitlines() if not re.match("(created_at|updated_at|contents_sha256): ", line)]
            )
        assert made[0] == made[1]

    @pytest.mark.slow
    @pytest.mark.parametrize("suffix", [".ragmd", ".rag", ".parquet", ".faiss"])
    def test_fault_S29_of_a_file_with_whole_paths_neither(self, tmp_path, suffix):
        kb = build(tmp_path, **self.FILES)
        self.lengthen(kb, tmp_path)
        target = tmp_path / f"vectors-x{suffix}"
        sqlrag.convert(kb, target)
        for file in [target, *tmp_path.glob("metadata-*"), *target.rglob("*")]:
            if file.is_file():
                assert str(tmp_path).encode() not in file.read_bytes()
        again = tmp_path / "again.duckdb"
        sqlrag.convert(target, again)
        assert self.paths(again) == {"a.md": "a.md", "sub/b.md": "sub/b.md"}
        # It is known again as the folder's by its contents.
        (tmp_path / "docs" / "a.md").write_text("# A\n\nchanged")
        report = update_embeddings(tmp_path / "docs", again, verbose=False, prune=True)
        assert (report.changed, len(report.unchanged), report.removed, report.failures) == (["a.md"], 1, [], [])
        assert self.paths(again) == {"a.md": "a.md", "sub/b.md": "sub/b.md"}

    @pytest.mark.parametrize("suffix", [".ragmd", ".rag", ".parquet", ".faiss"])
    @pytest.mark.parametrize("first", ["docs", "others"])
    @pytest.mark.rest
    def test_prune_leaves_what_came_without_a_folder(self, tmp_path, suffix, first):
        kb = build(tmp_path, **self.FILES)
        write(tmp_path / "others", c_md="# C\n\ngamma")
        update(tmp_path / "others", kb)
        sqlrag.convert(kb, tmp_path / f"vectors-x{suffix}")
        again = sqlrag.convert(tmp_path / f"vectors-x{suffix}", tmp_path / "again.duckdb").path
        report = update(tmp_path / first, again, prune=True)
        assert any("came from another format" in note for note in report.warnings)
        for _ in range(2):
            for folder in ("docs", "others"):
                report = update(tmp_path / folder, again, prune=True)
                assert (report.removed, report.missing, report.failures) == ([], [], [])
        assert report.warnings == []
        (tmp_path / "docs" / "a.md").unlink()  # each is now known to be of its folder
        assert update(tmp_path / "others", again, prune=True).removed == []
        assert update(tmp_path / "docs", again, prune=True).removed == ["a.md"]

    @pytest.mark.rest
    def test_prune_leaves_what_was_merged_or_imported_without_a_folder(self, tmp_path):
        kb = build(tmp_path, **self.FILES)
        other = build(tmp_path, "other.duckdb", folder="others", c_md="# C\n\ngamma")
        sqlrag.convert(other, tmp_path / "x.ragmd")
        again = sqlrag.convert(tmp_path / "x.ragmd", tmp_path / "again.duckdb").path
        both = sqlrag.merge([kb, again], tmp_path / "both.duckdb").path
        sqlrag.convert(tmp_path / "x.ragmd", kb)
        for file in (both, kb):
            assert self.paths(file) == {"a.md": "a.md", "c.md": "?/c.md", "sub/b.md": "sub/b.md"}
            report = update(tmp_path / "docs", file, prune=True)
            assert (len(report.unchanged), report.removed) == (2, [])
            assert update(tmp_path / "others", file).unchanged == ["c.md"]
            assert self.paths(file)["c.md"] == "c.md"
        alone = sqlrag.merge([again], tmp_path / "alone.duckdb").path
        assert self.paths(alone) == {"c.md": "c.md"}

    @staticmethod
    def lengthen(kb, tmp_path):
        """Make the file as an earlier version wrote it."""
        with duckdb.connect(str(kb)) as con:
            con.execute("UPDATE source_documents SET file_path = $1 || '/docs/' || file_path", [tmp_path.as_posix()])

    def test_fault_S29_an_update_shortens_whole_paths(self, tmp_path):
        kb = build(tmp_path, **self.FILES)
        self.lengthen(kb, tmp_path)
        report = update_embeddings(tmp_path / "docs", kb, verbose=False, prune=True)
        assert (len(report.unchanged), report.removed) == (2, [])
        assert self.paths(kb) == {"a.md": "a.md", "sub/b.md": "sub/b.md"}

    def test_fault_S29_a_folder_that_was_moved(self, tmp_path):
        kb = build(tmp_path, **self.FILES)
        (tmp_path / "docs").rename(tmp_path / "moved")
        (tmp_path / "moved" / "a.md").unlink()
        report = update_embeddings(tmp_path / "moved", kb, verbose=False, prune=True)
        assert (len(report.unchanged), report.removed) == (1, ["a.md"])
        assert self.paths(kb) == {"sub/b.md": "sub/b.md"}

    @pytest.mark.slow
    def test_fault_S29_two_folders_in_one_collection(self, tmp_path):
        kb = build(tmp_path, **self.FILES)
        write(tmp_path / "others", c_md="# C\n\ngamma")
        report = update_embeddings(tmp_path / "others", kb, verbose=False, prune=True)
        assert (report.added, report.removed) == (["c.md"], [])
        root = (tmp_path / "docs").resolve().as_posix()
        assert self.paths(kb) == {"a.md": f"{root}/a.md", "c.md": "c.md", "sub/b.md": f"{root}/sub/b.md"}
        write(tmp_path / "others", a_md="# Another A")
        report = update_embeddings(tmp_path / "others", kb, verbose=False, prune=True)
        assert [failure.doc_id for failure in report.failures] == ["a.md"]
        assert f"from {root}/a.md" in report.failures[0].reason
        report = update_embeddings(tmp_path / "docs", kb, verbose=False, prune=True)
        assert (len(report.unchanged), report.removed, report.failures) == (2, [], [])
        assert self.paths(kb) == {
            "a.md": "a.md", "c.md": f"{(tmp_path / 'others').resolve().as_posix()}/c.md", "sub/b.md": "sub/b.md",
        }  # fmt: skip

    @pytest.mark.slow
    @pytest.mark.parametrize("how", ["deleted", "pruned", "never read", "replaced"])
    def test_a_folder_without_documents_is_known(self, tmp_path, how):
        kb = build(tmp_path, **self.FILES)
        other = tmp_path / "others"
        write(other, c_md="" if how == "never read" else "# C\n\ngamma")
        options = {"collection": "o", "prune": True, "verbose": False}
        update_embeddings(other, kb, **options)
        if how == "deleted":
            sqlrag.delete_documents(kb, doc_ids="o:c.md")
        elif how == "pruned":
            (other / "c.md").write_text("")
            update_embeddings(other, kb, **options)
        elif how == "replaced":
            sqlrag.add_documents({"c.md": b"# C again"}, kb, collection="o")
            sqlrag.delete_documents(kb, doc_ids="o:c.md")
        assert [one.collection for one in folders_of(kb)[0]] == ["default", "o"]
        write(other, c_md="# C\n\nnew")
        assert update_embeddings(other, kb, **options).added == ["o:c.md"]

    @pytest.mark.rest
    def test_every_folder_of_a_collection_is_known_without_documents(self, tmp_path):
        kb = build(tmp_path, **self.FILES)
        for name in ("b", "c"):
            write(tmp_path / name, **{f"{name}_md": "" if name == "b" else "gamma"})
            update_embeddings(tmp_path / name, kb, patterns="*.md" if name == "b" else None, verbose=False)
        sqlrag.delete_documents(kb, doc_ids=["a.md", "sub/b.md"])
        known = {one.path: one.patterns for one in folders_of(kb)[0]}
        places = [str((tmp_path / name).resolve()) for name in ("b", "c", "docs")]
        assert known == dict(zip(places, [["*.md"], None, None], strict=True))
        write(tmp_path / "b", b_md="beta")
        assert update_embeddings(tmp_path / "b", kb, verbose=False).added == ["b.md"]
        shutil.rmtree(tmp_path / "b")
        sqlrag.delete_documents(kb, folder=tmp_path / "b")
        assert [one.path for one in folders_of(kb)[0]] == places[1:]
        (tmp_path / "b").mkdir()
        assert [one.path for one in folders_of(kb)[0]] == places[1:]
        told = "is forgotten, too: update_embeddings reads it when it is named."
        report = sqlrag.delete_documents(kb, collection="default")
        assert report.notices == [f"The folder {place} of default {told}" for place in places[1:]]
        assert folders_of(kb)[0] == []

    @pytest.mark.slow
    def test_a_collection_that_is_deleted_forgets_its_folder(self, tmp_path):
        kb = build(tmp_path, **self.FILES)
        other = tmp_path / "others"
        write(other, c_md="# C\n\ngamma", d_md="")
        update_embeddings(other, kb, collection="o", verbose=False)
        sqlrag.delete_documents(kb, doc_ids="o:c.md")
        report = sqlrag.delete_documents(kb, collection="o")
        told = f"The folder {other.resolve()} of o is forgotten, too: update_embeddings reads it when it is named."
        assert (report.deleted, report.notices) == ([], [told])
        assert [one.collection for one in folders_of(kb)[0]] == ["default"]
        assert rows(kb, "FROM ingest_failures") == []
        assert "No chunk has the collection 'o'" in sqlrag.delete_documents(kb, collection="o").notices[0]

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "options", [{}, {"prune": True}, {"prune": True, "skip_duplicates": True}, {"chunk_size": 99}]
    )
    def test_a_dry_run_says_what_the_run_then_does(self, tmp_path, options):
        files = {f"{name}_md": f"# {name}\n\nThe text of {name}." for name in ("same", "edited", "gone", "old", "twin")}
        kb = build(tmp_path, **files)
        write(tmp_path / "docs", new_md="# New\n\nNew.", edited_md="# Edited\n\nOtherwise.", copy_md=files["twin_md"])
        (tmp_path / "docs" / "gone.md").unlink()
        (tmp_path / "docs" / "old.md").rename(tmp_path / "docs" / "later.md")
        before = kb.read_bytes()
        foretold = update_embeddings(tmp_path / "docs", kb, dry_run=True, verbose=False, **options)
        assert kb.read_bytes() == before
        assert str(foretold).splitlines()[1].startswith("This is what an update would do")
        done = update_embeddings(tmp_path / "docs", kb, verbose=False, **options)
        assert all([done.added, done.changed, done.unchanged or done.rechunked, done.missing or done.removed])
        for name in (
            "files",
            "added",
            "changed",
            "renamed",
            "unchanged",
            "missing",
            "removed",
            "rechunked",
            "duplicates",
        ):
            assert getattr(foretold, name) == getattr(done, name), name
        assert (foretold.dry_run, foretold.run_id, done.dry_run) == (True, "", False)

    def test_a_dry_run_names_what_could_not_be_read(self, tmp_path):
        kb = build(tmp_path, **self.FILES, bad_pdf="no PDF")
        write(tmp_path / "docs", new_md="# New")
        report = update_embeddings(tmp_path / "docs", kb, dry_run=True, verbose=False)
        assert report.added == ["bad.pdf", "new.md"]
        assert report.warnings == ["Could not be read the last time, and is tried again: bad.pdf."]

    def test_a_dry_run_is_beside_readers_and_needs_no_right_to_write(self, tmp_path):
        kb = build(tmp_path, **self.FILES)
        write(tmp_path / "docs", new_md="# New")
        with sqlrag.Store(kb):
            assert update_embeddings(tmp_path / "docs", kb, dry_run=True, stemmer="german", verbose=False).reindexed

    @pytest.mark.slow
    def test_a_folder_that_was_moved_and_named_without_its_collection_is_told(self, tmp_path):
        kb = build(tmp_path, **self.FILES)
        write(tmp_path / "team", t_md="# Pay\n\nthe bill", u_md="# U")
        update_embeddings(tmp_path / "team", kb, collection="team", verbose=False)
        old, new = tmp_path / "team", tmp_path / "team-new"
        old.rename(new)
        there = f"update_embeddings(input_dir={str(new)!r}, db_path={str(kb)!r}, collection='team')"
        (note,) = update_embeddings(new, kb, dry_run=True, verbose=False).warnings
        assert note == (
            f"The documents of {old} (collection 'team'), which is not there any more, are here. If that folder was "
            f"moved, update it there: {there}."
        )
        here = f"delete_documents({str(kb)!r}, folder={str(new)!r}, collection='default')"
        assert update_embeddings(new, kb, verbose=False).warnings == [f"{note[:-1]}; and remove it here: {here}."]
        names = {"update_embeddings": update_embeddings, "delete_documents": sqlrag.delete_documents}
        assert eval(there, names).unchanged == ["team:t.md", "team:u.md"]
        assert eval(here, names).deleted == ["t.md", "u.md"]
        docs = str(tmp_path / "docs")
        assert [(one.collection, one.path) for one in folders_of(kb)[0]] == [("default", docs), ("team", str(new))]
        write(tmp_path / "others", x_md="# X")
        assert update_embeddings(tmp_path / "others", kb, collection="x", verbose=False).warnings == []

    @pytest.mark.slow
    def test_a_folder_moves_to_a_collection_of_its_own(self, tmp_path, monkeypatch):
        kb = build(tmp_path, **self.FILES)
        docs, notes = (str((tmp_path / name).resolve()) for name in ("docs", "notes"))
        write(tmp_path / "notes", n_md="# N\n\nnote", bad_pdf="no PDF")
        update_embeddings(notes, kb, verbose=False)
        report = update_embeddings(notes, kb, collection="notes", verbose=False)
        calls = [f"delete_documents({str(kb)!r}, folder={notes!r}, collection={one!r})" for one in ("default", "notes")]
        assert report.warnings[-1].endswith(f" is there twice. To remove it from one: {', or '.join(calls)}.")
        before = rows(kb, "FROM source_documents ORDER BY doc_id")
        would = sqlrag.delete_documents(kb, folder=notes, collection="default", dry_run=True)
        assert (would.deleted, would.chunks, would.run_id) == (["n.md"], 1, "")
        told = (
            "1 document with 1 chunk would be deleted, 0 unknown\n  would be deleted: n.md\n  The folder {} of default "
        )
        told += "would be forgotten, too: update_embeddings reads it when it is named."
        assert str(would) == told.format(notes)
        assert rows(kb, "FROM source_documents ORDER BY doc_id") == before
        assert [(one.collection, one.path) for one in folders_of(kb)[0]] == [
            ("default", docs), ("default", notes), ("notes", notes),
        ]  # fmt: skip
        (tmp_path / "link").symlink_to(notes)
        monkeypatch.chdir(tmp_path)
        report = sqlrag.delete_documents(kb, folder="link", collection="default")
        assert (report.deleted, report.chunks, len(report.notices)) == (["n.md"], 1, 1)
        assert [(one.collection, one.path) for one in folders_of(kb)[0]] == [("default", docs), ("notes", notes)]
        for place, collection in ((docs, "default"), (notes, "notes")):
            report = update_embeddings(place, kb, collection=collection, prune=True, verbose=False)
            assert (report.added, report.removed, report.warnings) == ([], [], [])
        assert rows(kb, "SELECT doc_id FROM source_documents ORDER BY doc_id") == [
            ("a.md",), ("notes:n.md",), ("sub/b.md",),
        ]  # fmt: skip
        assert sqlrag.check(kb) == []
        # Of a folder in one collection alone, the failures go with it; a folder that is not known is told.
        assert sqlrag.delete_documents(kb, folder=notes).deleted == ["notes:n.md"]
        assert "notes:bad.pdf" not in [doc_id for doc_id, *_ in rows(kb, "FROM ingest_failures")]
        report = sqlrag.delete_documents(kb, folder=tmp_path / "docs2")
        assert report.deleted == []
        assert report.notices == [f"No document was read from the folder '{docs}2'; did you mean {docs!r}?"]

    @pytest.mark.slow
    def test_a_folder_is_one_of_several_conditions(self, tmp_path):
        kb = build(tmp_path, **self.FILES)
        docs = tmp_path / "docs"
        sqlrag.add_documents({"own.md": b"# Own"}, kb)
        assert sqlrag.delete_documents(kb, folder=docs, doc_ids=["a.md", "own.md", "none.md"]).deleted == ["a.md"]
        assert [one.path for one in folders_of(kb)[0]] == [str(docs.resolve())]
        assert update_embeddings(docs, kb, verbose=False).added == ["a.md"]
        report = sqlrag.delete_documents(kb, folder=docs)
        assert (report.deleted, folders_of(kb)[0]) == (["a.md", "sub/b.md"], [])
        assert rows(kb, "SELECT doc_id FROM source_documents") == [("own.md",)]

    @pytest.mark.slow
    def test_a_folder_that_is_gone_for_good_is_forgotten_without_documents(self, tmp_path):
        kb = build(tmp_path, **self.FILES)
        other = tmp_path / "others"
        write(other, c_md="# C")
        update_embeddings(other, kb, verbose=False)
        shutil.rmtree(other)
        sqlrag.delete_documents(kb, folder=other)
        assert [one.path for one in folders_of(kb)[0]] == [str((tmp_path / "docs").resolve())]
        assert update_embeddings(tmp_path / "docs", kb, verbose=False, prune=True).unchanged == ["a.md", "sub/b.md"]

    @pytest.mark.slow
    def test_what_replaces_a_document_of_a_folder_is_said(self, tmp_path):
        kb = build(tmp_path, **self.FILES)
        (note,) = sqlrag.add_documents({"a.md": b"# Another"}, kb).warnings
        assert note.startswith("What was added as a.md replaces a document that was read from a folder: ")
        assert sqlrag.add_documents({"a.md": b"# Yet another"}, kb).warnings == []
        (failure,) = update_embeddings(tmp_path / "docs", kb, verbose=False).failures
        assert "has a document of this doc_id from a program or an upload; delete that one" in failure.reason
        sqlrag.delete_documents(kb, doc_ids="a.md")
        assert update_embeddings(tmp_path / "docs", kb, verbose=False).added == ["a.md"]

    @pytest.mark.slow
    def test_fault_S29_what_a_program_gave_is_not_the_folders(self, tmp_path):
        kb = build(tmp_path, **self.FILES)
        sqlrag.add_documents({"new.md": b"# N"}, kb)
        with Store(kb, read_only=False) as store:
            store.upsert([Document("own.md", "own", file_path="/x/own.md")], [Chunk("own.md", 0, "own")], [[1.0] * 64])
        report = update_embeddings(tmp_path / "docs", kb, verbose=False, prune=True)
        assert (len(report.unchanged), report.removed) == (2, [])
        assert self.paths(kb)["own.md"] == "/x/own.md"

    def test_fault_S29_a_link_to_the_folder(self, tmp_path):
        kb = build(tmp_path, **self.FILES)
        (tmp_path / "link").symlink_to(tmp_path / "docs")
        report = update_embeddings(tmp_path / "link", kb, verbose=False, prune=True)
        assert (len(report.unchanged), report.removed) == (2, [])
        assert self.paths(kb) == {"a.md": "a.md", "sub/b.md": "sub/b.md"}

    @pytest.mark.slow
    def test_fault_S29_merged_from_two_folders(self, tmp_path):
        one = build(tmp_path, "one.duckdb", **self.FILES)
        two = build(tmp_path, "two.duckdb", folder="others", c_md="# C\n\ngamma")
        both = sqlrag.merge([one, two], tmp_path / "both.duckdb").path
        with duckdb.connect(str(both), read_only=True) as con:
            folder = con.execute("SELECT input_dir FROM collections").fetchone()[0]
        other = {"docs": "others", "others": "docs"}[folder.rpartition("/")[2]]
        for name, path in self.paths(both).items():
            root = (tmp_path / ("others" if name == "c.md" else "docs")).resolve().as_posix()
            assert path == (f"{root}/{name}" if root.endswith(other) else name)
        report = update_embeddings(tmp_path / "docs", both, verbose=False, prune=True)
        assert (len(report.unchanged), report.removed) == (2, [])
