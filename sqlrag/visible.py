"""The text of a Markdown document as a reader of its page sees it, character by character at the same places."""

from __future__ import annotations

import html
import re
from bisect import bisect_left, bisect_right
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from sqlrag.links import (
    ADMONITION,
    MARKDOWN,
    MEDIA,
    TABLE_OF_CONTENTS,
    WIKILINK,
    Part,
    blocks_of,
    is_markdown,
    label_of_wikilink,
    parser_as_written,
)
from sqlrag.types import PAD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

_HEADER_CHARACTERS = 300


class Span(NamedTuple):
    """A stretch of the text, and what a reader sees in its place: "", a blank or the character of an entity."""

    start: int
    end: int
    shown: str = ""


def visible(shown: str) -> str:
    """Return a text of :func:`shown_text`, or a part of it, without the soft hyphens that fill the places of markup."""
    return shown.replace(PAD, "")


class Table(NamedTuple):
    """A table: where its header row, its first other row and what follows it begin."""

    start: int
    body: int
    end: int


class Page(NamedTuple):
    """A document as its reader sees it, as :func:`shown_text` says, and the tables in it, in order."""

    shown: str
    tables: tuple[Table, ...] = ()


def shown_slice(page: Page, start: int, end: int) -> str:
    """Return the part of a page that is shown for the chunk ``text[start:end]``.

    It begins with as many characters as the chunk has. Where that begins behind the first row of a table, the header
    row of the table follows on a line of its own, 300 characters of it at most; :func:`in_order` is for readers.
    """
    return page.shown[start:end] + header_row(page, start)


def in_order(shown: str, characters: int) -> str:
    """Return what is shown of a chunk of so many characters with the header row of its table above it, not below."""
    return f"{shown[characters:].lstrip()}\n{shown[:characters]}" if shown[characters:].strip() else shown


def header_row(page: Page, start: int) -> str:
    """Return a line end and the header row of the table that a chunk continues which begins at ``start``, else ""."""
    i = bisect_right(page.tables, (start,)) - 1
    if i < 0 or not page.tables[i].body < start < page.tables[i].end:
        return ""
    header = " ".join(visible(page.shown[page.tables[i].start : page.tables[i].body]).split())
    return "\n" + header[:_HEADER_CHARACTERS].rstrip() if header else ""


@lru_cache(maxsize=1)
def page_of(text: str, body_start: int = 0, *, written: bool = True) -> Page:
    """Return a Markdown document as its reader sees it; the last one is kept, for those who ask one after another.

    ``written`` is whether an author wrote it as Markdown: braces and imports are those of MDX and Liquid then. In what
    was converted from another format they are text.
    """
    if not _SIGNS.search(text, body_start):
        return Page(text)
    found = _Page(text, body_start, written)
    # Encoded, in one place that grows: parts of a long page between what is freed would keep that from others.
    page, done = bytearray(), 0
    for spans in found.spans():
        pieces = []
        for start, end, shown in _ordered(spans):
            start = max(start, done)
            if end > start:
                pieces += [text[done:start], shown[: end - start].ljust(end - start, PAD)]
                done = end
        page += "".join(pieces).encode("utf-8", "surrogatepass")
    page += text[done:].encode("utf-8", "surrogatepass")
    return Page(page.decode("utf-8", "surrogatepass"), tuple(found.tables))


def page_by_type(text: str, body_start: int, mime: str) -> Page:
    """Return a document of any type as its reader sees it: without its markup where its text is Markdown."""
    return page_of(text, body_start, written=mime == MARKDOWN) if is_markdown(mime) else Page(text)


def shown_text(text: str, body_start: int = 0) -> str:
    r"""Return a Markdown document as a reader of its page sees it, as long as ``text``; pure and linear.

    Markup gives no words: HTML and component tags with their attributes, comments, ``style`` and ``script``,
    expressions and imports of MDX, Liquid, anchors and attribute lists, footnote marks, targets of links, reference
    definitions, rules, and the marks of headings, quotes, emphasis and code. The words between tags stay, and so do
    the attributes ``alt`` and ``title``. Code stays as it is written, and so does what only looks like a tag, such as
    ``List<String>``. A comment, ``style`` or ``script`` that is not closed hides no text.

    What is not shown is filled with soft hyphens, so that every character that is has the offset that it has in
    ``text``; a blank comes first where the words on both sides are to stay two. An entity gives its character.

    Parameters
    ----------
    text
        The whole document.
    body_start
        The offset after its front matter, which is left as it is.

    Examples
    --------
    >>> visible(shown_text('# Pumps {#p}\n\nCheck <b class="x">valve</b>&nbsp;A [now](a.md).')).split()
    ['Pumps', 'Check', 'valve', 'A', 'now.']
    """
    return page_of(text, body_start).shown


# What any markup has: a text without one of these is shown as it is.
_SIGNS = re.compile(
    r"[\\`*_\[\]<>&#{}~^|]|:::|!!!|\?\?\?|==|:[a-z]+-|%%|\)=|^ {0,3}(?:-+|=+)[ \t]*$|^(?:import|export)\b",
    re.MULTILINE,
)

