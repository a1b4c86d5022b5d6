"""The base of providers that are servers: address and key, bounded retries, errors with a remedy."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast
from urllib.parse import urlsplit

from sqlrag.cancellation import patience, pause
from sqlrag.embedders.batching import RefusedBatchError, is_about_size, question_waits
from sqlrag.embedders.function import DEFAULT_WINDOW, check_numbers, estimated_offsets, measure
from sqlrag.embedders.prefixes import prefixes_of
from sqlrag.errors import InputError, ModelUnavailableError, ProviderError
from sqlrag.network import scrub

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenacity import RetryCallState

    from sqlrag.types import TextKind, Vectors

DEFAULT_TIMEOUT = 30.0

ATTEMPTS = 6

QUERY_ATTEMPTS = 3

TOTAL_SECONDS = 180.0  # for all attempts of one batch, the waits between them included

# Seconds; each wait is twice the one before, plus a random part of up to FIRST_WAIT.
FIRST_WAIT, LONGEST_WAIT = 0.5, 20.0

_RETRYABLE = {408, 409, 425, 429, 500, 502, 503, 504, 529}

_LONGEST_MESSAGE = 500


class Failure(NamedTuple):
    """Why a request failed: the HTTP status (None without an answer), the message, and the answer's headers."""

    status: int | None
    message: str
    headers: Mapping[str, str]


class _RetryableError(ProviderError):
    """A failure that a retry may fix, after ``wait`` seconds if the server names them."""

    def __init__(self, message: str, wait: float | None) -> None:
        self.wait = wait
        super().__init__(message)


class ServiceEmbedder(ABC):
    """A model behind a server; a subclass sends the requests.

    A request without an answer, or with HTTP 408, 409, 425, 429 or 5xx, is sent again: at most 6 times and for 180
    seconds. A query is sent 3 times and for ``timeout`` seconds, and where there is no answer at all, once.
    ``Retry-After`` is respected within these limits, and all of them end before a server's limit of the request that
    needs the vectors. Any other failure is reported at once.
    """

    provider = ""
    timeout: float = DEFAULT_TIMEOUT
    special_tokens = 0  # the estimate of a text's tokens has room for them
    # The default address, which is not written into files.
    usual_url = ""
    # The remedies where the server refuses the key, and where it does not have the model.
    key_remedy = ""
    model_remedy = ""

    def __init__(
        self,
        model_name: str,
        *,
        base_url: str,
        api_key: str | None,
        dimensions: int | None,
        max_tokens: int | None,
        timeout: float | None,
        batch_size: int,
        query_prefix: str | None,
        passage_prefix: str | None,
    ) -> None:
        check_numbers(dimensions=dimensions, max_tokens=max_tokens, batch_size=batch_size)
        if not model_name.strip():
            raise InputError("The name of the embedding model is blank.")
        self.timeout = DEFAULT_TIMEOUT if timeout is None else timeout
        if isinstance(self.timeout, bool) or not isinstance(self.timeout, (int, float)) or not self.timeout > 0:
            raise InputError(f"timeout must be a number of seconds above 0, not {timeout!r}.")
        self._key = _valid_key(api_key)
        self._dimensions = dimensions
        self.model_name = model_name
        self.base_url = valid_url(base_url)
        self.batch_size = batch_size
        usual_query, usual_passage = prefixes_of(model_name)
        self.query_prefix = usual_query if query_prefix is None else query_prefix
        self.passage_prefix = usual_passage if passage_prefix is None else passage_prefix
        self.max_tokens = max_tokens or DEFAULT_WINDOW
        given = {"base_url": self.base_url, "dimensions": dimensions, "max_tokens": max_tokens}
        if self.base_url == self.usual_url:
            del given["base_url"]
        self.options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        self.dimensions = 0

    def embed(self, texts: Sequence[str], *, kind: TextKind) -> Vectors:
        """Return one row per text, in order, as the server returns them."""
        patient = kind == "document" and self.dimensions > 0 and not question_waits.get()
        return cast("Vectors", self._with_retries(lambda seconds: self._ask(list(texts), seconds), patient=patient))

    def token_offsets(self, text: str) -> Sequence[tuple[int, int]]:
        """Return ``(start, end)`` in characters of every token of ``text``, estimated."""
        return estimated_offsets(text)

    def _measure(self) -> None:
        """Embed a first text, which gives the dimensions and tests the connection."""
        self.dimensions = measure(self)

    @abstractmethod
    def _ask(self, texts: list[str], seconds: float) -> list[Any]:
        """Make one request, and return a vector per text, None where one is missing."""

    @abstractmethod
    def _failure(self, error: Exception) -> Failure | None:
        """Return why a request failed, None where it is not a failure of the request."""

    def _with_retries(self, ask: Any, *, patient: bool) -> Any:
        """Call a function with its time-out in seconds; retry where that may help."""
        from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_before_delay

        total = patience(TOTAL_SECONDS if patient else self.timeout) or 0.0
        began = time.monotonic()
        attempts = 0

        def attempt() -> Any:
            nonlocal attempts
            attempts += 1
            try:
                return ask(max(0.1, min(self.timeout, began + total - time.monotonic())))
            except Exception as error:
                failure = self._failure(error)
                if failure is None:
                    raise
                self._refuse(failure, error, patient=patient)

        retrying = Retrying(
            retry=retry_if_exception_type(_RetryableError),
            stop=stop_after_attempt(ATTEMPTS if patient else QUERY_ATTEMPTS) | stop_before_delay(total),
            wait=_wait,
            sleep=pause,
            reraise=True,
        )
        try:
            return retrying(attempt)
        except _RetryableError as error:
            seconds = time.monotonic() - began
            message = f"{error} Gave up after {attempts} attempts in {seconds:.1f} s."
            raise ProviderError(message) from error.__cause__

    def _refuse(self, failure: Failure, error: Exception, *, patient: bool) -> NoReturn:
        """Raise the error for a failed request."""
        message = scrub(failure.message, self._key).strip().rstrip(".")
        # An exception that contains a secret is not shown as the cause.
        cause = error if scrub(str(error), self._key) == str(error) else None
        message = message if len(message) <= _LONGEST_MESSAGE else message[:_LONGEST_MESSAGE] + " …"
        status = failure.status
        where = f"The {self.provider} model {self.model_name!r} at {self.base_url}"
        if status is None:
            no_answer = f"{where} {CUT if was_cut(error) else 'does not answer'}: {message}."
            # A query does not wait for an unreachable server.
            raise (_RetryableError(no_answer, None) if patient else ProviderError(no_answer)) from cause
        answer = f"{where} answered HTTP {status}: {message}."
        if status in (401, 403):
            raise ProviderError(f"{answer} {self.key_remedy}") from cause
        if status == 404:
            raise ModelUnavailableError(f"{answer} {self.model_remedy}") from cause
        if status in (400, 413, 422) or (status >= 500 and is_about_size(message)):
            raise RefusedBatchError(answer, too_large=status == 413 or is_about_size(message)) from cause
        if status in _RETRYABLE and "insufficient_quota" not in message:
            raise _RetryableError(answer, _retry_after(failure.headers)) from cause
        raise ProviderError(answer) from cause


