"""Re-ranking: orders by hand and by an independent MMR, edge cases of scores, and a tiny cross-encoder in ONNX."""

from __future__ import annotations

import doctest
import itertools
import logging
import sys
import types
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlrag import Chunk, Document, Store
from sqlrag.blocks import rerank as rerank_module
from sqlrag.blocks.rerank import drop_near_duplicates, load_reranker, rerank
from sqlrag.embedders import HashingEmbedder, embed_texts
from sqlrag.errors import InputError, MissingExtraError, ModelUnavailableError, NotFoundError, ProviderError
from sqlrag.types import Candidate, Candidates
from tests.support.cross_encoder import make_cross_encoder


def found(*contents, score_type="rrf"):
    """Candidates of one-chunk documents a, b, c …, best first."""
    return [
        Candidate(chr(ord("a") + i), 0, text, score=1.0 - i / 100, score_type=score_type, lexical_rank=i + 1)
        for i, text in enumerate(contents)
    ]


def names(candidates):
    return "".join(candidate.doc_id for candidate in candidates)


def by_length(query, texts):
    return [len(text) for text in texts]


@pytest.fixture(autouse=True)
def _no_models_kept(monkeypatch):
    monkeypatch.setattr(rerank_module, "_loaded", {})


def test_the_examples_of_the_docstrings_hold():
    outcome = doctest.testmod(rerank_module)
    assert outcome.attempted >= 3
    assert outcome.failed == 0


# ---- order


def test_a_callable_decides_and_all_else_is_kept():
    before = found("x", "xxx", "xx")
    after = rerank("q", before, by_length)
    assert names(after) == "bca"
    assert after == [replace(before[i], score=float(s), score_type="rerank") for i, s in ((1, 3), (2, 2), (0, 1))]
    assert after.notices == []


def test_ties_are_broken_by_doc_id_then_chunk_index_after_rounding():
    places = [("b", 0), ("a", 10), ("a", 9), ("c", 0)]
    before = [Candidate(doc_id, index, "t") for doc_id, index in places]
    after = rerank("q", before, lambda query, texts: [0.1 + 0.2, 0.3, 0.3 + 1e-12, 0.3 + 1e-8])
    assert [(c.doc_id, c.chunk_index) for c in after] == [("c", 0), ("a", 9), ("a", 10), ("b", 0)]
    assert [c.score for c in after] == [0.30000001, 0.3, 0.3, 0.3]


def test_beyond_the_depth_the_order_stays_and_nothing_is_scored():
    asked = []

    def scorer(query, texts):
        asked.append((query, texts))
        return [len(text) for text in texts]

    before = found("x", "xx", "xxxx", "xxx")
    after = rerank("q", before, scorer, depth=2)
    assert asked == [("q", ["x", "xx"])]
    assert names(after) == "bacd"
    assert [c.score_type for c in after] == ["rerank", "rerank", "rrf", "rrf"]
    assert after[2:] == before[2:]
    assert names(rerank("q", before, scorer, depth=2, top_n=3)) == "bac"
    assert names(rerank("q", before, scorer, depth=99)) == "cdba"


def test_cosine_on_given_vectors():
    # Cosines with (3, 4), by hand: 3/5, 4/5, (3 + 4) / (5 √2), -1.
    vectors = np.float32([[2, 0], [0, 9], [1, 1], [-3, -4]])
    after = rerank("q", found("a", "b", "c", "d"), vectors=vectors, query_vector=[3, 4])
    assert names(after) == "cbad"
    assert [c.score for c in after] == pytest.approx([7 / 50**0.5, 0.8, 0.6, -1], abs=1e-6)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.sampled_from([0.0, -0.0, 1 / 3, 2.0])), max_size=9)
)
def test_the_order_is_total_and_twice_is_once(rows):
    scores = {f"{doc_id}#{index}": score for doc_id, index, score in rows}
    before = [Candidate(doc_id, index, f"{doc_id}#{index}") for doc_id, index, _ in rows]

    def scorer(query, texts):
        return [scores[text] for text in texts]

    after = rerank("q", before, scorer)
    assert after == rerank("q", before[::-1], scorer) == rerank("q", after, scorer)
    assert [(-c.score, c.doc_id, c.chunk_index) for c in after] == sorted(
        (-round(scores[c.content], 9), c.doc_id, c.chunk_index) for c in before
    )


