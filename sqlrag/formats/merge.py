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

from sqlrag import arguments
from sqlrag.arguments import counted
from sqlrag.cancellation import checkpoint
from sqlrag.engines.contents import SETTINGS, Contents, groups
from sqlrag.engines.duckdb import lexical, metadata, row_tables
from sqlrag.engines.duckdb.database import check_replaceable
from sqlrag.engines.duckdb.documents import insert_chunks
from sqlrag.engines.duckdb.failures import public, reported
from sqlrag.engines.duckdb.files import check_output
from sqlrag.engines.duckdb.metadata import OWN_IDS, chunk_policy_of, now, refresh_counts, write_metadata
from sqlrag.engines.duckdb.rows import vector_matrix
from sqlrag.engines.duckdb.schema import object_names, read_sql, wanted_objects
from sqlrag.engines.duckdb.statements import identifier
from sqlrag.engines.many import open_parts, stop_words
from sqlrag.errors import InputError, StoreError
from sqlrag.formats.exchange import BATCH_CHUNKS, new_store, snapshot, store_settings

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import duckdb

    from sqlrag.engines.duckdb.engine import FileEngine
    from sqlrag.types import Vectors

log = logging.getLogger("sqlrag.formats")

_KEYS = ("doc_id", "chunk_index", "node_id")

# Tables that are copied completely, with their keys.
_RECORDS = {
    "collections": "collection",
    "ingest_failures": "doc_id",
    "ingest_log": "run_id",
    "query_embeddings": "query_text",
}


