"""From a folder of documents to a store file: read, chunk, embed, store, index."""

from __future__ import annotations

import json
import logging
import time
import warnings
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlrag.embedders.base import without_surrogates
from sqlrag.errors import (
    DocumentError,
    InputError,
    ModelMismatchError,
    NotFoundError,
    ProviderError,
)
from sqlrag.ingest.chunking import check_policy, chunk
from sqlrag.ingest.output import new_file
from sqlrag.ingest.reading import MAX_BYTES, document_id, find_files, read_document
from sqlrag.ingest.report import Failure, Prepared, Report, reasons
from sqlrag.store import lexical, writing
from sqlrag.store.database import Database, check_replaceable
from sqlrag.store.files import check_memory_limit, check_output
from sqlrag.store.metadata import initialize, now, refresh_counts
from sqlrag.store.vectors import unit_vectors
from sqlrag.types import DEFAULT_COLLECTION, ChunkPolicy

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from sqlrag.types import Chunk, ChunkUnit, Document, Embedder, ModelIdentity, Progress, Vectors

log = logging.getLogger("sqlrag.ingest")

# Chunks that are held in memory, embedded and written together.
BATCH_CHUNKS = 2048


def prepare_embeddings(
    input_dir: str | os.PathLike[str],
    output_db: str | os.PathLike[str],
    chunk_size: int = 512,
    embed_model_name: str | None = None,
    embed_dim: int | None = None,
    embedding_provider: str = "auto",
    api_key: str | None = None,
    verbose: bool = True,
    use_markdown_chunking: bool = True,
    include_headers_in_chunks: bool = True,
    header_weight: float = 3,
    overwrite: bool = False,
    *,
    chunk_overlap: int | None = None,
    chunk_unit: ChunkUnit = "tokens",
    collection: str = DEFAULT_COLLECTION,
    stemmer: str = lexical.DEFAULT_STEMMER,
    patterns: Sequence[str] | None = None,
    max_bytes: int = MAX_BYTES,
    pdf_extractor: Callable[[bytes], list[str]] | None = None,
    embedder: Embedder | None = None,
    llama_index_compatible: bool = True,
    memory_limit: str | None = None,
    progress: Progress = "auto",
) -> Prepared:
    """Read a folder of .md, .markdown, .txt and .pdf files into one searchable DuckDB file.

    One unreadable document never stops the run: it is in the report and in the table ``ingest_failures``. The file is
    built beside its place and renamed at the end, so that it is there whole or not at all. The same folder gives the
    same rows, wherever it lies.

    Parameters
    ----------
    input_dir
        The folder, searched to any depth.
    output_db
        The file to make.
    chunk_size
        The longest chunk, in ``chunk_unit``. Tokens are those of the embedding model; more than its window takes is
        lowered to the window, with a warning.
    embed_model_name
        A model's name on the Hugging Face hub or a local folder. None: ``BAAI/bge-small-en-v1.5``.
    embed_dim
        Only to make sure: another number of dimensions than the model has is refused.
    embedding_provider
        "auto" (ONNX), or the name of a provider.
    api_key
        Of a provider that is a service.
    verbose
        Show progress bars in a terminal or notebook.
    use_markdown_chunking
        Cut Markdown at its headings first; False: windows only.
    include_headers_in_chunks
        Embed the heading path before the text of a chunk. The stored text never holds it.
    header_weight
        How much a word in the heading path counts beside one in the text, in the lexical leg; 0 or more.
    overwrite
        Replace ``output_db`` if it is a store; a file that is none is never replaced.
    chunk_overlap
        How much of a chunk is repeated in the next one when a section is longer than ``chunk_size``; below
        ``chunk_size``. None: an eighth of it (a fifth for "chars").
    chunk_unit
        "tokens" or "chars".
    collection
        The name under which these documents can be searched alone.
    stemmer
        A Snowball stemmer such as "porter", "english", "german" or "russian", or "none".
    patterns
        Read only files whose name or relative path matches one of these, such as ``["*.md", "guides/*"]``.
    max_bytes
        A larger file is not read.
    pdf_extractor
        ``(bytes) -> list of str``, one a page, in place of pypdf.
    embedder
        An embedder of your own, in place of model name and provider.
    llama_index_compatible
        Keep in ``metadata_`` what llama-index needs to open the rows.
    memory_limit
        How much memory DuckDB may use, such as "2GB"; by default four fifths of the machine's.
    progress
        "auto": bars if ``verbose`` and the output is a terminal or notebook; "on"; "off".

    Returns
    -------
    Prepared
        ``.path`` and ``.report``.

    Raises
    ------
    InputError
        An option is out of its range, or ``input_dir`` is a file.
    NotFoundError
        ``input_dir`` does not exist or holds no file that can be used; the message says which and why.
    StoreExistsError, NotAStoreError, StoreLockedError, StoreError
        The output cannot be made or replaced.
    ModelUnavailableError, MissingExtraError, ModelMismatchError, ProviderError
        The model cannot be loaded, or does not do what it says.
    """
    policy = ChunkPolicy(
        strategy="markdown" if use_markdown_chunking else "size",
        chunk_size=chunk_size,
        chunk_overlap=_overlap(chunk_size, chunk_unit) if chunk_overlap is None else chunk_overlap,
        chunk_unit=chunk_unit,
        include_headers=include_headers_in_chunks,
    )
    check_policy(policy)
    _check_options(header_weight, collection, api_key, max_bytes)
    lexical.check_stemmer(stemmer)
    check_memory_limit(memory_limit)
    output = check_output(output_db, overwrite=overwrite)
    check_replaceable(output)
    files, skipped = find_files(input_dir, patterns=patterns)
    if not files:
        raise NotFoundError(_nothing_to_read(input_dir, skipped))

    model = embedder or _load_embedder(embed_model_name, embedding_provider)
    if embed_dim not in (None, model.dimensions):
        raise ModelMismatchError(
            f"{model.model_name} makes vectors of {model.dimensions} dimensions, not {embed_dim} (embed_dim)."
        )
    report = Report(files=len(files), skipped=list(skipped))
    policy = _fit_to_window(policy, model, report)
    build = _Build(Path(input_dir).expanduser(), collection, policy, model, report, llama_index_compatible)
    build.read = lambda path, root: read_document(
        path, root, collection=collection, max_bytes=max_bytes, pdf_extractor=pdf_extractor
    )
    with new_file(output, overwrite=overwrite) as temporary, Database.create(temporary, model.dimensions) as database:
        database.limit_memory(memory_limit)
        build.run(database, files, header_weight, stemmer, _bars(verbose, progress))
    return Prepared(output, report)


