"""Routes made of public functions: the request's model from the signature, the answer's from what is returned."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, create_model
from starlette.requests import Request
from starlette.responses import Response

import sqlrag
from sqlrag import docstrings
from sqlrag.ingest.chunking import iter_chunks
from sqlrag.network import without_folders
from sqlrag.serving import table
from sqlrag.serving.problems import MEDIA_TYPE, SCHEMA, as_json
from sqlrag.serving.refusing import Refused, within
from sqlrag.serving.schemas import Plain, model_of, request_model, to_plain, to_python
from sqlrag.stopping import checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import FastAPI

    from sqlrag import Store
    from sqlrag.serving.options import ServerOptions
    from sqlrag.serving.service import Service

# What else comes with a list, by its class.
_BESIDE = {sqlrag.Results: ("notices", "timings", "methods"), sqlrag.Candidates: ("notices", "timings", "dropped")}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": what, "content": {MEDIA_TYPE: {"schema": SCHEMA}}}
    for status, what in {
        400: "The body cannot be read.",
        401: "The key is missing or wrong.",
        404: "There is no such document or chunk.",
        409: "It does not fit the file, or the file is served for reading only.",
        413: "The body is too large, or the answer would be.",
        422: "An argument is wrong.",
        501: "A model that it needs is not on the server.",
        502: "A model, or its server, failed.",
        503: "The server or the file is busy, or cannot be used; see Retry-After.",
        504: "It took too long.",
    }.items()
}


def add_routes(app: FastAPI, service: Service) -> None:
    """Add a route for each public function of the table."""
    for call in table.CALLS:
        if not hasattr(sqlrag, call.name):
            continue
        app.add_api_route(
            f"/{call.name}",
            _endpoint(call, service),
            methods=["GET" if call.get else "POST"],
            operation_id=call.name,
            summary=summary(call.name),
            description=described(call.name),
            responses={200: {"model": _answer_model(call)}, **PROBLEMS},
            response_model=None,
        )


def _endpoint(call: table.Call, service: Service) -> Any:
    function = _function(call.name, service.options)
    parameters = inspect.signature(function).parameters

    async def run(request: Request, body: Any = None) -> Response:
        if call.changes:
            refuse_to_change(service.options)
        if "input_dir" in parameters and service.options.input_dir is None:
            raise Refused(409, "The server has no folder to read; start it with --input-dir FOLDER.")

        def work(store: Store) -> bytes:
            given = {name: to_python(getattr(body, name)) for name in type(body).model_fields} if body else {}
            _check_model(given, store)
            found = function(**given, **_of_server(parameters, store, service.options))
            if isinstance(found, (sqlrag.Results, sqlrag.Candidates)):
                found.notices[:] = [without_folders(notice, *service.lender.folders) for notice in found.notices]
            return answer_of(call.answer, found, service.options.max_answer_bytes)

        content = await (service.changing if call.changes else service.on_store)(request, work)
        return with_etag(request, content) if call.get else Response(content, media_type="application/json")

    model = None
    if not call.get:
        model = request_model(
            function, without=table.KEPT, instead=replaced_types(call.name, service.options), options=service.options
        )
    return typed(run, model, call.example)


def _function(name: str, options: ServerOptions) -> Any:
    """Return a public function; what has no end of its own ends at the server's limit."""
    function = getattr(sqlrag, name)
    if name != "chunk":
        return function

    @functools.wraps(function)
    def some_chunks(document: Any, policy: Any, **others: Any) -> list[Any]:
        chunks = list(islice(iter_chunks(document, policy, **others), options.max_chunks + 1))
        if len(chunks) > options.max_chunks:
            raise Refused(
                413,
                f"The document gives more than {options.max_chunks:,} chunks; take a larger chunk_size, or send parts.",
            )
        return chunks

    return some_chunks


def typed(endpoint: Any, model: type[BaseModel] | None, example: Mapping[str, Any]) -> Any:
    """Return an endpoint that takes a body of this model."""
    parameters = {"request": Request, **({"body": model} if model else {})}
    if model:
        model.model_config["json_schema_extra"] = {"examples": [dict(example)]}
    endpoint.__signature__ = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind) for name, kind in parameters.items()]
    )
    return endpoint


def refuse_to_change(options: ServerOptions) -> None:
    """Refuse a change of a file that is served for reading only."""
    if not options.write:
        raise Refused(409, "The file is served for reading only; start the server with --write to change it.")


def replaced_types(name: str, options: ServerOptions) -> dict[str, Any]:
    """Return the types of arguments that could make the server load models or files, with what it was started for."""
    rerankers = ("cosine", options.rerank_model) if options.rerank_model else ("cosine",)
    if name == "rerank":
        model = Literal[options.rerank_model] if options.rerank_model else None
        return {"model": None if model is None else model | None}
    if name == "answer":
        return {"rerank": Literal[rerankers] | None}
    return {}


