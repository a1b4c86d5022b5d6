"""The other ways to a store in Postgres: REST, MCP, the command line, the blocks; and addresses of every kind."""

from __future__ import annotations

import asyncio
import json
import threading
from urllib.parse import quote

import numpy as np
import pytest
from mcp.client.client import Client
from starlette.testclient import TestClient
from typer.testing import CliRunner

import sqlrag
from sqlrag import Chunk, Document, InputError, PostgresStore, RetrievePlan, Store, StoreError, push
from sqlrag.adapters import mcp, rest
from sqlrag.adapters.rest.config import ServerOptions
from sqlrag.cli import app
from sqlrag.embedders import HashingEmbedder
from sqlrag.engines.postgres.connection import Address
from sqlrag.network import without_password
from tests.support.chat_server import ChatServer, serving
from tests.support.helpers import build

PAGES = {
    "mango_md": "---\ntags: [fruit]\nyear: 2024\n---\n# Mango\n\nThe mango is a sweet fruit. It is eaten fresh.\n",
    "guides__pump_md": "---\ntags: [machine]\nyear: 2023\n---\n# Pump\n\n## Repair\n\nA new seal for the pump.\n",
    "lychee_md": "# Lychee\n\nA fruit beside the mango.\n",
    "notes_txt": "A shopping list: mango, lychee and a pump.\n",
}
MODEL = HashingEmbedder("hashing-64")
PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def kb(tmp_path_factory):
    return build(tmp_path_factory.mktemp("kb"), **PAGES)


@pytest.fixture
def url(kb, postgres_url):
    push(kb, postgres_url, progress="off")
    return postgres_url


def client_of(url, **options):
    return TestClient(
        rest.create_app(url, ServerOptions(**options)), base_url="http://127.0.0.1", raise_server_exceptions=False
    )


def plain(value):
    return json.loads(json.dumps(value))


class TestRest:
    def test_routes_answer_as_python(self, url):
        with client_of(url) as client:
            for name in ("hybrid_query", "vector_query", "lexical_query"):
                for more in ({}, {"tags_any": ["fruit"]}, {"metadata": {"year": {"$gte": 2024}}}, {"top_k": 1}):
                    sent = {"query_text": "mango pump", **more}
                    expected = getattr(sqlrag, name)(db_path=url, **sent)
                    answer = client.post(f"/{name}", json=sent).json()
                    assert expected
                    assert answer["results"] == plain(list(expected)), name
                    assert answer["notices"] == expected.notices
            with PostgresStore(url) as store:
                expected = sqlrag.retrieve("mango", RetrievePlan(k=3), store)
                answer = client.post("/retrieve", json={"query": "mango", "plan": {"k": 3}}).json()
                assert [(c["node_id"], c["score"]) for c in answer["candidates"]] == [
                    (c.node_id, c.score) for c in expected
                ]
                assert len(expected) == 3
                wanted = store.get_source_documents(["mango.md#0"])
                assert client.get("/get_embedding_metadata").json() == plain(store.get_embedding_metadata())
                spans = sqlrag.highlight("mangos", ["a mango"], store)
            answer = client.post("/get_source_documents", json={"chunk_ids": ["mango.md#0"]}).json()["documents"]
            assert [one["text"] for one in answer] == [one["text"] for one in wanted]
            assert all("file_path" not in one for one in answer)
            answer = client.post("/highlight", json={"query_text": "mangos", "texts": ["a mango"]}).json()
            assert answer["spans"] == plain(spans)
            assert spans[0]

    def test_what_the_page_asks_is_as_of_a_file(self, kb, url):
        with client_of(kb) as file, client_of(url) as server:
            asked = {"metadata_fields": "true"}
            facets, wanted = (client.get("/facets", params=asked).json() for client in (server, file))
            assert facets.pop("name") == "tests"
            assert wanted.pop("name") == "kb.duckdb"
            assert facets == wanted
            assert facets["tags"]
            assert facets["metadata_fields"]
            for node_id in ("mango.md#0", "notes.txt#0"):
                passages = [client.get("/passage", params={"node_id": node_id}).json() for client in (server, file)]
                assert passages[0] == passages[1]
            assert server.get("/passage", params={"node_id": "none#0"}).status_code == 404
            assert server.get("/health").status_code == 200
            assert server.get("/map").status_code == 404

    def test_exports_are_those_of_the_file(self, kb, url, tmp_path):
        for name, read in (("export_ragmd", "import_ragmd"), ("export_ragfile", "import_ragfile")):
            rows = []
            for place in (kb, url):
                with client_of(place) as client:
                    answer = client.post(f"/{name}", json={})
                assert answer.status_code == 200, answer.text
                (tmp_path / "export").write_bytes(answer.content)
                getattr(sqlrag, read)(tmp_path / "export", tmp_path / "again.duckdb", overwrite=True)
                with Store(tmp_path / "again.duckdb") as store:
                    rows.append(store.chunks())
            assert rows[0] == rows[1]
            assert rows[0]

    def test_changes(self, url):
        note = {"doc_id": "note.md", "chunk_index": 0, "content": "Kiwis are green."}
        with client_of(url) as client:
            assert client.post("/index", json={"chunks": [note]}).status_code == 409
        with client_of(url, write=True) as client:
            assert client.post("/index", json={"chunks": [note]}).status_code == 200
            found = client.post("/lexical_query", json={"query_text": "kiwi"}).json()["results"]
            assert [row["node_id"] for row in found] == ["note.md#0"]
            assert client.post("/delete_documents", json={"doc_ids": ["note.md"]}).status_code == 200
            assert client.post("/lexical_query", json={"query_text": "kiwi"}).json()["results"] == []

    def test_what_needs_a_file_is_refused_without_a_password(self, password_url, tmp_path):
        with client_of(password_url, write=True, input_dir=tmp_path) as client:
            answers = [
                client.post("/update_embeddings", json={}),
                client.get("/check"),
                client.post("/documents", files={"files": ("a.md", b"# A", "text/markdown")}),
            ]
            for answer in answers:
                assert answer.status_code in (409, 422), answer.text
                assert answer.headers["content-type"] == PROBLEM
                assert "DuckDB file" in answer.text
                assert "s3cret" not in answer.text
            assert client.post("/export_ragmd", json={}).status_code == 200
            assert "s3cret" not in client.get("/facets").text

    def test_answers(self, url):
        with serving(ChatServer("Sweet [1].")) as base, client_of(url, chat_model="m", chat_base_url=base) as client:
            answer = client.post("/answer", json={"question": "How is a mango?", "stream": False})
            assert answer.status_code == 200, answer.text
            assert "Sweet [1]." in answer.text


