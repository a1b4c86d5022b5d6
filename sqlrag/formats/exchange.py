"""A store's way into another format and back: reads what a file holds in batches, and writes such batches."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlrag.embedders.base import as_embedder
from sqlrag.errors import FormatError, ModelMismatchError, StoreError
from sqlrag.formats.contents import (
    CHUNK_SCHEMA,
    SETTINGS,
    SOURCE_SCHEMA,
    Batch,
    Contents,
    at_unit_length,
    checked_batches,
    grouped,
)
from sqlrag.ingest.chunking import check_policy
from sqlrag.network import is_url
from sqlrag.retrieval.filters import Filters
from sqlrag.retrieval.searching import same_model
from sqlrag.store import lexical, runs, writing
from sqlrag.store.database import Database, check_replaceable
from sqlrag.store.files import check_output, real_path
from sqlrag.store.metadata import (
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
from sqlrag.store.output import new_file
from sqlrag.store.schema import read_sql
from sqlrag.store.sources import vector_matrix
from sqlrag.store.vectors import unit_vectors
from sqlrag.wording import counted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import duckdb
    import pyarrow as pa

    from sqlrag.types import AnyEmbedder, Embedder, ModelIdentity

log = logging.getLogger("sqlrag.formats")

BATCH_CHUNKS = 4096
# Chunks whose texts are embedded to see whether an embedder made the vectors of a file that does not say it, and the
# least mean cosine: other programs put headings or prefixes before the text, other models give cosines near 0.
_PROBES = 8
_PROBE_COSINE = 0.8
_CHOICES = {
    "chunk_unit": ("tokens", "chars"),
    "include_headers": ("True", "False"),
    "llama_index_compatible": ("True", "False"),
}


@dataclass(frozen=True)
class Imported:
    """What an import did: the store, how much went into it, whether it is new, and what the reader should know."""

    path: Path
    documents: int
    chunks: int
    created: bool
    notices: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Say it in lines."""
        made = "made" if self.created else "brought up to date"
        first = f"{self.path} {made}: {counted(self.documents, 'document')}, {counted(self.chunks, 'chunk')}"
        return "\n".join([first, *self.notices])


@contextmanager
def stored_contents(
    db_path: str | os.PathLike[str],
    *,
    collection: str | Sequence[str] | None = None,
    tags_any: Sequence[str] | None = None,
    tags_all: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    batch_chunks: int = BATCH_CHUNKS,
) -> Iterator[Contents]:
    """Open a file, or a store in Postgres by its URL, and yield what it holds.

    That is whole documents that pass the filters, themselves or by one chunk.

    Everything is read in one transaction: what other threads write meanwhile is not seen.

    Raises
    ------
    InputError
        A filter is of the wrong type.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        The file cannot be read, or holds chunks without a document.
    """
    filters = Filters(collection, tags_any, tags_all, metadata)
    if is_url(db_path):
        from sqlrag.formats.postgres import postgres_contents

        with postgres_contents(str(db_path), filters, batch_chunks) as contents:
            yield contents
        return
    wanted = filters.parameters()
    conditions = {name: wanted.get(name) for name in ("collection", "tags_any", "tags_all", "metadata")}
    with Database.open(db_path) as database:
        values = required_metadata(database)
        with database.cursor().cursor() as con:
            con.execute("BEGIN")
            orphans = con.execute(read_sql("checks/chunks_without_source")).fetchall()
            if orphans:
                raise StoreError(
                    database.path,
                    f"{database.path} holds {counted(len(orphans), 'chunk')} without a document, such as "
                    f"{orphans[0][0]!r}. sqlrag repair removes them.",
                )
            chosen = con.execute(read_sql("exchange/chosen_documents"), conditions).fetchall()
            ((newest,),) = con.execute("SELECT max(created_at) FROM source_documents").fetchall()
            dimensions = int(values["embedding_dimensions"])
            yield Contents(
                {name: values[name] for name in SETTINGS if name in values},
                len(chosen),
                sum(chunks for _, chunks in chosen),
                _read_batches(con, chosen, dimensions, batch_chunks),
                updated_at="" if newest is None else f"{newest.isoformat(timespec='seconds')}Z",
            )


