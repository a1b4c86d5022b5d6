"""A folder of Parquet files, for DuckDB, pandas, Polars, Spark and Hugging Face datasets: checked export and import."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlrag.arguments import flag
from sqlrag.engines.contents import SETTINGS, Batch, Contents, checked_batches, has_own_ids
from sqlrag.engines.duckdb.documents import CHUNK_SCHEMA, SOURCE_SCHEMA
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.files import real_path
from sqlrag.errors import FormatError, NotFoundError
from sqlrag.formats.exchange import Imported, stored_contents, write_store
from sqlrag.formats.targets import Exported, exported, new_folder
from sqlrag.strict_json import strict_json
from sqlrag.version import __version__

if TYPE_CHECKING:
    import os
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow.parquet as pq

    from sqlrag.types import AnyEmbedder, Vectors

CHUNKS, SOURCES = "chunks", "sources"

MANIFEST = "sqlrag.json"

KEY = b"sqlrag"

# Rows that are read at a time; few, since documents may be long.
_DOCUMENTS, _CHUNKS = 128, 4096

_MOST_DIMENSIONS = 1 << 20

_BLOCK = 1 << 20


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, as hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    """Yield the Parquet files of a folder and those in it; the folder of a collection may be named like one."""
    return (path for path in folder.rglob("*.parquet") if path.is_file())


@contextmanager
def read_parquet(path: str | os.PathLike[str]) -> Iterator[Contents]:
    """Open a folder of Parquet files and yield its contents; see :func:`import_parquet`.

    Raises
    ------
    NotFoundError
        The folder does not exist.
    FormatError
        A file is missing, damaged, of another shape, or has changed.
    """
    import pyarrow.parquet as pq

    folder = real_path(path)
    if not folder.is_dir():
        raise NotFoundError(f"The folder {folder} does not exist.")
    paths = {name: sorted(_files(folder / name)) for name in (CHUNKS, SOURCES)}
    for name, found in paths.items():
        if not found:
            raise FormatError(
                f"{folder} has no Parquet file in its folder {name}/. Name a folder of export_parquet, or a "
                "DuckDB file."
            )
    manifest = _manifest(folder, [file for found in paths.values() for file in found])
    with _as_format_error(folder):
        with pq.ParquetFile(paths[CHUNKS][0]) as file:
            settings, updated_at = _facts(file, folder)
            dimensions = _dimensions(file, settings, folder)
        counts = {name: sum(pq.read_metadata(file).num_rows for file in found) for name, found in paths.items()}
    settings = {**settings, "embedding_dimensions": str(dimensions)}
    notices = []
    if manifest is None:
        notices.append(f"{folder} has no {MANIFEST}, so changes of its files cannot be detected.")
    elif (manifest["documents"], manifest["chunks"]) != (counts[SOURCES], counts[CHUNKS]):
        raise FormatError(f"{folder / MANIFEST} has other counts than the files. Export the folder again.")
    with closing(_batches(paths, dimensions, folder, has_own_ids(settings))) as batches:
        yield Contents(settings, counts[SOURCES], counts[CHUNKS], batches, updated_at, notices)


def _manifest(folder: Path, files: Sequence[Path]) -> dict[str, Any] | None:
    """Return the manifest after checking the files against it, None if there is none."""
    file = folder / MANIFEST
    if not file.is_file():
        return None
    if file.stat().st_size > _BLOCK:
        raise FormatError(f"{file} is too long. Export the folder again.")
    manifest = strict_json(file.read_bytes(), str(file))
    try:
        layout, digests = manifest["layout"], manifest["sha256"]
        manifest["documents"], manifest["chunks"]
        named = dict(digests.items())
    except (KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"{file} is incomplete: {error!r}. Export the folder again.") from error
    if layout != 1:
        raise FormatError(f"{file} has the layout {layout!r}; this sqlrag reads 1.")
    found = {path.relative_to(folder).as_posix(): path for path in files}
    if set(named) != set(found):
        other = ", ".join(sorted(set(named) ^ set(found)))
        raise FormatError(
            f"{file} and the folder have different files: {other}. Copy the missing ones, or export again."
        )
    for name, path in found.items():
        if sha256_of(path) != named[name]:
            raise FormatError(
                f"{path} is not the file that was exported: its SHA-256 differs. Copy it again; if it was "
                f"changed on purpose, delete {file}."
            )
    return dict(manifest)


@contextmanager
def _as_format_error(folder: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        raise FormatError(f"{folder}: a Parquet file cannot be read: {error}. Copy it again.") from error


def _facts(file: pq.ParquetFile, folder: Path) -> tuple[dict[str, str], str]:
    """Return the settings and the time of the last change, as far as the schema's metadata has them."""
    metadata = file.schema_arrow.metadata or {}
    if KEY not in metadata:
        return {}, ""
    where = f"The entry 'sqlrag' of the schema's metadata in {folder / CHUNKS}"
    facts = strict_json(metadata[KEY], where)
    try:
        settings = {name: value for name, value in facts["settings"].items() if name in SETTINGS}
        if facts["layout"] != 1 or not all(
            isinstance(value, str) for value in [*settings.values(), facts["updated_at"]]
        ):
            raise ValueError("its layout must be 1 and its settings strings")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FormatError(f"{where} cannot be used: {error!r}. Export the folder again.") from error
    return settings, str(facts["updated_at"])


