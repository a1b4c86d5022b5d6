"""Whether the work on a page grows with its size alone: seconds at doubled sizes, up to 10 MB.

python -m tests.bench.linear [--largest 10] [--only visible,links,sections]

Each row is a kind of page, repeated to the size; the last column is the time of the largest over that of half of it.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from sqlrag.ingest.readers.sections import markdown_sections
from sqlrag.links import MARKDOWN, markdown_links
from sqlrag.types import Document
from sqlrag.visible import page_of
from tests.bench.common import environment, markdown_table

if TYPE_CHECKING:
    from collections.abc import Callable

PIECES = {
    "prose": "The pump **starts** at `1.5 bar`, see [here](a.md).\n\n",
    "headings": "## A title {#anchor}\n\ntext\n\n",
    "links in one paragraph": "[a](b.md) ",
    "wikilinks": "[[a note|label]] ",
    "HTML": '<div class="a"><span class="b">word</span></div>\n\n',
    "tags in one paragraph": '<b class="c">word</b> ',
    "table": "| a | b |\n|---|---|\n| c | d |\n\n",
    "rows of one table": "| a | b |\n|---|---|\n",
    "braces": "{% include x %} {{ y }} {#z} ",
    **{
        piece: piece
        for piece in ("<", "[[", "{", "![", "<!--", "<a b={", '<a b="', "<script>", "{%", "*", "`", "&", "> ")
    },
}

WORK: dict[str, Callable[[str], object]] = {
    "visible": lambda text: page_of.__wrapped__(text, 0),
    "links": lambda text: markdown_links(f"{text}\n\n[x]: y\n", 0, "a.md"),
    "sections": lambda text: markdown_sections(Document("a.md", text, mime=MARKDOWN)),
}


def seconds(work: Callable[[str], object], text: str) -> float:
    """Return the processor time of one call."""
    began = time.process_time()
    work(text)
    return time.process_time() - began


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=float, default=10, help="MB of the largest page")
    parser.add_argument("--only", default=",".join(WORK))
    options = parser.parse_args()
    print(environment())
    sizes = [int(options.largest * 1_000_000 / part) for part in (4, 2, 1)]
    rows = []
    for name in options.only.split(","):
        for kind, piece in PIECES.items():
            took = [seconds(WORK[name], piece * (size // len(piece))) for size in sizes]
            ratio = took[-1] / max(took[-2], 1e-3)
            rows.append([name, kind.replace("|", "\\|"), *(f"{one:.2f}" for one in took), f"{ratio:.2f}"])
            print(rows[-1], flush=True)
    print(markdown_table(["work", "page", *(f"{size / 1e6:g} MB" for size in sizes), "ratio"], rows))


if __name__ == "__main__":
    main()
