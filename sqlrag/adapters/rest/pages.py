"""The search page and its routes: facets, passages, the map; and health."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

import sqlrag
from sqlrag import adapters
from sqlrag.adapters.rest.documents import original
from sqlrag.adapters.rest.routes import PROBLEMS, typed, with_etag
from sqlrag.adapters.rest.schemas import request_model
from sqlrag.adapters.server import Refused, as_json
from sqlrag.engines.duckdb.rows import counted_names, metadata_fields_of
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.errors import InputError, NotFoundError, SqlragError
from sqlrag.links import is_markdown
from sqlrag.ranking.results import exact
from sqlrag.telemetry import current_request

if TYPE_CHECKING:
    from fastapi import FastAPI

    from sqlrag import Store
    from sqlrag.adapters.rest.state import Service

logger = logging.getLogger(__name__)

PAGE = Path(__file__).parent / "page"

STATIC = ("/", "/health", "/docs", "/page/", "/swagger/")

"""What tells nothing of the file, and is read without the key."""

MOST_NAMES = 500

"""The most collections, tags and metadata fields that are listed: those with most chunks."""

MOST_VALUES = 50

"""The most values of a metadata field that are listed: the commonest."""


def add_facets(app: FastAPI, service: Service) -> None:
    """Add ``/facets``, ``/passage`` and ``/snippets``."""

    @app.get("/facets", operation_id="facets", response_model=None, responses=PROBLEMS)
    async def facets(
        request: Request,
        metadata_fields: Annotated[bool, Query(description="Whether the metadata fields are wanted.")] = False,
    ) -> Response:
        """Return the collections and tags of the file with their numbers of chunks, the largest first.

        `row_sources` are the tables whose rows are documents: their columns with their types, the least and greatest
        of numbers and times, and how many rows have which text or truth value. `metadata_fields`, which takes a look
        at every chunk and comes on demand, are what `metadata` filters by: the kind of a field (string, number,
        boolean, array), its numbers of chunks, the bounds of numbers, and the commonest values.
        """

        def read(store: Store) -> bytes:
            more = (
                {"metadata_fields": metadata_fields_of(store.select, MOST_NAMES, MOST_VALUES)}
                if metadata_fields
                else {}
            )
            return as_json(_facets(store, service) | more)

        content = await service.on_store(request, read)
        return with_etag(request, content)

    @app.get("/passage", operation_id="passage", response_model=None, responses=PROBLEMS)
    async def passage(request: Request, node_id: Annotated[str, Query(description="The id of a chunk.")]) -> Response:
        """Return the place of a chunk in its document: its spans in characters, empty if unknown, and its page.

        `body_start` is where the text of Markdown begins, behind its front matter; null in what is no Markdown.
        `original`: whether `/originals` has the document. `links`: the links of its document to others of the file,
        by their URLs, with the chunks that they lead to.
        """
        content = await service.on_store(request, lambda store: as_json(_passage(store, node_id)))
        return with_etag(request, content)

    async def snippets(request: Request, body: Any) -> Response:
        def read(store: Store) -> bytes:
            found = store.snippets(body.query_text, body.node_ids, syntax=body.syntax)
            return as_json({"snippets": [{"text": text, "spans": spans} for text, spans in found]})

        return Response(await service.on_store(request, read), media_type="application/json")

    method = sqlrag.Store.snippets
    app.add_api_route(
        "/snippets",
        typed(snippets, request_model(method, without=("self",), instead={}, options=service.options), _ASKED),
        methods=["POST"],
        operation_id="snippets",
        description=adapters.without_roles(adapters.lead(method)),
        response_model=None,
        responses=PROBLEMS,
    )


_ASKED = {"query_text": "How do I filter by tag?", "node_ids": ["guides/filters.md#0"]}


def _facets(store: Store, service: Service) -> dict[str, Any]:
    def listed(kind: str) -> list[dict[str, Any]]:
        found = counted_names(store.select, kind, MOST_NAMES, files=len(store.paths))
        return [{"name": one["name"], "chunks": one["chunks"]} for one in found]

    return {
        "name": service.shared_store.name,
        "databases": list(service.names),
        "chat_model": service.options.chat_model,
        "write": service.options.write,
        "collections": listed("collections"),
        "tags": listed("tags"),
        "row_sources": exact(store.row_sources()),
    }


def _passage(store: Store, node_id: str) -> dict[str, Any]:
    found = store.select("serving/passage", node_id=node_id)
    if not found:
        raise NotFoundError(f"The file has no chunk {node_id!r}.")
    start, end, page, mime, body_start, checksum = found[0]
    return {
        "node_id": node_id,
        "spans": [] if start is None else [[start, end]],
        "page": page,
        "body_start": body_start if is_markdown(mime) else None,
        "original": original(store, checksum or "") is not None,
        "links": [{"url": url, "node_id": target} for url, target in store.select("serving/links", node_id=node_id)],
    }


MOST_POINTS = 20_000

"""The most points that are sent: more cannot be distinguished on a screen."""


def add_map(app: FastAPI, service: Service) -> None:
    """Add ``/map``."""

    @app.get("/map", operation_id="map", response_model=None, responses=PROBLEMS)
    async def corpus_map(request: Request) -> Response:
        """Return the map that ``sqlrag map`` drew: points as lists of equal length, clusters, the largest first.

        ``points`` counts all of them; of more than 20,000 a fixed sample is sent. ``missing`` counts the
        chunks, or documents, that were written after the map was drawn. 404: the file has no map.
        """
        content = await service.on_store(request, lambda store: as_json(_map(store)))
        return with_etag(request, content)


def _map(store: Store) -> dict[str, Any]:
    try:
        con = store.cursor()
    except InputError as error:
        raise NotFoundError(f"There is no map: {error}") from error
    status = con.execute("SELECT level, points, missing FROM map_status ORDER BY ALL").fetchone()
    if status is None:
        raise NotFoundError(f"{store.path.name} has no map yet. Draw one with: sqlrag map {store.path.name}")
    topics = con.execute("SELECT cluster, label, points, x, y FROM topics ORDER BY cluster, label").fetchall()
    rows = con.execute(read_sql("serving/map_points"), {"most": MOST_POINTS}).fetchall()
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


def add_routes(app: FastAPI, service: Service) -> None:
    """Add ``/``, ``/docs``, what they consist of, and ``/health``."""
    add_facets(app, service)
    add_map(app, service)

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html", media_type="text/html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> FileResponse:
        return FileResponse(PAGE / "docs.html", media_type="text/html")

    app.mount("/page", StaticFiles(directory=PAGE), name="page")
    # Swagger UI is in that package; its own pages have scripts inside of them.
    app.mount("/swagger", StaticFiles(packages=[("fastapi_offline", "static")]), name="swagger")
    add_health(app, service)


def add_health(app: FastAPI, *services: Service) -> None:
    """Add ``/health``."""

    @app.get("/health", operation_id="health", response_model=None, responses={503: PROBLEMS[503]})
    async def health(request: Request) -> Response:
        """Return 200 if the file answers a query, else 503."""

        def probe(store: Store) -> bytes:
            store.select("serving/alive")
            return as_json({"status": "ok"})

        try:
            for service in services:
                content = await service.probe(request, probe)
        except SqlragError as error:
            # This route needs no key, so the path of the file goes to the log only.
            logger.warning("[%s] %s: %s", current_request(), type(error).__name__, error)
            raise Refused(503, "The file cannot be used; see the log of the server.") from error
        return Response(content, media_type="application/json", headers={"Cache-Control": "no-store"})
