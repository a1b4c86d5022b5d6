"""A vector store of llama-index as the target of a push."""

from __future__ import annotations

import json
from hashlib import blake2b
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_OID, uuid5

from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters, VectorStoreQuery

from sqlrag.arguments import counted
from sqlrag.engines.duckdb.documents import refuse_taken
from sqlrag.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from llama_index.core.schema import BaseNode
    from llama_index.core.vector_stores.types import BasePydanticVectorStore

    from sqlrag.engines.contents import Batch, Contents
    from sqlrag.ingest.run import Failure

CHECKSUM, BUCKET = "push_checksum", "push_bucket"

# A store's documents are listed by ranges of buckets: the first node of each document has one.
BUCKETS = 1 << 16

_OURS = ("node_id", "doc_id", "collection", "chunk_index", "i_start", "i_end", "page", "heading_path", "tags")

# Of our fields, models should only read the place of a chunk.
_NOT_READ = [name for name in (*_OURS, CHECKSUM, BUCKET) if name not in ("heading_path", "page")]


def node_uuid(node_id: str) -> str:
    """Return the id of a chunk in other stores.

    Examples
    --------
    >>> node_uuid("guides/filters.md#0")
    '1ac32d3d-001c-5057-bf55-b47b41a57851'
    """
    return str(uuid5(NAMESPACE_OID, node_id))


def documents_of(batch: Batch, *, flat: bool) -> tuple[dict[str, list[TextNode]], set[str]]:
    """Return the nodes of each document, and which metadata fields were replaced by ours of the same name.

    ``flat`` converts lists and objects in metadata to JSON strings.
    """
    rows: dict[str, list[tuple[dict[str, Any], Any]]] = {name: [] for name in batch.sources["doc_id"].to_pylist()}
    for row, vector in zip(batch.chunks.to_pylist(), batch.vectors, strict=True):
        rows[row["doc_id"]].append((row, vector))
    replaced: set[str] = set()
    documents = {}
    for doc_id, chunks in rows.items():
        nodes = documents[doc_id] = [_node(row, vector, len(chunks), flat, replaced) for row, vector in chunks]
        if nodes:
            nodes[0].metadata[BUCKET] = _bucket(doc_id)
    return documents, replaced


def _node(row: dict[str, Any], vector: Any, siblings: int, flat: bool, replaced: set[str]) -> TextNode:
    given = json.loads(row["metadata_"])
    ours = {name: row[name] for name in _OURS}
    replaced.update(name for name in given.keys() & ours.keys() if given[name] not in (ours[name], None))
    replaced.update(given.keys() & {CHECKSUM, BUCKET})
    # Many stores refuse null, some refuse empty lists.
    metadata = {name: value for name, value in {**given, **ours}.items() if value is not None and value != []}
    # With the number of chunks, so that a document that has lost chunks counts as changed.
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


# Stores limit how many nodes they return for a filter: llama-index's Qdrant 9,999, Milvus 16,384.
_LISTED = 5000


