"""Cancels work whose result nobody waits for: SQL at once, Python at its next step.

The loops that can take long call :func:`checkpoint`. Raising an exception in a thread from outside, as CPython can,
would work in any code, but also between acquiring a lock and releasing it.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import duckdb

T = TypeVar("T")

_STOP_INTERVAL_SECONDS = 0.05


class Stopped(BaseException):
    """The work was cancelled. A BaseException, so that ``except Exception`` does not catch it."""


class Work:
    """A piece of work, in one thread or several, which another thread can cancel.

    ``seconds`` is how long it may take from now on; None: as long as it needs.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.lock = threading.RLock()
        self._connections: dict[int, duckdb.DuckDBPyConnection] = {}
        self.stopped = False
        self.begin(seconds)

    def begin(self, seconds: float | None) -> None:
        """Give it so many seconds from now on."""
        self.until = None if seconds is None else time.monotonic() + seconds

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Make the block part of this work."""
        token = _current.set(self)
        try:
            checkpoint()
            yield
        finally:
            _current.reset(token)
            with self.lock:
                self._connections.clear()

    def stop(self) -> None:
        """Cancel it. Call again until it has ended: an interrupt between two statements has no effect."""
        with self.lock:
            self.stopped = True
            for connection in self._connections.values():
                with suppress(Exception):  # it is closed already
                    connection.interrupt()

    def uses(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Interrupt the statements of this connection, too, when the work is cancelled."""
        with self.lock:
            self._connections[id(connection)] = connection


_current: ContextVar[Work | None] = ContextVar("sqlrag_work", default=None)


def checkpoint(connection: duckdb.DuckDBPyConnection | None = None) -> None:
    """Raise :class:`Stopped` if the current work was cancelled; else register the connection with it."""
    work = _current.get()
    if work is None:
        return
    if connection is not None:
        work.uses(connection)
    if work.stopped:
        raise Stopped


# How much of the time that is left a provider gets: the rest is for an answer without it.
_SHARE = 0.75


def patience(seconds: float | None = None) -> float | None:
    """Return how long a provider may take within the current work: so many seconds, and less than the work has left.

    None: there is no limit.
    """
    work = _current.get()
    until = None if work is None else work.until
    if until is None:
        return seconds
    left = max(0.0, until - time.monotonic()) * _SHARE
    return left if seconds is None else min(seconds, left)


@contextmanager
def last_step() -> Iterator[None]:
    """Do the block as the step that makes the work visible: never after it was cancelled, and never half.

    Keep it short, since :meth:`Work.stop` waits for it, and run no SQL of this work in it.
    """
    work = _current.get()
    if work is None:
        yield
        return
    with work.lock:
        checkpoint()
        yield


def pause(seconds: float) -> None:
    """Sleep, with a :func:`checkpoint` every tenth of a second."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        checkpoint()
        time.sleep(min(left, 0.1))


async def in_thread(do: Callable[[], T], *, writes: bool = False) -> T:
    """Return what a function returns that runs in a thread; where the task is cancelled, so is the work of the thread.

    Where it ``writes``, the cancellation goes on when the thread has ended: after its current step.
    """
    import asyncio

    work, begun = Work(), threading.Event()

    def run() -> T:
        begun.set()
        with work.under_way():
            return do()

    thread = asyncio.get_running_loop().run_in_executor(None, copy_context().run, run)
    # Else asyncio would log its exception where nobody waits for it any more.
    thread.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        work.stop()
        while writes and begun.is_set() and not thread.done():
            await asyncio.wait({thread}, timeout=_STOP_INTERVAL_SECONDS)
            work.stop()
        raise


def watched(items: Iterable[T]) -> Iterator[T]:
    """Yield the items, with a :func:`checkpoint` before each."""
    for item in items:
        checkpoint()
        yield item
