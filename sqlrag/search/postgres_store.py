"""The store in Postgres: the same questions, blocks and changes as those of a DuckDB file."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from sqlrag import arguments
from sqlrag.embedders.base import GIVEN, as_embedder
from sqlrag.engines.duckdb import metadata
from sqlrag.engines.duckdb.check import Problem
from sqlrag.engines.duckdb.documents import DeleteReport
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.lexical import DEFAULT_STEMMER, check_stemmer
from sqlrag.engines.duckdb.metadata import initial_metadata, now
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.engines.postgres.conditions import where
from sqlrag.engines.postgres.connection import (
    MOST_DIMENSIONS,
    RETRY_SECONDS,
    Server,
    fitted,
    read_settings,
)
from sqlrag.engines.postgres.engine import PostgresEngine, parsed
from sqlrag.engines.postgres.lexical import rebuild, set_stop_words, words_of_new_stores, wrong_chunks
from sqlrag.engines.postgres.rows import PostgresRows
from sqlrag.errors import InputError, ModelMismatchError
from sqlrag.ranking.plan import DEFAULT_HEADING_WEIGHT, HEADING_WEIGHT
from sqlrag.search.query_log import query_log
from sqlrag.search.searcher import Searcher
from sqlrag.search.store import summary_html
from sqlrag.search.writes import Writes
from sqlrag.settings import Settings, checked_settings
from sqlrag.types import ChunkPolicy, ModelIdentity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlrag.engines.duckdb.chunks import Rows
    from sqlrag.engines.postgres.connection import Connection
    from sqlrag.types import AnyEmbedder, Document, Embedder

T = TypeVar("T")

log = logging.getLogger("sqlrag.store")

_CHECKS = (
    *(
        "blank_chunks",
        "invalid_indexes",
        "missing_chunks",
        "missing_indexes",
        "not_unit_vectors",
        "wrong_collections",
        "wrong_places",
        "wrong_postings",
        "wrong_slices",
    ),
)


# The check whose rows Python finds.
_BY_WORDS = "wrong_postings"

# The migrations from which chunks have a visible text, and an index of words.
_VISIBLE_TEXT = "0002_visible_words"
_WORDS = "0004_bm25"


@public
class PostgresStore(Writes):
    """A store in a Postgres database with pgvector, open for many queries. A context manager.

    It answers what :class:`sqlrag.Store` answers, with the same ids, order and scores; beyond 5,000 chunks the vector
    leg finds nearly all that a search with ``exact=True`` does. What only a DuckDB file has (its SQL, map) raises
    InputError.

    Parameters
    ----------
    url
        ``postgresql://user@host/database``, with ``?schema=NAME`` for a store in another schema than "sqlrag".
    read_only
        False to write with :meth:`upsert`. Any number of processes may write at once.
    embedder
        What embeds the questions. Without it the model that the store names is loaded at the first question.
    wait_seconds
        How long a lost or busy server is tried again, in seconds. None: 10.
    settings
        Where queries are logged. None: what the environment variables say.

    Raises
    ------
    MissingExtraError
        The extra ``postgres`` is not installed.
    StoreError, NotAStoreError, SchemaVersionError
        The server cannot be reached, has no pgvector of 0.8 or later, or no store of this version.

    Examples
    --------
    >>> with PostgresStore("postgresql://localhost/kb") as store:  # doctest: +SKIP
    ...     store.hybrid_query("How do I filter by tag?", top_k=3)
    """

    path: str

    def __init__(
        self,
        url: str,
        *,
        read_only: bool = True,
        embedder: AnyEmbedder | None = None,
        wait_seconds: float | None = None,
        settings: Settings | None = None,
    ) -> None:
        read_only = arguments.flag("read_only", read_only)
        settings = checked_settings(settings)
        wait = RETRY_SECONDS if wait_seconds is None else Settings(wait_seconds=wait_seconds).wait_seconds
        server = Server(arguments.text("url", url), read_only=read_only, wait_seconds=wait)
        server.open()
        try:
            record = query_log(settings.query_log, server.path) if settings.query_log is not None else None
            wrapped = None if embedder is None else as_embedder(embedder)
            self._server = server
            self.path = server.path
            self.paths = []
            self._engine = PostgresEngine(server, server.read(read_settings))
            self._searcher = Searcher(self._engine, wrapped, record)
        except BaseException:
            server.close()
            raise

    @classmethod
    def create(
        cls,
        url: str,
        dimensions: int,
        *,
        model_name: str = GIVEN,
        stemmer: str = DEFAULT_STEMMER,
        heading_weight: float = DEFAULT_HEADING_WEIGHT,
        embedder: AnyEmbedder | None = None,
        overwrite: bool = False,
    ) -> PostgresStore:
        """Make an empty store for ready-made vectors and return it, open for writing.

        Parameters
        ----------
        url
            Where, as in :class:`PostgresStore`. The schema is made; pgvector too, if the user may.
        dimensions
            The length of the vectors, 1 to 16,000.
        model_name, embedder
            As in :meth:`sqlrag.Store.create`.
        stemmer
            As for :meth:`sqlrag.Store.create`: "porter" (English), another language, or "none".
        heading_weight
            The weight of headings beside the text, 0 or more.
        overwrite
            Put the new store in the place of one that is there.

        Raises
        ------
        StoreExistsError
            There is a store and ``overwrite`` is False.
        InputError
            ``dimensions`` is out of its range, or there is no such stemmer.
        ModelMismatchError
            The embedder has another number of dimensions.
        """
        from sqlrag.embedders import probe

        dimensions = arguments.whole("dimensions", dimensions, 1, MOST_DIMENSIONS)
        if not arguments.text("model_name", model_name).strip():
            raise InputError("model_name is blank.")
        embedder = None if embedder is None else as_embedder(embedder)
        identity = probe(embedder) if embedder else ModelIdentity(GIVEN, model_name, dimensions)
        if identity.dimensions != dimensions:
            raise ModelMismatchError(
                f"{identity.model_name} makes vectors of {identity.dimensions} dimensions, not of {dimensions}."
            )
        values = initial_metadata(
            identity,
            ChunkPolicy(),
            header_weight=float(HEADING_WEIGHT.number("heading_weight", heading_weight)),
            stemmer=stemmer,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            llama_index_compatible=True,
        )
        make_store(url, values, overwrite=arguments.flag("overwrite", overwrite))
        return cls(url, read_only=False, embedder=embedder)

    @staticmethod
    def migrate(url: str, *, reindex: bool = False) -> list[str]:
        """Bring a store that an earlier sqlrag made up to date, all or nothing; return what was done.

        Texts and vectors stay as they are. With ``reindex`` the index of words is made anew from the texts, also where
        the store is up to date.
        """
        reindex = arguments.flag("reindex", reindex)
        server = Server(arguments.text("url", url), read_only=False)
        try:
            done = server.migrate(lambda con, done: _finish(con, done, reindex=reindex))
            if done or reindex:
                server.vacuum()
            return done
        finally:
            server.close()

    @staticmethod
    def drop(url: str) -> bool:
        """Remove a store with everything in it; return whether there was one."""
        server = Server(arguments.text("url", url), read_only=False)
        try:
            return server.drop()
        finally:
            server.close()

    def __repr__(self) -> str:
        """Name the address, without a password, and the model."""
        identity = self._searcher.identity
        closed = ", closed" if self._server.closed else ""
        return f"PostgresStore({self.path!r}, model={identity.model_name!r}, dimensions={identity.dimensions}{closed})"

    def _repr_html_(self) -> str:
        if self._server.closed:
            return summary_html(self.path, {"": "closed"}, [])
        settings = self._engine.settings()
        names = {"documents": "total_source_documents", "chunks": "total_chunks", "model": "embedding_model"}
        return summary_html(self.path, {what: settings[key] for what, key in names.items()}, [])

    def __enter__(self) -> PostgresStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connections. What other threads are searching for then ends with a StoreError."""
        try:
            self._server.close()
        finally:
            self._searcher.close()

    @property
    def loaded_embedder(self) -> Embedder | None:
        """The model, once a question has needed it: another store of this model can take it over."""
        return self._searcher.questions.loaded

    def _changed(self, work: Callable[[Rows], T], doc_ids: Sequence[str] | None = None) -> T:
        return self._server.write(lambda con: work(PostgresRows(con, parsed)), doc_ids)

    def _stored_documents(self, doc_ids: Sequence[str]) -> list[Document]:
        return self._server.read(lambda con: PostgresRows(con, parsed).read_documents(doc_ids))

    def _delete_documents(
        self, doc_ids: list[str] | None, checksum: str | None, filters: dict[str, Any], *, dry_run: bool
    ) -> DeleteReport:
        if "folder" in filters:
            raise InputError("A store in Postgres knows no folders. Name doc_ids or a collection in place of folder.")
        started, began = now(), time.perf_counter()

        def delete(con: Connection) -> DeleteReport:
            rows = PostgresRows(con, parsed)
            chosen, chunks = _chosen(con, doc_ids, checksum, filters)
            wanted = list(dict.fromkeys(doc_ids or []))
            known = {document.doc_id for document in rows.read_documents(wanted)}
            unknown = [doc_id for doc_id in wanted if doc_id not in known]
            if dry_run:
                return DeleteReport(chosen, unknown, chunks, "", dry_run=True)
            rows.delete(chosen)
            rows.forget_collections()
            return DeleteReport(chosen, unknown, chunks, metadata.new_run_id(started))

        report = self._server.read(delete) if dry_run else self._server.write(delete)
        log.info("%s: %s, %.1f s", self.path, str(report).splitlines()[0], time.perf_counter() - began)
        return report

    def check(self) -> list[Problem]:
        """Run the checks of ``sql/postgres/checks``, and compare the index of words with the texts.

        An empty list means that the store is sound. :meth:`migrate` with ``reindex=True`` makes the index anew.
        """

        def ask(con: Connection) -> list[Problem]:
            found = []
            for name in _CHECKS:
                sql = read_sql(f"postgres/checks/{name}")
                wrong = wrong_chunks(con, self._engine.metadata["stemmer"]) if name == _BY_WORDS else []
                rows = con.execute(sql, {"wrong": wrong}).fetchall()
                if rows:
                    rule = sql.splitlines()[0].removeprefix("-- ")
                    found.append(Problem(name, rule, len(rows), tuple(str(row[0]) for row in rows[:5])))
            return found

        return self._server.read(ask)


