"""Routes of public functions: requests from their signatures, answers as JSON or as server-sent events."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hashlib
import inspect
import time
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic import BaseModel, create_model
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

import sqlrag
from sqlrag import adapters
from sqlrag.adapters.rest import table
from sqlrag.adapters.rest.config import ServerOptions
from sqlrag.adapters.rest.problems import SCHEMA
from sqlrag.adapters.rest.schemas import Plain, model_of, request_model, returned_by, to_plain, to_python
from sqlrag.adapters.rest.state import while_connected
from sqlrag.adapters.server import MEDIA_TYPE, Refused, as_json, problem, within
from sqlrag.cancellation import checkpoint
from sqlrag.ingest.chunk import iter_chunks
from sqlrag.network import without_folders
from sqlrag.ranking.results import exact, in_json
from sqlrag.telemetry import REQUEST_ID

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping

    from fastapi import FastAPI
    from starlette.types import Receive, Scope, Send

    from sqlrag import AnswerEvent, Store
    from sqlrag.adapters.rest.state import Service

# Attributes that are sent with a list, by its class.
_ATTRIBUTES = {
    sqlrag.Results: ("notices", "timings", "methods", "further", "request_id"),
    sqlrag.Candidates: ("notices", "timings", "dropped"),
}

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": what, "content": {MEDIA_TYPE: {"schema": SCHEMA}}}
    for status, what in {
        400: "The body cannot be read.",
        401: "The key is missing or wrong.",
        403: "The request comes from a page of another site.",
        404: "There is no such document or chunk.",
        409: "It does not match the file, or the file is served read-only.",
        413: "The body, or the answer, is too large.",
        422: "An argument is wrong.",
        501: "A required model is not on the server.",
        502: "A model, or its server, failed.",
        503: "The server or the file is busy, or cannot be used; see Retry-After.",
        504: "It took too long.",
    }.items()
}


# Of the routes that read documents: what was finished before a model failed stays, and the answer says what it was.
_WITH_REPORT = {"properties": {"report": {"$ref": "#/components/schemas/UpdateReport"}}}

UNFINISHED: dict[int | str, dict[str, Any]] = {
    502: {
        "description": "A model, or its server, failed. `report`, if there is one: what was stored, and what was not.",
        "content": {MEDIA_TYPE: {"schema": {"allOf": [SCHEMA, _WITH_REPORT]}}},
    }
}


def add_routes(app: FastAPI, service: Service) -> None:
    """Add a route for each public function of the table."""
    for call in table.CALLS:
        if not hasattr(sqlrag, call.name):
            continue
        app.add_api_route(
            f"/{call.name}",
            _endpoint(call, service),
            methods=["GET" if call.get else "POST"],
            operation_id=call.name,
            summary=summary(call.name),
            description=described(call.name),
            responses={200: {"model": _answer_model(call.name, call.answer)}, **PROBLEMS, **_unfinished(call)},
            response_model=None,
        )


def _unfinished(call: table.Call) -> dict[int | str, dict[str, Any]]:
    return UNFINISHED if returned_by(getattr(sqlrag, call.name)) is sqlrag.UpdateReport else {}


def _endpoint(call: table.Call, service: Service) -> Any:
    function = _function(call.name, service.options)
    parameters = inspect.signature(function).parameters

    async def run(request: Request, body: Any = None) -> Response:
        if call.changes:
            refuse_to_change(service.options)
        if "input_dir" in parameters and service.options.input_dir is None:
            raise Refused(409, "The server has no input folder; start it with --input-dir FOLDER.")

        def work(store: Store) -> bytes:
            given = {name: to_python(getattr(body, name)) for name in type(body).model_fields} if body else {}
            _check_model(given, store)
            found = function(**given, **_of_server(call, parameters, store, service.options))
            if isinstance(found, (sqlrag.Results, sqlrag.Candidates)):
                found.notices[:] = [without_folders(notice, *service.shared_store.folders) for notice in found.notices]
            return answer_of(call.answer, found, service.options.max_answer_bytes)

        content = await (service.changing if call.changes else service.on_store)(request, work)
        return with_etag(request, content) if call.get else Response(content, media_type="application/json")

    model = None
    if not call.get:
        options = service.options
        model = _request_model(call.name, options.rerank_model, options.max_items, options.max_question_chars)
    return typed(run, model, call.example)


# A server of several files has an application for each, with the same models.
@functools.lru_cache(maxsize=256)
def _request_model(name: str, rerank_model: str | None, max_items: int, max_question_chars: int) -> type[BaseModel]:
    """Return the model of a call of a public function, by all the options that it depends on."""
    options = ServerOptions(rerank_model=rerank_model, max_items=max_items, max_question_chars=max_question_chars)
    replaced = replaced_types(name, options)
    return request_model(getattr(sqlrag, name), without=table.KEPT, instead=replaced, options=options)


def _function(name: str, options: ServerOptions) -> Any:
    """Return a public function; the number of chunks is limited by the server."""
    function = getattr(sqlrag, name)
    if name != "chunk":
        return function

    @functools.wraps(function)
    def some_chunks(document: Any, policy: Any, **others: Any) -> list[Any]:
        chunks = list(islice(iter_chunks(document, policy, **others), options.max_chunks + 1))
        if len(chunks) > options.max_chunks:
            raise Refused(
                413,
                f"The document has more than {options.max_chunks:,} chunks; use a larger chunk_size, or send parts.",
            )
        return chunks

    return some_chunks


def typed(endpoint: Any, model: type[BaseModel] | None, example: Mapping[str, Any]) -> Any:
    """Return an endpoint that takes a body of this model."""
    parameters = {"request": Request, **({"body": model} if model else {})}
    if model:
        model.model_config["json_schema_extra"] = {"examples": [dict(example)]}

    async def run(request: Request, **given: Any) -> Response:
        body = given.get("body")
        request.state.top_k = getattr(body, "top_k", getattr(getattr(body, "plan", None), "k", None))  # for the log
        return await endpoint(request, **given)  # type: ignore[no-any-return]

    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind) for name, kind in parameters.items()]
    )
    return run


def refuse_to_change(options: ServerOptions) -> None:
    """Refuse a change of a file that is served read-only."""
    if not options.write:
        raise Refused(409, "The file is served read-only; start the server with --write to change it.")


def replaced_types(name: str, options: ServerOptions) -> dict[str, Any]:
    """Return the types of arguments that name models, limited to the models that the server was started with."""
    rerankers = ("cosine", options.rerank_model) if options.rerank_model else ("cosine",)
    if name == "rerank":
        model = Literal[options.rerank_model] if options.rerank_model else None
        return {"model": None if model is None else model | None}
    if name == "answer":
        return {"rerank": Literal[rerankers] | None}
    return {}


def _of_server(call: table.Call, parameters: Mapping[str, Any], store: Store, options: ServerOptions) -> dict[str, Any]:
    """Return the arguments that the server sets."""
    if call.by_path and len(store.paths) != 1:
        raise sqlrag.InputError("This needs a DuckDB file, and the server's store is not one file.")
    given: dict[str, Any] = {"db_path": store.path if call.by_path else store, "store": store}
    if options.input_dir is not None:
        given["input_dir"] = options.input_dir
    if "progress" in parameters:
        given |= {"embedder": store.loaded_embedder, "progress": "off", "max_bytes": options.max_upload_bytes}
    return {name: value for name, value in given.items() if name in parameters}


def _check_model(given: dict[str, Any], store: Store) -> None:
    """Compare a name with the file's model, and remove it: it could name a folder of the server's machine."""
    name = given.get("model_name")
    if name is None or "expected_dimensions" in given:
        return
    given["model_name"] = None
    if not sqlrag.validate_embedding_model(store, name):
        model = store.get_embedding_metadata()["embedding"]["model"]
        raise sqlrag.ModelMismatchError(f"The file was built with the model {model!r}, not with {name!r}.")


def answer_of(name: str, value: Any, most_bytes: int) -> bytes:
    """Return what a function returned as JSON, under a name if it is a list or a plain value.

    A list is written entry by entry, so that it stops at ``most_bytes``: each of a thousand results may contain its
    whole document.
    """
    if not name or not isinstance(value, list):
        return as_json({name: to_plain(value)} if name else to_plain(value))
    attributes = next((names for cls, names in _ATTRIBUTES.items() if isinstance(value, cls)), ())
    parts, size = list[bytes](), 0
    for one in value:
        checkpoint()
        parts.append(as_json(_for_clients(name, one)))
        size += len(parts[-1]) + 1
        within(size, most_bytes)
    others = as_json({one: to_plain(getattr(value, one)) for one in attributes})[1:]
    return b'{"%b":[%b]%b%b' % (name.encode(), b",".join(parts), b"," if attributes else b"", others)


def _for_clients(name: str, entry: Any) -> Any:
    """Return an entry of an answer as JSON types, without the path of its document on the server.

    What it has of a row of a table is as of :func:`~sqlrag.ranking.results.exact`.
    """
    if name == "candidates":
        return to_plain(entry) | {"row_key": exact(entry.row_key)}
    if name not in ("documents", "results"):
        return to_plain(entry)
    plain = to_plain(in_json(entry))
    for document in (plain, plain.get("source_doc") or {}):
        document.pop("file_path", None)
    return plain


def with_etag(request: Request, content: bytes, media_type: str = "application/json") -> Response:
    """Return an answer with the ETag of its bytes, or 304 if the client has them."""
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if etag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=media_type)


@functools.cache
def _answer_model(name: str, answer: str) -> Any:
    """Return the model of an answer, from the return type of the function."""
    returned = returned_by(getattr(sqlrag, name))
    title = "".join(part.title() for part in name.split("_")) + "Answer"
    if not answer:
        return model_of(returned) if isinstance(returned, type) else dict[str, Any]
    item: Any = dict[str, Any]
    (inner,) = get_args(returned) if get_origin(returned) is list else (None,)
    if answer == "candidates":
        item = model_of(sqlrag.Candidate)
    elif isinstance(inner, type) and (dataclasses.is_dataclass(inner) or hasattr(inner, "_fields")):
        item = model_of(inner)
    elif name.endswith("_query") or name == "package":
        item = _row_model()
    kinds: dict[str, Any] = {"valid": bool, "ranking": list[list[str | float]], "spans": list[list[list[int]]]}
    fields: dict[str, Any] = {answer: (kinds.get(answer, list[item]), ...)}
    if answer in ("results", "candidates"):
        last: Any = dict[str, str] if answer == "results" else dict[str, list[str]]
        fields |= {"notices": (list[str], ...), "timings": (dict[str, float], ...)}
        fields["methods" if answer == "results" else "dropped"] = (last, ...)
        fields |= {"further": (dict[str, list[str]], ...), "request_id": (str, ...)} if answer == "results" else {}
    return create_model(title, __base__=Plain, **fields)


def _row_model() -> type[Plain]:
    """Return the model of a result: a candidate with its text and, on request, its document."""
    candidate = model_of(sqlrag.Candidate).model_fields
    kinds = {"text": (str, ...), "source_doc": (dict[str, Any] | None, ...)}
    others: dict[str, Any] = {name: (field.annotation, ...) for name, field in candidate.items() if name != "content"}
    others["row_key"] = (Any, None)  # of rows of tables alone
    return create_model("Result", __base__=Plain, **others, **kinds)  # type: ignore[call-overload,no-any-return]


def summary(name: str) -> str:
    """Return the first line of a docstring, as plain text."""
    return described(name).partition("\n")[0].replace("`", "")


def described(name: str) -> str:
    """Return the docstring up to its sections."""
    return adapters.without_roles(adapters.lead(getattr(sqlrag, name)))


_EXAMPLE = {"question": "How do I filter by tag?", "stream": False, "plan": {"k": 4}}

_STREAM = {
    "text/event-stream": {
        "schema": {
            "type": "string",
            "description": "With `stream`: an event for each step; `event` is its type, `data` its JSON.",
        }
    }
}


_SOFAR = {
    "sources": {"type": "array", "items": {"type": "object"}, "description": "As in an answer."},
    "notices": {"type": "array", "items": {"type": "string"}},
    "text": {"type": "string", "description": "What had come when the model failed."},
    "error": {"type": "string", "description": "Why it failed, as in `detail`."},
    "request_id": {"type": "string"},
}

# A problem may have members of its own (RFC 9457, section 3.2).
_UNFINISHED: dict[int | str, dict[str, Any]] = {
    status: {
        "description": f"{PROBLEMS[status]['description']} The sources and the text so far are sent, unless `strict`.",
        "content": {MEDIA_TYPE: {"schema": {**SCHEMA, "properties": {**SCHEMA["properties"], **_SOFAR}}}},
    }
    for status in (502, 504)
}


def add_route(app: FastAPI, service: Service) -> None:
    """Add ``/answer``."""

    async def run(request: Request, body: Any) -> Response:
        options = service.options
        if options.chat_model is None:
            raise Refused(501, "No chat model is set: start the server with --chat-model NAME.")
        given = {name: to_python(getattr(body, name)) for name in type(body).model_fields}
        stream = given.pop("stream")
        settings = {**given, "chat_model": options.chat_model, "base_url": options.chat_base_url}
        events = _Events(await while_connected(request, service.searched(settings)), service)
        response: Response = _Stream(events)
        if not stream:
            response = await while_connected(request, _whole(events, options.max_answer_bytes))
        if given["request_id"] is not None:
            response.headers[REQUEST_ID] = given["request_id"]
        return response

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
        responses={200: {"model": model_of(sqlrag.Answer), "content": _STREAM}, **PROBLEMS, **_UNFINISHED},
        response_model=None,
    )


class _Events:
    """The events of one answer, within the time limit of answers; closing them ends the call of the model."""

    def __init__(self, events: AsyncGenerator[AnswerEvent, None], service: Service) -> None:
        self._events = events
        self._service = service
        self._seconds = service.options.answer_seconds
        self._until = time.monotonic() + self._seconds

    async def __aiter__(self) -> AsyncIterator[AnswerEvent]:
        while True:
            try:
                event = await asyncio.wait_for(anext(self._events, None), self._until - time.monotonic())
            except TimeoutError as error:
                raise Refused(504, f"The answer took longer than {self._seconds:g} seconds.") from error
            if event is None:
                return
            yield event

    async def close(self) -> None:
        self._service.answers -= 1
        await self._events.aclose()


async def _whole(events: _Events, most_bytes: int) -> Response:
    """Return the answer, or where the model fails or takes too long a problem with what there is of it."""
    sofar: dict[str, Any] = {"sources": [], "notices": [], "text": ""}
    failure = Refused(502, "The answer ended before it was complete.")
    try:
        async for event in events:
            if event.type == "sources":
                sofar |= {"sources": event.sources, "notices": event.notices, "request_id": event.request_id}
            sofar["text"] += event.text
            if event.error is not None:
                failure = Refused(502, event.error)
            elif event.answer is not None and event.answer.error is None:
                content = as_json(event.answer.as_dict())
                within(len(content), most_bytes)
                return Response(content, media_type="application/json")
    except Refused as refused:
        failure = refused
    finally:
        await events.close()
    within(len(as_json(sofar)), most_bytes)
    return problem(failure.status, failure.detail, error=failure.detail, **sofar)


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
