"""The Store: an open file for many queries and for ready-made vectors."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, TypeVar

from sqlrag import arguments
from sqlrag.arguments import counted
from sqlrag.embedders.base import GIVEN, as_embedder
from sqlrag.engines.duckdb import check, documents, lexical
from sqlrag.engines.duckdb.chunks import FileRows
from sqlrag.engines.duckdb.database import Database, check_replaceable
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.files import check_memory_limit, check_output
from sqlrag.engines.duckdb.legs import as_text
from sqlrag.engines.duckdb.metadata import initialize, now
from sqlrag.engines.duckdb.rewrite import check_not_open, new_file
from sqlrag.engines.duckdb.rows import read_documents
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.engines.resident.follow import engine_of
from sqlrag.errors import InputError, ModelMismatchError
from sqlrag.network import is_remote, refuse_address
from sqlrag.normalize import is_blank, without_surrogates
from sqlrag.ranking.plan import DEFAULT_HEADING_WEIGHT, HEADING_WEIGHT
from sqlrag.search.query_log import query_log
from sqlrag.search.searcher import Searcher
from sqlrag.search.writes import Writes
from sqlrag.settings import Settings, checked_settings
from sqlrag.types import ChunkPolicy, ModelIdentity

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from sqlrag.engines.duckdb.chunks import Rows
    from sqlrag.engines.duckdb.documents import DeleteReport
    from sqlrag.types import AnyEmbedder, Document, Embedder

T = TypeVar("T")


@public
class Store(Writes):
    """A store file, open for as many queries as you like. A context manager.

    Parameters
    ----------
    path
        The DuckDB file; or the ``https://``, ``s3://``, ``gs://``, ``r2://`` or ``hf://`` address of one, which is only
        read, in the ranges that searches need, where DuckDB's extension ``httpfs`` is installed.
    read_only
        False to write with :meth:`upsert`. While a file is open for writing no other process can open it.
    embedder
        What embeds the questions. Without it the model that the file names is loaded at the first question.
    wait_seconds
        How long to wait for another process that holds the file, in seconds. None: as the settings say.
    threads
        How many threads DuckDB may use, for every user of this file in the process. Results do not depend on it.
    memory_limit
        How much memory DuckDB may use, such as "500MB" or "2GB", for every user of this file in the process; by default
        four fifths of the machine's. What does not fit is kept in the folder ``FILE.tmp`` meanwhile.
    trust
        Open a file as well where a view or macro that searches run is not that of this release. None: as the settings
        say. What a file holds is kept from other files and the network in any case.
    resident
        Search in memory: True reads the file into memory in the background, as soon as it is open; None does when 20
        questions have been asked; False never. SQL answers until then, and wherever memory cannot: while the file
        changes, where its arrays take more than ``resident_mb`` of the settings, with quotes or stars, and
        ``exact=True``. The results are the same; ``methods`` of them says which answered, and why.
    settings
        Where queries are logged, how long to wait, what to trust, and how much memory to take. None: what the
        environment variables say.

    Raises
    ------
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError
        See :mod:`sqlrag.errors`.

    Examples
    --------
    >>> with Store("kb.duckdb") as store:  # doctest: +SKIP
    ...     for question in questions:
    ...         store.hybrid_query(question, top_k=3)
    """

    path: Path
    _database: Database

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        read_only: bool = True,
        embedder: AnyEmbedder | None = None,
        wait_seconds: float | None = None,
        threads: int | None = None,
        memory_limit: str | None = None,
        trust: bool | None = None,
        resident: bool | None = None,
        settings: Settings | None = None,
    ) -> None:
        arguments.path("path", path)
        read_only = arguments.flag("read_only", read_only)
        resident = None if resident is None else arguments.flag("resident", resident)
        check_memory_limit(memory_limit)
        threads = None if threads is None else arguments.whole("threads", threads, 1, 1024)
        settings = checked_settings(settings)
        wait = settings.wait_seconds if wait_seconds is None else Settings(wait_seconds=wait_seconds).wait_seconds
        trust = settings.trust if trust is None else trust
        if is_remote(path) and read_only:
            database = Database.open_remote(str(path), trust=trust)
        else:
            database = Database.open(path, read_only=read_only, wait_seconds=wait, trust=trust)
        self._use(database, embedder, threads, memory_limit, settings, resident)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        dimensions: int,
        *,
        model_name: str = GIVEN,
        stemmer: str = lexical.DEFAULT_STEMMER,
        heading_weight: float = DEFAULT_HEADING_WEIGHT,
        embedder: AnyEmbedder | None = None,
        overwrite: bool = False,
        memory_limit: str | None = None,
    ) -> Store:
        """Make an empty store for ready-made vectors and return it, open for writing.

        Parameters
        ----------
        path
            The file to make.
        dimensions
            The length of the vectors, 1 to 65,536.
        model_name
            What made the vectors, for people to read.
        stemmer, heading_weight
            Of the lexical index: "porter", another algorithm of Snowball or "none"; the weight of headings, 0 or more.
        embedder
            Its identity is stored, and questions are embedded with it.
        overwrite
            Put the new store in the place of one that is there.
        memory_limit
            As in :class:`Store`.

        Raises
        ------
        StoreExistsError
            The file exists and ``overwrite`` is False.
        InputError
            ``dimensions`` is not from 1 to 65,536, there is no such stemmer, or ``memory_limit`` is no size.
        ModelMismatchError
            The embedder has another number of dimensions.
        """
        from sqlrag.embedders import probe

        arguments.path("path", path)
        dimensions = arguments.whole("dimensions", dimensions, 1, 65_536)
        overwrite = arguments.flag("overwrite", overwrite)
        lexical.check_stemmer(stemmer)
        check_memory_limit(memory_limit)
        heading_weight = float(HEADING_WEIGHT.number("heading_weight", heading_weight))
        if not arguments.text("model_name", model_name).strip():
            raise InputError("model_name is blank.")
        output = check_output(path, overwrite=overwrite)
        check_replaceable(output)
        check_not_open(output)
        embedder = None if embedder is None else as_embedder(embedder)
        identity = probe(embedder) if embedder else ModelIdentity(GIVEN, model_name, dimensions)
        if identity.dimensions != dimensions:
            raise ModelMismatchError(
                f"{identity.model_name} makes vectors of {identity.dimensions} dimensions, not of {dimensions}."
            )
        with (
            new_file(output, overwrite=overwrite) as temporary,
            Database.create(temporary, dimensions) as made,
        ):
            initialize(made, identity, ChunkPolicy(), heading_weight=heading_weight, stemmer=stemmer)
            made.checkpoint()
        database = Database.open(output, read_only=False, trust=True)
        store = cls.__new__(cls)
        store._use(database, embedder, None, memory_limit, Settings.from_environment())
        return store

    def _use(
        self,
        database: Database,
        embedder: AnyEmbedder | None,
        threads: int | None,
        memory_limit: str | None,
        settings: Settings,
        resident: bool | None = None,
    ) -> None:
        self._database = database
        self.path = database.path
        self.paths = [] if database.is_remote else [database.path]
        try:
            record = query_log(settings.query_log, database.path) if settings.query_log is not None else None
            database.limit_threads(threads)
            database.limit_memory(memory_limit)
            wrapped = None if embedder is None else as_embedder(embedder)
            self._engine = engine_of(database, resident, settings.resident_mb)
            self._searcher = Searcher(self._engine, wrapped, record)
        except BaseException:
            database.close()
            raise

    def __repr__(self) -> str:
        """Name the file and its model."""
        identity = self._searcher.identity
        closed = ", closed" if self._database.closed else ""
        return f"Store({str(self.path)!r}, model={identity.model_name!r}, dimensions={identity.dimensions}{closed})"

    def _repr_html_(self) -> str:
        if self._database.closed:
            return summary_html(self.path, {"": "closed"}, [])
        return summary_html(self.path, *summary(self._database))

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. What other threads are searching for then ends with a StoreError."""
        try:
            self._engine.close()
        finally:
            self._searcher.close()

    @property
    def loaded_embedder(self) -> Embedder | None:
        """The model, once a question has needed it: another Store of a file of this model can take it over."""
        return self._searcher.questions.loaded

    def embed_query(self, query_text: str) -> None:
        """Store the vector of a question in ``query_embeddings``, where the shell's macros can take it from.

        Parameters
        ----------
        query_text
            The question.

        Raises
        ------
        InputError
            It is blank.
        ModelUnavailableError, MissingExtraError, ProviderError, ModelMismatchError
            It cannot be embedded.
        StoreError
            The store is open for reading only.
        """
        if is_blank(arguments.text("query_text", query_text)):
            raise InputError("The query is blank. Pass a question or some words.")
        query_text = without_surrogates(query_text)
        vector = self._searcher.embed_query(query_text)
        with self._database.transaction() as con:
            con.execute(
                "INSERT OR REPLACE INTO query_embeddings VALUES ($1, $2, $3, $4)",
                [query_text, as_text(vector), self._searcher.identity.model_name, now()],
            )

    def _changed(self, work: Callable[[Rows], T], doc_ids: Sequence[str] | None = None) -> T:  # noqa: ARG002
        with self._database.transaction() as con:
            return work(FileRows(con))

    def _stored_documents(self, doc_ids: Sequence[str]) -> list[Document]:
        return read_documents(self._database.cursor(), doc_ids)

    def _delete_documents(
        self, doc_ids: list[str] | None, checksum: str | None, filters: dict[str, Any], *, dry_run: bool
    ) -> DeleteReport:
        return documents.delete_documents(self._database, doc_ids, checksum, filters, dry_run=dry_run)

    def check(self, *, quick: bool = False) -> list[check.Problem]:
        """Compare every block with its checksum and run every check of ``sql/checks``; empty where all is sound.

        ``quick`` leaves out the blocks, for which the whole file is read.
        """
        if self._database.is_remote:
            refuse_address(self.path)
        with self._database.working():
            return check.run_checks(self._database, self.dimensions, quick=quick)


