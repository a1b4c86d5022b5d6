"""Opens, creates and locks a store file, and hands out one cursor per thread."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import duckdb

from sqlrag.errors import InputError, NotAStoreError, SchemaVersionError, StoreError, StoreLockedError
from sqlrag.settings import seconds_to_wait
from sqlrag.stopping import checkpoint
from sqlrag.store.files import check_memory_limit, check_output, out_of_memory
from sqlrag.store.handles import Handle, acquire, acquire_new, existing_file, is_open, release

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

T = TypeVar("T")

_ATTEMPTS = 3


class Database:
    """An open file and its transactions. Use :meth:`open` or :meth:`create`.

    Cursors are made per thread: a cursor is a connection of its own to the same database, and DuckDB's connections
    may not be used by two threads at once.
    """

    def __init__(self, handle: Handle, read_only: bool) -> None:
        self.path = handle.path
        self.read_only = read_only
        self._handle: Handle | None = handle
        self._local = threading.local()
        self._cursors: list[duckdb.DuckDBPyConnection] = []

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, read_only: bool = True, wait_seconds: float | None = None
    ) -> Database:
        """Open an existing store.

        Parameters
        ----------
        path
            The DuckDB file.
        read_only
            Many processes may read at a time; one may write, and only while no other process reads.
        wait_seconds
            How long to try again while another process holds the file. None: as the settings say.

        Raises
        ------
        NotFoundError
            There is no such file.
        NotAStoreError, SchemaVersionError, StoreLockedError
            See :mod:`sqlrag.errors`.
        """
        return cls(acquire(existing_file(path), read_only, seconds_to_wait(wait_seconds)), read_only)

    @classmethod
    def create(cls, path: str | os.PathLike[str], dimensions: int, *, overwrite: bool = False) -> Database:
        """Create an empty store for vectors of ``dimensions`` and open it for writing.

        Raises
        ------
        StoreExistsError
            The file exists and ``overwrite`` is False.
        StoreError
            The folder does not exist or cannot be written to.
        """
        return cls(acquire_new(check_output(path, overwrite=overwrite), dimensions), read_only=False)

    @property
    def commits(self) -> int:
        """How often this process has begun or ended a commit to the file since it opened it."""
        return self._handle.commits if self._handle else -1

    @property
    def closed(self) -> bool:
        """Whether the file has been given back."""
        return self._handle is None

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return this thread's cursor."""
        if self._handle is None:
            raise StoreError(self.path, f"{self.path} has been closed. Open it again with Store({str(self.path)!r}).")
        cursor: duckdb.DuckDBPyConnection | None = getattr(self._local, "cursor", None)
        if cursor is None:
            cursor = self._handle.connection.cursor()
            self._local.cursor = cursor
            self._cursors.append(cursor)
        checkpoint(cursor)
        return cursor

    def limit_threads(self, threads: int | None) -> None:
        """Set how many threads DuckDB may use, for every user of this file in the process; None changes nothing."""
        if threads is None:
            return
        if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= 1024:
            raise InputError(f"threads must be a whole number from 1 to 1024, not {threads!r}.")
        self.cursor().execute("SET threads = $1", [threads])

    def limit_memory(self, memory_limit: str | None) -> None:
        """Set how much memory DuckDB may use, for every user of this file in the process; None changes nothing.

        What does not fit goes to DuckDB's temporary folder meanwhile, ``FILE.tmp`` beside the file.

        Raises
        ------
        InputError
            It is no size such as "2GB", or less than is in use already.
        """
        checked = check_memory_limit(memory_limit)
        if checked is None:
            return
        try:
            self.cursor().execute("SET memory_limit = $1", [checked])
        except duckdb.OutOfMemoryException as error:
            raise InputError(f"memory_limit {memory_limit!r} is less than is in use: {error}") from error

    @contextmanager
    def transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Run statements that count together or not at all."""
        if self.read_only:
            raise StoreError(
                self.path, f"{self.path} is open for reading only. Open it with read_only=False to change it."
            )
        con = self.cursor()
        handle = self._handle
        assert handle is not None  # noqa: S101 - cursor() has seen to it
        with handle.writing, self._told("Nothing of this change was kept"):
            con.execute("BEGIN")
            try:
                yield con
            except BaseException:
                with suppress(duckdb.Error):  # the first error is the one to report
                    con.execute("ROLLBACK")
                raise
            handle.commits += 1
            try:
                con.execute("COMMIT")
            finally:
                handle.commits += 1

    @contextmanager
    def _told(self, consequence: str) -> Iterator[None]:
        """Turn what DuckDB says of a full disk or a damaged file into an error that says what became of the change."""
        try:
            yield
        except duckdb.OutOfMemoryException as error:
            raise out_of_memory(self.path, error, consequence) from error
        except (duckdb.IOException, duckdb.FatalException, duckdb.TransactionException) as error:
            raise StoreError(
                self.path, f"{self.path} could not be written: {error}. {consequence}. Is the disk full?"
            ) from error

    def read(self, work: Callable[[], T]) -> T:
        """Run queries on several cursors, each a transaction of its own, until all of them saw the same state."""
        self.cursor()
        handle = self._handle
        assert handle is not None  # noqa: S101 - cursor() has seen to it
        for _ in range(_ATTEMPTS):
            before = handle.commits
            try:
                result = work()
            except Exception:
                if before % 2 == 0 and handle.commits == before:
                    raise
                continue
            if before % 2 == 0 and handle.commits == before:
                return result
        with handle.writing:  # writers never pause long enough: make them
            return work()

    def checkpoint(self) -> None:
        """Move what was committed from the write-ahead log into the file, unless another transaction is under way."""
        with self._told("The change itself is kept, in the log beside the file"):
            try:
                self.cursor().execute("CHECKPOINT")
            except duckdb.TransactionException as error:
                # Another transaction is under way: it stays in the log, which is as safe, until the next checkpoint.
                if "space" in str(error):
                    raise

    def close(self) -> None:
        """Give the file back; the connection ends with its last user in this process."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        # A cursor that is left open in any thread would keep the file open.
        for cursor in self._cursors:
            cursor.close()
        self._local, self._cursors = threading.local(), []
        release(handle)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_replaceable(output: Path) -> None:
    """Raise where the output is in use, or is a file that sqlrag did not make."""
    if is_open(output):
        raise StoreLockedError(
            output, f"{output} is open in this process. Close its Store before replacing it.", os.getpid()
        )
    if not output.exists() or output.stat().st_size == 0:
        return
    try:
        Database.open(output).close()
    except SchemaVersionError:
        return  # an older store
    except NotAStoreError as error:
        raise NotAStoreError(
            output, f"{error} It is not overwritten: delete it yourself, or name another output."
        ) from error
