"""The documents of the file: listed, read, uploaded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import File, Form, Query, UploadFile
from pydantic import create_model
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import Response

import sqlrag
from sqlrag.options import shortened
from sqlrag.serving.calling import PROBLEMS, refuse_to_change, with_etag
from sqlrag.serving.problems import as_json
from sqlrag.serving.refusing import Refused
from sqlrag.serving.schemas import Plain, model_of, to_plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fastapi import FastAPI

    from sqlrag import Store
    from sqlrag.serving.service import Service

# The columns of sql/serving/documents.sql, in their order.
_FIELDS: dict[str, Any] = {
    "doc_id": str,
    "file_name": str,
    "collection": str,
    "mime": str | None,
    "chunks": int,
    "characters": int,
    "pages_with_text": int,
    "tags": list[str],
    "metadata": dict[str, Any],
    "size_bytes": int | None,
    "checksum": str | None,
    "modified_at": str | None,
}
_KINDS: dict[str, Any] = {name: (kind, ...) for name, kind in _FIELDS.items()}
_Listed = create_model("ListedDocument", __base__=Plain, **_KINDS)
_Page = create_model("DocumentsPage", __base__=Plain, documents=(list[_Listed], ...), next=(str | None, ...))  # type: ignore[valid-type]
_Whole = create_model("WholeDocument", __base__=_Listed, text=(str, ...))


def add_routes(app: FastAPI, service: Service) -> None:
    """Add ``/documents``."""
    _add_list(app, service)
    _add_get(app, service)
    _add_upload(app, service)


def _add_list(app: FastAPI, service: Service) -> None:
    @app.get(
        "/documents", operation_id="list_documents", response_model=None, responses={200: {"model": _Page}, **PROBLEMS}
    )
    async def list_documents(
        request: Request,
        collection: Annotated[str | None, Query(description="Only those of this collection.")] = None,
        after: Annotated[str, Query(description="Begin after this `doc_id`: `next` of the page before.")] = "",
        limit: Annotated[int, Query(ge=1, le=1000, description="How many on a page.")] = 100,
    ) -> Response:
        """List the documents of the file by their `doc_id`, page by page."""

        def work(store: Store) -> bytes:
            rows = _rows(store, after=after, collection=collection, most=limit + 1)
            more = rows[limit - 1]["doc_id"] if len(rows) > limit else None
            return as_json({"documents": rows[:limit], "next": more})

        return with_etag(request, await service.on_store(request, work))


def _add_get(app: FastAPI, service: Service) -> None:
    @app.get(
        "/documents/{doc_id:path}",
        operation_id="get_document",
        response_model=None,
        responses={200: {"model": _Whole}, 304: {"description": "It is as `If-None-Match` says."}, **PROBLEMS},
    )
    async def get_document(request: Request, doc_id: str) -> Response:
        """Return a document: its whole text, its metadata and its checksum."""

        def work(store: Store) -> bytes:
            rows = _rows(store, doc_id=doc_id)
            source = store.sources([doc_id]).get(doc_id)
            if not rows or source is None:
                raise sqlrag.NotFoundError(f"The file has no document {doc_id!r}.")
            return as_json({**rows[0], "text": source["text"]})

        return with_etag(request, await service.on_store(request, work))


def _add_upload(app: FastAPI, service: Service) -> None:
    options = service.options

    @app.post(
        "/documents",
        operation_id="add_documents",
        response_model=None,
        responses={200: {"model": model_of(sqlrag.UpdateReport)}, **PROBLEMS},
        max_body_size=options.max_upload_bytes,
        form_limits={"max_files": 1000, "max_fields": 1000},
    )
    async def add_documents(
        request: Request,
        files: Annotated[list[UploadFile], File(description="The documents; the name of each is its `doc_id`.")],
        doc_ids: Annotated[list[str] | None, Form(description="Other names, one for each file.")] = None,
        collection: Annotated[str, Form(description="The collection that they go to.")] = "default",
    ) -> Response:
        """Put documents into the file: new ones are added, those of the same name replaced.

        The suffix of a name (.md, .markdown, .txt, .pdf) says what the document is, and its content has to agree. One
        that cannot be used is in `failures` and stops no other. The same bytes again cost no embedding.
        """
        refuse_to_change(options)
        _refuse_other_fields(await request.form())
        given = {name: await file.read() for name, file in zip(_names_of(files, doc_ids), files, strict=True)}

        def work(store: Store) -> bytes:
            report = sqlrag.add_documents(
                given,
                store.path,
                collection=collection,
                max_bytes=options.max_upload_bytes,
                embedder=store.loaded_embedder,
            )
            return as_json(to_plain(report))

        content = await service.changing(request, work)
        return Response(content, media_type="application/json")


def _refuse_other_fields(form: Iterable[str]) -> None:
    known = ("files", "doc_ids", "collection")
    if unknown := sorted(set(form) - set(known)):
        raise Refused(422, f"There is no field {shortened(', '.join(unknown))}; the fields are {', '.join(known)}.")


def _names_of(files: Sequence[UploadFile], doc_ids: Sequence[str] | None) -> Sequence[str]:
    """Return a name for each file, all of them different."""
    names = [file.filename or "" for file in files] if doc_ids is None else doc_ids
    if len(names) != len(files):
        raise Refused(422, f"There are {len(files)} files and {len(names)} doc_ids; each file needs one.")
    if len(set(names)) != len(names):
        raise Refused(422, "Two files have the same name; each document needs one of its own.")
    return names


def _rows(
    store: Store, *, doc_id: str | None = None, after: str = "", collection: str | None = None, most: int = 1
) -> list[dict[str, Any]]:
    found = store.select("serving/documents", doc_id=doc_id, after=after, collection=collection, most=most)
    return [_row(values) for values in found]


def _row(values: tuple[Any, ...]) -> dict[str, Any]:
    row = dict(zip(_FIELDS, values, strict=True))
    return {
        **row,
        "tags": row["tags"] or [],
        "metadata": json.loads(row["metadata"] or "{}"),
        "modified_at": None if row["modified_at"] is None else row["modified_at"].isoformat() + "Z",
    }
