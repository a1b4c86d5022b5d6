"""Re-embeds a file with another model, from the texts in the file."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sqlrag.arguments import counted, first_lines
from sqlrag.cancellation import checkpoint
from sqlrag.engines.duckdb import documents, lexical, metadata
from sqlrag.engines.duckdb.database import Database, existing_file
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.files import check_memory_limit
from sqlrag.engines.duckdb.metadata import (
    WITH_MARKUP,
    check_metadata,
    chunk_policy_of,
    initial_metadata,
    now,
    policy_text,
    read_metadata,
    refresh_counts,
    write_metadata,
)
from sqlrag.engines.duckdb.model_fit import model_fit
from sqlrag.engines.duckdb.rewrite import LEXICAL, copy_tables, not_copied, replacement
from sqlrag.engines.duckdb.rows import read_documents
from sqlrag.engines.duckdb.schema import create_objects, read_sql
from sqlrag.engines.duckdb.statements import detach, register
from sqlrag.errors import StoreError
from sqlrag.ingest.chunk import chunk
from sqlrag.ingest.kept import Kept
from sqlrag.ingest.run import Report, cost, fit_to_window, model_of_new_file, show_embedded, window_of
from sqlrag.progress import Bar, bar_is_off
from sqlrag.ranking.vectors import unit_vectors
from sqlrag.settings import seconds_to_wait
from sqlrag.types import Chunk, ChunkPolicy, Printable

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import duckdb

    from sqlrag.types import AnyEmbedder, Document, Embedder, Progress, Vectors

# The tables that are rewritten, or left out: the vectors of questions and the map are of the old model.
_WRITTEN = {
    ("main", name)
    for name in (
        "documents",
        "source_documents",
        "document_links",
        "embedding_metadata",
        "query_embeddings",
        "corpus_map",
    )
}

_BATCH_DOCUMENTS = 64


@dataclass
class ReembedReport(Printable):
    """What :func:`reembed` did.

    ``recut`` counts the rechunked documents, ``kept`` those whose chunks stayed as they were because a program
    had made them; ``cut_off`` counts the chunks among the latter that are longer than the model's window. ``left_out``
    names what of your own is not carried over: views, macros, columns of our tables, and all but the rows of yours,
    such as rules and indexes. ``seconds`` is by stage.
    """

    path: Path
    model_name: str
    dimensions: int
    recut: int = 0
    kept: int = 0
    chunks: int = 0
    embedded: int = 0
    cut_off: int = 0
    left_out: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the report as lines for a terminal."""
        model = f"{self.model_name} ({self.dimensions} dimensions)"
        kept = f"{self.kept:,} with the chunks that a program made"
        lines = [
            f"{self.path}: {counted(self.chunks, 'chunk')} with vectors of {model}",
            f"{counted(self.recut, 'document')} rechunked, {kept}; {counted(self.embedded, 'text')} embedded",
        ]
        if self.cut_off:
            lines.append(f"note: {self.cut_off:,} of those chunks are longer than the window of the model.")
        lines += [f"note: {warning}" for warning in self.warnings]
        return "\n".join([*lines, *first_lines(self.left_out, "left out: ")])


@public
def reembed(
    db_path: str | os.PathLike[str],
    model_name: str | None = None,
    *,
    provider: str = "auto",
    embedder: AnyEmbedder | None = None,
    wait_seconds: float | None = None,
    memory_limit: str | None = None,
    verbose: bool = True,
    progress: Progress = "auto",
) -> ReembedReport:
    """Give a file another embedding model; the folder it was made from is not needed.

    Documents that were read from files are rechunked from their stored texts, since tokens are those of the model;
    chunks that a program made are embedded as they are. Everything else is kept, but stored vectors of questions and
    the map, which are of the old model. It goes into a new file, which replaces the old one at the end; other
    processes can search the old one meanwhile. After an interruption the same call goes on where it stopped.

    Parameters
    ----------
    db_path
        The file.
    model_name
        A model's name on the Hugging Face hub or a local folder. None: ``BAAI/bge-small-en-v1.5``; where that
        cannot be had, the model of the extra ``offline``, with a warning.
    provider
        "auto" (ONNX), or the name of a provider.
    embedder
        An embedder of your own, in place of model name and provider; whatever :func:`prepare_embeddings` takes.
    wait_seconds
        How long to wait for a process that writes to the file. None: as :class:`sqlrag.Settings` says.
    memory_limit
        How much memory DuckDB may use, such as "2GB"; by default four fifths of the machine's.
    verbose
        Show the progress: chunks embedded of chunks cut, chunks a second and the time left.
    progress
        "auto": if ``verbose``, a bar in a terminal or notebook, elsewhere a line every 30 s; "on"; "off".

    Returns
    -------
    ReembedReport
        What was rechunked, what was kept as it was.

    Raises
    ------
    InputError
        ``memory_limit`` is not a size, or a chunk of a program has an id that a rechunked document would need.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        The file cannot be read or replaced; see :mod:`sqlrag.errors`.
    ModelUnavailableError, MissingExtraError, ProviderError
        The model cannot be loaded, or does not take a text. The file is as it was.
    """
    from sqlrag.embedders import as_embedder

    began = time.perf_counter()
    wait = seconds_to_wait(wait_seconds)
    memory_limit = check_memory_limit(memory_limit)
    path = existing_file(db_path)
    Database.open(path, wait_seconds=wait).close()
    notes: list[str] = []
    model = model_of_new_file(model_name, provider, notes, stacklevel=4) if embedder is None else as_embedder(embedder)
    report = ReembedReport(path, model.model_name, model.dimensions)
    report.warnings += notes
    with Kept(path, report.warnings) as kept, replacement(path, wait, memory_limit) as (con, _):
        work = _Reembedding(con, path, model, report, kept)
        work.run(bar_is_off(progress, verbose=verbose))
        work.finish(began)
    return report


