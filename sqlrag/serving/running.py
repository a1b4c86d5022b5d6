"""Runs a server in this process until Ctrl-C or SIGTERM, and ends it in order."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn

from sqlrag.network import listen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI

_GRACE_SECONDS = 30
_HEADER_BYTES = 32_768
_CONNECTIONS = 1000


def run(app: FastAPI, host: str, port: int, *, started: Callable[[str], None]) -> None:
    """Serve an application; ``started`` is told the address once it answers.

    Raises
    ------
    InputError
        Nothing can listen there.
    """
    listening, url = listen(host, port, backlog=512)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        timeout_graceful_shutdown=_GRACE_SECONDS,
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=_HEADER_BYTES,
        http="h11",
        ws="none",
        limit_concurrency=_CONNECTIONS,
    )
    with listening:
        _Server(config, lambda: started(f"{url}/")).run(sockets=[listening])


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
