"""The coroutines of a vector store of llama-index: each runs the method of its name in a thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from llama_index.core.vector_stores.types import BasePydanticVectorStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llama_index.core.schema import BaseNode
    from llama_index.core.vector_stores.types import MetadataFilters, VectorStoreQuery, VectorStoreQueryResult


class InThreads(BasePydanticVectorStore):
    """A vector store whose coroutines keep the event loop free."""

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Do what :meth:`add` does."""
        return await asyncio.to_thread(self.add, nodes, **kwargs)

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Do what :meth:`delete` does."""
        await asyncio.to_thread(self.delete, ref_doc_id, **delete_kwargs)

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Do what :meth:`delete_nodes` does."""
        await asyncio.to_thread(self.delete_nodes, node_ids, filters, **delete_kwargs)

    async def aclear(self) -> None:
        """Do what :meth:`clear` does."""
        await asyncio.to_thread(self.clear)

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Do what :meth:`get_nodes` does."""
        return await asyncio.to_thread(self.get_nodes, node_ids, filters)

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Do what :meth:`query` does."""
        return await asyncio.to_thread(self.query, query, **kwargs)
