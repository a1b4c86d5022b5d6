"""Finding files and reading them."""

import base64
import codecs
import hashlib
import io
import itertools
import json
import logging
import os
import random
import warnings
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from fpdf import FPDF
from pypdf import PageObject, PdfReader, PdfWriter

from sqlrag.errors import DocumentError, InputError, NotFoundError
from sqlrag.ingest.chunk import chunk
from sqlrag.ingest.folder import document_id, find_files, read_document
from sqlrag.ingest.readers import pdf
from sqlrag.ingest.readers.pdf_worker import answer
from sqlrag.normalize import normalize
from sqlrag.types import ChunkPolicy
from tests.support.helpers import DATA

CHARS = ChunkPolicy(chunk_size=500, chunk_overlap=0, chunk_unit="chars")


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def read(tmp_path, content, name="a.md", **options):
    return read_document(write(tmp_path / name, content), tmp_path, **options)


def failure(tmp_path, content, name="a.md", **options):
    with pytest.raises(DocumentError) as caught:
        read(tmp_path, content, name, **options)
    assert caught.value.doc_id == name
    return caught.value


def pdf_bytes(*pages):
    made = FPDF()
    made.set_font("helvetica")
    for text in pages:
        made.add_page()
        if text:
            made.cell(text=text)
    return bytes(made.output())


def encrypted(data, **passwords):
    writer = PdfWriter(PdfReader(io.BytesIO(data)))
    writer.encrypt(**passwords)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


# Finding.


def names(files, root):
    return [path.relative_to(root).as_posix() for path in files]


def test_files_are_found_at_any_depth_in_order(tmp_path):
    for name in ("b.md", "a/z.txt", "a/b/c.PDF", "a.markdown", "a-b/x.Md", "B.txt", "é.md"):
        write(tmp_path / name, "x")
    files, skipped = find_files(tmp_path)
    assert names(files, tmp_path) == ["B.txt", "a-b/x.Md", "a.markdown", "a/b/c.PDF", "a/z.txt", "b.md", "é.md"]
    assert skipped == []


def test_each_skipped_file_has_its_reason(tmp_path):
    root = tmp_path / "root"
    outside = write(tmp_path / "outside" / "secret.md", "x")
    write(root / "ok.md", "x")
    write(root / "photo.JPG", "x")
    write(root / "Makefile", "x")
    write(root / ".hidden.md", "x")
    write(root / ".git" / "deep" / "x.md", "x")
    write(root / "sub" / "y.md", "x")
    (root / "dead.md").symlink_to("nowhere.md")
    (root / "loop.md").symlink_to("loop.md")
    (root / "out.md").symlink_to(outside)
    (root / "outfolder").symlink_to(outside.parent)
    (root / "again").symlink_to("sub")
    (root / "up").symlink_to(".")
    (root / "twin.md").symlink_to("ok.md")
    (root / "folder.md").mkdir()
    os.mkfifo(root / "pipe.md")
    files, skipped = find_files(root)
    assert names(files, root) == ["ok.md", "sub/y.md", "twin.md"]
    assert [(s.path, s.reason) for s in skipped] == [
        (".git/deep/x.md", "hidden"),
        (".hidden.md", "hidden"),
        ("Makefile", "no suffix"),
        ("again", "a link to a folder inside the input folder, read at its own place"),
        ("dead.md", "a link to nothing"),
        ("loop.md", "a link to nothing"),
        ("out.md", "a link that leads out of the input folder"),
        ("outfolder", "a link that leads out of the input folder"),
        ("photo.JPG", "unsupported suffix '.JPG'"),
        ("pipe.md", "not a regular file"),
        ("up", "a link to a folder inside the input folder, read at its own place"),
    ]


def test_a_folder_that_cannot_be_listed_is_named(tmp_path, monkeypatch):
    write(tmp_path / "locked" / "a.md", "x")
    write(tmp_path / "b.md", "x")
    scandir = os.scandir

    def refusing(path):
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    files, skipped = find_files(tmp_path)
    assert names(files, tmp_path) == ["b.md"]
    assert skipped == [("locked", "unreadable folder: Permission denied")]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["*.md"], ["a.md", "guides/b.md"]),
        ("*.md", ["a.md", "guides/b.md"]),
        (["**/*.md"], ["a.md", "guides/b.md"]),
        (["guides/*"], ["guides/b.md", "guides/c.txt"]),
        (["a.*", "c.*"], ["a.md", "guides/c.txt"]),
        ([], []),
    ],
)
def test_patterns_keep_what_matches(tmp_path, patterns, expected):
    for name in ("a.md", "guides/b.md", "guides/c.txt"):
        write(tmp_path / name, "x")
    files, skipped = find_files(tmp_path, patterns=patterns)
    assert names(files, tmp_path) == expected
    assert {s.reason for s in skipped} <= {"matches none of the patterns"}
    assert len(files) + len(skipped) == 3


def test_two_spellings_of_one_name_do_not_collide(tmp_path):
    write(tmp_path / "caf\u00e9.md", "composed")
    write(tmp_path / "cafe\u0301.md", "decomposed")
    files, skipped = find_files(tmp_path)
    assert len(files) == 1
    assert [s.path for s in skipped] == ["caf\u00e9.md"]
    assert "same name" in skipped[0].reason


def test_a_name_that_is_no_utf8_can_be_stored(tmp_path):
    name = os.fsdecode(b"caf\xe9.md")
    try:
        write(tmp_path / name, "text")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    (path,) = find_files(tmp_path)[0]
    document = read_document(path, tmp_path)
    assert (document.doc_id, document.file_name) == ("caf\ufffd.md", "caf\ufffd.md")
    assert document.file_path.encode("utf-8")


