"""Every option of the query side: wrong types and ranges are InputErrors that name it, numpy's scalars are taken."""

from __future__ import annotations

import inspect
import math
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest

import sqlrag
from sqlrag import (
    Chunk,
    Document,
    InputError,
    Settings,
    Store,
    delete_documents,
    prepare_embeddings,
    update_embeddings,
)
from sqlrag.embedders import HashingEmbedder
from sqlrag.ranking.plan import OPTIONS
from sqlrag.types import Fusion
from tests.support.helpers import HASHING, build, ids, write

NAN = math.nan
NOT_A_NUMBER = ("5", None, True, np.True_, [1], NAN, math.inf, -math.inf, np.float64("nan"), 1j, np.ones(2))
NOT_WHOLE = (*NOT_A_NUMBER, 1.5, 2.0, np.float32(2), 10**400, 0, -1, np.int64(-1))
NOT_A_FLAG = (1, 0, "no", "", None, np.int64(1), [], 0.0, NAN)
NOT_STRINGS = (5, True, NAN, [5], [None], [["a"]], {"a": 1}, b"a")
NOT_A_NAME = (5, True, NAN, b"hashing-64", ["hashing-64"])


def beyond(low, high):
    """Return what is no number from ``low`` to ``high``."""
    return (*NOT_A_NUMBER, low - 1, np.float32(low - 1), -(10**400), *(() if high is None else (high + 1, 10**400)))


def optional(values):
    return tuple(value for value in values if value is not None)


NOT_A_COUNT = tuple(one for one in optional(NOT_WHOLE) if not (type(one) is int and one == 0))
COUNT = dict.fromkeys(("vector_top_k", "lexical_top_k", "fts_top_k"), NOT_A_COUNT)
FLAGS = dict.fromkeys(("include_source_docs", "exact", "strict", "syntax", "conjunctive", "verbose"), NOT_A_FLAG) | {
    "use_rrf": optional(NOT_A_FLAG)
}
FILTERS = {
    "collection": NOT_STRINGS,
    "tags_any": (*NOT_STRINGS, "a"),
    "tags_all": (*NOT_STRINGS, "a"),
    "metadata": ("year", 5, True, [1], [("year", 1)], {5: 1}, {"year": NAN}, {"year": object()}),
}
WRONG = {
    "query_text": (5, True, NAN, b"zebra", ["zebra"], {}),
    "db_path": (5, True, None, NAN, b"kb.duckdb", {"kb.duckdb"}, ""),
    "model_name": NOT_A_NAME,
    "top_k": NOT_WHOLE,
    **COUNT,
    **FLAGS,
    **FILTERS,
    "vector_weight": beyond(0, 1),
    "alpha": beyond(0, 1),
    "feedback_weight": beyond(0, 1),
    "b": beyond(0, 1),
    "k1": beyond(0, 1000),
    "heading_weight": optional(beyond(0, 1000)),
    "min_similarity": optional(beyond(-1, 1)),
    "rrf_k": beyond(0, None),
    "rrf_weights": (5, None, "11", (1,), (1, 1, 1), (1, -1), (0, 0), (1, NAN), (1, math.inf), ("1", 1), {1: 1, 2: 1}),
    "fusion": ("borda", "RRF", "", 0, 5, True, ["rrf"]),
    "fields": (5, True, NAN, "title", [], ["title"], [5], [["text"]], {"text": 1}, b"text", np.array(1)),
    "per_document": ("2", None, True, 1.5, NAN, -1, np.float32(1)),
    "context": ("chunks", "Section", "", None, 0, True, 5, ["chunk"]),
    "context_chars": ("2", None, True, 1.5, NAN, 0, -1, 100_001, np.float32(1)),
    "feedback": ("2", None, True, 1.5, NAN, -1, 51, np.float32(1)),
    "expansion": ("2", None, True, 1.5, NAN, -1, 1001, np.float32(1)),
    "query_vector": (5, "zebra", {}, [None] * 64, [NAN] * 64, [0.0] * 64, True),
}  # fmt: skip
SEARCHES = ("hybrid_query", "vector_query", "lexical_query")
CASES = [
    (search, name, value)
    for search in SEARCHES
    for name in inspect.signature(getattr(sqlrag, search)).parameters
    for value in WRONG[name]
]


