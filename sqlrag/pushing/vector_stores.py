"""A vector store of llama-index as what a push writes to."""

from __future__ import annotations

import json
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters, VectorStoreQuery

from sqlrag.errors import StoreError
from sqlrag.pushing.nodes import BUCKET, BUCKETS, CHECKSUM, documents_of
from sqlrag.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from llama_index.core.schema import TextNode
    from llama_index.core.vector_stores.types import BasePydanticVectorStore

    from sqlrag.formats.contents import Batch, Contents

# Stores return no more nodes than some number for a filter: Qdrant's 9,999 of llama-index, Milvus 16,384.
_LISTED = 5000


class VectorStoreTarget:
    """Writes documents by ``delete`` and ``add``, which every store has, and reads by ``get_nodes`` where it can."""

    def __init__(self, store: BasePydanticVectorStore) -> None:
        self._store = store
        self._kind = type(store).__name__
        name = getattr(store, "collection_name", None)
        self.name = f"{self._kind} {name!r}" if isinstance(name, str) else self._kind
        self.notices: list[str] = []
        self.verified = True
        self._flat = bool(getattr(store, "flat_metadata", False))
        self._opened = self._was_empty = False
        # Documents without chunks that came before one with chunks.
        self._empty: list[str] = []
        self._lost_fields: set[str] = set()
        # The checksums of nodes that were written and not found, by id.
        self._missing: dict[str, str] = {}

    def begin(self, contents: Contents) -> None:
        """Nothing is to be done before the first nodes come."""

    def write(self, batch: Batch) -> tuple[int, int]:
        """Put whole documents in place of what is there of them; return how many of them and of their chunks."""
        documents, lost = documents_of(batch, flat=self._flat)
        self._lost_fields |= lost
        if not self._opened and not len(batch.chunks):
            self._empty += documents
            return len(documents), 0
        self._open(documents)
        there = self._checksums([node.node_id for nodes in documents.values() for node in nodes])
        changed = {
            doc_id: nodes
            for doc_id, nodes in documents.items()
            if not nodes or any(there.get(node.node_id) != node.metadata[CHECKSUM] for node in nodes)
        }
        # Before the new ones are added, so that no node of an older version is left wherever this ends.
        for doc_id in changed:
            self._delete(doc_id)
        wanted = {node.node_id: node.metadata[CHECKSUM] for nodes in changed.values() for node in nodes}
        if wanted:
            self._store.add([node for nodes in changed.values() for node in nodes])
            self._missing |= self._not_found(wanted)
        return len(changed), len(wanted)

    def finish(self, keep: set[str] | None, collections: Sequence[str] | None) -> int:
        """Check what was written; remove all documents (of the collections) but these, return how many."""
        # A store that answers before it has written everything gets a second look.
        missing = {
            node_id: value
            for some in _parts(self._missing, _LISTED)
            for node_id, value in self._not_found(some).items()
        }
        if missing:
            raise StoreError(
                self.name,
                f"{self.name} lacks {counted(len(missing), 'node')} that it took, or has them twice, such as "
                f"{next(iter(missing))}. Run the push again: it writes what is missing.",
            )
        if self._lost_fields:
            names = ", ".join(sorted(self._lost_fields))
            self.notices.append(f"Metadata fields of these names hold what sqlrag puts there, not yours: {names}.")
        if not self._store.stores_text:
            self.notices.append(f"{self._kind} keeps no texts: read them from the file, by the node_id in metadata.")
        if keep is None:
            return 0
        parts = 1 + len(keep) // 1000
        edges = [BUCKETS * part // parts for part in range(parts + 1)]
        there = {doc_id: name for pair in pairwise(edges) for doc_id, name in self._listed(*pair).items()}
        stale = [
            doc_id for doc_id in sorted(there.keys() - keep) if collections is None or there[doc_id] in collections
        ]
        for doc_id in stale:
            self._delete(doc_id)
        return len(stale)

    def close(self) -> None:
        """Do nothing: the store is the caller's."""

    def _open(self, documents: dict[str, list[TextNode]]) -> None:
        """See whether the store is empty; some are made by their first nodes, and cannot say it before."""
        if self._opened:
            return
        doc_id, nodes = next((doc_id, nodes) for doc_id, nodes in documents.items() if nodes)
        query = VectorStoreQuery(query_embedding=nodes[0].embedding, similarity_top_k=1)
        try:
            found = self._store.query(query)
        except Exception:  # of any class; where it has another reason, the next calls fail as well
            self._store.add(nodes)
            self._store.delete(self._written(doc_id))
            found = self._store.query(query)
        self._opened, self._was_empty = True, not (found.nodes or found.ids)
        for doc_id in self._empty:
            self._delete(doc_id)

    def _delete(self, doc_id: str) -> None:
        # Document by document, as this is the one way that every store has and finds names by, whatever is in them.
        if not self._was_empty:
            self._store.delete(self._written(doc_id))

    def _written(self, doc_id: str) -> str:
        # The store of Milvus writes the name between the double quotes of an expression as it is.
        return json.dumps(doc_id, ensure_ascii=False)[1:-1] if self._kind == "MilvusVectorStore" else doc_id

    def _checksums(self, ids: list[str]) -> dict[str, str]:
        """Return the checksums of the nodes that are there, "" for one that is there twice."""
        if not self.verified or not ids:
            return {}
        try:
            nodes = self._store.get_nodes(node_ids=ids)
        except NotImplementedError:
            self.verified = False
            self.notices.append(f"{self._kind} cannot return nodes by id, so nothing was skipped or verified.")
            return {}
        found: dict[str, str] = {}
        for node in nodes:
            found[node.node_id] = "" if node.node_id in found else node.metadata.get(CHECKSUM, "")
        return found

    def _not_found(self, wanted: dict[str, str]) -> dict[str, str]:
        """Return those nodes, with their checksums, that are not there once each; none where nobody can say."""
        found = self._checksums(list(wanted))
        return {node_id: value for node_id, value in wanted.items() if self.verified and found.get(node_id) != value}

    def _listed(self, first: int, end: int) -> dict[str, str]:
        """Return the documents of the buckets from ``first`` to before ``end`` that are there: their collections."""
        conditions = [(FilterOperator.GTE, first), (FilterOperator.LT, end)]
        filters = [MetadataFilter(key=BUCKET, value=value, operator=operator) for operator, value in conditions]
        try:
            nodes = self._store.get_nodes(filters=MetadataFilters(filters=[*filters]))
        except NotImplementedError as error:
            raise StoreError(
                self.name,
                f"{self._kind} cannot list its nodes, so prune=True finds nothing to remove. All else was pushed. "
                "Remove documents by its delete(doc_id).",
            ) from error
        if len(nodes) >= _LISTED and end - first > 1:
            middle = (first + end) // 2
            return self._listed(first, middle) | self._listed(middle, end)
        return {node.metadata["doc_id"]: node.metadata["collection"] for node in nodes}


def _parts(items: dict[str, str], size: int) -> Iterator[dict[str, str]]:
    pairs = iter(items.items())
    while part := dict(islice(pairs, size)):
        yield part
