"""PowerPoint presentations (.pptx) as Markdown: a page for each slide, its title as heading, its notes as a quote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlrag.cancellation import watched
from sqlrag.ingest.readers.packed import Package, attribute, child, local
from sqlrag.ingest.readers.writing import converted, escaped, heading, link, list_item, paragraph, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

    from sqlrag.types import Document

_TITLES = ("title", "ctrTitle")

_FURNITURE = ("dt", "ftr", "hdr", "sldNum", "sldImg")

_LISTS = ("body", "obj", "half", "quarter")


def read_presentation(data: bytes, doc_id: str, _: object = None) -> Document:
    """Return the slides of a PowerPoint presentation as Markdown, one page each.

    A slide without a title has its number as its heading. Tables, the data of charts, the texts of diagrams, what
    pictures show in words, and notes are kept; hidden slides are left out.

    Raises
    ------
    DocumentError
        It is no presentation, asks for a password or is too large; status "empty" where no slide has text.
    """
    package = Package(data, doc_id, "a PowerPoint presentation")
    warnings = []
    with package.reasons():
        main = package.main_part()
        relations = package.relations(main)
        slides = child(package.xml(main), "sldIdLst")
        names = [relations.get(_relation(one), "") for one in (slides if slides is not None else ())]
        made = [_Slide(package, name, number).page() for number, name in watched(enumerate(names, 1))]
        properties = package.properties()
    titles = [title for title, page in made if title and page]
    if titles:
        properties.setdefault("title", titles[0])
    hidden = [str(number) for number, (_, page) in enumerate(made, 1) if page is None]
    if hidden:
        warnings.append(f"{doc_id}: hidden slides are not read: {', '.join(hidden)}"[:500])
    return converted(doc_id, [page or "" for _, page in made], properties, paged=True, warnings=warnings)


class _Slide:
    def __init__(self, package: Package, name: str, number: int) -> None:
        self.package, self.name, self.number = package, name, number
        self.relations = package.relations(name)
        self.title = ""

    def page(self) -> tuple[str, str | None]:
        """Return the title of a slide and its text; None if it is hidden."""
        root = self.package.xml(self.name)
        if attribute(root, "show") in ("0", "false"):
            return "", None
        tree = child(root, "cSld", "spTree")
        blocks = list(self._shapes(tree)) if tree is not None else []
        notes = self._notes()
        if not blocks and not notes and not self.title:
            return "", ""
        title = heading(2, escaped(self.title)) or heading(2, f"Slide {self.number}")
        return self.title, "\n\n".join([title, *blocks, *notes])

    def _shapes(self, tree: Element) -> Iterator[str]:
        for shape in tree:
            kind = local(shape.tag)
            if kind in ("grpSp", "AlternateContent", "Choice"):
                yield from self._shapes(shape)
            elif kind == "sp":
                yield from self._shape(shape)
            elif kind == "graphicFrame":
                yield from self._graphic(shape)
            elif kind == "pic":
                properties = child(shape, "nvPicPr", "cNvPr")
                words = attribute(properties, "descr") if properties is not None else ""
                if words.strip():
                    yield paragraph(escaped(words))

    def _shape(self, shape: Element) -> Iterator[str]:
        place = child(shape, "nvSpPr", "nvPr", "ph")
        kind = (attribute(place, "type") or "obj") if place is not None else ""
        body = child(shape, "txBody")
        if body is None or kind in _FURNITURE:
            return
        if kind in _TITLES and not self.title:
            self.title = " ".join(" ".join(_plain(p) for p in body if local(p.tag) == "p").split())
            return
        texts = [(level, mark, text) for level, mark, text in self._paragraphs(body) if text]
        usual = "- " if kind in _LISTS and len(texts) > 1 else ""
        indent = "   " if any(mark not in {None, "", "- "} for _, mark, _ in texts) else "  "
        items: list[str] = []
        for level, own, text in texts:
            mark = usual if own is None else own
            if mark:
                item = list_item(mark, [text])
                items.append(indent * level + item.replace("\n", "\n" + indent * level))
                continue
            if items:
                yield "\n".join(items)
                items = []
            yield text
        if items:
            yield "\n".join(items)

    def _paragraphs(self, body: Element) -> Iterator[tuple[int, str | None, str]]:
        """Yield the level of each paragraph, the mark or number that it has of its own ("": none), and its text."""
        numbers: dict[int, int] = {}
        for element in body:
            if local(element.tag) != "p":
                continue
            properties = child(element, "pPr")
            given = attribute(properties, "lvl") if properties is not None else ""
            level = min(int(given), 8) if given.isdigit() else 0
            mark = None
            text = paragraph("".join(self._inline(element)))
            number = child(properties, "buAutoNum") if properties is not None else None
            if number is not None and text:
                first = attribute(number, "startAt")
                numbers = {other: count for other, count in numbers.items() if other <= level}
                numbers[level] = numbers[level] + 1 if level in numbers else int(first) if first.isdigit() else 1
                mark = f"{numbers[level]}. "
            elif text:
                numbers = {other: count for other, count in numbers.items() if other < level}
                marks = {"buChar": "- ", "buBlip": "- ", "buNone": ""}
                mark = next((marks[name] for one in properties or () if (name := local(one.tag)) in marks), None)
            yield level, mark, text

    def _inline(self, element: Element) -> Iterator[str]:
        for part in element:
            kind = local(part.tag)
            if kind in ("r", "fld"):
                text = child(part, "t")
                click = child(part, "rPr", "hlinkClick")
                target = self.relations.get(attribute(click, "id"), "") if click is not None else ""
                written = escaped(text.text or "") if text is not None else ""
                yield link(written, target) if "://" in target else written
            elif kind == "br":
                yield "\n"
            elif kind in ("AlternateContent", "Choice", "m", "oMath", "oMathPara"):
                yield escaped(_plain(part))

    def _graphic(self, shape: Element) -> Iterator[str]:
        data = child(shape, "graphic", "graphicData")
        for element in data if data is not None else ():
            kind = local(element.tag)
            if kind == "tbl":
                yield table(self._table(element))
            elif kind == "chart":
                yield from self._chart(self.relations.get(attribute(element, "id"), ""))
            elif kind == "relIds":
                yield from self._diagram(self.relations.get(attribute(element, "dm"), ""))

    def _table(self, element: Element) -> Iterator[list[str]]:
        for row in element:
            if local(row.tag) == "tr":
                bodies = [child(cell, "txBody") for cell in row if local(cell.tag) == "tc"]
                yield [
                    " ".join(t for *_, t in self._paragraphs(body) if t) if body is not None else "" for body in bodies
                ]

    def _chart(self, name: str) -> Iterator[str]:
        """Yield the title of a chart and its data as a table, a row for each category."""
        root = self.package.optional(name)
        title = child(root, "chart", "title")
        if title is not None:
            yield paragraph(escaped(" ".join(filter(None, (_plain(p) for p in title.iter() if local(p.tag) == "p")))))
        if root is None:
            return
        series = [one for one in root.iter() if local(one.tag) == "ser"]
        names = [" ".join(_points(child(one, "tx")).values()) for one in series]
        categories = _points(child(series[0], "cat")) if series else {}
        values = [_points(child(one, "val")) for one in series]
        places = sorted({*categories, *(place for points in values for place in points)})
        rows = [[categories.get(place, ""), *(points.get(place, "") for points in values)] for place in places]
        yield table([escaped(text) for text in row] for row in [["", *names], *rows])

    def _diagram(self, name: str) -> Iterator[str]:
        root = self.package.optional(name)
        texts = [_plain(p) for p in (root.iter() if root is not None else ()) if local(p.tag) == "p"]
        yield "\n".join(list_item("- ", [paragraph(escaped(text))]) for text in texts if text.strip())

    def _notes(self) -> list[str]:
        name = self.package.related(self.name, "notesSlide")
        tree = child(self.package.optional(name) if name else None, "cSld", "spTree")
        texts = []
        for shape in tree if tree is not None else ():
            place, body = child(shape, "nvSpPr", "nvPr", "ph"), child(shape, "txBody")
            if place is not None and attribute(place, "type") == "body" and body is not None:
                texts += [text for *_, text in self._paragraphs(body) if text]
        return ["> " + "\n\n".join(texts).replace("\n", "\n> ")] if texts else []


def _relation(slide: Element) -> str:
    """Return the id of a slide's relation, which has a namespace, beside its number."""
    return next((value for key, value in slide.attrib.items() if key.endswith("}id")), "")


def _plain(element: Element) -> str:
    return "".join(" " if local(p.tag) == "br" else p.text or "" for p in element.iter() if local(p.tag) in ("t", "br"))


def _points(element: Element | None) -> dict[int, str]:
    """Return the texts or numbers of a chart by their place."""
    found = {}
    for point in element.iter() if element is not None else ():
        value = child(point, "v") if local(point.tag) == "pt" else None
        if value is not None and attribute(point, "idx").isdigit():
            found[int(attribute(point, "idx"))] = value.text or ""
    return found
