"""The conformance suite: a small corpus whose chunks, ids, rankings, repeats and passages are pinned.

They are pinned to a version of the specification. The suite runs on an installed package. Vectors are hashed words, so
that they are the same on every machine and in every store.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlrag.errors import NotFoundError
from sqlrag.types import SPEC_VERSION, Candidate, Chunk, Document, RetrievePlan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlrag.search.postgres_store import PostgresStore
    from sqlrag.search.store import Store

MODEL = "hashing-256"

POLICY: dict[str, Any] = {"chunk_size": 40, "chunk_overlap": 8}

KINDS = ("rankings", "dropped", "passages", "matches")

SCORED = ("rankings", "matches")  # rows of a name and a score

# Scores are rounded to nine decimals; the last one may round either way.
TOLERANCE = 2e-9

Findings = dict[str, Any]


@dataclass(frozen=True)
class Conformance:
    """The result of a run of the suite: the version, how much was compared, and a line for each difference."""

    spec_version: str
    chunks: int
    rankings: int
    passages: int
    differences: tuple[str, ...]

    def __str__(self) -> str:
        """Format it as lines."""
        found = f"{len(self.differences)} differences" if self.differences else "no difference"
        compared = f"{self.chunks} chunks, {self.rankings} rankings and {self.passages} passages compared"
        return "\n".join([f"Specification {self.spec_version}: {compared}, {found}", *self.differences])


def run(url: str | None = None) -> Conformance:
    """Build the corpus, run the questions, and compare with what the specification's version requires.

    Parameters
    ----------
    url
        Test a store in Postgres, created in a schema of its own at this address and removed at the end. None: a file.

    Returns
    -------
    Conformance
        ``differences`` is empty where this machine conforms.

    Raises
    ------
    NotFoundError
        The corpus is missing: the installation is incomplete.
    MissingExtraError, StoreError
        Postgres cannot be used.
    """
    folder = corpus_folder()
    golden = json.loads((folder / "golden.json").read_text("utf-8"))
    found = measure(folder, url=url)
    if url is not None:
        golden = without_codes(golden, json.loads((folder / "queries.json").read_text("utf-8")))
    passages = sum(len(rows) for rows in found["passages"].values())
    lines = tuple(differences(golden, found))
    return Conformance(SPEC_VERSION, len(found["chunks"]), len(found["rankings"]), passages, lines)


def corpus_folder() -> Path:
    """Return the folder of corpus, questions and golden file: in an installed package, else in a checkout."""
    package = Path(__file__).parent
    for folder in (package / "conformance_data", package.parent / "data" / "conformance"):
        if (folder / "queries.json").is_file():
            return folder
    raise NotFoundError(f"The conformance corpus is missing next to {package}. Reinstall sqlrag-duckdb.")


def measure(folder: Path, *, threads: int | None = None, url: str | None = None, resident: bool = False) -> Findings:
    """Return what this machine computes, in the form of the golden file; ``resident`` as in :class:`sqlrag.Store`."""
    questions = json.loads((folder / "queries.json").read_text("utf-8"))
    with corpus_store(folder, threads=threads, resident=resident) as store:
        if url is None:
            return {"spec_version": SPEC_VERSION, "chunks": _chunks(store), **_answers(store, questions, _stored)}
        questions = [question for question in questions if "codes_pool" not in question]
        with _in_postgres(store, url) as (pushed, stored):
            return {"spec_version": SPEC_VERSION, "chunks": _chunks(pushed), **_answers(pushed, questions, stored)}


def without_codes(golden: Findings, questions: Sequence[Mapping[str, Any]]) -> Findings:
    """Return the golden file for a store in Postgres: without the questions to sign codes, which only a file has."""
    left_out = {question["name"] for question in questions if "codes_pool" in question}
    kinds = {kind: {name: rows for name, rows in golden[kind].items() if name not in left_out} for kind in KINDS}
    return {**golden, **kinds}


@contextmanager
def _in_postgres(store: Store, url: str) -> Iterator[tuple[PostgresStore, Any]]:
    """Yield the same store in Postgres, and a function that creates small ones there."""
    from sqlrag.formats.push import push
    from sqlrag.search.postgres_store import PostgresStore

    places = [f"{url}{'&' if '?' in url else '?'}schema=sqlrag_conformance{part}" for part in ("", "_chunks")]

    @contextmanager
    def stored(rows: list[tuple[str, int, str, list[int]]]) -> Iterator[PostgresStore]:
        with PostgresStore.create(places[1], len(rows[0][3]), overwrite=True) as made:
            _fill(made, rows)
            yield made

    try:
        push(store.path, places[0], progress="off")
        with PostgresStore(places[0]) as pushed:
            yield pushed, stored
    finally:
        for place in places:
            PostgresStore.drop(place)


@contextmanager
def corpus_store(folder: Path, *, threads: int | None = None, resident: bool = False) -> Iterator[Store]:
    """Yield a store of the corpus."""
    from sqlrag.ingest.build import prepare_file
    from sqlrag.ingest.update import update_embeddings
    from sqlrag.search.store import Store

    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "conformance.duckdb"
        corpus = folder / "corpus"
        options: dict[str, Any] = {"embed_model_name": MODEL, "embedding_provider": "hashing", "progress": "off"}
        # The collection that is last by name is written first, so that a result in writing order is detected.
        prepare_file(corpus, path, collection="second", patterns=["b*.md"], **POLICY, **options)
        update_embeddings(corpus, path, progress="off")
        with Store(path, threads=threads, resident=resident) as store:
            yield store


def _chunks(store: Store | PostgresStore) -> list[list[Any]]:
    return [
        [
            *(chunk.node_id, chunk.i_start, chunk.i_end, chunk.page, list(chunk.heading_path), list(chunk.tags)),
            hashlib.sha256(chunk.content.encode()).hexdigest(),
        ]
        for chunk in store.chunks()
    ]


def _answers(
    store: Store | PostgresStore, questions: list[dict[str, Any]], stored: Any
) -> dict[str, dict[str, list[Any]]]:
    """Return what the blocks return for each question, by kind and name; see ``_answer``."""
    found: dict[str, dict[str, list[Any]]] = {kind: {} for kind in KINDS}
    for question in questions:
        # Such a question brings chunks of its own: hashed words give no negative numbers, and hardly ever ties.
        with stored(question["chunks"]) if "chunks" in question else nullcontext(store) as asked:
            for kind, rows in _answer(asked, question).items():
                found[kind][question["name"]] = rows
    return found


def _answer(store: Store | PostgresStore, question: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the ranking, the dropped duplicates, the passages and their scores, as far as the question asks for them.

    A question names the blocks to run, in this order and with their options: retrieval by each of its ``plans`` (or
    its own ``candidates``), ``fuse``, ``drop_near_duplicates``, ``rerank``, ``compress``. One with ``rankings`` of ids
    only fuses these; one with a ``codes_pool`` searches by sign codes.
    """
    from sqlrag.blocks import compress, fuse, rerank
    from sqlrag.ranking import fusion

    query: str = question["query"]
    found: dict[str, list[Any]] = {}
    if "rankings" in question:
        return {"rankings": [list(row) for row in fusion.reciprocal_rank_fusion(question["rankings"])]}
    if "codes_pool" in question:
        pool = question["codes_pool"]
        rows = store.vector_query(query, top_k=pool, codes_pool=pool, query_vector=question["query_vector"])
        return {"rankings": [[row["node_id"], row["score"]] for row in rows]}
    plans = question.get("plans", [question.get("plan", {})])
    if "candidates" in question:
        sets = [[Candidate(**fields) for fields in rows] for rows in question["candidates"]]
    else:
        vector = question.get("query_vector")
        sets = [fuse.retrieve(query, RetrievePlan(**plan), store, query_vector=vector) for plan in plans]
    candidates = fuse.fuse(sets, **question["fuse"]) if "fuse" in question else sets[0]
    if "drop_near_duplicates" in question:
        options = _with_vectors(question["drop_near_duplicates"], query, candidates)
        candidates = rerank.drop_near_duplicates(candidates, **options)
        found["dropped"] = [[kept, *others] for kept, others in candidates.dropped.items()]
    if "rerank" in question:
        options = _with_vectors(question["rerank"], query, candidates)
        candidates = rerank.rerank(query, candidates, **options)
    if "compress" in question:
        policy = compress.CompressPolicy(**question["compress"])
        passages = compress.compress(query, candidates, policy, store=store)
        found["passages"] = [
            [row["doc_id"], row["i_start"], row["i_end"], [[span["start"], span["end"]] for span in row["spans"]]]
            for row in passages
        ]
        found["matches"] = [
            [f"{row['doc_id']}:{span['start']}", span["score"]] for row in passages for span in row["spans"]
        ]
    return {"rankings": [[candidate.node_id, candidate.score] for candidate in candidates], **found}


