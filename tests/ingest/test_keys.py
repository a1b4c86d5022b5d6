"""Ids of chunks that collide over documents: refused by every way in, one file of many left out, found by check."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

import sqlrag
from sqlrag import Chunk, Document, InputError, Store, check, index, lexical_query, update_embeddings
from sqlrag.embedders import HashingEmbedder
from tests.support.helpers import build, write

MODEL = HashingEmbedder("hashing-64")
OWNED = "The chunk id 'a.md#0' is that of a chunk of the document 'a.md', so no chunk of 'x' can have it"


@pytest.fixture
def kb(tmp_path):
    return build(tmp_path, a_md="plum", b_md="pear")


def chunks_of(path):
    with duckdb.connect(str(path), read_only=True) as con:
        return con.execute("SELECT node_id, doc_id, text FROM documents ORDER BY node_id").fetchall()


def failures(path):
    with duckdb.connect(str(path), read_only=True) as con:
        return con.execute("SELECT doc_id, status, reason FROM ingest_failures ORDER BY doc_id").fetchall()


def add(path, *chunks):
    with Store(path, embedder=MODEL, read_only=False) as store:
        store.add_chunks(chunks)


def thief(node_id="a.md#0"):
    return Chunk("x", 0, "one", given_id=node_id)


WAYS = {
    "Store.index": lambda store: store.index([thief()]),
    "index": lambda store: index([thief()], store),
    "Store.add_chunks": lambda store: store.add_chunks([thief()]),
    "Store.add_chunks beside others": lambda store: store.add_chunks([Chunk("b.md", 1, "more"), thief()]),
    "Store.upsert": lambda store: store.upsert([Document("x", "one")], [thief()], np.ones((1, 64))),
    "vectors given": lambda store: store.add_chunks([thief()], vectors=np.ones((1, 64))),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_fault_S15_an_id_of_another_document_is_refused(kb, way):
    before = chunks_of(kb)
    with Store(kb, embedder=MODEL, read_only=False) as store:
        with pytest.raises(InputError, match=OWNED):
            way(store)
        assert len(store.lexical_query("plum")) == 1
    assert chunks_of(kb) == before
    assert check(kb) == []


@pytest.mark.slow
def test_fault_S15_ids_change_owners_where_both_are_written(kb):
    with Store(kb, embedder=MODEL, read_only=False) as store:
        store.index([Chunk("x", 0, "one", given_id="k"), Chunk("y", 0, "two", given_id="l")])
        store.index([Chunk("x", 0, "one", given_id="l"), Chunk("y", 0, "two", given_id="k")])
    assert chunks_of(kb)[2:] == [("k", "y", "two"), ("l", "x", "one")]
    assert check(kb) == []


def test_fault_S15_llama_index(kb):
    from llama_index.core.schema import TextNode

    from sqlrag.adapters.llama_index import SqlragIndex, SqlragVectorStore

    node = TextNode(id_="a.md#0", text="one", embedding=[1.0] * 64)
    with pytest.raises(InputError, match="is that of a chunk of the document 'a"):
        SqlragVectorStore.from_path(kb).add([node])
    with pytest.raises(InputError, match="is that of a chunk of the document 'a"):
        SqlragIndex.from_path(kb, embedder=MODEL).insert_nodes([node])
    assert len(lexical_query("plum", kb)) == 1


@pytest.fixture
def squatted(tmp_path, kb):
    """A file with a chunk that has the id that new.md#0 would get, and the folder with new.md."""
    add(kb, Chunk("note", 0, "quince", given_id="new.md#0"))
    write(tmp_path / "docs", new_md="fig", other_md="date")
    return kb


def assert_only_new_failed(path, report):
    assert report.added == ["other.md"]
    ((doc_id, status, reason),) = report.failures
    assert (doc_id, status) == ("new.md", "failed")
    assert "'new.md#0' is that of a chunk of the document 'note'" in reason
    assert failures(path) == [tuple(report.failures[0])]
    assert len(lexical_query("quince", path)) == len(lexical_query("date", path)) == 1
    assert check(path) == []


@pytest.mark.slow
def test_fault_S15_an_update_leaves_out_one_file_until_the_id_is_free(tmp_path, squatted):
    report = update_embeddings(tmp_path / "docs", squatted, progress="off")
    assert_only_new_failed(squatted, report)
    again = update_embeddings(tmp_path / "docs", squatted, progress="off")
    assert ([failure.doc_id for failure in again.failures], again.embedded) == (["new.md"], 0)
    with Store(squatted, read_only=False) as store:
        store.delete_chunks(node_ids=["new.md#0"])
    assert update_embeddings(tmp_path / "docs", squatted, progress="off").added == ["new.md"]
    assert failures(squatted) == []