def make_store(
    url: str,
    values: Mapping[str, object],
    *,
    overwrite: bool,
    stop_words: Sequence[str] | None = None,
) -> None:
    """Make an empty store with these keys of ``embedding_metadata``.

    ``stop_words`` as those of a new file, if they are None.

    Raises
    ------
    InputError
        There is no such stemmer.
    StoreExistsError, StoreError
        There is a store already, or none can be made.
    """
    check_stemmer(str(values["stemmer"]))

    def fill(con: Connection) -> None:
        PostgresRows(con, parsed).set_metadata(values)
        set_stop_words(con, words_of_new_stores() if stop_words is None else stop_words)

    server = Server(url, read_only=False)
    try:
        server.create(int(str(values["embedding_dimensions"])), fill, overwrite=overwrite)
    finally:
        server.close()


def _chosen(
    con: Connection, doc_ids: list[str] | None, checksum: str | None, filters: Mapping[str, Any]
) -> tuple[list[str], int]:
    """Return the documents that meet every condition, in order, and how many chunks they have."""
    metadata = filters.get("metadata")
    conditions = where(
        tags_any=filters.get("tags_any"),
        tags_all=filters.get("tags_all"),
        alternatives=None if metadata is None else parsed(metadata),
    )
    others = {"doc_ids": doc_ids, "checksum": checksum, "collection": filters.get("collection")}
    statement = conditions.into(read_sql("postgres/chosen_documents"))
    rows = con.execute(statement, {**conditions.values, **others}).fetchall()
    return [doc_id for doc_id, _ in rows], sum(chunks for _, chunks in rows)


def _finish(con: Connection, done: list[str], *, reindex: bool) -> None:
    """Do what migrations leave to Python."""
    if _VISIBLE_TEXT in done:
        PostgresRows(con, parsed).refresh_shown()
    if _WORDS in done or reindex:
        stops = con.execute("SELECT to_regclass(quote_ident(current_schema()) || '.stopwords')").fetchall()
        con.execute(read_sql(f"postgres/{_WORDS}"))  # what was dropped is there again
        settings = read_settings(con)
        con.execute(fitted(read_sql("postgres/chunk_indexes"), int(settings["embedding_dimensions"])))
        if _WORDS in done or stops == [(None,)]:
            set_stop_words(con, words_of_new_stores())
        rebuild(con, settings["stemmer"])
