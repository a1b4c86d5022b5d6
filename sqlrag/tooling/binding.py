"""A function with the file given, and with the signature that a client sees: some arguments, described, with limits."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from sqlrag.tooling.describing import said_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping


def bound(
    run: Callable[..., Any],
    db_path: str | os.PathLike[str],
    described: Callable[..., Any],
    arguments: Mapping[str, Any],
    shape: Any,
) -> Callable[..., Any]:
    """Return ``run`` with the file given.

    ``arguments`` are those that a client may pass, with their types; the defaults and what is said of them are those of
    ``described``. ``shape`` is the type of what it returns.
    """
    defaults = inspect.signature(described).parameters
    call = functools.partial(run, db_path=db_path)

    def tool(**given: Any) -> Any:
        return call(**given)

    tool.__name__ = run.__name__
    tool.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults[name].default,
                annotation=Annotated[kind, Field(description=said_of(described, name))],
            )
            for name, kind in arguments.items()
        ],
        return_annotation=shape,
    )
    return tool
