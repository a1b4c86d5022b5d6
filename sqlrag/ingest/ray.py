"""Builds on Ray: workers read, chunk and embed parts of the input, one process writes them into the file."""

from __future__ import annotations

import json
import logging
import os
import pickle
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections import Counter
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sqlrag.cancellation import checkpoint
from sqlrag.embedders.onnx import usable_processors
from sqlrag.engines.duckdb.documents import CHUNK_SCHEMA, chunk_columns, sources_table
from sqlrag.engines.duckdb.metadata import policy_text
from sqlrag.engines.duckdb.rows import document_of, vector_matrix
from sqlrag.errors import DocumentError, InputError, MissingExtraError, ModelUnavailableError, ProviderError, StoreError
from sqlrag.ingest.folder import document_id, read_document
from sqlrag.ingest.run import Failure, Report, Run, in_batches
from sqlrag.types import Chunk, Document

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from sqlrag.ingest.run import Cut
    from sqlrag.types import ChunkPolicy, Embedder, ModelIdentity, Vectors

# A file that crashes so many workers is left out; so many crashes before the first file end the build.
MOST_DEATHS = 3

LOADING, EMBEDDING, _DONE = "loading", "embedding", "done"

_SOURCES, _CHUNKS, _JOURNAL = _SUFFIXES = (".documents.parquet", ".chunks.parquet", ".journal")


class Outcome(NamedTuple):
    """What became of one file: its rows are in the part, or ``failure`` says why not.

    ``checksum`` is "" where it could not be read. With neither rows nor a failure the provider did not process it.
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
    why embedding was stopped, ``single`` why documents were sent one by one, ``error`` why the worker could not work at
    all: the message of an exception, or of a StoreError where ``is_of_folder``.
    """

    path: Path
    outcomes: list[Outcome] = field(default_factory=list)
    cut_off: dict[str, int] = field(default_factory=dict)
    embedded: int = 0
    embedding_calls: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    outage: str = ""
    single: str = ""
    error: str = ""
    is_of_folder: bool = False


class Made(NamedTuple):
    """One file of a part with its rows; ``document`` is None where there are none."""

    outcome: Outcome
    document: Document | None = None
    chunks: Sequence[Chunk] = ()
    vectors: Vectors = np.empty((0, 0), dtype=np.float32)


class Journal:
    """Records in a file what a worker is doing, so that the next one knows where the last one crashed.

    ``deaths`` counts where earlier workers of this part crashed: the place of a file in it, or a stage.
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
        """Record what comes next."""
        self._file.write(f"{what} ")
        self._file.flush()

    def close(self) -> None:
        """Record that this worker has not crashed."""
        self.at(_DONE)
        self._file.close()


def write_part(run: Run, files: Sequence[Path], path: Path, journal: Journal) -> Part:
    """Read, chunk and embed files with a run that may have processed others before, and write the results.

    After the crash of a worker each file is processed alone, so that the one that caused it is known.

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
    waiting: list[Cut] = []

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
            reason = f"{MOST_DEATHS} workers crashed or were killed while they processed it"
            with run.reporting(file):
                raise DocumentError(document_id(file, run.root, collection=run.collection), reason)
        cut = None if document is None else run.cut(document)
        failure = report.failures[-1] if cut is None else None
        if document is None:
            outcomes.append(Outcome(report.failures[-1].doc_id, failure=failure))
            continue
        outcomes.append(Outcome(document.doc_id, document.checksum, document.mime, document.warnings, failure))
        if cut is not None:
            waiting.append(cut)
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
        run.single,
    )


def _write(path: Path, documents: Sequence[Document], chunks: Sequence[Chunk], vectors: Vectors, policy: str) -> None:
    columns = chunk_columns({one.doc_id: one for one in documents}, chunks, llama_index_compatible=False)
    embedding = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    table = pa.Table.from_pydict({name: columns[name] for name in CHUNK_SCHEMA.names}, CHUNK_SCHEMA)
    tables = {
        _SOURCES: sources_table(documents, policy),
        _CHUNKS: table.append_column("embedding", embedding),
    }
    for suffix, rows in tables.items():
        # Renamed when it is complete: a worker that was replaced may still be writing.
        unfinished = _beside(path, f"{suffix}.{os.getpid()}")
        with unfinished.open("wb") as file:
            pq.write_table(rows, file)
        unfinished.replace(_beside(path, suffix))


