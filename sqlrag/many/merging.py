"""Merges several files into a new one."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlrag import options
from sqlrag.errors import InputError, StoreError
from sqlrag.formats.contents import SETTINGS, Contents
from sqlrag.formats.exchange import BATCH_CHUNKS, store_settings
from sqlrag.many.opening import open_parts, stop_words
from sqlrag.stopping import checkpoint
from sqlrag.store import lexical, runs, writing
from sqlrag.store.calls import identifier
from sqlrag.store.database import Database, check_replaceable
from sqlrag.store.files import check_output
from sqlrag.store.metadata import OWN_IDS, chunk_policy, now, refresh_counts, write_metadata
from sqlrag.store.output import new_file
from sqlrag.store.schema import object_names, read_sql, wanted_objects
from sqlrag.store.sources import vector_matrix
from sqlrag.wording import counted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import duckdb

    from sqlrag.retrieval.file_engine import FileEngine
    from sqlrag.types import Vectors

log = logging.getLogger("sqlrag.formats")

_KEYS = ("doc_id", "chunk_index", "node_id")
# Tables of which every row goes over, with their keys.
_RECORDS = {
    "collections": "collection",
    "ingest_failures": "doc_id",
    "ingest_log": "run_id",
    "query_embeddings": "query_text",
}


@dataclass(frozen=True)
class Merged:
    """What :func:`merge` wrote: the file, how many files it was made of, what it holds, what the reader should know."""

    path: Path
    files: int
    documents: int
    chunks: int
    notices: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Say it in lines."""
        holds = f"{counted(self.documents, 'document')}, {counted(self.chunks, 'chunk')}"
        return "\n".join([f"{self.path} made of {counted(self.files, 'file')}: {holds}", *self.notices])


def merge(
    db_paths: Iterable[str | os.PathLike[str]], output_db: str | os.PathLike[str], *, overwrite: bool = False
) -> Merged:
    """Write the documents of several files into a new one, with their chunks, vectors, links and collections.

    Texts, ids and vectors go over bit for bit, and nothing is embedded; so do the times when documents were stored, the
    records of runs and failures, and the stored vectors of questions. The words are indexed anew. The rows lie in the
    order of their documents, whatever the order of the files. The file is made beside its place and renamed at the end.

    Parameters
    ----------
    db_paths
        The files. They must be of the same model, stemmer, heading weight and stop words, and no document may be in two
        of them.
    output_db
        The file to make, which is none of them.
    overwrite
        Replace it where it exists.

    Returns
    -------
    Merged
        How much went into it. ``notices`` say what could not: maps, tables and views of your own, and settings of which
        a file has only one.

    Raises
    ------
    InputError
        No file is named or one is named twice, a document is in two of them, or they differ in a setting.
    ModelMismatchError
        They hold vectors of different models.
    StoreExistsError
        The output exists and ``overwrite`` is False.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        A file cannot be used, or the output cannot be written; it is as it was.

    Examples
    --------
    >>> print(merge(["january.duckdb", "february.duckdb"], "year.duckdb"))  # doctest: +SKIP
    """
    overwrite = options.flag("overwrite", overwrite)
    output = check_output(options.path("output_db", output_db), overwrite=overwrite)
    with ExitStack() as opened:
        parts = open_parts(db_paths)
        for part in parts:
            opened.enter_context(part.database)
        if any(part.path == output for part in parts):
            raise InputError(f"{output} is to be merged, so it cannot be the output. Name another one.")
        check_replaceable(output)
        readers = [_reader(part, opened) for part in parts]
        documents = _documents(parts, readers)
        # The part of the first document counts for what a file has only once: that does not depend on the order.
        first = parts[documents[0][2] if documents else 0]
        filled = [parts[place] for place in sorted({place for _, _, place in documents})]
        notices = [*_other_policies(filled, first), *_left_out(parts, readers)]
        values = store_settings(Contents(_settings(parts, first), 0, 0, ()))
        dimensions = int(values["embedding_dimensions"])
        with (
            new_file(output, overwrite=overwrite) as temporary,
            Database.create(temporary, dimensions) as database,
        ):
            # Every checkpoint writes the last row group anew.
            database.cursor().execute("SET checkpoint_threshold = '400MB'")
            began, started = time.perf_counter(), now()
            with database.transaction() as con:
                write_metadata(con, values)
                con.execute("DELETE FROM fts_main_documents.stopwords")
                con.execute("INSERT INTO fts_main_documents.stopwords SELECT unnest($1)", [sorted(stop_words(first))])
                chunks = _copy(con, parts, readers, documents, dimensions)
                for table, key in _RECORDS.items():
                    _copy_records(con, readers, table, key)
                lexical.add_chunks(con, 0, values["stemmer"])
                refresh_counts(con)
                run = runs.RunRow(
                    runs.new_run_id(started), "merge", started, files=len(parts), documents=len(documents),
                    chunks=chunks, reused=chunks, seconds={"store": time.perf_counter() - began},
                )  # fmt: skip
                runs.log_run(con, run)
            database.checkpoint()
    merged = Merged(output, len(parts), len(documents), chunks, notices)
    log.info("%s", merged)
    return merged


