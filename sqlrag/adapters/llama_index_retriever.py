"""The retriever of llama-index over a file of sqlrag: the hybrid search with all of its options."""

from __future__ import annotations

import asyncio
import inspect
import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore

from sqlrag import Store, hybrid_query
from sqlrag.adapters.arguments import check_names
from sqlrag.adapters.llama_index_filters import condition_of
from sqlrag.adapters.llama_index_nodes import nodes_of

if TYPE_CHECKING:
    import os

    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.schema import QueryBundle
    from llama_index.core.vector_stores.types import MetadataFilters

log = logging.getLogger("sqlrag.adapters")


class SqlragRetriever(BaseRetriever):
    """Finds what :func:`sqlrag.hybrid_query` finds: the same ids, order and scores.

    ``db_path`` is the file, which is opened for each question, or an open :class:`sqlrag.Store`. ``filters`` are those
    of llama-index, beside ``metadata``: both hold. ``options`` are arguments of :func:`sqlrag.hybrid_query`: ``top_k``,
    ``fusion``, ``collection`` … A question that comes with its vector is not embedded again.
    """

    def __init__(
        self,
        db_path: str | os.PathLike[str] | Store,
        *,
        filters: MetadataFilters | None = None,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(callback_manager=callback_manager, verbose=verbose)
        known = inspect.signature(hybrid_query).parameters.keys() - {"query_text", "db_path"}
        check_names("SqlragRetriever", options, known, {"similarity_top_k": "top_k", "k": "top_k"})
        if condition := condition_of(filters):
            given = options.get("metadata")
            options["metadata"] = {"$and": [condition, given]} if given else condition
        self._db_path, self._options = db_path, options

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        options = self._options
        if query_bundle.embedding is not None:
            options = {**options, "query_vector": query_bundle.embedding}
        with nullcontext(self._db_path) if isinstance(self._db_path, Store) else Store(self._db_path) as store:
            results = hybrid_query(query_bundle.query_str, store, **options)
            nodes = nodes_of(store, [row["node_id"] for row in results])
        for notice in results.notices:
            log.warning(notice)
        return [NodeWithScore(node=node, score=row["score"]) for node, row in zip(nodes, results, strict=True)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)
