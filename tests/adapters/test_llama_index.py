"""The adapter to llama-index: what goes in comes out, and every surface finds the same."""

from __future__ import annotations

import asyncio
import itertools
import json
import pickle
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import duckdb
import numpy as np
import pytest
from llama_index.core import Document, QueryBundle, StorageContext, VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import (
    ImageNode,
    IndexNode,
    MetadataMode,
    Node,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from llama_index.core.vector_stores.utils import build_metadata_filter_fn, node_to_metadata_dict

import sqlrag
from sqlrag import InputError, Store, check
from sqlrag.adapters.llama_index import (
    SqlragCompress,
    SqlragEmbedding,
    SqlragIndex,
    SqlragRerank,
    SqlragRetriever,
    SqlragVectorStore,
)
from sqlrag.embedders import HashingEmbedder
from tests.support.helpers import HASHING, build, pdf, python, write

EMBEDDER = HashingEmbedder("hashing-64")
EMBEDDING = SqlragEmbedding(embedder=EMBEDDER)


def node(text, id_, document=None, **fields):
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)} if document else {}
    made = TextNode(text=text, id_=id_, relationships=source, **fields)
    made.embedding = EMBEDDING.get_text_embedding(text)
    return made


def without_vector(one):
    return one.model_dump(exclude={"embedding"})


def asked(text, **options):
    return VectorStoreQuery(query_str=text, query_embedding=EMBEDDING.get_query_embedding(text), **options)


def pairs(results):
    return [(row["node_id"], row["score"]) for row in results]


def scored(nodes):
    return [(one.node_id, one.score) for one in nodes]


@pytest.fixture
def vectors(tmp_path):
    """Return a vector store whose file the first nodes make."""
    return SqlragVectorStore.from_path(tmp_path / "nodes.duckdb", EMBEDDER)


def made_nodes():
    return [
        node("alpha beta", "n1", "one", metadata={"year": 2019, "status": "a", "tags": ["x", "y"]}),
        node("beta gamma delta", "n2", "one", metadata={"year": 2020, "status": "b", "tags": ["y"]}),
        node("alpha delta epsilon", "n3", "two", metadata={"year": 2021.5, "status": "ab", "tags": []}),
        node("zeta", "n4", "three", metadata={"status": "", "note": "A B"}),
        node("alone", "n5", metadata={"year": None, "status": "c"}),
    ]  # fmt: skip


@pytest.fixture
def nodes():
    return made_nodes()


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """Return a vector store over a file of the nodes that is open for reading."""
    path = tmp_path_factory.mktemp("filled") / "nodes.duckdb"
    SqlragVectorStore.from_path(path, EMBEDDER).add(made_nodes())
    with Store(path) as store:
        yield SqlragVectorStore(client=store)


@pytest.fixture(scope="module")
def kb(tmp_path_factory):
    def part(seed):
        return " ".join(random.Random(seed).choices(["alpha", "beta", "gamma", "delta", "epsilon", "zeta"], k=9))

    texts = {
        f"d{i}_md": f"---\ntags: [t{i % 3}]\nyear: {2000 + i}\n---\n# Title {i}\n\n"
        + "\n\n".join(f"## Part {j}\n\n{part(i * 10 + j)}" for j in range(3))
        for i in range(8)
    }
    return build(tmp_path_factory.mktemp("kb"), **texts)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    files = {"a_md": "# One\n\nalpha beta", "b_md": "# Two\n\ngamma delta", "broken_pdf": "no PDF"}
    root = write(tmp_path_factory.mktemp("index") / "docs", **files)
    return sqlrag.prepare_embeddings(root, root.parent / "kb.duckdb", **HASHING)


