"""The functions that take long, for programs on an event loop: each runs in a thread, so that the loop goes on.

``await ahybrid_query(...)`` takes the arguments of :func:`sqlrag.hybrid_query`, returns what it returns and raises what
it raises. A task that is cancelled leaves its thread to finish the work.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from sqlrag.ingest.pipeline import prepare_embeddings
from sqlrag.ingest.reembedding import reembed
from sqlrag.ingest.updating import update_embeddings
from sqlrag.retrieval.querying import (
    get_embedding_metadata,
    get_source_documents,
    hybrid_query,
    lexical_query,
    vector_query,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

P = ParamSpec("P")
T = TypeVar("T")


def _in_thread(function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return a coroutine function of the name a…, with the signature of the function."""

    @functools.wraps(function)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(function, *args, **kwargs)

    run.__name__ = run.__qualname__ = f"a{function.__name__}"
    run.__module__ = __name__
    first, _, rest = (inspect.getdoc(function) or "").partition("\n")
    # The examples below are of the function itself.
    rest = rest.partition("\nExamples\n")[0]
    run.__doc__ = f"{first}\n\nThe coroutine of :func:`sqlrag.{function.__name__}`; it runs in a thread.\n{rest}"
    return run


ahybrid_query = _in_thread(hybrid_query)
avector_query = _in_thread(vector_query)
alexical_query = _in_thread(lexical_query)
aget_source_documents = _in_thread(get_source_documents)
aget_embedding_metadata = _in_thread(get_embedding_metadata)
aprepare_embeddings = _in_thread(prepare_embeddings)
areembed = _in_thread(reembed)
aupdate_embeddings = _in_thread(update_embeddings)
