"""What the search page offers to choose from: the collections and tags of the file, and whether there are answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request  # noqa: TC002 - FastAPI looks the names up
from starlette.responses import Response  # noqa: TC002

from sqlrag.serving.calling import PROBLEMS, with_etag
from sqlrag.serving.problems import as_json
from sqlrag.store.facets import counted_names

if TYPE_CHECKING:
    from fastapi import FastAPI

    from sqlrag import Store
    from sqlrag.serving.service import Service

MOST = 500
"""As many collections, and as many tags, are listed: those with most chunks."""


def add_routes(app: FastAPI, service: Service) -> None:
    """Add ``/facets``."""

    @app.get("/facets", operation_id="facets", response_model=None, responses=PROBLEMS)
    async def facets(request: Request) -> Response:
        """Return the collections and tags of the file with how many chunks are in each, the most first."""
        content = await service.on_store(request, lambda store: as_json(_facets(store, service)))
        return with_etag(request, content)


def _facets(store: Store, service: Service) -> dict[str, Any]:
    con = store.cursor()

    def listed(kind: str) -> list[dict[str, Any]]:
        return [{"name": one["name"], "chunks": one["chunks"]} for one in counted_names(con, kind, MOST)]

    return {
        "name": store.path.name,
        "chat_model": service.options.chat_model,
        "collections": listed("collections"),
        "tags": listed("tags"),
    }
