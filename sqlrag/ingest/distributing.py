"""Builds on Ray: Ray Data hands the files to its workers, which write the parts of the build."""

from __future__ import annotations

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
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlrag.errors import InputError, MissingExtraError, ProviderError, StoreError
from sqlrag.ingest.parts import LOADING, MOST_DEATHS, Journal, Part, PartsRun, write_part
from sqlrag.ingest.reading import read_document
from sqlrag.ingest.report import Report
from sqlrag.ingest.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from sqlrag.types import ChunkPolicy, Embedder, ModelIdentity

# Enough for a worker to hold at once, and so many parts for each worker that all of them end at about the same time.
_MOST_FILES = 64
_MOST_BYTES = 16 * 2**20
_PARTS_PER_WORKER = 8
# Only names and counts go through Ray's own memory.
_OBJECT_STORE_BYTES = 128 * 2**20
_PATIENCE = 10  # seconds


class Given(NamedTuple):
    """What the caller gave. ``names`` load a model (name, provider, key, address), or it is ``embedder``."""

    max_bytes: int
    names: tuple[str | None, str, str | None, str | None]
    embedder: Embedder | None
    pdf_extractor: Callable[[bytes], list[str]] | None


class Job(NamedTuple):
    """What every worker has to know; what the caller gave as an object is pickled."""

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
    """A run whose files are read, cut and embedded by workers of Ray."""

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
                folder.mkdir()
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
    """Have Ray run, without its logs and bars unless ``sqlrag`` logs at DEBUG."""
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
        # Not to hide graphics cards from workers, which Ray is about to stop doing, and warns of.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        # Ray's workers stand back behind all other programs (nice 15); the local engine does not.
        os.environ.setdefault("RAY_worker_niceness", "0")
        address = os.environ.get("RAY_ADDRESS")
        on_sigterm = signal.getsignal(signal.SIGTERM)
        own: dict[str, Any] = {
            "address": "local",
            "num_cpus": workers or _processors(),
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
            # Ray leaves its own one to the program.
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
        # A block is what Ray hands to a worker, and to another one if that dies.
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
        except OSError:  # its worker will say so
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
                    return Part(path, error="The workers ended without a word while they loaded the model.")
                try:
                    run = self._begun()
                except Exception as error:
                    return Part(path, error=f"A worker cannot begin: {type(error).__name__}: {error}")
                return write_part(run, files, path, journal)
        except OSError as error:
            return Part(path, error=f"A worker cannot write to {path.parent}: {error}.", is_of_folder=True)

    def _begun(self) -> Run:
        """Return the run of this worker, whose model is that of the process that loads the parts."""
        from ray import cloudpickle

        from sqlrag.embedders import check_identity, load_embedder

        if self._run is None:
            job = self.job
            name, provider, api_key, base_url = job.names
            threads = self.threads if provider in ("auto", "onnx") else None
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
    """Keep from the terminal what the programs of Ray say before they know how loud they may be."""
    if not quiet or "RAY_BACKEND_LOG_LEVEL" in os.environ:
        yield
        return
    # What is wrong comes as an exception; the log of the programs has one false alarm for each worker.
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


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