_INLINE_SIGNS = re.compile(r"[\\`*_\[\]<&{~^]|==|:::|:[a-z]+-|%%|\)=")

# Elements that stand within a word or a line; the others separate words.
_INLINE = frozenset(re.findall(r"\w+", """
    a abbr acronym b bdi bdo big cite code data del dfn em font i ins kbd mark nobr q rp rt ruby s samp small span
    strike strong sub sup time tt u var wbr
"""))  # fmt: skip

_ELEMENTS = _INLINE | frozenset(re.findall(r"\w+", """
    address animate applet area article aside audio base basefont blink blockquote body br button canvas caption
    center circle col colgroup datalist dd defs desc details dialog dir div dl dt ellipse embed fieldset
    figcaption figure filter footer form frame frameset g h1 h2 h3 h4 h5 h6 head header hgroup hr html iframe
    image img input label legend li line lineargradient link main map marker marquee mask math menu menuitem meta
    meter nav noframes noscript object ol optgroup option output p param path pattern picture polygon polyline pre
    progress radialgradient rect script search section select slot source stop style summary svg symbol table
    tbody td template text textarea textpath tfoot th thead title tr track tspan ul use video
"""))  # fmt: skip

# Their content is no text of the page.
_RAW = ("script", "style")

# The common form of a tag; what it misses is read attribute by attribute. It never runs over a "<".
_TAG = re.compile(
    r"<(/?)([A-Za-z][A-Za-z0-9._:-]*)((?:\s+[A-Za-z_:@#*.][A-Za-z0-9_.:@#-]*(?:=(?:\"[^\"<]*\"|'[^'<]*'|[^\s\"'=<>`{]+))?)*)"
    r"\s*(/?)>"
)

_TAG_NAME = re.compile(r"</?([A-Za-z][A-Za-z0-9._:-]*)?")

_ATTRIBUTE = re.compile(r"(?:\s+|(?<=[\"']))([^\s\"'<>/={}`]+)(\s*=\s*)?")

_UNQUOTED = re.compile(r"[^\s\"'=<>`{]+")

_SPREAD = re.compile(r"\s*\{")

_TAG_END = re.compile(r"\s*/?>")

_MOST_ATTRIBUTES = 64

_CLOSED = re.compile(r"</([A-Za-z][A-Za-z0-9._:-]*)")

_TEXT_ATTRIBUTES = frozenset({"alt", "title"})

_NAMED = re.compile(r"""\s(alt|title)\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)

# Such as the sign behind each heading, whose title says what it is for.
_TO_ITS_PAGE = re.compile(r"<a\s[^<>]*href=[\"']#", re.IGNORECASE)

_ENTITY = re.compile(r"&(?:#(?:[xX][0-9a-fA-F]{1,6}|[0-9]{1,7})|[A-Za-z][A-Za-z0-9]{1,31});")

# Declarations and processing instructions; a comment has a rule of its own.
_DECLARATION = re.compile(r"<![A-Za-z][^<>]*>|<!\[CDATA\[|\]\]>|<\?[^<>]*\?>")

_DEFINITION = re.compile(r"(?P<mark>[ \t>]*\[(?P<label>(?:[^\]\\]|\\.)*)\]:)")

_QUOTED_TITLE = re.compile(r"[\"'(]([^\"'()\n]*)[\"')][ \t]*$", re.MULTILINE)

# Liquid (not ${{ … }}), comments of MDX, attribute lists of kramdown, Pandoc and Python-Markdown. None runs over a
# brace: linear.
_BRACED = re.compile(
    r"\{%[^{}]*%\}|(?<!\$)\{\{[^{}]*\}\}|\{/\*[^{}]*\*/\}|\{::?[^{}\n]*\}"
    r"|\{(?:\.|\#(?![^\w-]))[^{}\n]*\}"
    r"|\{[\w:.+-]+\}(?=`)"  # a role of MyST
    r"|(?<![^\W_])\{[ \t]*(?:[.\#][\w-]|data-|[\w-]+=[\"']|(?:align|class|height|id|loading|width)=)[^{}\n]*\}"
)

# Icons, comments and names of blocks of Obsidian, labels of MyST.
_UNSEEN = re.compile(
    r":(?:fontawesome|material|octicons|simple)-[a-z0-9-]+:|(?<![%\w])%%[^%]+%%(?![%\w])|^\([\w:.-]+\)=$"
    r"|(?:^|(?<=[ \t]))\^(?=[0-9-]*[A-Za-z])[A-Za-z0-9-]{3,}[ \t]*$",
    re.MULTILINE,
)

_SAID_BY_SHORTCODE = re.compile(r"""(?<=\s)(?:alt|caption|title)=(?:"([^"]*)"|'([^']*)')""")

_LIQUID_BLOCK = re.compile(r"\{%-?\s*(end)?(comment|raw)\s*-?%\}")

