"""``POST /answer``: a chat model's answer, whole or as server-sent events."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from starlette.responses import Response, StreamingResponse

import sqlrag
from sqlrag.serving import table
from sqlrag.serving.calling import PROBLEMS, described, replaced_types, summary, typed
from sqlrag.serving.problems import as_json
from sqlrag.serving.refusing import Refused, within
from sqlrag.serving.schemas import model_of, request_model, to_python
from sqlrag.serving.service import while_connected

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from sqlrag import AnswerEvent
    from sqlrag.serving.service import Service

_EXAMPLE = {"question": "How do I filter by tag?", "stream": False, "plan": {"k": 4}}
_STREAM = {
    "text/event-stream": {
        "schema": {
            "type": "string",
            "description": "With `stream`: an event for each step; `event` is its type, `data` its JSON.",
        }
    }
}


def add_route(app: FastAPI, service: Service) -> None:
    """Add ``/answer``."""

    async def run(request: Request, body: Any) -> Response:
        options = service.options
        if options.chat_model is None:
            raise Refused(501, "No chat model is set: start the server with --chat-model NAME.")
        given = {name: to_python(getattr(body, name)) for name in type(body).model_fields}
        stream = given.pop("stream")
        asked = {**given, "chat_model": options.chat_model, "base_url": options.chat_base_url}
        events = _Events(await while_connected(request, service.searched(asked)), service)
        if stream:
            return _Stream(events)
        return await while_connected(request, _whole(events, options.max_answer_bytes))

    model = request_model(
        sqlrag.answer, without=table.KEPT, instead=replaced_types("answer", service.options), options=service.options
    )
    app.add_api_route(
        "/answer",
        typed(run, model, _EXAMPLE),
        methods=["POST"],
        operation_id="answer",
        summary=summary("answer"),
        description=described("answer"),
        responses={200: {"model": model_of(sqlrag.Answer), "content": _STREAM}, **PROBLEMS},
        response_model=None,
    )


class _Events:
    """The events of one answer, for so long as answers may take; whoever leaves them ends the call of the model."""

    def __init__(self, events: AsyncGenerator[AnswerEvent, None], service: Service) -> None:
        self._events = events
        self._service = service
        self._seconds = service.options.answer_seconds
        self._until = time.monotonic() + self._seconds

    async def __aiter__(self) -> AsyncIterator[AnswerEvent]:
        while True:
            try:
                event = await asyncio.wait_for(anext(self._events, None), self._until - time.monotonic())
            except (asyncio.TimeoutError, TimeoutError) as error:
                raise Refused(504, f"The answer took longer than {self._seconds:g} seconds.") from error
            if event is None:
                return
            yield event

    async def close(self) -> None:
        self._service.answers -= 1
        await self._events.aclose()


async def _whole(events: _Events, most_bytes: int) -> Response:
    try:
        async for event in events:
            if event.error is not None:
                raise Refused(502, event.error)
            if event.answer is not None:
                content = as_json(event.answer.as_dict())
                within(len(content), most_bytes)
                return Response(content, media_type="application/json")
        raise Refused(502, "The answer has no end.")
    finally:
        await events.close()


class _Stream(StreamingResponse):
    """Server-sent events."""

    def __init__(self, events: _Events) -> None:
        self._events = events
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(self._lines(), headers=headers, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._events.close()

    async def _lines(self) -> AsyncIterator[bytes]:
        try:
            async for event in self._events:
                yield _event(event.type, event.as_dict())
        except Refused as refused:
            yield _event("error", {"type": "error", "error": refused.detail})


def _event(kind: str, data: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + as_json(data) + b"\n\n"
