"""Keeps secrets out of messages."""

from __future__ import annotations

import html
import re
from urllib.parse import quote

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
            text = _spellings(secret).sub("***", text)
    for pattern in _PATTERNS:
        text = pattern.sub(r"\1***", text)
    return text


def _spellings(secret: str) -> re.Pattern[str]:
    """Return a pattern of a secret as it is, and as JSON, a repr, an address or HTML escape its characters.

    No backslash is matched by two parts of it, so that long runs of them take no long time.
    """
    parts, before = list[str](), ""
    for run in re.findall(r"\\+|[^\\]", secret):
        if run[0] == "\\":
            first = "" if parts else r"(?<!\\)"
            parts.append(rf"(?:{first}\\+(?:u005[Cc]\\*)*|(?:%5[Cc])+|(?:&#92;)+)")
            before = ""
            continue
        forms = {run, f"u{ord(run):04x}", f"u{ord(run):04X}", f"x{ord(run):02x}"}
        if not run.isalnum():
            forms |= {quote(run, safe=""), quote(run, safe="").lower(), html.escape(run), f"&#{ord(run)};"}
        parts.append(f"{before}(?:{'|'.join(map(re.escape, sorted(forms)))})")
        before = r"\\*"
    return re.compile("".join(parts))