class _Build:
    """The state of one run."""

    def __init__(
        self,
        root: Path,
        collection: str,
        policy: ChunkPolicy,
        embedder: Embedder,
        report: Report,
        llama_index_compatible: bool,
    ) -> None:
        self.root = root
        # Bytes of a name that are no UTF-8 cannot be stored.
        self._input_dir = without_surrogates(str(root.resolve()))
        self.collection = collection
        self.policy = policy
        self.embedder = embedder
        self.report = report
        self.llama_index_compatible = llama_index_compatible
        self.read: Callable[[Path, Path], Document] = read_document

    def run(
        self, database: Database, files: Sequence[Path], header_weight: float, stemmer: str, bars: bool | None
    ) -> None:
        """Fill an empty database."""
        from tqdm.auto import tqdm

        started, began = now(), time.perf_counter()
        initialize(database, self._probe(), self.policy, heading_weight=header_weight, stemmer=stemmer)
        with tqdm(total=len(files), desc="documents", unit="file", disable=bars, leave=False) as bar:
            for documents, chunks in self._batches(files, bar.update):
                with self._timed("embed"):
                    documents, chunks, vectors = self._embed(documents, chunks)
                with self._timed("store"), database.transaction() as con:
                    writing.insert_rows(
                        con, documents, chunks, vectors, llama_index_compatible=self.llama_index_compatible
                    )
                self.report.documents += len(documents)
                self.report.chunks += len(chunks)
        if not self.report.documents:
            raise NotFoundError(_nothing_usable(self._input_dir, self.report))
        with self._timed("index"), database.transaction() as con:
            lexical.add_chunks(con, 0, stemmer)
            refresh_counts(con)
            self._log(con, started)
        database.checkpoint()
        log.info("%s: %s, %.1f s", self.root, self.report, time.perf_counter() - began)

    def _batches(
        self, files: Sequence[Path], done: Callable[[int], Any]
    ) -> Iterator[tuple[list[Document], list[Chunk]]]:
        """Yield whole documents with their chunks, about BATCH_CHUNKS at a time, in the order of the files."""
        documents: list[Document] = []
        chunks: list[Chunk] = []
        for path in files:
            read = self._read(path)
            done(1)
            if read is None:
                continue
            documents.append(read[0])
            chunks.extend(read[1])
            if len(chunks) >= BATCH_CHUNKS:
                yield documents, chunks
                documents, chunks = [], []
        if documents:
            yield documents, chunks

    def _read(self, path: Path) -> tuple[Document, list[Chunk]] | None:
        """Read and chunk one file; what cannot be used goes into the report."""
        try:
            with self._timed("read"):
                document = self.read(path, self.root)
            with self._timed("chunk"):
                chunks = chunk(
                    document, self.policy, token_offsets=self.embedder.token_offsets, window=_window(self.embedder)
                )
        except DocumentError as error:
            self._fail(Failure(error.doc_id, error.status, error.reason))
            return None
        except Exception as error:
            # A defect in a parser must not cost the other documents; the report and the log keep the cause.
            log.exception("%s could not be read", path)
            doc_id = document_id(path, self.root, collection=self.collection)
            self._fail(Failure(doc_id, "failed", f"{type(error).__name__}: {error}"))
            return None
        self.report.warnings.extend(document.warnings)
        for warning in document.warnings:
            log.warning("%s", warning)
        return document, chunks

    def _fail(self, failure: Failure) -> None:
        # The words of a parser or a provider may hold what no file can.
        failure = failure._replace(reason=without_surrogates(failure.reason))
        self.report.failures.append(failure)
        log.warning("%s: %s: %s", failure.status, failure.doc_id, failure.reason)

    def _embed(self, documents: list[Document], chunks: list[Chunk]) -> tuple[list[Document], list[Chunk], Vectors]:
        """Embed the chunks; a document with a text that the model cannot take is left out and reported."""
        try:
            return documents, chunks, self._vectors(chunks)
        except ProviderError:
            # A text is at fault only where the model still takes another one.
            self._probe()
        kept, kept_chunks, parts = [], [], []
        for document in documents:
            own = [c for c in chunks if c.doc_id == document.doc_id]
            try:
                parts.append(self._vectors(own))
            except ProviderError as error:
                self._fail(Failure(document.doc_id, "failed", f"it could not be embedded: {error}"))
                continue
            kept.append(document)
            kept_chunks.extend(own)
        if not kept:
            self._probe()
            return [], [], np.empty((0, self.embedder.dimensions), dtype=np.float32)
        return kept, kept_chunks, np.concatenate(parts)

    def _probe(self) -> ModelIdentity:
        """Embed the probe text; raises ProviderError where the provider is down."""
        from sqlrag.embedders import probe

        return probe(self.embedder)

    def _vectors(self, chunks: Sequence[Chunk]) -> Vectors:
        from sqlrag.embedders import embed_texts

        texts = [c.embedding_text(self.policy.include_headers) for c in chunks]
        unique = {text: position for position, text in enumerate(dict.fromkeys(texts))}
        vectors = embed_texts(self.embedder, list(unique), kind="document")
        self.report.embedded += len(unique)
        rows = unit_vectors(vectors, self.embedder.dimensions)
        return rows[[unique[text] for text in texts]]

    def _log(self, con: Any, started: Any) -> None:
        """Write the run's row and its failures."""
        report = self.report
        finished = now()
        if report.failures:
            con.executemany(
                "INSERT INTO ingest_failures VALUES ($1, $2, $3, $4)",
                [[*failure, finished] for failure in report.failures],
            )
        con.execute("INSERT INTO collections VALUES ($1, $2, $3)", [self.collection, self._input_dir, started])
        con.execute(
            "INSERT INTO ingest_log VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            [
                started.isoformat(),
                started,
                finished,
                self._input_dir,
                self.collection,
                report.files,
                report.chunks,
                report.failed,
                len(report.skipped),
                json.dumps({stage: round(seconds, 3) for stage, seconds in report.seconds.items()}),
            ],
        )

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.report.seconds[stage] = self.report.seconds.get(stage, 0.0) + time.perf_counter() - began


