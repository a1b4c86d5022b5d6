"""Reranks candidates by cosine, cross-encoder, function or diversity; drops near duplicates."""

from __future__ import annotations

import difflib
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, get_args

import numpy as np

from sqlrag import arguments
from sqlrag.blocks.fuse import checked, order_key, rounded, unit_row, unit_rows
from sqlrag.cancellation import checkpoint
from sqlrag.embedders.weights import cache_folder, fetch, silent_onnxruntime
from sqlrag.engines.duckdb.lexical import words_of
from sqlrag.errors import InputError, MissingExtraError, ModelUnavailableError, ProviderError, SqlragError
from sqlrag.locks import new_lock
from sqlrag.normalize import without_surrogates
from sqlrag.ranking.vectors import as_numbers
from sqlrag.search.open import opened_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from sqlrag.search.open import AnyStores
    from sqlrag.types import Candidate, Candidates

    Numbers = NDArray[np.float64]

logger = logging.getLogger(__name__)

RerankProvider = Literal["auto", "onnx", "huggingface"]

_MODEL_FILES = ("model.onnx", "onnx/model.onnx", "model_optimized.onnx", "model_quantized.onnx")

# Architectures without a scoring head; sentence-transformers would add one with random weights.
_HEADLESS = ("Model", "ForMaskedLM", "ForPreTraining")

_loaded: dict[tuple[str, str, str], Reranker] = {}

_lock = new_lock()


