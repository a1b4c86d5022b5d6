"""Whatever is passed to a search or to a block: it works, or a SqlragError says what is wrong."""

from __future__ import annotations

import inspect
from dataclasses import fields, replace

import numpy as np
import pytest

import sqlrag
from sqlrag import Candidate, Chunk, CompressPolicy, Document, NotFoundError, RetrievePlan, SqlragError, Store
from sqlrag.embedders import HashingEmbedder
from tests.support.helpers import build

VALUES = {
    "None": None,
    "5": 5,
    "-1": -1,
    "a text": "x",
    "a surrogate": "\ud800",
    "bytes": b"x",
    "a list": [],
    "a list of None": [None],
    "a list of lists of None": [[None]],
    "a list of surrogates": ["\ud800"],
    "a dict": {},
    "a dict of numbers": {5: 10**5000},
    "a dict of huge numbers": {"year": 10**5000},
    "an object": object(),
    "a class": Store,
    "nan": float("nan"),
    "inf": float("inf"),
    "huge": 10**5000,
    "too much for a float": 10**400,
    "a list of huge numbers": [10**5000, 10**400],
    "int64": np.int64(2),
    "float32": np.float32(0.5),
    "bool_": np.True_,
    "complex": 1j,
    "an array": np.ones((2, 64), dtype=np.float16),
    "an array of complex numbers": np.ones((2, 64)) * 1j,
    "an array without dimensions": np.array(1),
    "times": np.zeros((2, 64), dtype="datetime64[D]"),
}
FOUND = [
    Candidate("a.md", 0, "zebra and lion. Owl.", 2.0, i_start=0, i_end=20, vector_score=0.5, lexical_score=2.0),
    Candidate("b.md", 0, "zebra and bear", 1.0, vector_score=0.4, lexical_score=1.0),
]
VECTORS = HashingEmbedder("hashing-64").embed([found.content for found in FOUND], kind="document")


def counted(query, texts):
    return [text.count(query) for text in texts]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with Store(build(tmp_path_factory.mktemp("kb"), a_md="zebra and lion. Owl.", b_md="zebra and bear")) as opened:
        yield opened


@pytest.fixture(scope="module")
def writable(tmp_path_factory):
    model = HashingEmbedder("hashing-64")
    with Store.create(tmp_path_factory.mktemp("new") / "kb.duckdb", 64, embedder=model) as opened:
        yield opened


