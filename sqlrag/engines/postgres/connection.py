"""A store in Postgres with pgvector: its address, its connections, its migrations, its transactions."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit
from zlib import crc32

from sqlrag.arguments import shown
from sqlrag.engines.duckdb.schema import read_sql, sql_folder
from sqlrag.errors import (
    InputError,
    MissingExtraError,
    NotAStoreError,
    SchemaVersionError,
    StoreError,
    StoreExistsError,
    StoreLockedError,
)
from sqlrag.locks import new_lock
from sqlrag.network import scheme_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import psycopg
    import psycopg_pool

    Connection = psycopg.Connection[tuple[Any, ...]]

T = TypeVar("T")

log = logging.getLogger("sqlrag.store")

DEFAULT_SCHEMA = "sqlrag"

_SCHEMES = ("postgresql", "postgres")

MOST_DIMENSIONS = 16_000  # of pgvector's type

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")

_PARAMETER = re.compile(r"[A-Za-z_]+")  # of libpq, and "schema"

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")

_LEAST_PGVECTOR = (0, 8)  # the first with iterative scans, without which filtered searches by index return too few

_SLOTS = 64  # locks of a transaction on documents: the server has room for some thousand locks in all

# The tables of a store, of which one of an earlier sqlrag lacks the last three; they are made anew from the others.
_TABLES = ("chunks", "documents", "collections", "embedding_metadata", "migrations")

_OF_WORDS = ("postings", "lengths", "stopwords")

_DIMENSIONS = re.compile(r"\b(vector|bit)\(384\)")

_QUOTED = re.compile(r'"[^"]*"?')

# The classes of errors after which a retry may succeed: no connection, a server that stops or has too many clients, a
# transaction that another one invalidated. Others are also OperationalError, such as a full disk.
_LOST = ("08", "57P", "53300", "40")

# How long a lost connection is retried, in seconds: a restart takes a few.
RETRY_SECONDS = 10.0

# Connections that a process shares with the one that it was forked from: whoever ends one ends it for both.
_of_parents: list[Any] = []

_renewing = new_lock()


@dataclass(frozen=True)
class Address:
    """Where a store is: what libpq connects to, the schema, and the address as messages show it, without a password."""

    conninfo: str = field(repr=False)
    schema: str
    shown: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Return the parts of ``postgresql://user@host/database?schema=kb``; there may be several hosts, ``a:5432,b``.

        Raises
        ------
        InputError
            It is not such a URL, or the name of the schema is invalid.
        """
        if scheme_of(url) not in _SCHEMES:
            raise InputError(f"{shown(url)} is not the address of a Postgres server: postgresql://user@host/database.")
        try:
            parts = urlsplit(url)
            for host in parts.netloc.rpartition("@")[2].split(","):
                urlsplit(f"//{host}").port  # noqa: B018 - raises ValueError
            # For libpq a plus is not a blank.
            query = parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True)
            misread = "#" in url or "@" in parts.path or parts.netloc.count("@") > 1 or _BAD_ESCAPE.search(url)
            if misread or not all(_PARAMETER.fullmatch(name) for name, _ in query):
                raise ValueError
        except ValueError:
            # Shows neither the address nor the cause: what was misread may be a part of the password.
            raise InputError(
                "The address of the Postgres server cannot be read. It is postgresql://user:password@host:port/database"
                "?name=value; in a user or password write %40 for @, %3A for :, %2F for /, %3F for ?, %23 for #, "
                "%25 for % and %20 for a blank."
            ) from None
        schema = dict(query).get("schema", DEFAULT_SCHEMA)
        if not _NAME.fullmatch(schema) or schema.lower().startswith("pg_"):
            raise InputError(f"schema={schema!r} in the address: a name has letters, digits and _ only, not pg_ first.")
        others = [(name, value) for name, value in query if name != "schema"]
        host = parts.netloc.rpartition("@")[2]
        user = parts.username or ""
        visible = [pair for pair in others if "password" not in pair[0].lower()]
        visible += [("schema", schema)] if schema != DEFAULT_SCHEMA else []
        place = f"{user}@{host}" if user else host

        def joined(place: str, pairs: list[tuple[str, str]], safe: str) -> str:
            # Not by urlunsplit, which leaves out the slashes before no host, as in postgresql:///kb.
            given = urlencode(pairs, quote_via=quote, safe=safe)
            return f"postgresql://{place}{parts.path}{'?' if given else ''}{given}"

        return cls(joined(parts.netloc, others, ""), schema, joined(place, visible, "/"))


