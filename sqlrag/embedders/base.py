"""The registry of embedding providers, the identity of a model, and which models can be used here."""

from __future__ import annotations

import copy
import hashlib
import inspect
import os
import sys
import warnings
from dataclasses import replace
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from sqlrag.arguments import not_blank, shown
from sqlrag.embedders.batching import embed_texts
from sqlrag.errors import InputError, MissingExtraError, ModelMismatchError, ModelUnavailableError
from sqlrag.locks import new_lock
from sqlrag.network import scrub
from sqlrag.normalize import without_surrogates
from sqlrag.types import Embedder, ModelIdentity

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from threading import Lock

__all__ = [
    "DEFAULT_MODEL",
    "GIVEN",
    "PROBE_TEXT",
    "as_embedder",
    "check_identity",
    "embed_texts",
    "load_embedder",
    "probe",
    "provider_names",
    "same_model",
    "without_surrogates",
]

DEFAULT_MODEL = "BAAI/bge-small-en-v1.5"

GIVEN = "given"

"""The provider of a file whose vectors were computed elsewhere."""

PROBE_TEXT = "The quick brown fox reads 42 pages about databases, then jumps over the lazy dog."

"""The text whose vector, embedded as a document, is a model's fingerprint. Never change it: files hold its vectors."""

SAME_MODEL_COSINE = 0.99

"""Fingerprints at least this similar are of one model: an int8 and a full-precision export of MiniLM differ by 0.0005,
different models of equal dimensions are nearly orthogonal."""

_GROUP = "sqlrag.embedders"

_BUILT_IN = {
    "onnx": "sqlrag.embedders.onnx:OnnxEmbedder",
    "openvino": "sqlrag.embedders.openvino:OpenVinoEmbedder",
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

# Keys of the servers that a user has configured, by provider and base_url (None: the provider's own). Each goes to its
# server alone.
configured_keys: dict[tuple[str, str | None], str] = {}

# One for each model: what is slow to load keeps no other one waiting.
_loading: dict[tuple[object, ...], Lock] = {}


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
        default: ``BAAI/bge-small-en-v1.5`` for "auto", "onnx", "openvino" and "huggingface".
    provider
        One of :func:`provider_names`, or "auto", which is "onnx", and for a name that it cannot load the provider for
        which :func:`sqlrag.models` lists it. No other model is ever used instead.
    cache_dir
        onnx, openvino, huggingface: where downloaded models are kept. None is the library's own folder (for onnx
        and openvino ``FASTEMBED_CACHE_PATH``).
    model_path
        onnx, openvino: folder with the files of the model; nothing is downloaded then.
    threads
        onnx, openvino: number of threads that embed, 1 or more. None is the number of processors this process may use.
    query_prefix, passage_prefix
        Text put before a query or a document. None is what the model's authors ask for; "" is none.
    base_url
        openai, ollama: where the server is, such as ``http://localhost:8000/v1``. None: ``OPENAI_BASE_URL`` or
        ``OLLAMA_HOST``, else the default address. It must not contain a password or key.
    api_key
        openai, ollama: the key, never stored nor shown. None: ``OPENAI_API_KEY`` or ``OLLAMA_API_KEY``.
    dimensions
        openai, ollama: request shorter vectors, where the model supports it.
    max_tokens
        openai, ollama: the model's window in tokens, where the server does not report it.
    timeout
        openai, ollama: seconds for one request, and for a query with all its attempts. None: 30.
    batch_size
        openai, ollama, huggingface: texts in one request, 1 or more. None: 128; 8 for ollama; 32 for huggingface.
    device
        huggingface: "cpu", "cuda", "mps" …; None: the best one available.
    dtype
        huggingface: "float32" (the default) or "bfloat16", which is faster where the processor supports it.

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
        The server does not answer, or refuses the key.

    Examples
    --------
    >>> load_embedder("hashing-8", provider="hashing").dimensions
    8
    """
    name = "onnx" if provider == "auto" else provider
    if api_key is None and configured_keys:
        api_key = configured_keys.get((name, base_url.rstrip("/") if base_url else None))
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
    if provider == "auto" and model_name is not None:
        try:
            return load_embedder(model_name, provider="onnx", **options)  # type: ignore[arg-type]
        except ModelUnavailableError:
            listed = [ready.provider for ready in models().ready if ready.model_name == model_name]
            if not listed or listed == ["onnx"]:
                raise
        other = next(one for one in listed if one != "onnx")
        return load_embedder(model_name, provider=other, **options)  # type: ignore[arg-type]
    if name in ("onnx", "openvino") and model_name is None:
        model_name = DEFAULT_MODEL  # one entry, however the model is named
    key = (name, model_name, _environment(name), *((key, _hidden(key, value)) for key, value in options.items()))
    if key in _loaded:
        return _loaded[key]
    with _loading.setdefault(key, new_lock()):
        if key not in _loaded:
            _loaded[key] = _create(name, model_name, options)
        return _loaded[key]


def _environment(provider: str) -> tuple[str | None, ...]:
    """Return what a provider reads from the environment, so that a change takes effect."""
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
        unknown = sorted(options.keys() - inspect.signature(factory).parameters.keys())
        others = [one for one in _BUILT_IN if options.keys() <= inspect.signature(_factory(one)).parameters.keys()]
        remedy = f" Pass {' or '.join(f'provider={one!r}' for one in others)}." if unknown and others else ""
        what = ", ".join(unknown) or f"these options: {error}"
        raise InputError(f"The embedding provider {name!r} does not take {what}.{remedy}") from error
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


def usual_timeout(provider: str) -> float | None:
    """Return how long a question waits for a model of ours that is not loaded yet, in seconds; None without a limit."""
    return getattr(_factory(provider), "timeout", None) if provider in _BUILT_IN else None


def _valid_names() -> str:
    return f"Valid names: {', '.join(['auto', *provider_names()])}."


def as_embedder(embedder: object) -> Embedder:
    """Return an embedder for an object of the caller: an embedder, a llama-index ``BaseEmbedding`` or a function.

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
        from sqlrag.embedders.function import LlamaIndexEmbedder

        return LlamaIndexEmbedder(embedder)
    if callable(embedder) and not isinstance(embedder, type) and not hasattr(embedder, "embed"):
        from sqlrag.embedders.function import CallableEmbedder

        return CallableEmbedder(embedder)
    raise InputError(
        f"embedder must be an Embedder, a llama-index BaseEmbedding or a function from a list of texts to vectors, not "
        f"{shown(embedder)}" + (f", which lacks {', '.join(missing)}." if len(missing) < len(_ATTRIBUTES) else ".")
    )


