"""Reads the contents of a store in DuckDB or Postgres in batches, and writes contents into a store."""

from __future__ import annotations

import json
import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sqlrag.arguments import counted, shown
from sqlrag.embedders.base import SAME_MODEL_COSINE, as_embedder, same_model
from sqlrag.engines.contents import (
    SETTINGS,
    Batch,
    Contents,
    at_unit_length,
    checked_batches,
    chosen_contents,
    scaled_notices,
)
from sqlrag.engines.duckdb import documents, lexical, metadata, row_tables
from sqlrag.engines.duckdb.database import Database, check_replaceable
from sqlrag.engines.duckdb.documents import CHUNK_SCHEMA, SOURCE_SCHEMA
from sqlrag.engines.duckdb.failures import reported
from sqlrag.engines.duckdb.files import check_output, real_path
from sqlrag.engines.duckdb.legs import date_fields
from sqlrag.engines.duckdb.metadata import (
    chunk_policy,
    default_metadata,
    identity_metadata,
    model_identity,
    now,
    policy_metadata,
    read_metadata,
    refresh_counts,
    required_metadata,
    write_metadata,
)
from sqlrag.engines.duckdb.rewrite import new_file
from sqlrag.engines.duckdb.rows import vector_matrix
from sqlrag.engines.duckdb.schema import object_names, read_sql
from sqlrag.engines.postgres.conditions import where
from sqlrag.engines.postgres.connection import Server, read_settings
from sqlrag.engines.postgres.engine import PostgresEngine, parsed
from sqlrag.engines.postgres.rows import as_array
from sqlrag.errors import FormatError, InputError, ModelMismatchError, StoreError
from sqlrag.ingest.chunk import check_policy
from sqlrag.ranking.filters import Filters, check_dates
from sqlrag.ranking.vectors import unit_vectors
from sqlrag.search.open import backend_of, loaded
from sqlrag.types import Chunk

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import duckdb

    from sqlrag.engines.postgres.connection import Connection
    from sqlrag.types import AnyEmbedder, Embedder, ModelIdentity

log = logging.getLogger("sqlrag.formats")


@contextmanager
def postgres_contents(
    url: str, filters: Filters, batch_chunks: int, *, by_collection: bool = False
) -> Iterator[Contents]:
    """Open a store in Postgres and yield its contents; see :func:`sqlrag.formats.exchange.stored_contents`."""
    named = filters.parameters()
    metadata = named.get("metadata")
    conditions = where(
        tags_any=named.get("tags_any"),
        tags_all=named.get("tags_all"),
        alternatives=None if metadata is None else parsed(metadata),
    )
    statement = conditions.into(read_sql("postgres/exchange/chosen_documents"))
    server = Server(url, read_only=True)
    server.open()
    try:
        with server.snapshot() as con:
            settings = read_settings(con)
            check_dates(filters, PostgresEngine(server, settings, con).date_fields)
            values = {**conditions.values, "collection": named.get("collection"), "by_collection": by_collection}
            chosen = [(str(doc_id), int(chunks)) for doc_id, chunks in con.execute(statement, values).fetchall()]
            ((newest,),) = con.execute("SELECT max(created_at) FROM documents").fetchall()
            dimensions = int(settings["embedding_dimensions"])
            stops = [word for (word,) in con.execute("SELECT word FROM stopwords ORDER BY word").fetchall()]
            yield chosen_contents(
                settings, chosen, lambda doc_ids: read_batch(con, doc_ids, dimensions), newest, batch_chunks, stops
            )
    finally:
        server.close()


def read_batch(con: Connection, doc_ids: Sequence[str], dimensions: int) -> Batch:
    """Return documents with their chunks and vectors."""
    sources = _table(con, "sources", doc_ids, SOURCE_SCHEMA)
    with con.cursor(binary=True) as cursor:
        rows = cursor.execute(read_sql("postgres/exchange/chunks"), {"doc_ids": list(doc_ids)}).fetchall()
    columns: list[Any] = list(zip(*rows, strict=True)) or [()] * (len(CHUNK_SCHEMA) + 1)
    columns[2] = [without_node(text) for text in columns[2]]
    chunks = pa.table(
        {name: pa.array(columns[place], CHUNK_SCHEMA.field(name).type) for place, name in enumerate(_CHUNK_NAMES)},
        schema=pa.schema([CHUNK_SCHEMA.field(name) for name in _CHUNK_NAMES]),
    ).select(CHUNK_SCHEMA.names)
    vectors = np.array([as_array(vector) for vector in columns[-1]], dtype=np.float32).reshape(-1, dimensions)
    return Batch(sources, chunks, vectors)


