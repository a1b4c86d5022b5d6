"""One query on its way through the stages: legs, feedback, fusion, rows."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlrag.errors import InputError, ModelMismatchError, ProviderError, StoreError
from sqlrag.options import shortened, shown
from sqlrag.retrieval.candidates import Leg
from sqlrag.retrieval.embedding import EMBEDDING_FAILURES
from sqlrag.retrieval.engine import NoLexicalIndexError
from sqlrag.retrieval.feedback import EXPANSION_CHUNKS, moved_vector
from sqlrag.retrieval.fusion import FusedHit, fuse_legs
from sqlrag.retrieval.planning import DEFAULT_POOL
from sqlrag.retrieval.results import Results
from sqlrag.retrieval.rows import as_row
from sqlrag.retrieval.terms import Terms
from sqlrag.store.vectors import checked_vector
from sqlrag.types import Candidate

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from sqlrag.retrieval.engine import Engine
    from sqlrag.retrieval.planning import Plan
    from sqlrag.retrieval.searching import Searcher

_SCORES = ("score", "vector_score", "vector_rank", "lexical_score", "lexical_rank")


class Run:
    """One query on its way through the stages."""

    def __init__(self, searcher: Searcher, engine: Engine, query_text: str, plan: Plan) -> None:
        self.searcher = searcher
        self.engine = engine
        self.query_text = query_text
        self.plan = plan
        self.asked_filters = plan.filters.parameters()
        if "metadata" in self.asked_filters:  # as its author wrote it
            self.asked_filters["metadata"] = plan.filters.metadata
        self.filters: dict[str, Any] = {}
        self.vector_hits = Leg()
        self.lexical_hits = Leg()
        self.query_vector: NDArray[np.float32] | None = None
        self.terms = Terms()
        self.pool: int | None = None
        self.has_lexical_index = True
        self.notices: list[str] = [*plan.without_effect(), *engine.without_effect(plan)]
        self.timings: dict[str, float] = {}

    def filter(self) -> None:
        """Find the chunks whose metadata pass, once for both legs."""
        if not self.asked_filters:
            return
        began = time.perf_counter()
        self.filters = self.engine.passing_filters(self.plan.filters)
        self.timings["filter"] = time.perf_counter() - began

    def vector(self, given: ArrayLike | None) -> None:
        """Embed the question unless its vector is given, and fill the vector leg."""
        began = time.perf_counter()
        patient = self.plan.mode == "vector" or self.plan.strict
        try:
            if given is None:
                self.query_vector = self.searcher.questions.embed(
                    self.query_text, patient=patient, timings=self.timings
                )
            else:
                self.query_vector = self._given_vector(given)
                self.timings["embed"] = time.perf_counter() - began
        except EMBEDDING_FAILURES as error:
            if patient:
                raise
            again = " The next question asks it again." if isinstance(error, ProviderError) else ""
            self.notices.append(
                f"The question could not be embedded, so the answer is from the lexical leg alone: {error}{again}"
            )
            self.timings["embed"] = time.perf_counter() - began - self.timings.get("load", 0.0)
            return
        self._search_vectors()

    def _given_vector(self, given: ArrayLike) -> NDArray[np.float32]:
        try:
            return checked_vector(given, self.searcher.identity.dimensions)
        except ModelMismatchError as error:
            raise ModelMismatchError(
                f"query_vector cannot be used. {error} The file's model is {self.searcher.identity.model_name!r}; "
                "reembed(db_path, model) gives the file another one."
            ) from error
        except InputError as error:
            raise InputError(f"query_vector cannot be used. {error}") from error

    def _search_vectors(self) -> None:
        assert self.query_vector is not None  # noqa: S101 - the callers have seen to it
        began = time.perf_counter()
        plan = self.plan
        k = max(plan.top_k, plan.vector_top_k or DEFAULT_POOL)
        leg = self.engine.vector_leg(self.query_vector, k, self.filters, plan)
        self.pool = leg.pool
        if plan.min_similarity is not None:
            leg.hits = [hit for hit in leg.hits if hit.score >= plan.min_similarity]
        self.vector_hits = leg
        self.timings["vector"] = self.timings.get("vector", 0.0) + time.perf_counter() - began

    def lexical(self) -> None:
        """Fill the lexical leg; without an index the vector leg answers alone, and says so."""
        began = time.perf_counter()
        plan = self.plan
        try:
            self.terms = self.engine.query_terms(self.query_text, plan)
            if not self.terms.wanted and not self.terms.clauses:
                self.notices.append("The question has no words that the lexical leg could look for.")
            self._search_words()
        except NoLexicalIndexError as error:
            if plan.mode == "lexical" or plan.strict:
                path = self.engine.path
                raise StoreError(path, f"{path} has no lexical index. Prepare the file again. ({error})") from error
            self.has_lexical_index = False
            self.notices.append("The file has no lexical index, so the answer is from the vector leg alone.")
        self.timings["lexical"] = time.perf_counter() - began

    def _search_words(self) -> None:
        plan = self.plan
        k = max(plan.top_k, plan.lexical_top_k or DEFAULT_POOL)
        self.lexical_hits = self.engine.lexical_leg(self.terms, k, plan, self.filters)

    def refine(self) -> None:
        """Search again with what the best chunks of the first search add to the question, where that is asked for."""
        plan = self.plan
        if not plan.feedback and not plan.expansion:
            return
        began = time.perf_counter()
        best = [self._node_ids()[hit.rid] for hit in self.fused()[0][: max(plan.feedback, EXPANSION_CHUNKS)]]
        if not best:
            return
        if plan.expansion and self.terms.clauses:
            self.notices.append(f"expansion={plan.expansion} has no effect with quotes or stars in the question.")
        elif plan.expansion and self.terms.termids:
            self.terms = self.engine.expanded_terms(self.terms, best[:EXPANSION_CHUNKS], plan.expansion)
            self._search_words()
        if plan.feedback and self.query_vector is not None:
            nearest = self.engine.vectors_of(best[: plan.feedback])
            self.query_vector = moved_vector(self.query_vector, nearest, plan.feedback_weight)
            self._search_vectors()
        self.timings["feedback"] = time.perf_counter() - began

    def _explain_nothing(self) -> None:
        """Say why a leg found nothing, where its words, the filters or the least cosine are the cause."""
        plan = self.plan
        vector_empty = self.query_vector is not None and not self.vector_hits.hits
        words_empty = self._asks_for_words() and not self.lexical_hits.hits
        if not (vector_empty or words_empty):
            return
        any_passes = not self.filters or self.engine.any_passes(self.filters)
        if not any_passes:
            hints = self.engine.filter_hints(plan.filters)
            self.notices.append(" ".join([f"No chunk passes the filters: {shown(self.asked_filters)}.", *hints]))
            return
        passing = "chunk that passes the filters" if self.filters else "chunk"
        if vector_empty and plan.min_similarity is not None:
            self.notices.append(f"No {passing} has a cosine of {plan.min_similarity} or more.")
        if words_empty:
            self._explain_words(passing)

    def _explain_words(self, passing: str) -> None:
        """Say what no chunk holds, and whether that is so with the filters only."""
        plan = self.plan
        quoted = shortened(", ".join(f'"{phrase.strip()}"' for phrase in self.terms.phrases))
        asked = bool(self.filters) and (bool(quoted) or plan.mode == "lexical")
        if asked and self.engine.lexical_leg(self.terms, 1, plan, {}).hits:
            self.notices.append(
                f"No {passing} holds {quoted or 'the words'}; others do. Filters: {shown(self.asked_filters)}."
            )
            return
        if quoted:
            self.notices.append(f"No chunk holds {quoted}. Leave the quotes out to look for the words alone.")
        elif plan.mode == "lexical":
            what = "all of the words" if plan.conjunctive else "any of the words"
            self.notices.append(f"No chunk holds {what}.")

    def _asks_for_words(self) -> bool:
        return self.plan.mode != "vector" and self.has_lexical_index and bool(self.terms.wanted or self.terms.clauses)

    def package(self) -> Results:
        """Fuse the legs and fetch the rows of the best."""
        began = time.perf_counter()
        plan = self.plan
        self._explain_nothing()
        hits, score_type = self.fused()
        hits = hits[: plan.top_k]
        fused = time.perf_counter()
        found = self._found(hits, score_type)
        sources = {}
        if plan.include_source_docs:
            sources = self.engine.source_documents([candidate.doc_id for candidate in found])
        # The statement gives these rows, so it is that of the leg which answered.
        stated = replace(plan, mode="lexical") if self.query_vector is None else plan
        self.timings.update(fuse=fused - began, fetch=time.perf_counter() - fused)
        results = Results(
            [as_row(candidate, sources.get(candidate.doc_id)) for candidate in found],
            query_text=self.query_text,
            sql=self.engine.statement(self.query_text, stated, self.terms, self.pool),
            notices=self.notices,
            timings=self.timings,
            methods={
                name: leg.method
                for name, leg in (("vector", self.vector_hits), ("lexical", self.lexical_hits))
                if leg.method
            },
            candidates={"vector": len(self.vector_hits.hits), "lexical": len(self.lexical_hits.hits)},
        )
        results.found = tuple(found)
        if self.terms.asked is not None:
            results.asked = (self.terms.asked, self.engine.metadata["stemmer"])
        return results

    def fused(self, parts: dict[int, tuple[float, float]] | None = None) -> tuple[list[FusedHit], str]:
        """Return every candidate, best first, and the type of its score; ``parts`` as in :func:`fuse_legs`."""
        plan, parts = self.plan, {} if parts is None else parts
        if plan.mode == "lexical" or self.query_vector is None:
            parts.update((hit.rid, (0.0, hit.score)) for hit in self.lexical_hits.hits)
            return [
                FusedHit(*hit, None, None, hit.score, rank) for rank, hit in enumerate(self.lexical_hits.hits, 1)
            ], self.engine.lexical_score
        if plan.mode == "vector" or not self.has_lexical_index:
            parts.update((hit.rid, (hit.score, 0.0)) for hit in self.vector_hits.hits)
            return [
                FusedHit(*hit, hit.score, rank, None, None) for rank, hit in enumerate(self.vector_hits.hits, 1)
            ], "vector"
        exact = None
        if plan.fusion == "convex":
            rids = sorted({hit.rid for hit in (*self.vector_hits.hits, *self.lexical_hits.hits)})
            exact = self.engine.pair_scores(self.query_vector, self.terms, rids, plan.bm25)
        fused = fuse_legs(
            self.vector_hits.hits,
            self.lexical_hits.hits,
            fusion=plan.fusion,
            rrf_k=plan.rrf_k,
            weights=plan.rrf_weights,
            vector_weight=plan.vector_weight,
            alpha=plan.alpha,
            exact=exact,
            parts=parts,
        )
        return fused, plan.fusion

    def _found(self, hits: Sequence[FusedHit], score_type: str) -> list[Candidate]:
        node_ids = self._node_ids()
        chunks = self.engine.chunk_rows([node_ids[hit.rid] for hit in hits])
        found = []
        for hit in hits:
            chunk = dict(chunks[node_ids[hit.rid]])
            chunk["heading_path"], chunk["tags"] = tuple(chunk["heading_path"]), tuple(chunk["tags"])
            scores = {name: getattr(hit, name) for name in _SCORES}
            found.append(Candidate(content=chunk.pop("text"), score_type=score_type, **chunk, **scores))
        return found

    def _node_ids(self) -> dict[int, str]:
        return {**self.lexical_hits.node_ids, **self.vector_hits.node_ids}
