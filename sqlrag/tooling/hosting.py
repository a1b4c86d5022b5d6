"""A server of the MCP SDK that refuses unknown arguments, and its application for HTTP behind checks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import ValidationError

from sqlrag.errors import InputError
from sqlrag.network import LOOPBACK, in_url, is_loopback
from sqlrag.options import shortened
from sqlrag.serving.limiting import BodyInTime
from sqlrag.tooling.describing import refusal
from sqlrag.tooling.guarding import HostGuard, KeyGuard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcp_types import Tool

    from sqlrag.tooling.guarding import App

MOST_BODY_BYTES = 256 * 1024
_BODY_SECONDS = 30.0
# Of calls: how many at once, how many others may wait, and how long each may take.
THREADS = max(2, os.cpu_count() or 2)
WAITING = 200
SECONDS = 30.0


class StrictServer(MCPServer[Any]):
    """A server that refuses arguments which a tool does not take; the SDK would drop them in silence."""

    async def list_tools(self) -> list[Tool]:
        """Return the tools, whose schemas say that they take no other arguments."""
        tools = await super().list_tools()
        for tool in tools:
            tool.input_schema["additionalProperties"] = False
        return tools

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """Call a tool."""
        schemas = {tool.name: tool.input_schema for tool in await self.list_tools()}
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
                raise ToolError(refusal(name, error.__cause__, known)) from error
            raise


def guarded_app(server: MCPServer[Any], host: str, names: Sequence[str], key: str | None) -> App:
    """Return the application for HTTP, with its end point ``/mcp``.

    It answers requests to ``host``, to this machine and to ``names`` alone, by which it keeps pages of other sites from
    reading the file through a browser (DNS rebinding); and those with the key, where there is one.

    Raises
    ------
    InputError
        Others than this machine could call it, and there is no key.
    """
    if not key and not is_loopback(host):
        raise InputError(f"Whoever reaches {host} could read the file: a key is needed for any host but 127.0.0.1.")
    own = [] if host in ("0.0.0.0", "::") else [in_url(host)]  # noqa: S104 - any address
    app: App = server.streamable_http_app(
        stateless_http=True,  # no tool needs a session, so that none has to be kept
        json_response=True,
        max_request_body_size=MOST_BODY_BYTES,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # HostGuard is stricter
    )
    app = HostGuard(BodyInTime(app, seconds=_BODY_SECONDS), (*LOOPBACK, *own, *names))
    return KeyGuard(app, key) if key else app
