"""Hybrid search (vectors + BM25) over your documents in one DuckDB file."""

from __future__ import annotations

import logging
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
from sqlrag.types import (
    SPEC_VERSION,
    Candidate,
    Candidates,
    Chunk,
    ChunkPolicy,
    Document,
    Embedder,
    ModelIdentity,
    RetrievePlan,
)

if TYPE_CHECKING:
    from sqlrag.answering.asking import answer
    from sqlrag.answering.chatting import ChatModel, OpenAIChat
    from sqlrag.answering.outcome import Answer, AnswerEvent
    from sqlrag.answering.prompting import Prompt, build_prompt
    from sqlrag.answering.replies import Piece
    from sqlrag.answering.windowing import FittedContext, fit_context
    from sqlrag.asynchronous import (
        aanswer,
        aget_embedding_metadata,
        aget_source_documents,
        ahybrid_query,
        alexical_query,
        aprepare_embeddings,
        areembed,
        arerank,
        aretrieve,
        aupdate_embeddings,
        avector_query,
    )
    from sqlrag.embedders import load_embedder
    from sqlrag.embedders.models import Models, models
    from sqlrag.evaluating.evaluating import evaluate
    from sqlrag.evaluating.evaluation import Comparison, Evaluation
    from sqlrag.exploring.mapping import corpus_map
    from sqlrag.exploring.page import export_map_html
    from sqlrag.exploring.plotting import plot_lengths, plot_map, plot_ranks
    from sqlrag.exploring.points import CorpusMap
    from sqlrag.exploring.viewer import ExportedMap, export_map_parquet
    from sqlrag.formats.converting import FileFacts, convert, file_facts, verify_file
    from sqlrag.formats.exchange import Imported
    from sqlrag.formats.faiss_json import export_faiss_json, import_faiss_json
    from sqlrag.formats.files import Exported
    from sqlrag.formats.parquet import export_parquet, import_parquet
    from sqlrag.formats.ragfile import export_ragfile, import_ragfile
    from sqlrag.formats.ragfile_map import RAGFile, Record
    from sqlrag.formats.ragmd import export_ragmd, import_ragmd
    from sqlrag.formats.service import SingleFileRAGService, rag_service
    from sqlrag.ingest.adding import add_documents
    from sqlrag.ingest.chunking import chunk
    from sqlrag.ingest.preparing import prepare_embeddings
    from sqlrag.ingest.reembedding import ReembedReport, reembed
    from sqlrag.ingest.report import Prepared, Report, UpdateReport
    from sqlrag.ingest.updating import update_embeddings
    from sqlrag.many.merging import Merged, merge
    from sqlrag.measuring import metrics
    from sqlrag.pushing.postgres import pull
    from sqlrag.pushing.pushing import Pushed, push
    from sqlrag.retrieval.blocks import fuse, package, retrieve
    from sqlrag.retrieval.changing import delete_documents, index
    from sqlrag.retrieval.compressing import CompressPolicy, compress
    from sqlrag.retrieval.cross_encoders import load_reranker
    from sqlrag.retrieval.duplicates import drop_near_duplicates
    from sqlrag.retrieval.explaining import explain
    from sqlrag.retrieval.explanation import Explanation, LexicalPart, TermPart, VectorPart
    from sqlrag.retrieval.fusion import reciprocal_rank_fusion
    from sqlrag.retrieval.highlighting import highlight
    from sqlrag.retrieval.postgres_store import PostgresStore
    from sqlrag.retrieval.querying import (
        get_embedding_metadata,
        get_source_documents,
        hybrid_query,
        lexical_query,
        validate_embedding_model,
        vector_query,
    )
    from sqlrag.retrieval.reranking import rerank
    from sqlrag.retrieval.results import Results, print_results
    from sqlrag.retrieval.store import Store
    from sqlrag.retrieval.stores import Stores
    from sqlrag.settings import Settings
    from sqlrag.store.attaching import attach_sql
    from sqlrag.store.checking import Problem
    from sqlrag.store.compacting import Compacted, compact
    from sqlrag.store.deleting import DeleteReport
    from sqlrag.store.indexing import IndexReport
    from sqlrag.store.inspecting import check
    from sqlrag.store.repairing import Repaired, repair
    from sqlrag.store.upgrading import Upgraded, upgrade

__version__ = "0.1.0"

# A library is silent unless the program asks for its log.
logging.getLogger("sqlrag").addHandler(logging.NullHandler())