class TestNodes:
    @pytest.mark.slow
    def test_nodes_come_back_as_they_were(self, vectors, nodes):
        nodes[0].relationships[NodeRelationship.NEXT] = nodes[1].as_related_node_info()
        nodes[1].excluded_embed_metadata_keys = ["year"]
        nodes[2].start_char_idx, nodes[2].end_char_idx = 7, 26
        assert vectors.add(nodes) == ["n1", "n2", "n3", "n4", "n5"]
        back = vectors.get_nodes(["n3", "n1", "nothing", "n2", "n5", "n4"])
        assert [one.node_id for one in back] == ["n3", "n1", "n2", "n5", "n4"]
        wanted = {one.node_id: one for one in nodes}
        for one in back:
            assert type(one) is TextNode
            assert without_vector(one) == without_vector(wanted[one.node_id])
            assert one.embedding == pytest.approx(wanted[one.node_id].embedding, abs=1e-7)
        assert [one.node_id for one in vectors.get_nodes()] == [
            "n5",
            "n1",
            "n2",
            "n4",
            "n3",
        ]  # by document: n5, one, three, two

    def test_nodes_of_other_classes(self, vectors):
        given = [
            IndexNode(text="alpha index", id_="i1", index_id="other"),
            ImageNode(text="a picture of beta", id_="i2", image_path="b.png"),
            Node(text_resource={"text": "a plain node"}, id_="i3"),
        ]
        for one in given:
            one.embedding = EMBEDDING.get_text_embedding("alpha")
        vectors.add(given)
        for one, before in zip(vectors.get_nodes(["i1", "i2", "i3"]), given, strict=True):
            assert type(one) is type(before)
            assert one.get_content() == before.get_content()
        assert vectors.get_nodes(["i1"])[0].index_id == "other"

    @pytest.mark.slow
    def test_the_file_is_a_store_for_every_other_surface(self, vectors, nodes):
        vectors.add(nodes)
        assert check(vectors.path) == []
        assert [row["node_id"] for row in sqlrag.lexical_query("alpha", vectors.path)] == ["n1", "n3"]
        found = sqlrag.hybrid_query("alpha delta", vectors.path)
        assert found.notices == []
        assert found[0]["node_id"] == "n3"
        with Store(vectors.path, read_only=False) as store:
            store.embed_query("alpha delta")
        with duckdb.connect(vectors.path, read_only=True) as con:
            rows = con.execute(found.sql).fetchall()
        assert [row[0] for row in rows] == [row["node_id"] for row in found]
        assert sqlrag.get_source_documents(["n2"], vectors.path)[0]["text"] == "alpha beta\n\nbeta gamma delta"

    @pytest.mark.rest
    def test_adding_again_replaces(self, vectors, nodes):
        vectors.add(nodes)
        changed = node("beta theta", "n1", "one", metadata={"year": 1})
        vectors.add([changed])
        assert without_vector(vectors.get_nodes(["n1"])[0]) == without_vector(changed)
        assert [one.node_id for one in vectors.get_nodes()] == ["n5", "n1", "n2", "n4", "n3"]
        assert [row["node_id"] for row in sqlrag.lexical_query("alpha", vectors.path)] == ["n3"]
        moved = node("beta iota", "n2", "two")
        with pytest.raises(InputError, match="'n2' is that of a chunk of the document 'one'"):
            vectors.add([moved])
        vectors.delete_nodes(["n2"])
        vectors.add([moved])
        with Store(vectors.path) as store:
            assert [(c.doc_id, c.chunk_index, c.node_id) for c in store.chunks(node_ids=["n1", "n2", "n3"])] == [
                ("one", 0, "n1"), ("two", 0, "n3"), ("two", 1, "n2"),
            ]  # fmt: skip
            assert store.sources(["one"])["one"]["text"] == "beta theta"
        assert check(vectors.path) == []

    @pytest.mark.rest
    def test_nodes_come_in_batches(self, vectors, nodes):
        for one in nodes:
            vectors.add([one])
        together = SqlragVectorStore.from_path(vectors.path + "2", EMBEDDER)
        together.add(nodes)
        assert vectors.query(asked("alpha delta", similarity_top_k=5, mode="hybrid")).similarities == together.query(
            asked("alpha delta", similarity_top_k=5, mode="hybrid")
        ).similarities  # fmt: skip
        assert check(vectors.path) == []
        assert vectors.add([]) == []

    @pytest.mark.slow
    def test_what_cannot_be_added(self, vectors, nodes):
        with pytest.raises(InputError, match="The node 'bare' has no embedding"):
            vectors.add([nodes[0], TextNode(text="alpha", id_="bare")])
        with pytest.raises(InputError, match="add takes no nonsense; it takes collection, tags"):
            vectors.add(nodes, nonsense=1)
        vectors.add(nodes)
        with pytest.raises(InputError, match="blank"):
            vectors.add([TextNode(text=" ", id_="n9", embedding=nodes[0].embedding)])
        with pytest.raises(InputError, match="more than once"):
            vectors.add([node("a", "n9"), node("b", "n9")])
        with pytest.raises(sqlrag.ModelMismatchError):
            vectors.add([TextNode(text="alpha", embedding=[1.0, 0.0])])
        assert len(vectors.get_nodes()) == 5

    @pytest.mark.rest
    def test_a_first_add_that_fails_leaves_no_file(self, vectors, nodes, tmp_path):
        short = TextNode(text="alpha", id_="short", embedding=[1.0, 0.0])
        blank = TextNode(text=" ", id_="blank", embedding=nodes[0].embedding)
        for wrong, options in (
            ([short, nodes[0]], {}), ([nodes[0], blank], {}), ([nodes[0], nodes[0]], {}),
            ([nodes[0], TextNode(text="alpha")], {}), (nodes, {"nonsense": 1}), (nodes, {"tags": 5}),
        ):  # fmt: skip
            with pytest.raises((InputError, sqlrag.ModelMismatchError)):
                vectors.add(wrong, **options)
            assert list(tmp_path.iterdir()) == []
        SqlragVectorStore(tmp_path / "made" / "x.duckdb").add(nodes)
        assert (tmp_path / "made" / "x.duckdb").exists()
        plain = SqlragVectorStore(vectors.path)
        plain.add([short])
        assert [one.node_id for one in plain.get_nodes()] == ["short"]

    @pytest.mark.rest
    def test_threads_may_all_be_the_first(self, vectors, nodes):
        start = threading.Barrier(6)

        def add(i):
            start.wait()
            return SqlragVectorStore.from_path(vectors.path, EMBEDDER).add([node(f"word{i}", f"w{i}")])

        with ThreadPoolExecutor(6) as pool:
            assert sorted(itertools.chain(*pool.map(add, range(6)))) == [f"w{i}" for i in range(6)]
        assert {one.node_id for one in vectors.get_nodes()} == {f"w{i}" for i in range(6)}
        assert check(vectors.path) == []

    @pytest.mark.rest
    def test_another_process_makes_the_file_meanwhile(self, vectors, monkeypatch):
        """While the first nodes of this process go into a new file, another one puts its own in the place."""
        code = (
            "import sys\nfrom llama_index.core.schema import TextNode\n"
            "from sqlrag.adapters.llama_index import SqlragVectorStore\n"
            "SqlragVectorStore(sys.argv[1]).add([TextNode(text='theirs', id_='t', embedding=[1.0] * 64)])"
        )
        make = Store.create

        def slow(*args, **kwargs):
            monkeypatch.undo()
            python(code, vectors.path)
            return make(*args, **kwargs)

        monkeypatch.setattr(Store, "create", slow)
        vectors.add([node("ours", "o")])
        assert {one.node_id for one in vectors.get_nodes()} == {"o", "t"}
        assert check(vectors.path) == []

    @pytest.mark.rest
    def test_collection_and_tags(self, vectors, nodes):
        vectors.add(nodes[:2], collection="notes", tags=("t",))
        vectors.add(nodes[2:])
        assert vectors.query(asked("alpha", similarity_top_k=5), collection="notes").ids == ["n1", "n2"]
        assert vectors.query(asked("alpha", similarity_top_k=5), tags_any=["t"]).ids == ["n1", "n2"]
        vectors.add([node("alpha new", "n1", "one")])  # what it is in stays
        assert vectors.query(asked("alpha", similarity_top_k=5), collection="notes").ids == ["n1", "n2"]
        with Store(vectors.path) as store:
            before = store.chunks(node_ids=["n3"])[0]
        vectors.add([node("alpha", "n3", "two"), node("eta", "n6")], collection="more", tags=["u"])
        with Store(vectors.path) as store:
            kept, new = (store.chunks(node_ids=[one])[0] for one in ("n3", "n6"))
        assert (kept.collection, kept.tags) == (before.collection, before.tags)
        assert (new.collection, new.tags) == ("more", ("u",))
        assert vectors.query(asked("alpha", similarity_top_k=5), collection="notes").ids == ["n1", "n2"]

    @pytest.mark.rest
    def test_deleting(self, vectors, nodes):
        vectors.add(nodes)
        vectors.delete("two")
        vectors.delete("nothing")
        assert {one.node_id for one in vectors.get_nodes()} == {"n1", "n2", "n4", "n5"}
        vectors.delete_nodes(["n1", "nothing"])
        assert sqlrag.get_source_documents(["n2"], vectors.path)[0]["text"] == "beta gamma delta"
        vectors.delete_nodes(["n5"])
        assert check(vectors.path) == []
        with pytest.raises(InputError, match="Nothing says what to delete"):
            vectors.delete_nodes()
        vectors.delete_nodes([])
        assert {one.node_id for one in vectors.get_nodes()} == {"n2", "n4"}
        vectors.clear()
        assert vectors.get_nodes() == []
        vectors.clear()
        assert check(vectors.path) == []
        vectors.add(nodes)
        assert len(vectors.get_nodes()) == 5

    @pytest.mark.rest
    def test_a_node_beside_those_of_a_folder(self, tmp_path):
        path = build(tmp_path, a_md="---\ntags: [t]\n---\n# One\n\nalpha beta\n\n# Two\n\ngamma delta", b_md="beta")
        vectors = SqlragVectorStore(path)
        with Store(path) as store:
            before = store.chunks()
        vectors.add([node("theta new", "own", "c")])
        vectors.delete_nodes(["a.md#0"])
        with Store(path) as store:
            after = store.chunks()
            assert store.sources(["a.md"])["a.md"]["text"].startswith("---\ntags: [t]")  # the file's text stays whole
        assert [c.node_id for c in after] == ["a.md#1", "b.md#0", "own"]
        assert (after[0].chunk_index, after[0].i_start, after[0].heading_path, after[0].tags) == (
            0, before[1].i_start, ("Two",), ("t",),
        )  # fmt: skip
        assert check(path) == []
        # A node that is taken out, changed and put back keeps what the file knows of it.
        one = vectors.get_nodes(["a.md#1"])[0]
        assert (one.ref_doc_id, one.start_char_idx) == ("a.md", before[1].i_start)
        one.metadata["checked"] = True
        vectors.add([one])
        (found,) = sqlrag.hybrid_query("gamma", path, metadata={"checked": True})
        assert (found["node_id"], found["heading_path"], found["i_start"]) == ("a.md#1", ["Two"], before[1].i_start)
        report = sqlrag.update_embeddings(tmp_path / "docs", path, progress="off")
        assert "c" not in report.removed
        assert check(path) == []

    @pytest.mark.rest
    def test_export_and_import_keep_the_ids(self, vectors, nodes, tmp_path):
        vectors.add(nodes)
        for suffix in ("ragmd", "parquet", "rag"):
            out = tmp_path / ("parquet" if suffix == "parquet" else f"x.{suffix}")
            export, load = {
                "ragmd": (sqlrag.export_ragmd, sqlrag.import_ragmd),
                "parquet": (sqlrag.export_parquet, sqlrag.import_parquet),
                "rag": (sqlrag.export_ragfile, sqlrag.import_ragfile),
            }[suffix]
            export(vectors.path, out)
            load(out, tmp_path / f"{suffix}.duckdb")
            assert check(tmp_path / f"{suffix}.duckdb") == []
            back = SqlragVectorStore(tmp_path / f"{suffix}.duckdb").get_nodes(["n1"])[0]
            assert (back.text, back.metadata, back.ref_doc_id) == ("alpha beta", nodes[0].metadata, "one")