_CHUNK_NAMES = (
    *("node_id", "text", "metadata_", "doc_id", "collection", "chunk_index", "i_start", "i_end", "page"),
    *("heading_path", "tags"),
)


def _table(con: Connection, name: str, doc_ids: Sequence[str], schema: pa.Schema) -> pa.Table:
    with con.cursor(binary=True) as cursor:
        rows = cursor.execute(read_sql(f"postgres/exchange/{name}"), {"doc_ids": list(doc_ids)}).fetchall()
        names = [column.name for column in cursor.description or ()]
    columns: list[Any] = list(zip(*rows, strict=True)) or [()] * len(names)
    arrays = {name: pa.array(column, schema.field(name).type) for name, column in zip(names, columns, strict=True)}
    return pa.table(arrays, schema=pa.schema([schema.field(name) for name in names])).select(schema.names)


def without_node(metadata: str) -> str:
    """Return a chunk's metadata without llama-index's node content, which an import recreates."""
    if "_node_content" not in metadata and "_node_type" not in metadata:
        return metadata
    found = json.loads(metadata)
    return json.dumps(
        {key: value for key, value in found.items() if key not in ("_node_content", "_node_type")},
        ensure_ascii=False,
        sort_keys=True,
    )


BATCH_CHUNKS = 4096

# If a file does not identify its model, the texts of so many chunks are embedded and compared by mean cosine. The limit
# is low, as other programs put headings or prefixes before the text; other models have cosines near 0.
_PROBES = 8

_PROBE_COSINE = 0.8

_CHOICES = {
    "chunk_unit": ("tokens", "chars"),
    "include_headers": ("True", "False"),
    "llama_index_compatible": ("True", "False"),
}