__all__ = [
    "SPEC_VERSION",
    "Answer",
    "AnswerEvent",
    "Candidate",
    "Candidates",
    "ChatModel",
    "Chunk",
    "ChunkPolicy",
    "Compacted",
    "Comparison",
    "CompressPolicy",
    "CorpusMap",
    "DeleteReport",
    "Document",
    "DocumentError",
    "Embedder",
    "Evaluation",
    "Explanation",
    "Exported",
    "ExportedMap",
    "FileFacts",
    "FittedContext",
    "FormatError",
    "Imported",
    "IndexReport",
    "InputError",
    "LexicalPart",
    "Merged",
    "MissingExtraError",
    "ModelIdentity",
    "ModelMismatchError",
    "ModelUnavailableError",
    "Models",
    "NotAStoreError",
    "NotFoundError",
    "OpenAIChat",
    "Piece",
    "PostgresStore",
    "Prepared",
    "Problem",
    "Prompt",
    "ProviderError",
    "Pushed",
    "RAGFile",
    "Record",
    "ReembedReport",
    "Repaired",
    "Report",
    "Results",
    "RetrievePlan",
    "SchemaVersionError",
    "Settings",
    "SingleFileRAGService",
    "SqlragError",
    "Store",
    "StoreError",
    "StoreExistsError",
    "StoreLockedError",
    "Stores",
    "TermPart",
    "UpdateReport",
    "Upgraded",
    "VectorPart",
    "aanswer",
    "add_documents",
    "aget_embedding_metadata",
    "aget_source_documents",
    "ahybrid_query",
    "alexical_query",
    "answer",
    "aprepare_embeddings",
    "areembed",
    "arerank",
    "aretrieve",
    "attach_sql",
    "aupdate_embeddings",
    "avector_query",
    "build_prompt",
    "check",
    "chunk",
    "compact",
    "compress",
    "convert",
    "corpus_map",
    "delete_documents",
    "drop_near_duplicates",
    "errors",
    "evaluate",
    "explain",
    "export_faiss_json",
    "export_map_html",
    "export_map_parquet",
    "export_parquet",
    "export_ragfile",
    "export_ragmd",
    "file_facts",
    "fit_context",
    "fuse",
    "get_embedding_metadata",
    "get_source_documents",
    "highlight",
    "hybrid_query",
    "import_faiss_json",
    "import_parquet",
    "import_ragfile",
    "import_ragmd",
    "index",
    "lexical_query",
    "load_embedder",
    "load_reranker",
    "merge",
    "metrics",
    "models",
    "package",
    "plot_lengths",
    "plot_map",
    "plot_ranks",
    "prepare_embeddings",
    "print_results",
    "pull",
    "push",
    "rag_service",
    "reciprocal_rank_fusion",
    "reembed",
    "repair",
    "rerank",
    "retrieve",
    "update_embeddings",
    "upgrade",
    "validate_embedding_model",
    "vector_query",
    "verify_file",
]

