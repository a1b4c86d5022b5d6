"""The sections of a document: where each begins and ends and which titles stand above it."""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from sqlrag.links import LINE_END, plain
from sqlrag.stopping import checkpoint

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

    from sqlrag.types import Document

MAX_TITLE = 200


class Section(NamedTuple):
    """A part of a document.

    ``level`` is that of its heading, 0 where it has none. ``body`` is the offset after the heading. ``fences`` are the
    (start, end) offsets of the code fences inside.
    """

    start: int
    body: int
    end: int
    level: int = 0
    heading_path: tuple[str, ...] = ()
    fences: tuple[tuple[int, int], ...] = ()


def plain_sections(document: Document) -> list[Section]:
    """Return one section a page, or one for the whole body of a document without pages."""
    starts = [*document.page_starts] or [document.body_start]
    ends = [*starts[1:], len(document.text)]
    return [Section(start, start, end) for start, end in zip(starts, ends, strict=True)]


def title_sections(document: Document) -> list[Section]:
    """Return the title in the front matter as the only section of a page that has no text below it, if it has one."""
    title = document.metadata.get("title")
    start = document.text.find(title, 0, document.body_start) if isinstance(title, str) and title.strip() else -1
    return (
        [Section(start, start, start + len(str(title)), heading_path=(_shortened(str(title)),))] if start >= 0 else []
    )


def markdown_sections(document: Document) -> list[Section]:
    """Return the text before the first heading, then one section a heading, in reading order.

    Only headings of the top level of the page count: not those inside a quote, a list, a fence or HTML. Where the body
    has no heading of level 1, the ``title`` of the front matter takes its place at the head of every path.
    """
    parser = _block_parser()
    environment: dict[str, object] = {}
    start, text = document.body_start, document.text
    tokens = parser.parse(text[start:], environment)
    lines = [start, *(match.end() for match in LINE_END.finditer(text, start))]

    def offset(line: int) -> int:
        return lines[line] if line < len(lines) else len(text)

    fences = [(offset(t.map[0]), offset(t.map[1])) for t in tokens if t.type == "fence" and t.map]
    fence_starts = [fence[0] for fence in fences]
    heads = [
        (int(token.tag[1]), offset(token.map[0]), offset(token.map[1]), tokens[i + 1].content)
        for i, token in enumerate(tokens)
        if token.type == "heading_open" and token.level == 0 and token.map
    ]
    above = [] if any(head[0] == 1 for head in heads) else _page_title(document)
    sections = []
    for i, (level, begin, body, content) in enumerate([(0, start, start, ""), *heads]):
        if level:
            above = [(depth, title) for depth, title in above if depth < level]
            above.append(
                (level, _shortened(plain(parser.inline.parse(content[: 5 * MAX_TITLE], parser, environment, []))))
            )
        end = heads[i][1] if i < len(heads) else len(text)
        inside = fences[bisect_left(fence_starts, begin) : bisect_left(fence_starts, end)]
        path = tuple(title for _, title in above if title)
        sections.append(Section(begin, body, end, level, path, tuple(inside)))
    return sections


@cache
def _block_parser() -> MarkdownIt:
    """Return a parser that leaves alone what stands inside the blocks; titles are parsed further one by one."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark")
    parser.core.ruler.disable("inline")
    # Also a rule that could end a paragraph, which a whole document may be: it is asked at each line.
    parser.block.ruler.before("code", "checkpoint", _checkpoint, {"alt": ["paragraph", "reference", "blockquote"]})
    return parser


def _checkpoint(*_: object) -> bool:
    """Let the parsing of a long document be ended; as a rule that matches no line."""
    checkpoint()
    return False


def _page_title(document: Document) -> list[tuple[int, str]]:
    title = document.metadata.get("title")
    return [(0, _shortened(title))] if isinstance(title, str) else []


def _shortened(title: str) -> str:
    title = " ".join(title.split())
    return title if len(title) <= MAX_TITLE else title[: MAX_TITLE - 1].rstrip() + "…"
