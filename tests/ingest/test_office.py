"""Office files, books, messages and reStructuredText; and what is wrong with such files."""

import builtins
import io
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest

import sqlrag
from sqlrag.errors import DocumentError
from sqlrag.ingest.chunk import chunk
from sqlrag.ingest.folder import read_document
from sqlrag.ingest.readers import packed as package
from sqlrag.ingest.readers import sections_of
from sqlrag.links import markdown_links
from sqlrag.types import ChunkPolicy
from tests.support.helpers import HASHING
from tests.support.office import book, item, p, packed, part, properties, row, shape, slides, word, word_table
from tests.support.office import workbook as xlsx
from tests.support.reading import failure, read

CHARS = ChunkPolicy(chunk_size=500, chunk_overlap=0, chunk_unit="chars")


class TestWord:
    def test_headings_below_a_title(self, tmp_path):
        body = (
            p("The Pump", "T")
            + p("Setup", "H1")
            + p("one")
            + p("Deep", "Own")
            + p("two")
            + p("By level", more='<w:outlineLvl w:val="0"/>')
        )
        document = read(tmp_path, word(body), "a.docx")
        assert document.text == "# The Pump\n\n## Setup\n\none\n\n### Deep\n\ntwo\n\n## By level"
        assert document.metadata == {"title": "The Pump"}
        assert sections_of(document)[-2].heading_path == ("The Pump", "Setup", "Deep")

    def test_properties(self, tmp_path):
        data = word(p("x"), **{"docProps/core.xml": properties("Pump & Co".replace("&", "&amp;"), "Ann")})
        document = read(tmp_path, data, "a.docx")
        assert document.metadata == {"title": "Pump & Co", "author": "Ann"}
        assert document.mime == "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
        rubbish = word(p("x"), **{"docProps/core.xml": properties("Microsoft Word - a.doc", "python-docx")})
        assert read(tmp_path, rubbish, "a.docx").metadata == {}

    def test_lists_tables_code_and_links(self, tmp_path):
        merged = f'<w:tc><w:tcPr><w:gridSpan w:val="2"/></w:tcPr>{p("wide")}</w:tc>'
        body = item("one") + item("inner", 1) + item("two") + p("between") + item("three")
        body += word_table(["a|b", "c"], [merged], ["1", f"<w:tc>{p('x')}{p('y')}</w:tc>"])
        body += word_table([f"<w:tc>{p('framed')}</w:tc>"]) + p("if x:", "Code") + p("  <b>", "Code")
        body += p('<w:hyperlink r:id="link"><w:r><w:t>see</w:t></w:r></w:hyperlink><w:r><w:tab/><w:t>*it*</w:t></w:r>')
        assert read(tmp_path, word(body), "a.docx").text == (
            "1. one\n   - inner\n2. two\n\nbetween\n\n3. three\n\n"
            "| a\\|b | c |\n| --- | --- |\n| wide |\n| 1 | x y |\n\n"
            "framed\n\n```\nif x:\n  <b>\n```\n\n[see](https://example.org/a) \\*it\\*"
        )

    def test_notes_equations_boxes_and_tracked_changes(self, tmp_path):
        notes = part("w:footnotes", f'<w:footnote w:id="7">{p("the note")}</w:footnote>')
        text = "<w:r><w:t>a</w:t></w:r><w:r><w:footnoteReference w:id='7'/></w:r>"
        text += "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:ins><w:r><w:t> new</w:t></w:r></w:ins>"
        text += "<m:oMath><m:r><m:t>x=</m:t></m:r><m:r><m:t>1</m:t></m:r></m:oMath>"
        text += "<w:r><w:rPr><w:vanish/></w:rPr><w:t>hidden</w:t></w:r>"
        box = f"<w:txbxContent>{p('boxed')}</w:txbxContent>"
        choices = f"<mc:Choice>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback>"
        text += f"<w:r><mc:AlternateContent>{choices}</mc:AlternateContent></w:r>"
        document = read(tmp_path, word(p(text), **{"word/footnotes.xml": notes}), "a.docx")
        assert document.text == "a[^1] new x= 1\n\nboxed\n\n[^1]: the note"

    def test_the_strict_variant_has_other_namespaces(self, tmp_path):
        data = word(p("Setup", "H1") + p("strict"))
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = {name: archive.read(name).decode() for name in archive.namelist()}
        changed = {
            n: t.replace("schemas.openxmlformats.org/wordprocessingml/2006", "purl.oclc.org/ooxml")
            for n, t in parts.items()
        }
        assert read(tmp_path, packed(changed), "a.docx").text == "# Setup\n\nstrict"


