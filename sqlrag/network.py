"""What both servers need, whatever framework they are made of: where they listen, and who has the key."""

from __future__ import annotations

import hmac
import ipaddress
import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlrag.errors import InputError

if TYPE_CHECKING:
    from collections.abc import MutableMapping

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""The names of this machine in the header ``Host``."""
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::[0-9]{0,5})?", re.ASCII)
_ABSOLUTE = re.compile(r"https?://([^/]*)(.*)", re.DOTALL | re.IGNORECASE)
NO_KEY = "Send the key: Authorization: Bearer KEY, or X-API-Key: KEY."


def listen(host: str, port: int, *, backlog: int | None = None) -> tuple[socket.socket, str]:
    """Return a socket that listens, and the URL of a server there, without a path. Port 0 is any that is free.

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
    """Return whether only this machine can reach a host's address; a name has no case."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(authority: str) -> str | None:
    """Return the name or address of a header ``Host``, in small letters; None where it is not ``host[:port]`` at all.

    RFC 9110, section 7.2: no user, no path, no blank; letters, digits, "-", "." and "_" of a name, or an IPv6 address
    in brackets.
    """
    found = _AUTHORITY.fullmatch(authority.lower())
    return found[1] if found else None


def host_of_origin(origin: str) -> str | None:
    """Return the host of a header ``Origin``; None where it is that of no page."""
    scheme, _, authority = origin.lower().partition("://")
    return host_of(authority) if scheme in ("http", "https") else None


def to_origin_form(scope: MutableMapping[str, Any]) -> None:
    """Make a request of ASGI for a whole URL one for its path, at the host of the URL (RFC 9112, section 3.2.2)."""
    found = _ABSOLUTE.fullmatch(scope.get("path", "")) if scope["type"] == "http" else None
    if found:
        scope["path"] = found[2] or "/"
        others = [(name, value) for name, value in scope["headers"] if name != b"host"]
        scope["headers"] = [*others, (b"host", found[1].encode("utf-8", "replace"))]


def in_url(host: str) -> str:
    """Return a host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def has_key(authorization: bytes, api_key: bytes, key: bytes) -> bool:
    """Return whether one of the headers ``Authorization`` and ``X-API-Key`` holds the key; it takes as long if not."""
    scheme, _, token = authorization.partition(b" ")
    return hmac.compare_digest(token.strip() if scheme.lower() == b"bearer" else api_key, key)


def without_folders(text: str, *folders: str | os.PathLike[str]) -> str:
    """Return a text for others, with the names of files alone where it has their paths below one of the folders.

    Examples
    --------
    >>> without_folders("/srv/data/kb.duckdb is in use.", "/srv/data")
    'kb.duckdb is in use.'
    """
    forms = {os.fspath(form) for folder in map(Path, folders) for form in (folder, folder.resolve())} - {os.sep, "."}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form + os.sep, "")
    return text


def is_url(path: object) -> bool:
    """Return whether a store's address is one of a Postgres server, and no file."""
    return isinstance(path, str) and path.partition("://")[0].lower() in ("postgresql", "postgres") and "://" in path


_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/|.*\bpassword=", re.DOTALL)


def refuse_address(path: object) -> None:
    """Raise InputError for an address where the path of a file is needed; pathlib makes one slash of two."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
    if isinstance(text, str) and _ADDRESS.match(text):
        raise InputError(
            "This needs a DuckDB file, and an address was given. Where a store in Postgres is taken, write "
            "postgresql://user@host/database; sqlrag pull URL kb.duckdb makes a file of it."
        )


def without_password(address: str) -> str:
    """Return an address without what stands between its user and its host, and without passwords after ``?``.

    Examples
    --------
    >>> without_password("postgresql://ann:s3/cr@t@host/kb?sslpassword=x&schema=team")
    'postgresql://ann@host/kb?schema=team'
    """
    place, _, query = re.sub(r"(/[^/@:]*):.*@", r"\1@", address).partition("?")
    shown = "&".join(pair for pair in query.split("&") if "password" not in pair.partition("=")[0].lower())
    return f"{place}?{shown}" if shown else place
