"""Re-ranking and compression as node postprocessors of llama-index; nodes of other retrievers are taken as well."""

from __future__ import annotations

from typing import Any

from llama_index.core.bridge.pydantic import Field
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from sqlrag import CompressPolicy, InputError, compress, rerank
from sqlrag.adapters.llama_index_nodes import candidates_of


class SqlragRerank(BaseNodePostprocessor):
    """Orders nodes anew by :func:`sqlrag.rerank`, whose arguments its fields are.

    Without a model by the cosine of the nodes' embeddings and the question's, both of which have to be there; with
    ``diversity`` so that they repeat each other little.
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
            raise InputError("A node has no embedding. SqlragVectorStore and SqlragRetriever give nodes that have one.")
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


class SqlragCompress(BaseNodePostprocessor):
    """Keeps the sentences of nodes that match the question, by :func:`sqlrag.compress`.

    Nodes that overlap come as one, with the id and the score of the best of them. ``policy`` is without ``neighbours``.
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