def summary(database: Database) -> tuple[dict[str, str], list[str]]:
    """Return the facts about a file by their names, and what is amiss with it."""
    con, path = database.cursor(), database.path
    if database.is_remote:
        where = "on its server"
    else:
        where = f"{path.stat().st_size / 1e6:,.1f} MB" if path.exists() else "the file was removed"
    documents, chunks, model, dimensions, failures, in_step, collections = con.execute(
        read_sql("facets/summary")
    ).fetchall()[0]
    facts = {
        "Model": f"{model} ({dimensions} dimensions)",
        "Documents": f"{documents:,}",
        "Chunks": f"{chunks:,}",
        "Collections": collections or "none",
        "Size": where,
        "Open": "for reading" if database.read_only else "for writing: no other process can open it",
    }
    amiss = [] if in_step else ["The word index does not hold every chunk: repair(db_path) mends it."]
    if failures:
        amiss.append(f"{counted(failures, 'document')} could not be used: FROM ingest_failures says why.")
    return facts, amiss


def summary_html(path: Path | str, facts: Mapping[str, str], amiss: Sequence[str]) -> str:
    """Return a table of facts, escaped; it needs no style of its own."""
    rows = "".join(
        f'<tr><th style="text-align:left">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(value)}</td></tr>'
        for name, value in facts.items()
    )
    notes = "".join(f"<p><em>Note: {html.escape(note)}</em></p>" for note in amiss)
    return f"<div><p><strong>Store</strong> {html.escape(str(path))}</p>{notes}<table>{rows}</table></div>"
