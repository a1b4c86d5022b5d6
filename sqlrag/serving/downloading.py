"""``POST /export_ragmd`` and ``POST /export_ragfile``: the file, or a part of it, in another format."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from starlette.background import BackgroundTask
from starlette.responses import FileResponse

import sqlrag
from sqlrag import scratch
from sqlrag.formats.exchange import stored_contents
from sqlrag.formats.ragfile import write_ragfile
from sqlrag.formats.ragmd import write_ragmd
from sqlrag.serving import table
from sqlrag.serving.calling import PROBLEMS, described, summary, typed
from sqlrag.serving.schemas import request_model, to_python

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request

    from sqlrag import Store
    from sqlrag.formats.contents import Batch
    from sqlrag.serving.service import Service

RAGMD = "application/vnd.rag-markdown"
_CHOOSING = ("collection", "tags_any", "tags_all", "metadata")
# By function: the suffix, the types that a client may ask for, of which the first is sent to those who do not say, and
# what writes the file.
_KINDS = {
    "export_ragmd": (".ragmd", ("text/markdown", RAGMD), write_ragmd),
    "export_ragfile": (".ragfile", ("application/octet-stream",), write_ragfile),
}


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the routes of exports that are one file."""
    for name, (_, types, _) in _KINDS.items():
        schema = {"schema": {"type": "string", "format": "binary"}}
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
    """Return a batch without where its documents lie on the server, which is nobody's business."""
    place = batch.sources.schema.get_field_index("file_path")
    names = batch.sources["file_name"]
    return batch._replace(sources=batch.sources.set_column(place, batch.sources.schema.field(place), names))


def _endpoint(name: str, service: Service) -> Any:
    function = getattr(sqlrag, name)
    suffix, types, write_file = _KINDS[name]

    async def run(request: Request, body: Any) -> FileResponse:
        given = {field: to_python(getattr(body, field)) for field in type(body).model_fields}
        folder = scratch.Folder()
        path = folder.path / f"{service.lender.stem}{suffix}"
        abandoned = threading.Event()

        def work(_: Store) -> None:
            chosen = {field: given.pop(field) for field in _CHOOSING}
            try:
                with stored_contents(service.lender.path, **chosen) as contents:
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
