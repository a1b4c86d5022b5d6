"""LangChain: a retriever over a store, and a reranker of documents. Needs the extra ``langchain``."""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING, Any, Literal

import sqlrag
from sqlrag.adapters import check_names, only_fields
from sqlrag.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun, Callbacks

try:
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import Field, field_validator, model_validator
except ImportError as error:
    raise MissingExtraError("sqlrag.adapters.langchain", "langchain") from error


class SqlragRetriever(BaseRetriever):
    """Retrieves the chunks for a question; ids, order and scores are those of the search in Python.

    ``db_path`` is a file, a list of them or a URL, opened for each search, or an open store, as in
    :func:`sqlrag.hybrid_query`. ``mode`` is "hybrid", "vector" or "lexical", ``k`` the number of documents, 1 or
    more. ``search_kwargs`` are any other arguments of :func:`sqlrag.hybrid_query`, :func:`sqlrag.vector_query` or
    :func:`sqlrag.lexical_query`, such as filters; arguments of ``invoke``, ``k`` included, override them. An argument
    that the search does not take is an error, and so is one that is no field here. ``tags`` and ``metadata`` are fields
    of every retriever of LangChain and label its runs: filters of these names are ``search_kwargs``.

    The ``id`` of a document is the ``node_id`` of the chunk. ``metadata`` are those of the chunk, every other key of a
    result but ``shown`` and ``context_shown``, and ``source``, the path below the input folder. ``notices`` is present
    if a leg could not answer.
    """

    db_path: Any
    mode: Literal["hybrid", "vector", "lexical"] = "hybrid"
    k: int = 5
    search_kwargs: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _refuse_others(cls, given: Any) -> Any:
        return only_fields(cls, given, inspect.signature(sqlrag.hybrid_query).parameters)

    @field_validator("db_path")
    @classmethod
    def _as_text(cls, value: object) -> object:
        if isinstance(value, (list, tuple)):
            return [os.fspath(one) if isinstance(one, os.PathLike) else one for one in value]
        return os.fspath(value) if isinstance(value, os.PathLike) else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._arguments({})
        return self

    @classmethod
    def is_lc_serializable(cls) -> bool:
        """Return True: a retriever with a path can be saved and loaded by ``langchain_core.load``."""
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
    """Reranks documents of any retriever with :func:`sqlrag.rerank` and ``model``; keeps at most ``top_n``."""

    model: Any
    top_n: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_others(cls, given: Any) -> Any:
        return only_fields(cls, given)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None  # noqa: ARG002
    ) -> list[Document]:  # fmt: skip
        """Return the documents best first, with their ``score`` in the metadata; a failure of the model is an error."""
        found = [sqlrag.Candidate("", place, document.page_content) for place, document in enumerate(documents)]
        ranked = sqlrag.rerank(query, found, self.model, top_n=self.top_n, strict=True)
        scored = [(documents[one.chunk_index], {"score": one.score, "score_type": one.score_type}) for one in ranked]
        return [one.model_copy(update={"metadata": one.metadata | scores}) for one, scores in scored]


def _documents(results: sqlrag.Results) -> list[Document]:
    notices = {"notices": results.notices} if results.notices else {}
    return [Document(row["text"], id=row["node_id"], metadata=_metadata(row) | notices) for row in results]


_ELSEWHERE = ("node_id", "text", "metadata", "shown", "context_shown")


def _metadata(row: dict[str, Any]) -> dict[str, Any]:
    own = {name: value for name, value in row.items() if name not in _ELSEWHERE}
    return {"source": row["metadata"].get("file_path", row["doc_id"]), **row["metadata"], **own}