def probe(embedder: Embedder) -> ModelIdentity:
    """Return what a file records about the model, with the vector of :data:`PROBE_TEXT` as its fingerprint.

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
    """Check that an embedder is the model of a file's vectors; the same model from another provider passes.

    Models are compared by fingerprint, which costs one embedding. Where the file has none, because its vectors
    were precomputed, the names are compared, and without a name the dimensions alone.

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
        if identity.model_name and short_name(identity.model_name) != short_name(embedder.model_name):
            raise mismatch("")
        return
    fingerprint = embed_texts(embedder, [PROBE_TEXT], kind="document")[0]
    cosine = float(np.dot(fingerprint.astype(np.float64), np.asarray(identity.fingerprint, dtype=np.float64)))
    if not cosine >= SAME_MODEL_COSINE:
        raise mismatch(f", whose vectors differ: cosine {cosine:.3f} for the probe text")


def same_model(name: str, other: str) -> bool:
    """Return whether two names mean the same model: case and a left-out organisation do not matter."""
    name, other = not_blank("model_name", name).lower(), other.lower()
    if "/" in name and "/" in other:
        return name == other
    return name.rpartition("/")[2] == other.rpartition("/")[2]


def short_name(model_name: str) -> str:
    """Return a name without organisation and case, since providers spell one model differently."""
    return model_name.rstrip("/").rsplit("/", 1)[-1].lower()


# The providers of objects that cannot be loaded again by name.
_GIVEN_OBJECTS = ("callable", "llama_index")

_STORED_OPTIONS = ("base_url", "dimensions", "max_tokens", "dtype")

_ADDRESS = {"openai": "OPENAI_BASE_URL", "ollama": "OLLAMA_HOST"}


