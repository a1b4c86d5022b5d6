"""The first half of an answer: rewording, search, duplicates, reranking, and the resulting prompt."""

from __future__ import annotations

import logging
import re
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlrag import arguments
from sqlrag.answers.chat_models import checked
from sqlrag.answers.context import contexts_of, notices_of
from sqlrag.answers.prompt import Prompt, block, fence_of, harmless, prompt_of
from sqlrag.answers.window import LeftOut, fit_context, token_counter
from sqlrag.arguments import counted
from sqlrag.blocks.compress import CompressPolicy, compress
from sqlrag.blocks.fuse import fuse
from sqlrag.blocks.rerank import drop_near_duplicates, rerank
from sqlrag.errors import InputError, NotFoundError
from sqlrag.network import scrub
from sqlrag.normalize import is_blank, without_surrogates
from sqlrag.search.open import opened_for
from sqlrag.search.searcher import EMBEDDING_FAILURES
from sqlrag.telemetry import Measure, RequestLog, measured, request
from sqlrag.types import Candidate, Candidates, RetrievePlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from sqlrag.answers.chat_models import ChatModel
    from sqlrag.answers.context import Context, Item
    from sqlrag.blocks.rerank import Reranker
    from sqlrag.search.open import AnyStores

MOST_QUERIES = 3

_LONGEST = 300  # characters

_TOKENS = 120

_SYSTEM = (
    "You write search queries. For the user's question, write up to three other wordings of it, with words that a "
    "document with the answer may use. One on each line, nothing else. Do not answer the question."
)

# List markers and quotes that models put around the lines.
_BULLET = re.compile(r"^\s*(?:[-*•]|\(?\d{1,2}[.):])\s*")

_QUOTES = " \t\"'`“”„«»"


def rewritten(question: str, model: ChatModel, *, request_id: str = "") -> list[str]:
    """Return up to three other wordings of a question; none if the model returns no usable line.

    Exceptions of the model are not caught.
    """
    messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": harmless(question)}]
    reply = model.chat(messages, max_tokens=_TOKENS, request_id=request_id)
    return queries_of("".join(piece.text for piece in checked(reply, model.model_name)), question)


def queries_of(text: str, question: str) -> list[str]:
    r"""Return the lines of a reply as queries: without bullets and quotes, blank, overlong and repeated ones left out.

    Examples
    --------
    >>> queries_of('1. "red valve"\n- Red valve\n\n* How to open it?', "How to open it?")
    ['red valve']
    """
    seen, queries = {question.strip().casefold()}, []
    for line in text.splitlines():
        query = _BULLET.sub("", line).strip(_QUOTES)
        if query and len(query) <= _LONGEST and query.casefold() not in seen and any(map(str.isalnum, query)):
            seen.add(query.casefold())
            queries.append(query)
    return queries[:MOST_QUERIES]


COSINE = "cosine"

"""The name for reranking by the cosine of the stored vectors, instead of a cross-encoder."""


@dataclass(frozen=True)
class Refinement:
    """How results are refined, validated: the options of :func:`sqlrag.answer` with these names."""

    rerank: str | Reranker | None = None
    diversity: float | None = None
    compress: bool | CompressPolicy = False

    def __post_init__(self) -> None:
        if not (self.rerank is None or callable(self.rerank) or (isinstance(self.rerank, str) and self.rerank.strip())):
            raise InputError(
                f'rerank must be "{COSINE}", the name or folder of a cross-encoder, or a callable, '
                f"not {arguments.shown(self.rerank)}."
            )
        if self.diversity is not None:
            arguments.number("diversity", self.diversity, 0, 1)
        if not isinstance(self.compress, CompressPolicy):
            arguments.flag("compress", self.compress)

    @property
    def reorders(self) -> bool:
        """Whether the order may change."""
        return self.rerank is not None or bool(self.diversity)


