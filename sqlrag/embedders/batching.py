"""Embeds texts: prefixed, in batches of similar length, checked, scaled to unit length."""

from __future__ import annotations

import math
import re
import warnings
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlrag.cancellation import checkpoint
from sqlrag.errors import InputError, ProviderError, SqlragError
from sqlrag.network import scrub
from sqlrag.normalize import is_blank, without_surrogates
from sqlrag.telemetry import count, measured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlrag.types import Embedder, TextKind, Vectors

DEFAULT_BATCH_SIZE = 128

_TOO_LARGE = re.compile(
    r"(?i)too (?:long|large|many|big)|context.?(?:length|window|size)|batch.?size|input.?length"
    r"|maximum (?:allowed|length|number|size)|at most \d|(?:less|more|fewer|larger) than \d|out of memory"
)

# Set while a query waits: servers then have the time-outs of a query for every text.
question_waits: ContextVar[bool] = ContextVar("sqlrag_question_waits", default=False)

# A text that is refused even at this length is not too long.
_SHORTEST_CUT = 16  # characters


class RefusedBatchError(ProviderError):
    """A provider refused a request; halves of it may be accepted.

    ``too_large`` says that size is the reason, so that a single text may be accepted when it is cut.
    """

    def __init__(self, message: str, *, too_large: bool) -> None:
        self.too_large = too_large
        super().__init__(message)


def is_about_size(message: str) -> bool:
    """Return whether an error message says that the input is too large."""
    return _TOO_LARGE.search(message) is not None


def embed_texts(
    embedder: Embedder,
    texts: Sequence[str],
    *,
    kind: TextKind,
    batch_size: int | None = None,
    progress: Callable[[int], object] | None = None,
    made: Callable[[list[int], Vectors], object] | None = None,
    cut: Callable[[int, int], object] | None = None,
) -> Vectors:
    """Embed texts as documents or queries: prefixed, in batches of similar length, checked and scaled to unit length.

    A batch that the provider refuses is sent again in halves, and no larger batch than was accepted is tried
    afterwards. A single text that is too long for the provider is cut to half its length until it is accepted, at most
    a dozen times; the same request is never sent twice.

    Parameters
    ----------
    embedder
        The provider; only its attributes and ``embed`` are used. Its ``batch_size`` and ``batch_bytes``
        (texts and UTF-8 bytes per call) are respected where it has them.
    texts
        None of them blank. Lone surrogates are replaced by U+FFFD.
    kind
        "document" or "query": which of the embedder's prefixes is put before each text.
    batch_size
        Texts per call of the provider, 1 or more. None: as the embedder says, else 128.
    progress
        Called after each batch with the number of texts in it.
    made
        Called after each batch with the positions and the vectors, so that they can be kept if a later batch fails.
    cut
        Called with the position of a text that was too long, and the number of its characters that were embedded. None:
        a warning is given.

    Returns
    -------
    Vectors
        ``[len(texts), dimensions] float32``, unit norm, in the order of ``texts``.

    Raises
    ------
    InputError
        A text is blank or no string (the message gives its position, counted from 0), or an argument is wrong.
    ProviderError
        The provider failed, or gave a wrong number of vectors, a wrong length, a value that is not finite, or a
        vector of zeros. The message names the model, what was expected and got, and the position of the text.

    Examples
    --------
    >>> from sqlrag import load_embedder
    >>> embed_texts(load_embedder("hashing-8", provider="hashing"), ["duck"], kind="query").shape
    (1, 8)
    """
    if kind not in ("document", "query"):
        raise InputError(f'kind must be "document" or "query", not {kind!r}.')
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch_size must be 1 or more, not {batch_size}.")
    sending = _Sending(embedder, _valid(texts), kind, batch_size)
    sending.made, sending.progress, sending.cut = made, progress, cut or sending.warn
    return sending.run()


def _valid(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise InputError("texts must be a list of strings, not one string.")
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"The text at position {position} is a {type(text).__name__}, not a string.")
        if is_blank(text):
            raise InputError(f"The text at position {position} is blank: there is nothing to embed.")
    return [without_surrogates(text) for text in texts]


