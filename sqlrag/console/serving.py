"""``sqlrag serve``."""

from __future__ import annotations

import os
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

from sqlrag.console.app import command, logging_to_stderr
from sqlrag.console.changing import one_file
from sqlrag.console.options import DbInstead, File, option
from sqlrag.console.printing import tell, write
from sqlrag.errors import InputError, MissingExtraError
from sqlrag.network import is_loopback


@command(
    "serve",
    "Serve a file over HTTP, with a search page.",
    "sqlrag serve kb.duckdb",
    "sqlrag serve kb.duckdb --chat-model llama3.2 --chat-base-url http://localhost:11434/v1",
)
def serve(
    file: File = None,
    db: DbInstead = None,
    host: Annotated[str, option("--host", help="Where to listen.", show_default=True)] = "127.0.0.1",
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
        option("--allow-host", metavar="NAME", help='A name that this server goes by, "*" for any. Repeatable.'),
    ] = None,
    chat_model: Annotated[
        str | None,
        option("--chat-model", metavar="NAME", envvar="SQLRAG_CHAT_MODEL", help="Answers questions at /answer."),
    ] = None,
    chat_base_url: Annotated[
        str | None,
        option("--chat-base-url", metavar="URL", envvar="OPENAI_BASE_URL", help="The model's server. [OpenAI]"),
    ] = None,
    rerank: Annotated[
        str | None, option("--rerank", metavar="MODEL", help="The cross-encoder that requests may name.")
    ] = None,
    input_dir: Annotated[
        Path | None,
        option("--input-dir", metavar="FOLDER", exists=True, file_okay=False, help="What /update_embeddings reads."),
    ] = None,
    threads: Annotated[int | None, option("--threads", min=1, max=64, help="Requests at once. [cores]")] = None,
    timeout: Annotated[float, option("--timeout", help="Seconds that a request may take.", show_default=True)] = 30.0,
    max_upload_mb: Annotated[
        int, option("--max-upload-mb", min=1, help="The largest upload, in MB.", show_default=True)
    ] = 64,
) -> None:
    """Serve a file over HTTP until Ctrl-C: REST, and a search page for browsers. Needs the extra "rest"."""
    try:
        from sqlrag.adapters.rest import create_app
        from sqlrag.serving.options import ServerOptions
        from sqlrag.serving.running import run
    except MissingExtraError:
        raise
    except ImportError as error:
        raise MissingExtraError("The REST server", "rest") from error

    path = one_file(file, db)
    key = os.environ.get(api_key_env) or None
    if key is None and api_key_env != "SQLRAG_API_KEY":
        raise InputError(f"The environment variable {api_key_env} is not set, or empty: it should hold the key.")
    is_local = is_loopback(host)
    if key is None and not is_local:
        raise InputError(
            f"At {host} other machines reach this server, so it needs a key: set SQLRAG_API_KEY to 16 or more "
            "characters that nobody guesses, or leave --host at 127.0.0.1."
        )
    # With a key, a page of another site has nothing to send, by whatever name it comes here.
    hosts = tuple(allow_host or ()) or (() if is_local else ("*",))
    given = {} if threads is None else {"threads": threads}
    options = ServerOptions(
        write=can_write,
        api_key=key,
        chat_model=chat_model,
        chat_base_url=chat_base_url,
        rerank_model=rerank,
        input_dir=input_dir,
        hosts=hosts,
        seconds=timeout,
        max_upload_bytes=max_upload_mb * 2**20,
        **given,
    )
    app = create_app(path, options)
    from sqlrag.retrieval.querying import open_store

    with open_store(path) as store:
        tell(f"Serving {store.path}{' for reading and writing' if can_write else ''}; Ctrl-C ends it.")
    with logging_to_stderr():
        run(app, host, port, started=lambda url: write(f"{url}/"))
