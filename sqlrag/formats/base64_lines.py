"""Base64 of large blocks, in lines; nothing but base64 is accepted."""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING

import numpy as np

from sqlrag.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_SPACES = b" \t\r\n"
_BLOCK = 1 << 18  # bytes that are encoded at once: few calls, and they stay in the cache of a processor


def encode_lines(data: memoryview, line_bytes: int) -> Iterator[bytes]:
    """Yield base64 with a newline after each ``line_bytes`` (a multiple of 3) of ``data``."""
    whole = len(data) // line_bytes * line_bytes
    step = max(1, _BLOCK // line_bytes) * line_bytes
    for first in range(0, whole, step):
        encoded = np.frombuffer(binascii.b2a_base64(data[first : min(first + step, whole)], newline=False), np.uint8)
        rows = encoded.reshape(-1, line_bytes // 3 * 4)
        lines = np.full((rows.shape[0], rows.shape[1] + 1), ord("\n"), np.uint8)
        lines[:, :-1] = rows
        yield lines.tobytes()
    if len(data) > whole:
        yield binascii.b2a_base64(data[whole:])


def decode_lines(text: bytes, head_bytes: int, where: str) -> tuple[bytes, bytes]:
    """Return the bytes of base64 in any lines: the first ``head_bytes`` (a multiple of 3), and those after them.

    They are apart so that numpy can take each as an array: Python's bytes lie at addresses that are multiples of 16.

    Raises
    ------
    FormatError
        There is a character that is none of base64, or one is missing.
    """
    other = text.translate(None, _ALPHABET + _SPACES)
    padding = other if other in (b"", b"=", b"==") else b""
    if other != padding or not text[-64:].rstrip(_SPACES).endswith(padding):
        shown = other.strip(b"=")[:1] or b"="
        raise FormatError(
            f"{where} holds {shown.decode('latin-1')!r}, where only base64 can stand. It was edited; export it again."
        )
    place = characters = 0
    while place < len(text) and characters < head_bytes // 3 * 4:
        characters += text[place] not in _SPACES
        place += 1
    try:
        return binascii.a2b_base64(text[:place]), binascii.a2b_base64(memoryview(text)[place:])
    except binascii.Error as error:
        raise FormatError(f"{where} is no whole base64 ({error}). It is cut short; export it again.") from error
