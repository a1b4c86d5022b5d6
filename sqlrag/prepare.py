"""``prepare_embeddings``: builds a file and returns a llama-index index over it."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, ParamSpec

from sqlrag.arguments import refuse_calls
from sqlrag.ingest.build import prepare_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlrag.adapters.llama_index import SqlragIndex
    from sqlrag.ingest.run import Prepared

refuse_calls(__name__)

P = ParamSpec("P")

_RETURNS = """SqlragIndex
    A ``VectorStoreIndex`` of llama-index over the file, with ``.path`` and ``.report``. Importing llama-index for it
    takes a second, once in a process."""


def _as_index(function: Callable[P, Prepared]) -> Callable[P, SqlragIndex]:
    """Return the function as ``prepare_embeddings``, which returns an index over the file that was built."""
    inspect.unwrap(function).__qualname__ = "prepare_embeddings"  # which Python names where arguments are missing

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
