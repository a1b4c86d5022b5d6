"""Errors as ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import duckdb
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse

from sqlrag import errors
from sqlrag.adapters.rest.schemas import to_plain
from sqlrag.adapters.server import Refused, for_clients, problem, wrong_fields
from sqlrag.arguments import nearest, shortened
from sqlrag.telemetry import current_request

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

SCHEMA: dict[str, Any] = {
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

# The first class that matches decides.
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


def status_of(error: BaseException) -> int:
    """Return the HTTP status of an error of sqlrag."""
    return next((status for cls, status in _STATUS if isinstance(error, cls)), 500)


def _no_route(request: Request, names: Sequence[str]) -> tuple[str, list[str]]:
    """Return what there is in place of a route that there is not, and the methods that its path takes."""
    path = request.scope["path"]
    takes: dict[str, set[str]] = {}
    allowed: set[str] = set()
    for route in request.scope["app"].routes:
        methods = {*(getattr(route, "methods", None) or ())} - {"HEAD"}
        if methods and route.path_regex.match(path):
            allowed |= methods
        if getattr(route, "include_in_schema", False) and "{" not in route.path:
            takes.setdefault(route.path[1:], set()).update(methods)
    whole = unquote(request.scope.get("raw_path", b"").decode("latin-1"))
    below = whole.removesuffix(path) if whole.endswith(path) else ""  # such as /db/NAME
    if allowed:
        told = f"{shortened(below + path)} takes {' or '.join(sorted(allowed))}, not {request.method}."
        if request.method == "DELETE" and "delete_documents" in takes:
            told += f" POST {below}/delete_documents deletes."
        return told, sorted(allowed)
    told = f"There is no route {shortened(below + path)}."
    if names:
        return f"{told} The routes are below /db/NAME/, where NAME is {' or '.join(names)}.", []
    meant = nearest(path.strip("/"), filter(None, takes))
    hint = f" Did you mean {' or '.join(sorted(takes[meant]))} {below}/{meant}?" if meant else ""
    return f"{told}{hint} GET {below}/docs lists all.", []


def install(app: FastAPI, *folders: str | os.PathLike[str], names: Sequence[str] = ()) -> None:
    """Convert every error of an application into a problem that shows no path of these folders.

    ``names`` are those of the stores that it has below ``/db/``.
    """

    async def refused(_: Request, error: Any) -> Response:
        return problem(error.status, error.detail, error.headers)

    async def own(_: Request, error: Any) -> Response:
        status = status_of(error)
        if status >= 500:
            logger.warning("[%s] %s: %s", current_request(), type(error).__name__, error)
        report = getattr(error, "report", None)
        more = {} if report is None else {"report": to_plain(report)}
        return problem(status, for_clients(error, *folders), **more)

    async def http(request: Request, error: Any) -> Response:
        if error.detail == HTTPStatus(error.status_code).phrase and error.status_code in (404, 405):
            detail, allowed = _no_route(request, names)
            headers = {"Allow": ", ".join(allowed)} if allowed else None
            return PlainTextResponse(detail, error.status_code, headers)  # for AsProblems
        return PlainTextResponse(str(error.detail), error.status_code, error.headers)  # for AsProblems

    async def invalid(request: Request, error: Any) -> Response:
        found = error.errors()
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        unread = any(tuple(one["loc"]) == ("body",) and one["type"] != "missing" for one in found)
        if unread and kind != "application/json" and not kind.endswith("+json"):
            return problem(
                422, f"A body is JSON; send the header Content-Type: application/json, not {kind[:80] or 'none'}."
            )
        if kind != "multipart/form-data" and any(
            (*one["loc"], one["type"]) == ("body", "files", "missing") for one in found
        ):
            return problem(
                422,
                f"Documents are sent as files of a form, multipart/form-data, not as {kind[:80] or 'none'}: "
                "curl -F files=@page.md; texts of a program go to POST /index.",
            )
        below = [{**one, "loc": one["loc"][1:]} for one in found]  # without "body" or "query"
        in_body = any(one["loc"][0] == "body" for one in found)
        field = request.scope["route"].body_field if in_body else None
        model = field.field_info.annotation if field else None
        schema = model.model_json_schema() if isinstance(model, type) and issubclass(model, BaseModel) else {}
        given = error.body if in_body else dict(request.query_params)
        return problem(422, f"{wrong_fields(below, {} if given is None else given, schema)}.")

    async def database(_: Request, error: Any) -> Response:
        logger.error("[%s] The file could not be read", current_request(), exc_info=error)
        return problem(503, "The file cannot be read; it may be damaged or truncated. See the log of the server.")

    async def unexpected(_: Request, error: Exception) -> Response:
        # Starlette re-raises the error, and the server logs it.
        logger.error("[%s] %s was not expected", current_request(), type(error).__name__)
        return problem(500, "This error was not expected; see the log of the server.")

    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(errors.SqlragError, own)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(duckdb.Error, database)
    app.add_exception_handler(Exception, unexpected)
