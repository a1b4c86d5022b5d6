"""Filters that keep few or most of many chunks: each leg gives as many rows as there are, the right ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from sqlrag import Chunk, Document, Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

COUNT = 20_000
SHARES = {"thousandth": 1000, "hundredth": 100, "tenth": 10}  # one chunk in so many has the tag


@pytest.fixture(scope="module")
def vectors() -> NDArray[np.float32]:
    found = np.random.default_rng(3).normal(size=(COUNT, 64)).astype(np.float32)
    unit: NDArray[np.float32] = found / np.linalg.norm(found, axis=1, keepdims=True)
    return unit


@pytest.fixture(scope="module")
def store(vectors: NDArray[np.float32], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path = tmp_path_factory.mktemp("scale") / "kb.duckdb"
    documents = [Document(f"{i:05d}.txt", f"word{i % 7} word{i % 11} all") for i in range(COUNT)]
    chunks = [Chunk(d.doc_id, 0, d.text, tags=tags(i)) for i, d in enumerate(documents)]
    with Store.create(path, 64) as made:
        made.upsert(documents, chunks, vectors)
    with Store(path) as opened:
        yield opened


def tags(number: int) -> tuple[str, ...]:
    return (*(name for name, every in SHARES.items() if number % every == 0), *(["most"] if number % 10 else []))


@pytest.mark.rest
@pytest.mark.parametrize("tag", [*SHARES, "most"])
def test_a_filter_leaves_all_that_match(store: Store, vectors: NDArray[np.float32], tag: str) -> None:
    keep = np.array([i for i in range(COUNT) if tag in tags(i)])
    chance = np.random.default_rng(4)
    right = []
    for _ in range(12):
        query = chance.normal(size=64).astype(np.float32)
        wanted = keep[np.argsort(-(vectors[keep] @ query), kind="stable")[:25]]
        exact = store.vector_query(query_vector=query, top_k=25, tags_any=[tag], exact=True)
        found = store.vector_query(query_vector=query, top_k=25, tags_any=[tag])
        assert [int(row["doc_id"][:5]) for row in exact] == list(wanted)
        assert len(found) == len(wanted)
        right.append(len({row["doc_id"] for row in found} & {row["doc_id"] for row in exact}) / len(wanted))
        assert len(store.lexical_query("all word3", top_k=25, tags_any=[tag])) == len(wanted)
        assert len(store.hybrid_query("all", query_vector=query, top_k=25, tags_any=[tag])) == len(wanted)
    if len(keep) <= 2000:  # the candidates of the sign codes are all that match
        assert right == [1.0] * 12
    # Random vectors have no near neighbours, which is the hardest case for sign codes.
    assert np.mean(right) > 0.97
