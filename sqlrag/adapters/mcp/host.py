"""The MCP server itself: tool schemas from signatures, calls in threads, HTTP behind checks."""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import Field, ValidationError

from sqlrag import adapters
from sqlrag.adapters.server import AsProblems, BodyInTime, Guard, Refused, RequestIds, for_clients, wrong_fields
from sqlrag.arguments import shortened, with_commands
from sqlrag.errors import InputError, SqlragError
from sqlrag.network import in_url, is_loopback, without_folders
from sqlrag.normalize import without_surrogates
from sqlrag.ranking.plan import OPTIONS, option_of
from sqlrag.search.open import files_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from mcp_types import Tool
    from starlette.types import ASGIApp

    from sqlrag.adapters.server import Workers
    from sqlrag.search.open import AnyStores


def description(function: Callable[..., Any]) -> str:
    """Return a docstring up to its sections, and its description of the result."""
    returned = adapters.section(function, "Returns").partition("\n")[2]  # below the name of the type
    return "\n".join(filter(None, (*map(_plain, adapters.lead(function).split("\n\n")), _plain(returned))))


def text_of(function: Callable[..., Any], argument: str) -> str:
    """Return the text of an argument: of a search option that of the table, of any other that of the docstring.

    A text that the docstring shares between several arguments is preceded by their names.

    Examples
    --------
    >>> from sqlrag import fuse
    >>> text_of(fuse, "method")[:56]
    '"rrf": Σ weight / (rrf_k + rank), rank from 1. "weighted'
    """
    option = option_of(function, argument)
    if option is not None:
        return _plain(option.sentence)
    described = adapters.arguments(function)
    if argument not in described:
        raise LookupError(f"The docstring of {function.__name__} does not describe {argument}.")
    names, text = described[argument]
    return f"{', '.join(names)}: {_plain(text)}" if len(names) > 1 else _plain(text)


