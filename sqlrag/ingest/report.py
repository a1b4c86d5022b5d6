"""What a run of the pipeline tells about itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from sqlrag.wording import counted

if TYPE_CHECKING:
    from pathlib import Path

    from sqlrag.ingest.reading import SkippedFile
    from sqlrag.types import Embedder

# A report says so many names of each kind; its lists have all of them.
_LISTED = 20


class Failure(NamedTuple):
    """A document that could not be used. ``status`` is "failed", or "empty" where there was nothing to index."""

    doc_id: str
    status: str
    reason: str


class Duplicate(NamedTuple):
    """A document whose file has the same bytes as that of ``same_as``."""

    doc_id: str
    same_as: str


class Rename(NamedTuple):
    """A file that lies under another name now; both are ``doc_id``."""

    old: str
    new: str


@dataclass
class Report:
    """Counts, failures and times of one run.

    ``files`` is how many were found to be read, ``documents`` how many of them were written, ``chunks`` how many chunks
    they have. ``embedded`` is how many texts went to the model (equal ones once), in ``embedding_calls`` batches;
    ``reused`` how many chunks have a vector that the file held already. ``duplicates`` have the bytes of another file.
    ``seconds`` is by stage: find, read, chunk, embed, store, index. ``run_id`` names the run in ``ingest_log`` and in
    the log.
    """

    files: int = 0
    documents: int = 0
    chunks: int = 0
    embedded: int = 0
    embedding_calls: int = 0
    reused: int = 0
    failures: list[Failure] = field(default_factory=list)
    duplicates: list[Duplicate] = field(default_factory=list)
    skipped: list[SkippedFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    run_id: str = ""

    @property
    def failed(self) -> int:
        """How many documents failed; empty ones are not counted."""
        return sum(failure.status == "failed" for failure in self.failures)

    @property
    def empty(self) -> int:
        """How many documents held nothing to index."""
        return sum(failure.status == "empty" for failure in self.failures)

    def summary(self) -> str:
        """Say in a few words how much there is and how much failed."""
        documents, chunks = counted(self.documents, "document"), counted(self.chunks, "chunk")
        return f"{documents}, {chunks}, {self.failed} failed"

    def __str__(self) -> str:
        """Say it in lines for a terminal."""
        return "\n".join(
            [
                f"{counted(self.documents, 'document')}, {counted(self.chunks, 'chunk')} ({self._stages()})",
                *self._details(),
            ]
        )

    def _stages(self) -> str:
        return ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in self.seconds.items())

    def _details(self) -> list[str]:
        lines = [f"{self.failed} failed, {self.empty} empty, {counted(len(self.skipped), 'file')} skipped"]
        lines += [f"  {failure.status}: {failure.doc_id}: {failure.reason}" for failure in self.failures]
        lines += _listed("duplicate", [f"{twin.doc_id} is the same as {twin.same_as}" for twin in self.duplicates])
        lines += [f"  skipped {count}: {reason}" for reason, count in reasons(self.skipped)]
        lines += [f"  note: {warning}" for warning in self.warnings]
        return lines


@dataclass
class UpdateReport(Report):
    """What :func:`sqlrag.update_embeddings` did: every list holds ``doc_id``, in order.

    A file is in one of ``added``, ``changed``, ``renamed``, ``unchanged`` and ``failures``, or was left out as one of
    the ``duplicates``. ``missing`` are documents without a file that were kept, because ``prune`` was not asked for;
    ``removed`` those that went. ``rechunked`` are documents whose text is as it was, cut anew because the chunk policy
    has changed. ``reindexed`` says that the lexical index was made anew, because the stemmer has changed.
    """

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    renamed: list[Rename] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    rechunked: list[str] = field(default_factory=list)
    reindexed: bool = False

    def __repr__(self) -> str:
        """Give the counts."""
        return f"UpdateReport({self._counts()})"

    def __str__(self) -> str:
        """Say it in lines for a terminal."""
        written, embedded = counted(self.chunks, "chunk"), counted(self.embedded, "text")
        counts = f"{written} written, {embedded} embedded, {counted(self.reused, 'vector')} reused"
        lines = [self._counts(), f"{counts} ({self._stages()})"]
        if self.rechunked:
            lines.append(f"  the chunk policy has changed: {counted(len(self.rechunked), 'document')} cut anew")
        if self.reindexed:
            lines.append("  the stemmer has changed: every chunk was indexed anew")
        for what in ("added", "changed", "removed"):
            lines += _listed(what, getattr(self, what))
        lines += _listed("renamed", [f"{rename.old} to {rename.new}" for rename in self.renamed])
        lines += _listed("missing", [f"{doc_id} has no file any more; prune removes it" for doc_id in self.missing])
        return "\n".join([*lines, *self._details()])

    def _counts(self) -> str:
        lists = ("added", "changed", "renamed", "unchanged", "removed", "missing")
        counts = [f"{len(getattr(self, name)):,} {name}" for name in lists]
        return ", ".join([*counts, f"{self.failed:,} failed"])


@dataclass(frozen=True)
class Prepared:
    """A file that was made: where it is, the report of the run, and the embedder that filled it.

    An index of :func:`sqlrag.prepare_embeddings` has the same ``.path`` and ``.report``.
    """

    path: Path
    report: Report
    embedder: Embedder | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        """Name the file and what is in it."""
        return f"Prepared({str(self.path)!r}: {self.report.summary()})"


def _listed(what: str, names: list[str]) -> list[str]:
    """Return a line for each of the first names."""
    more = [f"  {what}: {len(names) - _LISTED:,} more"] if len(names) > _LISTED else []
    return [f"  {what}: {name}" for name in names[:_LISTED]] + more


def reasons(skipped: list[SkippedFile]) -> list[tuple[str, int]]:
    """Return the reasons for which files were skipped with their numbers, most frequent first."""
    return sorted(Counter(file.reason for file in skipped).items(), key=lambda item: (-item[1], item[0]))
