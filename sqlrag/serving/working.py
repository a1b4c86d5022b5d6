"""The threads that do the work of requests: so many at once, so many that wait, each for so long."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from sqlrag.serving.refusing import Refused
from sqlrag.stopping import Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

T = TypeVar("T")

_AGAIN_SECONDS = 0.1


class Workers:
    """Does the work of requests in ``threads`` threads; of those that wait, more than ``waiting`` are refused."""

    def __init__(self, threads: int, waiting: int, seconds: float) -> None:
        self.seconds = seconds
        self.room = threads + waiting
        self.pending = 0
        self._lock = threading.Lock()
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: dict[Future[Any], Work] = {}

    async def run(self, do: Callable[[], T], seconds: float | None = None) -> T:
        """Return what a function returns, or refuse it: there is no room (503), or it takes too long (504)."""
        self._enter()
        work = Work()
        with self._lock:
            # An application may be started again after its end.
            self._pool = self._pool or ThreadPoolExecutor(self._threads, thread_name_prefix="sqlrag-serve")
            future = self._pool.submit(copy_context().run, _do, work, do)
            self._under_way[future] = work
        future.add_done_callback(self._done)
        try:
            return await in_time(asyncio.wrap_future(future), self.seconds if seconds is None else seconds)
        finally:
            end(work, future)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count a request that waits for something else before it is run."""
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def close(self) -> None:
        """End what is under way, and wait for its end."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
            while works := list(self._under_way.values()):
                for work in works:
                    work.stop()
                time.sleep(0.02)
            pool.shutdown()

    def _enter(self) -> None:
        with self._lock:
            if self.pending >= self.room:
                raise Refused(503, f"{self.pending} requests are waiting already. Try again in a moment.")
            self.pending += 1

    def _leave(self) -> None:
        with self._lock:
            self.pending -= 1

    def _done(self, future: Future[Any]) -> None:
        self._under_way.pop(future, None)
        self._leave()


async def in_time(future: asyncio.Future[T], seconds: float) -> T:
    """Return what comes of a future; after so many seconds the request is refused."""
    try:
        return await asyncio.wait_for(future, seconds)
    except (asyncio.TimeoutError, TimeoutError) as error:
        raise Refused(504, f"The request took longer than {seconds:g} seconds.") from error


def end(work: Work, future: Future[Any] | asyncio.Future[Any]) -> None:
    """Tell work that nobody waits for to end, until it has."""
    if not future.done():
        work.stop()
        asyncio.get_running_loop().call_later(_AGAIN_SECONDS, end, work, future)


def _do(work: Work, do: Callable[[], Any]) -> Any:
    with work.under_way():
        return do()
