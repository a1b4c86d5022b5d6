"""Converts files between formats, and verifies them; the suffix of a name gives the format."""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlrag import arguments
from sqlrag.arguments import counted, flag
from sqlrag.engines.contents import checked_batches
from sqlrag.engines.duckdb.check import dimensions_of, run_checks
from sqlrag.engines.duckdb.database import Database
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.files import check_is_duckdb, is_open_here, real_path
from sqlrag.errors import FormatError, InputError, StoreError
from sqlrag.formats.exchange import store_settings, stored_contents, write_store
from sqlrag.formats.targets import Exported, size_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from sqlrag.engines.contents import Contents
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
    """The facts of a file of any format. ``settings`` are keys of ``embedding_metadata``."""

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
        """Format it as lines."""
        table = {
            "file": f"{self.path} ({self.size_bytes:,} bytes{' with its JSON' * (self.format == 'faiss_json')})",
            "format": self.format,
            "model": f"{self.model} ({self.dimensions} dimensions)",
            "documents": f"{self.documents:,}",
            "chunks": f"{self.chunks:,}",
        }
        return "\n".join([*(f"{name:<12} {value}" for name, value in table.items()), *self.notices])


def format_of(path: str | os.PathLike[str]) -> str:
    """Return the format of a name, or else of the content of the file.

    Raises
    ------
    InputError
        Neither gives a format.
    """
    real = real_path(arguments.path("path", path))
    if real.is_file() and _is_duckdb(real):
        return STORE
    if real.is_dir() and _indexes_in(real):
        return "faiss_json"
    for name, suffixes in SUFFIXES.items():
        if real.suffix.lower() in suffixes and (name != "parquet" or real.is_dir() or not real.exists()):
            return name
    if real.exists():
        for name in SUFFIXES:
            if name != STORE and _function(name, "is")(real):
                return name
    known = ", ".join(suffix for suffixes in SUFFIXES.values() for suffix in suffixes if suffix)
    raise InputError(f"The name {str(path)!r} has no known format. Use one that ends in {known}.")


def is_exchange_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a file exists and is not a store, by its name or its content."""
    try:
        return real_path(path).exists() and format_of(path) != STORE
    except InputError:
        return False


@public
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
    absolute_paths: bool = False,
    embedder: AnyEmbedder | None = None,
    overwrite: bool = False,
) -> Exported:
    """Convert a file from one format to another; ids, texts, metadata, offsets and vectors stay the same.

    Parameters
    ----------
    source, target
        Files whose suffix names the format: ``.duckdb`` or ``.db`` (a store), ``.ragmd`` or ``.md``, ``.ragfile``,
        ``.faiss`` (with its JSON file, or the folder that has both), ``.parquet`` or a name without a suffix (a
        folder). The documents are added to a store that exists, and replace those of the same ids.
    source_json, target_json
        The JSON file of a ``.faiss`` file. None: ``metadata-NAME.json`` next to ``vectors-NAME.faiss``.
    collection, tags_any, tags_all, metadata
        From a store, only documents of which the document or a chunk passes these filters; see
        :func:`sqlrag.hybrid_query`.
    absolute_paths
        From a store, give the whole paths of the files; without it they begin below the folder that was read, so that
        an export that is passed on does not tell the folders of a machine.
    embedder
        For a target that is a store: the embedder of the vectors, if the source does not name it.
    overwrite
        Replace the target if it exists and is of its format.

    Returns
    -------
    Exported
        ``path``, ``documents``, ``chunks``, ``size_bytes`` and ``notices``.

    Raises
    ------
    InputError
        A suffix is unknown, source and target are one file, or a filter or ``absolute_paths`` is set for a source that
        is not a store.
    NotFoundError
        The source does not exist.
    FormatError
        The source is damaged or of another format; the target is unchanged.
    StoreError and its kinds, ModelMismatchError
        The store cannot be read or written.
    """
    overwrite = flag("overwrite", overwrite)
    absolute_paths = flag("absolute_paths", absolute_paths)
    filters = {"collection": collection, "tags_any": tags_any, "tags_all": tags_all, "metadata": metadata}
    kind, wanted = format_of(source), format_of(target)
    if target_json is not None and wanted != "faiss_json":
        raise InputError(f"A JSON file belongs to a .faiss file, not to {str(target)!r}.")
    if real_path(source) == real_path(target):
        raise InputError(f"source and target are one file, {real_path(source)}. Name another target.")
    if embedder is not None and wanted != STORE:
        raise InputError(f"An embedder is for a target that is a store, not for {str(target)!r}.")
    chosen = {**filters, "absolute_paths": absolute_paths}
    with opened(source, source_json, chosen if kind == STORE or any(chosen.values()) else {}) as contents:
        if wanted == STORE:
            done = write_store(contents, target, embedder=embedder, overwrite=overwrite)
            return Exported(done.path, done.documents, done.chunks, done.path.stat().st_size, done.notices)
        arguments = {} if target_json is None else {"json_path": target_json}
        written: Exported = _function(wanted, "write")(contents, target, overwrite=overwrite, **arguments)
        return written


@public
def file_facts(path: str | os.PathLike[str], json_path: str | os.PathLike[str] | None = None) -> FileFacts:
    """Return the facts of a file of any format.

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


