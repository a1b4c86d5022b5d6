"""``POST /export_ragmd`` and ``POST /export_ragfile``: the file, or a part of it, in another format."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from starlette.background import BackgroundTask
from starlette.responses import FileResponse

import sqlrag
from sqlrag import scratch
from sqlrag.serving import table
from sqlrag.serving.calling import PROBLEMS, described, summary, typed
from sqlrag.serving.schemas import request_model, to_python

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request

    from sqlrag import Store
    from sqlrag.serving.service import Service

RAGMD = "application/vnd.rag-markdown"
# By function: the suffix, and the types that a client may ask for; the first is sent to those who do not say.
_KINDS = {
    "export_ragmd": (".ragmd", ("text/markdown", RAGMD)),
    "export_ragfile": (".ragfile", ("application/octet-stream",)),
}


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the routes of exports that are one file."""
    for name, (_, types) in _KINDS.items():
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


def _endpoint(name: str, service: Service) -> Any:
    function = getattr(sqlrag, name)
    suffix, types = _KINDS[name]

    async def run(request: Request, body: Any) -> FileResponse:
        given = {field: to_python(getattr(body, field)) for field in type(body).model_fields}
        folder = scratch.Folder()
        path = folder.path / f"{service.lender.path.stem}{suffix}"
        abandoned = threading.Event()

        def work(store: Store) -> None:
            function(store.path, path, **given)
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

    model = request_model(function, without=table.KEPT, instead={})
    return typed(run, model, {"collection": "default"})
