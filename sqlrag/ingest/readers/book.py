"""EPUB books as Markdown: the chapters in reading order, below the title of the book."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlrag.cancellation import watched
from sqlrag.errors import DocumentError
from sqlrag.ingest.readers.packed import Package, attribute, child, local, resolved
from sqlrag.ingest.readers.web import html_to_markdown, page_text
from sqlrag.ingest.readers.writing import converted, escaped, heading

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from sqlrag.types import Document

_CONTAINER = "META-INF/container.xml"

_ENCRYPTION = "META-INF/encryption.xml"

_PAGES = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")

_HEADING = re.compile(r"^#{1,6} ", re.MULTILINE)

_METADATA = {"title": "title", "creator": "author", "description": "description", "date": "date"}


def read_book(data: bytes, doc_id: str, _: object = None) -> Document:
    """Return the text of an EPUB book as Markdown.

    The headings of the chapters are one level below those of their files, since the title of the book is above all. A
    chapter without a heading has that of the table of contents, which itself is left out.

    Raises
    ------
    DocumentError
        It is no book, is protected or too large; status "empty" where no chapter has text.
    """
    package = Package(data, doc_id, "an EPUB book")
    with package.reasons():
        files = package.xml(_CONTAINER)
        rootfile = child(files, "rootfiles", "rootfile")
        if rootfile is None:
            raise ValueError("it names no package document")
        book = _Book(package, attribute(rootfile, "full-path"))
        chapters, missing = book.chapters()
    warnings = [f"{doc_id}: the chapter {name} is not in the book" for name in missing[:5]]
    return converted(doc_id, chapters, book.metadata(), warnings=warnings)


class _Book:
    def __init__(self, package: Package, name: str) -> None:
        self.package, self.name = package, name
        self.root = package.xml(name)
        manifest = child(self.root, "manifest")
        self.items = {attribute(item, "id"): item for item in (manifest if manifest is not None else ())}

    def path(self, item: Element) -> str:
        return resolved(self.name, attribute(item, "href"))

    def chapters(self) -> tuple[list[str], list[str]]:
        """Return the chapters in reading order, and the names of those that the archive lacks."""
        labels, protected = self._labels(), self._protected()
        chapters, missing = [], []
        spine = child(self.root, "spine")
        for reference in watched(spine if spine is not None else ()):
            item = self.items.get(attribute(reference, "idref"))
            if item is None or attribute(item, "media-type") not in _PAGES:
                continue
            if "nav" in attribute(item, "properties").split():
                continue
            name = self.path(item)
            if name in protected:
                raise DocumentError(self.package.doc_id, "protected (DRM): its chapters are encrypted")
            if name not in self.package.names:
                missing.append(name)
                continue
            text = self._page(name)
            if text and not _HEADING.search(text) and name in labels:
                text = f"{heading(2, escaped(labels[name]))}\n\n{text}"
            chapters.append(text)
        return chapters, missing

    def metadata(self) -> dict[str, str]:
        found: dict[str, str] = {}
        metadata = child(self.root, "metadata")
        for element in metadata.iter() if metadata is not None else ():
            name = _METADATA.get(local(element.tag))
            text = "".join(element.itertext()).strip()
            if name == "author" and name in found:
                found[name] += f", {text}"
            elif name and text:
                found.setdefault(name, html_to_markdown(text).text if name == "description" else text)
        return found

    def _page(self, name: str) -> str:
        text, _ = page_text(self.package.read(name), self.package.doc_id)
        return html_to_markdown(text, xml=True, shift=1).text

    def _labels(self) -> dict[str, str]:
        """Return the titles of the chapters by the table of contents."""
        found: dict[str, str] = {}
        for item in self.items.values():
            is_nav = "nav" in attribute(item, "properties").split()
            if self.path(item) not in self.package.names:
                continue
            if attribute(item, "media-type") == "application/x-dtbncx+xml":
                name = self.path(item)
                for point in self.package.xml(name).iter():
                    content, label = child(point, "content"), child(point, "navLabel", "text")
                    if local(point.tag) == "navPoint" and content is not None and label is not None and label.text:
                        found.setdefault(resolved(name, attribute(content, "src")), label.text)
            elif is_nav:
                name = self.path(item)
                for link in self.package.xml(name).iter():
                    if local(link.tag) == "a" and attribute(link, "href"):
                        label_text = " ".join("".join(link.itertext()).split())
                        found.setdefault(resolved(name, attribute(link, "href")), label_text)
        return found

    def _protected(self) -> set[str]:
        """Return the paths of what is encrypted; fonts are, in books that anyone can read."""
        root = self.package.optional(_ENCRYPTION)
        references = [one for one in (root.iter() if root is not None else ()) if local(one.tag) == "CipherReference"]
        return {resolved("", attribute(one, "URI")) for one in references}
