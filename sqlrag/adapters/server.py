"""What the REST and the MCP server share: who may ask, worker threads, connections, limits, start and shutdown."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from sqlrag import scratch, telemetry
from sqlrag.arguments import guessed, nearest, shortened, shown, with_commands
from sqlrag.cancellation import Work
from sqlrag.errors import InputError, StoreLockedError
from sqlrag.network import (
    LOOPBACK,
    NO_KEY,
    has_key,
    host_of,
    is_own_origin,
    listen,
    to_origin_form,
    without_folders,
)
from sqlrag.ranking.results import MOST_EXACT

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Refused(Exception):  # noqa: N818 - a refusal is a response, not a failure
    """A request that is refused: its status and the reason."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})
        super().__init__(detail)


CLIENT_GONE = 499  # not a standard status: nobody reads the response, but metrics count it

MEDIA_TYPE = "application/problem+json"

_RETRY_SECONDS = {503: "1"}


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None, **members: Any) -> Response:
    """Return a response that describes a problem (RFC 9457), with further members where it has some."""
    title = "Client Closed Request" if status == CLIENT_GONE else HTTPStatus(status).phrase
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **members}
    sent = {**({"Retry-After": _RETRY_SECONDS[status]} if status in _RETRY_SECONDS else {}), **(headers or {})}
    return Response(as_json(body), status, sent, media_type=MEDIA_TYPE)


def as_json(value: Any) -> bytes:
    """Return JSON in UTF-8, floats as Python writes them; lone surrogates are escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


def check_db_names(names: Iterable[str]) -> None:
    """Raise InputError for a name of a store that cannot be a part of a path."""
    for name in names:
        if not _NAME.fullmatch(name):
            raise InputError(f"The name {shown(name)} must be 1 to 64 letters, digits, dots, dashes and underscores.")


_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


class Guard:
    """Passes only requests that name this server, come from no page of another site and have the key, if one is set.

    A page can make a browser send a form, or a request without a body, to any address, and a name of its own can
    resolve to this one (DNS rebinding).

    Parameters
    ----------
    hosts
        The names that clients may use for the server beside those of this machine, "*" for any.
    names
        Those of them that a proxy may have for browsers, so that ``Origin`` may differ from ``Host``.
    key
        None: no key is needed.
    static
        Paths, or with a slash at the end folders, that may be read without the key and from anywhere.
    cors
        Origins of other sites whose pages are let through, "*" for any.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Sequence[str],
        names: Sequence[str],
        key: str | None,
        static: Sequence[str] = (),
        cors: Sequence[str] = (),
    ) -> None:
        self.app = app
        self.hosts = {host.lower() for host in (*LOOPBACK, *hosts)}
        self.names = {name.lower() for name in names}
        self.key = key.encode() if key else None
        self.static = frozenset(static)
        self.cors = frozenset(cors)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI request."""
        to_origin_form(scope)
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self.app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if "*" not in self.hosts and host_of(headers.get("host", "")) not in self.hosts:
            return problem(421, "This host name is not allowed. Start the server with --allow-host NAME.")
        if self._is_static(scope):
            return None
        if self._is_foreign(scope.get("scheme", "http"), headers):
            return foreign()
        authorization, api_key = (headers.get(name, "").encode("latin-1") for name in ("authorization", "x-api-key"))
        if self.key is not None and not has_key(authorization, api_key, self.key):
            return problem(401, NO_KEY, {"WWW-Authenticate": "Bearer"})
        return None

    def _is_static(self, scope: Scope) -> bool:
        path = scope["path"]
        folder = path[: path.find("/", 1) + 1]
        return scope["method"] in ("GET", "HEAD") and not self.static.isdisjoint((path, folder))

    def _is_foreign(self, scheme: str, headers: Headers) -> bool:
        origins = headers.getlist("origin")
        if len(origins) == 1 and ("*" in self.cors or origins[0] in self.cors):
            return False
        sites = headers.getlist("sec-fetch-site")
        if any(site.strip().lower() not in ("same-origin", "none") for site in sites):
            return True
        host = headers.get("host", "")
        return not all(is_own_origin(origin, host, scheme, self.names) for origin in origins)


def foreign() -> Response:
    """Return the refusal of a page of another site."""
    return problem(
        403,
        "Pages of other sites may not use this server. If the page is its own and comes through a proxy, start the "
        "server with --allow-host NAME, the name in the page's address; if it is a web app of yours, with --cors and "
        "its origin. Programs send no Origin.",
    )


class RequestIds:
    """Gives every request an id, that of its header ``X-Request-ID`` if it can be one, and returns it in the response.

    What works on the request finds it by :func:`sqlrag.telemetry.current_request`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = telemetry.taken_over(Headers(scope=scope).getlist(telemetry.REQUEST_ID))

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message.setdefault("headers", [])
                MutableHeaders(scope=message).setdefault(telemetry.REQUEST_ID, request_id)
            await send(message)

        with telemetry.request(request_id):
            await self.app(scope, receive, send_with_id)


