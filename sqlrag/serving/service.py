"""A running server: what it was started with, the file, and the threads that work on it."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import sqlrag
from sqlrag.serving.lending import Lender
from sqlrag.serving.problems import CLIENT_GONE
from sqlrag.serving.refusing import Refused, within
from sqlrag.serving.working import Workers, end, in_time
from sqlrag.stopping import Work

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine

    from starlette.requests import Request

    from sqlrag import AnswerEvent, Store
    from sqlrag.serving.options import ServerOptions

T = TypeVar("T")

_LOOK_SECONDS = 5.0


class Service:
    """What the routes of one server share."""

    def __init__(self, db_path: str | os.PathLike[str], options: ServerOptions) -> None:
        self.options = options
        self.lender = Lender(db_path, writable=options.write, idle_seconds=options.idle_seconds)
        self.workers = Workers(options.threads, options.waiting, options.seconds)
        # Whether the server is well is told while all others are busy.
        self._lookers = Workers(1, options.waiting, _LOOK_SECONDS)
        self.answers = 0
        self._changing = asyncio.Lock()

    async def on_store(self, request: Request, work: Callable[[Store], T], seconds: float | None = None) -> T:
        """Return what a function of the store returns, which runs in a thread while the client waits for it.

        Bytes are an answer, which may be too large; a change is told whatever its report takes.
        """
        found = await while_connected(request, self._run(work, seconds))
        within(len(found) if isinstance(found, bytes) else 0, self.options.max_answer_bytes)
        return found

    async def looking(self, request: Request, work: Callable[[Store], T]) -> T:
        """Return what a short function of the store returns, without waiting for other requests or processes."""

        def run() -> T:
            with self.lender.lend(wait=False) as store:
                return work(store)

        return await while_connected(request, self._lookers.run(run))

    async def changing(self, request: Request, work: Callable[[Store], T]) -> T:
        """Return what a function returns that changes the file: one at a time, for as long as an answer may take."""

        async def change() -> T:
            with self.workers.waiting():
                await in_time(asyncio.ensure_future(self._changing.acquire()), self.options.answer_seconds)
            try:
                return await self._run(work, self.options.answer_seconds)
            finally:
                self._changing.release()

        return await while_connected(request, change())

    async def _run(self, work: Callable[[Store], T], seconds: float | None) -> T:
        came = time.monotonic()

        def run() -> T:
            with self.lender.lend(came) as store:
                return work(store)

        return await self.workers.run(run, seconds)

    async def searched(self, asked: dict[str, Any]) -> AsyncGenerator[AnswerEvent, None]:
        """Return the events of an answer, when the search for it is done and the file given back."""
        if self.answers >= self.options.answers:
            raise Refused(503, f"{self.answers} answers are being made already. Try again in a moment.")
        self.answers += 1
        stack, search_work, came = ExitStack(), Work(), time.monotonic()

        async def search() -> AsyncGenerator[AnswerEvent, None]:
            try:
                with search_work.under_way():
                    store = await asyncio.to_thread(stack.enter_context, self.lender.alone(came))
                    return await sqlrag.aanswer(db_path=store, stream=True, **asked)
            finally:
                await asyncio.to_thread(stack.close)

        searching = asyncio.ensure_future(search())
        try:
            # A search that has begun is not left before its end, because the file is closed after it.
            return await in_time(asyncio.shield(searching), self.options.answer_seconds)
        except BaseException:
            self.answers -= 1
            end(search_work, searching)
            if not searching.done():
                searching.add_done_callback(_drop)
            raise

    @asynccontextmanager
    async def running(self, _: object = None) -> AsyncIterator[None]:
        """Open the file, and close it again at the end; meanwhile it is given back whenever nobody uses it."""
        self._changing = asyncio.Lock()
        await asyncio.to_thread(self._look)
        loop, unused = asyncio.get_running_loop(), asyncio.Event()
        self.lender.unused = lambda: loop.call_soon_threadsafe(unused.set)
        unused.set()
        tidying = asyncio.create_task(self._tidy(unused))
        try:
            yield
        finally:
            self.lender.unused = lambda: None
            tidying.cancel()
            with suppress(asyncio.CancelledError):
                await tidying
            await asyncio.to_thread(self.workers.close)
            await asyncio.to_thread(self._lookers.close)
            self.lender.close()

    def _look(self) -> None:
        with self.lender.lend():
            pass

    async def _tidy(self, unused: asyncio.Event) -> None:
        """Give the file back as soon as it has been idle for long enough."""
        while True:
            await unused.wait()
            unused.clear()
            while (seconds := self.lender.idle_in()) > 0:
                await asyncio.sleep(seconds)
            await asyncio.to_thread(self.lender.tidy)


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return what the work returns; it is cancelled where the client goes away meanwhile."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Refused(CLIENT_GONE, "The client has gone.")
        return working.result()
    except asyncio.CancelledError as error:
        raise Refused(503, "The server is ending. Try again in a moment.") from error
    finally:
        working.cancel()
        watching.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await watching


def _drop(searching: asyncio.Task[AsyncGenerator[AnswerEvent, None]]) -> None:
    """End an answer that nobody waits for any more."""
    if searching.exception() is None:
        _dropping.add(task := asyncio.ensure_future(searching.result().aclose()))
        task.add_done_callback(_dropping.discard)


# Tasks that nothing else holds.
_dropping: set[asyncio.Future[None]] = set()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
