"""Base64 of large blocks, in lines: faster than the standard library, and nothing but base64 is accepted."""

from __future__ import annotations

import binascii
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from sqlrag.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BLOCK = 1 << 20  # bytes that are worked on at once: few calls, near to the cache of a processor
_NONE = 0xFFFF


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


def decode_lines(text: memoryview, where: str) -> NDArray[np.uint8]:
    """Return the bytes of base64 in any lines; the 46th lies at an address that is a multiple of 16.

    Raises
    ------
    FormatError
        There is a character that is none of base64, or one is missing.
    """
    data = np.empty(3 + len(text) // 4 * 3 + 3, np.uint8)[3:]  # numpy's own addresses are such multiples
    rest = b""
    end = 0
    for first in range(0, len(text), _BLOCK):
        block = rest + b"".join(bytes(text[first : first + _BLOCK]).split())
        # The last four characters may be padded: they wait for the end.
        cut = max(0, len(block) - 1) // 4 * 4
        rest = block[cut:]
        _decode(block[:cut], data[end : end + cut // 4 * 3], where)
        end += cut // 4 * 3
    last = _decode_last(rest, where)
    data[end : end + len(last)] = np.frombuffer(last, np.uint8)
    return data[: end + len(last)]


def _decode(text: bytes, data: NDArray[np.uint8], where: str) -> None:
    """Decode characters without any padding, two at a time by a table."""
    if not text:
        return
    halves = _values().take(np.frombuffer(text, np.uint16)).reshape(-1, 2)
    if halves.max() == _NONE:
        wrong = text.translate(None, _ALPHABET)[:1].decode("latin-1")
        raise FormatError(f"{where} holds {wrong!r}, where only base64 can stand. It was edited; export it again.")
    groups = data.reshape(-1, 3)
    high, low = halves[:, 0], halves[:, 1]
    np.right_shift(high, 4, out=groups[:, 0], casting="unsafe")
    np.bitwise_or(high << 4, low >> 8, out=groups[:, 1], casting="unsafe")
    groups[:, 2] = low


def _decode_last(text: bytes, where: str) -> bytes:
    """Decode the last four characters, which may be padded."""
    try:
        last = binascii.a2b_base64(text)
    except binascii.Error:
        last = b""
    if binascii.b2a_base64(last, newline=False) != text:
        raise FormatError(f"{where} ends with {text[-20:]!r}, which is no whole base64. It is cut short or was edited.")
    return last


@cache
def _values() -> NDArray[np.uint16]:
    """Return the 12 bits of each two characters, as they lie in memory; _NONE where they are none of base64."""
    letters = np.frombuffer(_ALPHABET, np.uint8)
    pairs = np.stack([np.repeat(letters, 64), np.tile(letters, 64)], axis=1)
    table = np.full(1 << 16, _NONE, np.uint16)
    table[np.ascontiguousarray(pairs).view(np.uint16).reshape(-1)] = np.arange(1 << 12)
    return table
