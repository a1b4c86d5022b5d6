"""The registry, the checked batches, identities, prefixes and the hashing provider: no model is loaded here."""

from __future__ import annotations

import doctest
import subprocess
import sys
import threading
import time
import zlib
from dataclasses import replace
from importlib import import_module
from importlib.metadata import EntryPoint

import numpy as np
import pytest

from sqlrag import embedders
from sqlrag.embedders import (
    PROBE_TEXT,
    HashingEmbedder,
    base,
    check_identity,
    embed_texts,
    load_embedder,
    probe,
    provider_names,
)
from sqlrag.embedders.prefixes import prefixes_of
from sqlrag.errors import InputError, MissingExtraError, ModelMismatchError, ProviderError
from sqlrag.types import ModelIdentity


class Recorder:
    """Answers with what ``answer`` makes of a batch, and keeps the batches."""

    provider = "recorder"
    model_name = "test/recorder"
    dimensions = 8
    max_tokens = 100
    special_tokens = 0
    query_prefix = ""
    passage_prefix = ""

    def __init__(self, model_name="test/recorder", *, answer=None, query_prefix="", passage_prefix=""):
        self.model_name = model_name
        self.answer = answer or (lambda texts: [[1.0 + len(text), *[1.0] * 7] for text in texts])
        self.query_prefix, self.passage_prefix = query_prefix, passage_prefix
        self.batches = []

    def embed(self, texts, *, kind):
        self.batches.append((kind, list(texts)))
        return self.answer(texts)

    def token_offsets(self, text):
        return []


@pytest.fixture(autouse=True)
def _empty_cache(monkeypatch):
    monkeypatch.setattr(base, "_loaded", {})


def install(monkeypatch, **points):
    """Let the environment have these entry points, name → "module:attribute"."""
    made = [EntryPoint(name, value, "sqlrag.embedders") for name, value in points.items()]
    monkeypatch.setattr(base, "entry_points", lambda group: made if group == "sqlrag.embedders" else [])


# --- registry


def test_public_names_are_sorted_documented_and_there():
    assert embedders.__all__ == sorted(embedders.__all__, key=lambda name: (not name.isupper(), name))
    assert all(getattr(embedders, name).__doc__ for name in embedders.__all__ if not name.isupper())
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        embedders.nothing  # noqa: B018


def test_import_loads_no_model_runtime():
    code = (
        "import sys, sqlrag.embedders as e; e.load_embedder('hashing-8', provider='hashing');"
        "print([m for m in ('fastembed', 'onnxruntime', 'tokenizers', 'huggingface_hub') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_built_in_names_work_without_being_installed(monkeypatch):
    install(monkeypatch)
    assert provider_names() == ["hashing", "huggingface", "ollama", "onnx", "openai", "openvino"]
    assert load_embedder("hashing-16", provider="hashing").dimensions == 16


def test_a_provider_has_a_default_model_of_its_own():
    assert load_embedder(provider="hashing").model_name == "hashing-384"


def test_a_third_party_provider_comes_from_its_entry_point(monkeypatch):
    install(monkeypatch, mine=f"{__name__}:Recorder")
    embedder = load_embedder("a/b", provider="mine", query_prefix="q: ")
    assert isinstance(embedder, Recorder)
    assert (embedder.model_name, embedder.query_prefix) == ("a/b", "q: ")
    assert "mine" in provider_names()


def test_a_broken_provider_is_named_with_the_cause_and_the_valid_names(monkeypatch):
    install(monkeypatch, broken="no_such_module_of_anyone:Thing")
    with pytest.raises(
        InputError, match=r"'broken' \(no_such_module.*Valid names: auto, broken, hashing, .*, onnx"
    ) as caught:
        load_embedder(provider="broken")
    assert isinstance(caught.value.__cause__, ImportError)


def test_an_unknown_provider_is_refused_with_the_valid_names(monkeypatch):
    install(monkeypatch)
    with pytest.raises(InputError, match=r"no embedding provider 'opnai'. Valid names: auto, hashing, .*, openai"):
        load_embedder(provider="opnai")


@pytest.mark.parametrize(
    ("provider", "module"),
    [
        ("huggingface", "llama_index.embeddings.huggingface"),
        ("openai", "openai"),
        ("openvino", "openvino"),
        ("ollama", "ollama"),
    ],
)
def test_a_provider_whose_extra_is_missing_says_how_to_install_it(monkeypatch, provider, module):
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    with pytest.raises(MissingExtraError, match=rf"pip install 'sqlrag-duckdb\[{provider}\]'$") as caught:
        load_embedder("some-model", provider=provider)
    assert isinstance(caught.value.__cause__, ImportError)


def test_an_option_that_the_provider_does_not_take_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"'hashing'.*cache_dir"):
        load_embedder(provider="hashing", cache_dir=tmp_path)


