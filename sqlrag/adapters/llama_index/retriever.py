"""The llama-index retriever over a store, and reranking and compression as node postprocessors."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.bridge.pydantic import Field, model_validator
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from sqlrag.adapters import check_names, only_fields
from sqlrag.adapters.llama_index.nodes import add_facts, candidates_of, condition_of, nodes_of
from sqlrag.blocks.compress import CompressPolicy, compress
from sqlrag.blocks.rerank import rerank
from sqlrag.errors import InputError
from sqlrag.query import hybrid_query
from sqlrag.search.open import open_store

if TYPE_CHECKING:
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.vector_stores.types import MetadataFilters

    from sqlrag.search.open import AnyStores

log = logging.getLogger("sqlrag.adapters")


class SqlragRetriever(BaseRetriever):
    """Retrieves with :func:`sqlrag.hybrid_query`: the same ids, order and scores.

    ``db_path`` is the same: a file, a list of files or a URL, opened for each question, or an open store. ``filters``
    are those of llama-index, combined with ``metadata``. ``options`` are arguments of :func:`sqlrag.hybrid_query`:
    ``top_k``, ``fusion``, ``collection`` … A question with a vector is not embedded again.

    The metadata of a node has what the results have, where it is known: ``page`` and ``heading_path``, which a model is
    shown, and hidden from it ``i_start``, ``i_end``, ``chunk_index``, ``collection``, ``tags``, ``score_type``, scores
    and ranks of both legs, and ``row_key`` of a row of a table. No embedder is shown any of it. A field of your own
    with one of these names gives way.

    With ``context="neighbours"`` or ``"section"`` there are ``context``, ``context_start`` and ``context_end``, too;
    llama-index's ``MetadataReplacementPostProcessor`` with ``target_metadata_key="context"`` puts the context in the
    place of the text.
    """

    def __init__(
        self,
        db_path: AnyStores,
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
        with open_store(self._db_path) as store:
            results = hybrid_query(query_bundle.query_str, store, **options)
            nodes = nodes_of(store, [row["node_id"] for row in results])
        add_facts(nodes, results)
        for notice in results.notices:
            log.warning(notice)
        return [NodeWithScore(node=node, score=row["score"]) for node, row in zip(nodes, results, strict=True)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


class Postprocessor(BaseNodePostprocessor):
    """A node postprocessor that takes no other arguments than its fields."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_others(cls, given: Any) -> Any:
        return only_fields(cls, given)


class SqlragRerank(Postprocessor):
    """Reranks nodes with :func:`sqlrag.rerank`; the fields are its arguments.

    Without a model the cosine of the nodes' embeddings and the question's is used, and both must exist; ``diversity``
    moves nodes down that repeat better ones.
    """

    model: Any = Field(default=None, description="A name, a folder or a callable (query, texts) -> scores.")
    top_n: int | None = None
    depth: int | None = None
    diversity: float | None = None
    strict: bool = False

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which llama-index stores it."""
        return "SqlragRerank"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        query = _asked(query_bundle)
        if not nodes:
            return []
        wanted = nodes if self.model is None or self.diversity else []
        vectors = [one.node.embedding for one in wanted if one.node.embedding is not None]
        if len(vectors) < len(wanted):
            raise InputError(
                "A node has no embedding. SqlragVectorStore and SqlragRetriever return nodes with embeddings."
            )
        ordered = rerank(
            query.query_str,
            candidates_of(nodes),
            self.model,
            top_n=self.top_n,
            depth=self.depth,
            diversity=self.diversity,
            vectors=vectors or None,
            query_vector=query.embedding if self.model is None and vectors else None,
            strict=self.strict,
        )
        found = {one.node.node_id: one.node for one in nodes}
        return [NodeWithScore(node=found[one.node_id], score=one.score) for one in ordered]


class SqlragCompress(Postprocessor):
    """Keeps the sentences of nodes that match the question, by :func:`sqlrag.compress`.

    Overlapping nodes are merged, with the id and the score of the best one. ``policy`` has no ``neighbours`` here.
    """

    policy: CompressPolicy = Field(default_factory=CompressPolicy)

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which llama-index stores it."""
        return "SqlragCompress"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        rows = compress(_asked(query_bundle).query_str, candidates_of(nodes), self.policy)
        found = {one.node.node_id: one for one in nodes}
        kept = []
        for row in rows:
            best = found[row["node_id"]]
            node = best.node.model_copy()
            node.set_content(row["text"])
            kept.append(NodeWithScore(node=node, score=best.score))
        return kept


def _asked(query_bundle: QueryBundle | None) -> QueryBundle:
    if query_bundle is None:
        raise InputError("Pass the question: postprocess_nodes(nodes, query_str=…).")
    return query_bundle
