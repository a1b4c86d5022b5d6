"""Formats that are converted to Markdown: HTML, tables, notebooks, and readers of other packages."""

import json
import time
import tomllib
import warnings
from importlib.metadata import EntryPoint

import pytest

import sqlrag
from sqlrag.ingest import readers
from sqlrag.ingest.chunk import chunk
from sqlrag.ingest.folder import find_files
from sqlrag.ingest.readers.web import html_to_markdown
from sqlrag.links import is_markdown
from sqlrag.types import ChunkPolicy, Document
from tests.support.handbook import HANDBOOK, blocks
from tests.support.helpers import HASHING
from tests.support.reading import failure, read

CHARS = ChunkPolicy(chunk_size=500, chunk_overlap=0, chunk_unit="chars")


def text_of(html):
    return html_to_markdown(html).text


def notebook(*cells, version=4, **metadata):
    made = [
        {"cell_type": kind, "source": source, "metadata": {}, **({"outputs": []} if kind == "code" else {}), **more}
        for kind, source, more in (cell if len(cell) == 3 else (*cell, {}) for cell in cells)
    ]
    return json.dumps({"nbformat": version, "nbformat_minor": 5, "metadata": metadata, "cells": made})


class TestMarkdownTypes:
    def test_every_type_that_a_reader_converts_is_markdown(self):
        mimes = {reader.mime for reader in readers.READERS}
        assert {mime for mime in mimes if not is_markdown(mime)} == {"text/plain", "application/pdf"}

    @pytest.mark.parametrize(
        ("mime", "expected"),
        [
            ("text/markdown", True),
            ("text/x-log+markdown", True),
            ("text/plain", False),
            ("", False),
            (None, False),
            (7, False),
        ],
    )
    def test_other_types(self, mime, expected):
        assert is_markdown(mime) is expected

    def test_a_title_that_the_first_heading_repeats_is_said_once(self):
        long = "word " * (CHARS.chunk_size // 6)  # too much for two sections in a chunk
        text = "".join(f"{heading}\n\n{long}\n\n" for heading in ("## Deck", "## Next", "### Deck"))
        document = Document("a", text, metadata={"title": "Deck"}, mime="text/html")
        assert [c.heading_path for c in chunk(document, CHARS)] == [
            ("Deck",),
            ("Deck", "Next"),
            ("Deck", "Next", "Deck"),
        ]

    def test_pages_cut_the_sections_of_markdown(self):
        text = "## One\n\na\n\n## Two\n\nb\n\nc\n\n## Four\n\nd"
        starts = (0, text.index("## Two"), text.index("c"), text.index("## Four"))
        document = Document("a", text, mime="text/html", page_starts=starts, metadata={"title": "Deck"})
        found = [(c.page, c.heading_path, c.content) for c in chunk(document, CHARS)]
        assert found == [
            (1, ("Deck", "One"), "## One\n\na"),
            (2, ("Deck", "Two"), "## Two\n\nb"),
            (3, ("Deck", "Two"), "c"),
            (4, ("Deck", "Four"), "## Four\n\nd"),
        ]

    def test_a_heading_without_text_does_not_go_with_the_next_page(self):
        text = "## One\n\n## Two\n\nb"
        document = Document("a", text, mime="text/html", page_starts=(0, 8))
        assert [(c.page, c.content) for c in chunk(document, CHARS)] == [(1, "## One"), (2, "## Two\n\nb")]


class TestHtml:
    def test_what_a_browser_shows_is_text_and_the_rest_is_not(self, tmp_path):
        page = """<!DOCTYPE html><html><head><title>Pump &amp; valve</title><meta name=author content="Ann Kowalska">
        <style>p { color: red }</style><script>var secret = "<p>no</p>";</script></head><body class="c">
        <nav>Menu</nav><h1>The <em>pump</em></h1><p hidden>hidden</p><div style="display: none">gone<p>too</p></div>
        <p>Open&nbsp;the valve.<br>Wait.</p><!-- comment --><noscript>enable</noscript>
        <button>Copy</button></body></html>"""
        document = read(tmp_path, page, "a.html")
        assert document.text == "# The pump\n\nOpen\xa0the valve.\nWait."
        assert (document.mime, document.metadata) == ("text/html", {"title": "Pump & valve", "author": "Ann Kowalska"})

    def test_a_page_in_xml_has_empty_elements(self, tmp_path):
        page = '<?xml version="1.0"?><html><head><title/><script src="a"/></head><body><p>words</p></body></html>'
        assert read(tmp_path, page, "a.html").text == "words"

    def test_titles_of_pictures_and_equations_that_are_there_twice(self):
        page = html_to_markdown(
            "<svg><title>Logo</title><path d=M1></svg><title>Page</title><svg/>"
            "<span class=katex><math><mi>E</mi></math><span class=katex-html aria-hidden=true>E</span></span>"
        )
        assert (page.text, page.metadata) == ("Logo\n\nE", {"title": "Page"})

    def test_labels_of_pictures_are_words_of_their_own(self):
        svg = "<svg><title>Pump</title><g><text>inlet</text><text>out<tspan>let</tspan></text></g></svg>"
        assert text_of(f"<p>a{svg}b</p>").split() == ["a", "Pump", "inlet", "out", "let", "b"]

    def test_elements_that_html_does_not_know_stand_within_a_line(self):
        """Word writes <o:p>; in XML the prefix is that of HTML."""
        assert text_of("<p>one <o:p></o:p>line<x-y>s</x-y></p>") == "one lines"
        assert html_to_markdown("<h:p>one</h:p><h:p>two</h:p>", xml=True).text == "one\n\ntwo"

    def test_structure_is_kept(self):
        html = """<ul><li>one<ul><li>inner</ul><li>two</ul><ol start=3><li><p>three</p><p>more</p></ol>
        <blockquote>said</blockquote><pre><code class="language-py">if x &lt; 1:
    pass</code></pre><p>Run <code>a|b</code> now</p>"""
        assert text_of(html) == (
            "- one\n  - inner\n- two\n\n3. three\n   more\n\n> said\n\n```py\nif x < 1:\n    pass\n```\n\nRun `a|b` now"
        )

    def test_tables(self):
        html = """<table><caption>Sizes</caption><thead><tr><th>Name<th>Size</thead><tr><td rowspan=2>a|b<td>1
        <tr><td><p>2</p><p>x</p><tr><td colspan=2>all</table>"""
        assert text_of(html) == "Sizes\n\n| Name | Size |\n| --- | --- |\n| a\\|b | 1 |\n|  | 2 x |\n| all |"

    def test_a_table_that_lays_out_the_page_is_no_table(self):
        html = "<table><tr><td>menu<td><h2>T</h2>text<table><tr><td>a<td>b</table></table>"
        html += "<table><tr><td>x<tr><td>y</table>"
        assert text_of(html) == "menu\n\n## T\n\ntext\n\n| a | b |\n| --- | --- |\n\nx\n\ny"

    def test_links_and_pictures(self):
        html = """<a href="b.html#x">see b</a> <a href="javascript:x()">js</a> <a href="c d.html">c [1</a>
        <img src="i.png" alt="A pump"><img src="data:image/png;base64,AAAA" alt="Inline">
        <a href="e"><div>block</div></a>"""
        assert text_of(html) == ("[see b](b.html#x) js [c \\[1](<c d.html>) ![A pump](i.png) Inline\n\nblock")

    def test_fault_T1_a_page_with_front_matter_is_a_template(self, tmp_path):
        page = (
            "---\ntitle: T\ntags: [a]\n---\n{% include x.html %}<h2>{{ page.title }} b</h2><a href='{{ site.u }}'>c</a>"
        )
        document = read(tmp_path, page, "a.html")
        assert (document.text, document.metadata, document.tags) == ("## b\n\nc", {"title": "T", "tags": ["a"]}, ("a",))
        assert read(tmp_path, "--- a ---\n<p>{{ b }}</p>", "b.html").text == "--- a ---\n\n{\\{ b }}"

    def test_braces_and_imports_are_text(self, tmp_path):
        page = '<p>import x from "y"</p><p>Hello {name}, {{ title }} {% tag %}</p>'
        [one] = chunk(read(tmp_path, page, "a.html"), ChunkPolicy(chunk_size=200, chunk_overlap=0, chunk_unit="chars"))
        assert " ".join(one.visible.split()) == 'import x from "y" Hello {name}, {{ title }} {% tag %}'

    def test_the_sign_that_links_a_heading_to_itself_is_no_text(self):
        assert text_of('<h2>Install<a class="headerlink" href="#i">¶</a></h2>') == "## Install"

    def test_signs_of_markdown_stay_text(self):
        html = "<p>use &lt;div&gt; &amp;amp; *this* snake_case __init__ [a](b) {{x}} \\*</p>"
        html += "<p># no</p><p>1. no</p><div>---</div>"
        assert text_of(html) == (
            "use \\<div> \\&amp; \\*this\\* snake_case \\_\\_init\\_\\_ \\[a](b) {\\{x}} \\\\\\*\n\n"
            "\\# no\n\n1\\. no\n\n\\---"
        )

    @pytest.mark.parametrize(
        ("content", "word"),
        [
            ('<meta charset="windows-1251"><p>Привет, насос'.encode("cp1251"), "насос"),
            ('<meta charset="iso-8859-1"><p>Pr\xfcfen “sie”'.encode("cp1252"), "“sie”"),
            ('<meta charset="iso-8859-1"><p>Prüfen Sie'.encode(), "Prüfen"),
            ('<?xml version="1.0" encoding="shift_jis"?><p>ポンプの安全'.encode("cp932"), "ポンプ"),
            ('<meta charset="iso-2022-jp"><p>ポンプの安全'.encode("iso2022_jp"), "ポンプ"),
            ('<meta charset="no-such"><p>Prüfen'.encode(), "Prüfen"),
            ('<meta charset="utf-16"><p>Prüfen'.encode(), "Prüfen"),
            ("<p>Prüfen".encode("utf-16"), "Prüfen"),
        ],
    )
    def test_the_encoding_that_the_page_names(self, tmp_path, content, word):
        assert word in read(tmp_path, content, "a.html").text

    def test_xhtml_ends_tags_of_its_own(self, tmp_path):
        assert read(tmp_path, "<html><title/><script src='x'/><p>shown</p></html>", "a.xhtml").text == "shown"

    @pytest.mark.parametrize(
        "piece",
        [
            "<div>",
            "<ul><li>",
            "<table><tr><td>",
            "<blockquote>",
            "<a ",
            "<!--",
            "</",
            "<a href=x>",
            "<p hidden>",
            "<h1>",
            "[a](",
        ],
    )
    def test_odd_markup_costs_linear_time(self, piece):
        started = time.process_time()
        html_to_markdown(piece * 30_000 + "end")
        assert time.process_time() - started < 10

    @pytest.mark.slow
    def test_100_000_nested_tags_are_read(self, tmp_path):
        page = "<div><ul><li>" * 100_000 + "deep word" + "</li></ul></div>" * 100_000
        assert read(tmp_path, page, "a.html").text.strip("- ") == "deep word"

    def test_spans_of_a_table_do_not_multiply_it(self):
        page = "<table>" + "<td colspan=9999 rowspan=9999>x" * 500 + "<tr><td>y<td>z" * 5000 + "</table>"
        assert len(text_of(page)) < 20 * len(page)

    @pytest.mark.parametrize(
        ("content", "status", "reason"),
        [
            ("<p hidden>x</p>", "empty", "it holds no text"),
            (b"%PDF-1.4 etc", "failed", "it is a PDF"),
            (b"\x89PNG\r\n\x1a\n", "failed", "the content is not HTML"),
        ],
    )
    def test_what_is_no_page(self, tmp_path, content, status, reason):
        error = failure(tmp_path, content, "a.html")
        assert error.status == status
        assert reason in error.reason

    def test_links_between_pages_are_known(self, tmp_path):
        for name, page in {"a": '<h1>A</h1><a href="b.html">to b</a>', "b": "<h1>B</h1>text"}.items():
            (tmp_path / f"{name}.html").write_text(page)
        sqlrag.prepare_embeddings(tmp_path, tmp_path / "kb.duckdb", **HASHING)
        with sqlrag.Store(tmp_path / "kb.duckdb") as store:
            assert store.cursor().sql("SELECT source, target FROM links").fetchall() == [("a.html", "b.html")]


@pytest.mark.parametrize("title", ["Untitled document", "untitled-2", "Documento sin título", "無題ドキュメント"])
def test_a_title_that_a_program_gave_is_none(tmp_path, title):
    page = "<title>{}</title><p>words</p>"
    assert chunk(read(tmp_path, page.format(title), "pump.html"), CHARS)[0].heading_path == ("pump",)
    found = read(tmp_path, page.format(f"{title} by Ann"), "pump.html")
    assert chunk(found, CHARS)[0].heading_path == (f"{title} by Ann",)


class TestTables:
    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("a.csv", "name,size\nx_y,1\n"),
            ("a.csv", "name;size\nx_y;1\n"),
            ("a.csv", "sep=;\r\nname;size\r\nx_y;1\r\n"),
            ("a.csv", "name|size\nx_y|1\n"),
            ("a.tsv", "name\tsize\nx_y\t1\n"),
            ("a.csv", "\ufeffname\tsize\nx_y\t1\n"),
            ("a.csv", "name\x00,size\nx_y,1\n,,\n"),
        ],
    )
    def test_delimiters(self, tmp_path, name, content):
        assert read(tmp_path, content, name).text == "| name | size |\n| --- | --- |\n| x_y | 1 |"

    def test_quotes_ragged_rows_and_markup(self, tmp_path):
        document = read(tmp_path, 'a,b\n"one\ntwo, ""q""",x|y\nshort\n1,2,<b>\n', "a.csv")
        assert (
            document.text == '| a | b | |\n| --- | --- | --- |\n| one two, "q" | x\\|y |\n| short |\n| 1 | 2 | \\<b> |'
        )
        assert (document.mime, document.body_start) == ("text/csv", 0)

    def test_a_quotation_mark_that_nothing_closes(self, tmp_path):
        document = read(tmp_path, 'a,b\n1,"open\n' + "x,y\n" * 60_000, "a.csv")
        assert '| 1 | "open |' in document.text
        assert document.warnings == ("a.csv: a quotation mark is not closed; all of them were read as text",)

    def test_a_cell_that_is_too_long_is_a_failure_with_its_reason(self, tmp_path):
        error = failure(tmp_path, "a,b\n" + "word " * 30_000, "a.csv")
        assert "a cell is too long" in error.reason

    def test_legacy_encoding(self, tmp_path):
        data = "Straße;Größe\nMüllerstraße;Höhe über 5\n".encode("cp1252")
        assert "Müllerstraße" in read(tmp_path, data, "a.csv").text

    def test_a_removed_character_still_separates_words(self, tmp_path):
        document = read(tmp_path, "name,place\nfoo\0bar,x\x0by\nlonger words,here\n", "a.csv")
        assert document.text.splitlines()[2] == "| foo bar | x y |"

    def test_a_hundred_thousand_rows(self, tmp_path):
        started = time.process_time()
        document = read(tmp_path, "id,name\n" + "7,Ann\n" * 100_000, "a.csv")
        assert document.text.count("\n") == 100_001
        assert time.process_time() - started < 10

    @pytest.mark.parametrize(
        ("content", "status", "reason"),
        [
            (b",,\n,,\n", "empty", "no text"),
            (b"\x00\x01\x02\x7f\x06" * 50, "failed", "binary data"),
            (b"PK\x03\x04xx", "failed", "it is"),
        ],
    )
    def test_what_is_no_table(self, tmp_path, content, status, reason):
        error = failure(tmp_path, content, "a.csv")
        assert error.status == status
        assert reason in error.reason