@dataclass(frozen=True)
class Imported:
    """The result of an import: the store, the counts, whether the store is new, and notices."""

    path: Path
    documents: int
    chunks: int
    created: bool
    notices: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Format it as lines."""
        done = "created" if self.created else "updated"
        first = f"{self.path} {done}: {counted(self.documents, 'document')}, {counted(self.chunks, 'chunk')}"
        return "\n".join([first, *self.notices])


@contextmanager
def stored_contents(
    db_path: str | os.PathLike[str],
    collection: str | Sequence[str] | None = None,
    tags_any: Sequence[str] | None = None,
    tags_all: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    *,
    absolute_paths: bool = False,
    by_collection: bool = False,
    batch_chunks: int = BATCH_CHUNKS,
    may_be_none: bool = False,
) -> Iterator[Contents]:
    """Open a file, or a store in Postgres by its URL, and yield its contents.

    These are whole documents of which the document or a chunk passes the filters; unless ``may_be_none`` some has to.
    ``absolute_paths`` is for a file: the paths of its documents begin at the root, not below the folder that they were
    read from. ``by_collection`` gives them one collection after another, in the order of its name.

    Everything is read in one transaction: concurrent writes are not visible.

    Raises
    ------
    InputError
        A filter has a wrong type.
    FormatError
        No document passes the filters.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        The file cannot be read, or has chunks without a document.
    """
    filters = Filters(collection, tags_any, tags_all, metadata)
    backend = backend_of(db_path)
    if not backend.contents:
        raise InputError("Only one store can be read, not several files. Name one of them, or merge them: sqlrag merge")
    paths = {"absolute_paths": True} if absolute_paths else {}
    with loaded(backend.contents)(db_path, filters, batch_chunks, by_collection=by_collection, **paths) as contents:
        if not contents.documents and filters.parameters() and not may_be_none:
            raise FormatError(
                f"There is no document to export: none of {db_path} passes the filters {shown(filters.parameters())}."
            )
        yield contents


@contextmanager
def file_contents(
    db_path: str | os.PathLike[str],
    filters: Filters,
    batch_chunks: int,
    *,
    absolute_paths: bool = False,
    by_collection: bool = False,
) -> Iterator[Contents]:
    """Open a file and yield its contents; see :func:`stored_contents`."""
    wanted = filters.parameters()
    conditions = {name: wanted.get(name) for name in ("collection", "tags_any", "tags_all", "metadata")}
    with Database.open(db_path) as database:
        values = required_metadata(database)
        with snapshot(database) as con:
            check_dates(filters, partial(date_fields, con))
            named = {**conditions, "by_collection": by_collection}
            chosen = con.execute(read_sql("exchange/chosen_documents"), named).fetchall()
            ((newest,),) = con.execute("SELECT max(created_at) FROM source_documents").fetchall()
            # Reported here: where it is called, a file is being written to.
            read_batch = partial(_read_batch, con, int(values["embedding_dimensions"]), absolute_paths)
            read = reported(database.path)(read_batch)
            contents = chosen_contents(values, chosen, read, newest, batch_chunks, _stop_words(con))
            contents.notices += _left_behind(con, wanted.get("collection"))
            yield contents


def _left_behind(con: duckdb.DuckDBPyConnection, collections: Sequence[str] | None) -> list[str]:
    """Return what other files do not take of the tables whose rows are documents."""
    names = [name for name in row_tables.sources(con) if collections is None or name in collections]
    if not names:
        return []
    told = (
        f"What is made of it has the rows of {', '.join(names)} as documents with metadata. Their columns with types "
        "(the views rows_of_…), row_key and source are in the store that was read only."
    )
    return [told]


def _stop_words(con: duckdb.DuckDBPyConnection) -> list[str] | None:
    """Return the stop words of a file; None where it has no lexical index."""
    if "fts_main_documents.stopwords" not in object_names(con):
        return None
    return [word for (word,) in con.execute("SELECT word FROM fts_main_documents.stopwords ORDER BY word").fetchall()]


def stop_words_notice(stored: Sequence[str], given: Sequence[str]) -> str:
    """Return what becomes of the stop words of a store, "" if they stay the same."""
    added, gone = sorted({*given} - {*stored}), sorted({*stored} - {*given})
    lists = [
        f"{what}: {', '.join(words[:20])}{', …' * (len(words) > 20)}"
        for what, words in (("added", added), ("removed", gone))
        if words
    ]
    return f"The stop words have changed ({'; '.join(lists)})." if lists else ""


@contextmanager
def snapshot(database: Database) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection with a snapshot of a file, or raise StoreError if the file is inconsistent."""
    with database.cursor().cursor() as con:
        with reported(database.path):
            con.execute("BEGIN")
            orphans = con.execute(read_sql("checks/chunks_without_source")).fetchall()
        if orphans:
            raise StoreError(
                database.path,
                f"{database.path} has {counted(len(orphans), 'chunk')} without a document, such as "
                f"{orphans[0][0]!r}. sqlrag repair removes them.",
            )
        yield con


@contextmanager
def new_store(output: Path, dimensions: int, *, overwrite: bool) -> Iterator[Database]:
    """Yield a temporary new store, which is renamed to ``output`` at the end and removed after an error."""
    with (
        new_file(output, overwrite=overwrite) as temporary,
        Database.create(temporary, dimensions) as database,
    ):
        # Fewer checkpoints, since each rewrites the last row group.
        database.cursor().execute("SET checkpoint_threshold = '400MB'")
        yield database
        database.checkpoint()


def write_store(
    contents: Contents,
    db_path: str | os.PathLike[str],
    *,
    embedder: AnyEmbedder | None = None,
    overwrite: bool = False,
) -> Imported:
    """Write contents into a new store, or into an existing one, where they replace documents of the same ids.

    Everything is written or nothing. Vectors of length 1 are stored bit for bit, others are scaled to it.

    Parameters
    ----------
    contents
        From :func:`stored_contents` or a reader of a format.
    db_path
        The store. An existing one must have vectors of the same model; it keeps its settings, except
        for stop words, if the contents have some.
    embedder
        The embedder of the vectors, for a file that does not identify its model. Its vectors of some chunks, or of the
        probe text, are compared, and it is refused if they differ.
    overwrite
        Replace the store if it exists.

    Raises
    ------
    InputError
        The store has a document of the same id as a row of a table; it is unchanged.
    FormatError
        The contents cannot be stored.
    ModelMismatchError
        The model is not that of the store, or the vectors are not of the embedder.
    StoreError and its kinds
        The store cannot be written; it is unchanged.
    """
    output = real_path(db_path)
    is_new = overwrite or not output.exists()
    given = None if embedder is None else as_embedder(embedder)
    try:
        values = store_settings(contents)
        identity = model_identity(values)
        if is_new:
            check_replaceable(check_output(output, overwrite=overwrite))
            with new_store(output, contents.dimensions, overwrite=overwrite) as database:
                return _fill(database, contents, values, identity, given, output)
        with Database.open(output, read_only=False) as database:
            stored = model_identity(required_metadata(database))
            check_same(output, stored, identity)
            return _fill(database, contents, None, identity, given, output)
    finally:
        close = getattr(contents.batches, "close", None)
        if close is not None:
            close()