def load_stored(path: Path | str, identity: ModelIdentity, remedy: str) -> Embedder:
    """Load the model that a file names; with a warning by another provider that has it, where its own lacks its extra.

    Raises
    ------
    ModelUnavailableError, MissingExtraError
        It cannot be loaded here, or the file names none; then the message ends with ``remedy``.
    """
    if identity.provider in _GIVEN_OBJECTS:
        raise ModelUnavailableError(
            f"The vectors of {path} were made by {identity.model_name!r}, which a program passed as an embedder "
            f"({identity.provider}); without it there is no model to embed {remedy}"
        )
    if identity.provider == GIVEN:
        raise ModelUnavailableError(
            f"The vectors of {path} were computed elsewhere, so the file names no model to embed {remedy}"
        )
    try:
        embedder = load_embedder(identity.model_name, provider=identity.provider, **_options(identity))
    except MissingExtraError as error:
        embedder = _from_twin(path, identity, error)
    except InputError as error:  # the caller named no provider: the file did
        raise ModelUnavailableError(f"{path} names a model that is not here: {error}") from error
    stored = (identity.query_prefix, identity.passage_prefix)
    # The prefixes of a file without a fingerprint, such as an upgraded one, were not chosen by anybody.
    if identity.fingerprint is not None and (embedder.query_prefix, embedder.passage_prefix) != stored:
        embedder = copy.copy(embedder)  # the weights are shared
        embedder.query_prefix, embedder.passage_prefix = stored
    return embedder


# The providers whose models another one has as well: the same names, files and prefixes.
TWINS = {"openvino": "onnx"}


def _from_twin(path: Path | str, identity: ModelIdentity, error: MissingExtraError) -> Embedder:
    """Load a model by the provider that has it as well, or raise the error."""
    twin = TWINS.get(identity.provider)
    if twin is None:
        raise error
    try:
        embedder = load_embedder(identity.model_name, provider=twin, **_options(identity))
    except (InputError, ModelUnavailableError):
        raise error from None
    warnings.warn(
        f"The model of {path}, {identity.model_name}, is loaded by the provider {twin!r}: {identity.provider!r}, by "
        f"which the file was built, is not installed here (pip install 'sqlrag-duckdb[{error.extra}]').",
        stacklevel=2,
    )
    return embedder


def _options(identity: ModelIdentity) -> dict[str, Any]:
    """Return the arguments that load the model, without a key for a server that only the file names.

    An untrusted file could name a server that collects keys.
    """
    options = {name: value for name, value in identity.options.items() if name in _STORED_OPTIONS}
    url = options.get("base_url")
    if url is not None and identity.provider in _ADDRESS:
        from sqlrag.embedders.remote import is_this_machine

        named = os.environ.get(_ADDRESS[identity.provider], "").rstrip("/")
        if not is_this_machine(url) and url != named and (identity.provider, url.rstrip("/")) not in configured_keys:
            options["api_key"] = ""
    return options


def check_stored(embedder: Embedder, identity: ModelIdentity) -> None:
    """Raise ModelMismatchError unless the embedder is the model of a file's vectors."""
    # A file of precomputed vectors need not name its model: then only the dimensions are compared.
    check_identity(embedder, replace(identity, model_name="") if identity.model_name == GIVEN else identity)


class Provider(NamedTuple):
    """An embedding provider. ``reason`` says why it cannot be used here, with the remedy; "" where it can."""

    name: str
    usable: bool
    reason: str


class ReadyModel(NamedTuple):
    """A model that can be loaded here without network."""

    provider: str
    model_name: str


class Models(NamedTuple):
    """What :func:`models` returns: every provider by name, and the models that are ready, by provider and name."""

    providers: list[Provider]
    ready: list[ReadyModel]


def models() -> Models:
    """Report which embedding providers can be used here, why the others cannot, and which models need no network.

    No model is loaded and none is downloaded. The class of a provider may have two methods without arguments:
    ``obstacle()`` returns None or a sentence that says why it cannot be used here and what helps, such as a missing
    package, a missing key or a server that does not answer (it should wait for a second at most);
    ``ready_models()`` returns the names of the models that it can load without network. One that has neither counts as
    usable if it can be imported.

    Returns
    -------
    Models
        ``.providers``, each with ``name``, ``usable`` and ``reason``; ``.ready``, each with ``provider`` and
        ``model_name``.

    Examples
    --------
    >>> [provider.name for provider in models().providers if provider.name in ("onnx", "hashing")]
    ['hashing', 'onnx']
    """
    found = [_state_of(name) for name in provider_names()]
    return Models([provider for provider, _ in found], [model for _, ready in found for model in ready])


def _state_of(name: str) -> tuple[Provider, list[ReadyModel]]:
    """Return the state of one provider; whatever its package raises is a reason why it cannot be used."""
    try:
        factory: Any = _factory(name)
        obstacle = factory.obstacle() if hasattr(factory, "obstacle") else None
        ready = factory.ready_models() if obstacle is None and hasattr(factory, "ready_models") else []
    except Exception as error:
        obstacle, ready = str(error) or type(error).__name__, []
    return Provider(name, obstacle is None, scrub(obstacle or "")), [ReadyModel(name, str(model)) for model in ready]