class TestNotebooks:
    def test_cells_become_text_code_and_output(self, tmp_path):
        frame = "<table><tr><th></th><th>n</th></tr><tr><th>0</th><td>5</td></tr></table>"
        outputs = [
            {"output_type": "stream", "name": "stdout", "text": ["\x1b[31mred\x1b[0m\n", "two\n"]},
            {"output_type": "execute_result", "data": {"text/html": frame, "text/plain": "   n\n0  5"}},
            {"output_type": "display_data", "data": {"image/png": "AAAA"}},
            {"output_type": "error", "ename": "ValueError", "evalue": "bad", "traceback": ["long"]},
        ]
        cells = [
            ("markdown", ["# Pumps\n", "text ![p](data:image/png;base64,AAAABBBB)"]),
            ("code", "x = 1", {"outputs": outputs}),
            ("markdown", "```\nopen fence"),
            ("markdown", "## Valves\n\nmore"),
            ("raw", "raw"),
        ]
        document = read(tmp_path, notebook(*cells, language_info={"name": "python"}), "a.ipynb")
        assert document.text == (
            "# Pumps\ntext ![p]()\n\n```python\nx = 1\n```\n\n```\nred\ntwo\n```\n\n"
            "|  | n |\n| --- | --- |\n| 0 | 5 |\n\n"
            "```\nValueError: bad\n```\n\n```\nopen fence\n```\n\n## Valves\n\nmore\n\n```\nraw\n```"
        )
        assert document.metadata == {"title": "Pumps"}
        assert chunk(document, CHARS)[-1].heading_path == ("Pumps", "Valves")

    def test_a_long_output_is_cut(self, tmp_path):
        outputs = [{"output_type": "stream", "text": "x" * 50_000}]
        assert len(read(tmp_path, notebook(("code", "1", {"outputs": outputs})), "a.ipynb").text) < 11_000

    @pytest.mark.parametrize(
        ("content", "status", "reason"),
        [
            (notebook(version=3), "failed", "a notebook of version 3; version 4 is read: save it with"),
            (notebook(), "empty", "it holds no text"),
            ('{"nbformat": 4}', "failed", "no list of cells"),
            ("[]", "failed", "no version"),
            ("{", "failed", "it is not JSON"),
            ("[" * 100_000, "failed", "it is not JSON"),
            (
                '{"nbformat": 4, "metadata": 7, "cells": [7, {"cell_type": "code", "source": {}, "outputs": 3}]}',
                "empty",
                "no text",
            ),
        ],
    )
    def test_what_is_no_notebook(self, tmp_path, content, status, reason):
        error = failure(tmp_path, content, "a.ipynb")
        assert error.status == status
        assert reason in error.reason


