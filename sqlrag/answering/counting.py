"""How many tokens a text has for a chat model whose tokenizer may not be here."""

from __future__ import annotations

import re
from numbers import Integral
from typing import TYPE_CHECKING, Any

from sqlrag import options
from sqlrag.errors import InputError, SqlragError

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

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
        It is none of these. The function raises it too, where it fails or a count is no whole number of 0 or more.

    Examples
    --------
    >>> token_counter(len)("abc")
    3
    """
    if count_tokens is None:
        return estimate_tokens
    if hasattr(count_tokens, "token_offsets"):
        counted = _length_of(count_tokens.token_offsets)
    elif hasattr(count_tokens, "encode") and not isinstance(count_tokens, str):
        counted = _length_of(count_tokens.encode)
    elif callable(count_tokens):
        counted = count_tokens
    else:
        raise InputError(f"count_tokens must be a function or a tokenizer, not {options.shown(count_tokens)}.")

    def count(text: str) -> int:
        try:
            number = counted(text)
        except SqlragError:
            raise
        except Exception as error:
            raise InputError(f"count_tokens fails: {type(error).__name__}: {error}") from error
        if isinstance(number, bool) or not isinstance(number, Integral) or number < 0:
            raise InputError(f"count_tokens must return a whole number of 0 or more, not {options.shown(number)}.")
        return int(number)

    return count


def _length_of(tokens: Callable[[str], Sized]) -> Callable[[str], int]:
    return lambda text: len(tokens(text))