def write_store(
    contents: Contents,
    db_path: str | os.PathLike[str],
    *,
    embedder: AnyEmbedder | None = None,
    overwrite: bool = False,
) -> Imported:
    """Write contents into a new store, or into one that there is, in place of its documents of these ids.

    All of it is written or nothing. Vectors of length 1 are stored bit for bit, others are brought to it.

    Parameters
    ----------
    contents
        What :func:`stored_contents` or a reader of a format gives.
    db_path
        The store. One that exists must hold vectors of the same model; its stemmer and settings stay.
    embedder
        What made the vectors, for a file that does not say enough to embed questions. It is asked for the vectors of
        some chunks, or of the probe text, and refused where they differ.
    overwrite
        Make the store anew where it exists.

    Raises
    ------
    FormatError
        What was read cannot be stored.
    ModelMismatchError
        The model is not that of the store, or the embedder did not make the vectors.
    StoreError and its kinds
        The store cannot be written; it is as it was.
    """
    output = real_path(db_path)
    is_new = overwrite or not output.exists()
    given = None if embedder is None else as_embedder(embedder)
    try:
        values = store_settings(contents)
        identity = model_identity(values)
        if is_new:
            check_replaceable(check_output(output, overwrite=overwrite))
            with (
                new_file(output, overwrite=overwrite) as temporary,
                Database.create(temporary, contents.dimensions) as database,
            ):
                # Every checkpoint writes the last row group anew.
                database.cursor().execute("SET checkpoint_threshold = '400MB'")
                report = _fill(database, contents, values, identity, given, output)
                database.checkpoint()
            return report
        with Database.open(output, read_only=False) as database:
            stored = model_identity(required_metadata(database))
            check_same(output, stored, identity)
            return _fill(database, contents, None, identity, given, output)
    finally:
        close = getattr(contents.batches, "close", None)
        if close is not None:
            close()


def _read_batches(
    con: duckdb.DuckDBPyConnection, chosen: Sequence[tuple[str, int]], dimensions: int, batch_chunks: int
) -> Iterator[Batch]:
    for doc_ids in grouped(chosen, batch_chunks):
        ids = {"doc_ids": doc_ids}
        sources = con.sql(read_sql("exchange/sources"), params=ids).to_arrow_table()
        chunks = con.sql(read_sql("exchange/chunks"), params=ids).to_arrow_table()
        vectors = vector_matrix(chunks["embedding"], dimensions)
        yield Batch(_cast(sources, SOURCE_SCHEMA), _cast(chunks, CHUNK_SCHEMA), vectors)


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return table.select(schema.names).cast(schema)


