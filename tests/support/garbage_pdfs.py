"""PDF files written by hand: those whose text cannot be decoded, and those that are small and cost much.

``python -m tests.support.garbage_pdfs FOLDER`` writes them all into a folder, to try other readers on.
"""

from __future__ import annotations

import io
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SENTENCES = (
    "Check the pump before you start the engine and write the pressure into the book",
    "The valve of the second pump stays closed while the filter is changed by hand",
    "Water in the housing means that the seal is worn and has to be replaced at once",
    "Never open the cover before the motor has come to rest and the lamp is out",
)

FIRST, LAST = 32, 126


def make(objects: Iterable[bytes], root: int = 1) -> bytes:
    """Return a PDF of these objects, numbered from 1."""
    out, places = bytearray(b"%PDF-1.7\n"), []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(places) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer\n<</Size %d /Root %d 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (len(places) + 1, root, start)
    return bytes(out)


def stream(data: bytes, entries: bytes = b"", *, deflate: bool = False) -> bytes:
    if deflate:
        data, entries = zlib.compress(data, 9), entries + b" /Filter /FlateDecode"
    return b"<<%b /Length %d>>\nstream\n%b\nendstream" % (entries, len(data), data)


def page(font: bytes, codes: Callable[[str], bytes], *more: bytes) -> bytes:
    """Return a PDF of one page with the sentences in a font; ``codes`` gives the string operand of a line."""
    lines = b"\n".join(b"1 0 0 1 40 %d Tm %b Tj" % (760 - 20 * i, codes(line)) for i, line in enumerate(SENTENCES))
    return make(
        [
            b"<</Type /Catalog /Pages 2 0 R>>",
            b"<</Type /Pages /Kids [3 0 R] /Count 1>>",
            b"<</Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources <</Font <</F1 5 0 R>>>>>>",
            stream(b"BT /F1 9 Tf\n%b\nET" % lines),
            font,
            *more,
        ]
    )


def literal(text: str) -> bytes:
    return b"<%b>" % text.encode("latin-1").hex().encode()


def glyphs(text: str) -> bytes:
    """The numbers of the glyphs, two bytes each, where the blank is glyph 3."""
    return b"<%b>" % b"".join(b"%04x" % (ord(letter) - FIRST + 3) for letter in text)


def private(text: str) -> bytes:
    return b"<%b>" % b"".join(b"%04x" % (0xE000 + ord(letter)) for letter in text)


WIDTHS = b"[%b]" % b" ".join([b"500"] * (LAST - FIRST + 1))

SIMPLE = (
    b"<</Type /Font /Subtype /TrueType /BaseFont /AAAAAD+Pump /FirstChar 32 /LastChar 126 /Widths %b "
    b"/ToUnicode 6 0 R /FontDescriptor 7 0 R>>"
)

TYPE0 = b"<</Type /Font /Subtype /Type0 /BaseFont /AAAAAA+Pump /Encoding /%b /DescendantFonts [6 0 R]%b>>"

CID_FONT = (
    b"<</Type /Font /Subtype /CIDFontType2 /BaseFont /AAAAAA+Pump /CIDSystemInfo <</Registry (Adobe) "
    b"/Ordering (Identity) /Supplement 0>> /DW 500 /CIDToGIDMap /Identity /FontDescriptor 7 0 R>>"
)

DESCRIPTOR = (
    b"<</Type /FontDescriptor /FontName /AAAAAA+Pump /Flags 4 /FontBBox [0 0 500 700] /ItalicAngle 0 /Ascent 700 "
    b"/Descent 0 /CapHeight 700 /StemV 80%b>>"
)


@cache
def font_file() -> bytes:
    """Return a TrueType font whose 98 glyphs are boxes without names, and which maps none of them to a character."""
    order = [".notdef", *(f"glyph{number:05}" for number in range(1, LAST - FIRST + 4))]
    pen = TTGlyphPen(None)
    for i, corner in enumerate([(50, 0), (50, 700), (450, 700), (450, 0)]):
        (pen.lineTo if i else pen.moveTo)(corner)
    pen.closePath()
    box = pen.glyph()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(order)
    builder.setupCharacterMap({})
    builder.setupGlyf(dict.fromkeys(order, box))
    builder.setupHorizontalMetrics(dict.fromkeys(order, (500, 0)))
    builder.setupHorizontalHeader(ascent=700, descent=0)
    builder.setupPost(keepGlyphNames=False)
    builder.setupHead(unitsPerEm=1000)
    builder.setupMaxp()
    out = io.BytesIO()
    builder.font.save(out)
    return out.getvalue()


def cmap(target: Callable[[int], int], first: int, last: int, width: int) -> bytes:
    lines = b"\n".join(b"<%0*x> <%04x>" % (width, code, target(code)) for code in range(first, last + 1))
    return stream(
        b"/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /X def /CMapType 2 def\n"
        b"1 begincodespacerange <%b> <%b> endcodespacerange\n%d beginbfchar\n%b\nendbfchar\nendcmap end end"
        % (b"0" * width, b"f" * width, last - first + 1, lines)
    )


