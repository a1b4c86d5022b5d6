"""What each leg and each term adds to the score of a chunk, from a search that has run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlrag.errors import NotFoundError
from sqlrag.options import MOST
from sqlrag.retrieval.candidates import as_text, lexical_leg
from sqlrag.retrieval.explanation import Explanation, LexicalPart, TermPart, VectorPart
from sqlrag.retrieval.planning import DEFAULT_POOL
from sqlrag.retrieval.terms import idf
from sqlrag.store.lexical import stem_word
from sqlrag.store.schema import read_sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

    from sqlrag.retrieval.fusion import FusedHit
    from sqlrag.retrieval.running import Run
    from sqlrag.retrieval.terms import Terms

_NO_FILTERS: dict[str, Any] = dict.fromkeys(("collection", "tags_any", "tags_all", "passing"))
_FILTERED = "It does not pass the filters."


def explained(run: Run, con: duckdb.DuckDBPyConnection, node_id: str) -> Explanation:
    """Return why a chunk has its rank in a search whose legs have run.

    Raises
    ------
    NotFoundError
        The file has no such chunk.
    """
    filters = {**_NO_FILTERS, **run.filters}
    found = con.execute(read_sql("explaining/place"), {**filters, "node_id": node_id}).fetchall()
    if not found:
        raise NotFoundError(f"{run.engine.path} has no chunk {node_id!r}.")
    rid, passes = found[0]
    parts: dict[int, tuple[float, float]] = {}
    hits, score_type = run.fused(parts)
    rank, hit = next(((rank, hit) for rank, hit in enumerate(hits, 1) if hit.rid == rid), (None, None))
    contributions = parts.get(rid, (0.0, 0.0))
    vector = lexical = None
    if run.query_vector is not None:
        vector = _vector_part(run, con, rid, passes, hits, hit, contributions[0])
    if run.plan.mode != "vector" and run.has_lexical_index:
        lexical = _lexical_part(run, con, rid, passes, hits, hit, contributions[1])
    score = hit.score if hit else None
    return Explanation(run.query_text, node_id, score, score_type, rank, vector, lexical, tuple(run.notices))


def _vector_part(
    run: Run,
    con: duckdb.DuckDBPyConnection,
    rid: int,
    passes: bool,
    hits: Sequence[FusedHit],
    hit: FusedHit | None,
    contribution: float,
) -> VectorPart:
    assert run.query_vector is not None  # noqa: S101 - the caller has seen to it
    rank = hit.vector_rank if hit else None
    if hit and rank is not None:
        formula = _formula(run, hits, hit, "vector")
        return VectorPart(hit.vector_score, rank, rank, contribution, formula, "")
    asked = {"query_vector": as_text(run.query_vector), "rid": rid, **_NO_FILTERS, **(run.filters if passes else {})}
    found = con.execute(read_sql("explaining/vector"), asked).fetchall()
    row: Any = found[0] if found else (None, None)
    cosine, place = row
    limit = max(run.plan.top_k, run.plan.vector_top_k or DEFAULT_POOL)
    least = run.plan.min_similarity
    if not passes:
        place, reason = None, _FILTERED
    elif cosine is None:
        reason = "Its vector is damaged; check(db_path) tells more."
    elif least is not None and cosine < least:
        reason = f"Its cosine is below min_similarity={least}."
    elif place > limit:
        reason = f"It is number {place} by cosine, and the leg gives {limit} candidates."
    else:
        reason = f"It is number {place} by cosine, but the sign codes left it out; exact=True compares every vector."
    formula = _formula(run, hits, hit, "vector") if contribution and hit else "0"
    return VectorPart(cosine, None, place, contribution, formula, reason)


def _lexical_part(
    run: Run,
    con: duckdb.DuckDBPyConnection,
    rid: int,
    passes: bool,
    hits: Sequence[FusedHit],
    hit: FusedHit | None,
    contribution: float,
) -> LexicalPart:
    rank = hit.lexical_rank if hit else None
    lengths = con.execute(read_sql("explaining/lengths"), {"rid": rid}).fetchall()[0]
    length, heading_length, average, heading_average, chunks = lengths
    terms = _term_parts(run, con, rid, chunks)
    place, reason = rank, ""
    if rank is None:
        place, reason = _missed(run, con, rid, terms) if passes else (None, _FILTERED)
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
        length=bm25.text_weight * length + bm25.heading_weight * heading_length,
        # As in bm25_contributions, never below 1.
        average_length=max(1.0, bm25.text_weight * average + bm25.heading_weight * heading_average),
        **bm25.parameters(),
    )


def _term_parts(run: Run, con: duckdb.DuckDBPyConnection, rid: int, chunks: int) -> list[TermPart]:
    """Return the terms that some chunk holds, what adds most first, then the words of the question that none holds."""
    terms = run.terms
    asked = {"rid": rid, "termids": terms.termids, "dfs": terms.dfs, "boosts": terms.boosts or None}
    rows = con.execute(read_sql("explaining/terms"), {**asked, **run.plan.bm25.parameters()}).fetchall()
    frequency = dict(zip(terms.termids, terms.dfs, strict=True))
    boost = dict(zip(terms.termids, terms.boosts or [1.0] * len(terms.termids), strict=True))
    clause = dict(zip(terms.termids, terms.clauses, strict=False))
    words = _words(terms, run.engine.metadata["stemmer"])
    parts = []
    for termid, term, tf, heading_tf, contribution in rows:
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
    """Return the words of the question by the term that they count as."""
    if terms.asked is None:
        return {}
    words = {term: list(found) for term, found in terms.asked.stems.items()}
    for word in (word for phrase in terms.asked.phrases for word in phrase):
        found = words.setdefault(stem_word(word, stemmer), [])
        found += [] if word in found else [word]
    return {term: tuple(found) for term, found in sorted(words.items())}


def _missed(run: Run, con: duckdb.DuckDBPyConnection, rid: int, parts: Sequence[TermPart]) -> tuple[int | None, str]:
    """Return the place of a chunk that is no candidate of the lexical leg among all that match, and why it is none."""
    plan, terms = run.plan, run.terms
    held = [part for part in parts if part.contribution]
    if not terms.termids:
        return None, "The question has no word that a chunk holds."
    if not held:
        return None, "It holds none of the words of the question."
    every = lexical_leg(con, terms, MOST, plan.bm25, run.filters, conjunctive=plan.conjunctive).hits
    place = next((place for place, hit in enumerate(every, 1) if hit.rid == rid), None)
    if place is not None:
        limit = max(plan.top_k, plan.lexical_top_k or DEFAULT_POOL)
        return place, f"It is number {place} by BM25, and the leg gives {limit} candidates."
    holds = {word for part in held for word in part.words}
    wanted = [word for part in parts for word in part.words] if plan.conjunctive else []
    wanted += [word for phrase in (terms.asked.phrases if terms.asked else ()) for word in phrase]
    wanted += [f"{prefix}*" for prefix in terms.prefixes] if plan.conjunctive else []
    missing = sorted({word for word in wanted if word not in holds})
    if missing:
        return None, f"It lacks words that have to be there: {', '.join(missing)}."
    quoted = ", ".join(f'"{phrase.strip()}"' for phrase in terms.phrases)
    return None, f"It does not hold the words in quotes one after the other: {quoted}."


def _formula(run: Run, hits: Sequence[FusedHit], hit: FusedHit, leg: str) -> str:
    """Return how a leg's contribution comes from the rank or the score, with the numbers put in."""
    plan, is_vector = run.plan, leg == "vector"
    score: float = getattr(hit, f"{leg}_score") or 0.0
    rank = getattr(hit, f"{leg}_rank")
    if plan.mode != "hybrid" or run.query_vector is None or not run.has_lexical_index:
        return "its cosine" if is_vector else "its BM25"
    if plan.fusion == "rrf":
        return f"{plan.rrf_weights[0 if is_vector else 1]:g} / ({plan.rrf_k:g} + {rank})"
    known = [hit for hit in hits if plan.fusion == "convex" or getattr(hit, f"{leg}_rank") is not None]
    scores = [getattr(hit, f"{leg}_score") or 0.0 for hit in known]
    low, high = min(scores), max(scores)
    if plan.fusion == "weighted":
        share = plan.vector_weight if is_vector else 1 - plan.vector_weight
        scaled = f"({score:.9g} - {low:.9g}) / ({high:.9g} - {low:.9g})" if high > low else "1"
        return f"{share:g} * {scaled}"
    if is_vector:
        return f"{plan.alpha:g} * ({score:.9g} + 1) / ({high:.9g} + 1)"
    return f"{1 - plan.alpha:g} * {score:.9g} / {high:.9g}" if high else "0"
