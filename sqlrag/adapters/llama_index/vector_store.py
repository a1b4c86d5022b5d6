"""The llama-index vector store over a store of sqlrag."""

from __future__ import annotations

import logging
import os
import pickle
import time
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQueryResult
from llama_index.core.vector_stores.types import VectorStoreQueryMode as Mode

from sqlrag.adapters import check_names, only_fields
from sqlrag.adapters.llama_index.nodes import add_facts, chunk_of, condition_of, nodes_of, restrictions, vectors_of
from sqlrag.arguments import number
from sqlrag.blocks.rerank import rerank
from sqlrag.cancellation import in_thread
from sqlrag.engines.duckdb.files import check_output, real_path
from sqlrag.engines.duckdb.rewrite import put_in_place, temporary_beside
from sqlrag.errors import InputError, StoreExistsError, StoreLockedError
from sqlrag.normalize import clean_name
from sqlrag.ranking.plan import StoreHybridOptions, StoreLexicalOptions, StoreVectorOptions, canonical
from sqlrag.search.open import is_address, open_store
from sqlrag.search.store import Store
from sqlrag.search.writes import Writes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

    from llama_index.core.schema import BaseNode
    from llama_index.core.vector_stores.types import MetadataFilters, VectorStoreQuery

    from sqlrag.ranking.results import Results
    from sqlrag.search.postgres_store import PostgresStore
    from sqlrag.types import AnyEmbedder


log = logging.getLogger("sqlrag.adapters")


class PicklesEmbedder:
    """A mixin for a component whose ``__init__`` takes ``embedder`` and stores it as ``_embedder``."""

    _embedder: Any

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with the embedder; a component of llama-index would drop it silently.

        Raises
        ------
        InputError
            The embedder cannot be pickled.
        """
        state: dict[str, Any] = super().__getstate__()  # type: ignore[misc, assignment, unused-ignore]
        if self._embedder is None:
            return state
        try:
            pickle.dumps(self._embedder)
        except Exception as error:  # an embedder may contain anything
            raise InputError(
                f"{type(self).__name__} cannot be pickled, since its embedder cannot: {error}. Create it where it "
                "is needed, or pass an embedder of a class that can be pickled."
            ) from error
        # Unpickling passes these to __init__.
        return {**state, "__dict__": {**state["__dict__"], "embedder": self._embedder}}


class AsyncVectorStore(BasePydanticVectorStore):
    """A vector store whose coroutines run in threads, so that they do not block the event loop.

    A cancelled one does nothing more: a change is made as a whole or not at all.
    """

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Run :meth:`add` in a thread."""
        return await in_thread(partial(self.add, nodes, **kwargs), writes=True)

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Run :meth:`delete` in a thread."""
        await in_thread(partial(self.delete, ref_doc_id, **delete_kwargs), writes=True)

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Run :meth:`delete_nodes` in a thread."""
        await in_thread(partial(self.delete_nodes, node_ids, filters, **delete_kwargs), writes=True)

    async def aclear(self) -> None:
        """Run :meth:`clear` in a thread."""
        await in_thread(self.clear, writes=True)

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Run :meth:`get_nodes` in a thread."""
        return await in_thread(partial(self.get_nodes, node_ids, filters))

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Run :meth:`query` in a thread."""
        return await in_thread(partial(self.query, query, **kwargs))


# To wait for searches that run in other threads.
_LOCK_WAIT_SECONDS = 5.0