@pytest.fixture
def password_url(postgres, url):
    """Give the address for a user who may do everything and has to give a password."""
    rules = postgres.folder / "pg_hba.conf"
    before = rules.read_text()
    postgres.execute("CREATE ROLE keyed LOGIN SUPERUSER PASSWORD 's3cret@:/?#%'")
    rules.write_text("local all keyed scram-sha-256\n" + before)
    postgres.execute("SELECT pg_reload_conf()")
    try:
        yield url.replace("postgres:@", f"keyed:{quote('s3cret@:/?#%', safe='')}@")
    finally:
        rules.write_text(before)
        postgres.execute("SELECT pg_reload_conf()")
        postgres.execute("DROP ROLE keyed")


def ask(server, *calls):
    async def run():
        async with Client(server, read_timeout_seconds=60) as client:
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    return asyncio.run(run())


def test_mcp(url):
    found, documents, sources, info = ask(
        mcp.create_server(url),
        ("hybrid_query", {"query_text": "mango"}),
        ("get_source_documents", {"chunk_ids": ["mango.md#0"]}),
        ("answer_sources", {"question": "How is a mango?"}),
        ("corpus_info", {}),
    )
    for result in (found, documents, sources, info):
        assert not result.is_error, result.content[0].text
    expected = sqlrag.hybrid_query("mango", url)
    left_out = ("source_doc", "shown", "context_shown")
    rows = [{key: value for key, value in row.items() if key not in left_out} for row in expected]
    assert found.structured_content == {"results": plain(rows), "notices": expected.notices}
    assert "sweet fruit" in documents.content[0].text
    assert sources.structured_content["sources"]
    assert "hashing-64" in info.content[0].text


