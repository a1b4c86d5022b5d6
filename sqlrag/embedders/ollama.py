"""The embedding models of an Ollama server."""

from __future__ import annotations

import os
import re
import weakref
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sqlrag.embedders.remote import Failure, ServiceEmbedder
from sqlrag.errors import MissingExtraError
from sqlrag.telemetry import request_headers

if TYPE_CHECKING:
    from collections.abc import Iterator

USUAL_URL = "http://127.0.0.1:11434"

_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)

_WEIGHTS = re.compile(r"sha256-([0-9a-f]{64})")


class OllamaEmbedder(ServiceEmbedder):
    """Embeds through ``/api/embed`` of an Ollama server; ``/api/show`` reports the model's window.

    A text beyond the window is refused by the server and not truncated silently. Tokens are estimated, see
    :func:`sqlrag.embedders.function.estimated_offsets`.

    Parameters
    ----------
    model_name
        As ``ollama list`` shows it, such as ``nomic-embed-text``.
    base_url
        Where the server is. None: ``OLLAMA_HOST``, else this machine.
    api_key
        Of a server behind a login. None: ``OLLAMA_API_KEY``. "" is none.
    dimensions
        Request shorter vectors; None: the model's own length.
    max_tokens
        The window. None: what the server reports, else 512.
    timeout
        Seconds for one request, and for a query with all its attempts. None: 30.
    batch_size
        Texts in one request. Small, because the vectors of some versions get worse in batches of 16 and more; a build
        compares a text's vector alone and in a batch (:func:`sqlrag.embedders.self_test`).
    query_prefix, passage_prefix
        Text put before a query or a document. None: what the model's card asks for.

    Raises
    ------
    MissingExtraError
        The extra ``ollama`` is not installed.
    ModelUnavailableError
        The server does not have the model.
    ProviderError
        The server does not answer.
    """

    provider = "ollama"
    usual_url = USUAL_URL
    tests_itself = True
    key_remedy = "Give the key as api_key or in OLLAMA_API_KEY."

    def __init__(
        self,
        model_name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        dimensions: int | None = None,
        max_tokens: int | None = None,
        timeout: float | None = None,
        batch_size: int = 8,
        query_prefix: str | None = None,
        passage_prefix: str | None = None,
    ) -> None:
        try:
            from ollama import Client
        except ImportError as error:
            raise MissingExtraError("The embedding provider 'ollama'", "ollama") from error

        super().__init__(
            model_name,
            base_url=base_url or _usual_address(),
            api_key=os.environ.get("OLLAMA_API_KEY") if api_key is None else api_key,
            dimensions=dimensions,
            max_tokens=max_tokens,
            timeout=timeout,
            batch_size=batch_size,
            query_prefix=query_prefix,
            passage_prefix=passage_prefix,
        )
        self.model_remedy = f"Fetch the model with: ollama pull {model_name}"
        # Without a header of ours the client would send OLLAMA_API_KEY in any case.
        headers = {"authorization": f"Bearer {self._key}" if self._key else "none"}
        hooks = {"request": [_prepare]}
        self._client = Client(self.base_url, headers=headers, timeout=self.timeout, event_hooks=hooks)
        weakref.finalize(self, _close, self._client)
        self.revision = ""
        self._describe(max_tokens)
        self._measure()

    @staticmethod
    def obstacle() -> str | None:
        """Return why the provider cannot be used here, None where it can; waits a second at most."""
        if find_spec("ollama") is None:
            return str(MissingExtraError("The embedding provider 'ollama'", "ollama"))
        try:
            OllamaEmbedder.ready_models()
        except Exception as error:
            return (
                f"The server at {_usual_address()} does not answer: {error} Start it, or name another in OLLAMA_HOST."
            )
        return None

    @staticmethod
    def ready_models() -> list[str]:
        """Return the models of the server, not all of which may be embedding models."""
        from ollama import Client

        client = Client(_usual_address(), timeout=1)
        try:
            return sorted(str(one.model) for one in client.list().models)
        finally:
            _close(client)

    def _describe(self, max_tokens: int | None) -> None:
        """Read the window and revision of the model from the server."""

        def ask(seconds: float) -> Any:
            with _limited(seconds):
                return self._client.show(self.model_name)

        shown = self._with_retries(ask, patient=False)
        limits = [int(number) for number in _NUM_CTX.findall(shown.parameters or "")]
        limits += [int(value) for key, value in (shown.modelinfo or {}).items() if key.endswith(".context_length")]
        self.max_tokens = max_tokens or min(limits, default=self.max_tokens)
        weights = _WEIGHTS.search(shown.modelfile or "")
        self.revision = weights[1] if weights else ""

    def _ask(self, texts: list[str], seconds: float) -> list[Any]:
        with _limited(seconds):
            answer = self._client.embed(self.model_name, texts, truncate=False, dimensions=self._dimensions)
        return list(answer.embeddings)

    def _failure(self, error: Exception) -> Failure | None:
        import httpx
        import ollama

        if isinstance(error, ollama.ResponseError):
            # The client hides the answer, whose headers say how long to wait.
            headers = getattr(getattr(error.__context__, "response", None), "headers", {})
            return Failure(error.status_code, str(error.error), headers)
        if isinstance(error, (httpx.TransportError, ConnectionError)):
            return Failure(None, str(error) or type(error).__name__, {})
        return None


# The client has one time-out for all requests, so that of a request is set where it is sent.
_seconds: ContextVar[float | None] = ContextVar("sqlrag_ollama_seconds", default=None)


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Give the requests of a block a time-out."""
    token = _seconds.set(seconds)
    try:
        yield
    finally:
        _seconds.reset(token)


def _prepare(request: Any) -> None:
    request.headers.update(request_headers())
    request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), _seconds.get())


def _close(client: Any) -> None:
    client.close()


def _usual_address() -> str:
    return _address(os.environ.get("OLLAMA_HOST", "")) or USUAL_URL


def _address(host: str) -> str:
    """Return OLLAMA_HOST, which may lack scheme and port, as an address."""
    host = host.strip().rstrip("/")
    if not host:
        return ""
    scheme, _, rest = host.rpartition("://")
    name, _, port = rest.rpartition(":") if ":" in rest else (rest, ":", "11434")
    # The server reads its listen address from the same variable; a client cannot connect to that one.
    name = "127.0.0.1" if name in ("0.0.0.0", "") else name  # noqa: S104
    return f"{scheme or 'http'}://{name}:{port}"
