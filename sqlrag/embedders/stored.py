"""The embedder that a file names: loading it, and making sure that it is the one."""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlrag.errors import InputError, ModelUnavailableError
from sqlrag.store.metadata import GIVEN

if TYPE_CHECKING:
    from pathlib import Path

    from sqlrag.types import Embedder, ModelIdentity

# The providers of objects that no name loads again.
_GIVEN_OBJECTS = ("callable", "llama_index")
_STORED_OPTIONS = ("base_url", "dimensions", "max_tokens", "dtype")
_ADDRESS = {"openai": "OPENAI_BASE_URL", "ollama": "OLLAMA_HOST"}


def load_stored(path: Path | str, identity: ModelIdentity, remedy: str) -> Embedder:
    """Load the model that a file names.

    Raises
    ------
    ModelUnavailableError, MissingExtraError
        It cannot be loaded here, or the file names none; then the message ends with ``remedy``.
    """
    from sqlrag.embedders import load_embedder

    if identity.provider in _GIVEN_OBJECTS:
        raise ModelUnavailableError(
            f"The vectors of {path} were made by {identity.model_name!r}, which a program passed as an embedder "
            f"({identity.provider}); without it there is no model to embed {remedy}"
        )
    if identity.provider == GIVEN:
        raise ModelUnavailableError(
            f"The vectors of {path} were given ready-made, so the file names no model to embed {remedy}"
        )
    try:
        embedder = load_embedder(identity.model_name, provider=identity.provider, **_options(identity))
    except InputError as error:  # the caller named no provider: the file did
        raise ModelUnavailableError(f"{path} names a model that is not here: {error}") from error
    stored = (identity.query_prefix, identity.passage_prefix)
    # A file without a fingerprint, such as an upgraded one, has no prefixes that anybody chose.
    if identity.fingerprint is not None and (embedder.query_prefix, embedder.passage_prefix) != stored:
        embedder = copy.copy(embedder)  # the weights are shared
        embedder.query_prefix, embedder.passage_prefix = stored
    return embedder


def _options(identity: ModelIdentity) -> dict[str, Any]:
    """Return the arguments that load the model, without a key for a server that only the file names.

    A file from somebody else could name a server that collects keys.
    """
    options = {name: value for name, value in identity.options.items() if name in _STORED_OPTIONS}
    url = options.get("base_url")
    if url is not None and identity.provider in _ADDRESS:
        from sqlrag.embedders.service import is_this_machine

        named = os.environ.get(_ADDRESS[identity.provider], "").rstrip("/")
        if not is_this_machine(url) and url != named:
            options["api_key"] = ""
    return options


def check_stored(embedder: Embedder, identity: ModelIdentity) -> None:
    """Raise ModelMismatchError unless the embedder makes the vectors that a file holds."""
    from sqlrag.embedders import check_identity

    # A file of ready-made vectors need not say what made them: then the dimensions have to do.
    check_identity(embedder, replace(identity, model_name="") if identity.model_name == GIVEN else identity)