def test_auto_never_takes_the_hashing_provider(monkeypatch):
    asked = []
    monkeypatch.setattr(base, "_create", lambda name, model, options: asked.append(name) or HashingEmbedder())
    load_embedder()
    load_embedder("hashing-384")
    assert asked == ["onnx", "onnx"]


def test_equal_arguments_give_the_same_object_and_others_do_not():
    first = load_embedder("hashing-8", provider="hashing")
    assert load_embedder("hashing-8", provider="hashing") is first
    assert load_embedder("hashing-8", provider="hashing", query_prefix="q") is not first


def test_threads_load_a_model_once(monkeypatch):
    made = []

    def slow(model_name):
        time.sleep(0.05)  # long enough for all threads to have asked
        made.append(model_name)
        return HashingEmbedder()

    monkeypatch.setattr(base, "_factory", lambda name: slow)
    got = []
    threads = [threading.Thread(target=lambda: got.append(load_embedder("m", provider="x"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == ["m"]
    assert len(got) == 4
    assert len(set(map(id, got))) == 1


def test_a_loaded_model_is_given_while_another_one_loads(monkeypatch):
    ready = load_embedder("hashing-8", provider="hashing")
    loading, go_on = threading.Event(), threading.Event()

    def slow(model_name):
        loading.set()
        assert go_on.wait(10)
        return HashingEmbedder()

    monkeypatch.setattr(base, "_factory", lambda name: slow)
    thread = threading.Thread(target=load_embedder, args=("m",), kwargs={"provider": "slow"})
    thread.start()
    assert loading.wait(10)
    got = []
    asking = threading.Thread(target=lambda: got.append(load_embedder("hashing-8", provider="hashing")))
    asking.start()
    asking.join(5)
    assert got == [ready]
    go_on.set()
    thread.join()


def test_a_failed_load_is_tried_again(monkeypatch):
    answers = [InputError("first"), HashingEmbedder()]

    def create(name, model, options):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(base, "_create", create)
    with pytest.raises(InputError, match="first"):
        load_embedder("m")
    assert load_embedder("m").model_name == "hashing-384"


# --- batches


def test_vectors_come_in_the_order_of_the_texts_whatever_the_batches():
    texts = ["ccc", "a", "dddd", "bb", "a"]
    for batch_size in (1, 2, 100):
        embedder = Recorder()
        vectors = embed_texts(embedder, texts, kind="document", batch_size=batch_size)
        # the first value before scaling is 1 + length, the others are 1
        assert np.allclose(vectors[:, 0] / vectors[:, 1], [4, 2, 5, 3, 2])
    assert embedder.batches == [("document", ["a", "a", "bb", "ccc", "dddd"])]


def test_batches_hold_texts_of_like_length():
    embedder = Recorder()
    embed_texts(embedder, ["ccc", "a", "dddd", "bb"], kind="query", batch_size=2)
    assert embedder.batches == [("query", ["a", "bb"]), ("query", ["ccc", "dddd"])]


def test_progress_counts_texts():
    counts = []
    embed_texts(Recorder(), list("abcde"), kind="document", batch_size=2, progress=counts.append)
    assert counts == [2, 2, 1]


def test_no_texts_give_an_empty_matrix_and_no_call():
    embedder = Recorder()
    vectors = embed_texts(embedder, [], kind="document")
    assert (vectors.shape, vectors.dtype) == ((0, 8), np.float32)
    assert embedder.batches == []


@pytest.mark.parametrize("blank", ["", "  \n\t", "\u2003"])
def test_blank_texts_are_never_sent(blank):
    embedder = Recorder()
    with pytest.raises(InputError, match="position 2 is blank"):
        embed_texts(embedder, ["a", "b", blank], kind="document")
    assert embedder.batches == []


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ("one string", {}, "list of strings"),
        (["a", None], {}, "position 1 is a NoneType"),
        (["a"], {"batch_size": 0}, "batch_size must be 1 or more, not 0"),
        (["a"], {"kind": "passage"}, "not 'passage'"),
    ],
)
def test_wrong_arguments_are_refused(texts, options, message):
    with pytest.raises(InputError, match=message):
        embed_texts(Recorder(), texts, **{"kind": "document", **options})


def test_lone_surrogates_are_replaced():
    embedder = Recorder()
    embed_texts(embedder, ["x \ud835 y"], kind="document")
    assert embedder.batches[0][1] == ["x \ufffd y"]


def _bad_at(position, value):
    """Answer eight ones for each text, and ``value`` for the text that is its position as a word."""
    return lambda texts: [value if text.endswith(f"n{position}") else [1.0] * 8 for text in texts]


# Longer texts come first, so that the position in a batch is not the position in the caller's list.
TEXTS = [f"{'long ' * (9 - n)}n{n}" for n in range(10)]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "expected a vector of 8 values, got 0 values"),
        ([1.0] * 5, "expected a vector of 8 values, got 5 values"),
        ([[1.0] * 8], r"expected a vector of 8 values, got an array of shape \(1, 8\)"),
        ([0.0] * 8, "got a vector of zeros"),
    ],
)
def test_case_C3_a_wrong_vector_is_rejected_with_the_position_in_the_callers_list(value, message):
    embedder = Recorder(answer=_bad_at(3, value))
    with pytest.raises(ProviderError, match=rf"'test/recorder'.*{message} for the text at position 3"):
        embed_texts(embedder, TEXTS, kind="document", batch_size=4)


