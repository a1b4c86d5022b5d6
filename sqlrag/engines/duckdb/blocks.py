"""The blocks of a DuckDB file, read without DuckDB: their checksums, and a rollback journal of those written in place.

A file is the main header, two database headers and blocks, each with a checksum in its first 8 bytes. The database
header with the higher iteration is in force. A checkpoint writes new blocks where no block in use is, and then the
other header; but the blocks of metadata, which hold 64 parts each, are written in place, with the parts that are in use
unchanged. Where such a write is torn, the checksum of the whole block no longer holds and DuckDB refuses the file. So
these blocks and the headers are copied into a journal, ``FILE.journal``, while a checkpoint is under way.

Layout: ``src/storage/single_file_block_manager.cpp`` and ``metadata/metadata_manager.cpp`` of DuckDB, the same in
storage versions 64 to 69.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sqlrag.errors import StoreError
from sqlrag.progress import Bar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_HEADER_SIZE = 4096

_HEADERS = (_HEADER_SIZE, 2 * _HEADER_SIZE)

_BLOCKS_START = 3 * _HEADER_SIZE

# A pointer to metadata: the part in the highest byte, the block in the others.
_BLOCK_MASK = (1 << 56) - 1

_END = (1 << 64) - 1

_PARTS = 64

# What a disk writes in one piece, at least.
_PAGE = 4096

_MAGIC = b"sqlrag rollback journal 1\n".ljust(32)

_READ_BYTES = 16 * 1024 * 1024

_PRIVATE = 0o600


class Header(NamedTuple):
    """A database header: which checkpoint wrote it, where its metadata and its list of free blocks begin."""

    iteration: int
    metadata: int
    free_list: int
    block_count: int
    block_size: int


class Layout(NamedTuple):
    """What the header in force says: the ids of blocks that are not in use, and of those that hold metadata."""

    header: Header
    free: frozenset[int]
    metadata: tuple[int, ...]

    def offset(self, block: int) -> int:
        """Return where a block begins in the file, in bytes."""
        return _BLOCKS_START + block * self.header.block_size


class UnknownLayoutError(Exception):
    """The list of free blocks cannot be followed."""


def identity(path: Path) -> tuple[int, int]:
    """Return what distinguishes a file from another one that is renamed to its place."""
    found = path.stat()
    return found.st_dev, found.st_ino


def journal_of(path: Path) -> Path:
    """Return where the rollback journal of a file is while a checkpoint is under way."""
    return path.with_name(path.name + ".journal")


def flush_folder(folder: Path) -> None:
    """Flush the new name of a file to disk, where the system supports it."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def descriptors() -> dict[int, tuple[int, int]]:
    """Return the identity of what each descriptor of this process is of."""
    found = {}
    with suppress(OSError):  # not on Windows, which has no such locks either
        for name in os.listdir("/dev/fd"):  # noqa: PTH208 - names only
            with suppress(OSError, ValueError):
                stat = os.fstat(int(name))
                found[int(name)] = stat.st_dev, stat.st_ino
    return found


def descriptor_here(file: tuple[int, int]) -> int | None:
    """Return a descriptor by which this process has a file open, of those that this system lists."""
    return next((number for number, found in descriptors().items() if found == file), None)


@contextmanager
def descriptor(path: Path, file: tuple[int, int]) -> Iterator[int]:
    """Yield a descriptor to read a file with that this process may have open.

    Where DuckDB has it open here, that is DuckDB's own: closing another one would release DuckDB's lock (POSIX).
    """
    number = descriptor_here(file)
    if number is not None:
        yield number
        return
    number = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        yield number
    finally:
        os.close(number)


def copy_file(number: int, target: Path) -> None:
    """Copy what a descriptor reads, from its beginning, to a new file that nobody else may do more with."""
    out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), _PRIVATE)
    with open(out, "wb") as file:  # noqa: PTH123 - of a descriptor
        give_rights(target, os.fstat(number))
        at = 0
        while data := _read(number, at, _READ_BYTES):
            file.write(data)
            at += len(data)
        file.flush()
        os.fsync(out)


def give_rights(path: Path, rights: os.stat_result | None) -> None:
    """Give a file or folder the rights of another one: mode, and owner and group where this is permitted."""
    if rights is None:
        return
    group = rights.st_gid
    if hasattr(os, "chown"):
        for owner in (rights.st_uid, -1):
            with suppress(OSError):
                os.chown(path, owner, rights.st_gid)
                break
        else:
            group = path.stat().st_gid
    path.chmod(mode_for(rights, group))


def mode_for(rights: os.stat_result, group: int) -> int:
    """Return the mode by which a file of this group lets nobody do more than one of these rights does."""
    mode = stat.S_IMODE(rights.st_mode)
    if group == rights.st_gid:
        return mode
    # Members of either group may be the others of the other file.
    both = mode >> 3 & mode & stat.S_IRWXO
    return mode & ~(stat.S_IRWXG | stat.S_IRWXO) | both << 3 | both


