"""The state of one run of the pipeline, what it reports, and the steps that builds and updates share."""

from __future__ import annotations

import logging
import re
import time
import warnings
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from sqlrag import arguments
from sqlrag.arguments import counted, failure_lines, first_lines
from sqlrag.cancellation import Work, checkpoint
from sqlrag.engines.duckdb.documents import end_of_shown
from sqlrag.engines.duckdb.files import EXCHANGED
from sqlrag.engines.duckdb.metadata import RunRow, new_run_id, now
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.errors import DocumentError, InputError, ModelUnavailableError, ProviderError, SqlragError
from sqlrag.ingest.chunk import Chunks
from sqlrag.ingest.folder import NO_PATTERN, Twin, document_id, read_document, stored_path
from sqlrag.ingest.readers import readers
from sqlrag.links import links_of, references_of
from sqlrag.network import refuse_address
from sqlrag.normalize import clean_name, json_pointer, without_surrogates
from sqlrag.progress import Bar
from sqlrag.ranking.vectors import unit_vectors
from sqlrag.telemetry import Measure, count
from sqlrag.types import DEFAULT_COLLECTION, ChunkPolicy, Printable
from sqlrag.visible import page_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path
    from typing import Self

    import duckdb

    from sqlrag.ingest.folder import SkippedFile
    from sqlrag.ingest.kept import Kept
    from sqlrag.types import Chunk, Document, Embedder, ModelIdentity, Vectors


class Failure(NamedTuple):
    """A document that could not be used. ``status`` is "failed", or "empty" where there was nothing to index."""

    doc_id: str
    status: str
    reason: str


class Duplicate(NamedTuple):
    """A document whose file has the same bytes as that of ``same_as``."""

    doc_id: str
    same_as: str


class Rename(NamedTuple):
    """A renamed file; both names are ``doc_id``."""

    old: str
    new: str


@dataclass
class Report(Printable):
    """Counts, failures and times of one run.

    ``files`` is how many were found to be read, ``documents`` how many of them were written, ``chunks`` how many chunks
    they have. ``embedded`` is how many texts went to the model (equal ones once), in ``embedding_calls`` batches;
    ``reused`` how many chunks have a vector that the file or an interrupted run had already. ``duplicates`` have the
    bytes of another file. ``seconds`` is by stage: find, read, chunk, embed, store, index. ``run_id`` names the run in
    ``ingest_log`` and in the log.
    """

    files: int = 0
    documents: int = 0
    chunks: int = 0
    embedded: int = 0
    embedding_calls: int = 0
    reused: int = 0
    failures: list[Failure] = field(default_factory=list)
    duplicates: list[Duplicate] = field(default_factory=list)
    skipped: list[SkippedFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    run_id: str = ""

    @property
    def failed(self) -> int:
        """How many documents failed; empty ones are not counted."""
        return sum(failure.status == "failed" for failure in self.failures)

    @property
    def empty(self) -> int:
        """How many documents had nothing to index."""
        return sum(failure.status == "empty" for failure in self.failures)

    def summary(self) -> str:
        """Return a short summary: how much there is and how much failed."""
        documents, chunks = counted(self.documents, "document"), counted(self.chunks, "chunk")
        return f"{documents}, {chunks}, {self.failed} failed"

    def __str__(self) -> str:
        """Return the report as lines for a terminal."""
        return "\n".join(
            [
                f"{counted(self.documents, 'document')}, {counted(self.chunks, 'chunk')} ({self._stages()})",
                *self._details(),
            ]
        )

    def _stages(self) -> str:
        return ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in self.seconds.items())

    def _details(self) -> list[str]:
        lines = [f"{self.failed} failed, {self.empty} empty, {counted(len(self.skipped), 'file')} skipped"]
        lines += failure_lines(self.failures)
        twins = [f"{twin.doc_id} is the same as {twin.same_as}" for twin in self.duplicates]
        lines += first_lines(twins, "  duplicate: ")
        lines += [f"  skipped {count}: {reason}" for reason, count in reasons(self.skipped)]
        lines += [f"  note: {warning}" for warning in self.warnings]
        return lines


