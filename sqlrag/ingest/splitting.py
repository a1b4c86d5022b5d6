"""Cut a stretch of text into pieces of bounded size at the best borders there are."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    TokenOffsets = Callable[[str], Sequence[tuple[int, int]]]

_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")
_LINE_END = re.compile(r"\n")
_SENTENCE_END = re.compile(r"""[.!?…؟।]["'”’»)\]]*\s+|[。！？]["'”’」』）]*\s*""")
_SPACE = re.compile(r"\s+")
# Joiners, variation selectors, skin tones and the second half of a surrogate pair belong to the character before.
_CONTINUES = re.compile("[\u200c\u200d\ufe00-\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f\udc00-\udfff]")


class Limits(NamedTuple):
    """The greatest size of a piece; the overlap counts characters where these are limited, else tokens."""

    tokens: int | None = None
    chars: int | None = None
    overlap: int = 0
    most: int | None = None  # characters in any case: a tokenizer may count a run without blanks as one token


def _skip_space(text: str, start: int, end: int) -> int:
    """Return the first offset from ``start`` on that is not blank, at most ``end``."""
    space = _SPACE.match(text, start, end)
    return space.end() if space else start


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the borders of ``text[start:end]`` without the blank space at both ends."""
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), max(start, end - len(piece) + len(piece.rstrip()))


class Splitter:
    """One stretch of text, ``text[start:end]``, whose tokens are counted once.

    Parameters
    ----------
    text : str
        The whole text; all offsets count its characters.
    start, end : int
        The stretch.
    token_offsets : callable, optional
        As in :class:`sqlrag.types.Embedder`; needed where a limit counts tokens.
    """

    def __init__(self, text: str, start: int, end: int, token_offsets: TokenOffsets | None = None) -> None:
        self.text = text
        self.start, self.end = trimmed(text, start, end)
        self._token_offsets = token_offsets

    @cached_property
    def _tokens(self) -> list[int]:
        """Where each token begins."""
        if self._token_offsets is None:
            return []
        return sorted(self.start + token[0] for token in self._token_offsets(self.text[self.start : self.end]))

    def fits(self, start: int, limits: Limits) -> bool:
        """Say whether the stretch from ``start`` to its end is within the limits."""
        tokens = len(self._tokens) - bisect_left(self._tokens, start) if limits.tokens is not None else 0
        longest = min((n for n in (limits.chars, limits.most) if n is not None), default=self.end - start)
        return tokens <= (limits.tokens or 0) and self.end - start <= longest

    def pieces(self, limits: Limits, fences: Sequence[tuple[int, int]] = ()) -> Iterator[tuple[int, int]]:
        """Yield the (start, end) of each piece in order; together they hold every non-blank character.

        A cut is made at the last blank line of the second half of what fits, else at a line end there, a sentence end
        there, else after a word, else anywhere but inside a composed character. A fence that fits is never cut. The
        size is kept at any price: a composed character that is larger by itself is cut. Each piece repeats the overlap,
        half of the piece before it at most, from the beginning of a line, a sentence or a word.
        """
        if self.end <= self.start:
            return
        if self.fits(self.start, limits):
            yield self.start, self.end
            return
        borders = _Borders(self.text, self.start, self.end, self._whole(fences, limits))
        position = done = self.start
        while done < self.end:
            position = _skip_space(self.text, position, self.end)
            end = self._piece_end(position, done, limits, borders)
            if end <= done:
                # The repeated text left no room for anything new.
                position = done
                continue
            yield trimmed(self.text, position, end)
            done = _skip_space(self.text, end, self.end)
            position = borders.resume(self._back(end, position, limits), end)

    def _piece_end(self, position: int, done: int, limits: Limits, borders: _Borders) -> int:
        """Return where the piece that begins at ``position`` ends; ``done`` or less if it cannot pass ``done``."""
        limit = self._reach(position, limits)
        while True:
            end = borders.cut(position, max(done, position), limit)
            _, last = trimmed(self.text, position, end)
            excess = self._excess(position, last, limits)
            if excess <= 1 or last - position <= 1:
                return end
            # A slice can have more tokens than the same stretch has within its surroundings: take less of it.
            limit = max(position + 1, min(last - 1, position + int((last - position) / excess)))

    def _reach(self, position: int, limits: Limits) -> int:
        """Return the greatest end that the counted tokens and the characters allow, ``position + 1`` at least."""
        end = self.end
        if limits.tokens is not None:
            beyond = bisect_left(self._tokens, position) + limits.tokens
            end = self._tokens[beyond] if beyond < len(self._tokens) else end
        for most in (limits.chars, limits.most):
            if most is not None:
                end = min(end, position + most)
        return max(end, position + 1)

    def _excess(self, start: int, end: int, limits: Limits) -> float:
        """Return the tokens of a slice, counted anew, as a multiple of the limit."""
        if limits.tokens is None or self._token_offsets is None:
            return 0.0
        return len(self._token_offsets(self.text[start:end])) / limits.tokens

    def _back(self, end: int, position: int, limits: Limits) -> int:
        """Return the earliest offset from which the next piece may repeat the one that ends at ``end``."""
        if limits.chars is not None:
            earliest = end - limits.overlap
        else:
            first = max(0, bisect_left(self._tokens, end) - limits.overlap)
            earliest = self._tokens[first] if first < len(self._tokens) else end
        # More than half would multiply the pieces where a long heading path or a fence makes them short.
        return max(earliest, position + (end - position + 1) // 2)

    def _whole(self, fences: Sequence[tuple[int, int]], limits: Limits) -> list[tuple[int, int]]:
        """Return the fences that fit into a piece."""
        return [
            (start, end)
            for start, end in (trimmed(self.text, *fence) for fence in fences)
            if self._reach(start, limits) >= end and self._excess(start, end, limits) <= 1
        ]


class _Borders:
    """Where a stretch may be cut, by kind of border: an offset is that of the first character after the cut."""

    def __init__(self, text: str, start: int, end: int, whole: list[tuple[int, int]]) -> None:
        self.text, self.start, self.end = text, start, end
        self.whole = whole
        self.whole_starts = [fence[0] for fence in whole]

    def _find(self, pattern: re.Pattern[str]) -> list[int]:
        found = (match.end() for match in pattern.finditer(self.text, self.start, self.end))
        return [offset for offset in found if self._fence_around(offset) is None]

    @cached_property
    def coarse(self) -> list[list[int]]:
        """Blank lines, line ends, sentence ends."""
        return [self._find(pattern) for pattern in (_BLANK_LINES, _LINE_END, _SENTENCE_END)]

    @cached_property
    def words(self) -> list[int]:
        return self._find(_SPACE)

    def _fence_around(self, offset: int) -> tuple[int, int] | None:
        """Return the whole fence that a cut at ``offset`` would break."""
        i = bisect_left(self.whole_starts, offset) - 1
        return self.whole[i] if i >= 0 and offset < self.whole[i][1] else None

    def cut(self, position: int, done: int, limit: int) -> int:
        """Return the best cut after ``done`` and not after ``limit``; only blank space may lie beyond the limit."""
        if limit >= self.end:
            return self.end
        # Blank space is trimmed from pieces, so it is free.
        reach = _skip_space(self.text, limit, self.end)
        fence = self._fence_around(reach)
        if fence is not None and position < fence[0]:
            # Where the fence comes next already, it is the repeated text before it that has to go.
            return max(done, fence[0])
        middle = max(done, position + (limit - position) // 2)
        for kind, least in [*((kind, middle) for kind in self.coarse), (self.words, done)]:
            i = bisect_right(kind, reach) - 1
            if i >= 0 and kind[i] > least:
                return kind[i]
        return self._between_characters(position, limit)

    def _between_characters(self, position: int, limit: int) -> int:
        """Return the last offset up to ``limit`` that parts no composed character; ``limit`` if there is none."""
        for offset in range(limit, position, -1):
            after, before = self.text[offset], self.text[offset - 1]
            joined = unicodedata.combining(after) or unicodedata.category(after) in {"Mn", "Me", "Mc"}
            if not joined and before != "\u200d" and not _CONTINUES.match(after):
                return offset
        return limit

    def resume(self, earliest: int, end: int) -> int:
        """Return where the next piece begins: a line or sentence early in the repeated text, else a word of it."""
        middle = earliest + (end - earliest) // 2
        for kind, last in [*((kind, middle) for kind in self.coarse), (self.words, end)]:
            i = bisect_left(kind, earliest)
            if i < len(kind) and kind[i] <= last:
                return kind[i]
        return end
