"""Search in a ``.ragmd`` file, or in FAISS + JSON, held in memory: no database is made."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlrag import options
from sqlrag.embedders.batching import embed_texts
from sqlrag.embedders.stored import check_stored
from sqlrag.errors import InputError
from sqlrag.formats.contents import Contents, at_unit_length, checked_batches
from sqlrag.formats.exchange import store_settings
from sqlrag.formats.faiss_json import load_faiss_json, pair_of, write_faiss_json
from sqlrag.formats.files import existing
from sqlrag.formats.ragmd import is_ragmd, load_ragmd, write_ragmd
from sqlrag.store.metadata import model_identity
from sqlrag.store.vectors import unit_vector

if TYPE_CHECKING:
    import os

    from sqlrag.formats.contents import Batch
    from sqlrag.formats.files import Exported
    from sqlrag.retrieval.results import Results
    from sqlrag.types import AnyEmbedder, Candidate, Embedder, Vectors


class SingleFileRAGService:
    """Searches the vectors of a ``.ragmd`` file, exactly and in memory.

    Used with ``async with``, which loads the file and the model; searches then are safe to run at the same time.

    Parameters
    ----------
    service_name
        The embedding provider of :func:`sqlrag.load_embedder`, such as "ollama", "openai" or "onnx".
    model
        What it calls the model. None: the one that the file names.
    ragmd_path
        The file; it may be named as you like.
    embedder
        An embedder that is there already, in place of both names.

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
            raise InputError("service_name is missing: the embedding provider, such as 'ollama', or give an embedder.")
        if ragmd_path is None:
            raise InputError("ragmd_path is missing: the file to search, such as 'kb.ragmd'.")
        self.service_name = service_name
        self.model = model
        options.texts(service_name=service_name, model=model)
        self.path = Path(options.path("ragmd_path", ragmd_path))
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
        """Let go of the file's contents; nothing is saved."""
        self.contents = self._batch = self._embedder = None
        self._vectors = np.empty((0, 0), np.float32)

    def initialize_search_backend(self) -> None:
        """Load the file, then the model, and make sure that it is the one of the file.

        Raises
        ------
        NotFoundError
            There is no such file.
        FormatError
            It is damaged or of another format.
        ModelMismatchError
            The model is not the one that made the vectors.
        ModelUnavailableError, MissingExtraError, ProviderError
            The model cannot be loaded, or does not answer.
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
        """Load another ``.ragmd`` file in place of what is there; the model stays, and must be the one of the file.

        Raises
        ------
        NotFoundError, FormatError
            The file is not there, damaged or of another format.
        ModelMismatchError
            The model is not the one that made its vectors. What was loaded before stays.
        """
        contents = load_ragmd(existing(path))
        if self._embedder is not None:
            check_stored(self._embedder, model_identity(store_settings(contents)))
        self._take(contents)

    def save_to_ragmd(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Exported:
        """Write what is loaded into another ``.ragmd`` file, whole or not at all; see :func:`sqlrag.export_ragmd`."""
        return write_ragmd(self._loaded(), path, overwrite=overwrite)

    def save(self) -> Exported:
        """Write what is loaded into the service's own file, in its place."""
        return self.save_to_ragmd(self.path, overwrite=True)

    async def search(self, query: str, k: int = 5, *, include_documents: bool = False) -> Results:
        """Find the chunks that are nearest to a question by the cosine of their vectors, all of which are compared.

        Parameters
        ----------
        query
            The question.
        k
            How many chunks, 1 or more.
        include_documents
            Give the document of each in ``source_doc``.

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
            The model does not answer.
        """
        if not isinstance(query, str) or not query.strip():
            raise InputError("The query is blank. Pass a question.")
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise InputError(f"k must be a whole number from 1 on, not {options.shown(k)}.")
        return await asyncio.to_thread(self._search, query, k, include_documents)

    def _search(self, query: str, k: int, include_documents: bool) -> Results:
        from sqlrag.retrieval.blocks import package

        self._loaded()
        if self._embedder is None:
            raise InputError("No model is loaded. Use the service with: async with SingleFileRAGService(…) as rag.")
        batch, vectors = self._batch, self._vectors
        assert batch is not None  # noqa: S101 - loaded with the contents
        vector = embed_texts(self._embedder, [query], kind="query")[0]
        found = _nearest(batch, vectors, unit_vector(vector, vectors.shape[1]), k)
        sources = _sources(batch, {candidate.doc_id for candidate in found}) if include_documents else None
        return package(found, query_text=query, sources=sources)

    # What is loaded.

    def _load(self, path: Path) -> Contents:
        return load_ragmd(existing(path))

    def _take(self, contents: Contents) -> None:
        (batch,) = checked_batches(contents.batches, contents.dimensions)
        vectors, _ = at_unit_length(batch.vectors)
        self.contents, self._batch, self._vectors = contents, batch, vectors

    def _loaded(self) -> Contents:
        if self.contents is None:
            raise InputError("Nothing is loaded. Use the service with: async with …, or call load_from_ragmd first.")
        return self.contents

    def _settings(self) -> dict[str, str]:
        return store_settings(self._loaded())

    def _prefixes(self) -> dict[str, Any]:
        """Return the prefixes that the file names; other programs name none, and then the model's own are taken."""
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
        """Write what is loaded into the service's own two files, in their places."""
        return write_faiss_json(self._loaded(), self.path, overwrite=True)


def rag_service(
    service_name: str | None = None,
    model: str | None = None,
    path: str | os.PathLike[str] | None = None,
    *,
    embedder: AnyEmbedder | None = None,
) -> SingleFileRAGService:
    """Return the service that fits to a file: by the suffix ``.ragmd``, ``.faiss`` or ``.json``, or by its content.

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
    suffix = Path(options.path("path", path)).suffix.lower()
    if suffix in (".faiss", ".json"):
        return FaissRAGService(service_name, model, path, embedder=embedder)
    if suffix == ".ragmd" or is_ragmd(path):
        return SingleFileRAGService(service_name, model, path, embedder=embedder)
    raise InputError(
        f"{path} cannot be searched in memory: it is neither .ragmd nor FAISS + JSON. sqlrag.Store opens a store."
    )


def _nearest(batch: Batch, vectors: Vectors, vector: Vectors, k: int) -> list[Candidate]:
    """Return the k nearest chunks; the rows are in the order of doc_id and chunk_index, which settles ties."""
    from sqlrag.types import Candidate

    near = vectors @ vector
    count = min(len(near), 2 * k + 64)
    chosen = np.sort(np.argpartition(-near, count - 1)[:count]) if count else np.empty(0, np.int64)
    # Equal vectors have to have equal scores, wherever they lie; a product of matrices does not see to that.
    exact = (vectors[chosen].astype(np.float64) * vector).sum(axis=1).round(9)
    order = np.argsort(-exact, kind="stable")[:k]
    best, scores = chosen[order], exact[order].tolist()
    rows = batch.chunks.take(best).to_pylist()
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
        )
        for rank, (row, score) in enumerate(zip(rows, scores, strict=True), start=1)
    ]


def _sources(batch: Batch, doc_ids: set[str]) -> dict[str, dict[str, Any]]:
    """Return documents as results hold them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    chosen = batch.sources.filter(pc.is_in(batch.sources["doc_id"], pa.array(sorted(doc_ids))))
    rows = chosen.select(["doc_id", "file_path", "file_name", "text", "metadata_"]).to_pylist()
    for row in rows:
        row["metadata"] = json.loads(row.pop("metadata_"))
    return {row["doc_id"]: row for row in rows}
