"""Excel workbooks (.xlsx) as Markdown: a page and a heading for each sheet, its rows as tables.

Read row by row from the XML: python-calamine would hold every cell between the first and the last in memory, which a
sheet with two cells in opposite corners makes 17,179,869,184 of, and openpyxl takes three times as long.
"""

from __future__ import annotations

import datetime as dt
import io
import re
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree as ET

from sqlrag.cancellation import checkpoint
from sqlrag.errors import DocumentError
from sqlrag.ingest.readers.packed import MAX_TEXT, Package, attribute, child, local
from sqlrag.ingest.readers.writing import converted, escaped, heading, paragraph, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

    from sqlrag.types import Document

# What a number format shows beside a plain number: "date", "time", "both", "elapsed" or "percent".
_BUILT_IN = {
    **dict.fromkeys((9, 10), "percent"),
    **dict.fromkeys((14, 15, 16, 17, *range(27, 32), 34, 35, 36, *range(50, 59)), "date"),
    **dict.fromkeys((18, 19, 20, 21, 32, 33, 45, 47), "time"),
    46: "elapsed",
    22: "both",
}

_NO_CODE = re.compile(r'"[^"]*"|\\.|_.|\*.|\[(?!h|m|s)[^\]]*\]', re.IGNORECASE)

_EPOCH = dt.datetime(1899, 12, 30)  # the cells have no zone

_EPOCH_1904 = dt.datetime(1904, 1, 1)

_LETTERS = re.compile(r"[A-Z]{1,3}")

_MOST_BLANKS = 100_000  # and ten times as many as there are cells: rows beyond it are written without gaps

Cells = dict[int, str]


class _Sheet(NamedTuple):
    name: str
    part: str
    is_hidden: bool


def read_workbook(data: bytes, doc_id: str, _: object = None) -> Document:
    """Return the sheets of an Excel workbook as Markdown, one page each.

    Values are those that were computed when the file was saved; dates are written as ``2025-01-31``. A blank row ends
    a table; rows of one cell between blank rows are text. Hidden sheets, comments and charts are left out.

    Raises
    ------
    DocumentError
        It is no workbook, asks for a password or is too large; status "empty" where no sheet has a cell with text.
    """
    package = Package(data, doc_id, "an Excel workbook")
    warnings = []
    with package.reasons():
        workbook = _Workbook(package)
        pages = [workbook.page(sheet) for sheet in workbook.sheets]
        properties = package.properties()
    hidden = [sheet.name for sheet in workbook.sheets if sheet.is_hidden]
    if hidden:
        warnings.append(f"{doc_id}: hidden sheets are not read: {', '.join(hidden)}"[:500])
    return converted(doc_id, pages, properties, paged=True, warnings=warnings)


