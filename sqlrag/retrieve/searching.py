"""A store that is open for searching: both legs, their fusion and the rows of the result."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from sqlrag.embedders.base import without_surrogates
from sqlrag.errors import (
    InputError,
    MissingExtraError,
    ModelMismatchError,
    ModelUnavailableError,
    ProviderError,
    StoreError,
)
from sqlrag.retrieve import candidates
from sqlrag.retrieve.candidates import BM25, Leg
from sqlrag.retrieve.filters import Filters
from sqlrag.retrieve.fusion import FusedHit, fuse_legs
from sqlrag.retrieve.results import Results
from sqlrag.retrieve.rows import chunk_rows, source_documents
from sqlrag.retrieve.statements import as_sql
from sqlrag.store import lexical
from sqlrag.store.files import is_damage
from sqlrag.store.metadata import model_identity
from sqlrag.store.vectors import unit_vector
from sqlrag.types import DEFAULT_ALPHA

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from sqlrag.store.database import Database
    from sqlrag.types import Embedder, Fusion, ModelIdentity

DEFAULT_POOL = 50
MOST = 2**31 - 1  # results, and so chunks in a file
GIVEN = "given"  # the provider of a file whose vectors were computed elsewhere

_CACHED_QUERIES = 256
_EMBEDDING_FAILURES = (ModelUnavailableError, ProviderError, MissingExtraError)


@dataclass(frozen=True)
class Plan:
    """Everything that decides a result but the question itself.

    ``mode`` is which legs run. ``vector_top_k`` and ``lexical_top_k`` are the candidates of each leg: 50 unless given,
    never fewer than ``top_k``. ``codes_pool`` is how many candidates the sign codes hand to the exact scores.
    """

    mode: str = "hybrid"
    top_k: int = 5
    fusion: Fusion = "rrf"
    vector_weight: float = 0.5
    alpha: float = DEFAULT_ALPHA
    rrf_k: float = 60
    rrf_weights: tuple[float, float] = (1.0, 1.0)
    vector_top_k: int | None = None
    lexical_top_k: int | None = None
    codes_pool: int | None = None
    exact: bool = False
    min_similarity: float | None = None
    conjunctive: bool = False
    bm25: BM25 = field(default_factory=BM25)
    filters: Filters = field(default_factory=Filters)
    include_source_docs: bool = False
    strict: bool = False

    def __post_init__(self) -> None:
        for name in ("top_k", "vector_top_k", "lexical_top_k", "codes_pool"):
            value = getattr(self, name)
            if name != "top_k" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
                raise InputError(f"{name} must be a whole number from 1 to {MOST}, not {value!r}.")
        low = self.min_similarity
        if low is not None and (isinstance(low, bool) or not isinstance(low, (int, float)) or not -1 <= low <= 1):
            raise InputError(f"min_similarity must be a cosine from -1 to 1, not {low!r}.")


class Searcher:
    """Searches one open database. Safe to use from several threads at once."""

    def __init__(self, database: Database, metadata: dict[str, str], embedder: Embedder | None = None) -> None:
        self.database = database
        self.metadata = metadata
        self._embedder = embedder
        self._query_vectors: dict[str, NDArray[np.float32]] = {}
        self._identity_checked = False
        self._use_workers()

    @property
    def identity(self) -> ModelIdentity:
        """The model that the file was filled with."""
        return model_identity(self.metadata)

    def _use_workers(self) -> None:
        # It starts its threads when there is work for them.
        self._workers = ThreadPoolExecutor(max(2, os.cpu_count() or 2), thread_name_prefix="sqlrag-lexical")
        self._process = os.getpid()

    def close(self) -> None:
        """End the worker threads."""
        self._workers.shutdown()

    def embedder(self) -> Embedder:
        """Return the embedder of the file, loaded once and checked against the file.

        Raises
        ------
        ModelMismatchError
            The model's vectors are not those that the file was built with.
        ModelUnavailableError, MissingExtraError
            It cannot be loaded here.
        """
        from sqlrag.embedders import check_identity, load_embedder

        identity = self.identity
        if self._embedder is None:
            if identity.provider == GIVEN:
                raise ModelUnavailableError(
                    f"The vectors of {self.database.path} were given ready-made, so the file names no model to embed a "
                    "question with. Pass query_vector, or an embedder to Store(path, embedder=…)."
                )
            try:
                self._embedder = load_embedder(identity.model_name, provider=identity.provider)
            except InputError as error:  # the caller named no provider: the file did
                raise ModelUnavailableError(f"{self.database.path} names a model that is not here: {error}") from error
        if not self._identity_checked:
            # A file of ready-made vectors need not say what made them: then the dimensions have to do.
            check_identity(
                self._embedder, replace(identity, model_name="") if identity.model_name == GIVEN else identity
            )
            self._identity_checked = True
        return self._embedder

    def check_model_name(self, model_name: str) -> None:
        """Raise ModelMismatchError unless this is the file's model: by its name, or a local folder by its vectors."""
        from sqlrag.embedders import check_identity, load_embedder

        identity = self.identity
        if same_model(model_name, identity.model_name) or identity.model_name == GIVEN:
            return
        if Path(model_name).is_dir():
            check_identity(load_embedder(model_name), identity)
            return
        raise ModelMismatchError(
            f"{self.database.path} was built with the model {identity.model_name!r}; you passed model_name="
            f"{model_name!r}. Leave it out to use the file's, or prepare a new file with the other one."
        )

    def embed_query(self, query_text: str) -> NDArray[np.float32]:
        """Return the vector of a question, ``[dimensions] float32`` of unit norm; the last 256 are remembered."""
        from sqlrag.embedders import embed_texts

        embedder = self.embedder()
        vector = self._query_vectors.pop(query_text, None)
        if vector is None:
            vector = embed_texts(embedder, [query_text], kind="query")[0]
            while len(self._query_vectors) >= _CACHED_QUERIES:
                self._query_vectors.pop(next(iter(list(self._query_vectors)), ""), None)
        self._query_vectors[query_text] = vector  # last, as the one used last
        return vector

    def search(
        self, query_text: str, plan: Plan, *, query_vector: ArrayLike | None = None, model_name: str | None = None
    ) -> Results:
        """Run the legs of the plan, the lexical one in a thread of its own, and fuse what they find."""
        started = time.perf_counter()
        blank = not isinstance(query_text, str) or not query_text.strip()
        if blank and (query_vector is None or plan.mode != "vector"):
            raise InputError("The query is blank. Pass a question or some words.")
        if model_name is not None:
            self.check_model_name(model_name)

        def answer() -> Results:
            run = _Run(self, "" if blank else without_surrogates(query_text), plan)
            self._run_legs(run, query_vector)
            return run.package()

        try:
            results = self.database.read(answer)
        except duckdb.Error as error:
            if not is_damage(error):
                raise
            path = self.database.path
            raise StoreError(path, f"{path} cannot be read, it may be damaged or cut short: {error}") from error
        results.timings["total"] = time.perf_counter() - started
        return results

    def _run_legs(self, run: _Run, query_vector: ArrayLike | None) -> None:
        mode = run.plan.mode
        if self._process != os.getpid():
            self._use_workers()  # a fork leaves the threads behind
        lexical_future = self._workers.submit(run.lexical) if mode == "hybrid" else None
        try:
            if mode != "lexical":
                run.vector(query_vector)
        finally:
            if lexical_future is not None:
                lexical_future.exception()  # wait, so that no leg outlives its query
        if lexical_future is not None:
            lexical_future.result()
        elif mode == "lexical":
            run.lexical()


