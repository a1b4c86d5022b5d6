"""Whether a provider gives a text the same vector alone and among others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sqlrag.embedders.batching import DEFAULT_BATCH_SIZE, embed_texts, name_of
from sqlrag.errors import ProviderError

if TYPE_CHECKING:
    from sqlrag.types import Embedder

SAME_VECTOR_COSINE = 0.999

_FIRST = "Ducks swim on the lake."
_LAST = "A column of the table holds the vector of each chunk, and a query is compared with all of them at once."


def self_test(embedder: Embedder) -> float:
    """Embed two texts alone and in a full batch, and return the lower cosine, -1..1; 1 is the same vector.

    Some servers give worse vectors in larger batches. It costs three calls of the provider.

    Raises
    ------
    ProviderError
        The cosine is below 0.999, or the provider failed.

    Examples
    --------
    >>> from sqlrag import load_embedder
    >>> round(self_test(load_embedder("hashing-64", provider="hashing")), 3)
    1.0
    """
    size = max(2, min(getattr(embedder, "batch_size", DEFAULT_BATCH_SIZE), 32))
    texts = [_FIRST, *(f"Filler text {number} of a batch." for number in range(size - 2)), _LAST]
    together = embed_texts(embedder, texts, kind="document", batch_size=size)[[0, -1]]
    alone = embed_texts(embedder, [_FIRST, _LAST], kind="document", batch_size=1)
    cosine = float(np.sum(together.astype(np.float64) * alone, axis=1).min())
    if cosine < SAME_VECTOR_COSINE:
        raise ProviderError(
            f"{name_of(embedder)} gives a text another vector in a batch of {size} than alone: cosine {cosine:.4f}. "
            "Load it with batch_size=1, or update the server."
        )
    return cosine
