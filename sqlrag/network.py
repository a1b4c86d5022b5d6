"""Helpers of servers and providers: addresses, keys, and messages without secrets."""

from __future__ import annotations

import hmac
import html
import ipaddress
import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sqlrag.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, MutableMapping

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

"""The names of this machine in the header ``Host``."""

_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::[0-9]{0,5})?", re.ASCII)

_ABSOLUTE = re.compile(r"https?://([^/]*)(.*)", re.DOTALL | re.IGNORECASE)

NO_KEY = "Send the key: Authorization: Bearer KEY, or X-API-Key: KEY."


def listen(host: str, port: int, *, backlog: int | None = None) -> tuple[socket.socket, str]:
    """Return a socket that listens, and the URL of a server there, without a path. Port 0 is any free port.

    Raises
    ------
    InputError
        The port is taken, or the host has no such address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=backlog)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"Cannot listen at {in_url(host)}:{port}: {why}. Pass another --port; 0 finds one.") from error
    return listener, f"http://{in_url(host)}:{listener.getsockname()[1]}"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host's address; case does not matter."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(authority: str) -> str | None:
    """Return the name or address of a header ``Host``, in lower case; None where it is not ``host[:port]``.

    RFC 9110, section 7.2: no user, no path, no blank; letters, digits, "-", "." and "_" of a name, or an IPv6 address
    in brackets.
    """
    found = _AUTHORITY.fullmatch(authority.lower())
    return found[1] if found else None


_PORTS = {"http": "80", "https": "443"}


def is_own_origin(origin: str, host: str, scheme: str, names: Collection[str] = ()) -> bool:
    """Return whether a header ``Origin`` is that of the server's own pages, for a request with this ``Host``.

    That is the request's own scheme, host and port, where the names of this machine are one host. TLS may end at a
    proxy, so that for another machine https is accepted as well. A proxy may also change host and port; the ``names``,
    in lower case, are those that it has for browsers, at any port.
    """
    sent, _, authority = origin.lower().partition("://")
    name, own = host_of(authority), host_of(host)
    if sent not in _PORTS or name is None or own is None:
        return False
    if name in names:
        return True
    is_here = own in LOOPBACK
    is_host = name in LOOPBACK if is_here else name == own
    is_scheme = sent == scheme or (sent == "https" and not is_here)
    return is_host and is_scheme and _port_of(authority, sent) == _port_of(host, sent)


def _port_of(authority: str, scheme: str) -> str:
    """Return the port of ``host[:port]``, that of the scheme where it has none."""
    return authority.rpartition("]")[2].partition(":")[2] or _PORTS[scheme]


def origin_of(text: str) -> str:
    """Return an origin as browsers send it: lower case, without the port of its scheme and without a slash; or "*".

    Raises
    ------
    InputError
        It is no origin of http or https.

    Examples
    --------
    >>> origin_of("https://App.example.org:443/")
    'https://app.example.org'
    """
    scheme, _, authority = text.lower().removesuffix("/").partition("://")
    name = host_of(authority)
    if text != "*" and (scheme not in _PORTS or name is None or authority.endswith(":")):
        raise InputError(
            f"{text!r} is no origin. Write scheme, host and port of the page's address, such as http://localhost:3000, "
            'or "*" for any.'
        )
    return text if name is None else f"{scheme}://{authority.removesuffix(f':{_PORTS[scheme]}')}"


def to_origin_form(scope: MutableMapping[str, Any]) -> None:
    """Rewrite an ASGI request for an absolute URL to one for its path at the URL's host (RFC 9112, section 3.2.2)."""
    found = _ABSOLUTE.fullmatch(scope.get("path", "")) if scope["type"] == "http" else None
    if found:
        scope["path"] = found[2] or "/"
        others = [(name, value) for name, value in scope["headers"] if name != b"host"]
        scope["headers"] = [*others, (b"host", found[1].encode("utf-8", "replace"))]


