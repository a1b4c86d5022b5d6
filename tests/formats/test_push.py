"""A file pushed into vector stores of llama-index: the embedded modes of Qdrant and Milvus, and llama-index's own.

The first two are installed in an environment of their own: llama-index-vector-stores-qdrant and -milvus.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from importlib.util import find_spec
from uuid import NAMESPACE_OID, uuid5

import numpy as np
import pytest
from llama_index.core.schema import MetadataMode
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters, VectorStoreQuery
from llama_index.core.vector_stores.utils import node_to_metadata_dict

import sqlrag
from sqlrag import (
    Chunk,
    Document,
    InputError,
    MissingExtraError,
    ModelMismatchError,
    NotFoundError,
    Pushed,
    Store,
    StoreError,
    push,
)
from sqlrag.adapters.llama_index import SqlragVectorStore
from sqlrag.formats.exchange import stored_contents
from sqlrag.formats.push.to_vector_stores import documents_of
from tests.support.helpers import DATA, HASHING, ROOT, build, ids
from tests.support.stores import make_small_store

NFCORPUS = DATA / "nfcorpus"
DIMENSIONS = 64


def qdrant(folder, dimensions=DIMENSIONS, *, on_disk=False):
    from llama_index.vector_stores.qdrant import QdrantVectorStore
    from qdrant_client import QdrantClient

    # On disk it waits for the disk at each point.
    return QdrantVectorStore(
        "kb", client=QdrantClient(path=f"{folder}/qdrant") if on_disk else QdrantClient(":memory:")
    )


def milvus(folder, dimensions=DIMENSIONS, *, on_disk=True):
    from llama_index.vector_stores.milvus import MilvusVectorStore

    path = f"{folder}/milvus.db"
    store = MilvusVectorStore(
        path, collection_name="kb", dim=dimensions, similarity_metric="COSINE", use_async_client=False
    )
    store.client.load_collection("kb")  # what was on disk is not before
    return store


def ours(folder, dimensions=DIMENSIONS, *, on_disk=True):
    return SqlragVectorStore(f"{folder}/there.duckdb")


def close(store):
    if hasattr(store.client, "close"):
        store.client.close()


def needs(package):
    found = find_spec("llama_index.vector_stores") and find_spec(f"llama_index.vector_stores.{package}")
    return pytest.mark.skipif(not found, reason=f"needs llama-index-vector-stores-{package}, in an environment apart")


# grpc and both clients warn of what is none of ours: payload indexes, pkg_resources, sockets.
pytestmark = [pytest.mark.filterwarnings("ignore")]
KINDS = [
    pytest.param(qdrant, marks=needs("qdrant"), id="qdrant"),
    pytest.param(milvus, marks=needs("milvus"), id="milvus"),
    pytest.param(ours, id="sqlrag"),
]


@pytest.fixture(scope="module")
def handbook(tmp_path_factory):
    path = tmp_path_factory.mktemp("kb") / "handbook.duckdb"
    return sqlrag.prepare_embeddings(ROOT / "data" / "handbook", path, chunk_size=200, **HASHING).path


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def store(kind, tmp_path):
    opened = kind(tmp_path)
    yield opened
    close(opened)


def rows_of(path, **chosen):
    """Return the rows of a file's chunks with their vectors, by node_id."""
    with stored_contents(path, **chosen) as contents:
        return {
            row["node_id"]: (row, vector)
            for batch in contents.batches
            for row, vector in zip(batch.chunks.to_pylist(), batch.vectors, strict=True)
        }


def uuid_of(node_id):
    return str(uuid5(NAMESPACE_OID, node_id))


def there(store):
    """Return all nodes of a store by the node_id in their metadata; none may be there twice."""
    every = MetadataFilters(filters=[MetadataFilter(key="chunk_index", value=0, operator=FilterOperator.GTE)])
    nodes = store.get_nodes(filters=every)
    found = {node.metadata["node_id"]: node for node in nodes}
    assert len(found) == len(nodes)
    return found