def read_part(part: Part) -> Iterator[Made]:
    """Yield the results of the files of a part, in their order.

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
    """A run whose documents come from parts: it reports, batches and writes them as if it had read them itself."""

    def __init__(self, kind: str, root: Path, collection: str, report: Report) -> None:
        super().__init__(kind, root, collection, report)
        self._files: Iterator[Made] = iter(())
        self._current = Made(Outcome(""))
        self._vectors_of: dict[str, Vectors] = {}
        self._down = ProviderError("")

    def take(self, parts: Iterable[Part]) -> None:
        """Read the results of the files, in their order, from these parts; each is removed when it is loaded."""
        self._files = chain.from_iterable(map(self._loaded, parts))

    def parse(self, path: Path) -> Document | None:  # noqa: ARG002 - the files come in the order of the parts
        """Return the next file's document, without text where it could not be cut or embedded."""
        self._current = next(self._files)
        outcome, document = self._current[:2]
        if document is None and outcome.failure is None:
            self.outage = self._down
            self.log.error("The provider has failed, embedding stops: %s", self.outage)
            return None
        if not outcome.checksum and outcome.failure is not None:
            self.fail(outcome.failure)
            return None
        without_text = Document(outcome.doc_id, "", checksum=outcome.checksum, mime=outcome.mime)
        document = replace(document or without_text, warnings=outcome.warnings)
        self.note(document)
        return document

    def cut(self, document: Document) -> Cut | None:
        """Return the document that :meth:`parse` has returned last with its chunks."""
        if self._current.outcome.failure is not None:
            self.fail(self._current.outcome.failure)
            return None
        self._vectors_of[document.doc_id] = self._current.vectors
        return document, list(self._current.chunks)

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
        if part.single:
            self.note_single(part.single)
        if part.outage:
            self._down = ProviderError(part.outage)
        made = list(read_part(part))
        remove_part(part)
        return iter(made)


# Enough for a worker to hold at once, and so many parts for each worker that all of them end at about the same time.
_MOST_FILES = 64

_MOST_BYTES = 16 * 2**20

_PARTS_PER_WORKER = 8

# Only names and counts go through Ray's own memory.
_OBJECT_STORE_BYTES = 128 * 2**20

_PATIENCE = 10  # seconds


class Given(NamedTuple):
    """Arguments of the caller. ``names`` load a model (name, provider, key, address), or it is ``embedder``."""

    max_bytes: int
    names: tuple[str | None, str, str | None, str | None]
    embedder: Embedder | None
    pdf_extractor: Callable[[bytes], list[str]] | None


class Job(NamedTuple):
    """What every worker needs; objects of the caller are pickled."""

    root: Path
    collection: str
    policy: ChunkPolicy
    identity: ModelIdentity
    max_bytes: int
    names: tuple[str | None, str, str | None, str | None]
    embedder: bytes | None
    pdf_extractor: bytes | None


def check_ray() -> None:
    """Raise MissingExtraError where Ray is not installed."""
    # Read when Ray is imported. Without it, what runs on this machine alone would listen in its network, without a key.
    if "ray" not in sys.modules and "RAY_ADDRESS" not in os.environ:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray.data  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("engine='ray'", "ray") from error


def _pickled(name: str, value: object) -> bytes | None:
    """Return an argument as it goes to the workers, None for None.

    Raises
    ------
    InputError
        It cannot be pickled.
    """
    from ray import cloudpickle

    if value is None:
        return None
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:
        remedy = "name the model instead (embed_model_name)" if name == "embedder" else "or pass none"
        raise InputError(
            f"{name} cannot be sent to the workers of engine='ray', because it cannot be pickled: "
            f"{type(error).__name__}: {error}. Pass one that can; {remedy}."
        ) from error


