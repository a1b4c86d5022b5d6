"""The document formats: their suffixes, how they are read, and their sections."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, NamedTuple

from sqlrag.ingest.readers.book import read_book
from sqlrag.ingest.readers.mail import read_mail
from sqlrag.ingest.readers.notebook import read_notebook
from sqlrag.ingest.readers.pdf import PdfExtractor, read_pdf
from sqlrag.ingest.readers.restructured import read_rst
from sqlrag.ingest.readers.sections import Section, markdown_sections, plain_sections
from sqlrag.ingest.readers.sheets import read_workbook
from sqlrag.ingest.readers.slides import read_presentation
from sqlrag.ingest.readers.tables import read_table
from sqlrag.ingest.readers.text import read_text
from sqlrag.ingest.readers.web import read_html
from sqlrag.ingest.readers.word import read_word
from sqlrag.links import MARKDOWN, is_markdown

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlrag.types import Document


class Reader(NamedTuple):
    """A document format.

    ``read`` takes the bytes of a file, its ``doc_id`` and the ``pdf_extractor`` of the caller. It returns a Document
    with the normalised text, and what else the format knows: tags, metadata, ``body_start``, ``page_starts``, warnings.
    It raises DocumentError where the content is of another kind. Whether the text is Markdown, ``mime`` says
    (:func:`sqlrag.links.is_markdown`).
    """

    mime: str
    suffixes: tuple[str, ...]
    read: Callable[[bytes, str, PdfExtractor | None], Document]


_OPEN_XML = "application/vnd.openxmlformats-officedocument"

READERS = (
    Reader(MARKDOWN, (".md", ".markdown", ".mdx"), read_text),
    Reader("text/plain", (".txt",), read_text),
    Reader("application/pdf", (".pdf",), read_pdf),
    Reader("text/html", (".html", ".htm", ".xhtml"), read_html),
    Reader("text/csv", (".csv",), read_table),
    Reader("text/tab-separated-values", (".tsv",), read_table),
    Reader("application/x-ipynb+json", (".ipynb",), read_notebook),
    Reader(f"{_OPEN_XML}.wordprocessingml.document", (".docx", ".docm"), read_word),
    Reader(f"{_OPEN_XML}.presentationml.presentation", (".pptx", ".pptm"), read_presentation),
    Reader(f"{_OPEN_XML}.spreadsheetml.sheet", (".xlsx", ".xlsm"), read_workbook),
    Reader("application/epub+zip", (".epub",), read_book),
    Reader("text/x-rst", (".rst",), read_rst),
    Reader("message/rfc822", (".eml",), read_mail),
)

_GROUP = "sqlrag.readers"


@cache
def readers() -> dict[str, Reader]:
    """Return the reader of each suffix that is read here, ours first, then those of other packages by name.

    Other packages name theirs in the entry-point group ``sqlrag.readers``: a :class:`Reader` each. What cannot be
    loaded, and a suffix that has a reader already, is left out with a warning.
    """
    found = {suffix: reader for reader in READERS for suffix in reader.suffixes}
    for point in sorted(entry_points(group=_GROUP), key=lambda point: (point.name, point.value)):
        name = f"The reader {point.name!r} ({point.value})"
        try:
            reader = _checked(point.load())
        except Exception as error:
            warnings.warn(f"{name} cannot be loaded: {type(error).__name__}: {error}", stacklevel=2)
            continue
        for suffix in reader.suffixes:
            if found.setdefault(suffix, reader) is not reader:
                warnings.warn(f"{name} is not used for {suffix}, which has a reader already", stacklevel=2)
    return found


def reader_of(suffix: str) -> Reader | None:
    """Return the reader of a suffix in any case, such as ``.md``; None if there is none."""
    return readers().get(suffix.lower())


def _checked(reader: object) -> Reader:
    if not isinstance(reader, Reader) or not callable(reader.read) or not reader.mime:
        raise TypeError("it must be a Reader(mime, suffixes, read)")
    for suffix in reader.suffixes:
        if (
            not suffix.startswith(".")
            or suffix != suffix.lower()
            or "." in suffix[1:]
            or isinstance(reader.suffixes, str)
        ):
            raise TypeError(f"its suffixes must be as ('.log',), not {reader.suffixes!r}")
    return reader


def sections_of(document: Document) -> list[Section]:
    """Return the sections of a document as its format has them: none spans two pages, nor two headings of Markdown."""
    return markdown_sections(document) if is_markdown(document.mime) else plain_sections(document)
