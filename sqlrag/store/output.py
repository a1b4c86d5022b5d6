"""A file that is made or made anew: beside its place until it is whole."""

from __future__ import annotations

import glob
import os
import secrets
import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import duckdb

from sqlrag.errors import SchemaVersionError, StoreError, StoreExistsError, StoreLockedError
from sqlrag.store.calls import attach
from sqlrag.store.database import Database, check_replaceable
from sqlrag.store.files import (
    connect,
    held_here,
    identity,
    is_open_here,
    out_of_memory,
    patiently,
    prepare_to_write,
    remove_files,
)
from sqlrag.store.handles import DEFAULT_WAIT, reserved

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# The temporary files of this process; looking into one would give up the lock that DuckDB holds on it.
_under_way: set[Path] = set()


@contextmanager
def new_file(output: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a path beside the output; give the file its name at the end, or remove it after an error.

    Raises
    ------
    StoreExistsError
        Another process made the output in the meantime, and ``overwrite`` is False.
    StoreLockedError
        Another process writes to the file that is to be replaced.
    """
    with temporary_beside(output) as temporary:
        yield temporary
        with _without_writers(output), _one_at_a_time(output.parent):
            remove_files(output.with_name(output.name + ".wal"))
            put_in_place(temporary, output, overwrite)


@contextmanager
def replacement(
    path: Path, wait_seconds: float, memory_limit: str | None
) -> Iterator[tuple[duckdb.DuckDBPyConnection, Path]]:
    """Make a new file out of an old one, which it replaces at the end; after an error the old one is as it was.

    Yield a connection that has the old file attached as ``old`` and the new, empty one as ``new``, the default, and
    the path of the new one, to be detached when it is whole. Nobody can write to the old file meanwhile; other
    processes can read it. ``memory_limit`` is checked by the caller.

    Raises
    ------
    StoreLockedError
        Another process writes to the file, or this one has it open.
    StoreError
        The new file cannot be written.
    """
    with reserved(path), temporary_beside(path) as temporary:
        if is_open_here(path):
            raise held_here(path, "open through duckdb.connect", "Close that connection")
        _settle(path, wait_seconds)
        before = identity(path)
        # Sorts that do not fit into memory go to a folder that is removed with the temporary file.
        memory = {} if memory_limit is None else {"memory_limit": memory_limit}
        con = duckdb.connect(config={"temp_directory": f"{temporary}.tmp", **memory})
        with con:
            prepare_to_write(con)
            patiently(path, wait_seconds, lambda: attach(con, path, "old", read_only=True))
            try:
                attach(con, temporary, "new")
                con.execute("USE new")
                yield con, temporary
                with _one_at_a_time(path.parent):
                    _check_is_still(path, before)
                    temporary.replace(path)
            except duckdb.OutOfMemoryException as error:
                raise out_of_memory(path, error, "The file is as it was") from error
            except (duckdb.Error, OSError) as error:
                raise StoreError(
                    path, f"{path} could not be rewritten and is as it was: {error}. Is the disk full?"
                ) from error
        flush_folder(path.parent)


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Let one process at a time put files into their places in a folder, where the system has such locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a network file system may have none
            fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def _check_is_still(path: Path, before: tuple[int, int]) -> None:
    """Raise StoreLockedError where another process has replaced the file that was rewritten here."""
    if not path.exists() or identity(path) != before or path.with_name(path.name + ".wal").exists():
        raise StoreLockedError(
            path, f"{path} has been replaced by another process while it was rewritten here. It is left as it is now."
        )


@contextmanager
def temporary_beside(output: Path) -> Iterator[Path]:
    """Yield a path beside the output, after removing what killed processes left; remove what is left of it."""
    remove_left_overs(output)
    temporary = output.with_name(f".{output.name}.{os.getpid()}-{secrets.token_hex(4)}.building")
    _under_way.add(temporary)
    try:
        yield temporary
    finally:
        _under_way.discard(temporary)
        for file in output.parent.glob(f"{glob.escape(temporary.name)}*"):
            _remove(file)


def remove_left_overs(output: Path) -> None:
    """Remove the temporary files of an output whose processes were killed."""
    for left_over in output.parent.glob(f".{glob.escape(output.name)}.*.building*"):
        if not is_under_way(left_over):
            _remove(left_over)


def _settle(path: Path, wait_seconds: float) -> None:
    """Move what a killed process left in the log into the file: the log would not fit to another file of this name."""
    if path.with_name(path.name + ".wal").exists():
        with connect(path, False, wait_seconds) as con:
            con.execute("CHECKPOINT")


def flush_folder(folder: Path) -> None:
    """Have the disk keep the new name of a file, where the system can be told to."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


@contextmanager
def _without_writers(output: Path) -> Iterator[None]:
    """Hold the old file for reading while it is replaced: no writer can have it open then, nor lose what it writes."""
    check_replaceable(output)
    if not output.exists() or output.stat().st_size == 0:
        yield
        return
    with suppress(StoreLockedError):  # it is being read, log and all
        _settle(output, DEFAULT_WAIT)
    try:
        old = Database.open(output)
    except SchemaVersionError:
        yield
        return
    with old:
        yield


def put_in_place(temporary: Path, output: Path, overwrite: bool) -> None:
    """Give a finished file its name, or raise StoreExistsError where it is taken and may not be replaced."""
    if not overwrite:
        try:
            os.link(temporary, output)  # unlike a rename, it fails where the name is taken
        except FileExistsError as error:
            raise StoreExistsError(
                output, f"The output {output} was made by another process in the meantime. It is left as it is."
            ) from error
        except OSError:  # a file system without links
            temporary.replace(output)
        else:
            temporary.unlink()
        return
    temporary.replace(output)


def is_under_way(left_over: Path) -> bool:
    """Return whether a process holds the lock of a temporary database."""
    building = left_over.with_name(left_over.name.rpartition(".building")[0] + ".building")
    if building in _under_way:
        return True
    try:
        import fcntl

        with building.open("rb+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, FileNotFoundError):
        return False  # without fcntl the system refuses to delete a file that is open
    except OSError:
        return True
    return False


def _remove(path: Path) -> None:
    """Delete a file, or the folder that DuckDB spills into."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
        return
    try:
        path.unlink(missing_ok=True)
    except PermissionError:
        return  # somebody holds it after all