class TestCommandLine:
    def run(self, *arguments, code=0):
        done = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert done.exit_code == code, done.output + repr(done.exception)
        return done

    @pytest.mark.parametrize("name", ["hybrid-query", "vector-query", "lexical-query"])
    def test_queries(self, url, name):
        rows = json.loads(self.run(name, "mango", "--db", url, "--format", "json").stdout)
        expected = getattr(sqlrag, name.replace("-", "_"))("mango", url)
        found = rows["results"] if isinstance(rows, dict) else rows
        assert [row["node_id"] for row in found] == [row["node_id"] for row in expected]
        assert found

    def test_others(self, url, kb, tmp_path):
        assert "mango" in self.run("prompt", "How is a mango?", "--db", url).stdout
        self.run("check", url)
        assert "hashing-64" in self.run("info", url).stdout
        assert "sweet fruit" in self.run("get-source-documents", "mango.md#0", "--db", url).stdout
        self.run("pull", url, tmp_path / "pulled.duckdb")
        assert "already there" in self.run("push", kb, url).stdout
        self.run("delete", "notes.txt", "--db", url)
        with PostgresStore(url) as store:
            assert "notes.txt" not in {chunk.doc_id for chunk in store.chunks()}

    @pytest.mark.parametrize("command", [["compact"], ["map"], ["shell"], ["repair"]])
    def test_what_needs_a_file(self, password_url, command):
        done = self.run(*command, password_url, code=2)
        assert "sqlrag pull" in done.stderr
        assert "s3cret" not in done.output

    def test_conformance(self, postgres):
        assert "no difference" in self.run("conformance", "--postgres", postgres.url).stdout


def test_blocks_give_the_same_as_of_a_file(kb, url):
    plan = RetrievePlan(mode="vector", k=4)
    made = []
    for place in (Store(kb), PostgresStore(url)):
        with place as store:
            sets = [sqlrag.retrieve(text, plan, store) for text in ("mango fruit", "a pump")]
            fused = sqlrag.fuse(sets, method="rrf")
            ranked = sqlrag.rerank(
                "mango",
                fused,
                vectors=MODEL.embed([c.content for c in fused], kind="document"),
                query_vector=MODEL.embed(["mango"], kind="query")[0],
                diversity=0.5,
            )
            passages = sqlrag.compress("mango fruit", ranked, sqlrag.CompressPolicy(sentences=1), store=store)
            packed = sqlrag.package(ranked, query_text="mango")
            for row in (*passages, *packed):
                assert row.pop("created_at")  # when each store got it
            made.append(([(c.node_id, c.score) for c in ranked], list(passages), list(packed)))
    assert repr(made[0]) == repr(made[1])
    assert made[0][0]


class TestAddresses:
    @pytest.mark.parametrize(
        "url",
        [
            "postgresql://ann:s3/cret@h/kb",
            "postgresql://ann:s3#cret@h/kb",
            "postgresql://ann:s3?cret@h/kb",
            "postgresql://ann:12#cret@h/kb",
            "postgresql://ann:12?cret@h/kb",
            "postgresql://ann:12/cret@h/kb",
            "postgresql://ann:s3@cret@h/kb",
            "postgresql://ann:s3%zzcret@h/kb",
            "postgresql://ann:s3%00cret@h/kb",
            "postgresql://ann:s3\u2100cret@h/kb",
            "postgresql://ann:[cret@h/kb",
        ],
    )
    def test_a_password_that_is_misread_is_not_shown(self, url):
        for place in (PostgresStore, Address.of):
            with pytest.raises(InputError, match="cannot be read") as raised:
                place(url)
            told = str(raised.value) + repr(raised.value.__cause__)
            assert "cret" not in told
            assert "s3" not in told
            assert "12" not in told
            assert "%40 for @" in told

    @pytest.mark.parametrize(
        ("url", "conninfo", "shown"),
        [
            ("postgresql://h", "postgresql://h", "postgresql://h"),
            ("postgres://h/kb", "postgresql://h/kb", "postgresql://h/kb"),
            ("postgresql:///kb?host=/tmp/x", "postgresql:///kb?host=%2Ftmp%2Fx", "postgresql:///kb?host=/tmp/x"),
            ("postgresql://u:a%40b%3A@[::1]:5432/kb", "postgresql://u:a%40b%3A@[::1]:5432/kb", "postgresql://u@[::1]:5432/kb"),
            ("postgresql://h/kb?options=-c%20a%3D1+2", "postgresql://h/kb?options=-c%20a%3D1%2B2", None),
            ("postgresql://h/kb?schema=Team", "postgresql://h/kb", "postgresql://h/kb?schema=Team"),
        ],
    )  # fmt: skip
    def test_parts(self, url, conninfo, shown):
        found = Address.of(url)
        assert found.conninfo == conninfo
        assert shown in (None, found.shown)

    def test_options_reach_the_server(self, url):
        with PostgresStore(f"{url}&options=-c%20statement_timeout%3D4321ms") as store:
            ((found,),) = store._server.read(lambda con: con.execute("SHOW statement_timeout").fetchall())
        assert found == "4321ms"

    @pytest.mark.parametrize("schema", ['a"b', "a;drop", "a b", "pg_x", "", "a" * 64, "é"])
    def test_names_of_schemas_that_there_are_not(self, schema):
        with pytest.raises(InputError, match="letters, digits and _"):
            Address.of(f"postgresql://h/kb?schema={quote(schema)}")

    def test_passwords_are_cut_out_of_any_address(self):
        for url in ("postgresql://u:s3@cret/x@h/kb?schema=x", "postgresql://u@h/kb?password=s3cret&schema=x"):
            assert without_password(url) == "postgresql://u@h/kb?schema=x"


