"""How long a connection may keep the server waiting, and which one makes room where there are too many."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

_PROGRESS_BYTES = 16_384
_DETAIL = "This is no request of HTTP/1.1."
_MALFORMED = json.dumps({"type": "about:blank", "title": "Bad Request", "status": 400, "detail": _DETAIL}).encode()
_MALFORMED_HEAD = (
    "HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\nConnection: close\r\n"
    f"Content-Length: {len(_MALFORMED)}\r\n\r\n"
).encode()


class TimedProtocol(H11Protocol):
    """Ends connections that keep the server waiting for uvicorn's ``timeout_keep_alive``, in seconds.

    Such a one has no request under way and has not sent the whole head of the next, be it silent or slow; or it leaves
    an answer in the buffer, but for less than 16 KiB. Where there is no room for a new connection, the one that has
    kept the server waiting for longest is ended, so that others cannot be shut out by it.
    """

    _timer: asyncio.TimerHandle | None = None
    _left = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        others: list[Any] = [one for one in self.connections if one is not self and getattr(one, "_timer", None)]
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency and others:
            min(others, key=lambda one: one._timer.when())._end()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request; less than a whole head gives no more time."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request, or for the client to take the rest of the answer."""
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        """Begin to wait for the client to take what is in the buffer."""
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        """Go on writing."""
        super().resume_writing()
        self._stop()
        self._look()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - all of them say the same
        """Refuse what is no HTTP; where an answer is on its way, nothing can be said any more."""
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self._end()
            return
        self.transport.write(_MALFORMED_HEAD + _MALFORMED)
        self.transport.close()

    def _look(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self._wait()
        elif not self.flow.write_paused:
            self._stop()

    def _wait(self) -> None:
        if self._timer is None:
            self._left = self.transport.get_write_buffer_size()
            self._timer = self.loop.call_later(self.timeout_keep_alive, self._time_is_over)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_is_over(self) -> None:
        self._timer = None
        left = self.transport.get_write_buffer_size()
        if 0 < left <= self._left - _PROGRESS_BYTES:
            self._wait()
        else:
            self._end()

    def _end(self) -> None:
        # To close it would be to wait until the client has read what is in the buffer.
        self._stop()
        self.connections.discard(self)
        self.transport.abort()