class TestQueries:
    QUESTIONS = ("alpha beta", "gamma", "delta epsilon zeta", "title 3")

    @pytest.mark.slow
    @pytest.mark.parametrize("question", QUESTIONS)
    def test_the_modes_are_the_searches(self, kb, question):
        vectors = SqlragVectorStore(kb)
        with Store(kb) as store:
            vector, words = store.vector_query(question, top_k=6), store.lexical_query(question, top_k=6)
            for options, wanted in (
                ({}, vector),
                ({"mode": "text_search"}, words),
                ({"mode": "sparse"}, words),
                ({"mode": "hybrid"}, store.hybrid_query(question, top_k=6)),
                (
                    {"mode": "hybrid", "alpha": 0.3},
                    store.hybrid_query(question, top_k=6, fusion="convex", alpha=0.3),
                ),
                (
                    {"mode": "hybrid", "similarity_top_k": 9, "hybrid_top_k": 4, "sparse_top_k": 7},
                    store.hybrid_query(question, top_k=4, vector_top_k=9, fts_top_k=7),
                ),
            ):
                found = vectors.query(asked(question, **{"similarity_top_k": 6, **options}))
                assert list(zip(found.ids, found.similarities, strict=True)) == pairs(wanted), options
                assert [one.node_id for one in found.nodes] == found.ids

    def test_a_question_without_its_vector_is_embedded_by_the_files_model(self, kb):
        found = SqlragVectorStore(kb).query(VectorStoreQuery(query_str="alpha beta", similarity_top_k=3))
        assert list(zip(found.ids, found.similarities, strict=True)) == pairs(
            sqlrag.vector_query("alpha beta", kb, top_k=3)
        )

    def test_an_open_store_is_used_as_it_is(self, kb):
        with Store(kb) as store:
            vectors = SqlragVectorStore(client=store)
            assert vectors.client is store
            assert vectors.query(asked("alpha", similarity_top_k=2)).ids
            with pytest.raises(sqlrag.StoreError, match="reading only"):
                vectors.delete("d1.md")
            assert store.vector_query("alpha")
        assert SqlragVectorStore(kb).client is None

    @pytest.mark.slow
    def test_diversity_by_hand(self, vectors):
        """λ = 0.5: a scores .5·1; then b is half as near as a and at right angles to it, c as near as a's twin."""
        rows = {"a": [1.0, 0.0], "c": [0.99, 0.14106736], "b": [0.5, 0.8660254]}
        two = SqlragVectorStore(vectors.path)
        two.add([TextNode(text=name, id_=name, embedding=row) for name, row in rows.items()])
        mmr = VectorStoreQueryMode.MMR
        query = VectorStoreQuery(query_embedding=[1.0, 0.0], similarity_top_k=3, mode=mmr)
        found = two.query(query)
        # b: .5·.5 - .5·.5 = 0; c: .5·.99 - .5·.99 = 0; by relevance c comes first where they tie.
        assert found.ids[0] == "a"
        assert found.similarities[:2] == pytest.approx([0.5, 0.0], abs=1e-6)
        assert two.query(query, mmr_threshold=1.0).ids == ["a", "c", "b"]
        assert two.query(query, mmr_threshold=0.1, mmr_prefetch_k=3).ids == ["a", "b", "c"]
        assert two.query(VectorStoreQuery(query_embedding=[0.0, 1.0], similarity_top_k=1, mode=mmr)).ids == ["b"]

    @pytest.mark.parametrize("mode", ["svm", "semantic_hybrid", "linear_regression", "logistic_regression"])
    def test_other_modes_are_refused(self, kb, mode):
        with pytest.raises(
            InputError, match=f"no mode '{mode}' here. Modes: default, text_search, sparse, hybrid, mmr"
        ):
            SqlragVectorStore(kb).query(asked("alpha", mode=VectorStoreQueryMode(mode)))

    @pytest.mark.slow
    def test_what_is_wrong_is_told(self, kb, tmp_path):
        vectors = SqlragVectorStore(kb)
        with pytest.raises(InputError, match="blank"):
            vectors.query(VectorStoreQuery(query_embedding=[0.0] * 63 + [1.0], mode=VectorStoreQueryMode.HYBRID))
        for mode in ("default", "hybrid", "text_search", "sparse", "mmr"):
            query = asked("alpha", mode=VectorStoreQueryMode(mode))
            with pytest.raises(InputError, match=rf"'{mode}' takes no colection; it takes .*collection, "):
                vectors.query(query, colection="x")
            with pytest.raises(InputError, match=r"takes no top_k; .* For top_k use similarity_top_k"):
                vectors.query(query, top_k=2)
        for wrong in ("x", 2, True):
            with pytest.raises(InputError, match="mmr_threshold must be a number from 0 to 1"):
                vectors.query(query, mmr_threshold=wrong)
        with pytest.raises(sqlrag.NotFoundError):
            SqlragVectorStore(tmp_path / "nothing.duckdb").query(asked("alpha"))
        with pytest.raises(InputError, match="Pass the path"):
            SqlragVectorStore()

    @pytest.mark.slow
    def test_a_vector_of_numpy(self, kb):
        for mode in ("default", "hybrid", "mmr"):
            query = asked("alpha", mode=VectorStoreQueryMode(mode))
            wanted = SqlragVectorStore(kb).query(query).ids
            query.query_embedding = np.array(query.query_embedding)
            assert SqlragVectorStore(kb).query(query).ids == wanted

    @pytest.mark.parametrize("mode", ["default", "hybrid", "text_search", "sparse", "mmr"])
    def test_nothing_found(self, kb, mode):
        query = asked("alpha", mode=VectorStoreQueryMode(mode), node_ids=["none"])
        assert SqlragVectorStore(kb).query(query).ids == []

    def test_a_notice_is_logged(self, vectors, caplog):
        vectors.add([node("alpha", "n1")])
        vectors.query(VectorStoreQuery(query_str="nothing", mode=VectorStoreQueryMode.TEXT_SEARCH))
        assert "No chunk holds any of the words" in caplog.text


