"""Sentence-transformers models on PyTorch, through llama-index."""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sqlrag.embedders.base import DEFAULT_MODEL
from sqlrag.embedders.function import check_numbers
from sqlrag.embedders.prefixes import prefixes_of
from sqlrag.errors import InputError, MissingExtraError, ModelUnavailableError
from sqlrag.locks import new_lock
from sqlrag.normalize import without_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlrag.types import TextKind, Vectors


class HuggingFaceEmbedder:
    """Embeds with any sentence-transformers model, on the processor or a graphics card.

    Parameters
    ----------
    model_name
        Name on the Hugging Face hub, or a local folder.
    device
        "cpu", "cuda", "mps" …; None: the best one available.
    dtype
        "float32", or "bfloat16": about twice as fast where the processor supports it, with 3 digits of precision.
    cache_dir
        Where downloaded models are kept; None: llama-index's own folder.
    batch_size
        Texts in one run of the model.
    query_prefix, passage_prefix
        Text put before a query or a document. None: what the model's card asks for. Prompts of the model's own
        configuration are not used in addition.

    Raises
    ------
    MissingExtraError
        The extra ``huggingface`` is not installed.
    InputError
        ``dtype`` is unknown, or this processor has no bfloat16.
    ModelUnavailableError
        The model is unknown, or the hub cannot provide it.
    """

    provider = "huggingface"

    def __init__(
        self,
        model_name: str = DEFAULT_MODEL,
        *,
        device: str | None = None,
        dtype: Literal["float32", "bfloat16"] = "float32",
        cache_dir: str | Path | None = None,
        batch_size: int = 32,
        query_prefix: str | None = None,
        passage_prefix: str | None = None,
    ) -> None:
        check_numbers(batch_size=batch_size)
        try:
            import torch
            from llama_index.embeddings.huggingface import HuggingFaceEmbedding
        except ImportError as error:
            raise MissingExtraError("The embedding provider 'huggingface'", "huggingface") from error

        if dtype not in ("float32", "bfloat16"):
            raise InputError(f'dtype must be "float32" or "bfloat16", not {dtype!r}.')
        if dtype == "bfloat16" and not _has_bfloat16(device):
            raise InputError(f"This machine does not support bfloat16 on {device or 'its device'}. Leave out dtype.")
        options: dict[str, Any] = {} if cache_dir is None else {"cache_folder": str(cache_dir)}
        try:
            with _without_bars():
                self._model: Any = HuggingFaceEmbedding(
                    model_name,
                    device=device,
                    embed_batch_size=batch_size,
                    model_kwargs={"dtype": getattr(torch, dtype)},
                    **options,
                )
        except Exception as error:
            raise ModelUnavailableError(
                f"The huggingface model {model_name!r} cannot be loaded: {error} Give the name of a "
                "sentence-transformers model on the hub, or a local folder that contains one."
            ) from error
        transformer = self._model._model
        # embed_texts adds the prefixes; llama-index would add its own before them.
        transformer.prompts = dict.fromkeys(transformer.prompts, "")
        self._tokenizer = transformer.tokenizer
        self._lock = new_lock()
        folder = Path(model_name)
        self.model_name = str(folder.resolve()) if folder.is_dir() else model_name
        self.dimensions = int(_dimensions(transformer))
        self.max_tokens = int(transformer.max_seq_length or 512)
        self.special_tokens = int(self._tokenizer.num_special_tokens_to_add(pair=False))
        self.batch_size = batch_size
        self.options = {} if dtype == "float32" else {"dtype": dtype}
        self.revision = str(getattr(transformer[0].auto_model.config, "_commit_hash", None) or "")
        usual_query, usual_passage = prefixes_of(model_name)
        self.query_prefix = usual_query if query_prefix is None else query_prefix
        self.passage_prefix = usual_passage if passage_prefix is None else passage_prefix

    @staticmethod
    def obstacle() -> str | None:
        """Return why the provider cannot be used here, None where it can."""
        if find_spec("sentence_transformers") is None:
            return str(MissingExtraError("The embedding provider 'huggingface'", "huggingface"))
        return None

    def embed(self, texts: Sequence[str], *, kind: TextKind) -> Vectors:  # noqa: ARG002 - both kinds are alike here
        """Return one row per text, in order, ``[n, dimensions] float32``; texts beyond the window are cut off."""
        rows = self._model.get_text_embedding_batch([without_surrogates(text) for text in texts])
        return np.asarray(rows, dtype=np.float32)

    def token_offsets(self, text: str) -> Sequence[tuple[int, int]]:
        """Return ``(start, end)`` in characters of every token of ``text``, special tokens and truncation left out."""
        with self._lock:  # the tokenizer keeps its truncation as a state
            encoding = self._tokenizer(
                without_surrogates(text),
                add_special_tokens=False,
                return_offsets_mapping=True,
                truncation=False,
                verbose=False,
            )
        return [(int(start), int(end)) for start, end in encoding["offset_mapping"]]


@contextmanager
def _without_bars() -> Iterator[None]:
    """Hide the progress bars that transformers shows while it loads weights."""
    from transformers.utils import logging

    were_on = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if were_on:
            logging.enable_progress_bar()


def _dimensions(transformer: Any) -> int:
    measure = getattr(transformer, "get_embedding_dimension", None) or transformer.get_sentence_embedding_dimension
    return int(measure())


def _has_bfloat16(device: str | None) -> bool:
    import torch

    if torch.cuda.is_available() and (device is None or device.startswith("cuda")):
        return bool(torch.cuda.is_bf16_supported())
    if device not in (None, "cpu"):
        return True
    flags = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(flags.get(name) for name in ("avx512_bf16", "amx_bf16", "amx", "bf16"))
