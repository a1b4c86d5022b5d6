"""The retriever for LangChain: its standard tests, and parity with the functions."""

from __future__ import annotations

import asyncio
import pickle

import pytest
from langchain_core.documents import Document
from langchain_core.load import dumps, loads
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda, RunnablePassthrough
from langchain_core.tools import create_retriever_tool
from langchain_tests.integration_tests import RetrieversIntegrationTests
from pydantic import ValidationError

import sqlrag
from sqlrag.adapters.langchain import SqlragReranker, SqlragRetriever
from tests.support.helpers import HASHING, build, ids, pdf, python

PAGES = {
    "mango_md": "---\ntags: [fruit]\nyear: 2024\nscore: high\n---\n# Mango\n\nThe mango is a sweet fruit.\n",
    "guides__pump_md": "---\ntags: [machine]\nyear: 2023\n---\n# Pump\n\n## Repair\n\nA new seal for the pump.\n",
    "lychee_md": "# Lychee\n\nA fruit beside the mango.\n",
    "notes_txt": "A shopping list: mango, lychee and a pump.\n",
}
QUESTION = "mango fruit"
ELSEWHERE = ("node_id", "text", "metadata", "shown", "context_shown")


@pytest.fixture(scope="module")
def kb(tmp_path_factory):
    return build(tmp_path_factory.mktemp("langchain"), **PAGES)


@pytest.fixture(scope="module")
def retriever(kb):
    return SqlragRetriever(db_path=kb)


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


class TestStandard(RetrieversIntegrationTests):
    pytestmark = pytest.mark.anyio  # one of them is a coroutine

    @pytest.fixture(autouse=True)
    def _use(self, kb):
        self.path = kb

    @property
    def retriever_constructor(self):
        return SqlragRetriever

    @property
    def retriever_constructor_params(self):
        return {"db_path": self.path, "k": 2}

    @property
    def retriever_query_example(self):
        return QUESTION


@pytest.mark.parametrize("mode", ["hybrid", "vector", "lexical"])
@pytest.mark.parametrize(
    "options", [{}, {"tags_any": ["fruit"]}, {"metadata": {"year": 2023}}, {"k": 2}, {"context": "section"}]
)
def test_ids_order_and_scores_are_those_of_the_function(kb, mode, options):
    search = getattr(sqlrag, f"{mode}_query")
    arguments = {("top_k" if name == "k" else name): value for name, value in options.items()}
    expected = search("mango pump", kb, **arguments)
    assert expected
    by_invoke = SqlragRetriever(db_path=kb, mode=mode).invoke("mango pump", **options)
    by_settings = SqlragRetriever(db_path=kb, mode=mode, search_kwargs=options).invoke("mango pump")
    awaited = asyncio.run(SqlragRetriever(db_path=kb, mode=mode).ainvoke("mango pump", **options))
    for found in (by_invoke, by_settings, awaited):
        assert [document.id for document in found] == ids(expected)
        for document, row in zip(found, expected, strict=True):
            assert document.page_content == row["text"]
            own = {name: value for name, value in row.items() if name not in ELSEWHERE}
            assert not {"shown", "context_shown"} & document.metadata.keys()  # second texts
            assert {name: document.metadata[name] for name in own} == own  # to the last bit


def test_a_document_has_the_metadata_of_its_chunk_and_its_place(retriever):
    found = {document.id: document for document in retriever.invoke("seal of the pump")}["guides/pump.md#0"]
    assert found.page_content.endswith("A new seal for the pump.")
    told = found.metadata
    assert (told["source"], told["file_name"], told["year"]) == ("guides/pump.md", "pump.md", 2023)
    assert (told["doc_id"], told["heading_path"], told["page"]) == ("guides/pump.md", ["Pump", "Repair"], None)
    assert (told["vector_rank"], told["lexical_rank"], told["score_type"]) == (1, 1, "adaptive")
    assert told["score"] == pytest.approx(1.25)  # first in both legs
    assert "notices" not in told


def test_the_score_is_that_of_the_search_though_a_page_has_a_field_of_that_name(retriever):
    (found,) = [document for document in retriever.invoke(QUESTION) if document.id.startswith("mango.md")]
    assert isinstance(found.metadata["score"], float)


def test_what_invoke_gets_goes_before_what_the_retriever_has(kb):
    retriever = SqlragRetriever(db_path=kb, k=1, search_kwargs={"tags_any": ["fruit"]})
    assert [document.id for document in retriever.invoke("pump")] == ["mango.md#0"]
    assert [document.id for document in retriever.invoke("pump", tags_any=["machine"])] == ["guides/pump.md#0"]
    assert len(retriever.invoke("pump", k=3, tags_any=None)) == 3
    assert retriever.search_kwargs == {"tags_any": ["fruit"]}


