"""The connections that this process has open, one for each file: shared, replaced and kept apart from rewriting."""

from __future__ import annotations

import os
import secrets
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import duckdb

from sqlrag.errors import NotAStoreError, NotFoundError, SchemaVersionError, StoreError, StoreLockedError
from sqlrag.settings import Settings
from sqlrag.store.files import check_is_duckdb, connect, damaged, identity, prepare_to_write, real_path, remove_files
from sqlrag.store.schema import SCHEMA_VERSION, STORAGE_VERSION, create_objects

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEFAULT_WAIT = Settings.wait_seconds
_AGAIN_SECONDS = 0.05

NODE_COLUMNS = frozenset({"node_id", "text", "embedding", "metadata_"})
"""The columns of a table of llama-index's DuckDBVectorStore, which sqlrooms-rag and sqlrag have as well."""


class Handle:
    """One DuckDB connection to a file, shared by every Database of this process that has it open."""

    def __init__(self, path: Path, connection: duckdb.DuckDBPyConnection, read_only: bool) -> None:
        self.path = path
        self.connection = connection
        self.read_only = read_only
        self.file = identity(path)
        self.users = 0
        if not read_only:
            prepare_to_write(connection)
        # Two transactions at once would number their new chunks alike.
        self.writing = threading.RLock()
        # Odd while a commit is under way.
        self.commits = 0


# Opening a file read-only fails while the same process has it open for writing, so handles are shared by real path.
# There are several only where other files were put in the place of one that is still open.
_handles: dict[Path, list[Handle]] = {}
# Files that this process is rewriting.
_reserved: set[Path] = set()
_lock = threading.RLock()


def acquire(real: Path, read_only: bool, wait_seconds: float) -> Handle:
    """Return the handle of a file for one more user: the one that is there, or a new one.

    Another process that holds the file is waited for without the lock, so that other files can be opened meanwhile.
    """
    deadline = time.monotonic() + wait_seconds
    _wait_until_rewritten(real, wait_seconds)
    while True:
        try:
            return _acquired(real, read_only)
        except StoreLockedError as error:
            if error.pid == os.getpid() or time.monotonic() >= deadline:
                raise
        time.sleep(_AGAIN_SECONDS)


def _acquired(real: Path, read_only: bool) -> Handle:
    with _lock:
        if real in _reserved:
            raise _rewriting(real)
        _check_other_names(real, read_only)
        handle = next((one for one in _handles.get(real, []) if one.file == identity(real)), None)
        if handle is None and real in _handles:
            handle = _open_beside(real, read_only)
        elif handle is None:
            handle = _open(real, real, read_only)
        elif handle.read_only and not read_only:
            raise StoreLockedError(
                real,
                f"{real} is open for reading in this process ({handle.users} times). Close those Store objects "
                "before writing to it.",
                os.getpid(),
            )
        handle.users += 1
        return handle


def acquire_new(real: Path, dimensions: int) -> Handle:
    """Create an empty store in place of whatever is there, and return its handle for one user."""
    with _lock:
        if real in _handles:
            raise StoreLockedError(
                real, f"{real} is open in this process. Close it before overwriting it.", os.getpid()
            )
        try:
            remove_files(real)
            write_empty(real, dimensions)
        except (duckdb.Error, OSError) as error:
            raise StoreError(
                real, f"{real} cannot be created: {error}. Name a file in a folder that you may write to."
            ) from error
        # Opened anew without the setting, so that the program's own duckdb.connect can join while it is open.
        handle = Handle(real, connect(real, False, DEFAULT_WAIT), read_only=False)
        handle.users = 1
        _handles[real] = [handle]
        return handle


def write_empty(path: Path, dimensions: int) -> None:
    """Write a store of no documents to a path where nothing is."""
    with duckdb.connect(str(path), config={"storage_compatibility_version": STORAGE_VERSION}) as con:
        create_objects(con, dimensions)


def release(handle: Handle) -> None:
    """Give a handle back; its connection ends with its last user."""
    with _lock:
        handle.users -= 1
        if handle.users == 0:
            _handles[handle.path].remove(handle)
            if not _handles[handle.path]:
                del _handles[handle.path]
            handle.connection.close()


