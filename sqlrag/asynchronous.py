"""The functions that take long, for programs on an event loop: each runs in a thread, so that the loop goes on.

``await ahybrid_query(...)`` takes the arguments of :func:`sqlrag.hybrid_query`, returns what it returns and raises what
it raises. A task that is cancelled leaves its thread to finish the work; that of :func:`aanswer` also ends the
connection to the chat model, so that it finishes at once.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

from sqlrag.answering.asking import answer
from sqlrag.answering.connections import Connections
from sqlrag.ingest.preparing import prepare_embeddings
from sqlrag.ingest.reembedding import reembed
from sqlrag.ingest.updating import update_embeddings
from sqlrag.retrieval.blocks import retrieve
from sqlrag.retrieval.querying import (
    get_embedding_metadata,
    get_source_documents,
    hybrid_query,
    lexical_query,
    vector_query,
)
from sqlrag.retrieval.reranking import rerank

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator

    from typing_extensions import Unpack

    from sqlrag.answering.asking import AnswerSettings
    from sqlrag.answering.chatting import ChatModel
    from sqlrag.answering.outcome import Answer, AnswerEvent
    from sqlrag.types import AnyStores

P = ParamSpec("P")
T = TypeVar("T")


def _in_thread(function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return a coroutine function of the name a…, with the signature of the function."""

    @functools.wraps(function)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(function, *args, **kwargs)

    _describe(run, function, "it runs in a thread.")
    return run


def _describe(run: Any, function: Any, how: str) -> None:
    """Give a coroutine function its name, and the documentation of the function with how it differs."""
    run.__name__ = run.__qualname__ = f"a{function.__name__}"
    run.__module__ = __name__
    first, _, rest = (inspect.getdoc(function) or "").partition("\n")
    # The examples below are of the function itself.
    rest = rest.partition("\nExamples\n")[0]
    run.__doc__ = f"{first}\n\nThe coroutine of :func:`sqlrag.{function.__name__}`; {how}\n{rest}"


ahybrid_query = _in_thread(hybrid_query)
avector_query = _in_thread(vector_query)
alexical_query = _in_thread(lexical_query)
aretrieve = _in_thread(retrieve)
arerank = _in_thread(rerank)
aget_source_documents = _in_thread(get_source_documents)
aget_embedding_metadata = _in_thread(get_embedding_metadata)
aprepare_embeddings = _in_thread(prepare_embeddings)
areembed = _in_thread(reembed)
aupdate_embeddings = _in_thread(update_embeddings)


class _Worker:
    """A thread of one answer, with its context and its connections. What it is given last, it does last."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlrag-answer")
        self._context = copy_context()
        self._connections = self._context.run(Connections.begin)

    async def do(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        work = functools.partial(function, *args, **kwargs)
        return await asyncio.wrap_future(self._thread.submit(self._context.run, work))

    def leave(self, *last: Callable[[], object]) -> None:
        """End its connections and, as soon as its work is done, the thread."""
        self._connections.end()
        for function in last:
            self._thread.submit(self._context.run, function)
        self._thread.shutdown(wait=False)


@overload
async def aanswer(
    question: str,
    db_path: AnyStores | None = None,
    *,
    chat_model: str | ChatModel,
    stream: Literal[False] = False,
    **settings: Unpack[AnswerSettings],
) -> Answer: ...
@overload
async def aanswer(
    question: str,
    db_path: AnyStores | None = None,
    *,
    chat_model: str | ChatModel,
    stream: Literal[True],
    **settings: Unpack[AnswerSettings],
) -> AsyncGenerator[AnswerEvent, None]: ...
@functools.wraps(answer)
async def aanswer(*args: Any, **kwargs: Any) -> Any:  # noqa: D103 - described below
    worker = _Worker()
    try:
        found: Any = await worker.do(answer, *args, **kwargs)
    except BaseException:
        worker.leave()
        raise
    if hasattr(found, "__next__"):
        return _events(worker, found)
    worker.leave()
    return found


async def _events(worker: _Worker, events: Iterator[AnswerEvent]) -> AsyncGenerator[AnswerEvent, None]:
    try:
        while (event := await worker.do(next, events, None)) is not None:
            yield event
    finally:
        worker.leave(events.close)  # type: ignore[attr-defined]


_describe(
    aanswer,
    answer,
    "it runs in a thread of its own. With ``stream``, ``async for event in\nawait aanswer(…, stream=True)`` gets the "
    "events as they come. Where the task is cancelled, or the iterator closed (``aclose()``), the\nconnection to the "
    "model is ended, and the thread with it. A request that waits to be sent again ends after that pause, one\nthat "
    "is still connecting when it is connected or after ``timeout``, a model of your own after the step that it is in.",
)
