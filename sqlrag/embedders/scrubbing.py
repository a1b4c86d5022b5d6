"""Keeps secrets out of messages."""

from __future__ import annotations

import re

_PATTERNS = (
    re.compile(r"(?i)\b(bearer\s+)[^\s'\",;]+"),
    re.compile(r"\b((?:sk|pk|rk|pa|jina|hf|gsk|key)[-_])[A-Za-z0-9_\-*.]{8,}"),
    re.compile(r"(?i)(https?://)[^/\s@]+(?=@)"),
    re.compile(r"(?i)\b(api[-_]?key['\"]?\s*[=:]\s*['\"]?)[^\s'\",;&]+"),
)


def scrub(text: str, *secrets: str | None) -> str:
    """Return the text with the secrets, and what looks like a key, replaced by ``***``.

    Examples
    --------
    >>> scrub("Incorrect API key: hunter2; Authorization: Bearer abc", "hunter2")
    'Incorrect API key: ***; Authorization: Bearer ***'
    """
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    for pattern in _PATTERNS:
        text = pattern.sub(r"\1***", text)
    return text
