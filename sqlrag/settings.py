"""Settings of a whole process, from environment variables or passed to a Store."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sqlrag.arguments import flag, number, shown, whole
from sqlrag.errors import InputError

QUERY_LOG = "SQLRAG_QUERY_LOG"

WAIT_SECONDS = "SQLRAG_WAIT_SECONDS"

TRUST = "SQLRAG_TRUST"

RESIDENT_MB = "SQLRAG_RESIDENT_MB"

MAX_PAGES = "SQLRAG_MAX_PAGES"

MAX_CHARACTERS = "SQLRAG_MAX_CHARACTERS"

MAX_SECONDS = "SQLRAG_MAX_SECONDS"

_MOST_MB = 1_000_000


@dataclass(frozen=True)
class Settings:
    """Settings that are not arguments of a single call.

    Parameters
    ----------
    query_log
        A DuckDB file, apart from the store, to which every query appends a row: its text, counts and times. None
        (default): nothing is logged. Environment: ``SQLRAG_QUERY_LOG``.
    wait_seconds
        How long opening a file waits for another process that has it open, in seconds, 0 or more.
        Environment: ``SQLRAG_WAIT_SECONDS``.
    trust
        True opens files whose views or macros are not those of this release as well, and runs them. Environment:
        ``SQLRAG_TRUST``, 1 or 0.
    resident_mb
        How much memory a file may take that is searched in memory, in MB, a whole number from 0; 0: none ever is. See
        ``resident`` of :class:`sqlrag.Store`. Environment: ``SQLRAG_RESIDENT_MB``.

    Raises
    ------
    InputError
        ``wait_seconds`` is not a number of 0 or more, ``query_log`` not a path, ``trust`` not True or False, or
        ``resident_mb`` no whole number of 0 or more.

    Examples
    --------
    >>> Settings(wait_seconds=10).wait_seconds
    10
    """

    query_log: str | os.PathLike[str] | None = None
    wait_seconds: float = 2.0
    trust: bool = False
    resident_mb: int = 256

    def __post_init__(self) -> None:
        if self.query_log is not None and not isinstance(self.query_log, (str, os.PathLike)):
            raise InputError(f"query_log must be a path, such as 'queries.duckdb', not {shown(self.query_log)}.")
        _check_wait(self.wait_seconds)
        flag("trust", self.trust)
        whole("resident_mb", self.resident_mb, 0, _MOST_MB)

    @classmethod
    def from_environment(cls) -> Settings:
        """Return the settings of the environment variables; a variable that is missing or blank leaves the default.

        Raises
        ------
        InputError
            ``SQLRAG_WAIT_SECONDS`` is not a number of 0 or more, ``SQLRAG_TRUST`` neither 1 nor 0, or
            ``SQLRAG_RESIDENT_MB`` no whole number of 0 or more.
        """
        log, wait, trust, megabytes = (
            os.environ.get(name, "").strip() for name in (QUERY_LOG, WAIT_SECONDS, TRUST, RESIDENT_MB)
        )
        try:
            seconds = float(wait) if wait else cls.wait_seconds
        except ValueError as error:
            raise InputError(f"{WAIT_SECONDS} must be a number of seconds, not {wait!r}.") from error
        if trust not in {"", "0", "1"}:
            raise InputError(f"{TRUST} must be 1 or 0, not {trust!r}.")
        if megabytes and not megabytes.isdecimal():
            raise InputError(f"{RESIDENT_MB} must be a whole number of MB, not {megabytes!r}.")
        return cls(
            query_log=Path(log) if log else None,
            wait_seconds=seconds,
            trust=trust == "1",
            resident_mb=int(megabytes) if megabytes else cls.resident_mb,
        )


@dataclass(frozen=True)
class Limits:
    """What one document may cost that is unpacked while it is read, such as a PDF: a small file can hold much.

    No book meets the defaults. A document that does is a failure that names the limit.

    Parameters
    ----------
    pages
        How many pages it may have, 1 or more. Environment: ``SQLRAG_MAX_PAGES``.
    characters
        How many characters of text, 1 or more. Environment: ``SQLRAG_MAX_CHARACTERS``.
    seconds
        How long reading it may take, in seconds, more than 0. A PDF of less than 5 MB gets a part of them: a
        twentieth, and a fifth for each MB. Environment: ``SQLRAG_MAX_SECONDS``.
    """

    pages: int = 20_000
    characters: int = 50_000_000
    seconds: float = 600.0

    @classmethod
    def from_environment(cls) -> Limits:
        """Return the limits of the environment variables; a variable that is missing or blank leaves the default.

        Raises
        ------
        InputError
            A variable is not a number, or not greater than 0.
        """
        return cls(
            pages=int(_limit(MAX_PAGES, cls.pages)),
            characters=int(_limit(MAX_CHARACTERS, cls.characters)),
            seconds=_limit(MAX_SECONDS, cls.seconds),
        )


def _limit(name: str, default: float) -> float:
    written = os.environ.get(name, "").strip().replace("_", "")
    try:
        value = float(written) if written else default
    except ValueError:
        value = 0.0
    if not 0 < value < 1e12 or (name != MAX_SECONDS and value != int(value)):
        raise InputError(f"{name} must be a {'' if name == MAX_SECONDS else 'whole '}number above 0, not {written!r}.")
    return value


def checked_settings(settings: object) -> Settings:
    """Return the settings that were passed, those of the environment for None, or raise InputError."""
    if settings is None:
        return Settings.from_environment()
    if not isinstance(settings, Settings):
        raise InputError(f"settings must be a sqlrag.Settings, not {shown(settings)}.")
    return settings


def seconds_to_wait(given: float | None) -> float:
    """Return how long to wait for other processes: the caller's value, else that of the environment."""
    return Settings.from_environment().wait_seconds if given is None else _check_wait(given)


def trusts(given: bool | None) -> bool:
    """Return whether a file with other views or macros is opened: the caller's value, else that of the environment."""
    return Settings.from_environment().trust if given is None else flag("trust", given)


def _check_wait(seconds: object) -> float:
    return number("wait_seconds", seconds, 0, 86_400, "number of seconds")