def test_an_open_store_is_searched_and_left_open(kb):
    with sqlrag.Store(kb) as store:
        retriever = SqlragRetriever(db_path=store)
        assert [d.id for d in retriever.invoke(QUESTION)] == ids(sqlrag.hybrid_query(QUESTION, store))
        assert asyncio.run(retriever.ainvoke(QUESTION)) == retriever.invoke(QUESTION)


@pytest.mark.rest
def test_batch_keeps_the_order_of_the_questions(kb, retriever):
    questions = ["pump", "lychee", "mango", "seal"] * 3
    expected = [ids(sqlrag.hybrid_query(question, kb)) for question in questions]
    assert [[d.id for d in found] for found in retriever.batch(questions)] == expected
    awaited = asyncio.run(retriever.abatch(questions))
    assert [[d.id for d in found] for found in awaited] == expected


def test_in_a_chain(retriever):
    prompt = ChatPromptTemplate.from_template("{context}\n\n{question}")
    join = RunnableLambda(lambda documents: " | ".join(document.metadata["source"] for document in documents))
    chain = {"context": retriever | join, "question": RunnablePassthrough()} | prompt
    expected = "guides/pump.md | notes.txt"
    bound = {"context": retriever.bind(k=2) | join, "question": RunnablePassthrough()} | prompt
    assert bound.invoke("the pump").to_messages()[0].content == f"{expected}\n\nthe pump"
    assert asyncio.run(chain.ainvoke("the pump")).to_messages()[0].content.startswith(expected)
    assert [len(part) for part in retriever.stream("pump")] == [4]


def test_fields_can_be_configured_at_run_time(retriever):
    flexible = retriever.configurable_fields(k=ConfigurableField(id="k"), search_kwargs=ConfigurableField(id="filters"))
    config = {"configurable": {"k": 1, "filters": {"tags_any": ["machine"]}}}
    assert [document.id for document in flexible.invoke(QUESTION, config)] == ["guides/pump.md#0"]
    assert len(flexible.invoke(QUESTION)) == 4


def test_callbacks_hear_of_a_search_and_of_its_failure(retriever):
    from langchain_core.callbacks import BaseCallbackHandler

    class Listener(BaseCallbackHandler):
        def __init__(self):
            self.heard = []

        def on_retriever_start(self, serialized, query, *, metadata=None, tags=None, **more):
            self.heard.append((query, metadata["ls_retriever_name"], tags))

        def on_retriever_end(self, documents, **more):
            self.heard.append([document.id for document in documents])

        def on_retriever_error(self, error, **more):
            self.heard.append(type(error))

    listener = Listener()
    retriever.invoke("pump", {"callbacks": [listener], "tags": ["mine"]}, k=1)
    with pytest.raises(sqlrag.InputError, match="blank"):
        retriever.invoke(" ", {"callbacks": [listener]})
    assert listener.heard[:2] == [("pump", "sqlrag", ["mine"]), ["guides/pump.md#0"]]
    assert listener.heard[-1] is sqlrag.InputError


@pytest.mark.filterwarnings("ignore:The function `loads` is in beta")
def test_one_with_a_path_is_written_and_read(kb):
    retriever = SqlragRetriever(db_path=kb, mode="lexical", k=2, search_kwargs={"tags_any": ["fruit"]})
    read = loads(dumps(retriever), valid_namespaces=["sqlrag"], allowed_objects=[SqlragRetriever])
    for copy in (read, pickle.loads(pickle.dumps(retriever)), retriever.model_copy()):
        assert copy == retriever
        assert copy.invoke(QUESTION) == retriever.invoke(QUESTION)


def test_as_a_tool_of_an_agent(retriever):
    tool = create_retriever_tool(retriever, "handbook", "Searches the handbook.")
    assert "A new seal for the pump." in tool.invoke({"query": "seal"})


def test_notices_are_told(tmp_path):
    path = build(tmp_path, a_md="# A\n\nalpha")
    with sqlrag.Store(path, read_only=False) as store:
        store.cursor().execute("UPDATE embedding_metadata SET value = 'no-such-model' WHERE key = 'embedding_model'")
    (found,) = SqlragRetriever(db_path=path).invoke("alpha")
    assert found.metadata["score_type"] == "bm25"
    assert found.metadata["notices"] == sqlrag.hybrid_query("alpha", path).notices
    assert found.metadata["notices"]


