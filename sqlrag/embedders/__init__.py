"""Embedding models: the registry, the checked batches and the built-in providers.

Importing this package loads no model runtime; the classes of the providers are loaded at first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sqlrag.embedders.base import (
    DEFAULT_MODEL,
    PROBE_TEXT,
    as_embedder,
    check_identity,
    embed_texts,
    load_embedder,
    probe,
    provider_names,
)

if TYPE_CHECKING:
    from sqlrag.embedders.batching import self_test
    from sqlrag.embedders.function import CallableEmbedder, LlamaIndexEmbedder
    from sqlrag.embedders.hashing import HashingEmbedder
    from sqlrag.embedders.huggingface import HuggingFaceEmbedder
    from sqlrag.embedders.ollama import OllamaEmbedder
    from sqlrag.embedders.onnx import OnnxEmbedder
    from sqlrag.embedders.openai import OpenAIEmbedder
    from sqlrag.embedders.openvino import OpenVinoEmbedder

__all__ = [
    "DEFAULT_MODEL",
    "PROBE_TEXT",
    "CallableEmbedder",
    "HashingEmbedder",
    "HuggingFaceEmbedder",
    "LlamaIndexEmbedder",
    "OllamaEmbedder",
    "OnnxEmbedder",
    "OpenAIEmbedder",
    "OpenVinoEmbedder",
    "as_embedder",
    "check_identity",
    "embed_texts",
    "load_embedder",
    "probe",
    "provider_names",
    "self_test",
]

_LAZY = {
    "CallableEmbedder": "sqlrag.embedders.function",
    "HashingEmbedder": "sqlrag.embedders.hashing",
    "HuggingFaceEmbedder": "sqlrag.embedders.huggingface",
    "LlamaIndexEmbedder": "sqlrag.embedders.function",
    "OllamaEmbedder": "sqlrag.embedders.ollama",
    "OnnxEmbedder": "sqlrag.embedders.onnx",
    "OpenAIEmbedder": "sqlrag.embedders.openai",
    "OpenVinoEmbedder": "sqlrag.embedders.openvino",
    "self_test": "sqlrag.embedders.batching",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
