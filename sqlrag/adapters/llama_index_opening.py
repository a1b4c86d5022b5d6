"""What a vector store of llama-index opens for each call: a file of sqlrag."""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from llama_index.core.bridge.pydantic import PrivateAttr

from sqlrag import InputError, Store, StoreExistsError, StoreLockedError
from sqlrag.adapters.llama_index_pickling import KeepsEmbedder
from sqlrag.adapters.llama_index_twins import InThreads
from sqlrag.store.files import check_output, real_path
from sqlrag.store.output import put_in_place, temporary_beside

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from sqlrag.types import AnyEmbedder


# Seconds to wait for questions that are under way in other threads.
_PATIENCE = 5.0


class OpensFile(KeepsEmbedder, InThreads):
    """A vector store over the file ``path``."""

    stores_text: bool = True
    path: str
    _store: Store | None = PrivateAttr(default=None)
    _embedder: Any = PrivateAttr(default=None)

    def __init__(
        self,
        path: str | os.PathLike[str] = "",
        client: Store | None = None,
        embedder: AnyEmbedder | None = None,
        **_: Any,
    ) -> None:
        super().__init__(path=os.fspath(client.path if client is not None else path))  # type: ignore[call-arg]
        if not self.path:
            raise InputError("Pass the path of a file, or an open Store as client.")
        self._store, self._embedder = client, embedder

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], embedder: AnyEmbedder | None = None) -> Self:
        """Return the store of a file."""
        return cls(path, embedder=embedder)

    @property
    def client(self) -> Store | None:
        """The open Store that was given, else None."""
        return self._store

    def _open(self, *, read_only: bool = True) -> AbstractContextManager[Store]:
        if self._store is not None:
            return nullcontext(self._store)
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return Store(self.path, read_only=read_only, embedder=self._embedder)
            except StoreLockedError as error:  # noqa: PERF203 - it is there to wait
                # Another thread of this process is asking something; a file cannot be opened for both.
                if error.pid != os.getpid() or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _write(self, dimensions: int, write: Callable[[Store], None]) -> None:
        """Write to the file; one that is not there is made for vectors of this length, whole or not at all."""
        while self._store is None and not real_path(self.path).exists():
            if self._make(dimensions, write):
                return
        with self._open(read_only=False) as store:
            write(store)

    def _make(self, dimensions: int, write: Callable[[Store], None]) -> bool:
        """Make the file beside its place; return False where another thread or process was first to put one there."""
        output = check_output(self.path, overwrite=True)
        with temporary_beside(output) as temporary:
            with Store.create(temporary, dimensions, embedder=self._embedder) as store:
                write(store)
            # Once it is closed, another process may take it for left over.
            with suppress(StoreExistsError, FileNotFoundError):
                put_in_place(temporary, output, overwrite=False)
                return True
        return False
