"""REST: a FastAPI application with a route for each public function, for one or several stores (extra ``rest``)."""

from __future__ import annotations

import re
import tempfile
import weakref
from collections.abc import Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import sqlrag
from sqlrag.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from sqlrag.search.open import AnyStores

try:
    import python_multipart  # noqa: F401 - FastAPI needs it for forms
    from fastapi import Depends, FastAPI
    from starlette.middleware import Middleware
    from starlette.middleware.body_limit import RequestBodyLimitMiddleware
    from starlette.responses import RedirectResponse

    from sqlrag.adapters.rest import documents, middleware, pages, problems, routes
    from sqlrag.adapters.rest.config import ServerOptions
    from sqlrag.adapters.rest.state import Service
    from sqlrag.adapters.server import AsProblems, BodyInTime, Guard, RequestIds, check_db_names
    from sqlrag.network import to_origin_form
except ImportError as error:
    raise MissingExtraError("The REST server", "rest") from error


class _Application(FastAPI):
    def build_middleware_stack(self) -> ASGIApp:
        # Outside of all, as an error that was not expected is answered outside of the other middleware.
        return RequestIds(middleware.AccessLog(super().build_middleware_stack()))


def create_app(db_path: AnyStores | Mapping[str, AnyStores], options: ServerOptions | None = None) -> FastAPI:
    """Return the application that serves a file over HTTP; any ASGI server can run it, as ``sqlrag serve`` does.

    Parameters
    ----------
    db_path
        The file or files, as in :func:`sqlrag.hybrid_query`. A file is opened when the application starts, and closed
        while it is idle; an open store stays open. Or several by their names, each served below ``/db/NAME/`` as if
        it were alone, with threads, limits and a model of its own; ``/`` leads to the first, ``/health`` is that of
        all.
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
        An option is wrong, or a name is not 1 to 64 letters, digits, dots, dashes and underscores.

    Examples
    --------
    >>> app = create_app("kb.duckdb", ServerOptions(api_key="a-long-secret-word"))
    >>> app.title
    'sqlrag'
    """
    options = options or ServerOptions()
    if not isinstance(db_path, Mapping):
        return _app(_Application, db_path, options)
    check_db_names(db_path)
    return _several({name: _app(FastAPI, where, options, tuple(db_path)) for name, where in db_path.items()}, options)


def _app(kind: type[FastAPI], db_path: AnyStores, options: ServerOptions, names: Sequence[str] = ()) -> FastAPI:
    """Return the application of one store; ``names`` are those of all that the server has."""
    service = Service(db_path, options, names)
    metrics = middleware.Metrics(service)
    app = kind(
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
            _guard(options, pages.STATIC),
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


def _guard(options: ServerOptions, static: Sequence[str]) -> Middleware:
    return Middleware(
        Guard, hosts=options.hosts, names=options.hosts, key=options.api_key, static=static, cors=options.cors
    )


def _several(apps: dict[str, FastAPI], options: ServerOptions) -> FastAPI:
    """Return an application that has others below ``/db/NAME/``."""
    services: list[Service] = [app.state.service for app in apps.values()]

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for service in services:
                await stack.enter_async_context(service.running())
            yield

    home = _Application(
        openapi_url=None,
        lifespan=running,
        middleware=[
            Middleware(_Below, apps=apps),
            Middleware(middleware.SafeHeaders),
            _guard(options, ("/", "/health")),
            Middleware(middleware.Head),
            Middleware(AsProblems, most_bytes=lambda _: options.max_body_bytes),
        ],
    )
    problems.install(home, names=tuple(apps))
    pages.add_health(home, *(weakref.proxy(service) for service in services))

    @home.get("/")
    async def first() -> RedirectResponse:
        return RedirectResponse(f"db/{next(iter(apps))}/")  # relative, for a proxy that has it below a path

    return home


class _Below:
    """Leads requests for ``/db/NAME/…`` to the application of that name, for which they begin after the name."""

    def __init__(self, app: ASGIApp, *, apps: Mapping[str, ASGIApp]) -> None:
        self.app = app
        self.apps = apps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        to_origin_form(scope)
        found = re.fullmatch("/db/([^/]+)(/.*)?", scope.get("path", ""), re.DOTALL)
        if found is None or found[1] not in self.apps:
            await self.app(scope, receive, send)
        elif found[2] is None:
            await RedirectResponse(f"{found[1]}/")(scope, receive, send)
        else:
            await self.apps[found[1]]({**scope, "path": found[2]}, receive, send)
