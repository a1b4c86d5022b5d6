"""What a forked process may not wait for: locks that another thread held. And what it may not destroy."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref

_locks: weakref.WeakSet[threading.Lock] = weakref.WeakSet()


def new_lock() -> threading.Lock:
    """Return a lock that is free in every process that is forked from this one: who held it is not there."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def keep(found: object) -> None:
    """Never destroy an object, not even at the end of the process."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(found))


def _renew() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
