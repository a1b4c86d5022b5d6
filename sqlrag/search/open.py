"""Opens a store wherever it is: a file, several files, or a server. Which class does it says one table."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from sqlrag import arguments
from sqlrag.arguments import counted
from sqlrag.errors import InputError
from sqlrag.network import REMOTE, scheme_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeAlias

    from sqlrag.search.postgres_store import PostgresStore
    from sqlrag.search.store import Store
    from sqlrag.search.stores import Stores
    from sqlrag.types import AnyEmbedder

    # A place that can be written: the path of a file, the URL of one in Postgres, or an open one.
    AnyStore: TypeAlias = "str | os.PathLike[str] | Store | PostgresStore"
    # To search also several files.
    AnyStores: TypeAlias = "AnyStore | Stores | list[Any] | tuple[Any, ...]"


class Backend(NamedTuple):
    """What handles a kind of store, each as "module:name": its class, what exports read, and what a push writes to."""

    store: str
    contents: str = ""
    target: str = ""


_POSTGRES = Backend(
    "sqlrag.search.postgres_store:PostgresStore",
    "sqlrag.formats.exchange:postgres_contents",
    "sqlrag.formats.push.to_postgres:PostgresTarget",
)

_FILE = Backend("sqlrag.search.store:Store", "sqlrag.formats.exchange:file_contents")

# By the scheme of an address; "" is the path of a file.
BACKENDS = {
    "": _FILE,
    "postgres": _POSTGRES,
    "postgresql": _POSTGRES,
    **dict.fromkeys(REMOTE, _FILE),  # which are only searched
}

_SEVERAL = Backend("sqlrag.search.stores:Stores")


def backend_of(where: object) -> Backend:
    """Return what handles the store at a place. An unknown scheme is refused by what opens files."""
    if isinstance(where, (list, tuple)):
        return _SEVERAL
    return BACKENDS.get(scheme_of(where), BACKENDS[""])


def is_address(where: object) -> bool:
    """Return whether a place is the address of a server, or of a file on one, and no file of this machine."""
    return scheme_of(where) in BACKENDS and bool(scheme_of(where))


def loaded(name: str) -> Any:
    """Return the object that a :class:`Backend` names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


@overload
def open_store(
    where: AnyStore,
    *,
    read_only: bool = True,
    embedder: AnyEmbedder | None = None,
    wait_seconds: float | None = None,
) -> AbstractContextManager[Store | PostgresStore]: ...


@overload
def open_store(
    where: AnyStores,
    *,
    read_only: bool = True,
    embedder: AnyEmbedder | None = None,
    wait_seconds: float | None = None,
) -> AbstractContextManager[Store | PostgresStore | Stores]: ...


def open_store(
    where: AnyStores,
    *,
    read_only: bool = True,
    embedder: AnyEmbedder | None = None,
    wait_seconds: float | None = None,
) -> AbstractContextManager[Any]:
    """Open a store wherever it is, for a ``with`` block.

    Parameters
    ----------
    where
        The path of a file; a list of paths, which are searched as one file; a ``postgresql://`` URL; the ``https://``,
        ``s3://``, ``gs://``, ``r2://`` or ``hf://`` address of a file, which is only read; or an open
        :class:`Store`, :class:`Stores` or :class:`PostgresStore`.
    read_only
        False to write to it.
    embedder, wait_seconds
        As for :class:`Store`; an open store keeps its own.

    Returns
    -------
    context manager
        Of the open store, which is closed at the end; one that was open before is left open.

    Raises
    ------
    InputError
        It is none of these, or several files are to be written to.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        It cannot be opened; see :mod:`sqlrag.errors`.
    MissingExtraError
        An address needs the extra ``postgres``.

    Examples
    --------
    >>> with open_store("kb.duckdb") as store:  # doctest: +SKIP
    ...     store.hybrid_query("How do I filter by tag?", top_k=3)
    """
    return _Opening(where, read_only=read_only, embedder=embedder, wait_seconds=wait_seconds)


