"""The default provider: models on ONNX Runtime, from fastembed's list, a local folder or the ``offline`` extra."""

from __future__ import annotations

import json
import logging
import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from sqlrag.embedders.base import DEFAULT_MODEL
from sqlrag.embedders.prefixes import prefixes_of
from sqlrag.embedders.weights import (
    MINILM,
    MINILM_WINDOW,
    bundle_is_installed,
    cached_models,
    fetch,
    find_description,
    read_bundle,
    silent_onnxruntime,
)
from sqlrag.errors import InputError, ModelUnavailableError, SqlragError
from sqlrag.normalize import without_surrogates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokenizers import Tokenizer

    from sqlrag.types import TextKind, Vectors

    _Open = Callable[[bytes | str], Any]

logger = logging.getLogger(__name__)

_Pooling = Literal["mean", "cls"]

_MODEL_FILES = ("model.onnx", "onnx/model.onnx", "model_optimized.onnx", "model_quantized.onnx")

_RUN_TOKENS = 256

"""Short texts share a run up to this many tokens: 970 questions of 10 tokens per CPU second, 300 alone, 950 at 512."""

# The operators that take the scale of the activations from all texts of a run, so that texts affect each other.
_DYNAMIC_QUANTIZATION = (b"DynamicQuantize", b"MatMulInteger")


class _Model(NamedTuple):
    """A loaded model.

    ``tokenizer`` truncates at the ``window``. ``encode`` returns the vectors of texts with equally many tokens.
    ``shares_runs`` says whether a text's vector is the same alone and together with others.
    """

    name: str
    tokenizer: Tokenizer
    window: int
    encode: Callable[[list[str], TextKind], np.ndarray[Any, Any]]
    shares_runs: bool


