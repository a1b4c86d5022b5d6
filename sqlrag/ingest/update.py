"""Compares a folder with a file and brings the file up to date: only what changed is embedded."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sqlrag.arguments import counted
from sqlrag.embedders.base import as_embedder, short_name
from sqlrag.engines.duckdb import lexical, metadata, row_tables
from sqlrag.engines.duckdb.database import Database
from sqlrag.engines.duckdb.documents import delete, replace_rows, same_id, taken
from sqlrag.engines.duckdb.failures import public, reported
from sqlrag.engines.duckdb.metadata import (
    chunk_policy_of,
    model_identity,
    policy_metadata,
    policy_text,
    refresh_counts,
    required_metadata,
    write_metadata,
)
from sqlrag.engines.duckdb.rows import (
    UNKNOWN,
    known_vectors,
    read_documents,
    read_slices,
    read_states,
    real_folder,
    refresh_sources,
    relative,
    root_of,
)
from sqlrag.errors import InputError, ModelMismatchError, NotFoundError, ProviderError, SqlragError
from sqlrag.ingest.chunk import check_policy, chunk_metadata
from sqlrag.ingest.folder import (
    MAX_BYTES,
    FileState,
    IgnoredFile,
    document_id,
    file_state,
    find_files,
    find_stored,
    matches,
    read_document,
)
from sqlrag.ingest.kept import Kept, left_by_an_interrupted_run, noting
from sqlrag.ingest.readers.sections import name_title
from sqlrag.ingest.run import (
    Failure,
    Rename,
    Run,
    UpdateReport,
    check_types,
    checked_collection,
    cost,
    default_overlap,
    find_duplicates,
    fit_to_window,
    in_batches,
    nothing_to_read,
)
from sqlrag.progress import Bar, bar_is_off
from sqlrag.types import DEFAULT_COLLECTION, ROW, Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    import duckdb

    from sqlrag.engines.duckdb.row_tables import RowSource
    from sqlrag.engines.duckdb.rows import SourceState
    from sqlrag.ingest.folder import SkippedFile
    from sqlrag.ingest.run import Cut
    from sqlrag.types import AnyEmbedder, ChunkPolicy, ChunkUnit, Document, Embedder, Progress, Vectors

    States = dict[str, tuple[Path, FileState]]


class Work(NamedTuple):
    """A file that has to be written. ``twin`` is a stored document of the same bytes, whose chunks can be copied."""

    doc_id: str
    path: Path
    checksum: str
    twin: str | None


@dataclass
class Plan:
    """What has to be done.

    ``renamed`` is by new id; ``touched`` are unchanged except path or time; ``repeated`` are stored documents to delete
    because they are now the same as another one, if that one can be read; ``found`` are all that have a file, whether
    it can be used or not.
    """

    work: list[Work] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    touched: list[tuple[str, str, datetime | None]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    repeated: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    found: set[str] = field(default_factory=set)


class Planner:
    """Compares the files of one run with the stored documents.

    ``policy`` is the text of the new chunk policy; ``stored`` is every document of the file.
    """

    def __init__(
        self,
        run: Run,
        stored: Mapping[str, SourceState],
        policy: str,
        *,
        patterns: Sequence[str] | None,
        max_bytes: int,
        prune: bool,
        skip_duplicates: bool,
        ignore: Sequence[str] | None = None,
    ) -> None:
        self.run = run
        self.stored = stored
        self.policy = policy
        self.patterns = patterns
        self.ignore = ignore
        self.max_bytes = max_bytes
        self.prune = prune
        self.skip_duplicates = skip_duplicates
        self.states: States = {}
        self._our_roots: set[str] | None = None
        self._twins = {
            (old.checksum, old.mime): doc_id
            for doc_id, old in stored.items()
            if old.chunk_policy == policy and old.is_whole
        }
        self._root = run.roots[0]
        self._real_root = real_folder(run.root)

    def plan(self, files: Sequence[Path], report: UpdateReport) -> Plan:
        """Hash every file and plan its work; nothing is parsed, and no time stamp is trusted."""
        plan = Plan()
        states = self.states
        for path in files:
            with self.run.reporting(path):
                doc_id = document_id(path, self.run.root, collection=self.run.collection)
                plan.found.add(doc_id)
                states[doc_id] = (
                    path,
                    file_state(path, self.run.root, collection=self.run.collection, max_bytes=self.max_bytes),
                )
        plan.missing = self._missing(plan, states, report.skipped)
        left_out = self._duplicates(states, plan, report)
        moved = self._moved(plan, states)
        refused = Counter[str]()
        for doc_id, (path, state) in states.items():
            old = self.stored.get(doc_id)
            if doc_id in left_out:
                continue
            if old is not None and old.collection != self.run.collection:
                reason = f"collection {old.collection!r} has a document of this doc_id; rename the file"
                self.run.fail(Failure(doc_id, "failed", reason))
                continue
            is_row = old is not None and old.mime.startswith(ROW)
            elsewhere = old is not None and (is_row or self._is_of_another(doc_id, old, states))
            if old is not None and old.is_whole and (old.checksum, old.mime) == (state.checksum, state.mime):
                if not elsewhere and (old.file_path, old.modified_at) != (state.file_path, state.modified_at):
                    plan.touched.append((doc_id, state.file_path, state.modified_at))
                if old.chunk_policy in (None, self.policy):
                    plan.unchanged.append(doc_id)
            elif old is not None and elsewhere:
                where = "a program or an upload" if root_of(doc_id, old) is None else old.file_path
                reason = (
                    f"the store has a document of this doc_id from {'a table' if is_row else where}; delete that one "
                    "(delete_documents), or give this folder a collection of its own (collection='NAME')"
                )
                self.run.fail(Failure(doc_id, "failed", reason))
                refused[self._root_of(doc_id, old) or ""] += 1
            else:
                twin = moved.get(doc_id) or self._twins.get((state.checksum, state.mime))
                plan.work.append(Work(doc_id, path, state.checksum, twin))
                if self.prune and doc_id in moved:
                    plan.renamed[doc_id] = moved[doc_id]
        for root, count in sorted(refused.items()):
            if root not in ("", UNKNOWN) and find_stored(root) is None:
                have = "has" if count == 1 else "have"
                report.warnings.append(
                    f"{counted(count, 'file')} here {have} the name of a document of {root}, which is not there. Fewer "
                    "than half of its documents are here as they were, so this is taken for another folder. If it is "
                    "that one, changed since: remove the documents from there, then update again (sqlrag update FILE "
                    f"{shlex.quote(root)} --prune; delete_documents)."
                )
        unknown = [doc_id for doc_id in self._by_root().get(UNKNOWN, ()) if doc_id not in states]
        if unknown:
            report.warnings.append(
                f"{counted(len(unknown), 'document')} of the file, such as {unknown[0]}, came from another format, "
                "which does not have the folder, and no file of that name is here. An update with prune leaves what is "
                "not known to be of its folder: update the right folder, or delete them (delete_documents)."
            )
        if self.prune:
            renamed = set(plan.renamed.values())
            plan.removed += [doc_id for doc_id in plan.missing if doc_id not in renamed]
            plan.missing = []
        return plan

    def to_rechunk(self, plan: Plan) -> list[str]:
        """Return the documents that were chunked by another policy and stay, those of other folders too."""
        leaving = {*(work.doc_id for work in plan.work), *plan.removed, *plan.repeated, *plan.renamed.values()}
        other = (doc_id for doc_id, old in self.stored.items() if old.chunk_policy not in (None, self.policy))
        return [doc_id for doc_id in other if doc_id not in leaving]

    def relative(self, doc_id: str) -> str:
        """Return the path below the root that a document of this collection has."""
        return relative(doc_id, self.run.collection)

    def is_gone(self, doc_id: str, found: set[str], skipped: Sequence[SkippedFile]) -> bool:
        """Return whether a document of this folder has no file any more, as far as this run could see."""
        name = self.relative(doc_id)
        return (
            doc_id not in found
            and matches(name, self.patterns)
            and not any(
                name == file.path or file.path == "." or name.startswith(file.path + "/")
                for file in skipped
                if not isinstance(file, IgnoredFile)
            )
        )

    def _missing(self, plan: Plan, states: States, skipped: Sequence[SkippedFile]) -> list[str]:
        """Return the documents that were read from this folder and are not in it any more."""
        missing = []
        for root, doc_ids in self._by_root().items():
            if root not in self._ours(states) or root == UNKNOWN:
                continue
            gone = [doc_id for doc_id in doc_ids if self.is_gone(doc_id, plan.found, skipped)]
            missing += gone
            if root != self._root:  # else the next run would not recognise them as its own
                plan.touched += [
                    (doc_id, f"{self._root}/{self.relative(doc_id)}", self.stored[doc_id].modified_at)
                    for doc_id in gone
                ]
        return sorted(missing)

    def _by_root(self) -> dict[str, list[str]]:
        """Return the documents of this collection by the folder that they were read from."""
        roots: dict[str, list[str]] = {}
        for doc_id, state in self.stored.items():
            root = self._root_of(doc_id, state)
            if root is not None and state.chunk_policy is not None:
                roots.setdefault(root, []).append(doc_id)
        return roots

    def _root_of(self, doc_id: str, state: SourceState) -> str | None:
        return root_of(doc_id, state) if state.collection == self.run.collection else None

    def _ours(self, states: States) -> set[str]:
        """Return the folders that are this one, by whatever links, and those that have been moved here.

        A folder that is gone was moved here if at least half of its documents are here as they were, by name and bytes.
        """
        if self._our_roots is None:
            self._our_roots = set()
            for root, doc_ids in self._by_root().items():
                if real_folder(root) == self._real_root or self._was_moved_here(root, doc_ids, states):
                    self._our_roots.add(root)
        return self._our_roots

    def _was_moved_here(self, root: str, doc_ids: Sequence[str], states: States) -> bool:
        """Return whether a folder is gone, and half of its documents, by name and bytes, are in this one."""
        prefix = "" if self.run.collection == DEFAULT_COLLECTION else f"{self.run.collection}:"
        same = 0
        for doc_id in doc_ids:
            old = self.stored[doc_id]
            here = states.get(prefix + relative(doc_id, old.collection))
            same += here is not None and here[1].checksum == old.checksum
        return 2 * same >= len(doc_ids) and find_stored(root) is None

    def moved_from_other_collections(self, db_path: str | os.PathLike[str], *, dry_run: bool) -> list[str]:
        """Return a note for each folder of another collection that was moved here, where this one is new."""
        folders: dict[tuple[str, str], list[str]] = {}
        for doc_id, old in self.stored.items() if not self._ours(self.states) else ():
            root = root_of(doc_id, old)
            if old.collection != self.run.collection and old.chunk_policy is not None and root is not None:
                folders.setdefault((old.collection, root), []).append(doc_id)
        removal = "" if dry_run else f"; and remove it here: {_removal(db_path, self._root, self.run.collection)}"
        gone = "The documents of {} (collection {!r}), which is not there any more, are here. If that folder was moved,"
        unknown = "The documents of the collection {1!r}, of which no folder was known, are here. If this is it,"
        return [
            f"{(unknown if root == UNKNOWN else gone).format(root, collection)} update it there: update_embeddings("
            f"input_dir={self._root!r}, db_path={os.fspath(db_path)!r}, collection={collection!r}){removal}."
            for (collection, root), doc_ids in sorted(folders.items())
            if self._was_moved_here(root, doc_ids, self.states)
        ]

    def _is_of_another(self, doc_id: str, old: SourceState, states: States) -> bool:
        """Return whether a stored document is not this folder's, so that a file of its name must not replace it."""
        root = self._root_of(doc_id, old)
        if root in self._ours(states) or (root == UNKNOWN and old.checksum == states[doc_id][1].checksum):
            return False
        path = find_stored(old.file_path) if old.file_path else None
        return path is None or not path.samefile(states[doc_id][0])

    def _duplicates(self, states: States, plan: Plan, report: UpdateReport) -> set[str]:
        """Report files of the same bytes; return those to leave out."""
        # The same bytes under another suffix are another document.
        contents = {doc_id: f"{state.checksum} {state.mime}" for doc_id, (_, state) in states.items()}
        kept = [
            doc_id
            for doc_id, (_, state) in states.items()
            if self.skip_duplicates and doc_id in self.stored and self.stored[doc_id].checksum == state.checksum
        ]
        gone = {*states, *plan.missing}
        others = {
            doc_id: f"{old.checksum} {old.mime}"
            for doc_id, old in self.stored.items()
            if old.collection == self.run.collection and old.is_whole and doc_id not in gone
        }
        # Of stored ones the first by its id stays, so that two folders do not each lose it to the other.
        found = find_duplicates(contents | others, sorted([*kept, *others]))
        report.duplicates = [twin for twin in found if twin.doc_id in states]
        if not self.skip_duplicates:
            return set()
        if self.prune:
            plan.repeated = {
                twin.doc_id: twin.same_as
                for twin in report.duplicates
                if twin.doc_id in self.stored and not self._is_of_another(twin.doc_id, self.stored[twin.doc_id], states)
            }
        return {twin.doc_id for twin in report.duplicates if twin.doc_id not in self.stored or self.prune}

    def _moved(self, plan: Plan, states: States) -> dict[str, str]:
        """Return the new files that are missing documents under another name, each with that document."""
        left: dict[tuple[str, str], list[str]] = {}
        for doc_id in reversed(plan.missing):
            left.setdefault((self.stored[doc_id].checksum, self.stored[doc_id].mime), []).append(doc_id)
        moved = {}
        for doc_id, (_, state) in states.items():
            candidates = left.get((state.checksum, state.mime))
            if doc_id not in self.stored and candidates:
                old = candidates.pop()
                if self.stored[old].chunk_policy == self.policy and self.stored[old].is_whole:
                    moved[doc_id] = old
        return moved


