"""The two legs of a search: each calls its macro and returns ranked hits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from sqlrag.errors import InputError
from sqlrag.options import items, number, shown
from sqlrag.retrieval.conditions import compared_fields
from sqlrag.retrieval.fusion import LegHit
from sqlrag.retrieval.terms import idf
from sqlrag.store.calls import call_macro
from sqlrag.store.vectors import query_code

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import duckdb
    import numpy as np
    from numpy.typing import NDArray

    from sqlrag.retrieval.filters import Filters
    from sqlrag.retrieval.fusion import ExactScores
    from sqlrag.retrieval.terms import Terms


FIELDS = ("text", "heading_path")
# Up to here the whole list of every term is scored; beyond, common terms are looked up only where they matter. Two more
# statements have to be planned for that, which costs 8 ms; scoring 200,000 postings takes as long.
PRUNE_FROM = 200_000
# The rarest terms, with no more postings than this in all, tell what score the best chunks reach at least.
_PROBE = 30_000


@dataclass(frozen=True)
class BM25:
    """The parameters of BM25: ``k1`` (0 or more), ``b`` (0..1), the weights of text and heading path (0 or more)."""

    k1: float = 1.2
    b: float = 0.75
    text_weight: float = 1.0
    heading_weight: float = 3.0

    def __post_init__(self) -> None:
        for name in ("k1", "b", "text_weight", "heading_weight"):
            value = number(name, getattr(self, name), 0, 1 if name == "b" else 1000)
            object.__setattr__(self, name, float(value))

    @classmethod
    def of(cls, k1: float, b: float, heading_weight: float, fields: str | Sequence[str] | None) -> BM25:
        """Return the parameters for a search in some of the fields, or raise InputError."""
        valid = ", ".join(FIELDS)
        names = FIELDS if fields is None else [fields] if isinstance(fields, str) else items("fields", fields, valid)
        for name in names:
            if not isinstance(name, str) or name not in FIELDS:
                raise InputError(f"fields={shown(fields)}: there is no field {shown(name)}. Valid names: {valid}.")
        if not names:
            raise InputError(f"fields={shown(fields)} is empty. Name one or more of {valid}.")
        # Alone, its weight is only a unit.
        heading = number("heading_weight", heading_weight, 0, 1000) or (0.0 if "text" in names else 1.0)
        return cls(k1, b, float("text" in names), heading if "heading_path" in names else 0.0)

    def parameters(self) -> dict[str, float]:
        """Return them as named parameters of the search macros."""
        return dict(vars(self))


@dataclass
class Leg:
    """What one leg found, the ``node_id`` of each ``rid``, how it was searched, and how many the sign codes gave."""

    hits: list[LegHit] = field(default_factory=list)
    node_ids: dict[int, str] = field(default_factory=dict)
    method: str = ""
    pool: int | None = None


def default_pool(chunks: int, dimensions: int, k: int = 50) -> int:
    """Return how many candidates the sign codes hand to the exact cosines in a store of so many chunks.

    Chosen for a recall@10 of .99 and more, on real questions and on vectors without any structure: 750 up to 100,000
    chunks (as in the macros), 3,000 at a million; more where a code has fewer than 384 bits or more than 125 chunks are
    wanted. The handbook has the curves.
    """
    return round(max(750.0, 6.0 * k, 0.75 * math.pow(chunks, 0.6)) * max(1.0, 384 / dimensions))


def vector_leg(
    con: duckdb.DuckDBPyConnection,
    vector: NDArray[np.float32],
    k: int,
    filters: dict[str, Any],
    *,
    pool: int | None,
    chunks: int,
) -> Leg:
    """Return the ``k`` chunks nearest to ``vector``, ``[dimensions] float32`` of unit norm, by cosine.

    ``pool`` is the number of candidates of the sign codes; None: compare every vector. ``chunks``: those of the file.
    """
    options: dict[str, Any] = {"k": k, **filters}
    arguments: dict[str, Any] = {"query_vector": as_text(vector)}
    if pool is None:
        return _leg(con, "exact_vector_search", arguments, options, "exact: every vector compared")
    asked, pool = pool, max(pool, k)
    options["pool"] = pool
    arguments.update({name: str(words) for name, words in query_code(vector)._asdict().items()})
    if chunks <= pool:
        method = f"exact: the pool of {pool:,} holds every chunk"
    else:
        method = f"sign codes, then the exact cosines of the best {pool:,}"
        method += "; exact if the filters leave no more" if filters else ""
    leg = _leg(con, "vector_search", arguments, options, method)
    leg.pool = asked
    return leg


def lexical_leg(
    con: duckdb.DuckDBPyConnection,
    terms: Terms,
    k: int,
    bm25: BM25,
    filters: dict[str, Any],
    *,
    conjunctive: bool = False,
    totals: Sequence[float] | None = None,
    postings: int | None = None,
) -> Leg:
    """Return the ``k`` chunks that hold ``terms`` with the highest BM25.

    In a file that is one of several, ``totals`` are those of ``bm25_contributions.sql`` and ``postings`` is how many of
    the terms' it holds; the document frequencies are those of all files.
    """
    if (
        not terms.termids
        or terms.unreachable
        or (conjunctive and not terms.clauses and len(terms.termids) < terms.wanted)
    ):
        return Leg(method="nothing to look for")
    arguments: dict[str, Any] = {"termids": terms.termids, "dfs": terms.dfs}
    options: dict[str, Any] = {"k": k, **bm25.parameters()}
    if totals is not None:
        options["totals"] = totals
    if terms.clauses:
        arguments.update(clauses=terms.clauses, required=terms.required, phrases=terms.phrases)
        return _leg(con, "clause_search", arguments, {**options, **filters}, "words, phrases and prefixes as asked")
    if terms.boosts:
        options["boosts"] = terms.boosts
    if conjunctive:
        options["at_least"] = terms.wanted
    plain = conjunctive or filters or terms.boosts
    if plain or (sum(terms.dfs) if postings is None else postings) < PRUNE_FROM:
        return _leg(con, "lexical_search", arguments, {**options, **filters}, "every posting scored")
    return _pruned(con, terms, options)


def _pruned(con: duckdb.DuckDBPyConnection, terms: Terms, options: dict[str, Any]) -> Leg:
    """Score as MaxScore does: the most common terms only where they can still bring a chunk among the best k."""
    rarest = sorted(zip(terms.dfs, terms.termids, strict=True))
    probed = max(1, sum(total <= _PROBE for total in accumulate(df for df, _ in rarest)))
    common, bound = 0, 0.0
    if probed < len(rarest):
        dfs, termids = zip(*rarest[:probed], strict=True)
        probe = {"termids": list(termids), "dfs": list(dfs)}
        reached, num_docs = call_macro(con, "reached, num_docs", "score_floor", probe, options)[0]
        for df, _ in reversed(rarest[1:]):
            # 1e-6 for the rounding of what is added up.
            most = (options["k1"] + 1) * idf(df, num_docs) + 1e-6
            if reached is None or bound + most >= reached:
                break
            common, bound = common + 1, bound + most
    split = len(rarest) - common
    groups = {
        f"{name}_{kind}": [pair[place] for pair in part]
        for name, part in (("rare", rarest[:split]), ("common", rarest[split:]))
        for place, kind in ((1, "termids"), (0, "dfs"))
    }
    method = f"MaxScore, {split} terms scored and {common} common ones looked up"
    return _leg(con, "pruned_search", {**groups, "common_bound": bound}, options, method)


def passing_filters(con: duckdb.DuckDBPyConnection, filters: Filters) -> dict[str, Any]:
    """Return the filters as the searches take them: the conditions on metadata as a bit for each chunk."""
    named = filters.parameters()
    metadata = named.pop("metadata", None)
    if metadata is not None:
        # "0" where there are no chunks at all; None would be no condition.
        named["passing"] = con.execute("SELECT passing_chunks($1)", [metadata]).fetchall()[0][0] or "0"
    return named


def any_passes(con: duckdb.DuckDBPyConnection, filters: dict[str, Any]) -> bool:
    """Return whether any chunk passes the filters, as :func:`passing_filters` gives them."""
    named: dict[str, Any] = dict.fromkeys(("collection", "tags_any", "tags_all", "passing"))
    statement = (
        "SELECT 1 FROM documents AS d WHERE passes(d.rid, d.collection, d.tags, "
        "$passing, $collection, $tags_any, $tags_all) LIMIT 1"
    )
    return bool(con.execute(statement, {**named, **filters}).fetchall())


def field_types(con: duckdb.DuckDBPyConnection, filters: Filters) -> dict[str, str]:
    """Return the JSON type of each field of a metadata filter in the first chunk that has it; fields of none lack."""
    types = {}
    for name in compared_fields(filters.metadata or {}):
        place = "/" + name.replace("~", "~0").replace("/", "~1")
        statement = (
            "SELECT json_type(metadata_, $1) FROM documents WHERE json_exists(metadata_, $1) ORDER BY rid LIMIT 1"
        )
        found = con.execute(statement, [place]).fetchall()
        if found:
            types[name] = found[0][0]
    return types


def filter_hints(filters: Filters, types: Mapping[str, str]) -> list[str]:
    """Return what may be wrong with a metadata filter that no chunk passes: fields that are nowhere, or are lists.

    ``types`` are those of :func:`field_types`.
    """
    hints = []
    for name, operators in compared_fields(filters.metadata or {}).items():
        if name not in types:
            hints.append(f"No chunk has the metadata field {name!r}.")
        elif types[name] == "ARRAY" and "$eq" in operators:
            hints.append(f"The metadata field {name!r} is a list; $contains looks for a value in it.")
    return hints


def pair_scores(
    con: duckdb.DuckDBPyConnection,
    vector: NDArray[np.float32],
    terms: Terms,
    rids: Sequence[int],
    bm25: BM25,
    *,
    totals: Sequence[float] | None = None,
) -> ExactScores:
    """Return the exact cosine and BM25 of given chunks, by their ``rid``; ``totals`` as in :func:`lexical_leg`."""
    arguments = {
        "termids": terms.termids,
        "dfs": terms.dfs,
        "query_vector": as_text(vector),
        "rids": list(rids),
    }
    options: dict[str, Any] = dict(bm25.parameters())
    if terms.boosts:
        options["boosts"] = terms.boosts
    if totals is not None:
        options["totals"] = totals
    rows = call_macro(con, "rid, vector_score, lexical_score", "pair_scores", arguments, options)
    return {rid: (vector_score, lexical_score) for rid, vector_score, lexical_score in rows}


def as_text(vector: NDArray[np.float32]) -> str:
    """Return a vector as text: DuckDB binds a Python list element by element, which takes ten times as long."""
    return str(vector.tolist())


def _leg(
    con: duckdb.DuckDBPyConnection, macro: str, arguments: dict[str, Any], options: dict[str, Any], method: str
) -> Leg:
    rows = call_macro(con, "rid, doc_id, chunk_index, score, node_id", macro, arguments, options)
    return Leg(
        hits=[LegHit(rid, doc_id, chunk_index, score) for rid, doc_id, chunk_index, score, _ in rows],
        node_ids={row[0]: row[4] for row in rows},
        method=method,
    )
