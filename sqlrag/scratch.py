"""Temporary folders, which are removed later where their process was killed."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # on Windows sweep() does nothing
    fcntl = None  # type: ignore[assignment]

_PREFIX = "sqlrag-"

_LOCK = "held"


class Folder:
    """A temporary folder, ``path``, until :meth:`close`; it is locked meanwhile, see :func:`sweep`."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True)
        outer = Path(self._directory.name)
        self.path = outer / "files"
        self.path.mkdir()
        self._lock = (outer / "new").open("wb")
        if fcntl:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            # Renamed only once it is locked, so that no other process finds it unlocked.
            (outer / "new").rename(outer / _LOCK)

    def close(self) -> None:
        """Unlock and remove the folder; again removes files that were written since."""
        self._lock.close()
        self._directory.cleanup()


def sweep() -> None:
    """Remove the temporary folders of processes that were killed: the lock of a file ends with its process."""
    if not fcntl:
        return
    for outer in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # The folders of other users and earlier versions have no lock that can be acquired.
        with suppress(OSError):
            if outer.is_symlink() or outer.stat().st_uid != os.getuid():
                continue
            with (outer / _LOCK).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(outer, ignore_errors=True)
