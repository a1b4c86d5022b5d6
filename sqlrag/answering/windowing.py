"""Choosing what fits: as many of the best chunks as a number of tokens allows."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sqlrag import options
from sqlrag.answering.contexts import Context, contexts_of, cut_item, notices_of
from sqlrag.answering.counting import token_counter
from sqlrag.answering.prompting import block, fence_of
from sqlrag.ingest.splitting import Limits, Splitter
from sqlrag.stopping import checkpoint
from sqlrag.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlrag.answering.contexts import Item

DEFAULT_MARGIN = 0.1


@dataclass(frozen=True)
class LeftOut:
    """A chunk that found no place: ``tokens`` is what it would have taken, ``reason`` why it was left out."""

    node_id: str
    doc_id: str
    score: float | None
    tokens: int
    reason: str


@dataclass(frozen=True)
class FittedContext:
    """What fits into a number of tokens.

    ``contexts`` are those of the items that were given which fit, in the order in which they were given. ``tokens`` is
    what they take as the prompt shows them, at most ``max_tokens``. ``left_out`` tells of the others, in the order in
    which they were given; ``notices`` are those of the items, and say in words what was left out or cut.
    """

    contexts: list[Any]
    tokens: int
    max_tokens: int
    left_out: list[LeftOut] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


class _Piece(NamedTuple):
    """An item with its place in the list and what it takes."""

    place: int
    item: Item
    context: Context
    tokens: int


def fit_context(
    results: Sequence[Item],
    max_tokens: int,
    *,
    count_tokens: Any = None,
    margin: float = DEFAULT_MARGIN,
) -> FittedContext:
    """Choose from ranked results as many as fit a number of tokens. A pure function.

    The best comes first; where others score almost the same, one of a document that has fewer chunks chosen so far goes
    before. A chunk that does not fit beside those chosen before it is left out, and the room that is left goes to
    smaller ones after it: no chunk is left out for the sake of a lower one, but within the margin. Where the best chunk
    by itself is longer than all the room, it is cut, at a blank line, the end of a line or of a sentence if the second
    half of what fits has one; others that are too long by themselves are left out.

    Parameters
    ----------
    results
        Results, candidates or compressed passages, best first; their order is kept, whatever their scores.
    max_tokens
        Room for the chunks with their source lines and fences, in tokens, 1 or more.
    count_tokens
        A function from a text to its number of tokens, or a tokenizer, best that of the chat model; None is
        :func:`sqlrag.answering.counting.estimate_tokens`, which rather counts too many. See
        :func:`sqlrag.answering.counting.token_counter`.
    margin
        Scores are almost the same as the best one left if they are at most this share of it lower, 0..1; 0 asks for
        equal scores.

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
    max_tokens = options.whole("max_tokens", max_tokens, 1)
    margin = options.number("margin", margin, 0, 1)
    count = token_counter(count_tokens)
    notices = notices_of(results)
    items = options.items("results", results, "what a query returned")
    contexts = contexts_of(items)
    fence = fence_of(contexts)
    # A number takes as much as the last one's does, whatever numbers the chosen ones get.
    sizes = [count(block(context, len(contexts), fence)) for context in contexts]
    pieces = list(map(_Piece, range(len(items)), items, contexts, sizes))
    chosen, left_out = _chosen(pieces, max_tokens, margin)
    longest = pieces[0] if pieces and pieces[0].tokens > max_tokens else None
    if longest is not None:
        cut = _cut(longest, max_tokens, lambda context: count(block(context, len(contexts), fence)))
        if cut is not None:
            # It is the best: nothing that was chosen in its place goes before it.
            chosen, left_out = _chosen([cut, *pieces[1:]], max_tokens, margin)
            whole, kept = len(longest.context.text), len(cut.context.text)
            notices.append(
                f"{longest.context.node_id or 'A chunk without an id'} is cut to {kept:,} of its {whole:,} characters."
            )
    if left_out:
        notices.append(_told(left_out, max_tokens))
    return FittedContext(
        [piece.item for piece in sorted(chosen, key=lambda piece: piece.place)],
        sum(piece.tokens for piece in chosen),
        max_tokens,
        [_left(piece, max_tokens) for piece in sorted(left_out, key=lambda piece: piece.place)],
        notices,
    )


def _chosen(pieces: list[_Piece], room: int, margin: float) -> tuple[list[_Piece], list[_Piece]]:
    """Return the pieces that fit and those that do not."""
    chosen, left_out = list[_Piece](), list[_Piece]()
    scores = np.array([np.nan if piece.context.score is None else piece.context.score for piece in pieces], float)
    numbers: dict[str, int] = {}
    documents = np.array([numbers.setdefault(piece.context.doc_id, len(numbers)) for piece in pieces], int)
    # What the next one is the least of: how many of its document are chosen, then its place.
    order = np.arange(len(pieces))
    waiting = np.ones(len(pieces), bool)
    least, best = min((piece.tokens for piece in pieces), default=0), 0
    while best < len(pieces) and least <= room:
        checkpoint()
        close = waiting[best:] & (scores[best:] >= scores[best] - margin * abs(scores[best]))
        close[0] = True
        place = best + int(np.where(close, order[best:], np.iinfo(int).max).argmin())
        waiting[place] = False
        piece = pieces[place]
        if piece.tokens <= room:
            room -= piece.tokens
            order[documents == documents[place]] += len(pieces)
            chosen.append(piece)
        else:
            left_out.append(piece)
        while best < len(pieces) and not waiting[best]:
            best += 1
    # Of those that are left none is small enough.
    return chosen, left_out + [piece for piece, waits in zip(pieces, waiting, strict=True) if waits]


def _cut(piece: _Piece, room: int, size: Callable[[Context], int]) -> _Piece | None:
    """Return the beginning of a piece that fits the room, None where not even a few words do."""

    def beginning(chars: int) -> _Piece:
        item = cut_item(piece.item, chars)
        (context,) = contexts_of([item])
        return _Piece(piece.place, item, context, size(context))

    text = piece.context.text
    chars = bisect_right(range(len(text)), room, lo=1, key=lambda chars: beginning(chars).tokens) - 1
    while chars > 0:
        end = next((end for _, end in Splitter(text, 0, len(text)).pieces(Limits(chars=chars))), 0)
        cut = beginning(end)
        if end and cut.tokens <= room:
            return cut
        chars = min(chars, end) * 9 // 10  # a tokenizer may count more for less
    return None


def _left(piece: _Piece, room: int) -> LeftOut:
    context = piece.context
    reason = "too long by itself" if piece.tokens > room else "no room beside better ones"
    return LeftOut(context.node_id, context.doc_id, context.score, piece.tokens, reason)


def _told(left_out: list[_Piece], room: int) -> str:
    names = [piece.context.node_id or "one without an id" for piece in sorted(left_out, key=lambda piece: piece.place)]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")
    return f"{counted(len(names), 'chunk')} did not fit into {counted(room, 'token')}: {shown}."
