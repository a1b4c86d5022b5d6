"""Output files of other formats: written under a temporary name and renamed, so that they are complete or absent."""

from __future__ import annotations

import ctypes
import glob
import mmap
import os
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from sqlrag.arguments import counted
from sqlrag.engines.duckdb.blocks import flush_folder, give_rights
from sqlrag.engines.duckdb.files import check_output, real_path, rights_of
from sqlrag.engines.duckdb.rewrite import is_under_way, put_in_place, temporary_beside
from sqlrag.errors import FormatError, NotFoundError, StoreExistsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from sqlrag.engines.contents import Contents

_LARGE = 1 << 22  # bytes


@dataclass(frozen=True)
class Exported:
    """The result of an export: the file, counts, the size in bytes with that of the ``others``, and notices."""

    path: Path
    documents: int
    chunks: int
    size_bytes: int
    notices: list[str] = field(default_factory=list)
    others: tuple[Path, ...] = ()

    def __str__(self) -> str:
        """Format it as lines."""
        counts = f"{counted(self.documents, 'document')}, {counted(self.chunks, 'chunk')}"
        files = " and ".join([str(self.path), *(other.name for other in self.others)])
        return "\n".join([f"{files}: {counts}, {self.size_bytes:,} bytes", *self.notices])


def exported(contents: Contents, path: Path, *others: Path, notices: Sequence[str] = ()) -> Exported:
    """Return the report of contents that have been written to a file or folder, and to further files."""
    size = size_of(path, *others)
    return Exported(path, contents.documents, contents.chunks, size, [*contents.notices, *notices], others)


def size_of(*paths: Path) -> int:
    """Return the bytes of files, and of all files in folders."""
    files = (file for path in paths for file in ([path] if path.is_file() else path.rglob("*")))
    return sum(file.stat().st_size for file in files if file.is_file())


def existing(path: str | os.PathLike[str]) -> Path:
    """Return the real path of an existing file, or raise NotFoundError."""
    real = real_path(path)
    if not real.is_file():
        what = "is a folder" if real.is_dir() else "does not exist"
        raise NotFoundError(f"The file {real} {what}.")
    return real


def read_whole(path: Path) -> bytes | mmap.mmap:
    """Return the bytes of a file, which can be searched, sliced and viewed.

    If the system supports it, they are in large memory pages, which takes a third of the time of ``read_bytes``.
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
                raise FormatError(f"{path} became shorter while it was read. Try again.")
            done += count
    return data


@contextmanager
def new_output(
    path: str | os.PathLike[str], *, overwrite: bool, is_ours: Callable[[Path], bool], kind: str
) -> Iterator[BinaryIO]:
    """Yield a temporary file to write to, which is renamed at the end and removed after an error.

    ``is_ours`` returns whether an existing file is of the format ``kind``: other files are never replaced.

    Raises
    ------
    StoreExistsError
        The file exists and ``overwrite`` is False.
    FormatError
        It exists and is of another kind.
    StoreError
        It cannot be written.
    """
    output = check_output(path, overwrite=overwrite, is_store=False)
    if output.exists() and output.stat().st_size and not is_ours(output):
        raise _wrong_kind(kind, output)
    with temporary_beside(output) as temporary:
        with temporary.open("xb") as file:
            _lock(file)
            yield file
            file.flush()
            os.fsync(file.fileno())
        put_in_place(temporary, output, overwrite)  # after closing it: Windows cannot rename open files
    flush_folder(output.parent)


@contextmanager
def new_folder(
    path: str | os.PathLike[str], *, overwrite: bool, is_ours: Callable[[Path], bool], kind: str
) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed at the end and removed after an error; as :func:`new_output`.

    Linux and macOS exchange it with an existing folder in one step. Elsewhere that is moved away first: for a moment
    there is none of this name, and the next export renames it back where the process was killed then.
    """
    output = real_path(path)
    _restore_moved(output)
    if output.exists() and not overwrite:
        raise StoreExistsError(output, f"The output {output} exists already. Pass overwrite=True to replace it.")
    if output.exists() and not (output.is_dir() and (is_ours(output) or not any(output.iterdir()))):
        raise _wrong_kind(kind, output)
    with (
        temporary_beside(output) as temporary,
        # The lock of the temporary file shows other processes that the folder is being written.
        temporary.open("xb") as lock,
    ):
        _lock(lock)
        folder, old = (temporary.with_name(f"{temporary.name}.{what}") for what in ("new", "old"))
        folder.mkdir()
        yield folder
        for file in folder.rglob("*"):
            if file.is_file():
                flush_file(file)
        _put_folder_in_place(folder, output, old, overwrite)
    flush_folder(output.parent)


def _wrong_kind(kind: str, output: Path) -> FormatError:
    return FormatError(
        f"{output} exists and is not a {kind}, so it is not replaced. Delete it, or name another output."
    )


def _restore_moved(output: Path) -> None:
    """Rename a folder back that a killed process had moved away to replace it."""
    for old in sorted(output.parent.glob(f".{glob.escape(output.name)}.*.building.old")):
        if not output.exists() and not is_under_way(old):
            old.rename(output)


def _put_folder_in_place(folder: Path, output: Path, old: Path, overwrite: bool) -> None:
    if output.exists() and not overwrite:
        raise StoreExistsError(output, f"{output} was written by another process in the meantime. It is not replaced.")
    if output.exists():
        for file in folder.rglob("*"):
            give_rights(file, rights_of(output / file.relative_to(folder)))
        give_rights(folder, rights_of(output))
        if _exchanged(folder, output):
            return
        output.rename(old)
    try:
        folder.rename(output)
    except OSError:
        if old.exists() and not output.exists():
            old.rename(output)
        raise


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange the names of two folders in one step; return whether the system could."""
    try:
        library = ctypes.CDLL(None)
        if sys.platform == "darwin":
            return bool(library.renamex_np(os.fsencode(one), os.fsencode(other), 2) == 0)  # RENAME_SWAP
        # AT_FDCWD twice, RENAME_EXCHANGE
        return bool(library.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), 2) == 0)
    except (AttributeError, OSError, TypeError):  # a system without it
        return False


def flush_file(path: Path) -> None:
    """Flush a file to disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _lock(file: BinaryIO) -> None:
    """Lock a file that is being written, so that no other process removes it as a leftover."""
    with suppress(ImportError, OSError):
        import fcntl

        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
