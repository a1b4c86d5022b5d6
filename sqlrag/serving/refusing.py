"""What a server says instead of doing what a request asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Refused(Exception):  # noqa: N818 - a refusal is an answer
    """A request that is not done: its status and why."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})
        super().__init__(detail)


def within(size: int, most_bytes: int) -> None:
    """Refuse an answer that is too large."""
    if size > most_bytes:
        raise Refused(413, f"The answer is larger than {most_bytes:,} bytes; ask for less, or in several requests.")
