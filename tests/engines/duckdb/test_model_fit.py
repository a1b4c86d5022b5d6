"""A model that does not know the language of the texts is told of."""

from __future__ import annotations

import doctest
import random
from functools import partial

import numpy as np
import pytest

import sqlrag
from sqlrag.cli.maintain import describe
from sqlrag.engines.duckdb import model_fit
from tests.support.helpers import write

PAGES = 120

CYRILLIC, LATIN = "абвгдежзиклмнопрстуф", "abcdefghiklmnopqrstu"


def embed(texts):
    """Take Latin texts for different ones, and all others for nearly the same."""
    rows = []
    for text in texts:
        chance = np.random.default_rng(sum(map(ord, text)))
        row = chance.standard_normal(32)
        rows.append(row / np.linalg.norm(row) + np.eye(32)[0] * (0 if text.isascii() else 3))
    return np.array(rows)


def sentence(letters, number):
    """Return words of the letters that hardly two texts share."""
    chance = random.Random(number)
    return " ".join("".join(chance.choices(letters, k=5)) for _ in range(6))


def build(folder, text):
    pages = {f"p{number}_txt": text(number) for number in range(PAGES)}
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


@pytest.mark.slow
def test_texts_that_the_model_does_not_tell_apart(tmp_path):
    path, report = build(tmp_path, partial(sentence, CYRILLIC))
    (note,) = report.warnings
    assert "Searches by meaning may find less" in note
    assert "most of their letters are Cyrillic" in note
    with sqlrag.Store(path) as store:
        assert describe(store)["notices"] == [note]
        store.select("index/sample_chunks", sample=10)
    assert sqlrag.reembed(path, embedder=embed, progress="off").warnings == [note]


def test_texts_that_it_knows_and_too_few_to_tell(tmp_path, monkeypatch):
    assert build(tmp_path / "known", partial(sentence, LATIN))[1].warnings == []
    monkeypatch.setattr(model_fit, "FEWEST", PAGES + 1)
    assert build(tmp_path / "few", partial(sentence, CYRILLIC))[1].warnings == []


def test_texts_of_one_pattern_are_alike_whatever_the_model(tmp_path):
    """As rows of a table are: nothing is said of the model."""
    assert build(tmp_path, lambda number: f"название: рубашка, размер: средний, артикул: {number}")[1].warnings == []


def test_the_sample_is_spread_evenly(tmp_path):
    path, _ = build(tmp_path, lambda number: f"An English text on subject {number}")
    with sqlrag.Store(path) as store:
        assert len(store.select("index/sample_chunks", sample=400)) == PAGES
        texts = [text for _, text in store.select("index/sample_chunks", sample=10)]
        numbers = sorted(int(text.split()[-1]) for text in texts)
    assert len(numbers) == 10
