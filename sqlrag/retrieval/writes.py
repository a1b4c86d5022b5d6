"""How an open store is changed by a program: documents, chunks and vectors of its own."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

from sqlrag import options
from sqlrag.embedders.base import without_surrogates
from sqlrag.errors import InputError
from sqlrag.retrieval.cleaning import cleaned_chunk, cleaned_document
from sqlrag.retrieval.filters import Filters, refuse_lack, strings
from sqlrag.retrieval.indexing import add_chunks, index_chunks
from sqlrag.retrieval.queries import Queries
from sqlrag.store import keeping
from sqlrag.store.vectors import unit_vectors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import ArrayLike

    from sqlrag.store.deleting import DeleteReport
    from sqlrag.store.indexing import IndexReport
    from sqlrag.store.keeping import Rows
    from sqlrag.types import Chunk, Document

T = TypeVar("T")


class Writes(Queries):
    """What changes a store, beside what :class:`Queries` asks it."""

    @abstractmethod
    def _changed(self, work: Callable[[Rows], T]) -> T:
        """Return what the work on the rows returns, done in one transaction."""

    @abstractmethod
    def _stored_documents(self, doc_ids: Sequence[str]) -> list[Document]:
        """Return those of the documents that are stored, in the order of their ids."""

    @abstractmethod
    def _delete_documents(
        self, doc_ids: list[str] | None, checksum: str | None, filters: dict[str, Any]
    ) -> DeleteReport:
        """Delete the documents that meet every condition that is not None."""

    def upsert(self, documents: Sequence[Document], chunks: Sequence[Chunk], embeddings: ArrayLike) -> None:
        """Insert documents with their chunks and vectors, in place of what the store held of these documents.

        Everything is written in one transaction and can be searched at once, by both legs.

        Parameters
        ----------
        documents
            Each with a ``doc_id`` of its own. What the store held of it before is replaced, also where it was longer.
            Lone surrogates become U+FFFD, metadata JSON values (dates as ISO 8601, NaN as null).
        chunks
            In any order; each belongs to one of the documents. Offsets are optional (leave both 0); where they are
            given, ``document.text[i_start:i_end]`` must be the chunk's content.
        embeddings
            ``[len(chunks), dimensions] float32``, row i for chunk i. Brought to unit length.

        Raises
        ------
        InputError
            Ids repeat or are blank, a chunk has no document, is blank or is not the slice that its offsets cut, counts
            differ, a field is of the wrong type, or a vector is zero or not finite.
        ModelMismatchError
            The vectors have another number of dimensions.
        StoreError
            The store is open for reading only.
        """
        sources = [cleaned_document(one) for one in options.items("documents", documents, "[sqlrag.Document(…)]")]
        rows = [cleaned_chunk(chunk) for chunk in options.items("chunks", chunks, "[sqlrag.Chunk(…)]")]
        vectors = unit_vectors(embeddings, self.dimensions, [chunk.node_id for chunk in rows]) if rows else None
        self._changed(lambda stored: stored.write(sources, rows, vectors, ()))

    def index(self, chunks: Sequence[Chunk], *, vectors: ArrayLike | None = None) -> IndexReport:
        """Insert chunks that a program made, all of each document; see :func:`sqlrag.index`."""
        return index_chunks(self._searcher, chunks, vectors, self._stored_documents, self._changed)

    def add_chunks(self, chunks: Sequence[Chunk], *, vectors: ArrayLike | None = None) -> IndexReport:
        """Add chunks to what the store has: each in the place of the chunk with its ``node_id``, or as a new one.

        A new chunk comes behind the others of its document. Ids stay as they are, ``chunk_index`` is counted anew. The
        text of a document is kept where it holds every chunk; else it becomes the chunks joined by blank lines, as in
        :func:`sqlrag.index`. Everything is written in one transaction.

        Parameters
        ----------
        chunks
            Chunks of any documents, in the order that new ones get; each ``node_id`` once.
        vectors
            ``[len(chunks), dimensions] float32``, row i for chunk i, brought to unit length. None: the texts are
            embedded with the file's model.

        Raises
        ------
        InputError
            A ``node_id`` is given twice, a chunk is blank or of another collection than its document, or counts differ.
        ModelMismatchError, ModelUnavailableError, MissingExtraError, ProviderError
            The vectors have another number of dimensions, or the file's model cannot make them here.
        StoreError
            The store is open for reading only.
        """
        return add_chunks(self._searcher, chunks, vectors, self._changed)

    def delete_chunks(
        self,
        *,
        node_ids: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Delete single chunks, and each document that loses its last one; return their ids, in order.

        The text of a document that came from a file stays whole; one that was joined of its chunks loses theirs.

        Parameters
        ----------
        node_ids
            Those to delete; ids that the file does not have change nothing.
        metadata
            As in a search. With ``node_ids`` both have to hold.

        Raises
        ------
        InputError
            Nothing says what to delete, a condition is of the wrong type, or ``metadata`` alone holds for every
            chunk without its fields, as ``$ne`` does.
        StoreError
            The store is open for reading only.
        """
        ids = strings("node_ids", node_ids)
        if ids is None and not metadata:
            raise InputError("Nothing says what to delete. Pass node_ids or metadata, or see delete_documents.")
        if ids is None:
            refuse_lack(metadata, "chunk", "node_ids")
        filters = Filters(metadata=metadata).parameters()
        return self._changed(lambda rows: keeping.delete_chunks(rows, {**filters, "node_ids": ids}))

    def delete_documents(
        self,
        *,
        doc_ids: str | Sequence[str] | None = None,
        checksum: str | None = None,
        collection: str | Sequence[str] | None = None,
        tags_any: Sequence[str] | None = None,
        tags_all: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> DeleteReport:
        """Delete the documents that meet all conditions; see :func:`sqlrag.delete_documents`."""
        checksum = None if checksum is None else without_surrogates(options.text("checksum", checksum))
        ids = strings("doc_ids", [doc_ids] if isinstance(doc_ids, str) else doc_ids)
        filters = Filters(collection, tags_any, tags_all, metadata).to_delete_by(ids, checksum)
        return self._delete_documents(ids, checksum, filters)
