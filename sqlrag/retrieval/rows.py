"""The rows behind hits: chunks and source documents by their keys."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlrag.embedders.base import without_surrogates
from sqlrag.errors import InputError, NotFoundError
from sqlrag.options import items, shown
from sqlrag.retrieval.results import RESULT_KEYS
from sqlrag.store.calls import select_by_key
from sqlrag.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import duckdb
    from numpy.typing import NDArray

    from sqlrag.types import Candidate

_CHUNK_COLUMNS = (
    *("node_id", "text", "metadata", "doc_id", "chunk_index", "collection", "heading_path", "page"),
    *("i_start", "i_end", "tags"),
)
_SOURCE_COLUMNS = ("doc_id", "file_path", "file_name", "text", "metadata")


def chunk_rows(con: duckdb.DuckDBPyConnection, node_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return chunks by their node_id."""
    rows = select_by_key(
        con,
        "SELECT node_id, text, public_metadata(metadata_), doc_id, chunk_index, collection, heading_path, page, "
        "i_start, i_end, tags FROM documents WHERE node_id IN (...)",
        node_ids,
    )
    chunks = [dict(zip(_CHUNK_COLUMNS, row, strict=True)) for row in rows]
    for chunk in chunks:
        chunk["metadata"] = json.loads(chunk["metadata"])
    return {chunk["node_id"]: chunk for chunk in chunks}


def as_row(found: Candidate, source: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a candidate as the plain dict that a query gives; the keys are those of ``RESULT_KEYS``."""
    row: dict[str, Any] = {
        "node_id": found.node_id,
        "text": found.content,
        "metadata": deepcopy(dict(found.metadata)),  # a candidate stays as it is whatever becomes of its row
        "score": found.score,
        "score_type": found.score_type,
        "source_doc": None if source is None else dict(source),
    }
    row.update({name: getattr(found, name) for name in RESULT_KEYS if name not in row})
    row["heading_path"] = list(found.heading_path)
    return row


def source_documents(con: duckdb.DuckDBPyConnection, doc_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return source documents by their doc_id."""
    rows = select_by_key(
        con,
        "SELECT doc_id, file_path, file_name, text, metadata_ FROM source_documents WHERE doc_id IN (...)",
        sorted(set(ids_of("doc_ids", doc_ids, "['guides/setup.md']"))),
    )
    sources = [dict(zip(_SOURCE_COLUMNS, row, strict=True)) for row in rows]
    for source in sources:
        source["metadata"] = json.loads(source["metadata"])
    return {source["doc_id"]: source for source in sources}


def sources_of_chunks(con: duckdb.DuckDBPyConnection, path: Path, chunk_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the whole documents that chunks come from, each once, in the order in which the chunks name them."""
    wanted = ids_of("chunk_ids", chunk_ids, "['guides/setup.md#3']")
    rows = select_by_key(con, "SELECT node_id, doc_id FROM documents WHERE node_id IN (...)", wanted)
    doc_of = dict(rows)
    check_found(path, wanted, doc_of, partial(_near, con))
    sources = source_documents(con, list(doc_of.values()))
    return [sources[doc_id] for doc_id in dict.fromkeys(doc_of[chunk_id] for chunk_id in wanted)]


def vectors_of(
    con: duckdb.DuckDBPyConnection, path: Path, node_ids: Sequence[str], dimensions: int
) -> NDArray[np.float32]:
    """Return the vectors of chunks, ``[len(node_ids), dimensions] float32``, in the order in which they are named."""
    wanted = ids_of("node_ids", node_ids, "['guides/setup.md#3']")
    found = dict(select_by_key(con, "SELECT node_id, embedding FROM documents WHERE node_id IN (...)", wanted))
    check_found(path, wanted, found, partial(_near, con))
    return np.array([found[node_id] for node_id in wanted], dtype=np.float32).reshape(-1, dimensions)


def check_found(
    path: Path | str, wanted: list[str], found: Mapping[str, Any], similar: Callable[[str], Sequence[str]]
) -> None:
    """Raise NotFoundError where a chunk is not among those found; ``similar`` returns ids that are written alike."""
    missing = [node_id for node_id in wanted if node_id not in found]
    if missing:
        others = f" (nor {counted(len(missing) - 1, 'other')} of those asked for)" if missing[1:] else ""
        near = ", ".join(similar(missing[0]))
        hint = f"Similar ones: {near}." if near else "A node_id looks like guides/setup.md#3; take it from a result."
        raise NotFoundError(f"{path} holds no chunk {missing[0]!r}{others}. {hint}")


def ids_of(name: str, values: object, example: str) -> list[str]:
    """Return a list of ids as they can be bound."""
    ids = items(name, values, example)
    if not all(isinstance(value, str) for value in ids):
        raise InputError(f"{name} must be a list of strings, such as {example}, not {shown(values)}.")
    return [without_surrogates(value) for value in ids]


def _near(con: duckdb.DuckDBPyConnection, node_id: str) -> list[str]:
    """Return up to three ids that are written almost like one that does not exist."""
    rows = con.execute(
        "SELECT node_id FROM documents WHERE jaro_winkler_similarity(lower(node_id), lower($1)) > 0.8 "
        "ORDER BY jaro_winkler_similarity(lower(node_id), lower($1)) DESC, doc_id, chunk_index LIMIT 3",
        [node_id],
    ).fetchall()
    return [row[0] for row in rows]