class StoreAccess(PicklesEmbedder, AsyncVectorStore):
    """A vector store over ``path``, a file or the URL of a store in Postgres."""

    stores_text: bool = True
    path: str
    _store: Any = PrivateAttr(default=None)
    _embedder: Any = PrivateAttr(default=None)
    _checked: Any = PrivateAttr(default=None)

    def __init__(
        self,
        path: str | os.PathLike[str] = "",
        client: Store | PostgresStore | None = None,
        embedder: AnyEmbedder | None = None,
        **fields: Any,
    ) -> None:
        only_fields(type(self), fields)  # those of llama-index, by which it unpickles
        named = path if client is None else client.path if isinstance(client, Writes) else ""
        if not isinstance(named, (str, os.PathLike)) or not os.fspath(named):
            raise InputError(
                "Pass the path of one file or the URL of a store in Postgres, or an open Store or PostgresStore as "
                "client: a vector store of llama-index is written to. SqlragRetriever searches several files."
            )
        super().__init__(path=os.fspath(named))  # type: ignore[call-arg]
        self._store, self._embedder = client, embedder

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], embedder: AnyEmbedder | None = None) -> Self:
        """Return the store of a file."""
        return cls(path, embedder=embedder)

    @property
    def client(self) -> Any:
        """The open store that was given, else None."""
        return self._store

    @contextmanager
    def _open(self, *, read_only: bool = True) -> Iterator[Store | PostgresStore]:
        deadline = time.monotonic() + _LOCK_WAIT_SECONDS
        with ExitStack() as opened:
            while True:
                try:
                    store = opened.enter_context(
                        open_store(self._store or self.path, read_only=read_only, embedder=self._embedder)
                    )
                    break
                except StoreLockedError as error:
                    # Another thread of this process has the file open for reading; DuckDB does not open it for both.
                    if error.pid != os.getpid() or time.monotonic() > deadline:
                        raise
                    time.sleep(0.01)
            yield store

    def check_embedder(self, embedder: AnyEmbedder | None) -> None:
        """Raise ModelMismatchError unless a model is that of the store, where there is one; each is asked once."""
        if embedder is not None and (self._store is not None or is_there(self.path)):
            with self._open() as store:
                self._check(store, embedder)

    def _check(self, store: Store | PostgresStore, embedder: AnyEmbedder) -> None:
        asked = (embedder, store.get_embedding_metadata()["embedding"])
        if self._checked != asked:
            store.check_embedder(embedder)
            self._checked = asked

    def _write(self, dimensions: int, write: Callable[[Store | PostgresStore], None]) -> None:
        """Write to the store; a missing file is created for vectors of this length, complete or not at all."""
        while self._store is None and not is_address(self.path) and not real_path(self.path).exists():
            if self._create(dimensions, write):
                return
        with self._open(read_only=False) as store:
            if self._embedder is not None:
                self._check(store, self._embedder)
            write(store)

    def _create(self, dimensions: int, write: Callable[[Store | PostgresStore], None]) -> bool:
        """Create the file under a temporary name; return False if another thread or process created it first."""
        output = check_output(self.path, overwrite=True)
        with temporary_beside(output) as temporary:
            with Store.create(temporary, dimensions, embedder=self._embedder) as store:
                write(store)
            # Once it is closed, another process may remove it as a leftover.
            with suppress(StoreExistsError, FileNotFoundError):
                put_in_place(temporary, output, overwrite=False)
                return True
        return False


def is_there(path: str) -> bool:
    """Return whether there may be a store: a file that exists, or an address."""
    return bool(path) and (is_address(path) or real_path(path).exists())


_MODES: dict[Mode, Any] = {
    Mode.DEFAULT: StoreVectorOptions,
    Mode.TEXT_SEARCH: StoreLexicalOptions,
    Mode.SPARSE: StoreLexicalOptions,
    Mode.HYBRID: StoreHybridOptions,
    Mode.MMR: StoreVectorOptions,
}

OF_WORDS = (Mode.TEXT_SEARCH, Mode.SPARSE)

# These options come from the query itself.
_OF_THE_QUERY = {"query_vector", "top_k"}


def search(
    store: Store | PostgresStore, query: VectorStoreQuery, options: dict[str, Any]
) -> tuple[list[tuple[str, float]], Results]:
    """Return (node_id, score), best first, and the results of a query; ``options`` are further arguments of the search.

    Raises
    ------
    InputError
        The mode is unknown, something that it needs is missing, or the search has no such option.
    """
    mode, text, top_k = Mode(query.mode), query.query_str or "", query.similarity_top_k
    if mode not in _MODES:
        raise InputError(f"There is no mode {mode.value!r} here. Modes: {', '.join(one.value for one in _MODES)}.")
    known = _MODES[mode].__optional_keys__ - _OF_THE_QUERY
    known |= {"mmr_threshold", "mmr_prefetch_k"} if mode is Mode.MMR else set()
    other_names = dict.fromkeys(("top_k", "k"), "similarity_top_k of the VectorStoreQuery")
    check_names(f"A query of the mode {mode.value!r}", options, known, other_names)
    options = {**canonical(options), "metadata": restrictions(query, options.get("metadata"))}
    if mode is Mode.MMR:
        return _diverse(store, query, options)
    if mode is Mode.DEFAULT:
        results = store.vector_query(text, top_k=top_k, query_vector=query.query_embedding, **options)
    elif mode is Mode.HYBRID:
        results = store.hybrid_query(text, **{**_hybrid(query), **options})
    else:
        results = store.lexical_query(text, top_k=query.sparse_top_k or top_k, **options)
    return [(row["node_id"], row["score"]) for row in results], results