# ---- case G11


def refuse(query, texts):
    raise AssertionError("the model must not be asked")


def test_case_G11_empty_gives_empty_without_loading_the_model(monkeypatch):
    monkeypatch.setattr(rerank_module, "load_reranker", refuse)
    assert rerank("q", [], "some/model") == []
    assert rerank("q", [], refuse) == []
    assert rerank("q", [], vectors=np.empty((0, 3)), query_vector=[1, 0, 0]) == []
    assert drop_near_duplicates([], threshold=0.9, vectors=np.empty((0, 3))) == []


def test_case_G11_top_n_above_the_number_gives_all():
    assert names(rerank("q", found("x", "xx"), by_length, top_n=50)) == "ba"


BAD_SCORES = {
    "not a number": lambda q, texts: [float("nan"), 1.0],
    "infinite": lambda q, texts: [1.0, float("inf")],
    "two columns": lambda q, texts: np.zeros((2, 2)),
    "one too few": lambda q, texts: [1.0],
    "no list": lambda q, texts: 1.0,
    "words": lambda q, texts: ["high", "low"],
    "ragged": lambda q, texts: [[1.0], [1.0, 2.0]],
    "None": lambda q, texts: None,
    "an error": lambda q, texts: 1 / 0,
}


@pytest.mark.parametrize("model", BAD_SCORES.values(), ids=BAD_SCORES)
def test_case_G11_bad_scores_are_an_error_or_leave_the_order_with_a_notice(model, caplog):
    before = found("x", "xx")
    with pytest.raises(ProviderError, match="reranking model"):
        rerank("q", before, model, strict=True)
    assert caplog.records == []
    after = rerank("q", before, model, top_n=1)
    assert after == before[:1]
    (notice,) = after.notices
    assert "Not reranked" in notice
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(logging.WARNING, notice)]


def test_case_G11_a_single_column_is_one_score_per_text():
    assert names(rerank("q", found("x", "xx"), lambda q, texts: np.array([[1.0], [2.0]]), strict=True)) == "ba"


def test_a_keyboard_interrupt_is_none_of_the_models_failures():
    def interrupted(query, texts):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rerank("q", found("x"), interrupted)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "No argument defines the order"),
        ({"model": by_length, "top_n": 0}, "top_n"),
        ({"model": by_length, "top_n": True}, "top_n"),
        ({"model": by_length, "depth": -1}, "depth"),
        ({"model": by_length, "depth": 1.5}, "depth"),
        ({"model": 3}, "model"),
        ({"model": " "}, "blank"),
        ({"model": by_length, "diversity": 1.1, "vectors": [[1], [1]]}, "diversity"),
        ({"model": by_length, "diversity": float("nan"), "vectors": [[1], [1]]}, "diversity"),
        ({"model": by_length, "diversity": 0.5}, "vectors"),
        ({"model": by_length, "query_vector": [1], "vectors": [[1], [1]]}, "not both"),
        ({"query_vector": [1]}, "vectors"),
        ({"vectors": [[1], [1]]}, "No argument defines the order"),
        ({"vectors": [[1, 0]], "query_vector": [1, 0]}, "one row per candidate"),
        ({"vectors": [1, 0], "query_vector": [1, 0]}, "one row per candidate"),
        ({"vectors": [[], []], "query_vector": []}, "one row per candidate"),
        ({"vectors": [[1, 0], [1]], "query_vector": [1, 0]}, "equal length"),
        ({"vectors": [["a"], ["b"]], "query_vector": [1]}, "numbers"),
        ({"vectors": [[1, 0], [1, 0]], "query_vector": [1, 0, 0]}, "query_vector"),
        ({"vectors": [[1, 0], [0, 0]], "query_vector": [1, 0]}, "zero"),
        ({"vectors": [[1, 0], [1, float("nan")]], "query_vector": [1, 0]}, "finite"),
        ({"vectors": [[1, 0], [1, 0]], "query_vector": [0, 0]}, "zero"),
    ],
)
def test_wrong_arguments_are_named_and_never_fallen_back_from(options, message):
    with pytest.raises(InputError, match=message):
        rerank("q", found("x", "xx"), **options)


def test_a_blank_question_and_things_that_are_no_candidates_are_refused():
    with pytest.raises(InputError, match="blank"):
        rerank("  ", found("x"), by_length)
    with pytest.raises(InputError, match="Candidate"):
        rerank("q", [{"text": "x"}], by_length)


