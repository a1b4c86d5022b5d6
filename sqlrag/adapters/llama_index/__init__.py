"""sqlrag in llama-index: a vector store, an index, a retriever, an embedding and two node postprocessors."""

from __future__ import annotations

import asyncio
from functools import cache
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.chat_engine import (
    CondensePlusContextChatEngine,
    CondenseQuestionChatEngine,
    ContextChatEngine,
    SimpleChatEngine,
)
from llama_index.core.indices.vector_store import VectorIndexRetriever, VectorStoreIndex
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.vector_stores.types import VectorStoreQueryMode

from sqlrag.adapters import check_names, only_fields
from sqlrag.adapters.llama_index.nodes import condition_of
from sqlrag.adapters.llama_index.retriever import SqlragCompress, SqlragRerank, SqlragRetriever
from sqlrag.adapters.llama_index.vector_store import OF_WORDS, PicklesEmbedder, SqlragVectorStore, is_there
from sqlrag.embedders import as_embedder, embed_texts
from sqlrag.ranking.plan import StoreHybridOptions
from sqlrag.search.open import is_address, open_store

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import BaseNode, Document

    from sqlrag.ingest.run import Prepared, Report
    from sqlrag.types import AnyEmbedder, TextKind

__all__ = [
    "SqlragCompress",
    "SqlragEmbedding",
    "SqlragIndex",
    "SqlragRerank",
    "SqlragRetriever",
    "SqlragVectorStore",
    "condition_of",
]