def _wait(state: RetryCallState) -> float:
    """Return how long to wait: what the server asks for, else twice the last wait plus a random part."""
    from tenacity import wait_exponential, wait_random

    error = state.outcome.exception() if state.outcome is not None else None
    if isinstance(error, _RetryableError) and error.wait is not None:
        return error.wait
    return (wait_exponential(multiplier=FIRST_WAIT, max=LONGEST_WAIT) + wait_random(0, FIRST_WAIT))(state)


CUT = "closed the connection before the end of its answer"


_CUTS = {"ReadError", "WriteError", "CloseError", "RemoteProtocolError"}  # of httpx, which clients name otherwise


def was_cut(error: BaseException | None) -> bool:
    """Return whether a request reached its server, and the connection was closed before its end."""
    return error is not None and (type(error).__name__ in _CUTS or was_cut(error.__cause__))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of ``Retry-After``, which may be a number or a date; None where it is missing or neither."""
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _valid_key(api_key: str | None) -> str | None:
    key = None if api_key is None else api_key.strip()
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise InputError("api_key has characters that no key has, such as blanks or letters beyond ASCII.")
    return key


def valid_url(base_url: str) -> str:
    """Return an address without the slash at its end.

    Raises
    ------
    InputError
        It is not an http address, or has a password or parameters, which would be written into files.
    """
    try:
        parts = urlsplit(base_url)
        _ = parts.port
    except ValueError as error:
        raise InputError("base_url is not an address such as http://localhost:8000/v1.") from error
    if parts.username or parts.password or parts.query or parts.fragment or "@" in parts.netloc or ";" in parts.path:
        raise InputError(
            "base_url must not contain a user, password or parameters: it is stored in files. Use api_key."
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"base_url must be an address such as http://localhost:8000/v1, not {base_url!r}.")
    return base_url.rstrip("/")


def is_this_machine(base_url: str) -> bool:
    """Return whether an address is on this machine."""
    return urlsplit(base_url).hostname in ("localhost", "127.0.0.1", "::1")
