"""Runs a server, of REST or of MCP, in this process until Ctrl-C or SIGTERM, and ends it in order."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn

from sqlrag import scratch
from sqlrag.network import listen
from sqlrag.serving.connections import TimedProtocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# What is not done by then is stopped: who ends a server does not wait for a long answer.
_GRACE_SECONDS = 2
_IDLE_SECONDS = 20
_HEADER_BYTES = 32_768
# Both together, and the files of the store, stay below 1,024: as many files a process may open on most systems.
_CONNECTIONS = 512
_BACKLOG = 256


def run(app: Any, host: str, port: int, *, started: Callable[[str], None]) -> None:
    """Serve an ASGI application; ``started`` is told the address, without a path, once it answers.

    Raises
    ------
    InputError
        Nothing can listen there.
    """
    scratch.sweep()
    listening, url = listen(host, port, backlog=_BACKLOG)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        timeout_graceful_shutdown=_GRACE_SECONDS,
        timeout_keep_alive=_IDLE_SECONDS,
        h11_max_incomplete_event_size=_HEADER_BYTES,
        http=TimedProtocol,
        backlog=_BACKLOG,
        ws="none",
        limit_concurrency=_CONNECTIONS,
    )
    with listening:
        _Server(config, lambda: started(url)).run(sockets=[listening])


class _Server(uvicorn.Server):
    """Says when it has started, and ends without raising the signal that ended it."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._told = started

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._told()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
