"""Embedding models that a program passes: a plain function, or an embedding of llama-index; their token counts."""

from __future__ import annotations

import hashlib
import logging
import re
from base64 import b64decode
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sqlrag.embedders.batching import name_of
from sqlrag.errors import InputError, ProviderError, SqlragError
from sqlrag.network import scrub

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import tiktoken

    from sqlrag.types import TextKind, Vectors

logger = logging.getLogger(__name__)

# llama-index-core ships this file, so nothing is downloaded: cl100k_base, the encoding of OpenAI's embedding models.
_CL100K_FILE = "_static/tiktoken_cache/9b5ad71b2ce5302211f9c61530b329a4922fc6a4"

_CL100K_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"

_CL100K_PATTERN = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"""
    r"""|\s*[\r\n]|\s+(?!\S)|\s"""
)

# Four letters, two digits, or any other visible character. Real vocabularies hold longer pieces of common words.
_PIECE = re.compile(r"[A-Za-z]{1,4}|[0-9]{1,2}|[^\sA-Za-z0-9]")


def estimated_offsets(text: str) -> list[tuple[int, int]]:
    """Return ``(start, end)`` of pieces, of which a text has more than tokens in any common vocabulary.

    A piece is up to four Latin letters, up to two digits, or one other visible character. English documentation has 1.2
    (BERT) to 1.4 (OpenAI) times as many pieces as tokens, so that chunks come out somewhat smaller than asked for. Only
    runs of rare, long words can have more tokens than pieces; the server refuses them beyond its window.

    Examples
    --------
    >>> estimated_offsets("embed 768!")
    [(0, 4), (4, 5), (6, 8), (8, 9), (9, 10)]
    """
    return [match.span() for match in _PIECE.finditer(text)]


def openai_offsets(text: str) -> Sequence[tuple[int, int]]:
    """Return ``(start, end)`` of the tokens of OpenAI's embedding models; the estimate where their file is missing."""
    encoding = _cl100k() if text else None
    if encoding is None:
        return estimated_offsets(text)
    starts = encoding.decode_with_offsets(encoding.encode_ordinary(text))[1]
    return list(zip(starts, [*starts[1:], len(text)], strict=True))


@cache
def _cl100k() -> tiktoken.Encoding | None:
    spec = find_spec("llama_index.core")
    path = Path(str(spec.origin)).parent / _CL100K_FILE if spec else None
    content = path.read_bytes() if path is not None and path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != _CL100K_SHA256:
        logger.warning("llama-index-core has no vocabulary of OpenAI's models here: tokens are estimated.")
        return None
    import tiktoken

    ranks = {b64decode(token): int(rank) for token, rank in (line.split() for line in content.splitlines())}
    return tiktoken.Encoding("cl100k_base", pat_str=_CL100K_PATTERN, mergeable_ranks=ranks, special_tokens={})


DEFAULT_WINDOW = 512

"""The assumed window of a model, in tokens, where nothing states it."""


class CallableEmbedder:
    """Embeds with a function of yours. A file that was built with it is searched with the same function.

    Parameters
    ----------
    function
        Takes a list of texts, returns a vector for each, in order: lists or an array ``[n, dimensions]``.
    model_name
        The name that the file records. None: the name of the function.
    query_function
        Used for queries in place of ``function``.
    dimensions
        Length of a vector. None: that of the vector of a first text.
    max_tokens
        The window in tokens, which limits the size of chunks. Tokens are estimated
        (:func:`sqlrag.embedders.function.estimated_offsets`) unless ``token_offsets`` is given.
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
    """Return the dimensions of an embedder, from the vector of a first text."""
    try:
        rows = embedder.embed([f"{embedder.passage_prefix}dimensions"], kind="document")
        dimensions = 0 if rows[0] is None else len(rows[0])
    except SqlragError:
        raise
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        cause = error if scrub(message) == message else None
        raise ProviderError(f"{name_of(embedder)} gave no vector for a first text: {scrub(message)}") from cause
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


class LlamaIndexEmbedder:
    """Embeds through a llama-index ``BaseEmbedding``, which distinguishes queries and documents itself.

    A file that was built with it is searched with an object of the same kind: its settings and keys are not stored.

    Parameters
    ----------
    model
        The object. Its own batches (``embed_batch_size``), retries and instructions apply.
    model_name
        The name that the file records. None: the object's ``model_name``, or its class.
    max_tokens
        The window in tokens, which limits the size of chunks; None: the object's ``max_length``, else 512. Tokens are
        estimated (:func:`sqlrag.embedders.function.estimated_offsets`) unless ``token_offsets`` is given.
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
        """Return one row per text, in order, as the object embeds documents or queries."""
        if kind == "query":
            return cast("Vectors", [self._model.get_query_embedding(text) for text in texts])
        return cast("Vectors", self._model.get_text_embedding_batch(list(texts)))

    def token_offsets(self, text: str) -> Sequence[tuple[int, int]]:
        """Return ``(start, end)`` in characters of every token of ``text``."""
        return self._token_offsets(text)