def test_a_wrong_input_folder_is_explained(tmp_path):
    with pytest.raises(NotFoundError, match="does not exist"):
        find_files(tmp_path / "missing")
    file = write(tmp_path / "a.md", "x")
    with pytest.raises(InputError, match=r"is a file, not a folder; pass the folder that holds it"):
        find_files(file)
    with pytest.raises(InputError, match="blank"):
        find_files("")
    with pytest.raises(NotFoundError, match="~nobody-of-that-name"):
        find_files("~nobody-of-that-name/notes")


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "notes" / "a.md", "x")
    (path,) = find_files("~/notes")[0]
    assert read_document(path, "~/notes").doc_id == "a.md"
    assert read_document("~/notes/a.md", "~/notes").file_path == path.as_posix()


def test_case_A12_hidden_parents_do_not_matter(tmp_path):
    root = tmp_path / ".kb" / "notes"
    write(root / "a.md", "x")
    write(root / ".git" / "x.md", "x")
    files, skipped = find_files(root)
    assert names(files, root) == ["a.md"]
    assert skipped == [(".git/x.md", "hidden")]


def test_case_A13_ids_do_not_depend_on_the_working_directory(tmp_path, monkeypatch):
    write(tmp_path / "kb" / "a" / "README.md", "mango")
    write(tmp_path / "kb" / "b" / "README.md", "lychee")

    def documents(root):
        return [read_document(path, root) for path in find_files(root)[0]]

    expected = documents(tmp_path / "kb")
    assert [d.doc_id for d in expected] == ["a/README.md", "b/README.md"]
    monkeypatch.chdir(tmp_path)
    assert documents("kb") == expected
    assert documents("./kb/a/../") == expected
    monkeypatch.chdir(tmp_path / "kb" / "a")
    assert documents("..") == expected


def test_ids_name_the_collection_and_stay_inside(tmp_path):
    write(tmp_path / "in" / "cafe\u0301.md", "x")
    assert document_id(tmp_path / "in" / "cafe\u0301.md", tmp_path / "in") == "caf\u00e9.md"
    assert document_id(tmp_path / "in" / "a.md", tmp_path / "in", collection="notes") == "notes:a.md"
    (tmp_path / "in" / "out.md").symlink_to(write(tmp_path / "out.md", "x"))
    for path in (tmp_path / "out.md", tmp_path / "in" / ".." / "out.md", tmp_path / "in" / "out.md"):
        with pytest.raises(DocumentError, match="not inside the input folder"):
            read_document(path, tmp_path / "in")
    (tmp_path / "alias").symlink_to("in")
    assert document_id(tmp_path / "alias" / "a.md", tmp_path / "alias") == "a.md"


# Text.


def test_a_document_says_what_it_is(tmp_path):
    content = b"\xef\xbb\xbf---\r\nlang: en\r\n---\r\n# T\r\nx\x00y\x0cz"
    document = read(tmp_path, content, "sub/a.MD", collection="notes")
    assert document.doc_id == "notes:sub/a.MD"
    assert document.collection == "notes"
    assert document.file_path == (tmp_path / "sub" / "a.MD").as_posix()
    assert document.file_name == "a.MD"
    assert document.mime == "text/markdown"
    assert document.checksum == hashlib.sha256(content).hexdigest()
    assert document.size_bytes == len(content)
    assert document.text == "---\nlang: en\n---\n# T\nx y\nz"
    assert document.text[document.body_start :] == "# T\nx y\nz"
    assert document.metadata == {"lang": "en"}
    assert document.page_starts == ()
    assert document.warnings == ()


def test_the_time_of_change_is_utc(tmp_path):
    path = write(tmp_path / "a.txt", "x")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    document = read_document(path, tmp_path)
    assert document.modified_at == datetime(2023, 11, 14, 22, 13, 20)  # 1.7e9 s after 1970 in UTC
    assert document.mime == "text/plain"


