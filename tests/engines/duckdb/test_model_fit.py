"""A model that does not know the language of the texts is told of."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

import sqlrag
from sqlrag.cli.maintain import describe
from sqlrag.engines.duckdb import model_fit
from tests.support.helpers import write

PAGES = 60


def embed(texts):
    """Take Latin texts for different ones, and all others for nearly the same."""
    rows = []
    for text in texts:
        chance = np.random.default_rng(sum(map(ord, text)))
        row = chance.standard_normal(32)
        rows.append(row / np.linalg.norm(row) + np.eye(32)[0] * (0 if text.isascii() else 3))
    return np.array(rows)


def build(folder, text):
    pages = {f"p{number}_txt": f"{text} {number}" for number in range(PAGES)}
    path = folder / "kb.duckdb"
    index = sqlrag.prepare_embeddings(write(folder / "docs", **pages), path, embedder=embed, progress="off")
    return path, index.report


def test_the_examples_of_the_docstrings_hold():
    assert doctest.testmod(model_fit).failed == 0


def test_the_mean_cosine_is_that_of_all_pairs():
    rows = np.random.default_rng(1).standard_normal((9, 5)) + 1
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = (unit @ unit.T)[~np.eye(9, dtype=bool)]
    assert model_fit.mean_cosine(unit) == pytest.approx(cosines.mean(), abs=1e-12)


def test_texts_that_the_model_does_not_tell_apart(tmp_path):
    path, report = build(tmp_path, "Русский текст о предмете")
    (note,) = report.warnings
    assert "hardly tells these texts apart" in note
    assert "most of their letters are Cyrillic" in note
    with sqlrag.Store(path) as store:
        assert describe(store)["notices"] == [note]
        store.select("index/sample_chunks", sample=10)
    assert sqlrag.reembed(path, embedder=embed, progress="off").warnings == [note]


def test_texts_that_it_knows_and_too_few_to_tell(tmp_path, monkeypatch):
    assert build(tmp_path / "known", "An English text on subject")[1].warnings == []
    monkeypatch.setattr(model_fit, "FEWEST", PAGES + 1)
    assert build(tmp_path / "few", "Русский текст о предмете")[1].warnings == []


def test_the_sample_is_spread_evenly(tmp_path):
    path, _ = build(tmp_path, "An English text on subject")
    with sqlrag.Store(path) as store:
        assert len(store.select("index/sample_chunks", sample=400)) == PAGES
        texts = [text for _, text in store.select("index/sample_chunks", sample=10)]
        numbers = sorted(int(text.split()[-1]) for text in texts)
    assert len(numbers) == 10
