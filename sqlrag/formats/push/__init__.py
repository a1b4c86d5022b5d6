"""Writes a file into another store, in batches; an interrupted push can be resumed."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from sqlrag.arguments import counted, first_lines, flag, shortened, shown, whole
from sqlrag.engines.contents import checked_batches
from sqlrag.engines.duckdb.failures import public
from sqlrag.errors import InputError, SqlragError, StoreError
from sqlrag.formats.exchange import stored_contents
from sqlrag.network import scrub, without_password
from sqlrag.progress import bar_is_off
from sqlrag.progress import shown as progress_shown
from sqlrag.search.open import backend_of, is_address, loaded

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from llama_index.core.vector_stores.types import BasePydanticVectorStore

    from sqlrag.engines.contents import Batch, Contents
    from sqlrag.ingest.run import Failure
    from sqlrag.types import Progress

log = logging.getLogger("sqlrag.pushing")


_TO_REMOVE = "Check that it is the right file and collection; to remove all of them, delete them in the store itself."


@dataclass(frozen=True)
class Pushed:
    """The result of a push: the store, what was written, skipped and removed, and the time.

    ``verified``: every chunk was found there afterwards; ``notices`` are remarks for the reader; ``failures`` are the
    documents that the store cannot hold, in order, with ``doc_id``, ``status`` "failed" and ``reason``.
    """

    target: str
    documents: int
    chunks: int
    skipped: int
    removed: int
    seconds: float
    verified: bool
    notices: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    @property
    def failed(self) -> int:
        """How many documents failed."""
        return len(self.failures)

    def __str__(self) -> str:
        """Format it as lines."""
        written = f"{counted(self.documents, 'document')}, {counted(self.chunks, 'chunk')} in {self.seconds:.1f} s"
        others = [f"{counted(self.skipped, 'document')} already there"] if self.skipped else []
        others += [f"{counted(self.removed, 'document')} removed"] if self.removed else []
        others += [f"{self.failed} failed"] if self.failures else []
        others.append("verified" if self.verified else "not verified")
        return "\n".join([f"{self.target}: {written}; {', '.join(others)}", *self.failure_lines(), *self.notices])

    def failure_lines(self) -> list[str]:
        """Return a line for each of the first failures."""
        return first_lines([f"{shortened(one.doc_id)}: {one.reason}" for one in self.failures], "failed: ")


class Target(Protocol):
    """The target of a push, which is given ``batch_chunks`` chunks at a time."""

    name: str
    batch_chunks: int
    verified: bool
    notices: list[str]
    failures: list[Failure]

    def begin(self, contents: Contents, collections: Sequence[str] | None, *, prune: bool) -> None:
        """Prepare for writing the contents, which are of these collections; with ``prune`` they are all there is."""

    def write(self, batch: Batch) -> tuple[int, int]:
        """Write whole documents, replacing their stored versions; return how many of them and of their chunks."""

    def finish(self, keep: set[str] | None, collections: Sequence[str] | None) -> int:
        """Verify what was written; remove all documents (of the collections) except these, return how many."""

    def close(self) -> None:
        """Close what the target opened itself."""


@public
def push(
    db_path: str | os.PathLike[str],
    to: BasePydanticVectorStore | str,
    *,
    collection: str | Sequence[str] | None = None,
    tags_any: Sequence[str] | None = None,
    tags_all: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    prune: bool = False,
    batch_chunks: int | None = None,
    progress: Progress = "auto",
) -> Pushed:
    """Write a file, or the documents of it that pass the filters, into Postgres or a vector store of llama-index.

    In Postgres everything is written to a store for :class:`PostgresStore`, which is created if it does not exist; ids,
    offsets and vectors are the same to the bit, and :func:`pull` writes it to a file again.

    In a vector store each chunk becomes a node with its text, its vector and its metadata, to which ``node_id``,
    ``doc_id``, ``collection``, ``chunk_index``, ``i_start``, ``i_end``, ``page``, ``heading_path`` and ``tags`` are
    added, and ``push_checksum`` and ``push_bucket``, by which a later push recognizes it; null and empty lists are
    left out. The id of a node is ``uuid.uuid5(uuid.NAMESPACE_OID, node_id)`` in every store, since some
    accept no other ids; ``ref_doc_id`` is the document. If a store accepts only plain values in metadata, lists are
    JSON strings.

    An existing document is replaced, with all of its nodes; an unchanged one is skipped. So an interrupted push can be
    run again, and writes the rest. There are no retries except those of the store itself.

    A document that Postgres cannot store is left out and reported in ``failures``; its earlier version stays there,
    also with ``prune``. A document that has moved to another collection is replaced with ``prune`` if both are
    pushed; without, it may be that of another file, and is refused. The stop words of the store become the file's.

    Parameters
    ----------
    db_path
        The file. It is read in one transaction.
    to
        ``postgresql://user@host/database``, with ``?schema=NAME`` for another schema than "sqlrag"; or an open vector
        store of llama-index, such as ``QdrantVectorStore``.
    collection, tags_any, tags_all, metadata
        As for a query: whole documents, of which the document or one chunk passes.
    prune
        Remove documents that an earlier push wrote and that are no longer in the file: those of ``collection`` if
        given, else all. Leave it False if other files are pushed to the same store. Not with the other filters.
    batch_chunks
        How many chunks are written at a time, in whole documents, 1 or more. None: 16,384 in Postgres, where few large
        transactions leave an index of few rows, else 1,000.
    progress
        "auto" and "on": a bar in a terminal or notebook, elsewhere a line every 30 s; "off": nothing.

    Returns
    -------
    Pushed
        What was written, skipped and removed, what failed, and whether it was verified: everything that was written is
        read back and compared, if the store supports that.

    Raises
    ------
    InputError
        ``to`` is not such a store, a filter is not valid, or ``prune`` would remove everything.
    MissingExtraError
        Postgres needs the extra ``postgres``.
    ModelMismatchError
        The store in Postgres has vectors of another model.
    StoreError
        The store failed, or does not contain what was written: the message says how much it has. Or the file cannot be
        read; NotFoundError, NotAStoreError, SchemaVersionError and StoreLockedError as for a query.
    FormatError
        The file is damaged.

    Examples
    --------
    >>> push("kb.duckdb", QdrantVectorStore("kb", client=QdrantClient(url=...)))  # doctest: +SKIP
    """
    began = time.perf_counter()
    size = None if batch_chunks is None else whole("batch_chunks", batch_chunks, 1)
    bar_off = bar_is_off(progress)
    if flag("prune", prune) and any(given is not None for given in (tags_any, tags_all, metadata)):
        raise InputError("prune compares whole collections: leave tags_any, tags_all and metadata out.")
    target = target_of(to)
    size = target.batch_chunks if size is None else size
    documents = chunks = 0
    kept: set[str] = set()
    collections: set[str] = set()
    with (
        stored_contents(
            *(db_path, collection, tags_any, tags_all, metadata),
            batch_chunks=size or target.batch_chunks,
            may_be_none=True,
        ) as contents,
        progress_shown(not bar_off),
    ):
        try:
            chosen = [collection] if isinstance(collection, str) else collection
            if prune and chosen is None and not contents.documents:
                raise InputError(f"The file has no documents, so nothing was removed. {_TO_REMOVE}")
            target.begin(contents, chosen, prune=prune)
            for batch in checked_batches(contents):
                written = target.write(batch)
                documents, chunks = documents + written[0], chunks + written[1]
                kept.update(batch.sources["doc_id"].to_pylist())
                collections.update(batch.sources["collection"].to_pylist())
            missing = sorted(set(chosen or ()) - collections)
            if missing and prune:
                raise InputError(
                    f"The file has no documents of collection {missing[0]!r}, so nothing was removed. {_TO_REMOVE}"
                )
            if missing:
                target.notices.append(f"The file has no documents of collection {missing[0]!r}.")
            removed = target.finish(kept if prune else None, chosen)
        except SqlragError:
            raise
        except Exception as error:
            done = f"{counted(documents, 'document')} ({counted(chunks, 'chunk')})"
            raise StoreError(
                target.name,
                f"{target.name} failed: {type(error).__name__}: {shortened(scrub(str(error)))} Before that, {done} "
                "were written. Fix the cause and run the push again: it resumes there.",
            ) from error
        finally:
            target.close()
    skipped, seconds = len(kept) - documents - len(target.failures), time.perf_counter() - began
    report = Pushed(
        *(target.name, documents, chunks, skipped, removed, seconds, target.verified),
        *(target.notices, target.failures),
    )
    log.info("%s", report)
    return report


def target_of(to: object) -> Target:
    """Return the target of a push, or raise InputError."""
    if is_address(to) and (name := backend_of(to).target):
        target: Target = loaded(name)(to)
        return target
    from llama_index.core.vector_stores.types import BasePydanticVectorStore

    if isinstance(to, BasePydanticVectorStore):
        from sqlrag.formats.push.to_vector_stores import VectorStoreTarget

        return VectorStoreTarget(to)
    given = without_password(shown(to))
    raise InputError(f"to must be a postgresql:// URL or a vector store of llama-index, not {given}.")
