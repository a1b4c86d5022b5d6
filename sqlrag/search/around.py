"""What stands around a chunk in its document: small pieces are found, and more is read."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import replace
from functools import cache
from itertools import pairwise, takewhile
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlrag.arguments import shortened
from sqlrag.ingest.chunk import trimmed
from sqlrag.ingest.sentences import sentence_spans
from sqlrag.links import blocks_of, is_markdown
from sqlrag.types import PAD
from sqlrag.visible import table_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlrag.engines.base import Engine
    from sqlrag.ingest.sentences import Span
    from sqlrag.ranking.plan import SearchOptions
    from sqlrag.types import Candidate


_HEADING = re.compile(r"#+ [^\n]*")

# Without one of these a text has no code and no table.
_SIGNS = re.compile(r"```|~~~|-[ \t]*\||\|[ \t]*:?-|^(?: {4}|[ >]*\t)", re.MULTILINE)


class _Near(NamedTuple):
    """A chunk near a candidate, without its text."""

    number: int
    start: int
    end: int
    path: Sequence[str]
    shown: str | None


def shares(lengths: Sequence[int], limit: int) -> list[int]:
    """Return how much of each text fits, so that all take at most ``limit`` characters.

    Each gets an equal part; what short ones do not use goes to the longer ones.

    Examples
    --------
    >>> shares([10, 500, 300], 400), shares([10, 20], 400)
    ([10, 195, 195], [10, 20])
    """
    given = [0] * len(lengths)
    shortest_first = sorted(range(len(lengths)), key=lengths.__getitem__)
    for left, place in enumerate(shortest_first):
        given[place] = min(lengths[place], limit // (len(lengths) - left))
        limit -= given[place]
    return given


def with_context(engine: Engine, found: Sequence[Candidate], plan: SearchOptions) -> tuple[list[Candidate], list[str]]:
    """Return candidates with the ``context`` that the plan asks for, and notices where there is none."""
    if plan.context == "chunk" or not found:
        return list(found), []
    sources = engine.source_documents(sorted({candidate.doc_id for candidate in found}))
    ranges = [
        (place, candidate.doc_id, candidate.i_start - room, candidate.i_end + room)
        for place, candidate in enumerate(found)
        if candidate.i_start is not None and candidate.i_end is not None
        for room in [max(0, plan.context_chars - len(candidate.content))]
    ]
    columns = zip(("places", "doc_ids", "lows", "highs"), map(list, zip(*ranges, strict=True)), strict=False)
    near: dict[int, list[_Near]] = defaultdict(list)
    for place, *chunk in engine.select("serving/around", dict(columns)) if ranges else ():
        near[place].append(_Near(*chunk))
    read_to: dict[str, int] = defaultdict(int)
    for place, candidate in enumerate(found):
        read_to[candidate.doc_id] = max([read_to[candidate.doc_id], *(one.end for one in near[place])])

    @cache
    def whole_in(doc_id: str) -> list[Span]:
        return list(_whole(str(sources[doc_id]["text"])[: read_to[doc_id]]))

    made = [
        _around(candidate, near[place], sources.get(candidate.doc_id, {}).get("text"), plan, whole_in)
        for place, candidate in enumerate(found)
    ]
    alone = [one.node_id for one, known in made if not known]
    notices = []
    if alone:
        notices.append(
            "There is nothing to read around these results, since the text of their documents is not stored, or is not "
            f"that which was chunked: {shortened(', '.join(alone))}."
        )
    return [one for one, _ in made], notices


def _around(
    candidate: Candidate,
    near: Sequence[_Near],
    text: str | None,
    plan: SearchOptions,
    whole_in: Callable[[str], list[Span]],
) -> tuple[Candidate, bool]:
    """Return the candidate with its context, and whether its document is known."""
    start, end, content = candidate.i_start, candidate.i_end, candidate.content
    if text is None or start is None or end is None or text[start:end] != content:
        seen = None if candidate.shown is None else candidate.shown[: len(content)]
        return replace(candidate, context=content, context_start=start, context_end=end, context_shown=seen), False
    before = [one for one in near if one.number < candidate.chunk_index]
    after = [one for one in near if one.number > candidate.chunk_index]
    if plan.context == "section":
        path = list(candidate.heading_path)

        def is_below(one: _Near) -> bool:
            return list(one.path[: len(path)]) == path

        before, after = [*takewhile(is_below, reversed(before))][::-1], [*takewhile(is_below, after)]
    lengths = [start - min([start, *(one.start for one in before)]), max([end, *(one.end for one in after)]) - end]
    given = shares(lengths, max(0, plan.context_chars - len(content)))
    markdown = is_markdown(candidate.metadata.get("mime"))

    def borders(chunks: Sequence[_Near], cut: int) -> Iterator[Span]:
        """Yield where chunks begin and end, and the sentences of those that the cut goes through."""
        for one in chunks:
            yield one.start, one.end
            if one.start < cut < one.end:
                whole = whole_in(candidate.doc_id) if markdown else []
                yield from _sentences(text, one.start, one.end, whole, markdown=markdown)

    starts = (first for first, _ in borders(before, start - given[0]))
    ends = (
        last
        for first, last in borders(after, end + given[1])
        if not (markdown and _HEADING.fullmatch(text, first, last))  # what it is of does not follow
    )
    begin = min([start, *(one for one in starts if one >= start - given[0])])
    stop = max([end, *(one for one in ends if one <= end + given[1])])
    return replace(
        candidate,
        context=text[begin:stop],
        context_start=begin,
        context_end=stop,
        context_shown=_shown(text, begin, stop, near),
    ), True


def _sentences(text: str, start: int, end: int, whole: Sequence[Span], *, markdown: bool) -> Iterator[Span]:
    """Yield the sentences of a part of a document, and what is in it of the spans that are to stay whole."""
    for first, last in [*whole[bisect_right(whole, start, key=itemgetter(1)) :], (end, end)]:
        first, last = min(max(first, start), end), min(last, end)
        if first > start:
            for span in sentence_spans(text[start:first], markdown=markdown):
                yield start + span[0], start + span[1]
        if first >= end:
            return
        yield trimmed(text, first, last)
        start = last


def _whole(text: str) -> Iterator[Span]:
    """Yield the blocks of code and the rows of tables of a Markdown document, in order."""
    for part in blocks_of(text) if _SIGNS.search(text) else ():
        for token in part.tokens:
            if token.map and token.type in ("fence", "code_block"):
                yield part.start(token.map[0]), part.start(token.map[1])
            elif token.map and token.type == "inline":
                head = table_row(token.content.split("\n"))
                if head is not None:
                    starts = [part.line_start(begin) for begin in part.begins(token.content, token.map[0])[head:]]
                    del starts[1]  # the line of dashes goes with the header
                    yield from pairwise([*starts, part.start(token.map[1])])


def _shown(text: str, begin: int, stop: int, chunks: Sequence[_Near]) -> str | None:
    """Return a part of a document as a reader sees it, with as many characters; None where that is the part."""
    if all(one.shown is None for one in chunks):
        return None
    # What is in no chunk is markup alone.
    seen: list[Any] = [character if character.isspace() else PAD for character in text[begin:stop]]
    for one in chunks:
        first, last = max(begin, one.start), min(stop, one.end)
        if first < last:
            part = text[first:last] if one.shown is None else one.shown[first - one.start : last - one.start]
            seen[first - begin : last - begin] = part
    return "".join(seen)
