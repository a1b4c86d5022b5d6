"""What a run of the pipeline tells about itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from sqlrag.ingest.reading import SkippedFile


class Failure(NamedTuple):
    """A document that is not in the file. ``status`` is "failed", or "empty" where there was nothing to index."""

    doc_id: str
    status: str
    reason: str


@dataclass
class Report:
    """Counts, failures and times of one run.

    ``files`` is how many were found to be read, ``documents`` how many of them are in the file, ``embedded`` how many
    texts went to the model (equal ones once). ``seconds`` is by stage: read, chunk, embed, store, index.
    """

    files: int = 0
    documents: int = 0
    chunks: int = 0
    embedded: int = 0
    failures: list[Failure] = field(default_factory=list)
    skipped: list[SkippedFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """How many documents failed; empty ones are not counted."""
        return sum(failure.status == "failed" for failure in self.failures)

    @property
    def empty(self) -> int:
        """How many documents held nothing to index."""
        return sum(failure.status == "empty" for failure in self.failures)

    def __str__(self) -> str:
        """Say it in lines for a terminal."""
        stages = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in self.seconds.items())
        lines = [
            f"{self.documents:,} documents, {self.chunks:,} chunks ({stages})",
            f"{self.failed} failed, {self.empty} empty, {len(self.skipped)} files skipped",
        ]
        lines += [f"  {failure.status}: {failure.doc_id}: {failure.reason}" for failure in self.failures]
        lines += [f"  skipped {count}: {reason}" for reason, count in reasons(self.skipped)]
        lines += [f"  note: {warning}" for warning in self.warnings]
        return "\n".join(lines)


@dataclass(frozen=True)
class Prepared:
    """What :func:`sqlrag.prepare_embeddings` returns: where the file is, and the report of the run."""

    path: Path
    report: Report

    def __repr__(self) -> str:
        """Name the file and what is in it."""
        counts = f"{self.report.documents} documents, {self.report.chunks} chunks, {self.report.failed} failed"
        return f"Prepared({str(self.path)!r}: {counts})"


def reasons(skipped: list[SkippedFile]) -> list[tuple[str, int]]:
    """Return the reasons for which files were skipped with their numbers, most frequent first."""
    return sorted(Counter(file.reason for file in skipped).items(), key=lambda item: (-item[1], item[0]))
