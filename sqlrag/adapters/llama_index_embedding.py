"""A file's model, or any embedder of sqlrag, as an embedding of llama-index."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr

from sqlrag import Store
from sqlrag.adapters.llama_index_pickling import KeepsEmbedder
from sqlrag.embedders import as_embedder, embed_texts

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from sqlrag.types import AnyEmbedder, TextKind


class SqlragEmbedding(KeepsEmbedder, BaseEmbedding):
    """The model of a file, loaded when it is first asked; or an embedder of sqlrag, with the prefixes of its model."""

    path: str = ""
    _embedder: Any = PrivateAttr(default=None)
    _loaded: Any = PrivateAttr(default=None)

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
        if self._embedder is None and self._loaded is None:
            with Store(self.path) as store:
                self._loaded = store.embedder()
        rows: list[list[float]] = embed_texts(self._embedder or self._loaded, list(texts), kind=kind).tolist()
        return rows

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._embed([query], "query")[0]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._embed([text], "document")[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._embed(texts, "document")

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)
