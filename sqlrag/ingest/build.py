"""From a folder of documents to a store file: read, chunk, embed, store, index."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sqlrag import arguments
from sqlrag.embedders.base import as_embedder
from sqlrag.engines.duckdb import lexical, metadata
from sqlrag.engines.duckdb.database import Database, check_replaceable
from sqlrag.engines.duckdb.documents import delete_unindexed, insert_rows
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.files import check_memory_limit, check_output
from sqlrag.engines.duckdb.metadata import initialize, policy_text, refresh_counts
from sqlrag.engines.duckdb.model_fit import model_fit
from sqlrag.engines.duckdb.rewrite import new_file
from sqlrag.engines.duckdb.rows import real_folder
from sqlrag.errors import InputError, ModelMismatchError, NotFoundError, SqlragError, StoreExistsError
from sqlrag.ingest.chunk import check_policy
from sqlrag.ingest.folder import MAX_BYTES, document_id, existing_folder, find_files, read_document
from sqlrag.ingest.kept import Kept
from sqlrag.ingest.run import (
    Duplicate,
    Prepared,
    Report,
    Run,
    check_suffix,
    check_types,
    checked_collection,
    cost,
    default_overlap,
    fit_to_window,
    in_parts,
    model_of_new_file,
    nothing_to_read,
)
from sqlrag.progress import Bar, bar_is_off
from sqlrag.types import DEFAULT_COLLECTION, ChunkPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import duckdb

    from sqlrag.ingest.run import Cut
    from sqlrag.types import AnyEmbedder, ChunkUnit, Engine, Progress


# Bytes that DuckDB may take at a build: it needs room for the keys of the chunks, some 25 MB for 65,000 of them; the
# rest is a cache of what was written.
_LEAST_MEMORY = 150_000_000
_MOST_MEMORY = 1_000_000_000
_MEMORY_OF_FILES = 3


@public
def prepare_file(
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
    ignore: Sequence[str] | None = None,
    max_bytes: int = MAX_BYTES,
    pdf_extractor: Callable[[bytes], list[str]] | None = None,
    embedder: AnyEmbedder | None = None,
    llama_index_compatible: bool = True,
    skip_duplicates: bool = False,
    memory_limit: str | None = None,
    progress: Progress = "auto",
    base_url: str | None = None,
    engine: Engine = "local",
    workers: int | None = None,
    parts_dir: str | os.PathLike[str] | None = None,
) -> Prepared:
    """Read a folder of documents into one searchable DuckDB file: Markdown, text, PDF, HTML, Office and others.

    One unreadable document never stops the run: it is in the report and in the table ``ingest_failures``. The file is
    built beside its place and renamed at the end, so that it is there whole or not at all. A run that is interrupted
    keeps its vectors in a file beside it, ``.embedded`` after its name, which the next one uses and removes. The same
    folder gives the same rows, wherever it is.

    Parameters
    ----------
    input_dir
        The folder, searched to any depth.
    output_db
        The file to create.
    chunk_size
        The longest chunk, in ``chunk_unit``. Tokens are those of the embedding model; more than its window takes is
        lowered to the window, with a warning.
    embed_model_name
        A model's name on the Hugging Face hub or a local folder. None: ``BAAI/bge-small-en-v1.5``; where that is not
        in the cache and cannot be downloaded, and ``embedding_provider`` is "auto", the model of the extra ``offline``,
        ``sentence-transformers/all-MiniLM-L6-v2``, if that is installed. A warning and the report say so.
    embed_dim
        A check only: another number of dimensions than the model's is refused.
    embedding_provider
        "auto" (ONNX), or the name of a provider.
    api_key
        For a provider that is a service. It is never stored nor shown. None: from the environment, as
        :func:`load_embedder` says.
    verbose
        Show the progress: chunks embedded of chunks cut, chunks a second and the time left.
    use_markdown_chunking
        Cut Markdown at its headings first; False: windows only.
    include_headers_in_chunks
        Embed the heading path before the text of a chunk. The stored text never contains it.
    header_weight
        How much a word in the heading path counts beside one in the text, in the lexical leg; 0 or more.
    overwrite
        Replace ``output_db`` if it is a store; any other file is never replaced.
    chunk_overlap
        How much of a chunk is repeated in the next one when a section is longer than ``chunk_size``; below
        ``chunk_size``. None: an eighth of it (a fifth for "chars").
    chunk_unit
        "tokens" or "chars".
    collection
        The name under which these documents can be searched alone.
    stemmer
        A Snowball stemmer such as "porter", "english" or "german", for words in Latin letters, or "none". Words in
        Cyrillic, Greek, Arabic and Devanagari letters have the stemmer of their script, unless it is "none" or that of
        another language in these letters.
    patterns
        Read only files whose name or relative path matches one of these, such as ``["*.md", "guides/*"]``.
    ignore
        Leave out the files and folders that match one of these, in gitignore's syntax, such as ``["drafts/"]``.
        The files ``.sqlragignore`` in the folder and below it do the same, as git reads ``.gitignore``.
    max_bytes
        A larger file is not read.
    pdf_extractor
        ``(bytes) -> list of str``, one a page, in place of PDFium and pypdf, and without their limits.
    embedder
        An embedder of your own, in place of model name and provider: an object that fits :class:`Embedder`, a
        llama-index ``BaseEmbedding``, or a function from a list of texts to vectors.
    llama_index_compatible
        Keep in ``metadata_`` what llama-index needs to open the rows.
    skip_duplicates
        Leave out a file with the same bytes and type as one before it, in the order of the paths. Duplicates are in
        the report in any case.
    memory_limit
        How much memory DuckDB may use, such as "2GB"; by default 150 MB, or three times the size of the files where
        that is more; from 1 GB on four fifths of the machine's.
    progress
        "auto": if ``verbose``, a bar in a terminal or notebook, elsewhere a line every 30 s; "on"; "off".
    base_url
        Where the server of the provider is. The file keeps it, so that questions are embedded there, too.
    engine
        "local": this process reads, chunks and embeds. "ray": the workers of Ray do, and this process writes their
        results into the file; the rows are the same. They have to reach ``input_dir`` by the same path. It uses the Ray
        that runs in this process, else that of the environment variable ``RAY_ADDRESS``, else starts one on this
        machine alone. A worker that dies is replaced. ``embedder`` and ``pdf_extractor`` must be picklable.
    workers
        For "ray": how many work at once. None: as many as there are processors.
    parts_dir
        For "ray": a folder that all workers and this process reach by the same path, for what is not in the file yet.
        None: beside ``output_db``.

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
    ModelUnavailableError, MissingExtraError, ModelMismatchError
        The model cannot be loaded, or does not match ``embed_dim``.
    ProviderError
        The model fails, or stops answering. In the latter case the file is made with the documents
        that were finished, ``ingest_failures`` names the others, and :func:`update_embeddings` embeds the rest. A file
        that was to be overwritten stays as it was. Also where Ray cannot be reached or fails; no file is created then.
    """
    check_types(
        input_dir,
        patterns,
        pdf_extractor,
        progress,
        embed_model_name,
        ignore=ignore,
        verbose=verbose,
        use_markdown_chunking=use_markdown_chunking,
        include_headers_in_chunks=include_headers_in_chunks,
        overwrite=overwrite,
        llama_index_compatible=llama_index_compatible,
        skip_duplicates=skip_duplicates,
    )
    policy = ChunkPolicy(
        strategy="markdown" if use_markdown_chunking else "size",
        chunk_size=chunk_size,
        chunk_overlap=default_overlap(chunk_size, chunk_unit) if chunk_overlap is None else chunk_overlap,
        chunk_unit=chunk_unit,
        include_headers=include_headers_in_chunks,
    )
    check_policy(policy)
    collection = checked_collection(collection, max_bytes)
    _check_weight(header_weight)
    _check_engine(engine, workers, parts_dir)
    if embedder is not None and not (api_key is None and base_url is None):
        raise InputError("api_key and base_url cannot be combined with an embedder, which has its own.")
    lexical.check_stemmer(stemmer)
    check_memory_limit(memory_limit)
    existing_folder(input_dir)  # before the output: a folder that is not there is the first mistake to mend
    try:
        output = check_output(output_db, overwrite=overwrite)
    except StoreExistsError as error:
        raise StoreExistsError(error.path, f"{error}{_to_add(input_dir, output_db)}") from None
    check_replaceable(output)
    check_suffix(output)
    files, skipped = find_files(input_dir, patterns=patterns, ignore=ignore)
    if not files:
        raise NotFoundError(nothing_to_read(input_dir, skipped, patterns))

    report = Report(files=len(files), skipped=list(skipped))
    if embedder is not None:
        model = as_embedder(embedder)
    else:
        model = model_of_new_file(
            embed_model_name, embedding_provider, report.warnings, stacklevel=5, api_key=api_key, base_url=base_url
        )
    if embed_dim not in (None, model.dimensions):
        raise ModelMismatchError(
            f"{model.model_name} makes vectors of {model.dimensions} dimensions, not {embed_dim} (embed_dim)."
        )
    root = Path(input_dir).expanduser()
    if engine == "local":
        run = Run("build", root, collection, report)
    else:
        from sqlrag.ingest.ray import Given, RayRun

        # The workers load the model that was found here.
        names = (embed_model_name or model.model_name, embedding_provider, api_key, base_url)
        given = Given(max_bytes, names, None if embedder is None else model, pdf_extractor)
        run = RayRun("build", root, collection, report, given, workers=workers, parts_dir=parts_dir)
    run.policy = fit_to_window(policy, model, report, is_new=True, stacklevel=5)  # that of prepare_embeddings
    run.embedder = model
    run.read = lambda path, root: read_document(
        path, root, collection=collection, max_bytes=max_bytes, pdf_extractor=pdf_extractor
    )
    settings = _Settings(header_weight, stemmer, llama_index_compatible, skip_duplicates, patterns, ignore)
    with (
        Kept(output, report.warnings) as run.kept,
        new_file(output, overwrite=overwrite) as temporary,
        Database.create(temporary, model.dimensions) as database,
        run.at_work(files, temporary),
    ):
        database.limit_memory(memory_limit or _enough_memory(files))
        _fill(database, run, files, settings, bar_is_off(progress, verbose=verbose))
        if output.exists():
            run.stop_if_down(f"{output} is as it was.")
    run.stop_if_down(
        f"{report.documents} of {report.files} documents are in {output}; update_embeddings embeds the rest into it."
    )
    return Prepared(output, report, model)


def _enough_memory(files: Sequence[Path]) -> str | None:
    """Return how much memory DuckDB needs for a build of these files; None where it may take what it wants."""
    needed = 0
    for file in files:
        with suppress(OSError):  # it is reported when it is read
            needed += file.stat().st_size * _MEMORY_OF_FILES
    return memory_for(needed)


def memory_for(needed: int) -> str | None:
    """Return a limit of memory by which so many bytes can be used at least; None where that is much."""
    return f"{max(needed, _LEAST_MEMORY) // 1_000_000}MB" if needed < _MOST_MEMORY else None


class _Settings(NamedTuple):
    """The settings of a build beside the state of its run."""

    header_weight: float
    stemmer: str
    llama_index_compatible: bool
    skip_duplicates: bool
    patterns: Sequence[str] | None
    ignore: Sequence[str] | None


def _fill(database: Database, run: Run, files: Sequence[Path], settings: _Settings, bar_off: bool | None) -> None:
    """Fill an empty database."""
    began, report = time.perf_counter(), run.report
    compatible = settings.llama_index_compatible
    begin(database, run, settings.header_weight, settings.stemmer, llama_index_compatible=compatible)
    with Bar("embedding", "chunk", documents=len(files), off=bar_off) as run.bar:
        if run.kept is not None:
            run.kept.how_far = lambda count: f"{max(run.bar.done, count):,} of {run.bar.extent} are"
        written = _store(database, run, settings, _cuts(run, files, settings.skip_duplicates))
        run.bar.goes_on("indexing the words")
        _finish(database, run, files, settings, written)
    run.log.info("%s: %s, %.1f s", run.root, report, time.perf_counter() - began)


def _finish(database: Database, run: Run, files: Sequence[Path], settings: _Settings, written: set[str]) -> None:
    """Index the words of what was written, and record the results of the run."""
    report = run.report
    if run.outage is not None:
        _report_unfinished(run, files, written, settings.skip_duplicates)
    if not report.documents:
        run.stop_if_down("No document was finished, so no file was made.")
    if not report.documents:
        raise NotFoundError(_nothing_usable(run.input_dir, report))
    report.failures.sort()  # those of the model come later than those of the reader
    with ending(database, run, settings.stemmer) as con:
        metadata.record_failures(con, report.failures)
        metadata.record_collection(con, run.collection, run.input_dir)
        metadata.record_patterns(con, run.collection, run.input_dir, settings.patterns, settings.ignore)
        metadata.shorten_paths(con, run.collection, *run.roots)
        metadata.log_run(con, run.row())
        report.warnings += model_fit(con)
        run.note_dates(con)


def begin(
    database: Database, run: Run, heading_weight: float, stemmer: str, *, llama_index_compatible: bool = True
) -> None:
    """Prepare an empty database for what a run makes; its model is tested where it does so itself."""
    from sqlrag.embedders.batching import self_test

    if getattr(run.model, "tests_itself", False):
        self_test(run.model)
    identity = run.probe()
    if run.kept is not None:
        run.kept.identity = identity
    initialize(
        database,
        identity,
        run.policy,
        heading_weight=heading_weight,
        stemmer=stemmer,
        llama_index_compatible=llama_index_compatible,
    )
    # Every checkpoint rewrites the last row group; at DuckDB's 16 MB that leaves a file nearly twice as large.
    database.cursor().execute("SET checkpoint_threshold = '400MB'")


@contextmanager
def ending(database: Database, run: Run, stemmer: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Index the words of a new file and count what is in it; yields the connection of the last transaction."""
    with run.timed("index"):
        # Not in a transaction, to whose end DuckDB keeps what was staged: nobody sees the file yet.
        lexical.add_chunks(database.cursor(), 0, stemmer)
    with run.timed("index"), database.transaction() as con:
        refresh_counts(con)
        yield con
    database.checkpoint()