@pytest.mark.parametrize("answer", [lambda texts: [[1.0] * 8] * 3, lambda texts: np.ones((3, 8))])
def test_case_C3_a_wrong_count_is_rejected_with_the_positions(answer):
    with pytest.raises(ProviderError, match=r"'test/recorder'.*expected 4 vectors, got 3;.*\[9, 8, 7, 6\]"):
        embed_texts(Recorder(answer=answer), TEXTS, kind="document", batch_size=4)


def test_case_C3_no_answer_is_rejected():
    with pytest.raises(ProviderError, match="expected 1 vectors, got nothing"):
        embed_texts(Recorder(answer=lambda texts: None), ["a"], kind="document")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_case_F2_a_value_that_is_not_finite_is_rejected(value):
    embedder = Recorder(answer=_bad_at(2, [1.0, 1.0, value, *[1.0] * 5]))
    with pytest.raises(ProviderError, match="expected finite values, got NaN or infinity for the text at position 2"):
        embed_texts(embedder, TEXTS, kind="document")


def test_a_providers_own_exception_is_wrapped_with_the_positions():
    def fail(texts):
        raise ConnectionError("connection refused")

    with pytest.raises(ProviderError, match=r"'test/recorder'.*\[0\]: connection refused") as caught:
        embed_texts(Recorder(answer=fail), ["a"], kind="document")
    assert isinstance(caught.value.__cause__, ConnectionError)


@pytest.mark.parametrize("norm", [10.0, 1e-30, 1e200])
def test_case_C8_vectors_are_scaled_to_unit_length(norm):
    direction = np.array([3.0, 4.0, 0, 0, 0, 0, 0, 0])
    vectors = embed_texts(Recorder(answer=lambda texts: [direction / 5 * norm for _ in texts]), ["a"], kind="document")
    # 3-4-5 triangle
    assert vectors[0].tolist() == pytest.approx([0.6, 0.8, 0, 0, 0, 0, 0, 0], abs=1e-7)


@pytest.mark.parametrize(
    ("model_name", "query", "passage"),
    [
        ("BAAI/bge-small-en-v1.5", "Represent this sentence for searching relevant passages: ", ""),
        ("intfloat/multilingual-e5-large", "query: ", "passage: "),
        ("nomic-ai/nomic-embed-text-v1.5", "search_query: ", "search_document: "),
        ("sentence-transformers/all-MiniLM-L6-v2", "", ""),
    ],
)
def test_case_C7_prefixes_are_those_of_the_models_card_and_stand_once(model_name, query, passage):
    query_prefix, passage_prefix = prefixes_of(model_name)
    embedder = Recorder(query_prefix=query_prefix, passage_prefix=passage_prefix)
    embed_texts(embedder, ["ducks"], kind="document")
    embed_texts(embedder, ["ducks"], kind="query")
    assert embedder.batches == [("document", [passage + "ducks"]), ("query", [query + "ducks"])]


# --- identity


def test_an_identity_holds_what_the_embedder_states_and_the_probes_vector():
    identity = probe(HashingEmbedder("hashing-32", passage_prefix="p "))
    assert (identity.provider, identity.model_name, identity.dimensions) == ("hashing", "hashing-32", 32)
    assert (identity.query_prefix, identity.passage_prefix) == ("", "p ")
    expected = HashingEmbedder("hashing-32").embed(["p " + PROBE_TEXT], kind="document")[0]
    assert identity.fingerprint == pytest.approx(expected.tolist(), abs=1e-7)


def test_the_same_model_from_another_provider_passes():
    embedder = HashingEmbedder("hashing-32")
    check_identity(embedder, replace(probe(embedder), provider="another", model_name="org/Another-Name"))