def _reader(part: FileEngine, opened: ExitStack) -> duckdb.DuckDBPyConnection:
    """Return a connection on which the file stays as it is now, or raise where it is not sound."""
    con = opened.enter_context(part.database.cursor().cursor())
    con.execute("BEGIN")
    orphans = con.execute(read_sql("checks/chunks_without_source")).fetchall()
    if orphans:
        raise StoreError(
            part.path,
            f"{part.path} holds {counted(len(orphans), 'chunk')} without a document, such as {orphans[0][0]!r}. "
            "sqlrag repair removes them.",
        )
    return con


def _documents(parts: Sequence[FileEngine], readers: Sequence[duckdb.DuckDBPyConnection]) -> list[tuple[str, int, int]]:
    """Return every document in the order of the ids: its id, the number of its chunks, the place of its file."""
    return sorted(
        (doc_id, chunks, place)
        for place, _ in enumerate(parts)
        for doc_id, chunks in readers[place].execute(read_sql("many/document_sizes")).fetchall()
    )


def _copy(
    con: duckdb.DuckDBPyConnection,
    parts: Sequence[FileEngine],
    readers: Sequence[duckdb.DuckDBPyConnection],
    documents: Sequence[tuple[str, int, int]],
    dimensions: int,
) -> int:
    """Copy the documents with their links and chunks in their order; return how many chunks there are."""
    first = 0
    for batch in _batches(documents):
        checkpoint()
        tables: dict[str, list[pa.Table]] = {"documents": [], "links": [], "chunks": []}
        for place in sorted({place for _, _, place in batch}):
            ids = {"doc_ids": [doc_id for doc_id, _, of in batch if of == place]}
            for name, found in tables.items():
                found.append(readers[place].sql(read_sql(f"many/{name}"), params=ids).to_arrow_table())
        _insert(con, "new_sources", pa.concat_tables(tables["documents"]), "many/insert_documents")
        _insert(con, "new_links", pa.concat_tables(tables["links"]), "index/insert_links")
        chunks = pa.concat_tables(tables["chunks"])
        if len(chunks) != sum(size for _, size, _ in batch):
            raise StoreError(parts[0].path, "A file was changed while it was merged. Merge again.")
        if len(chunks):
            vectors = vector_matrix(chunks["embedding"], dimensions)
            _check_finite(parts, batch, chunks, vectors)
            order = pc.sort_indices(chunks, sort_keys=[(key, "ascending") for key in _KEYS])
            rows = chunks.select([name for name in chunks.column_names if name != "embedding"]).take(order)
            columns = dict(zip(rows.column_names, rows.columns, strict=True))
            writing.insert_chunks(con, columns, vectors[order.to_numpy()], first)
            first += len(chunks)
    return first


