"""The links of a Markdown text: the position and the target document of each."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cache, lru_cache
from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from sqlrag.cancellation import checkpoint
from sqlrag.normalize import clean_name
from sqlrag.types import DEFAULT_COLLECTION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

    from sqlrag.types import Document

MARKDOWN = "text/markdown"

"""The MIME type of Markdown, whose links and blocks are known."""

# What a reader of ours converts to Markdown.
_CONVERTED = frozenset({
    "application/epub+zip",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "application/x-ipynb+json",
    "message/rfc822",
    "text/csv",
    "text/html",
    "text/tab-separated-values",
    "text/x-rst",
})  # fmt: skip

_CONVERTED_BY_OTHERS = "+markdown"
LINE_END = re.compile(r"\r\n?|\n")

"""The line ends that markdown-it counts, so that its line numbers can be turned into offsets."""

# What every link has: a destination in brackets, a definition elsewhere in the text, or an address in angle brackets.
_SIGN_OF_A_LINK = re.compile(r"\]\(|\]:|\[\[|<[^<>\s]+[:@]")

_MAY_LINK = re.compile(r"\]|<[^<>\s]+[:@]")

_URL = re.compile(r"(?P<path>[^?#]*)(?:\?[^#]*)?(?:#(?P<fragment>.*))?", re.DOTALL)

_EXTERNAL = re.compile(r"//|[A-Za-z][A-Za-z0-9+.-]*:")

# Tags of Liquid in the destination of a link, whose blanks and brackets CommonMark would not have there.
_LIQUID_TARGET = re.compile(r"(\](?:\(|:[ \t]+))((?:[^\s(){}<>]*(?:\{%[^{}\n]*%\}|\{\{[^{}\n]*\}\}))+)")

_NO_TARGET = " \t()<>\"'\\|"

_FILLED = str.maketrans(_NO_TARGET, "".join(chr(0xE010 + i) for i in range(len(_NO_TARGET))))

_AS_WRITTEN = {filled: ord(written) for written, filled in zip(_NO_TARGET, _FILLED.values(), strict=True)}

_LIQUID = re.compile(
    r"\{%-?\s*(?:link|post_url)\s+(?P<page>[^\s{}]+)\s*-?%\}"
    r"|\{\{-?\s*(?:(?P<quote>['\"])(?P<path>[^'\"{}]*)(?P=quote)|(?P<site>site\.(?:url|baseurl)))\s*(?:\|[^{}]*)?\}\}"
    r"|\{[{%][^{}]*\}+"
)


WIKILINK = re.compile(r"(!?)\[\[([^\[\]|\n]+?)(?:(\\?\|)([^\[\]\n]*))?\]\](?!\()")

"""A link of a vault of notes, such as ``[[note#heading|label]]``; ``![[note]]`` embeds it, ``[[1]](a.md)`` is none."""

TABLE_OF_CONTENTS = re.compile(r"\s*(?:\[\[_?toc_?\]\]|\[toc\])\s*", re.IGNORECASE)

"""A paragraph that stands for the table of contents of its page."""

_SIZE = re.compile(r"\d+(?:x\d+)?")

MEDIA = re.compile(
    r"\.(?:avif|bmp|gif|jpe?g|png|svg|webp|3gp|flac|m4a|mkv|mov|mp[34]|og[agv]|opus|wav|webm|base|canvas)$",
    re.IGNORECASE,
)

"""How a file ends that is a picture, a sound or a film, and no document."""


def is_markdown(mime: object) -> bool:
    """Return whether the stored text of a document of this MIME type is Markdown, as it was written or converted.

    It is for ``text/markdown``, for what our readers convert, and for every type that ends in ``+markdown``, with which
    a reader of another package says so: a file has to tell where that package is not installed, too.
    """
    return isinstance(mime, str) and (mime == MARKDOWN or mime in _CONVERTED or mime.endswith(_CONVERTED_BY_OTHERS))


class Link(NamedTuple):
    """A link: its span in the text, its label and its target.

    ``i_start`` and ``i_end`` count characters of the whole text. ``url`` is the destination as it is written, in a
    definition or in the link itself. ``target`` is the doc_id that it points to, whether the file has it or not;
    None where it points out of the collection, by a scheme such as https or by a host. ``note`` is the path or name of
    the note that a wikilink names, in lower case and without ``.md``; which document that is depends on all others, so
    its ``target`` is None.
    """

    i_start: int
    i_end: int
    label: str
    url: str
    target: str | None
    fragment: str | None
    note: str | None = None


def markdown_links(
    text: str, body_start: int = 0, doc_id: str = "", collection: str = DEFAULT_COLLECTION
) -> list[Link]:
    """Return the links of a Markdown document in the order of the text, as CommonMark counts them.

    Links that refer to a definition, addresses in angle brackets and wikilinks are among them; images, HTML and text
    in code are not.

    Parameters
    ----------
    text
        The whole document.
    body_start
        The offset after its front matter.
    doc_id, collection
        The document; links are resolved from its folder.

    Examples
    --------
    >>> [link] = markdown_links("See [filters](../search/filters.md#tags).", doc_id="guides/setup.md")
    >>> link.target, link.fragment, link.label
    ('search/filters.md', 'tags', 'filters')
    """
    if not _SIGN_OF_A_LINK.search(text, body_start):
        return []
    found = []
    parser = _parser()
    for part in blocks_of(text, body_start):
        environment: dict[str, object] = {"references": part.references}
        for block in part.tokens:
            if block.type == "inline" and block.map and _MAY_LINK.search(block.content):
                place = part.places(block.content, block.map[0])
                for token, label in _links_of(parser.inline.parse(block.content, parser, environment, [])):
                    start, end = token.meta["span"]
                    span = place(start), place(end - 1) + 1
                    url = _as_written(str(token.attrs["href"]))
                    if token.type == "wikilink":
                        found.append(_to_note(span, label, url, doc_id))
                    else:
                        found.append(Link(*span, _as_written(label), url, *resolve(url, doc_id, collection)))
    return found


def links_of(document: Document) -> Sequence[Link]:
    """Return the links of a document: those that it has already, none where it is no Markdown."""
    if document.links is not None:
        return document.links
    if not is_markdown(document.mime):
        return ()
    return markdown_links(document.text, document.body_start, document.doc_id, document.collection)


def resolve(url: str, doc_id: str, collection: str = DEFAULT_COLLECTION) -> tuple[str | None, str | None]:
    """Return the doc_id that a URL in a document points to, and its fragment; None where there is none.

    A path that begins with a slash is resolved from the root of the collection, and so is one that Liquid makes: of
    a page that a tag links to, and of a path in quotes. Behind another variable lies what only the site knows.

    Examples
    --------
    >>> resolve("../a%20b.md?plain=1#top", "guides/setup.md")
    ('a b.md', 'top')
    >>> resolve("{% link guides/filters.md %}#tags", "guides/setup.md")
    ('guides/filters.md', 'tags')
    >>> resolve("https://example.org/#top", "guides/setup.md")
    (None, 'top')
    """
    unknown = False
    if "{" in url:
        unknown = any(found.lastgroup is None for found in _LIQUID.finditer(url))
        url = _LIQUID.sub(_path_by_liquid, url)
    parts = _URL.fullmatch(url)
    path, fragment = (parts["path"], parts["fragment"]) if parts else (url, None)
    if unknown or _EXTERNAL.match(path):
        return None, fragment
    prefix = "" if collection == DEFAULT_COLLECTION else f"{collection}:"
    if not path:
        return doc_id, fragment
    folder = "" if path.startswith("/") else dirname(doc_id.removeprefix(prefix))
    return prefix + normpath(join(folder, clean_name(unquote(path)).lstrip("/"))), fragment


def _as_written(text: str) -> str:
    return text.translate(_AS_WRITTEN) if "{" in text else text


def _path_by_liquid(found: re.Match[str]) -> str:
    path = found["page"] or found["path"] or ""
    return path if not path or _EXTERNAL.match(path) else "/" + path.lstrip("/")


def label_of_wikilink(found: re.Match[str]) -> tuple[int, int]:
    """Return the place of what a reader sees of a wikilink: its label, else the name of the note or of the heading."""
    embedded, label = bool(found[1]), found[4]
    if label is not None and label.strip() and not (embedded and _SIZE.fullmatch(label.strip())):
        return found.span(4)
    start, end = found.span(2)
    name, _, heading = found[2].partition("#")
    if not name.strip():  # a heading of the same note
        return end - len(heading.lstrip("#^")), end
    name = name.rstrip()
    return start + name.rfind("/") + 1, start + len(name.removesuffix(".md"))


def _to_note(span: tuple[int, int], label: str, url: str, doc_id: str) -> Link:
    path, _, fragment = url.partition("#")
    name = clean_name(path.strip()).lower().removesuffix(".md").removesuffix(".markdown")
    note = re.sub(r"^(?:\.{0,2}/)+", "", name)
    return Link(*span, label, url, None if note else doc_id, fragment.strip() or None, note or None)


def _wikilink(state: StateInline, silent: bool) -> bool:
    """Read a wikilink; pictures and sounds that are embedded are none, nor is the place of a table of contents."""
    found = WIKILINK.match(state.src, state.pos, state.posMax)
    if not found:
        return False
    embedded = bool(found[1]) or (state.pos > 0 and state.src[state.pos - 1] == "!")
    if embedded and MEDIA.search(found[2].partition("#")[0].strip()):
        return False
    if TABLE_OF_CONTENTS.fullmatch(state.src):
        return False
    if not silent:
        token = state.push("wikilink", "", 0)
        token.attrs = {"href": found[2].strip()}
        token.content = state.src[slice(*label_of_wikilink(found))].strip()
        token.meta["span"] = (found.start() + len(found[1]), found.end())
    state.pos = found.end()
    return True


def plain(tokens: Sequence[Token]) -> str:
    """Return the text of inline Markdown without markup; an image gives its description."""
    parts = []
    for token in tokens:
        if token.children and token.type in {"inline", "image"}:
            parts.append(plain(token.children))
        elif token.type in {"text", "text_special", "code_inline", "wikilink"}:
            parts.append(token.content)
        elif token.type in {"softbreak", "hardbreak"}:
            parts.append(" ")
    return "".join(parts)


def parser_as_written() -> MarkdownIt:
    """Return a new parser that keeps URLs as they are written."""
    from markdown_it import MarkdownIt

    class AsWritten(MarkdownIt):
        def validateLink(self, url: str) -> bool:  # noqa: N802, ARG002 - the parser's names
            return True

        def normalizeLink(self, url: str) -> str:  # noqa: N802
            return url

    return AsWritten("commonmark")


@cache
def _parser() -> MarkdownIt:
    """Return a parser that records the span of each link in its block."""
    from markdown_it.rules_inline import autolink, link

    parser = parser_as_written()
    parser.inline.ruler.before("link", "wikilink", _wikilink)
    parser.inline.ruler.at("link", _with_span(link))
    parser.inline.ruler.at("autolink", _with_span(autolink))
    return parser


def _with_span(rule: Callable[[StateInline, bool], bool]) -> Callable[[StateInline, bool], bool]:
    def recording(state: StateInline, silent: bool) -> bool:
        start, known = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        if not silent:
            opened = next(token for token in state.tokens[known:] if token.type == "link_open")
            opened.meta["span"] = (start, state.pos)
        return True

    return recording


def _links_of(tokens: Sequence[Token]) -> Iterator[tuple[Token, str]]:
    """Yield the opening token and the label of every link of a block; CommonMark links do not nest."""
    for i, token in enumerate(tokens):
        if token.type == "wikilink":
            yield token, token.content
        elif token.type == "link_open":
            close = next(j for j in range(i, len(tokens)) if tokens[j].type == "link_close")
            yield token, plain(tokens[i + 1 : close])


_WINDOW = 1 << 18  # characters that are parsed at once: their tokens take a hundred times as much memory


class Part:
    """Some of the blocks of a Markdown document, with the places of their lines in the whole text.

    ``tokens`` are those of the blocks, ``lines`` their lines without line ends. ``references`` are the definitions of
    the whole document by label, ``definitions`` the (first, last) lines of those in this part, ``last`` excluded.
    """

    def __init__(self, tokens: list[Token], lines: list[str], starts: list[int], definitions: list[list[int]]) -> None:
        self.tokens, self.lines, self.definitions = tokens, lines, definitions
        self.references: dict[str, object] = {}
        self._starts = starts

    def start(self, line: int) -> int:
        """Return the offset in the text of the beginning of a line, the end of the part for one that is not there."""
        return self._starts[min(line, len(self._starts) - 1)]

    def end(self, line: int) -> int:
        """Return the offset of the end of a line, before its line end."""
        return self.start(line) + len(self.lines[line]) if line < len(self.lines) else self._starts[-1]

    def line_start(self, offset: int) -> int:
        """Return where the line begins that an offset lies in."""
        return self._starts[bisect_right(self._starts, offset) - 1]

    def begins(self, content: str, first: int) -> list[int]:
        """Return where each line of the content of a block begins in the text.

        The content has the lines of the text from line ``first`` on, without their prefixes, such as the mark of a
        quote, and without blank lines at its beginning. A line that the parser has indented begins before its text.
        """
        rows = content.split("\n")
        while rows[0].strip() not in self.lines[first]:
            first += 1
        found = []
        for line, row in enumerate(rows, first):
            written = row.strip()  # the parser writes tabs at the beginning of a line as spaces
            indent = len(row) - len(row.lstrip())
            found.append(self.start(line) + self.lines[line].rfind(written) - indent)
        return found

    def places(self, content: str, first: int) -> Callable[[int], int]:
        """Return a function that maps an offset in the content of a block to one in the text; see :meth:`begins`."""
        rows = [0, *(found.end() for found in re.finditer("\n", content))]
        begins = self.begins(content, first)

        def place(offset: int) -> int:
            row = bisect_right(rows, offset) - 1
            return begins[row] + offset - rows[row]

        return place


def blocks_of(text: str, body_start: int = 0) -> Iterator[Part]:
    """Yield the blocks of a Markdown document in parts of a limited size, as if all were parsed at once.

    A block ends where the next one begins, whatever follows; so a part ends before the last block that was parsed, and
    the next begins with it. That may be an item of a list or a block in a quote, whose list or quote then begins anew.
    Inline tokens are not parsed. The blocks of the last document of common size are kept, for those who ask for its
    visible text, its sections and its links one after another.
    """
    return iter(_last_blocks(text, body_start)) if len(text) - body_start <= _WINDOW else _parts(text, body_start)


@lru_cache(maxsize=1)
def _last_blocks(text: str, body_start: int) -> list[Part]:
    return list(_parts(text, body_start))


def _parts(text: str, body_start: int) -> Iterator[Part]:
    is_long = len(text) - body_start > _WINDOW and "]:" in text
    for part, found in _windows(text, body_start):
        part.references = references_of(text, body_start) if is_long else found
        yield part


@lru_cache(maxsize=1)
def references_of(text: str, body_start: int) -> dict[str, object]:
    """Return the definitions of a document by label, of which the first counts."""
    references: dict[str, object] = {}
    for _, found in _windows(text, body_start):
        references.update((label, one) for label, one in found.items() if label not in references)
    return references


def _windows(text: str, start: int) -> Iterator[tuple[Part, dict[str, object]]]:
    parser, size = _block_parser(), _WINDOW
    while start < len(text):
        end = len(text) if start + size >= len(text) else text.rfind("\n", start, start + size) + 1
        if end <= start:
            size *= 2
            continue
        body = text[start:end].replace("\0", "\ufffd")  # as the parser does, which changes no offset
        if "{%" in body or "{{" in body:
            body = _LIQUID_TARGET.sub(lambda found: found[1] + found[2].translate(_FILLED), body)
        lines = LINE_END.split(body)
        starts = [start, *(start + found.end() for found in LINE_END.finditer(body)), end]
        environment: dict[str, Any] = {}
        tokens = parser.parse(body, environment)
        first = {label: one["map"] for label, one in environment.get("references", {}).items()}
        definitions = [*first.values(), *(one["map"] for one in environment.get("duplicate_refs", ()))]
        if end < len(text):
            # The last block may go on behind the window.
            line = _last_border(tokens)
            if not line:
                size *= 2
                continue
            last = next(i for i, token in enumerate(tokens) if token.map and token.map[0] >= line)
            tokens, end = tokens[:last], starts[line]
            definitions = [found for found in definitions if found[0] < line]
            lines, starts = lines[:line], starts[: line + 1]
        found = {label: one for label, one in environment.get("references", {}).items() if one["map"][0] < len(lines)}
        yield Part(tokens, lines, starts, sorted(definitions)), found
        start, size = end, _WINDOW


def _last_border(tokens: Sequence[Token]) -> int:
    """Return the line of the last block that is the same where the parsing begins with it; 0 for the first line.

    Blocks inside an item of a list or an admonition are not: they are known by their indent.
    """
    line = items = depth = 0
    for token in tokens:
        if token.map and not items and token.level == depth:
            line = token.map[0]
        if token.type.startswith("list_item"):
            items += token.nesting
        elif token.type.startswith(("blockquote", "bullet_list", "ordered_list")):
            depth += token.nesting
    return line


@cache
def _block_parser() -> MarkdownIt:
    """Return a parser of blocks alone."""
    parser = parser_as_written()
    parser.core.ruler.disable("inline")
    # Called at each line, also within a paragraph, which a whole document may be.
    parser.block.ruler.before("code", "checkpoint", _checkpoint, {"alt": ["paragraph", "reference", "blockquote"]})
    parser.block.ruler.before("fence", "admonition", _admonition, {"alt": ["paragraph", "reference"]})
    parser.block.ruler.before("blockquote", "component", _component)
    return parser


ADMONITION = re.compile(r"(?:!!!|\?\?\?\+?)[ \t]+(?P<kind>[\w-]+)[^\n\"]*|===[!+]?[ \t]+(?=\")")

"""How an admonition or a tab of MkDocs begins, before its title in quotes."""

_INDENTING = re.compile(ADMONITION.pattern + r"|\[\^[^\]\s]+\]:|:[ \t]+(?=\S)")

_LEAST_INDENT = 4


def _admonition(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read an admonition or a tab of MkDocs, a note or a definition: a line, and indented Markdown below it."""
    begin, indent = state.bMarks[start] + state.tShift[start], state.blkIndent + _LEAST_INDENT
    if state.is_code_block(start) or not _INDENTING.match(state.src, begin, state.eMarks[start]):
        return False
    last = line = start
    while (line := line + 1) < end and (state.isEmpty(line) or state.sCount[line] >= indent):
        last = last if state.isEmpty(line) else line
    if last == start:
        return False
    if silent:
        return True
    state.push("paragraph_open", "p", 1).map = [start, start + 1]
    title = state.push("inline", "", 0)
    title.map, title.children = [start, start + 1], []
    title.info = "admonition" if ADMONITION.match(state.src, begin, state.eMarks[start]) else ""
    title.content = state.src[begin : state.eMarks[start]].rstrip()
    state.push("paragraph_close", "p", -1)
    known = state.blkIndent, state.lineMax
    state.blkIndent, state.lineMax = indent, last + 1
    state.level += 1
    state.md.block.tokenize(state, start + 1, last + 1)
    state.level -= 1
    state.blkIndent, state.lineMax = known
    state.line = last + 1
    return True


_COMPONENT = re.compile(
    r"</?[A-Z][\w.]*(?:\s[^<>\n]*)?>[ \t]*$|\{\{(?P<sign>[<%])[^{}\n]*$"
    r"|\{%(?!-?\s*(?:end)?(?:comment|raw)\b)[^{}\n]*%\}[ \t]*$",
    re.MULTILINE,
)

_LONGEST_SHORTCODE = 2_000


def _component(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read a line that is a tag of Liquid or of a component of MDX, whose content is Markdown, or a long shortcode."""
    begin = state.bMarks[start] + state.tShift[start]
    found = None if state.is_code_block(start) else _COMPONENT.match(state.src, begin, state.eMarks[start])
    if not found:
        return False
    last = start
    if found["sign"]:
        sign = ">}}" if found["sign"] == "<" else "%}}"
        close = state.src.find(sign, begin, begin + _LONGEST_SHORTCODE)
        while close >= 0 and last < end and state.eMarks[last] <= close:
            last += 1
        if close < 0 or last >= end:
            return False
    if not silent:
        state.push("html_block", "", 0).map = [start, last + 1]
        state.line = last + 1
    return True


def _checkpoint(*_: object) -> bool:
    """Let the parsing of a long document be cancelled; a rule that matches no line."""
    checkpoint()
    return False