def in_url(host: str) -> str:
    """Return a host as it is written in a URL."""
    return f"[{host}]" if ":" in host else host


def has_key(authorization: bytes, api_key: bytes, key: bytes) -> bool:
    """Return whether the header ``Authorization`` or ``X-API-Key`` has the key, in constant time."""
    scheme, _, token = authorization.partition(b" ")
    return hmac.compare_digest(token.strip() if scheme.lower() == b"bearer" else api_key, key)


def without_folders(text: str, *folders: str | os.PathLike[str]) -> str:
    """Return a text in which paths below one of the folders are relative to it.

    Examples
    --------
    >>> without_folders("/srv/data/kb.duckdb is in use.", "/srv/data")
    'kb.duckdb is in use.'
    """
    forms = {os.fspath(form) for folder in map(Path, folders) for form in (folder, folder.resolve())} - {os.sep, "."}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form + os.sep, "")
    return text


def scheme_of(place: object) -> str:
    """Return the scheme of an address in lower case, "" where it has none, such as the path of a file."""
    scheme, separator, _ = place.partition("://") if isinstance(place, str) else ("", "", "")
    return scheme.lower() if separator else ""


REMOTE = ("http", "https", "s3", "s3a", "s3n", "gs", "gcs", "r2", "hf")
"""The schemes of files that DuckDB's extension httpfs reads."""

_STORAGE = re.compile(r"(?:s3[an]?|gs|gcs|r2|hf|https?|abfss?|az|azure)://?", re.IGNORECASE)

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/|.*\bpassword=", re.DOTALL)


def refuse_address(path: object) -> None:
    """Raise InputError for a URL where the path of a file is needed, also with one slash, as pathlib leaves it."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
    if isinstance(text, str) and _STORAGE.match(text):
        raise InputError(
            f"{shown_address(text)} is in an object store or on the web, and this needs a file of this machine. Copy "
            "it here. Searches read one file where it is, with DuckDB's extension httpfs: sqlrag search … --db URL, "
            "sqlrag.Store('https://…'), see the handbook's page 'A corpus in a lake'."
        )
    if isinstance(text, str) and _ADDRESS.match(text):
        raise InputError(
            "This needs a DuckDB file, and a URL was given. Where a store in Postgres is supported, write "
            "postgresql://user@host/database; sqlrag pull URL kb.duckdb copies it to a file."
        )


def is_remote(place: object) -> bool:
    """Return whether a place is the address of a file on a web server or in an object store, as text."""
    return scheme_of(place) in REMOTE


_USER = re.compile(r"(:/{1,2})(?:[^/\s'\"]*@|[^/@:\s'\"]*:(?!\d*(?:/|$))[^'\"]*@)")

_QUERY = re.compile(r"(:/[^'\"?]*)\?[^'\"]*")


def shown_address(text: str) -> str:
    """Return an address, or a text with quoted ones, without users, passwords and what follows "?".

    Examples
    --------
    >>> shown_address("HEAD to 'https://ann:s3cret@host/kb.duckdb?X-Amz-Signature=1f' failed")
    "HEAD to 'https://host/kb.duckdb' failed"
    """
    return _QUERY.sub(r"\1", _USER.sub(r"\1", text))


def without_password(address: str) -> str:
    """Return an address without the part between its user and its host, and without passwords after ``?``.

    Examples
    --------
    >>> without_password("postgresql://ann:s3/cr@t@host/kb?sslpassword=x&schema=team")
    'postgresql://ann@host/kb?schema=team'
    """
    place, _, query = re.sub(r"(/[^/@:]*):.*@", r"\1@", address).partition("?")
    shown = "&".join(pair for pair in query.split("&") if "password" not in pair.partition("=")[0].lower())
    return f"{place}?{shown}" if shown else place


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
    """Return a pattern that matches a secret as it is, or escaped as in JSON, a repr, a URL or HTML.

    No two parts of it match the same backslash, so that long runs of them do not backtrack.
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
