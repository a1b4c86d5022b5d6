"""Telemetry of the process: counters, seconds by stage, OpenTelemetry spans, and the id of a request."""

from __future__ import annotations

import logging
import re
import time
import uuid
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlrag import arguments
from sqlrag.errors import InputError
from sqlrag.locks import new_lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, MutableMapping

# The stages that are counted, with the name of their counter.
_STAGES = {
    "ingest": "ingests",
    "embedding": "embedding_calls",
    "search": "searches",
    "model": "model_calls",
    "answer": "answers",
}

_NAMES = (
    *("files", "documents", "chunks", "failed_documents", "embedded_texts", "prompt_tokens", "completion_tokens"),
    *(name for stage, counter in _STAGES.items() for name in (counter, f"{stage}_seconds")),
    # A failed ingest writes no log row and is not counted either.
    *(f"failed_{counter}" for stage, counter in _STAGES.items() if stage != "ingest"),
)

_REQUEST_ID = re.compile(r"[!-~]{1,128}")

_counters: dict[str, float] = dict.fromkeys(_NAMES, 0)

_lock = new_lock()

_request: ContextVar[str | None] = ContextVar("sqlrag_request_id", default=None)


def metrics() -> dict[str, float]:
    """Return a copy of the counters of this process; safe to call from any thread.

    Returns
    -------
    dict
        By name, sorted; every name is there from the start, at 0. ``ingests`` counts builds and updates that
        succeeded, with their ``files``, ``documents``, ``chunks`` and ``failed_documents``. ``embedding_calls`` (with
        ``embedded_texts``), ``searches``, ``model_calls`` and ``answers`` count all that have ended,
        ``failed_…`` those that failed. ``ingest_seconds``, ``embedding_seconds``, ``search_seconds``,
        ``model_seconds`` and ``answer_seconds`` are wall time. ``prompt_tokens`` and ``completion_tokens`` are what
        chat models have reported.

    Examples
    --------
    >>> metrics()["model_calls"] >= metrics()["failed_model_calls"]
    True
    """
    with _lock:
        return {name: round(_counters[name], 6) for name in sorted(_counters)}


def count(**numbers: float) -> None:
    """Add numbers to counters, by their names."""
    with _lock:
        for name, number in numbers.items():
            _counters[name] += number


class Measure:
    """A running stage, recorded once at its end as a counter, seconds and a span.

    ``attributes`` go to the span alone. It may be ended in another thread, or between two steps of an iterator, since
    it does not make itself the current span.
    """

    def __init__(
        self, stage: str, *, parent: Measure | None = None, attributes: Mapping[str, str | int] | None = None
    ) -> None:
        self.stage = stage
        self.began = time.perf_counter()
        self._ended = False
        request = current_request()
        named = {**({"sqlrag.request_id": request} if request else {}), **(attributes or {})}
        self.span = _start_span(f"sqlrag.{stage}", parent, named)

    def end(self, error: object = None) -> float:
        """End it, with or without an error; return its seconds. A second call changes nothing."""
        seconds = time.perf_counter() - self.began
        if self._ended:
            return seconds
        self._ended = True
        counter = _STAGES.get(self.stage)
        if counter:
            failed = {} if error is None else {f"failed_{counter}": 1}
            count(**{counter: 1, f"{self.stage}_seconds": seconds}, **failed)
        if self.span is not None:
            if error is not None:
                _mark_failed(self.span, error)
            self.span.end()
        return seconds


@contextmanager
def measured(
    stage: str,
    timings: MutableMapping[str, float] | None = None,
    *,
    parent: Measure | None = None,
    attributes: Mapping[str, str | int] | None = None,
) -> Iterator[Measure]:
    """Measure a block as a stage, with its seconds added to ``timings``; its span is the current one meanwhile.

    Not for a block with ``yield``: the code that iterates would run inside the span.
    """
    measure = Measure(stage, parent=parent, attributes=attributes)
    failure: BaseException | None = None
    try:
        with _current(measure.span):
            yield measure
    except BaseException as error:
        failure = error
        raise
    finally:
        seconds = measure.end(failure)
        if timings is not None:
            timings[stage] = timings.get(stage, 0.0) + seconds


# The id of a request.


def current_request() -> str | None:
    """Return the id of the request that this thread or task works on, None outside of one."""
    return _request.get()


def request_id_of(given: str | None) -> str:
    """Return the id of a request: the given one, that of the request around, or a new one.

    Raises
    ------
    InputError
        It is not 1 to 128 visible ASCII characters, which a header of HTTP can carry.
    """
    if given is None:
        return current_request() or uuid.uuid4().hex
    if not isinstance(given, str) or not _REQUEST_ID.fullmatch(given):
        raise InputError(
            f"request_id must be 1 to 128 visible ASCII characters without blanks, not {arguments.shown(given)}."
        )
    return given


REQUEST_ID = "X-Request-ID"


def taken_over(given: Iterable[str]) -> str:
    """Return the first of the ids that other programs have given a request that can be its id, else a new one."""
    return next(filter(_REQUEST_ID.fullmatch, given), uuid.uuid4().hex)


def request_headers() -> dict[str, str]:
    """Return the header that tells other servers the id of the request that this thread or task works on."""
    current = current_request()
    return {REQUEST_ID: current} if current else {}


@contextmanager
def request(request_id: str) -> Iterator[None]:
    """Make a block part of a request, for what it calls in this thread."""
    token = _request.set(request_id)
    try:
        yield
    finally:
        _request.reset(token)


class RequestLog(logging.LoggerAdapter[logging.Logger]):
    """Puts the id of the request before each message, and into the record as ``request_id``."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Return the message and its arguments with the id."""
        extra = dict(self.extra or {})
        return f"[{extra['request_id']}] {msg}", {**kwargs, "extra": extra}


# OpenTelemetry, where its API is installed; without it, or without a configured SDK, spans do nothing.


@cache
def _tracing() -> Any:
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace


def _start_span(name: str, parent: Measure | None, attributes: dict[str, str | int]) -> Any:
    trace = _tracing()
    if trace is None:
        return None
    context = trace.set_span_in_context(parent.span) if parent is not None and parent.span is not None else None
    return trace.get_tracer("sqlrag").start_span(name, context=context, attributes=attributes)


def _mark_failed(span: Any, error: object) -> None:
    trace = _tracing()
    # The name alone: an error message may contain text of documents.
    description = type(error).__name__ if isinstance(error, BaseException) else str(error)
    span.set_status(trace.Status(trace.StatusCode.ERROR, description))


@contextmanager
def _current(span: Any) -> Iterator[None]:
    if span is None:
        yield
        return
    with _tracing().use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
        yield
