"""The registry of embedding providers, and what tells one model from another."""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
import threading
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sqlrag.embedders.batching import embed_texts, without_surrogates
from sqlrag.errors import InputError, ModelMismatchError
from sqlrag.types import Embedder, ModelIdentity

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = [
    "DEFAULT_MODEL",
    "PROBE_TEXT",
    "as_embedder",
    "check_identity",
    "embed_texts",
    "load_embedder",
    "probe",
    "provider_names",
    "without_surrogates",
]

DEFAULT_MODEL = "BAAI/bge-small-en-v1.5"

PROBE_TEXT = "The quick brown fox reads 42 pages about databases, then jumps over the lazy dog."
"""The text whose vector, embedded as a document, is a model's fingerprint. Never change it: files hold its vectors."""

SAME_MODEL_COSINE = 0.99
"""Fingerprints at least this similar are of one model: an int8 and a full-precision export of MiniLM differ by 0.0005,
different models of equal dimensions are nearly orthogonal."""

_GROUP = "sqlrag.embedders"
_BUILT_IN = {
    "onnx": "sqlrag.embedders.onnx:OnnxEmbedder",
    "hashing": "sqlrag.embedders.hashing:HashingEmbedder",
    "huggingface": "sqlrag.embedders.huggingface:HuggingFaceEmbedder",
    "openai": "sqlrag.embedders.openai:OpenAIEmbedder",
    "ollama": "sqlrag.embedders.ollama:OllamaEmbedder",
}
_ATTRIBUTES = (
    "provider",
    "model_name",
    "dimensions",
    "max_tokens",
    "special_tokens",
    "query_prefix",
    "passage_prefix",
    "embed",
    "token_offsets",
)

_loaded: dict[tuple[object, ...], Embedder] = {}
_lock = threading.Lock()


def provider_names() -> list[str]:
    """Return the names of the embedding providers that are installed here, sorted."""
    return sorted({*_BUILT_IN, *(point.name for point in entry_points(group=_GROUP))})


def load_embedder(
    model_name: str | None = None,
    *,
    provider: str = "auto",
    cache_dir: str | Path | None = None,
    model_path: str | Path | None = None,
    threads: int | None = None,
    query_prefix: str | None = None,
    passage_prefix: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    dimensions: int | None = None,
    max_tokens: int | None = None,
    timeout: float | None = None,
    batch_size: int | None = None,
    device: str | None = None,
    dtype: str | None = None,
) -> Embedder:
    """Load an embedding model, once per process for equal arguments; safe to call from several threads.

    Parameters
    ----------
    model_name
        Name on the Hugging Face hub, a local folder, or what a server calls the model. None is the provider's own
        default: ``BAAI/bge-small-en-v1.5`` for "auto", "onnx" and "huggingface".
    provider
        One of :func:`provider_names`, or "auto", which is "onnx". Another model or provider is never taken instead.
    cache_dir
        onnx, huggingface: where downloaded models are kept. None is the library's own folder (for onnx
        ``FASTEMBED_CACHE_PATH``).
    model_path
        onnx: folder with the files of the model; nothing is downloaded then.
    threads
        onnx: number of threads that embed, 1 or more. None is the number of processors this process may use.
    query_prefix, passage_prefix
        Text put before a query or a document. None is what the model's authors ask for; "" is none.
    base_url
        openai, ollama: where the server is, such as ``http://localhost:8000/v1``. None: ``OPENAI_BASE_URL`` or
        ``OLLAMA_HOST``, else the usual place. It must not hold a password or key.
    api_key
        openai, ollama: the key, never stored nor shown. None: ``OPENAI_API_KEY`` or ``OLLAMA_API_KEY``.
    dimensions
        openai, ollama: ask for shorter vectors, of models that can make them.
    max_tokens
        openai, ollama: the model's window in tokens, where the server does not tell it.
    timeout
        openai, ollama: seconds for one request, and for a query with all its attempts. None: 30.
    batch_size
        openai, ollama, huggingface: texts in one request, 1 or more. None: 128; 8 for ollama; 32 for huggingface.
    device
        huggingface: "cpu", "cuda", "mps" …; None: the best one that is there.
    dtype
        huggingface: "float32" (the default) or "bfloat16", which is faster where the processor has it.

    Returns
    -------
    Embedder
        The same object for the same arguments.

    Raises
    ------
    InputError
        The provider is unknown, cannot be imported, or does not take one of the options.
    MissingExtraError
        The provider needs a package that is not installed; the message has the line that installs it.
    ModelUnavailableError
        The model is unknown or cannot be loaded here.
    ProviderError
        The server gives no answer, or refuses the key.

    Examples
    --------
    >>> load_embedder("hashing-8", provider="hashing").dimensions
    8
    """
    name = "onnx" if provider == "auto" else provider
    given = {
        "cache_dir": cache_dir,
        "model_path": model_path,
        "threads": threads,
        "query_prefix": query_prefix,
        "passage_prefix": passage_prefix,
        "base_url": base_url,
        "api_key": api_key,
        "dimensions": dimensions,
        "max_tokens": max_tokens,
        "timeout": timeout,
        "batch_size": batch_size,
        "device": device,
        "dtype": dtype,
    }
    options = {key: value for key, value in given.items() if value is not None}
    if name == "onnx" and model_name is None:
        model_name = DEFAULT_MODEL  # one model, however it is asked for
    key = (name, model_name, _environment(name), *((key, _hidden(key, value)) for key, value in options.items()))
    # A model that is loaded already is handed out without the lock, so it never waits for another one's download.
    if key in _loaded:
        return _loaded[key]
    with _lock:
        if key not in _loaded:
            _loaded[key] = _create(name, model_name, options)
        return _loaded[key]