# Importing sqlrag loads none of the heavy modules; each name below is fetched at its first use.
_LAZY = {
    "Answer": "sqlrag.answering.outcome",
    "AnswerEvent": "sqlrag.answering.outcome",
    "ChatModel": "sqlrag.answering.chatting",
    "Compacted": "sqlrag.store.compacting",
    "Comparison": "sqlrag.evaluating.evaluation",
    "CompressPolicy": "sqlrag.retrieval.compressing",
    "CorpusMap": "sqlrag.exploring.points",
    "DeleteReport": "sqlrag.store.deleting",
    "Evaluation": "sqlrag.evaluating.evaluation",
    "Explanation": "sqlrag.retrieval.explanation",
    "Exported": "sqlrag.formats.files",
    "ExportedMap": "sqlrag.exploring.viewer",
    "FileFacts": "sqlrag.formats.converting",
    "FittedContext": "sqlrag.answering.windowing",
    "Imported": "sqlrag.formats.exchange",
    "IndexReport": "sqlrag.store.indexing",
    "LexicalPart": "sqlrag.retrieval.explanation",
    "Merged": "sqlrag.many.merging",
    "Models": "sqlrag.embedders.models",
    "OpenAIChat": "sqlrag.answering.chatting",
    "Piece": "sqlrag.answering.replies",
    "PostgresStore": "sqlrag.retrieval.postgres_store",
    "Prepared": "sqlrag.ingest.report",
    "Problem": "sqlrag.store.checking",
    "Prompt": "sqlrag.answering.prompting",
    "Pushed": "sqlrag.pushing.pushing",
    "RAGFile": "sqlrag.formats.ragfile_map",
    "Record": "sqlrag.formats.ragfile_map",
    "ReembedReport": "sqlrag.ingest.reembedding",
    "Repaired": "sqlrag.store.repairing",
    "Report": "sqlrag.ingest.report",
    "Results": "sqlrag.retrieval.results",
    "Settings": "sqlrag.settings",
    "SingleFileRAGService": "sqlrag.formats.service",
    "Store": "sqlrag.retrieval.store",
    "Stores": "sqlrag.retrieval.stores",
    "TermPart": "sqlrag.retrieval.explanation",
    "UpdateReport": "sqlrag.ingest.report",
    "Upgraded": "sqlrag.store.upgrading",
    "VectorPart": "sqlrag.retrieval.explanation",
    "aanswer": "sqlrag.asynchronous",
    "add_documents": "sqlrag.ingest.adding",
    "aget_embedding_metadata": "sqlrag.asynchronous",
    "aget_source_documents": "sqlrag.asynchronous",
    "ahybrid_query": "sqlrag.asynchronous",
    "alexical_query": "sqlrag.asynchronous",
    "answer": "sqlrag.answering.asking",
    "aprepare_embeddings": "sqlrag.asynchronous",
    "areembed": "sqlrag.asynchronous",
    "arerank": "sqlrag.asynchronous",
    "aretrieve": "sqlrag.asynchronous",
    "attach_sql": "sqlrag.store.attaching",
    "aupdate_embeddings": "sqlrag.asynchronous",
    "avector_query": "sqlrag.asynchronous",
    "build_prompt": "sqlrag.answering.prompting",
    "check": "sqlrag.store.inspecting",
    "chunk": "sqlrag.ingest.chunking",
    "compact": "sqlrag.store.compacting",
    "compress": "sqlrag.retrieval.compressing",
    "convert": "sqlrag.formats.converting",
    "corpus_map": "sqlrag.exploring.mapping",
    "delete_documents": "sqlrag.retrieval.changing",
    "drop_near_duplicates": "sqlrag.retrieval.duplicates",
    "evaluate": "sqlrag.evaluating.evaluating",
    "explain": "sqlrag.retrieval.explaining",
    "export_faiss_json": "sqlrag.formats.faiss_json",
    "export_map_html": "sqlrag.exploring.page",
    "export_map_parquet": "sqlrag.exploring.viewer",
    "export_parquet": "sqlrag.formats.parquet",
    "export_ragfile": "sqlrag.formats.ragfile",
    "export_ragmd": "sqlrag.formats.ragmd",
    "file_facts": "sqlrag.formats.converting",
    "fit_context": "sqlrag.answering.windowing",
    "fuse": "sqlrag.retrieval.blocks",
    "get_embedding_metadata": "sqlrag.retrieval.querying",
    "get_source_documents": "sqlrag.retrieval.querying",
    "highlight": "sqlrag.retrieval.highlighting",
    "hybrid_query": "sqlrag.retrieval.querying",
    "import_faiss_json": "sqlrag.formats.faiss_json",
    "import_parquet": "sqlrag.formats.parquet",
    "import_ragfile": "sqlrag.formats.ragfile",
    "import_ragmd": "sqlrag.formats.ragmd",
    "index": "sqlrag.retrieval.changing",
    "lexical_query": "sqlrag.retrieval.querying",
    "load_embedder": "sqlrag.embedders",
    "load_reranker": "sqlrag.retrieval.cross_encoders",
    "merge": "sqlrag.many.merging",
    "metrics": "sqlrag.measuring",
    "models": "sqlrag.embedders.models",
    "package": "sqlrag.retrieval.blocks",
    "plot_lengths": "sqlrag.exploring.plotting",
    "plot_map": "sqlrag.exploring.plotting",
    "plot_ranks": "sqlrag.exploring.plotting",
    "prepare_embeddings": "sqlrag.ingest.preparing",
    "print_results": "sqlrag.retrieval.results",
    "pull": "sqlrag.pushing.postgres",
    "push": "sqlrag.pushing.pushing",
    "rag_service": "sqlrag.formats.service",
    "reciprocal_rank_fusion": "sqlrag.retrieval.fusion",
    "reembed": "sqlrag.ingest.reembedding",
    "repair": "sqlrag.store.repairing",
    "rerank": "sqlrag.retrieval.reranking",
    "retrieve": "sqlrag.retrieval.blocks",
    "update_embeddings": "sqlrag.ingest.updating",
    "upgrade": "sqlrag.store.upgrading",
    "validate_embedding_model": "sqlrag.retrieval.querying",
    "vector_query": "sqlrag.retrieval.querying",
    "verify_file": "sqlrag.formats.converting",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'sqlrag' has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