@pytest.fixture(scope="module")
def kb(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kb")
    return build(
        folder, zoo_md="# Zoo\n\nzebra and lion\n\n## Night\n\nowl at night", farm_md="# Farm\n\ncow and horse"
    )


@pytest.fixture(scope="module")
def store(kb):
    with Store(kb) as opened:
        yield opened


def shown(case):
    return repr(case)[:30]


def test_a_long_value_is_cut_short(store):
    for value in (10**400, 10**5000, "x" * 10**5):
        with pytest.raises(InputError, match="top_k must be") as caught:
            store.hybrid_query("zebra", top_k=value)
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize(("search", "name", "value"), CASES, ids=shown)
def test_a_wrong_option_is_named(store, search, name, value):
    """The message says which option, and for a value that fits into a line, the value."""
    arguments = {"query_text": "zebra", "db_path": store, name: value}
    with pytest.raises(InputError, match=rf"\b{name}\b") as caught:
        getattr(sqlrag, search)(**arguments)
    if name not in ("query_vector", "db_path") and len(repr(value)) < 30:
        assert repr(value) in str(caught.value)


def test_the_options_of_the_methods_are_those_of_the_functions(store):
    """codes_pool and lexical_top_k are of the methods alone."""
    for name, values, least in (("codes_pool", optional(NOT_WHOLE), 1), ("lexical_top_k", COUNT["lexical_top_k"], 0)):
        for value in values:
            with pytest.raises(InputError, match=f"{name} must be a whole number from {least}"):
                store.hybrid_query("zebra", **{name: value})


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": np.int64(1), "vector_top_k": np.int8(3), "lexical_top_k": np.uint16(3), "codes_pool": np.int32(9)},
        {"rrf_k": np.float32(60), "rrf_weights": np.array([1, 2])},
        {"rrf_k": Fraction(60), "rrf_weights": [1, Fraction(2)]},
        {"fusion": "weighted", "vector_weight": np.float32(0.5), "exact": np.True_},
        {"fusion": "convex", "alpha": np.float16(0.5), "k1": np.int64(1), "b": np.float64(0.5)},
        {"fields": ("text", "heading_path"), "heading_weight": np.float32(2), "strict": np.False_},
        {
            "fields": np.array(["text"]),
            "tags_any": None,
            "min_similarity": np.float32(-1),
            "feedback": np.int64(1),
            "expansion": np.int8(2),
        },
    ],
    ids=shown,
)
def test_scalars_of_numpy_are_plain_ones(store, options):
    plain = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in options.items()}
    ours, theirs = store.hybrid_query("zebra owl", **options), store.hybrid_query("zebra owl", **plain)
    assert ours == theirs
    assert len(ours) > 0
    assert ours.sql == theirs.sql
    assert "np." not in ours.sql


class TestOtherFunctions:
    @pytest.mark.parametrize("value", [5, None, True, "a#0", b"a#0", {"a#0": 1}, [5], [None], [["a#0"]]], ids=shown)
    def test_chunk_ids(self, kb, value):
        with pytest.raises(InputError, match="chunk_ids must be a list"):
            sqlrag.get_source_documents(value, kb)

    @pytest.mark.parametrize("kind", [tuple, iter, np.array])
    def test_chunk_ids_may_be_any_row(self, kb, kind):
        given = kind(["zoo.md#0", "farm.md#0"])
        assert [source["doc_id"] for source in sqlrag.get_source_documents(given, kb)] == ["zoo.md", "farm.md"]

    def test_a_lone_surrogate_in_an_id_is_an_unknown_id(self, kb):
        with pytest.raises(sqlrag.NotFoundError, match="holds no chunk"):
            sqlrag.get_source_documents(["zoo\ud835.md#0"], kb)

    @pytest.mark.parametrize("value", ["64", True, 0, -1, 64.0, NAN], ids=shown)
    def test_expected_dimensions(self, kb, value):
        with pytest.raises(InputError, match="expected_dimensions"):
            sqlrag.validate_embedding_model(kb, "hashing-64", value)

    @pytest.mark.parametrize("value", WRONG["db_path"], ids=shown)
    @pytest.mark.parametrize("function", [
        sqlrag.get_embedding_metadata,
        lambda path: sqlrag.get_source_documents([], path),
        lambda path: sqlrag.delete_documents(path, doc_ids="a"),
        lambda path: sqlrag.index([], path),
        Store,
        lambda path: Store.create(path, 8),
    ])  # fmt: skip
    def test_paths(self, function, value):
        with pytest.raises(InputError, match="path"):
            function(value)

    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("read_only", NOT_A_FLAG),
            ("wait_seconds", optional(beyond(0, 86_400))),
            ("threads", optional(NOT_WHOLE)),
            ("memory_limit", (5, True, "much", NAN)),
            ("settings", (5, "no", {}, True)),
        ],
    )
    def test_store(self, kb, name, values):
        for value in values:
            with pytest.raises(InputError, match=name):
                Store(kb, **{name: value})

    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("dimensions", (*NOT_WHOLE, 65_537)),
            ("model_name", (5, None, " ", True)),
            ("stemmer", (5, None, "klingon")),
            ("heading_weight", beyond(0, 1000)),
            ("overwrite", NOT_A_FLAG),
        ],
    )
    def test_create(self, tmp_path, name, values):
        for value in values:
            with pytest.raises(InputError, match=name):
                Store.create(tmp_path / "new.duckdb", **{"dimensions": 8, name: value})
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("doc_ids", NOT_STRINGS),
            ("checksum", (5, True, b"a", ["a"])),
            ("folder", (5, b"a", "", "a\0")),
            ("dry_run", NOT_A_FLAG),
            *FILTERS.items(),
        ],
    )
    def test_delete_documents(self, tmp_path, name, values):
        with Store.create(tmp_path / "kb.duckdb", 8) as store:
            for value in values:
                with pytest.raises(InputError, match=name):
                    store.delete_documents(**{name: value})

    def test_settings(self):
        for value in (5, True, ["a"]):
            with pytest.raises(InputError, match="query_log"):
                Settings(query_log=value)
        for value in beyond(0, 86_400):
            with pytest.raises(InputError, match="wait_seconds"):
                Settings(wait_seconds=value)


