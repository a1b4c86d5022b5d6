"""Reads JSON from untrusted files strictly; errors say what is wrong and where."""

from __future__ import annotations

import json
from collections import Counter
from math import isfinite
from typing import Any

from sqlrag.arguments import shortened, shown
from sqlrag.errors import FormatError


def strict_json(data: str | bytes | memoryview, where: str) -> Any:
    """Return the value of JSON, which is text or UTF-8.

    Raises
    ------
    FormatError
        It is not JSON, or has NaN, a number that is too large, or one key twice in an object.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name, times in Counter(names).items() if times > 1)
            raise FormatError(f"{where}: the key {shown(twice)} occurs twice in one object. Remove one of them.")
        return result

    def refuse(constant: str) -> Any:
        raise FormatError(f"{where}: {constant} is not JSON. Replace it by null or a text.")

    def finite(digits: str) -> float:
        if not isfinite(number := float(digits)):
            raise FormatError(f"{where}: the number {shortened(digits)} is too large. Replace it by null or a text.")
        return number

    try:
        text = data if isinstance(data, str) else str(data, "utf-8")
        return json.loads(text, object_pairs_hook=unique, parse_constant=refuse, parse_float=finite)
    except UnicodeDecodeError as error:
        raise FormatError(f"{where} is not UTF-8 (byte {error.start}). Store the file in UTF-8.") from error
    except RecursionError as error:
        raise FormatError(f"{where} is nested too deeply. Export it again.") from error
    except json.JSONDecodeError as error:
        raise FormatError(
            f"{where} is not JSON: {error.msg} in its line {error.lineno}, column {error.colno}. Correct it, or export "
            "it again."
        ) from error
    except FormatError:
        raise
    except ValueError as error:  # a number of thousands of digits
        raise FormatError(f"{where} is not usable JSON: {error}.") from error
