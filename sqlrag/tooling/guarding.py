"""Who may call over HTTP: those who have the key and use a name of this server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlrag.network import NO_KEY, has_key, host_of, host_of_origin, to_origin_form

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping

    Message = MutableMapping[str, Any]
    App = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


class HostGuard:
    """Lets requests through that name one of the hosts, and come from its pages if they come from a page.

    So pages of other sites cannot read the file through a browser (DNS rebinding).
    """

    def __init__(self, app: App, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = {host.lower() for host in hosts}

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        """Handle a request."""
        to_origin_form(scope)
        sent = {key: value.decode("latin-1") for key, value in scope.get("headers", ())}
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif host_of(sent.get(b"host", "")) not in self._hosts:
            await _refuse(send, 421, "This server does not go by that name. Start it with --allow-host NAME.")
        elif b"origin" in sent and host_of_origin(sent[b"origin"]) not in self._hosts:
            await _refuse(send, 403, "Pages of other sites may not read this server.")
        else:
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
        await _refuse(send, 401, NO_KEY, (b"www-authenticate", b"Bearer"))


async def _refuse(
    send: Callable[[Message], Awaitable[None]], status: int, why: str, *headers: tuple[bytes, bytes]
) -> None:
    told = [(b"content-type", b"text/plain"), *headers]
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": why.encode()})