@pytest.mark.parametrize(
    "content",
    [
        "ünï 漢字 \U0001f600".encode(),
        codecs.BOM_UTF8 + "ünï 漢字 \U0001f600".encode(),
        "ünï 漢字 \U0001f600".encode("utf-16"),
        codecs.BOM_UTF16_BE + "ünï 漢字 \U0001f600".encode("utf-16-be"),
        "ünï 漢字 \U0001f600".encode("utf-32"),
        codecs.BOM_UTF32_BE + "ünï 漢字 \U0001f600".encode("utf-32-be"),
    ],
)
def test_unicode_encodings_are_known_by_their_mark(tmp_path, content):
    document = read(tmp_path, content)
    assert (document.text, document.warnings) == ("ünï 漢字 \U0001f600", ())


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("El niño comió piñas en España, ¿verdad?", "latin-1"),
        ("naïve “quoted” text – dash", "cp1252"),
        ("Das Mädchen läuft über die Straße. Größe und Höhe.", "cp1252"),
        ("Zażółć gęślą jaźń", "cp1250"),
        ("Привет мир, это текст на русском языке", "cp1251"),
        ("日本語のテキストです。", "shift_jis"),
        ("这是一个中文文本，用于测试编码", "gb18030"),
        ("café", "cp1252"),
        ("Größe", "cp1252"),
        ("© 2024, 20 °C – £5", "cp1252"),
    ],
)
def test_other_encodings_are_guessed_with_a_warning(tmp_path, text, encoding):
    document = read(tmp_path, text.encode(encoding))
    assert document.text == text
    assert "a guess" in document.warnings[0]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Příliš žluťoučký kůň úpěl ďábelské ódy. Žádná škoda není malá.", "iso8859_2"),
        ("Wczoraj wieczorem padał śnieg, więc wróciliśmy późno. Zażółć gęślą jaźń.", "iso8859_2"),
        ("Şişli'deki ışıklı tabelalar gece boyunca yanıyor, çünkü yağmur başladı.", "cp1254"),
        ("تحقق من ضغط المضخة قبل أن تفتح الصمام. هطل المطر مساء أمس.", "iso8859_6"),
        ("Проверьте давление насоса, прежде чем открыть клапан. " * 9, "iso8859_5"),
        ("Проверьте давление насоса, прежде чем открыть клапан.", "mac_cyrillic"),
    ],
)
def test_fault_T11_common_legacy_encodings_are_told_apart(tmp_path, text, encoding):
    assert read(tmp_path, text.encode(encoding)).text == text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("ポンプの安全な操作について。", "iso2022_jp"),
        ("밸브를 열기 전에 펌프의 압력을 확인하십시오.", "iso2022_kr"),
        ("打开阀门之前，请检查水泵的压力。", "hz"),
        ("Prüfen Sie den Druck, öffnen Sie das Ventil.", "utf-7"),
    ],
)
def test_fault_T12_encodings_of_seven_bits_are_no_ascii(tmp_path, text, encoding):
    data = text.encode(encoding)
    assert data.isascii()
    document = read(tmp_path, data)
    assert document.text == text
    assert "a guess" in document.warnings[0]


def test_fault_T12_escape_sequences_that_do_not_fit_are_refused(tmp_path):
    assert "ISO 2022" in failure(tmp_path, b"\x1b$)A\x0e4r?*7'CE\x0f").reason
    for text in ("\x1b[31mred\x1b[0m", "Write ~{x~} for x", "a+bcd-e, [a-z]+foo- and +AGE-", "5+123-4"):
        assert read(tmp_path, text).warnings == ()


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Проверьте давление насоса, прежде чем открыть клапан.", "cp866"),
        ("Проверьте давление насоса, прежде чем открыть клапан.", "iso8859_5"),
        ("Проверьте давление насоса, прежде чем открыть клапан.", "cp855"),
        ("ตรวจสอบแรงดันของปั๊มก่อนเปิดวาล์ว เมื่อคืนนี้ฝนตกหนัก", "cp874"),
        ("①部品を取り外し、②フィルターを交換します。", "cp932"),
        ("밸브를 열기 전에 펌프의 압력을 확인하십시오.", "johab"),
        ("Prüfen Sie den Druck der Pumpe.", "utf-16-le"),
        ("Prüfen Sie den Druck der Pumpe.", "utf-16-be"),
        ("Prüfen Sie den Druck der Pumpe.", "utf-32-le"),
        ("Prüfen Sie den Druck der Pumpe.", "utf-32-be"),
        ("昨夜は雨が降ったので家に帰るのが遅くなりました本は机の上にあります", "utf-16-le"),
        ("打開閥門之前，請檢查水泵的壓力。昨天晚上下雨，所以我們很晚才回家。", "utf-16-be"),
        ("ตรวจสอบแรงดันของปั๊มก่อนเปิดวาล์ว", "utf-16-le"),
    ],
)
def test_fault_T13_readable_texts_are_not_refused(tmp_path, text, encoding):
    document = read(tmp_path, text.encode(encoding))
    assert document.text == normalize(text)
    assert "a guess" in document.warnings[0]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("letters", [b"", bytes(range(97, 123)) * 8])
def test_bytes_that_no_encoding_makes_words_of_are_refused(tmp_path, seed, letters):
    values = [*letters, *range(0x80, 0x100)]
    data = bytes(random.Random(seed).choices(values, k=400))
    assert failure(tmp_path, data).reason == "not UTF-8 text and no known encoding fits; save it as UTF-8"


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.csv", b"a,b\nx\0y,z\x01q\n"), ("a.html", b"<p>x\0y z\x01q</p><b>x\0y</b>"), ("a.txt", b"x\0y z\x01q")],
)
def test_a_few_controls_among_ascii_make_no_chinese(tmp_path, name, content):
    assert failure(tmp_path, content, name).reason == "the content is not text: it is binary data"
    assert read(tmp_path, content + b" and more of the words" * 3, name).text.isascii()


def test_a_long_file_is_judged_by_the_lines_that_say_something(tmp_path):
    text = "All is ASCII here.\n" * 20_000 + "Příliš žluťoučký kůň úpěl ďábelské ódy. Žádná škoda není malá.\n"
    assert read(tmp_path, text.encode("iso8859_2")).text == text


def test_damage_in_utf8_is_marked_and_said(tmp_path):
    document = read(tmp_path, "été à la plage ".encode() * 10 + b"\xff end")
    assert document.text.endswith("\ufffd end")
    assert document.text.startswith("été à la plage ")
    assert "1 wrong UTF-8" in document.warnings[0]


