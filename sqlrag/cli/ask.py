"""``sqlrag ask`` and ``sqlrag prompt``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sqlrag.cli.app import command
from sqlrag.cli.options import NO_FILES, Dbs, FormatName, Text, chosen, option, where, with_options
from sqlrag.cli.printing import Format, write, write_csv, write_json, write_message, write_part
from sqlrag.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sqlrag.answers.outcome import Answer, AnswerEvent
    from sqlrag.types import RetrievePlan

_SOURCE_COLUMNS = (
    *("number", "node_id", "file", "page", "heading_path", "score", "score_type", "doc_id", "chunk_index"),
    *("collection", "checksum", "spans", "i_start", "i_end", "quote", "context", "context_start", "context_end"),
)

TopK = Annotated[int, option("--top-k", "-k", help="How many chunks to search for.", show_default=True)]

_OPTIONS = (
    *("mode", "context", "context_chars", "fusion", "collection", "tags_any", "tags_all", "metadata"),
    "min_similarity",
)

Rerank = Annotated[
    str | None,
    option("--rerank", metavar="MODEL", help='Rerank: with a cross-encoder, by name or folder, or "cosine".'),
]

Diversity = Annotated[
    float | None, option("--diversity", help="0 to 1: how far chunks are moved down that repeat better ones.")
]

Compress = Annotated[bool, option("--compress", help="Keep of each chunk the sentences that match the question.")]

TemplateFile = Annotated[
    Path | None,
    option("--template", metavar="FILE", help="A Jinja2 template of the user's message."),
]

System = Annotated[str | None, option("--system", help="Text before the rules in the system message.")]

MaxTokens = Annotated[int, option("--max-tokens", help="The most tokens of the answer.", show_default=True)]

ContextWindow = Annotated[
    int, option("--context-window", help="Tokens of the model's context, prompt and answer.", show_default=True)
]


@command(
    "ask",
    "Answer a question with a chat model, from the file.",
    "sqlrag ask how do I filter by tag --db kb.duckdb --chat-model llama3.2 "
    "--chat-base-url http://localhost:11434/v1 --stream",
)
@with_options(*_OPTIONS, after="top_k")
def ask(
    question: Text,
    chat_model: Annotated[
        str | None,
        option("--chat-model", metavar="NAME", envvar="SQLRAG_CHAT_MODEL", help="The model, by the server's name."),
    ] = None,
    db: Dbs = NO_FILES,
    base_url: Annotated[
        str | None,
        option(
            "--base-url",
            "--chat-base-url",
            metavar="URL",
            envvar="OPENAI_BASE_URL",
            help="The server of the model. [OpenAI]",
        ),
    ] = None,
    stream: Annotated[
        bool, option("--stream", help="Print the answer as it is generated; as JSON, one event a line.")
    ] = False,
    expand: Annotated[
        bool, option("--expand", help="Also search with rewordings of the question by the model.")
    ] = False,
    top_k: TopK = 12,
    rerank: Rerank = None,
    diversity: Diversity = None,
    compress: Compress = False,
    template: TemplateFile = None,
    system: System = None,
    temperature: Annotated[float | None, option("--temperature", help="0 to 2. [the server's own]")] = None,
    max_tokens: MaxTokens = 512,
    stop: Annotated[list[str] | None, option("--stop", metavar="TEXT", help="Stop at this text. Repeatable.")] = None,
    context_window: ContextWindow = 4096,
    timeout: Annotated[
        float, option("--timeout", help="Seconds that the server may be silent.", show_default=True)
    ] = 120.0,
    max_retries: Annotated[
        int, option("--max-retries", help="How often a failed request is sent again.", show_default=True)
    ] = 2,
    request_id: Annotated[str | None, option("--request-id", help="Names this call in logs. [random]")] = None,
    form: FormatName = Format.table,
    **options: Any,
) -> int:
    """Search, and let a chat model answer from the results. The key of its server is read from OPENAI_API_KEY.

    The sources are printed below the answer. They are printed where the model fails, too; the exit code is then 1.
    """
    from sqlrag.answers.answer import answer

    if not chat_model:
        raise typer.BadParameter(
            "Name the model of a server, such as --chat-model llama3.2 --chat-base-url http://localhost:11434/v1 for "
            "Ollama. `sqlrag prompt` needs none: it prints what a model would be asked."
        )
    events = answer(
        question,
        where(db),
        chat_model=chat_model,
        base_url=base_url,
        stream=True,
        expand="llm" if expand else None,
        plan=_plan(top_k, options),
        rerank=rerank,
        diversity=diversity,
        compress=compress,
        template=_text_of(template),
        system=system,
        temperature=temperature,
        max_tokens=max_tokens,
        stop=stop,
        context_window=context_window,
        timeout=timeout,
        max_retries=max_retries,
        request_id=request_id,
    )
    if stream and form is Format.json:
        found = _finished(_as_lines(events))
    elif stream and form is Format.table:
        found = _finished(_as_text(events))
    else:
        found = _finished(events)
    _show(found, form, streamed=stream)
    for notice in found.notices:
        write_message(f"note: {' '.join(notice.split())}")
    if found.error:
        write_message(f"error: {' '.join(found.error.split())}")
    return 1 if found.error else 0


@command(
    "prompt",
    "Print the prompt for a chat model; no model is called.",
    "sqlrag prompt 'How do I filter by tag?' --db kb.duckdb --top-k 3",
)
@with_options(*_OPTIONS, after="top_k")
def prompt(
    question: Text,
    db: Dbs = NO_FILES,
    top_k: TopK = 12,
    rerank: Rerank = None,
    diversity: Diversity = None,
    compress: Compress = False,
    template: TemplateFile = None,
    system: System = None,
    max_tokens: MaxTokens = 512,
    context_window: ContextWindow = 4096,
    form: FormatName = Format.table,
    **options: Any,
) -> None:
    """Search, choose what fits, and print the prompt: the system message, a blank line and the user's message."""
    from sqlrag.answers.answer import prepare_prompt

    made, notices = prepare_prompt(
        question,
        where(db),
        plan=_plan(top_k, options),
        rerank=rerank,
        diversity=diversity,
        compress=compress,
        template=_text_of(template),
        system=system,
        max_tokens=max_tokens,
        context_window=context_window,
    )
    for notice in notices:
        write_message(f"note: {' '.join(notice.split())}")
    if form is Format.json:
        write_json({"messages": made.messages, "sources": made.sources, "notices": notices})
    elif form is Format.csv:
        write_csv(made.sources, _SOURCE_COLUMNS)
    else:
        write(str(made))


