"""Word-hashing vectors: arithmetic that anyone can check, for tests and trials without a model."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

import numpy as np

from sqlrag.errors import InputError
from sqlrag.normalize import without_surrogates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlrag.types import TextKind, Vectors

_NAME = re.compile(r"hashing-([1-9]\d{0,4})")

_WORD = re.compile(r"\w+")

_TOKEN = re.compile(r"\w+|[^\w\s]+")


class _Numbers(dict[str, int]):
    """The number of each word of some texts, computed once."""

    def __missing__(self, word: str) -> int:
        self[word] = zlib.crc32(without_surrogates(word.lower()).encode())
        return self[word]


class HashingEmbedder:
    """Counts words in hashed places. It does not understand meaning: only texts that share words are similar.

    The vector of a text is zero except for its words: each word (a run of letters, digits and ``_``), in lower case,
    adds 1 at place ``zlib.crc32(word in UTF-8) % dimensions``; then the vector is scaled to unit length. A text
    without any word counts its runs of other visible characters instead. Two words may share a place. The vector
    is the same on every machine. "auto" never chooses this provider.

    Parameters
    ----------
    model_name
        ``hashing-{dimensions}``, 1 to 99999 dimensions.
    query_prefix, passage_prefix
        Text put before a query or a document.

    Raises
    ------
    InputError
        The name is of another form.

    Examples
    --------
    ``crc32(b"duck") % 4`` is 3 and ``crc32(b"goose") % 4`` is 2, so two ducks and a goose are (0, 0, 1, 2) / √5:

    >>> HashingEmbedder("hashing-4").embed(["duck duck goose"], kind="document")[0].round(3)
    array([0.   , 0.   , 0.447, 0.894], dtype=float32)
    """

    provider = "hashing"
    max_tokens = 1_000_000  # it has no window
    special_tokens = 0
    is_python = True  # so that threads of Python only wait for it

    def __init__(self, model_name: str = "hashing-384", *, query_prefix: str = "", passage_prefix: str = "") -> None:
        match = _NAME.fullmatch(model_name)
        if match is None:
            raise InputError(
                f"A hashing model is named hashing-<dimensions>, 1 to 99999, such as hashing-384; not {model_name!r}."
            )
        self.model_name = model_name
        self.dimensions = int(match[1])
        self.query_prefix = query_prefix
        self.passage_prefix = passage_prefix

    @staticmethod
    def ready_models() -> list[str]:
        """Return the default model; any other number of dimensions works as well."""
        return ["hashing-384"]

    def embed(self, texts: Sequence[str], *, kind: TextKind) -> Vectors:  # noqa: ARG002 - both kinds are alike here
        """Return one row per text, in order, ``[n, dimensions] float32``, unit norm; a blank text gives zeros."""
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        number = _Numbers().__getitem__
        for row, text in zip(vectors, texts, strict=True):
            numbers = list(map(number, _WORD.findall(text) or _TOKEN.findall(text)))
            row += np.bincount(np.array(numbers, np.int64) % self.dimensions, minlength=self.dimensions)
            norm = np.sqrt(np.dot(row, row))
            if norm > 0:
                row /= norm
        return vectors

    def token_offsets(self, text: str) -> Sequence[tuple[int, int]]:
        """Return ``(start, end)`` in characters of every word and of every run of other visible characters."""
        return [match.span() for match in _TOKEN.finditer(text)]
