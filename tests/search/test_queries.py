"""The query functions: keys, filters, options, notices and what they refuse."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Mapping
from itertools import pairwise

import duckdb
import numpy as np
import pytest

from sqlrag import (
    Chunk,
    Document,
    Store,
    get_embedding_metadata,
    get_source_documents,
    hybrid_query,
    lexical_query,
    prepare_embeddings,
    validate_embedding_model,
    vector_query,
)
from sqlrag.embedders import HashingEmbedder
from sqlrag.errors import InputError, ModelMismatchError, ModelUnavailableError, NotFoundError, StoreError
from sqlrag.ranking.results import RESULT_KEYS
from tests.support.helpers import build, ids, write

MODEL = HashingEmbedder("hashing-64")


def embedded(text, dimensions=64):
    return HashingEmbedder(f"hashing-{dimensions}").embed([text], kind="query")[0]


@pytest.fixture(scope="module")
def kb(tmp_path_factory):
    return build(
        tmp_path_factory.mktemp("kb"),
        zoo_md="---\ntags: [animals, stripes]\nyear: 2024\n---\n# Zoo\n\nzebra and lion\n\n## Night\n\nowl at night",
        farm_md="---\ntags: [animals]\nyear: '2024'\n---\n# Farm\n\ncow and horse",
        sub__city_txt="tram and bridge",
    )


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """600 chunks with tag a near the question and 5 with tag b far from it: more than the pool of sign codes."""
    near, far = embedded("zebra"), embedded("unrelated words only")
    path = tmp_path_factory.mktemp("many") / "kb.duckdb"
    with Store.create(path, 64, embedder=MODEL) as store:
        rng = np.random.default_rng(0)
        documents = [
            Document(f"{tag}{n:03}", "x", collection=tag) for tag, count in (("a", 600), ("b", 5)) for n in range(count)
        ]
        chunks = [
            Chunk(d.doc_id, 0, "zebra " * 3 if d.collection == "a" else "one zebra among other words here",
                  (d.collection,), {"tag": d.collection}, d.collection)
            for d in documents
        ]  # fmt: skip
        vectors = [(near if d.collection == "a" else far) + rng.normal(scale=0.02, size=64) for d in documents]
        store.upsert(documents, chunks, np.array(vectors))
    return path


class TestResults:
    SEARCHES = (hybrid_query, vector_query, lexical_query)

    @pytest.mark.parametrize("search", SEARCHES)
    def test_keys_and_types(self, kb, search):
        results = search("zebra at night", kb, top_k=3)
        assert results
        for row in results:
            assert tuple(row) == RESULT_KEYS
            assert type(row) is dict
            assert isinstance(row["metadata"], dict)
            assert isinstance(row["heading_path"], list)
            for key in ("node_id", "text", "doc_id", "collection", "score_type"):
                assert type(row[key]) is str
            for key in ("i_start", "i_end", "chunk_index"):
                assert type(row[key]) is int
            assert type(row["score"]) is float
            assert row["source_doc"] is None
            assert row["node_id"] == f"{row['doc_id']}#{row['chunk_index']}"
        assert {row["score_type"] for row in results} == {
            {hybrid_query: "adaptive", vector_query: "vector", lexical_query: "bm25"}[search]
        }
        order = [(-row["score"], row["doc_id"], row["chunk_index"]) for row in results]
        assert order == sorted(order)

    @pytest.mark.parametrize("search", SEARCHES)
    def test_top_k_beyond_the_corpus(self, kb, search):
        assert len(search("zebra", kb, top_k=1)) == 1
        found = search("zebra and night", kb, top_k=1000)
        assert 1 <= len(found) <= 4
        assert len(set(ids(found))) == len(found)
        with Store(kb) as store:
            assert getattr(store, search.__name__)("zebra and night", top_k=1000) == found

    def test_ranks_and_raw_scores_of_both_legs(self, kb):
        hybrid = {row["node_id"]: row for row in hybrid_query("zebra night", kb, top_k=10, fusion="rrf")}
        vector = vector_query("zebra night", kb, top_k=10)
        lexical = lexical_query("zebra night", kb, top_k=10)
        assert len(hybrid) == 4
        for leg, found in (("vector", vector), ("lexical", lexical)):
            assert [row[f"{leg}_rank"] for row in found] == list(range(1, len(found) + 1))
            assert [row[f"{leg}_score"] for row in found] == [row["score"] for row in found]
            for row in found:
                assert hybrid[row["node_id"]][f"{leg}_rank"] == row[f"{leg}_rank"]
                assert hybrid[row["node_id"]][f"{leg}_score"] == row["score"]
        for row in hybrid.values():  # 1 / (60 + rank), absent 0
            ranks = [rank for rank in (row["vector_rank"], row["lexical_rank"]) if rank]
            assert row["score"] == pytest.approx(sum(1 / (60 + rank) for rank in ranks), abs=1e-9)

    @pytest.mark.parametrize("fusion", ["adaptive", "rrf", "weighted", "convex"])
    def test_the_statement_gives_the_same_rows_in_sql(self, kb, tmp_path, fusion):
        path = shutil.copy(kb, tmp_path / "kb.duckdb")
        with Store(path, read_only=False) as store:
            store.embed_query("it's a zebra at night")
            for found in (
                store.hybrid_query(
                    "it's a zebra at night", fusion=fusion, tags_any=["animals"], metadata={"year": 2024}
                ),
                store.vector_query("it's a zebra at night", collection="default"),
                store.lexical_query("it's a zebra at night", k1=2, conjunctive=False),
            ):
                rows = store.cursor().execute(found.sql).fetchall()
                assert [(row[0], row[1]) for row in rows] == [(row["node_id"], row["score"]) for row in found]
                assert rows

    def test_drop_in_calls(self, kb):
        # positional order of the published package: query, path, model, top_k, vector_weight, use_rrf, pools, sources
        found = hybrid_query("zebra", str(kb), "hashing-64", 2, 0.5, False, 10, 10, True, False)
        assert len(found) == 2
        assert found[0]["score_type"] == "weighted"
        assert found[0]["source_doc"]["doc_id"] == "zoo.md"
        assert hybrid_query("zebra", kb, use_rrf=False) == hybrid_query("zebra", kb, fusion="weighted")

    @pytest.mark.parametrize("search", SEARCHES)
    def test_include_source_docs(self, kb, search):
        for row in search("zebra night tram", kb, top_k=10, include_source_docs=True):
            assert row["source_doc"].keys() == {"doc_id", "file_path", "file_name", "text", "metadata"}
            assert row["source_doc"]["doc_id"] == row["doc_id"]
            assert row["source_doc"]["text"][row["i_start"] : row["i_end"]] == row["text"]
            assert isinstance(row["source_doc"]["metadata"], dict)

    def test_verbose_logs_and_prints_nothing(self, kb, caplog, capsys):
        with caplog.at_level(logging.INFO, "sqlrag"):
            hybrid_query("zebra", kb, verbose=True)
        (record,) = [one for one in caplog.records if one.name == "sqlrag.query"]
        assert re.search(r"^\[[0-9a-f]{32}\] 4 results, top_k 5, scores 1\.25 to 0\.\d+: ", record.getMessage())
        assert "zebra" not in caplog.text  # what people ask is in the query log alone
        assert capsys.readouterr() == ("", "")


class TestFilters:
    @pytest.mark.parametrize(
        "filters", [{"tags_any": ["b"]}, {"tags_all": ["b"]}, {"collection": "b"}, {"metadata": {"tag": "b"}}]
    )
    def test_case_F7_filters_hold_before_the_limit_in_both_legs(self, many, filters):
        wanted = {f"b{n:03}#0" for n in range(5)}
        with Store(many) as store:
            for exact in (False, True):
                assert set(ids(store.vector_query("zebra", top_k=5, exact=exact, **filters))) == wanted
            assert set(ids(store.lexical_query("zebra", top_k=5, **filters))) == wanted
            for fusion in ("adaptive", "rrf", "weighted", "convex"):
                found = store.hybrid_query("zebra", top_k=5, fusion=fusion, include_source_docs=True, **filters)
                assert set(ids(found)) == wanted
                assert {row["source_doc"]["doc_id"] for row in found} == {f"b{n:03}" for n in range(5)}
                assert all(row["vector_rank"] and row["lexical_rank"] for row in found)
            # A word that only chunks of tag a hold finds nothing there either.
            assert not {row["collection"] for row in store.hybrid_query("zebra", top_k=700, **filters)} - {"b"}
            assert {row["collection"] for row in store.hybrid_query("zebra", top_k=5)} == {"a"}

    @pytest.mark.slow
    def test_collections(self, many):
        with Store(many) as store:

            def found(collection):
                return {row["collection"] for row in store.hybrid_query("zebra", top_k=700, collection=collection)}

            assert found("a") == found(["a"]) == {"a"}
            assert found(["a", "b"]) == found(("b", "a")) == found(None) == {"a", "b"}
            assert found("nowhere") == found([]) == set()
            assert found(["nowhere", "b"]) == {"b"}

    @pytest.mark.slow
    def test_tags(self, kb):
        def found(**filters):
            return {row["doc_id"] for row in hybrid_query("zebra cow tram", kb, top_k=10, **filters)}

        everything = {"zoo.md", "farm.md", "sub/city.txt"}
        assert found() == found(tags_all=[]) == everything
        assert found(tags_any=["stripes", "nothing"]) == {"zoo.md"}
        assert found(tags_all=["animals"]) == {"zoo.md", "farm.md"}
        assert found(tags_all=["animals", "stripes"]) == {"zoo.md"}
        assert found(tags_any=[]) == found(tags_any=["Animals"]) == set()

    VALUES = (
        2024, "2024", 2024.5, True, None, [1, "two"], [], {"b": 1, "a": [True, None]}, "", "it's \"q\" 'OR' 1=1",
        "日本", "é", 2**53 + 1, 2**53, -1, "null", "true", 1e300, "a\\b\n\tc",
    )  # fmt: skip

    @pytest.mark.slow
    def test_case_H4_list_values(self, tmp_path):
        """A list in the front matter is what the tag filters look into, and operators of the metadata filter."""
        path = build(
            tmp_path,
            both_md="---\ntags: [red, blue]\ncolors: [red, blue]\nsize: {in: 5, cm: 2}\n---\nzebra",
            none_md="---\ncolors: [green]\n---\nzebra",
        )
        for search in (hybrid_query, vector_query, lexical_query):
            for filters in (
                {"tags_any": ["red"]},
                {"tags_any": ["blue", "green"]},
                {"tags_all": ["blue", "red"]},
                {"metadata": {"colors": ["red", "blue"]}},
                {"metadata": {"size": {"in": 5, "cm": 2}}},
                {"metadata": {"tags": {"$contains": "red"}}},
                {"metadata": {"tags": {"$in": ["blue"]}}},
            ):
                assert ids(search("zebra", path, **filters)) == ["both.md#0"], filters
            for filters in ({"tags_any": ["gre"]}, {"tags_all": ["red", "green"]}, {"metadata": {"colors": "red"}}):
                assert ids(search("zebra", path, **filters)) == [], filters
            # An operator is an error, never "no rows".
            for wrong in ("red", {"in": ["red"]}, [["red"]], "tags contains 'red'"):
                with pytest.raises(InputError, match="tags_any must be a list of strings"):
                    search("zebra", path, tags_any=wrong)
            for wrong in ({"colors": {"in": ["red"]}}, {"year": {">=": 2024, "<": 2026}}):
                with pytest.raises(InputError, match="looks like an operator"):
                    search("zebra", path, metadata=wrong)

    def test_case_H5_filters_hold_in_both_legs_and_for_source_documents(self, many):
        """In the data of F7 the words of the question are in every chunk, most of all in those with tag a."""
        with Store(many, embedder=MODEL) as store:
            for filters in ({"tags_any": ["b"]}, {"collection": "b"}, {"metadata": {"tag": "b"}}):
                for search in (store.hybrid_query, store.vector_query, store.lexical_query):
                    answer = search("zebra", top_k=20, include_source_docs=True, **filters)
                    assert len(answer) == 5
                    assert {row["collection"] for row in answer} == {"b"}
                    assert [row["source_doc"]["doc_id"] for row in answer] == [row["doc_id"] for row in answer]
                    assert all(row["source_doc"]["doc_id"].startswith("b") for row in answer)
                assert store.hybrid_query("zebra", top_k=20, **filters).candidates == {"vector": 5, "lexical": 5}

    @pytest.mark.slow
    def test_case_H2_metadata_equality_tells_types_apart(self, tmp_path):
        with Store.create(tmp_path / "kb.duckdb", 64) as store:
            documents = [Document(f"d{n:02}", "x") for n in range(len(self.VALUES))]
            chunks = [Chunk(d.doc_id, 0, "zebra", (), {"v": v}) for d, v in zip(documents, self.VALUES, strict=True)]
            store.upsert(documents, chunks, np.tile(embedded("zebra"), (len(chunks), 1)))
            for n, value in enumerate(self.VALUES):
                for found in (
                    store.lexical_query("zebra", metadata={"v": value}, top_k=50),
                    store.vector_query(query_vector=embedded("zebra"), metadata={"v": value}, top_k=50),
                ):
                    assert ids(found) == [f"d{n:02}#0"], value
                    assert found[0]["metadata"] == {"v": value}
            assert ids(store.lexical_query("zebra", metadata={"v": 2024.0})) == ["d00#0"]
            assert ids(store.lexical_query("zebra", metadata={"v": np.int64(2024)})) == ["d00#0"]
            assert ids(store.lexical_query("zebra", metadata={"v": {"a": [True, None], "b": 1}})) == ["d07#0"]
            assert store.lexical_query("zebra", metadata={"v": {"b": 1}}) == []
            assert store.lexical_query("zebra", metadata={"v": 1}) == []  # not true
            assert len(store.lexical_query("zebra", metadata={"absent": None}, top_k=50)) == len(self.VALUES)

    KEYS = (
        "plain",
        "a.b",
        "a/b",
        "a~b",
        "~1",
        "it's",
        'dou"ble',
        "$[0]",
        "*",
        " ",
        "é",
        "a\\b",
        "0",
        "x; drop table documents",
    )

    @pytest.mark.slow
    def test_metadata_keys_are_plain_names(self, tmp_path):
        with Store.create(tmp_path / "kb.duckdb", 64) as store:
            documents = [Document(f"d{n:02}", "x") for n in range(len(self.KEYS))]
            chunks = [Chunk(d.doc_id, 0, "zebra", (), {key: 1}) for d, key in zip(documents, self.KEYS, strict=True)]
            store.upsert(documents, chunks, np.tile(embedded("zebra"), (len(chunks), 1)))
            for n, key in enumerate(self.KEYS):
                assert ids(store.lexical_query("zebra", metadata={key: 1})) == [f"d{n:02}#0"], key
            assert store.lexical_query("zebra", metadata={"a": {"b": 1}}) == []
            assert store.lexical_query("zebra", metadata={"plain": 1, "a.b": 1}) == []  # all of them have to hold
            assert len(store.lexical_query("zebra", metadata={}, top_k=50)) == len(self.KEYS)

    @pytest.mark.parametrize(
        "filters",
        [
            {"collection": 3}, {"collection": ["a", 3]}, {"tags_any": "animals"}, {"tags_all": 5}, {"tags_any": {"a"}},
            {"metadata": "year"}, {"metadata": [("year", 1)]}, {"metadata": {1: 2}}, {"metadata": {"f": object()}},
        ],
    )  # fmt: skip
    def test_wrong_filters(self, kb, filters):
        for search in (hybrid_query, vector_query, lexical_query):
            with pytest.raises(InputError, match=next(iter(filters))):
                search("zebra", kb, **filters)


class TestOptions:
    def test_min_similarity_drops_candidates_of_the_vector_leg(self, kb):
        cosines = [row["score"] for row in vector_query("zebra", kb, top_k=10)]
        limit = cosines[0] - 1e-6
        assert cosines[1] < limit
        assert ids(vector_query("zebra", kb, top_k=10, min_similarity=limit)) == ["zoo.md#0"]
        found = hybrid_query("cow zebra", kb, top_k=10, min_similarity=1.0)
        assert sorted(ids(found)) == ["farm.md#0", "zoo.md#0"]  # of the lexical leg
        assert {row["vector_rank"] for row in found} == {None}
        for wrong in (1.1, -2, float("nan"), "0.5", True):
            with pytest.raises(InputError, match="min_similarity"):
                hybrid_query("zebra", kb, min_similarity=wrong)

    @pytest.mark.parametrize(
        "options",
        [
            {"top_k": 0}, {"top_k": -1}, {"top_k": 2.0}, {"top_k": "5"}, {"top_k": True}, {"vector_top_k": -1},
            {"fts_top_k": -1}, {"fts_top_k": 0, "vector_top_k": 0},
            {"fusion": "best"}, {"alpha": 1.5}, {"alpha": "x"}, {"alpha": float("nan")},
            {"vector_weight": -0.1}, {"vector_weight": "x"}, {"k1": -1}, {"k1": "x"}, {"b": 2}, {"b": float("nan")},
            {"heading_weight": -1}, {"rrf_k": -1}, {"rrf_k": "x"}, {"rrf_weights": (1, -1)}, {"rrf_weights": (0, 0)},
            {"rrf_weights": (1,)}, {"rrf_weights": ("x", 1)},
        ],
    )  # fmt: skip
    def test_options_out_of_range(self, kb, options):
        fusion = "weighted" if "vector_weight" in options else "convex" if "alpha" in options else None
        with pytest.raises(InputError):
            hybrid_query("zebra", kb, **{"fusion": fusion, **options})

    @pytest.mark.parametrize("query", ["", "   ", "\n\t", None, 5, b"zebra"])
    def test_case_E5_a_blank_question_is_refused_and_not_embedded(self, kb, query):
        for search in (hybrid_query, vector_query, lexical_query):
            with pytest.raises(InputError, match=r"blank|query_text must be a string"):
                search(query, kb)
        with pytest.raises(InputError, match=r"blank|query_text must be a string"):
            hybrid_query(query, kb, query_vector=embedded("zebra"))
        if query is None or isinstance(query, str):
            assert vector_query(query, kb, query_vector=embedded("zebra"))

    @pytest.mark.parametrize(
        "shape",
        [list, tuple, np.asarray, lambda v: v.astype("f8") * 7, lambda v: [list(v)], lambda v: v.reshape(1, -1)],
    )
    def test_a_query_vector_of_any_shape(self, kb, shape):
        expected = vector_query("zebra", kb)
        assert vector_query("", kb, query_vector=shape(embedded("zebra"))) == expected
        assert hybrid_query("zebra", kb, query_vector=shape(embedded("zebra"))) == hybrid_query("zebra", kb)

    @pytest.mark.parametrize(
        ("vector", "error", "words"),
        [
            (np.ones(63), ModelMismatchError, "64 dimensions; you passed 63"),
            ([], ModelMismatchError, "you passed 0"),
            (np.ones((2, 64)), InputError, "One vector is wanted, not 2"),
            (np.ones((1, 1, 64)), InputError, "shape"),
            (5, InputError, "shape"),
            ("zebra", InputError, "numbers"),
            ([None] * 64, InputError, "not finite"),
            ([float("nan")] + [1.0] * 63, InputError, "not finite"),
            ([float("inf")] * 64, InputError, "not finite"),
            ([1e300] * 64, InputError, "not finite"),
            ([0.0] * 64, InputError, "zero"),
            ([1j] * 64, InputError, "numbers"),
        ],
    )
    def test_case_F3_a_wrong_query_vector(self, kb, vector, error, words):
        for search in (hybrid_query, vector_query):
            with pytest.raises(error, match=words):
                search("zebra", kb, query_vector=vector)

    def test_the_pools_are_never_below_top_k(self, many):
        with Store(many) as store:
            assert len(store.hybrid_query("zebra", top_k=80, vector_top_k=1, lexical_top_k=1)) >= 80
            assert len(store.vector_query("zebra", top_k=605, codes_pool=1)) == 605

    def test_k1_b_and_the_weight_of_headings_change_scores(self, kb):
        def scores(**options):
            return [row["score"] for row in lexical_query("zoo night", kb, **options)]

        assert scores() == scores(k1=1.2, b=0.75, heading_weight=3)  # the file's own weight is 3
        assert len({tuple(scores(**o)) for o in ({}, {"k1": 0.5}, {"b": 0}, {"heading_weight": 0})}) == 4

    def test_conjunctive(self, kb):
        assert ids(lexical_query("zebra cow", kb, conjunctive=True)) == []
        assert ids(lexical_query("zebra lion", kb, conjunctive=True)) == ["zoo.md#0"]
        assert len(lexical_query("zebra cow", kb)) == 2


class TestModel:
    @pytest.mark.slow
    def test_the_name_is_checked(self, kb):
        expected = hybrid_query("zebra", kb)
        assert hybrid_query("zebra", kb, "hashing-64") == expected
        assert hybrid_query("zebra", kb, "acme/Hashing-64") == expected
        for wrong in ("hashing-32", "BAAI/bge-small-en-v1.5", "nobody/nothing"):
            for search in (hybrid_query, vector_query):
                with pytest.raises(ModelMismatchError, match="'hashing-64'"):
                    search("zebra", kb, wrong)
            with pytest.raises(ModelMismatchError):
                hybrid_query("zebra", kb, wrong, query_vector=embedded("zebra"))
        with pytest.raises(InputError, match="blank"):
            hybrid_query("zebra", kb, " ")

    def test_validate_embedding_model(self, kb):
        assert validate_embedding_model(kb, "hashing-64") is True
        assert validate_embedding_model(kb, "Acme/HASHING-64", 64) is True
        assert validate_embedding_model(kb, "hashing-64", expected_dimensions=63) is False
        assert validate_embedding_model(kb, "hashing-32") is False
        for name in ("", " ", None, 5):
            with pytest.raises(InputError, match="model_name"):
                validate_embedding_model(kb, name)

    def test_names_with_an_organisation_have_to_agree_in_it(self, tmp_path):
        with Store.create(tmp_path / "kb.duckdb", 8, model_name="acme/embed") as store:
            for name, same in {
                "acme/embed": True,
                "ACME/Embed": True,
                "embed": True,
                "other/embed": False,
                "bed": False,
            }.items():
                assert validate_embedding_model(store, name) is same

    def test_another_model_of_equal_dimensions_is_refused_by_its_vectors(self, kb):
        class Other(HashingEmbedder):
            def embed(self, texts, *, kind):
                return super().embed(texts, kind=kind)[:, ::-1].copy()

        with (
            Store(kb, embedder=Other("hashing-64")) as store,
            pytest.raises(ModelMismatchError, match="whose vectors differ"),
        ):
            store.hybrid_query("zebra")


def without_index(kb, tmp_path):
    path = shutil.copy(kb, tmp_path / "kb.duckdb")
    with duckdb.connect(path) as con:
        con.execute("DROP SCHEMA fts_main_documents CASCADE")
    return path


class TestOneLegMissing:
    @pytest.fixture
    def gone(self, kb, tmp_path):
        """A file whose provider is not installed here any more."""
        path = shutil.copy(kb, tmp_path / "kb.duckdb")
        with duckdb.connect(path) as con:
            con.execute("UPDATE embedding_metadata SET value = 'vanished' WHERE key = 'embedding_provider'")
        return path

    def test_no_model(self, tmp_path):
        with Store.create(tmp_path / "kb.duckdb", 64) as store:
            store.upsert([Document("a", "zebra")], [Chunk("a", 0, "zebra")], embedded("zebra")[None])
            self.answers_by_words(store, ModelUnavailableError, "a#0")

    def test_case_S2_8_a_provider_that_is_not_installed_any_more(self, gone):
        with Store(gone) as store:
            self.answers_by_words(store, (InputError, ModelUnavailableError), "zoo.md#0")

    def answers_by_words(self, store, error, found):
        for fusion in ("adaptive", "rrf", "weighted", "convex"):
            answer = store.hybrid_query("zebra", fusion=fusion, include_source_docs=True)
            assert ids(answer) == [found]
            assert tuple(answer[0]) == RESULT_KEYS
            assert answer[0]["score_type"] == "bm25"
            assert answer[0]["lexical_rank"] == 1
            assert answer[0]["vector_score"] is answer[0]["vector_rank"] is None
            assert len(answer.notices) == 1
            assert "could not be embedded" in answer.notices[0]
        assert store.hybrid_query("qqqq") == []
        for ask in (lambda: store.hybrid_query("zebra", strict=True), lambda: store.vector_query("zebra")):
            with pytest.raises(error):
                ask()
        # With the vector given nothing is missing.
        given = store.hybrid_query("zebra", query_vector=embedded("zebra"), strict=True)
        assert (given[0]["score_type"], given.notices) == ("adaptive", [])

    @pytest.mark.slow
    def test_no_lexical_index(self, kb, tmp_path):
        path = without_index(kb, tmp_path)
        expected = [(row["node_id"], row["score"]) for row in vector_query("zebra", kb)]
        assert [(row["node_id"], row["score"]) for row in vector_query("zebra", path)] == expected
        for fusion in ("adaptive", "rrf", "weighted", "convex"):
            answer = hybrid_query("zebra", path, fusion=fusion, include_source_docs=True)
            assert [(row["node_id"], row["score"]) for row in answer] == expected
            assert tuple(answer[0]) == RESULT_KEYS
            assert {row["score_type"] for row in answer} == {"vector"}
            assert answer.notices == ["The file has no lexical index, so the answer is from the vector leg alone."]
        for ask in (lambda: lexical_query("zebra", path), lambda: hybrid_query("zebra", path, strict=True)):
            with pytest.raises(StoreError, match="no lexical index"):
                ask()

    def test_neither(self, kb, tmp_path):
        path = without_index(kb, tmp_path)
        with duckdb.connect(path) as con:
            con.execute("UPDATE embedding_metadata SET value = 'given' WHERE key = 'embedding_provider'")
        answer = hybrid_query("zebra", path)
        assert answer == []
        assert len(answer.notices) == 2

    def test_a_mismatch_is_never_hidden(self, kb):
        with Store(kb, embedder=HashingEmbedder("hashing-32")) as store, pytest.raises(ModelMismatchError):
            store.hybrid_query("zebra")


class TestSourceDocuments:
    def test_order_and_keys(self, kb):
        found = get_source_documents(["sub/city.txt#0", "zoo.md#1", "zoo.md#0", "farm.md#0"], kb)
        assert [source["doc_id"] for source in found] == ["sub/city.txt", "zoo.md", "farm.md"]
        for source in found:
            assert source.keys() == {"doc_id", "file_path", "file_name", "text", "metadata"}
            assert isinstance(source["metadata"], Mapping)
        assert found[1]["metadata"]["year"] == 2024
        assert found[2]["metadata"]["year"] == "2024"
        assert found[0]["file_name"] == "city.txt"
        assert found[0]["text"] == "tram and bridge"

    def test_edges(self, kb):
        assert get_source_documents([], kb) == []
        many = ["zoo.md#0", "farm.md#0"] * 2000
        assert [source["doc_id"] for source in get_source_documents(many, kb)] == ["zoo.md", "farm.md"]
        with pytest.raises(NotFoundError, match=r"'zoo\.md#9' \(nor 1 other of"):
            get_source_documents(["zoo.md#0", "zoo.md#9", "x' OR 1=1 --"], kb)
        for wrong in ("zoo.md#0", [1], [None], ["zoo.md#0", 1]):
            with pytest.raises(InputError, match="chunk_ids"):
                get_source_documents(wrong, kb)


def test_get_embedding_metadata(kb):
    found = get_embedding_metadata(kb)
    assert found["embedding"] == {
        "provider": "hashing", "model": "hashing-64", "dimensions": 64, "max_tokens": 1_000_000,
        "query_prefix": "", "passage_prefix": "", "normalized": True,
    }  # fmt: skip
    assert found["chunking"] == {
        "strategy": "markdown-aware", "chunk_size": 512, "chunk_overlap": 64, "chunk_unit": "tokens",
        "include_headers": True, "header_weight": 3,
    }  # fmt: skip
    assert found["source_documents"]["total_documents"] == found["source_documents"]["unique_files"] == 3
    assert found["chunks"]["total_chunks"] == 4
    assert found["chunks"]["min_chunk_size"] == len("tram and bridge")
    assert found["capabilities"] == {"hybrid_search": True, "fts_enabled": True, "source_documents_stored": True}
    assert found.keys() == {
        "version", "created_at", "embedding", "chunking", "source_documents", "chunks", "capabilities", "store"
    }  # fmt: skip
    assert found["version"] == "1.0.0"
    assert found["store"]["schema_version"] == "6"


@pytest.mark.slow
def test_two_collections_are_two_builds(tmp_path):
    # A doc_id is the same path in both; the prefix tells them apart, so that ready-made rows can be joined to a build.
    write(tmp_path / "docs", a_md="zebra")
    path = prepare_embeddings(
        tmp_path / "docs", tmp_path / "kb.duckdb", embedder=MODEL, collection="one", progress="off"
    ).path
    with Store(path, read_only=False) as store:
        store.upsert(
            [Document("two:a.md", "zebra", "two")],
            [Chunk("two:a.md", 0, "zebra", collection="two", heading_path=("a",))],
            embedded("a\n\nzebra")[None],
        )
        assert ids(store.hybrid_query("zebra")) == ["one:a.md#0", "two:a.md#0"]
        assert ids(store.hybrid_query("zebra", collection="two")) == ["two:a.md#0"]
        assert store.check() == []


def test_scores_fall_or_stay(many):
    with Store(many) as store:
        for found in (store.hybrid_query("zebra", top_k=605), store.vector_query("zebra", top_k=605)):
            assert all(a["score"] >= b["score"] for a, b in pairwise(found))


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    sections = "\n\n".join(f"## Part {n}\n\nzebra " + "zebra " * (9 - n) + f"number {n}" for n in range(6))
    return build(tmp_path_factory.mktemp("book"), book_md=f"# Book\n\n{sections}", note_txt="one zebra alone")


class TestPerDocument:
    """At most so many chunks of a document."""

    @pytest.mark.parametrize("ask", [hybrid_query, vector_query, lexical_query])
    def test_fault_K5_other_documents_are_seen_too(self, book, ask):
        everything = ask("zebra", book, top_k=50)
        found = ask("zebra", book, top_k=3, per_document=1)
        assert [row["doc_id"] for row in found] == list(dict.fromkeys(row["doc_id"] for row in everything))
        best = {row["doc_id"]: row["node_id"] for row in reversed(everything)}
        assert {row["doc_id"]: row["node_id"] for row in found} == best
        assert list(found.further) == ["book.md"]
        others = [row["node_id"] for row in everything if row["node_id"] not in best.values()]
        assert found.further["book.md"] == others
        assert found[:1].further == found.further
        assert everything.further == {}

    def test_it_is_cut_before_top_k(self, book):
        assert len(hybrid_query("zebra", book, top_k=2, per_document=1)) == 2
        assert len(hybrid_query("zebra", book, top_k=1, per_document=1)) == 1
        assert [row["doc_id"] for row in hybrid_query("zebra", book, top_k=9, per_document=2)].count("book.md") == 2
        with pytest.raises(InputError, match="per_document"):
            hybrid_query("zebra", book, per_document=-1)

    def test_the_results_name_tags_and_checksum(self, kb):
        row = lexical_query("zebra", kb)[0]
        assert row["tags"] == ["animals", "stripes"]
        assert len(row["checksum"]) == 64
        assert lexical_query("zebra", kb).arrow().column("tags").to_pylist() == [["animals", "stripes"]]
