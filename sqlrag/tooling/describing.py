"""What a docstring says of a function and of its arguments, as plain text for the description of a tool."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

from sqlrag.options import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic import ValidationError

_SECTION = re.compile(r"^(\w+)\n-+\n", re.MULTILINE)
_ARGUMENT = re.compile(r"^(\w[\w, ]*)\n((?:(?: .*)?\n?)+)", re.MULTILINE)


def description(function: Callable[..., Any]) -> str:
    """Return what a docstring says before its sections, and of what is returned."""
    head, *_ = _SECTION.split(_doc(function))
    returned = _sections(function).get("Returns", "").partition("\n")[2]  # below the name of the type
    return "\n".join(filter(None, (*map(_plain, head.split("\n\n")), _plain(returned))))


def said_of(function: Callable[..., Any], argument: str) -> str:
    """Return what the section Parameters says of an argument; where it says it of several at once, with their names.

    Examples
    --------
    >>> from sqlrag import fuse
    >>> said_of(fuse, "method")[:56]
    '"rrf": Σ weight / (rrf_k + rank), rank from 1. "weighted'
    """
    parameters = _sections(function).get("Parameters", "")
    for names, text in _ARGUMENT.findall(parameters):
        if argument in names.split(", "):
            told = _plain(text)
            return f"{names}: {told}" if "," in names else told
    raise LookupError(f"{function.__name__} says nothing of {argument}.")


def refusal(tool: str, error: ValidationError, properties: Mapping[str, Any]) -> str:
    """Return in words what is wrong with a call: which arguments, what they must be, and what was given.

    ``properties`` are those of the tool's input schema.
    """
    lines = []
    for one in error.errors(include_url=False):
        name = ".".join(map(str, one["loc"]))
        if one["type"] == "missing":
            lines.append(f"{name} is missing")
            continue
        spec = properties.get(str(one["loc"][0]), {})
        ranges = [part for part in (spec, *spec.get("anyOf", ())) if {"minimum", "maximum"} <= part.keys()]
        must = re.sub(r"^\w+ should", "must", one["msg"])
        if ranges and one["type"] in ("greater_than_equal", "less_than_equal"):
            must = f"must be from {ranges[0]['minimum']} to {ranges[0]['maximum']}"
        lines.append(f"{name} {must}, not {shown(one['input'])}")
    return f"{tool} cannot be called so: {'; '.join(lines)}."


def _sections(function: Callable[..., Any]) -> dict[str, str]:
    _, *parts = _SECTION.split(_doc(function))
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _doc(function: Callable[..., Any]) -> str:
    return inspect.getdoc(function) or ""


def _plain(text: str) -> str:
    """Return text on one line, without the marks of reStructuredText."""
    return re.sub(r":\w+:`~?(?:sqlrag\.)?([^`]+)`|`{1,2}([^`]+)`{1,2}", r"\1\2", " ".join(text.split()))
