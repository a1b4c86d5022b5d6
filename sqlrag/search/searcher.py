"""A search through its stages: the question's vector, both legs, feedback, fusion, rows; and its record."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlrag import arguments
from sqlrag.arguments import counted, meant_or_there, shortened, shown
from sqlrag.cancellation import patience
from sqlrag.embedders.base import GIVEN, same_model
from sqlrag.embedders.batching import question_waits
from sqlrag.engines.base import NoLexicalIndexError
from sqlrag.engines.duckdb.legs import EXPANSION_CHUNKS, EXPANSION_WEIGHT, moved_vector
from sqlrag.engines.duckdb.lexical import marks, weighed_words
from sqlrag.engines.duckdb.metadata import model_identity
from sqlrag.engines.duckdb.rows import as_row, counted_names, rows_of
from sqlrag.errors import (
    InputError,
    MissingExtraError,
    ModelMismatchError,
    ModelUnavailableError,
    ProviderError,
    SqlragError,
    StoreError,
)
from sqlrag.network import scrub
from sqlrag.normalize import is_blank, without_surrogates
from sqlrag.ranking.filters import (
    Filters,
    compared_fields,
    compared_orders,
    compared_texts,
    filter_hints,
    kind_of,
    negated_of,
)
from sqlrag.ranking.fusion import NOISE, FusedHit, Leg, Parts, Trust, fuse_legs, gap_of
from sqlrag.ranking.results import Results
from sqlrag.ranking.terms import Terms
from sqlrag.ranking.vectors import checked_vector
from sqlrag.search.around import with_context
from sqlrag.telemetry import measured, request, request_id_of
from sqlrag.types import FILE_FIELDS, Candidate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from sqlrag.engines.base import Engine
    from sqlrag.ranking.explanation import Explanation
    from sqlrag.ranking.plan import SearchOptions
    from sqlrag.search.query_log import QueryLog
    from sqlrag.types import Embedder, ModelIdentity

log = logging.getLogger("sqlrag.query")

T = TypeVar("T")

_LOAD_FOLDERS = ("onnx", "openvino", "huggingface")
_SCORES = ("score", "vector_score", "vector_rank", "lexical_score", "lexical_rank")
EMBEDDING_FAILURES = (ModelUnavailableError, ProviderError, MissingExtraError)

_NOISE = (
    "For this question, meaning and words do not agree: of {trust.chunks} chunks that hold its words, those with more "
    "of them are no nearer in meaning (correlation {trust.rho:.2f}); {rest}. If most questions say so, the model may "
    "not know the language or the subject: see the page 'Embedding models' of the handbook."
)

# The fewest chunks by which the vectors are called noise: the standard error of a correlation is then .1.
_NOISE_SAMPLE = 100

_IRRELEVANT = (
    "Probably nothing relevant: {cosine}the best match by words has {words:.0%} of the score that they could give."
)

# Both are low where nothing answers a question, by the share of the highest score that its words could have which the
# best chunk has; see tests/bench/relevance.py. Cosines of the hashing embedder count words, so those decide alone.
_LOW_COSINE, _LOW_WORDS, _LOW_WORDS_ALONE = 0.32, 0.2, 0.08

# How long a question waits for a model whose last failure took longer than this. Long enough for one that works.
RETRY_SECONDS = 1.0

_CACHED_QUERIES = 256

# A date that is not as 2024-12-31, in a filter.
_OTHER_DATE = re.compile(r"([0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{4}|[0-9]{4}[./-][0-9]{1,2}[./-][0-9]{1,2})([T ].*)?")

# A phrase in quotes or a word with a star, where they are no syntax, and what is said of them.
_MARKS = re.compile(r'"[^"]+"|\w{2,}\*')
_PUNCTUATION = " Quotes and stars are punctuation here; with syntax=True they mean phrases and beginnings of words."


class QuestionEmbedder:
    """Embeds questions with the model of a file, which is loaded and compared with the file at the first of them.

    Every question tries the model again, so that a model that failed takes part as soon as it can. A provider may have
    the attribute ``timeout``, in seconds: no impatient question waits longer. After a slow failure, impatient questions
    wait for one second only; a vector that arrives later is kept for the next time.
    """

    def __init__(self, path: Path | str, identity: ModelIdentity, embedder: Embedder | None) -> None:
        self._path = path
        self.identity = identity
        self._embedder = embedder
        self._is_checked = False
        self._was_slow_to_fail = False
        self._vectors: dict[str, NDArray[np.float32]] = {}

    @property
    def loaded(self) -> Embedder | None:
        """The embedder, if it was given or has been loaded."""
        return self._embedder

    def embedder(self) -> Embedder:
        """Return the embedder of the file, loaded once and checked against the file.

        Raises
        ------
        ModelMismatchError
            The model's vectors are not those that the file was built with.
        ModelUnavailableError, MissingExtraError, ProviderError
            It cannot be loaded here, or does not answer.
        """
        from sqlrag.embedders.base import check_stored

        embedder = self._load()
        if not self._is_checked:
            waiting = question_waits.set(True)
            try:
                check_stored(embedder, self.identity)
            finally:
                question_waits.reset(waiting)
            self._is_checked = True
        return embedder

    def embed(
        self, query_text: str, *, patient: bool = True, timings: dict[str, float] | None = None
    ) -> NDArray[np.float32]:
        """Return the vector of a question, ``[dimensions] float32`` of unit norm; the last 256 are remembered.

        ``patient`` waits as long as the provider itself does. ``timings`` gets the seconds of "load" and "embed".
        """
        timings = {} if timings is None else timings
        vector = self._vectors.pop(query_text, None)
        if vector is not None:
            self._vectors[query_text] = vector  # last, as the one used last
            timings["embed"] = 0.0
            return vector
        began = time.perf_counter()
        try:
            seconds = None if patient else self._seconds(timings)
            if seconds is not None:
                seconds = max(0.1, seconds - (time.perf_counter() - began))
            limit = patience(seconds)
            if limit is None:
                return self._attempt(query_text, timings)
            return self._within(limit, lambda: self._attempt(query_text, timings))
        except EMBEDDING_FAILURES:
            # What fails at once, such as a server that is not running, costs nothing to try again.
            self._was_slow_to_fail = self._was_slow_to_fail or time.perf_counter() - began > RETRY_SECONDS
            raise

    def _seconds(self, timings: dict[str, float]) -> float | None:
        """Return how long an impatient question waits for the model, None for as long as it takes."""
        if self._was_slow_to_fail:
            return RETRY_SECONDS
        if self._embedder is None:
            from sqlrag.embedders.base import usual_timeout

            seconds = usual_timeout(self.identity.provider)
            if seconds is not None or patience() is not None:
                return seconds  # loading it may ask its server, or take longer than the request has
        return getattr(self._load(timings), "timeout", None)

    def _load(self, timings: dict[str, float] | None = None) -> Embedder:
        from sqlrag.embedders.base import load_stored

        if self._embedder is None:
            began = time.perf_counter()
            remedy = "with. Pass query_vector to a search, vectors to index, or an embedder to Store(path, embedder=…)."
            try:
                self._embedder = load_stored(self._path, self.identity, remedy)
            except SqlragError:
                raise
            except Exception as error:  # a provider of others may raise anything
                raise ModelUnavailableError(
                    f"The {self.identity.provider} model {self.identity.model_name!r} of {self._path} cannot be "
                    f"loaded: {type(error).__name__}: {scrub(str(error))}"
                ) from error
            if timings is not None:
                timings["load"] = time.perf_counter() - began
        return self._embedder

    def _attempt(self, query_text: str, timings: dict[str, float]) -> NDArray[np.float32]:
        from sqlrag.embedders import embed_texts

        self._load(timings)
        began = time.perf_counter()
        vector: NDArray[np.float32] = embed_texts(self.embedder(), [query_text], kind="query")[0]
        timings["embed"] = time.perf_counter() - began
        self._was_slow_to_fail = False
        while len(self._vectors) >= _CACHED_QUERIES:
            self._vectors.pop(next(iter(list(self._vectors)), ""), None)
        self._vectors[query_text] = vector
        return vector

    def _within(self, seconds: float, work: Callable[[], NDArray[np.float32]]) -> NDArray[np.float32]:
        """Return what the work returns, or raise ProviderError if that takes longer; the work goes on to its end."""
        answer: Future[NDArray[np.float32]] = Future()

        def run() -> None:
            try:
                answer.set_result(work())
            except BaseException as error:
                answer.set_exception(error)

        # A daemon, because a process must be able to end while a server keeps it waiting.
        threading.Thread(target=copy_context().run, args=(run,), name="sqlrag-embed", daemon=True).start()
        wait([answer], timeout=seconds)
        if not answer.done():
            longer = "vector_query and strict=True wait longer" if patience() is None else "a request has no more time"
            raise ProviderError(
                f"The {self.identity.provider} model {self.identity.model_name!r} gave no answer within "
                f"{seconds:.3g} seconds. See whether its server is well; {longer}."
            )
        return answer.result()


class Run:
    """One query on its way through the stages."""

    def __init__(self, questions: QuestionEmbedder, engine: Engine, query_text: str, plan: SearchOptions) -> None:
        self.questions = questions
        self.engine = engine
        self.query_text = query_text
        self.plan = plan
        self.asked_filters = plan.filters.as_written()
        self.filters: dict[str, Any] = {}
        self.vector_hits = Leg()
        self.lexical_hits = Leg()
        self.query_vector: NDArray[np.float32] | None = None
        self.terms = Terms()
        self.trust: Trust | None = None
        self.best_cosine: float | None = None
        self.best_words: float | None = None
        self.pool: int | None = None
        self.has_lexical_index = True
        self.notices: list[str] = plan.without_effect()
        self.timings: dict[str, float] = {}

    def filter(self) -> None:
        """Find the chunks whose metadata pass, once for both legs."""
        if not self.asked_filters:
            return
        began = time.perf_counter()
        self.filters = self.engine.passing_filters(self.plan.filters)
        self.timings["filter"] = time.perf_counter() - began

    def embed(self) -> None:
        """Embed the question unless its vector is given; a model that fails is a notice where words can answer."""
        began, given = time.perf_counter(), self.plan.query_vector
        patient = self.plan.mode == "vector" or self.plan.strict
        try:
            if given is None:
                self.query_vector = self.questions.embed(self.query_text, patient=patient, timings=self.timings)
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

    def _given_vector(self, given: ArrayLike) -> NDArray[np.float32]:
        try:
            return checked_vector(given, self.questions.identity.dimensions)
        except ModelMismatchError as error:
            raise ModelMismatchError(
                f"query_vector cannot be used. {error} The file's model is {self.questions.identity.model_name!r}; "
                "reembed(db_path, model) gives the file another one."
            ) from error
        except InputError as error:
            raise InputError(f"query_vector cannot be used. {error}") from error

    def vector(self) -> None:
        """Fill the vector leg, if the question has a vector."""
        if self.query_vector is None:
            return
        began, plan = time.perf_counter(), self.plan
        leg = self.engine.vector_leg(self.query_vector, plan.vector_candidates, self.filters, plan)
        self.pool = leg.pool
        if self.best_cosine is None and leg.hits:  # of the question as it was asked, before feedback
            self.best_cosine = max(hit.score for hit in leg.hits)
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
                begun = " or ".join(f"{prefix}*" for prefix in self.terms.prefixes)
                nothing = "The question has no words that the lexical leg could look for."
                self.notices.append(f"No chunk holds a word that begins as {begun}." if begun else nothing)
            self.notices += _unknown_words(self.terms.unknown, all_told=not self.terms.termids)
            self.lexical_hits = self.engine.lexical_leg(self.terms, plan.lexical_candidates, plan, self.filters)
            if self.terms.most:
                self.best_words = max((hit.score for hit in self.lexical_hits.hits), default=0.0) / self.terms.most
        except NoLexicalIndexError as error:
            if plan.mode == "lexical" or plan.strict:
                path = self.engine.path
                raise StoreError(path, f"{path} has no lexical index: repair(db_path) makes it. ({error})") from error
            self.has_lexical_index = False
            self.notices.append("The file has no lexical index, so the answer is from the vector leg alone.")
        self.timings["lexical"] = time.perf_counter() - began

    def refine(self) -> None:
        """Search again with what the best chunks of the first search add to the question, where that is asked for."""
        plan = self.plan
        if not plan.feedback and not plan.expansion:
            return
        began = time.perf_counter()
        best = [self._node_ids()[hit.rid] for hit in self.fused()[0][: max(plan.feedback, EXPANSION_CHUNKS)]]
        if not best:
            return
        trust = self._measured_trust()
        if trust.value < NOISE:
            given = " and ".join(name for name in ("feedback", "expansion") if getattr(plan, name))
            self.notices.append(_NOISE.format(trust=trust, rest=f"{given} left out, which would follow noise"))
            return
        if plan.expansion and self.terms.clauses:
            self.notices.append(f"expansion={plan.expansion} has no effect with quotes or stars in the question.")
        elif plan.expansion and (gap := gap_of(hit.score for hit in self.lexical_hits.hits)) < 1:
            # Words that single out a text, or find less than ten, need no others.
            weight = EXPANSION_WEIGHT * trust.value * (1 - gap)
            self.terms = self.engine.expanded_terms(self.terms, best[:EXPANSION_CHUNKS], plan.expansion, weight)
            self.lexical_hits = self.engine.lexical_leg(self.terms, plan.lexical_candidates, plan, self.filters)
        if plan.feedback and self.query_vector is not None:
            nearest = self.engine.vectors_of(best[: plan.feedback])
            self.query_vector = moved_vector(self.query_vector, nearest, plan.feedback_weight * trust.value)
            self.vector()
        self.timings["feedback"] = time.perf_counter() - began

    def _measured_trust(self) -> Trust:
        """Return the trust in the vectors for the question as it was asked, which adaptive fusion has found already."""
        if self.trust is None:
            sample: list[tuple[float | None, float]] = []
            if self.query_vector is not None and self.has_lexical_index:
                self.engine.pair_scores(self.query_vector, self.terms, [], self.plan.bm25, sample)
            self.trust = Trust.of(sample, self.terms.known)
        return self.trust

    def _explain_nothing(self) -> None:
        """Say why a leg found nothing, where its words, the filters or the least cosine are the cause."""
        plan = self.plan
        vector_empty = self.query_vector is not None and not self.vector_hits.hits
        words_empty = self._asks_for_words() and not self.lexical_hits.hits
        if not (vector_empty or words_empty):
            return
        any_passes = not self.filters or self.engine.any_passes(self.filters)
        if not any_passes:
            self.notices.append(why_nothing_passes(self.engine, plan.filters))
            return
        passing = "chunk that passes the filters" if self.filters else "chunk"
        if vector_empty and plan.min_similarity is not None:
            self.notices.append(f"No {passing} has a cosine of {plan.min_similarity} or more.")
        if words_empty:
            self._explain_words(passing)

    def _explain_collections(self) -> None:
        """Say which of several collections is not there, where another one has let chunks pass."""
        asked = self.plan.filters.parameters().get("collection") or ()
        if len(asked) > 1 and not any("No chunk passes" in notice for notice in self.notices):
            self.notices += _unknown(self.engine, "collections", "collection", asked)

    def _explain_negations(self) -> None:
        """Say what a negated condition names that no chunk has, so that it holds for every one."""
        filters = self.plan.filters
        negated = negated_of(filters.metadata or {})
        if negated and not any("No chunk passes" in notice for notice in self.notices):
            hints = _hints_on_fields(self.engine, filters, negated)
            self.notices += [f"$ne, $nin or $not of the filters holds for every chunk. {hint}" for hint in hints]

    def _explain_comparisons(self) -> None:
        """Say which documents have values that are not compared with an operand of the filters."""
        filters = self.plan.filters
        if any("No chunk passes" in notice for notice in self.notices):
            return
        for (field, kind), operand in compared_orders(filters.metadata or {}).items():
            if kind == "text" and _OTHER_DATE.fullmatch(operand):
                self.notices.append(
                    f"{shown(operand)} is compared with the metadata field {field!r} as text, character by character, "
                    "not as a date. Dates are compared as 2024-12-31; a table has to be read with dates of that form."
                )
            if found := self.engine.not_compared(field, filters.parameters().get("collection"), kind):
                count = sum(one for one, _ in found)
                have = f"{counted(count, 'document')} {'has' if count == 1 else 'have'}"
                self.notices.append(
                    f"{have} another kind of value in the metadata field {field!r}, such as {shown(found[0][1])}, with "
                    f"which {shown(operand)} is not compared."
                )

    def _explain_words(self, passing: str) -> None:
        """Say what no chunk holds, and whether that is so with the filters only."""
        plan = self.plan
        quoted = shortened(", ".join(f'"{phrase.strip()}"' for phrase in self.terms.phrases))
        if self.filters and self.engine.lexical_leg(self.terms, 1, plan, {}).hits:
            if quoted or plan.mode == "lexical":  # else the vector leg has an answer that passes
                self.notices.append(
                    f"No {passing} holds {quoted or 'the words'}; others do. Filters: {shown(self.asked_filters)}."
                )
            return
        if quoted:
            self.notices.append(f"No chunk holds {quoted}. Leave the quotes out to look for the words alone.")
        else:
            what = "all of the words" if plan.conjunctive else "any of the words"
            order = "; the order is by the vectors" if self.vector_hits.hits else ""
            marks = "" if plan.syntax or not _MARKS.search(self.query_text) else _PUNCTUATION
            self.notices.append(f"No chunk holds {what}{order}.{marks}")

    def _explain_distance(self) -> None:
        """Say that probably nothing is relevant, where both legs say so."""
        cosine, words = self.best_cosine, self.best_words
        # A single word is in the file or not, and no weaker sign of anything.
        if cosine is None or words is None or self.terms.wanted < 2:
            return
        counts_words = self.questions.identity.provider == "hashing"
        if words < _LOW_WORDS_ALONE if counts_words else cosine < _LOW_COSINE and words < _LOW_WORDS:
            told = "" if counts_words else f"the best cosine is {cosine:.2f}, and "
            self.notices.append(_IRRELEVANT.format(cosine=told, words=words))

    def _are_noise(self) -> bool:
        """Return whether the vectors are noise for the question, by chunks enough; one word orders by length alone."""
        trust = self.trust
        return trust is not None and trust.value < NOISE and trust.chunks >= _NOISE_SAMPLE and self.terms.wanted > 1

    def _asks_for_words(self) -> bool:
        return self.plan.mode != "vector" and self.has_lexical_index and bool(self.terms.wanted or self.terms.clauses)

    def package(self) -> Results:
        """Fuse the legs and fetch the rows of the best."""
        began = time.perf_counter()
        plan = self.plan
        self._explain_nothing()
        self._explain_collections()
        self._explain_negations()
        self._explain_comparisons()
        self._explain_distance()
        hits, score_type = self.fused()
        hits, further = _of_each_document(hits, plan.per_document)
        hits = hits[: plan.top_k]
        if score_type == "adaptive" and self.lexical_hits.hits and self._are_noise():
            self.notices.append(_NOISE.format(trust=self.trust, rest="so the order is by words"))
        fused = time.perf_counter()
        found, notices = with_context(self.engine, self._found(hits, score_type), plan)
        self.notices += notices
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
            }
            | ({"engine": self.engine.note} if self.engine.note else {}),
            candidates={"vector": len(self.vector_hits.hits), "lexical": len(self.lexical_hits.hits)},
        )
        results.found = tuple(found)
        results.of_tables = not found and self.engine.has_rows()
        node_ids, shown_documents = self._node_ids(), {candidate.doc_id for candidate in found}
        for hit in further:
            if hit.doc_id in shown_documents:
                results.further.setdefault(hit.doc_id, []).append(node_ids[hit.rid])
        results.files = self.engine.files_of([candidate.node_id for candidate in found])
        stemmer = self.engine.metadata["stemmer"]
        results.weighed = partial(weighed_words, self.query_text, self.terms.asked, self.terms.weights, stemmer)
        if self.terms.asked is not None:
            results.marks = partial(marks, self.terms.asked, stemmer)
        return results

    def fused(self, parts: dict[int, Parts] | None = None) -> tuple[list[FusedHit], str]:
        """Return every candidate, best first, and the type of its score; ``parts`` as in :func:`fuse_legs`."""
        plan, parts = self.plan, {} if parts is None else parts
        if plan.mode == "lexical" or self.query_vector is None:
            parts.update((hit.rid, Parts(0.0, hit.score)) for hit in self.lexical_hits.hits)
            return [
                FusedHit(*hit, None, None, hit.score, rank) for rank, hit in enumerate(self.lexical_hits.hits, 1)
            ], "bm25"
        if plan.mode == "vector" or not self.has_lexical_index:
            parts.update((hit.rid, Parts(hit.score, 0.0)) for hit in self.vector_hits.hits)
            return [
                FusedHit(*hit, hit.score, rank, None, None) for rank, hit in enumerate(self.vector_hits.hits, 1)
            ], "vector"
        exact = None
        if plan.fusion in ("adaptive", "convex"):
            rids = sorted({hit.rid for hit in (*self.vector_hits.hits, *self.lexical_hits.hits)})
            # Of the question as it was asked: feedback brings cosines and words nearer to each other.
            sample: list[tuple[float | None, float]] | None
            sample = [] if plan.fusion == "adaptive" and self.trust is None else None
            exact = self.engine.pair_scores(self.query_vector, self.terms, rids, plan.bm25, sample)
            if sample is not None:
                self.trust = Trust.of(sample, self.terms.known)
            if plan.fusion == "adaptive" and self.terms.clauses:  # words do not count where a phrase is missing
                held = {hit.rid: hit.score for hit in self.lexical_hits.hits}
                exact = {rid: (exact[rid][0], held.get(rid)) for rid in rids}
        fused = fuse_legs(
            self.vector_hits.hits,
            self.lexical_hits.hits,
            fusion=plan.fusion,
            trust=self.trust.value if self.trust else 1.0,
            exact=exact,
            parts=parts,
            **plan.fusion_parameters(),
        )
        return fused, plan.fusion

    def _found(self, hits: Sequence[FusedHit], score_type: str) -> list[Candidate]:
        node_ids = self._node_ids()
        wanted = [node_ids[hit.rid] for hit in hits]
        found = []
        for hit, row in zip(hits, rows_of(self.engine.path, self.engine.chunk_rows(wanted), wanted), strict=True):
            chunk = dict(row)
            chunk["heading_path"], chunk["tags"] = tuple(chunk["heading_path"]), tuple(chunk["tags"])
            scores = {name: getattr(hit, name) for name in _SCORES}
            found.append(Candidate(content=chunk.pop("text"), score_type=score_type, **chunk, **scores))
        return found

    def _node_ids(self) -> dict[int, str]:
        return {**self.lexical_hits.node_ids, **self.vector_hits.node_ids}


def _of_each_document(hits: Sequence[FusedHit], most: int) -> tuple[list[FusedHit], list[FusedHit]]:
    """Return the first ``most`` hits of each document, all if it is 0, and the others; both in their order."""
    taken: Counter[str] = Counter()
    kept: list[FusedHit] = []
    further: list[FusedHit] = []
    for hit in hits:
        taken[hit.doc_id] += 1
        (further if most and taken[hit.doc_id] > most else kept).append(hit)
    return kept, further


# Beyond so many names it is not said that one is unknown.
_MOST_KNOWN = 10_000

# Texts of a metadata field, all of which are looked at for one that is like what a filter asks for.
_FEW = 50


def why_nothing_passes(engine: Engine, filters: Filters) -> str:
    """Say that no chunk passes the filters, and which of their names and values no chunk has."""
    asked = filters.as_written()
    hints = [
        *_unknown(engine, "collections", "collection", asked.get("collection", ())),
        *_unknown(engine, "tags", "tag", [*asked.get("tags_any", ()), *asked.get("tags_all", ())]),
        *_hints_on_fields(engine, filters, filters.metadata or {}),
        *_hints_on_values(engine, filters),
    ]
    return " ".join([f"No chunk passes the filters: {shown(asked)}.", *hints])


def _hints_on_fields(engine: Engine, filters: Filters, metadata: Mapping[str, Any]) -> list[str]:
    """Return which fields of a metadata filter no chunk has, and which of its values are not like those of a field."""
    compared = compared_fields(metadata)
    first = engine.first_values(compared, filters.parameters().get("collection"))
    there_not = [name for name in compared if name not in first]
    return [
        *_unknown(engine, "metadata_fields", "metadata field", there_not, filters.as_written().get("collection", ())),
        *filter_hints(
            metadata,
            first,
            lambda one: engine.any_passes(engine.passing_filters(Filters(filters.collection, metadata=one))),
        ),
    ]


def _hints_on_values(engine: Engine, filters: Filters) -> Iterator[str]:
    """Yield a sentence for each text of a metadata filter that a field has in other case or with other blanks only.

    Of a field of few texts, such as a status, those are told that are like it, or some.
    """
    collection = filters.parameters().get("collection")
    for name, texts in compared_texts(filters.metadata or {}).items():
        named = {"field": name, "texts": texts, "collection": collection, "few": _FEW, "most": _MOST_KNOWN}
        found: dict[str, list[str]] = {}
        for text, value in engine.select("serving/near_values", named):
            if "date" not in (kind_of(text), kind_of(value)):  # of these filter_hints speaks
                found.setdefault(text, []).append(value)
        for text, values in found.items():
            if text not in values:
                yield f"No chunk has {shown(text)} in the metadata field {name!r}; {meant_or_there(text, values)}"


def _unknown(
    engine: Engine, kind: str, what: str, names: Iterable[str], collections: Sequence[str] = ()
) -> Iterator[str]:
    """Yield a sentence for each of the names that no chunk has, or none of the collections."""
    if not names:
        return
    rows = counted_names(lambda name, **values: engine.select(name, values), kind, _MOST_KNOWN, files=1)
    known = [row["name"] for row in rows]
    if kind == "metadata_fields":  # those of every chunk come last
        known.sort(key=lambda name: name in FILE_FIELDS)
    for name in dict.fromkeys(names):
        if name in known and collections:
            yield f"No chunk of {shown(collections)} has the {what} {name!r}, which others have."
        if name in known or len(known) == _MOST_KNOWN:
            continue
        outer = name.partition(".")[0]
        if kind == "metadata_fields" and outer in known and outer != name:
            there = f"filters see {outer!r} as a whole. Give what is inside of it a field of its own"
            there += f", of a table by a query: SELECT *, {name} AS {name.rpartition('.')[2]} FROM …"  # noqa: S608 - a message
        else:
            there = meant_or_there(name, known)
        yield f"No chunk has the {what} {name!r}" + (f"; {there}" if there else ".")


def _unknown_words(unknown: Mapping[str, Sequence[str]], *, all_told: bool) -> list[str]:
    """Return a notice for the words that no chunk holds, and one for each that has others near it.

    With ``all_told`` another notice says that no chunk holds any.
    """
    far = [f'"{word}"' for word, near in unknown.items() if not near and not all_told]
    notices = [f"No chunk holds {shortened(', '.join(far))}."] if far else []
    for word, near in unknown.items():
        if near:
            nearest = ", ".join(f'"{other}"' for other in near)
            notices.append(f'No chunk holds "{shortened(word)}". The nearest words are {nearest}.')
    return notices


class Searcher:
    """Searches one open store. Safe to use from several threads at once."""

    def __init__(self, engine: Engine, embedder: Embedder | None = None, query_log: QueryLog | None = None) -> None:
        self.engine = engine
        self.query_log = query_log
        self.questions = QuestionEmbedder(engine.path, self.identity, embedder)
        self._use_workers()

    @property
    def identity(self) -> ModelIdentity:
        """The model that the file was filled with."""
        return model_identity(self.engine.metadata)

    def _use_workers(self) -> None:
        # It starts its threads when there is work for them.
        self._workers = ThreadPoolExecutor(max(2, os.cpu_count() or 2), thread_name_prefix="sqlrag-lexical")
        self._process = os.getpid()

    def close(self) -> None:
        """End the worker threads, and write what waits for the query log."""
        self._workers.shutdown()
        if self.query_log is not None:
            self.query_log.flush()

    def embedder(self) -> Embedder:
        """Return the embedder of the file, loaded once and checked against the file."""
        return self.questions.embedder()

    def check_model_name(self, model_name: str) -> None:
        """Raise ModelMismatchError unless this is the file's model: by its name, or a local folder by its vectors."""
        from sqlrag.embedders import check_identity, load_embedder

        identity = self.identity
        if same_model(model_name, identity.model_name) or identity.model_name == GIVEN:
            return
        if Path(model_name).is_dir():
            provider = identity.provider if identity.provider in _LOAD_FOLDERS else "auto"
            check_identity(load_embedder(model_name, provider=provider), identity)
            return
        raise ModelMismatchError(
            f"{self.engine.path} was built with the model {identity.model_name!r}; you passed model_name="
            f"{model_name!r}. Leave it out to use the file's, or give the file another model: reembed(db_path, model)."
        )

    def embed_query(self, query_text: str) -> NDArray[np.float32]:
        """Return the vector of a question, ``[dimensions] float32`` of unit norm."""
        return self.questions.embed(query_text)

    def search(self, query_text: str, plan: SearchOptions) -> Results:
        """Run the legs of the plan, the lexical one in a thread of its own, and fuse what they find."""
        arguments.texts(query_text=query_text)
        with self._recorded(query_text, plan) as found:
            results = self.engine.read(self._work(query_text, plan, Run.package))
            found.append(results)
        return results

    def explain(self, query_text: str, node_id: str, plan: SearchOptions) -> Explanation:
        """Run the legs of the plan and take the score of one chunk apart."""
        return self.engine.read(self._work(query_text, plan, lambda run: run.engine.explained(run, node_id)))

    def _work(self, query_text: str, plan: SearchOptions, finish: Callable[[Run], T]) -> Callable[[Engine], T]:
        """Return what searches an engine by the plan, and then returns what ``finish`` makes of the legs."""
        blank = not isinstance(query_text, str) or is_blank(query_text)
        if blank and (plan.query_vector is None or plan.mode != "vector"):
            arguments.text("query_text", query_text)
            raise InputError("The query is blank. Pass a question or some words.")
        if plan.model_name is not None and plan.mode != "lexical":
            self.check_model_name(plan.model_name)

        def search(engine: Engine) -> T:
            run = Run(self.questions, engine, "" if blank else without_surrogates(query_text), plan)
            run.filter()
            if plan.mode == "lexical":
                run.lexical()
            else:
                beside = plan.mode == "hybrid" and engine.parallel(plan)
                with self._beside(run.lexical) if beside else nullcontext():
                    run.embed()
                    run.vector()
                if plan.mode == "hybrid" and not beside:
                    run.lexical()
            run.refine()
            return finish(run)

        return search

    @contextmanager
    def _beside(self, work: Callable[[], None]) -> Iterator[None]:
        """Run the work in a thread beside the body of the ``with`` block, and wait for it."""
        if self._process != os.getpid():
            self._use_workers()  # a fork leaves the threads behind
        try:
            future = self._workers.submit(work)
        except RuntimeError as error:
            if self.engine.closed:
                raise StoreError(self.engine.path, f"{self.engine.path} has been closed. Open it again.") from error
            raise
        try:
            yield
        finally:
            future.exception()  # wait, so that no leg outlives its query
        future.result()

    @contextmanager
    def _recorded(self, query_text: str, plan: SearchOptions) -> Iterator[list[Results]]:
        """Search as a request with an id; what the list gets, or an error, goes into the query log if there is one."""
        request_id = request_id_of(None)
        with request(request_id):
            began = time.perf_counter()
            found: list[Results] = []
            try:
                with measured("search", attributes={"sqlrag.mode": plan.mode, "sqlrag.top_k": plan.top_k}):
                    yield found
            except Exception as error:
                if self.query_log is not None:
                    self.query_log.add(self.engine.path, query_text, plan, error, time.perf_counter() - began)
                raise
            (results,) = found
            results.request_id = request_id
            results.timings["total"] = seconds = time.perf_counter() - began
            best, last = (results[0], results[-1]) if results else ({}, {})
            log.debug(
                "[%s] %s search, top_k %d: %s, %s %s to %s, in %.1f ms",
                request_id, plan.mode, plan.top_k, counted(len(results), "result"),
                best.get("score_type", "no scores"), best.get("score"), last.get("score"), seconds * 1000,
            )  # fmt: skip
            if self.query_log is not None:
                self.query_log.add(self.engine.path, query_text, plan, results, seconds)