def assert_same(store, path, **chosen):
    rows, found = rows_of(path, **chosen), there(store)
    assert found.keys() == rows.keys()
    for node_id, (row, vector) in rows.items():
        node = found[node_id]
        assert node.node_id == uuid_of(node_id)
        assert node.ref_doc_id == row["doc_id"]
        assert node.get_content(MetadataMode.NONE) == row["text"]
        assert (node.start_char_idx, node.end_char_idx) == (row["i_start"], row["i_end"])
        given = json.loads(row["metadata_"])
        fields = ("node_id", "doc_id", "collection", "chunk_index", "i_start", "i_end", "page", "heading_path", "tags")
        wanted = {**given, **{name: row[name] for name in fields}}
        metadata = {name: value for name, value in node.metadata.items() if not name.startswith("push_")}
        assert metadata == {name: value for name, value in wanted.items() if value not in (None, [])}
        # Milvus keeps every bit; the others bring vectors to length 1 once more, which moves the last ones.
        exact = type(store).__name__ == "MilvusVectorStore"
        np.testing.assert_allclose(np.float32(node.embedding), vector, rtol=0, atol=0 if exact else 1e-7)


def asked(store, vector, top_k=10, **options):
    query = VectorStoreQuery(query_embedding=[float(x) for x in vector], similarity_top_k=top_k, **options)
    result = store.query(query)
    return [node.metadata["node_id"] for node in result.nodes], result.similarities


class TestHandbook:
    @pytest.mark.slow
    def test_everything_is_there_once_however_often_it_is_pushed(self, handbook, store):
        rows = rows_of(handbook)
        documents = len({row["doc_id"] for row, _ in rows.values()})
        first = push(handbook, store)
        assert isinstance(first, Pushed)
        assert (first.documents, first.chunks, first.skipped, first.verified) == (documents, len(rows), 0, True)
        assert str(first).endswith(" s; verified")
        assert_same(store, handbook)
        again = push(handbook, store, batch_chunks=50)
        assert (again.documents, again.chunks, again.skipped, again.removed) == (0, 0, documents, 0)
        assert_same(store, handbook)

    @pytest.mark.parametrize("kind", KINDS[:2], indirect=True)
    def test_a_question_finds_the_same(self, handbook, store):
        push(handbook, store)
        questions = [json.loads(line)["text"] for line in (ROOT / "data" / "questions.jsonl").open(encoding="utf-8")]
        with Store(handbook) as opened:
            for question in questions[:20]:
                vector = opened.query_vector(question)
                expected = opened.vector_query(question, top_k=10, exact=True)
                _, scores = found = asked(store, vector)
                assert_same_ranking(expected, *found)
                np.testing.assert_allclose(scores, [row["vector_score"] for row in expected], atol=1e-5)

    @pytest.mark.parametrize("kind", KINDS[:2], indirect=True)
    def test_a_filter_chooses_the_same(self, handbook, store):
        push(handbook, store)
        where = MetadataFilters(filters=[MetadataFilter(key="doc_id", value="guides/filters.md")])
        with Store(handbook) as opened:
            vector = opened.query_vector("tags")
            expected = opened.vector_query("tags", top_k=3, exact=True, metadata={"$doc_id": "guides/filters.md"})
        assert_same_ranking(expected, *asked(store, vector, 3, filters=where))


def assert_same_ranking(expected, found, scores):
    """Compare ids; those of equal scores may change places, since each store breaks ties by its own ids."""
    ranked = [(round(float(score), 5), node_id) for score, node_id in zip(scores, found, strict=True)]
    wanted = [(round(row["vector_score"], 5), row["node_id"]) for row in expected]
    last = min(score for score, _ in wanted) + 2e-5
    assert {node_id for score, node_id in ranked if score > last} == {i for score, i in wanted if score > last}
    assert len(ranked) == len(wanted)


