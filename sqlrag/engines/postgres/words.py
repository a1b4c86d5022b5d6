"""The words of a question as Postgres stores those of a text: see the function folded in sql/postgres."""

from __future__ import annotations

import re
import unicodedata

_APART = re.compile(
    "([\u00bc-\u00be\u2150-\u215f\u2189\u2460-\u2473\u24b6-\u24ea\u3244-\u3247\u3251-\u327e\u3280-\u32bf\u32d0-\u32fe\U0001f12b-\U0001f12e\U0001f130-\U0001f14f\U0001f190\U0001f200-\U0001f202\U0001f210-\U0001f23b\U0001f250-\U0001f251])"
)

_DROPPED = re.compile(
    "[\u00ad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]"
)

_LETTERS = str.maketrans(
    {
        **dict(zip("øØłŁđĐðÐħĦŧŦŋŊıĸёЁς", "oOlLdDdDhHtTnNikеЕσ", strict=True)),
        "ß": "ss",
        "ẞ": "SS",
        "æ": "ae",
        "Æ": "Ae",
        "œ": "oe",
        "Œ": "Oe",
        "þ": "th",
        "Þ": "Th",
    }
)

_SIGNS = str.maketrans("™℠", "  ")


def folded(text: str) -> str:
    """Return a text with compatibility forms, ß and letters such as ł spelled out, without what has no width."""
    if text.isascii():
        return text
    text = _DROPPED.sub("", _APART.sub(r" \1 ", text.translate(_SIGNS)))
    return unicodedata.normalize("NFKC", text).translate(_LETTERS)