SEARCHES = ("hybrid_query", "vector_query", "lexical_query")
# Each with arguments that are right; "store" and "writable" stand for the stores.
CALLS = {
    "retrieve": (sqlrag.retrieve, {"query": "zebra", "plan": RetrievePlan(), "store": "store"}),
    "fuse": (sqlrag.fuse, {"candidate_sets": [FOUND, FOUND]}),
    "fuse weighted": (sqlrag.fuse, {"candidate_sets": [FOUND, FOUND], "method": "weighted"}),
    "fuse convex": (sqlrag.fuse, {"candidate_sets": [FOUND, FOUND], "method": "convex"}),
    "package": (sqlrag.package, {"candidates": FOUND}),
    "rerank": (sqlrag.rerank, {"query": "zebra", "candidates": FOUND, "model": counted}),
    "rerank by cosine": (
        sqlrag.rerank,
        {"query": "zebra", "candidates": FOUND, "vectors": VECTORS, "query_vector": VECTORS[0], "diversity": 0.5},
    ),
    "rerank by diversity": (
        sqlrag.rerank, {"query": "zebra", "candidates": FOUND, "vectors": VECTORS, "diversity": 0.5}
    ),
    "drop_near_duplicates": (sqlrag.drop_near_duplicates, {"candidates": FOUND, "threshold": 0.5}),
    "drop by cosine": (sqlrag.drop_near_duplicates, {"candidates": FOUND, "threshold": 0.5, "vectors": VECTORS}),
    "compress": (sqlrag.compress, {"query": "zebra", "candidates": FOUND, "store": "store"}),
    "reciprocal_rank_fusion": (sqlrag.reciprocal_rank_fusion, {"rankings": [["a"], ["b"]]}),
    "load_reranker": (sqlrag.load_reranker, {"model_name": "nowhere", "provider": "onnx"}),
    **{name: (getattr(sqlrag, name), {"query_text": "zebra", "db_path": "store"}) for name in SEARCHES},
    **{f"Store.{name}": (getattr(Store, name), {"self": "store", "query_text": "zebra"}) for name in SEARCHES},
    "get_source_documents": (sqlrag.get_source_documents, {"chunk_ids": ["a.md#0"], "db_path": "store"}),
    "explain": (sqlrag.explain, {"query_text": "zebra", "node_id": "a.md#0", "db_path": "store"}),
    "Store.explain": (Store.explain, {"self": "store", "query_text": "zebra", "node_id": "a.md#0"}),
    "evaluate": (
        sqlrag.evaluate,
        {"questions": [{"query": "zebra", "relevant": ["a.md"]}], "db_path": "store", "plans": ["lexical"]},
    ),
    "recommend": (
        sqlrag.recommend,
        {"questions": [{"query": f"{n} zebras", "relevant": ["a.md"]} for n in "ab"], "db_path": "store",
         "plans": ["lexical"]},
    ),
    "embed_rows": (
        sqlrag.embed_rows,
        {"source": "SELECT 'a zebra' AS body", "text": "body", "embedder": HashingEmbedder("hashing-64"),
         "embed_model_name": "hashing-64", "embedding_provider": "hashing"},
    ),
    "embed_rows of a file": (sqlrag.embed_rows, {"source": "store"}),
    "semantic_join": (sqlrag.semantic_join, {"left": "store", "right": "store"}),
    "near_duplicates": (sqlrag.near_duplicates, {"rows": "store"}),
    "cluster": (sqlrag.cluster, {"rows": "store"}),
    "classify": (sqlrag.classify, {"rows": "store", "labels": ["lion", "bear"]}),
    "distinctive_terms": (sqlrag.distinctive_terms, {"db_path": "store", "group": {"metadata": {"$doc_id": "a.md"}}}),
    "trend": (sqlrag.trend, {"question": "zebra", "db_path": "store", "threshold": 0.5}),
    "highlight": (sqlrag.highlight, {"query_text": "zebra", "texts": ["a zebra"], "db_path": "store"}),
    "validate_embedding_model": (sqlrag.validate_embedding_model, {"db_path": "store", "model_name": "hashing-64"}),
    "delete_documents": (sqlrag.delete_documents, {"db_path": "writable", "doc_ids": ["a.md"]}),
    "index": (sqlrag.index, {"chunks": [Chunk("a.md", 0, "zebra")], "store": "writable"}),
    "Store": (Store, {"path": "nowhere.duckdb"}),
    "Store.create": (Store.create, {"path": "made.duckdb", "dimensions": 8}),
    "Store.retrieve": (Store.retrieve, {"self": "store", "query": "zebra", "plan": RetrievePlan()}),
    "Store.sources": (Store.sources, {"self": "store", "doc_ids": ["a.md"]}),
    "Store.chunks_at": (Store.chunks_at, {"self": "store", "places": [("a.md", 0)]}),
    "Store.embed_query": (Store.embed_query, {"self": "writable", "query_text": "zebra"}),
    "Store.query_vector": (Store.query_vector, {"self": "store", "query_text": "zebra"}),
    "Store.upsert": (
        Store.upsert,
        {"self": "writable", "documents": [Document("a.md", "zebra")], "chunks": [Chunk("a.md", 0, "zebra")],
         "embeddings": VECTORS[:1]},
    ),
}  # fmt: skip
CASES = [
    (name, parameter)
    for name, (function, _) in CALLS.items()
    for parameter in inspect.signature(function).parameters
    if parameter not in ("self", "verbose")
]


@pytest.fixture
def stores(store, writable, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where a path is made of a text
    return {"store": store, "writable": writable}


def surprises(call, values=VALUES):
    """Return what came out of a call that is no SqlragError, by the value that it was made with."""
    found = {}
    for what, value in values.items():
        try:
            made = call(value)
        except Exception as error:
            if not isinstance(error, SqlragError) or len(str(error)) > 1500:
                found[what] = repr(error)[:200]
        else:
            if isinstance(made, Store):
                made.close()
    return found


@pytest.mark.parametrize(("name", "parameter"), CASES)
def test_a_wrong_argument_is_no_surprise(stores, name, parameter):
    function, given = CALLS[name]
    arguments = {key: stores.get(value, value) if isinstance(value, str) else value for key, value in given.items()}
    assert surprises(lambda value: function(**{**arguments, parameter: value})) == {}


@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("Store", "load_reranker")])
def test_the_right_arguments_are_right(stores, name):
    function, given = CALLS[name]
    arguments = {key: stores.get(value, value) if isinstance(value, str) else value for key, value in given.items()}
    made = function(**arguments)
    if isinstance(made, Store):
        made.close()


@pytest.mark.parametrize("name", ["hybrid_query", "vector_query", "lexical_query"])
def test_question_and_file_in_the_wrong_order(tmp_path, name):
    (tmp_path / "kb.duckdb").touch()
    path = str(tmp_path / "kb.duckdb")
    with pytest.raises(NotFoundError, match="The question comes first") as swapped:
        getattr(sqlrag, name)(path, "what is a zebra")
    assert path in str(swapped.value)
    for question in ("zebra", "z" * 5000, "z\0"):
        with pytest.raises(NotFoundError, match="Make it with"):
            getattr(sqlrag, name)(question, tmp_path / "none.duckdb")


@pytest.mark.parametrize("field", [field.name for field in fields(RetrievePlan)])
def test_a_wrong_plan(store, field):
    assert surprises(lambda value: sqlrag.retrieve("zebra", RetrievePlan(**{field: value}), store)) == {}


@pytest.mark.parametrize("field", [field.name for field in fields(CompressPolicy)])
def test_a_wrong_policy(store, field):
    for found in (FOUND, [FOUND[0]]):
        options = {"neighbours": 1, "max_chars": 10}
        call = lambda value: sqlrag.compress("zebra", found, CompressPolicy(**{**options, field: value}), store=store)  # noqa: B023, E731
        assert surprises(call) == {}