# The anchor at the end of a heading in AsciiDoc's way, as Nextra writes it.
_BRACKET_ANCHOR = re.compile(r"[ \t]*\[#[\w.:-]+\][ \t]*$")

_LOADS = re.compile(
    r"import\s+(?:[\w*{][^'\"]*?\sfrom\s*)?(['\"])[^'\"\n]+\1[ \t]*(?:;?[ \t]*(?:\n|$)|;[ \t]*(?=(?:import|export)\s))"
    r"|export\s+(?:default|const|let|var|function|async|class|\*|\{)[^\0]*"
)

_MDX = re.compile(
    r"^(?:import\s+[\w*{][^'\"\n]*\sfrom\s*['\"]|export\s+(?:default|const|let|function)\b)", re.MULTILINE
)

_LITERAL = re.compile(r"""\{\s*(["'`])([^"'`{}]*)\1\s*\}""")

_RULE_OF_TABLE = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*")

_CELL_END = re.compile(r"(?<!\\)\|")

_QUOTE_MARKS = re.compile(r"(?:[ \t]*>)+[ \t]?")

_FENCE = re.compile(r"`{3,}|~{3,}")

_INFO_TITLE = re.compile(r"""\btitle=(?:"([^"\n]*)"|'([^'\n]*)')""")

_CONTAINER = re.compile(r"^[ \t]*:{3,}[ \t]*(?:[\w-]+|\{[\w-]+\})?", re.MULTILINE)

# Markdown that MDX and kramdown read inside a block of HTML, within one line.
_IN_HTML = re.compile(
    r"!?\[(?P<label>[^\[\]\n]+)\]\([^\s()<>]*(?:[ \t]+\"(?P<title>[^\"\n]*)\")?\)"
    r"|\*\*(?=\S)(?P<strong>[^*\n]*[^*\s])\*\*"
)

_CODE_IN_HTML = re.compile(r"<(/?)(?:pre|code|kbd|samp|textarea)\b", re.IGNORECASE)

_NOTE_MARK = re.compile(r"\[\^[^\]\s]+\]:?")

_UNRESOLVED = re.compile(r"(?<![\w\])])\[([^\[\]\n]{1,200})\]\[(?:[A-Za-z][^\[\]\n]{0,100})?\]")

_HIGHLIGHTED = re.compile(r"(?<![=\w!<>])==(?=[^\s=])[^=\n]*(?<!\s)==(?![=\w])")

_CALLOUT = re.compile(r"\[!([\w-]+)\][+-]?")

_FILLER = "\ue000"

# In place of braces, which are punctuation to the rules of emphasis.
_EDGE = "\u2e31"

_MARKS = re.compile(r"(?:[>#]+[ \t]*)+")


def _ordered(spans: list[Span]) -> list[Span]:
    return sorted(spans, key=lambda span: (span.start, -span.end))


def _around(start: int, end: int, kept: list[tuple[int, int]], shown: str = "") -> Iterator[Span]:
    """Yield what is hidden between two offsets but for some stretches, which stay words of their own."""
    if not kept:
        yield Span(start, end, shown)
        return
    for first, last in kept:
        yield Span(start, first, " ")
        start = last
    yield Span(start, end, " ")


def _hidden_braces(braced: re.Match[str], shown: str = " ") -> Iterator[Span]:
    """Yield what is hidden of a pair of braces: all but what a shortcode says of a picture."""
    kept = []
    if braced[0].startswith(("{{<", "{{%")):
        said = _SAID_BY_SHORTCODE.finditer(braced.string, *braced.span())
        kept = [one.span(one.lastindex or 0) for one in said if one[one.lastindex or 0]]
    return _around(*braced.span(), kept, shown)


def table_row(rows: Sequence[str]) -> int | None:
    """Return which line of a paragraph is the header row of a table; None where it holds none."""
    for i, row in enumerate(rows[1:]):
        if "-" in row and "|" in rows[i] and _RULE_OF_TABLE.fullmatch(row):
            cells = [
                len(_CELL_END.findall(line.strip().removeprefix("|").removesuffix("|"))) for line in (rows[i], row)
            ]
            if cells[0] == cells[1]:
                return i
    return None


def _columns(row: str) -> int:
    return len(_CELL_END.findall(row.strip().removeprefix("|").removesuffix("|")))


def _placed(content: str, begins: list[int]) -> Callable[[int, int], tuple[int, int]]:
    """Return a function that maps a stretch of a block's content, which is not empty, to one of the text."""
    rows = [0, *(found.end() for found in re.finditer("\n", content))]

    def place(start: int, end: int) -> tuple[int, int]:
        first, last = bisect_right(rows, start) - 1, bisect_right(rows, end - 1) - 1
        return begins[first] + start - rows[first], begins[last] + end - rows[last]

    return place


