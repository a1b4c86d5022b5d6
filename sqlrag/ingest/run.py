"""The state of one run of the pipeline, and what building and updating share: read, chunk, embed, in batches."""

from __future__ import annotations

import logging
import time
import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlrag import options
from sqlrag.embedders.base import without_surrogates
from sqlrag.errors import DocumentError, InputError, ProviderError
from sqlrag.ingest.chunking import chunk
from sqlrag.ingest.reading import document_id, read_document
from sqlrag.ingest.report import Duplicate, Failure, reasons
from sqlrag.measuring import Measure, count
from sqlrag.network import refuse_address
from sqlrag.store.metadata import now
from sqlrag.store.runs import RunRow, new_run_id
from sqlrag.store.vectors import unit_vectors
from sqlrag.types import ChunkPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from sqlrag.ingest.report import Report
    from sqlrag.types import Chunk, Document, Embedder, ModelIdentity, Progress, Vectors

    Cut = tuple[Document, list[Chunk]]
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter  # Python 3.10 cannot subscript it

# Chunks that are held in memory, embedded and written together.
BATCH_CHUNKS = 2048
_BATCHES_BEFORE_WRITING = 16


class RunLog(_Adapter):
    """Puts the id of the run before each message, and into the record as ``run_id``."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Return the message and its arguments with the id."""
        extra = dict(self.extra or {})
        return f"[{extra['run_id']}] {msg}", {**kwargs, "extra": extra}


class Run:
    """One run: what it reads, by which policy and model, what it has counted, and the id that names it.

    ``policy`` and ``embedder`` are set by the caller before anything is cut or embedded. ``known`` returns vectors
    that need not be made again, by the text that is embedded.
    """

    def __init__(self, kind: str, root: Path, collection: str, report: Report) -> None:
        self.kind = kind
        self.root = root
        # Bytes of a name that are no UTF-8 cannot be stored.
        self.input_dir = without_surrogates(str(root.resolve()))
        self.collection = collection
        self.report = report
        self.started = now()
        self.id = report.run_id = new_run_id(self.started)
        self.log = RunLog(logging.getLogger("sqlrag.ingest"), {"run_id": self.id})
        self.policy = ChunkPolicy()
        self.embedder: Embedder | None = None
        self.read: Callable[[Path, Path], Document] = read_document
        self.known: Callable[[Sequence[str]], dict[str, Vectors]] = lambda _: {}
        # Why the provider is given up, where it is.
        self.outage: ProviderError | None = None
        self._window: int | None = None
        # Texts that were too long for the model, with the characters of them that were embedded.
        self.cut_off: dict[str, int] = {}
        self._measure = Measure("ingest", attributes={"sqlrag.run_id": self.id})

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

    def at_work(self, files: Sequence[Path], beside: Path) -> AbstractContextManager[object]:  # noqa: ARG002
        """Return a block in which the files can be parsed; a run with workers has them begin here.

        What they make may lie in files whose names begin with that of ``beside``.
        """
        return nullcontext()

    def parse(self, path: Path) -> Document | None:
        """Read one file; what cannot be used goes into the report."""
        with self.told(path), self.timed("read"):
            document = self.read(path, self.root)
            self.report.warnings.extend(document.warnings)
            for warning in document.warnings:
                self.log.warning("%s", warning)
            return document
        return None

    def cut(self, document: Document) -> list[Chunk] | None:
        """Chunk one document; one that cannot be cut goes into the report."""
        model = self.model
        if self._window is None:
            self._window = window_of(model)
        with self.told(document.doc_id), self.timed("chunk"):
            return chunk(document, self.policy, token_offsets=model.token_offsets, window=self._window)
        return None

    @property
    def group(self) -> int:
        """How many chunks are embedded before they are written."""
        return _BATCHES_BEFORE_WRITING * int(getattr(self.model, "batch_size", BATCH_CHUNKS))

    @property
    def model(self) -> Embedder:
        """The embedder, which has to be there by now."""
        assert self.embedder is not None  # noqa: S101 - the callers see to it
        return self.embedder

    @contextmanager
    def told(self, source: Path | str) -> Iterator[None]:
        """Put what goes wrong with a file or a document into the report, and go on."""
        try:
            yield
        except DocumentError as error:
            self.fail(Failure(error.doc_id, error.status, error.reason))
        except Exception as error:
            # A defect in a parser must not cost the other documents; the report and the log keep the cause.
            self.log.exception("%s could not be read", source)
            doc_id = source if isinstance(source, str) else document_id(source, self.root, collection=self.collection)
            self.fail(Failure(doc_id, "failed", f"{type(error).__name__}: {error}"))

    def fail(self, failure: Failure) -> None:
        """Put a document that cannot be used into the report and the log."""
        # The words of a parser or a provider may hold what no file can.
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
        except ProviderError:
            # A text is at fault only where the model still takes another one.
            self._look_for_outage()
        kept, kept_chunks, parts = [], [], []
        for document in documents:
            own = [c for c in chunks if c.doc_id == document.doc_id]
            try:
                parts.append(self._vectors(own, made))
            except ProviderError as error:
                if self.outage is None:
                    self._look_for_outage()
                if self.outage is None:
                    self.fail(Failure(document.doc_id, "failed", f"it could not be embedded: {error}"))
                continue
            kept.append(document)
            kept_chunks.extend(own)
        vectors = np.concatenate(parts) if parts else np.empty((0, self.model.dimensions), dtype=np.float32)
        return kept, self._flagged(kept_chunks), vectors

    def stop_if_down(self, then: str) -> None:
        """Raise ProviderError with the way on where the provider is given up."""
        if self.outage is not None:
            raise ProviderError(f"{self.outage} {then}") from self.outage

    def _look_for_outage(self) -> None:
        try:
            self.probe()
        except ProviderError as error:
            self.outage = error
            self.log.error("The provider is given up: %s", error)

    def probe(self) -> ModelIdentity:
        """Embed the probe text; raises ProviderError where the provider is down."""
        from sqlrag.embedders import probe

        return probe(self.model)

    def _vectors(self, chunks: Sequence[Chunk], made: dict[str, Vectors]) -> Vectors:
        """Return the vectors of chunks; what the model makes is kept in ``made``, by text, also before an error."""
        from sqlrag.embedders import embed_texts

        texts = [self._text(c) for c in chunks]
        unique = list(dict.fromkeys(texts))
        found = self.known(unique)
        missing = [text for text in unique if text not in found and text not in made]
        if missing and self.outage is not None:
            raise self.outage

        def keep(positions: list[int], vectors: Vectors) -> None:
            self.report.embedding_calls += 1
            self.report.embedded += len(positions)
            rows = unit_vectors(vectors, self.model.dimensions)
            made.update(zip((missing[position] for position in positions), rows, strict=True))

        def cut(position: int, characters: int) -> None:
            self.cut_off[missing[position]] = characters

        embed_texts(self.model, missing, kind="document", made=keep, cut=cut)
        self.report.reused += sum(text in found for text in texts)
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
                    "characters, so the vector stands for those alone."
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