@dataclass
class UpdateReport(Report):
    """What :func:`sqlrag.update_embeddings` did: every list has ``doc_id``, in order.

    A file is in one of ``added``, ``changed``, ``renamed``, ``unchanged`` and ``failures``, or was left out as one of
    the ``duplicates``. ``missing`` are documents without a file that were kept, because ``prune`` was not asked for;
    ``removed`` those that were deleted. ``rechunked`` are documents with the same text, chunked again because the chunk
    policy has changed. ``reindexed`` says that the lexical index was rebuilt, because the stemmer has changed. With
    ``dry_run`` nothing was done, all of them say what would be, and ``run_id`` is "".
    """

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    renamed: list[Rename] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    rechunked: list[str] = field(default_factory=list)
    reindexed: bool = False
    dry_run: bool = False

    def __repr__(self) -> str:
        """Return the counts."""
        return f"UpdateReport({self._counts()})"

    def __str__(self) -> str:
        """Return the report as lines for a terminal."""
        written, embedded = counted(self.chunks, "chunk"), counted(self.embedded, "text")
        counts = f"{written} written, {embedded} embedded, {counted(self.reused, 'vector')} reused"
        lines = [self._counts(), f"{counts} ({self._stages()})"]
        if self.dry_run:
            lines[1] = "This is what an update would do; nothing was read but the bytes, and nothing is changed."
        if self.rechunked:
            lines.append(f"  the chunk policy has changed: {counted(len(self.rechunked), 'document')} rechunked")
        if self.reindexed:
            lines.append("  the stemmer has changed: every chunk was reindexed")
        for what in ("added", "changed", "removed"):
            lines += first_lines(getattr(self, what), f"  {what}: ")
        lines += first_lines([f"{rename.old} to {rename.new}" for rename in self.renamed], "  renamed: ")
        gone = [f"{doc_id} has no file any more, or is ignored; prune removes it" for doc_id in self.missing]
        lines += first_lines(gone, "  missing: ")
        return "\n".join([*lines, *self._details()])

    def _counts(self) -> str:
        lists = ("added", "changed", "renamed", "unchanged", "removed", "missing")
        counts = [f"{len(getattr(self, name)):,} {name}" for name in lists]
        return ", ".join([*counts, f"{self.failed:,} failed"])


@dataclass(frozen=True)
class Prepared:
    """A file that was built: where it is, the report of the run, and the embedder that filled it.

    An index of :func:`sqlrag.prepare_embeddings` has the same ``.path`` and ``.report``.
    """

    path: Path
    report: Report
    embedder: Embedder | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        """Return the file and a summary of its contents."""
        return f"Prepared({str(self.path)!r}: {self.report.summary()})"


def reasons(skipped: list[SkippedFile]) -> list[tuple[str, int]]:
    """Return the reasons for which files were skipped with their numbers, most frequent first."""
    return sorted(Counter(file.reason for file in skipped).items(), key=lambda item: (-item[1], item[0]))


if TYPE_CHECKING:
    Cut = tuple[Document, Sequence[Chunk]]

_MONTH = "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
_MONTH += "nov(?:ember)?|dec(?:ember)?)"

# A date as people write it, but not as ISO 8601 has it.
_OTHER_DATE = re.compile(
    r"(?!\d{4}-\d\d-\d\d(?:[T ]|$))\d{1,4}([./-])\d{1,2}\1\d{1,4}(?: .*)?"
    rf"|(?:[a-z]+,? )?(?:\d{{1,2}}(?:st|nd|rd|th)? {_MONTH}\.?|{_MONTH}\.? \d{{1,2}}),? \d{{4}}.*",
    re.IGNORECASE | re.ASCII,
)

# Chunks that are held in memory, embedded and written together.
BATCH_CHUNKS = 2048

