"""Messages (.eml) as Markdown: the subject, the text, and the names of what is attached."""

from __future__ import annotations

import email
import email.policy
from typing import TYPE_CHECKING

from sqlrag.cancellation import checkpoint
from sqlrag.errors import DocumentError
from sqlrag.ingest.readers.encoding import decode
from sqlrag.ingest.readers.text import kind_of
from sqlrag.ingest.readers.web import html_to_markdown, page_text
from sqlrag.ingest.readers.writing import converted, escaped, heading, list_item, paragraph

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import EmailMessage

    from sqlrag.types import Document

_HEADERS = {"from": "author", "to": "to", "date": "date"}

_MAX_DEPTH = 20  # of messages and parts within each other


def read_mail(data: bytes, doc_id: str, _: object = None) -> Document:
    """Return a message as Markdown: its subject as a heading, and the text as it would be shown.

    Of a part that is there as HTML and as plain text the HTML is read, for its tables and links. Attachments are named,
    not read; messages that are attached are read.

    Raises
    ------
    DocumentError
        It is no message; status "empty" where it has neither a subject nor text.
    """
    kind = kind_of(data)
    if kind and kind != "an HTML page":
        raise DocumentError(doc_id, f"the content is not a message: it is {kind}; give the file its right suffix")
    try:
        message = email.message_from_bytes(data, policy=email.policy.default)
        if not any(name in message for name in ("From", "To", "Subject", "Date", "Received")):
            raise DocumentError(doc_id, "the content is not a message: it has none of its headers")
        blocks = list(_blocks(message, doc_id, 0))
        metadata = {name: _header(message, key) for key, name in _HEADERS.items()}
    except RecursionError as error:
        raise DocumentError(doc_id, "not a readable message: its parts are nested too deeply") from error
    metadata["title"] = _header(message, "subject")
    return converted(doc_id, ["\n\n".join(filter(None, blocks))], metadata)


def _blocks(message: EmailMessage, doc_id: str, depth: int) -> Iterator[str]:
    checkpoint()
    subject = _header(message, "subject")
    if subject:
        yield heading(2 if depth else 1, escaped(subject))
    yield from _parts(message, doc_id, depth)


def _parts(part: EmailMessage, doc_id: str, depth: int) -> Iterator[str]:
    """Yield the texts of a part and the names of what is attached to it."""
    kind = part.get_content_type()
    if depth > _MAX_DEPTH:
        return
    if kind == "message/rfc822":
        for inner in part.get_payload():
            yield from _blocks(inner, doc_id, depth + 1)  # type: ignore[arg-type]
    elif kind == "multipart/alternative":
        best = _best(part)
        if best is not None:
            yield from _parts(best, doc_id, depth + 1)
    elif part.is_multipart():
        for one in part.iter_parts():
            yield from _parts(one, doc_id, depth + 1)  # type: ignore[arg-type]
    elif part.get_content_disposition() == "attachment" or (
        kind not in ("text/plain", "text/html") and part.get_filename()
    ):
        name = part.get_filename() or kind
        yield list_item("- ", [f"Attachment: {escaped(name)}"])
    elif kind in ("text/plain", "text/html"):
        yield _text(part, doc_id, is_html=kind == "text/html")


def _best(part: EmailMessage) -> EmailMessage | None:
    """Return the richest version of a part: HTML where it has it, also among what belongs to it, else plain text."""
    parts = [one for one in part.iter_parts() if one.get_content_type() != "text/calendar"]
    order = {"text/plain": 1, "text/html": 3, "multipart/related": 2, "multipart/mixed": 2, "multipart/alternative": 2}
    known = [one for one in parts if one.get_content_type() in order]
    return max(known, key=lambda one: order[one.get_content_type()], default=None)  # type: ignore[return-value]


def _text(part: EmailMessage, doc_id: str, *, is_html: bool) -> str:
    raw = part.get_payload(decode=True)
    data = raw if isinstance(raw, bytes) else b""
    charset = part.get_content_charset()
    try:
        text = data.decode(charset or "utf-8")
    except (LookupError, UnicodeDecodeError):
        try:
            text = page_text(data, doc_id)[0] if is_html else decode(data, doc_id)[0]
        except DocumentError:
            text = data.decode("utf-8", "replace")
    if is_html:
        return html_to_markdown(text).text
    return "\n\n".join(filter(None, (paragraph(escaped(block)) for block in text.replace("\r\n", "\n").split("\n\n"))))


def _header(message: EmailMessage, name: str) -> str:
    try:
        return " ".join(str(message.get(name, "")).split())
    except (ValueError, IndexError, AttributeError, TypeError, OverflowError):  # a header that the parser stumbles over
        return ""
