"""Finds or makes the source documents of chunks that a program made itself."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlrag.errors import InputError
from sqlrag.types import Chunk, Document

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

BETWEEN_CHUNKS = "\n\n"


@dataclass(frozen=True)
class IndexReport:
    """What :func:`sqlrag.index` did: the ``doc_id`` of every document written, in order, and how much of it.

    ``embedded`` is how many texts went to the model (equal ones once); 0 where the vectors were given.
    """

    documents: list[str]
    chunks: int
    embedded: int


def with_sources(
    read: Callable[[Sequence[str]], Sequence[Document]], chunks: Sequence[Chunk], joined: Collection[str] = ()
) -> tuple[list[Document], list[Chunk]]:
    """Return the documents of chunks, by id, and the chunks in their order with the offsets that they have there.

    A document that the store has is kept where its text holds every chunk: at the chunk's offsets, or, where they are
    not known (both 0), in order anywhere. Else its text, and that of a new document, is the chunks joined by blank
    lines; so is that of the documents in ``joined``, whatever the store has. ``read`` returns those of some ids that
    the store has.

    Raises
    ------
    InputError
        The chunks of a document are not numbered from 0 on without a gap, or are of several collections.
    """
    groups: dict[str, list[Chunk]] = defaultdict(list)
    for chunk in chunks:
        groups[chunk.doc_id].append(chunk)
    known = {document.doc_id: document for document in read(list(groups))}
    documents, placed = [], []
    for doc_id in sorted(groups):
        own = sorted(groups[doc_id], key=lambda chunk: chunk.chunk_index)
        _check(doc_id, own)
        document = known.get(doc_id)
        found = None if document is None or doc_id in joined else _placed(document.text, own)
        if document is None or found is None:
            document, found = _joined(document or Document(doc_id, "", own[0].collection), own)
        documents.append(document)
        placed += found
    return documents, placed


def _check(doc_id: str, own: Sequence[Chunk]) -> None:
    numbers = [chunk.chunk_index for chunk in own]
    if numbers != list(range(len(own))):
        raise InputError(
            f"The chunks of {doc_id!r} are numbered {numbers[:8]}{' …' if numbers[8:] else ''}; give all chunks of a "
            "document, numbered from 0 on, each once."
        )
    collections = sorted({chunk.collection for chunk in own})
    if len(collections) > 1:
        raise InputError(f"The chunks of {doc_id!r} are of several collections: {', '.join(collections)}.")


def _placed(text: str, own: Sequence[Chunk]) -> list[Chunk] | None:
    """Return the chunks with their offsets in a text, or None where it does not hold them."""
    if text == BETWEEN_CHUNKS.join(chunk.content for chunk in own) and not any(c.i_start or c.i_end for c in own):
        return _in_row(own)  # what an earlier call made of them: the same places again
    placed, start = [], 0
    for chunk in own:
        found = chunk
        if not (chunk.i_start or chunk.i_end):
            start = text.find(chunk.content, start)
            found = replace(chunk, i_start=start, i_end=start + len(chunk.content))
        start = found.i_start
        if start < 0 or text[start : found.i_end] != chunk.content:
            return None
        placed.append(found)
    return placed


def _in_row(own: Sequence[Chunk]) -> list[Chunk]:
    """Return the chunks with the offsets that they have where they are joined."""
    placed, start = [], 0
    for chunk in own:
        placed.append(replace(chunk, i_start=start, i_end=start + len(chunk.content)))
        start += len(chunk.content) + len(BETWEEN_CHUNKS)
    return placed


def _joined(document: Document, own: Sequence[Chunk]) -> tuple[Document, list[Chunk]]:
    """Return the document with the chunks as its text, and the chunks with their offsets in it."""
    placed = _in_row(own)
    text = BETWEEN_CHUNKS.join(chunk.content for chunk in own)
    data = text.encode()
    checksum = hashlib.sha256(data).hexdigest()
    made = replace(
        document, text=text, checksum=checksum, size_bytes=len(data), modified_at=None, body_start=0, page_starts=()
    )
    return made, placed