@contextmanager
def _stored(rows: list[tuple[str, int, str, list[int]]]) -> Iterator[Store]:
    """Yield a store of these chunks, (doc_id, chunk_index, content, vector) each."""
    from sqlrag.search.store import Store

    with (
        tempfile.TemporaryDirectory() as temporary,
        Store.create(Path(temporary) / "chunks.duckdb", len(rows[0][3])) as store,
    ):
        _fill(store, rows)
        yield store


def _fill(store: Store | PostgresStore, rows: list[tuple[str, int, str, list[int]]]) -> None:
    documents = [Document(doc_id, doc_id) for doc_id in dict.fromkeys(row[0] for row in rows)]
    store.upsert(documents, [Chunk(*row[:3]) for row in rows], [row[3] for row in rows])


def _with_vectors(options: dict[str, Any], query: str, candidates: Sequence[Candidate]) -> dict[str, Any]:
    """Return the options of a block, with hashed words where ``vectors`` or ``query_vector`` is true."""
    from sqlrag.embedders import load_embedder

    texts = {"vectors": [candidate.content for candidate in candidates], "query_vector": [query]}
    embedder = load_embedder(MODEL, provider="hashing")
    made = {name: embedder.embed(texts[name], kind="document") for name in texts if options.get(name) is True}
    return {**options, **made}


