"""Models of requests and responses, made from the signatures of functions and the fields of dataclasses."""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, create_model

from sqlrag import docstrings

if TYPE_CHECKING:
    from sqlrag.serving.options import ServerOptions

MOST_RESULTS = 1000
# Greater whole numbers are not the same in every program that reads JSON.
_LARGEST = 2**53 - 1
_COUNTS = ("top_k", "vector_top_k", "fts_top_k", "k", "candidate_pool", "feedback", "expansion", "depth", "top_n")
_QUESTIONS = ("query_text", "query", "question")
_COUNTS_OF_TEXT = ("sentences", "window", "neighbours")

# What the annotations of functions name, in the types that JSON has.
_NAMES: dict[str, Any] = {
    "Sequence": list,
    "Iterable": list,
    "Mapping": dict,
    "Callable": Callable,
    "datetime": dt.datetime,
    "Path": Path,
    "Any": Any,
    "ArrayLike": list[float] | list[list[float]],
    "Item": dict[str, Any],
}
_RANGES = (
    (re.compile(r"(-?\d+(?:\.\d+)?)\.\.(\d+(?:\.\d+)?)"), ("ge", "le")),
    (re.compile(r"(\d+) or more"), ("ge",)),
    (re.compile(r"above (\d+)"), ("gt",)),
)


class Plain(BaseModel):
    """What every model has in common: no field but its own, and no value of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def request_model(
    function: Callable[..., Any], *, without: typing.Collection[str], instead: Mapping[str, Any], options: ServerOptions
) -> type[BaseModel]:
    """Return the model of a call: the parameters of a function but some, with other types for others."""
    parameters = {name: p for name, p in inspect.signature(function).parameters.items() if name not in without}
    told = docstrings.arguments(function)
    hints = _hints(function, [name for name in parameters if name not in instead])
    fields: dict[str, Any] = {}
    for name, parameter in parameters.items():
        hint = instead.get(name, hints.get(name))
        names, said = told.get(name, ([], ""))
        text = docstrings.without_roles(said)
        required = parameter.default is inspect.Parameter.empty
        default = ... if required else to_plain(parameter.default)
        kind: Any = type(parameter.default)
        if hasattr(kind, "__dataclass_fields__"):
            default = model_of(kind)(**to_plain(parameter.default))
        limits = _limits(name, hint, text if len(names) == 1 else "")
        if name in _QUESTIONS:
            limits["max_length"] = options.max_question_chars
        fields[name] = (_counted(_bare(hint), options.max_items), Field(default, description=text or None, **limits))
    name = "".join(part.title() for part in function.__name__.split("_")) + "Request"
    return create_model(name, __base__=Plain, __doc__=None, **fields)


def json_type(hint: Any) -> Any:
    """Return the type that pydantic checks for an annotation: dataclasses and named tuples become models."""
    if hint is int:
        return Annotated[int, Field(ge=-_LARGEST, le=_LARGEST)]
    if hint is Path:
        return str
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or hasattr(hint, "_fields")):
        return model_of(hint)
    args = get_args(hint)
    origin: Any = get_origin(hint)
    if origin is Literal or not args:
        return hint
    if origin in (Union, types.UnionType):
        return Union[tuple(json_type(arg) for arg in args)]  # noqa: UP007 - it is not known before it runs
    if origin is tuple and args[-1] is not Ellipsis:
        # JSON has lists alone.
        return Annotated[_list_of(json_type(args[0])), Field(min_length=len(args), max_length=len(args))]
    if origin is tuple:
        return _list_of(json_type(args[0]))
    if origin is list:
        return _list_of(json_type(args[0]))
    # What else there is, such as a function, is no type of JSON.
    return origin[tuple(json_type(arg) for arg in args)] if origin is dict else hint


@cache
def model_of(cls: type) -> type[BaseModel]:
    """Return the model of a dataclass or a named tuple, with its fields and defaults."""
    if dataclasses.is_dataclass(cls):
        defaults = {field.name: _default_of(field) for field in dataclasses.fields(cls)}
    else:
        given = getattr(cls, "_field_defaults", {})
        defaults = {name: {"default": given.get(name, ...)} for name in cls._fields}  # type: ignore[attr-defined]
    hints = _hints(cls, list(defaults))
    fields: dict[str, Any] = {
        name: (_bare(hint), Field(**defaults[name], **_limits(name, hint, ""))) for name, hint in hints.items()
    }
    model = create_model(cls.__name__, __base__=Plain, __doc__=inspect.getdoc(cls), **fields)
    model.__made_from__ = cls  # type: ignore[attr-defined]
    return model


def to_python(value: Any) -> Any:
    """Return what a function takes for a checked value: dataclasses for models, with tuples as they have them."""
    if isinstance(value, BaseModel):
        cls = value.__made_from__  # type: ignore[attr-defined]
        fields = {name: to_python(getattr(value, name)) for name in type(value).model_fields}
        hints = _known_hints(cls)
        return cls(**{name: _tupled(field, hints[name]) for name, field in fields.items()})
    if isinstance(value, list):
        return [to_python(one) for one in value]
    return value


def to_plain(value: Any) -> Any:
    """Return a value as JSON has it: dicts, lists, texts, numbers."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return {name: to_plain(field) for name, field in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(key): to_plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_plain(one) for one in value]
    if isinstance(value, (dt.datetime, dt.date)):
        return value.isoformat()
    return value.name if isinstance(value, Path) else value  # where it lies on the server is nobody's business