class AsProblems:
    """Converts plain-text errors of the frameworks, such as a body that is too large, into problems.

    ``most_bytes`` returns the largest body of a request.
    """

    def __init__(self, app: ASGIApp, *, most_bytes: Callable[[Scope], int]) -> None:
        self.app = app
        self.most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI request."""
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
                    status = begun["status"]
                    detail = text.decode("utf-8", "replace") or HTTPStatus(status).phrase
                    if status == 413:
                        detail = f"The body is larger than {self.most_bytes(scope):,} bytes; send several requests."
                    kept = MutableHeaders(raw=begun["headers"])
                    del kept["content-length"], kept["content-type"]
                    await problem(status, detail, kept)(scope, receive, send)

        await self.app(scope, receive, send_as_problem)


def _is_plain_error(start: Message) -> bool:
    kind = Headers(raw=start.get("headers", [])).get("content-type", "text/plain")
    return start["status"] >= 400 and kind.startswith("text/plain")


def for_clients(error: Exception, *folders: str | os.PathLike[str]) -> str:
    """Return what a client on another machine is told of an error: no path below the folders, and no process."""
    if isinstance(error, StoreLockedError):
        return f"{Path(error.path).name} is in use by another program. Try again in a moment."
    return without_folders(with_commands(str(error)), *folders)


_MOST_REPORTED = 10

_MOST_NAMED = 40

# What a value must be, by the type of pydantic's error, in the words of JSON.
_MUST_BE = {
    **dict.fromkeys(("string_type", "string_unicode"), "a string"),
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type"), "an object"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type"), "a list"),
    "none_required": "null",
    "finite_number": "a finite number",
}


def wrong_fields(found: Sequence[Mapping[str, Any]], given: Any, schema: Mapping[str, Any]) -> str:
    """Return what is wrong with the fields of a request: which is missing, unknown, or must be what.

    Parameters
    ----------
    found
        The errors of pydantic; at most ten are reported. ``loc`` begins with the name of a field.
    given
        The request. It tells names of fields from those that pydantic gives the members of a union.
    schema
        The JSON schema of the request, with the names and ranges of the fields.
    """
    wrong: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for one in found:
        wrong.setdefault(_place(one, given), []).append(one)
    told = {place: _told(place, errors, schema) for place, errors in list(wrong.items())[:_MOST_REPORTED]}
    for place, text in told.items():
        if text.endswith(" is missing") and len(place) == 1 and isinstance(given, Mapping):
            name = str(place[0])
            sent = [key for key in given if (key,) not in told and guessed(str(key), [name]) == name]  # of a form
            told[place] += f"; there is no field {shortened(sent[0])} (did you mean {name}?)" if sent else ""
    return "; ".join(told.values())


def _place(error: Mapping[str, Any], given: Any) -> tuple[Any, ...]:
    """Return where in a request an error is, without the names of members of unions."""
    place, value, last = [], given, len(error["loc"]) - 1
    for i, part in enumerate(error["loc"]):
        is_index = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if is_index or (isinstance(value, Mapping) and part in value):
            value = value[part]
        elif i < last or error["type"] != "missing":
            continue
        place.append(part)
    return tuple(place)


def _told(place: tuple[Any, ...], errors: Sequence[Mapping[str, Any]], schema: Mapping[str, Any]) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    name = shortened(path[1:]) or "the request"
    kinds = {one["type"] for one in errors}
    if "missing" in kinds:
        return f"{name} is missing"
    if kinds == {"extra_forbidden"}:
        known = [field for spec in _specs(schema, place[:-1]) for field in spec.get("properties", ())]
        meant = nearest(str(place[-1]), known)
        others = ", ".join(known[:_MOST_NAMED]) + (", …" if known[_MOST_NAMED:] else "")
        hint = f"did you mean {meant}?" if meant else f"the fields are {others}" if known else ""
        if place[-1] == "mode" and "query_text" in known:
            hint = "the mode is in the name: hybrid_query, vector_query, lexical_query"
        return f"there is no field {name}" + (f" ({hint})" if hint else "")
    ranges = [spec for spec in _specs(schema, place) if {"minimum", "maximum"} <= spec.keys()]
    phrases = list(dict.fromkeys(_phrase(one, ranges) for one in errors))
    if not all(phrase.startswith("be ") for phrase in phrases):
        return f"{name} must {' or '.join(phrases)}"
    return f"{name} must be {' or '.join(phrase[3:] for phrase in phrases)}, not {_shown(errors[0]['input'])}"


def _phrase(error: Mapping[str, Any], ranges: Sequence[Mapping[str, Any]]) -> str:
    kind = error["type"]
    if kind == "literal_error":
        return f"be {error['ctx']['expected']}"
    if ranges and kind in ("greater_than_equal", "less_than_equal"):
        low, high = ranges[0]["minimum"], ranges[0]["maximum"]
        return f"be {low} or more" if high >= MOST_EXACT else f"be from {low} to {high}"
    if kind in _MUST_BE:
        return f"be {_MUST_BE[kind]}"
    return re.sub(r"^\w+ should | after validation.*", "", str(error["msg"]))


def _shown(value: Any) -> str:
    """Return a value of JSON for a message."""
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    return "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else shown(value)


def _specs(schema: Mapping[str, Any], place: tuple[Any, ...]) -> list[Mapping[str, Any]]:
    """Return the schemas that a part of a request may have."""
    definitions = schema.get("$defs", {})

    def alternatives(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        spec = definitions.get(str(spec.get("$ref")).rpartition("/")[2], spec)
        return [spec, *(inner for one in spec.get("anyOf", ()) for inner in alternatives(one))]

    found = alternatives(schema)
    for part in place:
        inner = [spec.get("items") if isinstance(part, int) else spec.get("properties", {}).get(part) for spec in found]
        found = [one for spec in inner if spec for one in alternatives(spec)]
    return found


def within(size: int, most_bytes: int) -> None:
    """Refuse an answer that is too large."""
    if size > most_bytes:
        raise Refused(413, f"The answer is larger than {most_bytes:,} bytes; request less, or send several requests.")


T = TypeVar("T")

_STOP_INTERVAL_SECONDS = 0.1


class Workers:
    """Runs requests in ``threads`` threads; at most ``waiting`` others wait, more are refused."""

    def __init__(self, threads: int, waiting: int, seconds: float) -> None:
        self.seconds = seconds
        self.capacity = threads + waiting
        self.pending = 0
        self._lock = threading.Lock()
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._running: dict[Future[Any], Work] = {}

    async def run(self, do: Callable[[], T], seconds: float | None = None) -> T:
        """Return what a function returns, or refuse it: too many requests wait (503), or it takes too long (504)."""
        self._enter()
        seconds = self.seconds if seconds is None else seconds
        work = Work(seconds)
        with self._lock:
            # An application may be restarted after its shutdown.
            self._pool = self._pool or ThreadPoolExecutor(self._threads, thread_name_prefix="sqlrag-serve")
            future = self._pool.submit(copy_context().run, _do, work, do)
            self._running[future] = work
        future.add_done_callback(self._done)
        try:
            return await in_time(asyncio.wrap_future(future), seconds)
        finally:
            end(work, future)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count a request that waits for something else before it is run."""
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def close(self) -> None:
        """Stop running work, and wait until it has ended."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
            while works := list(self._running.values()):
                for work in works:
                    work.stop()
                time.sleep(0.02)
            pool.shutdown()

    def _enter(self) -> None:
        with self._lock:
            if self.pending >= self.capacity:
                raise Refused(503, f"{self.pending} requests are already waiting. Try again in a moment.")
            self.pending += 1

    def _leave(self) -> None:
        with self._lock:
            self.pending -= 1

    def _done(self, future: Future[Any]) -> None:
        self._running.pop(future, None)
        self._leave()


async def in_time(future: asyncio.Future[T], seconds: float) -> T:
    """Return the result of a future; after so many seconds the request is refused."""
    try:
        return await asyncio.wait_for(future, seconds)
    except TimeoutError as error:
        raise Refused(504, f"The request took longer than {seconds:g} seconds.") from error


def end(work: Work, future: Future[Any] | asyncio.Future[Any]) -> None:
    """Stop work whose result is no longer needed; repeat that until it has ended."""
    if not future.done():
        work.stop()
        asyncio.get_running_loop().call_later(_STOP_INTERVAL_SECONDS, end, work, future)


def _do(work: Work, do: Callable[[], Any]) -> Any:
    with work.under_way():
        return do()


_PROGRESS_BYTES = 16_384

_MALFORMED = bytes(problem(400, "This is not a valid HTTP/1.1 request.").body)

_MALFORMED_HEAD = (
    "HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\nConnection: close\r\n"
    f"Content-Length: {len(_MALFORMED)}\r\n{telemetry.REQUEST_ID}: "
)


class TimedProtocol(H11Protocol):
    """Closes connections that keep the server waiting for uvicorn's ``timeout_keep_alive``, in seconds.

    Such a connection has no running request and has not sent the complete head of the next one; or it reads less than
    16 KiB of a buffered response in that time. If the limit of connections is reached, a new one closes the one that
    has kept the server waiting longest, so that idle clients cannot block others.
    """

    _timer: asyncio.TimerHandle | None = None
    _left = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for the first request."""
        super().connection_made(transport)
        others: list[Any] = [one for one in self.connections if one is not self and getattr(one, "_timer", None)]
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency and others:
            min(others, key=lambda one: one._timer.when())._abort()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive a part of a request; an incomplete head does not extend the timeout."""
        super().data_received(data)
        self._update_timer()

    def on_response_complete(self) -> None:
        """Start waiting for the next request, or for the client to read the rest of the response."""
        super().on_response_complete()
        self._update_timer()

    def pause_writing(self) -> None:
        """Start waiting for the client to read the buffer."""
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        """Continue writing."""
        super().resume_writing()
        self._stop()
        self._update_timer()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the response is always the same
        """Refuse invalid HTTP; after a response has started, only close the connection."""
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self._abort()
            return
        self.transport.write(f"{_MALFORMED_HEAD}{telemetry.taken_over(())}\r\n\r\n".encode() + _MALFORMED)
        self.transport.close()

    def _update_timer(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self._wait()
        elif not self.flow.write_paused:
            self._stop()

    def _wait(self) -> None:
        if self._timer is None:
            self._left = self.transport.get_write_buffer_size()
            self._timer = self.loop.call_later(self.timeout_keep_alive, self._timed_out)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _timed_out(self) -> None:
        self._timer = None
        left = self.transport.get_write_buffer_size()
        if 0 < left <= self._left - _PROGRESS_BYTES:
            self._wait()
        else:
            self._abort()

    def _abort(self) -> None:
        # close() would wait until the client has read the buffer.
        self._stop()
        self.connections.discard(self)
        self.transport.abort()


class BodyInTime:
    """Refuses a request whose body has not arrived after ``seconds``."""

    def __init__(self, app: ASGIApp, *, seconds: float) -> None:
        self.app = app
        self.seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI request."""
        until = time.monotonic() + self.seconds
        complete = scope["type"] != "http"

        async def receive_in_time() -> Message:
            nonlocal complete
            if complete:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), until - time.monotonic())
            except TimeoutError as error:
                raise HTTPException(408, f"The body did not arrive within {self.seconds:g} seconds.") from error
            complete = not message.get("more_body", False)
            return message

        await self.app(scope, receive_in_time, send)


