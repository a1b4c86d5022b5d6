"""From a question to an answer with sources: search, choose what fits, ask a chat model, check what it cites."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict, overload

from sqlrag import options
from sqlrag.answering.chatting import DEFAULT_RETRIES, DEFAULT_TIMEOUT, OpenAIChat
from sqlrag.answering.preparing import AnswerOptions, PromptRun
from sqlrag.answering.prompting import build_prompt
from sqlrag.answering.refining import Refinement
from sqlrag.answering.running import AnswerRun
from sqlrag.answering.windowing import DEFAULT_MARGIN
from sqlrag.errors import InputError
from sqlrag.measuring import request_id_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typing_extensions import Unpack

    from sqlrag.answering.chatting import ChatModel
    from sqlrag.answering.contexts import Item
    from sqlrag.answering.outcome import Answer, AnswerEvent
    from sqlrag.answering.prompting import Prompt
    from sqlrag.retrieval.compressing import CompressPolicy
    from sqlrag.retrieval.cross_encoders import Reranker
    from sqlrag.types import AnyStores, RetrievePlan

DEFAULT_MAX_TOKENS = 512
DEFAULT_CONTEXT_WINDOW = 4096


class AnswerSettings(TypedDict, total=False):
    """The options of :func:`answer` that are no part of its overloads, for type checkers."""

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
    diversity: float | None = None,
    compress: bool | CompressPolicy = False,
    template: str | None = None,
    system: str | None = None,
    temperature: float | None = None,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    stop: str | Sequence[str] | None = None,
    context_window: int = DEFAULT_CONTEXT_WINDOW,
    count_tokens: Any = None,
    margin: float = DEFAULT_MARGIN,
    timeout: float = DEFAULT_TIMEOUT,
    max_retries: int = DEFAULT_RETRIES,
    strict: bool = False,
    request_id: str | None = None,
) -> Answer | Iterator[AnswerEvent]:
    """Answer a question from a file, with the sources that the answer is made of.

    Parameters
    ----------
    question
        Not blank.
    db_path
        The file or files, as in :func:`sqlrag.hybrid_query`. None: answer from ``contexts`` alone.
    chat_model
        The name of a model at ``base_url``, or an object with the method of
        :class:`sqlrag.answering.chatting.ChatModel`.
    base_url
        A server that speaks OpenAI's chat completions, such as ``http://localhost:11434/v1`` (Ollama). None:
        ``OPENAI_BASE_URL``, else OpenAI.
    api_key
        None: ``OPENAI_API_KEY``. It is in no message, log or repr.
    stream
        Return an iterator of events instead of the whole answer.
    plan
        How to search, see :class:`sqlrag.RetrievePlan`; None is ``RetrievePlan()``: 12 chunks by both legs. The search
        gives ``candidate_pool`` of them (50, never fewer than ``k``) to ``rerank`` and ``diversity``, of which the best
        ``k`` are taken; the pool is what each leg gives to the fusion, so that more of them cost no other search.
    contexts
        Answer from these results, candidates or passages, best first, instead of searching. All of them are taken,
        and their notices, too.
        They go through ``rerank``, ``diversity`` and ``compress`` where these are given; passages cannot.
    expand
        "llm": the model first writes up to three other wordings of the question, and the rankings of all are fused by
        reciprocal rank, the others weighing together as much as the question. Where it cannot, a notice says so.
    rerank
        Orders what was found anew, see :func:`sqlrag.rerank`: "cosine" by the stored vectors, the name or folder of a
        cross-encoder, or any callable ``(question, texts) -> scores``, ``[n]``, higher is better. Where it fails the
        order is as it was, and a notice says why. The scores of the sources are then its own.
    diversity
        0..1: how much a source that repeats better ones is put back, by the stored vectors, see :func:`sqlrag.rerank`.
        None and 0 leave it out.
    compress
        True, or a :class:`sqlrag.CompressPolicy`: keep the sentences that match the question, see
        :func:`sqlrag.compress`. It comes last, so that more sources fit into the window. True is the default policy,
        with the stemmer of the file.
    template, system
        As in :func:`sqlrag.build_prompt`.
    temperature
        0..2; None is the server's own. Not every model takes one.
    max_tokens
        The most tokens of the answer, 1 or more.
    stop
        Texts at which the model stops, four at most with OpenAI.
    context_window
        How many tokens the model can take, prompt and answer together. What is left beside the instructions, the
        question and ``max_tokens`` is filled with sources by :func:`sqlrag.fit_context`.
    count_tokens, margin
        As in :func:`sqlrag.fit_context`.
    timeout
        How long the server may be silent, in seconds, above 0.
    max_retries
        How often a request without an answer, or with HTTP 408, 409, 429 or 5xx, is sent again, 0..10.
    strict
        Raise where the chat model fails, instead of returning the sources with the reason. A re-ranking model that
        fails is told in a notice in any case.
    request_id
        Names this call in logs, in spans and towards the server (header ``X-Client-Request-Id``): 1 to 128 visible
        ASCII characters. None: a random one.

    Returns
    -------
    Answer or iterator of AnswerEvent
        With ``stream``, the search is done when the iterator is returned; it yields the sources, the text as it is
        made, an error if there is one, the usage if the server tells it, and the whole :class:`Answer`. A model that
        fails, at once or in the middle, leaves what there is so far, with ``error``. Numbers that the text cites and no
        source has are in ``unknown_citations`` and in a notice. Where nothing is found the model is not asked, since
        its answer could have no source: ``finish_reason`` is "no_sources" and ``text`` says so. Where nothing of what
        was found fits into ``context_window``, it is "no_room", and ``left_out`` tells what that was. No two sources
        have the same text, blank space and case apart: the best of them stays, and a notice names the others.
        ``timings`` has the seconds of "retrieve", "rerank", "compress", "fit", "model" and "total", of what ran.

    Raises
    ------
    InputError
        An argument is wrong, the question does not fit into ``context_window``, or ``rerank="cosine"`` or ``diversity``
        is asked for without a file.
    MissingExtraError, ModelUnavailableError
        The extra ``openai``, or one that the cross-encoder needs, is not installed; OpenAI is to be asked without a
        key.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError
        The file cannot be used; see :mod:`sqlrag.errors`.
    ProviderError, ModelUnavailableError
        With ``strict``, the model fails.

    Examples
    --------
    >>> reply = answer("How do I filter by tag?", "kb.duckdb", chat_model="llama3.2",
    ...                base_url="http://localhost:11434/v1")  # doctest: +SKIP
    >>> print(reply.text, reply.sources[0]["doc_id"])  # doctest: +SKIP
    Pass tags_any=["api"] [1]. guides/filters.md
    """
    if db_path is None and contexts is None:
        raise InputError("Pass db_path, the file to search, or contexts to answer from.")
    if expand is not None and options.text("expand", expand) != "llm":
        raise InputError(f'expand must be None or "llm", not {options.shown(expand)}.')
    asked = AnswerOptions(
        stream=options.flag("stream", stream),
        strict=options.flag("strict", strict),
        template=template,
        system=system,
        temperature=None if temperature is None else options.number("temperature", temperature, 0, 2),
        max_tokens=options.whole("max_tokens", max_tokens, 1),
        stop=_stops(stop),
        context_window=options.whole("context_window", context_window, 1),
        count_tokens=count_tokens,
        margin=margin,
        expand=expand is not None,
        refinement=Refinement(rerank, diversity, compress),
    )
    request = request_id_of(request_id)
    model, is_own = _model(chat_model, base_url, api_key, timeout, max_retries)
    run = AnswerRun(question, model, asked, request, closes=is_own)
    if contexts is not None:
        unused = [name for name, value in (("plan", plan), ("expand", expand)) if value is not None]
        run.notices += [f"{name} has no effect: the contexts were given, nothing was searched for." for name in unused]
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
    """Search and return the prompt that :func:`answer` would send, with the notices; no model is asked.

    Parameters and errors are those of :func:`answer`. Where nothing is found the prompt has no source.
    """
    asked = AnswerOptions(
        template=template,
        system=system,
        max_tokens=options.whole("max_tokens", max_tokens, 1),
        context_window=options.whole("context_window", context_window, 1),
        count_tokens=count_tokens,
        margin=margin,
        refinement=Refinement(rerank, diversity, compress),
    )
    run = PromptRun(question, asked, request_id_of(None))
    run.prepare(db_path, plan, None)
    run.end()
    return run.prompt or build_prompt(question, [], template, system=system), run.notices


def _model(
    chat_model: str | ChatModel, base_url: str | None, api_key: str | None, timeout: float, max_retries: int
) -> tuple[ChatModel, bool]:
    """Return the model, and whether it was made here."""
    if isinstance(chat_model, str):
        made = OpenAIChat(chat_model, base_url=base_url, api_key=api_key, timeout=timeout, max_retries=max_retries)
        return made, True
    if isinstance(chat_model, type) or not callable(getattr(chat_model, "chat", None)):
        raise InputError(
            f"chat_model must be the name of a model or have a method chat, not {options.shown(chat_model)}."
        )
    name = getattr(chat_model, "model_name", None)
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"chat_model must have a model_name, a string that is not blank, not {options.shown(name)}.")
    if base_url is not None or api_key is not None:
        raise InputError("base_url and api_key go with the name of a model; this chat_model has its own.")
    return chat_model, False


def _stops(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    given = [stop] if isinstance(stop, str) else options.items("stop", () if stop is None else stop, "['###']")
    if not all(isinstance(text, str) and text for text in given):
        raise InputError(f"stop must be texts that are not empty, not {options.shown(stop)}.")
    return tuple(given)