class TestHardServers:
    def test_two_stores_of_different_dimensions_and_letters(self, postgres_url):
        other = postgres_url + "_Upper"
        for place, dimensions in ((postgres_url, 3), (other, 5)):
            with PostgresStore.create(place, dimensions) as store:
                store.upsert([Document("a.md", "a")], [Chunk("a.md", 0, "a")], np.eye(dimensions)[:1])
        for place, dimensions in ((postgres_url, 3), (other, 5)):
            with PostgresStore(place) as store:
                assert len(store.vector_query("a", query_vector=np.eye(dimensions)[0])) == 1
        assert PostgresStore.drop(other)
        assert not PostgresStore.drop(other)
        PostgresStore(postgres_url).close()

    def test_users_without_rights(self, postgres, url):
        schema = url.rpartition("=")[2]
        postgres.execute("CREATE ROLE guest LOGIN")
        guest = url.replace("postgres:@", "guest@")
        try:
            with pytest.raises(StoreError, match="permission denied"):
                PostgresStore(guest)
            with pytest.raises(StoreError, match=r"permission denied.*Nothing was created"):
                PostgresStore.create(guest + "_new", 3)
            postgres.execute(f"GRANT USAGE ON SCHEMA {schema} TO guest")
            postgres.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO guest")
            with PostgresStore(guest) as store:
                assert store.hybrid_query("mango")
            with PostgresStore(guest, read_only=False) as store, pytest.raises(StoreError, match="permission denied"):
                store.upsert([Document("a.md", "a")], [Chunk("a.md", 0, "a")], np.ones((1, 64)))
            with pytest.raises(StoreError, match=r"must be owner.*Nothing was removed"):
                PostgresStore.drop(guest)
        finally:
            postgres.execute("DROP OWNED BY guest")
            postgres.execute("DROP ROLE guest")

    def test_pgvector_in_a_schema_of_its_own(self, postgres, kb):
        postgres.execute("CREATE DATABASE apart TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER builtin "
                         "BUILTIN_LOCALE 'C.UTF-8' LC_COLLATE 'C' LC_CTYPE 'C'")  # fmt: skip
        url = postgres.url.replace("/tests?", "/apart?")
        try:
            import psycopg

            with psycopg.connect(url, autocommit=True) as con:
                con.execute('CREATE SCHEMA "Ext"')
                con.execute('CREATE EXTENSION vector SCHEMA "Ext"')
            push(kb, url, progress="off")
            with PostgresStore(url) as store:
                assert store.hybrid_query("mango")
                assert store.check() == []
        finally:
            postgres.execute("DROP DATABASE apart WITH (FORCE)")

    def test_more_threads_than_connections(self, url):
        found, errors = [], []
        with PostgresStore(url) as store:

            def search():
                try:
                    found.append([row["node_id"] for row in store.hybrid_query("mango pump")])
                except Exception as error:
                    errors.append(error)

            threads = [threading.Thread(target=search) for _ in range(30)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert errors == []
        assert len(found) == 30
        assert all(one == found[0] for one in found)


class TestServerGone:
    def test_a_server_that_is_down_is_503_and_well_again_after_a_restart(self, kb, postgres, url):
        with client_of(url) as client:
            assert client.post("/lexical_query", json={"query_text": "mango"}).status_code == 200
            postgres.kill()
            try:
                answer = client.post("/lexical_query", json={"query_text": "mango"})
                assert answer.status_code == 503, answer.text
                assert answer.headers["content-type"] == PROBLEM
            finally:
                postgres.restart()
            assert client.post("/lexical_query", json={"query_text": "mango"}).status_code == 200
