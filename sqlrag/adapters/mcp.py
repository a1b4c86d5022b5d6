"""MCP: a server over one file, with tools for language models. Needs the extra ``mcp``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import sqlrag
from sqlrag.errors import MissingExtraError
from sqlrag.types import Fusion

try:
    from mcp_types import ToolAnnotations
    from pydantic import Field

    from sqlrag.serving.working import Workers
    from sqlrag.tooling import answering, binding, calling, describing, hosting, shapes
except ImportError as error:
    raise MissingExtraError("The MCP server", "mcp") from error

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from sqlrag.tooling.guarding import App

_QUESTION = Annotated[str, Field(min_length=1, max_length=10_000)]
_COUNT = Annotated[int, Field(ge=1, le=50)]
_NAMES = Annotated[list[str], Field(max_length=100)]
_FILTERS = {
    "collection": str | _NAMES | None,
    "tags_any": _NAMES | None,
    "tags_all": _NAMES | None,
    "metadata": dict[str, Any] | None,
    "min_similarity": Annotated[float | None, Field(ge=-1, le=1)],
}
_HYBRID_QUERY = {
    "query_text": _QUESTION,
    "top_k": _COUNT,
    "fusion": Fusion | None,
    "alpha": Annotated[float, Field(ge=0, le=1)],
    **_FILTERS,
    "syntax": bool,
}
_GET_SOURCE_DOCUMENTS = {
    "chunk_ids": Annotated[list[str], Field(min_length=1, max_length=20)],
    "start": Annotated[int, Field(ge=0)],
    "max_characters": Annotated[int, Field(ge=1, le=answering.MOST_CHARACTERS)],
}
_ANSWER_SOURCES = {
    "question": _QUESTION,
    "top_k": _COUNT,
    "mode": Literal["hybrid", "vector", "lexical"],
    "context_window": Annotated[int, Field(ge=256, le=32_000)],
    **_FILTERS,
    "compress": bool,
}
# Each with the function that describes it, its arguments and what it returns.
_TOOLS: tuple[tuple[Callable[..., Any], Callable[..., Any], dict[str, Any], Any], ...] = (
    (answering.hybrid_query, sqlrag.hybrid_query, _HYBRID_QUERY, shapes.Found),
    (answering.get_source_documents, answering.get_source_documents, _GET_SOURCE_DOCUMENTS, shapes.Documents),
    (answering.answer_sources, answering.answer_sources, _ANSWER_SOURCES, shapes.AnswerSources),
    (answering.corpus_info, answering.corpus_info, {}, shapes.Corpus),
)
_READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)


def create_server(db_path: str | os.PathLike[str]) -> hosting.StrictServer:
    """Return the server of a file, which each call opens and closes; ``.run("stdio")`` runs it."""
    server = hosting.StrictServer(
        "sqlrag", version=sqlrag.__version__, instructions=answering.INSTRUCTIONS, log_level="WARNING"
    )
    workers = Workers(hosting.THREADS, hosting.WAITING, hosting.SECONDS)
    for run, described, arguments, shape in _TOOLS:
        tool = calling.told(binding.bound(run, db_path, described, arguments, shape), db_path, workers)
        server.add_tool(tool, description=describing.description(described), annotations=_READS)
    return server


def create_app(
    db_path: str | os.PathLike[str], *, host: str = "127.0.0.1", hosts: Sequence[str] = (), api_key: str | None = None
) -> App:
    """Return the server as an ASGI application with the end point ``/mcp``; see :func:`hosting.guarded_app`."""
    return hosting.guarded_app(create_server(db_path), host, hosts, api_key)