def _overlap(chunk_size: int, chunk_unit: str) -> int:
    return chunk_size // (5 if chunk_unit == "chars" else 8) if isinstance(chunk_size, int) else 0


def _check_options(header_weight: float, collection: str, api_key: str | None, max_bytes: int) -> None:
    if isinstance(header_weight, bool) or not isinstance(header_weight, (int, float)) or not 0 <= header_weight <= 1000:
        raise InputError(f"header_weight must be a number from 0 to 1000, not {header_weight!r}.")
    if (
        not isinstance(collection, str)
        or not collection.strip()
        or set(collection) & set(":#/")
        or not collection.isprintable()
    ):
        raise InputError(f"collection must be a printable name without ':', '#' and '/', not {collection!r}.")
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1:
        raise InputError(f"max_bytes must be a whole number of 1 or more, not {max_bytes!r}.")
    if api_key is not None:
        raise InputError("api_key has no use here: the providers that are installed run on this machine. Leave it out.")


def _load_embedder(model_name: str | None, provider: str) -> Embedder:
    from sqlrag.embedders import load_embedder

    return load_embedder(model_name, provider=provider)


def _window(embedder: Embedder) -> int:
    """Return how many tokens of a chunk the model can take, beside its special tokens and the passage prefix."""
    return embedder.max_tokens - embedder.special_tokens - len(embedder.token_offsets(embedder.passage_prefix))