@dataclass(frozen=True)
class Merged:
    """The result of :func:`merge`: the new file, the number of merged files, counts, and notices."""

    path: Path
    files: int
    documents: int
    chunks: int
    notices: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Format it as lines."""
        counts = f"{counted(self.documents, 'document')}, {counted(self.chunks, 'chunk')}"
        return "\n".join([f"{self.path} merged from {counted(self.files, 'file')}: {counts}", *self.notices])


@public
def merge(
    db_paths: Iterable[str | os.PathLike[str]], output_db: str | os.PathLike[str], *, overwrite: bool = False
) -> Merged:
    """Write the documents of several files into a new one, with their chunks, vectors, links and collections.

    Texts, ids and vectors are copied bit for bit, without embedding; also copied are the times when documents were
    stored, the records of runs and failures, and the stored vectors of questions. The words are reindexed. The rows are
    in the order of their documents, independent of the order of the files. The file is renamed at the end.

    Parameters
    ----------
    db_paths
        The files. They must be of the same model, stemmer, heading weight and stop words, and no document may be in two
        of them.
    output_db
        The file to write, not one of ``db_paths``.
    overwrite
        Replace it if it exists.

    Returns
    -------
    Merged
        The counts. ``notices`` say what is not merged: maps, tables and views of your own, and settings of which a file
        has only one.

    Raises
    ------
    InputError
        No file is named or one is named twice, a document is in two of them, or they differ in a setting.
    ModelMismatchError
        They have vectors of different models.
    StoreExistsError
        The output exists and ``overwrite`` is False.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        A file cannot be used, or the output cannot be written; it is unchanged.

    Examples
    --------
    >>> print(merge(["january.duckdb", "february.duckdb"], "year.duckdb"))  # doctest: +SKIP
    """
    overwrite = arguments.flag("overwrite", overwrite)
    output = check_output(arguments.path("output_db", output_db), overwrite=overwrite)
    with ExitStack() as opened:
        parts = open_parts(db_paths)
        for part in parts:
            opened.enter_context(part.database)
        if any(part.path == output for part in parts):
            raise InputError(f"{output} is one of the files to merge, so it cannot be the output. Name another one.")
        check_replaceable(output)
        readers = [opened.enter_context(snapshot(part.database)) for part in parts]
        documents = _documents(parts, readers)
        # The settings are those of the first document's file: independent of the order of the files.
        first = parts[documents[0][2] if documents else 0]
        filled = [parts[place] for place in sorted({place for _, _, place in documents})]
        notices = [*_other_policies(filled, first), *_left_out(parts, readers)]
        values = store_settings(Contents(_settings(parts, first), 0, 0, ()))
        dimensions = int(values["embedding_dimensions"])
        with new_store(output, dimensions, overwrite=overwrite) as database:
            began, started = time.perf_counter(), now()
            with database.transaction() as con:
                write_metadata(con, values)
                lexical.set_stop_words(con, sorted(stop_words(first)))
                chunks = _copy(con, parts, readers, documents, dimensions)
                for table, key in _RECORDS.items():
                    _copy_records(con, parts, readers, table, key)
                for part, reader in zip(parts, readers, strict=True):
                    row_tables.merge(con, part.path, reader)
                for collection, folder in con.execute(read_sql("many/folders")).fetchall():
                    metadata.shorten_paths(con, collection, folder)
                lexical.add_chunks(con, 0, values["stemmer"])
                refresh_counts(con)
                run = metadata.RunRow(
                    metadata.new_run_id(started), "merge", started, files=len(parts), documents=len(documents),
                    chunks=chunks, reused=chunks, seconds={"store": time.perf_counter() - began},
                )  # fmt: skip
                metadata.log_run(con, run)
    merged = Merged(output, len(parts), len(documents), chunks, notices)
    log.info("%s", merged)
    return merged


def _documents(parts: Sequence[FileEngine], readers: Sequence[duckdb.DuckDBPyConnection]) -> list[tuple[str, int, int]]:
    """Return every document in the order of the ids: its id, the number of its chunks, the place of its file."""
    documents = []
    for place, part in enumerate(parts):
        with reported(part.path):
            sizes = readers[place].execute(read_sql("many/document_sizes")).fetchall()
        documents += [(doc_id, chunks, place) for doc_id, chunks in sizes]
    return sorted(documents)


def _copy(
    con: duckdb.DuckDBPyConnection,
    parts: Sequence[FileEngine],
    readers: Sequence[duckdb.DuckDBPyConnection],
    documents: Sequence[tuple[str, int, int]],
    dimensions: int,
) -> int:
    """Copy the documents with their links and chunks in their order; return how many chunks there are."""
    first = 0
    for batch in groups(documents, [size for _, size, _ in documents], BATCH_CHUNKS):
        checkpoint()
        tables: dict[str, list[pa.Table]] = {"documents": [], "links": [], "chunks": []}
        for place in sorted({place for _, _, place in batch}):
            ids = {"doc_ids": [doc_id for doc_id, _, of in batch if of == place]}
            with reported(parts[place].path):  # here: where it is called, the output is being written to
                for name, found in tables.items():
                    found.append(readers[place].sql(read_sql(f"many/{name}"), params=ids).to_arrow_table())
        _insert(con, "new_sources", pa.concat_tables(tables["documents"]), "many/insert_documents")
        _insert(con, "new_links", pa.concat_tables(tables["links"]), "index/insert_links")
        chunks = pa.concat_tables(tables["chunks"])
        if len(chunks) != sum(size for _, size, _ in batch):
            raise StoreError(parts[0].path, "A file changed during the merge. Merge again.")
        if len(chunks):
            vectors = vector_matrix(chunks["embedding"], dimensions)
            _check_finite(parts, batch, chunks, vectors)
            order = pc.sort_indices(chunks, sort_keys=[(key, "ascending") for key in _KEYS])
            rows = chunks.select([name for name in chunks.column_names if name != "embedding"]).take(order)
            columns = dict(zip(rows.column_names, rows.columns, strict=True))
            insert_chunks(con, columns, vectors[order.to_numpy()], first)
            first += len(chunks)
    return first


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
            f"{path}: the vector of the chunk {row['node_id']!r} is damaged. Reindex its document, or delete it: "
            f"sqlrag delete {row['doc_id']} --db {path}",
        )


def _copy_records(
    con: duckdb.DuckDBPyConnection,
    parts: Sequence[FileEngine],
    readers: Sequence[duckdb.DuckDBPyConnection],
    table: str,
    key: str,
) -> None:
    """Copy the rows of a table; of several with one key the first in the order of all columns."""
    rows = []
    for part, reader in zip(parts, readers, strict=True):
        with reported(part.path):
            rows.append(reader.sql(f"FROM {identifier(table)}").to_arrow_table())
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
    """Return the settings of the new file: those of one file, and the own ids and the oldest date of all."""
    settings = {name: first.metadata[name] for name in SETTINGS if name in first.metadata}
    for part in parts:
        settings.update({name: part.metadata[name] for name in ("upgraded_from", OWN_IDS) if name in part.metadata})
    oldest = min((part.metadata["created_at"] for part in parts if "created_at" in part.metadata), default=None)
    return settings if oldest is None else {**settings, "created_at": oldest}


def _other_policies(parts: Sequence[FileEngine], first: FileEngine) -> list[str]:
    """Return a notice if files have another chunk policy than the merged file."""
    policy = chunk_policy_of(first.path, first.metadata)
    others = [str(part.path) for part in parts if chunk_policy_of(part.path, part.metadata) != policy]
    if not others:
        return []
    names = ", ".join(others)
    notice = (
        f"The chunk policy of {names} is not that of {first.path}. Chunks stay as they are; documents that are added "
        f"or updated are chunked as in {first.path}: {policy}."
    )
    return [notice]


def _left_out(parts: Sequence[FileEngine], readers: Sequence[duckdb.DuckDBPyConnection]) -> list[str]:
    """Return notices about what the new file does not have, or has from one file only."""
    notices = []
    folders: dict[str, set[str]] = {}
    for part, reader in zip(parts, readers, strict=True):
        with reported(part.path):
            collections = reader.execute("SELECT collection, input_dir FROM collections").fetchall()
            has_map = reader.execute("SELECT 1 FROM corpus_map LIMIT 1").fetchall()
            own = sorted(object_names(reader) - wanted_objects() - row_tables.names(reader))
        for collection, folder in collections:
            folders.setdefault(collection, set()).add(folder)
        if has_map:
            notices.append(f"The map of {part.path} is left out; corpus_map draws a new one.")
        if own:
            notices.append(f"Left out from {part.path}, since sqlrag did not create it: {', '.join(own)}.")
    for collection, found in sorted(folders.items()):
        if len(found) > 1:
            notices.append(
                f"The collection {collection!r} is from several folders, {', '.join(sorted(found))}. Update it "
                "without prune, or from a folder that contains all of them."
            )
    return notices
