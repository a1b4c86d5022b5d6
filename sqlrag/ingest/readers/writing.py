"""What readers write Markdown with: text that stays text, headings, lists, tables and code."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from sqlrag.cancellation import watched
from sqlrag.errors import DocumentError
from sqlrag.ingest.readers.sections import PAGE_BREAK, page_starts
from sqlrag.normalize import clean_metadata, normalize
from sqlrag.types import Document

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Markup within a line: only signs that would be taken for it, since what is stored is also shown.
_MARKUP = re.compile(
    r"""\\(?=[!-/:-@\[-`{-~])        # a backslash before a sign
    |`
    |(?<!\s)\*|\*(?!\s)
    |(?<![^\W_])_|_(?![^\W_])         # not within a word
    |~(?=~)
    |<(?=[A-Za-z/!?])                 # a tag, a comment, an address
    |&(?=\#?\w{1,31};)
    |\[(?=\[|\^|[^\[\]]*\][(\[:])     # a link, a footnote
    |(?<=\{)[{%\#/:]                 # a template, an anchor: where its second sign is escaped it is none""",
    re.VERBOSE,
)

_BLOCK_MARKUP = re.compile(
    r"(?P<number>\d{1,9})(?=[.)](?:\s|$))|(?=#{1,6}(?:\s|$)|>|[-+*](?:\s|$)|~~~|:::|(?:=+|-[-\s]+|_[_\s]+|\*[*\s]+)$)"
)

_BACKTICKS = re.compile("`+")

_LONE_BRACKET = re.compile(r"(?<!\\)[\[\]]")

_BLANK = re.compile(r"\s+")


def escaped(text: str) -> str:
    """Return the text with a backslash before every sign that Markdown would take for markup within a line."""
    return _MARKUP.sub(r"\\\g<0>", text)


def paragraph(text: str) -> str:
    """Return a paragraph of text that is escaped already: no line is blank or begins as a block of Markdown does."""
    lines = filter(None, (line.strip() for line in text.split("\n")))
    return "\n".join(
        _BLOCK_MARKUP.sub(r"\g<number>\\", line, count=1) if _BLOCK_MARKUP.match(line) else line for line in lines
    )


def plain_paragraph(text: str) -> str:
    """Return a paragraph of text that is not escaped."""
    return paragraph(escaped(text))


def heading(level: int, text: str) -> str:
    """Return a heading of escaped text; "" if there is none."""
    title = _BLANK.sub(" ", text).strip()
    return f"{'#' * min(max(level, 1), 6)} {title}" if title else ""


def fence(code: str, language: str = "") -> str:
    """Return a block of code; "" if it is blank."""
    code = code.strip("\n").rstrip()
    if not code.strip():
        return ""
    marks = "`" * max(3, 1 + _longest_run(code))
    return f"{marks}{language}\n{code}\n{marks}"


def code_span(code: str) -> str:
    """Return code within a line; "" if it is blank."""
    code = _BLANK.sub(" ", code).strip()
    if not code:
        return ""
    marks = "`" * (1 + _longest_run(code)) if "`" in code else "`"
    space = " " if code.startswith("`") or code.endswith("`") else ""
    return f"{marks}{space}{code}{space}{marks}"


def _longest_run(code: str) -> int:
    return max((len(run) for run in _BACKTICKS.findall(code)), default=0)


def link(label: str, target: str) -> str:
    """Return a link with an escaped label; the label alone where it is blank or of several lines, or leads nowhere."""
    words, where = label.strip(), address(target)
    if not words or not where or "\n" in words:
        return label
    before, after = label[: len(label) - len(label.lstrip())], label[len(label.rstrip()) :]
    return f"{before}[{bracketed(words)}]({where}){after}"


def bracketed(label: str) -> str:
    """Return the text of a link, whose own brackets do not end it."""
    return _LONE_BRACKET.sub(r"\\\g<0>", label) if label.count("[") != label.count("]") else label


def address(target: str) -> str:
    """Return where a link leads as Markdown writes it; "" for scripts and data."""
    target = re.sub(r"[\t\n\r]", "", target).strip()
    if target[:11].lower() == "javascript:" or target[:5].lower() == "data:":
        return ""
    if re.search(r"[\s()<>]", target):
        return "<" + target.replace("<", "%3C").replace(">", "%3E") + ">"
    return target


def list_item(marker: str, blocks: Sequence[str]) -> str:
    """Return an item of a list with its blocks, each of whose lines is indented below the marker."""
    indent = "\n" + " " * len(marker)
    return marker + "\n".join(blocks).replace("\n", indent)


def table(rows: Iterable[Sequence[str]]) -> str:
    """Return a table of escaped texts, the first row as its header; blank rows are left out, short ones stay short."""
    lines = []
    width = header = 0
    for row in watched(rows):
        cells = [_cell(text) for text in row]
        while cells and not cells[-1]:
            cells.pop()
        if cells:
            header = header or len(cells)
            width = max(width, len(cells))
            lines.append(f"| {' | '.join(cells)} |")
    if not lines:
        return ""
    lines[0] += " |" * (width - header)
    return "\n".join([lines[0], f"|{' --- |' * width}", *lines[1:]])


def _cell(text: str) -> str:
    text = text.replace("|", "\\|") if "|" in text else text
    return " ".join(text.split())


_DATE_OF_MESSAGE = re.compile(
    r"(?:[A-Za-z]{3},? ?)?[0-9]{1,2} [A-Za-z]{3} [1-9][0-9]{3} [0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?"
    r"(?: (?P<name>[A-Z]{1,4})| [+-][0-9]{4})?(?: \(.*\))?"
)

# What programs call a page, a book or a document without a title.
_UNTITLED = re.compile(
    r"(?:new )?untitled(?:[ -](?:document|page|book|note|presentation|spreadsheet))?\W*\d*|unbenanntes dokument|"
    r"document sans titre|documento (?:sin t[ií]tulo|senza titolo|sem nome)|документ без названия|"
    r"無題.{0,6}|未命名.{0,4}|无标题文档|new (?:page|document)\W*\d*",
    re.IGNORECASE,
)


def _iso_date(text: str) -> str:
    """Return the date of a message (RFC 5322) as ISO 8601 has it, by which filters compare; any other text as it is."""
    form = _DATE_OF_MESSAGE.fullmatch(text)
    if form is None:
        return text
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # there is no such day
        return text
    return text if form["name"] and found.tzinfo is None else found.isoformat()  # a zone that nobody knows


def converted(
    doc_id: str,
    pages: Sequence[str],
    metadata: Mapping[str, object] | None = None,
    *,
    paged: bool = False,
    warnings: Sequence[str] = (),
) -> Document:
    """Return the document that was converted to Markdown; its MIME type is set by the caller of the reader.

    Parameters
    ----------
    doc_id
        The id of the document.
    pages
        Blocks of Markdown; with ``paged``, one string a page.
    metadata
        What the file says of itself; blank values are left out.

    Raises
    ------
    DocumentError
        There is no text: the status is "empty".
    """
    texts = [normalize(page).strip() for page in pages]
    if not any(texts):
        raise DocumentError(doc_id, "the file is empty: it holds no text", "empty")
    if not paged:
        texts = [text for text in texts if text]
    given = {key: value for key, value in (metadata or {}).items() if not isinstance(value, str) or value.strip()}
    known = {key: " ".join(value.split()) if isinstance(value, str) else value for key, value in given.items()}
    if _UNTITLED.fullmatch(str(known.get("title", ""))):
        del known["title"]
    if "date" in known:
        known["date"] = _iso_date(str(known["date"]))
    return Document(
        doc_id,
        PAGE_BREAK.join(texts),
        metadata=clean_metadata(known),
        page_starts=page_starts(texts) if paged else (),
        warnings=tuple(warnings),
    )