@public
def verify_file(path: str | os.PathLike[str], json_path: str | os.PathLike[str] | None = None) -> FileFacts:
    """Read a whole file of any format, and return its facts if it could be stored.

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
        The file is damaged; the message says where.
    NotFoundError, InputError, StoreError
        As for :func:`convert`.
    """
    kind = format_of(path)
    if kind == STORE:
        with Database.open(path) as database:
            problems = run_checks(database, dimensions_of(database))
        if problems:
            first = problems[0]
            raise FormatError(
                f"{path} is not sound: {first.check}, {counted(first.rows, 'row')}, such as {first.examples[0]}. "
                f"{first.rule} All that is wrong: sqlrag check {path}"
            )
    with opened(path, json_path) as contents:
        store_settings(contents)
        for _ in checked_batches(contents):
            pass
        return _facts(path, json_path, kind, contents)


@contextmanager
def opened(
    path: str | os.PathLike[str],
    json_path: str | os.PathLike[str] | None = None,
    filters: Mapping[str, Any] | None = None,
) -> Iterator[Contents]:
    """Open a file of any format and yield its contents."""
    kind = format_of(path)
    if json_path is not None and kind != "faiss_json":
        raise InputError(f"A JSON file belongs to a .faiss file, not to {str(path)!r}.")
    if kind == STORE:
        with stored_contents(path, **(filters or {})) as contents:
            yield contents
        return
    if filters:
        raise InputError(f"Filters and absolute paths need a store, and {str(path)!r} is not one. Import it first.")
    arguments = {} if json_path is None else {"json_path": json_path}
    with _function(kind, "read")(path, **arguments) as contents:
        yield contents


def _facts(
    path: str | os.PathLike[str], json_path: str | os.PathLike[str] | None, kind: str, contents: Contents
) -> FileFacts:
    real = real_path(path)
    return FileFacts(
        real,
        kind,
        size_of(*(_pair(path, json_path) if kind == "faiss_json" else [real])),
        contents.settings.get("embedding_model", "unknown"),
        contents.dimensions,
        contents.documents,
        contents.chunks,
        dict(contents.settings),
        [] if kind == STORE else list(contents.notices),  # those of a store are about what is made of it
    )


def _pair(path: str | os.PathLike[str], json_path: str | os.PathLike[str] | None) -> tuple[Path, Path]:
    from sqlrag.formats.faiss_json import pair_of

    return pair_of(path, json_path)


def _indexes_in(folder: Path) -> list[Path]:
    from sqlrag.formats.faiss_json import indexes_in

    return indexes_in(folder)


def _is_duckdb(path: Path) -> bool:
    """Return whether a file starts like a DuckDB database; one that is open in this process is detected by its name."""
    if is_open_here(path):
        return path.suffix.lower() not in {suffix for name in SUFFIXES if name != STORE for suffix in SUFFIXES[name]}
    try:
        check_is_duckdb(path)
    except StoreError:
        return False
    return True


def _function(name: str, verb: str) -> Any:
    """Return the function of a format; its module is imported on demand."""
    return getattr(import_module(f"sqlrag.formats.{name}"), f"{verb}_{name}")
