"""A word of the question that no chunk holds is told of, with those that are near it; the question stays as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from sqlrag.search.store import Store
from sqlrag.search.stores import Stores
from sqlrag.types import Chunk, Document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEXTS = {
    "windows.txt": "Window functions partition the rows. Aggregates over a partition keep the rows.",
    "closing.txt": "The connection closes. Losing it is no fault. Руководители отвечают за книги.",
    "thai.txt": "ประเทศไทยมีเมืองหลวง read_csv",
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("unknown")
    for number, (name, text) in enumerate(TEXTS.items()):
        with Store.create(folder / f"{number}.duckdb", 8) as made:
            made.upsert([Document(name, text)], [Chunk(name, 0, text)], np.ones((1, 8)))
    with Store.create(folder / "all.duckdb", 8) as made:
        chunks = [Chunk(name, 0, text) for name, text in TEXTS.items()]
        made.upsert([Document(*page) for page in TEXTS.items()], chunks, np.ones((len(TEXTS), 8)))
    return sorted(folder.glob("*.duckdb"))


@pytest.fixture(scope="module")
def store(paths: list[Path]) -> Iterator[Store]:
    with Store(paths[-1]) as opened:
        yield opened


def near(word: str, other: str) -> str:
    return f'No chunk holds "{word}". The nearest words are "{other}".'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("question", "notices"),
    [
        ("window partition", []),
        ("windows partitioned", []),  # other forms of words that are there
        ("partiton windwo", [near("partiton", "partition"), near("windwo", "window")]),
        ("losting rows", [near("losting", "losing")]),
        ("rows xyzzyplugh 2031", ['No chunk holds "xyzzyplugh", "2031".']),
        ("the rows of it", []),
        ("руководитили", [near("руководитили", "руководители")]),
        ("ประเทศลาว rows", []),
        ("read_cvs rows", ['No chunk holds "cvs".']),
    ],
)
def test_words_that_no_chunk_holds(store: Store, question: str, notices: list[str]) -> None:
    found = store.lexical_query(question)
    assert [told for told in found.notices if told != "No chunk holds any of the words."] == notices
    assert found.notices == store.lexical_query(question).notices


def test_fault_K10_a_hybrid_search_says_that_no_word_was_found(store: Store) -> None:
    found = store.hybrid_query("zzzqqq xyzzy plugh", query_vector=np.ones(8))
    assert found.notices == ["No chunk holds any of the words; the order is by the vectors."]
    assert store.vector_query("zzzqqq", query_vector=np.ones(8)).notices == []


def test_several_files_tell_as_one(paths: list[Path], store: Store) -> None:
    with Stores(paths[:-1]) as stores:
        for question in ("partiton windwo", "losting rows", "rows xyzzyplugh"):
            assert stores.lexical_query(question).notices == store.lexical_query(question).notices