class _Page:
    """One document and the spans of it that are markup."""

    def __init__(self, text: str, body_start: int, written: bool) -> None:
        self.text, self.body_start, self.written = text, body_start, written
        self.found: list[Span] = []
        self.tables: list[Table] = []
        self.quoted_to = 0
        self.hidden_to = 0  # up to here lies the content of a style, a script or a comment
        self.finder = _Finder(text)

    def spans(self) -> Iterator[list[Span]]:
        """Yield the spans of each part of the document, in any order."""
        for part in blocks_of(self.text, self.body_start):
            self.found = []
            self._definitions(part)
            for before, token in zip([None, *part.tokens], part.tokens, strict=False):
                if not token.map:
                    continue
                if token.type == "fence":
                    self._fence(part, token)
                elif token.type == "html_block":
                    start, end = part.start(token.map[0]), part.start(token.map[1])
                    self._html(max(start, self.hidden_to), end)
                elif token.type == "hr":
                    self._hide_line(part, token.map[0])
                elif token.type == "blockquote_open":
                    self._quote(part, *token.map)
                elif token.type == "inline":
                    if token.info:
                        self._title(part, token.map[0])
                    self._paragraph(part, token, before.markup if before and before.type == "heading_open" else "")
            yield self.found

    @cached_property
    def is_mdx(self) -> bool:
        """Whether its braces hold expressions."""
        return self.written and _MDX.search(self.text, self.body_start) is not None

    def _hide(self, start: int, end: int, shown: str = "") -> None:
        if end > start:
            self.found.append(Span(start, end, shown))

    def _hide_line(self, part: Part, line: int) -> None:
        self._hide(part.start(line), part.end(line), " ")

    def _quote(self, part: Part, first: int, last: int) -> None:
        """Hide the marks of a quote that stand in a line alone; others go with the lines that they are before."""
        for line in range(first, last) if part.start(last) > self.quoted_to else ():
            written = self.text[part.start(line) : part.end(line)]
            if ">" in written and not written.strip("> \t"):
                self._hide_line(part, line)
        self.quoted_to = max(self.quoted_to, part.start(last))

    def _title(self, part: Part, line: int) -> None:
        """Hide the marks of an admonition, and its kind where it has a title."""
        start, end = part.start(line), part.end(line)
        found = ADMONITION.search(self.text, start, end)
        if found:
            close = self.text.rfind('"', found.end(), end)
            kept = (found.end() + 1, close) if close > found.end() else found.span("kind")
            for span in _around(start, end, [kept] if kept[1] > kept[0] else []):
                self._hide(*span)

    @cached_property
    def closed(self) -> frozenset[str]:
        """The names that have a closing tag."""
        return frozenset(found[1] for found in _CLOSED.finditer(self.text, self.body_start))

    def _definitions(self, part: Part) -> None:
        """Hide the definitions of references but for their titles; a definition of a footnote keeps its text."""
        for first, last in part.definitions:
            start, end = part.start(first), part.start(last)
            mark = _DEFINITION.match(self.text, start, end)
            if mark is None:
                continue
            if mark["label"].startswith("^"):
                self._hide(start, mark.end(), " ")
                continue
            title = _QUOTED_TITLE.search(self.text, mark.end(), end)
            kept = [title.span(1)] if title and self.text[mark.end() : title.start()].strip() else []
            for span in _around(start, end - (self.text[end - 1 : end] == "\n"), kept, " "):
                self._hide(*span)

    def _fence(self, part: Part, token: Token) -> None:
        """Hide the lines of a code fence; its title stays, and its content but for the marks of quotes."""
        assert token.map  # noqa: S101 - the caller has looked
        first, last = token.map
        start, end = part.start(first), part.end(first)
        opened = _FENCE.search(self.text, start, end)
        start = start if opened is None or ">" in self.text[start : opened.start()] else opened.start()
        kept = [found.span(found.lastindex or 0) for found in _INFO_TITLE.finditer(self.text, start, end)]
        for span in _around(start, end, kept, " "):
            self._hide(*span)
        close = _FENCE.search(self.text, part.start(last - 1), part.end(last - 1))
        if last - first > 1 and close and not self.text[close.end() : part.end(last - 1)].strip():
            self._hide_line(part, last - 1)
            last -= 1
        if token.level:
            contents = token.content.split("\n")
            for line, content in zip(range(first + 1, last), contents, strict=False):
                begin = part.start(line)
                prefix = self.text[begin : part.end(line)]
                prefix = prefix[: prefix.rfind(content.strip())] if content.strip() else prefix
                marks = _QUOTE_MARKS.match(prefix)
                if marks:
                    self._hide(begin, begin + marks.end(), " ")

    def _paragraph(self, part: Part, token: Token, heading: str) -> None:
        """Find the markup of a paragraph, a table or a heading, whose mark is given."""
        assert token.map  # noqa: S101 - the caller has looked
        first, last = token.map
        if part.start(last) <= self.hidden_to:
            return
        content = token.content
        begin, end = part.start(first), part.end(last - 1)
        if not content.strip():
            if heading:
                self._hide(begin, end, " ")
            return
        if heading and not heading.startswith("#"):
            self._hide_line(part, last)  # the line below the title
        begins = part.begins(content, first)
        rows = content.split("\n")
        for row, written in zip(rows, begins, strict=True):
            written += len(row) - len(row.lstrip())
            start = part.line_start(written)
            prefix = self.text[start:written]
            for found in _MARKS.finditer(prefix if heading or ">" in prefix else ""):
                stop = start + found.end()
                self._hide(start + found.start(), stop, " " if stop < written else "")
        if heading.startswith("#"):
            self._hide(begins[-1] + len(rows[-1].rstrip()), end)
        at = table_row(rows)
        if at is not None:
            self._hide(begins[at + 1], begins[at + 1] + len(rows[at + 1].rstrip()), " ")
            body = begins[at + 2] if at + 2 < len(begins) else end
            self.tables.append(Table(part.line_start(begins[at]), part.line_start(body), part.start(last)))
            for row, written in zip(rows[at:], begins[at:], strict=True):
                self._inline(row, [written], part)
            rows, begins = rows[:at], begins[:at]
            if not rows:
                return
            content = "\n".join(rows)
        if token.level == 1 and content.startswith(("import", "export")):
            content = self._loads(content, begins)
        self._inline(content, begins, part, bool(heading))

    def _loads(self, content: str, begins: list[int]) -> str:
        """Hide the imports and exports of MDX that a paragraph begins with; return it with fillers in their place."""
        done = 0
        while self.written and done < len(content) and (found := _LOADS.match(content, done)):
            done = found.end()
        if not done:
            return content
        self._hide(*_placed(content, begins)(0, done - content[:done].endswith("\n")), " ")
        return _FILLER * done + content[done:]

    def _inline(self, content: str, begins: list[int], part: Part, heading: bool = False) -> None:
        """Find the markup inside a line or a paragraph, whose lines begin where ``begins`` says."""
        if not _INLINE_SIGNS.search(content):
            return
        hidden: list[Span] = []
        if "{" in content and self.written:
            hidden += self._braced(content, heading)
        if heading and (anchor := _BRACKET_ANCHOR.search(content)) and content[: anchor.start()].strip():
            hidden.append(Span(*anchor.span()))
        if any(sign in content for sign in (":", "%%", ")=", "^")):
            hidden += [Span(*found.span(), " ") for found in _UNSEEN.finditer(content)]
        if TABLE_OF_CONTENTS.fullmatch(content):
            hidden.append(Span(0, len(content), " "))
        for found in _HIGHLIGHTED.finditer(content) if "==" in content else ():
            hidden += [Span(found.start(), found.start() + 2), Span(found.end() - 2, found.end())]
        if ":::" in content:
            hidden += [Span(*found.span(), " ") for found in _CONTAINER.finditer(content)]
        content = _filled(content, hidden)
        if "]" not in content:  # many brackets that nothing closes cost the parser much
            content = content.replace("[", _FILLER)
        recorder = _Recorder(self, _Finder(content))
        environment: dict[str, object] = {"references": part.references, "recorder": recorder}
        parser = _inline_parser()
        parser.inline.parse(content, parser, environment, [])
        code = sorted(recorder.code)
        starts = [start for start, _ in code]
        place = _placed(content, begins)
        for start, end, shown in [*recorder.found, *(one for one in hidden if not _inside(one.start, code, starts))]:
            if end > start:
                self._hide(*place(start, end), shown)

    def _braced(self, content: str, heading: bool) -> list[Span]:
        """Return what stands in braces and is no text."""
        found = [
            span
            for one in _BRACED.finditer(content)
            for span in _hidden_braces(one, "" if one[0][1] in ":.#/" else " ")
        ]
        opened, shown = None, []
        for one in _LIQUID_BLOCK.finditer(content):
            if not one[1]:
                opened = opened or one
            elif opened and one[2] == opened[2]:
                if one[2] == "raw":
                    shown.append((opened.end(), one.start()))
                else:
                    found.append(Span(opened.start(), one.end(), " "))
                opened = None
        starts = [start for start, _ in shown]
        found = [span for span in found if not _inside(span.start, shown, starts)]
        if heading:  # MDX of an older day: {/*id*/}; blanks before an anchor go with it
            end = len(content.rstrip())
            found = [Span(len(content[: span.start].rstrip()), span.end) if span.end >= end else span for span in found]
        if self.is_mdx:
            known = {span.start for span in found}
            for start, end in _braces(content):
                if start in known:
                    continue
                literal = _LITERAL.fullmatch(content, start, end)
                kept = [literal.span(2)] if literal and literal[2] else []
                found += _around(start, end, kept, " ")
        return _ordered(found)

    def _html(self, start: int, end: int) -> None:
        """Find the markup of a stretch of HTML."""
        if self.written and self.text.find("{", start, end) >= 0:
            for one in _BRACED.finditer(self.text, start, end):
                self.found += _hidden_braces(one)
        position, is_code = start, False
        while position < end:
            at = self.text.find("<", position, end)
            self._entities(position, end if at < 0 else at)
            if self.written and not is_code:
                self._in_html(position, end if at < 0 else at)
            if at < 0:
                return
            code = _CODE_IN_HTML.match(self.text, at, end)
            is_code = not code[1] if code else is_code
            spans, position, reaches = self.tag(self.finder, at, end)
            self.hidden_to = max(self.hidden_to, reaches)
            self.found += spans
            position = max(position, reaches)

    def _in_html(self, start: int, end: int) -> None:
        """Find the Markdown between two tags."""
        for pattern in (_CONTAINER, _UNSEEN):
            self.found += [Span(*one.span(), " ") for one in pattern.finditer(self.text, start, end)]
        for one in _IN_HTML.finditer(self.text, start, end):
            kept = [one.span(name) for name in ("label", "title", "strong") if one[name]]
            shown = " " if one["title"] else ""
            self.found += [span._replace(shown=shown) for span in _around(*one.span(), kept)]

    def _entities(self, start: int, end: int) -> None:
        for one in _ENTITY.finditer(self.text, start, end):
            self.found.append(Span(*one.span(), html.unescape(one[0]).replace("\xa0", " ")))

    def tag(self, finder: _Finder, at: int, end: int) -> tuple[list[Span], int, int]:
        """Return what is hidden of the tag, comment or declaration at ``at``, the offset after it, and that again.

        The last number is 0 but for a comment, a style or a script, which may reach beyond ``end``.
        """
        text = finder.text
        if text.startswith("<!--", at):
            close = finder.next("-->", at + 4)
            if close < 0:
                return [Span(at, at + 4, " ")], at + 4, 0
            return [Span(at, close + 3, " ")], close + 3, close + 3
        declaration = _DECLARATION.match(text, at, end)
        if declaration:
            return [Span(*declaration.span(), " ")], declaration.end(), 0
        found = _read_tag(text, at, end)
        if found is None or not self._is_tag(found):
            return [], at + 1, 0
        name = found.name.lower()
        if name in _RAW and not found.closing and not found.empty:
            close = finder.next(f"</{name}", found.end)
            if close >= 0:
                after = text.find(">", close, close + 256)
                after = after + 1 if after >= 0 else close + len(name) + 2
                return [Span(at, after, " ")], after, after
        kept = [] if _TO_ITS_PAGE.match(text, at, found.end) else found.kept
        return list(_around(at, found.end, kept, "" if name in _INLINE else " ")), found.end, 0

    def _is_tag(self, found: _Tag) -> bool:
        """Whether it is a tag, and not a word in angle brackets such as a type or a placeholder."""
        name = found.name
        if name.lower() in _ELEMENTS or not name or "-" in name or found.closing or found.empty:
            return True
        return found.has_values or name in self.closed


