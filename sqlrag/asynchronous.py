"""Coroutines of the functions that take long: each runs in a thread, so that it does not block the event loop.

``await ahybrid_query(...)`` has the arguments, the result and the exceptions of :func:`sqlrag.hybrid_query`. Where the
task is cancelled, the work of its thread is, too: SQL ends at once, Python at its next step. Functions that write end
before the cancellation goes on, and leave no file that is not complete; :func:`aanswer` also closes the connection to
the chat model.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

from sqlrag.answers.answer import answer
from sqlrag.answers.chat_models import Connections
from sqlrag.blocks.fuse import retrieve
from sqlrag.blocks.rerank import rerank
from sqlrag.cancellation import in_thread
from sqlrag.ingest.reembed import reembed
from sqlrag.ingest.update import update_embeddings
from sqlrag.prepare import prepare_embeddings
from sqlrag.query import get_embedding_metadata, get_source_documents, hybrid_query, lexical_query, vector_query

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator

    from typing_extensions import Unpack

    from sqlrag.answers.answer import AnswerSettings
    from sqlrag.answers.chat_models import ChatModel
    from sqlrag.answers.outcome import Answer, AnswerEvent
    from sqlrag.search.open import AnyStores

P = ParamSpec("P")

T = TypeVar("T")


def _in_thread(function: Callable[P, T], *, writes: bool = False) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return a coroutine function of the name a…, with the signature of the function."""

    @functools.wraps(function)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return await in_thread(functools.partial(function, *args, **kwargs), writes=writes)

    then = (
        "Where its task is\ncancelled, the work ends before the cancellation goes on, after the step that is under way "
        "(a batch of texts that is\nembedded, at most). No new file is left, and no other is replaced."
    )
    _describe(run, function, f"it runs in a thread. {then}" if writes else "it runs in a thread.")
    return run


def _describe(run: Any, function: Any, how: str) -> None:
    """Set the name of a coroutine function, and its documentation: that of the function, and how it differs."""
    run.__name__ = run.__qualname__ = f"a{function.__name__}"
    run.__module__ = __name__
    first, _, rest = (inspect.getdoc(function) or "").partition("\n")
    # The examples call the function itself, so they are left out.
    rest = rest.partition("\nExamples\n")[0]
    run.__doc__ = f"{first}\n\nThe coroutine of :func:`sqlrag.{function.__name__}`; {how}\n{rest}"


ahybrid_query = _in_thread(hybrid_query)

avector_query = _in_thread(vector_query)

alexical_query = _in_thread(lexical_query)

aretrieve = _in_thread(retrieve)

arerank = _in_thread(rerank)

aget_source_documents = _in_thread(get_source_documents)

aget_embedding_metadata = _in_thread(get_embedding_metadata)

aprepare_embeddings = _in_thread(prepare_embeddings, writes=True)

areembed = _in_thread(reembed, writes=True)

aupdate_embeddings = _in_thread(update_embeddings, writes=True)


class _Worker:
    """A thread of one answer, with its context and its connections; calls run one after another."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlrag-answer")
        self._context = copy_context()
        self._connections = self._context.run(Connections.begin)

    async def do(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        work = functools.partial(function, *args, **kwargs)
        return await asyncio.wrap_future(self._thread.submit(self._context.run, work))

    def close(self, *last: Callable[[], object]) -> None:
        """Close its connections, run the ``last`` functions and end the thread when its work is done."""
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
        worker.close()
        raise
    if hasattr(found, "__next__"):
        return _events(worker, found)
    worker.close()
    return found


async def _events(worker: _Worker, events: Iterator[AnswerEvent]) -> AsyncGenerator[AnswerEvent, None]:
    try:
        while (event := await worker.do(next, events, None)) is not None:
            yield event
    finally:
        worker.close(events.close)  # type: ignore[attr-defined]


_describe(
    aanswer,
    answer,
    "it runs in a thread of its own. With ``stream``, ``async for event in\nawait aanswer(…, stream=True)`` yields the "
    "events as they come. If the task is cancelled, or the iterator closed (``aclose()``), the\nconnection to the "
    "model is closed, and the thread ends. A request that waits for a retry ends after that pause, one\nthat "
    "is still connecting when it is connected or after ``timeout``, a model of your own after its current step.",
)