class TestWithoutEffect:
    """An option that cannot change anything is told in the notices, unless it has its default."""

    @pytest.mark.parametrize(
        ("options", "notice"),
        [
            ({"alpha": 0.3}, "alpha=0.3 has no effect with fusion='adaptive', only with 'convex'."),
            (
                {"fusion": "rrf", "vector_weight": 0.3},
                "vector_weight=0.3 has no effect with fusion='rrf', only with 'weighted'.",
            ),
            ({"fusion": "convex", "rrf_weights": (2, 1)}, "rrf_weights=(2, 1) has no effect with fusion='convex'"),
            ({"fusion": "weighted", "rrf_k": 10}, "rrf_k=10 has no effect with fusion='weighted', only with 'rrf'."),
            ({"feedback_weight": 0.1}, "feedback_weight=0.1 has no effect without feedback."),
            ({"exact": True, "codes_pool": 9}, "codes_pool=9 has no effect with exact=True."),
            ({"fields": "text", "heading_weight": 2}, "heading_weight=2 has no effect where the headings"),
            ({"expansion": 5, "syntax": True}, "expansion=5 has no effect with quotes or stars in the question."),
        ],
    )
    def test_it_is_told(self, store, options, notice):
        query = '"zebra and lion"' if "syntax" in options else "zebra"
        notices = store.hybrid_query(query, **options).notices
        assert len(notices) == 1
        assert notices[0].startswith(notice)

    def test_a_function_tells_of_use_rrf(self, store):
        answer = sqlrag.hybrid_query("zebra", store, use_rrf=False, fusion="rrf")
        assert answer.notices == ["use_rrf=False has no effect with fusion='rrf'."]
        answer = sqlrag.hybrid_query("zebra", store, use_rrf=True, fusion="convex")
        assert answer.notices == ["use_rrf=True has no effect with fusion='convex'."]
        for use_rrf, fusion in ((False, "weighted"), (True, "rrf"), (None, "adaptive")):
            answer = sqlrag.hybrid_query("zebra", store, use_rrf=use_rrf)
            assert (answer.notices, answer[0]["score_type"]) == ([], fusion)

    def test_every_default_is_silent(self, store):
        names = set(inspect.signature(Store.hybrid_query).parameters) & set(OPTIONS)
        defaults = {name: inspect.signature(Store.hybrid_query).parameters[name].default for name in names}
        for fusion in get_args(Fusion):
            assert store.hybrid_query("zebra", **{**defaults, "fusion": fusion}).notices == []

    def test_no_weight_for_headings_is_an_effect(self, store):
        assert store.hybrid_query("zebra", heading_weight=0).notices == []
        assert store.lexical_query("zebra", fields="text", heading_weight=0).notices == []
        assert len(store.lexical_query("zebra", fields="text", heading_weight=1).notices) == 1


