"""Builds and arms ``shim.c``: a process that is killed, or whose disk fails, at its n-th change of a file.

A script that wants it calls :func:`preload` first, which starts the script again with the library loaded.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")

# The numbers of the enum in shim.c. "time" is for callers that kill the process themselves.
MODES = {
    "time": 0,
    "before": 1,
    "after": 2,
    "torn": 3,
    "power_all": 4,
    "power_some": 5,
    "nospace": 6,
    "ioerr": 7,
}


def missing() -> str:
    """Return why the shim cannot be used here; empty where it can."""
    if sys.platform != "linux":
        return "needs Linux, whose loader takes LD_PRELOAD"
    return "" if shutil.which("gcc") else "needs gcc, which builds tests/support/shim.c"


def library() -> Path:
    """Return the path of the shared library, built where it is missing or older than its source."""
    built = Path(tempfile.gettempdir()) / f"sqlrag-shim-{os.getuid()}-{int(SOURCE.stat().st_mtime)}.so"
    if not built.exists():
        new = built.with_suffix(f".{os.getpid()}")
        command = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(new), str(SOURCE), "-ldl", "-lpthread"]
        subprocess.run(command, check=True)
        new.replace(built)
    return built


def environment() -> dict[str, str]:
    """Return the environment of a process that has the shim and no thread pools, which a fork would lose."""
    return {**os.environ, "LD_PRELOAD": str(library()), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def preload() -> None:
    """Start this script again with the shim, unless it has it."""
    if os.environ.get("LD_PRELOAD") != str(library()):
        os.execve(sys.executable, [sys.executable, *sys.argv], environment())


class Shim:
    """The shim in this process."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(library()))
        self._library.shim_count.restype = ctypes.c_long
        self._library.shim_arm.argtypes = [ctypes.c_int, ctypes.c_long, ctypes.c_char_p, ctypes.c_uint]

    def arm(self, mode: str, call: int, folder: Path, seed: int = 1) -> None:
        """Let the n-th change below a folder go wrong as ``mode`` says; 0: only count them."""
        self._library.shim_arm(MODES[mode], call, os.fsencode(folder), seed)

    def disarm(self) -> int:
        """Let everything go well again; return how many changes there were."""
        count = int(self._library.shim_count())
        self._library.shim_arm(0, 0, b"", 0)
        return count
