"""REST: a FastAPI application with a route for each public function, for one store. Needs the extra ``rest``."""

from __future__ import annotations

import tempfile
import weakref
from typing import TYPE_CHECKING

import sqlrag
from sqlrag.errors import MissingExtraError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from sqlrag.search.open import AnyStores

try:
    import python_multipart  # noqa: F401 - FastAPI needs it for forms
    from fastapi import Depends, FastAPI
    from starlette.middleware import Middleware
    from starlette.middleware.body_limit import RequestBodyLimitMiddleware

    from sqlrag.adapters.rest import documents, middleware, pages, problems, routes
    from sqlrag.adapters.rest.config import ServerOptions
    from sqlrag.adapters.rest.state import Service
    from sqlrag.adapters.server import AsProblems, BodyInTime, Guard, RequestIds
except ImportError as error:
    raise MissingExtraError("The REST server", "rest") from error


class _Application(FastAPI):
    def build_middleware_stack(self) -> ASGIApp:
        # Outside of all, as an error that was not expected is answered outside of the other middleware.
        return RequestIds(super().build_middleware_stack())


def create_app(db_path: AnyStores, options: ServerOptions | None = None) -> FastAPI:
    """Return the application that serves a file over HTTP; any ASGI server can run it, as ``sqlrag serve`` does.

    Parameters
    ----------
    db_path
        The file or files, as in :func:`sqlrag.hybrid_query`. A file is opened when the application starts, and closed
        while it is idle; an open store stays open.
    options
        Write access, the key, models and limits; see :class:`sqlrag.adapters.rest.config.ServerOptions`.

    Returns
    -------
    FastAPI
        With ``POST /NAME`` for each public function that a server can provide, and the search page at ``/``.

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
    metrics = middleware.Metrics(service)
    app = _Application(
        title="sqlrag",
        version=sqlrag.__version__,
        description="Hybrid search over one file.",
        docs_url=None,  # their scripts come from other servers
        redoc_url=None,
        lifespan=service.running,
        dependencies=[Depends(middleware.refuse_unknown_parameters)],
        middleware=[
            Middleware(middleware.Counting, metrics=metrics),
            Middleware(middleware.SafeHeaders),
            *([Middleware(middleware.Cors, origins=options.cors)] if options.cors else []),
            Middleware(
                Guard,
                hosts=options.hosts,
                names=options.hosts,
                key=options.api_key,
                static=pages.STATIC,
                cors=options.cors,
            ),
            Middleware(BodyInTime, seconds=options.seconds),
            Middleware(middleware.Head),
            Middleware(AsProblems, most_bytes=documents.largest_body(options)),
            Middleware(RequestBodyLimitMiddleware, max_body_size=options.max_body_bytes),
        ],
    )
    # FastAPI keeps the functions of routes for as long as the process runs; the application alone keeps the store.
    app.state.service, app.state.metrics = service, metrics
    service, metrics = weakref.proxy(service), weakref.proxy(metrics)
    app.router.route_class = middleware.route_class(service)
    folders = [options.input_dir] if options.input_dir is not None else []
    problems.install(app, *service.shared_store.folders, tempfile.gettempdir(), *folders)
    routes.add_routes(app, service)
    routes.add_route(app, service)
    documents.add_routes(app, service)
    documents.add_exports(app, service)
    middleware.add_route(app, metrics)
    pages.add_routes(app, service)
    return app