class _Workbook:
    def __init__(self, package: Package) -> None:
        self.package = package
        main = package.main_part()
        root = package.xml(main)
        relations = package.relations(main)
        elements = child(root, "sheets")
        self.sheets = [
            _Sheet(
                attribute(one, "name"),
                relations.get(_relation(one), ""),
                attribute(one, "state") in ("hidden", "veryHidden"),
            )
            for one in (elements if elements is not None else ())
        ]
        if not self.sheets:
            raise ValueError("it has no sheets")
        settings = child(root, "workbookPr")
        is_1904 = settings is not None and attribute(settings, "date1904") in ("1", "true")
        self.epoch = _EPOCH_1904 if is_1904 else _EPOCH
        self.strings = self._shared_strings(main)
        self.kinds = self._kinds(main)
        self.written = 0

    def page(self, sheet: _Sheet) -> str:
        """Return the heading of a sheet and what is in it; "" if nothing is, or it is hidden or a chart."""
        if sheet.is_hidden or "/worksheets/" not in f"/{sheet.part}":
            return ""
        blocks = [block for rows in self._tables(sheet.part) if (block := self._block(rows))]
        return "\n\n".join([heading(2, escaped(sheet.name)), *blocks]) if blocks else ""

    def _tables(self, part: str) -> Iterator[list[Cells]]:
        """Yield the rows between blank ones."""
        rows: list[Cells] = []
        last = 0
        for number, cells in self._rows(part):
            if rows and (number > last + 1 or not cells):
                yield rows
                rows = []
            if cells:
                rows.append(cells)
            last = number
        if rows:
            yield rows

    def _rows(self, part: str) -> Iterator[tuple[int, Cells]]:
        number = 0
        stack: list[Element] = []
        for event, element in ET.iterparse(io.BytesIO(self.package.checked(part)), ("start", "end")):  # noqa: S314
            if event == "start":
                stack.append(element)
                continue
            stack.pop()
            if local(element.tag) == "row":
                checkpoint()
                given = element.get("r", "")
                number = int(given) if given.isdigit() else number + 1
                yield number, self._cells(element)
                element.clear()
                if stack:
                    stack[-1].clear()  # what was read, or a million empty rows stay in memory

    def _cells(self, row: Element) -> Cells:
        cells: Cells = {}
        column = 0
        for cell in row:
            letters = _LETTERS.match(cell.get("r", ""))
            column = _column(letters.group()) if letters else column + 1
            text = self._value(cell)
            if text and not text.isspace():
                cells[column] = text
                self.written += len(text)
        if self.written > MAX_TEXT:
            raise DocumentError(self.package.doc_id, f"too large: its cells show more than {MAX_TEXT:,} characters")
        return cells

    def _value(self, cell: Element) -> str:
        kind = cell.get("t", "n")
        if kind == "inlineStr":
            return _string(child(cell, "is"))
        value = next((one.text for one in cell if local(one.tag) == "v"), None)
        if not value:
            return ""
        if kind == "s":
            index = int(value)
            return self.strings[index] if 0 <= index < len(self.strings) else ""
        if kind == "b":
            return "TRUE" if value == "1" else "FALSE"
        if kind in ("n", ""):
            style = cell.get("s", "")
            return self._number(value, self.kinds.get(int(style), "") if style.isdigit() else self.kinds.get(0, ""))
        return value[:19].replace("T", " ") if kind == "d" else value

    def _number(self, value: str, kind: str) -> str:
        try:
            number = float(value)
            if kind == "percent":
                return f"{_plain(100 * number)}%"
            return _plain(number) if not kind else self._date(number, kind)
        except (ValueError, OverflowError):
            return value

    def _date(self, number: float, kind: str) -> str:
        if kind == "elapsed":  # hours beyond a day
            minutes, seconds = divmod(round(abs(number) * 86400), 60)
            return f"{'-' * (number < 0)}{minutes // 60}:{minutes % 60:02}:{seconds:02}".removesuffix(":00")
        moment = self.epoch + dt.timedelta(seconds=round(number * 86400))
        if kind == "time" and number < 1:
            return f"{moment:%H:%M:%S}".removesuffix(":00")
        if kind == "date" or number == int(number):
            return f"{moment:%Y-%m-%d}"
        return f"{moment:%Y-%m-%d %H:%M:%S}".removesuffix(":00")

    def _block(self, rows: list[Cells]) -> str:
        columns = sorted({column for cells in rows for column in cells})
        if len(columns) == 1 or all(len(cells) == 1 for cells in rows):
            return "\n\n".join(paragraph(escaped(text)) for cells in rows for text in cells.values())
        place = {column: index for index, column in enumerate(columns)}
        count = sum(map(len, rows))
        blanks = sum(place[max(cells)] + 1 - len(cells) for cells in rows)
        is_sparse = blanks > _MOST_BLANKS + 10 * count
        return table(self._placed(cells, place, is_sparse=is_sparse) for cells in rows)

    def _placed(self, cells: Cells, place: dict[int, int], *, is_sparse: bool) -> list[str]:
        if is_sparse:
            return [escaped(cells[column]) for column in sorted(cells)]
        placed = [""] * (place[max(cells)] + 1)
        for column, text in cells.items():
            placed[place[column]] = escaped(text)
        return placed

    def _shared_strings(self, main: str) -> list[str]:
        name = self.package.related(main, "sharedStrings")
        if name is None:
            return []
        strings = []
        depth = 0
        root: Element | None = None
        for event, element in ET.iterparse(io.BytesIO(self.package.checked(name)), ("start", "end")):  # noqa: S314
            if event == "start":
                root = element if root is None else root
                depth += 1
                continue
            depth -= 1
            if depth == 1 and local(element.tag) == "si":
                strings.append(_string(element))
                if root is not None:
                    root.clear()
        return strings

    def _kinds(self, main: str) -> dict[int, str]:
        """Return what the styles of cells show beside a plain number, by index."""
        name = self.package.related(main, "styles")
        root = self.package.optional(name) if name else None
        formats, styles = child(root, "numFmts"), child(root, "cellXfs")
        own = {
            attribute(one, "numFmtId"): _kind_of(attribute(one, "formatCode"))
            for one in (formats if formats is not None else ())
        }
        found = {}
        for index, style in enumerate(styles if styles is not None else ()):
            number = attribute(style, "numFmtId")
            kind = own.get(number) if number in own else _BUILT_IN.get(int(number) if number.isdigit() else 0)
            if kind:
                found[index] = kind
        return found


def _relation(sheet: Element) -> str:
    """Return the id of a sheet's relation, which has a namespace, beside the ``sheetId``."""
    return next((value for key, value in sheet.attrib.items() if key.endswith("}id")), "")


def _string(element: Element | None) -> str:
    """Return the text of a string without how it is pronounced."""
    if element is None:
        return ""
    texts = []
    for part in element:
        kind = local(part.tag)
        if kind == "t":
            texts.append(part.text or "")
        elif kind == "r":
            texts += [one.text or "" for one in part if local(one.tag) == "t"]
    return "".join(texts)


def _kind_of(code: str) -> str:
    """Return what a number format of the user's own shows."""
    signs = _NO_CODE.sub("", code.partition(";")[0]).lower()
    if "%" in signs:
        return "percent"
    is_time = "h" in signs or "s" in signs
    is_date = "y" in signs or "d" in signs or ("m" in signs and not is_time)
    if "general" in signs or "e+" in signs:
        return ""
    if "[" in signs:
        return "elapsed"
    return "both" if is_date and is_time else "date" if is_date else "time" if is_time else ""


def _plain(number: float) -> str:
    """Return a number with the fifteen digits that Excel shows."""
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else f"{number:.15g}"


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - 64
    return number
