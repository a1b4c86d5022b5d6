"""Adds documents that a program has as bytes, such as uploads, to a file."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlrag import arguments, scratch
from sqlrag.arguments import counted
from sqlrag.embedders.base import as_embedder
from sqlrag.engines.duckdb.database import Database
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.metadata import policy_text
from sqlrag.engines.duckdb.rows import read_states, root_of
from sqlrag.errors import InputError
from sqlrag.ingest.folder import MAX_BYTES, find_files, read_document
from sqlrag.ingest.readers import reader_of, readers
from sqlrag.ingest.run import Duplicate, Failure, Run, UpdateReport, checked_collection
from sqlrag.ingest.update import Planner, Update
from sqlrag.normalize import clean_name
from sqlrag.types import DEFAULT_COLLECTION

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from sqlrag.ingest.update import Plan, States
    from sqlrag.types import AnyEmbedder, Document

_LONGEST_PART = 200  # bytes: file systems take 255

_LONGEST_NAME = 1000


@public
def add_documents(
    documents: Mapping[str, bytes],
    db_path: str | os.PathLike[str],
    *,
    collection: str = DEFAULT_COLLECTION,
    max_bytes: int = MAX_BYTES,
    skip_duplicates: bool = False,
    embedder: AnyEmbedder | None = None,
    wait_seconds: float | None = None,
) -> UpdateReport:
    """Add documents to a file: new ones are added, those of the same name replaced; no others are changed.

    Each goes through the pipeline of :func:`update_embeddings`: a document whose bytes are those of the stored one
    costs a hash, and texts of which the file has a vector are not embedded again. One that cannot be used is in the
    report, and in the table ``ingest_failures`` until it is added without a fault; it does not stop the others. A
    document that came from a folder belongs to this program from then on: the next update of that folder reports it.

    Parameters
    ----------
    documents
        The bytes by name, such as ``{"guides/filters.md": b"# Filters"}``. The name becomes the ``doc_id``; its suffix
        names the format, which the bytes must match.
    db_path
        The file to change.
    collection
        The collection that they go to.
    max_bytes
        A larger document is not read.
    skip_duplicates
        Leave out a new document with the same bytes and type as another one: a stored one of the collection, else the
        first of those given. Duplicates are in the report in any case.
    embedder
        The file's model, loaded by you.
    wait_seconds
        How long to wait for another process that has the file open.

    Returns
    -------
    UpdateReport
        What became of each document: it is in one of ``added``, ``changed``, ``unchanged`` and ``failures``, or was
        left out as one of the ``duplicates``.

    Raises
    ------
    InputError
        An argument is of a wrong type or out of its range.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        The file cannot be written.
    ModelMismatchError, ModelUnavailableError, MissingExtraError, ProviderError
        The model cannot be loaded, is not that of the file, or fails. In the latter case the documents that were
        finished stay, the error's ``report`` and ``ingest_failures`` name the others. Add them again: what is stored
        costs a hash.
    """
    given = arguments.mapping("documents", documents)
    collection = checked_collection(collection, max_bytes)
    skip_duplicates = arguments.flag("skip_duplicates", skip_duplicates)
    report = UpdateReport(files=len(given))
    with closing(scratch.Folder()) as folder:
        root = folder.path
        run = Run("update", root, collection, report)
        run.input_dir = ""
        run.read = _reader(collection, max_bytes)
        with run.timed("read"):
            files = _written(given, root, run)
        with Database.open(db_path, read_only=False, wait_seconds=wait_seconds) as database:
            update = Update(database, run, report, None if embedder is None else as_embedder(embedder), None)
            update.choose_policy({})
            planner = _Planner(
                run,
                read_states(database.cursor()),
                policy_text(run.policy),
                max_bytes=max_bytes,
                skip_duplicates=skip_duplicates,
            )
            with run.timed("find"):
                plan = planner.plan(files, report)
            update.run(plan, planner, None, True)
            if run.outage is not None:
                for work in update.unfinished(plan):  # one that has a fault of its own need not be added again
                    run.parse(work.path)
            with run.timed("store"):
                update.finish(plan, planner)
    stored = f"{report.documents} of {counted(len(plan.work), 'document')}"
    run.stop_if_down(f"{stored} of this call, new or changed, are stored. Add the others again.")
    return report


class _Planner(Planner):
    """Compares documents without a folder with the stored ones of the same names."""

    def __init__(
        self, run: Run, stored: Mapping[str, Any], policy: str, *, max_bytes: int, skip_duplicates: bool
    ) -> None:
        super().__init__(
            run, stored, policy, patterns=None, max_bytes=max_bytes, prune=False, skip_duplicates=skip_duplicates
        )

    def plan(self, files: Sequence[Path], report: UpdateReport) -> Plan:
        """Plan the documents; the paths of the stored ones stay as they are."""
        plan = super().plan(files, report)
        plan.touched = []
        known = {one.doc_id: self.stored[one.doc_id] for one in plan.work if one.doc_id in self.stored}
        of_folders = [doc_id for doc_id, old in known.items() if root_of(doc_id, old) is not None]
        if of_folders:
            more = f", and {len(of_folders) - 1:,} more" if of_folders[1:] else ""
            report.warnings.append(
                f"What was added as {of_folders[0]} replaces a document that was read from a folder{more}: an update "
                "of that folder fails on this name until what was added is deleted."
            )
        return plan

    def with_other_policy(self) -> list[str]:
        """Return nothing: other documents are not touched."""
        return []

    def is_gone(self, doc_id: str, found: set[str], skipped: Sequence[Any]) -> bool:  # noqa: ARG002
        """Return False: nothing is known of documents that were not given."""
        return False

    def _missing(self, plan: Plan, states: States, skipped: Sequence[Any]) -> list[str]:  # noqa: ARG002
        return []

    def _duplicates(self, states: States, plan: Plan, report: UpdateReport) -> set[str]:  # noqa: ARG002
        given = {doc_id: (state.checksum, state.mime) for doc_id, (_, state) in states.items()}
        first: dict[tuple[str, str], str] = {}
        for doc_id, old in sorted(self.stored.items()):
            content = (old.checksum, old.mime)
            if old.collection == self.run.collection and old.is_whole and given.get(doc_id, content) == content:
                first.setdefault(content, doc_id)
        for doc_id, content in sorted(given.items(), key=lambda one: (one[0] not in self.stored, one[0])):
            if first.setdefault(content, doc_id) != doc_id:
                report.duplicates.append(Duplicate(doc_id, first[content]))
        report.duplicates.sort()
        return {twin.doc_id for twin in report.duplicates if self.skip_duplicates and twin.doc_id not in self.stored}

    def _is_of_another(self, doc_id: str, old: Any, states: States) -> bool:  # noqa: ARG002
        return False


def _reader(collection: str, max_bytes: int) -> Any:
    def read(path: Path, root: Path) -> Document:
        document = read_document(path, root, collection=collection, max_bytes=max_bytes)
        return replace(document, file_path="", modified_at=None)

    return read


def _written(documents: Mapping[str, bytes], root: Path, run: Run) -> list[Path]:
    """Write the documents below a folder and return those that can be read; the others go into the report."""
    prefix = "" if run.collection == DEFAULT_COLLECTION else f"{run.collection}:"
    written: dict[str, str] = {}
    for name, data in documents.items():
        if not isinstance(name, str) or not isinstance(data, bytes):
            raise InputError("documents must have texts as names and bytes as values.")
        clean = clean_name(name)
        path, reason = root / clean, _fault_of(clean)
        if not reason and clean in written:
            reason, clean = f"has the same name as {written[clean]!a}", ascii(name)[1:-1]
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
    if reader_of(Path(name).suffix) is None:
        return f"the suffix must be one of {', '.join(readers())}"
    return ""