def find_duplicates(checksums: dict[str, str], first: Iterable[str] = ()) -> list[Duplicate]:
    """Return the documents whose checksum another one has, in order.

    ``checksums`` are by doc_id. Of equal ones the first in ``first``, else the first of all, is no duplicate.
    """
    kept: dict[str, str] = {}
    for doc_id in (*first, *checksums):
        kept.setdefault(checksums[doc_id], doc_id)
    return [Duplicate(doc_id, kept[checksum]) for doc_id, checksum in checksums.items() if kept[checksum] != doc_id]


def default_overlap(chunk_size: int, chunk_unit: str) -> int:
    """Return what is repeated of a chunk where the caller does not say."""
    return chunk_size // (5 if chunk_unit == "chars" else 8) if isinstance(chunk_size, int) else 0


def check_options(collection: str, max_bytes: int) -> None:
    """Raise InputError for a name or a limit that cannot be."""
    if (
        not isinstance(collection, str)
        or not collection.strip()
        or set(collection) & set(":#/")
        or not collection.isprintable()
    ):
        raise InputError(f"collection must be a printable name without ':', '#' and '/', not {collection!r}.")
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1:
        raise InputError(f"max_bytes must be a whole number of 1 or more, not {max_bytes!r}.")


def check_types(
    input_dir: object, patterns: object, pdf_extractor: object, progress: object, model_name: object, **flags: object
) -> None:
    """Raise InputError for what is of a wrong type; None is taken for everything that has a default."""
    options.path("input_dir", input_dir)
    refuse_address(input_dir)
    for pattern in (
        [] if patterns is None or isinstance(patterns, str) else options.items("patterns", patterns, "['*.md']")
    ):
        options.text("patterns", pattern)
    if pdf_extractor is not None and not callable(pdf_extractor):
        raise InputError(f"pdf_extractor must be a function, not {options.shown(pdf_extractor)}.")
    options.choice("progress", progress, ("auto", "on", "off"))
    options.texts(embed_model_name=model_name)
    for name, value in flags.items():
        if value is not None:
            options.flag(name, value)


def window_of(embedder: Embedder) -> int:
    """Return how many tokens of a chunk the model can take, beside its special tokens and the passage prefix."""
    return embedder.max_tokens - embedder.special_tokens - len(embedder.token_offsets(embedder.passage_prefix))


def fit_to_window(policy: ChunkPolicy, embedder: Embedder, report: Report, *, stacklevel: int = 3) -> ChunkPolicy:
    """Lower the chunk size to the model's window, and say so once, at the caller that is so many frames above."""
    window = window_of(embedder)
    if policy.chunk_unit != "tokens" or policy.chunk_size <= window:
        return policy
    note = f"chunk_size {policy.chunk_size} is lowered to {window} tokens, the window of {embedder.model_name}."
    report.warnings.append(note)
    warnings.warn(note, stacklevel=stacklevel)
    return replace(policy, chunk_size=window, chunk_overlap=min(policy.chunk_overlap, window // 8))


def nothing_to_read(input_dir: object, skipped: Sequence[Any]) -> str:
    """Say why a folder has no file to read."""
    why = "; ".join(f"{count} {reason}" for reason, count in reasons(list(skipped)))
    tail = f"{len(skipped)} files were skipped: {why}." if skipped else "It is empty."
    return f"There is no .md, .markdown, .txt or .pdf file to read in {input_dir}. {tail}"


def bars(verbose: bool, progress: Progress) -> bool | None:
    """Return tqdm's ``disable``: None hides bars where the output is no terminal."""
    if progress == "auto":
        return None if verbose else True
    return progress == "off"
