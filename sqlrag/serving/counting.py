"""``GET /metrics``: requests by route and status, their durations, and what sqlrag counts, as Prometheus reads them."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING

from starlette.responses import Response

import sqlrag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from sqlrag.serving.service import Service

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Requests:
    """What has been asked and how long it took, by route; its names are those of routes, never what a client sent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: Counter[tuple[str, str, int]] = Counter()
        self.durations: dict[str, list[int]] = {}
        self.seconds: Counter[str] = Counter()

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        with self._lock:
            self.counts[method, route, status] += 1
            self.durations.setdefault(route, [0] * (len(_BOUNDS) + 1))[bisect_left(_BOUNDS, seconds)] += 1
            self.seconds[route] += seconds  # type: ignore[assignment]

    def lines(self) -> Iterator[str]:
        """Yield the lines of Prometheus' text format."""
        with self._lock:
            counts, seconds = dict(self.counts), dict(self.seconds)
            durations = {route: list(accumulate(counted)) for route, counted in self.durations.items()}
        yield "# HELP sqlrag_http_requests_total Requests by method, route and status.\n"
        yield "# TYPE sqlrag_http_requests_total counter\n"
        for (method, route, status), number in sorted(counts.items()):
            yield f'sqlrag_http_requests_total{{method="{method}",route="{route}",status="{status}"}} {number}\n'
        yield "# HELP sqlrag_http_request_seconds How long requests took, to the end of the answer.\n"
        yield "# TYPE sqlrag_http_request_seconds histogram\n"
        for route, numbers in sorted(durations.items()):
            for bound, number in zip((*map(str, _BOUNDS), "+Inf"), numbers, strict=True):
                yield f'sqlrag_http_request_seconds_bucket{{route="{route}",le="{bound}"}} {number}\n'
            yield f'sqlrag_http_request_seconds_sum{{route="{route}"}} {seconds[route]:.6f}\n'
            yield f'sqlrag_http_request_seconds_count{{route="{route}"}} {numbers[-1]}\n'


class Counting:
    """Counts every request of an application."""

    def __init__(self, app: ASGIApp, *, requests: Requests) -> None:
        self.app = app
        self.requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a request, as ASGI has it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def send_and_look(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_and_look)
        finally:
            route = getattr(scope.get("route"), "path", "") or (
                "/page" if scope["path"].startswith("/page/") else "other"
            )
            method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD") else "other"
            self.requests.add(method, route, status, time.perf_counter() - began)


def add_route(app: FastAPI, service: Service, requests: Requests) -> None:
    """Add ``/metrics``."""

    @app.get(
        "/metrics", operation_id="metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}}
    )
    async def metrics() -> Response:
        """Return counters of this process in the text format of Prometheus."""
        lines = list(requests.lines())
        for name, number in sqlrag.metrics().items():
            unit = "seconds_total" if name.endswith("_seconds") else "total"
            full = f"sqlrag_{name.removesuffix('_seconds')}_{unit}"
            lines.append(f"# TYPE {full} counter\n{full} {number:g}\n")
        for name, number in (("requests_pending", service.workers.pending), ("answers_pending", service.answers)):
            lines.append(f"# TYPE sqlrag_{name} gauge\nsqlrag_{name} {number}\n")
        return Response("".join(lines), media_type=MEDIA_TYPE)