class Reranker(Protocol):
    """The protocol of a reranker: a function, or one of our cross-encoders."""

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
          ``Xenova/ms-marco-MiniLM-L-6-v2``, in any case, from fastembed's cache (``FASTEMBED_CACHE_PATH``) or
          downloaded into it;
        - a local folder with ``model.onnx`` (also below ``onnx/``) and the tokenizer's files (``tokenizer.json``,
          ``tokenizer_config.json``, ``config.json``);
        - else a local folder or a name on the hub that sentence-transformers can load, with the extra ``huggingface``.
    provider
        "onnx" runs on ONNX Runtime, "huggingface" on sentence-transformers; "auto" uses the first that has the model.
    cache_dir
        Where downloaded models are kept. None is the library's own folder.

    Returns
    -------
    Reranker
        A callable ``(query, texts) -> scores``, ``[n] float``, higher is better. Their meaning depends on the
        model: ONNX models return logits, sentence-transformers usually 0..1. Texts are cut at the model's window.

    Raises
    ------
    InputError
        The name is blank or the provider unknown.
    MissingExtraError
        The model needs sentence-transformers, which is not installed.
    ModelUnavailableError
        The model cannot be loaded, or is not a cross-encoder.
    """
    arguments.not_blank("The name of the cross-encoder", model_name)
    arguments.choice("provider", provider, get_args(RerankProvider))
    if cache_dir is not None:
        arguments.path("cache_dir", cache_dir)
    key = (model_name, provider, str(cache_folder(cache_dir)))
    with _lock:
        if key not in _loaded:
            try:
                _loaded[key] = _load(model_name, provider, cache_dir)
            except SqlragError:
                raise
            except Exception as error:
                # The libraries raise exceptions of their own for damaged or unsuitable files.
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
        return _OnnxCrossEncoder(name, _fetch_model(description, cache_dir), str(description["model_file"]))
    near = [str(models[key]["model"]) for key in difflib.get_close_matches(name.lower(), models, n=3, cutoff=0.4)]
    similar = f"; similar names: {', '.join(near)}" if near else ""
    if provider == "onnx":
        raise ModelUnavailableError(
            f"There is no cross-encoder {name!r} in fastembed's list, and no folder of that name with model.onnx"
            f"{similar}."
        )
    return _HuggingFaceCrossEncoder(name, cache_dir, similar)


def _fetch_model(description: dict[str, Any], cache_dir: str | Path | None) -> Path:
    try:
        return fetch(description, cache_dir)
    except ModelUnavailableError as error:
        cause = str(error.__cause__ or error).strip().partition("\n")[0]
        raise ModelUnavailableError(
            f"The cross-encoder {description['model']!r} is not in the cache {cache_folder(cache_dir)}, and the "
            f"Hugging Face hub cannot provide it: {cause}. Set FASTEMBED_CACHE_PATH (or cache_dir) to a cache from a "
            "machine with network, or pass the path of a local folder with the model's files."
        ) from error


class _OnnxCrossEncoder:
    """Runs on the CPU, one pair at a time: without padding, so that no score depends on other texts."""

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
                f"The model {self.name!r} returned the shape {list(output.shape)} for a text, where a "
                "cross-encoder returns one score; it is a classifier or an embedding model."
            )
        return float(output.item())


class _HuggingFaceCrossEncoder:
    def __init__(self, name: str, cache_dir: str | Path | None, similar: str = "") -> None:
        try:
            from sentence_transformers import CrossEncoder
            from transformers import AutoConfig
        except ImportError as error:
            known = f"not in fastembed's list{similar}"
            raise MissingExtraError(f"The cross-encoder {name!r} ({known})", "huggingface") from error
        folder = None if cache_dir is None else str(cache_dir)
        heads = AutoConfig.from_pretrained(name, cache_dir=folder).architectures or []
        if heads and all(head.endswith(_HEADLESS) for head in heads):
            raise ModelUnavailableError(f"The model {name!r} is not a cross-encoder but a {heads[0]}.")
        self._model: Any = CrossEncoder(name, cache_folder=folder)

    def __call__(self, query: str, texts: Sequence[str], /) -> ArrayLike:
        pairs = [(without_surrogates(query), without_surrogates(text)) for text in texts]
        scores: ArrayLike = self._model.predict(pairs, show_progress_bar=False)
        return scores


_SHINGLE = 3  # words


def drop_near_duplicates(
    candidates: Sequence[Candidate],
    *,
    threshold: Annotated[float | None, arguments.Range(gt=0, le=1)] = None,
    vectors: ArrayLike | None = None,
) -> Candidates:
    """Leave out every candidate that is nearly the same as a better one; pure and idempotent.

    Two are the same if their contents differ only in white space and case, and, with a ``threshold``, if their
    similarity reaches it: the cosine of their vectors if given, else the share of common runs of three words (Jaccard).
    Each candidate is compared with those that were kept, in the worst case each with every other: some hundred
    candidates are fine, many thousand are not.

    Parameters
    ----------
    candidates
        Best first.
    threshold
        Above 0, up to 1. None leaves out exact repeats only.
    vectors
        ``[n, d] float32``, row i for candidate i, of any length but zero; needs a ``threshold``. Cosines of real models
        are generally high: texts on one subject may have .9 without repeating each other.

    Returns
    -------
    Candidates
        The kept ones, unchanged and in their order, with the ``.notices`` and ``.timings`` of the input. ``.dropped``
        maps the ``node_id`` of a kept one to those of its duplicates, in their order.

    Raises
    ------
    InputError
        The threshold is out of its range, or the vectors do not match, are zero or not finite.

    References
    ----------
    Broder: On the resemblance and containment of documents, SEQUENCES 1997, for the share of common shingles.

    Examples
    --------
    >>> from sqlrag.types import Candidate
    >>> found = [Candidate("a.md", 0, "Hello  world"), Candidate("b.md", 0, "hello world"), Candidate("c.md", 0, "Hi")]
    >>> kept = drop_near_duplicates(found)
    >>> [candidate.node_id for candidate in kept], kept.dropped
    (['a.md#0', 'c.md#0'], {'a.md#0': ['b.md#0']})
    """
    before = checked(candidates)
    threshold = None if threshold is None else arguments.number("threshold", threshold, 0, 1)
    if threshold == 0:
        raise InputError("threshold must be above 0; None leaves out exact repeats only.")
    if vectors is not None and threshold is None:
        raise InputError("vectors need a threshold: pass threshold=0.95, for instance.")
    if threshold is None or not before:
        similar: Callable[[int, int], bool] | None = None
    else:
        similar = _by_words(before, threshold) if vectors is None else _by_cosine(before, vectors, threshold)

    kept: list[int] = []
    dropped: dict[str, list[str]] = {}
    keeper_of: dict[str, int] = {}
    for i, candidate in enumerate(before):
        checkpoint()
        key = " ".join(candidate.visible.split()).casefold()
        keeper = keeper_of.get(key)
        if keeper is None and similar is not None:
            keeper = next((other for other in kept if similar(other, i)), None)
        if keeper is None:
            kept.append(i)
        else:
            dropped.setdefault(before[keeper].node_id, []).append(candidate.node_id)
        keeper_of.setdefault(key, i if keeper is None else keeper)
    distinct = before.holding(before[i] for i in kept)
    distinct.dropped = _joined(before.dropped, dropped)
    return distinct


def _joined(earlier: dict[str, list[str]], new: dict[str, list[str]]) -> dict[str, list[str]]:
    """Merge with earlier duplicates; those of a candidate that is dropped now move to its replacement."""
    joined = {kept: list(others) for kept, others in earlier.items()}
    for kept, others in new.items():
        for other in others:
            joined.setdefault(kept, []).extend([other, *joined.pop(other, [])])
    return joined


def _by_cosine(candidates: Candidates, vectors: ArrayLike, threshold: float) -> Callable[[int, int], bool]:
    unit = unit_rows(vectors, candidates)
    # In blocks of rows: all cosines at once would take eight times the memory of the comparisons.
    near = np.concatenate([rounded(unit[i : i + 256] @ unit.T) >= threshold for i in range(0, len(unit), 256)])
    return lambda i, j: bool(near[i, j])


def _by_words(candidates: Candidates, threshold: float) -> Callable[[int, int], bool]:
    shingles = [_shingles(words) for words in words_of([candidate.visible for candidate in candidates])]

    def similar(i: int, j: int) -> bool:
        fewer, more = sorted((shingles[i], shingles[j]), key=len)
        if not fewer or len(fewer) < threshold * len(more):  # they share at most all of the fewer
            return False
        common = len(fewer & more)
        return common >= threshold * (len(fewer) + len(more) - common)

    return similar


def _shingles(words: Sequence[str]) -> set[tuple[str, ...]]:
    """Return the runs of three words; a shorter text is one run."""
    if not words:
        return set()
    return {tuple(words[i : i + _SHINGLE]) for i in range(max(1, len(words) - _SHINGLE + 1))}


def rerank(
    query: str,
    candidates: Sequence[Candidate],
    model: str | Reranker | None = None,
    *,
    top_n: Annotated[int | None, arguments.Range(ge=1)] = None,
    depth: Annotated[int | None, arguments.Range(ge=1)] = None,
    diversity: Annotated[float | None, arguments.Range(ge=0, le=1)] = None,
    vectors: ArrayLike | None = None,
    query_vector: ArrayLike | None = None,
    store: AnyStores | None = None,
    strict: bool = False,
) -> Candidates:
    """Rerank candidates; pure given its arguments, without a store.

    - With ``model`` by its score for the question and each content.
    - With ``store``, or ``vectors`` and ``query_vector``, by cosine.
    - With only ``vectors`` and ``diversity`` by their scores, and by how little they repeat each other.

    Without candidates the result is ``[]``, and no model is loaded.

    Parameters
    ----------
    query
        The question; not blank.
    candidates
        Best first, as from :func:`sqlrag.retrieve`.
    model
        A name or folder for :func:`sqlrag.load_reranker`, or any callable ``(query, texts) -> scores`` that returns one
        finite number per text, ``[n]`` or ``[n, 1]``, higher is better.
    top_n
        How many to return at most, 1 or more; None is all of them.
    depth
        How many of the first are reranked, 1 or more; None is all. The others follow in their old order with their old
        scores, which are of another kind.
    diversity
        0..1, needs ``vectors`` or ``store``: Maximal Marginal Relevance with λ = 1 - ``diversity``. The next candidate
        is the one with the highest ``λ · relevance - (1 - λ) · closest``, where ``closest`` is its highest cosine with
        those already selected (at least 0). The relevance is the cosine, or else the score scaled to 0..1 over the
        reranked candidates (1 if all are equal). None and 0 leave it out.
    vectors
        ``[n, d] float32``, row i for candidate i, of any length but zero.
    query_vector
        ``[d] float32``, of the same model; instead of ``model``.
    store
        Where the candidates come from, as in :func:`sqlrag.hybrid_query`: unless ``vectors`` are given, they are read
        there, and without a ``model`` the store's own embeds the question.
    strict
        Whether the failure of a model is an error. If not, the candidates keep their order, and a notice and a warning
        in the log say why.

    Returns
    -------
    Candidates
        With the ``.notices``, ``.timings`` and ``.dropped`` of the input. Highest score first, ties by ``doc_id``,
        then ``chunk_index`` (with ``diversity`` by relevance before these). ``score`` is rounded to 9 decimals,
        ``score_type`` is "rerank", or "mmr" with ``diversity``; all other fields are unchanged, including scores and
        ranks of the legs.

    Raises
    ------
    InputError
        The question is blank, an option is out of its range, no argument defines the order, or the vectors do not
        match the candidates, are zero or not finite.
    NotFoundError
        The store does not have a candidate.
    MissingExtraError
        The model needs an optional package.
    ModelUnavailableError, ProviderError
        With ``strict``: the model cannot be loaded; it failed, or did not return one finite score per text.

    References
    ----------
    Carbonell, Goldstein: The Use of MMR, Diversity-Based Reranking for Reordering Documents and Producing Summaries,
    SIGIR 1998, section 2.

    Examples
    --------
    >>> from sqlrag.types import Candidate
    >>> found = [Candidate("a.md", 0, "a green apple"), Candidate("b.md", 0, "a pear and a pear tree")]
    >>> [(c.doc_id, c.score) for c in rerank("pear", found, lambda query, texts: [t.count(query) for t in texts])]
    [('b.md', 2.0), ('a.md', 0.0)]
    """
    arguments.not_blank("query", query)
    top_n, depth = (
        None if count is None else arguments.whole(name, count, 1)
        for name, count in (("top_n", top_n), ("depth", depth))
    )
    diversity = None if diversity is None else arguments.number("diversity", diversity, 0, 1)
    strict = arguments.flag("strict", strict)
    _check_order(model, diversity, vectors, query_vector, store)
    before = checked(candidates)
    if not before:
        return before
    count = len(before) if depth is None else min(depth, len(before))
    head, tail = before[:count], before[count:]
    try:
        if store is not None and vectors is None and (model is None or diversity):
            with opened_for(store, ("vectors", "query_vector")) as reader:
                vectors = reader.vectors([candidate.node_id for candidate in before])
                if model is None and query_vector is None:
                    query_vector = reader.query_vector(query, patient=strict)
        unit = None if vectors is None else unit_rows(vectors, before)
        target = None if unit is None or query_vector is None else unit_row("query_vector", query_vector, unit.shape[1])
        relevance = _relevance(query, head, model, unit, target)
    except (ModelUnavailableError, ProviderError) as error:
        if strict:
            raise
        notice = f"Not reranked, the order is unchanged: {error}"
        logger.warning(notice)
        before.notices.append(notice)
        return before[:top_n]
    if diversity and unit is not None:
        scaled = relevance if target is not None else _scaled(relevance)
        picked = _most_marginal(head, scaled, unit, diversity, len(head) if top_n is None else min(top_n, len(head)))
        ordered = [replace(head[i], score=score, score_type="mmr") for i, score in picked]
    else:
        rescored = [replace(c, score=float(s), score_type="rerank") for c, s in zip(head, relevance, strict=True)]
        ordered = sorted(rescored, key=lambda candidate: order_key(candidate.score, candidate))
    return before.holding([*ordered, *tail][:top_n])


def _relevance(
    query: str,
    head: Sequence[Candidate],
    model: str | Reranker | None,
    unit: Numbers | None,
    target: Numbers | None,
) -> Numbers:
    """Return the candidates' scores, rounded to 9 decimals, ``[n] float64``."""
    if model is not None:
        scores = scores_of(model, query, [candidate.visible for candidate in head])
    elif unit is not None and target is not None:
        scores = np.clip(unit[: len(head)] @ target, -1, 1)
    else:
        scores = as_numbers("The scores of the candidates", [candidate.score for candidate in head], np.float64)
        if not np.isfinite(scores).all():
            raise InputError("A candidate's score is not finite, so it cannot be combined with diversity.")
    return rounded(scores)


