"""The sections of a document: where each begins and ends, and the titles above it."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from sqlrag.links import blocks_of, is_markdown
from sqlrag.types import DEFAULT_COLLECTION, ROW
from sqlrag.visible import Table, page_by_type, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlrag.types import Document

T = TypeVar("T", bound="tuple[int, ...]")

MAX_TITLE = 200

# Names that say less than that of the folder.
_NAMELESS = frozenset({"index", "_index", "readme"})

_WRITTEN_TITLE = re.compile(r"^[\"']?title[\"']?[^\S\n]*[:=][^\S\n]*([^\n]*(?:\n(?:[^\S\n][^\n]*)?)*)", re.MULTILINE)

PAGE_BREAK = "\n\n"


class Section(NamedTuple):
    """A part of a document.

    ``level`` is that of its heading, 0 where it has none. ``body`` is the offset after the heading. ``fences`` are the
    (start, end) offsets of the code fences inside, ``tables`` the tables. ``page`` counts from 1, 0 where the document
    has no pages.
    """

    start: int
    body: int
    end: int
    level: int = 0
    heading_path: tuple[str, ...] = ()
    fences: tuple[tuple[int, int], ...] = ()
    page: int = 0
    tables: tuple[Table, ...] = ()


def page_starts(pages: Sequence[str]) -> tuple[int, ...]:
    """Return where each page begins in the text that they make, joined by ``PAGE_BREAK``."""
    return tuple(accumulate((len(page) + len(PAGE_BREAK) for page in pages[:-1]), initial=0)) if pages else ()


def plain_sections(document: Document) -> list[Section]:
    """Return one section a page, or one for the whole body of a document without pages, below the page's title."""
    if is_markdown(document.mime):
        path = markdown_sections(document)[0].heading_path
    else:
        path = (title,) if (title := page_title(document)) else ()
    starts = [*document.page_starts] or [document.body_start]
    ends = [*starts[1:], len(document.text)]
    first = 1 if document.page_starts else 0
    return [
        Section(start, start, end, heading_path=path, page=page)
        for page, (start, end) in enumerate(zip(starts, ends, strict=True), first)
    ]


def page_title(document: Document) -> str:
    """Return what heads every path of a page without a heading of level 1: its title, else the name of its file.

    The title is the one in the metadata, from the front matter or from what the reader found in the file. Of the name
    the suffix is left out; ``index`` and ``README`` say less than the name of their folder, which is taken instead.
    "" for a text that has no name either, and for a row of a table, whose key says nothing.
    """
    is_named = document.file_name and not document.mime.startswith(ROW)
    return _own_title(document) or (name_title(document) if is_named else "")


def name_title(document: Document) -> str:
    """Return the name of a document as a title, whether or not it has another."""
    *folders, name = relative_path(document).split("/")
    stem = name.rpartition(".")[0] or name
    return _shortened(folders[-1] if folders and stem.lower() in _NAMELESS else stem)


def relative_path(document: Document) -> str:
    """Return the path of a document relative to the input folder: its id without the collection."""
    path = document.doc_id
    return path if document.collection == DEFAULT_COLLECTION else path.removeprefix(f"{document.collection}:")


def title_sections(document: Document) -> list[Section]:
    """Return the title in the front matter as the only section of a page that has no text below it, if it has one.

    Where it is not written there as it reads (in quotes with escapes, or folded), all that is written is the section.
    """
    title = _own_title(document)
    if not title:
        return []
    written = _WRITTEN_TITLE.search(document.text, 0, document.body_start)
    start, end = written.span(1) if written else (0, document.body_start)
    found = document.text.find(title, start, end)
    if found >= 0:
        start, end = found, found + len(title)
    return [Section(start, start, end, heading_path=(title,))] if found >= 0 or written else []


def markdown_sections(document: Document) -> list[Section]:
    """Return the text before the first heading, then one section a heading, in reading order.

    A page ends a section, too: what follows on the next page, up to its first heading, is under the same titles. Only
    headings of the top level of the page count: not those inside a quote, a list, a fence or HTML. Every path begins
    with the title in the front matter, as the heading of level 1 has it that says the same; where the page has no such
    heading, with :func:`page_title`.
    """
    start, text = document.body_start, document.text
    fences: list[tuple[int, int]] = []
    heads = []
    page = page_by_type(text, start, document.mime)
    for part in blocks_of(text, start):
        for token in part.tokens:
            if not token.map:
                continue
            if token.type == "fence":
                fences.append((part.start(token.map[0]), part.start(token.map[1])))
            elif token.type == "heading_open" and token.level == 0:
                begin, body = (part.start(line) for line in token.map)
                heads.append((int(token.tag[1]), begin, body, _shortened(visible(page.shown[begin:body]))))
    above = [(0, _root(document, [title for level, *_, title in heads if level == 1]))]
    sections = []
    for i, (level, begin, body, title) in enumerate([(0, start, start, ""), *heads]):
        if level:
            above = [(depth, other) for depth, other in above if depth < level]
            above += [(level, title)] if (level, title) != (1, above[0][1]) else []
        end = heads[i][1] if i < len(heads) else len(text)
        again = len(above) > 1 and above[0] == (0, above[1][1])  # the title of the file is that of the heading
        path = tuple(title for _, title in above[again:] if title)
        inside, tables = _within(fences, begin, end), _within(page.tables, begin, end)
        sections.append(Section(begin, body, end, level, path, inside, tables=tables))
    return _cut_at_pages(sections, document.page_starts) if document.page_starts else sections


def _cut_at_pages(sections: list[Section], page_starts: Sequence[int]) -> list[Section]:
    cut = []
    for section in sections:
        page = bisect_right(page_starts, section.start)
        borders = [*page_starts[page : bisect_left(page_starts, section.end)], section.end]
        cut.append(section._replace(end=borders[0], page=page))
        # The rest of a section has no heading of its own.
        cut += [
            section._replace(start=start, body=start, end=end, level=0, page=number)
            for number, (start, end) in enumerate(pairwise(borders), page + 1)
        ]
    return [
        section._replace(
            fences=_within(section.fences, section.start, section.end),
            tables=_within(section.tables, section.start, section.end),
        )
        for section in cut
    ]


def _within(found: Sequence[T], begin: int, end: int) -> tuple[T, ...]:
    """Return the stretches, in order, that begin within a part of the text."""
    return tuple(found[bisect_left(found, (begin,)) : bisect_left(found, (end,))])


def _root(document: Document, headings: Sequence[str]) -> str:
    """Return the title that every path of a page begins with, which has these headings of level 1; "" for none."""
    if not headings:
        return page_title(document)
    written = _own_title(document) if document.body_start else ""
    return next((title for title in headings if _words(title) == _words(written)), written)


def _words(title: str) -> list[str]:
    return re.findall(r"\w+", title.casefold())


def _own_title(document: Document) -> str:
    title = document.metadata.get("title")
    return _shortened(title) if isinstance(title, str) else ""


def _shortened(title: str) -> str:
    title = " ".join(title.split())
    return title if len(title) <= MAX_TITLE else title[: MAX_TITLE - 1].rstrip() + "…"
