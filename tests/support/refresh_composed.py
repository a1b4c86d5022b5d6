"""Write sql/macros/composed.sql anew: python -m tests.support.refresh_composed

It needs the newest Unicode tables (pip install unicodedata2); those of Python are as old as Python.
"""

from __future__ import annotations

import unicodedata as built_in
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlrag.engines.duckdb import lexical

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "sql" / "macros" / "composed.sql"

# Unicode's Default_Ignorable_Code_Point: they have no width and no ink. Those above U+FFFF (variation selectors
# supplement, tags) are dropped by a range of their own.
IGNORABLE = [(0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)]
IGNORABLE += [(0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F)]
IGNORABLE += [(0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0)]

# Vowel points and cantillation of Hebrew, tatweel and vowels of Arabic.
POINTS = [(0x591, 0x5BD), (0x5BF, 0x5BF), (0x5C1, 0x5C2), (0x5C4, 0x5C5), (0x5C7, 0x5C7), (0x640, 0x640)]
POINTS += [(0x64B, 0x65F), (0x670, 0x670)]

# Letters of Latin-1 and Latin Extended-A that have no decomposition.
LETTERS = {"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "ħ": "h", "Ħ": "H"}
LETTERS |= {"ŧ": "t", "Ŧ": "T", "ŋ": "n", "Ŋ": "N", "ı": "i", "ĸ": "k"}
LETTERS |= {"ё": "е", "Ё": "Е", "ς": "σ"}
PAIRS = {"ß": "ss", "ẞ": "SS", "æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe", "þ": "th", "Þ": "Th"}

# With an accent; small Cyrillic letters of old prints, by their capitals.
OTHERS = {"ǿ": "ó", "Ǿ": "Ó", "ǽ": "áe", "Ǽ": "Áe", "ǣ": "āe", "Ǣ": "Āe"}
OTHERS |= dict(zip("ᲀᲁᲂᲃᲄᲅᲆᲇᲈ", "вдосттъѣꙋ", strict=True))

# Punctuation that is part of words such as c++, c# and .net.
IN_WORDS = "＋＃．"

# Where a short range of characters is worth its place in the class of those that never change.
COMMON = [(0x0, 0x17F), (0x386, 0x52F), (0x2010, 0x2027), (0x3000, 0x30FF), (0xFF00, 0xFF20)]

# Full-width ASCII and half-width Kana, which whole texts are written in: their forms have a table of their own.
WIDTHS = [chr(point) for point in range(0xFF01, 0xFFA0)]


def form_of(character: str, tables: Any = built_in) -> str | None:
    """Return what a character is spelled as, or None where it stays, composes by NFC or is dropped."""
    if character in OTHERS:
        return OTHERS[character]
    form = tables.normalize("NFKC", character)
    if form == tables.normalize("NFC", character) or any(low <= ord(character) <= high for low, high in IGNORABLE):
        return None
    if not is_word(form) and not is_word(character) and character not in IN_WORDS:
        return None  # both separate words
    kind = tables.decomposition(character).split()[0]
    # An accent that stands alone, the sign of a trademark behind a word.
    if form[0] == " " and not form.strip()[0].isalpha():
        return " "
    if kind == "<super>" and tables.category(character) == "So" and form.isascii():
        return " "
    for letter, plain in (LETTERS | PAIRS).items():
        form = form.replace(letter, plain)
    # What stands in a circle or in a square, and a fraction, is no part of the word beside it.
    apart = kind in ("<circle>", "<fraction>") or (kind == "<square>" and ord(character) >= 0x1F000)
    return f" {form} " if apart else form


def is_word(text: str) -> bool:
    """Whether a text has a character that is part of a word."""
    plain, runs, _ = lexical._patterns()
    return bool(plain.search(text) or runs.search(text))


def forms(tables: Any = built_in) -> dict[str, str]:
    """Return every character that is spelled out, with its form, in the order of the code points."""
    found = {}
    for point in range(0x80, 0x30000):
        if not 0xD800 <= point <= 0xDFFF:
            form = form_of(chr(point), tables)
            if form is not None:
                found[chr(point)] = form
    return found


def ranges(points: Iterable[int], gap: int = 1) -> list[tuple[int, int]]:
    """Return the ranges of sorted numbers; those that are at most ``gap`` apart are joined."""
    points = list(points)
    starts = [points[0], *(after for before, after in pairwise(points) if after - before > gap)]
    ends = [*(before for before, after in pairwise(points) if after - before > gap), points[-1]]
    return list(zip(starts, ends, strict=True))


def written(spans: Iterable[tuple[int, int]]) -> str:
    """Return ranges as those of a character class."""
    return "".join(rf"\x{{{low:x}}}" if low == high else rf"\x{{{low:x}}}-\x{{{high:x}}}" for low, high in spans)


def unchanged(tables: Any = built_in) -> list[tuple[int, int]]:
    """Return ranges of characters of which a text may be made in any order without being changed.

    None is spelled out, dropped, reordered or composed with another.
    """
    changed = {ord(one) for one in [*forms(tables), *LETTERS, *PAIRS]}
    for low, high in [*IGNORABLE, *POINTS]:
        changed.update(range(low, high + 1))
    for point in range(0x80, 0x30000):
        parts = tables.decomposition(chr(point))
        if tables.combining(chr(point)) or tables.normalize("NFC", chr(point)) != chr(point):
            changed.add(point)
        if parts and not parts.startswith("<"):
            changed.update(int(part, 16) for part in parts.split()[1:])
    borders = [-1, *sorted(changed), 0x30000]
    spans = [(before + 1, after - 1) for before, after in pairwise(borders) if after - before > 1]
    return [
        (low, high)
        for low, high in spans
        if (high - low > 255 and low < 0x10000) or any(first <= high and low <= last for first, last in COMMON)
    ]


def macro(tables: Any) -> str:
    """Return the text of the macro."""
    table = forms(tables)
    lines, line = [], "|"
    for character, form in table.items():
        if character not in WIDTHS:
            if len(line) > 100:
                lines.append(line)
                line = "|"
            line += f"{character}{form}|"
    lines.append(line)
    newline = "\n"
    dropped = written([*IGNORABLE, *POINTS, (0xE0000, 0xE0FFF)])
    # STRAßE is STRASSE, no CamelCase.
    text = "regexp_replace(s, '([A-Z]{2})ß', '\\1ẞ', 'g')"
    for letter, pair in PAIRS.items():
        text = f"replace({text}, '{letter}', '{pair}')"
    widths = "".join(table.get(character, character) for character in WIDTHS)
    chosen = written(ranges(map(ord, table)))
    same = written(unchanged(tables))
    return f"""\
-- A text as its words are read from it: composed (NFC), each compatibility form as its plain characters (full-width and
-- half-width forms, ligatures, x², ①, ㎏; NFKC of Unicode {tables.unidata_version}); ß as ss, the letters of Latin that
-- have no decomposition (ł ø đ æ œ …) as those of ASCII, Russian yo as ye, the sigma at the end of a word as any other;
-- without what has no width (soft hyphens, joiners, variation selectors) and the vowel points of Hebrew and Arabic.
-- What has but characters that none of this changes, as most texts do, is returned as it is.
-- Written by tests/support/refresh_composed.py. In the table each character stands before its form.
CREATE OR REPLACE MACRO fts_main_documents.composed(s) AS
    CASE WHEN strlen(s) = length(s) OR NOT regexp_matches(s, '[^{same}]') THEN s
         ELSE translate(regexp_replace(nfc_normalize(list_reduce(
            [{text}]
            || list_distinct(regexp_extract_all(s, '[{chosen}]')),
            lambda done, found: replace(done, found, CASE WHEN found BETWEEN '{WIDTHS[0]}' AND '{WIDTHS[-1]}'
                THEN substr('{widths}', ord(found) - {ord(WIDTHS[0]) - 1}, 1)
                ELSE regexp_extract('{newline.join(lines)}', '[|]' || found || '([^|]+)', 1) END))),
            '[{dropped}]+', '', 'g'), '{"".join(LETTERS)}', '{"".join(LETTERS.values())}')
         END;
"""


def main() -> None:
    import unicodedata2

    TARGET.write_text(macro(unicodedata2), "utf-8")


if __name__ == "__main__":
    main()