class TestSlides:
    def test_a_slide_is_a_page_and_its_title_a_heading(self, tmp_path):
        body = shape("first", (1, "inner"), place='type="body"')
        data = slides(
            shape("The Pump", place='type="ctrTitle"') + shape("12", place='type="sldNum"'),
            body + shape("Setup", place='type="title"'),
            shape("hidden"),
            "",
            shape("alone"),
            hidden=[3],
            notes={2: "say this"},
            title="PowerPoint Presentation",
        )
        document = read(tmp_path, data, "a.pptx")
        assert document.metadata == {"title": "The Pump", "author": "Ann"}
        found = [(c.page, c.heading_path, c.content) for c in chunk(document, CHARS)]
        assert found == [
            (1, ("The Pump",), "## The Pump"),
            (2, ("The Pump", "Setup"), "## Setup\n\n- first\n  - inner\n\n> say this"),
            (5, ("The Pump", "Slide 5"), "## Slide 5\n\nalone"),
        ]
        assert document.warnings == ("a.pptx: hidden slides are not read: 3",)

    def test_paragraphs_have_the_marks_and_numbers_of_their_lists(self, tmp_path):
        def text_box(*paragraphs, place=""):
            made = "".join(
                f'<a:p><a:pPr lvl="{level}">{bullet}</a:pPr><a:r><a:t>{words}</a:t></a:r></a:p>'
                for words, level, bullet in paragraphs
            )
            return f"<p:sp><p:nvSpPr><p:nvPr>{place}</p:nvPr></p:nvSpPr><p:txBody>{made}</p:txBody></p:sp>"

        number, four = '<a:buAutoNum type="arabicPeriod"/>', '<a:buAutoNum type="alphaLcPeriod" startAt="4"/>'
        box = text_box(
            ("intro", 0, ""), ("a", 0, number), ("in", 1, four), ("in", 1, four), ("b", 0, number), ("in", 1, four),
            ("out", 0, ""), ("c", 0, number),
        )  # fmt: skip
        body = text_box(
            ("intro", 0, "<a:buNone/>"), ("a", 0, ""), ("b", 0, '<a:buChar char="•"/>'), place='<p:ph type="body"/>'
        )
        assert read(tmp_path, slides(box + body), "a.pptx").text == (
            "## Slide 1\n\nintro\n\n1. a\n   4. in\n   5. in\n2. b\n   4. in\n\nout\n\n1. c\n\nintro\n\n- a\n- b"
        )

    def test_tables_charts_groups_and_pictures(self, tmp_path):
        cell = "<a:tc><p:txBody><a:p><a:r><a:t>{}</a:t></a:r></a:p></p:txBody></a:tc>"
        rows = "".join(f"<a:tr>{cell.format(a)}{cell.format(b)}</a:tr>" for a, b in [("Name", "Size"), ("x", "1")])
        frame = "<p:graphicFrame><a:graphic><a:graphicData>{}</a:graphicData></a:graphic></p:graphicFrame>"
        points = '<c:pt idx="0"><c:v>{}</c:v></c:pt>'.format
        series = (
            f"<c:ser><c:tx>{points('Sales')}</c:tx><c:cat>{points('May')}</c:cat><c:val>{points('7')}</c:val></c:ser>"
        )
        tree = frame.format(f"<a:tbl>{rows}</a:tbl>") + frame.format('<c:chart r:id="c"/>')
        tree += f"<p:grpSp>{shape('grouped')}</p:grpSp>"
        tree += '<p:pic><p:nvPicPr><p:cNvPr id="1" descr="A red pump"/></p:nvPicPr></p:pic>'
        chart = part("c:chartSpace", f"<c:chart>{series}</c:chart>")
        document = read(tmp_path, slides(tree, parts={"ppt/charts/chart1.xml": chart}), "a.pptx")
        assert document.text == (
            "## Slide 1\n\n| Name | Size |\n| --- | --- |\n| x | 1 |\n\n|  | Sales |\n| --- | --- |\n| May | 7 |\n\n"
            "grouped\n\nA red pump"
        )


