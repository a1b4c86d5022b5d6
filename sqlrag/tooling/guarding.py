"""Who may call over HTTP: those who have the key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlrag.network import NO_KEY, has_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Message = MutableMapping[str, Any]
    App = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


class LowerHost:
    """Hands requests on to an ASGI application with the names of hosts in small letters: names have no case."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        """Handle a request."""
        if scope["type"] == "http":
            headers = [
                (key, value.lower() if key in (b"host", b"origin") else value) for key, value in scope["headers"]
            ]
            scope = {**scope, "headers": headers}
        await self._app(scope, receive, send)


class KeyGuard:
    """Lets requests with the key through to an ASGI application, and answers others with 401."""

    def __init__(self, app: App, key: str) -> None:
        self._app = app
        self._key = key.encode()

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        """Handle a request."""
        sent = dict(scope.get("headers", ()))
        if scope["type"] != "http" or has_key(sent.get(b"authorization", b""), sent.get(b"x-api-key", b""), self._key):
            await self._app(scope, receive, send)
            return
        headers = [(b"content-type", b"text/plain"), (b"www-authenticate", b"Bearer")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": NO_KEY.encode()})
