"""Names and ids in both Unicode forms: stored composed, found by either, everywhere; and arguments nobody takes."""

from __future__ import annotations

import asyncio
import json
import unicodedata

import numpy as np
import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQuery
from mcp.client.client import Client
from pydantic import BaseModel, ValidationError
from starlette.testclient import TestClient
from typer.testing import CliRunner

import sqlrag
from sqlrag import Chunk, Document, InputError, RetrievePlan, Store, Stores
from sqlrag.adapters import langchain, llama_index, mcp
from sqlrag.adapters.llama_index import SqlragIndex, SqlragVectorStore
from sqlrag.adapters.rest import create_app
from sqlrag.adapters.rest.config import ServerOptions
from sqlrag.cli import app
from tests.support.helpers import HASHING, build, ids, write


def composed(text):
    return unicodedata.normalize("NFC", text)


def decomposed(text):
    return unicodedata.normalize("NFD", text)


COLLECTION, TAG, FIELD, VALUE = "grün", "café", "größe", "학점"
PAGE = f"{COLLECTION}:ü/ö.md"
CHUNK = f"{PAGE}#0"
WORDS = {"mode": "lexical"}
TEXT = f"---\ntags: [{TAG}]\n{FIELD}: {VALUE}\n---\n# T\n\nkiwi [there](%C3%A4.md) [also](a%CC%88.md)\n"

FORMS = pytest.mark.parametrize("form", [composed, decomposed])


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kb")
    return build(folder, options={"collection": decomposed(COLLECTION)}, ü__ö_md=TEXT, ü__ä_md="# U\n\nother\n")


def rest(file, method, path, **how):
    with TestClient(
        create_app(file, ServerOptions()), base_url="http://127.0.0.1", raise_server_exceptions=False
    ) as client:
        return client.request(method, path, **how).json()


def rest_rows(file, **options):
    found = rest(file, "POST", "/lexical_query", json={"query_text": "kiwi", **options})
    return [row["node_id"] for row in found["results"]]


def called(file, name, arguments):
    async def ask():
        async with Client(mcp.create_server(file)) as client:
            return await client.call_tool(name, arguments)

    return asyncio.run(ask())


def mcp_rows(file, **options):
    found = called(file, "hybrid_query", {"query_text": "kiwi", **options})
    assert not found.is_error, found
    return [row["node_id"] for row in found.structured_content["results"]][:1]


def command(*arguments):
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.output


def with_store(kind):
    def search(file, **options):
        with kind(file) as store:
            return ids(store.lexical_query("kiwi", **options))

    return search


def command_rows(file, **options):
    names = {"collection": "--collection", "tags_any": "--tag", "tags_all": "--tags-all", "metadata": "--metadata"}
    given = []
    for name, value in options.items():
        text = value if isinstance(value, str) else value[0] if isinstance(value, list) else "=".join(*value.items())
        given += [names[name], text]
    return ids(json.loads(command("lexical-query", "kiwi", "--db", file, "--format", "json", *given)))


SEARCHES = {
    "function": lambda file, **options: ids(sqlrag.lexical_query("kiwi", file, **options)),
    "hybrid": lambda file, **options: ids(sqlrag.hybrid_query("kiwi", file, **options))[:1],
    "vector": lambda file, **options: ids(sqlrag.vector_query("kiwi", file, **options))[:1],
    "Store": with_store(Store),
    "Stores": with_store(lambda file: Stores([file])),
    "retrieve": lambda file, **options: [
        one.node_id for one in sqlrag.retrieve("kiwi", RetrievePlan(k=1, **options), file)
    ],
    "REST": rest_rows,
    "MCP": mcp_rows,
    "LangChain": lambda file, **options: [
        one.id for one in langchain.SqlragRetriever(db_path=file, mode="lexical", search_kwargs=options).invoke("kiwi")
    ],
    "llama-index": lambda file, **options: [
        one.node.node_id for one in llama_index.SqlragRetriever(file, top_k=1, **options).retrieve("kiwi")
    ],
    "command": command_rows,
}


@FORMS
@pytest.mark.parametrize(
    "options",
    [{"collection": COLLECTION}, {"tags_any": [TAG]}, {"tags_all": [TAG]}, {"metadata": {FIELD: VALUE}}],
    ids=["collection", "tags_any", "tags_all", "metadata"],
)
@pytest.mark.parametrize("surface", SEARCHES)
def test_fault_S21_a_filter_is_met_in_either_form(file, surface, options, form):
    def formed(value):
        if isinstance(value, dict):
            return {form(key): formed(one) for key, one in value.items()}
        return [form(one) for one in value] if isinstance(value, list) else form(value)

    given = {name: formed(value) for name, value in options.items()}
    assert SEARCHES[surface](file, **given) == [CHUNK]


