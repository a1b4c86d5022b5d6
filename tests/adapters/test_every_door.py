"""Every way to ask, with every kind of store: the answer of the Python function, or an error that says why not."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
from mcp.client.client import Client
from starlette.testclient import TestClient
from typer.testing import CliRunner

import sqlrag
from sqlrag import InputError, PostgresStore, RetrievePlan, Store, Stores, merge, open_store, push
from sqlrag.adapters import mcp, rest, server
from sqlrag.adapters.rest.config import ServerOptions
from sqlrag.answers.answer import prepare_prompt
from sqlrag.answers.chat_models import Piece
from sqlrag.cli import app
from tests.support.chat_server import ChatServer, serving
from tests.support.helpers import build

pytestmark = pytest.mark.every

FRUIT = {
    "mango_md": "---\ntags: [fruit]\nyear: 2024\n---\n# Mango\n\nThe mango is a sweet fruit. It is eaten fresh.\n",
    "lychee_md": "---\ntags: [fruit]\n---\n# Lychee\n\nA fruit beside the mango.\n",
}
MACHINES = {
    "guides__pump_md": "---\ntags: [machine]\nyear: 2023\n---\n# Pump\n\n## Repair\n\nA new seal for the pump.\n",
    "notes_txt": "A shopping list: mango, lychee and a pump.\n",
}
QUESTION = "mango pump"
CHUNK = "mango.md#0"
JUDGED = [{"query": QUESTION, "relevant": ["mango.md"]}]

KINDS = (
    "path as text",
    "Path",
    "open Store",
    "list of files",
    "open Stores",
    "open PostgresStore",
    "URL of Postgres",
)
SEVERAL = ("list of files", "open Stores")
POSTGRES = ("open PostgresStore", "URL of Postgres")


# The stores: two files, one of all their documents, and that one in Postgres.


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kb")
    one = build(folder, "fruit.duckdb", folder="fruit", **FRUIT)
    two = build(folder, "machines.duckdb", folder="machines", **MACHINES)
    whole = merge([one, two], folder / "whole.duckdb").path
    # What says what is right stays open, while some doors write.
    copy = shutil.copy(whole, folder / "copy.duckdb")
    return {"one": Path(one), "two": Path(two), "whole": Path(whole), "copy": Path(copy)}


@pytest.fixture(scope="module")
def url(files, postgres):
    address = postgres.new_url()
    push(files["whole"], address, progress="off")
    yield address
    postgres.drop(address)


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def place(kind, files, request):
    """Give a store of the kind."""
    several = [files["one"], files["two"]]
    if kind in POSTGRES:
        url = request.getfixturevalue("url")
        store = PostgresStore(url) if kind == "open PostgresStore" else None
    else:
        url, store = None, {"open Store": Store, "open Stores": Stores}.get(kind)
        store = store and store(several if kind in SEVERAL else files["whole"])
    places = {"path as text": str(files["whole"]), "Path": files["whole"], "list of files": several}
    yield store or url or places[kind]
    if store:
        store.close()


@pytest.fixture
def where(kind, place):
    """Give a store of the kind; what was open is to be open afterwards."""
    yield place
    if kind.startswith("open"):
        assert place.lexical_query(QUESTION)


@pytest.fixture(scope="module")
def reference(kind, files, request):
    """Give an open store of the same content, whose methods say what is right."""
    store = PostgresStore(request.getfixturevalue("url")) if kind in POSTGRES else Store(files["copy"])
    with store:
        yield store


AROUND = {"context": "section", "context_chars": 60}
TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ")
AROUND_FIELDS = ("node_id", "text", "i_start", "i_end", "context", "context_start", "context_end", "tags")


def around(results):
    """Return what is around each result, and what else every surface says of it."""
    assert all(TIME.fullmatch(row["created_at"]) for row in results)  # each store has its own
    return [[row[name] for name in AROUND_FIELDS] for row in results]


def ranked(results):
    return [(row["node_id"], row["score"]) for row in results]


def found(candidates):
    return [(one.node_id, one.score) for one in candidates]


def plain(value):
    return json.loads(json.dumps(value))


# Python.


class FirstSource:
    """A chat model that cites the first source."""

    model_name = "first"

    def chat(self, _messages, **_options):
        yield Piece("It is sweet [1].", "stop")


def sources(answer):
    return [(one["node_id"], one["score"]) for one in answer.sources]


def metadata(told):
    return {name: told["embedding"][name] for name in ("model", "dimensions")}, told["chunks"]["total_chunks"]


def compressed(store, where):
    policy = sqlrag.CompressPolicy(neighbours=1)
    return list(sqlrag.compress(QUESTION, store.retrieve(QUESTION, RetrievePlan(k=3)), policy, store=where))


def opened(where):
    with open_store(where) as store:
        return ranked(store.hybrid_query(QUESTION))


def explained(told):
    return told.rank, told.score, told.lexical.bm25


def evaluated(where):
    pytest.importorskip("ir_measures", reason="needs ir-measures, of the extra explore")
    return sqlrag.evaluate(JUDGED, where, ["lexical", "rrf"], progress="off").ranked


def recommended(where):
    pytest.importorskip("ir_measures", reason="needs ir-measures, of the extra explore")
    judged = [*JUDGED, {"query": "seal", "relevant": ["guides/pump.md"]}]
    return sqlrag.recommend(judged, where, progress="off").to_dict()


def headings(where):
    with open_store(where) as store:
        return sorted(store.select("evaluating/headings"))


# What each is asked, and what the open store says to that.
PYTHON = {
    "hybrid_query": (lambda at: ranked(sqlrag.hybrid_query(QUESTION, at)), lambda s: ranked(s.hybrid_query(QUESTION))),
    "vector_query": (lambda at: ranked(sqlrag.vector_query(QUESTION, at)), lambda s: ranked(s.vector_query(QUESTION))),
    "lexical_query": (
        lambda at: ranked(sqlrag.lexical_query(QUESTION, at)),
        lambda s: ranked(s.lexical_query(QUESTION)),
    ),
    "ahybrid_query": (
        lambda at: ranked(asyncio.run(sqlrag.ahybrid_query(QUESTION, at))),
        lambda s: ranked(s.hybrid_query(QUESTION)),
    ),
    "avector_query": (
        lambda at: ranked(asyncio.run(sqlrag.avector_query(QUESTION, at))),
        lambda s: ranked(s.vector_query(QUESTION)),
    ),
    "alexical_query": (
        lambda at: ranked(asyncio.run(sqlrag.alexical_query(QUESTION, at))),
        lambda s: ranked(s.lexical_query(QUESTION)),
    ),
    "context of hybrid_query": (
        lambda at: around(sqlrag.hybrid_query(QUESTION, at, **AROUND)),
        lambda s: around(s.hybrid_query(QUESTION, **AROUND)),
    ),
    "context of retrieve": (
        lambda at: [vars(one) for one in sqlrag.retrieve(QUESTION, RetrievePlan(k=3, **AROUND), at)],
        lambda s: [vars(one) for one in s.retrieve(QUESTION, RetrievePlan(k=3, **AROUND))],
    ),
    "context of prepare_prompt": (
        lambda at: prepare_prompt(QUESTION, at, plan=RetrievePlan(fusion="adaptive", **AROUND))[0].user,
        lambda s: prepare_prompt(QUESTION, s, plan=RetrievePlan(fusion="adaptive", **AROUND))[0].user,
    ),
    "open_store": (opened, lambda s: ranked(s.hybrid_query(QUESTION))),
    "retrieve": (
        lambda at: found(sqlrag.retrieve(QUESTION, None, at)),
        lambda s: found(s.retrieve(QUESTION, RetrievePlan())),
    ),
    "aretrieve": (
        lambda at: found(asyncio.run(sqlrag.aretrieve(QUESTION, None, at))),
        lambda s: found(s.retrieve(QUESTION, RetrievePlan())),
    ),
    "highlight": (
        lambda at: sqlrag.highlight("mangos", ["a mango"], at),
        lambda s: s.highlight("mangos", ["a mango"]),
    ),
    "get_source_documents": (
        lambda at: sqlrag.get_source_documents([CHUNK], at),
        lambda s: s.get_source_documents([CHUNK]),
    ),
    "aget_source_documents": (
        lambda at: asyncio.run(sqlrag.aget_source_documents([CHUNK], at)),
        lambda s: s.get_source_documents([CHUNK]),
    ),
    "get_embedding_metadata": (
        lambda at: metadata(sqlrag.get_embedding_metadata(at)),
        lambda s: metadata(s.get_embedding_metadata()),
    ),
    "aget_embedding_metadata": (
        lambda at: metadata(asyncio.run(sqlrag.aget_embedding_metadata(at))),
        lambda s: metadata(s.get_embedding_metadata()),
    ),
    "validate_embedding_model": (lambda at: sqlrag.validate_embedding_model(at, "hashing-64", 64), lambda _: True),
    "answer": (
        lambda at: sources(sqlrag.answer(QUESTION, at, chat_model=FirstSource())),
        lambda s: found(s.retrieve(QUESTION, RetrievePlan(fusion="adaptive"))),
    ),
    "aanswer": (
        lambda at: sources(asyncio.run(sqlrag.aanswer(QUESTION, at, chat_model=FirstSource()))),
        lambda s: found(s.retrieve(QUESTION, RetrievePlan(fusion="adaptive"))),
    ),
    "prepare_prompt": (
        lambda at: sources(prepare_prompt(QUESTION, at)[0]),
        lambda s: found(s.retrieve(QUESTION, RetrievePlan(fusion="adaptive"))),
    ),
    "evaluate": (evaluated, evaluated),
    "recommend": (recommended, recommended),
    "headings of evaluate": (headings, headings),
}


@pytest.mark.parametrize("surface", PYTHON)
def test_python(surface, where, reference):
    ask, expect = PYTHON[surface]
    expected = expect(reference)
    assert expected
    assert ask(where) == expected


def test_compress_reads_neighbours_of_every_kind(where, reference):
    assert compressed(reference, where) == compressed(reference, reference)


@contextmanager
def refused_where_it_has_to_be():
    """Expect the sentence that says why several files explain nothing, and what to do instead."""
    with pytest.raises(InputError, match=r"(?s)in one file.*sqlrag merge"):
        yield


def test_explain(kind, where, reference):
    if kind in SEVERAL:
        with refused_where_it_has_to_be():
            sqlrag.explain(QUESTION, CHUNK, where)
        return
    assert explained(sqlrag.explain(QUESTION, CHUNK, where)) == explained(reference.explain(QUESTION, CHUNK))


def test_several_files_are_not_written_to(kind, where, files):
    change = [lambda: sqlrag.delete_documents(where, doc_ids="none.md"), lambda: sqlrag.index([], where)]
    if kind in SEVERAL:
        for call in change:
            with pytest.raises(InputError, match="several files"):
                call()
    elif kind in ("path as text", "Path", "URL of Postgres"):
        assert change[0]().unknown == ["none.md"]
        change[1]()
    assert len(sqlrag.lexical_query(QUESTION, files["whole"])) == 4


@pytest.mark.parametrize("value", [7, None, object(), Store, b"kb.duckdb", ""])
def test_what_is_no_store_is_refused_with_what_is(value):
    with pytest.raises(InputError, match="must be a"), open_store(value):
        pass
    with pytest.raises(InputError, match="must be a"):
        sqlrag.hybrid_query(QUESTION, value)


# The command line, where an open store is named by its place.


def named(kind, where, url):
    if kind == "URL of Postgres" or kind == "open PostgresStore":
        return [url]
    if isinstance(where, (Store, Stores)):
        return [str(path) for path in where.paths]
    return [str(path) for path in (where if isinstance(where, list) else [where])]


@pytest.fixture
def names(kind, where, request):
    return named(kind, where, request.getfixturevalue("url") if kind in POSTGRES else None)


def run(*arguments):
    """Return what a command prints as JSON, or raise what it says."""
    done = CliRunner().invoke(app, [*map(str, arguments), "--format", "json"])
    if done.exit_code:
        raise InputError(" ".join(done.stderr.split()))
    return json.loads(done.stdout)


def with_db(names):
    return [part for name in names for part in ("--db", name)]


COMMANDS = {
    **{
        f"{mode}-query": (
            lambda at, mode=mode: ranked(run(f"{mode}-query", QUESTION, *with_db(at))),
            lambda s, mode=mode: ranked(getattr(s, f"{mode}_query")(QUESTION)),
        )
        for mode in ("hybrid", "vector", "lexical")
    },
    "context of hybrid-query": (
        lambda at: around(run("hybrid-query", QUESTION, *with_db(at), "--context", "section", "--context-chars", 60)),
        lambda s: around(s.hybrid_query(QUESTION, **AROUND)),
    ),
    "get-source-documents": (
        lambda at: [one["text"] for one in run("get-source-documents", CHUNK, *with_db(at))],
        lambda s: [one["text"] for one in s.get_source_documents([CHUNK])],
    ),
    "info by --db": (lambda at: metadata(run("info", *with_db(at))), lambda s: metadata(s.get_embedding_metadata())),
    "info": (lambda at: metadata(run("info", *at)), lambda s: metadata(s.get_embedding_metadata())),
    "prompt": (
        lambda at: [one["node_id"] for one in run("prompt", QUESTION, *with_db(at))["sources"]],
        lambda s: [one.node_id for one in s.retrieve(QUESTION, RetrievePlan(fusion="adaptive"))],
    ),
}


@pytest.mark.parametrize("surface", COMMANDS)
def test_commands(surface, names, reference):
    ask, expect = COMMANDS[surface]
    expected = plain(expect(reference))
    assert expected
    assert plain(ask(names)) == expected


@pytest.mark.slow
def test_sqlrag_ask(names, reference):
    with serving(ChatServer("Sweet [1].")) as base:
        told = run("ask", QUESTION, *with_db(names), "--chat-model", "m", "--base-url", base)
    assert [one["node_id"] for one in told["sources"]] == [
        one.node_id for one in reference.retrieve(QUESTION, RetrievePlan(fusion="adaptive"))
    ]


def test_sqlrag_evaluate(names, reference, tmp_path):
    pytest.importorskip("ir_measures", reason="needs ir-measures, of the extra explore")
    (tmp_path / "judged.jsonl").write_text("\n".join(map(json.dumps, JUDGED)))
    rows = run("evaluate", tmp_path / "judged.jsonl", *with_db(names), "--plan", "rrf")
    expected = sqlrag.evaluate(JUDGED, reference, ["rrf"], progress="off").rows()
    assert rows == plain(expected)


def test_sqlrag_explain(kind, names, reference):
    if kind in SEVERAL:
        with refused_where_it_has_to_be():
            run("explain", QUESTION, CHUNK, *with_db(names))
        return
    assert run("explain", QUESTION, CHUNK, *with_db(names))["score"] == reference.explain(QUESTION, CHUNK).score


# REST.


def ask_rest(application, path, body=None):
    with TestClient(application, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        answer = client.get(path) if body is None else client.post(path, json=body)
    if answer.status_code != 200:
        raise InputError(answer.json()["detail"])
    return answer.json()


def check_rest(application, reference):
    """Compare every route that reads with the open store, but for explain."""
    with TestClient(application, base_url="http://127.0.0.1") as client:

        def post(path, **body):
            answer = client.post(path, json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()

        for mode in ("hybrid", "vector", "lexical"):
            expected = ranked(getattr(reference, f"{mode}_query")(QUESTION))
            assert ranked(post(f"/{mode}_query", query_text=QUESTION)["results"]) == expected
            found_around = around(getattr(reference, f"{mode}_query")(QUESTION, **AROUND))
            assert around(post(f"/{mode}_query", query_text=QUESTION, **AROUND)["results"]) == found_around
        node_ids = [row["node_id"] for row in reference.lexical_query(QUESTION)]
        snippets = post("/snippets", query_text=QUESTION, node_ids=node_ids)["snippets"]
        wanted = reference.snippets(QUESTION, node_ids)
        assert [[one["text"], one["spans"]] for one in snippets] == plain(wanted)
        answer = post("/retrieve", query=QUESTION, plan={"k": 3})
        assert [(one["node_id"], one["score"]) for one in answer["candidates"]] == found(
            reference.retrieve(QUESTION, RetrievePlan(k=3))
        )
        spans = post("/highlight", query_text="mangos", texts=["a mango"])["spans"]
        assert spans == plain(reference.highlight("mangos", ["a mango"]))
        documents = post("/get_source_documents", chunk_ids=[CHUNK])["documents"]
        assert [one["text"] for one in documents] == [one["text"] for one in reference.get_source_documents([CHUNK])]
        told = client.get("/get_embedding_metadata").json()
        assert metadata(told) == metadata(reference.get_embedding_metadata())
        facets = client.get("/facets").json()
        assert facets["tags"] == [{"name": "fruit", "chunks": 2}, {"name": "machine", "chunks": 1}]
        assert facets["collections"] == [{"name": "default", "chunks": 4}]
        assert client.get("/passage", params={"node_id": CHUNK}).json()["node_id"] == CHUNK
        pages = [client.get("/documents", params={"limit": 3}).json()]
        pages.append(client.get("/documents", params={"limit": 3, "after": pages[0]["next"]}).json())
        listed = [one["doc_id"] for page in pages for one in page["documents"]]
        assert listed == ["guides/pump.md", "lychee.md", "mango.md", "notes.txt"]
        assert client.get("/documents/mango.md").json()["text"] == reference.sources(["mango.md"])["mango.md"]["text"]
        assert client.get("/health").status_code == 200


@pytest.mark.slow
def test_rest(where, reference):
    check_rest(rest.create_app(where), reference)


def test_rest_answers(where, reference):
    with serving(ChatServer("Sweet [1].")) as base:
        application = rest.create_app(where, ServerOptions(chat_model="m", chat_base_url=base))
        told = ask_rest(application, "/answer", {"question": QUESTION, "stream": False})
    assert [one["node_id"] for one in told["sources"]] == [
        one.node_id for one in reference.retrieve(QUESTION, RetrievePlan(fusion="adaptive"))
    ]


def test_rest_explains(kind, where, reference):
    body = {"query_text": QUESTION, "node_id": CHUNK}
    if kind in SEVERAL:
        with refused_where_it_has_to_be():
            ask_rest(rest.create_app(where), "/explain", body)
        return
    assert ask_rest(rest.create_app(where), "/explain", body)["score"] == reference.explain(QUESTION, CHUNK).score


def test_rest_exports_one_store(kind, where):
    with TestClient(rest.create_app(where), base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        answer = client.post("/export_ragmd", json={})
        assert answer.status_code == (422 if kind in SEVERAL else 200), answer.text
        assert ("sqlrag merge" if kind in SEVERAL else "mango") in answer.text


def test_rest_changes_one_store(kind, where):
    application = rest.create_app(where, ServerOptions(write=True))
    if kind in SEVERAL:
        with pytest.raises(InputError, match="several files"), TestClient(application):
            pass
    elif kind in ("path as text", "Path", "URL of Postgres"):
        assert ask_rest(application, "/delete_documents", {"doc_ids": ["none.md"]})["unknown"] == ["none.md"]
    else:  # which is open for reading
        with pytest.raises(InputError, match="reading only"):
            ask_rest(application, "/delete_documents", {"doc_ids": ["mango.md"]})


@pytest.mark.slow
def test_rest_has_maps_of_a_file(kind, where):
    with pytest.raises(InputError, match="map"):
        ask_rest(rest.create_app(where), "/map")


@pytest.mark.slow
def test_sqlrag_serve(names, reference, monkeypatch):
    served = []
    monkeypatch.setattr(server, "run", lambda application, *_, **__: served.append(application))
    assert CliRunner().invoke(app, ["serve", *names]).exit_code == 0
    check_rest(served[0], reference)


# MCP.


def ask_mcp(server, tool, **arguments):
    async def call():
        async with Client(server) as client:
            return await client.call_tool(tool, arguments)

    done = asyncio.run(call())
    if done.is_error:
        raise InputError(done.content[0].text)
    return done.structured_content


def check_mcp(server, reference):
    results = ask_mcp(server, "hybrid_query", query_text=QUESTION)["results"]
    assert ranked(results) == ranked(reference.hybrid_query(QUESTION))
    results = ask_mcp(server, "hybrid_query", query_text=QUESTION, **AROUND)["results"]
    assert around(results) == around(reference.hybrid_query(QUESTION, **AROUND))
    documents = ask_mcp(server, "get_source_documents", chunk_ids=[CHUNK])["documents"]
    assert [one["text"] for one in documents] == [one["text"] for one in reference.get_source_documents([CHUNK])]
    told = ask_mcp(server, "answer_sources", question=QUESTION)["sources"]
    assert [(one["node_id"], one["score"]) for one in told] == found(
        reference.retrieve(QUESTION, RetrievePlan(fusion="adaptive"))
    )
    corpus = ask_mcp(server, "corpus_info")
    assert metadata(corpus) == metadata(reference.get_embedding_metadata())
    assert [(one["name"], one["documents"], one["chunks"]) for one in corpus["tags"]] == [
        ("fruit", 2, 2),
        ("machine", 1, 1),
    ]


def test_mcp(where, reference):
    check_mcp(mcp.create_server(where), reference)


def test_sqlrag_mcp(names, reference, monkeypatch):
    served = []
    monkeypatch.setattr("sqlrag.adapters.mcp.host.StrictServer.run", lambda server, _: served.append(server))
    assert CliRunner().invoke(app, ["mcp", *names]).exit_code == 0
    check_mcp(served[0], reference)


# The frameworks.


def of_nodes(nodes):
    return [(one.node.node_id, one.score) for one in nodes]


def test_retriever_of_llama_index(where, reference):
    from llama_index.core.schema import MetadataMode

    from sqlrag.adapters.llama_index import SqlragRetriever

    retriever = SqlragRetriever(where, top_k=3)
    expected = ranked(reference.hybrid_query(QUESTION, top_k=3))
    assert of_nodes(retriever.retrieve(QUESTION)) == expected
    assert of_nodes(asyncio.run(retriever.aretrieve(QUESTION))) == expected
    found = [one.node for one in SqlragRetriever(where, top_k=3, **AROUND).retrieve(QUESTION)]
    contexts = [row["context"] for row in reference.hybrid_query(QUESTION, top_k=3, **AROUND)]
    assert [node.metadata["context"] for node in found] == contexts
    assert not any("context_start" in node.get_content(MetadataMode.LLM) for node in found)


def test_vector_store_of_llama_index(kind, where, reference):
    from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

    from sqlrag.adapters.llama_index import SqlragIndex, SqlragVectorStore

    is_open = kind.startswith("open")
    given = {"client" if is_open else "path": where}
    if kind in SEVERAL:
        with pytest.raises(InputError, match=r"one file.*SqlragRetriever searches several"):
            SqlragVectorStore(**given)
        return
    store = SqlragVectorStore(**given)
    for mode in (VectorStoreQueryMode.HYBRID, VectorStoreQueryMode.TEXT_SEARCH):
        asked = VectorStoreQuery(query_str=QUESTION, similarity_top_k=3, mode=mode)
        answer = store.query(asked)
        name = "hybrid_query" if mode is VectorStoreQueryMode.HYBRID else "lexical_query"
        expected = ranked(getattr(reference, name)(QUESTION, top_k=3))
        assert list(zip(answer.ids, answer.similarities, strict=True)) == expected
    contexts = [row["context"] for row in reference.lexical_query(QUESTION, top_k=3, **AROUND)]
    assert [node.metadata["context"] for node in store.query(asked, **AROUND).nodes] == contexts
    if is_open:
        with pytest.raises(InputError, match="client"):
            SqlragIndex.from_path(where)
    else:
        nodes = SqlragIndex.from_path(where).as_retriever(similarity_top_k=3).retrieve(QUESTION)
        assert of_nodes(nodes) == ranked(reference.vector_query(QUESTION, top_k=3))


@pytest.mark.parametrize("mode", ["hybrid", "vector", "lexical"])
def test_retriever_of_langchain(mode, where, reference):
    pytest.importorskip("langchain_core", reason="needs LangChain, of the extra langchain")
    from sqlrag.adapters.langchain import SqlragRetriever

    retriever = SqlragRetriever(db_path=where, mode=mode, k=3)
    expected = ranked(getattr(reference, f"{mode}_query")(QUESTION, top_k=3))
    for documents in (retriever.invoke(QUESTION), asyncio.run(retriever.ainvoke(QUESTION))):
        assert [(one.id, one.metadata["score"]) for one in documents] == expected
    contexts = [row["context"] for row in getattr(reference, f"{mode}_query")(QUESTION, top_k=3, **AROUND)]
    assert [one.metadata["context"] for one in retriever.invoke(QUESTION, **AROUND)] == contexts
