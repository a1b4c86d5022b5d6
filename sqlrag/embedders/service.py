"""What the providers share that are servers: address and key, attempts that end, errors that say what to do."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast
from urllib.parse import urlsplit

from sqlrag.embedders.batching import RefusedBatchError, question_waits, speaks_of_size
from sqlrag.embedders.function import DEFAULT_WINDOW, check_numbers, measure
from sqlrag.embedders.prefixes import prefixes_of
from sqlrag.embedders.scrubbing import scrub
from sqlrag.embedders.tokens import estimated_offsets
from sqlrag.errors import InputError, ModelUnavailableError, ProviderError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenacity import RetryCallState

    from sqlrag.types import TextKind, Vectors

DEFAULT_TIMEOUT = 30.0
ATTEMPTS = 6
QUERY_ATTEMPTS = 3
TOTAL_SECONDS = 180.0  # for all attempts of one batch, the waits between them included
FIRST_WAIT, LONGEST_WAIT = (
    0.5,
    20.0,
)  # seconds; each wait is twice the one before, and up to FIRST_WAIT longer by chance

_AGAIN = {408, 409, 425, 429, 500, 502, 503, 504, 529}
_LONGEST_WORDS = 500


class Failure(NamedTuple):
    """Why a request failed: the HTTP status (None where no answer came), what was said, and the answer's headers."""

    status: int | None
    message: str
    headers: Mapping[str, str]


class _AgainError(ProviderError):
    """It may go better later, after ``wait`` seconds if the server names them."""

    def __init__(self, message: str, wait: float | None) -> None:
        self.wait = wait
        super().__init__(message)


class ServiceEmbedder(ABC):
    """A model behind a server; a subclass says how to ask it.

    A request without an answer, or with HTTP 408, 409, 425, 429 or 5xx, is sent again: at most 6 times and for 180
    seconds. A query is sent 3 times and for ``timeout`` seconds, and where there is no answer at all, once.
    ``Retry-After`` is respected within these limits. Any other failure is told at once.
    """

    provider = ""
    special_tokens = 0  # the estimate of a text's tokens has room for them
    # The address that is taken where none is given, and is not written into files.
    usual_url = ""
    # What to do where the server refuses the key, and where it does not have the model.
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
        """Return one row per text, in order, as the server made them."""
        patient = kind == "document" and self.dimensions > 0 and not question_waits.get()
        return cast("Vectors", self._asked(lambda seconds: self._ask(list(texts), seconds), patient=patient))

    def token_offsets(self, text: str) -> Sequence[tuple[int, int]]:
        """Return ``(start, end)`` in characters of every token of ``text``, estimated."""
        return estimated_offsets(text)

    def _measure(self) -> None:
        """Ask for a first vector, which tells the dimensions and that all is well."""
        self.dimensions = measure(self)

    @abstractmethod
    def _ask(self, texts: list[str], seconds: float) -> list[Any]:
        """Make one request, and return a vector per text, None where one is missing."""

    @abstractmethod
    def _failure(self, error: Exception) -> Failure | None:
        """Return why a request failed, None where it is no failure of the request."""

    def _asked(self, ask: Any, *, patient: bool) -> Any:
        """Call a function with its time-out in seconds, again where it may help."""
        from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_before_delay

        total = TOTAL_SECONDS if patient else self.timeout
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
            retry=retry_if_exception_type(_AgainError),
            stop=stop_after_attempt(ATTEMPTS if patient else QUERY_ATTEMPTS) | stop_before_delay(total),
            wait=_wait,
            reraise=True,
        )
        try:
            return retrying(attempt)
        except _AgainError as error:
            seconds = time.monotonic() - began
            message = f"{error} Given up after {attempts} attempts in {seconds:.1f} s."
            raise ProviderError(message) from error.__cause__

    def _refuse(self, failure: Failure, error: Exception, *, patient: bool) -> NoReturn:
        """Raise what a failure of a request means."""
        words = scrub(failure.message, self._key).strip().rstrip(".")
        # An exception that holds a secret is no cause to be shown.
        cause = error if scrub(str(error), self._key) == str(error) else None
        words = words if len(words) <= _LONGEST_WORDS else words[:_LONGEST_WORDS] + " …"
        status = failure.status
        where = f"The {self.provider} model {self.model_name!r} at {self.base_url}"
        if status is None:
            silent = f"{where} gives no answer: {words}."
            # A question does not wait for a server that is not there.
            raise (_AgainError(silent, None) if patient else ProviderError(silent)) from cause
        said = f"{where} answered HTTP {status}: {words}."
        if status in (401, 403):
            raise ProviderError(f"{said} {self.key_remedy}") from cause
        if status == 404:
            raise ModelUnavailableError(f"{said} {self.model_remedy}") from cause
        if status in (400, 413, 422) or (status >= 500 and speaks_of_size(words)):
            raise RefusedBatchError(said, too_large=status == 413 or speaks_of_size(words)) from cause
        if status in _AGAIN and "insufficient_quota" not in words:
            raise _AgainError(said, _retry_after(failure.headers)) from cause
        raise ProviderError(said) from cause


def _wait(state: RetryCallState) -> float:
    """Return how long to wait: what the server says, else twice as long as before and a little by chance."""
    from tenacity import wait_exponential, wait_random

    error = state.outcome.exception() if state.outcome is not None else None
    if isinstance(error, _AgainError) and error.wait is not None:
        return error.wait
    return (wait_exponential(multiplier=FIRST_WAIT, max=LONGEST_WAIT) + wait_random(0, FIRST_WAIT))(state)


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
    moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    return max(0.0, (moment - datetime.now(timezone.utc)).total_seconds())


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
        It is no http address, or holds a password or parameters, which would be written into files.
    """
    try:
        parts = urlsplit(base_url)
        _ = parts.port
    except ValueError as error:
        raise InputError("base_url is no address such as http://localhost:8000/v1.") from error
    if parts.username or parts.password or parts.query or parts.fragment or "@" in parts.netloc or ";" in parts.path:
        raise InputError("base_url must not hold a user, password or parameters: files keep it. Use api_key.")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"base_url must be an address such as http://localhost:8000/v1, not {base_url!r}.")
    return base_url.rstrip("/")


def is_this_machine(base_url: str) -> bool:
    """Return whether an address is of the machine itself."""
    return urlsplit(base_url).hostname in ("localhost", "127.0.0.1", "::1")
