"""Fits the best chunks into a number of tokens, and counts tokens."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from sqlrag import arguments
from sqlrag.answers.context import Context, contexts_of, cut_item, joined, notices_of
from sqlrag.answers.prompt import block, fence_of
from sqlrag.arguments import counted
from sqlrag.cancellation import checkpoint
from sqlrag.errors import InputError, SqlragError
from sqlrag.ingest.chunk import Limits, Splitter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Sized

    from sqlrag.answers.context import Item

# Up to four Latin letters, one digit, one other visible character, or white space that contains a line end.
_PIECE = re.compile(r"[A-Za-z]{1,4}|[0-9]|[^\sA-Za-z0-9]|\s*\n\s*")

_WIDE = "\u2e7f"  # characters above, such as Han, may take two tokens of an English vocabulary


def estimate_tokens(text: str) -> int:
    """Return an upper estimate of the number of tokens; needs no model and no network.

    Up to four Latin letters, a digit, another visible character and a line end count one each, a Han character or an
    emoji two. For English documentation it is 1.2 to 1.4 times the count of byte-pair vocabularies.

    Examples
    --------
    >>> estimate_tokens("embed 768!"), estimate_tokens("鸭子"), estimate_tokens("")
    (6, 4, 0)
    """
    return sum(2 if piece > _WIDE else 1 for piece in _PIECE.findall(text))


def beginning(text: str, tokens: int) -> str:
    """Return the whole words at the beginning of a text that have at most so many tokens by :func:`estimate_tokens`.

    A first word that is longer is cut.

    Examples
    --------
    >>> beginning("embed 768 texts", 4), beginning("two words", 3), beginning("embedding", 2)
    ('embed', 'two words', 'embeddin')
    """
    for piece in _PIECE.finditer(text):
        tokens -= 2 if piece[0] > _WIDE else 1
        if tokens < 0:
            end = piece.start()
            # Between characters without spaces, such as Han, any place ends a word.
            while end and not (piece[0].isspace() or text[end - 1].isspace()) and max(piece[0], text[end - 1]) <= _WIDE:
                end -= 1
            return text[: end or piece.start()].rstrip()
    return text


def token_counter(count_tokens: Any = None) -> Callable[[str], int]:
    """Return a function that counts the tokens of a text.

    Parameters
    ----------
    count_tokens
        A function from a text to a number; anything with ``encode``, such as an encoding of tiktoken or a tokenizer of
        ``tokenizers`` or ``transformers``; an embedder, whose ``token_offsets`` are counted; or None for
        :func:`estimate_tokens`.

    Raises
    ------
    InputError
        It is none of these. The returned function raises it, too, if counting fails or the count is not 0 or more.

    Examples
    --------
    >>> token_counter(len)("abc")
    3
    """
    if count_tokens is None:
        return estimate_tokens
    if hasattr(count_tokens, "token_offsets"):
        counted = _length_of(count_tokens.token_offsets)
    elif hasattr(count_tokens, "encode") and not isinstance(count_tokens, str):
        counted = _length_of(count_tokens.encode)
    elif callable(count_tokens):
        counted = count_tokens
    else:
        raise InputError(f"count_tokens must be a function or a tokenizer, not {arguments.shown(count_tokens)}.")

    def count(text: str) -> int:
        try:
            number = counted(text)
        except SqlragError:
            raise
        except Exception as error:
            raise InputError(f"count_tokens fails: {type(error).__name__}: {error}") from error
        if isinstance(number, bool) or not isinstance(number, Integral) or number < 0:
            raise InputError(f"count_tokens must return a whole number of 0 or more, not {arguments.shown(number)}.")
        return int(number)

    return count


def _length_of(tokens: Callable[[str], Sized]) -> Callable[[str], int]:
    return lambda text: len(tokens(text))


DEFAULT_MARGIN = 0.1

# The least tokens of a chunk that are worth a place.
_SHORTEST = 64


@dataclass(frozen=True)
class LeftOut:
    """A chunk that was left out: ``tokens`` is its size, ``reason`` why."""

    node_id: str
    doc_id: str
    score: float | None
    tokens: int
    reason: str


@dataclass(frozen=True)
class FittedContext:
    """The items that fit into a number of tokens.

    ``contexts`` are the items that fit, in the given order. ``tokens`` is their size in the prompt, at most
    ``max_tokens``. ``left_out`` lists the others, in the given order; ``notices`` are those of the items, and sentences
    about what was left out or cut.
    """

    contexts: list[Any]
    tokens: int
    max_tokens: int
    left_out: list[LeftOut] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


class _Piece(NamedTuple):
    """An item with its place in the list and its size."""

    place: int
    item: Item
    context: Context
    tokens: int


def fit_context(
    results: Sequence[Item],
    max_tokens: Annotated[int, arguments.Range(ge=1)],
    *,
    count_tokens: Any = None,
    margin: Annotated[float, arguments.Range(ge=0, le=1)] = DEFAULT_MARGIN,
) -> FittedContext:
    """Choose from ranked results as many as fit a number of tokens. A pure function.

    The best comes first; among scores that are almost the same, a chunk of the document with the fewest chosen chunks
    comes first. The first chunk that no longer fits is cut, and those after it are left out, so that no chunk takes the
    place of a better one. It is cut at a blank line, the end of a line or of a sentence if the second half of what fits
    has one, and loses its ``context`` first; what is shorter than 64 tokens is left out, unless nothing else fits.

    Parameters
    ----------
    results
        Results, candidates or compressed passages, best first; their order is kept, regardless of scores. Those whose
        ``context`` overlaps that of a better one are joined with it, so that nothing is shown twice.
    max_tokens
        Space for the chunks with their source lines and fences, in tokens, 1 or more.
    count_tokens
        A function from a text to its number of tokens, or a tokenizer, best that of the chat model; None is
        :func:`sqlrag.answers.window.estimate_tokens`, an upper estimate. See
        :func:`sqlrag.answers.window.token_counter`.
    margin
        Scores are almost the same if they are lower than the best remaining one by at most this share of it, 0..1; 0
        means equal scores.

    Returns
    -------
    FittedContext
        ``contexts`` in the order of ``results``, for :func:`sqlrag.build_prompt`.

    Raises
    ------
    InputError
        An argument is out of its range, or a result has no text.

    Examples
    --------
    >>> found = [{"node_id": name, "doc_id": name[0], "text": "word " * 40, "score": score}
    ...          for name, score in (("a#0", 0.9), ("a#1", 0.88), ("b#0", 0.87), ("b#1", 0.2))]
    >>> window = fit_context(found, 150, count_tokens=lambda text: len(text.split()))
    >>> [row["node_id"] for row in window.contexts], [row.node_id for row in window.left_out]
    (['a#0', 'a#1', 'b#0'], ['b#1'])
    >>> window = fit_context(found, 100, count_tokens=lambda text: len(text.split()))
    >>> [row["node_id"] for row in window.contexts]
    ['a#0', 'b#0']
    """
    max_tokens = arguments.whole("max_tokens", max_tokens, 1)
    margin = arguments.number("margin", margin, 0, 1)
    count = token_counter(count_tokens)
    notices = notices_of(results)
    items = joined(arguments.items("results", results, "what a query returned"))
    contexts = contexts_of(items)
    fence = fence_of(contexts)
    # Sizes are counted with the highest number, since the final numbers are not known yet.
    sizes = [count(block(context, len(contexts), fence)) for context in contexts]
    pieces = list(map(_Piece, range(len(items)), items, contexts, sizes))
    chosen, left_out = _chosen(pieces, max_tokens, margin)
    room = max_tokens - sum(piece.tokens for piece in chosen)
    if left_out and (not chosen or room >= _SHORTEST):
        longer = left_out[0]
        cut = _cut(longer, room, lambda context: count(block(context, len(contexts), fence)))
        if cut is not None and (not chosen or cut.tokens >= _SHORTEST):
            chosen.append(cut)
            left_out = left_out[1:]
            whole, kept = len(longer.context.context or longer.context.text), len(cut.context.text)
            notices.append(
                f"{longer.context.node_id or 'A chunk without an id'} is cut to {kept:,} of its {whole:,} characters."
            )
    if left_out:
        notices.append(_notice(left_out, max_tokens))
    return FittedContext(
        [piece.item for piece in sorted(chosen, key=lambda piece: piece.place)],
        sum(piece.tokens for piece in chosen),
        max_tokens,
        [_left_out(piece, max_tokens) for piece in sorted(left_out, key=lambda piece: piece.place)],
        notices,
    )


def _chosen(pieces: list[_Piece], limit: int, margin: float) -> tuple[list[_Piece], list[_Piece]]:
    """Return the pieces that fit, and the others; both in the order in which they come."""
    chosen = list[_Piece]()
    scores = np.array([np.nan if piece.context.score is None else piece.context.score for piece in pieces], float)
    numbers: dict[str, int] = {}
    documents = np.array([numbers.setdefault(piece.context.doc_id, len(numbers)) for piece in pieces], int)
    # The next chunk has the lowest order: the number of chosen chunks of its document, then its place.
    order = np.arange(len(pieces))
    waiting = np.ones(len(pieces), bool)
    best = 0
    while best < len(pieces):
        checkpoint()
        close = waiting[best:] & (scores[best:] >= scores[best] - margin * abs(scores[best]))
        close[0] = True
        place = best + int(np.where(close, order[best:], np.iinfo(int).max).argmin())
        piece = pieces[place]
        waiting[place] = False
        if piece.tokens > limit:
            others = [other for other, waits in zip(pieces, waiting, strict=True) if waits]
            return chosen, [piece, *others]
        limit -= piece.tokens
        order[documents == documents[place]] += len(pieces)
        chosen.append(piece)
        while best < len(pieces) and not waiting[best]:
            best += 1
    return chosen, []


def _cut(piece: _Piece, limit: int, size: Callable[[Context], int]) -> _Piece | None:
    """Return a piece without its context, or the beginning of it that fits; None if not even a few words do."""

    def first(chars: int) -> _Piece:
        item = cut_item(piece.item, chars)
        (context,) = contexts_of([item])
        return _Piece(piece.place, item, context, size(context))

    text = piece.context.text
    if piece.context.context is not None and first(len(text)).tokens <= limit:
        return first(len(text))
    chars = bisect_right(range(len(text)), limit, lo=1, key=lambda chars: first(chars).tokens) - 1
    while chars > 0:
        end = next((end for _, end in Splitter(text, 0, len(text)).pieces(Limits(chars=chars))), 0)
        cut = first(end)
        if end and cut.tokens <= limit:
            return cut
        chars = min(chars, end) * 9 // 10  # a shorter text may have more tokens
    return None


def _left_out(piece: _Piece, limit: int) -> LeftOut:
    context = piece.context
    reason = "too long by itself" if piece.tokens > limit else "no room left after better ones"
    return LeftOut(context.node_id, context.doc_id, context.score, piece.tokens, reason)


def _notice(left_out: list[_Piece], limit: int) -> str:
    names = [piece.context.node_id or "one without an id" for piece in sorted(left_out, key=lambda piece: piece.place)]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")
    return f"{counted(len(names), 'chunk')} did not fit into {counted(limit, 'token')}: {shown}."