class TestChanges:
    @pytest.mark.slow
    def test_a_changed_document_leaves_no_tail(self, tmp_path, store):
        path = build(tmp_path, a_md="# A\n\none\n\n# B\n\ntwo\n\n# C\n\nthree", b_md="# D\n\nfour", c_md="# E\n\nfive")
        push(path, store)
        assert len(there(store)) == 5
        # Its first chunk stays as it is, so that only the number of chunks tells the difference.
        (tmp_path / "docs" / "a.md").write_text("# A\n\none", "utf-8")
        (tmp_path / "docs" / "b.md").write_text("# D\n\nnew\n\n# F\n\nmore", "utf-8")
        sqlrag.update_embeddings(tmp_path / "docs", path, progress="off")
        report = push(path, store)
        assert (report.documents, report.chunks, report.skipped) == (2, 3, 1)
        assert_same(store, path)

    def test_a_document_that_is_gone_goes_with_prune(self, tmp_path, store):
        path = build(tmp_path, a_md="alpha", b_md="beta", c_md="gamma")
        push(path, store)
        sqlrag.delete_documents(path, doc_ids=["b.md"])
        assert push(path, store).removed == 0
        assert set(there(store)) == {"a.md#0", "b.md#0", "c.md#0"}
        report = push(path, store, prune=True)
        assert (report.documents, report.skipped, report.removed) == (0, 2, 1)
        assert "1 document removed" in str(report)
        assert_same(store, path)

    @pytest.mark.slow
    def test_prune_keeps_to_the_collection(self, tmp_path, store):
        path = tmp_path / "kb.duckdb"
        names = {"a": "red", "b": "red", "c": "blue", "d": "blue"}
        with Store.create(path, DIMENSIONS) as opened:
            documents = [Document(name, name, collection) for name, collection in names.items()]
            chunks = [Chunk(name, 0, name, collection=collection) for name, collection in names.items()]
            opened.upsert(documents, chunks, np.eye(DIMENSIONS, dtype=np.float32)[:4])
        push(path, store)
        sqlrag.delete_documents(path, doc_ids=["a", "c"])
        assert push(path, store, collection="red", prune=True).removed == 1
        assert {node.ref_doc_id for node in there(store).values()} == {"b", "c", "d"}
        assert push(path, store, collection=[], prune=True).removed == 0
        assert push(path, store, prune=True).removed == 1
        assert_same(store, path)

    def test_another_vector_is_a_change(self, tmp_path, store):
        path = tmp_path / "kb.duckdb"
        vectors = np.eye(DIMENSIONS, dtype=np.float32)
        with Store.create(path, DIMENSIONS) as opened:
            opened.upsert([Document("a", "x")], [Chunk("a", 0, "x")], vectors[:1])
        push(path, store)
        with Store(path, read_only=False) as opened:
            opened.upsert([Document("a", "x")], [Chunk("a", 0, "x")], vectors[1:2])
        assert push(path, store).chunks == 1
        assert_same(store, path)

    @pytest.mark.parametrize("batch_chunks", [1000, 1])  # with one, a batch is of that document alone
    def test_a_document_whose_chunks_are_gone(self, tmp_path, store, batch_chunks):
        path = build(tmp_path, a_md="alpha", b_md="# B\n\nbeta\n\n# C\n\ngamma")
        push(path, store)
        with Store(path, read_only=False) as opened:
            opened.upsert([Document("a.md", "alpha")], [], np.empty((0, DIMENSIONS), np.float32))
        push(path, store, batch_chunks=batch_chunks)
        assert set(there(store)) == {"b.md#0", "b.md#1"}

    def test_filters_choose_whole_documents(self, tmp_path, store):
        one = "---\ntags: [red]\nyear: 2020\n---\n# A\n\none\n\n# B\n\ntwo"
        path = build(tmp_path, a_md=one, b_md="---\ntags: [blue]\nyear: 2024\n---\nthree", c_md="four")
        push(path, store, tags_any=["red"])
        assert_same(store, path, tags_any=["red"])
        push(path, store, metadata={"year": {"$gt": 2021}})
        assert set(there(store)) == {"a.md#0", "a.md#1", "b.md#0"}


# A name that ends the expression which llama-index makes of it for Milvus, and goes on with another condition.
NAMES = [
    'x"] or doc_id != "',
    'quo"te.md',
    "apo'strophe.md",
    "back\\slash",
    "end\\",
    "new\nline",
    "per%cent_",
    "鸭子 🦆",
]


