"""The originals of documents that were sent to a server, beside the file: ``FILE.originals/CHECKSUM``.

A name is the SHA-256 of the bytes, in hex, so an original is always of the document as the file has it: one that was
changed since has another checksum. After every change of the file those of no document are removed.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING

from sqlrag.engines.duckdb.failures import failure
from sqlrag.engines.duckdb.files import as_narrow_as
from sqlrag.engines.duckdb.schema import read_sql

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import duckdb

_NAME = re.compile(r"([0-9a-f]{64})(\.part)?")


def folder_of(path: Path) -> Path:
    """Return the folder of a file's originals, whether it is there or not."""
    real = path.resolve()
    return real.with_name(f"{real.name}.originals")


def original_of(path: Path, checksum: str) -> Path | None:
    """Return the original with a checksum; None where none was kept."""
    found = folder_of(path) / checksum
    return found if re.fullmatch("[0-9a-f]{64}", checksum) and found.is_file() else None


def keep(con: duckdb.DuckDBPyConnection, path: Path, contents: Iterable[bytes]) -> None:
    """Keep the bytes of documents that the file has; others are left out.

    Raises
    ------
    StoreError
        They cannot be written.
    """
    given = {sha256(content).hexdigest(): content for content in contents}
    folder = folder_of(path)
    try:
        with as_narrow_as(path):
            for checksum in _known(con, given):
                folder.mkdir(exist_ok=True)
                part = folder / f"{checksum}.part"
                part.write_bytes(given[checksum])
                part.replace(folder / checksum)
    except OSError as error:
        raise failure(folder, error, "The documents themselves are stored") from error


def remove_lost(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Remove the originals of which the file has no document any more.

    Raises
    ------
    StoreError
        One cannot be removed.
    """
    folder = folder_of(path)
    if folder.is_dir():
        names = _names(folder)
        known = _known(con, names)
        _remove(folder, [name for name in names if name not in known])


def remove_all(path: Path) -> None:
    """Remove the originals of a file that another one, made anew, has replaced.

    Raises
    ------
    StoreError
        One cannot be removed.
    """
    folder = folder_of(path)
    if folder.is_dir():
        _remove(folder, _names(folder))


def _names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir() if _NAME.fullmatch(entry.name)]


def _known(con: duckdb.DuckDBPyConnection, names: Iterable[str]) -> list[str]:
    rows = con.execute(read_sql("serving/known_checksums"), {"checksums": sorted(names)}).fetchall()
    return [checksum for (checksum,) in rows]


def _remove(folder: Path, names: Iterable[str]) -> None:
    try:
        for name in names:
            (folder / name).unlink(missing_ok=True)
        if not any(folder.iterdir()):
            folder.rmdir()
    except OSError as error:
        raise failure(folder, error, "The change itself is kept, with originals of what was removed") from error