def _store(database: Database, run: Run, settings: _Settings, cuts: Iterable[Cut]) -> set[str]:
    """Embed and write documents without indexing their words; return the ids of those that are written."""
    report = run.report
    written: set[str] = set()
    refused = ""
    for part in in_parts(cuts, run):
        one = part.documents[0].doc_id
        if one == refused:
            continue
        with run.timed("embed"):
            kept, chunks, vectors = run.embed(part.documents, part.chunks)
        with run.timed("store"), database.transaction() as con:
            if not kept and not part.begins:
                report.chunks -= delete_unindexed(con, one)
            insert_rows(
                con,
                kept,
                chunks,
                vectors,
                llama_index_compatible=settings.llama_index_compatible,
                policy=policy_text(run.policy),
                shown_end=part.shown_end,
                begins=part.begins,
                complete=part.complete,
            )
        report.chunks += len(chunks)
        if run.outage is None:
            run.bar.made(len(part.chunks), cost(part.chunks))
        if part.complete:
            report.documents += len(kept)
            written.update(document.doc_id for document in kept)
        refused = "" if kept else one
        if run.outage is not None:
            break
    return written


def _cuts(run: Run, files: Sequence[Path], skip_duplicates: bool) -> Iterator[Cut]:
    """Yield the documents that can be used with their chunks, in the order of the files."""
    first: dict[tuple[str, str], str] = {}
    for path in files:
        if run.outage is not None:
            return
        document = run.parse(path)
        run.bar.read()
        if document is None:
            continue
        # The same bytes under another suffix are another document, as in an update.
        same_as = first.setdefault((document.checksum, document.mime), document.doc_id)
        if same_as != document.doc_id:
            run.report.duplicates.append(Duplicate(document.doc_id, same_as))
            if skip_duplicates:
                continue
        cut = run.cut(document)
        if cut is not None:
            run.bar.expect(len(cut[1]), cost(cut[1]))
            yield cut