# Those of a document that has more; its text is in memory besides.
_PART_CHUNKS = 512

_BATCHES_BEFORE_WRITING = 16

# What a provider raises that refuses a text, or answers no more; a server may also lose its model.
FAILURES = (ProviderError, ModelUnavailableError)


class RunLog(logging.LoggerAdapter[logging.Logger]):
    """Puts the id of the run before each message, and into the record as ``run_id``."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Return the message and its arguments with the id."""
        extra = dict(self.extra or {})
        return f"[{extra['run_id']}] {msg}", {**kwargs, "extra": extra}


class Run:
    """One run: what it reads, by which policy and model, what it has counted, and the id that names it.

    ``policy`` and ``embedder`` are set by the caller before anything is cut or embedded. ``known`` returns vectors
    that need not be computed again, by the text that is embedded; it takes this with the ``headed_text`` of the chunk.
    """

    def __init__(self, kind: str, root: Path, collection: str, report: Report) -> None:
        self.kind = kind
        self.root = root
        # Bytes of a name that are not UTF-8 cannot be stored.
        self.input_dir = without_surrogates(root.resolve().as_posix())
        # Two names of the folder, where it is a link.
        self.roots: tuple[str, ...] = stored_path(root), clean_name(self.input_dir)
        self.collection = collection
        self.report = report
        self.started = now()
        self.id = report.run_id = new_run_id(self.started)
        self.log = RunLog(logging.getLogger("sqlrag.ingest"), {"run_id": self.id})
        self.policy = ChunkPolicy()
        self.embedder: Embedder | None = None
        self.read: Callable[[Path, Path], Document] = read_document
        self.known: Callable[[Mapping[str, str]], dict[str, Vectors]] = lambda _: {}
        # What keeps the vectors in case that the run is interrupted.
        self.kept: Kept | None = None
        # Why embedding was stopped, where it was.
        self.outage: SqlragError | None = None
        # How the provider fails on several documents at a time where it does not fail on each of them.
        self.single = ""
        self._window: int | None = None
        # By field: documents with text there that people write for a date.
        self._other_dates: dict[str, list[tuple[str, str]]] = {}
        self._ahead: _Ahead | None = None
        # Texts that were too long for the model, with the characters of them that were embedded.
        self.cut_off: dict[str, int] = {}
        self.bar = Bar("embedding", "chunk", off=True)
        self._measure = Measure("ingest", attributes={"sqlrag.run_id": self.id})
        # What is in the twin of a file is in no document.
        twins = [file for file in report.skipped if isinstance(file, Twin)]
        report.skipped = [file for file in report.skipped if not isinstance(file, Twin)]
        report.files += len(twins)
        before = "" if collection == DEFAULT_COLLECTION else f"{collection}:"
        for twin in twins:
            self.fail(Failure(f"{before}{twin.written}", "failed", twin.reason))

    def row(self, *, removed: int = 0) -> RunRow:
        """Return what ``ingest_log`` keeps of the run."""
        report = self.report
        self._measure.end()
        count(files=report.files, documents=report.documents, chunks=report.chunks, failed_documents=report.failed)
        counts = {name: getattr(report, name) for name in ("files", "documents", "chunks", "embedded", "reused")}
        return RunRow(
            self.id,
            self.kind,
            self.started,
            self.input_dir,
            self.collection,
            **counts,
            removed=removed,
            embedding_calls=report.embedding_calls,
            failed=report.failed,
            skipped=len(report.skipped),
            seconds=report.seconds,
        )

    @contextmanager
    def at_work(self, files: Sequence[Path], beside: Path) -> Iterator[None]:  # noqa: ARG002
        """Parse and cut the files, which have to be asked for in their order, while the block does other things.

        A run with workers starts them here; their files may have names that begin with that of ``beside``.
        """
        if getattr(self.model, "is_python", False):
            yield
            return
        with _Ahead(files, self._read, self._cut) as self._ahead:
            yield
        self._ahead = None

    def parse(self, path: Path) -> Document | None:
        """Read one file; what cannot be used goes into the report."""
        with self.reporting(path):
            document = self._ahead.document(path) if self._ahead else self._read(path)
            self.note(document)
            return document
        return None

    def note(self, document: Document) -> None:
        """Take what is to be said of a document that was read, which is written next."""
        self.report.warnings.extend(document.warnings)
        for warning in document.warnings:
            self.log.warning("%s", warning)
        for name, value in document.metadata.items():
            if isinstance(value, str) and _OTHER_DATE.fullmatch(value):
                self._other_dates.setdefault(name, []).append((document.doc_id, value))

    def note_dates(self, con: duckdb.DuckDBPyConnection) -> None:
        """Say which metadata of these documents are dates by which filters do not compare, but those of others are."""
        for name, found in self._other_dates.items():
            wanted = {"place": json_pointer(name), "collection": self.collection}
            if con.execute(read_sql("index/holds_dates"), wanted).fetchall()[0][0]:
                doc_id, value = found[0]
                self.report.warnings.append(
                    f"The metadata field {name!r} of {counted(len(found), 'document')} is no ISO 8601 date, such as "
                    f"{value!r} of {doc_id}, and that of others is: filters by date leave these out. Write 2025-12-31."
                )

    def cut(self, document: Document) -> Cut | None:
        """Chunk one document and find its links; one that cannot be cut goes into the report."""
        with self.reporting(document.doc_id):
            return self._ahead.cut() if self._ahead else self._cut(document)
        return None

    def _read(self, path: Path) -> Document:
        with self.timed("read"):
            return self.read(path, self.root)

    def _cut(self, document: Document) -> Cut:
        model = self.model
        if self._window is None:
            self._window = window_of(model)
        with self.timed("chunk"):
            chunks = Chunks(document, self.policy, token_offsets=model.token_offsets, window=self._window)
            if not chunks:
                raise DocumentError(document.doc_id, "the file is empty: a reader of its page sees no text", "empty")
            return document if document.links is not None else replace(document, links=links_of(document)), chunks

    @property
    def group(self) -> int:
        """How many chunks are embedded before they are written."""
        return _BATCHES_BEFORE_WRITING * int(getattr(self.model, "batch_size", BATCH_CHUNKS))

    @property
    def model(self) -> Embedder:
        """The embedder, which has to be there by now."""
        assert self.embedder is not None  # noqa: S101 - the callers have set it
        return self.embedder

    @contextmanager
    def reporting(self, source: Path | str) -> Iterator[None]:
        """Report what goes wrong with a file or a document, and continue."""
        checkpoint()
        try:
            yield
        except DocumentError as error:
            self.fail(Failure(error.doc_id, error.status, error.reason))
        except Exception as error:
            # A defect in a parser must not stop the other documents; the report and the log have the cause.
            self.log.exception("%s could not be read", source)
            doc_id = source if isinstance(source, str) else document_id(source, self.root, collection=self.collection)
            self.fail(Failure(doc_id, "failed", f"{type(error).__name__}: {error}"))

    def fail(self, failure: Failure) -> None:
        """Put a document that cannot be used into the report and the log."""
        # The message of a parser or a provider may contain what no file can store.
        failure = failure._replace(reason=without_surrogates(failure.reason))
        self.report.failures.append(failure)
        self.log.warning("%s: %s: %s", failure.status, failure.doc_id, failure.reason)

    def embed(self, documents: list[Document], chunks: list[Chunk]) -> tuple[list[Document], list[Chunk], Vectors]:
        """Embed the chunks; a document with a text that the model cannot take is left out and reported.

        Where the provider is down, only the documents are returned that were finished, and ``outage`` says why.
        """
        made: dict[str, Vectors] = {}
        try:
            vectors = self._vectors(chunks, made)
            return documents, self._flagged(chunks), vectors
        except FAILURES as error:
            together = error
            # A text is at fault only where the model still accepts another one.
            self._check_outage()
        kept, kept_chunks, parts = [], [], []
        for document in documents:
            own = [c for c in chunks if c.doc_id == document.doc_id]
            try:
                parts.append(self._vectors(own, made))
            except FAILURES as error:
                if self.outage is None:
                    self._check_outage()
                if self.outage is None:
                    self.fail(Failure(document.doc_id, "failed", f"it could not be embedded: {error}"))
                continue
            kept.append(document)
            kept_chunks.extend(own)
        if len(kept) == len(documents) > 1:
            self.note_single(str(together))
        vectors = np.concatenate(parts) if parts else np.empty((0, self.model.dimensions), dtype=np.float32)
        return kept, self._flagged(kept_chunks), vectors

    def note_single(self, why: str) -> None:
        """Report, once, that the provider fails on several documents at a time, and not on each of them."""
        if not self.single:
            self.single = why
            note = f"Documents were sent one by one, in many more requests, since the provider fails on several: {why}"
            self.report.warnings.append(note)
            self.log.warning("%s", note)

    def stop_if_down(self, then: str) -> None:
        """Raise ProviderError with the next step, and with the report, where the provider has failed."""
        if self.outage is not None:
            error = ProviderError(f"{self.outage} {then}")
            error.report = self.report
            raise error from self.outage

    def report_unfinished(self, doc_ids: Iterable[str]) -> None:
        """Report documents as failed by the provider's failure."""
        for doc_id in doc_ids:
            self.fail(Failure(doc_id, "failed", "it was not embedded, because the provider stopped answering"))

    def _check_outage(self) -> None:
        try:
            self.probe()
        except FAILURES as error:
            self.outage = error
            self.log.error("The provider has failed, embedding stops: %s", error)

    def probe(self) -> ModelIdentity:
        """Embed the probe text; raises ProviderError where the provider is down."""
        from sqlrag.embedders import probe

        return probe(self.model)

    def _vectors(self, chunks: Sequence[Chunk], made: dict[str, Vectors]) -> Vectors:
        """Return the vectors of chunks; what the model makes is kept in ``made``, by text, also before an error."""
        from sqlrag.embedders import embed_texts

        texts = [self._text(c) for c in chunks]
        unique = {text: one.headed_text(self.policy.include_headers) for text, one in zip(texts, chunks, strict=True)}
        found = self.known(unique)
        if self.kept is not None:
            again, cut_off = self.kept.known([text for text in unique if text not in found])
            found.update(again)
            self.cut_off.update(cut_off)
        missing = [text for text in unique if text not in found and text not in made]
        if missing and self.outage is not None:
            raise self.outage
        times = Counter(texts)

        def keep(positions: list[int], vectors: Vectors) -> None:
            self.report.embedding_calls += 1
            self.report.embedded += len(positions)
            rows = unit_vectors(vectors, self.model.dimensions)
            their_texts = [missing[position] for position in positions]
            made.update(zip(their_texts, rows, strict=True))
            if self.kept is not None and len(missing) > self.kept.few:
                self.kept.keep(their_texts, rows, self.cut_off)
            show_embedded(self.bar, their_texts, times)

        def cut(position: int, characters: int) -> None:
            self.cut_off[missing[position]] = characters

        embed_texts(self.model, missing, kind="document", made=keep, cut=cut)
        known = [text for text in texts if text in found]
        self.report.reused += len(known)
        self.bar.known(len(known), sum(map(len, known)))
        return np.array([found[text] if text in found else made[text] for text in texts], np.float32).reshape(
            len(texts), self.model.dimensions
        )

    def _text(self, one: Chunk) -> str:
        return one.embedding_text(self.policy.include_headers)

    def _flagged(self, chunks: list[Chunk]) -> list[Chunk]:
        """Return the chunks, those with ``truncated`` in their metadata whose text was too long for the model."""
        if not self.cut_off:
            return chunks
        flagged = []
        for one in chunks:
            characters = self.cut_off.get(self._text(one))
            if characters is not None:
                note = (
                    f"{one.node_id}: the model takes no more than the first {characters} of {len(self._text(one))} "
                    "characters, so the vector represents those alone."
                )
                self.report.warnings.append(note)
                self.log.warning("%s", note)
                one = replace(one, metadata={**one.metadata, "truncated": True})
            flagged.append(one)
        return flagged

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time of the block to a stage of the report."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.report.seconds[stage] = self.report.seconds.get(stage, 0.0) + time.perf_counter() - began


