"""The result types of an answer: the whole answer, and the events of a stream."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlrag.answers.window import LeftOut

EventType = Literal["sources", "text", "error", "usage", "done"]

_WIDTH = 100

_QUOTED_LINES = 2


@dataclass(frozen=True)
class Answer:
    """An answer with its sources.

    ``text`` is the model's, complete unless there is an ``error``; the sources are always present, see
    :class:`sqlrag.answers.prompt.Prompt`. ``citations`` are the numbers of the sources that the text cites,
    ``unknown_citations`` cited numbers without a source, both in the order of the text. ``finish_reason`` is the
    model's ("stop", "length" …), None if it failed; if it was not called, "no_sources" (nothing was found) or "no_room"
    (no result fits). ``usage`` has ``prompt_tokens`` and ``completion_tokens`` if the server reports them. ``timings``
    are seconds by stage. ``queries`` are the texts that were searched for. ``notices`` are remarks for the reader.
    """

    question: str
    text: str
    sources: list[dict[str, Any]]
    citations: list[int]
    unknown_citations: list[int]
    finish_reason: str | None
    error: str | None
    model: str
    usage: Mapping[str, int]
    timings: Mapping[str, float]
    notices: list[str]
    request_id: str
    queries: list[str]
    left_out: list[LeftOut] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        parts = [self.text.strip()] if self.text.strip() else []
        if self.error:
            parts.append(f"No answer: {self.error}" if not parts else f"The answer is not complete: {self.error}")
        if self.sources:
            parts.append(format_sources(self.sources, set(self.citations)))
        return "\n\n".join(parts)


@dataclass(frozen=True)
class AnswerEvent:
    """A step of a streamed answer.

    ``type`` is, in this order, "sources" (once: ``sources``), "text" (any number: ``text``, the next part of it),
    "error" (at most once: ``error``), "usage" (at most once: ``usage``), and "done" (the last: ``answer``, the whole).
    """

    type: EventType
    request_id: str
    text: str = ""
    sources: list[dict[str, Any]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    error: str | None = None
    usage: Mapping[str, int] = field(default_factory=dict)
    answer: Answer | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return type, request id and the fields of this type as plain values, for JSON."""
        content: dict[EventType, dict[str, Any]] = {
            "sources": {"sources": self.sources, "notices": self.notices},
            "text": {"text": self.text},
            "error": {"error": self.error},
            "usage": {"usage": dict(self.usage)},
            "done": {"answer": self.answer.as_dict() if self.answer else None},
        }
        return {"type": self.type, "request_id": self.request_id, **content[self.type]}


def format_sources(sources: list[dict[str, Any]], cited: set[int] | None = None) -> str:
    """Format sources for reading: number, file, page or headings, score, offsets and the beginning of the quote.

    An asterisk marks the sources in ``cited``.
    """
    lines = ["Sources (* cited):" if cited else "Sources:"]
    for source in sources:
        mark = "*" if cited and source["number"] in cited else " "
        spans = ", ".join(f"{start}-{end}" for start, end in source["spans"])
        place = [
            f"{source['file'] or source['node_id']}",
            f"page {source['page']}" if source["page"] is not None else " > ".join(source["heading_path"]),
            f"characters {spans}" if spans else "",
            f"score {source['score']:.4f}" if source["score"] is not None else "",
        ]
        lines.append(f"{mark}[{source['number']}] " + ", ".join(" ".join(part.split()) for part in place if part))
        lines += textwrap.wrap(
            " ".join(source["quote"].split()), _WIDTH - 5, initial_indent=" " * 5, subsequent_indent=" " * 5,
            max_lines=_QUOTED_LINES, placeholder=" …",
        )  # fmt: skip
    return "\n".join(lines)
