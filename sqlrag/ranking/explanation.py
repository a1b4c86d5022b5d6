"""Why a chunk has its rank: the explanation as data, as text and as HTML."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass
from typing import Any

from sqlrag.arguments import counted
from sqlrag.ranking.fusion import (
    FIRST_PLACES,
    FULL_CORRELATION,
    LEAST_GAP,
    LEAST_KNOWN,
    LEAST_SAMPLE,
    LEAST_TRUST,
    TRUSTED,
)


@dataclass(frozen=True)
class TermPart:
    """What one term of a question adds to the BM25 score of a chunk.

    ``words`` are those of the question that count as ``term``, as the index has them; none for a term that expansion
    added. ``document_frequency`` is the number of chunks that hold it (for ``word*`` one of its words), ``idf`` its
    inverse document frequency, ``tf`` and ``heading_tf`` how often the text and the heading path hold it. ``boost``
    multiplies what it adds: 1 without expansion.
    """

    term: str
    words: tuple[str, ...]
    document_frequency: int
    idf: float
    tf: int
    heading_tf: int
    boost: float
    contribution: float


@dataclass(frozen=True)
class VectorPart:
    """The chunk in the vector leg.

    ``cosine`` (-1..1) is None for a damaged vector, ``rank`` None where the chunk is no candidate of the leg.
    ``place`` is where it stands by its cosine among all chunks that pass the filters. ``contribution`` is what the leg
    adds to the score, ``formula`` how, and ``reason`` why the chunk is no candidate, "" where it is one.
    """

    cosine: float | None
    rank: int | None
    place: int | None
    contribution: float
    formula: str
    reason: str


@dataclass(frozen=True)
class LexicalPart:
    """The chunk in the lexical leg.

    ``bm25`` is the sum of the terms' contributions, 0 without any of them. ``rank``, ``place``, ``contribution``,
    ``formula`` and ``reason`` are as in :class:`VectorPart`. ``ignored`` are stop words of the question. ``length`` and
    ``average_length`` are in words, the heading path counted ``heading_weight`` times and the text ``text_weight``
    times.
    """

    bm25: float
    rank: int | None
    place: int | None
    contribution: float
    formula: str
    reason: str
    terms: tuple[TermPart, ...]
    ignored: tuple[str, ...]
    length: float
    average_length: float
    k1: float
    b: float
    text_weight: float
    heading_weight: float


@dataclass(frozen=True)
class AdaptivePart:
    """The weights that adaptive fusion has found for a question, and the chunk's lift.

    ``trust`` (.01..1) follows from ``rho``, the correlation of cosine and BM25 over ``chunks`` chunks that hold a word
    of the question; None where fewer than 30 do or all have the same BM25. ``known`` (0..1) is the share of the words'
    weight, their idf, that the file holds; where it is below .5, ``trust`` is .5 at least. ``gap`` (.05..1) is how far
    the best BM25 of the lexical leg is above the tenth. ``lift`` is what the first of a leg gets to be among the first
    five, else 0.
    """

    trust: float
    rho: float | None
    chunks: int
    known: float
    gap: float
    lift: float


@dataclass(frozen=True)
class Explanation:
    """Why a chunk has its rank for a question; see :func:`sqlrag.explain`.

    ``score`` and ``rank`` are those of the search, whatever its ``top_k``; None where neither leg has the chunk among
    its candidates. ``score`` is ``vector.contribution + lexical.contribution`` up to its rounding to 9 decimals, with
    adaptive fusion ``+ adaptive.lift``, and ``lexical.bm25`` the sum of the contributions of the terms. A leg that did
    not run is None, and so is ``adaptive`` with another fusion.
    """

    query_text: str
    node_id: str
    score: float | None
    score_type: str
    rank: int | None
    vector: VectorPart | None
    lexical: LexicalPart | None
    notices: tuple[str, ...] = ()
    adaptive: AdaptivePart | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain dicts, tuples, texts and numbers."""
        return asdict(self)

    def __str__(self) -> str:
        """Say it in lines for a terminal."""
        return "\n".join([*self._lines(), *self._table()])

    def _repr_html_(self) -> str:
        said = "<br>".join(html.escape(line).replace("  ", "&emsp;") for line in self._lines())
        head, *rows = self._cells() or [[]]
        marked = [("th", head), *(("td", row) for row in rows)]
        body = "".join(
            "<tr>"
            + "".join(
                f'<{tag} style="text-align:{"left" if at < 2 else "right"}">{html.escape(cell)}</{tag}>'
                for at, cell in enumerate(row)
            )
            + "</tr>"
            for tag, row in marked
        )
        table = f"<table>{body}</table>" if rows else ""
        return f'<div class="tex2jax_ignore mathjax_ignore"><p>{said}</p>{table}</div>'

    def _lines(self) -> list[str]:
        return [self._headline(), *self._adaptive_lines(), *self._vector_lines(), *self._lexical_lines()]

    def _headline(self) -> str:
        if self.score is None:
            one = "the leg does not have" if self.vector is None or self.lexical is None else "neither leg has"
            return f"{self.node_id}: not found, {one} it among its candidates"
        legs = [(name, part) for name, part in (("vector", self.vector), ("lexical", self.lexical)) if part]
        added = " + ".join(f"{part.contribution:.9f} ({name})" for name, part in legs)
        if self.adaptive and self.adaptive.lift:
            added += f" + {self.adaptive.lift:.9f} (first of a leg)"
        return f"{self.node_id}: rank {self.rank}, score {self.score:.9f} ({self.score_type}) = {added}"

    def _adaptive_lines(self) -> list[str]:
        part = self.adaptive
        if part is None:
            return []
        told = f"{counted(part.chunks, 'chunk')} hold{'s' * (part.chunks == 1)} a word of the question"
        least = TRUSTED if part.known < LEAST_KNOWN else LEAST_TRUST
        why = (
            f"1, since only {told}" if part.rho is None and part.chunks < LEAST_SAMPLE
            else "1, since the words do not tell chunks apart" if part.rho is None
            else f"rho / {FULL_CORRELATION:g}, {least:g} to 1, rho {part.rho:.9f} over {part.chunks} chunks"
        )  # fmt: skip
        if part.rho is not None and least == TRUSTED:
            why += f", which hold words of {part.known:.0%} of the question's weight"
        lines = [
            f"trust {part.trust:.9g} = {why}",
            f"gap {part.gap:.9g} = (best BM25 - tenth) / best, {LEAST_GAP:g} to 1",
        ]
        if part.lift:
            lines.append(f"  {part.lift:.9f} lift it, the first of a leg, among the first {FIRST_PLACES}")
        return lines

    def _vector_lines(self) -> list[str]:
        part = self.vector
        if part is None:
            return []
        cosine = "no cosine" if part.cosine is None else f"cosine {part.cosine:.9f}"
        return [f"vector: {cosine}{_place(part)}", *_added(part)]

    def _lexical_lines(self) -> list[str]:
        part = self.lexical
        if part is None:
            return []
        lines = [f"lexical: BM25 {part.bm25:.9f}{_place(part)}", *_added(part)]
        if part.terms:
            lines += [
                "  BM25 adds boost * idf * (k1 + 1) * f / (f + k1 * (1 - b + b * length / average)) for each term,",
                f"  f = {part.text_weight:g} * tf + {part.heading_weight:g} * heading tf,",
                f"  k1 = {part.k1:g}, b = {part.b:g}, length {part.length:.6g}, average {part.average_length:.6g}",
            ]
        return lines + ([f"  stop words, left out: {', '.join(part.ignored)}"] if part.ignored else [])

    def _cells(self) -> list[list[str]]:
        """Return the table of the terms, its heading first."""
        terms = self.lexical.terms if self.lexical else ()
        if not terms:
            return []
        rows = [["term", "asked as", "chunks", "idf", "tf", "heading tf", "boost", "adds"]]
        for term in terms:
            counts = [str(term.document_frequency), f"{term.idf:.4f}", str(term.tf), str(term.heading_tf)]
            added = [f"{term.boost:.4g}", f"{term.contribution:.9f}"]
            rows.append([term.term, ", ".join(term.words) or "(expansion)", *counts, *added])
        return rows

    def _table(self) -> list[str]:
        rows = self._cells()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return ["  " + "  ".join(_aligned(row, widths)) for row in rows]


def _aligned(row: list[str], widths: list[int]) -> list[str]:
    """Fill the cells of a row up: words to the left, numbers to the right."""
    return [
        cell.ljust(width) if at < 2 else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


def _place(part: VectorPart | LexicalPart) -> str:
    if part.rank is not None:
        return f", rank {part.rank}"
    return "" if part.place is None else f", number {part.place} of all"


def _added(part: VectorPart | LexicalPart) -> list[str]:
    """Say why the chunk is no candidate of a leg, and what the leg adds: convex fusion scores such chunks as well."""
    lines = [f"  {part.reason}"] if part.reason else []
    if part.contribution or not part.reason:
        lines.append(f"  adds {part.contribution:.9f} = {part.formula}")
    return lines