@cache
def _known_hints(cls: type) -> dict[str, Any]:
    return _hints(cls, list(model_of(cls).model_fields))


def _hints(of: Any, names: list[str]) -> dict[str, Any]:
    """Return the types of parameters or fields, also where a module imports them for type checkers alone."""
    import sqlrag

    annotations: dict[str, Any] = {}
    for cls in reversed(getattr(of, "__mro__", (of,))):
        annotations.update(getattr(cls, "__annotations__", {}))
    known = {**_NAMES, **{name: getattr(sqlrag, name) for name in sqlrag.__all__ if name[0].isupper()}}
    known |= {name: getattr(sqlrag.types, name) for name in ("Fusion", "ChunkUnit", "TextKind", "Progress")}
    stub = type("Annotated", (), {"__annotations__": {name: annotations[name] for name in names}})
    while True:
        try:
            return typing.get_type_hints(stub, vars(sys.modules[of.__module__]), known)
        except NameError as error:  # noqa: PERF203 - a name that is there for type checkers alone, and not public
            known[str(error.name)] = Any


def _limits(name: str, hint: Any, text: str) -> dict[str, Any]:
    """Return the limits of a number that its documentation states, and those of a server."""
    numeric = {int, float} & {hint, *get_args(hint)}
    limits: dict[str, float] = {"ge": -_LARGEST, "le": _LARGEST} if hint is int else {}
    stated: set[str] = set()
    for pattern, kinds in _RANGES if numeric else ():
        found = pattern.search(text)
        if found and not stated & set(kinds):
            stated.update(kinds)
            limits.update(zip(kinds, map(float, found.groups()), strict=True))
    if name in _COUNTS:
        limits["le"] = MOST_RESULTS
    elif name in _COUNTS_OF_TEXT:
        limits["le"] = 100
    whole = int in numeric and float not in numeric
    return {kind: int(limit) if whole else limit for kind, limit in limits.items()}


def _counted(kind: Any, most: int) -> Any:
    """Return a type whose lists have at most so many entries."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated and get_origin(args[0]) is list:
        return Annotated[_list_of(_counted(get_args(args[0])[0], most)), Field(max_length=most)]
    if origin in (Union, types.UnionType):
        return Union[tuple(_counted(arg, most) for arg in args)]  # noqa: UP007 - it is not known before it runs
    return kind


def _list_of(kind: Any) -> Any:
    """Return the type of a list, of which the first wrong entry alone is told: there may be many thousands."""
    return Annotated[list[kind], Field(fail_fast=True)]


def _bare(hint: Any) -> Any:
    """Return the type of a field whose limits stand beside it."""
    return int if hint is int else json_type(hint)


def _default_of(field: Any) -> dict[str, Any]:
    if field.default_factory is not dataclasses.MISSING:
        return {"default_factory": field.default_factory}
    return {"default": ... if field.default is dataclasses.MISSING else to_plain(field.default)}


def _tupled(value: Any, hint: Any) -> Any:
    """Return a list as a tuple where the field has tuples."""
    if not isinstance(value, list):
        return value
    return tuple(value) if tuple in {get_origin(one) for one in (hint, *get_args(hint))} else value
