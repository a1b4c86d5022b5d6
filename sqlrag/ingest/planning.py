"""Compare a folder with what a file holds of it: what is new, changed, renamed, the same or gone."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from sqlrag.ingest.reading import FileState, clean_path, document_id, file_state, find_stored, matches
from sqlrag.ingest.report import Failure
from sqlrag.ingest.run import find_duplicates
from sqlrag.types import DEFAULT_COLLECTION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from sqlrag.ingest.reading import SkippedFile
    from sqlrag.ingest.report import UpdateReport
    from sqlrag.ingest.run import Run
    from sqlrag.store.sources import SourceState

    _States = dict[str, tuple[Path, FileState]]


class Work(NamedTuple):
    """A file that has to be written. ``twin`` is a stored document of the same bytes, whose chunks can be copied."""

    doc_id: str
    path: Path
    checksum: str
    twin: str | None


@dataclass
class Plan:
    """What has to be done.

    ``renamed`` is by new id; ``touched`` are unchanged but for path or time; ``repeated`` are stored documents that go
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

    ``policy`` is the text of the chunk policy that holds from now on; ``stored`` is every document of the file.
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
    ) -> None:
        self.run = run
        self.stored = stored
        self.policy = policy
        self.patterns = patterns
        self.max_bytes = max_bytes
        self.prune = prune
        self.skip_duplicates = skip_duplicates
        self._our_roots: set[str] | None = None
        self._twins = {
            (old.checksum, old.mime): doc_id
            for doc_id, old in stored.items()
            if old.chunk_policy == policy and old.is_whole
        }
        self._root = clean_path(str(run.root.absolute()))
        self._real_root = clean_path(os.path.realpath(run.root))

    def plan(self, files: Sequence[Path], report: UpdateReport) -> Plan:
        """Hash every file and sort it in; nothing is parsed, and no time stamp is trusted."""
        plan = Plan()
        states: _States = {}
        for path in files:
            with self.run.told(path):
                doc_id = document_id(path, self.run.root, collection=self.run.collection)
                plan.found.add(doc_id)
                states[doc_id] = (
                    path,
                    file_state(path, self.run.root, collection=self.run.collection, max_bytes=self.max_bytes),
                )
        plan.missing = self._missing(plan, states, report.skipped)
        left_out = self._duplicates(states, plan, report)
        moved = self._moved(plan, states)
        for doc_id, (path, state) in states.items():
            old = self.stored.get(doc_id)
            if doc_id in left_out:
                continue
            if old is not None and old.collection != self.run.collection:
                reason = f"collection {old.collection!r} has a document of this doc_id; rename the file"
                self.run.fail(Failure(doc_id, "failed", reason))
                continue
            elsewhere = old is not None and self._is_of_another(doc_id, old, states)
            if old is not None and old.is_whole and (old.checksum, old.mime) == (state.checksum, state.mime):
                if not elsewhere and (old.file_path, old.modified_at) != (state.file_path, state.modified_at):
                    plan.touched.append((doc_id, state.file_path, state.modified_at))
                if old.chunk_policy in (None, self.policy):
                    plan.unchanged.append(doc_id)
            elif old is not None and elsewhere:
                reason = (
                    f"the store has a document of this doc_id from {old.file_path or 'a program'}; delete that one "
                    "(delete_documents), or give this folder a collection of its own (collection)"
                )
                self.run.fail(Failure(doc_id, "failed", reason))
            else:
                twin = moved.get(doc_id) or self._twins.get((state.checksum, state.mime))
                plan.work.append(Work(doc_id, path, state.checksum, twin))
                if self.prune and doc_id in moved:
                    plan.renamed[doc_id] = moved[doc_id]
        if self.prune:
            renamed = set(plan.renamed.values())
            plan.removed += [doc_id for doc_id in plan.missing if doc_id not in renamed]
            plan.missing = []
        return plan

    def cut_otherwise(self) -> list[str]:
        """Return the documents that were cut by another chunk policy, those of other folders too."""
        return [doc_id for doc_id, old in self.stored.items() if old.chunk_policy not in (None, self.policy)]

    def relative(self, doc_id: str) -> str:
        """Return the path below the root that a document of this collection has."""
        prefix = "" if self.run.collection == DEFAULT_COLLECTION else f"{self.run.collection}:"
        return doc_id.removeprefix(prefix)

    def is_gone(self, doc_id: str, found: set[str], skipped: Sequence[SkippedFile]) -> bool:
        """Return whether a document of this folder has no file any more, as far as this run could see."""
        name = self.relative(doc_id)
        return (
            doc_id not in found
            and matches(name, self.patterns)
            and not any(name == file.path or file.path == "." or name.startswith(file.path + "/") for file in skipped)
        )

    def _missing(self, plan: Plan, states: _States, skipped: Sequence[SkippedFile]) -> list[str]:
        """Return the documents that were read from this folder and are not in it any more."""
        missing = []
        for root, doc_ids in self._by_root().items():
            if root not in self._ours(states):
                continue
            gone = [doc_id for doc_id in doc_ids if self.is_gone(doc_id, plan.found, skipped)]
            missing += gone
            if root != self._root:  # else the next run would not know them for its own
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
        """Return the folder that a document was read from, None where a program gave it."""
        name = "/" + self.relative(doc_id)
        if state.collection != self.run.collection or not state.file_path.endswith(name):
            return None
        return state.file_path.removesuffix(name) or "/"

    def _ours(self, states: _States) -> set[str]:
        """Return the folders that are this one, by whatever links, and those that have been moved here.

        A folder that is gone was moved here if at least half of its documents are here as they were, by name and bytes.
        """
        if self._our_roots is None:
            self._our_roots = set()
            for root, doc_ids in self._by_root().items():
                same = sum(
                    doc_id in states and states[doc_id][1].checksum == self.stored[doc_id].checksum
                    for doc_id in doc_ids
                )
                is_here = clean_path(os.path.realpath(root)) == self._real_root
                if is_here or (2 * same >= len(doc_ids) and find_stored(root) is None):
                    self._our_roots.add(root)
        return self._our_roots

    def _is_of_another(self, doc_id: str, old: SourceState, states: _States) -> bool:
        """Return whether a stored document is not this folder's, so that a file of its name must not replace it."""
        root = self._root_of(doc_id, old)
        if root in self._ours(states):
            return False
        path = find_stored(old.file_path) if old.file_path else None
        return path is None or not path.samefile(states[doc_id][0])

    def _duplicates(self, states: _States, plan: Plan, report: UpdateReport) -> set[str]:
        """Report files of the same bytes; return those to leave out."""
        # The same bytes under another suffix are another document.
        contents = {doc_id: f"{state.checksum} {state.mime}" for doc_id, (_, state) in states.items()}
        kept = [
            doc_id
            for doc_id, (_, state) in states.items()
            if self.skip_duplicates and doc_id in self.stored and self.stored[doc_id].checksum == state.checksum
        ]
        report.duplicates = find_duplicates(contents, kept)
        if not self.skip_duplicates:
            return set()
        if self.prune:
            plan.repeated = {
                twin.doc_id: twin.same_as
                for twin in report.duplicates
                if twin.doc_id in self.stored and not self._is_of_another(twin.doc_id, self.stored[twin.doc_id], states)
            }
        return {twin.doc_id for twin in report.duplicates if twin.doc_id not in self.stored or self.prune}

    def _moved(self, plan: Plan, states: _States) -> dict[str, str]:
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
