"""The connections of one call, which another thread can end while they are waited for."""

from __future__ import annotations

import socket
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

ELSEWHERE = "x-elsewhere"
"""The header into which :func:`stay` puts the address of another server."""

_current: ContextVar[Connections | None] = ContextVar("sqlrag_connections", default=None)


class Abandoned(BaseException):
    """Nobody waits for the answer any more. No ``Exception``, so that nobody takes it for a failure of the model."""


class Connections:
    """The connections that a context has made, as the transport of the HTTP client tells of them."""

    def __init__(self) -> None:
        self._streams: list[Any] = []
        self.ended = False

    @classmethod
    def begin(cls) -> Connections:
        """Collect what this context connects to from now on."""
        made = cls()
        _current.set(made)
        return made

    def end(self) -> None:
        """End them and those that are still to come: whoever reads from one wakes up."""
        self.ended = True
        for stream in list(self._streams):
            with suppress(OSError):  # it is closed already
                stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def watch(self, event: str, info: Mapping[str, Any]) -> None:
        """Take down a connection; the extension ``trace`` of a request calls this."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            self._streams.append(info["return_value"])
            if self.ended:
                self.end()


def observe(request: Any) -> None:
    """Have a request of an HTTP client tell the connections of its context; an event hook."""
    connections = check()
    if connections is not None:
        request.extensions["trace"] = connections.watch


def stay(response: Any) -> None:
    """Follow no redirect to another server, which would get the prompt with its documents; an event hook."""
    if response.has_redirect_location:
        here, there = response.request.url, response.request.url.join(response.headers["location"])
        if (here.scheme, here.host, here.port) != (there.scheme, there.host, there.port):
            del response.headers["location"]
            response.headers[ELSEWHERE] = str(there)


def check() -> Connections | None:
    """Return the connections of this context, None where nobody collects them; raise Abandoned if they were ended."""
    connections = _current.get()
    if connections is not None and connections.ended:
        raise Abandoned
    return connections
