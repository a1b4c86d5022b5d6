"""The prefixes of model families: found by any spelling of a name, stated in the handbook, stored and used."""

from __future__ import annotations

import json

import pytest

from sqlrag import ModelMismatchError, Store, get_embedding_metadata, prepare_embeddings
from sqlrag.embedders.prefixes import PREFIXES, prefixes_of
from tests.support.helpers import ROOT, Recorder, write

SEARCH = "Represent this sentence for searching relevant passages: "
BGE, BGE_ZH = (SEARCH, ""), ("为这个句子生成表示以用于检索相关文章：", "")
E5 = ("query: ", "passage: ")
INSTRUCT = ("Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: ", "")
NOMIC = ("search_query: ", "search_document: ")
ARCTIC_2 = ("query: ", "")
NONE = ("", "")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("BAAI/bge-small-en", BGE),
        ("BAAI/bge-large-en-v1.5", BGE),
        ("BAAI/bge-base-zh-v1.5", BGE_ZH),
        ("BAAI/bge-large-zh", BGE_ZH),
        ("BAAI/bge-m3", NONE),
        ("intfloat/e5-small", E5),
        ("intfloat/e5-large-v2", E5),
        ("intfloat/multilingual-e5-base", E5),
        ("intfloat/multilingual-e5-large-instruct", INSTRUCT),
        ("intfloat/e5-mistral-7b-instruct", INSTRUCT),
        ("nomic-ai/nomic-embed-text-v1", NOMIC),
        ("nomic-ai/nomic-embed-text-v2-moe", NOMIC),
        ("thenlper/gte-base", NONE),
        ("Alibaba-NLP/gte-large-en-v1.5", NONE),
        ("Alibaba-NLP/gte-Qwen2-1.5B-instruct", INSTRUCT),
        ("Snowflake/snowflake-arctic-embed-xs", BGE),
        ("Snowflake/snowflake-arctic-embed-m-v1.5", BGE),
        ("Snowflake/snowflake-arctic-embed-l-v2.0", ARCTIC_2),
        ("mixedbread-ai/mxbai-embed-large-v1", BGE),
        ("sentence-transformers/all-MiniLM-L6-v2", NONE),
    ],
)
def test_case_C7_each_family_has_what_its_card_asks_for(name, expected):
    assert prefixes_of(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Ollama
        ("nomic-embed-text", NOMIC),
        ("nomic-embed-text:latest", NOMIC),
        ("nomic-embed-text:137m-v1.5-fp16", NOMIC),
        ("mxbai-embed-large", BGE),
        ("mxbai-embed-large:335m-v1-fp16", BGE),
        ("snowflake-arctic-embed:335m", BGE),
        ("snowflake-arctic-embed2:568m", ARCTIC_2),
        ("bge-m3:567m", NONE),
        ("bge-large:335m", BGE),
        ("all-minilm:33m", NONE),
        ("hf.co/nomic-ai/nomic-embed-text-v1.5-GGUF:Q4_K_M", NOMIC),
        # LM Studio, llama.cpp, Cloudflare
        ("text-embedding-nomic-embed-text-v1.5@q8_0", NOMIC),
        ("/models/nomic-embed-text-v1.5.Q4_K_M.gguf", NOMIC),
        ("@cf/baai/bge-base-en-v1.5", BGE),
        # quantised copies
        ("qdrant/bge-small-en-v1.5-onnx-q", BGE),
        ("qdrant/multilingual-e5-large-onnx", E5),
        ("nomic-ai/nomic-embed-text-v1.5-Q", NOMIC),
        # folders
        ("/models/bge-small-en-v1.5/", BGE),
        ("C:\\models\\e5-base-v2", E5),
        ("/home/me/.cache/models--BAAI--bge-base-en-v1.5/snapshots/5c38ec7c405ec4b44b94cc5a9bb96e735b38267a", BGE),
        ("BGE-SMALL-EN-V1.5", BGE),
    ],
)
def test_other_spellings_are_found(name, expected):
    assert prefixes_of(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        "text-embedding-3-small",
        "bge-reranker-base",
        "my-e5-base",
        "e5",
        "bge",
        "gpt-oss:20b",
        "",
        "/",
        "-q",
        "models--",
    ],
)
def test_unknown_models_have_none(name):
    assert prefixes_of(name) == NONE


def test_no_model_is_in_two_rows_and_names_are_plain():
    models = [model for row in PREFIXES for model in row.models]
    assert len(models) == len(set(models))
    for row in PREFIXES:
        assert row.source.startswith("https://huggingface.co/")
        for model in row.models:
            assert model == model.lower()
            assert prefixes_of(model) == (row.query, row.passage)


def test_the_page_of_the_handbook_has_the_table_of_the_code():
    page = (ROOT / "data" / "handbook" / "reference" / "prefixes.md").read_text("utf-8")

    def shown(prefix):
        # A bar would end the cell.
        return f"`{json.dumps(prefix, ensure_ascii=False)}`".replace("|", r"\|") if prefix else "nothing"

    expected = [
        f"| {row.family} | {', '.join(f'`{model}`' for model in row.models)} "
        f"| {shown(row.query)} | {shown(row.passage)} | [card]({row.source}) |"
        for row in PREFIXES
    ]
    assert [line for line in page.splitlines() if "[card]" in line] == expected


@pytest.mark.parametrize("name", ["BAAI/bge-small-en-v1.5", "intfloat/e5-small-v2"])
def test_case_C7_a_prefix_stands_once_before_each_text_is_stored_and_a_change_is_a_mismatch(name, tmp_path):
    query, passage = prefixes_of(name)
    folder = write(tmp_path / "docs", a_md="# Ducks\n\nducks swim")
    model = Recorder(query_prefix=query, passage_prefix=passage)
    path = prepare_embeddings(folder, tmp_path / "kb.duckdb", embedder=model, progress="off").path
    assert [text for text in model.texts if "ducks" in text] == [f"{passage}Ducks\n\nDucks\n\nducks swim"]
    embedding = get_embedding_metadata(path)["embedding"]
    assert (embedding["query_prefix"], embedding["passage_prefix"]) == (query, passage)

    with Store(path, embedder=model) as store:
        [found] = store.hybrid_query("do they swim?", strict=True)
    assert [text for text in model.texts if "they" in text] == [f"{query}do they swim?"]
    assert found["text"] == "# Ducks\n\nducks swim"
    for other in (
        Recorder(query_prefix="other: ", passage_prefix=passage),
        Recorder(query_prefix=query, passage_prefix="x"),
    ):
        with Store(path, embedder=other) as store, pytest.raises(ModelMismatchError, match="prefix"):
            store.hybrid_query("do they swim?")