def _of_server(parameters: Mapping[str, Any], store: Store, options: ServerOptions) -> dict[str, Any]:
    """Return the arguments that are the server's."""
    takes_store = "Store" in str(parameters["db_path"].annotation) if "db_path" in parameters else False
    if not takes_store and "db_path" in parameters and not isinstance(store, sqlrag.Store):
        raise sqlrag.InputError("This needs a DuckDB file, and the server's store is in Postgres.")
    given: dict[str, Any] = {"db_path": store if takes_store else store.path, "store": store}
    if options.input_dir is not None:
        given["input_dir"] = options.input_dir
    if "progress" in parameters:
        given |= {"embedder": store.loaded_embedder, "progress": "off", "max_bytes": options.max_upload_bytes}
    return {name: value for name, value in given.items() if name in parameters}


def _check_model(given: dict[str, Any], store: Store) -> None:
    """Compare a name with the file's model: as an argument it could be a folder of the server's machine."""
    name = given.get("model_name")
    if name is None or "expected_dimensions" in given:
        return
    given["model_name"] = None
    if not sqlrag.validate_embedding_model(store, name):
        model = store.get_embedding_metadata()["embedding"]["model"]
        raise sqlrag.ModelMismatchError(f"The file was built with the model {model!r}, not with {name!r}.")


def answer_of(name: str, value: Any, most_bytes: int) -> bytes:
    """Return what a function returned as JSON, under a name where it is a list or a plain value.

    A list is written entry by entry, so that no more than ``most_bytes`` come together: each of a thousand results may
    hold its whole document.
    """
    if not name or not isinstance(value, list):
        return as_json({name: to_plain(value)} if name else to_plain(value))
    beside = next((names for cls, names in _BESIDE.items() if isinstance(value, cls)), ())
    parts, size = list[bytes](), 0
    for one in value:
        checkpoint()
        parts.append(as_json(without_paths(name, to_plain(one))))
        size += len(parts[-1]) + 1
        within(size, most_bytes)
    others = as_json({one: to_plain(getattr(value, one)) for one in beside})[1:]
    return b'{"%b":[%b]%b%b' % (name.encode(), b",".join(parts), b"," if beside else b"", others)


def without_paths(name: str, plain: Any) -> Any:
    """Return an entry of an answer without where its document lies on the server, which is nobody's business."""
    if name == "documents":
        return {key: part for key, part in plain.items() if key != "file_path"}
    if name == "results" and plain.get("source_doc"):
        return {**plain, "source_doc": without_paths("documents", plain["source_doc"])}
    return plain


def with_etag(request: Request, content: bytes, media_type: str = "application/json") -> Response:
    """Return an answer with the ETag of its bytes, or 304 where the client has them."""
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if etag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=media_type)


def _answer_model(call: table.Call) -> Any:
    """Return the model of an answer, from what the function says that it returns."""
    returned = str(inspect.signature(getattr(sqlrag, call.name)).return_annotation)
    title = "".join(part.title() for part in call.name.split("_")) + "Answer"
    if not call.answer:
        cls = getattr(sqlrag, returned, None)
        return model_of(cls) if isinstance(cls, type) else dict[str, Any]
    item: Any = dict[str, Any]
    inner = re.fullmatch(r"list\[(\w+)\]", returned)
    if call.answer == "candidates":
        item = model_of(sqlrag.Candidate)
    elif inner and hasattr(sqlrag, inner[1]):
        item = model_of(getattr(sqlrag, inner[1]))
    elif call.name.endswith("_query") or call.name == "package":
        item = _row_model()
    kinds: dict[str, Any] = {"valid": bool, "ranking": list[list[str | float]], "spans": list[list[list[int]]]}
    fields: dict[str, Any] = {call.answer: (kinds.get(call.answer, list[item]), ...)}
    if call.answer in ("results", "candidates"):
        last: Any = dict[str, str] if call.answer == "results" else dict[str, list[str]]
        fields |= {"notices": (list[str], ...), "timings": (dict[str, float], ...)}
        fields["methods" if call.answer == "results" else "dropped"] = (last, ...)
    return create_model(title, __base__=Plain, **fields)


def _row_model() -> type[Plain]:
    """Return the model of a result: a candidate with its text and, where it was asked for, its document."""
    candidate = model_of(sqlrag.Candidate).model_fields
    kinds = {"text": (str, ...), "source_doc": (dict[str, Any] | None, ...)}
    others = {name: (field.annotation, ...) for name, field in candidate.items() if name not in ("content", "tags")}
    return create_model("Result", __base__=Plain, **others, **kinds)  # type: ignore[call-overload,no-any-return]


def summary(name: str) -> str:
    """Return the first line of a docstring."""
    return docstrings.lead(getattr(sqlrag, name)).partition("\n")[0]


def described(name: str) -> str:
    """Return the docstring up to its sections."""
    return docstrings.without_roles(docstrings.lead(getattr(sqlrag, name)))
