"""A running server: the served store, open during requests and closed when idle, and its worker threads."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import sqlrag
from sqlrag import NotFoundError, StoreError, StoreLockedError
from sqlrag.adapters.server import CLIENT_GONE, Refused, Workers, end, in_time, within
from sqlrag.cancellation import Work, checkpoint
from sqlrag.engines.resident.follow import kept_in_memory
from sqlrag.search.open import files_of, is_address, is_open, name_of, open_store

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Sequence
    from pathlib import Path

    from starlette.requests import Request

    from sqlrag import AnswerEvent, Embedder, PostgresStore, Store, Stores
    from sqlrag.adapters.rest.config import ServerOptions
    from sqlrag.search.open import AnyStores

    OpenStore: TypeAlias = Store | Stores | PostgresStore


class _Opened:
    """An open store: the function that closes it, the identity of its files, their model, and the number of users."""

    def __init__(
        self, store: OpenStore, close: Callable[[], object], files: list[tuple[int, int]], model: dict[str, Any]
    ) -> None:
        self.store = store
        self.close = close
        self.files = files
        self.model = model
        self.users = 0


class SharedStore:
    """One open store that many requests share.

    A file that has been replaced is reopened; the old one is closed by its last user. The model is loaded once, and
    kept while the file is closed.

    Parameters
    ----------
    where
        The file or files; or the URL of a store in Postgres, or an open store, which stay open.
    writable
        Open it for writing, and keep it open until :meth:`close`.
    idle_seconds
        How long it stays open after the last request.
    resident_mb
        How much memory the file may take, in MB, also while it is closed; None: as the settings say.
    """

    def __init__(
        self,
        where: AnyStores,
        *,
        writable: bool = False,
        idle_seconds: float = 0.5,
        resident_mb: int | None = None,
    ) -> None:
        self._files = files_of(where)
        self._in_memory = [] if is_open(where) else kept_in_memory(self._files, resident_mb)
        stays = is_address(where) or is_open(where)
        self.where: Any = where if stays else self._files if isinstance(where, (list, tuple)) else self._files[0]
        self.name = name_of(where)
        """The name of the store for clients."""
        self._shown = ", ".join(map(str, self._files)) or self.name
        self._closes_when_idle = not stays and not writable
        self.writable = writable
        self.idle_seconds = idle_seconds
        self.unused: Callable[[], object] = lambda: None
        """Called, in any thread, when the last user has finished."""
        self._lock = threading.Lock()  # never held during a wait for the file
        self._current: _Opened | None = None
        self._opening: Future[None] | None = None
        self._failed: tuple[float, BaseException] | None = None
        self._last_use = 0.0
        self._kept: tuple[dict[str, Any], Embedder] | None = None

    @property
    def folders(self) -> list[Path]:
        """The folders of the files; none for a store in Postgres."""
        return list(dict.fromkeys(file.parent for file in self._files))

    @property
    def stem(self) -> str:
        """The name of an exported file, without its suffix."""
        return self._files[0].stem if len(self._files) == 1 else "kb"

    @property
    def place(self) -> Any:
        """The file, files or URL that an export reads."""
        if not is_open(self.where):
            return self.where
        return self._files if self._files[1:] else self.where.path

    @contextmanager
    def use(self, since: float | None = None, *, wait: bool = True) -> Iterator[Any]:
        """Yield the store, shared with other requests.

        ``since`` is when the request came, in seconds of ``time.monotonic``: requests that came before opening the
        file failed get the same error, so that they do not each wait for another process. Without ``wait`` another
        process is not waited for.
        """
        with self._use(time.monotonic() if since is None else since, wait) as opened:
            yield opened.store

    @contextmanager
    def dedicated(self, since: float | None = None) -> Iterator[Any]:
        """Yield a separate open store, for work in other threads; the model is shared."""
        came = time.monotonic() if since is None else since
        with (
            self._use(came, wait=True) as opened,
            open_store(self.where, embedder=opened.store.loaded_embedder) as store,
        ):
            yield store
            self._keep(opened.model, store)

    @contextmanager
    def _use(self, since: float, wait: bool) -> Iterator[_Opened]:
        opened = self._acquire(since, wait)
        try:
            yield opened
        except StoreError:
            with self._lock:
                # A store in Postgres may have been recreated: the next request reopens it.
                if opened is self._current and not self._files:
                    self._retire()
            raise
        finally:
            with self._lock:
                self._keep(opened.model, opened.store)
                self._last_use = time.monotonic()
                opened.users -= 1
                if opened is not self._current and opened.users == 0:
                    opened.close()
                unused = opened.users == 0
            if unused:
                self.unused()

    def _acquire(self, since: float, wait: bool) -> _Opened:
        """Return the open store for one more user; the first request opens it, and the others wait."""
        while True:
            with self._lock:
                self._retire(replaced_only=True)
                if self._current is not None:
                    self._current.users += 1
                    return self._current
                if self._failed is not None and since <= self._failed[0]:
                    raise self._failed[1]
                opening = self._opening
                if opening is None and wait:
                    self._opening = Future()
            if not wait:
                # An opening that is under way in this process is joined; one that waits for another process is not.
                return self._publish(self._open(0.0))
            if opening is not None:
                with suppress(Exception):
                    opening.result()
                checkpoint()
            else:
                return self._open_for_all()

    def _open_for_all(self) -> _Opened:
        try:
            # In a context of its own: cancelling the first request must not stop the others' wait.
            opened = Context().run(self._open)
        except BaseException as error:
            with self._lock:
                self._failed = (time.monotonic(), error)
            raise
        else:
            return self._publish(opened)
        finally:
            with self._lock:
                opening, self._opening = self._opening, None
            if opening is not None:
                opening.set_result(None)

    def _publish(self, opened: _Opened) -> _Opened:
        """Make a new store the current one, and count its first user."""
        opened.users += 1
        with self._lock:
            self._retire()
            self._current = opened
        return opened

    def idle_in(self) -> float:
        """Return in how many seconds an idle store will be closed."""
        return self._last_use + self.idle_seconds - time.monotonic()

    def close_if_idle(self) -> None:
        """Close the store if it has been idle for ``idle_seconds``."""
        with self._lock:
            current = self._current
            idle = time.monotonic() - self._last_use >= self.idle_seconds
            if current is not None and current.users == 0 and idle and self._closes_when_idle:
                self._retire()

    def close(self) -> None:
        """Close the file, at the latest with its last user."""
        with self._lock:
            self._retire()
        for residence in self._in_memory:
            residence.stop()

    def _open(self, wait_seconds: float | None = None) -> _Opened:
        files = self._identities()
        kept = self._kept
        options: Any = {"read_only": not self.writable, "wait_seconds": wait_seconds}
        with ExitStack() as stack:
            try:
                store = stack.enter_context(open_store(self.where, embedder=kept[1] if kept else None, **options))
            except NotFoundError as error:  # for clients that would mean a missing document
                raise StoreError(self._shown, str(error)) from error
            model = store.get_embedding_metadata()["embedding"]
            if kept and kept[0] != model:
                stack.close()
                store = stack.enter_context(open_store(self.where, **options))
            return _Opened(store, stack.pop_all().close, files, model)

    def _keep(self, model: dict[str, Any], store: OpenStore) -> None:
        if store.loaded_embedder is not None:
            self._kept = (model, store.loaded_embedder)

    def _retire(self, *, replaced_only: bool = False) -> None:
        current = self._current
        if current is None or (replaced_only and current.files == self._identities()):
            return
        self._current = None
        if current.users == 0:
            current.close()

    def _identities(self) -> list[tuple[int, int]]:
        """Return device and inode of each file, which change when it is replaced."""

        def identity(file: Path) -> tuple[int, int]:
            try:
                found = file.stat()
            except OSError:
                return (0, 0)
            return found.st_dev, found.st_ino

        return [identity(file) for file in self._files]


T = TypeVar("T")

_PROBE_SECONDS = 5.0


class Service:
    """What the routes of one server share."""

    def __init__(self, db_path: AnyStores, options: ServerOptions, names: Sequence[str] = ()) -> None:
        self.options = options
        self.names = names
        """Those of all stores of the server, if they have names."""
        self.shared_store = SharedStore(
            db_path,
            writable=options.write,
            idle_seconds=options.idle_seconds,
            resident_mb=options.resident_mb,
        )
        self.workers = Workers(options.threads, options.waiting, options.seconds)
        # A thread of its own, so that /health responds while all others are busy.
        self._probes = Workers(1, options.waiting, _PROBE_SECONDS)
        self.answers = 0
        self._changing = asyncio.Lock()

    async def on_store(self, request: Request, work: Callable[[Store], T], seconds: float | None = None) -> T:
        """Run a function of the store in a thread while the client is connected, and return its result.

        Bytes are an answer and limited in size.
        """
        found = await while_connected(request, self._run(work, seconds))
        within(len(found) if isinstance(found, bytes) else 0, self.options.max_answer_bytes)
        return found

    async def probe(self, request: Request, work: Callable[[Store], T]) -> T:
        """Run a short function of the store without waiting for other requests or processes, and return its result."""

        def run() -> T:
            with self.shared_store.use(wait=False) as store:
                return work(store)

        return await while_connected(request, self._probes.run(run))

    async def changing(self, request: Request, work: Callable[[Store], T]) -> T:
        """Run a function that changes the file, and return its result: one at a time, within ``answer_seconds``."""

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
            with self.shared_store.use(came) as store:
                return work(store)

        return await self.workers.run(run, seconds)

    async def searched(self, settings: dict[str, Any]) -> AsyncGenerator[AnswerEvent, None]:
        """Return the events of an answer, after its search is done and the file is released."""
        if self.answers >= self.options.answers:
            raise Refused(503, f"{self.answers} answers are already running. Try again in a moment.")
        self.answers += 1
        stack, search_work, came = ExitStack(), Work(self.options.answer_seconds), time.monotonic()

        async def search() -> AsyncGenerator[AnswerEvent, None]:
            try:
                with search_work.under_way():
                    store = await asyncio.to_thread(stack.enter_context, self.shared_store.dedicated(came))
                    return await sqlrag.aanswer(db_path=store, stream=True, **settings)
            finally:
                search_work.begin(self.options.answer_seconds)  # the events, which come now, have as long again
                await asyncio.to_thread(stack.close)

        searching = asyncio.ensure_future(search())
        try:
            # A running search is not cancelled, only stopped: it has to close the file at its end.
            return await in_time(asyncio.shield(searching), self.options.answer_seconds)
        except BaseException:
            self.answers -= 1
            end(search_work, searching)
            if not searching.done():
                searching.add_done_callback(_drop)
            raise

    @asynccontextmanager
    async def running(self, _: object = None) -> AsyncIterator[None]:
        """Open the file at startup, close it whenever it is idle, and close it at shutdown."""
        self._changing = asyncio.Lock()
        await asyncio.to_thread(self._check_open)
        loop, unused = asyncio.get_running_loop(), asyncio.Event()
        self.shared_store.unused = lambda: loop.call_soon_threadsafe(unused.set)
        unused.set()
        closing = asyncio.create_task(self._close_when_idle(unused))
        try:
            yield
        finally:
            self.shared_store.unused = lambda: None
            closing.cancel()
            with suppress(asyncio.CancelledError):
                await closing
            await asyncio.to_thread(self.workers.close)
            await asyncio.to_thread(self._probes.close)
            self.shared_store.close()

    def _check_open(self) -> None:
        # While another process has the file, requests are told so.
        with suppress(StoreLockedError), self.shared_store.use():
            pass

    async def _close_when_idle(self, unused: asyncio.Event) -> None:
        """Close the file whenever it has been idle for ``idle_seconds``."""
        while True:
            await unused.wait()
            unused.clear()
            while (seconds := self.shared_store.idle_in()) > 0:
                await asyncio.sleep(seconds)
            await asyncio.to_thread(self.shared_store.close_if_idle)


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work; it is cancelled if the client disconnects."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Refused(CLIENT_GONE, "The client has disconnected.")
        return working.result()
    except asyncio.CancelledError as error:
        raise Refused(503, "The server is shutting down. Try again in a moment.") from error
    finally:
        working.cancel()
        watching.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await watching


def _drop(searching: asyncio.Task[AsyncGenerator[AnswerEvent, None]]) -> None:
    """Close an answer whose client has disconnected."""
    if not searching.cancelled() and searching.exception() is None:
        _dropping.add(task := asyncio.ensure_future(searching.result().aclose()))
        task.add_done_callback(_dropping.discard)


# asyncio keeps only weak references to tasks.
_dropping: set[asyncio.Future[None]] = set()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
