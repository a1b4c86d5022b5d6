"""OpenAI's embedding models, and those of any server with its API."""

from __future__ import annotations

import os
import weakref
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sqlrag.embedders.function import openai_offsets
from sqlrag.embedders.remote import Failure, ServiceEmbedder
from sqlrag.errors import MissingExtraError, ModelUnavailableError, ProviderError
from sqlrag.telemetry import request_headers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from openai._types import RequestOptions

USUAL_URL = "https://api.openai.com/v1"

# https://platform.openai.com/docs/guides/embeddings: dimensions; all of them read 8,192 tokens.
_KNOWN = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}

_WINDOW = 8191

_MOST_INPUTS = 2048

# A request may have 300,000 tokens, and a token has one byte or more.
_MOST_BYTES = 300_000


class OpenAIEmbedder(ServiceEmbedder):
    """Embeds through ``/embeddings`` of OpenAI or of a compatible server: vLLM, TEI, LM Studio or llama.cpp.

    Texts are sent as strings, never as token numbers, and the vectors are put in order by their ``index``. OpenAI's own
    models are counted with their tokenizer, from the file that llama-index-core ships; the tokens of other models are
    estimated, see :func:`sqlrag.embedders.function.estimated_offsets`.

    Parameters
    ----------
    model_name
        The server's name for it. The default is OpenAI's smallest.
    base_url
        Where the server is, up to and without ``/embeddings``. None: ``OPENAI_BASE_URL``, else OpenAI.
    api_key
        None: ``OPENAI_API_KEY``. "" is none, for servers of your own that need none.
    dimensions
        Request shorter vectors; None: the model's own length.
    max_tokens
        The window. None: 8,191 for OpenAI's models, else 512.
    timeout
        Seconds for one request, and for a query with all its attempts. None: 30.
    batch_size
        Texts in one request, 1 to 2048. It is lowered where the server accepts fewer.
    query_prefix, passage_prefix
        Text put before a query or a document. None: what the model's card asks for.

    Raises
    ------
    MissingExtraError
        The extra ``openai`` is not installed.
    ModelUnavailableError
        OpenAI's own server is used without a key, or the server does not have the model.
    ProviderError
        The server does not answer, or refuses the key.
    """

    provider = "openai"
    batch_bytes = _MOST_BYTES
    usual_url = USUAL_URL
    key_remedy = (
        "Give the key as api_key or in OPENAI_API_KEY. For a server that a file names, OPENAI_API_KEY is sent only if "
        "OPENAI_BASE_URL names the server too."
    )
    model_remedy = "Look at the model's name and at base_url, which ends where /embeddings would follow."

    def __init__(
        self,
        model_name: str = "text-embedding-3-small",
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        dimensions: int | None = None,
        max_tokens: int | None = None,
        timeout: float | None = None,
        batch_size: int = 128,
        query_prefix: str | None = None,
        passage_prefix: str | None = None,
    ) -> None:
        try:
            from openai import OpenAI
        except ImportError as error:
            raise MissingExtraError("The embedding provider 'openai'", "openai") from error

        key = os.environ.get("OPENAI_API_KEY") if api_key is None else api_key
        super().__init__(
            model_name,
            base_url=base_url or os.environ.get("OPENAI_BASE_URL") or USUAL_URL,
            api_key=key,
            dimensions=dimensions,
            max_tokens=max_tokens,
            timeout=timeout,
            batch_size=min(batch_size, _MOST_INPUTS),
            query_prefix=query_prefix,
            passage_prefix=passage_prefix,
        )
        if not self._key and self.base_url == USUAL_URL:
            raise ModelUnavailableError(
                f"The openai model {model_name!r} needs a key: set OPENAI_API_KEY or pass api_key. For a server of "
                "your own, name it by base_url."
            )
        self._client = OpenAI(api_key=self._key or "none", base_url=self.base_url, max_retries=0)
        weakref.finalize(self, self._client.close)
        self._floats = {"encoding_format": "float"}
        self._is_openai = model_name in _KNOWN
        if self._is_openai and max_tokens is None:
            self.max_tokens = _WINDOW
        if self._is_openai and self.base_url == USUAL_URL:
            self.dimensions = dimensions or _KNOWN[model_name]
        else:
            self._measure()

    @staticmethod
    def obstacle() -> str | None:
        """Return why the provider cannot be used here, None where it can."""
        if find_spec("openai") is None:
            return str(MissingExtraError("The embedding provider 'openai'", "openai"))
        if os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL"):
            return None
        return "It needs OPENAI_API_KEY, or a server of your own in OPENAI_BASE_URL or base_url."

    def token_offsets(self, text: str) -> Sequence[tuple[int, int]]:
        """Return ``(start, end)`` in characters of every token of ``text``."""
        return openai_offsets(text) if self._is_openai else super().token_offsets(text)

    def _ask(self, texts: list[str], seconds: float) -> list[Any]:
        from openai import APIStatusError

        body: dict[str, Any] = {"model": self.model_name, "input": texts}
        if self._dimensions is not None:
            body["dimensions"] = self._dimensions
        # The client's own method would request base64, which not every server has, and would drop a wrong index.
        client = self._client.with_options(timeout=seconds)
        header: RequestOptions = {"headers": {"Authorization": f"Bearer {self._key or 'none'}", **request_headers()}}
        try:
            answer = client.post("/embeddings", cast_to=object, body={**body, **self._floats}, options=header)
        except APIStatusError as error:
            if not self._floats or error.status_code not in (400, 422) or "encoding_format" not in str(error):
                raise
            self._floats = {}
            answer = client.post("/embeddings", cast_to=object, body=body, options=header)
        return self._in_order(answer, len(texts))

    def _in_order(self, answer: object, count: int) -> list[Any]:
        """Return the vectors of an answer by their index, None where one is missing."""
        rows = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ProviderError(f"{self.base_url}: the answer has no list of vectors: {answer!r:.200}")
        places = [row.get("index") for row in rows]
        if len(rows) != count or all(place is None for place in places):
            return [row.get("embedding") for row in rows]
        by_place: dict[Any, Any] = {row.get("index"): row.get("embedding") for row in rows}
        if len(by_place) < count and len(by_place.keys() & set(range(count))) == len(by_place):
            twice = sorted({place for place in places if places.count(place) > 1})
            raise ProviderError(f"{self.base_url}: the answer has the index {twice[0]} more than once.")
        return [by_place.get(place) for place in range(count)]

    def _failure(self, error: Exception) -> Failure | None:
        import openai

        if isinstance(error, openai.APIStatusError):
            message = error.body.get("message") if isinstance(error.body, dict) else None
            code = f" ({error.code})" if message and error.code else ""
            return Failure(error.status_code, f"{message or error.response.text}{code}", error.response.headers)
        if isinstance(error, openai.APIConnectionError):  # a time-out is one
            cause = f" ({error.__cause__})" if error.__cause__ else ""
            return Failure(None, f"{str(error).rstrip('.')}{cause}", {})
        return None