class VectorStoreTarget:
    """Writes with ``delete`` and ``add``, which every store has, and reads with ``get_nodes`` if the store has it."""

    batch_chunks = 1000  # small enough for one request to a server and its response, with vectors and texts

    def __init__(self, store: BasePydanticVectorStore) -> None:
        self._store = store
        self._kind = type(store).__name__
        name = getattr(store, "collection_name", None)
        self.name = f"{self._kind} {name!r}" if isinstance(name, str) else self._kind
        self.notices: list[str] = []
        self.failures: list[Failure] = []
        self.verified = True
        self._flat = bool(getattr(store, "flat_metadata", False))
        self._opened = self._was_empty = False
        # Documents without chunks before the first one with chunks.
        self._empty: list[str] = []
        self._replaced_fields: set[str] = set()
        # Checksums of nodes that were written and not found, by id.
        self._missing: dict[str, str] = {}
        self._pushed: frozenset[str] = frozenset()

    def begin(self, contents: Contents, collections: Sequence[str] | None, *, prune: bool) -> None:  # noqa: ARG002
        """Note what will be pushed; the first nodes open the store."""
        self._pushed = contents.doc_ids

    def write(self, batch: Batch) -> tuple[int, int]:
        """Write whole documents, replacing their stored versions; return how many of them and of their chunks."""
        documents, replaced = documents_of(batch, flat=self._flat)
        self._replaced_fields |= replaced
        if not self._opened and not len(batch.chunks):
            self._empty += documents
            return len(documents), 0
        self._open(documents)
        nodes = self._nodes([node.node_id for nodes in documents.values() for node in nodes])
        owners = {node.node_id: node.metadata.get("doc_id") for node in nodes}
        moved = {owner for owner in owners.values() if owner is not None and owner not in documents}
        for doc_id, new in documents.items():
            for node in new:
                if (owner := owners.get(node.node_id)) in moved - self._pushed:
                    refuse_taken([(node.metadata["node_id"], owner)], {node.metadata["node_id"]: doc_id})
        stored = _checksums(nodes)
        changed = {
            doc_id: nodes
            for doc_id, nodes in documents.items()
            if not nodes or any(stored.get(node.node_id) != node.metadata[CHECKSUM] for node in nodes)
        }
        # Before adding the new ones, so that an interruption leaves no node of an older version.
        for doc_id in [*changed, *sorted(moved)]:  # this push writes those that gave an id to another one later
            self._delete(doc_id)
        wanted = {node.node_id: node.metadata[CHECKSUM] for nodes in changed.values() for node in nodes}
        if wanted:
            self._store.add([node for nodes in changed.values() for node in nodes])
            self._missing |= self._not_found(wanted)
        return len(changed), len(wanted)

    def finish(self, keep: set[str] | None, collections: Sequence[str] | None) -> int:
        """Verify what was written; remove all documents (of the collections) except these, return how many."""
        # A second check, for stores that respond before everything is written.
        missing = {
            node_id: value
            for some in _parts(self._missing, _LISTED)
            for node_id, value in self._not_found(some).items()
        }
        if missing:
            raise StoreError(
                self.name,
                f"{self.name} lacks {counted(len(missing), 'node')} that it accepted, or has them twice, such as "
                f"{next(iter(missing))}. Run the push again: it writes what is missing.",
            )
        if self._replaced_fields:
            names = ", ".join(sorted(self._replaced_fields))
            self.notices.append(f"Metadata fields with these names have values of sqlrag instead of yours: {names}.")
        if not self._store.stores_text:
            self.notices.append(f"{self._kind} stores no texts: read them from the file, by the node_id in metadata.")
        if keep is None:
            return 0
        parts = 1 + len(keep) // 1000
        edges = [BUCKETS * part // parts for part in range(parts + 1)]
        listed = {doc_id: name for pair in pairwise(edges) for doc_id, name in self._listed(*pair).items()}
        stale = [
            doc_id for doc_id in sorted(listed.keys() - keep) if collections is None or listed[doc_id] in collections
        ]
        for doc_id in stale:
            self._delete(doc_id)
        return len(stale)

    def close(self) -> None:
        """Do nothing: the caller closes the store."""

    def _open(self, documents: dict[str, list[TextNode]]) -> None:
        """Detect whether the store is empty; some are created by their first nodes, and fail before."""
        if self._opened:
            return
        doc_id, nodes = next((doc_id, nodes) for doc_id, nodes in documents.items() if nodes)
        query = VectorStoreQuery(query_embedding=nodes[0].embedding, similarity_top_k=1)
        try:
            found = self._store.query(query)
        except Exception:  # of any class; for another cause the next calls fail, too
            self._store.add(nodes)
            self._store.delete(self._escaped(doc_id))
            found = self._store.query(query)
        self._opened, self._was_empty = True, not (found.nodes or found.ids)
        for doc_id in self._empty:
            self._delete(doc_id)

    def _delete(self, doc_id: str) -> None:
        # One document at a time: the only deletion that every store has and that works for all names.
        if not self._was_empty:
            self._store.delete(self._escaped(doc_id))

    def _escaped(self, doc_id: str) -> str:
        # The Milvus store inserts the name into a quoted expression without escaping.
        return json.dumps(doc_id, ensure_ascii=False)[1:-1] if self._kind == "MilvusVectorStore" else doc_id

    def _nodes(self, ids: list[str]) -> list[BaseNode]:
        """Return the stored nodes of these ids; none if the store cannot."""
        if not self.verified or not ids:
            return []
        try:
            return self._store.get_nodes(node_ids=ids)
        except NotImplementedError:
            self.verified = False
            self.notices.append(f"{self._kind} cannot return nodes by id, so nothing was skipped or verified.")
            return []

    def _not_found(self, wanted: dict[str, str]) -> dict[str, str]:
        """Return the nodes, with their checksums, that are not stored exactly once; none if the store cannot tell."""
        found = _checksums(self._nodes(list(wanted)))
        return {node_id: value for node_id, value in wanted.items() if self.verified and found.get(node_id) != value}

    def _listed(self, first: int, end: int) -> dict[str, str]:
        """Return the collections of the stored documents in the buckets from ``first`` to before ``end``, by doc_id."""
        conditions = [(FilterOperator.GTE, first), (FilterOperator.LT, end)]
        filters = [MetadataFilter(key=BUCKET, value=value, operator=operator) for operator, value in conditions]
        try:
            nodes = self._store.get_nodes(filters=MetadataFilters(filters=[*filters]))
        except NotImplementedError as error:
            raise StoreError(
                self.name,
                f"{self._kind} cannot list its nodes, so prune=True cannot remove anything. Everything else was "
                "pushed. Remove documents with its delete(doc_id).",
            ) from error
        if len(nodes) >= _LISTED and end - first > 1:
            middle = (first + end) // 2
            return self._listed(first, middle) | self._listed(middle, end)
        return {node.metadata["doc_id"]: node.metadata["collection"] for node in nodes}


def _checksums(nodes: Sequence[BaseNode]) -> dict[str, str]:
    """Return the checksums of stored nodes, "" for one that occurs twice."""
    found: dict[str, str] = {}
    for node in nodes:
        found[node.node_id] = "" if node.node_id in found else node.metadata.get(CHECKSUM, "")
    return found


def _parts(items: dict[str, str], size: int) -> Iterator[dict[str, str]]:
    pairs = iter(items.items())
    while part := dict(islice(pairs, size)):
        yield part