def test_utf8_with_a_few_bytes_of_another_encoding_stays_utf8(tmp_path):
    begin, middle = "The café on the corner opens at nine and ", b"closes its na\xefve caf\xe9 late, "
    document = read(tmp_path, begin.encode() + middle + "but the façade is lit, says René.".encode())
    assert document.text == f"{begin}closes its na\ufffdve caf\ufffd late, but the façade is lit, says René."
    assert "2 wrong UTF-8 sequences became" in document.warnings[0]
    # Without a sequence of UTF-8 it is not.
    assert read(tmp_path, begin.encode("latin-1") + middle).text == f"{begin}closes its naïve café late, "


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "a PNG image"),
        (b"PK\x03\x04\x14\x00\x06\x00", "a ZIP archive"),
        (b"%PDF-1.4\n1 0 obj", "a PDF"),
        (b"\x7fELF\x02\x01\x01\x00", "a program"),
        (b"{\\rtf1\\ansi text}", "an RTF document"),
        (bytes(range(256)) * 10, "binary data"),
        (b"\x00\x01\x02\x03", "binary data"),
        (b"\xff\xfea\x00b", "not valid UTF-16"),
    ],
)
@pytest.mark.parametrize("name", ["a.md", "a.txt"])
def test_content_that_is_no_text_is_refused(tmp_path, content, said, name):
    error = failure(tmp_path, content, name)
    assert said in error.reason
    assert error.status == "failed"


def test_a_stray_control_character_does_not_make_text_binary(tmp_path):
    assert read(tmp_path, "hello\x00 wide world").text == "hello wide world"
    assert read(tmp_path, "\x1b[31mred\x1b[0m \x1b7").text == "red 7"


def test_html_is_text_in_markdown(tmp_path):
    assert read(tmp_path, "<!DOCTYPE html>\n<p>text").text.startswith("<!DOCTYPE")


@pytest.mark.parametrize(
    "content", [b"", b"\n \n", b"\xef\xbb\xbf\n", b"\xff\xfe\n\x00", b"---\na: 1\n---\n\n", "\u3000\u2003".encode()]
)
def test_case_A15_empty_files(tmp_path, content):
    assert failure(tmp_path, content).status == "empty"
    assert failure(tmp_path, content).reason.startswith("the file is empty")
    (found,) = chunk(read(tmp_path, "# Only a title"), CHARS)
    assert (found.content, found.heading_path) == ("# Only a title", ("Only a title",))


def test_too_large_is_said_with_both_sizes(tmp_path):
    error = failure(tmp_path, "x" * 1001, max_bytes=1000)
    assert "1,001 bytes" in error.reason
    assert "1,000" in error.reason
    assert read(tmp_path, "x" * 1000, max_bytes=1000).size_bytes == 1000


def test_what_cannot_be_opened_is_a_document_error(tmp_path, monkeypatch):
    with pytest.raises(DocumentError, match="unreadable: No such file"):
        read_document(tmp_path / "gone.md", tmp_path)
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "folder.md").mkdir()
    for name in ("pipe.md", "folder.md"):
        with pytest.raises(DocumentError, match="not a regular file"):
            read_document(tmp_path / name, tmp_path)
    assert "'.odt'" in failure(tmp_path, "x", "a.odt").reason

    def refused(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path / "a.md", "x")
    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(DocumentError, match="unreadable: Permission denied"):
        read_document(path, tmp_path)


_NOISE = random.Random(1).randbytes(6000)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (base64.b64encode(_NOISE), "encoded data (Base64)"),
        (base64.encodebytes(_NOISE), "encoded data (Base64)"),
        (b"# Backup\n\n" + base64.urlsafe_b64encode(_NOISE), "encoded data (Base64)"),
        (_NOISE.hex(), "encoded data (hexadecimal)"),
        ("\n".join(f"{i:08x}  {_NOISE[i : i + 16].hex(' ')}  |........|" for i in range(0, 6000, 16)), "a hex dump"),
        ("\n".join(f"{i:08x}: {_NOISE[i : i + 16].hex(' ', 2)}  ........" for i in range(0, 6000, 16)), "a hex dump"),
        ("!function(t,e){return t.x[e]&&n(1,2)};" * 200, "minified code or data"),
        (".a{margin:0;padding:0 1px}.b>c{d:e}" * 200, "minified code or data"),
        ("-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----\n", "a key or certificate"),
    ],
)
def test_what_no_one_wrote_is_left_out_with_a_reason(tmp_path, content, said):
    error = failure(tmp_path, content, "a.txt")
    assert said in error.reason
    assert error.status == "failed"


@pytest.mark.parametrize(
    "content",
    [
        "# Note\n\n![pump](data:image/png;base64," + base64.b64encode(_NOISE).decode() + ")\n\nThe pump.",
        "这是一个中文文本用于测试编码。" * 1000,
        "One paragraph a line, as exported. " * 1000,
        "\n".join(f"{hashlib.sha256(bytes([i])).hexdigest()}  file{i}.txt" for i in range(100)),
        ("-" * 80 + "\n| a | b |\n") * 100,
        "The token is " + base64.b64encode(_NOISE[:300]).decode(),
        "See <https://example.org/#" + base64.b64encode(_NOISE[:300]).decode() + "> in the docs. " + "Words. " * 60,
    ],
)
def test_what_looks_a_little_like_generated_text_is_kept(tmp_path, content):
    assert read(tmp_path, content, "a.txt").warnings == ()


# Front matter.


def test_case_A8_crlf_front_matter(tmp_path):
    text = "---\nlang: en\n---\n# Top\n## Sub\nbody\n"
    lf = read(tmp_path, text)
    crlf = read(tmp_path, text.replace("\n", "\r\n"))
    assert (crlf.text, crlf.metadata, crlf.body_start) == (lf.text, lf.metadata, lf.body_start)
    assert crlf.metadata == {"lang": "en"}
    assert chunk(crlf, CHARS) == chunk(lf, CHARS)
    assert chunk(crlf, CHARS)[0].heading_path == ("Top", "Sub")
    # The checksum is that of the bytes: it says whether the file was changed, not whether its text was.
    assert crlf.checksum != lf.checksum


