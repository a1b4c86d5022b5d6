"""Keeps the record of the runs that wrote to a file: ``ingest_log``, ``ingest_failures`` and ``collections``."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlrag.store.metadata import now
from sqlrag.types import DEFAULT_COLLECTION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    import duckdb


def new_run_id(started: datetime) -> str:
    """Return a name for a run that no other has."""
    return f"{started.isoformat()}-{secrets.token_hex(3)}"


@dataclass(frozen=True)
class RunRow:
    """One row of ``ingest_log``."""

    run_id: str
    kind: str
    started_at: datetime
    input_dir: str = ""
    collection: str = ""
    files: int = 0
    documents: int = 0
    removed: int = 0
    chunks: int = 0
    embedded: int = 0
    embedding_calls: int = 0
    reused: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)


def log_run(con: duckdb.DuckDBPyConnection, run: RunRow) -> None:
    """Write the row of a run that ends now, inside the caller's transaction."""
    seconds = {stage: round(value, 3) for stage, value in run.seconds.items()}
    values = {**vars(run), "finished_at": now(), "seconds": json.dumps(seconds)}
    con.execute(
        "INSERT INTO ingest_log (run_id, kind, started_at, finished_at, input_dir, collection, files, documents, "
        "removed, chunks, embedded, embedding_calls, reused, failed, skipped, seconds) VALUES ($run_id, $kind, "
        "$started_at, $finished_at, $input_dir, $collection, $files, $documents, $removed, $chunks, $embedded, "
        "$embedding_calls, $reused, $failed, $skipped, $seconds)",
        values,
    )


def record_failures(con: duckdb.DuckDBPyConnection, failures: Sequence[tuple[str, str, str]]) -> None:
    """Write what failed (doc_id, status, reason) in place of what was known of it, inside the caller's transaction."""
    if failures:
        con.executemany(
            "INSERT OR REPLACE INTO ingest_failures VALUES ($1, $2, $3, $4)",
            [[*failure, now()] for failure in failures],
        )


def clear_failures(con: duckdb.DuckDBPyConnection, doc_ids: Iterable[str]) -> None:
    """Forget the failures of documents that are sound or gone now, inside the caller's transaction."""
    con.execute("DELETE FROM ingest_failures WHERE doc_id IN (SELECT unnest($1))", [list(doc_ids)])


def failed_documents(con: duckdb.DuckDBPyConnection, collection: str) -> list[str]:
    """Return the ids of the documents of a collection that failed when they were last read."""
    prefixes = [f"{name}:" for (name,) in con.execute("SELECT collection FROM collections").fetchall()]
    mine = f"{collection}:"
    return [
        doc_id
        for (doc_id,) in con.execute("SELECT doc_id FROM ingest_failures ORDER BY doc_id").fetchall()
        if (doc_id.startswith(mine) if collection != DEFAULT_COLLECTION else not doc_id.startswith(tuple(prefixes)))
    ]


def folder_of(con: duckdb.DuckDBPyConnection, collection: str) -> str | None:
    """Return the folder that a collection was last read from."""
    row = con.execute("SELECT input_dir FROM collections WHERE collection = $1", [collection]).fetchone()
    return None if row is None else str(row[0])


def record_collection(con: duckdb.DuckDBPyConnection, collection: str, input_dir: str) -> None:
    """Remember the folder that a collection was last read from, inside the caller's transaction."""
    con.execute(
        "INSERT INTO collections VALUES ($1, $2, $3) ON CONFLICT DO UPDATE SET input_dir = excluded.input_dir",
        [collection, input_dir, now()],
    )


def forget_collections(con: duckdb.DuckDBPyConnection) -> None:
    """Drop the collections without a document, inside the caller's transaction."""
    con.execute("DELETE FROM collections WHERE collection NOT IN (SELECT collection FROM source_documents)")
