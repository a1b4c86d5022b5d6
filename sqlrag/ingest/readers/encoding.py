"""The characters of a text file: UTF-8, what its byte order mark says, else the encoding that fits best."""

from __future__ import annotations

import codecs
import re
import unicodedata

from sqlrag.arguments import counted
from sqlrag.errors import DocumentError

# Longest first: the mark of UTF-32 LE begins with that of UTF-16 LE.
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

_WIDE = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")

_LEAST_WIDE = 4

_LEAST_CJK = 32  # bytes; without blanks and Latin letters nothing else tells UTF-16

_ASCII = bytes(range(0x80))

_CONTROLS = bytes([*range(0x09), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F])

# Valid ASCII, so that UTF-8 would take them for text: escape sequences of ISO 2022, and what begins HZ and UTF-7.
_SEVEN_BIT = re.compile(rb"\x1b(?:\$[@AB]|\$[()][A-Q]|\([IJ])|~\{(?:[!-w][!-~])+~\}|\+[A-Za-z0-9/]{3,}-")

_SEVEN_BIT_NAMES = ("iso2022_jp_2", "iso2022_jp_2004", "iso2022_jp_ext", "iso2022_kr", "hz", "utf-7")

# What people's programs wrote. With everything that the detector knows, short texts become Icelandic or Tajik.
_MANY_BYTES = ("gb18030", "big5hkscs", "cp932", "euc_jis_2004", "cp949", "euc_kr", "johab")
_ONE_BYTE = (
    *("cp1252", "iso8859-1", "iso8859-15", "cp850", "cp437", "mac-roman"),
    *("cp1250", "iso8859-2", "cp852", "cp1257", "cp1254", "iso8859-9", "cp857"),
    *("cp1251", "koi8-r", "koi8-u", "cp866", "iso8859-5", "cp855", "mac-cyrillic"),
    *("cp1253", "iso8859-7", "cp737", "cp1255", "iso8859-8", "cp1256", "iso8859-6", "cp874", "tis-620"),
)

# Of chardet's scale. Right guesses at texts of 60 characters and more have .08 and .3 at least; random bytes reach .06,
# bytes of an encoding that chardet does not know .15 where it takes two for a character.
_LEAST = dict.fromkeys(_ONE_BYTE, 0.03) | dict.fromkeys(_MANY_BYTES, 0.2)

# Where nothing says more, the most common encoding of all is right if it makes words.
_USUAL = "cp1252"

_COMMON_SIGNS = "“”‘’–—…•·«»°©®™§€£½¼¾±×²³\xa0".encode(_USUAL)

_OTHER_SCRIPT = "\u0370-\u06ff"

_OTHER_WORD = re.compile(f"[{_OTHER_SCRIPT}]+")

_MIXED = re.compile(f"(?<=[A-Za-z])[{_OTHER_SCRIPT}]|[{_OTHER_SCRIPT}](?=[A-Za-z])")

_LETTER = re.compile(r"[^\W\d_]")

_CONTROL = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f]")

# An accented capital, or a sign that stands between words (not an apostrophe, soft hyphen, dash, dot or vowel of Thai).
_ODD_INSIDE = re.compile(
    r"(?<=[^\W\d_])[^\w\s\x00-\x7f’‘\xad·–—…\u0300-\u036f\u0e00-\u0e7f](?=[^\W\d_])|(?<=[a-z])[À-ÖØ-Þ](?=[a-z])"
)

_JUDGED = 65_536

_EVIDENCE = 262_144


def decode(data: bytes, doc_id: str) -> tuple[str, tuple[str, ...]]:
    """Return the text of a file, and a warning where its encoding was guessed or is damaged.

    UTF-8 and what a byte order mark says are certain. Then come UTF-16 and UTF-32 without a mark, ISO 2022, HZ and
    UTF-7. A few wrong bytes among many right UTF-8 sequences are damage. Of the other encodings the one that chardet
    finds is taken; below its confidence .03 (.2 where two bytes make a character) that is Windows-1252 or none.

    Parameters
    ----------
    data : bytes
        The whole file.
    doc_id : str
        Named in warnings and errors.

    Raises
    ------
    DocumentError
        It is binary data, or no known encoding fits well enough.
    """
    mark = next((name for mark, name in BYTE_ORDER_MARKS if data.startswith(mark)), "")
    if mark.startswith(("utf-16", "utf-32")):
        try:
            return data.decode(mark), ()
        except UnicodeDecodeError as error:
            raise DocumentError(doc_id, f"not valid {mark.upper()}: {error}; save it as UTF-8") from error
    escape = _SEVEN_BIT.search(data) if data.isascii() else None
    if escape:
        encoding = _seven_bit_encoding(data)
        if encoding:
            return data.decode(encoding), _guessed(doc_id, encoding)
        if escape.group().startswith(b"\x1b"):
            raise DocumentError(doc_id, "its escape sequences are those of ISO 2022, but do not fit; save it as UTF-8")
    start = data[:_JUDGED]
    controls = len(start) - len(start.translate(None, _CONTROLS))
    if 10 * controls > len(start):
        encoding = wide_encoding(data)
        if not encoding:
            raise DocumentError(doc_id, "the content is not text: it is binary data")
        return data.decode(encoding), _guessed(doc_id, encoding)
    try:
        return data.decode(mark or "utf-8"), ()
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
        wrong = text.count("\ufffd")
        others = len(text) - len(text.encode("ascii", "ignore"))
        # Other encodings hardly ever have a sequence of UTF-8, unless nearly all of their bytes are beyond ASCII.
        is_mostly_ascii = 10 * len(data.translate(None, _ASCII)) < len(data)
        if b"\x00" not in data and others > (2 * wrong - 1 if is_mostly_ascii else 10 * wrong):
            return text, (f"{doc_id}: {counted(wrong, 'wrong UTF-8 sequence')} became U+FFFD",)
    encoding = legacy_encoding(data) or (wide_encoding(data) if len(data) >= _LEAST_CJK else "")
    if not encoding:
        raise DocumentError(doc_id, "not UTF-8 text and no known encoding fits; save it as UTF-8")
    return data.decode(encoding), _guessed(doc_id, encoding)