def _report_unfinished(run: Run, files: Sequence[Path], written: set[str], skip_duplicates: bool) -> None:
    """Report the documents that the provider did not process."""
    done = written.union(failure.doc_id for failure in run.report.failures)
    done.update(duplicate.doc_id for duplicate in run.report.duplicates if skip_duplicates)
    doc_ids = []
    for path in files:
        with run.reporting(path):
            doc_ids.append(document_id(path, run.root, collection=run.collection))
    run.report_unfinished(doc_id for doc_id in doc_ids if doc_id not in done)


def _to_add(folder: str | os.PathLike[str], db_path: str | os.PathLike[str]) -> str:
    """Return which folders a file has and how another one is added, "" where it has this one, or may have."""
    from sqlrag.ingest.update import folders_of

    with suppress(SqlragError):
        known, _, unknown = folders_of(db_path, wait_seconds=0)
        if (known or not unknown) and real_folder(folder) not in [real_folder(one.path) for one in known]:
            there = ", ".join(f"{one.path} (collection {one.collection})" for one in known[:5])
            there = f" It has {there}{' …' * (len(known) > 5)}." * bool(known)
            call = f"input_dir={os.fspath(folder)!r}, db_path={os.fspath(db_path)!r}, collection='NAME'"
            return f"{there} To add this folder as a collection of its own: update_embeddings({call})."
    return ""