def _dimensions(file: pq.ParquetFile, settings: Mapping[str, str], folder: Path) -> int:
    """Return the length of the vectors: from their type, or from the settings if the type does not give it."""
    schema = file.schema_arrow
    kind = schema.field("embedding").type if "embedding" in schema.names else pa.null()
    stated = settings.get("embedding_dimensions")
    known = str(kind.list_size) if pa.types.is_fixed_size_list(kind) else stated
    if known is None and pa.types.is_list(kind):
        first = next(file.iter_batches(1, columns=["embedding"]), None)
        known = str(len(first["embedding"][0] or ())) if first is not None and len(first) else "0"
    if known is None or not known.isdecimal() or not 0 < int(known) < _MOST_DIMENSIONS or stated not in (None, known):
        raise FormatError(
            f"{folder / CHUNKS}: the column embedding is {kind}, the settings name {stated} dimensions. It must be a "
            "list of floats of one length. Export the folder again."
        )
    return int(known)


def _batches(
    paths: Mapping[str, Sequence[Path]], dimensions: int, folder: Path, any_node_id: bool
) -> Generator[Batch, None, None]:
    """Yield the batches of each collection that has a folder of its own, in order; all of them where none has."""
    parts: dict[Path, dict[str, list[Path]]] = {}
    for name, found in paths.items():
        for path in found:
            part = parts.setdefault(path.parent.relative_to(folder / name), {CHUNKS: [], SOURCES: []})
            part[name].append(path)
    for place in sorted(parts):
        yield from _batches_of(parts[place], dimensions, folder, any_node_id)


def _batches_of(
    paths: Mapping[str, Sequence[Path]], dimensions: int, folder: Path, any_node_id: bool
) -> Iterator[Batch]:
    """Yield documents with their chunks, both in the order of ``doc_id``."""
    vector = pa.field("embedding", pa.list_(pa.float32(), dimensions), nullable=False)
    with _as_format_error(folder):
        chunks = _ChunkCursor(_tables(paths[CHUNKS], CHUNK_SCHEMA.append(vector), _CHUNKS, folder))
        last = ""
        for sources in _tables(paths[SOURCES], SOURCE_SCHEMA, _DOCUMENTS, folder):
            ids = [last, *sources["doc_id"].to_pylist()]
            if sorted(ids) != ids:
                raise FormatError(f"{folder / SOURCES}: the rows must be in the order of doc_id (ORDER BY doc_id).")
            last = ids[-1]
            table = chunks.up_to(last)
            if len(sources) or len(table):
                yield Batch(
                    sources, _checked_ids(table.drop_columns("embedding"), folder, any_node_id), _matrix(table, folder)
                )
        if len(left := chunks.up_to(None)):
            raise FormatError(
                f"{folder / CHUNKS}: the document {left['doc_id'][0].as_py()!r} of {len(left)} chunks is not in "
                f"{folder / SOURCES}."
            )


