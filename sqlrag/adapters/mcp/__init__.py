"""MCP: a server over one store, with tools for language models. Needs the extra ``mcp``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import sqlrag
from sqlrag.engines.resident.follow import kept_in_memory
from sqlrag.errors import MissingExtraError
from sqlrag.ranking.plan import OPTIONS
from sqlrag.search.open import files_of, is_open

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.types import ASGIApp

    from sqlrag.search.open import AnyStores

try:
    from mcp_types import ToolAnnotations
    from pydantic import Field

    from sqlrag.adapters.mcp import host, tools
    from sqlrag.adapters.mcp.host import guarded_app
    from sqlrag.adapters.rest.schemas import json_type, limited
    from sqlrag.adapters.server import Workers
except ImportError as error:
    raise MissingExtraError("The MCP server", "mcp") from error

_MOST_RESULTS = 50

_MOST_NAMES = 100

_QUESTION = Annotated[str, Field(min_length=1, max_length=10_000)]


def _types_of(*names: str) -> dict[str, Any]:
    """Return the types of search options, with their ranges and the limits of a tool."""
    types = {}
    for name in names:
        option = OPTIONS[name]
        limits = option.range.limits() if option.range else {}
        limits |= {"le": _MOST_RESULTS} if name == "top_k" else {}
        types[name] = Annotated[limited(json_type(option.kind), _MOST_NAMES), Field(**limits)]
    return types


_FILTERS = _types_of("collection", "tags_any", "tags_all", "metadata", "min_similarity")

_HYBRID_QUERY = {
    "query_text": _QUESTION,
    **_types_of("top_k", "context", "context_chars", "fusion", "alpha"),
    "fusion": OPTIONS["fusion"].kind | None,
    **_FILTERS,
    **_types_of("syntax"),
}

_GET_SOURCE_DOCUMENTS = {
    "chunk_ids": Annotated[list[str], Field(min_length=1, max_length=20)],
    "start": Annotated[int, Field(ge=0)],
    "max_characters": Annotated[int, Field(ge=1, le=tools.MOST_CHARACTERS)],
}

_ANSWER_SOURCES = {
    "question": _QUESTION,
    **_types_of("top_k", "mode"),
    "context_window": Annotated[int, Field(ge=256, le=32_000)],
    **_FILTERS,
    "compress": bool,
    **_types_of("context", "context_chars"),
}

_SEARCH = {
    "query": _QUESTION,
    **_types_of("top_k", "mode"),
    "max_tokens": Annotated[int, Field(ge=100, le=32_000)],
    **_FILTERS,
}

_READ = {
    "id": Annotated[str, Field(min_length=1, max_length=2000)],
    "start": Annotated[int, Field(ge=0)] | None,
    "max_characters": Annotated[int, Field(ge=1, le=tools.MOST_CHARACTERS)],
}

_SOURCES = {"after": Annotated[str, Field(max_length=2000)], "collection": str | None}

# For each tool: the function, the one whose docstring describes it, its arguments and its result type. Those with a
# text are listed; the others, whose result is structured, can be called by programs that know them.
_TOOLS: tuple[tuple[Callable[..., Any], Callable[..., Any], dict[str, Any], Any], ...] = (
    (tools.search, tools.search, _SEARCH, str),
    (tools.read, tools.read, _READ, str),
    (tools.sources, tools.sources, _SOURCES, str),
    (tools.ask, tools.answer_sources, _ANSWER_SOURCES, str),
    (tools.hybrid_query, sqlrag.hybrid_query, _HYBRID_QUERY, tools.Found),
    (tools.get_source_documents, tools.get_source_documents, _GET_SOURCE_DOCUMENTS, tools.Documents),
    (tools.answer_sources, tools.answer_sources, _ANSWER_SOURCES, tools.AnswerSources),
    (tools.corpus_info, tools.corpus_info, {}, tools.Corpus),
)

_READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)


def create_server(db_path: AnyStores | Mapping[str, AnyStores], *, resident_mb: int | None = None) -> host.StrictServer:
    """Return the server of a file or files, which each call opens and closes; ``.run("stdio")`` runs it.

    ``db_path`` is as in :func:`sqlrag.hybrid_query`; an open store stays open. Or several by their names, of which each
    call names one as ``db``. ``resident_mb`` is how much memory each may take to be searched in memory, 0 for never;
    None: as the settings say.
    """
    return _server(db_path, resident_mb, over_http=False)


def _server(
    db_path: AnyStores | Mapping[str, AnyStores], resident_mb: int | None, *, over_http: bool
) -> host.StrictServer:
    places = db_path.values() if isinstance(db_path, Mapping) else [db_path]
    server = host.StrictServer(
        "sqlrag", version=sqlrag.__version__, instructions=tools.INSTRUCTIONS, log_level="WARNING"
    )
    workers = Workers(host.THREADS, host.WAITING, host.SECONDS)
    for run, described, arguments, shape in _TOOLS:
        tool = host.bound(run, db_path, described, arguments, shape)
        tool = host.reporting(tool, db_path, workers, over_http=over_http)
        server.add_tool(
            tool,
            description=host.description(described),
            annotations=_READS,
            structured_output=shape is not str,
        )
    server.in_memory = [
        one for place in places if not is_open(place) for one in kept_in_memory(files_of(place), resident_mb)
    ]
    return server


def create_app(
    db_path: AnyStores | Mapping[str, AnyStores],
    *,
    host: str = "127.0.0.1",
    hosts: Sequence[str] = (),
    api_key: str | None = None,
    resident_mb: int | None = None,
) -> ASGIApp:
    """Return the server as an ASGI application with the endpoint ``/mcp``; see :func:`host.guarded_app`.

    ``resident_mb`` is as in :func:`create_server`.
    """
    return guarded_app(_server(db_path, resident_mb, over_http=True), host, hosts, api_key)
