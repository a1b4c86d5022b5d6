"""The files below a store: their paths, and the one way to connect to them."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import duckdb

from sqlrag.errors import (
    InputError,
    NotAStoreError,
    SchemaVersionError,
    StoreError,
    StoreExistsError,
    StoreLockedError,
)
from sqlrag.network import refuse_address
from sqlrag.options import shown

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])(I?)B", re.IGNORECASE)
# A store of no chunks opens with less, but no search of a real one goes through.
_LEAST_MEMORY = 64_000_000
_PID = re.compile(r"\(PID (\d+)[^)]*\)")


def real_path(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path with links followed, or raise InputError for what cannot be a path here."""
    refuse_address(path)
    try:
        real = Path(path).expanduser().resolve()
        real.exists()
    except (TypeError, ValueError, OSError, RuntimeError) as error:
        raise InputError(f"{path!r} cannot be the path of a file: {error}.") from error
    return real


def identity(path: Path) -> tuple[int, int]:
    """Return what tells a file from another one that is renamed to its place."""
    found = path.stat()
    return found.st_dev, found.st_ino


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


def check_memory_limit(memory_limit: str | None) -> str | None:
    """Return the size as DuckDB takes it, or raise InputError with examples."""
    if memory_limit is None:
        return None
    found = _MEMORY.fullmatch(memory_limit.strip()) if isinstance(memory_limit, str) else None
    if not found:
        raise InputError(f"memory_limit must be a size such as '500MB', '2GB' or '1.5GiB', not {shown(memory_limit)}.")
    number, unit, binary = found.groups()
    size = float(number) * (1024 if binary else 1000) ** ("KMGT".index(unit.upper()) + 1)
    if size < _LEAST_MEMORY:
        raise InputError(
            f"memory_limit {memory_limit!r} is too little to work in. The least is '64MB'; '250MB' is plenty."
        )
    return memory_limit.strip()


def remove_files(path: Path) -> None:
    """Delete a database file and its write-ahead log, where they exist."""
    for file in (path, path.with_name(path.name + ".wal")):
        file.unlink(missing_ok=True)


def check_is_duckdb(path: Path) -> None:
    """Raise unless the file begins as a DuckDB database does.

    DuckDB itself would make a database of an empty file, and download an extension for a file of SQLite's. A file that
    this process has open is not looked at.
    """
    if is_open_here(path):
        return
    try:
        with path.open("rb") as file:
            begin = file.read(12)
    except OSError as error:
        raise StoreError(path, f"{path} cannot be read: {error.strerror or error}") from error
    if begin[8:] != b"DUCK":
        raise NotAStoreError(path, f"{path} is no DuckDB database. Name a file made by prepare_embeddings.")


def is_open_here(path: Path) -> bool:
    """Return whether this process has the file open: closing it once would then give up every lock of it (POSIX)."""
    wanted = identity(path)
    with suppress(OSError):  # not on Windows, which has no such locks either
        for number in os.listdir("/dev/fd"):  # noqa: PTH208 - names only
            with suppress(OSError, ValueError):
                found = os.fstat(int(number))
                if (found.st_dev, found.st_ino) == wanted:
                    return True
    return False


def storage_version(path: Path) -> int:
    """Return the version of DuckDB's storage format that the file's header states."""
    with path.open("rb") as file:
        return int.from_bytes(file.read(20)[12:], "little")


def is_damage(error: duckdb.Error) -> bool:
    """Return whether DuckDB's error says that a file cannot be read as it is."""
    kinds = (duckdb.IOException, duckdb.SerializationException, duckdb.FatalException, duckdb.InternalException)
    return isinstance(error, kinds) or "Corrupt database file" in str(error)


def connect(path: Path, read_only: bool, wait_seconds: float) -> duckdb.DuckDBPyConnection:
    """Connect, waiting a bounded time for a process that holds the file."""

    def attempt() -> duckdb.DuckDBPyConnection:
        try:
            return duckdb.connect(str(path), read_only=read_only)
        except duckdb.ConnectionException as error:
            if "different configuration" not in str(error):
                raise StoreError(path, f"{path} cannot be opened: {error}") from error
            return _join(path, read_only)

    return patiently(path, wait_seconds, attempt)


def prepare_to_write(con: duckdb.DuckDBPyConnection) -> None:
    """Set what holds for every connection that writes vectors."""
    # ALPRD misjudges vectors in row groups of more than some 60,000 rows: 6.2 bytes a number in place of 4, and half as
    # much again to decode.
    con.execute("SET disabled_compression_methods = 'alprd'")


def patiently(path: Path, wait_seconds: float, attempt: Callable[[], T]) -> T:
    """Try to open a file until no other process holds it, a bounded time; what DuckDB says becomes our own error."""
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            return attempt()
        except duckdb.SerializationException as error:  # noqa: PERF203 - it waits
            raise damaged(path, error) from error
        except duckdb.IOException as error:
            if "lock" not in str(error).lower():
                raise _unusable(path, error) from error
            if time.monotonic() >= deadline:
                raise _locked(path, error) from error
            time.sleep(0.05)
        except duckdb.Error as error:
            if "already attached" in str(error):
                raise held_here(path, "attached to a DuckDB connection", "DETACH it") from error
            if is_damage(error):
                raise damaged(path, error) from error
            raise NotAStoreError(path, f"{path} cannot be opened as a DuckDB database: {error}") from error


def _join(path: Path, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Join the database that the program itself has open through ``duckdb.connect``, with writing allowed."""
    try:
        return duckdb.connect(str(path))
    except duckdb.ConnectionException as error:
        how = "with settings of its own" if read_only else "for reading or with settings of its own"
        raise held_here(path, f"open {how} through duckdb.connect", "Close that connection") from error


def held_here(path: Path, how: str, remedy: str) -> StoreLockedError:
    """Return the error for a file that the program itself has open."""
    return StoreLockedError(path, f"{path} is {how} in this process. {remedy} and try again.", os.getpid())


def damaged(path: Path, error: duckdb.Error) -> NotAStoreError:
    """Return the error for a file that DuckDB cannot read."""
    return NotAStoreError(
        path, f"{path} is damaged or cut short: {error}. Make it again with prepare_embeddings, or copy it again."
    )


def out_of_memory(path: Path, error: duckdb.Error, consequence: str = "No answer was given") -> StoreError:
    """Return the error for work that ``memory_limit`` leaves no room for."""
    return StoreError(
        path,
        f"{path}: DuckDB ran out of the memory that memory_limit allows. {consequence}. Pass a greater memory_limit, "
        f"such as '1GB'. (DuckDB: {str(error).splitlines()[0]})",
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
        return damaged(path, error)
    return StoreError(path, f"{path} cannot be opened: {text}")


def _locked(path: Path, error: duckdb.IOException) -> StoreLockedError:
    found = _PID.search(str(error))
    pid = int(found[1]) if found else None
    who = f"process {pid}" if pid else "another process"
    return StoreLockedError(
        path,
        f"{path} is in use by {who}: one process may write, or several may read. Wait until it is done "
        "(wait_seconds=60, or SQLRAG_WAIT_SECONDS=60 in the environment, waits for it), or end it and try again.",
        pid,
    )
