"""Why a chunk has its rank: what each leg and term adds to its score, in any store whose words have BM25."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from sqlrag.arguments import MOST
from sqlrag.engines.duckdb.lexical import stem_word
from sqlrag.errors import NotFoundError
from sqlrag.ranking.explanation import AdaptivePart, Explanation, LexicalPart, TermPart, VectorPart
from sqlrag.ranking.fusion import Parts, gap_of, part_formula
from sqlrag.ranking.terms import idf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlrag.engines.base import SearchState
    from sqlrag.ranking.fusion import FusedHit
    from sqlrag.ranking.terms import Terms


class Lengths(NamedTuple):
    """How many words a chunk and its headings have, their averages, and the number of chunks."""

    length: int
    heading_length: int
    average: float
    heading_average: float
    chunks: int


class Facts(Protocol):
    """What an explanation reads of a store."""

    def place(self, node_id: str) -> tuple[int, bool] | None:
        """Return the ``rid`` of a chunk and whether it passes the filters; None where there is no such chunk."""
        ...

    def cosine(self, rid: int, *, passes: bool) -> tuple[float | None, int | None]:
        """Return the exact cosine of a chunk, and its place by it among all that pass the filters.

        Among all chunks, where it does not pass; None for a damaged vector.
        """
        ...

    def lengths(self, rid: int) -> Lengths:
        """Return the lengths that the BM25 of a chunk depends on."""
        ...

    def terms(self, rid: int) -> list[tuple[int, str, int, int, float]]:
        """Return ``(termid, term, tf, heading_tf, contribution)`` of each term of the question, by term."""
        ...


_FILTERED = "It does not pass the filters."


def explained(run: SearchState, facts: Facts, node_id: str) -> Explanation:
    """Return why a chunk has its rank in a search whose legs have run.

    Raises
    ------
    NotFoundError
        The store has no such chunk.
    """
    found = facts.place(node_id)
    if found is None:
        run.engine.sources_of_chunks([node_id])  # its error names similar ids
        raise NotFoundError(f"{run.engine.path} has no chunk {node_id!r}.")  # it was written meanwhile
    rid, passes = found
    parts: dict[int, Parts] = {}
    hits, score_type = run.fused(parts)
    rank, hit = next(((rank, hit) for rank, hit in enumerate(hits, 1) if hit.rid == rid), (None, None))
    contributions = parts.get(rid, Parts(0.0, 0.0))
    vector = lexical = None
    if run.query_vector is not None:
        vector = _vector_part(run, facts, rid, passes, hits, hit, contributions.vector)
    if run.plan.mode != "vector" and run.has_lexical_index:
        lexical = _lexical_part(run, facts, rid, passes, hits, hit, contributions.lexical)
    score = hit.score if hit else None
    adaptive = None
    if score_type == "adaptive" and run.trust:
        gap = gap_of(hit.lexical_score or 0.0 for hit in hits if hit.lexical_rank is not None)
        adaptive = AdaptivePart(*run.trust, gap, contributions.lift)
    notices = tuple(run.notices)
    return Explanation(run.query_text, node_id, score, score_type, rank, vector, lexical, notices, adaptive)


def _vector_part(
    run: SearchState,
    facts: Facts,
    rid: int,
    passes: bool,
    hits: Sequence[FusedHit],
    hit: FusedHit | None,
    contribution: float,
) -> VectorPart:
    assert run.query_vector is not None  # noqa: S101 - the caller has checked it
    rank = hit.vector_rank if hit else None
    if hit and rank is not None:
        formula = _formula(run, hits, hit, "vector")
        return VectorPart(hit.vector_score, rank, rank, contribution, formula, "")
    cosine, place = facts.cosine(rid, passes=passes)
    limit = run.plan.vector_candidates
    least = run.plan.min_similarity
    if not passes:
        place, reason = None, _FILTERED
    elif cosine is None or place is None:
        reason = "Its vector is damaged; run check(db_path)."
    elif least is not None and cosine < least:
        reason = f"Its cosine is below min_similarity={least}."
    elif place > limit:
        reason = f"It is number {place} by cosine, and the leg returns {limit} candidates."
    else:
        reason = f"It is number {place} by cosine, but the sign codes left it out; exact=True compares every vector."
    formula = _formula(run, hits, hit, "vector") if contribution and hit else "0"
    return VectorPart(cosine, None, place, contribution, formula, reason)


def _lexical_part(
    run: SearchState,
    facts: Facts,
    rid: int,
    passes: bool,
    hits: Sequence[FusedHit],
    hit: FusedHit | None,
    contribution: float,
) -> LexicalPart:
    rank = hit.lexical_rank if hit else None
    lengths = facts.lengths(rid)
    terms = _term_parts(run, facts, rid, lengths.chunks)
    place, reason = rank, ""
    if rank is None:
        place, reason = _missed(run, rid, terms) if passes else (None, _FILTERED)
    bm25 = run.plan.bm25
    return LexicalPart(
        bm25=round(sum(term.contribution for term in terms), 9),
        rank=rank,
        place=place,
        contribution=contribution,
        formula=_formula(run, hits, hit, "lexical") if hit and (rank is not None or contribution) else "0",
        reason=reason,
        terms=tuple(terms),
        ignored=tuple(run.terms.asked.ignored) if run.terms.asked else (),
        length=bm25.text_weight * lengths.length + bm25.heading_weight * lengths.heading_length,
        # As in bm25_contributions, never below 1.
        average_length=max(1.0, bm25.text_weight * lengths.average + bm25.heading_weight * lengths.heading_average),
        **bm25.parameters(),
    )


def _term_parts(run: SearchState, facts: Facts, rid: int, chunks: int) -> list[TermPart]:
    """Return the terms that some chunk has, largest contribution first, then the words of the question without one."""
    terms = run.terms
    frequency = dict(zip(terms.termids, terms.dfs, strict=True))
    boost = dict(zip(terms.termids, terms.boosts or [1.0] * len(terms.termids), strict=True))
    clause = dict(zip(terms.termids, terms.clauses, strict=False))
    words = _words(terms, run.engine.metadata["stemmer"])
    parts = []
    for termid, term, tf, heading_tf, contribution in facts.terms(rid):
        df = frequency[termid]
        if term in words:
            asked_as = words.pop(term)
        else:
            number = clause.get(termid, 0) - len(terms.texts)
            asked_as = (f"{terms.prefixes[number]}*",) if terms.prefixes and number >= 0 else ()
        parts.append(TermPart(term, asked_as, df, idf(df, chunks), tf, heading_tf, boost[termid], contribution))
    parts.sort(key=lambda part: (-part.contribution, part.term))
    return parts + [TermPart(term, asked_as, 0, idf(0, chunks), 0, 0, 1.0, 0.0) for term, asked_as in words.items()]


def _words(terms: Terms, stemmer: str) -> dict[str, tuple[str, ...]]:
    """Return the words of the question by their term."""
    if terms.asked is None:
        return {}
    words = {term: list(found) for term, found in terms.asked.stems.items()}
    for word in (word for phrase in terms.asked.phrases for word in phrase):
        found = words.setdefault(stem_word(word, stemmer), [])
        found += [] if word in found else [word]
    return {term: tuple(found) for term, found in sorted(words.items())}


def _missed(run: SearchState, rid: int, parts: Sequence[TermPart]) -> tuple[int | None, str]:
    """Return the place among all matches of a chunk that the lexical leg did not return, and why."""
    plan, terms = run.plan, run.terms
    held = [part for part in parts if part.contribution]
    if not terms.termids:
        return None, "The question has no word that a chunk holds."
    if not held:
        return None, "It holds none of the words of the question."
    every = run.engine.lexical_leg(terms, MOST, plan, run.filters).hits
    place = next((place for place, hit in enumerate(every, 1) if hit.rid == rid), None)
    if place is not None:
        limit = plan.lexical_candidates
        return place, f"It is number {place} by BM25, and the leg returns {limit} candidates."
    holds = {word for part in held for word in part.words}
    wanted = [word for part in parts for word in part.words] if plan.conjunctive else []
    wanted += [word for phrase in (terms.asked.phrases if terms.asked else ()) for word in phrase]
    wanted += [f"{prefix}*" for prefix in terms.prefixes] if plan.conjunctive else []
    missing = sorted({word for word in wanted if word not in holds})
    if missing:
        return None, f"It lacks required words: {', '.join(missing)}."
    quoted = ", ".join(f'"{phrase.strip()}"' for phrase in terms.phrases)
    return None, f"It does not contain the phrases in quotes: {quoted}."


def _formula(run: SearchState, hits: Sequence[FusedHit], hit: FusedHit, leg: str) -> str:
    """Return the formula of a leg's contribution from rank or score, with its numbers."""
    plan, is_vector = run.plan, leg == "vector"
    if plan.mode != "hybrid" or run.query_vector is None or not run.has_lexical_index:
        return "its cosine" if is_vector else "its BM25"
    trust = run.trust.value if run.trust else 1.0
    return part_formula(leg, hit, hits, plan.fusion, trust=trust, **plan.fusion_parameters())