# ---- MMR


def test_mmr_by_hand():
    # a and d are the same; λ = 0.4. First a: 0.4·1. Then b and c, 0.4·0.8 - 0.6·0.8 = -0.16 against a, b first by its
    # name; c is nearer to a (0.8) than to b (0.28), so it keeps -0.16; d comes last with 0.4·1 - 0.6·1 = -0.2.
    vectors = [[1, 0], [0.8, 0.6], [0.8, -0.6], [1, 0]]
    after = rerank("q", found(*"abcd"), vectors=vectors, query_vector=[1, 0], diversity=0.6)
    assert names(after) == "abcd"
    assert [c.score for c in after] == pytest.approx([0.4, -0.16, -0.16, -0.2], abs=1e-6)
    assert {c.score_type for c in after} == {"mmr"}
    assert names(rerank("q", found(*"abcd"), vectors=vectors, query_vector=[1, 0], diversity=0)) == "adbc"


def test_mmr_over_the_scores_that_there_are_scales_them():
    # Scores 1, .99, .98 become 1, .5, 0. λ = 0.5: a 0.5; then b 0.25 - 0.5, c 0 - 0 = 0.
    after = rerank("q", found(*"abc"), vectors=[[1, 0], [1, 0], [0, 1]], diversity=0.5)
    assert names(after) == "acb"
    assert [c.score for c in after] == pytest.approx([0.5, 0, -0.25], abs=1e-6)


def plain_mmr(relevance, vectors, diversity):
    """Carbonell and Goldstein, word for word, on cosines of 0 at least; ties to the lower position."""
    unit = [np.array(vector) / np.linalg.norm(vector) for vector in vectors]
    taken, rest, values = [], list(range(len(relevance))), []
    while rest:
        value = {
            i: round(
                (1 - diversity) * relevance[i]
                - diversity * max([max(0.0, float(unit[i] @ unit[j])) for j in taken], default=0.0),
                7,
            )
            for i in rest
        }
        best = min(rest, key=lambda i: (-value[i], -relevance[i], i))
        taken.append(best)
        rest.remove(best)
        values.append(value[best])
    return taken, values


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.sampled_from([0.1, 0.3, 0.5, 0.7, 1.0]))
def test_mmr_is_that_of_the_paper(seed, count, diversity):
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(count, 4)).astype(np.float32)
    query = random.normal(size=4).astype(np.float32)
    relevance = [float(v @ query / np.linalg.norm(v) / np.linalg.norm(query)) for v in vectors.astype(np.float64)]
    after = rerank(
        "q", found("t" * count, *"t" * (count - 1)), vectors=vectors, query_vector=query, diversity=diversity
    )
    expected, values = plain_mmr(relevance, vectors.astype(np.float64), diversity)
    assert [ord(c.doc_id) - ord("a") for c in after] == expected
    assert [c.score for c in after] == pytest.approx(values, abs=1e-5)
    assert all(one.score >= two.score for one, two in itertools.pairwise(after))
    top = rerank("q", found(*"t" * count), vectors=vectors, query_vector=query, diversity=diversity, top_n=3)
    assert names(top) == names(after[:3])


# ---- near-identical chunks


def test_repeats_in_other_blanks_and_case_go_with_or_without_a_threshold():
    before = found("The  End", "the\nend", "another", "THE END ")
    for threshold in (None, 0.5, 1):
        kept = drop_near_duplicates(before, threshold=threshold)
        assert names(kept) == "ac"
        assert kept.dropped == {"a#0": ["b#0", "d#0"]}
        assert kept == [before[0], before[2]]


def test_similar_by_words():
    # Runs of three words: the first has 4, the second 5 and shares all 4 of them: 4/5. The third shares 1 of 4 + 4 - 1.
    before = found("one two three four five six", "one two three four five six seven", "one two three x y z")
    assert names(drop_near_duplicates(before, threshold=0.8)) == "ac"
    assert names(drop_near_duplicates(before, threshold=0.81)) == "abc"
    assert names(drop_near_duplicates(before, threshold=1 / 7)) == "a"
    assert names(drop_near_duplicates(before, threshold=1 / 7 + 0.001)) == "ac"


