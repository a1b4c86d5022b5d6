"""Tables in text files: CSV with any delimiter, and tab-separated values."""

from __future__ import annotations

import csv
import io
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from sqlrag.errors import DocumentError
from sqlrag.ingest.readers.encoding import decode
from sqlrag.ingest.readers.text import kind_of
from sqlrag.ingest.readers.writing import converted, escaped, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlrag.types import Document

_DELIMITERS = (",", ";", "\t", "|")

_SAMPLE = 200_000  # characters from which the delimiter is told


def read_table(data: bytes, doc_id: str, _: object = None) -> Document:
    """Return the rows of a CSV or TSV file as one table, the first row as its header.

    The delimiter is that of ``,``, ``;``, tab and ``|`` with which the first rows agree best on the number of their
    cells, or what a first line as ``sep=;`` says. Rows may be of any length.

    Raises
    ------
    DocumentError
        The bytes are not text, or a cell has more than 131,072 characters; status "empty" where all cells are blank.
    """
    kind = kind_of(data)
    if kind:
        raise DocumentError(doc_id, f"the content is not a table of text: it is {kind}; give the file its right suffix")
    text, warnings = decode(data, doc_id)
    if 10 * text.count("\x00") > len(text):
        raise DocumentError(doc_id, "the content is not text: it is binary data")
    text = text.replace("\x00", " ")
    delimiter = _delimiter(text, "\t" if doc_id.lower().endswith(".tsv") else ",")
    first, _, rest = text.partition("\n")
    text = rest if first.strip().lower() == f"sep={delimiter}".strip() else text
    # The signs that are escaped mean nothing to CSV.
    text = escaped(text)
    try:
        written = table(_rows(text, delimiter, csv.QUOTE_MINIMAL))
    except csv.Error:  # a quotation mark that nothing closes makes one cell of the rest
        try:
            written = table(_rows(text, delimiter, csv.QUOTE_NONE))
        except csv.Error as error:
            raise DocumentError(doc_id, f"not a table: a cell is too long ({error})") from error
        warnings = (*warnings, f"{doc_id}: a quotation mark is not closed; all of them were read as text")
    return converted(doc_id, [written], warnings=warnings)


def _delimiter(text: str, otherwise: str) -> str:
    first = text[:6].lower().rstrip("\r\n")
    if first.startswith("sep=") and len(first) > 4:
        return first[4]
    sample = text[:_SAMPLE]
    best = max(_DELIMITERS, key=lambda delimiter: (_agreement(sample, delimiter), delimiter == otherwise))
    return best if _agreement(sample, best) else otherwise


def _agreement(sample: str, delimiter: str) -> float:
    """Return how many of the first rows have the most frequent number of cells, if that is 2 or more."""
    try:
        widths = Counter(len(row) for row in islice(_rows(sample, delimiter, csv.QUOTE_MINIMAL), 100) if row)
    except csv.Error:
        return 0
    rows = sum(widths.values())
    width, count = max(widths.items(), key=lambda one: (one[1], one[0]), default=(0, 0))
    return count / rows if width > 1 else 0


def _rows(text: str, delimiter: str, quoting: int) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting)  # type: ignore[arg-type]
