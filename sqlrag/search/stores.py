"""The Stores: several open files that are searched as one."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from sqlrag import arguments
from sqlrag.embedders.base import as_embedder
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.files import check_memory_limit
from sqlrag.engines.many import open_parts
from sqlrag.engines.resident.follow import engine_of_many
from sqlrag.normalize import clean_name
from sqlrag.search.queries import Queries
from sqlrag.search.query_log import query_log
from sqlrag.search.searcher import Searcher
from sqlrag.settings import Settings, checked_settings

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from sqlrag.types import AnyEmbedder, Embedder


@public
class Stores(Queries):
    """Several files, open for reading, with one ranking over all of them. A context manager.

    It has the searches of :class:`sqlrag.Store` and what the blocks and :func:`sqlrag.answer` ask of a store. BM25
    counts words and lengths over all files, so that scores, ids and order are those of the file that
    :func:`sqlrag.merge` makes of them; only the sign codes choose their candidates file by file, which is more of them
    in all.

    Parameters
    ----------
    paths
        The DuckDB files: of the same model, stemmer, heading weight and stop words, no document in two of them.
    embedder
        What embeds the questions. Without it the model that the files name is loaded at the first question.
    wait_seconds
        How long to wait for another process that holds a file, in seconds. None: as the settings say.
    threads, memory_limit
        Of DuckDB, for each of the files; as in :class:`sqlrag.Store`.
    trust
        As in :class:`sqlrag.Store`.
    resident
        Search in memory, as in :class:`sqlrag.Store`, where all files are there; they share ``resident_mb`` of the
        settings by their sizes.
    settings
        Where queries are logged, how long to wait, what to trust, and how much memory to take. None: what the
        environment variables say.

    Raises
    ------
    InputError
        None is named or one is named twice, a document is in two of them, or they differ in a setting.
    ModelMismatchError
        Their vectors are of different models.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError
        See :mod:`sqlrag.errors`.

    Examples
    --------
    >>> with Stores(["january.duckdb", "february.duckdb"]) as stores:  # doctest: +SKIP
    ...     results = stores.hybrid_query("rate limits", top_k=3)
    ...     results.files[results[0]["node_id"]]
    PosixPath('/kb/february.duckdb')
    """

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]],
        *,
        embedder: AnyEmbedder | None = None,
        wait_seconds: float | None = None,
        threads: int | None = None,
        memory_limit: str | None = None,
        trust: bool | None = None,
        resident: bool | None = None,
        settings: Settings | None = None,
    ) -> None:
        check_memory_limit(memory_limit)
        resident = None if resident is None else arguments.flag("resident", resident)
        threads = None if threads is None else arguments.whole("threads", threads, 1, 1024)
        settings = checked_settings(settings)
        wait = settings.wait_seconds if wait_seconds is None else Settings(wait_seconds=wait_seconds).wait_seconds
        parts = open_parts(paths, wait, settings.trust if trust is None else trust)
        with ExitStack() as opened:
            for part in parts:
                opened.callback(part.close)
            record = None
            for part in parts:
                part.database.limit_threads(threads)
                part.database.limit_memory(memory_limit)
                if settings.query_log is not None:
                    record = query_log(settings.query_log, part.path)  # which is none of the files
            self.paths = [part.path for part in parts]
            self._engine = self._files = engine_of_many(parts, resident, settings.resident_mb)
            self.path = self._files.path
            self._searcher = Searcher(self._files, None if embedder is None else as_embedder(embedder), record)
            opened.pop_all()

    def __repr__(self) -> str:
        """Name the files and their model."""
        identity = self._searcher.identity
        closed = ", closed" if self._files.closed else ""
        names = [str(path) for path in self.paths]
        return f"Stores({names!r}, model={identity.model_name!r}, dimensions={identity.dimensions}{closed})"

    def __enter__(self) -> Stores:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files. What other threads are searching for then ends with a StoreError."""
        try:
            self._files.close()
        finally:
            self._searcher.close()

    @property
    def loaded_embedder(self) -> Embedder | None:
        """The model, once a question has needed it: another handle of files of this model can take it over."""
        return self._searcher.questions.loaded

    def files_of(self, node_ids: Sequence[str]) -> dict[str, Path]:
        """Return which file holds each chunk.

        Parameters
        ----------
        node_ids
            Their ids; those that no file has are left out.
        """
        return self._files.files_of([clean_name(node_id) for node_id in node_ids])
