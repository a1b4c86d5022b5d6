"""A file pushed into Postgres and pulled out of it again: every row of both is the same."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading

import duckdb
import numpy as np
import pytest

import sqlrag
from sqlrag import (
    Chunk,
    Document,
    InputError,
    ModelMismatchError,
    NotAStoreError,
    PostgresStore,
    Store,
    StoreError,
    pull,
    push,
)
from sqlrag.formats.exchange import stored_contents
from sqlrag.formats.push import to_postgres
from tests.support.helpers import HASHING, ROOT, build, timeless
from tests.support.stores import make_small_store

PAGES = {
    "mango_md": "---\ntags: [fruit]\nyear: 2024\n---\n# Mango\n\nThe mango is a sweet fruit.\n",
    "pump_md": "---\ntags: [machine]\n---\n# Pump\n\n## Repair\n\nA new seal for the pump.\n",
    "notes_txt": "A shopping list: mango, lychee and a pump.\n",
}


def table(path, name, without, order):
    with duckdb.connect(str(path), read_only=True) as con:
        columns = [row[0] for row in con.execute(f"DESCRIBE {name}").fetchall() if row[0] not in without]
        return con.execute(f"SELECT {', '.join(columns)} FROM {name} ORDER BY {order}").fetchall()


def assert_same_file(path, other):
    """Compare every row of both; ``rid`` counts rows as they were written, ``created_at`` says when."""
    for name, without, order in [
        ("documents", {"rid"}, "doc_id, chunk_index, node_id"),
        ("source_documents", {"rid", "created_at"}, "doc_id"),
        ("document_links", {"rid"}, "ALL"),
        ("embedding_metadata", {"created_at"}, "key"),
    ]:
        rows, others = table(path, name, without, order), table(other, name, without, order)
        rows, others = (
            [row for row in found if row[0] not in ("created_at", "updated_at")] for found in (rows, others)
        )
        # As text, since 1 == 1.0 == True.
        assert [repr(row) for row in others] == [repr(row) for row in rows], name


def both_ways(path, url, tmp_path, **options):
    pushed = push(path, url, progress="off")
    pulled = pull(url, tmp_path / "pulled.duckdb", **options)
    assert pushed.verified
    assert (pulled.documents, pulled.chunks, pulled.created) == (pushed.documents, pushed.chunks, True)
    return pulled.path


@pytest.fixture
def kb(tmp_path):
    return build(tmp_path, **PAGES)


@pytest.fixture
def url(postgres_url):
    return postgres_url


def write_odd_store(path):
    """Make a store of what is hard to carry: own ids, places that are not known, numbers beyond 2**53, no chunks."""
    eye = np.eye(8, dtype=np.float32)
    documents = [
        Document("none.md", ""),
        Document("Zürich 🦆.md", "Grüezi 鸭子\r\n\ttab \\N \\. \"quoted\" 'apostrophe'", "é", tags=("a,b", '"', "{}")),
        Document("big.md", "numbers", metadata={"n": 12345678901234567890123, "x": 1e-300, "deep": {"a": [1, None]}}),
        Document("same.md", "twice the same", "z", checksum="cc", mime="text/plain", size_bytes=2**40),
    ]
    chunks = [
        Chunk("Zürich 🦆.md", 0, documents[1].text, ("a,b", '"', "{}"), {"ключ": "знач"}, "é", given_id="own-1"),
        Chunk("big.md", 0, "numbers", (), {"n": 12345678901234567890123, "f": 1.0, "t": True, "s": "1"}, page=7),
        Chunk("same.md", 0, "twice", (), {}, "z", i_start=0, i_end=5, heading_path=("", "a / b")),
        Chunk("same.md", 1, "the same", (), {}, "z"),
    ]
    with Store.create(path, 8, heading_weight=3.5, stemmer="german") as store:
        store.upsert(documents, chunks, [eye[0], -eye[1], (eye[2] + eye[3]) / np.sqrt(np.float32(2)), eye[4]])
    return path


class TestBothWays:
    def test_the_handbook(self, url, tmp_path):
        path = sqlrag.prepare_embeddings(ROOT / "data" / "handbook", tmp_path / "kb.duckdb", **HASHING).path
        pulled = both_ways(path, url, tmp_path)
        assert_same_file(path, pulled)
        assert table(path, "document_links", set(), "ALL")
        assert sqlrag.check(pulled) == []
        for question in ("filter by tag", '"embedding model"', "chunk*"):
            one, other = (timeless(sqlrag.lexical_query(question, place, top_k=20)) for place in (path, pulled))
            assert one == other
            assert len(one) > 5

    def test_what_is_hard_to_carry(self, url, tmp_path):
        path = write_odd_store(tmp_path / "odd.duckdb")
        pulled = both_ways(path, url, tmp_path)
        assert_same_file(path, pulled)
        assert sqlrag.check(pulled) == sqlrag.check(path)
        with PostgresStore(url) as store:
            assert store.check() == []

    def test_nodes_of_llama_index(self, url, tmp_path):
        from llama_index.core.schema import TextNode

        from sqlrag.adapters.llama_index import SqlragVectorStore

        path = tmp_path / "nodes.duckdb"
        eye = np.eye(8).tolist()
        SqlragVectorStore(str(path)).add(
            [TextNode(id_=f"node-{i}", text=f"text {i}", metadata={"i": i}, embedding=eye[i]) for i in range(3)]
        )
        pulled = both_ways(path, url, tmp_path)
        rows, others = (table(place, "documents", {"rid", "metadata_"}, "node_id") for place in (path, pulled))
        assert others == rows
        # What llama-index opens a node by is left out of every export and made anew.
        for place in (path, pulled):
            nodes = SqlragVectorStore(str(place)).get_nodes(["node-1", "node-2"])
            assert [(node.node_id, node.text, node.metadata["i"]) for node in nodes] == [
                ("node-1", "text 1", 1),
                ("node-2", "text 2", 2),
            ]

    def test_small(self, url, tmp_path):
        make_small_store(tmp_path / "small.duckdb")
        assert_same_file(tmp_path / "small.duckdb", both_ways(tmp_path / "small.duckdb", url, tmp_path))

    def test_nothing(self, url, tmp_path):
        make_small_store(tmp_path / "empty.duckdb")
        sqlrag.delete_documents(tmp_path / "empty.duckdb", doc_ids=["a.md", "b.md", "notes:c.pdf"])
        assert_same_file(tmp_path / "empty.duckdb", both_ways(tmp_path / "empty.duckdb", url, tmp_path))

    @pytest.mark.parametrize("size", [1, 2])
    def test_batches_of_any_size(self, url, kb, tmp_path, size):
        push(kb, url, batch_chunks=size, progress="off")
        assert_same_file(kb, pull(url, tmp_path / "pulled.duckdb").path)


class TestPushingAgain:
    def test_what_is_there_is_skipped(self, url, kb):
        first, again = push(kb, url, progress="off"), push(kb, url, progress="off")
        assert (first.documents, first.skipped) == (3, 0)
        assert (again.documents, again.chunks, again.skipped, again.removed) == (0, 0, 3, 0)

    def test_only_what_has_changed_is_written(self, url, kb, tmp_path):
        push(kb, url, progress="off")
        (tmp_path / "docs" / "mango.md").write_text("# Mango\n\nIt is yellow.\n", "utf-8")
        (tmp_path / "docs" / "notes.txt").unlink()
        sqlrag.update_embeddings(tmp_path / "docs", kb, prune=True, progress="off")
        again = push(kb, url, progress="off")
        assert (again.documents, again.skipped, again.removed) == (1, 1, 0)
        with PostgresStore(url) as store:
            assert {chunk.doc_id for chunk in store.chunks()} == {"mango.md", "pump.md", "notes.txt"}
        assert push(kb, url, prune=True, progress="off").removed == 1
        assert_same_file(kb, pull(url, tmp_path / "pulled.duckdb").path)

    def test_prune_leaves_other_collections_alone(self, url, kb, tmp_path):
        push(kb, url, progress="off")
        make = {"folder": "more", "name": "more.duckdb", "options": {"collection": "more"}}
        more = build(tmp_path, **make, goose_md="# Goose\n\nA bird.\n", owl_md="# Owl\n\nA bird.\n")
        push(more, url, progress="off")
        sqlrag.delete_documents(more, doc_ids=["more:owl.md"])
        assert push(more, url, collection="more", prune=True, progress="off").removed == 1
        pulled = pull(url, tmp_path / "p.duckdb").path
        assert {doc_id for (doc_id,) in table(pulled, "source_documents", ALL_BUT_ID, "doc_id")} == {
            "mango.md", "more:goose.md", "notes.txt", "pump.md",
        }  # fmt: skip

    def test_another_model_is_refused(self, url, kb, tmp_path):
        push(kb, url, progress="off")
        Store.create(tmp_path / "other.duckdb", 8).close()
        with pytest.raises(ModelMismatchError):
            push(tmp_path / "other.duckdb", url, progress="off")
        same_size = build(tmp_path, "same.duckdb", options={"embed_model_name": "hashing-64"}, folder="x", a_md="a")
        with Store(same_size, read_only=False) as store:
            store.cursor().execute("UPDATE embedding_metadata SET value = 'another' WHERE key = 'embedding_model'")
        with pytest.raises(ModelMismatchError):
            push(same_size, url, progress="off")
        assert push(kb, url, progress="off").skipped == 3

    def test_own_ids_into_a_store_that_had_none(self, url, tmp_path):
        Store.create(tmp_path / "plain.duckdb", 8, heading_weight=3.5, stemmer="german").close()
        push(tmp_path / "plain.duckdb", url, progress="off")
        path = write_odd_store(tmp_path / "odd.duckdb")
        push(path, url, progress="off")
        with PostgresStore(url) as store:
            assert store.check() == []
        pulled = pull(url, tmp_path / "pulled.duckdb").path
        assert table(pulled, "documents", {"rid"}, "node_id") == table(path, "documents", {"rid"}, "node_id")
        assert sqlrag.check(pulled) == sqlrag.check(path)


ALL_BUT_ID = {
    "rid", "file_path", "file_name", "text", "metadata_", "collection", "checksum", "mime", "size_bytes", "modified_at",
    "tags", "body_start", "shown_end", "page_starts", "chunk_policy", "created_at",
}  # fmt: skip
PUSH = """
import sys, os
from sqlrag import push
from sqlrag.formats.push.to_postgres import PostgresTarget
write, done = PostgresTarget.write, []
def killing(self, batch):
    found = write(self, batch)
    done.append(batch)
    if len(done) == 2:
        os.kill(os.getpid(), 9)
    return found