class TestFilters:
    KEYS = ("year", "status", "tags", "note")
    VALUES = {
        **dict.fromkeys(("==", "!="), (2020, 2021.5, "a", "", 7)),
        **dict.fromkeys((">", "<", ">=", "<="), (2020, 2021.5)),
        **dict.fromkeys(("in", "nin"), (["a", "c"], ["zzz"])),
        **dict.fromkeys(("any", "all"), (["x", "y"], ["x"], ["y"])),
        "contains": ("y", "q"),
        **dict.fromkeys(("text_match", "text_match_insensitive"), ("b", "A")),
        "is_empty": (None,),
    }  # fmt: skip
    # Where llama-index's own function can compare what is there with the value.
    COMPARABLE = {
        **dict.fromkeys((">", "<", ">=", "<="), ("year",)),
        **dict.fromkeys(("any", "all", "contains"), ("tags",)),
        **dict.fromkeys(("text_match", "text_match_insensitive"), ("status", "note")),
        **dict.fromkeys(("in", "nin"), ("status",)),
    }  # fmt: skip

    def expected(self, nodes, filters):
        holds = build_metadata_filter_fn({one.node_id: one.metadata for one in nodes}.__getitem__, filters)
        return {one.node_id for one in nodes if holds(one.node_id)}

    def found(self, vectors, filters):
        return {one.node_id for one in vectors.get_nodes(filters=filters)}

    @pytest.mark.parametrize("operator", list(FilterOperator), ids=lambda one: one.name)
    def test_operators_are_those_of_llama_index(self, filled, nodes, operator):
        seen = set()
        for key, value in itertools.product(
            self.COMPARABLE.get(operator.value, self.KEYS), self.VALUES[operator.value]
        ):
            filters = MetadataFilters(filters=[MetadataFilter(key=key, value=value, operator=operator)])
            assert self.found(filled, filters) == self.expected(nodes, filters), (key, value)
            seen.add(frozenset(self.expected(nodes, filters)))
        assert len(seen) > 1  # the filter makes a difference

    @pytest.mark.parametrize("condition", list(FilterCondition))
    def test_conditions_are_those_of_llama_index(self, filled, nodes, condition):
        one = MetadataFilter(key="year", value=2019, operator=">")
        other = MetadataFilter(key="status", value="b")
        third = MetadataFilter(key="tags", operator="is_empty", value=None)
        for chosen in ([one], [one, other], [other, third], [one, other, third]):
            filters = MetadataFilters(filters=chosen, condition=condition)
            assert self.found(filled, filters) == self.expected(nodes, filters)

    @pytest.mark.slow
    def test_nested(self, filled):
        late = MetadataFilters(
            filters=[
                MetadataFilter(key="year", value=2020, operator=">="),
                MetadataFilters(
                    filters=[MetadataFilter(key="status", value="b"), MetadataFilter(key="status", value="q")],
                    condition=FilterCondition.OR,
                ),
            ]
        )
        assert self.found(filled, late) == {"n2"}
        not_late = MetadataFilters(filters=[late], condition=FilterCondition.NOT)
        assert self.found(filled, not_late) == {"n1", "n3", "n4", "n5"}
        assert self.found(filled, MetadataFilters(filters=[])) == {"n1", "n2", "n3", "n4", "n5"}
        every = MetadataFilters(filters=[])
        for condition, wanted in (("and", {"n2"}), ("or", {"n1", "n2", "n3", "n4", "n5"}), ("not", set())):
            assert self.found(filled, MetadataFilters(filters=[every, late], condition=condition)) == wanted

    def test_what_the_search_refuses_is_told(self, filled):
        for key, value, operator in (
            ("$price", 1, "=="),
            ("year", "x", "in"),
            ("year", [1], ">"),
            ("status", 1, "text_match"),
        ):
            filters = MetadataFilters(filters=[MetadataFilter(key=key, value=value, operator=operator)])
            with pytest.raises(InputError):
                filled.get_nodes(filters=filters)

    @pytest.mark.rest
    def test_of_the_document(self, filled):
        for key in ("doc_id", "ref_doc_id", "document_id"):
            for operator, value, wanted in (
                ("==", "one", {"n1", "n2"}),
                ("!=", "one", {"n3", "n4", "n5"}),
                ("in", ["two", "three"], {"n3", "n4"}),
                ("nin", ["two", "three"], {"n1", "n2", "n5"}),
            ):
                filters = MetadataFilters(filters=[MetadataFilter(key=key, value=value, operator=operator)])
                assert self.found(filled, filters) == wanted

    @pytest.mark.slow
    def test_missing_is_asked_for_by_none(self, vectors, nodes):
        vectors.add(nodes)
        missing = MetadataFilters(filters=[MetadataFilter(key="year", value=None)])
        there = MetadataFilters(filters=[MetadataFilter(key="year", value=None, operator="!=")])
        assert self.found(vectors, missing) == {"n4", "n5"}
        assert self.found(vectors, there) == {"n1", "n2", "n3"}

    @pytest.mark.rest
    @pytest.mark.parametrize("mode", ["default", "hybrid", "text_search", "sparse", "mmr"])
    def test_queries_filter_before_they_rank(self, filled, mode):
        """Each condition leaves n2, which is not the best: without it there would be n3."""
        status = MetadataFilters(filters=[MetadataFilter(key="status", value="b")])
        late = MetadataFilters(filters=[MetadataFilter(key="year", value=2020, operator=">=")])

        def best(given=None, **conditions):
            query = asked("alpha delta", similarity_top_k=1, mode=VectorStoreQueryMode(mode), **conditions)
            return filled.query(query, **(given or {})).ids

        assert best() == best(filters=late) == best(node_ids=[], doc_ids=[]) == ["n3"]
        assert best(filters=status) == ["n2"]
        assert best(node_ids=["n2"]) == ["n2"]
        assert best({"metadata": {"status": "b"}}) == ["n2"]
        assert best(doc_ids=["one"]) in (["n1"], ["n2"])
        # All hold together: each leaves one more than n2, and no two of them the same.
        assert best(filters=late, node_ids=["n1", "n2"]) == ["n2"]
        assert best(filters=late, doc_ids=["one"]) == ["n2"]
        assert best({"metadata": {"year": {"$gte": 2020}}}, doc_ids=["one"]) == ["n2"]
        assert best({"metadata": {"year": {"$lte": 2020}}}, filters=late) == ["n2"]

    @pytest.mark.slow
    def test_deleting_by_filters(self, vectors, nodes):
        vectors.add(nodes)
        late = MetadataFilters(filters=[MetadataFilter(key="year", value=2020, operator=">=")])
        vectors.delete_nodes(["n1", "n3"], late)
        assert {one.node_id for one in vectors.get_nodes()} == {"n1", "n2", "n4", "n5"}
        vectors.delete_nodes(filters=late)
        assert {one.node_id for one in vectors.get_nodes()} == {"n1", "n4", "n5"}
        assert check(vectors.path) == []

    @pytest.mark.rest
    def test_a_filter_that_holds_without_its_field_deletes_nothing(self, vectors, nodes):
        left = vectors.add(nodes)
        for operator, value in (("!=", 1), ("nin", ["x"]), ("==", None), ("is_empty", None)):
            loose = MetadataFilters(filters=[MetadataFilter(key="typo", operator=operator, value=value)])
            with pytest.raises(InputError, match="holds for every chunk without such a field"):
                vectors.delete_nodes(filters=loose)
            assert sorted(one.node_id for one in vectors.get_nodes()) == left, operator
            vectors.delete_nodes([left.pop(0)], loose)  # the ids say which
            assert sorted(one.node_id for one in vectors.get_nodes()) == left, operator