def _environment(provider: str) -> tuple[str | None, ...]:
    """Return what a provider takes from the environment, so that a change of it takes effect."""
    names = {"openai": ("OPENAI_BASE_URL", "OPENAI_API_KEY"), "ollama": ("OLLAMA_HOST", "OLLAMA_API_KEY")}
    return tuple(_hidden("api_key", os.environ.get(name)) for name in names.get(provider, ()))


def _hidden(option: str, value: Any) -> Any:
    return hashlib.sha256(str(value).encode("utf-8", "surrogatepass")).hexdigest() if option == "api_key" else value


def _create(name: str, model_name: str | None, options: dict[str, Any]) -> Embedder:
    factory = _factory(name)
    arguments = options if model_name is None else {"model_name": model_name, **options}
    try:
        inspect.signature(factory).bind(**arguments)
    except TypeError as error:
        raise InputError(f"The embedding provider {name!r} cannot be used with these options: {error}.") from error
    return factory(**arguments)


def _factory(name: str) -> Callable[..., Embedder]:
    """Import the provider's class: a built-in name first, so that a checkout works without being installed."""
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        return cast("Callable[..., Embedder]", getattr(import_module(module), attribute))
    points: dict[str, EntryPoint] = {point.name: point for point in entry_points(group=_GROUP)}
    if name in points:
        try:
            return cast("Callable[..., Embedder]", points[name].load())
        except Exception as error:
            raise InputError(
                f"The embedding provider {name!r} ({points[name].value}) cannot be loaded: {error}. {_valid_names()}"
            ) from error
    raise InputError(f"There is no embedding provider {name!r}. {_valid_names()}")


def _valid_names() -> str:
    return f"Valid names: {', '.join(['auto', *provider_names()])}."


