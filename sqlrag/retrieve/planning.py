"""What decides a search beside the question: modes, numbers of candidates, fusion, filters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlrag.errors import InputError
from sqlrag.retrieve.candidates import BM25
from sqlrag.retrieve.filters import Filters
from sqlrag.types import DEFAULT_ALPHA, DEFAULT_FEEDBACK_WEIGHT

if TYPE_CHECKING:
    from sqlrag.types import Fusion

DEFAULT_POOL = 50
MOST = 2**31 - 1  # results, and so chunks in a file


@dataclass(frozen=True)
class Plan:
    """Everything that decides a result but the question itself.

    ``mode`` is which legs run. ``vector_top_k`` and ``lexical_top_k`` are the candidates of each leg: 50 unless given,
    never fewer than ``top_k``. ``codes_pool`` is how many candidates the sign codes hand to the exact scores.
    ``syntax`` says whether quotes and stars in the question mean phrases and prefixes.
    ``feedback`` is how many of the best chunks pull the question's vector towards them, ``expansion`` how many of their
    terms are added to the question's words.
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

    def __post_init__(self) -> None:
        for name in ("top_k", "vector_top_k", "lexical_top_k", "codes_pool"):
            value = getattr(self, name)
            if name != "top_k" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
                raise InputError(f"{name} must be a whole number from 1 to {MOST}, not {value!r}.")
        for name, most in (("feedback", DEFAULT_POOL), ("expansion", 1000)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
                raise InputError(f"{name} must be a whole number from 0 to {most}, not {value!r}.")
        share = self.feedback_weight
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
            raise InputError(f"feedback_weight must be a number from 0 to 1, not {share!r}.")
        low = self.min_similarity
        if low is not None and (isinstance(low, bool) or not isinstance(low, (int, float)) or not -1 <= low <= 1):
            raise InputError(f"min_similarity must be a cosine from -1 to 1, not {low!r}.")
