"""The served file: open while requests come, given back when none does, so that other processes can write to it."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlrag import Store

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from sqlrag import Embedder


class _Opened:
    """An open store, which file it is, what that says of its model, and how many work on it."""

    def __init__(self, store: Store, file: tuple[int, int], model: dict[str, Any]) -> None:
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
        The file.
    writable
        Open it for writing, and never give it back before :meth:`close`.
    idle_seconds
        How long it stays open after the last request.
    """

    def __init__(self, path: str | os.PathLike[str], *, writable: bool = False, idle_seconds: float = 0.5) -> None:
        self.path = Path(path).expanduser().absolute()
        self.writable = writable
        self.idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._current: _Opened | None = None
        self._last_use = 0.0
        self._kept: tuple[dict[str, Any], Embedder] | None = None

    @contextmanager
    def lend(self) -> Iterator[Store]:
        """Yield the store, shared with other requests."""
        with self._lent() as opened:
            yield opened.store

    @contextmanager
    def alone(self) -> Iterator[Store]:
        """Yield a store of its own, for threads that end with their work; the model is shared."""
        with self._lent() as opened, Store(self.path, embedder=opened.store.loaded_embedder) as store:
            yield store
            self._keep(opened.model, store)

    @contextmanager
    def _lent(self) -> Iterator[_Opened]:
        with self._lock:
            self._retire(replaced_only=True)
            opened = self._current = self._current or self._open()
            opened.users += 1
        try:
            yield opened
        finally:
            with self._lock:
                self._keep(opened.model, opened.store)
                self._last_use = time.monotonic()
                opened.users -= 1
                if opened is not self._current and opened.users == 0:
                    opened.store.close()

    def tidy(self) -> None:
        """Close the store if nobody has used it for a while."""
        with self._lock:
            current = self._current
            idle = time.monotonic() - self._last_use >= self.idle_seconds
            if current is not None and current.users == 0 and idle and not self.writable:
                self._retire()

    def close(self) -> None:
        """Give the file back, at the latest with its last user."""
        with self._lock:
            self._retire()

    def _open(self) -> _Opened:
        file = self._file()
        store = Store(self.path, read_only=not self.writable, embedder=self._kept[1] if self._kept else None)
        model = store.get_embedding_metadata()["embedding"]
        if self._kept and self._kept[0] != model:
            store.close()
            store = Store(self.path, read_only=not self.writable)
        return _Opened(store, file, model)

    def _keep(self, model: dict[str, Any], store: Store) -> None:
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
            found = self.path.stat()
        except OSError:
            return (0, 0)
        return found.st_dev, found.st_ino
