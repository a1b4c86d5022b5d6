"""The vector store of llama-index over a file of sqlrag."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from llama_index.core.vector_stores.types import VectorStoreQueryResult

from sqlrag.adapters.arguments import check_names
from sqlrag.adapters.llama_index_filters import condition_of
from sqlrag.adapters.llama_index_nodes import chunk_of, nodes_of, vectors_of
from sqlrag.adapters.llama_index_opening import OpensFile
from sqlrag.adapters.llama_index_searching import search

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llama_index.core.schema import BaseNode
    from llama_index.core.vector_stores.types import MetadataFilters, VectorStoreQuery

    from sqlrag import Store

log = logging.getLogger("sqlrag.adapters")


class SqlragVectorStore(OpensFile):
    """Keeps nodes in a DuckDB file of sqlrag, which every other way of searching it reads as well.

    ``path`` is the file; it is opened for each call, and made by the first :meth:`add`. ``client`` is an open
    :class:`sqlrag.Store` instead, which is faster and stays yours to close. ``embedder`` embeds questions that come
    without a vector, and a file that is made remembers it.
    """

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which llama-index stores it."""
        return "SqlragVectorStore"

    def add(self, nodes: Sequence[BaseNode], **add_kwargs: Any) -> list[str]:
        """Write nodes with their embeddings, in place of those with the same ids; return the ids.

        ``add_kwargs`` are fields of new chunks: ``collection``, ``tags``; a node that is replaced keeps its own.
        """
        if not nodes:
            return []
        check_names("add", add_kwargs, ("collection", "tags"), {})
        vectors, ids = vectors_of(nodes), [node.node_id for node in nodes]

        def write(store: Store) -> None:
            stored = {chunk.node_id: chunk for chunk in store.chunks(node_ids=ids)}
            store.add_chunks([chunk_of(node, stored.get(node.node_id), add_kwargs) for node in nodes], vectors=vectors)

        self._write(len(vectors[0]), write)
        return ids

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Delete a document with its nodes, if it is there."""
        with self._open(read_only=False) as store:
            store.delete_documents(doc_ids=ref_doc_id)

    def delete_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **_: Any) -> None:
        """Delete nodes by their ids, by filters, or those that both hold for."""
        with self._open(read_only=False) as store:
            store.delete_chunks(node_ids=node_ids, metadata=condition_of(filters))

    def clear(self) -> None:
        """Delete every document."""
        with self._open(read_only=False) as store:
            store.delete_documents(doc_ids=sorted({chunk.doc_id for chunk in store.chunks()}))

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **_: Any
    ) -> list[BaseNode]:
        """Return nodes by their ids (in this order), by filters (in reading order), or those that both hold for."""
        with self._open() as store:
            found = [chunk.node_id for chunk in store.chunks(node_ids=node_ids, metadata=condition_of(filters))]
            known = set(found)
            return nodes_of(store, found if node_ids is None else [one for one in node_ids if one in known])

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Return the nodes for a query, best first; ``kwargs`` are more arguments of the search."""
        with self._open() as store:
            ranked, notices = search(store, query, kwargs)
            nodes = nodes_of(store, [node_id for node_id, _ in ranked])
        for notice in notices:
            log.warning(notice)
        return VectorStoreQueryResult(nodes, [score for _, score in ranked], [node_id for node_id, _ in ranked])
