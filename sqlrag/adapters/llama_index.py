"""sqlrag in llama-index: a vector store, an index, a retriever, an embedding and two node postprocessors."""

from __future__ import annotations

from sqlrag.adapters.llama_index_embedding import SqlragEmbedding
from sqlrag.adapters.llama_index_filters import condition_of
from sqlrag.adapters.llama_index_index import SqlragIndex
from sqlrag.adapters.llama_index_postprocessors import SqlragCompress, SqlragRerank
from sqlrag.adapters.llama_index_retriever import SqlragRetriever
from sqlrag.adapters.llama_index_store import SqlragVectorStore

__all__ = [
    "SqlragCompress",
    "SqlragEmbedding",
    "SqlragIndex",
    "SqlragRerank",
    "SqlragRetriever",
    "SqlragVectorStore",
    "condition_of",
]