# Bytes of files that are read before they are asked for: their texts are in memory besides. A larger file waits.
_AHEAD_BYTES = 4_000_000

# Files that are read in one go, so that threads do not wait for each other at every note.
_AHEAD_FILES = 32

_Made = TypeVar("_Made")


class _Ahead:
    """Reads and cuts files in a thread, for the ``with`` block, while the caller embeds and writes those before them.

    What they raise is raised where the result is asked for, which has to be in the order of the files.
    """

    def __init__(self, files: Iterable[Path], read: Callable[[Path], Document], cut: Callable[[Document], Cut]) -> None:
        self._parcels = _parcels(files)
        self._next = next(self._parcels, None)
        self._read, self._cut = read, cut
        self._waiting: deque[tuple[int, Future[list[_Read]]]] = deque()
        self._bytes = 0
        self._results: deque[_Read] = deque()
        self._of_last: Cut | Exception | None = None
        self._work, self._context = Work(), copy_context()

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="sqlrag-read")
        return self

    def __exit__(self, *error: object) -> None:
        self._work.stop()
        self._pool.shutdown(cancel_futures=True)

    def document(self, path: Path) -> Document:
        """Return the document of the next file."""
        while not self._results:
            self._go_on()
            size, future = self._waiting.popleft()
            while not wait([future], 0.1).done:
                checkpoint()
            self._results.extend(future.result())
            self._bytes -= size
        read, document, self._of_last = self._results.popleft()
        assert read == path  # noqa: S101 - the caller's part of the contract
        return _result(document)

    def cut(self) -> Cut:
        """Return the document that was asked for last with its chunks."""
        cut, self._of_last = self._of_last, None
        assert cut is not None  # noqa: S101 - as above
        return _result(cut)

    def _go_on(self) -> None:
        """Have the thread do what may be done ahead."""
        while self._next is not None:
            size, files = self._next
            if self._waiting and self._bytes + size > _AHEAD_BYTES:
                return
            self._waiting.append((size, self._pool.submit(self._context.run, self._made, files)))
            self._bytes += size
            self._next = next(self._parcels, None)

    def _made(self, files: Sequence[Path]) -> list[_Read]:
        with self._work.under_way():
            return [self._one(path) for path in files]

    def _one(self, path: Path) -> _Read:
        checkpoint()
        document = None
        try:
            document = self._read(path)
            return _Read(path, document, self._cut(document))
        except Exception as error:
            return _Read(path, error if document is None else document, error)


