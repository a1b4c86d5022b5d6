"""One shape for what a prompt may quote: result dicts, candidates and compressed passages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlrag.errors import InputError
from sqlrag.types import DEFAULT_COLLECTION, Candidate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Item = Mapping[str, Any] | Candidate


@dataclass(frozen=True)
class Context:
    """A text that a prompt quotes, and where it is from.

    ``spans`` are its stretches of the source document, ``source.text[start:end]``, in characters; more than one where
    it was compressed, none where its place is unknown. ``file`` is the path below the input folder.
    """

    node_id: str
    doc_id: str
    chunk_index: int | None
    text: str
    collection: str = DEFAULT_COLLECTION
    file: str = ""
    page: int | None = None
    heading_path: tuple[str, ...] = ()
    score: float | None = None
    score_type: str = ""
    checksum: str | None = None
    spans: tuple[tuple[int, int], ...] = ()


def contexts_of(items: Iterable[Item], checksums: Mapping[str, str] | None = None) -> list[Context]:
    """Return contexts in the order of the items; ``checksums`` are by doc_id.

    Raises
    ------
    InputError
        One is neither a candidate nor a dict with ``text``.
    """
    if isinstance(items, (str, bytes, dict)):
        raise InputError("The contexts must be a list of results or candidates.")
    return [_context(item, checksums or {}) for item in items]


def cut_item(item: Item, end: int) -> Item:
    """Return an item with the first ``end`` characters of its text, and with the offsets of what is left."""
    context = _context(item, {})
    text, spans = context.text[:end], _spans_until(context, end)
    last = spans[-1][1] if spans else None
    if isinstance(item, Candidate):
        return replace(item, content=text, i_end=last)
    cut = {**item, "text": text, "i_end": last}
    if item.get("spans"):
        cut["spans"] = [{**span, "end": until} for span, (_, until) in zip(item["spans"], spans, strict=False)]
    return cut


def _context(item: Item, checksums: Mapping[str, str]) -> Context:
    if isinstance(item, Candidate):
        row: Mapping[str, Any] = {**vars(item), "text": item.content}
    elif hasattr(item, "get") and isinstance(item.get("text"), str):
        row = item
    else:
        raise InputError(f"A context must be a Candidate or a dict with a text, not {item!r:.200}.")
    collection = row.get("collection") or DEFAULT_COLLECTION
    metadata = row.get("metadata") or {}
    doc_id = str(row.get("doc_id") or "")
    prefix = f"{collection}:"
    path = metadata.get("file_path")
    checksum = row.get("checksum") or metadata.get("checksum") or checksums.get(doc_id)
    return Context(
        node_id=str(row.get("node_id") or ""),
        doc_id=doc_id,
        chunk_index=row.get("chunk_index"),
        text=row["text"],
        collection=collection,
        file=path if isinstance(path, str) and path else doc_id.removeprefix(prefix),
        page=row.get("page"),
        heading_path=tuple(row.get("heading_path") or ()),
        score=row.get("score"),
        score_type=row.get("score_type") or "",
        checksum=checksum,
        spans=tuple(_spans(row)),
    )


def _spans(row: Mapping[str, Any]) -> Iterable[tuple[int, int]]:
    places: Sequence[Mapping[str, Any]] = row.get("spans") or [{"start": row.get("i_start"), "end": row.get("i_end")}]
    for place in places:
        start, end = place.get("start"), place.get("end")
        # Chunks that were stored without offsets have 0 for both.
        if start is not None and end is not None and end > start:
            yield start, end


def _spans_until(context: Context, end: int) -> tuple[tuple[int, int], ...]:
    """Return the spans of the first ``end`` characters; between two spans the text has what joins them."""
    lengths = [stop - start for start, stop in context.spans]
    joins = len(context.spans) - 1
    joiner = (len(context.text) - sum(lengths)) // joins if joins > 0 else 0
    kept, position = [], 0
    for (start, stop), length in zip(context.spans, lengths, strict=True):
        if position < end:
            kept.append((start, min(stop, start + end - position)))
        position += length + joiner
    return tuple(kept)
