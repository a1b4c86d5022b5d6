"""Jupyter notebooks: text cells as they are, code and what it printed as blocks of code."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from sqlrag.cancellation import watched
from sqlrag.errors import DocumentError
from sqlrag.ingest.readers.text import kind_of
from sqlrag.ingest.readers.web import html_to_markdown
from sqlrag.ingest.readers.writing import converted, fence
from sqlrag.normalize import ESCAPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlrag.types import Document

_VERSION = 4

MAX_OUTPUT = 10_000  # characters of one output of a cell

# A picture inside the text, in base64.
_DATA = re.compile(r"data:[\w/+.-]+;base64,[A-Za-z0-9+/=\s]*+")

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)

_FIRST_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.*?)[ \t#]*$", re.MULTILINE)


def read_notebook(data: bytes, doc_id: str, _: object = None) -> Document:
    """Return the cells of a notebook of version 4 as Markdown: texts, code, and outputs of text and tables.

    Raises
    ------
    DocumentError
        It is not a notebook, or one of another version; status "empty" where it has no cell with text.
    """
    kind = kind_of(data)
    if kind:
        raise DocumentError(doc_id, f"the content is not a notebook: it is {kind}; give the file its right suffix")
    notebook = _loaded(data, doc_id)
    metadata = _mapping(notebook.get("metadata"))
    language = str(
        _mapping(metadata.get("language_info")).get("name")
        or _mapping(metadata.get("kernelspec")).get("language")
        or ""
    )
    blocks = [block for cell in watched(notebook["cells"]) for block in _blocks(_mapping(cell), language)]
    text = "\n\n".join(block for block in blocks if block.strip())
    authors = [str(_mapping(author).get("name", "")) for author in _list(metadata.get("authors"))]
    first = _FIRST_HEADING.search(
        "\n\n".join(_source(_mapping(c)) for c in notebook["cells"] if _mapping(c).get("cell_type") == "markdown")
    )
    title = str(metadata.get("title") or (first[1] if first else ""))
    return converted(doc_id, [text], {"title": title, "author": ", ".join(filter(None, authors))})


def _loaded(data: bytes, doc_id: str) -> dict[str, Any]:
    try:
        notebook = json.loads(data)
    # Thousands of nested brackets.
    except (ValueError, RecursionError) as error:
        raise DocumentError(doc_id, f"not a Jupyter notebook: it is not JSON ({error})") from error
    if not isinstance(notebook, dict) or not isinstance(version := notebook.get("nbformat"), int):
        raise DocumentError(doc_id, "not a Jupyter notebook: it has no version (nbformat)")
    if version != _VERSION:
        remedy = "save it with a current Jupyter (jupyter nbconvert --to notebook)"
        raise DocumentError(doc_id, f"a notebook of version {version}; version {_VERSION} is read: {remedy}")
    if not isinstance(notebook.get("cells"), list):
        raise DocumentError(doc_id, "not a Jupyter notebook: it has no list of cells")
    return notebook


def _blocks(cell: dict[str, Any], language: str) -> Iterator[str]:
    source = _source(cell)
    if cell.get("cell_type") == "markdown":
        yield _closed(_DATA.sub("", source).strip("\n"))
    elif cell.get("cell_type") == "code":
        yield fence(source, language)
        for output in _list(cell.get("outputs")):
            yield _output(_mapping(output))
    else:
        yield fence(source)


def _output(output: dict[str, Any]) -> str:
    data = _mapping(output.get("data"))
    page = _joined(data.get("text/html"))
    if "<table" in page[:MAX_OUTPUT]:
        # The table of a data frame, whose plain form is cut into columns.
        return html_to_markdown(page[: 10 * MAX_OUTPUT]).text
    if "text/markdown" in data:
        return _closed(_short(_DATA.sub("", _joined(data["text/markdown"]))))
    if output.get("output_type") == "error":
        return fence(_short(f"{output.get('ename', '')}: {output.get('evalue', '')}"))
    return fence(_short(ESCAPES.sub("", _joined(output.get("text") or data.get("text/plain")))))


def _short(text: str) -> str:
    return text if len(text) <= MAX_OUTPUT else text[:MAX_OUTPUT] + " …"


def _closed(text: str) -> str:
    """Return Markdown whose block of code ends with the cell."""
    open_mark = ""
    for mark in _FENCE.findall(text):
        if not open_mark:
            open_mark = mark
        elif mark.startswith(open_mark):
            open_mark = ""
    return f"{text}\n{open_mark}" if open_mark else text


def _source(cell: dict[str, Any]) -> str:
    return _joined(cell.get("source"))


def _joined(value: object) -> str:
    """Return a text, which may be a list of lines."""
    return value if isinstance(value, str) else "".join(str(line) for line in _list(value))


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
