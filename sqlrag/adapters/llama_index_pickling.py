"""Components of llama-index that are pickled with the embedder that they were given."""

from __future__ import annotations

import pickle
from typing import Any

from sqlrag.errors import InputError


class KeepsEmbedder:
    """Stands before a component, whose ``__init__`` takes ``embedder`` and keeps it as ``_embedder``."""

    _embedder: Any

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with the embedder; a component of llama-index would drop it in silence.

        Raises
        ------
        InputError
            The embedder cannot be pickled.
        """
        state: dict[str, Any] = super().__getstate__()  # type: ignore[misc, assignment, unused-ignore]
        if self._embedder is None:
            return state
        try:
            pickle.dumps(self._embedder)
        except Exception as error:  # whatever it is that the embedder holds
            raise InputError(
                f"{type(self).__name__} cannot be pickled, since its embedder cannot: {error}. Make it anew where it "
                "is needed, or pass an embedder of a class that can be pickled."
            ) from error
        # What stands there is given to __init__ when the state is read.
        return {**state, "__dict__": {**state["__dict__"], "embedder": self._embedder}}