def _fit_to_window(policy: ChunkPolicy, embedder: Embedder, report: Report) -> ChunkPolicy:
    """Lower the chunk size to the model's window, and say so once."""
    window = _window(embedder)
    if policy.chunk_unit != "tokens" or policy.chunk_size <= window:
        return policy
    note = f"chunk_size {policy.chunk_size} is lowered to {window} tokens, the window of {embedder.model_name}."
    report.warnings.append(note)
    warnings.warn(note, stacklevel=3)
    return replace(policy, chunk_size=window, chunk_overlap=min(policy.chunk_overlap, window // 8))


def _nothing_usable(input_dir: object, report: Report) -> str:
    reasons_given = "; ".join(f"{failure.doc_id}: {failure.reason}" for failure in report.failures[:5])
    more = f" … and {len(report.failures) - 5} more" if len(report.failures) > 5 else ""
    return f"None of the {report.files} files in {input_dir} could be used, so no file was made. {reasons_given}{more}."


def _nothing_to_read(input_dir: object, skipped: Sequence[Any]) -> str:
    why = "; ".join(f"{count} {reason}" for reason, count in reasons(list(skipped)))
    tail = f"{len(skipped)} files were skipped: {why}." if skipped else "It is empty."
    return f"There is no .md, .markdown, .txt or .pdf file to read in {input_dir}. {tail}"


def _bars(verbose: bool, progress: Progress) -> bool | None:
    """Return tqdm's ``disable``: None hides bars where the output is no terminal."""
    if progress == "auto":
        return None if verbose else True
    return progress == "off"
