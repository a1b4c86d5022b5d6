"""Whether the work on a page grows with its size alone: seconds at doubled sizes, up to 10 MB.

python -m tests.bench.linear [--largest 10] [--seconds 20] [--only visible,links,sections,html,table,notebook]
[--kinds TEXT]

Each row is a kind of page, repeated to the size; the last column is the time of the largest over that of half of it. A
kind is not doubled further once a page of it takes more than so many seconds of processor time.
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from sqlrag.errors import DocumentError
from sqlrag.ingest.chunk import chunk
from sqlrag.ingest.readers.notebook import read_notebook
from sqlrag.ingest.readers.sections import markdown_sections
from sqlrag.ingest.readers.tables import read_table
from sqlrag.ingest.readers.text import read_text
from sqlrag.ingest.readers.web import html_to_markdown
from sqlrag.links import MARKDOWN, markdown_links
from sqlrag.types import ChunkPolicy, Document
from sqlrag.visible import page_of
from tests.bench.common import environment, markdown_table

if TYPE_CHECKING:
    from collections.abc import Callable

# Before, repeated, after.
Kind = tuple[str, str, str]

ALONE = (
    *("<", "</", "<a ", "<a b={", '<a b="', "<!--", "<!-- -->", "<script>", "<?", "<![CDATA[", "<div>", "<x-y>", "<b>"),
    *("[", "![", "[[", "]", "](", "[](", "[a](", "[a](<", '[a](b "', "[a][", "[^", "[!", "[a", "![[", "[[a|", "(", ")"),
    *("*", "**", "* ", "*a ", "a*", "**a ", "_", "__", "_a ", "a_", "*_", "*a_ ", "~", "~~", "~~a ", "***a* "),
    *("`", "``", "` `` ", "`a ", "```", "``` \n", "~~~\n", "```a\n\n", "\\", "\\*", "\\`"),
    *("{", "{{", "{%", "{#", "{:", "{/*", "{%comment%}", "{.a ", "}", "{}", "{{}} ", "{a:{", "${{", "{'"),
    *("|", "|-", "| |\n", "a|b\n", "|-|\n", "&", "&#", "&a", "&amp;", "&amp", "http://a.b ", "<a@b.c>", "<http:a>"),
    *("> ", ">", "> a\n", ">\n\n", "- ", "- a\n", "1. ", "-\n", "- a\n\n", "+ \n", "  - a\n", "1) a\n"),
    *("# ", "#", "# a\n", "===\n", "a\n===\n", "---\n", "a\n---\n", "***\n", "- - -\n", ":::", ":::\n", "::: a\n"),
    *("    a\n", "\ta\n", "\n", " ", "\t", "\n\n", "a", "a ", "a\n", "中", "é", "\u00ad", "\0"),
    *("\\\n", "  \n", '"', "'"),
    *("[a]: b\n", "[a]: b\n\n", "[a]:\n", "[a\n", "[^a]: b\n", "[a]: <", "import a\n", "export const a\n", "import {"),
)  # fmt: skip

PIECES: dict[str, Kind] = {
    "prose": ("", "The pump **starts** at `1.5 bar`, see [here](a.md).\n\n", ""),
    "one paragraph of prose": ("", "The pump **starts** at `1.5 bar`, see *this*.\n", ""),
    "headings": ("", "## A title {#anchor}\n\ntext\n\n", ""),
    "links in one paragraph": ("", "[a](b.md) ", ""),
    "references in one paragraph": ("[a]: b.md\n\n", "[a] [b][a] ", ""),
    "definitions": ("", "[a%d]: b.md\n", ""),
    "wikilinks": ("", "[[a note|label]] ", ""),
    "images": ("", '![a *b*](c.png "t") ', ""),
    "HTML": ("", '<div class="a"><span class="b">word</span></div>\n\n', ""),
    "block of HTML": ("<div>\n", '<span class="b">word</span> &amp;\n', ""),
    "tags in one paragraph": ("", '<b class="c">word</b> ', ""),
    "table": ("", "| a | b |\n|---|---|\n| c | d |\n\n", ""),
    "rows of one table": ("| a | b |\n|---|---|\n", "| c | *d* |\n", ""),
    "columns of one table": ("| a ", "| b ", "|\n|---|---|\n"),
    "rules of one table": ("", "| a | b |\n|---|---|\n", ""),
    "braces": ("", "{% include x %} {{ y }} {#z} ", ""),
    "expressions of MDX": ("import a from 'b'\n\n", "{a({b})} ", ""),
    "expressions in expressions": ("import a from 'b'\n\n", "{a ", ""),
    "one block of code": ("```\n", "a = [b](c) * 2\n", ""),
    "one long line of code": ("```\n", "a = [b](c) * 2; ", "\n```\n"),
    "blocks of code": ("", "```a\nb\n```\n\n", ""),
    "nested quotes": ("", "> ", "a"),
    "a quote": ("", "> a *b*\n", ""),
    "quotes in quotes": ("", "> > > a\n> b\n", ""),
    "a list": ("", "- a *b*\n", ""),
    "a loose list": ("", "- a *b*\n\n", ""),
    "a list of paragraphs": ("- a\n\n", "  b\n\n", ""),
    "nested lists": ("", "- ", "a"),
    "lists in lists": ("", "- a\n  - b\n    - c\n", ""),
    "a list in depth": ("", "%d", ""),  # made by depth
    "closed by one bracket": ("", "[", "]"),
    "closed by one link": ("", "[", "](a)"),
    "opened by one bracket": ("[", "]", ""),
    "pictures closed by one": ("", "![", "](a)"),
    "brackets in brackets": ("", "[a", "](b)" * 100),
    "emphasis in emphasis": ("", "*a **b ", "c** d*" * 100),
    "anchors of a heading": ("# ", "a {#a} {/*b*/} ", ""),
    "front matter": ("---\n", "k%d: v\n", "---\n\ntext\n"),
}  # fmt: skip
PIECES.update({f"{piece!r} alone": ("", piece, "") for piece in ALONE})

TAGS_ALONE = (
    *("<b>", "<div>", "<p>", "<li>", "<ul>", "<ul><li>", "<ol><li>a", "<blockquote>", "<table>", "<tr>", "<td>"),
    *("<a>", "<table><tr><td>", "<pre>", "<code>", "<h1>", "<span>", "<x>", "<nav>", "<nav><p>", "<select>"),
    *("<svg>", "<title>", "</b>", "</div>", "</p>", "</li>", "</table>", "</a>", "</code>", "</nav>"),
    *("<a href=b>c", "<a href=b>c</a>", "<br>", "<", "</", "<a", "<a ", "<a b", "<a b=", "<a b='", '<a b="', "<!"),
    *("<!--", "<!-->", "<?", "<![CDATA[", "<a b=c ", "<script>", "<style>", "<textarea>", "<script></script>"),
    *("<title></title>", "&", "&amp;", "&#", "&lt", "a", " ", "\n", "[", "*", "_", "`", "[a](", "<p>["),
    *("<img alt=a src=b>", "<td rowspan=99 colspan=99>", "<li><p>a", "<dt>a<dd>b", "<code>`</code>", "<code>a"),
    *("<h1>a", "<h1>a</h1>", "<blockquote>a", "<div hidden>", "<dialog>", "<b hidden>a</b>", "<p>a<ul><li>b</ul>"),
    *("<td>a", "<tr>a", "<td><table>", "<caption>a", "<template>", "<meta name=author content=a>"),
)  # fmt: skip

TAGS: dict[str, Kind] = {
    name: ("", piece, "")
    for name, piece in {
        "paragraphs": "<p>The <b>pump</b> starts, see <a href='a'>here</a>.</p>\n",
        "rows": "<tr><td>a</td><td>b</td></tr>",
        **{f"{piece!r} alone": piece for piece in TAGS_ALONE},
    }.items()
}  # fmt: skip
TAGS.update({
    "one table": ("<table>", "<tr><td>a</td><td>b</td></tr>", "</table>"),
    "one row": ("<table><tr>", "<td>a</td>", "</table>"),
    "one list": ("<ul>", "<li>a *b*</li>", "</ul>"),
    "one paragraph": ("<p>", "<b>a</b> b ", "</p>"),
    "one block of code": ("<pre>", "a = b\n", "</pre>"),
    "attributes of one tag": ("<a ", "b='c' ", ">"),
    "blanks of one attribute": ("<a b", " ", "=c>"),
    "one attribute": ("<p title='", "a > b ", "'>"),
    "one link": ("<a href=b>", "a ", "</a>"),
    "links in a link": ("<a href=b>", "<a href=c>", "a</a>" * 100),
})  # fmt: skip

CELLS: dict[str, Kind] = {
    "rows": ("a,b\n", "c,d\n", ""),
    "one row": ("a", ",b", "\n"),
    "one cell": ("a,b\n", "word ", "\n"),
    "an open quote": ('a,b\n"', "c,d\n", ""),
    **{f"{piece!r} alone": ("a,b\n", piece, "") for piece in ('"', '""', '","', ",", "\n", "|", "*", "[", "_", ";")},
}

CHARACTERS = ChunkPolicy(chunk_size=1000, chunk_overlap=100, chunk_unit="chars")


def _read(reader: Callable[[bytes, str], Document], data: bytes, name: str) -> None:
    with suppress(DocumentError):  # an empty page, for one
        reader(data, name)


def _notebook(text: str) -> bytes:
    cells = [{"cell_type": "markdown", "source": text}, {"cell_type": "code", "source": text}]
    return json.dumps({"nbformat": 4, "cells": cells}).encode()


WORK: dict[str, tuple[dict[str, Kind], Callable[[str], object]]] = {
    "visible": (PIECES, lambda text: page_of.__wrapped__(text, 0)),
    "links": (PIECES, lambda text: markdown_links(f"{text}\n\n[x]: y\n", 0, "a.md")),
    "sections": (PIECES, lambda text: markdown_sections(Document("a.md", text, mime=MARKDOWN))),
    "chunk": (PIECES, lambda text: chunk(Document("a.md", text, mime=MARKDOWN), CHARACTERS)),
    "read": (PIECES, lambda text: _read(read_text, text.encode(), "a.md")),
    "html": (TAGS, html_to_markdown),
    "table": (CELLS, lambda text: _read(read_table, text.encode(), "a.csv")),
    "notebook": (PIECES, lambda text: _read(read_notebook, _notebook(text), "a.ipynb")),
}


def page(kind: Kind, size: int) -> str:
    """Return a page of about so many characters; ``%d`` counts."""
    before, piece, after = kind
    if piece == "%d":
        depth = int(size**0.5)
        return "".join(f"{'  ' * i}- a\n" for i in range(depth))
    if "%d" in piece:
        times = size // (len(piece) + 3)
        return before + "".join(piece % i for i in range(times)) + after
    return before + piece * (size // len(piece)) + after


def seconds(work: Callable[[str], object], text: str) -> float:
    """Return the processor time of one call."""
    began = time.process_time()
    work(text)
    return time.process_time() - began


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=float, default=10, help="MB of the largest page")
    parser.add_argument("--seconds", type=float, default=20, help="the time after which a kind is not doubled again")
    parser.add_argument("--only", default=",".join(WORK))
    parser.add_argument("--kinds", default="", help="the kinds that have this text in their name")
    options = parser.parse_args()
    print(environment())
    rows = []
    for name in options.only.split(","):
        kinds, work = WORK[name]
        for kind, parts in kinds.items():
            if options.kinds not in kind:
                continue
            size, took = int(options.largest * 1_000_000 / 256), [0.0]
            while True:
                took.append(seconds(work, page(parts, size)))
                if 2 * size > options.largest * 1_000_000 or took[-1] > options.seconds:
                    break
                size *= 2
            ratio = took[-1] / max(took[-2], 1e-3)
            row = [name, kind, f"{size / 1e6:.2f}", f"{took[-1]:.2f}", f"{size / 1e6 / max(took[-1], 1e-3):.1f}"]
            rows.append([*row, f"{ratio:.2f}"])
            print(rows[-1], "NOT LINEAR" if ratio > 2.8 and took[-1] > 0.2 else "", flush=True)
    header = ["work", "page", "MB", "s", "MB/s", "time of this / of half"]
    print(markdown_table(header, [[cell.replace("|", "\\|") for cell in row] for row in rows]))


if __name__ == "__main__":
    main()