def _plan(top_k: int, options: dict[str, Any]) -> RetrievePlan:
    from sqlrag.types import RetrievePlan

    given = {name: value for name, value in chosen(options).items() if value is not None}
    tuples = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
    return RetrievePlan(k=top_k, **{**given, **tuples})


def _text_of(template: Path | None) -> str | None:
    if template is None:
        return None
    try:
        return template.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotFoundError(f"The template {template} cannot be read as UTF-8: {error}.") from error


def _as_lines(events: Iterable[AnswerEvent]) -> Iterator[AnswerEvent]:
    """Print each event as a line of JSON and pass it on."""
    for event in events:
        write_json(event.as_dict(), indent=None)
        yield event


def _as_text(events: Iterable[AnswerEvent]) -> Iterator[AnswerEvent]:
    """Print the text of each event and pass the event on."""
    for event in events:
        if event.text:
            write_part(event.text)
        yield event


def _finished(events: Iterable[AnswerEvent]) -> Answer:
    """Consume the events and return the answer of the last one."""
    found: Any = None
    for event in events:
        found = event.answer
    return found  # type: ignore[no-any-return]


def _show(found: Answer, form: Format, *, streamed: bool) -> None:
    from sqlrag.answers.outcome import format_sources

    if form is Format.csv:
        # Each row repeats the answer; without sources it is the only row.
        rows = [{**source, "answer": found.text} for source in found.sources or [{}]]
        write_csv(rows, (*_SOURCE_COLUMNS, "answer"))
        return
    if form is Format.json:
        if not streamed:
            write_json(found.as_dict())
        return
    parts = [] if streamed else [found.text.strip()]
    if streamed and found.text:
        write("")
    if found.sources:
        parts.append(format_sources(found.sources, set(found.citations)))
    if parts:
        write(("\n" if streamed and found.text else "") + "\n\n".join(part for part in parts if part))
