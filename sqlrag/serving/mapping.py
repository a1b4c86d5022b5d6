"""The map of the file as the search page draws it: its points as columns, its clusters, and whether all is on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request  # noqa: TC002 - FastAPI looks the names up
from starlette.responses import Response  # noqa: TC002

import sqlrag
from sqlrag.errors import NotFoundError
from sqlrag.serving.calling import PROBLEMS, with_etag
from sqlrag.serving.problems import as_json
from sqlrag.store.schema import read_sql

if TYPE_CHECKING:
    from fastapi import FastAPI

    from sqlrag import Store
    from sqlrag.serving.service import Service

MOST = 20_000
"""As many points are sent: more cannot be told apart on a screen."""


def add_routes(app: FastAPI, service: Service) -> None:
    """Add ``/map``."""

    @app.get("/map", operation_id="map", response_model=None, responses=PROBLEMS)
    async def corpus_map(request: Request) -> Response:
        """Return the map that ``sqlrag map`` drew: points as lists of equal length, clusters, the largest first.

        ``points`` counts all of them; of more than 20,000 a part is sent, always the same. ``missing`` counts the
        chunks, or documents, that were written after the map was drawn. 404: the file has no map.
        """
        content = await service.on_store(request, lambda store: as_json(_map(store)))
        return with_etag(request, content)


def _map(store: Store) -> dict[str, Any]:
    if not isinstance(store, sqlrag.Store):
        raise NotFoundError("A map is drawn in a DuckDB file, and this store is in Postgres.")
    con = store.cursor()
    status = con.execute("SELECT level, points, missing FROM map_status ORDER BY ALL").fetchone()
    if status is None:
        raise NotFoundError(f"{store.path.name} has no map yet. Make one with: sqlrag map {store.path.name}")
    topics = con.execute("SELECT cluster, label, points, x, y FROM topics ORDER BY cluster, label").fetchall()
    rows = con.execute(read_sql("serving/map_points"), {"most": MOST}).fetchall()
    documents = list(dict.fromkeys(row[5:] for row in rows))
    number = {document: place for place, document in enumerate(documents)}
    return {
        **dict(zip(("level", "points", "missing"), status, strict=True)),
        "clusters": [dict(zip(("cluster", "label", "points", "x", "y"), topic, strict=True)) for topic in topics],
        "documents": [dict(zip(("doc_id", "file_name", "title"), document, strict=True)) for document in documents],
        "node_id": [row[0] for row in rows],
        "x": [round(row[1], 4) for row in rows],
        "y": [round(row[2], 4) for row in rows],
        "cluster": [row[3] for row in rows],
        "heading": [row[4] for row in rows],
        "document": [number[row[5:]] for row in rows],
    }
