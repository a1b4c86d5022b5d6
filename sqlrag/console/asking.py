"""``sqlrag ask`` and ``sqlrag prompt``."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sqlrag.console.app import command
from sqlrag.console.options import (
    NO_FILES,
    Collection,
    Dbs,
    FormatName,
    FusionName,
    Metadata,
    MinSimilarity,
    TagsAll,
    TagsAny,
    Text,
    metadata_fields,
    option,
)
from sqlrag.console.printing import Format, tell, write, write_csv, write_json, write_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sqlrag.answering.outcome import Answer, AnswerEvent
    from sqlrag.types import RetrievePlan

_SOURCE_COLUMNS = (
    *("number", "node_id", "file", "page", "heading_path", "score", "score_type", "doc_id", "chunk_index"),
    *("collection", "checksum", "spans", "i_start", "i_end", "quote"),
)


class ModeName(str, Enum):
    """Which legs search."""

    hybrid = "hybrid"
    vector = "vector"
    lexical = "lexical"


TopK = Annotated[int, option("--top-k", "-k", help="How many chunks to search for.", show_default=True)]
Mode = Annotated[ModeName, option("--mode", help="Search by meaning, by words, or by both.", show_default=True)]
Rerank = Annotated[
    str | None,
    option("--rerank", metavar="MODEL", help='Order anew: a cross-encoder, by name or folder, or "cosine".'),
]
Diversity = Annotated[
    float | None, option("--diversity", help="0 to 1: how much chunks are put back that repeat better ones.")
]
Compress = Annotated[bool, option("--compress", help="Keep of each chunk the sentences that match the question.")]
Fused = Annotated[FusionName, option("--fusion", help="How both rankings become one.", show_default=True)]
TemplateFile = Annotated[
    Path | None,
    option("--template", metavar="FILE", exists=True, dir_okay=False, help="A Jinja2 template of the user's message."),
]
System = Annotated[str | None, option("--system", help="What stands before the rules in the system message.")]
MaxTokens = Annotated[int, option("--max-tokens", help="The most tokens of the answer.", show_default=True)]
ContextWindow = Annotated[
    int, option("--context-window", help="Tokens that the model can take, prompt and answer.", show_default=True)
]


@command(
    "ask",
    "Answer a question with a chat model, from the file.",
    "sqlrag ask 'How do I filter by tag?' --db kb.duckdb --chat-model llama3.2 --base-url http://localhost:11434/v1 "
    "--stream",
)
def ask(
    question: Text,
    chat_model: Annotated[
        str, option("--chat-model", metavar="NAME", envvar="SQLRAG_CHAT_MODEL", help="The model, by the server's name.")
    ],
    db: Dbs = NO_FILES,
    base_url: Annotated[
        str | None,
        option("--base-url", metavar="URL", envvar="OPENAI_BASE_URL", help="The server of the model. [OpenAI]"),
    ] = None,
    stream: Annotated[
        bool, option("--stream", help="Print the answer as it is made; as JSON, one event a line.")
    ] = False,
    expand: Annotated[bool, option("--expand", help="Let the model word the question in other ways, too.")] = False,
    top_k: TopK = 12,
    mode: Mode = ModeName.hybrid,
    fusion: Fused = FusionName.rrf,
    collection: Collection = None,
    tags_any: TagsAny = None,
    tags_all: TagsAll = None,
    metadata: Metadata = None,
    min_similarity: MinSimilarity = None,
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
) -> int:
    """Search, and let a chat model answer from what is found. A key, if one is needed, is that in OPENAI_API_KEY.

    The sources are printed below the answer; also where the model fails, then with exit code 1.
    """
    from sqlrag.answering.asking import answer

    events = answer(
        question,
        db if len(db) > 1 else db[0],
        chat_model=chat_model,
        base_url=base_url,
        stream=True,
        expand="llm" if expand else None,
        plan=_plan(top_k, mode, fusion, collection, tags_any, tags_all, metadata, min_similarity),
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
        tell(f"note: {' '.join(notice.split())}")
    if found.error:
        tell(f"error: {' '.join(found.error.split())}")
    return 1 if found.error else 0


@command(
    "prompt",
    "Print what a chat model would be asked; none is called.",
    "sqlrag prompt 'How do I filter by tag?' --db kb.duckdb --top-k 3",
)
def prompt(
    question: Text,
    db: Dbs = NO_FILES,
    top_k: TopK = 12,
    mode: Mode = ModeName.hybrid,
    fusion: Fused = FusionName.rrf,
    collection: Collection = None,
    tags_any: TagsAny = None,
    tags_all: TagsAll = None,
    metadata: Metadata = None,
    min_similarity: MinSimilarity = None,
    rerank: Rerank = None,
    diversity: Diversity = None,
    compress: Compress = False,
    template: TemplateFile = None,
    system: System = None,
    max_tokens: MaxTokens = 512,
    context_window: ContextWindow = 4096,
    form: FormatName = Format.table,
) -> None:
    """Search, choose what fits, and print the prompt: the system message, a blank line and the user's message."""
    from sqlrag.answering.asking import prepare_prompt

    made, notices = prepare_prompt(
        question,
        db if len(db) > 1 else db[0],
        plan=_plan(top_k, mode, fusion, collection, tags_any, tags_all, metadata, min_similarity),
        rerank=rerank,
        diversity=diversity,
        compress=compress,
        template=_text_of(template),
        system=system,
        max_tokens=max_tokens,
        context_window=context_window,
    )
    for notice in notices:
        tell(f"note: {' '.join(notice.split())}")
    if form is Format.json:
        write_json({"messages": made.messages, "sources": made.sources, "notices": notices})
    elif form is Format.csv:
        write_csv(made.sources, _SOURCE_COLUMNS)
    else:
        write(str(made))


def _plan(
    top_k: int,
    mode: ModeName,
    fusion: FusionName,
    collection: list[str] | None,
    tags_any: list[str] | None,
    tags_all: list[str] | None,
    metadata: list[str] | None,
    min_similarity: float | None,
) -> RetrievePlan:
    from sqlrag.types import RetrievePlan

    return RetrievePlan(
        k=top_k,
        mode=mode.value,
        fusion=fusion.value,
        collection=tuple(collection) if collection else None,
        tags_any=tuple(tags_any or ()),
        tags_all=tuple(tags_all or ()),
        metadata=metadata_fields(metadata) or {},
        min_similarity=min_similarity,
    )


def _text_of(template: Path | None) -> str | None:
    if template is None:
        return None
    try:
        return template.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{template} cannot be read as UTF-8: {error}") from error


def _as_lines(events: Iterable[AnswerEvent]) -> Iterator[AnswerEvent]:
    """Print events as JSON, one on a line, on the way."""
    for event in events:
        write_json(event.as_dict(), indent=None)
        yield event


def _as_text(events: Iterable[AnswerEvent]) -> Iterator[AnswerEvent]:
    """Print the text of events as it comes, on the way."""
    for event in events:
        if event.text:
            write_part(event.text)
        yield event


def _finished(events: Iterable[AnswerEvent]) -> Answer:
    """Run through the events and return the answer of the last."""
    found: Any = None
    for event in events:
        found = event.answer
    return found  # type: ignore[no-any-return]


def _show(found: Answer, form: Format, *, streamed: bool) -> None:
    from sqlrag.answering.outcome import format_sources

    if form is Format.csv:
        # The answer stands in each row, and alone in one where there is no source.
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
