"""Filters of llama-index as ``metadata`` of a search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilters

from sqlrag import InputError

if TYPE_CHECKING:
    from llama_index.core.vector_stores.types import MetadataFilter, VectorStoreQuery

_OPERATORS = {
    FilterOperator.EQ: "$eq",
    FilterOperator.NE: "$ne",
    FilterOperator.GT: "$gt",
    FilterOperator.GTE: "$gte",
    FilterOperator.LT: "$lt",
    FilterOperator.LTE: "$lte",
    FilterOperator.IN: "$in",
    FilterOperator.NIN: "$nin",
    FilterOperator.ANY: "$any",
    FilterOperator.ALL: "$all",
    FilterOperator.CONTAINS: "$contains",
    FilterOperator.TEXT_MATCH: "$text_match",
    FilterOperator.TEXT_MATCH_INSENSITIVE: "$text_match_insensitive",
    FilterOperator.IS_EMPTY: "$empty",
}
# What vector stores of llama-index call the document of a node.
_DOCUMENT = {"doc_id", "document_id", "ref_doc_id"}
_NEGATED = {FilterOperator.NE: "$eq", FilterOperator.NIN: "$in"}


def condition_of(filters: MetadataFilters | None) -> dict[str, Any]:
    """Return filters as the ``metadata`` of a search; {} where there is no condition.

    The keys "doc_id", "document_id" and "ref_doc_id" mean the document of a node, ``None`` a field that is missing or
    null. NOT holds where none of its filters do.

    Raises
    ------
    InputError
        An operator does not go with the key.
    """
    parts = [_part(one) for one in filters.filters] if filters is not None else []
    parts = [part for part in parts if part]
    if filters is None or not parts:
        return {}
    if filters.condition is FilterCondition.NOT:
        return {"$not": {"$or": parts}}
    if len(parts) == 1:
        return parts[0]
    return {"$or" if filters.condition is FilterCondition.OR else "$and": parts}


def restrictions(query: VectorStoreQuery, given: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return all that a query says of the nodes that it wants, and what was ``given`` beside it; None for nothing."""
    parts = [condition_of(query.filters), dict(given or {})]
    # An index passes on empty lists where it has no choice to make.
    parts += [{key: {"$in": ids}} for key, ids in (("$doc_id", query.doc_ids), ("$node_id", query.node_ids)) if ids]
    parts = [part for part in parts if part]
    return {"$and": parts} if len(parts) > 1 else parts[0] if parts else None


def _part(one: MetadataFilter | MetadataFilters) -> dict[str, Any]:
    if isinstance(one, MetadataFilters):
        return condition_of(one)
    if one.key in _DOCUMENT:
        return _of_document(one)
    if one.operator is FilterOperator.IS_EMPTY:
        return {one.key: {"$empty": True}}
    if one.value is None and one.operator in (FilterOperator.EQ, FilterOperator.NE):
        return {one.key: {"$exists": one.operator is FilterOperator.NE}}
    return {one.key: {_OPERATORS[one.operator]: one.value}}


def _of_document(one: MetadataFilter) -> dict[str, Any]:
    if one.operator in _NEGATED:
        return {"$not": {"$doc_id": {_NEGATED[one.operator]: one.value}}}
    if one.operator in (FilterOperator.EQ, FilterOperator.IN):
        return {"$doc_id": {_OPERATORS[one.operator]: one.value}}
    raise InputError(f"The filter on {one.key!r} can be ==, !=, in or nin, not {one.operator.value!r}.")