@pytest.mark.parametrize("field", [field.name for field in fields(Candidate)])
@pytest.mark.parametrize("block", list(CALLS)[1:11])
def test_a_wrong_candidate(store, block, field):
    function, given = CALLS[block]
    arguments = dict(given)
    if block == "compress":
        arguments |= {"store": store, "policy": CompressPolicy(neighbours=1)}

    def call(value):
        wrong = replace(FOUND[0])
        object.__setattr__(wrong, field, value)
        lists = [wrong, FOUND[1]]
        if block.startswith("fuse"):
            return function(**{**arguments, "candidate_sets": [lists, lists]})
        return function(**{**arguments, "candidates": lists})

    assert surprises(call) == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Document, Chunk])
def test_wrong_documents_and_chunks(writable, kind):
    right = {Document: Document("a.md", "zebra"), Chunk: Chunk("a.md", 0, "zebra")}
    for field in fields(kind):

        def call(value):
            rows = {**right, kind: kind(**{**vars(right[kind]), field.name: value})}  # noqa: B023
            writable.upsert([rows[Document]], [rows[Chunk]], VECTORS[:1])

        assert surprises(call) == {}, field.name


def test_whole_numbers_of_numpy_are_plain_ones(store):
    two = np.int64(2)
    assert sqlrag.rerank("zebra", FOUND, counted, top_n=two, depth=two, strict=np.False_) == sqlrag.rerank(
        "zebra", FOUND, counted, top_n=2, depth=2
    )
    numbers = {"sentences": 2, "window": 0, "max_chars": 40, "neighbours": 1}
    given = CompressPolicy(**{name: np.int32(value) for name, value in numbers.items()})
    assert sqlrag.compress("zebra", FOUND, given, store=store) == sqlrag.compress(
        "zebra", FOUND, CompressPolicy(**numbers), store=store
    )
    again = [FOUND[0], Candidate("c.md", 0, "zebra and lion")]
    assert len(sqlrag.drop_near_duplicates(again, threshold=np.float32(0.5))) == 1


def test_a_lone_surrogate_is_a_character_as_any(store):
    text = "A zebra \ud800 sleeps. An owl."
    found = [Candidate("a\ud800.md", 0, text, i_start=0, i_end=len(text)), Candidate("b.md", 0, text)]
    policy = CompressPolicy(sentences=1, window=0, neighbours=1, language="\ud800")
    (first, _) = sqlrag.compress("\ud800 zebra", found, policy, store=store)
    assert (first["i_start"], first["i_end"], first["text"]) == (0, 17, "A zebra \ud800 sleeps.")
    assert len(sqlrag.drop_near_duplicates(found, threshold=1)) == 1
    assert sqlrag.rerank("\ud800", found, counted)[0].score == 1
    assert [hit.doc_id for hit in sqlrag.fuse([found])] == ["a\ud800.md", "b.md"]
    assert sqlrag.package(found)[0]["text"] == text


class TestLargeScores:
    """They keep their order, and stay finite."""

    LARGE = (1e300, 2e300, 3e300, 1e308, -1e308)

    def found(self):
        return [Candidate(f"{number}.md", 0, "", score) for number, score in enumerate(self.LARGE)]

    def test_rerank(self):
        found = sqlrag.rerank("zebra", self.found(), lambda query, texts: self.LARGE)
        assert [(hit.doc_id, hit.score) for hit in found] == [
            ("3.md", 1e308), ("2.md", 3e300), ("1.md", 2e300), ("0.md", 1e300), ("4.md", -1e308)
        ]  # fmt: skip

    @pytest.mark.parametrize("options", [{"model": lambda query, texts: TestLargeScores.LARGE}, {}])
    def test_diversity(self, options):
        found = sqlrag.rerank("zebra", self.found(), vectors=np.eye(5), diversity=0.5, **options)
        # Scaled to 0..1 these are 1, .5 and 5e-9 for each 1e300, and 0; half of it counts.
        assert [hit.score for hit in found] == [0.5, 0.250000008, 0.250000005, 0.250000002, 0.0]
        assert [hit.doc_id for hit in found] == ["3.md", "2.md", "1.md", "0.md", "4.md"]

    def test_fuse(self):
        found = sqlrag.fuse([self.found(), []], "weighted", {"vector_weight": 1})
        assert [hit.doc_id for hit in found] == ["3.md", "2.md", "1.md", "0.md", "4.md"]
        assert [hit.score for hit in found] == [1.0, 0.500000015, 0.50000001, 0.500000005, 0.0]

    def test_complex_scores_are_none(self):
        with pytest.raises(sqlrag.ProviderError, match="complex128 is no type of real numbers"):
            sqlrag.rerank("zebra", FOUND, lambda query, texts: np.array([1j, 2]), strict=True)
        with pytest.raises(sqlrag.InputError, match="vectors must be numbers"):
            sqlrag.rerank("zebra", FOUND, vectors=VECTORS * 1j, query_vector=VECTORS[0])