def test_short_texts_other_scripts_and_texts_without_words():
    assert names(drop_near_duplicates(found("Yes!", "yes", "no", "---", "***", "***"), threshold=0.9)) == "acde"
    # Pairs 今天 天天 天气 气很 很好, then the characters: the texts differ in the mark at their end only.
    assert names(drop_near_duplicates(found("今天天气很好。", "今天天气很好！", "明天下雨。"), threshold=0.9)) == "ac"
    assert names(drop_near_duplicates(found("Straße und Café", "STRAßE, und Cafe"), threshold=1)) == "a"


def test_similar_by_vectors():
    before = found("one", "two", "three")
    vectors = [[1, 0], [0.6, 0.8], [0.8, 0.6]]  # cosines: ab 0.6, ac 0.8, bc 0.96
    assert drop_near_duplicates(before, threshold=0.95, vectors=vectors).dropped == {"b#0": ["c#0"]}
    assert drop_near_duplicates(before, threshold=0.7, vectors=vectors).dropped == {"a#0": ["c#0"]}
    assert drop_near_duplicates(before, threshold=0.97, vectors=vectors).dropped == {}
    for seed in range(30):  # the length of a float32 vector is not quite 1
        same = np.random.default_rng(seed).normal(size=(1, 384)).repeat(3, axis=0)
        assert names(drop_near_duplicates(before, threshold=1, vectors=same)) == "a"


@pytest.mark.parametrize("threshold", [0, -0.1, 1.01, True, "0.9", float("nan")])
def test_a_threshold_out_of_range_is_refused(threshold):
    with pytest.raises(InputError, match="threshold"):
        drop_near_duplicates(found("x"), threshold=threshold)


def test_vectors_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="threshold"):
        drop_near_duplicates(found("x"), vectors=[[1]])
    with pytest.raises(InputError, match="zero"):
        drop_near_duplicates(found("x"), vectors=[[0]], threshold=0.5)


@given(
    st.lists(st.lists(st.sampled_from(["a", "b", "B", "c", "."]), max_size=8).map(" ".join), max_size=10),
    st.sampled_from([None, 0.3, 0.8, 1]),
)
def test_dropping_twice_is_dropping_once_and_names_everything(texts, threshold):
    before = found(*texts)
    kept = drop_near_duplicates(before, threshold=threshold)
    again = drop_near_duplicates(kept, threshold=threshold)
    assert again == kept
    assert again.dropped == kept.dropped
    gone = [node_id for others in kept.dropped.values() for node_id in others]
    assert sorted([*gone, *(c.node_id for c in kept)]) == sorted(c.node_id for c in before)
    assert set(kept.dropped) <= {c.node_id for c in kept}


def test_what_was_said_before_goes_along():
    before = Candidates(found("x", "X", "yy"), notices=["one leg was missing"], timings={"vector": 0.1})
    kept = drop_near_duplicates(before)
    after = rerank("q", kept, lambda q, texts: [0])  # fails: two texts, one score
    assert after.notices[0] == "one leg was missing"
    assert len(after.notices) == 2
    assert kept.timings == after.timings == rerank("q", kept, by_length).timings == {"vector": 0.1}
    assert before.notices == kept.notices == rerank("q", kept, by_length).notices == ["one leg was missing"]
    reversed_ = rerank("q", found("p q r", "p q r s", "P q r"), lambda q, t: [1, 2, 3])
    step = drop_near_duplicates(drop_near_duplicates(reversed_), threshold=0.5)
    assert step.dropped == {"c#0": ["a#0", "b#0"]}


# ---- cross-encoders


@pytest.mark.slow
def test_a_cross_encoder_in_onnx_from_a_local_folder(tmp_path):
    folder = make_cross_encoder(tmp_path / "tiny")
    before = found("dog dog", "cat fish", "a cat", "dog \ud800 cat")
    after = rerank("fish", before, str(folder), strict=True)
    # 100 × .25 for the question; then cat 1.5, dog -.5, fish .25 and 0 for any other word.
    assert [(c.doc_id, c.score) for c in after] == [("b", 26.75), ("c", 26.5), ("d", 26.0), ("a", 24.0)]
    assert load_reranker(str(folder)) is load_reranker(str(folder))


