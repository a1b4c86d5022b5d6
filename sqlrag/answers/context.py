"""One type for what a prompt can quote: result dicts, candidates and compressed passages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from sqlrag import arguments
from sqlrag.blocks.compress import JOINER
from sqlrag.cancellation import checkpoint
from sqlrag.errors import InputError
from sqlrag.types import DEFAULT_COLLECTION, NO_CONTEXT, Candidate
from sqlrag.visible import in_order, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Item = Mapping[str, Any] | Candidate


# What hidden lines leave behind.
_GAPS = re.compile(r"[ \t]*\n(?:[ \t]*\n)+")


@dataclass(frozen=True)
class Context:
    """A text that a prompt quotes, and its source.

    ``spans`` are its ranges in the source document, ``source.text[start:end]``, in characters; several if it was
    compressed, none if its place is unknown. ``file`` is the path below the input folder. ``context``, if there is one,
    is what the prompt shows instead of the text, which is a part of it: ``source.text[context_start:context_end]``.
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
    shown: str | None = None
    context: str | None = None
    context_start: int | None = None
    context_end: int | None = None
    context_shown: str | None = None

    @property
    def visible(self) -> str:
        """What the model sees: the text, or its context, without markup."""
        text, shown = (self.text, self.shown) if self.context is None else (self.context, self.context_shown)
        return text if shown is None else _GAPS.sub("\n\n", visible(in_order(shown, len(text)))).strip()


def contexts_of(items: Iterable[Item], checksums: Mapping[str, str] | None = None) -> list[Context]:
    """Return contexts in the order of the items; ``checksums`` are by doc_id.

    Raises
    ------
    InputError
        An item is neither a candidate nor a dict with ``text``, or a field has a wrong type.
    """
    return [_context(item, checksums or {}) for item in arguments.items("contexts", items, "what a query returned")]


def joined(items: Sequence[Item]) -> list[Item]:
    """Return the items, those of a document whose contexts overlap as one, in the place of the best.

    It has the fields of the best, the whole of both contexts, and the chunks of all as its ``spans``, so that nothing
    is shown twice, and what was found is cited as before.
    """
    contexts = contexts_of(items)
    placed = [i for i, one in enumerate(contexts) if _has_place(one)]
    placed.sort(key=lambda i: (contexts[i].doc_id, contexts[i].context_start, i))
    groups: list[list[int]] = []
    doc_id, stop = None, 0
    for i in placed:
        one = contexts[i]
        if one.doc_id == doc_id and _start_of(one) < stop:
            groups[-1].append(i)
            stop = max(stop, one.context_end or 0)
        else:
            groups.append([i])
            doc_id, stop = one.doc_id, one.context_end or 0
    merged = {min(group): _union(items[min(group)], [contexts[i] for i in group]) for group in groups if group[1:]}
    gone = {i for group in groups if group[1:] for i in group} - merged.keys()
    return [merged.get(i, item) for i, item in enumerate(items) if i not in gone]


def _has_place(one: Context) -> bool:
    """Return whether it has a context whose place, and that of the text in it, is known."""
    start, end = one.context_start, one.context_end
    if one.context is None or start is None or end != start + len(one.context):
        return False
    return bool(one.spans) and start <= one.spans[0][0] and one.spans[-1][1] <= end


def _start_of(one: Context) -> int:
    return one.context_start or 0


def _union(best: Item, group: Sequence[Context]) -> Item:
    """Return an item with the contexts of a group, which are in the order of the document and overlap."""
    begin = _start_of(group[0])
    text, seen = "", ""
    for one in group:
        done = len(text) - (_start_of(one) - begin)
        shown = one.context if one.context_shown is None else one.context_shown
        text, seen = text + (one.context or "")[done:], seen + (shown or "")[done:]
    spans: list[tuple[int, int]] = []
    for start, end in sorted(span for one in group for span in one.spans):
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    parts = [{"start": start, "end": end, "text": text[start - begin : end - begin]} for start, end in spans]
    row = {**vars(best), "text": best.content} if isinstance(best, Candidate) else dict(best)
    return {
        **row,
        "text": JOINER.join(str(part["text"]) for part in parts),
        "shown": JOINER.join(seen[start - begin : end - begin] for start, end in spans),
        "spans": parts,
        "i_start": spans[0][0],
        "i_end": spans[-1][1],
        "context": text,
        "context_start": begin,
        "context_end": begin + len(text),
        "context_shown": seen,
    }


def notices_of(items: object) -> list[str]:
    """Return the notices of results or candidates, if they have any."""
    notices = getattr(items, "notices", ())
    return [notice for notice in notices if isinstance(notice, str)] if isinstance(notices, (list, tuple)) else []


