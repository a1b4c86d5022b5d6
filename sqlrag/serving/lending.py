"""The served file: open while requests come, given back when none does, so that other processes can write to it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import Context
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlrag import NotFoundError, StoreError, StoreLockedError
from sqlrag.network import is_url, without_password
from sqlrag.retrieval.querying import open_store
from sqlrag.stopping import checkpoint

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from sqlrag import Embedder, PostgresStore, Store

    AnyStore: TypeAlias = Store | PostgresStore


class _Opened:
    """An open store, which file it is, what that says of its model, and how many work on it."""

    def __init__(self, store: AnyStore, file: tuple[int, int], model: dict[str, Any]) -> None:
        self.store = store
        self.file = file
        self.model = model
        self.users = 0


class Lender:
    """Lends one open store to many requests.

    A file that another one was put in the place of is opened anew; the old one is closed by its last user. The model is
    loaded once, and kept while the file is closed.

    Parameters
    ----------
    path
        The file, or the URL of a store in Postgres, which stays open.
    writable
        Open it for writing, and never give it back before :meth:`close`.
    idle_seconds
        How long it stays open after the last request.
    """

    def __init__(self, path: str | os.PathLike[str], *, writable: bool = False, idle_seconds: float = 0.5) -> None:
        self.path: Path | str = str(path) if is_url(path) else Path(path).expanduser().absolute()
        self.writable = writable
        self.idle_seconds = idle_seconds
        self.unused: Callable[[], object] = lambda: None
        """Is called, in any thread, when nobody works on the store any more."""
        self._lock = threading.Lock()  # never held while the file is waited for
        self._current: _Opened | None = None
        self._opening: Future[None] | None = None
        self._failed: tuple[float, BaseException] | None = None
        self._last_use = 0.0
        self._kept: tuple[dict[str, Any], Embedder] | None = None

    @property
    def folders(self) -> list[Path]:
        """Where the file lies; none for a store in Postgres."""
        return [self.path.parent] if isinstance(self.path, Path) else []

    @property
    def stem(self) -> str:
        """How a file that is made of the store is called, without its suffix."""
        return self.path.stem if isinstance(self.path, Path) else "kb"

    @property
    def name(self) -> str:
        """How the store is called for others: the file's name, or the database's."""
        return self.path.name if isinstance(self.path, Path) else self.path.partition("?")[0].rpartition("/")[2]

    @contextmanager
    def lend(self, since: float | None = None, *, wait: bool = True) -> Iterator[Any]:
        """Yield the store, shared with other requests.

        ``since`` is when the request came, in seconds of ``time.monotonic``: those that came before the file could not
        be had get the same error, so that each does not wait for another process anew. Without ``wait`` the error
        comes at once.
        """
        with self._lent(time.monotonic() if since is None else since, wait) as opened:
            yield opened.store

    @contextmanager
    def alone(self, since: float | None = None) -> Iterator[Any]:
        """Yield a store of its own, for threads that end with their work; the model is shared."""
        came = time.monotonic() if since is None else since
        with (
            self._lent(came, wait=True) as opened,
            open_store(self.path, embedder=opened.store.loaded_embedder) as store,
        ):
            yield store
            self._keep(opened.model, store)

    @contextmanager
    def _lent(self, since: float, wait: bool) -> Iterator[_Opened]:
        opened = self._taken(since, wait)
        try:
            yield opened
        except StoreError:
            with self._lock:
                # A store in Postgres may have been made anew: the next request looks at it afresh.
                if opened is self._current and not self.folders:
                    self._retire()
            raise
        finally:
            with self._lock:
                self._keep(opened.model, opened.store)
                self._last_use = time.monotonic()
                opened.users -= 1
                if opened is not self._current and opened.users == 0:
                    opened.store.close()
                unused = opened.users == 0
            if unused:
                self.unused()

    def _taken(self, since: float, wait: bool) -> _Opened:
        """Return the open store for one more user; whoever comes first opens it, and the others wait for that."""
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
                if opening is not None:
                    raise StoreLockedError(
                        self.path, f"{without_password(str(self.path))} is in use by another process."
                    )
                return self._placed(self._open(0.0))
            if opening is not None:
                with suppress(Exception):
                    opening.result()
                checkpoint()
            else:
                return self._opened_for_all()

    def _opened_for_all(self) -> _Opened:
        try:
            # The end of the request that came first is not that of the others.
            opened = Context().run(self._open)
        except BaseException as error:
            with self._lock:
                self._failed = (time.monotonic(), error)
            raise
        else:
            return self._placed(opened)
        finally:
            with self._lock:
                opening, self._opening = self._opening, None
            if opening is not None:
                opening.set_result(None)

    def _placed(self, opened: _Opened) -> _Opened:
        """Make a store that was just opened the one of all, and take it for its first user."""
        opened.users += 1
        with self._lock:
            self._retire()
            self._current = opened
        return opened

    def idle_in(self) -> float:
        """Return after how many seconds the store will have been idle for long enough."""
        return self._last_use + self.idle_seconds - time.monotonic()

    def tidy(self) -> None:
        """Close the store if nobody has used it for a while."""
        with self._lock:
            current = self._current
            idle = time.monotonic() - self._last_use >= self.idle_seconds
            if current is not None and current.users == 0 and idle and not self.writable and self.folders:
                self._retire()

    def close(self) -> None:
        """Give the file back, at the latest with its last user."""
        with self._lock:
            self._retire()

    def _open(self, wait_seconds: float | None = None) -> _Opened:
        file = self._file()
        embedder = self._kept[1] if self._kept else None
        try:
            store = open_store(self.path, read_only=not self.writable, embedder=embedder, wait_seconds=wait_seconds)
        except NotFoundError as error:  # which is what clients are told of documents
            raise StoreError(self.path, str(error)) from error
        try:
            model = store.get_embedding_metadata()["embedding"]
        except BaseException:
            store.close()
            raise
        if self._kept and self._kept[0] != model:
            store.close()
            store = open_store(self.path, read_only=not self.writable)
        return _Opened(store, file, model)

    def _keep(self, model: dict[str, Any], store: AnyStore) -> None:
        if store.loaded_embedder is not None:
            self._kept = (model, store.loaded_embedder)

    def _retire(self, *, replaced_only: bool = False) -> None:
        current = self._current
        if current is None or (replaced_only and current.file == self._file()):
            return
        self._current = None
        if current.users == 0:
            current.store.close()

    def _file(self) -> tuple[int, int]:
        try:
            found = Path(self.path).stat()
        except OSError:
            return (0, 0)
        return found.st_dev, found.st_ino
