"""What decides a search beside the question: modes, numbers of candidates, fusion, filters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from sqlrag.errors import InputError
from sqlrag.options import choice, flag, number, shown, weights, whole
from sqlrag.retrieval.candidates import BM25
from sqlrag.retrieval.filters import Filters
from sqlrag.types import DEFAULT_ALPHA, DEFAULT_FEEDBACK_WEIGHT, Fusion, RetrievePlan

DEFAULT_POOL = 50
# The options that only one fusion looks at.
_OF_FUSION = {"alpha": "convex", "vector_weight": "weighted", "rrf_k": "rrf", "rrf_weights": "rrf"}


@dataclass(frozen=True)
class Plan:
    """Everything that decides a result but the question itself.

    ``mode`` is which legs run. ``vector_top_k`` and ``lexical_top_k`` are the candidates of each leg: 50 unless given,
    never fewer than ``top_k``. ``codes_pool`` is how many candidates the sign codes hand to the exact scores.
    ``syntax`` says whether quotes and stars in the question mean phrases and prefixes.
    ``feedback`` is how many of the best chunks pull the question's vector towards them, ``expansion`` how many of their
    terms are added to the question's words. ``heading_weight`` is what the caller gave, if anything; that of ``bm25``
    counts.
    """

    mode: str = "hybrid"
    top_k: int = 5
    fusion: Fusion = "rrf"
    vector_weight: float = 0.5
    alpha: float = DEFAULT_ALPHA
    rrf_k: float = 60
    rrf_weights: tuple[float, float] = (1.0, 1.0)
    vector_top_k: int | None = None
    lexical_top_k: int | None = None
    codes_pool: int | None = None
    exact: bool = False
    min_similarity: float | None = None
    conjunctive: bool = False
    syntax: bool = False
    bm25: BM25 = field(default_factory=BM25)
    filters: Filters = field(default_factory=Filters)
    include_source_docs: bool = False
    strict: bool = False
    feedback: int = 0
    feedback_weight: float = DEFAULT_FEEDBACK_WEIGHT
    expansion: int = 0
    heading_weight: float | None = None

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {
            "top_k": whole("top_k", self.top_k, 1),
            "fusion": choice("fusion", self.fusion, get_args(Fusion)),
            "vector_weight": number("vector_weight", self.vector_weight, 0, 1),
            "alpha": number("alpha", self.alpha, 0, 1),
            "rrf_k": number("rrf_k", self.rrf_k, 0, math.inf),
            "rrf_weights": weights("rrf_weights", self.rrf_weights, 2),
            "feedback": whole("feedback", self.feedback, 0, DEFAULT_POOL),
            "feedback_weight": number("feedback_weight", self.feedback_weight, 0, 1),
            "expansion": whole("expansion", self.expansion, 0, 1000),
        }
        for name in ("vector_top_k", "lexical_top_k", "codes_pool"):
            value = getattr(self, name)
            checked[name] = None if value is None else whole(name, value, 1)
        for name in ("exact", "conjunctive", "syntax", "include_source_docs", "strict"):
            checked[name] = flag(name, getattr(self, name))
        if self.min_similarity is not None:
            checked["min_similarity"] = number("min_similarity", self.min_similarity, -1, 1, "cosine")
        for name, value in checked.items():
            object.__setattr__(self, name, value)  # scalars of numpy have become plain ones

    @classmethod
    def of(cls, plan: RetrievePlan, bm25: BM25) -> Plan:
        """Return the plan of a search for what a program asks of :func:`sqlrag.retrieve`."""
        if not isinstance(plan, RetrievePlan):
            raise InputError(f"plan must be a sqlrag.RetrievePlan, not {shown(plan)}.")
        pool = max(whole("candidate_pool", plan.candidate_pool, 1), whole("k", plan.k, 1))
        return cls(
            mode=choice("mode", plan.mode, ("hybrid", "vector", "lexical")),
            top_k=plan.k,
            fusion=plan.fusion,
            vector_weight=plan.vector_weight,
            alpha=plan.alpha,
            rrf_k=plan.rrf_k,
            rrf_weights=plan.rrf_weights,
            vector_top_k=pool,
            lexical_top_k=pool,
            exact=plan.exact,
            min_similarity=plan.min_similarity,
            bm25=bm25,
            filters=Filters(plan.collection, *map(_set, (plan.tags_any, plan.tags_all, plan.metadata))),
        )

    def without_effect(self) -> list[str]:
        """Return a remark for each option that was given another value than its default and changes nothing."""
        if self.mode == "lexical":
            unused = []
        else:
            unused = [
                (name, f"with fusion={self.fusion!r}, only with {of!r}")
                for name, of in _OF_FUSION.items()
                if of != self.fusion
            ]
            unused += [] if self.feedback else [("feedback_weight", "without feedback")]
            unused += [("codes_pool", "with exact=True")] if self.exact else []
        if self.heading_weight and not self.bm25.heading_weight:
            unused.append(("heading_weight", "where the headings are not searched"))
        defaults = {name: spec.default for name, spec in type(self).__dataclass_fields__.items()}
        given = [(name, getattr(self, name), why) for name, why in unused]
        return [f"{name}={value!r} has no effect {why}." for name, value, why in given if value != defaults[name]]


def _set(condition: Any) -> Any:
    """Return a condition; None for an empty one, which in a :class:`RetrievePlan` is none."""
    return None if isinstance(condition, (tuple, list, Mapping)) and not condition else condition