def scores_of(model: str | Reranker, query: str, texts: list[str]) -> Numbers:
    """Call the model; its failures are ProviderErrors, those of the arguments InputErrors."""
    name = repr(model) if isinstance(model, str) else getattr(model, "__qualname__", type(model).__name__)
    scorer = load_reranker(model) if isinstance(model, str) else model
    try:
        given = scorer(query, texts)
        scores = as_numbers("The scores", given, np.float64)
    except ProviderError:
        raise
    except Exception as error:
        raise ProviderError(f"The reranking model {name} failed: {type(error).__name__}: {error}") from error
    if scores.shape not in ((len(texts),), (len(texts), 1)):
        raise ProviderError(
            f"The reranking model {name} returned scores of the shape {list(scores.shape)} for {len(texts)} texts; "
            f"it must return one number per text, [{len(texts)}] or [{len(texts)}, 1]."
        )
    scores = scores.reshape(-1)
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        raise ProviderError(f"The reranking model {name} returned {scores[bad[0]]} for text {bad[0]} of {len(texts)}.")
    return scores


def _scaled(scores: Numbers) -> Numbers:
    """Scale scores to 0..1, 1 if all are equal."""
    if max(scores.max(), -scores.min()) > sys.float_info.max / 2:
        scores = scores / 2  # avoids an infinite difference
    low, high = scores.min(), scores.max()
    return (scores - low) / (high - low) if high > low else np.ones_like(scores)


