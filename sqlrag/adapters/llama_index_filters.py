"""Filters of llama-index as ``metadata`` of a search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilters

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


def condition_of(filters: MetadataFilters | None) -> dict[str, Any]:
    """Return filters as the ``metadata`` of a search; {} where there is no condition.

    The keys "doc_id", "document_id" and "ref_doc_id" mean the document of a node, ``None`` a field that is missing or
    null. NOT holds where none of its filters do.
    """
    parts = [_part(one) for one in filters.filters] if filters is not None else []
    if filters is None or not parts:
        return {}
    conditions = [part for part in parts if part]  # a group without filters holds for every node
    if filters.condition is FilterCondition.NOT:
        return {"$not": {"$or": conditions}} if len(conditions) == len(parts) else {"$node_id": {"$in": []}}
    if not conditions or (filters.condition is FilterCondition.OR and len(conditions) < len(parts)):
        return {}
    return {"$or" if filters.condition is FilterCondition.OR else "$and": conditions}


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
    key = "$doc_id" if one.key in _DOCUMENT else one.key
    if one.operator is FilterOperator.IS_EMPTY:
        return {key: {"$empty": True}}
    if one.value is None and one.operator in (FilterOperator.EQ, FilterOperator.NE):
        return {key: {"$exists": one.operator is FilterOperator.NE}}
    return {key: {_OPERATORS[one.operator]: one.value}}