class Folder(NamedTuple):
    """A folder that documents of a file were read from, with the patterns of the last time and what was ignored."""

    collection: str
    path: str
    patterns: list[str] | None = None
    ignore: list[str] | None = None


def folders_of(
    db_path: str | os.PathLike[str], *, wait_seconds: float | None = None
) -> tuple[list[Folder], dict[str, RowSource], dict[str, int]]:
    """Return the folders that the documents of a file were read from, in order, and its sources of rows.

    The last is how many documents came from another format, which does not have their folder, by collections of which
    no folder is known.

    Raises
    ------
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        The file cannot be read.
    """
    with reported(db_path), Database.open(db_path, wait_seconds=wait_seconds) as database:
        con = database.cursor()
        states = read_states(con)
        folders = _folders(con, states)
        known = {one.collection for one in folders}
        unknown = Counter(one.collection for doc_id, one in states.items() if root_of(doc_id, one) == UNKNOWN)
        return folders, row_tables.sources(con), {name: unknown[name] for name in sorted(unknown.keys() - known)}


def _folders(con: duckdb.DuckDBPyConnection, states: Mapping[str, SourceState]) -> list[Folder]:
    patterns, ignored = metadata.patterns_of(con)
    found = {
        (state.collection, root)
        for doc_id, state in states.items()
        if state.chunk_policy is not None and (root := root_of(doc_id, state)) not in (None, UNKNOWN)
    }
    # Of these there may be no documents now.
    found |= {*metadata.folders(con)}
    found |= {one for one in metadata.earlier_folders(con) if find_stored(one[1]) is not None}
    return [Folder(*one, *(known.get(":".join(one)) or None for known in (patterns, ignored))) for one in sorted(found)]


