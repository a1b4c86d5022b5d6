"""llama-index's own DuckDB store and sqlrag read each other's files; run in an environment of its own.

That package wants DuckDB below 1.4, so it cannot stand beside the newest one. Its ``INSTALL`` of two extensions at each
opening is satisfied by the wheels ``duckdb-extension-fts`` and ``duckdb-extension-json``: their files are put where
DuckDB looks for them, in a home folder of the test.
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import duckdb
import pytest

pytest.importorskip("llama_index.vector_stores.duckdb", reason="needs the [llama-index-duckdb] extra")
pytest.importorskip("duckdb_extension_fts", reason="needs duckdb-extension-fts and -json of DuckDB's version")

from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQuery
from llama_index.vector_stores.duckdb import DuckDBVectorStore

import sqlrag
from sqlrag.adapters.llama_index import SqlragEmbedding, SqlragIndex, SqlragVectorStore
from sqlrag.embedders import HashingEmbedder
from tests.support.helpers import HASHING, build, write

MODEL = SqlragEmbedding(embedder=HashingEmbedder("hashing-64"))
QUESTIONS = ("alpha", "beta gamma", "How do I find delta?", "epsilon zeta alpha")


@pytest.fixture(autouse=True)
def extensions(tmp_path, monkeypatch):
    """Give DuckDB a home folder that has both extensions, as files without a note of where they came from."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (platform,) = duckdb.execute("PRAGMA platform").fetchone()
    folder = tmp_path / ".duckdb" / "extensions" / f"v{duckdb.__version__}" / platform
    folder.mkdir(parents=True)
    for name in ("fts", "json"):
        package = Path(find_spec(f"duckdb_extension_{name}").origin).parent
        shutil.copy(package / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension", folder)


class Theirs:
    """Their store over a file, for the length of a ``with``: it has no way to be closed."""

    def __init__(self, path, embed_dim=64):
        self.store = DuckDBVectorStore.from_local(str(path), embed_dim=embed_dim)

    def __enter__(self):
        return self.store

    def __exit__(self, *_):
        self.store.client.close()
        self.store._shared_conn.close()


def question(text, **options):
    return VectorStoreQuery(query_embedding=MODEL.get_query_embedding(text), query_str=text, **options)


def node(id_, text, document=None, **metadata):
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)} if document else {}
    made = TextNode(id_=id_, text=text, metadata=metadata, relationships=source)
    made.embedding = MODEL.get_text_embedding(text)
    return made


@pytest.fixture
def ours(tmp_path):
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
    texts = {f"d{i}_md": f"# Page {i}\n\n{' '.join(words[: 2 + i % 6])} word{i}" for i in range(9)}
    return build(tmp_path, **texts)


@pytest.fixture
def theirs(tmp_path):
    nodes = [
        node("n1", "alpha beta", "one", year=2019),
        node("n2", "beta gamma", "one", year=2020),
        node("n3", "delta epsilon alpha zeta", "two", year=2021),
        node("lone", "alone with zeta"),
        node("lone2", "alone with eta"),
    ]
    with Theirs(tmp_path / "theirs.duckdb") as store:
        store.add(nodes)
    return tmp_path / "theirs.duckdb", nodes


