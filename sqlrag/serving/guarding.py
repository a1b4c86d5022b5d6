"""Who may ask: the key, the name of the host, and what every answer says to browsers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders

from sqlrag.network import LOOPBACK, NO_KEY, has_key, host_of, to_origin_form
from sqlrag.serving.problems import problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_OPEN = ("/", "/health")
_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Guard:
    """Lets requests through that name this host and have the key; the page and its health are open to all."""

    def __init__(self, app: ASGIApp, *, api_key: str | None, hosts: tuple[str, ...]) -> None:
        self.app = app
        self.key = None if api_key is None else api_key.encode()
        self.hosts = {host.lower() for host in (*LOOPBACK, *hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a request, as ASGI has it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        to_origin_form(scope)
        headers = Headers(scope=scope)
        app = self.app
        if "*" not in self.hosts and host_of(headers.get("host", "")) not in self.hosts:
            # A page of another site whose name was made to lead here must not read the file.
            app = problem(421, "This server does not go by that name. Start it with --allow-host NAME.")
        elif not self._has_key(scope["path"], headers):
            app = problem(401, NO_KEY, _CHALLENGE)
        await app(scope, receive, send_with_headers)

    def _has_key(self, path: str, headers: Headers) -> bool:
        if self.key is None or path in _OPEN or path.startswith("/page/"):
            return True
        return has_key(headers.get("authorization", "").encode(), headers.get("x-api-key", "").encode(), self.key)


_CHALLENGE = {"WWW-Authenticate": "Bearer"}
