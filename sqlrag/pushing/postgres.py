"""A store in Postgres as what a push writes to, and the way back into a file."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlrag.errors import InputError, StoreError, StoreExistsError
from sqlrag.formats.contents import at_unit_length, grouped, has_own_ids
from sqlrag.formats.exchange import check_same, store_settings, stored_contents, write_store
from sqlrag.formats.postgres import read_batch
from sqlrag.options import path as checked_path
from sqlrag.pushing.digests import digests
from sqlrag.retrieval.postgres_engine import parsed
from sqlrag.retrieval.postgres_store import make_store
from sqlrag.store.metadata import OWN_IDS, model_identity
from sqlrag.store.postgres import Address, Server, read_settings
from sqlrag.store.postgres_rows import PostgresRows
from sqlrag.store.schema import read_sql
from sqlrag.wording import counted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from sqlrag.formats.contents import Batch, Contents
    from sqlrag.formats.exchange import Imported
    from sqlrag.store.postgres import Connection
    from sqlrag.types import AnyEmbedder

# So many chunks are read again at a time to be compared.
_READ_CHUNKS = 4096


class PostgresTarget:
    """Writes documents by COPY, a batch a transaction; the store is made where there is none."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._server = Server(url, read_only=False)
        self.name = self._server.path
        self.verified = True
        self.notices: list[str] = []
        self._wanted: dict[str, tuple[str, int]] = {}
        self._dimensions = 0

    def begin(self, contents: Contents) -> None:
        """Open the store, or make one by the settings of what comes, and compare the models."""
        values = store_settings(contents)
        self._dimensions = contents.dimensions
        # The indexes of a new store come last: building them at once is several times faster.
        with suppress(StoreExistsError):
            make_store(self._url, values, overwrite=False, indexed=False)
        self._server.open()
        stored = self._server.read(read_settings)
        check_same(self.name, model_identity(stored), model_identity(values))
        for key in ("stemmer", "header_weight"):
            if float(stored[key]) != float(values[key]) if key == "header_weight" else stored[key] != values[key]:
                raise InputError(
                    f"{self.name} has the {key} {stored[key]!r}, the file {values[key]!r}: words would be found in one "
                    "part and not in the other. Push it into a store of its own, by ?schema=NAME."
                )
        if has_own_ids(contents.settings) and not has_own_ids(stored):
            self._server.write(lambda con: PostgresRows(con, parsed).set_metadata({OWN_IDS: True}))

    def write(self, batch: Batch) -> tuple[int, int]:
        """Put whole documents in place of what is there of them; return how many of them and of their chunks."""
        vectors, _ = at_unit_length(batch.vectors)
        batch = batch._replace(vectors=vectors)
        made = digests(batch)
        sizes = dict.fromkeys(made, 0)
        for doc_id in batch.chunks["doc_id"].to_pylist():
            sizes[doc_id] += 1
        self._wanted |= {doc_id: (digest, sizes[doc_id]) for doc_id, digest in made.items()}

        def write(con: Connection) -> tuple[int, int]:
            known: dict[str, str] = dict(
                con.execute(read_sql("postgres/exchange/digests"), {"doc_ids": list(made)}).fetchall()
            )
            new = _without(batch, {doc_id for doc_id, digest in made.items() if known.get(doc_id) == digest})
            if len(new.sources):
                checksums = dict(zip(*(new.sources[name].to_pylist() for name in ("doc_id", "checksum")), strict=True))
                columns: dict[str, Any] = {name: new.chunks[name] for name in new.chunks.column_names}
                columns["checksum"] = [checksums[doc_id] for doc_id in new.chunks["doc_id"].to_pylist()]
                named = [made[doc_id] for doc_id in new.sources["doc_id"].to_pylist()]
                PostgresRows(con, parsed).replace(new.sources, columns, new.vectors, digests=named)
            return len(new.sources), len(new.chunks)

        return self._server.write(write)

    def finish(self, keep: set[str] | None, collections: Sequence[str] | None) -> int:
        """Make the indexes, read back what was written; remove all documents (of the collections) but these."""
        self._server.index(self._dimensions)
        removed = 0 if keep is None else self._server.write(lambda con: _pruned(con, keep, collections))
        self._verify()
        return removed

    def _verify(self) -> None:
        sizes = [(doc_id, size) for doc_id, (_, size) in self._wanted.items()]
        wrong = []
        with self._server.snapshot() as con:
            for doc_ids in grouped(sizes, _READ_CHUNKS):
                found = digests(read_batch(con, doc_ids, self._dimensions))
                wrong += [doc_id for doc_id in doc_ids if found.get(doc_id) != self._wanted[doc_id][0]]
        if wrong:
            # Else the next push would take them for what it wrote.
            self._server.write(
                lambda con: con.execute("UPDATE documents SET digest = NULL WHERE doc_id = ANY(%s)", [wrong])
            )
            raise StoreError(
                self.name,
                f"{self.name} does not hold {counted(len(wrong), 'document')} as they were written, such as "
                f"{wrong[0]!r}: something else writes there too. Run the push again.",
            )

    def close(self) -> None:
        """End the connections."""
        self._server.close()


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
    """Write a store in Postgres, or the documents of it that pass the filters, into a DuckDB file.

    Ids, offsets and vectors are the same to the bit; the lexical index and the links are made anew. Everything is read
    in one transaction, and what was written is read again and compared.

    Parameters
    ----------
    url
        ``postgresql://user@host/database``, as for :class:`PostgresStore`.
    output_db
        The file to make; or one of the same model, whose documents of the same ids are replaced.
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
        The server cannot be reached or holds no store, or the file does not hold what was read.
    InputError
        ``url`` is none, or a filter is of the wrong type.
    ModelMismatchError, StoreExistsError, StoreLockedError
        The file cannot be written.

    Examples
    --------
    >>> pull("postgresql://localhost/kb", "kb.duckdb")  # doctest: +SKIP
    """
    checked_path("output_db", output_db)
    Address.of(url)  # a file is no URL
    wanted: dict[str, str] = {}

    def noted(batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            wanted.update(digests(batch))
            yield batch

    filters: dict[str, Any] = {"tags_any": tags_any, "tags_all": tags_all, "metadata": metadata}
    with stored_contents(url, collection=collection, **filters) as contents:
        told = replace(contents, batches=noted(iter(contents.batches)))
        imported = write_store(told, output_db, embedder=embedder, overwrite=overwrite)
    with stored_contents(imported.path) as contents:
        for batch in contents.batches:
            for doc_id, digest in digests(batch).items():
                if wanted.pop(doc_id, digest) != digest:
                    raise StoreError(
                        imported.path, f"{imported.path} does not hold {doc_id!r} as it was read. Pull again."
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


def _pruned(con: Connection, keep: set[str], collections: Sequence[str] | None) -> int:
    """Remove all documents of the collections, or of all, but these; return how many."""
    asked = {"collections": None if collections is None else list(collections), "keep": sorted(keep)}
    gone = [doc_id for (doc_id,) in con.execute(read_sql("postgres/exchange/others"), asked).fetchall()]
    rows = PostgresRows(con, parsed)
    rows.delete(gone)
    rows.forget_collections()
    return len(gone)
