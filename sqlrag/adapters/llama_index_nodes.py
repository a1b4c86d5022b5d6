"""Nodes of llama-index as chunks, and back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from llama_index.core.schema import MetadataMode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.utils import metadata_dict_to_node

from sqlrag import Candidate, Chunk, InputError
from sqlrag.options import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llama_index.core.schema import BaseNode, NodeWithScore

    from sqlrag import Store

# What the file holds in columns of its own; "text_resource" is the text of a plain Node.
_ELSEWHERE = {"embedding", "text", "text_resource"}


def chunk_of(node: BaseNode, stored: Chunk | None, options: dict[str, Any]) -> Chunk:
    """Return a node as a chunk; ``stored`` is the one that it replaces, ``options`` are fields of a new one."""
    content = {key: value for key, value in node.model_dump(mode="json").items() if key not in _ELSEWHERE}
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
    """Return a stored chunk as the node that it was, or a new one with its place in the document."""
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


def nodes_of(store: Store, node_ids: Sequence[str]) -> list[BaseNode]:
    """Return stored nodes by their ids, in this order; those that the file does not have are left out."""
    chunks = {chunk.node_id: chunk for chunk in store.chunks(node_ids=node_ids)}
    found = [node_id for node_id in dict.fromkeys(node_ids) if node_id in chunks]
    rows = store.vectors(found).tolist()
    return [node_of(chunks[node_id], row) for node_id, row in zip(found, rows, strict=True)]


def candidates_of(scored: Sequence[NodeWithScore]) -> list[Candidate]:
    """Return nodes that anything has found as candidates, in their order."""
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