class RayRun(PartsRun):
    """A run whose files are read, chunked and embedded by workers of Ray."""

    def __init__(
        self,
        kind: str,
        root: Path,
        collection: str,
        report: Report,
        given: Given,
        *,
        workers: int | None,
        parts_dir: str | os.PathLike[str] | None,
    ) -> None:
        super().__init__(kind, root, collection, report)
        self._given = given
        self._workers = workers
        self._parts_dir = parts_dir

    @contextmanager
    def at_work(self, files: Sequence[Path], beside: Path) -> Iterator[None]:
        """Have workers make the parts of a build, in a folder that is removed at the end.

        A Ray that is running in this process is used; else that of the environment variable ``RAY_ADDRESS``; else one
        is started for the block, on this machine alone.

        Raises
        ------
        InputError
            The embedder or the extractor cannot be pickled.
        StoreError
            The folder cannot be made.
        ProviderError
            Ray cannot be started or reached.
        """
        max_bytes, names, embedder, extractor = self._given
        job = Job(
            self.root.absolute(),
            self.collection,
            self.policy,
            self.probe(),
            max_bytes,
            names,
            _pickled("embedder", embedder),
            _pickled("pdf_extractor", extractor),
        )
        folder = Path(f"{beside.absolute()}.parts")
        try:
            if self._parts_dir is None:
                folder.mkdir(mode=0o700)
            else:
                folder = Path(tempfile.mkdtemp(prefix="sqlrag-", dir=Path(self._parts_dir).absolute()))
        except OSError as error:
            raise StoreError(folder, f"The folder for the parts of the build cannot be made: {error}.") from error
        try:
            with _ray(self._workers), closing(finished_parts(job, files, folder, self._workers)) as parts:
                self.take(parts)
                yield
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _ray(workers: int | None) -> Iterator[None]:
    """Run Ray, without its logs and bars unless ``sqlrag`` logs at DEBUG."""
    import ray

    quiet = not logging.getLogger("sqlrag").isEnabledFor(logging.DEBUG)
    level, log = logging.ERROR if quiet else logging.INFO, logging.getLogger("ray.data")
    was = log.level
    log.setLevel(level)
    try:
        if ray.is_initialized():
            yield
            return
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        # Do not hide graphics cards from workers: Ray warns that it will stop doing so.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        # Ray's workers have a low priority by default (nice 15); the local engine does not.
        os.environ.setdefault("RAY_worker_niceness", "0")
        address = os.environ.get("RAY_ADDRESS")
        on_sigterm = signal.getsignal(signal.SIGTERM)
        own: dict[str, Any] = {
            "address": "local",
            "num_cpus": workers or usable_processors(),
            "include_dashboard": False,
            "object_store_memory": _OBJECT_STORE_BYTES,
        }
        try:
            _check_address(address)
            with _silent(quiet):
                ray.init(log_to_driver=not quiet, logging_level=level, **({} if address else own))
        except Exception as error:
            where = f"at RAY_ADDRESS={address} cannot be reached" if address else "cannot be started"
            raise ProviderError(f"Ray {where}: {error}") from error
        try:
            yield
        finally:
            ray.shutdown()
            # Ray does not restore the program's handler.
            if on_sigterm is not None and threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, on_sigterm)
    finally:
        log.setLevel(was)