def make_points(monkeypatch, **points):
    made = [EntryPoint(name, value, "sqlrag.readers") for name, value in points.items()]
    monkeypatch.setattr(readers, "entry_points", lambda group: made if group == "sqlrag.readers" else [])
    readers.readers.cache_clear()


@pytest.fixture
def other_readers(monkeypatch):
    yield lambda **points: make_points(monkeypatch, **points)
    readers.readers.cache_clear()


LOG = readers.Reader(
    "text/x-log+markdown", (".log",), lambda data, doc_id, _: Document(doc_id, f"# Log\n\n{data.decode()}")
)
TAKEN = readers.Reader("text/x-mine", (".md", ".mine"), lambda data, doc_id, _: Document(doc_id, "mine"))


class TestReadersOfOtherPackages:
    def test_one_is_found_and_used(self, tmp_path, other_readers):
        other_readers(log=f"{__name__}:LOG")
        document = read(tmp_path, "pump started", "a.LOG")
        assert (document.text, document.mime) == ("# Log\n\npump started", "text/x-log+markdown")
        assert chunk(document, CHARS)[0].heading_path == ("Log",)
        assert [path.name for path in find_files(tmp_path)[0]] == ["a.LOG"]

    def test_ours_come_first(self, tmp_path, other_readers):
        other_readers(mine=f"{__name__}:TAKEN")
        with pytest.warns(UserWarning, match=r"The reader 'mine' .* is not used for \.md"):
            assert read(tmp_path, "x", "a.md").mime == "text/markdown"
        assert read(tmp_path, "x", "a.mine").text == "mine"

    def test_the_example_of_the_handbook_is_a_package(self, tmp_path, monkeypatch):
        page = blocks(HANDBOOK / "guides" / "reading-documents.md")
        code = next(block.text for block in page if "= Reader(" in block.text)
        points = next(tomllib.loads(block.text) for block in page if "entry-points" in block.text)
        info = tmp_path / "site" / "acme_logs-1.0.dist-info"
        info.mkdir(parents=True)
        (tmp_path / "site" / "acme_logs.py").write_text(code)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-logs\nVersion: 1.0\n")
        [(name, value)] = points["project"]["entry-points"]["sqlrag.readers"].items()
        (info / "entry_points.txt").write_text(f"[sqlrag.readers]\n{name} = {value}\n")
        monkeypatch.syspath_prepend(tmp_path / "site")
        readers.readers.cache_clear()
        try:
            (tmp_path / "docs").mkdir()
            (tmp_path / "docs" / "a.log").write_text("2025-01-31 10:00 pump started\n2025-02-01 11:00 pump stopped\n")
            (tmp_path / "docs" / "empty.log").write_text("\n")
            built = sqlrag.prepare_embeddings(tmp_path / "docs", tmp_path / "kb.duckdb", **HASHING)
            [found] = sqlrag.lexical_query("stopped", built.path)
            assert (found["text"], found["heading_path"]) == (
                "## 2025-02-01\n\n11:00 pump stopped",
                ["a.log", "2025-02-01"],
            )
            assert [(one.doc_id, one.status) for one in built.report.failures] == [("empty.log", "empty")]
            assert len([line for line in code.splitlines() if line.strip()]) <= 20
        finally:
            readers.readers.cache_clear()

    @pytest.mark.parametrize("value", ["no_such_module:X", f"{__name__}:CHARS", f"{__name__}:no_such_name"])
    def test_one_that_cannot_be_loaded_is_named_once(self, tmp_path, other_readers, value):
        other_readers(broken=value)
        with pytest.warns(UserWarning, match=r"The reader 'broken' \(.*\) cannot be loaded"):
            assert read(tmp_path, "x", "a.txt").text == "x"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert read(tmp_path, "x", "a.txt").text == "x"