PostgresTarget.write = killing
push(sys.argv[1], sys.argv[2], batch_chunks=1, progress="off")
"""


class TestIds:
    def test_fault_S15_an_id_of_a_document_of_another_file_is_refused(self, url, kb, tmp_path):
        other = build(tmp_path, "other.duckdb", folder="others", c_md="cherry")
        with Store(other, read_only=False) as store:
            store.index([Chunk("x", 0, "one", given_id="mango.md#0")], vectors=np.ones((1, 64)))
        chunks = "documents", {"rid"}, "node_id"
        push(kb, url, progress="off")
        message = r"'mango\.md#0' is that of a chunk of the document 'mango\.md'"
        with pytest.raises(InputError, match=message):
            push(other, url, progress="off")
        pulled = pull(url, tmp_path / "pulled.duckdb").path
        assert table(pulled, *chunks) == table(kb, *chunks)
        push(other, other_url := f"{url}_other", progress="off")
        with pytest.raises(InputError, match=message):
            pull(other_url, pulled)
        assert table(pulled, *chunks) == table(kb, *chunks)

    def test_fault_S15_an_id_that_has_moved_in_the_file(self, url, kb, tmp_path):
        for first, second in (("k", "l"), ("l", "k")):
            with Store(kb, read_only=False) as store:
                chunks = [Chunk("y", 0, "two", given_id=first), Chunk("x", 0, "one", given_id=second)]
                store.index(chunks, vectors=np.eye(2, 64))
            assert push(kb, url, progress="off", batch_chunks=1).verified
        assert_same_file(kb, pull(url, tmp_path / "pulled.duckdb").path)


class TestInterrupted:
    def test_a_push_that_was_killed_goes_on(self, url, kb, tmp_path):
        done = subprocess.run(
            [sys.executable, "-c", PUSH, str(kb), url],
            env={"PYTHONPATH": str(ROOT), "PATH": ""},
            check=False,
            timeout=60,
        )
        assert done.returncode == -signal.SIGKILL
        again = push(kb, url, batch_chunks=1, progress="off")
        assert (again.documents, again.skipped) == (1, 2)
        assert_same_file(kb, pull(url, tmp_path / "pulled.duckdb").path)

    def test_what_another_changes_meanwhile_is_noticed_and_mended(self, postgres, url, kb, tmp_path, monkeypatch):
        verify = to_postgres.PostgresTarget._verify
        schema = url.rpartition("=")[2]

        def changed(self):
            postgres.execute(f"UPDATE {schema}.chunks SET content = 'other' WHERE doc_id = 'pump.md'")
            verify(self)

        with monkeypatch.context() as patch:
            patch.setattr(to_postgres.PostgresTarget, "_verify", changed)
            with pytest.raises(StoreError, match=r"'pump\.md'.*Run the push again"):
                push(kb, url, progress="off")
        again = push(kb, url, progress="off")
        assert (again.documents, again.skipped) == (1, 2)
        assert_same_file(kb, pull(url, tmp_path / "pulled.duckdb").path)

    def test_a_vector_that_another_changed_is_noticed(self, postgres, url, kb):
        push(kb, url, progress="off")
        schema = url.rpartition("=")[2]
        postgres.execute(f"UPDATE {schema}.chunks SET embedding = (embedding::real[])[2:] || 0.0::real "
                         "WHERE doc_id = 'pump.md'")  # fmt: skip
        with pytest.raises(StoreError, match=r"'pump\.md'"):
            push(kb, url, progress="off")
        assert push(kb, url, progress="off").documents == 1

    def test_no_connection_is_left(self, postgres, url, kb, tmp_path):
        push(kb, url, progress="off")
        Store.create(tmp_path / "other.duckdb", 8).close()
        with pytest.raises(ModelMismatchError):
            push(tmp_path / "other.duckdb", url, progress="off")
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("pool-")]


class TestPulling:
    def test_filters(self, url, kb, tmp_path):
        push(kb, url, progress="off")
        for number, (filters, wanted) in enumerate(
            [
                ({"tags_any": ["fruit"]}, ["mango.md"]),
                ({"tags_all": ["machine"]}, ["pump.md"]),
                ({"metadata": {"year": 2024}}, ["mango.md"]),
                ({"collection": "default"}, ["mango.md", "notes.txt", "pump.md"]),
                ({"collection": "none"}, []),
            ]
        ):
            path = pull(url, tmp_path / f"{number}.duckdb", **filters).path
            with stored_contents(path) as here, stored_contents(kb, **filters, may_be_none=True) as there:
                found = [doc for batch in here.batches for doc in batch.sources["doc_id"].to_pylist()]
                assert (
                    found == [doc for batch in there.batches for doc in batch.sources["doc_id"].to_pylist()] == wanted
                )

    def test_into_a_file_that_exists(self, url, kb, tmp_path):
        push(kb, url, progress="off")
        other = build(tmp_path, "other.duckdb", folder="other", mango_md="old mango", goose_md="A goose.")
        pulled = pull(url, other)
        assert (pulled.documents, pulled.created) == (3, False)
        assert sqlrag.check(other) == []
        found = {row[0] for row in table(other, "source_documents", ALL_BUT_ID, "doc_id")}
        assert found == {"goose.md", "mango.md", "notes.txt", "pump.md"}
        wanted = [row for row in table(kb, "documents", {"rid"}, "node_id") if "mango" in str(row)]
        assert [row for row in table(other, "documents", {"rid"}, "node_id") if "mango.md" in str(row)] == [
            row for row in wanted if "mango.md" in str(row)
        ]
        assert pull(url, other, overwrite=True).created
        assert_same_file(kb, other)

    def test_into_a_file_of_another_model(self, url, kb, tmp_path):
        push(kb, url, progress="off")
        Store.create(tmp_path / "other.duckdb", 8).close()
        before = (tmp_path / "other.duckdb").read_bytes()
        with pytest.raises(ModelMismatchError):
            pull(url, tmp_path / "other.duckdb")
        assert (tmp_path / "other.duckdb").read_bytes() == before

    def test_no_store_there(self, url, kb, tmp_path):
        with pytest.raises(NotAStoreError):
            pull(url, tmp_path / "pulled.duckdb")
        with pytest.raises(InputError):
            pull(str(kb), tmp_path / "pulled.duckdb")
        assert not (tmp_path / "pulled.duckdb").exists()

    def test_a_password_is_never_shown(self, kb, tmp_path):
        url = "postgresql://ann:s3cret@127.0.0.1:1/kb?sslpassword=s3cret"
        for work in (lambda: pull(url, tmp_path / "p.duckdb"), lambda: push(kb, url, progress="off")):
            with pytest.raises(StoreError, match="cannot be reached") as raised:
                work()
            assert "s3cret" not in str(raised.value)
            assert "ann@127.0.0.1:1/kb" in str(raised.value)


class TestOtherFormats:
    def test_exports_of_a_url_are_those_of_the_file(self, url, kb, tmp_path):
        push(kb, url, progress="off")
        for place, name in ((kb, "file"), (url, "url")):
            sqlrag.export_ragmd(place, tmp_path / f"{name}.ragmd")
            sqlrag.export_parquet(place, tmp_path / name)
        for name in ("file", "url"):
            sqlrag.import_ragmd(tmp_path / f"{name}.ragmd", tmp_path / f"{name}-md.duckdb")
            sqlrag.import_parquet(tmp_path / name, tmp_path / f"{name}-parquet.duckdb")
        assert_same_file(tmp_path / "file-md.duckdb", tmp_path / "url-md.duckdb")
        assert_same_file(tmp_path / "file-parquet.duckdb", tmp_path / "url-parquet.duckdb")

    def test_what_cannot_be_made_of_a_url_says_what_to_do(self, url, kb, tmp_path):
        push(kb, url, progress="off")
        with_password = url.replace("postgresql://", "postgresql://ann:s3cret@", 1) if "@" not in url else url
        with pytest.raises(InputError, match="sqlrag pull"):
            sqlrag.compact(with_password)
        with pytest.raises(InputError, match="sqlrag pull"):
            sqlrag.merge([with_password], tmp_path / "merged.duckdb")


def test_stop_words_that_were_edited_later_go_along(kb, postgres_url, tmp_path):
    pulled = tmp_path / "pulled.duckdb"
    push(kb, postgres_url, progress="off")
    pull(postgres_url, pulled)
    with duckdb.connect(kb) as con:
        con.execute("DELETE FROM fts_main_documents.stopwords WHERE word = 'the'")
        con.execute("INSERT INTO fts_main_documents.stopwords VALUES ('mango')")
    told = ["The stop words have changed (added: mango; removed: the)."]
    again = push(kb, postgres_url, progress="off")
    assert (again.skipped, again.documents, again.notices) == (3, 0, told)
    assert push(kb, postgres_url, progress="off").notices == []
    assert pull(postgres_url, pulled).notices == told
    assert pull(postgres_url, tmp_path / "new.duckdb").notices == []
    with (
        Store(kb) as file,
        PostgresStore(postgres_url) as server,
        Store(pulled) as old,
        Store(tmp_path / "new.duckdb") as new,
    ):
        for question in ("the", "mango", "the mango and the pump"):
            wanted, *others = (
                [(row["node_id"], row["score"]) for row in store.lexical_query(question)]
                for store in (file, server, old, new)
            )
            assert others == [wanted] * 3
        assert file.lexical_query("the")


def test_stop_words_go_along(kb, postgres_url, tmp_path):
    """A question finds the same in the file, in Postgres and in a file that is pulled from there."""
    path, pulled = tmp_path / "own.duckdb", tmp_path / "pulled.duckdb"
    shutil.copy(kb, path)
    with duckdb.connect(path) as con:
        con.execute("DELETE FROM fts_main_documents.stopwords WHERE word <> 'the'")
    push(path, postgres_url, progress="off")
    pull(postgres_url, pulled)
    with Store(path) as file, PostgresStore(postgres_url) as server, Store(pulled) as copy:
        wanted = [(row["node_id"], row["score"]) for row in file.lexical_query("the of a")]
        assert wanted
        for store in (server, copy):
            assert [(row["node_id"], row["score"]) for row in store.lexical_query("the of a")] == wanted
