"""Filters as conditions of a WHERE clause in Postgres, every value bound; the same as the macro ``passes_filters``.

Two comparisons are by value here and not in a DuckDB file: objects are equal whatever the order of their names, and
numbers inside of objects and lists as 1 and 1.0 are; and a whole number beyond 2**53 is less or greater than a
fraction by its exact value, where DuckDB rounds it to a double first.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import date, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from sqlrag.engines.duckdb.schema import read_sql

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# How two values are compared, where both are numbers or both are texts.
_ORDERS = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}

_INDEXED = ("$eq", "$in", "$contains", "$any", "$all")

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}.*)?")

# In DuckDB a line that is a date makes a text one; "." is no line feed there, and is one in Postgres.
_DATE_LINE = f"^{_DATE.pattern}$"
_PART_OF_DATE = r"[0-9]{4}(-[0-9]{2}(-[0-9]{2}([T ][^\n]*)?)?)?"

_TEXT = "/* text */ ''"  # the placeholder of time_in_utc.sql

_MOST_INDEXED = 20  # more make a long statement, and probably match most chunks


def by_value(text: str) -> Any:
    """Return the value of JSON, whole floats as integers: jsonb compares decimals, and 1e20 is the integer."""
    return json.loads(text, parse_float=_number)


def _number(text: str) -> float | int:
    number = float(text)
    return int(number) if number.is_integer() else number


def _is_date(value: Any) -> bool:
    return isinstance(value, str) and _DATE.fullmatch(value) is not None


@cache
def _letters() -> str:
    """Return a class of a regular expression: the letters and digits of DuckDB; Postgres has some by its locale."""
    text = np.r_[1:0xD800, 0xE000:0x110000].astype("<u4").tobytes().decode("utf-32-le")
    with duckdb.connect(config={"threads": 1}) as con:
        ((runs,),) = con.execute(read_sql("postgres/letters"), [text]).fetchall()
    return f"[{''.join(f'{run[0]}-{run[-1]}' for run in runs)}]"


def _comparable(found: Where, text: str, operand: str) -> str:
    """Return a condition that a text is compared with another one: a date only with parts of dates and with "", "-"."""
    beside = re.fullmatch(_PART_OF_DATE, operand) or not re.search(_letters(), operand)
    if re.search(_DATE_LINE, operand, re.MULTILINE):
        return f"({text} ~ '^{_PART_OF_DATE}$' OR {text} !~ {found.bind(_letters())}::text)" if beside else "false"
    return f"(NOT {text} ~ '(?n){_DATE_LINE}'" + (f" OR {text} ~ '^{_PART_OF_DATE}$')" if beside else ")")


def _moment(text: str) -> str:
    """Return the SQL of a text that is the same for one moment, as ``json_value_key`` has it."""
    day = "^([0-9]{4}-[0-9]{2}-[0-9]{2})"
    made = f"coalesce(({read_sql('postgres/time_in_utc').replace(_TEXT, text)}), {text})"
    for pattern, new in (
        (f"{day}[T ]([0-9]{{2}}:[0-9]{{2}})Z?$", r"\1T\2:00"),
        (rf"{day}[T ]([0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}})([.]0+|([.][0-9]*[1-9])0*)?Z?$", r"\1T\2\4"),
        (f"{day}T00:00:00$", r"\1"),
    ):
        made = f"regexp_replace({made}, '{pattern}', '{new}')"
    return f"CASE WHEN {text} ~ '{day}[T ][0-9]{{2}}:[0-9]{{2}}' THEN {made} ELSE {text} END"


def _far_days(text: str) -> list[tuple[str, str, tuple[str, str]]]:
    """Return ranges of first ten characters that are surely before or after a date, and the operators that they meet.

    An offset of up to 99 hours moves a time by less than five days, so that moments are needed of dates nearby alone.
    What is near the year 10000 has a moment that is less as a text.
    """
    with suppress(ValueError, OverflowError):
        day, days = date.fromisoformat(text[:10]), timedelta(days=10)
        return [("", f"{day - days}", ("$lt", "$lte")), (f"{day + days}", "9999-12", ("$gt", "$gte"))]
    return []


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
    plain = all(one is not None and not isinstance(one, (list, dict)) and not _is_date(one) for one in values)
    if operator not in _INDEXED or not plain or not 0 < len(values) <= _MOST_INDEXED:
        return ""
    wanted = [value for one in values for value in {"$eq": [one], "$in": [one, [one]]}.get(operator, [[one]])]
    places = [found.bind(json.dumps({field: by_value(json.dumps(one))}, ensure_ascii=False)) for one in wanted]
    joined = (" AND " if operator == "$all" else " OR ").join(f"metadata @> {place}::jsonb" for place in places)
    return f"({joined}) AND "


def _comparison(found: Where, value: str, operator: str, operand: Any) -> str:
    """Return an expression that is true where a JSON value (NULL: there is none) meets a condition."""
    operand = by_value(json.dumps(operand))
    has_dates = any(map(_is_date, operand if isinstance(operand, list) else [operand]))

    def key(one: str) -> str:
        """Return a JSON value in a form that is equal for equal values."""
        moment = _moment(f"({one} #>> '{{}}')")
        return f"CASE jsonb_typeof({one}) WHEN 'string' THEN to_jsonb({moment}) ELSE {one} END" if has_dates else one

    def bound(one: Any) -> str:
        return f"{found.bind(json.dumps(one, ensure_ascii=False))}::jsonb"

    def as_list(values: Sequence[Any]) -> str:
        listed = f"{found.bind([json.dumps(one, ensure_ascii=False) for one in values])}::jsonb[]"
        return f"ARRAY(SELECT {key('o.v')} FROM unnest({listed}) AS o(v))" if has_dates else listed  # noqa: S608

    there = f"coalesce({value}, 'null')"
    elements = f"CASE WHEN jsonb_typeof({value}) = 'array' THEN {value} ELSE '[]' END"
    if operator == "$eq":
        return f"{key(there)} = {key(bound(operand))}"
    if operator == "$in":
        wanted = as_list(operand)
        return (
            f"{key(there)} = ANY({wanted}) OR "
            f"EXISTS (SELECT FROM jsonb_array_elements({elements}) AS e(v) WHERE {key('e.v')} = ANY({wanted}))"
        )
    if operator in ("$contains", "$any"):
        wanted = as_list([operand] if operator == "$contains" else operand)
        return f"EXISTS (SELECT FROM jsonb_array_elements({elements}) AS e(v) WHERE {key('e.v')} = ANY({wanted}))"
    if operator == "$all":
        wanted = as_list(operand)
        missing = f"NOT EXISTS (SELECT FROM jsonb_array_elements({elements}) AS e(v) WHERE {key('e.v')} = w.v)"
        return f"NOT EXISTS (SELECT FROM unnest({wanted}) AS w(v) WHERE {missing})"
    if operator in _ORDERS and isinstance(operand, str):
        found_text, plain = f"({value} #>> '{{}}')", f"{found.bind(operand)}::text"
        # A SELECT of its own is run once and not for each chunk.
        there, wanted = _moment(found_text), f"(SELECT {_moment(plain)})"
        comparable = _comparable(found, found_text, operand)
        far = "".join(
            f'WHEN left({found_text}, 10) COLLATE "C" BETWEEN {found.bind(first)}::text AND {found.bind(last)}::text '
            f"THEN {operator in operators} "
            for first, last, operators in (_far_days(operand) if _is_date(operand) else [])
        )
        return (
            f"CASE WHEN jsonb_typeof({value}) = 'string' AND {comparable} THEN CASE {far}WHEN true THEN "
            f'({there}) COLLATE "C" {_ORDERS[operator]} ({wanted}) COLLATE "C" END END'
        )
    if operator in _ORDERS:
        return (
            f"CASE WHEN jsonb_typeof({value}) = 'number' THEN ({value} #>> '{{}}')::numeric "
            f"{_ORDERS[operator]} {found.bind(str(operand))}::numeric END"
        )
    if operator in ("$text_match", "$text_match_insensitive"):
        there, wanted = f"({value} #>> '{{}}')", f"{found.bind(operand)}::text"
        if operator == "$text_match_insensitive":
            there, wanted = f"lower({there})", f"lower({wanted})"
        return f"jsonb_typeof({value}) = 'string' AND strpos({there}, {wanted}) > 0"
    if operator == "$exists":
        return f"(coalesce(jsonb_typeof({value}), 'null') <> 'null') = {found.bind(operand)}::boolean"
    return f"(coalesce({value}, 'null') IN ('null', '\"\"', '[]')) = {found.bind(operand)}::boolean"