@pytest.mark.parametrize("kind", KINDS[:2], indirect=True)
def test_names_that_are_hard_on_expressions(tmp_path, store):
    path = tmp_path / "kb.duckdb"
    vectors = np.eye(DIMENSIONS, dtype=np.float32)[: len(NAMES)]

    def write(text):
        with Store(path, read_only=False) as opened:
            opened.upsert([Document(name, text) for name in NAMES], [Chunk(name, 0, text) for name in NAMES], vectors)

    Store.create(path, DIMENSIONS).close()
    write("first")
    push(path, store)
    write("second")
    push(path, store)
    assert_same(store, path)
    # One alone: no other document may go with it.
    for name in NAMES[:2]:
        with Store(path, read_only=False) as opened:
            opened.delete_documents(doc_ids=[name])
        assert push(path, store, prune=True).removed == 1
        assert_same(store, path)


# Ends the process in the third batch, in the middle of its second document.
KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import sqlrag
from tests.formats import test_push

store = getattr(test_push, sys.argv[2])(sys.argv[4], on_disk=True)
calls, add = [], type(store).add

def killed(self, nodes, **options):
    calls.append(len(nodes))
    if calls.count(14) == 3:
        add(self, nodes[:10])
        os.kill(os.getpid(), signal.SIGKILL)
    return add(self, nodes, **options)

type(store).add = killed
sqlrag.push(sys.argv[3], store, batch_chunks=20)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_killed_in_the_middle_and_run_again(kind, tmp_path):
    path = build(tmp_path, **{f"page{n}_md": "\n\n".join(f"# {n}.{i}\n\ntext" for i in range(7)) for n in range(12)})
    command = [sys.executable, "-c", KILLED, ROOT, kind.__name__, path, tmp_path]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    store = kind(tmp_path, on_disk=True)
    try:
        assert len(there(store)) == 14 + 14 + 10
        report = push(path, store)
        assert (report.documents, report.skipped, report.verified) == (7, 5, True)
        assert_same(store, path)
    finally:
        close(store)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS[:2], indirect=True)
@pytest.mark.skipif(not (NFCORPUS / "minilm.npz").exists(), reason="needs ../shared/data/nfcorpus")
def test_real_vectors_rank_the_same(kind, tmp_path):
    given = np.load(NFCORPUS / "minilm.npz")
    corpus = [json.loads(line) for line in (NFCORPUS / "corpus.jsonl").open(encoding="utf-8")]
    texts = {row["_id"]: f"{row['title']}\n{row['text']}" for row in corpus}
    size = 400
    names, vectors = given["corpus_ids"][:size].tolist(), given["corpus"][:size]
    path = tmp_path / "kb.duckdb"
    with Store.create(path, vectors.shape[1]) as opened:
        opened.upsert([Document(name, "") for name in names], [Chunk(n, 0, texts[n]) for n in names], vectors)
    store = kind(tmp_path, vectors.shape[1])
    try:
        assert push(path, store).chunks == size
        with Store(path) as opened:
            for vector in given["queries"][:50]:
                expected = opened.vector_query("", query_vector=vector, top_k=10, exact=True)
                found, scores = asked(store, vector)
                assert found == ids(expected)
                np.testing.assert_allclose(scores, [row["vector_score"] for row in expected], atol=1e-6)
    finally:
        close(store)