@pytest.mark.parametrize(
    "text",
    [
        "# A\n\n---\n\ntext: not yaml\n\n---\nmore",
        "---hello\nx\n---\n",
        "---\nunclosed: yes\nbody",
        "----\na: 1\n----\nbody",
        " ---\na: 1\n---\nbody",
        "\n---\na: 1\n---\nbody",
        "--- \na: 1\n---\nbody",
        "---\na: 1\n --- \nbody",
        "---\na: 1\n---more\nbody",
        "---\nJust prose between two rules.\n---\nbody",
    ],
)
def test_case_A9_rules_are_not_front_matter(tmp_path, text):
    document = read(tmp_path, text)
    assert (document.body_start, document.metadata, document.text) == (0, {}, text)
    kept = "".join(c.content for c in chunk(document, CHARS))
    # A rule is no text: no chunk has to hold it.
    assert "".join(kept.split()).replace("-", "") == "".join(text.split()).replace("-", "")


@pytest.mark.parametrize(
    ("text", "metadata"),
    [
        ("---\na: 1\n---\nbody", {"a": 1}),
        ("---\na: 1\n...\nbody", {"a": 1}),
        ("---\n---\nbody", {}),
        ("---\n# a comment\n---\nbody", {}),
        ("---\na: |\n  ---\n  x\n---\nbody", {"a": "---\nx\n"}),
        (
            "---\nwhen: 2024-01-31\nnan: .nan\nraw: {1: [2]}\n---\nbody",
            {"when": "2024-01-31", "nan": ".nan", "raw": {"1": [2]}},
        ),
    ],
)
def test_front_matter_becomes_metadata(tmp_path, text, metadata):
    document = read(tmp_path, text)
    assert document.metadata == metadata
    assert document.text[document.body_start :] == "body"
    assert document.warnings == ()


def test_fault_T3_keys_are_kept_as_they_were_written(tmp_path):
    raw = "no: 12\nyes: maybe\non: monday\noff: sunday\n1: intkey\n~: nothing\nnull: void\nin: {true: 1, 1: 2}"
    document = read(tmp_path, f"---\n{raw}\n---\nbody")
    assert document.metadata == {
        "no": 12, "yes": "maybe", "on": "monday", "off": "sunday", "1": "intkey", "~": "nothing", "null": "void",
        "in": {"true": 1, "1": 2},
    }  # fmt: skip
    assert document.warnings == ()


@pytest.mark.parametrize(
    ("raw", "key", "line"),
    [
        ("a: 1\nb: 2\na: 3", "a", 4),
        ("x:\n  b: 1\n  b: 2", "b", 4),
        ("x: {b: 1, b: 2}", "b", 2),
        ("cafe\u0301: 1\ncaf\u00e9: 2", "caf\u00e9", 3),
        ("'1': 1\n1: 2", "1", 3),
    ],
)
def test_fault_T9_a_key_that_is_given_again_is_named(tmp_path, raw, key, line):
    assert read(tmp_path, f"---\n{raw}\n---\nbody").warnings == (
        f"a.md, line {line}: '{key}' is given again; this value is kept",
    )


def test_many_repeated_keys_make_few_warnings(tmp_path):
    warned = read(tmp_path, "---\n" + "a: 1\n" * 50 + "---\nbody").warnings
    assert (len(warned), warned[-1]) == (6, "a.md: and 44 more keys that are given again")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *((text, text) for text in ("no", "yes", "on", "1.10", "12:30", "12:30:00", "0123", "2024-05-01 10:20:30")),
        *((text, text) for text in ("2024-99-99", "9" * 30, "9" * 5000, ".inf", "0x1f", "+1", "-0", "1_000", "1e3")),
        *(("9223372036854775808", "9223372036854775808"), ("9223372036854775807", 2**63 - 1), ("-5", -5)),
        *(("1.5", 1.5), ("1.0", 1.0), ("true", True), ("FALSE", False), ("null", None), ("~", None), ("", None)),
        *(("'true'", "true"), ("'12'", "12"), ("!!str 12", "12"), ("!!int '12'", 12), ("!!float 1.10", 1.1)),
    ],
)
def test_fault_T9_values_that_a_number_would_change_are_text(tmp_path, written, value):
    document = read(tmp_path, f"---\nx: {written}\n---\nbody")
    assert (document.metadata, document.warnings) == ({"x": value}, ())
    assert type(document.metadata["x"]) is type(value)


@pytest.mark.parametrize("title", ["1984", "1.10", "404", "No", "true", "12:30", "2024-05-01", "0x1f"])
def test_fault_T4_any_scalar_is_a_title(tmp_path, title):
    document = read(tmp_path, f"---\ndate: x{title}\ntitle: {title}\n---\nkiwi", "n.md")
    assert document.metadata["title"] == title
    assert [c.heading_path for c in chunk(document, CHARS)] == [(title,)]
    (alone,) = chunk(read(tmp_path, f"---\ndate: x{title}\ntitle: {title}\n---\n", "o.md"), CHARS)
    assert (alone.content, alone.heading_path, alone.i_start) == (title, (title,), 4 + len(f"date: x{title}\ntitle: "))


