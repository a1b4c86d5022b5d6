"""The conformance suite: a small corpus whose chunks, ids and rankings are pinned to a version of the specification.

It runs on an installed package. Vectors are hashed words, so that every machine and every store has the same ones.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlrag.errors import NotFoundError
from sqlrag.types import SPEC_VERSION, RetrievePlan

if TYPE_CHECKING:
    from collections.abc import Mapping

MODEL = "hashing-256"
POLICY: dict[str, Any] = {"chunk_size": 40, "chunk_overlap": 8}
# Scores are rounded to nine decimals, where the last may fall to either side.
TOLERANCE = 2e-9

Findings = dict[str, Any]


@dataclass(frozen=True)
class Conformance:
    """What a run of the suite found: the version, how much was compared, and each difference in a line."""

    spec_version: str
    chunks: int
    rankings: int
    differences: tuple[str, ...]

    def __str__(self) -> str:
        """Say it in lines."""
        found = f"{len(self.differences)} differences" if self.differences else "no difference"
        line = f"Specification {self.spec_version}: {self.chunks} chunks and {self.rankings} rankings compared, {found}"
        return "\n".join([line, *self.differences])


def run() -> Conformance:
    """Build the corpus, ask the questions, and compare with what the specification's version demands.

    Returns
    -------
    Conformance
        ``differences`` is empty where this machine conforms.

    Raises
    ------
    NotFoundError
        The corpus is not there: the installation is incomplete.
    """
    folder = corpus_folder()
    golden = json.loads((folder / "golden.json").read_text("utf-8"))
    found = measure(folder)
    return Conformance(SPEC_VERSION, len(found["chunks"]), len(found["rankings"]), tuple(differences(golden, found)))


def corpus_folder() -> Path:
    """Return the folder of corpus, questions and golden file: in an installed package, else in a checkout."""
    package = Path(__file__).parent
    for folder in (package / "conformance_data", package.parent / "data" / "conformance"):
        if (folder / "queries.json").is_file():
            return folder
    raise NotFoundError(f"The conformance corpus is missing beside {package}. Reinstall sqlrag-duckdb.")


def measure(folder: Path, *, threads: int | None = None) -> Findings:
    """Return chunks and rankings as this machine gives them, in the form of the golden file."""
    from sqlrag.ingest.pipeline import prepare_embeddings
    from sqlrag.ingest.updating import update_embeddings
    from sqlrag.retrieval.store import Store

    questions = json.loads((folder / "queries.json").read_text("utf-8"))
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "conformance.duckdb"
        corpus = folder / "corpus"
        options: dict[str, Any] = {"embed_model_name": MODEL, "embedding_provider": "hashing", "progress": "off"}
        prepare_embeddings(corpus, path, **POLICY, **options)
        update_embeddings(corpus, path, collection="second", patterns=["b*.md"], progress="off")
        with Store(path, threads=threads) as store:
            return {"spec_version": SPEC_VERSION, "chunks": _chunks(store), "rankings": _rankings(store, questions)}


def _chunks(store: Any) -> list[list[Any]]:
    rows = store.cursor().execute(
        "SELECT node_id, i_start, i_end, page, heading_path, tags, text FROM documents ORDER BY doc_id, chunk_index"
    )
    return [[*row[:6], hashlib.sha256(row[6].encode()).hexdigest()] for row in rows.fetchall()]


def _rankings(store: Any, questions: list[dict[str, Any]]) -> dict[str, list[list[Any]]]:
    from sqlrag.retrieval.blocks import retrieve

    found = {}
    for question in questions:
        plan: dict[str, Any] = question.get("plan", {})
        candidates = retrieve(question["query"], RetrievePlan(**plan), store)
        found[question["name"]] = [[candidate.node_id, candidate.score] for candidate in candidates]
    return found


def differences(golden: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Return each difference in a line, in a fixed order."""
    lines = []
    if golden["spec_version"] != found["spec_version"]:
        lines.append(f"version: {golden['spec_version']} in the golden file, {found['spec_version']} here")
    wanted, here = ({row[0]: row[1:] for row in findings["chunks"]} for findings in (golden, found))
    names = ("i_start", "i_end", "page", "heading_path", "tags", "sha256")
    for node_id in dict.fromkeys([*wanted, *here]):
        if node_id not in here or node_id not in wanted:
            lines.append(f"chunk {node_id}: {'missing' if node_id in wanted else 'not wanted'}")
            continue
        for name, one, other in zip(names, wanted[node_id], here[node_id], strict=True):
            if one != other:
                lines.append(f"chunk {node_id}: {name} is {other!r} and not {one!r}")
    for name in dict.fromkeys([*golden["rankings"], *found["rankings"]]):
        lines += _ranking(name, golden["rankings"].get(name), found["rankings"].get(name))
    return lines


def _ranking(name: str, wanted: list[list[Any]] | None, here: list[list[Any]] | None) -> list[str]:
    if wanted is None or here is None:
        return [f"ranking {name!r}: {'not asked here' if here is None else 'not in the golden file'}"]
    if [row[0] for row in wanted] != [row[0] for row in here]:
        return [f"ranking {name!r}: {[row[0] for row in here]} and not {[row[0] for row in wanted]}"]
    return [
        f"ranking {name!r}: {node_id} has the score {score} and not {golden}"
        for (node_id, golden), (_, score) in zip(wanted, here, strict=True)
        if abs(score - golden) > TOLERANCE
    ]


def remake(folder: Path) -> list[str]:
    """Write the golden file of a checkout anew and return how it differs from the one before."""
    golden = folder / "golden.json"
    found = measure(folder)
    before = json.loads(golden.read_text("utf-8")) if golden.exists() else {**found, "chunks": [], "rankings": {}}
    golden.write_text(_as_json(found), "utf-8")
    return differences(before, found)


def _as_json(found: Findings) -> str:
    """Write one chunk and one ranking a line, so that a diff shows what has changed."""

    def block(lines: list[str]) -> str:
        return ",\n".join(lines)

    chunks = block([json.dumps(row, ensure_ascii=False) for row in found["chunks"]])
    rankings = block(
        [f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(rows)}" for name, rows in found["rankings"].items()]
    )
    version = json.dumps(found["spec_version"])
    return f'{{"spec_version": {version},\n"chunks": [\n{chunks}\n],\n"rankings": {{\n{rankings}\n}}}}\n'


if __name__ == "__main__":  # in a checkout: python -m sqlrag.conformance
    sys.stdout.write("\n".join([*remake(corpus_folder()), "golden.json has been made anew", ""]))