def _open_session(model: bytes | str) -> Any:
    """Return a session for an ONNX file, given as content or as path; a run takes one thread."""
    onnxruntime = silent_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class OnnxEmbedder:
    """Embeds on the CPU with ONNX Runtime.

    Only texts of equally many tokens share a run of the model, and in models with dynamic quantisation none do. So no
    text is padded, and a vector depends on its text and not on its neighbours. The runs are spread over ``threads``
    threads, one each, which on two processors was faster (47 texts of 240 tokens a second) than both threads in one
    run (41 at best).

    Parameters
    ----------
    model_name
        - a model of fastembed's list, by its name on the hub, in any case, with or without the organisation where
          that is unambiguous. It is taken from fastembed's cache or downloaded into it;
        - ``sentence-transformers/all-MiniLM-L6-v2`` (or ``all-MiniLM-L6-v2``): where the ``offline`` extra is
          installed, always its int8 weights, which are checked by SHA-256, regardless of any cache. So the weights
          depend on what is installed and not on what was once downloaded. Their vectors have a cosine of 0.9995 with
          those at full precision, which ``model_path`` can load;
        - a local folder; its path then is the model's name.
    cache_dir
        Where downloaded models are kept. None is fastembed's folder (``FASTEMBED_CACHE_PATH``).
    model_path
        Folder with the model's files. With a name of fastembed's list it has the files that fastembed needs;
        with another name ``model.onnx`` (also below ``onnx/``), ``tokenizer.json`` and, where they exist,
        ``tokenizer_config.json``, ``config.json``, ``sentence_bert_config.json`` (window) and
        ``1_Pooling/config.json`` ("mean" without it).
    threads
        Number of threads, 1 or more. None is the number of processors this process may use.
    query_prefix, passage_prefix
        Text put before a query or a document. None is what the model's authors ask for; "" is none.

    Raises
    ------
    InputError
        ``threads`` is below 1, or the name is blank.
    ModelUnavailableError
        The name is unknown, the files are missing or damaged, or the hub cannot provide them.
    """

    provider = "onnx"

    def __init__(
        self,
        model_name: str = DEFAULT_MODEL,
        *,
        cache_dir: str | Path | None = None,
        model_path: str | Path | None = None,
        threads: int | None = None,
        query_prefix: str | None = None,
        passage_prefix: str | None = None,
    ) -> None:
        if threads is not None and threads < 1:
            raise InputError(f"threads must be 1 or more, not {threads}.")
        if not model_name.strip():
            raise InputError("The name of the embedding model is blank; None is the default model.")
        self._threads = threads or usable_processors()
        try:
            model = _load(model_name, cache_dir, model_path, self._runtime())
            self.dimensions = model.encode(["dimensions"], "document").shape[1]
        except SqlragError:
            raise
        except Exception as error:
            # The runtimes and the tokenizers have exceptions of their own for damaged or unsuitable files.
            raise ModelUnavailableError(
                f"The files of the embedding model {model_name!r} cannot be used: {error}"
            ) from error
        self.model_name = model.name
        self.max_tokens = model.window
        self.special_tokens: int = model.tokenizer.num_special_tokens_to_add(is_pair=False)
        self._model = model
        default_query_prefix, default_passage_prefix = prefixes_of(model.name)
        self.query_prefix = default_query_prefix if query_prefix is None else query_prefix
        self.passage_prefix = default_passage_prefix if passage_prefix is None else passage_prefix

    def _runtime(self) -> _Open:
        """Return what opens an ONNX file."""
        return _open_session

    @staticmethod
    def ready_models() -> list[str]:
        """Return the models that can be loaded here without network: the extra ``offline`` and fastembed's cache."""
        bundled = {MINILM} if bundle_is_installed() else set()
        return sorted(bundled.union(cached_models()))

    def embed(self, texts: Sequence[str], *, kind: TextKind) -> Vectors:
        """Return one row per text, in order, ``[n, dimensions] float32``; texts beyond the window are cut off."""
        texts = [without_surrogates(text) for text in texts]
        vectors = np.empty((len(texts), self.dimensions), dtype=np.float32)

        def run(positions: list[int]) -> None:
            vectors[positions] = self._model.encode([texts[position] for position in positions], kind)

        runs = self._runs(texts)
        if self._threads == 1 or len(runs) <= 1:
            for positions in runs:
                run(positions)
        else:
            with ThreadPoolExecutor(min(self._threads, len(runs)), thread_name_prefix="sqlrag-embed") as pool:
                list(pool.map(run, runs))
        return vectors

    def _runs(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the positions of the texts that share a run: equally many tokens, at most _RUN_TOKENS together."""
        if not self._model.shares_runs or len(texts) == 1:
            return [[position] for position in range(len(texts))]
        by_length: dict[int, list[int]] = {}
        for position, text in enumerate(texts):
            by_length.setdefault(len(self._model.tokenizer.encode(text)), []).append(position)
        runs = []
        for length, positions in sorted(by_length.items(), reverse=True):
            size = max(1, _RUN_TOKENS // max(1, length))
            runs += [positions[start : start + size] for start in range(0, len(positions), size)]
        return runs

    def token_offsets(self, text: str) -> Sequence[tuple[int, int]]:
        """Return ``(start, end)`` in characters of every token of ``text``, special tokens and truncation left out."""
        offsets: list[tuple[int, int]] = self._whole_text_tokenizer.encode(
            without_surrogates(text), add_special_tokens=False
        ).offsets
        return offsets

    @cached_property
    def _whole_text_tokenizer(self) -> Tokenizer:
        # A copy, because switching truncation off and on would disturb other threads.
        copy = type(self._model.tokenizer).from_str(self._model.tokenizer.to_str())
        copy.no_truncation()
        copy.no_padding()
        return copy


def usable_processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _load(model_name: str, cache_dir: str | Path | None, model_path: str | Path | None, open_session: _Open) -> _Model:
    is_minilm = model_name.strip().lower() in (MINILM.lower(), MINILM.rsplit("/", 1)[-1].lower())
    if is_minilm and model_path is None and bundle_is_installed():
        return _load_bundle(open_session)
    folder = Path(model_path) if model_path is not None else Path(model_name)
    if model_path is not None and not folder.is_dir():
        raise ModelUnavailableError(f"The folder of the embedding model {model_name!r} does not exist: {folder}")
    if model_path is None and folder.is_dir():
        return _load_folder(str(folder.resolve()), folder, open_session)
    try:
        description = find_description(model_name)
    except ModelUnavailableError:
        if model_path is None:
            raise
        return _load_folder(model_name, folder, open_session)
    return _load_fastembed(description, fetch(description, cache_dir) if model_path is None else folder, open_session)


def bundle_files() -> dict[str, bytes]:
    """Return the int8 MiniLM of the ``offline`` extra as files for other programs: ``model.onnx``, ``tokenizer.json``.

    Raises
    ------
    ModelUnavailableError
        A file of the extra is missing or damaged.
    """
    content, words = read_bundle()
    return {"model.onnx": content, "tokenizer.json": _bundle_tokenizer(words).to_str().encode()}


def _load_bundle(open_session: _Open) -> _Model:
    content, words = read_bundle()
    tokenizer = _bundle_tokenizer(words)
    encode = _encoder(open_session(content), tokenizer, "mean")
    return _Model(MINILM, tokenizer, MINILM_WINDOW, encode, shares_runs=True)


def _bundle_tokenizer(words: Sequence[str]) -> Tokenizer:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocabulary = {word: number for number, word in enumerate(words)}
    # The tokenizer of BERT "uncased": https://huggingface.co/google-bert/bert-base-uncased
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))  # noqa: S106 - no password
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    tokenizer.enable_truncation(MINILM_WINDOW)
    return tokenizer


def _load_folder(name: str, folder: Path, open_session: _Open) -> _Model:
    from tokenizers import Tokenizer

    model_file = next((folder / file for file in _MODEL_FILES if (folder / file).is_file()), None)
    if model_file is None or not (folder / "tokenizer.json").is_file():
        raise ModelUnavailableError(
            f"The folder {folder} holds no embedding model: it needs tokenizer.json and "
            f"one of {', '.join(_MODEL_FILES)}."
        )
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    window = _window(folder, tokenizer)
    tokenizer.enable_truncation(window)
    tokenizer.no_padding()
    encode = _encoder(open_session(str(model_file)), tokenizer, _pooling(folder))
    return _Model(name, tokenizer, window, encode, _shares_runs(model_file))


def _load_fastembed(description: dict[str, Any], folder: Path, open_session: _Open) -> _Model:
    silent_onnxruntime()
    from fastembed import TextEmbedding

    name = str(description["model"])
    # One thread per run: the texts are spread over threads instead.
    model: Any = TextEmbedding(name, threads=1, specific_model_path=str(folder))
    if open_session is not _open_session:
        model.model.model = open_session(str(folder / description["model_file"]))
    tokenizer: Tokenizer = model.model.tokenizer
    window = MINILM_WINDOW if name == MINILM else int((tokenizer.truncation or {})["max_length"])
    tokenizer.enable_truncation(window)

    def encode(texts: list[str], kind: TextKind) -> np.ndarray[Any, Any]:
        rows = model.query_embed(texts) if kind == "query" else model.passage_embed(texts)
        return np.array(list(rows))

    return _Model(name, tokenizer, window, encode, _shares_runs(folder / description["model_file"]))


def _shares_runs(model_file: Path) -> bool:
    # Mapped and not read, since a model may have gigabytes.
    with model_file.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return all(content.find(operator) < 0 for operator in _DYNAMIC_QUANTIZATION)


def _encoder(
    session: Any, tokenizer: Tokenizer, pooling: _Pooling
) -> Callable[[list[str], TextKind], np.ndarray[Any, Any]]:
    """Return a function that embeds texts of equal length in an open session."""
    inputs = {node.name for node in session.get_inputs()}
    outputs = [node.name for node in session.get_outputs()]
    output = "sentence_embedding" if "sentence_embedding" in outputs else outputs[0]

    def encode(texts: list[str], kind: TextKind) -> np.ndarray[Any, Any]:  # noqa: ARG001 - both kinds are alike here
        encodings = [tokenizer.encode(text) for text in texts]
        fields = {
            "input_ids": [encoding.ids for encoding in encodings],
            "attention_mask": [encoding.attention_mask for encoding in encodings],
            "token_type_ids": [encoding.type_ids for encoding in encodings],
        }
        feed = {key: np.array(rows, dtype=np.int64) for key, rows in fields.items() if key in inputs}
        hidden: np.ndarray[Any, Any] = np.asarray(session.run([output], feed)[0])
        if hidden.ndim == 2:  # the model pools by itself
            return hidden
        return np.asarray(hidden[:, 0] if pooling == "cls" else hidden.mean(axis=1))

    return encode


def _window(folder: Path, tokenizer: Tokenizer) -> int:
    """Return the window in tokens: what sentence-transformers uses, else the strictest of the tokenizer's limits."""
    stated = _read_json(folder / "sentence_bert_config.json").get("max_seq_length")
    if isinstance(stated, int) and stated > 0:
        return stated
    config = _read_json(folder / "tokenizer_config.json")
    limits = [
        config.get("model_max_length"),
        config.get("max_length"),
        (tokenizer.truncation or {}).get("max_length"),
        _read_json(folder / "config.json").get("max_position_embeddings"),
    ]
    # Files without a limit say 1e30, which is not usable.
    usable = [limit for limit in limits if isinstance(limit, int) and 0 < limit < 10**6]
    if not usable:
        logger.warning("No file in %s states the model's window; 512 tokens are assumed.", folder)
    return min(usable, default=512)


def _pooling(folder: Path) -> _Pooling:
    config = _read_json(folder / "1_Pooling" / "config.json")
    if not config:
        logger.warning("%s has no 1_Pooling/config.json: mean pooling is used, if the model needs any.", folder)
    modes = {key.removeprefix("pooling_mode_") for key, on in config.items() if on is True}
    modes |= {str(config["pooling_mode"])} if "pooling_mode" in config else set()
    if not modes or modes == {"mean_tokens"} or modes == {"mean"}:
        return "mean"
    if modes in ({"cls_token"}, {"cls"}):
        return "cls"
    raise ModelUnavailableError(f"{folder}: pooling {sorted(modes)} is not supported, only mean and cls.")


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    content = json.loads(path.read_text("utf-8"))
    return content if isinstance(content, dict) else {}