def glyph_names() -> bytes:
    """Names of glyphs that name no character, and no map."""
    names = b" ".join(b"/G%02X" % code for code in range(FIRST, LAST + 1))
    font = (
        b"<</Type /Font /Subtype /Type1 /BaseFont /AAAAAB+Pump /FirstChar 32 /LastChar 126 /Widths %b "
        b"/Encoding <</Type /Encoding /Differences [32 %b]>> /FontDescriptor 6 0 R>>"
    )
    # Codes from 1 on, as in fonts of a few letters.
    return page(
        font % (WIDTHS, names),
        lambda text: literal("".join(chr(33 + (ord(c) * 7) % 93) for c in text)),
        DESCRIPTOR % b"",
    )


def identity_without_map() -> bytes:
    font = TYPE0 % (b"Identity-H", b"")
    return page(font, glyphs, CID_FONT, DESCRIPTOR % b" /FontFile2 8 0 R", stream(font_file()))


def private_use() -> bytes:
    font = TYPE0 % (b"Identity-H", b" /ToUnicode 8 0 R")
    to_private = cmap(lambda code: 0xE000 + code, 3, 97, 4)
    return page(font, glyphs, CID_FONT, DESCRIPTOR % b"", to_private)


def replacement_characters() -> bytes:
    font = TYPE0 % (b"Identity-H", b" /ToUnicode 8 0 R")
    return page(font, glyphs, CID_FONT, DESCRIPTOR % b"", cmap(lambda _: 0xFFFD, 3, 97, 4))


def unassigned() -> bytes:
    font = TYPE0 % (b"Identity-H", b" /ToUnicode 8 0 R")
    return page(font, glyphs, CID_FONT, DESCRIPTOR % b"", cmap(lambda code: 0x0E80 + code % 3 * 0x78 + 0x60, 3, 97, 4))


def control_characters() -> bytes:
    font = (
        b"<</Type /Font /Subtype /TrueType /BaseFont /AAAAAC+Pump /FirstChar 1 /LastChar 31 /Widths [%b] "
        b"/ToUnicode 6 0 R>>"
    )

    def codes(text: str) -> bytes:
        return literal("".join(" " if c == " " else chr(1 + ord(c) % 26) for c in text))

    return page(font % b" ".join([b"500"] * 31), codes, cmap(lambda code: code, 1, 31, 2))


def wrong_letters() -> bytes:
    """A map that shifts each letter by three, as that of another subset of the font may do."""

    def shifted(code: int) -> int:
        return (code - 97 + 3) % 26 + 97 if 97 <= code <= 122 else code

    return page(SIMPLE % WIDTHS, literal, cmap(shifted, FIRST, LAST, 2), DESCRIPTOR % b"")


def shifted_letters() -> bytes:
    """A map that is off by one, whose words have as many vowels as English ones."""
    return page(SIMPLE % WIDTHS, literal, cmap(lambda code: code + (code > FIRST), FIRST, LAST, 2), DESCRIPTOR % b"")


def swapped_bytes() -> bytes:
    """A map in UTF-16 of the other byte order."""
    return page(SIMPLE % WIDTHS, literal, cmap(lambda code: code << 8, FIRST, LAST, 2), DESCRIPTOR % b"")


def syllables() -> bytes:
    return page(SIMPLE % WIDTHS, literal, cmap(lambda code: 0xAC00 + code * 97, FIRST, LAST, 2), DESCRIPTOR % b"")


def accents() -> bytes:
    return page(SIMPLE % WIDTHS, literal, cmap(lambda code: 0x300 + code % 0x60, FIRST, LAST, 2), DESCRIPTOR % b"")


def _bytes(text: str, encoding: str, taken_for: str) -> bytes:
    """Return a PDF of a text in an encoding, with a map that takes its bytes for those of another."""
    font = SIMPLE.replace(b"126", b"255") % b"[%b]" % b" ".join([b"500"] * 224)
    to_unicode = cmap(lambda code: ord(bytes([code]).decode(taken_for, "replace")), 32, 255, 2)
    return page(font, lambda _: b"<%b>" % text.encode(encoding).hex().encode(), to_unicode, DESCRIPTOR % b"")


def other_cyrillic() -> bytes:
    return _bytes("Проверьте насос перед пуском двигателя и запишите давление в журнал", "koi8-r", "cp1251")


def decoded_twice() -> bytes:
    return _bytes("Prüfen Sie die Pumpe, bevor Sie den Motor für größere Höhen öffnen", "utf-8", "latin-1")


