"""Searches a ``.ragmd`` file, or FAISS + JSON, in memory, without a database."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlrag import arguments
from sqlrag.embedders.base import check_stored
from sqlrag.embedders.batching import embed_texts
from sqlrag.engines.contents import Contents, at_unit_length, checked_batches
from sqlrag.engines.duckdb.documents import shown_column
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.metadata import model_identity
from sqlrag.errors import InputError
from sqlrag.formats.exchange import store_settings
from sqlrag.formats.faiss_json import load_faiss_json, pair_of, write_faiss_json
from sqlrag.formats.ragmd import is_ragmd, load_ragmd, write_ragmd
from sqlrag.formats.targets import existing
from sqlrag.normalize import is_blank
from sqlrag.ranking.vectors import unit_vector

if TYPE_CHECKING:
    import os

    import pyarrow as pa

    from sqlrag.engines.contents import Batch
    from sqlrag.formats.targets import Exported
    from sqlrag.ranking.results import Results
    from sqlrag.types import AnyEmbedder, Candidate, Embedder, Vectors


@public
class SingleFileRAGService:
    """Searches the vectors of a ``.ragmd`` file, exactly and in memory.

    Used with ``async with``, which loads the file and the model; searches can run concurrently.

    Parameters
    ----------
    service_name
        The embedding provider of :func:`sqlrag.load_embedder`, such as "ollama", "openai" or "onnx".
    model
        The provider's name of the model. None: the model that the file names.
    ragmd_path
        The file, of any name.
    embedder
        An embedder, instead of both names.

    Examples
    --------
    ``async with SingleFileRAGService("ollama", "nomic-embed-text", "kb.ragmd") as rag: await rag.search("a question")``
    """

    def __init__(
        self,
        service_name: str | None = None,
        model: str | None = None,
        ragmd_path: str | os.PathLike[str] | None = None,
        *,
        embedder: AnyEmbedder | None = None,
    ) -> None:
        if service_name is None and embedder is None:
            raise InputError("service_name is missing: the embedding provider, such as 'ollama', or pass an embedder.")
        if ragmd_path is None:
            raise InputError("ragmd_path is missing: the file to search, such as 'kb.ragmd'.")
        self.service_name = service_name
        self.model = model
        arguments.texts(service_name=service_name, model=model)
        self.path = Path(arguments.path("ragmd_path", ragmd_path))
        self.contents: Contents | None = None
        self._given = embedder
        self._embedder: Embedder | None = None
        self._batch: Batch | None = None
        self._vectors: Vectors = np.empty((0, 0), np.float32)

    async def __aenter__(self) -> SingleFileRAGService:
        """Load the file and the model, in a thread."""
        await asyncio.to_thread(self.initialize_search_backend)
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Release the file's contents; nothing is saved."""
        self.contents = self._batch = self._embedder = None
        self._vectors = np.empty((0, 0), np.float32)

    def initialize_search_backend(self) -> None:
        """Load the file, then the model, and check that it is the model of the file.

        Raises
        ------
        NotFoundError
            The file does not exist.
        FormatError
            It is damaged or of another format.
        ModelMismatchError
            The model is not that of the vectors.
        ModelUnavailableError, MissingExtraError, ProviderError
            The model cannot be loaded, or does not respond.
        """
        from sqlrag.embedders import as_embedder, load_embedder

        self._take(self._load(self.path))
        if self._given is not None:
            embedder = as_embedder(self._given)
        else:
            name = self.model or self._settings().get("embedding_model")
            embedder = load_embedder(name, provider=str(self.service_name), **self._prefixes())
        check_stored(embedder, model_identity(self._settings()))
        self._embedder = embedder

    def load_from_ragmd(self, path: str | os.PathLike[str]) -> None:
        """Replace the loaded file by another ``.ragmd`` file; the model stays, and must be that of the file.

        Raises
        ------
        NotFoundError, FormatError
            The file does not exist, is damaged or of another format.
        ModelMismatchError
            The model is not that of its vectors. The earlier contents stay loaded.
        """
        contents = load_ragmd(existing(path))
        if self._embedder is not None:
            check_stored(self._embedder, model_identity(store_settings(contents)))
        self._take(contents)

    def save_to_ragmd(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Exported:
        """Write the loaded contents to another ``.ragmd`` file; see :func:`sqlrag.export_ragmd`."""
        return write_ragmd(self._loaded(), path, overwrite=overwrite)

    def save(self) -> Exported:
        """Write the loaded contents to the service's own file."""
        return self.save_to_ragmd(self.path, overwrite=True)

    async def search(self, query: str, k: int = 5, *, include_documents: bool = False) -> Results:
        """Find the chunks nearest to a question by the cosine of their vectors, with an exact search.

        Parameters
        ----------
        query
            The question.
        k
            How many chunks, 1 or more.
        include_documents
            Include the document of each chunk in ``source_doc``.

        Returns
        -------
        Results
            At most ``k``, best first, ties by ``doc_id`` and ``chunk_index``; the keys are those of
            :func:`sqlrag.vector_query`. The metadata of a chunk whose key is not ``chunk-`` and its number have it as
            ``chunk_key``.

        Raises
        ------
        InputError
            The question is blank, ``k`` is less than 1, or nothing is loaded.
        ProviderError
            The model does not respond.
        """
        if not isinstance(query, str) or is_blank(query):
            raise InputError("The query is blank. Pass a question.")
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise InputError(f"k must be a whole number of 1 or more, not {arguments.shown(k)}.")
        return await asyncio.to_thread(self._search, query, k, include_documents)

    def _search(self, query: str, k: int, include_documents: bool) -> Results:
        from sqlrag.blocks.fuse import package

        self._loaded()
        if self._embedder is None:
            raise InputError("No model is loaded. Use the service with: async with SingleFileRAGService(…) as rag.")
        batch, vectors = self._batch, self._vectors
        assert batch is not None  # noqa: S101 - loaded with the contents
        vector = embed_texts(self._embedder, [query], kind="query")[0]
        found = _nearest(batch, vectors, unit_vector(vector, vectors.shape[1]), k)
        sources = _sources(batch, {candidate.doc_id for candidate in found}) if include_documents else None
        return package(found, query_text=query, sources=sources)

    # Loaded contents.

    def _load(self, path: Path) -> Contents:
        return load_ragmd(existing(path))

    def _take(self, contents: Contents) -> None:
        (batch,) = checked_batches(contents)
        vectors, _ = at_unit_length(batch.vectors)
        self.contents, self._batch, self._vectors = contents, batch, vectors

    def _loaded(self) -> Contents:
        if self.contents is None:
            raise InputError("Nothing is loaded. Use the service with: async with …, or call load_from_ragmd first.")
        return self.contents

    def _settings(self) -> dict[str, str]:
        return store_settings(self._loaded())

    def _prefixes(self) -> dict[str, Any]:
        """Return the prefixes in the file; files of other programs have none, and the model's own are used."""
        settings = self._loaded().settings
        if "fingerprint" not in settings:
            return {}
        return {name: settings.get(name, "") for name in ("query_prefix", "passage_prefix")}


class FaissRAGService(SingleFileRAGService):
    """The same over ``vectors-MODEL.faiss`` and ``metadata-MODEL.json``; ``ragmd_path`` is one of them."""

    def _load(self, path: Path) -> Contents:
        index_path, json_path = pair_of(path)
        return load_faiss_json(existing(index_path), existing(json_path))

    def save(self) -> Exported:
        """Write the loaded contents to the service's own two files."""
        return write_faiss_json(self._loaded(), self.path, overwrite=True)


@public
def rag_service(
    service_name: str | None = None,
    model: str | None = None,
    path: str | os.PathLike[str] | None = None,
    *,
    embedder: AnyEmbedder | None = None,
) -> SingleFileRAGService:
    """Return the service for a file: by the suffix ``.ragmd``, ``.faiss`` or ``.json``, or by its content.

    Parameters
    ----------
    service_name, model, embedder
        As for :class:`SingleFileRAGService`.
    path
        The file.

    Returns
    -------
    SingleFileRAGService
        Not loaded yet: use it with ``async with``.

    Raises
    ------
    InputError
        The file is of neither kind; a store (``.duckdb``) is opened with :class:`sqlrag.Store`.
    """
    if path is None:
        raise InputError("path is missing: the file to search, such as 'kb.ragmd'.")
    suffix = Path(arguments.path("path", path)).suffix.lower()
    if suffix in (".faiss", ".json"):
        return FaissRAGService(service_name, model, path, embedder=embedder)
    if suffix == ".ragmd" or is_ragmd(path):
        return SingleFileRAGService(service_name, model, path, embedder=embedder)
    raise InputError(
        f"{path} cannot be searched in memory: it is neither .ragmd nor FAISS + JSON. sqlrag.Store opens a store."
    )


def _nearest(batch: Batch, vectors: Vectors, vector: Vectors, k: int) -> list[Candidate]:
    """Return the k nearest chunks; the rows are in the order of doc_id and chunk_index, which breaks ties."""
    from sqlrag.types import Candidate

    near = vectors @ vector
    count = min(len(near), 2 * k + 64)
    chosen = np.sort(np.argpartition(-near, count - 1)[:count]) if count else np.empty(0, np.int64)
    # Equal vectors must have equal scores; a matrix product does not guarantee that.
    exact = (vectors[chosen].astype(np.float64) * vector).sum(axis=1).round(9)
    order = np.argsort(-exact, kind="stable")[:k]
    best, scores = chosen[order], exact[order].tolist()
    chunks = batch.chunks.take(best)
    rows = chunks.to_pylist()
    seen = shown_column(_documents(batch, {row["doc_id"] for row in rows}), chunks)
    return [
        Candidate(
            doc_id=row["doc_id"],
            chunk_index=row["chunk_index"],
            content=row["text"],
            score=score,
            tags=tuple(row["tags"]),
            metadata=json.loads(row["metadata_"]),
            collection=row["collection"],
            i_start=row["i_start"],
            i_end=row["i_end"],
            page=row["page"],
            heading_path=tuple(row["heading_path"]),
            score_type="vector",
            vector_score=score,
            vector_rank=rank,
            node_id=row["node_id"],
            shown=shown,
        )
        for rank, (row, score, shown) in enumerate(zip(rows, scores, seen, strict=True), start=1)
    ]


def _documents(batch: Batch, doc_ids: set[str]) -> pa.Table:
    """Return the rows of some documents."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return batch.sources.filter(pc.is_in(batch.sources["doc_id"], pa.array(sorted(doc_ids), pa.string())))


def _sources(batch: Batch, doc_ids: set[str]) -> dict[str, dict[str, Any]]:
    """Return documents in the form of results."""
    rows = _documents(batch, doc_ids).select(["doc_id", "file_path", "file_name", "text", "metadata_"]).to_pylist()
    for row in rows:
        row["metadata"] = json.loads(row.pop("metadata_"))
    return {row["doc_id"]: row for row in rows}
