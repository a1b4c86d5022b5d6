"""Originals beside the file: kept for documents that it has, removed with them in whatever way they go."""

from __future__ import annotations

import shutil
import stat
from hashlib import sha256

import pytest
from fastapi.testclient import TestClient

import sqlrag
from sqlrag import InputError, Store, StoreError
from sqlrag.adapters.rest import create_app
from sqlrag.adapters.rest.config import ServerOptions
from sqlrag.engines.duckdb import originals
from tests.support.helpers import HASHING, build

DUCKS, GEESE = b"# Ducks\r\n\r\nDucks swim.", b"# Geese\n\nGeese fly."


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    path = build(folder, old_md="# Old\n\nSwans.")
    sqlrag.add_documents({"ducks.md": DUCKS, "guides/geese.md": GEESE}, path)
    with Store(path) as store:
        originals.keep(store.cursor(), path, [DUCKS, GEESE, b"of no document"])
    return folder


@pytest.fixture
def path(made, tmp_path):
    """A file of each test's own, with its originals beside it."""
    return shutil.copytree(made, tmp_path, dirs_exist_ok=True) / "kb.duckdb"


def kept(path):
    """Return the bytes of what lies in the folder of a file's originals, and check the names."""
    folder = originals.folder_of(path)
    found = [entry.read_bytes() for entry in folder.iterdir()] if folder.is_dir() else []
    assert not found or {entry.name for entry in folder.iterdir()} == {sha256(one).hexdigest() for one in found}
    return sorted(found)


def test_those_of_documents_are_kept_alone(path):
    assert kept(path) == sorted([DUCKS, GEESE])
    assert originals.original_of(path, sha256(DUCKS).hexdigest()).read_bytes() == DUCKS


@pytest.mark.parametrize("checksum", ["", "..", "../kb.duckdb", sha256(b"other").hexdigest()])
def test_a_checksum_that_is_none_names_no_file(path, checksum):
    assert originals.original_of(path, checksum) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda path: sqlrag.delete_documents(path, doc_ids="ducks.md"),
        lambda path: sqlrag.add_documents({"ducks.md": b"# Ducks\n\nDucks dive."}, path),
        lambda path: sqlrag.index([sqlrag.Chunk("ducks.md", 0, "Other words.")], path),
    ],
    ids=["deleted", "replaced", "indexed anew"],
)
def test_one_goes_with_its_document(path, change):
    other = originals.folder_of(path) / "notes.txt"
    other.write_text("not ours")
    (originals.folder_of(path) / f"{sha256(b'x').hexdigest()}.part").write_bytes(b"of a process that was killed")
    change(path)
    assert other.read_text() == "not ours"
    other.unlink()
    assert kept(path) == [GEESE]


def test_the_last_one_goes_with_its_folder(path):
    sqlrag.delete_documents(path, doc_ids=["ducks.md", "guides/geese.md"])
    assert not originals.folder_of(path).exists()


def test_two_documents_of_the_same_bytes_have_one(path):
    sqlrag.add_documents({"twin.md": DUCKS}, path)
    sqlrag.delete_documents(path, doc_ids="ducks.md")
    assert kept(path) == sorted([DUCKS, GEESE])


@pytest.mark.slow
def test_a_file_made_anew_has_none_and_a_compacted_one_has_its_own(path, tmp_path):
    sqlrag.compact(path)
    assert kept(path) == sorted([DUCKS, GEESE])
    sqlrag.prepare_embeddings(tmp_path / "docs", path, overwrite=True, **HASHING)
    assert not originals.folder_of(path).exists()


def test_one_that_cannot_be_removed_is_an_error_and_the_change_is_kept(path):
    kept_file = originals.folder_of(path) / sha256(DUCKS).hexdigest()
    kept_file.unlink()
    kept_file.mkdir()
    with pytest.raises(StoreError, match="The change itself is kept, with originals of what was removed"):
        sqlrag.delete_documents(path, doc_ids="ducks.md")
    with Store(path) as store:
        assert store.sources(["ducks.md"]) == {}


def test_they_are_as_private_as_the_file(path):
    path.chmod(0o600)
    content = b"# Secret"
    sqlrag.add_documents({"secret.md": content}, path)
    with Store(path) as store:
        originals.keep(store.cursor(), path, [content])
    mode = (originals.folder_of(path) / sha256(content).hexdigest()).stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


class TestServed:
    def client(self, path, **options):
        return TestClient(create_app(path, ServerOptions(**options)), base_url="http://127.0.0.1")

    def send(self, client, name, content):
        return client.post("/documents", files=[("files", (name, content))]).json()

    @pytest.mark.slow
    def test_an_upload_is_offered_until_its_document_is_deleted(self, tmp_path):
        path = build(tmp_path, old_md="# Old\n\nSwans.")
        with self.client(path, write=True, keep_originals=True) as client:
            assert self.send(client, "guides/ü.md", DUCKS)["added"] == ["guides/ü.md"]
            assert self.send(client, "bad.pdf", b"no pdf")["failures"][0]["doc_id"] == "bad.pdf"
            answer = client.get("/originals/guides/ü.md")
            assert answer.content == DUCKS
            assert answer.headers["content-type"] == "application/octet-stream"
            assert answer.headers["content-disposition"] == "attachment; filename*=utf-8''%C3%BC.md"
            assert kept(path) == [DUCKS]
            places = [client.get("/passage", params={"node_id": one}).json() for one in ("guides/ü.md#0", "old.md#0")]
            assert [place["original"] for place in places] == [True, False]
            assert client.get("/originals/old.md").json()["detail"] == "No original of 'old.md' was kept."
            assert client.get("/originals/..%2F..%2Fkb.duckdb").status_code == 404
            client.post("/delete_documents", json={"doc_ids": ["guides/ü.md"]})
            assert client.get("/originals/guides/ü.md").status_code == 404
        assert not originals.folder_of(path).exists()

    @pytest.mark.slow
    def test_nothing_is_kept_unless_it_is_asked_for(self, tmp_path):
        path = build(tmp_path, old_md="# Old\n\nSwans.")
        with self.client(path, write=True) as client:
            self.send(client, "ducks.md", DUCKS)
            assert client.get("/originals/ducks.md").status_code == 404
        assert not originals.folder_of(path).exists()

    def test_a_server_that_reads_offers_what_was_kept(self, path):
        with self.client(path) as client:
            assert client.get("/originals/ducks.md").content == DUCKS
            assert client.get("/facets").json()["write"] is False

    def test_without_write_access_nothing_could_be_kept(self):
        with pytest.raises(InputError, match=r"need write access: set write as well \(--write\)"):
            ServerOptions(keep_originals=True)
