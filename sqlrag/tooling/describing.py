"""What a docstring says of a function and of its arguments, as plain text for the description of a tool."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sqlrag import docstrings
from sqlrag.options import shortened, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic import ValidationError

_MOST_TOLD = 10


def description(function: Callable[..., Any]) -> str:
    """Return what a docstring says before its sections, and of what is returned."""
    returned = docstrings.section(function, "Returns").partition("\n")[2]  # below the name of the type
    return "\n".join(filter(None, (*map(_plain, docstrings.lead(function).split("\n\n")), _plain(returned))))


def said_of(function: Callable[..., Any], argument: str) -> str:
    """Return what the section Parameters says of an argument; where it says it of several at once, with their names.

    Examples
    --------
    >>> from sqlrag import fuse
    >>> said_of(fuse, "method")[:56]
    '"rrf": Σ weight / (rrf_k + rank), rank from 1. "weighted'
    """
    told = docstrings.arguments(function)
    if argument not in told:
        raise LookupError(f"{function.__name__} says nothing of {argument}.")
    names, text = told[argument]
    return f"{', '.join(names)}: {_plain(text)}" if len(names) > 1 else _plain(text)


def refusal(tool: str, error: ValidationError, properties: Mapping[str, Any]) -> str:
    """Return in words what is wrong with a call: which arguments, what they must be, and what was given.

    ``properties`` are those of the tool's input schema.
    """
    lines = []
    for one in error.errors(include_url=False)[:_MOST_TOLD]:
        name = shortened(".".join(map(str, one["loc"])))
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


def _plain(text: str) -> str:
    """Return text on one line, without the marks of reStructuredText."""
    return re.sub(r":\w+:`~?(?:sqlrag\.)?([^`]+)`|`{1,2}([^`]+)`{1,2}", r"\1\2", " ".join(text.split()))
