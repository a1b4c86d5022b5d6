"""Bring a file up to date with its folder: only what has changed is cut, embedded and written."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sqlrag.embedders.base import as_embedder
from sqlrag.errors import ModelMismatchError, NotFoundError
from sqlrag.ingest import run as running
from sqlrag.ingest.chunking import check_policy, chunk_metadata
from sqlrag.ingest.planning import Planner
from sqlrag.ingest.reading import MAX_BYTES, find_files, read_document
from sqlrag.ingest.report import Rename, UpdateReport
from sqlrag.store import lexical, runs, writing
from sqlrag.store.database import Database
from sqlrag.store.metadata import (
    chunk_policy,
    model_identity,
    policy_metadata,
    policy_text,
    refresh_counts,
    required_metadata,
    write_metadata,
)
from sqlrag.store.sources import known_vectors, read_documents, read_slices, read_states, refresh_sources
from sqlrag.types import DEFAULT_COLLECTION, Chunk

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sqlrag.ingest.planning import Plan, Work
    from sqlrag.ingest.run import Cut, Run
    from sqlrag.types import AnyEmbedder, ChunkUnit, Document, Embedder, Progress, Vectors

_REEMBED = "reembed(db_path, model) gives a file another model."


def update_embeddings(
    input_dir: str | os.PathLike[str],
    db_path: str | os.PathLike[str],
    *,
    prune: bool = False,
    skip_duplicates: bool = False,
    collection: str = DEFAULT_COLLECTION,
    patterns: Sequence[str] | None = None,
    max_bytes: int = MAX_BYTES,
    pdf_extractor: Callable[[bytes], list[str]] | None = None,
    embedder: AnyEmbedder | None = None,
    embed_model_name: str | None = None,
    chunk_size: int | None = None,
    chunk_overlap: int | None = None,
    chunk_unit: ChunkUnit | None = None,
    use_markdown_chunking: bool | None = None,
    include_headers_in_chunks: bool | None = None,
    stemmer: str | None = None,
    wait_seconds: float | None = None,
    verbose: bool = True,
    progress: Progress = "auto",
) -> UpdateReport:
    """Bring a file made by :func:`prepare_embeddings` up to date with a folder.

    A file whose bytes (SHA-256, never its time) are those of the stored document costs a hash; where nothing has
    changed no model is loaded. What is new or has changed is read, cut and embedded first, then written in place of
    the old rows, in one transaction for each batch of whole documents: a search sees the old or the new state. Killed
    at any moment, the file holds whole documents, and the next run does the rest.

    No text is embedded that the file has a vector of. A file of the same bytes as a stored document, such as a renamed
    one, takes over the chunks and vectors of that document. For a changed file the chunks are looked up by the text
    that is embedded (heading path and slice), among all chunks of the file; only those that are new go to the model.
    Vectors that a program gave (``Store.upsert``) are never reused.

    Model, chunk policy and stemmer are those of the file, where they are not given. Another chunk policy cuts every
    document anew, those of other folders from their stored text; another stemmer indexes every chunk anew. Chunks that
    a program made stay as they are until their file changes.

    Parameters
    ----------
    input_dir
        The folder, searched to any depth. Documents of other folders stay untouched: a file of the same name as one of
        theirs is a failure, unless it has the same bytes.
    db_path
        The file to change.
    prune
        Remove the documents that were read from this folder and are not in it any more, or hold no text any more.
        Files that are there but not read (other patterns, unreadable folders) count as present. False: nothing is
        removed, the report names them as ``missing``.
    skip_duplicates
        Leave out files with the same bytes and type as another one: the one that is stored stays, else the first. With
        ``prune`` also those that were stored before.
    collection
        The collection that the folder is.
    patterns, max_bytes, pdf_extractor
        As for :func:`prepare_embeddings`; ``prune`` is limited to names that match.
    embedder
        The file's model, loaded by you, in place of loading it by the name that the file has; whatever
        :func:`prepare_embeddings` takes.
    embed_model_name
        Only to make sure: another model than the file's is refused.
    chunk_size, chunk_overlap, chunk_unit, use_markdown_chunking, include_headers_in_chunks
        Another chunk policy for the whole file. None: as the file says.
    stemmer
        Another stemmer for the whole file. None: as the file says.
    wait_seconds
        How long to wait for another process that holds the file.
    verbose, progress
        As for :func:`prepare_embeddings`.

    Returns
    -------
    UpdateReport
        What became of each file.

    Raises
    ------
    InputError
        An option is out of its range.
    NotFoundError
        The folder or the file does not exist, or the folder has no file to read: an empty folder (a disk that is not
        mounted) never empties a file.
    ModelMismatchError
        The model is not that of the file; nothing has been changed.
    NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        The file cannot be written.
    ModelUnavailableError, MissingExtraError, ProviderError
        The model cannot be loaded, or does not do what it says. Documents that were finished stay.
    """
    running.check_options(collection, max_bytes)
    running.check_types(
        input_dir,
        patterns,
        pdf_extractor,
        progress,
        embed_model_name,
        prune=prune,
        skip_duplicates=skip_duplicates,
        verbose=verbose,
        use_markdown_chunking=use_markdown_chunking,
        include_headers_in_chunks=include_headers_in_chunks,
    )
    if stemmer is not None:
        lexical.check_stemmer(stemmer)
    files, skipped = find_files(input_dir, patterns=patterns)
    if not files:
        raise NotFoundError(running.nothing_to_read(input_dir, skipped))

    report = UpdateReport(files=len(files), skipped=list(skipped))
    run = running.Run("update", Path(input_dir).expanduser(), collection, report)
    run.read = lambda path, root: read_document(
        path, root, collection=collection, max_bytes=max_bytes, pdf_extractor=pdf_extractor
    )
    with Database.open(db_path, read_only=False, wait_seconds=wait_seconds) as database:
        update = Update(database, run, report, None if embedder is None else as_embedder(embedder), embed_model_name)
        wanted = {
            "strategy": None if use_markdown_chunking is None else "markdown" if use_markdown_chunking else "size",
            "chunk_size": chunk_size,
            "chunk_overlap": chunk_overlap,
            "chunk_unit": chunk_unit,
            "include_headers": include_headers_in_chunks,
        }
        update.choose_policy({name: value for name, value in wanted.items() if value is not None})
        stored = read_states(database.cursor())
        planner = Planner(
            run,
            stored,
            policy_text(run.policy),
            patterns=patterns,
            max_bytes=max_bytes,
            prune=prune,
            skip_duplicates=skip_duplicates,
        )
        with run.timed("find"):
            plan = planner.plan(files, report)
        update.run(plan, planner, stemmer, running.bars(verbose, progress))
        with run.timed("store"):
            update.finish(plan, planner)
    return report


class Update:
    """One update of one file."""

    def __init__(
        self, database: Database, run: Run, report: UpdateReport, embedder: Embedder | None, model_name: str | None
    ) -> None:
        self.database = database
        self.state = run
        self.report = report
        self.metadata = required_metadata(database)
        self.identity = model_identity(self.metadata)
        self.policy = chunk_policy(self.metadata)
        self.stemmer = self.metadata["stemmer"]
        self._given = embedder
        self._lists: dict[str, list[str]] = {}
        if embedder is not None and embedder.dimensions != self.identity.dimensions:
            self._check(embedder)
        if model_name is not None and _short(model_name) != _short(self.identity.model_name):
            raise ModelMismatchError(
                f"{database.path} was built with the model {self.identity.model_name!r}; you passed {model_name!r}. "
                f"{_REEMBED}"
            )

    def choose_policy(self, wanted: dict[str, object]) -> None:
        """Set the chunk policy of the run: that of the file with what the caller wants otherwise."""
        policy = replace(self.policy, **wanted)  # type: ignore[arg-type]
        sizes = (policy.chunk_size, policy.chunk_unit) == (self.policy.chunk_size, self.policy.chunk_unit)
        if "chunk_overlap" not in wanted and not sizes:
            policy = replace(policy, chunk_overlap=running.default_overlap(policy.chunk_size, policy.chunk_unit))
        check_policy(policy)
        if policy != self.policy:
            policy = running.fit_to_window(policy, self._model(), self.report, stacklevel=4)
        self.state.policy = policy

    def run(self, plan: Plan, planner: Planner, stemmer: str | None, bar_off: bool | None) -> None:
        """Write what has changed; nothing is written before it is known that the model is the file's."""
        copies = [work for work in plan.work if work.twin is not None]
        late: list[Work] = []
        fresh = self._parsed(work for work in plan.work if work.twin is None)
        first = next(fresh, None)
        leaving = {*(work.doc_id for work in plan.work), *plan.removed, *plan.repeated, *plan.renamed.values()}
        rest = [doc_id for doc_id in planner.cut_otherwise() if doc_id not in leaving]
        if first is not None or rest:
            self._model()
        report, stored = self.report, planner.stored
        self._lists = dict.fromkeys(rest, report.rechunked)
        self._lists.update({w.doc_id: report.changed if w.doc_id in stored else report.added for w in plan.work})
        self._change_settings(stemmer)
        if not plan.work and not rest:
            return

        from tqdm.auto import tqdm

        total = len(plan.work) + len(rest)
        with tqdm(total=total, desc="documents", unit="file", disable=bar_off, leave=False) as bar:
            for documents, chunks, vectors in self._copied(copies, late):
                self._write(documents, chunks, vectors, plan)
                bar.update(len(documents))
            sources = chain([] if first is None else [first], fresh, self._parsed(late), self._stored(rest))
            for written, chunks in running.in_batches(self._cut(sources), self.state):
                with self.state.timed("embed"):
                    kept, chunks, vectors = self.state.embed(written, chunks)
                self._write(kept, chunks, vectors, plan)
                self.state.stop_if_down("What was finished stays; the next update does the rest.")
                bar.update(len(written))

    def finish(self, plan: Plan, planner: Planner) -> None:
        """Remove what is gone, and write down what the run has found."""
        report, state = self.report, self.state
        report.unchanged = plan.unchanged
        # What could not be read under its new name stays under the old one.
        moved = {rename.old for rename in report.renamed}
        report.missing = sorted({*plan.missing, *(old for old in plan.renamed.values() if old not in moved)})
        for done in (report.added, report.changed, report.renamed, report.rechunked, report.failures):
            done.sort()
        failing = {failure.doc_id for failure in report.failures}
        if planner.prune:
            emptied = {failure.doc_id for failure in report.failures if failure.status == "empty"}
            plan.removed += emptied & planner.stored.keys()
            # Where the other one cannot be read, the text that is stored is the only one there is.
            unread = failing - emptied
            plan.removed += [doc_id for doc_id, same_as in plan.repeated.items() if same_as not in unread]
        with self.database.transaction() as con:
            removed = writing.delete(con, plan.removed)
            if removed:
                refresh_counts(con)
            report.removed = removed
            if plan.touched:
                refresh_sources(con, plan.touched)
            root = runs.folder_of(con, state.collection)
            healed = [
                doc_id
                for doc_id in runs.failed_documents(con, state.collection)
                if doc_id not in failing
                and (
                    doc_id in plan.found
                    or (root == state.input_dir and planner.is_gone(doc_id, plan.found, report.skipped))
                )
            ]
            runs.clear_failures(con, healed)
            runs.record_failures(con, report.failures)
            # Documents that were given as bytes have no folder.
            if root is None or (state.input_dir and root != state.input_dir):
                runs.record_collection(con, state.collection, state.input_dir)
            runs.log_run(con, state.row(removed=len(removed) + len(report.renamed)))
        state.log.info("%s: %r", state.root, report)

    def _model(self) -> Embedder:
        """Return the file's model, loaded at the first call and checked against the file."""
        from sqlrag.embedders.stored import load_stored

        if self.state.embedder is None:
            remedy = "with. Pass an embedder."
            embedder = self._given or load_stored(self.database.path, self.identity, remedy)
            self._check(embedder)
            self.state.embedder = embedder
            self.state.known = lambda texts: known_vectors(self.database.cursor(), texts, embedder.dimensions)
        return self.state.embedder

    def _check(self, embedder: Embedder) -> None:
        from sqlrag.embedders.stored import check_stored

        check_stored(embedder, self.identity)

    def _change_settings(self, stemmer: str | None) -> None:
        """Write another chunk policy into the file, and index it anew with another stemmer."""
        if self.state.policy != self.policy:
            with self.database.transaction() as con:
                write_metadata(con, policy_metadata(self.state.policy))
        if stemmer not in (None, self.stemmer):
            self.stemmer = str(stemmer)
            self.report.reindexed = True
            with self.state.timed("index"), self.database.transaction() as con:
                lexical.rebuild(con, self.stemmer)
                write_metadata(con, {"stemmer": self.stemmer})

    def _parsed(self, work: Iterable[Work]) -> Iterator[Document]:
        for one in work:
            document = self.state.parse(one.path)
            if document is not None:
                yield document

    def _stored(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        for doc_id in doc_ids:
            yield from read_documents(self.database.cursor(), [doc_id])

    def _cut(self, documents: Iterable[Document]) -> Iterator[Cut]:
        for document in documents:
            self._model()  # where everything was to be copied, the first late document is what needs it
            chunks = self.state.cut(document)
            if chunks is not None:
                yield document, chunks

    def _copied(
        self, copies: Sequence[Work], late: list[Work]
    ) -> Iterator[tuple[list[Document], list[Chunk], Vectors]]:
        """Yield documents with the chunks and vectors of their twins; ``late`` gets those whose twin has changed."""
        parts: dict[str, Vectors] = {}

        def cuts() -> Iterator[Cut]:
            for work in copies:
                document = self.state.parse(work.path)
                if document is None:
                    continue
                slices, vectors = read_slices(
                    self.database.cursor(), work.twin or "", document.checksum, self.identity.dimensions
                )
                if not slices:
                    late.append(work)
                    continue
                parts[document.doc_id] = vectors
                metadata = chunk_metadata(document)
                yield (
                    document,
                    [
                        Chunk(
                            document.doc_id,
                            index,
                            document.text[piece.i_start : piece.i_end],
                            tags=document.tags,
                            metadata=dict(metadata),
                            collection=document.collection,
                            **piece._asdict(),
                        )
                        for index, piece in enumerate(slices)
                    ],
                )

        for documents, chunks in running.in_batches(cuts()):
            self.report.reused += len(chunks)
            yield documents, chunks, np.concatenate([parts.pop(document.doc_id) for document in documents])

    def _write(self, documents: list[Document], chunks: list[Chunk], vectors: Vectors, plan: Plan) -> None:
        """Replace documents and what they were called before, in one transaction."""
        ids = [document.doc_id for document in documents]
        gone = [plan.renamed[doc_id] for doc_id in ids if doc_id in plan.renamed]
        with self.state.timed("store"), self.database.transaction() as con:
            writing.replace_rows(
                con,
                documents,
                chunks,
                vectors,
                stemmer=self.stemmer,
                llama_index_compatible=self.metadata.get("llama_index_compatible", "True") == "True",
                policy=policy_text(self.state.policy),
                gone=gone,
            )
        report = self.report
        report.documents += len(documents)
        report.chunks += len(chunks)
        report.renamed += [Rename(plan.renamed[doc_id], doc_id) for doc_id in ids if doc_id in plan.renamed]
        for doc_id in ids:
            if doc_id not in plan.renamed:
                self._lists[doc_id].append(doc_id)


def _short(model_name: str) -> str:
    """Name without organisation and case, since providers spell one model differently."""
    return model_name.rstrip("/").rsplit("/", 1)[-1].lower()