class TestTheyOpenOurs:
    @pytest.mark.parametrize("text", QUESTIONS)
    def test_the_same_best_ones(self, ours, text):
        wanted = sqlrag.vector_query(text, ours, top_k=5, exact=True)
        with Theirs(ours) as store:
            found = store.query(question(text, similarity_top_k=5))
        # They compute in 32 bits, and leave the order of equal scores to chance.
        assert found.similarities == pytest.approx([row["score"] for row in wanted], abs=1e-6)
        cut = wanted[-1]["score"] + 1e-6
        sure = {row["node_id"] for row in wanted if row["score"] > cut}
        assert sure
        assert sure <= set(found.ids)
        assert found.nodes[0].text
        assert found.nodes[0].ref_doc_id in {f"d{i}.md" for i in range(9)}

    def test_their_nodes_are_ours(self, ours):
        own = SqlragVectorStore(ours).get_nodes()
        with Theirs(ours) as store:
            found = {one.node_id: one for one in store.get_nodes()}
            some = store.get_nodes(node_ids=["d3.md#0"])
        assert {one.node_id for one in own} == set(found)
        assert [one.node_id for one in some] == ["d3.md#0"]
        for one in own:
            assert (one.text, one.metadata) == (found[one.node_id].text, found[one.node_id].metadata)

    def test_a_file_that_nodes_were_added_to(self, ours):
        SqlragVectorStore(ours).add([node("own", "omega word", "new", k=1)])
        with Theirs(ours) as store:
            (found,) = store.query(question("omega word", similarity_top_k=1)).nodes
            (by_filter,) = store.get_nodes(filters=MetadataFilters(filters=[MetadataFilter(key="k", value=1)]))
        assert (found.node_id, found.ref_doc_id, found.metadata) == ("own", "new", {"k": 1})
        assert by_filter.node_id == "own"

    def test_their_add_fails_and_changes_nothing(self, ours):
        before = sqlrag.vector_query("alpha", ours)
        with Theirs(ours) as store, pytest.raises(duckdb.BinderException, match="columns but 4 values"):
            store.add([node("x", "alpha")])
        assert sqlrag.vector_query("alpha", ours) == before
        assert sqlrag.check(ours) == []


class TestWeOpenTheirs:
    def test_the_remedy_is_told(self, theirs):
        path, _ = theirs
        with pytest.raises(sqlrag.NotAStoreError, match=f"DuckDBVectorStore.*sqlrag upgrade {path}"):
            sqlrag.vector_query("alpha", path)

    def test_upgraded_it_gives_the_same_best_ones(self, theirs):
        path, nodes = theirs
        with Theirs(path) as store:
            wanted = {text: store.query(question(text, similarity_top_k=4)) for text in QUESTIONS}
        upgraded = sqlrag.upgrade(path)
        assert (upgraded.documents, upgraded.chunks, upgraded.left_out) == (4, 5, ())
        assert sqlrag.check(path) == []
        vectors = SqlragVectorStore(path)
        for text, one in wanted.items():
            found = vectors.query(question(text, similarity_top_k=4))
            assert found.similarities == pytest.approx(one.similarities, abs=1e-6)
            assert found.ids[0] == one.ids[0] or one.similarities[0] == pytest.approx(one.similarities[1])
        assert {row["node_id"] for row in sqlrag.lexical_query("alpha", path)} == {"n1", "n3"}
        back = {one.node_id: one for one in vectors.get_nodes()}
        for one in nodes:
            assert back[one.node_id].model_dump(exclude={"embedding"}) == one.model_dump(exclude={"embedding"})
        with sqlrag.Store(path) as store:
            assert {c.node_id: c.doc_id for c in store.chunks()} == {
                "n1": "one", "n2": "one", "n3": "two", "lone": "lone", "lone2": "lone2",
            }  # fmt: skip

    def test_upgraded_it_takes_more(self, theirs):
        path, _ = theirs
        sqlrag.upgrade(path)
        vectors = SqlragVectorStore(path)
        vectors.add([node("n4", "omega", "two")])
        vectors.delete("one")
        assert {one.node_id for one in vectors.get_nodes()} == {"n3", "n4", "lone", "lone2"}
        assert sqlrag.check(path) == []

    def test_vectors_of_no_fixed_length(self, tmp_path):
        with Theirs(tmp_path / "t.duckdb", embed_dim=None) as store:
            store.add([node("n1", "alpha", "one"), node("n2", "beta", "two")])
        sqlrag.upgrade(tmp_path / "t.duckdb")
        assert SqlragVectorStore(tmp_path / "t.duckdb").query(question("alpha", similarity_top_k=1)).ids == ["n1"]
        assert sqlrag.check(tmp_path / "t.duckdb") == []


def test_prepare_embeddings_gives_an_index_here_too(tmp_path):
    root = write(tmp_path / "docs", a_md="alpha", b_md="beta")
    index = sqlrag.prepare_embeddings(root, tmp_path / "kb.duckdb", **HASHING)
    assert isinstance(index, SqlragIndex)
    assert [one.node_id for one in index.as_retriever(similarity_top_k=1).retrieve("beta")] == ["b.md#0"]
