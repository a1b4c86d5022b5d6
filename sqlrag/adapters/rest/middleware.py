"""Checks of every request: strict JSON, known parameters; headers of every response; metrics and access log."""

from __future__ import annotations

import logging
import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fastapi.routing import APIRoute
from prometheus_client import Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

import sqlrag
from sqlrag.adapters.server import Refused, as_json, foreign
from sqlrag.arguments import nearest
from sqlrag.errors import FormatError
from sqlrag.strict_json import strict_json
from sqlrag.telemetry import current_request

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence

    from fastapi import FastAPI
    from prometheus_client import Metric
    from starlette.datastructures import Headers
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from sqlrag.adapters.rest.state import Service


class Head:
    """Answers ``HEAD`` as ``GET``, without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        # In place, because the router stores the route in this scope.
        scope["method"] = "GET"
        try:
            await self.app(scope, receive, send_without_body)
        finally:
            scope["method"] = "HEAD"


def refuse_unknown_parameters(request: Request) -> None:
    """Refuse unknown query parameters; the search page has its own."""
    route = request.scope["route"]
    known = [param.alias for param in route.dependant.query_params]
    unknown = sorted(set(request.query_params) - set(known))
    if unknown and route.include_in_schema:
        meant = nearest(unknown[0], known)
        what = f"the parameters are {', '.join(known)}." if known else "this route takes none."
        what = f"did you mean {meant}?" if meant else what
        raise Refused(422, f"There is no parameter {', '.join(unknown)[:200]!a}; {what}")


DEEPEST = 100


def route_class(service: Service) -> type[APIRoute]:
    """Return the class of routes whose requests read JSON with the limits of a server."""

    class StrictRequest(Request):
        async def json(self) -> Any:
            body = await self.body()
            try:
                return await service.workers.run(lambda: _read(body, service.options.max_items))
            except FormatError as error:
                raise HTTPException(422, str(error)) from error
            except Refused as error:  # here FastAPI passes HTTPException only
                raise HTTPException(error.status, error.detail, error.headers) from error

    class StrictRoute(APIRoute):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            # A name may hold a line feed, which neither "." nor what is before "$" is for a pattern.
            self.path_regex = re.compile(self.path_regex.pattern.removesuffix("$") + r"\Z", re.DOTALL)

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def run(request: Request) -> Response:
                return await handle(StrictRequest(request.scope, request.receive))

            return run

    return StrictRoute


def _read(body: bytes, most_items: int) -> Any:
    """Parse JSON, and check its depth and size level by level, before anything recursive reads it."""
    value = strict_json(body, "The body")
    level, depth, items = _containers([value]), 0, 0
    while level:
        below: list[Any] = []
        for one in level:
            inner = _containers(one.values() if isinstance(one, dict) else one)
            items += 0 if isinstance(one, dict) else len(inner)
            below += inner
            if isinstance(one, dict) and len(one) > most_items:
                raise FormatError(f"An object of the body has more than {most_items:,} names; send several requests.")
            if items > most_items:
                raise FormatError(
                    f"The lists of the body have more than {most_items:,} objects and lists together; send several "
                    "requests."
                )
        level, depth = below, depth + 1
        if depth > DEEPEST:
            raise FormatError(f"The body is nested more than {DEEPEST} levels deep; send flatter values.")
    return value


def _containers(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, (dict, list))]


_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_HEADERS = {
    "Content-Security-Policy": _CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class SafeHeaders:
    """Adds the headers that keep pages of other sites from using a response."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_with_headers)


class Cors(CORSMiddleware):
    """Lets pages of some origins read responses, and ask beforehand what they may send."""

    def __init__(self, app: ASGIApp, *, origins: Sequence[str]) -> None:
        super().__init__(
            app,
            allow_origins=origins,
            allow_methods=("GET", "HEAD", "POST"),
            allow_headers=("Authorization", "X-API-Key", "X-Request-ID", "If-None-Match"),
            expose_headers=("ETag", "X-Request-ID", "Retry-After", "Content-Disposition"),
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        """Return what a page of this origin may send."""
        return (
            super().preflight_response(request_headers)
            if self.is_allowed_origin(request_headers["origin"])
            else foreign()
        )


MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """The metrics of one application, a collector of Prometheus; labels are names of routes, never data of requests."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.requests = Counter(
            "sqlrag_http_requests",
            "Requests by method, route and status.",
            ("method", "route", "status"),
            registry=None,
        )
        self.durations = Histogram(
            "sqlrag_http_request_seconds",
            "How long requests took, to the end of the response.",
            ("route",),
            buckets=_BOUNDS,
            registry=None,
        )

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        # The creation time of each series is left out: Prometheus does not need it.
        for metric in (*self.requests.collect(), *self.durations.collect()):
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
        for name, number in sqlrag.metrics().items():
            yield CounterMetricFamily(f"sqlrag_{name}", f"{name} of sqlrag.metrics().", value=number)
        yield GaugeMetricFamily(
            "sqlrag_requests_pending", "Requests that run or wait for a thread.", value=self.service.workers.pending
        )
        yield GaugeMetricFamily("sqlrag_answers_pending", "Answers that are running.", value=self.service.answers)


class Counting:
    """Counts every request of an application."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def send_and_record(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_and_record)
        finally:
            route = getattr(scope.get("route"), "path", "") or (
                "/page" if scope["path"].startswith("/page/") else "other"
            )
            method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD") else "other"
            self.metrics.requests.labels(method, route, str(status)).inc()
            self.metrics.durations.labels(route).observe(time.perf_counter() - began)


access = logging.getLogger("sqlrag.access")


class AccessLog:
    """Logs every request as a line of JSON to ``sqlrag.access``, at the level INFO.

    Never the query string or the body, which hold what was asked. ``top_k`` is null where a request has none.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI request."""
        if scope["type"] != "http" or not access.isEnabledFor(logging.INFO):
            await self.app(scope, receive, send)
            return
        began, state = time.perf_counter(), scope.setdefault("state", {})
        line: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")}
        line |= {"method": scope["method"], "path": scope["path"], "status": 500, "ms": 0, "bytes": 0}

        async def send_and_record(message: Message) -> None:
            line["status"] = message.get("status", line["status"])
            await send(message)
            line["bytes"] += len(message.get("body", b""))

        try:
            await self.app(scope, receive, send_and_record)
        finally:
            line["ms"] = round(1000 * (time.perf_counter() - began), 1)
            line |= {"request_id": current_request(), "top_k": state.get("top_k")}
            access.info(as_json(line).decode())


def add_route(app: FastAPI, collected: Metrics) -> None:
    """Add ``/metrics``."""

    @app.get(
        "/metrics", operation_id="metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}}
    )
    async def metrics() -> Response:
        """Return counters of this process in the text format of Prometheus."""
        return Response(generate_latest(collected), media_type=MEDIA_TYPE)