@pytest.mark.slow
def test_fault_S15_an_upload_leaves_out_one_document(squatted):
    report = sqlrag.add_documents({"new.md": b"fig", "other.md": b"date"}, squatted)
    assert_only_new_failed(squatted, report)


@pytest.mark.slow
def test_fault_S15_a_copied_document(tmp_path, kb):
    add(kb, Chunk("note", 0, "quince", given_id="deep/a.md#0"))
    write(tmp_path / "docs", deep__a_md="plum", deep__b_md="pear")  # bytes and names of others: chunks are copied
    report = update_embeddings(tmp_path / "docs", kb, progress="off")
    assert (report.added, report.embedded) == (["deep/b.md"], 0)
    assert [failure.doc_id for failure in report.failures] == ["deep/a.md"]
    assert check(kb) == []


@pytest.mark.slow
def test_fault_S15_a_renamed_file_stays_under_its_old_name(tmp_path, kb):
    add(kb, Chunk("note", 0, "quince", given_id="new.md#0"))
    (tmp_path / "docs" / "a.md").rename(tmp_path / "docs" / "new.md")
    report = update_embeddings(tmp_path / "docs", kb, progress="off", prune=True)
    assert (report.renamed, report.missing, report.removed) == ([], ["a.md"], [])
    assert [failure.doc_id for failure in report.failures] == ["new.md"]
    assert len(lexical_query("plum", kb)) == 1


@pytest.mark.slow
def test_fault_S15_a_document_that_has_grown(tmp_path, kb):
    add(kb, Chunk("note", 0, "quince", given_id="a.md#1"))
    write(tmp_path / "docs", a_md="# One\n\nplum\n\n# Two\n\nsloe", b_md="# One\n\npear\n\n# Two\n\nmedlar")
    report = update_embeddings(tmp_path / "docs", kb, progress="off")
    assert (report.changed, [failure.doc_id for failure in report.failures]) == (["b.md"], ["a.md"])
    assert [text for _, doc_id, text in chunks_of(kb) if doc_id == "a.md"] == ["plum"]
    assert check(kb) == []


@pytest.mark.slow
def test_fault_S15_the_owner_fails_in_the_same_step(tmp_path, kb):
    """a.md wants an id that b.md has now and gives up, but b.md cannot be embedded, so it keeps the id."""
    add(kb, Chunk("b.md", 1, "quince", given_id="a.md#1"))
    write(tmp_path / "docs", a_md="# One\n\nplum\n\n# Two\n\nsloe", b_md="poison", c_md="fig")

    class Refusing(HashingEmbedder):
        def embed(self, texts, *, kind):
            if any("poison" in text for text in texts):
                raise ValueError("refused")
            return super().embed(texts, kind=kind)

    report = update_embeddings(tmp_path / "docs", kb, embedder=Refusing("hashing-64"), progress="off")
    assert (report.added, report.changed) == (["c.md"], [])
    assert sorted(failure.doc_id for failure in report.failures) == ["a.md", "b.md"]
    assert check(kb) == []
    write(tmp_path / "docs", b_md="pear again")
    report = update_embeddings(tmp_path / "docs", kb, progress="off")
    assert (report.changed, report.failures) == (["a.md", "b.md"], [])


