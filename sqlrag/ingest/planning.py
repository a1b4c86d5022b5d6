"""Compare a folder with what a file holds of it: what is new, changed, renamed, the same or gone."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from sqlrag.ingest.reading import FileState, clean_path, document_id, file_state, matches
from sqlrag.ingest.report import Failure
from sqlrag.ingest.run import find_duplicates
from sqlrag.types import DEFAULT_COLLECTION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from sqlrag.ingest.reading import SkippedFile
    from sqlrag.ingest.report import UpdateReport
    from sqlrag.ingest.run import Run
    from sqlrag.store.sources import SourceState


class Work(NamedTuple):
    """A file that has to be written. ``twin`` is a stored document of the same bytes, whose chunks can be copied."""

    doc_id: str
    path: Path
    checksum: str
    twin: str | None


@dataclass
class Plan:
    """What has to be done.

    ``renamed`` is by new id; ``touched`` are unchanged but for path or time; ``found`` are all that have a file,
    whether it can be used or not.
    """

    work: list[Work] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    touched: list[tuple[str, FileState]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
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
        self._roots: dict[str, bool] = {}
        self._twins = {(old.checksum, old.mime): doc_id for doc_id, old in stored.items() if old.chunk_policy == policy}
        self._real_root = clean_path(os.path.realpath(run.root))

    def plan(self, files: Sequence[Path], report: UpdateReport) -> Plan:
        """Hash every file and sort it in; nothing is parsed, and no time stamp is trusted."""
        plan = Plan()
        states: dict[str, tuple[Path, FileState]] = {}
        for path in files:
            with self.run.told(path):
                doc_id = document_id(path, self.run.root, collection=self.run.collection)
                plan.found.add(doc_id)
                states[doc_id] = (
                    path,
                    file_state(path, self.run.root, collection=self.run.collection, max_bytes=self.max_bytes),
                )
        plan.missing = self._missing(plan.found, report.skipped)
        left_out = self._duplicates(states, plan, report)
        moved = self._moved(plan, states)
        for doc_id, (path, state) in states.items():
            old = self.stored.get(doc_id)
            if doc_id in left_out:
                continue
            if old is not None and old.collection != self.run.collection:
                reason = f"collection {old.collection!r} has a document of this doc_id; rename the file"
                self.run.fail(Failure(doc_id, "failed", reason))
            elif old is not None and (old.checksum, old.mime) == (state.checksum, state.mime):
                if (old.file_path, old.modified_at) != (state.file_path, state.modified_at):
                    plan.touched.append((doc_id, state))
                if old.chunk_policy in (None, self.policy):
                    plan.unchanged.append(doc_id)
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
            and not any(
                name == file.path
                or (
                    file.reason.startswith("unreadable folder")
                    and (file.path == "." or name.startswith(file.path + "/"))
                )
                for file in skipped
            )
        )

    def _missing(self, found: set[str], skipped: Sequence[SkippedFile]) -> list[str]:
        """Return the documents that were read from this folder and are not in it any more."""
        return [
            doc_id
            for doc_id, state in self.stored.items()
            if state.collection == self.run.collection
            and doc_id not in found
            and self._is_ours(doc_id, state)
            and self.is_gone(doc_id, found, skipped)
        ]

    def _is_ours(self, doc_id: str, state: SourceState) -> bool:
        """Return whether a document was read from this folder, by whatever links: its path says so."""
        name = "/" + self.relative(doc_id)
        if not state.file_path.endswith(name):
            return False  # a program gave it
        root = state.file_path.removesuffix(name) or "/"
        if root not in self._roots:
            self._roots[root] = clean_path(os.path.realpath(root)) == self._real_root
        return self._roots[root]

    def _duplicates(self, states: Mapping[str, tuple[Path, FileState]], plan: Plan, report: UpdateReport) -> set[str]:
        """Report files of the same bytes; return those to leave out."""
        checksums = {doc_id: state.checksum for doc_id, (_, state) in states.items()}
        kept = [
            doc_id
            for doc_id, checksum in checksums.items()
            if self.skip_duplicates and doc_id in self.stored and self.stored[doc_id].checksum == checksum
        ]
        report.duplicates = find_duplicates(checksums, kept)
        if not self.skip_duplicates:
            return set()
        plan.removed = [twin.doc_id for twin in report.duplicates if self.prune and twin.doc_id in self.stored]
        return {twin.doc_id for twin in report.duplicates if twin.doc_id not in self.stored or self.prune}

    def _moved(self, plan: Plan, states: Mapping[str, tuple[Path, FileState]]) -> dict[str, str]:
        """Return the new files that are missing documents under another name, each with that document."""
        left: dict[tuple[str, str], list[str]] = {}
        for doc_id in reversed(plan.missing):
            left.setdefault((self.stored[doc_id].checksum, self.stored[doc_id].mime), []).append(doc_id)
        moved = {}
        for doc_id, (_, state) in states.items():
            candidates = left.get((state.checksum, state.mime))
            if doc_id not in self.stored and candidates:
                old = candidates.pop()
                if self.stored[old].chunk_policy == self.policy:
                    moved[doc_id] = old
        return moved