class _Finder:
    """Finds the next of a few words in a text, which is searched once for each, in any order of questions."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._places: dict[str, list[int]] = {}

    def next(self, word: str, start: int) -> int:
        """Return where a word, in any case, comes next from ``start`` on; -1 where it does not."""
        if word not in self._places:
            found = re.finditer(re.escape(word), self.text, re.IGNORECASE)
            self._places[word] = [one.start() for one in found]
        places = self._places[word]
        i = bisect_left(places, start)
        return places[i] if i < len(places) else -1


class _Tag(NamedTuple):
    name: str
    end: int
    closing: bool
    empty: bool
    has_values: bool
    kept: list[tuple[int, int]]


def _read_tag(text: str, at: int, end: int) -> _Tag | None:
    """Read the tag at an offset; None where there is none."""
    found = _TAG.match(text, at, end)
    if found:
        kept = []
        if found[3]:
            for one in _NAMED.finditer(found[3]):
                first, last = one.span(2) if one[2] is not None else one.span(3)
                if last > first:
                    kept.append((found.start(3) + first, found.start(3) + last))
        return _Tag(found[2], found.end(), bool(found[1]), bool(found[4]), "=" in found[3], kept)
    head = _TAG_NAME.match(text, at, end)
    if head is None or (head[1] is None and not text.startswith((">", "/>"), head.end())):
        return None
    closing = text.startswith("</", at)
    position, kept, has_values = head.end(), [], False
    for _ in range(_MOST_ATTRIBUTES):
        done = _TAG_END.match(text, position, end)
        if done:
            return _Tag(head[1] or "", done.end(), closing, "/" in done[0], has_values, kept)
        attribute = _ATTRIBUTE.match(text, position, end)
        if attribute is None:
            spread = _SPREAD.match(text, position, end)
            close = _closing_brace(text, spread.end() - 1, end) if spread else -1
            if close < 0:
                return None
            position = close
            continue
        position = attribute.end()
        if not attribute[2]:
            continue
        has_values = True
        sign = text[position : position + 1]
        if sign in ('"', "'"):
            close = text.find(sign, position + 1, end)
            if close < 0:
                return None
            if attribute[1].lower() in _TEXT_ATTRIBUTES and close > position + 1:
                kept.append((position + 1, close))
            position = close + 1
        elif sign == "{":
            position = _closing_brace(text, position, end)
            if position < 0:
                return None
        else:
            value = _UNQUOTED.match(text, position, end)
            if value is None:
                return None
            position = value.end()
    return None


_LONGEST_EXPRESSION = 2_000

_DEEPEST_EXPRESSION = 20

_BRACE = re.compile(r"[{}]")

_BRACE_OF_CODE = re.compile(r"""[{}]|"[^"\n]*"|'[^'\n]*'|`[^`]*`""")


