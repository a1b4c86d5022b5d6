"""The output file of a build: beside its place until it is whole."""

from __future__ import annotations

import glob
import os
import secrets
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlrag.errors import SchemaVersionError, StoreExistsError
from sqlrag.store.database import Database, check_replaceable, is_open
from sqlrag.store.files import remove_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
    for left_over in output.parent.glob(f".{glob.escape(output.name)}.*.building*"):
        if not _is_being_built(left_over):
            _remove(left_over)
    temporary = output.with_name(f".{output.name}.{os.getpid()}-{secrets.token_hex(4)}.building")
    try:
        yield temporary
        with _without_writers(output):
            _put(temporary, output, overwrite)
    except BaseException:
        remove_files(temporary)
        raise


@contextmanager
def _without_writers(output: Path) -> Iterator[None]:
    """Hold the old file for reading while it is replaced: no writer can have it open then, nor lose what it writes."""
    check_replaceable(output)
    if not output.exists() or output.stat().st_size == 0:
        yield
        return
    try:
        old = Database.open(output)
    except SchemaVersionError:
        yield
        return
    with old:
        yield


def _put(temporary: Path, output: Path, overwrite: bool) -> None:
    """Give a finished file its name."""
    remove_files(output.with_name(output.name + ".wal"))
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


def _is_being_built(left_over: Path) -> bool:
    """Return whether a process holds the lock of a temporary database."""
    building = left_over.with_name(left_over.name.rpartition(".building")[0] + ".building")
    if is_open(building):
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
