"""A file on a web server or in an object store, searched where it is with DuckDB's extension httpfs."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import duckdb
import numpy as np
import pytest

import sqlrag
from sqlrag import Chunk, Document, InputError, NotAStoreError, NotFoundError, SchemaVersionError, Store, StoreError
from sqlrag.engines.duckdb import files
from sqlrag.network import shown_address
from tests.support.static_files import Files

SIGNED = "?X-Amz-Signature=hush"


def _has_httpfs():
    """Return whether the extension is there."""
    with duckdb.connect() as con:
        try:
            files._load_httpfs(con, "")
        except InputError:
            return False
    return True


HTTPFS = _has_httpfs()

COMPARES_ETAGS = HTTPFS and tuple(map(int, duckdb.__version__.split(".")[:2])) >= (1, 5)

needs_httpfs = pytest.mark.skipif(not HTTPFS, reason="DuckDB's extension httpfs is not installed")

searches = pytest.mark.skipif(not COMPARES_ETAGS, reason="needs DuckDB's extension httpfs, of one that compares ETags")


class Host(Files):
    """A static host as the class says: what it answers in place of files, whether it sends ETags and ranges."""

    status = 0
    moved = False
    etags = ranges = True
    asked: tuple = ()

    def do_GET(self):
        Host.asked += ((self.command, self.path, self.headers.get("Authorization", "")),)
        if Host.moved and not self.path.startswith("/at/"):
            return self._end(302, Location=f"/at{self.path}?X-Amz-Signature=moved")
        if Host.status or not Path(self.translate_path(self.path)).is_file():
            return self._end(Host.status or 404)
        if not Host.ranges:
            del self.headers["Range"]
        return super().do_GET()

    def translate_path(self, path):
        return super().translate_path(path.removeprefix("/at").removeprefix("/bucket"))

    def send_header(self, keyword, value):
        super().send_header(keyword, value)
        if keyword == "Accept-Ranges" and Host.etags:
            found = Path(self.translate_path(self.path)).stat()
            super().send_header("ETag", f'"{found.st_mtime_ns:x}-{found.st_size:x}"')

    def _end(self, status, **headers):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": "0"}.items():
            super().send_header(name, value)
        self.end_headers()


def make(path, first="the valve opens slowly"):
    """Write a store of 40 documents of 5 chunks in two collections, with the words of ``first`` in every tenth."""
    rng = np.random.default_rng(5)
    names = [f"d{place:02}.md" for place in range(40)]
    documents = [Document(name, f"about {name}", collection="ab"[place % 2]) for place, name in enumerate(names)]
    chunks = [
        Chunk(name, index, f"{first if (place + index) % 10 == 0 else 'a pump'} number {place} {index}",
              collection="ab"[place % 2], tags=("even",) if index % 2 == 0 else (), metadata={"year": 2000 + place})
        for place, name in enumerate(names) for index in range(5)
    ]  # fmt: skip
    with Store.create(path, 8, overwrite=True) as store:
        store.upsert(documents, chunks, rng.normal(size=(len(chunks), 8)))
    return path


@pytest.fixture(scope="module")
def kb(tmp_path_factory):
    return make(tmp_path_factory.mktemp("made") / "kb.duckdb")


@pytest.fixture
def host(kb, tmp_path, monkeypatch):
    """A server of a folder with the file, and its URL."""
    folder = tmp_path / "site"
    folder.mkdir()
    shutil.copy(kb, folder / "kb.duckdb")
    for name in ("status", "moved", "etags", "ranges", "asked"):
        monkeypatch.setattr(Host, name, getattr(Host, name))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Host, directory=str(folder)))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.folder, server.url = folder, f"http://127.0.0.1:{server.server_port}/kb.duckdb"
    yield server
    server.shutdown()
    server.server_close()


VECTOR = np.arange(1, 9) / 10


def shown(results):
    return [dict(row) for row in results]


def later(path):
    """Let a file be of another second than before."""
    found = path.stat()
    os.utime(path, (found.st_atime + 7, found.st_mtime + 7))


@searches
class TestSearches:
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"fusion": "rrf"},
            {"fusion": "convex", "alpha": 0.3},
            {"use_rrf": False, "vector_weight": 0.2},
            {"collection": "b", "tags_any": ["even"]},
            {"metadata": {"year": {"$gte": 2020}}, "exact": True, "include_source_docs": True},
            {"feedback": 2, "expansion": 1, "per_document": 1},
        ],
        ids=str,
    )
    def test_all_is_as_in_the_file(self, kb, host, options):
        for question in ("valve", "number 7 pump", "nothing of this"):
            here = sqlrag.hybrid_query(question, kb, query_vector=VECTOR, top_k=7, **options)
            there = sqlrag.hybrid_query(question, host.url, query_vector=VECTOR, top_k=7, **options)
            assert shown(there) == shown(here)
            assert there.notices == here.notices
        assert len(here) == 7

    def test_so_are_the_other_questions(self, kb, host):
        with Store(kb) as here, Store(host.url) as there:
            for ask in (
                lambda store: shown(store.vector_query(query_vector=-VECTOR, top_k=9)),
                lambda store: shown(store.lexical_query('"valve opens" num*', top_k=9)),
                lambda store: store.explain("valve", "d00.md#0", query_vector=VECTOR),
                lambda store: store.get_source_documents(["d03.md#1"]),
                lambda store: store.get_embedding_metadata(),
                lambda store: store.snippets("valve", ["d00.md#0"]),
                lambda store: store.cursor().execute("SELECT count(*) FROM documents").fetchall(),
            ):
                assert ask(there) == ask(here)
            assert (there.path, there.paths) == (host.url, [])
            assert f"Store('{host.url}'" in repr(there)
            assert "on its server" in there._repr_html_()

    def test_only_ranges_are_read_and_they_are_kept(self, host):
        with Store(host.url) as store:
            store.lexical_query("valve", top_k=3)
            asked = Host.asked
            assert {command for command, _, _ in asked} == {"HEAD", "GET"}
            store.lexical_query("valve", top_k=3)
            assert Host.asked == asked

    def test_several_threads_and_stores_share_one_connection(self, host, kb):
        wanted = shown(sqlrag.hybrid_query("valve", kb, query_vector=VECTOR))
        with Store(host.url) as one, Store(host.url) as two, ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(store.hybrid_query, "valve", query_vector=VECTOR) for store in (one, two) * 4]
            assert all(shown(each.result()) == wanted for each in asked)
            opened = [asked for asked in Host.asked if asked[1].endswith(".wal")]
            assert len(opened) == 1
            one.close()
            assert shown(two.hybrid_query("valve", query_vector=VECTOR)) == wanted

    def test_resident_says_that_it_is_not(self, host):
        with Store(host.url, resident=True) as store:
            assert "on a server" in str(store.lexical_query("valve").methods)

    def test_what_the_file_holds_reaches_nothing_else(self, host):
        (host.folder / "other.txt").write_text("secret")
        with Store(host.url) as store:
            for place in ("/etc/hostname", host.url.replace("kb.duckdb", "other.txt")):
                with pytest.raises(duckdb.PermissionException):
                    store.cursor().execute("FROM read_text($1)", [place])
            for statement in ("INSTALL httpfs", "ATTACH 'other.duckdb'", "DROP TABLE documents"):
                with pytest.raises(duckdb.Error):
                    store.cursor().execute(statement)

    def test_changed_macros_need_trust(self, host):
        with duckdb.connect(str(host.folder / "kb.duckdb")) as con:
            con.execute("CREATE OR REPLACE MACRO lexical_query(x) AS TABLE SELECT 1")
        with pytest.raises(NotAStoreError, match=r"lexical_query has another definition.*Copy the file here first"):
            Store(host.url)
        with Store(host.url, trust=True) as store:
            assert len(store.vector_query(query_vector=VECTOR, top_k=3)) == 3
            with pytest.raises(NotAStoreError, match="another definition"):
                Store(host.url)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_a_forked_process_opens_it_again(self, host):
        with Store(host.url) as store:
            store.lexical_query("valve")
            child = os.fork()
            if not child:
                code = 1
                try:
                    code = 0 if len(store.lexical_query("valve", top_k=2)) == 2 else 2
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert len(store.lexical_query("valve", top_k=2)) == 2


@searches
class TestReplaced:
    def test_an_open_store_says_so_and_the_next_opens_the_new_file(self, host):
        question = partial(sqlrag.hybrid_query, query_vector=VECTOR, top_k=3)
        with Store(host.url) as store:
            make(host.folder / "new.duckdb", "the sieve closes")
            later(host.folder / "new.duckdb")
            (host.folder / "new.duckdb").rename(host.folder / "kb.duckdb")
            for ask in (store.hybrid_query, store.hybrid_query):
                with pytest.raises(StoreError, match=r"has been replaced on its server.*Open it again"):
                    ask("sieve", query_vector=VECTOR)
            assert shown(question("sieve", host.url)) == shown(question("sieve", host.folder / "kb.duckdb"))
            assert sqlrag.lexical_query("sieve", host.url)

    def test_so_do_its_other_methods(self, host):
        with Store(host.url) as store:
            later(host.folder / "kb.duckdb")
            with pytest.raises(StoreError, match="has been replaced on its server"):
                store.get_source_documents(["d00.md#0"])

    def test_a_server_that_would_not_tell_is_refused(self, host):
        Host.etags = False
        with pytest.raises(InputError, match=r"sends no ETag.*Copy the file here"):
            Store(host.url)


@searches
class TestFailures:
    def test_a_file_that_is_not_there(self, host):
        with pytest.raises(NotFoundError, match=r"There is no file http://127.*/none.duckdb: the server answers 404"):
            Store(host.url.replace("kb.", "none."))

    @pytest.mark.parametrize("status", [401, 403, 503])
    def test_no_secret_is_shown(self, host, status, caplog):
        Host.status = status
        caplog.set_level(logging.DEBUG)
        wanted = "cannot be read.*503" if status == 503 else "may not be read.*CREATE PERSISTENT SECRET"
        for url in (host.url + SIGNED, host.url.replace("//", "//ann:hush@")):
            with pytest.raises(StoreError, match=wanted) as raised:
                sqlrag.lexical_query("valve", url)
            told = "".join(traceback.format_exception(raised.value)) + caplog.text + raised.value.path
            assert "hush" not in told

    def test_a_signed_address_is_shown_without_its_signature(self, host):
        with Store(host.url + SIGNED) as store:
            assert store.path == host.url
            assert "hush" not in repr(store) + store._repr_html_()
            Host.status = 403
            with pytest.raises(StoreError) as raised:
                store.hybrid_query("valve", query_vector=VECTOR)
            assert "hush" not in "".join(traceback.format_exception(raised.value))

    def test_no_server(self):
        with pytest.raises(StoreError, match=r"http://127.0.0.1:1/kb.duckdb cannot be read.*network"):
            Store(f"http://127.0.0.1:1/kb.duckdb{SIGNED}")

    def test_what_is_no_store(self, host, tmp_path):
        (host.folder / "text.duckdb").write_text("no database" * 1000)
        (host.folder / "empty.duckdb").write_bytes(b"")
        duckdb.connect(str(host.folder / "other.duckdb")).close()
        with Store(host.folder / "kb.duckdb", read_only=False) as store:
            store.cursor().execute("UPDATE embedding_metadata SET value = '1' WHERE key = 'schema_version'")
        for name, error, wanted in (
            ("text", NotAStoreError, "is not a DuckDB database"),
            ("empty", NotAStoreError, "is not a DuckDB database"),
            ("other", NotAStoreError, "no table documents"),
            ("kb", SchemaVersionError, r"schema version 1.*Copy the file here first"),
        ):
            with pytest.raises(error, match=wanted):
                Store(host.url.replace("kb.", f"{name}."))

    def test_a_server_without_ranges_sends_the_whole_file(self, host, kb):
        Host.ranges = False
        with Store(host.url) as store:
            assert shown(store.lexical_query("valve")) == shown(sqlrag.lexical_query("valve", kb))

    def test_a_redirect_is_followed(self, host, kb):
        Host.moved = True
        found = sqlrag.lexical_query("valve", host.url)
        assert shown(found) == shown(sqlrag.lexical_query("valve", kb))

    def test_an_address_with_a_quote_is_refused(self):
        with pytest.raises(InputError, match="%27") as raised:
            Store("https://h/it's.duckdb?token=hush")
        assert "hush" not in str(raised.value)


@searches
class TestCredentials:
    def test_of_the_environment_and_of_a_persistent_secret(self, host, kb, tmp_path, monkeypatch):
        monkeypatch.setenv("HOME", str(tmp_path))
        place = host.url.split("/")[2]
        with duckdb.connect() as con:
            files._load_httpfs(con, "")
            con.execute(f"SET secret_directory = '{tmp_path}/.duckdb/stored_secrets'")
            con.execute(
                "CREATE PERSISTENT SECRET (TYPE s3, KEY_ID 'mine', SECRET 'hush', REGION 'x', URL_STYLE 'path', "
                f"USE_SSL false, ENDPOINT '{place}')"
            )
        found = sqlrag.lexical_query("valve", "s3://bucket/kb.duckdb")
        assert shown(found) == shown(sqlrag.lexical_query("valve", kb))
        assert all("Credential=mine/" in authorization for _, _, authorization in Host.asked)


@needs_httpfs
@pytest.mark.skipif(COMPARES_ETAGS, reason="this DuckDB compares ETags")
def test_an_older_duckdb_is_refused(host):
    with pytest.raises(InputError, match=r"would not notice if it were replaced.*Install a newer one"):
        Store(host.url)


@pytest.mark.skipif(HTTPFS, reason="DuckDB's extension httpfs is installed")
@pytest.mark.parametrize(
    "url", ["s3://bucket/kb.duckdb", "https://me:hush@h/kb.duckdb?sig=hush", "hf://datasets/a/b/c"]
)
def test_without_the_extension_the_error_says_how_to_get_it(url):
    for ask in (Store, sqlrag.get_embedding_metadata, lambda place: sqlrag.lexical_query("x", place)):
        with pytest.raises(
            InputError, match=r"httpfs, which is not installed.*INSTALL httpfs.*Or copy.*A corpus in"
        ) as e:
            ask(url)
        assert "hush" not in str(e.value)
        assert duckdb.__version__ in str(e.value)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("https://ann:s3cret@h:8000/a/kb.duckdb?sig=1&x=/2", "https://h:8000/a/kb.duckdb"),
        ("https://ann:s3/cret@h/kb.duckdb", "https://h/kb.duckdb"),
        ("https://h:8000/a@b/kb.duckdb", "https://h:8000/a@b/kb.duckdb"),
        ("HEAD 'https://h/k?sig=1' at \"s3://b/k?t=2\" (HTTP 0)", "HEAD 'https://h/k' at \"s3://b/k\" (HTTP 0)"),
        ("https:/ann:hush@h/kb.duckdb?x", "https:/h/kb.duckdb"),
        ("Is it there?", "Is it there?"),
    ],
)  # fmt: skip
def test_what_is_secret_in_addresses_is_left_out(text, wanted):
    assert shown_address(text) == wanted


@pytest.mark.parametrize(
    ("version", "is_named"), [("1.4.2", True), ("1.5.5", True), ("1.5.6", False), ("2.0.1", False)]
)
def test_the_package_of_the_extension_is_named_for_versions_that_have_one(monkeypatch, version, is_named):
    class Without:
        def execute(self, statement):
            if statement.startswith("LOAD"):
                raise duckdb.IOException("no extension")
            return duckdb.sql(statement)

    monkeypatch.setattr(duckdb, "__version__", version)
    monkeypatch.setattr(files.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="INSTALL httpfs") as raised:
        files._load_httpfs(Without(), "s3://bucket/kb.duckdb")
    assert (f"duckdb-extension-httpfs=={version}" in str(raised.value)) == is_named
