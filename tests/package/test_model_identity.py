"""Every way in that takes a model or vectors, with a model that is not the file's: nothing is stored or answered."""

from __future__ import annotations

import asyncio
import inspect
import zlib

import duckdb
import numpy as np
import pytest
from llama_index.core import Document, StorageContext, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

import sqlrag
from sqlrag import Chunk, ModelMismatchError, RetrievePlan, Store, Stores
from sqlrag.adapters import langchain, llama_index, mcp, rest
from sqlrag.adapters.connection import interruptible
from sqlrag.adapters.llama_index import SqlragEmbedding, SqlragIndex, SqlragVectorStore
from sqlrag.embedders import CallableEmbedder
from tests.support.helpers import write

MODULES = {"sqlrag": sqlrag, "llama_index": llama_index, "langchain": langchain, "rest": rest, "mcp": mcp}

# Whatever a parameter of a model or of vectors is called.
WORDS = ("embed", "vector", "model")


def model(name, dimensions=16):
    def embed(texts):
        return [np.random.default_rng(zlib.crc32((name + text).encode())).normal(size=dimensions) for text in texts]

    return CallableEmbedder(embed, model_name=name)


OURS, IMPOSTOR = model("ours"), model("impostor")
# Of vectors alone only the number of dimensions can be known.
VECTOR = [1.0] * 15
CHUNK = Chunk("new.md", 0, "gamma")


class TheirEmbedding(BaseEmbedding):
    """A model of llama-index that is not the file's."""

    def _get_text_embedding(self, text):
        return IMPOSTOR.embed([text], kind="document")[0].tolist()

    _get_query_embedding = _get_text_embedding

    async def _aget_query_embedding(self, query):
        return self._get_text_embedding(query)


@pytest.fixture
def kb(tmp_path):
    root = write(tmp_path / "docs", a_txt="alpha", b_txt="beta")
    return sqlrag.prepare_embeddings(root, tmp_path / "kb.duckdb", embedder=OURS, verbose=False, progress="off").path


ROWS = {"key": "id", "text": "body", "progress": "off"}


def rows(kb, *more):
    path = kb.with_name("rows.csv")
    path.write_text("\n".join(["id,body", "1,delta", *more]))
    return path


def stored(path):
    with duckdb.connect(str(path), read_only=True) as con:
        return con.execute("SELECT node_id, text, embedding::VARCHAR FROM documents ORDER BY ALL").fetchall()


def written(path, change):
    with Store(path, read_only=False) as store:
        return change(store)


def read(path, ask, kind=Store, **options):
    with kind(path, **options) as store:
        return ask(store)


def several(paths, **options):
    return Stores([paths], **options)


def asked_in_sql(con):
    with con:
        return interruptible(con, lambda: con.execute("SELECT embed('alpha')").fetchall())


def registered(kb, **options):
    con = duckdb.connect()
    sqlrag.register(con, kb, **options)
    return con


def await_(coroutine):
    return asyncio.run(coroutine)


