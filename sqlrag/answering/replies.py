"""What a chat model says, read with care: a server, and a model of the caller's own, may send anything."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlrag import options
from sqlrag.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_COUNTS = ("prompt_tokens", "completion_tokens")
_TEXTS = (None, "text", "output_text")  # the types of those parts of a content that are the answer


class Piece(NamedTuple):
    """A piece of a reply: text, and with the last one why it ends and what it cost.

    ``finish_reason`` is the model's own word, such as "stop" or "length". ``usage`` holds ``prompt_tokens`` and
    ``completion_tokens``; whatever else it holds is left out.
    """

    text: str = ""
    finish_reason: str | None = None
    usage: dict[str, int] | None = None


class UnreadableError(Exception):
    """A reply is none; the message is what the server did, without a period, and may hold its words."""


def checked(pieces: Iterable[Piece], name: str) -> Iterator[Piece]:
    """Yield the pieces of a model: their text can be encoded, and their usage is numbers of tokens.

    The halves of a character that come in two pieces become one; a lone half becomes U+FFFD.

    Raises
    ------
    ProviderError
        One is no piece, or its text or its finish_reason is no string.
    """
    half = ""
    for piece in pieces:
        text, finish = getattr(piece, "text", None), getattr(piece, "finish_reason", None)
        if not isinstance(text, str) or not (finish is None or isinstance(finish, str)):
            raise ProviderError(
                f"The chat model {name!r} gave an answer that cannot be read: {options.shown(piece)} is no Piece of "
                "text."
            )
        text = half + text
        half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        yield Piece(_whole_characters(text.removesuffix(half)), finish, usage_of(getattr(piece, "usage", None)))
    if half:
        yield Piece(_whole_characters(half))


def whole_of(reply: Any) -> Piece:
    """Return a reply that came in one piece."""
    choice = _first(reply)
    if choice is None:
        raise UnreadableError(f"answered without a choice: {_words_of(reply)}")
    return Piece(_text_of(_field(choice, "message")), _finish(choice) or "stop", usage_of(_field(reply, "usage")))


def streamed(chunks: Iterable[Any]) -> Iterator[Piece]:
    """Yield a reply that comes in chunks."""
    finish, usage, other = None, None, ""
    for chunk in chunks:
        usage = usage_of(_field(chunk, "usage")) or usage
        choice = _first(chunk)
        if choice is None:
            other = "" if _field(chunk, "usage") else f": {_words_of(chunk)}"
            continue
        finish = _finish(choice) or finish
        text = _text_of(_field(choice, "delta"))
        if text:
            yield Piece(text)
    if finish is None:
        raise UnreadableError(f"ended its answer in the middle{other}")
    yield Piece(finish_reason=finish, usage=usage)


def usage_of(usage: Any) -> dict[str, int] | None:
    """Return the numbers of tokens that are some, None where there are none."""
    counts = {name: _field(usage, name) for name in _COUNTS}
    sound = {
        name: int(count)
        for name, count in counts.items()
        if isinstance(count, Integral) and not isinstance(count, bool) and 0 <= int(count) <= options.MOST
    }
    return sound or None


def _text_of(message: Any) -> str:
    """Return the text of a message or a delta; of a content in parts that of its text parts."""
    content = _field(message, "content") or _field(message, "refusal")
    if content is None or isinstance(content, str):
        return content or ""
    parts = list(map(_part, content)) if isinstance(content, list) else [None]
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) < len(parts):
        raise UnreadableError(f"gave an answer that cannot be read: its content is {options.shown(content)}")
    return "".join(texts)


def _part(part: Any) -> Any:
    if not isinstance(part, Mapping):
        return part
    kind = part.get("type")
    # Others, such as what it thought before, are no part of the answer.
    return part.get("text") if kind in _TEXTS else part.get("refusal") if kind == "refusal" else ""


def _words_of(reply: Any) -> str:
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
