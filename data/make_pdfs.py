"""Make the two PDF files of the handbook from the page sources in ``data/pdf_pages``.

    python data/make_pdfs.py [FOLDER]

writes ``field-guide.pdf`` and ``sizing-guide.pdf`` into ``FOLDER``, by default ``data/handbook`` beside this script.
The bytes are the same at each run with one version of fpdf2: creation date, producer and file identifier are fixed, and
streams are not compressed.

A source is a little Markdown: ``# `` begins a page, blank lines separate paragraphs, rows with ``|`` are a table, and
``{{name}}`` is a table that is computed here from the sizes of types and windows, so that it cannot contain a slip of
the pen. The texts keep to Latin-1, the encoding of the built-in PDF fonts. Needs fpdf2, part of the ``test`` extra.
"""

from __future__ import annotations

import math
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

from fpdf import FPDF

HERE = Path(__file__).parent
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
TITLES = {"field-guide": "sqlrag field guide", "sizing-guide": "sqlrag sizing guide"}
Rows = list[list[str]]


class Guide(FPDF):
    """A4 pages with a running foot; titles, paragraphs and tables in built-in fonts."""

    def __init__(self, title: str) -> None:
        super().__init__(format="A4")
        self.guide_title = title
        self.set_title(title)
        self.set_author("The sqlrag authors")
        self.set_producer("sqlrag handbook")
        self.set_creation_date(CREATED)
        self.set_compression(False)
        self.set_margin(22)
        self.set_auto_page_break(auto=True, margin=22)

    def file_id(self) -> str:
        """Return a fixed identifier; the default is made from the time and the content."""
        digits = self.guide_title.encode().hex()[:32].ljust(32, "0")
        return f"<{digits}><{digits}>"

    def footer(self) -> None:
        """Write the name of the guide and the page number below each page."""
        self.set_y(-16)
        self.set_font("Helvetica", size=8)
        self.cell(0, 6, f"{self.guide_title} - page {self.page_no()}", align="C")

    def add_sheet(self, title: str, blocks: list[str | Rows]) -> None:
        """Add one page. Text is left-aligned and words are not divided, so that it extracts with ordinary spaces."""
        self.add_page()
        self.set_font("Helvetica", style="B", size=16)
        self.multi_cell(0, 9, title, align="L", new_x="LMARGIN", new_y="NEXT")
        self.ln(3)
        for block in blocks:
            self.set_font("Helvetica", size=10.5)
            if isinstance(block, str):
                self.multi_cell(0, 5.6, block, align="L", new_x="LMARGIN", new_y="NEXT")
            else:
                self.add_rows(block)
            self.ln(2.6)

    def add_rows(self, rows: Rows) -> None:
        """Add a table, its columns as wide as their longest cell needs, so that a row extracts as one line."""
        self.set_font(style="B")
        widths = tuple(max(self.get_string_width(cell) for cell in column) + 3 for column in zip(*rows, strict=True))
        self.set_font(style="")
        if sum(widths) > self.epw:
            raise ValueError(f"the table beginning {rows[0]} is {sum(widths) - self.epw:.0f} mm too wide")
        with self.table(width=sum(widths), col_widths=widths, align="L", text_align="LEFT", line_height=6.4) as table:
            for row in rows:
                table.row(row)


def size(count: int) -> str:
    """Return a number of bytes in decimal units."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= unit:
            return f"{count / unit:.2f} {name}" if name == "GB" else f"{count / unit:.1f} {name}"
    return f"{count} B"


def vector_sizes() -> Rows:
    """Space of vectors: 4 bytes for each number."""
    counts = (1_000, 10_000, 100_000, 1_000_000)
    rows = [["Dimensions", *(f"{count:,} chunks" for count in counts)]]
    return rows + [[str(dims), *(size(count * dims * 4) for count in counts)] for dims in (384, 768, 1024, 1536)]


def code_sizes() -> Rows:
    """Space of sign codes: one bit for each dimension."""
    rows = [["Dimensions", "Bytes per code", "100,000 codes", "1,000,000 codes"]]
    codes = (dims // 8 for dims in (384, 768, 1024, 1536))
    return rows + [[str(code * 8), str(code), size(100_000 * code), size(1_000_000 * code)] for code in codes]


def windows(tokens: int, window: int, overlap: int) -> int:
    """Return how many windows with this overlap cover a text of so many tokens."""
    return max(1, math.ceil((tokens - overlap) / (window - overlap)))


def window_counts() -> Rows:
    """Chunks that one million tokens of running text give."""
    rows = [["Chunk size", "Overlap", "Chunks per million tokens", "Embedded twice"]]
    for window, overlap in ((128, 0), (128, 16), (200, 32), (256, 32), (512, 0), (512, 64), (512, 128)):
        share = f"{overlap / (window - overlap):.0%}"
        rows.append([str(window), str(overlap), f"{windows(1_000_000, window, overlap):,}", share])
    return rows


def examples() -> Rows:
    """Worked examples with windows of 512 tokens, an overlap of 64 and 384 dimensions."""
    rows = [["Collection", "Documents", "Tokens each", "Chunks", "Vectors", "Sign codes"]]
    for name, documents, tokens in (
        ("Team wiki", 400, 900),
        ("Service manuals", 1_200, 25_000),
        ("Archive of reports", 60_000, 6_000),
    ):
        chunks = documents * windows(tokens, 512, 64)
        rows.append([name, f"{documents:,}", f"{tokens:,}", f"{chunks:,}", size(chunks * 1536), size(chunks * 48)])
    return rows


COMPUTED = {table.__name__: table for table in (vector_sizes, code_sizes, window_counts, examples)}


def parse(block: str) -> str | Rows:
    """Return a paragraph as one line, or the rows of a table."""
    if named := re.fullmatch(r"\{\{(\w+)\}\}", block):
        return COMPUTED[named[1]]()
    if block.startswith("|"):
        lines = [line for line in block.splitlines() if not line.startswith("|--")]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return " ".join(block.split())


def write(name: str, folder: Path) -> None:
    """Write one guide; every page of the source has to fit on one sheet."""
    pages = re.split(r"^# ", (HERE / "pdf_pages" / f"{name}.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    guide = Guide(TITLES[name])
    for page in pages:
        title, *blocks = re.split(r"\n\s*\n", page.strip())
        guide.add_sheet(title, [parse(block) for block in blocks])
    if guide.page != len(pages):
        raise ValueError(f"{name}: {len(pages)} pages of text fill {guide.page} sheets; shorten one")
    guide.output(str(folder / f"{name}.pdf"))


def main(folder: Path) -> None:
    """Write both guides into ``folder``."""
    for name in TITLES:
        write(name, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "handbook")
