"""Cross-encoders: models that read the question and a text together and give the pair a score."""

from __future__ import annotations

import difflib
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

import numpy as np

from sqlrag import options
from sqlrag.embedders.base import without_surrogates
from sqlrag.embedders.hub import fetch, silent_onnxruntime
from sqlrag.errors import MissingExtraError, ModelUnavailableError, ProviderError, SqlragError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

RerankProvider = Literal["auto", "onnx", "huggingface"]

_MODEL_FILES = ("model.onnx", "onnx/model.onnx", "model_optimized.onnx", "model_quantized.onnx")
# What a checkpoint without a head for scores is called; it would be given one of random numbers.
_HEADLESS = ("Model", "ForMaskedLM", "ForPreTraining")

_loaded: dict[tuple[str, str, str], Reranker] = {}
_lock = threading.Lock()


class Reranker(Protocol):
    """Whatever gives texts their scores for a question: a function, or one of our cross-encoders."""

    def __call__(self, query: str, texts: Sequence[str], /) -> ArrayLike:
        """Return one finite number per text, in order, ``[n]`` or ``[n, 1]``; higher is better."""
        ...


def load_reranker(
    model_name: str, *, provider: RerankProvider = "auto", cache_dir: str | Path | None = None
) -> Reranker:
    """Load a cross-encoder, once per process for equal arguments; safe to call from several threads.

    Parameters
    ----------
    model_name
        - A model of fastembed's list (``TextCrossEncoder.list_supported_models()``), such as
          ``Xenova/ms-marco-MiniLM-L-6-v2``, in any case, taken from fastembed's cache or downloaded into it;
        - a local folder with ``model.onnx`` (also below ``onnx/``) and the tokenizer's files (``tokenizer.json``,
          ``tokenizer_config.json``, ``config.json``);
        - else a local folder or a name on the hub that sentence-transformers can load, with the extra ``huggingface``.
    provider
        "onnx" runs on ONNX Runtime, "huggingface" on sentence-transformers; "auto" takes the first that has the model.
    cache_dir
        Where downloaded models are kept. None is the library's own folder.

    Returns
    -------
    Reranker
        A callable ``(query, texts) -> scores``, ``[n] float``, higher is better. What the numbers mean is up to the
        model: ONNX models give logits, sentence-transformers usually 0..1. Texts beyond the model's window are cut off.

    Raises
    ------
    InputError
        The name is blank or the provider unknown.
    MissingExtraError
        The model needs sentence-transformers, which is not installed.
    ModelUnavailableError
        The model cannot be loaded here, or is no cross-encoder.
    """
    options.not_blank("The name of the cross-encoder", model_name)
    options.choice("provider", provider, get_args(RerankProvider))
    if cache_dir is not None:
        options.path("cache_dir", cache_dir)
    key = (model_name, provider, str(cache_dir or ""))
    with _lock:
        if key not in _loaded:
            try:
                _loaded[key] = _load(model_name, provider, cache_dir)
            except SqlragError:
                raise
            except Exception as error:
                # The libraries have exceptions of their own for damaged or unfit files.
                raise ModelUnavailableError(f"The cross-encoder {model_name!r} cannot be loaded: {error}") from error
        return _loaded[key]


def _load(name: str, provider: RerankProvider, cache_dir: str | Path | None) -> Reranker:
    if provider == "huggingface":
        return _HuggingFaceCrossEncoder(name, cache_dir)
    folder = Path(name)
    file = next((file for file in _MODEL_FILES if (folder / file).is_file()), None)
    if file is not None:
        return _OnnxCrossEncoder(name, folder, file)
    silent_onnxruntime()
    from fastembed.rerank.cross_encoder import TextCrossEncoder

    models = {str(model["model"]).lower(): model for model in TextCrossEncoder.list_supported_models()}
    description = models.get(name.strip().lower())
    if description is not None:
        return _OnnxCrossEncoder(name, _fetched(description, cache_dir), str(description["model_file"]))
    if provider == "onnx":
        near = [str(models[key]["model"]) for key in difflib.get_close_matches(name.lower(), models, n=3, cutoff=0.4)]
        raise ModelUnavailableError(
            f"There is no cross-encoder {name!r} in fastembed's list, nor a folder of that name with model.onnx"
            + (f"; near names: {', '.join(near)}." if near else ".")
        )
    return _HuggingFaceCrossEncoder(name, cache_dir)


def _fetched(description: dict[str, Any], cache_dir: str | Path | None) -> Path:
    try:
        return fetch(description, cache_dir)
    except ModelUnavailableError as error:
        cause = str(error.__cause__ or error).strip().partition("\n")[0]
        raise ModelUnavailableError(
            f"The cross-encoder {description['model']!r} is not in the cache, and the Hugging Face hub cannot provide "
            f"it: {cause}. Set FASTEMBED_CACHE_PATH to a cache from a machine with network, or give the path of a "
            "local folder with the model's files."
        ) from error


class _OnnxCrossEncoder:
    """Runs on the CPU, each pair by itself: so no text is padded, and no score depends on the other texts."""

    def __init__(self, name: str, folder: Path, file: str) -> None:
        onnxruntime = silent_onnxruntime()
        from fastembed.common.preprocessor_utils import load_tokenizer

        self.name = name
        self._tokenizer, _ = load_tokenizer(model_dir=folder)
        self._tokenizer.no_padding()
        self._session = onnxruntime.InferenceSession(str(folder / file), providers=["CPUExecutionProvider"])
        self._inputs = {node.name for node in self._session.get_inputs()}
        self._output = self._session.get_outputs()[0].name

    def __call__(self, query: str, texts: Sequence[str], /) -> NDArray[np.float64]:
        query = without_surrogates(query)
        return np.array([self._score(query, without_surrogates(text)) for text in texts], dtype=np.float64)

    def _score(self, query: str, text: str) -> float:
        pair = self._tokenizer.encode(query, text)
        fields = {"input_ids": pair.ids, "attention_mask": pair.attention_mask, "token_type_ids": pair.type_ids}
        feed = {key: np.array([row], dtype=np.int64) for key, row in fields.items() if key in self._inputs}
        output = np.asarray(self._session.run([self._output], feed)[0])
        if output.size != 1:
            raise ProviderError(
                f"The model {self.name!r} gives numbers of the shape {list(output.shape)} for a text, where a "
                "cross-encoder gives one score; it is a classifier or an embedding model."
            )
        return float(output.item())


class _HuggingFaceCrossEncoder:
    def __init__(self, name: str, cache_dir: str | Path | None) -> None:
        try:
            from sentence_transformers import CrossEncoder
            from transformers import AutoConfig
        except ImportError as error:
            raise MissingExtraError(f"The cross-encoder {name!r} (none of fastembed's list)", "huggingface") from error
        folder = None if cache_dir is None else str(cache_dir)
        heads = AutoConfig.from_pretrained(name, cache_dir=folder).architectures or []
        if heads and all(head.endswith(_HEADLESS) for head in heads):
            raise ModelUnavailableError(f"The model {name!r} is no cross-encoder but a {heads[0]}.")
        self._model: Any = CrossEncoder(name, cache_folder=folder)

    def __call__(self, query: str, texts: Sequence[str], /) -> ArrayLike:
        pairs = [(without_surrogates(query), without_surrogates(text)) for text in texts]
        scores: ArrayLike = self._model.predict(pairs, show_progress_bar=False)
        return scores
