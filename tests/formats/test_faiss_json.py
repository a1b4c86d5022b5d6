"""FAISS + JSON: out of a store and back, of another program, swapped and damaged."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import sqlrag
from sqlrag import Store, prepare_embeddings
from sqlrag.embedders import HashingEmbedder
from sqlrag.errors import FormatError, InputError, NotFoundError, StoreError, StoreExistsError
from sqlrag.formats.faiss_json import (
    export_faiss_json,
    import_faiss_json,
    is_faiss_json,
    model_slug,
    pair_of,
    read_faiss_json,
    write_faiss_json,
)
from sqlrag.formats.ragmd import export_ragmd, import_ragmd, read_ragmd, write_ragmd
from tests.support.helpers import HASHING, ROOT
from tests.support.stores import make_small_store

faiss = pytest.importorskip("faiss")

from tests.support.exchange_files import assert_equal_stores, flat, unit  # noqa: E402


@pytest.fixture(scope="session")
def handbook(tmp_path_factory):
    path = tmp_path_factory.mktemp("handbook") / "handbook.duckdb"
    return prepare_embeddings(ROOT / "data" / "handbook", path, **HASHING).path


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "small.duckdb"
    make_small_store(path)
    return path


@pytest.mark.slow
def test_a_store_comes_back_the_same(handbook, tmp_path):
    exported = export_faiss_json(handbook, tmp_path)
    index, metadata = tmp_path / "vectors-hashing-64.faiss", tmp_path / "metadata-hashing-64.json"
    assert exported.size_bytes == index.stat().st_size + metadata.stat().st_size
    assert is_faiss_json(index)
    assert is_faiss_json(metadata)
    for number, path in enumerate((index, metadata)):
        import_faiss_json(path, tmp_path / f"{number}.duckdb")
        assert_equal_stores(handbook, tmp_path / f"{number}.duckdb")
    first = index.read_bytes(), metadata.read_bytes()
    export_faiss_json(handbook, index, overwrite=True)
    assert (index.read_bytes(), metadata.read_bytes()) == first


class TestAPairIsReplacedAsOne:
    """A rename that fails, or a process that is killed between the two."""

    @pytest.fixture
    def pair(self, small, tmp_path):
        """Return a pair, and a function that exports it again from a store of one chunk less."""
        store = shutil.copy(small, tmp_path / "less.duckdb")
        sqlrag.delete_documents(store, doc_ids=["b.md"])
        index, metadata = tmp_path / "out" / "vectors-x.faiss", tmp_path / "out" / "metadata-x.json"
        index.parent.mkdir()
        export_faiss_json(small, index)
        return index, metadata, lambda: export_faiss_json(store, index, overwrite=True)

    def fail(self, monkeypatch, which, error):
        """Let the rename of one of the pair fail."""
        replace = Path.replace

        def failing(path, target):
            if Path(target).name.startswith(which):
                raise error
            return replace(path, target)

        monkeypatch.setattr(Path, "replace", failing)

    @pytest.mark.slow
    @pytest.mark.parametrize("which", ["vectors", "metadata"])
    @pytest.mark.parametrize("error", [OSError(28, "No space left on device"), OSError(5, "Input/output error")])
    def test_fault_S9_a_rename_that_fails_leaves_the_old_pair(self, pair, monkeypatch, which, error):
        index, metadata, export = pair
        before = index.read_bytes(), metadata.read_bytes()
        with monkeypatch.context() as patch:
            self.fail(patch, which, error)
            with pytest.raises(StoreError, match=error.strerror):
                export()
        assert (index.read_bytes(), metadata.read_bytes()) == before
        assert sorted(index.parent.iterdir()) == [metadata, index]
        export()
        assert index.read_bytes() != before[0]
        assert sorted(index.parent.iterdir()) == [metadata, index]

    def test_fault_S9_a_first_export_that_fails_leaves_nothing(self, small, tmp_path, monkeypatch):
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(1, "Operation not permitted")))
        self.fail(monkeypatch, "metadata", OSError(28, "No space left on device"))
        with pytest.raises(StoreError, match="None was made"):
            export_faiss_json(small, tmp_path / "vectors-x.faiss")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.slow
    def test_fault_S9_a_kill_between_the_renames_leaves_the_old_contents(self, pair, small, tmp_path):
        index, metadata, export = pair
        old = index.read_bytes(), metadata.read_bytes()
        export()
        metadata.write_bytes(old[1])
        index.with_name(f".{index.name}.1-ab.kept").write_bytes(old[0])
        import_faiss_json(index, tmp_path / "back.duckdb")
        assert_equal_stores(small, tmp_path / "back.duckdb")
        export()
        assert sorted(index.parent.iterdir()) == [metadata, index]


@pytest.mark.slow
def test_chains_of_formats_give_the_same(small, tmp_path):
    export_faiss_json(small, tmp_path / "a.faiss", tmp_path / "a.json")
    with read_faiss_json(tmp_path / "a.faiss", tmp_path / "a.json") as contents:
        write_ragmd(contents, tmp_path / "a.ragmd")
    with read_ragmd(tmp_path / "a.ragmd") as contents:
        write_faiss_json(contents, tmp_path / "b.faiss", tmp_path / "b.json")
    assert (tmp_path / "a.faiss").read_bytes() == (tmp_path / "b.faiss").read_bytes()
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    export_ragmd(small, tmp_path / "direct.ragmd")
    assert (tmp_path / "direct.ragmd").read_bytes() == (tmp_path / "a.ragmd").read_bytes()
    import_ragmd(tmp_path / "a.ragmd", tmp_path / "b.duckdb")
    assert_equal_stores(small, tmp_path / "b.duckdb")


def test_other_programs_read_what_is_written(small, tmp_path):
    """As chatboti does: documents are a list, references have two names and no more."""
    export_faiss_json(small, tmp_path / "vectors-m.faiss")
    index = faiss.read_index(str(tmp_path / "vectors-m.faiss"))
    data = json.loads((tmp_path / "metadata-m.json").read_text("utf-8"))
    assert (type(index), index.ntotal, index.d) == (faiss.IndexFlatIP, 4, data["embedding_dim"])
    assert data["chunk_refs"][0] == {"document_id": "a.md", "chunk_key": "chunk-0"}
    documents = {document["id"]: document for document in data["documents"]}
    texts = []
    for reference in data["chunk_refs"]:
        document = documents[reference["document_id"]]
        chunk = document["chunks"][reference["chunk_key"]]
        place = chunk["i_start"]
        texts.append(
            document["full_text"][place : chunk["i_end"]]
            if place is not None
            else document["content"][reference["chunk_key"]]
        )
    assert texts == ["duck pond", "duck duck bread", "goose pond water pond", "bread oven"]
    assert data["model_name"] == "given"


def test_files_of_other_programs_are_read(tmp_path):
    vectors = unit(3, 16) * 2
    faiss.write_index(flat(vectors), str(tmp_path / "vectors-nomic-embed-text.faiss"))
    data = {
        "model_name": "nomic-embed-text",
        "embedding_dim": 16,
        "chunk_refs": [{"document_id": d, "chunk_key": k} for d, k in (("b", "bio"), ("a", "0"), ("a", "1"))],
        "documents": [
            {"id": "b", "content": {"bio": "Ada"}, "full_text": "", "metadata": {"source": "talks.csv"},
             "i_vector_start": 0, "i_vector_end": 1, "chunks": {"bio": {"id": 0, "i_start": None, "i_end": None}}},
            {"id": "a", "content": {}, "full_text": "ducks geese", "metadata": {},
             "chunks": {"0": {"faiss_id": -1, "i_start": 0, "i_end": 5}, "1": {"id": 2, "i_start": 6, "i_end": 11}}},
        ],
    }  # fmt: skip
    (tmp_path / "metadata-nomic-embed-text.json").write_text(json.dumps(data, indent=2), "utf-8")
    report = import_faiss_json(tmp_path / "metadata-nomic-embed-text.json", tmp_path / "a.duckdb")
    assert report.notices == ["3 vectors of another length than 1 scaled to length 1."]
    with Store(tmp_path / "a.duckdb") as store:
        (row,) = store.vector_query("", query_vector=vectors[0], top_k=1)
        assert (row["node_id"], row["text"], row["metadata"]["chunk_key"]) == ("b#0", "Ada", "bio")
        assert store.sources(["b"])["b"]["file_path"] == "talks.csv"
    for key in ("chunk_refs", "documents"):
        (tmp_path / "metadata-x.json").write_text(json.dumps({**data, key: None}), "utf-8")
        shutil.copy(tmp_path / "vectors-nomic-embed-text.faiss", tmp_path / "vectors-x.faiss")
        with pytest.raises(FormatError, match="must be a"):
            import_faiss_json(tmp_path / "vectors-x.faiss", tmp_path / "b.duckdb")


@pytest.mark.slow
def test_a_swapped_pair_is_found(small, tmp_path):
    export_faiss_json(small, tmp_path / "vectors-a.faiss")
    with Store.create(tmp_path / "b.duckdb", 8) as store:
        from tests.support.stores import DUCKS, small_chunks

        store.upsert([DUCKS], small_chunks()[:2], unit(2, 8))
    export_faiss_json(tmp_path / "b.duckdb", tmp_path / "vectors-b.faiss")
    shutil.copy(tmp_path / "vectors-b.faiss", tmp_path / "vectors-a.faiss")
    with pytest.raises(FormatError, match="mixed from two"):
        import_faiss_json(tmp_path / "vectors-a.faiss", tmp_path / "c.duckdb")
    # The same documents, embedded anew.
    with Store(tmp_path / "b.duckdb", read_only=False) as store:
        store.upsert([DUCKS], small_chunks()[:2], unit(2, 8, seed=1))
    export_faiss_json(tmp_path / "b.duckdb", tmp_path / "vectors-c.faiss")
    shutil.copy(tmp_path / "vectors-c.faiss", tmp_path / "vectors-b.faiss")
    with pytest.raises(FormatError, match="vectors_sha256 differs"):
        import_faiss_json(tmp_path / "vectors-b.faiss", tmp_path / "c.duckdb")


def test_the_json_is_put_in_place_last(small, tmp_path, monkeypatch):
    from sqlrag.formats import targets

    names = []
    put = targets.put_in_place
    monkeypatch.setattr(targets, "put_in_place", lambda *arguments: (names.append(arguments[1].name), put(*arguments)))
    export_faiss_json(small, tmp_path / "vectors-a.faiss")
    assert names == ["vectors-a.faiss", "metadata-a.json"]


@pytest.mark.slow
def test_files_of_another_kind_are_not_replaced(small, tmp_path):
    (tmp_path / "metadata-a.json").write_text('{"name": "mine"}', "utf-8")
    with pytest.raises(FormatError, match="is not a JSON file of a FAISS index"):
        export_faiss_json(small, tmp_path / "vectors-a.faiss", overwrite=True)
    assert not (tmp_path / "vectors-a.faiss").exists()
    (tmp_path / "vectors-b.faiss").write_bytes(b"something")
    with pytest.raises(FormatError, match="is not a FAISS index"):
        export_faiss_json(small, tmp_path / "vectors-b.faiss", overwrite=True)
    assert not (tmp_path / "metadata-b.json").exists()
    export_faiss_json(small, tmp_path / "vectors-c.faiss")
    with pytest.raises(StoreExistsError):
        export_faiss_json(small, tmp_path / "metadata-c.json")


@pytest.mark.slow
def test_a_folder_stands_for_the_pair_in_it(small, tmp_path):
    folder = tmp_path / "new" / "folder"
    exported = export_faiss_json(small, folder)
    assert sorted(one.name for one in folder.iterdir()) == ["metadata-given.json", "vectors-given.faiss"]
    assert import_faiss_json(folder, tmp_path / "back.duckdb").documents == exported.documents
    done = sqlrag.convert(folder, tmp_path / "again.duckdb")
    assert (done.documents, done.chunks) == (exported.documents, exported.chunks)
    facts = sqlrag.verify_file(folder)
    assert (facts.format, facts.chunks, facts.size_bytes) == ("faiss_json", exported.chunks, exported.size_bytes)
    shutil.copy(folder / "vectors-given.faiss", folder / "vectors-b.faiss")
    for read in (import_faiss_json, sqlrag.convert):
        with pytest.raises(InputError, match=r"several indexes: vectors-b.faiss, vectors-given.faiss\. Name one"):
            read(folder, tmp_path / "no.duckdb")
    with pytest.raises(InputError, match=r"There is no vectors-MODEL.faiss in the folder"):
        import_faiss_json(tmp_path, tmp_path / "no.duckdb")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=r"does not name the other file of the pair: call it vectors-MODEL\.faiss, or"):
        export_faiss_json(small, tmp_path / "file")
    with pytest.raises(StoreError, match="Nothing was written"):
        export_faiss_json(small, tmp_path / "file" / "below")
    assert not (tmp_path / "no.duckdb").exists()


def test_names(tmp_path):
    assert model_slug("BAAI/bge-small-en-v1.5") == "baai-bge-small-en-v1-5"
    assert model_slug("") == "default"
    assert pair_of(tmp_path / "metadata-x.json") == (tmp_path / "vectors-x.faiss", tmp_path / "metadata-x.json")
    with pytest.raises(InputError, match="vectors-MODEL"):
        pair_of(tmp_path / "x.faiss")
    with pytest.raises(NotFoundError):
        import_faiss_json(tmp_path / "vectors-x.faiss", tmp_path / "b.duckdb")
    assert not is_faiss_json(tmp_path / "vectors-x.faiss")
    assert not is_faiss_json(tmp_path / "x.duckdb")


def test_edited_json_is_refused_and_crlf_is_not(small, tmp_path):
    export_faiss_json(small, tmp_path / "vectors-a.faiss")
    path = tmp_path / "metadata-a.json"
    data = path.read_bytes()
    path.write_bytes(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"))
    import_faiss_json(path, tmp_path / "b.duckdb")
    assert_equal_stores(small, tmp_path / "b.duckdb")
    path.write_bytes(data.replace(b"duck pond", b"dock pond"))
    with pytest.raises(FormatError, match="changed after they were written"):
        import_faiss_json(path, tmp_path / "b.duckdb")
    path.write_bytes(data.replace(b'"chunk_refs"', b'"chunk_reefs"'))
    with pytest.raises(FormatError, match="lacks chunk_refs"):
        import_faiss_json(path, tmp_path / "b.duckdb")
    for text in (b"[]", b"", b"{", b"null"):
        path.write_bytes(text)
        with pytest.raises(FormatError, match=r"metadata-a\.json"):
            import_faiss_json(path, tmp_path / "b.duckdb")


@pytest.mark.slow
def test_mutated_files_are_refused_or_read_the_same(small, tmp_path):
    from tests.support import fuzz_formats

    export_faiss_json(small, tmp_path / "vectors-a.faiss")
    pair = [(tmp_path / name).read_bytes() for name in ("vectors-a.faiss", "metadata-a.json")]
    assert fuzz_formats.faiss_json(*pair, tmp_path, range(400)) > 200


def test_results_are_those_of_faiss(handbook, tmp_path):
    export_faiss_json(handbook, tmp_path / "vectors-a.faiss")
    index = faiss.read_index(str(tmp_path / "vectors-a.faiss"))
    vector = HashingEmbedder("hashing-64").embed(["update a folder"], kind="query")[0]
    with Store(handbook) as store:
        rows = store.vector_query("", query_vector=vector, top_k=5, exact=True)
    scores, _ = index.search(np.array([vector]), 5)
    assert scores[0].tolist() == pytest.approx([row["score"] for row in rows], abs=1e-5)