class _ChunkCursor:
    """Reads chunks on demand, up to a document."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self._left = next(tables)

    def up_to(self, doc_id: str | None) -> pa.Table:
        """Return the chunks up to those of a document, or all that remain."""
        parts = []
        while True:
            ids = self._left["doc_id"].to_pylist()
            count = len(ids) if doc_id is None else bisect_right(ids, doc_id)
            parts.append(self._left.slice(0, count))
            self._left = self._left.slice(count)
            if count < len(ids) or (table := next(self._tables, None)) is None:
                return pa.concat_tables(parts)
            self._left = table


def _tables(paths: Iterable[Path], schema: pa.Schema, rows: int, folder: Path) -> Iterator[pa.Table]:
    """Yield the rows of files as tables of a schema; at least one, which may be empty."""
    import pyarrow.parquet as pq

    yield schema.empty_table()
    for path in paths:
        with pq.ParquetFile(path) as file:
            missing = set(schema.names) - set(file.schema_arrow.names)
            if missing:
                raise FormatError(
                    f"{folder}: a file has no column {', '.join(sorted(missing))}. Export the folder again."
                )
            for batch in file.iter_batches(rows, columns=schema.names):
                table = pa.Table.from_batches([batch]).select(schema.names)
                if table["doc_id"].null_count:
                    raise FormatError(f"{folder}: a row has no doc_id.")
                table.validate(full=True)
                yield pa.table(
                    [column.cast(field.type) for column, field in zip(table.columns, schema, strict=True)], schema
                )


def _matrix(table: pa.Table, folder: Path) -> Vectors:
    column = table["embedding"].combine_chunks()
    values = column.flatten()
    if column.null_count or values.null_count:
        raise FormatError(f"{folder / CHUNKS}: a chunk has no vector, or a vector with a missing number.")
    matrix: Vectors = values.to_numpy(zero_copy_only=False).reshape(len(table), column.type.list_size)
    return matrix


def _checked_ids(chunks: pa.Table, folder: Path, any_node_id: bool) -> pa.Table:
    """Return chunks after a check of their order, and that their ids are document and position."""
    last: tuple[str, int] = ("", -1)
    for node_id, doc_id, place in zip(
        *(chunks[name].to_pylist() for name in ("node_id", "doc_id", "chunk_index")), strict=True
    ):
        if place is None or place < 0 or (doc_id, place) <= last:
            raise FormatError(
                f"{folder / CHUNKS}: the rows must be in the order of doc_id and chunk_index, each once. "
                f"{node_id!r} is not."
            )
        if not any_node_id and node_id != f"{doc_id}#{place}":
            raise FormatError(f"{folder / CHUNKS}: the chunk {node_id!r} must be named {f'{doc_id}#{place}'!r}.")
        last = doc_id, place
    return chunks


_FILE = "part-00000.parquet"

# Measured over 32,640 real chunks of 384 dimensions, bytes a chunk: 1,966 plain, 1,747 snappy, 1,520 zstd, 1,345 zstd
# over floats whose bytes are split into streams, which Spark 4.0 does not read (BYTE_STREAM_SPLIT).
_WRITING: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": ["doc_id", "collection", "mime"],
    "write_statistics": ["node_id", "doc_id", "collection", "chunk_index"],
}

# For Hugging Face datasets: without it all files would be read as one table.
_CARD = """---
configs:
- config_name: chunks
  data_files: chunks/*.parquet
  default: true
- config_name: sources
  data_files: sources/*.parquet
---
# Chunks and documents of a search file

`chunks/*.parquet` has a row for each chunk, with its vector in `embedding`; `sources/*.parquet` one for each document.
`doc_id` joins them. Written by sqlrag, which also reads it back; `sqlrag.json` holds the SHA-256 of each file.
"""


def is_parquet(path: str | os.PathLike[str]) -> bool:
    """Return whether a folder contains chunks and documents as Parquet files."""
    folder = real_path(path)
    return all(any(_files(folder / name)) for name in (CHUNKS, SOURCES))


# Writing.


def write_parquet(
    contents: Contents, path: str | os.PathLike[str], *, overwrite: bool = False, by_collection: bool = False
) -> Exported:
    """Write contents, with ``by_collection`` one after another, as Parquet files; see :func:`export_parquet`."""
    with new_folder(path, overwrite=overwrite, is_ours=is_parquet, kind="folder of Parquet files of sqlrag") as folder:
        _write_tables(contents, folder, by_collection=by_collection)
        names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob(_FILE))
        manifest = {
            "layout": 1,
            "generator": f"sqlrag {__version__}",
            "documents": contents.documents,
            "chunks": contents.chunks,
            "sha256": {name: sha256_of(folder / name) for name in names},
        }
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", "utf-8", newline="\n")
        card = _CARD.replace("/*.parquet", "/*/*.parquet") if by_collection else _CARD
        (folder / "README.md").write_text(card, "utf-8", newline="\n")
    return exported(contents, real_path(path))