def typewriter_of_hindi() -> bytes:
    """Devanagari in the codes of Latin letters, as in fonts of before Unicode."""
    text = 'Hkkjr ljdkj us fdlkuksa ds fy, ubZ ;kstuk dh ?kks"k.kk dh gS ftlls mUgsa vf/kd ykHk feysxk vkSj mudh'
    return _bytes(text, "cp1252", "cp1252")


def vertical_without_map() -> bytes:
    font = TYPE0 % (b"Identity-V", b"")
    return page(font, glyphs, CID_FONT, DESCRIPTOR % b" /FontFile2 8 0 R", stream(font_file()))


def wrong_code_page() -> bytes:
    """Cyrillic in the codes of Windows-1251, in a font that says nothing of them."""
    text = "Проверьте насос перед пуском двигателя и запишите давление в журнал"
    font = (
        b"<</Type /Font /Subtype /TrueType /BaseFont /Arial /Encoding /WinAnsiEncoding /FirstChar 32 /LastChar 255 "
        b"/Widths [%b]>>"
    )

    def codes(_: str) -> bytes:
        return b"<%b>" % text.encode("cp1251").hex().encode()

    return page(font % b" ".join([b"500"] * 224), codes)


def type3() -> bytes:
    """Glyphs that are drawings, with names that mean nothing."""
    names = b" ".join(b"/a%d" % code for code in range(1, 27))
    drawings = b" ".join(b"/a%d 6 0 R" % code for code in range(1, 27))
    font = (
        b"<</Type /Font /Subtype /Type3 /FontBBox [0 0 500 700] /FontMatrix [.001 0 0 .001 0 0] /FirstChar 1 "
        b"/LastChar 26 /Widths [%b] /Encoding <</Differences [1 %b]>> /CharProcs <<%b>> /Resources <<>>>>"
    )

    def codes(text: str) -> bytes:
        return literal("".join(chr(1 + ord(c) % 26) for c in text if c != " "))

    return page(
        font % (b" ".join([b"500"] * 26), names, drawings), codes, stream(b"500 0 0 0 500 700 d1 0 0 400 700 re f")
    )


def scrambled_scripts() -> bytes:
    """A map into letters of any script."""
    font = TYPE0 % (b"Identity-H", b" /ToUnicode 8 0 R")
    return page(font, glyphs, CID_FONT, DESCRIPTOR % b"", cmap(lambda code: 0x0180 + code * 61 % 0x4000, 3, 97, 4))


GARBAGE = {
    function.__name__: function
    for function in (
        glyph_names, identity_without_map, private_use, replacement_characters, unassigned, control_characters,
        wrong_code_page, type3, scrambled_scripts, vertical_without_map,
    )
}  # fmt: skip

# Of characters that are right ones, and only no words.
ODD = {
    function.__name__: function
    for function in (
        wrong_letters, shifted_letters, swapped_bytes, syllables, accents, other_cyrillic, decoded_twice,
        typewriter_of_hindi,
    )
}  # fmt: skip


# Small, and much when unpacked.


def pages_of_one(count: int, content: bytes) -> bytes:
    """Return a PDF whose tree of pages names the same page so often."""
    return make(
        [
            b"<</Type /Catalog /Pages 2 0 R>>",
            b"<</Type /Pages /Kids [%b] /Count %d>>" % (b"3 0 R " * count, count),
            b"<</Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources <</Font <</F1 5 0 R>>>>>>",
            stream(content, deflate=True),
            b"<</Type /Font /Subtype /Type1 /BaseFont /Helvetica>>",
        ]
    )


def nested_forms(depth: int) -> bytes:
    """Return a page whose form draws another twice, which draws another twice, and so on."""
    first, resources = 6, b"/Resources <</Font <</F1 5 0 R>> /XObject <</X %d 0 R>>>>"
    forms = [
        stream(b"/X Do 1 0 0 1 0 9 cm /X Do", b"/Type /XObject /Subtype /Form /BBox [0 0 9999 9999] " + resources % n)
        for n in range(first + 1, first + depth)
    ]
    last = stream(b"BT /F1 9 Tf (pump) Tj ET", b"/Type /XObject /Subtype /Form /BBox [0 0 9999 9999] " + resources % 5)
    return make(
        [
            b"<</Type /Catalog /Pages 2 0 R>>",
            b"<</Type /Pages /Kids [3 0 R] /Count 1>>",
            b"<</Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R %b>>" % (resources % first),
            stream(b"/X Do"),
            b"<</Type /Font /Subtype /Type1 /BaseFont /Helvetica>>",
            *forms,
            last,
        ]
    )


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, function in {**GARBAGE, **ODD}.items():
        (folder / f"{name}.pdf").write_bytes(function())
    (folder / "nested_forms.pdf").write_bytes(nested_forms(24))
    (folder / "pages_of_one.pdf").write_bytes(
        pages_of_one(200, b"BT /F1 9 Tf " + b"1 0 0 1 10 50 Tm (pump) Tj " * 2000 + b"ET")
    )


if __name__ == "__main__":
    main()
