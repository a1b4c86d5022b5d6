"""Chat models: what one has to be, and those that speak OpenAI's chat completions."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sqlrag import options
from sqlrag.answering.connections import check, observe
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


class Piece(NamedTuple):
    """A piece of a reply: text, and with the last one why it ends and what it cost.

    ``finish_reason`` is the model's own word, such as "stop" or "length". ``usage`` holds ``prompt_tokens`` and
    ``completion_tokens``.
    """

    text: str = ""
    finish_reason: str | None = None
    usage: dict[str, int] | None = None


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
        """Yield the reply to messages (``role`` and ``content`` each): as it is made, or in one piece.

        Raises ProviderError or ModelUnavailableError where there is none, also in the middle of it.
        """
        ...


class OpenAIChat:
    """Asks ``/chat/completions`` of OpenAI or of a compatible server: Ollama, vLLM, LM Studio or llama.cpp.

    A request that gets no answer, or HTTP 408, 409, 429 or 5xx, is sent again by the official client, after
    ``Retry-After`` where that is two minutes or less, else after half a second to eight. A reply that has begun is
    never asked for again.

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
            http_client=DefaultHttpxClient(event_hooks={"request": [observe]}),
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
        """Yield the reply to messages; see :class:`ChatModel`."""
        body: dict[str, Any] = {"model": self.model_name, "messages": list(messages), "stream": stream}
        given = {"temperature": temperature, "max_tokens": max_tokens, "stop": list(stop) or None}
        body.update({name: value for name, value in given.items() if value is not None})
        if stream:
            body["stream_options"] = {"include_usage": True}
        if request_id:
            body["extra_headers"] = {"X-Client-Request-Id": request_id}
        try:
            reply = self._asked(body)
            yield from (self._streamed(reply) if stream else self._whole(reply))
        except Exception as error:  # of the client, of its transport, or of JSON
            check()
            if isinstance(error, SqlragError):
                raise
            raise self._failure(error) from error

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

    def _whole(self, reply: Any) -> Iterator[Piece]:
        choices = getattr(reply, "choices", None)
        if not choices:
            raise ProviderError(f"{self._name} answered without a choice: {str(reply)[:_LONGEST_WORDS]}")
        message = choices[0].message
        text = (message and (message.content or message.refusal)) or ""
        yield Piece(text, choices[0].finish_reason or "stop", _usage(reply))

    def _streamed(self, reply: Any) -> Iterator[Piece]:
        finish, usage = None, None
        try:
            for chunk in reply:
                usage = _usage(chunk) or usage
                for choice in (getattr(chunk, "choices", None) or ())[:1]:
                    finish = choice.finish_reason or finish
                    text = choice.delta and (choice.delta.content or choice.delta.refusal)
                    if text:
                        yield Piece(text)
        finally:
            reply.close()
        if finish is None:
            raise ProviderError(f"{self._name} ended its answer in the middle.")
        yield Piece(finish_reason=finish, usage=usage)

    @property
    def _name(self) -> str:
        return f"The chat model {self.model_name!r} at {self.base_url}"

    def _failure(self, error: Exception) -> SqlragError:
        """Return what the failure of a request means, without the key."""
        import openai

        if isinstance(error, openai.APITimeoutError) or "timeout" in type(error).__name__.lower():
            return ProviderError(f"{self._name} was silent for {self.timeout:g} s.")
        words = f"{type(error).__name__}: {error}"
        if isinstance(error, openai.APIStatusError):
            body = error.body if isinstance(error.body, dict) else {}
            words = str(body.get("message") or error.response.text).strip()
        elif isinstance(error, openai.APIConnectionError):
            words = f"{error}" + (f" {error.__cause__}" if error.__cause__ else "")
        words = scrub(words, self._key)[:_LONGEST_WORDS].rstrip(". ")
        if not isinstance(error, openai.APIStatusError):
            if isinstance(error, openai.APIConnectionError):
                return ProviderError(f"{self._name} cannot be reached: {words}.")
            return ProviderError(f"{self._name} gave an answer that cannot be read: {words}.")
        said = f"{self._name} answered HTTP {error.status_code}: {words}."
        if error.status_code in (401, 403):
            return ProviderError(f"{said} Give the key as api_key or in OPENAI_API_KEY.")
        if error.status_code == 404:
            remedy = "Look at the model's name and at base_url, which ends where /chat/completions would follow."
            return ModelUnavailableError(f"{said} {remedy}")
        return ProviderError(said)


def _usage(reply: Any) -> dict[str, int] | None:
    usage = getattr(reply, "usage", None)
    if usage is None:
        return None
    counts = {name: getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens")}
    return {name: number for name, number in counts.items() if isinstance(number, int)} or None
