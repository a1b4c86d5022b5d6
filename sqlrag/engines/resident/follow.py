"""Keeps the arrays of a file in memory in step with it, and lets SQL answer wherever they are not."""

from __future__ import annotations

import threading
import time
import weakref
from contextlib import ExitStack, suppress
from copy import copy
from typing import TYPE_CHECKING, TypeVar

import duckdb

from sqlrag.engines.duckdb.database import background
from sqlrag.engines.duckdb.definitions import changes
from sqlrag.engines.duckdb.engine import FileEngine
from sqlrag.engines.duckdb.failures import reported
from sqlrag.engines.duckdb.files import real_path
from sqlrag.engines.duckdb.metadata import read_metadata
from sqlrag.engines.many import ManyEngine
from sqlrag.engines.resident.engine import ResidentEngine
from sqlrag.engines.resident.load import MB, UnfitError, load
from sqlrag.locks import new_lock
from sqlrag.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from pathlib import Path

    from sqlrag.engines.base import Engine
    from sqlrag.engines.duckdb.database import Database, State
    from sqlrag.engines.resident.index import Index

T = TypeVar("T")

# So many questions are answered by SQL before a file is read into memory that nobody has asked to be.
QUESTIONS = 20

# Two changes that are closer than this may leave a file with the same times.
_TICK_SECONDS = 0.05

# What is no larger is read while its first question is answered, so that a server has it open no longer than for that.
_SOON_READ = 32 * MB  # some 10,000 chunks

# A file that changes all the time is being read a fifth of the time at most.
_REST = 4

_LOADING, _RESTING = "it is being read into memory", "the file has just been changed"

# Why arrays are not there that will be.
ON_THEIR_WAY = (_LOADING, _RESTING)


class _StoppedError(Exception):
    """The loading was stopped, or the file has changed meanwhile."""


class Residence:
    """The arrays of one file in this process, for every store of it. Safe to use from several threads at once.

    ``stays`` keeps what is being read going where no store is open: of a server, which closes its file when idle.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        self.path = path
        self.most_bytes = most_bytes
        self.stays = False
        self._index: Index | None = None
        self._refused: tuple[Hashable, str] | None = None
        self._thread: threading.Thread | None = None
        self._con: duckdb.DuckDBPyConnection | None = None
        self._stopped = threading.Event()
        self._rest_until = 0.0
        self._lock = new_lock()

    def index(self, database: Database) -> tuple[Index | None, str]:
        """Return the arrays of the file as it is now; None where there are none yet, and why not."""
        state = database.state()
        index = self._index
        if index is not None and index.state == state:
            return index, ""
        if state is None:
            return None, "the file is being changed, or has been replaced"
        with self._lock:
            if self._refused is not None and self._refused[0] == state:
                return None, self._refused[1]
            if self._thread is not None and self._thread.is_alive():
                return None, _LOADING
            if time.monotonic() < self._rest_until:
                return None, _RESTING
            self._stopped.clear()
            shared = database.shared()
            self._thread = threading.Thread(target=self._load, args=(shared, state), name="sqlrag-resident")
            try:
                self._thread.start()
            except RuntimeError as error:  # there are too many, or the program is at its end
                shared.close()
                self._thread, self._refused = None, (state, str(error))
                return None, str(error)
        return None, _LOADING

    def allow(self, most_bytes: int) -> None:
        """Let the arrays take so much, if that is more than before."""
        with self._lock:
            if most_bytes > self.most_bytes:
                self.most_bytes, self._refused = most_bytes, None

    def wait(self, seconds: float | None = None) -> None:
        """Wait until nothing is being read, at most so long."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def stop(self) -> None:
        """End the reading, if there is one, and wait for that."""
        self._stopped.set()
        while self._thread is not None and self._thread.is_alive():
            con = self._con
            if con is not None:
                with suppress(duckdb.Error):  # it is closed already
                    con.interrupt()
            self.wait(_TICK_SECONDS)

    def _load(self, database: Database, state: State) -> None:
        began = time.monotonic()

        def go_on() -> None:
            # A thread would keep a program from ending.
            if self._stopped.is_set() or database.state() != state or not threading.main_thread().is_alive():
                raise _StoppedError

        background[self.path] = self.stop
        try:
            with database:
                if time.time() - state.changed_at < _TICK_SECONDS:
                    self._stopped.wait(_TICK_SECONDS)
                go_on()
                con = self._con = database.cursor()
                if changes(con):
                    raise UnfitError("its views or macros are not those of this sqlrag")
                dimensions = int(read_metadata(con)["embedding_dimensions"])
                index = load(con, state, dimensions, self.most_bytes, go_on)
            self._index = index
        except _StoppedError:
            pass
        except UnfitError as error:
            self._refused = state, str(error)
        except MemoryError:
            self._refused = state, "there is not enough memory"
        except Exception as error:  # SQL answers, and says what is wrong with the file where it is
            if not self._stopped.is_set():
                self._refused = state, f"it cannot be read into memory: {error}"
        finally:
            background.pop(self.path, None)
            self._con = None
            self._rest_until = time.monotonic() + _REST * (time.monotonic() - began)


_residences: weakref.WeakValueDictionary[Path, Residence] = weakref.WeakValueDictionary()

_making = new_lock()


def residence_of(path: Path, resident_mb: int) -> Residence:
    """Return the arrays of a file in this process: the same for every store of it, with the greatest of their budgets.

    That of a server is its own.
    """
    with _making:
        found = _residences.get(path)
        if found is None:
            found = _residences[path] = Residence(path, resident_mb * MB)
        elif not found.stays:
            found.allow(resident_mb * MB)
        return found


