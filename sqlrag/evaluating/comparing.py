"""The searches that an evaluation compares."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlrag.errors import InputError
from sqlrag.options import choice, items, mapping, not_blank, shown
from sqlrag.types import Candidate, RetrievePlan

if TYPE_CHECKING:
    from sqlrag.evaluating.judging import Question
    from sqlrag.retrieval.store import Store

    Search = Callable[[Store, Question, int], list[tuple[str, str]]]

PRESETS: dict[str, dict[str, Any]] = {
    "lexical": {"mode": "lexical", "syntax": False},
    "vector": {"mode": "vector"},
    "rrf": {"fusion": "rrf"},
    "weighted": {"fusion": "weighted"},
    "convex": {"fusion": "convex"},
}
_SET_HERE = {"self", "query_text", "top_k", "query_vector", "include_source_docs", "model_name"}


def searches(plans: object) -> dict[str, Search]:
    """Return the search of each plan by its name; see :func:`sqlrag.evaluate`."""
    if plans is None:
        plans = PRESETS
    if isinstance(plans, Sequence) and not isinstance(plans, str):
        names = items("plans", plans, "['lexical', 'rrf']")
        plans = {name: PRESETS[choice("Each of plans", name, PRESETS)] for name in names}
    named = mapping("plans", plans)
    if not named:
        raise InputError(f"plans is empty. Name some of {', '.join(PRESETS)}, or give options.")
    return {not_blank("The name of a plan", name): _search(name, plan) for name, plan in named.items()}


def _search(name: str, plan: Any) -> Search:
    if isinstance(plan, RetrievePlan):
        return partial(_by_plan, plan)
    if callable(plan):
        return partial(_by_function, plan)
    if not isinstance(plan, Mapping):
        raise InputError(
            f"The plan {name!r} must be a dict of options, a sqlrag.RetrievePlan or a function of a store and a "
            f"question, not {shown(plan)}."
        )
    options = mapping(f"The plan {name!r}", plan)
    mode = choice(f"The mode of the plan {name!r}", options.pop("mode", "hybrid"), ("hybrid", "vector", "lexical"))
    from sqlrag.retrieval.queries import Queries

    valid = sorted(set(inspect.signature(getattr(Queries, f"{mode}_query")).parameters) - _SET_HERE)
    if "fts_top_k" in options:  # as the function has it
        options["lexical_top_k"] = options.pop("fts_top_k")
    unknown = sorted(set(options) - set(valid))
    if unknown:
        raise InputError(f"The plan {name!r} has {', '.join(unknown)}; a {mode} search takes {', '.join(valid)}.")
    return partial(_by_options, mode, options)


def _by_options(
    mode: str, options: Mapping[str, Any], store: Store, question: Question, depth: int
) -> list[tuple[str, str]]:
    more: dict[str, Any] = {"top_k": depth, **options}
    if mode != "lexical":
        more["query_vector"] = question.query_vector
    found = getattr(store, f"{mode}_query")(question.text, **more)
    return [(row["doc_id"], row["node_id"]) for row in found]


def _by_plan(plan: RetrievePlan, store: Store, question: Question, depth: int) -> list[tuple[str, str]]:
    deep = replace(plan, k=max(plan.k, depth))
    found = store.retrieve(question.text, deep, query_vector=question.query_vector)
    return [(one.doc_id, one.node_id) for one in found]


def _by_function(
    function: Callable[[Store, str], Sequence[Any]], store: Store, question: Question, depth: int
) -> list[tuple[str, str]]:
    found = function(store, question.text)
    return [
        (one.doc_id, one.node_id) if isinstance(one, Candidate) else (one["doc_id"], one["node_id"])
        for one in list(found)[:depth]
    ]
