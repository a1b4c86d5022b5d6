"""How many tokens a text has for a chat model whose tokenizer may not be here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sqlrag.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

# Up to four Latin letters, one digit, one other visible character, or blank space with a line end in it.
_PIECE = re.compile(r"[A-Za-z]{1,4}|[0-9]|[^\sA-Za-z0-9]|\s*\n\s*")
_WIDE = "\u2e7f"  # from here on a character, Han among them, may take two tokens of an English vocabulary


def estimate_tokens(text: str) -> int:
    """Return a number of tokens that a usual vocabulary rarely passes; needs no model and no network.

    Up to four Latin letters, a digit, another visible character and a line end count one each, a Han character or an
    emoji two. English documentation has 1.2 to 1.4 times as many as byte-pair vocabularies make of it.

    Examples
    --------
    >>> estimate_tokens("embed 768!"), estimate_tokens("鸭子"), estimate_tokens("")
    (6, 4, 0)
    """
    return sum(2 if piece > _WIDE else 1 for piece in _PIECE.findall(text))


def token_counter(count_tokens: Any = None) -> Callable[[str], int]:
    """Return a function that counts the tokens of a text.

    Parameters
    ----------
    count_tokens
        A function from a text to a number; anything with ``encode``, such as an encoding of tiktoken or a tokenizer of
        ``tokenizers`` or ``transformers``; an embedder, whose ``token_offsets`` are counted; or None for
        :func:`estimate_tokens`.

    Raises
    ------
    InputError
        It is none of these. The function raises it too, where a count is no whole number of 0 or more.

    Examples
    --------
    >>> token_counter(len)("abc")
    3
    """
    if count_tokens is None:
        return estimate_tokens
    if hasattr(count_tokens, "token_offsets"):
        return lambda text: len(count_tokens.token_offsets(text))
    if hasattr(count_tokens, "encode") and not isinstance(count_tokens, str):
        return lambda text: len(count_tokens.encode(text))
    if not callable(count_tokens):
        raise InputError(f"count_tokens must be a function or a tokenizer, not {count_tokens!r:.200}.")

    def count(text: str) -> int:
        number = count_tokens(text)
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise InputError(f"count_tokens must return a whole number of 0 or more, not {number!r:.200}.")
        return number

    return count