def kept_in_memory(files: Sequence[Path], resident_mb: int | None) -> list[Residence]:
    """Return what keeps files in memory that a server opens and closes, for as long as it is referred to.

    None: as the settings say. Several files, which are searched together, share the budget by their sizes.
    """
    budget = Settings.from_environment().resident_mb if resident_mb is None else resident_mb
    paths = [real_path(file) for file in files]
    kept = []
    for path, share in zip(paths, _shares(paths, budget), strict=True):
        residence = residence_of(path, share)
        residence.stays, residence.most_bytes = True, share * MB
        kept.append(residence)
    return kept


def engine_of(database: Database, resident: bool | None, resident_mb: int) -> FileEngine:
    """Return what searches a file: from memory as soon as can be (True), after some questions (None), or never.

    What a server keeps has its own budget.
    """
    if database.is_remote:
        engine = FileEngine(database)
        engine.note = "SQL, since the file is on a server" if resident else ""
        return engine
    kept = _residences.get(database.path)
    is_kept = kept is not None and kept.stays
    if resident is False or not (kept.most_bytes if kept is not None and is_kept else resident_mb):
        return FileEngine(database)
    residence = residence_of(database.path, resident_mb)
    return FollowedEngine(database, residence, 0 if resident or is_kept else QUESTIONS)


def engine_of_many(parts: Sequence[FileEngine], resident: bool | None, resident_mb: int) -> ManyEngine:
    """Return what searches files together, which share the budget; see :func:`engine_of`."""
    budgets = _shares([part.path for part in parts], resident_mb)
    engines = [engine_of(part.database, resident, mb) for part, mb in zip(parts, budgets, strict=True)]
    followed = [engine for engine in engines if isinstance(engine, FollowedEngine)]
    return FollowedFiles(followed) if len(followed) == len(parts) else ManyEngine(parts)


def _shares(files: Sequence[Path], resident_mb: int) -> list[int]:
    """Return how many of the MB each file may take, by their sizes; the one of a single file is the whole."""
    sizes = [max(1, file.stat().st_size) if file.exists() else 1 for file in files]
    return [-(-resident_mb * size // sum(sizes)) for size in sizes]


def stop_reading() -> None:
    """End whatever is being read into memory: a program that ends while a thread is inside DuckDB may crash."""
    for stop in [*background.values()]:
        stop()


def _is_small(path: Path) -> bool:
    try:
        return path.stat().st_size < _SOON_READ
    except OSError:
        return False


class FollowedEngine(FileEngine):
    """An engine that searches the arrays of its file where they are there, else its SQL; ``note`` says which.

    The first ``questions`` are answered by SQL alone.
    """

    def __init__(self, database: Database, residence: Residence, questions: int) -> None:
        super().__init__(database)
        self.residence: Residence | None = residence
        self._left = questions
        if not questions:
            residence.index(database)

    def count(self) -> bool:
        """Count a question, and return whether SQL alone answers it."""
        self._left -= 1
        return self.residence is None or self._left >= 0

    def read(self, work: Callable[[Engine], T]) -> T:
        if self.count():
            return super().read(work)
        with reported(self.path):
            found, reason = _from_memory([self], lambda engines: work(engines[0]))
        if not reason:
            return found[0]
        engine = copy(self)
        engine.note = f"SQL, since {reason}"
        return super(FollowedEngine, engine).read(work)

    def close(self) -> None:
        residence, self.residence = self.residence, None
        if residence is not None and not residence.stays:
            residence.stop()
        elif residence is not None and _is_small(self.path):
            residence.wait()
        super().close()


class FollowedFiles(ManyEngine):
    """An engine that searches several files in memory where all of them are there, else by SQL; see FollowedEngine."""

    def __init__(self, parts: Sequence[FollowedEngine]) -> None:
        super().__init__(parts)
        self._followed = parts

    def read(self, work: Callable[[Engine], T]) -> T:
        waiting = [part.count() for part in self._followed]
        if any(waiting):
            return super().read(work)
        found, reason = _from_memory(self._followed, lambda engines: work(self._of(engines)))
        if not reason:
            return found[0]
        engine = copy(self)
        engine.note = f"SQL, since {reason}"
        return super(FollowedFiles, engine).read(work)

    def _of(self, engines: Sequence[ResidentEngine]) -> ManyEngine:
        many = copy(self)
        many.parts, many.note, many.in_threads = list(engines), ResidentEngine.note, False
        return many


def _from_memory(
    followed: Sequence[FollowedEngine], work: Callable[[Sequence[ResidentEngine]], T]
) -> tuple[list[T], str]:
    """Return the only result of the work over files in memory; where SQL has to answer none, and why."""
    indexes = []
    reasons = []
    for one in followed:  # all of them, which are then read at the same time
        index, reason = (None, _RESTING) if one.residence is None else one.residence.index(one.database)
        if index is None:
            reasons.append(reason)
        else:
            indexes.append(index)
    if reasons:
        return [], reasons[0]

    def changed() -> bool:
        return any(one.database.state() != index.state for one, index in zip(followed, indexes, strict=True))

    try:
        with ExitStack() as stack:
            for one in followed:
                stack.enter_context(one.database.working())
            found = work([ResidentEngine(one, index) for one, index in zip(followed, indexes, strict=True)])
    except MemoryError:
        return [], "there is not enough memory"
    except Exception:
        if not changed():
            raise
        return [], _RESTING
    return ([], _RESTING) if changed() else ([found], "")
