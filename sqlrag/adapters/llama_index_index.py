"""The index of llama-index over a file of sqlrag."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_index.core.indices.vector_store import VectorIndexRetriever, VectorStoreIndex

from sqlrag.adapters.llama_index_embedding import SqlragEmbedding
from sqlrag.adapters.llama_index_store import SqlragVectorStore

if TYPE_CHECKING:
    import os

    from llama_index.core.base.base_retriever import BaseRetriever

    from sqlrag import Prepared, Report
    from sqlrag.types import AnyEmbedder


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