def _read_batch(con: duckdb.DuckDBPyConnection, dimensions: int, absolute_paths: bool, doc_ids: list[str]) -> Batch:
    ids = {"doc_ids": doc_ids}
    sources = con.sql(read_sql("exchange/sources"), params={**ids, "absolute_paths": absolute_paths}).to_arrow_table()
    chunks = con.sql(read_sql("exchange/chunks"), params=ids).to_arrow_table()
    vectors = vector_matrix(chunks["embedding"], dimensions)
    return Batch(_cast(sources, documents.SOURCE_SCHEMA), _cast(chunks, documents.CHUNK_SCHEMA), vectors)


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return table.select(schema.names).cast(schema)


def store_settings(contents: Contents) -> dict[str, str]:
    """Return the metadata of a new store: those of the contents, and defaults for the rest.

    Raises
    ------
    FormatError
        A setting is not valid.
    """
    known = {name: str(value) for name, value in contents.settings.items() if name in SETTINGS}
    values = {name: str(value) for name, value in default_metadata(contents.dimensions).items()} | known
    try:
        policy = chunk_policy(values)
        check_policy(policy)
        values |= {name: str(value) for name, value in policy_metadata(policy).items()}
        lexical.check_stemmer(values["stemmer"])
        if not 0 <= float(values["header_weight"]) < float("inf"):
            raise ValueError(f"header_weight is {values['header_weight']}")
        for name, valid in _CHOICES.items():
            if known.get(name, valid[0]) not in valid:
                raise ValueError(f"{name} is {known[name]!r:.60}, and not one of {', '.join(valid)}")
        _check_identity(model_identity(values))
    except (KeyError, ValueError, TypeError) as error:
        raise FormatError(f"The settings of the file cannot be used: {error}. Remove or correct them.") from error
    return values


def _check_identity(identity: ModelIdentity) -> None:
    """Raise ValueError if questions could not be compared with vectors of such a model."""
    if not identity.model_name.strip():
        raise ValueError("the name of the model is blank")
    if identity.max_tokens < 0:
        raise ValueError(f"max_tokens is {identity.max_tokens}")
    if identity.fingerprint is not None:
        vector = np.asarray(identity.fingerprint, dtype=np.float64)
        # A tolerance, since its numbers are rounded to six decimals.
        if vector.shape != (identity.dimensions,) or not abs(float(np.linalg.norm(vector)) - 1) < 0.01:
            raise ValueError(f"the fingerprint is not a vector of {identity.dimensions} dimensions and length 1")