def _most_marginal(
    head: Sequence[Candidate], relevance: Numbers, unit: Numbers, diversity: float, wanted: int
) -> list[tuple[int, float]]:
    """Return (position, score) of the candidates that MMR selects, in that order; scores do not increase."""
    # argmax returns the first maximum, so ties keep the order of the rows.
    rows = sorted(range(len(head)), key=lambda i: order_key(float(relevance[i]), head[i]))
    relevance, unit = relevance[rows], unit[rows]
    closest = np.zeros(len(rows))
    taken = np.zeros(len(rows), dtype=bool)
    picked = []
    for _ in range(wanted):
        marginal = rounded((1 - diversity) * relevance - diversity * closest)
        best = int(np.argmax(np.where(taken, -np.inf, marginal)))
        picked.append((rows[best], float(marginal[best])))
        taken[best] = True
        closest = np.maximum(closest, np.clip(unit @ unit[best], 0, 1))
    return picked


def _check_order(model: object, diversity: float | None, vectors: object, query_vector: object, store: object) -> None:
    """Raise InputError unless exactly one argument defines the order."""
    if isinstance(model, str) and model == "cosine":
        raise InputError('"cosine" is not a model: pass store=, or vectors and query_vector, without a model.')
    if model is not None and not isinstance(model, str) and not callable(model):
        raise InputError(f"model must be a name, a folder or a callable, not {type(model).__name__}.")
    if model is not None and query_vector is not None:
        raise InputError("Pass either model or query_vector, not both.")
    if vectors is None and store is None and (diversity or query_vector is not None):
        raise InputError("diversity and query_vector need the candidates' vectors: pass store=, or vectors=[n, d].")
    if model is None and query_vector is None and store is None and not diversity:
        raise InputError("No argument defines the order: pass store, or model, or vectors and query_vector.")