class _Run:
    """One query on its way through the stages."""

    def __init__(self, searcher: Searcher, query_text: str, plan: Plan) -> None:
        self.searcher = searcher
        self.query_text = query_text
        self.plan = plan
        self.filters = plan.filters.parameters()
        self.vector_hits = Leg()
        self.lexical_hits = Leg()
        self.query_vector: NDArray[np.float32] | None = None
        self.terms = lexical.Terms([], [], 0)
        self.has_lexical_index = True
        self.notices: list[str] = []
        self.timings: dict[str, float] = {}
        plan.bm25.parameters()

    def vector(self, given: ArrayLike | None) -> None:
        """Embed the question unless its vector is given, and fill the vector leg."""
        began = time.perf_counter()
        try:
            self.query_vector = (
                self.searcher.embed_query(self.query_text)
                if given is None
                else unit_vector(given, self.searcher.identity.dimensions)
            )
        except _EMBEDDING_FAILURES as error:
            if self.plan.mode == "vector" or self.plan.strict:
                raise
            self.notices.append(
                f"The question could not be embedded, so the answer is from the lexical leg alone: {error}"
            )
            return
        embedded = time.perf_counter()
        plan = self.plan
        leg = candidates.vector_leg(
            self.searcher.database.cursor(),
            self.query_vector,
            max(plan.top_k, plan.vector_top_k or DEFAULT_POOL),
            self.filters,
            exact=plan.exact,
            codes_pool=plan.codes_pool,
        )
        if self.filters and not leg.hits:
            self.notices.append(f"No chunk passes the filters: {self.filters}.")
        if plan.min_similarity is not None:
            leg.hits = [hit for hit in leg.hits if hit.score >= plan.min_similarity]
        self.vector_hits = leg
        self.timings["embed"] = embedded - began
        self.timings["vector"] = time.perf_counter() - embedded

    def lexical(self) -> None:
        """Fill the lexical leg; without an index the vector leg answers alone, and says so."""
        began = time.perf_counter()
        plan, con = self.plan, self.searcher.database.cursor()
        try:
            self.terms = lexical.query_terms(con, self.query_text, self.searcher.metadata["stemmer"])
            if not self.terms.wanted:
                self.notices.append("The question has no words that the lexical leg could look for.")
            self.lexical_hits = candidates.lexical_leg(
                con,
                self.terms,
                max(plan.top_k, plan.lexical_top_k or DEFAULT_POOL),
                plan.bm25,
                self.filters,
                conjunctive=plan.conjunctive,
            )
        except duckdb.CatalogException as error:
            if plan.mode == "lexical" or plan.strict:
                path = self.searcher.database.path
                raise StoreError(path, f"{path} has no lexical index. Prepare the file again. ({error})") from error
            self.has_lexical_index = False
            self.notices.append("The file has no lexical index, so the answer is from the vector leg alone.")
        self.timings["lexical"] = time.perf_counter() - began

    def package(self) -> Results:
        """Fuse the legs and fetch the rows of the best."""
        began = time.perf_counter()
        plan = self.plan
        hits, score_type = self._fused()
        hits = hits[: plan.top_k]
        fused = time.perf_counter()
        rows = self._rows(hits, score_type)
        self.timings.update(fuse=fused - began, fetch=time.perf_counter() - fused)
        return Results(
            rows,
            query_text=self.query_text,
            sql=as_sql(self.query_text, plan),
            notices=self.notices,
            timings=self.timings,
        )

    def _fused(self) -> tuple[list[FusedHit], str]:
        plan = self.plan
        if plan.mode == "lexical" or self.query_vector is None:
            return [
                FusedHit(*hit, None, None, hit.score, rank) for rank, hit in enumerate(self.lexical_hits.hits, 1)
            ], "bm25"
        if plan.mode == "vector" or not self.has_lexical_index:
            return [
                FusedHit(*hit, hit.score, rank, None, None) for rank, hit in enumerate(self.vector_hits.hits, 1)
            ], "vector"
        exact = None
        if plan.fusion == "convex":
            rids = sorted({hit.rid for hit in (*self.vector_hits.hits, *self.lexical_hits.hits)})
            exact = candidates.pair_scores(
                self.searcher.database.cursor(), self.query_vector, self.terms, rids, plan.bm25
            )
        fused = fuse_legs(
            self.vector_hits.hits,
            self.lexical_hits.hits,
            fusion=plan.fusion,
            rrf_k=plan.rrf_k,
            weights=plan.rrf_weights,
            vector_weight=plan.vector_weight,
            alpha=plan.alpha,
            exact=exact,
        )
        return fused, plan.fusion

    def _rows(self, hits: Sequence[FusedHit], score_type: str) -> list[dict[str, Any]]:
        con = self.searcher.database.cursor()
        node_ids = {**self.lexical_hits.node_ids, **self.vector_hits.node_ids}
        found = chunk_rows(con, [node_ids[hit.rid] for hit in hits])
        sources = (
            source_documents(con, [row["doc_id"] for row in found.values()]) if self.plan.include_source_docs else {}
        )
        rows = []
        for hit in hits:
            row = found[node_ids[hit.rid]]
            rows.append(
                {
                    "node_id": row["node_id"],
                    "text": row["text"],
                    "metadata": row["metadata"],
                    "score": hit.score,
                    "score_type": score_type,
                    "source_doc": sources.get(row["doc_id"]),
                    **{key: row[key] for key in ("doc_id", "chunk_index", "collection", "heading_path", "page")},
                    **{key: row[key] for key in ("i_start", "i_end")},
                    "vector_score": hit.vector_score,
                    "vector_rank": hit.vector_rank,
                    "lexical_score": hit.lexical_score,
                    "lexical_rank": hit.lexical_rank,
                }
            )
        return rows


def same_model(name: str, other: str) -> bool:
    """Return whether two names mean the same model: case and a left-out organisation do not matter."""
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"The model name must be a string that is not blank, not {name!r}.")
    name, other = name.lower(), other.lower()
    if "/" in name and "/" in other:
        return name == other
    return name.rpartition("/")[2] == other.rpartition("/")[2]
