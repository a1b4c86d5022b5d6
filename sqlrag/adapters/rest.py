"""REST: a FastAPI application with a route for each public function, for one file. Needs the extra ``rest``."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import sqlrag
from sqlrag.errors import MissingExtraError

try:
    import python_multipart  # noqa: F401 - FastAPI asks for it where a form is declared
    from fastapi import Depends, FastAPI
    from starlette.middleware import Middleware
    from starlette.middleware.body_limit import RequestBodyLimitMiddleware

    from sqlrag.serving import answering, asking, bodies, calling, counting, documents, downloading, pages, problems
    from sqlrag.serving.guarding import Guard
    from sqlrag.serving.limiting import BodyInTime
    from sqlrag.serving.options import ServerOptions
    from sqlrag.serving.service import Service
except ImportError as error:
    raise MissingExtraError("The REST server", "rest") from error

if TYPE_CHECKING:
    import os


def create_app(db_path: str | os.PathLike[str], options: ServerOptions | None = None) -> FastAPI:
    """Return the application that serves a file over HTTP; any ASGI server runs it, ``sqlrag serve`` among them.

    Parameters
    ----------
    db_path
        The file. It is opened when the application starts, and given back whenever nobody has asked for a while.
    options
        Whether it may be changed, the key, models and limits; see :class:`sqlrag.serving.options.ServerOptions`.

    Returns
    -------
    FastAPI
        With ``POST /NAME`` for each public function that a server can offer, and the search page at ``/``.

    Raises
    ------
    MissingExtraError
        At the import: the extra ``rest`` is not installed.
    InputError
        An option is wrong.

    Examples
    --------
    >>> app = create_app("kb.duckdb", ServerOptions(api_key="a-long-secret-word"))
    >>> app.title
    'sqlrag'
    """
    options = options or ServerOptions()
    service = Service(db_path, options)
    requests = counting.Requests()
    app = FastAPI(
        title="sqlrag",
        version=sqlrag.__version__,
        description="Hybrid search over one file.",
        docs_url=None,  # their scripts are on other servers
        redoc_url=None,
        lifespan=service.running,
        dependencies=[Depends(asking.refuse_unknown_parameters)],
        middleware=[
            Middleware(counting.Counting, requests=requests),
            Middleware(Guard, api_key=options.api_key, hosts=options.hosts),
            Middleware(BodyInTime, seconds=options.seconds),
            Middleware(asking.Head),
            Middleware(problems.AsProblems),
            Middleware(RequestBodyLimitMiddleware, max_body_size=options.max_body_bytes),
        ],
    )
    app.router.route_class = bodies.route_class(service)
    folders = [options.input_dir] if options.input_dir is not None else []
    problems.install(app, *service.lender.folders, tempfile.gettempdir(), *folders)
    calling.add_routes(app, service)
    answering.add_route(app, service)
    documents.add_routes(app, service)
    downloading.add_routes(app, service)
    counting.add_route(app, service, requests)
    pages.add_routes(app, service)
    return app
