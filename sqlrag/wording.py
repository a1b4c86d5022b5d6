"""The words of messages that depend on a number."""

from __future__ import annotations


def counted(count: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun, such as "1 chunk" or "2,000 chunks".

    Examples
    --------
    >>> counted(1, "file"), counted(1200, "file"), counted(0, "match", "matches")
    ('1 file', '1,200 files', '0 matches')
    """
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"