def _fill(
    database: Database,
    contents: Contents,
    values: Mapping[str, object] | None,
    identity: ModelIdentity,
    embedder: Embedder | None,
    output: Path,
) -> Imported:
    """Write the contents in one transaction; ``values`` are the settings of a new store."""
    began, started = time.perf_counter(), now()
    scaled = 0
    to_verify = embedder
    # Stored documents whose chunks have ids of the contents, with these ids: the contents must replace them, too.
    owners: dict[str, tuple[str, str]] = {}
    replaced: set[str] = set()
    with database.transaction() as con:
        if values is not None:
            write_metadata(con, values)
        told, stops = "", _stop_words(con)
        if stops is not None and contents.stop_words is not None:
            told = stop_words_notice(stops, contents.stop_words)
            lexical.set_stop_words(con, contents.stop_words)
        settings = read_metadata(con)
        compatible = settings.get("llama_index_compatible", "True") == "True"
        for batch in checked_batches(contents):
            if to_verify is not None and len(batch.chunks):
                verified = _verified_identity(to_verify, identity, batch, settings.get("include_headers") == "True")
                if values is not None:
                    write_metadata(con, identity_metadata(verified))
                to_verify = None
            vectors, changed = at_unit_length(batch.vectors)
            scaled += changed
            if values is None:
                ids = batch.sources["doc_id"].to_pylist()
                documents.check_collections(con, dict(zip(ids, batch.sources["collection"].to_pylist(), strict=True)))
                documents.refuse_rows(con, ids)
                documents.delete(con, ids)
                wanted = dict(zip(*(batch.chunks[name].to_pylist() for name in ("node_id", "doc_id")), strict=True))
                for node_id, owner in documents.taken(con, list(wanted)):
                    owners.setdefault(owner, (node_id, wanted[node_id]))
                documents.delete(con, list(owners))
                replaced.update(ids)
            first = documents.insert_tables(con, batch.sources, batch.chunks, vectors, compatible)
            if values is None:
                con.execute(read_sql("index/unknown_folder"), {"doc_ids": ids})
                lexical.add_chunks(con, first, settings["stemmer"])
        for owner, (node_id, doc_id) in sorted(owners.items()):
            if owner not in replaced:
                documents.refuse_taken([(node_id, owner)], {node_id: doc_id})
        if values is not None:
            lexical.add_chunks(con, 0, settings["stemmer"])
        refresh_counts(con)
        run = metadata.RunRow(
            metadata.new_run_id(started), "import", started, documents=contents.documents, chunks=contents.chunks,
            reused=contents.chunks, seconds={"store": time.perf_counter() - began},
        )  # fmt: skip
        metadata.log_run(con, run)
    notices = [*contents.notices, *scaled_notices(scaled), *([told] if told and values is None else [])]
    report = Imported(output, contents.documents, contents.chunks, values is not None, notices)
    log.info("%s", report)
    return report


# Models.


def check_same(path: Path | str, stored: ModelIdentity, identity: ModelIdentity) -> None:
    """Raise ModelMismatchError unless a store and the contents have the same model."""
    named = stored.model_name, identity.model_name
    if stored.dimensions != identity.dimensions or not (stored.model_name == identity.model_name or same_model(*named)):
        raise ModelMismatchError(
            f"{path} has vectors of {stored.model_name!r} ({stored.dimensions} dimensions), the file to import those "
            f"of {identity.model_name!r} ({identity.dimensions}). Import it into a separate file."
        )
    if stored.fingerprint is not None and identity.fingerprint is not None:
        cosine = float(np.dot(stored.fingerprint, identity.fingerprint))
        if not cosine >= SAME_MODEL_COSINE:
            raise ModelMismatchError(
                f"{path} and the file to import both name {stored.model_name!r}, but their vectors differ: cosine "
                f"{cosine:.3f} for the same text. Import it into a separate file."
            )


def _verified_identity(embedder: Embedder, identity: ModelIdentity, batch: Batch, headers: bool) -> ModelIdentity:
    """Return the identity of the model, or raise ModelMismatchError if the vectors are not of the embedder."""
    from sqlrag.embedders import embed_texts, probe
    from sqlrag.embedders.base import check_stored

    if identity.fingerprint is not None:
        check_stored(embedder, identity)
        return identity
    if embedder.dimensions != identity.dimensions:
        raise ModelMismatchError(
            f"The file has vectors of {identity.dimensions} dimensions, {embedder.model_name!r} returns "
            f"{embedder.dimensions}. Pass the model of the file."
        )
    first = batch.chunks.slice(0, _PROBES)
    seen = documents.shown_column(batch.sources, first)
    rows = first.select(["text", "heading_path"]).to_pylist()
    texts = [
        Chunk("", 0, row["text"], heading_path=tuple(row["heading_path"]), shown=shown).embedding_text(headers)
        for row, shown in zip(rows, seen, strict=True)
    ]
    expected = unit_vectors(embed_texts(embedder, texts, kind="document"), identity.dimensions)
    cosines = np.einsum("ij,ij->i", expected, unit_vectors(batch.vectors[: len(rows)], identity.dimensions))
    if not float(np.mean(cosines)) >= _PROBE_COSINE:
        raise ModelMismatchError(
            f"The vectors of the file are not of {embedder.model_name!r}: for the texts of its first "
            f"{counted(len(rows), 'chunk')} it returns others (mean cosine {np.mean(cosines):.2f}). Pass the model "
            f"of the file ({identity.model_name!r})."
        )
    return probe(embedder)