EXPORTS = {
    "ragmd": (sqlrag.export_ragmd, sqlrag.import_ragmd, "other.ragmd"),
    "ragfile": (sqlrag.export_ragfile, sqlrag.import_ragfile, "other.ragfile"),
    "parquet": (sqlrag.export_parquet, sqlrag.import_parquet, "parquet"),
    "faiss_json": (sqlrag.export_faiss_json, sqlrag.import_faiss_json, "vectors-other.faiss"),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", EXPORTS)
def test_fault_S15_an_import_is_refused_and_changes_nothing(tmp_path, kb, form):
    export, import_, name = EXPORTS[form]
    other = build(tmp_path, "other.duckdb", folder="others", c_md="cherry")
    add(other, thief())
    export(other, tmp_path / name)
    before = chunks_of(kb)
    with pytest.raises(InputError, match=OWNED):
        import_(tmp_path / name, kb)
    assert chunks_of(kb) == before
    assert check(kb) == []


@pytest.mark.slow
def test_fault_S15_an_import_that_gives_the_id_to_another_document(tmp_path, kb):
    """The id is taken from a document that the same import replaces, in a later batch."""
    with Store(kb, embedder=MODEL, read_only=False) as store:
        store.index([Chunk("z", 0, "zeta", given_id="k")])
    other = build(tmp_path, "other.duckdb", folder="others", c_md="cherry")
    add(other, Chunk("x", 0, "one", given_id="k"), Chunk("z", 0, "omega", given_id="l"))
    sqlrag.export_ragmd(other, tmp_path / "other.ragmd")
    sqlrag.import_ragmd(tmp_path / "other.ragmd", kb)
    assert [row for row in chunks_of(kb) if row[1] in "xz"] == [("k", "x", "one"), ("l", "z", "omega")]
    assert check(kb) == []


@pytest.mark.slow
def test_fault_S15_reembedding_names_the_chunk_and_changes_nothing(tmp_path):
    long = " ".join(f"word{n}." for n in range(60))
    path = build(tmp_path, a_md=long, options={"chunk_size": 200})
    add(path, Chunk("note", 0, "quince", given_id="a.md#1"))
    before = chunks_of(path)
    small = HashingEmbedder("hashing-32")
    small.max_tokens = 40  # so that a.md gets more chunks
    with (
        pytest.warns(UserWarning, match="lowered to"),
        pytest.raises(InputError, match="#1' is that of a chunk of the document 'note'"),
    ):
        sqlrag.reembed(path, embedder=small, progress="off")
    assert chunks_of(path) == before
    assert [file.name for file in tmp_path.iterdir() if "building" in file.name] == []


@pytest.mark.slow
def test_fault_S15_two_files_are_not_merged(tmp_path, kb):
    other = build(tmp_path, "other.duckdb", folder="others", c_md="cherry")
    add(other, thief())
    with pytest.raises(InputError, match=r"'a\.md#0'"):
        sqlrag.merge([kb, other], tmp_path / "both.duckdb")
    assert not (tmp_path / "both.duckdb").exists()


class TestPush:
    """Into a vector store of llama-index; Postgres is in tests/engines/postgres."""

    @pytest.fixture
    def target(self, tmp_path):
        from sqlrag.adapters.llama_index import SqlragVectorStore

        return SqlragVectorStore(tmp_path / "target.duckdb")

    @pytest.mark.slow
    def test_fault_S15_an_id_of_a_document_of_another_file(self, tmp_path, kb, target):
        other = build(tmp_path, "other.duckdb", folder="others", c_md="cherry")
        add(other, thief())
        sqlrag.push(kb, target)
        before = chunks_of(target.path)
        with pytest.raises(InputError, match=OWNED):
            sqlrag.push(other, target)
        assert chunks_of(target.path) == before

    @pytest.mark.slow
    def test_fault_S15_an_id_that_has_moved_in_the_file(self, kb, target):
        with Store(kb, embedder=MODEL, read_only=False) as store:
            store.index([Chunk("y", 0, "two", given_id="k"), Chunk("x", 0, "one", given_id="l")])
        sqlrag.push(kb, target)
        with Store(kb, embedder=MODEL, read_only=False) as store:
            store.index([Chunk("y", 0, "two", given_id="l"), Chunk("x", 0, "one", given_id="k")])
        assert sqlrag.push(kb, target, batch_chunks=1).verified
        assert sorted((doc_id, text) for _, doc_id, text in chunks_of(target.path)) == [
            *(("a.md", "plum"), ("b.md", "pear"), ("x", "one"), ("y", "two")),
        ]


@pytest.mark.slow
def test_fault_S15_check_names_documents_that_have_text_but_no_chunk(tmp_path, kb):
    with Store(kb, embedder=MODEL, read_only=False) as store:
        store.upsert([Document("blank", " \n\u2003"), Document("none", "")], [], np.empty((0, 64)))
        assert store.check() == []
        store.upsert([Document("lost", "quince"), Document("matter", "---\na: b\n---\n", body_start=13)], [], [])
        (problem,) = store.check()
    assert (problem.check, problem.examples) == ("missing_chunks", ("lost",))
    with duckdb.connect(str(kb)) as con:
        con.execute("DELETE FROM source_documents WHERE doc_id = 'lost'")
        con.execute("DELETE FROM documents WHERE doc_id = 'b.md'")
    assert ("missing_chunks", ("b.md",)) in [(problem.check, problem.examples) for problem in check(kb)]


def test_fault_S15_a_file_built_of_names_like_ids(tmp_path):
    path = build(tmp_path, **{"a.md#0_md": "plum", "a.md_md": "pear"})
    update_embeddings(tmp_path / "docs", path, progress="off")
    assert sorted(doc_id for _, doc_id, _ in chunks_of(path)) == ["a.md#0.md", "a.md.md"]
