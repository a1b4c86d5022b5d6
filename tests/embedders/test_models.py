"""``sqlrag.models()`` and ``sqlrag models``: what can be used here, why the rest cannot, what needs no network."""

from __future__ import annotations

import csv
import io
import json
from importlib.metadata import EntryPoint

import pytest
from typer.testing import CliRunner

import sqlrag
from sqlrag.cli import app
from sqlrag.embedders import HashingEmbedder, base, weights
from sqlrag.errors import MissingExtraError
from tests.support.helpers import MINILM, python

BGE = "BAAI/bge-small-en-v1.5"


class Ready(HashingEmbedder):
    @classmethod
    def obstacle(cls):
        return None

    @classmethod
    def ready_models(cls):
        return ["one", "two"]


class Down(Ready):
    @classmethod
    def obstacle(cls):
        return "No server answers at http://127.0.0.1:1. Start it with: serve"


class Bare:
    """A provider that says nothing of itself."""


class Raises(Ready):
    @classmethod
    def obstacle(cls):
        raise MissingExtraError("The provider 'raises'", "raises")


@pytest.fixture
def providers(monkeypatch, tmp_path):
    """Entry points of others beside the built-in providers, and an empty cache."""
    points = {kind.__name__.lower(): f"{__name__}:{kind.__name__}" for kind in (Ready, Down, Bare, Raises)}
    points["gone"] = "no_such_module_of_anyone:Thing"
    made = [EntryPoint(name, value, "sqlrag.embedders") for name, value in points.items()]
    monkeypatch.setattr(base, "entry_points", lambda group: made)
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path / "cache"))


def run(*arguments):
    return CliRunner().invoke(app, ["models", *arguments])


def test_every_provider_is_listed_with_the_reason_why_it_cannot_be_used(providers):
    found = {provider.name: provider for provider in sqlrag.models().providers}
    assert list(found) == sorted(base.provider_names())
    assert {"hashing", "onnx", "ready", "down", "bare", "raises", "gone"} <= set(found)
    for name in ("hashing", "onnx", "ready", "bare"):
        assert (found[name].usable, found[name].reason) == (True, "")
    for name, words in {
        "down": "Start it with: serve",
        "raises": "pip install 'sqlrag-duckdb[raises]'",
        "gone": "no_such_module_of_anyone",
    }.items():
        assert not found[name].usable
        assert words in found[name].reason


def test_models_that_need_no_network_are_those_of_usable_providers(providers):
    ready = {
        name: [m.model_name for m in sqlrag.models().ready if m.provider == name] for name in base.provider_names()
    }
    assert ready["ready"] == ["one", "two"]
    assert ready["down"] == ready["raises"] == ready["gone"] == ready["bare"] == []
    assert ready["hashing"] == ["hashing-384"]
    assert ready["onnx"] == ([MINILM] if weights.bundle_is_installed() else [])


def test_the_cache_is_looked_at_and_only_whole_models_count(providers, tmp_path):
    # the layout of a Hugging Face cache; without refs/main the latest snapshot counts
    snapshot = tmp_path / "cache" / "models--Qdrant--bge-small-en-v1.5-onnx-Q" / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "tokenizer.json").write_text("{}")
    assert BGE not in weights.cached_models()
    (snapshot / "model_optimized.onnx").write_bytes(b"weights")
    assert weights.cached_models() == [BGE]
    assert ("onnx", BGE) in sqlrag.models().ready


@pytest.mark.slow
def test_no_model_runtime_is_loaded(tmp_path):
    python(
        "import sys, sqlrag\n"
        "assert sqlrag.models().providers\n"
        "heavy = {'onnxruntime', 'fastembed', 'torch', 'duckdb'} & set(sys.modules)\n"
        "assert not heavy, heavy",
        FASTEMBED_CACHE_PATH=str(tmp_path),
    )


def test_the_command_says_the_same_in_each_form(providers):
    found = sqlrag.models()
    table = run()
    assert table.exit_code == 0
    assert table.stderr == ""
    for provider in found.providers:
        [line] = [
            line for line in table.stdout.splitlines() if line.split()[:1] == [provider.name] and "usable" in line
        ]
        assert line.endswith("  usable" if provider.usable else f"not usable: {provider.reason}")
    for model in found.ready:
        assert [model.provider, model.model_name] in [line.split() for line in table.stdout.splitlines()]

    as_json = json.loads(run("--format", "json").stdout)
    assert as_json == {
        "providers": [provider._asdict() for provider in found.providers],
        "ready": [model._asdict() for model in found.ready],
    }
    rows = list(csv.DictReader(io.StringIO(run("--format", "csv").stdout)))
    assert [row["ready_model"] for row in rows if row["ready_model"]] == [model.model_name for model in found.ready]
    assert {row["name"] for row in rows} == {provider.name for provider in found.providers}