class Server:
    """Connections to the schema of one store. Safe to use from several threads at once."""

    def __init__(self, url: str, *, read_only: bool, wait_seconds: float = RETRY_SECONDS) -> None:
        self.address = Address.of(url)
        self._conninfo = self.address.conninfo if read_only else _for_writing(self.address.conninfo)
        self.read_only = read_only
        self._wait = wait_seconds
        self.closed = False
        self._table: Any = None
        psycopg = _psycopg()
        self._errors = psycopg
        # A lost connection, or a transaction that another one invalidated.
        self._lost = (psycopg.OperationalError, psycopg.InterfaceError)
        self._use_pool()

    def _use_pool(self) -> None:
        import psycopg_pool

        self._process = os.getpid()
        self._pool: psycopg_pool.ConnectionPool[Connection] = psycopg_pool.ConnectionPool(
            self._conninfo,
            min_size=0,
            max_size=16,
            open=False,
            timeout=max(self._wait, 1.0),
            reconnect_timeout=max(self._wait, 1.0),
            kwargs={"autocommit": True, "connect_timeout": 10, "application_name": "sqlrag"},
            configure=partial(_configure, self.address, self.read_only, self._errors),
        )
        # Without a reference to this server, so that one that nothing refers to any more ends its connections.
        self._let_go = weakref.finalize(self, _end, self._pool, self._process)
        self._let_go.atexit = False

    @property
    def path(self) -> str:
        """The address, without a password."""
        return self.address.shown

    def open(self) -> None:
        """Connect, and make sure that there is a store of this version of sqlrag.

        Raises
        ------
        StoreError
            The server cannot be reached, or has no pgvector of 0.8 or later.
        NotAStoreError, SchemaVersionError
            The schema holds no store, or that of another version.
        """
        try:
            self._connect_once()
            self._pool.open()
            version = self.read(self._version)
            if version is None:
                self.read(self._refuse_rest)
                raise NotAStoreError(
                    self.path,
                    f"{self.path} holds no sqlrag store. sqlrag push FILE URL makes one, or PostgresStore.create.",
                )
            self._check_version(version)
            self._table, _ = self.read(self._tables)
        except BaseException:
            self.close()
            raise

    def create(
        self,
        dimensions: int,
        fill: Callable[[Connection], None],
        *,
        overwrite: bool,
    ) -> None:
        """Create the tables in their own schema, and let ``fill`` write the first rows of the store.

        All of it is done or nothing.
        """
        from psycopg import sql

        if self.read_only:
            raise InputError("A store cannot be created over a connection for reading only.")
        con = self._connect_once(new=True)
        self._check_letters(con)
        schema = sql.Identifier(self.address.schema)
        try:
            with self._reported("Nothing was created", again=False), con, con.transaction():
                con.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [self._lock_name])
                if self._version(con) is not None:
                    if not overwrite:
                        raise StoreExistsError(
                            self.path, f"{self.path} holds a store already. Pass overwrite=True to replace it."
                        )
                    self._remove(con)
                else:
                    self._refuse_rest(con)
                con.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
                con.execute(read_sql("postgres/search_path"), {"schema": self.address.schema, "local": True})
                self._migrate(con, 0, dimensions)
                fill(con)
        finally:
            con.close()

    def _check_letters(self, con: Connection) -> None:
        """Refuse a database in which a search would not find "École" for "école"."""
        ((lowered,),) = con.execute(
            "SELECT lower('É') = 'é' AND current_setting('server_encoding') = 'UTF8'"
        ).fetchall()
        if not lowered:
            con.close()
            raise StoreError(
                self.path,
                f"{self.path} has upper and lower case of English letters only: its locale is C, or its encoding is "
                "not UTF-8. Create a database with another locale: CREATE DATABASE kb TEMPLATE template0 ENCODING "
                "'UTF8' LOCALE 'C.UTF-8';",
            )

    @property
    def _lock_name(self) -> str:
        return f"sqlrag {self.address.schema}"

    def _migrate(self, con: Connection, version: int, dimensions: int) -> None:
        for number, name in enumerate(migrations(), 1):
            if number > version:
                con.execute(fitted(read_sql(f"postgres/{name}"), dimensions))
                con.execute("INSERT INTO migrations (version, name) VALUES (%s, %s)", [number, name])

    def _check_version(self, version: int) -> None:
        known = len(migrations())
        if version > known:
            raise SchemaVersionError(
                self.path, f"{self.path} was made by a later sqlrag (schema {version}, here {known}). Upgrade sqlrag."
            )
        if version < known:
            raise SchemaVersionError(
                self.path,
                f"{self.path} was made by an earlier sqlrag (schema {version}, here {known}). "
                "PostgresStore.migrate(url) brings it up to date.",
            )

    def vacuum(self) -> None:
        """Let searches read the codes alone, in place of the rows."""
        with self._reported("Nothing was changed", again=False), self.connection() as con:
            con.execute(read_sql("postgres/vacuum"))

    def migrate(self, finish: Callable[[Connection, list[str]], None]) -> list[str]:
        """Apply the migrations that the store does not have yet, all or none; return their names.

        ``finish`` gets their names too, and does in the same transaction what SQL cannot.
        """
        self._connect_once().close()
        self._pool.open()

        def apply(con: Connection) -> list[str]:
            version = self._version(con)
            if version is None:
                raise NotAStoreError(self.path, f"{self.path} holds no sqlrag store.")
            if version > len(migrations()):
                self._check_version(version)
            _, missing = self._tables(con)
            if not {*missing} <= {*_OF_WORDS}:
                self._refuse_missing(missing)
            done = migrations()[version:]
            self._migrate(con, version, int(read_settings(con)["embedding_dimensions"]))
            finish(con, done)
            return done

        return self.write(apply)

    def drop(self) -> bool:
        """Remove the store, and the schema where nothing else is in it; return whether there was a store."""
        with (
            self._reported("Nothing was removed", again=False),
            self._connect_once(new=True) as con,
            con.transaction(),
        ):
            if self._version(con) is None and not self._dropped(con):
                return False
            self._remove(con)
            return True

    def _remove(self, con: Connection) -> None:
        """Remove the store's own tables: the schema may hold those of others."""
        from psycopg import sql

        schema = sql.Identifier(self.address.schema)
        con.execute(sql.SQL("SET LOCAL search_path TO {}").format(schema))
        con.execute(read_sql("postgres/remove"))
        if self.address.schema != "public":
            with suppress(self._errors.errors.DependentObjectsStillExist), con.transaction():
                con.execute(sql.SQL("DROP SCHEMA {}").format(schema))

    def _version(self, con: Connection) -> int | None:
        from psycopg import sql

        # Other programs have a table of migrations too.
        names = [f'"{self.address.schema}".{table}' for table in ("migrations", "embedding_metadata", "chunks")]
        if None in con.execute("SELECT to_regclass(%s), to_regclass(%s), to_regclass(%s)", names).fetchall()[0]:
            return None
        statement = sql.SQL("SELECT coalesce(max(version), 0) FROM {}.migrations")
        return int(con.execute(statement.format(sql.Identifier(self.address.schema))).fetchall()[0][0])

    def _tables(self, con: Connection) -> tuple[Any, list[str]]:
        """Return the oid of the table of chunks, which differs for one in its place, and which tables are missing."""
        values = {"schema": self.address.schema, "tables": [*_TABLES, *_OF_WORDS]}
        ((chunks, missing),) = con.execute(read_sql("postgres/tables"), values).fetchall()
        return chunks, missing

    def _dropped(self, con: Connection) -> list[str]:
        """Return the missing tables where most of a store are there: others have tables of these names, too."""
        _, missing = self._tables(con)
        return missing if len(missing) <= len(_OF_WORDS) else []

    def _refuse_rest(self, con: Connection) -> None:
        """Raise StoreError where tables of a store were dropped."""
        if missing := self._dropped(con):
            self._refuse_missing(missing)

    def _refuse_missing(self, missing: Sequence[str]) -> None:
        remedy = "PostgresStore.migrate(url, reindex=True) makes the index of words anew."
        if not {*missing} <= {*_OF_WORDS}:
            remedy = "Remove the rest with PostgresStore.drop(url), and push the file again."
        raise StoreError(self.path, f"{self.path} lacks the table {', '.join(missing)} of a store. {remedy}")

    def _connect_once(self, *, new: bool = False) -> Connection:
        """Connect outside of the pool, which would retry for long where the address or the password is wrong."""
        try:
            con: Connection = self._errors.connect(self._conninfo, autocommit=True, connect_timeout=10)
        except self._errors.OperationalError as error:
            remedy = "Check that the server is running and that address, user and password are right."
            if "too many clients" in str(error) or "connection slots" in str(error):
                remedy = "Close others, or let its owner raise max_connections."
            if "session is read-only" in str(error):
                remedy = "None of the servers takes changes. Promote a replica, or open the store for reading only."
            raise StoreError(self.path, f"{self.path} cannot be reached: {_first_line(error)}. {remedy}") from error
        except self._errors.ProgrammingError as error:
            # libpq quotes what it cannot read, which may be the password.
            what = _QUOTED.sub("…", _first_line(error))
            raise InputError(f"The address {self.path} cannot be read: {what}.") from None
        con.execute(read_sql("postgres/session"))
        pgvector = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
        found = con.execute(pgvector).fetchall()
        try:
            if new and not found:
                con.execute("CREATE EXTENSION IF NOT EXISTS vector")
                found = con.execute(pgvector).fetchall()
        except self._errors.Error as error:
            con.close()
            raise StoreError(self.path, _no_pgvector(self.path, _first_line(error))) from error
        if not found:
            con.close()
            raise StoreError(self.path, _no_pgvector(self.path, "it is not installed in this database"))
        if tuple(int(part) for part in found[0][0].split(".")[:2]) < _LEAST_PGVECTOR:
            con.close()
            raise StoreError(
                self.path,
                f"{self.path} has pgvector {found[0][0]}, and 0.8 is needed, whose searches go on until filters are "
                "met. Let its owner run: ALTER EXTENSION vector UPDATE;",
            )
        if not new:
            con.close()
        return con

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Yield a connection from the pool."""
        if self.closed:
            raise StoreError(self.path, f"{self.path} is closed. Open it again.")
        import psycopg_pool

        self._own_pool()

        try:
            with self._pool.connection() as con:
                yield con
        except psycopg_pool.PoolTimeout as error:
            raise StoreLockedError(
                self.path,
                f"{self.path} gave no connection within {self._wait:g} seconds: the server is down, has too many "
                "clients, or is a replica and takes no changes. Try again later.",
            ) from error
        except psycopg_pool.PoolClosed as error:
            raise StoreError(self.path, f"{self.path} is closed. Open it again.") from error

    def _own_pool(self) -> None:
        """Open connections of its own in a process forked from that which opened the store."""
        with _renewing:
            if self._process != os.getpid():
                _of_parents.append(self._pool)
                self._let_go.detach()
                self._use_pool()
                self._pool.open()

    def read(self, work: Callable[[Connection], T]) -> T:
        """Return the result of the work, which sees one state of the store; a lost connection is retried."""

        def attempt() -> T:
            with self._reported("Nothing was changed"), self.connection() as con, con.transaction():
                con.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                self._check_there(con)
                return work(con)

        remedy = "Nothing was changed; check that the server is running, and try again."
        return self._again(attempt, f"was lost while it was read. {remedy}")

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Yield a connection in a transaction that reads and sees one state of the store, for as long as it takes."""
        try:
            with self._reported("Nothing was changed"), self.connection() as con, con.transaction():
                con.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                self._check_there(con)
                yield con
        except self._lost as error:
            raise StoreError(self.path, f"{self.path} was lost while it was read. ({_first_line(error)})") from error

    def write(self, work: Callable[[Connection], T], doc_ids: Sequence[str] | None = None) -> T:
        """Return the result of the work, in one transaction; where its connection is lost, the work runs again.

        So it must lead to the same state when it runs twice. ``doc_ids`` as in :meth:`transaction`.
        """

        def attempt() -> T:
            with self.transaction(doc_ids) as con:
                return work(con)

        remedy = "The change is there as a whole or not at all; do it again when the server runs."
        return self._again(attempt, f"was lost while it was written. {remedy}")

    def _again(self, attempt: Callable[[], T], lost: str) -> T:
        # Not by tenacity, whose state keeps the attempt, and so this server, for the life of the thread.
        deadline, pause = time.monotonic() + self._wait, 0.05
        while True:
            try:
                return attempt()
            except self._lost as error:
                if time.monotonic() >= deadline:
                    raise StoreError(self.path, f"{self.path} {lost} ({_first_line(error)})") from error
                log.warning("%s was lost (%s) and is tried again in %.3g s.", self.path, _first_line(error), pause)
            time.sleep(pause)
            pause = min(2 * pause, 2.0)
            self._pool.check()  # the other connections of the pool are probably lost too

    @contextmanager
    def transaction(self, doc_ids: Sequence[str] | None = None) -> Iterator[Connection]:
        """Yield a connection in a transaction, which is committed at the end or rolled back by an error.

        Those that change the same documents take turns: two that replace them could deadlock, and of two that each add
        a chunk to a document the second would not see the chunk of the first. ``doc_ids`` are the documents that are
        changed; without them no other writes meanwhile.
        """
        if self.read_only:
            raise StoreError(
                self.path, f"{self.path} is open for reading only. Open it with PostgresStore(url, read_only=False)."
            )
        with self._reported("The change was rolled back"), self.connection() as con, con.transaction():
            slots = None if doc_ids is None else sorted({crc32(doc_id.encode()) % _SLOTS for doc_id in doc_ids})
            con.execute(read_sql("postgres/take_turns"), {"store": self._lock_name, "slots": slots})
            self._check_there(con)
            yield con

    def _check_there(self, con: Connection) -> None:
        """Raise where the store that was opened has gone: the schema public may hold tables of these names, too."""
        if self._table is None:
            return
        chunks, missing = self._tables(con)
        if chunks != self._table:
            raise StoreError(self.path, f"{self.path} was removed or recreated since it was opened. Open it again.")
        if missing:
            self._refuse_missing(missing)

    @contextmanager
    def _reported(self, consequence: str, *, again: bool = True) -> Iterator[None]:
        """Turn the driver's errors into StoreErrors, but not a lost connection where the caller retries (``again``)."""
        try:
            yield
        except self._errors.Error as error:
            if again and isinstance(error, self._lost) and (error.sqlstate or "08").startswith(_LOST):
                raise
            raise self._failed(error, consequence) from error

    def _failed(self, error: Exception, consequence: str) -> Exception:
        if type(error) is self._errors.DataError or isinstance(error, self._errors.errors.UntranslatableCharacter):
            # What the driver cannot send, also inside JSON.
            return InputError(f"{self.path} cannot hold or look for the character NUL (U+0000). {consequence}.")
        if isinstance(error, self._errors.errors.ProgramLimitExceeded):
            return InputError(f"{self.path}: {_first_line(error)}. {consequence}. Shorten the id, tag or collection.")
        remedy = ""
        if isinstance(error, self._errors.errors.UndefinedColumn):
            remedy = " PostgresStore.migrate(url, reindex=True) makes anew what can be made from the rest."
        if isinstance(error, self._errors.errors.InsufficientPrivilege):
            name = self.address.schema
            remedy = (
                f" Its owner grants what is needed: GRANT USAGE ON SCHEMA {name} TO …; GRANT SELECT ON ALL TABLES IN "
                f"SCHEMA {name} TO …; to write also INSERT, UPDATE and DELETE."
            )
        if isinstance(error, self._errors.errors.DiskFull) and "shared memory" in str(error):
            remedy = " Give it more of that (docker run --shm-size=4g), or set max_parallel_maintenance_workers = 0."
        if isinstance(error, self._errors.errors.ReadOnlySqlTransaction):
            remedy = (
                " The server is a replica, or takes no changes for another reason. Write to its primary, or name all "
                "servers (postgresql://user@a,b/database): a store that is open for writing takes the primary."
            )
        return StoreError(self.path, f"{self.path} cannot answer: {_first_line(error)}. {consequence}.{remedy}")

    def close(self) -> None:
        """Close the connections."""
        self.closed = True
        self._let_go.detach()
        if self._process == os.getpid():
            self._pool.close()


