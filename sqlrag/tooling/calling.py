"""Calls of the tools: in threads that are counted, each for so long, and told in words where they fail."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp.server.mcpserver.exceptions import ToolError

from sqlrag.errors import SqlragError
from sqlrag.network import without_folders
from sqlrag.serving.refusing import Refused

if TYPE_CHECKING:
    import os
    from collections.abc import Awaitable, Callable

    from sqlrag.serving.working import Workers


def told(
    tool: Callable[..., Any], db_path: str | os.PathLike[str], workers: Workers
) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Return a tool whose failures the model is told with their remedies, and without the folder of the file."""
    folder = Path(db_path).expanduser().absolute().parent

    @functools.wraps(tool)
    async def run(**arguments: Any) -> dict[str, Any]:
        try:
            found: dict[str, Any] = await workers.run(functools.partial(tool, **arguments))
        except Refused as error:
            raise ToolError(error.detail) from error
        except SqlragError as error:
            raise ToolError(without_folders(str(error), folder)) from error
        if "notices" in found:
            found["notices"] = [without_folders(notice, folder) for notice in found["notices"]]
        return found

    return run