def _hybrid(query: VectorStoreQuery) -> dict[str, Any]:
    """Return the arguments of a hybrid search: with alpha the fusion is convex, without it adaptive."""
    return {
        "top_k": query.hybrid_top_k or query.similarity_top_k,
        "vector_top_k": query.similarity_top_k if query.hybrid_top_k else None,
        "lexical_top_k": query.sparse_top_k,
        "query_vector": query.query_embedding,
        **({} if query.alpha is None else {"fusion": "convex", "alpha": query.alpha}),
    }


def _diverse(
    store: Store | PostgresStore, query: VectorStoreQuery, options: dict[str, Any]
) -> tuple[list[tuple[str, float]], Results]:
    """Return the nodes that Maximal Marginal Relevance selects from the nearest ones."""
    threshold = options.pop("mmr_threshold", query.mmr_threshold)
    threshold = 0.5 if threshold is None else number("mmr_threshold", threshold, 0, 1)
    pool = options.pop("mmr_prefetch_k", max(50, 4 * query.similarity_top_k))
    vector: Any = query.query_embedding  # a list, or a numpy array, which has no truth value
    if vector is None or len(vector) == 0:
        vector = store.query_vector(query.query_str or "")
    results = store.vector_query(query.query_str or "", top_k=pool, query_vector=vector, **options)
    if not results:
        return [], results
    picked = rerank(
        query.query_str or "a vector",  # vectors alone are compared
        results.found,
        top_n=query.similarity_top_k,
        diversity=1 - threshold,
        vectors=store.vectors([row["node_id"] for row in results]),
        query_vector=vector,
    )
    return [(one.node_id, one.score) for one in picked], results


class SqlragVectorStore(StoreAccess):
    """Stores nodes in a DuckDB file of sqlrag, which all other interfaces of sqlrag can search.

    ``path`` is the file; it is opened for each call, and created by the first :meth:`add`. Or it is the URL of a store
    in Postgres. ``client`` is an open :class:`sqlrag.Store` or :class:`sqlrag.PostgresStore` instead, which is faster;
    the caller closes it. ``embedder`` embeds questions without a vector; a file that is created records its model, and
    that of a file that exists must be the same: another raises :class:`sqlrag.ModelMismatchError`.
    """

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which llama-index stores it."""
        return "SqlragVectorStore"

    def add(self, nodes: Sequence[BaseNode], **add_kwargs: Any) -> list[str]:
        """Write nodes with their embeddings, in place of those with the same ids; return the ids.

        ``add_kwargs`` are fields of new chunks: ``collection``, ``tags``; a replaced node keeps its own.
        """
        if not nodes:
            return []
        check_names("add", add_kwargs, ("collection", "tags"), {})
        vectors, ids = vectors_of(nodes), [clean_name(node.node_id) for node in nodes]

        def write(store: Store | PostgresStore) -> None:
            stored = {chunk.node_id: chunk for chunk in store.chunks(node_ids=ids)}
            store.add_chunks(
                [chunk_of(node, stored.get(node_id), add_kwargs) for node, node_id in zip(nodes, ids, strict=True)],
                vectors=vectors,
            )

        self._write(len(vectors[0]), write)
        return ids

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete a document and its nodes, if it exists."""
        check_names("delete", delete_kwargs, (), {})
        with self._open(read_only=False) as store:
            store.delete_documents(doc_ids=ref_doc_id)

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Delete nodes by their ids, by filters, or by both."""
        check_names("delete_nodes", delete_kwargs, (), {})
        with self._open(read_only=False) as store:
            store.delete_chunks(node_ids=node_ids, metadata=condition_of(filters))

    def clear(self) -> None:
        """Delete every document."""
        with self._open(read_only=False) as store:
            store.delete_documents(doc_ids=sorted({chunk.doc_id for chunk in store.chunks()}))

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Return nodes by their ids (in this order), by filters (in reading order), or by both."""
        with self._open() as store:
            found = [chunk.node_id for chunk in store.chunks(node_ids=node_ids, metadata=condition_of(filters))]
            known = set(found)
            return nodes_of(
                store, found if node_ids is None else [one for one in map(clean_name, node_ids) if one in known]
            )

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Return the nodes for a query, best first; ``kwargs`` are further arguments of the search."""
        with self._open() as store:
            if self._embedder is not None and Mode(query.mode) not in OF_WORDS:
                self._check(store, self._embedder)
            ranked, results = search(store, query, kwargs)
            nodes = nodes_of(store, [node_id for node_id, _ in ranked])
        add_facts(nodes, results)
        for notice in results.notices:
            log.warning(notice)
        return VectorStoreQueryResult(nodes, [score for _, score in ranked], [node_id for node_id, _ in ranked])
