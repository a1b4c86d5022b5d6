"""Opens, creates and locks a store file, and hands out one cursor per thread."""

from __future__ import annotations

import os
import re
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import duckdb

from sqlrag.errors import (
    InputError,
    NotAStoreError,
    NotFoundError,
    SchemaVersionError,
    StoreError,
    StoreExistsError,
    StoreLockedError,
)
from sqlrag.store.schema import SCHEMA_VERSION, STORAGE_VERSION, create_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

DEFAULT_WAIT = 2.0
_ATTEMPTS = 3

_PID = re.compile(r"\(PID (\d+)[^)]*\)")


class Handle:
    """One DuckDB connection to a file, shared by every Database of this process that has it open."""

    def __init__(self, path: Path, connection: duckdb.DuckDBPyConnection, read_only: bool) -> None:
        self.path = path
        self.connection = connection
        self.read_only = read_only
        self.file = _identity(path)
        self.users = 0
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
        _check_is_duckdb(real)
        with _lock:
            handle = _handles.get(real)
            if handle is not None and handle.file != _identity(real):
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
                handle = Handle(real, _connect(real, read_only, wait_seconds), read_only)
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
            handle = Handle(real, _connect(real, False, DEFAULT_WAIT), read_only=False)
            handle.users = 1
            _handles[real] = handle
        return cls(handle, read_only=False)

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


def _identity(path: Path) -> tuple[int, int]:
    """Return what tells a file from another one that is renamed to its place."""
    found = path.stat()
    return found.st_dev, found.st_ino


def is_open(path: Path) -> bool:
    """Return whether this process has the file open."""
    with _lock:
        return path in _handles


def real_path(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path with links followed, or raise InputError for what cannot be a path here."""
    try:
        real = Path(path).expanduser().resolve()
        real.exists()
    except (TypeError, ValueError, OSError, RuntimeError) as error:
        raise InputError(f"{path!r} cannot be the path of a file: {error}.") from error
    return real


def check_output(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Return the real path of a file that is about to be made, or raise what stands against it."""
    real = real_path(path)
    if real.is_dir():
        raise StoreError(real, f"The output {real} is a folder. Name a file in it, such as {real / 'kb.duckdb'}.")
    if not real.parent.is_dir():
        raise StoreError(real, f"The folder {real.parent} of the output does not exist. Make it first.")
    if real.exists() and not overwrite:
        raise StoreExistsError(
            real, f"The output {real} exists already. Pass overwrite=True (--overwrite) to replace it, or another name."
        )
    return real


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


def remove_files(path: Path) -> None:
    """Delete a database file and its write-ahead log, where they exist."""
    for file in (path, path.with_name(path.name + ".wal")):
        file.unlink(missing_ok=True)


def _check_is_duckdb(path: Path) -> None:
    """Raise unless the file begins as a DuckDB database does.

    DuckDB itself would make a database of an empty file, and download an extension for a file of SQLite's.
    """
    try:
        with path.open("rb") as file:
            begin = file.read(12)
    except OSError as error:
        raise StoreError(path, f"{path} cannot be read: {error.strerror or error}") from error
    if begin[8:] != b"DUCK":
        raise NotAStoreError(path, f"{path} is no DuckDB database. Name a file made by prepare_embeddings.")


def is_damage(error: duckdb.Error) -> bool:
    """Return whether DuckDB's error says that a file cannot be read as it is."""
    kinds = (duckdb.IOException, duckdb.SerializationException, duckdb.FatalException, duckdb.InternalException)
    return isinstance(error, kinds) or "Corrupt database file" in str(error)


def _connect(path: Path, read_only: bool, wait_seconds: float) -> duckdb.DuckDBPyConnection:
    """Connect, waiting a bounded time for a process that holds the file."""
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            return duckdb.connect(str(path), read_only=read_only)
        except duckdb.ConnectionException as error:  # noqa: PERF203 - it waits
            if "different configuration" not in str(error):
                raise StoreError(path, f"{path} cannot be opened: {error}") from error
            return _join(path, read_only)
        except duckdb.SerializationException as error:
            raise _damaged(path, error) from error
        except duckdb.IOException as error:
            if "lock" not in str(error).lower():
                raise _unusable(path, error) from error
            if time.monotonic() >= deadline:
                raise _locked(path, error) from error
            time.sleep(0.05)
        except duckdb.Error as error:
            if "already attached" in str(error):
                raise _held_here(path, "attached to a DuckDB connection", "DETACH it") from error
            if is_damage(error):
                raise _damaged(path, error) from error
            raise NotAStoreError(path, f"{path} cannot be opened as a DuckDB database: {error}") from error


def _join(path: Path, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Join the database that the program itself has open through ``duckdb.connect``, with writing allowed."""
    try:
        return duckdb.connect(str(path))
    except duckdb.ConnectionException as error:
        how = "with settings of its own" if read_only else "for reading or with settings of its own"
        raise _held_here(path, f"open {how} through duckdb.connect", "Close that connection") from error


def _held_here(path: Path, how: str, remedy: str) -> StoreLockedError:
    return StoreLockedError(path, f"{path} is {how} in this process. {remedy} and try again.", os.getpid())


def _damaged(path: Path, error: duckdb.Error) -> NotAStoreError:
    return NotAStoreError(
        path, f"{path} is damaged or cut short: {error}. Make it again with prepare_embeddings, or copy it again."
    )


def _unusable(path: Path, error: duckdb.IOException) -> StoreError:
    text = str(error)
    if "version number" in text:
        return SchemaVersionError(
            path,
            f"{path} was written by a DuckDB that this one ({duckdb.__version__}) cannot read: {text}. "
            "Install that version of duckdb.",
        )
    if "Could not read enough bytes" in text:
        return _damaged(path, error)
    return StoreError(path, f"{path} cannot be opened: {text}")


def _locked(path: Path, error: duckdb.IOException) -> StoreLockedError:
    found = _PID.search(str(error))
    pid = int(found[1]) if found else None
    who = f"process {pid}" if pid else "another process"
    return StoreLockedError(
        path,
        f"{path} is in use by {who}: one process may write, or several may read. Wait until it is done, or end it "
        f"and try again. (DuckDB: {str(error).splitlines()[0]})",
        pid,
    )


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
        raise _damaged(handle.path, error) from error
    except BaseException:
        con.close()
        raise
