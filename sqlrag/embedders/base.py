"""The registry of embedding providers, and the one way in which texts become vectors."""

from __future__ import annotations

import inspect
import re
import threading
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sqlrag.errors import InputError, ModelMismatchError, ProviderError, SqlragError
from sqlrag.types import Embedder, ModelIdentity, TextKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from sqlrag.types import Vectors

DEFAULT_MODEL = "BAAI/bge-small-en-v1.5"

PROBE_TEXT = "The quick brown fox reads 42 pages about databases, then jumps over the lazy dog."
"""The text whose vector, embedded as a document, is a model's fingerprint. Never change it: files hold its vectors."""

SAME_MODEL_COSINE = 0.99
"""Fingerprints at least this similar are of one model: an int8 and a full-precision export of MiniLM differ by 0.0005,
different models of equal dimensions are nearly orthogonal."""

_GROUP = "sqlrag.embedders"
_BUILT_IN = {"onnx": "sqlrag.embedders.onnx:OnnxEmbedder", "hashing": "sqlrag.embedders.hashing:HashingEmbedder"}
_SURROGATES = re.compile("[\ud800-\udfff]")

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
) -> Embedder:
    """Load an embedding model, once per process for equal arguments; safe to call from several threads.

    Parameters
    ----------
    model_name
        Name on the Hugging Face hub, or a local folder. None is the provider's own default:
        ``BAAI/bge-small-en-v1.5`` for "auto" and "onnx".
    provider
        One of :func:`provider_names`, or "auto", which is "onnx". Another model or provider is never taken instead.
    cache_dir
        Where downloaded models are kept. None is fastembed's folder (``FASTEMBED_CACHE_PATH``).
    model_path
        Folder with the files of the model; nothing is downloaded then.
    threads
        Number of threads that embed, 1 or more. None is the number of processors this process may use.
    query_prefix, passage_prefix
        Text put before a query or a document. None is what the model's authors ask for; "" is none.

    Returns
    -------
    Embedder
        The same object for the same arguments.

    Raises
    ------
    InputError
        The provider is unknown, cannot be imported, or does not take one of the options.
    ModelUnavailableError
        The model is unknown or cannot be loaded here.

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
    }
    options = {key: value for key, value in given.items() if value is not None}
    key = (name, model_name, *options.items())
    # A model that is loaded already is handed out without the lock, so it never waits for another one's download.
    if key in _loaded:
        return _loaded[key]
    with _lock:
        if key not in _loaded:
            _loaded[key] = _create(name, model_name, options)
        return _loaded[key]


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


def embed_texts(
    embedder: Embedder,
    texts: Sequence[str],
    *,
    kind: TextKind,
    batch_size: int = 128,
    progress: Callable[[int], object] | None = None,
) -> Vectors:
    """Embed texts as documents or as queries: prefixed, in batches of like length, checked and scaled to unit length.

    Parameters
    ----------
    embedder
        The provider; only its attributes, ``embed`` and nothing else is used.
    texts
        None of them blank. Lone surrogates are replaced by U+FFFD.
    kind
        "document" or "query": which of the embedder's prefixes is put before each text.
    batch_size
        Texts per call of the provider, 1 or more.
    progress
        Called after each batch with the number of texts in it.

    Returns
    -------
    Vectors
        ``[len(texts), dimensions] float32``, unit norm, in the order of ``texts``.

    Raises
    ------
    InputError
        A text is blank or no string (the message gives its position, counted from 0), or an argument is wrong.
    ProviderError
        The provider failed, or gave a wrong number of vectors, a wrong length, a value that is not finite, or a
        vector of zeros. The message names the model, what was expected and got, and the position of the text.

    Examples
    --------
    >>> embed_texts(load_embedder("hashing-8", provider="hashing"), ["duck"], kind="query").shape
    (1, 8)
    """
    if kind not in ("document", "query"):
        raise InputError(f'kind must be "document" or "query", not {kind!r}.')
    if batch_size < 1:
        raise InputError(f"batch_size must be 1 or more, not {batch_size}.")
    prefix = embedder.query_prefix if kind == "query" else embedder.passage_prefix
    prepared = [prefix + text for text in _valid(texts)]

    vectors = np.empty((len(prepared), embedder.dimensions), dtype=np.float32)
    # Texts of like length are sent together, because some providers pad a batch to its longest text.
    order = sorted(range(len(prepared)), key=lambda position: len(prepared[position]))
    for start in range(0, len(order), batch_size):
        positions = order[start : start + batch_size]
        vectors[positions] = _embed_batch(embedder, [prepared[p] for p in positions], kind, positions)
        if progress is not None:
            progress(len(positions))
    return vectors


def _valid(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise InputError("texts must be a list of strings, not one string.")
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"The text at position {position} is a {type(text).__name__}, not a string.")
        if not text.strip():
            raise InputError(f"The text at position {position} is blank: there is nothing to embed.")
    return [without_surrogates(text) for text in texts]


def without_surrogates(text: str) -> str:
    """Return the text with each lone surrogate replaced by U+FFFD, so that it can be encoded; its length is kept."""
    return _SURROGATES.sub("\ufffd", text)


def _embed_batch(embedder: Embedder, batch: list[str], kind: TextKind, positions: list[int]) -> Vectors:
    model = f"{embedder.provider} model {embedder.model_name!r}"
    try:
        rows = embedder.embed(batch, kind=kind)
    except SqlragError:
        raise
    except Exception as error:
        raise ProviderError(f"The {model} failed on the texts at positions {positions}: {error}") from error

    if rows is None or len(rows) != len(batch):
        got = "nothing" if rows is None else f"{len(rows)}"
        raise ProviderError(f"The {model}: expected {len(batch)} vectors, got {got}; texts at positions {positions}.")
    matrix = np.empty((len(batch), embedder.dimensions), dtype=np.float64)
    for row, values, position in zip(matrix, rows, positions, strict=True):
        where = f"for the text at position {position}"
        if np.ndim(values) != 1 or len(values) != embedder.dimensions:
            got = f"{len(values)} values" if np.ndim(values) == 1 else f"an array of shape {np.shape(values)}"
            raise ProviderError(f"The {model}: expected a vector of {embedder.dimensions} values, got {got} {where}.")
        row[:] = values
        if not np.isfinite(row).all():
            raise ProviderError(f"The {model}: expected finite values, got NaN or infinity {where}.")
        # The scale is taken out first, so that neither huge nor tiny values overflow when they are squared.
        scale = np.abs(row).max(initial=0.0)
        if scale == 0:
            raise ProviderError(f"The {model}: expected a direction, got a vector of zeros {where}.")
        row /= scale
        row /= np.sqrt(np.sum(row * row))
    return matrix.astype(np.float32)


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
            "Use the model of the file, or prepare a new file with the other one."
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