@pytest.fixture(scope="module")
def tagged(tmp_path_factory):
    model = HashingEmbedder("hashing-64")
    texts = {"a.md": "zebra and lion", "b.md": "lion and zebra"}
    with Store.create(tmp_path_factory.mktemp("tagged") / "kb.duckdb", 64, embedder=model) as store:
        store.upsert(
            [Document(name, text) for name, text in texts.items()],
            [Chunk(name, 0, text, (name[0],)) for name, text in texts.items()],
            model.embed(list(texts.values()), kind="document"),
        )
        yield store


NO_TAG = "No chunk passes the filters: {'tags_any': ['c']}. No chunk has the tag 'c'; there is 'a', 'b'."

PUNCTUATION = " Quotes and stars are punctuation here; with syntax=True they mean phrases and beginnings of words."


class TestNothingFound:
    """The notice names what is the cause."""

    @pytest.mark.parametrize(
        ("query", "options", "notices"),
        [
            ('"zebra and lion"', {}, []),
            ('"zebra and lion"', {"tags_any": ["b"]},
             ['No chunk that passes the filters holds "zebra and lion"; others do. Filters: {\'tags_any\': [\'b\']}.']),
            ('"zebra and lion"', {"tags_any": ["c"]}, [NO_TAG]),
            ('"lion lion"', {"tags_any": ["b"]},
             ['No chunk holds "lion lion". Leave the quotes out to look for the words alone.']),
            ('"lion lion"', {}, ['No chunk holds "lion lion". Leave the quotes out to look for the words alone.']),
            ("zebra", {"tags_any": ["c"]}, [NO_TAG]),
            ("zebra", {"tags_any": ["b"]}, []),
            ("owl", {}, ["No chunk holds any of the words."]),
            ("owl zebra", {"conjunctive": True}, ['No chunk holds "owl".', "No chunk holds all of the words."]),
            ("owl* zebr*", {}, []),
            ("owl* zz*", {}, ["No chunk holds a word that begins as owl* or zz*."]),
            ("owl* zz*", {"syntax": False},
             ["No chunk holds any of the words." + PUNCTUATION]),
            ("*", {}, ["The question has no words that the lexical leg could look for."]),
        ],
    )  # fmt: skip
    def test_lexical(self, tagged, query, options, notices):
        assert tagged.lexical_query(query, **options).notices == notices

    @pytest.mark.slow
    def test_names_that_are_nowhere_are_told_with_those_that_are_near(self, tmp_path):
        path = build(tmp_path, options={"collection": "guides"}, a_md="---\ntags: [howto, faq]\n---\nzebra")
        for options, told in (
            ({"collection": "guide"}, "No chunk has the collection 'guide'; did you mean 'guides'?"),
            ({"collection": ["xyz", "uvw"]}, "No chunk has the collection 'xyz'; there is 'guides'. No chunk has the"),
            ({"tags_any": ["howtos"]}, "No chunk has the tag 'howtos'; did you mean 'howto'?"),
            ({"tags_all": ["faq", "Howto"]}, "No chunk has the tag 'Howto'; did you mean 'howto'?"),
        ):
            (notice,) = sqlrag.lexical_query("zebra", path, **options).notices
            assert notice.split("}. ")[1].startswith(told)
        # Of several, one that is there is enough to find something; the others are told all the same.
        for search in (sqlrag.lexical_query, sqlrag.vector_query, sqlrag.hybrid_query):
            for options, told in (
                ({"collection": ["guides", "guide"]}, ["No chunk has the collection 'guide'; did you mean 'guides'?"]),
                ({"collection": ["guides", "guides"]}, []),
                ({"tags_any": ["howto", "howtos"]}, []),
            ):
                found = search("zebra", path, **options)
                assert (found.notices, len(found)) == (told, 1)

    def test_plain_words(self, tmp_path):
        path = build(tmp_path, a_md="---\ntags: [a]\n---\nzebra", b_md="---\ntags: [b]\n---\nlion")
        answer = sqlrag.lexical_query("zebra", path, tags_any=["b"])
        assert answer.notices == [
            "No chunk that passes the filters holds the words; others do. Filters: {'tags_any': ['b']}."
        ]
        # The vector leg answers, so nothing has to be explained.
        assert sqlrag.hybrid_query("zebra", path, tags_any=["b"]).notices == []

    @pytest.mark.parametrize("search", ["hybrid_query", "vector_query"])
    def test_vector(self, tagged, search):
        ask = getattr(tagged, search)
        assert ask("zebra", tags_any=["c"]).notices == [NO_TAG]
        words = ["No chunk holds any of the words."] if search == "hybrid_query" else []
        assert ask("xyz", min_similarity=0.999).notices == ["No chunk has a cosine of 0.999 or more.", *words]
        assert ask("xyz", min_similarity=0.999, tags_any=["a"]).notices == [
            "No chunk that passes the filters has a cosine of 0.999 or more.", *words
        ]  # fmt: skip


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    rng = np.random.default_rng(0)
    names = [f"{number:04}" for number in range(900)]
    with Store.create(tmp_path_factory.mktemp("many") / "kb.duckdb", 384) as store:
        store.upsert(
            [Document(name, "x") for name in names],
            [Chunk(name, 0, "x", ("few",) if name < "0100" else ("rest",)) for name in names],
            rng.standard_normal((900, 384)),
        )
        yield store, rng.standard_normal(384)


