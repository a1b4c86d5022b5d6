"""The output file of a build: beside its place until it is whole."""

from __future__ import annotations

import glob
import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlrag.errors import NotAStoreError, SchemaVersionError, StoreLockedError
from sqlrag.store.database import Database, is_open, remove_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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


@contextmanager
def new_file(output: Path) -> Iterator[Path]:
    """Yield a path beside the output; rename the file to it at the end, or remove it after an error."""
    for left_over in output.parent.glob(f".{glob.escape(output.name)}.*.building*"):
        if not _is_alive(left_over):
            _remove(left_over)
    temporary = output.with_name(f".{output.name}.{os.getpid()}.building")
    try:
        yield temporary
    except BaseException:
        remove_files(temporary)
        raise
    remove_files(output.with_name(output.name + ".wal"))
    temporary.replace(output)


def _is_alive(left_over: Path) -> bool:
    """Return whether the process that a temporary file is named after is there and may still be building it."""
    name, _, _ = left_over.name.rpartition(".building")
    try:
        pid = int(name.rpartition(".")[2])
        os.kill(pid, 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except OSError:
        return True  # it is there, but another user's
    # In a container a process often has the number of the one that was killed there before.
    return pid != os.getpid() or is_open(left_over.with_name(f"{name}.building"))


def _remove(path: Path) -> None:
    """Delete a file, or the folder that DuckDB spills into."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
