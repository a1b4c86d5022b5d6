"""Put documents into a file that a program has as bytes, such as those that were uploaded."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlrag import options, scratch
from sqlrag.embedders.base import as_embedder
from sqlrag.errors import InputError
from sqlrag.ingest import run as running
from sqlrag.ingest.planning import Planner
from sqlrag.ingest.reading import MAX_BYTES, MIME_OF_SUFFIX, clean_path, find_files, read_document
from sqlrag.ingest.report import Failure, UpdateReport
from sqlrag.ingest.updating import Update
from sqlrag.store.database import Database
from sqlrag.store.metadata import policy_text
from sqlrag.store.sources import read_states
from sqlrag.types import DEFAULT_COLLECTION

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from sqlrag.ingest.planning import Plan, _States
    from sqlrag.types import AnyEmbedder, Document

_LONGEST_PART = 200  # bytes: file systems take 255
_LONGEST_NAME = 1000


def add_documents(
    documents: Mapping[str, bytes],
    db_path: str | os.PathLike[str],
    *,
    collection: str = DEFAULT_COLLECTION,
    max_bytes: int = MAX_BYTES,
    embedder: AnyEmbedder | None = None,
    wait_seconds: float | None = None,
) -> UpdateReport:
    """Put documents into a file: new ones are added, those of the same name replaced; no other one is touched.

    Each goes through the pipeline of :func:`update_embeddings`: a document whose bytes are those of the stored one
    costs a hash, and no text is embedded that the file has a vector of. One that cannot be used is in the report, and
    stops no other. A document that a folder had is this program's from then on: the next update of that folder says so.

    Parameters
    ----------
    documents
        The bytes by name, such as ``{"guides/filters.md": b"# Filters"}``. The name becomes the ``doc_id`` and tells by
        its suffix what the bytes are, which have to agree.
    db_path
        The file to change.
    collection
        The collection that they go to.
    max_bytes
        A larger document is not read.
    embedder
        The file's model, loaded by you.
    wait_seconds
        How long to wait for another process that holds the file.

    Returns
    -------
    UpdateReport
        What became of each document: it is in one of ``added``, ``changed``, ``unchanged`` and ``failures``.

    Raises
    ------
    InputError
        An argument is of a wrong type or out of its range.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        The file cannot be written.
    ModelMismatchError, ModelUnavailableError, MissingExtraError, ProviderError
        The model cannot be loaded, is not that of the file, or does not do what it says.
    """
    given = options.mapping("documents", documents)
    running.check_options(collection, max_bytes)
    report = UpdateReport(files=len(given))
    with closing(scratch.Folder()) as folder:
        root = folder.path
        run = running.Run("update", root, collection, report)
        run.input_dir = ""
        run.read = _reader(collection, max_bytes)
        with run.timed("read"):
            files = _written(given, root, run)
        with Database.open(db_path, read_only=False, wait_seconds=wait_seconds) as database:
            update = Update(database, run, report, None if embedder is None else as_embedder(embedder), None)
            update.choose_policy({})
            planner = _Planner(run, read_states(database.cursor()), policy_text(run.policy), max_bytes=max_bytes)
            with run.timed("find"):
                plan = planner.plan(files, report)
            update.run(plan, planner, None, True)
            with run.timed("store"):
                update.finish(plan, planner)
    return report


class _Planner(Planner):
    """Compares documents of no folder with the stored ones of the same names."""

    def __init__(self, run: running.Run, stored: Mapping[str, Any], policy: str, *, max_bytes: int) -> None:
        super().__init__(run, stored, policy, patterns=None, max_bytes=max_bytes, prune=False, skip_duplicates=False)

    def plan(self, files: Sequence[Path], report: UpdateReport) -> Plan:
        """Sort the documents in; where the stored ones lie stays as it is."""
        plan = super().plan(files, report)
        plan.touched = []
        return plan

    def cut_otherwise(self) -> list[str]:
        """Return nothing: other documents are not touched."""
        return []

    def is_gone(self, doc_id: str, found: set[str], skipped: Sequence[Any]) -> bool:  # noqa: ARG002
        """Return False: nothing is known of documents that were not given."""
        return False

    def _missing(self, plan: Plan, states: _States, skipped: Sequence[Any]) -> list[str]:  # noqa: ARG002
        return []

    def _is_of_another(self, doc_id: str, old: Any, states: _States) -> bool:  # noqa: ARG002
        return False


def _reader(collection: str, max_bytes: int) -> Any:
    def read(path: Path, root: Path) -> Document:
        document = read_document(path, root, collection=collection, max_bytes=max_bytes)
        return replace(document, file_path="", modified_at=None)

    return read


def _written(documents: Mapping[str, bytes], root: Path, run: running.Run) -> list[Path]:
    """Write the documents below a folder and return those that can be read; the others go into the report."""
    prefix = "" if run.collection == DEFAULT_COLLECTION else f"{run.collection}:"
    written: dict[str, str] = {}
    for name, data in documents.items():
        if not isinstance(name, str) or not isinstance(data, bytes):
            raise InputError("documents must have texts as names and bytes as values.")
        clean = clean_path(name)
        reason = _fault_of(clean) or (f"has the same name as {written[clean]!a}" if clean in written else "")
        path = root / clean
        if not reason:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                written[clean] = name
            except OSError as error:  # one name is the folder of another
                reason = f"cannot be written: {error.strerror or error}"
        if reason:
            run.fail(Failure(f"{prefix}{clean[:_LONGEST_NAME]}", "failed", reason))
    files, skipped = find_files(root)
    for one in skipped:
        run.fail(Failure(f"{prefix}{one.path}", "failed", one.reason))
    return files


def _fault_of(name: str) -> str:
    """Return why a name cannot be that of a document, "" where it can."""
    parts = name.split("/")
    if not all(parts) or any(part.startswith(".") for part in parts):
        return "the name must be a relative path, without parts that are empty or begin with a dot"
    if set(name) & set('\\:*?"<>|#') or not name.isprintable() or any(part != part.strip(" .") for part in parts):
        return "the name has a character that a path cannot have everywhere"
    if len(name.encode()) > _LONGEST_NAME or any(len(part.encode()) > _LONGEST_PART for part in parts):
        return "the name is too long"
    if Path(name).suffix.lower() not in MIME_OF_SUFFIX:
        return f"the suffix must be one of {', '.join(MIME_OF_SUFFIX)}"
    return ""
