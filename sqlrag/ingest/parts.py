"""A build in parts: one worker reads, cuts and embeds a few files, another process loads what came of them.

A part is two Parquet files, documents by SOURCE_SCHEMA and chunks by CHUNK_SCHEMA with their vectors, and a
:class:`Part`, which says what became of each file. Nothing here depends on what runs the workers, or on where the parts
are loaded: :func:`read_part` gives whole documents.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field, replace
from io import BytesIO
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sqlrag.errors import DocumentError, ModelUnavailableError, ProviderError, StoreError
from sqlrag.formats.contents import CHUNK_SCHEMA, SOURCE_SCHEMA
from sqlrag.ingest.reading import document_id
from sqlrag.ingest.report import Failure, Report
from sqlrag.ingest.run import Run, in_batches
from sqlrag.stopping import checkpoint
from sqlrag.store.metadata import policy_text
from sqlrag.store.sources import document_of, vector_matrix
from sqlrag.store.writing import chunk_columns, sources_table
from sqlrag.types import Chunk, Document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from sqlrag.types import Vectors

# A file at which so many workers ended is left out; so many that ended before their first file end the build.
MOST_DEATHS = 3
LOADING, EMBEDDING, _DONE = "loading", "embedding", "done"
_SOURCES, _CHUNKS, _JOURNAL = _SUFFIXES = (".documents.parquet", ".chunks.parquet", ".journal")


class Outcome(NamedTuple):
    """What became of one file: its rows are in the part, or ``failure`` says why not.

    ``checksum`` is "" where it could not be read. With neither rows nor a failure the provider did not get to it.
    """

    doc_id: str
    checksum: str = ""
    mime: str = ""
    warnings: tuple[str, ...] = ()
    failure: Failure | None = None


@dataclass
class Part:
    """One part: ``path`` is that of its files without their suffixes, ``outcomes`` are in the order of its files.

    ``cut_off`` are the texts that were too long for the model, with the characters that were embedded. ``outage`` says
    why the provider was given up, ``error`` why the worker could not work at all: the message of an exception, or
    of a StoreError where ``is_of_folder``.
    """

    path: Path
    outcomes: list[Outcome] = field(default_factory=list)
    cut_off: dict[str, int] = field(default_factory=dict)
    embedded: int = 0
    embedding_calls: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    outage: str = ""
    error: str = ""
    is_of_folder: bool = False


class Made(NamedTuple):
    """One file of a part with its rows; ``document`` is None where there are none."""

    outcome: Outcome
    document: Document | None = None
    chunks: Sequence[Chunk] = ()
    vectors: Vectors = np.empty((0, 0), dtype=np.float32)


class Journal:
    """Notes in a file what a worker is at, so that the next one knows where the last one ended without a word.

    ``deaths`` counts at what earlier workers of this part ended: the place of a file in it, or a stage.
    """

    def __init__(self, part: Path) -> None:
        path = _beside(part, _JOURNAL)
        lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
        ends = [line.split()[-1] for line in lines if line]
        self.deaths = Counter(end for end in ends if end != _DONE)
        self._file = path.open("a", encoding="ascii")
        self._file.write("\n")
        self.at(LOADING)

    def at(self, what: str | int) -> None:
        """Note what comes next."""
        self._file.write(f"{what} ")
        self._file.flush()

    def close(self) -> None:
        """Note that this worker has not ended without a word."""
        self.at(_DONE)
        self._file.close()


def write_part(run: Run, files: Sequence[Path], path: Path, journal: Journal) -> Part:
    """Read, cut and embed files by a run that may have done others before, and write what came of them.

    After the death of a worker each file is done alone, so that the one that it died of is known.

    Raises
    ------
    OSError
        The part cannot be written.
    """
    report = run.report = Report()
    run.cut_off = {}
    documents: list[Document] = []
    chunks: list[Chunk] = []
    vectors: list[Vectors] = [np.empty((0, run.model.dimensions), dtype=np.float32)]
    outcomes: list[Outcome] = []
    waiting: list[tuple[Document, list[Chunk]]] = []

    def embed() -> None:
        for some, their_chunks in in_batches(waiting, run):
            if run.outage is None:
                with run.timed("embed"):
                    kept, kept_chunks, made = run.embed(some, their_chunks)
                documents.extend(kept)
                chunks.extend(kept_chunks)
                vectors.append(made)
        waiting.clear()

    for place, file in enumerate(files):
        journal.at(place)
        document = None
        if journal.deaths[str(place)] < MOST_DEATHS:
            document = run.parse(file)
        else:
            reason = f"{MOST_DEATHS} workers ended without a word while they were at it (killed, or it crashes them)"
            with run.told(file):
                raise DocumentError(document_id(file, run.root, collection=run.collection), reason)
        own = None if document is None else run.cut(document)
        failure = report.failures[-1] if own is None else None
        if document is None:
            outcomes.append(Outcome(report.failures[-1].doc_id, failure=failure))
            continue
        outcomes.append(Outcome(document.doc_id, document.checksum, document.mime, document.warnings, failure))
        if own is not None:
            waiting.append((document, own))
        if journal.deaths:
            embed()
    journal.at(EMBEDDING)
    embed()

    refused = {failure.doc_id: failure for failure in report.failures}
    _write(path, documents, chunks, np.concatenate(vectors), policy_text(run.policy))
    return Part(
        path,
        [outcome._replace(failure=refused.get(outcome.doc_id)) for outcome in outcomes],
        run.cut_off,
        report.embedded,
        report.embedding_calls,
        report.seconds,
        "" if run.outage is None else str(run.outage),
    )


def _write(path: Path, documents: Sequence[Document], chunks: Sequence[Chunk], vectors: Vectors, policy: str) -> None:
    columns = chunk_columns({one.doc_id: one for one in documents}, chunks, llama_index_compatible=False)
    embedding = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    table = pa.Table.from_pydict({name: columns[name] for name in CHUNK_SCHEMA.names}, CHUNK_SCHEMA)
    tables = {
        _SOURCES: sources_table(documents, policy).cast(SOURCE_SCHEMA),
        _CHUNKS: table.append_column("embedding", embedding),
    }
    for suffix, rows in tables.items():
        # Under its name when it is whole: a worker that was given up may still be writing.
        unfinished = _beside(path, f"{suffix}.{os.getpid()}")
        with unfinished.open("wb") as file:
            pq.write_table(rows, file)
        unfinished.replace(_beside(path, suffix))


def read_part(part: Part) -> Iterator[Made]:
    """Yield what came of the files of a part, in their order.

    Raises
    ------
    StoreError
        Its files are not here.
    """
    try:
        sources, chunks = (pq.read_table(BytesIO(_beside(part.path, suffix).read_bytes())) for suffix in _SUFFIXES[:2])
    except OSError as error:
        raise StoreError(
            part.path,
            f"A worker has written {part.path}{_SOURCES}, which cannot be read here: {error}. The parts must lie where "
            "all workers and this process reach them by the same path (parts_dir).",
        ) from error
    vectors = vector_matrix(chunks["embedding"], chunks.schema.field("embedding").type.list_size)
    documents = {row["doc_id"]: row for row in sources.drop_columns(["chunk_policy"]).to_pylist()}
    rows = chunks.drop_columns(["node_id", "embedding"]).to_pylist()
    places: dict[str, list[int]] = {doc_id: [] for doc_id in documents}
    for place, row in enumerate(rows):
        places[row["doc_id"]].append(place)
    for outcome in part.outcomes:
        if outcome.doc_id not in documents:
            yield Made(outcome)
            continue
        document = replace(document_of(documents[outcome.doc_id]), warnings=outcome.warnings)
        own = places[outcome.doc_id]
        yield Made(outcome, document, [_chunk(rows[place]) for place in own], vectors[own])


def _chunk(row: dict[str, Any]) -> Chunk:
    row["content"], row["metadata"] = row.pop("text"), json.loads(row.pop("metadata_"))
    return Chunk(**{**row, "tags": tuple(row["tags"]), "heading_path": tuple(row["heading_path"])})


def remove_part(part: Part) -> None:
    """Remove the files of a part."""
    for suffix in _SUFFIXES:
        _beside(part.path, suffix).unlink(missing_ok=True)


def _beside(part: Path, suffix: str) -> Path:
    return part.with_name(part.name + suffix)


class PartsRun(Run):
    """A run whose documents come out of parts: it reports, batches and writes them as if it had read them itself."""

    def __init__(self, kind: str, root: Path, collection: str, report: Report) -> None:
        super().__init__(kind, root, collection, report)
        self._files: Iterator[Made] = iter(())
        self._current = Made(Outcome(""))
        self._vectors_of: dict[str, Vectors] = {}
        self._down = ProviderError("")

    def take(self, parts: Iterable[Part]) -> None:
        """Take what comes of the files, in their order, from these parts; each is removed when it is loaded."""
        self._files = chain.from_iterable(map(self._loaded, parts))

    def parse(self, path: Path) -> Document | None:  # noqa: ARG002 - the files come in the order of the parts
        """Return the next file's document, without text where it could not be cut or embedded."""
        self._current = next(self._files)
        outcome, document = self._current[:2]
        if document is None and outcome.failure is None:
            self.outage = self._down
            self.log.error("The provider is given up: %s", self.outage)
            return None
        if not outcome.checksum and outcome.failure is not None:
            self.fail(outcome.failure)
            return None
        self.report.warnings.extend(outcome.warnings)
        for warning in outcome.warnings:
            self.log.warning("%s", warning)
        if document is None:
            return Document(outcome.doc_id, "", checksum=outcome.checksum, mime=outcome.mime)
        return document

    def cut(self, document: Document) -> list[Chunk] | None:
        """Return the chunks of the document that :meth:`parse` has returned last."""
        if self._current.outcome.failure is not None:
            self.fail(self._current.outcome.failure)
            return None
        self._vectors_of[document.doc_id] = self._current.vectors
        return list(self._current.chunks)

    def embed(self, documents: list[Document], chunks: list[Chunk]) -> tuple[list[Document], list[Chunk], Vectors]:
        """Return the documents and chunks with the vectors that came with them."""
        vectors = np.concatenate([self._vectors_of.pop(document.doc_id) for document in documents])
        return documents, self._flagged(chunks), vectors

    def _loaded(self, part: Part) -> Iterator[Made]:
        checkpoint()
        if part.error:
            raise StoreError(part.path, part.error) if part.is_of_folder else ModelUnavailableError(part.error)
        report = self.report
        report.embedded += part.embedded
        report.embedding_calls += part.embedding_calls
        for stage, seconds in part.seconds.items():
            report.seconds[stage] = report.seconds.get(stage, 0.0) + seconds
        self.cut_off.update(part.cut_off)
        if part.outage:
            self._down = ProviderError(part.outage)
        made = list(read_part(part))
        remove_part(part)
        return iter(made)