# What is to raise ModelMismatchError: by the function and its parameter.
REFUSED = {
    "Store.__init__(embedder)": lambda kb: read(kb, lambda s: s.vector_query("alpha"), embedder=IMPOSTOR),
    "Stores.__init__(embedder)": lambda kb: read(kb, lambda s: s.vector_query("alpha"), several, embedder=IMPOSTOR),
    "open_store(embedder)": lambda kb: read(
        kb, lambda s: s.hybrid_query("alpha"), sqlrag.open_store, embedder=IMPOSTOR
    ),
    "connect(embedder)": lambda kb: asked_in_sql(sqlrag.connect(kb, embedder=IMPOSTOR)),
    "register(embedder)": lambda kb: asked_in_sql(registered(kb, embedder=IMPOSTOR)),
    "Store.check_embedder(embedder)": lambda kb: read(kb, lambda s: s.check_embedder(IMPOSTOR)),
    "Stores.check_embedder(embedder)": lambda kb: read(kb, lambda s: s.check_embedder(IMPOSTOR), several),
    "Store.create(embedder)": lambda kb: Store.create(kb.with_name("new.duckdb"), 15, embedder=IMPOSTOR),
    "Store.add_chunks(vectors)": lambda kb: written(kb, lambda s: s.add_chunks([CHUNK], vectors=[VECTOR])),
    "Store.index(vectors)": lambda kb: written(kb, lambda s: s.index([CHUNK], vectors=[VECTOR])),
    "Store.upsert(embeddings)": lambda kb: written(
        kb, lambda s: s.upsert([sqlrag.Document("new.md", "gamma")], [CHUNK], [VECTOR])
    ),
    "add_documents(embedder)": lambda kb: sqlrag.add_documents({"new.md": b"gamma"}, kb, embedder=IMPOSTOR),
    "update_embeddings(embedder)": lambda kb: sqlrag.update_embeddings(
        write(kb.parent / "docs", c_txt="gamma"), kb, embedder=IMPOSTOR, progress="off"
    ),
    "aupdate_embeddings(embedder)": lambda kb: await_(
        sqlrag.aupdate_embeddings(write(kb.parent / "docs", c_txt="gamma"), kb, embedder=IMPOSTOR, progress="off")
    ),
    "update_embeddings(embed_model_name)": lambda kb: sqlrag.update_embeddings(
        write(kb.parent / "docs", c_txt="gamma"), kb, embedder=OURS, embed_model_name="other", progress="off"
    ),
    "aupdate_embeddings(embed_model_name)": lambda kb: await_(
        sqlrag.aupdate_embeddings(
            write(kb.parent / "docs", c_txt="gamma"), kb, embedder=OURS, embed_model_name="other", progress="off"
        )
    ),
    "index_rows(embedder)": lambda kb: sqlrag.index_rows(rows(kb), kb, **ROWS, embedder=IMPOSTOR),
    "index_rows(embed_model_name)": lambda kb: sqlrag.index_rows(
        rows(kb), kb, **ROWS, embed_model_name="hashing-65", embedding_provider="hashing"
    ),
    "index_rows(embedding_provider)": lambda kb: sqlrag.index_rows(
        rows(kb), kb, **ROWS, embed_model_name="other", embedding_provider="hashing"
    ),
    "embed_rows(embedder)": lambda kb: sqlrag.embed_rows(kb, embedder=IMPOSTOR),
    "embed_rows(embed_model_name)": lambda kb: sqlrag.embed_rows(kb, embed_model_name="other"),
    "index(vectors)": lambda kb: sqlrag.index([CHUNK], kb, vectors=[VECTOR]),
    "SqlragEmbedding.__init__(embedder)": lambda kb: SqlragEmbedding(kb, IMPOSTOR).get_query_embedding("alpha"),
    "SqlragIndex.from_path(embedder)": lambda kb: SqlragIndex.from_path(kb, IMPOSTOR).as_retriever().retrieve("alpha"),
    "SqlragVectorStore.__init__(embedder)": lambda kb: SqlragVectorStore(kb, embedder=IMPOSTOR).query(
        VectorStoreQuery(query_str="alpha")
    ),
    "SqlragVectorStore.from_path(embedder)": lambda kb: SqlragVectorStore.from_path(kb, IMPOSTOR).add(
        [TextNode(text="gamma", embedding=IMPOSTOR.embed(["gamma"], kind="document")[0].tolist())]
    ),
    "SqlragVectorStore.check_embedder(embedder)": lambda kb: SqlragVectorStore(kb).check_embedder(IMPOSTOR),
}

for kind in ("Store", "Stores"):
    opened = Store if kind == "Store" else several
    for search, text in (("hybrid_query", "alpha"), ("vector_query", ""), ("vector_query", "alpha")):
        REFUSED[f"{kind}.{search}(query_vector)"] = lambda kb, kind=opened, search=search, text=text: read(
            kb, lambda s: getattr(s, search)(text, query_vector=VECTOR), kind
        )
        REFUSED[f"{kind}.{search}(model_name)"] = lambda kb, kind=opened, search=search: read(
            kb, lambda s: getattr(s, search)("alpha", model_name="impostor"), kind
        )
    REFUSED[f"{kind}.retrieve(query_vector)"] = lambda kb, kind=opened: read(
        kb, lambda s: s.retrieve("alpha", RetrievePlan(k=1), query_vector=VECTOR), kind
    )
REFUSED["Store.explain(query_vector)"] = lambda kb: read(
    kb, lambda s: s.explain("alpha", "a.txt#0", query_vector=VECTOR)
)
REFUSED["Store.explain(model_name)"] = lambda kb: read(
    kb, lambda s: s.explain("alpha", "a.txt#0", model_name="impostor")
)
for search in ("hybrid_query", "vector_query"):
    for prefix in ("", "a"):
        call = getattr(sqlrag, prefix + search)
        run = await_ if prefix else lambda found: found
        REFUSED[f"{prefix}{search}(query_vector)"] = lambda kb, call=call, run=run: run(
            call("alpha", kb, query_vector=VECTOR)
        )
        REFUSED[f"{prefix}{search}(model_name)"] = lambda kb, call=call, run=run: run(call("alpha", kb, "impostor"))
REFUSED["explain(query_vector)"] = lambda kb: sqlrag.explain("alpha", "a.txt#0", kb, query_vector=VECTOR)
REFUSED["explain(model_name)"] = lambda kb: sqlrag.explain("alpha", "a.txt#0", kb, model_name="impostor")
REFUSED["retrieve(query_vector)"] = lambda kb: sqlrag.retrieve("alpha", RetrievePlan(k=1), kb, query_vector=VECTOR)
REFUSED["aretrieve(query_vector)"] = lambda kb: await_(
    sqlrag.aretrieve("alpha", RetrievePlan(k=1), kb, query_vector=VECTOR)
)