class TestWorkbooks:
    def test_a_sheet_is_a_page_and_its_rows_tables(self, tmp_path):
        strings = ["<t>Name</t>", "<r><t>Si</t></r><r><t>ze</t></r><rPh><t>no</t></rPh>"]
        rows = (
            row(1, A=("inlineStr", "Stock of *pumps*"))
            + row(3, B=("s", 0), D=("s", 1))
            + row(4, B=("str", "x|y"), D=0.1)
        )
        rows += row(5, B=("b", 1), D="17.000000000000004") + row(6) + row(7, A=1, B=2)
        data = xlsx(
            ("One", rows),
            ("Secret", row(1, A=1)),
            ("Empty", ""),
            ("Last", row(1, A=5)),
            strings=strings,
            hidden=[2],
            title="Stock",
        )
        document = read(tmp_path, data, "a.xlsx")
        first = (
            "## One\n\nStock of \\*pumps\\*\n\n| Name | Size |\n| --- | --- |\n| x\\|y | 0.1 |\n| TRUE | 17 |\n\n"
            "| 1 | 2 |\n| --- | --- |"
        )
        assert [(c.page, c.heading_path, c.content) for c in chunk(document, CHARS)] == [
            (1, ("Stock", "One"), first),
            (4, ("Stock", "Last"), "## Last\n\n5"),
        ]
        assert document.warnings == ("a.xlsx: hidden sheets are not read: Secret",)

    @pytest.mark.parametrize(
        ("code", "value", "shown"),
        [
            ("yyyy\\-mm\\-dd", 45678, "2025-01-21"),
            ("dd.mm.yyyy hh:mm", 45678.5, "2025-01-21 12:00"),
            ("[$-409]h:mm AM/PM", 0.75, "18:00"),
            ("[h]:mm:ss", 1.25, "30:00"),
            ("[mm]:ss", -0.5001, "-12:00:09"),
            ("0.0%", 0.125, "12.5%"),
            ('0.00 "days"', 3, "3"),
            ("General", 1e21, "1e+21"),
            ("yyyy", -1e300, "-1e+300"),
        ],
    )
    def test_numbers_are_shown_as_their_format_says(self, tmp_path, code, value, shown):
        data = xlsx(("S", row(1, A=(0, value))), formats=[code.replace('"', "&quot;")])
        assert read(tmp_path, data, "a.xlsx").text == f"## S\n\n{shown}"

    def test_dates_from_1904(self, tmp_path):
        data = xlsx(("S", row(1, A=(0, 1))), formats=["yyyy-mm-dd"], more='<workbookPr date1904="1"/>')
        assert read(tmp_path, data, "a.xlsx").text == "## S\n\n1904-01-02"

    def test_cells_in_opposite_corners(self, tmp_path):
        rows = row(1, A=1) + row(2, A=1, XFD=2) + row(1_048_576, XFD=3)
        assert read(tmp_path, xlsx(("S", rows)), "a.xlsx").text == ("## S\n\n| 1 | |\n| --- | --- |\n| 1 | 2 |\n\n3")

    def test_a_wide_row_does_not_widen_thousands_of_others(self, tmp_path):
        wide = "".join(f'<c t="inlineStr"><is><t>h{i}</t></is></c>' for i in range(2_000))
        rows = f'<row r="1">{wide}</row>' + "".join(
            f'<row r="{i}"><c r="BXX{i}"><v>7</v></c></row>' for i in range(2, 3_000)
        )
        assert len(read(tmp_path, xlsx(("S", rows)), "a.xlsx").text) < 200_000

    def test_a_long_string_in_many_cells(self, tmp_path, monkeypatch):
        monkeypatch.setattr("sqlrag.ingest.readers.sheets.MAX_TEXT", 10_000)
        rows = "".join(row(i, A=("s", 0)) for i in range(1, 200))
        reason = failure(tmp_path, xlsx(("S", rows), strings=[f"<t>{'x' * 100}</t>"]), "a.xlsx").reason
        assert reason == "too large: its cells show more than 10,000 characters"