def twice_read(db_path: str | os.PathLike[str], folders: Sequence[Folder], of: str | None = None) -> list[str]:
    """Return a note for each folder, or one, whose documents are in a file under more than one collection."""
    places: dict[str, set[str]] = {}
    for one in folders:
        places.setdefault(real_folder(one.path), set()).add(one.collection)
    twice = {
        place: sorted(names, key=lambda name: (name != DEFAULT_COLLECTION, name))
        for place, names in places.items()
        if len(names) > 1 and (of is None or place == real_folder(of))
    }
    return [
        f"The folder {place} is in {db_path} as the collections {' and '.join(map(repr, names))}, so each of its "
        f"documents is there {'twice' if len(names) == 2 else f'{len(names)} times'}. To remove it from one: "
        + ", or ".join(_removal(db_path, place, name) for name in names)
        + "."
        for place, names in twice.items()
    ]


def _removal(db_path: str | os.PathLike[str], folder: str, collection: str) -> str:
    """Return the call that removes what a collection has of a folder."""
    return f"delete_documents({os.fspath(db_path)!r}, folder={folder!r}, collection={collection!r})"


def _refuse_nested(run: Run, files: Sequence[Path], folders: Sequence[Folder], db_path: str | os.PathLike[str]) -> None:
    """Raise InputError for a new folder with files that are also read of a folder of its collection around or below it.

    What the other folder leaves out may be of the new one.
    """
    place = Path(os.path.realpath(run.root))
    known = [(one, Path(os.path.realpath(find_stored(one.path) or one.path))) for one in folders]
    others = {path: one for one, path in known if one.collection == run.collection}
    for path, one in others.items() if place not in others else ():
        is_below = place.is_relative_to(path)
        if not path.is_dir() or not (is_below or path.is_relative_to(place)):
            continue
        theirs = {os.path.realpath(file) for file in find_files(path, patterns=one.patterns, ignore=one.ignore)[0]}
        twice = theirs.intersection(map(os.path.realpath, files))
        if twice:
            of_collection = "" if run.collection == DEFAULT_COLLECTION else f", collection={run.collection!r}"
            again = f"update_embeddings({one.path!r}, {os.fspath(db_path)!r}{of_collection})"
            rest = "" if is_below else f"To add the rest: ignore='{path.relative_to(place).as_posix()}/'. "
            raise InputError(
                f"The folder {place} {'lies in' if is_below else 'holds'} {path}, which the collection "
                f"{run.collection!r} of {db_path} has already, so {counted(len(twice), 'file')} would be there twice. "
                f"{again} brings that folder up to date, with all below it. {rest}To have both, give this one a "
                "collection of its own (collection='NAME')."
            )