class SqlragEmbedding(PicklesEmbedder, BaseEmbedding):
    """The model of a file, loaded at first use; or an embedder of sqlrag, with the prefixes of its model.

    With both it is the file's model, loaded by the caller: another one raises :class:`sqlrag.ModelMismatchError` at
    first use. A file that does not exist yet takes any.
    """

    path: str = ""
    _embedder: Any = PrivateAttr(default=None)
    _loaded: Any = PrivateAttr(default=None)

    def __init__(self, path: str | os.PathLike[str] = "", embedder: AnyEmbedder | None = None, **fields: Any) -> None:
        only_fields(type(self), fields)
        wrapped = None if embedder is None else as_embedder(embedder)
        fields.setdefault("model_name", str(path) if wrapped is None else wrapped.model_name)
        super().__init__(path=str(path), **fields)  # type: ignore[call-arg]
        self._embedder = wrapped

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which llama-index stores it."""
        return "SqlragEmbedding"

    def _embed(self, texts: Sequence[str], kind: TextKind) -> list[list[float]]:
        rows: list[list[float]] = embed_texts(self._model(), list(texts), kind=kind).tolist()
        return rows

    def _model(self) -> Any:
        if self._loaded is None:
            if self._embedder is not None and not is_there(self.path):
                return self._embedder
            with open_store(self.path, embedder=self._embedder) as store:
                self._loaded = store.embedder()
        return self._loaded

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._embed([query], "query")[0]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._embed([text], "document")[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._embed(texts, "document")

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)


@cache
def _of_retrievers() -> frozenset[str]:
    """Return what a retriever takes, and what llama-index passes to it of a query engine's or a chat engine's."""
    callers = (
        *(VectorIndexRetriever, RetrieverQueryEngine.from_args, CondenseQuestionChatEngine.from_defaults),
        *(ContextChatEngine.from_defaults, CondensePlusContextChatEngine.from_defaults, SimpleChatEngine.from_defaults),
    )
    names = {name for caller in callers for name in signature(caller).parameters}
    return frozenset(names - {"index", "retriever", "query_engine", "kwargs"} | {"vector_store_kwargs"})


_OTHER_NAMES = {
    **{name: f"vector_store_kwargs={{{name!r}: …}}" for name in StoreHybridOptions.__optional_keys__},
    **dict.fromkeys(("top_k", "k"), "similarity_top_k"),
    "similarity_cutoff": "node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=…)]",
}


class SqlragIndex(VectorStoreIndex):
    """A :class:`SqlragVectorStore` as an index: what :func:`sqlrag.prepare_embeddings` returns.

    ``path`` is the file, None for a store in Postgres; ``report`` is that of the run that built the file, None for an
    existing file.
    """

    path: Path | None = None
    report: Report | None = None

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], embedder: AnyEmbedder | None = None) -> SqlragIndex:
        """Return the index of a file; ``embedder`` is the file's model, loaded by the caller, or that of a new file."""
        index = cls.from_vector_store(
            SqlragVectorStore.from_path(path, embedder), embed_model=SqlragEmbedding(path, embedder)
        )
        assert isinstance(index, cls)  # noqa: S101 - from_vector_store is annotated with the base class
        index.path = None if is_address(path) else Path(path)
        return index

    @classmethod
    def from_prepared(cls, prepared: Prepared) -> SqlragIndex:
        """Return the index of a file that was just built."""
        index = cls.from_path(prepared.path, prepared.embedder)
        index.report = prepared.report
        return index

    def _add_nodes_to_index(self, index_struct: Any, nodes: Sequence[BaseNode], *args: Any, **kwargs: Any) -> None:
        if nodes:
            self._check(self._embed_model)
        super()._add_nodes_to_index(index_struct, nodes, *args, **kwargs)

    async def _async_add_nodes_to_index(
        self, index_struct: Any, nodes: Sequence[BaseNode], *args: Any, **kwargs: Any
    ) -> None:
        if nodes:
            await asyncio.to_thread(self._check, self._embed_model)
        await super()._async_add_nodes_to_index(index_struct, nodes, *args, **kwargs)

    def _check(self, model: BaseEmbedding) -> None:
        store = self._vector_store
        if isinstance(store, SqlragVectorStore) and not (isinstance(model, SqlragEmbedding) and model.path):
            store.check_embedder(model)

    def as_retriever(self, **kwargs: Any) -> BaseRetriever:
        """Return a retriever over all nodes; llama-index's own skips the others if there are images or index nodes.

        Raises
        ------
        ModelMismatchError
            It is to search by vectors, with another model than the file's.
        InputError
            There is no such argument: llama-index would drop it. An option of a search belongs in
            ``vector_store_kwargs``.
        """
        check_names("as_retriever", kwargs, _of_retrievers(), _OTHER_NAMES)
        if kwargs.get("vector_store_query_mode", VectorStoreQueryMode.DEFAULT) not in OF_WORDS:
            self._check(kwargs.get("embed_model") or self._embed_model)
        return VectorIndexRetriever(
            self, callback_manager=self._callback_manager, object_map=self._object_map, **kwargs
        )

    def update_ref_doc(self, document: Document, **update_kwargs: Any) -> None:
        """Replace a document; raises InputError for other arguments than ``insert_kwargs`` and ``delete_kwargs``."""
        check_names("update_ref_doc", update_kwargs, ("insert_kwargs", "delete_kwargs"), {})
        super().update_ref_doc(document, **update_kwargs)

    async def aupdate_ref_doc(self, document: Document, **update_kwargs: Any) -> None:
        """Replace a document; raises InputError for other arguments than ``insert_kwargs`` and ``delete_kwargs``."""
        check_names("aupdate_ref_doc", update_kwargs, ("insert_kwargs", "delete_kwargs"), {})
        await super().aupdate_ref_doc(document, **update_kwargs)

    def refresh_ref_docs(self, documents: Sequence[Document], **update_kwargs: Any) -> list[bool]:
        """Replace what changed; raises InputError for other arguments than ``insert_kwargs`` and ``update_kwargs``."""
        check_names("refresh_ref_docs", update_kwargs, ("insert_kwargs", "update_kwargs"), {})
        return super().refresh_ref_docs(documents, **update_kwargs)

    async def arefresh_ref_docs(self, documents: Sequence[Document], **update_kwargs: Any) -> list[bool]:
        """Replace what changed; raises InputError for other arguments than ``insert_kwargs`` and ``update_kwargs``."""
        check_names("arefresh_ref_docs", update_kwargs, ("insert_kwargs", "update_kwargs"), {})
        return await super().arefresh_ref_docs(documents, **update_kwargs)

    def __repr__(self) -> str:
        """Name the file and its counts."""
        counts = "" if self.report is None else f": {self.report.summary()}"
        return f"{type(self).__name__}({str(self.path)!r}{counts})"