class TestFilesOfOthers:
    @pytest.mark.slow
    def test_a_table_of_llama_indexs_duckdb_store(self, tmp_path, nodes):
        """Its real package has tests of its own, which need an older DuckDB; this is the table that it makes."""
        path = tmp_path / "theirs.duckdb"
        with duckdb.connect(str(path)) as con:
            con.execute(
                "CREATE TABLE documents (node_id VARCHAR PRIMARY KEY, text TEXT, embedding FLOAT[], metadata_ JSON)"
            )
            for one in nodes[:2] + nodes[4:]:
                one.metadata.pop("tags", None)
                metadata = node_to_metadata_dict(one, remove_text=True, flat_metadata=True)
                row = [one.node_id, one.text, one.embedding, json.dumps(metadata)]
                con.execute("INSERT INTO documents VALUES (?, ?, ?, ?)", row)
        with pytest.raises(sqlrag.NotAStoreError, match=f"DuckDBVectorStore.*sqlrag upgrade {path}"):
            Store(path)
        with pytest.raises(sqlrag.NotAStoreError, match="not overwritten"):
            build(tmp_path, path.name, options={"overwrite": True}, a_md="alpha")
        assert sqlrag.upgrade(path).left_out == ()
        assert check(path) == []
        back = SqlragVectorStore(path).get_nodes(["n1", "n2", "n5"])
        for one, before in zip(back, nodes[:2] + nodes[4:], strict=True):
            assert without_vector(one) == without_vector(before)
        with Store(path) as store:
            assert [(c.doc_id, c.node_id) for c in store.chunks()] == [("n5", "n5"), ("one", "n1"), ("one", "n2")]

    @pytest.mark.slow
    def test_rows_without_llama_indexs_fields(self, tmp_path):
        path = build(tmp_path, a_md="# One\n\nalpha", options={"llama_index_compatible": False})
        (one,) = SqlragVectorStore(path).get_nodes()
        assert (one.node_id, one.ref_doc_id, one.text, one.end_char_idx) == ("a.md#0", "a.md", "# One\n\nalpha", 12)
        before = node("beta", "n1", "b")
        before.relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id="n2")
        SqlragVectorStore(path).add([before])
        assert without_vector(SqlragVectorStore(path).get_nodes(["n1"])[0]) == without_vector(before)


class TestAsync:
    @pytest.mark.rest
    def test_every_method_has_its_twin(self, vectors, nodes):
        async def run():
            await asyncio.gather(*(vectors.async_add([one]) for one in nodes))
            ids = {one.node_id for one in await vectors.aget_nodes()}
            found = (await vectors.aquery(asked("alpha beta", similarity_top_k=1))).ids
            await vectors.adelete("two")
            await vectors.adelete_nodes(["n1"])
            left = {one.node_id for one in await vectors.aget_nodes(["n1", "n2", "n3"])}
            await vectors.aclear()
            return ids, found, left, await vectors.aget_nodes()

        vectors.add(nodes[:1])
        assert asyncio.run(run()) == ({"n1", "n2", "n3", "n4", "n5"}, ["n1"], {"n2"}, [])

    @pytest.mark.rest
    def test_questions_and_writing_at_once(self, vectors, nodes):
        async def run():
            asking = [vectors.aquery(asked("alpha", similarity_top_k=2)) for _ in range(12)]
            writing = [vectors.async_add([node(f"word{i}", f"w{i}", f"doc{i % 2}")]) for i in range(6)]
            return await asyncio.gather(*asking, *writing)

        vectors.add(nodes)
        results = asyncio.run(run())
        assert all(result.ids == ["n1", "n3"] for result in results[:12])
        assert len(vectors.get_nodes()) == 11
        assert check(vectors.path) == []


