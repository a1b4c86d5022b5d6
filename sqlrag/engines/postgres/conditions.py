"""Filters as conditions of a WHERE clause in Postgres, every value bound; the same as the macro ``passes_filters``.

Two comparisons are by value here and not in a DuckDB file: objects are equal whatever the order of their names, and
numbers inside of objects and lists as 1 and 1.0 are; and a whole number beyond 2**53 is less or greater than a
fraction by its exact value, where DuckDB rounds it to a double first.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# How two values are compared, where both are numbers or both are texts.
_ORDERS = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}

_INDEXED = ("$eq", "$in", "$contains", "$any", "$all")

_MOST_INDEXED = 20  # more make a long statement, and probably match most chunks


def by_value(text: str) -> Any:
    """Return the value of JSON, whole floats as integers: jsonb compares decimals, and 1e20 is the integer."""
    return json.loads(text, parse_float=_number)


def _number(text: str) -> float | int:
    number = float(text)
    return int(number) if number.is_integer() else number


class Where:
    """A condition on rows of ``chunks`` (or ``documents``), and the values that it binds by name."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self.parts: list[str] = []
        self.values: dict[str, Any] = dict(values or {})

    def __str__(self) -> str:
        return " AND ".join(f"({part})" for part in self.parts) or "true"

    def into(self, statement: str) -> str:
        """Return a statement with the condition in place of its placeholder."""
        return statement.replace("/* conditions */ true", str(self))

    def add(self, part: str, **values: Any) -> None:
        """Add a condition."""
        self.parts.append(part)
        self.values.update(values)

    def bind(self, value: Any) -> str:
        """Bind a value and return its placeholder."""
        name = f"value_{len(self.values)}"
        self.values[name] = value
        return f"%({name})s"


def where(
    *,
    collection: Sequence[str] | None = None,
    tags_any: Sequence[str] | None = None,
    tags_all: Sequence[str] | None = None,
    alternatives: Sequence[Sequence[Any]] | None = None,
    ids: Mapping[str, Sequence[str] | None] | None = None,
) -> Where:
    """Return the condition that all of these hold; None leaves one out.

    ``alternatives`` are those of :func:`sqlrag.ranking.filters.alternatives_of`; ``ids`` are columns with the
    values that they may have.
    """
    found = Where()
    for column, values in (ids or {}).items():
        if values is not None:
            found.add(f"{column} = ANY({found.bind(list(values))}::text[])")
    if collection is not None:
        found.add(f"collection = ANY({found.bind(list(collection))}::text[])")
    if tags_any is not None:
        found.add(f"tags && {found.bind(list(tags_any))}::text[]")
    if tags_all is not None:
        found.add(f"tags @> {found.bind(list(tags_all))}::text[]")
    if alternatives is not None:
        any_of = [" AND ".join(_holds(found, one) for one in group) or "true" for group in alternatives]
        found.add(" OR ".join(f"({part})" for part in any_of) or "false")
    return found


def _holds(found: Where, condition: Any) -> str:
    operator, operand = condition.operator, condition.operand
    negated = condition.negated
    if operator in ("$ne", "$nin"):
        operator, negated = {"$ne": "$eq", "$nin": "$in"}[operator], not negated
    if condition.field in ("$doc_id", "$node_id"):
        value = f"to_jsonb({condition.field[1:]})"
    else:
        value = f"metadata -> {found.bind(condition.field)}::text"
    text = _comparison(found, value, operator, operand)
    if negated:
        return f"NOT coalesce({text}, false)"
    indexed = "" if condition.field.startswith("$") else _contained(found, condition.field, operator, operand)
    return f"{indexed}coalesce({text}, false)"


def _contained(found: Where, field: str, operator: str, operand: Any) -> str:
    """Return a weaker condition that an index can answer, followed by AND; "" if there is none."""
    values = operand if operator in ("$in", "$any", "$all") else [operand]
    plain = all(one is not None and not isinstance(one, (list, dict)) for one in values)
    if operator not in _INDEXED or not plain or not 0 < len(values) <= _MOST_INDEXED:
        return ""
    wanted = [value for one in values for value in {"$eq": [one], "$in": [one, [one]]}.get(operator, [[one]])]
    places = [found.bind(json.dumps({field: by_value(json.dumps(one))}, ensure_ascii=False)) for one in wanted]
    joined = (" AND " if operator == "$all" else " OR ").join(f"metadata @> {place}::jsonb" for place in places)
    return f"({joined}) AND "


def _comparison(found: Where, value: str, operator: str, operand: Any) -> str:
    """Return an expression that is true where a JSON value (NULL: there is none) meets a condition."""
    operand = by_value(json.dumps(operand))

    def bound(one: Any) -> str:
        return f"{found.bind(json.dumps(one, ensure_ascii=False))}::jsonb"

    def as_list(values: Sequence[Any]) -> str:
        return f"{found.bind([json.dumps(one, ensure_ascii=False) for one in values])}::jsonb[]"

    elements = f"CASE WHEN jsonb_typeof({value}) = 'array' THEN {value} ELSE '[]' END"
    if operator == "$eq":
        return f"coalesce({value}, 'null') = {bound(operand)}"
    if operator == "$in":
        wanted = as_list(operand)
        return (
            f"coalesce({value}, 'null') = ANY({wanted}) OR "
            f"EXISTS (SELECT FROM jsonb_array_elements({elements}) AS e(v) WHERE e.v = ANY({wanted}))"
        )
    if operator in ("$contains", "$any"):
        wanted = as_list([operand] if operator == "$contains" else operand)
        return f"EXISTS (SELECT FROM jsonb_array_elements({elements}) AS e(v) WHERE e.v = ANY({wanted}))"
    if operator == "$all":
        wanted = as_list(operand)
        missing = f"NOT EXISTS (SELECT FROM jsonb_array_elements({elements}) AS e(v) WHERE e.v = w.v)"
        return f"NOT EXISTS (SELECT FROM unnest({wanted}) AS w(v) WHERE {missing})"
    if operator in _ORDERS:
        kind, cast = ("string", '::text COLLATE "C"') if isinstance(operand, str) else ("number", "::numeric")
        return (
            f"CASE WHEN jsonb_typeof({value}) = '{kind}' THEN ({value} #>> '{{}}'){cast} "
            f"{_ORDERS[operator]} {found.bind(str(operand))}{cast} END"
        )
    if operator in ("$text_match", "$text_match_insensitive"):
        there, wanted = f"({value} #>> '{{}}')", f"{found.bind(operand)}::text"
        if operator == "$text_match_insensitive":
            there, wanted = f"lower({there})", f"lower({wanted})"
        return f"jsonb_typeof({value}) = 'string' AND strpos({there}, {wanted}) > 0"
    if operator == "$exists":
        return f"(coalesce(jsonb_typeof({value}), 'null') <> 'null') = {found.bind(operand)}::boolean"
    return f"(coalesce({value}, 'null') IN ('null', '\"\"', '[]')) = {found.bind(operand)}::boolean"
