"""Chat models: the protocol, OpenAI's chat completions, and the validation of replies and connections."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sqlrag import arguments
from sqlrag.cancellation import patience
from sqlrag.embedders.remote import CUT, valid_url, was_cut
from sqlrag.errors import InputError, MissingExtraError, ModelUnavailableError, ProviderError, SqlragError
from sqlrag.network import scrub
from sqlrag.normalize import without_surrogates
from sqlrag.telemetry import REQUEST_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from openai import OpenAI

_COUNTS = ("prompt_tokens", "completion_tokens")

_TEXTS = (None, "text", "output_text")  # the types of content parts that belong to the answer


class Piece(NamedTuple):
    """A piece of a reply: text, and in the last one the finish reason and the usage.

    ``finish_reason`` is the model's, such as "stop" or "length". ``usage`` has ``prompt_tokens`` and
    ``completion_tokens``; other keys are left out.
    """

    text: str = ""
    finish_reason: str | None = None
    usage: dict[str, int] | None = None


class UnreadableError(Exception):
    """A reply is invalid; the message says what the server did, without a period, and may quote it."""


def checked(pieces: Iterable[Piece], name: str) -> Iterator[Piece]:
    """Yield the validated pieces of a model: text that can be encoded, and usage as numbers of tokens.

    Surrogates that come in two pieces are joined; a lone one becomes U+FFFD.

    Raises
    ------
    ProviderError
        A piece is invalid, or its text or finish_reason is not a string.
    """
    half = ""
    for piece in pieces:
        text, finish = getattr(piece, "text", None), getattr(piece, "finish_reason", None)
        if not isinstance(text, str) or not (finish is None or isinstance(finish, str)):
            raise ProviderError(
                f"The chat model {name!r} returned an invalid answer: {arguments.shown(piece)} is not a Piece of text."
            )
        text = half + text
        half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        yield Piece(_whole_characters(text.removesuffix(half)), finish, usage_of(getattr(piece, "usage", None)))
    if half:
        yield Piece(_whole_characters(half))


def whole_of(reply: Any) -> Piece:
    """Return a reply that is not streamed."""
    choice = _first(reply)
    if choice is None:
        raise UnreadableError(f"answered without a choice: {_error_text(reply)}")
    return Piece(_text_of(_field(choice, "message")), _finish(choice) or "stop", usage_of(_field(reply, "usage")))


def streamed(chunks: Iterable[Any]) -> Iterator[Piece]:
    """Yield the pieces of a streamed reply."""
    finish, usage, other = None, None, ""
    for chunk in chunks:
        usage = usage_of(_field(chunk, "usage")) or usage
        choice = _first(chunk)
        if choice is None:
            other = "" if _field(chunk, "usage") else f": {_error_text(chunk)}"
            continue
        finish = _finish(choice) or finish
        text = _text_of(_field(choice, "delta"))
        if text:
            yield Piece(text)
    if finish is None:
        raise UnreadableError(f"ended its answer in the middle{other}")
    yield Piece(finish_reason=finish, usage=usage)


def usage_of(usage: Any) -> dict[str, int] | None:
    """Return the valid numbers of tokens, None if there are none."""
    counts = {name: _field(usage, name) for name in _COUNTS}
    valid = {
        name: int(count)
        for name, count in counts.items()
        if isinstance(count, Integral) and not isinstance(count, bool) and 0 <= int(count) <= arguments.MOST
    }
    return valid or None


def _text_of(message: Any) -> str:
    """Return the text of a message or a delta; of a content with parts that of its text parts."""
    content = _field(message, "content") or _field(message, "refusal")
    if content is None or isinstance(content, str):
        return content or ""
    parts = list(map(_part, content)) if isinstance(content, list) else [None]
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) < len(parts):
        raise UnreadableError(f"returned an invalid answer: its content is {arguments.shown(content)}")
    return "".join(texts)


def _part(part: Any) -> Any:
    if not isinstance(part, Mapping):
        return part
    kind = part.get("type")
    # Other parts, such as reasoning, do not belong to the answer.
    return part.get("text") if kind in _TEXTS else part.get("refusal") if kind == "refusal" else ""


def _error_text(reply: Any) -> str:
    error = _field(reply, "error")
    return str(_field(error, "message") or error or reply)


def _first(reply: Any) -> Any:
    choices = _field(reply, "choices")
    return choices[0] if isinstance(choices, list) and choices else None


def _finish(choice: Any) -> str | None:
    finish = _field(choice, "finish_reason")
    return finish if isinstance(finish, str) else None


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _whole_characters(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


REDIRECT_HEADER = "x-elsewhere"

"""The header in which :func:`refuse_redirect` stores the address of another server."""

_current: ContextVar[Connections | None] = ContextVar("sqlrag_connections", default=None)


class Abandoned(BaseException):
    """The answer is no longer needed. Not an ``Exception``, so that it is not handled as a failure of the model."""


class Connections:
    """The connections that a context has opened, as reported by the transport of the HTTP client."""

    def __init__(self) -> None:
        self._streams: list[Any] = []
        self.ended = False

    @classmethod
    def begin(cls) -> Connections:
        """Start collecting the connections of this context."""
        connections = cls()
        _current.set(connections)
        return connections

    def end(self) -> None:
        """Shut down all connections, also future ones; blocked reads return."""
        self.ended = True
        for stream in list(self._streams):
            with suppress(OSError):  # it is already closed
                stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def watch(self, event: str, info: Mapping[str, Any]) -> None:
        """Record a connection; the extension ``trace`` of a request calls this."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            self._streams.append(info["return_value"])
            if self.ended:
                self.end()