def _check_weight(header_weight: float) -> None:
    if isinstance(header_weight, bool) or not isinstance(header_weight, (int, float)) or not 0 <= header_weight <= 1000:
        raise InputError(f"header_weight must be a number from 0 to 1000, not {header_weight!r}.")


def _check_engine(engine: str, workers: int | None, parts_dir: str | os.PathLike[str] | None) -> None:
    arguments.choice("engine", engine, ("local", "ray"))
    if engine == "local":
        if workers is not None or parts_dir is not None:
            raise InputError("engine='local' takes no workers and no parts_dir. Leave them out, or pass engine='ray'.")
        return
    if workers is not None:
        arguments.whole("workers", workers, 1)
    if parts_dir is not None and not Path(arguments.path("parts_dir", parts_dir)).is_dir():
        raise NotFoundError(f"parts_dir {os.fspath(parts_dir)} is not an existing folder.")
    from sqlrag.ingest.ray import check_ray

    check_ray()


def _nothing_usable(input_dir: object, report: Report) -> str:
    reasons_given = "; ".join(f"{failure.doc_id}: {failure.reason}" for failure in report.failures[:5])
    more = f" … and {len(report.failures) - 5} more" if len(report.failures) > 5 else ""
    return f"None of the {report.files} files in {input_dir} could be used, so no file was made. {reasons_given}{more}."
