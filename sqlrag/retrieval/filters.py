"""Filters: which chunks a query may return. Both legs apply them before they rank."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlrag.embedders.base import without_surrogates
from sqlrag.errors import InputError
from sqlrag.options import shown
from sqlrag.retrieval.conditions import as_alternatives, holds_for_any


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

    def to_delete_by(self, doc_ids: Sequence[str] | None, checksum: str | None) -> dict[str, Any]:
        """Return the parameters for a deletion, which fields that are not there must not decide alone."""
        filters = self.parameters()
        refuse_lack(self.metadata, "document", "doc_ids")
        # An empty tags_all holds for every document, so it says nothing.
        named = [name for name, value in filters.items() if name != "tags_all" or value]
        if doc_ids is None and checksum is None and not named:
            raise InputError("Nothing says what to delete. Pass doc_ids, checksum, collection, tags or metadata.")
        return filters

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
    """Return a list of strings as it can be bound, or raise InputError."""
    if values is None:
        return None
    if (
        isinstance(values, str)
        or not isinstance(values, Sequence)
        or not all(isinstance(value, str) for value in values)
    ):
        raise InputError(f"{name} must be a list of strings, not {shown(values)}.")
    return [without_surrogates(value) for value in values]
