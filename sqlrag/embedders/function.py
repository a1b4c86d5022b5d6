"""A plain function as an embedding model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from sqlrag.embedders.batching import name_of
from sqlrag.embedders.scrubbing import scrub
from sqlrag.embedders.tokens import estimated_offsets
from sqlrag.errors import InputError, ProviderError, SqlragError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlrag.types import TextKind, Vectors

DEFAULT_WINDOW = 512
"""Tokens that a model is taken to read where nobody says how many."""


class CallableEmbedder:
    """Embeds through a function of yours. A file that it filled is searched with the same function again.

    Parameters
    ----------
    function
        Takes a list of texts, returns a vector for each, in order: lists or an array ``[n, dimensions]``.
    model_name
        What the file remembers. None: the name of the function.
    query_function
        Used for queries in place of ``function``.
    dimensions
        Length of a vector. None: that of the vector of a first text.
    max_tokens
        The window in tokens, which limits the size of chunks. Tokens are estimated
        (:func:`sqlrag.embedders.tokens.estimated_offsets`) unless ``token_offsets`` is given.
    token_offsets
        Takes a text, returns ``(start, end)`` in characters of its tokens.
    batch_size
        Texts in one call.
    query_prefix, passage_prefix
        Text put before a query or a document.

    Raises
    ------
    InputError
        ``function`` cannot be called, or a number is below 1.
    ProviderError
        The function fails on a first text, or returns no vector.

    Examples
    --------
    >>> model = CallableEmbedder(lambda texts: [[len(text), 1.0] for text in texts], model_name="lengths")
    >>> model.model_name, model.dimensions
    ('lengths', 2)
    """

    provider = "callable"
    special_tokens = 0

    def __init__(
        self,
        function: Callable[[list[str]], Any],
        *,
        model_name: str | None = None,
        query_function: Callable[[list[str]], Any] | None = None,
        dimensions: int | None = None,
        max_tokens: int = DEFAULT_WINDOW,
        token_offsets: Callable[[str], Sequence[tuple[int, int]]] | None = None,
        batch_size: int = 128,
        query_prefix: str = "",
        passage_prefix: str = "",
    ) -> None:
        for name, one in (("function", function), ("query_function", query_function or function)):
            if not callable(one):
                raise InputError(f"{name} must be a function, not {one!r:.200}.")
        check_numbers(dimensions=dimensions, max_tokens=max_tokens, batch_size=batch_size)
        self._function = function
        self._query_function = query_function or function
        self._token_offsets = token_offsets or estimated_offsets
        self.model_name = model_name or str(getattr(function, "__qualname__", type(function).__name__))
        self.max_tokens = max_tokens
        self.batch_size = batch_size
        self.query_prefix = query_prefix
        self.passage_prefix = passage_prefix
        self.dimensions = dimensions or measure(self)

    def embed(self, texts: Sequence[str], *, kind: TextKind) -> Vectors:
        """Return what the function returns."""
        function = self._query_function if kind == "query" else self._function
        return cast("Vectors", function(list(texts)))

    def token_offsets(self, text: str) -> Sequence[tuple[int, int]]:
        """Return ``(start, end)`` in characters of every token of ``text``."""
        return self._token_offsets(text)


def measure(embedder: Any) -> int:
    """Return how long the vectors of an embedder are, from that of a first text."""
    try:
        rows = embedder.embed([f"{embedder.passage_prefix}dimensions"], kind="document")
        dimensions = 0 if rows[0] is None else len(rows[0])
    except SqlragError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        cause = error if scrub(said) == said else None
        raise ProviderError(f"{name_of(embedder)} gave no vector for a first text: {scrub(said)}") from cause
    if len(rows) != 1 or dimensions < 1:
        raise ProviderError(
            f"{name_of(embedder)} gave {len(rows)} vectors for one text, the first of {dimensions} values."
        )
    return dimensions


def check_numbers(**numbers: Any) -> None:
    """Raise InputError for what is neither None nor a whole number of 1 or more."""
    for name, number in numbers.items():
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise InputError(f"{name} must be a whole number of 1 or more, not {number!r}.")
