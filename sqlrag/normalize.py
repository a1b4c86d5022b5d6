"""Make text and metadata safe to store: pure functions, the same result on every machine."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import math
import pathlib
import re
import sys
import unicodedata
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from sqlrag.errors import InputError

MAX_METADATA_VALUES = 10_000

MAX_METADATA_DEPTH = 32

_SURROGATES = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")

_NEWLINES = re.compile("\r\n?|[\x0b\x0c\x85]")

ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")

"""What colours a terminal."""

# As terminals and printers wrote bold and underlined letters, and nroff still does.
_OVERSTRUCK = re.compile(r"_\x08(?=\S)|(\S)\x08(?=\1)")

_SEPARATORS = re.compile("[\x1c-\x1f]")

_CONTROL = "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"

_DROPPED = re.compile(f"[{_CONTROL}\ufeff]+")

_CHANGED_ASCII = re.compile("[\x00-\x08\x0b-\x1f\x7f]")

# What any of the patterns below begins with or holds.
_CHANGED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufeff]")

_BETWEEN_LETTERS = re.compile(rf"(?<=\w)\ufeff*[{_CONTROL}][{_CONTROL}\ufeff]*(?=\w)")


def _character_of(match: re.Match[str]) -> str:
    """Return the character of a surrogate pair, U+FFFD for a lone surrogate."""
    found = match.group()
    if len(found) == 1:
        return "\ufffd"
    return chr(0x10000 + ((ord(found[0]) - 0xD800) << 10) + (ord(found[1]) - 0xDC00))


_REPLACED: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (_SURROGATES, _character_of),
    (_NEWLINES, "\n"),
    (_SEPARATORS, " "),
    (ESCAPES, ""),
    (_OVERSTRUCK, ""),
    (_BETWEEN_LETTERS, " "),
    (_DROPPED, ""),
)

# Anything with ink. The others are blanks, control characters, Unicode's Default_Ignorable_Code_Point (soft hyphen,
# zero width space and joiners, marks of direction, Hangul fillers, variation selectors, tags), interlinear anchors
# and the Braille pattern without dots.
_VISIBLE = re.compile(
    r"[^\s\x00-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    r"\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)

_LONE_SURROGATES = re.compile("[\ud800-\udfff]")

_WIDE = re.compile(r"\s{2,}|[^\S \n]")

_INT64 = 63

_TEXT_TYPES = (uuid.UUID, pathlib.PurePath)

_DATE_TYPES = (dt.date, dt.time)


def normalize(text: str) -> str:
    r"""Return ``text`` as it is stored: NFC, ``\n`` newlines, no control characters but ``\n`` and ``\t``.

    - CR LF, CR, vertical tab, form feed and NEL become ``\n``.
    - The separators U+001C to U+001F become a space, so that they still separate words.
    - Escape sequences that colour a terminal are removed, and so are letters that the same letter is struck over.
    - Every other control character (NUL among them) becomes a space where it stands between two letters or digits, so
      that it still separates words; elsewhere it is removed. BERT's tokenizers remove it anywhere, and would make one
      word of the two. U+FEFF (the BOM), which has no width, is removed.
    - A pair of surrogates becomes its character, a lone one U+FFFD.

    Applying it twice changes nothing.

    Parameters
    ----------
    text : str
        Any string, also one with surrogates.

    Returns
    -------
    str
        Text that encodes to UTF-8.

    Examples
    --------
    >>> normalize("one\r\ntwo\x00 \ud835")
    'one\ntwo �'
    """
    if text.isascii() and not _CHANGED_ASCII.search(text):
        return text
    if _CHANGED.search(text):
        for pattern, new in _REPLACED:
            if pattern.search(text):  # else a copy would be made of a long text
                text = pattern.sub(new, text)
    return unicodedata.normalize("NFC", text)


def is_blank(text: str, start: int = 0, end: int = sys.maxsize) -> bool:
    r"""Whether a text shows nothing: it has but blanks, control characters and characters without width or ink.

    With ``start`` and ``end`` only the part between them counts. ``str.strip`` knows nothing of zero width spaces, soft
    hyphens, marks of direction and their like.

    Examples
    --------
    >>> is_blank("\u200b \u00ad\n"), is_blank("a")
    (True, False)
    """
    return _VISIBLE.search(text, start, end) is None


def single_spaced(text: str) -> str:
    r"""Return a text with one blank, line end or blank line in place of each run of blank space, and none at its ends.

    Examples
    --------
    >>> single_spaced("A    lot \t of\n\n\n\n   space\n  here ")
    'A lot of\n\nspace\nhere'
    """
    return _WIDE.sub(_narrow, text.strip())


def _narrow(wide: re.Match[str]) -> str:
    return "\n\n"[: wide[0].count("\n")] or " "


def clean_metadata(metadata: Mapping[Any, Any]) -> dict[str, Any]:
    """Return ``metadata`` with JSON values only, in the same order; nested mappings and lists are kept.

    Dates and times become ISO 8601 strings; NaN and infinities None; bytes Base64; a set a sorted list; a numpy
    scalar the equal Python value; a decimal a number, or a string where no float has all of its digits; an integer
    beyond 64 bits a string; paths and UUIDs strings. Keys become strings as :mod:`json` writes them (``true``,
    ``null``). Strings are normalised by :func:`normalize`.

    Parameters
    ----------
    metadata : Mapping
        For instance front matter, as YAML gives it.

    Returns
    -------
    dict of str to JSON value
        A copy; ``json.dumps(..., allow_nan=False)`` takes it.

    Raises
    ------
    InputError
        A value is of a type that JSON cannot hold, or there are more than 10,000 values or 32 levels (aliases
        that refer to each other can grow without bound).
    """
    if not isinstance(metadata, Mapping):
        raise InputError(f"metadata must be a mapping of names to values, not {type(metadata).__name__}")
    cleaned: dict[str, Any] = _Cleaner().clean(metadata, 0)
    return cleaned


class _Cleaner:
    """Clean nested values and count them: shared references let a small YAML text expand without limit."""

    def __init__(self) -> None:
        self.count = 0

    def clean(self, value: Any, depth: int) -> Any:
        self.count += 1
        if self.count > MAX_METADATA_VALUES or depth > MAX_METADATA_DEPTH:
            raise InputError(
                f"metadata has more than {MAX_METADATA_VALUES} values or {MAX_METADATA_DEPTH} levels; make it smaller"
            )
        if type(value) in _PLAIN:
            return _scalar(value)
        if isinstance(value, Mapping):
            return {_key(key): self.clean(item, depth + 1) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.clean(item, depth + 1) for item in value]
        if isinstance(value, (set, frozenset)):
            return sorted(
                (self.clean(item, depth + 1) for item in value), key=lambda item: (str(type(item)), str(item))
            )
        return _scalar(value)


_PLAIN = frozenset({str, int, float, bool, type(None)})


def _key(key: Any) -> str:
    """Return a key as json.dumps would write it."""
    if type(key) is str:
        return normalize(key)
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    value = _scalar(key) if not isinstance(key, tuple) else ", ".join(_key(part) for part in key)
    return value if isinstance(value, str) else str(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, str):
        return normalize(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _integer(int(value))
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, _DATE_TYPES):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, decimal.Decimal):
        return _decimal(value)
    if isinstance(value, _TEXT_TYPES):
        return normalize(str(value))
    if hasattr(value, "dtype") and getattr(value, "shape", None) == ():
        return _moment(value) if value.dtype.kind == "M" else _scalar(value.item())
    raise InputError(
        f"metadata value of type {type(value).__name__} cannot be stored as JSON; pass a string or a number"
    )


def _moment(value: Any) -> str | None:
    """Return a numpy time as text: in nanoseconds its item() is an integer."""
    return None if value != value else str(value)  # NaT


def _decimal(value: decimal.Decimal) -> Any:
    if not value.is_finite():
        return None
    if abs(value) < 2**_INT64 and value == value.to_integral_value():
        return int(value)
    number = float(value)
    if not math.isfinite(number) or decimal.Decimal(repr(number)) != value:
        return str(value)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _integer(value: int) -> Any:
    if value.bit_length() <= _INT64:
        return value
    # Python refuses to print integers of more than 4300 decimal digits; hexadecimal has no such limit.
    return str(value) if value.bit_length() < 10_000 else hex(value)


def json_pointer(key: str) -> str:
    """Return the JSON pointer (RFC 6901) of a key on the top level."""
    return "/" + key.replace("~", "~0").replace("/", "~1")


def clean_name(name: str) -> str:
    """Return a name or an id as it is stored and compared: NFC, each lone surrogate as U+FFFD, no other change.

    The same name comes decomposed from a Mac, a ZIP file and some keyboards.
    """
    return unicodedata.normalize("NFC", without_surrogates(name))


def without_surrogates(text: str) -> str:
    """Return the text with each lone surrogate replaced by U+FFFD, so that it can be encoded; its length is kept."""
    return _LONE_SURROGATES.sub("\ufffd", text)
