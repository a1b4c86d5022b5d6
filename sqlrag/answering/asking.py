"""From a question to an answer with sources: search, choose what fits, ask a chat model, check what it cites."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from sqlrag import options
from sqlrag.answering.chatting import DEFAULT_RETRIES, DEFAULT_TIMEOUT, OpenAIChat
from sqlrag.answering.preparing import AnswerOptions, PromptRun
from sqlrag.answering.prompting import build_prompt
from sqlrag.answering.running import AnswerRun
from sqlrag.answering.windowing import DEFAULT_MARGIN
from sqlrag.errors import InputError
from sqlrag.measuring import request_id_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from sqlrag.answering.chatting import ChatModel
    from sqlrag.answering.contexts import Item
    from sqlrag.answering.outcome import Answer, AnswerEvent
    from sqlrag.answering.prompting import Prompt
    from sqlrag.retrieval.store import Store
    from sqlrag.types import RetrievePlan

DEFAULT_MAX_TOKENS = 512
DEFAULT_CONTEXT_WINDOW = 4096


@overload
def answer(
    question: str,
    db_path: str | os.PathLike[str] | Store | None = None,
    *,
    chat_model: str | ChatModel,
    base_url: str | None = None,
    api_key: str | None = None,
    stream: Literal[False] = False,
    plan: RetrievePlan | None = None,
    contexts: Sequence[Item] | None = None,
    expand: Literal["llm"] | None = None,
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
) -> Answer: ...
@overload
def answer(
    question: str,
    db_path: str | os.PathLike[str] | Store | None = None,
    *,
    chat_model: str | ChatModel,
    base_url: str | None = None,
    api_key: str | None = None,
    stream: Literal[True],
    plan: RetrievePlan | None = None,
    contexts: Sequence[Item] | None = None,
    expand: Literal["llm"] | None = None,
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
) -> Iterator[AnswerEvent]: ...
def answer(
    question: str,
    db_path: str | os.PathLike[str] | Store | None = None,
    *,
    chat_model: str | ChatModel,
    base_url: str | None = None,
    api_key: str | None = None,
    stream: bool = False,
    plan: RetrievePlan | None = None,
    contexts: Sequence[Item] | None = None,
    expand: Literal["llm"] | None = None,
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
        The file, or an open :class:`sqlrag.Store`. None: answer from ``contexts`` alone.
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
        How to search, see :class:`sqlrag.RetrievePlan`; None is ``RetrievePlan()``: 12 chunks by both legs.
    contexts
        Answer from these results, candidates or passages, best first, instead of searching.
    expand
        "llm": the model first writes up to three other wordings of the question, and the rankings of all are fused by
        reciprocal rank, the others weighing together as much as the question. Where it cannot, a notice says so.
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
        Raise where the model fails, instead of returning the sources with the reason.
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
        its answer could have no source: ``finish_reason`` is "no_sources" and ``text`` says so.

    Raises
    ------
    InputError
        An argument is wrong, or the question does not fit into ``context_window``.
    MissingExtraError, ModelUnavailableError
        The extra ``openai`` is not installed; OpenAI is to be asked without a key.
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
    if expand not in (None, "llm"):
        raise InputError(f'expand must be None or "llm", not {expand!r:.200}.')
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
    )
    request = request_id_of(request_id)
    model, is_own = _model(chat_model, base_url, api_key, timeout, max_retries)
    run = AnswerRun(question, model, asked, request, closes=is_own)
    run.prepare(db_path, plan, contexts)
    events = run.events()
    if stream:
        return events
    for _ in events:
        pass
    return run.answer()


def prepare_prompt(
    question: str,
    db_path: str | os.PathLike[str] | Store,
    *,
    plan: RetrievePlan | None = None,
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
    if not callable(getattr(chat_model, "chat", None)):
        raise InputError(f"chat_model must be the name of a model or have a method chat, not {chat_model!r:.200}.")
    if base_url is not None or api_key is not None:
        raise InputError("base_url and api_key go with the name of a model; this chat_model has its own.")
    return chat_model, False


def _stops(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    given = [stop] if isinstance(stop, str) else options.items("stop", stop or (), "['###']")
    if not all(isinstance(text, str) and text for text in given):
        raise InputError(f"stop must be texts that are not empty, not {stop!r:.200}.")
    return tuple(given)
