"""The embedder that a file names: loading it, and making sure that it is the one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlrag.errors import InputError, ModelUnavailableError
from sqlrag.store.metadata import GIVEN

if TYPE_CHECKING:
    from pathlib import Path

    from sqlrag.types import Embedder, ModelIdentity


def load_stored(path: Path, identity: ModelIdentity, remedy: str) -> Embedder:
    """Load the model that a file names.

    Raises
    ------
    ModelUnavailableError, MissingExtraError
        It cannot be loaded here, or the file names none; then the message ends with ``remedy``.
    """
    from sqlrag.embedders import load_embedder

    if identity.provider == GIVEN:
        raise ModelUnavailableError(
            f"The vectors of {path} were given ready-made, so the file names no model to embed {remedy}"
        )
    try:
        return load_embedder(identity.model_name, provider=identity.provider)
    except InputError as error:  # the caller named no provider: the file did
        raise ModelUnavailableError(f"{path} names a model that is not here: {error}") from error


def check_stored(embedder: Embedder, identity: ModelIdentity) -> None:
    """Raise ModelMismatchError unless the embedder makes the vectors that a file holds."""
    from sqlrag.embedders import check_identity

    # A file of ready-made vectors need not say what made them: then the dimensions have to do.
    check_identity(embedder, replace(identity, model_name="") if identity.model_name == GIVEN else identity)
