"""The service that searches a file in memory: it finds what the store finds."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from sqlrag import Results, Store, prepare_embeddings
from sqlrag.embedders import HashingEmbedder
from sqlrag.errors import FormatError, InputError, ModelMismatchError, NotFoundError
from sqlrag.formats.faiss_json import export_faiss_json
from sqlrag.formats.ragmd import export_ragmd
from sqlrag.formats.service import FaissRAGService, SingleFileRAGService, rag_service
from sqlrag.types import Chunk, Document
from tests.support.helpers import HASHING, ROOT, ids

QUESTIONS = ("filter by tag", "how large is a file", "update a folder", "BM25 score of a phrase", "zzzz nothing")


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("handbook") / "handbook.duckdb"
    return prepare_embeddings(ROOT / "data" / "handbook", path, **HASHING).path


@pytest.fixture(scope="session")
def path(store, tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "handbook.ragmd"
    export_ragmd(store, path)
    return path


def ask(service, *questions, **options):
    async def run():
        async with service as rag:
            return await asyncio.gather(*(rag.search(question, **options) for question in questions))

    return asyncio.run(run())


@pytest.mark.slow
def test_S0_08_it_finds_what_the_store_finds(store, path):
    found = ask(SingleFileRAGService("hashing", "hashing-64", path), *QUESTIONS, k=10)
    with Store(store) as opened:
        for question, results in zip(QUESTIONS, found, strict=True):
            wanted = opened.vector_query(question, top_k=10, exact=True)
            assert isinstance(results, Results)
            assert results.query_text == question
            assert [row["score"] for row in results] == pytest.approx([row["score"] for row in wanted], abs=1e-6)
            for row, other in zip(results, wanted, strict=True):
                # Which of two chunks of one score comes first may depend on the last bit of it.
                if row["node_id"] == other["node_id"]:
                    # A .ragmd file has none for a chunk.
                    left_out = ("score", "vector_score", "source_doc", "checksum", "created_at")
                    assert {k: v for k, v in row.items() if k not in left_out} == {
                        k: v for k, v in other.items() if k not in left_out
                    }
            assert sum(a != b for a, b in zip(ids(results), ids(wanted), strict=True)) <= 2


@pytest.mark.rest
def test_documents_are_given_where_wanted(path, store):
    (results,) = ask(SingleFileRAGService("hashing", None, path), "filter by tag", include_documents=True)
    with Store(store) as opened:
        assert results[0]["source_doc"] == opened.sources([results[0]["doc_id"]])[results[0]["doc_id"]]
    (results,) = ask(SingleFileRAGService("hashing", None, path), "filter by tag", k=3)
    assert [row["source_doc"] for row in results] == [None] * 3


@pytest.mark.slow
def test_ties_go_by_document_and_number(tmp_path):
    vectors = np.tile(np.array([[0.1, 0.7, 0.1, 0.7]], np.float32), (50, 1))
    with Store.create(tmp_path / "a.duckdb", 4) as store:
        documents = [Document(f"{i:02}", "duck") for i in range(50)]
        store.upsert(documents, [Chunk(f"{i:02}", 0, "duck") for i in range(50)], vectors)
    export_ragmd(tmp_path / "a.duckdb", tmp_path / "a.ragmd")
    embedder = HashingEmbedder("hashing-4")
    (results,) = ask(SingleFileRAGService(ragmd_path=tmp_path / "a.ragmd", embedder=embedder), "duck", k=7)
    assert ids(results) == [f"{i:02}#0" for i in range(7)]


def test_it_saves_what_it_loaded(path, tmp_path):
    (tmp_path / "own.ragmd").write_bytes(path.read_bytes())

    async def run():
        async with SingleFileRAGService("hashing", "hashing-64", tmp_path / "own.ragmd") as rag:
            rag.save()
            rag.save_to_ragmd(tmp_path / "other.ragmd")
            with pytest.raises(Exception, match="exists"):
                rag.save_to_ragmd(tmp_path / "other.ragmd")
            rag.load_from_ragmd(tmp_path / "other.ragmd")
            return await rag.search("filter by tag")

    assert asyncio.run(run())
    assert (tmp_path / "own.ragmd").read_bytes() == path.read_bytes() == (tmp_path / "other.ragmd").read_bytes()


@pytest.mark.slow
def test_the_model_has_to_be_that_of_the_file(path, tmp_path):
    with pytest.raises(ModelMismatchError, match="64 dimensions"):
        ask(SingleFileRAGService("hashing", "hashing-32", path), "x")

    class Other(HashingEmbedder):
        def embed(self, texts, *, kind):
            return -super().embed(texts, kind=kind)

    with pytest.raises(ModelMismatchError, match="whose vectors differ"):
        ask(SingleFileRAGService(ragmd_path=path, embedder=Other("hashing-64")), "x")

    async def run():
        async with SingleFileRAGService("hashing", None, path) as rag:
            before = await rag.search("filter by tag")
            with Store.create(tmp_path / "a.duckdb", 8) as store:
                store.upsert([Document("d", "duck")], [Chunk("d", 0, "duck")], np.eye(1, 8))
            export_ragmd(tmp_path / "a.duckdb", tmp_path / "a.ragmd")
            with pytest.raises(ModelMismatchError):
                rag.load_from_ragmd(tmp_path / "a.ragmd")
            assert await rag.search("filter by tag") == before

    asyncio.run(run())


def test_the_factory_goes_by_suffix(store, path, tmp_path):
    export_faiss_json(store, tmp_path)
    service = rag_service("hashing", None, tmp_path / "metadata-hashing-64.json")
    assert type(service) is FaissRAGService
    assert type(rag_service("hashing", "hashing-64", path)) is SingleFileRAGService
    (tmp_path / "kb.md").write_bytes(path.read_bytes())
    assert type(rag_service("hashing", None, tmp_path / "kb.md")) is SingleFileRAGService
    assert ask(service, "filter by tag") == ask(rag_service("hashing", None, tmp_path / "kb.md"), "filter by tag")
    before = (tmp_path / "metadata-hashing-64.json").read_bytes()

    async def save():
        async with rag_service("hashing", None, tmp_path / "vectors-hashing-64.faiss") as rag:
            rag.save()

    asyncio.run(save())
    assert (tmp_path / "metadata-hashing-64.json").read_bytes() == before
    with pytest.raises(InputError, match=r"sqlrag\.Store"):
        rag_service("hashing", None, store)


def test_wrong_use_is_told(path, tmp_path):
    with pytest.raises(InputError, match="service_name"):
        SingleFileRAGService(None, "m", path)
    with pytest.raises(InputError, match="ragmd_path"):
        SingleFileRAGService("hashing", "m")
    with pytest.raises(NotFoundError):
        ask(SingleFileRAGService("hashing", None, tmp_path / "none.ragmd"), "x")
    (tmp_path / "bad.ragmd").write_text("# no", "utf-8")
    with pytest.raises(FormatError, match="Missing frontmatter"):
        ask(SingleFileRAGService("hashing", None, tmp_path / "bad.ragmd"), "x")
    for question, options in (("", {}), (" ", {}), ("x", {"k": 0}), ("x", {"k": True})):
        with pytest.raises(InputError):
            ask(SingleFileRAGService("hashing", None, path), question, **options)
    service = SingleFileRAGService("hashing", None, path)
    with pytest.raises(InputError, match="Nothing is loaded"):
        asyncio.run(service.search("x"))
    with pytest.raises(InputError, match="Nothing is loaded"):
        service.save()
    service.load_from_ragmd(path)
    with pytest.raises(InputError, match="No model is loaded"):
        asyncio.run(service.search("x"))