def _closing_brace(text: str, at: int, end: int) -> int:
    """Return the offset after the brace that closes the one at ``at``; -1 where there is none near by."""
    depth = 0
    for found in _BRACE_OF_CODE.finditer(text, at, min(end, at + _LONGEST_EXPRESSION)):
        depth += (found[0] == "{") - (found[0] == "}")
        if not depth:
            return found.end()
        if depth > _DEEPEST_EXPRESSION:
            break
    return -1


def _braces(text: str) -> list[tuple[int, int]]:
    """Return the outermost pairs of braces of a text."""
    found: list[tuple[int, int]] = []
    opened: list[int] = []
    for one in _BRACE.finditer(text):
        if one[0] == "{":
            opened.append(one.start())
        elif opened:
            start = opened.pop()
            while found and found[-1][0] > start:
                found.pop()
            found.append((start, one.end()))
    return found


def _filled(content: str, spans: list[Span]) -> str:
    """Return a text with letters in the place of some stretches, so that they are part of no other markup."""
    parts, done = [], 0
    for start, end, _ in _ordered(spans):
        start = max(start, done)
        if end > start:
            filler = _FILLER * (end - start)
            if end - start > 1 and content[start] == "{":
                filler = _EDGE + filler[2:] + _EDGE
            parts += [content[done:start], filler]
            done = end
    return "".join([*parts, content[done:]])


