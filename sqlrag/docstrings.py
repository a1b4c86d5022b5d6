"""What a docstring says of a function and of its arguments, for those who describe functions to other programs."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_SECTION = re.compile(r"^(\w+)\n-{3,}\n", re.MULTILINE)
_ARGUMENT = re.compile(r"^(\w[\w, ]*?)(?: : .*)?\n((?:(?: .*)?\n?)+)", re.MULTILINE)
_ROLE = re.compile(r":\w+:`~?([^`]*)`")


def lead(function: Callable[..., Any]) -> str:
    """Return what stands before the sections."""
    return _SECTION.split(_doc(function))[0].rstrip()


def section(function: Callable[..., Any], name: str) -> str:
    """Return a section such as "Returns", "" where there is none."""
    _, *parts = _SECTION.split(_doc(function))
    return dict(zip(parts[::2], parts[1::2], strict=True)).get(name, "")


def arguments(function: Callable[..., Any]) -> dict[str, tuple[list[str], str]]:
    """Return by each argument what the section Parameters says, on one line, and of which arguments it says it."""
    told: dict[str, tuple[list[str], str]] = {}
    for given, text in _ARGUMENT.findall(section(function, "Parameters")):
        names = given.split(", ")
        told |= dict.fromkeys(names, (names, " ".join(text.split())))
    return told


def without_roles(text: str) -> str:
    """Return text in which names stand in backticks alone, without the roles of Sphinx."""
    return _ROLE.sub(r"`\1`", text)


def _doc(function: Callable[..., Any]) -> str:
    return inspect.getdoc(function) or ""
