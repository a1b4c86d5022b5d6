"""Single chunks, with ids of their own: added, replaced, moved and deleted, the rest of their documents kept."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest

import sqlrag
from sqlrag import Chunk, InputError, Store, check
from sqlrag.embedders import HashingEmbedder
from tests.support.helpers import build

MODEL = HashingEmbedder("hashing-64")


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "kb.duckdb", 64, embedder=MODEL) as made:
        yield made


def chunk(node_id, text, document="one", **fields):
    return Chunk(document, 0, text, given_id=node_id, **fields)


def rows(store):
    return [(c.doc_id, c.chunk_index, c.node_id, c.content) for c in store.chunks()]


class TestAdding:
    @pytest.mark.slow
    def test_behind_the_others_and_in_place(self, store):
        report = store.add_chunks([chunk("b", "beta"), chunk("a", "alpha"), chunk("z", "zeta", "two")])
        assert (report.documents, report.chunks, report.embedded) == (["one", "two"], 3, 3)
        store.add_chunks([chunk("c", "gamma"), chunk("b", "beta again")])
        assert rows(store) == [
            ("one", 0, "b", "beta again"), ("one", 1, "a", "alpha"), ("one", 2, "c", "gamma"), ("two", 0, "z", "zeta"),
        ]  # fmt: skip
        assert store.sources(["one"])["one"]["text"] == "beta again\n\nalpha\n\ngamma"
        assert [(row["node_id"], row["i_start"]) for row in store.lexical_query("alpha")] == [("a", 12)]
        assert store.check() == []

    @pytest.mark.slow
    def test_vectors_are_kept_with_their_chunks(self, store):
        given = np.random.default_rng(7).normal(size=(6, 64)).astype(np.float32)
        unit = given / np.linalg.norm(given, axis=1, keepdims=True)
        for i in random.Random(7).sample(range(6), 6):
            store.add_chunks([chunk(f"n{i}", f"word{i}", f"doc{i % 2}")], vectors=given[i : i + 1])
        store.delete_chunks(node_ids=["n0", "n3"])
        left = [1, 2, 4, 5]
        assert store.vectors([f"n{i}" for i in left]) == pytest.approx(unit[left], abs=1e-6)
        assert store.check() == []

    @pytest.mark.slow
    def test_a_chunk_moves_to_another_document_only_after_it_was_deleted(self, store):
        store.add_chunks([chunk("a", "alpha"), chunk("b", "beta", "two")])
        with pytest.raises(InputError, match="'a' is that of a chunk of the document 'one'"):
            store.add_chunks([chunk("a", "alpha", "two")])
        assert len(rows(store)) == 2
        store.delete_chunks(node_ids=["a"])
        store.add_chunks([chunk("a", "alpha", "two")])
        assert rows(store) == [("two", 0, "b", "beta"), ("two", 1, "a", "alpha")]
        assert store.sources(["one", "two"]).keys() == {"two"}
        assert store.check() == []

    @pytest.mark.slow
    def test_the_text_of_a_file_stays_where_it_holds_the_chunks(self, tmp_path):
        path = build(tmp_path, a_md="# One\n\nalpha beta\n\n# Two\n\ngamma delta")
        with Store(path, read_only=False) as store:
            before, text = store.chunks(), store.sources(["a.md"])["a.md"]["text"]
            store.add_chunks([Chunk("a.md", 0, "beta\n\n# Two", given_id="across")], vectors=np.ones((1, 64)))
            assert store.sources(["a.md"])["a.md"]["text"] != text  # the chunks are in a row, and this one goes back
            assert [c.node_id for c in store.chunks()] == ["a.md#0", "a.md#1", "across"]
        assert check(path) == []
        with Store(path, read_only=False) as store:
            store.delete_chunks(node_ids=["across"])
            assert [(c.node_id, c.content) for c in store.chunks()] == [(c.node_id, c.content) for c in before]
            store.add_chunks([Chunk("a.md", 0, "delta", given_id="end")], vectors=np.ones((1, 64)))
        assert check(path) == []

    def test_what_is_wrong_is_told_and_changes_nothing(self, store):
        store.add_chunks([chunk("a", "alpha")])
        for wrong, message in (
            ([chunk("b", "x"), chunk("b", "y")], "'b' is given more than once"),
            ([chunk("b", " ")], "'b' is blank"),
            ([chunk("b", "x", collection="notes")], "collections"),
            ([chunk("b", "x", node="[]")], "node must be a JSON object"),
            ([chunk("b", "x", node="{")], "node must be a JSON object"),
            ([chunk(7, "x")], "given_id must be a string"),
            ("alpha", "chunks must be a list"),
        ):
            with pytest.raises(InputError, match=message):
                store.add_chunks(wrong)
        with pytest.raises(InputError, match="1 chunk and 2 vectors"):
            store.add_chunks([chunk("b", "x")], vectors=np.ones((2, 64)))
        with pytest.raises(sqlrag.ModelMismatchError):
            store.add_chunks([chunk("b", "x")], vectors=np.ones((1, 63)))
        assert store.add_chunks([]).chunks == 0
        assert rows(store) == [("one", 0, "a", "alpha")]

    @pytest.mark.slow
    def test_threads_lose_nothing(self, store):
        def add(i):
            store.add_chunks([chunk(f"n{i}", f"word{i}", f"doc{i % 2}")], vectors=np.eye(64)[i : i + 1])

        threads = [threading.Thread(target=add, args=(i,)) for i in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {c.node_id for c in store.chunks()} == {f"n{i}" for i in range(12)}
        assert store.check() == []


class TestDeleting:
    @pytest.mark.slow
    def test_by_ids_and_by_metadata(self, store):
        store.add_chunks([chunk(f"n{i}", f"word{i}", f"doc{i // 3}", metadata={"year": 2000 + i}) for i in range(6)])
        assert store.delete_chunks(node_ids=["n1", "nothing"]) == ["n1"]
        assert store.delete_chunks(metadata={"year": {"$gte": 2004}}) == ["n4", "n5"]
        assert store.delete_chunks(node_ids=["n0", "n3"], metadata={"year": 2003}) == ["n3"]
        assert [c.node_id for c in store.chunks()] == ["n0", "n2"]
        assert store.sources(["doc0", "doc1"]).keys() == {"doc0"}
        assert store.sources(["doc0"])["doc0"]["text"] == "word0\n\nword2"
        assert store.check() == []
        assert store.delete_chunks(node_ids=[]) == []
        with pytest.raises(InputError, match="Nothing says what to delete"):
            store.delete_chunks()
        with pytest.raises(InputError, match="node_ids must be a list"):
            store.delete_chunks(node_ids="n0")

    def test_reading_by_conditions(self, store):
        store.add_chunks([chunk(f"n{i}", f"word{i}", metadata={"year": 2000 + i}) for i in range(4)])
        assert [c.node_id for c in store.chunks(metadata={"year": {"$lt": 2002}})] == ["n0", "n1"]
        assert [c.node_id for c in store.chunks(node_ids=["n3", "n1"], metadata={"year": {"$lt": 2002}})] == ["n1"]
        assert [c.node_id for c in store.chunks(metadata={"$node_id": {"$in": ["n2"]}})] == ["n2"]
        with pytest.raises(InputError, match="node_ids"):
            store.chunks(node_ids="n1")


@pytest.mark.slow
def test_ids_of_their_own_are_no_fault_only_where_they_were_added(tmp_path):
    path = build(tmp_path, a_md="alpha")
    with Store(path, read_only=False) as store:
        store.cursor().execute("UPDATE documents SET node_id = 'other'")
        assert [problem.check for problem in store.check()] == ["wrong_node_ids"]
        store.cursor().execute("UPDATE documents SET node_id = 'a.md#0'")
        store.add_chunks([chunk("own", "beta", "b")], vectors=np.ones((1, 64)))
        assert store.check() == []