def test_case_F3_other_dimensions_name_both_models_and_the_way_out():
    identity = probe(HashingEmbedder("hashing-8"))
    with pytest.raises(
        ModelMismatchError, match=r"'hashing-8' \(hashing, 8 dim.*'hashing-16' \(hashing, 16 dim.*reembed"
    ):
        check_identity(HashingEmbedder("hashing-16"), identity)


def test_another_model_of_equal_dimensions_is_found_by_its_vectors():
    identity = probe(HashingEmbedder("hashing-8"))
    # the same vector turned by one place: same name, same dimensions, other meaning
    turned = Recorder(
        "hashing-8", answer=lambda texts: np.roll(HashingEmbedder("hashing-8").embed(texts, kind="query"), 1, 1)
    )
    with pytest.raises(ModelMismatchError, match=r"cosine 0\.\d+ for the probe text.*reembed"):
        check_identity(turned, identity)


def test_the_limit_of_the_cosine_is_099():
    first = np.zeros(8)
    first[0] = 1
    identity = ModelIdentity("p", "m", 8, fingerprint=tuple(first.tolist()))
    for cosine, passes in ((0.991, True), (0.989, False)):
        other = [cosine, np.sqrt(1 - cosine**2), 0, 0, 0, 0, 0, 0]
        embedder = Recorder(answer=lambda texts, other=other: [other] * len(texts))
        if passes:
            check_identity(embedder, identity)
        else:
            with pytest.raises(ModelMismatchError):
                check_identity(embedder, identity)


@pytest.mark.parametrize("prefix", ["query_prefix", "passage_prefix"])
def test_case_C7_another_prefix_is_a_mismatch(prefix):
    identity = probe(HashingEmbedder("hashing-32"))
    with pytest.raises(ModelMismatchError, match=f"whose {prefix} is 'x: ' and not ''"):
        check_identity(HashingEmbedder("hashing-32", **{prefix: "x: "}), identity)


def test_without_a_fingerprint_the_names_count_and_without_a_name_the_dimensions():
    embedder = HashingEmbedder("hashing-8")
    check_identity(embedder, ModelIdentity("given", "Org/Hashing-8", 8))
    check_identity(embedder, ModelIdentity("given", "", 8))
    with pytest.raises(ModelMismatchError, match="'all-MiniLM'"):
        check_identity(embedder, ModelIdentity("given", "all-MiniLM", 8))
    with pytest.raises(ModelMismatchError, match="384 dimensions"):
        check_identity(embedder, ModelIdentity("given", "", 384))


# --- hashing


def test_hashing_follows_its_formula():
    expected = np.zeros(1000)
    for word, count in (("duck", 2), ("überblick", 1), ("東京", 1), ("x_1", 1)):
        expected[zlib.crc32(word.encode()) % 1000] += count
    vector = HashingEmbedder("hashing-1000").embed(["Duck, DUCK! Überblick 東京 x_1"], kind="query")[0]
    assert vector.tolist() == pytest.approx((expected / np.sqrt(7)).tolist(), abs=1e-7)  # 2² + 1 + 1 + 1 = 7


@pytest.mark.parametrize("text", ["!!!", "—", "\ud835", "🦆"])
def test_hashing_gives_a_text_without_words_a_direction(text):
    assert np.linalg.norm(HashingEmbedder().embed([text], kind="document")) == pytest.approx(1)


def test_hashing_tokens_are_words_and_runs_of_signs():
    text = "Ducks swim -- don't\n"
    spans = HashingEmbedder().token_offsets(text)
    assert [text[start:end] for start, end in spans] == ["Ducks", "swim", "--", "don", "'", "t"]


@pytest.mark.parametrize("name", ["hashing", "hashing-0", "hashing--1", "hashing-1e3", "hashing-100000", "MiniLM"])
def test_hashing_refuses_other_names(name):
    with pytest.raises(InputError, match="hashing-384"):
        HashingEmbedder(name)


def test_embedding_from_threads_equals_embedding_in_turn():
    embedder = HashingEmbedder("hashing-64")
    texts = [f"duck number {n} of {n % 7}" for n in range(200)]
    expected = embed_texts(embedder, texts, kind="document")
    got = {}
    threads = [
        threading.Thread(
            target=lambda n=n: got.update({n: embed_texts(embedder, texts, kind="document", batch_size=n)})
        )
        for n in range(1, 5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 4
    assert all(np.array_equal(vectors, expected) for vectors in got.values())


@pytest.mark.parametrize("module", ["base", "hashing", "prefixes"])
def test_the_examples_in_the_docstrings_are_true(module):
    result = doctest.testmod(import_module(f"sqlrag.embedders.{module}"))
    assert result.attempted > 0
    assert result.failed == 0