@pytest.mark.parametrize(
    ("raw", "content", "path"),
    [
        ('title: "Say \\"kiwi\\""', '"Say \\"kiwi\\""', 'Say "kiwi"'),
        ("title: >\n  Two\n  lines\na: 1", ">\n  Two\n  lines", "Two lines"),
        ("{a: 1, title: Flow}", "Flow", "Flow"),
    ],
)
def test_fault_T4_a_title_alone_is_a_chunk_however_it_is_written(tmp_path, raw, content, path):
    (alone,) = chunk(read(tmp_path, f"---\n{raw}\n---\n"), CHARS)
    assert (alone.content, alone.heading_path) == (content, (path,))


@pytest.mark.parametrize("title", ["title:", "title: null", "title: ''", "title: [a]"])
def test_no_title_is_none(tmp_path, title):
    assert failure(tmp_path, f"---\n{title}\n---\n").status == "empty"
    assert [c.heading_path for c in chunk(read(tmp_path, f"---\n{title}\n---\nkiwi"), CHARS)] == [("a",)]


@pytest.mark.parametrize(
    "text",
    [
        "--- \na: 1\n---\nbody",
        "----\na: 1\n----\nbody",
        "\u2014\na: 1\n\u2014\nbody",
        "\n---\na: 1\n---\nbody",
        " ---\na: 1\n---\nbody",
        "---\na: 1\n --- \nbody",
        "---\ntags:\n  - a\n---more\nbody",
        "---\ntitle: never closed\n\nbody",
    ],
)
def test_fault_T22_front_matter_that_is_missed_narrowly_is_noted(tmp_path, text):
    document = read(tmp_path, text)
    assert (document.text, document.body_start, document.metadata) == (text, 0, {})
    (warning,) = document.warnings
    assert warning.startswith("a.md, line 1: what looks like front matter is read as body text")


@pytest.mark.parametrize(
    "text",
    [
        "# A\n\n---\n\ntext: not yaml\n\n---\nmore",
        "---\nunclosed: yes\nbody",
        "---hello\nx\n---\n",
        "- a: 1\n- b: 2\n",
        "----\nJust prose: it begins\nwith a rule\n",
        "a: 1\n---\nbody",
    ],
)
def test_a_rule_at_the_beginning_is_not_noted(tmp_path, text):
    assert read(tmp_path, text).warnings == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("raw", "line"),
    [
        ("title: Foo: bar", 2),
        ("ok: 1\nalso: fine\ntitle: Foo: bar", 4),
        ("- a\n- list", 1),
        ("a:\n\t- tab", 3),
        ("a: !!python/object/apply:os.getcwd []", 2),
        ("[" * 5000, 1),
        ("a: &a [*a]", 2),
        ("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: &d [*c, *c]\ne: &e [*d, *d]\nf: [*e, *e, *e]", 1),
    ],
)
def test_case_A11_front_matter_that_is_no_usable_yaml(tmp_path, raw, line):
    document = read(tmp_path, f"---\n{raw}\n---\n# T\nquince")
    assert document.metadata == {"front_matter": raw + "\n"}
    assert document.warnings[0].startswith(f"a.md, line {line}: front matter is not usable YAML (")
    (found,) = chunk(document, CHARS)
    assert (found.content, found.heading_path) == ("# T\nquince", ("T",))


def test_front_matter_in_toml(tmp_path):
    raw = 'title = "Pumps"\ntags = ["a", "b"]\nday = 2024-01-02\nversion = 1.10\nsize = 1.5\n[x]\nn = 1\n'
    document = read(tmp_path, f"+++\n{raw}+++\nbody")
    expected = {
        "title": "Pumps",
        "tags": ["a", "b"],
        "day": "2024-01-02",
        "version": "1.10",
        "size": 1.5,
        "x": {"n": 1},
    }
    assert (document.metadata, document.tags, document.warnings) == (expected, ("a", "b"), ())
    assert [found.content for found in chunk(document, CHARS)] == ["body"]
    assert [found.content for found in chunk(read(tmp_path, f"+++\n{raw}+++\n"), CHARS)] == ["Pumps"]
    document = read(tmp_path, "+++\na = 1\nb = c\n+++\nbody")
    assert document.metadata == {"front_matter": "a = 1\nb = c\n"}
    said = "a.md, line 3: front matter is not usable TOML (Invalid value); kept as text under 'front_matter'"
    assert document.warnings == (said,)


def test_a_web_page_is_no_plain_text(tmp_path):
    page = "<!DOCTYPE html><p>a</p>"
    assert "it is an HTML page; give the file its right suffix" in failure(tmp_path, page, "a.txt").reason
    assert read(tmp_path, page, "a.md").text == page


def test_a_yaml_bomb_does_not_go_off(tmp_path):
    # Nine levels of nine: 387 million values where a loader follows them.
    keys = [(a, b, ", ".join([f"*{a}"] * 9)) for a, b in itertools.pairwise("abcdefghij")]
    bomb = "a: &a {x: 1}\n" + "\n".join(f"{b}: &{b} [{nine}]" for _, b, nine in keys)
    merge = "a: &a {x: 1}\n" + "\n".join(f"{b}: &{b} {{<<: [{nine}]}}" for _, b, nine in keys)
    for raw in (bomb, merge):
        document = read(tmp_path, f"---\n{raw}\n---\nbody")
        assert "more than 10 aliases" in document.warnings[0]
        assert len(json.dumps(document.metadata)) < 2000


def test_front_matter_of_unreasonable_length_is_body(tmp_path):
    document = read(tmp_path, "---\n" + "word\n" * 20_000 + "---\nend")
    assert (document.body_start, document.metadata) == (0, {})
    assert "65,536" in document.warnings[0]


