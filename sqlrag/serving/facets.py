"""What the search page offers to choose from: the collections and tags of the file, and whether there are answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request  # noqa: TC002 - FastAPI looks the names up
from starlette.responses import Response  # noqa: TC002

from sqlrag.serving.calling import PROBLEMS, with_etag
from sqlrag.serving.problems import as_json

if TYPE_CHECKING:
    from fastapi import FastAPI

    from sqlrag import Store
    from sqlrag.serving.service import Service

MOST = 500
"""As many collections, and as many tags, are listed: those with most chunks."""

_COLLECTIONS = """
SELECT collection AS name, count(*) AS chunks FROM documents GROUP BY name ORDER BY chunks DESC, name LIMIT $most
"""
_TAGS = """
SELECT name, count(*) AS chunks FROM (SELECT unnest(list_distinct(tags)) AS name FROM documents)
GROUP BY name ORDER BY chunks DESC, name LIMIT $most
"""


def add_routes(app: FastAPI, service: Service) -> None:
    """Add ``/facets``."""

    @app.get("/facets", operation_id="facets", response_model=None, responses=PROBLEMS)
    async def facets(request: Request) -> Response:
        """Return the collections and tags of the file with how many chunks are in each, the most first."""
        content = await service.on_store(request, lambda store: as_json(_facets(store, service)))
        return with_etag(request, content)


def _facets(store: Store, service: Service) -> dict[str, Any]:
    con = store.cursor()

    def listed(sql: str) -> list[dict[str, Any]]:
        return [{"name": name, "chunks": chunks} for name, chunks in con.execute(sql, {"most": MOST}).fetchall()]

    return {
        "name": store.path.name,
        "chat_model": service.options.chat_model,
        "collections": listed(_COLLECTIONS),
        "tags": listed(_TAGS),
    }