def _kept_of(db_path: str | os.PathLike[str], folder: str | os.PathLike[str], collection: str) -> str:
    """Return a sentence on what a file has of a folder that is empty now, "" where it does not know the folder."""
    place = real_folder(folder)
    with suppress(SqlragError), reported(db_path), Database.open(db_path) as database:
        states = read_states(database.cursor())
        known = [one.path for one in _folders(database.cursor(), states) if one.collection == collection]
        if place not in known:
            return ""
        count = [root_of(doc_id, one) for doc_id, one in states.items() if one.collection == collection].count(place)
        stay = f" {counted(count, 'document')} of it {'stays' if count == 1 else 'stay'} in the file." if count else ""
        remedy = _removal(db_path, place, collection)
        return f"{stay} It may be on a disk that is not mounted; if it is empty for good: {remedy}."
    return ""


_REEMBED = "reembed(db_path, model) gives a file another model."


@public
def update_embeddings(
    input_dir: str | os.PathLike[str],
    db_path: str | os.PathLike[str],
    *,
    prune: bool = False,
    skip_duplicates: bool = False,
    collection: str = DEFAULT_COLLECTION,
    patterns: Sequence[str] | None = None,
    ignore: Sequence[str] | None = None,
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
    dry_run: bool = False,
    wait_seconds: float | None = None,
    verbose: bool = True,
    progress: Progress = "auto",
) -> UpdateReport:
    """Bring a file made by :func:`prepare_embeddings` up to date with a folder.

    A file whose bytes (SHA-256, never its time) are those of the stored document costs a hash; where nothing has
    changed no model is loaded. What is new or has changed is read, chunked and embedded first, then written in place of
    the old rows, in one transaction for each batch of whole documents: a search sees the old or the new state. Killed
    at any moment, the file holds whole documents, and the next run does the rest.

    Texts of which the file has a vector are not embedded again. A file of the same bytes as a stored document,
    such as a renamed one, takes over the chunks and vectors of that document. For a changed file the chunks are
    looked up by the text that is embedded (heading path and slice), among all chunks of the file; only new ones go to
    the model.
    Vectors that a program gave (``Store.upsert``) are never reused.

    Model, chunk policy and stemmer are those of the file, where they are not given. Another chunk policy rechunks
    every document, those of other folders from their stored text; another stemmer reindexes every chunk. Chunks that
    a program made stay as they are until their file changes.

    Parameters
    ----------
    input_dir
        The folder, searched to any depth. Documents of other folders stay untouched: a file of the same name as one of
        theirs is a failure, unless it has the same bytes.
    db_path
        The file to change.
    prune
        Remove the documents that were read from this folder and are not in it any more, are ignored now, or have no
        text any more.
        Files that are there but not read (other patterns, unreadable folders) count as present. False: nothing is
        removed, the report names them as ``missing``.
    skip_duplicates
        Leave out files with the same bytes and type as another one of the collection: the one that is stored stays,
        also of another folder, else the first. With ``prune`` also those that were stored before.
    collection
        The collection that the folder is.
    patterns, ignore, max_bytes, pdf_extractor
        As for :func:`prepare_embeddings`; ``prune`` is limited to names that match. None is as there, whatever an
        earlier call was given. The file keeps what the last call was given, for ``sqlrag update``.
    embedder
        The file's model, loaded by you, in place of loading it by the name that the file has; whatever
        :func:`prepare_embeddings` takes.
    embed_model_name
        A check only: another model than the file's is refused.
    chunk_size, chunk_overlap, chunk_unit, use_markdown_chunking, include_headers_in_chunks
        Another chunk policy for the whole file. None: that of the file.
    stemmer
        Another stemmer for the whole file. None: that of the file.
    dry_run
        Change nothing: the report says what would be added, changed, renamed and removed, by the bytes of the files.
        What of them cannot be read shows only when they are.
    wait_seconds
        How long to wait for another process that has the file open.
    verbose, progress
        As for :func:`prepare_embeddings`.

    Returns
    -------
    UpdateReport
        What became of each file.

    Raises
    ------
    InputError
        An option is out of its range; or the folder lies in another one of the collection, or around one, and both
        would read the same files.
    NotFoundError
        The folder or the file does not exist, or the folder has no file to read: an empty folder (a disk that is not
        mounted) never empties a file.
    ModelMismatchError
        The model is not that of the file; nothing has been changed.
    NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        The file cannot be written.
    ModelUnavailableError, MissingExtraError, ProviderError
        The model cannot be loaded, or fails. In the latter case the documents that were finished stay,
        ``ingest_failures`` names the others, and the error has a ``report``.
    """
    collection = checked_collection(collection, max_bytes)
    check_types(
        input_dir,
        patterns,
        pdf_extractor,
        progress,
        embed_model_name,
        ignore=ignore,
        prune=prune,
        skip_duplicates=skip_duplicates,
        dry_run=dry_run,
        verbose=verbose,
        use_markdown_chunking=use_markdown_chunking,
        include_headers_in_chunks=include_headers_in_chunks,
    )
    if stemmer is not None:
        lexical.check_stemmer(stemmer)
    files, skipped = find_files(input_dir, patterns=patterns, ignore=ignore)
    if not files:
        kept = "" if skipped else _kept_of(db_path, input_dir, collection)
        raise NotFoundError(f"{nothing_to_read(input_dir, skipped, patterns)}{kept}")

    report = UpdateReport(files=len(files), skipped=list(skipped), dry_run=dry_run)
    run = Run("update", Path(input_dir).expanduser(), collection, report)
    run.read = lambda path, root: read_document(
        path, root, collection=collection, max_bytes=max_bytes, pdf_extractor=pdf_extractor
    )
    with (
        Database.open(db_path, read_only=dry_run, wait_seconds=wait_seconds) as database,
        nullcontext() if dry_run else Kept(database.path, report.warnings, updating=True) as run.kept,
    ):
        update = Update(database, run, report, None if embedder is None else as_embedder(embedder), embed_model_name)
        update.choose_policy(
            wanted_policy(chunk_size, chunk_overlap, chunk_unit, use_markdown_chunking, include_headers_in_chunks)
        )
        stored = read_states(database.cursor())
        folders = _folders(database.cursor(), stored)
        _refuse_nested(run, files, folders, db_path)
        planner = Planner(
            run,
            stored,
            policy_text(run.policy),
            patterns=patterns,
            max_bytes=max_bytes,
            prune=prune,
            skip_duplicates=skip_duplicates,
            ignore=ignore,
        )
        with run.timed("find"):
            plan = planner.plan(files, report)
        report.warnings += planner.moved_from_other_collections(db_path, dry_run=dry_run)
        if dry_run:
            update.foresee(plan, planner, stemmer)
            report.warnings += filter(None, [left_by_an_interrupted_run(database.path)])
            return report
        update.run(plan, planner, stemmer, bar_is_off(progress, verbose=verbose))
        with run.timed("store"):
            update.finish(plan, planner)
            if report.documents or report.unchanged:
                report.warnings += twice_read(db_path, [*folders, Folder(collection, run.input_dir)], run.input_dir)
        run.stop_if_down("What was finished stays; the next update does the rest.")
    return report