def exported(file, **options):
    back = file.with_name("back.duckdb")
    sqlrag.export_ragmd(file, file.with_name("out.ragmd"), overwrite=True, **options)
    sqlrag.import_ragmd(file.with_name("out.ragmd"), back, overwrite=True)
    return ids(sqlrag.lexical_query("kiwi", back))


def many(file, ask):
    with Stores([file]) as stores:
        return ask(stores)


def opened(file, ask):
    with Store(file) as store:
        return ask(store)


# By their name: what is asked for by a name or an id, and what it gives.
LOOK_UPS = {
    "get_source_documents": lambda file, form: sqlrag.get_source_documents([form(CHUNK)], file)[0]["doc_id"] == PAGE,
    "get_source_documents of several": lambda file, form: (
        many(file, lambda s: s.get_source_documents([form(CHUNK)]))[0]["doc_id"] == PAGE
    ),
    "explain": lambda file, form: sqlrag.explain("kiwi", form(CHUNK), file).rank == 1,
    "sources": lambda file, form: list(opened(file, lambda s: s.sources([form(PAGE)]))) == [PAGE],
    "checksums": lambda file, form: list(opened(file, lambda s: s.checksums([form(PAGE)]))) == [PAGE],
    "chunks_at": lambda file, form: ids_of(opened(file, lambda s: s.chunks_at([(form(PAGE), 0)]))) == [CHUNK],
    "chunks": lambda file, form: ids_of(opened(file, lambda s: s.chunks(node_ids=[form(CHUNK)]))) == [CHUNK],
    "vectors": lambda file, form: opened(file, lambda s: s.vectors([form(CHUNK)])).shape == (1, 64),
    "vectors of several": lambda file, form: many(file, lambda s: s.vectors([form(CHUNK)])).shape == (1, 64),
    "files_of": lambda file, form: many(file, lambda s: list(s.files_of([form(CHUNK)]))) == [CHUNK],
    "$doc_id": lambda file, form: ids(sqlrag.lexical_query("kiwi", file, metadata={"$doc_id": form(PAGE)})) == [CHUNK],
    "$node_id": lambda file, form: (
        ids(sqlrag.lexical_query("kiwi", file, metadata={"$node_id": {"$in": [form(CHUNK)]}})) == [CHUNK]
    ),
    "export": lambda file, form: exported(file, collection=form(COLLECTION), tags_any=[form(TAG)]) == [CHUNK],
    "evaluate": lambda file, form: (
        sqlrag.evaluate([{"query": "kiwi", "relevant": [form(PAGE)]}], file, plans={"words": WORDS}).notices == []
    ),
    "REST document": lambda file, form: rest(file, "GET", f"/documents/{form(PAGE)}")["doc_id"] == PAGE,
    "REST documents": lambda file, form: len(
        rest(file, "GET", "/documents", params={"collection": form(COLLECTION)})["documents"]
    ) == 2,
    "llama-index nodes": lambda file, form: (
        [one.node_id for one in SqlragVectorStore(file).get_nodes([form(CHUNK)])] == [CHUNK]
    ),
    "llama-index query": lambda file, form: SqlragVectorStore(file).query(
        VectorStoreQuery(
            query_embedding=[1.0] * 64,
            doc_ids=[form(PAGE)],
            filters=MetadataFilters(filters=[MetadataFilter(key=form(FIELD), value=form(VALUE))]),
        )
    ).ids == [CHUNK],
}  # fmt: skip


def ids_of(found):
    return [one.node_id for one in found]


@FORMS
@pytest.mark.parametrize("what", LOOK_UPS)
def test_fault_S21_a_name_is_found_in_either_form(file, what, form):
    assert LOOK_UPS[what](file, form)


@FORMS
def test_fault_S21_links_in_either_form_are_whole(file, form):
    with Store(file) as store:
        assert (
            store.cursor().execute("SELECT target, broken FROM links ORDER BY ALL").fetchall()
            == [(f"{COLLECTION}:ü/ä.md", False)] * 2
        )