def _for_writing(conninfo: str) -> str:
    """Return an address of which, among several servers, only one that takes changes is used."""
    _psycopg()
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    try:
        several = "," in str(conninfo_to_dict(conninfo).get("host", ""))
    except Exception:
        return conninfo  # connecting says what is wrong
    named = "target_session_attrs=" in conninfo
    return make_conninfo(conninfo, target_session_attrs="read-write") if several and not named else conninfo


def _configure(address: Address, read_only: bool, psycopg: Any, con: Connection) -> None:
    from pgvector.psycopg import register_vector

    con.execute(read_sql("postgres/session"))
    con.execute(read_sql("postgres/search_path"), {"schema": address.schema, "local": False})
    if read_only:
        con.execute("SET default_transaction_read_only TO on")
    try:
        register_vector(con)
    except psycopg.ProgrammingError as error:
        # Another user of the database may have installed it in another schema.
        raise StoreError(address.shown, _no_pgvector(address.shown, str(error))) from error


def _no_pgvector(path: str, why: str) -> str:
    return f"{path} has no pgvector ({why}). Let its owner run: CREATE EXTENSION vector;"


def _end(pool: psycopg_pool.ConnectionPool[Connection], process: int) -> None:
    """Close the pool of a server that was collected, which happens in any thread, also one of the pool's own."""
    if process == os.getpid():
        threading.Thread(target=pool.close, name="sqlrag-postgres", daemon=True).start()


def migrations() -> list[str]:
    """Return the names of the migrations, in the order in which they are applied."""
    return sorted(path.stem for path in (sql_folder() / "postgres").glob("[0-9][0-9][0-9][0-9]_*.sql"))


def fitted(sql: str, dimensions: int) -> str:
    """Fit SQL that is written for 384 dimensions to a store."""
    return _DIMENSIONS.sub(rf"\1({int(dimensions)})", sql)


def read_settings(con: Connection) -> dict[str, str]:
    """Return every key of ``embedding_metadata`` with its value, in the order of the keys."""
    return dict(con.execute("SELECT key, value FROM embedding_metadata ORDER BY key").fetchall())


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _psycopg() -> Any:
    try:
        import pgvector.psycopg  # noqa: F401
        import psycopg
        import psycopg_pool  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("A store in Postgres", "postgres") from error
    return psycopg
