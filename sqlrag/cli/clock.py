"""Import time of the command line, for ``--timings``. ``sqlrag.cli`` imports this module first."""

from __future__ import annotations

import time

_began = time.perf_counter()

_import_seconds = 0.0


def imports_done() -> None:
    """Record how long the imports took that every command needs."""
    global _import_seconds
    _import_seconds = time.perf_counter() - _began


def import_seconds() -> float:
    """Return the recorded import time; 0 in a process that is not the command line."""
    return _import_seconds
