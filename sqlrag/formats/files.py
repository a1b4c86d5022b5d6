"""The files of other formats: written beside their place and renamed, so that they are there whole or not at all."""

from __future__ import annotations

import glob
import mmap
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from sqlrag.errors import FormatError, NotFoundError, StoreError, StoreExistsError
from sqlrag.store.files import check_output, real_path
from sqlrag.store.output import flush_folder, is_under_way, put_in_place, temporary_beside
from sqlrag.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


_LARGE = 1 << 22  # bytes


@dataclass(frozen=True)
class Exported:
    """What an export wrote: the file, what it holds, its size in bytes, and what the reader should know."""

    path: Path
    documents: int
    chunks: int
    size_bytes: int
    notices: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Say it in lines."""
        holds = f"{counted(self.documents, 'document')}, {counted(self.chunks, 'chunk')}"
        return "\n".join([f"{self.path}: {holds}, {self.size_bytes:,} bytes", *self.notices])


def existing(path: str | os.PathLike[str]) -> Path:
    """Return the real path of a file that is there, or raise NotFoundError."""
    real = real_path(path)
    if not real.is_file():
        what = "is a folder" if real.is_dir() else "does not exist"
        raise NotFoundError(f"The file {real} {what}.")
    return real


def read_whole(path: Path) -> bytes | mmap.mmap:
    """Return the bytes of a file, which can be searched, cut and viewed.

    Where the system can, they lie in a few large pages of memory: that takes a third of the time of ``read_bytes``.
    """
    size = path.stat().st_size
    if size < _LARGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return path.read_bytes()
    data = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # memory, not the file
    with suppress(OSError):  # a kernel without large pages
        data.madvise(mmap.MADV_HUGEPAGE)
    with path.open("rb", buffering=0) as file:
        done = 0
        while done < size:  # one call reads 2 GB at most
            count = file.readinto(memoryview(data)[done:])
            if not count:
                raise FormatError(f"{path} has become shorter while it was read. Try again.")
            done += count
    return data


@contextmanager
def new_output(
    path: str | os.PathLike[str], *, overwrite: bool, is_ours: Callable[[Path], bool], kind: str
) -> Iterator[BinaryIO]:
    """Yield a file to write to, which gets its name at the end and is removed after an error.

    ``is_ours`` tells whether an existing file is of the format, ``kind`` names it: another one is never replaced.

    Raises
    ------
    StoreExistsError
        The file exists and ``overwrite`` is False.
    FormatError
        It exists and is something else.
    StoreError
        The folder does not exist, or it cannot be written.
    """
    output = check_output(path, overwrite=overwrite)
    if output.exists() and output.stat().st_size and not is_ours(output):
        raise FormatError(
            f"{output} exists and is no {kind}, so it is not replaced. Delete it, or name another output."
        )
    with temporary_beside(output) as temporary:
        try:
            with temporary.open("xb") as file:
                _hold(file)
                yield file
                file.flush()
                os.fsync(file.fileno())
            put_in_place(temporary, output, overwrite)  # once it is closed: Windows renames no open file
        except OSError as error:
            raise StoreError(output, f"{output} could not be written: {error}. Is the disk full?") from error
    flush_folder(output.parent)


@contextmanager
def new_folder(
    path: str | os.PathLike[str], *, overwrite: bool, is_ours: Callable[[Path], bool], kind: str
) -> Iterator[Path]:
    """Yield a folder to fill, which gets its name at the end and is removed after an error; as :func:`new_output`.

    Where one is replaced it is moved away first: for that moment there is none of this name.
    """
    output = real_path(path)
    _bring_back(output)
    if output.exists() and not overwrite:
        raise StoreExistsError(
            output, f"The output {output} exists already. Pass overwrite=True (--overwrite) to replace it."
        )
    if output.exists() and not (output.is_dir() and (is_ours(output) or not any(output.iterdir()))):
        raise FormatError(
            f"{output} exists and is no {kind}, so it is not replaced. Delete it, or name another output."
        )
    if not output.parent.is_dir():
        raise StoreError(output, f"The folder {output.parent} of the output does not exist. Make it first.")
    with temporary_beside(output) as temporary:
        try:
            # The lock of a file tells other processes that the folder beside it is under way.
            with temporary.open("xb") as lock:
                _hold(lock)
                folder, old = (temporary.with_name(f"{temporary.name}.{what}") for what in ("new", "old"))
                folder.mkdir()
                yield folder
                for file in folder.rglob("*"):
                    if file.is_file():
                        flush_file(file)
                _put_folder_in_place(folder, output, old, overwrite)
        except OSError as error:
            raise StoreError(output, f"{output} could not be written: {error}. Is the disk full?") from error
    flush_folder(output.parent)


def _bring_back(output: Path) -> None:
    """Give a folder its name again that a killed process had moved away to replace it."""
    for old in sorted(output.parent.glob(f".{glob.escape(output.name)}.*.building.old")):
        if not output.exists() and not is_under_way(old):
            old.rename(output)


def _put_folder_in_place(folder: Path, output: Path, old: Path, overwrite: bool) -> None:
    if output.exists() and not overwrite:
        raise StoreExistsError(output, f"{output} was made by another process in the meantime. It is left as it is.")
    if output.exists():
        output.rename(old)
    try:
        folder.rename(output)
    except OSError:
        if old.exists() and not output.exists():
            old.rename(output)
        raise


def flush_file(path: Path) -> None:
    """Have the disk keep what was written to a file."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _hold(file: BinaryIO) -> None:
    """Lock a file under way, so that no other process takes it for a left-over."""
    with suppress(ImportError, OSError):
        import fcntl

        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
