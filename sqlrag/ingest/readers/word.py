"""Word documents (.docx) as Markdown: headings by style, lists, tables, notes, links, equations as text.

Read from the XML itself: of what the converters at hand keep, mammoth loses equations and stops at pictures that are
links, and each of them parses parts whose sizes it has not checked.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from sqlrag.cancellation import checkpoint
from sqlrag.ingest.readers.packed import Package, attribute, child, local
from sqlrag.ingest.readers.writing import converted, escaped, fence, heading, link, paragraph, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

    from sqlrag.types import Document

_HEADING = re.compile(r"heading (\d)", re.IGNORECASE)

_CODE = re.compile(r"\bcode\b|preformatted|source ?code|listing|verbatim", re.IGNORECASE)

# What only wraps other elements; "ins" is text that was added while changes were tracked.
_WRAPPERS = {"sdt", "sdtContent", "smartTag", "customXml", "ins", "moveTo", "fldSimple", "dir", "bdo", "Choice"}

# Tracked deletions, instructions of fields, pronunciation, what is drawn where the first choice cannot be.
_SKIPPED = {"del", "moveFrom", "delText", "instrText", "delInstrText", "rt", "Fallback", "pPr", "rPr"}

_WHITE = {"tab": " ", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "ptab": " "}


class _Style(NamedTuple):
    """What a style of paragraphs means. ``level`` is that of a heading, 1-9, 0 where it is none."""

    level: int = 0
    is_title: bool = False
    is_code: bool = False
    numbering: tuple[str, int] | None = None


_PLAIN = _Style()


def read_word(data: bytes, doc_id: str, _: object = None) -> Document:
    """Return the text of a Word document as Markdown.

    Headers, footers, comments and deleted text are left out. The title and the author are those of its properties; a
    paragraph of the style "Title" stands above all headings.

    Raises
    ------
    DocumentError
        It is no Word document, asks for a password or is too large; status "empty" where it has no text.
    """
    package = Package(data, doc_id, "a Word document")
    with package.reasons():
        reader = _Reader(package, package.main_part())
        blocks = reader.document()
        properties = package.properties()
        if reader.title:
            properties["title"] = reader.title
    return converted(doc_id, ["\n\n".join(blocks)], properties)


class _Reader:
    def __init__(self, package: Package, main: str) -> None:
        self.package, self.main = package, main
        self.relations = package.relations(main)
        self.styles, self.usual = self._styles()
        self.formats = self._numbering()
        self.title = ""
        self._shift = 0  # of headings, below a title
        self._counts: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self._notes: list[tuple[str, str]] = []
        self._boxes: list[Element] = []  # frames of text inside the paragraph

    def document(self) -> list[str]:
        body = child(self.package.xml(self.main), "body")
        if body is None:
            raise ValueError("it has no body")
        styles = [self._style(p) for p in _unwrapped(body) if local(p.tag) == "p" and "".join(p.itertext()).strip()]
        self._shift = int(any(style.is_title for style in styles))
        return [*self._blocks(body), *self._noted()]

    def _blocks(self, container: Element) -> list[str]:
        blocks: list[str] = []
        code: list[str] = []
        was_item = False
        for element in _unwrapped(container):
            checkpoint()
            kind = local(element.tag)
            style = self._style(element) if kind == "p" else _PLAIN
            if kind == "p" and style.is_code and not style.level:
                code.append("".join(self._plain(element)))
                continue
            if code:
                blocks.append(fence("\n".join(code)))
                code.clear()
            if kind == "tbl":
                blocks += self._table(element)
            elif kind == "oMathPara":
                blocks.append(paragraph(escaped(_equation(element))))
            elif kind == "p":
                written, is_item = self._paragraph(element, style)
                if written and is_item and was_item:
                    blocks[-1] += "\n" + written
                else:
                    blocks.append(written)
                was_item = is_item if written else was_item
                while self._boxes:
                    blocks += self._blocks(self._boxes.pop(0))
            was_item = was_item and kind == "p"
        blocks.append(fence("\n".join(code)))
        return [block for block in blocks if block]

    def _paragraph(self, element: Element, style: _Style) -> tuple[str, bool]:
        """Return the paragraph, and whether it is an item of a list."""
        text = "".join(self._inline(element))
        if not text.strip():
            return "", False
        if style.is_title and not self.title:
            self.title = " ".join("".join(self._plain(element)).split())
        if style.is_title or style.level:
            return heading(style.level + self._shift, text), False
        text = paragraph(text)
        numbering = self._numbered(element) or style.numbering
        if numbering is None or numbering[0] == "0" or not text:
            return text, False
        return self._item(text, *numbering), True

    def _item(self, text: str, number: str, level: int) -> str:
        level = min(max(level, 0), 8)
        counts = self._counts[number]
        for deeper in [one for one in counts if one > level]:
            del counts[deeper]
        counts[level] = counts.get(level, 0) + 1
        is_bullet = self.formats.get((number, level), "bullet") in ("bullet", "none")
        marker = "- " if is_bullet else f"{counts[level]}. "
        indent = "   " * level
        return f"{indent}{marker}" + text.replace("\n", "\n" + indent + " " * len(marker))

    def _inline(self, element: Element) -> Iterator[str]:
        """Yield the escaped texts of a paragraph, with its links."""
        for part in element:
            kind = local(part.tag)
            if kind == "hyperlink":
                target = self.relations.get(attribute(part, "id"), "")
                yield link("".join(self._inline(part)), target)
            elif kind in ("footnoteReference", "endnoteReference"):
                self._notes.append((kind.removesuffix("Reference"), attribute(part, "id")))
                yield f"[^{len(self._notes)}]"
            elif kind == "r" and _is_hidden(part):
                continue
            elif kind == "t":
                yield escaped(part.text or "")
            elif kind in _WHITE:
                yield _WHITE[kind]
            elif kind in ("oMath", "oMathPara"):
                yield f" {escaped(_equation(part))} "
            elif kind == "docPr":
                yield escaped(attribute(part, "descr"))
            elif kind == "txbxContent":
                self._boxes.append(part)
            elif kind not in _SKIPPED:
                yield from self._inline(part)

    def _plain(self, element: Element) -> Iterator[str]:
        """Yield the texts of code or a title as they are."""
        for part in element:
            kind = local(part.tag)
            if kind == "t":
                yield part.text or ""
            elif kind in _WHITE:
                yield _WHITE[kind]
            elif kind not in _SKIPPED and kind != "txbxContent":
                yield from self._plain(part)

    def _table(self, element: Element) -> list[str]:
        rows = []
        whole: list[list[str]] = []
        for row in _unwrapped(element):
            if local(row.tag) != "tr":
                continue
            texts: list[str] = []
            for cell in _unwrapped(row):
                if local(cell.tag) != "tc":
                    continue
                properties = child(cell, "tcPr")
                merged = child(properties, "vMerge")
                blocks = [] if merged is not None and attribute(merged, "val") != "restart" else self._blocks(cell)
                whole.append(blocks)
                span = child(properties, "gridSpan")
                columns = attribute(span, "val") if span is not None else ""
                texts += [" ".join(blocks), *[""] * (min(int(columns or 1), 63) - 1)]
            rows.append(texts)
        if max(map(len, rows), default=0) < 2:  # a frame around text
            return [block for blocks in whole for block in blocks]
        return [table(rows)]

    def _noted(self) -> Iterator[str]:
        """Yield the footnotes and endnotes that were referred to."""
        known = {}
        for kind in ("footnote", "endnote"):
            name = self.package.related(self.main, f"{kind}s")
            root = self.package.optional(name) if name else None
            for note in root if root is not None else ():
                known[kind, attribute(note, "id")] = note
        for number, key in enumerate(list(self._notes), 1):
            if key in known:
                text = " ".join(self._blocks(known[key]))
                yield f"[^{number}]: {text}"

    def _style(self, element: Element) -> _Style:
        properties = child(element, "pPr")
        named = child(properties, "pStyle")
        style = self.styles.get(attribute(named, "val"), _PLAIN) if named is not None else self.usual
        outline = child(properties, "outlineLvl")
        if outline is not None and attribute(outline, "val").isdigit():
            level = int(attribute(outline, "val")) + 1
            style = style._replace(level=level if level <= 9 else 0)
        return style

    def _numbered(self, element: Element) -> tuple[str, int] | None:
        return _numbering_of(child(element, "pPr"))

    def _styles(self) -> tuple[dict[str, _Style], _Style]:
        """Return the styles of paragraphs by id, and that of a paragraph that names none."""
        name = self.package.related(self.main, "styles")
        root = self.package.optional(name) if name else None
        elements = {attribute(e, "styleId"): e for e in (root if root is not None else ()) if local(e.tag) == "style"}
        styles = {style_id: _style_of(style_id, elements) for style_id in elements}
        usual = next(
            (
                one
                for one, e in elements.items()
                if attribute(e, "default") in ("1", "true") and attribute(e, "type") == "paragraph"
            ),
            "",
        )
        return styles, styles.get(usual, _PLAIN)

    def _numbering(self) -> dict[tuple[str, int], str]:
        """Return the format of numbers, such as "bullet" or "decimal", by list and level."""
        name = self.package.related(self.main, "numbering")
        root = self.package.optional(name) if name else None
        levels: dict[str, list[tuple[int, str]]] = {}
        found = {}
        for element in root if root is not None else ():
            if local(element.tag) == "abstractNum":
                levels[attribute(element, "abstractNumId")] = [
                    (_whole(attribute(level, "ilvl")), attribute(form, "val"))
                    for level in element
                    if local(level.tag) == "lvl" and (form := child(level, "numFmt")) is not None
                ]
            elif local(element.tag) == "num":
                abstract = child(element, "abstractNumId")
                for level, written in levels.get(attribute(abstract, "val"), ()) if abstract is not None else ():
                    found[attribute(element, "numId"), level] = written
        return found


def _unwrapped(container: Element) -> Iterator[Element]:
    for element in container:
        kind = local(element.tag)
        if kind in _WRAPPERS or kind == "AlternateContent":
            yield from _unwrapped(element)
        elif kind not in _SKIPPED:
            yield element


def _style_of(style_id: str, elements: dict[str, Element]) -> _Style:
    """Return what a style means, by its own properties and those of the styles that it is based on."""
    level: int | None = None
    is_title = is_code = False
    numbering: tuple[str, int] | None = None
    seen: set[str] = set()
    while style_id in elements and style_id not in seen:
        seen.add(style_id)
        element = elements[style_id]
        named = child(element, "name")
        name = attribute(named, "val") if named is not None else ""
        properties = child(element, "pPr")
        outline = child(properties, "outlineLvl")
        if level is None:
            match = _HEADING.fullmatch(name)
            if match:
                level = int(match[1])
            elif outline is not None:
                level = (_whole(attribute(outline, "val")) + 1) % 10
        is_title = is_title or name.lower() == "title"
        is_code = is_code or _CODE.search(name) is not None
        numbering = numbering or _numbering_of(properties)
        based = child(element, "basedOn")
        style_id = attribute(based, "val") if based is not None else ""
    return _Style(level or 0, is_title, is_code, numbering)


def _numbering_of(properties: Element | None) -> tuple[str, int] | None:
    numbered = child(properties, "numPr")
    number, level = child(numbered, "numId"), child(numbered, "ilvl")
    if number is None:
        return None
    return attribute(number, "val"), _whole(attribute(level, "val")) if level is not None else 0


def _is_hidden(run: Element) -> bool:
    vanish = child(run, "rPr", "vanish")
    return vanish is not None and attribute(vanish, "val") not in ("0", "false")


def _equation(element: Element) -> str:
    """Return the letters and signs of an equation in the order in which they are written."""
    return " ".join(part.text for part in element.iter() if local(part.tag) == "t" and part.text)


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
