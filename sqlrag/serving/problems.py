"""Errors as ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import duckdb
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response

from sqlrag import errors
from sqlrag.network import without_folders
from sqlrag.options import shortened
from sqlrag.serving.refusing import Refused

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

CLIENT_GONE = 499  # of no standard: nobody reads this answer, the metrics count it
MEDIA_TYPE = "application/problem+json"
SCHEMA = {
    "type": "object",
    "description": "What went wrong (RFC 9457).",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
    "required": ["type", "title", "status", "detail"],
}
logger = logging.getLogger(__name__)

# The first class that fits.
_STATUS: tuple[tuple[type[BaseException], int], ...] = (
    (errors.ModelMismatchError, 409),
    (errors.FormatError, 422),
    (errors.InputError, 422),
    (errors.NotFoundError, 404),
    (errors.DocumentError, 422),
    (errors.StoreLockedError, 503),
    (errors.ProviderError, 502),
    (errors.ModelUnavailableError, 501),
    (errors.MissingExtraError, 501),
    (errors.StoreError, 503),
)
_RETRY_SECONDS = {503: "1"}


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer that says what is wrong."""
    title = "Client Closed Request" if status == CLIENT_GONE else HTTPStatus(status).phrase
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    told = {**({"Retry-After": _RETRY_SECONDS[status]} if status in _RETRY_SECONDS else {}), **(headers or {})}
    return Response(as_json(body), status, told, media_type=MEDIA_TYPE)


def as_json(value: Any) -> bytes:
    """Return JSON in UTF-8, floats as Python writes them; a lone surrogate stays what it is, as an escape."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


class AsProblems:
    """Makes problems of the errors that the frameworks answer in plain text, such as a body that is too large."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a request, as ASGI has it."""
        begun: Message | None = None
        text = b""

        async def send_as_problem(message: Message) -> None:
            nonlocal begun, text
            if message["type"] == "http.response.start" and _is_plain_error(message):
                begun = message
            elif begun is None:
                await send(message)
            else:
                text += message.get("body", b"")
                if not message.get("more_body", False):
                    told = text.decode("utf-8", "replace") or HTTPStatus(begun["status"]).phrase
                    kept = MutableHeaders(raw=begun["headers"])
                    del kept["content-length"], kept["content-type"]
                    await problem(begun["status"], told, kept)(scope, receive, send)

        await self.app(scope, receive, send_as_problem)


def _is_plain_error(start: Message) -> bool:
    return start["status"] >= 400 and Headers(raw=start["headers"]).get("content-type", "").startswith("text/plain")


def status_of(error: BaseException) -> int:
    """Return the status that an error of sqlrag stands for."""
    return next((status for cls, status in _STATUS if isinstance(error, cls)), 500)


def install(app: FastAPI, *folders: str | os.PathLike[str]) -> None:
    """Make every error of an application a problem, which tells no path of these folders."""

    async def refused(_: Request, error: Any) -> Response:
        return problem(error.status, error.detail, error.headers)

    async def own(_: Request, error: Any) -> Response:
        status = status_of(error)
        if status >= 500:
            logger.warning("%s: %s", type(error).__name__, error)
        return problem(status, without_folders(str(error), *folders))

    async def http(_: Request, error: Any) -> Response:
        return problem(error.status_code, str(error.detail), error.headers)

    async def invalid(request: Request, error: Any) -> Response:
        # Neither what was sent nor a link goes back: it may be large, or no JSON.
        found = error.errors()
        told = [f"{shortened('.'.join(map(str, one['loc']))) or 'body'}: {one['msg']}" for one in found[:10]]
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        unread = any(tuple(one["loc"]) == ("body",) and one["type"] != "missing" for one in found)
        if unread and kind != "application/json" and not kind.endswith("+json"):
            told = [f"A body is JSON; send the header Content-Type: application/json, not {kind[:80] or 'none'}."]
        return problem(422, "; ".join(told))

    async def database(_: Request, error: Any) -> Response:
        logger.error("The file could not be read", exc_info=error)
        return problem(503, "The file cannot be read, it may be damaged or cut short; the log of the server says more.")

    async def unexpected(_: Request, __: Exception) -> Response:
        # It is raised again for the server, which logs it.
        return problem(500, "This was not expected; the log of the server says more.")

    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(errors.SqlragError, own)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(duckdb.Error, database)
    app.add_exception_handler(Exception, unexpected)
