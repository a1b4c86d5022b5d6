"""Reads a folder of Parquet files, after checking it against what its writer noted."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sqlrag.errors import FormatError, NotFoundError
from sqlrag.formats.contents import CHUNK_SCHEMA, SETTINGS, SOURCE_SCHEMA, Batch, Contents, has_own_ids
from sqlrag.formats.strict_json import strict_json
from sqlrag.store.files import real_path

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow.parquet as pq

    from sqlrag.types import Vectors

CHUNKS, SOURCES = "chunks", "sources"
MANIFEST = "sqlrag.json"
KEY = b"sqlrag"
# Rows that are read at a time: a document may be long.
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


@contextmanager
def read_parquet(path: str | os.PathLike[str]) -> Iterator[Contents]:
    """Open a folder of Parquet files and yield what it holds; see :func:`import_parquet`.

    Raises
    ------
    NotFoundError
        There is no such folder.
    FormatError
        A file is missing, damaged, of another shape, or not the one that was exported.
    """
    import pyarrow.parquet as pq

    folder = real_path(path)
    if not folder.is_dir():
        raise NotFoundError(f"The folder {folder} does not exist.")
    paths = {name: sorted((folder / name).glob("*.parquet")) for name in (CHUNKS, SOURCES)}
    for name, found in paths.items():
        if not found:
            raise FormatError(f"{folder} has no Parquet file in its folder {name}/. Name a folder of export_parquet.")
    manifest = _manifest(folder, [file for found in paths.values() for file in found])
    with ExitStack() as stack:
        with _as_format_error(folder):
            files = {
                name: [stack.enter_context(pq.ParquetFile(file)) for file in found] for name, found in paths.items()
            }
            settings, updated_at = _facts(files[CHUNKS][0], folder)
            dimensions = _dimensions(files[CHUNKS][0], settings, folder)
        settings = {**settings, "embedding_dimensions": str(dimensions)}
        counts = {name: sum(file.metadata.num_rows for file in found) for name, found in files.items()}
        notices = []
        if manifest is None:
            notices.append(f"{folder} has no {MANIFEST}: whether its files were changed was not checked.")
        elif (manifest["documents"], manifest["chunks"]) != (counts[SOURCES], counts[CHUNKS]):
            raise FormatError(f"{folder / MANIFEST} names other counts than the files hold. Export the folder again.")
        batches = _batches(files, dimensions, folder, has_own_ids(settings))
        yield Contents(settings, counts[SOURCES], counts[CHUNKS], batches, updated_at, notices)


def _manifest(folder: Path, files: Sequence[Path]) -> dict[str, Any] | None:
    """Return what the manifest says after checking the files against it, None where there is none."""
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
        raise FormatError(f"{file} has the layout {layout!r}; this sqlrag knows 1.")
    found = {path.relative_to(folder).as_posix(): path for path in files}
    if set(named) != set(found):
        other = ", ".join(sorted(set(named) ^ set(found)))
        raise FormatError(
            f"{file} does not name the files of the folder: {other}. Get the missing ones, or export again."
        )
    for name, path in found.items():
        if sha256_of(path) != named[name]:
            raise FormatError(
                f"{path} is not the file that was exported: its SHA-256 is another one. Get it again; if it was "
                f"changed on purpose, delete {file}."
            )
    return dict(manifest)


@contextmanager
def _as_format_error(folder: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        raise FormatError(f"{folder}: a Parquet file cannot be read: {error}. Get it again.") from error


def _facts(file: pq.ParquetFile, folder: Path) -> tuple[dict[str, str], str]:
    """Return the settings and the time of the last change, as far as the schema's metadata holds them."""
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
            raise ValueError("its layout must be 1 and its settings texts")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FormatError(f"{where} cannot be used: {error!r}. Export the folder again.") from error
    return settings, str(facts["updated_at"])


def _dimensions(file: pq.ParquetFile, settings: Mapping[str, str], folder: Path) -> int:
    """Return the length of the vectors: of their type, or of the settings where the type leaves it open."""
    schema = file.schema_arrow
    kind = schema.field("embedding").type if "embedding" in schema.names else pa.null()
    said = settings.get("embedding_dimensions")
    known = str(kind.list_size) if pa.types.is_fixed_size_list(kind) else said
    if known is None and pa.types.is_list(kind):
        first = next(file.iter_batches(1, columns=["embedding"]), None)
        known = str(len(first["embedding"][0] or ())) if first is not None and len(first) else "0"
    if known is None or not known.isdecimal() or not 0 < int(known) < _MOST_DIMENSIONS or said not in (None, known):
        raise FormatError(
            f"{folder / CHUNKS}: the column embedding is {kind}, the settings say {said} dimensions. It must be a list "
            "of floats of one length. Export the folder again."
        )
    return int(known)


def _batches(
    files: Mapping[str, Sequence[pq.ParquetFile]], dimensions: int, folder: Path, any_node_id: bool
) -> Iterator[Batch]:
    """Yield documents with their chunks, both of which come in the order of ``doc_id``."""
    vector = pa.field("embedding", pa.list_(pa.float32(), dimensions), nullable=False)
    with _as_format_error(folder):
        chunks = _Ahead(_tables(files[CHUNKS], CHUNK_SCHEMA.append(vector), _CHUNKS, folder))
        last = ""
        for sources in _tables(files[SOURCES], SOURCE_SCHEMA, _DOCUMENTS, folder):
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


class _Ahead:
    """Chunks that are read as far as they are asked for."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self._left = next(tables)

    def up_to(self, doc_id: str | None) -> pa.Table:
        """Return the chunks up to those of a document, or all that are left."""
        parts = []
        while True:
            ids = self._left["doc_id"].to_pylist()
            count = len(ids) if doc_id is None else bisect_right(ids, doc_id)
            parts.append(self._left.slice(0, count))
            self._left = self._left.slice(count)
            if count < len(ids) or (table := next(self._tables, None)) is None:
                return pa.concat_tables(parts)
            self._left = table


def _tables(files: Iterable[pq.ParquetFile], schema: pa.Schema, rows: int, folder: Path) -> Iterator[pa.Table]:
    """Yield the rows of files as tables of a schema; at least one, which may be empty."""
    yield schema.empty_table()
    for file in files:
        missing = set(schema.names) - set(file.schema_arrow.names)
        if missing:
            raise FormatError(f"{folder}: a file has no column {', '.join(sorted(missing))}. Export the folder again.")
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
        raise FormatError(f"{folder / CHUNKS}: a chunk has no vector, or one with a number missing.")
    matrix: Vectors = values.to_numpy(zero_copy_only=False).reshape(len(table), column.type.list_size)
    return matrix


def _checked_ids(chunks: pa.Table, folder: Path, any_node_id: bool) -> pa.Table:
    """Return chunks after making sure of their order, and that their ids say document and place."""
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
            raise FormatError(f"{folder / CHUNKS}: the chunk {node_id!r} should be named {f'{doc_id}#{place}'!r}.")
        last = doc_id, place
    return chunks