def existing_file(path: str | os.PathLike[str]) -> Path:
    """Return the real path of a DuckDB file, or raise NotFoundError or NotAStoreError."""
    real = real_path(path)
    if not real.exists():
        raise NotFoundError(
            f"There is no file {real}. Make it with prepare_embeddings(folder, {str(path)!r}) "
            f"or: sqlrag prepare-embeddings FOLDER -o {path}"
        )
    if not real.is_file():
        raise NotAStoreError(real, f"{real} is a folder or a device, not a DuckDB file.")
    check_is_duckdb(real)
    return real


def is_open(path: Path) -> bool:
    """Return whether this process has the file open, or is rewriting it."""
    with _lock:
        return path in _handles or path in _reserved


@contextmanager
def reserved(path: Path) -> Iterator[None]:
    """Keep every other user in this process away from a file that is being rewritten."""
    with _lock:
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
        with _lock:
            _reserved.discard(path)


def _check_other_names(real: Path, read_only: bool) -> None:
    """Raise StoreLockedError where one of two is to write to a file that is open by another name (a hard link).

    DuckDB knows a database by its path and would take the two for different ones.
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


def _open(real: Path, name: Path, read_only: bool) -> Handle:
    """Open a file by one of its names and remember it by its real one."""
    handle = Handle(real, connect(name, read_only, 0.0), read_only)
    _check_is_store(handle)
    _handles.setdefault(real, []).append(handle)
    return handle


def _open_beside(real: Path, read_only: bool) -> Handle:
    """Open a file that was put in the place of one that this process still has open.

    DuckDB knows a database by its path and would hand out the old one again, so the new one gets a second name for as
    long as the opening takes. Its log would go by that name as well: it can only be read.
    """
    name = real.with_name(f".{real.name}.{os.getpid()}-{secrets.token_hex(4)}.opening")
    try:
        if not read_only or real.with_name(real.name + ".wal").exists():
            raise OSError("it is to be written to, or was not closed in order")
        os.link(real, name)
    except OSError as error:
        raise StoreLockedError(
            real,
            f"{real} has been replaced since this process opened it, and cannot be opened beside the old one: {error}. "
            "Close the Store objects that still show the old file, then open it again.",
            os.getpid(),
        ) from error
    try:
        return _open(real, name, read_only)
    finally:
        name.unlink()


def _check_is_store(handle: Handle) -> None:
    """Raise unless the file has our tables and our schema version."""
    con = handle.connection
    try:
        tables = {row[0] for row in con.execute("SELECT table_name FROM duckdb_tables() WHERE NOT internal").fetchall()}
        if not {"documents", "embedding_metadata"} <= tables:
            columns = "SELECT column_name FROM duckdb_columns() WHERE table_name = 'documents' AND schema_name = 'main'"
            if {row[0] for row in con.execute(columns).fetchall()} >= NODE_COLUMNS:
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
        rows = con.execute("SELECT value FROM embedding_metadata WHERE key = 'schema_version'").fetchall()
        if not rows:
            raise SchemaVersionError(
                handle.path,
                f"{handle.path} was made by sqlrooms-rag or another program with its layout. "
                f"Turn it into a store of sqlrag, with its ids and vectors: sqlrag upgrade {handle.path}",
            )
        if rows[0][0] != SCHEMA_VERSION:
            raise other_version(handle.path, rows[0][0])
    except duckdb.BinderException as error:
        con.close()
        raise NotAStoreError(handle.path, f"{handle.path} is not a store of sqlrag: {error}") from error
    except duckdb.Error as error:
        con.close()
        raise damaged(handle.path, error) from error
    except BaseException:
        con.close()
        raise


def other_version(path: Path, version: str) -> SchemaVersionError:
    """Return the error for a store of another schema version, with its remedy."""
    older = version.isdecimal() and int(version) < int(SCHEMA_VERSION)
    remedy = f"Upgrade it: sqlrag upgrade {path}" if older else "Install a newer sqlrag-duckdb."
    return SchemaVersionError(
        path, f"{path} has schema version {version}; this sqlrag reads version {SCHEMA_VERSION}. {remedy}"
    )
