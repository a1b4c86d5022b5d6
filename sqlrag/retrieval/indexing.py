"""Writes chunks that a program made: their vectors are given, or made by the file's model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlrag.errors import InputError
from sqlrag.options import items
from sqlrag.retrieval.cleaning import cleaned_chunk
from sqlrag.store import keeping
from sqlrag.store.indexing import IndexReport, with_sources
from sqlrag.store.vectors import unit_vectors
from sqlrag.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from sqlrag.retrieval.searching import Searcher
    from sqlrag.store.keeping import Rows
    from sqlrag.types import Chunk, Document, Vectors


def index_chunks(
    searcher: Searcher,
    chunks: Sequence[Chunk],
    vectors: ArrayLike | None,
    read: Callable[[Sequence[str]], Sequence[Document]],
    changed: Callable[[Callable[[Rows], None]], None],
) -> IndexReport:
    """Write all chunks of some documents in place of the documents; see :func:`sqlrag.index`.

    ``read`` returns the documents of some ids that the store has, ``changed`` does work on its rows in a transaction.
    """
    given = [cleaned_chunk(chunk) for chunk in items("chunks", chunks, "[sqlrag.Chunk(…)]")]
    if not given:
        return IndexReport([], 0, 0)
    dimensions = searcher.identity.dimensions
    documents, placed = with_sources(read, given)
    embedded = 0
    if vectors is None:
        rows, embedded = _embedded(searcher, placed)
    else:
        unit = unit_vectors(vectors, dimensions, [chunk.node_id for chunk in given])
        _check_count(given, unit)
        rows = {chunk.node_id: row for chunk, row in zip(given, unit, strict=True)}
    matrix = unit_vectors([rows[chunk.node_id] for chunk in placed], dimensions)
    changed(lambda stored: stored.write(documents, placed, matrix, ()))
    return IndexReport([document.doc_id for document in documents], len(placed), embedded)


def add_chunks(
    searcher: Searcher,
    chunks: Sequence[Chunk],
    vectors: ArrayLike | None,
    changed: Callable[[Callable[[Rows], list[str]]], list[str]],
) -> IndexReport:
    """Add chunks beside those that their documents have; see :meth:`sqlrag.Store.add_chunks`."""
    given = [cleaned_chunk(chunk) for chunk in items("chunks", chunks, "[sqlrag.Chunk(…)]")]
    if not given:
        return IndexReport([], 0, 0)
    embedded, rows = 0, vectors
    if rows is None:
        made, embedded = _embedded(searcher, given)
        rows = [made[chunk.node_id] for chunk in given]
    unit = unit_vectors(rows, searcher.identity.dimensions, [chunk.node_id for chunk in given])
    _check_count(given, unit)
    documents = changed(lambda stored: keeping.add_chunks(stored, given, unit))
    return IndexReport(documents, len(given), embedded)


def _check_count(chunks: Sequence[Chunk], vectors: Vectors) -> None:
    if len(vectors) != len(chunks):
        counts = f"{counted(len(chunks), 'chunk')} and {counted(len(vectors), 'vector')}"
        raise InputError(f"{counts} were passed; there must be one vector for each chunk.")


def _embedded(searcher: Searcher, chunks: Sequence[Chunk]) -> tuple[dict[str, NDArray[np.float32]], int]:
    """Return the vector of each chunk by its node_id, and how many texts were embedded."""
    from sqlrag.embedders import embed_texts

    headers = searcher.engine.metadata.get("include_headers") == "True"
    texts = {chunk.node_id: chunk.embedding_text(headers) for chunk in chunks}
    for node_id, text in texts.items():
        if not text.strip():
            raise InputError(f"The chunk {node_id!r} is blank.")
    unique = list(dict.fromkeys(texts.values()))
    made = dict(zip(unique, embed_texts(searcher.embedder(), unique, kind="document"), strict=True))
    return {node_id: made[text] for node_id, text in texts.items()}, len(unique)
