"""HTML as Markdown: what a browser shows of the body, in one pass whose time is linear, however tags are nested.

A parser that builds a tree as HTML 5 demands needs quadratic time for nested tags (38 seconds for 100,000 of them), and
``html.parser`` for tags that do not end; so the tags are found here, and only those are kept track of that make a
difference to the text: headings, lists, quotes, code, tables, links.
"""

from __future__ import annotations

import codecs
import html
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sqlrag.cancellation import watched
from sqlrag.errors import DocumentError
from sqlrag.ingest.readers.encoding import decode
from sqlrag.ingest.readers.text import FrontMatter, kind_of, split_front_matter
from sqlrag.ingest.readers.writing import (
    address,
    bracketed,
    code_span,
    converted,
    escaped,
    fence,
    heading,
    link,
    list_item,
    paragraph,
    table,
)
from sqlrag.normalize import normalize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlrag.types import Document

_OPENING = re.compile(r"<(?:!--|[!?]|/?[A-Za-z])")

_NAME = re.compile(r"[^\s/>]+")

# An attribute may have ">" in its quotes. Possessive, so that a tag without an end costs one pass.
_TAG_END = re.compile(r"""(?:[^>=]|=\s*+(?:"[^"]*+"|'[^']*+')?+)*+>""")

_ATTRIBUTE = re.compile(r"""([^\s/>=][^\s/>=]*+)(?:\s*+=\s*+("[^"]*+"|'[^']*+'|[^\s>]*+))?+""")

