"""Counting tokens for models whose tokenizer is not here: OpenAI's from its file, any other by a cautious estimate."""

from __future__ import annotations

import hashlib
import logging
import re
from base64 import b64decode
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import tiktoken

logger = logging.getLogger(__name__)

# llama-index-core ships this file, so that nothing is fetched: cl100k_base, the encoding of OpenAI's embedding models.
_CL100K_FILE = "_static/tiktoken_cache/9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
_CL100K_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
_CL100K_PATTERN = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"""
    r"""|\s*[\r\n]|\s+(?!\S)|\s"""
)

# Four letters, two digits, or any other visible character. Real vocabularies hold longer pieces of common words.
_PIECE = re.compile(r"[A-Za-z]{1,4}|[0-9]{1,2}|[^\sA-Za-z0-9]")


def estimated_offsets(text: str) -> list[tuple[int, int]]:
    """Return ``(start, end)`` of pieces, of which a text has more than it has tokens in any usual vocabulary.

    A piece is up to four Latin letters, up to two digits, or one other visible character. English documentation has 1.2
    (BERT) to 1.4 (OpenAI) times as many pieces as tokens, so that chunks come out somewhat smaller than asked for. Only
    runs of rare, long words can have more tokens than pieces; where such a text is beyond a window, the server says so.

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
        logger.warning("llama-index-core does not hold the vocabulary of OpenAI's models here: tokens are estimated.")
        return None
    import tiktoken

    ranks = {b64decode(token): int(rank) for token, rank in (line.split() for line in content.splitlines())}
    return tiktoken.Encoding("cl100k_base", pat_str=_CL100K_PATTERN, mergeable_ranks=ranks, special_tokens={})
