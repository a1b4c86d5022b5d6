"""What a server is started with."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

MIB = 2**20


@dataclass(frozen=True)
class ServerOptions:
    """What a server is started with; see :func:`sqlrag.adapters.rest.create_app`."""

    write: bool = False
    api_key: str | None = None
    chat_model: str | None = None
    chat_base_url: str | None = None
    rerank_model: str | None = None
    input_dir: Path | None = None
    hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]", "::1")
    threads: int = max(2, os.cpu_count() or 2)
    waiting: int = 200
    seconds: float = 30.0
    answer_seconds: float = 300.0
    answers: int = 16
    max_body_bytes: int = 4 * MIB
    max_upload_bytes: int = 64 * MIB
    idle_seconds: float = 2.0
