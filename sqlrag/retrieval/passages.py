"""Passages: candidates, with the chunks around them if wanted, joined to stretches that repeat nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sqlrag import options
from sqlrag.embedders.base import without_surrogates
from sqlrag.errors import InputError
from sqlrag.stopping import checkpoint
from sqlrag.store.schema import read_sql
from sqlrag.types import Candidate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import duckdb


_MARKDOWN = "text/markdown"
_PLACES = "[('a.md', 0), ('a.md', 1)]"


class ChunkReader(Protocol):
    """What a store has to give for the chunks around a candidate."""

    def chunks_at(self, places: Sequence[tuple[str, int]]) -> Sequence[Candidate]:
        """Return the chunks at these (doc_id, chunk_index), in any order; places without a chunk give nothing."""
        ...

    def sources(self, doc_ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """Return the stored documents by ``doc_id``, with ``text``; a document that is not stored is left out."""
        ...


class Passage(NamedTuple):
    """A stretch of a document.

    ``start`` is its offset in the source, None where that is unknown. ``members`` are the positions of the candidates
    in it, best first. ``chunks`` are all chunks of it, in reading order, by where they begin in ``text``.
    """

    text: str
    start: int | None
    members: list[int]
    chunks: list[tuple[int, Candidate]]

    @property
    def markdown(self) -> bool:
        """Whether it is Markdown."""
        return any(chunk.metadata.get("mime") == _MARKDOWN for _, chunk in self.chunks)

    def offset(self, position: int) -> int | None:
        """Return the offset in the source of a position in the text."""
        return None if self.start is None else self.start + position

    def chunk_at(self, position: int) -> Candidate:
        """Return the last chunk that begins at a position in the text or before it."""
        return next(chunk for begin, chunk in reversed(self.chunks) if begin <= position)


def chunks_at(con: duckdb.DuckDBPyConnection, places: Sequence[tuple[str, int]]) -> list[Candidate]:
    """Return the chunks of a store at these (doc_id, chunk_index), ordered by them."""
    return candidates_of(con.execute(read_sql("index/chunks_at"), checked_places(places)).fetchall())


def candidates_of(rows: Iterable[tuple[Any, ...]]) -> list[Candidate]:
    """Return rows of ``index/chunks_at`` as candidates."""
    return [
        Candidate(
            doc_id, index, text, node_id=node_id, collection=collection, heading_path=tuple(path), page=page,
            i_start=start, i_end=end,
        )
        for node_id, text, doc_id, index, collection, path, page, start, end in rows
    ]  # fmt: skip


def checked_places(places: Sequence[tuple[str, int]]) -> dict[str, list[Any]]:
    """Return pairs of doc_id and chunk_index as two lists to bind, or raise InputError."""
    given = [options.items("One of places", place, "('a.md', 0)") for place in options.items("places", places, _PLACES)]
    if not all(len(place) == 2 for place in given):
        raise InputError(f"places must be pairs of doc_id and chunk_index, such as {_PLACES}.")
    return {
        "doc_ids": [without_surrogates(options.text("A doc_id", doc_id)) for doc_id, _ in given],
        "indexes": [options.whole("A chunk_index", index, 0) for _, index in given],
    }


def passages_of(candidates: Sequence[Candidate], neighbours: int, store: ChunkReader | None) -> list[Passage]:
    """Return the stretches that the candidates make, in the order of their best ones.

    Candidates that overlap are joined. With ``neighbours``, so are chunks between which is only blank space. A
    candidate without offsets stands for itself.
    """
    around: list[Candidate] = []
    sources: Mapping[str, Mapping[str, Any]] = {}
    located = [candidate for candidate in candidates if _is_located(candidate)]
    if neighbours and store is not None and located:
        places = {
            (candidate.doc_id, candidate.chunk_index + step)
            for candidate in located
            for step in range(-min(neighbours, candidate.chunk_index), neighbours + 1)
        }
        known = {(candidate.doc_id, candidate.chunk_index) for candidate in candidates}
        around = [chunk for chunk in store.chunks_at(sorted(places - known)) if _is_located(chunk)]
        sources = store.sources(sorted({candidate.doc_id for candidate in located}))

    passages = [
        Passage(candidate.content, None, [i], [(0, candidate)])
        for i, candidate in enumerate(candidates)
        if not _is_located(candidate)
    ]
    by_document: dict[str, list[tuple[int | None, Candidate]]] = {}
    for i, candidate in enumerate(candidates):
        if _is_located(candidate):
            by_document.setdefault(candidate.doc_id, []).append((i, candidate))
    for chunk in around:
        by_document.setdefault(chunk.doc_id, []).append((None, chunk))
    for doc_id, pieces in by_document.items():
        passages += _joined(pieces, sources[doc_id]["text"] if doc_id in sources else None)
    return sorted((passage for passage in passages if passage.members), key=lambda passage: passage.members[0])


def _joined(pieces: list[tuple[int | None, Candidate]], source: str | None) -> list[Passage]:
    """Join the chunks of one document in reading order; ``source`` is its text, if it is known."""
    passages: list[Passage] = []
    for member, chunk in sorted(pieces, key=lambda piece: (_start(piece[1]), piece[1].chunk_index)):
        checkpoint()
        start, content = _start(chunk), chunk.content
        if source is not None and source[start : start + len(content)] != content:
            raise _changed(chunk)
        last = passages[-1] if passages else None
        gap = None if last is None else _gap(last, start, source)
        if last is None or gap is None:
            passages.append(Passage(content, start, [], [(0, chunk)]))
        else:
            begin = start - (last.start or 0)
            text = last.text + gap
            if not content.startswith(text[begin:]) and text[begin : begin + len(content)] != content:
                raise _changed(chunk)
            text += content[len(text) - begin :]
            passages[-1] = Passage(text, last.start, last.members, [*last.chunks, (begin, chunk)])
        if member is not None:
            passages[-1].members.append(member)
    return [passage._replace(members=sorted(passage.members)) for passage in passages]


def _gap(last: Passage, start: int, source: str | None) -> str | None:
    """Return the blank space between a passage and what begins at ``start``, "" if they touch; None for a real gap."""
    end = (last.start or 0) + len(last.text)
    if start <= end:
        return ""
    blank = None if source is None else source[end:start]
    return blank if blank is not None and not blank.strip() else None


def _is_located(chunk: Candidate) -> bool:
    """Say whether it has offsets; a chunk that was given without any may have zeros instead."""
    return chunk.i_start is not None and chunk.i_end == chunk.i_start + len(chunk.content)


def _start(chunk: Candidate) -> int:
    return chunk.i_start or 0


def _changed(chunk: Candidate) -> InputError:
    return InputError(f"The chunk {chunk.node_id} does not fit the text of its document; it was changed. Search again.")