class TestRetriever:
    OPTIONS = (
        {},
        {"top_k": 9, "fusion": "convex"},
        {"top_k": 3, "fusion": "weighted", "vector_weight": 0.2},
        {"tags_any": ["t1"]},
        {"metadata": {"year": 2003}},
        {"feedback": 2},
    )

    @pytest.mark.slow
    @pytest.mark.parametrize("options", OPTIONS, ids=str)
    def test_it_finds_what_a_hybrid_query_finds(self, kb, options):
        retriever = SqlragRetriever(kb, **options)
        with Store(kb) as store:
            for question in TestQueries.QUESTIONS:
                wanted = store.hybrid_query(question, **options)
                assert wanted
                found = retriever.retrieve(question)
                assert scored(found) == pairs(wanted)
                assert [one.text for one in found] == [row["text"] for row in wanted]
                assert scored(SqlragRetriever(store, **options).retrieve(question)) == pairs(wanted)
        assert scored(asyncio.run(retriever.aretrieve(question))) == pairs(wanted)

    def test_a_question_with_its_vector(self, kb):
        vector = EMBEDDING.get_query_embedding("gamma")
        found = SqlragRetriever(kb).retrieve(QueryBundle("alpha", embedding=vector))
        assert scored(found) == pairs(sqlrag.hybrid_query("alpha", kb, query_vector=vector))

    def test_filters_of_llama_index(self, kb):
        late = MetadataFilters(filters=[MetadataFilter(key="year", value=2005, operator=">")])
        found = SqlragRetriever(kb, filters=late, top_k=50).retrieve("alpha")
        assert {one.node.ref_doc_id for one in found} == {"d6.md", "d7.md"}
        both = SqlragRetriever(kb, filters=late, metadata={"year": {"$ne": 2007}}, top_k=50).retrieve("alpha")
        assert {one.node.ref_doc_id for one in both} == {"d6.md"}
        none = MetadataFilters(filters=[])
        alone = SqlragRetriever(kb, filters=none, metadata={"year": 2003}, top_k=50).retrieve("alpha")
        assert {one.node.ref_doc_id for one in alone} == {"d3.md"}

    def test_a_wrong_option_is_told_at_once(self, kb):
        with pytest.raises(InputError, match=r"takes no topk; it takes .*top_k"):
            SqlragRetriever(kb, topk=3)
        with pytest.raises(InputError, match="For similarity_top_k use top_k"):
            SqlragRetriever(kb, similarity_top_k=3)


class TestIndex:
    def test_preparing_gives_an_index(self, index):
        assert isinstance(index, SqlragIndex)
        assert isinstance(index, VectorStoreIndex)
        assert (index.report.documents, index.report.failed) == (2, 1)
        assert repr(index) == f"SqlragIndex({str(index.path)!r}: 2 documents, 2 chunks, 1 failed)"
        assert sqlrag.aprepare_embeddings.__name__ == "aprepare_embeddings"

    @pytest.mark.parametrize(
        "options",
        [{"tag_any": ["x"]}, {"collections": "x"}, {"k": 1}, {"metadata_filters": 1}, {"similarity_cutoff": 0.9}],
        ids=str,
    )
    def test_fault_S16_what_llama_index_drops_is_refused(self, index, options):
        (name,) = options
        for make in (
            index.as_retriever,
            lambda **given: index.as_query_engine(llm=MockLLM(), **given),
            lambda **given: index.as_chat_engine(llm=MockLLM(), **given),
        ):
            with pytest.raises(InputError, match=f"as_retriever takes no {name}; it takes .*similarity_top_k"):
                make(**options)

    def test_fault_S16_what_llama_index_takes_stays(self, index):
        given = {"similarity_top_k": 1, "node_postprocessors": [SqlragCompress()], "verbose": False}
        assert len(index.as_retriever(**given).retrieve("alpha")) == 1
        assert index.as_query_engine(llm=MockLLM(), response_mode="compact", **given).query("alpha").source_nodes
        # What a chat engine takes is passed on as well.
        assert index.as_retriever(llm=MockLLM(), system_prompt="x", memory=None, **given).retrieve("alpha")

    def test_fault_S16_changes_take_no_other_arguments(self, index):
        document = Document(text="new", id_="new")
        for change in (index.update_ref_doc, index.update):
            with pytest.raises(InputError, match="takes no nonsense; it takes delete_kwargs, insert_kwargs"):
                change(document, nonsense=1)
        for change in (index.refresh_ref_docs, index.refresh):
            with pytest.raises(InputError, match="takes no nonsense; it takes insert_kwargs, update_kwargs"):
                change([document], nonsense=1)
        for pending in (index.aupdate_ref_doc(document, nonsense=1), index.arefresh_ref_docs([document], nonsense=1)):
            with pytest.raises(InputError, match="takes no nonsense"):
                asyncio.run(pending)

    @pytest.mark.slow
    def test_its_retrievers(self, index):
        assert scored(index.as_retriever(similarity_top_k=2).retrieve("alpha")) == pairs(
            sqlrag.vector_query("alpha", index.path, top_k=2)
        )
        hybrid = index.as_retriever(similarity_top_k=2, vector_store_query_mode="hybrid")
        assert scored(hybrid.retrieve("delta")) == pairs(sqlrag.hybrid_query("delta", index.path, top_k=2))
        assert scored(asyncio.run(hybrid.aretrieve("delta"))) == pairs(
            sqlrag.hybrid_query("delta", index.path, top_k=2)
        )

    def test_its_query_engine(self, index):
        answer = index.as_query_engine(llm=MockLLM(), similarity_top_k=1).query("alpha beta")
        assert "alpha beta" in str(answer)
        assert [one.node_id for one in answer.source_nodes] == ["a.md#0"]

    @pytest.mark.rest
    def test_documents_can_be_inserted_and_deleted(self, tmp_path):
        root = write(tmp_path / "docs", a_md="alpha")
        index = sqlrag.prepare_embeddings(root, tmp_path / "kb.duckdb", **HASHING)
        index.insert(Document(text="omega word", id_="new", metadata={"k": 1}))
        (row,) = sqlrag.lexical_query("omega", index.path)
        assert (row["doc_id"], row["metadata"], row["text"]) == ("new", {"k": 1}, "omega word")
        assert sqlrag.check(index.path) == []
        index.delete_ref_doc("new")
        assert sqlrag.lexical_query("omega", index.path) == []
        picture = ImageNode(text="a picture", id_="p")
        index.insert_nodes([picture])
        assert {one.node_id for one in index.as_retriever(similarity_top_k=5).retrieve("alpha")} == {"a.md#0", "p"}

    @pytest.mark.slow
    def test_a_model_of_ones_own_embeds_the_questions(self, tmp_path):
        class Counting(HashingEmbedder):
            asked = 0

            def embed(self, texts, *, kind):
                self.asked += kind == "query"
                return super().embed(texts, kind=kind)

        model = Counting("hashing-64")
        root = write(tmp_path / "docs", a_md="alpha")
        index = sqlrag.prepare_embeddings(root, tmp_path / "kb.duckdb", embedder=model, progress="off")
        index.as_retriever().retrieve("alpha")
        assert model.asked == 1
        again = SqlragIndex.from_path(index.path)
        assert again.report is None
        assert repr(again) == f"SqlragIndex({str(index.path)!r})"
        assert scored(again.as_retriever().retrieve("alpha")) == scored(index.as_retriever().retrieve("alpha"))

    @pytest.mark.rest
    def test_llama_index_fills_a_file_of_its_own(self, vectors):
        text = " ".join(f"Sentence {i} is about topic{i % 7}." for i in range(100))
        index = VectorStoreIndex.from_documents(
            [Document(text=text, id_="long")],
            storage_context=StorageContext.from_defaults(vector_store=vectors),
            embed_model=EMBEDDING,
            transformations=[SentenceSplitter(chunk_size=64, chunk_overlap=8)],
            insert_batch_size=5,
        )
        assert check(vectors.path) == []
        kept = vectors.get_nodes()
        assert len(kept) > 10
        assert [one.start_char_idx for one in kept] == sorted(one.start_char_idx for one in kept)
        for before, after in itertools.pairwise(kept):
            assert before.next_node.node_id == after.node_id
        assert index.as_retriever().retrieve("topic3")
        assert sqlrag.hybrid_query("topic3", vectors.path).notices == []


