"""Nodes and filters of llama-index as chunks and metadata filters, and back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from llama_index.core.schema import MetadataMode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilters
from llama_index.core.vector_stores.utils import metadata_dict_to_node

from sqlrag.arguments import shown
from sqlrag.errors import InputError
from sqlrag.normalize import clean_name
from sqlrag.types import Candidate, Chunk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from llama_index.core.schema import BaseNode, NodeWithScore
    from llama_index.core.vector_stores.types import MetadataFilter, VectorStoreQuery

    from sqlrag.search.postgres_store import PostgresStore
    from sqlrag.search.store import Store
    from sqlrag.search.stores import Stores

_OPERATORS = {
    FilterOperator.EQ: "$eq",
    FilterOperator.NE: "$ne",
    FilterOperator.GT: "$gt",
    FilterOperator.GTE: "$gte",
    FilterOperator.LT: "$lt",
    FilterOperator.LTE: "$lte",
    FilterOperator.IN: "$in",
    FilterOperator.NIN: "$nin",
    FilterOperator.ANY: "$any",
    FilterOperator.ALL: "$all",
    FilterOperator.CONTAINS: "$contains",
    FilterOperator.TEXT_MATCH: "$text_match",
    FilterOperator.TEXT_MATCH_INSENSITIVE: "$text_match_insensitive",
    FilterOperator.IS_EMPTY: "$empty",
}

# Names of a node's document in llama-index's vector stores.
_DOCUMENT = {"doc_id", "document_id", "ref_doc_id"}


def condition_of(filters: MetadataFilters | None) -> dict[str, Any]:
    """Return filters as the ``metadata`` of a search; {} where there is no condition.

    The keys "doc_id", "document_id" and "ref_doc_id" mean the document of a node, ``None`` a field that is missing or
    null. NOT matches where none of its filters do.
    """
    parts = [_part(one) for one in filters.filters] if filters is not None else []
    if filters is None or not parts:
        return {}
    conditions = [part for part in parts if part]  # a group without filters matches every node
    if filters.condition is FilterCondition.NOT:
        return {"$not": {"$or": conditions}} if len(conditions) == len(parts) else {"$node_id": {"$in": []}}
    if not conditions or (filters.condition is FilterCondition.OR and len(conditions) < len(parts)):
        return {}
    return {"$or" if filters.condition is FilterCondition.OR else "$and": conditions}


def restrictions(query: VectorStoreQuery, given: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return all conditions of a query, combined with those that were ``given``; None if there are none."""
    parts = [condition_of(query.filters), dict(given or {})]
    # An index passes empty lists for no restriction.
    parts += [{key: {"$in": ids}} for key, ids in (("$doc_id", query.doc_ids), ("$node_id", query.node_ids)) if ids]
    parts = [part for part in parts if part]
    return {"$and": parts} if len(parts) > 1 else parts[0] if parts else None


def _part(one: MetadataFilter | MetadataFilters) -> dict[str, Any]:
    if isinstance(one, MetadataFilters):
        return condition_of(one)
    key = "$doc_id" if one.key in _DOCUMENT else one.key
    if one.operator is FilterOperator.IS_EMPTY:
        return {key: {"$empty": True}}
    if one.value is None and one.operator in (FilterOperator.EQ, FilterOperator.NE):
        return {key: {"$exists": one.operator is FilterOperator.NE}}
    return {key: {_OPERATORS[one.operator]: one.value}}


# Fields that the file stores in columns; "text_resource" is the text of a plain Node.
_ELSEWHERE = {"embedding", "text", "text_resource"}


def chunk_of(node: BaseNode, stored: Chunk | None, options: dict[str, Any]) -> Chunk:
    """Return a node as a chunk; ``stored`` is the one that it replaces, ``options`` are fields of a new one."""
    content = {key: value for key, value in node.model_dump(mode="json").items() if key not in _ELSEWHERE}
    content["id_"] = clean_name(node.node_id)
    chunk = stored or Chunk(node.node_id, 0, "", given_id=node.node_id, **options)
    return replace(
        chunk,
        doc_id=node.ref_doc_id or node.node_id,
        content=node.get_content(metadata_mode=MetadataMode.NONE),
        metadata=content["metadata"],
        node=json.dumps(content, ensure_ascii=False),
        i_start=0,
        i_end=0,
    )


