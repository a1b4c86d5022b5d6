"""The threads that do the work of requests: so many at once, so many that wait, each for so long."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from sqlrag.serving.problems import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlrag import Store

T = TypeVar("T")


class Job:
    """A piece of work in a thread, which can be told to stop: DuckDB ends the statement that it runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._interrupt: Callable[[], None] | None = None
        self.stopped = False

    def uses(self, store: Store) -> None:
        """Say whose statements to end, in the thread that runs them."""
        with self._lock:
            self._interrupt = store.cursor().interrupt
            if self.stopped:
                raise Refused(504, "The time of the request was over before it began.")

    def finish(self) -> None:
        """Say that there is nothing to end any more."""
        with self._lock:
            self._interrupt = None

    def stop(self) -> None:
        """End what it does, at its next statement at the latest."""
        with self._lock:
            self.stopped = True
            if self._interrupt is not None:
                self._interrupt()


class Workers:
    """Does the work of requests in ``threads`` threads; of those that wait, more than ``waiting`` are refused."""

    def __init__(self, threads: int, waiting: int, seconds: float) -> None:
        self.seconds = seconds
        self.room = threads + waiting
        self.pending = 0
        self._lock = threading.Lock()
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[Job], T], seconds: float | None = None) -> T:
        """Return what the work returns, or refuse it: there is no room (503), or it takes too long (504)."""
        with self._lock:
            # An application may be started again after its end.
            self._pool = self._pool or ThreadPoolExecutor(self._threads, thread_name_prefix="sqlrag-serve")
            if self.pending >= self.room:
                raise Refused(503, f"{self.pending} requests are waiting already. Try again in a moment.")
            self.pending += 1
            pool = self._pool
        limit = self.seconds if seconds is None else seconds
        job = Job()
        context = copy_context()
        future = pool.submit(context.run, self._do, work, job)
        future.add_done_callback(self._done)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), limit)
        except (asyncio.TimeoutError, TimeoutError) as error:
            raise Refused(504, f"The request took longer than {limit:g} seconds.") from error
        finally:
            job.stop()

    def close(self) -> None:
        """Wait for what is under way."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def _done(self, _: object) -> None:
        with self._lock:
            self.pending -= 1

    @staticmethod
    def _do(work: Callable[[Job], Any], job: Job) -> Any:
        try:
            return work(job)
        finally:
            job.finish()