def distinct(items: Sequence[Item]) -> tuple[list[Item], list[tuple[str, str]]]:
    """Return the items without those that repeat the text of a better one; and pairs of node_ids, the better one first.

    Texts that differ only in white space and case are the same.
    """
    contexts = contexts_of(items)
    places = [Candidate("", place, context.text) for place, context in enumerate(contexts)]
    kept = drop_near_duplicates(places)
    name = {place.node_id: contexts[place.chunk_index].node_id for place in places}
    repeats = [(name[best], name[other]) for best, others in kept.dropped.items() for other in others]
    return [items[place.chunk_index] for place in kept], repeats


def reordered(question: str, items: Sequence[Item], store: Any, wanted: Refinement, keep: int | None) -> Candidates:
    """Return the best ``keep`` of the items in their new order; if reranking fails, in the old one with a notice.

    Raises
    ------
    InputError
        An item is not a candidate or result, or vectors are needed and there is no store with them.
    """
    candidates = _candidates(items)
    by_cosine = wanted.rerank == COSINE
    vectors = target = None
    if candidates and (by_cosine or wanted.diversity):
        vectors = _vectors(store, [candidate.node_id for candidate in candidates])
        if vectors is None:
            return _unchanged(candidates, keep, "the store has no valid vectors for some of these chunks.")
    if candidates and by_cosine:
        try:
            # The search has just embedded the question, so it is cached; after a failure there is no second wait.
            target = store.query_vector(question, patient=False)
        except EMBEDDING_FAILURES as error:
            return _unchanged(candidates, keep, str(error))
    return rerank(
        question,
        candidates,
        None if by_cosine else wanted.rerank,
        top_n=keep,
        diversity=wanted.diversity,
        vectors=vectors,
        query_vector=target,
    )


def shortened(question: str, items: Sequence[Item], store: Any, wanted: bool | CompressPolicy) -> list[dict[str, Any]]:
    """Return the items as compressed passages; the default policy has the stemmer of the store."""
    policy = wanted if isinstance(wanted, CompressPolicy) else CompressPolicy()
    if policy is not wanted and hasattr(store, "get_embedding_metadata"):
        policy = replace(policy, stemmer=store.get_embedding_metadata()["store"]["stemmer"])
    # A store of the caller's own may have no neighbours.
    reader = store if hasattr(store, "chunks_at") else None
    return compress(question, _candidates(items), policy, store=reader)


def _candidates(items: Sequence[Item]) -> list[Candidate]:
    """Return the items as candidates whose text every tokenizer accepts."""
    candidates = [item if isinstance(item, Candidate) else _candidate(item) for item in items]
    return [replace(candidate, content=without_surrogates(candidate.content)) for candidate in candidates]


def _candidate(row: Mapping[str, Any]) -> Candidate:
    needed: dict[str, type] = {"doc_id": str, "chunk_index": int, "score": Real}
    if row.get("spans") or not all(isinstance(row.get(name), kind) for name, kind in needed.items()):
        raise InputError(
            "Items to rerank or compress must be candidates, or results of a query, with doc_id, "
            f"chunk_index and score, and not yet compressed; one is {arguments.shown(row)}."
        )
    known = {field.name: row[field.name] for field in fields(Candidate) if row.get(field.name) is not None}
    known.update({name: tuple(known[name]) for name in ("tags", "heading_path") if name in known}, content=row["text"])
    return Candidate(**known)


def _vectors(store: Any, node_ids: Sequence[str]) -> NDArray[np.float32] | None:
    """Return the stored vectors of chunks, ``[n, dimensions]``; None if one is missing or damaged."""
    if not hasattr(store, "vectors"):
        raise InputError(
            f'rerank="{COSINE}" and diversity need the vectors of a store: pass db_path, or leave them out.'
        )
    try:
        vectors: NDArray[np.float32] = store.vectors(node_ids)
    except NotFoundError:
        return None
    return vectors if np.isfinite(vectors).all() and vectors.any(axis=1).all() else None


def _unchanged(candidates: list[Candidate], keep: int | None, why: str) -> Candidates:
    return Candidates(candidates[:keep], notices=[f"Not reranked, the order is unchanged: {why}"])


