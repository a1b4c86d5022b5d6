"""What holds for requests of every route: ``HEAD`` is ``GET`` without the body, and no parameter is ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations

from sqlrag.serving.refusing import Refused

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Head:
    """Answers ``HEAD`` as ``GET``, without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a request, as ASGI has it."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        # In place, because the router leaves there which route it was.
        scope["method"] = "GET"
        try:
            await self.app(scope, receive, send_without_body)
        finally:
            scope["method"] = "HEAD"


def refuse_unknown_parameters(request: Request) -> None:
    """Refuse parameters of the address that the route does not take; the search page has its own."""
    route = request.scope["route"]
    known = [param.alias for param in route.dependant.query_params]
    unknown = sorted(set(request.query_params) - set(known))
    if unknown and route.include_in_schema:
        what = f"the parameters are {', '.join(known)}" if known else "this route takes none"
        raise Refused(422, f"There is no parameter {', '.join(unknown)[:200]!a}; {what}.")
