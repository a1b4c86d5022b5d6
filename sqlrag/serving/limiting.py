"""How long a client may take to send its request."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyInTime:
    """Ends a request whose body has not come after ``seconds``."""

    def __init__(self, app: ASGIApp, *, seconds: float) -> None:
        self.app = app
        self.seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a request, as ASGI has it."""
        until = time.monotonic() + self.seconds
        complete = scope["type"] != "http"

        async def receive_in_time() -> Message:
            nonlocal complete
            if complete:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), until - time.monotonic())
            except (asyncio.TimeoutError, TimeoutError) as error:
                raise HTTPException(408, f"The body did not come within {self.seconds:g} seconds.") from error
            complete = not message.get("more_body", False)
            return message

        await self.app(scope, receive_in_time, send)
