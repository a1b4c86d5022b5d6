"""Collects the SQL tests of ``tests/sql``, prepares what many tests begin with, and keeps the machine free for some.

A SQL test runs on a small store of its own, with a view for every check. Tests that measure time run alone.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import signal
import tempfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest
import typer.testing

from sqlrag.engines.resident import follow
from tests.support.postgres_server import TestServer
from tests.support.sqllogic import run_blocks
from tests.support.stores import check_views, make_small_store

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

if TYPE_CHECKING:
    from collections.abc import Iterator


# Collecting makes objects by the million and hardly any garbage: to look for it took a quarter of the time.
gc.disable()


def pytest_configure(config: pytest.Config) -> None:
    """Load the plugin of schemathesis, which takes seconds, where its tests are run and it is installed."""
    if config.option.markexpr != "not slow" and importlib.util.find_spec("schemathesis"):
        config.pluginmanager.import_plugin("schemathesis.pytest.plugin")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what makes its examples, for seconds and in every worker, while it is collected, if it is not run."""
    return True if collection_path.name == "test_rest_schema.py" and config.option.markexpr == "not slow" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave one parameter of a test to a quick run, always the same; others are slow and, unless it is every, rest."""
    found: dict[str, list[pytest.Item]] = {}
    for item in items:
        found.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for alike in found.values():
        slow = [any(map(item.get_closest_marker, ("slow", "rest"))) for item in alike]
        first = min(range(len(alike)), key=lambda n: (slow[n], zlib.crc32(alike[n].nodeid.encode())))
        for n, item in enumerate(alike):
            if slow[n] or n != first:
                item.add_marker(pytest.mark.slow)
            if n != first and item.get_closest_marker("every") is None:
                item.add_marker(pytest.mark.rest)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.File | None:
    return SqlFile.from_parent(parent, path=file_path) if file_path.suffix == ".test" else None


class SqlFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        yield SqlTest.from_parent(self, name=self.path.stem)


class SqlTest(pytest.Item):
    def runtest(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            make_small_store(Path(folder) / "small.duckdb")
            with duckdb.connect(str(Path(folder) / "small.duckdb")) as con:
                for statement in check_views(8):
                    con.execute(statement)
                problems = run_blocks(con, self.path)
        if problems:
            pytest.fail("\n\n".join(problems), pytrace=False)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.nodeid


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what is there before the first test: modules, and tests by the thousand."""
    gc.freeze()
    gc.enable()


# Under nohup, or in the background of a shell, these are ignored, and so would the programs that tests send them to.
# A handler is not inherited, so that these get the default; here it does as little as before.
for _number in (signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


@pytest.fixture(scope="session", autouse=True)
def compiled_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep in the run's temporary folder what processes compile, where the environment says to keep nothing.

    Each of the hundreds of processes of a run would compile every module of the checkout again.
    """
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("PYTHONDONTWRITEBYTECODE"):
            base = tmp_path_factory.getbasetemp()
            # Each worker of pytest-xdist has a folder inside that of the run.
            run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
            patch.delenv("PYTHONDONTWRITEBYTECODE")
            patch.setenv("PYTHONPYCACHEPREFIX", str(run / "compiled"))
        yield


@pytest.fixture(scope="session", autouse=True)
def sql_answers() -> Iterator[None]:
    """Let a store that nobody asks to be in memory answer by SQL alone: which one answers would depend on the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follow, "QUESTIONS", 2**31)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_command_line() -> Iterator[None]:
    """Build the tree of commands once, not for each call of ``CliRunner().invoke``: 0.1 s each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", functools.cache(typer.testing._get_command))
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[TestServer]:
    """Run a Postgres server, one for each worker that has tests of it: making one takes five seconds."""
    server = TestServer()
    try:
        yield server
    finally:
        server.delete()


@pytest.fixture
def postgres_url(postgres: TestServer) -> Iterator[str]:
    """Give the address of a store that is not there yet, in a schema of its own."""
    url = postgres.new_url()
    yield url
    postgres.drop(url)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with turn(alone=item.get_closest_marker("alone") is not None):
        return (yield)


@contextmanager
def turn(*, alone: bool) -> Iterator[None]:
    """Hold the room with the tests of the other workers, or alone: two files of this folder serve as locks."""
    if fcntl is None:
        yield
        return
    here = Path(__file__).parent
    with (here / "conftest.py").open() as gate, (here / "__init__.py").open() as room:
        # Who waits for the room holds the gate, so that the tests that come after do not keep it waiting for ever.
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        try:
            yield
        finally:
            # Closing it is not enough: a process that the test forked may have it open still.
            fcntl.flock(room, fcntl.LOCK_UN)