def apply_settings(
    db_path: str | os.PathLike[str],
    *,
    chunk_size: int | None = None,
    chunk_overlap: int | None = None,
    chunk_unit: ChunkUnit | None = None,
    use_markdown_chunking: bool | None = None,
    include_headers_in_chunks: bool | None = None,
    stemmer: str | None = None,
    embedder: Embedder | None = None,
    embed_model_name: str | None = None,
    wait_seconds: float | None = None,
    bar_off: bool | None = True,
) -> UpdateReport:
    """Rechunk every document from its stored text, or reindex every chunk with another stemmer; no folder is read.

    Chunks that a program made stay as they are.

    Raises
    ------
    InputError
        A setting is out of its range.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        The file cannot be written.
    ModelMismatchError, ModelUnavailableError, MissingExtraError, ProviderError
        The model cannot be loaded, is not that of the file, or fails; the file is then of both settings.
    """
    wanted = wanted_policy(chunk_size, chunk_overlap, chunk_unit, use_markdown_chunking, include_headers_in_chunks)
    with Database.open(db_path, read_only=False, wait_seconds=wait_seconds) as database:
        return change_settings(database, wanted, stemmer, embedder, bar_off, embed_model_name)


def change_settings(
    database: Database,
    policy: Mapping[str, object],
    stemmer: str | None,
    embedder: Embedder | None,
    bar_off: bool | None,
    model_name: str | None = None,
) -> UpdateReport:
    """Do what :func:`apply_settings` does in a file that is open; ``policy`` are the fields that are to be others."""
    if stemmer is not None:
        lexical.check_stemmer(stemmer)
    report = UpdateReport()
    run = Run("update", Path(), DEFAULT_COLLECTION, report)
    run.input_dir = ""
    update = Update(database, run, report, embedder, model_name)
    update.choose_policy(policy)
    states, new = read_states(database.cursor()), policy_text(run.policy)
    planner = Planner(run, states, new, patterns=None, max_bytes=MAX_BYTES, prune=False, skip_duplicates=False)
    update.run(Plan(), planner, stemmer, bar_off)
    run.stop_if_down("The file is partly of the new settings.")
    return report


