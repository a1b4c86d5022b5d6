"""Two real servers, the second a replica of the first: what goes on when the first is lost, and what is said."""

from __future__ import annotations

import time

import numpy as np
import pytest

from sqlrag import Chunk, Document, StoreError, StoreLockedError
from sqlrag.search.postgres_store import PostgresStore
from tests.support.postgres_server import TestServer

pytestmark = pytest.mark.slow


@pytest.fixture
def servers():
    """A server with a replica of it, which follows by streaming; both end with the test."""
    primary = TestServer()
    try:
        with primary.replica() as replica:
            yield primary, replica
    finally:
        primary.delete()


def write(store, word):
    store.upsert([Document("a.md", word)], [Chunk("a.md", 0, word)], np.eye(4)[:1])


def words(store):
    return [row["text"] for row in store.lexical_query("pump valve", top_k=5)]


def test_reads_go_on_and_writes_say_what_happened(servers):
    primary, replica = servers
    both = primary.url.replace(f"host={primary.folder}", f"host={primary.folder},{replica.folder}")
    PostgresStore.create(both, 4).close()
    with (
        PostgresStore(both, read_only=False, wait_seconds=3) as writer,
        PostgresStore(both, wait_seconds=60) as reader,
    ):
        write(writer, "pump")
        assert words(reader) == ["pump"]
        replica.catch_up(primary)
        with PostgresStore(primary.url.replace(str(primary.folder), str(replica.folder)), read_only=False) as alone:
            assert words(alone) == ["pump"]
            with pytest.raises(StoreError, match=r"read-only transaction.*rolled back.*replica.*primary"):
                write(alone, "valve")

        primary.kill()
        assert words(reader) == ["pump"]
        with PostgresStore(both, wait_seconds=60) as opened_later:
            assert words(opened_later) == ["pump"]
        with pytest.raises(StoreError, match=r"None of the servers takes changes\. Promote a replica"):
            PostgresStore(both, read_only=False)
        with pytest.raises(StoreError, match="is a replica and takes no changes"):
            write(writer, "valve")

        replica.promote()
        end = time.monotonic() + 60
        while True:  # "Try again later": the pool tries at ever longer intervals
            try:
                write(writer, "valve")
                break
            except StoreLockedError:
                assert time.monotonic() < end
        assert words(reader) == ["valve"]
        assert writer.check() == []