def checksum_holds(data: bytes | memoryview) -> bool:
    """Return whether a header or block has the checksum of its first 8 bytes: DuckDB's ``Checksum``."""
    words = np.frombuffer(data, dtype="<u8")
    return bool(words[0] == _checksums(words[None, 1:])[0])


def _checksums(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        products = words * np.uint64(0xBF58476D1CE4E5B9)
    found: NDArray[np.uint64] = np.bitwise_xor.reduce(products, axis=1) ^ np.uint64(5381)
    return found


def damaged_blocks(number: int) -> list[int]:
    """Return where the headers and blocks in use begin whose checksum does not hold, in bytes, in order.

    Raises
    ------
    UnknownLayoutError
        The list of free blocks cannot be followed: it is damaged, or DuckDB's layout is a newer one.
    """
    headers = [0, *_HEADERS]
    damaged = [at for at in headers if not _whole(number, at, _HEADER_SIZE)]
    if damaged:
        return damaged
    layout = read_layout(number)
    size, count = layout.header.block_size, layout.header.block_count
    together = max(1, _READ_BYTES // size)
    with Bar("checking", "block", count) as bar:
        for first in range(0, count, together):
            wanted = min(together, count - first)
            data = _read(number, layout.offset(first), wanted * size)
            data += bytes(wanted * size - len(data))  # a file that is cut short
            words = np.frombuffer(data, dtype="<u8").reshape(wanted, -1)
            wrong = np.flatnonzero(words[:, 0] != _checksums(words[:, 1:]))
            damaged += [layout.offset(first + int(i)) for i in wrong if first + int(i) not in layout.free]
            bar.made(wanted)
    return damaged


def read_layout(number: int) -> Layout:
    """Return the layout by the header in force, or raise UnknownLayoutError."""
    header = _header_in_force(number)
    if header is None or header.block_size < _HEADER_SIZE or header.block_size % _HEADER_SIZE:
        raise UnknownLayoutError("No header can be read.")
    if header.free_list == _END:
        return Layout(header, frozenset(), ())
    words = _Words(number, header)
    free = frozenset(words.take() for _ in range(words.take()))
    for _ in range(words.take()):  # blocks with several users: an id and a count of four bytes each
        words.skip(12)
    metadata = []
    for _ in range(words.take()):
        metadata.append(words.take())
        words.take()  # the parts of it that are free
    if any(block >= header.block_count for block in (*free, *metadata)):
        raise UnknownLayoutError("It names blocks that the file does not have.")
    return Layout(header, free, tuple(metadata))


class _Words:
    """Reads numbers of 8 bytes from a list that is spread over parts of metadata blocks."""

    def __init__(self, number: int, header: Header) -> None:
        self._number, self._header, self._next = number, header, header.free_list
        self._size = (header.block_size - 8) // _PARTS // 8 * 8
        self._data = b""
        self._left = header.block_count * _PARTS

    def skip(self, size: int) -> bytes:
        """Return the next bytes."""
        while len(self._data) < size:
            block, part = self._next & _BLOCK_MASK, self._next >> 56
            self._left -= 1
            if self._next == _END or block >= self._header.block_count or part >= _PARTS or self._left < 0:
                raise UnknownLayoutError("The list of free blocks breaks off.")
            at = _BLOCKS_START + block * self._header.block_size + 8 + part * self._size
            found = _read(self._number, at, self._size)
            self._next = int.from_bytes(found[:8], "little")
            self._data += found[8:]
        taken, self._data = self._data[:size], self._data[size:]
        return taken

    def take(self) -> int:
        """Return the next number."""
        return int.from_bytes(self.skip(8), "little")


def _header_in_force(number: int) -> Header | None:
    whole = [at for at in _HEADERS if _whole(number, at, _HEADER_SIZE)]
    fields = [np.frombuffer(_read(number, at + 8, 40), dtype="<u8").tolist() for at in whole]
    return max((Header(*field) for field in fields), default=None)


def _whole(number: int, offset: int, size: int) -> bool:
    data = _read(number, offset, size)
    return len(data) == size and checksum_holds(data)


def _read(number: int, offset: int, size: int) -> bytes:
    """Return the bytes at an offset, fewer at the end of the file."""
    parts = []
    while size:
        if hasattr(os, "pread"):
            part = os.pread(number, size, offset)
        else:  # Windows
            os.lseek(number, offset, os.SEEK_SET)
            part = os.read(number, size)
        if not part:
            break
        parts.append(part)
        size, offset = size - len(part), offset + len(part)
    return b"".join(parts)


def write_journal(path: Path, file: tuple[int, int]) -> Path | None:
    """Copy what the next checkpoint writes in place into a journal beside the file, and flush it to disk.

    Its entries are offset, size and bytes. None where the layout is unknown, which leaves the checkpoint to itself.
    """
    with descriptor(path, file) as number:
        try:
            layout = read_layout(number)
        except UnknownLayoutError:
            return None
        spans = [(0, _BLOCKS_START), *((layout.offset(block), layout.header.block_size) for block in layout.metadata)]
        entries = [(offset, _read(number, offset, size)) for offset, size in spans]
        rights = os.fstat(number)
    body = b"".join(offset.to_bytes(8, "little") + len(data).to_bytes(8, "little") + data for offset, data in entries)
    journal = journal_of(path)
    if journal.exists() and (journal.is_dir() or not _is_journal(journal.read_bytes())):
        raise FileExistsError(
            errno.EEXIST, "it is in the way of a change, and no journal of sqlrag: move it", str(journal)
        )
    target = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), _PRIVATE)
    try:
        with open(target, "wb") as out:  # noqa: PTH123 - of a descriptor
            give_rights(journal, rights)
            out.write(_MAGIC + _digest(body) + body)
            out.flush()
            os.fsync(target)
    except BaseException:
        journal.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)
    return journal


