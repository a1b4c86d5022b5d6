"""The shapes of what the tools give back, from which clients get their output schemas."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict  # pydantic reads that of typing from Python 3.12 only


class Hit(TypedDict):
    """A passage: ``text`` is ``source.text[i_start:i_end]``, whole unless a notice says that it was cut."""

    node_id: str
    text: str
    metadata: dict[str, Any]
    score: float
    score_type: str
    doc_id: str
    chunk_index: int
    collection: str
    heading_path: list[str]
    page: int | None
    i_start: int | None
    i_end: int | None
    vector_score: float | None
    vector_rank: int | None
    lexical_score: float | None
    lexical_rank: int | None


class Found(TypedDict):
    """Passages, best first, and what to know about the search."""

    results: list[Hit]
    notices: list[str]


class SourceDocument(TypedDict):
    """A document, or the part of it from character ``start`` to before ``end``; it has ``characters`` in all."""

    doc_id: str
    file_name: str
    metadata: dict[str, Any]
    characters: int
    start: int
    end: int
    text: str


class Documents(TypedDict):
    """Documents in the order in which the chunks name them."""

    documents: list[SourceDocument]
    notices: list[str]


class Source(TypedDict):
    """Where the passage ``[number]`` of the context is from; spans are characters of the document."""

    number: int
    node_id: str
    doc_id: str
    chunk_index: int | None
    collection: str
    file: str
    page: int | None
    heading_path: list[str]
    score: float | None
    score_type: str
    checksum: str | None
    spans: list[list[int]]
    i_start: int | None
    i_end: int | None


class AnswerSources(TypedDict):
    """How to answer, the numbered passages to answer from, and where each is from."""

    instructions: str
    context: str
    sources: list[Source]
    notices: list[str]


class Count(TypedDict):
    """A name, and how many documents and chunks have it."""

    name: str
    documents: int
    chunks: int


class Corpus(TypedDict):
    """What a file says of itself, and the names that filters can use, the most used first."""

    version: str
    created_at: str
    embedding: dict[str, Any]
    chunking: dict[str, Any]
    source_documents: dict[str, Any]
    chunks: dict[str, Any]
    capabilities: dict[str, Any]
    store: dict[str, Any]
    collections: list[Count]
    tags: list[Count]
    metadata_fields: list[Count]
