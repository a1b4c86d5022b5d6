"""Turns a file of one format into one of another, and looks one over; names tell the format by their suffix."""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlrag import options
from sqlrag.errors import FormatError, InputError, StoreError
from sqlrag.formats.contents import checked_batches
from sqlrag.formats.exchange import store_settings, stored_contents, write_store
from sqlrag.formats.files import Exported
from sqlrag.store.files import check_is_duckdb, is_open_here, real_path

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from sqlrag.formats.contents import Contents
    from sqlrag.types import AnyEmbedder

STORE = "duckdb"
# The suffixes of each format, the one to use first; a name that ends in "/" or has no suffix is a folder.
SUFFIXES = {
    STORE: (".duckdb", ".db"),
    "ragmd": (".ragmd", ".md"),
    "ragfile": (".ragfile", ".rag"),
    "faiss_json": (".faiss",),
    "parquet": (".parquet", ""),
}


class FileFacts(NamedTuple):
    """What a file of any format says of itself. ``settings`` are keys of ``embedding_metadata``."""

    path: Path
    format: str
    size_bytes: int
    model: str
    dimensions: int
    documents: int
    chunks: int
    settings: Mapping[str, str]
    notices: list[str]

    def __str__(self) -> str:
        """Say it in lines."""
        table = {
            "file": f"{self.path} ({self.size_bytes:,} bytes)",
            "format": self.format,
            "model": f"{self.model} ({self.dimensions} dimensions)",
            "documents": f"{self.documents:,}",
            "chunks": f"{self.chunks:,}",
        }
        return "\n".join([*(f"{name:<12} {value}" for name, value in table.items()), *self.notices])


def format_of(path: str | os.PathLike[str]) -> str:
    """Return the format that a name says, or that a file without such a name has.

    Raises
    ------
    InputError
        Neither tells.
    """
    real = real_path(options.path("path", path))
    if real.is_file() and _is_duckdb(real):
        return STORE
    for name, suffixes in SUFFIXES.items():
        if real.suffix.lower() in suffixes and (name != "parquet" or real.is_dir() or not real.exists()):
            return name
    if real.exists():
        for name in SUFFIXES:
            if name != STORE and _function(name, "is")(real):
                return name
    known = ", ".join(suffix for suffixes in SUFFIXES.values() for suffix in suffixes if suffix)
    raise InputError(f"The name {str(path)!r} tells no format. Use one that ends in {known}.")


def is_exchange_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is there and of a format other than a store's, by its name or what it holds."""
    try:
        return real_path(path).exists() and format_of(path) != STORE
    except InputError:
        return False


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    source_json: str | os.PathLike[str] | None = None,
    target_json: str | os.PathLike[str] | None = None,
    collection: str | Sequence[str] | None = None,
    tags_any: Sequence[str] | None = None,
    tags_all: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    embedder: AnyEmbedder | None = None,
    overwrite: bool = False,
) -> Exported:
    """Turn a file of one format into one of another; ids, texts, metadata, offsets and vectors stay what they are.

    Parameters
    ----------
    source, target
        Files whose suffix names the format: ``.duckdb`` or ``.db`` (a store), ``.ragmd`` or ``.md``, ``.ragfile``,
        ``.faiss`` (with its JSON file), ``.parquet`` or a name without a suffix (a folder). A store that exists takes
        the documents in, in place of those of the same ids.
    source_json, target_json
        The JSON file of a ``.faiss`` file. None: ``metadata-NAME.json`` beside ``vectors-NAME.faiss``.
    collection, tags_any, tags_all, metadata
        Of a store, the documents that pass these filters, themselves or by one of their chunks; see
        :func:`sqlrag.hybrid_query`.
    embedder
        For a target that is a store: what made the vectors, where the source does not say it.
    overwrite
        Replace the target if it exists and is of its format; a store is made anew.

    Returns
    -------
    Exported
        ``path``, ``documents``, ``chunks``, ``size_bytes`` and ``notices``.

    Raises
    ------
    InputError
        A suffix names no format, source and target are one file, or a filter is set for what is no store.
    NotFoundError
        The source does not exist.
    FormatError
        The source is damaged or of another format; the target is as it was.
    StoreError and its kinds, ModelMismatchError
        The store cannot be read or written.
    """
    overwrite = options.flag("overwrite", overwrite)
    filters = {"collection": collection, "tags_any": tags_any, "tags_all": tags_all, "metadata": metadata}
    kind, wanted = format_of(source), format_of(target)
    if target_json is not None and wanted != "faiss_json":
        raise InputError(f"A JSON file belongs to a .faiss file, not to {str(target)!r}.")
    if real_path(source) == real_path(target):
        raise InputError(f"source and target are one file, {real_path(source)}. Name another target.")
    if embedder is not None and wanted != STORE:
        raise InputError(f"An embedder has no use for a target that is no store, such as {str(target)!r}.")
    with opened(source, source_json, filters if kind == STORE or any(filters.values()) else {}) as contents:
        if wanted == STORE:
            done = write_store(contents, target, embedder=embedder, overwrite=overwrite)
            return Exported(done.path, done.documents, done.chunks, done.path.stat().st_size, done.notices)
        arguments = {} if target_json is None else {"json_path": target_json}
        written: Exported = _function(wanted, "write")(contents, target, overwrite=overwrite, **arguments)
        return written


