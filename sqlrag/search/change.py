"""Functions that change a file without its folder: thin wrappers over the Store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlrag import arguments
from sqlrag.engines.duckdb.failures import public
from sqlrag.search.open import is_open, open_store

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

    from sqlrag.engines.duckdb.chunks import IndexReport
    from sqlrag.engines.duckdb.documents import DeleteReport
    from sqlrag.search.open import AnyStore
    from sqlrag.types import Chunk


@public
def delete_documents(
    db_path: AnyStore,
    *,
    doc_ids: str | Sequence[str] | None = None,
    checksum: str | None = None,
    collection: str | Sequence[str] | None = None,
    tags_any: Sequence[str] | None = None,
    tags_all: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    folder: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
) -> DeleteReport:
    """Delete documents with their chunks, vectors and words, in one transaction.

    A document goes where all of the conditions hold that are given. Their space in the file is used again; the file
    itself does not shrink.

    Parameters
    ----------
    db_path
        The file, the URL of a store in Postgres, or a :class:`Store` or :class:`PostgresStore` open for writing.
    doc_ids
        One ``doc_id`` or several. Those that the file does not have are in the report, they are no error.
    checksum
        SHA-256 of the file's bytes, in hex.
    collection, tags_any, tags_all, metadata
        As in a search. A document meets a filter if it does itself, or if all of its chunks do. Without another
        condition, a collection is deleted for good: updates do not read its table or folder any more. A document that
        is deleted otherwise comes back with the next update if its file or row is still there.
    folder
        The folder that the documents were read from, which may be gone. Alone, or with a collection, the folder is
        forgotten there, too: no update reads it until it is named. A store in Postgres knows no folders.
    dry_run
        Only say which documents would be deleted; the file may be open for reading only.

    Returns
    -------
    DeleteReport
        ``deleted``, ``unknown``, ``chunks`` and ``notices``; with ``dry_run`` of what would be deleted.

    Raises
    ------
    InputError
        No condition is given, one is of the wrong type, or a folder is given for a store in Postgres.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        The file cannot be written.
    """
    with open_store(db_path, read_only=arguments.flag("dry_run", dry_run)) as store:
        return store.delete_documents(
            doc_ids=doc_ids,
            checksum=checksum,
            collection=collection,
            tags_any=tags_any,
            tags_all=tags_all,
            metadata=metadata,
            folder=folder,
            dry_run=dry_run,
        )


@public
def index(chunks: Sequence[Chunk], store: AnyStore, *, vectors: ArrayLike | None = None) -> IndexReport:
    """Insert chunks that your program made, in place of what the file held of their documents.

    Writing the same chunks again changes nothing. Chunks are known by collection, ``doc_id`` and ``chunk_index``; a
    document that has become shorter loses its tail. Everything is written in one transaction and can be searched at
    once, by both legs.

    The source document: one that the file has is kept, with its metadata, if its text holds every chunk (at its
    offsets, or in order where a chunk has none). Else its text becomes the chunks joined by blank lines, as that of a
    document that is new; offsets then count in that text.

    Parameters
    ----------
    chunks
        All chunks of each document, numbered from 0 without a gap, in any order. None: nothing is done.
    store
        As in :func:`delete_documents`, or a store of another engine with this method.
    vectors
        ``[len(chunks), dimensions] float32``, row i for chunk i, brought to unit length. None: the texts (heading path
        and content, as in the file) are embedded with the file's model.

    Returns
    -------
    IndexReport
        ``documents``, ``chunks`` and ``embedded``.

    Raises
    ------
    InputError
        Chunks are missing or repeated, blank or of a wrong type, have the id of one of another document, or a vector
        cannot be used.
    ModelMismatchError, ModelUnavailableError, MissingExtraError, ProviderError
        The model cannot be loaded, is not that of the file, or does not do what it says.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        The file cannot be written.
    """
    if not (is_open(store) or isinstance(store, type)) and all(
        callable(getattr(store, name, None)) for name in ("index", "retrieve")
    ):
        of_another_engine: Any = store
        report: IndexReport = of_another_engine.index(chunks, vectors=vectors)
        return report
    with open_store(store, read_only=False) as target:
        return target.index(chunks, vectors=vectors)