def _write_tables(contents: Contents, folder: Path, *, by_collection: bool) -> None:
    import pyarrow.parquet as pq

    facts = {"layout": 1, "settings": dict(contents.settings), "updated_at": contents.updated_at}
    metadata = {KEY: json.dumps(facts, sort_keys=True, allow_nan=False).encode("utf-8")}
    item = pa.field("element", pa.float32(), nullable=False)
    vector = pa.field("embedding", pa.list_(item, contents.dimensions), nullable=False)
    chunk_schema = CHUNK_SCHEMA.append(vector).with_metadata(metadata)
    source_schema = SOURCE_SCHEMA.with_metadata(metadata)
    with ExitStack() as stack:
        writers: dict[str, pq.ParquetWriter] = {}

        def begin(part: str) -> None:
            """Open the two files of a part, once those of the last are closed: there may be many collections."""
            stack.close()
            for name, schema in ((CHUNKS, chunk_schema), (SOURCES, source_schema)):
                (folder / name / part).mkdir(parents=True)
                file = pq.ParquetWriter(folder / name / part / _FILE, schema, **_WRITING)
                writers[name] = stack.enter_context(file)

        last = None
        for batch in checked_batches(contents):
            floats = pa.array(np.ascontiguousarray(batch.vectors).reshape(-1), pa.float32())
            column = pa.FixedSizeListArray.from_arrays(floats, type=vector.type)
            tables = {CHUNKS: batch.chunks.append_column(vector, column), SOURCES: batch.sources}
            for collection in sorted(set(batch.sources["collection"].to_pylist())) if by_collection else [""]:
                if collection != last:
                    begin(_part(collection) if by_collection else "")
                    last = collection
                for name, table in tables.items():
                    own = table.filter(pc.field("collection") == collection) if by_collection else table
                    writers[name].write_table(own.replace_schema_metadata(metadata))
        if not writers:  # there is no document
            begin("")


def _part(collection: str) -> str:
    """Return the name of a collection's folder, as Hive has it: é stays, since Spark takes each %XX for a letter."""
    name = "".join(one if ord(one) > 127 else quote(one, safe="") for one in collection)
    return f"collection={name[:-1]}%2E" if name.endswith(".") else f"collection={name}"  # Windows drops a last dot


# Export and import.


@public
def export_parquet(
    db_path: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    collection: str | Sequence[str] | None = None,
    tags_any: Sequence[str] | None = None,
    tags_all: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    by_collection: bool = False,
    overwrite: bool = False,
) -> Exported:
    """Write a store, or its documents that pass the filters, as a folder of Parquet files.

    ``chunks/*.parquet`` has the columns of CHUNK_SCHEMA and ``embedding``, a fixed-size list of float32;
    ``sources/*.parquet`` those of SOURCE_SCHEMA. The settings of the store are JSON under the key ``sqlrag`` of the
    schema's metadata. Rows are in the order of ``doc_id`` and ``chunk_index``. It is written in batches; DuckDB
    caches what it reads of the store in memory. The same store gives the same bytes with the same version of pyarrow.

    Parameters
    ----------
    db_path
        The store.
    path
        The folder to write. It is complete or absent.
    collection, tags_any, tags_all, metadata
        As for a query: whole documents, of which the document or one chunk passes.
    by_collection
        Give each collection a folder of its own, ``collection=NAME`` as Hive names them, which DuckDB, Polars and Spark
        leave out where a query names another. What is ASCII and not a letter or digit is percent-encoded in it.
    overwrite
        Replace an existing folder of this kind.

    Returns
    -------
    Exported
        Path, counts, size in bytes, notices.

    Raises
    ------
    InputError
        A filter is not valid.
    StoreExistsError, StoreError, FormatError
        The output exists, cannot be written or is of another kind; the store cannot be read or is damaged.
    """
    by_collection = flag("by_collection", by_collection)
    with stored_contents(db_path, collection, tags_any, tags_all, metadata, by_collection=by_collection) as contents:
        return write_parquet(contents, path, overwrite=overwrite, by_collection=by_collection)


@public
def import_parquet(
    path: str | os.PathLike[str],
    db_path: str | os.PathLike[str],
    *,
    embedder: AnyEmbedder | None = None,
    overwrite: bool = False,
) -> Imported:
    """Import a folder of Parquet files into a store, new or existing.

    The files are checked against ``sqlrag.json``. Without it they may have been changed, or written by another program:
    the columns must exist, rows must be in the order of ``doc_id`` and ``chunk_index``, and everything that a store
    needs is checked.

    Parameters
    ----------
    path
        The folder.
    db_path
        The store; documents of the same ids are replaced. Vectors of length 1 are stored bit for bit.
    embedder
        The embedder of the vectors, if the files do not name it.
    overwrite
        Replace the store if it exists.

    Returns
    -------
    Imported
        Path, counts, notices.

    Raises
    ------
    InputError
        The store has a document of the same id as a row of a table; it is unchanged.
    FormatError
        A file is missing, damaged, changed or of another shape; the store is unchanged.
    ModelMismatchError
        The store has vectors of another model, or the vectors are not of the embedder.
    NotFoundError, StoreError
        The folder does not exist; the store cannot be written.
    """
    with read_parquet(path) as contents:
        return write_store(contents, db_path, embedder=embedder, overwrite=overwrite)
