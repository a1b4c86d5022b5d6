"""Surfaces in other programs: LangChain, llama-index, REST, MCP. Each imports its framework itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlrag.arguments import guessed, nearest
from sqlrag.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_SECTION = re.compile(r"^(\w+)\n-{3,}\n", re.MULTILINE)

_ARGUMENT = re.compile(r"^(\w[\w, ]*?)(?: : .*)?\n((?:(?: .*)?\n?)+)", re.MULTILINE)

_ROLE = re.compile(r":\w+:`~?([^`]*)`")


def lead(function: Callable[..., Any]) -> str:
    """Return the docstring up to its sections."""
    return _SECTION.split(_doc(function))[0].rstrip()


def section(function: Callable[..., Any], name: str) -> str:
    """Return a section such as "Returns", "" where there is none."""
    _, *parts = _SECTION.split(_doc(function))
    return dict(zip(parts[::2], parts[1::2], strict=True)).get(name, "")


def arguments(function: Callable[..., Any]) -> dict[str, tuple[list[str], str]]:
    """Return for each argument its text in the section Parameters, on one line, and the names that share the text."""
    described: dict[str, tuple[list[str], str]] = {}
    for given, text in _ARGUMENT.findall(section(function, "Parameters")):
        names = given.split(", ")
        described |= dict.fromkeys(names, (names, " ".join(text.split())))
    return described


def without_roles(text: str) -> str:
    """Return text without the roles of Sphinx, with names in backticks."""
    return _ROLE.sub(r"`\1`", text)


def _doc(function: Callable[..., Any]) -> str:
    return inspect.getdoc(function) or ""


def check_names(what: str, given: Iterable[str], known: Iterable[str], other_names: dict[str, str]) -> None:
    """Raise InputError for names that ``what`` does not take; ``other_names`` maps some of them to their names here."""
    unknown = sorted(set(given) - set(known))
    if unknown:
        remedy = "".join(f" For {name} use {other_names[name]}." for name in unknown if name in other_names)
        raise InputError(
            f"{what} takes no {', '.join(unknown)}; it takes {', '.join(sorted(known)) or 'nothing else'}.{remedy}"
        )


def only_fields(cls: type[Any], given: Any, of_search: Iterable[str] = ()) -> Any:
    """Return what a pydantic model is made of; unlike pydantic, refuse what is no field. For a validator before all.

    ``of_search`` are names that its ``search_kwargs`` take.
    """
    if isinstance(given, Mapping):
        fields = {one for name, field in cls.model_fields.items() for one in (name, field.alias) if one}
        others = {name: nearest(name, fields) for name in given}
        others |= {name: f"search_kwargs={{{name!r}: …}}" for name in of_search}
        others |= {name: guessed(name, fields) or others[name] for name in given}
        check_names(cls.__name__, given, {"class_name", *fields}, {name: one for name, one in others.items() if one})
    return given