def refusal(tool: str, error: ValidationError, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return what is wrong with a call: which arguments, what they must be, and what was given.

    ``schema`` is that of the tool's input.
    """
    wrong = wrong_fields(error.errors(include_url=False), arguments, schema)
    return f"{tool} cannot be called with these arguments: {wrong}."


def _plain(text: str) -> str:
    """Return text on one line, without reStructuredText markup."""
    return re.sub(r":\w+:`~?(?:sqlrag\.)?([^`]+)`|`{1,2}([^`]+)`{1,2}", r"\1\2", " ".join(text.split()))


def bound(
    run: Callable[..., Any],
    db_path: AnyStores | Mapping[str, AnyStores],
    described: Callable[..., Any],
    arguments: Mapping[str, Any],
    shape: Any,
) -> Callable[..., Any]:
    """Return ``run`` bound to the file, or with an argument ``db`` that names one of several.

    ``arguments`` are those that a client may pass, with their types; their defaults and descriptions are those of
    ``described``, or of the table of search options. ``shape`` is the type of the result.
    """
    defaults = inspect.signature(described).parameters
    several = db_path if isinstance(db_path, Mapping) else {}

    def tool(**given: Any) -> Any:
        return run(db_path=several[given.pop("db")] if several else db_path, **given)

    tool.__name__ = run.__name__
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=(defaults if name in defaults else OPTIONS)[name].default,
            annotation=Annotated[kind, Field(description=text_of(described, name))],
        )
        for name, kind in arguments.items()
    ]
    if several:
        chosen: Any = Annotated[Literal[tuple(several)], Field(description="The file to ask.")]
        parameters.append(inspect.Parameter("db", inspect.Parameter.KEYWORD_ONLY, annotation=chosen))
    tool.__signature__ = inspect.Signature(parameters, return_annotation=shape)  # type: ignore[attr-defined]
    return tool


def reporting(
    tool: Callable[..., Any],
    db_path: AnyStores | Mapping[str, AnyStores],
    workers: Workers,
    *,
    over_http: bool,
) -> Callable[..., Awaitable[Any]]:
    """Return a tool that reports failures to the model with their remedies, and without the folder of the file.

    Over HTTP the client may be on another machine, see :func:`sqlrag.adapters.server.for_clients`.
    """
    told = for_clients if over_http else lambda error, *folders: without_folders(with_commands(str(error)), *folders)
    places = db_path.values() if isinstance(db_path, Mapping) else [db_path]
    folders = [file.parent for place in places for file in files_of(place)]

    @functools.wraps(tool)
    async def run(**arguments: Any) -> Any:
        try:
            found: Any = await workers.run(functools.partial(tool, **arguments))
        except Refused as error:
            raise ToolError(error.detail) from error
        except SqlragError as error:
            raise ToolError(told(error, *folders)) from error
        if isinstance(found, tuple):
            text, notices = found
            return "\n\n".join((text, *(f"Note: {without_folders(notice, *folders)}" for notice in notices)))
        if "notices" in found:
            found["notices"] = [without_folders(notice, *folders) for notice in found["notices"]]
        return found

    return run


MOST_BODY_BYTES = 256 * 1024

_BODY_SECONDS = 30.0

# Calls: how many run at once, how many others may wait, and how long each may take.
THREADS = max(2, os.cpu_count() or 2)

WAITING = 200

SECONDS = 30.0


class StrictServer(MCPServer[Any]):
    """A server that refuses unknown arguments and unreadable lines; the SDK would drop them silently.

    ``in_memory`` keeps what it searches in memory there between two calls.
    """

    in_memory: Sequence[object] = ()

    async def list_tools(self) -> list[Tool]:
        """Return the tools whose result is a text: a model pays for the description of each."""
        return [tool for tool in await self.every_tool() if tool.output_schema is None]

    async def every_tool(self) -> list[Tool]:
        """Return all tools; their schemas allow no other arguments."""
        tools = await super().list_tools()
        for tool in tools:
            tool.input_schema["additionalProperties"] = False
        return tools

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """Call a tool."""
        schemas = {tool.name: tool.input_schema for tool in await self.every_tool()}
        known = schemas.get(name, {}).get("properties", {})
        if name in schemas:
            unknown = sorted(arguments.keys() - known.keys())
            if unknown:
                raise ToolError(
                    f"{name} takes no {shortened(', '.join(unknown))}; it takes {', '.join(known) or 'no arguments'}."
                )
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(refusal(name, error.__cause__, arguments, schemas[name])) from error
            raise

    async def run_stdio_async(self) -> None:
        """Serve standard input and output until the client is gone; an error answers a line that is no message."""
        try:
            await self._serve_stdio()
        except BaseException as error:
            if not _is_client_gone(error):
                raise

    async def _serve_stdio(self) -> None:
        server = self._lowlevel_server
        async with stdio_server() as (lines, answers), anyio.create_task_group() as group:
            send, receive = anyio.create_memory_object_stream[SessionMessage | Exception](0)

            async def read() -> None:
                async with lines, send:
                    async for line in lines:
                        if isinstance(line, SessionMessage):
                            await send.send(line)
                        elif (refused := _unreadable(line)) is not None:
                            await answers.send(SessionMessage(refused))

            group.start_soon(read)
            async with receive:
                await server.run(receive, answers, server.create_initialization_options())


def _is_client_gone(error: BaseException) -> bool:
    """Return whether nobody reads the answers any more, as a group of errors of anyio says it."""
    parts: Sequence[BaseException] = getattr(error, "exceptions", ())
    gone = (BrokenPipeError, ConnectionResetError, anyio.BrokenResourceError, anyio.ClosedResourceError)
    return all(map(_is_client_gone, parts)) if parts else isinstance(error, gone)


def _unreadable(error: Exception) -> JSONRPCError | None:
    """Return the answer to a line that the SDK could not read, with its id where it has one; None for a blank line."""
    found = error.errors(include_url=False) if isinstance(error, ValidationError) else []
    # The line itself where it is no JSON for pydantic, else what was read of it.
    is_text = any(one["type"] == "json_invalid" for one in found)
    whole = next((one["input"] for one in found if one["type"] in ("json_invalid", "missing")), None)
    if is_text and not str(whole).strip():
        return None
    code, message = INVALID_REQUEST, "This is not a message of JSON-RPC 2.0."
    if is_text:
        try:
            whole = json.loads(str(whole))
            message = "The message has text that is not Unicode, such as half a surrogate pair."
        except (ValueError, RecursionError):
            code, message = PARSE_ERROR, "This is not JSON."
    given = whole.get("id") if isinstance(whole, dict) else None
    request_id = given if isinstance(given, (str, int)) and not isinstance(given, bool) else None
    if isinstance(request_id, str):
        request_id = without_surrogates(request_id)
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=message))


def guarded_app(server: MCPServer[Any], host: str, names: Sequence[str], key: str | None) -> ASGIApp:
    """Return the HTTP application with the endpoint ``/mcp``.

    It accepts only requests to ``host``, to this machine and to ``names``, that come from no page of another site; and
    only requests with the key, if one is set.

    Raises
    ------
    InputError
        Other machines could reach it, and no key is set.
    """
    if not key and not is_loopback(host):
        raise InputError(f"Other machines that reach {host} could read the file: set a key, or use the host 127.0.0.1.")
    own = [] if host in ("0.0.0.0", "::") else [in_url(host)]  # noqa: S104 - any address
    app: ASGIApp = server.streamable_http_app(
        stateless_http=True,  # no tool needs a session
        json_response=True,
        max_request_body_size=MOST_BODY_BYTES,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # Guard is stricter
    )
    app = AsProblems(BodyInTime(app, seconds=_BODY_SECONDS), most_bytes=lambda _: MOST_BODY_BYTES)
    return RequestIds(Guard(app, hosts=(*own, *names), names=names, key=key))