def test_a_score_does_not_depend_on_the_other_texts_and_long_texts_are_cut(tmp_path):
    model = load_reranker(str(make_cross_encoder(tmp_path / "tiny", file="onnx/model.onnx")))
    texts = ["cat", "dog " * 500, "fish cat"]
    together = model("cat", texts)
    assert [float(model("cat", [text])[0]) for text in texts] == list(together)
    # 16 tokens, of which [CLS] cat [SEP] … [SEP] are 4: 12 dogs are left.
    assert list(together) == [151.5, 150 - 12 * 0.5, 151.75]


def test_case_G11_a_model_of_many_columns_or_of_no_numbers(tmp_path):
    before = found("cat", "dog")
    classifier = str(make_cross_encoder(tmp_path / "classifier", columns=3))
    with pytest.raises(ProviderError, match=r"\[1, 3\]"):
        rerank("fish", before, classifier, strict=True)
    assert rerank("fish", before, classifier) == before
    with pytest.raises(ProviderError, match="nan"):
        rerank("fish", found("cat", "nan"), str(make_cross_encoder(tmp_path / "tiny")), strict=True)


def test_a_model_of_fastembeds_list_is_fetched_by_its_description(tmp_path, monkeypatch):
    asked = []

    def fetch(description, cache_dir):
        asked.append((description["model"], cache_dir))
        return make_cross_encoder(tmp_path, file=description["model_file"])

    monkeypatch.setattr(rerank_module, "fetch", fetch)
    model = load_reranker("xenova/MS-marco-MiniLM-L-6-v2", cache_dir=tmp_path)
    assert asked == [("Xenova/ms-marco-MiniLM-L-6-v2", tmp_path)]
    assert list(model("cat", ["fish"])) == [150.25]


@pytest.fixture
def offline_cache(tmp_path, monkeypatch):
    """Return fastembed's cache, which has nothing, on a machine without network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path / "cache"))
    return tmp_path / "cache"


def in_cache(cache, name, revision):
    """Make the cross-encoder as the hub's own download would leave it; return its folder."""
    from fastembed.rerank.cross_encoder import TextCrossEncoder

    (known,) = (one for one in TextCrossEncoder.list_supported_models() if one["model"] == name)
    repository = cache / f"models--{known['sources']['hf'].replace('/', '--')}"
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    (repository / "refs" / "main").write_text(revision)
    return make_cross_encoder(repository / "snapshots" / revision, file=known["model_file"])


@pytest.mark.parametrize("name", ["Xenova/ms-marco-MiniLM-L-6-v2", "BAAI/bge-reranker-base"])
def test_a_model_of_the_list_by_name_from_the_cache_without_network(offline_cache, name):
    in_cache(offline_cache, name, "3bdba2f")
    before = found("dog dog", "cat fish", "a cat")
    after = rerank("fish", before, model=name, strict=True)
    assert [(c.doc_id, c.score, c.score_type) for c in after] == [
        ("b", 26.75, "rerank"),
        ("c", 26.5, "rerank"),
        ("a", 24.0, "rerank"),
    ]
    assert rerank("fish", before, name.lower(), strict=True) == after
    # However many there are, and in whatever order: each has the score that it has alone.
    many = found(*[f"cat {'fish ' * (n % 7)}dog" for n in range(70)])
    alone = {c.doc_id: rerank("fish", [c], name, strict=True)[0].score for c in many}
    assert {c.doc_id: c.score for c in rerank("fish", many[::-1], name, strict=True)} == alone
    assert rerank("fish", many, name) == rerank("fish", many[::-1], name)


def test_a_model_of_the_list_whose_files_are_not_there_or_not_whole(offline_cache):
    name = "Xenova/ms-marco-MiniLM-L-6-v2"
    with pytest.raises(
        ModelUnavailableError, match=r"not in the cache .*cache, .*HF_HUB_OFFLINE.*FASTEMBED_CACHE_PATH"
    ):
        load_reranker(name)
    folder = in_cache(offline_cache, name, "3bdba2f")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelUnavailableError, match=r"'Xenova/ms-marco-MiniLM-L-6-v2' cannot be loaded: .*tokenizer"):
        load_reranker(name)
    in_cache(offline_cache, name, "3bdba2f")
    assert list(load_reranker(name)("cat", ["fish"])) == [150.25]
    # What was loaded from one cache is not taken for another.
    with pytest.raises(ModelUnavailableError, match="other, and the Hugging"):
        load_reranker(name, cache_dir=offline_cache / "other")


