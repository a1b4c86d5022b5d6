"""From a question to an answer with sources: search, choose what fits, call a chat model, check its citations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, overload

from sqlrag import arguments
from sqlrag.answers.chat_models import DEFAULT_RETRIES, DEFAULT_TIMEOUT, OpenAIChat
from sqlrag.answers.generate import AnswerRun
from sqlrag.answers.prompt import build_prompt
from sqlrag.answers.select import AnswerOptions, PromptRun, Refinement
from sqlrag.answers.window import DEFAULT_MARGIN
from sqlrag.engines.duckdb.failures import public
from sqlrag.errors import InputError
from sqlrag.telemetry import request_id_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typing_extensions import Unpack

    from sqlrag.answers.chat_models import ChatModel
    from sqlrag.answers.context import Item
    from sqlrag.answers.outcome import Answer, AnswerEvent
    from sqlrag.answers.prompt import Prompt
    from sqlrag.blocks.compress import CompressPolicy
    from sqlrag.blocks.rerank import Reranker
    from sqlrag.search.open import AnyStores
    from sqlrag.types import RetrievePlan

DEFAULT_MAX_TOKENS = 512

DEFAULT_CONTEXT_WINDOW = 4096


class AnswerSettings(TypedDict, total=False):
    """The options of :func:`answer` that are the same in its overloads, for type checkers."""

    base_url: str | None
    api_key: str | None
    plan: RetrievePlan | None
    contexts: Sequence[Item] | None
    expand: Literal["llm"] | None
    rerank: str | Reranker | None
    diversity: float | None
    compress: bool | CompressPolicy
    template: str | None
    system: str | None
    temperature: float | None
    max_tokens: int
    stop: str | Sequence[str] | None
    context_window: int
    count_tokens: Any
    margin: float
    timeout: float
    max_retries: int
    strict: bool
    request_id: str | None


@overload
def answer(
    question: str,
    db_path: AnyStores | None = None,
    *,
    chat_model: str | ChatModel,
    stream: Literal[False] = False,
    **settings: Unpack[AnswerSettings],
) -> Answer: ...


@overload
def answer(
    question: str,
    db_path: AnyStores | None = None,
    *,
    chat_model: str | ChatModel,
    stream: Literal[True],
    **settings: Unpack[AnswerSettings],
) -> Iterator[AnswerEvent]: ...


@public
def answer(
    question: str,
    db_path: AnyStores | None = None,
    *,
    chat_model: str | ChatModel,
    base_url: str | None = None,
    api_key: str | None = None,
    stream: bool = False,
    plan: RetrievePlan | None = None,
    contexts: Sequence[Item] | None = None,
    expand: Literal["llm"] | None = None,
    rerank: str | Reranker | None = None,
    diversity: Annotated[float | None, arguments.Range(ge=0, le=1)] = None,
    compress: bool | CompressPolicy = False,
    template: str | None = None,
    system: str | None = None,
    temperature: Annotated[float | None, arguments.Range(ge=0, le=2)] = None,
    max_tokens: Annotated[int, arguments.Range(ge=1)] = DEFAULT_MAX_TOKENS,
    stop: str | Sequence[str] | None = None,
    context_window: Annotated[int, arguments.Range(ge=1)] = DEFAULT_CONTEXT_WINDOW,
    count_tokens: Any = None,
    margin: Annotated[float, arguments.Range(ge=0, le=1)] = DEFAULT_MARGIN,
    timeout: float = DEFAULT_TIMEOUT,
    max_retries: int = DEFAULT_RETRIES,
    strict: bool = False,
    request_id: str | None = None,
) -> Answer | Iterator[AnswerEvent]:
    """Answer a question from a store, with the sources of the answer.

    Parameters
    ----------
    question
        Not blank.
    db_path
        The file or files, as in :func:`sqlrag.hybrid_query`. None: answer from ``contexts`` alone.
    chat_model
        The name of a model at ``base_url``, or an object with the method of
        :class:`sqlrag.answers.chat_models.ChatModel`.
    base_url
        A server with the API of OpenAI's chat completions, such as ``http://localhost:11434/v1`` (Ollama). None:
        ``OPENAI_BASE_URL``, else OpenAI.
    api_key
        None: ``OPENAI_API_KEY``. It appears in no message, log or repr.
    stream
        Return an iterator of events instead of the whole answer.
    plan
        How to search, see :class:`sqlrag.RetrievePlan`; None is ``RetrievePlan(fusion="adaptive")``: 12 chunks by both
        legs, fused as :func:`hybrid_query` does. The search
        passes ``candidate_pool`` of them (50, at least ``k``) to ``rerank`` and ``diversity``, and the best ``k`` are
        used. Each leg passes as many to the fusion, so that a larger pool needs no further search.
    contexts
        Answer from these results, candidates or passages, best first, instead of searching. All of them are used,
        with their notices. ``rerank``, ``diversity`` and ``compress`` apply to them; they cannot be used with passages.
    expand
        "llm": the model first writes up to three other wordings of the question, and the rankings of all are fused by
        reciprocal rank, where the others together weigh as much as the question. If that fails, a notice says so.
    rerank
        Reorders the found chunks, see :func:`sqlrag.rerank`: "cosine" by the stored vectors, the name or folder of a
        cross-encoder, or any callable ``(question, texts) -> scores``, ``[n]``, higher is better. If it fails,
        the order is unchanged, and a notice says why. The scores of the sources are then those of the reranker.
    diversity
        0..1: how far sources that repeat better ones are moved down, by the stored vectors, see :func:`sqlrag.rerank`.
        None and 0 leave it out.
    compress
        True, or a :class:`sqlrag.CompressPolicy`: keep the sentences that match the question, see
        :func:`sqlrag.compress`. It runs last, so that more sources fit into the window. True is the default policy,
        with the stemmer of the file.
    template, system
        As in :func:`sqlrag.build_prompt`.
    temperature
        0..2; None is the server's default. Not every model accepts one.
    max_tokens
        The most tokens of the answer, 1 or more.
    stop
        Texts at which the model stops, four at most with OpenAI.
    context_window
        Size of the model's context in tokens, prompt and answer together. What remains after the instructions, the
        question and ``max_tokens`` is filled with sources by :func:`sqlrag.fit_context`.
    count_tokens, margin
        As in :func:`sqlrag.fit_context`.
    timeout
        How long the server may be silent, in seconds, above 0.
    max_retries
        How often a request without an answer, or with HTTP 408, 409, 429 or 5xx, is sent again, 0..10.
    strict
        Raise an error if the chat model fails, instead of returning the sources with the reason. The failure of a
        reranker is always reported in a notice.
    request_id
        Names this call in logs, in spans and for the servers of the models (headers ``X-Request-ID`` and
        ``X-Client-Request-Id``): 1 to 128 visible ASCII characters. None: a random one.

    Returns
    -------
    Answer or iterator of AnswerEvent
        With ``stream``, the search is done when the iterator is returned; it yields the sources, the text as it is
        generated, an error if there is one, the usage if the server reports it, and the whole :class:`Answer`. If the
        model fails, at once or in the middle, the answer contains the text so far, with ``error``. Cited numbers that
        have no source are in ``unknown_citations`` and in a notice. If nothing is found, the model is not called,
        since its answer would have no source: ``finish_reason`` is "no_sources" and ``text`` says so. If no chunk fits
        into ``context_window``, it is "no_room", and ``left_out`` lists the chunks. Of sources with the same text,
        ignoring white space and case, only the best is kept, and a notice names the others. ``timings`` has
        the seconds of "retrieve", "rerank", "compress", "fit", "model" and "total", as far as these stages ran.

    Raises
    ------
    InputError
        An argument is wrong, the question does not fit into ``context_window``, or ``rerank="cosine"`` or ``diversity``
        is used without a store.
    MissingExtraError, ModelUnavailableError
        The extra ``openai``, or one that the cross-encoder needs, is not installed; OpenAI is used without a key.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError
        The file cannot be used; see :mod:`sqlrag.errors`.
    ProviderError, ModelUnavailableError
        With ``strict``: the model fails.

    Examples
    --------
    >>> reply = answer("How do I filter by tag?", "kb.duckdb", chat_model="llama3.2",
    ...                base_url="http://localhost:11434/v1")  # doctest: +SKIP
    >>> print(reply.text, reply.sources[0]["doc_id"])  # doctest: +SKIP
    Pass tags_any=["api"] [1]. guides/filters.md
    """
    if db_path is None and contexts is None:
        raise InputError("Pass db_path, the store to search, or contexts to answer from.")
    if expand is not None and arguments.text("expand", expand) != "llm":
        raise InputError(f'expand must be None or "llm", not {arguments.shown(expand)}.')
    options = AnswerOptions(
        stream=arguments.flag("stream", stream),
        strict=arguments.flag("strict", strict),
        template=template,
        system=system,
        temperature=None if temperature is None else arguments.number("temperature", temperature, 0, 2),
        max_tokens=arguments.whole("max_tokens", max_tokens, 1),
        stop=_stops(stop),
        context_window=arguments.whole("context_window", context_window, 1),
        count_tokens=count_tokens,
        margin=margin,
        expand=expand is not None,
        refinement=Refinement(rerank, diversity, compress),
    )
    request = request_id_of(request_id)
    model, is_own = _model(chat_model, base_url, api_key, timeout, max_retries)
    run = AnswerRun(question, model, options, request, closes=is_own)
    if contexts is not None:
        unused = [name for name, value in (("plan", plan), ("expand", expand)) if value is not None]
        run.notices += [f"{name} has no effect: contexts were given, so there was no search." for name in unused]
    run.prepare(db_path, plan, contexts)
    events = run.events()
    if stream:
        return events
    for _ in events:
        pass
    return run.answer()


def prepare_prompt(
    question: str,
    db_path: AnyStores,
    *,
    plan: RetrievePlan | None = None,
    rerank: str | Reranker | None = None,
    diversity: float | None = None,
    compress: bool | CompressPolicy = False,
    template: str | None = None,
    system: str | None = None,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    context_window: int = DEFAULT_CONTEXT_WINDOW,
    count_tokens: Any = None,
    margin: float = DEFAULT_MARGIN,
) -> tuple[Prompt, list[str]]:
    """Search and return the prompt that :func:`answer` would send, with the notices; no chat model is called.

    Parameters and errors are those of :func:`answer`. If nothing is found, the prompt has no source.
    """
    options = AnswerOptions(
        template=template,
        system=system,
        max_tokens=arguments.whole("max_tokens", max_tokens, 1),
        context_window=arguments.whole("context_window", context_window, 1),
        count_tokens=count_tokens,
        margin=margin,
        refinement=Refinement(rerank, diversity, compress),
    )
    run = PromptRun(question, options, request_id_of(None))
    run.prepare(db_path, plan, None)
    run.end()
    return run.prompt or build_prompt(question, [], template, system=system), run.notices


def _model(
    chat_model: str | ChatModel, base_url: str | None, api_key: str | None, timeout: float, max_retries: int
) -> tuple[ChatModel, bool]:
    """Return the model, and whether it was created here."""
    if isinstance(chat_model, str):
        created = OpenAIChat(chat_model, base_url=base_url, api_key=api_key, timeout=timeout, max_retries=max_retries)
        return created, True
    if isinstance(chat_model, type) or not callable(getattr(chat_model, "chat", None)):
        raise InputError(
            f"chat_model must be the name of a model or have a method chat, not {arguments.shown(chat_model)}."
        )
    name = getattr(chat_model, "model_name", None)
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"chat_model must have a model_name, a string that is not blank, not {arguments.shown(name)}.")
    if base_url is not None or api_key is not None:
        raise InputError("base_url and api_key are for a model given by name; this chat_model has its own.")
    return chat_model, False


def _stops(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    given = [stop] if isinstance(stop, str) else arguments.items("stop", () if stop is None else stop, "['###']")
    if not all(isinstance(text, str) and text for text in given):
        raise InputError(f"stop must be non-empty texts, not {arguments.shown(stop)}.")
    return tuple(given)
