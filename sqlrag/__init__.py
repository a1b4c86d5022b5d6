"""Hybrid search (vectors + BM25) over your documents in one DuckDB file."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sqlrag import errors
from sqlrag.errors import (
    DocumentError,
    FormatError,
    InputError,
    MissingExtraError,
    ModelMismatchError,
    ModelUnavailableError,
    NotAStoreError,
    NotFoundError,
    ProviderError,
    SchemaVersionError,
    SqlragError,
    StoreError,
    StoreExistsError,
    StoreLockedError,
)
from sqlrag.types import Chunk, ChunkPolicy, Document, Embedder, ModelIdentity

if TYPE_CHECKING:
    from sqlrag.embedders import load_embedder
    from sqlrag.ingest.pipeline import prepare_embeddings
    from sqlrag.ingest.report import Prepared, Report, UpdateReport
    from sqlrag.ingest.updating import update_embeddings
    from sqlrag.retrieve.changing import delete_documents, index
    from sqlrag.retrieve.fusion import reciprocal_rank_fusion
    from sqlrag.retrieve.querying import (
        get_embedding_metadata,
        get_source_documents,
        hybrid_query,
        lexical_query,
        validate_embedding_model,
        vector_query,
    )
    from sqlrag.retrieve.results import Results, print_results
    from sqlrag.retrieve.store import Store
    from sqlrag.store.deleting import DeleteReport
    from sqlrag.store.indexing import IndexReport

__version__ = "0.1.0"

__all__ = [
    "Chunk",
    "ChunkPolicy",
    "DeleteReport",
    "Document",
    "DocumentError",
    "Embedder",
    "FormatError",
    "IndexReport",
    "InputError",
    "MissingExtraError",
    "ModelIdentity",
    "ModelMismatchError",
    "ModelUnavailableError",
    "NotAStoreError",
    "NotFoundError",
    "Prepared",
    "ProviderError",
    "Report",
    "Results",
    "SchemaVersionError",
    "SqlragError",
    "Store",
    "StoreError",
    "StoreExistsError",
    "StoreLockedError",
    "UpdateReport",
    "delete_documents",
    "errors",
    "get_embedding_metadata",
    "get_source_documents",
    "hybrid_query",
    "index",
    "lexical_query",
    "load_embedder",
    "prepare_embeddings",
    "print_results",
    "reciprocal_rank_fusion",
    "update_embeddings",
    "validate_embedding_model",
    "vector_query",
]

# Importing sqlrag loads none of the heavy modules; each name below is fetched at its first use.
_LAZY = {
    "DeleteReport": "sqlrag.store.deleting",
    "IndexReport": "sqlrag.store.indexing",
    "Prepared": "sqlrag.ingest.report",
    "Report": "sqlrag.ingest.report",
    "Results": "sqlrag.retrieve.results",
    "Store": "sqlrag.retrieve.store",
    "UpdateReport": "sqlrag.ingest.report",
    "delete_documents": "sqlrag.retrieve.changing",
    "get_embedding_metadata": "sqlrag.retrieve.querying",
    "get_source_documents": "sqlrag.retrieve.querying",
    "hybrid_query": "sqlrag.retrieve.querying",
    "index": "sqlrag.retrieve.changing",
    "lexical_query": "sqlrag.retrieve.querying",
    "load_embedder": "sqlrag.embedders",
    "prepare_embeddings": "sqlrag.ingest.pipeline",
    "print_results": "sqlrag.retrieve.results",
    "reciprocal_rank_fusion": "sqlrag.retrieve.fusion",
    "update_embeddings": "sqlrag.ingest.updating",
    "validate_embedding_model": "sqlrag.retrieve.querying",
    "vector_query": "sqlrag.retrieve.querying",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'sqlrag' has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
