"""Any llama-index embedding as an embedding model: Cohere, Voyage, Jina, Bedrock, Vertex and whatever else it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from sqlrag.embedders.function import DEFAULT_WINDOW, check_numbers, measure
from sqlrag.embedders.tokens import estimated_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlrag.types import TextKind, Vectors


class LlamaIndexEmbedder:
    """Embeds through a llama-index ``BaseEmbedding``, which knows by itself how to treat queries and documents.

    A file that it filled is searched with an object of the same kind again: its settings and keys stay yours.

    Parameters
    ----------
    model
        The object. Its own batches (``embed_batch_size``), retries and instructions apply.
    model_name
        What the file remembers. None: the object's ``model_name``, or its class.
    max_tokens
        The window in tokens, which limits the size of chunks; None: the object's ``max_length``, else 512. Tokens are
        estimated (:func:`sqlrag.embedders.tokens.estimated_offsets`) unless ``token_offsets`` is given.
    token_offsets
        Takes a text, returns ``(start, end)`` in characters of its tokens.
    query_prefix, passage_prefix
        Text put before a query or a document, before the object adds its own.

    Raises
    ------
    InputError
        ``max_tokens`` is below 1.
    ProviderError
        The object cannot embed a first text.
    """

    provider = "llama_index"
    special_tokens = 0

    def __init__(
        self,
        model: Any,
        *,
        model_name: str | None = None,
        max_tokens: int | None = None,
        token_offsets: Callable[[str], Sequence[tuple[int, int]]] | None = None,
        query_prefix: str = "",
        passage_prefix: str = "",
    ) -> None:
        check_numbers(max_tokens=max_tokens)
        named = str(getattr(model, "model_name", "") or "")
        self._model = model
        self._token_offsets = token_offsets or estimated_offsets
        self.model_name = model_name or (model.class_name() if named in ("", "unknown") else named)
        self.max_tokens = max_tokens or int(getattr(model, "max_length", None) or DEFAULT_WINDOW)
        self.batch_size = int(model.embed_batch_size)
        self.query_prefix = query_prefix
        self.passage_prefix = passage_prefix
        self.dimensions = measure(self)

    def embed(self, texts: Sequence[str], *, kind: TextKind) -> Vectors:
        """Return one row per text, in order, as the object makes them for documents or for queries."""
        if kind == "query":
            return cast("Vectors", [self._model.get_query_embedding(text) for text in texts])
        return cast("Vectors", self._model.get_text_embedding_batch(list(texts)))

    def token_offsets(self, text: str) -> Sequence[tuple[int, int]]:
        """Return ``(start, end)`` in characters of every token of ``text``."""
        return self._token_offsets(text)
