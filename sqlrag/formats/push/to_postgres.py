"""A store in Postgres as the target of a push, and pull, which writes it to a file."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlrag.arguments import counted, shortened
from sqlrag.arguments import path as checked_path
from sqlrag.engines.contents import at_unit_length, grouped, has_own_ids
from sqlrag.engines.duckdb.documents import shown_column
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.metadata import OWN_IDS, model_identity
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.engines.postgres.connection import Address, Server, read_settings
from sqlrag.engines.postgres.engine import parsed
from sqlrag.engines.postgres.lexical import set_stop_words
from sqlrag.engines.postgres.rows import PostgresRows, with_nul
from sqlrag.errors import InputError, SqlragError, StoreError, StoreExistsError
from sqlrag.formats.exchange import (
    check_same,
    read_batch,
    stop_words_notice,
    store_settings,
    stored_contents,
    write_store,
)
from sqlrag.ingest.run import Failure
from sqlrag.search.postgres_store import make_store

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from sqlrag.engines.contents import Batch, Contents
    from sqlrag.engines.postgres.connection import Connection
    from sqlrag.formats.exchange import Imported
    from sqlrag.types import AnyEmbedder

_JSON = ("metadata_", "chunk_policy")


def digests(batch: Batch) -> dict[str, str]:
    """Return the SHA-256 of every document of a batch, in hexadecimal digits, by ``doc_id``.

    It covers the document's fields, its chunks in order and the bytes of their vectors. The formatting of JSON and the
    time when a document was stored are ignored.
    """
    found = {row["doc_id"]: hashlib.sha256(_line(row)) for row in batch.sources.to_pylist()}
    for row, vector in zip(batch.chunks.to_pylist(), batch.vectors.astype("<f4", copy=False), strict=True):
        one = found[row["doc_id"]]
        one.update(_line(row))
        one.update(vector.tobytes())
    return {doc_id: one.hexdigest() for doc_id, one in found.items()}


def _line(row: dict[str, Any]) -> bytes:
    plain = {name: json.loads(value) if name in _JSON and value is not None else value for name, value in row.items()}
    return json.dumps(plain, sort_keys=True, ensure_ascii=False, default=str).encode() + b"\n"


# Classes of the server's errors of which a single document may be the cause: invalid values, constraints and triggers
# that others added to the tables, limits.
_OF_A_DOCUMENT = ("22", "23", "54", "P0")

# Characters of a key that every index takes: they have room for 2,704 bytes, or more where it can be compressed.
_FITTING = 600

# Chunks that are read back at a time for the comparison.
_READ_CHUNKS = 4096


class PostgresTarget:
    """Writes documents by COPY, one transaction for each batch; a missing store is created."""

    batch_chunks = 16_384  # each batch gives its words a row of their own

    def __init__(self, url: str) -> None:
        self._url = url
        self._server = Server(url, read_only=False)
        self.name = self._server.path
        self.verified = True
        self.notices: list[str] = []
        self.failures: list[Failure] = []
        self._moved: dict[str, str] = {}
        self._collections: Sequence[str] | None = None
        self._prune = False
        self._wanted: dict[str, tuple[str, int]] = {}
        self._dimensions = 0
        self._pushed: frozenset[str] = frozenset()

    def begin(self, contents: Contents, collections: Sequence[str] | None, *, prune: bool) -> None:
        """Open the store, or create one with the settings of the contents, and compare the models."""
        values = store_settings(contents)
        self._dimensions = contents.dimensions
        self._pushed = contents.doc_ids
        self._collections, self._prune = collections, prune
        with suppress(StoreExistsError):
            make_store(self._url, values, overwrite=False, stop_words=contents.stop_words)
        self._server.open()
        stored = self._server.read(read_settings)
        check_same(self.name, model_identity(stored), model_identity(values))
        for key in ("stemmer", "header_weight"):
            if float(stored[key]) != float(values[key]) if key == "header_weight" else stored[key] != values[key]:
                raise InputError(
                    f"{self.name} has the {key} {stored[key]!r}, the file {values[key]!r}: lexical search would differ "
                    "between their documents. Push it into a separate store, with ?schema=NAME."
                )
        if has_own_ids(contents.settings) and not has_own_ids(stored):
            self._server.write(lambda con: PostgresRows(con, parsed).set_metadata({OWN_IDS: True}))
        if contents.stop_words is not None:
            self._take_stop_words(contents.stop_words)

    def _take_stop_words(self, words: Sequence[str]) -> None:
        stored = self._server.read(lambda con: con.execute("SELECT word FROM stopwords ORDER BY word").fetchall())
        if told := stop_words_notice([word for (word,) in stored], words):
            self._server.write(lambda con: set_stop_words(con, words))
            self.notices.append(told)

    def write(self, batch: Batch) -> tuple[int, int]:
        """Write whole documents, replacing their stored versions; return how many of them and of their chunks.

        Those that Postgres cannot store are left out and named.
        """
        vectors, _ = at_unit_length(batch.vectors)
        bad = with_nul(batch.sources, batch.chunks)
        for doc_id, name in bad.items():
            self._fail(doc_id, f"its {name.rstrip('_')} has the character NUL (U+0000), which Postgres cannot store.")
        keys = zip(*(batch.sources[name].to_pylist() for name in ("doc_id", "collection", "tags")), strict=True)
        long = {doc_id for doc_id, name, tags in keys if max(len(doc_id + name), *map(len, tags), 0) > _FITTING}
        # Apart, so that others are not written again and again to find out which of these the server refuses.
        written = [self._written(part) for part in _parted(_without(batch._replace(vectors=vectors), set(bad)), long)]
        return sum(documents for documents, _ in written), sum(chunks for _, chunks in written)

    def _fail(self, doc_id: str, reason: str) -> None:
        self.failures.append(Failure(doc_id, "failed", reason))

    def _written(self, batch: Batch) -> tuple[int, int]:
        """Write a batch; of one that the server refuses, each half, down to the documents that are the cause."""
        try:
            return self._write(batch)
        except SqlragError as error:
            cause = error.__cause__
            state = getattr(cause, "sqlstate", None) or ""
            if not state.startswith(_OF_A_DOCUMENT):
                raise
            doc_ids = batch.sources["doc_id"].to_pylist()
            if len(doc_ids) == 1:
                remedy = " Shorten its ids, tags or collection." if state == "54000" else ""
                self._fail(doc_ids[0], f"Postgres refuses it: {shortened(str(cause).splitlines()[0])}.{remedy}")
                return 0, 0
            one, other = (self._written(part) for part in _parted(batch, set(doc_ids[len(doc_ids) // 2 :])))
            return one[0] + other[0], one[1] + other[1]

    def _write(self, batch: Batch) -> tuple[int, int]:
        current = digests(batch)
        sizes = dict.fromkeys(current, 0)
        for doc_id in batch.chunks["doc_id"].to_pylist():
            sizes[doc_id] += 1

        def write(con: Connection) -> tuple[int, int, dict[str, str]]:
            moved: dict[str, str] = {}
            known: dict[str, str] = dict(
                con.execute(read_sql("postgres/exchange/digests"), {"doc_ids": list(current)}).fetchall()
            )
            new = _without(batch, {doc_id for doc_id, digest in current.items() if known.get(doc_id) == digest})
            if len(new.sources):
                checksums = dict(zip(*(new.sources[name].to_pylist() for name in ("doc_id", "checksum")), strict=True))
                columns: dict[str, Any] = {name: new.chunks[name] for name in new.chunks.column_names}
                columns["shown"] = shown_column(new.sources, new.chunks)
                columns["checksum"] = [checksums[doc_id] for doc_id in new.chunks["doc_id"].to_pylist()]
                named = [current[doc_id] for doc_id in new.sources["doc_id"].to_pylist()]
                rows = PostgresRows(con, parsed)
                moved = self._check_moved(rows, new)
                # Documents that gave an id to another one: this push writes them, too.
                owners = {owner for _, owner in rows.taken(new.chunks["node_id"].to_pylist())} & self._pushed
                gone = sorted(owners - current.keys())
                rows.replace(new.sources, columns, new.vectors, gone=gone, digests=named, may_move=True)
                if moved:
                    rows.forget_collections()
            return len(new.sources), len(new.chunks), moved

        documents, chunks, moved = self._server.write(write)
        self._moved |= moved
        self._wanted |= {doc_id: (digest, sizes[doc_id]) for doc_id, digest in current.items()}
        return documents, chunks

    def _check_moved(self, rows: PostgresRows, batch: Batch) -> dict[str, str]:
        """Return the documents that have moved, with their stored collections; refuse those that are not pushed."""
        wanted = dict(zip(*(batch.sources[name].to_pylist() for name in ("doc_id", "collection")), strict=True))
        moved = {doc_id: name for doc_id, name in rows.collections_of(list(wanted)) if name != wanted[doc_id]}
        for doc_id, name in moved.items():
            if not self._prune or (self._collections is not None and name not in self._collections):
                raise InputError(
                    f"The document {doc_id!r} is in collection {wanted[doc_id]!r} of the file, and in {name!r} of "
                    f"{self.name}, which this push leaves alone. If it has moved, push both collections or the whole "
                    "file with prune, which also removes what the file no longer has; if it is another document, give "
                    "it another doc_id."
                )
        return moved

    def finish(self, keep: set[str] | None, collections: Sequence[str] | None) -> int:
        """Vacuum, verify what was written; remove all documents (of the collections) except these."""
        self._server.vacuum()
        # No document with NUL in its id is stored.
        kept = None if keep is None else {doc_id for doc_id in keep if "\0" not in doc_id}
        removed = 0 if kept is None else self._server.write(lambda con: _pruned(con, kept, collections))
        self._verify()
        if self._moved:
            doc_id, name = min(self._moved.items())
            self.notices.append(
                f"Moved from another collection: {counted(len(self._moved), 'document')}, such as {doc_id!r}, which was"
                f" in {name!r}."
            )
        failed = [failure.doc_id for failure in self.failures if "\0" not in failure.doc_id]
        stored = dict(self._server.read(lambda con: PostgresRows(con, parsed).collections_of(failed)))
        self.failures = sorted(
            failure._replace(reason=f"{failure.reason} Its earlier version stays there.")
            if failure.doc_id in stored
            else failure
            for failure in self.failures
        )
        return removed

    def _verify(self) -> None:
        sizes = [(doc_id, size) for doc_id, (_, size) in self._wanted.items()]
        wrong = []
        with self._server.snapshot() as con:
            for doc_ids in grouped(sizes, _READ_CHUNKS):
                found = digests(read_batch(con, doc_ids, self._dimensions))
                wrong += [doc_id for doc_id in doc_ids if found.get(doc_id) != self._wanted[doc_id][0]]
        if wrong:
            # Otherwise the next push would skip them as unchanged.
            self._server.write(
                lambda con: con.execute("UPDATE documents SET digest = NULL WHERE doc_id = ANY(%s)", [wrong])
            )
            raise StoreError(
                self.name,
                f"{self.name} has {counted(len(wrong), 'document')} that differ from what was written, such as "
                f"{wrong[0]!r}: another program writes there, too. Run the push again.",
            )

    def close(self) -> None:
        """Close the connections."""
        self._server.close()


@public
def pull(
    url: str,
    output_db: str | os.PathLike[str],
    *,
    collection: str | Sequence[str] | None = None,
    tags_any: Sequence[str] | None = None,
    tags_all: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    embedder: AnyEmbedder | None = None,
    overwrite: bool = False,
) -> Imported:
    """Write a store in Postgres, or its documents that pass the filters, into a DuckDB file.

    Ids, offsets and vectors are the same to the bit; the lexical index and the links are rebuilt. Everything is read in
    one transaction, and what was written is read back and compared.

    Parameters
    ----------
    url
        ``postgresql://user@host/database``, as for :class:`PostgresStore`.
    output_db
        The file to write; in an existing one of the same model, documents of the same ids and the stop words are
        replaced.
    collection, tags_any, tags_all, metadata
        As for a query: whole documents, of which the document or one chunk passes.
    embedder
        As in :func:`import_parquet`.
    overwrite
        Replace ``output_db`` if it is a store.

    Returns
    -------
    Imported
        ``path``, ``documents``, ``chunks``, ``created`` and ``notices``.

    Raises
    ------
    MissingExtraError
        The extra ``postgres`` is not installed.
    StoreError, NotAStoreError, SchemaVersionError
        The server cannot be reached or has no store, or the file does not contain what was read.
    InputError
        ``url`` is not a URL, or a filter has a wrong type.
    ModelMismatchError, StoreExistsError, StoreLockedError
        The file cannot be written.

    Examples
    --------
    >>> pull("postgresql://localhost/kb", "kb.duckdb")  # doctest: +SKIP
    """
    checked_path("output_db", output_db)
    Address.of(url)  # refuses the path of a file
    wanted: dict[str, str] = {}

    def recorded(batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            wanted.update(digests(batch))
            yield batch

    with stored_contents(url, collection, tags_any, tags_all, metadata, may_be_none=True) as contents:
        observed = replace(contents, batches=recorded(iter(contents.batches)))
        imported = write_store(observed, output_db, embedder=embedder, overwrite=overwrite)
    with stored_contents(imported.path) as contents:
        for batch in contents.batches:
            for doc_id, digest in digests(batch).items():
                if wanted.pop(doc_id, digest) != digest:
                    raise StoreError(
                        imported.path, f"{imported.path} has {doc_id!r} differently from what was read. Pull again."
                    )
    if wanted:
        raise StoreError(imported.path, f"{imported.path} lacks {next(iter(wanted))!r}, which was read. Pull again.")
    return imported


def _without(batch: Batch, doc_ids: set[str]) -> Batch:
    """Return a batch without some documents."""
    if not doc_ids:
        return batch
    kept = [doc_id not in doc_ids for doc_id in batch.sources["doc_id"].to_pylist()]
    rows = [doc_id not in doc_ids for doc_id in batch.chunks["doc_id"].to_pylist()]
    return batch._replace(
        sources=batch.sources.filter(kept), chunks=batch.chunks.filter(rows), vectors=batch.vectors[rows]
    )


def _parted(batch: Batch, doc_ids: set[str]) -> list[Batch]:
    """Return a batch without some documents, and these; none that is empty."""
    others = set(batch.sources["doc_id"].to_pylist()) - doc_ids
    return [part for part in (_without(batch, doc_ids), _without(batch, others)) if len(part.sources)]


def _pruned(con: Connection, keep: set[str], collections: Sequence[str] | None) -> int:
    """Remove all documents (of the collections) except these; return how many."""
    parameters = {"collections": None if collections is None else list(collections), "keep": sorted(keep)}
    gone = [doc_id for (doc_id,) in con.execute(read_sql("postgres/exchange/others"), parameters).fetchall()]
    rows = PostgresRows(con, parsed)
    rows.delete(gone)
    rows.forget_collections()
    return len(gone)