# Requests that run longer are stopped at shutdown.
_GRACE_SECONDS = 2

_IDLE_SECONDS = 20

_HEADER_BYTES = 32_768

# Both, plus the files of the store, stay below 1,024, the usual limit of open files of a process.
_CONNECTIONS = 512

_BACKLOG = 256


def run(app: Any, host: str, port: int, *, started: Callable[[str], None]) -> None:
    """Serve an ASGI application; ``started`` is called with the address, without a path, once it responds.

    Raises
    ------
    InputError
        Nothing can listen there.
    """
    scratch.sweep()
    listening, url = listen(host, port, backlog=_BACKLOG)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        timeout_graceful_shutdown=_GRACE_SECONDS,
        timeout_keep_alive=_IDLE_SECONDS,
        h11_max_incomplete_event_size=_HEADER_BYTES,
        http=TimedProtocol,
        backlog=_BACKLOG,
        ws="none",
        limit_concurrency=_CONNECTIONS,
    )
    with listening:
        _Server(config, lambda: started(url)).run(sockets=[listening])


class _Server(uvicorn.Server):
    """Calls ``started`` after startup, and exits without re-raising the signal that stopped it."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._report_started = started

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._report_started()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        numbers = [signal.SIGINT, signal.SIGTERM]
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # not under nohup
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