def finished_parts(job: Job, files: Sequence[Path], folder: Path, workers: int | None) -> Generator[Part, None, None]:
    """Yield the parts of a build in the order of the files, each when it and those before it are finished.

    Raises
    ------
    ProviderError
        Ray has failed.
    """
    import ray

    processors = int(ray.cluster_resources().get("CPU", 1)) or 1
    workers = workers or processors
    # No worker can have more than its machine has.
    most = max(int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"])
    threads = max(1, min(processors // workers, most))
    tasks = [
        {"task": pickle.dumps((folder / f"{number:06}", group))} for number, group in enumerate(_groups(files, workers))
    ]
    context = ray.data.DataContext.get_current().copy()
    context.execution_options.preserve_order = True
    shown = logging.getLogger("ray.data").level < logging.ERROR
    context.enable_progress_bars = context.print_on_execution_start = shown
    with ray.data.DataContext.current(context):
        # A block is what Ray sends to a worker, and to another one if that crashes.
        dataset = ray.data.from_items(tasks, override_num_blocks=len(tasks)).map_batches(
            Worker,
            fn_constructor_args=(job, threads),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=min(workers, len(tasks))),
            num_cpus=threads,
        )
    try:
        for row in dataset.iter_rows():
            yield pickle.loads(row["part"])  # noqa: S301 - our workers wrote it
    except ray.exceptions.RayError as error:
        raise ProviderError(f"Ray has failed: {str(error).strip()}") from error


def _groups(files: Sequence[Path], workers: int) -> Iterator[list[Path]]:
    """Yield the files in groups, each of which becomes a part, in their order."""
    most = max(1, min(_MOST_FILES, len(files) // (_PARTS_PER_WORKER * workers)))
    group: list[Path] = []
    total = 0
    for file in files:
        try:
            size = file.stat().st_size
        except OSError:  # its worker reports it
            size = 0
        if group and (len(group) == most or total + size > _MOST_BYTES):
            yield group
            group, total = [], 0
        group.append(Path(os.path.abspath(file)))  # noqa: PTH100 - workers may be in another folder; links stay
        total += size
    yield group


class Worker:
    """One worker of Ray, which loads the model once."""

    def __init__(self, job: Job, threads: int) -> None:
        self.job = job
        self.threads = threads
        self._run: Run | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[bytes]]:
        """Make the parts of a batch."""
        return {"part": [pickle.dumps(self._part(*pickle.loads(task))) for task in batch["task"]]}  # noqa: S301

    def _part(self, path: Path, files: Sequence[Path]) -> Part:
        try:
            with closing(Journal(path)) as journal:
                if journal.deaths[LOADING] >= MOST_DEATHS:
                    return Part(path, error="The workers crashed while they loaded the model.")
                try:
                    run = self._ready_run()
                except Exception as error:
                    return Part(path, error=f"A worker cannot start: {type(error).__name__}: {error}")
                return write_part(run, files, path, journal)
        except OSError as error:
            return Part(path, error=f"A worker cannot write to {path.parent}: {error}.", is_of_folder=True)

    def _ready_run(self) -> Run:
        """Return the run of this worker, whose model is that of the process that loads the parts."""
        from ray import cloudpickle

        from sqlrag.embedders import check_identity, load_embedder

        if self._run is None:
            job = self.job
            name, provider, api_key, base_url = job.names
            threads = self.threads if provider in ("auto", "onnx", "openvino") else None
            run = Run("build", job.root, job.collection, Report())
            run.policy = job.policy
            run.embedder = (
                load_embedder(name, provider=provider, api_key=api_key, base_url=base_url, threads=threads)
                if job.embedder is None
                else cloudpickle.loads(job.embedder)
            )
            extractor = None if job.pdf_extractor is None else cloudpickle.loads(job.pdf_extractor)
            run.read = lambda path, root: read_document(
                path, root, collection=job.collection, max_bytes=job.max_bytes, pdf_extractor=extractor
            )
            try:
                check_identity(run.model, job.identity)
            except ProviderError as error:
                run.outage = error
            self._run = run
        return self._run


def _check_address(address: str | None) -> None:
    """Raise OSError where nothing listens at an address: Ray would try for a quarter of an hour."""
    found = re.fullmatch(r"(?:ray://)?(.+):(\d+)", address or "")
    if found:
        socket.create_connection((found[1].strip("[]"), int(found[2])), timeout=_PATIENCE).close()


@contextmanager
def _silent(quiet: bool) -> Iterator[None]:
    """Hide what Ray's processes print before their log level applies."""
    if not quiet or "RAY_BACKEND_LOG_LEVEL" in os.environ:
        yield
        return
    # Errors arrive as exceptions; the log of the processes has one false alarm for each worker.
    os.environ["RAY_BACKEND_LOG_LEVEL"] = "fatal"
    stream = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(stream, 2)
        os.close(stream)
        del os.environ["RAY_BACKEND_LOG_LEVEL"]
