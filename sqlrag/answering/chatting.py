"""Chat models: what one has to be, and those that speak OpenAI's chat completions."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, Protocol

from sqlrag import options
from sqlrag.answering.connections import ELSEWHERE, check, observe, stay
from sqlrag.answering.replies import Piece as Piece
from sqlrag.answering.replies import UnreadableError, streamed, whole_of
from sqlrag.embedders.base import without_surrogates
from sqlrag.embedders.scrubbing import scrub
from sqlrag.embedders.service import valid_url
from sqlrag.errors import InputError, MissingExtraError, ModelUnavailableError, ProviderError, SqlragError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from openai import OpenAI

USUAL_URL = "https://api.openai.com/v1"
DEFAULT_TIMEOUT = 120.0
DEFAULT_RETRIES = 2
_LONGEST_WORDS = 500  # characters of what a server says
_EVENTS = re.compile(rb"\s*(?:data|event|id|retry)?:")  # how a stream of events begins


class ChatModel(Protocol):
    """What a chat model has to be: a name and one method."""

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
        """Yield the reply to messages: as it is made, or in one piece.

        Parameters
        ----------
        messages
            Dicts with ``role`` ("system", "user" or "assistant") and ``content``, in their order.
        stream
            Whether the reply is wanted as it is made.
        temperature
            0..2; None is the model's own.
        max_tokens
            The most tokens of the reply, 1 or more; None is the model's own limit.
        stop
            Texts at which the reply ends.
        request_id
            Names the call in logs; "" where it has no name.

        Yields
        ------
        Piece
            The texts of the reply in their order, with the last one ``finish_reason`` and, if known, ``usage``.

        Raises
        ------
        ProviderError, ModelUnavailableError
            There is no reply, or it ends in the middle.
        """
        ...


class OpenAIChat:
    """Asks ``/chat/completions`` of OpenAI or of a compatible server: Ollama, vLLM, LM Studio or llama.cpp.

    A request that gets no answer, or HTTP 408, 409, 429 or 5xx, is sent again by the official client, after
    ``Retry-After`` where that is two minutes or less, else after half a second to eight. A reply that has begun is
    never asked for again. A redirect is followed on the same server only, since the prompt would go where it points.

    Parameters
    ----------
    model_name
        As the server calls it.
    base_url
        Where the server is, up to and without ``/chat/completions``, such as ``http://localhost:11434/v1`` for Ollama.
        None: ``OPENAI_BASE_URL``, else OpenAI.
    api_key
        None: ``OPENAI_API_KEY``. "" is none, as servers of your own may want it. It is in no message, log or repr.
    timeout
        How long the server may be silent, in seconds, above 0.
    max_retries
        How often a request is sent again, 0 to 10.

    Raises
    ------
    MissingExtraError
        The extra ``openai`` is not installed.
    ModelUnavailableError
        OpenAI is to be asked and there is no key.
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
        if not options.text("chat_model", model_name).strip():
            raise InputError("The name of the chat model is blank.")
        options.texts(base_url=base_url, api_key=api_key)
        if not options.number("timeout", timeout, 0, 86_400, "number of seconds") > 0:
            raise InputError("timeout must be above 0 seconds.")
        self.model_name = model_name
        self.base_url = valid_url(base_url or os.environ.get("OPENAI_BASE_URL") or USUAL_URL)
        self.timeout = float(timeout)
        self.max_retries = options.whole("max_retries", max_retries, 0, 10)
        self._key = (os.environ.get("OPENAI_API_KEY", "") if api_key is None else api_key).strip()
        if self._key and not (self._key.isascii() and self._key.isprintable() and " " not in self._key):
            raise InputError("api_key has characters that no key has, such as blanks or letters beyond ASCII.")
        self._client = self._connected()

    def __repr__(self) -> str:
        return f"OpenAIChat({self.model_name!r}, base_url={self.base_url!r})"

    def _connected(self) -> OpenAI:
        try:
            from openai import DefaultHttpxClient, OpenAI
        except ImportError as error:
            raise MissingExtraError("A chat model", "openai") from error
        if not self._key and self.base_url == USUAL_URL:
            raise ModelUnavailableError(
                f"The chat model {self.model_name!r} needs a key: set OPENAI_API_KEY or pass api_key. For a server of "
                "your own, name it by base_url."
            )
        key = self._key or "none"
        return OpenAI(
            api_key=key,
            base_url=self.base_url,
            timeout=self.timeout,
            max_retries=self.max_retries,
            # One connection for each request, so that whoever gives that up can end it, see answering/connections.py.
            default_headers={"Connection": "close"},
            http_client=DefaultHttpxClient(event_hooks={"request": [observe], "response": [stay]}),
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
            Ask for the reply as it is made. A server that sends it in one piece all the same is heard, too.
        temperature, max_tokens, stop
            None, or no text, leaves each to the server.
        request_id
            Goes to the server in the header ``X-Client-Request-Id``; "" is left out.

        Yields
        ------
        Piece
            The texts of the reply in their order, with the last one ``finish_reason`` and, if told, ``usage``.

        Raises
        ------
        ProviderError
            The server cannot be reached, refuses, or gives an answer that is none or ends in the middle.
        ModelUnavailableError
            The server does not know the model, or this object has been closed.
        """
        if self._client.is_closed():
            raise ModelUnavailableError(f"{self._name} has been closed; make a new one.")
        body: dict[str, Any] = {"model": self.model_name, "messages": list(messages), "stream": stream}
        given = {"temperature": temperature, "max_tokens": max_tokens, "stop": list(stop) or None}
        body.update({name: value for name, value in given.items() if value is not None})
        if stream:
            body["stream_options"] = {"include_usage": True}
        if request_id:
            body["extra_headers"] = {"X-Client-Request-Id": request_id}
        try:
            reply = self._asked(body)
            for piece in self._streamed(reply) if stream else [whole_of(reply)]:
                yield piece._replace(finish_reason=piece.finish_reason and self._said(piece.finish_reason))
            return
        except Exception as error:  # of the client, of its transport, or of JSON
            check()
            failure = self._failure(error)
        # Not in the handler: the error there may hold the key, and would be shown below this one.
        raise failure

    def _asked(self, body: dict[str, Any]) -> Any:
        """Send a request; where a server wants another spelling of it, send that."""
        import openai

        try:
            return self._client.chat.completions.create(**body)
        except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
            said = str(error)
            if "max_completion_tokens" in said and "max_tokens" in body:
                body["max_completion_tokens"] = body.pop("max_tokens")  # OpenAI's newer models
            elif "stream_options" in said and "stream_options" in body:
                del body["stream_options"]  # then nobody tells the usage
            else:
                raise
        return self._asked(body)

    def _streamed(self, reply: Any) -> Iterator[Piece]:
        try:
            if "event-stream" not in reply.response.headers.get("content-type", ""):
                content = reply.response.read()
                if not _EVENTS.match(content):  # it does not know of streams, or it is a page of something else
                    yield whole_of(_parsed(content))
                    return
            yield from streamed(reply)
        finally:
            reply.close()

    @property
    def _name(self) -> str:
        return f"The chat model {self.model_name!r} at {self.base_url}"

    def _said(self, words: str) -> str:
        """Return what a server says, short and without the key: all its words but the answer come through here."""
        return without_surrogates(scrub(words, self._key))[:_LONGEST_WORDS].strip().rstrip(". ")

    def _failure(self, error: Exception) -> SqlragError:
        """Return what the failure of a request means, without the key."""
        import openai

        if isinstance(error, openai.APITimeoutError) or "timeout" in type(error).__name__.lower():
            return ProviderError(f"{self._name} was silent for {self.timeout:g} s.")
        if isinstance(error, UnreadableError):
            return ProviderError(f"{self._name} {self._said(str(error))}.")
        if isinstance(error, openai.APIConnectionError):
            words = f"{error}" + (f" {error.__cause__}" if error.__cause__ else "")
            return ProviderError(f"{self._name} cannot be reached: {self._said(words)}.")
        if not isinstance(error, openai.APIStatusError):
            body = getattr(error, "body", None)
            told = (body.get("message") if isinstance(body, dict) else None) or body or error
            return ProviderError(
                f"{self._name} gave an answer that cannot be read: {self._said(f'{type(error).__name__}: {told}')}."
            )
        target = error.response.headers.get(ELSEWHERE)
        if target:
            return ProviderError(
                f"{self._name} answered HTTP {error.status_code} and points to {self._said(target)}, another server, "
                "which is not asked. If it is the right one, pass it as base_url."
            )
        told = (error.body.get("message") if isinstance(error.body, dict) else None) or error.response.text
        said = f"{self._name} answered HTTP {error.status_code}: {self._said(str(told))}."
        if error.status_code in (401, 403):
            return ProviderError(f"{said} Give the key as api_key or in OPENAI_API_KEY.")
        if error.status_code == 404:
            remedy = "Look at the model's name and at base_url, which ends where /chat/completions would follow."
            return ModelUnavailableError(f"{said} {remedy}")
        return ProviderError(said)


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode("utf-8", "replace")
