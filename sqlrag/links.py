"""The links of a Markdown text: where each stands and to which document it leads."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cache
from itertools import accumulate
from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from sqlrag.types import DEFAULT_COLLECTION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

LINE_END = re.compile(r"\r\n?|\n")
"""The line ends that markdown-it counts, so that its line numbers can be turned into offsets."""

# What every link has: a destination in brackets, a definition elsewhere in the text, or an address in angle brackets.
_SIGN_OF_A_LINK = re.compile(r"\]\(|\]:|<[^<>\s]+[:@]")
_MAY_LINK = re.compile(r"\]|<[^<>\s]+[:@]")
_URL = re.compile(r"(?P<path>[^?#]*)(?:\?[^#]*)?(?:#(?P<fragment>.*))?", re.DOTALL)
_EXTERNAL = re.compile(r"//|[A-Za-z][A-Za-z0-9+.-]*:")


class Link(NamedTuple):
    """A link: its span in the text, what is read in its place, where it leads.

    ``i_start`` and ``i_end`` count characters of the whole text. ``url`` is the destination as it is written, in a
    definition or in the link itself. ``target`` is the doc_id that it leads to, whether the file holds it or not;
    None where it leads out of the collection, by a scheme such as https or by a host.
    """

    i_start: int
    i_end: int
    label: str
    url: str
    target: str | None
    fragment: str | None


def markdown_links(
    text: str, body_start: int = 0, doc_id: str = "", collection: str = DEFAULT_COLLECTION
) -> list[Link]:
    """Return the links of a Markdown document in the order of the text, as CommonMark counts them.

    Links that refer to a definition and addresses in angle brackets are among them; pictures, HTML and what stands in
    code are not.

    Parameters
    ----------
    text
        The whole document.
    body_start
        Characters of its front matter.
    doc_id, collection
        The document; links are taken from its folder.

    Examples
    --------
    >>> [link] = markdown_links("See [filters](../search/filters.md#tags).", doc_id="guides/setup.md")
    >>> link.target, link.fragment, link.label
    ('search/filters.md', 'tags', 'filters')
    """
    if not _SIGN_OF_A_LINK.search(text, body_start):
        return []
    body = text[body_start:].replace("\0", "\ufffd")  # as the parser does, which changes no offset
    lines = LINE_END.split(body)
    starts = [body_start, *(body_start + end.end() for end in LINE_END.finditer(body))]
    found = []
    environment: dict[str, object] = {}
    parser = _parser()
    for block in parser.parse(body, environment):
        if block.type == "inline" and block.map and _MAY_LINK.search(block.content):
            place = _places(block.content.split("\n"), block.map[0], lines, starts)
            for token, label in _links_of(parser.inline.parse(block.content, parser, environment, [])):
                url = str(token.attrs["href"])
                target, fragment = resolve(url, doc_id, collection)
                start, end = (place(offset) for offset in token.meta["span"])
                found.append(Link(start, end, label, url, target, fragment))
    return found


def resolve(url: str, doc_id: str, collection: str = DEFAULT_COLLECTION) -> tuple[str | None, str | None]:
    """Return the doc_id that a URL leads to from a document, and its fragment; None where there is none.

    A path that begins with a slash is taken from the top of the collection.

    Examples
    --------
    >>> resolve("../a%20b.md?plain=1#top", "guides/setup.md")
    ('a b.md', 'top')
    >>> resolve("https://example.org/#top", "guides/setup.md")
    (None, 'top')
    """
    parts = _URL.fullmatch(url)
    path, fragment = (parts["path"], parts["fragment"]) if parts else (url, None)
    if _EXTERNAL.match(path):
        return None, fragment
    prefix = "" if collection == DEFAULT_COLLECTION else f"{collection}:"
    if not path:
        return doc_id, fragment
    folder = "" if path.startswith("/") else dirname(doc_id.removeprefix(prefix))
    return prefix + normpath(join(folder, unquote(path).lstrip("/"))), fragment


def plain(tokens: Sequence[Token]) -> str:
    """Return the text of inline Markdown without its marks; a picture gives its description."""
    parts = []
    for token in tokens:
        if token.children and token.type in {"inline", "image"}:
            parts.append(plain(token.children))
        elif token.type in {"text", "text_special", "code_inline"}:
            parts.append(token.content)
        elif token.type in {"softbreak", "hardbreak"}:
            parts.append(" ")
    return "".join(parts)


@cache
def _parser() -> MarkdownIt:
    """Return a parser that leaves addresses as they are written, and notes the span of each link in its block."""
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import autolink, link

    class AsWritten(MarkdownIt):
        def validateLink(self, url: str) -> bool:  # noqa: N802, ARG002 - the parser's names
            return True

        def normalizeLink(self, url: str) -> str:  # noqa: N802
            return url

    parser = AsWritten("commonmark")
    parser.core.ruler.disable("inline")  # most blocks have no link
    parser.inline.ruler.at("link", _with_span(link))
    parser.inline.ruler.at("autolink", _with_span(autolink))
    return parser


def _with_span(rule: Callable[[StateInline, bool], bool]) -> Callable[[StateInline, bool], bool]:
    def noting(state: StateInline, silent: bool) -> bool:
        start, known = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        if not silent:
            opened = next(token for token in state.tokens[known:] if token.type == "link_open")
            opened.meta["span"] = (start, state.pos)
        return True

    return noting


def _links_of(tokens: Sequence[Token]) -> Iterator[tuple[Token, str]]:
    """Yield the opening token and the label of every link of a block; CommonMark nests none in another."""
    for i, token in enumerate(tokens):
        if token.type == "link_open":
            close = next(j for j in range(i, len(tokens)) if tokens[j].type == "link_close")
            yield token, plain(tokens[i + 1 : close])


def _places(content: list[str], first: int, lines: list[str], starts: list[int]) -> Callable[[int], int]:
    """Return what turns an offset in the content of a block into one in the text.

    The lines of a block, from line ``first`` on, are those of the text without what stands before them, such as the
    mark of a quote; and without those lines at its beginning that hold nothing but blanks of any kind.
    """
    begins = [0, *accumulate(len(line) + 1 for line in content[:-1])]
    while content[0].strip() not in lines[first]:
        first += 1

    def place(offset: int) -> int:
        row = bisect_right(begins, offset) - 1
        written = content[row].strip()  # the parser writes tabs at the beginning of a line as spaces
        indent = len(content[row]) - len(content[row].lstrip())
        return starts[first + row] + lines[first + row].rfind(written) + offset - begins[row] - indent

    return place