class TestEmbedding:
    def test_it_embeds_as_the_model_does(self):
        prefixed = HashingEmbedder("hashing-64", query_prefix="query: ", passage_prefix="text: ")
        own = SqlragEmbedding(embedder=prefixed)
        assert own.get_query_embedding("alpha") == EMBEDDING.get_text_embedding("query: alpha")
        assert own.get_text_embedding_batch(["alpha", "beta"]) == EMBEDDING.get_text_embedding_batch(
            ["text: alpha", "text: beta"]
        )
        assert asyncio.run(own.aget_query_embedding("alpha")) == own.get_query_embedding("alpha")
        assert own.model_name == "hashing-64"

    def test_it_is_pickled_with_its_embedder(self, kb):
        prefixed = HashingEmbedder("hashing-64", query_prefix="query: ")
        copy = pickle.loads(pickle.dumps(SqlragEmbedding(embedder=prefixed)))
        assert copy.get_query_embedding("alpha") == EMBEDDING.get_text_embedding("query: alpha")
        assert (copy.model_name, copy.path) == ("hashing-64", "")
        vectors = pickle.loads(pickle.dumps(SqlragVectorStore.from_path(kb, prefixed)))
        assert vectors._embedder.query_prefix == "query: "
        used = SqlragEmbedding(kb)
        used.get_query_embedding("alpha")
        assert pickle.loads(pickle.dumps(used)).get_query_embedding("alpha") == used.get_query_embedding("alpha")

    def test_an_embedder_that_cannot_be_pickled_is_told(self, tmp_path):
        class Local(HashingEmbedder):
            pass

        for one in (SqlragEmbedding(embedder=Local()), SqlragVectorStore(tmp_path / "x", embedder=Local())):
            with pytest.raises(InputError, match="since its embedder cannot"):
                pickle.dumps(one)

    def test_the_model_of_a_file(self, kb):
        assert SqlragEmbedding(kb).get_query_embedding("alpha") == EMBEDDING.get_query_embedding("alpha")


class TestPostprocessors:
    def found(self, kb):
        return SqlragRetriever(kb, top_k=8).retrieve("alpha beta")

    def test_rerank_is_rerank(self, kb):
        def model(query, texts):
            return [text.count("gamma") for text in texts]

        with Store(kb) as store:
            candidates = store.retrieve("alpha beta", sqlrag.RetrievePlan(k=8, fusion="adaptive"))
        wanted = sqlrag.rerank("alpha beta", candidates, model)
        again = SqlragRerank(model=model).postprocess_nodes(self.found(kb), query_str="alpha beta")
        assert sorted(one.score for one in again) == sorted(one.score for one in wanted)
        assert [one.score for one in again] == sorted((one.score for one in wanted), reverse=True)
        assert len(SqlragRerank(model=model, top_n=2).postprocess_nodes(self.found(kb), query_str="a")) == 2

    def test_rerank_by_cosine_and_diversity(self, kb):
        bundle = QueryBundle("alpha beta", embedding=EMBEDDING.get_query_embedding("alpha beta"))
        nodes = self.found(kb)
        again = SqlragRerank().postprocess_nodes(nodes, query_bundle=bundle)
        cosines = dict(pairs(sqlrag.vector_query("alpha beta", kb, top_k=100)))
        assert [one.score for one in again] == pytest.approx([cosines[one.node_id] for one in again], abs=1e-6)
        assert [one.score for one in again] == sorted((one.score for one in again), reverse=True)
        spread = SqlragRerank(diversity=0.7, top_n=4).postprocess_nodes(nodes, query_bundle=bundle)
        assert len(spread) == 4
        assert (
            asyncio.run(SqlragRerank(top_n=1).apostprocess_nodes(nodes, query_bundle=bundle))[0].score == again[0].score
        )

    def test_compress_keeps_the_sentences_that_answer(self):
        text = "Cats sleep. Dogs bark at night. Fish swim. Birds fly."
        given = [NodeWithScore(node=TextNode(text=text, id_="pets"), score=0.5)]
        policy = sqlrag.CompressPolicy(sentences=1, window=0)
        (kept,) = SqlragCompress(policy=policy).postprocess_nodes(given, query_str="Why do dogs bark?")
        assert (kept.text, kept.node_id, kept.score) == ("Dogs bark at night.", "pets", 0.5)
        assert given[0].text == text

    def test_in_a_query_engine(self, kb):
        index = SqlragIndex.from_path(kb)
        steps = [SqlragRerank(model=lambda q, texts: [len(t) for t in texts], top_n=2), SqlragCompress()]
        answer = index.as_query_engine(llm=MockLLM(), similarity_top_k=5, node_postprocessors=steps).query("alpha")
        assert 1 <= len(answer.source_nodes) <= 2

    def test_what_is_missing_is_told(self):
        given = [NodeWithScore(node=TextNode(text="alpha"), score=1.0)]
        with pytest.raises(InputError, match="has no embedding"):
            SqlragRerank().postprocess_nodes(given, query_str="alpha")
        with pytest.raises(InputError, match="Pass the question"):
            SqlragCompress().postprocess_nodes(given)
        assert SqlragCompress().postprocess_nodes([], query_str="alpha") == []
        for nothing in (SqlragRerank(model=lambda q, t: []), SqlragRerank(), SqlragRerank(diversity=0.3)):
            assert nothing.postprocess_nodes([], query_str="alpha") == []


