"""Which embedding providers can be used here, why the others cannot, and which models need no network."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlrag.embedders.base import _factory, provider_names
from sqlrag.embedders.scrubbing import scrub


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
    """Tell which embedding providers can be used here, why the others cannot, and which models need no network.

    No model is loaded and none is downloaded. A provider may have two methods of its class that are asked, both without
    arguments: ``obstacle()`` returns None or a sentence that says what keeps it from being used here and what helps,
    such as a missing package, a missing key or a server that does not answer (it should ask for a second at most);
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
    found = [_look_at(name) for name in provider_names()]
    return Models([provider for provider, _ in found], [model for _, ready in found for model in ready])


def _look_at(name: str) -> tuple[Provider, list[ReadyModel]]:
    """Return the state of one provider; whatever its package raises is a reason why it cannot be used."""
    try:
        factory: Any = _factory(name)
        obstacle = factory.obstacle() if hasattr(factory, "obstacle") else None
        ready = factory.ready_models() if obstacle is None and hasattr(factory, "ready_models") else []
    except Exception as error:
        obstacle, ready = str(error) or type(error).__name__, []
    return Provider(name, obstacle is None, scrub(obstacle or "")), [ReadyModel(name, str(model)) for model in ready]
