"""Ending work that nobody waits for any more: SQL at once, Python at its next step.

The loops that can take long call :func:`checkpoint`. Raising an exception in a thread from outside, as CPython can,
would do it in any code, but also between taking a lock and giving it back.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

import duckdb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")


class Stopped(BaseException):
    """The work was told to end. No error, so that ``except Exception`` does not go on with it."""


class Work:
    """A piece of work, in one thread or several, which another thread can tell to end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: dict[int, duckdb.DuckDBPyConnection] = {}
        self.stopped = False

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Take what the block does for this work."""
        token = _current.set(self)
        try:
            checkpoint()
            yield
        finally:
            _current.reset(token)
            with self._lock:
                self._connections.clear()

    def stop(self) -> None:
        """End it; to be called again until it has ended, because what runs between two statements hears nothing."""
        with self._lock:
            self.stopped = True
            for connection in self._connections.values():
                with suppress(duckdb.Error):  # it is closed already
                    connection.interrupt()

    def uses(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Say that its statements are part of this work."""
        with self._lock:
            self._connections[id(connection)] = connection


_current: ContextVar[Work | None] = ContextVar("sqlrag_work", default=None)


def checkpoint(connection: duckdb.DuckDBPyConnection | None = None) -> None:
    """Raise :class:`Stopped` if the work under way was told to end; else it may use the connection."""
    work = _current.get()
    if work is None:
        return
    if connection is not None:
        work.uses(connection)
    if work.stopped:
        raise Stopped


def watched(items: Iterable[T]) -> Iterator[T]:
    """Yield what is given, with a :func:`checkpoint` before each."""
    for item in items:
        checkpoint()
        yield item