def differences(golden: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Return a line for each difference, in a fixed order."""
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
    for kind in KINDS:
        for name in dict.fromkeys([*golden[kind], *found[kind]]):
            lines += _rows(f"{kind} {name!r}", golden[kind].get(name), found[kind].get(name))
    return lines


def _rows(name: str, wanted: list[list[Any]] | None, here: list[list[Any]] | None) -> list[str]:
    if wanted is None or here is None:
        return [f"{name}: {'not asked here' if here is None else 'not in the golden file'}"]
    if not name.startswith(SCORED):
        return [f"{name}: {here} and not {wanted}"] if here != wanted else []
    if [row[0] for row in wanted] != [row[0] for row in here]:
        return [f"{name}: {[row[0] for row in here]} and not {[row[0] for row in wanted]}"]
    return [
        f"{name}: {node_id} has the score {score} and not {golden}"
        for (node_id, golden), (_, score) in zip(wanted, here, strict=True)
        if abs(score - golden) > TOLERANCE
    ]


def remake(folder: Path) -> list[str]:
    """Rewrite the golden file of a checkout and return how it differs from the previous one."""
    golden = folder / "golden.json"
    found = measure(folder)
    before = {"spec_version": SPEC_VERSION, "chunks": [], **{kind: {} for kind in KINDS}}
    if golden.exists():
        before |= json.loads(golden.read_text("utf-8"))
    golden.write_text(_as_json(found), "utf-8")
    return differences(before, found)


def _as_json(found: Findings) -> str:
    """Write one chunk or question a line, so that a diff shows what has changed."""

    def written(value: object) -> str:
        return json.dumps(value, ensure_ascii=False)

    def block(lines: list[str]) -> str:
        return ",\n".join(lines)

    parts = [f'"spec_version": {written(found["spec_version"])}']
    parts.append(f'"chunks": [\n{block([written(row) for row in found["chunks"]])}\n]')
    for kind in KINDS:
        rows = [f"{written(name)}: {written(rows)}" for name, rows in found[kind].items()]
        parts.append(f"{written(kind)}: {{\n{block(rows)}\n}}")
    return f"{{{block(parts)}}}\n"


if __name__ == "__main__":  # in a checkout: python -m sqlrag.conformance
    sys.stdout.write("\n".join([*remake(corpus_folder()), "The golden file has been rewritten", ""]))
