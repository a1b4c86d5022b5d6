"""What the search page asks for beside searches: what can be chosen from, and where a passage stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query
from starlette.requests import Request  # noqa: TC002 - FastAPI looks the names up
from starlette.responses import Response  # noqa: TC002

from sqlrag.errors import NotFoundError
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
    """Add ``/facets`` and ``/passage``."""

    @app.get("/facets", operation_id="facets", response_model=None, responses=PROBLEMS)
    async def facets(request: Request) -> Response:
        """Return the collections and tags of the file with how many chunks are in each, the most first."""
        content = await service.on_store(request, lambda store: as_json(_facets(store, service)))
        return with_etag(request, content)

    @app.get("/passage", operation_id="passage", response_model=None, responses=PROBLEMS)
    async def passage(request: Request, node_id: Annotated[str, Query(description="The id of a chunk.")]) -> Response:
        """Return where a chunk stands in its document: its spans in characters, none if that is not known, its page."""
        content = await service.on_store(request, lambda store: as_json(_passage(store, node_id)))
        return with_etag(request, content)


def _facets(store: Store, service: Service) -> dict[str, Any]:
    def listed(kind: str) -> list[dict[str, Any]]:
        return [{"name": one["name"], "chunks": one["chunks"]} for one in counted_names(store.select, kind, MOST)]

    return {
        "name": service.lender.name,
        "chat_model": service.options.chat_model,
        "collections": listed("collections"),
        "tags": listed("tags"),
    }


def _passage(store: Store, node_id: str) -> dict[str, Any]:
    found = store.select("serving/passage", node_id=node_id)
    if not found:
        raise NotFoundError(f"The file has no chunk {node_id!r}.")
    start, end, page = found[0]
    return {"node_id": node_id, "spans": [] if start is None else [[start, end]], "page": page}
