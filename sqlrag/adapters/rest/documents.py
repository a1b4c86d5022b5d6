"""Routes that list, read and upload documents, and export the store in another format."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import File, Form, Query, UploadFile
from pydantic import create_model
from starlette.background import BackgroundTask
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import FileResponse, Response

import sqlrag
from sqlrag import scratch
from sqlrag.adapters.rest import table
from sqlrag.adapters.rest.routes import PROBLEMS, UNFINISHED, described, refuse_to_change, summary, typed, with_etag
from sqlrag.adapters.rest.schemas import Plain, model_of, request_model, to_plain, to_python
from sqlrag.adapters.server import Refused, as_json
from sqlrag.arguments import nearest, shortened
from sqlrag.engines.duckdb.originals import keep, original_of
from sqlrag.formats.exchange import stored_contents
from sqlrag.formats.ragfile import write_ragfile
from sqlrag.formats.ragmd import write_ragmd
from sqlrag.network import without_folders
from sqlrag.ranking.results import exact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from fastapi import FastAPI
    from starlette.types import Scope

    from sqlrag import Store
    from sqlrag.adapters.rest.config import ServerOptions
    from sqlrag.adapters.rest.state import Service
    from sqlrag.engines.contents import Batch

RAGMD = "application/vnd.rag-markdown"

_BINARY = {"type": "string", "format": "binary"}

_CHOOSING = ("collection", "tags_any", "tags_all", "metadata")

# By function: the suffix, the media types that a client may accept (the first is the default), and the function that
# writes the file.
_EXPORTS = {
    "export_ragmd": (".ragmd", ("text/markdown", RAGMD), write_ragmd),
    "export_ragfile": (".ragfile", ("application/octet-stream",), write_ragfile),
}


def add_exports(app: FastAPI, service: Service) -> None:
    """Add the routes of exports that are one file."""
    for name, (_, types, _) in _EXPORTS.items():
        schema = {"schema": _BINARY}
        app.add_api_route(
            f"/{name}",
            _endpoint(name, service),
            methods=["POST"],
            operation_id=name,
            summary=summary(name),
            description=described(name),
            response_class=FileResponse,
            responses={200: {"content": dict.fromkeys(types, schema)}, **PROBLEMS},
        )


def _without_paths(batch: Batch) -> Batch:
    """Return a batch without the paths of its documents on the server, which are not for clients."""
    place = batch.sources.schema.get_field_index("file_path")
    names = batch.sources["file_name"]
    return batch._replace(sources=batch.sources.set_column(place, batch.sources.schema.field(place), names))


def _endpoint(name: str, service: Service) -> Any:
    function = getattr(sqlrag, name)
    suffix, types, write_file = _EXPORTS[name]

    async def run(request: Request, body: Any) -> FileResponse:
        given = {field: to_python(getattr(body, field)) for field in type(body).model_fields}
        folder = scratch.Folder()
        path = folder.path / f"{service.shared_store.stem}{suffix}"
        abandoned = threading.Event()

        def work(_: Store) -> None:
            chosen = {field: given.pop(field) for field in _CHOOSING}
            try:
                with stored_contents(service.shared_store.place, **chosen) as contents:
                    write_file(replace(contents, batches=map(_without_paths, contents.batches)), path, **given)
            finally:
                if abandoned.is_set():
                    folder.close()

        try:
            await service.on_store(request, work, service.options.answer_seconds)
        except BaseException:
            abandoned.set()
            folder.close()
            raise
        accepted = request.headers.get("accept", "")
        kind = next((one for one in types if one in accepted), types[0])
        return FileResponse(path, media_type=kind, filename=path.name, background=BackgroundTask(folder.close))

    model = request_model(function, without=table.KEPT, instead={}, options=service.options)
    return typed(run, model, {"collection": "default"})


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

# The columns of sql/serving/failures.sql, in their order.
_FAILURE: dict[str, Any] = dict.fromkeys(("doc_id", "status", "reason", "failed_at"), (str, ...))

_Failure = create_model("FailedDocument", __base__=Plain, **_FAILURE)

_Failures = create_model("FailuresPage", __base__=Plain, failures=(list[_Failure], ...), next=(str | None, ...))  # type: ignore[valid-type]

_Whole = create_model("WholeDocument", __base__=_Listed, text=(str, ...), row=(dict[str, Any] | None, None))


def add_routes(app: FastAPI, service: Service) -> None:
    """Add ``/documents``."""
    _add_list(app, service)
    _add_get(app, service)
    _add_failures(app, service)
    _add_upload(app, service)
    _add_original(app, service)


def _add_list(app: FastAPI, service: Service) -> None:
    @app.get(
        "/documents", operation_id="list_documents", response_model=None, responses={200: {"model": _Page}, **PROBLEMS}
    )
    async def list_documents(
        request: Request,
        collection: Annotated[str | None, Query(description="Only documents of this collection.")] = None,
        after: Annotated[str, Query(description="Start after this `doc_id`: `next` of the previous page.")] = "",
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
        responses={200: {"model": _Whole}, 304: {"description": "It has not changed (`If-None-Match`)."}, **PROBLEMS},
    )
    async def get_document(request: Request, doc_id: str) -> Response:
        """Return a document: its whole text, its metadata and its checksum; of a row of a table `row`, its columns.

        In `row`, whole numbers beyond 2^53 - 1, decimals, NaN and infinity are text, dates and times ISO 8601.
        """

        def work(store: Store) -> bytes:
            rows = _rows(store, doc_id=doc_id)
            source = next(iter(store.sources([doc_id]).values()), None)
            if not rows or source is None:
                raise sqlrag.NotFoundError(f"The file has no document {doc_id!r}.")
            row = {"row": exact(source["row"])} if "row" in source else {}
            return as_json({**rows[0], "text": source["text"], **row})

        return with_etag(request, await service.on_store(request, work))


def largest_body(options: ServerOptions) -> Callable[[Scope], int]:
    """Return what gives the largest body of a request, in bytes."""

    def most_bytes(scope: Scope) -> int:
        uploads = (scope["method"], scope["path"]) == ("POST", "/documents")
        return options.max_upload_bytes if uploads else options.max_body_bytes

    return most_bytes


def _add_failures(app: FastAPI, service: Service) -> None:
    @app.get(
        "/failures",
        operation_id="list_failures",
        response_model=None,
        responses={200: {"model": _Failures}, **PROBLEMS},
    )
    async def list_failures(
        request: Request,
        after: Annotated[str, Query(description="Start after this `doc_id`: `next` of the previous page.")] = "",
        limit: Annotated[int, Query(ge=1, le=1000, description="How many on a page.")] = 100,
    ) -> Response:
        """List the documents that could not be used when they were last read or sent, with the reasons, page by page.

        An earlier state of such a document stays in the file, and in `/documents`. A document that is sent again
        without a fault, or is deleted, is listed no more.
        """

        def work(store: Store) -> bytes:
            found = store.select("serving/failures", after=after, most=limit + 1)
            rows = [dict(zip(_FAILURE, values, strict=True)) for values in sorted(found)]
            for row in rows:
                row["reason"] = without_folders(row["reason"], *service.shared_store.folders)
                row["failed_at"] = row["failed_at"].isoformat() + "Z"
            more = rows[limit - 1]["doc_id"] if len(rows) > limit else None
            return as_json({"failures": rows[:limit], "next": more})

        return with_etag(request, await service.on_store(request, work))


def _add_upload(app: FastAPI, service: Service) -> None:
    options = service.options

    @app.post(
        "/documents",
        operation_id="add_documents",
        response_model=None,
        responses={200: {"model": model_of(sqlrag.UpdateReport)}, **PROBLEMS, **UNFINISHED},
        max_body_size=options.max_upload_bytes,
        form_limits={"max_files": 1000, "max_fields": 1000},
    )
    async def add_documents(
        request: Request,
        files: Annotated[list[UploadFile], File(description="The documents; the name of each is its `doc_id`.")],
        doc_ids: Annotated[list[str] | None, Form(description="Other names, one for each file.")] = None,
        collection: Annotated[str, Form(description="The collection of the documents.")] = "default",
        skip_duplicates: Annotated[
            bool, Form(description="Leave out new documents with the bytes of another one of the collection.")
        ] = False,
    ) -> Response:
        """Add documents to the file; those of the same name are replaced.

        The suffix of a name (such as .md, .pdf, .html, .docx) gives its type, and the content must match. A document
        that cannot be used is in `failures` and does not stop the others. Unchanged bytes are not re-embedded.
        If the model fails (502), `report` says which documents are stored; send the others again.
        """
        refuse_to_change(options)
        _refuse_other_fields(await request.form())
        given = {name: await file.read() for name, file in zip(_names_of(files, doc_ids), files, strict=True)}

        def work(store: Store) -> bytes:
            try:
                report = sqlrag.add_documents(
                    given,
                    store.path,
                    collection=collection,
                    max_bytes=options.max_upload_bytes,
                    skip_duplicates=skip_duplicates,
                    embedder=store.loaded_embedder,
                )
            finally:
                if options.keep_originals:  # also of what was stored before a model failed
                    keep(store.cursor(), store.path, given.values())
            return as_json(to_plain(report))

        content = await service.changing(request, work)
        return Response(content, media_type="application/json")


def _add_original(app: FastAPI, service: Service) -> None:
    @app.get(
        "/originals/{doc_id:path}",
        operation_id="get_original",
        response_class=FileResponse,
        responses={200: {"content": {"application/octet-stream": {"schema": _BINARY}}}, **PROBLEMS},
    )
    async def get_original(request: Request, doc_id: str) -> FileResponse:
        """Return the bytes of a document as they were uploaded, where the server keeps them (`--keep-originals`)."""

        def work(store: Store) -> Path:
            checksum = store.checksums([doc_id]).get(doc_id, "")
            found = original(store, checksum)
            if found is None:
                raise sqlrag.NotFoundError(f"No original of {doc_id!r} was kept.")
            return found

        path = await service.on_store(request, work)
        return FileResponse(
            path, filename=doc_id.replace(":", "/").rpartition("/")[2], media_type="application/octet-stream"
        )


def original(store: Store, checksum: str) -> Path | None:
    """Return the original of a document by its checksum; None where none is kept beside the files of the store."""
    return next(filter(None, (original_of(path, checksum) for path in store.paths)), None)


def _refuse_other_fields(form: Iterable[str]) -> None:
    known = ("files", "doc_ids", "collection", "skip_duplicates")
    if unknown := sorted(set(form) - set(known)):
        meant = nearest(unknown[0], known)
        hint = f"did you mean {meant}?" if meant else f"the fields are {', '.join(known)}."
        raise Refused(422, f"There is no field {shortened(', '.join(unknown))}; {hint}")


def _names_of(files: Sequence[UploadFile], doc_ids: Sequence[str] | None) -> Sequence[str]:
    """Return a unique name for each file."""
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
    return [_row(values) for values in sorted(found)[:most]]


def _row(values: tuple[Any, ...]) -> dict[str, Any]:
    row = dict(zip(_FIELDS, values, strict=True))
    return {
        **row,
        "tags": row["tags"] or [],
        "metadata": json.loads(row["metadata"] or "{}"),
        "modified_at": None if row["modified_at"] is None else row["modified_at"].isoformat() + "Z",
    }