# Tokens that a server's chat format adds to two messages.
_FORMAT_TOKENS = 32


@dataclass(frozen=True)
class AnswerOptions:
    """The validated options of :func:`sqlrag.answer`."""

    template: str | None
    system: str | None
    max_tokens: int
    context_window: int
    count_tokens: Any
    margin: float
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    strict: bool = False
    expand: bool = False
    refinement: Refinement = field(default_factory=Refinement)


class PromptRun:
    """Prepares the prompt for a question. ``model`` is needed to expand the question."""

    stage = "prompt"

    def __init__(self, question: str, options: AnswerOptions, request_id: str, model: ChatModel | None = None) -> None:
        if is_blank(arguments.text("question", question)):
            raise InputError("The question is blank.")
        arguments.texts(template=options.template, system=options.system)
        self.question = question
        self.options = options
        self.request_id = request_id
        self.log = RequestLog(logging.getLogger("sqlrag.answer"), {"request_id": request_id})
        self.queries = [question]
        self.notices: list[str] = []
        self.timings: dict[str, float] = {}
        self.left_out: list[LeftOut] = []
        self.prompt: Prompt | None = None
        self._model = model
        with request(request_id):
            self.whole = Measure(self.stage)

    def prepare(self, db_path: AnyStores | None, plan: RetrievePlan | None, contexts: Sequence[Item] | None) -> None:
        """Search unless there are contexts, choose what fits, and build the prompt."""
        try:
            if not isinstance(plan, (RetrievePlan, type(None))):
                raise InputError(f"plan must be a RetrievePlan, not {arguments.shown(plan)}.")
            if contexts is not None:
                self.notices += notices_of(contexts)
                contexts = arguments.items("contexts", contexts, "what a query returned")
            with request(self.request_id):
                items, checksums = self._found(db_path, plan or RetrievePlan(fusion="adaptive"), contexts)
                with measured("fit", self.timings, parent=self.whole):
                    self._build(items, checksums)
        except BaseException as error:
            self.end(error)
            raise

    def end(self, failure: object = None) -> None:
        """End the measurement, once."""
        if "total" not in self.timings:
            self.timings["total"] = self.whole.end(failure)

    def note(self, notice: str) -> None:
        """Add a notice, and log it."""
        self.notices.append(notice)
        self.log.warning("%s", notice)

    # Searching.

    def _found(
        self, db_path: AnyStores | None, plan: RetrievePlan, contexts: Sequence[Item] | None
    ) -> tuple[Sequence[Item], dict[str, str]]:
        """Return the items to answer from, and the checksums of their documents."""
        with nullcontext() if db_path is None else opened_for(db_path, ("retrieve",), "db_path") as store:
            items: Sequence[Item] = self._search(store, plan) if contexts is None else contexts
            items = self._refined(items, store, arguments.whole("k", plan.k, 1) if contexts is None else None)
            return items, _checksums(store, {context.doc_id for context in contexts_of(items)})

    def _search(self, store: Any, plan: RetrievePlan) -> list[Candidate]:
        if self.options.expand and self._model is not None:
            self._rewrite(self._model)
        # As many as each leg passes to the fusion: candidates for reranking, and replacements for repeats.
        pool = max(arguments.whole("k", plan.k, 1), arguments.whole("candidate_pool", plan.candidate_pool, 1))
        with measured("retrieve", self.timings, parent=self.whole, attributes={"sqlrag.top_k": plan.k}):
            rankings = [store.retrieve(query, replace(plan, k=pool)) for query in self.queries]
            others = len(rankings) - 1
            weights = [1.0, *([1.0 / others] * others if others else [])]
            found = fuse(rankings, params={"weights": weights})[:pool] if others else list(rankings[0])
        for ranking in rankings:
            self.notices += [notice for notice in getattr(ranking, "notices", ()) if notice not in self.notices]
            for stage, seconds in getattr(ranking, "timings", {}).items():
                self.timings[f"retrieve.{stage}"] = self.timings.get(f"retrieve.{stage}", 0.0) + seconds
        scores = f"{found[0].score_type} {found[0].score:.4f} to {found[-1].score:.4f}" if found else "no scores"
        self.log.info(
            "%s to choose top_k %d from for %s, %s, in %.0f ms",
            counted(len(found), "chunk"), plan.k, counted(len(rankings), "query", "queries"), scores,
            self.timings["retrieve"] * 1000,
        )  # fmt: skip
        return found

    def _rewrite(self, model: ChatModel) -> None:
        try:
            with measured(
                "model", self.timings, parent=self.whole, attributes={"gen_ai.request.model": model.model_name}
            ):
                others = rewritten(self.question, model, request_id=self.request_id)
        except Exception as error:  # a model of the caller's own may raise anything
            self.note(f"The question was not expanded: {scrub(str(error))}")
            return
        finally:
            self.timings["expand"] = self.timings.pop("model")
        if not others:
            self.note("The question was not expanded: the model returned no other wording.")
        self.queries += others

    def _refined(self, items: Sequence[Item], store: Any, keep: int | None) -> list[Item]:
        """Leave out repeats, rerank the rest, take the best ``keep`` and compress them, as far as requested."""
        wanted = self.options.refinement
        items, repeats = distinct(items)
        if wanted.reorders:
            with measured("rerank", self.timings, parent=self.whole):
                candidates = reordered(without_surrogates(self.question), items, store, wanted, keep)
            self.notices += candidates.notices
            items = list(candidates)
        items = items[:keep]
        names = {context.node_id for context in contexts_of(items)}
        if wanted.compress:
            if any(context.context is not None for context in contexts_of(items)):
                self.note("context has no effect with compress, whose policy has neighbours.")
            with measured("compress", self.timings, parent=self.whole):
                items, more = distinct(shortened(without_surrogates(self.question), items, store, wanted.compress))
            repeats += more
        same = [f"{other or 'one'} (as {best or 'another'})" for best, other in repeats if best in names]
        if same:
            self.notices.append(f"Left out, since a better chunk has the same text: {', '.join(same)}.")
        return items

    # Choosing and prompting.

    def _build(self, items: Sequence[Item], checksums: dict[str, str]) -> None:
        """Fit the items into the window and build the prompt; no prompt if nothing fits."""
        if not items:
            return
        count_tokens = token_counter(self.options.count_tokens)
        limit = self.options.context_window - self.options.max_tokens - _FORMAT_TOKENS
        fence = fence_of(contexts_of(items))
        best = contexts_of(items[:1])
        overhead = max(0, count_tokens(str(self._prompt_of(best))) - count_tokens(block(best[0], 1, fence)))
        if limit - overhead < 1:
            raise InputError(
                f"context_window={self.options.context_window} has no room for a source after {overhead} tokens of "
                f"instructions and question and max_tokens={self.options.max_tokens}."
            )
        window = fit_context(items, limit - overhead, count_tokens=count_tokens, margin=self.options.margin)
        self.notices += window.notices
        self.left_out = window.left_out
        contexts = contexts_of(window.contexts, checksums)
        # A custom template may need more tokens for each source than was counted.
        while contexts and count_tokens(str(self._prompt_of(contexts))) > limit:
            last = contexts.pop()
            size = count_tokens(block(last, len(items), fence))
            self.left_out.append(LeftOut(last.node_id, last.doc_id, last.score, size, "no room left after better ones"))
            self.note(f"{last.node_id or 'A source'} did not fit into {limit} tokens with this template.")
        self.prompt = self._prompt_of(contexts) if contexts else None

    def _prompt_of(self, contexts: Sequence[Context]) -> Prompt:
        return prompt_of(self.question, contexts, self.options.template, self.options.system)


def _checksums(store: Any, doc_ids: set[str]) -> dict[str, str]:
    """Return the SHA-256 of documents by doc_id; none if the store does not have them."""
    if not hasattr(store, "checksums"):
        return {}
    found: dict[str, str] = store.checksums(sorted(doc_ids))
    return found
