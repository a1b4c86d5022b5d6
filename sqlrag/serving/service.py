"""A running server: what it was started with, the file, and the threads that work on it."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import sqlrag
from sqlrag.serving.lending import Lender
from sqlrag.serving.problems import CLIENT_GONE, Refused
from sqlrag.serving.working import Workers

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine

    from starlette.requests import Request

    from sqlrag import AnswerEvent, Store
    from sqlrag.serving.options import ServerOptions
    from sqlrag.serving.working import Job

T = TypeVar("T")


class Service:
    """What the routes of one server share."""

    def __init__(self, db_path: str | os.PathLike[str], options: ServerOptions) -> None:
        self.options = options
        self.lender = Lender(db_path, writable=options.write, idle_seconds=options.idle_seconds)
        self.workers = Workers(options.threads, options.waiting, options.seconds)
        self.answers = 0
        self._changing = asyncio.Lock()

    async def on_store(self, request: Request, work: Callable[[Store], T], seconds: float | None = None) -> T:
        """Return what a function of the store returns, which runs in a thread while the client waits for it."""

        def run(job: Job) -> T:
            with self.lender.lend() as store:
                job.uses(store)
                return work(store)

        return await while_connected(request, self.workers.run(run, seconds))

    async def changing(self, request: Request, work: Callable[[Store], T]) -> T:
        """Return what a function returns that changes the file: one at a time, for as long as an answer may take."""
        async with self._changing:
            return await self.on_store(request, work, self.options.answer_seconds)

    async def searched(self, asked: dict[str, Any]) -> AsyncGenerator[AnswerEvent, None]:
        """Return the events of an answer, when the search for it is done and the file given back."""
        if self.answers >= self.options.answers:
            raise Refused(503, f"{self.answers} answers are being made already. Try again in a moment.")
        self.answers += 1
        stack = ExitStack()

        async def search() -> AsyncGenerator[AnswerEvent, None]:
            try:
                store = await asyncio.to_thread(stack.enter_context, self.lender.alone())
                return await sqlrag.aanswer(db_path=store, stream=True, **asked)
            finally:
                await asyncio.to_thread(stack.close)

        searching = asyncio.ensure_future(search())
        try:
            # A search that has begun is not left before its end, because the file is closed after it.
            return await asyncio.shield(searching)
        except BaseException:
            self.answers -= 1
            if not searching.done():
                searching.add_done_callback(_drop)
            raise

    @asynccontextmanager
    async def running(self, _: object = None) -> AsyncIterator[None]:
        """Open the file, and close it again at the end; meanwhile it is given back whenever nobody uses it."""
        self._changing = asyncio.Lock()
        await asyncio.to_thread(self._look)
        tidying = asyncio.create_task(self._tidy())
        try:
            yield
        finally:
            tidying.cancel()
            with suppress(asyncio.CancelledError):
                await tidying
            await asyncio.to_thread(self.workers.close)
            self.lender.close()

    def _look(self) -> None:
        with self.lender.lend():
            pass

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(min(0.25, self.options.idle_seconds))
            self.lender.tidy()


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return what the work returns; it is cancelled where the client goes away meanwhile."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Refused(CLIENT_GONE, "The client has gone.")
        return working.result()
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