_CHARSET = re.compile(rb"""<(?:meta\s[^>]*?charset|\?xml\s[^>]*?encoding)\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)

_LIQUID = re.compile(r"\{%[^{}]*%\}|\{\{[^{}]*\}\}")

_WELL_KNOWN = {
    **dict.fromkeys(("iso8859-1", "ascii"), "cp1252"),
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "iso8859-9": "cp1254",
    **dict.fromkeys(("utf-16", "utf-16-le", "utf-16-be", "utf-32"), "utf-8"),  # it would not be legible here
}

"""What browsers take for an encoding that a page names."""

_SPACE = re.compile(r"[ \t\n\r\f]+")

_SPACES = re.compile(" {2,}")

_WORD = re.compile(r"\w")

_RAW = {"script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes"}

_VOID = {
    *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr", "param"),
}

# What is not shown, or is no text of the page: menus, controls, what stands in for a picture.
_HIDDEN = {
    *("nav", "script", "style", "template", "noscript", "iframe", "noembed", "noframes", "canvas", "video", "audio"),
    *("select", "datalist", "button", "dialog", "annotation", "annotation-xml", "defs", "desc", "rp", "rt"),
}

_NOT_DISPLAYED = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)

_BLOCKS = {
    *("address", "article", "aside", "body", "center", "dd", "details", "dialog", "dir", "div", "dl", "dt", "fieldset"),
    *("figcaption", "figure", "footer", "form", "header", "hgroup", "hr", "html", "legend", "main", "menu", "nav", "p"),
    *("search", "section", "summary", "svg", "tbody", "tfoot", "thead", "head", "optgroup", "option", "textarea"),
}

_HEADINGS = {f"h{level}": level for level in range(1, 7)}

_LISTS = {"ul", "ol", "menu", "dir"}

_CELLS = {"td", "th"}

_FRAMES = {*_HEADINGS, *_LISTS, *_CELLS, "li", "blockquote", "pre", "table", "tr", "caption"}

# What begins inside one of these ends it, unless one of the others is open between them.
_ENDED_BY = {
    "li": ({"li"}, _LISTS | _CELLS | {"table", "blockquote"}),
    "tr": ({"tr", "caption"}, {"table"}),
    "td": (_CELLS, {"tr", "table"}),
    "th": (_CELLS, {"tr", "table"}),
    **dict.fromkeys(_HEADINGS, (set(_HEADINGS), set(_FRAMES) - set(_HEADINGS))),
}

_CODE = {"code", "tt", "samp", "kbd"}

_TEXTS_OF_PICTURES = {"text", "tspan", "title", "desc"}

_MAX_DEPTH = 32  # of lists, quotes and tables; what is deeper is text of the deepest

_MAX_SPAN = 50

_LANGUAGE = re.compile(r"(?:^|[\s-])(?:lang(?:uage)?-|highlight-source-|sourceCode )([\w+#-]+)|^highlight-([\w+#]+)")

_META = {"author": "author", "description": "description", "keywords": "keywords", "date": "date"}


class Page(NamedTuple):
    """An HTML page: its blocks of Markdown, and what its head says: title, author, description, keywords, date."""

    text: str
    metadata: dict[str, str]


def read_html(data: bytes, doc_id: str, _: object = None) -> Document:
    """Return the text of an HTML file as Markdown.

    A page with front matter is a template of Jekyll: tags and variables of Liquid are no text of it.

    Raises
    ------
    DocumentError
        The bytes are not text; status "empty" where the page shows no text.
    """
    kind = kind_of(data)
    if kind and kind != "an HTML page":
        raise DocumentError(doc_id, f"the content is not HTML: it is {kind}; give the file its right suffix")
    text, warnings = page_text(data, doc_id)
    front = split_front_matter(normalize(text), doc_id) if text.lstrip("\ufeff").startswith("---") else FrontMatter()
    if front.body_start:
        text = _LIQUID.sub(" ", normalize(text)[front.body_start :])
    page = html_to_markdown(text, xml=doc_id.lower().endswith(".xhtml") or text.startswith("<?xml"))
    metadata = {**page.metadata, **front.metadata}
    return replace(converted(doc_id, [page.text], metadata, warnings=(*warnings, *front.warnings)), tags=front.tags)


def html_to_markdown(text: str, *, xml: bool = False, shift: int = 0) -> Page:
    """Return what a browser shows of a page, as Markdown.

    Everything visible of the body is kept, in order; menus (``nav``), controls, scripts and what is hidden are left
    out. A table is a table unless it only lays out the page: one column, or headings, code or tables inside.

    Parameters
    ----------
    text
        A whole page or a part of one; any text is read.
    xml
        Whether ``<tag/>`` ends what it begins, as in XHTML.
    shift
        How many levels lower headings are written.
    """
    writer = _Writer(shift)
    for kind, name, rest in watched(_tokens(text, xml=xml)):
        if kind == "text":
            writer.text(name)
        elif kind == "start":
            writer.start(name, rest)
        else:
            writer.end(name)
    return Page(writer.finish(), writer.metadata)


def page_text(data: bytes, doc_id: str) -> tuple[str, tuple[str, ...]]:
    """Return the text by what the page says of its encoding; where it is valid UTF-8, that is what it is."""
    named = _CHARSET.search(data[:2048])
    try:
        encoding = codecs.lookup(named[1].decode("ascii")).name if named else ""
    except LookupError:
        encoding = ""
    encoding = _WELL_KNOWN.get(encoding, encoding)
    if not encoding or data.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return decode(data, doc_id)
    try:
        return data.decode(encoding if encoding.startswith(("iso2022", "hz", "utf-7")) else "utf-8"), ()
    except UnicodeDecodeError:
        pass
    text = data.decode(encoding, "replace")
    wrong = text.count("\ufffd")
    # A page that names a wrong encoding is guessed like one that names none.
    if 10 * wrong > len(data) - len(data.decode("ascii", "ignore")):
        return decode(data, doc_id)
    return text, (f"{doc_id}: {wrong} wrong {encoding} sequences were replaced by U+FFFD",) if wrong else ()


def _tokens(text: str, *, xml: bool) -> Iterator[tuple[str, str, str]]:
    """Yield ("text", text, ""), ("start", name, attributes) and ("end", name, "")."""
    at = 0
    while (opening := _OPENING.search(text, at)) is not None:
        if opening.start() > at:
            yield "text", html.unescape(text[at : opening.start()]), ""
        sign = opening.group()
        if sign == "<!--":
            # "<!-->" is a whole comment.
            at = _after(text, "-->", opening.start() + 2)
        elif text.startswith("<![CDATA[", opening.start()):
            at = _after(text, "]]>", opening.end())
            yield "text", text[opening.end() + 7 : max(opening.end() + 7, at - 3)], ""
        elif sign in ("<!", "<?"):
            at = _after(text, ">", opening.end())
        else:
            named = _NAME.match(text, opening.end() - 1)
            begin = named.end() if named else opening.end()
            ended = _TAG_END.match(text, begin)
            if ended is None:  # the page ends within a tag
                return
            at = ended.end()
            name = text[opening.end() - 1 : begin].lower()
            if xml:  # elsewhere a colon is a part of the name, as in <o:p> of Word
                name = name.rpartition(":")[2]
            if sign.startswith("</"):
                yield "end", name, ""
                continue
            rest = text[begin : at - 1]
            yield "start", name, rest
            if xml and rest.endswith("/") and name not in _VOID:
                yield "end", name, ""
            elif name in _RAW:
                close = re.compile(f"</{name}", re.IGNORECASE).search(text, at)
                end = close.start() if close else len(text)
                yield "text", html.unescape(text[at:end]) if name in ("title", "textarea") else text[at:end], ""
                at = end
    if at < len(text):
        yield "text", html.unescape(text[at:]), ""


def _after(text: str, sign: str, start: int) -> int:
    end = text.find(sign, start)
    return len(text) if end < 0 else end + len(sign)


def _attributes(rest: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in _ATTRIBUTE.findall(rest):
        bare = value[1:-1] if value[:1] in ("'", '"') and value[-1:] == value[:1] else value
        found.setdefault(name.lower(), html.unescape(bare))
    return found


class _Frame:
    """An open element: the blocks that are finished, the line that is not, and what its kind adds."""

    def __init__(self, tag: str, attributes: dict[str, str]) -> None:
        self.tag = tag
        self.attributes = attributes
        self.blocks: list[str] = []
        self.inline: list[str] = []
        self.rows: list[list[_Frame]] = []  # of a table
        self.is_layout = attributes.get("role") in ("presentation", "none")
        self.number = _whole(attributes.get("start"), 1)  # of the next item

    def flush(self) -> None:
        """Finish the paragraph."""
        if self.inline:
            block = paragraph(_SPACES.sub(" ", "".join(self.inline)))
            if block:
                self.blocks.append(block)
            self.inline.clear()


class _Writer:
    """Writes Markdown from tags and texts."""

    def __init__(self, shift: int) -> None:
        self.shift = shift
        self.frames = [_Frame("", {})]
        self.metadata: dict[str, str] = {}
        self._ignored: Counter[str] = Counter()  # open elements that are too deep
        self._hidden: list[str] = []  # open elements, the outermost hidden
        self._hidden_names: Counter[str] = Counter()
        self._links: list[tuple[_Frame, int, int, str]] = []
        self._code: tuple[_Frame, int, int] | None = None
        self._in_title = False
        self._pictures = 0  # open <svg>, whose titles are not that of the page

    @property
    def top(self) -> _Frame:
        return self.frames[-1]

    def finish(self) -> str:
        while len(self.frames) > 1:
            self._close()
        self.top.flush()
        return "\n\n".join(self.top.blocks)

    def text(self, text: str) -> None:
        if self._in_title:
            self.metadata.setdefault("title", text)
        elif not self._hidden:
            if self.top.tag == "pre":
                self.top.inline.append(text)
            else:
                text = _SPACE.sub(" ", text)
                self.top.inline.append(text if self._code else escaped(text))

    def start(self, name: str, rest: str) -> None:
        attributes = _attributes(rest) if rest else {}
        self._pictures += name == "svg"
        if self._hidden:
            self._start_hidden(name)
        elif name == "title" and not self._pictures:
            self._in_title = True
        elif name == "meta":
            self._note(attributes)
        elif name not in _VOID and _is_hidden(name, attributes):
            if name in _BLOCKS:
                self.top.flush()
            self._start_hidden(name)
        elif name in _FRAMES:
            self._open(name, attributes)
        elif name in _BLOCKS:
            self._break()
        else:
            self._inline(name, attributes)

    def end(self, name: str) -> None:
        self._pictures -= name == "svg" and self._pictures > 0
        if name == "title":
            self._in_title = False
        if self._hidden and self._end_hidden(name):
            return
        if name in _FRAMES:
            self._end_frame(name)
        elif name in _BLOCKS:
            self._break()
        elif name == "a":
            self._end_link()
        elif name in _CODE:
            self._end_code()

    def _start_hidden(self, name: str) -> None:
        if name not in _VOID:
            self._hidden.append(name)
            self._hidden_names[name] += 1

    def _end_hidden(self, name: str) -> bool:
        """Return whether the element that ends is hidden: else it is around what was hidden, which ends, too."""
        if not self._hidden_names[name]:
            # A closing tag that fits nothing does not end what has to be closed.
            if name in _FRAMES and self._hidden[0] in ("p", "li", "td", "th", "tr", "dt", "dd"):
                self._hidden.clear()
                self._hidden_names.clear()
                return False
            return True
        while self._hidden:
            last = self._hidden.pop()
            self._hidden_names[last] -= 1
            if last == name:
                break
        return True

    def _note(self, attributes: dict[str, str]) -> None:
        name = _META.get(attributes.get("name", "").lower())
        if name:
            self.metadata.setdefault(name, attributes.get("content", ""))

    def _break(self) -> None:
        """End a paragraph; a heading, a cell of a table or code is one."""
        if self.top.tag in _HEADINGS:
            self.top.inline.append(" ")
        elif self.top.tag != "pre":
            self.top.flush()

    def _inline(self, name: str, attributes: dict[str, str]) -> None:
        inline = self.top.inline
        if name == "br":
            inline.append(" " if self.top.tag in _HEADINGS else "\n")
        elif self.top.tag == "pre":
            if name in _CODE:
                self.top.attributes.setdefault("class", "")
                self.top.attributes["class"] += " " + attributes.get("class", "")
        elif name == "a":
            self._links.append((self.top, len(self.top.blocks), len(inline), attributes.get("href", "").strip()))
        elif name in _CODE and self._code is None:
            self._code = (self.top, len(self.top.blocks), len(inline))
        elif name == "img":
            self._image(attributes)
        elif self._pictures and name in _TEXTS_OF_PICTURES:  # each has a place of its own
            inline.append(" ")

    def _image(self, attributes: dict[str, str]) -> None:
        words = escaped(" ".join((attributes.get("alt") or attributes.get("title") or "").split()))
        source = address(attributes.get("src", ""))
        if words and source and not self._links and not self._code:
            self.top.inline.append(f"![{bracketed(words)}]({source})")
        elif words:
            self.top.inline.append(f" {words} ")

    def _end_link(self) -> None:
        if not self._links:
            return
        frame, blocks, at, target = self._links.pop()
        if frame is not self.top or len(frame.blocks) != blocks or self._code or frame.tag == "pre":
            return  # a link around blocks is their text
        label = "".join(frame.inline[at:])
        words = label.strip()
        if frame.tag in _HEADINGS and target.startswith("#") and not _WORD.search(words):
            words = label = ""  # the sign at the end of a heading that links to itself
        # The mark of a footnote is no part of the word before it.
        before = " " if target.startswith("#") and words.isdigit() else ""
        frame.inline[at:] = [before, link(label, target)]

    def _end_code(self) -> None:
        if self._code is None:
            return
        frame, blocks, at = self._code
        if frame is self.top and len(frame.blocks) == blocks:
            label = "".join(frame.inline[at:])
            frame.inline[at:] = [
                label[: len(label) - len(label.lstrip())],
                code_span(label),
                label[len(label.rstrip()) :],
            ]
        self._code = None

    def _open(self, name: str, attributes: dict[str, str]) -> None:
        if name in _ENDED_BY:
            tags, borders = _ENDED_BY[name]
            self._end_until(tags, borders)
        if len(self.frames) >= _MAX_DEPTH:
            self._ignored[name] += 1
            self._break()
            return
        if name in _CELLS and self.top.tag != "tr":
            if self.top.tag != "table":
                self._break()
                return
            self._open("tr", {})
        if name in ("tr", "caption") and self.top.tag != "table":
            self._break()
            return
        if self.top.tag == "pre" or self.top.tag in _HEADINGS:
            self._break()
            if self.top.tag == "pre":
                return
        else:
            self.top.flush()
        self._code = None
        self.frames.append(_Frame(name, attributes))
        if name == "tr":
            self.frames[-2].rows.append([])

    def _end_frame(self, name: str) -> None:
        if self._ignored[name]:
            self._ignored[name] -= 1
            self._break()
            return
        if name in _HEADINGS and self.top.tag in _HEADINGS:
            self._close()
            return
        borders = set() if name in ("table", "tr", "blockquote") else {"table"} if name in _CELLS else _CELLS
        if not self._end_until({name}, borders):
            self._break()

    def _end_until(self, tags: set[str], borders: set[str]) -> bool:
        """Close the innermost of ``tags`` and all inside it; False where one of ``borders`` comes first, or none is."""
        for depth in range(len(self.frames) - 1, 0, -1):
            tag = self.frames[depth].tag
            if tag in tags:
                while len(self.frames) > depth:
                    self._close()
                return True
            if tag in borders:
                return False
        return False

    def _close(self) -> None:
        """Close the innermost element and write it into the one around it."""
        frame = self.frames.pop()
        parent = self.top
        self._code = None
        if frame.tag == "pre":
            code = "".join(frame.inline)
            written = fence(code.replace("\r\n", "\n"), _language(frame.attributes))
            _mark_layout(parent)
        else:
            frame.flush()
            written = self._written(frame, parent)
        if written:
            parent.blocks.append(written)

    def _written(self, frame: _Frame, parent: _Frame) -> str:
        blocks = frame.blocks
        if frame.tag in _HEADINGS:
            _mark_layout(parent)
            return heading(_HEADINGS[frame.tag] + self.shift, " ".join(blocks).replace("\\#", "#"))
        if frame.tag in _CELLS:
            self.frames[-2].rows[-1].append(frame)
            self.frames[-2].is_layout |= frame.is_layout
            return ""
        if frame.tag == "table":
            _mark_layout(parent)
            return _table(frame)
        if not blocks:
            return ""
        if frame.tag == "li":
            marker = "- "
            if parent.tag == "ol":
                number = parent.number = _whole(frame.attributes.get("value"), parent.number)
                marker = f"{number}. "
                parent.number += 1
            return list_item(marker, blocks)
        if frame.tag in _LISTS:
            return "\n".join(blocks)
        text = "\n\n".join(blocks)
        return "> " + text.replace("\n", "\n> ") if frame.tag == "blockquote" else text


def _is_hidden(name: str, attributes: dict[str, str]) -> bool:
    if name in _HIDDEN:
        return name != "dialog" or "open" not in attributes
    return (
        ("hidden" in attributes and attributes["hidden"] != "until-found")
        or attributes.get("role") == "navigation"
        or "katex-html" in attributes.get("class", "")  # an equation that stands before it, once more
        or ("style" in attributes and _NOT_DISPLAYED.search(attributes["style"]) is not None)
    )


def _language(attributes: dict[str, str]) -> str:
    """Return the language of a block of code as the highlighters name it; "" if none does."""
    classes = attributes.get("class", "").strip()
    found = _LANGUAGE.search(classes)
    if found:
        return found[1] or found[2]
    return attributes.get("lang", "") if "code" in classes.split() else ""


def _mark_layout(frame: _Frame) -> None:
    if frame.tag in _CELLS:
        frame.is_layout = True


def _table(frame: _Frame) -> str:
    caption = frame.blocks
    if frame.is_layout or max((len(row) for row in frame.rows), default=0) < 2:
        return "\n\n".join([*caption, *(block for row in frame.rows for cell in row for block in cell.blocks)])
    return "\n\n".join([*caption, table(_grid(frame.rows))])


def _grid(rows: list[list[_Frame]]) -> Iterator[list[str]]:
    """Yield the texts of each row, with blank ones where a cell of another column or row reaches."""
    reaching: dict[int, int] = {}  # rows that a cell above still covers, by column
    allowed = 1000 + 4 * sum(map(len, rows))  # a small page must not make a large table
    for row in rows:
        texts: list[str] = []
        for cell in row:
            while allowed > 0 and reaching.get(len(texts), 0):
                reaching[len(texts)] -= 1
                texts.append("")
                allowed -= 1
            columns = min(_whole(cell.attributes.get("colspan"), 1), _MAX_SPAN) if allowed > 0 else 1
            lines = _whole(cell.attributes.get("rowspan"), 1) if allowed > 0 else 1
            for column in range(max(1, columns)):
                if lines > 1:
                    reaching[len(texts)] = lines - 1
                texts.append("" if column else " ".join(cell.blocks))
                allowed -= bool(column)
        yield texts


def _whole(text: str | None, otherwise: int) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 6 else otherwise