class _Reembedding:
    """The rewriting of the file attached as ``old`` into ``new``."""

    def __init__(
        self, con: duckdb.DuckDBPyConnection, path: Path, model: Embedder, report: ReembedReport, kept: Kept
    ) -> None:
        self.con = con
        self.model = model
        self.report = report
        self.kept = kept
        self.started = now()
        self.old_metadata = self._from_old(lambda: read_metadata(con))
        self.window = window_of(model)
        self.bar = Bar("embedding", "chunk", off=True)
        window_report = Report()
        check_metadata(path, self.old_metadata)
        policy = chunk_policy_of(path, self.old_metadata)
        self.policy: ChunkPolicy = fit_to_window(policy, model, window_report, stacklevel=5)
        report.warnings += window_report.warnings
        self.llama_index_compatible = self.old_metadata.get("llama_index_compatible") == "True"

    def run(self, bar_off: bool | None) -> None:
        """Create the new file, and write every document with its new vectors, batch by batch."""
        from sqlrag.embedders import probe

        identity = self.kept.identity = probe(self.model)
        self.kept.how_far = lambda count: f"{max(self.bar.done, count):,} of {self.bar.extent} are"
        create_objects(self.con, identity.dimensions)
        self.report.left_out = not_copied(self.con)
        values = initial_metadata(
            identity,
            self.policy,
            header_weight=float(self.old_metadata["header_weight"]),
            stemmer=self.old_metadata["stemmer"],
            created_at=self.old_metadata["created_at"],
            llama_index_compatible=self.llama_index_compatible,
        )
        kept = {key: value for key, value in self.old_metadata.items() if key not in ("corpus_map", WITH_MARKUP)}
        write_metadata(self.con, {**kept, **values})
        copy_tables(self.con, "old", _WRITTEN | LEXICAL)
        sources = self.con.execute(read_sql("index/sources_in_order")).fetchall()
        with Bar("embedding", "chunk", documents=len(sources), off=bar_off) as self.bar:
            for start in range(0, len(sources), _BATCH_DOCUMENTS):
                batch = dict(sources[start : start + _BATCH_DOCUMENTS])
                self._write(batch)
            self.bar.goes_on("indexing the words")
            self._index()

    def _index(self) -> None:
        self.con.execute("BEGIN")
        lexical.add_chunks(self.con, 0, self.old_metadata["stemmer"])
        refresh_counts(self.con)

    def finish(self, began: float) -> None:
        """Check that no document is missing, and record the run."""
        report, con = self.report, self.con
        con.execute(read_sql("index/keep_times"))
        documents, report.chunks = con.execute(read_sql("index/count_rows")).fetchall()[0]
        if documents != report.recut + report.kept:
            raise StoreError(report.path, f"{report.path} could not be copied completely. It is as it was.")
        report.seconds["total"] = time.perf_counter() - began
        row = metadata.RunRow(
            metadata.new_run_id(self.started),
            "reembed",
            self.started,
            documents=documents,
            chunks=report.chunks,
            embedded=report.embedded,
            seconds=report.seconds,
        )
        metadata.log_run(con, row)
        report.warnings += model_fit(con)
        con.execute("COMMIT")
        detach(con, "new")

    def _write(self, batch: dict[str, str | None]) -> None:
        """Write a batch of documents, given with the policy by which they were chunked, None where a program did it."""
        checkpoint(self.con)
        by_id = {one.doc_id: one for one in self._from_old(lambda: read_documents(self.con, list(batch)))}
        recut = [by_id[doc_id] for doc_id, policy in batch.items() if policy is not None]
        kept = [by_id[doc_id] for doc_id, policy in batch.items() if policy is None]
        chunks = [one for document in recut for one in self._cut(document)]
        rows = self._stored_chunks(kept)
        self._check_ids(chunks, rows)
        stored = [_as_chunk(row) for row in rows.to_pylist()]
        size = len(chunks) + len(stored), cost([*chunks, *stored])
        self.bar.read(len(batch))
        self.bar.expect(*size)
        self.report.cut_off += sum(self._is_too_long(one) for one in stored)
        vectors = self._embed([*chunks, *stored])

        self.con.execute("BEGIN")
        insert = {"llama_index_compatible": self.llama_index_compatible}
        if recut:
            policy = policy_text(self.policy)
            documents.insert_rows(self.con, recut, chunks, vectors[: len(chunks)], policy=policy, **insert)
        if kept:
            first = documents.insert_rows(self.con, kept, [], None, **insert)
            self._insert_stored(rows, vectors[len(chunks) :], first)
        self.con.execute("COMMIT")
        self.bar.made(*size)
        self.report.recut += len(recut)
        self.report.kept += len(kept)

    def _check_ids(self, chunks: Sequence[Chunk], rows: pa.Table) -> None:
        """Raise InputError where a document that is rechunked gets an id that a program gave to another's chunk."""
        wanted: dict[str, str] = {}
        stored = zip(rows["node_id"].to_pylist(), rows["doc_id"].to_pylist(), strict=True)
        for node_id, doc_id in (*stored, *((one.node_id, one.doc_id) for one in chunks)):
            if node_id in wanted:
                documents.refuse_taken([(node_id, wanted[node_id])], {node_id: doc_id})
            wanted[node_id] = doc_id
        documents.refuse_taken(documents.taken(self.con, list(wanted)), wanted)

    def _cut(self, document: Document) -> list[Chunk]:
        return chunk(document, self.policy, token_offsets=self.model.token_offsets, window=self.window)

    def _stored_chunks(self, documents: Sequence[Document]) -> pa.Table:
        """Return the rows of the chunks of these documents without vectors, in the order of the documents."""
        ids = [document.doc_id for document in documents]
        register(self.con, "wanted_documents", pa.table({"doc_id": pa.array(ids, pa.string())}))
        table = self.con.sql(read_sql("index/stored_chunks")).to_arrow_table()
        self.con.unregister("wanted_documents")
        return table

    def _insert_stored(self, rows: pa.Table, vectors: Vectors, first: int) -> None:
        """Insert chunks as they were, ids and all, with their new vectors."""
        if len(rows):
            columns = {name: rows[name] for name in rows.column_names}
            documents.insert_chunks(self.con, columns, vectors, first)

    def _is_too_long(self, one: Chunk) -> bool:
        return len(self.model.token_offsets(one.embedding_text(self.policy.include_headers))) > self.window

    def _embed(self, chunks: Sequence[Chunk]) -> Vectors:
        from sqlrag.embedders import embed_texts

        texts = [one.embedding_text(self.policy.include_headers) for one in chunks]
        vectors, cut_off = self.kept.known(list(dict.fromkeys(texts)))
        known = [text for text in texts if text in vectors]
        missing = [text for text in dict.fromkeys(texts) if text not in vectors]
        times = Counter(texts)

        def cut(position: int, characters: int) -> None:
            cut_off[missing[position]] = characters

        def done(positions: list[int], rows: Vectors) -> None:
            their_texts = [missing[position] for position in positions]
            made = unit_vectors(rows, self.model.dimensions)
            vectors.update(zip(their_texts, made, strict=True))
            self.kept.keep(their_texts, made, cut_off)
            show_embedded(self.bar, their_texts, times)

        embed_texts(self.model, missing, kind="document", cut=cut, made=done)
        self.report.embedded += len(missing)
        self.bar.known(len(known), sum(map(len, known)))
        for text, characters in cut_off.items():
            one = chunks[texts.index(text)]
            self.report.warnings.append(
                f"{one.node_id}: the model takes no more than its first {characters} characters."
            )
        return np.array([vectors[text] for text in texts], np.float32).reshape(len(texts), self.model.dimensions)

    def _from_old(self, read: Callable[[], Any]) -> Any:
        """Run a function that reads from the default database while that is the old one."""
        self.con.execute("USE old.main")
        try:
            return read()
        finally:
            self.con.execute("USE new.main")


def _as_chunk(row: dict[str, Any]) -> Chunk:
    path = tuple(row["heading_path"] or ())
    return Chunk(row["doc_id"], row["chunk_index"], row["text"], heading_path=path, shown=row["shown"])
