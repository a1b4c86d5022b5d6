"""A digest of each document with its chunks and vectors, by which two stores can be compared."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlrag.formats.contents import Batch

_JSON = ("metadata_", "chunk_policy")


def digests(batch: Batch) -> dict[str, str]:
    """Return the SHA-256 of every document of a batch, in hexadecimal digits, by ``doc_id``.

    It is over the document's fields, its chunks in their order and the bytes of their vectors: equal for equal ones,
    however their JSON is spaced. When a document was stored does not count.
    """
    found = {row["doc_id"]: hashlib.sha256(_line(row)) for row in batch.sources.to_pylist()}
    for row, vector in zip(batch.chunks.to_pylist(), batch.vectors.astype("<f4", copy=False), strict=True):
        one = found[row["doc_id"]]
        one.update(_line(row))
        one.update(vector.tobytes())
    return {doc_id: one.hexdigest() for doc_id, one in found.items()}


def _line(row: dict[str, Any]) -> bytes:
    plain = {name: json.loads(value) if name in _JSON and value is not None else value for name, value in row.items()}
    return json.dumps(plain, sort_keys=True, ensure_ascii=False, default=str).encode() + b"\n"