def imported(name, suffix):
    def run(kb):
        there = kb.with_name(f"vectors-m{suffix}")
        sqlrag.convert(kb, there)
        return getattr(sqlrag, name)(there, kb.with_name("back.duckdb"), embedder=IMPOSTOR)

    return run


for name, suffix in {
    "import_ragmd": ".ragmd", "import_ragfile": ".ragfile", "import_faiss_json": ".faiss", "import_parquet": ".parquet",
    "convert": ".ragmd",
}.items():  # fmt: skip
    REFUSED[f"{name}(embedder)"] = imported(name, suffix)

# Why a parameter of such a name is not refused.
OTHERS = {
    **dict.fromkeys(
        ("Answer.__init__(model)", "OpenAIChat.__init__(model_name)", "load_reranker(model_name)", "rerank(model)",
         "arerank(model)", "answer(chat_model)", "aanswer(chat_model)", "evaluate(chat_model)",
         "SingleFileRAGService.__init__(model)", "rag_service(model)", "SqlragReranker.__init__(model)",
         "SqlragRerank.__init__(model)", "ServerOptions.__init__(chat_model)",
         "ServerOptions.__init__(rerank_model)"),
        "a model that answers or re-ranks, or a name of one",
    ),
    **dict.fromkeys(
        ("ModelIdentity.__init__(model_name)", "ReembedReport.__init__(model_name)", "ReembedReport.__init__(embedded)",
         "Report.__init__(embedded)", "Report.__init__(embedding_calls)", "UpdateReport.__init__(embedded)",
         "UpdateReport.__init__(embedding_calls)", "RowsReport.__init__(embedded)",
         "RowsReport.__init__(embedding_calls)",
         "IndexReport.__init__(embedded)", "Candidate.__init__(vector_score)",
         "Candidate.__init__(vector_rank)", "Explanation.__init__(vector)", "Prepared.__init__(embedder)",
         "RetrievePlan.__init__(vector_weight)", "EvaluationReport.__init__(models)"),
        "a result, or numbers of one",
    ),
    **dict.fromkeys(
        ("prepare_embeddings(embedder)", "prepare_embeddings(embed_model_name)", "prepare_embeddings(embed_dim)",
         "prepare_embeddings(embedding_provider)", "aprepare_embeddings(embedder)", "aprepare_embeddings(embed_dim)",
         "aprepare_embeddings(embed_model_name)", "aprepare_embeddings(embedding_provider)", "reembed(model_name)",
         "reembed(embedder)", "areembed(model_name)", "areembed(embedder)", "load_embedder(model_name)",
         "load_embedder(model_path)", "Store.create(model_name)", "PostgresStore.create(model_name)"),
        "it says which model a file gets",
    ),
    **dict.fromkeys(
        ("pull(embedder)", "SingleFileRAGService.__init__(embedder)", "rag_service(embedder)"),
        "tests/formats/test_pull.py and test_ragmd_service.py do",
    ),
    **dict.fromkeys(
        ("rerank(vectors)", "rerank(query_vector)", "arerank(vectors)", "arerank(query_vector)",
         "drop_near_duplicates(vectors)", "RAGFile.search_vector(vector)"),
        "vectors that are compared with each other, and of no store",
    ),
    **dict.fromkeys(
        ("embed_rows(vector)", "embed_rows(embedding_provider)", "EmbeddedRows.__init__(vectors)",
         "EmbeddedRows.__init__(model)"),
        "tables that are compared with each other: tests/explore/test_analytics_of_text.py",
    ),
    "validate_embedding_model(model_name)": "it answers whether it is the one",
}  # fmt: skip


def parameters():
    """Yield every public function and method with a parameter that may be a model or vectors."""
    for where, module in MODULES.items():
        for name in sorted(getattr(module, "__all__", vars(module))):
            found = getattr(module, name)
            own = getattr(found, "__module__", "") or ""
            if name.startswith("_") or (where != "sqlrag" and not own.startswith(f"sqlrag.adapters.{where}")):
                continue
            called = {name: found}
            if inspect.isclass(found):
                called = {f"{name}.{key}": getattr(found, key) for key in dir(found)}
            for label, function in called.items():
                key = label.rpartition(".")[2]
                if not callable(function) or (key.startswith("_") and key != "__init__"):
                    continue
                if not (getattr(function, "__module__", "") or "").startswith("sqlrag"):
                    continue
                try:
                    taken = inspect.signature(function).parameters
                except (TypeError, ValueError):
                    continue
                for parameter in taken:
                    if any(word in parameter for word in WORDS):
                        yield f"{label}({parameter})"