class TestMethods:
    """How the vector leg was searched: exactly, wherever the pool holds all chunks that pass."""

    def test_exact_or_not(self, many):
        store, vector = many

        def method(**options):
            return store.vector_query(query_vector=vector, **options).methods["vector"]

        assert method() == "sign codes, then the exact cosines of the best 750"
        filtered = "sign codes, then the exact cosines of the best 750; exact if the filters leave no more"
        assert method(tags_any=["rest"]) == method(tags_any=["few"]) == filtered
        assert method(codes_pool=900) == "exact: the pool of 900 holds every chunk"
        assert method(codes_pool=899) == "sign codes, then the exact cosines of the best 899"
        assert method(codes_pool=50, tags_any=["few"]) == filtered.replace("750", "50")
        assert method(exact=True) == "exact: every vector compared"

    @pytest.mark.parametrize("options", [{"tags_any": ["few"]}, {"tags_any": ["rest"]}, {}])
    def test_the_rows_are_those_of_the_macro(self, many, options):
        store, vector = many
        filters = "".join(f", {name} := {value!r}" for name, value in options.items())
        sql = f"SELECT node_id, score FROM vector_query($1, k := 7{filters})"
        rows = store.cursor().execute(sql, [str(vector.tolist())]).fetchall()
        answer = store.vector_query(query_vector=vector, top_k=7, **options)
        assert ids(answer) == [node_id for node_id, _ in rows]
        assert [row["score"] for row in answer] == pytest.approx([score for _, score in rows], abs=1e-6)


class TestIngest:
    """Wrong types of building and updating are named as well."""

    @pytest.mark.parametrize(
        "wrong",
        [
            *({"input_dir": None}, {"input_dir": 5}, {"patterns": 5}, {"patterns": [1]}, {"patterns": b"*.md"}),
            *({"ignore": 5}, {"ignore": [1]}, {"ignore": b"*.md"}),
            *({"embed_model_name": 5}, {"use_markdown_chunking": "no"}, {"include_headers_in_chunks": 2}),
            *({"pdf_extractor": 3}, {"progress": "maybe"}, {"skip_duplicates": 1}, {"verbose": "yes"}),
        ],
    )
    def test_wrong_types(self, tmp_path, wrong):
        docs = write(tmp_path / "docs", a_md="alpha")
        kb = prepare_embeddings(docs, tmp_path / "kb.duckdb", **HASHING).path
        with pytest.raises(InputError, match=next(iter(wrong))):
            prepare_embeddings(**{"input_dir": docs, "output_db": tmp_path / "new.duckdb", **HASHING, **wrong})
        with pytest.raises(InputError, match=next(iter(wrong))):
            update_embeddings(**{"input_dir": docs, "db_path": kb, **wrong})
        assert not (tmp_path / "new.duckdb").exists()


class TestDeleting:
    @pytest.mark.slow
    @pytest.mark.parametrize("nothing", [{"tags_all": []}, {"metadata": {}}, {"tags_all": [], "metadata": {}}, {}])
    def test_no_condition_deletes_nothing(self, tmp_path, nothing):
        kb = build(tmp_path, a_md="alpha", b_md="beta")
        with pytest.raises(InputError, match="Nothing says what to delete"):
            delete_documents(kb, **nothing)
        for empty in ({"doc_ids": []}, {"tags_any": []}, {"collection": []}):
            assert delete_documents(kb, **empty).deleted == []
        assert delete_documents(kb, doc_ids="a.md", tags_all=[]).deleted == ["a.md"]
