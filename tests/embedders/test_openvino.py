"""The openvino provider on real weights, beside the onnx provider; ``.ci/run`` makes an environment for it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from sqlrag import Store, load_embedder, prepare_embeddings, update_embeddings
from sqlrag.embedders import OnnxEmbedder, OpenVinoEmbedder, check_identity, embed_texts, probe, weights
from sqlrag.embedders.base import models
from sqlrag.errors import InputError, ModelUnavailableError
from tests.support.handbook import paragraphs
from tests.support.helpers import DATA, MINILM, embedded_by_threads, python

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(
        importlib.util.find_spec("openvino") is None or not weights.bundle_is_installed(),
        reason="needs the extras [openvino,offline], as in the environment that .ci/run makes",
    ),
]

TEXTS = paragraphs("concepts.md", "faq.md", "guides/filters.md")
# Measured: 0.9999 with bfloat16; 0.9995 without, where eight bits are multiplied.
ENOUGH = 0.999


@pytest.fixture(scope="module")
def model():
    return OpenVinoEmbedder(MINILM)


@pytest.fixture(scope="module")
def onnx():
    return OnnxEmbedder(MINILM)


def cosines(texts, *embedders):
    one, other = (embed_texts(embedder, texts, kind="document") for embedder in embedders)
    return np.sum(one * other, axis=1)


def test_vectors_are_those_of_the_onnx_provider(model, onnx):
    texts = [*TEXTS, "x", "many words " * 300]  # the last is beyond the window of 256 tokens
    assert cosines(texts, model, onnx).min() >= ENOUGH
    assert model.provider == "openvino"
    for name in ("model_name", "dimensions", "max_tokens", "special_tokens", "query_prefix", "passage_prefix"):
        assert getattr(model, name) == getattr(onnx, name)
    assert model.token_offsets(TEXTS[0]) == onnx.token_offsets(TEXTS[0])
    check_identity(model, probe(onnx))
    check_identity(onnx, probe(model))


@pytest.mark.parametrize("language", ["en", "de", "ru", "zh"])
def test_vectors_are_those_of_the_onnx_provider_in_other_languages(model, onnx, language):
    file = DATA / f"xquad_{language}" / "corpus.jsonl"
    if not file.is_file():
        pytest.skip(f"needs ../shared/data/xquad_{language}")
    texts = [json.loads(line)["text"] for line in file.read_text("utf-8").splitlines()[:24]]
    assert cosines(texts, model, onnx).min() >= ENOUGH


def test_a_vector_does_not_depend_on_its_neighbours_or_threads(model):
    texts = [f"{'word ' * (n % 40)}number {n}" for n in range(60)] + ["word " * 400, "a"]
    together = embed_texts(model, texts, kind="document")
    for position in (0, 1, 7, 39, 40, 60, 61):  # the first has 4 tokens
        assert np.array_equal(embed_texts(model, [texts[position]], kind="document")[0], together[position])
    assert np.array_equal(embed_texts(model, texts[::-1], kind="document", batch_size=5)[::-1], together)
    assert np.array_equal(embed_texts(OpenVinoEmbedder(MINILM, threads=1), texts, kind="document"), together)
    got = embedded_by_threads(model, texts, 4)  # more than the model has streams
    assert len(got) == 4
    assert all(np.array_equal(vectors, together) for vectors in got)


def test_a_processor_without_bfloat16_computes_with_32_bits(model, onnx, monkeypatch):
    import openvino

    class Older(openvino.Core):
        def get_property(self, *names):
            found = super().get_property(*names)
            return [one for one in found if one != "BF16"] if names[-1] == "OPTIMIZATION_CAPABILITIES" else found

    monkeypatch.setattr(openvino, "Core", Older)
    older = OpenVinoEmbedder(MINILM)
    assert cosines(TEXTS[:40], older, onnx).min() >= ENOUGH
    together = embed_texts(older, TEXTS[:40], kind="document")
    assert np.array_equal(embed_texts(older, TEXTS[7:8], kind="document")[0], together[7])
    check_identity(older, probe(model))


@pytest.mark.parametrize(("first", "second"), [("onnx", "openvino"), ("openvino", "onnx")])
def test_a_file_of_one_provider_is_searched_and_updated_with_the_other(tmp_path, first, second):
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.md").write_text("# Ducks\n\nDucks swim on the pond.", "utf-8")
    (folder / "b.md").write_text("# Trains\n\nThe night train leaves at ten.", "utf-8")
    built = prepare_embeddings(
        folder, tmp_path / "kb.duckdb", chunk_size=100, embedding_provider=first, embed_model_name=MINILM,
        progress="off",
    )  # fmt: skip
    (folder / "c.md").write_text("# Bread\n\nA loaf is baked for an hour.", "utf-8")
    other = load_embedder(MINILM, provider=second)
    report = update_embeddings(folder, built.path, embedder=other, progress="off")
    assert (report.failures, report.added) == ([], ["c.md"])
    answers = []
    for options in ({}, {"embedder": other}):
        with Store(built.path, **options) as store:
            assert store.check() == []
            assert store.get_embedding_metadata()["embedding"]["provider"] == first
            answers.append([store.vector_query(text, top_k=1)[0]["doc_id"] for text in ("bird", "railway", "baker")])
    assert answers == [["a.md", "b.md", "c.md"]] * 2


def test_a_model_of_fastembeds_list_runs_on_openvino(tmp_path, model, onnx):
    (tmp_path / "model.onnx").symlink_to(weights._locate(*weights._MODEL[:2]))
    onnx._whole_text_tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text('{"pad_token_id": 0}', "utf-8")
    tokens = {"model_max_length": 256, "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokens), "utf-8")
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"pad_token": "[PAD]"}), "utf-8")
    listed, folder = (OpenVinoEmbedder(MINILM, model_path=tmp_path), OpenVinoEmbedder("mine", model_path=tmp_path))
    for embedder in (listed, folder):
        assert cosines(["ducks swim", "a"], embedder, model).min() > 0.999999
    assert not np.array_equal(*(embed_texts(one, TEXTS[:9], kind="document") for one in (listed, onnx)))


def test_it_is_listed_with_the_models_that_need_no_network():
    found = models()
    assert next(one for one in found.providers if one.name == "openvino").usable
    assert ("openvino", MINILM) in found.ready


def test_what_cannot_run_is_refused(tmp_path, onnx):
    with pytest.raises(InputError, match="threads must be 1 or more"):
        load_embedder(MINILM, provider="openvino", threads=0)
    with pytest.raises(ModelUnavailableError, match="'nobody/nothing'"):
        load_embedder("nobody/nothing", provider="openvino")
    onnx._whole_text_tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "model.onnx").write_bytes(b"no model")
    with pytest.raises(ModelUnavailableError, match="cannot be used") as caught:
        load_embedder(str(tmp_path), provider="openvino")
    assert caught.value.__cause__ is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
def test_a_fork_is_told_that_its_parent_had_used_openvino():
    code = f"""
import os, warnings
warnings.simplefilter("ignore")  # of threads beside a fork
from sqlrag import load_embedder
from sqlrag.errors import ModelUnavailableError
model = load_embedder({MINILM!r}, provider="openvino")
if not (child := os.fork()):
    for use in (lambda: model.embed(["a"], kind="query"), lambda: type(model)({MINILM!r})):
        try:
            use()
        except ModelUnavailableError as error:
            print("OpenVINO was used before this process was forked" in str(error), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(model.embed(["a"], kind="query").shape)
"""
    assert python(code) == "True\nTrue\n(1, 384)\n"


def test_openvino_sends_nothing_home(tmp_path):
    """Its package reports every import, and writes an id below the home folder."""
    code = f"""
import sys
asked = []
sys.addaudithook(lambda event, values: asked.append((event, values)) if event.startswith("socket.") else None)
from sqlrag import load_embedder
load_embedder({MINILM!r}, provider="openvino").embed(["a"], kind="query")
assert "openvino" in sys.modules
print([values for event, values in asked if event in ("socket.connect", "socket.getaddrinfo")])
"""
    # In CI its telemetry is off by itself.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CI")} | {
        "HOME": str(tmp_path)
    }
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[]"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []
