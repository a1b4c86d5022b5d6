"""Opens, creates and locks a store file: one shared connection for each file, one cursor for each thread."""

from __future__ import annotations

import atexit
import mmap
import os
import threading
import time
import weakref
from collections import Counter, deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import duckdb

from sqlrag.arguments import counted
from sqlrag.cancellation import checkpoint
from sqlrag.engines.duckdb import originals
from sqlrag.engines.duckdb.blocks import copy_file, damaged_blocks, descriptor, give_rights, identity, write_journal
from sqlrag.engines.duckdb.definitions import changes
from sqlrag.engines.duckdb.failures import damaged, failure, reported, was_closed
from sqlrag.engines.duckdb.files import (
    EXCHANGED,
    as_narrow_as,
    check_is_duckdb,
    check_memory_limit,
    check_name,
    check_not_inherited,
    connect,
    connect_remote,
    inherit,
    is_open_here,
    log_of,
    not_duckdb,
    prepare_to_write,
    real_path,
    remote_version,
    rights_of,
    second_name,
)
from sqlrag.engines.duckdb.schema import SCHEMA_VERSION, STORAGE_VERSION, create_objects
from sqlrag.errors import InputError, NotAStoreError, NotFoundError, SchemaVersionError, StoreError, StoreLockedError
from sqlrag.locks import keep, new_lock
from sqlrag.network import shown_address
from sqlrag.settings import Settings, seconds_to_wait, trusts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sqlrag.engines.duckdb.definitions import Change

DEFAULT_WAIT = Settings.wait_seconds

_AGAIN_SECONDS = 0.05

# DuckDB's own threshold of a checkpoint.
_LOG_BYTES = 16_000_000

NODE_COLUMNS = frozenset({"node_id", "text", "embedding", "metadata_"})

"""The columns of a table of llama-index's DuckDBVectorStore, which sqlrooms-rag and sqlrag have as well."""


class Handle:
    """One DuckDB connection to a file, shared by every Database of this process that has it open.

    A file that is written to in place (``in_place``) is checkpointed here and not by DuckDB, so that a journal can
    undo what a process that is killed leaves half-written. A new file is not under its name yet, and has none.
    """

    def __init__(
        self, path: Path, connection: duckdb.DuckDBPyConnection, read_only: bool, *, in_place: bool = True
    ) -> None:
        self.path = path
        self.connection = connection
        self.read_only = read_only
        self.in_place = in_place and not read_only
        self.file = identity(path)
        self.changed_at = path.stat().st_mtime_ns
        self.process = os.getpid()
        self.changes: list[Change] | None = None
        self.users = 0
        if not read_only:
            prepare_to_write(connection)
        if self.in_place:
            connection.execute("SET checkpoint_threshold = '1TB'")
            connection.execute("PRAGMA disable_checkpoint_on_shutdown")
        # Two concurrent transactions would give their new chunks the same numbers.
        self.writing = threading.RLock()
        # Odd while a commit is under way.
        self.commits = 0
        self.log = log_of(path)
        self._checkpointing = threading.Lock()

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a further connection to the database."""
        return self.connection.cursor()

    def checkpoint(self, con: duckdb.DuckDBPyConnection) -> None:
        """Move what was committed from the log into the file. Raises what DuckDB or the disk says."""
        if not self.in_place:
            con.execute("CHECKPOINT")
            return
        with self._checkpointing:
            journal = write_journal(self.path, self.file)
            try:
                with as_narrow_as(self.path):
                    con.execute("CHECKPOINT")
            except duckdb.TransactionException as error:
                if "space" in str(error):
                    raise  # what was written may be torn: the journal is for the next opening
            if journal is not None:
                journal.unlink(missing_ok=True)

    def damaged_blocks(self) -> list[int]:
        """Return where the blocks of the file begin whose checksum does not hold; no checkpoint is made meanwhile."""
        with self._checkpointing, descriptor(self.path, self.file) as number:
            return damaged_blocks(number)

    def copy_to(self, target: Path) -> None:
        """Copy the file, and its log where that holds anything, while nothing of this process writes to it.

        Errors over the file are raised as StoreError, those over the target as they are.
        """
        with self.writing:
            if self.in_place:
                with reported(self.path, "No copy was made"):
                    self.checkpoint(self.connection)
            with self._checkpointing, descriptor(self.path, self.file) as number:
                copy_file(number, target)
                if self.log_bytes():
                    with log_of(self.path).open("rb") as log:
                        copy_file(log.fileno(), log_of(target))
                    give_rights(log_of(target), rights_of(self.path))

    def log_bytes(self) -> int:
        """Return the size of the log beside the file."""
        with suppress(FileNotFoundError):
            return log_of(self.path).stat().st_size
        return 0

    def share_log(self) -> None:
        """Give the log beside the file, which DuckDB creates at a commit, the file's rights."""
        rights, log = rights_of(self.path), rights_of(log_of(self.path))
        if rights and log and (rights.st_mode, rights.st_gid) != (log.st_mode, log.st_gid):
            with suppress(OSError):  # of another process that has been killed, and another user
                give_rights(log_of(self.path), rights)

    def finish(self) -> None:
        """Move the log into the file where that can be; what cannot stays in the log."""
        if self.in_place:
            with suppress(duckdb.Error, OSError):
                if self.log_bytes():
                    self.checkpoint(self.connection)
                if not self.log_bytes():
                    _checkpoint_by_itself(self.connection)

    def close(self) -> None:
        """Close the connection, with an empty log where that can be."""
        self.finish()
        self.connection.close()
        if self.in_place and self.log_bytes() and is_open_here(self.path):
            # A connection of the program has joined, with a transaction under way.
            with suppress(duckdb.Error), duckdb.connect(str(self.path)) as joined:
                _checkpoint_by_itself(joined)