class TestBooks:
    def test_chapters_below_the_title_of_the_book(self, tmp_path):
        toc = '<navPoint><navLabel><text>Two</text></navLabel><content src="text/c%202.xhtml#x"/></navPoint>'
        chapters = [
            '<?xml version="1.0"?><html><head><title/></head><h1>One</h1><p>first</p><h2>Part</h2><p>x</p></html>',
            "<html><body><p>second</p></body></html>",
        ]
        document = read(tmp_path, book(*chapters, toc=toc), "a.epub")
        assert document.text == "## One\n\nfirst\n\n### Part\n\nx\n\n## Two\n\nsecond"
        assert document.metadata == {"title": "The Pump", "author": "Ann, Bo"}
        assert sections_of(document)[-2].heading_path == ("The Pump", "One", "Part")

    def test_a_protected_book(self, tmp_path):
        cipher = '<encryption><CipherData><CipherReference URI="OEBPS/text/c%201.xhtml"/></CipherData></encryption>'
        data = book("<p>x</p>", extra={"META-INF/encryption.xml": cipher})
        assert failure(tmp_path, data, "a.epub").reason == "protected (DRM): its chapters are encrypted"


MAIL = """From: Ann Kowalska <ann@example.org>
To: bo@example.org
Subject: =?utf-8?q?Die_Pumpe_l=C3=A4uft?=
Date: Mon, 2 Jun 2025 10:00:00 +0200
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=B

--B
Content-Type: multipart/alternative; boundary=A

--A
Content-Type: text/plain

plain version
--A
Content-Type: text/html; charset=iso-8859-1
Content-Transfer-Encoding: quoted-printable

<p>Pr=FCfen <a href=3D"https://example.org">hier</a></p>
--A--
--B
Content-Type: application/pdf
Content-Disposition: attachment; filename="pump.pdf"

JVBERi0=
--B
Content-Type: message/rfc822

Subject: Inner

older text
--B--
"""


class TestMail:
    def test_subject_text_attachments_and_what_is_forwarded(self, tmp_path):
        document = read(tmp_path, MAIL, "a.eml")
        assert document.text == (
            "# Die Pumpe läuft\n\nPrüfen [hier](https://example.org)\n\n- Attachment: pump.pdf\n\n"
            "## Inner\n\nolder text"
        )
        assert document.metadata["title"] == "Die Pumpe läuft"
        assert document.metadata["author"] == "Ann Kowalska <ann@example.org>"
        assert document.metadata["date"] == "2025-06-02T10:00:00+02:00"

    def test_a_day_that_is_not_there_stays_text(self, tmp_path):
        document = read(tmp_path, MAIL.replace("2 Jun 2025", "32 Jun 2025"), "a.eml")
        assert document.metadata["date"] == "Mon, 32 Jun 2025 10:00:00 +0200"

    @pytest.mark.slow
    def test_parts_without_end(self, tmp_path):
        nested = "Subject: x\n" + "".join(
            f"Content-Type: multipart/mixed; boundary=b{i}\n\n--b{i}\n" for i in range(1_000)
        )
        try:
            assert read(tmp_path, nested, "a.eml").text == "# x"
        except DocumentError as error:
            assert "nested too deeply" in error.reason  # noqa: PT017


RST = """
=====
Pumps
=====

.. toctree::
   :maxdepth: 2

   one

Use :ref:`the valve <valve>` and :class:`~pump.Valve`, see `docs <https://example.org>`_.

.. versionadded:: 2.0
   The *second* way.

Setup
-----

.. code-block:: python
   :linenos:

   if x < 1:
       pass

.. include:: /etc/hostname

.. raw:: html

   <b>raw</b>

.. list-table::

   * - a
     - b
"""


