"""The index of llama-index over a file of sqlrag, and the file's model as an embedding of llama-index."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.indices.vector_store import VectorIndexRetriever, VectorStoreIndex

from sqlrag import Store
from sqlrag.adapters.llama_index_store import SqlragVectorStore
from sqlrag.embedders import as_embedder, embed_texts

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from llama_index.core.base.base_retriever import BaseRetriever

    from sqlrag import Prepared, Report
    from sqlrag.types import AnyEmbedder, TextKind


class SqlragEmbedding(BaseEmbedding):
    """The model of a file, loaded when it is first asked; or an embedder of sqlrag, with the prefixes of its model."""

    path: str = ""
    _embedder: Any = PrivateAttr(default=None)

    def __init__(self, path: str | os.PathLike[str] = "", embedder: AnyEmbedder | None = None, **fields: Any) -> None:
        wrapped = None if embedder is None else as_embedder(embedder)
        fields.setdefault("model_name", str(path) if wrapped is None else wrapped.model_name)
        super().__init__(path=str(path), **fields)  # type: ignore[call-arg]
        self._embedder = wrapped

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which llama-index stores it."""
        return "SqlragEmbedding"

    def _embed(self, texts: Sequence[str], kind: TextKind) -> list[list[float]]:
        if self._embedder is None:
            with Store(self.path) as store:
                self._embedder = store.embedder()
        rows: list[list[float]] = embed_texts(self._embedder, list(texts), kind=kind).tolist()
        return rows

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._embed([query], "query")[0]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._embed([text], "document")[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._embed(texts, "document")

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)


class SqlragIndex(VectorStoreIndex):
    """A :class:`SqlragVectorStore` as an index: what :func:`sqlrag.prepare_embeddings` returns.

    ``path`` is the file, ``report`` what the run that made it tells, None for a file that was there.
    """

    path: Path | None = None
    report: Report | None = None

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], embedder: AnyEmbedder | None = None) -> SqlragIndex:
        """Return the index of a file; ``embedder`` embeds questions and new nodes in place of the file's model."""
        index = cls.from_vector_store(
            SqlragVectorStore.from_path(path, embedder), embed_model=SqlragEmbedding(path, embedder)
        )
        assert isinstance(index, cls)  # noqa: S101 - its annotation says less
        index.path = Path(path)
        return index

    @classmethod
    def from_prepared(cls, prepared: Prepared) -> SqlragIndex:
        """Return the index of a file that was just made."""
        index = cls.from_path(prepared.path, prepared.embedder)
        index.report = prepared.report
        return index

    def as_retriever(self, **kwargs: Any) -> BaseRetriever:
        """Return a retriever over all nodes; llama-index's own keeps to images and index nodes where there are any."""
        return VectorIndexRetriever(
            self, callback_manager=self._callback_manager, object_map=self._object_map, **kwargs
        )

    def __repr__(self) -> str:
        """Name the file and what is in it."""
        counts = "" if self.report is None else f": {self.report.summary()}"
        return f"{type(self).__name__}({str(self.path)!r}{counts})"