class _Sending:
    """The texts of one call, on their way to the provider."""

    def __init__(self, embedder: Embedder, texts: list[str], kind: TextKind, batch_size: int | None) -> None:
        self.embedder = embedder
        self.texts = texts
        self.kind = kind
        self.prefix = embedder.query_prefix if kind == "query" else embedder.passage_prefix
        self.limit: int = batch_size or int(getattr(embedder, "batch_size", DEFAULT_BATCH_SIZE))
        self.vectors = np.empty((len(texts), embedder.dimensions), dtype=np.float32)
        self.made: Callable[[list[int], Vectors], object] | None = None
        self.progress: Callable[[int], object] | None = None
        self.cut: Callable[[int, int], object] = self.warn

    def run(self) -> Vectors:
        # Texts of similar length are sent together, because some providers pad a batch to its longest text.
        for positions in self._batches(sorted(range(len(self.texts)), key=lambda place: len(self.texts[place]))):
            self._send(positions)
        return self.vectors

    def warn(self, position: int, characters: int) -> None:
        """Warn of a text that was cut."""
        warnings.warn(
            f"{name_of(self.embedder)} takes no more than the first {characters} characters of the text at position "
            f"{position}, which has {len(self.texts[position])}: its vector represents those alone.",
            stacklevel=2,
        )

    def _batches(self, order: list[int]) -> Iterator[list[int]]:
        """Yield the positions in batches that are as large as the provider is known to take."""
        most_bytes: int | None = getattr(self.embedder, "batch_bytes", None)
        start = 0
        while start < len(order):
            end = min(len(order), start + self.limit)
            if most_bytes is not None:
                sizes = np.cumsum([len((self.prefix + self.texts[place]).encode()) for place in order[start:end]])
                end = start + max(1, int(np.searchsorted(sizes, most_bytes, side="right")))
            yield order[start:end]
            start = end

    def _send(self, positions: list[int]) -> bool:
        """Send texts in as many requests as it takes; return whether all of them were accepted unchanged."""
        if len(positions) > self.limit:
            step = self.limit
            parts = [self._send(positions[at : at + step]) for at in range(0, len(positions), step)]
            return all(parts)
        try:
            vectors = self._embed([self.prefix + self.texts[place] for place in positions], positions)
        except RefusedBatchError as error:
            if len(positions) == 1:
                if not error.too_large:
                    raise
                self._send_cut(positions[0], error)
                return False
            middle = (len(positions) + 1) // 2
            halves = self._send(positions[:middle]), self._send(positions[middle:])
            whole = all(halves)
            if whole:  # so the number of texts was refused, not one of them
                self.limit = min(self.limit, middle)
            return whole
        self._keep(positions, vectors)
        return True

    def _send_cut(self, position: int, refusal: RefusedBatchError) -> None:
        """Send the longest beginning of a text that the provider takes, halving it each time."""
        length = len(self.texts[position]) // 2
        while length >= _SHORTEST_CUT and not is_blank(self.texts[position][:length]):
            try:
                vectors = self._embed([self.prefix + self.texts[position][:length]], [position])
            except RefusedBatchError as error:
                if not error.too_large:
                    raise
                length //= 2
                continue
            self.cut(position, length)
            self._keep([position], vectors)
            return
        raise refusal

    def _keep(self, positions: list[int], vectors: Vectors) -> None:
        self.vectors[positions] = vectors
        if self.made is not None:
            self.made(positions, vectors)
        if self.progress is not None:
            self.progress(len(positions))

    def _embed(self, batch: list[str], positions: list[int]) -> Vectors:
        """Make one call of the provider, and check what it answers."""
        checkpoint()
        model = name_of(self.embedder)
        try:
            with measured("embedding", attributes={"gen_ai.request.model": self.embedder.model_name}):
                rows = self.embedder.embed(batch, kind=self.kind)
            count(embedded_texts=len(batch))
        except RefusedBatchError as error:
            raise RefusedBatchError(f"{error} ({_at(positions)})", too_large=error.too_large) from error
        except ProviderError as error:
            raise ProviderError(f"{error} ({_at(positions)})") from error
        except SqlragError:
            raise
        except Exception as error:
            original = str(error)
            message = scrub(original)
            # An exception that contained a secret is not shown as the cause.
            cause = error if message == original else None
            failure = f"{model} failed on the {_at(positions)}: {message}"
            if is_about_size(message):
                raise RefusedBatchError(failure, too_large=True) from cause
            raise ProviderError(failure) from cause

        if rows is None or len(rows) != len(batch):
            got = "nothing" if rows is None else f"{len(rows)}"
            raise ProviderError(f"{model}: expected {len(batch)} vectors, got {got}; {_at(positions)}.")
        return _checked(rows, self.embedder.dimensions, positions, model)


def name_of(embedder: Embedder) -> str:
    """Return the name of a model in messages."""
    return f"The {embedder.provider} model {embedder.model_name!r}"


def _at(positions: list[int]) -> str:
    more = f" and {len(positions) - 20} more" if len(positions) > 20 else ""
    return f"texts at positions {positions[:20]}{more}"


def _checked(rows: Any, dimensions: int, positions: list[int], model: str) -> Vectors:
    """Return the rows at unit length, or raise ProviderError where one is not a vector of the model."""
    matrix = np.empty((len(positions), dimensions), dtype=np.float64)
    if isinstance(rows, np.ndarray) and rows.dtype.kind == "f" and rows.shape == matrix.shape:
        matrix[:] = rows
    else:
        for row, values, position in zip(matrix, rows, positions, strict=True):
            row[:] = _numbers(values, dimensions, position, model)
    # The scale is taken out first, so that neither huge nor tiny values overflow when they are squared.
    scales = np.abs(matrix).max(axis=1, initial=0.0)
    for scale, position in zip(scales.tolist(), positions, strict=True):
        where = f"for the text at position {position}"
        if not math.isfinite(scale):
            raise ProviderError(f"{model}: expected finite values, got NaN or infinity {where}.")
        if scale == 0:
            raise ProviderError(f"{model}: expected a direction, got a vector of zeros {where}.")
    matrix /= scales[:, None]
    matrix /= np.sqrt(np.sum(matrix * matrix, axis=1))[:, None]
    return matrix.astype(np.float32)


def _numbers(values: Any, dimensions: int, position: int, model: str) -> Any:
    """Return one row of a provider as an array, or raise ProviderError where it is not one."""
    where = f"for the text at position {position}"
    if values is None:
        raise ProviderError(f"{model}: expected a vector of {dimensions} values, got nothing {where}.")
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ProviderError(f"{model}: expected numbers, got something else {where}: {error}") from error
    if array.shape != (dimensions,):
        got = f"{len(array)} values" if array.ndim == 1 else f"an array of shape {array.shape}"
        raise ProviderError(f"{model}: expected a vector of {dimensions} values, got {got} {where}.")
    return array


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
