"""The two legs of a search: each calls its macro and returns ranked hits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlrag.errors import InputError
from sqlrag.retrieve.fusion import LegHit
from sqlrag.store.calls import call_macro
from sqlrag.store.vectors import query_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb
    import numpy as np
    from numpy.typing import NDArray

    from sqlrag.retrieve.fusion import ExactScores
    from sqlrag.store.lexical import Terms


@dataclass(frozen=True)
class BM25:
    """The parameters of BM25: ``k1`` (0 or more), ``b`` (0..1) and the weight of the heading path (0 or more)."""

    k1: float = 1.2
    b: float = 0.75
    heading_weight: float = 3.0

    def parameters(self) -> dict[str, float]:
        """Return them as named parameters of the search macros, or raise InputError."""
        for name, value, low, high in (
            ("k1", self.k1, 0, 1000),
            ("b", self.b, 0, 1),
            ("heading_weight", self.heading_weight, 0, 1000),
        ):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
                raise InputError(f"{name} must be a number from {low} to {high}, not {value!r}.")
        return {"k1": float(self.k1), "b": float(self.b), "heading_weight": float(self.heading_weight)}


@dataclass
class Leg:
    """What one leg found, and the ``node_id`` of each ``rid``."""

    hits: list[LegHit] = field(default_factory=list)
    node_ids: dict[int, str] = field(default_factory=dict)


def vector_leg(
    con: duckdb.DuckDBPyConnection,
    vector: NDArray[np.float32],
    k: int,
    filters: dict[str, Any],
    *,
    exact: bool = False,
    codes_pool: int | None = None,
) -> Leg:
    """Return the ``k`` chunks nearest to ``vector``, ``[dimensions] float32`` of unit norm, by cosine."""
    options: dict[str, Any] = {"k": k, **filters}
    arguments: dict[str, Any] = {"query_vector": as_text(vector)}
    if exact:
        return _leg(con, "exact_vector_query", arguments, options)
    if codes_pool is not None:
        options["pool"] = codes_pool
    arguments.update({name: str(words) for name, words in query_code(vector)._asdict().items()})
    return _leg(con, "vector_search", arguments, options)


def lexical_leg(
    con: duckdb.DuckDBPyConnection,
    terms: Terms,
    k: int,
    bm25: BM25,
    filters: dict[str, Any],
    *,
    conjunctive: bool = False,
) -> Leg:
    """Return the ``k`` chunks that hold ``terms`` with the highest BM25."""
    if not terms.termids or (conjunctive and len(terms.termids) < terms.wanted):
        return Leg()
    options: dict[str, Any] = {"k": k, **bm25.parameters(), **filters}
    if conjunctive:
        options["at_least"] = terms.wanted
    return _leg(con, "lexical_search", {"termids": terms.termids, "dfs": terms.dfs}, options)


def pair_scores(
    con: duckdb.DuckDBPyConnection, vector: NDArray[np.float32], terms: Terms, rids: Sequence[int], bm25: BM25
) -> ExactScores:
    """Return the exact cosine and BM25 of given chunks, by their ``rid``."""
    arguments = {
        "termids": terms.termids,
        "dfs": terms.dfs,
        "query_vector": as_text(vector),
        "rids": list(rids),
    }
    rows = call_macro(con, "rid, vector_score, lexical_score", "pair_scores", arguments, dict(bm25.parameters()))
    return {rid: (vector_score, lexical_score) for rid, vector_score, lexical_score in rows}


def as_text(vector: NDArray[np.float32]) -> str:
    """Return a vector as text: DuckDB binds a Python list element by element, which takes ten times as long."""
    return str(vector.tolist())


def _leg(con: duckdb.DuckDBPyConnection, macro: str, arguments: dict[str, Any], options: dict[str, Any]) -> Leg:
    rows = call_macro(con, "rid, doc_id, chunk_index, score, node_id", macro, arguments, options)
    return Leg(
        hits=[LegHit(rid, doc_id, chunk_index, score) for rid, doc_id, chunk_index, score, _ in rows],
        node_ids={row[0]: row[4] for row in rows},
    )