def observe(request: Any) -> None:
    """Make a request report its connections to its context; an event hook of the HTTP client."""
    connections = check()
    if connections is not None:
        request.extensions["trace"] = connections.watch


def refuse_redirect(response: Any) -> None:
    """Refuse a redirect to another server, which would get the prompt with its documents; an event hook."""
    if response.has_redirect_location:
        here, there = response.request.url, response.request.url.join(response.headers["location"])
        if (here.scheme, here.host, here.port) != (there.scheme, there.host, there.port):
            del response.headers["location"]
            response.headers[REDIRECT_HEADER] = str(there)


def check() -> Connections | None:
    """Return the connections of this context, None if they are not collected; raise Abandoned if they were ended."""
    connections = _current.get()
    if connections is not None and connections.ended:
        raise Abandoned
    return connections


USUAL_URL = "https://api.openai.com/v1"

DEFAULT_TIMEOUT = 120.0

DEFAULT_RETRIES = 2

_LONGEST_WORDS = 500  # characters of a server's message

_EVENTS = re.compile(rb"\s*(?:data|event|id|retry)?:")  # the start of an event stream


class ChatModel(Protocol):
    """The protocol of a chat model: a name and one method."""

    model_name: str

    def chat(
        self,
        messages: Sequence[dict[str, str]],
        *,
        stream: bool = False,
        temperature: float | None = None,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        request_id: str = "",
    ) -> Iterator[Piece]:
        """Yield the reply to messages: as it is generated, or in one piece.

        Parameters
        ----------
        messages
            Dicts with ``role`` ("system", "user" or "assistant") and ``content``, in their order.
        stream
            Whether to yield the reply as it is generated.
        temperature
            0..2; None is the model's default.
        max_tokens
            The most tokens of the reply, 1 or more; None is the model's own limit.
        stop
            Texts at which the reply ends.
        request_id
            Names the call in logs; "" if it has no name.

        Yields
        ------
        Piece
            The texts of the reply in order; the last one has ``finish_reason`` and, if known, ``usage``.

        Raises
        ------
        ProviderError, ModelUnavailableError
            There is no reply, or it ends in the middle.
        """
        ...


