"""Filters: which chunks a query may return. Metadata conditions are checked and written in the form that SQL reads."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import re
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlrag.arguments import shown
from sqlrag.errors import InputError
from sqlrag.normalize import clean_metadata, clean_name

if TYPE_CHECKING:
    from collections.abc import Callable

    DateFields = Callable[[Collection[str], Sequence[str] | None], Mapping[str, str]]

LISTS = ("$in", "$nin", "$any", "$all")

ORDERS = ("$gt", "$gte", "$lt", "$lte")

TEXTS = ("$text_match", "$text_match_insensitive")

FLAGS = ("$exists", "$empty")

OPERATORS = ("$eq", "$ne", *ORDERS, "$in", "$nin", "$contains", "$any", "$all", *TEXTS, *FLAGS)

GROUPS = ("$and", "$or", "$not")

# Fields of a chunk that are no metadata, and may be asked for as if they were.
KEYS = ("$doc_id", "$node_id")

# A date as metadata have it, with or without a time; and what may be compared with one, such as 2025 or 2025-01.
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}.*)?")
_PART_OF_DATE = re.compile(r"[0-9]{4}(-[0-9]{2}(-[0-9]{2}([T ].*)?)?)?")

_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?")

_RESERVED = re.compile(r"\$[A-Za-z_]+")

_OPPOSITES = {"$eq": "$ne", "$ne": "$eq", "$in": "$nin", "$nin": "$in"}

# A filter of so many conditions, written out as alternatives, has most likely grown by mistake.
_MAX_CONDITIONS = 1000

_MAX_DEPTH = 32

# How other systems write operators.
_FOREIGN = {operator[1:] for operator in OPERATORS + GROUPS} | {"nor", "regex", "like", "size", "type", "elemmatch"}

_FOREIGN |= {"==", "!=", ">", ">=", "<", "<="}


class Condition(NamedTuple):
    """One comparison of one field."""

    field: str
    operator: str
    operand: Any
    negated: bool = False

    def opposite(self) -> Condition:
        """Return what holds where this does not."""
        if self.operator in _OPPOSITES:
            return self._replace(operator=_OPPOSITES[self.operator])
        return self._replace(negated=not self.negated)

    def holds_without_field(self) -> bool:
        """Return whether it holds for a chunk that has no such field."""
        holds = {
            "$eq": self.operand is None,
            "$ne": self.operand is not None,
            "$in": self.operator == "$in" and None in self.operand,
            "$nin": self.operator == "$nin" and None not in self.operand,
            "$exists": self.operand is False,
            "$empty": self.operand is True,
        }
        return holds.get(self.operator, False) != self.negated

    def as_object(self) -> Any:
        """Return what stands beside the field in a filter."""
        if self.operator == "$eq":
            return self.operand
        wanted = {self.operator: self.operand}
        return {"$not": wanted} if self.negated else wanted


Alternatives = list[list[Condition]]


def as_alternatives(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a filter as ``{field: value}``, or ``{"$or": [{"$and": [{field: value}, …]}, …]}`` where it needs to be.

    Parameters
    ----------
    metadata
        Fields with plain values or operators, and ``$and``, ``$or``, ``$not``, see :func:`sqlrag.hybrid_query`.

    Raises
    ------
    InputError
        There is no such operator, an operand is of the wrong type, or the filter is larger than 1,000 conditions.
    """
    alternatives = [_merged(conditions) for conditions in alternatives_of(metadata)]
    return alternatives[0] if len(alternatives) == 1 else {"$or": alternatives}


def alternatives_of(metadata: Mapping[str, Any]) -> Alternatives:
    """Return a filter as alternatives, one of which has to hold: lists of conditions, all of which have to."""
    return _of_object(metadata)


def holds_for_any(metadata: Mapping[str, Any]) -> bool:
    """Return whether a filter holds for every chunk that has none of its fields."""
    return any(all(one.holds_without_field() for one in conditions) for conditions in _of_object(metadata))