def wanted_policy(
    chunk_size: int | None,
    chunk_overlap: int | None,
    chunk_unit: str | None,
    markdown: bool | None = None,
    headers: bool | None = None,
) -> dict[str, object]:
    """Return the fields of a chunk policy that were given."""
    fields = {
        "strategy": None if markdown is None else "markdown" if markdown else "size",
        "chunk_size": chunk_size,
        "chunk_overlap": chunk_overlap,
        "chunk_unit": chunk_unit,
        "include_headers": headers,
    }
    return {name: value for name, value in fields.items() if value is not None}


def changed_policy(policy: ChunkPolicy, wanted: Mapping[str, object]) -> ChunkPolicy:
    """Return a chunk policy with other fields, whose overlap is the default of another size; raise InputError."""
    changed = replace(policy, **wanted)  # type: ignore[arg-type]
    sizes = (changed.chunk_size, changed.chunk_unit) == (policy.chunk_size, policy.chunk_unit)
    if "chunk_overlap" not in wanted and not sizes:
        changed = replace(changed, chunk_overlap=default_overlap(changed.chunk_size, changed.chunk_unit))
    check_policy(changed)
    return changed


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
        if run.kept is not None:
            run.kept.identity = self.identity
        self.policy = chunk_policy_of(database.path, self.metadata)
        self.stemmer = self.metadata["stemmer"]
        self._given = embedder
        self._lists: dict[str, list[str]] = {}
        if embedder is not None and embedder.dimensions != self.identity.dimensions:
            self._check(embedder)
        if model_name is not None and short_name(model_name) != short_name(self.identity.model_name):
            raise ModelMismatchError(
                f"{database.path} was built with the model {self.identity.model_name!r}; you passed {model_name!r}. "
                f"{_REEMBED}"
            )

    def choose_policy(self, wanted: Mapping[str, object]) -> None:
        """Set the chunk policy of the run: that of the file with the caller's changes."""
        policy = changed_policy(self.policy, wanted)
        if policy != self.policy:
            policy = fit_to_window(policy, self._model(), self.report, stacklevel=5)
        self.state.policy = policy

    def run(self, plan: Plan, planner: Planner, stemmer: str | None, bar_off: bool | None) -> None:
        """Write what has changed; nothing is written before it is known that the model is the file's.

        Where the provider fails, the run's ``outage`` says why.
        """
        try:
            self._work(plan, planner, stemmer, bar_off)
        except ProviderError as error:  # the model could not even be checked
            self.state.outage = error

    def foresee(self, plan: Plan, planner: Planner, stemmer: str | None) -> None:
        """Say what a run would do, as far as that is known before a file is read."""
        report = self.report
        report.run_id = ""
        report.renamed = sorted(Rename(old, new) for new, old in plan.renamed.items())
        for work in plan.work:
            if work.doc_id not in plan.renamed:
                (report.changed if work.doc_id in planner.stored else report.added).append(work.doc_id)
        report.added.sort()
        report.changed.sort()
        failed = {*metadata.failed_documents(self.database.cursor(), self.state.collection)}
        if again := [doc_id for doc_id in report.added if doc_id in failed]:
            more = ", …" * bool(again[5:])
            report.warnings.append(
                f"Could not be read the last time, and is tried again: {', '.join(again[:5])}{more}."
            )
        report.unchanged, report.missing = plan.unchanged, plan.missing
        report.removed = sorted({*plan.removed, *(plan.repeated if planner.prune else ())})
        report.rechunked = sorted(planner.to_rechunk(plan))
        report.reindexed = stemmer not in (None, self.stemmer)

    def unfinished(self, plan: Plan) -> list[Work]:
        """Return the files that were to be written, and neither were written nor have failed."""
        report = self.report
        done = {*report.added, *report.changed, *(rename.new for rename in report.renamed)}
        done.update(failure.doc_id for failure in report.failures)
        return [work for work in plan.work if work.doc_id not in done]

    def _work(self, plan: Plan, planner: Planner, stemmer: str | None, bar_off: bool | None) -> None:
        copies = [work for work in plan.work if work.twin is not None]
        late: list[Work] = []
        fresh = self._parsed(work for work in plan.work if work.twin is None)
        first = next(fresh, None)
        rest = planner.to_rechunk(plan)
        if first is not None or rest:
            self._model()
        report, stored = self.report, planner.stored
        self._lists = dict.fromkeys(rest, report.rechunked)
        self._lists.update({w.doc_id: report.changed if w.doc_id in stored else report.added for w in plan.work})
        self._change_settings(stemmer)
        if not plan.work and not rest:
            return

        with (
            Bar("embedding", "chunk", documents=len(plan.work) + len(rest), off=bar_off) as bar,
            noting(lambda: self._how_far(bar)),
        ):
            self.state.bar = bar
            if self.state.kept is not None:
                self.state.kept.how_far = lambda count: f"{max(bar.done, count):,} of {bar.extent} are"
            if first is not None:
                bar.read()
            for documents, chunks, vectors in self._copied(copies, late):
                self._write(documents, chunks, vectors, plan)
                bar.made(len(chunks), cost(chunks))
            sources = chain([] if first is None else [first], fresh, self._parsed(late), self._stored(rest))
            for written, cut in in_batches(self._cut(sources), self.state):
                with self.state.timed("embed"):
                    kept, chunks, vectors = self.state.embed(*self._free(self.database.cursor(), written, cut, plan))
                self._write(kept, chunks, vectors, plan)
                bar.made(len(cut), cost(cut))
                if self.state.outage is not None:
                    return

    def _how_far(self, bar: Bar) -> str:
        """Return what an interrupted update says, "" where nothing is written yet."""
        done = f"{bar.finished:,} of {bar.extent} are in {self.database.path}"
        return f"{done}; the next update goes on from there." if bar.finished else ""

    def finish(self, plan: Plan, planner: Planner) -> None:
        """Remove what is gone, and record the results of the run."""
        report, state = self.report, self.state
        if state.outage is not None:
            state.report_unfinished(work.doc_id for work in self.unfinished(plan))
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
            removed = delete(con, plan.removed)
            if removed:
                refresh_counts(con)
            report.removed = removed
            if plan.touched:
                refresh_sources(con, plan.touched)
            root = metadata.folder_of(con, state.collection)
            given = metadata.given_failures(con, state.collection)
            healed = [
                doc_id
                for doc_id in metadata.failed_documents(con, state.collection)
                if doc_id not in failing
                and (
                    doc_id in plan.found
                    or (
                        root == state.input_dir
                        and doc_id not in given
                        and planner.is_gone(doc_id, plan.found, report.skipped)
                    )
                )
            ]
            metadata.clear_failures(con, healed)
            metadata.record_failures(con, report.failures)
            # Documents that were given as bytes have no folder.
            if root is None or (state.input_dir and root != state.input_dir):
                metadata.record_collection(con, state.collection, state.input_dir)
                if root and find_stored(root) is not None:
                    metadata.keep_folder(con, state.collection, root)
            if state.input_dir:
                metadata.record_patterns(con, state.collection, state.input_dir, planner.patterns, planner.ignore)
            metadata.shorten_paths(con, state.collection, *state.roots)
            metadata.log_run(con, state.row(removed=len(removed) + len(report.renamed)))
            state.note_dates(con)
        state.log.info("%s: %r", state.root, report)

    def _model(self) -> Embedder:
        """Return the file's model, loaded at the first call and checked against the file."""
        from sqlrag.embedders.base import load_stored

        if self.state.embedder is None:
            remedy = "with. Pass an embedder, or index chunks with their vectors."
            embedder = self._given or load_stored(self.database.path, self.identity, remedy)
            self._check(embedder)
            self.state.embedder = embedder
            self.state.known = lambda texts: known_vectors(self.database.cursor(), texts, embedder.dimensions)
        return self.state.embedder

    def _check(self, embedder: Embedder) -> None:
        from sqlrag.embedders.base import check_stored

        check_stored(embedder, self.identity)

    def _change_settings(self, stemmer: str | None) -> None:
        """Write another chunk policy into the file, and reindex it with another stemmer."""
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
            self.state.bar.read()
            if document is not None:
                yield document

    def _stored(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        for doc_id in doc_ids:
            self.state.bar.read()
            yield from read_documents(self.database.cursor(), [doc_id])

    def _cut(self, documents: Iterable[Document]) -> Iterator[Cut]:
        for document in documents:
            self._model()  # where everything was to be copied, the first late document is what needs it
            cut = self.state.cut(document)
            if cut is not None:
                self.state.bar.expect(len(cut[1]), cost(cut[1]))
                yield cut

    def _copied(
        self, copies: Sequence[Work], late: list[Work]
    ) -> Iterator[tuple[list[Document], list[Chunk], Vectors]]:
        """Yield documents with the chunks and vectors of their twins; ``late`` gets those that must be chunked anew."""
        parts: dict[str, Vectors] = {}

        def cuts() -> Iterator[Cut]:
            for work in copies:
                document = self.state.parse(work.path)
                if document is None:
                    continue
                slices, vectors = read_slices(
                    self.database.cursor(), work.twin or "", document.checksum, self.identity.dimensions
                )
                if not slices or _is_named(slices[0].heading_path, document, work.twin or ""):
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

        for documents, chunks in in_batches(cuts()):
            self.state.bar.read(len(documents))
            self.state.bar.expect(len(chunks), cost(chunks))
            self.report.reused += len(chunks)
            yield documents, chunks, np.concatenate([parts.pop(document.doc_id) for document in documents])

    def _write(self, documents: list[Document], chunks: list[Chunk], vectors: Vectors, plan: Plan) -> None:
        """Replace documents, also under their old names, in one transaction."""
        with self.state.timed("store"), self.database.transaction() as con:
            # Again: another program may have written since, or the owner of an id is not replaced after all.
            documents, free = self._free(con, documents, chunks, plan)
            if len(free) < len(chunks):
                ids = {document.doc_id for document in documents}
                vectors = vectors[[chunk.doc_id in ids for chunk in chunks]]
            replace_rows(
                con,
                documents,
                free,
                vectors,
                stemmer=self.stemmer,
                llama_index_compatible=self.metadata.get("llama_index_compatible", "True") == "True",
                policy=policy_text(self.state.policy),
                gone=_old_names(documents, plan),
            )
        report = self.report
        report.documents += len(documents)
        report.chunks += len(free)
        for document in documents:
            doc_id = document.doc_id
            if doc_id in plan.renamed:
                report.renamed.append(Rename(plan.renamed[doc_id], doc_id))
            else:
                self._lists[doc_id].append(doc_id)

    def _free(
        self, con: duckdb.DuckDBPyConnection, documents: list[Document], chunks: list[Chunk], plan: Plan
    ) -> tuple[list[Document], list[Chunk]]:
        """Return the documents that can be written, with their chunks: no id of them is that of another's chunk.

        The others are reported. All of the documents are written in one step, so their old chunks do not count.
        """
        while True:
            leaving = [*(document.doc_id for document in documents), *_old_names(documents, plan)]
            found = dict(taken(con, [chunk.node_id for chunk in chunks], leaving))
            if not found:
                return documents, chunks
            refused: dict[str, str] = {}
            for chunk in chunks:
                if chunk.node_id in found:
                    refused.setdefault(chunk.doc_id, chunk.node_id)
            for doc_id, node_id in refused.items():
                remedy = "Delete that chunk (Store.delete_chunks) or document, or rename this one"
                self.state.fail(Failure(doc_id, "failed", f"{same_id(node_id, found[node_id])}. {remedy}"))
            documents = [document for document in documents if document.doc_id not in refused]
            chunks = [chunk for chunk in chunks if chunk.doc_id not in refused]


def _old_names(documents: Iterable[Document], plan: Plan) -> list[str]:
    """Return the ids that renamed documents had."""
    return [plan.renamed[document.doc_id] for document in documents if document.doc_id in plan.renamed]


def _is_named(path: tuple[str, ...], document: Document, twin: str) -> bool:
    """Return whether a path begins with the name of a document's twin, and the document has another."""
    name = name_title(replace(document, doc_id=twin))
    begins = bool(path) and name.startswith(path[0].removesuffix("…"))
    return begins and name != name_title(document)