class TestOtherStores:
    @pytest.mark.slow
    def test_a_store_that_cannot_be_read_says_so(self, tmp_path):
        store = SimpleVectorStore()
        path = build(tmp_path, a_md="alpha", b_md="beta")
        for _ in range(2):
            report = push(path, store)
            assert (report.documents, report.skipped, report.verified) == (2, 0, False)
            assert "not verified" in str(report)
            assert any("cannot return nodes by id" in notice for notice in report.notices)
            assert any("stores no texts" in notice for notice in report.notices)
        assert sorted(store.data.embedding_dict) == sorted([uuid_of("a.md#0"), uuid_of("b.md#0")])
        with pytest.raises(StoreError, match="cannot list its nodes"):
            push(path, store, prune=True)

    def test_metadata_of_a_store_that_takes_plain_values(self, tmp_path):
        path = build(tmp_path, a_md="---\ntags: [red]\nyears: [1, 2]\nnothing:\n---\n# A\n\none")
        with stored_contents(path) as contents:
            documents, lost = documents_of(next(iter(contents.batches)), flat=True)
        ((node,),) = documents.values()
        # llama-index's own check of such stores.
        assert node_to_metadata_dict(node, flat_metadata=True)["tags"] == '["red"]'
        assert (node.metadata["years"], node.metadata["heading_path"]) == ("[1, 2]", '["A"]')
        assert "nothing" not in node.metadata
        assert lost == set()

    @pytest.mark.slow
    def test_fields_of_our_names_are_ours_and_that_is_told(self, tmp_path):
        store = ours(tmp_path)
        report = push(build(tmp_path, a_md="---\npage: front\nchunk_index: 7\n---\none"), store)
        assert "instead of yours: chunk_index" in report.notices[0]
        assert there(store)["a.md#0"].metadata["chunk_index"] == 0

    @pytest.mark.slow
    def test_what_a_model_reads_of_it(self, tmp_path):
        store = ours(tmp_path)
        push(build(tmp_path, a_md="# A\n\none"), store)
        text = there(store)["a.md#0"].get_content(MetadataMode.LLM)
        assert "heading_path: ['A']" in text
        assert "checksum" not in text
        assert "node_id" not in text


class Failing(SimpleVectorStore):
    """Takes so many calls of add, then refuses as a server does that is gone."""

    left: int = 1

    def add(self, nodes, **options):
        self.left -= 1
        if self.left < 0:
            raise ConnectionError("no server at https://user:hunter2@example.com")
        return super().add(nodes, **options)


class Forgetful(SqlragVectorStore):
    """Loses the last node of each call."""

    def add(self, nodes, **options):
        return super().add(nodes[:-1], **options)


class TestErrors:
    def test_a_failing_store_tells_what_was_done(self, tmp_path):
        path = build(tmp_path, a_md="alpha", b_md="beta", c_md="gamma")
        with pytest.raises(StoreError, match=r"ConnectionError.*1 document \(1 chunk\) were written.*again") as caught:
            push(path, Failing(), batch_chunks=1)
        assert "hunter2" not in str(caught.value)
        assert isinstance(caught.value.__cause__, ConnectionError)

    @pytest.mark.slow
    def test_a_store_that_loses_nodes_is_found_out(self, tmp_path):
        path = build(tmp_path, a_md="alpha", b_md="beta")
        there = Store.create(tmp_path / "there.duckdb", DIMENSIONS)
        with there, pytest.raises(StoreError, match="lacks 1 node that it accepted"):
            push(path, Forgetful(client=there))

    def test_a_collection_of_other_dimensions(self, tmp_path, store):
        path = tmp_path / "small.duckdb"
        make_small_store(path)
        push(build(tmp_path, a_md="alpha"), store)
        with pytest.raises((StoreError, ModelMismatchError), match=r"failed|dimensions"):
            push(path, store)

    def test_arguments(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        store = SimpleVectorStore()
        for to in ("somewhere", None, 3, path):
            with pytest.raises(InputError, match="vector store of llama-index"):
                push(path, to)
        with pytest.raises(InputError, match="batch_chunks"):
            push(path, store, batch_chunks=0)
        with pytest.raises(InputError, match="progress"):
            push(path, store, progress="loud")
        with pytest.raises(InputError, match="whole collections"):
            push(path, store, prune=True, tags_any=["x"])
        with pytest.raises(NotFoundError):
            push(tmp_path / "none.duckdb", store)

    def test_the_extra_of_postgres_is_named_where_it_is_missing(self, tmp_path, monkeypatch):
        path, url = build(tmp_path, a_md="alpha"), "postgresql://nobody@localhost:1/kb"
        monkeypatch.setitem(sys.modules, "psycopg", None)  # as if it were not installed
        for call in (
            lambda: push(path, url),
            lambda: sqlrag.pull(url, tmp_path / "pulled.duckdb"),
            lambda: sqlrag.get_embedding_metadata(url),
            lambda: sqlrag.hybrid_query("alpha", url),
        ):
            with pytest.raises(MissingExtraError, match=r"pip install 'sqlrag-duckdb\[postgres\]'"):
                call()
