"""The libraries of data frames, which only the extra ``notebook`` brings."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

from sqlrag.errors import MissingExtraError


def frames(library: Literal["pandas", "polars"], method: str) -> Any:
    """Return pandas or polars for a method that makes a frame, or raise MissingExtraError where it is not installed."""
    try:
        return import_module(library)
    except ImportError as error:
        raise MissingExtraError(method, "notebook") from error