class TestReStructuredText:
    @pytest.mark.slow
    def test_with_directives_of_sphinx(self, tmp_path, capfd):
        document = read(tmp_path, RST, "a.rst")
        assert document.text == (
            "# Pumps\n\nUse the valve and pump.Valve, see [docs](https://example.org).\n\n"
            "Added in version 2.0 The second way.\n\n"
            "## Setup\n\n```python\nif x < 1:\n    pass\n```\n\n| a | b |\n| --- | --- |"
        )
        assert chunk(document, CHARS)[1].heading_path == ("Pumps", "Setup")
        assert capfd.readouterr() == ("", "")

    def test_notes_and_links_to_other_pages(self, tmp_path):
        text = "See :doc:`/b`, :doc:`the c <../c>`, :class:`.Pump` and [1]_.\n\n.. [1] Note\n"
        document = read(tmp_path, text, "a.rst")
        assert document.text.startswith("See [/b](/b), [the c](../c), Pump and [[1]](#footnote-1).\n")
        found = markdown_links(document.text, doc_id="x/a.rst")
        assert [link.target for link in found] == ["b", "c", "x/a.rst", "x/a.rst"]

    def test_standards_have_a_number_or_a_title(self, tmp_path):
        text = "An :pep:`iterator <234>`, :pep:`8#naming` and :rfc:`2822`, :pep:`no`.\n"
        assert read(tmp_path, text, "a.rst").text == (
            "An [iterator](https://peps.python.org/pep-0234), [PEP 8](https://peps.python.org/pep-0008) and "
            "[RFC 2822](https://datatracker.ietf.org/doc/html/rfc2822), PEP no."
        )

    def test_conditions_and_names_of_pictures_are_no_text(self, tmp_path):
        text = """.. only:: html

   Shown.

.. rst-class:: hidden

.. image:: a/b.png
   :align: center

.. figure:: c.svg
   :alt: valve

   Caption

.. toctree::

   x/y
"""
        assert read(tmp_path, text, "a.rst").text == "Shown.\n\n![valve](c.svg)\n\nCaption"

    def test_docutils_itself_is_as_before(self, tmp_path):
        from docutils.parsers.rst import directives, roles

        before = directives.directive, roles.role
        read(tmp_path, RST, "a.rst")
        assert (directives.directive, roles.role) == before

    def test_without_the_extra(self, tmp_path, monkeypatch):
        real = builtins.__import__

        def without(name, *rest):
            if name.startswith("docutils"):
                raise ImportError(name)
            return real(name, *rest)

        monkeypatch.setattr(builtins, "__import__", without)
        assert failure(tmp_path, RST, "a.rst").reason == (
            "Reading .rst files needs an optional package. Install it with: pip install 'sqlrag-duckdb[formats]'"
        )


BILLION = (
    """<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><document><body>&b;</body></document>"""
)
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(100)
LOCKED = OLE + "EncryptedPackage".encode("utf-16-le")


def encrypted_zip():
    data = bytearray(word(p("x")))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flag of each member, and in the directory
        at = data.find(mark)
        while at >= 0:
            data[at + offset] |= 1
            at = data.find(mark, at + 1)
    return bytes(data)


def lying_zip():
    """An archive whose directory says that a member is short."""
    data = bytearray(word(p("x" * 100_000)))
    at = data.index(b"word/document.xml", data.index(b"PK\x01\x02")) - 46
    data[at + 24 : at + 28] = (100).to_bytes(4, "little")
    return bytes(data)


