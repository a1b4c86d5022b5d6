"""LangChain: a retriever over a file, and a re-ranker of documents. Needs the extra ``langchain``."""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING, Any, Literal

import sqlrag
from sqlrag.adapters.arguments import check_names
from sqlrag.errors import MissingExtraError

try:
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import Field, field_validator, model_validator
except ImportError as error:
    raise MissingExtraError("sqlrag.adapters.langchain", "langchain") from error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun, Callbacks
    from typing_extensions import Self


class SqlragRetriever(BaseRetriever):
    """Finds the chunks of a file that fit a question; ids, order and scores are those of the search by Python.

    ``db_path`` is the file, opened for each search, or an open :class:`sqlrag.Store`. ``mode`` is "hybrid", "vector" or
    "lexical", ``k`` how many documents come back, 1 or more. ``search_kwargs`` are any other arguments of
    :func:`sqlrag.hybrid_query`, :func:`sqlrag.vector_query` or :func:`sqlrag.lexical_query`, filters among them; those
    given to ``invoke``, with ``k``, go before them. An argument that the search does not take is an error.

    The ``id`` of a document is the ``node_id`` of the chunk. ``metadata`` are those of the chunk, every other key of a
    result, and ``source``, the path below the input folder. ``notices`` are there where a leg could not answer.
    """

    db_path: Any
    mode: Literal["hybrid", "vector", "lexical"] = "hybrid"
    k: int = 5
    search_kwargs: dict[str, Any] = Field(default_factory=dict)

    @field_validator("db_path")
    @classmethod
    def _as_text(cls, value: object) -> object:
        return os.fspath(value) if isinstance(value, os.PathLike) else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._arguments({})
        return self

    @classmethod
    def is_lc_serializable(cls) -> bool:
        """Return True: one with a path can be written and read by ``langchain_core.load``."""
        return True

    def _arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        wanted = {"k": self.k, **self.search_kwargs, **given}
        arguments = inspect.signature(getattr(sqlrag, f"{self.mode}_query")).parameters
        known = {"k", *arguments} - {"query_text", "db_path", "top_k"}
        check_names(f"{self.mode} search", wanted, known, {"top_k": "k"})
        return {"db_path": self.db_path, "top_k": wanted.pop("k"), **wanted}

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **given: Any  # noqa: ARG002
    ) -> list[Document]:  # fmt: skip
        return _documents(getattr(sqlrag, f"{self.mode}_query")(query, **self._arguments(given)))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **given: Any  # noqa: ARG002
    ) -> list[Document]:  # fmt: skip
        return _documents(await getattr(sqlrag, f"a{self.mode}_query")(query, **self._arguments(given)))


class SqlragReranker(BaseDocumentCompressor):
    """Orders documents of any retriever anew with :func:`sqlrag.rerank`, by ``model``; at most ``top_n`` are kept."""

    model: Any
    top_n: int | None = None

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None  # noqa: ARG002
    ) -> list[Document]:  # fmt: skip
        """Return the documents best first, with their ``score`` in the metadata; a model that fails is an error."""
        found = [sqlrag.Candidate("", place, document.page_content) for place, document in enumerate(documents)]
        ranked = sqlrag.rerank(query, found, self.model, top_n=self.top_n, strict=True)
        scored = [(documents[one.chunk_index], {"score": one.score, "score_type": one.score_type}) for one in ranked]
        return [one.model_copy(update={"metadata": one.metadata | scores}) for one, scores in scored]


def _documents(results: sqlrag.Results) -> list[Document]:
    notices = {"notices": results.notices} if results.notices else {}
    return [Document(row["text"], id=row["node_id"], metadata=_metadata(row) | notices) for row in results]


def _metadata(row: dict[str, Any]) -> dict[str, Any]:
    own = {name: value for name, value in row.items() if name not in ("node_id", "text", "metadata")}
    return {"source": row["metadata"].get("file_path", row["doc_id"]), **row["metadata"], **own}
