"""The database files of stores: their paths, checks, and connections to them."""

from __future__ import annotations

import functools
import importlib.util
import operator
import os
import re
import secrets
import stat
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import duckdb

from sqlrag.arguments import shown
from sqlrag.engines.duckdb.blocks import descriptors, identity, mode_for, roll_back
from sqlrag.engines.duckdb.failures import damaged, failure, is_damage, remedy, unreadable, unusable
from sqlrag.engines.duckdb.statements import quoted
from sqlrag.errors import InputError, NotAStoreError, NotFoundError, StoreError, StoreExistsError, StoreLockedError
from sqlrag.network import refuse_address, shown_address

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

T = TypeVar("T")

_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])(I?)B", re.IGNORECASE)

# An empty store opens with less, but searches of real ones fail.
_LEAST_MEMORY = 64_000_000

_PID = re.compile(r"\(PID (\d+)[^)]*\)")


def real_path(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path with links followed, or raise InputError for an invalid path."""
    refuse_address(path)
    try:
        real = Path(path).expanduser().resolve()
        real.exists()
    except (TypeError, ValueError, OSError, RuntimeError) as error:
        if remedy(error):  # the disk, and not the name
            raise failure(path, error) from error
        raise InputError(f"{path!r} cannot be the path of a file: {error}.") from error
    return real


def rights_of(path: Path) -> os.stat_result | None:
    """Return the rights of a file or folder that is about to be replaced, None where there is none."""
    try:
        return path.stat()
    except (OSError, ValueError):
        return None


# By thread, what is lost to whom: one that is forked meanwhile has none of the others.
_narrowed: list[tuple[int, int]] = []

_usual_mask = 0

_masking = threading.Lock()


def _narrow() -> None:
    os.umask(functools.reduce(operator.or_, (lost for _, lost in _narrowed), _usual_mask))


def _after_fork() -> None:
    """Leave to the parent what its other threads write."""
    if _narrowed:
        _narrowed[:] = [one for one in _narrowed if one[0] == threading.get_ident()]
        _narrow()
    _masking.release()


if hasattr(os, "register_at_fork"):
    # With the lock, so that no thread is about to change the mask.
    os.register_at_fork(before=_masking.acquire, after_in_parent=_masking.release, after_in_child=_after_fork)


def _group_of_new(folder: Path) -> int:
    """Return the group that files get which are made in a folder."""
    found = folder.stat()
    if found.st_mode & stat.S_ISGID or sys.platform == "darwin" or not hasattr(os, "getegid"):
        return found.st_gid
    return os.getegid()


@contextmanager
def as_narrow_as(path: Path) -> Iterator[None]:
    """Let nobody read what is written meanwhile who cannot read the file or folder at a path, where there is one.

    DuckDB creates logs and temporary files with the rights that the process gives by default (its umask), so that is
    narrowed, for the whole process: what other threads create meanwhile is as narrow.
    """
    global _usual_mask
    rights = rights_of(path)
    mode = mode_for(rights, _group_of_new(path.parent)) if rights else 0o777
    lost = sum(0o7 * place for place in (0o10, 0o1) if not mode & 0o4 * place)
    if not lost:
        yield
        return
    mine = threading.get_ident(), lost
    with _masking:
        if not _narrowed:
            _usual_mask = os.umask(0o077)
        _narrowed.append(mine)
        _narrow()
    try:
        yield
    finally:
        with _masking:
            if mine in _narrowed:
                _narrowed.remove(mine)
                _narrow()


def check_name(real: Path) -> None:
    """Raise InputError for the path of a file that DuckDB would not open, or not find the log or the tables of."""
    name = real.name.lstrip(".").partition(".")[0].casefold()
    reason = ""
    if name == "fts_main_documents":
        reason = f"DuckDB names a database after its file, and this one has a schema {name}"
    elif "?" in str(real):
        reason = 'DuckDB takes what follows "?" for options and writes the log of the file elsewhere'
    elif os.sep == "/" and "\\" in str(real):
        reason = "DuckDB takes a backslash for the end of a folder's name"
    if reason:
        raise InputError(f"{real} cannot be the path of a store: {reason}. Give it another name.")


def check_output(path: str | os.PathLike[str], *, overwrite: bool, is_store: bool = True) -> Path:
    """Return the real path of a file that is about to be created, or raise why it cannot be."""
    real = real_path(path)
    if is_store:
        check_name(real)
    if real.is_dir():
        raise StoreError(real, f"The output {real} is a folder. Name a file in it, such as {real / 'kb.duckdb'}.")
    if real.exists() and not overwrite:
        update = " update_embeddings brings it up to date." if is_store else ""
        raise StoreExistsError(
            real, f"The output {real} exists already. Pass overwrite=True to replace it, or another name.{update}"
        )
    return real


def check_memory_limit(memory_limit: str | None) -> str | None:
    """Return the size in DuckDB's form, or raise InputError with examples."""
    if memory_limit is None:
        return None
    found = _MEMORY.fullmatch(memory_limit.strip()) if isinstance(memory_limit, str) else None
    if not found:
        raise InputError(f"memory_limit must be a size such as '500MB', '2GB' or '1.5GiB', not {shown(memory_limit)}.")
    number, unit, binary = found.groups()
    size = float(number) * (1024 if binary else 1000) ** ("KMGT".index(unit.upper()) + 1)
    if size < _LEAST_MEMORY:
        raise InputError(
            f"memory_limit {memory_limit!r} is too little to work in. The least is '64MB'; '250MB' is plenty."
        )
    return memory_limit.strip()


def log_of(path: Path) -> Path:
    """Return where DuckDB's write-ahead log of a file is."""
    return path.with_name(path.name + ".wal")


# The endings of the formats that stores are exported to.
EXCHANGED = (".ragmd", ".ragfile", ".faiss", ".parquet")


def not_duckdb(path: Path, named: str = "") -> NotAStoreError:
    """Return the error for what is no DuckDB file; ``named`` is the path as the caller wrote it."""
    name = Path(named or path)
    if path.suffix.lower() in EXCHANGED:
        target = name.with_name(f"{name.stem.removeprefix('vectors-')}.duckdb")
        return NotAStoreError(
            path,
            f"{path} is a file to be exchanged, not a DuckDB database. Make one of it: convert('{name}', '{target}').",
        )
    if not path.is_file():
        return NotAStoreError(path, f"{path} is a folder or a device, not a DuckDB file.")
    return NotAStoreError(path, f"{path} is not a DuckDB database. Name a file made by prepare_embeddings.")


def check_is_duckdb(path: Path, named: str = "") -> None:
    """Raise unless the file begins as a DuckDB database does.

    DuckDB itself would turn an empty file into a database, and download an extension for an SQLite file. A file that
    this process has open is not checked.
    """
    if is_open_here(path):
        return
    try:
        with path.open("rb") as file:
            begin = file.read(12)
    except OSError as error:
        raise StoreError(path, f"{path} cannot be read: {error.strerror or error}") from error
    if begin[8:] != b"DUCK":
        raise not_duckdb(path, named)


def is_open_here(path: Path) -> bool:
    """Return whether this process has opened the file: closing it once would release every lock on it (POSIX)."""
    wanted = identity(path)
    return any(found == wanted and _inherited.get(number) != found for number, found in descriptors().items())


# The descriptors that this process got by a fork. It has none of the locks that its parent holds, so that closing them
# releases nothing.
_inherited: dict[int, tuple[int, int]] = {}

# The files that were open under these names in the processes that it was forked from.
_names_at_fork: set[Path] = set()

_parent = 0


def inherit(names: Collection[Path]) -> None:
    """Remember, in a process that was just forked, what its parent has open: descriptors, and files by their names."""
    global _parent
    _parent = os.getppid()
    _names_at_fork.update(names)
    _inherited.clear()
    _inherited.update(descriptors())


def is_inherited(path: Path) -> bool:
    """Return whether the process that this one was forked from had the file open at the time.

    DuckDB returns an open database by its name, here that of the parent, and both would write one log.
    """
    return path in _names_at_fork or (bool(_inherited) and path.exists() and identity(path) in _inherited.values())


def check_not_inherited(path: Path) -> None:
    """Raise StoreLockedError for a file that this process cannot write, since its parent had it open at the fork."""
    if is_inherited(path):
        raise _open_at_fork(path)


def _open_at_fork(path: Path) -> StoreLockedError:
    return StoreLockedError(
        path,
        f"{path} was open in process {_parent} when this process was forked from it: it can only be read here, and "
        "only while that one does not write. Close it before the fork, or start the process by other means, such as "
        "multiprocessing.get_context('spawn').",
        _parent,
    )


def storage_version(path: Path) -> int:
    """Return the version of DuckDB's storage format that the file's header states."""
    with path.open("rb") as file:
        return int.from_bytes(file.read(20)[12:], "little")


def connect(path: Path, read_only: bool, wait_seconds: float, *, confined: bool = True) -> duckdb.DuckDBPyConnection:
    """Connect, confined to the file or not, waiting a bounded time for a process that has it open."""

    def attempt() -> duckdb.DuckDBPyConnection:
        if is_inherited(path):
            return _connect_beside_parent(path, read_only, confined)
        own = not _is_open_in_duckdb(path)
        try:
            con = duckdb.connect(str(path), read_only=read_only)
        except duckdb.ConnectionException as error:
            if "different configuration" not in str(error):
                raise StoreError(path, f"{path} cannot be opened: {error}") from error
            return _join(path, read_only)
        if own and confined:
            confine(con)
        return con

    return patiently(path, wait_seconds, attempt)


@contextmanager
def second_name(path: Path) -> Iterator[Path]:
    """Yield another name of a file, for DuckDB to open it beside one that it has open by the first; OSError if none.

    A log would have the second name as well, so the file can only be read, and only where it has no log.
    """
    if log_of(path).exists():
        raise OSError("it is being written to, or was not closed properly")
    name = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.opening")
    os.link(path, name)
    try:
        yield name
    finally:
        name.unlink()


def _connect_beside_parent(path: Path, read_only: bool, confined: bool) -> duckdb.DuckDBPyConnection:
    if not read_only:
        raise _open_at_fork(path)
    try:
        with second_name(path) as name:
            con = duckdb.connect(str(name), read_only=True)
    except OSError as error:
        raise _open_at_fork(path) from error
    if confined:
        confine(con)
    return con


def connect_remote(url: str) -> duckdb.DuckDBPyConnection:
    """Connect to a file on a web server or in an object store, as the database ``kb``, confined to it."""
    with _with_httpfs(url) as con, ExitStack() as opened:
        opened.callback(con.close)
        con.execute(f"ATTACH {quoted(url)} AS kb (READ_ONLY, TYPE duckdb)")
        confine(con)
        con.execute("USE kb.main")
        opened.pop_all()
        return con


def remote_version(url: str) -> str:
    """Ask a server for the ETag of a file, in one request that reads none of it, or raise why it cannot be searched.

    DuckDB ends a query that meets another ETag. Without, it would take the ranges of a file that has been replaced for
    those of the one that it opened, which ends the whole process as soon as they make no sense.
    """
    with _with_httpfs(url) as con, con:
        path = shown_address(url)
        if not con.execute("SELECT 1 FROM duckdb_settings() WHERE name = 'unsafe_disable_etag_checks'").fetchall():
            raise InputError(
                f"{path} is in an object store or on the web, and DuckDB {duckdb.__version__} would not notice if it "
                "were replaced there meanwhile. Install a newer one, such as 1.5.5, or copy the file here."
            )
        con.execute("CALL enable_logging('HTTP')")
        con.execute("SELECT size FROM read_blob($1)", [url]).fetchall()
        rows = con.execute("SELECT response.headers FROM duckdb_logs_parsed('HTTP') ORDER BY timestamp").fetchall()
        found = [value for (headers,) in rows for name, value in headers.items() if name.lower() == "etag"]
        if not found:
            raise InputError(
                f"{path} comes from a server that sends no ETag, without which nobody would notice if it were replaced "
                "there meanwhile. Copy the file here, or serve it by another program: nginx, Caddy and object stores "
                "send it."
            )
        return str(found[-1])


@contextmanager
def _with_httpfs(url: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a new connection with the extension; DuckDB's errors become sqlrag's."""
    path = shown_address(url)
    if re.search(r"['\"\\\x00-\x1f]", url):
        path = path.partition("?")[0]
        raise InputError(f"{path!r} is no address: write a quote in it as %27, a backslash as %5C.")
    if re.fullmatch(r"https?://[^/]*/?(db/[^/.]+/?)?", path):
        raise InputError(
            f"{path} is a server and not a file, whose address would end in its name, such as kb.duckdb. What "
            "`sqlrag serve` serves is asked by POST /hybrid_query there, see the handbook's page 'REST'."
        )
    try:
        con = duckdb.connect()
        for setting in ("autoinstall_known_extensions", "autoload_known_extensions"):
            con.execute(f"SET {setting} = false")
        con.execute("SET temp_directory = ''")  # by default it is in the working folder
        _load_httpfs(con, path)
        yield con
    except (duckdb.SerializationException, duckdb.FatalException, duckdb.InternalException) as error:
        raise damaged(path, error) from error
    except (duckdb.Error, UnicodeDecodeError) as error:
        failed = unreadable(path, error)
        if getattr(error, "status_code", None) == 404:
            raise NotFoundError(f"There is no file {path}: the server answers 404. Check the address.") from error
        raise failed from error


# The last version of DuckDB whose extension is a package of Python as well.
_LAST_HTTPFS = (1, 5, 5)


def _load_httpfs(con: duckdb.DuckDBPyConnection, path: str) -> None:
    """Load the extension where DuckDB, or the package of that name, has it; nothing is installed."""
    try:
        con.execute("LOAD httpfs")
    except duckdb.Error as error:
        ((version,),) = con.execute("SELECT library_version FROM pragma_version()").fetchall()
        found = importlib.util.find_spec("duckdb_extension_httpfs")
        folders = found.submodule_search_locations if found is not None else None
        for folder in folders or ():
            file = Path(folder) / "extensions" / version / "httpfs.duckdb_extension"
            if file.is_file():
                con.execute(f"LOAD {quoted(str(file))}")
                return
        parts = tuple(int(part) for part in re.findall(r"\d+", duckdb.__version__)[:3])
        package = f", or pip install duckdb-extension-httpfs=={duckdb.__version__}" if parts <= _LAST_HTTPFS else ""
        raise InputError(
            f"{path} is in an object store or on the web, and DuckDB {duckdb.__version__} reads it with its extension "
            'httpfs, which is not installed. Install it once, with a network: python -c "import duckdb; '
            f"duckdb.sql('INSTALL httpfs')\"{package}. Or copy the file here. See the handbook's page 'A corpus in a "
            "lake'."
        ) from error


def confine(con: duckdb.DuckDBPyConnection, *paths: Path) -> None:
    """Keep what is in a database from other files, the network and extensions, for as long as it is open.

    Views and macros are code of whoever made the file. The databases that are attached, their logs and DuckDB's
    temporary folder stay within reach, and so do those at ``paths``. DuckDB has no way back from it, so the rest of the
    configuration need not be locked: threads and memory can be set later.
    """
    reachable = [f"{path}{end}" for path in paths for end in ("", ".wal", ".wal.checkpoint", ".wal.recovery")]
    if reachable:
        con.execute("SET allowed_paths = $1", [reachable])
    for setting in ("autoinstall_known_extensions", "autoload_known_extensions", "enable_external_access"):
        con.execute(f"SET {setting} = false")


def _is_open_in_duckdb(path: Path) -> bool:
    """Return whether the program itself has the file open through ``duckdb.connect``, with settings of its own."""
    if os.name != "nt" and not is_open_here(path):
        return False
    try:
        # DuckDB refuses other settings than those that a database was opened with.
        duckdb.connect(str(path), read_only=True, config={"enable_external_access": "false"}).close()
    except duckdb.ConnectionException:
        return True
    return False


def prepare_to_write(con: duckdb.DuckDBPyConnection) -> None:
    """Apply the settings of every connection that writes vectors."""
    # ALPRD misjudges vectors in row groups of more than some 60,000 rows: 6.2 bytes a number in place of 4, and half as
    # much again to decode.
    con.execute("SET disabled_compression_methods = 'alprd'")


def patiently(path: Path, wait_seconds: float, attempt: Callable[[], T]) -> T:
    """Retry to open a file that another process has locked, for a bounded time; DuckDB's errors become sqlrag's."""
    deadline = time.monotonic() + wait_seconds
    while True:
        roll_back(path)
        try:
            return attempt()
        except duckdb.SerializationException as error:
            raise damaged(path, error) from error
        except duckdb.IOException as error:
            if "lock" not in str(error).lower():
                raise unusable(path, error) from error
            if time.monotonic() >= deadline:
                raise _locked(path, error) from error
            time.sleep(0.05)
        except duckdb.Error as error:
            if "already attached" in str(error):
                raise held_here(path, "attached to a DuckDB connection", "DETACH it") from error
            if is_damage(error):
                raise damaged(path, error) from error
            raise NotAStoreError(path, f"{path} cannot be opened as a DuckDB database: {error}") from error


def _join(path: Path, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Join the database that the program itself has open through ``duckdb.connect``, with writing allowed."""
    try:
        return duckdb.connect(str(path))
    except duckdb.ConnectionException as error:
        how = "with settings of its own" if read_only else "for reading or with settings of its own"
        raise open_by_connection(path, f" {how}") from error


def open_by_connection(path: Path, how: str = "") -> StoreLockedError:
    """Return the error for a file that the program itself has open by a connection of DuckDB."""
    remedy = "Close that connection (con.close(), or %sqlrag --close after %sqlrag in a notebook)"
    return held_here(path, f"open{how} through duckdb.connect, sqlrag.connect or %sqlrag", remedy)


def held_here(path: Path, how: str, remedy: str) -> StoreLockedError:
    """Return the error for a file that the program itself has open."""
    return StoreLockedError(path, f"{path} is {how} in this process. {remedy} and try again.", os.getpid())


def _program_of(pid: int) -> str:
    """Return what a process runs where that is known: a command of sqlrag, a notebook or DuckDB's shell; else ""."""
    try:
        words = [os.fsdecode(one) for one in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
    except OSError:  # there is no /proc, or no such process any more
        return ""
    names = [Path(one).name for one in words[:3]]
    if "ipykernel_launcher" in names:
        return "a notebook kernel"
    if "sqlrag" in names:  # a script of Python, or a module: python -m sqlrag
        command = next((one for one in words[names.index("sqlrag") + 1 :] if not one.startswith("-")), "")
        return f"sqlrag {command}".strip()
    return "a shell of DuckDB" if names[0] == "duckdb" else ""


def _locked(path: Path, error: duckdb.IOException) -> StoreLockedError:
    found = _PID.search(str(error))
    pid = int(found[1]) if found else None
    who = f"process {pid}" if pid else "another process"
    what = (pid and _program_of(pid)) or "often a notebook kernel, a shell or a server"
    return StoreLockedError(
        path,
        f"{path} is in use by {who}, {what}: one process may write, or several "
        "may read. Wait until it is done (wait_seconds=60, or SQLRAG_WAIT_SECONDS=60 in the environment), or end it "
        "and try again. A program that keeps a Store open has to close it first; beside a server that is asked without "
        "a pause, change a copy and move it over this file.",
        pid,
    )