def _guessed(doc_id: str, encoding: str) -> tuple[str, ...]:
    return (f"{doc_id}: not UTF-8, read as {encoding} (a guess); save it as UTF-8 to be sure",)


def _decoded(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except (UnicodeDecodeError, LookupError):
        return None


def wide_encoding(data: bytes) -> str:
    """Return the one of UTF-16 and UTF-32 that fits; "" if none does.

    Text of a language needs few of the 256-character pages of Unicode. With the bytes in the wrong order, each
    character is of another page, and many are not assigned. Pairs of ASCII letters are Chinese characters, but those
    with a blank are signs that no text has; and where all bytes are ASCII, a quarter at least are controls, which are
    the pages of the scripts that such characters are of.
    """
    if data.isascii() and 4 * len(data.translate(None, _CONTROLS)) > 3 * len(data):
        return ""
    fitting = []
    for encoding in _WIDE:
        start = (_decoded(data, encoding) or "")[:_JUDGED]
        strange = sum(_is_strange(one) for one in start)
        if len(start) >= _LEAST_WIDE and 100 * strange <= len(start):
            fitting.append((len({ord(one) >> 8 for one in start}), encoding))
    return min(fitting, default=(0, ""), key=lambda one: one[0])[1]


def _is_strange(one: str) -> bool:
    return "\u2061" <= one <= "\u207a" or (unicodedata.category(one) in {"Cc", "Cn", "Co"} and not one.isspace())


def _seven_bit_encoding(data: bytes) -> str:
    """Return which of ISO 2022, HZ and UTF-7 it is; "" if none, as in a text that has a few of their signs."""
    return next((name for name, _ in _ranked(data, _SEVEN_BIT_NAMES) if _decoded(data, name) is not None), "")


def legacy_encoding(data: bytes) -> str:
    """Return the encoding that fits best; "" if none does well enough."""
    evidence = data
    if len(data) > _EVIDENCE:
        evidence = b"\n".join(line for line in data.split(b"\n") if not line.isascii())[:_EVIDENCE]
    usual = _USUAL if _is_western(evidence) and _decoded(data, _USUAL) is not None else ""
    high = data.translate(None, _ASCII)
    if usual and (len(high) == 1 or not high.translate(None, _COMMON_SIGNS)):  # chardet has too little to go by
        return usual
    for name, confidence in _ranked(evidence, tuple(_LEAST)):
        if confidence < _LEAST[name] or _decoded(data, name) is None:
            continue
        if name in _MANY_BYTES or _makes_words(evidence.decode(name, "replace")):
            return name
    return usual


def _ranked(data: bytes, names: tuple[str, ...]) -> list[tuple[str, float]]:
    """Return the encodings that the data may be in, of these, with chardet's confidence from 0 to 1, the best first."""
    import chardet

    found = chardet.detect_all(
        data,
        ignore_threshold=True,
        max_bytes=len(data),
        compat_names=False,
        include_encodings=(*names, "ascii"),
        no_match_encoding="ascii",
    )
    return [(one["encoding"], one["confidence"]) for one in found if one["encoding"] in names]


def _makes_words(text: str) -> bool:
    """Return whether there are no controls, letters of different scripts are apart, and signs are between words."""
    if _CONTROL.search(text):
        return False
    letters = sum(not one.isascii() for one in _LETTER.findall(text))
    mixed, others = len(_MIXED.findall(text)), len(_OTHER_WORD.findall(text))
    return 4 * mixed <= others and 10 * len(_ODD_INSIDE.findall(text)) <= letters


def _is_western(data: bytes) -> bool:
    """Return whether it makes words in Windows-1252, and at least half of their letters are those of English."""
    text = data.decode(_USUAL, "replace")
    letters = "".join(_LETTER.findall(text))
    return 2 * len(letters.encode("ascii", "ignore")) >= len(letters) and _makes_words(text)
