"""Documents and chunks from callers: their types checked, and what no file can hold replaced."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, TypeVar

from sqlrag.embedders.base import without_surrogates
from sqlrag.errors import InputError
from sqlrag.normalizing import clean_metadata
from sqlrag.options import items, shown, whole
from sqlrag.types import Chunk, Document

Row = TypeVar("Row", Document, Chunk)

_INT32 = 2**31 - 1
_INT64 = 2**63 - 1
_OPTIONAL = {"page", "modified_at"}


def cleaned_document(document: Document) -> Document:
    """Return a document as it can be stored.

    Raises
    ------
    InputError
        ``doc_id`` is blank, or a field is of the wrong type.
    """
    return _cleaned(document, Document, {"size_bytes": (0, _INT64), "body_start": (0, _INT64)})


def cleaned_chunk(chunk: Chunk) -> Chunk:
    """Return a chunk as it can be stored.

    Raises
    ------
    InputError
        ``doc_id`` is blank, a field is of the wrong type, a number out of its range, or ``node`` no JSON object.
    """
    offsets = {"chunk_index": (0, _INT32), "i_start": (0, _INT32), "i_end": (0, _INT32), "page": (1, _INT32)}
    cleaned = _cleaned(chunk, Chunk, offsets)
    if cleaned.node:
        try:
            node = json.loads(cleaned.node)
        except ValueError:
            node = None
        if not isinstance(node, dict):
            raise InputError(f"Chunk {shown(chunk.node_id)}: node must be a JSON object, not {shown(cleaned.node)}.")
    return cleaned


def _cleaned(row: Row, kind: type[Row], ranges: dict[str, tuple[int, int]]) -> Row:
    """Return the row with its fields checked; the length of its text never changes, so that offsets stay true."""
    if not isinstance(row, kind):
        raise InputError(f"A sqlrag.{kind.__name__} is wanted, not a {type(row).__name__}.")
    changes: dict[str, Any] = {}
    for field in fields(row):
        name, value = field.name, getattr(row, field.name)
        where = f"{kind.__name__} {shown(row.doc_id)}: {name}"
        if value is None and name in _OPTIONAL:
            continue
        if name == "metadata":
            changes[name] = clean_metadata(value)
        elif name in ranges:
            low, high = ranges[name]
            changes[name] = whole(where, value, low, high)
        elif name == "page_starts":
            changes[name] = tuple(whole(where, start, 0) for start in items(where, value, "(0, 1800)"))
        elif name in ("tags", "heading_path", "warnings"):
            if not isinstance(value, (tuple, list)) or not all(isinstance(item, str) for item in value):
                raise InputError(f"{where} must be a tuple of strings, not {shown(value)}.")
            changes[name] = tuple(without_surrogates(item) for item in value)
        elif name == "modified_at":
            if not isinstance(value, datetime):
                raise InputError(f"{where} must be a datetime, not {shown(value)}.")
        elif isinstance(value, str):
            changes[name] = without_surrogates(value)
        elif field.type == "str":
            raise InputError(f"{where} must be a string, not {shown(value)}.")
    for name in ("doc_id", "collection"):
        if not changes[name].strip():
            raise InputError(f"{kind.__name__} {shown(row.doc_id)}: {name} must not be blank.")
    return replace(row, **changes)