class _Opening(AbstractContextManager[Any]):
    """A store that is opened where the ``with`` block begins. A copy of it opens the same place again."""

    def __init__(self, where: AnyStores, **options: Any) -> None:
        self._where, self._options = where, options
        self._blocks: list[AbstractContextManager[Any]] = []

    def __reduce__(self) -> tuple[partial[_Opening], tuple[()]]:
        return partial(_Opening, self._where, **self._options), ()

    def __enter__(self) -> Any:
        block = _opened(self._where, **self._options)
        store = block.__enter__()
        self._blocks.append(block)
        return store

    def __exit__(self, *error: Any) -> bool | None:
        return self._blocks.pop().__exit__(*error)


@contextmanager
def _opened(where: AnyStores, *, read_only: bool, **others: Any) -> Iterator[Any]:
    if is_open(where):
        if not read_only:
            _refuse_several(where)
        yield where
        return
    if isinstance(where, (str, os.PathLike)):
        arguments.path("db_path", where)
        others["read_only"] = read_only
    elif not isinstance(where, (list, tuple)):
        raise InputError(
            "db_path must be a path, such as 'kb.duckdb', a list of them, a postgresql:// URL or an open store, not "
            f"{arguments.shown(where)}."
        )
    elif not read_only:
        raise InputError("db_path is a list of several files, which are only searched. Name the one to write to.")
    with loaded(backend_of(where).store)(where, **others) as store:
        yield store


def is_open(where: object) -> bool:
    """Return whether it is an open store."""
    if isinstance(where, (str, os.PathLike, list, tuple)):
        return False
    from sqlrag.search.queries import Queries

    return isinstance(where, Queries)


def opened_for(store: object, methods: Sequence[str], name: str = "store") -> AbstractContextManager[Any]:
    """Do the same, but leave an object that has these methods as it is: a store of another engine will do."""
    if not isinstance(store, type) and all(callable(getattr(store, method, None)) for method in methods):
        return nullcontext(store)
    if isinstance(store, (str, os.PathLike, list, tuple)):
        return open_store(store)
    raise InputError(
        f"{name} must be an open store, such as sqlrag.Store('kb.duckdb'), a path, a list of paths or a postgresql:// "
        f"URL, not {arguments.shown(store)}."
    )


@contextmanager
def open_one(where: AnyStores, *, wait_seconds: float | None = None) -> Iterator[Store | PostgresStore]:
    """Do the same for reading, with one store: several files raise InputError."""
    with open_store(where, wait_seconds=wait_seconds) as store:
        _refuse_several(store)
        yield store  # type: ignore[misc]


@contextmanager
def open_file(where: AnyStores, *, read_only: bool = True) -> Iterator[Store]:
    """Do the same with one DuckDB file; anything else raises InputError."""
    with open_store(where, read_only=read_only) as store:
        store.cursor()  # says that this needs a file
        yield store  # type: ignore[misc]


def _refuse_several(store: object) -> None:
    from sqlrag.search.writes import Writes

    if not isinstance(store, Writes):
        raise InputError("This takes one store, not several files. Name one of them, or make one: sqlrag merge")


def files_of(where: AnyStores) -> list[Path]:
    """Return the files that a store is in, absolute; none for one on a server."""
    if is_open(where):
        files: list[Path] = where.paths  # type: ignore[union-attr]
        return files
    if is_address(where):
        return []
    places: Any = where if isinstance(where, (list, tuple)) else [where]
    return [Path(arguments.path("db_path", place)).expanduser().absolute() for place in places]


def name_of(where: AnyStores) -> str:
    """Return what a store is called for others: the name of its file, or of the database."""
    files = files_of(where)
    if not files:
        return str(getattr(where, "path", where)).partition("?")[0].rpartition("/")[2]
    others = f" and {counted(len(files) - 1, 'other file')}" if files[1:] else ""
    return f"{files[0].name}{others}"
