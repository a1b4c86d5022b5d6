"""JSON of requests: read strictly, in a thread, and refused where it has more than can be checked at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request

from sqlrag.errors import FormatError
from sqlrag.formats.strict_json import strict_json
from sqlrag.serving.refusing import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from starlette.responses import Response

    from sqlrag.serving.service import Service

DEEPEST = 100


def route_class(service: Service) -> type[APIRoute]:
    """Return the class of routes whose requests read JSON with the limits of a server."""

    class StrictRequest(Request):
        async def json(self) -> Any:
            body = await self.body()
            try:
                return await service.workers.run(lambda: _read(body, service.options.max_items))
            except FormatError as error:
                raise HTTPException(422, str(error)) from error
            except Refused as error:  # FastAPI lets nothing else through here
                raise HTTPException(error.status, error.detail, error.headers) from error

    class StrictRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def run(request: Request) -> Response:
                return await handle(StrictRequest(request.scope, request.receive))

            return run

    return StrictRoute


def _read(body: bytes, most_items: int) -> Any:
    """Return what JSON says, looked at level by level, before anything that goes down into it."""
    value = strict_json(body, "The body")
    level, depth, items = _containers([value]), 0, 0
    while level:
        below: list[Any] = []
        for one in level:
            inner = _containers(one.values() if isinstance(one, dict) else one)
            items += 0 if isinstance(one, dict) else len(inner)
            below += inner
            if isinstance(one, dict) and len(one) > most_items:
                raise FormatError(f"An object of the body has more than {most_items:,} names; send several requests.")
            if items > most_items:
                raise FormatError(
                    f"The lists of the body hold more than {most_items:,} objects and lists together; send several "
                    "requests."
                )
        level, depth = below, depth + 1
        if depth > DEEPEST:
            raise FormatError(f"The body is nested more than {DEEPEST} levels deep; send flatter values.")
    return value


def _containers(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, (dict, list))]