def check_dates(filters: Filters, date_fields: DateFields) -> None:
    """Raise InputError where a text that is no ISO 8601 date is said to be before or after those that a field holds.

    ``date_fields`` returns, of these names, the fields whose texts in some collections are all dates, each with the
    least of them.
    """
    conditions = chain.from_iterable(_of_object(filters.metadata or {}))
    odd = {one.field: one for one in conditions if one.operator in ORDERS and kind_of(one.operand) == "text"}
    for name, date in date_fields(list(odd), filters.parameters().get("collection")).items() if odd else ():
        raise InputError(
            f"{odd[name].operator} of the metadata filter for {shown(name)} compares with dates such as {date!r}. "
            f"Write {shown(odd[name].operand)} like that, by year, month and day."
        )


def compared_fields(metadata: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the metadata fields that a filter looks at, in its order, with the operators."""
    found: dict[str, set[str]] = {}
    for condition in chain.from_iterable(_of_object(metadata)):
        if condition.field not in KEYS:
            found.setdefault(condition.field, set()).add(condition.operator)
    return found


def compared_orders(metadata: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    """Return the fields that a filter compares by order with a number, a date or a text, and that, with the operand."""
    found: dict[tuple[str, str], Any] = {}
    for one in chain.from_iterable(_of_object(metadata)):
        is_order = one.operator in ORDERS and not one.negated and one.field not in KEYS
        if is_order and (kind := kind_of(one.operand)):
            found.setdefault((one.field, kind), one.operand)
    return found


def kind_of(operand: Any) -> str:
    """Return number, date or text; blank for a text without a letter or digit, such as "", which is a bound of any."""
    if not isinstance(operand, str):
        return "number"
    if not any(map(str.isalnum, operand)):
        return ""
    return "date" if _PART_OF_DATE.fullmatch(operand) else "text"


def compared_texts(metadata: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the texts that a filter asks the metadata fields to be or to contain."""
    found: dict[str, dict[str, None]] = {}
    for one in chain.from_iterable(_of_object(metadata)):
        if one.operator in ("$eq", "$in", "$contains", "$any", "$all") and not one.negated and one.field not in KEYS:
            values = one.operand if isinstance(one.operand, list) else [one.operand]
            found.setdefault(one.field, {}).update(dict.fromkeys(value for value in values if isinstance(value, str)))
    return {name: list(texts) for name, texts in found.items() if texts}


def negated_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a filter of what must not hold by the negated conditions of one; {} where it has none."""
    opposites = [
        one.opposite()
        for one in chain.from_iterable(_of_object(metadata))
        if (one.negated or one.operator in ("$ne", "$nin")) and one.operator not in FLAGS
        if one.field not in KEYS and one.holds_without_field()
    ]
    return {"$or": [{one.field: one.as_object()} for one in opposites]} if opposites else {}


def _merged(conditions: list[Condition]) -> dict[str, Any]:
    fields = [condition.field for condition in conditions]
    if len(set(fields)) == len(fields):
        return {condition.field: condition.as_object() for condition in conditions}
    return {"$and": [{condition.field: condition.as_object()} for condition in conditions]}


def _of_object(wanted: Any, depth: int = 0, *, negated: bool = False) -> Alternatives:
    """Return the alternatives of a filter, or of its opposite."""
    _check_depth(depth)
    if not isinstance(wanted, Mapping) or not all(isinstance(key, str) for key in wanted):
        raise InputError(f"metadata must be a mapping of field names to values, not {shown(wanted)}.")
    return _joined([_of_entry(key, value, depth, negated=negated) for key, value in wanted.items()], any_of=negated)


def _of_entry(key: str, value: Any, depth: int, *, negated: bool) -> Alternatives:
    if key == "$not":
        return _of_object(value, depth + 1, negated=not negated)
    if key in GROUPS:
        parts = _listed(key, value)
        if not all(parts) or not parts:
            raise InputError(f"{key} of a metadata filter needs at least one filter, and none that is empty.")
        joined = [_of_object(part, depth + 1, negated=negated) for part in parts]
        return _joined(joined, any_of=(key == "$or") != negated)
    if _RESERVED.fullmatch(key) and key not in KEYS:
        raise InputError(f"A metadata filter has no {shown(key)}; there are {', '.join(GROUPS + KEYS)} and the fields.")
    # Spelt as the stored names are.
    return _of_field(key if key in KEYS else next(iter(clean_metadata({key: None}))), value, depth, negated=negated)


def _of_field(key: str, value: Any, depth: int, *, negated: bool) -> Alternatives:
    signs = list(value) if isinstance(value, Mapping) else []
    if signs and all(isinstance(sign, str) and sign.lower() in _FOREIGN for sign in signs):
        raise InputError(
            f"The metadata filter {{{shown(key)}: {shown(value)}}} looks like an operator of another system. "
            f"Write one of {', '.join(OPERATORS)}."
        )
    if not any(isinstance(sign, str) and sign.startswith("$") for sign in signs):
        return _alone(Condition(key, "$eq", _cleaned(key, value)), negated=negated)
    parts = []
    for sign in signs:
        if sign == "$not":
            _check_depth(depth)
            if not isinstance(value[sign], Mapping) or not value[sign]:
                raise InputError(f"$not of {shown(key)} must be an object of operators, not {shown(value[sign])}.")
            parts.append(_of_field(key, value[sign], depth + 1, negated=not negated))
        elif key in KEYS and sign not in _OPPOSITES:
            raise InputError(f"{key} takes a value or {', '.join(_OPPOSITES)} in a metadata filter, not {shown(sign)}.")
        elif sign in OPERATORS:
            parts.append(_alone(Condition(key, sign, _operand(key, sign, value[sign])), negated=negated))
        else:
            raise InputError(
                f"The metadata filter has no operator {shown(sign)} (at {shown(key)}). There are "
                f"{', '.join(OPERATORS)} and $not."
            )
    return _joined(parts, any_of=negated)


def _check_depth(depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise InputError(f"The metadata filter has more than {_MAX_DEPTH} levels.")


def _alone(condition: Condition, *, negated: bool) -> Alternatives:
    return [[condition.opposite() if negated else condition]]


def _operand(key: str, sign: str, value: Any) -> Any:
    where = f"{sign} of the metadata filter for {shown(key)}"
    if sign in FLAGS:
        if not isinstance(value, bool):
            raise InputError(f"{where} must be true or false, not {shown(value)}.")
        return value
    if sign in LISTS:
        values = _listed(where, value)
        if sign == "$all" and not values:
            raise InputError(f"{where} needs at least one value.")
        return [_cleaned(key, one) for one in values]
    cleaned = _cleaned(key, value)
    if sign in ORDERS and isinstance(value, decimal.Decimal) and isinstance(cleaned, str):
        cleaned = float(value)  # it has more digits than a number, and is compared with numbers
    if sign in TEXTS and not isinstance(cleaned, str):
        raise InputError(f"{where} must be text, not {shown(value)}.")
    if sign in ORDERS and (isinstance(cleaned, bool) or not isinstance(cleaned, (int, float, str))):
        raise InputError(f"{where} must be a number or text, not {shown(value)}.")
    return cleaned


def _cleaned(key: str, value: Any) -> Any:
    """Return a value as the stored metadata have it, so that a date or a nested object finds its like."""
    if key in KEYS and isinstance(value, str):
        return clean_name(value)
    try:
        cleaned = clean_metadata({"value": value})["value"]
    except InputError as error:
        raise InputError(f"The metadata filter {{{shown(key)}: {shown(value)}}} cannot be used: {error}.") from error
    if cleaned is None and value is not None:
        raise InputError(f"The metadata filter {{{shown(key)}: {shown(value)}}} has a value that is no number.")
    return cleaned


def _listed(what: str, value: Any) -> Sequence[Any]:
    if isinstance(value, Set):
        value = sorted(value, key=lambda one: (str(type(one)), str(one)))
    elif hasattr(value, "tolist"):  # an array
        value = list(value) if getattr(getattr(value, "dtype", None), "kind", "") == "M" else value.tolist()
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise InputError(f"{what} must be a list, not {shown(value)}.")
    return value


def _joined(parts: list[Alternatives], *, any_of: bool) -> Alternatives:
    """Return the alternatives of several filters, one or all of which have to hold."""
    if any_of:
        return _limited([conditions for part in parts for conditions in part])
    found: Alternatives = [[]]
    for part in parts:
        # One alternative of each filter, in every combination.
        found = _limited([[*left, *right] for left, right in product(found, part)])
    return found


def _limited(alternatives: Alternatives) -> Alternatives:
    if sum(map(len, alternatives)) > _MAX_CONDITIONS:
        raise InputError(
            f"The metadata filter has more than {_MAX_CONDITIONS:,} conditions, written out as alternatives. Use $in "
            "for many values of a field."
        )
    return alternatives


@dataclass(frozen=True)
class Filters:
    """Conditions that all have to hold; None leaves one out.

    ``collection`` is one name or several (any of them). ``tags_any`` asks for at least one of the tags, ``tags_all``
    for every one. ``metadata`` asks that top-level fields equal the given values (numbers by value, so 2024 equals
    2024.0 but not "2024"; None also matches a missing field) or meet operators, see :mod:`.conditions`.
    """

    collection: str | Sequence[str] | None = None
    tags_any: Sequence[str] | None = None
    tags_all: Sequence[str] | None = None
    metadata: Mapping[str, Any] | None = None

    def parameters(self) -> dict[str, Any]:
        """Return the conditions that are set, as named parameters of the search macros.

        Raises
        ------
        InputError
            A condition is of the wrong type, there is no such operator, or a value cannot be written as JSON.
        """
        return dict(self._named)

    @cached_property
    def _named(self) -> dict[str, Any]:
        named = {
            "collection": strings(
                "collection", [self.collection] if isinstance(self.collection, str) else self.collection
            ),
            "tags_any": strings("tags_any", self.tags_any),
            "tags_all": strings("tags_all", self.tags_all),
            "metadata": self._metadata_json(),
        }
        return {name: value for name, value in named.items() if value is not None}

    def as_written(self) -> dict[str, Any]:
        """Return the parameters with the metadata filter as its author wrote it, for messages."""
        return {**self.parameters(), **({"metadata": self.metadata} if "metadata" in self.parameters() else {})}

    def to_delete_by(
        self, doc_ids: Sequence[str] | None, checksum: str | None, folder: str | None = None
    ) -> dict[str, Any]:
        """Return the parameters for a deletion, which fields that are not there must not decide alone."""
        filters = self.parameters()
        refuse_lack(self.metadata, "document", "doc_ids")
        # An empty tags_all holds for every document, so it says nothing.
        named = [name for name, value in filters.items() if name != "tags_all" or value]
        if doc_ids is None and checksum is None and folder is None and not named:
            raise InputError(
                "Nothing says what to delete. Pass doc_ids, checksum, folder, collection, tags or metadata."
            )
        return filters if folder is None else {**filters, "folder": folder}

    def _metadata_json(self) -> str | None:
        if self.metadata is None:
            return None
        wanted = as_alternatives(self.metadata)
        # Ordered as the stored metadata is, so that a nested object finds its like. {} is no condition.
        return json.dumps(wanted, ensure_ascii=False, sort_keys=True) if wanted else None


def refuse_lack(metadata: Mapping[str, Any] | None, row: str, ids: str) -> None:
    """Raise InputError for a filter to delete by that holds wherever its fields are not there."""
    if metadata and holds_for_any(metadata):
        raise InputError(
            f"metadata={shown(metadata)} holds for every {row} without such a field. "
            f"Name what to delete by values or by {ids}."
        )


def strings(name: str, values: Sequence[str] | None) -> list[str] | None:
    """Return a list of names as they are stored, or raise InputError."""
    if values is None:
        return None
    if (
        isinstance(values, str)
        or not isinstance(values, Sequence)
        or not all(isinstance(value, str) for value in values)
    ):
        raise InputError(f"{name} must be a list of strings, not {shown(values)}.")
    return [clean_name(value) for value in values]


def filter_hints(
    metadata: Mapping[str, Any], first: Mapping[str, Any], any_passes: Callable[[Mapping[str, Any]], bool]
) -> list[str]:
    """Return what may be wrong with a metadata filter that no chunk passes: values that are not like those of a field.

    ``first`` has the value of each field in the first chunk with it; ``any_passes`` says whether any chunk passes a
    filter: a condition that some chunk meets is not to blame.
    """
    conditions = [one for one in chain.from_iterable(_of_object(metadata)) if one.field in first]
    hints = [(one, hint) for one in conditions if (hint := _hint(one, first[one.field]))]
    return list(dict.fromkeys(hint for one, hint in hints if not any_passes({one.field: one.as_object()})))


def _hint(condition: Condition, found: Any) -> str:
    """Return why a condition may not hold for a field that has such a value, or ""."""
    name, operator, operand = condition.field, condition.operator, condition.operand
    if condition.negated or operator not in ("$eq", "$in", *ORDERS):
        return ""
    if isinstance(found, list):
        is_one = operator == "$eq" and not isinstance(operand, list)
        return f"The metadata field {name!r} is a list; $contains looks for a value in it." if is_one else ""
    if operator == "$eq" and isinstance(operand, list):
        return f"The metadata field {name!r} is no list; $in looks for one of several values."
    if operator == "$eq" and isinstance(found, str) and isinstance(operand, str) and (after := _end_of(operand, found)):
        span = json.dumps({"$gte": operand, "$lt": after})
        return f"The metadata field {name!r} holds {_kind(found)}; those of {operand} are {span}."
    wanted = [one for one in (operand if operator == "$in" else [operand]) if one is not None]
    if not wanted or any(_alike(one, found) for one in wanted):
        return ""
    hint = f"The metadata field {name!r} holds {_kind(found)}; {shown(wanted[0])} is none."
    is_number = isinstance(wanted[0], (int, float)) and not isinstance(wanted[0], bool)
    if isinstance(found, str) and operator not in ORDERS and is_number and _NUMBER.fullmatch(found):
        quoted = json.dumps(found if float(found) == wanted[0] else str(wanted[0]), ensure_ascii=False)
        hint += f" As text it is in quotes: {quoted}; on a command line '{name}={quoted}'."
    elif isinstance(found, bool) and str(wanted[0]).lower() in ("true", "false"):
        truth = str(wanted[0]).lower()
        hint += f" It is {truth.capitalize()} in Python, {truth} in JSON; on a command line '{name}={truth}'."
    elif isinstance(found, str) and isinstance(wanted[0], str):
        hint += " Dates are compared where both are written as ISO 8601 has them, such as 2025-12-31."
    return hint


def _end_of(span: str, date: str) -> str:
    """Return the year, month or day after one, where a date is told with more of its parts; "" for other texts."""
    if not (_PART_OF_DATE.fullmatch(span) and _DATE.fullmatch(date) and len(span) < min(len(date), 11)):
        return ""
    try:
        begin = dt.date.fromisoformat(span + "-01" * ((10 - len(span)) // 3))
        end = begin + dt.timedelta(days={4: 366, 7: 31, 10: 1}[len(span)])
    except (ValueError, OverflowError):  # such as month 13, or the last year of all
        return ""
    return end.isoformat()[: len(span)]


def _alike(one: Any, other: Any) -> bool:
    """Return whether two values may be equal: of one type, and both dates if the other is."""
    if isinstance(one, str) and isinstance(other, str):
        both = (one, other)
        return not any(map(_DATE.fullmatch, both)) or all(map(_PART_OF_DATE.fullmatch, both))
    numbers = [isinstance(value, (int, float)) and not isinstance(value, bool) for value in (one, other)]
    return all(numbers) or type(one) is type(other)


def _kind(value: Any) -> str:
    """Return what a field holds, by one of its values."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return f"numbers such as {value}"
    if isinstance(value, str):
        return f"dates such as {value!r}" if _DATE.fullmatch(value) else f"text such as {shown(value)}"
    return "objects" if isinstance(value, Mapping) else "null"
