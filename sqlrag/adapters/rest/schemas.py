"""Models of requests and responses, derived from signatures of functions and fields of dataclasses."""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, create_model

from sqlrag import adapters
from sqlrag.arguments import Range
from sqlrag.ranking.plan import ALIASES, OPTIONS, option_of
from sqlrag.ranking.results import MOST_EXACT
from sqlrag.types import RetrievePlan

if TYPE_CHECKING:
    from sqlrag.adapters.rest.config import ServerOptions

MOST_RESULTS = 1000

# Integers among the search options that count no results.
_LENGTHS = ("context_chars",)

# Limited like the others.
_COUNTS = ("k", "candidate_pool", "depth", "top_n")

_QUESTIONS = ("query_text", "query", "question")

_COUNTS_OF_TEXT = ("sentences", "window", "neighbours")

# Names in annotations, as types of JSON.
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

# Fields of a plan whose search option has another name.
_PLAN_OPTIONS = {"k": "top_k", "candidate_pool": "vector_top_k"}


class Plain(BaseModel):
    """The base of every model: no other fields, and no conversion between types."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def request_model(
    function: Callable[..., Any], *, without: typing.Collection[str], instead: Mapping[str, Any], options: ServerOptions
) -> type[BaseModel]:
    """Return the model of a call: the parameters of a function except ``without``, some with the types ``instead``.

    Search options have the type, range and sentence of the table; other parameters have the type of their annotation
    and the description of their docstring.
    """
    parameters = {name: p for name, p in inspect.signature(function).parameters.items() if name not in without}
    searched = {name: option for name in parameters if (option := option_of(function, name))}
    texts = adapters.arguments(function)
    hints = _hints(function, [name for name in parameters if name not in {*instead, *searched}])
    fields: dict[str, Any] = {}
    for name, parameter in parameters.items():
        option = searched.get(name)
        kind: Any = type(parameter.default)
        required = parameter.default is inspect.Parameter.empty
        default = ... if required else to_plain(parameter.default)
        if hasattr(kind, "__dataclass_fields__"):
            default = model_of(kind)(**to_plain(parameter.default))
        if option is not None:
            hint, span, text = option.kind, option.range, option.sentence
            hint = hint | None if parameter.default is None else hint
        else:
            hint, span = _type_and_range(instead.get(name, hints.get(name)))
            text = texts.get(name, ([], ""))[1]
        limits = _limits(name, hint, span)
        if name in _QUESTIONS:
            limits["max_length"] = options.max_question_chars
        description = adapters.without_roles(text) or None
        fields[name] = (
            limited(_bare(hint, span), options.max_items),
            Field(default, description=description, **limits),
        )
    name = "".join(part.title() for part in function.__name__.split("_")) + "Request"
    return create_model(name, __base__=Plain, __doc__=None, **fields)


def returned_by(function: Callable[..., Any]) -> Any:
    """Return the type of what a function returns."""
    return _hints(function, ["return"])["return"]


def json_type(hint: Any) -> Any:
    """Return the type that pydantic checks for an annotation: dataclasses and named tuples become models."""
    if hint is int:
        return Annotated[int, Field(ge=-MOST_EXACT, le=MOST_EXACT)]
    if hint is Path:
        return str
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or hasattr(hint, "_fields")):
        return model_of(hint)
    args = get_args(hint)
    origin: Any = get_origin(hint)
    if origin is Literal or not args:
        return hint
    if origin in (Union, types.UnionType):
        return Union[tuple(json_type(arg) for arg in args)]  # noqa: UP007 - built at run time
    if origin is tuple and args[-1] is not Ellipsis:
        # JSON has only lists.
        return Annotated[_list_of(json_type(args[0])), Field(min_length=len(args), max_length=len(args))]
    if origin is tuple:
        return _list_of(json_type(args[0]))
    if origin in (list, Sequence):
        return _list_of(json_type(args[0]))
    if origin is Mapping:
        return dict[args]  # type: ignore[misc,valid-type]
    # Other types, such as functions, are not JSON and stay as they are.
    return origin[tuple(json_type(arg) for arg in args)] if origin is dict else hint


@cache
def model_of(cls: type) -> type[BaseModel]:
    """Return the model of a dataclass or a named tuple, with its fields and defaults."""
    if dataclasses.is_dataclass(cls):
        defaults = {field.name: _default_of(field) for field in dataclasses.fields(cls)}
    else:
        given = getattr(cls, "_field_defaults", {})
        defaults = {name: {"default": given.get(name, ...)} for name in cls._fields}  # type: ignore[attr-defined]
    fields: dict[str, Any] = {}
    for name, marked in _hints(cls, list(defaults)).items():
        hint, span = _type_and_range(marked)
        if cls is RetrievePlan:
            option = OPTIONS.get(_PLAN_OPTIONS.get(name, name))
            span = option.range if option else None
        fields[name] = (_bare(hint, span), Field(**defaults[name], **_limits(name, hint, span)))
    model = create_model(cls.__name__, __base__=Plain, __doc__=inspect.getdoc(cls), **fields)
    model.__made_from__ = cls  # type: ignore[attr-defined]
    return model


def to_python(value: Any) -> Any:
    """Return a validated value as the functions take it: models become dataclasses, with their tuples."""
    if isinstance(value, BaseModel):
        cls = value.__made_from__  # type: ignore[attr-defined]
        fields = {name: to_python(getattr(value, name)) for name in type(value).model_fields}
        hints = _known_hints(cls)
        return cls(**{name: _tupled(field, hints[name]) for name, field in fields.items()})
    if isinstance(value, list):
        return [to_python(one) for one in value]
    return value


def to_plain(value: Any) -> Any:
    """Return a value as JSON types: dicts, lists, strings, numbers."""
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
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    return value.name if isinstance(value, Path) else value  # the folder on the server is not for clients


@cache
def _known_hints(cls: type) -> dict[str, Any]:
    return _hints(cls, list(model_of(cls).model_fields))


def _hints(of: Any, names: list[str]) -> dict[str, Any]:
    """Return the types of parameters or fields, also of names that a module imports for type checkers only."""
    import sqlrag

    annotations: dict[str, Any] = {}
    for cls in reversed(getattr(of, "__mro__", (of,))):
        annotations.update(getattr(cls, "__annotations__", {}))
    known = {**_NAMES, **{name: getattr(sqlrag, name) for name in sqlrag.__all__ if name[0].isupper()}}
    known |= {name: getattr(sqlrag.types, name) for name in ("Around", "Fusion", "ChunkUnit", "TextKind", "Progress")}
    known["Annotated"] = Annotated
    stub = type("Annotated", (), {"__annotations__": {name: annotations[name] for name in names}})
    while True:
        try:
            return typing.get_type_hints(stub, vars(sys.modules[of.__module__]), known, include_extras=True)
        except NameError as error:
            known[str(error.name)] = Any


def _type_and_range(hint: Any) -> tuple[Any, Range | None]:
    """Return a type and the range in its annotation."""
    if get_origin(hint) is not Annotated:
        return hint, None
    kind, *marks = get_args(hint)
    return kind, next((mark for mark in marks if isinstance(mark, Range)), None)


def _limits(name: str, hint: Any, span: Range | None) -> dict[str, Any]:
    """Return the limits of a number: those of its range, and those of a server."""
    numeric = {int, float} & {hint, *get_args(hint)}
    limits: dict[str, float] = {"ge": -MOST_EXACT, "le": MOST_EXACT} if hint is int else {}
    if span is not None and numeric and get_origin(hint) is not tuple:
        limits.update(span.limits())
    counts = name in _COUNTS or (int in numeric and ALIASES.get(name, name) in OPTIONS and name not in _LENGTHS)
    most = MOST_RESULTS if counts else 100 if name in _COUNTS_OF_TEXT else None
    if most is not None:
        limits["le"] = min(most, limits.get("le", most))
    whole = int in numeric and float not in numeric
    return {kind: int(limit) if whole else limit for kind, limit in limits.items()}


def limited(kind: Any, most: int) -> Any:
    """Return a type whose lists have at most so many entries."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated and get_origin(args[0]) is list:
        return Annotated[_list_of(limited(get_args(args[0])[0], most)), Field(max_length=most)]
    if origin in (Union, types.UnionType):
        return Union[tuple(limited(arg, most) for arg in args)]  # noqa: UP007 - built at run time
    return kind


def _list_of(kind: Any) -> Any:
    """Return the type of a list that reports only its first wrong entry: there may be many thousands."""
    return Annotated[list[kind], Field(fail_fast=True)]


def _bare(hint: Any, span: Range | None) -> Any:
    """Return the type of a field without its limits, which are set separately; a tuple has them on its entries."""
    if span is not None and get_origin(hint) is tuple:
        hint = tuple[tuple(Annotated[kind, Field(**span.limits())] for kind in get_args(hint))]  # type: ignore[misc]
    return int if hint is int else json_type(hint)


def _default_of(field: Any) -> dict[str, Any]:
    if field.default_factory is not dataclasses.MISSING:
        return {"default_factory": field.default_factory}
    return {"default": ... if field.default is dataclasses.MISSING else to_plain(field.default)}


def _tupled(value: Any, hint: Any) -> Any:
    """Return a list as a tuple if the field is a tuple."""
    if not isinstance(value, list):
        return value
    return tuple(value) if tuple in {get_origin(one) for one in (hint, *get_args(hint))} else value
