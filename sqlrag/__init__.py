"""Hybrid search (vectors + BM25) over your documents in one DuckDB file."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

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
from sqlrag.version import __version__ as __version__

if TYPE_CHECKING:
    from sqlrag.adapters.connection import connect, register
    from sqlrag.answers.answer import answer
    from sqlrag.answers.chat_models import ChatModel, OpenAIChat, Piece
    from sqlrag.answers.outcome import Answer, AnswerEvent
    from sqlrag.answers.prompt import Prompt, build_prompt
    from sqlrag.answers.window import FittedContext, fit_context
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
    from sqlrag.blocks.compress import CompressPolicy, compress
    from sqlrag.blocks.fuse import fuse, package, retrieve
    from sqlrag.blocks.rerank import drop_near_duplicates, load_reranker, rerank
    from sqlrag.embedders import load_embedder
    from sqlrag.embedders.base import Models, models
    from sqlrag.engines.duckdb.attach import attach_sql
    from sqlrag.engines.duckdb.check import Problem, Repaired, check, repair
    from sqlrag.engines.duckdb.chunks import IndexReport
    from sqlrag.engines.duckdb.documents import DeleteReport
    from sqlrag.engines.duckdb.rewrite import BackedUp, Compacted, backup, compact
    from sqlrag.engines.duckdb.upgrade import Upgraded, upgrade
    from sqlrag.explore.analytics import (
        Clusters,
        classify,
        cluster,
        distinctive_terms,
        near_duplicates,
        semantic_join,
        trend,
    )
    from sqlrag.explore.embedded_rows import EmbeddedRows, embed_rows
    from sqlrag.explore.evaluate import Comparison, Evaluation, evaluate
    from sqlrag.explore.map import corpus_map
    from sqlrag.explore.plot import plot_lengths, plot_map, plot_ranks
    from sqlrag.explore.points import Analysis, CorpusMap
    from sqlrag.explore.recommend import Advice, Recommendation, recommend
    from sqlrag.explore.viewer import ExportedMap, export_map_html, export_map_parquet
    from sqlrag.formats.convert import FileFacts, convert, file_facts, verify_file
    from sqlrag.formats.exchange import Imported
    from sqlrag.formats.faiss_json import export_faiss_json, import_faiss_json
    from sqlrag.formats.merge import Merged, merge
    from sqlrag.formats.parquet import export_parquet, import_parquet
    from sqlrag.formats.push import Pushed, push
    from sqlrag.formats.push.to_postgres import pull
    from sqlrag.formats.ragfile import export_ragfile, import_ragfile
    from sqlrag.formats.ragfile.mapped import RAGFile, Record
    from sqlrag.formats.ragmd import export_ragmd, import_ragmd
    from sqlrag.formats.service import SingleFileRAGService, rag_service
    from sqlrag.formats.targets import Exported
    from sqlrag.ingest.add import add_documents
    from sqlrag.ingest.chunk import chunk
    from sqlrag.ingest.reembed import ReembedReport, reembed
    from sqlrag.ingest.rows import RowsReport, index_rows, update_rows
    from sqlrag.ingest.run import Prepared, Report, UpdateReport
    from sqlrag.ingest.update import update_embeddings
    from sqlrag.prepare import prepare_embeddings
    from sqlrag.query import (
        explain,
        get_embedding_metadata,
        get_source_documents,
        highlight,
        hybrid_query,
        lexical_query,
        validate_embedding_model,
        vector_query,
    )
    from sqlrag.ranking.explanation import Explanation, LexicalPart, TermPart, VectorPart
    from sqlrag.ranking.fusion import reciprocal_rank_fusion
    from sqlrag.ranking.results import Results, print_results
    from sqlrag.search.change import delete_documents, index
    from sqlrag.search.open import open_store
    from sqlrag.search.postgres_store import PostgresStore
    from sqlrag.search.store import Store
    from sqlrag.search.stores import Stores
    from sqlrag.settings import Settings
    from sqlrag.telemetry import metrics

# A library is silent unless the program asks for its log.
logging.getLogger("sqlrag").addHandler(logging.NullHandler())

__all__ = [
    "SPEC_VERSION",
    "Advice",
    "Analysis",
    "Answer",
    "AnswerEvent",
    "BackedUp",
    "Candidate",
    "Candidates",
    "ChatModel",
    "Chunk",
    "ChunkPolicy",
    "Clusters",
    "Compacted",
    "Comparison",
    "CompressPolicy",
    "CorpusMap",
    "DeleteReport",
    "Document",
    "DocumentError",
    "EmbeddedRows",
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
    "Recommendation",
    "Record",
    "ReembedReport",
    "Repaired",
    "Report",
    "Results",
    "RetrievePlan",
    "RowsReport",
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
    "backup",
    "build_prompt",
    "check",
    "chunk",
    "classify",
    "cluster",
    "compact",
    "compress",
    "connect",
    "convert",
    "corpus_map",
    "delete_documents",
    "distinctive_terms",
    "drop_near_duplicates",
    "embed_rows",
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
    "index_rows",
    "lexical_query",
    "load_embedder",
    "load_reranker",
    "merge",
    "metrics",
    "models",
    "near_duplicates",
    "open_store",
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
    "recommend",
    "reembed",
    "register",
    "repair",
    "rerank",
    "retrieve",
    "semantic_join",
    "trend",
    "update_embeddings",
    "update_rows",
    "upgrade",
    "validate_embedding_model",
    "vector_query",
    "verify_file",
]

# Importing sqlrag loads none of the heavy modules; each name below is imported at its first use.
_LAZY = {
    "Advice": "sqlrag.explore.recommend",
    "Analysis": "sqlrag.explore.points",
    "Answer": "sqlrag.answers.outcome",
    "AnswerEvent": "sqlrag.answers.outcome",
    "ChatModel": "sqlrag.answers.chat_models",
    "BackedUp": "sqlrag.engines.duckdb.rewrite",
    "Clusters": "sqlrag.explore.analytics",
    "Compacted": "sqlrag.engines.duckdb.rewrite",
    "Comparison": "sqlrag.explore.evaluate",
    "CompressPolicy": "sqlrag.blocks.compress",
    "CorpusMap": "sqlrag.explore.points",
    "DeleteReport": "sqlrag.engines.duckdb.documents",
    "EmbeddedRows": "sqlrag.explore.embedded_rows",
    "Evaluation": "sqlrag.explore.evaluate",
    "Explanation": "sqlrag.ranking.explanation",
    "Exported": "sqlrag.formats.targets",
    "ExportedMap": "sqlrag.explore.viewer",
    "FileFacts": "sqlrag.formats.convert",
    "FittedContext": "sqlrag.answers.window",
    "Imported": "sqlrag.formats.exchange",
    "IndexReport": "sqlrag.engines.duckdb.chunks",
    "LexicalPart": "sqlrag.ranking.explanation",
    "Merged": "sqlrag.formats.merge",
    "Models": "sqlrag.embedders.base",
    "OpenAIChat": "sqlrag.answers.chat_models",
    "Piece": "sqlrag.answers.chat_models",
    "PostgresStore": "sqlrag.search.postgres_store",
    "Prepared": "sqlrag.ingest.run",
    "Problem": "sqlrag.engines.duckdb.check",
    "Prompt": "sqlrag.answers.prompt",
    "Pushed": "sqlrag.formats.push",
    "RAGFile": "sqlrag.formats.ragfile.mapped",
    "Record": "sqlrag.formats.ragfile.mapped",
    "Recommendation": "sqlrag.explore.recommend",
    "ReembedReport": "sqlrag.ingest.reembed",
    "Repaired": "sqlrag.engines.duckdb.check",
    "Report": "sqlrag.ingest.run",
    "Results": "sqlrag.ranking.results",
    "RowsReport": "sqlrag.ingest.rows",
    "Settings": "sqlrag.settings",
    "SingleFileRAGService": "sqlrag.formats.service",
    "Store": "sqlrag.search.store",
    "Stores": "sqlrag.search.stores",
    "TermPart": "sqlrag.ranking.explanation",
    "UpdateReport": "sqlrag.ingest.run",
    "Upgraded": "sqlrag.engines.duckdb.upgrade",
    "VectorPart": "sqlrag.ranking.explanation",
    "aanswer": "sqlrag.asynchronous",
    "add_documents": "sqlrag.ingest.add",
    "aget_embedding_metadata": "sqlrag.asynchronous",
    "aget_source_documents": "sqlrag.asynchronous",
    "ahybrid_query": "sqlrag.asynchronous",
    "alexical_query": "sqlrag.asynchronous",
    "answer": "sqlrag.answers.answer",
    "aprepare_embeddings": "sqlrag.asynchronous",
    "areembed": "sqlrag.asynchronous",
    "arerank": "sqlrag.asynchronous",
    "aretrieve": "sqlrag.asynchronous",
    "attach_sql": "sqlrag.engines.duckdb.attach",
    "aupdate_embeddings": "sqlrag.asynchronous",
    "avector_query": "sqlrag.asynchronous",
    "build_prompt": "sqlrag.answers.prompt",
    "check": "sqlrag.engines.duckdb.check",
    "chunk": "sqlrag.ingest.chunk",
    "backup": "sqlrag.engines.duckdb.rewrite",
    "classify": "sqlrag.explore.analytics",
    "cluster": "sqlrag.explore.analytics",
    "compact": "sqlrag.engines.duckdb.rewrite",
    "compress": "sqlrag.blocks.compress",
    "connect": "sqlrag.adapters.connection",
    "convert": "sqlrag.formats.convert",
    "corpus_map": "sqlrag.explore.map",
    "delete_documents": "sqlrag.search.change",
    "distinctive_terms": "sqlrag.explore.analytics",
    "drop_near_duplicates": "sqlrag.blocks.rerank",
    "embed_rows": "sqlrag.explore.embedded_rows",
    "evaluate": "sqlrag.explore.evaluate",
    "explain": "sqlrag.query",
    "export_faiss_json": "sqlrag.formats.faiss_json",
    "export_map_html": "sqlrag.explore.viewer",
    "export_map_parquet": "sqlrag.explore.viewer",
    "export_parquet": "sqlrag.formats.parquet",
    "export_ragfile": "sqlrag.formats.ragfile",
    "export_ragmd": "sqlrag.formats.ragmd",
    "file_facts": "sqlrag.formats.convert",
    "fit_context": "sqlrag.answers.window",
    "fuse": "sqlrag.blocks.fuse",
    "get_embedding_metadata": "sqlrag.query",
    "get_source_documents": "sqlrag.query",
    "highlight": "sqlrag.query",
    "hybrid_query": "sqlrag.query",
    "import_faiss_json": "sqlrag.formats.faiss_json",
    "import_parquet": "sqlrag.formats.parquet",
    "import_ragfile": "sqlrag.formats.ragfile",
    "import_ragmd": "sqlrag.formats.ragmd",
    "index": "sqlrag.search.change",
    "index_rows": "sqlrag.ingest.rows",
    "lexical_query": "sqlrag.query",
    "load_embedder": "sqlrag.embedders",
    "load_reranker": "sqlrag.blocks.rerank",
    "merge": "sqlrag.formats.merge",
    "metrics": "sqlrag.telemetry",
    "models": "sqlrag.embedders.base",
    "near_duplicates": "sqlrag.explore.analytics",
    "open_store": "sqlrag.search.open",
    "package": "sqlrag.blocks.fuse",
    "plot_lengths": "sqlrag.explore.plot",
    "plot_map": "sqlrag.explore.plot",
    "plot_ranks": "sqlrag.explore.plot",
    "prepare_embeddings": "sqlrag.prepare",
    "print_results": "sqlrag.ranking.results",
    "pull": "sqlrag.formats.push.to_postgres",
    "push": "sqlrag.formats.push",
    "rag_service": "sqlrag.formats.service",
    "reciprocal_rank_fusion": "sqlrag.ranking.fusion",
    "recommend": "sqlrag.explore.recommend",
    "reembed": "sqlrag.ingest.reembed",
    "register": "sqlrag.adapters.connection",
    "repair": "sqlrag.engines.duckdb.check",
    "rerank": "sqlrag.blocks.rerank",
    "retrieve": "sqlrag.blocks.fuse",
    "semantic_join": "sqlrag.explore.analytics",
    "trend": "sqlrag.explore.analytics",
    "update_embeddings": "sqlrag.ingest.update",
    "update_rows": "sqlrag.ingest.rows",
    "upgrade": "sqlrag.engines.duckdb.upgrade",
    "validate_embedding_model": "sqlrag.query",
    "vector_query": "sqlrag.query",
    "verify_file": "sqlrag.formats.convert",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        from sqlrag.arguments import nearest

        meant = None if name.startswith("_") else nearest(name, __all__)
        hint = f". Did you mean {meant!r}?" if meant else ""
        raise AttributeError(f"module 'sqlrag' has no attribute {name!r}{hint}")
    try:
        value = getattr(import_module(_LAZY[name]), name)
    except MissingExtraError as error:  # a module of an extra, such as that of the pictures
        return _missing(error)
    globals()[name] = value
    return value


def _missing(error: MissingExtraError) -> Any:
    """Return what stands for a function whose extra is missing, so that ``from sqlrag import *`` goes well."""

    def missing(*_args: Any, **_kwargs: Any) -> Any:
        raise error

    missing.__doc__ = str(error)
    return missing


def load_ipython_extension(shell: Any) -> None:
    """Give a notebook the cells ``%%sql`` and ``%%search``: ``%load_ext sqlrag``."""
    import_module("sqlrag.adapters.notebook").load(shell)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