def _batches(documents: Sequence[tuple[str, int, int]]) -> Iterator[Sequence[tuple[str, int, int]]]:
    """Yield the documents about BATCH_CHUNKS chunks at a time."""
    first = size = 0
    for place, (_, chunks, _) in enumerate(documents):
        if place > first and size + chunks > BATCH_CHUNKS:
            yield documents[first:place]
            first, size = place, 0
        size += chunks
    if documents:
        yield documents[first:]


def _check_finite(
    parts: Sequence[FileEngine], batch: Sequence[tuple[str, int, int]], chunks: pa.Table, vectors: Vectors
) -> None:
    """Raise StoreError for a damaged vector, which no search would find."""
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        row = chunks.select(["node_id", "doc_id"]).slice(int(bad[0]), 1).to_pylist()[0]
        path = next(parts[place].path for doc_id, _, place in batch if doc_id == row["doc_id"])
        raise StoreError(
            path,
            f"{path}: the vector of the chunk {row['node_id']!r} is damaged. Index its document again, or delete it: "
            f"sqlrag delete {row['doc_id']} --db {path}",
        )


def _copy_records(
    con: duckdb.DuckDBPyConnection, readers: Sequence[duckdb.DuckDBPyConnection], table: str, key: str
) -> None:
    """Copy the rows of a table; of several with one key the first in the order of all columns."""
    rows = [reader.sql(f"FROM {identifier(table)}").to_arrow_table() for reader in readers]
    con.register("new_records", pa.concat_tables(rows))
    con.execute(
        f"INSERT INTO {identifier(table)} BY NAME SELECT DISTINCT ON ({identifier(key)}) * FROM new_records "  # noqa: S608 - ours
        "ORDER BY ALL"
    )
    con.unregister("new_records")


def _insert(con: duckdb.DuckDBPyConnection, name: str, rows: pa.Table, script: str) -> None:
    con.register(name, rows)
    con.execute(read_sql(script))
    con.unregister(name)


def _settings(parts: Sequence[FileEngine], first: FileEngine) -> dict[str, str]:
    """Return the settings of the new file: those of one, and the ids and the age of all."""
    settings = {name: first.metadata[name] for name in SETTINGS if name in first.metadata}
    for part in parts:
        settings.update({name: part.metadata[name] for name in ("upgraded_from", OWN_IDS) if name in part.metadata})
    oldest = min((part.metadata["created_at"] for part in parts if "created_at" in part.metadata), default=None)
    return settings if oldest is None else {**settings, "created_at": oldest}


def _other_policies(parts: Sequence[FileEngine], first: FileEngine) -> list[str]:
    """Return what is to be said where files cut their documents otherwise than the one that decides."""
    policy = chunk_policy(first.metadata)
    others = [str(part.path) for part in parts if chunk_policy(part.metadata) != policy]
    if not others:
        return []
    names = ", ".join(others)
    notice = (
        f"Documents are cut otherwise than in {first.path} in {names}. The chunks stay as they are; what is added or "
        f"updated is cut as in {first.path}: {policy}."
    )
    return [notice]


def _left_out(parts: Sequence[FileEngine], readers: Sequence[duckdb.DuckDBPyConnection]) -> list[str]:
    """Return what the new file has not, or has of one file only."""
    notices = []
    folders: dict[str, set[str]] = {}
    for part, reader in zip(parts, readers, strict=True):
        for collection, folder in reader.execute("SELECT collection, input_dir FROM collections").fetchall():
            folders.setdefault(collection, set()).add(folder)
        if reader.execute("SELECT 1 FROM corpus_map LIMIT 1").fetchall():
            notices.append(f"The map of {part.path} is left out; corpus_map draws one of all.")
        own = sorted(object_names(reader) - wanted_objects())
        if own:
            notices.append(f"Left out of {part.path}, since sqlrag did not make it: {', '.join(own)}.")
    for collection, found in sorted(folders.items()):
        if len(found) > 1:
            notices.append(
                f"The collection {collection!r} is of several folders, {', '.join(sorted(found))}. Update it "
                "without prune, or from a folder that holds all of them."
            )
    return notices