@FORMS
@pytest.mark.parametrize("pattern", ["*학점*", "ü/*", "**/학점.md"])
def test_fault_S21_patterns_in_either_form(tmp_path, pattern, form):
    write(tmp_path / "docs", ü__학점_md="kiwi")
    sqlrag.prepare_embeddings(
        tmp_path / "docs", tmp_path / "kb.duckdb", patterns=[form(pattern)], verbose=False, **HASHING
    )
    assert ids(sqlrag.lexical_query("kiwi", tmp_path / "kb.duckdb")) == ["ü/학점.md#0"]


WRITES = {
    "index": lambda store, chunk, vector: store.index([chunk], vectors=[vector]),
    "add_chunks": lambda store, chunk, vector: store.add_chunks([chunk], vectors=[vector]),
    "upsert": lambda store, chunk, vector: store.upsert(
        [Document(chunk.doc_id, chunk.content, collection=chunk.collection, tags=chunk.tags)], [chunk], [vector]
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WRITES)
def test_fault_S21_names_of_a_program_are_stored_once(tmp_path, way):
    with Store.create(tmp_path / "kb.duckdb", 4) as store:
        for form in (composed, decomposed):
            chunk = Chunk(
                form("ü.md"), 0, "kiwi", tags=(form(TAG),), collection=form(COLLECTION), given_id=form("ï"),
                metadata={form(FIELD): form(VALUE)},
            )  # fmt: skip
            WRITES[way](store, chunk, np.ones(4))
        (found,) = store.chunks()
        assert (found.doc_id, found.tags, found.collection, found.node_id) == ("ü.md", (TAG,), COLLECTION, "ï")
        assert found.metadata == {FIELD: VALUE}
        assert store.check() == []


@FORMS
@pytest.mark.parametrize(
    "condition", [{"doc_ids": ["café.md"]}, {"doc_ids": "café.md"}, {"tags_any": [TAG]}, {"metadata": {FIELD: VALUE}}]
)
def test_fault_S21_a_document_is_deleted_by_either_form(tmp_path, condition, form):
    path = build(tmp_path, café_md=TEXT)
    given = {
        name: {form(key): form(one) for key, one in value.items()}
        if isinstance(value, dict)
        else form(value) if isinstance(value, str) else [form(one) for one in value]
        for name, value in condition.items()
    }  # fmt: skip
    assert sqlrag.delete_documents(path, **given).deleted == ["café.md"]


@pytest.mark.slow
def test_fault_S21_an_update_and_an_upload_know_the_collection(tmp_path):
    path = build(tmp_path, options={"collection": decomposed(COLLECTION)}, a_md="kiwi")
    for form in (composed, decomposed):
        report = sqlrag.update_embeddings(tmp_path / "docs", path, collection=form(COLLECTION), progress="off")
        assert (report.unchanged, report.added) == (["grün:a.md"], [])
        sqlrag.add_documents({form("ü.md"): b"kiwi"}, path, collection=form(COLLECTION))
    assert sorted(ids(sqlrag.lexical_query("kiwi", path, collection=COLLECTION))) == ["grün:a.md#0", "grün:ü.md#0"]


@pytest.mark.slow
def test_fault_S21_nodes_of_llama_index(tmp_path):
    store = SqlragVectorStore(tmp_path / "kb.duckdb")
    for form in (composed, decomposed):
        store.add([TextNode(id_=form("ü"), text="kiwi", embedding=[1.0, 2.0])], tags=[form(TAG)])
    assert [one.node_id for one in store.get_nodes([decomposed("ü")])] == ["ü"]
    store.delete_nodes([decomposed("ü")])
    assert store.get_nodes() == []


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".ragmd", ".parquet"])
def test_fault_S21_names_in_a_file_of_another_program(tmp_path, suffix):
    """What it wrote decomposed is stored composed, in a new file and in one that has it."""
    with Store.create(tmp_path / "old.duckdb", 4) as store:
        names = {"tags": (TAG,), "collection": COLLECTION}
        chunk = Chunk("ü.md", 0, "kiwi", given_id="ï", **names)
        store.upsert([Document("ü.md", "kiwi", **names)], [chunk], [np.ones(4)])
        names = [decomposed(name) for name in ("ü.md", COLLECTION, TAG)]
        for table in ("documents", "source_documents"):
            store.cursor().execute(f"UPDATE {table} SET doc_id = $1, collection = $2, tags = [$3]", names)
        store.cursor().execute("UPDATE documents SET node_id = $1", [decomposed("ï")])
    there = tmp_path / f"theirs{suffix}"
    sqlrag.convert(tmp_path / "old.duckdb", there)
    for _ in range(2):
        sqlrag.convert(there, tmp_path / "new.duckdb")
        with Store(tmp_path / "new.duckdb") as store:
            (found,) = store.chunks()
            assert (found.doc_id, found.tags, found.collection, found.node_id) == ("ü.md", (TAG,), COLLECTION, "ï")
            assert store.check() == []


