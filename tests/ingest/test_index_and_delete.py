"""Deleting documents, indexing chunks of one's own, and the record that runs leave."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest

from sqlrag import (
    Chunk,
    Document,
    Store,
    delete_documents,
    index,
    lexical_query,
    prepare_embeddings,
    update_embeddings,
    vector_query,
)
from sqlrag.embedders import PROBE_TEXT, HashingEmbedder
from sqlrag.engines.duckdb import documents as documents_module
from sqlrag.errors import (
    InputError,
    ModelMismatchError,
    ModelUnavailableError,
    NotFoundError,
    ProviderError,
    StoreError,
)
from sqlrag.ingest.update import folders_of
from tests.support.helpers import HASHING, Recorder, build, ids, write

MODEL = HashingEmbedder("hashing-64")


def rows(path, sql):
    with duckdb.connect(str(path), read_only=True) as con:
        return con.execute(sql).fetchall()


def documents(path):
    return [row[0] for row in rows(path, "SELECT doc_id FROM source_documents ORDER BY doc_id")]


def sound(path):
    with Store(path) as store:
        return store.check() == []


FILES = {
    "a_md": "---\ntags: [red, big]\nyear: 2024\n---\nalpha duck",
    "b_md": "---\ntags: [blue]\nyear: 2023\n---\n# T\n\nbeta duck\n\n# U\n\nmore",
    "c_txt": "gamma duck",
}


class TestDelete:
    @pytest.mark.parametrize("conditions", [{"tags_any": ["red"]}, {"doc_ids": ["a.md", "b.md"]}])
    def test_what_an_update_brings_back_is_told(self, tmp_path, conditions):
        path = build(tmp_path, **FILES)
        told = "The files of {}, such as a.md, are still there: the next update adds them again. Remove or ignore"
        for dry_run in (True, False):
            report = delete_documents(path, **conditions, dry_run=dry_run)
            count = f"{len(report.deleted)} document{'s' * (len(report.deleted) > 1)}"
            assert report.notices == [f"{told.format(count)} them, too."]
        (folder,) = (one.path for one in folders_of(path)[0])
        assert update_embeddings(folder, path, verbose=False).added == report.deleted
        for doc_id in report.deleted:
            (Path(folder) / doc_id).unlink()
        assert delete_documents(path, **conditions).notices == []
        assert delete_documents(path, collection="default").notices[0].startswith("The folder ")

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("conditions", "deleted"),
        [
            ({"doc_ids": ["a.md", "c.txt"]}, ["a.md", "c.txt"]),
            ({"doc_ids": "a.md"}, ["a.md"]),
            ({"doc_ids": []}, []),
            ({"checksum": hashlib.sha256(b"gamma duck").hexdigest()}, ["c.txt"]),
            ({"checksum": "0" * 64}, []),
            ({"collection": "default"}, ["a.md", "b.md", "c.txt"]),
            ({"collection": ["other", "none"]}, []),
            ({"tags_any": ["red", "blue"]}, ["a.md", "b.md"]),
            ({"tags_all": ["red", "big"]}, ["a.md"]),
            ({"metadata": {"year": 2023}}, ["b.md"]),
            ({"metadata": {"file_name": "c.txt"}}, ["c.txt"]),
            ({"metadata": {"year": None, "file_name": "c.txt"}}, ["c.txt"]),
            ({"doc_ids": ["a.md", "b.md"], "tags_any": ["blue"]}, ["b.md"]),
        ],
    )
    def test_what_meets_all_conditions_goes(self, tmp_path, conditions, deleted):
        path = build(tmp_path, **FILES)
        report = delete_documents(path, **conditions)
        assert (report.deleted, report.unknown) == (deleted, [])
        left = sorted({"a.md", "b.md", "c.txt"} - set(deleted))
        assert documents(path) == left
        assert {row["doc_id"] for row in lexical_query("duck", path, top_k=9)} == set(left)
        assert rows(path, "SELECT DISTINCT doc_id FROM documents ORDER BY 1") == [(doc_id,) for doc_id in left]
        assert sound(path)

    @pytest.mark.slow
    def test_nothing_of_a_deleted_document_is_left(self, tmp_path):
        path = build(tmp_path, **FILES)
        report = delete_documents(path, doc_ids="b.md")
        told = (
            "1 document with 2 chunks deleted, 0 unknown\n  deleted: b.md\n  The files of 1 document, such as b.md, are"
        )
        assert (report.chunks, str(report).partition(" still")[0]) == (2, told)
        fresh = build(tmp_path, "fresh.duckdb", folder="less", a_md=FILES["a_md"], c_txt=FILES["c_txt"])
        for sql in (
            "SELECT word, term, df FROM fts_main_documents.words ORDER BY word",
            "SELECT term, df FROM fts_main_documents.dict ORDER BY term",
            "SELECT count(*), sum(tf), sum(len) FROM fts_main_documents.postings",
            "FROM fts_main_documents.stats",
            "SELECT key, value FROM embedding_metadata WHERE key <> 'created_at' ORDER BY key",
            "SELECT node_id, text, embedding FROM documents ORDER BY node_id",
        ):
            assert rows(path, sql) == rows(fresh, sql), sql

    @pytest.mark.slow
    def test_the_last_document_may_go(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        delete_documents(path, collection="default")
        assert (documents(path), lexical_query("alpha", path)) == ([], [])
        assert rows(path, "FROM collections") == []
        assert sound(path)
        assert update_embeddings(tmp_path / "docs", path, progress="off").added == ["a.md"]

    def test_chunks_with_tags_of_their_own(self, tmp_path):
        with Store.create(tmp_path / "kb.duckdb", 64) as store:
            chunks = [Chunk("a", 0, "one", ("x",)), Chunk("a", 1, "two", ("y",)), Chunk("b", 0, "three", ("x",))]
            store.upsert([Document("a", ""), Document("b", "")], chunks, np.eye(3, 64))
            assert store.delete_documents(tags_any=["x"]).deleted == ["b"]  # half of a does not make a
            assert store.delete_documents(tags_any=["x", "y"]).deleted == ["a"]

    @pytest.mark.parametrize(
        "conditions", [{}, {"tags_any": "red"}, {"doc_ids": [1]}, {"checksum": 5}, {"metadata": "x"}, {"metadata": {}}]
    )
    def test_wrong_conditions(self, tmp_path, conditions):
        path = build(tmp_path, **FILES)
        with pytest.raises(InputError):
            delete_documents(path, **conditions)
        assert len(documents(path)) == 3

    def test_files_that_cannot_be_written(self, tmp_path):
        with pytest.raises(NotFoundError):
            delete_documents(tmp_path / "none.duckdb", doc_ids="a")
        with Store(build(tmp_path, **FILES)) as store, pytest.raises(StoreError, match="reading only"):
            store.delete_documents(doc_ids="a.md")

    @pytest.mark.slow
    def test_case_L1_delete_takes_names_as_data(self, tmp_path):
        path = build(tmp_path, **FILES, **{"it's_md": "delta"})
        for evil in ("x' OR 1=1 --", "'; DROP TABLE documents; --", "a.md' --", "%", "*"):
            report = delete_documents(path, doc_ids=evil)
            assert (report.deleted, report.unknown, report.chunks) == ([], [evil], 0)
            assert f"unknown: {evil}" in str(report)
            for conditions in ({"checksum": evil}, {"collection": evil}, {"tags_any": [evil]}, {"tags_all": [evil]},
                               {"metadata": {evil: evil}}):  # fmt: skip
                assert delete_documents(path, **conditions).deleted == []
        assert len(documents(path)) == 4
        assert delete_documents(path, doc_ids="it's.md").deleted == ["it's.md"]
        assert sound(path)

    @pytest.mark.slow
    def test_case_A13_delete_one_of_two_files_of_a_name(self, tmp_path, monkeypatch):
        path = build(tmp_path, a__README_md="mango", b__README_md="lychee")
        monkeypatch.chdir(tmp_path / "docs" / "a")
        assert update_embeddings("..", "../../kb.duckdb", progress="off").unchanged == ["a/README.md", "b/README.md"]
        assert delete_documents("../../kb.duckdb", doc_ids="a/README.md").deleted == ["a/README.md"]
        assert documents(path) == ["b/README.md"]
        assert (lexical_query("mango", path), len(lexical_query("lychee", path))) == ([], 1)


class TestCasesOfUpdating:
    @pytest.mark.slow
    def test_case_D4_files_that_are_removed_or_renamed_leave_no_ghosts(self, tmp_path):
        path = build(tmp_path, a_md="mango", b_md="lychee")
        root = tmp_path / "docs"
        other = write(tmp_path / "other", z_md="durian")
        update_embeddings(other, path, progress="off")
        (root / "a.md").unlink()
        (root / "b.md").rename(root / "c.md")
        report = update_embeddings(root, path, progress="off")
        assert (report.added, report.missing) == (["c.md"], ["a.md", "b.md"])
        assert documents(path) == ["a.md", "b.md", "c.md", "z.md"]
        update_embeddings(root, path, prune=True, progress="off")
        assert documents(path) == ["c.md", "z.md"]
        assert lexical_query("mango", path) == []
        assert ids(lexical_query("lychee", path)) == ["c.md#0"]
        assert rows(path, "SELECT term FROM fts_main_documents.dict ORDER BY term") == [
            ("c",),
            ("durian",),
            ("lyche",),
            ("z",),
        ]
        assert sound(path)

    @pytest.mark.slow
    def test_case_D5_delete_and_insert_of_one_key(self, tmp_path, monkeypatch):
        path = build(tmp_path, a_md="alpha " * 2000)
        vectors = MODEL.embed(["beta"], kind="document")
        with Store(path, read_only=False) as store:
            for text in ("beta", "gamma " * 2000, "beta"):
                store.upsert([Document("a.md", text)], [Chunk("a.md", 0, text.strip())], vectors)
            monkeypatch.setattr(documents_module, "insert_rows", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                store.upsert([Document("a.md", "x")], [Chunk("a.md", 0, "x")], vectors)
            monkeypatch.undo()
            assert ids(store.lexical_query("beta")) == ["a.md#0"]
            assert store.check() == []
        assert len(rows(path, "FROM documents WHERE node_id = 'a.md#0'")) == 1

    def test_case_D6_ids_that_are_given_twice_are_refused(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        for chunks in (
            [Chunk("q", 0, "1"), Chunk("q", 0, "2")],
            [Chunk("q", 0, "1"), Chunk("q", 1, "x"), Chunk("q", 1, "x")],
        ):
            with pytest.raises(InputError, match="each once"):
                index(chunks, path)
        assert documents(path) == ["a.md"]

    def test_case_D7_the_key_is_kept_by_the_database(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        with duckdb.connect(str(path)) as con, pytest.raises(duckdb.ConstraintException):
            con.execute("INSERT INTO documents SELECT * FROM documents")

    @pytest.mark.slow
    def test_case_D11_dimensions_come_from_a_vector(self, tmp_path):
        root = write(tmp_path / "docs", a_md="alpha")
        with pytest.raises(ProviderError, match="expected a vector of 32 values"):
            prepare_embeddings(root, tmp_path / "kb.duckdb", embedder=Liar(), progress="off")
        assert not (tmp_path / "kb.duckdb").exists()
        path = prepare_embeddings(root, tmp_path / "kb.duckdb", **HASHING).path
        assert rows(path, "SELECT column_type FROM (DESCRIBE documents) WHERE column_name = 'embedding'") == [
            ("FLOAT[64]",)
        ]

    @pytest.mark.slow
    def test_case_E1_an_update_is_searchable_at_once(self, tmp_path):
        path = build(tmp_path, a_md="lion")
        write(tmp_path / "docs", b_md="zebra")
        update_embeddings(tmp_path / "docs", path, progress="off")
        assert ids(lexical_query("zebra", path)) == ["b.md#0"]
        assert "b.md#0" in ids(vector_query("zebra", path))
        (tmp_path / "docs" / "a.md").write_text("tiger")
        update_embeddings(tmp_path / "docs", path, progress="off")
        assert (lexical_query("lion", path), ids(lexical_query("tiger", path))) == ([], ["a.md#0"])
        assert vector_query("tiger", path)[0]["text"] == "tiger"


class Liar(HashingEmbedder):
    """Says that it makes 32 dimensions and makes 64."""

    def __init__(self):
        super().__init__("hashing-64")
        self.dimensions = 32

    def embed(self, texts, *, kind):
        return HashingEmbedder("hashing-64").embed(texts, kind=kind)


class TestIndex:
    @pytest.mark.slow
    def test_chunks_are_embedded_with_the_files_model_and_found_at_once(self, tmp_path):
        path, model = build(tmp_path, a_md="alpha"), Recorder()
        chunks = [
            Chunk("own", 0, "first duck", heading_path=("Top",)),
            Chunk("own", 1, "second pond", ("t",), {"year": 2024}),
            Chunk("notes:x", 0, "third", collection="notes"),
        ]
        with Store(path, read_only=False, embedder=model) as store:
            report = index(chunks, store)
            assert (report.documents, report.chunks, report.embedded) == (["notes:x", "own"], 3, 3)
            assert set(model.texts) == {PROBE_TEXT, "Top\n\nfirst duck", "second pond", "third"}
            assert ids(store.lexical_query("pond")) == ["own#1"]
            assert store.vector_query("second pond", top_k=1)[0]["node_id"] == "own#1"
            assert ids(store.lexical_query("second third", collection="notes")) == ["notes:x#0"]
            assert store.check() == []
        # A new document's text is its chunks with blank lines between, and a chunk is a slice of it.
        assert rows(path, "SELECT text, metadata_ FROM source_documents WHERE doc_id = 'own'") == [
            ("first duck\n\nsecond pond", "{}")
        ]
        assert rows(path, "SELECT i_start, i_end FROM documents WHERE doc_id = 'own' ORDER BY chunk_index") == [
            (0, 10),
            (12, 23),
        ]

    @pytest.mark.slow
    def test_writing_again_changes_nothing_and_a_shorter_document_loses_its_tail(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        chunks = [Chunk("own", i, f"text number {i}") for i in range(5)]
        shown = "SELECT * EXCLUDE rid FROM documents ORDER BY node_id"
        index(chunks, path)
        first = rows(path, shown)
        index(chunks[::-1], path)
        assert rows(path, shown) == first
        report = index([chunks[0], replace(chunks[1], content="other")], path)
        assert report.chunks == 2
        assert rows(path, "SELECT list(text ORDER BY chunk_index) FROM documents WHERE doc_id = 'own'") == [
            (["text number 0", "other"],)
        ]
        assert rows(path, "SELECT text FROM source_documents WHERE doc_id = 'own'") == [("text number 0\n\nother",)]
        assert lexical_query("number 4", path) == lexical_query("number", path)
        assert sound(path)
        assert index([], path).documents == []

    @pytest.mark.slow
    def test_a_document_that_holds_the_chunks_is_kept(self, tmp_path):
        path = build(tmp_path, a_md="---\ntags: [x]\n---\none two one two")
        before = rows(path, "SELECT text, checksum, tags, file_path FROM source_documents")
        index([Chunk("a.md", 0, "one"), Chunk("a.md", 1, "two one"), Chunk("a.md", 2, "two")], path)
        assert rows(path, "SELECT text, checksum, tags, file_path FROM source_documents") == before
        start = before[0][0].index("one")
        sql = f"SELECT i_start - {start}, text FROM documents ORDER BY chunk_index"
        assert rows(path, sql) == [(0, "one"), (4, "two one"), (4, "two")]
        # Its chunks are the program's now: the next update leaves them alone.
        assert update_embeddings(tmp_path / "docs", path, progress="off").unchanged == ["a.md"]
        assert len(rows(path, "FROM documents")) == 3
        index([Chunk("a.md", 0, "something else")], path)
        assert rows(path, "SELECT text, tags FROM source_documents") == [("something else", ["x"])]
        assert sound(path)

    def test_given_vectors_belong_to_their_chunks_in_any_order(self, tmp_path):
        chunks = [Chunk("b", 0, "b0"), Chunk("a", 1, "a1"), Chunk("a", 0, "a0")]
        with Store.create(tmp_path / "kb.duckdb", 3) as store:
            assert index(chunks, store, vectors=np.eye(3) * 7).embedded == 0
            found = store.cursor().execute("SELECT node_id, embedding FROM documents ORDER BY node_id").fetchall()
            assert found == [("a#0", (0.0, 0.0, 1.0)), ("a#1", (0.0, 1.0, 0.0)), ("b#0", (1.0, 0.0, 0.0))]
            with pytest.raises(ModelUnavailableError):
                index(chunks, store)
            with pytest.raises(ModelMismatchError):
                index(chunks, store, vectors=np.eye(3, 4))
            with pytest.raises(InputError, match="3 chunks and 2 vectors"):
                index(chunks, store, vectors=np.eye(2, 3))

    @pytest.mark.parametrize(
        "chunks",
        [
            [Chunk("q", 1, "x")],
            [Chunk("q", 0, "x"), Chunk("q", 2, "y")],
            [Chunk("q", 0, " ")],
            [Chunk("q", 0, "x"), Chunk("q", 1, "y", collection="other")],
            ["text"],
            [Chunk("a.md", 0, "alpha", collection="other")],
        ],
    )
    def test_chunks_that_cannot_be(self, tmp_path, chunks):
        path = build(tmp_path, a_md="alpha")
        with pytest.raises(InputError):
            index(chunks, path)
        assert documents(path) == ["a.md"]

    def test_surrogates_cost_nothing(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        index([Chunk("own", 0, "x \ud835 y")], path)
        assert rows(path, "SELECT text FROM documents WHERE doc_id = 'own'") == [("x \ufffd y",)]


class TestLog:
    @pytest.mark.slow
    def test_every_run_has_a_row(self, tmp_path):
        path = build(tmp_path, a_md="# A\n\nalpha", b_md="beta", c_md="", d_png=b"x")
        root = tmp_path / "docs"
        write(root, b_md="beta two", e_md="# A\n\nalpha", f_md="new")
        report = update_embeddings(root, path, progress="off")
        deleted = delete_documents(path, doc_ids=["a.md", "nothing"])
        sql = "SELECT * EXCLUDE (run_id, started_at, finished_at, seconds) FROM ingest_log ORDER BY started_at"
        # files, documents, removed, chunks, embedded, embedding_calls, reused, failed, skipped
        assert rows(path, sql) == [
            ("build", str(root), "default", 3, 2, 0, 2, 2, 1, 0, 0, 1),
            ("update", str(root), "default", 5, 3, 0, 3, 2, 1, 1, 0, 1),
            ("delete", "", "", 0, 0, 1, 0, 0, 0, 0, 0, 0),
        ]
        run_ids = [row[0] for row in rows(path, "SELECT run_id FROM ingest_log ORDER BY started_at")]
        assert run_ids[1:] == [report.run_id, deleted.run_id]
        assert len(set(run_ids)) == 3
        seconds = json.loads(rows(path, "SELECT seconds FROM ingest_log WHERE kind = 'update'")[0][0])
        assert {"find", "read", "chunk", "embed", "store"} == seconds.keys()

        # The views tell the same.
        assert [row[:2] for row in rows(path, "SELECT kind, reused FROM ingest_runs")] == [
            ("delete", 0), ("update", 1), ("build", 0),
        ]  # fmt: skip
        ((total, stages),) = rows(
            path,
            "SELECT any_value(r.total_seconds), sum(s.seconds) FROM ingest_runs r JOIN ingest_stages s USING (run_id) "
            "WHERE r.kind = 'build'",
        )
        assert 0 < stages <= total + 0.005
        shares = rows(path, "SELECT round(sum(share), 2) FROM ingest_stages WHERE kind = 'build' GROUP BY run_id")
        assert shares == [(1.0,)]

    def test_messages_carry_the_id_of_the_run(self, tmp_path, caplog):
        path = build(tmp_path, a_md="alpha", b_md="")
        caplog.clear()
        with caplog.at_level(logging.INFO, "sqlrag"):
            report = update_embeddings(tmp_path / "docs", path, progress="off")
            deleted = delete_documents(path, doc_ids="a.md")
        own = [record for record in caplog.records if record.name.startswith("sqlrag.ingest")]
        assert len(own) == 2  # the empty file and the end
        assert all(record.getMessage().startswith(f"[{report.run_id}] ") for record in own)
        assert {record.run_id for record in own} == {report.run_id}
        assert caplog.records[-1].getMessage().startswith(f"[{deleted.run_id}] ")


@pytest.mark.parametrize("value", [None, float("nan")])
def test_no_value_deletes_nothing(tmp_path, value):
    """Every document lacks a field that nobody has set: that must not empty the file."""
    with Store.create(tmp_path / "kb.duckdb", 4) as store:
        store.index([Chunk("a", 0, "alpha"), Chunk("b", 0, "beta")], vectors=np.eye(4)[:2])
        with pytest.raises(InputError, match="metadata"):
            store.delete_documents(metadata={"zz": value})
        assert len(store.lexical_query("alpha beta")) == 2


def test_indexing_the_same_chunks_again_moves_nothing(tmp_path):
    chunks = [Chunk("m", 0, "ab"), Chunk("m", 1, "b"), Chunk("r", 0, "same"), Chunk("r", 1, "same")]
    seen = []
    with Store.create(tmp_path / "kb.duckdb", 4) as store:
        for _ in range(2):
            store.index(chunks, vectors=np.eye(4))
            seen.append(store.cursor().execute("SELECT node_id, i_start, i_end FROM documents ORDER BY 1").fetchall())
    assert seen[0] == seen[1] == [("m#0", 0, 2), ("m#1", 4, 5), ("r#0", 0, 4), ("r#1", 6, 10)]