class OpenAIChat:
    """Calls ``/chat/completions`` of OpenAI or of a compatible server: Ollama, vLLM, LM Studio or llama.cpp.

    The official client repeats a request without an answer, or with HTTP 408, 409, 429 or 5xx, after ``Retry-After`` if
    that is two minutes or less, else after half a second to eight seconds. A reply that has started is never requested
    again. Redirects to another server are refused, since it would get the prompt.

    Parameters
    ----------
    model_name
        The server's name of the model.
    base_url
        The URL of the server, without ``/chat/completions``, such as ``http://localhost:11434/v1`` for Ollama.
        None: ``OPENAI_BASE_URL``, else OpenAI.
    api_key
        None: ``OPENAI_API_KEY``. "" is no key, for servers of your own. It appears in no message, log or repr.
    timeout
        How long the server may be silent, in seconds, above 0.
    max_retries
        How often a request is sent again, 0 to 10.

    Raises
    ------
    MissingExtraError
        The extra ``openai`` is not installed.
    ModelUnavailableError
        OpenAI is used and there is no key.
    InputError
        An argument is wrong.
    """

    def __init__(
        self,
        model_name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        max_retries: int = DEFAULT_RETRIES,
    ) -> None:
        if not arguments.text("chat_model", model_name).strip():
            raise InputError("The name of the chat model is blank.")
        arguments.texts(base_url=base_url, api_key=api_key)
        if not arguments.number("timeout", timeout, 0, 86_400, "number of seconds") > 0:
            raise InputError("timeout must be above 0 seconds.")
        self.model_name = model_name
        self.base_url = valid_url(base_url or os.environ.get("OPENAI_BASE_URL") or USUAL_URL)
        self.timeout = float(timeout)
        self.max_retries = arguments.whole("max_retries", max_retries, 0, 10)
        self._key = (os.environ.get("OPENAI_API_KEY", "") if api_key is None else api_key).strip()
        if self._key and not (self._key.isascii() and self._key.isprintable() and " " not in self._key):
            raise InputError("api_key has characters that keys do not have, such as blanks or non-ASCII letters.")
        self._client = self._new_client()

    def __repr__(self) -> str:
        return f"OpenAIChat({self.model_name!r}, base_url={self.base_url!r})"

    def _new_client(self) -> OpenAI:
        try:
            from openai import DefaultHttpxClient, OpenAI
        except ImportError as error:
            raise MissingExtraError("A chat model", "openai") from error
        if not self._key and self.base_url == USUAL_URL:
            raise ModelUnavailableError(
                f"The chat model {self.model_name!r} needs a key: set OPENAI_API_KEY or pass api_key. For a server of "
                "your own, pass its base_url."
            )
        key = self._key or "none"
        return OpenAI(
            api_key=key,
            base_url=self.base_url,
            timeout=self.timeout,
            max_retries=self.max_retries,
            # One connection for each request, so that cancelling a request can close it; see Connections.
            default_headers={"Connection": "close"},
            http_client=DefaultHttpxClient(event_hooks={"request": [observe], "response": [refuse_redirect]}),
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def chat(
        self,
        messages: Sequence[dict[str, str]],
        *,
        stream: bool = False,
        temperature: float | None = None,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        request_id: str = "",
    ) -> Iterator[Piece]:
        """Yield the reply to messages; the parameters are those of :meth:`ChatModel.chat`.

        Parameters
        ----------
        messages
            Dicts with ``role`` and ``content``.
        stream
            Request the reply as it is generated. A reply in one piece is accepted, too.
        temperature, max_tokens, stop
            None, or no text, uses the server's defaults.
        request_id
            Sent to the server in the headers ``X-Client-Request-Id``, which OpenAI reads, and ``X-Request-ID``; "" is
            left out.

        Yields
        ------
        Piece
            The texts of the reply in order; the last one has ``finish_reason`` and, if reported, ``usage``.

        Raises
        ------
        ProviderError
            The server cannot be reached, refuses, or returns an invalid or incomplete answer.
        ModelUnavailableError
            The server does not know the model, or this object has been closed.
        """
        if self._client.is_closed():
            raise ModelUnavailableError(f"{self._name} has been closed; create a new one.")
        body: dict[str, Any] = {"model": self.model_name, "messages": list(messages), "stream": stream}
        given = {"temperature": temperature, "max_tokens": max_tokens, "stop": list(stop) or None}
        body.update({name: value for name, value in given.items() if value is not None})
        if stream:
            body["stream_options"] = {"include_usage": True}
        if request_id:
            body["extra_headers"] = {"X-Client-Request-Id": request_id, REQUEST_ID: request_id}
        client, seconds = self._within_request()
        try:
            reply = self._send(client, body)
            for piece in self._streamed(reply) if stream else [whole_of(reply)]:
                yield piece._replace(finish_reason=piece.finish_reason and self._cleaned(piece.finish_reason))
            return
        except Exception as error:  # of the client, of its transport, or of JSON
            check()
            failure = self._failure(error, seconds)
        # Outside of the handler: the original error may contain the key, and would be shown as the context of this one.
        raise failure

    def _within_request(self) -> tuple[OpenAI, float]:
        """Return the client and its time-out: all attempts together end before the request that needs the reply."""
        left = patience()
        if left is None:
            return self._client, self.timeout
        retries = min(self.max_retries, int(left // DEFAULT_TIMEOUT))
        seconds = min(self.timeout, left / (retries + 1))
        return self._client.with_options(timeout=seconds, max_retries=retries), seconds

    def _send(self, client: OpenAI, body: dict[str, Any]) -> Any:
        """Send a request; if the server requires other parameter names, send it with those."""
        import openai

        try:
            return client.chat.completions.create(**body)
        except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
            message = str(error)
            if "max_completion_tokens" in message and "max_tokens" in body:
                body["max_completion_tokens"] = body.pop("max_tokens")  # OpenAI's newer models
            elif "stream_options" in message and "stream_options" in body:
                del body["stream_options"]  # the usage is then not reported
            else:
                raise
        return self._send(client, body)

    def _streamed(self, reply: Any) -> Iterator[Piece]:
        try:
            if "event-stream" not in reply.response.headers.get("content-type", ""):
                content = reply.response.read()
                if not _EVENTS.match(content):  # the server does not stream, or it is no chat server
                    yield whole_of(_parsed(content))
                    return
            yield from streamed(reply)
        finally:
            reply.close()

    @property
    def _name(self) -> str:
        return f"The chat model {self.model_name!r} at {self.base_url}"

    def _cleaned(self, words: str) -> str:
        """Return a message of the server, shortened and without the key; all its texts except answers pass here."""
        return without_surrogates(scrub(words, self._key))[:_LONGEST_WORDS].strip().rstrip(". ")

    def _failure(self, error: Exception, seconds: float) -> SqlragError:
        """Return the error for a failed request, without the key."""
        import openai

        if isinstance(error, openai.APITimeoutError) or "timeout" in type(error).__name__.lower():
            return ProviderError(f"{self._name} did not respond for {seconds:.3g} s.")
        if isinstance(error, UnreadableError):
            return ProviderError(f"{self._name} {self._cleaned(str(error))}.")
        if was_cut(error):
            return ProviderError(f"{self._name} {CUT}: {self._cleaned(str(error.__cause__ or error))}.")
        if isinstance(error, openai.APIConnectionError):
            words = f"{error}" + (f" {error.__cause__}" if error.__cause__ else "")
            remedy = "Check that the server is running and that its address is right."
            return ProviderError(f"{self._name} cannot be reached: {self._cleaned(words)}. {remedy}")
        if not isinstance(error, openai.APIStatusError):
            body = getattr(error, "body", None)
            message = (body.get("message") if isinstance(body, dict) else None) or body or error
            return ProviderError(
                f"{self._name} returned an invalid answer: {self._cleaned(f'{type(error).__name__}: {message}')}."
            )
        target = error.response.headers.get(REDIRECT_HEADER)
        if target:
            return ProviderError(
                f"{self._name} answered HTTP {error.status_code} and redirects to {self._cleaned(target)}, another "
                "server, which was not called. If it is the right one, pass it as base_url."
            )
        words = (error.body.get("message") if isinstance(error.body, dict) else None) or error.response.text
        message = f"{self._name} answered HTTP {error.status_code}: {self._cleaned(str(words))}."
        if error.status_code in (401, 403):
            return ProviderError(f"{message} Set the key by api_key or OPENAI_API_KEY.")
        if error.status_code == 404:
            remedy = "Check the model's name and base_url, which must end before /chat/completions."
            return ModelUnavailableError(f"{message} {remedy}")
        return ProviderError(message)


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode("utf-8", "replace")
