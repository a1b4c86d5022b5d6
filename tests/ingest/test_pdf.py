"""PDF: which engine reads what, garbage, forms and annotations, metadata, limits, and the process that reads."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
import time
import unicodedata

import pytest
from fpdf import FPDF
from pypdf import PdfReader, PdfWriter
from pypdf.annotations import FreeText, Highlight, Text
from pypdf.generic import ArrayObject, DictionaryObject, FloatObject, NameObject, NumberObject, TextStringObject

from sqlrag import add_documents, lexical_query
from sqlrag.cancellation import Stopped, Work
from sqlrag.errors import DocumentError, InputError
from sqlrag.ingest.readers import pdf
from sqlrag.ingest.readers.pdf import Page, read_pdf
from sqlrag.ingest.readers.pdf_worker import answer
from sqlrag.settings import Limits
from tests.support import garbage_pdfs
from tests.support.helpers import DATA, build

ENGINES = ("pypdfium2", "pypdf")
SENTENCE = garbage_pdfs.SENTENCES[0]


def written(*texts, **metadata):
    made = FPDF()
    made.set_font("helvetica", size=10)
    for text in texts:
        made.add_page()
        made.multi_cell(0, text=text)
    for name, value in metadata.items():
        getattr(made, f"set_{name}")(value)
    return bytes(made.output())


def saved(writer):
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def reason(data, **options):
    with pytest.raises(DocumentError) as caught:
        read_pdf(data, "a.pdf", **options)
    return caught.value.reason


def pages_by(engine, data, **options):
    *pages, whole = answer(data, engine, 100, 10**6, **options)
    assert "error" not in whole, whole
    return [part["text"] for part in pages]


# T10: text that is none.


@pytest.mark.parametrize("name", sorted(garbage_pdfs.GARBAGE))
def test_fault_T10_garbage_is_a_failure(name):
    data = garbage_pdfs.GARBAGE[name]()
    assert reason(data).startswith("text cannot be decoded: its fonts have no map to Unicode")


@pytest.mark.parametrize("name", sorted(garbage_pdfs.ODD))
def test_fault_T10_characters_that_are_no_words_have_a_warning(name):
    assert read_pdf(garbage_pdfs.ODD[name](), "a.pdf").warnings == (
        "a.pdf: page 1: the words look like those of no language; the text may be garbage",
    )


@pytest.mark.parametrize(
    "text",
    [
        SENTENCE * 3,
        "Sprawdź pompę, zanim włączysz silnik, i wpisz ciśnienie do książki, gdyż zawór pozostaje zamknięty. " * 3,
        "Kiểm tra máy bơm trước khi khởi động động cơ và ghi áp suất vào sổ; van thứ hai vẫn đóng. " * 3,
        "The mRNA, the tRNA and the rRNA of the cell were found by qPCR and by dPCR. " * 3,
        "NÃO ABRA A TAMPA ANTES QUE O MOTOR PARE; A VEDAÇÃO, A PRESSÃO E A MANUTENÇÃO. ",
        "检查水泵后再启动发动机并将压力写入手册第二台水泵的阀门保持关闭",
        "檢查水泵後再啟動發動機並將壓力寫入手冊第二台水泵的閥門保持關閉",
        "エンジンを始動する前にポンプを点検し圧力を記録簿に書き込む第二弁は閉じたまま",
        "엔진을 시동하기 전에 펌프를 점검하고 압력을 기록하십시오 두 번째 펌프의 밸브는 닫혀 있습니다",
        "ПРОВЕРЬТЕ НАСОС перед пуском двигателя и запишите давление в журнал. iPHONE",
    ],
)
def test_fault_T10_words_of_languages_are_not_odd(text):
    assert not Page(text).is_odd
    assert not Page(unicodedata.normalize("NFD", text)).is_odd


def test_fault_T10_the_same_files_with_a_right_map_are_read():
    """What makes the others garbage is the map alone."""
    font = garbage_pdfs.TYPE0 % (b"Identity-H", b" /ToUnicode 8 0 R")
    right = garbage_pdfs.cmap(lambda code: code - 3 + garbage_pdfs.FIRST, 3, 97, 4)
    data = garbage_pdfs.page(font, garbage_pdfs.glyphs, garbage_pdfs.CID_FONT, garbage_pdfs.DESCRIPTOR % b"", right)
    document = read_pdf(data, "a.pdf")
    assert document.text == "\n".join(garbage_pdfs.SENTENCES)
    assert document.warnings == ()


def test_fault_T10_a_page_of_garbage_is_left_out_and_named():
    writer = PdfWriter(PdfReader(io.BytesIO(written(SENTENCE * 9, "the second", SENTENCE * 9))))
    writer.insert_page(PdfReader(io.BytesIO(garbage_pdfs.private_use())).pages[0], 1)
    document = read_pdf(saved(writer), "a.pdf")
    assert "\ue026" not in document.text
    assert len(document.page_starts) == 4
    assert document.text[document.page_starts[2] :].startswith("the second")
    assert document.warnings[0].startswith("a.pdf: page 2 left out: text cannot be decoded")


def test_fault_T10_what_one_engine_reads_as_garbage_the_other_may_read():
    """Glyphs numbered from 1 on, with names of characters and no widths: PDFium takes the codes."""
    letters = sorted(set("Check the pump"))
    names = {" ": "space"}
    differences = b" ".join(b"/%b" % names.get(letter, letter).encode() for letter in letters)
    drawings = b" ".join(b"/%b 6 0 R" % names.get(letter, letter).encode() for letter in letters)
    font = (
        b"<</Type /Font /Subtype /Type3 /FontBBox [0 0 500 700] /FontMatrix [.001 0 0 .001 0 0] /FirstChar 1 /LastChar "
        b"%d /Widths [%b] /Encoding <</Differences [1 %b]>> /CharProcs <<%b>> /Resources <<>>>>"
        % (len(letters), b" ".join([b"500"] * len(letters)), differences, drawings)
    )
    data = garbage_pdfs.page(
        font,
        lambda _: garbage_pdfs.literal("".join(chr(1 + letters.index(letter)) for letter in "Check the pump")),
        garbage_pdfs.stream(b"500 0 0 0 500 700 d1 0 0 400 700 re f"),
    )
    readings = {engine: "\n".join(pages_by(engine, data)) for engine in ENGINES}
    assert "Check the pump" in readings["pypdf"]
    assert "Check the pump" in read_pdf(data, "a.pdf").text


@pytest.mark.parametrize(
    ("text", "guessed", "garbage"),
    [
        (SENTENCE, "", False),
        ("\uf0b7 Bullet one\n\uf0b7 Bullet two", "", False),  # bullets of a symbol font
        ("\uf8f2\uf8f3", "", True),
        ("price \ufffd\ufffd\ufffd list", "", True),
        ("/G43/G68/G65/G63/G6B", "", True),
        ("see /etc/ssl/certs and /usr/lib", "", False),
        ("ÄãºÃ ÊÀ½ç", "", True),  # GBK as Latin-1
        ("à la fenêtre où l'été s'achève, très âgé", "", False),
        ("Það er ekki öll vitleysan eins, sögðu þær", "", False),
        ("Ђурђевдан и Њујорк", "", False),
        ("データ QRコード API를 東京", "", False),
        ("Arabic عربي Azeri AZƏRBAYCAN Bangla বাংলা 中文网 Hindi हिन्दी नेपाली КЫРГЫЗ", "", False),
        ("/usr/lib/abc/ace/face/dead and /g12/g3/g17/GFA", "", True),
        ("/usr/lib/abc/ace/face/dead", "", False),
        ("сheck тhe pumр ΐͷঝख", "", True),
        ("Check the pump", "Check the pump", False),  # no map, but the right guess
        ("Výbava na přání", "Výbava na přání", False),
        ("разве не выражает «глубокого», челове.", "разве не выражает «глубокого», челове.", False),
        ("人民共和国 こんにちは", "人民共和国 こんにちは", False),
        ("حَبيبي", "حَبيبي", False),
        ("1.5 2.5 3.5", "1.5 2.5 3.5", False),
        ("9ROXPHV", "9ROXPHV", True),  # Volumes, each letter 29 less
        ("&KHFN WKH SXPS", "&KHFN WKH SXPS", True),
        ("ǡǼǱǺ ǓǯǯǱ", "ǡǼǱǺ ǓǯǯǱ", True),
        ("킜킰톁톁킰", "킜킰톁톁킰", True),
    ],
)
def test_fault_T10_what_is_garbage(text, guessed, garbage):
    assert Page(text, guessed).is_garbage is garbage


def test_fault_T10_words_without_blanks_are_named():
    glued = "".join(SENTENCE.split()) * 3
    assert Page(glued).is_glued
    assert not Page(SENTENCE * 3).is_glued
    assert not Page("人民共和国" * 60).is_glued


@pytest.mark.skipif(not DATA.exists(), reason="the sample PDFs are not beside the project")
def test_fault_T10_no_sample_is_garbage():
    paths = sorted((DATA / "docs" / "pdf-samples").rglob("*.pdf"))
    assert len(paths) == 31
    texts = []
    for path in paths:
        try:
            texts.append(read_pdf(path.read_bytes(), path.name))
        except DocumentError:
            continue
    assert len(texts) == 24
    for document in texts:
        assert not Page(document.text).is_garbage, document.doc_id
        assert not [warning for warning in document.warnings if "garbage" in warning or "left out" in warning]


# T14: forms, annotations, and passwords that no page needs.


def with_field(value, *, parent=False, flags=0, kind="/Tx"):
    writer = PdfWriter(PdfReader(io.BytesIO(written("Name of the pump:"))))
    page = writer.pages[0]
    field = {
        "/FT": NameObject(kind),
        "/T": TextStringObject("pump"),
        "/V": TextStringObject(value),
        "/DA": TextStringObject("/Helv 10 Tf 0 g"),
        "/Ff": NumberObject(flags),
    }
    widget = DictionaryObject({NameObject(key): item for key, item in ({} if parent else field).items()})
    widget.update(
        {
            NameObject("/Type"): NameObject("/Annot"),
            NameObject("/Subtype"): NameObject("/Widget"),
            NameObject("/Rect"): ArrayObject([FloatObject(n) for n in (100, 700, 300, 720)]),
        }
    )
    reference = top = writer._add_object(widget)
    if parent:
        whole = DictionaryObject({NameObject(key): item for key, item in field.items()})
        whole[NameObject("/Kids")] = ArrayObject([reference])
        top = writer._add_object(whole)
        widget[NameObject("/Parent")] = top
    page[NameObject("/Annots")] = ArrayObject([reference])
    writer._root_object[NameObject("/AcroForm")] = DictionaryObject({NameObject("/Fields"): ArrayObject([top])})
    return saved(writer)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("parent", [False, True])
def test_fault_T14_the_value_of_a_field_is_text_once(engine, parent):
    (text,) = pages_by(engine, with_field("Grundfos 7", parent=parent))
    assert text.count("Grundfos 7") == 1
    assert text.startswith("Name of the pump:")


@pytest.mark.parametrize("engine", ENGINES)
def test_fault_T14_a_password_in_a_field_is_no_text(engine):
    (text,) = pages_by(engine, with_field("secret", flags=1 << 13))
    assert "secret" not in text


@pytest.mark.parametrize("engine", ENGINES)
def test_fault_T14_annotations_are_text_at_their_page(engine):
    writer = PdfWriter(PdfReader(io.BytesIO(written("first page", "second page"))))
    rect = (100, 600, 300, 640)
    writer.add_annotation(1, Text(rect=rect, text="replace the seal"))
    writer.add_annotation(1, Text(rect=rect, text="replace the seal"))
    writer.add_annotation(1, FreeText(rect=rect, text="mind the gap"))
    quads = ArrayObject([FloatObject(n) for n in (100, 640, 300, 640, 100, 600, 300, 600)])
    writer.add_annotation(1, Highlight(rect=rect, quad_points=quads))
    first, second = pages_by(engine, saved(writer))
    assert first.strip() == "first page"
    assert [line.strip() for line in second.splitlines()] == ["second page", "replace the seal", "mind the gap"]


def test_fault_T14_a_form_of_values_alone_is_read():
    made = with_field("Grundfos 7")
    writer = PdfWriter(PdfReader(io.BytesIO(made)))
    writer.pages[0].pop("/Contents")
    assert read_pdf(saved(writer), "a.pdf").text == "Grundfos 7"


@pytest.mark.parametrize("pages_too", [False, True])
def test_fault_T14_only_pages_need_a_password(pages_too):
    """Encrypted attachments alone (/EFF) do not."""
    data = garbage_pdfs.pages_of_one(1, b"BT /F1 9 Tf 1 0 0 1 40 700 Tm (Check the pump) Tj ET")
    encryption = (
        b"<</Filter /Standard /V 4 /R 4 /Length 128 /P -4 /EncryptMetadata false /O <%b> /U <%b> /StmF /%b /StrF /%b "
        b"/EFF /StdCF /CF <</StdCF <</AuthEvent /EFOpen /CFM /AESV2 /Length 16>>>>>>"
    ) % (b"ab" * 32, b"cd" * 32, *((b"StdCF",) * 2 if pages_too else (b"Identity",) * 2))
    data = data.replace(b"/Root 1 0 R", b"/Root 1 0 R /ID [<00><00>] /Encrypt " + encryption)
    if pages_too:
        assert reason(data) == "encrypted: it needs a password; save a copy without one"
    else:
        assert read_pdf(data, "a.pdf").text == "Check the pump"


# T15: what one engine refuses.


@pytest.mark.parametrize("cut", [b"startxref", b"xref\n"])
def test_fault_T15_a_damaged_end_does_not_matter(cut):
    data = written(SENTENCE)
    damaged = data[: data.rindex(cut)]
    assert read_pdf(damaged, "a.pdf").text == SENTENCE


def test_fault_T15_what_pdfium_refuses_pypdf_reads(monkeypatch):
    asked = pdf._asked

    def refuses(data, seconds, *, engine, **request):
        if engine == "pypdfium2":
            return [{"error": "PdfiumError: Failed to load document.", "kind": "unreadable"}]
        return asked(data, seconds, engine=engine, **request)

    monkeypatch.setattr(pdf, "_asked", refuses)
    document = read_pdf(written(SENTENCE, "two", title="Pumps"), "a.pdf")
    assert (document.text, document.page_starts) == (f"{SENTENCE}\n\ntwo", (0, len(SENTENCE) + 2))
    assert document.metadata == {"title": "Pumps"}


def test_fault_T15_what_nobody_reads_says_why():
    assert reason(b"%PDF-1.7\nnothing more").startswith("not a readable PDF (PdfStreamError: ")


# T16: limits.


def test_fault_T16_the_same_page_named_often_costs_little():
    content = b"BT /F1 9 Tf " + b"1 0 0 1 10 50 Tm (pump) Tj " * 2000 + b"ET"
    data = garbage_pdfs.pages_of_one(30, content)
    assert len(data) < 1500
    document = read_pdf(data, "a.pdf")
    assert len(document.page_starts) == 30
    assert len(document.text) < 300


def test_fault_T16_pages_are_limited(monkeypatch):
    data = garbage_pdfs.pages_of_one(20_001, b"BT /F1 9 Tf (pump) Tj ET")
    assert reason(data).startswith("too large: 20,001 pages, the limit is 20,000; split it or raise SQLRAG_MAX_PAGES")
    monkeypatch.setenv("SQLRAG_MAX_PAGES", "2")
    assert len(read_pdf(written("a", "b"), "a.pdf").page_starts) == 2
    assert "3 pages, the limit is 2" in reason(written("a", "b", "c"))


@pytest.mark.parametrize("engine", ENGINES)
def test_fault_T16_characters_are_limited(engine, monkeypatch):
    *pages, whole = answer(written("x" * 60, "y" * 60, "z" * 60), engine, 100, 100)
    assert [part["text"].strip() for part in pages] == ["x" * 60]
    assert whole["kind"] == "limit"
    monkeypatch.setenv("SQLRAG_MAX_CHARACTERS", "100")
    assert "more than 100 characters; split it or raise SQLRAG_MAX_CHARACTERS" in reason(written("x" * 60, "y" * 60))


@pytest.mark.slow
@pytest.mark.alone
def test_fault_T16_seconds_are_limited_within_a_page(monkeypatch):
    monkeypatch.setenv("SQLRAG_MAX_SECONDS", "30")
    begun = time.monotonic()
    why = reason(garbage_pdfs.nested_forms(26))
    assert time.monotonic() - begun < 20
    assert why.startswith("takes too long to read: more than 1.5")
    assert why.endswith(" bytes; split it or raise SQLRAG_MAX_SECONDS")
    assert read_pdf(written("next"), "a.pdf").text == "next"


@pytest.mark.slow
@pytest.mark.alone
def test_fault_T16_a_page_has_a_limit_of_its_own(monkeypatch):
    read_pdf(written("start the process"), "a.pdf")
    monkeypatch.setattr(pdf, "PAGE_SECONDS", 1)
    assert reason(garbage_pdfs.nested_forms(26)) == "takes too long to read: page 1 takes more than 1 seconds"


@pytest.mark.slow
def test_fault_T16_uploads_have_the_same_limits(tmp_path, monkeypatch):
    monkeypatch.setenv("SQLRAG_MAX_PAGES", "2")
    path = build(tmp_path, a_md="alpha")
    report = add_documents({"b.pdf": written("a", "b", "c"), "c.pdf": written("gamma")}, path)
    assert [(failure.doc_id, "3 pages, the limit is 2" in failure.reason) for failure in report.failures] == [
        ("b.pdf", True)
    ]
    assert [row["doc_id"] for row in lexical_query("gamma", path)] == ["c.pdf"]


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", "nan"])
def test_fault_T16_a_limit_that_is_none_is_an_error(value, monkeypatch):
    monkeypatch.setenv("SQLRAG_MAX_PAGES", value)
    with pytest.raises(InputError, match="SQLRAG_MAX_PAGES must be a whole number above 0"):
        Limits.from_environment()


def test_limits_of_the_environment(monkeypatch):
    assert Limits.from_environment() == Limits(20_000, 50_000_000, 600)
    for name, value in (("PAGES", "7"), ("CHARACTERS", "1_000"), ("SECONDS", "2.5")):
        monkeypatch.setenv(f"SQLRAG_MAX_{name}", value)
    assert Limits.from_environment() == Limits(7, 1000, 2.5)


# Title and author.


@pytest.mark.parametrize(
    ("title", "kept"),
    [
        ("Pump  maintenance", "Pump maintenance"),
        ("Handbuch für Pumpen, 3. Auflage", "Handbuch für Pumpen, 3. Auflage"),
        ("Word processing in the 1980s", "Word processing in the 1980s"),
        ("Untitled", ""),
        ("untitled-1", ""),
        ("Microsoft Word - manual final.doc", ""),
        ("manual_v3.docx", ""),
        ("C:\\temp\\x", ""),
        ("   ", ""),
        ("- 12 -", ""),
        ("\ufffd\ufffd\ufffd pump", ""),
        ("ÄãºÃ ÊÀ½ç", ""),
        ("x" * 301, ""),
    ],
)
def test_the_title_is_kept_where_it_is_one(title, kept):
    assert read_pdf(written("text", title=title), "a.pdf").metadata.get("title", "") == kept


def test_title_and_author_are_metadata(tmp_path):
    document = read_pdf(written("text", title="Pumps", author="Ada Lovelace"), "a.pdf")
    assert document.metadata == {"title": "Pumps", "author": "Ada Lovelace"}
    assert document.text == "text"


# Text.


def test_a_word_that_was_divided_at_the_end_of_a_line_is_one_word():
    data = garbage_pdfs.pages_of_one(
        1, b"BT /F1 12 Tf 1 0 0 1 40 700 Tm (Check the main-) Tj 1 0 0 1 40 686 Tm (tenance of the South-) Tj "
        b"1 0 0 1 40 672 Tm (East pump) Tj ET"
    )  # fmt: skip
    assert read_pdf(data, "a.pdf").text == "Check the maintenance of the South-\nEast pump"


def test_lines_do_not_end_with_blanks():
    assert Page("one \r\ntwo\t \r\n\r\nthree").text == "one\ntwo\n\nthree"


# The process.


def test_any_thread_reads_the_same_text():
    data = [written(*(f"{SENTENCE} {i} {n}" for n in range(5))) for i in range(4)]
    expected = [read_pdf(one, "a.pdf").text for one in data]
    found = {}

    def read(number):
        found[number] = [read_pdf(data[(number + i) % 4], "a.pdf").text for i in range(4)]

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [expected[(number + i) % 4] for i in range(4)] for number in range(4)}
    assert len(pdf._idle) == 1


@pytest.mark.rest
def test_a_process_that_dies_is_replaced(monkeypatch):
    read_pdf(written("first"), "a.pdf")
    (worker,) = pdf._idle
    worker.process.kill()
    worker.process.wait()
    assert read_pdf(written("second"), "a.pdf").text == "second"
    pdf._end_idle()
    monkeypatch.setattr(pdf._Worker, "_exchange", lambda self, data, request, lines: lines.put(b""))
    assert reason(written("third")) == "not a readable PDF (the parser crashed, or needs too much memory)"


def test_no_module_of_the_callers_folder_is_taken_for_one_of_python(tmp_path, monkeypatch):
    for name in ("site", "json", "io"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    pdf._end_idle()
    assert read_pdf(written("here"), "a.pdf").text == "here"
    pdf._end_idle()
    for name in ("pypdf", "pypdfium2"):  # those that the caller would import
        (tmp_path / f"{name}.py").write_text("raise ImportError('as the caller finds it')")
    assert "as the caller finds it" in reason(written("here"))
    pdf._end_idle()


def test_a_frozen_program_has_no_python_to_start(monkeypatch):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(pdf, "_idle", [])
    assert read_pdf(written("here"), "a.pdf").text == "here"
    assert pdf._idle == []


@pytest.mark.skipif(not hasattr(signal, "alarm"), reason="only where there are alarms")
def test_the_process_ends_without_who_asked(monkeypatch):
    worker = pdf._Worker()
    request = {"engine": "pypdfium2", "max_pages": 9, "max_characters": 99, "size": 0, "seconds": -59}
    worker.stdin.write(json.dumps(request).encode() + b"\n")  # the document is never sent
    worker.stdin.write(json.dumps(request | {"size": 1}).encode() + b"\n")
    worker.stdin.flush()
    assert worker.process.wait(20) == -signal.SIGALRM
    worker.close()


def test_a_cancelled_reading_ends_its_process():
    read_pdf(written("first"), "a.pdf")
    (worker,) = pdf._idle
    work = Work()
    threading.Timer(0.3, work.stop).start()
    with pytest.raises(Stopped), work.under_way():
        read_pdf(garbage_pdfs.nested_forms(26), "a.pdf")
    assert worker.process.returncode is not None
    assert pdf._idle == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_starts_its_own():
    read_pdf(written("parent"), "a.pdf")
    child = os.fork()
    if not child:
        try:
            os._exit(0 if not pdf._idle and read_pdf(written("child"), "a.pdf").text == "child" else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert read_pdf(written("parent again"), "a.pdf").text == "parent again"
