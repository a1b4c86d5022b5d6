"""The names that a file can be searched by: its collections, tags and metadata fields, counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Select = Callable[..., list[tuple[Any, ...]]]

KINDS = ("collections", "tags", "metadata_fields")


def counted_names(select: Select, kind: str, most: int) -> list[dict[str, Any]]:
    """Return at most ``most`` names of a kind with the ``documents`` and ``chunks`` of each, the most used first.

    ``select`` is :meth:`sqlrag.Store.select`.
    """
    rows = select(f"facets/{kind}", most=most)
    return [{"name": name, "documents": documents, "chunks": chunks} for name, documents, chunks in rows]