class TestBadInput:
    @pytest.mark.parametrize(
        ("name", "content", "status", "reason"),
        [
            ("a.docx", b"", "empty", "the file is empty (0 bytes"),
            ("a.docx", "plain text", "failed", "the content is not a Word document: it is something else"),
            ("a.docx", b"%PDF-1.4", "failed", "it is a PDF"),
            ("a.xlsx", LOCKED, "failed", "encrypted: it needs a password; save a copy without one"),
            ("a.pptx", OLE, "failed", "it is of an older Office; save it in today's format"),
            ("a.docx", xlsx(("S", row(1, A=1))), "failed", "not a readable file, though it should be a Word document"),
            ("a.xlsx", word(p("x")), "failed", "though it should be an Excel workbook"),
            ("a.pptx", word(p("x")), "empty", "it holds no text"),
            ("a.epub", word(p("x")), "failed", "it has no part META-INF/container.xml"),
            ("a.docx", packed({"a.txt": "x"}), "failed", "it has no main part"),
            ("a.docx", word(p("x"))[:-30], "failed", "the archive is damaged"),
            ("a.docm", word(p("x"), **{"word/vbaProject.bin": b"x"}), "failed", "it holds macros"),
            ("a.docx", word(p("x"), **{"word/document.xml": BILLION}), "failed", "declares XML entities"),
            (
                "a.docx",
                word(p("x"), **{"word/document.xml": BILLION.encode("utf-16")}),
                "failed",
                "declares XML entities",
            ),
            ("a.docx", word("<w:sdt>" * 3_000 + "</w:sdt>" * 3_000), "failed", "nested too deeply"),
            ("a.docx", word(p("x"), **{"word/styles.xml": "<a>"}), "failed", "not a readable file"),
            ("a.docx", word(p("")), "empty", "it holds no text"),
            ("a.docx", word(p("x"), **{"word/media/a.bin": bytes(40_000_000)}), "failed", "and 200 times the file"),
            ("a.docx", encrypted_zip(), "failed", "needs a password"),
            ("a.docx", lying_zip(), "failed", "is damaged"),
            ("a.eml", "just some words\n", "failed", "it has none of its headers"),
            ("a.eml", "Subject:\n\n", "empty", "it holds no text"),
            ("a.rst", ".. comment", "empty", "it holds no text"),
            ("a.rst", b"%PDF-1.4", "failed", "it is a PDF"),
        ],
    )
    def test_the_reason_says_what_is_wrong(self, tmp_path, name, content, status, reason):
        error = failure(tmp_path, content, name)
        assert error.status == status
        assert reason in error.reason

    def test_limits(self, tmp_path, monkeypatch):
        monkeypatch.setattr(package, "MAX_UNPACKED", 1_000)
        assert "the limits are 1,000 and" in failure(tmp_path, word(p("x")), "a.docx").reason
        monkeypatch.undo()
        monkeypatch.setattr(package, "MAX_TREE", 100)
        assert "the limit is 100" in failure(tmp_path, word(p("x")), "a.docx").reason
        monkeypatch.undo()
        monkeypatch.setattr(package, "_MAX_MEMBERS", 3)
        assert "the limit is 3" in failure(tmp_path, word(p("x")), "a.docx").reason

    @pytest.mark.slow
    def test_a_run_goes_on_and_reports_each(self, tmp_path):
        root = tmp_path / "docs"
        root.mkdir()
        for name, content in {
            "good.docx": word(p("Setup", "H1") + p("the red pump")),
            "locked.xlsx": LOCKED,
            "macros.docm": word(p("x"), **{"word/vbaProject.bin": b"x"}),
            "wrong.pptx": b"text",
            "bomb.docx": word(p("x"), **{"word/media/a.bin": bytes(40_000_000)}),
            "deck.pptx": slides(shape("Valves", place='type="title"') + shape("the blue valve")),
        }.items():
            (root / name).write_bytes(content)
        report = sqlrag.prepare_embeddings(root, tmp_path / "kb.duckdb", **HASHING).report
        assert (report.documents, report.failed, report.skipped) == (2, 4, [])
        assert {one.doc_id for one in report.failures} == {"locked.xlsx", "macros.docm", "wrong.pptx", "bomb.docx"}
        [found] = sqlrag.lexical_query("blue", tmp_path / "kb.duckdb")
        assert (found["doc_id"], found["page"], found["heading_path"]) == ("deck.pptx", 1, ["Valves"])

    def test_uploads_take_the_same_suffixes(self, tmp_path):
        (tmp_path / "a.md").write_text("# A\n\nx")
        sqlrag.prepare_embeddings(tmp_path, tmp_path / "kb.duckdb", **HASHING)
        given = {"b.docx": word(p("the green pump")), "c.xlsx": LOCKED, "d.odt": b"x"}
        report = sqlrag.add_documents(given, tmp_path / "kb.duckdb")
        assert report.added == ["b.docx"]
        assert {one.doc_id for one in report.failures} == {"c.xlsx", "d.odt"}


def test_the_same_bytes_give_the_same_text_in_threads(tmp_path):
    contents = {
        "a.docx": word(p("Setup", "H1") + item("one") + word_table(["a", "b"])),
        "a.pptx": slides(shape("T", place='type="title"')),
        "a.xlsx": xlsx(("S", row(1, A=1, B=2))),
        "a.epub": book("<h1>One</h1><p>x</p>"),
        "a.rst": RST.encode(),
        "a.eml": MAIL.encode(),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    names = list(contents) * 5
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda name: read_document(tmp_path / name, tmp_path).text, names))
    assert made == [read_document(tmp_path / name, tmp_path).text for name in names]