OPTIONS_OF_A_SEARCH = ("vector_weight", "vector_top_k")


def test_fault_S14_no_way_in_is_forgotten():
    found = {one for one in parameters() if not one.endswith(tuple(f"({name})" for name in OPTIONS_OF_A_SEARCH))}
    # Postgres has them by the same classes; tests/engines/postgres runs them where there is a server.
    found = {one for one in found if not one.startswith("PostgresStore.")}
    # explain refuses several files.
    found -= {"Stores.explain(query_vector)", "Stores.explain(model_name)"}
    found -= {"update_rows(embedder)"}  # below
    assert sorted(found - REFUSED.keys() - OTHERS.keys()) == []
    assert sorted(REFUSED.keys() - found) == []


@pytest.mark.parametrize("way", REFUSED)
def test_fault_S14_another_model_is_refused_before_anything_is_stored_or_answered(kb, way):
    before = stored(kb)
    with pytest.raises(ModelMismatchError):
        REFUSED[way](kb)
    assert stored(kb) == before
    assert sqlrag.check(kb) == []


@pytest.mark.slow
def test_fault_S14_rows_are_updated_by_the_files_own_model(kb):
    sqlrag.index_rows(rows(kb), kb, **ROWS, embedder=OURS)
    rows(kb, "2,epsilon")
    before = stored(kb)
    with pytest.raises(ModelMismatchError):
        sqlrag.update_rows(kb, embedder=IMPOSTOR, progress="off")
    assert stored(kb) == before
    sqlrag.update_rows(kb, embedder=OURS, progress="off")
    assert len(stored(kb)) == len(before) + 1


@pytest.mark.parametrize(
    "way",
    [
        lambda index: index.insert(Document(text="gamma", id_="g")),
        lambda index: index.insert_nodes([TextNode(text="gamma")]),
        lambda index: await_(index.ainsert(Document(text="gamma", id_="g"))),
        lambda index: await_(index.ainsert_nodes([TextNode(text="gamma")])),
        lambda index: index.refresh_ref_docs([Document(text="gamma", id_="g")]),
        lambda index: index.as_retriever().retrieve("alpha"),
        lambda index: await_(index.as_retriever().aretrieve("alpha")),
        lambda index: index.as_retriever(vector_store_query_mode="hybrid").retrieve("alpha"),
        lambda index: index.as_retriever(vector_store_query_mode="mmr").retrieve("alpha"),
    ],
)
@pytest.mark.parametrize("made", ["from_path", "embed_model", "plain with ours"])
def test_fault_S14_an_index_of_another_model_stores_and_answers_nothing(kb, way, made):
    before = stored(kb)

    def index():
        if made == "from_path":
            return SqlragIndex.from_path(kb, IMPOSTOR)
        if made == "embed_model":
            return SqlragIndex.from_vector_store(SqlragVectorStore(kb), embed_model=TheirEmbedding())
        return VectorStoreIndex.from_vector_store(SqlragVectorStore(kb), embed_model=SqlragEmbedding(kb, IMPOSTOR))

    with pytest.raises(ModelMismatchError):
        way(index())
    assert stored(kb) == before


def test_fault_S14_a_built_index_of_another_model(kb):
    context = StorageContext.from_defaults(vector_store=SqlragVectorStore(kb))
    with pytest.raises(ModelMismatchError):
        SqlragIndex([TextNode(text="gamma")], storage_context=context, embed_model=TheirEmbedding())
    assert len(stored(kb)) == 2


def test_fault_S14_the_files_own_model_and_a_search_by_words_are_welcome(kb):
    index = SqlragIndex.from_path(kb, model("ours"))
    index.insert(Document(text="gamma", id_="g"))
    assert [one.node.get_content() for one in index.as_retriever(similarity_top_k=1).retrieve("gamma")] == ["gamma"]
    words = SqlragVectorStore(kb, embedder=IMPOSTOR).query(
        VectorStoreQuery(query_str="alpha", mode=VectorStoreQueryMode.TEXT_SEARCH)
    )
    assert words.ids == ["a.txt#0"]


def test_fault_S14_a_new_file_takes_any_model_and_keeps_to_it(tmp_path):
    path = tmp_path / "new.duckdb"
    SqlragIndex.from_path(path, OURS).insert(Document(text="alpha", id_="a"))
    with pytest.raises(ModelMismatchError):
        SqlragIndex.from_path(path, IMPOSTOR).insert(Document(text="beta", id_="b"))
    assert len(stored(path)) == 1


def test_fault_S14_an_open_store_as_client(kb):
    with Store(kb, read_only=False) as store:
        nodes = [TextNode(text="gamma", embedding=IMPOSTOR.embed(["gamma"], kind="document")[0].tolist())]
        with pytest.raises(ModelMismatchError):
            SqlragVectorStore(client=store, embedder=IMPOSTOR).add(nodes)
