"""What several test modules share: folders, files, hashing stores, an embedder that records, MiniLM's marks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from sqlrag import prepare_embeddings
from sqlrag.embedders import HashingEmbedder, embed_texts, weights

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
DATA = ROOT.parent / "shared" / "data"  # larger collections, where they are there
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
HASHING = {"embedding_provider": "hashing", "embed_model_name": "hashing-64", "progress": "off"}

real_model = [
    pytest.mark.model,
    pytest.mark.skipif(not weights.bundle_is_installed(), reason="needs the [offline] extra"),
]


def write(root, **files):
    """Write files into a folder; ``__`` in a name stands for ``/`` and the last ``_`` for the dot."""
    for name, content in files.items():
        head, _, suffix = name.replace("__", "/").rpartition("_")
        path = root / f"{head}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return root


def build(tmp_path, name="kb.duckdb", *, folder="docs", options=None, **files):
    """Write the files and prepare them with the hashing embedder; return the path of the store."""
    root = write(tmp_path / folder, **files)
    return prepare_embeddings(root, tmp_path / name, **{**HASHING, **(options or {})}).path


def pdf(*pages):
    """Return a PDF of pages with a text each; an empty text leaves its page blank."""
    from fpdf import FPDF

    file = FPDF()
    file.set_font("helvetica")
    for text in pages:
        file.add_page()
        if text:
            file.multi_cell(0, text=text)
    return bytes(file.output())


def left_behind(folder):
    """Return the names of what a build was writing and did not remove."""
    return sorted(path.name for path in folder.iterdir() if "building" in path.name)


def ids(results):
    return [row["node_id"] for row in results]


def python(code, *arguments, cwd=None, **environment):
    """Run code in another process from the checkout; return what it printed."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=env, cwd=cwd, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def embedded_by_threads(model, texts, count):
    """Embed texts as questions in so many threads at once; return what each got."""
    got = []
    threads = [
        threading.Thread(target=lambda: got.append(embed_texts(model, texts, kind="query"))) for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got


class Recorder(HashingEmbedder):
    """The hashing embedder, which keeps every text and fails where ``fails(text)`` says so."""

    def __init__(self, dimensions=64, *, fails=lambda text: False, max_tokens=1_000_000, **prefixes):
        super().__init__(f"hashing-{dimensions}", **prefixes)
        self.fails = fails
        self.max_tokens = max_tokens
        self.texts = []

    def embed(self, texts, *, kind):
        self.texts += texts
        if any(self.fails(text) for text in texts):
            raise ValueError("the model refuses it")
        return super().embed(texts, kind=kind)


class NotANumber(HashingEmbedder):
    """Gives NaN for texts with the word poison."""

    def __init__(self):
        super().__init__("hashing-64")

    def embed(self, texts, *, kind):
        vectors = super().embed(texts, kind=kind)
        vectors[["poison" in text for text in texts], 2] = np.nan
        return vectors


def timeless(results):
    """Return results without when their documents were stored: in another file that is another time."""
    return [{**row, "created_at": ""} for row in results]