class TestWrong:
    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"search_kwargs": {"tag": "x"}}, "hybrid search takes no tag; it takes .*tags_any"),
            ({"search_kwargs": {"top_k": 3}}, "takes no top_k; it takes .* k,.* For top_k use k"),
            ({"mode": "vector", "search_kwargs": {"alpha": 0.5}}, "vector search takes no alpha"),
            ({"mode": "fuzzy"}, "'hybrid', 'vector' or 'lexical'"),
        ],
    )
    def test_settings_are_refused_at_once(self, kb, given, said):
        with pytest.raises(ValidationError, match=said):
            SqlragRetriever(db_path=kb, **given)

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"path": "x"}, "For path use db_path"),
            ({"top_k": 3}, "For top_k use k"),
            ({"limit": 3}, "For limit use k"),
            ({"tags_any": ["x"]}, r"For tags_any use search_kwargs=\{'tags_any': …\}"),
            ({"nonsense": 1}, r"search_kwargs, tags\. \["),
        ],
    )
    def test_what_is_no_field_is_named_with_what_is_meant(self, kb, given, said):
        with pytest.raises(ValidationError, match=said):
            SqlragRetriever(**({} if "path" in given else {"db_path": kb}), **given)

    @pytest.mark.parametrize("given", [{"k": 0}, {"k": "many"}, {"fusion": "best"}, {"tag": "x"}])
    def test_arguments_are_refused_as_by_the_function(self, retriever, given):
        with pytest.raises(sqlrag.InputError):
            retriever.invoke("pump", **given)
        with pytest.raises(sqlrag.InputError):
            asyncio.run(retriever.ainvoke("pump", **given))

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(sqlrag.NotFoundError, match=r"none\.duckdb"):
            SqlragRetriever(db_path=tmp_path / "none.duckdb").invoke("pump")

    @pytest.mark.slow
    @pytest.mark.parametrize("hidden", ["langchain_core", "langchain_core.retrievers"])
    def test_without_the_extra_the_message_says_how_to_install_it(self, hidden):
        code = (
            f"import sys; sys.modules[{hidden!r}] = None\n"
            "import sqlrag\n"
            "try: import sqlrag.adapters.langchain\n"
            "except sqlrag.MissingExtraError as error: print(error)"
        )
        assert python(code).strip().endswith("Install it with: pip install 'sqlrag-duckdb[langchain]'")


def test_fault_U26_a_document_can_be_cited(tmp_path):
    """Page and headings, offsets, collection, tags and the scores of both legs, each in its type."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "field.pdf").write_bytes(
        pdf("The first page.", "A second one.", "The walrus is on the third.")
    )
    (tmp_path / "docs" / "pump.md").write_text("---\ntags: [machine]\n---\n# Pumps\n\n## Seals\n\nA zebra seal.\n")
    path = sqlrag.prepare_embeddings(tmp_path / "docs", tmp_path / "kb.duckdb", **HASHING).path
    names = (
        *("page", "heading_path", "i_start", "i_end", "collection", "tags"),
        *("vector_score", "vector_rank", "lexical_score", "lexical_rank"),
    )
    for question, page, headings, tags in (
        ("walrus", 3, ["field"], []),
        ("zebra seal", None, ["Pumps", "Seals"], ["machine"]),
    ):
        found = SqlragRetriever(db_path=path, k=4).invoke(question)
        for document, row in zip(found, sqlrag.hybrid_query(question, path, top_k=4), strict=True):
            assert {name: document.metadata[name] for name in names} == {name: row[name] for name in names}
        first = found[0].metadata
        assert (first["page"], first["heading_path"], first["tags"]) == (page, headings, tags)
        assert 0 <= first["i_start"] < first["i_end"]
        assert all(type(first[name]) is float for name in ("vector_score", "lexical_score"))


class TestReranker:
    def test_documents_of_any_retriever_get_a_new_order(self):
        documents = [Document("a green apple", id="a", metadata={"n": 1}), Document("a pear and a pear tree", id="b")]
        reranker = SqlragReranker(model=lambda query, texts: [text.count(query) for text in texts])
        ranked = reranker.compress_documents(documents, "pear")
        assert [(document.id, document.metadata) for document in ranked] == [
            ("b", {"score": 2.0, "score_type": "rerank"}),
            ("a", {"n": 1, "score": 0.0, "score_type": "rerank"}),
        ]
        assert documents[0].metadata == {"n": 1}
        assert asyncio.run(reranker.acompress_documents(documents, "pear")) == ranked

    def test_equal_scores_keep_their_order_and_top_n_cuts(self, retriever):
        found = retriever.invoke(QUESTION)
        reranker = SqlragReranker(model=lambda query, texts: [0.0] * len(texts), top_n=3)
        assert [document.id for document in reranker.compress_documents(found, "q")] == [d.id for d in found[:3]]

    def test_a_model_that_fails_is_an_error(self):
        with pytest.raises(sqlrag.ProviderError):
            SqlragReranker(model=lambda query, texts: [1.0]).compress_documents([Document("a"), Document("b")], "q")
