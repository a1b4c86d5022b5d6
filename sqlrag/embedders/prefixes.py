"""The prefixes that models need before queries and documents, from the models' own cards."""

from __future__ import annotations

import re
from typing import NamedTuple


class Prefixes(NamedTuple):
    """The prefixes of one family of models: ``models`` are names in lower case, without organisation."""

    family: str
    models: tuple[str, ...]
    query: str
    passage: str
    source: str


_SEARCH = "Represent this sentence for searching relevant passages: "

_INSTRUCT = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "

_HUB = "https://huggingface.co/"


def _sizes(pattern: str, *sizes: str) -> tuple[str, ...]:
    return tuple(pattern.format(size) for size in sizes)


# A model without a row has no prefixes. Rows without prefixes record that the card asks for none.
PREFIXES = (
    Prefixes(
        "bge, English",
        (
            *_sizes("bge-{}-en", "small", "base", "large"),
            *_sizes("bge-{}-en-v1.5", "small", "base", "large"),
            "bge-large",  # as Ollama calls bge-large-en-v1.5
        ),
        _SEARCH,
        "",
        _HUB + "BAAI/bge-small-en-v1.5",
    ),
    Prefixes(
        "bge, Chinese",
        (*_sizes("bge-{}-zh", "small", "base", "large"), *_sizes("bge-{}-zh-v1.5", "small", "base", "large")),
        "为这个句子生成表示以用于检索相关文章：",
        "",
        _HUB + "BAAI/bge-small-zh-v1.5",
    ),
    Prefixes("bge-m3", ("bge-m3",), "", "", _HUB + "BAAI/bge-m3"),
    Prefixes(
        "e5",
        (
            *_sizes("e5-{}", "small", "base", "large"),
            *_sizes("e5-{}-v2", "small", "base", "large"),
            *_sizes("multilingual-e5-{}", "small", "base", "large"),
        ),
        "query: ",
        "passage: ",
        _HUB + "intfloat/multilingual-e5-large",
    ),
    Prefixes(
        "e5, instruct",
        ("multilingual-e5-large-instruct", "e5-mistral-7b-instruct"),
        _INSTRUCT,
        "",
        _HUB + "intfloat/multilingual-e5-large-instruct",
    ),
    Prefixes(
        "nomic",
        ("nomic-embed-text", *_sizes("nomic-embed-text-{}", "v1", "v1.5", "v2-moe")),
        "search_query: ",
        "search_document: ",
        _HUB + "nomic-ai/nomic-embed-text-v1.5",
    ),
    Prefixes(
        "gte",
        (
            *_sizes("gte-{}", "small", "base", "large"),
            *_sizes("gte-{}-en-v1.5", "base", "large"),
            *_sizes("gte-{}-zh", "small", "base", "large"),
            "gte-multilingual-base",
            "gte-modernbert-base",
        ),
        "",
        "",
        _HUB + "Alibaba-NLP/gte-large-en-v1.5",
    ),
    Prefixes(
        "gte, instruct",
        ("gte-qwen1.5-7b-instruct", "gte-qwen2-1.5b-instruct", "gte-qwen2-7b-instruct"),
        _INSTRUCT,
        "",
        _HUB + "Alibaba-NLP/gte-Qwen2-1.5B-instruct",
    ),
    Prefixes(
        "snowflake arctic, version 1",
        (
            "snowflake-arctic-embed",
            *_sizes("snowflake-arctic-embed-{}", "xs", "s", "m", "m-long", "l"),
            "snowflake-arctic-embed-m-v1.5",
        ),
        _SEARCH,
        "",
        _HUB + "Snowflake/snowflake-arctic-embed-m-v1.5",
    ),
    Prefixes(
        "snowflake arctic, version 2",
        ("snowflake-arctic-embed2", *_sizes("snowflake-arctic-embed-{}-v2.0", "m", "l")),
        "query: ",
        "",
        _HUB + "Snowflake/snowflake-arctic-embed-l-v2.0",
    ),
    Prefixes(
        "mxbai",
        ("mxbai-embed-large", "mxbai-embed-large-v1"),
        _SEARCH,
        "",
        _HUB + "mixedbread-ai/mxbai-embed-large-v1",
    ),
    Prefixes(
        "qwen3",
        ("qwen3-embedding", *_sizes("qwen3-embedding-{}", "0.6b", "4b", "8b")),
        _INSTRUCT.rstrip(),  # without a blank at its end
        "",
        _HUB + "Qwen/Qwen3-Embedding-0.6B",
    ),
    Prefixes(
        "embeddinggemma",
        ("embeddinggemma", "embeddinggemma-300m"),
        "task: search result | query: ",
        "title: none | text: ",
        _HUB + "google/embeddinggemma-300m",
    ),
    Prefixes(
        "MiniLM",
        (*_sizes("all-minilm-{}", "l6-v2", "l12-v2"), "all-minilm"),
        "",
        "",
        _HUB + "sentence-transformers/all-MiniLM-L6-v2",
    ),
)

_BY_MODEL = {model: row for row in PREFIXES for model in row.models}

# The hub's cache keeps models--ORGANISATION--NAME/snapshots/REVISION.
_HUB_FOLDER = re.compile(r"models--(?:[^/\\]*--)?([^/\\]+)")

# Suffixes of storage formats of the same weights: "-q8_0", ".Q4_K_M.gguf", "-onnx-q", "-fp16", "-4bit" …
_STORED_AS = re.compile(
    r"[-_.@](?:gguf|ggml|onnx|openvino|mlx|safetensors|awq|gptq|dynamic|static|quant|quantized|optimized|int8|uint8"
    r"|f16|f32|fp16|fp32|bf16|[248]-?bit|q|i?q\d(?:_\w+)?)$"
)


def prefixes_of(model_name: str) -> tuple[str, str]:
    """Return what is put before a query and before a document for this model; empty where its card asks for nothing.

    Case, organisation, folder, tag and the form in which the weights are stored make no difference, so names of Ollama
    (``snowflake-arctic-embed:335m``), of LM Studio and of quantised copies are found as well.

    Examples
    --------
    >>> prefixes_of("intfloat/e5-small-v2")
    ('query: ', 'passage: ')
    >>> prefixes_of("hf.co/nomic-ai/nomic-embed-text-v1.5-GGUF:Q4_K_M")
    ('search_query: ', 'search_document: ')
    """
    row = _BY_MODEL.get(_plain_name(model_name))
    return (row.query, row.passage) if row else ("", "")


def _plain_name(model_name: str) -> str:
    """Return a name in the form of the table."""
    folder = _HUB_FOLDER.search(model_name)
    name = folder[1] if folder else re.split(r"[/\\]", model_name.strip().rstrip("/\\"))[-1]
    name = name.lower().partition(":")[0]
    if name.startswith("text-embedding-") and name not in _BY_MODEL:  # LM Studio's names
        name = name.removeprefix("text-embedding-")
    while name not in _BY_MODEL and (shorter := _STORED_AS.sub("", name)) != name:
        name = shorter
    return name