def _inside(offset: int, spans: list[tuple[int, int]], starts: list[int]) -> bool:
    i = bisect_right(starts, offset) - 1
    return i >= 0 and offset < spans[i][1]


class _Recorder:
    """What the rules of the parser find in one line or paragraph; ``begin`` is where its text does, after blanks."""

    def __init__(self, page: _Page, finder: _Finder) -> None:
        self.page, self.finder = page, finder
        self.begin = len(finder.text) - len(finder.text.lstrip())
        self.found: list[Span] = []
        self.code: list[tuple[int, int]] = []
        self.delimiters: list[tuple[Token, int]] = []


@cache
def _inline_parser() -> MarkdownIt:
    """Return a parser of inline Markdown whose rules record the places of markup."""
    from markdown_it.rules_inline import autolink, backtick, emphasis, entity, escape, link, strikethrough

    parser = parser_as_written().enable("strikethrough")
    rules = parser.inline.ruler
    rules.at("escape", _recording(escape, _escape))
    rules.at("backticks", _recording(backtick, _code))
    rules.at("emphasis", _recording(emphasis.tokenize, _delimiters))
    rules.at("strikethrough", _recording(strikethrough.tokenize, _delimiters))
    rules.at("link", _recording(link, _link))
    rules.at("image", _image)
    rules.at("autolink", _recording(autolink, _autolink))
    rules.at("entity", _recording(entity, _entity))
    rules.at("html_inline", _html_inline)
    rules.before("link", "brackets", _brackets)
    rules.after("link", "unresolved", _unresolved)
    parser.inline.ruler2.before("fragments_join", "emphasis_marks", _emphasis_marks)
    return parser


def _recording(
    rule: Callable[[StateInline, bool], bool], record: Callable[[_Recorder, StateInline, int, int], None]
) -> Callable[[StateInline, bool], bool]:
    """Return a rule that also records what it has found."""

    def recording(state: StateInline, silent: bool) -> bool:
        start, known = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        recorder = state.env.get("recorder")
        if not silent and isinstance(recorder, _Recorder):
            record(recorder, state, start, known)
        return True

    return recording


def _escape(recorder: _Recorder, state: StateInline, start: int, known: int) -> None:  # noqa: ARG001
    if state.src[start + 1 : start + 2] not in "\\`*{}[]()#+-.!_>~|<\"'&\n$%,/:;=?@^":
        return
    recorder.found.append(Span(start, start + 1))


def _code(recorder: _Recorder, state: StateInline, start: int, known: int) -> None:
    token = state.tokens[-1] if len(state.tokens) > known else None
    if token is None or token.type != "code_inline":
        return
    marks = len(token.markup)
    recorder.found += [Span(start, start + marks), Span(state.pos - marks, state.pos)]
    recorder.code.append((start, state.pos))


def _delimiters(recorder: _Recorder, state: StateInline, start: int, known: int) -> None:
    for token in state.tokens[known:]:
        if token.content and not token.content.strip("*_~") and start < state.pos:
            recorder.delimiters.append((token, start))
            start += len(token.content)


def _emphasis_marks(state: StateInline) -> None:
    """Record the marks that have become emphasis, which their tokens tell before texts are joined."""
    recorder = state.env.get("recorder")
    if not isinstance(recorder, _Recorder):
        return
    for token, start in recorder.delimiters:
        if not token.content or token.type != "text":
            length = 2 if token.type in {"s_open", "s_close"} else 1
            recorder.found.append(Span(start, start + length))
    recorder.delimiters.clear()


