"""Chunks of a file as nodes of llama-index that other stores keep."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_OID, uuid5

from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

if TYPE_CHECKING:
    from sqlrag.formats.contents import Batch

CHECKSUM, BUCKET = "push_checksum", "push_bucket"
# By these a store's documents are listed a part at a time: the first node of each has one.
BUCKETS = 1 << 16
_OURS = ("node_id", "doc_id", "collection", "chunk_index", "i_start", "i_end", "page", "heading_path", "tags")
# What a model should read of our fields is where a chunk stands.
_NOT_READ = [name for name in (*_OURS, CHECKSUM, BUCKET) if name not in ("heading_path", "page")]


def node_uuid(node_id: str) -> str:
    """Return the id that a chunk has in other stores.

    Examples
    --------
    >>> node_uuid("guides/filters.md#0")
    '1ac32d3d-001c-5057-bf55-b47b41a57851'
    """
    return str(uuid5(NAMESPACE_OID, node_id))


def documents_of(batch: Batch, *, flat: bool) -> tuple[dict[str, list[TextNode]], set[str]]:
    """Return the nodes of each document, and which fields of its metadata had to give way to ours of the same name.

    ``flat`` makes texts of lists and objects in metadata.
    """
    rows: dict[str, list[tuple[dict[str, Any], Any]]] = {name: [] for name in batch.sources["doc_id"].to_pylist()}
    for row, vector in zip(batch.chunks.to_pylist(), batch.vectors, strict=True):
        rows[row["doc_id"]].append((row, vector))
    lost: set[str] = set()
    documents = {}
    for doc_id, chunks in rows.items():
        nodes = documents[doc_id] = [_node(row, vector, len(chunks), flat, lost) for row, vector in chunks]
        if nodes:
            nodes[0].metadata[BUCKET] = _bucket(doc_id)
    return documents, lost


def _node(row: dict[str, Any], vector: Any, siblings: int, flat: bool, lost: set[str]) -> TextNode:
    given = json.loads(row["metadata_"])
    ours = {name: row[name] for name in _OURS}
    lost.update(name for name in given.keys() & ours.keys() if given[name] not in (ours[name], None))
    lost.update(given.keys() & {CHECKSUM, BUCKET})
    # Many stores refuse null, some an empty list.
    metadata = {name: value for name, value in {**given, **ours}.items() if value is not None and value != []}
    # With the number of chunks, so that a document of fewer than before is never taken for the one that was there.
    content = json.dumps([row["text"], metadata, siblings], sort_keys=True, ensure_ascii=False).encode("utf-8")
    if flat:
        metadata = {
            name: json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else value
            for name, value in metadata.items()
        }
    metadata[CHECKSUM] = blake2b(content + vector.tobytes(), digest_size=16).hexdigest()
    return TextNode(
        id_=node_uuid(row["node_id"]),
        text=row["text"],
        embedding=vector.tolist(),
        metadata=metadata,
        excluded_embed_metadata_keys=_NOT_READ,
        excluded_llm_metadata_keys=_NOT_READ,
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=row["doc_id"])},
        start_char_idx=row["i_start"],
        end_char_idx=row["i_end"],
    )


def _bucket(doc_id: str) -> int:
    return uuid5(NAMESPACE_OID, doc_id).int % BUCKETS
