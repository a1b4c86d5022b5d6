"""The search page, its files, and whether the server is well."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from sqlrag.errors import SqlragError
from sqlrag.serving import facets, mapping
from sqlrag.serving.calling import PROBLEMS
from sqlrag.serving.problems import as_json
from sqlrag.serving.refusing import Refused

if TYPE_CHECKING:
    from fastapi import FastAPI

    from sqlrag import Store
    from sqlrag.serving.service import Service

logger = logging.getLogger(__name__)
PAGE = Path(__file__).parent / "page"


def add_routes(app: FastAPI, service: Service) -> None:
    """Add ``/``, ``/page/…`` and ``/health``."""
    facets.add_routes(app, service)
    mapping.add_routes(app, service)

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html", media_type="text/html")

    app.mount("/page", StaticFiles(directory=PAGE), name="page")

    @app.get("/health", operation_id="health", response_model=None, responses={503: PROBLEMS[503]})
    async def health(request: Request) -> Response:
        """Return 200 where the file answers a query, else 503."""

        def look(store: Store) -> bytes:
            store.select("serving/alive")
            return as_json({"status": "ok"})

        try:
            content = await service.looking(request, look)
        except (SqlragError, duckdb.Error) as error:
            # Whoever asks needs no key, so where the file lies is for the log.
            logger.warning("%s: %s", type(error).__name__, error)
            raise Refused(503, "The file cannot be used; the log of the server says why.") from error
        return Response(content, media_type="application/json", headers={"Cache-Control": "no-store"})