def test_a_hub_out_of_reach_leaves_the_order_with_a_notice(offline_cache):
    name = "Xenova/ms-marco-MiniLM-L-6-v2"
    before = found("cat", "dog")
    after = rerank("fish", before, name)
    assert after == before
    assert f"is not in the cache {offline_cache}, and" in after.notices[0]
    assert "FASTEMBED_CACHE_PATH" in after.notices[0]
    with pytest.raises(ModelUnavailableError, match="cross-encoder 'Xenova/ms-marco-MiniLM-L-6-v2'"):
        rerank("fish", before, name, strict=True)


def test_damaged_files_and_unknown_names(tmp_path):
    (make_cross_encoder(tmp_path / "tiny") / "model.onnx").write_bytes(b"no model")
    with pytest.raises(ModelUnavailableError, match="tiny"):
        load_reranker(str(tmp_path / "tiny"))
    with pytest.raises(ModelUnavailableError, match=r"similar names: Xenova/ms-marco-MiniLM-L-6-v2"):
        load_reranker("Xenova/ms-marco-MiniLM-L6", provider="onnx")
    with pytest.raises(InputError, match="provider"):
        load_reranker("x", provider="torch")


def test_without_sentence_transformers_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r"sqlrag-duckdb\[huggingface\]") as caught:
        rerank("fish", found("cat"), "some/cross-encoder")
    assert caught.value.extra == "huggingface"
    with pytest.raises(
        MissingExtraError, match=r"not in fastembed's list; similar names: Xenova/ms-marco-MiniLM-L-6-v2"
    ):
        rerank("fish", found("cat"), "Xenova/ms-marco-MiniLM-L6")


def test_sentence_transformers_gets_the_pairs(monkeypatch, tmp_path):
    class CrossEncoder:
        def __init__(self, name, cache_folder):
            self.made_with = (name, cache_folder)

        def predict(self, pairs, show_progress_bar):
            assert not show_progress_bar
            return np.float32([len(query) * 10 + len(text) for query, text in pairs])

    config = types.SimpleNamespace(architectures=["BertForSequenceClassification"])
    auto = types.SimpleNamespace(from_pretrained=lambda name, cache_dir: config)
    monkeypatch.setitem(sys.modules, "sentence_transformers", types.SimpleNamespace(CrossEncoder=CrossEncoder))
    monkeypatch.setitem(sys.modules, "transformers", types.SimpleNamespace(AutoConfig=auto))
    after = rerank("four", found("x", "xx\ud800"), "some/cross-encoder", strict=True)
    assert [(c.doc_id, c.score) for c in after] == [("b", 43.0), ("a", 41.0)]
    assert load_reranker("x", provider="huggingface", cache_dir=tmp_path)._model.made_with == ("x", str(tmp_path))
    config.architectures = ["BertModel"]
    with pytest.raises(ModelUnavailableError, match="BertModel"):
        load_reranker("y", provider="huggingface")


def test_fault_K7_the_vectors_of_a_store_are_read_there(tmp_path):
    embedder = HashingEmbedder("hashing-64")
    texts = ["the valve is red", "a pump and a motor", "open the red valve"]
    candidates = found(*texts)
    path = tmp_path / "kb.duckdb"
    with Store.create(path, 64, embedder=embedder) as store:
        documents = [Document(one.doc_id, one.content) for one in candidates]
        chunks = [Chunk(one.doc_id, one.chunk_index, one.content) for one in candidates]
        store.upsert(documents, chunks, embed_texts(embedder, texts, kind="document"))
        by_hand = rerank(
            "red valve",
            candidates,
            vectors=store.vectors([c.node_id for c in candidates]),
            query_vector=store.query_vector("red valve"),
        )
        assert rerank("red valve", candidates, store=store) == by_hand
        assert [one.score_type for one in rerank("red valve", candidates, store=store, diversity=0.5)] == ["mmr"] * 3
        assert rerank("red valve", candidates, by_length, store=store, diversity=0.3)[0].score_type == "mmr"
    assert rerank("red valve", candidates, store=path) == by_hand
    given = {"vectors": [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], "query_vector": [0.0, 1.0]}
    assert rerank("red valve", candidates, store=path, **given) == rerank("red valve", candidates, **given)
    with pytest.raises(NotFoundError):
        rerank("red valve", found("other", "than", "those", "there"), store=path)