@pytest.mark.parametrize(
    ("raw", "tags"),
    [
        ("tags: [b, a, b]", ("b", "a")),
        ("tags: b, a , ,b", ("b", "a")),
        ("tags: two words", ("two words",)),
        ("tags:\n  - 1.10\n  - 2024-01-01\n  - no", ("1.10", "2024-01-01", "no")),
        ("Tags: [x]\ntag: y", ("x", "y")),
        ("tags:", ()),
        ("tags: null", ()),
        ("tags: {a: 1}", ("a",)),
        ("tags: [[a], {b: 1}, c]", ("c",)),
        ("tags: [cafe\u0301]", ("caf\u00e9",)),
        ("title: x", ()),
    ],
)
def test_tags(tmp_path, raw, tags):
    document = read(tmp_path, f"---\n{raw}\n---\nbody")
    assert document.tags == tags
    assert document.warnings == ()
    assert all(c.tags == tags for c in chunk(document, CHARS))


# Names.


@pytest.mark.parametrize(
    ("name", "content", "paths"),
    [
        ("Zebra crossing.md", "Look left.", [("Zebra crossing",)]),
        ("Zebra crossing.md", "Intro\n\n## Left\n\nlook", [("Zebra crossing",), ("Zebra crossing", "Left")]),
        ("zebra.md", "# Own title\n\ntext", [("Own title",)]),
        ("zebra.md", "---\ntitle: Given\n---\ntext", [("Given",)]),
        ("zebra.md", "---\ntitle: Given\n---\n# Own title\n\ntext", [("Given", "Own title")]),
        ("zebra.md", "---\ntitle: own title\n---\n# Own title\n\ntext", [("Own title",)]),
        ("release_notes-v1.2.txt", "text", [("release_notes-v1.2",)]),
        ("zebra.txt", "---\ntitle: Given\n---\ntext", [("Given",)]),
        ("pumps/README.md", "text", [("pumps",)]),
        ("pumps/index.txt", "text", [("pumps",)]),
        ("README.md", "text", [("README",)]),
        ("n" * 210 + ".txt", "text", [("n" * 199 + "…",)]),
    ],
)
def test_fault_T5_a_page_without_a_title_is_headed_by_its_name(tmp_path, name, content, paths):
    for collection in ("default", "notes"):
        document = read(tmp_path, content, name, collection=collection)
        assert [c.heading_path for c in chunk(document, CHARS)] == paths


def test_fault_T5_pages_of_a_pdf_are_headed_by_title_or_name(tmp_path):
    document = read(tmp_path, pdf_bytes("alpha", "beta"), "Pump manual.pdf")
    assert [(c.heading_path, c.page) for c in chunk(document, CHARS)] == [(("Pump manual",), 1), (("Pump manual",), 2)]
    titled = replace(document, metadata={"title": "The pump"})
    assert {c.heading_path for c in chunk(titled, CHARS)} == {("The pump",)}


def test_windows_are_headed_only_where_the_page_has_no_heading(tmp_path):
    windows = replace(CHARS, strategy="size")
    assert [c.heading_path for c in chunk(read(tmp_path, "## B\n\ntext"), windows)] == [("a",)]
    assert [c.heading_path for c in chunk(read(tmp_path, "# A\n\ntext"), windows)] == [()]


def test_a_text_without_a_name_has_no_path():
    assert [c.heading_path for c in chunk("text", CHARS)] == [()]
    assert [c.heading_path for c in chunk(["page 1", "page 2"], CHARS)] == [(), ()]


# PDF.


def test_pages_are_joined_and_numbered(tmp_path):
    document = read(tmp_path, pdf_bytes("alpha one", "beta two"), "a.pdf")
    assert document.text == "alpha one\n\nbeta two"
    assert document.page_starts == (0, 11)
    assert document.mime == "application/pdf"
    assert [(c.content, c.page) for c in chunk(document, CHARS)] == [("alpha one", 1), ("beta two", 2)]


def test_case_A1_encrypted_pdf(tmp_path):
    plain = pdf_bytes("open text")
    for algorithm in ("RC4-128", "AES-128", "AES-256"):
        locked = encrypted(plain, user_password="secret", algorithm=algorithm)
        error = failure(tmp_path, locked, "locked.pdf")
        assert error.reason.startswith("encrypted: it needs a password")
        assert error.status == "failed"
        permitted = encrypted(plain, user_password="", owner_password="owner", algorithm=algorithm)
        assert read(tmp_path, permitted, "perm.pdf").text == "open text"


def only_pypdf(monkeypatch):
    """Let PDFium refuse, and pypdf run in this process."""

    def asked(data, seconds, *, engine, **request):
        refusal = {"error": "PdfiumError: Failed to load document.", "kind": "unreadable"}
        return list(answer(data, engine, **request)) if engine == "pypdf" else [refusal]

    monkeypatch.setattr(pdf, "_asked", asked)


def test_case_A1_a_missing_decryption_package_is_named(tmp_path, monkeypatch):
    from pypdf.errors import DependencyError

    def missing(self, *args, **kwargs):
        raise DependencyError("cryptography>=3.1 is required for AES algorithm")

    only_pypdf(monkeypatch)
    monkeypatch.setattr("pypdf.PdfReader.__init__", missing)
    reason = failure(tmp_path, b"%PDF-1.7", "a.pdf").reason
    assert reason.startswith("encrypted")
    assert "pip install 'pypdf[crypto]'" in reason