class TestComponents:
    def test_they_are_stored_and_read_back(self, kb):
        vectors = SqlragVectorStore(kb)
        for copy in (pickle.loads(pickle.dumps(vectors)), SqlragVectorStore.from_json(vectors.to_json())):
            assert copy.path == str(kb)
            assert copy.query(asked("alpha", similarity_top_k=1)).ids
        assert json.loads(vectors.to_json())["class_name"] == "SqlragVectorStore"
        assert SqlragRerank.from_dict({"top_n": 3}).top_n == 3
        assert pickle.loads(pickle.dumps(SqlragEmbedding(kb))).path == str(kb)


@pytest.mark.rest
def test_the_command_line_does_not_load_llama_index(tmp_path):
    write(tmp_path / "docs", a_md="alpha")
    code = (
        "import sys\nfrom sqlrag.cli import app\ntry:\n    app(sys.argv[1:], prog_name='sqlrag')\n"
        "except SystemExit as done:\n    assert not done.code, done.code\n"
        "print(*(name for name in sys.modules if name.startswith('llama_index')))"
    )
    out = python(
        code, "prepare-embeddings", tmp_path / "docs", "-o", tmp_path / "kb.duckdb", "--provider", "hashing", "--quiet"
    )
    assert out.strip() == ""


@pytest.mark.rest
def test_python_loads_it_for_the_index_only(tmp_path):
    write(tmp_path / "docs", a_md="alpha")
    code = (
        "import sys, sqlrag\nsqlrag.prepare_embeddings\nprint('llama_index.core' in sys.modules)\n"
        "index = sqlrag.prepare_embeddings(sys.argv[1], sys.argv[2], embedding_provider='hashing', progress='off')\n"
        "print('llama_index.core' in sys.modules, type(index).__name__)"
    )
    out = python(code, tmp_path / "docs", tmp_path / "kb.duckdb")
    assert out.splitlines() == ["False", "True SqlragIndex"]


@pytest.fixture(scope="module")
def cited(tmp_path_factory):
    """A PDF of three pages, and a page of Markdown with headings and tags."""
    folder = tmp_path_factory.mktemp("cited")
    write(
        folder / "docs",
        pump_md="---\ntags: [machine]\nscore_type: mine\n---\n# Pumps\n\n## Seals\n\nA zebra seal is striped.\n",
    )
    (folder / "docs" / "field.pdf").write_bytes(pdf("The first page.", "A second one.", "The walrus is on the third."))
    return sqlrag.prepare_embeddings(folder / "docs", folder / "kb.duckdb", **HASHING).path


FACTS = {
    "page": int,
    "heading_path": list,
    "i_start": int,
    "i_end": int,
    "chunk_index": int,
    "collection": str,
    "tags": list,
    "score_type": str,
    "vector_score": float,
    "vector_rank": int,
    "lexical_score": float,
    "lexical_rank": int,
}


@pytest.mark.parametrize("question", ["the walrus on the third page", "zebra seal"])
@pytest.mark.parametrize("by", ["retriever", "index", "mmr", "store"])
def test_fault_U26_nodes_know_their_place_and_the_scores_of_both_legs(cited, question, by):
    if by == "retriever":
        found = SqlragRetriever(cited).retrieve(question)
    elif by == "store":
        query = VectorStoreQuery(query_str=question, mode=VectorStoreQueryMode.HYBRID, similarity_top_k=5)
        answer = SqlragVectorStore(cited).query(query)
        found = [
            NodeWithScore(node=one, score=score) for one, score in zip(answer.nodes, answer.similarities, strict=True)
        ]
    else:
        found = (
            SqlragIndex.from_path(cited)
            .as_retriever(similarity_top_k=5, vector_store_query_mode="hybrid" if by == "index" else by)
            .retrieve(question)
        )
    search = sqlrag.vector_query if by == "mmr" else sqlrag.hybrid_query
    rows = {row["node_id"]: row for row in search(question, cited, top_k=50)}
    assert found
    for one in found:
        row, metadata = rows[one.node.node_id], one.node.metadata
        for name, kind in FACTS.items():
            if row[name] in (None, []):
                assert name not in metadata
            else:
                assert metadata[name] == row[name], name
                assert type(metadata[name]) is kind
    first = found[0].node
    assert first.metadata.get("page", first.metadata["heading_path"][-1:]) == (3 if "walrus" in question else ["Seals"])


def test_fault_U26_a_model_is_shown_page_and_headings_and_an_embedder_nothing(cited):
    for question, shown in (("walrus on the third", "page: 3"), ("zebra seal", "heading_path: ['Pumps', 'Seals']")):
        node = SqlragRetriever(cited, top_k=1, context="section").retrieve(question)[0].node
        read, embedded = node.get_content(MetadataMode.LLM), node.get_content(MetadataMode.EMBED)
        assert shown in read
        assert not [name for name in ("page", "heading_path") if f"{name}: " in embedded]
        for name in (*FACTS.keys() - {"page", "heading_path"}, "context"):
            assert f"{name}: " not in read + embedded, name


@pytest.mark.slow
def test_fault_U26_nothing_of_it_is_stored(cited, tmp_path):
    """What a search adds is of that search: neither the file nor a node of llama-index's own has it."""
    store = SqlragVectorStore(cited)
    of_the_file = {"score_type", "tags"}  # from its front matter
    assert FACTS.keys() & store.get_nodes(["pump.md#0"])[0].metadata.keys() == of_the_file
    own = SqlragVectorStore(tmp_path / "own.duckdb")
    mine = node("A zebra.", "one", "doc", metadata={"page": "xii", "tags": "a,b"}, start_char_idx=3, end_char_idx=11)
    own.add([mine])
    answer = own.query(VectorStoreQuery(query_embedding=mine.embedding, similarity_top_k=1))
    assert answer.nodes[0].metadata["page"] == "xii"
    assert answer.nodes[0].metadata["tags"] == "a,b"
    assert answer.nodes[0].start_char_idx == 3
    assert own.get_nodes(["one"])[0].metadata == mine.metadata
