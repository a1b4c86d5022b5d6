"""Filters of metadata for property tests: values, filters of any depth, and a reading of them in Python."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

from hypothesis import strategies as st

VALUES = [
    *(2024, "2024", 2024.0, 1999.5, -3, 2**60, float(2**60), 1e300, 0.1 + 0.2),
    *(
        None,
        True,
        False,
        "",
        "Red wine",
        "über",
        "2025-01-31",
        "2025-01-31T00:00:00",
        "2025-01-31T00:00:00.000+00",
        "2025-01-31 10:30:00.50",
        "2025-01-31T10:30:00.500000Z",
        "2025-01-31T10:30",
        "2025-01-31T02:00:00+02:00",
        "2025-01-30 19:00:00.50-0530",
        "2025-01-31T12:30+02",
        "2025-02-01",
        "2025-01-31 or later",
        [],
        ["red", "blue"],
        ["red", 2024],
        ["2025-01-31T00:00:00", "2025-01-31T10:30:00+00:00"],
        [[1], None],
        {"b": 1},
    ),
]
MISSING = object()
ORDERS = {
    "$gt": lambda a, b: a > b,
    "$gte": lambda a, b: a >= b,
    "$lt": lambda a, b: a < b,
    "$lte": lambda a, b: a <= b,
}


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def moment(value):
    """Return a date or time in UTC as the text that is the same for each moment; other values as they are."""
    if not isinstance(value, str) or not re.match(r"\d{4}-\d\d-\d\d($|[T ]\d\d:\d\d)", value):
        return value
    read = datetime.fromisoformat(value)
    read = read.astimezone(UTC) if read.tzinfo else read
    return read.strftime("%Y-%m-%dT%H:%M:%S.%f").rstrip("0").rstrip(".").removesuffix("T00:00:00")


def are_ordered(*texts):
    """Return whether texts stand in an order: dates with dates, their beginnings, and what has no letter or digit."""
    if not all(isinstance(text, str) for text in texts):
        return False
    beside = r"\d{4}(-\d\d(-\d\d([T ].*)?)?)?|[^\w]*"
    dates = [re.fullmatch(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?", text) for text in texts]
    return not any(dates) or all(re.fullmatch(beside, text) for text in texts)


def equal(a, b):
    a, b = (None if value is MISSING else moment(value) for value in (a, b))
    if is_number(a) and is_number(b):
        return a == b
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def holds(value, sign, operand):
    """Return whether a value meets one operator, as the handbook's table says."""
    elements = value if isinstance(value, list) else []
    if sign in ORDERS:
        comparable = (is_number(value) and is_number(operand)) or are_ordered(value, operand)
        return comparable and ORDERS[sign](moment(value), moment(operand))
    return {
        "$eq": lambda: equal(value, operand),
        "$ne": lambda: not equal(value, operand),
        "$in": lambda: any(equal(one, wanted) for one in [value, *elements] for wanted in operand),
        "$nin": lambda: not any(equal(one, wanted) for one in [value, *elements] for wanted in operand),
        "$contains": lambda: any(equal(one, operand) for one in elements),
        "$any": lambda: any(equal(one, wanted) for one in elements for wanted in operand),
        "$all": lambda: all(any(equal(one, wanted) for one in elements) for wanted in operand),
        "$text_match": lambda: isinstance(value, str) and operand in value,
        "$text_match_insensitive": lambda: isinstance(value, str) and operand.lower() in value.lower(),
        "$exists": lambda: (value is not MISSING and value is not None) == operand,
        "$empty": lambda: (value is MISSING or value is None or value in ("", [])) == operand,
        "$not": lambda: not all(holds(value, *entry) for entry in operand.items()),
    }[sign]()


def passes(metadata, wanted):
    """Return whether metadata meet a filter."""
    for key, value in wanted.items():
        if key == "$not":
            passed = not passes(metadata, value)
        elif key in ("$and", "$or"):
            passed = (all if key == "$and" else any)(passes(metadata, part) for part in value)
        else:
            stored = metadata.get(key, MISSING)
            operators = isinstance(value, dict) and any(sign.startswith("$") for sign in value)
            entries = value.items() if operators else [("$eq", value)]
            passed = all(holds(stored, *entry) for entry in entries)
        if not passed:
            return False
    return True


ROWS = [{"v": value, "w/~ é": VALUES[-place]} for place, value in enumerate(VALUES)] + [{}, {"w/~ é": 5}]

plain = st.sampled_from(VALUES)
listed = st.lists(plain, max_size=3)
texts = st.sampled_from(["", "red", "R", "über", "ÜBER", "2024", "wine"])
orders = st.sampled_from([value for value in VALUES if is_number(value) or isinstance(value, str)])
operator = st.one_of(
    st.tuples(st.sampled_from(["$eq", "$ne", "$contains"]), plain),
    st.tuples(st.sampled_from(["$in", "$nin", "$any"]), listed),
    st.tuples(st.just("$all"), st.lists(plain, min_size=1, max_size=2)),
    st.tuples(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), orders),
    st.tuples(st.sampled_from(["$text_match", "$text_match_insensitive"]), texts),
    st.tuples(st.sampled_from(["$exists", "$empty"]), st.booleans()),
)
operators = st.lists(operator, min_size=1, max_size=2).map(dict)
field = st.one_of(plain, operators, operators.map(lambda wanted: {"$not": wanted}))
fields = st.dictionaries(st.sampled_from(["v", "w/~ é"]), field, min_size=1, max_size=2)
filters = st.recursive(
    fields,
    lambda inner: st.one_of(
        st.builds(
            lambda name, parts: {name: parts}, st.sampled_from(["$and", "$or"]), st.lists(inner, min_size=1, max_size=3)
        ),
        inner.map(lambda part: {"$not": part}),
        st.builds(lambda parts, rest: {"$or": parts, **rest}, st.lists(inner, min_size=1, max_size=2), fields),
    ),
    max_leaves=5,
)