class RemoteHandle(Handle):
    """A connection to a file on a web server or in an object store: it is only read, and has no log and no locks.

    The server may replace it at any moment; the next query that needs a range of it fails then.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.path = shown_address(url)  # type: ignore[assignment]
        self.version = remote_version(url)
        self.connection = connect_remote(url)
        self.read_only, self.in_place = True, False
        self.file = self.changed_at = None  # type: ignore[assignment]
        self.process = os.getpid()
        self.changes: list[Change] | None = None
        self.users = self.commits = 0

    def cursor(self) -> duckdb.DuckDBPyConnection:
        cursor = super().cursor()
        cursor.execute("USE kb.main")
        return cursor


def _checkpoint_by_itself(con: duckdb.DuckDBPyConnection) -> None:
    """Let DuckDB checkpoint the database when it wants, as before it was opened here."""
    con.execute("RESET checkpoint_threshold")
    con.execute("PRAGMA enable_checkpoint_on_shutdown")


class State(NamedTuple):
    """What every commit to a file changes: how often this process did, and inode, size and time of file and log."""

    commits: int
    file: tuple[int, int, int]
    log: tuple[int, int, int] | None

    @property
    def changed_at(self) -> float:
        """When it was changed last, in seconds by the clock of the file system."""
        return max(self.file[2], self.log[2] if self.log else 0) / 1e9


# Opening a file read-only fails while the same process has it open for writing, so handles are shared by real path.
# There are several only where a file was replaced while it was open.
_handles: dict[Path, list[Handle]] = {}

# How often this process has committed to each file.
_commits: Counter[Path] = Counter()

# What ends the reading of a file in the background, whenever this process wants to write to it.
background: dict[Path, Callable[[], None]] = {}

# Files that this process is rewriting.
_reserved: set[Path] = set()

# Not reentrant: a finalizer that finds it taken, by this thread too, leaves its handle to whoever has it.
_lock = threading.Lock()

# Handles of databases that nothing refers to any more, still to be released.
_abandoned: deque[Handle] = deque()

_databases: weakref.WeakSet[Database] = weakref.WeakSet()


@contextmanager
def _registry() -> Iterator[None]:
    """Hold the lock of what this process has open."""
    try:
        with _lock:
            yield
    finally:
        _release_abandoned()


def _abandon(handle: Handle) -> None:
    """Release the handle of a database that was collected, which happens in any thread, at any moment."""
    _abandoned.append(handle)
    _release_abandoned()


def _release_abandoned() -> None:
    while _abandoned and _lock.acquire(blocking=False):
        try:
            while _abandoned:
                handle = _abandoned.popleft()
                if _release(handle):
                    # Not closed: a cursor that its program still has would be closed with it.
                    handle.finish()
        finally:
            _lock.release()


def _after_fork() -> None:
    """Leave what the parent has open to it, for as long as this process lives.

    Whatever ended one of its connections here would write its log into the file, and wait for threads that are not
    here.
    """
    for handle in (one for handles in _handles.values() for one in handles):
        keep(handle.connection)
    for database in list(_databases):
        keep(database._cursors)
    inherit(_handles)
    _handles.clear()
    _reserved.clear()
    _abandoned.clear()
    _lock.release()


@atexit.register
def _finish_all() -> None:
    """Leave no log beside a file that a program wrote to and did not close."""
    for handle in (one for handles in _handles.values() for one in handles):
        handle.finish()


if hasattr(os, "register_at_fork"):
    # With the lock, so that no thread is about to open or to close a file.
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork)


def acquire(real: Path, read_only: bool, wait_seconds: float, trust: bool) -> Handle:
    """Return the handle of a file for one more user: the existing one, or a new one.

    The wait for another process that has it open is outside the lock, so that other files can be opened meanwhile.
    """
    deadline = time.monotonic() + wait_seconds
    if not read_only:
        _end_background(real)
    _wait_until_rewritten(real, wait_seconds)
    while True:
        try:
            return _acquired(real, read_only, trust)
        except StoreLockedError as error:
            if error.pid == os.getpid() or time.monotonic() >= deadline:
                raise
        time.sleep(_AGAIN_SECONDS)


def _acquired(real: Path, read_only: bool, trust: bool) -> Handle:
    with _registry():
        if real in _reserved:
            raise _rewriting(real)
        _check_other_names(real, read_only)
        handle = next((one for one in _handles.get(real, []) if one.file == identity(real)), None)
        if handle is None and real in _handles:
            handle = _open_beside(real, read_only, trust)
        elif handle is None:
            handle = _open(real, real, read_only, trust)
        elif handle.read_only and not read_only:
            raise StoreLockedError(
                real,
                f"{real} is open for reading in this process ({counted(handle.users, 'time')}). Close those Store "
                "objects before writing to it.",
                os.getpid(),
            )
        elif not trust:
            _check_definitions(handle)
        handle.users += 1
        return handle


def acquire_new(path: Path, dimensions: int) -> Handle:
    """Create an empty store at a path where nothing is, and return its handle for one user."""
    with _registry():
        check_not_inherited(path)
        with reported(path, "None was made"):
            write_empty(path, dimensions)
            # Reopened without the setting, so that the program's own duckdb.connect can join while it is open.
            handle = Handle(path, connect(path, False, DEFAULT_WAIT), read_only=False, in_place=False)
        handle.users, handle.changes = 1, []
        _handles[path] = [handle]
        return handle


# The bytes of an empty store, 1 MB, by its dimensions: to create its macros, views and comments takes 0.4 s.
_empty: dict[int, bytes] = {}

_MOST_EMPTY = 8


def write_empty(path: Path, dimensions: int) -> None:
    """Write a store of no documents to a path where nothing is."""
    if dimensions in _empty:
        with path.open("xb") as file:
            file.write(_empty[dimensions])
        return
    with duckdb.connect(str(path), config={"storage_compatibility_version": STORAGE_VERSION}) as con:
        create_objects(con, dimensions)
    if len(_empty) < _MOST_EMPTY:
        _empty[dimensions] = path.read_bytes()


def acquire_remote(url: str, trust: bool) -> RemoteHandle:
    """Return the handle of a file on a server for one more user: a new one where there is none, or it was replaced.

    The server is asked outside the lock.
    """
    with _registry():
        found = [one for one in _handles.get(shown_address(url), []) if isinstance(one, RemoteHandle)]  # type: ignore[call-overload]
        handle = next((one for one in reversed(found) if one.url == url), None)
        if handle is not None:
            handle.users += 1  # so that it is not closed meanwhile
    if handle is not None:
        try:
            with reported(handle.path):
                if remote_version(url) == handle.version:
                    if not trust:
                        _check_definitions(handle)
                    return handle
        except BaseException:
            release(handle)
            raise
        release(handle)
    handle = RemoteHandle(url)
    try:
        with reported(handle.path):
            _check_is_store(handle, trust)
    except (NotAStoreError, SchemaVersionError) as error:
        raise type(error)(handle.path, f"{error} Copy the file here first: where it is, it is only read.") from error
    with _registry():
        handle.users += 1
        _handles.setdefault(handle.path, []).append(handle)
    return handle


def release(handle: Handle) -> None:
    """Release a handle; its connection is closed with its last user."""
    with _registry():
        if _release(handle):
            handle.close()


def settle(path: Path, wait_seconds: float) -> str | None:
    """Move what a killed process left in the log into the file: the log would not fit to another file of this name.

    Return what became of the log, None where there is none.
    """
    if not log_of(path).exists():
        return None
    handle = Handle(path, connect(path, False, wait_seconds), read_only=False)
    try:
        handle.checkpoint(handle.connection)
        if log_of(path).exists():  # it was cut before its first change, and DuckDB leaves it
            log_of(path).unlink()
            return "The log of a killed process held no whole change, and was removed."
    finally:
        handle.close()
    return "The log of a killed process was merged into the file."


def _release(handle: Handle) -> bool:
    """Count one user less, and return whether it was the last."""
    handle.users -= 1
    if handle.users or handle.process != os.getpid():
        return False
    _handles[handle.path].remove(handle)
    if not _handles[handle.path]:
        del _handles[handle.path]
    return True


def kept_beside(output: Path) -> Path:
    """Return the path of the vectors that an interrupted run has kept for an output."""
    return output.with_name(f"{output.name}.embedded")


def existing_file(path: str | os.PathLike[str]) -> Path:
    """Return the real path of a DuckDB file, or raise NotFoundError or NotAStoreError."""
    real = real_path(path)
    if not real.exists():
        kept = kept_beside(real)
        # Such a name is refused for a new file.
        name = os.fspath(path) if real.suffix.lower() not in EXCHANGED else real.with_suffix(".duckdb").name
        unfinished = f" A build of it was interrupted: one like it goes on from the vectors in {kept.name}."
        raise NotFoundError(
            f"There is no file {real}. Make it with prepare_embeddings(folder, {name!r})."
            f"{unfinished if kept.exists() else ''}"
        )
    if not real.is_file():
        raise not_duckdb(real, os.fspath(path))
    check_name(real)
    check_is_duckdb(real, os.fspath(path))
    return real


def is_open(path: Path) -> bool:
    """Return whether this process has the file open, or is rewriting it."""
    _end_background(path)
    with _registry():
        return path in _handles or path in _reserved


@contextmanager
def reserved(path: Path) -> Iterator[None]:
    """Lock every other user in this process out of a file that is being rewritten."""
    _end_background(path)
    with _registry():
        if path in _handles:
            raise StoreLockedError(
                path, f"{path} is open in this process. Close its Store before it is rewritten.", os.getpid()
            )
        if path in _reserved:
            raise _rewriting(path)
        _reserved.add(path)
    try:
        yield
    finally:
        with _registry():
            _reserved.discard(path)


def _end_background(path: Path) -> None:
    stop = background.get(path)
    if stop is not None:
        stop()


def _check_other_names(real: Path, read_only: bool) -> None:
    """Raise StoreLockedError for a file that is open by another name (a hard link), unless both only read.

    DuckDB identifies a database by its path and would treat the two as different ones.
    """
    found = identity(real)
    for path, handles in _handles.items():
        if path != real and any(one.file == found and not (one.read_only and read_only) for one in handles):
            raise StoreLockedError(
                real, f"{real} is open in this process by another name, {path}. Use that one.", os.getpid()
            )


def _wait_until_rewritten(path: Path, wait_seconds: float) -> None:
    deadline = time.monotonic() + wait_seconds
    while path in _reserved and time.monotonic() < deadline:
        time.sleep(0.02)


def _rewriting(path: Path) -> StoreLockedError:
    return StoreLockedError(path, f"{path} is being rewritten by this process. Wait until it is done.", os.getpid())


def _open(real: Path, name: Path, read_only: bool, trust: bool) -> Handle:
    """Open a file by one of its names and register it under its real one."""
    handle = Handle(real, connect(name, read_only, 0.0), read_only)
    _check_is_store(handle, trust)
    _handles.setdefault(real, []).append(handle)
    return handle


def _open_beside(real: Path, read_only: bool, trust: bool) -> Handle:
    """Open a file that has replaced one that this process still has open.

    DuckDB identifies a database by its path and would return the old one again, so the new one gets a second name
    while it is opened.
    """
    try:
        if not read_only:
            raise OSError("it is to be written to")
        with second_name(real) as name:
            return _open(real, name, read_only, trust)
    except OSError as error:
        raise StoreLockedError(
            real,
            f"{real} has been replaced since this process opened it, and cannot be opened beside the old one: {error}. "
            "Close the Store objects that still show the old file, then open it again.",
            os.getpid(),
        ) from error


def _check_is_store(handle: Handle, trust: bool) -> None:
    """Raise unless the file has our tables, our schema version and, where it is not trusted, our views and macros."""
    con, wanted = handle.connection, {"documents", "embedding_metadata"}
    try:
        if not wanted <= check_no_code(con, handle.path):
            columns = f"SELECT column_name FROM system.main.duckdb_columns() WHERE table_name = 'documents' AND {_HERE}"  # noqa: S608 - fixed
            if _names(con, columns) >= NODE_COLUMNS:
                raise NotAStoreError(
                    handle.path,
                    f"{handle.path} was made by llama-index's DuckDBVectorStore or another program with its table. "
                    f"Turn it into a store of sqlrag, with its ids and vectors: sqlrag upgrade {handle.path}",
                )
            raise NotAStoreError(
                handle.path,
                f"{handle.path} is a DuckDB database, but not a store of sqlrag: it has no table documents or "
                "embedding_metadata. Name a file made by prepare_embeddings.",
            )
        rows = con.execute("SELECT value FROM main.embedding_metadata WHERE key = 'schema_version'").fetchall()
        if not rows:
            raise SchemaVersionError(
                handle.path,
                f"{handle.path} was made by sqlrooms-rag or another program with its layout. "
                f"Turn it into a store of sqlrag, with its ids and vectors: sqlrag upgrade {handle.path}",
            )
        if rows[0][0] != SCHEMA_VERSION:
            raise other_version(handle.path, rows[0][0])
        if not trust:
            _check_definitions(handle)
    except duckdb.BinderException as error:
        con.close()
        raise NotAStoreError(handle.path, f"{handle.path} is not a store of sqlrag: {error}") from error
    except duckdb.Error as error:
        con.close()
        wrong = failure if isinstance(handle, RemoteHandle) else damaged
        raise wrong(handle.path, error) from error
    except BaseException:
        con.close()
        raise


# A table of this name elsewhere, in another schema or an attached file, is none of ours.
_HERE = "NOT internal AND schema_name = 'main' AND database_name = system.main.current_database()"


def check_no_code(con: duckdb.DuckDBPyConnection, path: Path) -> set[str]:
    """Return the names of the tables, or raise where one that is read to know the file is code that would run then."""
    wanted = {"documents", "embedding_metadata"}
    made = dict(con.execute(f"SELECT table_name, sql FROM system.main.duckdb_tables() WHERE {_HERE}").fetchall())  # noqa: S608 - fixed
    views = _names(con, f"SELECT view_name FROM system.main.duckdb_views() WHERE {_HERE}") & wanted  # noqa: S608 - fixed
    if views:
        reason = f"{', '.join(sorted(views))} is a view, not a table"
    elif computed := [name for name in sorted(wanted & made.keys()) if "GENERATED" in made[name]]:
        reason = f"a column of {computed[0]} is computed when it is read"
    else:
        return set(made)
    raise NotAStoreError(
        path, f"{path} is not a store of sqlrag: {reason}. Get another copy of the file, or make it anew."
    )


def _names(con: duckdb.DuckDBPyConnection, statement: str) -> set[str]:
    return {row[0] for row in con.execute(statement).fetchall()}


# What was found in files as they were when they were opened: a program opens one again and again.
_changes: dict[tuple[object, ...], list[Change]] = {}

_MOST_FILES = 256


def _check_definitions(handle: Handle) -> None:
    """Raise where a table, view or macro of the file has the name of one of ours and is another."""
    if handle.changes is None and isinstance(handle, RemoteHandle):
        handle.changes = changes(handle.connection)
    elif handle.changes is None:
        stats = [file.stat() for file in (handle.path, log_of(handle.path)) if file.exists()]
        state = (handle.path, *((s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns) for s in stats))
        if state not in _changes:
            while len(_changes) >= _MOST_FILES:
                del _changes[next(iter(_changes))]
            _changes[state] = changes(handle.connection)
        handle.changes = _changes[state]
    if handle.changes:
        some = "; ".join(map(str, handle.changes[:3])) + ("; …" if handle.changes[3:] else "")
        raise NotAStoreError(
            handle.path,
            f"{handle.path} holds code that is not this sqlrag's where searches run it: {some}. Another release made "
            f"it, or somebody changed it. Restore it: sqlrag repair {handle.path}. Or look at it (sqlrag check names "
            "all of it), and open the file as it is: trust=True, --trust.",
        )


def other_version(path: Path, version: str) -> SchemaVersionError:
    """Return the error for a store of another schema version, with its remedy."""
    older = version.isdecimal() and int(version) < int(SCHEMA_VERSION)
    remedy = f"Upgrade it: sqlrag upgrade {path}" if older else "Install a newer sqlrag-duckdb."
    return SchemaVersionError(
        path, f"{path} has schema version {version}; this sqlrag reads version {SCHEMA_VERSION}. {remedy}"
    )


T = TypeVar("T")

_ATTEMPTS = 3

_reopening = new_lock()


class Database:
    """An open file and its transactions. Use :meth:`open` or :meth:`create`.

    Cursors are made per thread: a cursor is a connection of its own to the same database, and DuckDB's connections
    may not be used by two threads at once.

    One that nothing refers to any more lets go of the file. In a process forked from that which opened it, one for
    reading opens the file again, one for writing raises StoreError.
    """

    _handle: Handle | None
    _cursors: list[duckdb.DuckDBPyConnection]

    def __init__(self, handle: Handle, read_only: bool) -> None:
        self.path = handle.path
        self.read_only = read_only
        self._access = new_lock()
        self._hold(handle)
        _databases.add(self)

    def _hold(self, handle: Handle) -> None:
        self._handle = handle
        self._local = threading.local()
        self._cursors = []
        self._at_work: list[int] = []
        self._let_go = weakref.finalize(self, _abandon, handle)
        self._let_go.atexit = False

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        read_only: bool = True,
        wait_seconds: float | None = None,
        trust: bool | None = None,
    ) -> Database:
        """Open an existing store.

        Parameters
        ----------
        path
            The DuckDB file.
        read_only
            Many processes may read at a time; one may write, and only while no other process reads.
        wait_seconds
            How long to retry while another process has the file open. None: as the settings say.
        trust
            Open it as well where a view or macro by the name of one of ours is another. None: as the settings say.

        Raises
        ------
        NotFoundError
            There is no such file.
        NotAStoreError, SchemaVersionError, StoreLockedError
            See :mod:`sqlrag.errors`.
        """
        return cls(acquire(existing_file(path), read_only, seconds_to_wait(wait_seconds), trusts(trust)), read_only)

    @classmethod
    def open_remote(cls, url: str, *, trust: bool | None = None) -> Database:
        """Open a store on a web server or in an object store for reading, by the ranges that searches need.

        Parameters
        ----------
        url
            An address of one of the schemes :data:`sqlrag.network.REMOTE`.
        trust
            As in :meth:`open`.

        Raises
        ------
        InputError
            DuckDB's extension ``httpfs`` is not installed.
        NotAStoreError, SchemaVersionError
            See :mod:`sqlrag.errors`.
        StoreError
            It is not there, or cannot be read.
        """
        return cls(acquire_remote(url, trusts(trust)), read_only=True)

    @classmethod
    def create(cls, path: Path, dimensions: int) -> Database:
        """Create an empty store for vectors of ``dimensions`` and open it for writing.

        It is for a temporary name that :func:`.rewrite.new_file` yields: there is no journal of what is written to it.

        Raises
        ------
        StoreError
            The folder does not exist or cannot be written to.
        """
        return cls(acquire_new(path, dimensions), read_only=False)

    @property
    def commits(self) -> int:
        """How often this process has begun or ended a commit to the file since it opened it."""
        handle = self._handle
        return handle.commits if handle else -1

    def state(self) -> State | None:
        """Return what every commit to the file changes, of any connection of any process; the same after reopening it.

        None while this process commits, where the file is closed, or where another one has taken its place. While a
        file is open for reading, no other process can write to it. Two commits of another process within the same tick
        of the file system's clock, some milliseconds, may leave the same.
        """
        handle = self._handle
        if handle is None or handle.commits % 2 or handle.process != os.getpid() or isinstance(handle, RemoteHandle):
            return None
        try:
            found = handle.path.stat()
        except OSError:
            return None
        if (found.st_dev, found.st_ino) != handle.file:
            return None
        try:
            log = handle.log.stat()
        except FileNotFoundError:
            log = None
        except OSError:
            return None
        return State(
            _commits[handle.path],
            (found.st_ino, found.st_size, found.st_mtime_ns),
            (log.st_ino, log.st_size, log.st_mtime_ns) if log else None,
        )

    def shared(self) -> Database:
        """Return the same open file for another thread, which closes it."""
        with _registry():
            handle = self._handle
            if handle is None:
                raise was_closed(self.path)
            handle.users += 1
        return Database(handle, self.read_only)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._handle is None

    @property
    def is_remote(self) -> bool:
        """Whether the file is on a web server or in an object store."""
        return isinstance(self._handle, RemoteHandle)

    @property
    def is_written_here(self) -> bool:
        """Whether this process has the file open for writing."""
        return not self._opened().read_only

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return this thread's cursor."""
        handle = self._handle
        if handle is not None and handle.process != os.getpid():
            self._reopen(handle)
        with self._access:
            if self._handle is None:
                raise was_closed(self.path)
            cursor: duckdb.DuckDBPyConnection | None = getattr(self._local, "cursor", None)
            if cursor is None:
                cursor = self._handle.cursor()
                self._local.cursor = cursor
                self._cursors.append(cursor)
        checkpoint(cursor)
        return cursor

    def _opened(self) -> Handle:
        """Return the handle, or raise what :meth:`cursor` does where there is none."""
        self.cursor()
        handle = self._handle
        if handle is None:
            raise was_closed(self.path)
        return handle

    def _reopen(self, parents: Handle) -> None:
        """Open the file for this process, which was forked from the one that opened it, or raise StoreError."""
        if not self.read_only:
            raise StoreError(
                self.path,
                f"{self.path} was opened for writing in another process, which this one was forked from. Open it again "
                f"here, once that one has closed it: Store({str(self.path)!r}, read_only=False).",
            )
        handle: Handle
        if isinstance(parents, RemoteHandle):
            handle = acquire_remote(parents.url, trust=True)
            changed = handle.version != parents.version
        else:
            handle = acquire(existing_file(self.path), True, DEFAULT_WAIT, trust=True)
            changed = (handle.file, handle.changed_at) != (parents.file, parents.changed_at)
        with _reopening:
            if self._handle is not parents:  # another thread was faster
                release(handle)
            elif changed:
                release(handle)
                raise StoreError(
                    self.path, f"{self.path} has changed since it was opened in another process. Open it again here."
                )
            else:
                self._let_go.detach()
                self._hold(handle)

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
            It is not a size such as "2GB", or less than is in use already.
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
        """Run statements in one transaction: all of them take effect or none."""
        if self.read_only:
            raise StoreError(
                self.path, f"{self.path} is open for reading only. Open it with read_only=False to change it."
            )
        with self.working():
            yield from self._transaction()

    def _transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        con, handle = self.cursor(), self._opened()
        with handle.writing, reported(self.path, "Nothing of this change was kept"):
            try:
                con.execute("BEGIN")  # a cancellation may come when it has taken effect
                yield con
                handle.commits += 1
                try:
                    with as_narrow_as(self.path):  # the log beside the file
                        con.execute("COMMIT")
                    handle.share_log()
                finally:
                    _commits[handle.path] += 1
                    handle.commits += 1
            except BaseException:
                _roll_back(con)
                raise
            if handle.in_place:
                originals.remove_lost(con, handle.path)
        if handle.in_place and handle.log_bytes() > _LOG_BYTES:
            self.checkpoint()

    def read(self, work: Callable[[], T]) -> T:
        """Run queries on several cursors, each a transaction of its own, until all of them saw the same state."""
        with self.working():
            return self._read(work)

    def _read(self, work: Callable[[], T]) -> T:
        handle = self._opened()
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
        with handle.writing:  # writers commit too often: block them
            return work()

    def checkpoint(self) -> None:
        """Move what was committed from the write-ahead log into the file, unless another transaction is under way."""
        # Where another transaction is under way, it stays in the log, which is as safe, until the next checkpoint.
        handle = self._opened()
        kept = "The change itself is kept, in the log beside the file" if handle.log_bytes() else "Nothing was changed"
        with reported(self.path, kept):
            handle.checkpoint(self.cursor())

    def copy_to(self, target: Path) -> None:
        """Copy the file with all that was committed to ``target``, which may have a log beside it afterwards.

        Raises
        ------
        OSError
            The target cannot be written.
        StoreError
            The log cannot be moved into the file.
        """
        self._opened().copy_to(target)

    def damaged_blocks(self) -> list[int]:
        """Return where the blocks in use begin whose checksum does not hold, in bytes; see :mod:`.blocks`."""
        return self._opened().damaged_blocks()

    def close(self) -> None:
        """Close the file; the connection ends with its last user in this process.

        Changes, searches and statements that other threads are at are waited for.
        """
        with self._access:
            handle, self._handle = self._handle, None
            cursors, self._cursors, self._local = self._cursors, [], threading.local()
        self._let_go.detach()
        if handle is None or handle.process != os.getpid():
            return
        while self._others_at_work():
            time.sleep(_AGAIN_SECONDS / 10)
        try:
            # A cursor that is left open in any thread would keep the file open.
            for cursor in cursors:
                _close(cursor)
        finally:
            release(handle)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Let :meth:`close` wait: older DuckDBs end a statement in the middle whose connection is closed."""
        at_work, me = self._at_work, threading.get_ident()
        with self._access:
            at_work.append(me)
        try:
            yield
        finally:
            with self._access:
                at_work.remove(me)

    def _others_at_work(self) -> bool:
        with self._access:
            return any(one != threading.get_ident() for one in self._at_work)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _close(con: duckdb.DuckDBPyConnection) -> None:
    while True:
        try:
            con.close()
        except duckdb.Error as error:
            if "busy" not in str(error):
                raise
            time.sleep(_AGAIN_SECONDS / 10)
        else:
            return


def _roll_back(con: duckdb.DuckDBPyConnection) -> None:
    """Roll back after an error, which is the one to report."""
    while True:
        try:
            con.execute("ROLLBACK")
        except duckdb.InterruptException:
            continue  # a cancellation may interrupt this, too, and the cursor would stay in the transaction
        except duckdb.Error:
            return
        return


def check_replaceable(output: Path) -> None:
    """Raise where the output is in use, or is a file that sqlrag did not create."""
    if is_open(output):
        raise StoreLockedError(
            output, f"{output} is open in this process. Close its Store before replacing it.", os.getpid()
        )
    if not output.exists() or output.stat().st_size == 0:
        return
    try:
        Database.open(output, trust=True).close()
    except SchemaVersionError:
        return  # an older store
    except NotAStoreError as error:
        if not _is_damaged_store(output, error):
            raise NotAStoreError(
                output, f"{error} It is not overwritten: delete it yourself, or name another output."
            ) from error


def _is_damaged_store(path: Path, error: NotAStoreError) -> bool:
    """Return whether a file that does not open because of damage is one that sqlrag made: it names tables of ours."""
    if "is damaged or cut short" not in str(error):
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data[8:12] == b"DUCK" and all(
            data.find(name) > 0 for name in (b"ingest_failures", b"embedding_metadata")
        )