def _title_of(state: StateInline, title: object, start: int) -> list[tuple[int, int]]:
    """Return the place of the title of a link that ends at the parser's position."""
    if not isinstance(title, str) or not title:
        return []
    at = state.src.rfind(title, start, state.pos)
    return [(at, at + len(title))] if at >= 0 else []


def _link(recorder: _Recorder, state: StateInline, start: int, known: int) -> None:
    opened = next((token for token in state.tokens[known:] if token.type == "link_open"), None)
    end = _end_of_label(state, start)
    recorder.found.append(Span(start, start + 1))
    title = opened.attrs.get("title") if opened else None
    recorder.found += _around(end, state.pos, _title_of(state, title, end))


def _end_of_label(state: StateInline, start: int) -> int:
    """Return the end of the label of the link or image at ``start``, whose rule has just matched."""
    position, limit = state.pos, state.posMax
    end = int(state.md.helpers.parseLinkLabel(state, start, False))
    state.pos, state.posMax = position, limit
    return end if start < end < position else start + 1


def _image(state: StateInline, silent: bool) -> bool:
    """Read an image; its description is parsed by a state of its own, which must not record."""
    from markdown_it.rules_inline import image

    start, recorder = state.pos, state.env.pop("recorder", None)
    try:
        found = image(state, silent)
    finally:
        if recorder is not None:
            state.env["recorder"] = recorder
    if found and not silent and isinstance(recorder, _Recorder):
        end = _end_of_label(state, start + 1)
        recorder.found.append(Span(start, start + 2, " "))
        recorder.found += _around(end, state.pos, _title_of(state, state.tokens[-1].attrs.get("title"), end), " ")
    return found


def _autolink(recorder: _Recorder, state: StateInline, start: int, known: int) -> None:  # noqa: ARG001
    recorder.found += [Span(start, start + 1), Span(state.pos - 1, state.pos)]


def _entity(recorder: _Recorder, state: StateInline, start: int, known: int) -> None:  # noqa: ARG001
    written = state.src[start : state.pos]
    if len(written) > 1:
        recorder.found.append(Span(start, state.pos, html.unescape(written).replace("\xa0", " ")))


def _html_inline(state: StateInline, silent: bool) -> bool:
    """Read a tag; a rule in place of the parser's, that knows components and what only looks like a tag."""
    if state.src[state.pos] != "<":
        return False
    recorder = state.env.get("recorder")
    if not isinstance(recorder, _Recorder):
        return False
    spans, end, _ = recorder.page.tag(recorder.finder, state.pos, state.posMax)
    if not spans or end > state.posMax or (end == state.pos + 4 and state.src.startswith("<!--", state.pos)):
        return False
    if not silent:
        state.push("html_inline", "", 0).content = state.src[state.pos : end]
        recorder.found += spans
    state.pos = end
    return True


def _begins_line(src: str, at: int) -> bool:
    while at and src[at - 1] != "\n" and src[at - 1].isspace():
        at -= 1
    return not at or src[at - 1] == "\n"


def _brackets(state: StateInline, silent: bool) -> bool:
    """Read wikilinks, marks of footnotes and of callouts."""
    src, start = state.src, state.pos
    if src[start] not in "[!":
        return False
    recorder = state.env.get("recorder")
    if not isinstance(recorder, _Recorder):
        return False
    found = WIKILINK.match(src, start, state.posMax)
    if found:
        label = label_of_wikilink(found)
        spans = [Span(start, label[0]), Span(label[1], found.end())]
        if found[1] and label[1] <= found.end(2) and MEDIA.search(found[2].partition("#")[0].strip()):
            spans = [Span(start, found.end(), " ")]  # a picture of which the author says nothing
    else:
        found = _NOTE_MARK.match(src, start, state.posMax)
        if found:  # a colon after it is the text's, unless the note itself follows
            is_note = found[0].endswith(":") and _begins_line(src, start)
            spans = [Span(start, found.end() - (found[0].endswith(":") and not is_note))]
        else:
            found = _CALLOUT.match(src, start, state.posMax) if start <= recorder.begin else None
            if found is None:
                return False
            spans = [Span(start, found.start(1)), Span(found.end(1), found.end())]
    if not silent:
        state.push("html_inline", "", 0)
        recorder.found += spans
    state.pos = found.end()
    return True


def _unresolved(state: StateInline, silent: bool) -> bool:
    """Read a reference whose definition is elsewhere, as plugins and templates add it; its label is read on."""
    found = _UNRESOLVED.match(state.src, state.pos, state.posMax) if state.src[state.pos] == "[" else None
    recorder = state.env.get("recorder")
    if found is None or not isinstance(recorder, _Recorder):
        return False
    if not silent:
        recorder.found += [Span(state.pos, state.pos + 1), Span(found.end(1), found.end())]
        state.pending += "["
    state.pos += 1
    return True