class _Read(NamedTuple):
    """What became of a file: its document and that with its chunks, or what was raised instead."""

    path: Path
    document: Document | Exception
    cut: Cut | Exception


def _result(made: _Made | Exception) -> _Made:
    if isinstance(made, Exception):
        raise made
    return made


def _parcels(files: Iterable[Path]) -> Iterator[tuple[int, list[Path]]]:
    """Yield the files in groups with their bytes, each group a small part of what is read ahead or one large file."""
    parcel: list[Path] = []
    total = 0
    for file in files:
        size = 0
        with suppress(OSError):  # it is reported when it is asked for
            size = file.stat().st_size
        if parcel and (len(parcel) == _AHEAD_FILES or total + size > _AHEAD_BYTES // 16):
            yield total, parcel
            parcel, total = [], 0
        parcel.append(file)
        total += size
    if parcel:
        yield total, parcel


def in_batches(cuts: Iterable[Cut], run: Run | None = None) -> Iterator[tuple[list[Document], list[Chunk]]]:
    """Yield whole documents with their chunks, about BATCH_CHUNKS at a time, in their order.

    With a ``run`` there are fewer where its provider takes few at once: what is finished is written sooner.
    """
    documents: list[Document] = []
    chunks: list[Chunk] = []
    for document, own in cuts:
        documents.append(document)
        chunks.extend(own)
        if len(chunks) >= (BATCH_CHUNKS if run is None else min(BATCH_CHUNKS, run.group)):
            yield documents, chunks
            documents, chunks = [], []
    if documents:
        yield documents, chunks


class Part(NamedTuple):
    """Documents with their chunks, or one long document with some of its chunks.

    ``shown_end`` is where what a reader sees of a long document ends, None where that is its last chunk. It ``begins``
    with the first part and is ``complete`` with the last.
    """

    documents: list[Document]
    chunks: list[Chunk]
    shown_end: int | None = None
    begins: bool = True
    complete: bool = True


def in_parts(cuts: Iterable[Cut], run: Run) -> Iterator[Part]:
    """Yield documents with their chunks as :func:`in_batches` does, but a long one alone, in parts."""
    most = min(BATCH_CHUNKS, run.group)
    for is_long, some in groupby(cuts, lambda cut: len(cut[1]) > most):
        if not is_long:
            yield from (Part(documents, chunks) for documents, chunks in in_batches(some, run))
            continue
        for document, own in some:
            size = min(most, _PART_CHUNKS)
            end = end_of_shown(document.text, document.body_start, document.mime, own[-1].i_end)
            for kept in (page_of, references_of):  # they may be a large part of the memory
                kept.cache_clear()
            for start in range(0, len(own), size):
                chunks = list(own[start : start + size])
                yield Part([document], chunks, end, not start, start + size >= len(own))


def cost(chunks: Sequence[Chunk]) -> int:
    """Return the characters of chunks, to which the time of embedding them is nearly proportional."""
    return chunks.characters if isinstance(chunks, Chunks) else sum(len(one.content) for one in chunks)


def show_embedded(bar: Bar, texts: Sequence[str], times: Counter[str]) -> None:
    """Move a bar by the chunks that have these texts; ``times`` says how many each of them has."""
    bar.under_way(sum(times[text] for text in texts), sum(times[text] * len(text) for text in texts))


def find_duplicates(checksums: dict[str, str], first: Iterable[str] = ()) -> list[Duplicate]:
    """Return the documents whose checksum another one has, in order.

    ``checksums`` are by doc_id. Of equal ones the first in ``first``, else the first of all, is not a duplicate.
    """
    kept: dict[str, str] = {}
    for doc_id in (*first, *checksums):
        kept.setdefault(checksums[doc_id], doc_id)
    return [Duplicate(doc_id, kept[checksum]) for doc_id, checksum in checksums.items() if kept[checksum] != doc_id]


def default_overlap(chunk_size: int, chunk_unit: str) -> int:
    """Return the default overlap of chunks."""
    return chunk_size // (5 if chunk_unit == "chars" else 8) if isinstance(chunk_size, int) else 0


def checked_collection(collection: str, max_bytes: int) -> str:
    """Return the name of a collection as it is stored; raise InputError for an invalid one, or an invalid limit."""
    if (
        not isinstance(collection, str)
        or not collection.strip()
        or set(collection) & set(":#/")
        or not collection.isprintable()
    ):
        raise InputError(f"collection must be a printable name without ':', '#' and '/', not {collection!r}.")
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1:
        raise InputError(f"max_bytes must be a whole number of 1 or more, not {max_bytes!r}.")
    return clean_name(collection)


def check_types(
    input_dir: object,
    patterns: object,
    pdf_extractor: object,
    progress: object,
    model_name: object,
    *,
    ignore: object = None,
    **flags: object,
) -> None:
    """Raise InputError for values of a wrong type; None is accepted where there is a default."""
    arguments.path("input_dir", input_dir)
    refuse_address(input_dir)
    for name, given in (("patterns", patterns), ("ignore", ignore)):
        for pattern in [] if given is None or isinstance(given, str) else arguments.items(name, given, "['*.md']"):
            arguments.text(name, pattern)
    if pdf_extractor is not None and not callable(pdf_extractor):
        raise InputError(f"pdf_extractor must be a function, not {arguments.shown(pdf_extractor)}.")
    arguments.choice("progress", progress, ("auto", "on", "off"))
    arguments.texts(embed_model_name=model_name)
    for name, value in flags.items():
        if value is not None:
            arguments.flag(name, value)


def window_of(embedder: Embedder) -> int:
    """Return how many tokens of a chunk the model can take, beside its special tokens and the passage prefix."""
    return embedder.max_tokens - embedder.special_tokens - len(embedder.token_offsets(embedder.passage_prefix))


def fit_to_window(
    policy: ChunkPolicy, embedder: Embedder, report: Report | None = None, *, is_new: bool = False, stacklevel: int = 3
) -> ChunkPolicy:
    """Lower the chunk size to the model's window; with a report warn once, at the caller so many frames above.

    In a file that ``is_new`` the default is no wish of anybody, and lowered without a word.
    """
    window = window_of(embedder)
    if policy.chunk_unit != "tokens" or policy.chunk_size <= window:
        return policy
    if report is not None and not (is_new and policy.chunk_size == ChunkPolicy().chunk_size):
        note = f"chunk_size {policy.chunk_size} is lowered to {window} tokens, the window of {embedder.model_name}."
        report.warnings.append(note)
        warnings.warn(note, stacklevel=stacklevel)
    return replace(policy, chunk_size=window, chunk_overlap=min(policy.chunk_overlap, window // 8))


def model_of_new_file(
    model_name: str | None, provider: str, notes: list[str], *, stacklevel: int, **options: str | None
) -> Embedder:
    """Load the model of a file that is made; where none is named and the default cannot be had, that of ``offline``.

    A note and a warning name it, at the caller that is so many frames above.
    """
    from sqlrag.embedders import DEFAULT_MODEL, load_embedder
    from sqlrag.embedders.weights import MINILM, bundle_is_installed

    try:
        return load_embedder(model_name, provider=provider, **options)  # type: ignore[arg-type]
    except ModelUnavailableError:
        if model_name is not None or provider not in ("auto", "onnx", "openvino") or not bundle_is_installed():
            raise
    note = (
        f"The model is {MINILM}, which is installed: the default, {DEFAULT_MODEL}, is not in the cache and cannot be "
        "downloaded."
    )
    notes.append(note)
    warnings.warn(note, stacklevel=stacklevel)
    return load_embedder(MINILM, provider=provider)


def check_suffix(output: Path) -> None:
    """Raise InputError where a new file would have the name of a document or of another format."""
    if not output.exists() and output.suffix.lower() in (*readers(), *EXCHANGED):
        raise InputError(
            f"The output {output} ends in {output.suffix}, as files of another kind do. Name it otherwise, such as "
            f"{output.with_suffix('.duckdb')}."
        )


def nothing_to_read(input_dir: object, skipped: Sequence[Any], patterns: Sequence[str] | None = None) -> str:
    """Return why a folder has no file to read."""
    why = "; ".join(f"{reason} ({count})" for reason, count in reasons(list(skipped)))
    tail = f"{counted(len(skipped), 'file was', 'files were')} skipped: {why}." if skipped else "It is empty."
    if patterns and any(file.reason == NO_PATTERN for file in skipped):
        named = ", ".join(map(repr, [patterns] if isinstance(patterns, str) else patterns))
        return f"No file to read in {input_dir} matches the pattern {named}. {tail}"
    *suffixes, last = readers()
    return f"There is no {', '.join(suffixes)} or {last} file to read in {input_dir}. {tail}"
