"""Checks of what callers pass: each returns the value as plain Python, or raises an InputError that names the option.

Scalars of numpy are taken for their Python twins; True is no number, 1 is no truth value.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from numbers import Integral, Real
from typing import Any

from sqlrag.errors import InputError

MOST = 2**31 - 1  # results, and so chunks in a file
_LONGEST = 200  # characters of a value in a message


def number(name: str, value: object, low: float, high: float, what: str = "number") -> float:
    """Return a number from ``low`` to ``high``; where ``high`` is infinite it must be one that a float can hold."""
    given: float = math.nan  # which the comparison refuses
    if isinstance(value, Real) and not isinstance(value, bool):
        with suppress(OverflowError):  # of a fraction
            given = int(value) if isinstance(value, Integral) else float(value)
    if not low <= given <= min(high, sys.float_info.max):
        span = f"from {low} to {high}" if high < math.inf else f"of {low} or more"
        raise InputError(f"{name} must be a {what} {span}, not {shown(value)}.")
    return given


def whole(name: str, value: object, low: int, high: int = MOST) -> int:
    """Return a whole number from ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not low <= int(value) <= high:
        raise InputError(f"{name} must be a whole number from {low} to {high}, not {shown(value)}.")
    return int(value)


def flag(name: str, value: object) -> bool:
    """Return a truth value."""
    scalar = str(getattr(value, "dtype", "")) == "bool" and getattr(value, "shape", None) == ()  # of numpy
    if not isinstance(value, bool) and not scalar:
        raise InputError(f"{name} must be True or False, not {shown(value)}.")
    return bool(value)


def choice(name: str, value: object, valid: Iterable[str]) -> str:
    """Return one of the valid names."""
    names = tuple(valid)
    if not isinstance(value, str) or value not in names:
        raise InputError(f"{name} must be one of {', '.join(map(repr, names))}, not {shown(value)}.")
    return value


def text(name: str, value: object) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise InputError(f"{name} must be a string, not {shown(value)}.")
    return value


def not_blank(name: str, value: object) -> str:
    """Return a string that is not blank."""
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{name} must be a text that is not blank, not {shown(value)}.")
    return value


def texts(**values: object) -> None:
    """Check that each is a string or None."""
    for name, value in values.items():
        if value is not None:
            text(name, value)


def path(name: str, value: object) -> str | os.PathLike[str]:
    """Return a path: a string or what has one, such as :class:`pathlib.Path`."""
    named = value if isinstance(value, (str, os.PathLike)) else None
    if named is None or not isinstance(os.fspath(named), str) or not os.fspath(named):
        raise InputError(f"{name} must be a path, such as 'kb.duckdb', not {shown(value)}.")
    return named


def items(name: str, values: object, example: str) -> list[Any]:
    """Return what a list, a tuple, an array or another iterable holds; a string and a mapping are none."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InputError(f"{name} must be a list, such as {example}, not {shown(values)}.")
    try:
        return list(values)
    except TypeError as error:  # an array without dimensions
        raise InputError(f"{name} must be a list, such as {example}, not {shown(values)}.") from error


def mapping(name: str, values: object) -> dict[str, Any]:
    """Return a copy of a mapping of names to values."""
    if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
        raise InputError(f"{name} must be a dict of names to values, not {shown(values)}.")
    return dict(values)


def weights(name: str, values: object, count: int) -> tuple[float, ...]:
    """Return ``count`` finite numbers of 0 or more, not all 0."""
    try:
        checked = tuple(number(name, value, 0, math.inf) for value in items(name, values, str([1] * count)))
    except InputError:
        checked = ()
    if len(checked) != count or not 0 < sum(map(float, checked)) < math.inf:
        wanted = f"{count} finite numbers of 0 or more, not all of them 0"
        raise InputError(f"{name} must be {wanted}, not {shown(values)}.")
    return checked


def shown(value: object) -> str:
    """Return a value as a message shows it: cut short, also where Python refuses to write an integer."""
    try:
        text = repr(value)
    except ValueError:
        return f"a {type(value).__name__} of very many digits"
    except RecursionError:
        return f"a {type(value).__name__} of very many levels"
    return shortened(text)


def shortened(text: str) -> str:
    """Return a text as a message has room for it."""
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
