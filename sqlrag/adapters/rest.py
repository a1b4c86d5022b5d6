"""REST: a FastAPI application with a route for each public function, for one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlrag.errors import MissingExtraError

if TYPE_CHECKING:
    import os

    from fastapi import FastAPI


def create_app(
    db_path: str | os.PathLike[str],
    *,
    write: bool = False,
    api_key: str | None = None,
    chat_model: str | None = None,
    chat_base_url: str | None = None,
    rerank_model: str | None = None,
    input_dir: str | os.PathLike[str] | None = None,
    hosts: tuple[str, ...] = (),
) -> FastAPI:
    """Return the application that serves a file."""
    try:
        from fastapi import FastAPI
        from starlette.middleware import Middleware
    except ImportError as error:
        raise MissingExtraError("The REST server", "rest") from error
    from sqlrag.serving import calling, facets, pages, problems
    from sqlrag.serving.guarding import Guard
    from sqlrag.serving.options import ServerOptions
    from sqlrag.serving.service import Service

    options = ServerOptions(
        write=write,
        api_key=api_key,
        chat_model=chat_model,
        chat_base_url=chat_base_url,
        rerank_model=rerank_model,
        input_dir=None if input_dir is None else Path(input_dir),
        hosts=(*ServerOptions.hosts, *hosts),
    )
    service = Service(db_path, options)
    app = FastAPI(
        title="sqlrag",
        docs_url=None,
        redoc_url=None,
        lifespan=service.running,
        middleware=[Middleware(Guard, api_key=api_key, hosts=options.hosts)],
        max_body_size=options.max_body_bytes,
    )
    problems.install(app)
    calling.add_routes(app, service)
    facets.add_routes(app, service)
    pages.add_routes(app, service)
    return app
