"""``sqlrag mcp``."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from sqlrag.console.app import command, logging_to_stderr
from sqlrag.console.changing import one_file
from sqlrag.console.options import DbInstead, File, option
from sqlrag.console.printing import tell
from sqlrag.errors import InputError
from sqlrag.network import is_url, without_password


@command("mcp", "Serve the file to language models (MCP).", "sqlrag mcp kb.duckdb")
def mcp(
    file: File = None,
    db: DbInstead = None,
    http: Annotated[bool, option("--http", help="Over HTTP, at /mcp, instead of standard input and output.")] = False,
    host: Annotated[str, option("--host", help="The address to listen at.", show_default=True)] = "127.0.0.1",
    port: Annotated[int, option("--port", min=0, max=65535, help="0 is any that is free.", show_default=True)] = 8766,
    api_key_env: Annotated[
        str | None, option("--api-key-env", metavar="NAME", help="The environment variable that holds the key.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        option("--allow-host", metavar="NAME", help="A name by which clients reach this machine. Repeatable."),
    ] = None,
) -> None:
    """Serve the file to language models by the Model Context Protocol, until the client goes or Ctrl-C.

    The tools are hybrid_query, get_source_documents, answer_sources and corpus_info; all of them only read. Each call
    opens the file and closes it again, so that it can be updated meanwhile. Needs the extra "mcp".
    """
    from sqlrag.adapters.mcp import create_app, create_server
    from sqlrag.serving.running import run

    path = one_file(file, db)
    if not is_url(path) and not path.exists():
        tell(f"note: {path} does not exist; calls fail until it does.")
    if not http:
        _check_unused(host=host != "127.0.0.1", port=port != 8766, api_key_env=api_key_env, allow_host=allow_host)
        with logging_to_stderr():
            # Standard output is the protocol's alone; the SDK sends whatever else is written there to standard error.
            create_server(path).run("stdio")
        return
    app = create_app(path, host=host, hosts=allow_host or (), api_key=_key(api_key_env))
    with logging_to_stderr():
        run(
            app,
            host,
            port,
            started=lambda url: tell(f"{without_password(str(path))} is served at {url}/mcp. End with Ctrl-C."),
        )


def _check_unused(**given: object) -> None:
    names = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if names:
        raise typer.BadParameter(f"{', '.join(names)} needs --http: nothing listens at an address without it.")


def _key(variable: str | None) -> str | None:
    """Return the key that an environment variable holds."""
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise InputError(f"The environment variable {variable} is to hold the key, and is empty or not set.")
    return key