# Arguments that nobody takes.


def models(module):
    return [
        one
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, BaseModel) and one.__module__.startswith(module.__name__)
    ]


GIVEN = {
    "SqlragRetriever": {"db_path": "kb.duckdb"}, "SqlragReranker": {"model": len}, "SqlragVectorStore": {"path": "kb"},
    "SqlragEmbedding": {"path": "kb"}, "SqlragRerank": {}, "SqlragCompress": {},
}  # fmt: skip


def test_fault_S16_every_model_of_the_adapters_is_tried():
    assert {one.__name__ for module in (langchain, llama_index) for one in models(module)} == set(GIVEN)


@pytest.mark.parametrize("name", ["tags_any", "collection", "top_k", "min_similarity", "nonsense"])
@pytest.mark.parametrize("model", [*models(langchain), *models(llama_index)], ids=lambda one: one.__name__)
def test_fault_S16_what_is_no_argument_is_refused(model, name):
    model(**GIVEN[model.__name__])
    with pytest.raises((ValidationError, InputError), match=f"takes no {name}"):
        model(**GIVEN[model.__name__], **{name: 1})


def test_fault_S16_functions_of_llama_index(file):
    store, index = SqlragVectorStore(file), SqlragIndex.from_path(file)
    for call in (
        lambda: store.add([TextNode(text="x", embedding=[1.0])], nonsense=1),
        lambda: store.delete("x", nonsense=1),
        lambda: store.delete_nodes(["x"], nonsense=1),
        lambda: store.query(VectorStoreQuery(query_embedding=[1.0] * 64), nonsense=1),
        lambda: llama_index.SqlragRetriever(file, nonsense=1),
        lambda: index.as_retriever(tags_any=["x"]),
        lambda: index.as_query_engine(collection="x"),
    ):
        with pytest.raises(InputError, match="takes no"):
            call()
    found = index.as_retriever(vector_store_kwargs={"tags_any": [TAG]}).retrieve("kiwi")
    assert [one.node.node_id for one in found] == [CHUNK]


@pytest.mark.slow
def test_fault_S16_servers_refuse_them(file):
    assert rest(file, "POST", "/lexical_query", json={"query_text": "kiwi", "nonsense": 1})["status"] == 422
    assert rest(file, "GET", "/documents", params={"nonsense": 1})["status"] == 422
    assert called(file, "hybrid_query", {"query_text": "kiwi"}).is_error is False
    refused = called(file, "hybrid_query", {"query_text": "kiwi", "nonsense": 1})
    assert refused.is_error, refused


@pytest.mark.slow
def test_fault_S21_a_file_by_the_name_of_another_in_the_other_form_is_listed_as_failed(tmp_path):
    """What is in it is in no document: the table says so until it has a name of its own."""
    root, kb, names = tmp_path / "in", tmp_path / "kb.duckdb", (composed("é.md"), decomposed("é.md"))
    root.mkdir()
    for name in names:
        (root / name).write_text(f"# {name!a}", "utf-8")
    if len(list(root.iterdir())) == 1:
        pytest.skip("this file system takes both for one name")

    def failures():
        with Store(kb) as store:
            return (
                store.cursor().execute("SELECT doc_id, status, reason FROM ingest_failures ORDER BY doc_id").fetchall()
            )

    reason = "has the same name as 'e\\u0301.md' after Unicode normalisation; rename one of them"
    report = sqlrag.prepare_embeddings(root, kb, **HASHING).report
    assert (report.documents, report.files, report.failed, report.skipped) == (1, 2, 1, [])
    assert failures() == [("\\xe9.md", "failed", reason)]
    assert sqlrag.update_embeddings(root, kb, collection="x", progress="off").added == ["x:é.md"]
    assert failures() == [("\\xe9.md", "failed", reason), ("x:\\xe9.md", "failed", reason)]
    (root / names[0]).rename(root / "other.md")
    assert sqlrag.update_embeddings(root, kb, progress="off").added == ["other.md"]
    assert failures() == [("x:\\xe9.md", "failed", reason)]
    uploaded = sqlrag.add_documents({decomposed("ü.md"): b"# One", composed("ü.md"): b"# Two"}, kb)
    assert uploaded.added == ["ü.md"]
    assert failures()[0] == ("\\xfc.md", "failed", "has the same name as 'u\\u0308.md'")