def as_embedder(embedder: object) -> Embedder:
    """Return an embedder made of what a caller has: an embedder, a llama-index ``BaseEmbedding`` or a function.

    Parameters
    ----------
    embedder
        An object that fits :class:`sqlrag.Embedder` is returned as it is. A function takes a list of texts and returns
        a vector for each, in order; its name becomes the model's. For another name, window or prefixes, wrap it
        yourself in :class:`sqlrag.embedders.CallableEmbedder` or :class:`sqlrag.embedders.LlamaIndexEmbedder`.

    Raises
    ------
    InputError
        It is none of these.
    ProviderError
        It cannot embed a first text.

    Examples
    --------
    >>> as_embedder(lambda texts: [[len(text), 1.0] for text in texts]).dimensions
    2
    """
    missing = [name for name in _ATTRIBUTES if not hasattr(embedder, name)]
    if not missing and not isinstance(embedder, type):
        return cast("Embedder", embedder)
    # Where llama-index was never imported, no object can be one of its embeddings.
    llama_index: Any = sys.modules.get("llama_index.core.base.embeddings.base")
    if llama_index is not None and isinstance(embedder, llama_index.BaseEmbedding):
        from sqlrag.embedders.llama_index import LlamaIndexEmbedder

        return LlamaIndexEmbedder(embedder)
    if callable(embedder) and not isinstance(embedder, type) and not hasattr(embedder, "embed"):
        from sqlrag.embedders.function import CallableEmbedder

        return CallableEmbedder(embedder)
    raise InputError(
        f"embedder must be an Embedder, a llama-index BaseEmbedding or a function from a list of texts to vectors, not "
        f"{embedder!r:.200}" + (f", which lacks {', '.join(missing)}." if len(missing) < len(_ATTRIBUTES) else ".")
    )


def probe(embedder: Embedder) -> ModelIdentity:
    """Return what a file remembers of the model, with the vector of :data:`PROBE_TEXT` as its fingerprint.

    Raises
    ------
    ProviderError
        The provider cannot embed, or its vectors are not of the length that it states.
    """
    vector = embed_texts(embedder, [PROBE_TEXT], kind="document")[0]
    return ModelIdentity(
        provider=embedder.provider,
        model_name=embedder.model_name,
        dimensions=len(vector),
        max_tokens=embedder.max_tokens,
        query_prefix=embedder.query_prefix,
        passage_prefix=embedder.passage_prefix,
        fingerprint=tuple(vector.tolist()),
        revision=str(getattr(embedder, "revision", "")),
        options=dict(getattr(embedder, "options", {})),
    )


def check_identity(embedder: Embedder, identity: ModelIdentity) -> None:
    """Check that an embedder is the model that filled a file; the same model from another provider passes.

    Models are compared by fingerprint, which costs one embedding. Where the file has none, because its vectors
    were given ready-made, the names are compared, and without a name the dimensions alone.

    Raises
    ------
    ModelMismatchError
        The dimensions or a prefix differ, or the cosine of the fingerprints is below :data:`SAME_MODEL_COSINE`.
    """
    stored = f"the model {identity.model_name!r} ({identity.provider}, {identity.dimensions} dimensions)"
    given = f"{embedder.model_name!r} ({embedder.provider}, {embedder.dimensions} dimensions)"

    def mismatch(why: str) -> ModelMismatchError:
        return ModelMismatchError(
            f"The file was built with {stored}; you passed {given}{why}. "
            "Use the model of the file; reembed(db_path, model) gives a file another model."
        )

    if embedder.dimensions != identity.dimensions:
        raise mismatch("")
    for label, theirs, ours in (
        ("query_prefix", identity.query_prefix, embedder.query_prefix),
        ("passage_prefix", identity.passage_prefix, embedder.passage_prefix),
    ):
        if identity.fingerprint is not None and theirs != ours:
            raise mismatch(f", whose {label} is {ours!r} and not {theirs!r} (load_embedder takes it as an argument)")
    if identity.fingerprint is None:
        if identity.model_name and _short(identity.model_name) != _short(embedder.model_name):
            raise mismatch("")
        return
    fingerprint = embed_texts(embedder, [PROBE_TEXT], kind="document")[0]
    cosine = float(np.dot(fingerprint.astype(np.float64), np.asarray(identity.fingerprint, dtype=np.float64)))
    if not cosine >= SAME_MODEL_COSINE:
        raise mismatch(f", which gives other vectors: cosine {cosine:.3f} for the probe text")


def _short(model_name: str) -> str:
    """Name without organisation and case, since providers spell one model differently."""
    return model_name.rstrip("/").rsplit("/", 1)[-1].lower()
