"""Deletes documents with everything that belongs to them."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlrag.store import runs, writing
from sqlrag.store.metadata import now, refresh_counts
from sqlrag.store.schema import read_sql
from sqlrag.wording import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlrag.store.database import Database

log = logging.getLogger("sqlrag.store")


@dataclass(frozen=True)
class DeleteReport:
    """What :func:`sqlrag.delete_documents` did: the ids of the documents that went, and of those that the file had not.

    ``chunks`` is how many chunks went with them, ``run_id`` names the run in ``ingest_log``.
    """

    deleted: list[str]
    unknown: list[str]
    chunks: int
    run_id: str

    def __str__(self) -> str:
        """Say it in lines for a terminal."""
        deleted = f"{counted(len(self.deleted), 'document')} with {counted(self.chunks, 'chunk')} deleted"
        lines = [f"{deleted}, {len(self.unknown):,} unknown"]
        lines += [f"  deleted: {doc_id}" for doc_id in self.deleted]
        lines += [f"  unknown: {doc_id}" for doc_id in self.unknown]
        return "\n".join(lines)


def delete_documents(
    database: Database, doc_ids: Sequence[str] | None, checksum: str | None, filters: Mapping[str, Any]
) -> DeleteReport:
    """Delete the documents that meet every condition that is not None, in one transaction.

    ``filters`` are the parameters of the search macros: collection, tags_any, tags_all, metadata.
    """
    started, began = now(), time.perf_counter()
    run_id = runs.new_run_id(started)
    names = ("collection", "tags_any", "tags_all", "metadata")
    conditions = {"doc_ids": doc_ids, "checksum": checksum, **{name: filters.get(name) for name in names}}
    with database.transaction() as con:
        chosen = [row[0] for row in con.execute(read_sql("index/chosen_documents"), conditions).fetchall()]
        wanted = list(dict.fromkeys(doc_ids or []))
        known = set(con.execute(read_sql("index/known_documents"), {"doc_ids": wanted}).fetchall())
        if checksum is None and not any(filters.values()):
            # Chunks whose document somebody deleted by SQL.
            chosen += [doc_id for doc_id in wanted if (doc_id,) in known and doc_id not in chosen]
        unknown = [doc_id for doc_id in wanted if (doc_id,) not in known]
        counted = con.execute("SELECT count(*) FROM documents WHERE doc_id IN (SELECT unnest($1))", [chosen]).fetchall()
        chunks = int(counted[0][0])
        writing.delete(con, chosen)
        runs.clear_failures(con, [*chosen, *unknown])
        runs.forget_collections(con)
        refresh_counts(con)
        collection = filters.get("collection") or [""]
        run = runs.RunRow(
            run_id,
            "delete",
            started,
            collection=collection[0] if len(collection) == 1 else "",
            removed=len(chosen),
            seconds={"store": time.perf_counter() - began},
        )
        runs.log_run(con, run)
    report = DeleteReport(chosen, unknown, chunks, run_id)
    log.info("[%s] %s: %s", run_id, database.path, str(report).splitlines()[0])
    return report
