"""The notice that probably nothing is relevant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from sqlrag import Chunk, Document, Store, Stores, load_embedder
from sqlrag.embedders import embed_texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Every chunk holds "the pump", and each a word of its own; its vector is one of 40 that have a right angle.
TEXTS = [f"the pump of house{chr(97 + i // 6)}{chr(97 + i % 6)} number" for i in range(36)]
VECTORS = np.eye(40)[:36]
FAR = np.eye(40)[39]
STRANGE = "pump galaxies telescopes nebulae"


def fill(store: Store, rows: list[int]) -> None:
    names = [f"{row:02}.md" for row in rows]
    store.upsert(
        [Document(name, TEXTS[row]) for name, row in zip(names, rows, strict=True)],
        [Chunk(name, 0, TEXTS[row]) for name, row in zip(names, rows, strict=True)],
        VECTORS[rows],
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.create(tmp_path_factory.mktemp("relevance") / "kb.duckdb", 40) as made:
        fill(made, list(range(36)))
        yield made


def told(store: Store | Stores, text: str, vector: np.ndarray | None, **options: object) -> list[str]:
    notices = store.hybrid_query(text, query_vector=vector, **options).notices
    return [notice for notice in notices if notice.startswith("Probably nothing relevant")]


def near(cosine: float) -> np.ndarray:
    """Return a question's vector that has this cosine with the first chunk, and 0 with the others."""
    return cosine * VECTORS[0] + np.sqrt(1 - cosine**2) * FAR


def test_it_is_said_where_cosine_and_words_are_both_low(store):
    (notice,) = told(store, STRANGE, near(0.2))
    assert notice == (
        "Probably nothing relevant: the best cosine is 0.20, and the best match by words has 0% of the score that they "
        "could give."
    )
    assert told(store, "galaxies telescopes nebulae", near(0.2)) == [notice]


@pytest.mark.parametrize(
    ("text", "cosine"),
    [
        (STRANGE, 0.33),  # near enough
        ("pump houseab number", 0.2),
        ("galaxies", 0.2),  # a word alone is told as unknown
        ("pump", 0.2),
    ],
)
def test_it_is_not_said_where_one_of_them_speaks_for_it(store, text, cosine):
    assert told(store, text, near(cosine)) == []


@pytest.mark.parametrize("fusion", ["adaptive", "convex", "rrf", "weighted"])
def test_it_is_of_the_question_as_it_was_asked(store, fusion):
    plain = told(store, STRANGE, near(0.3), fusion=fusion)
    assert len(plain) == 1
    # Feedback brings the cosine of the first chunk above the threshold, and expansion the words.
    for more in ({"feedback": 1}, {"expansion": 5}):
        assert told(store, STRANGE, near(0.3), fusion=fusion, **more) == plain


def test_it_is_not_said_of_phrases_and_beginnings(store):
    assert told(store, f'"the pump" {STRANGE}', near(0.2), syntax=True) == []
    assert told(store, f"pum* {STRANGE}", near(0.2), syntax=True) == []
    assert len(told(store, STRANGE, near(0.2), syntax=True)) == 1


def test_one_leg_alone_says_nothing(store):
    for results in (store.vector_query(query_vector=near(0.2)), store.lexical_query(STRANGE)):
        assert not any("Probably" in notice for notice in results.notices)


@pytest.mark.slow
def test_several_files_say_the_same(store, tmp_path: Path):
    paths = [tmp_path / "a.duckdb", tmp_path / "b.duckdb"]
    for part, path in enumerate(paths):
        with Store.create(path, 40) as made:
            fill(made, [row for row in range(36) if row % 2 == part])
    with Stores(paths) as many:
        for cosine in (0.2, 0.33):
            assert told(many, STRANGE, near(cosine)) == told(store, STRANGE, near(cosine))


def test_the_hashing_embedder_leaves_it_to_the_words(tmp_path: Path):
    """Its cosines count words, so that those of a short question and a long text are low in any case."""
    model = load_embedder("hashing-384", provider="hashing")
    with Store.create(tmp_path / "kb.duckdb", 384, embedder=model) as made:
        made.index([Chunk(f"{row:02}.md", 0, text + " and much more" * 9) for row, text in enumerate(TEXTS)])
        vector = embed_texts(model, ["pump houseab"], kind="query")[0]
        assert max(row["vector_score"] for row in made.vector_query(query_vector=vector)) < 0.32
        assert told(made, "pump houseab", None) == []
        assert told(made, STRANGE, None) == [
            "Probably nothing relevant: the best match by words has 0% of the score that they could give."
        ]