def cut_item(item: Item, end: int) -> Item:
    """Return an item cut to the first ``end`` characters of its text, with matching offsets and without its context.

    A compressed passage keeps whole spans and the beginning of one, never a part of a joiner.
    """
    context = _context(item, {})
    if isinstance(item, Candidate):
        return replace(
            item,
            **NO_CONTEXT,
            content=context.text[:end],
            i_end=_until(item.i_start, item.i_end, end),
            shown=_until_there(item.shown, end),
        )
    item = {**item, **{name: None for name in NO_CONTEXT if name in item}}
    if item.get("spans") is None or not item["spans"]:
        cut = {"text": context.text[:end], "i_end": _until(item.get("i_start"), item.get("i_end"), end)}
        return {**item, **cut, **({"shown": _until_there(item["shown"], end)} if "shown" in item else {})}
    lengths = [_length(span, len(context.text)) for span in item["spans"]]
    joins = max(1, len(lengths) - 1)
    joiner = max(0, len(context.text) - sum(lengths)) // joins
    spans, begin, stop = [], 0, 0
    for span, length in zip(item["spans"], lengths, strict=True):
        if begin >= end:
            break
        kept = min(length, end - begin)
        cut = {**span, "end": _until(span.get("start"), span.get("end"), kept)}
        spans.append({**cut, "text": span["text"][:kept]} if "text" in span else cut)
        stop = begin + kept
        begin += length + joiner
    ends = [span["end"] for span in spans]
    row = {**item, "text": context.text[:stop], "spans": spans, "i_end": ends[-1]}
    if "shown" in row:
        row["shown"] = _until_there(row["shown"], stop)
    if isinstance(item.get("left_out"), int):
        row["left_out"] = item["left_out"] + sum(lengths) - sum(_length(span, stop) for span in spans)
    return row


def _until(start: Any, end: Any, chars: int) -> int | None:
    """Return the end of the first characters of a range; None if its place is unknown."""
    return None if start is None or end is None or end <= start else min(int(end), int(start) + chars)


def _until_there(shown: Any, end: int) -> Any:
    return shown[:end] if isinstance(shown, str) else None


def _length(span: Mapping[str, Any], unknown: int) -> int:
    start, end = span.get("start"), span.get("end")
    return len(span["text"]) if "text" in span else unknown if start is None or end is None else end - start


def _context(item: Item, checksums: Mapping[str, str]) -> Context:
    checkpoint()
    if isinstance(item, Candidate):
        row: Mapping[str, Any] = {**vars(item), "text": item.content}
    else:
        row = item
    if not callable(getattr(row, "get", None)) or not isinstance(row.get("text"), str):
        raise InputError(f"A context must be a Candidate or a dict with a text, not {arguments.shown(item)}.")
    collection = _string(row, "collection") or DEFAULT_COLLECTION
    metadata = row.get("metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InputError(f"The metadata of a context must be a dict, not {arguments.shown(metadata)}.")
    metadata = metadata or {}
    doc_id = _string(row, "doc_id")
    prefix = f"{collection}:"
    path = metadata.get("file_path")
    return Context(
        node_id=_string(row, "node_id"),
        doc_id=doc_id,
        chunk_index=_whole(row, "chunk_index"),
        text=row["text"],
        collection=collection,
        file=path if isinstance(path, str) and path else doc_id.removeprefix(prefix),
        page=_whole(row, "page"),
        heading_path=_titles(row.get("heading_path")),
        score=_score(row.get("score")),
        score_type=_string(row, "score_type"),
        checksum=_string(row, "checksum") or _string(metadata, "checksum") or checksums.get(doc_id),
        spans=tuple(_spans(row)),
        shown=_shown(row),
        **_around(row),
    )


def _around(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the context of a row, if it has one."""
    text = row.get("context")
    if text is None:
        return {}
    shown = row.get("context_shown")
    return {
        "context": arguments.text("context of a context", text),
        "context_start": _whole(row, "context_start"),
        "context_end": _whole(row, "context_end"),
        "context_shown": shown if isinstance(shown, str) and len(shown) >= len(text) else None,
    }


def _string(row: Mapping[str, Any], name: str) -> str:
    """Return a field that is a string, "" if it is missing; integer ids become strings."""
    value = row.get(name)
    if isinstance(value, Integral):
        value = str(arguments.whole(f"{name} of a context", value, -(2**63), 2**63 - 1))
    return "" if value is None else arguments.text(f"{name} of a context", value)


def _shown(row: Mapping[str, Any]) -> str | None:
    """Return how a reader sees the text; None where it is of another text, which somebody has changed."""
    shown = row.get("shown")
    return shown if isinstance(shown, str) and len(shown) >= len(row["text"]) else None


def _whole(row: Mapping[str, Any], name: str) -> int | None:
    value = row.get(name)
    return None if value is None else arguments.whole(f"{name} of a context", value, 0, 2**63 - 1)


def _score(value: Any) -> float | None:
    if value is None:
        return None
    try:
        if isinstance(value, Real) and not isinstance(value, bool):
            return float(value)
    except OverflowError:
        pass
    raise InputError(f"The score of a context must be a number, not {arguments.shown(value)}.")


def _titles(value: Any) -> tuple[str, ...]:
    titles = () if value is None else arguments.items("heading_path of a context", value, "['Pump', 'Start']")
    return tuple(arguments.text("A title in the heading_path of a context", title) for title in titles)


def _spans(row: Mapping[str, Any]) -> Iterable[tuple[int, int]]:
    spans = row.get("spans")
    places = [] if spans is None else arguments.items("spans of a context", spans, "[{'start': 0, 'end': 9}]")
    for place in places or [{"start": row.get("i_start"), "end": row.get("i_end")}]:
        if not isinstance(place, Mapping) or not isinstance(place.get("text", ""), str):
            raise InputError(f"A span of a context must be a dict with start and end, not {arguments.shown(place)}.")
        start, end = _whole(place, "start"), _whole(place, "end")
        # Chunks stored without offsets have 0 for both.
        if start is not None and end is not None and end > start:
            yield start, end
