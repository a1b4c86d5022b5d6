"""``sqlrag serve`` and ``sqlrag mcp``."""

from __future__ import annotations

import logging
import os
import re
from contextlib import contextmanager
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sqlrag.cli.app import command, logging_to_stderr
from sqlrag.cli.build import named_files
from sqlrag.cli.options import Files, option, place
from sqlrag.cli.printing import write, write_message
from sqlrag.errors import InputError, MissingExtraError, StoreError
from sqlrag.network import is_loopback
from sqlrag.search.open import files_of, name_of, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlrag.search.open import AnyStores


_NAMED = re.compile(r"[\w.-]+=.")

Named = Annotated[
    list[str] | None,
    option(
        "--db",
        metavar="[NAME=]FILE",
        help="The same as FILE; or several, each by a name. Repeatable. [env var: SQLRAG_DB]",
    ),
]


Memory = Annotated[
    int | None,
    option(
        "--memory",
        metavar="MB",
        min=0,
        envvar="SQLRAG_RESIDENT_MB",
        help="Search in memory what takes no more; 0: never. [256]",
    ),
]


@command(
    "serve",
    "Serve a file over HTTP, with a search page.",
    "sqlrag serve kb.duckdb",
    "sqlrag serve --db guides=guides.duckdb --db notes=notes.duckdb",
    "sqlrag serve kb.duckdb --chat-model llama3.2 --chat-base-url http://localhost:11434/v1",
)
def serve(
    file: Files = None,
    db: Named = None,
    host: Annotated[str, option("--host", help="The address to listen at.", show_default=True)] = "127.0.0.1",
    port: Annotated[
        int, option("--port", "-p", min=0, max=65_535, help="0 finds a free one.", show_default=True)
    ] = 8000,
    can_write: Annotated[
        bool, option("--write", help="Let requests change the file; no other process can open it meanwhile.")
    ] = False,
    api_key_env: Annotated[
        str, option("--api-key-env", metavar="NAME", help="Environment variable with the key.", show_default=True)
    ] = "SQLRAG_API_KEY",
    allow_host: Annotated[
        list[str] | None,
        option("--allow-host", metavar="NAME", help='A host name of this server, "*" for any. Repeatable.'),
    ] = None,
    cors: Annotated[
        list[str] | None,
        option("--cors", metavar="ORIGIN", help='Let pages of this origin ask, "*" for any. Repeatable.'),
    ] = None,
    access_log: Annotated[
        str | None,
        option("--access-log", metavar="json|FILE", help="A line of JSON a request, to standard error or a file."),
    ] = None,
    chat_model: Annotated[
        str | None,
        option("--chat-model", metavar="NAME", envvar="SQLRAG_CHAT_MODEL", help="Answers questions at /answer."),
    ] = None,
    chat_base_url: Annotated[
        str | None,
        option(
            "--base-url",
            "--chat-base-url",
            metavar="URL",
            envvar="OPENAI_BASE_URL",
            help="The model's server. [OpenAI]",
        ),
    ] = None,
    rerank: Annotated[
        str | None, option("--rerank", metavar="MODEL", help="The cross-encoder that requests may name.")
    ] = None,
    input_dir: Annotated[
        Path | None,
        option(
            "--input-dir",
            metavar="FOLDER",
            exists=True,
            file_okay=False,
            help="The folder that /update_embeddings reads.",
        ),
    ] = None,
    keep_originals: Annotated[
        bool, option("--keep-originals", help="Keep what is uploaded, in FILE.originals, and offer it on the page.")
    ] = False,
    threads: Annotated[int | None, option("--threads", min=1, max=64, help="Requests at once. [cores]")] = None,
    timeout: Annotated[float, option("--timeout", help="Seconds that a request may take.", show_default=True)] = 30.0,
    max_upload_mb: Annotated[
        int, option("--max-upload-mb", min=1, help="The largest upload, in MB.", show_default=True)
    ] = 64,
    memory: Memory = None,
) -> None:
    """Serve a file over HTTP until Ctrl-C: REST, and a search page for browsers. Needs the extra "rest"."""
    try:
        from sqlrag.adapters.rest import create_app
        from sqlrag.adapters.rest.config import ServerOptions
        from sqlrag.adapters.server import run
    except MissingExtraError:
        raise
    except ImportError as error:
        raise MissingExtraError("The REST server", "rest") from error

    path = _stores(file, db)
    key = os.environ.get(api_key_env) or None
    if key is None and api_key_env != "SQLRAG_API_KEY":
        raise InputError(f"The environment variable {api_key_env} is not set or is empty. Set it to the key.")
    is_local = is_loopback(host)
    if key is None and not is_local:
        raise InputError(
            f"At {host} other machines can reach this server, so it needs a key: set SQLRAG_API_KEY to 16 or more "
            "random characters, or leave --host at 127.0.0.1."
        )
    # Pages of other sites do not have the key, so with one any Host header is safe (no DNS rebinding).
    hosts = tuple(allow_host or ()) or (() if is_local else ("*",))
    given = {} if threads is None else {"threads": threads}
    options = ServerOptions(
        write=can_write,
        api_key=key,
        chat_model=chat_model,
        chat_base_url=chat_base_url,
        rerank_model=rerank,
        input_dir=input_dir,
        keep_originals=keep_originals,
        hosts=hosts,
        cors=tuple(cors or ()),
        seconds=timeout,
        max_upload_bytes=max_upload_mb * 2**20,
        resident_mb=memory,
        **given,
    )
    app = create_app(path, options)
    served = []
    for one in path.values() if isinstance(path, dict) else [path]:
        with open_store(one) as store:  # what is wrong with a file is reported before anything listens
            served.append(str(store.path))
            if can_write and isinstance(store.path, Path) and not os.access(store.path, os.W_OK):
                raise StoreError(
                    store.path,
                    f"{store.path} cannot be opened for writing: permission denied. Give yourself the right to write "
                    "to the file and its folder, or leave out --write.",
                )

    def started(url: str) -> None:
        write_message(f"Serving {', '.join(served)}{' for reading and writing' if can_write else ''}; Ctrl-C ends it.")
        write(f"{url}/")

    with logging_to_stderr(), _access_log(access_log):
        run(app, host, port, started=started)


