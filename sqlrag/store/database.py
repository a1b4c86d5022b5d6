"""Opens, creates and locks a store file, and hands out one cursor per thread."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import duckdb

from sqlrag.errors import (
    InputError,
    NotAStoreError,
    NotFoundError,
    SchemaVersionError,
    StoreError,
    StoreLockedError,
)
from sqlrag.store.files import (
    check_is_duckdb,
    check_memory_limit,
    check_output,
    connect,
    damaged,
    identity,
    out_of_memory,
    real_path,
    remove_files,
)
from sqlrag.store.schema import SCHEMA_VERSION, STORAGE_VERSION, create_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

T = TypeVar("T")

DEFAULT_WAIT = 2.0
_ATTEMPTS = 3


class Handle:
    """One DuckDB connection to a file, shared by every Database of this process that has it open."""

    def __init__(self, path: Path, connection: duckdb.DuckDBPyConnection, read_only: bool) -> None:
        self.path = path
        self.connection = connection
        self.read_only = read_only
        self.file = identity(path)
        self.users = 0
        if not read_only:
            # ALPRD misjudges vectors in row groups of more than some 60,000 rows: 6.2 bytes a number in place of 4, and
            # half as much again to decode.
            connection.execute("SET disabled_compression_methods = 'alprd'")
        # Two transactions at once would number their new chunks alike.
        self.writing = threading.RLock()
        # Odd while a commit is under way.
        self.commits = 0


# Opening a file read-only fails while the same process has it open for writing, so handles are shared by real path.
_handles: dict[Path, Handle] = {}
_lock = threading.RLock()


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
        cls, path: str | os.PathLike[str], *, read_only: bool = True, wait_seconds: float = DEFAULT_WAIT
    ) -> Database:
        """Open an existing store.

        Parameters
        ----------
        path
            The DuckDB file.
        read_only
            Many processes may read at a time; one may write, and only while no other process reads.
        wait_seconds
            How long to try again while another process holds the file.

        Raises
        ------
        NotFoundError
            There is no such file.
        NotAStoreError, SchemaVersionError, StoreLockedError
            See :mod:`sqlrag.errors`.
        """
        real = real_path(path)
        if not real.exists():
            raise NotFoundError(
                f"There is no file {real}. Make it with prepare_embeddings(folder, {str(path)!r}) "
                f"or: sqlrag prepare-embeddings FOLDER -o {path}"
            )
        if not real.is_file():
            raise NotAStoreError(real, f"{real} is a folder or a device, not a DuckDB file.")
        check_is_duckdb(real)
        with _lock:
            handle = _handles.get(real)
            if handle is not None and handle.file != identity(real):
                # DuckDB would hand out the old database again, so an answer could only be from the old file.
                raise StoreLockedError(
                    real,
                    f"{real} has been replaced since this process opened it. Close the Store objects that still show "
                    "the old file, then open it again.",
                    os.getpid(),
                )
            if handle is None or (handle.read_only and not read_only):
                if handle is not None:
                    raise StoreLockedError(
                        real,
                        f"{real} is open for reading in this process ({handle.users} times). Close those Store objects "
                        "before writing to it.",
                        os.getpid(),
                    )
                handle = Handle(real, connect(real, read_only, wait_seconds), read_only)
                _check_is_store(handle)
                _handles[real] = handle
            handle.users += 1
        return cls(handle, read_only)

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
        real = check_output(path, overwrite=overwrite)
        with _lock:
            if real in _handles:
                raise StoreLockedError(
                    real, f"{real} is open in this process. Close it before overwriting it.", os.getpid()
                )
            remove_files(real)
            try:
                con = duckdb.connect(str(real), config={"storage_compatibility_version": STORAGE_VERSION})
            except duckdb.Error as error:
                raise StoreError(
                    real, f"{real} cannot be created: {error}. Name a file in a folder that you may write to."
                ) from error
            create_objects(con, dimensions)
            # Opened anew without the setting, so that the program's own duckdb.connect can join while it is open.
            con.close()
            handle = Handle(real, connect(real, False, DEFAULT_WAIT), read_only=False)
            handle.users = 1
            _handles[real] = handle
        return cls(handle, read_only=False)

    @property
    def commits(self) -> int:
        """How often this process has begun or ended a commit to the file since it opened it."""
        return self._handle.commits if self._handle else -1

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return this thread's cursor."""
        if self._handle is None:
            raise StoreError(self.path, f"{self.path} has been closed. Open it again with Store({str(self.path)!r}).")
        cursor: duckdb.DuckDBPyConnection | None = getattr(self._local, "cursor", None)
        if cursor is None:
            cursor = self._handle.connection.cursor()
            self._local.cursor = cursor
            self._cursors.append(cursor)
        return cursor

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
        with _lock:
            handle, self._handle = self._handle, None
            if handle is None:
                return
            # A cursor that is left open in any thread would keep the file open.
            for cursor in self._cursors:
                cursor.close()
            self._local, self._cursors = threading.local(), []
            handle.users -= 1
            if handle.users == 0:
                del _handles[handle.path]
                handle.connection.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_open(path: Path) -> bool:
    """Return whether this process has the file open."""
    with _lock:
        return path in _handles


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


def _check_is_store(handle: Handle) -> None:
    """Raise unless the file has our tables and our schema version."""
    con = handle.connection
    try:
        tables = {row[0] for row in con.execute("SELECT table_name FROM duckdb_tables() WHERE NOT internal").fetchall()}
        if not {"documents", "embedding_metadata"} <= tables:
            raise NotAStoreError(
                handle.path,
                f"{handle.path} is a DuckDB database, but not a store of sqlrag: it has no table documents or "
                "embedding_metadata. Name a file made by prepare_embeddings.",
            )
        rows = con.execute("SELECT value FROM embedding_metadata WHERE key = 'schema_version'").fetchall()
        if not rows:
            raise SchemaVersionError(
                handle.path,
                f"{handle.path} was made by sqlrooms-rag or another program with its layout. "
                "Make a new file from the documents with prepare_embeddings.",
            )
        if rows[0][0] != SCHEMA_VERSION:
            raise SchemaVersionError(
                handle.path,
                f"{handle.path} has schema version {rows[0][0]}; this sqlrag reads version {SCHEMA_VERSION}. "
                "Use the sqlrag that made it, or make the file again with prepare_embeddings(..., overwrite=True).",
            )
    except duckdb.BinderException as error:
        con.close()
        raise NotAStoreError(handle.path, f"{handle.path} is not a store of sqlrag: {error}") from error
    except duckdb.Error as error:
        con.close()
        raise damaged(handle.path, error) from error
    except BaseException:
        con.close()
        raise
