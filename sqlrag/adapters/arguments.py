"""Names of arguments that frameworks hand on without a look at them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlrag.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable


def check_names(what: str, given: Iterable[str], known: Iterable[str], other_names: dict[str, str]) -> None:
    """Raise InputError for names that ``what`` does not take; ``other_names`` say what some of them are called here."""
    unknown = sorted(set(given) - set(known))
    if unknown:
        remedy = "".join(f" For {name} use {other_names[name]}." for name in unknown if name in other_names)
        raise InputError(f"{what} takes no {', '.join(unknown)}; it takes {', '.join(sorted(known))}.{remedy}")
