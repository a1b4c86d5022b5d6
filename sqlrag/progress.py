"""The progress of long work: a bar in a terminal, a widget in a notebook, elsewhere a line every half minute."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from sqlrag.arguments import choice

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from sqlrag.types import Progress

# Seconds between two lines where there is no terminal.
_EVERY = 30.0

# Where no terminal says how wide it is.
_WIDTH = 80

# Of standard error: there is none, as under pythonw; it is closed; or what it leads to is full or gone.
_NOT_WRITABLE = (AttributeError, OSError, ValueError)

# Whether work shows its progress that was not asked about it: a command shows it, a function is silent.
_shown: ContextVar[bool] = ContextVar("sqlrag_progress", default=False)


def bar_is_off(progress: Progress, *, verbose: bool = True) -> bool | None:
    """Return the parameter ``off`` of a :class:`Bar`; raise InputError where ``progress`` is no such option."""
    if choice("progress", progress, ("auto", "on", "off")) == "auto":
        return False if verbose else None
    return progress == "off"


@contextmanager
def shown(wanted: bool) -> Iterator[None]:
    """Show the progress of what runs in the block and has no option for it, or do not."""
    before = _shown.set(wanted)
    try:
        yield
    finally:
        _shown.reset(before)


class Bar:
    """How much of a work is done, for a ``with`` block.

    Documents are cut while others are embedded, so how many chunks there will be is not known before the last one is
    cut: :meth:`expect` adds what is known, and the rest is estimated from the share of ``documents`` that were read.
    Texts of one batch are embedded from the shortest to the longest, so the time left follows from ``work``, the
    characters, and not from the number of chunks.

    Parameters
    ----------
    title, unit
        What is done ("embedding") and what is counted, in the singular ("chunk").
    total
        How many there are, as far as it is known.
    documents
        How many documents they come from, where the total is not known yet.
    off
        True: nothing is shown. None: as :func:`shown` says.
    """

    def __init__(self, title: str, unit: str, total: int = 0, *, documents: int = 0, off: bool | None = None) -> None:
        self.title, self.unit = title, unit
        self.documents, self._read = documents, 0
        self._known, self._work_known = total, float(total)
        self._made, self._work_made = 0, 0.0
        self._now, self._work_now = 0, 0.0
        self._free, self._work_free = 0, 0.0
        self._is_last = False
        self._off = not _shown.get() if off is None else off
        self._bar: Any = None
        self._began = self._last = time.monotonic()

    def __enter__(self) -> Self:
        self._began = self._last = time.monotonic()
        if not self._off:
            self._bar = _terminal_bar(self.title, self.unit, self._known)
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def read(self, documents: int = 1) -> None:
        """Note that so many more of the documents were read."""
        self._read += documents
        self._show()

    def expect(self, count: int, work: float | None = None) -> None:
        """Note that there are so many more units; ``work`` is what they cost, in any unit of cost."""
        self._known += count
        self._work_known += count if work is None else work

    def under_way(self, count: int, work: float | None = None) -> None:
        """Note that so many more units of the present batch are done."""
        self._now += count
        self._work_now += count if work is None else work
        self._show()

    def known(self, count: int, work: float | None = None) -> None:
        """Note that so many of the units of the present batch took no time, so that the speed is that of the others."""
        self._free += count
        self._work_free += count if work is None else work

    def made(self, count: int, work: float | None = None) -> None:
        """Note that a batch of so many units is finished, whatever of it was under way."""
        self._now, self._work_now = 0, 0.0
        self._made += count
        self._work_made += count if work is None else work
        self._show()

    def goes_on(self, title: str) -> None:
        """Note that other work has begun, whose length is not known."""
        self.title, self.documents, self._is_last = title, 0, True
        if self._bar is not None:
            self._bar.set_description(title, refresh=False)
        self._show()

    @property
    def finished(self) -> int:
        """How many units are in batches that are finished."""
        return self._made

    @property
    def done(self) -> int:
        """How many units are done."""
        return min(self._made + self._now, self._known)

    @property
    def total(self) -> int:
        """How many there are, estimated as long as documents are to be read."""
        return max(round(self._known * self._scale), self._known)

    @property
    def seconds_left(self) -> float | None:
        """The time that the rest takes if it goes on as it went on average; None where that is not known."""
        done = min(self._work_made + self._work_now, self._work_known)
        work = done - self._work_free
        if work <= 0 or self._is_last:
            return None
        if self._made + self._now >= self._known and self._scale == 1:
            return 0.0  # what is embedded of a chunk may be shorter than the chunk
        return (time.monotonic() - self._began) * max(self._work_known * self._scale - done, 0.0) / work

    @property
    def _scale(self) -> float:
        return self.documents / self._read if 0 < self._read < self.documents else 1.0

    def _show(self) -> None:
        if self._off:
            return
        if self._bar is not None:
            self._bar.total, self._bar.n = self.total, self.done
            self._bar.set_postfix_str(", ".join(self._facts()), refresh=False)
            self._bar.update(0)
            return
        moment = time.monotonic()
        if moment - self._last >= _EVERY:
            self._last = moment
            with suppress(*_NOT_WRITABLE):
                sys.stderr.write(f"{self.line()}\n")
                sys.stderr.flush()

    def line(self) -> str:
        """Return how far the work is, in one line."""
        return ", ".join([f"{self.title}: {self.done:,} of {self.extent}", *self._facts()])

    @property
    def extent(self) -> str:
        """How many there are, in words."""
        about = "about " if self._scale > 1 else ""
        return f"{about}{self.total:,} {self.unit}s"

    def _facts(self) -> list[str]:
        facts, left = [], self.seconds_left
        if self._read < self.documents:
            facts.append(f"{self._read:,}/{self.documents:,} documents read")
        if left is not None:
            made = max(self.done - self._free, 0)
            facts.append(f"{made / max(time.monotonic() - self._began, 1e-9):,.1f} {self.unit}s/s")
            facts.append(f"{_duration(left)} left")
        return facts


def columns_of_bar() -> int | None:
    """Return how wide a bar of tqdm is to be, 0 in a notebook; None where there is neither that nor a terminal."""
    from tqdm.auto import tqdm

    if any(base.__name__ == "tqdm_notebook" for base in tqdm.__mro__):
        return 0
    try:
        if not sys.stderr.isatty():
            return None
    except _NOT_WRITABLE:
        return None
    with suppress(*_NOT_WRITABLE):
        # A terminal that says it has no columns would get no bar at all.
        return os.get_terminal_size(sys.stderr.fileno()).columns or _WIDTH
    return _WIDTH


def _terminal_bar(title: str, unit: str, total: int) -> Any:
    """Return a bar of tqdm for a terminal or a notebook; None where there is neither."""
    from tqdm.auto import tqdm

    columns = columns_of_bar()
    if columns is None:
        return None
    form = "{desc}: {percentage:3.0f} %|{bar}| {n_fmt}/{total_fmt} {unit}s{postfix}"
    return tqdm(
        desc=title,
        unit=unit,
        total=total,
        leave=False,
        disable=False,
        bar_format=form,
        smoothing=0,
        ncols=columns or None,
    )


def _duration(seconds: float) -> str:
    """Return a time as people say it: 42 s, 7 min, 2 h 5 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