def _digest(body: bytes) -> bytes:
    from hashlib import sha256

    return sha256(body).digest()


def roll_back(path: Path) -> None:
    """Undo what an interrupted checkpoint left half-written, where a journal is beside a file; remove the journal.

    Only headers and blocks whose checksum does not hold are written, and only where the checkpoint did not get as far
    as its header: all that is whole is left alone, so an old journal does no harm. A file that any process has open is
    left alone as well, since it could be opened.

    Raises
    ------
    StoreError
        The file or the journal may not be written here, and the file is as neither before nor after the checkpoint.
    """
    journal = journal_of(path)
    try:
        content = journal.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        return
    if not _is_journal(content) or not path.exists() or descriptor_here(identity(path)) is not None:
        return
    entries = _entries(content)
    try:
        with path.open("rb+", buffering=0) as file:
            if not _locked(file.fileno()):
                return
            if entries and _header_is(file.fileno(), entries[0][1]):
                for offset, data in entries:
                    _restore(file.fileno(), offset, data)
                os.fsync(file.fileno())
    except OSError as error:
        if not _is_whole(path, entries):
            raise StoreError(
                path,
                f"{path} was left by a process that ended in the middle of a write, and what it left in {journal.name} "
                f"cannot be put back: {error.strerror or error}. Open it once where both files may be written.",
            ) from error
    with suppress(OSError):  # else the next one removes it
        journal.unlink(missing_ok=True)


def _is_whole(path: Path, entries: Sequence[tuple[int, bytes]]) -> bool:
    """Return whether the checkpoint of a journal did not begin, or was completed.

    So is said of a file that cannot be read or that another process has open: opening it tells why.
    """
    try:
        with path.open("rb", buffering=0) as file:
            return (
                not _locked(file.fileno(), shared=True)
                or all(_read(file.fileno(), at, len(data)) == data for at, data in entries)
                or not _header_is(file.fileno(), entries[0][1])
            )
    except OSError:
        return True


def _is_journal(content: bytes) -> bool:
    """Return whether it is a journal, or what was written of one; not a file of somebody's by this name.

    Where the power failed before it was flushed, its first page may be zeros.
    """
    return content.startswith(_MAGIC) or _MAGIC.startswith(content) or not content[:_PAGE].strip(b"\0")


def _entries(content: bytes) -> list[tuple[int, bytes]]:
    """Return offsets and bytes of a journal; none where it was not finished, and so the checkpoint not begun."""
    head = len(_MAGIC)
    body = content[head + 32 :]
    if content[:head] != _MAGIC or content[head : head + 32] != _digest(body):
        return []
    entries, at = [], 0
    while at < len(body):
        offset, size = (int.from_bytes(body[at + i : at + i + 8], "little") for i in (0, 8))
        entries.append((offset, body[at + 16 : at + 16 + size]))
        at += 16 + size
    return entries


def _header_is(number: int, headers: bytes) -> bool:
    """Return whether the file has these headers still, apart from one that is torn."""
    now = _read(number, 0, len(headers))
    pairs = [(now[at : at + _HEADER_SIZE], headers[at : at + _HEADER_SIZE]) for at in (0, *_HEADERS)]
    return len(now) == len(headers) and all(
        new == old or (at > 0 and not checksum_holds(new)) for at, (new, old) in enumerate(pairs)
    )


def _restore(number: int, offset: int, data: bytes) -> None:
    """Write the parts of the journal whose place in the file has a wrong checksum."""
    size = _HEADER_SIZE if offset == 0 else len(data)
    for at in range(0, len(data), size):
        if not _whole(number, offset + at, size):
            _write(number, offset + at, data[at : at + size])


def _write(number: int, offset: int, data: bytes) -> None:
    os.lseek(number, offset, os.SEEK_SET)
    while data:
        data = data[os.write(number, data) :]


def _locked(number: int, *, shared: bool = False) -> bool:
    """Lock a file as DuckDB does, until it is closed; return whether that succeeded."""
    try:
        import fcntl
    except ImportError:
        return True  # Windows refuses to open it for writing while another process has it open
    with suppress(OSError):
        fcntl.lockf(number, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        return True
    return False