def file_facts(path: str | os.PathLike[str], json_path: str | os.PathLike[str] | None = None) -> FileFacts:
    """Return what a file of any format says of itself.

    Parameters
    ----------
    path, json_path
        The file; the JSON file of a ``.faiss`` file is found by its name unless given.

    Returns
    -------
    FileFacts
        ``path``, ``format``, ``size_bytes``, ``model``, ``dimensions``, ``documents``, ``chunks``, ``settings`` and
        ``notices``.

    Raises
    ------
    InputError, NotFoundError, FormatError, StoreError
        As for :func:`convert`.
    """
    kind = format_of(path)
    with opened(path, json_path) as contents:
        return _facts(path, json_path, kind, contents)


def verify_file(path: str | os.PathLike[str], json_path: str | os.PathLike[str] | None = None) -> FileFacts:
    """Read a file of any format through, and return what it says of itself if it could be stored as it is.

    Parameters
    ----------
    path, json_path
        As for :func:`file_facts`.

    Returns
    -------
    FileFacts
        As of :func:`file_facts`.

    Raises
    ------
    FormatError
        It is damaged; the message says where.
    NotFoundError, InputError, StoreError
        As for :func:`convert`.
    """
    kind = format_of(path)
    with opened(path, json_path) as contents:
        store_settings(contents)
        documents = chunks = 0
        for batch in checked_batches(contents.batches, contents.dimensions):
            documents += len(batch.sources)
            chunks += len(batch.chunks)
        if (documents, chunks) != (contents.documents, contents.chunks):
            raise FormatError(
                f"{path} names {contents.documents} documents and {contents.chunks} chunks, but holds {documents} and "
                f"{chunks}."
            )
        return _facts(path, json_path, kind, contents)


@contextmanager
def opened(
    path: str | os.PathLike[str],
    json_path: str | os.PathLike[str] | None = None,
    filters: Mapping[str, Any] | None = None,
) -> Iterator[Contents]:
    """Open a file of any format and yield what it holds."""
    kind = format_of(path)
    if json_path is not None and kind != "faiss_json":
        raise InputError(f"A JSON file belongs to a .faiss file, not to {str(path)!r}.")
    if kind == STORE:
        with stored_contents(path, **(filters or {})) as contents:
            yield contents
        return
    if filters:
        raise InputError(f"Filters choose out of a store; {str(path)!r} is none. Import it first.")
    arguments = {} if json_path is None else {"json_path": json_path}
    with _function(kind, "read")(path, **arguments) as contents:
        yield contents


def _facts(
    path: str | os.PathLike[str], json_path: str | os.PathLike[str] | None, kind: str, contents: Contents
) -> FileFacts:
    real = real_path(path)
    if kind == "faiss_json":
        files: Iterable[Path] = _pair(path, json_path)
    else:
        files = [real] if real.is_file() else (file for file in real.rglob("*") if file.is_file())
    return FileFacts(
        real,
        kind,
        sum(file.stat().st_size for file in files),
        contents.settings.get("embedding_model", "unknown"),
        contents.dimensions,
        contents.documents,
        contents.chunks,
        dict(contents.settings),
        list(contents.notices),
    )


def _pair(path: str | os.PathLike[str], json_path: str | os.PathLike[str] | None) -> tuple[Path, Path]:
    from sqlrag.formats.faiss_json import pair_of

    return pair_of(path, json_path)


def _is_duckdb(path: Path) -> bool:
    """Return whether a file begins as a DuckDB database does; one that is open here is told by its name."""
    if is_open_here(path):
        return path.suffix.lower() not in {suffix for name in SUFFIXES if name != STORE for suffix in SUFFIXES[name]}
    try:
        check_is_duckdb(path)
    except StoreError:
        return False
    return True


def _function(name: str, verb: str) -> Any:
    """Return the function of a format; its module is loaded only now."""
    return getattr(import_module(f"sqlrag.formats.{name}"), f"{verb}_{name}")