def store_settings(contents: Contents) -> dict[str, str]:
    """Return the metadata of a new store: what the contents know, defaults for the rest.

    Raises
    ------
    FormatError
        A setting is one that no store could be used with.
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
    """Raise ValueError where no question could be compared with the vectors of such a model."""
    if not identity.model_name.strip():
        raise ValueError("the name of the model is blank")
    if identity.max_tokens < 0:
        raise ValueError(f"max_tokens is {identity.max_tokens}")
    if identity.fingerprint is not None:
        vector = np.asarray(identity.fingerprint, dtype=np.float64)
        # Its numbers are rounded to six decimals.
        if vector.shape != (identity.dimensions,) or not abs(float(np.linalg.norm(vector)) - 1) < 0.01:
            raise ValueError(f"the fingerprint is no vector of {identity.dimensions} dimensions and length 1")


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
    notices = list(contents.notices)
    documents = chunks = scaled = 0
    to_prove = embedder
    with database.transaction() as con:
        if values is not None:
            write_metadata(con, values)
        settings = read_metadata(con)
        compatible = settings.get("llama_index_compatible", "True") == "True"
        for batch in checked_batches(contents.batches, contents.dimensions):
            if to_prove is not None and len(batch.chunks):
                proved = _proved(to_prove, identity, batch, settings.get("include_headers") == "True")
                if values is not None:
                    write_metadata(con, identity_metadata(proved))
                to_prove = None
            vectors, changed = at_unit_length(batch.vectors)
            scaled += changed
            if values is None:
                ids = batch.sources["doc_id"].to_pylist()
                writing.check_collections(con, dict(zip(ids, batch.sources["collection"].to_pylist(), strict=True)))
                writing.delete(con, ids)
            first = writing.insert_tables(con, batch.sources, batch.chunks, vectors, compatible)
            if values is None:
                lexical.add_chunks(con, first, settings["stemmer"])
            documents += len(batch.sources)
            chunks += len(batch.chunks)
        if (documents, chunks) != (contents.documents, contents.chunks):
            raise FormatError(
                f"The file names {contents.documents} documents and {contents.chunks} chunks, but holds {documents} "
                f"and {chunks}. It is cut short or was edited."
            )
        if values is not None:
            lexical.add_chunks(con, 0, settings["stemmer"])
        refresh_counts(con)
        run = runs.RunRow(
            runs.new_run_id(started), "import", started, documents=documents, chunks=chunks, reused=chunks,
            seconds={"store": time.perf_counter() - began},
        )  # fmt: skip
        runs.log_run(con, run)
    if scaled:
        notices.append(f"{counted(scaled, 'vector')} of another length than 1 brought to length 1.")
    report = Imported(output, documents, chunks, values is not None, notices)
    log.info("%s", report)
    return report


# Models.


def check_same(path: Path | str, stored: ModelIdentity, identity: ModelIdentity) -> None:
    """Raise unless a store and the contents name one model."""
    named = stored.model_name, identity.model_name
    if stored.dimensions != identity.dimensions or not (stored.model_name == identity.model_name or same_model(*named)):
        raise ModelMismatchError(
            f"{path} holds vectors of {stored.model_name!r} ({stored.dimensions} dimensions), the file to import those "
            f"of {identity.model_name!r} ({identity.dimensions}). Import it into a file of its own."
        )
    if stored.fingerprint is not None and identity.fingerprint is not None:
        from sqlrag.embedders.base import SAME_MODEL_COSINE

        cosine = float(np.dot(stored.fingerprint, identity.fingerprint))
        if not cosine >= SAME_MODEL_COSINE:
            raise ModelMismatchError(
                f"{path} and the file to import both name {stored.model_name!r}, but their vectors differ: cosine "
                f"{cosine:.3f} for the same text. Import it into a file of its own."
            )


def _proved(embedder: Embedder, identity: ModelIdentity, batch: Batch, headers: bool) -> ModelIdentity:
    """Return what made the vectors, or raise ModelMismatchError where the embedder did not."""
    from sqlrag.embedders import embed_texts, probe
    from sqlrag.embedders.stored import check_stored

    if identity.fingerprint is not None:
        check_stored(embedder, identity)
        return identity
    if embedder.dimensions != identity.dimensions:
        raise ModelMismatchError(
            f"The file holds vectors of {identity.dimensions} dimensions, {embedder.model_name!r} makes "
            f"{embedder.dimensions}."
        )
    rows = batch.chunks.slice(0, _PROBES).select(["text", "heading_path"]).to_pylist()
    texts = [
        (" > ".join(row["heading_path"]) + "\n\n" if headers and row["heading_path"] else "") + row["text"]
        for row in rows
    ]
    made = unit_vectors(embed_texts(embedder, texts, kind="document"), identity.dimensions)
    cosines = np.einsum("ij,ij->i", made, unit_vectors(batch.vectors[: len(rows)], identity.dimensions))
    if not float(np.mean(cosines)) >= _PROBE_COSINE:
        raise ModelMismatchError(
            f"{embedder.model_name!r} did not make the vectors of the file: for the texts of its first "
            f"{counted(len(rows), 'chunk')} it gives others (mean cosine {np.mean(cosines):.2f}). Pass the model that "
            f"the file was made with ({identity.model_name!r})."
        )
    return probe(embedder)