def test_case_A3_blank_pages(tmp_path):
    document = read(tmp_path, pdf_bytes("", "gamma ray"), "a.pdf")
    assert [(c.content, c.page) for c in chunk(document, CHARS)] == [("gamma ray", 2)]
    error = failure(tmp_path, pdf_bytes("", ""), "blank.pdf")
    assert (error.reason, error.status) == ("no extractable text; OCR needed", "failed")


def test_pages_of_pictures_among_others_are_named(tmp_path):
    from fpdf import FPDF
    from PIL import Image

    file = FPDF()
    file.set_font("helvetica")
    for text in ("one", "", "three", ""):
        file.add_page()
        if text:
            file.multi_cell(0, text=text)
        if text != "three":
            file.image(Image.new("L", (20, 20)))
    file.add_page()
    document = read(tmp_path, bytes(file.output()), "a.pdf")
    assert document.warnings == ("a.pdf: pages 2, 4: pictures without text; OCR needed where they show some",)


def test_case_A4_words_are_not_repaired_and_the_extractor_can_be_replaced(tmp_path):
    data = pdf_bytes("Thischapterdealswith the pump")
    assert read(tmp_path, data, "a.pdf").text == "Thischapterdealswith the pump"
    seen = []

    def extractor(content):
        seen.append(content)
        return ["This chapter\r\ndeals\x00 with", "", "the pump \ud835"]

    document = read(tmp_path, data, "a.pdf", pdf_extractor=extractor)
    assert seen == [data]
    assert document.text == "This chapter\ndeals with\n\n\n\nthe pump \ufffd"
    assert [c.page for c in chunk(document, CHARS)] == [1, 3]


@pytest.mark.parametrize("pages", [None, [b"bytes"], ["a", None], 5])
def test_an_extractor_that_misbehaves_fails_its_document_only(tmp_path, pages):
    assert "pdf_extractor" in failure(tmp_path, pdf_bytes("x"), "a.pdf", pdf_extractor=lambda data: pages).reason


class Panic(BaseException):
    """What Rust extensions raise: no Exception."""


@pytest.mark.parametrize(
    "error", [RecursionError("too deep"), KeyError("/Root"), MemoryError(), Panic("rust"), AssertionError()]
)
def test_whatever_the_parser_raises_is_the_reason(tmp_path, monkeypatch, error):
    def broken(self, *args, **kwargs):
        raise error

    only_pypdf(monkeypatch)
    monkeypatch.setattr(PageObject, "extract_text", broken)
    reason = failure(tmp_path, pdf_bytes("x"), "a.pdf").reason
    assert type(error).__name__ in reason
    assert str(error) in reason


def test_an_interrupt_is_not_swallowed(tmp_path, monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(pdf, "checkpoint", interrupted)
    monkeypatch.setattr(pdf, "_idle", [])  # so that a process has to be started, which takes longer than a look
    with pytest.raises(KeyboardInterrupt):
        read(tmp_path, pdf_bytes("x"), "a.pdf")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<!DOCTYPE html><p>404", "an HTML page"),
        (b"PK\x03\x04rest", "a ZIP archive"),
        (b"just text", "something else"),
        (b"%PDF-1.7\ncut off", "not a readable PDF"),
    ],
)
def test_a_pdf_that_is_none(tmp_path, content, said):
    assert said in failure(tmp_path, content, "a.pdf").reason


def test_an_empty_pdf_file_is_empty(tmp_path):
    assert failure(tmp_path, b"", "a.pdf").status == "empty"


def test_remarks_of_the_parser_are_kept_from_the_terminal(tmp_path, monkeypatch, capfd, caplog):
    def noisy(self, *args, **kwargs):
        for i in range(9):
            logging.getLogger("pypdf._cmap").warning("font %d is odd: {'/Font': 1399}", i)
            logging.getLogger("pypdf._cmap").warning("said twice")
        warnings.warn("deprecated", DeprecationWarning, stacklevel=1)
        return "text"

    only_pypdf(monkeypatch)
    monkeypatch.setattr(PageObject, "extract_text", noisy)
    document = read(tmp_path, pdf_bytes("x"), "a.pdf")
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []
    assert document.warnings[:2] == ("a.pdf: font 0 is odd: …", "a.pdf: said twice")
    # Nine fonts, one other remark and one warning, of which five are shown.
    assert document.warnings[5:] == ("a.pdf: and 6 more remarks of the PDF parser",)
    logger = logging.getLogger("pypdf")
    assert logger.propagate
    assert logger.handlers == []


@pytest.mark.slow
@pytest.mark.skipif(not DATA.exists(), reason="the sample PDFs are not beside the project")
def test_the_sample_pdfs_run_through(capfd):
    root = DATA / "docs" / "pdf-samples"
    files, skipped = find_files(root)
    assert (len(files), skipped) == (31, [])
    failures = dict(filter(None, (failure_of(path, root) for path in files)))
    assert failures.pop("unreadablemetadata").startswith("not a readable PDF (PdfReadError: ")
    # The names say it: one asks for a password, five hold a picture and nothing else.
    needs_ocr = "no extractable text; OCR needed"
    assert failures == {
        "libreoffice-writer-password": "encrypted: it needs a password; save a copy without one",
        "imagemagick-ASCII85Decode": needs_ocr,
        "imagemagick-CCITTFaxDecode": needs_ocr,
        "imagemagick-lzw": needs_ocr,
        "grayscale-image": needs_ocr,
        "cmyk-image": needs_ocr,
    }
    assert capfd.readouterr() == ("", "")


def failure_of(path, root):
    try:
        assert chunk(read_document(path, root), CHARS)
    except DocumentError as error:
        return path.stem, error.reason
    return None
