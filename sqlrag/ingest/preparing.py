"""``prepare_embeddings``: the pipeline, and llama-index over the file that it makes."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, ParamSpec

from sqlrag.ingest.pipeline import prepare_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlrag.adapters.llama_index import SqlragIndex
    from sqlrag.ingest.report import Prepared

P = ParamSpec("P")

_RETURNS = """SqlragIndex
    A ``VectorStoreIndex`` of llama-index over the file, with ``.path`` and ``.report``. Importing llama-index for it
    takes a second, once in a process."""


def _as_index(function: Callable[P, Prepared]) -> Callable[P, SqlragIndex]:
    """Return a function of the name ``prepare_embeddings`` that gives an index over the file that was made."""

    @functools.wraps(function)
    def prepare(*args: P.args, **kwargs: P.kwargs) -> SqlragIndex:
        prepared = function(*args, **kwargs)
        from sqlrag.adapters.llama_index import SqlragIndex

        return SqlragIndex.from_prepared(prepared)

    prepare.__name__ = prepare.__qualname__ = "prepare_embeddings"
    prepare.__module__ = __name__
    prepare.__doc__ = (inspect.getdoc(function) or "").replace("Prepared\n    ``.path`` and ``.report``.", _RETURNS)
    signature = inspect.signature(function)
    prepare.__signature__ = signature.replace(return_annotation="SqlragIndex")  # type: ignore[attr-defined]
    return prepare


prepare_embeddings = _as_index(prepare_file)