def _stores(files: list[Path] | None, named: list[str] | None) -> AnyStores | dict[str, AnyStores]:
    """Return the file, several to be searched as one, or those that NAME=FILE names by their names."""
    pairs = (
        []
        if files
        else [one.partition("=")[::2] for one in named or () if _NAMED.match(one) and not Path(one).exists()]
    )
    if not pairs:
        return named_files(files, [place(one) for one in named] if named else None)  # type: ignore[no-any-return]
    if len(dict(pairs)) < len(named or ()):
        raise typer.BadParameter("With --db NAME=FILE each file needs a name of its own.")
    return {name: place(path) for name, path in pairs}


@contextmanager
def _access_log(where: str | None) -> Iterator[None]:
    """Write a line for each request to a file, which may be rotated, or with "json" or "-" to standard error."""
    if where is None:
        yield
        return
    try:
        handler = logging.StreamHandler() if where in ("json", "-") else WatchedFileHandler(where, encoding="utf-8")
    except OSError as error:
        raise InputError(f"The access log {where} cannot be written: {error.strerror}.") from error
    log = logging.getLogger("sqlrag.access")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        handler.close()


@command("mcp", "Serve the file to language models (MCP).", "sqlrag mcp kb.duckdb")
def mcp(
    file: Files = None,
    db: Named = None,
    http: Annotated[bool, option("--http", help="Over HTTP, at /mcp, instead of standard input and output.")] = False,
    host: Annotated[str, option("--host", help="The address to listen at.", show_default=True)] = "127.0.0.1",
    port: Annotated[int, option("--port", min=0, max=65535, help="0 is any that is free.", show_default=True)] = 8766,
    api_key_env: Annotated[
        str | None, option("--api-key-env", metavar="NAME", help="The environment variable that holds the key.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        option("--allow-host", metavar="NAME", help="A host name of this server. Repeatable."),
    ] = None,
    memory: Memory = None,
) -> None:
    """Serve the file to language models by the Model Context Protocol, until the client disconnects or Ctrl-C.

    The tools are search, read, sources and ask; all are read-only. Each call opens and closes the file, so that it can
    be updated meanwhile. Needs the extra "mcp".
    """
    from sqlrag.adapters.mcp import create_app, create_server
    from sqlrag.adapters.server import run
    from sqlrag.engines.resident.follow import stop_reading

    path = _stores(file, db)
    stores = path if isinstance(path, dict) else {name_of(path): path}
    for missing in (one for store in stores.values() for one in files_of(store) if not one.exists()):
        write_message(f"note: {missing} does not exist; calls fail until it does.")
    if not http:
        _check_unused(host=host != "127.0.0.1", port=port != 8766, api_key_env=api_key_env, allow_host=allow_host)
        with logging_to_stderr():
            # Standard output belongs to the protocol; the SDK redirects other output to standard error.
            try:
                create_server(path, resident_mb=memory).run("stdio")
            finally:
                stop_reading()
        return
    app = create_app(path, host=host, hosts=allow_host or (), api_key=_key(api_key_env), resident_mb=memory)
    with logging_to_stderr():
        try:
            run(
                app,
                host,
                port,
                started=lambda url: write_message(f"{', '.join(stores)} is served at {url}/mcp. End with Ctrl-C."),
            )
        finally:
            stop_reading()


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
        raise InputError(f"The environment variable {variable} is not set or is empty. Set it to the key.")
    return key
