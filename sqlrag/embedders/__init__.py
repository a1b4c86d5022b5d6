"""Embedding models: the registry, the checked batches and the built-in providers.

Importing this package loads no model runtime; the classes of the providers are loaded at first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sqlrag.embedders.base import (
    DEFAULT_MODEL,
    PROBE_TEXT,
    check_identity,
    embed_texts,
    load_embedder,
    probe,
    provider_names,
)

if TYPE_CHECKING:
    from sqlrag.embedders.hashing import HashingEmbedder
    from sqlrag.embedders.onnx import OnnxEmbedder

__all__ = [
    "DEFAULT_MODEL",
    "PROBE_TEXT",
    "HashingEmbedder",
    "OnnxEmbedder",
    "check_identity",
    "embed_texts",
    "load_embedder",
    "probe",
    "provider_names",
]

_LAZY = {"HashingEmbedder": "sqlrag.embedders.hashing", "OnnxEmbedder": "sqlrag.embedders.onnx"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
