"""What holds for a whole process: set by environment variables, or given to a Store."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sqlrag.errors import InputError
from sqlrag.options import number, shown

QUERY_LOG = "SQLRAG_QUERY_LOG"
WAIT_SECONDS = "SQLRAG_WAIT_SECONDS"


@dataclass(frozen=True)
class Settings:
    """Settings that are no argument of a single call.

    Parameters
    ----------
    query_log
        A DuckDB file, apart from the store, to which every query appends a row: its text, counts and times. None
        (default): nothing is logged. Environment: ``SQLRAG_QUERY_LOG``.
    wait_seconds
        How long an opening waits for another process that holds the file, in seconds, 0 or more.
        Environment: ``SQLRAG_WAIT_SECONDS``.

    Raises
    ------
    InputError
        ``wait_seconds`` is no number of 0 or more, or ``query_log`` no path.

    Examples
    --------
    >>> Settings(wait_seconds=10).wait_seconds
    10
    """

    query_log: str | os.PathLike[str] | None = None
    wait_seconds: float = 2.0

    def __post_init__(self) -> None:
        if self.query_log is not None and not isinstance(self.query_log, (str, os.PathLike)):
            raise InputError(f"query_log must be a path, such as 'queries.duckdb', not {shown(self.query_log)}.")
        _check_wait(self.wait_seconds)

    @classmethod
    def from_environment(cls) -> Settings:
        """Return what the environment variables say; a variable that is missing or blank leaves the default.

        Raises
        ------
        InputError
            ``SQLRAG_WAIT_SECONDS`` is no number of 0 or more.
        """
        log, wait = (os.environ.get(name, "").strip() for name in (QUERY_LOG, WAIT_SECONDS))
        try:
            seconds = float(wait) if wait else cls.wait_seconds
        except ValueError as error:
            raise InputError(f"{WAIT_SECONDS} must be a number of seconds, not {wait!r}.") from error
        return cls(query_log=Path(log) if log else None, wait_seconds=seconds)


def checked_settings(settings: object) -> Settings:
    """Return the settings that were passed, those of the environment for None, or raise InputError."""
    if settings is None:
        return Settings.from_environment()
    if not isinstance(settings, Settings):
        raise InputError(f"settings must be a sqlrag.Settings, not {shown(settings)}.")
    return settings


def seconds_to_wait(given: float | None) -> float:
    """Return how long to wait for other processes: what a caller says, else what the environment does."""
    return Settings.from_environment().wait_seconds if given is None else _check_wait(given)


def _check_wait(seconds: object) -> float:
    return number("wait_seconds", seconds, 0, 86_400, "number of seconds")
