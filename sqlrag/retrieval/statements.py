"""The SQL of a query, as text that runs in the DuckDB shell on the same file. Shown to people, never run from here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlrag.store.calls import quoted
from sqlrag.types import DEFAULT_ALPHA

if TYPE_CHECKING:
    from sqlrag.retrieval.planning import Plan
    from sqlrag.retrieval.terms import Terms

_DEFAULT_POOL = 750  # of the macros
_EVERY_CHUNK = 2**31 - 1  # a pool that no store exceeds: its rid is an INTEGER

# The terms of clause_search, as query_terms in Python finds them: a term of several clauses counts for the first; all
# terms of a clause weigh alike, by the chunks that hold one of them.
_CLAUSES = """WITH asked_terms AS (
    $asked
), found_terms AS (
    SELECT d.termid, min(a.clause) AS clause
    FROM asked_terms AS a JOIN fts_main_documents.dict AS d ON d.term = a.term
    GROUP BY d.termid
), counted_terms AS (
    SELECT f.clause, count(DISTINCT p.rid) AS df
    FROM found_terms AS f JOIN fts_main_documents.postings AS p ON p.termid = f.termid
    GROUP BY f.clause
), known_terms AS (
    SELECT f.termid, f.clause, c.df FROM found_terms AS f JOIN counted_terms AS c ON c.clause = f.clause
)
"""
_FORMS = "SELECT w.term, $clause FROM fts_main_documents.words AS w WHERE starts_with(w.word, $prefix)"
_LIST = "(SELECT list(t.$name ORDER BY t.termid) FROM known_terms AS t)"


def as_sql(query_text: str, plan: Plan, terms: Terms, pool: int | None) -> str:
    """Return the statement that gives the same rows in the shell; ``pool`` is the number of candidates by sign code.

    Some of ``hybrid_query`` has no counterpart in its macro and is left out: ``rrf_weights``, ``min_similarity``, a
    number of candidates that differs between the legs, quotes and stars, feedback and expansion. The vector of a
    question comes from the table ``query_embeddings``, where ``sqlrag embed`` puts it; without it the statement is an
    error.
    """
    words = literal(query_text)
    vector = f"(SELECT embedding FROM query_embeddings WHERE query_text = {words})"  # noqa: S608 - shown, not run
    bm25 = {
        name: value
        for name, value in vars(plan.bm25).items()
        if name == "heading_weight" or value != type(plan.bm25).__dataclass_fields__[name].default
    }
    filters = plan.filters.parameters()
    if plan.mode == "lexical":
        options = {"k": plan.top_k, **bm25, **filters}
        if terms.clauses:
            return _clause_search(terms, options)
        if plan.conjunctive:
            options["conjunctive"] = True
        return _note(["expansion"] if plan.expansion else []) + _call("lexical_query", [words], options)
    if plan.mode == "vector":
        options = {"k": plan.top_k, **filters}
        if pool not in (None, _DEFAULT_POOL):
            options["pool"] = pool
        where = "" if plan.min_similarity is None else f" WHERE score >= {literal(plan.min_similarity)}"
        return _call("exact_vector_query" if plan.exact else "vector_query", [vector], options, where)
    options = {"k": plan.top_k}
    if plan.vector_top_k is not None and plan.vector_top_k == plan.lexical_top_k:
        options["pool"] = plan.vector_top_k
    options.update(_not_default(plan, fusion="rrf", rrf_k=60, vector_weight=0.5, alpha=DEFAULT_ALPHA))
    if plan.exact:
        options["codes_pool"] = _EVERY_CHUNK
    elif pool not in (None, _DEFAULT_POOL):
        options["codes_pool"] = pool
    lost = [name for name in ("feedback", "expansion") if getattr(plan, name)]
    lost += ["phrases and prefixes"] if terms.clauses else []
    return _note(lost) + _call("hybrid_query", [words, vector], {**options, **bm25, **filters})


def _clause_search(terms: Terms, options: dict[str, Any]) -> str:
    """Return a search for words and prefixes by their text: the number of a term may change when documents do."""
    clauses = list(range(len(terms.texts)))
    asked = [f"SELECT unnest({literal(terms.texts)}) AS term, unnest({literal(clauses)}) AS clause"]
    for clause, prefix in enumerate(terms.prefixes, len(clauses)):
        asked.append(_FORMS.replace("$clause", str(clause)).replace("$prefix", literal(prefix)))
    lists = [_LIST.replace("$name", name) for name in ("termid", "df", "clause")]
    metadata = options.pop("metadata", None)
    if metadata is not None:
        options["passing"] = Raw(f"passing_chunks({literal(metadata)})")
    search = _call("clause_search", [*lists, literal(terms.required), literal(terms.phrases)], options)
    return _CLAUSES.replace("$asked", "\n    UNION ALL ".join(asked)) + search


def _note(lost: list[str]) -> str:
    """Return a comment that says what the statement leaves out, if it does."""
    return f"-- Without {', '.join(lost)}, which the macro does not have.\n" if lost else ""


class Raw(str):
    """SQL that is no value."""


def literal(value: Any) -> str:
    """Return a value as a SQL literal."""
    if isinstance(value, Raw):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    if isinstance(value, dict):
        return literal(json.dumps(value, ensure_ascii=False))
    return quoted(str(value))


def _not_default(plan: Plan, **defaults: Any) -> dict[str, Any]:
    return {name: getattr(plan, name) for name, default in defaults.items() if getattr(plan, name) != default}


def _call(macro: str, arguments: list[str], options: dict[str, Any], where: str = "") -> str:
    named = [f"{name} := {literal(value)}" for name, value in options.items()]
    return f"FROM {macro}({', '.join([*arguments, *named])}){where};"