def vectors_of(nodes: Sequence[BaseNode]) -> list[list[float]]:
    """Return the embeddings of nodes, or raise InputError for a node without one."""
    for node in nodes:
        if node.embedding is None:
            raise InputError(
                f"The node {shown(node.node_id)} has no embedding. Set node.embedding, or insert nodes into an index."
            )
    return [node.get_embedding() for node in nodes]


def node_of(chunk: Chunk, embedding: Sequence[float]) -> BaseNode:
    """Return a stored chunk as its original node, or as a new node with its place in the document."""
    if chunk.node:
        content = json.loads(chunk.node)
        node = metadata_dict_to_node(
            {"_node_content": chunk.node, "_node_type": content["class_name"]}, text=chunk.content
        )
    else:
        content, source = {}, RelatedNodeInfo(node_id=chunk.doc_id)
        node = TextNode(
            id_=chunk.node_id,
            text=chunk.content,
            metadata=dict(chunk.metadata),
            relationships={NodeRelationship.SOURCE: source},
        )
    if isinstance(node, TextNode) and "start_char_idx" not in content and chunk.i_end:
        node.start_char_idx, node.end_char_idx = chunk.i_start, chunk.i_end
    node.embedding = list(embedding)
    return node


def nodes_of(store: Store | Stores | PostgresStore, node_ids: Sequence[str]) -> list[BaseNode]:
    """Return stored nodes by their ids, in this order; those that the file does not have are left out."""
    chunks = {chunk.node_id: chunk for chunk in store.chunks(node_ids=node_ids)}
    found = [node_id for node_id in dict.fromkeys(map(clean_name, node_ids)) if node_id in chunks]
    rows = store.vectors(found).tolist()
    return [node_of(chunks[node_id], row) for node_id, row in zip(found, rows, strict=True)]


# What a search knows of a chunk; a model is shown the first two, so that it can cite them.
_SHOWN = ("page", "heading_path")

_FACTS = (
    *(*_SHOWN, "i_start", "i_end", "chunk_index", "collection", "tags", "score_type"),
    *("vector_score", "vector_rank", "lexical_score", "lexical_rank"),
    *("context", "context_start", "context_end", "row_key"),
)


def add_facts(nodes: Sequence[BaseNode], results: Sequence[Mapping[str, Any]]) -> None:
    """Put what results know of their chunks into the metadata of the nodes, in the types of the results.

    What is unknown or empty is left out. No embedder is shown any of it.
    """
    rows = {row["node_id"]: row for row in results}
    for node in nodes:
        row = rows.get(node.node_id, {})
        facts = {name: row[name] for name in _FACTS if row.get(name) not in (None, [])}
        node.metadata = {**node.metadata, **facts}
        hidden = [name for name in facts if name not in _SHOWN]
        node.excluded_embed_metadata_keys = list(dict.fromkeys((*node.excluded_embed_metadata_keys, *facts)))
        node.excluded_llm_metadata_keys = list(dict.fromkeys((*node.excluded_llm_metadata_keys, *hidden)))


def candidates_of(scored: Sequence[NodeWithScore]) -> list[Candidate]:
    """Return nodes of any retriever as candidates, in their order."""
    return [_candidate(place, one) for place, one in enumerate(scored)]


def _candidate(place: int, one: NodeWithScore) -> Candidate:
    node = one.node
    return Candidate(
        node.ref_doc_id or node.node_id,
        place,
        node.get_content(metadata_mode=MetadataMode.NONE),
        score=float(one.score or 0),
        metadata=node.metadata,
        i_start=getattr(node, "start_char_idx", None),
        i_end=getattr(node, "end_char_idx", None),
        node_id=node.node_id,
    )
